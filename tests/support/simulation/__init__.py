"""Simulations of several clients and of faults, judged by ``deltalog.testing.checker`` and the judges here.

- ``scheduler``, ``simulation``: seeded schedules of several clients, every store call a step.
- ``row_simulation``, ``rows``: the same for deletes, restores and the like, judged by the rows of every version.
- ``seeds``: what the tests of these share.
- ``transactions``, ``bank``, ``client_commits``, ``jobs``: transactions over several tables by seed.
- ``transaction_judge``: the judge of their logs and of the reported outcomes.
- ``exhaustive``: every interleaving of two writers.
- ``sweep``, ``sweep_operations``, ``sweep_bench``: every store call of every operation fails, in every way.
- ``model``: the library beside a small model, driven by Hypothesis.
- ``crash``, ``writers``: real processes, killed, stopped, or many at once (need ``os.fork``).
- ``mutants``: defects that all of this must find: ``commit_mutants``, ``row_mutants``, ``transaction_mutants``.
- ``python -m tests.support.simulation.soak``: all of it, for a given time.
"""

from pathlib import Path

#: Where Python must be started to import this package.
ROOT = Path(__file__).resolve().parents[3]
