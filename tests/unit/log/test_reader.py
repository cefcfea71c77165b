from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import (
    CorruptTableError,
    DeltaTable,
    InvalidCheckpointError,
    InvalidCommitError,
    MissingInCommitTimestampError,
    MissingVersionError,
)
from deltalog.log.checkpoint.rows import Wanted
from deltalog.log.file_statistics import of_files
from deltalog.log.reader import HEAD_BYTES, LogReader
from deltalog.log.replay import FILES, TOMBSTONES
from deltalog.log.segment import Checkpoint
from deltalog.protocol.paths import LogFileKind, checkpoint_path
from deltalog.testing.stores import CountingStore
from tests.support.core import (
    NOW,
    add_action,
    environment,
    info_action,
    memory,
    metadata_action,
    protocol_action,
    put_commit,
    rows,
)

START = (info_action(NOW), protocol_action(), metadata_action())


def checkpoint(version: int) -> Checkpoint:
    name = checkpoint_path(version).rsplit("/", 1)[-1]
    return Checkpoint(version, LogFileKind.CLASSIC_CHECKPOINT, (name,))


def test_the_latest_listing_begins_at_the_hint() -> None:
    store = memory()
    for version in range(6):
        put_commit(store, version, *START)
    store.put(checkpoint_path(4), b"")
    store.put("_delta_log/_last_checkpoint", b'{"version":4}')
    assert LogReader(store).list_latest().commits == (4, 5)


@pytest.mark.parametrize("hint", [None, b"", b"garbage", b'{"version":5}', b'{"version":99}', b'{"version":0}'])
def test_a_wrong_hint_costs_a_listing_and_no_more(hint: bytes | None) -> None:
    store = CountingStore(memory())
    for version in range(6):
        put_commit(store, version, *START)
    store.put(checkpoint_path(4), b"")
    if hint is not None:
        store.put("_delta_log/_last_checkpoint", hint)
    with store.counted() as calls:
        listing = LogReader(store).list_latest()
    assert listing.commits == (0, 1, 2, 3, 4, 5)
    assert (calls.of("get"), calls.of()) in ((1, 2), (1, 3))


def test_the_actions_of_commits_in_the_order_asked() -> None:
    store = memory()
    put_commit(store, 0, *START, add_action("a"))
    put_commit(store, 1, info_action(NOW + 1), add_action("b"))
    found = LogReader(store).commits([1, 0])
    assert [(c.version, [a.path for a in c.adds]) for c in found] == [(1, ["b"]), (0, ["a"])]


def test_a_commit_that_went_away_is_named() -> None:
    with pytest.raises(MissingVersionError, match=r"00000000000000000003\.json was listed and is gone") as caught:
        LogReader(memory()).commit(3)
    assert caught.value.version == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("actions", "gets"),
    [
        ([info_action(NOW), *START[1:]], 1),
        ([info_action(NOW), *(add_action(f"{i:0100d}") for i in range(100))], 1),
        ([info_action(NOW, userMetadata="x" * HEAD_BYTES)], 2),
        ([*START[1:], info_action(NOW)], 1),
        ([*(add_action(f"{i:0100d}") for i in range(100)), info_action(NOW)], 2),
    ],
)
def test_commit_info_costs_one_small_read_where_it_comes_first(actions: list[dict[str, Any]], gets: int) -> None:
    store = CountingStore(memory())
    put_commit(store, 7, *actions)
    with store.counted() as calls:
        info = LogReader(store).commit_info(7)
    assert info is not None and info.in_commit_timestamp_ms == NOW
    assert calls.of("get") == calls.of() == gets


@pytest.mark.parametrize("size", [HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_commit_info_around_the_size_of_the_head(size: int, end: bytes) -> None:
    store = memory()
    body = {"inCommitTimestamp": NOW, "x": ""}
    missing = size - len(json.dumps({"commitInfo": body})) - len(end)
    data = json.dumps({"commitInfo": {**body, "x": "y" * missing}}).encode() + end
    assert len(data) == size
    store.put("_delta_log/00000000000000000007.json", data)
    assert LogReader(store).in_commit_timestamp_ms(7) == NOW


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        (START[1:], "no commitInfo action"),
        ([info_action(None)], "no valid inCommitTimestamp"),
        ([{"commitInfo": {"inCommitTimestamp": "1"}}], "no valid inCommitTimestamp"),
        ([{"commitInfo": {"inCommitTimestamp": -5}}], "no valid inCommitTimestamp"),
        ([{"commitInfo": {"inCommitTimestamp": 1.5}}], "no valid inCommitTimestamp"),
        ([{"commitInfo": []}], "no commitInfo action"),
    ],
)
def test_no_time_is_made_up(actions: list[dict[str, Any]], says: str) -> None:
    store = memory()
    put_commit(store, 7, *actions)
    with pytest.raises(MissingInCommitTimestampError, match=f"version 7 has {says}") as caught:
        LogReader(store).in_commit_timestamp_ms(7)
    assert caught.value.version == 7  # type: ignore[attr-defined]
    assert store.url in str(caught.value)


@pytest.mark.parametrize("data", [b"", b'{"commitInfo":{"inCommitTimestamp":1', b"x" * 5000])
def test_a_damaged_commit_has_no_time(data: bytes) -> None:
    store = memory()
    store.put("_delta_log/00000000000000000007.json", data)
    with pytest.raises(MissingInCommitTimestampError, match="version 7 cannot be read"):
        LogReader(store).in_commit_timestamp_ms(7)
    with pytest.raises(InvalidCommitError):
        LogReader(store).commit_info(7)


def test_an_absent_checksum_and_a_torn_one() -> None:
    store = memory()
    assert LogReader(store).checksum(3) is None
    store.put("_delta_log/00000000000000000003.crc", b'{"numFiles":')
    assert LogReader(store).checksum(3) is None


# --------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", b"x" * 1000])
def test_a_checkpoint_that_is_no_parquet_file(data: bytes) -> None:
    store = memory()
    store.put(checkpoint_path(3), data)
    reader = LogReader(store)
    for read in (reader.checkpoint_state, lambda c: list(reader.file_pieces(c, Wanted("remove", TOMBSTONES), len))):
        with pytest.raises(InvalidCheckpointError, match=r"3\.checkpoint\.parquet.*cannot be read") as caught:
            read(checkpoint(3))
        assert caught.value.version == 3  # type: ignore[attr-defined]


def test_a_checkpoint_that_went_away() -> None:
    with pytest.raises(InvalidCheckpointError):
        LogReader(memory()).checkpoint_state(checkpoint(3))


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
        LogReader(store).checkpoint_state(checkpoint(0))


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
    reader = LogReader(store)
    state = reader.checkpoint_state(checkpoint(3))
    assert state.protocol is not None and state.protocol.min_writer_version == 2
    assert state.metadata is not None and state.metadata.configuration == {"k": "v"}
    assert not state.transactions and not state.domains
    (piece,) = reader.file_pieces(checkpoint(3), Wanted("add", FILES), lambda piece: piece)
    (row,) = piece.to_pylist()
    assert (row["path"], row["partition_values"], row["size"], row["stats"]) == ("a", [("p", "1")], 5, None)
    assert sum(reader.file_pieces(checkpoint(3), Wanted("remove", TOMBSTONES), len)) == 0


def test_a_checkpoint_file_whose_adds_have_no_path_still_has_columns_for_statistics() -> None:
    store = memory()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": [{"size": 1}]}), sink)
    store.put(checkpoint_path(3), sink.getvalue().to_pybytes())
    wanted = Wanted("add", FILES, [])
    sizes_only = Wanted("add", pa.schema([FILES.field("path"), FILES.field("size")]), [])
    for each in (wanted, sizes_only):
        (piece,) = LogReader(store).file_pieces(checkpoint(3), each, lambda rows: of_files(rows, []))
        assert piece.num_rows == 0
