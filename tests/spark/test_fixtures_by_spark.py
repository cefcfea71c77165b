"""spark_ext reads the same rows as delta-spark from tables that delta-spark wrote (fixtures/)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.tables import to_arrow
from tests.support.spark.log_files import set_mtimes
from tests.support.spark.rows import plain_rows

TABLES = Path(__file__).resolve().parents[2] / "fixtures" / "tables"
NAMES = sorted(path.parent.name for path in TABLES.glob("*/expected.json"))
# Tables of which every version is read, because older versions need a different scan than the latest version.
EVERY_VERSION = ("deletion_vectors", "mapped_by_id", "mapped_by_name", "widened_types")


def fixture(name: str, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    table = tmp_path / "table"
    shutil.copytree(TABLES / name / "table", table)
    set_mtimes(table, json.loads((TABLES / name / "mtimes.json").read_text(encoding="utf-8")))
    return str(table), json.loads((TABLES / name / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_delta_spark(spark: Any, tmp_path: Path, name: str) -> None:
    table, expected = fixture(name, tmp_path)
    latest = expected["latest_version"]
    for version in range(latest + 1) if name in EVERY_VERSION else [latest]:
        rows = to_arrow(spark_ext.read(spark).option("versionAsOf", version).load(table))
        assert rows.column_names == expected["versions"][str(version)]["columns"], f"version {version}"
        assert plain_rows(rows) == expected["versions"][str(version)]["rows"], f"version {version}"


@pytest.mark.parametrize("name", ["change_feed"])
def test_changes_are_those_of_delta_spark(spark: Any, tmp_path: Path, name: str) -> None:
    table, expected = fixture(name, tmp_path)
    changes = to_arrow(spark_ext.read_changes(spark, table, 0))
    assert changes.column_names == expected["changes"]["columns"]
    assert plain_rows(changes) == expected["changes"]["rows"]
    python = deltalog.DeltaTable.open(table)
    for first, last in ((3, 5), (6, 6), (4, 9)):
        part = to_arrow(spark_ext.read_changes(spark, table, first, last))
        assert plain_rows(part) == plain_rows(python.changes(first, last).to_arrow()), (first, last)
