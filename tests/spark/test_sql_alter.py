"""ALTER TABLE, RESTORE, VACUUM and DESCRIBE in spark_ext.sql."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import action, data_files, rows, versions


def run(spark: Any, t: str, query: str, *args: Any) -> Any:
    return spark_ext.sql(spark, query.replace("{t}", f"delta.`{t}`"), *args)


@pytest.fixture
def t(spark: Any, table: str) -> str:
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id int, s string").coalesce(1)
    spark_ext.write(frame).option("delta.columnMapping.mode", "name").save(table)
    return table


def test_columns(spark: Any, t: str) -> None:
    assert run(spark, t, "ALTER TABLE {t} ADD COLUMNS (n bigint COMMENT 'a , b', st struct<a: int>)").collect() == []
    run(spark, t, "alter table {t} add column st.b array<string>")
    run(spark, t, "alter table {t} rename column s to `s t`")
    run(spark, t, "alter table {t} alter column id comment 'the key'")
    run(spark, t, "alter table {t} set tblproperties ('delta.enableTypeWidening' = 'true')")
    run(spark, t, "alter table {t} change column id type bigint")
    run(spark, t, "alter table {t} drop column n")
    frame = spark_ext.read(spark).load(t)
    assert frame.dtypes == [("id", "bigint"), ("s t", "string"), ("st", "struct<a:int,b:array<string>>")]
    assert frame.schema["id"].metadata["comment"] == "the key"
    run(spark, t, "alter table {t} drop columns (`s t`, st.a)")
    assert spark_ext.read(spark).load(t).dtypes == [("id", "bigint"), ("st", "struct<b:array<string>>")]
    names = [action(t, version, "commitInfo")[0]["operation"] for version in versions(t)]
    assert names[1:5] == ["ADD COLUMNS", "ADD COLUMNS", "RENAME COLUMN", "CHANGE COLUMN"]


def test_nulls_are_allowed_again(spark: Any, table: str) -> None:
    run(spark, table, "create table {t} (id int not null)")
    run(spark, table, "alter table {t} alter column id drop not null")
    assert spark_ext.read(spark).load(table).schema["id"].nullable
    with pytest.raises(deltalog.SchemaMismatchError, match="NOT NULL"):
        run(spark, table, "alter table {t} alter column id set not null")


def test_properties_constraints_and_features(spark: Any, t: str) -> None:
    run(spark, t, "alter table {t} set tblproperties ('own' = :x, delta.appendOnly = true)", {"x": "it's"})
    found = deltalog.DeltaTable.open(t).snapshot().metadata.configuration
    assert (found["own"], found["delta.appendOnly"]) == ("it's", "true")
    run(spark, t, "alter table {t} unset tblproperties ('own', 'delta.appendOnly')")
    run(spark, t, "alter table {t} unset tblproperties if exists ('own')")
    with pytest.raises(deltalog.errors.InvalidPropertyError, match="no property own"):
        run(spark, t, "alter table {t} unset tblproperties ('own')")
    run(spark, t, "alter table {t} add constraint small check (id < 10 and s in ('a', 'b', ','))")
    with pytest.raises(Exception, match="small"):
        run(spark, t, "insert into {t} values (11, 'a')")
    run(spark, t, "alter table {t} drop constraint small")
    run(spark, t, "alter table {t} drop constraint if exists small")
    run(spark, t, "insert into {t} values (11, 'a')")
    run(spark, t, "alter table {t} drop feature checkConstraints")
    assert "checkConstraints" not in (deltalog.DeltaTable.open(t).snapshot().protocol.writer_features or ())


def test_versions_are_restored(spark: Any, t: str) -> None:
    first_ms = deltalog.DeltaTable.open(t).snapshot().timestamp_ms
    run(spark, t, "delete from {t} where id = 1")
    done = run(spark, t, "RESTORE TABLE {t} TO VERSION AS OF 0")
    assert (done.columns[0], done.collect()[0]["num_restored_files"]) == ("table_size_after_restore", 1)
    run(spark, t, "delete from {t}")
    run(spark, t, "restore {t} to version as of :v", {"v": 1})
    assert rows(spark_ext.read(spark).load(t)) == [(2, "b")]
    run(spark, t, f"restore {{t}} to timestamp as of timestamp_millis({first_ms})")
    run(spark, t, "restore {t} to version as of '0'")
    assert rows(spark_ext.read(spark).load(t)) == [(1, "a"), (2, "b")]
    with pytest.raises(deltalog.TimestampOutOfRangeError):
        run(spark, t, "restore {t} to timestamp as of '2001-01-01'")
    history = run(spark, t, "describe history {t} limit 1").collect()[0]
    assert history["operation"] == "RESTORE"
    assert run(spark, t, "describe detail {t}").collect()[0]["numFiles"] == 1


def test_files_are_vacuumed(spark: Any, t: str) -> None:
    run(spark, t, "delete from {t}")
    with pytest.raises(deltalog.CallError, match="168"):
        run(spark, t, "vacuum {t} retain 0 hours")
    with session_of(spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        found = run(spark, t, "VACUUM {t} RETAIN 0 HOURS DRY RUN").collect()
        assert [Path(row["path"]).name for row in found] == [Path(name).name for name in data_files(t)]
        assert run(spark, t, "vacuum {t} lite retain 0 hours dry run").collect() == found
        (Path(t) / "stray").write_bytes(b"1")
        os.utime(Path(t) / "stray", (1, 1))
        assert run(spark, t, "vacuum {t} lite retain 0 hours").collect() == [(t,)]
        assert data_files(t) == ["stray"]
        with session_of(spark, {"spark.databricks.delta.vacuum.lite.enabled": "true"}):
            assert run(spark, t, "vacuum {t} retain 0 hours dry run").collect() == []
        assert run(spark, t, "vacuum {t} full retain 0.0 hours").collect() == [(t,)]
    assert data_files(t) == []


def test_statistics_are_computed(spark: Any, tmp_path: Path) -> None:
    t = str(tmp_path / "t")
    properties = {"delta.dataSkippingNumIndexedCols": "0"}
    table = deltalog.DeltaTable.create(t, pa.schema([("id", pa.int64())]), properties=properties)
    table.append(pa.table({"id": [3, 5]}))
    table.set_properties({"delta.dataSkippingNumIndexedCols": "1"})
    assert run(spark, t, "analyze table {t} compute delta statistics").collect() == []
    found = deltalog.DeltaTable.open(t)
    assert found.history(1)[0].operation == "COMPUTE STATS"
    assert found.snapshot().scan(where="id > 5").files().num_rows == 0
    run(spark, t, "ANALYZE TABLE {t} COMPUTE DELTA STATISTICS")
    assert deltalog.DeltaTable.open(t).version == found.version, "no statistics are missing"


def test_tables_with_names(spark: Any, tmp_path: Path) -> None:
    with session_of(spark, {"spark.deltalog.catalog": str(tmp_path / "catalog.db")}):
        spark_ext.sql(spark, f"create table shop.items (id int) using delta location '{tmp_path / 'items'}'")
        spark_ext.sql(spark, "alter table shop.items set tblproperties ('own' = '1')")
        spark_ext.sql(spark, "insert into shop.items values (1)")
        spark_ext.sql(spark, "restore table shop.items to version as of 0")
        spark_ext.sql(spark, "restore shop.items to version as of 2")
        assert rows(spark_ext.sql(spark, "select * from shop.items")) == [(1,)]
        assert spark_ext.sql(spark, "optimize shop.items").collect()[0]["metrics"]["numFilesRemoved"] == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("alter table {t} add column n", "type of a column is missing at the end"),
        ("alter table {t} add column n int not null", "NOT NULL"),
        ("alter table {t} add column n int default 1", "default"),
        ("alter table {t} alter column id set default 1", "ALTER COLUMN of a deltalog table"),
        ("alter table {t} rename to other", "RENAME TO changes a name in the catalog"),
        ("alter table {t} drop column if exists id", "not support IF EXISTS"),
        ("alter table {t} drop feature checkConstraints truncate history", "cleanup_log"),
        ("alter table {t} rename column id to n now", "Unexpected 'now'"),
        ("alter table {t} add constraint c check (id > 0, id < 2)", "CHECK takes one condition"),
        ("alter table {t} add constraint c check (id in (select 1))", "has a subquery"),
        ("restore {t} to 1", "Expected VERSION or TIMESTAMP"),
        ("restore {t} to version as of x", "is a number, not 'x'"),
        ("vacuum {t} retain many hours", "a number of hours"),
        ("vacuum {t} lite full", "Unexpected 'full'"),
        ("optimize {t} where id = 1", "not a partition column"),
        ("optimize {t} full", "is not clustered"),
        ("optimize {t} zorder by (nothing)", "nothing"),
        ("analyze table {t} compute statistics", "ANALYZE statements"),
        ("analyze table {t} compute delta statistics for columns id", "Unexpected 'for'"),
        ("convert to delta {t}", "Expected PARQUET"),
        ("generate csv for table {t}", "takes the mode symlink_format_manifest, not 'csv'"),
    ],
)
def test_what_is_refused_says_why(spark: Any, t: str, query: str, message: str) -> None:
    with pytest.raises(deltalog.DeltaLogError, match=message):
        run(spark, t, query)
    assert versions(t) == [0]
