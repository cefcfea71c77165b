"""Cases about type widening: every pair of types that the protocol allows or forbids, at every place of a schema."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.conformance.builder import Action, TableBuilder
from deltalog.conformance.case import REFERENCE, TYPE_WIDENING, Case, Log, Refused, Row, Rows, Step, Write
from deltalog.conformance.cases.common import Build, Cases, column, columns, list_of, map_of, schema_text
from deltalog.protocol.schema import StructType

_case = Cases("widening", TYPE_WIDENING, "reader-requirements-for-type-widening")
_WRITERS = "writer-requirements-for-type-widening"
_CHANGES = "type-change-metadata"
_ON = {"delta.enableTypeWidening": "true"}
_D = decimal.Decimal
_DAY = datetime.date(2025, 2, 28)
_NOON = datetime.datetime(2025, 3, 1, 12, 0, 0, 500_000)

# For each pair: the types, a value of the old type, the same value in the new type, and a value that only the new type
# has. ``feature-widened-*`` are five more pairs.
_ALLOWED: Sequence[tuple[str, str, Any, Any, Any]] = (
    ("byte", "short", -128, -128, 2**15 - 1),
    ("byte", "integer", 127, 127, -(2**31)),
    ("byte", "double", -5, -5.0, 0.1),
    ("byte", "decimal(10,0)", -5, _D("-5"), _D("9999999999")),
    ("byte", "decimal(12,2)", 7, _D("7.00"), _D("9999999999.99")),
    ("short", "long", -(2**15), -(2**15), 2**62),
    ("short", "double", 300, 300.0, -0.5),
    ("short", "decimal(10,0)", 300, _D("300"), _D("-9999999999")),
    ("short", "decimal(20,10)", -300, _D("-300.0000000000"), _D("0.0000000001")),
    ("integer", "decimal(10,0)", 2**31 - 1, _D("2147483647"), _D("9999999999")),
    ("integer", "decimal(15,5)", -(2**31), _D("-2147483648.00000"), _D("0.00001")),
    ("integer", "decimal(38,28)", 12, _D("12.0000000000000000000000000000"), _D("0.0000000000000000000000000001")),
    ("long", "decimal(20,0)", 2**63 - 1, _D("9223372036854775807"), _D("99999999999999999999")),
    ("long", "decimal(38,18)", -(2**63), _D("-9223372036854775808.000000000000000000"), _D("0.000000000000000001")),
    ("date", "timestamp_ntz", _DAY, datetime.datetime(2025, 2, 28), _NOON),
    ("decimal(5,2)", "decimal(9,2)", _D("-999.99"), _D("-999.99"), _D("1234567.89")),
    ("decimal(5,2)", "decimal(10,4)", _D("123.45"), _D("123.4500"), _D("0.0001")),
    ("decimal(9,2)", "decimal(18,2)", _D("1234567.89"), _D("1234567.89"), _D("1234567890123456.78")),
    ("decimal(18,3)", "decimal(38,3)", _D("-1.125"), _D("-1.125"), _D("1" * 35 + ".125")),
    ("decimal(9,0)", "decimal(38,29)", _D("123456789"), _D("123456789." + "0" * 29), _D("0." + "0" * 28 + "1")),
)
# Type changes that no version of the feature has. The value of the old type is in a file of the table.
_FORBIDDEN: Sequence[tuple[str, str, Any]] = (
    ("long", "integer", 1),
    ("long", "double", 1),
    ("integer", "float", 1),
    ("integer", "string", 1),
    ("double", "float", 0.5),
    ("double", "decimal(38,10)", 0.5),
    ("string", "integer", "1"),
    ("boolean", "integer", True),
    ("integer", "decimal(9,0)", 1),
    ("long", "decimal(19,0)", 1),
    ("long", "decimal(22,3)", 1),
    ("decimal(10,2)", "decimal(9,2)", _D("1.25")),
    ("decimal(10,2)", "decimal(11,4)", _D("1.25")),
    ("date", "timestamp", _DAY),
    ("timestamp_ntz", "date", _NOON),
)


def cases() -> Iterator[Case]:
    yield from _read_pairs()
    yield from _partitions()
    yield from _nested()
    yield from _versions()
    yield from _statistics()
    yield from _written()
    yield from _changed()


def _change(old: str, new: str, path: str | None = None) -> dict[str, str]:
    change = {"fromType": old, "toType": new}
    return change if path is None else {**change, "fieldPath": path}


def _arrow(kind: Any) -> pa.DataType:
    return StructType.from_json(schema_text(column("c", kind))).to_arrow().field("c").type


def _protocol(table: TableBuilder, *more: str, preview: bool = False) -> Action:
    features = ["typeWidening-preview" if preview else "typeWidening", *more]
    return table.protocol(features, features)


def _features(*kinds: Any) -> list[str]:
    return ["timestampNtz"] if "timestamp_ntz" in map(str, kinds) else []


def _widened(old: Any, new: Any, first: Any, second: Any, changes: Sequence[Mapping[str, str]], **more: Any) -> Build:
    """Version 0 adds the row 0 with the old type, version 1 changes the type and adds the row 1, or none if the second
    value is not given."""

    def build(table: TableBuilder) -> None:
        before = schema_text(column("id", "long"), column("v", old))
        after = schema_text(
            column("id", "long"), {**column("v", new), "metadata": {"delta.typeChanges": list(changes)}}
        )
        configuration = {**_ON, **more}
        table.commit(
            _protocol(table, *_features(old, new)),
            table.metadata(before, configuration=configuration),
            table.add(_file(0, old, first)),
        )
        rest = [] if second is None else [table.add(_file(1, new, second))]
        table.commit(table.metadata(after), *rest)

    return build


def _file(number: int, kind: Any, value: Any) -> pa.Table:
    values = pa.array([value], _arrow(kind))
    return pa.table({"id": pa.array([number], pa.int64()), "v": values})


def _slug(kind: str) -> str:
    return kind.replace("(", "-").replace(",", "-").replace(")", "").replace("_", "-")


def _read_pairs() -> Iterator[Case]:
    for old, new, first, same, second in _ALLOWED:
        name, about = f"{_slug(old)}-to-{_slug(new)}", f"A column widened from {old} to {new}"
        build = _widened(old, new, first, second, [_change(old, new)])
        yield _case(f"reads-{name}", about, build, Rows([{"id": 0, "v": same}, {"id": 1, "v": second}]))
    for old, new, first in _FORBIDDEN:
        name, about = f"{_slug(old)}-to-{_slug(new)}", f"A schema that records a change from {old} to {new} is refused"
        build = _widened(old, new, first, None, [_change(old, new)])
        yield _case(f"refuses-{name}", about, build, Refused(Rows([{"id": 0, "v": first}])), rule="type-change-invalid")
    build = _widened("byte", "long", 5, 2**40, [_change("byte", "short"), _change("short", "long")])
    rows: list[Row] = [{"id": 0, "v": 5}, {"id": 1, "v": 2**40}]
    yield _case("reads-two-steps", "A column that was widened twice between two files", build, Rows(rows))
    build = _widened(
        "byte", "long", 5, 2**40, [_change("byte", "short"), _change("short", "string"), _change("string", "long")]
    )
    about = "One forbidden change among the recorded ones is refused"
    yield _case("refuses-among", about, build, Refused(Rows(rows)))
    build = _widened(list_of("long"), list_of("integer"), [1], None, [_change("long", "integer", "element")])
    about = "A schema that records a forbidden change of the elements of an array is refused"
    yield _case("refuses-element", about, build, Refused(Rows([{"id": 0, "v": [1]}])))

    def generations(table: TableBuilder) -> None:
        kinds, history = ("byte", "short", "integer", "long"), []
        table.commit(_protocol(table), table.metadata(schema_text(column("v", "byte")), configuration=_ON))
        for number, kind in enumerate(kinds):
            if number:
                history.append(_change(kinds[number - 1], kind))
            metadata = {"delta.typeChanges": list(history)} if history else {}
            value = pa.table({"v": pa.array([2 ** (8 * 2**number - 1) - 1 if number < 3 else 2**63 - 1], _arrow(kind))})
            table.commit(table.metadata(schema_text({**column("v", kind), "metadata": metadata})), table.add(value))

    every = [{"v": each} for each in (127, 2**15 - 1, 2**31 - 1, 2**63 - 1)]
    yield _case("reads-four-generations", "Files of four integer types in one column", generations, Rows(every))

    def preview(table: TableBuilder) -> None:
        before, after = column("v", "short"), column("v", "integer")
        after["metadata"] = {"delta.typeChanges": [{**_change("short", "integer"), "tableVersion": 1}]}
        one = table.add(pa.table({"v": pa.array([5], pa.int16())}))
        table.commit(_protocol(table, preview=True), table.metadata(schema_text(before), configuration=_ON), one)
        table.commit(table.metadata(schema_text(after)), table.add(pa.table({"v": pa.array([2**20], pa.int32())})))

    about = "The feature under the name that it had during its preview"
    yield _case("reads-preview", about, preview, Rows([{"v": 5}, {"v": 2**20}]), basis=REFERENCE)

    def off(table: TableBuilder) -> None:
        _widened("short", "integer", 5, 2**20, [_change("short", "integer")])(table)
        table.commit(table.metadata(configuration={}))

    about = "Widened columns are read even if the property is off"
    yield _case("reads-property-off", about, off, Rows([{"id": 0, "v": 5}, {"id": 1, "v": 2**20}]))

    def forgotten(table: TableBuilder) -> None:
        """A writer may drop the history when no file has an older type."""
        _widened("short", "integer", 5, 2**20, [_change("short", "integer")])(table)
        first = _first_add(table, 0)
        plain = schema_text(column("id", "long"), column("v", "integer"))
        table.commit(table.metadata(plain), table.remove(first), table.add(_file(0, "integer", 5)))

    about = "The history of a column whose older files were rewritten is gone"
    rows = [{"id": 0, "v": 5}, {"id": 1, "v": 2**20}]
    yield _case("reads-without-history", about, forgotten, Rows(rows), section=_WRITERS)


def _first_add(table: TableBuilder, version: int) -> Action:
    """The first add action of a version that was built."""
    lines = (table.log / f"{version:020d}.json").read_text(encoding="utf-8").splitlines()
    found: Action = next(action for action in map(json.loads, lines) if "add" in action)
    return found


def _partitions() -> Iterator[Case]:
    pairs: Sequence[tuple[str, str, str, str, Any, Any]] = (
        ("byte", "long", "-5", "1099511627776", -5, 2**40),
        ("integer", "double", "7", "0.5", 7.0, 0.5),
        ("integer", "decimal(12,2)", "7", "0.25", _D("7.00"), _D("0.25")),
        ("float", "double", "1.5", "0.1", 1.5, 0.1),
        ("decimal(5,2)", "decimal(10,4)", "1.25", "0.0001", _D("1.2500"), _D("0.0001")),
        ("date", "timestamp_ntz", "2025-02-28", "2025-03-01 12:00:00.5", datetime.datetime(2025, 2, 28), _NOON),
    )
    for old, new, first, second, one, two in pairs:

        def build(
            table: TableBuilder, old: str = old, new: str = new, texts: tuple[str, str] = (first, second)
        ) -> None:
            before, after = column("p", old), column("p", new)
            after["metadata"] = {"delta.typeChanges": [_change(old, new)]}
            files = [
                table.add(pa.table({"id": pa.array([number], pa.int64())}), {"p": text})
                for number, text in enumerate(texts)
            ]
            metadata = table.metadata(schema_text(column("id", "long"), before), ["p"], _ON)
            table.commit(_protocol(table, *_features(old, new)), metadata, files[0])
            table.commit(table.metadata(schema_text(column("id", "long"), after)), files[1])

        about = f"A partition column widened from {old} to {new}"
        rows: list[Row] = [{"id": 0, "p": one}, {"id": 1, "p": two}]
        name = f"{_slug(old)}-to-{_slug(new)}"
        yield _case(f"partition-{name}", about, build, Rows(rows))


def _nested() -> Iterator[Case]:
    inner = {**column("b", "long"), "metadata": {"delta.typeChanges": [_change("integer", "long")]}}
    struct = pa.struct([("b", pa.int32())])

    def of(old: Any, new: Any, first: pa.Array, second: pa.Array, *changes: Mapping[str, str]) -> Build:
        """``first`` and ``second``: the values of v in the two files."""

        def build(table: TableBuilder) -> None:
            after = column("v", new)
            after["metadata"] = {"delta.typeChanges": list(changes)} if changes else {}
            table.commit(
                _protocol(table),
                table.metadata(schema_text(column("v", old)), configuration=_ON),
                table.add(pa.table({"v": first})),
            )
            table.commit(table.metadata(schema_text(after)), table.add(pa.table({"v": second})))

        return build

    wide = pa.struct([("b", pa.int64())])
    shapes: Sequence[tuple[str, str, Build, list[Any]]] = (
        (
            "struct",
            "A field of a struct",
            of(
                columns(column("b", "integer")),
                columns(inner),
                pa.array([{"b": 1}, None], struct),
                pa.array([{"b": 2**40}], wide),
            ),
            [{"b": 1}, None, {"b": 2**40}],
        ),
        (
            "element",
            "The elements of an array",
            of(
                list_of("integer"),
                list_of("long"),
                pa.array([[1, None], []], pa.list_(pa.int32())),
                pa.array([[2**40]], pa.list_(pa.int64())),
                _change("integer", "long", "element"),
            ),
            [[1, None], [], [2**40]],
        ),
        (
            "key",
            "The keys of a map",
            of(
                map_of("short", "string"),
                map_of("long", "string"),
                pa.array([[(1, "a")]], pa.map_(pa.int16(), pa.string())),
                pa.array([[(2**40, "b")]], pa.map_(pa.int64(), pa.string())),
                _change("short", "long", "key"),
            ),
            [[(1, "a")], [(2**40, "b")]],
        ),
        (
            "value",
            "The values of a map",
            of(
                map_of("string", "float"),
                map_of("string", "double"),
                pa.array([[("a", 1.5), ("b", None)]], pa.map_(pa.string(), pa.float32())),
                pa.array([[("a", 0.1)]], pa.map_(pa.string(), pa.float64())),
                _change("float", "double", "value"),
            ),
            [[("a", 1.5), ("b", None)], [("a", 0.1)]],
        ),
        (
            "element-value",
            "The values of a map in an array",
            of(
                list_of(map_of("string", "decimal(6,2)")),
                list_of(map_of("string", "decimal(10,4)")),
                pa.array([[[("a", _D("1.25"))]]], pa.list_(pa.map_(pa.string(), pa.decimal128(6, 2)))),
                pa.array([[[("a", _D("0.0001"))]]], pa.list_(pa.map_(pa.string(), pa.decimal128(10, 4)))),
                _change("decimal(6,2)", "decimal(10,4)", "element.value"),
            ),
            [[[("a", _D("1.2500"))]], [[("a", _D("0.0001"))]]],
        ),
        (
            "struct-in-array",
            "A field of a struct in an array",
            of(
                list_of(columns(column("b", "integer"))),
                list_of(columns(inner)),
                pa.array([[{"b": 1}, None]], pa.list_(struct)),
                pa.array([[{"b": 2**40}]], pa.list_(wide)),
            ),
            [[{"b": 1}, None], [{"b": 2**40}]],
        ),
        (
            "struct-in-map",
            "A field of a struct that is the value of a map",
            of(
                map_of("string", columns(column("b", "integer"))),
                map_of("string", columns(inner)),
                pa.array([[("a", {"b": 1})]], pa.map_(pa.string(), struct)),
                pa.array([[("a", {"b": 2**40})]], pa.map_(pa.string(), wide)),
            ),
            [[("a", {"b": 1})], [("a", {"b": 2**40})]],
        ),
    )
    for name, about, build, found in shapes:
        yield _case(
            f"nested-{name}",
            f"{about} are widened" if about.startswith("The") else f"{about} is widened",
            build,
            Rows([{"v": each} for each in found]),
            section=_CHANGES,
        )


def _versions() -> Iterator[Case]:
    date = _widened("date", "timestamp_ntz", _DAY, _NOON, [_change("date", "timestamp_ntz")])
    about = "The version before a change has the old type"
    yield _case("reads-version-before", about, date, Rows([{"id": 0, "v": _DAY}], version=0))

    def contained(table: TableBuilder) -> None:
        _widened("decimal(5,2)", "decimal(10,4)", _D("1.25"), _D("0.0001"), [_change("decimal(5,2)", "decimal(10,4)")])(
            table
        )
        table.checkpoint()
        table.drop_commits(0, 1)
        table.commit()

    rows: list[Row] = [{"id": 0, "v": _D("1.2500")}, {"id": 1, "v": _D("0.0001")}]
    about = "A widened column in a checkpoint without earlier commits"
    yield _case("reads-checkpoint", about, contained, Rows(rows), section="checkpoints")

    def vector(table: TableBuilder) -> None:
        on = {**_ON, "delta.enableDeletionVectors": "true"}
        old = table.add(pa.table({"v": pa.array([1, 2, 3], pa.int16())}))
        before, after = column("v", "short"), column("v", "long")
        after["metadata"] = {"delta.typeChanges": [_change("short", "long")]}
        table.commit(_protocol(table, "deletionVectors"), table.metadata(schema_text(before), configuration=on), old)
        table.commit(table.metadata(schema_text(after)), table.remove(old), table.with_deleted(old, [1]))

    about = "A file of the old type has a deletion vector"
    yield _case("reads-vector", about, vector, Rows([{"v": 1}, {"v": 3}]), section="deletion-vectors")

    def mapped(table: TableBuilder) -> None:
        mapping: dict[str, Any] = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-a"}
        on = {**_ON, "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
        before = {**column("v", "short"), "metadata": mapping}
        after = {**column("w", "long"), "metadata": {**mapping, "delta.typeChanges": [_change("short", "long")]}}
        one, two = (
            table.add(
                pa.table(
                    [pa.array([value], kind)], pa.schema([pa.field("col-a", kind, metadata={"PARQUET:field_id": "1"})])
                )
            )
            for value, kind in ((5, pa.int16()), (2**40, pa.int64()))
        )
        table.commit(_protocol(table, "columnMapping"), table.metadata(schema_text(before), configuration=on), one)
        table.commit(table.metadata(schema_text(after)), two)

    about = "A column that was widened and renamed"
    yield _case("reads-renamed", about, mapped, Rows([{"w": 5}, {"w": 2**40}]), section="column-mapping")


def _statistics() -> Iterator[Case]:
    """A delete uses the statistics of files that were written before the change."""
    rows: Sequence[tuple[str, str, Any, Any, Any, str, Any, Any]] = (
        (
            "date",
            "timestamp_ntz",
            _DAY,
            _NOON,
            datetime.datetime(2025, 2, 28),
            "v < TIMESTAMP_NTZ'2025-02-28 00:00:01'",
            "2025-02-28",
            "2025-03-01T12:00:00.500",
        ),
        ("integer", "long", 7, 2**40, 7, "v <= 7", 7, 2**40),
        ("byte", "double", 7, 7.5, 7.0, "v < 7.25", 7, 7.5),
        ("integer", "decimal(12,2)", 7, _D("7.50"), _D("7.00"), "v < 7.25", 7, 7.5),
        ("decimal(5,2)", "decimal(10,4)", _D("1.25"), _D("1.2501"), _D("1.2500"), "v = 1.25", 1.25, 1.2501),
        ("float", "double", 1.5, 0.1, 1.5, "v > 1.25", 1.5, 0.1),
    )
    for old, new, first, second, same, where, low, high in rows:

        def build(
            table: TableBuilder,
            kinds: tuple[str, str] = (old, new),
            given: tuple[Any, Any] = (first, second),
            bounds: tuple[Any, Any] = (low, high),
        ) -> None:
            old, new = kinds
            after = {**column("v", new), "metadata": {"delta.typeChanges": [_change(old, new)]}}
            files = [
                table.add(_file(number, kinds[number], given[number]), stats=_stats(number, bounds[number]))
                for number in range(2)
            ]
            metadata = table.metadata(schema_text(column("id", "long"), column("v", old)), configuration=_ON)
            table.commit(_protocol(table, *_features(old, new)), metadata, files[0])
            table.commit(table.metadata(schema_text(column("id", "long"), after)), files[1])

        left = [{"id": 1, "v": second}]
        about = f"A delete finds rows by the statistics of a file written as {old} before the change to {new}"
        name = f"{_slug(old)}-to-{_slug(new)}"
        steps: tuple[Step, ...] = (Write("delete", where=where), Rows(left), Log("rows", value=left))
        yield _case(f"delete-{name}", about, build, *steps, section="per-file-statistics")
        if old in ("date", "decimal(5,2)"):
            kept = [{"id": 0, "v": same}]
            other = "v > TIMESTAMP_NTZ'2025-02-28 00:00:00'" if old == "date" else "v > 1.25"
            about = (
                f"A delete keeps the rows of a file whose statistics were written as {old} before the change to {new}"
            )
            steps = (Write("delete", where=other), Rows(kept), Log("rows", value=kept))
            yield _case(f"delete-other-{name}", about, build, *steps, section="per-file-statistics")


def _stats(number: int, value: Any) -> dict[str, Any]:
    bounds = {"id": number, "v": value}
    return {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"id": 0, "v": 0}}


def _written() -> Iterator[Case]:
    build = _widened("integer", "long", 7, 2**40, [_change("integer", "long")])
    rows: list[Row] = [{"id": 0, "v": 7}, {"id": 1, "v": 2**40}]
    history = {"v": {"delta.typeChanges": [_change("integer", "long")]}}
    append = Write("append", rows=[{"id": 2, "v": 2**50}])
    more: list[Row] = [*rows, {"id": 2, "v": 2**50}]
    about = "An append of values that only the wider type has"
    yield _case("append", about, build, append, Rows(more), Log("rows", value=more), section=_WRITERS)
    about = "An append keeps the recorded type changes"
    yield _case("append-keeps-history", about, build, append, Log("column-metadata", value=history), section=_WRITERS)
    change = Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"})
    about = "A change of properties keeps the recorded type changes"
    yield _case(
        "property-keeps-history",
        about,
        build,
        change,
        Log("column-metadata", value=history),
        Rows(rows),
        section=_WRITERS,
    )
    overwrite = Write("overwrite", rows=[{"id": 9, "v": 2**50}])
    only: list[Row] = [{"id": 9, "v": 2**50}]
    about = "An overwrite of a widened table"
    yield _case("overwrite", about, build, overwrite, Rows(only), Rows(rows, version=1), section=_WRITERS)
    delete = Write("delete", where="id = 0")
    left: list[Row] = [{"id": 1, "v": 2**40}]
    about = "A delete from a file of the old type"
    yield _case("delete", about, build, delete, Rows(left), Log("rows", value=left), section=_WRITERS)

    def two_rows(table: TableBuilder) -> None:
        after = {**column("v", "long"), "metadata": history["v"]}
        old = table.add(pa.table({"id": pa.array([0, 1], pa.int64()), "v": pa.array([7, 8], pa.int32())}))
        before = schema_text(column("id", "long"), column("v", "integer"))
        table.commit(_protocol(table), table.metadata(before, configuration=_ON), old)
        table.commit(table.metadata(schema_text(column("id", "long"), after)))

    left = [{"id": 1, "v": 8}]
    about = "A delete rewrites the other rows of a file of the old type"
    yield _case("delete-rewrites", about, two_rows, delete, Rows(left), Log("rows", value=left), section=_WRITERS)
    restore = Write("restore", version=0)
    first: list[Row] = [{"id": 0, "v": 7}]
    about = "A restore to the version before the change"
    yield _case(
        "restore", about, build, restore, Rows(first), Log("rows", value=first), section=_WRITERS, basis=REFERENCE
    )
    keep = {"delta.enableExpiredLogCleanup": "false"}
    for name, properties in (("", {}), ("-structs", {"delta.checkpoint.writeStatsAsStruct": "true"})):

        def contained(table: TableBuilder, properties: Mapping[str, str] = properties) -> None:
            bounds = ("2025-02-28", "2025-03-01T12:00:00.500")
            configuration = {**_ON, **keep, **properties}
            after = {
                **column("v", "timestamp_ntz"),
                "metadata": {"delta.typeChanges": [_change("date", "timestamp_ntz")]},
            }
            files = [
                table.add(_file(number, kind, value), stats=_stats(number, bounds[number]))
                for number, (kind, value) in enumerate((("date", _DAY), ("timestamp_ntz", _NOON)))
            ]
            before = schema_text(column("id", "long"), column("v", "date"))
            table.commit(
                _protocol(table, "timestampNtz"), table.metadata(before, configuration=configuration), files[0]
            )
            table.commit(table.metadata(schema_text(column("id", "long"), after)), files[1])

        dates: list[Row] = [{"id": 0, "v": datetime.datetime(2025, 2, 28)}, {"id": 1, "v": _NOON}]
        about = "A checkpoint of a table with statistics of the old type" + (
            ", with statistics as structs" if name else ""
        )
        steps: tuple[Step, ...] = (
            Write("checkpoint"),
            Log("checkpoint", value=1),
            Log("rows-by-checkpoint", value=dates),
        )
        yield _case(f"checkpoint{name}", about, contained, *steps, Rows(dates), section="checkpoints-1")


def _changed() -> Iterator[Case]:
    """The engine changes a type itself."""

    def table_of(kind: Any, value: Any, later: Any = None, **properties: str) -> Build:
        """``later``: the type that the column gets. The table has the feature for it already, because an engine need
        not add one."""

        def build(table: TableBuilder) -> None:
            features = _features(kind, later)
            protocol = table.protocol(["typeWidening", *features], ["typeWidening", *features])
            configuration = {**_ON, **properties} if properties.get("off") is None else {}
            metadata = table.metadata(schema_text(column("id", "long"), column("v", kind)), configuration=configuration)
            table.commit(protocol, metadata, table.add(_file(0, kind, value)))

        return build

    def to(kind: str, path: str = "v") -> Write:
        return Write("set_type", column=path, type=kind)

    for old, new, first, same in (
        ("byte", "short", 5, 5),
        ("integer", "long", 5, 5),
        ("float", "double", 1.5, 1.5),
        ("short", "decimal(10,0)", 5, _D("5")),
        ("date", "timestamp_ntz", _DAY, datetime.datetime(2025, 2, 28)),
        ("decimal(5,2)", "decimal(7,3)", _D("1.25"), _D("1.250")),
    ):
        recorded = {"v": {"delta.typeChanges": [_change(old, new)]}}
        rows: list[Row] = [{"id": 0, "v": same}]
        about = f"A change from {old} to {new} rewrites no file, and the schema records it"
        yield _case(
            f"change-{_slug(old)}-to-{_slug(new)}",
            about,
            table_of(old, first, new),
            to(new),
            *(Log("actions", value={"metaData": 1, "add": 0, "remove": 0}), Log("column-types", value={"v": new})),
            *(Log("column-metadata", value=recorded), Rows(rows), Log("rows", value=rows)),
            section=_WRITERS,
        )
    for old, new, value in (
        ("long", "integer", 5),
        ("integer", "string", 5),
        ("double", "float", 1.5),
        ("integer", "decimal(9,0)", 5),
        ("decimal(10,2)", "decimal(11,4)", _D("1.25")),
        ("date", "timestamp", _DAY),
    ):
        about = f"A change from {old} to {new} is refused"
        steps: tuple[Step, ...] = (Refused(to(new)), Log("latest-version", value=0), Rows([{"id": 0, "v": value}]))
        yield _case(
            f"change-refused-{_slug(old)}-to-{_slug(new)}", about, table_of(old, value), *steps, section=_WRITERS
        )
    about = "A change is refused if the property is off"
    steps = (Refused(to("long")), Log("latest-version", value=0), Log("column-types", value={"v": "integer"}))
    yield _case("change-refused-property-off", about, table_of("integer", 5, off="yes"), *steps, section=_WRITERS)
    build = _widened("byte", "short", 5, 300, [_change("byte", "short")])
    both = {"v": {"delta.typeChanges": [_change("byte", "short"), _change("short", "integer")]}}
    about = "A second change is recorded after the first"
    yield _case(
        "change-again",
        about,
        build,
        to("integer"),
        Log("column-metadata", value=both),
        Rows([{"id": 0, "v": 5}, {"id": 1, "v": 300}]),
        section=_CHANGES,
    )

    def nested(table: TableBuilder) -> None:
        text = schema_text(column("s", columns(column("b", "integer"))))
        rows = pa.table({"s": pa.array([{"b": 1}], pa.struct([("b", pa.int32())]))})
        table.commit(_protocol(table), table.metadata(text, configuration=_ON), table.add(rows))

    in_field = {"s.b": {"delta.typeChanges": [_change("integer", "long")]}, "s": {"delta.typeChanges": None}}
    about = "A change of a field of a struct is recorded in the metadata of this field"
    yield _case(
        "change-nested",
        about,
        nested,
        to("long", "s.b"),
        Log("column-metadata", value=in_field),
        Rows([{"s": {"b": 1}}]),
        section=_CHANGES,
    )
