"""Jobs that name objects, write and add them, and retries that use the same names, for the schedules of
``tests.support.simulation.transactions``; and what the stores hold of them at the end.

What is added has no worth in money, so the judge of that need not know of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deltalog.errors import CommitConflictError, CommitStateUnknownError, ConcurrentModificationError, StoreError
from deltalog.operations.transaction import Transaction
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.table import DeltaTable
from deltalog.testing.checker import parse_commit
from deltalog.testing.recording import file_action
from deltalog.transactions.manager import TransactionManager, VirtualObject
from tests.support.simulation.deals import Deal
from tests.support.simulation.scheduler import Client

if TYPE_CHECKING:
    from tests.support.simulation.transactions import SimulatedManager, TransactionSimulation

# Jobs take the first name that is not in the table, so that they collide.
_PREFIX = "run-"
_BYTES = b"r"  # as many as an add action of ``file_action`` says


def run_job(simulation: TransactionSimulation, client: Client, manager: SimulatedManager) -> Any:
    """Name objects in a transaction, write them, and add them in it or by a commit of its own; perhaps again. Or add
    those of another job."""
    rng = client.random
    name = rng.choice((simulation.bank.names[0], *simulation.bank.names))
    taken = sum(path.startswith(_PREFIX) for path in _files(manager.table(name).snapshot()))
    paths = rng.choice(([_object(taken)], [_object(taken)], [_object(taken), _object(taken + 1)]))
    outcome = None
    for _ in range(rng.choice((1, 2, 2, 3))):
        outcome = _attempt(simulation, client, manager, name, paths)
        if outcome == "ok":
            break
        if rng.random() < 0.3:
            client.sleep(rng.choice((0.1, 5.0, 2_000.0)))
    return outcome


def _object(number: int) -> str:
    return f"{_PREFIX}{number}.parquet"


def _attempt(
    simulation: TransactionSimulation, client: Client, manager: SimulatedManager, name: str, paths: list[str]
) -> Any:
    rng, url = client.random, f"memory://{name}"
    transaction = manager.transaction()
    deal = Deal(transaction.id, client.name)
    simulation.deals.append(deal)
    store = manager.plain_store(url)
    try:
        if rng.random() < 0.4:  # it takes what another job has left, and has named nothing
            is_there = _are_there(store, paths)
            return _add(simulation, client, manager, deal, name, paths, rng.random() < 0.5) if is_there else "failed"
        manager.delete_objects_on_cancel(transaction.id, name, [VirtualObject(f"{url}/{path}") for path in paths])
        if rng.random() < 0.1:
            _cancel(manager, deal)
            _write(store, paths)  # late: the writer was not informed
            return "failed"
        _write(store, paths)
        end = rng.choice(("commit", "commit", "alone", "cancel", "cancel", "leave"))
        if end == "leave":
            return "unknown"
        if end != "cancel" and _are_there(store, paths):
            return _add(simulation, client, manager, deal, name, paths, end == "alone")
    except (ConcurrentModificationError, CommitConflictError):
        pass  # another job has them, or deletes them
    return _cancel(manager, deal)


def _write(store: LogStore, paths: list[str]) -> None:
    for path in paths:
        store.put(path, _BYTES)


def _are_there(store: LogStore, paths: list[str]) -> bool:
    return all(store.head(path) is not None for path in paths)


def _add(
    simulation: TransactionSimulation,
    client: Client,
    manager: SimulatedManager,
    deal: Deal,
    name: str,
    paths: list[str],
    alone: bool,
) -> Any:
    table = manager.table(name) if alone else manager.transaction(deal.token).table(name)
    if alone:
        single = Deal(f"{client.random.getrandbits(32):08x}-job", client.name, is_transaction=False, complete=True)
        simulation.deals.append(single)
        try:
            _commit(client, single, table, name, paths)
            single.told.add("committed")
        except (ConcurrentModificationError, CommitConflictError):
            single.told.add("aborted")
        return _cancel(manager, deal)
    _commit(client, deal, table, name, paths)
    deal.complete = True
    return simulation.commit(client, manager, deal)


def _commit(client: Client, deal: Deal, table: DeltaTable, name: str, paths: list[str]) -> None:
    deal.change(name, paths, [])
    with table.transaction() as transaction:
        assert transaction.snapshot is not None
        if not _files(transaction.snapshot).isdisjoint(paths):  # another was faster
            raise ConcurrentModificationError(f"{name} has {paths} by now.")
        transaction.add(*(file_action(path, client.clock()) for path in paths))
        commit_settled(client, transaction, deal.token)


def commit_settled(client: Client, transaction: Transaction, token: str) -> bool:
    """Commit, and ask once more where the outcome is not known. Whether the commit itself said that it landed; raises
    CommitStateUnknownError where nothing did."""
    try:
        transaction.commit(user_metadata=token)
        return True
    except CommitStateUnknownError as error:
        client.sleep(0.05)
        with contextlib.suppress(StoreError):
            if error.resolve() is not None:
                return False
        raise


def _files(snapshot: Snapshot) -> set[str]:
    return set(snapshot.files(["path"])["path"].to_pylist())


def _cancel(manager: TransactionManager, deal: Deal) -> str:
    manager.cancel_transaction(deal.token)
    deal.told.add("aborted")
    return "failed"


def misplaced(logs: Mapping[str, Mapping[int, bytes]], stores: Mapping[str, LogStore]) -> Iterator[tuple[str, str]]:
    """What is wrong with the objects at the end, when all is decided and cleaned up: the invariant, and what it is."""
    for name, log in logs.items():
        added = {path for version, data in log.items() for path in parse_commit(version, data).paths("add")}
        there = {path for path in stores[f"memory://{name}"].list_names("") if path.startswith(_PREFIX)}
        for path in sorted({path for path in added if path.startswith(_PREFIX)} - there):
            yield "X10", f"{name}: {path} was committed, and is deleted"
        for path in sorted(there - added):
            yield "X7", f"{name}: {path} is no file of any version, and is left"
