"""Computes when tombstones, transaction identifiers and commits expire. Pure.

All times are milliseconds since the Unix epoch. An item has expired if its time is at or before the cut-off.

Spec: PROTOCOL.md#add-file-and-remove-file, #transaction-identifiers, #metadata-cleanup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.actions import SetTransaction
from deltalog.protocol.properties import (
    DELETED_FILE_RETENTION_MS,
    LOG_RETENTION_MS,
    SET_TRANSACTION_RETENTION_MS,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalog import arrow_arrays
else:
    lazy_modules(__name__, "deltalog.arrow_arrays", pa="pyarrow")

DAY_MS = 86_400_000
_SMALLEST = -(2**63)


def tombstone_cutoff_ms(configuration: Mapping[str, str], now_ms: int) -> int:
    """The cut-off time for tombstones, from delta.deletedFileRetentionDuration."""
    return now_ms - DELETED_FILE_RETENTION_MS.read(configuration)


def unexpired_tombstones(tombstones: pa.Table, cutoff_ms: int) -> pa.Table:
    """The tombstones whose ``deletion_timestamp`` (int64) is after the cut-off; a null timestamp counts as 0."""
    cutoff = arrow_arrays.int64s([max(cutoff_ms, _SMALLEST)])[0]
    is_unexpired = pc.greater(pc.fill_null(tombstones["deletion_timestamp"], arrow_arrays.ZERO), cutoff)
    return tombstones.filter(is_unexpired)


def transaction_cutoff_ms(configuration: Mapping[str, str], now_ms: int) -> int | None:
    """The cut-off from delta.setTransactionRetentionDuration; None: transaction identifiers never expire."""
    retention_ms = SET_TRANSACTION_RETENTION_MS.read(configuration)
    return None if retention_ms is None else now_ms - retention_ms


def unexpired_transactions(transactions: Iterable[SetTransaction], cutoff_ms: int | None) -> list[SetTransaction]:
    """The transaction identifiers recorded after the cut-off; a transaction identifier without a time never expires."""
    if cutoff_ms is None:
        return list(transactions)
    return [each for each in transactions if each.last_updated is None or each.last_updated > cutoff_ms]


def log_cutoff_ms(configuration: Mapping[str, str], now_ms: int, retention_ms: int | None = None) -> int:
    """The last midnight UTC at or before the beginning of the retention period: ``retention_ms``, by default
    delta.logRetentionDuration."""
    if retention_ms is None:
        retention_ms = LOG_RETENTION_MS.read(configuration)
    return midnight_ms(now_ms - retention_ms)


def midnight_ms(at_ms: int) -> int:
    """The last midnight UTC at or before a time."""
    return at_ms // DAY_MS * DAY_MS
