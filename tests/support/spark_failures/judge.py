"""Checks a table and its leftover files after a run. The log is read without deltalog."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow.parquet as pq

import deltalog
from tests.support.spark_failures.driver import OVERWRITES_EVERY, ROWS_PER_ATTEMPT
from tests.support.spark_failures.places import Place

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_OF_THE_LOG = re.compile(r"_delta_log/(?:\d{20}\.(?:json|crc|checkpoint\.parquet)|_last_checkpoint)")


class WrongError(AssertionError):
    """The table is in a wrong state after a run."""


@dataclass
class Verdict:
    """The result of a run. ``landed``: the attempts whose commits are in the log, in the order of their versions."""

    landed: list[int] = field(default_factory=list)
    num_rows: int = 0
    leftovers: dict[str, deltalog.engine.LeftoverKind] = field(default_factory=dict)


def judge(place: Place, table: str, rows_per_write: int, done: Sequence[int]) -> Verdict:
    """Judge a table and remove its leftovers. ``done``: the attempts that were acknowledged.

    Raises WrongError unless each attempt landed at most once, all acknowledged ones landed, three readers find exactly
    the rows of the landed attempts before and after the removal, and every leftover is recognised as one.
    """
    files = place.files(table)
    verdict, live, named = Verdict(), set[str](), set[str]()
    expected: list[int] = []
    for path in sorted(path for path in files if _COMMIT.fullmatch(path)):
        actions = [json.loads(line) for line in place.read(table, path).splitlines()]
        (attempt,) = [int(each["txn"]["version"]) for each in actions if "txn" in each]
        verdict.landed.append(attempt)
        for each in actions:
            if "remove" in each:
                live.discard(unquote(each["remove"]["path"]))
        added = {unquote(each["add"]["path"]) for each in actions if "add" in each}
        live |= added
        named |= added
        first = attempt * ROWS_PER_ATTEMPT
        expected = [] if attempt % OVERWRITES_EVERY == 0 else expected
        expected += range(first, first + rows_per_write)
    _same("attempts in the log", sorted(verdict.landed), sorted(set(verdict.landed)))
    _same("acknowledged attempts that are not in the log", sorted(set(done) - set(verdict.landed)), [])
    _same("files that the log names and that are missing", sorted(named - set(files)), [])
    verdict.num_rows, expected = len(expected), sorted(expected)
    _same("rows of the files that the log names", sorted(_ids(place, table, live)), expected)
    beside = [path for path in files if path not in named and not _OF_THE_LOG.fullmatch(path)]
    kinds = {path: deltalog.engine.leftover_kind(path) for path in beside}
    _same("files that leftover_kind does not recognise", [path for path, kind in kinds.items() if kind is None], [])
    verdict.leftovers = {path: kind for path, kind in kinds.items() if kind is not None}
    if not verdict.landed:
        place.remove(table, verdict.leftovers)
        return verdict
    _same("rows by deltalog", place.ids_by_deltalog(table), expected)
    _same("rows by deltalake", place.ids_by_deltalake(table), expected)
    place.remove(table, verdict.leftovers)
    _same("rows by deltalog after the clean-up", place.ids_by_deltalog(table), expected)
    _same("rows by deltalake after the clean-up", place.ids_by_deltalake(table), expected)
    return verdict


def _ids(place: Place, table: str, live: set[str]) -> list[int]:
    found: list[int] = []
    for path in live:
        with place.open(table, path) as file:
            found += pq.ParquetFile(file).read(["id"])["id"].to_pylist()
    return found


def _same(what: str, found: Sequence[object], expected: Sequence[object]) -> None:
    if list(found) != list(expected):
        raise WrongError(f"{what}: {_short(found)}, expected {_short(expected)}")


def _short(values: Sequence[object]) -> str:
    return f"{len(values)}: {', '.join(map(str, values[:5]))}{', …' if len(values) > 5 else ''}"
