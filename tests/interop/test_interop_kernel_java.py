"""The adapter of the Java kernel does what it says, on tables that the kernel is known to read and write. A failure
here is one of the adapter; what the kernel does elsewhere is shown by the conformance matrix."""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.conformance import NotSupported, managed_cases, run_managed
from deltalog.conformance.builder import T0
from deltalog.conformance.case import TIME_TRAVEL, Case
from deltalog.conformance.cases.common import Timeline, ids, minute
from deltalog.conformance.remote import EngineFailure, EngineRefusal, RemoteEngine
from deltalog.conformance.runner import build
from deltalog.conformance.values import canonical_rows, changes_of, rows_of
from tests.support.conformance.installed import installed_engine
from tests.support.unity_clients.server import CATALOG, ROOT, UnityServer, unity_server

UTC = datetime.timezone.utc
CDF = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture(scope="module")
def kernel(request: pytest.FixtureRequest) -> Iterator[RemoteEngine]:
    with installed_engine("kernel-java", bool(request.config.getoption("long"))) as engine:
        yield engine


def timeline(place: Path, **settings: Any) -> str:
    table = Timeline(**settings)
    return str(build(Case("timeline", TIME_TRAVEL, "", "", table, ()), place))


def column(kind: pa.DataType, *values: Any) -> pa.Array:
    return pa.array(values, kind)


def every_type() -> pa.Table:
    at = datetime.datetime(2025, 1, 15, 12, 30, 0, 123456)
    inner = pa.struct([("n", pa.int32()), ("words", pa.list_(pa.string()))])
    return pa.table(
        {
            "tiny": column(pa.int8(), -7, None),
            "small": column(pa.int16(), 300, None),
            "number": column(pa.int32(), 70_000, None),
            "long": column(pa.int64(), 1 << 40, None),
            "single": column(pa.float32(), 1.5, None),
            "double": column(pa.float64(), -0.1, None),
            "yes": column(pa.bool_(), True, None),
            "text": column(pa.string(), "größer \U0001f600", None),
            "bytes": column(pa.binary(), b"\x00\xff", None),
            "day": column(pa.date32(), datetime.date(1899, 12, 31), None),
            "at": column(pa.timestamp("us", "UTC"), at.replace(tzinfo=UTC), None),
            "local": column(pa.timestamp("us"), at, None),
            "price": column(pa.decimal128(9, 2), decimal.Decimal("-12.30"), None),
            "wide": column(pa.decimal128(38, 10), decimal.Decimal("1234567890123456789.0123456789"), None),
            "inner": column(inner, {"n": 1, "words": ["a", None]}, None),
            "list": column(pa.list_(inner), [{"n": None, "words": []}, None], None),
            "map": column(pa.map_(pa.string(), pa.int64()), [("k", 1), ("l", None)], None),
        }
    )


def test_rows_of_every_type(kernel: RemoteEngine, tmp_path: Path) -> None:
    rows = every_type()
    DeltaTable.create(tmp_path / "t", rows.schema, data=rows)
    assert rows_of(kernel.rows(str(tmp_path / "t"))) == canonical_rows(rows.to_pylist())


def test_rows_of_mapped_columns_and_deletion_vectors(kernel: RemoteEngine, tmp_path: Path) -> None:
    properties = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    rows = pa.table({"id": [1, 2, 3], "s": [{"x": 1}, {"x": 2}, None]})
    table = DeltaTable.create(tmp_path / "t", rows.schema, data=rows, properties=properties)
    table.delete("id = 2")
    assert rows_of(kernel.rows(str(tmp_path / "t"))) == [{"id": 1, "s": {"x": 1}}, {"id": 3, "s": None}]


def test_no_rows(kernel: RemoteEngine, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    DeltaTable.create(tmp_path / "t", schema)
    assert rows_of(kernel.rows(str(tmp_path / "t"))) == []


def test_versions_and_times(kernel: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1, 2, 3), ict_from=0, file=(9, 9, 9, 9))
    assert rows_of(kernel.rows(path, version=1)) == ids(1)
    assert rows_of(kernel.rows(path, timestamp_ms=minute(2))) == ids(2)
    assert kernel.version_at(path, minute(2) - 1) == 1
    assert kernel.latest_version(path) == 3
    assert kernel.history(path) == {version: minute(version) for version in range(4)}
    with pytest.raises(EngineRefusal, match="before the earliest available version"):
        kernel.version_at(path, T0 - 1)


def test_the_history_of_a_log_without_its_first_commits(kernel: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1, 2, 3), checkpoints=(2,), dropped=(0, 1))
    assert kernel.history(path) == {2: minute(2), 3: minute(3)}


def changed(tmp_path: Path, **properties: str) -> DeltaTable:
    rows = pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]})
    table = DeltaTable.create(
        tmp_path / "t", rows.schema, data=rows, partition_by=["p"], properties={**CDF, **properties}
    )
    table.update({"id": "id + 10"}, where="id = 2")
    table.delete("p = 'b'")
    table.append(pa.table({"id": [5], "p": [None]}, rows.schema))
    return table


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="plain"),
        pytest.param({"delta.enableDeletionVectors": "true"}, id="vectors"),
        pytest.param({"delta.columnMapping.mode": "name"}, id="mapped"),
    ],
)
def test_changes(kernel: RemoteEngine, tmp_path: Path, properties: dict[str, str]) -> None:
    table = changed(tmp_path, **properties)
    path = str(tmp_path / "t")
    for first, last in ((0, None), (1, 2), (3, 3)):
        found = changes_of(kernel.changes(path, from_version=first, to_version=last), True)
        assert found == changes_of(table.changes(first, last).to_arrow(), True)


def test_changes_of_files_with_another_vector(kernel: RemoteEngine, tmp_path: Path) -> None:
    """The removal and addition of a file without change data files, as delta-spark writes a DELETE."""
    rows = pa.table({"id": [1, 2, 3]})
    properties = {**CDF, "delta.enableDeletionVectors": "true"}
    table = DeltaTable.create(tmp_path / "t", rows.schema, data=rows, properties=properties)
    table.delete("id = 2")
    commit = sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[-1]
    lines = [line for line in commit.read_text().splitlines() if '"cdc"' not in line]
    commit.write_text("".join(f"{line}\n" for line in lines))
    found = changes_of(kernel.changes(str(tmp_path / "t"), from_version=table.version), False)
    assert found == [{"id": 2, "_change_type": "delete", "_commit_version": table.version}]


def test_changes_by_time(kernel: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1, 2, 3), ict_from=0, file=(9, 9, 9, 9), properties=CDF)
    found = kernel.changes(path, from_timestamp_ms=minute(1), to_timestamp_ms=minute(2) + 5)
    assert changes_of(found, True) == [
        {"id": n, "_change_type": "insert", "_commit_version": n, "_commit_timestamp": minute(n)} for n in (1, 2)
    ]


def test_changes_where_the_feed_is_off(kernel: RemoteEngine, tmp_path: Path) -> None:
    with pytest.raises(EngineRefusal, match="change data feeds are off in version 0"):
        kernel.changes(timeline(tmp_path, at=(0, 1)), from_version=0)


def partition_values(path: str, version: int) -> list[dict[str, str | None]]:
    lines = (Path(path) / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return [action["add"]["partitionValues"] for action in map(json.loads, lines) if "add" in action]


def test_create_append_and_set(kernel: RemoteEngine, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    columns = pa.schema([("id", pa.int64()), ("p", pa.string()), ("day", pa.date32()), ("yes", pa.bool_())])
    kernel.create(path, columns, ["p"], {"delta.enableInCommitTimestamps": "true", "mine": "1"})
    rows = pa.table({"id": [1, 2, 3], "p": ["a", None, "a"], "day": [datetime.date(2025, 1, 15)] * 3})
    kernel.append(path, rows)
    kernel.set_properties(path, {"mine": None, "yours": "2"})
    table = DeltaTable.open(path)
    assert table.schema.to_arrow().names == columns.names
    assert rows_of(table.to_pyarrow_table()) == canonical_rows({**row, "yes": None} for row in rows.to_pylist())
    properties = table.snapshot().metadata.configuration
    assert table.version == 2 and properties["yours"] == "2" and "mine" not in properties
    assert sorted(partition_values(path, 1), key=str) == [{"p": "a"}, {"p": None}]


def test_append_of_every_type(kernel: RemoteEngine, tmp_path: Path) -> None:
    rows = every_type()
    DeltaTable.create(tmp_path / "t", rows.schema)
    kernel.append(str(tmp_path / "t"), rows)
    assert rows_of(DeltaTable.open(tmp_path / "t").to_pyarrow_table()) == canonical_rows(rows.to_pylist())


def test_append_of_numbers_that_python_infers(kernel: RemoteEngine, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int32()), ("s", pa.int16()), ("f", pa.float32()), ("d", pa.decimal128(10, 3))])
    DeltaTable.create(tmp_path / "t", schema)
    rows = [{"n": 1, "s": -2, "f": 0.5, "d": decimal.Decimal("1.5")}]
    kernel.append(str(tmp_path / "t"), pa.Table.from_pylist(rows))
    assert rows_of(DeltaTable.open(tmp_path / "t").to_pyarrow_table()) == canonical_rows(
        [{**rows[0], "d": decimal.Decimal("1.500")}]
    )
    with pytest.raises(EngineRefusal, match="40000 does not fit into the column s"):
        kernel.append(str(tmp_path / "t"), pa.Table.from_pylist([{**rows[0], "s": 40_000}]))


def test_append_of_what_the_table_does_not_take(kernel: RemoteEngine, tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with pytest.raises(EngineRefusal, match="doesn't match"):
        kernel.append(str(tmp_path / "t"), pa.table({"id": [1], "other": [2]}))
    with pytest.raises(EngineRefusal, match="the column id must not be null"):
        kernel.append(str(tmp_path / "t"), pa.table({"id": pa.array([None], pa.int64())}))
    assert DeltaTable.open(tmp_path / "t").version == 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([pa.field("b", pa.int64(), nullable=False)]), {"b": None}),
        (pa.list_(pa.field("element", pa.int64(), nullable=False)), [1, None]),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [("k", None)]),
        (pa.list_(pa.struct([pa.field("b", pa.int64(), nullable=False)])), [{"b": None}]),
    ],
    ids=["field", "element", "value", "field in array"],
)
def test_append_of_null_where_a_nested_field_has_none(
    kernel: RemoteEngine, tmp_path: Path, kind: pa.DataType, value: Any
) -> None:
    DeltaTable.create(tmp_path / "t", pa.schema([("v", kind)]))
    with pytest.raises(EngineRefusal, match=r"the column v.* must not be null"):
        kernel.append(str(tmp_path / "t"), pa.Table.from_pylist([{"v": value}], pa.schema([("v", nullable(kind))])))
    kernel.append(str(tmp_path / "t"), pa.Table.from_pylist([{"v": None}], pa.schema([("v", nullable(kind))])))


def nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, nullable(kind.item_type))
    return pa.list_(nullable(kind.value_type)) if pa.types.is_list(kind) else kind


def test_row_ids(kernel: RemoteEngine, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2]})
    table = DeltaTable.create(tmp_path / "t", rows.schema, data=rows, properties={"delta.enableRowTracking": "true"})
    table.append(pa.table({"id": [3]}))
    found = rows_of(kernel.tracked_rows(str(tmp_path / "t")))
    assert sorted((row["_row_id"], row["id"]) for row in found) == [(0, 1), (1, 2), (2, 3)]
    assert {row["id"]: row["_row_commit_version"] for row in found} == {1: 0, 2: 0, 3: 1}
    assert len(rows_of(kernel.tracked_rows(str(tmp_path / "t"), version=0))) == 2


def test_append_once(kernel: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1))
    for _ in range(2):
        kernel.append_once(path, pa.table({"id": [2]}), "a stream", 7)
    table = DeltaTable.open(path)
    assert rows_of(table.to_pyarrow_table()) == ids(2) and table.version == 2


def test_set_type(kernel: RemoteEngine, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int32()), ("s", pa.struct([("b", pa.int16())]))])
    properties = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    DeltaTable.create(tmp_path / "t", schema, properties=properties)
    kernel.set_type(str(tmp_path / "t"), "n", "long")
    assert DeltaTable.open(tmp_path / "t").schema.to_arrow().field("n").type == pa.int64()
    DeltaTable.create(tmp_path / "plain", schema, properties={"delta.enableTypeWidening": "true"})
    with pytest.raises(EngineRefusal) as refused:
        kernel.set_type(str(tmp_path / "plain"), "n", "long")
    assert re.search(kernel.lacks, str(refused.value))


def test_begin(kernel: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1))
    begun = kernel.begin(path)
    kernel.append(path, pa.table({"id": [2]}))
    begun.append(path, pa.table({"id": [3]}))
    table = DeltaTable.open(path)
    assert table.version == 3 and rows_of(table.to_pyarrow_table()) == ids(3)
    begun = kernel.begin(path)
    kernel.set_properties(path, {"mine": "1"})
    with pytest.raises(EngineRefusal, match=r"[Mm]etadata"):
        begun.append(path, pa.table({"id": [9]}))


def test_checkpoint(kernel: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1, 2))
    kernel.checkpoint(path)
    log = Path(path, "_delta_log")
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 2
    for commit in [*log.glob("*.json")]:
        commit.unlink()
    assert rows_of(DeltaTable.open(path).to_pyarrow_table()) == ids(2)


def test_the_hook_after_the_tenth_commit_writes_a_checkpoint(kernel: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=range(10))
    kernel.append(path, pa.table({"id": [10]}))
    assert [*Path(path, "_delta_log").glob("*10.checkpoint*.parquet")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnityServer]:
    with unity_server(tmp_path_factory.mktemp("kit"), "--set=recovery.every_seconds=0") as made:
        yield made


@pytest.mark.parametrize("name", ["ratified", "ratified-by-time", "append-to-unpublished", "properties", "checkpoint"])
def test_tables_of_a_unity_catalog(kernel: RemoteEngine, server: UnityServer, name: str) -> None:
    (case,) = (case for case in managed_cases() if case.id == f"managed-{name}")
    (outcome,) = run_managed(kernel, [case], server.url)
    assert outcome.outcome == "passed", outcome.reason


def test_a_table_is_created_in_a_unity_catalog(kernel: RemoteEngine, server: UnityServer) -> None:
    assert server.ask("POST", "/schemas", {"name": "made", "catalog_name": CATALOG})[0] == 200
    engine, name = kernel.of_catalog(server.url + ROOT, None), f"{CATALOG}.made.t"
    engine.create(name, pa.schema([("id", pa.int64()), ("p", pa.string())]), ["p"], {"mine": "1", **CDF})
    engine.append(name, pa.table({"id": [1, 2], "p": ["a", "b"]}))
    table = DeltaTable.open(f"uc://{name}", unity_catalog_url=server.url + ROOT)
    rows = [{"id": 1, "p": "a"}, {"id": 2, "p": "b"}]
    assert rows_of(table.to_pyarrow_table()) == rows == rows_of(engine.rows(name))
    assert table.snapshot().metadata.configuration["mine"] == "1"
    assert engine.history(name) == {entry.version: entry.timestamp_ms for entry in table.history()}
    found = changes_of(engine.changes(name, from_version=1), False)
    assert found == [{**row, "_change_type": "insert", "_commit_version": 1} for row in rows]


def test_what_the_kernel_has_no_call_for(kernel: RemoteEngine, tmp_path: Path) -> None:
    path = timeline(tmp_path, at=(0, 1))
    for call in (
        lambda: kernel.overwrite(path, pa.table({"id": [1]})),
        lambda: kernel.delete(path, "true"),
        lambda: kernel.restore(path, 0),
    ):
        with pytest.raises(NotSupported):
            call()
    assert not {"overwrite", "delete", "restore"} & {*kernel.calls}


def test_errors_are_refusals_and_faults_are_failures(kernel: RemoteEngine, tmp_path: Path) -> None:
    with pytest.raises(EngineRefusal) as refused:
        kernel.rows(str(tmp_path / "nothing"))
    assert refused.value.kind == "TableNotFoundException"
    with pytest.raises(EngineFailure) as failed:
        kernel._ask("rows", {})  # no path
    assert failed.value.kind == "NullPointerException"


def test_a_lacking_feature_is_recognized(kernel: RemoteEngine, tmp_path: Path) -> None:
    rows = pa.table({"id": [1]})
    DeltaTable.create(tmp_path / "t", rows.schema, properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(EngineRefusal) as refused:
        kernel.append(str(tmp_path / "t"), rows)
    assert re.search(kernel.lacks, str(refused.value))


def test_versions_of_what_runs_are_reported(kernel: RemoteEngine) -> None:
    assert kernel.name == "kernel-java" and kernel.version == "4.4.0"
    assert {"java", "hadoop"} <= {*kernel.environment}
