"""The public test kit: for stores, for writers of Delta logs, and for libraries that build on deltalog.

- ``FaultyStore``, ``FaultPlan``, ``nth``, ``Fault``: a store whose calls fail as real ones do.
- ``CountingStore``: how many calls something costs.
- ``check``, ``History``, ``Operation``: an independent judge of a log and of what clients say about it.
- ``deltalog.testing.recording``: runs operations of clients and records them for ``check``.
- ``deltalog.testing.store_contract.LogStoreTests``: the guarantees of a LogStore as tests (needs pytest).
- ``deltalog.testing.coordinators``: a coordinator that fails as real ones do, and one in memory.
- ``deltalog.testing.coordinator_tests.CoordinatorTests``: the guarantees of a catalog's Coordinator as tests (needs
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
