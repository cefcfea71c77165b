"""Rewriting files without changing their rows: compaction and purge, in every mode of a table, with concurrent writers
and with faults."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from deltalog import CallError, DeltaLogError, DeltaTable, TransactionManager
from deltalog.errors import ConcurrentDeleteDeleteError, MetadataChangedError, RowCountError
from deltalog.log.file_tables import add_actions
from deltalog.maintenance.optimize.rewritten_bins import BinWriter
from deltalog.protocol.paths import checksum_path, commit_path
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import Fault, FaultyStore, SimulatedKill, nth
from tests.support.core import environment, info, lines, memory, objects, put_variant_table

VECTORS = {"delta.enableDeletionVectors": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
IDS = {"delta.enableRowTracking": "true"}
MODES: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors, changes, ids": {**VECTORS, **CHANGES, **IDS},
    "by name": {**VECTORS, **IDS, "delta.columnMapping.mode": "name"},
    "by id": {**VECTORS, "delta.columnMapping.mode": "id"},
    "append only": {"delta.appendOnly": "true"},
}
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("f", pa.float64()), ("l", pa.list_(pa.string()))])


def rows(*ids: int) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "p": [("a", "b", None)[i % 3] for i in ids],
            "f": [None if i % 5 == 0 else i / 4 for i in ids],
            "l": [[str(i)] * (i % 3) for i in ids],
        },
        SCHEMA,
    )


def create(store: Any = None, properties: dict[str, str] | None = None, by: tuple[str, ...] = ("p",)) -> DeltaTable:
    """A table of sixty rows from ten appends: ten files of two rows in each partition or, without partitions, ten files
    of six rows."""
    table = DeltaTable.create(
        memory() if store is None else store, SCHEMA, properties=properties, partition_by=by, environment=environment()
    )
    for start in range(0, 60, 6):
        table.append(rows(*range(start, start + 6)))
    return table


def read(table: DeltaTable, version: int | None = None) -> list[dict[str, Any]]:
    columns = [*SCHEMA.names]
    if "delta.enableRowTracking" in table.snapshot().metadata.configuration:
        columns += ["_metadata.row_id", "_metadata.row_commit_version"]
    return sorted(table.snapshot(version).scan(columns).to_arrow().to_pylist(), key=lambda row: row["id"])


def data_files(store: MemoryStore) -> set[str]:
    return {path for path in objects(store) if path.endswith(".parquet") and not path.startswith("_delta_log")}


def live(table: DeltaTable) -> set[str]:
    return set(table.snapshot().files()["path"].to_pylist())


def checksum(store: MemoryStore, version: int) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(store.get(checksum_path(version)))
    return body


# ------------------------------------------------------------------------------------------------- compact


@pytest.mark.parametrize("by", [(), ("p",)], ids=["plain", "partitioned"])
@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_a_compaction_keeps_the_rows_and_their_ids(properties: dict[str, str], by: tuple[str, ...]) -> None:
    store = memory()
    table = create(store, properties, by)
    if "delta.appendOnly" not in properties:
        table.delete("id in (3, 17, 40)")
    before, version = read(table), table.version
    report = table.optimize.compact()
    assert read(table) == before == read(DeltaTable.open(store, environment=environment())) == read(table, version)
    assert report.rows == len(before) and len(report.added) == (3 if by else 1)
    assert live(table) == set(report.added) and not live(table) & set(report.removed)
    assert [commit.version for commit in report.commits] == [version + 1] and report.version == version
    assert report.removed_bytes > report.added_bytes > 0 and report.left == 0
    assert table.snapshot().files()["deletion_vector"].null_count == len(report.added)
    assert table.snapshot().statistics(["id"]).num_rows == len(report.added)
    if CHANGES.items() <= properties.items():
        assert table.changes(version + 1).to_arrow().num_rows == 0
    for found in (table, DeltaTable.open(store, environment=environment())):
        assert checksum(store, version + 1)["numFiles"] == found.snapshot().num_files == len(found.snapshot().files())
        assert checksum(store, version + 1)["tableSizeBytes"] == report.added_bytes
    again = table.optimize.compact()
    assert again.commits == () and again.bins == 0 and table.version == version + 1


def test_the_history_says_what_was_done() -> None:
    store = memory()
    table = create(store)
    report = table.optimize.compact("p = 'a'", user_metadata="weekly")
    found = info(store, report.commits[0].version)
    assert found["operation"] == "OPTIMIZE" and found["isolationLevel"] == "SnapshotIsolation"
    assert found["isBlindAppend"] is False and found["userMetadata"] == "weekly"
    parameters = {key: json.loads(value) for key, value in found["operationParameters"].items()}
    assert parameters == {"predicate": ["p = 'a'"], "zOrderBy": [], "clusterBy": [], "auto": False}
    sizes = [add["add"]["size"] for add in lines(store, report.commits[0].version) if "add" in add]
    assert found["operationMetrics"] == {
        "numRemovedFiles": "10", "numAddedFiles": "1", "numDeletionVectorsRemoved": "0",
        "numRemovedBytes": str(report.removed_bytes), "numAddedBytes": str(sizes[0]),
        **dict.fromkeys(["minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize"], str(sizes[0])),
    }  # fmt: skip
    actions = [body for line in lines(store, report.commits[0].version) for body in line.values()][1:]
    assert len(actions) == 11 and not any(body["dataChange"] for body in actions)


def test_partitions_are_chosen_by_a_condition_on_their_columns() -> None:
    table = create()
    report = table.optimize.compact("p is null or p = 'b'")
    assert report.partitions == 2 and report.considered == 20 and len(live(table)) == 12
    for where in ("id > 3", "p = 'a' and id > 3"):
        with pytest.raises(CallError, match="id is not a partition column"):
            table.optimize.compact(where)
    with pytest.raises(CallError, match="there are none"):
        create(by=()).optimize.purge("p = 'a'")


def test_the_target_size_is_that_of_the_call_or_of_the_table() -> None:
    table = create(by=())
    size = int(max(table.snapshot().files()["size"].to_pylist()))
    assert table.optimize.compact(target_size=size, dry_run=True).bins == 0
    assert table.optimize.compact(target_size=2 * size, dry_run=True).bins == 5
    table.set_properties({"delta.targetFileSize": f"{5 * size}"})
    assert table.optimize.compact(dry_run=True).bins == 2
    table.set_properties({"delta.targetFileSize": "1 MB"})
    assert len(table.optimize.compact().added) == 1


@pytest.mark.parametrize("wrong", [{"target_size": 0}, {"max_concurrent_tasks": -1}, {"max_commit_size": 0}])
def test_impossible_arguments(wrong: dict[str, int]) -> None:
    with pytest.raises(CallError, match=next(iter(wrong))):
        create().optimize.compact(**wrong)  # type: ignore[arg-type]


def test_a_dry_run_changes_nothing() -> None:
    store = memory()
    table = create(store)
    before = objects(store)
    report = table.optimize.compact(dry_run=True)
    assert report.dry_run and len(report.removed) == 20 + 10 and report.added == {} and report.commits == ()
    assert objects(store) == before and "would be rewritten" in str(report)
    files = table.snapshot().files().to_pylist()
    assert dict(report.removed) == report.removed == {each["path"]: each["size"] for each in files}
    assert report.removed_bytes == sum(each["size"] for each in files) and repr(report.removed) == repr(
        dict(report.removed)
    )
    with pytest.raises(KeyError):
        report.removed["nothing"]


def test_files_with_many_deleted_rows_are_rewritten_alone() -> None:
    table = DeltaTable.create(memory(), SCHEMA, properties=VECTORS, environment=environment())
    table.append(rows(*range(100)))
    table.delete("id < 5")
    assert table.optimize.compact().bins == 0
    table.delete("id < 6")
    report = table.optimize.compact(target_size=1)
    assert report.deletion_vectors == 1 and report.rows == 94 and len(read(table)) == 94


def test_nan_in_a_later_file_leaves_the_new_file_without_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalog.maintenance.optimize.rewritten_bins.GROUP_BYTES", 1)
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    table.append(rows(1, 2))
    table.append(rows(3).set_column(2, SCHEMA.field("f"), pa.array([float("nan")])))
    report = table.optimize.compact()
    assert len(report.added) == 1 and data_files(store) == {*report.added, *report.removed}
    statistics = table.snapshot().statistics(["id", "f"]).to_pylist()[0]
    assert statistics["min_values"] == {"id": 1, "f": None} and statistics["num_records"] == 3
    assert table.snapshot().scan(where="f > 100").to_arrow().num_rows == 1


def test_widened_columns_and_added_ones() -> None:
    table = DeltaTable.create(
        memory(), pa.schema([("x", pa.int32())]), properties={"delta.enableTypeWidening": "true"},
        environment=environment(),
    )  # fmt: skip
    table.append(pa.table({"x": pa.array([1, None], pa.int32())}))
    table.append(pa.table({"x": pa.array([2**40], pa.int64()), "y": ["new"]}), merge_schema=True)
    table.optimize.compact()
    assert table.snapshot().num_files == 1
    found = table.snapshot().scan().to_arrow().to_pylist()
    assert found == [{"x": 1, "y": None}, {"x": None, "y": None}, {"x": 2**40, "y": "new"}]
    assert table.snapshot().statistics(["x"]).to_pylist()[0]["max_values"] == {"x": 2**40}


def test_variants_are_kept() -> None:
    store = memory()
    put_variant_table(store)
    table = DeltaTable.open(store, environment=environment())
    table.append(pa.table({"id": [3]}))
    report = table.optimize.compact()
    assert report.rows == 3 and table.snapshot().num_files == 1
    assert table.snapshot().scan(variants="json").to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "v": "[7]"}, {"id": 2, "v": None}, {"id": 3, "v": None},
    ]  # fmt: skip


def test_files_that_another_implementation_has_clustered_stay() -> None:
    table = create(by=())
    table.cluster_by(["id"])
    for number in (60, 61):
        with table.transaction() as transaction:
            adds, _ = transaction.row_writer.write(rows(number).to_reader())
            transaction.add(*(msgspec.structs.replace(add, clustering_provider="other") for add in adds), known=True)
            transaction.commit("OPTIMIZE")
    report = table.optimize.compact()
    assert report.considered == 12 and table.snapshot().num_files == 3 and len(read(table)) == 62


# -------------------------------------------------------------------------------------------------- purge


@pytest.mark.parametrize("name", ["vectors, changes, ids", "by name", "by id"])
def test_a_purge_leaves_no_vector_and_all_rows(name: str) -> None:
    store = memory()
    table = create(store, MODES[name])
    table.delete("id in (3, 17, 40)")
    table.delete("id < 2")
    before = read(table)
    report = table.optimize.purge()
    assert read(table) == before and report.operation == "REORG" and len(before) == 55
    assert table.snapshot().files()["deletion_vector"].null_count == table.snapshot().num_files
    found = info(store, report.commits[0].version)
    assert found["operation"] == "REORG"
    assert found["operationParameters"] == {"predicate": "[]", "applyPurge": "true"}
    assert found["operationMetrics"]["numDeletionVectorsRemoved"] == str(report.deletion_vectors)
    assert table.optimize.purge().commits == ()


def test_a_file_of_which_all_rows_are_deleted_goes() -> None:
    store = memory()
    table = create(store, VECTORS, by=())
    with table.transaction() as transaction:
        removal = transaction.find_files().slice(0, 1)
        path = removal["path"][0].as_py()
        vector = transaction.row_writer.write_deletion_vectors([BitMap64(range(6))])[0]
        transaction.remove_files(removal)
        (add,) = add_actions(removal)
        transaction.add(msgspec.structs.replace(add, deletion_vector=vector, data_change=True), known=True)
        transaction.commit("DELETE")
    assert len(read(table)) == 54
    report = table.optimize.purge()
    assert list(report.removed) == [path] and report.added == {} and len(read(table)) == 54


# ------------------------------------------------------------------------------------------- other writers


def during(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Run ``change`` once, after the first bin was rewritten."""
    real, calls = BinWriter.rewrite, [0]

    def rewrite(self: BinWriter, files: pa.Table) -> Any:
        rewritten = real(self, files)
        calls[0] += 1
        if calls[0] == 1:
            change()
        return rewritten

    monkeypatch.setattr(BinWriter, "rewrite", rewrite)


def test_appends_do_not_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory()
    table = create(store)
    other = DeltaTable.open(store, environment=environment())
    during(monkeypatch, lambda: other.append(rows(*range(60, 66))))
    report = table.optimize.compact()
    assert report.left == 0 and report.bins == 3 and len(read(table)) == 66


@pytest.mark.parametrize("properties", [VECTORS, {}], ids=["by vectors", "moved"])
def test_what_others_changed_meanwhile_is_left_and_the_rest_is_committed(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    store = memory()
    table = create(store, properties)
    other = DeltaTable.open(store, environment=environment())
    during(monkeypatch, lambda: other.delete("id = 3"))
    report = table.optimize.compact()
    assert (report.left, report.bins, len(report.commits)) == (1, 2, 1)
    assert [row["id"] for row in read(table)] == [i for i in range(60) if i != 3]
    assert live(table) | set(report.removed) <= data_files(store)
    named = {line["add"]["path"] for v in range(table.version + 1) for line in lines(store, v) if "add" in line}
    assert data_files(store) == named  # leftovers are deleted


def test_nothing_is_committed_when_all_files_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory()
    table = create(store)
    other = DeltaTable.open(store, environment=environment())
    during(monkeypatch, lambda: other.delete())
    report = table.optimize.compact()
    assert report.left == 3 and report.commits == () and report.added == {} and read(table) == []
    assert len(data_files(store)) == 30


def test_a_change_of_the_schema_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory()
    table = create(store)
    other = DeltaTable.open(store, environment=environment())
    during(monkeypatch, lambda: other.add_columns(pa.schema([("z", pa.int64())])))
    with pytest.raises(MetadataChangedError):
        table.optimize.compact()
    assert len(data_files(store)) == 30
    assert table.optimize.compact().bins == 3


def test_row_ids_that_are_turned_on_meanwhile_are_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory()
    table = create(store, {"delta.feature.rowTracking": "supported"})
    other = DeltaTable.open(store, environment=environment())
    during(monkeypatch, lambda: other.set_properties(IDS))
    with pytest.raises(MetadataChangedError):
        table.optimize.compact()


def test_a_delete_that_was_planned_before_conflicts() -> None:
    store = memory()
    table = create(store)
    with table.transaction() as transaction:
        transaction.remove_files(transaction.find_files("p = 'a'"))
        DeltaTable.open(store, environment=environment()).optimize.compact()
        with pytest.raises(ConcurrentDeleteDeleteError):
            transaction.commit("DELETE")


# --------------------------------------------------------------------------------------- batches and faults


def test_each_batch_is_a_commit_and_an_interrupted_run_keeps_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory()
    table = create(store)
    before, seen = read(table), list[tuple[int, int]]()

    def stop(done: int, of: int) -> None:
        seen.append((done, of))
        if done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.optimize.compact(max_commit_size=1, progress=stop)
    assert table.snapshot().num_files == 21 and seen[-1][1] == 30 and read(table) == before
    assert len(data_files(store)) == 31
    report = table.optimize.compact(max_commit_size=1)
    assert len(report.commits) == 2 and table.snapshot().num_files == 3 and read(table) == before


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", list(Fault))
def test_every_call_of_the_store_fails_once(fault: Fault) -> None:
    """Whatever fails, no row is lost, and a second run completes the work."""
    outcomes = set()
    for number in range(1, 400):
        inner = memory()
        table = DeltaTable.create(inner, SCHEMA, properties={**VECTORS, **IDS}, environment=environment())
        for start in range(0, 12, 6):
            table.append(rows(*range(start, start + 6)))
        table.delete("id in (3, 8)")
        before = read(table)
        store = FaultyStore(inner, nth(number, fault))
        try:
            DeltaTable.open(store, environment=environment()).optimize.compact(max_commit_size=1)
            outcomes.add("ok")
        except SimulatedKill:
            outcomes.add("killed")
        except DeltaLogError:
            outcomes.add("failed")
        store.land()
        fresh = DeltaTable.open(inner, environment=environment())
        assert read(fresh) == before
        fresh.optimize.compact()
        assert read(fresh) == before and fresh.snapshot().num_files == 1
        if store.calls < number:
            break
    assert number > 15 and "ok" in outcomes


def test_rows_that_the_log_does_not_count_are_refused() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for start in (0, 6):
        table.append(rows(*range(start, start + 6)))
    text = store.get(commit_path(1)).replace(b'\\"numRecords\\":6', b'\\"numRecords\\":7')
    store.put(commit_path(1), text)
    opened = DeltaTable.open(store, environment=environment())
    before = data_files(store)
    with pytest.raises(RowCountError, match="by the log") as caught:
        opened.optimize.compact()
    assert (caught.value.written, caught.value.found) == (13, 12) and data_files(store) == before


def test_rows_that_are_lost_on_the_way_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the log has no statistics, row counts are read from the footers."""
    store = memory()
    table = create(store, {"delta.dataSkippingNumIndexedCols": "0"}, by=())
    real = BinWriter.batches

    def losing(self: BinWriter, *arguments: Any) -> Any:
        return (batch.slice(1) for batch in real(self, *arguments))

    monkeypatch.setattr(BinWriter, "batches", losing)
    before = data_files(store)
    with pytest.raises(RowCountError):
        table.optimize.compact()
    assert data_files(store) == before


def test_a_table_on_a_disk(tmp_path: Path) -> None:
    table = create(LocalStore(str(tmp_path)))
    before = read(table)
    report = table.optimize.compact(max_concurrent_tasks=3)
    assert read(table) == before and all((tmp_path / path).exists() for path in report.added)
    assert sum((tmp_path / path).stat().st_size for path in report.added) == report.added_bytes


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    table = create(LocalStore(str(tmp_path)), by=())
    gone = sorted(live(table))[0]
    (tmp_path / gone).unlink()
    count = len(list(tmp_path.glob("*.parquet")))
    with pytest.raises(Exception, match=gone):
        table.optimize.compact()
    assert len(list(tmp_path.glob("*.parquet"))) == count


def test_a_table_of_a_catalog(tmp_path: Path) -> None:
    catalog = TransactionManager(str(tmp_path / "c.db"))
    catalog.create_table("shop.t", str(tmp_path / "t"), SCHEMA, data=rows(1, 2))
    table = DeltaTable.open(f"catalog:{tmp_path / 'c.db'}#shop.t")
    table.append(rows(3))
    report = table.optimize.compact()
    assert len(report.commits) == 1 and read(table) == read(table, report.version)
    assert DeltaTable.open(f"catalog:{tmp_path / 'c.db'}#shop.t").snapshot().num_files == 1


def test_bins_are_rewritten_by_what_the_caller_gives(tmp_path: Path) -> None:
    """The rewrite function is serialized (in this test with pickle), as Spark serializes it for tasks in other
    processes."""
    table = create(LocalStore(str(tmp_path)), {**VECTORS, **IDS})
    table.delete("id IN (3, 4)")
    before, asked = read(table), list[int]()

    def elsewhere(tasks: Any, bins: Any) -> Any:
        asked.append(len(bins))
        copy = pickle.loads(pickle.dumps(tasks))
        return iter([copy.run(files, f"0000{number}-7") for number, files in enumerate(bins)])

    report = table.optimize.compact(rewrite_bins=elsewhere)
    assert read(table) == before and asked == [3] and report.rows == 58
    assert all("-00007-" not in path and "-7-" in path and (tmp_path / path).exists() for path in report.added)
    table.append(rows(90))
    assert table.optimize.z_order(["id"], rewrite_bins=elsewhere).rows == 59


def test_what_is_rewritten_elsewhere_is_counted_too(tmp_path: Path) -> None:
    table = create(LocalStore(str(tmp_path)), by=())
    before = table.version

    def losing(tasks: Any, bins: Any) -> Any:
        for files in bins:
            body = json.loads(tasks.run(files, "x"))
            yield json.dumps({**body, "rows": body["rows"] - 1})

    with pytest.raises(RowCountError):
        table.optimize.compact(rewrite_bins=losing)
    assert table.version == before and {path.name for path in tmp_path.glob("*.parquet")} == live(table)
