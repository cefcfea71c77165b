"""Steps shared by all verbs that write rows: schema checks, the check for recorded application versions (txn), and the
WRITE commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.errors import CallError
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.schema import StructType, uses_type
from deltalog.protocol.schema_enforcement import check_writable
from deltalog.write.commit_info import UserMetadata
from deltalog.write.input_streams import as_reader
from deltalog.write.transaction import Transaction

if TYPE_CHECKING:
    from deltalog.write import variant_columns
else:
    lazy_modules(__name__, "deltalog.write.variant_columns")


def is_recorded(transaction: Transaction, txn: tuple[str, int] | None) -> bool:
    """Whether the table has recorded this version of an application (txn) or a later version. Raises CallError."""
    if txn is None or transaction.snapshot is None:
        return False
    if not (isinstance(txn, (tuple, list)) and len(txn) == 2 and isinstance(txn[0], str) and isinstance(txn[1], int)):
        raise CallError(f"txn must be an application id and a version, such as ('nightly', 12); got {txn!r}.")
    assert transaction.latest is not None
    recorded = transaction.latest.transaction_version(txn[0])
    return recorded is not None and recorded >= txn[1]


def fitting(transaction: Transaction, data: Any, merge: bool = False) -> pa.RecordBatchReader:
    """The rows, as a stream of batches whose columns fit the columns of the table. ``merge``: add columns that the
    table lacks. Raises CallError, SchemaMismatchError."""
    reader = as_reader(data)
    given = columns_of(reader.schema, transaction.schema)
    if merge:
        transaction.merge_schema(given)
    check_writable(transaction.schema, given)
    return reader


def columns_of(data: pa.Schema, table: StructType, texts: bool = True) -> StructType:
    """The columns of callers' rows, in which the forms of variants are variants where the table has them (``texts``:
    also JSON text). Raises SchemaMismatchError."""
    if uses_type(table, "variant"):
        return variant_columns.interpreted(data, table, texts)
    return StructType.from_arrow(data)


def write(transaction: Transaction, reader: pa.RecordBatchReader) -> dict[str, str]:
    """Write rows and stage their files. Returns the operation metrics."""
    rows = transaction.write(reader)
    return {"numOutputRows": str(rows), **transaction.staged.metrics()}


def commit_write(
    transaction: Transaction,
    mode: str,
    metrics: Mapping[str, Any],
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
    **more: Any,
) -> CommitResult:
    """Commit the staged actions as a WRITE, with the application version ``txn`` if set."""
    if txn is not None:
        transaction.set_transaction(*txn)
    partition_by = canonical_json(list(transaction.metadata.partition_columns))
    parameters = {"mode": mode, "partitionBy": partition_by, **more}
    return transaction.commit("WRITE", parameters, metrics, user_metadata)
