"""What two engines write into one table in turn, and what the table must then contain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalog.conformance.builder import ICT_PROPERTY
from deltalog.conformance.case import FAILED, PASSED, Row

REFUSED = "refused"
OUTCOMES = (PASSED, REFUSED, FAILED)

FIRST, SECOND = 0, 1
COLUMNS = {"id": "long", "p": "string", "n": "long"}

_VECTORS = {"delta.enableDeletionVectors": "true"}
_ICT = {ICT_PROPERTY: "true"}
_MAPPING = {"delta.columnMapping.mode": "name"}
_ROW_TRACKING = {"delta.enableRowTracking": "true"}

# How errors name the features of a variant.
_NAMES = {
    "partitions": r"partition",
    "deletionVectors": r"deletion.?vector",
    "inCommitTimestamp": r"in.?commit.?timestamp",
    "columnMapping": r"column.?mapping",
    "rowTracking": r"row.?(tracking|id)|domain.?metadata",
}
# How errors say that an engine lacks some feature, without a name.
_LACKS = re.compile(r"(table|reader|writer).?(feature|version)|protocol version|not (yet )?supported|unsupported", re.I)


@dataclass(frozen=True)
class Variant:
    """A kind of table. ``properties``: set when the table is created. ``late``: set half way by the second engine.
    ``features``: what an engine may lack; keys of ``_NAMES``."""

    name: str
    features: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    late: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    def is_named_by(self, message: str) -> bool:
        """Whether the message of an error says that the engine lacks a feature of the variant."""
        named = any(re.search(_NAMES[feature], message, re.I) for feature in self.features)
        return bool(self.features) and (named or _LACKS.search(message) is not None)


VARIANTS = (
    Variant("plain"),
    Variant("partitioned", ("partitions",), partition_by=("p",)),
    Variant("deletion-vectors", ("deletionVectors",), _VECTORS),
    Variant("in-commit-timestamps", ("inCommitTimestamp",), _ICT),
    Variant("in-commit-timestamps-late", ("inCommitTimestamp",), late=_ICT),
    Variant("column-mapping", ("columnMapping",), _MAPPING),
    Variant("row-tracking", ("rowTracking",), _ROW_TRACKING),
    Variant("everything", tuple(_NAMES), {**_VECTORS, **_ICT, **_MAPPING, **_ROW_TRACKING}, partition_by=("p",)),
)


@dataclass(frozen=True)
class Act:
    """A call of one of the two engines. ``by``: FIRST or SECOND. ``removed``: the ids of the rows that ``where``
    selects. ``or_other``: if the engine cannot do it, the other one does."""

    by: int
    call: str
    rows: tuple[Row, ...] = ()
    where: str = ""
    removed: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    or_other: bool = False


def acts(variant: Variant) -> list[Act]:
    """What the engines do in turn, from the creation of the table to the end."""
    late = [Act(SECOND, "set_properties", properties=variant.late, or_other=True)] if variant.late else []
    return [
        Act(FIRST, "create", properties=variant.properties, or_other=True),
        Act(FIRST, "append", _rows(1, 2, 3)),
        Act(SECOND, "append", _rows(4, 5, 6)),
        # Rows of a file of the other engine, and then of the file that the first one has changed.
        Act(FIRST, "delete", where="id = 5", removed=(5,)),
        Act(SECOND, "delete", where="id = 4", removed=(4,)),
        Act(SECOND, "delete", where="id = 2", removed=(2,)),
        *late,
        Act(FIRST, "set_properties", properties={"delta.logRetentionDuration": "interval 60 days"}),
        Act(SECOND, "set_properties", properties={"delta.deletedFileRetentionDuration": "interval 14 days"}),
        Act(FIRST, "checkpoint"),
        Act(SECOND, "append", _rows(7, 8)),
        Act(SECOND, "checkpoint"),
        Act(FIRST, "append", _rows(9)),
        Act(SECOND, "overwrite", _rows(10, 11, 12)),
        Act(FIRST, "delete", where="id = 11", removed=(11,)),
        Act(FIRST, "append", _rows(13)),
        Act(SECOND, "append", _rows(14)),
        Act(FIRST, "overwrite", _rows(15, 16, 17)),
        Act(SECOND, "delete", where="id = 16", removed=(16,)),
        Act(SECOND, "append", _rows(18)),
    ]


def _rows(*ids: int) -> tuple[Row, ...]:
    return tuple({"id": id, "p": "ab"[id % 2], "n": None if id % 3 == 0 else 10 * id} for id in ids)


class Model:
    """What the table must contain: the rows of each version, and the properties of the latest one. ``ict_from``: the
    first version with in-commit timestamps; None: there is none."""

    def __init__(self) -> None:
        self.rows: list[tuple[Row, ...]] = []
        self.properties: dict[str, str] = {}
        self.ict_from: int | None = None

    @property
    def latest(self) -> int:
        """-1 if there is no table yet."""
        return len(self.rows) - 1

    def wrong_number_of_commits(self, act: Act, number: int) -> str | None:
        """Whether an act may make this number of commits. A message if not."""
        if act.call == "checkpoint":
            return f"{number} commits were made by writing a checkpoint" if number else None
        if act.call == "delete" and not self._selected(act):
            return None
        # Some engines create a table, or enable a feature, by more than one commit.
        if number == 1 or (number > 1 and act.call in ("create", "set_properties")):
            return None
        return f"{number} commits were made instead of one"

    def take(self, act: Act, number: int) -> None:
        """Apply an act that made ``number`` commits."""
        after: tuple[Row, ...] = self.rows[-1] if self.rows else ()
        if act.call == "append":
            after = (*after, *act.rows)
        elif act.call == "overwrite":
            after = act.rows
        elif act.call == "delete":
            after = tuple(row for row in after if row["id"] not in act.removed)
        self.rows += [after] * number
        self.properties.update(act.properties)
        if ICT_PROPERTY in act.properties and number:
            self.ict_from = self.latest

    def _selected(self, act: Act) -> list[Row]:
        return [row for row in self.rows[-1] if row["id"] in act.removed]


def commit_times(file_times_ms: Sequence[int], icts: Sequence[Any], ict_from: int | None) -> list[int]:
    """The time of each commit: its in-commit timestamp from version ``ict_from`` on, and before it the time of its
    file, made greater than the previous one.

    Spec: PROTOCOL.md#recommendations-for-readers-of-tables-with-in-commit-timestamps.
    """
    found: list[int] = []
    for version, (file_ms, ict) in enumerate(zip(file_times_ms, icts, strict=True)):
        if ict_from is not None and version >= ict_from:
            found.append(ict)
        else:
            found.append(max(file_ms, found[-1] + 1) if found else file_ms)
    return found


@dataclass
class PairResult:
    """The result of a variant. ``judge``: the engine besides deltalog that read the table. ``commits``: the number of
    commits of each engine. ``refused``: what the engines could not do."""

    variant: str
    outcome: str
    reason: str | None = None
    judge: str | None = None
    commits: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "variant": self.variant,
            "outcome": self.outcome,
            "reason": self.reason,
            "judge": self.judge,
            "commits": self.commits,
            "refused": self.refused,
        }


# The engines of the kit that write.
WRITERS = ("deltalog", "spark_ext", "delta-spark", "kernel-java", "deltalake", "polars", "sail", "chdb", "duckdb")

# The engines that are preferred as judges, the best first: fast ones that read every version. Sail does not read the
# versions before a checkpoint.
_JUDGES = ("kernel-java", "deltalake", "duckdb", "chdb", "kernel-rs", "polars", "delta-spark", "spark_ext", "sail")
# Engines by whose answers in-commit timestamps can be judged; the others go by the times of files.
TIMED = ("deltalog", "spark_ext", "delta-spark", "kernel-java", "sail")


def judges(first: str, second: str, available: Sequence[str]) -> list[str]:
    """The engines that can judge a pair, the best first."""
    others = [name for name in available if name not in (first, second, "deltalog")]
    rank = {name: number for number, name in enumerate(_JUDGES)}
    return sorted(others, key=lambda name: rank.get(name, len(rank)))


def document(
    suite: str, engines: Mapping[str, str], results: Mapping[tuple[str, str], Sequence[PairResult]]
) -> dict[str, Any]:
    """The JSON document of a run. ``engines``: the version of each engine."""
    return {
        "suite": suite,
        "engines": dict(engines),
        "variants": [variant.name for variant in VARIANTS],
        "pairs": [
            {"first": first, "second": second, "results": [each.to_json() for each in found]}
            for (first, second), found in results.items()
        ],
    }


def merged(before: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """A document, updated with the variants and pairs of another run."""
    pairs = {(pair["first"], pair["second"]): pair for pair in before["pairs"]}
    for pair in found["pairs"]:
        key = (pair["first"], pair["second"])
        known = {each["variant"]: each for each in pairs.get(key, {"results": []})["results"]}
        known.update({each["variant"]: each for each in pair["results"]})
        results = [known[name] for name in found["variants"] if name in known]
        pairs[key] = {**pair, "results": results}
    engines = {**before["engines"], **found["engines"]}
    return {**found, "engines": engines, "pairs": [pairs[key] for key in sorted(pairs)]}


def table(found: Mapping[str, Any]) -> list[list[str]]:
    """The comparison as rows of cells: a row per first engine, a column per second one. A cell shows how many of the
    variants in which both engines wrote have passed, and how many were refused."""
    names = sorted({pair[role] for pair in found["pairs"] for role in ("first", "second")}, key=_order(found))
    cells = {(pair["first"], pair["second"]): cell(pair["results"]) for pair in found["pairs"]}
    head = ["created by", *(f"and {name}" for name in names)]
    return [head, *([first, *(cells.get((first, second), "–") for second in names)] for first in names)]


def cell(results: Sequence[Mapping[str, Any]]) -> str:
    """The text of a cell, such as ``6 of 7 (1 refused)``."""
    counts = {kind: sum(each["outcome"] == kind for each in results) for kind in OUTCOMES}
    ran = counts[PASSED] + counts[FAILED]
    refused = f"{counts[REFUSED]} refused" if counts[REFUSED] else ""
    if not ran:
        return refused or "–"
    return f"{counts[PASSED]} of {ran}" + (f" ({refused})" if refused else "")


def _order(found: Mapping[str, Any]) -> Any:
    order = {name: number for number, name in enumerate(found["engines"])}
    return lambda name: order.get(name, len(order))
