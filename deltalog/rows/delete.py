"""The verb delete, which deletes rows."""

from __future__ import annotations

from deltalog.commit_result import CommitResult
from deltalog.expressions.sql import at_one_instant
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Predicate
from deltalog.protocol.codec import canonical_json
from deltalog.rows import rewrite
from deltalog.write import write_steps
from deltalog.write.commit_info import UserMetadata
from deltalog.write.transaction import Transaction, skipped


def delete(
    transaction: Transaction, where: Predicate | str | None, user_metadata: UserMetadata, txn: tuple[str, int] | None
) -> CommitResult:
    """Stage and commit the deletion of the rows for which ``where`` is true (None: of all rows)."""
    if write_steps.is_recorded(transaction, txn):
        return skipped(transaction)
    where = at_one_instant(where, transaction.row_writer.now())
    deletion = rewrite.plan(transaction, where)
    if deletion.is_empty and txn is None:
        return skipped(transaction)
    metrics = rewrite.stage(transaction, deletion)
    if txn is not None:
        transaction.set_transaction(*txn)
    parameters = {"predicate": canonical_json(["true" if where is None else shown(where)])}
    return transaction.commit("DELETE", parameters, metrics, user_metadata)
