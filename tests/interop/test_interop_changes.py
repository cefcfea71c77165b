"""The change data feeds of both engines over ranges of versions have the same rows, or both engines refuse the
range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, SchemaMismatchError
from tests.support.spark import DeltaSpark, plain_rows

CDF = "'delta.enableChangeDataFeed'='true'"
MAPPED = f"{CDF}, 'delta.columnMapping.mode'='name', 'delta.minReaderVersion'='2', 'delta.minWriterVersion'='5'"
SOURCE = "(SELECT explode(sequence(2, 4)) AS k, 'merged' AS v)"
MERGE = (
    f"MERGE INTO {{t}} t USING {SOURCE} s ON t.k = s.k WHEN MATCHED AND s.k = 3 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
)
WITHOUT_EFFECT = "MERGE INTO {t} t USING (SELECT 99 AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 'never'"
REFUSALS = (
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
)
ROWS = "INSERT INTO {t} SELECT id, 'v' || id FROM range(0, 5, 1, 1)"
DML = [ROWS, "UPDATE {t} SET v = 'u' WHERE k = 1", "DELETE FROM {t} WHERE k = 2", MERGE, WITHOUT_EFFECT]

TABLES: dict[str, list[str]] = {
    "rewritten files": [
        f"CREATE TABLE {{t}} (k BIGINT, v STRING) USING delta TBLPROPERTIES ({CDF})",
        *DML,
        "INSERT OVERWRITE {t} VALUES (7, 'o')",
    ],
    "partitions": [
        f"CREATE TABLE {{t}} (k BIGINT, v STRING) USING delta PARTITIONED BY (v) TBLPROPERTIES ({CDF})",
        *DML,
        "INSERT INTO {t} VALUES (8, NULL)",
        "DELETE FROM {t} WHERE v IS NULL",
        "DELETE FROM {t}",
    ],
    "deletion vectors": [
        f"CREATE TABLE {{t}} (k BIGINT, v STRING) USING delta "
        f"TBLPROPERTIES ({CDF}, 'delta.enableDeletionVectors'='true')",
        *DML,
        "DELETE FROM {t} WHERE k = 0",
        "RESTORE TABLE {t} TO VERSION AS OF 2",
        "OPTIMIZE {t}",
    ],
    "columns added": [
        f"CREATE TABLE {{t}} (k BIGINT NOT NULL, s STRUCT<a: INT>) USING delta TBLPROPERTIES ({CDF})",
        "INSERT INTO {t} VALUES (1, struct(1))",
        "ALTER TABLE {t} ADD COLUMNS (later STRING, s.b DOUBLE)",
        "INSERT INTO {t} VALUES (2, struct(2, 2.5), 'x')",
        "ALTER TABLE {t} ALTER COLUMN k DROP NOT NULL",
        "INSERT INTO {t} VALUES (NULL, NULL, 'y')",
        "UPDATE {t} SET later = 'z' WHERE k = 1",
    ],
    "renamed and dropped": [
        f"CREATE TABLE {{t}} (k BIGINT, v STRING, s STRUCT<a: INT, b: INT>) USING delta TBLPROPERTIES ({MAPPED})",
        "INSERT INTO {t} VALUES (1, 'a', struct(1, 2))",
        "ALTER TABLE {t} ADD COLUMN later INT",
        "INSERT INTO {t} VALUES (2, 'b', struct(1, 2), 3)",
        "ALTER TABLE {t} RENAME COLUMN v TO w",
        "INSERT INTO {t} VALUES (3, 'c', struct(1, 2), 3)",
        "ALTER TABLE {t} DROP COLUMN s.b",
        "UPDATE {t} SET w = 'd' WHERE k = 3",
        "ALTER TABLE {t} DROP COLUMN w",
        "INSERT INTO {t} VALUES (4, struct(1), 3)",
    ],
    "mapping turned on": [
        f"CREATE TABLE {{t}} (k BIGINT, v STRING) USING delta TBLPROPERTIES ({CDF})",
        "INSERT INTO {t} VALUES (1, 'a')",
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ({MAPPED})",
        "INSERT INTO {t} VALUES (2, 'b')",
        "ALTER TABLE {t} RENAME COLUMN v TO w",
        "DELETE FROM {t} WHERE k = 1",
    ],
    "types widened": [
        f"CREATE TABLE {{t}} (k INT, s STRUCT<a: SMALLINT>) USING delta "
        f"TBLPROPERTIES ({CDF}, 'delta.enableTypeWidening'='true')",
        "INSERT INTO {t} VALUES (1, struct(1))",
        "ALTER TABLE {t} ALTER COLUMN k TYPE BIGINT",
        "INSERT INTO {t} VALUES (5000000000, struct(2))",
        "ALTER TABLE {t} ALTER COLUMN s.a TYPE INT",
        "DELETE FROM {t} WHERE k = 1",
    ],
    "enabled late, then off": [
        "CREATE TABLE {t} (k BIGINT, v STRING) USING delta",
        "INSERT INTO {t} VALUES (1, 'a')",
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ({CDF})",
        "INSERT INTO {t} VALUES (2, 'b')",
        "UPDATE {t} SET v = 'c' WHERE k = 1",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed'='false')",
        "INSERT INTO {t} VALUES (3, 'c')",
    ],
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", TABLES)
def test_changes_of_ranges(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    path = tmp_path / "table"
    for statement in TABLES[name]:
        delta.sql(statement.format(t=f"delta.`{path}`"))
    table = DeltaTable.open(str(path))
    last = table.version
    # The ranges from each version to the last version, the ranges from versions 0 and 1 to each version, and each
    # single version. Not all ranges are compared, since delta-spark takes half a second per query.
    ranges = {pair for v in range(last + 1) for pair in ((v, last), (0, v), (v, v), (1, v)) if pair[0] <= pair[1]}
    read = 0
    for low, high in sorted(ranges):
        theirs, ours = spark_changes(delta, path, low, high), changes(table, low, high)
        if isinstance(theirs, str) or isinstance(ours, str):
            assert isinstance(theirs, str) and isinstance(ours, str), f"{low}-{high}: {theirs!s:.300} / {ours!s:.300}"
            continue
        assert ours.schema.names == theirs.schema.names, f"{low}-{high}"
        assert plain_rows(ours) == plain_rows(theirs), f"{low}-{high}"
        read += 1
    assert read, "no range was read at all"


def spark_changes(delta: DeltaSpark, path: Path, low: int, high: int) -> pa.Table | str:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    reader = delta.spark.read.format("delta").option("readChangeFeed", "true")
    try:
        return reader.option("startingVersion", low).option("endingVersion", high).load(str(path)).toArrow()
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        assert any(condition in text for condition in REFUSALS), text
        return text


def changes(table: DeltaTable, low: int, high: int) -> Any:
    try:
        return table.changes(low, high).to_arrow()
    except (SchemaMismatchError, CallError) as error:
        return str(error)


def test_a_table_partitioned_anew_keeps_the_values_of_its_older_files(delta: DeltaSpark, tmp_path: Path) -> None:
    """delta-spark 4.4 gives null for a column of a file that was written before the column partitioned the table."""
    path = tmp_path / "table"
    t = f"delta.`{path}`"
    delta.sql(f"CREATE TABLE {t} (k BIGINT, v STRING) USING delta TBLPROPERTIES ({CDF})")
    delta.sql(f"INSERT INTO {t} VALUES (1, 'a')")
    replaced = f"USING delta PARTITIONED BY (v) TBLPROPERTIES ({CDF}) AS SELECT 2L AS k, 'b' AS v"
    delta.sql(f"CREATE OR REPLACE TABLE {t} {replaced}")
    table = DeltaTable.open(str(path))
    assert table.snapshot(1).scan().to_arrow().to_pylist() == [{"k": 1, "v": "a"}]
    found = table.changes(0).to_arrow().select(["k", "v", "_change_type", "_commit_version"]).to_pylist()
    changes = sorted((row["_commit_version"], row["_change_type"], row["k"], row["v"]) for row in found)
    assert changes == [(1, "insert", 1, "a"), (2, "delete", 1, "a"), (2, "insert", 2, "b")]
    theirs = spark_changes(delta, path, 1, 1)
    assert not isinstance(theirs, str) and theirs["v"].to_pylist() == [None]
