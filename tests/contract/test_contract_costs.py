"""Costs of the write contract: requests of a warm handle, and memory that does not grow with a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import Dataset, DeltaTable
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore
from tests.support.core import ICT, SCHEMA, Clock, environment, overtaken, rows

ROOT = Path(__file__).resolve().parents[2]
BLOBS = None


class FarStore(MemoryStore):
    """An in-memory store that claims to be remote."""

    is_remote = True


def far(schema: pa.Schema | None, clock: Clock, **options: Any) -> tuple[CountingStore, DeltaTable]:
    """A table on a remote store, with a handle that was refreshed just now."""
    store = CountingStore(FarStore(f"memory://far-costs-{id(clock)}", clock_ms=clock))
    make = {"properties": ICT, "environment": environment(clock), **options}
    table = DeltaTable.create_for_blobs(store, **make) if schema is None else DeltaTable.create(store, schema, **make)
    table.flush()
    return store, table


def streamed(table: DeltaTable) -> None:
    with Dataset(table).stream_write() as writer:
        for _ in range(100):
            writer.write(b"piece" * 100)
        writer.commit()


# The contract allows 4 requests, 5 if the parent is compared, and 2 P + 3 for P partitions.
WARM: dict[str, tuple[pa.Schema | None, dict[str, Any], Any, int]] = {
    "write": (SCHEMA, {}, lambda table: Dataset(table).write(rows(1)), 1),
    "write to 5 partitions": (
        SCHEMA,
        {"partition_by": ["name"]},
        lambda table: Dataset(table).write(rows(*range(5))),
        5,
    ),
    "stream_write": (BLOBS, {}, streamed, 2),
    "write of bytes": (BLOBS, {}, lambda table: Dataset(table).write(b"bytes"), 2),
    "stream_write_records": (
        SCHEMA,
        {},
        lambda table: Dataset(table).stream_write_records([{"id": n} for n in range(999)]),
        1,
    ),
}


@pytest.mark.parametrize("name", WARM)
def test_a_warm_write_puts_its_data_its_commit_and_its_checksum_and_looks_before_and_after(name: str) -> None:
    schema, options, call, files = WARM[name]
    store, table = far(schema, Clock(), **options)
    for _ in range(2):
        with store.counted() as calls:
            call(table)
            table.flush()
        assert calls.of("open_output") == files
        assert calls.of("put_if_absent") == 1 and calls.of("put", "*.crc") == 1
        # HEADs of the parent commit: one during the upload, one in the background after the commit.
        assert calls.of("head") == 2
        assert calls.of() == files + 4, calls


@pytest.mark.parametrize("name", WARM)
def test_a_handle_that_is_not_warm_looks_once_more_and_lists_nothing(name: str) -> None:
    schema, options, call, files = WARM[name]
    clock = Clock()
    store, table = far(schema, clock, **options)
    clock.now_ms += 10_001
    with store.counted() as calls:
        call(table)
        table.flush()
    # The upload of a blob may take a long time, so the parent commit is compared again when the blob is committed.
    heads = 4 if files == 2 else 3
    assert calls.of("head") == heads and calls.of("list_from") == 0
    assert calls.of() == files + 2 + heads, calls


def test_a_race_that_is_lost_costs_one_get_and_one_put() -> None:
    clock = Clock()
    store, _ = far(SCHEMA, clock)
    mine = overtaken(store, lambda: DeltaTable.open(store.inner, environment=environment(clock)).append(rows(9)))
    table = DeltaTable.open(mine, environment=environment(clock))
    mine.is_remote = True
    with store.counted() as calls:
        Dataset(table).write(rows(1), retry_count=1)
        table.flush()
    assert (calls.of("open_output"), calls.of("put_if_absent"), calls.of("get")) == (1, 2, 1)
    assert calls.of("list_from") == 0


def test_what_is_asked_does_not_grow_with_the_log() -> None:
    clock = Clock()
    store, table = far(SCHEMA, clock)
    counts = []
    for number in range(25):  # checkpoints at 10 and 20
        with store.counted() as calls:
            Dataset(table).write(rows(number))
            table.flush()
        counts.append(calls.of())
    assert {count for version, count in enumerate(counts, 1) if version % 10} == {5}


def run_streaming(of: str, size_mib: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.benchmarks.streaming", str(size_mib), "--of", of]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    answer: dict[str, int] = json.loads(done.stdout)
    return answer


def test_a_stream_of_bytes_takes_the_memory_of_a_piece() -> None:
    answer = run_streaming("bytes", 192)
    assert answer["blob_bytes"] == 192 << 20 and answer["rows"] == 1
    assert answer["peak_mib"] - answer["peak_mib_before"] < 32


def test_a_stream_of_records_takes_the_memory_of_a_file() -> None:
    answer = run_streaming("records", 512)
    assert answer["rows"] == 512 << 16 and answer["files"] == 4
    assert answer["peak_mib"] - answer["peak_mib_before"] < 448
