"""The conformance kit: tests whether an engine reads and writes Delta tables according to PROTOCOL.md.

    from deltalog.conformance import Engine, all_cases, run

    for outcome in run(MyEngine(), all_cases()):
        print(outcome.id, outcome.outcome, outcome.reason)

docs/conformance.md explains how to write an engine adapter and how to add a case, and docs/conformance-format.md the
file format of cases.
"""

import typing

from deltalog.lazy_names import lazy_names

if typing.TYPE_CHECKING:
    from deltalog.conformance.builder import TableBuilder
    from deltalog.conformance.case import AREAS, Case, Outcome
    from deltalog.conformance.cases import SUITE_VERSION, all_cases
    from deltalog.conformance.cases.managed import managed_cases
    from deltalog.conformance.engine import Engine, NotSupported
    from deltalog.conformance.environments import ENGINES
    from deltalog.conformance.managed import run_managed
    from deltalog.conformance.remote import AdapterError, RemoteEngine
    from deltalog.conformance.runner import run, run_case
    from deltalog.conformance.starting import load_engine, self_check, start_engine

__all__ = [
    "AREAS",
    "ENGINES",
    "SUITE_VERSION",
    "AdapterError",
    "Case",
    "Engine",
    "NotSupported",
    "Outcome",
    "RemoteEngine",
    "TableBuilder",
    "all_cases",
    "load_engine",
    "managed_cases",
    "run",
    "run_case",
    "run_managed",
    "self_check",
    "start_engine",
]

# An engine's own environment has only what its adapter needs, which imports ``deltalog.conformance.engine``.
_MODULES = {
    "AREAS": "deltalog.conformance.case",
    "ENGINES": "deltalog.conformance.environments",
    "SUITE_VERSION": "deltalog.conformance.cases",
    "AdapterError": "deltalog.conformance.remote",
    "Case": "deltalog.conformance.case",
    "Engine": "deltalog.conformance.engine",
    "NotSupported": "deltalog.conformance.engine",
    "Outcome": "deltalog.conformance.case",
    "RemoteEngine": "deltalog.conformance.remote",
    "TableBuilder": "deltalog.conformance.builder",
    "all_cases": "deltalog.conformance.cases",
    "load_engine": "deltalog.conformance.starting",
    "managed_cases": "deltalog.conformance.cases.managed",
    "run": "deltalog.conformance.runner",
    "run_case": "deltalog.conformance.runner",
    "run_managed": "deltalog.conformance.managed",
    "self_check": "deltalog.conformance.starting",
    "start_engine": "deltalog.conformance.starting",
}

if not typing.TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
