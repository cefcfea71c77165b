"""write_deltalake: modes, schema modes, predicates, options of files and commits."""

from __future__ import annotations

import json
import math

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable as OwnTable
from deltalog.deltalake import (
    BloomFilterProperties,
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalog.deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError
from deltalog.errors import DeltaLogError

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]})


def rows_of(path, by="id"):
    return DeltaTable(path).to_pyarrow_table().sort_by(by).to_pylist()


def test_the_modes(tmp_path) -> None:
    write_deltalake(tmp_path, ROWS)
    with pytest.raises(DeltaError, match="already exists"):
        write_deltalake(tmp_path, ROWS)
    write_deltalake(tmp_path, ROWS, mode="ignore")
    assert DeltaTable(tmp_path).version() == 0
    write_deltalake(tmp_path, ROWS, mode="append")
    assert len(rows_of(tmp_path)) == 6
    write_deltalake(tmp_path, ROWS.slice(0, 1), mode="overwrite")
    assert rows_of(tmp_path) == [{"id": 1, "day": "a"}]
    with pytest.raises(ValueError, match="mode must be one of"):
        write_deltalake(tmp_path, ROWS, mode="upsert")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [ROWS, ROWS.to_reader(), ROWS.to_batches()[0], ROWS.to_batches(), pl.from_arrow(ROWS), ROWS.to_pandas()],
    ids=["table", "reader", "batch", "batches", "polars", "pandas"],
)
def test_rows_come_from_any_arrow_object(tmp_path, data) -> None:
    write_deltalake(tmp_path, data)
    assert rows_of(tmp_path) == ROWS.to_pylist()


def test_a_handle_follows_its_writes_and_an_old_one_conflicts(tmp_path) -> None:
    write_deltalake(tmp_path, ROWS)
    table, stale = DeltaTable(tmp_path), DeltaTable(tmp_path)
    write_deltalake(table, ROWS, mode="append")
    assert (table.version(), stale.version()) == (1, 0)
    with pytest.raises(CommitFailedError):
        write_deltalake(stale, ROWS, mode="overwrite")
    write_deltalake(stale, ROWS, mode="append")  # adds rows whatever others did
    assert stale.version() == 2
    assert len(rows_of(tmp_path)) == 9


def test_columns_have_to_match_unless_the_schema_may_change(tmp_path) -> None:
    write_deltalake(tmp_path, ROWS)
    wider = ROWS.append_column("x", pa.array([1.0, 2.0, 3.0]))
    for wrong in (wider, ROWS.select(["id"])):
        for mode in ("append", "overwrite"):
            with pytest.raises(SchemaMismatchError, match="number of fields does not match"):
                write_deltalake(tmp_path, wrong, mode=mode)
    with pytest.raises(DeltaError, match="Schema overwrite not supported"):
        write_deltalake(tmp_path, wider, mode="append", schema_mode="overwrite")
    write_deltalake(tmp_path, wider, mode="append", schema_mode="merge")
    assert DeltaTable(tmp_path).schema().to_arrow().names == ["id", "day", "x"]
    write_deltalake(tmp_path, ROWS.select(["id"]), mode="append", schema_mode="merge")
    write_deltalake(tmp_path, ROWS.select(["day"]), mode="overwrite", schema_mode="overwrite")
    assert DeltaTable(tmp_path).schema().to_arrow().names == ["day"]


def test_values_are_cast_to_the_columns_or_refused(tmp_path) -> None:
    write_deltalake(tmp_path, pa.table({"n": pa.array([1], pa.int8()), "t": pa.array([1], pa.timestamp("ns"))}))
    write_deltalake(tmp_path, pa.table({"n": ["2"], "t": pa.array([2000], pa.timestamp("ns"))}), mode="append")
    assert [row["n"] for row in rows_of(tmp_path, "n")] == [1, 2]
    for wrong in (["x"], [1000]):
        with pytest.raises(SchemaMismatchError, match="Cast error"):
            write_deltalake(tmp_path, pa.table({"n": wrong, "t": pa.array([1], pa.timestamp("us"))}), mode="append")
    unsigned = pa.table({"n": pa.array([200], pa.uint8())})
    with pytest.raises(SchemaMismatchError, match="Cast error"):
        write_deltalake(tmp_path / "unsigned", unsigned)


def test_a_predicate_selects_the_rows_to_replace(tmp_path) -> None:
    write_deltalake(tmp_path, ROWS, partition_by="day")
    new = pa.table({"id": [9], "day": ["a"]})
    write_deltalake(tmp_path, new, mode="overwrite", predicate="day = 'a'")
    assert rows_of(tmp_path) == [{"id": 3, "day": "b"}, {"id": 9, "day": "a"}]
    with pytest.raises(DeltaError, match="Invalid data found"):
        write_deltalake(tmp_path, new, mode="overwrite", predicate="day = 'b'")
    with pytest.raises(DeltaError, match="predicate"):
        write_deltalake(tmp_path, new, mode="append", predicate="day = 'a'")


def test_other_partition_columns_are_refused_except_with_another_schema(tmp_path) -> None:
    write_deltalake(tmp_path, ROWS, partition_by=["day"])
    with pytest.raises(DeltaError, match=r'expected: \["day"\], got: \["id"\]'):
        write_deltalake(tmp_path, ROWS, mode="append", partition_by=["id"])
    write_deltalake(tmp_path, ROWS, mode="overwrite", schema_mode="overwrite", partition_by=[])
    assert DeltaTable(tmp_path).metadata().partition_columns == []
    assert rows_of(tmp_path) == ROWS.to_pylist()


def footer(path):
    return pq.read_metadata(DeltaTable(path).file_uris()[-1])


def test_writer_properties_decide_how_files_are_encoded(tmp_path) -> None:
    properties = WriterProperties(
        compression="ZSTD",
        compression_level=3,
        max_row_group_size=2,
        default_column_properties=ColumnProperties(dictionary_enabled=False),
        column_properties={
            "id": ColumnProperties(encoding="DELTA_BINARY_PACKED", statistics_enabled="NONE"),
            "day": ColumnProperties(
                dictionary_enabled=True, bloom_filter_properties=BloomFilterProperties(True, 0.01, 3)
            ),
        },
    )
    write_deltalake(tmp_path, ROWS, writer_properties=properties)
    found = footer(tmp_path)
    ids, days = (found.row_group(0).column(number) for number in range(2))
    assert found.num_row_groups == 2
    assert (ids.compression, days.compression) == ("ZSTD", "ZSTD")
    assert "DELTA_BINARY_PACKED" in ids.encodings and ids.statistics is None
    assert "RLE_DICTIONARY" in days.encodings and days.statistics is not None
    assert rows_of(tmp_path) == ROWS.to_pylist()


def test_a_target_size_splits_files(tmp_path) -> None:
    many = pa.table({"id": list(range(200_000)), "day": [str(number % 977) for number in range(200_000)]})
    write_deltalake(tmp_path, many, target_file_size=200_000)
    sizes = DeltaTable(tmp_path).get_add_actions()["size_bytes"].to_pylist()
    assert len(sizes) > 3 and max(sizes) < 600_000
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["id"].to_pylist()) == list(range(200_000))


def test_commit_properties_go_into_the_commit(tmp_path) -> None:
    properties = CommitProperties(
        {"userName": "me", "n": 7, "operationParameters": {"mine": True, "mode": "not this"}},
        app_transactions=[Transaction("app", 3, 1_000)],
    )
    write_deltalake(tmp_path, ROWS, commit_properties=properties)
    entry = DeltaTable(tmp_path).history(1)[0]
    assert (entry["userName"], entry["n"], entry["version"]) == ("me", 7, 0)
    assert entry["operationParameters"]["mine"] == "true"
    assert entry["operationParameters"]["mode"] == "ErrorIfExists"
    assert DeltaTable(tmp_path).transaction_version("app") == 3
    assert OwnTable.open(str(tmp_path)).snapshot().set_transactions[0].last_updated == 1_000


@pytest.mark.parametrize(
    "metadata",
    [{"timestamp": 1}, {"txnId": "x"}, {"deltalog": {}}, {"readVersion": -1}, {"userName": 1}, {"x": math.nan}, [1]],
)
def test_commit_info_that_the_commit_writes_or_json_cannot_hold_is_refused(tmp_path, metadata) -> None:
    with pytest.raises(ValueError) as found:
        write_deltalake(tmp_path, ROWS, commit_properties=CommitProperties(metadata))
    assert isinstance(found.value, DeltaLogError)
    assert not DeltaTable.is_deltatable(tmp_path)


def test_no_retry_is_left_to_a_writer_that_asks_for_none(tmp_path) -> None:
    write_deltalake(tmp_path, ROWS)
    stale = DeltaTable(tmp_path)
    write_deltalake(tmp_path, ROWS, mode="append")
    write_deltalake(stale, ROWS, mode="append", commit_properties=CommitProperties(max_commit_retries=0))
    with pytest.raises(ValueError, match="max_commit_retries"):
        write_deltalake(stale, ROWS, mode="append", commit_properties=CommitProperties(max_commit_retries=-1))


@pytest.mark.parametrize("wanted", [True, False])
def test_hooks_decide_whether_a_checkpoint_is_written(tmp_path, wanted) -> None:
    hook = PostCommitHookProperties(create_checkpoint=wanted)
    write_deltalake(tmp_path, ROWS, configuration={"delta.checkpointInterval": "1"})
    write_deltalake(tmp_path, ROWS, mode="append", post_commithook_properties=hook)
    assert (tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet").exists() is wanted


def test_a_new_table_has_no_in_commit_timestamps_unless_it_asks_for_them(tmp_path) -> None:
    """``write_deltalake`` and ``deltalog.deltalake.DeltaTable`` create tables that deltalake can write; only
    ``Dataset.write`` turns in-commit timestamps on."""
    write_deltalake(tmp_path / "plain", ROWS)
    DeltaTable.create(tmp_path / "created", Schema([Field("id", "long")]))
    for name in ("plain", "created"):
        assert not OwnTable.open(str(tmp_path / name)).snapshot().in_commit_timestamps_enabled
    assert DeltaTable(tmp_path / "plain").protocol()[:2] == (1, 2)

    write_deltalake(tmp_path / "asked", ROWS, configuration={"delta.enableInCommitTimestamps": "true"})
    write_deltalake(tmp_path / "asked", ROWS, mode="append")
    for version in (0, 1):
        commit = (tmp_path / "asked" / "_delta_log" / f"{version:020}.json").read_text()
        assert "inCommitTimestamp" in json.loads(commit.splitlines()[0])["commitInfo"]


def test_the_statistics_and_columns_of_generated_columns_are_kept(tmp_path) -> None:
    generated = Field("twice", "long", metadata={"delta.generationExpression": "id * 2"})
    DeltaTable.create(tmp_path, Schema([Field("id", "long"), generated]))
    write_deltalake(tmp_path, pa.table({"id": [1, 2]}), mode="append")
    assert rows_of(tmp_path) == [{"id": 1, "twice": 2}, {"id": 2, "twice": 4}]
    with pytest.raises(DeltaError, match="1 rows failed validation check"):
        write_deltalake(tmp_path, pa.table({"id": [1], "twice": [3]}), mode="append")
    assert DeltaTable(tmp_path).get_add_actions(flatten=True)["max.twice"].to_pylist() == [4]


def test_dictionaries_of_string_views_are_appended_and_merged(tmp_path) -> None:
    words = pa.array(["a", "b"]).cast(pa.string_view())  # as polars encodes Categorical and Enum
    given = pa.table({"id": [1, 2], "c": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.uint32()), words)})
    frame = pl.DataFrame({"id": [3], "c": pl.Series(["b"], dtype=pl.Enum(["a", "b"]))})
    for mode in ("error", "append"):
        write_deltalake(tmp_path, given, mode=mode)
    write_deltalake(tmp_path, frame, mode="append")
    merging = DeltaTable(tmp_path).merge(given, "s.id = t.id AND s.c = t.c", "s", "t")
    merging.when_matched_delete().execute()
    assert rows_of(tmp_path) == [{"id": 3, "c": "b"}]
