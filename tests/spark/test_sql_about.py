"""DESCRIBE, SHOW, DROP, TRUNCATE, REORG, RENAME TO and SET LOCATION in spark_ext.sql; statements on temporary views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException

import deltalog
import spark_ext
from tests.spark.tables import action, rows, versions

INFORMATION = [("# Partition Information", "", ""), ("# col_name", "data_type", "comment"), ("p", "int", None)]
COLUMNS = [("id", "bigint", None), ("s", "string", "text"), ("p", "int", None)]


@pytest.fixture
def run(spark: Any, table: str, tmp_path: Path) -> Iterator[Any]:
    """Runs a statement in which {t} stands for a table given by path; ``named`` is a table of the catalog."""
    spark_ext.use_catalog(spark, str(tmp_path / "catalog.db"))

    def sql(query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark_ext.sql(spark, query.replace("{t}", f"delta.`{table}`")).collect()]

    columns = "(id bigint, s string comment 'text', p int) using delta partitioned by (p)"
    sql(f"create table {{t}} {columns} comment 'about' tblproperties ('own' = 'x')")
    sql(f"create table named {columns} location '{tmp_path / 'named'}'")
    sql("insert into {t} values (1, 'a', 7), (2, 'b', 8), (3, 'c', 7)")
    sql("insert into named values (1, 'a', 7), (2, 'b', 8), (3, 'c', 7)")
    yield sql
    spark_ext.use_catalog(spark, None)


@pytest.mark.parametrize("t", ["{t}", "named", "default.named"])
def test_describe(run: Any, t: str) -> None:
    assert run(f"describe {t}") == run(f"desc table {t}") == [*COLUMNS, *INFORMATION]
    found = run(f"describe extended {t}")
    assert found == run(f"DESC TABLE FORMATTED {t}")
    assert found[: len(COLUMNS) + len(INFORMATION)] == [*COLUMNS, *INFORMATION]
    told = {name: text for name, text, _ in found[len(COLUMNS) + len(INFORMATION) :]}
    assert told["Provider"] == "delta" and told["Location"].startswith("file:/")
    assert ("delta.minReaderVersion=" in told["Table Properties"]) and told.get("Comment") in ("about", None)
    assert run(f"describe {t} id")[:2] == [("col_name", "id"), ("data_type", "bigint")]


def test_describe_has_the_version_that_is_named(run: Any, table: str) -> None:
    run("alter table {t} add column later int")
    assert run(f"describe delta.`{table}@v0`") == [*COLUMNS, *INFORMATION]
    assert run("describe {t} version as of 0") == COLUMNS
    assert ("later", "int", None) in run("describe {t}")


def test_describe_has_clustering_columns_and_defaults(spark: Any, run: Any, tmp_path: Path) -> None:
    run(
        f"create table delta.`{tmp_path / 'other'}` (id int default 5, s string) using delta cluster by (s) "
        "tblproperties ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    found = run(f"describe extended delta.`{tmp_path / 'other'}`")
    assert ("# Clustering Information", "", "") in found and found.count(("s", "string", None)) == 2
    assert found[-2:] == [("# Column Default Values", "", ""), ("id", "int", "5")]


def test_show_tblproperties(run: Any) -> None:
    versions_of_path = [("delta.minReaderVersion", "1"), ("delta.minWriterVersion", "2")]
    assert run("show tblproperties {t}") == [*versions_of_path, ("own", "x")]
    assert run("show tblproperties {t} ('own')") == run("show tblproperties {t} (own)") == [("own", "x")]
    assert "does not have property: nope" in run("show tblproperties {t} (nope)")[0][1]
    assert ("delta.feature.catalogManaged", "supported") in run("show tblproperties named")


@pytest.mark.parametrize("t", ["{t}", "named"])
def test_show_partitions(run: Any, tmp_path: Path, t: str) -> None:
    assert run(f"show partitions {t}") == [(7,), (8,)]
    with pytest.raises(deltalog.CallError, match="leave PARTITION out"):
        run(f"show partitions {t} partition (p = 7)")
    run(f"create table delta.`{tmp_path / 'plain'}` (id int)")
    with pytest.raises(deltalog.CallError, match="is not partitioned"):
        run(f"show partitions delta.`{tmp_path / 'plain'}`")


@pytest.mark.parametrize("t", ["{t}", "named"])
def test_show_create_table_is_refused_by_name(run: Any, t: str) -> None:
    with pytest.raises(deltalog.UnsupportedFeatureError, match="SHOW CREATE TABLE is not supported"):
        run(f"show create table {t}")


def test_show_tables(spark: Any, run: Any, tmp_path: Path) -> None:
    run(f"create table other.second (id int) using delta location '{tmp_path / 'second'}'")
    ours = ("default", "named", False)
    assert ours in run("show tables") and run("show tables like 'NA*|x'") == [ours]
    assert run("show tables in default like 'nope*'") == []
    assert run("show tables in other") == run("show tables from other 's*'") == [("other", "second", False)]
    spark_ext.use_catalog(spark, None)
    assert ours not in run("show tables")


def test_drop_forgets_the_name_and_keeps_the_files(run: Any, tmp_path: Path) -> None:
    run("drop table if exists nope")
    run("drop table named")
    assert "named" not in [row[1] for row in run("show tables")]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        run("select * from named")
    deltalog.TransactionManager(str(tmp_path / "catalog.db")).register_table("default.named", str(tmp_path / "named"))
    assert len(run("select * from named")) == 3
    with pytest.raises(deltalog.CallError, match="cannot drop a table by path"):
        run("drop table {t}")
    with pytest.raises(deltalog.CallError, match="PURGE is not supported"):
        run("drop table named purge")


@pytest.mark.parametrize("t", ["{t}", "named"])
def test_truncate(run: Any, t: str) -> None:
    run(f"truncate table {t}")
    assert run(f"select * from {t}") == []
    assert run(f"describe history {t} limit 1")[0][4] == "TRUNCATE"
    with pytest.raises(deltalog.CallError, match="use DELETE FROM"):
        run(f"truncate table {t} partition (p = 7)")


def test_truncate_of_an_append_only_table_is_refused(run: Any) -> None:
    run("alter table {t} set tblproperties ('delta.appendOnly' = 'true')")
    with pytest.raises(deltalog.errors.InvalidActionError):
        run("truncate table {t}")
    assert len(run("select * from {t}")) == 3


def test_reorg_purges_deletion_vectors(run: Any, table: str) -> None:
    run("alter table {t} set tblproperties ('delta.enableDeletionVectors' = 'true')")
    run("insert into {t} select /*+ coalesce(1) */ * from values (4, 'd', 7), (5, 'e', 7), (6, 'f', 8), (7, 'g', 8)")
    run("delete from {t} where id in (4, 6)")
    before = deltalog.DeltaTable.open(table).snapshot()
    metrics = run("reorg table {t} where p = 7 apply (purge)")[0][1]
    after = deltalog.DeltaTable.open(table).snapshot()
    assert after.version > before.version and metrics["deletionVectorStats"][0] == 1
    assert sorted(run("select id from {t}")) == [(1,), (2,), (3,), (5,), (7,)]
    with pytest.raises(deltalog.CallError, match="Only APPLY \\(PURGE\\)"):
        run("reorg table {t} apply (upgrade uniform (iceberg_compat_version = 2))")


def test_a_table_gets_another_name(run: Any, table: str, tmp_path: Path) -> None:
    run("alter table named rename to other.name")
    assert len(run("select * from other.name")) == 3 and run("show tables in default like 'named'") == []
    run(f"create table named (id int) using delta location '{tmp_path / 'again'}'")
    with pytest.raises(deltalog.TableExistsError, match=r"already has a table default\.named"):
        run("alter table other.name rename to named")
    assert len(run("select * from other.name")) == 3
    with pytest.raises(deltalog.CallError, match="is a path"):
        run("alter table {t} rename to x")


def test_a_name_gets_another_table(run: Any, table: str, tmp_path: Path) -> None:
    run("insert into {t} values (4, 'd', 7)")
    run(f"alter table named set location '{table}'")
    assert len(run("select * from named")) == 4
    run(f"create table delta.`{tmp_path / 'plain'}` (id int)")
    with pytest.raises(deltalog.SchemaMismatchError, match="has other columns than"):
        run(f"alter table named set location '{tmp_path / 'plain'}'")
    with pytest.raises(deltalog.TableNotFoundError):
        run(f"alter table named set location '{tmp_path / 'nothing'}'")
    assert len(run("select * from named")) == 4


def test_vacuum_takes_a_path_as_text(run: Any, table: str) -> None:
    assert run(f"vacuum '{table}' retain 200 hours dry run") == []
    assert run(f'vacuum "{table}"') == [(table,)]
    with pytest.raises(deltalog.TableNotFoundError):
        run("vacuum '/nothing/is/here'")


def test_columns_are_placed(spark: Any, run: Any, table: str) -> None:
    run("alter table {t} add column f int first")
    run("alter table {t} add columns (a int after ID, st struct<x: int> after a)")
    run("alter table {t} add column st.y int first")
    names = spark_ext.read(spark).load(table)
    assert names.columns == ["f", "id", "a", "st", "s", "p"] and names.select("st.*").columns == ["y", "x"]
    run("alter table {t} alter column p first")
    run("alter table {t} alter column st.x first")
    run("alter table {t} change column s s string comment 'new' after p")
    run("alter table {t} change f f int after id")
    frame = spark_ext.read(spark).load(table)
    assert frame.columns == ["p", "s", "id", "f", "a", "st"] and frame.select("st.*").columns == ["x", "y"]
    assert frame.schema["s"].metadata["comment"] == "new"
    assert rows(frame.select("id", "s", "p")) == [(1, "a", 7), (2, "b", 8), (3, "c", 7)]
    assert action(table, versions(table)[-1], "commitInfo")[0]["operationParameters"]["position"] == "AFTER id"


@pytest.mark.parametrize(
    "change",
    ["add column z int after nope", "alter column s after nope", "alter column s after s", "change s z string first"],
)
def test_places_that_are_none(run: Any, table: str, change: str) -> None:
    with pytest.raises(deltalog.CallError):
        run(f"alter table {{t}} {change}")
    assert versions(table) == [0, 1]


@pytest.mark.parametrize(
    "statement",
    [
        "delete from v where id = 1",
        "update v set id = 5",
        "merge into v using (select 9 as id) s on v.id = s.id when matched then delete",
        "insert into v values (1, 'a', 7)",
    ],
)
def test_a_view_of_a_table_is_not_written(run: Any, table: str, statement: str) -> None:
    run("create or replace temporary view v as select * from {t}")
    with pytest.raises(deltalog.CallError, match=f"v is a temporary view over {table}"):
        run(statement)
    assert len(run("select * from {t}")) == 3


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("delete from {t} where nope = 1", AnalysisException),
        ("delete from {t} where id = = 1", ParseException),
        ("update {t} set id = nope", AnalysisException),
        ("merge into {t} t using (select 1 as id) s on t.id = s.nope when matched then delete", AnalysisException),
        ("insert into {t} select nope, 'a', 1 from range(2)", AnalysisException),
        ("create table named2 (id wrong_type) using delta", ParseException),
        ("alter table {t} add column z wrong_type", ParseException),
    ],
)
def test_errors_of_spark_are_those_of_deltalog_too(run: Any, table: str, statement: str, kind: type) -> None:
    with pytest.raises(kind) as caught:
        run(statement)
    assert isinstance(caught.value, deltalog.CallError) and caught.value.__cause__ is not None
    assert versions(table) == [0, 1]
