"""Helpers for the Spark tests. They inspect and write log files, data files, and tables with unusual layouts."""

from __future__ import annotations

import json
import os
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

import deltalog
from tests.spark.settings import IS_CONNECT

LITTER = (".crc", "_SUCCESS", "_temporary", "_metadata", "_common_metadata")


def actions(table: str, version: int) -> list[dict[str, Any]]:
    """The lines of a commit file."""
    text = (Path(table) / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def action(table: str, version: int, kind: str) -> list[dict[str, Any]]:
    return [each[kind] for each in actions(table, version) if kind in each]


def versions(table: str) -> list[int]:
    log = Path(table) / "_delta_log"
    return sorted(int(p.stem) for p in log.glob("*.json")) if log.is_dir() else []


def data_files(table: str) -> list[str]:
    """The paths, relative to the table's root, of all files of the table that are not in its log."""
    root = Path(table)
    found = [p.relative_to(root) for p in root.rglob("*") if p.is_file() and "_delta_log" not in p.parts]
    return sorted(str(p) for p in found)


def litter(table: str) -> list[str]:
    """The files and directories of Spark jobs that remain below the table, outside the log; data files are not
    included."""
    found = []
    for parent, directories, files in os.walk(table):
        if "_delta_log" in parent:
            continue
        found += [os.path.join(parent, n) for n in (*directories, *files) if n.endswith(LITTER)]
    return found


def rows(df: Any, *order: str) -> list[tuple[Any, ...]]:
    """The rows as tuples, sorted by these columns, or by all."""
    return [tuple(row) for row in df.orderBy(*(order or df.columns)).collect()]


def to_arrow(df: Any) -> pa.Table:
    """All rows as Arrow, with variants as JSON, because PySpark's own conversion fails for null variants."""
    from pyspark.sql import functions as F

    quoted = {field.name: F.col("`" + field.name.replace("`", "``") + "`") for field in df.schema.fields}
    variants = [f.name for f in df.schema.fields if "variant" in f.dataType.simpleString()]
    plain = df.select(*[F.to_json(c).alias(n) if n in variants else c for n, c in quoted.items()])
    if hasattr(plain, "toArrow"):
        return plain.toArrow()
    # Private in PySpark 3.5.
    if IS_CONNECT:
        return plain._session.client.to_table(plain._plan.to_proto(plain._session.client))[0]
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = plain._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(plain.schema).empty_table()


# For each data file: its path relative to the table, its partition values, and its rows.
DataFiles = Sequence[tuple[str, Mapping[str, str | None], pa.Table]]


def make(
    table: str,
    schema: deltalog.schema.StructType,
    files: DataFiles,
    partition_by: Sequence[str] = (),
    named_in_log: Mapping[str, str] | None = None,
) -> None:
    """A table whose files have exactly the given relative paths. ``named_in_log``: the values of add.path that differ
    from the file's path, keyed by that path."""
    named = named_in_log or {}
    transaction = deltalog.DeltaTable.create_transaction(table, schema, partition_by=partition_by)
    for path, values, data in files:
        target = Path(table) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, target)
        add = deltalog.engine.AddFile(
            path=named.get(path, quote(path, safe="/=")),
            partition_values=dict(values),
            size=target.stat().st_size,
            modification_time=1_700_000_000_000,
            data_change=True,
        )
        transaction.add(add)
    transaction.commit("WRITE")


def history(
    table: str,
    columns: pa.Schema,
    tables: Sequence[pa.Table | None],
    times_ms: Sequence[int],
    properties: Mapping[str, str] | None = None,
) -> None:
    """A table with in-commit timestamps. The first entry creates the table; each later entry is appended in a commit
    with the entry's time."""

    def at(ms: int) -> deltalog.Environment:
        return deltalog.Environment(clock_ms=lambda: ms)

    properties = {"delta.enableInCommitTimestamps": "true", **(properties or {})}
    created = deltalog.DeltaTable.create(
        table, columns, properties=properties, data=tables[0], environment=at(times_ms[0])
    )
    assert created.version == 0
    for data, ms in zip(tables[1:], times_ms[1:], strict=True):
        deltalog.DeltaTable.open(table, environment=at(ms)).append(data)


def schema(**columns: str) -> deltalog.schema.StructType:
    """``schema(id="long", p="string")``."""
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return deltalog.schema.StructType.from_json(json.dumps({"type": "struct", "fields": fields}))


def append_raw(table: str, version: int, *lines: Mapping[str, Any]) -> None:
    """Write a commit file with these actions, without any checks."""
    path = Path(table) / "_delta_log" / f"{version:020d}.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def vector(table: str, positions: Iterable[int], kind: str = "i", directory: str | None = None) -> dict[str, Any]:
    """The descriptor of a deletion vector: inline (i), in a file with a relative path (u), or in a file with an
    absolute path (p)."""
    bitmap = BitMap64(positions)
    data = struct.pack("<i", 1681511377) + bitmap.serialize()
    descriptor = {"storageType": kind, "sizeInBytes": len(data), "cardinality": len(bitmap)}
    if kind == "i":
        return {**descriptor, "pathOrInlineDv": _z85(data + b"\0" * (-len(data) % 4))}
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"{table} {zlib.crc32(data)}")
    path = Path(directory or table) / f"deletion_vector_{name}.bin"
    path.write_bytes(b"\1" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    return {**descriptor, "offset": 1, "pathOrInlineDv": _z85(name.bytes) if kind == "u" else quote(str(path))}


def _z85(data: bytes) -> str:
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(_Z85[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def field(name: str, data_type: Any, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    """A column of a table's schema; ``id=3, physical="c3"`` add column mapping metadata."""
    known = {"id": "delta.columnMapping.id", "physical": "delta.columnMapping.physicalName"}
    return {
        "name": name,
        "type": data_type,
        "nullable": nullable,
        "metadata": {known.get(key, key): value for key, value in metadata.items()},
    }


def struct_of(*fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def make_raw(
    table: str,
    fields: Sequence[Mapping[str, Any]],
    files: Sequence[tuple[Any, ...]],
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """A table that is written as one commit, without any checks. Files: (path, partition values, rows or None if the
    file already exists, deletion vector or None)."""
    names = ["deletionVectors", "columnMapping", "timestampNtz", "typeWidening", "variantType"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": names, "writerFeatures": names}
    metadata = {
        "id": "made-by-hand",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(struct_of(*fields)),
        "partitionColumns": list(partition_by),
        "configuration": dict(properties or {}),
    }
    lines: list[Mapping[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    for path, values, data, *deleted in files:
        target = Path(table) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if data is not None:
            pq.write_table(data, target, row_group_size=500)
        add = {"path": quote(path, safe="/="), "partitionValues": dict(values), "size": target.stat().st_size}
        add |= {"modificationTime": 1_700_000_000_000, "dataChange": True}
        add |= {"deletionVector": deleted[0]} if deleted and deleted[0] else {}
        lines.append({"add": add})
    (Path(table) / "_delta_log").mkdir(parents=True, exist_ok=True)
    append_raw(table, 0, *lines)
