"""Tables for the unit tests of full and lite vacuums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltalog import DeltaTable
from deltalog.storage.base import EntryKind
from deltalog.testing.stores import Call, Fault, FaultyStore, SimulatedKill
from tests.support.core import SCHEMA, Clock, environment, rows


def create(store: Any, clock: Clock, properties: dict[str, str] | None = None, **options: Any) -> DeltaTable:
    return DeltaTable.create(
        store, SCHEMA, properties=properties, data=rows(1, 2), environment=environment(clock), **options
    )


def files(store: Any) -> set[str]:
    """The paths of all files that are not in the log directory."""
    return {entry.path for entry in store.walk(lambda directory: True) if entry.kind is EntryKind.FILE}


def live(table: DeltaTable, version: int | None = None) -> set[str]:
    return set(table.snapshot(version).files()["path"].to_pylist())


def is_killed_at(number: int, fault: Fault, store: Any, clock: Clock, vacuum: Callable[[DeltaTable], Any]) -> bool:
    """Run a vacuum and kill it at a store call, before or after the call takes effect. Returns False if the vacuum made
    fewer store calls than ``number``."""

    def decide(call: Call) -> Fault | None:
        writes = call.method in ("put_if_absent", "put", "delete")
        return None if call.number != number else fault if writes else Fault.KILL_BEFORE

    try:
        vacuum(DeltaTable.open(FaultyStore(store, decide), environment=environment(clock)))
    except SimulatedKill:
        return True
    return False
