"""The tables that are measured: synthetic logs, the same on every machine, written without a commit protocol.

Only the logs exist: no data file is there, and none is read by what is measured. What is in them follows what
delta-spark writes: a line of commitInfo and a line of add in each commit, statistics of eight columns, a
``.crc`` for each version, checkpoints compressed with snappy and rows of different actions mixed.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

GENERATOR = 5  # part of the cache's directory name: raise it when what is written changes
BEGIN_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z
DAY_MS = 86_400_000
COLUMNS = (
    ("id", "long"),
    ("event_time", "timestamp"),
    ("customer", "string"),
    ("country", "string"),
    ("amount", "double"),
    ("quantity", "integer"),
    ("note", "string"),
    ("date", "date"),
)
FILE_BYTES = 12_345_678
_STRINGS = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True)
class Table:
    """What to generate. ``kind``: ``log`` (a commit for each file) or ``files`` (one checkpoint with them all).

    ``file_times``: ``true`` gives each commit file its commit's time as modification time; ``copied`` gives
    the times of a copy made after the last commit, one file every millisecond, as ``cp -r`` would leave them.
    ``checkpoints``: whether there are any (each n/10 versions, before each version that is asked for, and near
    the end).
    """

    name: str
    kind: str
    size: int
    ict: bool = True
    file_times: str = "true"
    checkpoints: bool = True
    checksums: bool = True

    @property
    def description(self) -> str:
        if self.kind == "files":
            return (
                f"{self.size:,} live files and {self.size // 20:,} tombstones in one classic checkpoint, no commit "
                "after it; statistics of 8 columns as JSON, partitioned by date, in-commit timestamps"
            )
        clock = "in-commit timestamps from version 0" if self.ict else "no in-commit timestamps"
        times = "file times agree" if self.file_times == "true" else "file times of a copy made later"
        points = f"{len(self.checkpoint_versions())} classic checkpoints" if self.checkpoints else "no checkpoint"
        checksums = "a .crc each" if self.checksums else "no .crc"
        return f"{self.size:,} commits of one add each, {clock}, {times}, {checksums}, {points}"

    def questions(self) -> list[dict[str, int]]:
        """Points in time and the version that is right for each: a commit's own time, or 1 ms before the next."""
        times = commit_times(self.size)
        asked = []
        for number, share in enumerate((0.5, 0.31, 0.77, 0.96)):
            version = min(int(self.size * share) + 4, self.size - 2)
            at_ms = times[version] if number % 2 == 0 else times[version + 1] - 1
            asked.append({"version": version, "timestamp_ms": at_ms})
        return asked

    def checkpoint_versions(self) -> list[int]:
        """Ascending. The versions asked for find one where delta.checkpointInterval = 10 would have put it."""
        if not self.checkpoints or self.kind != "log":
            return []
        regular = range(self.size // 10, self.size, max(self.size // 10, 10))
        near = (q["version"] // 10 * 10 for q in self.questions())
        return sorted({v for v in (*regular, *near, (self.size - 1) // 10 * 10) if v > 0})


TABLES = {
    table.name: table
    for table in (
        Table("ict10", "log", 10, checkpoints=False),
        Table("ict100", "log", 100),
        Table("ict100-copied", "log", 100, file_times="copied"),
        Table("ict100-nocrc", "log", 100, checksums=False),
        Table("ict1k", "log", 1_000),
        Table("ict10k", "log", 10_000),
        Table("ict10k-copied", "log", 10_000, file_times="copied"),
        Table("ict10k-nocrc", "log", 10_000, checksums=False),
        Table("ict100k", "log", 100_000),
        Table("noict10", "log", 10, ict=False, checkpoints=False),
        Table("noict100", "log", 100, ict=False),
        Table("noict1k", "log", 1_000, ict=False),
        Table("noict10k", "log", 10_000, ict=False),
        Table("files2k", "files", 2_000),
        Table("files100k", "files", 100_000),
    )
}


def obtain(name: str, directory: Path) -> Path:
    """The root of a generated table, made on first use. A half-made one is made again."""
    table = TABLES[name]
    root = directory / f"v{GENERATOR}" / name
    done = root.parent / f"{name}.json"
    wanted = json.dumps(asdict(table))
    if done.exists() and done.read_text() == wanted:
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.with_suffix(".hint").unlink(missing_ok=True)
    (root / "_delta_log").mkdir(parents=True)
    (_write_log if table.kind == "log" else _write_files)(table, root / "_delta_log")
    done.write_text(wanted)
    return root


def restore(root: Path, size: int) -> None:
    """Take away what a measurement has committed to a log of ``size`` versions."""
    log = root / "_delta_log"
    with os.scandir(log) as entries:
        named = [(e.path, e.name.lstrip(".")[:20]) for e in entries]  # Hadoop leaves .<name>.crc files
    for path, version in named:
        if version.isdecimal() and int(version) >= size:
            os.unlink(path)
    hint, kept = log / "_last_checkpoint", root.with_suffix(".hint")
    if kept.exists():
        shutil.copyfile(kept, hint)
    else:
        hint.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------ contents


def commit_times(count: int) -> list[int]:
    """The commit times of versions 0 to count - 1: increasing, by gaps from 1 ms to some hours."""
    chance = random.Random(20240101)
    scale = min(1.0, 20_000 / count)  # all of it lies in the past
    times, at_ms = [], BEGIN_MS
    for _ in range(count):
        times.append(at_ms)
        draw = chance.random()
        gap_ms = 1 if draw < 0.05 else chance.random() * (7_200_000 if draw > 0.98 else 120_000)
        at_ms += max(1, int(gap_ms * scale * 8))
    return times


def _uuid(name: str) -> str:
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


def _day(number: int) -> str:
    return (datetime.date(2024, 1, 1) + datetime.timedelta(days=number % 200)).isoformat()


def add_body(number: int, at_ms: int) -> dict[str, Any]:
    """An add action, as delta-spark writes it."""
    day = _day(number)
    path = f"date={day}/part-{number % 200:05d}-{_uuid(f'file {number}')}.c000.snappy.parquet"
    customer, note = _uuid(f"c{number}")[:18], _uuid(f"n{number}")
    stats = {
        "numRecords": 100_000 + number % 1000,
        "minValues": {
            "id": number * 100_000,
            "event_time": f"{day}T00:00:{number % 60:02d}.000Z",
            "customer": f"0{customer}",
            "country": "AD",
            "amount": round(number % 97 + 0.01, 2),
            "quantity": 1,
            "note": f"0{note}",
        },
        "maxValues": {
            "id": number * 100_000 + 99_999,
            "event_time": f"{day}T23:59:{number % 60:02d}.000Z",
            "customer": f"f{customer}",
            "country": "ZW",
            "amount": round(number % 97 + 999.99, 2),
            "quantity": 40 + number % 60,
            "note": f"f{note}",
        },
        "nullCount": {
            "id": 0, "event_time": 0, "customer": 0, "country": number % 7, "amount": number % 11, "quantity": 0,
            "note": number % 5000,
        },
    }  # fmt: skip
    return {
        "path": path,
        "partitionValues": {"date": day},
        "size": FILE_BYTES + number % 4096,
        "modificationTime": at_ms,
        "dataChange": True,
        "stats": _json(stats),
    }


def schema_string() -> str:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in COLUMNS]
    return _json({"type": "struct", "fields": fields})


def arrow_schema() -> pa.Schema:
    """The columns for writers that want to be told them."""
    types = {
        "long": pa.int64(), "timestamp": pa.timestamp("us", "UTC"), "string": pa.string(), "double": pa.float64(),
        "integer": pa.int32(), "date": pa.date32(),
    }  # fmt: skip
    return pa.schema([(name, types[kind]) for name, kind in COLUMNS])


def _protocol(ict: bool) -> dict[str, Any]:
    if not ict:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    features = ["inCommitTimestamp", "appendOnly", "invariants"]
    return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}


def _metadata(table: Table) -> dict[str, Any]:
    configuration = {
        # Peers refuse to travel past the retention, and would clean up logs this old.
        "delta.deletedFileRetentionDuration": "interval 10000 days",
        "delta.logRetentionDuration": "interval 10000 days",
        # A commit is measured, not the checkpoint that every tenth one would write.
        "delta.checkpointInterval": "1000000",
    }
    if table.ict:
        configuration["delta.enableInCommitTimestamps"] = "true"
    return {
        "id": _uuid(table.name),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string(),
        "partitionColumns": ["date"],
        "configuration": configuration,
        "createdTime": BEGIN_MS,
    }


def _commit_info(table: Table, version: int, at_ms: int) -> dict[str, Any]:
    info: dict[str, Any] = {"inCommitTimestamp": at_ms} if table.ict else {}
    return {
        **info,
        "timestamp": at_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": '["date"]'},
        **({"readVersion": version - 1} if version else {}),
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": "1", "numOutputRows": "100000", "numOutputBytes": str(FILE_BYTES)},
        "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
        "txnId": _txn_id(table, version),
    }


def _txn_id(table: Table, version: int) -> str:
    return _uuid(f"{table.name} {version}")


def _checksum(table: Table, version: int, at_ms: int, files: int, size_bytes: int) -> bytes:
    body: dict[str, Any] = {
        "txnId": _txn_id(table, version),
        "tableSizeBytes": size_bytes,
        "numFiles": files,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": _metadata(table),
        "protocol": _protocol(table.ict),
    }
    if table.ict:
        body["inCommitTimestampOpt"] = at_ms
    return _json(body).encode()


def _write_log(table: Table, log: Path) -> None:
    times = commit_times(table.size)
    checkpoints = set(table.checkpoint_versions())
    adds: list[dict[str, Any]] = []
    size_bytes = 0
    for version, at_ms in enumerate(times):
        add = add_body(version, at_ms)
        adds.append(add)
        size_bytes += add["size"]
        lines = [{"commitInfo": _commit_info(table, version, at_ms)}]
        if version == 0:
            lines += [{"protocol": _protocol(table.ict)}, {"metaData": _metadata(table)}]
        lines.append({"add": add})
        path = log / f"{version:020d}.json"
        path.write_bytes("".join(_json(line) + "\n" for line in lines).encode())
        file_ms = at_ms if table.file_times == "true" else times[-1] + DAY_MS + version
        os.utime(path, ns=(file_ms * 1_000_000, file_ms * 1_000_000))
        if table.checksums:
            checksum = _checksum(table, version, at_ms, version + 1, size_bytes)
            (log / f"{version:020d}.crc").write_bytes(checksum)
        if version in checkpoints:
            _write_checkpoint(table, log, version, adds, [], hint=version == max(checkpoints))


def _write_files(table: Table, log: Path) -> None:
    at_ms = BEGIN_MS + 100 * DAY_MS
    version = 10
    adds = [add_body(n, BEGIN_MS + n) for n in range(table.size)]
    removes = [
        {
            "path": add["path"],
            "deletionTimestamp": at_ms,
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": add["partitionValues"],
            "size": add["size"],
        }
        for add in (add_body(n, BEGIN_MS) for n in range(table.size, table.size + table.size // 20))
    ]
    commit = [{"commitInfo": _commit_info(table, version, at_ms)}, {"add": adds[-1]}]
    path = log / f"{version:020d}.json"
    path.write_bytes("".join(_json(line) + "\n" for line in commit).encode())
    total = sum(add["size"] for add in adds)
    (log / f"{version:020d}.crc").write_bytes(_checksum(table, version, at_ms, len(adds), total))
    _write_checkpoint(table, log, version, adds, removes, hint=True)


def _write_checkpoint(
    table: Table, log: Path, version: int, adds: Sequence[dict[str, Any]], removes: Sequence[dict[str, Any]], hint: bool
) -> None:
    """One Parquet file, its rows in an order that has nothing to do with the actions, as Spark leaves them."""
    actions: list[tuple[str, dict[str, Any]]] = [
        ("metaData", _metadata(table)),
        ("protocol", _protocol(table.ict)),
        *(("add", add) for add in adds),
        *(("remove", remove) for remove in removes),
    ]
    random.Random(version).shuffle(actions)
    arrays = []
    for field in _CHECKPOINT:
        values = [_arrow_body(name, body) if name == field.name else None for name, body in actions]
        arrays.append(pa.array(values, field.type))
    path = log / f"{version:020d}.checkpoint.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=_CHECKPOINT), path, compression="snappy")
    if hint:
        body = {
            "version": version, "size": len(actions), "sizeInBytes": path.stat().st_size, "numOfAddFiles": len(adds)
        }  # fmt: skip
        for target in (log / "_last_checkpoint", log.parent.with_suffix(".hint")):
            target.write_text(_json(body))


def _arrow_body(name: str, body: dict[str, Any]) -> dict[str, Any]:
    def pairs(values: dict[str, str]) -> list[tuple[str, str]]:
        return list(values.items())

    if name == "metaData":
        format_ = {"provider": "parquet", "options": []}
        return {**body, "format": format_, "configuration": pairs(body["configuration"])}
    if name in ("add", "remove"):
        return {**body, "dataChange": False, "partitionValues": pairs(body["partitionValues"])}
    return body


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


_VECTOR = pa.struct(
    [
        ("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()), ("cardinality", pa.int64()), ("maxRowIndex", pa.int64()),
    ]
)  # fmt: skip
_CHECKPOINT = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()), ("partitionValues", _STRINGS), ("size", pa.int64()),
                    ("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("tags", _STRINGS),
                    ("deletionVector", _VECTOR), ("baseRowId", pa.int64()), ("defaultRowCommitVersion", pa.int64()),
                    ("clusteringProvider", pa.string()), ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()), ("partitionValues", _STRINGS), ("size", pa.int64()),
                    ("deletionVector", _VECTOR), ("baseRowId", pa.int64()), ("defaultRowCommitVersion", pa.int64()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _STRINGS)])),
                    ("schemaString", pa.string()), ("partitionColumns", _list(pa.string())),
                    ("configuration", _STRINGS), ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _list(pa.string())), ("writerFeatures", _list(pa.string())),
                ]
            ),
        ),
        (
            "domainMetadata",
            pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
        ),
    ]
)  # fmt: skip


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def new_add(number: int) -> dict[str, Any]:
    """The add action of the ``number``-th measured commit; no table has it already."""
    return add_body(50_000_000 + number, BEGIN_MS)
