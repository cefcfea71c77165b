"""Code that newcomers write first either works, or raises an error that says what to write instead."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable
from deltalog.errors import InvalidTimestampError, SchemaMismatchError

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mode", "append or overwrite"),
        ("configuration", "properties="),
        ("partition_columns", "partition_by="),
        ("partitions_by", "Did you mean partition_by?"),
        ("propertys", "Did you mean properties?"),
        ("storage_option", "Did you mean storage_options?"),
        ("schema_mode", "merge_schema=True"),
    ],
)
@pytest.mark.parametrize("location", ["disk", "memory://first-steps", "s3://bucket/table"])
def test_arguments_of_other_libraries(tmp_path: Path, location: str, name: str, says: str) -> None:
    url = str(tmp_path / "table") if location == "disk" else location
    options: dict[str, Any] = {name: "x"}
    with pytest.raises(CallError) as caught:
        DeltaTable.create(url, SCHEMA, **options)
    assert says in str(caught.value) and f"no argument {name}" in str(caught.value)


def test_versions_are_of_snapshots(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, SCHEMA)
    with pytest.raises(CallError, match="snapshot"):
        DeltaTable.open(tmp_path, version=1)


def test_other_unknown_names_remain_storage_options(tmp_path: Path) -> None:
    with pytest.raises(CallError, match=r"Storage options .*requester_pays.* do not apply to a local path"):
        DeltaTable.open(tmp_path, requester_pays=True)


@pytest.mark.parametrize("rows", [pd.DataFrame({"id": [1, 2]}), pl.DataFrame({"id": [1, 2]}), pa.table({"id": [1, 2]})])
def test_a_table_is_created_with_a_frame(tmp_path: Path, rows: Any) -> None:
    table = DeltaTable.create(tmp_path / "one", rows)
    assert (table.version, table.to_pyarrow_table().to_pydict()) == (0, {"id": [1, 2]})
    with pytest.raises(CallError, match="has rows too"):
        DeltaTable.create(tmp_path / "two", rows, data=rows)
    assert not DeltaTable.exists(tmp_path / "two")
    with pytest.raises(CallError, match="pyarrow Schema"):
        DeltaTable.create(tmp_path / "two", {"id": "long"})


def test_nanoseconds_have_a_remedy(tmp_path: Path) -> None:
    kind = pa.timestamp("ns", "UTC")
    table = DeltaTable.create(tmp_path, pa.schema([("at", pa.timestamp("us", "UTC"))]))
    with pytest.raises(SchemaMismatchError, match=r"round them first.*round\('us'\)"):
        table.append(pa.table({"at": pa.array([1001], kind)}))
    table.append(pa.table({"at": pa.array([1000], kind)}))


def test_dates_and_times_in_a_time_zone(tmp_path: Path) -> None:
    properties = {"delta.enableInCommitTimestamps": "true", "delta.enableChangeDataFeed": "true"}
    table = DeltaTable.create(tmp_path / "table", SCHEMA, properties=properties)
    table.append(pa.table({"id": [1]}))
    tomorrow = datetime.datetime.now() + datetime.timedelta(days=2)
    for moment in (tomorrow, tomorrow.date(), tomorrow.isoformat(), tomorrow.date().isoformat()):
        for zone in ("Asia/Tokyo", "UTC", datetime.timezone.utc):
            assert table.version_at(moment, after="latest", time_zone=zone).version == 1
        with pytest.raises(InvalidTimestampError, match="time_zone="):
            table.version_at(moment, after="latest")
    # In Tokyo, the clock shows the same time nine hours earlier.
    wall = datetime.datetime(2024, 1, 1, 9)
    tokyo, utc = table.explain_timestamp(wall, time_zone="Asia/Tokyo"), table.explain_timestamp(wall, time_zone="UTC")
    assert utc.requested_ms - tokyo.requested_ms == 9 * 3600 * 1000
    past = datetime.date(2020, 1, 1)
    assert table.changes(from_timestamp=past, time_zone="UTC").to_arrow().num_rows == 1
    assert table.stream(starting_timestamp=past, time_zone="UTC") is not None
    with pytest.raises(CallError, match="no time zone 'Mars/Olympus'"):
        table.snapshot(timestamp=past, time_zone="Mars/Olympus")
    for call in (table.snapshot, table.restore):
        with pytest.raises(Exception, match="2019-12-31T15:00"):
            call(timestamp=past, time_zone="Asia/Tokyo")
    with pytest.raises(Exception, match="2019-12-31T15:00"):
        table.clone(tmp_path / "clone", timestamp=past, time_zone="Asia/Tokyo")


def test_the_package_is_the_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "deltalog", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("deltalog ")
    helped = subprocess.run([sys.executable, "-m", "deltalog", "--help"], capture_output=True, text=True, check=True)
    assert "--install-completion" in helped.stdout


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_pipe_ends_quietly(tmp_path: Path, options: list[str]) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA)
    for number in range(300):
        table.set_properties({"note": str(number) * 50})
    command = [sys.executable, "-m", "deltalog", "history", str(tmp_path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
