"""How a client of ``transactions`` commits and cancels, and which outcome it gets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from deltalog.catalog.records import TransactionStatus
from deltalog.errors import (
    CommitStateUnknownError,
    ConcurrentModificationError,
    OperationTimeoutError,
    StoreError,
    TransactionCanceledError,
    TransactionCommitInProgressError,
    TransactionCommittedError,
)
from deltalog.transactions.manager import TransactionManager
from deltalog.write.transaction import Transaction
from tests.support.simulation.scheduler import Client
from tests.support.simulation.transaction_judge import ClientTransaction


def commit_settled(client: Client, transaction: Transaction, token: str) -> bool:
    """Commit; if the outcome is unknown, resolve it once. Returns whether the commit call itself succeeded. Raises
    CommitStateUnknownError if the outcome stays unknown."""
    try:
        transaction.commit(user_metadata=token)
        return True
    except CommitStateUnknownError as error:
        client.sleep(0.05)
        with contextlib.suppress(StoreError):
            if error.resolve() is not None:
                return False
        raise


def commit_client_transaction(
    client: Client,
    manager: TransactionManager,
    client_transaction: ClientTransaction,
    after_failure: Callable[[], None] | None = None,
) -> str:
    """Try at most four times to commit a transaction. Returns ``ok``, ``failed`` or ``unknown``. ``after_failure`` is
    called after a failed attempt, unless an earlier attempt may already have committed the transaction."""
    for _ in range(4):
        try:
            status = manager.commit_transaction(client_transaction.token)
        except TransactionCanceledError:
            client_transaction.outcomes.add("aborted")
            return "failed"
        except (OperationTimeoutError, TransactionCommitInProgressError):
            after_failure = None  # the transaction may already be committed, so it must not be changed again
            client.sleep(client.random.choice((0.1, 100.0)))
            continue
        except (ConcurrentModificationError, StoreError):
            if after_failure is not None:
                after_failure()
            continue
        if status is TransactionStatus.COMMITTED:
            client_transaction.outcomes.add("committed")
            return "ok"
        client.sleep(client.random.choice((0.1, 100.0)))
    return "unknown"


def cancel_client_transaction(manager: TransactionManager, client_transaction: ClientTransaction) -> str:
    """Cancel a transaction. Returns ``failed`` if this call cancelled the transaction, and also if the transaction was
    already committed."""
    try:
        manager.cancel_transaction(client_transaction.token)
    except TransactionCommittedError:
        client_transaction.outcomes.add("committed")
        return "failed"
    client_transaction.outcomes.add("aborted")
    return "failed"
