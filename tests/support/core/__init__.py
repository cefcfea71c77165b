"""Helpers for the tests of the core: fixed clocks, stores, handwritten logs, and directory listings."""

from __future__ import annotations

import itertools
import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog import DeltaTable, Environment
from deltalog.protocol.paths import commit_path
from deltalog.schema import PrimitiveType, StructField, StructType
from deltalog.storage import LogStore
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import Call, FaultyStore

NOW = 1_790_000_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ICT = {"delta.enableInCommitTimestamps": "true"}
VERSION_KEY = "delta.inCommitTimestampEnablementVersion"
TIMESTAMP_KEY = "delta.inCommitTimestampEnablementTimestamp"


class Clock:
    """A clock that stands still until it is set, and counts how often it is read."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.now_ms = now_ms
        self.readings = 0

    def __call__(self) -> int:
        self.readings += 1
        return self.now_ms


def environment(clock: Clock | None = None, **changes: Any) -> Environment:
    """A deterministic environment: it uses the given clock and sequential UUIDs, and does not sleep."""
    numbers = itertools.count(1)
    defaults: dict[str, Any] = {
        "clock_ms": clock or Clock(),
        "new_uuid": lambda: str(uuid.UUID(int=next(numbers) + next(_SERIES) * 2**64, version=4)),
        "sleep": lambda seconds: None,
        "random": lambda: 0.5,
    }
    return Environment(**{**defaults, **changes})


_SERIES = itertools.count(1)


def memory(clock: Clock | None = None) -> MemoryStore:
    """A new store whose modification times come from ``clock``."""
    return MemoryStore(f"memory://core-{next(_SERIES)}", clock_ms=clock or Clock())


def rows(*ids: int) -> pa.Table:
    """Rows of SCHEMA."""
    return pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]}, schema=SCHEMA)


def ids(table: DeltaTable, **which: Any) -> list[int]:
    """The ids of a version, sorted."""
    return sorted(table.snapshot(**which).scan(["id"]).to_arrow()["id"].to_pylist())


# ------------------------------------------------------------------------------------------- looking at a log


def lines(store: LogStore, version: int) -> list[dict[str, Any]]:
    """The raw actions of a commit file."""
    return [json.loads(line) for line in store.get(commit_path(version)).splitlines()]


def action(store: LogStore, version: int, key: str) -> dict[str, Any] | None:
    """The body of the only action of the given kind in a commit; None if there is no such action."""
    found = [line[key] for line in lines(store, version) if key in line]
    assert len(found) <= 1, f"{len(found)} {key} actions in version {version}"
    return found[0] if found else None


def info(store: LogStore, version: int) -> dict[str, Any]:
    """The commitInfo of a commit; it must be in the first line."""
    first = lines(store, version)[0]
    assert list(first) == ["commitInfo"]
    body: dict[str, Any] = first["commitInfo"]
    return body


def configuration(store: LogStore, version: int) -> dict[str, str] | None:
    """The table properties in a commit, or None if it has no metaData."""
    body = action(store, version, "metaData")
    return None if body is None else body["configuration"]


def pair(properties: Mapping[str, str] | None) -> tuple[str | None, str | None]:
    """The values of the two enablement properties (version and timestamp), as strings; None for an absent property."""
    found = properties or {}
    return found.get(VERSION_KEY), found.get(TIMESTAMP_KEY)


def tree(root: str | os.PathLike[str]) -> list[str]:
    """All paths below a directory, sorted; directories end with a slash."""
    base = Path(root)
    return sorted(
        str(path.relative_to(base)).replace(os.sep, "/") + ("/" if path.is_dir() else "") for path in base.rglob("*")
    )


def objects(store: MemoryStore) -> dict[str, bytes]:
    """All objects in a memory store."""
    return {path: data for path, (data, _) in store._objects.items()}


# ----------------------------------------------------------------------------------------------- hand-made logs


def protocol_action(*writer_features: str, reader: int = 1, reader_features: list[str] | None = None) -> dict[str, Any]:
    """A protocol action: versions (1, 2) if ``features`` is empty, otherwise writer version 7 with these features."""
    body: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": 7 if writer_features else 2}
    if writer_features:
        body["writerFeatures"] = list(writer_features)
    if reader_features is not None:
        body["readerFeatures"] = reader_features
    return {"protocol": body}


def metadata_action(
    properties: Mapping[str, str] | None = None, schema: pa.Schema = SCHEMA, partition_by: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": StructType.from_arrow(schema).to_json(),
            "partitionColumns": list(partition_by),
            "configuration": dict(properties or {}),
            "createdTime": NOW,
        }
    }


def info_action(ict: int | None = None, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {} if ict is None else {"inCommitTimestamp": ict}
    return {"commitInfo": {**body, "timestamp": ict or NOW, "operation": "WRITE", **more}}


def add_action(path: str, **more: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True}
    return {"add": {**body, **more}}


def remove_action(path: str, **more: Any) -> dict[str, Any]:
    body = {"path": path, "deletionTimestamp": NOW, "dataChange": True, "size": 10}
    return {"remove": {**body, **more}}


def put_commit(store: LogStore, version: int, *actions: Mapping[str, Any]) -> None:
    """Write a commit file with the given actions."""
    store.put(commit_path(version), b"".join(json.dumps(each).encode() + b"\n" for each in actions))


def put_variant_table(store: LogStore) -> None:
    """Write a table with two rows: id 1 with the variant [7], and id 2 with a null variant."""
    schema = StructType((StructField("id", PrimitiveType("long")), StructField("v", PrimitiveType("variant"))))
    metadata = metadata_action()["metaData"] | {"schemaString": schema.to_json()}
    protocol = protocol_action("variantType", reader=3, reader_features=["variantType"])
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    variants = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x03\x01\x00\x02\x0c\x07"}, None], kind)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2], "v": variants}), sink)
    store.put("x", sink.getvalue().to_pybytes())
    put_commit(store, 0, info_action(), protocol, {"metaData": metadata}, add_action("x"))


def ict_log(store: MemoryStore, clock: Clock, file_times: list[int], icts: list[int | None], **pair_text: str) -> None:
    """Write a log with one commit for each file time, with the given in-commit timestamps.

    ``pair_text``: the ``version`` and ``timestamp`` in the enablement properties. In-commit timestamps are enabled if
    at least one of ``icts`` is not None. The last commit repeats the metaData action, because the latest snapshot needs
    it.
    """
    active = any(ict is not None for ict in icts)
    properties = {
        **(ICT if active else {}),
        **({VERSION_KEY: pair_text["version"]} if "version" in pair_text else {}),
        **({TIMESTAMP_KEY: pair_text["timestamp"]} if "timestamp" in pair_text else {}),
    }
    state = (protocol_action(*(["inCommitTimestamp"] if active else [])), metadata_action(properties))
    for version, (file_time, ict) in enumerate(zip(file_times, icts, strict=True)):
        clock.now_ms = file_time
        edge = version in (0, len(icts) - 1)
        put_commit(store, version, info_action(ict), *(state if edge else ()), add_action(f"f{version}.parquet"))


# ------------------------------------------------------------------------------------------------------ rivals


def overtaken(store: LogStore, *rivals: Callable[[], object]) -> FaultyStore:
    """A wrapper of the store that runs the first rival writer before the user's first commit, the second rival before
    the second commit, and so on."""
    waiting = list(rivals)

    def before(call: Call) -> None:
        commit = call.method == "put_if_absent" and call.path.endswith(".json")
        if commit and waiting:
            waiting.pop(0)()

    return FaultyStore(store, before=before)
