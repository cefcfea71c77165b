"""The doctor on tables in a catalog: ratified, staged and published commits."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog.doctor.check import examine
from deltalog.doctor.examination import silent
from deltalog.doctor.findings import CheckReport
from deltalog.log.authority import Authority
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import STAGED_COMMITS_DIRECTORY, commit_path, staged_commit_path
from deltalog.testing.coordinators import FaultyCoordinator
from deltalog.testing.stores import Fault, nth
from tests.support.transactions import A, Clock, bank, environment, manager_of, rows


@pytest.fixture
def manager() -> Any:
    """A transaction manager whose catalog has not yet recorded that version 1 of table A was published."""
    manager = bank()
    unnoted = FaultyCoordinator(manager.coordinator, nth(1, Fault.FAIL_BEFORE, method="published"))
    manager_of(unnoted).table(A).append(rows((3, 7)))
    return manager


def store_of(manager: Any) -> Any:
    return manager._tables.store(manager._tables.record(A))


def examined(manager: Any) -> CheckReport:
    reader = LogReader(store_of(manager), authority=Authority(manager.coordinator.url))
    return examine(reader, True, silent, environment(Clock()))


def test_a_ratified_commit_that_is_published_as_it_is_has_no_finding(manager: Any) -> None:
    inner = store_of(manager).inner
    assert store_of(manager).refresh_head().unpublished
    assert inner.list_names(STAGED_COMMITS_DIRECTORY) and inner.head(commit_path(1)) is not None
    report = examined(manager)
    assert report.ok and not report.counts["warning"], str(report)


def test_another_commit_is_published_than_was_ratified(manager: Any) -> None:
    inner = store_of(manager).inner
    inner.put(commit_path(1), inner.get(commit_path(0)))
    report = examined(manager)
    assert "published-commit-differs" in report.rules and not report.ok, str(report)


def test_a_ratified_commit_is_gone(manager: Any) -> None:
    inner = store_of(manager).inner
    for name in inner.list_names(STAGED_COMMITS_DIRECTORY):
        inner.delete(staged_commit_path(name))
    assert examined(manager).ok
    inner.delete(commit_path(1))
    report = examined(manager)
    assert "staged-commit-missing" in report.rules and not report.ok, str(report)
