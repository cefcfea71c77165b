"""The public test kit for stores, for writers of Delta logs, and for libraries that build on deltalog.

- ``FaultyStore``, ``FaultPlan``, ``nth``, ``Fault``: a store whose calls fail like those of real stores.
- ``CountingStore``: counts store calls.
- ``check``, ``History``, ``Operation``: an independent checker, which compares a log with what clients observed.
- ``deltalog.testing.recording``: runs client operations and records them for ``check``.
- ``deltalog.testing.store_contract.LogStoreTests``: tests for the guarantees of a LogStore (needs pytest).
- ``deltalog.testing.coordinators``: a coordinator whose calls fail like those of real coordinators, and an in-memory
  coordinator.
- ``deltalog.testing.coordinator_tests.CoordinatorTests``: tests for the guarantees of a catalog's Coordinator (needs
  pytest).
"""

from deltalog.testing.checker import Violation, check
from deltalog.testing.history import Attempt, History, Operation, Read, Sighting
from deltalog.testing.stores import (
    Call,
    CallCounts,
    CountingStore,
    Fault,
    FaultPlan,
    FaultyStore,
    SimulatedKill,
    nth,
)

__all__ = [
    "Attempt",
    "Call",
    "CallCounts",
    "CountingStore",
    "Fault",
    "FaultPlan",
    "FaultyStore",
    "History",
    "Operation",
    "Read",
    "Sighting",
    "SimulatedKill",
    "Violation",
    "check",
    "nth",
]
