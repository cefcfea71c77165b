"""delete, update, merge, optimize, vacuum, restore, repair, alter: deltalake's spellings, defaults and results."""

from __future__ import annotations

import datetime
import os

import pyarrow as pa
import pytest

from deltalog.deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    Schema,
    TableFeatures,
    WriterProperties,
    convert_to_deltalake,
    write_deltalake,
)
from deltalog.deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError
from deltalog.deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

ROWS = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"], "n": pa.array([1, 2, 3], pa.int32())})


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path, ROWS)
    return DeltaTable(tmp_path)


def rows(table):
    return table.to_pyarrow_table().sort_by("id").to_pylist()


def column(table, name):
    return [row[name] for row in rows(table)]


def test_delete(table) -> None:
    found = table.delete("id = 1")
    assert {name: found[name] for name in list(found)[:4]} == {
        "num_added_files": 1, "num_removed_files": 1, "num_deleted_rows": 1, "num_copied_rows": 2,
    }  # fmt: skip
    assert set(found) >= {"execution_time_ms", "scan_time_ms", "rewrite_time_ms"}
    assert table.delete("id = 99")["num_deleted_rows"] == 0
    assert table.version() == 1
    assert table.delete()["num_deleted_rows"] == 2
    assert rows(table) == []


@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        ("\"s\" = 'a'", [2, 3]),
        ("`s` = 'a' -- a remark", [2, 3]),
        ("s = 1", [1, 2, 3]),
        ("s IN ('a', 'it''s')", [2, 3]),
        ("n = int'2'", [1, 3]),
        ("n::bigint > 2", [1, 2]),
        (r"s = '\a'", [1, 2, 3]),
    ],
)
def test_predicates_have_datafusions_spelling(table, predicate, left) -> None:
    table.delete(predicate)
    assert column(table, "id") == left


def test_text_that_looks_like_a_number_is_text(tmp_path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1, 2], "p": ["1", "01"]}))
    table = DeltaTable(tmp_path)
    table.delete("p = 1")
    assert column(table, "id") == [2]


def test_update(table) -> None:
    found = table.update(updates={"s": "concat(s, '!')", '"n"': "n + 1"}, predicate="id > 1")
    assert (found["num_updated_rows"], found["num_copied_rows"]) == (2, 1)
    assert column(table, "s") == ["a", "b!", "c!"]
    assert column(table, "n") == [1, 3, 4]
    table.update(new_values={"s": "it's", "n": 9}, predicate="id = 1")
    assert rows(table)[0] == {"id": 1, "s": "it's", "n": 9}
    for options, error in (
        ({}, ValueError), ({"updates": {}, "new_values": {}}, ValueError), ({"updates": {"n": 1}}, TypeError),
        ({"new_values": {"n": object()}}, TypeError), ({"updates": {"nope": "1"}}, DeltaError),
    ):  # fmt: skip
        with pytest.raises(error):
            table.update(**options)


def test_python_values_of_all_kinds(tmp_path) -> None:
    schema = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("b", pa.bool_()), ("f", pa.float64()),
                        ("l", pa.list_(pa.int64()))])  # fmt: skip
    write_deltalake(tmp_path, pa.Table.from_pylist([{"id": 1}], schema=schema))
    table = DeltaTable(tmp_path)
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    table.update(new_values={"t": moment, "b": True, "f": 1.5, "l": [1, 2]})
    assert rows(table) == [{"id": 1, "t": moment, "b": True, "f": 1.5, "l": [1, 2]}]


def test_values_that_do_not_fit_are_errors_or_null(table) -> None:
    with pytest.raises(DeltaError):
        table.update(updates={"n": "s"})
    table.update(updates={"n": "s"}, error_on_type_mismatch=False)
    assert column(table, "n") == [None, None, None]


def merge(table, source, **options):
    return table.merge(source, "t.id = s.id", source_alias="s", target_alias="t", **options)


def test_merge_of_all_columns(table) -> None:
    source = pa.table({"id": [3, 4], "s": ["C", "D"], "n": pa.array([30, 40], pa.int32()), "more": [1, 2]})
    found = merge(table, source).when_matched_update_all().when_not_matched_insert_all().execute()
    names = ("num_source_rows", "num_target_rows_inserted", "num_target_rows_updated", "num_target_rows_deleted")
    assert [found[name] for name in names] == [2, 1, 1, 0]
    assert set(found) >= {"num_target_rows_copied", "num_output_rows", "num_target_files_added", "execution_time_ms"}
    assert column(table, "s") == ["a", "b", "C", "D"]
    assert column(table, "n") == [1, 2, 30, 40]


def test_merge_clauses(table) -> None:
    source = pa.table({"id": [1, 2, 9], "gone": [True, False, False]})
    (
        merge(table, source)
        .when_matched_delete("s.gone = true")
        .when_matched_update({"t.n": "t.n * 10", "s": "'x'"})
        .when_matched_update({"n": "0"})  # never reached: the clause before it has no predicate
        .when_not_matched_insert({"id": "s.id", "`s`": "'new'"}, predicate="s.id > 5")
        .when_not_matched_by_source_update({"n": "0"}, predicate="t.id = 3")
        .execute()
    )
    assert rows(table) == [
        {"id": 2, "s": "x", "n": 20}, {"id": 3, "s": "c", "n": 0}, {"id": 9, "s": "new", "n": None},
    ]  # fmt: skip
    merge(table, source.slice(0, 1)).when_not_matched_by_source_delete().execute()
    assert rows(table) == []


def test_merge_leaves_out_columns_and_adds_them(table) -> None:
    source = pa.table({"id": [1, 4], "s": ["A", "D"], "more": [7, 8]})
    merge(table, source).when_matched_update_all(except_cols=["s"]).execute()
    assert column(table, "s") == ["a", "b", "c"]
    merge(table, source, merge_schema=True).when_not_matched_insert_all(except_cols=["s"]).execute()
    assert rows(table)[-1] == {"id": 4, "s": None, "n": None, "more": 8}


def test_merge_casts_or_nulls(table) -> None:
    source = pa.table({"id": [1], "n": ["x"]})
    with pytest.raises(DeltaError):
        merge(table, source).when_matched_update_all().execute()
    merge(table, source, error_on_type_mismatch=False).when_matched_update_all().execute()
    assert column(table, "n") == [None, 2, 3]


def test_merge_refuses_several_matches(table) -> None:
    source = pa.table({"id": [1, 1], "n": pa.array([1, 2], pa.int32())})
    with pytest.raises(DeltaError, match="duplicate relevant WHEN MATCHED"):
        merge(table, source).when_matched_update_all().execute()


def test_a_merge_that_changes_nothing_makes_no_commit(table) -> None:
    found = merge(table, ROWS.slice(0, 0)).when_matched_update_all().execute()
    assert (found["num_target_rows_updated"], table.version()) == (0, 0)


def test_optimize_and_z_order(tmp_path) -> None:
    for _ in range(3):
        write_deltalake(tmp_path, ROWS, mode="append", partition_by=["s"])
    table = DeltaTable(tmp_path)
    found = table.optimize.compact(partition_filters=[("s", "=", "a")])
    assert (found["numFilesAdded"], found["numFilesRemoved"], found["partitionsOptimized"]) == (1, 3, 1)
    assert '"totalFiles":3' in found["filesRemoved"]
    found = table.optimize.compact(writer_properties=WriterProperties(compression="GZIP"))
    assert (found["numFilesAdded"], found["numFilesRemoved"]) == (2, 6)
    assert all(".gzip." in uri for uri in table.file_uris(file_pruning_predicate=[("s", "=", "b")]))
    assert table.optimize.z_order(["id"])["numFilesRemoved"] == 3
    assert len(rows(table)) == 9
    for wrong in ([], ["s"], ["nope"]):
        with pytest.raises(DeltaError, match="Z-order"):
            table.optimize.z_order(wrong)
    with pytest.raises(ValueError, match="target_file_size must be between 1 and"):
        table.optimize.compact(target_size=2**63)


def test_a_commit_for_each_group_of_files(tmp_path) -> None:
    for _ in range(2):
        write_deltalake(tmp_path, ROWS, mode="append", partition_by=["s"])
    table = DeltaTable(tmp_path)
    table.optimize.compact(min_commit_interval=0, commit_properties=CommitProperties({"by": "me"}))
    assert [entry["operation"] for entry in table.history(3)] == ["OPTIMIZE"] * 3
    assert {entry["by"] for entry in table.history(3)} == {"me"}


def test_vacuum_only_lists_removed_files_by_default(table, tmp_path) -> None:
    [old] = table.file_uris()
    write_deltalake(table, ROWS, mode="overwrite")
    (tmp_path / "stray.parquet").write_bytes(b"")
    os.utime(tmp_path / "stray.parquet", (0, 0))
    assert table.vacuum() == []
    short = {"retention_hours": 0, "enforce_retention_duration": False}
    assert table.vacuum(**short) == [os.path.basename(old)]
    assert os.path.exists(old)
    assert sorted(table.vacuum(full=True, **short)) == sorted([os.path.basename(old), "stray.parquet"])
    assert table.vacuum(keep_versions=[0], **short) == []
    for hours, error in ((1, DeltaError), (-1, ValueError)):
        with pytest.raises(error, match="retention"):
            table.vacuum(hours)
    properties = CommitProperties({"by": "me"})
    assert table.vacuum(0, False, False, commit_properties=properties) == [os.path.basename(old)]
    assert not os.path.exists(old)
    end, start = table.history(2)
    assert (start["operation"], end["operation"], end["by"]) == ("VACUUM START", "VACUUM END", "me")
    assert (start["operationMetrics"]["numFilesToDelete"], end["operationMetrics"]["numDeletedFiles"]) == (1, 1)


def test_kept_versions_stay_readable(table, tmp_path) -> None:
    for number in (2, 3):
        write_deltalake(table, pa.table({"id": [number], "s": ["x"], "n": pa.array([1], pa.int32())}), mode="overwrite")
    table.vacuum(0, False, False, full=True, keep_versions=[1])
    assert column(DeltaTable(tmp_path, version=1), "id") == [2]
    with pytest.raises((DeltaError, FileNotFoundError)):
        DeltaTable(tmp_path, version=0).to_pyarrow_table()


def test_restore(table) -> None:
    table.delete("id = 1")
    table.delete("id = 2")
    assert table.restore(1) == {"numRemovedFile": 1, "numRestoredFile": 1}
    assert column(table, "id") == [2, 3]
    assert table.restore(datetime.datetime(1990, 1, 1))["numRestoredFile"] == 1
    assert column(table, "id") == [1, 2, 3]
    with pytest.raises(DeltaError, match="Invalid table version"):
        table.restore(99)


def test_repair_removes_files_that_are_gone(table, tmp_path) -> None:
    write_deltalake(table, pa.table({"id": [9], "s": ["z"], "n": pa.array([1], pa.int32())}), mode="append")
    lost = next(uri for uri in table.file_uris(file_pruning_predicate=[("id", "=", 9)]))
    os.unlink(lost)
    assert table.repair(dry_run=True) == {"dry_run": True, "files_removed": [os.path.basename(lost)]}
    assert table.version() == 1
    assert table.repair()["files_removed"] == [os.path.basename(lost)]
    assert (table.version(), column(table, "id")) == (2, [1, 2, 3])
    assert table.history(1)[0]["operation"] == "FSCK"
    assert table.repair() == {"dry_run": False, "files_removed": []}
    assert table.version() == 2


def test_the_change_data_feed(tmp_path) -> None:
    write_deltalake(tmp_path, ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    table = DeltaTable(tmp_path)
    table.update(updates={"s": "'z'"}, predicate="id = 1")
    feed = pa.table(table.load_cdf(1))
    assert sorted(feed["_change_type"].to_pylist()) == ["update_postimage", "update_preimage"]
    assert feed["_commit_version"].to_pylist() == [1, 1]
    only = pa.table(table.load_cdf(columns=["id", "_change_type"], predicate="_change_type = 'insert' AND id > 1"))
    assert sorted(only["id"].to_pylist()) == [2, 3]
    assert only.schema.names == ["id", "_change_type"]
    with pytest.raises(DeltaError, match="Invalid table version: 7"):
        table.load_cdf(7)
    assert pa.table(table.load_cdf(7, allow_out_of_range=True)).num_rows == 0


def test_alter(table) -> None:
    table.alter.add_columns([Field("m", "integer"), Field("o", "string")])
    table.alter.add_constraint({"positive": '"id" > 0'})
    with pytest.raises(DeltaError, match="Invalid data found"):
        table.alter.add_constraint({"large": "id > 2"})
    with pytest.raises(DeltaError):
        write_deltalake(table, pa.table({"id": [-1]}), mode="append", schema_mode="merge")
    table.alter.drop_constraint("positive")
    with pytest.raises(DeltaError):
        table.alter.drop_constraint("positive")
    table.alter.drop_constraint("positive", raise_if_not_exists=False)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})
    with pytest.raises(DeltaError, match=r"delta\.foo"):
        table.alter.set_table_properties({"delta.foo": "1"})
    table.alter.set_table_name("new")
    table.alter.set_table_description("words")
    table.alter.set_column_metadata("id", {"note": "key"})
    assert (table.metadata().name, table.metadata().description) == ("new", "words")
    assert table.metadata().configuration == {"delta.logRetentionDuration": "interval 3 days"}
    assert table.schema().fields[0].metadata == {"note": "key"}
    assert [field.name for field in table.schema().fields] == ["id", "s", "n", "m", "o"]
    for wrong in (
        Field("r", "string", nullable=False),
        Field("g", "long", metadata={"delta.generationExpression": "1"}),
    ):
        with pytest.raises(DeltaError, match="New columns"):
            table.alter.add_columns(wrong)
    for name in ("", "x" * 256):
        with pytest.raises(DeltaError, match="255"):
            table.alter.set_table_name(name)


def test_features_raise_the_protocol_only_if_allowed(table) -> None:
    with pytest.raises(DeltaError, match="allow_protocol_versions_increase"):
        table.alter.add_feature(TableFeatures.DeletionVectors)
    table.alter.add_feature([TableFeatures.DeletionVectors, TableFeatures.AppendOnly], True)
    assert table.protocol().reader_features == ["deletionVectors"]
    assert table.history(1)[0]["operation"] == "ADD FEATURE"
    with pytest.raises(DeltaProtocolError, match="icebergCompatV1"):
        table.alter.add_feature(TableFeatures.IcebergCompatV1)


@pytest.mark.parametrize("writer", ["3", "5", "7"])
def test_the_versions_of_the_protocol_are_properties(table, writer) -> None:
    table.alter.set_table_properties({"delta.minWriterVersion": writer})
    assert table.protocol().min_writer_version == int(writer)
    assert table.metadata().configuration == {"delta.minWriterVersion": writer}


def test_not_null_can_be_dropped_once(tmp_path) -> None:
    DeltaTable.create(tmp_path, Schema([Field("id", "long", nullable=False)]))
    table = DeltaTable(tmp_path)
    with pytest.raises(DeltaError, match="Invalid data found"):
        write_deltalake(tmp_path, pa.table({"id": pa.array([None], pa.int64())}), mode="append")
    table.alter.drop_column_not_null("id")
    write_deltalake(tmp_path, pa.table({"id": pa.array([None], pa.int64())}), mode="append")
    with pytest.raises(DeltaError):
        table.alter.drop_column_not_null("id")


def test_creating_and_replacing_tables(tmp_path) -> None:
    schema = Schema([Field("id", "long"), Field("p", "string")])
    table = DeltaTable.create(tmp_path, schema, partition_by="p", configuration={"delta.appendOnly": "false"})
    with pytest.raises(DeltaError, match="already exists"):
        DeltaTable.create(tmp_path, schema)
    assert DeltaTable.create(tmp_path, schema, mode="ignore").version() == 0
    write_deltalake(table, pa.table({"id": [1], "p": ["x"]}), mode="append")
    replaced = DeltaTable.create(tmp_path, pa.schema([("k", pa.string()), ("v", pa.int32())]), mode="overwrite")
    assert (replaced.version(), replaced.file_uris()) == (2, [])
    assert replaced.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE"
    assert replaced.metadata().partition_columns == [] and replaced.metadata().configuration == {}
    assert replaced.schema().to_arrow().names == ["k", "v"]


def test_append_only_tables_refuse_to_lose_rows(tmp_path) -> None:
    write_deltalake(tmp_path, ROWS, configuration={"delta.appendOnly": "true"})
    with pytest.raises(CommitFailedError, match="append-only"):
        write_deltalake(tmp_path, ROWS, mode="overwrite")


def test_files_of_other_writers(tmp_path) -> None:
    import pyarrow.parquet as pq

    for name in ("one", "two"):
        pq.write_table(ROWS, tmp_path / f"{name}.parquet")
    size = (tmp_path / "one.parquet").stat().st_size
    schema = Schema.from_arrow(ROWS.schema)
    create_table_with_add_actions(str(tmp_path), schema, [AddAction("one.parquet", size, {}, 1, True, "")])
    table = DeltaTable(tmp_path)
    actions: list[AddAction | RemoveAction] = [
        AddAction("/two.parquet", size, {}, 1, True, '{"numRecords":3}'),
        RemoveAction("one.parquet", True, 1),
    ]
    table.create_write_transaction(actions, "append", schema)
    assert [os.path.basename(uri) for uri in table.file_uris()] == ["two.parquet"]
    assert (table.count(), len(rows(table))) == (3, 3)
    table.create_write_transaction(actions[:0], "overwrite", schema)
    assert table.file_uris() == []


def test_a_directory_is_converted(tmp_path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "p=1").mkdir()
    pq.write_table(ROWS, tmp_path / "p=1" / "x.parquet")
    partition_by = Schema([Field("p", "integer")])
    with pytest.raises(ValueError, match="Partition strategy"):
        convert_to_deltalake(tmp_path, partition_by=partition_by)
    convert_to_deltalake(tmp_path, partition_by=partition_by, partition_strategy="hive", name="c")
    assert DeltaTable(tmp_path).metadata().name == "c"
    assert column(DeltaTable(tmp_path), "p") == [1, 1, 1]
    convert_to_deltalake(tmp_path, mode="ignore")
    with pytest.raises(DeltaError):
        convert_to_deltalake(tmp_path)


def test_commit_arguments_by_position_are_deprecated(table) -> None:
    properties = CommitProperties({"by": "me"})
    with pytest.warns(DeprecationWarning, match="positionally"):
        table.delete("id = 1", None, None, properties)
    assert table.history(1)[0]["by"] == "me"
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="multiple values"):
        table.delete("id = 1", None, None, properties, commit_properties=properties)


def test_log_files(table, tmp_path) -> None:
    table.create_checkpoint()
    write_deltalake(table, ROWS, mode="append")
    write_deltalake(table, ROWS, mode="append")
    table.compact_logs(1, 2)
    table.cleanup_metadata()
    table.generate()
    names = {path.name for path in (tmp_path / "_delta_log").iterdir()}
    assert {f"{0:020}.checkpoint.parquet", f"{1:020}.{2:020}.compacted.json"} <= names
    assert (tmp_path / "_symlink_format_manifest" / "manifest").exists()


def test_schema_changes_need_a_schema_mode(table) -> None:
    with pytest.raises(SchemaMismatchError):
        write_deltalake(table, ROWS.append_column("new", pa.array([1, 2, 3])), mode="append")


@pytest.fixture
def fed(tmp_path):
    """A table with a change feed and the versions 0 to 2."""
    for identifier in (1, 2, 3):
        write_deltalake(
            tmp_path, pa.table({"id": [identifier]}), mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
        )  # fmt: skip
    return DeltaTable(tmp_path)


LATER = datetime.datetime(2126, 1, 1, tzinfo=datetime.timezone.utc).isoformat()
EARLIER = datetime.datetime(1999, 1, 1, tzinfo=datetime.timezone.utc).isoformat()


@pytest.mark.parametrize(
    "ends",
    [
        {"starting_version": 1, "ending_version": 99},
        {"starting_version": 1, "ending_timestamp": LATER},
        {"starting_timestamp": EARLIER, "ending_timestamp": LATER},
        {"starting_version": 3, "ending_version": 99},
        {"starting_timestamp": LATER},
    ],
)
def test_a_feed_ends_where_it_ends_in_deltalake(fed, tmp_path, ends) -> None:
    real = pytest.importorskip("deltalake", minversion="1.6")

    def found(table):
        try:
            feed = pa.table(table.load_cdf(**ends))
        except Exception as error:  # deltalake's own class is another
            return type(error).__name__.replace("CallFailedError", "DeltaError")
        return sorted((row["_commit_version"], row["id"]) for row in feed.to_pylist())

    assert found(fed) == found(real.DeltaTable(str(tmp_path)))


def test_what_a_feed_cannot_have_is_an_error_of_the_call(fed, tmp_path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [4], "x": ["a"]}), mode="append", schema_mode="merge")
    DeltaTable(tmp_path).restore(1)
    fed.update_incremental()
    with pytest.raises(SchemaMismatchError, match="column x was dropped"):
        fed.load_cdf(starting_version=0)
    write_deltalake(tmp_path / "off", ROWS)
    with pytest.raises(DeltaError, match="the change data feed was off at version 0"):
        DeltaTable(tmp_path / "off").load_cdf()
