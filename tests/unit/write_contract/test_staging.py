from __future__ import annotations

import datetime as dt
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, StagedFiles
from deltalog.errors import MetadataChangedError, VersionConflictError
from deltalog.table import handle_of
from deltalog.write_contract import staging
from deltalog.write_contract.staging import Options, as_metadata, options_of
from tests.support.core import SCHEMA, environment, memory, objects, rows


@pytest.fixture
def table() -> DeltaTable:
    return DeltaTable.create(memory(), SCHEMA, environment=environment())


@pytest.mark.parametrize(
    "given",
    [
        {"retries": 1},
        {"retry_count": -1},
        {"retry_count": True},
        {"expected_parent": -1},
        {"retry_base_delay_ms": float("nan")},
        {"retry_max_delay_ms": -1},
        {"retry_jitter": 1.5},
        {"checksum": "md5"},
        {"timestamp_column": 5},
    ],
    ids=str,
)
def test_what_is_no_option(given: dict[str, Any]) -> None:
    with pytest.raises(CallError):
        options_of(given)


def test_a_parent_that_is_not_the_latest_costs_an_attempt() -> None:
    given = environment()
    assert Options(expected_parent=3).environment(given, 3, "t").retry.max_attempts == 1
    assert Options(expected_parent=3, retry_count=2).environment(given, 4, "t").retry.max_attempts == 2
    with pytest.raises(VersionConflictError):
        Options(expected_parent=3).environment(given, 4, "t")


def test_delays_are_those_that_were_asked_for() -> None:
    asked = Options(retry_count=1, retry_base_delay_ms=100, retry_max_delay_ms=400, retry_jitter=0.5)
    retry = asked.environment(environment(), None, "t").retry
    assert (retry.retry_base_delay_ms * 2, retry.retry_max_delay_ms, retry.retry_jitter) == (100, 400, 0.5)
    assert (retry.max_attempts, retry.immediate) == (2, 0)


@pytest.mark.parametrize(
    "given",
    [{"a": {1: 2}}, {"a": (1,)}, {"a": float("nan")}, {"a": object()}, [1], {1: 2}],
    ids=["key", "tuple", "nan", "object", "list", "number"],
)
def test_metadata_that_would_not_be_read_back_is_refused(given: Any) -> None:
    with pytest.raises(CallError):
        as_metadata(given)


def test_metadata_is_copied() -> None:
    inner = [1, None, True, "x", 0.5]
    kept = as_metadata({"a": inner})
    inner.append(2)
    assert kept == {"a": [1, None, True, "x", 0.5]} and as_metadata(None) == {}


def test_staged_files_pass_to_other_processes_as_json_and_by_pickle(table: DeltaTable) -> None:
    staged = table.stage(rows(1, 2), checksum="sha256")
    assert (staged.row_count, staged.version, staged.table) == (2, 0, table.snapshot().metadata)
    assert StagedFiles.from_json(staged.to_json()) == pickle.loads(pickle.dumps(staged)) == staged
    older = json.loads(staged.to_json())
    del older["version"]
    assert StagedFiles.from_json(json.dumps(older)).version is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"files": 5}', '{"row_count": -1}'])
def test_what_describes_no_staged_files(text: str) -> None:
    with pytest.raises(CallError, match="not a description"):
        StagedFiles.from_json(text)


def test_the_span_of_a_timestamp_column_is_kept() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    table = DeltaTable.create(memory(), schema, environment=environment())
    times = [dt.datetime(2026, 1, day, tzinfo=dt.timezone.utc) for day in (3, 1, 2)]
    staged = table.stage(pa.table({"at": [*times, None], "n": [1, 2, 3, 4]}, schema=schema), timestamp_column="at")
    assert (staged.first_us, staged.last_us) == tuple(int(each.timestamp() * 1e6) for each in (times[1], times[0]))
    nothing = table.stage(pa.table({"at": [None], "n": [1]}, schema=schema), timestamp_column="at")
    assert (nothing.timestamp_column, nothing.first_us, nothing.last_us) == ("at", None, None)
    with pytest.raises(CallError, match="must be a timestamp column"):
        table.stage(pa.table({"at": [None], "n": [1]}, schema=schema), timestamp_column="n")


def test_files_of_one_commit_declare_one_timestamp_column() -> None:
    schema = pa.schema([("a", pa.timestamp("us", "UTC")), ("b", pa.timestamp("us", "UTC"))])
    table = DeltaTable.create(memory(), schema, environment=environment())
    empty = pa.table({"a": [None], "b": [None]}, schema=schema)
    staged = [table.stage(empty, timestamp_column=name) for name in ("a", "b")]
    with pytest.raises(CallError, match="the same timestamp column"):
        table.commit_staged(staged)
    assert table.snapshot().version == 0


def test_files_do_not_fit_a_table_that_has_a_constraint_since(table: DeltaTable) -> None:
    staged = table.stage(rows(1))
    table.add_constraint("positive", "id > 0")
    with pytest.raises(MetadataChangedError, match="Stage the rows again"):
        table.commit_staged([staged])
    assert table.discard_staged([staged]) == []


def test_rows_that_do_not_fit_leave_no_staged_file() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    before = objects(store)
    with pytest.raises(CallError):
        staging.stage(staging.target_of(handle_of(table)), pa.table({"id": ["x"]}), Options())
    assert objects(store) == before
