"""The verb append, which adds rows."""

from __future__ import annotations

from typing import Any

from deltalog.commit_result import CommitResult
from deltalog.write import write_steps
from deltalog.write.commit_info import UserMetadata
from deltalog.write.transaction import Transaction, skipped


def append(
    transaction: Transaction,
    data: Any,
    merge_schema: bool,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Stage and commit new rows. ``data``: as for ``DeltaTable.append``."""
    if write_steps.is_recorded(transaction, txn):
        return skipped(transaction)
    reader = write_steps.fitting(transaction, data, merge_schema)
    metrics = write_steps.write(transaction, reader)
    return write_steps.commit_write(transaction, "Append", metrics, user_metadata, txn)
