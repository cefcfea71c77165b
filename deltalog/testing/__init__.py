"""The public test kit: for stores, for writers of Delta logs, and for whoever builds on deltalog.

- ``FaultyStore``, ``FaultPlan``, ``nth``, ``Fault``: a store whose calls fail as real ones do.
- ``CountingStore``: how many calls something costs.
- ``check``, ``History``, ``Operation``: an independent judge of a log and of what clients say about it.
- ``deltalog.testing.store_contract.LogStoreTests``: the guarantees of a LogStore as tests (needs pytest).
- ``deltalog.testing.coordinator_tests.CoordinatorTests``: the guarantees of a catalog's Coordinator as tests (needs
  pytest).
- ``deltalog.testing.scheduler`` and ``.simulation``: seeded schedules of several clients (need greenlet).
- ``deltalog.testing.row_simulation`` and ``.rows``: the same for deletes, restores and the like, judged by the rows of
  every version (need greenlet).
- ``deltalog.testing.transactions`` and ``.deals``: transactions over several tables by seed; the judge of what they did
  with the money (need greenlet). ``.transaction_mutants``: defects of the catalog that they must find.
- ``deltalog.testing.coordinators``: a coordinator that fails as real ones do, and one in memory.
- ``deltalog.testing.coordinator_tests.CoordinatorTests``: the guarantees of a Coordinator as tests (needs pytest).
- ``deltalog.testing.exhaustive``: every interleaving of two writers (needs greenlet).
- ``deltalog.testing.sweep``: every store call of every operation fails, in every way.
- ``deltalog.testing.model``: the library beside a small model, driven by Hypothesis (needs hypothesis).
- ``deltalog.testing.crash`` and ``.writers``: real processes, killed, stopped, or many at once (need ``os.fork``).
- ``deltalog.testing.mutants``: defects that all of this must find.
- ``python -m deltalog.testing.soak``: all of it, for as long as one likes.
"""

from deltalog.testing.checker import Attempt, History, Operation, Read, Sighting, Violation, check
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
