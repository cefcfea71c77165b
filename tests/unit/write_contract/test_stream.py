from __future__ import annotations

import hashlib
from typing import Any

import pytest

from deltalog import CallError, CommitStateUnknownError, DeltaTable, RetryPolicy
from deltalog.errors import BlobTableRequiredError, FilesCommittedError, Outcome
from deltalog.storage.memory import MemoryStore
from deltalog.table import handle_of
from deltalog.testing.stores import Fault, FaultyStore, nth
from deltalog.write_contract.staging import Options, target_of
from deltalog.write_contract.stream import BLOBS_DIRECTORY, StreamWriter
from tests.support.core import SCHEMA, environment, memory, objects


@pytest.fixture
def store() -> MemoryStore:
    return memory()


@pytest.fixture
def blobs(store: MemoryStore) -> DeltaTable:
    return DeltaTable.create_for_blobs(store, environment=environment())


def begin(blobs: DeltaTable, **options: Any) -> StreamWriter:
    return StreamWriter(target_of(handle_of(blobs)), {"from": "test"}, Options(**options))


def left(store: MemoryStore) -> list[str]:
    return [path for path in objects(store) if not path.startswith("_delta_log")]


def test_pieces_become_one_blob(store: MemoryStore, blobs: DeltaTable) -> None:
    writer = begin(blobs, checksum="sha256")
    assert [writer.write(piece) for piece in (b"ab", bytearray(b"c"), memoryview(b"de")[1:])] == [2, 1, 1]
    snapshot = writer.commit()
    assert writer.path.startswith(f"{BLOBS_DIRECTORY}/") and store.get(writer.path) == b"abce"
    assert snapshot.scan().to_arrow().to_pylist() == [
        {"path": writer.path, "size": 4, "sha256": hashlib.sha256(b"abce").hexdigest()}
    ]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_after_the_end_nothing_more_is_written(blobs: DeltaTable, end: str) -> None:
    writer = begin(blobs)
    getattr(writer, end)()
    with pytest.raises(CallError, match="stream is"):
        writer.write(b"x")
    with pytest.raises(CallError, match="stream is"):
        writer.commit()


def test_aborting_is_idempotent_and_not_possible_after_commit(store: MemoryStore, blobs: DeltaTable) -> None:
    aborted, committed = begin(blobs), begin(blobs)
    aborted.abort()
    aborted.abort()
    aborted.close()
    assert left(store) == []
    committed.commit()
    for end in (committed.commit, committed.abort):
        with pytest.raises(FilesCommittedError, match="committed") as caught:
            end()
        assert (caught.value.path, caught.value.version) == (committed.path, 1)
        assert caught.value.outcome is Outcome.COMMITTED
    committed.close()
    assert blobs.snapshot().version == 1 and committed.path in left(store)


def test_a_commit_whose_outcome_is_unknown_stays_so(store: MemoryStore, blobs: DeltaTable) -> None:
    faulty = FaultyStore(store, nth(1, Fault.LOST_ACK, method="put_if_absent", path="*.json"))
    unsettled = environment(retry=RetryPolicy(settle_attempts=0))
    writer = begin(DeltaTable.open(faulty, environment=unsettled))
    with pytest.raises(CommitStateUnknownError) as first:
        writer.commit()
    for end in (writer.commit, writer.abort):
        with pytest.raises(CommitStateUnknownError) as again:
            end()
        assert again.value is first.value
    writer.close()
    assert writer.path in left(store)


@pytest.mark.parametrize("piece", ["text", 5, None, [b"x"]], ids=str)
def test_a_piece_that_is_no_bytes_leaves_the_stream_open(blobs: DeltaTable, piece: Any) -> None:
    with begin(blobs) as writer:
        with pytest.raises(CallError):
            writer.write(piece)
        writer.write(b"x")
        assert writer.commit().commit_summary.blob is not None and writer.size_bytes == 1


def test_only_a_table_of_blobs_takes_bytes() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    with pytest.raises(BlobTableRequiredError):
        begin(table)
    assert left(store) == []


def test_bytes_have_no_timestamp_column(store: MemoryStore, blobs: DeltaTable) -> None:
    with pytest.raises(CallError, match="timestamp_column does not apply"):
        begin(blobs, timestamp_column="at")
    assert left(store) == []


def test_a_table_that_holds_blobs_no_more_takes_none(store: MemoryStore, blobs: DeltaTable) -> None:
    writer = begin(blobs)
    writer.write(b"x")
    DeltaTable.open(store).unset_properties(["deltalog.blobs"])
    with pytest.raises(BlobTableRequiredError):
        writer.commit()
    assert left(store) == []
