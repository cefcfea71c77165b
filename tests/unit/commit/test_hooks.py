"""Every step after a commit may fail in any way, and the commit still succeeds."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from deltalog import DeltaTable, StoreError
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import checkpoint_path, checksum_path
from deltalog.storage.base import PutOutcome
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import Fault, FaultyStore, nth
from tests.support.core import ICT, NOW, SCHEMA, Clock, environment, ids, info, memory, overtaken, rows


def test_the_checksum_is_that_of_the_commit() -> None:
    clock = Clock()
    store = memory(clock)
    table = DeltaTable.create(store, SCHEMA, properties=ICT, environment=environment(clock))
    result = table.append(rows(1), txn=("app", 3))
    crc = json.loads(store.get(checksum_path(1)))
    (file,) = table.snapshot().files().to_pylist()
    assert (crc["txnId"], crc["inCommitTimestampOpt"]) == (result.txn_id, NOW + 1)
    assert (crc["numFiles"], crc["tableSizeBytes"]) == (1, file["size"])
    assert crc["metadata"]["configuration"] == ICT
    assert [(t["appId"], t["version"]) for t in crc["setTransactions"]] == [("app", 3)]
    assert info(store, 1)["txnId"] == crc["txnId"]


def test_the_checksum_follows_overwrites_and_rebases() -> None:
    clock = Clock()
    store = memory(clock)
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock), data=rows(1))
    table.append(rows(2))
    table.overwrite(rows(3))
    mine = overtaken(store, lambda: DeltaTable.open(store, environment=environment(clock)).append(rows(4)))
    DeltaTable.open(mine, environment=environment(clock)).append(rows(5))
    for version in range(5):
        crc = json.loads(store.get(checksum_path(version)))
        files = table.snapshot(version).files()
        assert crc["numFiles"] == files.num_rows
        assert crc["tableSizeBytes"] == sum(files["size"].to_pylist())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("put", "*.crc"),
        ("put", "*_last_checkpoint"),
        ("put_if_absent", "*.checkpoint.parquet"),
        ("open_input", "*.checkpoint.parquet"),
    ],
)
@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.UNKNOWN_NOT_WRITTEN, Fault.LATE])
def test_a_hook_that_fails_is_logged_and_the_commit_stands(
    method: str, path: str, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    from deltalog.testing.stores import POSSIBLE_FAULTS

    if fault not in POSSIBLE_FAULTS[method]:
        fault = Fault.FAIL_BEFORE
    inner = memory()
    DeltaTable.create(inner, SCHEMA, properties={"delta.checkpointInterval": "1"}, environment=environment())
    store = FaultyStore(inner, nth(1, fault, method=method, path=path))
    table = DeltaTable.open(store, environment=environment())
    with caplog.at_level(logging.WARNING, logger="deltalog"):
        result = table.append(rows(1))
    assert result.version == 1 and sum(store.injected.values()) == 1
    assert table.append(rows(2)).version == 2
    assert ids(DeltaTable.open(inner)) == [1, 2]
    assert any("version 1" in record.getMessage() for record in caplog.records)


class ShortCheckpoints(MemoryStore):
    """Truncates every checkpoint to its first half."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if path.endswith(".checkpoint.parquet"):
            data = data[: len(data) // 2]
        return super().put_if_absent(path, data)


def test_a_checkpoint_that_did_not_arrive_whole_gets_no_hint() -> None:
    store = ShortCheckpoints("memory://short")
    table = DeltaTable.create(store, SCHEMA, properties={"delta.checkpointInterval": "1"}, environment=environment())
    table.append(rows(1))
    assert store.head("_delta_log/_last_checkpoint") is None
    assert ids(DeltaTable.open(store)) == [1]


def test_a_wrong_interval_is_no_reason_to_fail() -> None:
    from tests.support.core import info_action, metadata_action, protocol_action, put_commit

    store = memory()
    put_commit(store, 0, info_action(), protocol_action(), metadata_action({"delta.checkpointInterval": "ten"}))
    table = DeltaTable.open(store, environment=environment())
    for i in range(10):
        table.append(rows(i))
    assert [c.version for c in LogReader(store).list_from().checkpoints] == [10]
    assert store.head(checkpoint_path(10)) is not None


def test_hooks_do_not_swallow_the_end_of_the_process() -> None:
    class Interrupted(MemoryStore):
        def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
            if path.endswith("1.crc"):
                raise KeyboardInterrupt
            super().put(path, data, durable=durable)

    store: Any = Interrupted("memory://interrupted")
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    with pytest.raises(KeyboardInterrupt):
        table.append(rows(1))
    assert ids(DeltaTable.open(store)) == [1]


def test_a_store_error_in_a_hook_is_not_the_callers() -> None:
    class NoChecksums(MemoryStore):
        def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
            if path.endswith((".crc", "_last_checkpoint")):
                raise StoreError("full", path=path)
            super().put(path, data, durable=durable)

    table = DeltaTable.create(NoChecksums("memory://full"), SCHEMA, environment=environment())
    assert table.append(rows(1)).version == 1
