"""The list of scenarios, and the functions that declare and run them."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.interop.parity.answers import FACETS, answers, differences
from tests.interop.parity.tables import DELTA_SPARK, SPARK_EXT, Place, Table

# The modules of scenarios, in the order of the page, with the heading of each.
AREAS = {
    "modes": "Save modes",
    "partitions": "Partitions",
    "schemas": "Schemas",
    "replaces": "Replacing a part of a table",
    "options": "Options and settings",
    "types": "Types",
    "travel": "Time travel",
    "feed": "Change data feed",
    "features": "Tables with features",
    "rules": "Rules of a table",
    "concurrent": "Other writers",
    "deletes": "DELETE",
    "updates": "UPDATE",
    "merges": "MERGE",
    "inserts": "INSERT, CREATE TABLE and REPLACE TABLE",
    "alters": "ALTER TABLE and RESTORE",
    "sources": "Streams from a table",
    "sinks": "Streams into a table",
}

# Differences that all scenarios share. Keys: the place at which the answers differ, and both answers; values: the
# reason for the difference.
GENERAL = {
    r"history\[\d+\]\.isBlindAppend True False": (
        "`isBlindAppend` of an append that creates a table or changes its schema: true in delta-spark, false in "
        "spark_ext, since such a commit can conflict with others."
    ),
    r"history\[\d+\]\.metrics\.numDeletedRows absent \d+": ("`numDeletedRows` of an overwrite: only spark_ext has it."),
    r"history\[\d+\]\.parameters\.isDynamicPartitionOverwrite true absent": (
        "`isDynamicPartitionOverwrite`: in delta-spark whenever the option or the setting is set, in spark_ext only if "
        "partitions are replaced."
    ),
    r"history\[\d+\]\.metrics\.(numCopiedRows|numAddedChangeFiles) 0 absent": (
        "`numCopiedRows` and `numAddedChangeFiles` of replaceWhere if they are 0: only delta-spark has them."
    ),
    r"log\[\d+\]\.remove\[\d+\]\.rows \d+ absent": (
        "statistics of files that replaceWhere removes: delta-spark repeats them in the remove action."
    ),
    r"log\[\d+\]\.remove\[\d+\]\.partitionValues\..+ absent None": (
        "null partition values of a removed file: left out by delta-spark, written by spark_ext."
    ),
    r"history\[\d+\]\.metrics\.\w+Ms \(time\) absent": (
        "durations of the phases of DELETE, UPDATE and MERGE: only delta-spark has them in the metrics."
    ),
    r"history\[\d+\]\.parameters\.predicate \[\] absent": (
        "`predicate` of an UPDATE without a condition: an empty list in delta-spark, absent in spark_ext."
    ),
    r"(?s)history\[\d+\]\.parameters\.(predicate|\w+Predicates) .+ (?!absent).+": (
        "conditions in the history: delta-spark has them as Spark resolved them, spark_ext as they were written."
    ),
    r"history\[\d+\]\.parameters\.(clusterBy \[\]|description None) (absent|null)": (
        "`clusterBy` and `description` of a table that is created without them: an empty list and null in delta-spark, "
        "absent or the text null in spark_ext."
    ),
    r"history\[\d+\]\.parameters\.partitionBy \[\] \[.+\]": (
        "`partitionBy` of a write without `partitionBy(…)`: empty in delta-spark, the table's columns in spark_ext."
    ),
}


@dataclass(frozen=True)
class Scenario:
    area: str
    name: str
    run: Callable[[Table], None]
    differs: str | None


@dataclass(frozen=True)
class Finding:
    """The differences between the answers. For each difference: where it is in the answer, delta-spark's value and
    spark_ext's value."""

    differences: tuple[tuple[str, Any, Any], ...]

    @property
    def facets(self) -> list[str]:
        places = [place for place, _, _ in self.differences]
        return [facet for facet in FACETS if any(place.split("[")[0].split(".")[0] == facet for place in places)]


SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str, differs: str | None = None) -> Callable[[Callable[[Table], None]], Callable[[Table], None]]:
    """Declare a scenario: a function that writes and reads a table. ``differs``: why the engines' answers differ; by
    default they must be the same."""

    def declare(run: Callable[[Table], None]) -> Callable[[Table], None]:
        assert name not in SCENARIOS, f"two scenarios are called {name!r}"
        SCENARIOS[name] = Scenario(run.__module__.rpartition(".")[2], name, run, differs)
        return run

    return declare


def statements(start: tuple[str, ...], cases: Mapping[str, Any]) -> None:
    """Declare scenarios of SQL statements. ``cases``: for each scenario name, one or more statements. DIFFERS in the
    calling module contains the reasons for differences."""
    module = sys._getframe(1).f_globals
    for name, given in cases.items():
        listed = (given,) if isinstance(given, str) else given

        def run(table: Table, listed: tuple[str, ...] = listed) -> None:
            if start:
                table.start(*start)
            table.run(*listed)

        run.__module__ = module["__name__"]
        scenario(name, module.get("DIFFERS", {}).get(name))(run)


def load() -> dict[str, Scenario]:
    """All scenarios by name, in the order in which the page docs/spark-parity.md lists them."""
    for area in AREAS:
        importlib.import_module(f"tests.interop.parity.{area}")
    return SCENARIOS


def examine(scenario: Scenario, place: Place) -> Finding:
    """Run a scenario with both engines and compare the answers."""
    found = []
    for engine in (DELTA_SPARK, SPARK_EXT):
        table = Table(engine, place)
        scenario.run(table)
        found.append(answers(table))
    return compare(*found)


def compare(theirs: dict[str, Any], ours: dict[str, Any]) -> Finding:
    """The differences between the two engines' answers, except those in GENERAL."""
    return Finding(tuple(each for each in differences(theirs, ours) if not _is_general(*each)))


def _is_general(place: str, theirs: Any, ours: Any) -> bool:
    return any(re.fullmatch(pattern, f"{place} {theirs} {ours}") for pattern in GENERAL)
