"""The conformance kit: tests whether an engine reads and writes Delta tables as PROTOCOL.md says.

    from deltalog.conformance import Engine, all_cases, run

    for outcome in run(MyEngine(), all_cases()):
        print(outcome.id, outcome.outcome, outcome.reason)

docs/conformance.md shows how an engine is connected, how a case is added and what a case is on the disk.
"""

from deltalog.conformance.builder import TableBuilder
from deltalog.conformance.case import AREAS, Case, Outcome
from deltalog.conformance.cases import SUITE_VERSION, all_cases
from deltalog.conformance.engine import Engine, NotSupported
from deltalog.conformance.engines import ENGINES, load_engine
from deltalog.conformance.runner import run, run_case

__all__ = [
    "AREAS",
    "ENGINES",
    "SUITE_VERSION",
    "Case",
    "Engine",
    "NotSupported",
    "Outcome",
    "TableBuilder",
    "all_cases",
    "load_engine",
    "run",
    "run_case",
]
