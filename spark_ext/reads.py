"""Finds the versions of the tables that the rows of a DataFrame were read from.

A DataFrame that is loaded carries a marker: a filter on a constant, which Spark's optimizer drops. The explained plan
of a DataFrame has the markers of all its sources, through views and caches, on classic Spark and on Connect.
"""

from __future__ import annotations

import base64
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

# What was read: an origin as deltalog has it, and a condition that all rows that matter fulfil, or None.
Read = tuple[str, "deltalog.Predicate | None"]

_MARKER = re.compile(r"Filter isnotnull\(deltalog:read:([A-Za-z0-9_=-]+):\)")
_NODE = re.compile(r"((?:[: ]  )*)(?:[+:]- )?(\S.*)")
_RELATION = re.compile(r"Relation (?:\S+ )?\[")
_TRUNCATED = re.compile(r"\.\.\. \d+ more characters")
# Nodes that keep or drop rows, each row by itself: a filter above them might as well be below.
_PASSING = ("Filter ", "Project [", "SubqueryAlias ", "View (", "Sort [", "Repartition", "Distinct")
_COMPARED = re.compile(r"\(?(\w+)#(\d+)L? (<=|>=|<|>|=) (.+?)\)?", re.DOTALL)
_CAST = re.compile(r"cast\((.*) as \w+\)", re.DOTALL)
# Neither of two columns, nor of a function: what is left is a constant.
_PLAIN_TEXT = re.compile(r"[^()#\n]*")
_VALUES: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (re.compile(r"-?\d+"), int)),
    "date": (re.compile(r"\d{4}-\d\d-\d\d"), datetime.date.fromisoformat),
    "string": (_PLAIN_TEXT, str),
}


def marked(df: DataFrame, snapshot: deltalog.Snapshot) -> DataFrame:
    """The rows of a snapshot as ones that were read from it."""
    body = json.dumps([snapshot.url, snapshot.scan().origin]).encode()
    return df.where(F.lit(f"deltalog:read:{base64.urlsafe_b64encode(body).decode()}:").isNotNull())


def reads_of(df: DataFrame, table: deltalog.DeltaTable) -> list[Read]:
    """What the rows that are to be written to a table were read from, where they are those of spark_ext.

    Raises CallError for files of the table that were read otherwise, so that nothing tells their version. Cost: Spark
    plans the DataFrame once more.
    """
    text = df.sparkSession.sql("explain extended select * from {deltalog_rows}", deltalog_rows=df).collect()[0][0]
    if _TRUNCATED.search(text):
        raise deltalog.CallError(
            "spark.sql.maxPlanStringLength is too small in this session to find what the DataFrame was read from. "
            "Unset it, or give option('expectedVersion', …), the version of the table that was read."
        )
    plan = _Plan.of(text)
    markers = [(at, *_decoded(found[1])) for at, found in plan.matching(_MARKER)]
    snapshot = table.seen
    reads = [(origin, plan.condition_on(at, snapshot)) for at, _, origin in markers if origin is not None]
    if not any(url == table.url for _, url, _ in markers) and plan.has_other_files([at for at, *_ in markers]):
        _check_files(df, table)
    return reads


def _decoded(text: str) -> tuple[str, str | None]:
    url, origin = json.loads(base64.urlsafe_b64decode(text))
    return url, origin


def _check_files(df: DataFrame, table: deltalog.DeltaTable) -> None:
    root = os.path.realpath(table.url) + os.sep
    for file in df.inputFiles():
        path = urllib.parse.unquote(urllib.parse.urlsplit(file).path)
        if os.path.realpath(path).startswith(root):
            raise deltalog.CallError(
                f"The DataFrame reads {path}, a file of the table at {table.url} that it is written to, and its "
                "version is unknown. Load the table with spark_ext.read(spark).load(…), or give "
                "option('expectedVersion', …), the version of the table that was read."
            )


@dataclass(frozen=True)
class _Plan:
    """The analyzed plan: its nodes from the top, each with its depth."""

    nodes: Sequence[tuple[int, str]]

    @classmethod
    def of(cls, explained: str) -> _Plan:
        analyzed = explained.partition("== Analyzed Logical Plan ==\n")[2]
        lines = analyzed.rpartition("\n== Optimized Logical Plan ==")[0].split("\n")
        return cls([_node(line) for line in lines])

    def matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
        for at, (_, node) in enumerate(self.nodes):
            found = pattern.search(node)
            if found:
                yield at, found

    def has_other_files(self, markers: Sequence[int]) -> bool:
        """Whether a relation of files has none of these above it."""
        return any(not set(markers).intersection(self._above(at)) for at, _ in self.matching(_RELATION))

    def condition_on(self, marker: int, snapshot: deltalog.Snapshot) -> deltalog.Predicate | None:
        """What the filters above a marker say of partition columns; what cannot be told counts as no condition."""
        known = {name: str(snapshot.schema.field(name).data_type) for name in snapshot.partition_columns}
        condition, depth, between = None, self.nodes[marker][0], ""
        for at in self._above(marker):
            node_depth, node = self.nodes[at]
            # A step of two leads out of a subquery.
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
    """Comparisons of partition columns with constants that the whole condition implies."""
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
        value = _VALUES[kind][1](text)
        column = deltalog.col(f"`{found[1]}`")
        compared = {"=": column == value, "<": column < value, "<=": column <= value, ">": column > value}
        yield compared.get(found[3], column >= value)


def _conjuncts(text: str) -> Iterator[str]:
    """The parts of ``(a AND b)``, as Spark writes it; of anything else, itself."""
    if not (text.startswith("(") and text.endswith(")")):
        yield text
        return
    depth, inner = 0, text[1:-1]
    for at, char in enumerate(inner):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0:
            yield text
            return
        if depth == 0 and inner.startswith(" AND ", at):
            yield from _conjuncts(inner[:at])
            yield from _conjuncts(inner[at + 5 :])
            return
    yield text
