"""Simulations of concurrent clients and of faults, checked by ``deltalog.testing.checker`` and the judges in this
package.

- ``scheduler``, ``simulation``: seeded schedules of several clients, every store call a step.
- ``row_simulation``, ``rows``: the same for deletes, restores and other row changes, judged by the rows.
- ``seeds``: helpers shared by the tests of seeded schedules.
- ``transactions``, ``bank``, ``client_commits``, ``jobs``: seeded schedules of transactions over several tables.
- ``transaction_judge``: judges their logs and the reported outcomes.
- ``exhaustive``: every interleaving of two writers.
- ``sweep``, ``sweep_operations``, ``sweep_bench``: every store call of every operation fails, in every way.
- ``model``: the library compared with a small model, driven by Hypothesis.
- ``crash``, ``writers``: real processes that are killed, stopped or run in large numbers (need ``os.fork``).
- ``mutants``: defects that the simulations must find: ``commit_mutants``, ``row_mutants``, ``transaction_mutants``.
- ``python -m tests.support.simulation.soak``: runs all of it for a fixed time.
"""

from pathlib import Path

#: The directory in which Python must be started to import this package.
ROOT = Path(__file__).resolve().parents[3]
