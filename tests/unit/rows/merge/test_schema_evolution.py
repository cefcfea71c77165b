"""Merges that add columns to the target table; tests/interop/test_interop_merge_evolution compares them with
delta-spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaLogError, DeltaTable, SchemaMismatchError, TableMerger
from deltalog.errors import ConcurrentAppendError, MetadataChangedError
from deltalog.schema import StructType
from deltalog.write.row_writer import RowWriter
from tests.support.core import environment, memory

INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("s", INNER)])
ON = "target.id = source.id"
PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"},
    {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"},
)


def table_of(properties: dict[str, str] | None = None) -> DeltaTable:
    table = DeltaTable.create(memory(), SCHEMA, properties=properties or {}, environment=environment())
    rows = [{"id": n, "n": n, "s": None if n == 3 else {"x": n, "y": "old"}} for n in (1, 2, 3)]
    table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    return table


def sorted_rows(table: DeltaTable) -> list[dict[str, Any]]:
    return table.snapshot().scan().to_arrow().sort_by("id").to_pylist()


def names(table: DeltaTable) -> list[str]:
    return list(table.snapshot().schema.names)


GIVEN = pa.schema(
    [("ID", pa.int64()), ("s", pa.struct([("z", pa.float64()), ("x", pa.int32())])), ("new", pa.string())]
)
SOURCE = pa.Table.from_pylist(
    [{"ID": 2, "s": {"z": 0.5, "x": 20}, "new": "two"}, {"ID": 9, "s": {"z": 9.5, "x": 90}, "new": "nine"}],
    schema=GIVEN,
)


@pytest.mark.parametrize("properties", PROPERTIES, ids=["plain", "vectors, changes, ids", "changes, by name"])
def test_all_columns_of_the_source_are_added(properties: dict[str, str]) -> None:
    table = table_of(properties)
    merger = table.merge(SOURCE, ON).with_schema_evolution()
    result = merger.when_matched_update_all().when_not_matched_insert_all().execute()
    expected = [
        {"id": 1, "n": 1, "s": {"x": 1, "y": "old", "z": None}, "new": None},
        {"id": 2, "n": 2, "s": {"x": 20, "y": "old", "z": 0.5}, "new": "two"},
        {"id": 3, "n": 3, "s": None, "new": None},
        {"id": 9, "n": None, "s": {"x": 90, "y": None, "z": 9.5}, "new": "nine"},
    ]
    assert sorted_rows(table) == expected and names(table) == ["id", "n", "s", "new"]
    assert sorted_rows(DeltaTable.open(table.snapshot().reader.store)) == expected
    assert table.snapshot(version=result.version - 1).schema.names == ["id", "n", "s"]
    if "delta.enableChangeDataFeed" in properties:
        told = table.changes(result.version, result.version).to_arrow().to_pylist()
        kinds = [(each["_change_type"], each["id"], each["new"]) for each in told]
        assert sorted(kinds) == [
            ("insert", 9, "nine"), ("update_postimage", 2, "two"), ("update_preimage", 2, None),
        ]  # fmt: skip


def test_without_it_nothing_is_added() -> None:
    table = table_of()
    with pytest.raises(CallError, match=r"has no column n, s, which .* with_schema_evolution"):
        table.merge(SOURCE.drop_columns(["s"]), ON).when_matched_update_all().execute()
    with pytest.raises(CallError, match="There is no column 'new'"):
        table.merge(SOURCE, ON).when_matched_update({"new": "source.new"}).execute()
    table.merge(SOURCE, ON).when_matched_update({"s.y": "source.new"}).execute()
    assert names(table) == ["id", "n", "s"]


@pytest.mark.parametrize(
    ("clauses", "columns", "fields"),
    [
        (lambda m: m.when_matched_update({"target.new": "upper(source.new)"}), ["new"], []),
        (lambda m: m.when_not_matched_insert({"id": "source.ID", "NEW": "'x'"}), ["new"], []),
        (lambda m: m.when_matched_update({"s.z": "source.s.z"}), [], ["z"]),
        (lambda m: m.when_matched_update({"s": "source.s"}), [], ["z"]),
        (lambda m: m.when_matched_update({"s.x": "source.s.x"}), [], []),
        (lambda m: m.when_matched_update({"n": "1"}).when_not_matched_insert({"id": "source.ID"}), [], []),
        (lambda m: m.when_matched_update_all(except_cols=["NEW", "n"]), [], ["z"]),
        (lambda m: m.when_not_matched_insert_all(except_cols=["s"]), ["new"], []),
        (lambda m: m.when_matched_delete().when_not_matched_by_source_update({"n": "0"}), [], []),
    ],
)
def test_only_what_the_clauses_set_is_added(clauses: Any, columns: list[str], fields: list[str]) -> None:
    table = table_of()
    clauses(table.merge(SOURCE, ON).with_schema_evolution()).execute()
    assert names(table) == ["id", "n", "s", *columns]
    struct: Any = table.snapshot().schema.field("s").data_type
    assert list(struct.names) == ["x", "y", *fields]


def test_columns_come_also_where_no_row_changes() -> None:
    table = table_of()
    merger = table.merge(SOURCE.slice(0, 0), ON).with_schema_evolution().when_matched_update_all()
    assert not merger.execute().skipped
    assert names(table) == ["id", "n", "s", "new"] and len(sorted_rows(table)) == 3
    merger = table.merge(SOURCE.slice(0, 0), ON).with_schema_evolution().when_matched_update_all()
    assert merger.execute().skipped


def test_types_stay_or_are_widened_where_the_table_allows_it() -> None:
    source = pa.table({"id": [1], "n": pa.array([7], pa.int64())})
    for properties, kind in (({}, "integer"), ({"delta.enableTypeWidening": "true"}, "long")):
        table = table_of(properties)
        table.merge(source, ON).with_schema_evolution().when_matched_update_all().execute()
        assert str(table.snapshot().schema.field("n").data_type) == kind
        assert [row["n"] for row in sorted_rows(table)] == [7, 2, 3]
    large = pa.table({"id": [1], "n": [2**40]})
    table.merge(large, ON).with_schema_evolution().when_matched_update_all().execute()
    assert [row["n"] for row in sorted_rows(table)] == [2**40, 2, 3]
    with pytest.raises(CallError, match="cannot be computed for a row"):
        table_of().merge(large, ON).with_schema_evolution().when_matched_update_all().execute()


def test_structs_that_are_null_on_both_sides_stay_null() -> None:
    table = table_of()
    source = pa.Table.from_pylist([{"ID": n, "s": None} for n in (1, 3, 9)], schema=GIVEN)
    table.merge(source, ON).with_schema_evolution().when_matched_update_all().execute()
    old = {1: {"x": None, "y": "old", "z": None}, 2: {"x": 2, "y": "old", "z": None}, 3: None}
    assert {row["id"]: row["s"] for row in sorted_rows(table)} == old


def test_fields_in_lists_and_maps_are_added() -> None:
    kinds = [
        ("l", pa.list_(pa.struct([("a", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.struct([("a", pa.int64())]))),
    ]
    more = pa.struct([("b", pa.string()), ("a", pa.int64())])
    schema = pa.schema([("id", pa.int64()), *kinds])
    table = DeltaTable.create(memory(), schema, environment=environment())
    table.append(
        pa.Table.from_pylist([{"id": n, "l": [{"a": n}], "m": [("k", {"a": n})]} for n in (1, 2)], schema=schema)
    )
    given = pa.schema([("id", pa.int64()), ("l", pa.list_(more)), ("m", pa.map_(pa.string(), more))])
    new = {"id": 2, "l": [{"b": "x", "a": 5}], "m": [("j", {"b": "y", "a": 6})]}
    source = pa.Table.from_pylist([new], schema=given)
    table.merge(source, ON).with_schema_evolution().when_matched_update_all().execute()
    assert sorted_rows(table) == [
        {"id": 1, "l": [{"a": 1, "b": None}], "m": [("k", {"a": 1, "b": None})]},
        {"id": 2, "l": [{"a": 5, "b": "x"}], "m": [("j", {"a": 6, "b": "y"})]},
    ]


def test_columns_without_a_type_and_columns_of_the_merge_in_expressions() -> None:
    table = table_of()
    source = pa.table({"id": [1, 9], "none": pa.nulls(2), "new": [5, 6]})
    merger = table.merge(source, ON).with_schema_evolution().when_matched_update_all()
    merger.when_not_matched_insert_all().execute()
    assert names(table) == ["id", "n", "s", "new"]
    for make in (
        lambda m: m.when_matched_update({"later": "target.later"}),
        lambda m: m.when_matched_update_all("target.later = 1"),
    ):
        with pytest.raises(CallError, match=r"There is no column 'target\.later'"):
            make(table.merge(pa.table({"id": [1], "later": [1]}), ON).with_schema_evolution()).execute()


def evolving(table: DeltaTable, column: str) -> TableMerger:
    source = pa.table({"id": [1], column: ["x"]})
    return table.merge(source, ON).with_schema_evolution().when_matched_update_all()


@pytest.mark.parametrize("other", ["append", "evolve"])
def test_another_writer_meanwhile_is_a_conflict(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, real = table_of(), RowWriter.write_updates

    def meanwhile(self: Any, *given: Any) -> Any:
        monkeypatch.setattr(RowWriter, "write_updates", real)
        handle = DeltaTable.open(table.snapshot().reader.store, environment=environment())
        if other == "append":
            handle.append(pa.table({"id": [1]}))
        else:
            evolving(handle, "theirs").execute()
        return real(self, *given)

    monkeypatch.setattr(RowWriter, "write_updates", meanwhile)
    expected: type[DeltaLogError] = ConcurrentAppendError if other == "append" else MetadataChangedError
    with pytest.raises(expected):
        evolving(table, "ours").execute()
    assert "ours" not in names(table)


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("s", INNER),
        ("l", pa.list_(INNER)),
        ("m", pa.map_(pa.string(), INNER)),
        ("d", pa.struct([("in", INNER)])),
    ]
)
PARTS: dict[str, Any] = {"s": {"x": 5}, "l": [{"x": 5}], "m": [("k", {"x": 5})], "d": {"in": {"x": 5}}}
LESS = pa.struct([("x", pa.int64())])
LESS_OF = {"s": LESS, "l": pa.list_(LESS), "m": pa.map_(pa.string(), LESS), "d": pa.struct([("in", LESS)])}
CLAUSES: dict[str, Any] = {
    "update all": lambda m, name: m.when_matched_update_all(),
    "update": lambda m, name: m.when_matched_update({name: f"source.{name}"}),
    "insert all": lambda m, name: m.when_not_matched_insert_all(),
    "insert": lambda m, name: m.when_not_matched_insert({"id": "source.id", name: f"source.{name}"}),
}


@pytest.mark.parametrize("column", PARTS)
@pytest.mark.parametrize("clause", CLAUSES)
def test_a_struct_without_a_field_is_refused_without_evolution(clause: str, column: str) -> None:
    """The behaviour is the same as that of delta-spark, including structs in lists and maps. With schema evolution, an
    update of a whole struct keeps the field that the source's struct lacks."""
    full = {"x": 1, "y": "old"}
    first = {"id": 1, "s": full, "l": [full], "m": [("k", full)], "d": {"in": full}}
    table = DeltaTable.create(memory(), NESTED, data=pa.Table.from_pylist([first], schema=NESTED))
    fields = [
        ("id", pa.int64()),
        *(
            (each.name, LESS_OF.get(each.name) if each.name == column else each.type)
            for each in NESTED
            if each.name != "id"
        ),
    ]
    rows = [first | {"id": key, column: PARTS[column]} for key in (1, 2)]
    source = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    message = rf"The new value of {column} lacks the field {column}\..*y, which the table has"
    with pytest.raises(CallError, match=message):
        CLAUSES[clause](table.merge(source, ON), column).execute()
    assert table.snapshot().version == 0 and sorted_rows(table) == [first]
    CLAUSES[clause](table.merge(source, ON).with_schema_evolution(), column).execute()
    kept = "old" if clause == "update all" and column in ("s", "d") else None
    new = {"x": 5, "y": kept}
    key = 1 if clause.startswith("update") else 2
    row = next(row for row in sorted_rows(table) if row["id"] == key)
    assert row[column] == {"s": new, "l": [new], "m": [("k", new)], "d": {"in": new}}[column]


def test_types_of_the_table_stay_where_values_are_cast() -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("s", pa.struct([("x", pa.int32())])), ("m", pa.map_("string", pa.int32()))]
    )
    data = pa.schema([("S", pa.struct([("X", pa.int64()), ("new", pa.int64())])), ("m", pa.map_("string", "string"))])
    table = DeltaTable.create(memory(), schema, environment=environment())
    with table.transaction() as transaction:
        with pytest.raises(SchemaMismatchError, match="int"):
            transaction.merge_schema(StructType.from_arrow(data))
        transaction.merge_schema(StructType.from_arrow(data), keeps_types=True)
        merged = transaction.schema.to_arrow()
        transaction.abort()
    assert merged.field("s").type == pa.struct([("x", pa.int32()), ("new", pa.int64())])
    assert merged.field("m").type == pa.map_("string", pa.int32())
