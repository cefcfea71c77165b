"""Tables with appended rows: all types, partitions, statistics, properties, and files from other writers."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltalog import DeltaTable
from deltalog.engine import AddFile
from deltalog.schema import PrimitiveType, StructField, StructType, variant_from_json
from tests.interop.feature_tables.feature import DELETE, LONG, as_partitioned, created, feature, listed, logged
from tests.support.spark.every_type import PARTITIONABLE, ROWS
from tests.support.spark.shapes import PLACES, SCHEMA, batch


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


_VARIANTS = StructType((StructField("id", LONG), StructField("v", PrimitiveType("variant"))))


def _with_variants(path: Path, texts: list[str], properties: dict[str, str]) -> pa.Table:
    table = DeltaTable.create(str(path), _VARIANTS, properties=properties)
    table.append(pa.table({"id": range(1, len(texts) + 1), "v": texts}))
    (add,) = logged(path, "add")
    kind = str(pq.read_schema(path / add["path"]).field("v").type)
    assert "variantType" in listed(table) and ("typed_value" in kind) == bool(properties)
    rows = [{"id": number, "v": variant_from_json(text)} for number, text in enumerate(texts, 1)]
    return pa.Table.from_pylist(rows, schema=_VARIANTS.to_arrow())


@feature("Variants", "`create`, `append`", spark=("INSERT INTO {t} SELECT 4, parse_json('[1.5]')", DELETE))
def variants(path: Path) -> pa.Table:
    return _with_variants(path, ['{"b": [1, "x"], "a": 2.50}', "null", '"text"'], {})


@feature(
    "Shredded variants",
    "`delta.enableVariantShredding`, `append`",
    spark=("INSERT INTO {t} SELECT 4, parse_json('{{\"a\": 70000}}')", DELETE),
)
def shredded_variants(path: Path) -> pa.Table:
    return _with_variants(path, ['{"a": 1}', '{"a": 300}', '{"a": 2}'], {"delta.enableVariantShredding": "true"})


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


@feature("Delta's properties and custom properties", "`set_properties`, `unset_properties`")
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
