"""Tests for a Coordinator's guarantees about transactions and their parts. See ``coordinator_tests``."""

from __future__ import annotations

import dataclasses
import itertools
import random
import threading

import pytest

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import (
    Isolation,
    Proposal,
    Ratification,
    StatusFilter,
    TransactionRecord,
    TransactionStatus,
    TransactionType,
    aborted,
    committed,
    committing,
    pinned,
    started,
    touched,
)
from deltalog.testing.coordinator_cases import ODD, RATIFIED, CoordinatorCases, commit, pages, table, transaction
from deltalog.testing.store_contract import together


class CoordinatorTransactionTests(CoordinatorCases):
    """A mixin of ``CoordinatorTests``.

    Each method of this class tests one guarantee.
    """

    def test_keeps_every_field_of_a_transaction(self, coordinator: Coordinator, another: Coordinator) -> None:
        base = started("r", TransactionType.READ_ONLY, 1, Isolation.SERIALIZABLE)
        records = [
            transaction("a"),
            base,
            pinned(transaction("p"), {"id-1": 5, "id-2": 0}, 1500),
            pinned(transaction("q"), {}, 1500),
            committing(transaction("c"), 1600),
            committed(transaction("d"), {"id-1": 6}, 1700),
            aborted(transaction("x"), "it was ünlucky", 1800),
        ]
        for record in records:
            assert coordinator.insert(record) is True
            assert another.transaction(record.id) == record
        assert another.transaction("none") is None

    @pytest.mark.parametrize("odd", [*(each for each in ODD if " " not in each), "x" * 255])
    def test_takes_any_id(self, coordinator: Coordinator, odd: str) -> None:
        record = transaction(odd)
        assert coordinator.insert(record)
        assert coordinator.put_parts(touched(record, 2000), {"k": b"v"})
        assert coordinator.transaction(odd) == touched(record, 2000)
        assert coordinator.transactions(StatusFilter.ACTIVE.statuses) == [touched(record, 2000)]
        assert coordinator.parts(odd) == {"k": b"v"}
        coordinator.delete(odd)
        assert coordinator.transaction(odd) is None

    def test_an_id_is_given_once(self, coordinator: Coordinator, another: Coordinator) -> None:
        assert coordinator.insert(transaction("t")) is True
        assert another.insert(transaction("t", 2000)) is False
        assert another.insert(transaction("t")) is False
        assert another.transaction("t") == transaction("t")
        assert another.transactions(frozenset(TransactionStatus)) == [transaction("t")]

    def test_replaces_only_the_last_record(self, coordinator: Coordinator, another: Coordinator) -> None:
        first = transaction("t")
        second, third = touched(first, 2000), touched(touched(first, 2000), 3000)
        assert coordinator.replace(second) is False
        coordinator.insert(first)
        assert coordinator.replace(third) is False
        assert coordinator.replace(first) is False
        assert coordinator.replace(second) is True
        assert another.replace(second) is False
        assert another.replace(aborted(first, "late", 9000)) is False
        assert another.replace(third) is True
        assert coordinator.transaction("t") == third

    def test_one_of_many_replaces_a_record(self, coordinator: Coordinator, another: Coordinator) -> None:
        record = transaction("t")
        coordinator.insert(record)
        for _ in range(self.rounds):
            nexts = [touched(record, record.last_activity_ms + who + 1) for who in range(self.threads)]

            def replace(who: int, nexts: list[TransactionRecord] = nexts) -> bool:
                return (coordinator, another)[who % 2].replace(nexts[who])

            done = together(replace, self.threads)
            assert done.count(True) == 1, done
            record = nexts[done.index(True)]
            assert another.transaction("t") == record

    def test_commit_or_cancel_never_both(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        version = 0
        for number in range(self.rounds):
            before = transaction(f"t{number}")
            coordinator.insert(before)
            end = committed(before, {"id-1": version + 1}, 2000)
            made = Proposal({"id-1": (commit(version + 1),)}, {}, before, end)

            def decide(who: int, made: Proposal = made, before: TransactionRecord = before) -> bool:
                if who == 0:
                    return coordinator.ratify(made) is RATIFIED
                return another.replace(aborted(before, "cancelled", 2000))

            ratified, cancelled = together(decide, 2)
            assert ratified is not cancelled
            version += ratified
            head, record = another.head("id-1"), another.transaction(before.id)
            assert head is not None and head.version == version
            assert record is not None and record.status is (
                TransactionStatus.COMMITTED if ratified else TransactionStatus.ABORTED
            )

    def test_lists_by_start_and_id(self, coordinator: Coordinator) -> None:
        chance = random.Random(2)
        records = []
        for number in range(60):
            record = transaction(
                f"{ODD[number % 12].replace(' ', '')}-{number}", chance.choice([5, 70, 70, 800, 10**12])
            )
            assert coordinator.insert(record)
            ends = [record, committing(record, 9000), committed(record, {}, 9000), aborted(record, "x", 9000)]
            end = ends[number % 4]
            assert end is record or coordinator.replace(end)
            records.append(end)
        records.sort(key=lambda record: record.key)
        for states in StatusFilter:

            def page(last: TransactionRecord | None, states: StatusFilter = states) -> list[TransactionRecord]:
                return coordinator.transactions(states.statuses, last.key if last else None, 7)

            wanted = [record for record in records if record.status in states.statuses]
            assert pages(page) == wanted == coordinator.transactions(states.statuses)
        assert coordinator.transactions(frozenset()) == []

    def test_pages_show_each_transaction_once_whatever_else_happens(
        self, coordinator: Coordinator, another: Coordinator
    ) -> None:
        """Transactions that existed when the listing began are listed, even if other transactions start and end during
        the listing."""

        def page(last: TransactionRecord | None) -> list[TransactionRecord]:
            return coordinator.transactions(StatusFilter.ALL.statuses, last.key if last else None, 9)

        there = [transaction(f"t{number:03d}", number) for number in range(40)]
        for record in there:
            coordinator.insert(record)
        done = threading.Event()

        def work(who: int) -> list[list[str]]:
            listings: list[list[str]] = []
            if who == 0:
                try:
                    for number, record in enumerate(there):
                        another.replace(aborted(record, "x", 9000))
                        another.insert(transaction(f"new{number:03d}", number))
                finally:
                    done.set()
            while not listings or not done.is_set():
                listed = pages(page)
                keys = [record.key for record in listed]
                assert keys == sorted(set(keys))
                listings.append([record.id for record in listed])
            return listings

        for listing in itertools.chain(*together(work, 2)):
            assert [each for each in listing if each.startswith("t")] == [record.id for record in there]

    def test_forgets_a_transaction(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.delete("t")
        for other in ("t", "t2", "t 2"):
            record = transaction(other)
            coordinator.insert(record)
            coordinator.put_parts(aborted(record, "x", 2000), {"a": b"1", "b": b"2" * 700_000})
        coordinator.delete("t")
        coordinator.delete("t")
        assert another.transaction("t") is None
        assert another.parts("t") == {}
        assert {record.id for record in another.transactions(StatusFilter.ALL.statuses)} == {"t2", "t 2"}
        assert len(another.parts("t2")) == len(another.parts("t 2")) == 2
        assert coordinator.insert(transaction("t", 5)) is True
        assert coordinator.parts("t") == {}

    # ------------------------------------------------------------------------------------------------ parts

    @pytest.mark.parametrize("size", [0, 1, 300_000, 1_000_001, 5_000_000])
    def test_keeps_every_byte_of_a_part(self, coordinator: Coordinator, another: Coordinator, size: int) -> None:
        data = (bytes(range(256)) * (size // 256 + 1))[:size]
        record = touched(transaction("t"), 2000)
        coordinator.insert(transaction("t"))
        assert coordinator.put_parts(record, {"a": data, "b": b"small"}) is True
        assert another.parts("t") == {"a": data, "b": b"small"}
        assert another.transaction("t") == record

    def test_parts_go_with_the_record(self, coordinator: Coordinator, another: Coordinator) -> None:
        first = transaction("t")
        second = touched(first, 2000)
        assert coordinator.put_parts(second, {"a": b"none"}) is False
        coordinator.insert(first)
        assert coordinator.put_parts(touched(second, 3000), {"a": b"early"}) is False
        assert coordinator.put_parts(second, {"a": b"right"}) is True
        assert another.put_parts(second, {"a": b"late", "b": b"late"}) is False
        assert another.parts("t") == {"a": b"right"}
        assert another.put_parts(touched(second, 3000), {}) is True
        assert another.parts("t") == {"a": b"right"}

    def test_parts_by_prefix_in_order(self, coordinator: Coordinator) -> None:
        keys = [f"{first}/{second}" for first in ODD for second in ("", "1", "\U0010ffff", "long" * 300)]
        keys += ["", "\U0010ffff", "\U0010ffff\U0010ffff"]
        parts = {key: key.encode() for key in keys}
        coordinator.insert(transaction("t"))
        assert coordinator.put_parts(touched(transaction("t"), 2000), parts)
        assert list(coordinator.parts("t")) == sorted(keys)
        for prefix in ["", *ODD, "a/", "a/long", "a/" + "long" * 250, "\U0010ffff", "%", "nothing"]:
            found = coordinator.parts("t", prefix)
            assert list(found.items()) == [(key, parts[key]) for key in sorted(keys) if key.startswith(prefix)]

    def test_a_part_takes_the_place_of_that_of_its_key(self, coordinator: Coordinator, another: Coordinator) -> None:
        record = transaction("t")
        coordinator.insert(record)
        for number, data in enumerate([b"first", b"x" * 600_000, b"", b"y" * 300_000, b"last"]):
            record = touched(record, 2000 + number)
            assert coordinator.put_parts(record, {"a": data, f"b{number}": data})
            assert another.parts("t", "a") == {"a": data}
        assert list(another.parts("t")) == ["a", "b0", "b1", "b2", "b3", "b4"]

    def test_takes_many_parts_at_once(self, coordinator: Coordinator) -> None:
        parts = {f"object {number:04d}": b"%d" % number for number in range(350)}
        coordinator.insert(transaction("t"))
        assert coordinator.put_parts(touched(transaction("t"), 2000), parts)
        assert coordinator.parts("t") == parts
        assert coordinator.parts("t", "object 01") == {k: v for k, v in parts.items() if k.startswith("object 01")}

    def test_forgets_parts(self, coordinator: Coordinator, another: Coordinator) -> None:
        record = transaction("t")
        coordinator.insert(record)
        for number in range(3):
            record = touched(record, 2000 + number)
            coordinator.put_parts(record, {"a": b"%d" % number, "ab": b"x" * 600_000, "c": b"c"})
        coordinator.delete_parts("t", ["a", "ab", "absent"])
        coordinator.delete_parts("t", ["a"])
        coordinator.delete_parts("t", [])
        coordinator.delete_parts("none", ["a"])
        assert another.parts("t") == {"c": b"c"}
        assert another.put_parts(touched(record, 9000), {"a": b"again"})
        assert another.parts("t") == {"a": b"again", "c": b"c"}
        assert another.parts("none") == {}

    def test_forgets_all_parts_of_one_transaction(self, coordinator: Coordinator, another: Coordinator) -> None:
        for each in ("t", "u"):
            record = transaction(each)
            coordinator.insert(record)
            for number in range(3):
                record = touched(record, 2000 + number)
                assert coordinator.put_parts(record, {"a": b"%d" % number, f"b{number}": b"x" * 600_000})
        coordinator.delete_parts("t")
        coordinator.delete_parts("t")
        coordinator.delete_parts("none")
        assert another.parts("t") == {}
        assert list(another.parts("u")) == ["a", "b0", "b1", "b2"]

    def test_lists_what_is_decided_until_its_parts_are_deleted(
        self, coordinator: Coordinator, another: Coordinator
    ) -> None:
        ended = []
        for number in range(5):
            record = transaction(f"t{number}", 1000 + number)
            coordinator.insert(record)
            record = touched(record, 2000)
            assert coordinator.put_parts(record, {"a": b"a", "b": b"b"})
            if number == 0:
                continue  # not decided
            if number == 1:
                coordinator.register(table(0), 0)
                record = committed(record, {}, 3000)
                made = Proposal({"id-0": (commit(1),)}, {}, dataclasses.replace(record, revision=1), record)
                assert coordinator.ratify(made) is Ratification.RATIFIED
            else:
                record = aborted(record, "cancelled", 3000)
                assert coordinator.replace(record)
            ended.append(record)
        assert another.uncleaned() == ended
        assert [each.id for each in pages(lambda last: another.uncleaned(last.key if last else None, 3))] == [
            record.id for record in ended
        ]
        coordinator.delete_parts("t2", ["a"])
        assert another.uncleaned() == ended
        for each in ("t1", "t3"):
            coordinator.delete_parts(each)
        another.delete("t4")
        remaining = another.uncleaned()
        assert ended[1] in remaining and "t0" not in {record.id for record in remaining}
        if type(coordinator).uncleaned is not Coordinator.uncleaned:
            assert remaining == [ended[1]]

    def test_one_of_many_puts_parts(self, coordinator: Coordinator, another: Coordinator) -> None:
        record = transaction("t")
        coordinator.insert(record)
        for number in range(max(2, self.rounds // 4)):
            record = touched(record, 2000 + number)

            def collect(who: int, record: TransactionRecord = record) -> bool:
                return (coordinator, another)[who % 2].put_parts(record, {"all": b"%d" % who, f"of {who}": b""})

            done = together(collect, self.threads)
            assert done.count(True) == 1, done
            winner = done.index(True)
            assert another.parts("t", "all") == {"all": b"%d" % winner}
            assert f"of {winner}" in another.parts("t", "of ")
            another.delete_parts("t", [f"of {winner}"])
            assert another.parts("t", "of ") == {}
