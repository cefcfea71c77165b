"""Compares merges with a model on plain rows: random tables, sources, conditions and clauses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltalog import CallError, DeltaTable
from deltalog.rows import matched_rows
from deltalog.rows.merge import merge as merge_module
from deltalog.rows.merge import row_matching
from deltalog.rows.merge import source as merge_source
from deltalog.write import partition_files
from tests.support.core import environment, info, memory
from tests.support.core.strategies import examples

SCHEMA = pa.schema([("x", pa.int64()), ("k", pa.int64()), ("p", pa.string()), ("f", pa.float64())])
SOURCE = pa.schema([("x", pa.int64()), ("k", pa.int32()), ("p", pa.string()), ("f", pa.float64())])
Row = dict[str, Any]
Holds = Callable[[Row, Row], "bool | None"]
NO_ROW: Row = {}


def order(value: Any) -> Any:
    """NaN equals itself and is greater than all other numbers; -0.0 equals 0.0."""
    return value if isinstance(value, str) else (1, 0.0) if value != value else (0, value)


def compared(one: Any, operator: str, other: Any) -> bool | None:
    if operator == "<=>":
        return (one is None and other is None) or compared(one, "=", other) is True
    if one is None or other is None:
        return None
    left, right = order(one), order(other)
    return bool({"=": left == right, "<": left < right, ">": left > right}[operator])


def every(*verdicts: bool | None) -> bool | None:
    return False if False in verdicts else None if None in verdicts else True


def plus(value: Any, number: Any) -> Any:
    return None if value is None else value + number


ON: Sequence[tuple[str, Holds]] = (
    ("t.k = s.k", lambda t, s: compared(t["k"], "=", s["k"])),
    ("s.k <=> t.k", lambda t, s: compared(t["k"], "<=>", s["k"])),
    ("t.k = s.k AND t.p = s.p", lambda t, s: every(compared(t["k"], "=", s["k"]), compared(t["p"], "=", s["p"]))),
    ("s.f = t.f", lambda t, s: compared(t["f"], "=", s["f"])),
    ("t.f <=> s.f AND t.k = s.k", lambda t, s: every(compared(t["f"], "<=>", s["f"]), compared(t["k"], "=", s["k"]))),
    ("t.k = s.k AND s.f > 1", lambda t, s: every(compared(t["k"], "=", s["k"]), compared(s["f"], ">", 1))),
    ("t.f > 1 AND t.k = s.k", lambda t, s: every(compared(t["f"], ">", 1), compared(t["k"], "=", s["k"]))),
    ("t.k = s.k AND t.f < s.f", lambda t, s: every(compared(t["k"], "=", s["k"]), compared(t["f"], "<", s["f"]))),
    ("t.k + 1 = s.k", lambda t, s: compared(plus(t["k"], 1), "=", s["k"])),
    ("t.k > s.k", lambda t, s: compared(t["k"], ">", s["k"])),
    ("t.p = 'a' AND t.k = s.k", lambda t, s: every(compared(t["p"], "=", "a"), compared(t["k"], "=", s["k"]))),
    ("t.p = s.p", lambda t, s: compared(t["p"], "=", s["p"])),
    ("t.x = s.x", lambda t, s: compared(t["x"], "=", s["x"])),
    ("false", lambda t, s: False),
)
CONDITIONS: Mapping[str, Sequence[tuple[str, Holds]]] = {
    "matched": (
        ("s.f > t.f", lambda t, s: compared(s["f"], ">", t["f"])),
        ("t.p = 'a'", lambda t, s: compared(t["p"], "=", "a")),
        ("s.p = 'b'", lambda t, s: compared(s["p"], "=", "b")),
    ),
    "not matched": (
        ("s.k > 1", lambda t, s: compared(s["k"], ">", 1)),
        ("f = 2", lambda t, s: compared(s["f"], "=", 2)),
        ("s.p = 'a'", lambda t, s: compared(s["p"], "=", "a")),
    ),
    "not matched by source": (
        ("t.f > 1", lambda t, s: compared(t["f"], ">", 1)),
        ("p = 'a'", lambda t, s: compared(t["p"], "=", "a")),
        ("t.k IS NULL", lambda t, s: t["k"] is None),
    ),
}


@dataclass(frozen=True)
class Case:
    """A clause: the method, its arguments, and its effect on a pair of target row and source row; None deletes the
    row."""

    group: str
    method: str
    arguments: Mapping[str, Any]
    change: Callable[[Row, Row], Row] | None
    condition: tuple[str, Holds] | None = None

    @property
    def adds(self) -> bool:
        """Whether the clause assigns the column ``w``, which exists only in the source, and therefore adds ``w`` to the
        table."""
        return "_all" in self.method or any(name in self.arguments.get("updates", ()) for name in ("w", "t.W"))

    @property
    def needs(self) -> bool:
        return self.adds and "_all" not in self.method

    def holds(self, target: Row, source: Row) -> bool:
        return self.condition is None or self.condition[1](target, source) is True


def updates(**values: str) -> Mapping[str, Any]:
    return {"updates": values}


ACTIONS: Mapping[str, Sequence[Case]] = {
    "matched": (
        Case("matched", "when_matched_update", updates(f="s.f"), lambda t, s: {**t, "f": s["f"]}),
        Case("matched", "when_matched_update", updates(p="s.p", k="t.k + 1"),
             lambda t, s: {**t, "p": s["p"], "k": plus(t["k"], 1)}),
        Case("matched", "when_matched_update_all", {"except_cols": ["X"]},
             lambda t, s: {**t, **{c: s[c] for c in "kpfw" if c in s}}),
        Case("matched", "when_matched_update", updates(w="s.w + 1", f="s.f"),
             lambda t, s: {**t, "w": s["w"] + 1, "f": s["f"]}),
        Case("matched", "when_matched_delete", {}, None),
    ),
    "not matched": (
        Case("not matched", "when_not_matched_insert_all", {}, lambda t, s: s),
        Case("not matched", "when_not_matched_insert", updates(x="x", p="'c'", k="s.k + 1"),
             lambda t, s: {"x": s["x"], "k": plus(s["k"], 1), "p": "c", "f": None}),
        Case("not matched", "when_not_matched_insert", {"updates": {"x": "s.x", "t.W": "s.w"}},
             lambda t, s: {"x": s["x"], "w": s["w"]}),
    ),
    "not matched by source": (
        Case("not matched by source", "when_not_matched_by_source_update", {"updates": {"t.f": "f + 1", "p": "'b'"}},
             lambda t, s: {**t, "f": plus(t["f"], 1), "p": "b"}),
        Case("not matched by source", "when_not_matched_by_source_delete", {}, None),
    ),
}  # fmt: skip


@st.composite
def clauses(draw: st.DrawFn) -> list[Case]:
    found = []
    for group, choices in ACTIONS.items():
        number = draw(st.integers(0, 2))
        for at in range(number):
            chosen = draw(st.sampled_from(choices))
            conditional = at < number - 1 or draw(st.booleans())
            condition = draw(st.sampled_from(CONDITIONS[group])) if conditional else None
            found.append(Case(group, chosen.method, chosen.arguments, chosen.change, condition))
    return found or [ACTIONS["not matched"][0]]


def rows(first: int, most: int) -> st.SearchStrategy[list[Row]]:
    values = st.tuples(
        st.sampled_from([None, 0, 1, 2, 3, 4, 5, 6]), st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, -0.0, 0.0, 1.0, 2.0, math.nan]),
    )  # fmt: skip
    listed = st.lists(values, max_size=most)
    return listed.map(lambda v: [{"x": first + n, "k": k, "p": p, "f": f} for n, (k, p, f) in enumerate(v)])


def modelled(target: Sequence[Row], source: Sequence[Row], on: Holds, cases: Sequence[Case]) -> Any:
    """The changes as (kind, row) pairs, or None if several source rows match a row."""
    found: list[tuple[str, Row]] = []
    of_group = {group: [case for case in cases if case.group == group] for group in ACTIONS}
    lone = of_group["matched"]
    may_repeat = not lone or (len(lone) == 1 and lone[0].change is None and lone[0].condition is None)
    used = set()
    for row in target:
        pairs = [number for number, each in enumerate(source) if on(row, each) is True]
        used.update(pairs)
        if len(pairs) > 1 and not may_repeat:
            return None
        group, beside = ("matched", source[pairs[0]]) if pairs else ("not matched by source", NO_ROW)
        case = next((each for each in of_group[group] if each.holds(row, beside)), None)
        if case is not None and case.change is None:
            found.append(("delete", row))
        elif case is not None and case.change is not None:
            found += [("update_preimage", row), ("update_postimage", case.change(row, beside))]
    for number, each in enumerate(source):
        case = next((case for case in of_group["not matched"] if case.holds(NO_ROW, each)), None)
        if number not in used and case is not None and case.change is not None:
            found.append(("insert", case.change(NO_ROW, each)))
    return found


def frozen(row: Row) -> tuple[Any, ...]:
    values = [row.get(name) for name in (*SCHEMA.names, "w")]
    return tuple("nan" if value != value else value for value in values)


def counted(found: Any) -> Counter[Any]:
    return Counter(found)


PROPERTIES = ("delta.enableDeletionVectors", "delta.enableChangeDataFeed", "delta.enableRowTracking")


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    target=st.lists(rows(0, 6), min_size=1, max_size=3),
    source=rows(1000, 6),
    on=st.sampled_from(ON),
    cases=clauses(),
    switches=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    partitioned=st.booleans(),
    holes=st.booleans(),
    spilled=st.booleans(),
    evolves=st.booleans(),
)
def test_merges_are_those_of_a_model(
    target: list[list[Row]], source: list[Row], on: tuple[str, Holds], cases: list[Case],
    switches: tuple[bool, bool, bool], partitioned: bool, holes: bool, spilled: bool, evolves: bool,
) -> None:  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        if spilled:
            spill_everything(patch)
        check_merge(target, source, on, cases, switches, partitioned, holes, evolves)


def spill_everything(patch: pytest.MonkeyPatch) -> None:
    """Write sources and keys to temporary files, in several pieces; join the target in small blocks, and write each
    file's rows in a separate thread, in small row groups."""
    for module, limits in (
        (merge_source, {"SPILL_BYTES": 0, "KEY_BYTES": 0, "_CHUNK_BYTES": 0, "_CHUNK_ROWS": 2, "_MOST_PARTITIONS": 4}),
        (row_matching, {"_BLOCK_ROWS": 3, "INSERT_ROWS": 2}),
        (merge_module, {"INSERT_ROWS": 2}),
        (matched_rows, {"_LEAST_STREAM_BYTES": 1, "_MOST_STREAM_BYTES": 1, "_BATCH_ROWS": 3}),
        (partition_files, {"GROUP_BYTES": 40, "HELD_BYTES": 80}),
    ):
        for name, value in limits.items():
            patch.setattr(module, name, value)


def check_merge(
    target: list[list[Row]], source: list[Row], on: tuple[str, Holds], cases: list[Case],
    switches: tuple[bool, bool, bool], partitioned: bool, holes: bool, evolves: bool,
) -> None:  # fmt: skip
    chosen = {name: "true" for name, is_on in zip(PROPERTIES, switches, strict=True) if is_on}
    _, feed, ids = switches
    table = DeltaTable.create(
        memory(), SCHEMA, properties=chosen, partition_by=["p"] if partitioned else [], environment=environment()
    )
    for number, each in enumerate(target):
        listed = [{**row, "x": 100 * number + row["x"]} for row in each]
        table.append(pa.Table.from_pylist(listed, schema=SCHEMA))
    if holes:
        table.delete("x % 5 = 1")
    names = [*SCHEMA.names, *(["_metadata.row_id", "_metadata.row_commit_version"] if ids else [])]
    before = table.snapshot().scan(names).to_arrow().to_pylist()
    version = table.version
    schema = SOURCE
    if evolves:
        source, schema = [{**row, "w": 2 * row["x"]} for row in source], SOURCE.append(pa.field("w", pa.int64()))
    else:
        cases = [case for case in cases if not case.needs] or [ACTIONS["not matched"][0]]
    merger = table.merge(pa.Table.from_pylist(source, schema=schema), on[0], "s", "t")
    if evolves:
        merger.with_schema_evolution()
    for case in cases:
        condition = None if case.condition is None else case.condition[0]
        getattr(merger, case.method)(predicate=condition, **case.arguments)
    expected = modelled(before, source, on[1], cases)
    if expected is None:
        with pytest.raises(CallError, match="rows of the source match one row"):
            merger.execute()
        assert table.version == version
        return
    result = merger.execute()
    added = ["w"] if evolves and any(case.adds for case in cases) else []
    assert result.skipped == (not expected and not added)
    assert list(table.snapshot().schema.names) == [*SCHEMA.names, *added]
    names = [*names, *added]
    after = table.snapshot().scan(names).to_arrow().to_pylist()
    new = counted(map(frozen, before))
    new -= counted(frozen(row) for kind, row in expected if kind in ("delete", "update_preimage"))
    new += counted(frozen(row) for kind, row in expected if kind in ("insert", "update_postimage"))
    assert counted(map(frozen, after)) == new
    if result.skipped:
        return
    if ids:
        check_ids(before, after, expected, result.version)
    if feed:
        told = table.changes(result.version, result.version).to_arrow().to_pylist()
        assert counted((each["_change_type"], frozen(each)) for each in told) == counted(
            (kind, frozen(row)) for kind, row in expected
        )
    kinds = Counter(kind for kind, _ in expected)
    metrics = info(table.snapshot().reader.store, result.version)["operationMetrics"]
    assert metrics["numSourceRows"] == str(len(source))
    assert metrics["numTargetRowsInserted"] == str(kinds["insert"])
    assert metrics["numTargetRowsUpdated"] == str(kinds["update_postimage"])
    assert metrics["numTargetRowsDeleted"] == str(kinds["delete"])


def check_ids(before: list[Row], after: list[Row], expected: Any, version: int) -> None:
    """Rows keep their row ids; changed rows get the merge's version as row commit version, other rows keep theirs."""
    known = {row["x"]: row for row in before}
    changed = {row["x"] for kind, row in expected if kind == "update_postimage"}
    assert len({row["_metadata.row_id"] for row in after}) == len(after)
    for row in after:
        old = known.get(row["x"])
        if old is None:
            assert row["_metadata.row_commit_version"] == version
            assert row["_metadata.row_id"] not in {each["_metadata.row_id"] for each in before}
            continue
        assert row["_metadata.row_id"] == old["_metadata.row_id"]
        assert row["_metadata.row_commit_version"] == (
            version if row["x"] in changed else old["_metadata.row_commit_version"]
        )
