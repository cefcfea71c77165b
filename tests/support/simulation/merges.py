"""Merges in the schedules of ``row_simulation``: how clients choose merges, and the effect of each merge on plain rows.

This module shares no code with the library's merge. It compares every row of the table with every row of the source,
and applies the first clause whose condition is true. Inserted rows get numbers that no row has had before, so that
their row ids can be told apart; rows match by an old number, by values, or by partition.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.table import DeltaTable
from tests.support.simulation.rows import EXTRA_FACTOR, Merged, Row, Rows, Value, compare

#: The schema of merge sources, which contains all columns that a merge may add to the table.
SOURCE = pa.schema([
    ("x", pa.int64()), ("k", pa.int32()), ("p", pa.string()), ("v", pa.float64()), ("e", pa.int64()),
    *((name, pa.int64()) for name in ("e2", "new0", "new1", "new2")),
])  # fmt: skip


class Given(NamedTuple):
    """A row of the source. ``x``: the number of the row that this source row inserts; ``k``: the number of a target row
    that this source row may match."""

    x: int
    k: int | None
    p: str | None
    v: Value


Holds = Callable[[Row, Given], "bool | None"]
NO_ROW, NO_SOURCE = Row(-1, None, None), Given(-1, None, None, None)


def _same(one: Any, other: Any) -> bool:
    return (one is None and other is None) or compare(one, "=", other) is True


def _every(*verdicts: bool | None) -> bool | None:
    return False if False in verdicts else None if None in verdicts else True


@dataclass(frozen=True)
class On:
    """A merge condition: as SQL, as a predicate on rows, and as a function that returns the part of a source row that
    determines which rows it matches."""

    sql: str
    holds: Holds
    key: Callable[[Given], Any]


_BY_NUMBER = On("t.x = s.k", lambda t, s: compare(t.x, "=", s.k), lambda s: s.k)
ON: Sequence[On] = (
    _BY_NUMBER,
    _BY_NUMBER,
    On("s.v = t.v", lambda t, s: compare(t.v, "=", s.v), lambda s: s.v),
    On(
        "t.p = s.p AND t.v = s.v",
        lambda t, s: _every(compare(t.p, "=", s.p), compare(t.v, "=", s.v)),
        lambda s: (s.p, s.v),
    ),
    On("t.p <=> s.p AND s.v <=> t.v", lambda t, s: _same(t.p, s.p) and _same(t.v, s.v), lambda s: (s.p, s.v)),
    On(
        "t.x = s.k AND t.p = 'a'",
        lambda t, s: _every(compare(t.x, "=", s.k), compare(t.p, "=", "a")),
        lambda s: s.k,
    ),
    On("s.k = t.x AND s.v > 0", lambda t, s: _every(compare(t.x, "=", s.k), compare(s.v, ">", 0)), lambda s: s.k),
    On("t.x = s.k AND t.v <= s.v", lambda t, s: _every(compare(t.x, "=", s.k), compare(t.v, "<=", s.v)), lambda s: s.k),
)
#: Conditions that contain no equality between columns of source and target; with them, a row may match several times.
WIDE = On("t.v > s.v AND t.p <> s.p", lambda t, s: _every(compare(t.v, ">", s.v), compare(t.p, "<>", s.p)), lambda s: s)

_CONDITIONS: Mapping[str, Sequence[tuple[str, Holds]]] = {
    "matched": (
        ("s.v > t.v", lambda t, s: compare(s.v, ">", t.v)),
        ("t.p = 'a'", lambda t, s: compare(t.p, "=", "a")),
        ("s.p IS NULL OR t.v <= 1", lambda t, s: s.p is None or compare(t.v, "<=", 1)),
    ),
    "not matched": (
        ("s.v > 0", lambda t, s: compare(s.v, ">", 0)),
        ("s.p = 'b'", lambda t, s: compare(s.p, "=", "b")),
    ),
    "not matched by source": (
        ("t.v > 1", lambda t, s: compare(t.v, ">", 1)),
        ("p = 'a'", lambda t, s: compare(t.p, "=", "a")),
        ("t.p IS NULL AND t.v = 0", lambda t, s: _every(t.p is None, compare(t.v, "=", 0))),
    ),
}


@dataclass(frozen=True)
class Case:
    """A clause: a method of TableMerger with its arguments, and its effect on a pair of rows; an effect of None deletes
    the row."""

    group: str
    method: str
    arguments: Mapping[str, Any]
    change: Callable[[Row, Given], Row] | None
    condition: tuple[str, Holds] | None = None

    def holds(self, target: Row, source: Given) -> bool:
        return self.condition is None or self.condition[1](target, source) is True


def _sum(one: Value, other: Value) -> Value:
    if isinstance(one, float) and isinstance(other, float):
        return one + other
    return None if one is None or other is None else "nan"


_ACTIONS: Mapping[str, Sequence[tuple[str, Mapping[str, Any], Callable[[Row, Given], Row] | None]]] = {
    "matched": (
        ("when_matched_update", {"updates": {"v": "s.v"}}, lambda t, s: t._replace(v=s.v)),
        ("when_matched_update", {"updates": {"t.V": "t.v + s.v"}}, lambda t, s: t._replace(v=_sum(t.v, s.v))),
        ("when_matched_update", {"updates": {"p": "s.p", "v": "2"}}, lambda t, s: t._replace(p=s.p, v=2.0)),
        (
            "when_matched_update_all",
            {"except_cols": ["X", "e", "e2"]},
            lambda t, s: Row(t.x, s.p, s.v),
        ),
        ("when_matched_delete", {}, None),
        ("when_matched_delete", {}, None),
    ),
    "not matched": (
        ("when_not_matched_insert_all", {}, lambda t, s: Row(s.x, s.p, s.v)),
        (
            "when_not_matched_insert",
            {"updates": {"x": "x", "v": "s.v + 0", "p": "'b'"}},
            lambda t, s: Row(s.x, "b", s.v),
        ),
    ),
    "not matched by source": (
        (
            "when_not_matched_by_source_update",
            {"updates": {"v": "t.v + 1"}},
            lambda t, s: t._replace(v=_sum(t.v, 1.0)),
        ),
        ("when_not_matched_by_source_update", {"updates": {"p": "'b'"}}, lambda t, s: t._replace(p="b")),
        ("when_not_matched_by_source_delete", {}, None),
    ),
}


@dataclass(frozen=True)
class DrawnMerge:
    source: Sequence[Given]
    on: On
    cases: Sequence[Case]

    def run(self, table: DeltaTable, token: str, txn: tuple[str, int] | None) -> CommitResult:
        """Run the merge with the library."""
        merger = table.merge(_as_table(self.source), self.on.sql, "s", "t", user_metadata=token, txn=txn)
        for case in self.cases:
            condition = None if case.condition is None else case.condition[0]
            getattr(merger, case.method)(predicate=condition, **case.arguments)
        return merger.execute()

    def merged(self, rows: Rows) -> Merged | None:
        """The effect of the merge on these rows; None if several source rows match one of them, which makes the merge
        ambiguous."""
        of_group = {group: [case for case in self.cases if case.group == group] for group in _ACTIONS}
        lone = of_group["matched"]
        may_repeat = not lone or (len(lone) == 1 and lone[0].change is None and lone[0].condition is None)
        updated: dict[Row, Row] = {}
        deleted, inserted, used = set[Row](), set[Row](), set[int]()
        for row in rows:
            beside = [each for each in self.source if self.on.holds(row, each) is True]
            used.update(each.x for each in beside)
            if len(beside) > 1 and not may_repeat:
                return None
            group, source = ("matched", beside[0]) if beside else ("not matched by source", NO_SOURCE)
            case = next((each for each in of_group[group] if each.holds(row, source)), None)
            if case is not None and case.change is None:
                deleted.add(row)
            elif case is not None and case.change is not None:
                updated[row] = case.change(row, source)
        for each in self.source:
            case = next((case for case in of_group["not matched"] if case.holds(NO_ROW, each)), None)
            if each.x not in used and case is not None and case.change is not None:
                inserted.add(case.change(NO_ROW, each))
        return Merged(updated, frozenset(deleted), frozenset(inserted))


def draw_merge(rng: random.Random, first: int, rows: Rows) -> DrawnMerge:
    """Draw a merge. ``rows``: random rows, numbered from ``first``, from which the rows of the source are made."""
    on, wanted = rng.choice(ON), {"matched": 2, "not matched": 2, "not matched by source": 1}
    form = rng.random()
    if form < 0.2:
        wanted = {"not matched": 2}
    elif form < 0.35:
        wanted = {"matched": 1, "not matched": 1}
    cases = [case for group, most in wanted.items() for case in _draw_cases(rng, group, most)]
    if form < 0.35 and rng.random() < 0.3:
        cases = [case for case in cases if case.group != "matched"]
        cases += [Case("matched", "when_matched_delete", {}, None)] if form >= 0.2 else []
        on = WIDE
    if not cases:
        cases = [Case("not matched", *_ACTIONS["not matched"][0])]
    # Row numbers of three kinds: of the initial rows, of rows from earlier operations, and of rows that other clients
    # may be adding.
    numbers = [100 * n + at for n in range(1, 5) for at in range(4)]
    numbers += [1000 * n + at for n in range(1, first // 1000 + 3) if n != first // 1000 for at in range(2)]
    source = [
        Given(row.x, rng.choice(numbers) if rng.random() < 0.95 else None, row.p, row.v) for row in sorted(rows, key=_x)
    ]
    if on is not WIDE and rng.random() < 0.75:
        source = list({on.key(each): each for each in source}.values())
    return DrawnMerge(source, on, cases)


def _draw_cases(rng: random.Random, group: str, most: int) -> list[Case]:
    number = rng.randrange(most + 1) if group != "not matched by source" else int(rng.random() < 0.3)
    found = []
    for at in range(number):
        is_conditional = at < number - 1 or rng.random() < (0.85 if group == "not matched by source" else 0.4)
        condition = rng.choice(_CONDITIONS[group]) if is_conditional else None
        found.append(Case(group, *rng.choice(_ACTIONS[group]), condition))
    return found


def _x(row: Row) -> int:
    return row.x


def _as_table(source: Sequence[Given]) -> pa.Table:
    rows = [{**each._asdict(), "v": None if each.v is None else float(each.v)} for each in source]
    extra = [EXTRA_FACTOR * each.x for each in source]
    return pa.Table.from_pylist([{**row, "e": e, "e2": e} for row, e in zip(rows, extra, strict=True)], schema=SOURCE)
