"""Merges: each kind of clause, what a merge reads, refused calls, and conflicts. Random merges are in
test_merge_model."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, ConstraintViolationError, DeltaTable, SchemaMismatchError, TableMerger, col
from deltalog.errors import ConcurrentAppendError, InvalidActionError, RowCountError
from deltalog.rows import matched_rows
from deltalog.schema import PrimitiveType, StructField, StructType
from deltalog.storage.memory import MemoryStore
from deltalog.write.row_writer import RowWriter
from tests.support.core import environment, info, memory, objects

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int32())])
ON = "target.id = source.id"


def table_of(*files: list[tuple[Any, ...]], schema: Any = SCHEMA, **options: Any) -> DeltaTable:
    table = DeltaTable.create(memory(), schema, environment=environment(), **options)
    for each in files or ([(1, "a", 1), (2, "b", 2), (3, None, 3)], [(4, "a", 4), (5, "b", None)]):
        table.append(data(*each, schema=table.snapshot().schema.to_arrow()))
    return table


def data(*rows: tuple[Any, ...], schema: Any = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def rows(table: DeltaTable) -> list[tuple[Any, ...]]:
    found = table.snapshot().scan().to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=str)


def stored(table: DeltaTable) -> dict[str, bytes]:
    store = table.snapshot().reader.store
    assert isinstance(store, MemoryStore)
    return objects(store)


def other_handle(table: DeltaTable) -> DeltaTable:
    return DeltaTable.open(table.snapshot().reader.store, environment=environment())


SOURCE = data((2, "x", 20), (4, "y", 40), (9, "z", 90))


# ------------------------------------------------------------------------------------------------ clauses


def test_every_clause_in_its_order() -> None:
    table = table_of()
    result = (
        table.merge(SOURCE, "t.id = s.id", "s", "t", user_metadata="nightly")
        .when_matched_delete("t.n > 3")
        .when_matched_update({"n": "s.n + t.n", "t.p": "upper(t.p)"})
        .when_not_matched_insert({"id": "id", "n": "n"}, predicate="s.n > 1000")
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"n": "t.n * 100"}, predicate=col("n") < 2)
        .when_not_matched_by_source_delete("t.id = 5")
        .execute()
    )
    assert rows(table) == [(1, "a", 100), (2, "B", 22), (3, None, 3), (9, "z", 90)]
    body = info(table.snapshot().reader.store, result.version)
    assert body["operation"] == "MERGE" and body["userMetadata"] == "nightly" and body["isBlindAppend"] is False
    said = {name: json.loads(text) for name, text in body["operationParameters"].items()}
    assert said == {
        "predicate": ["t.id = s.id"],
        "matchedPredicates": [{"predicate": "t.n > 3", "actionType": "delete"}, {"actionType": "update"}],
        "notMatchedPredicates": [{"predicate": "s.n > 1000", "actionType": "insert"}, {"actionType": "insert"}],
        "notMatchedBySourcePredicates": [
            {"predicate": "(n < 2)", "actionType": "update"}, {"predicate": "t.id = 5", "actionType": "delete"},
        ],
    }  # fmt: skip
    metrics = {name: int(text) for name, text in result.operation_metrics.items()}
    assert {name: count for name, count in metrics.items() if "Bytes" not in name and count} == {
        "numSourceRows": 3, "numTargetRowsInserted": 1, "numTargetRowsUpdated": 2, "numTargetRowsMatchedUpdated": 1,
        "numTargetRowsNotMatchedBySourceUpdated": 1, "numTargetRowsDeleted": 2, "numTargetRowsMatchedDeleted": 1,
        "numTargetRowsNotMatchedBySourceDeleted": 1, "numTargetRowsCopied": 1, "numOutputRows": 4,
        "numTargetFilesAdded": 2, "numTargetFilesRemoved": 2,
    }  # fmt: skip


def test_all_columns_up_to_case_without_some() -> None:
    table = table_of()
    source = pa.table({"ID": [2, 9], "N": [20, 90], "P": ["x", "z"], "more": [0, 0]})
    table.merge(source, ON).when_matched_update_all(except_cols=["p"]).when_not_matched_insert_all().execute()
    assert rows(table) == [(1, "a", 1), (2, "b", 20), (3, None, 3), (4, "a", 4), (5, "b", None), (9, "z", 90)]


def test_sources_of_any_kind_are_read_once() -> None:
    pandas = pytest.importorskip("pandas")
    table = table_of([(1, "a", 1)])
    frame = pandas.DataFrame({"id": [1, 2], "p": [None, None], "n": [7, 8]})
    table.merge(frame, ON).when_matched_update_all().when_not_matched_insert_all().execute()
    assert rows(table) == [(1, None, 7), (2, None, 8)]
    reader = SOURCE.to_reader()
    table.merge(reader, ON).when_not_matched_insert_all().execute()
    with pytest.raises(CallError, match="read"):
        table.merge(reader, ON).when_not_matched_insert_all().execute()


def test_structs_and_lists_of_the_source_fit_as_in_an_append() -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
                        ("l", pa.list_(pa.int64()))])  # fmt: skip
    table = table_of([(1, {"x": 1, "y": "a"}, [1])], schema=schema)
    given = pa.schema([("id", pa.int32()), ("s", pa.struct([("y", pa.string()), ("x", pa.int32())])),
                       ("l", pa.list_(pa.int32()))])  # fmt: skip
    source = data((1, {"x": 5, "y": "e"}, [5, None]), (2, None, None), schema=given)
    table.merge(source, ON).when_matched_update_all().when_not_matched_insert_all().execute()
    assert rows(table) == [(1, {"x": 5, "y": "e"}, [5, None]), (2, None, None)]
    table.merge(source, ON).when_matched_update({"s.y": "source.s.y || '!'", "s.x": "target.s.x + 1"}).execute()
    assert rows(table)[0] == (1, {"x": 6, "y": "e!"}, [5, None])
    wrong = pa.table({"id": [1], "s": ["text"], "l": [[1]]})
    with pytest.raises((CallError, SchemaMismatchError)):
        table.merge(wrong, ON).when_matched_update_all().execute()


# -------------------------------------------------------------------------------------------- merge keys


@pytest.mark.parametrize(
    ("target", "source", "matches"),
    [
        (pa.array([1, 2, None], pa.int64()), pa.array([2, None], pa.int8()), 1),
        (pa.array([1, 2], pa.int32()), pa.array([2**40, 2], pa.int64()), 1),
        (pa.array([1, 2], pa.int64()), pa.array([decimal.Decimal("2.00"), decimal.Decimal("1.50")]), 1),
        (pa.array([decimal.Decimal("1.5")]), pa.array([decimal.Decimal("1.50")], pa.decimal128(20, 10)), 1),
        (pa.array([1.0, float("nan"), -0.0]), pa.array([float("nan"), 0.0, 2.0]), 2),
        (pa.array([1.5, float("nan")], pa.float32()), pa.array([1.5, float("nan")]), 2),
        (pa.array([2, 3], pa.int64()), pa.array([2.0, 2.5]), 1),
        (pa.array(["a", "", None]), pa.array(["", None, "b"]), 1),
        (pa.array([b"a", b""]), pa.array([b"", b"b"]), 1),
        (pa.array([True, None]), pa.array([True]), 1),
        (pa.array([dt.date(2026, 1, 1)]), pa.array([dt.date(2026, 1, 1)]), 1),
        (pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("us")), pa.array([dt.date(2026, 1, 1)]), 1),
        (pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("us", "UTC")),
         pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("ns", "Europe/Berlin")), 1),
    ],
)  # fmt: skip
def test_keys_of_several_types(target: pa.Array, source: pa.Array, matches: int) -> None:
    table = DeltaTable.create(memory(), pa.schema([("k", target.type), ("n", pa.int64())]), environment=environment())
    table.append(pa.table({"k": target, "n": pa.array([0] * len(target), pa.int64())}))
    result = table.merge(pa.table({"k": source}), "target.k = source.k").when_matched_update({"n": "1"}).execute()
    assert result.skipped or result.operation_metrics["numTargetRowsUpdated"] == str(matches)
    assert sum(row["n"] for row in table.snapshot().scan().to_arrow().to_pylist()) == matches
    result = table.merge(pa.table({"k": source}), "source.k <=> target.k").when_matched_update({"n": "2"}).execute()
    nulls = int(bool(target.null_count and source.null_count))
    assert sum(row["n"] == 2 for row in table.snapshot().scan().to_arrow().to_pylist()) == matches + nulls


@pytest.mark.parametrize("condition", [None, "s.n > 0", "t.id > 0"])
def test_rows_that_match_twice_are_refused(condition: str | None) -> None:
    table = table_of()
    source = data((2, "x", 20), (2, "y", 21), (3, "z", 1))
    files = stored(table)
    with pytest.raises(CallError, match="2 rows of the source match one row") as raised:
        table.merge(source, "t.id = s.id", "s", "t").when_matched_update({"n": "s.n"}, condition).execute()
    assert "'id': 2" in str(raised.value) and stored(table) == files
    if condition is not None:
        with pytest.raises(CallError, match="2 rows of the source match one row"):
            table.merge(source, "t.id = s.id", "s", "t").when_matched_delete(condition).execute()
    table.merge(source, "t.id = s.id", "s", "t").when_matched_delete().execute()
    assert [row[0] for row in rows(table)] == [1, 4, 5]


def test_only_inserts_do_not_mind_repeated_keys() -> None:
    table = table_of([(1, "a", 1)])
    table.merge(data((1, "x", 1), (1, "y", 1), (2, "p", 1), (2, "q", 2)), ON).when_not_matched_insert_all().execute()
    assert rows(table) == [(1, "a", 1), (2, "p", 1), (2, "q", 2)]


# ------------------------------------------------------------------------------------------------- rules


def column(name: str, kind: str = "long", nullable: bool = True, **metadata: Any) -> StructField:
    return StructField(name, PrimitiveType(kind), nullable, metadata)


def test_generated_columns_defaults_lengths_and_constraints() -> None:
    generated: dict[str, Any] = {"delta.generationExpression": "id * 2L"}
    schema = StructType(
        (
            column("id", nullable=False), column("twice", **generated), column("d", CURRENT_DEFAULT="7"),
            column("c", "string", __CHAR_VARCHAR_TYPE_STRING="char(3)"),
        )
    )  # fmt: skip
    properties = {"delta.feature.allowColumnDefaults": "supported"}
    table = DeltaTable.create(memory(), schema, properties=properties, environment=environment())
    table.add_constraint("small", "id < 100")
    table.append(pa.table({"id": [1], "c": ["a"]}))
    source = pa.table({"id": [1, 2], "c": ["x", "y"], "new": [10, 20]})
    merger = table.merge(source, ON).when_matched_update({"id": "new", "c": "source.c"})
    merger.when_not_matched_insert_all().execute()
    assert rows(table) == [(10, 20, 7, "x  "), (2, 4, 7, "y  ")]
    table.merge(source, "target.c = source.c").when_matched_update({"d": "0"}).execute()
    # As in Spark, strings are not padded when they are compared with char(n) columns.
    assert [row[2] for row in rows(table)] == [7, 7]
    files = stored(table)
    for changes, error, message in (
        ({"id": "CAST(NULL AS BIGINT)"}, SchemaMismatchError, "NOT NULL"),
        ({"id": "1000"}, ConstraintViolationError, "small"),
        ({"c": "'long text'"}, ConstraintViolationError, "char"),
        ({"twice": "1"}, ConstraintViolationError, "twice"),
    ):
        with pytest.raises(error, match=message):
            table.merge(source, "target.id = source.new").when_matched_update(changes).execute()
        with pytest.raises(error, match=message):
            table.merge(source, "false").when_not_matched_insert({"id": "1", **changes}).execute()
    with pytest.raises(ConstraintViolationError, match="small"):
        table.merge(source, "false").when_not_matched_insert({"c": "c"}).execute()
    assert stored(table) == files


def test_append_only_tables_take_inserts_alone() -> None:
    table = table_of(properties={"delta.appendOnly": "true"})
    table.merge(SOURCE, ON).when_not_matched_insert_all().execute()
    assert len(rows(table)) == 6
    with pytest.raises(InvalidActionError, match="append-only"):
        table.merge(SOURCE, ON).when_matched_delete().execute()


# -------------------------------------------------------------------- the files that are read, and conflicts


def test_files_that_cannot_match_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(*([(10 * n + i, "ab"[n % 2], i) for i in range(10)] for n in range(6)), partition_by=["p"])
    read: list[str] = []
    real = matched_rows.scan_files

    def scanned(snapshot: Any, files: Any, columns: Any) -> Any:
        read.extend(files["path"].to_pylist())
        assert "n" not in columns
        return real(snapshot, files, columns)

    monkeypatch.setattr(matched_rows, "scan_files", scanned)
    before = set(table.snapshot().files()["path"].to_pylist())
    merger = table.merge(data((15, "x", 0), (999, "y", 0)), ON)
    merger.when_matched_update({"n": "source.n"}).when_not_matched_insert_all().execute()
    assert len(read) == 1
    after = set(table.snapshot().files()["path"].to_pylist())
    assert len(before - after) == 1 and len(after - before) == 2
    read.clear()
    table.merge(data((7, "x", 0)), f"target.p = 'a' AND {ON}").when_not_matched_insert_all().execute()
    assert len(read) == 1
    read.clear()
    merger = table.merge(data((7, "x", 0)), f"target.p = 'a' AND {ON}")
    merger.when_not_matched_by_source_delete("target.id >= 50 AND target.p = 'a'").execute()
    assert len(read) == 1


def test_inserts_alone_only_add_files() -> None:
    table = table_of(properties={"delta.enableChangeDataFeed": "true"})
    before = set(table.snapshot().files()["path"].to_pylist())
    result = table.merge(SOURCE, ON).when_not_matched_insert_all().execute()
    after = set(table.snapshot().files()["path"].to_pylist())
    assert before < after and len(after) == len(before) + 1
    assert result.operation_metrics["numTargetChangeFilesAdded"] == "0"
    told = table.changes(result.version).to_arrow().to_pylist()
    assert [(each["_change_type"], each["id"]) for each in told] == [("insert", 9)]


def test_merges_on_different_partitions_both_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of([(1, "a", 1)], [(2, "b", 2)], partition_by=["p"])
    on = "target.p = source.p AND target.id = source.id"
    real = RowWriter.write_updates

    def meanwhile(self: Any, *given: Any) -> Any:
        monkeypatch.setattr(RowWriter, "write_updates", real)
        other = other_handle(table).merge(data((2, "b", 22), (3, "b", 33)), on)
        other.when_matched_update_all().when_not_matched_insert_all().execute()
        return real(self, *given)

    monkeypatch.setattr(RowWriter, "write_updates", meanwhile)
    table.merge(data((1, "a", 11)), on).when_matched_update_all().when_not_matched_insert_all().execute()
    assert rows(table) == [(1, "a", 11), (2, "b", 22), (3, "b", 33)]


@pytest.mark.parametrize(("key", "conflicts"), [(9, True), (10, False)])
def test_a_row_that_comes_meanwhile_is_a_conflict_if_it_matches(
    key: int, conflicts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, real = table_of(), RowWriter.write

    def meanwhile(self: Any, *given: Any, **more: Any) -> Any:
        monkeypatch.setattr(RowWriter, "write", real)
        other_handle(table).append(data((key, "new", 0)))
        return real(self, *given, **more)

    monkeypatch.setattr(RowWriter, "write", meanwhile)
    merger = table.merge(SOURCE, ON).when_not_matched_insert_all()
    if conflicts:
        with pytest.raises(ConcurrentAppendError):
            merger.execute()
    else:
        merger.execute()
        assert [row[0] for row in rows(table)] == [1, 10, 2, 3, 4, 5, 9]


def test_nothing_to_do_makes_no_commit() -> None:
    table = table_of()
    version = table.version
    assert table.merge(SOURCE.slice(0, 0), ON).when_matched_delete().when_not_matched_insert_all().execute().skipped
    assert table.version == version
    merger = table.merge(SOURCE.slice(0, 0), ON, txn=("job", 1)).when_matched_delete()
    assert not merger.execute().skipped and table.version == version + 1
    assert table.merge(SOURCE, ON, txn=("job", 1)).when_matched_delete().execute().skipped
    assert len(rows(table)) == 5


@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true"}], ids=["moved", "vectors"])
def test_rows_that_are_lost_on_the_way_are_noticed(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(properties=properties)
    files, real, write = stored(table), matched_rows.moved_rows, RowWriter.write
    with monkeypatch.context() as patch:
        patch.setattr(matched_rows, "moved_rows", lambda *given: [list(each)[:-1] for each in real(*given)])
        with pytest.raises(RowCountError):
            table.merge(SOURCE, ON).when_matched_update_all().execute()
    with monkeypatch.context() as patch:
        patch.setattr(RowWriter, "write", lambda self, batches, **more: write(self, list(batches)[:-1], **more))
        with pytest.raises(RowCountError, match="1 rows of the source should be inserted, but 0 were"):
            table.merge(SOURCE, ON).when_not_matched_insert_all().execute()
    assert stored(table) == files


# ----------------------------------------------------------------------------------------------- refusals


def merging(table: DeltaTable, on: Any = ON, source: Any = SOURCE, aliases: Any = (None, None)) -> TableMerger:
    return table.merge(source, on, *aliases)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: merging(t), "no clause"),
        (lambda t: merging(t, "id = source.id").when_matched_delete(), "is in both the source and the target"),
        (lambda t: merging(t, "target.nope = source.id").when_matched_delete(), "There is no column 'target.nope'"),
        (lambda t: merging(t, "1").when_matched_delete(), "condition|boolean"),
        (lambda t: merging(t, "target.p = source.id").when_matched_delete(), "string and long together"),
        (lambda t: merging(t, aliases=("x", "X")).when_matched_delete(), "the same alias"),
        (lambda t: merging(t).when_matched_delete().when_matched_update({"n": "1"}), "Only the last clause"),
        (lambda t: merging(t).when_not_matched_insert_all().when_not_matched_insert_all(), "Only the last clause"),
        (lambda t: merging(t).when_matched_update({}), "updates is empty"),
        (lambda t: merging(t).when_matched_update({"source.n": "1"}), "There is no column"),
        (lambda t: merging(t).when_matched_update({"n": "1", "target.N": "2"}), "n is updated twice"),
        (lambda t: merging(t).when_matched_update({"n": "n + 1"}), "is in both the source and the target"),
        (lambda t: merging(t).when_matched_update({"n": "source.n / 0"}), "cannot be computed for a row"),
        (lambda t: merging(t).when_matched_update({"n": "source.p"}), "cannot be computed for a row"),
        (lambda t: merging(t).when_not_matched_insert({"n": "target.n"}), "has no target row"),
        (lambda t: merging(t).when_not_matched_by_source_update({"n": "source.n"}), "has no source row"),
        (lambda t: merging(t).when_not_matched_by_source_delete("source.n = 1"), "has no source row"),
        (lambda t: merging(t, source=SOURCE.drop(["n"])).when_matched_update_all(), "The source has no column n"),
        (lambda t: merging(t).when_matched_update_all(except_cols=["nope"]), "neither source nor target has"),
        (lambda t: merging(t, source=[1, 2]).when_matched_delete(), "__arrow_c_stream__"),
    ],
)
def test_wrong_calls(make: Any, message: str) -> None:
    table = table_of()
    files = stored(table)
    with pytest.raises(CallError, match=message):
        make(table).execute()
    assert stored(table) == files


def test_large_keys_are_joined_by_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalog.rows.merge import condition as merge_condition
    from deltalog.rows.merge import keys, row_matching
    from deltalog.rows.merge import merge as merge_module

    monkeypatch.setattr(keys, "_MAX_VALUES", 2)
    monkeypatch.setattr(merge_condition, "_MAX_PAIRS", 3)
    monkeypatch.setattr(row_matching, "_BLOCK_ROWS", 2)
    monkeypatch.setattr(row_matching, "INSERT_ROWS", 2)
    monkeypatch.setattr(merge_module, "INSERT_ROWS", 2)
    files = [[(10 * n + i, "a", i) for i in range(5)] for n in range(5)]
    source = data(*((i, "s", 1000 + i) for i in range(11, 30)))
    for on in (ON, "target.id >= source.id AND target.id <= source.id"):
        table = table_of(*files)
        merger = table.merge(source, on).when_matched_update_all().when_not_matched_insert_all()
        merger.when_not_matched_by_source_delete("target.id > 20").execute()
        kept = [row for file in files for row in file if row[0] < 11]
        assert rows(table) == sorted([*kept, *((i, "s", 1000 + i) for i in range(11, 30))], key=str)
