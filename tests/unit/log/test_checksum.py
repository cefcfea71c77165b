from __future__ import annotations

import json
from typing import Any

import pytest

from deltalog import CorruptTableError, DeltaTable
from deltalog.engine import Metadata, Protocol
from deltalog.errors import InvalidCheckpointError
from deltalog.log.checksum import Totals, decode_checksum, encode_checksum
from deltalog.log.replay import State
from deltalog.protocol.actions import CommitInfo, DomainMetadata, SetTransaction
from deltalog.protocol.paths import checksum_path, commit_path
from tests.support.core import SCHEMA, environment, memory, metadata_action, protocol_action, rows

STATE = State(
    Protocol.from_json(protocol_action("inCommitTimestamp")["protocol"]),
    Metadata.from_json(metadata_action({"a": "b"})["metaData"]),
    {"app": SetTransaction(app_id="app", version=3, last_updated=9)},
    {"dom": DomainMetadata(domain="dom", configuration="{}", removed=False)},
)


def test_what_is_written_is_read() -> None:
    data = encode_checksum(STATE, Totals(7, 1234), "txn", 99)
    found = decode_checksum(data)
    assert found is not None
    assert (found.totals, found.txn_id, found.in_commit_timestamp_ms) == (Totals(7, 1234), "txn", 99)
    assert found.state() == STATE


def test_the_fields_of_the_protocol() -> None:
    body = json.loads(encode_checksum(STATE, Totals(7, 1234), "txn", 99))
    assert {k: body[k] for k in ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol")} == {
        "tableSizeBytes": 1234, "numFiles": 7, "numMetadata": 1, "numProtocol": 1,
    }  # fmt: skip
    assert body["inCommitTimestampOpt"] == 99 and body["txnId"] == "txn"
    without = json.loads(encode_checksum(STATE, Totals(7, 1234), "txn", None))
    assert "inCommitTimestampOpt" not in without


@pytest.mark.parametrize(
    ("txn", "ict", "info", "matches"),
    [
        ("t", None, {"txnId": "t"}, True),
        ("t", None, {"txnId": "other"}, False),
        ("t", 5, {"txnId": "other", "inCommitTimestamp": 5}, False),
        (None, 5, {"txnId": "x", "inCommitTimestamp": 5}, True),
        ("t", 5, {"inCommitTimestamp": 5}, True),
        ("t", 5, {"inCommitTimestamp": 6}, False),
        (None, None, {}, False),
        ("t", None, {}, False),
        ("t", None, None, False),
    ],
)
def test_a_checksum_counts_only_for_its_own_commit(
    txn: str | None, ict: int | None, info: dict[str, Any] | None, matches: bool
) -> None:
    body = json.loads(encode_checksum(STATE, Totals(0, 0), "t", ict))
    if txn is None:
        del body["txnId"]
    found = decode_checksum(json.dumps(body).encode())
    assert found is not None
    assert found.matches(None if info is None else CommitInfo(info)) is matches


@pytest.mark.parametrize("gone", ["setTransactions", "domainMetadata"])
def test_a_checksum_that_leaves_things_out_has_no_state(gone: str) -> None:
    body = json.loads(encode_checksum(STATE, Totals(0, 0), "t", None))
    del body[gone]
    found = decode_checksum(json.dumps(body).encode())
    assert found is not None and found.state() is None


def test_removed_domains_are_not_live() -> None:
    body = json.loads(encode_checksum(STATE, Totals(0, 0), "t", None))
    body["domainMetadata"].append({"domain": "gone", "configuration": "", "removed": True})
    found = decode_checksum(json.dumps(body).encode())
    assert found is not None
    state = found.state()
    assert state is not None and set(state.domains) == {"dom"}


@pytest.mark.parametrize("gone", ["numFiles", "tableSizeBytes", "protocol", "metadata"])
def test_incomplete_is_none(gone: str) -> None:
    body = json.loads(encode_checksum(STATE, Totals(0, 0), "t", None))
    del body[gone]
    assert decode_checksum(json.dumps(body).encode()) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("numFiles", -1),
        ("numFiles", "7"),
        ("tableSizeBytes", None),
        ("protocol", {}),
        ("protocol", []),
        ("metadata", {"id": 1}),
        ("setTransactions", [{"appId": 1}]),
        ("setTransactions", {"a": 1}),
        ("domainMetadata", [7]),
    ],
)
def test_wrong_is_none(key: str, value: Any) -> None:
    body = {**json.loads(encode_checksum(STATE, Totals(0, 0), "t", None)), key: value}
    assert decode_checksum(json.dumps(body).encode()) is None


@pytest.mark.parametrize("data", [b"", b"7", b"[]", b"null", b"{", b"\xff", b"[" * 100_000])
def test_garbage_is_none(data: bytes) -> None:
    assert decode_checksum(data) is None


def test_every_truncation_is_none() -> None:
    whole = encode_checksum(STATE, Totals(7, 1234), "txn", 99)
    assert all(decode_checksum(whole[:length]) is None for length in range(len(whole)))


# ------------------------------------------------------------------------ compared with the log once the log is read


def _with_checksum(**changes: Any) -> tuple[DeltaTable, int]:
    """A table of one commit with a wrong ``.crc``, and the bytes of its only data file."""
    store = memory()
    table = DeltaTable.create(store, SCHEMA, data=rows(1), environment=environment())
    size_bytes = table.snapshot().size_bytes
    path = checksum_path(table.version)
    body = json.loads(store.get(path))
    store.put(path, json.dumps({**body, **changes}).encode())
    return DeltaTable.open(store), size_bytes


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"metadata": metadata_action({"a": "b"})["metaData"]}, "contradicts the commits in metaData"),
        ({"protocol": protocol_action("appendOnly")["protocol"]}, "contradicts the commits in protocol"),
    ],
    ids=["metaData", "protocol"],
)
def test_a_checksum_that_contradicts_the_commits_is_an_error_once_they_are_read(
    changes: dict[str, Any], says: str
) -> None:
    table, _ = _with_checksum(**changes)
    for read in (table.snapshot().files, table.snapshot().scan().to_arrow):
        with pytest.raises(CorruptTableError, match=says) as caught:
            read()
        assert checksum_path(table.version) in str(caught.value) and "delete that file" in str(caught.value)


def test_the_files_themselves_outvote_the_totals_of_a_checksum() -> None:
    table, size_bytes = _with_checksum(numFiles=7, tableSizeBytes=9, fileSizeHistogram=None)
    snapshot = table.snapshot()
    assert (snapshot.num_files, snapshot.size_bytes) == (7, 9)  # trusted until the log is read
    assert snapshot.files().num_rows == 1
    assert (snapshot.num_files, snapshot.size_bytes) == (1, size_bytes)
    known = snapshot.log.cache.known_totals
    assert known is not None and (known.num_files, known.size_bytes) == (1, size_bytes)


@pytest.mark.parametrize("changes", [{"numFiles": 7}, {"tableSizeBytes": 9}])
def test_totals_that_the_histogram_contradicts_are_not_used(changes: dict[str, int]) -> None:
    table, size_bytes = _with_checksum(**changes)
    snapshot = table.snapshot()
    assert (snapshot.num_files, snapshot.size_bytes) == (1, size_bytes)
    assert not snapshot.log.cache.uses_checksum


@pytest.mark.parametrize("changes", [{"numFiles": 7}, {"numFiles": 7, "fileSizeHistogram": None}])
def test_the_next_commit_does_not_take_over_wrong_totals(changes: dict[str, Any]) -> None:
    """Without a histogram, the list of files contradicts the totals."""
    table, _ = _with_checksum(**changes)
    table.append(rows(2))
    written = table.snapshot().log.reader.checksum(1)
    assert written is None or written.totals.num_files == 2


@pytest.mark.parametrize(("again", "is_read"), [(1, True), (2, False)])
def test_a_file_that_a_commit_adds_again_may_be_counted_twice(again: int, is_read: bool) -> None:
    """Writers that only add up the actions of commits count a file twice if it is added again. If more files are
    missing than these double counts explain, the checkpoint is wrong."""
    store = memory()
    table = DeltaTable.create(store, SCHEMA, data=rows(1), environment=environment())
    table.append(rows(2))
    table.checkpoint()
    table.append(rows(3))
    path = table.snapshot().files()["path"][0].as_py()
    lines = store.get(commit_path(0)).splitlines(keepends=True)
    line = next(line for line in lines if path.encode() in line)
    store.put(commit_path(2), store.get(commit_path(2)) + line)
    store.delete(commit_path(0))
    body = json.loads(store.get(checksum_path(2)))
    del body["fileSizeHistogram"]
    store.put(checksum_path(2), json.dumps({**body, "numFiles": 3 + again}).encode())
    snapshot = DeltaTable.open(store).snapshot()
    if is_read:
        assert snapshot.files().num_rows == 3
        return
    with pytest.raises(InvalidCheckpointError, match=r"has 3 live files by checkpoint 1 .* and 5 by .*2.crc"):
        snapshot.files()
