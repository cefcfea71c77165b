"""Cases about rules of columns: CHECK constraints, invariants, required columns, defaults, generated and identity
columns, the type void, and append-only tables."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.conformance.builder import Action, TableBuilder
from deltalog.conformance.case import (
    COLUMN_RULES,
    REFERENCE,
    Begin,
    Case,
    Log,
    MayRefuse,
    Put,
    Refused,
    Row,
    Rows,
    Step,
    Write,
)
from deltalog.conformance.cases.common import Build, Cases, column, columns, list_of, map_of, schema_text
from deltalog.protocol.schema import StructType

_check = Cases("constraint", COLUMN_RULES, "check-constraints")
_invariant = Cases("invariant", COLUMN_RULES, "column-invariants")
_default = Cases("default", COLUMN_RULES, "default-columns")
_generated = Cases("generated", COLUMN_RULES, "generated-columns")
_identity = Cases("identity", COLUMN_RULES, "identity-columns")
_void = Cases("void", COLUMN_RULES, "void-type")
_append_only = Cases("append-only", COLUMN_RULES, "append-only-tables")
_NINE = Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"})
_DAY = datetime.date(2025, 1, 15)
_NOON = datetime.datetime(2025, 1, 15, 12, tzinfo=datetime.timezone.utc)


def cases() -> Iterator[Case]:
    yield from _checks()
    yield from _invariants()
    yield from _required()
    yield from _defaults()
    yield from _generated_columns()
    yield from _identity_columns()
    yield from _voids()
    yield from _only_appends()


def made(
    fields: Sequence[Mapping[str, Any]],
    rows: Sequence[Row],
    features: Sequence[str] | tuple[int, int],
    *more: Action,
    partition_by: Sequence[str] = (),
    **properties: str,
) -> Build:
    """A table of one commit. ``features``: those of writers, or the versions of a protocol without features."""

    def build(table: TableBuilder) -> None:
        text = schema_text(*fields)
        arrow = StructType.from_json(text).to_arrow()
        names = [field.name for field in arrow if field.name not in partition_by and not pa.types.is_null(field.type)]
        schema = pa.schema([arrow.field(name) for name in names])
        listed: dict[str, Any] = {"versions" if isinstance(features, tuple) else "writer_features": features}
        protocol = table.protocol(**listed)
        adds = [table.add(pa.Table.from_pylist([dict(row) for row in rows], schema))] if rows else []
        table.commit(protocol, table.metadata(text, partition_by, properties), *adds, *more)

    return build


def append(*rows: Row, **types: Any) -> Write:
    return Write("append", rows=rows, types=types or None)


def _good(*rows: Row) -> tuple[Step, Step]:
    """The rows of the table, read by the engine and by deltalog."""
    return Rows(list(rows)), Log("rows", value=list(rows))


# --------------------------------------------------------------------------------------------- constraints


def _checks() -> Iterator[Case]:
    two = (column("id", "long"), column("v", "string"))
    first = {"id": 1, "v": "a"}

    def checked(
        *expressions: str, fields: Sequence[Mapping[str, Any]] = two, rows: Sequence[Row] = (first,), **more: Any
    ) -> Build:
        named = {f"delta.constraints.c{number}": text for number, text in enumerate(expressions)}
        return made(fields, rows, (1, 3), **more, **named)

    def pair(name: str, about: str, build: Build, good: Row, bad: Row, known: Row = first) -> Iterator[Case]:
        steps = (MayRefuse(append(good)), Log("rows-among", value=[known, good]))
        yield _check(name, f"{about}: a row that satisfies it is written, or the table is refused", build, *steps)
        about = f"{about}: a row that violates it is refused, and so is the whole append"
        yield _check(f"{name}-broken", about, build, Refused(append(good, bad)), *_good(known))

    yield from pair("two", "Two constraints", checked("id > 0", "v <> 'x'"), {"id": 2, "v": "b"}, {"id": 2, "v": "x"})
    yield from pair(
        "and-or",
        "A constraint with AND and OR",
        checked("id > 5 OR (v = 'a' AND id > 0)"),
        {"id": 6, "v": "z"},
        {"id": 5, "v": "z"},
    )
    yield from pair(
        "is-null", "A constraint with IS NOT NULL", checked("v IS NOT NULL"), {"id": 0, "v": ""}, {"id": 0, "v": None}
    )
    yield from pair(
        "in-list", "A constraint with IN", checked("v IN ('a', 'b')"), {"id": 0, "v": "b"}, {"id": 0, "v": "A"}
    )
    yield from pair(
        "arithmetic", "A constraint with arithmetic", checked("id % 2 = 1"), {"id": 3, "v": None}, {"id": 4, "v": None}
    )
    nested = (column("id", "long"), column("s", columns(column("b", "long"))))
    yield from pair(
        "nested",
        "A constraint on a field of a struct",
        checked("s.b > 0", fields=nested, rows=({"id": 1, "s": {"b": 1}},)),
        {"id": 2, "s": {"b": 2}},
        {"id": 2, "s": {"b": -2}},
        {"id": 1, "s": {"b": 1}},
    )
    yield from pair(
        "case",
        "A constraint that names a column in other letters",
        checked("ID > 0"),
        {"id": 2, "v": "a"},
        {"id": -2, "v": "a"},
    )
    about = "An overwrite with a row that violates a constraint is refused"
    bad = Refused(Write("overwrite", rows=[{"id": -1, "v": "a"}]))
    yield _check("overwrite-broken", about, checked("id > 0"), bad, *_good(first))
    about = "A constraint that a comparison with null decides: a row for which it is null is refused"
    yield _check("null-broken", about, checked("v > 'A'"), Refused(append({"id": 1, "v": None})), *_good(first))
    about = "A property change keeps a constraint"
    kept = Log("property", value={"delta.constraints.c0": "id > 0"})
    yield _check("property-keeps", about, checked("id > 0"), _NINE, kept, *_good(first))
    about = "A constraint under the table feature checkConstraints"
    listed = made(two, (first,), ["checkConstraints"], **{"delta.constraints.positive": "id > 0"})
    yield _check("feature-broken", about, listed, Refused(append({"id": -1, "v": "a"})), *_good(first))
    about = "A constraint that is no SQL expression: nothing is written"
    yield _check("nonsense", about, checked("id >>> ) 0"), Refused(append({"id": 5, "v": "a"})), *_good(first))
    about = "A constraint on a column that the table lacks: nothing is written"
    yield _check("unknown-column", about, checked("gone > 0"), Refused(append({"id": 5, "v": "a"})), *_good(first))

    def raced(table: TableBuilder) -> None:
        checked("id > 0")(table)
        named = {"delta.constraints.c0": "id > 0", "delta.constraints.c1": "id < 100"}
        table.commit(table.metadata(configuration=named), later="winner")

    late = Write("append", rows=[{"id": 100, "v": "a"}], begun=True)
    about = "An append of a row that violates a constraint added meanwhile is refused"
    yield _check("race-broken", about, raced, Begin(), Put("winner"), Refused(late), *_good(first))


def _invariants() -> Iterator[Case]:
    def ruled(expression: str, *features: str, versions: tuple[int, int] | None = (1, 2)) -> Build:
        text = json.dumps({"expression": {"expression": expression}})
        field = {**column("id", "long"), "metadata": {"delta.invariants": text}}
        return made((field,), ({"id": 1},), list(features) if versions is None else versions)

    first: Row = {"id": 1}
    about = "A row that satisfies an invariant is written, or the table is refused"
    steps = (MayRefuse(append({"id": 5})), Log("rows-among", value=[first, {"id": 5}]))
    yield _invariant("good", about, ruled("id > 0"), *steps)
    about = "A row for which an invariant is null is refused"
    yield _invariant("null", about, ruled("id > 0"), Refused(append({"id": None})), *_good(first))
    about = "An overwrite with a row that violates an invariant is refused"
    overwrite = Refused(Write("overwrite", rows=[{"id": -1}]))
    yield _invariant("overwrite-broken", about, ruled("id > 0"), overwrite, *_good(first))
    about = "An invariant under the table feature invariants"
    listed = ruled("id > 0", "invariants", versions=None)
    yield _invariant("feature-broken", about, listed, Refused(append({"id": -1})), *_good(first))
    about = "A property change keeps an invariant"
    text = json.dumps({"expression": {"expression": "id > 0"}})
    kept = Log("column-metadata", value={"id": {"delta.invariants": text}})
    yield _invariant("property-keeps", about, ruled("id > 0"), MayRefuse(_NINE), kept, Rows([first]))
    field = {
        **column("b", "long"),
        "metadata": {"delta.invariants": json.dumps({"expression": {"expression": "s.b > 0"}})},
    }
    nested = made((column("s", columns(field)),), ({"s": {"b": 1}},), (1, 2))
    about = "A row that violates the invariant of a field of a struct is refused"
    yield _invariant("nested-broken", about, nested, Refused(append({"s": {"b": -1}})), *_good({"s": {"b": 1}}))


def _required() -> Iterator[Case]:
    section = "struct-field"
    inner = columns(column("b", "long", nullable=False))
    shapes: Sequence[tuple[str, str, Any, Row, Row, Row]] = (
        ("field", "a required field of a struct", inner, {"v": {"b": 1}}, {"v": None}, {"v": {"b": None}}),
        (
            "element",
            "the elements of an array without nulls",
            list_of("long", False),
            {"v": [1]},
            {"v": []},
            {"v": [1, None]},
        ),
        (
            "value",
            "the values of a map without nulls",
            map_of("string", "long", False),
            {"v": [("a", 1)]},
            {"v": []},
            {"v": [("a", None)]},
        ),
        (
            "field-in-array",
            "a required field of a struct in an array",
            list_of(inner),
            {"v": [{"b": 1}]},
            {"v": [None]},
            {"v": [{"b": 1}, {"b": None}]},
        ),
    )
    for name, where, kind, known, good, bad in shapes:
        build = made((column("v", kind),), (known,), (1, 2))
        steps = (MayRefuse(append(good, v=_nullable(kind))), Log("rows-among", value=[known, good]))
        about = f"A row without a null in {where} is written, or the table is refused"
        yield _invariant(f"required-{name}", about, build, *steps, section=section)
        about = f"A null in {where} is refused"
        refused = Refused(append(bad, v=_nullable(kind)))
        yield _invariant(f"required-{name}-null", about, build, refused, *_good(known), section=section)
    build = made((column("id", "long", nullable=False), column("v", "long")), ({"id": 1, "v": 1},), (1, 2))
    about = "An append without a required column is refused"
    yield _invariant(
        "required-absent", about, build, Refused(append({"v": 5})), *_good({"id": 1, "v": 1}), section=section
    )


def _nullable(kind: Any) -> Any:
    """The type with nulls allowed everywhere, which is that of the rows to be written."""
    return json.loads(json.dumps(kind).replace("false", "true"))


# --------------------------------------------------------------------------------------------- defaults


def _defaults() -> Iterator[Case]:
    def defaulted(kind: str, expression: str, known: Any) -> Build:
        field = column("v", kind, CURRENT_DEFAULT=expression)
        return made((column("id", "long"), field), ({"id": 1, "v": known},), ["allowColumnDefaults"])

    rows: Sequence[tuple[str, str, str, Any, Any]] = (
        ("long", "long", "7", 1, 7),
        ("string", "string", "'it''s'", "a", "it's"),
        ("sum", "long", "3 + 4", 1, 7),
        ("double", "double", "-0.5", 1.5, -0.5),
        ("boolean", "boolean", "true", False, True),
        ("date", "date", "DATE'2025-01-15'", datetime.date(1970, 1, 1), _DAY),
        ("timestamp", "timestamp", "TIMESTAMP'2025-01-15 12:00:00Z'", None, _NOON),
        ("null", "long", "NULL", 1, None),
    )
    for name, kind, expression, known, value in rows:
        first, new = {"id": 1, "v": known}, {"id": 5, "v": value}
        about = f"An append without a column whose default is {expression} writes the default, or is refused"
        steps = (MayRefuse(append({"id": 5})), Log("rows-among", value=[first, new]))
        yield _default(name, about, defaulted(kind, expression, known), *steps)
    build = defaulted("long", "7", 1)
    first = {"id": 1, "v": 1}
    about = "A null that is given for a column with a default stays null"
    null = append({"id": 5, "v": None}, v="long")
    yield _default("explicit-null", about, build, null, *_good(first, {"id": 5, "v": None}))
    about = "A value that is given for a column with a default is written"
    yield _default("explicit", about, build, append({"id": 5, "v": 9}), *_good(first, {"id": 5, "v": 9}))
    about = "An overwrite without a column that has a default writes the default, or is refused"
    steps = (MayRefuse(Write("overwrite", rows=[{"id": 5}])), Log("rows-one-of", value=[[first], [{"id": 5, "v": 7}]]))
    yield _default("overwrite", about, build, *steps)

    def later(table: TableBuilder) -> None:
        table.commit(table.protocol(["allowColumnDefaults"]), table.metadata(), table.add([{"id": 1}]))
        table.commit(table.metadata(schema_text(column("id", "long"), column("v", "long", CURRENT_DEFAULT="7"))))

    about = "A default does not change the rows of older files"
    yield _default("reads-older", about, later, Rows([{"id": 1, "v": None}]))
    about = "A property change keeps defaults"
    kept = Log("column-metadata", value={"v": {"CURRENT_DEFAULT": "7"}})
    yield _default("property-keeps", about, build, _NINE, kept, Rows([first]))
    about = "An append keeps defaults"
    yield _default("append-keeps", about, build, append({"id": 5, "v": 9}), kept)


# --------------------------------------------------------------------------------------------- generated columns


def _generated_columns() -> Iterator[Case]:
    def generated(kind: str, expression: str, of: str, known: Row, **more: Any) -> Build:
        fields = (column("a", of), column("g", kind, delta__generationExpression=expression))
        return made(fields, (known,) if not more else (), (1, 4), **more)

    rows: Sequence[tuple[str, str, str, str, Any, Any, Any]] = (
        ("sum", "long", "a + 1", "long", 1, 2, 9),
        ("upper", "string", "upper(a)", "string", "x", "X", "x"),
        ("date", "date", "CAST(a AS DATE)", "timestamp", _NOON, _DAY, datetime.date(2025, 1, 16)),
        ("year", "integer", "year(a)", "date", _DAY, 2025, 2024),
        ("substring", "string", "substring(a, 1, 2)", "string", "abc", "ab", "abc"),
        ("concat", "string", "concat(a, '-', a)", "string", "x", "x-x", "xx"),
    )
    for name, kind, expression, of, value, right, wrong in rows:
        known: Row = {"a": None, "g": None}
        build = generated(kind, expression, of, known)
        types = {"a": of, "g": kind}
        good, bad = {"a": value, "g": right}, {"a": value, "g": wrong}
        about = f"An append without the column generated by {expression} computes it, or is refused"
        steps = (MayRefuse(append({"a": value}, a=of)), Log("rows-among", value=[known, good]))
        yield _generated(f"absent-{name}", about, build, *steps)
        about = f"A value that differs from {expression} is refused"
        yield _generated(f"wrong-{name}", about, build, Refused(append(good, bad, **types)), *_good(known))
    known = {"a": 1, "g": 2}
    build = generated("long", "a + 1", "long", known)
    null = {"a": None, "g": None}
    about = "A null that the expression gives for a null is written, or the table is refused"
    steps = (MayRefuse(append(null, a="long", g="long")), Log("rows-among", value=[known, null]))
    yield _generated("null", about, build, *steps)
    about = "A value where the expression gives null is refused"
    yield _generated(
        "null-wrong", about, build, Refused(append({"a": None, "g": 5}, a="long", g="long")), *_good(known)
    )
    about = "A null where the expression gives a value is refused"
    yield _generated(
        "null-missing", about, build, Refused(append({"a": 5, "g": None}, a="long", g="long")), *_good(known)
    )
    about = "An overwrite with a wrong value in a generated column is refused"
    yield _generated(
        "overwrite-wrong", about, build, Refused(Write("overwrite", rows=[{"a": 5, "g": 5}])), *_good(known)
    )
    about = "A property change keeps the expression of a generated column"
    kept = Log("column-metadata", value={"g": {"delta.generationExpression": "a + 1"}})
    yield _generated("property-keeps", about, build, _NINE, kept, Rows([known]))
    about = "A generated partition column"
    parted = generated("date", "CAST(a AS DATE)", "timestamp", {}, partition_by=["g"])
    new = {"a": _NOON, "g": _DAY}
    steps = (MayRefuse(append({"a": _NOON}, a="timestamp")), Log("rows-one-of", value=[[], [new]]))
    yield _generated("partition", about, parted, *steps)
    fields = (column("a", "long"), column("g", "long", delta__generationExpression="a + 1"))
    listed = made(fields, (known,), ["generatedColumns"])
    about = "A wrong value under the table feature generatedColumns is refused"
    yield _generated("feature-wrong", about, listed, Refused(append({"a": 5, "g": 5})), *_good(known))


# --------------------------------------------------------------------------------------------- identity columns


def _identity_columns() -> Iterator[Case]:
    def numbered(start: int, step: int, mark: int | None, known: Sequence[int], explicit: bool = False) -> Build:
        rules: dict[str, Any] = {
            "delta__identity__start": start,
            "delta__identity__step": step,
            "delta__identity__allowExplicitInsert": explicit,
        }
        if mark is not None:
            rules["delta__identity__highWaterMark"] = mark
        fields = (column("n", "long", **rules), column("v", "string"))
        return made(fields, [{"n": n, "v": "old"} for n in known], (1, 6))

    new = append({"v": "a"}, {"v": "b"}, {"v": "c"})
    unique = Log("identity-values", value="n")
    rows: Sequence[tuple[str, str, tuple[int, int, int | None, Sequence[int]]]] = (
        ("one", "starts with 1 and increases by 1", (1, 1, 2, (1, 2))),
        ("step", "increases by 5", (3, 5, 13, (3, 8, 13))),
        ("negative", "decreases by 1", (-1, -1, -2, (-1, -2))),
        ("negative-step", "decreases by 10 from a positive start", (100, -10, 80, (100, 90, 80))),
        ("zero", "starts with 0", (0, 2, None, ())),
        ("ahead", "has a high-water mark above all of its values", (1, 1, 50, (1, 2))),
    )
    for name, about, (start, step, mark, known) in rows:
        about = f"An append generates values for an identity column that {about}, or is refused"
        steps = (MayRefuse(new), *((unique,) if mark is not None else ()))
        if mark is None:
            steps = (MayRefuse(new), MayRefuse(new), Log("identity-values-if-any", value="n"))
        yield _identity(f"append-{name}", about, numbered(start, step, mark, known), *steps)
    build = numbered(1, 1, 2, (1, 2))
    first: list[Row] = [{"n": 1, "v": "old"}, {"n": 2, "v": "old"}]
    about = "Values that are given for an identity column that does not allow them are refused"
    yield _identity("explicit-refused", about, build, Refused(append({"n": 7, "v": "a"})), *_good(*first))
    about = "Values that are given for an identity column that allows them are written, or the table is refused"
    allowed = numbered(1, 1, 2, (1, 2), explicit=True)
    given = {"n": 70, "v": "a"}
    steps = (MayRefuse(append(given)), Log("rows-among", value=[*first, given]))
    yield _identity("explicit", about, allowed, *steps)
    about = "Two appends to an identity column"
    yield _identity("append-twice", about, build, MayRefuse(new), MayRefuse(new), unique)
    about = "A property change keeps the high-water mark of an identity column"
    kept = Log("column-metadata", value={"n": {"delta.identity.highWaterMark": 2, "delta.identity.step": 1}})
    yield _identity("property-keeps", about, build, MayRefuse(_NINE), kept, Rows(first))
    about = "A delete of the last values does not lower the high-water mark"
    delete = Write("delete", where="n = 2")
    yield _identity("delete-keeps", about, build, MayRefuse(delete), kept)
    about = "An identity column without room for another value: the append is refused"
    last = 2**63 - 1
    full = numbered(1, 1, last, (1,))
    yield _identity("overflow", about, full, Refused(append({"v": "a"})), *_good({"n": 1, "v": "old"}))
    about = "A null in an identity column is refused"
    yield _identity("null", about, build, Refused(append({"n": None, "v": "a"}, n="long")), *_good(*first))

    def raced(table: TableBuilder) -> None:
        build(table)
        rules: dict[str, Any] = {
            "delta__identity__start": 1,
            "delta__identity__step": 1,
            "delta__identity__allowExplicitInsert": False,
            "delta__identity__highWaterMark": 3,
        }
        text = schema_text(column("n", "long", **rules), column("v", "string"))
        rows = pa.table({"n": pa.array([3], pa.int64()), "v": pa.array(["winner"])})
        table.commit(table.metadata(text), table.add(rows), later="winner")

    late = Write("append", rows=[{"v": "a"}], begun=True)
    about = "Two appends at the same time: refused, or with different values in the identity column"
    yield _identity("race", about, raced, Begin(), Put("winner"), MayRefuse(late), unique)
    about = "An overwrite does not generate values of the rows that it replaces"
    overwrite = Write("overwrite", rows=[{"v": "a"}])
    after = Log("identity-values", value="n")
    yield _identity("overwrite", about, build, MayRefuse(overwrite), after, Log("identity-beyond", value={"n": 2}))


# --------------------------------------------------------------------------------------------- void, append-only


def _voids() -> Iterator[Case]:
    build = made((column("id", "long"), column("v", "void")), ({"id": 1},), (1, 2))
    first = {"id": 1, "v": None}
    yield _void("reads", "A column of the type void is null", build, Rows([first]))
    nested = made((column("s", columns(column("a", "long"), column("v", "void"))),), (), (1, 2))

    def struct(table: TableBuilder) -> None:
        nested(table)
        table.commit(table.add(pa.table({"s": pa.array([{"a": 1}], pa.struct([("a", pa.int64())]))})))

    yield _void(
        "reads-nested", "A field of the type void in a struct is null", struct, Rows([{"s": {"a": 1, "v": None}}])
    )
    about = "An append to a table with a column of the type void leaves it out of its files, or is refused"
    steps = (MayRefuse(append({"id": 2})), Log("columns-not-in-files", value=["v"]))
    yield _void("append", about, build, *steps, Log("rows-among", value=[first, {"id": 2, "v": None}]))

    def typed(table: TableBuilder) -> None:
        build(table)
        rows = pa.table({"id": pa.array([2], pa.int64()), "v": pa.array(["x"])})
        table.commit(table.metadata(schema_text(column("id", "long"), column("v", "string"))), table.add(rows))

    about = "A column of the type void that got another type"
    yield _void("reads-typed", about, typed, Rows([first, {"id": 2, "v": "x"}]))
    only = made((column("v", "void"),), (), (1, 2))
    about = "An append to a table whose only column has the type void is refused"
    yield _void("only-refused", about, only, Refused(append({"v": None})), Log("latest-version", value=0))
    array = made((column("id", "long"), column("v", list_of("void"))), (), (1, 2))
    about = "An append to a table with an array of void is refused"
    yield _void("array-refused", about, array, Refused(append({"id": 1})), Log("latest-version", value=0))


def _only_appends() -> Iterator[Case]:
    on = {"delta.appendOnly": "true"}
    first: Row = {"id": 1}
    one = (column("id", "long"),)
    listed = made(one, (first,), ["appendOnly"], **on)
    delete = Write("delete", where="id = 1")
    about = "A delete under the table feature appendOnly is refused"
    yield _append_only("feature-delete", about, listed, Refused(delete), *_good(first))

    def two(table: TableBuilder) -> None:
        listed(table)
        table.commit(table.add([{"id": 2}]))

    restore = Write("restore", version=0)
    about = "A restore of an append-only table that would remove rows is refused"
    yield _append_only("restore", about, two, Refused(restore), *_good(first, {"id": 2}))
    off = Write("set_properties", properties={"delta.appendOnly": "false"})
    about = "A delete after the property was set to false"
    yield _append_only("off-delete", about, listed, off, delete, *_good())
    gone = Write("set_properties", properties={"delta.appendOnly": None})
    about = "A delete after the property was removed"
    yield _append_only("removed-delete", about, listed, gone, delete, *_good())
    about = "A delete that matches no row of an append-only table changes nothing"
    none = Write("delete", where="id = 77")
    yield _append_only("delete-nothing", about, listed, MayRefuse(none), *_good(first), basis=REFERENCE)
