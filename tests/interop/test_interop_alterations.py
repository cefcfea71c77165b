"""Schema changes and restores: delta-spark reads the resulting tables and writes to them, and deltalog then reads
them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from deltalog import DeltaTable
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.agreement import assert_same_rows
from tests.support.spark.log_files import actions, commits

MODE = "delta.columnMapping.mode"
POINT = pa.struct([("x", pa.int32()), ("y z", pa.list_(pa.struct([("q", pa.string())])))])
NESTED = pa.table(
    {
        "id": pa.array([1, 2, 3]),
        "a b": pa.array(["p", "q", None]),
        "part": ["u", "v", None],
        "s": pa.array([{"x": 1, "y z": [{"q": "k"}, None]}, None, {"x": None, "y z": None}], POINT),
        "m": pa.array([[("k", {"x": 3, "y z": []})], None, []], pa.map_(pa.string(), POINT)),
    }
)
MODES = pytest.mark.parametrize("mode", ["name", "id"])
PARTITIONS = pytest.mark.parametrize("partition_by", [[], ["part"]], ids=["plain", "partitioned"])


def info(path: Path, version: int) -> dict[str, Any]:
    line: dict[str, Any] = next(each["commitInfo"] for each in actions(commits(path)[version]) if "commitInfo" in each)
    return line


def spark_append(delta: DeltaSpark, path: Path, rows: pa.Table) -> None:
    delta.spark.createDataFrame(rows).write.format("delta").mode("append").save(str(path))


# ----------------------------------------------------------------------------------------- column mapping


@pytest.mark.sampled(4)
@MODES
@PARTITIONS
def test_mapped_tables_that_both_write(delta: DeltaSpark, tmp_path: Path, mode: str, partition_by: list[str]) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(path, NESTED.schema, partition_by=partition_by, properties={MODE: mode}, data=NESTED)
    assert_same_rows(delta, path)
    assert plain_rows(delta.table(path)) == plain_rows(NESTED)
    spark_append(delta, path, NESTED)
    assert_same_rows(delta, path)
    table.append(NESTED)
    assert_same_rows(delta, path)
    frame = delta.spark.read.format("delta").load(str(path))
    for where, count in (("id = 2", 3), ("`a b` = 'p'", 3), ("part = 'u'", 3), ("part IS NULL", 3), ("s.x = 1", 3)):
        assert frame.where(where).count() == count, where
        assert table.snapshot().scan(where=where).to_arrow().num_rows == count, where
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    assert_same_rows(delta, path)


@pytest.mark.sampled(2)
@MODES
def test_mapped_tables_that_delta_spark_made(delta: DeltaSpark, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "table"
    frame = delta.spark.createDataFrame(NESTED)
    frame.write.format("delta").partitionBy("part").option(MODE, mode).save(str(path))
    DeltaTable.open(path).append(NESTED)
    assert_same_rows(delta, path)
    DeltaTable.open(path).append(NESTED.append_column("n", pa.array([1, 2, 3])), merge_schema=True)
    assert_same_rows(delta, path)
    spark_append(delta, path, NESTED.append_column("n", pa.array([4, 5, 6])))
    assert_same_rows(delta, path)
    delta.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN o INT")
    numbers = [field["metadata"]["delta.columnMapping.id"] for field in _fields(delta, path)]
    assert len(set(numbers)) == len(numbers), "the highest id that deltalog wrote was not the highest"


def _fields(delta: DeltaSpark, path: Path) -> list[dict[str, Any]]:
    schema = next(
        each["metaData"]["schemaString"] for each in actions(commits(path)[delta.latest(path)]) if "metaData" in each
    )
    fields: list[dict[str, Any]] = json.loads(schema)["fields"]
    return fields


def test_turning_mapping_on_and_changing_names_in_turn(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = NESTED.select(["id", "part"]).append_column("s", pa.array([{"x": 1, "y": 2}, None, {"x": 3, "y": None}]))
    table = DeltaTable.create(path, rows.schema, partition_by=["part"], data=rows)
    table.set_properties({MODE: "name"})
    assert_same_rows(delta, path)
    table.rename_column("id", "the key")
    table.rename_column("s.x", "first")
    table.rename_column("part", "label")
    assert_same_rows(delta, path)
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (4, 'u', named_struct('first', 7L, 'y', 8L))")
    assert_same_rows(delta, path)
    table.drop_columns(["s.y"])
    table.add_columns(pa.schema([("s.y", pa.string()), ("new", pa.float64())]))
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (5, 'w', named_struct('first', 9L, 'y', 'text'), 1.5)")
    assert_same_rows(delta, path)
    delta.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN `the key` TO id")
    delta.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN new")
    delta.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN new STRING")
    last = {"id": 6, "label": None, "s": {"first": 1, "y": "z"}, "new": "fresh"}
    table.append(pa.Table.from_pylist([last], schema=table.snapshot().schema.to_arrow()))
    assert_same_rows(delta, path)
    for version in range(table.version + 1):
        assert_same_rows(delta, path, version)


# ------------------------------------------------------------------------------------- types and signatures


def test_widened_columns(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = pa.table(
        {
            "b": pa.array([1], pa.int8()), "i": pa.array([2], pa.int32()), "d": pa.array([3], pa.int32()),
            "f": pa.array([1.5], pa.float32()), "t": pa.array([20000], pa.date32()),
            "l": pa.array([[1]], pa.list_(pa.int16())), "p": pa.array([4], pa.int16()),
        }
    )  # fmt: skip
    properties = {"delta.enableTypeWidening": "true"}
    table = DeltaTable.create(path, rows.schema, partition_by=["p"], properties=properties, data=rows)
    wider = {
        "b": pa.int16(), "i": pa.int64(), "d": pa.decimal128(12, 2), "f": pa.float64(), "t": pa.timestamp("us"),
        "l": pa.list_(pa.int64()), "p": pa.int32(),
    }  # fmt: skip
    for name, kind in wider.items():
        table.set_column(name, data_type=kind)
    assert_same_rows(delta, path)
    delta.sql(
        f"INSERT INTO delta.`{path}` VALUES (300, {2**40}, 1.25, 2.5D, timestamp_ntz'2026-01-02 03:04:05', "
        f"array({2**50}), 70000)"
    )
    assert_same_rows(delta, path)
    delta.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN b TYPE INT")
    table.append(table.snapshot().scan().to_arrow())
    assert_same_rows(delta, path)
    history = [f["metadata"]["delta.typeChanges"] for f in table_fields(table) if f["name"] in ("b", "l")]
    assert history == [
        [{"fromType": "byte", "toType": "short"}, {"fromType": "short", "toType": "integer"}],
        [{"fromType": "short", "toType": "long", "fieldPath": "element"}],
    ]
    assert delta.spark.read.format("delta").load(str(path)).where("i = 2 AND p = 4").count() == 2


def table_fields(table: DeltaTable) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(table.snapshot().schema.to_json())["fields"]
    return fields


def test_changes_are_signed_as_delta_spark_signs_them(delta: DeltaSpark, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int32())])), ("gone", pa.string())])
    properties = {MODE: "name", "delta.enableTypeWidening": "true"}
    for path in (ours, theirs):
        DeltaTable.create(path, schema, properties=properties)
    table = DeltaTable.open(ours)
    table.add_columns(pa.schema([("s.y", pa.string())]))
    table.rename_column("s.x", "z")
    table.drop_columns(["gone"])
    table.set_column("id", comment="the key")
    table.set_properties({"delta.enableChangeDataFeed": "true"})
    table.unset_properties(["delta.enableChangeDataFeed"])
    for statement in (
        "ADD COLUMNS (s.y STRING)", "RENAME COLUMN s.x TO z", "DROP COLUMN gone", "ALTER COLUMN id COMMENT 'the key'",
        "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "UNSET TBLPROPERTIES IF EXISTS ('delta.enableChangeDataFeed')",
    ):  # fmt: skip
        delta.sql(f"ALTER TABLE delta.`{theirs}` {statement}")
    for version in range(1, table.version + 1):
        mine, other = info(ours, version), info(theirs, version)
        assert mine["operation"].removesuffix("S") == other["operation"].removesuffix("S")
        assert _parsed(mine["operationParameters"]) == _parsed(other["operationParameters"])


def _parsed(parameters: dict[str, Any]) -> dict[str, Any]:
    """The operation parameters, with JSON values parsed and the columns' metadata left out, because it contains ids and
    random names.

    deltalog writes each parameter as a string; delta-spark writes numbers, booleans and null as JSON values.
    """

    def read(value: Any) -> Any:
        try:
            return _bare(json.loads(value))
        except (ValueError, TypeError):
            return value

    return {key: read(text) for key, text in parameters.items()}


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(each) for key, each in value.items() if key != "metadata"}
    return [_bare(each) for each in value] if isinstance(value, list) else value


# ------------------------------------------------------------------------------------------------- restore


def test_restored_tables(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = pa.table({"id": list(range(10)), "part": ["a", "b"] * 5})
    properties = {"delta.enableDeletionVectors": "true", MODE: "name"}
    table = DeltaTable.create(path, rows.schema, partition_by=["part"], properties=properties, data=rows)
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")  # 1: a deletion vector
    delta.sql(f"UPDATE delta.`{path}` SET id = id + 100 WHERE part = 'a'")  # 2
    table.rename_column("id", "key")  # 3
    table.append(pa.table({"key": [1000], "part": ["c"]}))  # 4
    for version in (1, 3, 0, 2):
        table.restore(version)
        assert_same_rows(delta, path)
        assert plain_rows(table.snapshot().scan().to_arrow()) == plain_rows(delta.table(path, version))
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (7, 'd')")
    assert_same_rows(delta, path)


def test_restores_are_signed_as_delta_spark_signs_them(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = pa.table({"id": [1, 2]})
    table = DeltaTable.create(path, rows.schema, data=rows)
    table.append(rows)
    table.overwrite(rows)
    ours = table.restore(1)
    table.restore(2)
    delta.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 1")
    assert ours.commit is not None
    mine, other = info(path, ours.commit.version), info(path, delta.latest(path))
    assert mine["operation"] == other["operation"] == "RESTORE"
    assert _parsed(mine["operationParameters"]) == _parsed(other["operationParameters"])
    rows_counted = {"numOutputRows": "4", "numDeletedRows": "2"}  # delta-spark does not record these two metrics
    assert mine["operationMetrics"] == {**other["operationMetrics"], **rows_counted}
    assert_same_rows(delta, path)
    assert plain_rows(deltalake.DeltaTable(str(path)).to_pyarrow_table()) == plain_rows(pa.concat_tables([rows, rows]))


# ------------------------------------------------------------------------------------------------ protocol


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("feature", "properties"),
    [
        ("inCommitTimestamp", {"delta.enableInCommitTimestamps": "true"}),
        ("rowTracking", {"delta.enableRowTracking": "true"}),
        ("checkConstraints", {"delta.feature.checkConstraints": "supported", "delta.enableChangeDataFeed": "true"}),
        ("vacuumProtocolCheck", {"delta.feature.vacuumProtocolCheck": "supported"}),
    ],
)
def test_dropped_features(delta: DeltaSpark, tmp_path: Path, feature: str, properties: dict[str, str]) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    rows = pa.table({"id": [1, 2]})
    for path in (ours, theirs):
        DeltaTable.create(path, rows.schema, properties=properties, data=rows)
    table = DeltaTable.open(ours)
    table.drop_feature(feature)
    delta.sql(f"ALTER TABLE delta.`{theirs}` DROP FEATURE {feature}")
    assert_same_rows(delta, ours)
    left, expected = delta.protocol(ours), delta.protocol(theirs)
    if feature != "vacuumProtocolCheck":  # delta-spark adds checkpointProtection when it drops a reader feature
        assert {k: set(v) if isinstance(v, list) else v for k, v in left.items()} == {
            k: set(v) if isinstance(v, list) else v for k, v in expected.items()
        }
    spark_append(delta, ours, rows)
    table.append(rows)
    assert_same_rows(delta, ours)
    assert info(ours, 2 if feature in ("inCommitTimestamp", "rowTracking") else 1)["operation"] == "DROP FEATURE"


def test_row_ids_from_the_first_commit_on(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = pa.table({"id": [1, 2]})
    properties = {"delta.enableRowTracking": "true", MODE: "name"}
    table = DeltaTable.create(path, rows.schema, properties=properties, data=rows)
    spark_append(delta, path, rows)
    table.append(rows)
    table.restore(1)
    table.append(rows)
    columns = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    frame = (
        delta.spark.read.format("delta")
        .load(str(path))
        .selectExpr(*(f"{name} AS c{i}" for i, name in enumerate(columns)))
    )
    theirs = sorted(tuple(row) for row in frame.collect())
    ours = sorted(tuple(row.values()) for row in table.snapshot().scan(columns).to_arrow().to_pylist())
    assert ours == theirs and len({row[1] for row in ours}) == 6


def test_domains_of_ones_own_stay(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = pa.table({"id": [1, 2]})
    table = DeltaTable.create(path, rows.schema, data=rows)
    table.set_domain_metadata("my.domain", {"a": 1})
    spark_append(delta, path, rows)
    delta.checkpoint(path)
    assert_same_rows(delta, path)
    assert [d.configuration for d in DeltaTable.open(path).snapshot().domain_metadata] == ['{"a":1}']
    table.remove_domain_metadata("my.domain")
    assert_same_rows(delta, path)


@pytest.mark.sampled(2)
@MODES
def test_rows_taken_out_of_mapped_tables(delta: DeltaSpark, tmp_path: Path, mode: str) -> None:
    """Physical column names also occur in files with moved rows, files with deletion vectors, and change data files."""
    path = tmp_path / "table"
    properties = {MODE: mode, "delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"}
    table = DeltaTable.create(path, NESTED.schema, partition_by=["part"], properties=properties)
    rows = NESTED.append_column("n", pa.array([7, 8, 9]))
    table.append(pa.concat_tables([rows, rows.set_column(0, "id", pa.array([11, 12, 13]))]), merge_schema=True)
    table.delete("id = 1")
    table.set_properties({"delta.enableDeletionVectors": "true"})
    table.delete("id = 12")
    assert_same_rows(delta, path)
    feed = delta.changes(path, 1)
    ours = table.changes(1).to_arrow()
    columns = ["id", "part", "n", "_change_type", "_commit_version"]
    assert plain_rows(ours.select(columns)) == plain_rows(feed.select(columns))
    assert ours.num_rows == 8


def test_deltalake_writes_again_once_the_feature_that_it_lacks_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = pa.table({"id": [1, 2]})
    table = DeltaTable.create(path, rows.schema, properties={"delta.enableInCommitTimestamps": "true"}, data=rows)
    with pytest.raises(Exception, match="InCommitTimestamp"):
        deltalake.write_deltalake(str(path), rows, mode="append")
    table.drop_feature("inCommitTimestamp")
    deltalake.write_deltalake(str(path), rows, mode="append")
    table.restore(0)
    deltalake.write_deltalake(str(path), rows, mode="append")
    assert sorted(deltalake.DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist()) == [1, 1, 2, 2]
    assert sorted(table.snapshot().scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 2]
