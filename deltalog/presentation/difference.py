"""The differences between two versions of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalog.log.file_statistics import live_rows
from deltalog.log.replay import files_without
from deltalog.presentation.schemas import columns_of
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
