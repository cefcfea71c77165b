"""Identity columns in row operations: every row gets a value, and no value occurs twice, even with concurrent
writers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import (
    CallError,
    ConstraintViolationError,
    DeltaLogError,
    DeltaTable,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from deltalog.errors import MetadataChangedError
from deltalog.protocol.identity_columns import MARK_KEY, identity_of
from deltalog.rows.delete import delete
from deltalog.schema import PrimitiveType, StructField, StructType, identity_column
from tests.support.core import environment, memory

TEXT = PrimitiveType("string")


def schema(**options: Any) -> StructType:
    return StructType((identity_column("id", **options), StructField("v", TEXT)))


def words(*values: str) -> pa.Table:
    return pa.table({"v": pa.array(values, pa.string())})


def created(*values: str, properties: dict[str, str] | None = None, **options: Any) -> DeltaTable:
    data = words(*values) if values else None
    return DeltaTable.create(memory(), schema(**options), data=data, properties=properties, environment=environment())


def rows(table: DeltaTable) -> dict[int, str]:
    found = table.to_pyarrow_table().to_pylist()
    ids = [row["id"] for row in found]
    assert len(set(ids)) == len(ids) and None not in ids
    return {row["id"]: row["v"] for row in sorted(found, key=lambda row: row["id"])}


def mark(table: DeltaTable) -> int | None:
    found = identity_of(table.snapshot().schema.field("id"))
    assert found is not None
    return found.mark


def test_rows_are_numbered_from_the_first_version_on() -> None:
    table = created("a", "b", start=10, step=5)
    assert rows(table) == {10: "a", 15: "b"} and mark(table) == 15
    assert "identityColumns" in (table.snapshot().protocol.writer_features or ())
    table.append(words("c"))
    table.append(words())
    assert rows(table) == {10: "a", 15: "b", 20: "c"} and mark(table) == 20
    assert table.check(deep=True).findings == ()


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_a_sequence_may_go_down_and_columns_be_mapped(mode: str) -> None:
    table = created(start=-1, step=-3, properties={"delta.columnMapping.mode": mode})
    table.append(words("a", "b"))
    table.append(words("c"))
    assert rows(table) == {-7: "c", -4: "b", -1: "a"} and mark(table) == -7
    if mode != "none":
        table.rename_column("id", "key")
        table.append(words("d"))
        assert sorted(table.to_pyarrow_table()["key"].to_pylist()) == [-10, -7, -4, -1]


def test_many_batches_and_partitions_have_one_sequence() -> None:
    parts = StructType((identity_column("id"), StructField("p", TEXT)))
    table = DeltaTable.create(memory(), parts, partition_by=["p"], environment=environment())
    batches = [pa.record_batch({"p": pa.array([str(n % 3)] * 7)}) for n in range(20)]
    table.append(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == list(range(1, 141))


def test_overwrites_continue_the_sequence() -> None:
    table = created("a", "b")
    table.overwrite(words("c", "d"))
    assert rows(table) == {3: "c", 4: "d"}
    table.overwrite(words("e"), where="v = 'e'")
    table.overwrite(words("c"), where="v = 'c'")
    assert rows(table) == {4: "d", 5: "e", 6: "c"}
    table.overwrite(pa.table({"id": [7]}), overwrite_schema=True)
    assert identity_of(table.snapshot().schema.field("id")) is None


@pytest.mark.parametrize("feed", ["true", "false"])
def test_merges_generate_once_for_rows_and_changes(feed: str) -> None:
    table = created("a", "b", properties={"delta.enableChangeDataFeed": feed})
    merger = table.merge(words("b", "c", "d"), "target.v = source.v").when_matched_update({"v": "'B'"})
    merger.when_not_matched_insert_all().execute()
    assert rows(table) == {1: "a", 2: "B", 3: "c", 4: "d"}
    if feed == "true":
        inserted = [
            row for row in table.changes(table.version).to_arrow().to_pylist() if row["_change_type"] == "insert"
        ]
        assert {row["id"]: row["v"] for row in inserted} == {3: "c", 4: "d"}
    table.merge(words("e"), "target.v = source.v").when_not_matched_insert({"v": "source.v"}).execute()
    table.merge(words("a", "b"), "target.v = source.v").when_matched_delete().execute()
    assert rows(table) == {2: "B", 3: "c", 4: "d", 5: "e"} and mark(table) == 5


def test_rows_that_exist_keep_their_values() -> None:
    table = created("a", "b", "c", properties={"delta.enableChangeDataFeed": "true"})
    table.update({"v": "'x'"}, where="id = 2")
    table.append(words("d"))
    table.delete("id = 1")
    table.optimize.compact()
    assert rows(table) == {2: "x", 3: "c", 4: "d"} and mark(table) == 4


def test_a_restore_never_brings_values_back() -> None:
    table = created("a")
    table.append(words("b", "c"))
    table.restore(0)
    assert rows(table) == {1: "a"} and mark(table) == 3
    table.append(words("d"))
    assert rows(table) == {1: "a", 4: "d"} and table.check(deep=True).findings == ()


def test_another_schema_keeps_the_mark() -> None:
    table = created("a", "b")
    with table.transaction() as transaction:
        transaction.set_schema(StructType((*schema().fields, StructField("w", TEXT))))
        transaction.commit()
    table.append(words("c"))
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]


# ----------------------------------------------------------------------------- values supplied by the caller

GIVEN = pa.table({"id": [7], "v": ["x"]})


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda table: table.append(GIVEN), "the data has values for it"),
        (lambda table: table.overwrite(GIVEN), "the data has values for it"),
        (lambda table: table.overwrite(GIVEN, where="v = 'x'"), "the data has values for it"),
        (lambda table: table.update({"id": "id + 1"}), "cannot be updated"),
        (
            lambda table: table.merge(GIVEN, "target.v = source.v").when_not_matched_insert_all().execute(),
            "the data has values for it",
        ),
        (
            lambda table: table.merge(GIVEN, "target.v = source.v").when_matched_update({"id": "1"}).execute(),
            "cannot be updated",
        ),
    ],
)
def test_values_for_generated_always_are_refused(verb: Callable[[DeltaTable], Any], message: str) -> None:
    table = created("a")
    with pytest.raises(SchemaMismatchError, match=f"GENERATED ALWAYS AS IDENTITY.*{message}"):
        verb(table)
    assert table.version == 0 and rows(table) == {1: "a"}


def test_values_for_generated_by_default_are_taken_and_not_generated_again() -> None:
    table = created("a", by_default=True, start=1, step=10)
    table.append(pa.table({"id": [33, -5], "v": ["b", "c"]}))
    assert mark(table) == 41
    table.append(words("d"))
    assert rows(table) == {-5: "c", 1: "a", 33: "b", 51: "d"}
    table.append(pa.table({"id": [2], "v": ["e"]}))
    assert mark(table) == 51
    with pytest.raises(SchemaMismatchError, match="cannot be updated"):
        table.update({"id": "0"})


def test_files_of_others_move_the_mark(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    table = DeltaTable.create(location, schema(by_default=True))
    for number, known in ((20, False), (40, True)):
        name = f"{number}.parquet"
        pq.write_table(pa.table({"id": [number], "v": ["x"]}), f"{location}/{name}")
        with table.transaction() as transaction:
            transaction.row_writer.rules()
            adds = transaction.add_parquet_files([(name, {})], checked=known)
            transaction.row_writer.note_values(adds if known else [])
            transaction.commit()
        table.append(words("y"))
    assert sorted(rows(table)) == [20, 21, 40, 41]
    always = DeltaTable.create(str(tmp_path / "always"), schema())
    pq.write_table(pa.table({"id": [1], "v": ["x"]}), str(tmp_path / "always" / "a.parquet"))
    with always.transaction() as transaction, pytest.raises(SchemaMismatchError, match="the data has values for it"):
        transaction.add_parquet_files([("a.parquet", {})])
        transaction.commit()


def test_a_mark_that_another_writer_left_behind_is_set() -> None:
    table = created("a", by_default=True)
    table.append(pa.table({"id": [90], "v": ["b"]}))
    with table.transaction() as transaction:  # as delta-spark leaves it
        stale = StructField(
            "id", PrimitiveType("long"), True, {**schema(by_default=True).fields[0].metadata, MARK_KEY: 1}
        )
        text = StructType((stale, transaction.schema.fields[1])).to_json()
        metadata = msgspec.structs.replace(transaction.metadata, schema_string=text)
        transaction.metadata_changes.set_state(transaction.protocol, metadata)
        transaction.commit()
    assert mark(table) == 1
    assert table.set_column("id", sync_identity=True).skipped is False
    assert mark(table) == 90 and table.set_column("id", sync_identity=True).skipped
    with pytest.raises(SchemaMismatchError, match="not an identity column"):
        table.set_column("v", sync_identity=True)


def test_a_sequence_that_is_used_up() -> None:
    table = created(start=2**63 - 3, step=2)
    table.append(words("a"))
    with pytest.raises(ConstraintViolationError, match="no values left"):
        table.append(words("b", "c"))
    table.append(words("b"))
    assert rows(table) == {2**63 - 3: "a", 2**63 - 1: "b"}


# ------------------------------------------------------------------------------------------- concurrent writers


def test_two_writers_never_take_the_same_value() -> None:
    table = created("a")
    transaction = table.transaction()
    transaction.write(words("lost").to_reader())
    table.append(words("b"))
    with pytest.raises(MetadataChangedError):
        transaction.commit()
    assert rows(table) == {1: "a", 2: "b"}


def test_a_handle_that_is_behind_reads_the_latest_mark() -> None:
    table = created("a")
    other = DeltaTable.open(table._handle.reader.store, environment=environment())
    table.append(words("b"))
    other.append(words("c"))
    assert rows(table) == {1: "a", 2: "b", 3: "c"}


def test_changes_of_other_rows_do_not_conflict_with_new_marks() -> None:
    table = created("a", "b")
    with table.transaction() as transaction:
        table.append(words("c"))
        delete(transaction, "id = 1", None, None)
    assert rows(table) == {2: "b", 3: "c"} and mark(table) == 3
    info = json.loads(table._handle.reader.store.get("_delta_log/00000000000000000001.json").splitlines()[0])
    assert info["commitInfo"]["tags"] == {"delta.identity.schemaUpdate": "true"}


def test_threads_that_repeat_after_conflicts() -> None:
    table = created()
    failures: list[BaseException] = []

    def writer(name: str) -> None:
        try:
            for number in range(5):
                table.retrying(lambda t: t.append(words(f"{name}{number}")), retry_count=50)  # noqa: B023
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=writer, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and sorted(rows(table)) == list(range(1, 21))


# ------------------------------------------------------------------------------------------- refused changes


def test_files_are_not_staged_for_later() -> None:
    table = created("a")
    with pytest.raises(UnsupportedFeatureError, match=r"identityColumns.*DeltaTable\.append"):
        table.stage(words("b"))
    assert rows(table) == {1: "a"}


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.add_columns([identity_column("n")]),
        lambda table: table.set_column("id", data_type=pa.decimal128(20, 0)),
        lambda table: table.drop_feature("identityColumns"),
    ],
)
def test_changes_that_break_the_column(change: Callable[[DeltaTable], Any]) -> None:
    table = created("a", properties={"delta.enableTypeWidening": "true"})
    with pytest.raises((SchemaMismatchError, CallError)):
        change(table)
    assert table.version == 0


def test_a_table_whose_identity_column_cannot_be_filled_takes_no_rows() -> None:
    table = created("a")
    broken = {"delta.identity.start": 1, "delta.identity.step": 0}
    with table.transaction() as transaction:
        text = StructType((StructField("id", PrimitiveType("long"), True, broken),)).to_json()
        metadata = msgspec.structs.replace(transaction.metadata, schema_string=text)
        transaction.metadata_changes.set_state(transaction.protocol, metadata)
        transaction.commit()
    with pytest.raises(UnsupportedFeatureError, match="has the step 0"):
        table.append(pa.table({"id": [1]}))
    with pytest.raises(DeltaLogError):
        DeltaTable.create(memory(), StructType((StructField("id", TEXT, True, broken),)))
