"""Tests for a Coordinator's guarantees about documents, names and the version of the last metadata change. See
``coordinator_tests``."""

from __future__ import annotations

import dataclasses
import random

import pytest

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import Document, DocumentChange, Proposal, Ratification
from deltalog.testing.coordinator_cases import MOVED, ODD, RATIFIED, CoordinatorCases, commit, pages, proposal, table
from deltalog.testing.store_contract import together

CHANGED = Ratification.CHANGED


def put(key: str, content: str = "{}", revision: int = 0, kind: str = "schema") -> DocumentChange:
    return DocumentChange(kind, key, revision, content)


def deletion(key: str, revision: int, kind: str = "schema") -> DocumentChange:
    return DocumentChange(kind, key, revision, None)


class CoordinatorDocumentTests(CoordinatorCases):
    """A mixin of ``CoordinatorTests``.

    The methods of this class: one test per guarantee.
    """

    def test_stores_documents_by_kind_and_key(self, coordinator: Coordinator, another: Coordinator) -> None:
        assert coordinator.document("schema", "a") is None
        assert coordinator.change_documents([put("a", '{"x": "ü"}'), put("a", "2", kind="table")]) is True
        assert another.document("schema", "a") == Document("schema", "a", '{"x": "ü"}', 1)
        assert another.document("table", "a") == Document("table", "a", "2", 1)
        assert another.documents("schema") == [Document("schema", "a", '{"x": "ü"}', 1)]

    def test_a_change_needs_the_current_revision(self, coordinator: Coordinator, another: Coordinator) -> None:
        assert coordinator.change_documents([put("a", "1", 1)]) is False
        assert coordinator.change_documents([deletion("a", 1)]) is False
        assert coordinator.change_documents([put("a", "1")]) is True
        assert another.change_documents([put("a", "2")]) is False
        assert another.change_documents([put("a", "2", 1)]) is True
        assert coordinator.change_documents([put("a", "3", 1)]) is False
        assert coordinator.change_documents([deletion("a", 1)]) is False
        assert coordinator.document("schema", "a") == Document("schema", "a", "2", 2)
        assert coordinator.change_documents([deletion("a", 2)]) is True
        assert another.document("schema", "a") is None
        assert another.change_documents([put("a", "4")]) is True

    def test_makes_all_changes_or_none(self, coordinator: Coordinator) -> None:
        coordinator.change_documents([put("a", "1")])
        assert coordinator.change_documents([put("b", "1"), put("a", "2")]) is False
        assert coordinator.change_documents([put("b", "1"), deletion("c", 1)]) is False
        assert coordinator.change_documents([put("b", "1"), deletion("a", 0)]) is False  # checks that it is absent
        assert coordinator.documents("schema") == [Document("schema", "a", "1", 1)]
        assert coordinator.change_documents([put("b", "1"), deletion("c", 0), deletion("a", 1)]) is True
        assert coordinator.documents("schema") == [Document("schema", "b", "1", 1)]

    def test_lists_documents_by_key(self, coordinator: Coordinator) -> None:
        for key in random.Random(1).sample(ODD, len(ODD)):
            assert coordinator.change_documents([put(key, key)])
        found = pages(lambda last: coordinator.documents("schema", last.key if last else "", 5))
        assert [(each.key, each.content) for each in found] == [(key, key) for key in sorted(ODD)]
        assert coordinator.documents("schem") == coordinator.documents("schema2") == []

    def test_one_of_many_makes_a_change(self, coordinator: Coordinator, another: Coordinator) -> None:
        for revision in range(5):

            def change(who: int, revision: int = revision) -> bool:
                return (coordinator, another)[who % 2].change_documents([put("a", str(who), revision)])

            assert sum(together(change, self.threads)) == 1
        found = coordinator.document("schema", "a")
        assert found is not None
        assert found.revision == 5

    # ----------------------------------------------------------------------------------- documents and tables

    def test_a_name_can_be_required_to_be_free(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        assert another.change_documents([put("a")], [table(1).name]) is False
        assert another.change_documents([put("a")], [table(2).name, table(1).name]) is False
        assert another.documents("schema") == []
        assert another.change_documents([put("a")], [table(2).name]) is True

    def test_registers_a_table_with_changes(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.change_documents([put("a")])
        assert coordinator.register(table(1), 0, [deletion("a", 0)]) is False
        assert coordinator.register(table(1), 0, [deletion("a", 1), put("b", "1", 1)]) is False
        assert coordinator.tables() == []
        assert another.register(table(1), 0, [deletion("a", 1), put("b")]) is True
        assert coordinator.register(table(2), 0, [put("c")]) is True
        assert coordinator.register(table(2), 0, [put("d")]) is False
        assert [each.key for each in coordinator.documents("schema")] == ["b", "c"]

    def test_drops_a_table_with_changes(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        assert coordinator.drop("id-1", 0, documents=[put("a", "1", 1)]) is False
        assert coordinator.drop("id-1", 1, documents=[put("a")]) is False
        assert coordinator.table(table(1).name) == table(1)
        assert coordinator.documents("schema") == []
        assert another.drop("id-1", 0, documents=[put("a")]) is True
        assert coordinator.table(table(1).name) is None
        assert [each.key for each in coordinator.documents("schema")] == ["a"]

    def test_ratifies_with_changes(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        wanted = proposal({"id-1": 1})
        assert coordinator.ratify(dataclasses.replace(wanted, documents=(put("a", "1", 1),))) is CHANGED
        assert coordinator.head("id-1") == another.head("id-1")
        assert coordinator.cut() == {"id-1": 0}
        both = dataclasses.replace(wanted, documents=(put("a"), put("b")))
        assert coordinator.ratify(dataclasses.replace(both, unmoved={"id-2": 7})) is MOVED
        assert coordinator.documents("schema") == []
        assert another.ratify(both) is RATIFIED
        assert [each.key for each in coordinator.documents("schema")] == ["a", "b"]
        assert coordinator.ratify(dataclasses.replace(both, documents=(put("c"),))) is MOVED
        assert [each.key for each in coordinator.documents("schema")] == ["a", "b"]

    def test_remembers_that_staged_commits_are_kept(self, coordinator: Coordinator, another: Coordinator) -> None:
        assert coordinator.keeps_staged_commits is another.keeps_staged_commits is False
        coordinator.register(table(1), 0)
        coordinator.keep_staged_commits()
        another.published("id-1", 0)  # before the staged commits would be deleted
        assert another.keeps_staged_commits is True
        for _ in range(2):
            coordinator.keep_staged_commits()
            another.keep_staged_commits()
        assert coordinator.keeps_staged_commits is another.keeps_staged_commits is True
        if coordinator.reopen is not None:
            assert coordinator.reopen().keeps_staged_commits is True

    def test_learns_that_staged_commits_are_kept(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        assert coordinator.ratify(proposal({"id-1": 1})) is RATIFIED
        coordinator.keep_staged_commits()
        another.published("id-1", 1)
        assert another.keeps_staged_commits is True
        if coordinator.reopen is not None:
            later = coordinator.reopen()
            later.keeps_staged_commits = False
            later.published("id-1", 1)  # it was published before
            assert later.keeps_staged_commits is True

    # -------------------------------------------------------------------------------------------------- names

    def test_renames_a_table(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 0)
        coordinator.register(table(2), 0)
        new = dataclasses.replace(table(1), name="sales.new")
        assert coordinator.rename("id-1", table(2).name) is coordinator.rename("id-3", "sales.x") is False
        assert coordinator.rename("id-1", table(1).name) is False
        assert coordinator.rename("id-1", "sales.new", [put("a", "1", 1)]) is False
        assert coordinator.tables() == [table(1), table(2)]
        assert coordinator.rename("id-1", "sales.new", [put("a")]) is True
        assert another.tables() == [new, table(2)]
        assert another.table(table(1).name) is None
        assert another.table("sales.new") == another.table_with_id("id-1") == new
        assert another.table_with_id("id-3") is None
        assert another.document("schema", "a") is not None
        assert another.ratify(proposal({"id-1": 1})) is RATIFIED
        another.published("id-1", 1)
        assert another.register(dataclasses.replace(table(3), name="sales.new"), 0) is False
        assert another.register(dataclasses.replace(table(3), url=table(1).url), 0) is False
        assert another.register(dataclasses.replace(table(3), name=table(1).name), 0) is True
        assert another.drop("id-1", 1) is True
        assert coordinator.table("sales.new") is None

    def test_one_of_many_gets_a_name(self, coordinator: Coordinator, another: Coordinator) -> None:
        for number in range(self.threads):
            coordinator.register(table(number), 0)

        def rename(who: int) -> bool:
            return (coordinator, another)[who % 2].rename(f"id-{who}", "sales.new")

        won = [who for who, done in enumerate(together(rename, self.threads)) if done]
        assert len(won) == 1
        assert len(coordinator.tables()) == self.threads
        found = another.table("sales.new")
        assert found is not None
        assert found.table_id == f"id-{won[0]}"

    # ---------------------------------------------------------------------------------- the mark of metadata

    def test_remembers_the_last_change_of_metadata(self, coordinator: Coordinator, another: Coordinator) -> None:
        coordinator.register(table(1), 4)
        assert _mark(another) == (4, None)
        change = dataclasses.replace(commit(6), changes_metadata=True, modified_ms=17)
        assert coordinator.ratify(Proposal({"id-1": (commit(5),)})) is RATIFIED
        assert _mark(another) == (4, None)
        assert coordinator.ratify(Proposal({"id-1": (change, commit(7))})) is RATIFIED
        found = another.head("id-1")
        assert found is not None
        assert found.commit(6) == change
        assert _mark(another) == (6, change.in_commit_timestamp_ms)
        assert coordinator.ratify(Proposal({"id-1": (commit(8),)})) is RATIFIED
        coordinator.published("id-1", 8)
        assert _mark(another) == (6, change.in_commit_timestamp_ms)

    @pytest.mark.parametrize("modified_ms", [None, 0, 1_700_000_000_000])
    def test_keeps_the_time_of_a_file(self, coordinator: Coordinator, another: Coordinator, modified_ms: int) -> None:
        coordinator.register(table(1), 0)
        new = dataclasses.replace(commit(1), modified_ms=modified_ms)
        assert coordinator.ratify(Proposal({"id-1": (new,)})) is RATIFIED
        found = another.head("id-1")
        assert found is not None
        assert found.unpublished == (new,)


def _mark(coordinator: Coordinator) -> tuple[int | None, int | None]:
    found = coordinator.head("id-1")
    assert found is not None
    return found.metadata_version, found.metadata_ms
