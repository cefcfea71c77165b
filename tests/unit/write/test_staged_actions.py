from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, col
from deltalog.errors import InvalidActionError
from deltalog.expressions.bind import bind
from deltalog.protocol.actions import AddCDCFile, AddFile
from deltalog.write.staged_actions import StagedActions
from tests.support.core import NOW, SCHEMA, environment, memory, rows


def add(path: str = "a.parquet", **more: Any) -> AddFile:
    fields = {"partition_values": {}, "size": 10, "modification_time": 1, "data_change": True, **more}
    return AddFile(path=path, **fields)


@pytest.fixture
def table() -> DeltaTable:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    table.append(rows(2, 3))
    return table


@pytest.mark.parametrize("wrong", [{"size": 1.5}, {"path": b"a"}, {"tags": {"a": 1}}, {"size": -(2**63) - 1}], ids=str)
def test_an_add_that_cannot_be_read_back_is_refused(wrong: dict[str, Any]) -> None:
    staged = StagedActions()
    with pytest.raises(InvalidActionError):
        staged.add([add("good.parquet"), msgspec.structs.replace(add(), **wrong)], is_checked=False)
    assert staged.adds == [] and staged.unchecked == []


def test_files_of_which_the_rows_are_to_be_checked() -> None:
    staged = StagedActions()
    assert staged.add([add("a")], is_checked=False) == [add("a")]
    staged.add([add("b")], is_checked=True)
    staged.add_written([add("c")])
    assert [each.path for each in staged.adds] == ["a", "b", "c"]
    assert [each.path for each in staged.unchecked] == ["a"]


def test_lines_are_kept_of_many_adds_and_of_nothing_else() -> None:
    few, many = StagedActions(), StagedActions()
    few.add([add(f"{n}") for n in range(999)], is_checked=True)
    many.add([add(f"{n}") for n in range(1000)], is_checked=True)
    assert few.add_lines is None
    assert many.add_lines is not None and many.add_lines.count(b"\n") == 1000
    many.add([add("one more")], is_checked=True)
    assert many.add_lines is None


def test_removed_files_count_as_read(table: DeltaTable) -> None:
    files, staged = table.snapshot().files(), StagedActions()
    assert staged.remove(files, NOW) == 2
    assert {each.path for each in staged.removes} == set(files["path"].to_pylist())
    assert all(each.data_change and each.deletion_timestamp == NOW for each in staged.removes)
    assert staged.removed_rows == 3
    reads = staged.reads(depends_on_metadata=False, depends_on_files=False)
    assert reads.files == set(files["path"].to_pylist()) and not reads.whole_table


def test_rows_of_files_without_statistics_are_not_counted(table: DeltaTable) -> None:
    files, staged = table.snapshot().files(), StagedActions()
    staged.remove(files.slice(0, 1), NOW)
    at = files.schema.get_field_index("stats")
    bare = files.set_column(at, files.schema.field(at), pa.nulls(files.num_rows, files.schema.field(at).type))
    staged.remove(bare.slice(1), NOW, data_change=False)
    assert staged.removed_rows is None and not staged.removes[1].data_change


def test_only_rows_of_files_can_be_removed(table: DeltaTable) -> None:
    with pytest.raises(CallError, match=r"Snapshot\.files"):
        StagedActions().remove(table.snapshot().files(["path"]), NOW)


def test_files_of_the_caller_that_no_version_may_have(table: DeltaTable) -> None:
    files, staged = table.snapshot().files(), StagedActions()
    replaced = files["path"][0].as_py()
    staged.note_callers_paths({"new%20file": "new file", replaced: replaced})
    assert staged.new_paths == ["new file", replaced]
    staged.remove(files, NOW)
    assert staged.new_paths == ["new file"]


def test_what_is_read(table: DeltaTable) -> None:
    staged = StagedActions()
    empty = staged.reads(depends_on_metadata=False, depends_on_files=False)
    assert not (
        empty.whole_table or empty.predicates or empty.files or empty.app_ids or empty.metadata or empty.domains
    )
    where = bind(col("id") > 1, table.snapshot().schema)
    staged.read_rows(where, ["a"])
    staged.set_transaction("app", 1, NOW)
    reads = staged.reads(depends_on_metadata=True, depends_on_files=False)
    assert (len(reads.predicates), reads.files, reads.app_ids) == (1, frozenset({"a"}), frozenset({"app"}))
    assert reads.metadata and not reads.whole_table and not reads.domains
    assert staged.reads(depends_on_metadata=False, depends_on_files=True).whole_table
    staged.read_whole_table()
    staged.read_all_domains()
    reads = staged.reads(depends_on_metadata=False, depends_on_files=False)
    assert reads.whole_table and reads.domains
    assert not staged.is_serializable
    staged.require_serializable()
    assert staged.is_serializable


@pytest.mark.parametrize(("app_id", "version"), [("", 1), (5, 1), ("a", -1), ("a", 2**63), ("a", "1")])
def test_no_progress_of_an_application(app_id: Any, version: Any) -> None:
    staged = StagedActions()
    with pytest.raises(CallError):
        staged.set_transaction(app_id, version, NOW)
    assert staged.transactions == []


def test_metrics(table: DeltaTable) -> None:
    staged = StagedActions()
    staged.add([add("a", size=5), add("b", size=7)], is_checked=True)
    assert staged.metrics() == {"numFiles": "2", "numOutputBytes": "12"}
    files = table.snapshot().files()
    staged.remove(files, NOW)
    removed = {"numRemovedFiles": "2", "numRemovedBytes": str(sum(files["size"].to_pylist()))}
    assert staged.metrics() == {"numFiles": "2", "numOutputBytes": "12", **removed}


def test_change_files_and_files_of_the_caller() -> None:
    staged = StagedActions()
    change = AddCDCFile(path="c", partition_values={}, size=1, data_change=False)
    staged.add_change_files([change])
    with pytest.raises(InvalidActionError):
        staged.add_change_files([msgspec.structs.replace(change, size="1")])
    staged.keep_for_caller(["blob"])
    assert (staged.cdc, staged.files_of_caller) == ([change], ["blob"])
