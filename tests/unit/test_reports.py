"""The repr of a result shows the operation and its figures, and stays short even if the result names many files. Lists
of result objects can be converted to pandas, polars and Arrow tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deltalog import DeltaTable, check
from tests.support.core import SCHEMA, rows


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    table = DeltaTable.create(tmp_path, SCHEMA, data=rows(1, 2))
    table.append(rows(3), user_metadata="by hand")
    table.delete("id = 1")
    return table


def test_an_entry_of_the_history_shows_operation_and_figures(table: DeltaTable) -> None:
    deleted, appended, _ = table.history()
    assert "operation='DELETE'" in repr(deleted) and "'numDeletedRows': '1'" in repr(deleted)
    assert "operation='WRITE'" in repr(appended) and "user_metadata='by hand'" in repr(appended)
    assert f"size_bytes={deleted.size_bytes}" in repr(deleted) and "commit_info" not in repr(deleted)


def test_the_history_is_a_table(table: DeltaTable) -> None:
    history = table.history()
    frame = pd.DataFrame(history)
    assert list(frame.columns) == list(history[0].to_json()) and len(frame) == 3
    assert list(frame["operation"]) == [entry.operation for entry in history] and history[0].operation == "DELETE"
    assert frame["operation_metrics"][0]["numDeletedRows"] == "1" and list(frame["version"]) == [2, 1, 0]
    assert pa.Table.from_pylist(history)["version"].to_pylist() == [2, 1, 0]
    assert pl.DataFrame([dict(entry) for entry in history])["version"].to_list() == [2, 1, 0]


def test_an_entry_is_a_mapping_of_what_is_in_its_json(table: DeltaTable) -> None:
    entry = table.history(1)[0]
    whole = entry.to_json()
    assert dict(entry) == whole and [*entry.keys()] == [*entry] == [*whole] and len(entry) == len(whole)
    assert [*entry.values()] == [*whole.values()] and [*entry.items()] == [*whole.items()]
    assert entry["operation"] == entry.get("operation") == "DELETE" and "operation" in entry and "x" not in entry
    assert entry.get("x") is None and entry.get("x", 1) == 1
    with pytest.raises(KeyError, match="x"):
        entry["x"]


def reports(table: DeltaTable) -> dict[str, Any]:
    return {
        "OPTIMIZE": table.optimize.compact(),
        "VACUUM": table.vacuum(0, dry_run=True, enforce_retention_duration=False),
        "CLEANUP": table.cleanup_log(dry_run=True),
        "RESTORE": table.restore(1),
        "WRITE": table.append(rows(9)),
        "CHECK": check(table.url.removeprefix("file://")),
    }


def test_reports_show_figures_in_place_of_files(table: DeltaTable) -> None:
    found = reports(table)
    assert "operation='OPTIMIZE'" in repr(found["OPTIMIZE"]) and "rows=2" in repr(found["OPTIMIZE"])
    assert f"files={len(found['VACUUM'].files)}, size_bytes={found['VACUUM'].size_bytes}," in repr(found["VACUUM"])
    assert f"files={len(found['CLEANUP'].files)}" in repr(found["CLEANUP"])
    assert "operation='WRITE'" in repr(found["WRITE"]) and "'numOutputRows': '1'" in repr(found["WRITE"])
    assert "added_files=" in repr(found["RESTORE"]) and "operation='RESTORE'" in repr(found["RESTORE"].commit)
    assert all(".parquet" not in repr(report) for report in found.values())


def test_reports_are_rows_of_tables(table: DeltaTable) -> None:
    for report in reports(table).values():
        frame = pd.DataFrame([report, report])
        assert len(frame) == 2 and "0" not in map(str, frame.columns), report


def test_a_call_that_commits_nothing_has_no_operation(table: DeltaTable) -> None:
    assert table.delete("id = 77").operation is None
