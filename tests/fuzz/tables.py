"""Complete in-memory tables, written by hand, including log layouts that deltalog reads but does not write.

All tables have the same history and differ only in the files that record it, so the right answers are known.
"""

from __future__ import annotations

import datetime
import functools
import io
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from deltalog.schema import StructType

Files = dict[str, bytes]
Action = dict[str, Any]

NOW = 1_790_000_000_000
LOG = "_delta_log"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "tables"
_UTC = datetime.timezone.utc
_MAGIC = 1681511377

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("ok", pa.bool_()),
        ("nest", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("list", pa.list_(pa.field("element", pa.int16()))),
        ("part", pa.string()),
        ("bucket", pa.int32()),
    ]
)
PARTITION_BY = ("part", "bucket")
DATA_SCHEMA = pa.schema([field for field in SCHEMA if field.name not in PARTITION_BY])
PROPERTIES = {
    "delta.enableInCommitTimestamps": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "true",
}


# --------------------------------------------------------------------------------------------- rows and files


def data_rows(first: int) -> pa.Table:
    """Four rows of the data columns."""
    day = datetime.date(2026, 1, 1) + datetime.timedelta(days=first)
    moment = datetime.datetime(2026, 1, 1, 12, tzinfo=_UTC) + datetime.timedelta(hours=first, microseconds=123456)
    ids = range(first, first + 4)
    return pa.table(
        {
            "id": list(ids),
            "name": [None if i % 4 == 3 else f"name-{i:03d}" for i in ids],
            "score": [i / 4 for i in ids],
            "day": [day] * 4,
            "moment": [moment] * 4,
            "price": [Decimal(i).scaleb(-2) for i in ids],
            "ok": [i % 2 == 0 for i in ids],
            "nest": [{"a": i, "b": str(i)} for i in ids],
            "list": [[i, None] for i in ids],
        },
        schema=DATA_SCHEMA,
    )


def statistics(first: int) -> str:
    """The statistics of ``data_rows(first)`` as delta-spark writes them."""
    day = datetime.date(2026, 1, 1) + datetime.timedelta(days=first)
    moment = datetime.datetime(2026, 1, 1, 12) + datetime.timedelta(hours=first, milliseconds=123)
    low, high = first, first + 3
    names = [f"name-{i:03d}" for i in range(low, high + 1) if i % 4 != 3]
    stamp = moment.isoformat(timespec="milliseconds") + "Z"

    def bounds(i: int, name: str) -> Action:
        return {
            "id": i, "name": name, "score": i / 4, "day": day.isoformat(), "moment": stamp, "price": i / 100,
            "nest": {"a": i},
        }  # fmt: skip

    nulls = {"id": 0, "name": 1, "score": 0, "day": 0, "moment": 0, "price": 0, "ok": 0, "nest": {"a": 0, "b": 0}}
    return _json(
        {
            "numRecords": 4,
            "minValues": bounds(low, names[0]),
            "maxValues": bounds(high, names[-1]),
            "nullCount": nulls,
        }
    )


def parquet(table: pa.Table, **options: Any) -> bytes:
    """A Parquet file in memory, with page checksums like those that parquet-mr writes."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, write_page_checksum=True, **options)
    return buffer.getvalue()


def vector_bytes(positions: Iterable[int]) -> bytes:
    """A deletion vector, including the magic number."""
    return struct.pack("<i", _MAGIC) + BitMap64(positions).serialize()


def vector_file(*bodies: bytes) -> tuple[bytes, list[int]]:
    """A file with deletion vectors, and the offset of each vector in it."""
    out, offsets = bytearray(b"\x01"), []
    for body in bodies:
        offsets.append(len(out))
        out += struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    return bytes(out), offsets


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(data: bytes) -> str:
    """ZeroMQ's base85; the length is padded to whole groups."""
    text = ""
    data += b"\0" * (-len(data) % 4)
    for start in range(0, len(data), 4):
        value = int.from_bytes(data[start : start + 4], "big")
        text += "".join(_Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


_VECTOR_UUID = bytes(range(16))
VECTOR_NAME = f"deletion_vector_{'-'.join(_VECTOR_UUID.hex()[a:b] for a, b in [(0, 8), (8, 12), (12, 16), (16, 20)])}"
VECTOR_PATH = f"{VECTOR_NAME}-{_VECTOR_UUID.hex()[20:]}.bin"


def file_vector(positions: Sequence[int], offset: int) -> Action:
    """The descriptor of a deletion vector in the table's only deletion vector file."""
    size = len(vector_bytes(positions))
    return {
        "storageType": "u", "pathOrInlineDv": z85(_VECTOR_UUID), "offset": offset, "sizeInBytes": size,
        "cardinality": len(positions),
    }  # fmt: skip


def inline_vector(positions: Sequence[int]) -> Action:
    body = vector_bytes(positions)
    return {
        "storageType": "i", "pathOrInlineDv": z85(body), "sizeInBytes": len(body), "cardinality": len(positions)
    }  # fmt: skip


# -------------------------------------------------------------------------------------------------- actions


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def info(version: int, operation: str = "WRITE") -> Action:
    return {
        "commitInfo": {
            "inCommitTimestamp": NOW + 1000 * version, "timestamp": NOW + 1000 * version, "operation": operation,
            "operationParameters": {"mode": "Append"}, "isBlindAppend": True, "engineInfo": "by-hand",
            "txnId": f"txn-{version}",
        }
    }  # fmt: skip


def protocol() -> Action:
    return {
        "protocol": {
            "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors", "v2Checkpoint"],
            "writerFeatures": [
                "deletionVectors", "v2Checkpoint", "inCommitTimestamp", "changeDataFeed", "appendOnly", "invariants",
                "domainMetadata",
            ],
        }
    }  # fmt: skip


def metadata(**properties: str) -> Action:
    return {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9", "name": "by-hand", "description": None,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": StructType.from_arrow(SCHEMA).to_json(), "partitionColumns": list(PARTITION_BY),
            "configuration": {**PROPERTIES, **properties}, "createdTime": NOW,
        }
    }  # fmt: skip


def add(number: int, vector: Action | None = None) -> Action:
    """The add action of file ``number``, which contains the rows ``4 * number`` to ``4 * number + 3``."""
    body = {
        "path": f"f{number}.parquet", "partitionValues": {"part": f"p{number % 2}", "bucket": str(number)},
        "size": len(data_file(number)), "modificationTime": NOW + number, "dataChange": True,
        "stats": statistics(4 * number), "tags": {"written": "by-hand"},
    }  # fmt: skip
    return {"add": body if vector is None else {**body, "deletionVector": vector}}


def remove(number: int, vector: Action | None = None) -> Action:
    body = {
        "path": f"f{number}.parquet", "deletionTimestamp": NOW + 5000, "dataChange": True, "size": 1,
        "extendedFileMetadata": True, "partitionValues": {"part": f"p{number % 2}", "bucket": str(number)},
    }  # fmt: skip
    return {"remove": body if vector is None else {**body, "deletionVector": vector}}


@functools.cache
def data_file(number: int) -> bytes:
    return parquet(data_rows(4 * number), compression="snappy")


CHANGE_ROWS = data_rows(4).slice(1, 1).append_column("_change_type", pa.array(["delete"]))
_FIRST, _SECOND = [1], [0, 2]
_VECTOR_FILE, _OFFSETS = vector_file(vector_bytes(_FIRST), vector_bytes(_SECOND))
VECTORS = (file_vector(_FIRST, _OFFSETS[0]), file_vector(_SECOND, _OFFSETS[1]))

DOMAIN = {"domainMetadata": {"domain": "a.b", "configuration": "{}", "removed": False}}
# Six versions; files 1 (with a deletion vector file), 2 (with an inline deletion vector), 3 and 4 are live at the end.
HISTORY: tuple[tuple[Action, ...], ...] = (
    (info(0, "CREATE TABLE"), protocol(), metadata(), add(0)),
    (info(1), {"txn": {"appId": "app", "version": 7, "lastUpdated": NOW}}, add(1), add(2)),
    (info(2, "DELETE"), remove(0), add(3), DOMAIN),
    (
        info(3, "DELETE"),
        remove(1),
        add(1, VECTORS[0]),
        {
            "cdc": {
                "path": "_change_data/c0.parquet", "partitionValues": {"part": "p1", "bucket": "1"}, "size": 1,
                "dataChange": False,
            }
        },
    ),
    (info(4, "SET TBLPROPERTIES"), metadata(note="x"), add(4)),
    (
        info(5, "DELETE"),
        remove(1, VECTORS[0]),
        add(1, VECTORS[1]),
        remove(2),
        add(2, inline_vector([3])),
    ),
)  # fmt: skip
LAST = len(HISTORY) - 1


def commit_path(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def lines(actions: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(_json(action).encode() + b"\n" for action in actions)


def data_files() -> Files:
    files = {f"f{number}.parquet": data_file(number) for number in range(5)}
    return {**files, VECTOR_PATH: _VECTOR_FILE, "_change_data/c0.parquet": parquet(CHANGE_ROWS)}


def commits(first: int = 0) -> Files:
    return {commit_path(v): lines(HISTORY[v]) for v in range(first, len(HISTORY))}


def plain() -> Files:
    """Commits only."""
    return {**data_files(), **commits()}


# ---------------------------------------------------------------------------------------------- checkpoints

_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.field("element", pa.string()))
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()), ("cardinality", pa.int64()),
    ]
)  # fmt: skip
_STRUCTS = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "add": pa.struct(
        [
            ("path", pa.string()), ("partitionValues", _MAP), ("size", pa.int64()), ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()), ("stats", pa.string()), ("tags", _MAP), ("deletionVector", _VECTOR),
        ]
    ),
    "remove": pa.struct(
        [
            ("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()),
            ("extendedFileMetadata", pa.bool_()), ("partitionValues", _MAP), ("size", pa.int64()),
            ("deletionVector", _VECTOR),
        ]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])), ("schemaString", pa.string()),
            ("partitionColumns", _STRINGS), ("configuration", _MAP), ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", _STRINGS),
            ("writerFeatures", _STRINGS),
        ]
    ),
    "domainMetadata": pa.struct(
        [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
    ),
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _MAP)]),
    "sidecar": pa.struct(
        [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64()), ("tags", _MAP)]
    ),
}  # fmt: skip
_CLASSIC = ("txn", "add", "remove", "metaData", "protocol", "domainMetadata")
AT = 3  # the version of all checkpoints in these tables; two commits follow it


def state() -> tuple[list[Action], list[Action]]:
    """The content of a checkpoint of version ``AT``: protocol, metadata and the other small actions, then the files and
    tombstones."""
    small = [
        {"protocol": protocol()["protocol"]},
        metadata(),
        {"txn": {"appId": "app", "version": 7, "lastUpdated": NOW}},
        DOMAIN,
    ]
    live = [add(1, VECTORS[0]), add(2), add(3)]
    for each in live:
        each["add"]["dataChange"] = False
    return small, [*live, remove(0), remove(1)]


def action_table(actions: Sequence[Action], columns: Sequence[str] = _CLASSIC) -> pa.Table:
    """Actions, converted to the rows of a checkpoint."""
    schema = pa.schema([(name, _STRUCTS[name]) for name in columns])
    return pa.Table.from_pylist([_maps_as_pairs(action) for action in actions], schema=schema)


def _maps_as_pairs(action: Action) -> Action:
    def convert(body: Action) -> Action:
        pairs = ("partitionValues", "tags", "configuration", "options")
        return {
            key: list(value.items()) if key in pairs and isinstance(value, dict)
            else convert(value) if isinstance(value, dict) else value
            for key, value in body.items()
        }  # fmt: skip

    return {key: convert(body) for key, body in action.items()}


def hint(version: int, size: int) -> bytes:
    return _json({"version": version, "size": size, "sizeInBytes": 1, "numOfAddFiles": 3}).encode()


def _checkpointed(files: Files, first_commit: int) -> Files:
    small, large = state()
    return {
        **data_files(), **commits(first_commit), **files, f"{LOG}/_last_checkpoint": hint(AT, len(small) + len(large))
    }  # fmt: skip


def classic(first_commit: int = 0) -> Files:
    """A classic checkpoint; the commits before ``first_commit`` were cleaned up."""
    small, large = state()
    return _checkpointed({f"{LOG}/{AT:020d}.checkpoint.parquet": parquet(action_table(small + large))}, first_commit)


def multi_part(first_commit: int = 0) -> Files:
    small, large = state()
    parts = [small + large[:2], large[2:]]
    return _checkpointed(
        {
            f"{LOG}/{AT:020d}.checkpoint.{i:010d}.{len(parts):010d}.parquet": parquet(action_table(part))
            for i, part in enumerate(parts, 1)
        },
        first_commit,
    )


_UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
_SIDECARS = ("3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet", "016ae953-37a9-438e-8683-9a9a4a79a395.parquet")


def v2(form: str = "json", first_commit: int = 0) -> Files:
    """A V2 checkpoint with two sidecars. ``form``: the form of the top-level file: json, parquet, or classic (a Parquet
    file with the name of a classic checkpoint)."""
    small, large = state()
    sidecars = {
        f"{LOG}/_sidecars/{name}": parquet(action_table(rows, ("add", "remove")))
        for name, rows in zip(_SIDECARS, (large[:2], large[2:]), strict=True)
    }
    named = [
        {"sidecar": {"path": path.rsplit("/", 1)[1], "sizeInBytes": len(data), "modificationTime": NOW, "tags": {}}}
        for path, data in sidecars.items()
    ]
    manifest = [{"checkpointMetadata": {"version": AT, "tags": {}}}, *small, *named]
    columns = (*_CLASSIC, "checkpointMetadata", "sidecar")
    if form == "json":
        top = {f"{LOG}/{AT:020d}.checkpoint.{_UUID}.json": lines(manifest)}
    else:
        name = f"{AT:020d}.checkpoint." + (f"{_UUID}.parquet" if form == "parquet" else "parquet")
        top = {f"{LOG}/{name}": parquet(action_table(manifest, columns))}
    return _checkpointed({**top, **sidecars}, first_commit)


def compacted() -> Files:
    """The same table, with commits 1 to 3 also as one log compaction file."""
    _, large = state()
    kept = [
        {"txn": {"appId": "app", "version": 7, "lastUpdated": NOW}},
        DOMAIN,
    ]
    return {**plain(), f"{LOG}/{1:020d}.{AT:020d}.compacted.json": lines([*kept, *large])}


def with_checksums(files: Files) -> Files:
    """The same table with a ``.crc`` of its last version."""
    adds = [add(number) for number in (1, 2, 3, 4)]
    body = {
        "txnId": f"txn-{LAST}", "tableSizeBytes": sum(each["add"]["size"] for each in adds), "numFiles": len(adds),
        "numMetadata": 1, "numProtocol": 1, "inCommitTimestampOpt": NOW + 1000 * LAST,
        "setTransactions": [{"appId": "app", "version": 7, "lastUpdated": NOW}],
        "domainMetadata": [{"domain": "a.b", "configuration": "{}", "removed": False}],
        "metadata": metadata(note="x")["metaData"], "protocol": protocol()["protocol"],
        "histogramOpt": {"sortedBinBoundaries": [0, 8192], "fileCounts": [4, 0], "totalBytes": [0, 0]},
        "allFiles": [],
    }  # fmt: skip
    return {**files, f"{LOG}/{LAST:020d}.crc": _json(body).encode()}


@functools.cache
def fixture(name: str) -> Files:
    """A table written by delta-spark."""
    root = FIXTURES / name / "table"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
