"""The conformance kit: tests whether an engine reads and writes Delta tables according to PROTOCOL.md.

    from deltalog.conformance import Engine, all_cases, run

    for outcome in run(MyEngine(), all_cases()):
        print(outcome.id, outcome.outcome, outcome.reason)

docs/conformance.md explains how to write an engine adapter, how to add a case, and the file format of cases.
"""

from deltalog.conformance.builder import TableBuilder
from deltalog.conformance.case import AREAS, Case, Outcome
from deltalog.conformance.cases import SUITE_VERSION, all_cases
from deltalog.conformance.cases.managed import managed_cases
from deltalog.conformance.engine import Engine, NotSupported
from deltalog.conformance.engines import ENGINES, load_engine
from deltalog.conformance.managed import run_managed
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
    "managed_cases",
    "run",
    "run_case",
    "run_managed",
]
