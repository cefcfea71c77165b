"""If one engine adds a constraint, the other engine enforces it, and both refuse the same rows."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import ConstraintViolationError, DeltaTable, SchemaMismatchError
from deltalog.schema import PrimitiveType, StructField, StructType
from tests.support.spark import DeltaSpark

UTC = dt.timezone.utc
LONG, TEXT = PrimitiveType("long"), PrimitiveType("string")


def frame(delta: DeltaSpark, data: pa.Table) -> Any:
    return delta.spark.createDataFrame(data)


def by_spark(delta: DeltaSpark, path: Path, data: pa.Table) -> None:
    frame(delta, data).write.format("delta").mode("append").save(str(path))


def by_deltalog(delta: DeltaSpark, path: Path, data: pa.Table) -> None:
    DeltaTable.open(str(path)).append(data)


def refused_by_both(delta: DeltaSpark, path: Path, data: pa.Table, error: type[Exception]) -> None:
    before = DeltaTable.open(str(path)).version
    with pytest.raises(error):
        by_deltalog(delta, path, data)
    with pytest.raises(Exception, match=r"(?i)violat|NOT NULL|exceed"):
        by_spark(delta, path, data)
    assert DeltaTable.open(str(path)).version == before


def same_rows(delta: DeltaSpark, path: Path) -> list[dict[str, Any]]:
    """The rows that deltalog reads, after they were compared with the rows that delta-spark reads."""
    ours = DeltaTable.open(str(path)).snapshot().scan().to_arrow()
    theirs = delta.spark.read.format("delta").load(str(path)).select(*ours.column_names).toArrow()
    found = sorted(ours.to_pylist(), key=str)
    assert found == sorted(theirs.cast(ours.schema).to_pylist(), key=str)
    return found


def longs(**columns: list[int | None]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def test_constraints_of_delta_spark(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    delta.spark.sql(f"CREATE TABLE delta.`{path}` (a BIGINT, b BIGINT NOT NULL) USING delta")
    delta.spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT Small CHECK (a < 10 AND a % 2 <> b)")
    by_deltalog(delta, path, longs(a=[1, 2], b=[0, 1]))
    refused_by_both(delta, path, longs(a=[10], b=[1]), ConstraintViolationError)
    refused_by_both(delta, path, longs(a=[None], b=[1]), ConstraintViolationError)
    refused_by_both(delta, path, longs(a=[1], b=[None]), SchemaMismatchError)
    assert same_rows(delta, path) == [{"a": 1, "b": 0}, {"a": 2, "b": 1}]
    DeltaTable.open(str(path)).drop_constraint("small")
    by_spark(delta, path, longs(a=[10], b=[0]))
    assert len(same_rows(delta, path)) == 3


def test_constraints_of_deltalog(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(str(path), longs(a=[]).schema, data=longs(a=[1]))
    table.add_constraint("Positive", "a > 0")
    by_spark(delta, path, longs(a=[2]))
    refused_by_both(delta, path, longs(a=[-1]), ConstraintViolationError)
    refused_by_both(delta, path, longs(a=[None]), ConstraintViolationError)
    delta.spark.sql(f"ALTER TABLE delta.`{path}` DROP CONSTRAINT positive")
    by_spark(delta, path, longs(a=[-1]))
    by_deltalog(delta, path, longs(a=[-2]))
    assert len(same_rows(delta, path)) == 4


GENERATED = [
    ("CAST(at AS DATE)", "DATE"),
    ("YEAR(at)", "INT"),
    ("date_format(at, 'yyyy-MM')", "STRING"),
    ("n * 2", "INT"),
    ("upper(substring(word, 1, 2))", "STRING"),
    ("date_trunc('HOUR', at)", "TIMESTAMP"),
    ("coalesce(n, 0) > 1", "BOOLEAN"),
    ("CASE WHEN n > 1 THEN 'many' ELSE concat(word, '-', n) END", "STRING"),
]
SOURCE = pa.table(
    {
        "at": pa.array([dt.datetime(2026, 1, 2, 23, 59, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "n": pa.array([7, None], pa.int32()),
        "word": ["abc", None],
    }
)


def generated_schema() -> StructType:
    kinds = {"INT": "integer", "BIGINT": "long"}
    columns = [
        StructField(f"g{i}", PrimitiveType(kinds.get(kind, kind.lower())), True, {"delta.generationExpression": text})
        for i, (text, kind) in enumerate(GENERATED)
    ]
    return StructType((*StructType.from_arrow(SOURCE.schema).fields, *columns))


@pytest.mark.parametrize("creator", ["delta-spark", "deltalog"])
def test_generated_columns(delta: DeltaSpark, tmp_path: Path, creator: str) -> None:
    path = tmp_path / "table"
    if creator == "deltalog":
        DeltaTable.create(str(path), generated_schema(), partition_by=["g0"])
    else:
        from delta.tables import DeltaTable as Builder

        builder = Builder.create(delta.spark).location(str(path)).partitionedBy("g0")
        builder = builder.addColumn("at", "TIMESTAMP").addColumn("n", "INT").addColumn("word", "STRING")
        for i, (text, kind) in enumerate(GENERATED):
            builder = builder.addColumn(f"g{i}", kind, generatedAlwaysAs=text)
        builder.execute()
    by_spark(delta, path, SOURCE)
    by_deltalog(delta, path, SOURCE)
    found = same_rows(delta, path)
    # Both engines have generated the same values, so each row occurs twice.
    assert found[::2] == found[1::2]
    table = DeltaTable.open(str(path))
    full = table.snapshot().scan().to_arrow().slice(0, 1).replace_schema_metadata()
    by_spark(delta, path, full)
    by_deltalog(delta, path, full)
    for name in ("g1", "g3"):
        index = full.schema.get_field_index(name)
        for value in (1, None):
            wrong = full.set_column(index, full.schema.field(index), pa.array([value], pa.int32()))
            if wrong != full:
                refused_by_both(delta, path, wrong, ConstraintViolationError)


def test_defaults(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    delta.spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, word STRING DEFAULT 'none', n INT DEFAULT 40 + 2, "
        "d DOUBLE DEFAULT 1.5, day DATE DEFAULT DATE'2020-01-01', at TIMESTAMP DEFAULT current_timestamp()) "
        "USING delta TBLPROPERTIES('delta.feature.allowColumnDefaults' = 'supported')"
    )
    by_spark(delta, path, longs(id=[1]))
    by_deltalog(delta, path, longs(id=[1]))
    found = same_rows(delta, path)
    moments = [row.pop("at") for row in found]
    assert found[0] == found[1] == {"id": 1, "word": "none", "n": 42, "d": 1.5, "day": dt.date(2020, 1, 1)}
    assert abs(moments[0] - moments[1]) < dt.timedelta(minutes=10)


def test_invariants_also_of_nested_fields(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"

    def rule(text: str) -> dict[str, str]:
        return {"delta.invariants": json.dumps({"expression": {"expression": text}})}

    inner = StructType((StructField("x", LONG, True, rule("s.x > 3")),))
    DeltaTable.create(str(path), StructType((StructField("a", LONG, True, rule("a < 5")), StructField("s", inner))))
    kind = pa.struct([("x", pa.int64())])

    def data(a: int | None, s: dict[str, int | None] | None) -> pa.Table:
        return pa.table({"a": pa.array([a], pa.int64()), "s": pa.array([s], kind)})

    by_deltalog(delta, path, data(1, {"x": 4}))
    by_spark(delta, path, data(2, {"x": 5}))
    for wrong in (data(5, {"x": 4}), data(None, {"x": 4}), data(1, {"x": 3}), data(1, None)):
        refused_by_both(delta, path, wrong, ConstraintViolationError)
    assert len(same_rows(delta, path)) == 2


def test_lengths_of_texts(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    delta.spark.sql(f"CREATE TABLE delta.`{path}` (c CHAR(3), v VARCHAR(3)) USING delta")
    by_deltalog(delta, path, pa.table({"c": ["ä", None], "v": ["€😀x", None]}))
    refused_by_both(delta, path, pa.table({"c": ["a"], "v": ["abcd"]}), ConstraintViolationError)
    refused_by_both(delta, path, pa.table({"c": ["abcd"], "v": ["a"]}), ConstraintViolationError)
    assert same_rows(delta, path)[0]["v"] == "€😀x"
