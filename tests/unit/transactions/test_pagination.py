"""Listings in pages, while transactions start and end."""

from __future__ import annotations

import base64
import hmac
import json
import random
from typing import Any

import pytest

from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import CallError
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.manager import _listing
from tests.support.transactions import A, Clock, bank, manager_of

FILTERS = {
    "ALL": {"ACTIVE", "COMMITTED", "ABORTED"},
    "COMPLETED": {"COMMITTED", "ABORTED"},
    "ACTIVE": {"ACTIVE"},
    "COMMITTED": {"COMMITTED"},
    "ABORTED": {"ABORTED"},
}


def end(manager, transaction_id, how):
    if how == "COMMITTED":
        manager.commit_transaction(transaction_id)
    elif how == "ABORTED":
        manager.cancel_transaction(transaction_id)


def pages(manager, asked, size, between=lambda number: None):
    """All pages of a listing; fails if the pages never end."""
    token, found = None, []
    for number in range(200):
        page = manager.list_transactions(asked, size, token)
        assert len(page.transactions) <= size
        found.append([each.transaction_id for each in page.transactions])
        token = page.next_token
        if token is None:
            return found
        between(number)
    raise AssertionError("it never ends")


@pytest.fixture(params=["memory", "sqlite"])
def manager(request, tmp_path):
    clock = Clock()
    coordinator = MemoryCoordinator() if request.param == "memory" else SQLiteCoordinator(tmp_path / "catalog.db")
    made = manager_of(coordinator, clock)
    made.clock = clock
    return made


@pytest.mark.parametrize("asked", FILTERS)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_pages_are_the_listing_in_order(manager, asked, size):
    wanted = []
    for number in range(20):
        manager.clock.pass_(milliseconds=number % 2)
        how = ("ACTIVE", "COMMITTED", "ABORTED")[number % 3]
        each = manager.start_transaction("READ_ONLY" if number % 5 else "READ_AND_WRITE")
        end(manager, each, how)
        if how in FILTERS[asked]:
            wanted.append((manager.describe_transaction(each).start_ms, each))
    found = pages(manager, asked, size)
    assert [each for page in found for each in page] == [each for _, each in sorted(wanted)]
    assert all(page for page in found[:-1])


@pytest.mark.parametrize("seed", range(6))
def test_what_is_there_all_the_time_is_listed_once_whatever_starts_and_ends(manager, seed):
    chance = random.Random(seed)
    kept, others = list[Any](), list[Any]()
    for _ in range(40):
        manager.clock.pass_(milliseconds=chance.randrange(3))
        (kept if chance.random() < 0.5 else others).append(manager.start_transaction())
    ending = list(others)

    def meanwhile(number):
        manager.clock.now_ms += chance.choice((-5, 0, 5))
        others.append(manager.start_transaction())
        ending.append(others[-1])
        end(manager, ending.pop(chance.randrange(len(ending))), chance.choice(("COMMITTED", "ABORTED")))

    seen = [each for page in pages(manager, "ACTIVE", chance.choice((3, 5, 9)), meanwhile) for each in page]
    assert len(seen) == len(set(seen))
    assert set(kept) <= set(seen) <= set(kept) | set(others)


@pytest.mark.parametrize("seed", range(4))
def test_ends_move_nothing_to_where_it_was_listed(manager, seed):
    """The filter ALL lists each transaction exactly once, including transactions that end during the listing."""
    chance = random.Random(seed)
    there = [manager.start_transaction() for _ in range(30)]
    left = list(there)
    chance.shuffle(left)

    def meanwhile(number):
        for _ in range(min(3, len(left))):
            end(manager, left.pop(), chance.choice(("COMMITTED", "ABORTED")))

    found = [each for page in pages(manager, "ALL", 4, meanwhile) for each in page]
    assert sorted(found) == sorted(there)


def test_those_that_are_overdue_are_left_out_of_a_page_and_the_listing_goes_on(manager):
    old = [manager.start_transaction() for _ in range(5)]
    manager.clock.pass_(minutes=31)
    new = [manager.start_transaction() for _ in range(3)]
    found = pages(manager, "ACTIVE", 2)
    assert sorted(each for page in found for each in page) == sorted(new)
    assert len(found) >= 4
    aborted = [each for page in pages(manager, "ABORTED", 2) for each in page]
    assert sorted(aborted) == sorted(old)


def token_of(manager):
    for _ in range(4):
        manager.start_transaction()
    token = manager.list_transactions("ACTIVE", 2).next_token
    assert token and len(token) <= 4096
    return token


@pytest.mark.parametrize(
    "bad", ["", "x", "x" * 4097, "ünï", "AAAA", base64.urlsafe_b64encode(b"x" * 60).decode(), 7, b"x"]
)
def test_what_is_no_token(manager, bad):
    token_of(manager)
    with pytest.raises(CallError, match="token"):
        manager.list_transactions("ACTIVE", 2, bad)


def test_a_token_of_another_filter_or_catalog_or_a_changed_one(manager):
    token = token_of(manager)
    for other in sorted(FILTERS.keys() - {"ACTIVE"}):
        with pytest.raises(CallError, match="token"):
            manager.list_transactions(other, 2, token)
    with pytest.raises(CallError, match="token"):
        manager_of(MemoryCoordinator()).list_transactions("ACTIVE", 2, token)
    raw = base64.urlsafe_b64decode(token)
    body = json.dumps(["ACTIVE", 0, ""]).encode()
    for changed in (raw[:-1], raw + b" ", raw[:16] + body, bytes([raw[0] ^ 1]) + raw[1:]):
        with pytest.raises(CallError, match="token"):
            manager.list_transactions("ACTIVE", 2, base64.urlsafe_b64encode(changed).decode())


@pytest.mark.parametrize(
    "place",
    [
        [],
        [0],
        [0, 5],
        ["0", "x"],
        [0.5, "x"],
        [True, "x"],
        [10**30, "x"],
        [-(10**30), "x"],
        [0, "\ud800"],
        [0, "x", 1],
        {"0": "x"},
    ],
    ids=lambda place: json.dumps(place)[:20],
)
@pytest.mark.parametrize("of", ["transactions", "objects"])
def test_a_place_that_cannot_be_one_is_refused_though_its_seal_is_right(tmp_path, of, place):
    """The key of the seal is the catalog's id. Because this id is not secret, callers can forge a seal."""
    manager = bank(SQLiteCoordinator(tmp_path / "catalog.db"), root=tmp_path)
    manager.start_transaction()
    table_id = manager.coordinator.table(A).table_id
    listing = "ALL" if of == "transactions" else json.dumps(["objects", table_id, None, None])
    body = json.dumps([listing, *place] if isinstance(place, list) else place).encode()
    seal = hmac.digest(manager.coordinator.catalog_id.encode(), body, "sha256")[:16]
    token = base64.urlsafe_b64encode(seal + body).decode()
    with pytest.raises(CallError, match="token was not returned by a listing of this catalog"):
        if of == "transactions":
            manager.list_transactions(next_token=token)
        else:
            manager.get_table_objects(A, next_token=token)


@pytest.mark.parametrize("number", ["", "x", "-5", "+5", "1_0", "9" * 5000, "१"])
def test_a_place_among_objects_that_is_no_number_is_refused(tmp_path, number):
    manager = bank(SQLiteCoordinator(tmp_path / "catalog.db"), root=tmp_path)
    listing = _listing(manager.coordinator.table(A).table_id, None, None)
    with pytest.raises(CallError, match="token was not returned by a listing of this catalog"):
        manager.get_table_objects(A, next_token=manager._ledger.token(listing, 0, number))


def test_a_place_after_no_possible_transaction_is_refused(manager):
    for text in ("", "x" * 256, "x y"):
        with pytest.raises(CallError, match="transaction id"):
            manager.list_transactions(next_token=manager._ledger.token("ALL", 0, text))


def test_a_token_can_be_used_twice(manager):
    token = token_of(manager)
    assert manager.list_transactions("ACTIVE", 2, token) == manager.list_transactions("ACTIVE", 2, token)


@pytest.mark.parametrize("size", [0, -1, 1001, True, 1.0, "5", None])
def test_sizes_of_pages_that_are_refused(manager, size):
    with pytest.raises(CallError, match="max_results"):
        manager.list_transactions("ALL", size)


@pytest.mark.parametrize("asked", ["", "all", "COMMIT_IN_PROGRESS", None])
def test_filters_that_there_are_not(manager, asked):
    with pytest.raises(CallError, match=r"status.filter"):
        manager.list_transactions(asked)


def test_no_transaction_is_one_empty_page(manager):
    assert pages(manager, "ALL", 1) == [[]]
