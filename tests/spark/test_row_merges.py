"""MERGE on Spark's executors; the results are compared with those of deltalog, which runs the same merges on copies of
the tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import deltalog
import spark_ext
from spark_ext.rows import merging, row_positions
from spark_ext.rows.delete_update import Rows
from tests.spark.tables import action, data_files, litter, rows, versions

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
IDS = {"delta.enableRowTracking": "true"}
SHAPES: Mapping[str, tuple[dict[str, str], list[str]]] = {
    "moved, ids, by id": ({**IDS, "delta.columnMapping.mode": "id"}, []),
    "moved, partitioned, changes": (FEED, ["p"]),
    "vectors, partitioned, changes, ids, by name": (
        {**VECTORS, **FEED, **IDS, "delta.columnMapping.mode": "name"},
        ["p"],
    ),
    "vectors": (VECTORS, []),
}
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int32())])
SOURCE = "SELECT id, if(id % 2 = 0, 'a', 'c') AS p, cast(100 + id AS int) AS n FROM range({}, {}, {}, 2)"


def made(path: Path, properties: Mapping[str, str], partition_by: list[str]) -> deltalog.DeltaTable:
    table = deltalog.DeltaTable.create(str(path), SCHEMA, properties=dict(properties), partition_by=partition_by)
    for start in (0, 12):
        data = [
            {"id": n, "p": ("a", "b", None)[n % 3], "n": None if n % 4 == 0 else n} for n in range(start, start + 12)
        ]
        table.append(pa.Table.from_pylist(data, schema=SCHEMA))
    return table


def contents(table: deltalog.DeltaTable, ids: bool = True) -> list[tuple[Any, ...]]:
    columns = ["id", "p", "n"]
    if ids and table.snapshot().metadata.configuration.get("delta.enableRowTracking"):
        columns += ["_metadata.row_id", "_metadata.row_commit_version"]
    return sorted(tuple(map(str, row.values())) for row in table.snapshot().scan(columns).to_arrow().to_pylist())


def changes(table: deltalog.DeltaTable) -> list[tuple[Any, ...]]:
    found = table.changes(table.version).to_arrow().select(["_change_type", "id", "p", "n"])
    return sorted(tuple(map(str, row.values())) for row in found.to_pylist())


def metrics(table: str) -> dict[str, int]:
    (info,) = action(table, versions(table)[-1], "commitInfo")
    return {name: int(value) for name, value in info["operationMetrics"].items()}


# For each merge: values for the source rows, and functions that add clauses to the merge builder of either engine.
Step = tuple[tuple[int, int, int], Callable[[Any], Any], Callable[[Any], Any]]
STEPS: Mapping[str, Step] = {
    "upsert": (
        (5, 30, 3),
        lambda core: core.when_matched_update_all().when_not_matched_insert_all(),
        lambda ours: ours.whenMatchedUpdateAll().whenNotMatchedInsertAll(),
    ),
    "all clauses in order": (
        (0, 40, 4),
        lambda core: (
            core.when_matched_delete("s.id > 20")
            .when_matched_update({"n": "t.n + s.n", "p": "'m'"}, "t.n IS NOT NULL")
            .when_matched_update({"n": "0"})
            .when_not_matched_insert({"id": "s.id", "n": "-1"}, "s.id > 33")
            .when_not_matched_insert({"id": "s.id", "p": "s.p"})
            .when_not_matched_by_source_update({"n": "t.n * 10"}, "t.id < 6")
            .when_not_matched_by_source_delete("t.p = 'b'")
        ),
        lambda ours: (
            ours.whenMatchedDelete("s.id > 20")
            .whenMatchedUpdate("t.n IS NOT NULL", {"n": "t.n + s.n", "t.p": "'m'"})
            .whenMatchedUpdate(set={"n": "0"})
            .whenNotMatchedInsert("s.id > 33", {"id": "s.id", "n": "-1"})
            .whenNotMatchedInsert(values={"id": "s.id", "p": "s.p"})
            .whenNotMatchedBySourceUpdate("t.id < 6", {"n": "t.n * 10"})
            .whenNotMatchedBySourceDelete("t.p = 'b'")
        ),
    ),
    "insert only": (
        (30, 60, 2),
        lambda core: core.when_not_matched_insert_all("s.id <> 40"),
        lambda ours: ours.whenNotMatchedInsertAll("s.id <> 40"),
    ),
    "delete what the source lacks": (
        (0, 20, 1),
        lambda core: core.when_not_matched_by_source_delete(),
        lambda ours: ours.whenNotMatchedBySourceDelete(),
    ),
}


USUAL_STEPS = ("upsert", "all clauses in order")


@pytest.mark.parametrize(
    ("properties", "partition_by"),
    [pytest.param(*shape, id=name, marks=() if "ids" in name else pytest.mark.long) for name, shape in SHAPES.items()],
)
def test_the_same_rows_changes_and_metrics_as_by_deltalog(
    spark: Any, tmp_path: Path, properties: dict[str, str], partition_by: list[str], is_long: bool
) -> None:
    twin, path = made(tmp_path / "twin", properties, partition_by), str(tmp_path / "table")
    shutil.copytree(tmp_path / "twin", path)
    table, ours = spark_ext.DeltaTable.forPath(spark, path), deltalog.DeltaTable.open(path)
    for name in STEPS if is_long else USUAL_STEPS:
        numbers, core, clauses = STEPS[name]
        source = spark.sql(SOURCE.format(*numbers))
        given = pa.Table.from_pylist([row.asDict() for row in source.collect()], schema=SCHEMA)
        core(twin.merge(given, "t.id = s.id", "s", "t")).execute()
        result = clauses(table.alias("t").merge(source.alias("s"), "t.id = s.id")).execute()
        assert (result.committed, result.version) == (True, twin.version), name
        # Row ids are not compared, because new rows get them in the order of the new files.
        assert contents(ours, ids=False) == contents(twin, ids=False), name
        if "delta.enableChangeDataFeed" in properties:
            assert changes(ours) == changes(twin), name
        found, wanted = (metrics(each) for each in (path, str(tmp_path / "twin")))
        names = [each for each in wanted if "Rows" in each and ("Copied" not in each and "Output" not in each)]
        assert {each: found[each] for each in names} == {each: wanted[each] for each in names}, name
        assert not source.storageLevel.useMemory
    if "delta.enableRowTracking" in properties:
        old = [row[:1] + row[3:4] for row in contents(twin) if int(row[0]) < 24]
        assert [row[:1] + row[3:4] for row in contents(ours) if int(row[0]) < 24] == old
    assert ours.check(deep=True).ok and litter(path) == []


def simple(spark: Any, table: str, **properties: str) -> spark_ext.DeltaTable:
    spark_ext.write(spark.sql("SELECT id, id AS n FROM range(0, 6, 1, 2)")).options(**properties).save(table)
    return spark_ext.DeltaTable.forPath(spark, table).alias("t")


def test_several_matches_of_one_row_are_refused(spark: Any, table: str) -> None:
    target, before = simple(spark, table), data_files(table)
    twice = spark.sql("SELECT * FROM VALUES (1L, 10L), (1L, 11L), (2L, 5L) AS s(id, n)").alias("s")
    with pytest.raises(deltalog.CallError, match="Several rows of the source match one row of the table, for 1 rows"):
        target.merge(twice, "t.id = s.id").whenMatchedUpdate("s.n > 10", {"n": "s.n"}).execute()
    assert versions(table) == [0] and data_files(table) == before
    result = target.merge(twice, "t.id = s.id").whenMatchedDelete().execute()
    assert (result.num_removed_rows, rows(target.toDF())) == (2, [(0, 0), (3, 3), (4, 4), (5, 5)])


def test_inserts_alone_are_one_anti_join(spark: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = simple(spark, table)
    monkeypatch.setattr(row_positions, "outcomes", None)  # fails if a job searches the table for matched rows
    source = spark.sql("SELECT id, -id AS n FROM range(4, 9, 1, 2)").alias("s")
    result = target.merge(source, F.expr("t.id = s.id")).whenNotMatchedInsertAll().execute()
    assert (result.num_rows, result.num_removed_files) == (3, 0)
    assert rows(target.toDF())[-3:] == [(6, -6), (7, -7), (8, -8)]
    again = target.merge(source, "t.id = s.id").whenNotMatchedInsertAll().execute()
    assert (again.committed, again.reason, versions(table)) == (False, "no row changes", [0, 1])


def test_keys_of_the_source_and_conditions_leave_out_files(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = simple(spark, table)  # one file with ids 0 to 2, and one with ids 3 to 5
    left_out: list[int] = []
    of = Rows.of

    def counted(*args: Any) -> Any:
        found = of(*args)
        left_out.append(deltalog.DeltaTable.open(table).snapshot().num_files - len(found.entries))
        return found

    monkeypatch.setattr(Rows, "of", counted)
    source = spark.sql("SELECT 1L AS id, 7L AS n").alias("s")
    target.merge(source, "t.id = s.id").whenMatchedUpdateAll().execute()
    target.merge(source, "t.n + 0 = s.n AND t.id < 2").whenMatchedDelete().execute()
    other = spark.sql("SELECT 100L AS id").alias("s")
    target.merge(other, "t.id = s.id").whenMatchedDelete().whenNotMatchedBySourceDelete("t.id > 4").execute()
    assert left_out == [1, 1, 1]
    assert rows(target.toDF()) == [(0, 0), (2, 2), (3, 3), (4, 4)]


def test_columns_are_added_by_schema_evolution(spark: Any, table: str) -> None:
    target = simple(spark, table)
    source = spark.sql("SELECT 1L AS id, 2.5D AS x, 'y' AS other UNION ALL SELECT 9L, 3.5D, 'z'").alias("s")
    with pytest.raises(deltalog.CallError, match="no column n, which updating or inserting all columns needs"):
        target.merge(source, "t.id = s.id").whenMatchedUpdateAll().execute()
    merge = target.merge(source, "t.id = s.id").withSchemaEvolution()
    merge.whenMatchedUpdate(set={"x": "s.x"}).whenNotMatchedInsert(values={"id": "s.id", "x": "s.x"}).execute()
    assert target.toDF().columns == ["id", "n", "x"]
    assert rows(target.toDF(), "id")[:2] == [(0, 0, None), (1, 1, 2.5)]
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert target.toDF().columns == ["id", "n", "x", "other"]
    found = rows(target.toDF(), "id")
    assert (found[1], found[-1]) == ((1, 1, 2.5, "y"), (9, None, 3.5, "z"))


def test_a_source_that_changes_in_between_is_noticed(spark: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, before = simple(spark, table), data_files(table)
    staged = merging._Plan.stage

    def less(plan: Any, *args: Any) -> Any:
        plan.source = plan.source.where("s.id <> 2")
        return staged(plan, *args)

    monkeypatch.setattr(merging._Plan, "stage", less)
    source = spark.sql("SELECT id, -id AS n FROM range(1, 9, 1, 2)").alias("s")
    with pytest.raises(deltalog.errors.RowCountError, match="returns the same rows when repeated"):
        target.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda merge: merge, "no clause"),
        (
            lambda merge: merge.whenMatchedDelete().whenMatchedUpdateAll(),
            "Only the last of the clauses",
        ),
        (lambda merge: merge.whenMatchedUpdate(set={}), "set is an empty dict"),
        (lambda merge: merge.whenNotMatchedInsert(values={"x": "1"}), "no column x"),
    ],
)
def test_wrong_calls(spark: Any, table: str, wrong: Callable[[Any], Any], what: str) -> None:
    target = simple(spark, table)
    source = spark.sql("SELECT 1L AS id, 2L AS n").alias("s")
    with pytest.raises(deltalog.CallError, match=what):
        wrong(target.merge(source, "t.id = s.id")).execute()
    with pytest.raises(deltalog.CallError, match="a Spark DataFrame, not dict"):
        target.merge({"id": [1]}, "t.id = s.id")
    assert versions(table) == [0]


# Clauses that are invalid whatever the rows are, with the expected errors.
WRONG: Mapping[str, tuple[str, str, str]] = {
    "condition of the merge": ("t.nope = s.id", "WHEN NOT MATCHED THEN INSERT *", "nope"),
    "condition of matched rows": ("t.id = s.id", "WHEN MATCHED AND s.nope = 1 THEN DELETE", "nope"),
    "value of matched rows": ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET n = s.nope", "nope"),
    "field of matched rows": ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET n.nope = 1", "no column n.nope"),
    "cast of matched rows": ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET n = date'2026-01-01'", "do not fit"),
    "value of new rows": ("t.id = s.id", "WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)", "t`.`id"),
    "condition without a source": (
        "t.id = s.id",
        "WHEN NOT MATCHED BY SOURCE AND s.id IS NULL THEN DELETE",
        "s`.`id",
    ),
    "value without a source": ("t.id = s.id", "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = s.n", "s`.`n"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_clause_is_refused_whatever_rows_there_are(spark: Any, tmp_path: Path, wrong: str) -> None:
    """The error for an invalid clause is raised even if the table has no rows or the clause applies to no row."""
    on, clause, what = WRONG[wrong]
    for number, (start, source) in enumerate(((0, 1), (0, 99), (6, 1))):
        path = str(tmp_path / str(number))
        spark_ext.write(spark.sql(f"SELECT id, id AS n FROM range({start}, 6)")).save(path)
        before = data_files(path)
        with pytest.raises((deltalog.CallError, deltalog.SchemaMismatchError), match=what):
            spark_ext.sql(
                spark,
                f"MERGE INTO delta.`{path}` t USING (SELECT {source}L AS id, 5L AS n) s ON {on} {clause}",
            )
        assert versions(path) == [0] and data_files(path) == before


@pytest.mark.parametrize("properties", [{}, FEED, VECTORS, IDS], ids=["moved", "changes", "vectors", "ids"])
@pytest.mark.parametrize("matched", ["", "WHEN MATCHED THEN UPDATE SET n = s.n + t.n "], ids=["alone", "beside"])
def test_clauses_for_rows_without_a_source_see_the_table_alone(
    spark: Any, table: str, properties: dict[str, str], matched: str
) -> None:
    """A name that occurs on both sides refers to the table's column. The condition and the value are not evaluated for
    matched rows; for these rows, the evaluation would fail."""
    target = simple(spark, table, **properties)
    result = spark_ext.sql(
        spark,
        f"MERGE INTO delta.`{table}` AS t USING (SELECT id, 50L AS n FROM range(1, 3)) AS s ON t.id = s.id {matched}"
        "WHEN NOT MATCHED BY SOURCE AND 10 DIV (id - 1) > 2 AND 10 DIV (n - 2) > 0 THEN "
        "UPDATE SET n = 100 DIV (id - 1) + t.n + 10 DIV (n - 2) "
        "WHEN NOT MATCHED BY SOURCE AND id = 5 THEN DELETE",
    )
    assert result is not None
    found = [(0, 0), (1, 51 if matched else 1), (2, 52 if matched else 2), (3, 63), (4, 42)]
    assert rows(target.toDF()) == found
