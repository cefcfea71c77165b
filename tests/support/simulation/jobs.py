"""Jobs for the schedules of ``tests.support.simulation.transactions``. The jobs name, write and add objects, and retry
with the same object names. The module also checks the objects left in the stores at the end.

The jobs' files have the amount 0, so ``transaction_judge`` ignores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deltalog.errors import CommitConflictError, ConcurrentModificationError
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.table import DeltaTable
from deltalog.testing.checker import parse_commit
from deltalog.testing.recording import file_action
from deltalog.transactions.manager import VirtualObject
from tests.support.simulation.bank import Bank, SimulatedManager
from tests.support.simulation.client_commits import (
    cancel_client_transaction,
    commit_client_transaction,
    commit_settled,
)
from tests.support.simulation.scheduler import Client
from tests.support.simulation.transaction_judge import ClientTransaction

# Jobs take the first names that are not in the table, so different jobs often choose the same names.
_PREFIX = "run-"
_BYTES = b"r"  # the bytes of each file; their length is the size that ``file_action`` declares


def run_job(bank: Bank, client_transactions: list[ClientTransaction], client: Client, manager: SimulatedManager) -> Any:
    """Name objects in a transaction, write them, and add them in the same transaction or in a separate commit;
    sometimes retry. Some jobs add the objects of another job instead of their own."""
    rng = client.random
    name = rng.choice((bank.names[0], *bank.names))
    taken = sum(path.startswith(_PREFIX) for path in _files(manager.table(name).snapshot()))
    paths = rng.choice(([_object(taken)], [_object(taken)], [_object(taken), _object(taken + 1)]))
    outcome = None
    for _ in range(rng.choice((1, 2, 2, 3))):
        outcome = _attempt(client_transactions, client, manager, name, paths)
        if outcome == "ok":
            break
        if rng.random() < 0.3:
            client.sleep(rng.choice((0.1, 5.0, 2_000.0)))
    return outcome


def _object(number: int) -> str:
    return f"{_PREFIX}{number}.parquet"


def _attempt(
    client_transactions: list[ClientTransaction], client: Client, manager: SimulatedManager, name: str, paths: list[str]
) -> Any:
    rng, url = client.random, f"memory://{name}"
    transaction = manager.transaction()
    client_transaction = ClientTransaction(transaction.id, client.name)
    client_transactions.append(client_transaction)
    store = manager.plain_store(url)
    try:
        if rng.random() < 0.4:  # the job adds the objects of another job and names no objects itself
            is_there = _are_there(store, paths)
            return (
                _add(client_transactions, client, manager, client_transaction, name, paths, rng.random() < 0.5)
                if is_there
                else "failed"
            )
        manager.delete_objects_on_cancel(transaction.id, name, [VirtualObject(f"{url}/{path}") for path in paths])
        if rng.random() < 0.1:
            cancel_client_transaction(manager, client_transaction)
            _write(store, paths)  # a delayed write that arrives after the cancel
            return "failed"
        _write(store, paths)
        end = rng.choice(("commit", "commit", "alone", "cancel", "cancel", "leave"))
        if end == "leave":
            return "unknown"
        if end != "cancel" and _are_there(store, paths):
            return _add(client_transactions, client, manager, client_transaction, name, paths, end == "alone")
    except (ConcurrentModificationError, CommitConflictError):
        pass  # another job has added the objects, or a clean-up is deleting them
    return cancel_client_transaction(manager, client_transaction)


def _write(store: LogStore, paths: list[str]) -> None:
    for path in paths:
        store.put(path, _BYTES)


def _are_there(store: LogStore, paths: list[str]) -> bool:
    return all(store.head(path) is not None for path in paths)


def _add(
    client_transactions: list[ClientTransaction],
    client: Client,
    manager: SimulatedManager,
    client_transaction: ClientTransaction,
    name: str,
    paths: list[str],
    alone: bool,
) -> Any:
    table = manager.table(name) if alone else manager.transaction(client_transaction.token).table(name)
    if alone:
        single = ClientTransaction(
            f"{client.random.getrandbits(32):08x}-job", client.name, is_transaction=False, complete=True
        )
        client_transactions.append(single)
        try:
            _commit(client, single, table, name, paths)
            single.outcomes.add("committed")
        except (ConcurrentModificationError, CommitConflictError):
            single.outcomes.add("aborted")
        return cancel_client_transaction(manager, client_transaction)
    _commit(client, client_transaction, table, name, paths)
    client_transaction.complete = True
    return commit_client_transaction(client, manager, client_transaction)


def _commit(
    client: Client, client_transaction: ClientTransaction, table: DeltaTable, name: str, paths: list[str]
) -> None:
    client_transaction.change(name, paths, [])
    with table.transaction() as transaction:
        assert transaction.snapshot is not None
        if not _files(transaction.snapshot).isdisjoint(paths):  # another job was faster
            raise ConcurrentModificationError(f"{name} has {paths} by now.")
        transaction.add(*(file_action(path, client.clock()) for path in paths))
        commit_settled(client, transaction, client_transaction.token)


def _files(snapshot: Snapshot) -> set[str]:
    return set(snapshot.files(["path"])["path"].to_pylist())


def misplaced(logs: Mapping[str, Mapping[int, bytes]], stores: Mapping[str, LogStore]) -> Iterator[tuple[str, str]]:
    """Check the objects after all transactions were committed or aborted and cleaned up; yields (invariant, problem)
    pairs."""
    for name, log in logs.items():
        added = {path for version, data in log.items() for path in parse_commit(version, data).paths("add")}
        there = {path for path in stores[f"memory://{name}"].list_names("") if path.startswith(_PREFIX)}
        for path in sorted({path for path in added if path.startswith(_PREFIX)} - there):
            yield "X10", f"{name}: {path} was committed, but is deleted"
        for path in sorted(there - added):
            yield "X7", f"{name}: {path} is left, but no version has it"
