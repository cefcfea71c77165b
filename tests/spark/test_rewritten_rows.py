"""Files rewritten with one scan for changed and unchanged rows: which expressions are evaluated for which rows, and
when one scan is not enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import functions as F

import deltalog
import spark_ext
from spark_ext.reading import pruning
from spark_ext.rows import merging, rewritten_rows
from spark_ext.rows.delete_update import Rows
from tests.spark.tables import data_files, litter, rows, versions

SHORT = "'abc' AS n"


@pytest.fixture
def one_scan(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each statement that rewrites files, whether it read the rows of these files in one scan."""
    made: list[bool] = []
    of = rewritten_rows.from_one_scan

    def recorded(*args: Any) -> Any:
        found = of(*args)
        made.append(found is not None)
        return found

    monkeypatch.setattr(rewritten_rows, "from_one_scan", recorded)
    return made


def numbers(spark: Any, table: str, columns: str = "id AS n", **properties: str) -> spark_ext.DeltaTable:
    """A table with the ids 0 to 7 in two files."""
    data = spark.sql(f"SELECT id, {columns} FROM range(0, 8, 1, 2)")
    if columns == SHORT:
        data = data.withMetadata("n", {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"})
    spark_ext.write(data).options(**properties).save(table)
    return spark_ext.DeltaTable.forPath(spark, table).alias("t")


def test_new_values_are_evaluated_for_changed_rows_only(spark: Any, table: str, one_scan: list[bool]) -> None:
    target = numbers(spark, table, "if(id = 3, 'x', string(id)) AS n")
    target.update("id IN (1, 2)", {"n": "cast(cast(n AS int) * 10 AS string)", "id": "if(n = 'x', raise_error(n), id)"})
    assert (rows(target.toDF(), "id")[:4], one_scan) == ([(0, "0"), (1, "10"), (2, "20"), (3, "x")], [True])
    with pytest.raises(deltalog.SchemaMismatchError, match="a new value of column id is not one of its type, long"):
        target.update("id > 2 AND id < 5", {"id": "n"})
    source = spark.sql("SELECT id FROM range(2, 9)").alias("s")
    merge = target.merge(source, "t.id = s.id").whenMatchedUpdate("t.n <> 'x' AND s.id < 6", {"id": "10 * t.n"})
    merge.whenMatchedDelete("s.id = 6").whenNotMatchedInsert(values={"id": "s.id"}).execute()
    found = [(0, "0"), (1, "10"), (3, "x"), (7, "7"), (8, None), (40, "4"), (50, "5"), (200, "20")]
    assert (rows(target.toDF(), "id"), one_scan) == (found, [True, True, True])


def test_clauses_of_one_merge_change_rows_of_the_same_files(spark: Any, table: str, one_scan: list[bool]) -> None:
    ids = {"delta.enableRowTracking": "true"}
    target = numbers(spark, table, "cast(id AS int) AS n, map('k', id) AS m, struct(id AS x) AS s", **ids)
    before = dict(rows(_with_ids(spark, table)))
    source = spark.sql("SELECT id, 'k' AS key FROM range(1, 10, 2)").alias("s")
    merge = target.merge(source, "t.id = s.id")
    merge = merge.whenMatchedUpdate("t.id = 1", {"n": "100L", "m": "map(s.key, -1L)"})
    merge = merge.whenMatchedUpdate("t.id = 3", {"n": "NULL", "s.x": "t.n"})
    merge = merge.whenMatchedDelete("t.id = 5")
    merge = merge.whenNotMatchedInsert("s.id > 8", {"id": "s.id"})
    merge.whenNotMatchedBySourceUpdate("t.id = 4", {"n": "t.n * -1"}).execute()
    found = target.toDF().selectExpr("id", "n", "m['k']", "s.x")
    assert rows(found, "id") == [
        (0, 0, 0, 0),
        (1, 100, -1, 1),
        (2, 2, 2, 2),
        (3, None, 3, 3),
        (4, -4, 4, 4),
        (6, 6, 6, 6),
        (7, 7, 7, 7),
        (9, None, None, None),
    ]
    after = dict(rows(_with_ids(spark, table)))
    assert {row: after[row] for row in after if row != 9} == {row: before[row] for row in before if row != 5}
    assert one_scan == [True]


def _with_ids(spark: Any, table: str) -> Any:
    found = deltalog.DeltaTable.open(table).snapshot().scan(["id", "_metadata.row_id"]).to_arrow()
    return spark.createDataFrame([tuple(row.values()) for row in found.to_pylist()], "id long, row long")


def test_files_whose_rows_are_all_deleted_are_not_read(
    spark: Any, table: str, one_scan: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = numbers(spark, table)
    read: list[int] = []
    of = Rows.read

    def counted(of_table: Any, entries: Any, *args: Any) -> Any:
        read.append(len(entries))
        return of(of_table, entries, *args)

    monkeypatch.setattr(Rows, "read", counted)
    source = spark.sql("SELECT id FROM range(0, 6)").alias("s")
    merge = target.merge(source, "t.id = s.id").whenMatchedDelete("s.id < 4")
    merge.whenMatchedUpdate("s.id = 4", {"n": "-4"}).execute()
    assert (read, one_scan) == ([2, 1], [True])
    assert rows(target.toDF(), "id") == [(4, -4), (5, 5), (6, 6), (7, 7)]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_matched_rows_that_no_clause_changes_are_not_inserted(spark: Any, table: str, vectors: str) -> None:
    target = numbers(spark, table, **{"delta.enableDeletionVectors": vectors})
    source = spark.sql("SELECT id, -id AS n FROM range(6, 10)").alias("s")
    target.merge(source, "t.id = s.id").whenMatchedUpdateAll("s.id = 7").whenNotMatchedInsertAll().execute()
    wanted = [*((n, n) for n in range(7)), *((n, -n) for n in range(7, 10))]
    assert rows(target.toDF(), "id") == wanted
    merge = target.merge(source, "t.id = s.id AND t.n = s.n").whenNotMatchedInsert("s.id > 5", {"id": "s.id"})
    merge.whenNotMatchedBySourceDelete("t.id < 6").execute()
    assert rows(target.toDF()) == [(6, None), (6, 6), (7, -7), (8, -8), (9, -9)]


# For each case: the columns of a table, an ALTER statement, the assignments, and the resulting values of the second
# column in rows 2 and 3.
OTHERS: Mapping[str, tuple[str, str | None, dict[str, str], list[Any]]] = {
    "a constraint": ("id AS n", "ALTER TABLE delta.`{}` ADD CONSTRAINT c CHECK (n < 100)", {"n": "90"}, [90, 3]),
    "a length": (SHORT, None, {"n": "'xyz'"}, ["xyz", "abc"]),
}
# Assignments that cast values. One scan of the table is enough for the statements with these assignments.
CAST: Mapping[str, tuple[str, dict[str, str], list[Any]]] = {
    "a struct of another type": ("struct(id AS x) AS n", {"n": "struct(7 AS x)"}, [(7,), (3,)]),
    "a list of another type": ("array(id) AS n", {"n": "array(cast(7 AS int))"}, [[7], [3]]),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_one_scan_does_not_make(spark: Any, table: str, one_scan: list[bool], other: str) -> None:
    columns, statement, sets, wanted = OTHERS[other]
    target = numbers(spark, table, columns)
    if statement is not None:
        spark_ext.sql(spark, statement.format(table))
    target.update("id = 2", sets)
    found = {row["id"]: row["n"] for row in target.toDF().collect()}
    assert ([found[2], found[3]], one_scan) == (wanted, [False])


@pytest.mark.parametrize("other", CAST)
def test_one_scan_makes_values_of_other_types(spark: Any, table: str, one_scan: list[bool], other: str) -> None:
    columns, sets, wanted = CAST[other]
    target = numbers(spark, table, columns)
    target.update("id = 2", sets)
    found = {row["id"]: row["n"] for row in target.toDF().collect()}
    assert ([found[2], found[3]], one_scan) == (wanted, [True])


def test_a_source_with_other_rows_in_between_is_noticed(
    spark: Any, table: str, one_scan: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = numbers(spark, table)
    before = data_files(table)
    of = rewritten_rows.from_one_scan
    for change in ("id <> 2", None):
        source = spark.sql("SELECT id, -id AS n FROM range(1, 9, 1, 2)").alias("s")

        def changed(both: Any, *args: Any, change: str | None = change) -> Any:
            lost = both.where(f"t.{change}") if change else both.union(both.where("t.id = 2"))
            return of(lost, *args)

        monkeypatch.setattr(rewritten_rows, "from_one_scan", changed)
        with pytest.raises(deltalog.errors.RowCountError, match="returns the same rows when repeated"):
            target.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_source_with_as_many_other_rows_in_between_is_noticed(
    spark: Any, table: str, vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second query selects rows by the condition again, not by the positions that were found."""
    target = numbers(spark, table, **{"delta.enableDeletionVectors": vectors})
    before = data_files(table)
    found, staged = merging._Plan.found, merging._Plan.stage

    def first(plan: Any) -> Any:
        plan.source, plan.all = plan.source.where("s.id < 2"), plan.source
        return found(plan)

    def second(plan: Any, *args: Any) -> Any:
        plan.source = plan.all.where("s.id >= 2")
        return staged(plan, *args)

    monkeypatch.setattr(merging._Plan, "found", first)
    monkeypatch.setattr(merging._Plan, "stage", second)
    merge = target.merge(spark.sql("SELECT id, -id AS n FROM range(4)").alias("s"), "t.id = s.id")
    with pytest.raises(
        deltalog.errors.RowCountError, match="2 changed rows, as many as were found, but not the same ones"
    ):
        merge.whenMatchedUpdateAll().execute()
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_conditions_that_may_have_another_value_in_another_query(spark: Any, table: str, vectors: str) -> None:
    """A second evaluation of rand() would select other rows, so the second query uses the positions that were found."""
    target = numbers(spark, table, **{"delta.enableDeletionVectors": vectors})
    target.update("id > 0 AND rand() < 0.5", {"n": "-1"})
    merge = target.merge(spark.range(8).alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate("t.id > 0 AND rand() < 0.5", {"n": "-2"}).execute()
    target.delete("id = 7 AND current_timestamp() > timestamp'2020-01-01 00:00:00'")
    found = rows(target.toDF(), "id")
    assert len(found) == 7 and found[0] == (0, 0) and {n for _, n in found} <= {*range(8), -1, -2}


def test_what_is_repeatable() -> None:
    for each in ("t.id = s.id AND t.x <=> `a b`.`c`", "id % 7 <> -1 OR NOT (n IS NULL)", "n IN (1, 2)", None):
        assert pruning.is_repeatable([each]), each
    for each in (
        "rand() < 1",
        "t <= current_timestamp",
        "id IN (SELECT 1)",
        "localtimestamp > t",
        "f(id)",
        F.lit(True),
    ):
        assert not pruning.is_repeatable(["id = 1", each]), each
