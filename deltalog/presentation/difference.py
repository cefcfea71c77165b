"""The differences between two versions of a table."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from deltalog.log.file_statistics import live_rows
from deltalog.log.replay import files_without
from deltalog.parquet.file_reader import DataFile
from deltalog.presentation.schemas import columns_of
from deltalog.presentation.values import plain_json, value_of
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot


def differences(old: Snapshot, new: Snapshot) -> dict[str, Any]:
    """The files, row counts, columns, properties and table features that differ, as JSON values. A list of two values
    has the values before and after; a row count is None if a file has no statistics. Cost: the files of both
    versions."""
    added, removed = files_without(new.files(), old.files()), files_without(old.files(), new.files())
    return {
        "table": new.url,
        "from": old.version,
        "to": new.version,
        "files_added": _files(added),
        "files_removed": _files(removed),
        "num_files": [old.num_files, new.num_files],
        "num_rows": [live_rows(each.files()) for each in (old, new)],
        "size_bytes": [old.size_bytes, new.size_bytes],
        "columns": _differences(_types(old.schema), _types(new.schema)),
        "partition_columns": [list(old.partition_columns), list(new.partition_columns)],
        "properties": _differences(old.metadata.configuration, new.metadata.configuration),
        "features": _differences(dict.fromkeys(old.table_features, ""), dict.fromkeys(new.table_features, "")),
    }


def _files(files: Any) -> list[dict[str, Any]]:
    """The files as FILES rows. ``has_deletion_vector`` distinguishes a file from the same file without its deletion
    vector."""
    return [
        {"path": row["path"], "size_bytes": row["size"], "has_deletion_vector": row["deletion_vector"] is not None}
        for row in files.to_pylist()
    ]


def _types(struct: StructType) -> dict[str, str]:
    return {name: f"{kind}{'' if nullable else ' not null'}" for name, kind, nullable, _ in columns_of(struct)}


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, list[str | None]]:
    """The values before and after (None if absent) of the keys whose values differ."""
    return {key: [old.get(key), new.get(key)] for key in sorted({**old, **new}) if old.get(key) != new.get(key)}


def changed_rows(
    old: Snapshot, new: Snapshot, most: int, each: Callable[[], object]
) -> tuple[list[str], list[list[Any]], list[list[Any]]] | None:
    """The columns that both versions have with the same type, and the rows of these columns that only ``old`` has, and
    that only ``new`` has, as JSON values. Rows that were only moved to other files are not among them; a row that
    occurs twice is there twice. None if the files that differ have more than ``most`` rows. ``each``: called before
    each batch of rows. Cost: reads the files that differ."""
    known = {field.name: field.data_type for field in old.schema.fields}
    names = [field.name for field in new.schema.fields if known.get(field.name) == field.data_type]
    scans = [snapshot.scan(names, variants="json") for snapshot in (old, new)]
    files = [{_identity(file): file for file in scan.data_files()} for scan in scans]
    left = most
    counted: list[Counter[str]] = []
    for scan, own, others in zip(scans, files, reversed(files), strict=True):
        rows: Counter[str] = Counter()
        differing = (file for key, file in own.items() if key not in others)
        with contextlib.closing(scan.batches_of(differing)) as batches:  # type: ignore[type-var]  # a generator
            for batch in batches:
                each()
                left -= batch.num_rows
                if left < 0:
                    return None
                rows.update(_texts(batch))
        counted.append(rows)
    removed, added = counted[0] - counted[1], counted[1] - counted[0]
    return names, _values(removed), _values(added)


def _values(rows: Counter[str]) -> list[list[Any]]:
    return [json.loads(text) for text in rows.elements()]


def _identity(file: DataFile) -> tuple[str, object]:
    """A data file with its deletion vector."""
    vector = file.deletion_vector
    return file.path, None if vector is None else (vector.storage_type, vector.path_or_inline_dv, vector.offset)


def _texts(batch: pa.RecordBatch) -> Iterator[str]:
    for number in range(batch.num_rows):
        yield json.dumps([plain_json(value_of(column[number])) for column in batch.columns])
