"""Cut-off times, and the comparison of times with a cut-off."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deltalog.protocol.actions import SetTransaction
from deltalog.protocol.retention import (
    DAY_MS,
    log_cutoff_ms,
    tombstone_cutoff_ms,
    transaction_cutoff_ms,
    unexpired_tombstones,
    unexpired_transactions,
)

NOW_MS = 1_000 * DAY_MS + 5


def test_cutoffs_follow_the_properties_of_the_table() -> None:
    days = {
        "delta.deletedFileRetentionDuration": "interval 3 days",
        "delta.setTransactionRetentionDuration": "interval 4 days",
        "delta.logRetentionDuration": "interval 5 days",
    }
    assert (tombstone_cutoff_ms({}, NOW_MS), tombstone_cutoff_ms(days, NOW_MS)) == (
        NOW_MS - 7 * DAY_MS,
        NOW_MS - 3 * DAY_MS,
    )
    assert (transaction_cutoff_ms({}, NOW_MS), transaction_cutoff_ms(days, NOW_MS)) == (None, NOW_MS - 4 * DAY_MS)
    assert (log_cutoff_ms({}, NOW_MS), log_cutoff_ms(days, NOW_MS)) == (970 * DAY_MS, 995 * DAY_MS)


@pytest.mark.parametrize(("retention_ms", "cutoff_ms"), [(0, 1_000), (5, 1_000), (6, 999), (DAY_MS, 999)])
def test_the_cutoff_of_the_log_is_the_midnight_before_the_retention(retention_ms: int, cutoff_ms: int) -> None:
    assert log_cutoff_ms({}, NOW_MS, retention_ms) == cutoff_ms * DAY_MS


@pytest.mark.parametrize(
    ("cutoff_ms", "kept"), [(-(2**70), [None, 0, 9, 10, 11]), (-1, [None, 0, 9, 10, 11]), (0, [9, 10, 11]), (10, [11])]
)
def test_a_tombstone_of_the_cutoff_has_expired_and_one_without_a_time_is_of_the_epoch(
    cutoff_ms: int, kept: list[int | None]
) -> None:
    tombstones = pa.table({"deletion_timestamp": pa.array([None, 0, 9, 10, 11], pa.int64())})
    assert unexpired_tombstones(tombstones, cutoff_ms)["deletion_timestamp"].to_pylist() == kept


@pytest.mark.parametrize(("cutoff_ms", "kept"), [(None, "abcd"), (10, "ad"), (11, "a")])
def test_a_transaction_identifier_without_a_time_never_expires(cutoff_ms: int | None, kept: str) -> None:
    found = [
        SetTransaction(app_id=app, version=1, last_updated=at)
        for app, at in zip("abcd", (None, 9, 10, 11), strict=True)
    ]
    assert "".join(each.app_id for each in unexpired_transactions(found, cutoff_ms)) == kept
