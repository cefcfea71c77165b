"""DELETE and UPDATE on Spark's executors; the results are compared with copies of the tables that deltalog changes
itself."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import deltalog
import spark_ext
from spark_ext.rows import delete_update, row_positions
from tests.spark.tables import action, data_files, litter, rows, versions

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
IDS = {"delta.enableRowTracking": "true"}
SHAPES: Mapping[str, tuple[dict[str, str], list[str]]] = {
    "moved": ({}, []),
    "moved, partitioned, changes": (FEED, ["p"]),
    "vectors": (VECTORS, []),
    "vectors, partitioned, changes, ids, by name": (
        {**VECTORS, **FEED, **IDS, "delta.columnMapping.mode": "name"},
        ["p"],
    ),
    "moved, ids, by id, changes": ({**IDS, **FEED, "delta.columnMapping.mode": "id"}, []),
}
INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int32()), ("s", INNER)])


def made(path: Path, properties: Mapping[str, str], partition_by: list[str]) -> deltalog.DeltaTable:
    table = deltalog.DeltaTable.create(str(path), SCHEMA, properties=dict(properties), partition_by=partition_by)
    for start in (0, 12, 24):
        table.append(
            pa.Table.from_pylist(
                [
                    {
                        "id": n,
                        "p": ("a", "b", None)[n % 3],
                        "n": None if n % 4 == 0 else 2 * n,
                        "s": None if n % 5 == 0 else {"x": n, "y": f"y{n}"},
                    }
                    for n in range(start, start + 12)
                ],
                schema=SCHEMA,
            )
        )
    return table


def contents(table: deltalog.DeltaTable) -> list[tuple[Any, ...]]:
    columns = ["id", "p", "n", "s"]
    if table.snapshot().metadata.configuration.get("delta.enableRowTracking"):
        columns += ["_metadata.row_id", "_metadata.row_commit_version"]
    return sorted(tuple(map(str, row.values())) for row in table.snapshot().scan(columns).to_arrow().to_pylist())


def changes(table: deltalog.DeltaTable) -> list[tuple[Any, ...]]:
    found = table.changes(table.version).to_arrow().select(["_change_type", "id", "p", "n", "s"])
    return sorted(tuple(map(str, row.values())) for row in found.to_pylist())


def metrics(table: str, version: int) -> dict[str, int]:
    (info,) = action(table, version, "commitInfo")
    return {name: int(value) for name, value in info["operationMetrics"].items()}


# Pairs of assignments (None: the rows are deleted) and a condition (None: all rows).
STATEMENTS: tuple[tuple[dict[str, str] | None, str | None], ...] = (
    (None, "id % 7 = 3"),
    ({"n": "n + 1"}, "id % 3 = 1"),
    ({"p": "'c'", "n": "cast(id as int)"}, "p = 'a' AND id > 4"),
    ({"s.x": "7"}, "s IS NULL OR id < 5"),
    ({"s.x": "s.x + n", "s.y": "concat(p, '!')"}, "id BETWEEN 7 AND 16"),
    (None, "p = 'b'"),
    ({"p": "upper(p)"}, None),
    (None, "n IS NULL"),
    (None, None),
)
# A deletion, an update that moves rows to another partition, and an update of struct fields.
USUAL_STATEMENTS = tuple(STATEMENTS[number] for number in (0, 2, 4))
COUNTED = (
    *("numDeletedRows", "numUpdatedRows", "numCopiedRows", "numRemovedFiles"),
    *("numDeletionVectorsAdded", "numDeletionVectorsUpdated", "numDeletionVectorsRemoved"),
)


@pytest.mark.parametrize(
    ("properties", "partition_by"),
    [pytest.param(*shape, id=name, marks=() if "ids" in name else pytest.mark.long) for name, shape in SHAPES.items()],
)
def test_the_same_rows_changes_ids_and_metrics_as_by_deltalog(
    spark: Any, tmp_path: Path, properties: dict[str, str], partition_by: list[str], is_long: bool
) -> None:
    twin, path = made(tmp_path / "twin", properties, partition_by), str(tmp_path / "table")
    shutil.copytree(tmp_path / "twin", path)
    table, ours = spark_ext.DeltaTable.forPath(spark, path), deltalog.DeltaTable.open(path)
    for sets, where in STATEMENTS if is_long else USUAL_STATEMENTS:
        if sets is None:
            twin.delete(where)
            result = table.delete(where)
        else:
            twin.update(sets, where)
            result = table.update(where, sets)
        assert (result.committed, result.version) == (True, twin.version), (sets, where)
        assert contents(ours) == contents(twin), (sets, where)
        assert rows(table.toDF().select("id")) == [
            (int(each[0]),) for each in sorted(contents(twin), key=lambda r: int(r[0]))
        ]
        if "delta.enableChangeDataFeed" in properties:
            assert changes(ours) == changes(twin), (sets, where)
        found, wanted = (metrics(each, twin.version) for each in (path, str(tmp_path / "twin")))
        # Later statements change files that the two engines have written differently.
        names = [name for name in COUNTED if name in wanted and (sets, where) == STATEMENTS[0]]
        names += [name for name in ("numDeletedRows", "numUpdatedRows") if name in wanted]
        assert {name: found.get(name) for name in names} == {name: wanted[name] for name in names}, (sets, where)
    assert ours.check(deep=True).ok and litter(path) == []


def test_many_rows_of_a_file_are_found_by_bitmaps(spark: Any, table: str) -> None:
    everything = spark.range(0, 100_000, 1, 1).selectExpr("id", "id % 10 AS n")
    spark_ext.write(everything).options(**VECTORS).save(table)
    assert spark_ext.DeltaTable.forPath(spark, table).delete("id % 3 = 0 OR id BETWEEN 65530 AND 65540").committed
    left = [n for n in range(100_000) if n % 3 and not 65530 <= n <= 65540]
    ids = deltalog.DeltaTable.open(table).snapshot().scan(["id"]).to_arrow()["id"].to_pylist()
    assert sorted(ids) == left
    assert metrics(table, 1)["numDeletedRows"] == 100_000 - len(left)
    (add,) = action(table, 1, "add")
    assert add["deletionVector"]["cardinality"] == 100_000 - len(left)


def test_what_the_log_decides_is_not_read(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(0, 30, 1, 2).selectExpr("id", "id % 3 AS p")).partitionBy("p").save(table)
    for name in data_files(table):
        os.truncate(os.path.join(table, name), 0)  # a scan would fail
    result = spark_ext.DeltaTable.forPath(spark, table).alias("t").delete("t.p = 1")
    assert (result.committed, result.num_removed_rows, result.num_files) == (True, 10, 0)
    assert {each["partitionValues"]["p"] for each in action(table, 1, "remove")} == {"1"}
    assert spark_ext.DeltaTable.forPath(spark, table).delete("p > 7").reason == "no row matches"
    assert spark_ext.DeltaTable.forPath(spark, table).delete().num_removed_rows == 20
    assert action(table, 2, "commitInfo")[0]["operationParameters"] == {"predicate": '["true"]'}


def test_columns_of_spark_as_conditions_and_values(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(0, 6, 1, 1).selectExpr("id", "id AS n")).save(table)
    changing = spark_ext.DeltaTable.forName(spark, f"delta.`{table}`").alias("t")
    changing.update(F.col("t.id") == 2, {"n": F.col("t.n") + 10, "t.id": F.lit(-2)})
    changing.delete(F.col("id") > 3)
    assert rows(changing.toDF().select("t.id", "t.n")) == [(-2, 12), (0, 0), (1, 1), (3, 3)]
    assert not changing.delete(F.col("id") > 100).committed
    assert versions(table) == [0, 1, 2]


def test_a_subquery_may_decide(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(0, 6, 1, 1)).save(table)
    spark_ext.read(spark).load(table).createOrReplaceTempView("same_table")
    spark_ext.DeltaTable.forPath(spark, table).delete("id = (SELECT max(id) FROM same_table)")
    assert rows(spark_ext.read(spark).load(table)) == [(0,), (1,), (2,), (3,), (4,)]


def ruled(table: str) -> deltalog.DeltaTable:
    fields = [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "g", "type": "long", "nullable": True, "metadata": {"delta.generationExpression": "id * 2"}},
        {"name": "v", "type": "string", "nullable": True, "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}},
    ]
    schema = deltalog.schema.StructType.from_json(json.dumps({"type": "struct", "fields": fields}))
    made = deltalog.DeltaTable.create(table, schema)
    made.add_constraint("small", "n < 100")
    made.append(pa.table({"id": pa.array(range(5), pa.int64()), "n": pa.array([1, 2, 3, 4, None], pa.int32())}))
    return made


def test_rules_of_the_table_hold_for_new_values(spark: Any, table: str) -> None:
    with pytest.raises(deltalog.ConstraintViolationError):
        ruled(table)  # null is a violation
    changing = spark_ext.DeltaTable.forPath(spark, table)
    spark_ext.write(spark.range(0, 4, 1, 1).selectExpr("id", "cast(id as int) AS n")).mode("append").save(table)
    before, version = data_files(table), versions(table)[-1]
    for sets, error in (
        ({"n": "n + 98"}, deltalog.ConstraintViolationError),
        ({"id": "CASE WHEN n > 1 THEN NULL ELSE id END"}, deltalog.SchemaMismatchError),
        ({"n": "3000000000 + id"}, deltalog.SchemaMismatchError),
        ({"n": "'x' || id"}, deltalog.SchemaMismatchError),
        ({"v": "'four'"}, deltalog.ConstraintViolationError),
        ({"g": "7"}, deltalog.ConstraintViolationError),
    ):
        with pytest.raises(error):
            changing.update("id >= 0", sets)
        assert versions(table)[-1] == version and data_files(table) == before and litter(table) == [], sets
    assert changing.update("id = 3", {"id": "30", "v": "'ab '"}).num_rows == 1
    assert rows(changing.toDF(), "id") == [(0, 0, 0, None), (1, 1, 2, None), (2, 2, 4, None), (30, 3, 60, "ab ")]


@pytest.mark.parametrize(
    ("sets", "what"),
    [
        ({}, "set is an empty dict"),
        ({"x": "1"}, "no column x"),
        ({"id": "1", "ID": "2"}, "set twice"),
        ({"id": 3}, "only SQL text and Columns of Spark, not 3 of type int"),
    ],
)
def test_wrong_calls(spark: Any, table: str, sets: dict[str, Any], what: str) -> None:
    spark_ext.write(spark.range(3)).save(table)
    with pytest.raises(deltalog.CallError, match=what):
        spark_ext.DeltaTable.forPath(spark, table).update("id = 1", sets)
    assert versions(table) == [0]


def test_wrong_statements_are_refused_whatever_rows_there_are(spark: Any, tmp_path: Path) -> None:
    """The error for a wrong statement is raised even for a table without rows, and even if no row satisfies the
    condition."""
    for number, start in enumerate((0, 6)):
        path = str(tmp_path / str(number))
        spark_ext.write(spark.sql(f"SELECT id, named_struct('a', id) AS s FROM range({start}, 6)")).save(path)
        for statement, what in (
            ("DELETE FROM {} WHERE abs(nope) = 9", "nope"),
            ("DELETE FROM {} WHERE id > 99 AND abs(nope) = 9", "nope"),
            ("UPDATE {} SET id = 1 WHERE id > 99 AND abs(nope) = 9", "nope"),
            ("UPDATE {} SET id = nope WHERE id = 99", "nope"),
            ("UPDATE {} SET id = nope WHERE abs(id) = 99", "nope"),
            ("UPDATE {} SET id = date'2026-01-01' WHERE id = 99", "do not fit"),
            ("UPDATE {} SET s = named_struct('b', 1) WHERE abs(id) = 99", "lacks the field a"),
        ):
            with pytest.raises((deltalog.CallError, deltalog.SchemaMismatchError), match=what):
                spark_ext.sql(spark, statement.format(f"delta.`{path}`"))
        assert versions(path) == [0]


def test_an_append_only_table_is_refused(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(3)).option("delta.appendOnly", "true").save(table)
    with pytest.raises(deltalog.errors.InvalidActionError, match="append-only"):
        spark_ext.DeltaTable.forPath(spark, table).delete("id = 1")


def test_a_concurrent_change_of_the_same_rows_is_a_conflict(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_ext.write(spark.range(0, 6, 1, 1)).save(table)
    found = row_positions.positions

    def meanwhile(*args: Any) -> Any:
        deltalog.DeltaTable.open(table).delete("id = 5")
        return found(*args)

    monkeypatch.setattr(row_positions, "positions", meanwhile)
    before = len(data_files(table))
    with pytest.raises(deltalog.CommitConflictError):
        spark_ext.DeltaTable.forPath(spark, table).update("id = 1", {"id": "10"})
    assert versions(table) == [0, 1] and len(data_files(table)) == before + 1 and litter(table) == []


def test_rows_that_are_lost_on_the_way_are_noticed(spark: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_ext.write(spark.range(0, 6, 1, 1)).save(table)
    kept = delete_update.Removal.kept
    monkeypatch.setattr(delete_update.Removal, "kept", lambda removal: kept(removal).where("id <> 2"))
    before = data_files(table)
    with pytest.raises(deltalog.errors.RowCountError, match="5 rows were found for new files, and 4 were written"):
        spark_ext.DeltaTable.forPath(spark, table).delete("id = 1")
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []


def test_tables_are_found(spark: Any, table: str, tmp_path: Path) -> None:
    assert not spark_ext.DeltaTable.isDeltaTable(spark, table)
    spark_ext.write(spark.range(3)).save(table)
    assert spark_ext.DeltaTable.isDeltaTable(spark, table)
    found = spark_ext.DeltaTable.forPath(spark, table)
    assert [row["operation"] for row in found.history(1).collect()] == ["WRITE"]
    assert found.detail().collect()[0]["numFiles"] == action(table, 0, "add").__len__()
    with pytest.raises(deltalog.CallError, match="storage_options"):
        spark_ext.DeltaTable.forPath(spark, table, {"fs.file.impl": "x"})
    with pytest.raises(deltalog.TableNotFoundError):
        spark_ext.DeltaTable.forPath(spark, str(tmp_path / "other"))
