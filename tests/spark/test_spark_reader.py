from __future__ import annotations

import datetime as dt
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import deltalog
import spark_ext
from tests.spark.tables import DataFiles, action, append_raw, history, make, rows, schema

ONE = pa.table({"id": pa.array([1], pa.int64())})


def read(spark: Any, **options: Any) -> spark_ext.Reader:
    return spark_ext.read(spark).options(**options)


@pytest.fixture(scope="module")
def travelled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with versions 0 (no row) and 1 (one row), a day apart in 2026, with in-commit timestamps."""
    path = str(tmp_path_factory.mktemp("travelled") / "table")
    history(path, ONE.schema, [None, ONE], [1_767_225_600_000, 1_767_312_000_500])
    return path


# --- which version


def test_versions_and_options(spark: Any, travelled: str) -> None:
    assert read(spark, versionasof=" 1 ").load(travelled).count() == 1
    assert read(spark, VERSIONASOF=0).snapshot(travelled).version == 0
    with pytest.raises(deltalog.CallError, match="is None"):
        read(spark, versionAsOf=None)
    for value in ("abc", "1.5", "", 1.0, True):
        with pytest.raises(deltalog.CallError, match="must be a version number"):
            read(spark, versionAsOf=value).load(travelled)
    for value in (-1, 99, "99"):
        with pytest.raises(deltalog.VersionNotFoundError) as error:
            read(spark, versionAsOf=value).load(travelled)
        assert (error.value.earliest, error.value.latest) == (0, 1)
    with pytest.raises(deltalog.CallError, match="exclude each other"):
        read(spark, versionAsOf=1, timestampAsOf="2026-01-02").load(travelled)
    with pytest.raises(deltalog.CallError, match="Unknown read option 'mergeSchema'"):
        read(spark, mergeSchema=True)
    with pytest.raises(deltalog.TableNotFoundError):
        read(spark).load(os.path.dirname(travelled))


def test_a_path_may_end_in_a_version_or_a_time(spark: Any, travelled: str, zone: Any) -> None:
    assert read(spark).snapshot(f"{travelled}@v0").version == 0
    assert read(spark).snapshot(f"{travelled}@V01").version == 1
    zone("America/New_York")
    assert read(spark).snapshot(f"{travelled}@20260101190000500").version == 1
    assert read(spark).snapshot(f"{travelled}@20260101190000499").version == 0
    zone("UTC")
    assert read(spark).snapshot(f"{travelled}@20260102000000500").version == 1
    with pytest.raises(deltalog.InvalidTimestampError, match=r"'2026-13-02 00:00:00.500' is not a timestamp"):
        read(spark).load(f"{travelled}@20261302000000500")
    with pytest.raises(deltalog.CallError, match="as its suffix"):
        read(spark, versionAsOf=1).load(f"{travelled}@v0")
    with pytest.raises(deltalog.VersionNotFoundError):
        read(spark).load(f"{travelled}@v7")
    for name in (f"{travelled}@v1x", f"{travelled}@2026"):
        with pytest.raises(deltalog.TableNotFoundError):
            read(spark).load(name)


def test_a_directory_of_that_very_name_comes_first(spark: Any, tmp_path: Path) -> None:
    for name, count in (("t", 1), ("t@v0", 2), ("t@20260102000000500", 3)):
        spark_ext.write(spark.range(count)).save(str(tmp_path / name))
        assert read(spark).load(str(tmp_path / name)).count() == count
    assert read(spark, versionAsOf=0).load(tmp_path / "t@v0").count() == 2
    assert read(spark).load(str(tmp_path / "t@v0@v0")).count() == 2


@pytest.mark.parametrize(
    ("text", "zone_name", "version"),
    [
        ("2026-01-02", "UTC", 0),
        ("2026-01-03", "UTC", None),
        ("2026-01-02 00:00:00.5", "UTC", 1),
        ("2026-1-2 0:0:0.5", "UTC", 1),
        ("2026-01-02T00:00:00.500Z", "Asia/Tokyo", 1),
        ("2026-01-02T00:00:00.500999Z", "Asia/Tokyo", 1),
        ("2026-01-02 09:00:00.500", "Asia/Tokyo", 1),
        ("2026-01-02 09:00:00.499999", "Asia/Tokyo", 0),
        ("2026-01-01", "Asia/Tokyo", None),
        ("2026", "UTC", 0),
        ("2026-01", "Pacific/Kiritimati", None),
        ("2026-01-02 01:00:00.5 Europe/Paris", "UTC", 1),
        ("2026-01-02T05:30:00.5+05:30", "America/New_York", 1),
    ],
)
def test_text_is_cast_by_spark_in_the_session_time_zone(
    spark: Any, travelled: str, zone: Any, text: str, zone_name: str, version: int | None
) -> None:
    zone(zone_name)
    reader = read(spark, timestampAsOf=text)
    if version is None:
        with pytest.raises(deltalog.TimestampOutOfRangeError):
            reader.snapshot(travelled)
    else:
        assert reader.snapshot(travelled).version == version


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("not a time", "is not a timestamp"),
        ("", "is not a timestamp"),
        ("2026-02-30", "is not a timestamp"),
        ("now", "a different time at every call"),
        (" Today ", "a different time at every call"),
        ("current_timestamp()", "a different time at every call"),
        ("epoch", "a different time at every call"),
        ("10:00", "has no date"),
        ("T10:00:00Z", "has no date"),
        ("1767312000", "epoch number"),
        ("1767312000500", "epoch number"),
        ("20260102", "epoch number"),
        (1767312000500, r"DeltaTable.version_at\(ms\)"),
        (dt.date(2026, 1, 2), "aware datetime"),
        (dt.datetime(2026, 1, 2), r"has no time zone.*value\.astimezone\(\).*cast\(timestamp as string\)"),
    ],
)
def test_times_that_are_refused(spark: Any, travelled: str, value: Any, message: str) -> None:
    with pytest.raises(deltalog.InvalidTimestampError, match=message):
        read(spark, timestampAsOf=value).load(travelled)


def test_aware_datetimes_and_ansi_mode(spark: Any, travelled: str) -> None:
    east = dt.timezone(dt.timedelta(hours=9))
    assert read(spark, timestampAsOf=dt.datetime(2026, 1, 2, 9, 0, 0, 500999, east)).snapshot(travelled).version == 1
    assert read(spark, timestampAsOf=dt.datetime(2026, 1, 2, 9, 0, 0, 499999, east)).snapshot(travelled).version == 0
    before = spark.conf.get("spark.sql.ansi.enabled")
    try:
        for ansi in ("true", "false"):
            spark.conf.set("spark.sql.ansi.enabled", ansi)
            with pytest.raises(deltalog.InvalidTimestampError):
                read(spark, timestampAsOf="nonsense").load(travelled)
            assert read(spark, timestampAsOf="2026-01-02 00:00:00.5").load(travelled).count() == 1
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


# --- layouts


def test_names_that_spark_hides_or_cannot_open(spark: Any, table: str) -> None:
    names = ("_a.parquet", ".b.parquet", "c:d.parquet", "_x=1.parquet", "e.parquet")
    make(table, schema(id="long"), [(name, {}, ONE) for name in names])
    assert read(spark).load(table).count() == 5
    nested = deltalog.schema.StructType.from_json(
        '{"type":"struct","fields":[{"name":"st","type":{"type":"struct","fields":['
        '{"name":"a","type":"integer","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},'
        '{"name":"ts","type":"timestamp","nullable":true,"metadata":{}},'
        '{"name":"m","type":{"type":"map","keyType":"string","valueType":"long","valueContainsNull":true},'
        '"nullable":true,"metadata":{}},{"name":"new","type":"string","nullable":true,"metadata":{}}]}'
    )
    data = pa.table(
        {
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "TS": pa.array([0, None], pa.timestamp("us", "UTC")),
            "st": pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
        }
    )
    make(table + "2", nested, [("_n.parquet", {}, data)])
    found = read(spark).load(table + "2").orderBy("ts").collect()
    assert found[0].asDict() == {"st": None, "ts": None, "m": None, "new": None}
    assert (found[1]["st"]["a"], found[1]["m"], found[1]["ts"]) == (1, {"k": 1}, dt.datetime.fromtimestamp(0))


def test_glob_characters_in_one_name_do_not_multiply_rows(spark: Any, table: str) -> None:
    names = ["a.parquet", "b.parquet", "x[y].parquet", "{1,2}/c.parquet", "q?*/d.parquet", "p%20q/e f.parquet"]
    make(table, schema(id="long"), [(name, {}, ONE) for name in names])
    back = read(spark).load(table)
    assert back.count() == len(names)
    assert back.select("_metadata.file_path").distinct().count() == len(names)


def test_one_file_by_two_names_is_read_once(spark: Any, table: str) -> None:
    make(table, schema(id="long"), [("a b.parquet", {}, ONE)])
    add = action(table, 0, "add")[0]
    append_raw(table, 1, {"add": {**add, "path": os.path.join(table, "a%20b.parquet")}})
    append_raw(table, 2, {"add": {**add, "path": "file://" + os.path.join(table, "a%20b.parquet")}})
    assert read(spark).load(table).count() == 1


def test_one_file_with_two_partition_values_is_refused(spark: Any, table: str) -> None:
    make(table, schema(id="long", p="string"), [("a b.parquet", {"p": "x"}, ONE)], ["p"])
    add = action(table, 0, "add")[0]
    line = {"add": {**add, "path": os.path.join(table, "a%20b.parquet"), "partitionValues": {"p": "y"}}}
    append_raw(table, 1, line)
    with pytest.raises(deltalog.CorruptTableError, match="twice, with different partition values"):
        read(spark).load(table)


def explained(df: Any, capsys: Any) -> str:
    capsys.readouterr()
    df.explain()
    return str(capsys.readouterr().out)


def test_many_trees_are_joined_and_few_are_discovered(spark: Any, table: str, capsys: Any) -> None:
    few, many = table + "-few", table + "-many"
    for path, count in ((few, 3), (many, 18)):
        files: DataFiles = [(f"tree{i}/p={i}/f.parquet", {"p": str(i)}, ONE) for i in range(count)]
        make(path, schema(id="long", p="integer"), files, ["p"])
        df = read(spark).load(path)
        assert rows(df.where("p in (1, 12)").select("p")) == [(1,), (12,)][: count // 9 + 1]
        plan = explained(df.where("p = 1"), capsys)
        assert "PartitionFilters: [isnotnull" in plan and ("Join" in plan) == (path == many)
        assert df.groupBy("p").count().count() == count


def test_one_odd_path_does_not_change_how_the_others_are_read(spark: Any, table: str, capsys: Any) -> None:
    files: list[Any] = [(f"p={i}/{name}.parquet", {"p": str(i)}, ONE) for i in range(4) for name in ("a", "_b")]
    files += [("elsewhere/a.parquet", {"p": "1"}, ONE), ("elsewhere/_b.parquet", {"p": None}, ONE)]
    make(table, schema(id="long", p="integer"), files, ["p"])
    df = read(spark).load(table)
    assert rows(df.select("p").na.fill(9)) == [(p,) for p in (0, 0, 1, 1, 1, 2, 2, 3, 3, 9)]
    plan = explained(df.where("p = 3"), capsys)
    # Files outside the directory tree are read by a separate scan for each partition value; Spark drops the scans whose
    # value does not match the filter.
    assert "PartitionFilters: [isnotnull" in plan and "Join" not in plan and plan.count("FileScan") == 1
    assert plan.count("MapInArrow") == 1


@pytest.mark.parametrize(
    "kind, texts, condition",
    [
        ("timestamp", ["2026-01-01 00:00:00", "2026-01-01T01:00:00.000001Z"], "c < timestamp'2026-01-01 00:30:00Z'"),
        ("timestamp_ntz", ["2026-01-01 00:00:00", "2026-01-01 01:00:00.5"], "c < timestamp_ntz'2026-01-01 00:30:00'"),
        ("double", ["1.5", "NaN"], "c < 2"),
        ("float", ["-0.0", "1.0E10"], "c = 0"),
    ],
)
def test_times_and_floats_in_directories_are_pruned(
    spark: Any, table: str, capsys: Any, kind: str, texts: list[str], condition: str
) -> None:
    values = [*((text.replace(":", "%3A"), text) for text in texts), ("__HIVE_DEFAULT_PARTITION__", None)]
    files: DataFiles = [(f"c={name}/a.parquet", {"c": text}, ONE) for name, text in values]
    make(table, schema(id="long", c=kind), files, ["c"])
    df = read(spark).load(table)
    assert df.schema["c"].dataType.typeName() == kind
    made = spark.sql(f"select * from values {', '.join(f'(cast({text!r} as {kind}))' for text in texts)}, (null) t(c)")
    expected = [str(row["c"]) for row in made.collect()]
    assert [str(row["c"]) for row in df.orderBy(F.col("c").asc_nulls_last()).collect()] == expected
    assert [str(row["c"]) for row in df.where(condition).collect()] == expected[:1]
    plan = explained(df.where(condition), capsys)
    assert "PartitionFilters: [" in plan and "PartitionFilters: []" not in plan and "Join" not in plan


def test_the_log_wins_over_the_path(spark: Any, table: str) -> None:
    files: DataFiles = [
        ("p=1/a.parquet", {"p": "2"}, ONE),
        ("p=__HIVE_DEFAULT_PARTITION__/b.parquet", {"p": "0"}, ONE),
        ("p=3/c.parquet", {"p": None}, ONE),
        ("p=4/d.parquet", {"p": ""}, ONE),
        ("q=5/e.parquet", {"p": "05"}, ONE),
    ]
    make(table, schema(id="long", p="integer"), files, ["p"])
    assert sorted((r[0] for r in read(spark).load(table).select("p").collect()), key=str) == [0, 2, 5, None, None]


def test_the_log_wins_where_every_path_looks_right(spark: Any, table: str) -> None:
    make(table, schema(id="long", p="integer"), [(f"p={i}/a.parquet", {"p": "2"}, ONE) for i in (1, 2)], ["p"])
    assert rows(read(spark).load(table)) == [(1, 2), (1, 2)]
    other = table + "2"
    make(other, schema(id="long", p="string"), [(f"p={i}/a.parquet", {"p": "2"}, ONE) for i in ("%32", "2 ")], ["p"])
    assert rows(read(spark).load(other)) == [(1, "2"), (1, "2")]


def test_directories_do_not_name_columns_of_a_table_without_partitions(spark: Any, table: str) -> None:
    make(table, schema(id="long", x="string"), [(f"id={i}/x=y/a.parquet", {}, ONE) for i in (8, 9)])
    assert rows(read(spark).load(table)) == [(1, None), (1, None)]


def test_decimals_in_paths_keep_their_point(spark: Any, table: str) -> None:
    files = [(f"p={text}/a.parquet", {"p": text}, ONE) for text in ("1.5", "2.50", "3", "-0.25")]
    make(table, schema(id="long", p="decimal(9,2)"), files, ["p"])
    assert sorted(str(r[0]) for r in read(spark).load(table).select("p").collect()) == ["-0.25", "1.50", "2.50", "3.00"]


def test_a_partition_value_that_is_not_of_its_type_is_an_error(spark: Any, table: str) -> None:
    make(table, schema(id="long", p="string"), [("a.parquet", {"p": "x1"}, ONE)], ["p"])
    metadata = action(table, 0, "metaData")[0]
    text = metadata["schemaString"].replace('"p","type":"string"', '"p","type":"integer"')
    append_raw(table, 1, {"metaData": {**metadata, "schemaString": text}})
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        with pytest.raises(Exception, match="partition column p has the value x1, which is not of its type"):
            read(spark).load(table).collect()
    spark.conf.unset("spark.sql.ansi.enabled")


def test_partition_timestamps_without_a_zone_are_read_in_the_session_zone(spark: Any, table: str, zone: Any) -> None:
    files = [("a", "2026-01-01 10:00:00"), ("b", "2026-01-01T10:00:00.000000Z"), ("c", "2026-01-01 10:00:00.5")]
    made = [(f"{name}.parquet", {"t": text}, pa.table({"id": [name]})) for name, text in files]
    make(table, schema(id="string", t="timestamp"), made, ["t"])
    zone("Asia/Tokyo")
    df = read(spark).load(table).selectExpr("id", "unix_micros(t) as t")
    assert rows(df) == [("a", 1767229200000000), ("b", 1767261600000000), ("c", 1767229200500000)]


def test_a_column_that_hides_the_metadata_column(spark: Any, table: str) -> None:
    data = pa.table({"_metadata": [1, 2]})
    make(table, schema(_metadata="long", p="string"), [("f 1.parquet", {"p": "é"}, data)], ["p"])
    assert rows(read(spark).load(table)) == [(1, "é"), (2, "é")]


def test_same_names_in_other_directories_and_absolute_paths(spark: Any, table: str) -> None:
    files = [(f"{d}/f.parquet", {"p": d}, ONE) for d in ("x", "y", "p=z w", "é%")]
    absolute = {"y/f.parquet": f"{table}/y/f.parquet"}
    make(table, schema(id="long", p="string"), files, ["p"], absolute)
    assert [r[1] for r in rows(read(spark).load(table))] == ["p=z w", "x", "y", "é%"]


# --- schema


def test_columns_absent_from_files_in_another_order_and_case(spark: Any, table: str) -> None:
    files: DataFiles = [
        ("a.parquet", {}, pa.table({"b": ["x"], "a": pa.array([1], pa.int32())})),
        ("b.parquet", {}, pa.table({"extra": [1.5], "A": pa.array([2], pa.int32())})),
    ]
    make(table, schema(a="integer", b="string", c="double"), files)
    assert rows(read(spark).load(table)) == [(1, "x", None), (2, None, None)]


def test_nullability_metadata_and_order_are_the_tables(spark: Any, table: str) -> None:
    def field(name: str, data_type: Any, nullable: bool = False, **metadata: Any) -> dict[str, Any]:
        return {"name": name, "type": data_type, "nullable": nullable, "metadata": metadata}

    inner = {"type": "struct", "fields": [field("a", "integer"), field("b", "decimal(12,2)", True)]}
    leaves = ["string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double", "date"]
    leaves += ["timestamp", "timestamp_ntz", "decimal(38,0)", "decimal(5,5)"]
    fields = [field(f"c{i}", name, comment=name) for i, name in enumerate(leaves)]
    fields += [
        field("p", "date"),
        field("st", inner, True),
        field("ar", {"type": "array", "elementType": inner, "containsNull": False}),
        field("m", {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": False}, True),
    ]
    wanted = deltalog.schema.StructType.from_json(json.dumps({"type": "struct", "fields": fields}))
    deltalog.DeltaTable.create(table, wanted, partition_by=["p"])
    assert read(spark).load(table).schema == spark_ext.to_spark(wanted)
    item = "named_struct('a', 1, 'b', null)"
    values = ["'s'", "X'00'", "true", "1Y", "2S", "3", "4L", "float(1.5)", "2.5D", "date'2026-01-01'"]
    values += ["timestamp'2026-01-01 00:00:00'", "timestamp_ntz'2026-01-01 00:00:00'"]
    values += ["cast(7 as decimal(38,0))", "cast(0.5 as decimal(5,5))"]
    columns = ", ".join(f"{value} as c{i}" for i, value in enumerate(values))
    inner_type = "struct<a:int,b:decimal(12,2)>"
    query = (
        f"select {columns}, date'2026-05-05' p, cast({item} as {inner_type}) st, "
        f"cast(array({item}) as array<{inner_type}>) ar, cast(map('k', {item}) as map<string,{inner_type}>) m"
    )
    spark_ext.write(spark.sql(query)).mode("append").save(table)
    back = read(spark).load(table)
    assert back.schema == spark_ext.to_spark(wanted)
    assert rows(back.drop("m")) == rows(spark.sql(query).drop("m"))
    assert rows(back.selectExpr("m['k'].a as x", "ar[0].b as y", "st.a as z")) == [(1, None, 1)]


def test_a_null_in_a_not_null_column_is_an_error(spark: Any, table: str) -> None:
    wanted = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":false,"metadata":{}}]}'
    data = pa.table({"id": pa.array([1, None], pa.int64())})
    make(table, deltalog.schema.StructType.from_json(wanted), [("a.parquet", {}, data)])
    with pytest.raises(Exception, match="column id is NOT NULL, but a data file has a NULL in it"):
        read(spark).load(table).collect()


def test_a_data_file_that_is_gone_is_an_error(spark: Any, table: str) -> None:
    make(table, schema(id="long"), [("a.parquet", {}, ONE), ("b.parquet", {}, ONE)])
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        loaded = read(spark).load(table)
        os.unlink(os.path.join(table, "b.parquet"))
        with pytest.raises(Exception, match=r"b.parquet"):
            loaded.collect()
        with pytest.raises(Exception, match=r"b.parquet"):
            read(spark).load(table).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_old_files_keep_their_dates(spark: Any, table: str) -> None:
    # Without the option datetimeRebaseMode, Spark 3.5 refuses ancient dates of files that Spark did not write.
    data = pa.table({"d": pa.array([dt.date(1200, 2, 28)])})
    make(table, schema(d="date"), [("a.parquet", {}, data)])
    for mode in ("EXCEPTION", "LEGACY"):
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", mode)
        try:
            assert rows(read(spark).load(table)) == [(dt.date(1200, 2, 28),)]
        finally:
            spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


# --- what is refused


def test_column_mapping_without_names_is_an_error_and_is_not_written(spark: Any, table: str) -> None:
    make(table, schema(id="long"), [("a.parquet", {}, ONE)])
    mapped = {**action(table, 0, "metaData")[0], "configuration": {"delta.columnMapping.mode": "name"}}
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    append_raw(table, 1, {"protocol": protocol}, {"metaData": mapped})
    with pytest.raises(deltalog.CorruptTableError, match=r"Column id has no delta.columnMapping.physicalName"):
        read(spark).load(table)
    with pytest.raises(deltalog.CorruptTableError, match=r"Column id has no delta.columnMapping.physicalName"):
        spark_ext.write(spark.range(1)).mode("append").save(table)
    assert read(spark, versionAsOf=0).load(table).count() == 1


def test_a_path_that_leaves_the_table_is_refused(spark: Any, table: str) -> None:
    make(table, schema(id="long"), [("a.parquet", {}, ONE)])
    pq.write_table(ONE, Path(table).parent / "outside.parquet")
    append_raw(table, 1, {"add": {**action(table, 0, "add")[0], "path": "../outside.parquet"}})
    with pytest.raises(deltalog.errors.UnsafePathError):
        read(spark).load(table)


# --- the package


@pytest.mark.classic("the test looks for classes in the JVM")
def test_no_delta_class_and_no_jar_is_there(spark: Any) -> None:
    from tests.support.spark.session import assert_no_delta

    assert_no_delta(spark)


def test_nothing_reaches_into_the_jvm_and_names_are_sorted() -> None:
    root = Path(spark_ext.__file__).parent
    for source in root.glob("*.py"):
        if source.name == "conformance.py":  # the adapter of the conformance kit; this module also runs delta-spark
            continue
        text = source.read_text(encoding="utf-8")
        words = ["py4j", "_jvm", "_jdf", "_jsparkSession", "sparkContext"]
        # In classic sessions, this module sets the description of jobs through sparkContext.
        if source.name == "bytes_job.py":
            words.remove("sparkContext")
        assert not any(word in text for word in words), source
        assert "from deltalog." not in text and "import deltalog." not in text, source
    assert spark_ext.__all__ == sorted(spark_ext.__all__)


def test_without_pyspark_the_message_says_what_to_install() -> None:
    import subprocess

    script = "import sys; sys.modules['pyspark'] = None\ntry:\n import spark_ext\nexcept ImportError as e: print(e)"
    root = str(Path(spark_ext.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert "pip install 'deltalog[spark]'" in done.stdout
