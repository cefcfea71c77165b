"""Every call of the adapters of engines with environments of their own, on a table that the engine is known to read, so
that a failure of an adapter is not taken for a failure of its engine.

deltalake writes the table, and reads what the engines write. The environments are in the cache of ``deltalog
conformance install``; without --long, an engine that is not installed is skipped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from deltalog import CallError
from deltalog.conformance import Engine, NotSupported, RemoteEngine, start_engine, values
from deltalog.conformance.environments import launch_of
from deltalog.conformance.installation import install
from deltalog.conformance.remote import EngineRefusal

T = 1_700_000_000_000  # 2023-11-14T22:13:20Z
HOUR_MS = 3_600_000
BY_VERSION, BY_TIME, CHANGES_BY_TIME = "rows by version", "rows by time", "changes by time"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
NEW = {"id": 4, "v": "d"}

# What each adapter claims: its calls, and what it can do beyond the plain call.
CLAIMS = {
    "kernel-rs": {"rows", "latest_version", "changes"},
    "polars-deltalake": {"rows", BY_VERSION, "changes"},
    "duckdb": {"rows", BY_VERSION, "append", "checkpoint", "begin"},
    "chdb": {"rows", BY_VERSION, "changes", "create", "append"},
    "daft": {"rows", BY_VERSION, BY_TIME, "create", "append", "overwrite"},
    "dask-deltatable": {"rows", BY_VERSION, BY_TIME},
}
_EXTRAS = {BY_VERSION, BY_TIME, CHANGES_BY_TIME}


@pytest.fixture(scope="module", params=CLAIMS)
def engine(request: pytest.FixtureRequest, is_long: bool) -> Iterator[RemoteEngine]:
    name = request.param
    try:
        launch_of(name)
    except CallError as error:
        if not is_long:
            pytest.skip(error.message)
        install(name)
    with start_engine(name) as engine:
        yield engine


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A plain table."""
    return made(tmp_path / "table")


def made(path: Path, **properties: str) -> str:
    """Versions 0 to 2, an hour apart: rows 1 and 2; row 3 is appended; row 2 is deleted."""
    begin = pa.table({"id": [1, 2], "v": ["a", "b"]}, SCHEMA)
    deltalake.write_deltalake(path, begin, configuration=properties)
    deltalake.write_deltalake(path, pa.table({"id": [3], "v": ["c"]}, SCHEMA), mode="append")
    if properties:
        deltalake.DeltaTable(path).delete("id = 2")
    else:  # a delete would store strings as Arrow's string views, which Daft cannot read
        deltalake.write_deltalake(path, pa.table({"id": [1, 3], "v": ["a", "c"]}, SCHEMA), mode="overwrite")
    for version in range(3):
        seconds = (T + version * HOUR_MS) / 1000
        os.utime(path / "_delta_log" / f"{version:020d}.json", (seconds, seconds))
    return str(path)


def read(found: Any) -> list[dict[str, Any]]:
    return values.rows_of(found)


def of(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return values.canonical_rows(rows)


def by_deltalake(path: str) -> list[dict[str, Any]]:
    reader = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    return read(pa.table(reader.execute("SELECT * FROM t").read_all()))


ONE, TWO, THREE = {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}


def _rows(engine: Engine, table: str) -> None:
    assert read(engine.rows(table)) == of(ONE, THREE)
    with pytest.raises(EngineRefusal):
        engine.rows(table + "-that-does-not-exist")


def _rows_by_version(engine: Engine, table: str) -> None:
    assert read(engine.rows(table, 0)) == of(ONE, TWO)
    assert read(engine.rows(table, 1)) == of(ONE, TWO, THREE)
    with pytest.raises(EngineRefusal):
        engine.rows(table, 99)


def _rows_by_time(engine: Engine, table: str) -> None:
    assert read(engine.rows(table, timestamp_ms=T)) == of(ONE, TWO)
    assert read(engine.rows(table, timestamp_ms=T + HOUR_MS - 1)) == of(ONE, TWO)
    assert read(engine.rows(table, timestamp_ms=T + HOUR_MS + 1)) == of(ONE, TWO, THREE)


def _latest_version(engine: Engine, table: str) -> None:
    assert engine.latest_version(table) == 2


def _changes(engine: Engine, table: str) -> None:
    table = made(Path(table + "-feed"), **{"delta.enableChangeDataFeed": "true"})

    def found(*given: int) -> list[dict[str, Any]]:
        return read(engine.changes(table, *given).drop_columns(["_commit_timestamp"]))

    third = {**THREE, "_change_type": "insert", "_commit_version": 1}
    second = {**TWO, "_change_type": "delete", "_commit_version": 2}
    assert found(1) == of(third, second)
    assert found(1, 1) == of(third)
    times = engine.changes(table, 1)["_commit_timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    assert sorted(times.to_pylist()) == [T + HOUR_MS, T + 2 * HOUR_MS]


def _append(engine: Engine, table: str) -> None:
    engine.append(table, pa.table({"id": [4], "v": ["d"]}, SCHEMA))
    assert read(engine.rows(table)) == by_deltalake(table) == of(ONE, THREE, NEW)
    assert deltalake.DeltaTable(table).version() == 3


def _overwrite(engine: Engine, table: str) -> None:
    engine.overwrite(table, pa.table({"id": [4], "v": ["d"]}, SCHEMA))
    assert read(engine.rows(table)) == by_deltalake(table) == of(NEW)
    assert deltalake.DeltaTable(table).version() == 3


def _create(engine: Engine, table: str) -> None:
    path = table + "-new"
    engine.create(path, SCHEMA, (), {})
    assert read(engine.rows(path)) == by_deltalake(path) == []
    engine.append(path, pa.table({"id": [4], "v": ["d"]}, SCHEMA))
    assert read(engine.rows(path)) == by_deltalake(path) == of(NEW)


def _checkpoint(engine: Engine, table: str) -> None:
    engine.checkpoint(table)
    assert Path(table, "_delta_log", f"{2:020d}.checkpoint.parquet").is_file()
    assert by_deltalake(table) == of(ONE, THREE)


def _begin(engine: Engine, table: str) -> None:
    transaction = engine.begin(table)
    transaction.append(table, pa.table({"id": [4], "v": ["d"]}, SCHEMA))
    assert read(engine.rows(table)) == by_deltalake(table) == of(ONE, THREE, NEW)
    rows = [ONE, THREE, NEW, {"id": 5, "v": "e"}]
    late = engine.begin(table)
    deltalake.write_deltalake(table, pa.table({"id": [5], "v": ["e"]}, SCHEMA), mode="append")
    with contextlib.suppress(EngineRefusal):
        late.append(table, pa.table({"id": [6], "v": ["f"]}, SCHEMA))
        rows.append({"id": 6, "v": "f"})
    assert read(engine.rows(table)) == by_deltalake(table) == of(*rows)


CHECKS: dict[str, Callable[[Engine, str], None]] = {
    "rows": _rows, BY_VERSION: _rows_by_version, BY_TIME: _rows_by_time, "latest_version": _latest_version,
    "changes": _changes, "append": _append, "overwrite": _overwrite, "create": _create, "checkpoint": _checkpoint,
    "begin": _begin,
}  # fmt: skip
REST: dict[str, Callable[[Engine, str], Any]] = {
    BY_VERSION: lambda engine, table: engine.rows(table, 0),
    BY_TIME: lambda engine, table: engine.rows(table, timestamp_ms=T),
    CHANGES_BY_TIME: lambda engine, table: engine.changes(table, from_timestamp_ms=T, to_timestamp_ms=T + HOUR_MS),
}


@pytest.mark.parametrize("claim", CHECKS)
def test_what_an_adapter_claims_works(engine: RemoteEngine, table: str, claim: str) -> None:
    if claim not in CLAIMS[engine.name]:
        pytest.skip(f"the adapter of {engine.name} does not claim this")
    CHECKS[claim](engine, table)


def test_an_adapter_claims_its_calls_and_says_what_it_lacks(engine: RemoteEngine, table: str) -> None:
    claims = CLAIMS[engine.name]
    assert set(engine.calls) == claims - _EXTRAS
    assert engine.version and set(engine.environment) > {"python", "pyarrow"}
    for claim in _EXTRAS - claims:
        with pytest.raises(NotSupported):
            REST[claim](engine, table)
