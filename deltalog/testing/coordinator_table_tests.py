"""Tests for a Coordinator's guarantees about tables, commits and markings. See ``coordinator_tests``."""

from __future__ import annotations

import dataclasses
import random
import threading

import pytest

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import (
    Head,
    Marking,
    Marks,
    Proposal,
    Ratification,
    RatifiedCommit,
    StatusFilter,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
    aborted,
    committed,
    committing,
    pinned,
    touched,
)
from deltalog.errors import CallError, TimestampAheadError
from deltalog.testing.coordinator_cases import (
    DECIDED,
    MARKED,
    MOVED,
    ODD,
    RATIFIED,
    CoordinatorCases,
    commit,
    marking,
    pages,
    proposal,
    table,
    transaction,
)
from deltalog.testing.store_contract import together


class CoordinatorTableTests(CoordinatorCases):
    """A mixin of ``CoordinatorTests``.

    Each method of this class tests one guarantee.
    """

    def test_has_one_id(self, coordinator: Coordinator, another: Coordinator) -> None:
        assert coordinator.catalog_id
        assert coordinator.catalog_id == another.catalog_id

    def test_can_be_used_after_close(self, coordinator: Coordinator) -> None:
        coordinator.register(table(1), 0)
        coordinator.close()
        coordinator.close()
        assert coordinator.table(table(1).name) == table(1)

    # ----------------------------------------------------------------------------------------------- tables

    def test_a_new_catalog_is_empty(self, coordinator: Coordinator) -> None:
        assert coordinator.tables() == []
        assert coordinator.cut() == {}
        assert coordinator.table(table(1).name) is None
        assert coordinator.head("id-1") is None
        assert coordinator.transactions(frozenset(TransactionStatus)) == []

    def test_registers_a_table(self, coordinator: Coordinator, another: Coordinator) -> None:
        assert coordinator.register(table(1), 7) is True
        assert another.table(table(1).name) == table(1)
        assert another.tables() == [table(1)]
        assert another.head("id-1") == Head(7)
        assert another.cut() == {"id-1": 7}

    @pytest.mark.parametrize("same", ["table_id", "name", "url"])
    def test_refuses_what_clashes(self, coordinator: Coordinator, another: Coordinator, same: str) -> None:
        coordinator.register(table(1), 7)
        fields = {name: getattr(table(1 if name == same else 2), name) for name in ("table_id", "name", "url")}
        assert another.register(TableRecord(**fields, created_ms=5), 9) is False
        assert coordinator.tables() == [table(1)]
        assert coordinator.cut() == {"id-1": 7}

    @pytest.mark.parametrize("inner", ["/x", "/x/y", "/"])
    def test_refuses_a_root_below_or_around_that_of_another(
        self, coordinator: Coordinator, another: Coordinator, inner: str
    ) -> None:
        outer = table(1).url
        coordinator.register(table(1), 0)
        coordinator.register(dataclasses.replace(table(2), url="file:///data/u/v"), 0)
        for url in (f"{outer}{inner}", "file:///data", "file:///data/u", "file:///"):
            assert another.register(dataclasses.replace(table(3), url=url), 0) is False
        for number, url in enumerate((f"{outer}0", "file:///data/u/w", "file:///data/tt", "other:///data"), 3):
            assert another.register(dataclasses.replace(table(number), url=url), 0) is True
        assert len(coordinator.tables()) == 6

    def test_one_of_many_registers_a_place(self, coordinator: Coordinator, another: Coordinator) -> None:
        urls = [f"file:///data{'/x' * depth}" for depth in range(self.threads)]

        def register(who: int) -> bool:
            handle = (coordinator, another)[who % 2]
            return handle.register(dataclasses.replace(table(who), url=urls[who]), 0)

        assert sum(together(register, self.threads)) == 1
        assert len(coordinator.tables()) == 1

    def test_a_refused_registration_takes_nothing(self, coordinator: Coordinator) -> None:
        coordinator.register(table(1), 0)
        for clash in (table(1).name, "sales.other"):
            url = table(1).url if clash == "sales.other" else "file:///other"
            assert coordinator.register(TableRecord("id-2", clash, url, 0), 0) is False
        assert coordinator.register(table(2), 0) is True
        assert coordinator.register(TableRecord("id-3", "sales.other", "file:///other", 0), 0) is True

    def test_registering_again_is_refused(self, coordinator: Coordinator) -> None:
        assert coordinator.register(table(1), 7) is True
        assert coordinator.register(table(1), 7) is False
        assert coordinator.register(table(1), 8) is False
        assert coordinator.head("id-1") == Head(7)

    def test_drops_a_table(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        coordinator.register(table(2), 0)
        assert coordinator.ratify(proposal({"id-1": 1, "id-2": 1})) is RATIFIED
        coordinator.published("id-1", 1)
        assert coordinator.drop("id-1", 1) is True
        assert another.drop("id-1", 1) is False
        assert another.table(table(1).name) is None
        assert another.head("id-1") is None
        assert another.tables() == [table(2)]
        assert another.cut() == {"id-2": 1}
        assert coordinator.ratify(proposal({"id-1": 2})) is MOVED

    def test_drops_no_table_that_moved_or_has_something_to_publish(
        self, coordinator: Coordinator, another: Coordinator
    ) -> None:
        coordinator.register(table(1), 0)
        made = [proposal({"id-1": 1}), proposal({"id-1": 2})]
        assert another.ratify(made[0]) is RATIFIED
        assert coordinator.drop("id-1", 0) is coordinator.drop("id-1", 1) is False
        coordinator.published("id-1", 1)
        assert another.ratify(made[1]) is RATIFIED
        assert coordinator.drop("id-1", 1) is coordinator.drop("id-1", 2) is False
        assert coordinator.head("id-1") == Head(2, made[1].commits["id-1"])
        assert coordinator.table(table(1).name) == table(1)
        coordinator.published("id-1", 2)
        assert coordinator.drop("id-1", 2) is True

    def test_a_dropped_table_comes_back_without_its_past(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        for version in (1, 2, 3):
            assert coordinator.ratify(proposal({"id-1": version})) is RATIFIED
        coordinator.published("id-1", 3)
        assert another.drop("id-1", 3)
        assert another.register(table(1), 1) is True
        assert coordinator.head("id-1") == Head(1)
        new = commit(2, "new")
        assert coordinator.ratify(Proposal({"id-1": (new,)})) is RATIFIED
        assert another.head("id-1") == Head(2, (new,))

    def test_lists_tables_by_name(self, coordinator: Coordinator) -> None:
        records = [TableRecord(f"id-{n}", f"sales.{name}", f"file:///{n}", n) for n, name in enumerate(ODD)]
        for record in random.Random(1).sample(records, len(records)):
            assert coordinator.register(record, 0)
        records.sort(key=lambda record: record.name)
        assert coordinator.tables() == records
        assert all(coordinator.table(record.name) == record for record in records)
        assert pages(lambda last: coordinator.tables(last.name if last else "", 5)) == records
        assert coordinator.tables(records[-1].name) == []

    def test_one_of_many_registers_a_name(self, coordinator: Coordinator, another: Coordinator) -> None:
        def register(who: int) -> bool:
            record = TableRecord(f"id-{who}", "sales.t", f"file:///{who}", who)
            return (coordinator, another)[who % 2].register(record, who)

        won = [who for who, done in enumerate(together(register, self.threads)) if done]
        assert len(won) == 1
        assert coordinator.cut() == {f"id-{won[0]}": won[0]}

    # ------------------------------------------------------------------------------------------- ratification

    def test_ratifies_one_version_after_the_other(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 4)
        commits = [commit(5), commit(6), commit(7), commit(8)]
        assert coordinator.ratify(Proposal({"id-1": (commits[0],)})) is RATIFIED
        assert another.head("id-1") == Head(5, (commits[0],))
        assert another.ratify(Proposal({"id-1": tuple(commits[1:3])})) is RATIFIED
        assert coordinator.ratify(Proposal({"id-1": (commits[3],)})) is RATIFIED
        assert another.head("id-1") == Head(8, tuple(commits))
        assert another.cut() == {"id-1": 8}

    @pytest.mark.parametrize("version", [3, 4, 6, 7])
    def test_ratifies_no_other_version_than_the_next(self, coordinator: Coordinator, version: int) -> None:
        coordinator.register(table(1), 4)
        assert coordinator.ratify(proposal({"id-1": version})) is MOVED
        assert coordinator.head("id-1") == Head(4)

    def test_ratifies_nothing_that_is_far_ahead_of_its_clock(self, coordinator: Coordinator) -> None:
        coordinator.register(table(1), 0)
        coordinator.register(table(2), 0)
        last_ms = coordinator.clock_ms() + coordinator.most_ahead_ms
        for ahead_ms in (2**63 - 1, last_ms + 60_000):
            late = dataclasses.replace(commit(1), in_commit_timestamp_ms=ahead_ms)
            with pytest.raises(TimestampAheadError):
                coordinator.ratify(Proposal({"id-1": (commit(1),), "id-2": (late,)}))
        assert coordinator.cut() == {"id-1": 0, "id-2": 0}
        near = dataclasses.replace(commit(1), in_commit_timestamp_ms=last_ms - 60_000)
        assert coordinator.ratify(Proposal({"id-1": (near,)})) is RATIFIED

    @pytest.mark.parametrize("versions", [(), (5, 7), (6, 5), (5, 5)])
    def test_a_proposal_with_a_gap_cannot_be_made(self, versions: tuple[int, ...]) -> None:
        with pytest.raises(CallError, match="gap"):
            Proposal({"id-1": tuple(map(commit, versions))})

    def test_a_table_that_is_not_there_has_moved(self, coordinator: Coordinator) -> None:
        coordinator.register(table(1), 0)
        assert coordinator.ratify(proposal({"id-1": 1, "id-2": 1})) is MOVED
        assert coordinator.ratify(proposal({"id-1": 1}, unmoved={"id-2": 0})) is MOVED
        assert coordinator.head("id-1") == Head(0)

    @pytest.mark.parametrize("moved", [1, 2, 3])
    def test_one_moved_table_of_three_undoes_all(self, coordinator: Coordinator, moved: int) -> None:
        for number in (1, 2, 3):
            coordinator.register(table(number), 0)
        before = transaction("t")
        coordinator.insert(before)
        first = commit(1, "faster")
        assert coordinator.ratify(Proposal({f"id-{moved}": (first,)})) is RATIFIED
        commits = {f"id-{number}": (commit(1, "slower"), commit(2, "slower")) for number in (1, 2, 3)}
        after = committed(before, {"id-1": 2}, 2000)
        assert coordinator.ratify(Proposal(commits, {}, before, after)) is MOVED
        for number in (1, 2, 3):
            assert coordinator.head(f"id-{number}") == (Head(1, (first,)) if number == moved else Head(0))
        assert coordinator.transaction("t") == before

    def test_holds_what_must_not_have_moved(self, coordinator: Coordinator) -> None:
        for number in (1, 2):
            coordinator.register(table(number), 0)
        assert coordinator.ratify(proposal({"id-1": 1}, unmoved={"id-2": 0})) is RATIFIED
        assert coordinator.ratify(proposal({"id-2": 1}, unmoved={"id-1": 0})) is MOVED
        assert coordinator.ratify(proposal({"id-2": 1}, unmoved={"id-1": 1, "id-2": 0})) is RATIFIED
        assert coordinator.cut() == {"id-1": 1, "id-2": 1}

    def test_a_transaction_that_only_read_is_held_to_it(self, coordinator: Coordinator) -> None:
        coordinator.register(table(1), 3)
        before = transaction("t")
        coordinator.insert(before)
        after = committed(before, {}, 2000)
        assert coordinator.ratify(Proposal({}, {"id-1": 2}, before, after)) is MOVED
        assert coordinator.transaction("t") == before
        assert coordinator.ratify(Proposal({}, {"id-1": 3}, before, after)) is RATIFIED
        assert coordinator.transaction("t") == after

    def test_repeating_a_ratified_proposal_changes_nothing(self, coordinator: Coordinator) -> None:
        coordinator.register(table(1), 0)
        plain = proposal({"id-1": 1})
        assert coordinator.ratify(plain) is RATIFIED
        assert coordinator.ratify(plain) in (MOVED, DECIDED)
        before = transaction("t")
        coordinator.insert(before)
        commits = {"id-1": (commit(2),)}
        in_transaction = Proposal(commits, {}, before, committed(before, {"id-1": 2}, 2000))
        assert coordinator.ratify(in_transaction) is RATIFIED
        assert coordinator.ratify(in_transaction) in (MOVED, DECIDED)
        assert coordinator.head("id-1") == Head(2, plain.commits["id-1"] + commits["id-1"])

    def test_the_record_is_replaced_with_the_ratification(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        before = committing(pinned(transaction("t"), {"id-1": 0}, 1500), 1600)
        coordinator.insert(before)
        after = committed(before, {"id-1": 1}, 2000)
        assert coordinator.ratify(Proposal({"id-1": (commit(1),)}, {}, before, after)) is RATIFIED
        assert another.transaction("t") == after
        assert another.transactions(StatusFilter.COMMITTED.statuses) == [after]
        assert another.transactions(StatusFilter.ACTIVE.statuses) == []

    def test_a_decided_transaction_ratifies_nothing(self, coordinator: Coordinator) -> None:
        coordinator.register(table(1), 0)
        before = transaction("t")
        after = committed(before, {"id-1": 1}, 2000)
        in_transaction = Proposal({"id-1": (commit(1),)}, {}, before, after)
        assert coordinator.ratify(in_transaction) is DECIDED  # no such record
        coordinator.insert(before)
        cancelled = aborted(before, "cancelled", 1500)
        assert coordinator.replace(cancelled)
        assert coordinator.ratify(in_transaction) is DECIDED
        assert coordinator.transaction("t") == cancelled
        assert coordinator.head("id-1") == Head(0)

    def test_one_of_many_proposals_wins(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        winners: list[RatifiedCommit] = []
        for version in range(1, self.rounds + 1):
            commits = [commit(version, f"{who}") for who in range(self.threads)]

            def ratify(who: int, commits: list[RatifiedCommit] = commits) -> Ratification:
                return (coordinator, another)[who % 2].ratify(Proposal({"id-1": (commits[who],)}))

            outcomes = together(ratify, self.threads)
            assert outcomes.count(RATIFIED) == 1, outcomes
            assert outcomes.count(MOVED) == self.threads - 1, outcomes
            winners.append(commits[outcomes.index(RATIFIED)])
        assert another.head("id-1") == Head(self.rounds, tuple(winners))

    def test_overlapping_proposals_leave_no_gap_and_no_part(
        self, coordinator: Coordinator, another: Coordinator
    ) -> None:
        ids = [f"id-{number}" for number in range(1, 5)]
        for number in range(1, 5):
            coordinator.register(table(number), 0)

        def work(who: int) -> list[Proposal]:
            chance, done = random.Random(who), list[Proposal]()
            handle = (coordinator, another)[who % 2]
            for _ in range(self.rounds):
                seen = handle.cut()
                made = proposal({each: seen[each] + 1 for each in chance.sample(ids, chance.randint(1, 3))}, f"{who}")
                if handle.ratify(made) is RATIFIED:
                    done.append(made)
            return done

        ratified = [made for done in together(work, min(self.threads, 6)) for made in done]
        for table_id in ids:
            wanted = sorted(
                (made.commits[table_id][0] for made in ratified if table_id in made.commits), key=lambda c: c.version
            )
            assert coordinator.head(table_id) == Head(len(wanted), tuple(wanted))

    def test_a_cut_is_of_one_instant(self, coordinator: Coordinator, another: Coordinator) -> None:
        for number in range(1, 6):
            coordinator.register(table(number), 0)
        done = threading.Event()

        def work(who: int) -> list[dict[str, int]]:
            cuts = []
            if who == 0:
                try:
                    for version in range(1, self.rounds + 1):
                        made = proposal({f"id-{number}": version for number in range(1, 6)})
                        assert coordinator.ratify(made) is RATIFIED
                finally:
                    done.set()
            while not done.is_set():
                cuts.append(another.cut())
            return [*cuts, another.cut()]

        for cuts in together(work, 4):
            assert all(len(cut) == 5 and len(set(cut.values())) == 1 for cut in cuts), cuts
            versions = [cut["id-1"] for cut in cuts]
            assert versions == sorted(versions) and versions[-1] == self.rounds

    def test_a_cut_sees_tables_come_with_their_commits(self, coordinator: Coordinator, another: Coordinator) -> None:
        """If a table is registered and then changed in one commit together with another table, no consistent cut shows
        this commit in only the other table."""
        coordinator.register(table(0), 0)
        done = threading.Event()

        def work(who: int) -> list[dict[str, int]]:
            cuts = []
            if who == 0:
                try:
                    for number in range(1, self.rounds + 1):
                        coordinator.register(table(number), 0)
                        assert coordinator.ratify(proposal({"id-0": number, f"id-{number}": 1})) is RATIFIED
                finally:
                    done.set()
            while not done.is_set():
                cuts.append(another.cut())
            return [*cuts, another.cut()]

        for cuts in together(work, 3):
            for cut in cuts:
                assert sum(version for table_id, version in cut.items() if table_id != "id-0") == cut["id-0"]

    # ------------------------------------------------------------------------------------------- publishing

    def test_forgets_what_is_published(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        commits = tuple(commit(version) for version in range(1, 7))
        coordinator.ratify(Proposal({"id-1": commits}))
        for version, known in [(2, 2), (2, 2), (1, 2), (0, 2), (5, 5), (3, 5)]:
            coordinator.published("id-1", version)
            assert another.head("id-1") == Head(6, commits[known:])
        assert another.cut() == {"id-1": 6}
        more = commit(7)
        assert another.ratify(Proposal({"id-1": (more,)})) is RATIFIED
        coordinator.published("id-1", 6)
        assert another.head("id-1") == Head(7, (more,))

    def test_nothing_is_published_before_it_is_ratified(self, coordinator: Coordinator) -> None:
        coordinator.published("id-1", 5)
        coordinator.register(table(1), 0)
        coordinator.published("id-1", 5)
        assert coordinator.head("id-1") == Head(0)
        made = proposal({"id-1": 1})
        assert coordinator.ratify(made) is RATIFIED
        assert coordinator.head("id-1") == Head(1, made.commits["id-1"])

    def test_a_head_never_has_a_gap(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        done = threading.Event()

        def work(who: int) -> list[Head | None]:
            heads = []
            if who == 0:
                try:
                    for version in range(1, self.rounds * 2, 2):
                        coordinator.ratify(Proposal({"id-1": (commit(version), commit(version + 1))}))
                        another.published("id-1", version - 2)
                finally:
                    done.set()
            while not done.is_set():
                heads.append(another.head("id-1"))
            return [*heads, another.head("id-1")]

        for heads in together(work, 3):
            for head in heads:
                assert head is not None and head.version % 2 == 0
                versions = [each.version for each in head.unpublished]
                assert versions == list(range(head.published_version + 1, head.version + 1))

    def test_keeps_many_unpublished_commits(self, coordinator: Coordinator) -> None:
        coordinator.register(table(1), 0)
        commits = tuple(commit(version) for version in range(1, 251))
        for start in range(0, 250, 50):
            assert coordinator.ratify(Proposal({"id-1": commits[start : start + 50]})) is RATIFIED
        assert coordinator.head("id-1") == Head(250, commits)
        coordinator.published("id-1", 249)
        assert coordinator.head("id-1") == Head(250, commits[249:])

    # ----------------------------------------------------------------------------------------------- markings

    def test_keeps_markings_by_number(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        coordinator.register(table(2), 0)
        assert (coordinator.marks("id-1"), coordinator.marks("id-9")) == (Marks(), Marks())
        assert coordinator.mark("id-1", 1, marking("a", *ODD)) is True
        assert another.mark("id-1", 2, marking("b" * 1000)) is True
        assert another.marks("id-1") == Marks(2, {1: marking("a", *ODD), 2: marking("b" * 1000)})
        coordinator.remark("id-1", 1, marking("c"))
        coordinator.remark("id-1", 2, None)
        for number in (2, 3):
            coordinator.remark("id-1", number, marking("d"))  # a marking that does not exist
        assert another.marks("id-1") == Marks(2, {1: marking("c")})
        assert coordinator.marks("id-2") == Marks()

    @pytest.mark.parametrize("number", [0, 1, 3])
    def test_a_marking_has_the_next_number_which_is_never_given_again(
        self, coordinator: Coordinator, another: Coordinator, number: int
    ) -> None:
        coordinator.register(table(1), 0)
        assert coordinator.mark("id-1", 1, marking("a")) is True
        coordinator.remark("id-1", 1, None)
        assert another.mark("id-1", number, marking("b")) is False
        assert another.mark("id-2", 1, marking("b")) is False
        assert another.marks("id-1") == Marks(1, {})
        assert another.mark("id-1", 2, marking("b")) is True

    def test_a_table_is_dropped_at_its_last_marking_where_that_is_given(
        self, coordinator: Coordinator, another: Coordinator
    ) -> None:
        coordinator.register(table(1), 0)
        coordinator.register(table(2), 0)
        assert another.mark("id-1", 1, Marking("one", 1, ("a.parquet",))) is True
        assert (
            coordinator.drop("id-1", 0, 0) is coordinator.drop("id-1", 0, 2) is coordinator.drop("id-2", 0, 1) is False
        )
        assert coordinator.marks("id-1").last == 1 and another.head("id-2") == Head(0)
        assert another.drop("id-1", 0, 1) is coordinator.drop("id-2", 0, 0) is True
        assert coordinator.cut() == {}

    def test_one_of_many_marks(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        for number in range(1, self.rounds // 4 + 1):

            def mark(who: int, number: int = number) -> bool:
                return (coordinator, another)[who % 2].mark("id-1", number, marking(str(who)))

            done = together(mark, self.threads)
            assert sum(done) == 1
            assert coordinator.marks("id-1").markings[number] == marking(str(done.index(True)))

    @pytest.mark.parametrize("seen", [None, 0, 1, 2])
    def test_what_was_not_compared_with_the_last_marking_is_not_ratified(
        self, coordinator: Coordinator, another: Coordinator, seen: int | None
    ) -> None:
        coordinator.register(table(1), 0)
        coordinator.register(table(2), 0)
        another.mark("id-1", 1, marking("a"))
        commits = {"id-1": (commit(1),), "id-2": (commit(1),)}
        proposed = Proposal(commits, marks={} if seen is None else {"id-1": seen, "id-2": 0})
        assert coordinator.ratify(proposed) is (RATIFIED if seen in (None, 1) else MARKED)
        assert another.cut() == dict.fromkeys(("id-1", "id-2"), int(seen in (None, 1)))
        moved = Proposal({"id-1": (commit(9),)}, marks={"id-1": 0})
        assert coordinator.ratify(moved) is MOVED

    @pytest.mark.parametrize("seen", [0, 1, 2])
    def test_what_was_not_compared_with_the_last_marking_is_not_kept(
        self, coordinator: Coordinator, another: Coordinator, seen: int
    ) -> None:
        coordinator.register(table(1), 0)
        coordinator.register(table(2), 0)
        coordinator.insert(transaction("t"))
        another.mark("id-1", 1, marking("a"))
        changed = touched(transaction("t"), 2000)
        assert coordinator.put_parts(changed, {"a": b"1"}, {"id-1": seen, "id-2": 0}) is (seen == 1)
        assert another.parts("t") == ({"a": b"1"} if seen == 1 else {})
        assert another.transaction("t") == (changed if seen == 1 else transaction("t"))
        assert coordinator.put_parts(touched(changed, 3000), {"b": b"2"}, {"id-9": 0}) is False

    def test_an_object_is_marked_or_named_never_both_unseen(
        self, coordinator: Coordinator, another: Coordinator
    ) -> None:
        coordinator.register(table(1), 0)
        for number in range(1, self.rounds // 2 + 1):
            first = transaction(f"t{number}")
            coordinator.insert(first)

            def act(who: int, first: TransactionRecord = first, number: int = number) -> bool:
                handle = (coordinator, another)[who % 2]
                if who == 0:
                    return handle.mark("id-1", number, marking("x"))
                return handle.put_parts(touched(first, 2000), {"x": b""}, {"id-1": number - 1})

            is_marked, is_named = together(act, 2)
            assert is_marked
            assert bool(coordinator.parts(first.id)) is is_named
