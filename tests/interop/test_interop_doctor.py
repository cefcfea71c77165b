"""Defects of in-commit timestamps that delta-spark leaves behind by ordinary statements, and the doctor finds.

Each table is made by delta-spark itself; the healthy ones, which it makes beside them, have no error.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from deltalog import CheckReport, check
from tests.support.spark import DeltaSpark

ENABLED = "delta.enableInCommitTimestamps"
VERSION_KEY = "delta.inCommitTimestampEnablementVersion"
TIMESTAMP_KEY = "delta.inCommitTimestampEnablementTimestamp"
YEAR_2100_MS = 4_102_444_800_000


@pytest.fixture
def late(delta: DeltaSpark, tmp_path: Path) -> Path:
    """Versions 0 and 1 without in-commit timestamps, enabled at version 2, an append at version 3."""
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
    """The clock of one writer was wrong; delta-spark's next commits follow by 1 ms each."""
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
    """What delta-spark writes is healthy: deletion vectors, row tracking, mapping, checkpoints, constraints, CDF."""
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


@pytest.mark.long
def test_identity_columns_and_iceberg_compatibility_have_no_finding(delta: DeltaSpark, tmp_path: Path) -> None:
    """What delta-spark generates, and what it writes for Iceberg, keeps to the rules."""
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
