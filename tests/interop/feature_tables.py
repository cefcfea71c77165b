"""A table for each thing that deltalog writes, made with its public API. `matrix` lets the peers read them.

A builder makes the table, asserts that what it is about is in the log, and returns the rows that the table must have.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltalog import AddFile, DeltaTable, Environment, PrimitiveType, StructField, StructType, col, identity_column
from tests.support.spark.every_type import PARTITIONABLE, PERSON, ROWS
from tests.support.spark.log_files import actions, commits, drop_below
from tests.support.spark.shapes import PLACES, SCHEMA, batch

ICT = {"delta.enableInCommitTimestamps": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
V2 = {"delta.checkpointPolicy": "v2"}
LONG, TEXT = PrimitiveType("long"), PrimitiveType("string")
INSERT = "INSERT INTO {t} SELECT * FROM {t} LIMIT 1"
DELETE = "DELETE FROM {t} WHERE id = 1"
UPDATE = "UPDATE {t} SET amount = 0.5 WHERE id = 2"
DAY_MS = 86_400_000

Builder = Callable[[Path], pa.Table]


@dataclass(frozen=True)
class Feature:
    """A row of the matrix.

    ``spark``: what delta-spark then does to the table; ``refused``: what it must refuse, with which error.
    ``changes_from``: the first version with a change data feed; ``row_ids``: whether rows are tracked; ``checksum``:
    whether there is a ``.crc`` (docs/log-files.md says when there is none).
    """

    name: str
    by: str
    build: Builder
    spark: tuple[str, ...]
    refused: tuple[str, str] | None
    changes_from: int | None
    row_ids: bool
    checksum: bool


FEATURES: dict[str, Feature] = {}


def feature(
    name: str,
    by: str,
    *,
    spark: tuple[str, ...] = (INSERT, DELETE),
    refused: tuple[str, str] | None = None,
    changes_from: int | None = None,
    row_ids: bool = False,
    checksum: bool = True,
) -> Callable[[Builder], Builder]:
    """Add a row to the matrix: its name, and the calls that write it."""

    def register(build: Builder) -> Builder:
        assert name not in FEATURES, name
        FEATURES[name] = Feature(name, by, build, spark, refused, changes_from, row_ids, checksum)
        return build

    return register


def logged(path: Path, kind: str) -> list[dict[str, Any]]:
    """The actions of a kind in the commits that are there."""
    return [line[kind] for commit in commits(path).values() for line in actions(commit) if kind in line]


def listed(table: DeltaTable) -> set[str]:
    """The features that the protocol lists."""
    protocol = table.snapshot().protocol
    return {*(protocol.writer_features or ()), *(protocol.reader_features or ())}


def without(rows: pa.Table, *ids: int) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["id"], pa.array(ids, pa.int64()))))


def as_partitioned(rows: pa.Table) -> pa.Table:
    """Partitioned by place there is no empty text: it is null."""
    place = pc.if_else(pc.equal(rows["place"], ""), None, rows["place"])
    return rows.set_column(rows.schema.get_field_index("place"), "place", place)


def created(path: Path, *properties: dict[str, str], **more: Any) -> DeltaTable:
    merged = {key: value for each in properties for key, value in each.items()}
    return DeltaTable.create(str(path), SCHEMA, properties=merged, **more)


def columns(*fields: tuple[str, PrimitiveType, bool, dict[str, str]]) -> StructType:
    return StructType(tuple(StructField(*each) for each in fields))


# ------------------------------------------------------------------------------------------- rows and columns


@feature("Rows", "`create`, `append`")
def plain(path: Path) -> pa.Table:
    table = created(path)
    table.append(batch(0, 6))
    table.append(batch(6, 3))
    return batch(0, 9)


@feature("Created with rows, name, description and comments", "`create(data=…)`, `set_table`, `set_column(comment=…)`")
def described(path: Path) -> pa.Table:
    table = created(path, data=batch(0, 3), name="one", description="two words")
    table.set_table(name="t", description="who; 'what'")
    table.set_column("name", comment="as told")
    metadata = table.snapshot().metadata
    assert (metadata.name, metadata.description) == ("t", "who; 'what'") and "as told" in metadata.schema_string
    return batch(0, 3)


@feature("Table without rows", "`create`", spark=("INSERT INTO {t} (id) VALUES (1), (2)", DELETE))
def empty(path: Path) -> pa.Table:
    created(path)
    return SCHEMA.empty_table()


@feature("Every primitive and nested type", "`create`, `append`")
def every_type(path: Path) -> pa.Table:
    rows = ROWS.append_column("id", pa.array([1, 2, 3]))
    DeltaTable.create(str(path), rows.schema).append(rows)
    return rows


@feature("`timestampNtz`, as a column and a partition", "`create`, `append`")
def timestamp_ntz(path: Path) -> pa.Table:
    local = pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 678901), None, dt.datetime(1, 1, 1)], pa.timestamp("us"))
    nested = pa.array([{"at": moment} for moment in local], pa.struct([("at", pa.timestamp("us"))]))
    rows = pa.table({"id": [1, 2, 3], "at": local, "deep": nested, "part": local})
    table = DeltaTable.create(str(path), rows.schema, partition_by=["part"])
    table.append(rows)
    assert "timestampNtz" in listed(table)
    return rows


@feature("Partitions: text with special characters, null", "`create(partition_by=…)`, `append`")
def partitioned(path: Path) -> pa.Table:
    table = created(path, partition_by=["place"])
    table.append(batch(0, 2 * len(PLACES)))
    table.append(batch(14, 3))
    return as_partitioned(batch(0, 17))


@feature("Partitions of every type, dates and timestamps among them", "`create(partition_by=…)`, `append`")
def partitions_of_every_type(path: Path) -> pa.Table:
    rows = ROWS.select(PARTITIONABLE).append_column("id", pa.array([1, 2, 3]))
    DeltaTable.create(str(path), rows.schema, partition_by=PARTITIONABLE).append(rows)
    words = pc.if_else(pc.equal(rows["words"], ""), None, rows["words"])
    return rows.set_column(rows.schema.get_field_index("words"), "words", words)


@feature("Files below random prefixes", "`delta.randomizeFilePrefixes`")
def random_prefixes(path: Path) -> pa.Table:
    table = created(path, {"delta.randomizeFilePrefixes": "true"}, partition_by=["place"])
    table.append(batch(0, 7))
    assert not any(add["path"].startswith("place=") for add in logged(path, "add"))
    return as_partitioned(batch(0, 7))


@feature("Statistics of the first columns only", "`delta.dataSkippingNumIndexedCols`")
def statistics(path: Path) -> pa.Table:
    table = created(path, {"delta.dataSkippingNumIndexedCols": "1"})
    table.append(batch(0, 4))
    table.set_properties({"delta.dataSkippingNumIndexedCols": "0"})
    table.append(batch(4, 4))
    assert [set(json.loads(add["stats"]).get("nullCount", ())) for add in logged(path, "add")] == [{"id"}, set()]
    return batch(0, 8)


@feature("Statistics of named columns only", "`delta.dataSkippingStatsColumns`")
def statistics_of_named_columns(path: Path) -> pa.Table:
    table = created(path, {"delta.dataSkippingStatsColumns": "name"})
    table.append(batch(0, 4))
    table.set_properties({"delta.dataSkippingStatsColumns": "ID, amount"})
    table.append(batch(4, 4))
    found = [set(json.loads(add["stats"])["nullCount"]) for add in logged(path, "add")]
    assert found == [{"name"}, {"id", "amount"}]
    return batch(0, 8)


@feature("Properties of Delta and custom ones", "`set_properties`, `unset_properties`")
def properties(path: Path) -> pa.Table:
    table = created(path, {"made.by": "tests"}, data=batch(0, 3))
    table.set_properties({"delta.isolationLevel": "Serializable", "delta.targetFileSize": "1mb", "owner": "ä 'b'"})
    table.unset_properties(["made.by"])
    assert table.snapshot().metadata.configuration["owner"] == "ä 'b'"
    return batch(0, 3)


@feature("Isolation level `WriteSerializable`", "`delta.isolationLevel`, `transaction(isolation_level=…)`")
def isolation(path: Path) -> pa.Table:
    table = created(path, {"delta.isolationLevel": "WriteSerializable"}, data=batch(0, 3))
    with table.transaction(isolation_level="WriteSerializable") as transaction:
        transaction.write(batch(3).to_reader())
        transaction.commit("WRITE")
    assert logged(path, "commitInfo")[-1]["isolationLevel"] == "WriteSerializable"
    return batch(0, 6)


@feature("Columns added, nested ones too", "`add_columns`, `append(merge_schema=True)`")
def columns_added(path: Path) -> pa.Table:
    person = pa.array([{"name": "Ann"}, None], pa.struct([("name", pa.string())]))
    table = DeltaTable.create(str(path), pa.schema([("id", pa.int64()), ("person", person.type)]))
    table.append(pa.table({"id": [1, 2], "person": person}))
    table.add_columns(pa.schema([("person.age", pa.int32()), ("later", pa.list_(pa.string()))]))
    new = pa.table({"id": [3], "later": [["x"]], "last": [1.5]})
    table.append(new, merge_schema=True)
    people = [{"name": "Ann", "age": None}, None, None]
    return pa.Table.from_pylist(
        [
            {"id": i + 1, "person": person, "later": None if i < 2 else ["x"], "last": None if i < 2 else 1.5}
            for i, person in enumerate(people)
        ],
        table.snapshot().schema.to_arrow(),
    )


@feature("Rows in files of others", "`Transaction.add_parquet_files`")
def files_of_others(path: Path) -> pa.Table:
    table = created(path, partition_by=["place"])
    (path / "from elsewhere").mkdir()
    name = "from elsewhere/ä 100%.parquet"
    pq.write_table(batch(0, 5).drop_columns(["place"]), path / name)
    with table.transaction() as transaction:
        transaction.add_parquet_files([(name, {"place": "a b/c"})])
        transaction.commit("WRITE")
    rows = batch(0, 5)
    return rows.set_column(4, "place", pa.array(["a b/c"] * 5))


@feature("Files put together, rows unchanged", "`Transaction.remove_files(data_change=False)`, `Transaction.add`")
def rearranged(path: Path) -> pa.Table:
    table = created(path)
    for start in (0, 3, 6):
        table.append(batch(start))
    with table.transaction(isolation_level="SnapshotIsolation") as transaction:
        rows = table.snapshot().scan().to_arrow()
        (path / "together").mkdir()
        pq.write_table(rows, path / "together" / "all.parquet")
        stats = json.dumps({"numRecords": rows.num_rows})
        size = (path / "together" / "all.parquet").stat().st_size
        transaction.remove_files(transaction.find_files(), data_change=False)
        transaction.add(
            AddFile(
                path="together/all.parquet", partition_values={}, size=size, modification_time=1, data_change=False,
                stats=stats,
            )
        )  # fmt: skip
        transaction.commit("OPTIMIZE")
    assert [add["dataChange"] for add in logged(path, "add")] == [True] * 3 + [False]
    return batch(0, 9)


# ------------------------------------------------------------------------------------- rows deleted and replaced


@feature("Rows deleted: whole files, rewritten files", "`delete`")
def deleted(path: Path) -> pa.Table:
    table = created(path, partition_by=["place"])
    table.append(batch(0, 14))
    table.delete(col("place") == PLACES[3])
    table.delete("id IN (0, 2)")
    return as_partitioned(without(batch(0, 14), 3, 10, 0, 2))


@feature("Rows updated: rewritten files, deletion vectors", "`update`", changes_from=0, spark=(INSERT, UPDATE, DELETE))
def updated(path: Path) -> pa.Table:
    table = created(path, CHANGES, data=batch(0, 7))
    table.update({"amount": "id * 2E0", "name": "'new'"}, "id < 3")
    assert len(logged(path, "cdc")) == 1
    table.set_properties(VECTORS)
    table.update(new_values={"amount": None}, where="id = 5")
    assert "deletionVector" in logged(path, "add")[-2] or "deletionVector" in logged(path, "add")[-1]
    rows = batch(0, 7).to_pylist()
    for row in rows[:3]:
        row.update(amount=row["id"] * 2.0, name="new")
    rows[5]["amount"] = None
    return pa.Table.from_pylist(rows, SCHEMA)


@feature(
    "Rows merged: updated, deleted, inserted", "`merge`", changes_from=0, row_ids=True, spark=(INSERT, UPDATE, DELETE)
)
def merged(path: Path) -> pa.Table:
    table = created(path, CHANGES, VECTORS, TRACKED, data=batch(0, 7))
    source = batch(5, 4).set_column(2, "amount", pa.array([0.25] * 4))
    (
        table.merge(source, "target.id = source.id")
        .when_matched_delete("target.id = 5")
        .when_matched_update({"amount": "source.amount"})
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete("target.id = 0")
        .execute()
    )
    last = batch(6, 1).set_column(2, "amount", pa.array([0.25]))
    return pa.concat_tables([without(batch(0, 5), 0), last, source.slice(2)])


@feature("Files that no version needs deleted", "`vacuum`")
def vacuumed(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.overwrite(batch(1))
    deleted = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(deleted.paths) == 1 and [info["operation"] for info in logged(path, "commitInfo")[-2:]] == [
        "VACUUM START", "VACUUM END",
    ]  # fmt: skip
    return batch(1)


@feature("All rows replaced, and the columns with them", "`overwrite`, `overwrite(overwrite_schema=True)`")
def overwritten(path: Path) -> pa.Table:
    table = created(path, data=batch(0, 3))
    table.overwrite(batch(3))
    rows = pa.table({"id": [1, 2], "another": [["x"], None]})
    table.overwrite(rows, overwrite_schema=True)
    return rows


@feature("Rows replaced by condition", "`overwrite(where=…)`")
def replaced_where(path: Path) -> pa.Table:
    table = created(path, data=batch(0, 9))
    table.overwrite(batch(0, 2), where="id < 4 AND amount IS NOT NULL")
    return pa.concat_tables([batch(4, 5), batch(0, 2)])


@feature("Partitions replaced", '`overwrite(partitions="dynamic")`', spark=(INSERT, "DELETE FROM {t} WHERE id = 3"))
def replaced_partitions(path: Path) -> pa.Table:
    table = created(path, partition_by=["place"])
    table.append(batch(0, 7))
    table.append(batch(7, 7))
    table.overwrite(batch(71, 2), partitions="dynamic")
    return as_partitioned(pa.concat_tables([without(batch(0, 14), 1, 2, 8, 9), batch(71, 2)]))


@feature("Deletion vectors", "`delta.enableDeletionVectors`, `delete`")
def vectors_in_files(path: Path) -> pa.Table:
    table = created(path, VECTORS, partition_by=["place"])
    table.append(batch(0, 700))
    table.delete("amount > 20 AND name IS NOT NULL")
    assert {add["deletionVector"]["storageType"] for add in logged(path, "add")[7:]} == {"u"}
    rows = as_partitioned(batch(0, 700))
    gone = pc.and_(pc.greater(rows["amount"], 20), pc.is_valid(rows["name"]))
    return rows.filter(pc.invert(pc.fill_null(gone, False)))


# ------------------------------------------------------------------------------------------- optimized


@feature("Small files combined, deletion vectors purged, rows in Z-order", "`optimize.compact`, `.purge`, `.z_order`")
def optimized(path: Path) -> pa.Table:
    table = created(path, VECTORS)
    for start in range(0, 40, 10):
        table.append(batch(start, 10))
    table.optimize.compact()
    table.delete("id IN (3, 5)")
    table.optimize.purge()
    table.append(batch(40, 10))
    table.optimize.z_order(["id", "amount"], target_size=table.snapshot().size_bytes // 2)
    assert [body["operation"] for body in logged(path, "commitInfo")].count("OPTIMIZE") == 2
    assert not any(add.get("deletionVector") for add in logged(path, "add")[-2:])
    return without(batch(0, 50), 3, 5)


@feature("Statistics computed later", "`compute_statistics`", checksum=False)
def statistics_computed(path: Path) -> pa.Table:
    table = created(path, {"delta.dataSkippingNumIndexedCols": "0"})
    table.append(batch(0, 6))
    table.append(batch(6, 6))
    table.set_properties({"delta.dataSkippingNumIndexedCols": "2"})
    table.compute_statistics()
    assert [set(json.loads(add["stats"]).get("minValues", ())) for add in logged(path, "add")] == [
        set(), set(), {"id", "name"}, {"id", "name"},
    ]  # fmt: skip
    return batch(0, 12)


# --------------------------------------------------------------------------------------------- in-commit timestamps


@feature("In-commit timestamps from the first version on", "`create(properties=…)`")
def ict_from_the_start(path: Path) -> pa.Table:
    table = created(path, ICT)
    table.append(batch(0))
    table.append(batch(3))
    assert all("inCommitTimestamp" in info for info in logged(path, "commitInfo"))
    return batch(0, 6)


@feature("In-commit timestamps enabled later", "`enable_in_commit_timestamps`")
def ict_enabled_later(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.append(batch(3))
    table.enable_in_commit_timestamps()
    table.append(batch(6))
    assert table.snapshot().metadata.configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    return batch(0, 9)


@feature("In-commit timestamps off again", "`disable_in_commit_timestamps`")
def ict_off_again(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.enable_in_commit_timestamps()
    table.append(batch(3))
    table.disable_in_commit_timestamps()
    table.append(batch(6))
    assert ["inCommitTimestamp" in info for info in logged(path, "commitInfo")] == [False, True, True, False, False]
    return batch(0, 9)


# ------------------------------------------------------------------------------------------------------- rules


@feature("Append-only", "`delta.appendOnly`", spark=(INSERT,), refused=(DELETE, "DELTA_CANNOT_MODIFY_APPEND_ONLY"))
def append_only(path: Path) -> pa.Table:
    table = created(path, {"delta.appendOnly": "true"})
    table.append(batch(0))
    return batch(0)


@feature(
    "`NOT NULL`",
    "`create`, `set_column(nullable=True)`",
    refused=("INSERT INTO {t} VALUES (NULL, 1)", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
)
def not_null(path: Path) -> pa.Table:
    table = DeltaTable.create(str(path), columns(("id", LONG, False, {}), ("b", LONG, False, {})))
    table.append(pa.table({"id": [1], "b": [2]}))
    table.set_column("b", nullable=True)
    table.append(pa.table({"id": [2], "b": pa.array([None], pa.int64())}))
    return pa.table({"id": [1, 2], "b": pa.array([2, None], pa.int64())})


@feature(
    "CHECK constraints",
    "`add_constraint`, `drop_constraint`",
    refused=("INSERT INTO {t} (id) VALUES (-1)", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
)
def check_constraint(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.add_constraint("positive", "id >= 0 AND (amount < 100 OR amount IS NULL)")
    table.add_constraint("gone", "id < 5")
    table.drop_constraint("gone")
    table.append(batch(3))
    return batch(0, 6)


@feature(
    "Column invariants",
    "`create`",
    refused=("INSERT INTO {t} VALUES (-1, 'x')", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
)
def invariants(path: Path) -> pa.Table:
    rule = {"delta.invariants": json.dumps({"expression": {"expression": "id > 0"}})}
    rows = pa.table({"id": [1, 2], "b": ["x", None]})
    DeltaTable.create(str(path), columns(("id", LONG, True, rule), ("b", TEXT, True, {}))).append(rows)
    return rows


@feature(
    "Generated columns",
    "`create`",
    spark=("INSERT INTO {t} (id, at) VALUES (5, TIMESTAMP'2026-03-04 05:06:07Z')", DELETE),
    refused=(
        "INSERT INTO {t} (id, at, day, twice) VALUES (6, NULL, NULL, 13)", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
    ),
)  # fmt: skip
def generated_columns(path: Path) -> pa.Table:
    day = {"delta.generationExpression": "CAST(at AS DATE)"}
    twice = {"delta.generationExpression": "id * 2"}
    schema = columns(
        ("id", LONG, True, {}),
        ("at", PrimitiveType("timestamp"), True, {}),
        ("day", PrimitiveType("date"), True, day),
        ("twice", LONG, True, twice),
    )
    table = DeltaTable.create(str(path), schema, partition_by=["day"])
    at = pa.array([dt.datetime(2026, 1, 2, 23, 59, 59, tzinfo=dt.timezone.utc), None], pa.timestamp("us", "UTC"))
    table.append(pa.table({"id": [1, 2], "at": at}))
    return pa.table({"id": [1, 2], "at": at, "day": [dt.date(2026, 1, 2), None], "twice": [2, 4]})


@feature(
    "Identity columns",
    "`create`, `append`, `merge`",
    spark=("INSERT INTO {t} (word) VALUES ('d')", DELETE),
    refused=("INSERT INTO {t} (id, word) VALUES (9, 'x')", "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"),
)
def identity_columns(path: Path) -> pa.Table:
    schema = StructType(
        (identity_column("id"), identity_column("down", step=-2, by_default=True), StructField("word", TEXT))
    )
    table = DeltaTable.create(str(path), schema)
    table.append(pa.table({"word": ["a", "b"]}))
    merger = table.merge(pa.table({"word": ["b", "c"], "down": [0, -9]}), "target.word = source.word")
    merger.when_not_matched_insert_all().execute()
    assert table.schema.field("down").metadata["delta.identity.highWaterMark"] == -9
    return pa.table({"id": [1, 2, 3], "down": [1, -1, -9], "word": ["a", "b", "c"]})


@feature("Default values", "`create`", spark=("INSERT INTO {t} (id) VALUES (4)", DELETE))
def defaults(path: Path) -> pa.Table:
    default = {"CURRENT_DEFAULT": "'none'"}
    table = DeltaTable.create(str(path), columns(("id", LONG, True, {}), ("word", TEXT, True, default)))
    table.append(pa.table({"id": [1, 2]}))
    table.append(pa.table({"id": [3], "word": pa.array([None], pa.string())}))
    return pa.table({"id": [1, 2, 3], "word": ["none", "none", None]})


@feature(
    "`char` and `varchar`",
    "`create`",
    refused=("INSERT INTO {t} VALUES (9, 'abcd', 'x')", "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"),
)
def char_and_varchar(path: Path) -> pa.Table:
    key = "__CHAR_VARCHAR_TYPE_STRING"
    schema = columns(
        ("id", LONG, True, {}), ("c", TEXT, True, {key: "char(3)"}), ("v", TEXT, True, {key: "varchar(3)"})
    )
    table = DeltaTable.create(str(path), schema)
    table.append(pa.table({"id": [1, 2], "c": ["a", None], "v": ["€😀x", "ab   "]}))
    return pa.table({"id": [1, 2], "c": ["a  ", None], "v": ["€😀x", "ab "]})


# -------------------------------------------------------------------------------------------- change data feed


@feature("Change data feed: appends", "`append`", changes_from=1, spark=(INSERT, UPDATE, DELETE))
def changes_of_appends(path: Path) -> pa.Table:
    table = created(path)
    table.set_properties(CHANGES)
    table.append(batch(0))
    table.append(batch(3))
    return batch(0, 6)


@feature("Change data feed: rows moved to new files", "`delete`", changes_from=0, spark=(INSERT, UPDATE, DELETE))
def changes_of_rewrites(path: Path) -> pa.Table:
    table = created(path, CHANGES, partition_by=["place"])
    table.append(batch(0, 14))
    table.delete("id IN (4, 5)")
    table.delete("id >= 10")
    assert logged(path, "cdc")
    return as_partitioned(without(batch(0, 10), 4, 5))


@feature("Change data feed: deletion vectors", "`delete`", changes_from=0, spark=(INSERT, UPDATE, DELETE))
def changes_of_vectors(path: Path) -> pa.Table:
    table = created(path, CHANGES, VECTORS)
    table.append(batch(0, 14))
    table.delete("id IN (4, 5)")
    table.delete("id >= 10")
    assert not logged(path, "cdc") and all("deletionVector" in add for add in logged(path, "add")[1:])
    return without(batch(0, 10), 4, 5)


@feature("Change data feed: rows replaced by condition", "`overwrite(where=…)`", changes_from=0)
def changes_of_replace_where(path: Path) -> pa.Table:
    table = created(path, CHANGES, data=batch(0, 9))
    table.overwrite(batch(0, 2), where="id < 4")
    assert logged(path, "cdc")
    return pa.concat_tables([batch(4, 5), batch(0, 2)])


@feature("Change data feed: partitions replaced", '`overwrite(partitions="dynamic")`, `overwrite`', changes_from=0)
def changes_of_partitions(path: Path) -> pa.Table:
    table = created(path, CHANGES, partition_by=["place"], data=batch(0, 7))
    table.overwrite(batch(70, 1), partitions="dynamic")
    table.overwrite(batch(0, 5))
    return as_partitioned(batch(0, 5))


# ---------------------------------------------------------------------------------------- columns under other names


NESTED = pa.table(
    {
        "id": [1, 2, 3],
        "a b": ["p", "q", None],
        "part": ["u", "v w", None],
        "people": pa.array([[{"name": "Ann", "address": None}, None], None, []], pa.list_(PERSON)),
        "pairs": pa.array([[("k", {"name": "Bo", "address": None})], None, []], pa.map_(pa.string(), PERSON)),
    }
)


@feature("Column mapping by name", "`delta.columnMapping.mode`")
def mapped_by_name(path: Path) -> pa.Table:
    table = DeltaTable.create(str(path), NESTED.schema, partition_by=["part"], properties=MAPPED)
    table.append(NESTED)
    return NESTED


@feature("Column mapping by id", "`delta.columnMapping.mode`")
def mapped_by_id(path: Path) -> pa.Table:
    properties = {"delta.columnMapping.mode": "id"}
    table = DeltaTable.create(str(path), NESTED.schema, partition_by=["part"], properties=properties)
    table.append(NESTED)
    return NESTED


@feature("Column mapping turned on later", "`set_properties`")
def mapping_turned_on(path: Path) -> pa.Table:
    table = created(path, partition_by=["place"], data=batch(0))
    table.set_properties(MAPPED)
    table.append(batch(3))
    return as_partitioned(batch(0, 6))


@feature("Columns renamed and dropped", "`rename_column`, `drop_columns`, `add_columns`")
def renamed_and_dropped(path: Path) -> pa.Table:
    table = DeltaTable.create(str(path), NESTED.schema, partition_by=["part"], properties=MAPPED, data=NESTED)
    table.rename_column("a b", "new, name")
    table.rename_column("people.element.name", "first name")
    table.rename_column("part", "label")
    table.drop_columns(["pairs", "people.element.address"])
    table.add_columns(pa.schema([("pairs", pa.int32())]))
    people = [[{"first name": "Ann"}, None], None, []]
    rows = [
        {"id": i + 1, "new, name": NESTED["a b"][i].as_py(), "label": NESTED["part"][i].as_py(), "people": people[i]}
        for i in range(3)
    ]
    table.append(pa.Table.from_pylist([{**rows[0], "pairs": 7}], table.snapshot().schema.to_arrow()))
    return pa.Table.from_pylist([*rows, {**rows[0], "pairs": 7}], table.snapshot().schema.to_arrow())


@feature(
    "Column mapping with deletion vectors, change data feed and row tracking", "`delete`",
    changes_from=0, row_ids=True,
)  # fmt: skip
def mapped_with_everything(path: Path) -> pa.Table:
    properties = {**MAPPED, **CHANGES, **TRACKED}
    table = DeltaTable.create(str(path), NESTED.schema, partition_by=["part"], properties=properties)
    twice = pa.concat_tables([NESTED, NESTED.set_column(0, "id", pa.array([11, 12, 13]))])
    table.append(twice)
    table.delete("id = 11")
    table.set_properties(VECTORS)
    table.delete("id = 12")
    return without(twice, 11, 12)


@feature("Wider types", "`delta.enableTypeWidening`, `set_column(data_type=…)`, `append(merge_schema=True)`")
def wider_types(path: Path) -> pa.Table:
    before: dict[str, tuple[Any, pa.DataType, pa.DataType]] = {
        "id": (1, pa.int16(), pa.int64()),
        "byte": (2, pa.int8(), pa.int32()),
        "float": (1.5, pa.float32(), pa.float64()),
        "exact": (3, pa.int32(), pa.decimal128(12, 2)),
        "money": (None, pa.decimal128(5, 1), pa.decimal128(10, 2)),
        "day": (dt.date(2026, 1, 2), pa.date32(), pa.timestamp("us")),
        "list": ([1, None], pa.list_(pa.int16()), pa.list_(pa.int64())),
        "map": ([("a", 1)], pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.float64())),
        "part": (4, pa.int16(), pa.int32()),
    }
    rows = pa.table({name: pa.array([value], old) for name, (value, old, _) in before.items()})
    table = DeltaTable.create(str(path), rows.schema, partition_by=["part"], properties=WIDENING, data=rows)
    for name, (_, _, new) in before.items():
        table.set_column(name, data_type=new)
    table.append(pa.table({"id": [2**40], "byte": pa.array([2**40], pa.int64())}), merge_schema=True)
    assert "delta.typeChanges" in table.snapshot().metadata.schema_string and "typeWidening" in listed(table)
    late = {"id": 2**40, "byte": 2**40}
    return pa.concat_tables([rows, pa.Table.from_pylist([late])], promote_options="permissive").cast(
        table.snapshot().schema.to_arrow()
    )


# ------------------------------------------------------------------------------------------------ row tracking


@feature("Row tracking: appends", "`delta.enableRowTracking`, `append`", row_ids=True, spark=(INSERT, UPDATE, DELETE))
def tracked_appends(path: Path) -> pa.Table:
    table = created(path, TRACKED, data=batch(0))
    table.append(batch(3))
    return batch(0, 6)


@feature("Row tracking: deletion vectors", "`delete`", row_ids=True, spark=(INSERT, UPDATE, DELETE))
def tracked_vectors(path: Path) -> pa.Table:
    table = created(path, TRACKED, VECTORS, data=batch(0, 9))
    table.delete("id IN (3, 4)")
    table.append(batch(9))
    return without(batch(0, 12), 3, 4)


@feature("Row tracking: moved rows keep their ids", "`delete`", row_ids=True, spark=(INSERT, UPDATE, DELETE))
def tracked_rewrites(path: Path) -> pa.Table:
    table = created(path, TRACKED, data=batch(0, 9))
    table.append(batch(9))
    table.delete("id IN (3, 4)")
    table.delete("id = 6")
    ids = table.snapshot().scan(["id", "_metadata.row_id"]).to_arrow()
    assert ids["id"] == ids["_metadata.row_id"] and ids.num_rows == 9, "ids were given out in the order of the rows"
    return without(batch(0, 12), 3, 4, 6)


@feature("Row tracking: turned on later", "`set_properties`", row_ids=True, spark=(INSERT, UPDATE, DELETE))
def tracked_later(path: Path) -> pa.Table:
    table = created(path, VECTORS, data=batch(0, 9))
    table.append(batch(9))
    table.delete("id IN (3, 4)")
    table.set_properties(TRACKED)
    table.append(batch(12))
    return without(batch(0, 15), 3, 4)


# ---------------------------------------------------------------------------- metadata, features, versions


@feature("Clustered table", "`create(cluster_by=…)`, `append`, `delete`")
def clustered(path: Path) -> pa.Table:
    table = created(path, {"delta.dataSkippingNumIndexedCols": "0"}, cluster_by=["place"])
    table.append(batch(0, 12))
    table.delete("id IN (3, 4)")
    assert all("place" in json.loads(add["stats"])["minValues"] for add in logged(path, "add"))
    return without(batch(0, 12), 3, 4)


@feature("Rows clustered", "`cluster_by`, `optimize.compact`", spark=(INSERT, DELETE, "OPTIMIZE {t}"))
def rows_clustered(path: Path) -> pa.Table:
    table = created(path)
    table.append(batch(0, 6))
    table.cluster_by(["place", "id"])
    table.append(batch(6, 6))
    table.optimize.compact()
    assert logged(path, "add")[-1]["clusteringProvider"] == "liquid"
    return batch(0, 12)


@feature("Metadata domains", "`set_domain_metadata`, `remove_domain_metadata`")
def domains(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.set_domain_metadata("com.example.kept", {"cursor": 17})
    table.set_domain_metadata("com.example.gone", "text")
    table.remove_domain_metadata("com.example.gone")
    table.checkpoint()
    drop_below(path, table.version)
    assert [d.domain for d in table.snapshot().domain_metadata] == ["com.example.kept"]
    return batch(0)


@feature("Application transactions", "`append(txn=…)`")
def transactions(path: Path) -> pa.Table:
    table = created(path)
    table.append(batch(0), txn=("job", 1))
    table.append(batch(3), txn=("job", 2))
    assert table.append(batch(3), txn=("job", 2)).skipped
    assert [txn["version"] for txn in logged(path, "txn")] == [1, 2]
    return batch(0, 6)


@feature("User metadata", "`append(user_metadata=…)`")
def user_metadata(path: Path) -> pa.Table:
    table = created(path)
    table.append(batch(0), user_metadata="plain text, 'quoted'")
    table.append(batch(3), user_metadata={"run": 7})
    assert [info.get("userMetadata") for info in logged(path, "commitInfo")][1:] == [
        "plain text, 'quoted'", '{"run": 7}',
    ]  # fmt: skip
    return batch(0, 6)


@feature("Features added", "`add_feature`, `delta.feature.…`")
def features_added(path: Path) -> pa.Table:
    table = created(path, {"delta.feature.checkpointProtection": "supported"}, data=batch(0))
    for name in ("vacuumProtocolCheck", "deletionVectors", "columnMapping", "allowColumnDefaults"):
        table.add_feature(name)
    table.set_properties({"delta.feature.v2Checkpoint": "supported"})
    table.append(batch(3))
    assert {"checkpointProtection", "vacuumProtocolCheck", "v2Checkpoint"} <= listed(table)
    return batch(0, 6)


@feature("Features dropped", "`drop_feature`", checksum=False)
def features_dropped(path: Path) -> pa.Table:
    table = created(path, ICT, TRACKED, {"delta.feature.vacuumProtocolCheck": "supported"}, data=batch(0))
    for name in ("inCommitTimestamp", "rowTracking", "domainMetadata", "vacuumProtocolCheck"):
        table.drop_feature(name)
    table.append(batch(3))
    assert table.snapshot().protocol.min_writer_version == 2 and not listed(table)
    return batch(0, 6)


@feature("Restored to a version", "`restore(version)`", row_ids=True)
def restored(path: Path) -> pa.Table:
    table = created(path, VECTORS, TRACKED, MAPPED, partition_by=["place"])
    table.append(batch(0, 14))
    table.delete("id IN (3, 4)")
    table.delete("id > 8")
    table.rename_column("name", "other")
    table.append(batch(20).rename_columns(["id", "other", "amount", "at", "place"]))
    table.restore(2)
    return as_partitioned(without(batch(0, 14), 3, 4))


@feature("Restored to a time before in-commit timestamps", "`restore(timestamp=…)`")
def restored_to_a_time(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.enable_in_commit_timestamps()
    table.append(batch(3))
    first = table.history()[-1].timestamp_ms
    assert first is not None
    table.restore(timestamp=first)
    assert table.snapshot().in_commit_timestamps_enabled
    return batch(0)


# ------------------------------------------------------------------------------------- derived files of the log


def checkpointed(path: Path, properties: dict[str, str], form: dict[str, Any], cut: bool = True) -> pa.Table:
    """Everything that a checkpoint holds, and one commit after it; the commits before it are gone."""
    table = created(path, properties, VECTORS, partition_by=["place"])
    for start in (0, 14, 28):
        table.append(batch(start, 14), txn=("job", start))
    table.set_domain_metadata("com.example", "kept")
    table.delete("id IN (7, 8) OR id = 40")
    table.checkpoint(**form)
    if cut:
        drop_below(path, table.version)
    table.append(batch(42))
    return as_partitioned(without(batch(0, 45), 7, 8, 40))


def checkpoint_files(path: Path) -> list[Path]:
    return [file for file in (path / "_delta_log").iterdir() if ".checkpoint." in file.name]


def statistics_in(path: Path) -> set[str]:
    (file,) = checkpoint_files(path)
    rows = pq.read_table(file)["add"].combine_chunks().drop_null()
    return {name for name in ("stats", "stats_parsed") if _has(rows, name)}


def _has(rows: pa.StructArray, name: str) -> bool:
    return rows.type.get_field_index(name) >= 0 and rows.field(name).null_count < len(rows)


@feature("Classic checkpoint, statistics as text", "`checkpoint`, `delta.checkpoint.writeStatsAsStruct` = false")
def checkpoint_json(path: Path) -> pa.Table:
    rows = checkpointed(path, {"delta.checkpoint.writeStatsAsStruct": "false"}, {})
    assert statistics_in(path) == {"stats"}
    return rows


@feature("Classic checkpoint, statistics as structs", "`checkpoint`, `delta.checkpoint.writeStatsAsJson` = false")
def checkpoint_struct(path: Path) -> pa.Table:
    rows = checkpointed(path, {"delta.checkpoint.writeStatsAsJson": "false"}, {})
    assert statistics_in(path) == {"stats_parsed"}
    return rows


@feature("Classic checkpoint, statistics as both", "`checkpoint`")
def checkpoint_both(path: Path) -> pa.Table:
    rows = checkpointed(path, {}, {})
    assert statistics_in(path) == {"stats", "stats_parsed"}
    return rows


@feature("Checkpoints made by commits", "`delta.checkpointInterval`")
def checkpoint_by_commit(path: Path) -> pa.Table:
    table = created(path, {"delta.checkpointInterval": "2"})
    for start in (0, 3, 6):
        table.append(batch(start))
    assert [file.name[:20] for file in checkpoint_files(path)] == [f"{2:020d}"]
    drop_below(path, 2)
    return batch(0, 9)


def checkpoint_v2(path: Path, form: str, sidecars: bool) -> pa.Table:
    rows = checkpointed(path, {**V2, **ICT}, {"top_level": form, **({"sidecar_rows": 5} if sidecars else {})})
    (file,) = checkpoint_files(path)
    assert file.name.endswith(f".{form}") and (path / "_delta_log" / "_sidecars").exists() == sidecars
    return rows


@feature("V2 checkpoint, Parquet", "`delta.checkpointPolicy` = v2, `checkpoint`")
def checkpoint_v2_parquet(path: Path) -> pa.Table:
    return checkpoint_v2(path, "parquet", False)


@feature("V2 checkpoint, Parquet with sidecars", "`checkpoint(sidecar_rows=…)`")
def checkpoint_v2_parquet_sidecars(path: Path) -> pa.Table:
    return checkpoint_v2(path, "parquet", True)


@feature("V2 checkpoint, JSON", '`checkpoint(top_level="json")`')
def checkpoint_v2_json(path: Path) -> pa.Table:
    return checkpoint_v2(path, "json", False)


@feature("V2 checkpoint, JSON with sidecars", '`checkpoint(top_level="json", sidecar_rows=…)`')
def checkpoint_v2_json_sidecars(path: Path) -> pa.Table:
    return checkpoint_v2(path, "json", True)


@feature("Log compaction", "`compact_log`", spark=(INSERT, "DELETE FROM {t} WHERE id = 20"))
def compacted_log(path: Path) -> pa.Table:
    table = created(path, ICT)
    table.append(batch(0, 6), txn=("job", 1))
    table.overwrite(batch(10, 6))
    table.delete("id = 12")
    assert table.compact_log() == (0, 3)
    table.append(batch(20))
    return pa.concat_tables([without(batch(10, 6), 12), batch(20)])


def cleaned(path: Path, *properties: dict[str, str]) -> pa.Table:
    """Commits of two months and checkpoints; then what is older than thirty days goes."""
    now_ms = time.time_ns() // 1_000_000
    clock_ms = now_ms - 60 * DAY_MS
    keep = {"delta.deletedFileRetentionDuration": "interval 10000 days"}
    table = created(path, keep, *properties, environment=Environment(clock_ms=lambda: clock_ms))
    for start in range(0, 18, 3):
        clock_ms += 9 * DAY_MS
        table.append(batch(start))
        if start in (3, 9):
            table.checkpoint(sidecar_rows=1)
    for version, file in commits(path).items():
        at_s = (now_ms - 60 * DAY_MS + version * 9 * DAY_MS) / 1000
        os.utime(file, (at_s, at_s))
    clock_ms = now_ms
    assert table.cleanup_log().unreachable == (0, 1) and min(commits(path)) == 2
    return batch(0, 18)


@feature("Log cleaned up, by in-commit time", "`cleanup_log`")
def cleaned_by_ict(path: Path) -> pa.Table:
    return cleaned(path, ICT, V2)


@feature("Log cleaned up, by file time", "`cleanup_log`")
def cleaned_by_file_time(path: Path) -> pa.Table:
    return cleaned(path)
