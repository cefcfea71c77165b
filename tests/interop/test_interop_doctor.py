"""The doctor detects defects of in-commit timestamps that ordinary statements of delta-spark cause.

All tables are created by delta-spark itself; healthy tables have no findings.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from deltalog import CheckReport, DeltaTable, check
from tests.support.spark import DeltaSpark

ENABLED = "delta.enableInCommitTimestamps"
VERSION_KEY = "delta.inCommitTimestampEnablementVersion"
TIMESTAMP_KEY = "delta.inCommitTimestampEnablementTimestamp"
YEAR_2100_MS = 4_102_444_800_000


@pytest.fixture
def late(delta: DeltaSpark, tmp_path: Path) -> Path:
    """Versions 0 and 1 have no in-commit timestamps, version 2 enables them, and version 3 is an append."""
    path = tmp_path / "late"
    delta.sql(f"CREATE TABLE delta.`{path}` (id LONG, name STRING) USING delta")
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a'), (2, 'b')")
    delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{ENABLED}' = 'true')")
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (3, 'c')")
    assert_healthy(path)
    return path


@pytest.fixture
def timed(delta: DeltaSpark, tmp_path: Path) -> Path:
    """In-commit timestamps from version 0 on."""
    path = tmp_path / "timed"
    delta.sql(f"CREATE TABLE delta.`{path}` (id LONG, name STRING) USING delta TBLPROPERTIES ('{ENABLED}' = 'true')")
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a'), (2, 'b')")
    assert_healthy(path)
    return path


def assert_healthy(path: Path) -> None:
    report = check(path, deep=True)
    assert report.ok and not report.counts["warning"], str(report)


def rules(report: CheckReport) -> set[str]:
    return set(report.rules)


def test_a_shallow_clone_copies_the_pair_of_its_source(delta: DeltaSpark, late: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    delta.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{late}`")
    found = check(clone, allowed_paths=[str(late)])
    assert "ict-enablement-after-latest" in rules(found) and not found.ok, str(found)
    for number in range(3):
        delta.sql(f"INSERT INTO delta.`{clone}` VALUES ({number}, 'x')")
    grown = check(clone, allowed_paths=[str(late)])
    assert "ict-enablement-version-wrong" in rules(grown) and not grown.ok, str(grown)


def test_a_restore_before_the_enablement_turns_them_off(delta: DeltaSpark, late: Path) -> None:
    delta.sql(f"RESTORE TABLE delta.`{late}` TO VERSION AS OF 1")
    [finding] = [each for each in check(late).findings if each.rule == "ict-disabled-by-operation"]
    assert finding.version == 4 and "RESTORE" in finding.message


@pytest.mark.long
def test_replacing_a_table_turns_them_off(delta: DeltaSpark, timed: Path) -> None:
    delta.sql(f"CREATE OR REPLACE TABLE delta.`{timed}` USING delta AS SELECT 7L AS id")
    [finding] = [each for each in check(timed).findings if each.rule == "ict-disabled-by-operation"]
    assert finding.version == 2 and "REPLACE" in finding.message


def test_disabling_leaves_the_pair_behind(delta: DeltaSpark, late: Path) -> None:
    delta.sql(f"ALTER TABLE delta.`{late}` SET TBLPROPERTIES ('{ENABLED}' = 'false')")
    delta.sql(f"INSERT INTO delta.`{late}` VALUES (9, 'x')")
    report = check(late)
    assert "ict-stale-enablement-pair" in rules(report) and report.ok, str(report)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("key", [VERSION_KEY, TIMESTAMP_KEY])
def test_half_a_pair(delta: DeltaSpark, timed: Path, key: str) -> None:
    delta.sql(f"ALTER TABLE delta.`{timed}` SET TBLPROPERTIES ('{key}' = '1')")
    report = check(timed)
    assert "ict-half-enablement-pair" in rules(report) and not report.ok, str(report)


@pytest.mark.long
def test_a_wrong_pair(delta: DeltaSpark, timed: Path) -> None:
    delta.sql(f"ALTER TABLE delta.`{timed}` SET TBLPROPERTIES ('{VERSION_KEY}' = '1', '{TIMESTAMP_KEY}' = '5')")
    report = check(timed)
    assert "ict-enablement-version-wrong" in rules(report) and not report.ok, str(report)


@pytest.mark.long
def test_the_year_2100_goes_on_with_every_commit(delta: DeltaSpark, timed: Path, tmp_path: Path) -> None:
    """The clock of one writer was ahead; after that writer's commit, each commit by delta-spark is 1 ms later than the
    previous one."""
    path = tmp_path / "poisoned"
    shutil.copytree(timed, path)
    commit = path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    lines[0]["commitInfo"]["inCommitTimestamp"] = YEAR_2100_MS
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in (f"{1:020d}.crc", f".{1:020d}.crc.crc", f".{1:020d}.json.crc"):
        if os.path.exists(path / "_delta_log" / name):
            os.unlink(path / "_delta_log" / name)
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (5, 'e')")
    last = json.loads((path / "_delta_log" / f"{2:020d}.json").read_text().splitlines()[0])["commitInfo"]
    assert last["inCommitTimestamp"] == YEAR_2100_MS + 1
    assert {"ict-in-future", "ict-drift"} <= rules(check(path))


def test_tables_of_many_features_have_no_error(delta: DeltaSpark, tmp_path: Path) -> None:
    """The check reports no findings for tables that delta-spark writes, even with deletion vectors, row tracking,
    column mapping, checkpoints, constraints or change data feeds."""
    path = tmp_path / "features"
    properties = {
        ENABLED: "true", "delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true",
        "delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true", "delta.checkpointPolicy": "v2",
        "delta.checkpointInterval": "3",
    }  # fmt: skip
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    delta.sql(
        f"CREATE TABLE delta.`{path}` (id LONG, name STRING, day DATE, price DECIMAL(12, 2), at TIMESTAMP) USING delta "
        f"PARTITIONED BY (day) TBLPROPERTIES ({listed})"
    )
    for day in ("2026-01-01", "2026-01-02"):
        delta.sql(
            f"INSERT INTO delta.`{path}` SELECT id, concat('n', id), DATE '{day}', CAST(id AS DECIMAL(12, 2)) / 7, "
            f"TIMESTAMP '{day} 10:00:00.123456' FROM range(1000)"
        )
    delta.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (id >= 0)")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id % 10 = 3")
    delta.sql(f"UPDATE delta.`{path}` SET name = 'z' WHERE id = 5")
    delta.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN name TO title")
    delta.sql(f"OPTIMIZE delta.`{path}`")
    delta.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 4")
    report = check(path, deep=True)
    assert report.ok, str(report)
    assert report.examined.checkpoints > 0 and report.examined.rows > 1000


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Kolkata"])
def test_times_before_there_were_time_zones_have_no_finding(delta: DeltaSpark, tmp_path: Path, zone: str) -> None:
    """The statistics contain local mean times, whose UTC offsets include seconds, and times that are in the year 0 or
    10000 in UTC."""
    path, setting = tmp_path / "old", "spark.sql.session.timeZone"
    before = delta.spark.conf.get(setting)
    delta.spark.conf.set(setting, zone)
    try:
        delta.sql(f"CREATE TABLE delta.`{path}` (id INT, at TIMESTAMP, wall TIMESTAMP_NTZ) USING delta")
        texts = ("1850-06-01 10:11:12.123456", "1870-06-01 10:11:12.987654", "0001-01-01 00:00:00",
                 "1930-01-01 00:00:00", "9999-12-31 23:59:59.999999")  # fmt: skip
        for number, text in enumerate(texts):
            delta.sql(f"INSERT INTO delta.`{path}` VALUES ({number}, TIMESTAMP'{text}', TIMESTAMP_NTZ'{text}')")
        instants = {
            row["id"]: row["text"]
            for row in delta.sql(
                f"SELECT id, date_format(to_utc_timestamp(at, '{zone}'), 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS text "
                f"FROM delta.`{path}` WHERE id < 2"
            ).collect()
        }
    finally:
        delta.spark.conf.set(setting, before)
    commit = (path / "_delta_log" / f"{1:020d}.json").read_text()
    assert "-07:52:58" in commit or "+05:53:28" in commit
    assert_healthy(path)
    snapshot = DeltaTable.open(path).snapshot()
    for number, text in instants.items():
        scan = snapshot.scan(where=f"at = '{text}Z'")
        assert scan.to_arrow()["id"].to_pylist() == [number] and scan.files().num_rows == 1, text


# Changes that a restore undoes. For each change: the statements that run before the version to restore, and those that
# run after it.
CROSSED = {
    "the start of column mapping": (
        "",
        ["SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", "RENAME COLUMN id TO nr", "ADD COLUMNS (n INT)"],
    ),
    "a column that is dropped and added again": (
        "'delta.columnMapping.mode' = 'name'", ["DROP COLUMN name", "ADD COLUMNS (name INT)"]
    ),
    "a widening": (
        "'delta.enableTypeWidening' = 'true'", ["ALTER COLUMN id TYPE LONG", "ALTER COLUMN s.same TYPE LONG"]
    ),
    "the start of row tracking": ("", ["SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"]),
    "the end of deletion vectors": (
        "'delta.enableDeletionVectors' = 'true'", ["SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("crossed", CROSSED)
def test_a_restore_has_no_error(delta: DeltaSpark, tmp_path: Path, crossed: str) -> None:
    path, (properties, changes) = tmp_path / "restored", CROSSED[crossed]
    listed = f"TBLPROPERTIES ({properties})" if properties else ""
    delta.sql(
        f"CREATE TABLE delta.`{path}` (id INT, name STRING, s STRUCT<same: INT>, t STRUCT<same: STRING>, part INT) "
        f"USING delta PARTITIONED BY (part) {listed}"
    )
    structs = "named_struct('same', 1), named_struct('same', 'a')"
    delta.sql(f"INSERT INTO delta.`{path}` SELECT CAST(id AS INT), NULL, {structs}, 1 FROM range(10)")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE s.same = 1 AND id < 3")
    for change in changes:
        delta.sql(f"ALTER TABLE delta.`{path}` {change}")
        assert_no_error(path)
    changed = DeltaTable.open(path).version
    # delta-spark refuses to restore a version with deletion vectors if deletion vectors are disabled now.
    for version in (1,) if crossed == "the end of deletion vectors" else (2, 1, changed):
        delta.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}")
        assert_no_error(path)
        delta.sql(f"DELETE FROM delta.`{path}` WHERE t.same = 'b'")
        delta.sql(f"UPDATE delta.`{path}` SET part = 2 WHERE part = 1")
        assert_no_error(path)


def test_versions_that_a_short_vacuum_makes_unreadable(delta: DeltaSpark, tmp_path: Path) -> None:
    path, setting = tmp_path / "lost", "spark.databricks.delta.retentionDurationCheck.enabled"
    vectors = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    delta.sql(f"CREATE TABLE delta.`{path}` (id LONG) USING delta {vectors}")
    delta.sql(f"INSERT INTO delta.`{path}` SELECT id FROM range(0, 100, 1, 1)")
    for number in (1, 2):
        delta.sql(f"DELETE FROM delta.`{path}` WHERE id = {number}")
    assert_healthy(path)
    delta.spark.conf.set(setting, "false")
    try:
        delta.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    finally:
        delta.spark.conf.unset(setting)
    [finding] = [each for each in check(path).findings if each.rule == "version-lost"]
    assert finding.message == "Missing files: 1. Unreadable versions: 2.", finding
    assert finding.path is not None and finding.path.startswith("deletion_vector_")


def assert_no_error(path: Path) -> None:
    report = check(path, deep=True)
    assert report.ok, str(report)


@pytest.mark.long
def test_identity_columns_and_iceberg_compatibility_have_no_finding(delta: DeltaSpark, tmp_path: Path) -> None:
    """The values that delta-spark generates, and the tables that it writes for Iceberg compatibility, satisfy the
    rules."""
    path = tmp_path / "identity"
    delta.sql(
        f"CREATE TABLE delta.`{path}` (id LONG GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY -3), "
        "name STRING) USING delta"
    )
    for name in "abc":
        delta.sql(f"INSERT INTO delta.`{path}` (name) SELECT concat('{name}', id) FROM range(20)")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id % 2 = 0")
    assert_healthy(path)
    for number, more in ((1, ""), (2, ", tags ARRAY<LONG>, more MAP<STRING, ARRAY<INT>>, s STRUCT<a: ARRAY<INT>>")):
        other = tmp_path / f"iceberg-{number}"
        delta.sql(
            f"CREATE TABLE delta.`{other}` (id LONG, day DATE, at TIMESTAMP{more}) USING delta PARTITIONED BY (day) "
            f"TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableIcebergCompatV{number}' = 'true', "
            "'delta.enableDeletionVectors' = 'false')"
        )
        values = "" if number == 1 else ", array(1L), map('k', array(1)), named_struct('a', array(1))"
        delta.sql(
            f"INSERT INTO delta.`{other}` SELECT id, DATE '2026-01-01', TIMESTAMP '2026-01-01 10:00:00'{values} "
            "FROM range(10)"
        )
        delta.sql(f"DELETE FROM delta.`{other}` WHERE id = 3")
        assert_healthy(other)


# Tables of sessions and statements that deltalog has no like of: the settings of the session, and the statements. ``T``
# stands for the table, ``P`` for its path.
_OLD = (
    "'0001-01-01 00:00:00'", "'1499-12-31 12:00:00'", "'1582-10-04 00:00:00'", "'1850-06-01 10:11:12.123456'",
    "'2026-01-01 23:30:00.987654'", "'9999-12-31 23:59:59.999999'",
)  # fmt: skip
_TIMES = ", ".join(f"({number}, TIMESTAMP{text}, DATE({text}))" for number, text in enumerate(_OLD))
_ZONE, _REBASE = "spark.sql.session.timeZone", "spark.sql.parquet.datetimeRebaseModeInWrite"
_INT96, _MERGE = "spark.sql.parquet.outputTimestampType", "spark.databricks.delta.schema.autoMerge.enabled"
_CHECKPOINTS = "'delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.checkpointInterval' = '2'"
SESSIONS: dict[str, tuple[dict[str, str], list[str]]] = {
    "a replaced table that becomes append-only": (
        {},
        [
            "CREATE TABLE T (id LONG) USING delta",
            "INSERT INTO T VALUES (1)",
            "CREATE OR REPLACE TABLE T (id LONG) USING delta TBLPROPERTIES ('delta.appendOnly' = 'true')",
            "INSERT INTO T VALUES (2)",
        ],
    ),
    "a replaced table with another mapping and other partitions": (
        {},
        [
            "CREATE TABLE T (id LONG, p INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "INSERT INTO T VALUES (1, 1)",
            "ALTER TABLE T ADD COLUMNS (more INT)",
            "CREATE OR REPLACE TABLE T (p INT, id STRING) USING delta PARTITIONED BY (p) "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "INSERT INTO T VALUES (2, 'x')",
            "CREATE OR REPLACE TABLE T (id LONG) USING delta",
            "INSERT INTO T VALUES (3)",
        ],
    ),
    "integers that schema merging widens": (
        {_MERGE: "true", "spark.sql.storeAssignmentPolicy": "ANSI"},
        [
            "CREATE TABLE T (id INT, n TINYINT, s STRUCT<m: SMALLINT>) USING delta",
            "INSERT INTO T VALUES (1, CAST(2 AS TINYINT), named_struct('m', CAST(3 AS SMALLINT)))",
            "MERGE: SELECT 2 AS id, 100000 AS n, named_struct('m', 70000) AS s",
            "DELETE FROM T WHERE n = 2",
        ],
    ),
    **{
        f"partitions by times in {zone}": (
            {_ZONE: zone},
            [
                f"CREATE TABLE T (id INT, at TIMESTAMP, day DATE) USING delta PARTITIONED BY (at, day) "
                f"TBLPROPERTIES ({_CHECKPOINTS})",
                f"INSERT INTO T VALUES {_TIMES}",
                "DELETE FROM T WHERE id = 3",
                "INSERT INTO T VALUES (9, NULL, NULL)",
            ],
        )
        for zone in ("Asia/Kolkata", "America/Los_Angeles", "Europe/Amsterdam", "UTC")
    },
    **{
        f"times {name} in {zone}": (
            {_ZONE: zone, **settings},
            [
                f"CREATE TABLE T (id INT, at TIMESTAMP, day DATE) USING delta TBLPROPERTIES ({_CHECKPOINTS})",
                f"INSERT INTO T VALUES {_TIMES}",
                "DELETE FROM T WHERE id = 3",
                "INSERT INTO T VALUES (9, NULL, NULL)",
                "UPDATE T SET id = 10 WHERE id = 9",
            ],
        )
        for zone in ("Asia/Kolkata", "America/Los_Angeles")
        for name, settings in (
            ("of the Julian calendar", {_REBASE: "LEGACY", "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY"}),
            ("as INT96", {_INT96: "INT96", "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED"}),
        )
    },
    "expressions over times in another zone": (
        {_ZONE: "America/Los_Angeles"},
        [
            "GENERATED",
            "INSERT INTO T (at) VALUES (TIMESTAMP'2026-01-01 23:30:00'), (TIMESTAMP'1850-01-01 00:00:00')",
            "ALTER TABLE T ADD CONSTRAINT early CHECK (at < '2026-01-02 00:00:00')",
            "INSERT INTO T (at) VALUES (TIMESTAMP'2026-01-01 23:59:00')",
        ],
    ),
    "types that few tables have": (
        {},
        [
            "CREATE TABLE T (c CHAR(5), v VARCHAR(9), n VOID, m MAP<STRING, ARRAY<INT>>, "
            "a ARRAY<STRUCT<x: DECIMAL(38, 18)>>, b BINARY, f FLOAT, x VARIANT, t TIMESTAMP_NTZ, d DECIMAL(38, 38)) "
            "USING delta",
            "INSERT INTO T SELECT 'ab', 'cd', NULL, map('k', array(1, NULL)), array(named_struct('x', 1.5)), X'FF', "
            "CAST('NaN' AS FLOAT), parse_json('{\"a\": [1, null]}'), TIMESTAMP_NTZ'2026-01-01 00:00:00', 0.1",
            "INSERT INTO T SELECT '', '', NULL, map(), array(), X'', CAST('-Infinity' AS FLOAT), NULL, NULL, NULL",
        ],
    ),
    "clustering, defaults and identity": (
        {},
        [
            "CREATE TABLE T (id LONG GENERATED BY DEFAULT AS IDENTITY, name STRING DEFAULT 'x', day DATE) USING delta "
            "CLUSTER BY (day) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
            "INSERT INTO T (day) VALUES (DATE'2026-01-01'), (DATE'2026-01-02')",
            "INSERT INTO T (id, day) VALUES (100, DATE'2026-01-01')",
            "OPTIMIZE T ",
            "ALTER TABLE T CLUSTER BY (name)",
            "ALTER TABLE T CLUSTER BY NONE",
            "INSERT INTO T (name) VALUES ('y')",
        ],
    ),
    "features dropped and mapping removed": (
        {},
        [
            "CREATE TABLE T (id LONG, `a b` STRING) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
            "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true')",
            "INSERT INTO T SELECT id, 'x' FROM range(10)",
            "DELETE FROM T WHERE id = 3",
            "ALTER TABLE T RENAME COLUMN `a b` TO ab",
            "ALTER TABLE T SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')",
            "ALTER TABLE T DROP FEATURE deletionVectors",
            "INSERT INTO T VALUES (20, 'y')",
        ],
    ),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_other_tables_have_no_error(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    path = tmp_path / "other"
    settings, statements = SESSIONS[name]
    before = {key: delta.spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        delta.spark.conf.set(key, value)
    try:
        for statement in statements:
            if statement.startswith("MERGE: "):
                rows = delta.sql(statement.removeprefix("MERGE: "))
                rows.write.format("delta").mode("append").option("mergeSchema", "true").save(str(path))
            elif statement == "GENERATED":
                generated(delta, path)
            else:
                delta.sql(statement.replace("TABLE T", f"TABLE delta.`{path}`").replace(" T ", f" delta.`{path}` "))
            assert_no_error(path)
    finally:
        for key, value in before.items():
            if value is None:
                delta.spark.conf.unset(key)
            else:
                delta.spark.conf.set(key, value)


def generated(delta: DeltaSpark, path: Path) -> None:
    """A table with generated columns; SQL can declare them only in a catalog."""
    from delta.tables import DeltaTable as SparkTable

    builder = SparkTable.create(delta.spark).location(str(path)).addColumn("at", "TIMESTAMP")
    builder.addColumn("day", "DATE", generatedAlwaysAs="CAST(at AS DATE)").addColumn(
        "hour", "INT", generatedAlwaysAs="HOUR(at)"
    ).partitionedBy("day").execute()
