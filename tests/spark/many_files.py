"""Cases for tables with so many files that Spark would look them up in a job. The cases run both in classic Spark and
in Spark Connect."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import DataFiles, field, make, make_raw, rows, schema, vector

COUNT = 40
IGNORED = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
_NAMES = ("a b", "100%", "50%25", "é😀", "[x]{y}*?", "a#b", "a&b=c", "plus+", 'quo"te', "semi;colon,")


def one(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def flat() -> DataFiles:
    return [(f"{_NAMES[i % len(_NAMES)]}/{_NAMES[-1 - i % 7]}-{i}.parquet", {}, one(i)) for i in range(COUNT)]


def make_flat(table: str) -> None:
    make(table, schema(id="long"), flat())


def make_hive(table: str) -> None:
    files = [(f"p={i % 4}/s=a%2Fb {i % 2}/{i}.parquet", {"p": str(i % 4), "s": f"a/b {i % 2}"}) for i in range(COUNT)]
    columns = schema(id="long", p="integer", s="string")
    make(table, columns, [(path, values, one(i)) for i, (path, values) in enumerate(files)], ["p", "s"])


HIVE_ROWS = [(i, i % 4, f"a/b {i % 2}") for i in range(COUNT)]


def lists() -> list[str]:
    """The names of all entries in the temporary directory, sorted."""
    return sorted(os.listdir(tempfile.gettempdir()))


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory for temporary files of this process."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


class ManyFiles:
    """Needs the fixtures ``spark``, ``table`` and ``scratch``."""

    def test_files_of_any_name(self, spark: Any, table: str, scratch: Path) -> None:
        make_flat(table)
        df = spark_ext.read(spark).load(table)
        assert rows(df) == [(i,) for i in range(COUNT)]
        assert df.schema.simpleString() == "struct<id:bigint>"
        assert rows(df.where("id in (3, 7)")) == [(3,), (7,)] and df.count() == COUNT

    def test_partitions_are_discovered_and_pruned(self, spark: Any, table: str, scratch: Path, capsys: Any) -> None:
        make_hive(table)
        df = spark_ext.read(spark).load(table)
        assert rows(df) == HIVE_ROWS
        assert rows(df.where("p = 2 and s = 'a/b 0'")) == [row for row in HIVE_ROWS if row[1:] == (2, "a/b 0")]
        df.where("p = 2").explain()
        plan = capsys.readouterr().out
        assert "PartitionFilters: [isnotnull" in plan and "MetadataLogFileIndex" in plan and "Union" not in plan

    def test_partitions_are_pruned_by_the_rows_of_a_join(
        self, spark: Any, table: str, scratch: Path, capsys: Any
    ) -> None:
        make_hive(table)
        columns = {"k": pa.array(range(4), pa.int32()), "name": [f"n{i}" for i in range(4)]}
        make(table + "-names", schema(k="integer", name="string"), [("a.parquet", {}, pa.table(columns))])
        names = spark_ext.read(spark).load(table + "-names").where("name = 'n3'")
        joined = spark_ext.read(spark).load(table).join(names, F.col("p") == F.col("k"))
        joined.explain()
        assert "dynamicpruningexpression(" in capsys.readouterr().out
        assert rows(joined.select("id")) == [(i,) for i in range(COUNT) if i % 4 == 3]

    def test_a_version_is_read_again_after_later_ones(self, spark: Any, table: str, scratch: Path) -> None:
        make_hive(table)
        df = spark_ext.read(spark).load(table)
        derived = df.where("p > 1").groupBy("s").count()
        before = rows(derived)
        deltalog.DeltaTable.open(table).delete("p = 2")
        spark_ext.write(df.limit(1)).mode("overwrite").option("expectedVersion", 1).save(table)
        assert (rows(df), rows(derived)) == (HIVE_ROWS, before)
        assert spark_ext.read(spark).load(table).count() == 1

    def test_conditions_and_numbers_of_rows(self, spark: Any, table: str, scratch: Path) -> None:
        data = pa.table({"id": pa.array(range(COUNT), pa.int64()), "p": pa.array(range(COUNT), pa.int32())})
        made = deltalog.DeltaTable.create(table, data.schema, partition_by=["p"])
        made.append(data)
        made.append(data)
        reader = spark_ext.read(spark).where("p between 2 and 30").where(deltalog.col("id") > 20)
        df = reader.load(table)
        assert rows(df) == [(i, i) for i in range(21, 31) for _ in range(2)] and len(df.inputFiles()) == 20
        assert reader.count(table) == 20
        assert spark_ext.read(spark).where("p < 4").count(table) == 8
        assert rows(spark_ext.read(spark).where("p < 4").partitions(table)) == [(i, 2) for i in range(4)]

    @pytest.mark.parametrize("above", ["k=1/n=x y/t", "k=/t"])
    def test_tables_below_directories_that_look_like_partitions(
        self, spark: Any, table: str, scratch: Path, above: str
    ) -> None:
        make_hive(f"{table}/{above}")
        assert rows(spark_ext.read(spark).load(f"{table}/{above}")) == HIVE_ROWS

    def test_values_of_the_log_and_deletion_vectors(self, spark: Any, table: str, scratch: Path) -> None:
        data = pa.table({"id": pa.array(range(10), pa.int64())})
        kept = [(f"k {i}.parquet", {"p": str(i % 3)}, data, vector("", [i % 10])) for i in range(COUNT)]
        whole = [(f"w {i}.parquet", {"p": None}, data) for i in range(COUNT)]
        make_raw(table, [field("id", "long"), field("p", "integer")], [*kept, *whole], ["p"])
        expected = [(r, i % 3) for i in range(COUNT) for r in range(10) if r != i % 10]
        df = spark_ext.read(spark).load(table)
        assert rows(df.where("p is not null")) == sorted(expected)
        assert rows(df.where("p is null")) == [(r, None) for r in range(10) for _ in range(COUNT)]

    def test_a_missing_file_is_named(self, spark: Any, table: str, scratch: Path) -> None:
        make_flat(table)
        gone = Path(table) / flat()[5][0]
        gone.unlink()
        with pytest.raises(deltalog.errors.InvalidDataFileError, match="is missing") as error:
            spark_ext.read(spark).load(table)
        assert error.value.path == str(gone) and lists() == []

    def test_a_table_with_itself(self, spark: Any, table: str, scratch: Path) -> None:
        make_flat(table)
        one, two = (spark_ext.read(spark).load(table) for _ in range(2))
        assert one.join(two, one.id == two.id + 1).count() == COUNT - 1
        assert one.union(two).distinct().count() == COUNT

    @pytest.mark.parametrize("place", ["has blank", "per%20cent", "missing/one"])
    def test_odd_temporary_directories(
        self, spark: Any, table: str, scratch: Path, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        make_flat(table)
        if "missing" not in place:
            (scratch / place).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(scratch / place))
        assert spark_ext.read(spark).load(table).count() == COUNT
        assert "missing" in place or lists() == []

    def test_a_session_that_ignores_logs_of_files(self, spark: Any, table: str, scratch: Path) -> None:
        make_hive(table)
        with session_of(spark, {IGNORED: "true"}):
            assert rows(spark_ext.read(spark).load(table)) == HIVE_ROWS and lists() == []

    def test_names_that_spark_skips_and_files_without_bytes(self, spark: Any, table: str, scratch: Path) -> None:
        for count in (2, COUNT):
            path = f"{table}-{count}"
            names = [f"{('_metadata', '_common_metadata-', 'f')[i % 3]}{i}.parquet" for i in range(count)]
            make(path, schema(id="long"), [(name, {}, one(i)) for i, name in enumerate(names)])
            assert rows(spark_ext.read(spark).load(path)) == [(i,) for i in range(count)]
            make(path + "-empty", schema(id="long"), [(f"{i}.parquet", {}, one(i)) for i in range(count)])
            (Path(path + "-empty") / "1.parquet").write_bytes(b"")
            with pytest.raises(deltalog.errors.InvalidDataFileError, match="is empty") as error:
                spark_ext.read(spark).load(path + "-empty")
            assert error.value.path == path + "-empty/1.parquet"
