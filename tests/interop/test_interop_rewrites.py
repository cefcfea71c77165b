"""delta-spark and deltalake read tables in which deltalog deleted or replaced rows, and write to them, and vice
versa."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from deltalog import DeltaTable, col
from deltalog.parquet.file_reader import read_vector
from deltalog.protocol import deletion_vectors
from deltalog.protocol.actions import DeletionVector
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.shapes import PLACES, SCHEMA, batch

VECTORS = {"delta.enableDeletionVectors": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
MODES = {
    "vectors, by name": {**VECTORS, **CHANGES, **MAPPED},
    "vectors": {**VECTORS, **CHANGES},
    "moved, by name": {**CHANGES, **MAPPED},
    "moved": CHANGES,
}
PARTITIONS = pytest.mark.parametrize("partition_by", [(), ("place",)], ids=["plain", "partitioned"])
DELETE_METRICS = {
    "numRemovedFiles", "numRemovedBytes", "numAddedFiles", "numAddedBytes", "numCopiedRows", "numDeletedRows",
    "numAddedChangeFiles", "numDeletionVectorsAdded", "numDeletionVectorsUpdated", "numDeletionVectorsRemoved",
}  # fmt: skip


def rewritten(path: Path, properties: dict[str, str], partition_by: tuple[str, ...]) -> DeltaTable:
    """A table from whose files deltalog removes rows in every possible way, one way per version."""
    table = DeltaTable.create(str(path), SCHEMA, properties=properties, partition_by=partition_by)
    table.append(batch(0, 40))
    table.append(batch(40, 40))
    table.delete("id IN (3, 4, 50)")
    table.delete("amount > 20 AND name IS NOT NULL OR id = 5")
    table.delete(col("place") == PLACES[3])
    table.overwrite(batch(0, 12), where="id < 15")
    table.overwrite(batch(100, 1), where=col("place") == PLACES[100 % len(PLACES)])
    if partition_by:
        table.overwrite(batch(200, 2), partitions="dynamic")
    table.delete("id >= 60 AND id < 70")
    return table


def check_same(delta: DeltaSpark, table: DeltaTable, path: Path) -> None:
    """Check that both engines return the same rows and the same change data feed."""
    assert plain_rows(table.snapshot().scan().to_arrow()) == plain_rows(delta.table(path))
    assert plain_rows(table.changes(0).to_arrow()) == plain_rows(delta.changes(path))


@pytest.mark.sampled(4)
@PARTITIONS
@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_delta_spark_reads_what_is_left(
    delta: DeltaSpark, tmp_path: Path, properties: dict[str, str], partition_by: tuple[str, ...]
) -> None:
    path = tmp_path / "table"
    table = rewritten(path, properties, partition_by)
    check_same(delta, table, path)
    for version in range(table.version):
        assert plain_rows(table.snapshot(version).scan().to_arrow()) == plain_rows(delta.table(path, version)), version
    assert delta.checksum_defect(path) is None
    history = delta.sql(f"DESCRIBE HISTORY delta.`{path}`").select("operation", "operationMetrics").collect()
    deletes = [dict(row["operationMetrics"]) for row in history if row["operation"] == "DELETE"]
    assert len(deletes) == 4 and all(set(metrics) == DELETE_METRICS for metrics in deletes)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_both_engines_in_turn(delta: DeltaSpark, tmp_path: Path, properties: dict[str, str]) -> None:
    """Each engine extends deletion vectors written by the other, including small inline vectors."""
    path = tmp_path / "table"
    t = f"delta.`{path}`"
    table = DeltaTable.create(str(path), SCHEMA, properties=properties)
    table.append(batch(0, 300))
    table.delete("id IN (1, 2)")
    delta.sql(f"DELETE FROM {t} WHERE id = 3 OR id % 7 = 5")
    table.delete("id < 20 AND name IS NOT NULL")
    delta.sql(f"UPDATE {t} SET name = 'u' WHERE id BETWEEN 30 AND 35")
    table.delete("name = 'u' OR id = 299")
    table.overwrite(batch(500, 3), where="id > 290")
    delta.sql(f"DELETE FROM {t} WHERE id IN (100, 500)")
    delta.sql(f"MERGE INTO {t} t USING (SELECT 101L AS k) s ON t.id = s.k WHEN MATCHED THEN DELETE")
    check_same(delta, table, path)
    delta.sql(f"OPTIMIZE {t}")
    table.delete("id = 200")
    delta.sql(f"RESTORE TABLE {t} TO VERSION AS OF 3")
    table.delete("id = 201")
    check_same(delta, table, path)


def test_vectors_are_those_of_delta_spark_byte_for_byte(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    t = f"delta.`{path}`"
    delta.sql(f"CREATE TABLE {t} (k BIGINT, f INT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='true')")
    for f in range(4):
        delta.sql(f"INSERT INTO {t} SELECT id, {f} FROM range(0, 200000, 1, 1)")
    scattered, dense, stretches = "f = 0 AND k % 1001 = 3", "f = 1 AND k % 2 = 0", "f = 2 AND k % 70000 > 10"
    delta.sql(f"DELETE FROM {t} WHERE {scattered} OR {dense} OR {stretches} OR f = 3 AND k = 199999")
    seen = 0
    snapshot = DeltaTable.open(str(path)).snapshot()
    for file in snapshot.files()["deletion_vector"].to_pylist():
        vector = DeletionVector(**file)
        positions = read_vector(snapshot.reader.files, vector)
        stored = (path / deletion_vectors.relative_path(vector)).read_bytes()
        offset = vector.offset or 0
        (size,) = struct.unpack_from(">i", stored, offset)
        encoded = deletion_vectors.encode(BitMap64(list(positions)))
        assert encoded == stored[offset + 4 : offset + 4 + size]
        content, (at,) = deletion_vectors.encode_file([encoded])
        assert content[at:] == stored[offset : offset + 8 + size] and content[0] == stored[0]
        unique = Path(deletion_vectors.relative_path(vector)).stem.removeprefix("deletion_vector_")
        again = deletion_vectors.in_file(unique, "", offset, size, len(positions))
        assert again == vector
        seen += 1
    assert seen == 4


def test_delta_spark_reads_vectors_of_any_shape(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    schema = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("f", pa.int32())])
    table = DeltaTable.create(str(path), schema, properties=VECTORS)
    numbers = pa.array(range(200_000), pa.int64())
    for f, modulus in enumerate((1001, 2, 70_000, 200_000)):
        rest = pa.array([n % modulus for n in range(200_000)], pa.int64())
        table.append(pa.table({"k": numbers, "r": rest, "f": pa.array([f] * 200_000, pa.int32())}))
    table.delete("f = 0 AND r = 3 OR f = 1 AND r = 0 OR f = 2 AND r > 10 OR f = 3 AND r = 199999")
    vectors = table.snapshot().files()["deletion_vector"].to_pylist()
    assert {v["storage_type"] for v in vectors} == {"u"} and all(v["cardinality"] for v in vectors)
    sums = f"SELECT f, count(*) AS n, sum(k) AS s FROM delta.`{path}` GROUP BY f ORDER BY f"
    ours = table.snapshot().scan(["k", "f"]).to_arrow().group_by("f").aggregate([([], "count_all"), ("k", "sum")])
    expected = sorted(zip(ours["f"].to_pylist(), ours["count_all"].to_pylist(), ours["k_sum"].to_pylist(), strict=True))
    assert [tuple(row) for row in delta.sql(sums).collect()] == expected
    # delta-spark adds rows to deletion vectors that are stored in a file or in the log.
    delta.sql(f"DELETE FROM delta.`{path}` WHERE k = 7")
    assert not table.snapshot().scan(["k"], "k = 7").to_arrow().num_rows
    assert table.snapshot().scan(["k"]).to_arrow().num_rows == sum(n for _, n, _ in expected) - sum(
        7 % m not in gone for m, gone in ((1001, {3}), (2, {0}), (70_000, set(range(11, 70_000))), (200_000, {199_999}))
    )


def test_rows_that_are_moved_keep_their_ids(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    t = f"delta.`{path}`"
    tracked = "'delta.enableRowTracking'='true', 'delta.enableDeletionVectors'='false'"
    delta.sql(f"CREATE TABLE {t} (k BIGINT, v STRING) USING delta TBLPROPERTIES ({tracked})")
    delta.sql(f"INSERT INTO {t} SELECT id, 'v' FROM range(0, 20, 1, 1)")
    query = f"SELECT k, _metadata.row_id AS i, _metadata.row_commit_version AS c FROM {t}"
    before = {row["k"]: (row["i"], row["c"]) for row in delta.sql(query).collect()}
    table = DeltaTable.open(str(path))
    table.delete("k IN (2, 3)")
    delta.sql(f"DELETE FROM {t} WHERE k = 4")
    table.delete("k = 5")
    table.append(pa.table({"k": [100], "v": ["new"]}))
    after = {row["k"]: (row["i"], row["c"]) for row in delta.sql(query).collect()}
    new = after.pop(100)
    assert after == {k: v for k, v in before.items() if k not in (2, 3, 4, 5)}
    assert new[0] not in {i for i, _ in before.values()}
    names = ["k", "_metadata.row_id", "_metadata.row_commit_version"]
    ours = {tuple(row.values()) for row in table.snapshot().scan(names).to_arrow().to_pylist()}
    assert ours == {(k, *v) for k, v in {**after, 100: new}.items()}


# ------------------------------------------------------------------------------------------------- deltalake


@PARTITIONS
def test_deltalake_reads_what_is_left(tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    path = tmp_path / "table"
    table = rewritten(path, CHANGES, partition_by)
    for version in range(table.version + 1):
        theirs = deltalake.DeltaTable(str(path), version=version).to_pyarrow_table().select(SCHEMA.names)
        assert plain_rows(theirs) == plain_rows(table.snapshot(version).scan().to_arrow()), version
    if partition_by:
        return  # deltalake opens change data files by the escaped form of their paths, as written in the log
    feed: Any = deltalake.DeltaTable(str(path)).load_cdf(starting_version=0)
    names = [*SCHEMA.names, "_change_type", "_commit_version"]
    theirs = pa.table(feed.read_all()).select(names)
    assert plain_rows(theirs) == plain_rows(table.changes(0).to_arrow().select(names))


def test_deltalake_and_deltalog_delete_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(str(path), SCHEMA, data=batch(0, 50))
    table.delete("id IN (3, 4)")
    deltalake.DeltaTable(str(path)).delete("id = 5")
    table.delete("id >= 40")
    left = deltalake.DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist()
    assert sorted(left) == [i for i in range(40) if i not in (3, 4, 5)] and len(table.history()) == 4
    metrics = table.history(1)[0]
    assert metrics.operation == "DELETE"


def test_deltalake_reads_vectors(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(str(path), SCHEMA, properties=VECTORS)
    table.append(batch(0, 500))
    table.append(batch(500, 20))
    table.delete("amount > 20 AND name IS NOT NULL OR id = 501")
    vectors = table.snapshot().files()["deletion_vector"].to_pylist()
    assert sorted(v["storage_type"] for v in vectors) == ["u", "u"], json.dumps(vectors)
    theirs = pa.table(
        deltalake.QueryBuilder()
        .register("t", deltalake.DeltaTable(str(path)))
        .execute(f"SELECT {', '.join(SCHEMA.names)} FROM t")
        .read_all()
    )
    assert plain_rows(theirs) == plain_rows(table.snapshot().scan().to_arrow())
