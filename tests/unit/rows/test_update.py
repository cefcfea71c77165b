"""Updates of tables in every mode, compared with a model on plain rows; and refused updates."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, ConstraintViolationError, DeltaTable, SchemaMismatchError, col
from deltalog.errors import ConcurrentAppendError, InvalidActionError, RowCountError
from deltalog.rows import matched_rows
from deltalog.rows.update import update
from deltalog.schema import PrimitiveType, StructField, StructType
from deltalog.storage.memory import MemoryStore
from tests.support.core import NOW, environment, info, memory, objects

VECTORS = {"delta.enableDeletionVectors": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
IDS = {"delta.enableRowTracking": "true"}
MODES: dict[str, dict[str, str]] = {
    "moved": {},
    "moved, with changes and ids": {**CHANGES, **IDS},
    "vectors": VECTORS,
    "vectors, with changes and ids": {**VECTORS, **CHANGES, **IDS},
    "moved, by name": {**CHANGES, **IDS, "delta.columnMapping.mode": "name"},
}
every_mode = pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
UTC = dt.timezone.utc
INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("p", pa.string()), ("n", pa.int32()), ("s", INNER), ("l", pa.list_(pa.int64())),
        ("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(6, 2)),
    ]
)  # fmt: skip
Row = dict[str, Any]


def row(number: int) -> Row:
    return {
        "id": number,
        "p": ("a", "b", None)[number % 3],
        "n": None if number % 4 == 0 else number,
        "s": None if number % 5 == 0 else {"x": number, "y": f"y{number}"},
        "l": [number] * (number % 3),
        "at": dt.datetime(2026, 1, 1, tzinfo=UTC) + dt.timedelta(days=number),
        "d": decimal.Decimal(number) / 4,
    }


def table_of(properties: Mapping[str, str], files: int = 3, each: int = 6, **options: Any) -> DeltaTable:
    table = DeltaTable.create(memory(), SCHEMA, properties=properties, environment=environment(), **options)
    for file in range(files):
        table.append(pa.Table.from_pylist([row(file * each + n) for n in range(each)], schema=SCHEMA))
    return table


def rows(table: DeltaTable, *columns: str) -> dict[int, Row]:
    found = table.snapshot().scan([*SCHEMA.names, *columns]).to_arrow().to_pylist()
    assert len({each["id"] for each in found}) == len(found)
    return {each["id"]: each for each in found}


def stored(table: DeltaTable) -> dict[str, bytes]:
    store = table.snapshot().reader.store
    assert isinstance(store, MemoryStore)
    return objects(store)


def commit_info(table: DeltaTable, version: int) -> dict[str, Any]:
    return info(table.snapshot().reader.store, version)


def changes(table: DeltaTable, version: int) -> list[tuple[str, int, Any]]:
    found = table.changes(version, version).to_arrow().to_pylist()
    return sorted(((each["_change_type"], each["id"], each["n"]) for each in found), key=str)


# The arguments of each update, and the effect of the update on a row.
UPDATES: list[tuple[dict[str, Any], Callable[[Row], Row]]] = [
    ({"updates": {"n": "n + 1"}}, lambda r: {"n": None if r["n"] is None else r["n"] + 1}),
    ({"updates": {"p": "'c'", "n": "id"}}, lambda r: {"p": "c", "n": r["id"]}),
    ({"updates": {"id": "id + 100", "n": "id"}}, lambda r: {"id": r["id"] + 100, "n": r["id"]}),
    ({"updates": {"P": col("s.y")}}, lambda r: {"p": r["s"] and r["s"]["y"]}),
    ({"updates": {"s.x": "7"}}, lambda r: {"s": {"x": 7, "y": r["s"] and r["s"]["y"]}}),
    ({"updates": {"s.x": "s.x + n", "s.y": "p"}}, lambda r: {"s": {"x": plus(r["s"], r["n"]), "y": r["p"]}}),
    ({"updates": {"at": "current_timestamp()"}}, lambda r: {"at": dt.datetime.fromtimestamp(NOW / 1000, UTC)}),
    ({"updates": {"d": "CASE WHEN n > 5 THEN d ELSE 0 END"}}, lambda r: {"d": r["d"] if (r["n"] or 0) > 5 else 0}),
    ({"new_values": {"p": "it's", "l": [1, None]}}, lambda r: {"p": "it's", "l": [1, None]}),
    ({"new_values": {"n": None, "s": {"x": 1, "y": None}}}, lambda r: {"n": None, "s": {"x": 1, "y": None}}),
    ({"updates": {"n": "1"}, "new_values": {"d": 2}}, lambda r: {"n": 1, "d": decimal.Decimal(2)}),
]
CONDITIONS: list[tuple[Any, Callable[[Row], bool]]] = [
    (None, lambda r: True),
    ("p = 'a'", lambda r: r["p"] == "a"),
    ("n > 4 AND n < 9", lambda r: r["n"] is not None and 4 < r["n"] < 9),
    ("s IS NULL OR id = 3", lambda r: r["s"] is None or r["id"] == 3),
    (col("id") >= 6, lambda r: r["id"] >= 6),
    ("n IS NULL", lambda r: r["n"] is None),
]


def plus(inner: Any, number: Any) -> Any:
    return None if inner is None or number is None else inner["x"] + number


@every_mode
@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["", "p"])
def test_rows_are_those_of_a_model(properties: dict[str, str], partition_by: list[str]) -> None:
    """Successive updates, each of which updates all rows, including rows that earlier updates wrote."""
    rng = random.Random(f"{properties}{partition_by}")
    table = table_of(properties, partition_by=partition_by)
    for _ in range(12):
        (arguments, change), (where, holds) = rng.choice(UPDATES), rng.choice(CONDITIONS)
        before = rows(table, *tracked(properties))
        chosen = {number: each for number, each in before.items() if holds(each)}
        if any((each["id"] + 100) in before for each in chosen.values()):
            continue
        result = table.update(where=where, **arguments)
        assert result.skipped == (not chosen)
        if not chosen:
            continue
        expected = dict(before)
        for number in chosen:
            del expected[number]
        for each in chosen.values():
            new = {**each, **change(each)}
            if properties.get("delta.enableRowTracking"):
                new["_metadata.row_commit_version"] = result.version
            expected[new["id"]] = new
        assert rows(table, *tracked(properties)) == expected, (where, arguments)
        assert result.operation_metrics["numUpdatedRows"] == str(len(chosen))
        if "delta.enableChangeDataFeed" in properties:
            images = [("update_preimage", each) for each in chosen.values()]
            images += [("update_postimage", {**each, **change(each)}) for each in chosen.values()]
            found = [(kind, each["id"], each["n"]) for kind, each in images]
            assert changes(table, result.version) == sorted(found, key=str)
    assert table.version > 6


def tracked(properties: Mapping[str, str]) -> list[str]:
    on = "delta.enableRowTracking" in properties
    return ["_metadata.row_id", "_metadata.row_commit_version"] if on else []


@every_mode
def test_files_that_cannot_match_are_left_alone(properties: dict[str, str]) -> None:
    table = table_of(properties)
    before = set(table.snapshot().files()["path"].to_pylist())
    metrics = table.update({"n": "0"}, "id = 7").operation_metrics
    after = set(table.snapshot().files()["path"].to_pylist())
    by_vectors = "delta.enableDeletionVectors" in properties
    assert len(before - after) == (0 if by_vectors else 1)
    assert len(after - before) == 1
    assert metrics["numCopiedRows"] == ("0" if by_vectors else "5")
    assert metrics["numDeletionVectorsAdded"] == ("1" if by_vectors else "0")


def test_no_matching_row_makes_no_commit() -> None:
    table = table_of({})
    version = table.version
    assert table.update({"n": "0"}, "id = 700").skipped
    assert table.version == version
    result = table.update({"n": "0"}, "id = 700", txn=("job", 1))
    assert not result.skipped and table.version == version + 1
    assert table.update({"n": "0"}, txn=("job", 1)).skipped
    assert rows(table) == rows(table_of({}))


def test_the_commit_says_what_it_did() -> None:
    table = table_of({})
    result = table.update({"n": "n * 2"}, (col("id") > 3) & (col("p") == "a"), user_metadata="by hand")
    body = commit_info(table, result.version)
    assert body["operation"] == "UPDATE" and body["userMetadata"] == "by hand"
    assert body["operationParameters"] == {"predicate": "[\"((id > 3) AND (p = 'a'))\"]"}
    assert body["isBlindAppend"] is False
    assert "predicate" not in commit_info(table, table.update({"n": "1"}).version)["operationParameters"]


# ------------------------------------------------------------------------------------------- table rules


def column(name: str, kind: str = "long", nullable: bool = True, **metadata: Any) -> StructField:
    return StructField(name, PrimitiveType(kind), nullable, {f"delta.{key}": value for key, value in metadata.items()})


def test_generated_columns_follow_unless_they_are_named() -> None:
    schema = StructType((column("a"), column("twice", generationExpression="a * 2L"), column("c")))
    table = DeltaTable.create(memory(), schema, environment=environment())
    table.append(pa.table({"a": [1, 2, 3], "c": [0, 0, 0]}))
    table.update({"a": "a + 10"}, "a > 1")
    table.update({"a": "5", "twice": "10"}, "a = 1")
    table.update({"c": "1"}, "a = 5")
    with pytest.raises(ConstraintViolationError, match="generation expression of column twice"):
        table.update({"twice": "0"})
    found = sorted(table.snapshot().scan().to_arrow().to_pylist(), key=lambda each: each["a"])
    assert [tuple(each.values()) for each in found] == [(5, 10, 1), (12, 24, 0), (13, 26, 0)]


@every_mode
def test_new_values_keep_the_rules_of_the_table(properties: dict[str, str]) -> None:
    table = table_of(properties)
    table.add_constraint("small", "n < 100 OR n IS NULL")
    files, version = stored(table), table.version
    with pytest.raises(ConstraintViolationError, match="small") as raised:
        table.update({"n": "n * 50"}, "id IN (1, 5)")
    assert raised.value.violations == 1
    assert table.version == version and stored(table) == files
    table.update({"n": "n * 50"}, "id = 1")
    assert rows(table)[1]["n"] == 50


def test_null_in_a_required_column_is_refused() -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("s", pa.struct([pa.field("x", pa.int64(), False)]))]
    )
    table = DeltaTable.create(memory(), schema, environment=environment())
    table.append(pa.Table.from_pylist([{"id": 1, "s": {"x": 1}}], schema=schema))
    with pytest.raises(SchemaMismatchError, match="id is NOT NULL"):
        table.update(new_values={"id": None})
    with pytest.raises(SchemaMismatchError, match=r"s\.x is NOT NULL"):
        table.update({"s.x": "NULL"})


# ----------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "No columns to update"),
        ({"updates": {"nope": "1"}}, "There is no column 'nope'"),
        ({"updates": {"n": "1", "N": "2"}}, "n is updated twice"),
        ({"updates": {"s": "s", "s.x": "2"}}, r"s\.x is updated twice"),
        ({"updates": {"n": "1"}, "new_values": {"n": 2}}, "n is updated twice"),
        ({"updates": {"n": "nope + 1"}}, "There is no column 'nope'"),
        ({"updates": {"n": "1 +"}}, "The new value of n"),
        ({"updates": {"n": 1}}, "new_values"),
        ({"updates": {"n": "array(1)"}}, "The expression"),
        ({"new_values": {"n": "one"}}, "'one' is not a value for column n, which is integer"),
        ({"new_values": {"n": 1 << 40}}, "not a value for column n"),
        ({"new_values": {"n": 1.5}}, "not a value for column n"),
        ({"new_values": {"at": dt.datetime(2026, 1, 1)}}, "is not a value for column at"),
        ({"new_values": {"s": {"x": "y"}}}, "is not a value for column s"),
        ({"updates": {"n": "1"}, "where": "nope = 1"}, "There is no column 'nope'"),
        ({"updates": {"n": "n / 0"}}, "The new value of n, 'n / 0', cannot be computed for a row: divide by zero"),
        ({"updates": {"n": "id * 1000000000"}}, "cannot be computed for a row"),
        ({"updates": {"n": "s.y"}}, "cannot be computed for a row"),
    ],
)
def test_wrong_calls(arguments: dict[str, Any], message: str) -> None:
    table = table_of({})
    files, version = stored(table), table.version
    with pytest.raises(CallError, match=message):
        table.update(**arguments)
    assert table.version == version and stored(table) == files


def test_append_only_tables_refuse() -> None:
    with pytest.raises(InvalidActionError, match="append-only"):
        table_of({"delta.appendOnly": "true"}).update({"n": "1"})


def test_a_row_that_comes_meanwhile_is_a_conflict() -> None:
    table = table_of({})
    with table.transaction() as transaction:
        other = DeltaTable.open(table.snapshot().reader.store, environment=environment())
        other.append(pa.Table.from_pylist([row(50)], schema=SCHEMA))
        with pytest.raises(ConcurrentAppendError):
            update(transaction, {"n": "1"}, {}, "id >= 10", None, None)


@every_mode
def test_rows_that_are_lost_on_the_way_are_noticed(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    table, real = table_of(properties), matched_rows.moved_rows
    monkeypatch.setattr(matched_rows, "moved_rows", lambda *given: [list(each)[:-1] for each in real(*given)])
    files, version = stored(table), table.version
    with pytest.raises(RowCountError):
        table.update({"n": "1"}, "id > 4")
    assert table.version == version and stored(table) == files
