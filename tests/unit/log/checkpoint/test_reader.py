"""Reading one checkpoint."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from deltalog import CorruptTableError, DeltaTable
from deltalog.errors import InvalidCheckpointError
from deltalog.log.checkpoint.reader import CheckpointReader
from deltalog.log.checkpoint.rows import Wanted
from deltalog.log.checkpoint.writer import TopLevel
from deltalog.log.file_statistics import statistics_of_files
from deltalog.log.file_tables import FILES, TOMBSTONES
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint
from deltalog.protocol.paths import LogFileKind, checkpoint_path, checksum_path, commit_path
from deltalog.storage import LogStore
from tests.support.core import (
    SCHEMA,
    environment,
    memory,
    metadata_action,
    protocol_action,
    rows,
)


def reader(store: LogStore, version: int = 3) -> CheckpointReader:
    name = checkpoint_path(version).rsplit("/", 1)[-1]
    return LogReader(store).checkpoint(Checkpoint(version, LogFileKind.CLASSIC_CHECKPOINT, (name,)))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", b"x" * 1000])
def test_a_checkpoint_that_is_no_parquet_file(data: bytes) -> None:
    store = memory()
    store.put(checkpoint_path(3), data)
    checkpoint = reader(store)
    for read in (checkpoint.state, lambda: list(checkpoint.file_pieces(Wanted("remove", TOMBSTONES), len))):
        with pytest.raises(InvalidCheckpointError, match=r"3\.checkpoint\.parquet.*cannot be read") as caught:
            read()
        assert caught.value.version == 3


def test_a_checkpoint_that_went_away() -> None:
    with pytest.raises(InvalidCheckpointError):
        reader(memory()).state()


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_checkpoint_without_a_state(missing: str) -> None:
    store = memory()
    table = DeltaTable.create(store, rows().schema, environment=environment())
    table.checkpoint()
    path = checkpoint_path(0)
    whole = pq.read_table(pa.BufferReader(store.get(path)))
    sink = pa.BufferOutputStream()
    pq.write_table(whole.filter(whole[missing].is_null()), sink)
    store.put(path, sink.getvalue().to_pybytes())
    with pytest.raises(CorruptTableError, match=f"has no {missing} action"):
        reader(store, 0).state()


def test_the_columns_of_other_writers() -> None:
    """In the checkpoint, integers have other widths than in deltalog's checkpoints, absent actions are structs of
    nulls, and kinds of actions that do not occur have no column."""
    store = memory()
    add = pa.array(
        [
            None,
            None,
            {"path": "a", "partitionValues": [("p", "1")], "size": 5, "modificationTime": 6},
        ],
        pa.struct(
            [
                ("path", pa.large_string()),
                ("partitionValues", pa.map_(pa.string(), pa.string())),
                ("size", pa.int32()),
                ("modificationTime", pa.int64()),
                ("dataChange", pa.bool_()),
                ("stats_parsed", pa.struct([("numRecords", pa.int64())])),
            ]
        ),
    )
    metadata = dict(metadata_action({"k": "v"})["metaData"])
    metadata["configuration"] = list(metadata["configuration"].items())
    metadata["format"] = {"provider": "parquet"}
    table = pa.table(
        {
            "protocol": pa.array([protocol_action()["protocol"], None, None]),
            "metaData": pa.array(
                [None, metadata, None],
                pa.struct(
                    [
                        ("id", pa.string()),
                        ("format", pa.struct([("provider", pa.string())])),
                        ("schemaString", pa.string()),
                        ("partitionColumns", pa.list_(pa.string())),
                        ("configuration", pa.map_(pa.string(), pa.string())),
                        ("createdTime", pa.int64()),
                    ]
                ),
            ),
            "txn": pa.array([{"appId": None}] * 3, pa.struct([("appId", pa.string()), ("version", pa.int64())])),
            "add": add,
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.put(checkpoint_path(3), sink.getvalue().to_pybytes())
    checkpoint = reader(store)
    state = checkpoint.state()
    assert state.protocol is not None and state.protocol.min_writer_version == 2
    assert state.metadata is not None and state.metadata.configuration == {"k": "v"}
    assert not state.transactions and not state.domains
    (piece,) = checkpoint.file_pieces(Wanted("add", FILES), lambda piece: piece)
    (row,) = piece.to_pylist()
    assert (row["path"], row["partition_values"], row["size"], row["stats"]) == ("a", [("p", "1")], 5, None)
    assert sum(checkpoint.file_pieces(Wanted("remove", TOMBSTONES), len)) == 0


def test_a_checkpoint_file_whose_adds_have_no_path_still_has_columns_for_statistics() -> None:
    store = memory()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": [{"size": 1}]}), sink)
    store.put(checkpoint_path(3), sink.getvalue().to_pybytes())
    wanted = Wanted("add", FILES, [])
    sizes_only = Wanted("add", pa.schema([FILES.field("path"), FILES.field("size")]), [])
    for each in (wanted, sizes_only):
        (piece,) = reader(store).file_pieces(each, lambda rows: statistics_of_files(rows, []))
        assert piece.num_rows == 0


@pytest.mark.parametrize("top_level", ["parquet", "json"])
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("by", ["tag", "checksum"])
def test_a_checkpoint_that_lacks_files_is_not_used(top_level: TopLevel, inline: bool, by: str) -> None:
    """The expected number of files is in the checkpoint's own tags, or in the version's .crc."""
    properties = {"delta.feature.v2Checkpoint": "supported", "delta.checkpointPolicy": "v2"}
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment(), properties=properties)
    for number in range(5):
        table.append(rows(number))
    table.checkpoint(top_level=top_level, sidecar_rows=100 if inline else 2)
    table.append(rows(5))
    (name,) = (name for name in store.list_names("_delta_log") if ".checkpoint." in name)
    sidecars = [f"_delta_log/_sidecars/{each}" for each in store.list_names("_delta_log/_sidecars")]
    assert len(sidecars) == (0 if inline else 3)
    damaged = f"_delta_log/{name}" if inline else sidecars[1]
    store.put(damaged, without_an_add(store.get(damaged)))
    if by == "tag":
        store.delete(checksum_path(6))
    else:
        store.put(f"_delta_log/{name}", without_count(store.get(f"_delta_log/{name}")))
    snapshot = DeltaTable.open(store).snapshot()
    assert sorted(row["id"] for row in snapshot.scan().to_arrow().to_pylist()) == list(range(6))
    assert snapshot.files().num_rows == 6 == snapshot.scan(where="id >= 0").files().num_rows
    store.delete(commit_path(0))  # now the checkpoint is needed
    says = "numOfAddFiles is 5" if by == "tag" else "has 5 live files by checkpoint 5 .* and 6 by _delta_log/0*6.crc"
    snapshot = DeltaTable.open(store).snapshot()
    reads: list[Callable[[], Any]] = [snapshot.files, snapshot.scan(where="id = 1").files, snapshot.scan().to_arrow]
    for read in reads:
        with pytest.raises(InvalidCheckpointError, match=says):
            read()
    assert snapshot.log.cache.tombstones(0).num_rows == 0


def without_an_add(data: bytes) -> bytes:
    """A checkpoint file in which one add action is missing."""
    if data.startswith(b"{"):
        lines = data.splitlines(keepends=True)
        lines.remove(next(line for line in lines if line.startswith(b'{"add"')))
        return b"".join(lines)
    table = pq.read_table(pa.BufferReader(data))
    first = pc.index(table["add"].is_valid(), True).as_py()
    return as_parquet(pa.concat_tables([table.slice(0, first), table.slice(first + 1)]))


def without_count(data: bytes) -> bytes:
    """The top-level file of a V2 checkpoint, whose tags do not contain the number of files."""
    if data.startswith(b"{"):
        return data.replace(b"numOfAddFiles", b"anotherNumber")
    table = pq.read_table(pa.BufferReader(data))
    return as_parquet(table.drop_columns(["checkpointMetadata"]))


def as_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("tag", ["", "many", "-1", "9" * 5000, None, 7.5, {"a": 1}])
def test_a_tag_that_is_no_number_is_ignored(tag: object) -> None:
    store = memory()
    lines = [
        {"checkpointMetadata": {"version": 0, "tags": {"numOfAddFiles": tag}}},
        {"checkpointMetadata": {"version": 0, "tags": 7}},
        {"checkpointMetadata": "x"},
    ]
    name = f"{0:020d}.checkpoint.{uuid.UUID(int=1)}.json"
    store.put(f"_delta_log/{name}", "\n".join(map(json.dumps, lines)).encode())
    checkpoint = LogReader(store).checkpoint(Checkpoint(0, LogFileKind.UUID_CHECKPOINT, (name,)))
    assert sum(checkpoint.file_pieces(Wanted("add", FILES), len)) == 0
