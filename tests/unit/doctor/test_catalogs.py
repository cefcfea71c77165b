"""The doctor on tables in a catalog: ratified, staged and published commits."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog.doctor.check import examine
from deltalog.doctor.findings import CheckReport
from deltalog.doctor.progress import silent
from deltalog.log.authority import Authority
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import LOG_DIRECTORY, STAGED_COMMITS_DIRECTORY, commit_path, staged_commit_path
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


def test_the_catalog_recorded_another_size_and_time_of_a_ratified_commit(manager: Any) -> None:
    inner = store_of(manager).inner
    (name,) = inner.list_names(STAGED_COMMITS_DIRECTORY)
    data = inner.get(staged_commit_path(name))
    changed = data.replace(b'"inCommitTimestamp":', b'"inCommitTimestamp":1')
    assert changed != data
    for path in (staged_commit_path(name), commit_path(1)):
        inner.put(path, changed)
    (finding,) = (each for each in examined(manager).findings if each.rule == "ratified-commit-differs")
    assert "the size (" in finding.message and "the in-commit timestamp (" in finding.message


@pytest.mark.filterwarnings("error")
def test_the_log_is_ahead_of_the_catalog(manager: Any) -> None:
    inner = store_of(manager).inner
    before = examined(manager)
    for version in (2, 3):
        inner.put(commit_path(version), inner.get(commit_path(1)))
    report = examined(manager)
    (finding,) = (each for each in report.findings if each.rule == "catalog-behind-log")
    assert "latest version is 1; the log has the versions 2 to 3" in finding.message and finding.version == 2
    assert {*report.rules} - {"catalog-behind-log"} == {*before.rules} and report.version == 1


def test_a_commit_that_is_ratified_during_the_check_is_not_ahead_of_the_catalog(manager: Any) -> None:
    store = store_of(manager)
    real = store.inner.list_from

    def list_from(directory: str, start: str = "", **more: Any) -> Any:
        if directory == LOG_DIRECTORY:
            store.inner.list_from = real
            manager.table(A).append(rows((4, 1)))
        return real(directory, start, **more)

    store.inner.list_from = list_from
    reader = LogReader(store, authority=Authority(manager.coordinator.url))
    report = examine(reader, True, silent, environment(Clock()))
    assert report.version == 2 and "catalog-behind-log" not in report.rules


def test_the_log_lacks_commits_that_are_published_according_to_the_catalog() -> None:
    manager = bank()
    for number in range(3, 6):
        manager.table(A).append(rows((number, 7)))
    inner = store_of(manager).inner
    for version in (2, 3):
        inner.delete(commit_path(version))
    report = examined(manager)
    (finding,) = (each for each in report.findings if each.rule == "published-commit-missing")
    assert "the versions 2 to 3 of the log are published" in finding.message and finding.version == 3
    assert not report.ok and report.version == 1
