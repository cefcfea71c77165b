from __future__ import annotations

import json
from typing import Any

import pytest

from deltalog.errors import InvalidCommitError, MissingInCommitTimestampError, MissingVersionError
from deltalog.log.reader import HEAD_BYTES, LogReader
from deltalog.protocol.paths import checkpoint_path
from deltalog.testing.stores import CountingStore
from tests.support.core import (
    NOW,
    add_action,
    info_action,
    memory,
    metadata_action,
    protocol_action,
    put_commit,
)

START = (info_action(NOW), protocol_action(), metadata_action())


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
    with pytest.raises(
        MissingVersionError, match=r"00000000000000000003\.json was listed but no longer exists"
    ) as caught:
        LogReader(memory()).commit(3)
    assert caught.value.version == 3


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
    assert caught.value.version == 7
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
