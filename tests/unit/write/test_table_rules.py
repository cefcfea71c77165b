"""Every write enforces constraints, invariants, generated and default columns, and string lengths, with errors that
name the rule."""

from __future__ import annotations

import datetime as dt
import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import CallError, ConstraintViolationError, DeltaTable, SchemaMismatchError, UnsupportedFeatureError
from deltalog.engine import AddFile
from deltalog.errors import ConcurrentAppendError, InvalidPropertyError
from deltalog.rows.overwrite import replace_where
from deltalog.schema import ArrayType, PrimitiveType, StructField, StructType
from tests.support.core import NOW, environment, info, memory

UTC = dt.timezone.utc
LONG, TEXT, DATE, TIMESTAMP = (PrimitiveType(n) for n in ("long", "string", "date", "timestamp"))


def column(name: str, kind: Any = LONG, nullable: bool = True, **metadata: Any) -> StructField:
    return StructField(name, kind, nullable, {key.replace("__", "."): value for key, value in metadata.items()})


def invariant(text: str) -> str:
    return json.dumps({"expression": {"expression": text}})


def table_of(*columns: StructField, **options: Any) -> DeltaTable:
    return DeltaTable.create(memory(), StructType(columns), environment=environment(), **options)


def stored(table: DeltaTable) -> list[dict[str, Any]]:
    return sorted(table.snapshot().scan().to_arrow().to_pylist(), key=str)


def moment(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> dt.datetime:
    return dt.datetime(year, month, day, hour, minute, second, tzinfo=UTC)


def times(*values: dt.datetime | None) -> pa.Array:
    return pa.array(values, pa.timestamp("us", "UTC"))


# ------------------------------------------------------------------------------------ every entry point


def _append(table: DeltaTable, data: pa.Table) -> None:
    table.append(data)


def _overwrite(table: DeltaTable, data: pa.Table) -> None:
    table.overwrite(data)


def _replace_where(table: DeltaTable, data: pa.Table) -> None:
    with table.transaction() as transaction:
        replace_where(transaction, data, "a <> 100 OR a IS NULL", None, None)


def _foreign(table: DeltaTable, data: pa.Table) -> tuple[str, int]:
    """A Parquet file in the table's directory that deltalog did not write. Returns its name and size."""
    name = f"foreign-{table.version}-{data.to_pydict()}.parquet".replace("/", "")
    with table._handle.reader.store.open_output(name) as sink:
        pq.write_table(data, sink)
        return name, sink.tell()


def _add_parquet_files(table: DeltaTable, data: pa.Table) -> None:
    with table.transaction() as transaction:
        transaction.add_parquet_files([(_foreign(table, data)[0], {})])
        transaction.commit()


def _add(table: DeltaTable, data: pa.Table) -> None:
    name, size = _foreign(table, data)
    with table.transaction() as transaction:
        path = urllib.parse.quote(name)
        transaction.add(AddFile(path=path, partition_values={}, size=size, modification_time=1, data_change=True))
        transaction.commit()


WAYS = [_append, _overwrite, _replace_where, _add_parquet_files, _add]


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("bad", [[5, -1], [None]])
@pytest.mark.parametrize("where", ["constraint", "invariant"])
def test_false_and_null_violate_a_condition(where: str, bad: list[Any], write: Callable[..., None]) -> None:
    if where == "invariant":
        table = table_of(column("a", delta__invariants=invariant("a > 0")))
    else:
        table = table_of(column("a"))
        table.add_constraint("positive", "a > 0")
    version = table.version
    write(table, pa.table({"a": pa.array([5], pa.int64())}))
    with pytest.raises(ConstraintViolationError) as refused:
        write(table, pa.table({"a": pa.array(bad, pa.int64())}))
    assert refused.value.violations == 1 and refused.value.expression == "a > 0"
    assert f"a={bad[-1]}" in str(refused.value) and table.url in str(refused.value)
    assert table.snapshot().version == version + 1
    assert stored(table) == [{"a": 5}]


@pytest.mark.parametrize("write", WAYS)
def test_generated_values_must_be_those_of_the_expression(write: Callable[..., None]) -> None:
    table = table_of(column("a"), column("b", delta__generationExpression="a * 2L"))
    write(table, pa.table({"a": pa.array([1, None], pa.int64()), "b": pa.array([2, None], pa.int64())}))
    for wrong in (3, None):
        with pytest.raises(ConstraintViolationError, match="generation expression of column b"):
            write(table, pa.table({"a": pa.array([1], pa.int64()), "b": pa.array([wrong], pa.int64())}))
    assert stored(table) == [{"a": 1, "b": 2}, {"a": None, "b": None}]


@pytest.mark.parametrize("write", [_append, _overwrite, _replace_where])
def test_absent_columns_are_generated_and_given_their_defaults(write: Callable[..., None]) -> None:
    table = table_of(
        column("a"),
        column("at", TIMESTAMP),
        column("day", DATE, False, delta__generationExpression="CAST(at AS DATE)"),
        column("n", LONG, False, CURRENT_DEFAULT="40 + 2"),
        column("m", LONG, delta__generationExpression="n + 1L"),
        column("since", TIMESTAMP, CURRENT_DEFAULT="current_timestamp()"),
        partition_by=["day"],
    )
    assert {"generatedColumns", "allowColumnDefaults"} <= set(table.snapshot().protocol.writer_features or ())
    write(table, pa.table({"a": pa.array([1], pa.int64()), "at": times(moment(2026, 1, 2, 23, 59))}))
    now = dt.datetime.fromtimestamp(NOW / 1000, UTC)
    assert stored(table) == [
        {"a": 1, "at": moment(2026, 1, 2, 23, 59), "day": dt.date(2026, 1, 2), "n": 42, "m": 43, "since": now}
    ]


def test_a_null_that_is_given_is_no_absent_value() -> None:
    table = table_of(column("a"), column("b", CURRENT_DEFAULT="1"))
    table.append(pa.table({"a": pa.array([1], pa.int64()), "b": pa.array([None], pa.int64())}))
    assert stored(table) == [{"a": 1, "b": None}]
    strict = table_of(column("a"), column("b", LONG, False, CURRENT_DEFAULT="1"))
    with pytest.raises(SchemaMismatchError, match="NOT NULL"):
        strict.append(pa.table({"a": pa.array([1], pa.int64()), "b": pa.array([None], pa.int64())}))


def test_a_generated_null_in_a_column_that_has_none_is_refused() -> None:
    table = table_of(
        column("at", TIMESTAMP), column("day", DATE, False, delta__generationExpression="CAST(at AS DATE)")
    )
    with pytest.raises(SchemaMismatchError, match="day is NOT NULL"):
        table.append(pa.table({"at": times(None)}))


def test_a_default_counts_only_where_the_protocol_has_the_feature() -> None:
    table = table_of(column("a"), column("b", CURRENT_DEFAULT="1"))
    with table.transaction() as transaction:
        bare = transaction.protocol.__class__(min_reader_version=1, min_writer_version=2)
        transaction.metadata_changes.set_state(bare, transaction.metadata)
        transaction.commit()
    table.append(pa.table({"a": pa.array([1], pa.int64())}))
    assert stored(table) == [{"a": 1, "b": None}]


SIZED = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}


def test_lengths_are_kept_as_spark_keeps_them() -> None:
    char = StructField("c", TEXT, True, {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})
    table = table_of(StructField("v", TEXT, True, SIZED), char)
    table.append(pa.table({"v": ["ä€😀", "ab   ", None], "c": ["ä", "abc  ", None]}))
    assert stored(table) == [{"c": "abc", "v": "ab "}, {"c": "ä  ", "v": "ä€😀"}, {"c": None, "v": None}]
    for name in ("v", "c"):
        with pytest.raises(ConstraintViolationError, match=r"char\(3\)"):
            table.append(pa.table({name: ["abcd"]}))
    with pytest.raises(ConstraintViolationError, match=r"varchar\(3\)"):
        _add_parquet_files(table, pa.table({"v": ["abcd"], "c": ["abc"]}))


def test_nested_fields_have_invariants_too() -> None:
    inner = StructType((column("x", delta__invariants=invariant("s.x > 3")),))
    table = table_of(StructField("s", inner))
    table.append(pa.table({"s": pa.array([{"x": 4}], pa.struct([("x", pa.int64())]))}))
    with pytest.raises(ConstraintViolationError, match=r"invariant of column s\.x"):
        table.append(pa.table({"s": pa.array([None], pa.struct([("x", pa.int64())]))}))


# ----------------------------------------------------------------------------- what is not checked again


def test_rows_that_are_moved_are_not_checked_again() -> None:
    """A table may contain rows that violate the table's rules, because these rows were written in another time zone or
    before an invariant was added."""
    table = table_of(column("a"), column("b"))
    table.append(pa.table({"a": pa.array([1, 2, 3], pa.int64()), "b": pa.array([7, 7, 7], pa.int64())}))
    with table.transaction() as transaction:
        generated = column("b", delta__generationExpression="a")
        transaction.set_schema(StructType((column("a"), generated)))
        transaction.commit()
    table.delete("a = 2")
    assert stored(table) == [{"a": 1, "b": 7}, {"a": 3, "b": 7}]
    table.restore(version=1)
    assert len(stored(table)) == 3


def test_rules_that_are_staged_after_the_rows_count() -> None:
    table = table_of(column("a"))
    with table.transaction() as transaction:
        transaction.write(pa.table({"a": pa.array([-1], pa.int64())}).to_reader())
        transaction.metadata_changes.set_constraint("positive", "a > 0")
        with pytest.raises(ConstraintViolationError):
            transaction.commit()


# ------------------------------------------------------------------------ errors that name the feature


@pytest.mark.parametrize(
    ("columns", "feature", "word"),
    [
        ([column("a", delta__invariants=invariant("soundex(a) = 'x'"))], "invariants", "soundex"),
        ([column("a", delta__invariants="{}")], "invariants", "JSON"),
        ([column("a", delta__invariants=invariant("a + 1"))], "invariants", "condition"),
        ([column("a"), column("b", delta__generationExpression="hash(a)")], "generatedColumns", "hash"),
        ([column("a"), column("b", delta__generationExpression="rand()")], "generatedColumns", "rand"),
        ([column("a"), column("b", CURRENT_DEFAULT="uuid()")], "allowColumnDefaults", "uuid"),
        ([column("a"), column("b", CURRENT_DEFAULT="a")], "allowColumnDefaults", "a"),
        (
            [column("a"), StructField("v", ArrayType(TEXT), True, {"__CHAR_VARCHAR_TYPE_STRING": "array<char(2)>"})],
            "char/varchar",
            "char(2)",
        ),
    ],
)
def test_what_cannot_be_honoured_refuses_new_rows_by_name(columns: list[StructField], feature: str, word: str) -> None:
    data = pa.table({"a": pa.array([1], pa.int64())})
    plain = StructType(tuple(StructField(c.name, c.data_type) for c in columns))
    table = DeltaTable.create(memory(), plain, environment=environment(), data=data)
    with table.transaction() as transaction:
        transaction.set_schema(StructType(tuple(columns)))
        transaction.commit()
    with pytest.raises(UnsupportedFeatureError) as refused:
        table.append(data)
    assert refused.value.features == (feature,) and word in str(refused.value)
    table.delete("a = 1")
    assert stored(table) == []


# --------------------------------------------------------------------------------------------- the verbs


def test_adding_and_dropping_constraints() -> None:
    table = table_of(column("a"), data=pa.table({"a": pa.array([1, 2, None], pa.int64())}))
    with pytest.raises(ConstraintViolationError) as refused:
        table.add_constraint("Positive", "a > 1")
    assert refused.value.violations == 2
    result = table.add_constraint("Positive", "a > 0 OR a IS NULL")
    snapshot = table.snapshot()
    assert snapshot.metadata.configuration == {"delta.constraints.positive": "a > 0 OR a IS NULL"}
    assert "checkConstraints" in (snapshot.protocol.writer_features or ())
    logged = info(table._handle.reader.store, result.version)
    assert logged["operation"] == "ADD CONSTRAINT"
    assert logged["operationParameters"] == {"name": "Positive", "expr": "a > 0 OR a IS NULL"}
    with pytest.raises(CallError, match="already"):
        table.add_constraint("POSITIVE", "a > 5")
    with pytest.raises(InvalidPropertyError, match="add_constraint"):
        table.set_properties({"delta.constraints.other": "false"})
    with pytest.raises(CallError, match="Its constraints: positive"):
        table.drop_constraint("other")
    assert table.drop_constraint("other", if_exists=True).skipped
    table.drop_constraint("positive")
    assert table.snapshot().metadata.configuration == {}
    table.append(pa.table({"a": pa.array([-1], pa.int64())}))


@pytest.mark.parametrize("expression", ["a + 1", "nothing > 0", "rand() > 0", "a >", "", "current_date()"])
def test_constraints_that_are_no_condition_on_rows_are_refused(expression: str) -> None:
    table = table_of(column("a"))
    with pytest.raises(CallError):
        table.add_constraint("c", expression)
    assert table.snapshot().version == 0


@pytest.mark.parametrize("write", WAYS)
def test_a_condition_that_looks_at_no_column_counts_too(write: Callable[..., None]) -> None:
    table = table_of(column("a"))
    table.add_constraint("closed", "1 = 0")
    with pytest.raises(ConstraintViolationError, match="closed"):
        write(table, pa.table({"a": pa.array([1], pa.int64())}))


def test_constraints_look_at_all_files_and_not_at_deleted_rows() -> None:
    table = table_of(column("a"), properties={"delta.enableDeletionVectors": "true"})
    for value in (1, -1, 2):
        table.append(pa.table({"a": pa.array([value, 10], pa.int64())}))
    with pytest.raises(ConstraintViolationError, match="1 row violates"):
        table.add_constraint("positive", "a > 0")
    table.delete("a = -1")
    table.add_constraint("positive", "a > 0")
    table.add_constraint("always", "1 = 1")


def test_rows_that_come_in_meanwhile_conflict_with_a_new_constraint() -> None:
    table = table_of(column("a"))
    other = DeltaTable.open(table._handle.reader.store, environment=environment())
    with table.transaction() as transaction:
        transaction.read_whole_table()
        transaction.metadata_changes.set_constraint("positive", "a > 0")
        other.append(pa.table({"a": pa.array([-1], pa.int64())}))
        with pytest.raises(ConcurrentAppendError):
            transaction.commit("ADD CONSTRAINT")


def test_an_append_that_knows_nothing_of_a_new_constraint_is_not_committed() -> None:
    table = table_of(column("a"))
    other = DeltaTable.open(table._handle.reader.store, environment=environment())
    table.add_constraint("positive", "a > 0")
    with pytest.raises(Exception) as refused:
        other.append(pa.table({"a": pa.array([-1], pa.int64())}))
    assert type(refused.value).__name__ in ("MetadataChangedError", "ProtocolChangedError", "ConstraintViolationError")
    assert stored(table) == []
