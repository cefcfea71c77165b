"""Reading checkpoints of several files, or of many row groups, from remote stores."""

from __future__ import annotations

import gc
import io
import random
import threading
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import CorruptTableError, DeltaTable
from deltalog.log.checkpoint.reader import CheckpointReader, ReadParallelism
from deltalog.log.checkpoint.rows import Wanted
from deltalog.log.file_tables import FILES
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint
from deltalog.protocol.paths import LogFileKind, checkpoint_path
from deltalog.storage import LogStore
from deltalog.storage.memory import MemoryStore
from deltalog.storage.remote import PARALLEL_GETS
from tests.support.remote import RemoteStore

COUNT = 3_000
SIDECAR = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])
WANTED = Wanted("add", FILES)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """The rows of a classic checkpoint of COUNT files."""
    store = MemoryStore()
    data = pa.table({"id": range(COUNT), "k": range(COUNT)})
    DeltaTable.create(store, data.schema, partition_by=["k"], data=data).checkpoint()
    return pq.read_table(io.BytesIO(store.get(checkpoint_path(0))))


def put(store: LogStore, name: str, table: pa.Table, **options: Any) -> str:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    store.put(f"_delta_log/{name}", sink.getvalue())
    return name


def classic(store: LogStore, rows: pa.Table) -> Checkpoint:
    """A file with many row groups, larger than the part that is read to open it."""
    name = checkpoint_path(0).rsplit("/", 1)[-1]
    put(store, name, rows, row_group_size=150, compression="none", use_dictionary=False)
    return Checkpoint(0, LogFileKind.CLASSIC_CHECKPOINT, (name,))


def parts(store: LogStore, rows: pa.Table, count: int, sidecars: bool) -> Checkpoint:
    """Write the rows as a checkpoint of several parts; with ``sidecars``, half of the file actions of each part are in
    a sidecar to which the part refers."""
    adds, others = rows.filter(rows["add"].is_valid()), rows.filter(rows["add"].is_null())
    names = []
    for number in range(count):
        mine = adds.slice(
            number * adds.num_rows // count, (number + 1) * adds.num_rows // count - number * adds.num_rows // count
        )
        tables = [mine] if number else [others, mine]
        if sidecars:
            aside = mine.select(["add"]).slice(mine.num_rows // 2)
            name = put(store, f"_sidecars/{number}.parquet", aside).rsplit("/", 1)[-1]
            named = pa.array([{"path": name, "sizeInBytes": 1, "modificationTime": 1}], SIDECAR)
            tables = [*tables[:-1], mine.slice(0, mine.num_rows // 2), pa.table({"sidecar": named})]
        part = pa.concat_tables(tables, promote_options="default")
        names.append(put(store, f"{0:020d}.checkpoint.{number + 1:010d}.{count:010d}.parquet", part))
    return Checkpoint(0, LogFileKind.MULTI_PART_CHECKPOINT, tuple(names))


def reader(store: LogStore, checkpoint: Checkpoint) -> CheckpointReader:
    return LogReader(store).checkpoint(checkpoint)


def paths(pieces: Any) -> list[str]:
    return [path for piece in pieces for path in piece["path"].to_pylist()]


def no_thread_is_left() -> bool:
    return not any(thread.name.startswith("deltalog-") for thread in threading.enumerate())


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("sidecars", [False, True])
def test_parts_and_the_sidecars_that_they_name_have_all_files_once(
    rows: pa.Table, is_remote: bool, sidecars: bool
) -> None:
    inner = MemoryStore()
    checkpoint = parts(inner, rows, 5, sidecars)
    read = reader(RemoteStore(inner) if is_remote else inner, checkpoint)
    assert read.sidecars() == ([f"{number}.parquet" for number in range(5)] if sidecars else [])
    found = paths(read.file_pieces(WANTED, lambda piece: piece))
    assert found == [add["path"] for add in rows["add"].to_pylist() if add]
    assert read.state().metadata is not None and no_thread_is_left()


def test_parts_are_requested_side_by_side(rows: pa.Table) -> None:
    inner = MemoryStore()
    checkpoint = parts(inner, rows, PARALLEL_GETS, sidecars=False)
    meet = threading.Barrier(PARALLEL_GETS, timeout=60)
    opened: set[str] = set()

    def together(path: str) -> None:
        if path not in opened:
            opened.add(path)
            meet.wait()

    store = RemoteStore(inner, together)
    found = paths(reader(store, checkpoint).file_pieces(WANTED, lambda piece: piece))
    assert len(found) == COUNT and store.most_at_once == PARALLEL_GETS


def test_a_sidecar_that_is_missing_in_the_middle(rows: pa.Table) -> None:
    inner = MemoryStore()
    checkpoint = parts(inner, rows, 6, sidecars=True)
    inner.delete("_delta_log/_sidecars/3.parquet")
    with pytest.raises(CorruptTableError, match=r"_sidecars/3\.parquet.*is missing"):
        list(reader(RemoteStore(inner), checkpoint).file_pieces(WANTED, len))
    assert no_thread_is_left()


@pytest.mark.parametrize("seed", range(3))
def test_threads_share_a_file_of_many_row_groups(rows: pa.Table, seed: int) -> None:
    inner = MemoryStore()
    checkpoint = classic(inner, rows)
    chance = random.Random(seed)
    store = RemoteStore(inner, lambda path: time.sleep(chance.random() / 500))
    pieces = reader(store, checkpoint).file_pieces(WANTED, lambda piece: piece, ReadParallelism(100, 4, 4))
    assert paths(pieces) == [add["path"] for add in rows["add"].to_pylist() if add]
    # There is one read for the footer and one for all columns, because the rows take less than 8 MiB and the gaps
    # between the columns are small.
    assert len(store.requests) <= 4


def test_reading_that_is_left_after_a_piece_requests_nothing_more(rows: pa.Table) -> None:
    inner = MemoryStore()
    checkpoint = parts(inner, rows, 100, sidecars=True)
    store = RemoteStore(inner)
    pieces = reader(store, checkpoint).file_pieces(WANTED, len)
    next(pieces)
    del pieces
    gc.collect()
    made = len(store.requests)
    assert no_thread_is_left() and store.at_once == 0
    time.sleep(0.05)
    assert len(store.requests) == made < 100
