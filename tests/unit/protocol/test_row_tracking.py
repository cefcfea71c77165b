"""The row ids that a commit assigns, and the columns that materialize row ids."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog import CallError, CorruptTableError
from deltalog.engine import AddFile
from deltalog.errors import InvalidActionError
from deltalog.protocol import row_tracking
from deltalog.protocol.actions import DomainMetadata
from deltalog.protocol.row_tracking import DOMAIN, MATERIALIZED_KEYS, ROW_COMMIT_VERSION, ROW_ID

ON = {"delta.enableRowTracking": "true"}


def add(path: str, rows: int | None, first: int | None = None) -> AddFile:
    stats = None if rows is None else f'{{"numRecords":{rows}}}'
    return AddFile(
        path=path, partition_values={}, size=1, modification_time=0, data_change=True, stats=stats, base_row_id=first,
        default_row_commit_version=None if first is None else 3,
    )  # fmt: skip


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(-1, 1000))
def test_ids_of_rows_are_consecutive_and_above_the_mark(counts: list[int], mark: int) -> None:
    given, after = row_tracking.with_row_ids([add(str(n), each) for n, each in enumerate(counts)], mark, 7)
    starts = [mark + 1, *itertools.accumulate(counts, initial=mark + 1)][1:]
    assert [each.base_row_id for each in given] == starts[: len(counts)]
    assert after == mark + sum(counts)
    assert all(each.default_row_commit_version == 7 for each in given)


def test_a_file_that_has_ids_keeps_them() -> None:
    given, after = row_tracking.with_row_ids([add("old", 5, first=2), add("new", 5)], 9, 4)
    assert [(each.base_row_id, each.default_row_commit_version) for each in given] == [(2, 3), (10, 4)] and after == 14


@pytest.mark.parametrize("stats", [None, "", "{}", '{"numRecords":"5"}', "x"])
def test_a_file_of_unknown_length_cannot_get_ids(stats: str | None) -> None:
    file = AddFile(path="f", partition_values={}, size=1, modification_time=0, data_change=True, stats=stats)
    for ask in (lambda: row_tracking.check_countable([file]), lambda: row_tracking.with_row_ids([file], -1, 0)):
        with pytest.raises(InvalidActionError, match="numRecords") as caught:
            ask()
        assert caught.value.path == "f"


def test_the_high_water_mark_is_a_domain() -> None:
    domain = row_tracking.domain_metadata(41)
    assert (domain.domain, domain.removed) == (DOMAIN, False)
    assert row_tracking.high_water_mark([domain]) == 41
    others = [
        DomainMetadata(domain="mine", configuration="{}", removed=False),
        DomainMetadata(domain=DOMAIN, configuration="{}", removed=True),
    ]
    assert row_tracking.high_water_mark(others) == -1 and row_tracking.high_water_mark(others, 8) == 8
    with pytest.raises(CorruptTableError, match="high-water mark"):
        row_tracking.high_water_mark([DomainMetadata(domain=DOMAIN, configuration="{}", removed=False)])


def test_names_of_stored_columns_come_with_the_property_and_stay() -> None:
    assert row_tracking.with_materialized_names({"a": "b"}, lambda: "u") == {"a": "b"}
    named = row_tracking.with_materialized_names(ON, lambda: "u")
    assert [named[key] for key in MATERIALIZED_KEYS] == ["_row-id-col-u", "_row-commit-version-col-u"]
    assert row_tracking.with_materialized_names(named, lambda: "other") == named


def test_columns_of_a_scan() -> None:
    named = row_tracking.with_materialized_names(ON, lambda: "u")
    assert row_tracking.column("id", named, "t") is None
    found = row_tracking.column(ROW_ID, named, "t")
    assert found is not None and (found.stored_as, found.counted) == ("_row-id-col-u", True)
    found = row_tracking.column(ROW_COMMIT_VERSION, ON, "t")
    assert found is not None and (found.stored_as, found.counted) == (None, False)
    with pytest.raises(CallError, match=r"t: .* needs row tracking, which is off"):
        row_tracking.column(ROW_ID, {}, "t")


def test_rows_are_moved_with_their_ids_or_not_at_all() -> None:
    assert row_tracking.kept_columns({}, "t") == ()
    kept = row_tracking.kept_columns(row_tracking.with_materialized_names(ON, lambda: "u"), "t")
    assert [(each.name, each.stored_as, each.counted) for each in kept] == [
        ("_row-id-col-u", "_row-id-col-u", True),
        ("_row-commit-version-col-u", "_row-commit-version-col-u", False),
    ]
    with pytest.raises(CorruptTableError, match="not the property"):
        row_tracking.kept_columns(ON, "t")
