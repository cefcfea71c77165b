"""The list of files in a ``.crc``: what each commit writes, how the list is derived, and when the list is omitted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.log import file_list
from deltalog.log.checksum import encode_checksum
from deltalog.log.file_list import MAX_FILES, FileList
from deltalog.log.file_tables import add_actions
from deltalog.log.table_totals import Totals
from deltalog.protocol.paths import checksum_path
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore
from tests.support.core import SCHEMA, environment, ids, memory, rows


def written(count: int = 3, **arguments: Any) -> tuple[MemoryStore, DeltaTable]:
    """A table of ``count`` files, each added by its own commit."""
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(0), **arguments)
    for number in range(1, count):
        table.append(rows(number))
    return store, table


def opened(store: Any) -> DeltaTable:
    return DeltaTable.open(store, environment=environment())


def listed(store: MemoryStore, version: int) -> list[dict[str, Any]] | None:
    """The list of files in a version's ``.crc``; None if the ``.crc`` contains no list."""
    found: list[dict[str, Any]] | None = json.loads(store.get(checksum_path(version))).get("allFiles")
    return found


def replayed(store: MemoryStore, version: int) -> list[dict[str, Any]]:
    files = DeltaTable.open(store).snapshot(version).files().sort_by("path")
    return [add.to_json() for add in add_actions(files)]


def by_path(adds: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    assert adds is not None
    assert all("tags" in add for add in adds), "delta-spark reads none as empty ones"
    adds = [{key: value for key, value in add.items() if (key, value) != ("tags", None)} for add in adds]
    return sorted(adds, key=lambda add: str(add["path"]))


def put_list(store: MemoryStore, version: int, adds: Any, **changes: Any) -> None:
    """Replace the list of files in a version's ``.crc`` with ``adds``; if ``adds`` is ``...`` (Ellipsis), remove the
    list."""
    path = checksum_path(version)
    body = {**json.loads(store.get(path)), "allFiles": adds, **changes}
    store.put(path, json.dumps({key: value for key, value in body.items() if value is not ...}).encode())


VECTORS = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
TRACKED = {**VECTORS, "delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "3"}
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.mark.parametrize(
    "properties", [{}, VECTORS, TRACKED, MAPPED], ids=["plain", "vectors", "with checkpoints", "mapped"]
)
def test_each_version_lists_the_files_that_a_replay_gives(properties: dict[str, str]) -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(0, 1, 2), properties=properties)
    steps: list[Callable[[], Any]] = [
        lambda: table.append(rows(3, 4)),
        lambda: table.delete("id = 1"),
        lambda: table.update({"name": "'x'"}, "id = 3"),
        lambda: table.set_properties({"delta.logRetentionDuration": "interval 9 days"}),
        lambda: opened(store).append(rows(5)),
        lambda: table.delete("id = 4"),
        lambda: table.optimize.compact(),
        lambda: table.restore(2),
        lambda: table.overwrite(rows(8, 9)),
        lambda: table.add_columns(pa.schema([("more", pa.int64())])),
        lambda: table.delete(),
        lambda: table.append(rows(7)),
    ]
    for step in steps:
        step()
    for version in range(table.version + 1):
        assert by_path(listed(store, version)) == replayed(store, version), version
    assert listed(store, table.version - 1) == []
    if "delta.enableRowTracking" in properties:
        assert any("deletionVector" in add for add in listed(store, 2) or [])
        assert all("baseRowId" in add for add in listed(store, 2) or [])
    assert not opened(store).check().findings


@pytest.mark.parametrize("reads", [False, True])
def test_no_commit_reads_anything_for_the_list(reads: bool) -> None:
    store, _ = written()
    counting = CountingStore(store)
    table = opened(counting)
    if reads:
        table.snapshot().files()
    with counting.counted() as calls:
        version = table.append(rows(9)).version
    assert calls.of("get") == calls.of("open_input") == calls.of("list_from") == 0
    assert by_path(listed(store, version)) == replayed(store, version)


def test_a_version_without_a_list_has_one_again_once_the_files_are_in_memory() -> None:
    store, table = written()
    put_list(store, table.version, ...)
    table = opened(store)
    assert listed(store, table.append(rows(7)).version) is None
    table.snapshot().files()
    version = table.append(rows(8)).version
    assert by_path(listed(store, version)) == replayed(store, version)
    assert len(listed(store, table.append(rows(9)).version) or []) == 6


def test_a_commit_that_adds_all_files_lists_them() -> None:
    store, table = written(MAX_FILES + 1, properties={"delta.checkpointInterval": "1000"})
    table = opened(store)
    assert listed(store, table.append(rows(7)).version) is None
    assert len(listed(store, table.overwrite(rows(8, 9)).version) or []) == 1
    assert listed(store, table.delete().version) == []


def test_files_in_memory_take_precedence_over_the_list_of_a_checksum() -> None:
    """A list of files in a ``.crc`` that names a wrong file of the right size is carried over to later ``.crc`` files
    until the log shows which file is live."""
    for reads_before in (False, True):
        store, table = written()
        adds = by_path(listed(store, table.version))
        put_list(store, table.version, [{**adds[0], "path": "another"}, *adds[1:]])
        table = opened(store)
        if reads_before:
            table.snapshot().files()
        version = table.append(rows(3)).version
        assert ("another" in {add["path"] for add in listed(store, version) or []}) is not reads_before
        assert ids(table) == [0, 1, 2, 3], "the list is not read"
        table.snapshot().files()
        version = table.append(rows(4)).version
        assert by_path(listed(store, version)) == replayed(store, version)


def _first(**changes: Any) -> Callable[[list[dict[str, Any]]], Any]:
    def change(adds: list[dict[str, Any]]) -> Any:
        first = {key: value for key, value in {**adds[0], **changes}.items() if value is not ...}
        return [first, *adds[1:]]

    return change


UNSOUND: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "a file less": lambda adds: adds[1:],
    "a file more": lambda adds: [*adds, {**adds[0], "path": "another", "size": 0}],
    "a file twice": lambda adds: [*adds[:-1], adds[0]],
    "other sizes": _first(size=7),
    "a negative size": _first(size=-1),
    "no path": _first(path=...),
    "no partition values": _first(partitionValues=...),
    "no dataChange": _first(dataChange=...),
    "statistics that are no text": _first(stats={"numRecords": 1}),
    "a vector without a kind": _first(deletionVector={"pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}),
    "an absolute path": _first(path="file:/elsewhere/a.parquet"),
    "a path from the root": _first(path="/elsewhere/a.parquet"),
    "a path that is not plain": _first(path="x/../a.parquet"),
    "null among them": lambda adds: [None, *adds[1:]],
    "actions with their names": lambda adds: [{"add": add} for add in adds],
    "no list": lambda adds: {"adds": adds},
    "null": lambda adds: None,
    "too many bytes": lambda adds: [*adds[1:], {**adds[0], "tags": {"x": "y" * file_list.MAX_BYTES}}],
}


@pytest.mark.parametrize("how", UNSOUND)
def test_a_list_that_is_not_sound_is_not_continued(how: str) -> None:
    store, table = written()
    adds = by_path(listed(store, table.version))
    put_list(store, table.version, adds)
    assert len(listed(store, opened(store).append(rows(3)).version) or []) == 4
    put_list(store, table.snapshot().version, UNSOUND[how](by_path(listed(store, table.snapshot().version))))
    assert listed(store, opened(store).append(rows(4)).version) is None
    assert ids(opened(store)) == [0, 1, 2, 3, 4]


def test_a_list_of_another_commit_is_not_continued() -> None:
    store, table = written()
    put_list(store, table.version, listed(store, table.version), txnId="another", inCommitTimestampOpt=...)
    table = opened(store)
    table.checkpoint()
    assert listed(store, table.append(rows(3)).version) is None


def test_more_files_are_not_listed() -> None:
    store, table = written(MAX_FILES, properties={"delta.checkpointInterval": "1000"})
    assert len(listed(store, table.version) or []) == MAX_FILES
    assert listed(store, table.append(rows(99)).version) is None
    table.optimize.compact()
    assert table.snapshot().num_files == 1
    assert len(listed(store, table.version) or []) == 1
    assert len(listed(store, table.append(rows(99)).version) or []) == 2


def test_long_lists_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    store, table = written()
    monkeypatch.setattr(file_list, "MAX_BYTES", len(json.dumps(listed(store, 2), separators=(",", ":"))))
    assert listed(store, table.append(rows(5)).version) is None
    assert listed(store, table.delete("id >= 3").version) is not None
    monkeypatch.setattr(file_list, "MAX_BYTES", 40)  # a limit below the size of the statistics alone
    assert listed(store, table.append(rows(5)).version) is None


@pytest.mark.parametrize(
    ("properties", "is_written"),
    [
        ({"delta.checkpoint.writeStatsAsJson": "False"}, False),
        ({"delta.checkpoint.writeStatsAsStruct": "false"}, True),
        ({"delta.dataSkippingNumIndexedCols": "33"}, False),
        ({"delta.dataSkippingNumIndexedCols": "32"}, True),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, True),
    ],
)
def test_no_list_where_statistics_are_lost_or_many(properties: dict[str, str], is_written: bool) -> None:
    store, _ = written(properties=properties)
    assert (listed(store, 2) is not None) is is_written


def test_a_property_that_cannot_be_read_costs_the_list_only() -> None:
    _, table = written()
    files = FileList.from_adds(add_actions(table.snapshot().files()))
    state, totals = table.snapshot().log.state, Totals(3, table.snapshot().size_bytes)
    metadata = state.metadata.with_configuration({"delta.dataSkippingNumIndexedCols": "many"})
    body = json.loads(encode_checksum(type(state)(state.protocol, metadata), totals, "t", None, files))
    assert body["numFiles"] == 3 and "allFiles" not in body


@pytest.mark.parametrize("path", ["x//y.parquet", "memory://elsewhere/y.parquet", "/x/y.parquet"])
def test_no_list_where_a_path_may_have_several_forms(path: str) -> None:
    _, table = written()
    (add,) = add_actions(table.snapshot().files().slice(0, 1))
    one = FileList.from_adds([msgspec.structs.replace(add, path=path)])
    assert one is not None and one.encoded(Totals(1, add.size)) is None
    other = FileList.from_adds([msgspec.structs.replace(add, path="p=%20/y.parquet")])
    assert other is not None and other.encoded(Totals(1, add.size)) is not None


def test_no_list_where_it_is_not_that_of_the_totals() -> None:
    _, table = written()
    files = FileList.from_adds(add_actions(table.snapshot().files()))
    size_bytes = table.snapshot().size_bytes
    assert files is not None
    for totals, is_written in ((Totals(3, size_bytes), True), (Totals(4, size_bytes), False), (Totals(3, 1), False)):
        assert (files.encoded(totals) is not None) is is_written


def test_tags_are_listed_and_fields_that_deltalog_does_not_know_are_not() -> None:
    _, table = written()
    (add,) = add_actions(table.snapshot().files().slice(0, 1))
    for tags in (None, {}, {"a": "b", "c": None}):
        tagged = msgspec.structs.replace(add, tags=tags)
        files = FileList.from_adds([msgspec.structs.replace(tagged, data_change=True, extra={"x": 1})])
        assert files is not None
        data = files.encoded(Totals(1, add.size)) or b""
        assert json.loads(data) == [{**tagged.to_json(), "tags": tags}]
        assert (FileList.decoded(data) == files) is (tags != {})


def test_tags_that_delta_spark_has_made_of_none_are_none_again() -> None:
    """delta-spark's next list has empty tags for each file whose tags were absent in the last list, if it read that
    list from the ``.crc``."""
    store, table = written()
    adds = by_path(listed(store, table.version))
    tagged = {**adds[2], "tags": {"a": "b"}}
    put_list(store, table.version, [adds[0], {**adds[1], "tags": {}}, tagged])
    found = {add["path"]: add["tags"] for add in listed(store, opened(store).append(rows(3)).version) or []}
    assert [found.pop(add["path"]) for add in adds] == [None, None, {"a": "b"}]
    assert list(found.values()) == [None]
