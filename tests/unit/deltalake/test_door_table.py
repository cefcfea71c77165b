"""DeltaTable: versions, files, rows and descriptions, in the form in which deltalake returns them."""

from __future__ import annotations

import datetime
import os
import pickle
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from deltalog import DeltaTable as OwnTable
from deltalog.deltalake import CommitProperties, DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalog.deltalake.exceptions import DeltaError, DeltaProtocolError, SchemaMismatchError, TableNotFoundError
from deltalog.deltalake.schema import ArrayType, MapType, PrimitiveType, StructType
from deltalog.deltalake.writer._utils import try_get_table_and_table_uri
from deltalog.errors import DeltaLogError

ROWS = pa.table({"id": [1, 2, 3, 4], "day": ["a", "a", "b", None], "x": [1.0, None, 3.0, 4.0]})


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path, ROWS, partition_by=["day"], name="n", description="d")
    return DeltaTable(tmp_path)


def ids(table, **options):
    return sorted(table.to_pyarrow_table(**options)["id"].to_pylist())


def test_what_describes_a_table(table, tmp_path) -> None:
    assert table.version() == 0
    assert table.table_uri == f"file://{tmp_path}/"
    assert (table.metadata().name, table.metadata().description) == ("n", "d")
    assert table.metadata().partition_columns == ["day"]
    assert table.metadata().configuration == {}
    assert table.protocol() == (1, 2, None, None)
    assert table.schema().to_json() == OwnTable.open(str(tmp_path)).schema.to_json()
    assert table.count() == 4
    assert DeltaTable.is_deltatable(tmp_path) and not DeltaTable.is_deltatable(str(tmp_path / "no"))
    assert try_get_table_and_table_uri(tmp_path / "no", None) == (None, str(tmp_path / "no"))


def test_history_is_the_commit_info_with_versions(table) -> None:
    write_deltalake(table, ROWS, mode="append", commit_properties=CommitProperties({"by": "me"}))
    newest, oldest = table.history()
    assert (newest["version"], oldest["version"]) == (1, 0)
    assert (newest["operation"], newest["by"], newest["operationMetrics"]["numOutputRows"]) == ("WRITE", "me", 4)
    assert newest["operationParameters"] == {"mode": "Append", "partitionBy": '["day"]'}
    assert table.history(1) == [newest]


def test_versions_and_times_are_loaded(table, tmp_path) -> None:
    write_deltalake(tmp_path, ROWS, mode="append")
    assert table.version() == 0
    table.update_incremental()
    assert (table.version(), len(ids(table))) == (1, 8)
    table.load_as_version(0)
    assert (table.version(), len(ids(table))) == (0, 4)
    for number, seconds in ((0, 1_000_000_000), (1, 2_000_000_000)):
        os.utime(tmp_path / "_delta_log" / f"{number:020}.json", (seconds, seconds))
    (tmp_path / "_delta_log" / f"{1:020}.crc").unlink()
    fresh = DeltaTable(tmp_path)
    for instant, version in (
        ("2015-01-01T00:00:00Z", 0), ("2100-01-01T00:00:00+01:00", 1), ("1980-01-01T00:00:00Z", 0),
        (datetime.datetime(2015, 1, 1), 0), (datetime.datetime(2100, 1, 1, tzinfo=datetime.timezone.utc), 1),
    ):  # fmt: skip
        fresh.load_as_version(instant)
        assert fresh.version() == version, instant
    with pytest.raises(ValueError, match="Failed to parse datetime string:"):
        fresh.load_as_version("2015-01-01T00:00:00")
    with pytest.raises(TypeError):
        fresh.load_as_version(1.5)  # type: ignore[arg-type]
    with pytest.raises(DeltaError, match="Invalid table version"):
        DeltaTable(tmp_path, version=7)
    assert DeltaTable(tmp_path, version=0).version() == 0


def test_a_pickled_table_has_its_version(table, tmp_path) -> None:
    write_deltalake(tmp_path, ROWS, mode="append")
    assert pickle.loads(pickle.dumps(table)) == table
    assert pickle.loads(pickle.dumps(table)).version() == 0


def test_files_are_selected_by_filters(table) -> None:
    def days(**options):
        return sorted(uri.split("day=")[1].split("/")[0] for uri in table.file_uris(**options))

    every = ["__HIVE_DEFAULT_PARTITION__", "a", "b"]
    assert days() == every
    for filters, expected in (
        ([("day", "=", "a")], ["a"]),
        ([("day", "!=", "a")], ["b"]),
        ([("day", "in", ["a", "b"])], ["a", "b"]),
        ([("day", "not in", ["a"])], ["b"]),
        ([("day", "=", "")], ["__HIVE_DEFAULT_PARTITION__"]),
        ([("day", ">", "a")], ["b"]),
        ([[("day", "=", "a")], [("day", "=", "b")]], ["a", "b"]),
        ([("id", ">", 3)], ["__HIVE_DEFAULT_PARTITION__"]),
        ("day = 'a' OR id = 4", ["__HIVE_DEFAULT_PARTITION__", "a"]),
    ):
        assert days(file_pruning_predicate=filters) == expected, filters
    with pytest.warns(DeprecationWarning):
        assert days(partition_filters=[("day", "=", "a")]) == ["a"]
    assert table.partitions(file_pruning_predicate=[("day", "=", "a")]) == [{"day": "a"}]
    assert len(table.partitions()) == 3
    with pytest.raises(SchemaMismatchError, match="no"):
        table.file_uris(file_pruning_predicate=[("no", "=", "a")])
    with pytest.raises(ValueError, match="Invalid partition filter found"):
        table.file_uris(file_pruning_predicate=[("day", "=>", "a")])
    with pytest.raises(ValueError):
        table.file_uris(file_pruning_predicate=[("day", "=", "a"), [("day", "=", "b")]])


def test_a_quote_in_a_filter_is_text(tmp_path) -> None:
    odd = "a' OR '1'='1\\"
    write_deltalake(tmp_path, pa.table({"id": [1, 2], "day": [odd, "b"]}), partition_by=["day"])
    table = DeltaTable(tmp_path)
    assert len(table.file_uris(file_pruning_predicate=[("day", "=", odd)])) == 1
    assert table.partitions(file_pruning_predicate=[("day", "=", odd)]) == [{"day": odd}]
    table.delete("day = 'a'' OR ''1''=''1\\'")
    assert ids(table) == [2]


def test_add_actions_as_columns_or_structs(table) -> None:
    nested = pa.table(table.get_add_actions())
    assert nested.schema.names == [
        "path", "size_bytes", "modification_time", "num_records", "null_count", "min", "max", "partition",
    ]  # fmt: skip
    flat = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert {row["partition.day"]: (row["num_records"], row["min.id"], row["max.id"], row["null_count.x"])
            for row in flat} == {"a": (2, 1, 2, 1), "b": (1, 3, 3, 0), None: (1, 4, 4, 0)}  # fmt: skip


def test_rows_with_columns_and_filters(table) -> None:
    assert ids(table, filters=[("id", ">", 2)]) == [3, 4]
    assert ids(table, filters=ds.field("day") == "a") == [1, 2]
    assert ids(table, filters=[[("id", "=", 1)], [("day", "=", "b")]]) == [1, 3]
    assert table.to_pyarrow_table(columns=["x", "id"]).schema.names == ["x", "id"]
    assert list(table.to_pandas(columns=["id"]).columns) == ["id"]
    with pytest.warns(DeprecationWarning):
        assert ids(table, partitions=[("day", "=", "a")]) == [1, 2]
    assert sorted(pa.table(table.scan(["id"], "day = 'a'"))["id"].to_pylist()) == [1, 2]


def test_a_dataset_skips_files_by_partition_and_statistics(table) -> None:
    dataset = table.to_pyarrow_dataset()
    assert dataset.schema == ROWS.schema
    assert len(list(dataset.get_fragments(ds.field("day") == "a"))) == 1
    assert len(list(dataset.get_fragments(ds.field("id") > 3))) == 1
    assert len(list(dataset.get_fragments(ds.field("id") > 9))) == 0
    assert dataset.to_table(filter=ds.field("x").is_null())["id"].to_pylist() == [2]
    large = table.to_pyarrow_dataset(as_large_types=True)
    assert large.schema.field("day").type == pa.large_string()


def test_nan_and_cut_times_are_not_lost_to_guarantees(tmp_path) -> None:
    rows = pa.table({"f": [float("nan"), 1.0], "t": pa.array([1_001, 2_999], pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path, rows)
    dataset = DeltaTable(tmp_path).to_pyarrow_dataset()
    assert dataset.to_table(filter=~(ds.field("f") <= 1.0)).num_rows == 1
    last = pa.scalar(2_999, pa.timestamp("us", "UTC"))
    assert dataset.to_table(filter=ds.field("t") >= last).num_rows == 1


def test_a_nan_in_a_partition_column_is_found(tmp_path) -> None:
    rows = pa.table({"f": [float("nan"), 1.0], "id": [1, 2]})
    write_deltalake(tmp_path, rows, partition_by=["f"])
    dataset = DeltaTable(tmp_path).to_pyarrow_dataset()
    assert dataset.to_table(columns=["id"], filter=~(ds.field("f") <= 1.0))["id"].to_pylist() == [1]


def test_a_dataset_has_the_columns_and_types_of_a_given_schema(tmp_path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [2, 10], "day": ["a", "b"]}), partition_by=["day"])
    write_deltalake(tmp_path, pa.table({"id": [2**40], "day": ["c"]}), mode="append")
    table = DeltaTable(tmp_path)
    dataset = table.to_pyarrow_dataset(schema=pa.schema({"id": pa.int32(), "day": pa.large_string()}))
    # int32 has no bounds of the last file, so that file is not skipped.
    assert len(list(dataset.get_fragments(ds.field("id") > 2))) == 2
    assert dataset.to_table(filter=ds.field("day") == "b")["id"].to_pylist() == [10]
    # 10 is the least id of its file as a number, but not as a text.
    as_text = table.to_pyarrow_dataset(schema=pa.schema({"id": pa.string()}))
    assert len(list(as_text.get_fragments(ds.field("id") < "2"))) == 3


def test_of_very_many_bounds_those_of_the_first_columns_are_attached(table, monkeypatch) -> None:
    monkeypatch.setattr("deltalog.deltalake.dataset._MOST_BOUNDS", 5)  # 3 files with bounds of 2 columns
    dataset = table.to_pyarrow_dataset()
    assert len(list(dataset.get_fragments(ds.field("id") > 3))) == 1
    assert len(list(dataset.get_fragments(ds.field("day") == "a"))) == 1


def test_vectors_and_mapped_columns_are_read(tmp_path) -> None:
    write_deltalake(tmp_path, ROWS, configuration={"delta.enableDeletionVectors": "true"})
    table = DeltaTable(tmp_path)
    table.delete("id IN (2, 4)")
    assert ids(table) == [1, 3]
    assert ids(table, filters=[("id", ">", 1)]) == [3]
    [vector] = pa.table(table.deletion_vectors()).to_pylist()
    assert vector["selection_vector"] == [True, False, True, False]
    assert vector["filepath"] == f"file://{table.file_uris()[0]}"
    own = OwnTable.open(str(tmp_path))
    own.set_properties({"delta.columnMapping.mode": "name"})
    own.rename_column("id", "key")
    table.update_incremental()
    assert sorted(table.to_pyarrow_table()["key"].to_pylist()) == [1, 3]
    assert sorted(table.to_pandas(columns=["key"])["key"]) == [1, 3]


def test_queries_run_on_duckdb(table) -> None:
    pytest.importorskip("duckdb")
    query = QueryBuilder().register("t", table)
    assert query.execute("select sum(id) as s from t where day = 'a'").read_all()["s"].to_pylist() == [3]
    with pytest.raises(DeltaError, match="query failed"):
        query.execute("select nothing from nowhere")


def test_without_arro3_results_are_pyarrows(table, monkeypatch) -> None:
    from deltalog.deltalake import arrow

    monkeypatch.setattr(arrow, "_arro3", lambda: None)
    assert isinstance(table.get_add_actions(), pa.Table)
    assert isinstance(table.schema().to_arrow(), pa.Schema)
    assert isinstance(table.scan(), pa.RecordBatchReader)
    assert isinstance(Field("a", "integer").to_arrow(), pa.Field)


def test_types_have_json_arrow_and_equality() -> None:
    fields = [
        Field("a", "decimal( 10 , 2 )", nullable=False, metadata={"note": {"deep": 1}}),
        Field("b", ArrayType("string", False)),
        Field("c", MapType("string", StructType([Field("d", "date")]), True)),
    ]
    schema = Schema(fields)
    assert Schema.from_json(schema.to_json()) == schema
    plain = Schema([Field("b", ArrayType("string", True)), Field("n", PrimitiveType("timestamp_ntz"))])
    assert Schema.from_arrow(plain.to_arrow()) == plain
    assert pa.schema(plain).names == ["b", "n"]
    assert fields[0].metadata == {"note": '{"deep":1}'}
    assert fields[0].type == PrimitiveType("decimal(10,2)")
    assert repr(Field("a", "integer")) == 'Field(a, PrimitiveType("integer"), nullable=True)'
    for wrong in ("int", "decimal", "decimal(39,1)"):
        with pytest.raises(ValueError):
            PrimitiveType(wrong)
    with pytest.raises(TypeError):
        ArrayType.from_json('"string"')


def test_errors_are_deltalakes_and_deltalogs(tmp_path, table) -> None:
    with pytest.raises(TableNotFoundError) as found:
        DeltaTable(tmp_path / "no")
    assert isinstance(found.value, (DeltaError, DeltaLogError))
    assert isinstance(found.value.__cause__, DeltaLogError)
    with pytest.raises(DeltaError, match="No field named nope"):
        table.delete("nope = 1")
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    log.write_text('{"protocol":{"minReaderVersion":9,"minWriterVersion":9}}\n')
    with pytest.raises(DeltaProtocolError):
        DeltaTable(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="paths")
def test_object_stores_options_mean_nothing_at_a_local_path(tmp_path) -> None:
    options = {"AWS_ACCESS_KEY_ID": "x", "allow_unsafe_rename": "true", "AWS_ALLOW_HTTP": "true"}
    write_deltalake(tmp_path, ROWS, storage_options=options)
    assert DeltaTable(tmp_path, storage_options=options).version() == 0
    with pytest.raises(ValueError, match="acess_key"):
        DeltaTable(tmp_path, storage_options={"acess_key": "x"})


def test_the_index_of_a_data_frame_is_a_column(tmp_path) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 4]})
    write_deltalake(tmp_path / "t", frame[frame.a != 3])
    rows = DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert rows.to_pydict() == {"a": [1, 2, 4], "__index_level_0__": [0, 1, 3]}


def test_a_call_that_commits_nothing_stays_at_its_version(tmp_path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"x": [1]}))
    write_deltalake(tmp_path / "t", pa.table({"x": [2]}), mode="overwrite")
    table = DeltaTable(tmp_path / "t", version=0)
    for call in (table.vacuum, lambda: table.delete("x = 77"), lambda: table.repair(dry_run=True)):
        call()
        assert (table.version(), table.to_pyarrow_table()["x"].to_pylist()) == (0, [1])
    with pytest.raises(DeltaError, match="should be less then last available version"):
        table.restore(0)
    latest = DeltaTable(tmp_path / "t")
    latest.restore(0)
    assert (latest.version(), latest.to_pyarrow_table()["x"].to_pylist()) == (2, [1])


def test_the_message_of_an_unknown_option_lists_both_kinds_of_names() -> None:
    pytest.importorskip("s3fs")
    with pytest.raises(DeltaError, match=r"\['nonsense'\].*AWS_ENDPOINT_URL.*endpoint_url"):
        DeltaTable("s3://bucket/table", storage_options={"nonsense": "1"})
