"""The verbs that add and drop CHECK constraints.

Spec: PROTOCOL.md#check-constraints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.errors import CallError
from deltalog.protocol.properties import CONSTRAINT_PREFIX
from deltalog.write.commit_info import UserMetadata
from deltalog.write.table_rules import TableRules, constraint
from deltalog.write.transaction import Transaction, skipped


def add_constraint(
    transaction: Transaction, name: str, expression: str, user_metadata: UserMetadata = None
) -> CommitResult:
    """Commit a constraint after checking every row of the table. Raises CallError, ConstraintViolationError. Cost: a
    scan of the columns that the constraint uses."""
    key = _key(name)
    url = transaction.reader.store.url
    existing = _find(transaction.metadata.configuration, key)
    if existing is not None:
        raise CallError(f"{url} already has a constraint {name}: {existing}. Drop it first, or choose another name.")
    now = transaction.row_writer.now()
    added = TableRules(url, (constraint(key.removeprefix(CONSTRAINT_PREFIX), expression, transaction.schema, now),))
    snapshot = transaction.snapshot
    assert snapshot is not None
    transaction.read_whole_table()
    scan = snapshot.scan(columns=added.columns)
    added.check_all(pa.Table.from_batches([batch]) for batch in scan.batches())
    transaction.metadata_changes.set_constraint(name, expression)
    parameters: Mapping[str, Any] = {"name": name, "expr": expression}
    return transaction.commit("ADD CONSTRAINT", parameters, user_metadata=user_metadata)


def drop_constraint(
    transaction: Transaction, name: str, if_exists: bool, user_metadata: UserMetadata = None
) -> CommitResult:
    """Commit the removal of a constraint. Raises CallError if the table has no constraint of this name."""
    configuration = transaction.metadata.configuration
    found = _find(configuration, _key(name))
    if found is None:
        if if_exists:
            return skipped(transaction)
        names = [key.removeprefix(CONSTRAINT_PREFIX) for key in configuration if key.startswith(CONSTRAINT_PREFIX)]
        raise CallError(
            f"{transaction.reader.store.url} has no constraint {name!r}. Its constraints: {', '.join(names) or 'none'}."
        )
    transaction.metadata_changes.set_constraint(name, None)
    parameters = {"name": name, "expr": found, "existed": "true"}
    return transaction.commit("DROP CONSTRAINT", parameters, user_metadata=user_metadata)


def _key(name: str) -> str:
    """The property key of a constraint; names are case-insensitive."""
    if not (isinstance(name, str) and name.strip()):
        raise CallError(f"The name of a constraint must be non-empty text, not {name!r}.")
    return f"{CONSTRAINT_PREFIX}{name.lower()}"


def _find(configuration: Mapping[str, str], key: str) -> str | None:
    return next((text for each, text in configuration.items() if each.lower() == key), None)
