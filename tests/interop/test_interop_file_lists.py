"""The file lists in `.crc` files: delta-spark compares each list that deltalog writes with its own replay of the log,
and continues the list."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.log.file_list import MAX_FILES
from tests.support.spark import DeltaSpark
from tests.support.spark.agreement import assert_same_rows
from tests.support.spark.shapes import SCHEMA, SparkWriter, Writer, batch

VERIFIES = "spark.databricks.delta.allFilesInCrc.verificationMode.enabled"
VECTORS = {"delta.enableDeletionVectors": "true"}
TRACKED = {**VECTORS, "delta.enableRowTracking": "true"}
DIFFERS = "allFiles differs from the live files"
NULLS = pa.table({name: [None, None] for name in SCHEMA.names}, schema=SCHEMA)


def crc_of(path: Path) -> Path:
    return max((path / "_delta_log").glob("[0-9]*.crc"))


def listed(path: Path) -> list[dict[str, Any]] | None:
    """The file list in the .crc of the latest version; None if that .crc contains no list."""
    found: list[dict[str, Any]] | None = json.loads(crc_of(path).read_text(encoding="utf-8")).get("allFiles")
    return found


def put_list(path: Path, adds: list[dict[str, Any]] | None) -> None:
    crc = crc_of(path)
    crc.write_text(json.dumps({**json.loads(crc.read_text(encoding="utf-8")), "allFiles": adds}), encoding="utf-8")
    crc.with_name(f".{crc.name}.crc").unlink(missing_ok=True)


@dataclass(frozen=True)
class Case:
    """A table, the changes to it, and a check of its file list after each change. ``is_listed``: whether the `.crc`
    file of each version lists the table's files."""

    steps: tuple[Callable[[DeltaTable], Any], ...]
    create: dict[str, Any] = field(default_factory=dict)
    is_listed: bool = True


ROW_CHANGES = (
    lambda table: table.append(batch(0, 9)),
    lambda table: table.append(batch(9, 9)),
    lambda table: table.delete("id = 3"),
    lambda table: table.delete("id in (4, 12)"),
    lambda table: table.update({"name": "'x'"}, "id = 10"),
    lambda table: table.append(NULLS),
    lambda table: table.checkpoint(),
    lambda table: table.delete("id = 5"),
    lambda table: table.restore(3),
    lambda table: table.optimize.compact(),
    lambda table: table.overwrite(batch(40)),
    lambda table: table.delete(),
)
CASES = {
    "plain": Case(ROW_CHANGES),
    "deletion vectors": Case(ROW_CHANGES, {"properties": VECTORS}),
    "row tracking": Case(ROW_CHANGES, {"properties": {**TRACKED, "delta.checkpointInterval": "3"}}),
    "partitioned": Case(
        (
            lambda table: table.append(batch(0, 14)),
            lambda table: table.delete("place = 'a b'"),
            lambda table: table.overwrite(batch(7, 7), partitions="dynamic"),
            lambda table: table.checkpoint(),
            lambda table: table.append(batch(14, 7)),
        ),
        {"partition_by": ["place"]},
    ),
    "mapped columns": Case(
        (
            lambda table: table.append(batch(0, 14)),
            lambda table: table.rename_column("name", "other name"),
            lambda table: table.drop_columns(["amount"]),
            lambda table: table.rename_column("place", "where to"),
            lambda table: table.delete("id = 3"),
            lambda table: table.checkpoint(),
            lambda table: table.add_columns(pa.schema([("amount", pa.string())])),
        ),
        {"partition_by": ["place"], "properties": {**VECTORS, "delta.columnMapping.mode": "name"}},
    ),
    "tags": Case(
        (
            lambda table: table.append(batch(0, 9)),
            lambda table: table.append(batch(9, 9)),
            lambda table: table.optimize.compact(),
            lambda table: table.append(batch(18, 9)),
            lambda table: table.delete("id = 3"),
            lambda table: table.checkpoint(),
            lambda table: table.append(batch(27, 9)),
        ),
        {"cluster_by": ["id"], "properties": VECTORS},
    ),
    "statistics as structs": Case(
        ROW_CHANGES[:8], {"properties": {"delta.checkpoint.writeStatsAsJson": "false"}}, is_listed=False
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_delta_spark_finds_no_difference(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    """Every second step uses a new handle; its commit extends the file list that the handle has read from the
    `.crc`."""
    path, case = tmp_path / "table", CASES[name]
    table = DeltaTable.create(str(path), SCHEMA, **case.create)
    assert delta.checksum_defect(path) is None
    sizes = set()
    for number, step in enumerate(case.steps):
        table = DeltaTable.open(str(path)) if number % 2 else table
        step(table)
        assert delta.checksum_defect(path) is None, f"after step {number}"
        if table.snapshot().num_files:
            assert (listed(path) is not None) is case.is_listed, f"after step {number}"
        sizes.add(len(listed(path) or []))
    assert max(sizes) > 1 or not case.is_listed
    if name == "tags":
        assert any(add["tags"] for add in listed(path) or [])


@pytest.mark.parametrize("shallow", [False, True])
def test_clones(delta: DeltaSpark, tmp_path: Path, shallow: bool) -> None:
    """The paths in a shallow clone are absolute and have several possible spellings, so the clone's .crc has no file
    list."""
    source = DeltaTable.create(str(tmp_path / "source"), SCHEMA, data=batch(0, 9))
    path = tmp_path / "clone"
    clone = source.clone(str(path), shallow=shallow)
    for step in (lambda: clone.append(batch(9)), lambda: clone.restore(0), lambda: clone.append(batch(12))):
        assert (listed(path) is None) is shallow
        assert delta.checksum_defect(path) is None
        step()


def test_many_files(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(str(path), SCHEMA, properties={"delta.checkpointInterval": "1000"})
    for number in range(MAX_FILES):
        table.append(batch(number, 1))
    assert len(listed(path) or []) == MAX_FILES and delta.checksum_defect(path) is None
    table.append(batch(MAX_FILES, 1))
    assert listed(path) is None and delta.checksum_defect(path) is None
    SparkWriter(delta).step(path, ("append", 99))
    assert listed(path) is None, "as delta-spark does"
    table.snapshot().files()
    table.optimize.compact()
    assert len(listed(path) or []) == 1 and delta.checksum_defect(path) is None


def _changed(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda add: {key: value for key, value in {**add, **changes}.items() if value is not ...}


DIFFERENCES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "path": lambda add: {**add, "path": f"x-{add['path']}"},
    "partitionValues": _changed(partitionValues={"place": "b"}),
    "size": lambda add: {**add, "size": add["size"] + 1},
    "modificationTime": _changed(modificationTime=1),
    "dataChange": _changed(dataChange=True),
    "stats": lambda add: {**add, "stats": add["stats"].replace('"numRecords":9', '"numRecords":8')},
    "no stats": _changed(stats=...),
    "tags": _changed(tags={"a": "b"}),
    "empty tags": _changed(tags={}),
    "no tags": _changed(tags=...),
    "no deletionVector": _changed(deletionVector=...),
    "cardinality": lambda add: {**add, "deletionVector": {**add["deletionVector"], "cardinality": 2}},
    "baseRowId": _changed(baseRowId=77),
    "no defaultRowCommitVersion": _changed(defaultRowCommitVersion=...),
    "clusteringProvider": _changed(clusteringProvider="liquid"),
}


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A table with one file that has every optional field except tags, and the table's file list."""
    path = tmp_path_factory.mktemp("listed") / "table"
    one_place = batch(0, 9).set_column(4, SCHEMA.field(4), pa.array(["a"] * 9))
    table = DeltaTable.create(str(path), SCHEMA, data=one_place, partition_by=["place"], properties=TRACKED)
    table.delete("id = 3")
    adds = listed(path)
    assert adds is not None
    return path, adds


@pytest.mark.parametrize("name", [None, *DIFFERENCES])
def test_the_verification_can_fail(delta: DeltaSpark, tracked: tuple[Path, list[Any]], name: str | None) -> None:
    """delta-spark's own lists fail the verification if files have no tags and the list is read from a .crc."""
    path, (add,) = tracked
    other = add if name is None else DIFFERENCES[name](add)
    assert (other == add) is (name is None)
    put_list(path, [other])
    assert delta.checksum_defect(path) == (None if name is None else DIFFERS)


@pytest.fixture
def verifying(delta: DeltaSpark) -> Iterator[DeltaSpark]:
    """delta-spark compares the list of each of its commits with a replay, and drops one that differs."""
    delta.spark.conf.set(VERIFIES, "true")
    yield delta
    delta.spark.conf.unset(VERIFIES)


@pytest.mark.parametrize("partition_by", [(), ("place",)], ids=["plain", "partitioned"])
def test_delta_spark_continues_the_list_of_deltalog(
    verifying: DeltaSpark, writers: dict[str, Writer], tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(str(path), SCHEMA, partition_by=partition_by, properties=VECTORS)
    table.append(batch(0, 9))
    for start in range(9, 54, 9):
        table = DeltaTable.open(str(path))
        table.append(batch(start, 9))
        table.delete(f"id = {start + 1}")
        assert verifying.checksum_defect(path) is None
        verifying.forget()
        before = {add["path"] for add in listed(path) or []}
        if start % 2:
            writers["delta-spark"].step(path, ("append", 1000 + start))
        else:
            verifying.sql(f"DELETE FROM delta.`{path}` WHERE id = {start + 2}")
        after = {add["path"] for add in listed(path) or []}
        assert len(before - after) <= 1, "it has gone on with the list"
        if start == 27:
            verifying.checkpoint(path)
    DeltaTable.open(str(path)).append(batch(99))
    assert verifying.checksum_defect(path) is None
    assert_same_rows(verifying, path)


@pytest.mark.parametrize("is_listed", [True, False])
def test_delta_spark_replays_the_log_for_its_list_where_the_version_before_has_none(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path, is_listed: bool
) -> None:
    path = tmp_path / "table"
    DeltaTable.create(str(path), SCHEMA, data=batch(0)).append(batch(3))
    if not is_listed:
        put_list(path, None)
    delta.forget()
    before = delta._snapshot(path)
    writers["delta-spark"].step(path, ("append", 9))
    assert len(listed(path) or []) == 3
    assert before.stateReconstructionTriggered() is not is_listed


def test_delta_spark_notices_a_list_that_is_wrong(
    verifying: DeltaSpark, writers: dict[str, Writer], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    DeltaTable.create(str(path), SCHEMA, data=batch(0)).append(batch(3))
    adds = listed(path)
    assert adds is not None and len(adds) == 2
    for is_wrong in (False, True):
        put_list(path, [{**add, "modificationTime": 1} if is_wrong else add for add in listed(path) or []])
        verifying.forget()
        writers["delta-spark"].step(path, ("append", 9))
        assert (listed(path) is None) is is_wrong
        DeltaTable.open(str(path)).append(batch(12))
