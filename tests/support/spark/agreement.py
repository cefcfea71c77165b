"""Assertions that delta-spark and deltalog agree about a table."""

from __future__ import annotations

from pathlib import Path

import deltalog
from deltalog import DeltaTable
from tests.support.spark.oracle import DeltaSpark, probe_times
from tests.support.spark.rows import plain_rows

EARLY = "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
LATE = "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
# delta-spark's error for times before the enablement, if all commits before it were cleaned up and only a checkpoint
# remains.
NO_COMMITS = "DELTA_NO_COMMITS_FOUND"


def deltalog_answer(table: DeltaTable, ms: int) -> int | str:
    """deltalog's result in the form of delta-spark's: the version, or an error for a time before or after the
    history."""
    try:
        return table.version_at(ms).version
    except deltalog.TimestampOutOfRangeError as error:
        return EARLY if ms < error.earliest_ms else LATE


def assert_same_time_travel(delta: DeltaSpark, path: Path) -> None:
    """Assert that history and TIMESTAMP AS OF agree at all times in ``probe_times``."""
    table = DeltaTable.open(str(path))
    history = delta.history(path)
    assert [(e.version, e.timestamp_ms, e.operation) for e in table.history()] == history
    times = probe_times([ms for _, ms, _ in history])
    answers = {ms: EARLY if found == NO_COMMITS else found for ms, found in delta.versions_at(path, times).items()}
    assert {ms: deltalog_answer(table, ms) for ms in times} == answers
    assert {EARLY, LATE, history[0][0]} <= set(answers.values()), "the probes must reach beyond both ends"


def assert_same_rows(delta: DeltaSpark, path: Path, version: int | None = None) -> None:
    """Assert that both engines find the same latest version, and that they read the same rows of one version (default:
    the latest)."""
    table = DeltaTable.open(str(path))
    assert table.version == delta.latest(path)
    ours = table.snapshot(version=version).scan().to_arrow()
    theirs = delta.table(path, version)
    assert ours.column_names == theirs.column_names
    assert plain_rows(ours) == plain_rows(theirs)
