"""``replaceWhere``: a DataFrame replaces the rows that a condition selects, in one commit."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

import deltalog
import spark_ext
import spark_ext.writing.local_job
from tests.spark.settings import session_of
from tests.spark.tables import action, data_files, litter, rows, versions

CHECKED = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
BY_DATA = "spark.databricks.delta.replaceWhere.dataColumns.enabled"
FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
TWELVE = "SELECT id, id % 3 AS p, concat('s', id) AS s FROM range(0, 12, 1, 2)"
NEW = "SELECT id, 0L AS p, 'new' AS s FROM range(5, 8, 1, 1)"


def made(spark: Any, table: str, properties: dict[str, str], partitioned: bool = False) -> None:
    writer = spark_ext.write(spark.sql(TWELVE)).options(**properties)
    (writer.partitionBy("p") if partitioned else writer).save(table)


def replaced(spark: Any, table: str, where: str, query: str = NEW, **options: Any) -> spark_ext.WriteResult:
    return spark_ext.write(spark.sql(query)).mode("overwrite").options(replaceWhere=where, **options).save(table)


def by_pyarrow(table: str) -> list[tuple[int, str]]:
    read = deltalog.DeltaTable.open(table).snapshot().scan(["id", "s"]).to_arrow()
    return sorted(zip(read["id"].to_pylist(), read["s"].to_pylist(), strict=True))


KEPT = [(id, f"s{id}") for id in (0, 1, 2, 3, 4, 10, 11)]
AFTER = sorted([*KEPT, (5, "new"), (6, "new"), (7, "new")])


@pytest.mark.parametrize(
    ("properties", "partitioned"),
    [
        ({}, False),
        ({}, True),
        (FEED, True),
        (VECTORS, False),
        ({**VECTORS, **FEED}, True),
        ({"delta.columnMapping.mode": "id", **FEED}, True),
        ({"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"}, False),
    ],
)
def test_rows_are_replaced_by_any_column(spark: Any, table: str, properties: dict[str, str], partitioned: bool) -> None:
    made(spark, table, properties, partitioned)
    files = deltalog.DeltaTable.open(table).snapshot().num_files
    result = replaced(spark, table, "id BETWEEN 5 AND 9 AND s <> 'x'")
    assert by_pyarrow(table) == AFTER
    assert sorted(rows(spark_ext.read(spark).load(table).select("id", "s"))) == AFTER
    assert (result.version, result.num_rows, result.num_removed_rows) == (1, 3, 5)
    (info,) = action(table, 1, "commitInfo")
    metrics = {name: int(value) for name, value in info["operationMetrics"].items()}
    assert info["operationParameters"]["predicate"] == "id BETWEEN 5 AND 9 AND s <> 'x'"
    assert metrics["numDeletedRows"] == 5 and metrics["numOutputRows"] == 3 + result.num_copied_rows
    copied = {add["path"] for add in action(table, 1, "add")}
    if VECTORS.items() <= properties.items():
        assert result.num_copied_rows == 0 and any(add.get("deletionVector") for add in action(table, 1, "add"))
        assert result.num_files == len(copied) - sum("deletionVector" in add for add in action(table, 1, "add"))
    else:
        assert result.num_copied_rows > 0
        assert (result.num_files, result.num_removed_files) == (len(copied), len(action(table, 1, "remove")))
        assert result.num_removed_files <= files
    if FEED.items() <= properties.items():
        changes = spark_ext.read_changes(spark, table, 1).select("_change_type", "id", "s")
        deleted = [("delete", id, f"s{id}") for id in range(5, 10)]
        assert sorted(rows(changes)) == [*deleted, *(("insert", id, "new") for id in (5, 6, 7))]


def test_what_statistics_prove_is_not_read_again(spark: Any, table: str) -> None:
    made(spark, table, {})  # one file with ids 0 to 5, and one with ids 6 to 11
    result = replaced(spark, table, "id >= 6", "SELECT 6L AS id, 1L AS p, 'new' AS s")
    assert (result.num_copied_rows, result.num_removed_files, result.num_removed_rows) == (0, 1, 6)
    assert len(action(table, 1, "add")) == 1 and [id for id, _ in by_pyarrow(table)] == [*range(7)]


@pytest.mark.parametrize("where", ["id >= 6", "s > 's6'", "s IS NOT NULL AND id > 5", "p = 1 AND id > 5"])
def test_a_row_outside_is_refused(spark: Any, table: str, where: str) -> None:
    made(spark, table, FEED, partitioned=True)
    before = data_files(table)
    with pytest.raises(
        deltalog.ConstraintViolationError, match=r"lies outside of the replaced rows.* = .*filter the rows"
    ) as refused:
        replaced(spark, table, where)
    assert refused.value.expression == where
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []


def test_null_is_outside_and_named(spark: Any, table: str) -> None:
    made(spark, table, {})
    with pytest.raises(deltalog.ConstraintViolationError, match="lies outside of the replaced rows, s < 'z': s = NULL"):
        replaced(spark, table, "s < 'z'", "SELECT 1L AS id, 1L AS p, CAST(NULL AS STRING) AS s")


def test_settings_of_the_session(spark: Any, table: str) -> None:
    made(spark, table, {})
    spark.conf.set(CHECKED, "false")
    try:
        replaced(spark, table, "id > 6")
    finally:
        spark.conf.unset(CHECKED)
    assert [id for id, _ in by_pyarrow(table)] == [0, 1, 2, 3, 4, 5, 5, 6, 6, 7]
    spark.conf.set(BY_DATA, "false")
    try:
        with pytest.raises(deltalog.CallError, match=f"replaceWhere uses id, and {BY_DATA} is false"):
            replaced(spark, table, "id > 6")
    finally:
        spark.conf.unset(BY_DATA)
    assert versions(table) == [0, 1]


@pytest.mark.parametrize(("where", "message"), [("nope = 1", "nope"), ("id >=", "parsed")])
def test_conditions_that_cannot_be_meant(spark: Any, table: str, where: str, message: str) -> None:
    made(spark, table, {})
    with pytest.raises(deltalog.CallError, match=message):
        replaced(spark, table, where)
    assert versions(table) == [0] and litter(table) == []


def test_partitions_are_replaced_without_reading_them(spark: Any, table: str) -> None:
    made(spark, table, {}, partitioned=True)
    result = replaced(spark, table, "p = 0", "SELECT 100L AS id, 0L AS p, 'new' AS s")
    assert (result.num_removed_rows, result.num_copied_rows) == (4, 0)
    assert [id for id, _ in by_pyarrow(table)] == [1, 2, 4, 5, 7, 8, 10, 11, 100]
    with pytest.raises(deltalog.ConstraintViolationError, match="outside of the replaced rows, p = 1: p = 0"):
        replaced(spark, table, "p = 1")


def test_no_rows(spark: Any, table: str) -> None:
    made(spark, table, {})
    nothing = replaced(spark, table, "id > 100", f"{NEW} WHERE false")
    assert not nothing.committed and versions(table) == [0] and litter(table) == []
    emptied = replaced(spark, table, "id > 3", f"{NEW} WHERE false")
    assert emptied.committed and (emptied.num_rows, emptied.num_removed_rows) == (0, 8)
    assert [id for id, _ in by_pyarrow(table)] == [0, 1, 2, 3]
    assert replaced(spark, table, "id > 100", f"{NEW} WHERE false", txnAppId="a", txnVersion=1).committed


@pytest.mark.parametrize("properties", [{}, FEED, VECTORS])
def test_merged_columns_are_null_in_rows_that_are_kept(spark: Any, table: str, properties: dict[str, str]) -> None:
    made(spark, table, properties)
    replaced(spark, table, "id BETWEEN 5 AND 9", f"SELECT *, 1.5D AS x FROM ({NEW})", mergeSchema=True)
    found = sorted(rows(spark_ext.read(spark).load(table).select("id", "x")))
    assert found == [(id, 1.5 if s == "new" else None) for id, s in AFTER]


def test_a_table_that_the_write_creates_has_nothing_to_replace(spark: Any, table: str) -> None:
    result = replaced(spark, table, "id > 6")
    assert (result.version, result.num_rows, result.num_removed_rows) == (0, 3, 0)


def test_a_failed_commit_leaves_neither_new_nor_copied_files(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(spark, table, FEED)
    before = data_files(table)
    other = deltalog.DeltaTable.open(table)
    write = spark_ext.writing.local_job.LocalJob.write

    def overtaken(self: Any, *args: Any) -> Any:
        adds = write(self, *args)
        thread = threading.Thread(target=lambda: other.delete("id = 7"))
        thread.start()
        thread.join()
        return adds

    monkeypatch.setattr(spark_ext.writing.local_job.LocalJob, "write", overtaken)
    with pytest.raises(deltalog.CommitConflictError):
        replaced(spark, table, "id BETWEEN 5 AND 9")
    live = {file["path"] for file in action(table, 1, "add")} | {file["path"] for file in action(table, 1, "cdc")}
    left = {path for path in data_files(table) if not os.path.basename(path).startswith(".")}
    assert versions(table) == [0, 1] and left == {*before, *live}


@pytest.mark.parametrize(
    ("where", "is_refused"),
    [
        ("cast(at as date) = '2026-01-01'", True),
        ("id > 0 OR NOT hour(at) < 12", True),
        ("date_trunc('DAY', day) = timestamp'2026-01-01T00:00:00Z'", True),
        ("at >= '2026-01-01T00:00:00Z' AND at IS NOT NULL", False),
        ("day >= '2026-01-01'", False),
        ("year(day) = 2026 AND at = at", False),
    ],
)
def test_conditions_that_depend_on_the_time_zone(spark: Any, table: str, where: str, is_refused: bool) -> None:
    data = spark.sql("SELECT 1L AS id, timestamp'2026-01-01T02:00:00Z' AS at, date'2026-01-01' AS day")
    spark_ext.write(data).save(table)
    again = spark_ext.write(data).mode("overwrite").option("replaceWhere", where)
    with session_of(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        if is_refused:
            with pytest.raises(deltalog.CallError, match="depends on the time zone"):
                again.save(table)
        else:
            assert again.save(table).num_removed_rows == 1
    assert again.save(table).num_removed_rows == 1


# --- sessions in which Spark reads a condition differently

ESCAPED = {"spark.sql.parser.escapedStringLiterals": "true"}
QUOTED = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
LENIENT = {"spark.sql.ansi.enabled": "false"}


@pytest.mark.parametrize(
    ("settings", "where", "message"),
    [
        (ESCAPED, r"s = 's\x31'", "backslash is a plain character"),
        (ESCAPED, r"s = 'new' OR s = 'a\nb'", "backslash is a plain character"),
        (QUOTED, '"s" = "new"', "in double quotes is a string in Spark's SQL, and there is a column with this name"),
        (QUOTED, 's = "new" OR id = 5', "double quotes enclose a name"),
    ],
)
def test_a_condition_of_two_meanings_is_refused(
    spark: Any, table: str, settings: dict[str, str], where: str, message: str
) -> None:
    made(spark, table, {})
    with session_of(spark, settings), pytest.raises(deltalog.CallError, match=message):
        replaced(spark, table, where)
    assert versions(table) == [0] and litter(table) == []


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(
    ("where", "new"),
    [
        ("CAST(s AS INT) IS NULL", "SELECT 100L AS id, 1L AS p, 'x' AS s"),
        ("id + p < 0", "SELECT 9223372036854775807L AS id, 1L AS p, '2' AS s"),
        ("id / (p - 1) IS NULL", "SELECT 100L AS id, 1L AS p, '2' AS s"),
    ],
)
def test_new_rows_are_checked_by_the_condition_as_old_ones_are(
    spark: Any, table: str, where: str, new: str, partitioned: bool
) -> None:
    """The new rows satisfy the condition according to Spark's ``where`` without ANSI mode."""
    writer = spark_ext.write(spark.sql("SELECT id, 0L AS p, string(id) AS s FROM range(3)"))
    (writer.partitionBy("p") if partitioned else writer).save(table)
    before = data_files(table)
    with session_of(spark, LENIENT):
        assert spark.sql(new).where(where).count() == 1
        with pytest.raises(deltalog.CallError, match="cannot be evaluated for a row"):
            replaced(spark, table, where, new)
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []


def test_lengths_are_kept_where_the_session_does_not_know_them(spark: Any, table: str) -> None:
    declared = {"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}
    text = deltalog.schema.StructField("c", deltalog.schema.PrimitiveType("string"), True, declared)
    deltalog.DeltaTable.create(table, deltalog.schema.StructType((text,)))
    spark_ext.write(spark.sql("SELECT 'a' AS c UNION ALL SELECT 'b'")).mode("append").save(table)
    settings = {"spark.sql.legacy.charVarcharAsString": "true"}
    with session_of(spark, settings), pytest.raises(deltalog.ConstraintViolationError) as refused:
        replaced(spark, table, "c <> 'a'", "SELECT 'a' AS c")
    assert refused.value.expression == "c <> 'a'" and versions(table) == [0, 1]


@pytest.mark.parametrize("where", ["ID > 5", "S = 's7'"])
def test_names_in_another_case(spark: Any, table: str, where: str) -> None:
    """With case-sensitive analysis, Spark does not find these columns and raises an error; it does not use a column
    whose name differs in case."""
    made(spark, table, {})
    new = "SELECT 7L AS id, 1L AS p, 's7' AS s"
    settings = {"spark.sql.caseSensitive": "true"}
    with session_of(spark, settings), pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        replaced(spark, table, where, new)
    assert versions(table) == [0] and litter(table) == []
    assert replaced(spark, table, where, new).committed
