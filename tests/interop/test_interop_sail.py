"""The adapter of Sail does what it says, on tables that Sail is known to read and write. A failure here is one of the
adapter; what Sail does elsewhere is shown by the conformance matrix."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.conformance import NotSupported
from deltalog.conformance.case import TIME_TRAVEL, Case
from deltalog.conformance.cases.common import Timeline, ids, minute
from deltalog.conformance.remote import EngineRefusal, RemoteEngine
from deltalog.conformance.runner import build
from deltalog.conformance.values import canonical_rows, rows_of
from tests.support.conformance.installed import installed_engine

UTC = datetime.timezone.utc


@pytest.fixture(scope="module")
def sail(request: pytest.FixtureRequest) -> Iterator[RemoteEngine]:
    with installed_engine("sail", bool(request.config.getoption("long"))) as engine:
        yield engine


def timeline(place: Path, **settings: Any) -> str:
    return str(build(Case("timeline", TIME_TRAVEL, "", "", Timeline(**settings), ()), place))


def some_types() -> list[dict[str, Any]]:
    at = datetime.datetime(2025, 1, 15, 12, 30, 0, 123456, tzinfo=UTC)
    row = {"long": 1 << 40, "text": "größer \U0001f600", "double": -0.1, "yes": True, "bytes": b"\x00\xff"}
    row |= {"day": datetime.date(2025, 1, 15), "at": at, "price": decimal.Decimal("-12.30")}
    row |= {"inner": {"n": 1, "words": ["a", None]}, "list": [1, 2]}
    return [row, dict.fromkeys(row)]


def test_rows(sail: RemoteEngine, tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(some_types())
    DeltaTable.create(tmp_path / "t", rows.schema, data=rows)
    assert rows_of(sail.rows(str(tmp_path / "t"))) == canonical_rows(some_types())


def test_rows_of_mapped_columns_and_deletion_vectors(sail: RemoteEngine, tmp_path: Path) -> None:
    properties = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    rows = pa.table({"id": [1, 2, 3], "s": [{"x": 1}, {"x": 2}, None]})
    table = DeltaTable.create(tmp_path / "t", rows.schema, data=rows, properties=properties)
    table.delete("id = 2")
    assert rows_of(sail.rows(str(tmp_path / "t"))) == [{"id": 1, "s": {"x": 1}}, {"id": 3, "s": None}]


def test_versions_and_times(sail: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1, 2, 3), ict_from=0, file=(9, 9, 9, 9))
    assert rows_of(sail.rows(path, version=1)) == ids(1)
    assert rows_of(sail.rows(path, timestamp_ms=minute(2))) == ids(2)
    assert rows_of(sail.rows(path, timestamp_ms=minute(2) - 1)) == ids(1)
    assert rows_of(sail.rows_at_us(path, minute(2) * 1000 + 1)) == ids(2)
    assert rows_of(sail.rows_at_us(path, minute(2) * 1000 - 1)) == ids(1)


def test_a_table_is_read_anew(sail: RemoteEngine, tmp_path: Path) -> None:
    """A commit file that is replaced, as the kit does."""
    path = timeline(tmp_path / "one", at=(0, 1))
    assert rows_of(sail.rows(path)) == ids(1)
    other = timeline(tmp_path / "other", at=(0,))
    (Path(path) / "_delta_log" / f"{1:020}.json").unlink()
    assert rows_of(sail.rows(path)) == ids(0) == rows_of(sail.rows(other))


def test_the_option_for_changes_is_passed_on(sail: RemoteEngine, tmp_path: Path) -> None:
    """Sail takes the option and returns the rows of the table, which is what the cases on change data feeds show."""
    path = timeline(tmp_path, at=(0, 1), properties={"delta.enableChangeDataFeed": "true"})
    assert rows_of(sail.changes(path, from_version=1)) == ids(1)


def test_create_append_overwrite_and_delete(sail: RemoteEngine, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    columns = pa.schema([("id", pa.int64()), ("p", pa.string()), ("day", pa.date32()), ("yes", pa.bool_())])
    sail.create(path, columns, ["p"], {"mine": "1", "delta.enableInCommitTimestamps": "true"})
    table = DeltaTable.open(path)
    # Sail puts partition columns last.
    assert table.version == 0 and {*table.schema.to_arrow()} == {*columns}
    assert table.snapshot().metadata.configuration == {"mine": "1", "delta.enableInCommitTimestamps": "true"}
    with pytest.raises(EngineRefusal):
        sail.create(path, columns, ["p"], {})
    assert table.snapshot().metadata.partition_columns == ("p",)
    rows = [{"id": 1, "p": "a", "day": datetime.date(2025, 1, 15), "yes": True}]
    rows.append({"id": 2, "p": None, "day": None, "yes": None})
    sail.append(path, pa.Table.from_pylist(rows))
    assert rows_of(DeltaTable.open(path).to_pyarrow_table()) == canonical_rows(rows)
    sail.delete(path, "id = 1")
    assert rows_of(DeltaTable.open(path).to_pyarrow_table()) == canonical_rows(rows[1:])
    sail.overwrite(path, pa.Table.from_pylist(rows[:1]))
    assert rows_of(DeltaTable.open(path).to_pyarrow_table()) == canonical_rows(rows[:1])
    assert DeltaTable.open(path).version == 3


def test_append_of_types(sail: RemoteEngine, tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(some_types())
    DeltaTable.create(tmp_path / "t", rows.schema)
    sail.append(str(tmp_path / "t"), rows)
    assert rows_of(DeltaTable.open(tmp_path / "t").to_pyarrow_table()) == canonical_rows(some_types())


def test_set_properties(sail: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1))
    sail.set_properties(path, {"mine": "1"})
    table = DeltaTable.open(path)
    assert table.snapshot().metadata.configuration == {"mine": "1"} and table.version == 2
    assert rows_of(table.to_pyarrow_table()) == ids(1)


def test_what_sail_has_no_call_for(sail: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1))
    with pytest.raises(NotSupported):
        sail.history(path)
    with pytest.raises(NotSupported):
        sail.begin(path)
    claimed = {"rows", "rows_at_us", "changes", "create", "append", "overwrite", "delete", "set_properties"}
    assert {*sail.calls} == claimed


def test_errors_are_refusals(sail: RemoteEngine, tmp_path: Path) -> None:
    with pytest.raises(EngineRefusal):
        sail.rows(str(tmp_path / "nothing"))
    path = timeline(tmp_path, at=(0, 1))
    with pytest.raises(EngineRefusal):
        sail.rows(path, version=7)


def test_versions_of_what_runs_are_reported(sail: RemoteEngine) -> None:
    assert (sail.name, sail.version) == ("sail", "0.7.2")
    assert {"python", "pysail", "pyspark", "pyarrow"} <= {*sail.environment}
