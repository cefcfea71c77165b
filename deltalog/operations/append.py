"""The verb that adds rows."""

from __future__ import annotations

from typing import Any

from deltalog.commit_result import CommitResult
from deltalog.operations import writes
from deltalog.operations.commit_info import UserMetadata
from deltalog.operations.transaction import Transaction, skipped


def append(
    transaction: Transaction,
    data: Any,
    merge_schema: bool,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Stage and commit new rows. ``data``: as for ``DeltaTable.append``."""
    if writes.is_recorded(transaction, txn):
        return skipped(transaction)
    reader = writes.fitting(transaction, data, merge_schema)
    metrics = writes.write(transaction, reader)
    return writes.commit_write(transaction, "Append", metrics, user_metadata, txn)
