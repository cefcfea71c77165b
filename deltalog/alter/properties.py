"""The verbs that set and unset table properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltalog.commit_result import CommitResult
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.properties import ENABLE_IN_COMMIT_TIMESTAMPS
from deltalog.write.commit_info import UserMetadata
from deltalog.write.transaction import Transaction, skipped


def set_properties(
    transaction: Transaction, properties: Mapping[str, str], user_metadata: UserMetadata
) -> CommitResult:
    """Commit table properties."""
    transaction.set_properties(properties)
    parameters = {"properties": canonical_json(dict(properties))}
    return transaction.commit("SET TBLPROPERTIES", parameters, user_metadata=user_metadata)


def unset_properties(transaction: Transaction, keys: Sequence[str], user_metadata: UserMetadata) -> CommitResult:
    """Commit the removal of table properties."""
    transaction.unset_properties(keys)
    parameters = {"properties": canonical_json(list(keys)), "ifExists": "true"}
    return transaction.commit("UNSET TBLPROPERTIES", parameters, user_metadata=user_metadata)


def switch_in_commit_timestamps(transaction: Transaction, on: bool) -> CommitResult:
    """Enable or disable in-commit timestamps with a commit."""
    assert transaction.snapshot is not None
    if transaction.snapshot.in_commit_timestamps_enabled == on:
        return skipped(transaction)
    return set_properties(transaction, {ENABLE_IN_COMMIT_TIMESTAMPS.key: "true" if on else "false"}, None)
