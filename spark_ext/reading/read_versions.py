"""Determines the tables, and their versions, from which a DataFrame was read.

``load`` marks a DataFrame with a constant filter, which Spark's optimizer removes. The output of EXPLAIN for a
derived DataFrame contains the markers of all its sources, through views and caches, in classic Spark and over Connect.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.session import stores

# The origin of the rows that were read, as encoded by deltalog, and a condition that is true for all rows of this
# origin that the query uses; None if there is no such condition.
Read = tuple[str, "deltalog.Predicate | None"]

_MARKER = re.compile(r"Filter isnotnull\(deltalog:read:(.*)")
# The letters used as hexadecimal digits to encode the bytes of a marker. The digits are consonants, written in
# short runs, since the patterns that sessions use to redact plans match words, numbers or long runs of letters and
# digits.
_DIGITS = "bcdfghjklmnpqrst"
_RUN = 8
# A control marker, which belongs to no table. If a plan lacks the control marker, the session's settings hide all
# markers.
_CONTROL = ("", None)
_NODE = re.compile(r"((?:[: ]  )*)(?:[+:]- )?(\S.*)")
_RELATION = re.compile(r"^(?:HiveTable)?Relation(?:V2)?(?: \S+?)? ?\[")
# If planning fails, EXPLAIN succeeds and returns the error as text.
_UNPLANNED = "Error occurred during query planning: "
_ANALYZED = re.compile(r"== Analyzed Logical Plan ==\n(.*)\n== Optimized Logical Plan ==", re.DOTALL)
# Nodes that a filter can be pushed through.
_PASSING = ("Filter ", "Project [", "SubqueryAlias ", "View (", "Sort [", "Repartition", "Distinct")
_COMPARED = re.compile(r"\((\w+)#(\d+)L? (<=|>=|<|>|=) (.+)\)", re.DOTALL)
_COLUMN = re.compile(r"\w#\d+")
_CAST = re.compile(r"cast\((.*) as \w+\)", re.DOTALL)
# Matches a constant, that is, text without the characters that occur in columns and function calls.
_PLAIN_TEXT = re.compile(r"[^()#\n]*")
_BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_VALUES: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    **dict.fromkeys(_BITS, (re.compile(r"-?\d+"), int)),
    "date": (re.compile(r"\d{4}-\d\d-\d\d"), datetime.date.fromisoformat),
    "string": (_PLAIN_TEXT, str),
}


def marked(df: DataFrame, snapshot: deltalog.Snapshot, where: deltalog.Predicate | None = None) -> DataFrame:
    """The rows of a snapshot, with a marker in the plan that names the snapshot and records that only rows that satisfy
    ``where`` are used."""
    return _marked(df, snapshot.url, snapshot.scan(where=where).origin)


def _marked(df: DataFrame, url: str, origin: str | None) -> DataFrame:
    digits = json.dumps([url, origin]).encode().hex().translate(str.maketrans("0123456789abcdef", _DIGITS))
    runs = "-".join(digits[at : at + _RUN] for at in range(0, len(digits), _RUN))
    return df.where(F.lit(f"deltalog:read:{runs}:").isNotNull())


def reads_of(df: DataFrame, table: deltalog.DeltaTable) -> list[Read]:
    """The origins of rows that were read with spark_ext and are to be written to a table.

    Raises CallError if the DataFrame reads files of the table in another way, so that their version is unknown, if
    settings of the session hide parts of the plan, and if Spark cannot plan the DataFrame. Cost: Spark plans it once
    more.
    """
    text = _explained(_marked(df, *_CONTROL))
    if text.startswith(_UNPLANNED):
        raise deltalog.CallError(f"Spark cannot plan the DataFrame: {text.removeprefix(_UNPLANNED).strip()}")
    plan = _Plan.of(text)
    decoded = [(at, _decoded(found[1])) for at, found in plan.matching(_MARKER)]
    if all(each != _CONTROL for _, each in decoded) or any(each is None for _, each in decoded):
        raise deltalog.CallError(
            "Spark's plan does not show in this session what the DataFrame was read from: "
            "spark.sql.maxPlanStringLength or spark.sql.debug.maxToStringFields is too small, or "
            "spark.sql.redaction.string.regex hides it. Unset these, or set option('expectedVersion', …) to the "
            "version of the table that was read."
        )
    markers = [(at, *each) for at, each in decoded if each is not None and each != _CONTROL]
    snapshot = table.snapshot()
    reads = [(origin, plan.condition_on(at, snapshot)) for at, _, origin in markers if origin is not None]
    if not any(url == table.url for _, url, _ in markers) and plan.has_other_files([at for at, *_ in markers]):
        _check_files(df, table)
    return reads


def read_urls(df: DataFrame) -> set[str]:
    """The URLs of the tables that were read with spark_ext, as far as Spark's plan shows them. Cost: as
    ``reads_of``."""
    found = [_decoded(each[1]) for _, each in _Plan.of(_explained(df)).matching(_MARKER)]
    return {each[0] for each in found if each is not None and each != _CONTROL}


def _explained(df: DataFrame) -> str:
    query = "explain extended select * from {deltalog_rows}"
    return "\n".join(row[0] for row in df.sparkSession.sql(query, deltalog_rows=df).collect())


def _decoded(runs: str) -> tuple[str, str | None] | None:
    """The URL and the origin in a marker; None if the marker was altered."""
    digits = runs.removesuffix(":)").replace("-", "")
    if set(digits) - set(_DIGITS):
        return None
    try:
        url, origin = json.loads(bytes.fromhex(digits.translate(str.maketrans(_DIGITS, "0123456789abcdef"))))
    except ValueError:
        return None
    return url, origin


def _check_files(df: DataFrame, table: deltalog.DeltaTable) -> None:
    root = _comparable(table.url) + "/"
    for file in df.inputFiles():
        path = _comparable(urllib.parse.unquote(file))
        if path.startswith(root):
            raise deltalog.CallError(
                f"The DataFrame reads {path}, a file of the table at {table.url} that it is written to, and its "
                "version is unknown. Load the table with spark_ext.read(spark).load(…), or set "
                "option('expectedVersion', …) to the version that was read."
            )


def _comparable(location: str) -> str:
    """A canonical spelling of a path or URL."""
    bucket = stores.bucket_of(location)
    if bucket:
        return "s3://" + location.partition("://")[2]
    return os.path.realpath(urllib.parse.urlsplit(location).path if location.startswith("file:") else location)


@dataclass(frozen=True)
class _Plan:
    """The analyzed plan: its nodes from the top, with their depths."""

    nodes: Sequence[tuple[int, str]]

    @classmethod
    def of(cls, explained: str) -> _Plan:
        """Parse the output of EXPLAIN. The result has no nodes if Spark has no analyzed plan."""
        found = _ANALYZED.search(explained)
        return cls([_node(line) for line in found[1].split("\n")] if found else [])

    def matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
        for at, (_, node) in enumerate(self.nodes):
            found = pattern.search(node)
            if found:
                yield at, found

    def has_other_files(self, markers: Sequence[int]) -> bool:
        """Whether the plan contains a file relation that has none of these markers above it."""
        return any(not set(markers).intersection(self._above(at)) for at, _ in self.matching(_RELATION))

    def condition_on(self, marker: int, snapshot: deltalog.Snapshot) -> deltalog.Predicate | None:
        """The conditions on partition columns in the plan's filters above the marker, joined by AND; None if there are
        none."""
        known = {name: str(snapshot.schema.field(name).data_type) for name in snapshot.partition_columns}
        condition, depth, between = None, self.nodes[marker][0], ""
        for at in self._above(marker):
            node_depth, node = self.nodes[at]
            # If the node is more than one level higher, a subquery ends in between.
            if node_depth != depth - 1 or not node.startswith(_PASSING) or " more fields" in node:
                break
            if node.startswith("Filter "):
                for each in _conditions(node.removeprefix("Filter "), known, between):
                    condition = each if condition is None else condition & each
            depth, between = node_depth, between + node
        return condition

    def _above(self, at: int) -> Iterator[int]:
        depth = self.nodes[at][0]
        for above in range(at - 1, -1, -1):
            if self.nodes[above][0] < depth:
                depth = self.nodes[above][0]
                yield above


def _node(line: str) -> tuple[int, str]:
    found = _NODE.fullmatch(line)
    if found is None:
        return 0, ""
    is_child = line[len(found[1]) :].startswith(("+- ", ":- "))
    return len(found[1]) // 3 + is_child, found[2]


def _conditions(condition: str, known: Mapping[str, str], between: str) -> Iterator[deltalog.Predicate]:
    """The comparisons of partition columns with constants that follow from the whole condition."""
    for each in _conjuncts(condition):
        found = _COMPARED.fullmatch(each)
        if found is None or found[1] not in known or f" AS {found[1]}#{found[2]}" in between:
            continue
        cast, kind = _CAST.fullmatch(found[4]), known[found[1]]
        text = cast[1] if cast else found[4]
        if kind not in _VALUES or not _VALUES[kind][0].fullmatch(text):
            continue
        if kind == "string" and (cast or found[3] != "="):
            continue
        try:
            value = _VALUES[kind][1](text)
        except ValueError:
            continue  # a date that Python cannot represent, such as in year 0
        if kind in _BITS and not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
            continue  # the cast changes the value, or returns NULL
        column = deltalog.col(f"`{found[1]}`")
        compared = {"=": column == value, "<": column < value, "<=": column <= value, ">": column > value}
        yield compared.get(found[3], column >= value)


def _conjuncts(text: str) -> Iterator[str]:
    """The operands of ``(a AND b)`` in Spark's plans. In Spark's plans, strings have no quotes and may contain AND; the
    text is therefore split only if both operands contain columns."""
    if not (text.startswith("(") and text.endswith(")")):
        yield text
        return
    depth, inner = 0, text[1:-1]
    for at, char in enumerate(inner):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0:
            break
        if depth == 0 and inner.startswith(" AND ", at):
            parts = inner[:at], inner[at + 5 :]
            if not all(_COLUMN.search(part) for part in parts):
                break
            yield from _conjuncts(parts[0])
            yield from _conjuncts(parts[1])
            return
    yield text
