"""Reading one checkpoint."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import (
    CorruptTableError,
    DeltaTable,
    InvalidCheckpointError,
    LogStore,
)
from deltalog.log.checkpoint.reader import CheckpointReader
from deltalog.log.checkpoint.rows import Wanted
from deltalog.log.file_statistics import of_files
from deltalog.log.file_tables import FILES, TOMBSTONES
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint
from deltalog.protocol.paths import LogFileKind, checkpoint_path
from tests.support.core import (
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
    """Integers of other widths, structs of nulls for absent actions, no column for absent kinds."""
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
        (piece,) = reader(store).file_pieces(each, lambda rows: of_files(rows, []))
        assert piece.num_rows == 0
