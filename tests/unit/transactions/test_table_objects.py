"""Adding, deleting and listing data files by URI, for callers that write Parquet themselves."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import CallError, Dataset, DeltaTable, SchemaMismatchError, TransactionManager, col
from deltalog.errors import InvalidDataFileError, ResourceNotReadyError
from deltalog.transactions import AddObject, DeleteObject, TableObject, VirtualObject
from tests.support.server import parquet

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
VALUES = ("2026-11-20", "2026-11-20 10:00:00")
NAME = "sales.orders"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture
def manager(tmp_path: Path, root: Path) -> TransactionManager:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    manager.create_table(NAME, str(root), SCHEMA, partition_by=["day", "at"])
    return manager


def add(
    root: Path, name: str, *ids: int, values: tuple[str | None, ...] = VALUES, column: str = "id", **changes: Any
) -> AddObject:
    made = parquet(root, name, *ids, column=column)
    known: dict[str, Any] = {"uri": made["Uri"], "etag": made["ETag"], "size_bytes": made["Size"]}
    return AddObject(**{**known, "partition_values": values, **changes})


def uris(manager: TransactionManager, **options: Any) -> list[str]:
    return [Path(each.uri).name for each in manager.get_table_objects(NAME, **options).objects]


def test_added_files_are_rows_with_their_partition_values(manager: TransactionManager, root: Path) -> None:
    manager.update_table_objects(NAME, [add(root, "x.parquet", 1, 2)])
    at = datetime.datetime(2026, 11, 20, 10, tzinfo=datetime.timezone.utc)
    rows = manager.table(NAME).snapshot().scan().to_arrow().to_pydict()
    assert rows == {"id": [1, 2], "day": [datetime.date(2026, 11, 20)] * 2, "at": [at] * 2}


VALID: list[tuple[tuple[str | None, ...], tuple[str | None, ...]]] = [
    (VALUES, ("2026-11-20", "2026-11-20T10:00:00.000000Z")),
    (("2026-11-20", "2026-11-20 10:00:00+02:00"), ("2026-11-20", "2026-11-20T08:00:00.000000Z")),
    ((None, "__HIVE_DEFAULT_PARTITION__"), (None, None)),
    (("", VALUES[1]), (None, "2026-11-20T10:00:00.000000Z")),
]


@pytest.mark.parametrize(("given", "kept"), VALID)
def test_partition_values_are_kept_as_logs_have_them(
    given: tuple[str | None, ...], kept: tuple[str | None, ...], manager: TransactionManager, root: Path
) -> None:
    operation = add(root, "x.parquet", 1, values=given)
    manager.update_table_objects(NAME, [operation])
    expected = TableObject(operation.uri, operation.size_bytes, operation.etag, kept)
    assert manager.get_table_objects(NAME).objects == [expected]


@pytest.mark.parametrize("name", ["a b.parquet", "a%20b.parquet", "é/ü.parquet", "day=x/a=b.parquet", "#?.parquet"])
def test_any_name_is_found_again(name: str, manager: TransactionManager, root: Path) -> None:
    operation = add(root, name, 1)
    manager.update_table_objects(NAME, [operation])
    with pytest.raises(CallError, match="already"):
        manager.update_table_objects(NAME, [operation])
    assert [each.uri for each in manager.get_table_objects(NAME).objects] == [operation.uri]
    manager.update_table_objects(NAME, [DeleteObject(operation.uri, f'"{operation.etag}"')])
    assert uris(manager) == []
    assert Path(operation.uri).exists()


Refused = tuple[Callable[[Path], list[Any]], type[Exception], str]
REFUSED: dict[str, Refused] = {
    "none": (lambda root: [], CallError, "1 to 100"),
    "too many": (lambda root: [DeleteObject(f"{root}/{n}") for n in range(101)], CallError, "1 to 100"),
    "twice": (lambda root: [add(root, "x.parquet", 1)] * 2, CallError, "same object"),
    "another size": (lambda root: [add(root, "x.parquet", 1, size_bytes=1)], CallError, "not the object"),
    "another etag": (lambda root: [add(root, "x.parquet", 1, etag="0" * 32)], CallError, "not the object"),
    "absent": (lambda root: [AddObject(f"{root}/x.parquet", "e", 1, VALUES)], InvalidDataFileError, "no file"),
    "outside": (lambda root: [AddObject(f"{root}/../x.parquet", "e", 1, VALUES)], CallError, "not a data file"),
    "in the log": (lambda root: [AddObject(f"{root}/_delta_log/x", "e", 1, VALUES)], CallError, "not a data file"),
    "elsewhere": (lambda root: [AddObject("s3://b/x.parquet", "e", 1, VALUES)], CallError, "not a data file"),
    "too few values": (lambda root: [add(root, "x.parquet", 1, values=VALUES[:1])], CallError, "2 columns"),
    "no date": (lambda root: [add(root, "x.parquet", 1, values=("x", VALUES[1]))], CallError, "not a date"),
    "a file that is none of it": (lambda root: [DeleteObject(f"{root}/x.parquet")], CallError, "no longer, a file of"),
}


@pytest.mark.parametrize(("operations", "kind", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("inside", [False, True], ids=["by itself", "in a transaction"])
def test_what_is_refused_changes_nothing(
    inside: bool,
    operations: Callable[[Path], list[Any]],
    kind: type[Exception],
    message: str,
    manager: TransactionManager,
    root: Path,
) -> None:
    started = manager.start_transaction() if inside else None
    with pytest.raises(kind, match=message):
        manager.update_table_objects(NAME, operations(root), started)
    assert manager.table(NAME).version == 0
    if started is not None:
        manager.commit_transaction(started)
    assert manager.table(NAME).version == 0


def test_a_file_is_deleted_only_with_the_etag_that_it_has(manager: TransactionManager, root: Path) -> None:
    ours = add(root, "x.parquet", 1)
    manager.update_table_objects(NAME, [ours])
    rows = pa.table({"id": [1], "day": [None], "at": [None]}, schema=SCHEMA)
    manager.table(NAME).append(rows)  # the log does not record an ETag for a file that `append` wrote
    theirs = next(Path(each.uri) for each in manager.get_table_objects(NAME).objects if each.etag is None)
    for path in (Path(ours.uri), theirs):
        with pytest.raises(CallError, match="has the ETag"):
            manager.update_table_objects(NAME, [DeleteObject(str(path), "0" * 32)])
    etag = parquet(root, "copy.parquet", 1)["ETag"]
    assert etag == ours.etag
    manager.update_table_objects(NAME, [DeleteObject(ours.uri, ours.etag), DeleteObject(str(theirs))])
    assert uris(manager) == []


def test_operations_of_one_call_are_one_version(manager: TransactionManager, root: Path) -> None:
    first = add(root, "x.parquet", 1)
    manager.update_table_objects(NAME, [first])
    manager.update_table_objects(NAME, [add(root, "y.parquet", 2), DeleteObject(first.uri), add(root, "z.parquet", 3)])
    assert manager.table(NAME).version == 2
    assert uris(manager) == ["y.parquet", "z.parquet"]


def test_a_transaction_sees_its_own_files_and_can_take_them_back(manager: TransactionManager, root: Path) -> None:
    with manager.transaction() as txn:
        one, two = add(root, "x.parquet", 1), add(root, "y.parquet", 2)
        manager.update_table_objects(NAME, [one, two], txn.id)
        manager.update_table_objects(NAME, [DeleteObject(one.uri, one.etag)], txn.id)
        assert uris(manager, transaction_id=txn.id) == ["y.parquet"]
        assert txn.table(NAME).snapshot().scan(where=col("id") == 2).to_arrow().num_rows == 1
        assert uris(manager) == []
        txn.commit()
    assert uris(manager) == ["y.parquet"]


def test_files_of_the_caller_stay_when_the_transaction_is_cancelled(manager: TransactionManager, root: Path) -> None:
    started, operation = manager.start_transaction(), add(root, "x.parquet", 1)
    manager.update_table_objects(NAME, [operation], started)
    manager.cancel_transaction(started)
    assert Path(operation.uri).exists() and uris(manager) == []


def test_pages_are_in_order_and_of_one_version(manager: TransactionManager, root: Path) -> None:
    names = [f"{number}.parquet" for number in range(7)]
    manager.update_table_objects(NAME, [add(root, name, 1) for name in reversed(names)])
    seen: list[str] = []
    token = None
    while True:
        page = manager.get_table_objects(NAME, max_results=3, next_token=token)
        seen += [Path(each.uri).name for each in page.objects]
        manager.update_table_objects(NAME, [add(root, f"9-{len(seen)}.parquet", 1)])
        token = page.next_token
        if token is None:
            break
    assert seen == names


def test_a_full_last_page_has_no_token(manager: TransactionManager, root: Path) -> None:
    manager.update_table_objects(NAME, [add(root, f"{number}.parquet", 1) for number in range(2)])
    assert manager.get_table_objects(NAME, max_results=2).next_token is None
    assert manager.get_table_objects(NAME, max_results=1).next_token is not None


@pytest.mark.parametrize("options", [{"where": "day = '2026-11-21'"}, {"transaction_id": "other"}, {"name": "sales.b"}])
def test_a_token_belongs_to_its_listing(options: dict[str, Any], manager: TransactionManager, root: Path) -> None:
    manager.create_table("sales.b", str(root.parent / "b"), SCHEMA)
    manager.update_table_objects(NAME, [add(root, f"{number}.parquet", 1) for number in range(2)])
    token = manager.get_table_objects(NAME, max_results=1).next_token
    if "transaction_id" in options:
        options = {"transaction_id": manager.start_transaction()}
    with pytest.raises(CallError, match="token"):
        manager.get_table_objects(**{"name": NAME, "next_token": token, **options})


@pytest.mark.parametrize("most", [0, 1001, True, "5"])
def test_a_page_has_1_to_1000_files(most: Any, manager: TransactionManager) -> None:
    with pytest.raises(CallError, match="max_results"):
        manager.get_table_objects(NAME, max_results=most)


def test_files_are_chosen_by_partition_only(manager: TransactionManager, root: Path) -> None:
    days = ("2026-11-20", "2026-11-21", None)
    operations = [add(root, f"{day}.parquet", 1, values=(day, None)) for day in days]
    manager.update_table_objects(NAME, operations)
    assert uris(manager, where="day > '2026-11-20'") == ["2026-11-21.parquet"]
    assert uris(manager, where="day is null") == ["None.parquet"]
    with pytest.raises(CallError, match="id"):
        manager.get_table_objects(NAME, where="id = 1 or day is null")


def test_a_file_with_deleted_rows_is_not_told_as_a_whole_one(tmp_path: Path, manager: TransactionManager) -> None:
    rows = pa.table({"id": [1, 2]})
    properties = {"delta.enableDeletionVectors": "true"}
    table = manager.create_table("sales.dv", str(tmp_path / "dv"), rows.schema, data=rows, properties=properties)
    table.delete("id = 2")
    with pytest.raises(ResourceNotReadyError, match="deletion vector"):
        manager.get_table_objects("sales.dv")


def test_physical_names_of_partition_columns_are_those_of_the_log(tmp_path: Path, manager: TransactionManager) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    root, properties = tmp_path / "mapped", {"delta.columnMapping.mode": "name"}
    table = manager.create_table("sales.m", str(root), schema, partition_by=["day"], properties=properties)
    physical = table.snapshot().schema.field("id").metadata["delta.columnMapping.physicalName"]
    operation = add(root, "x.parquet", 1, values=("mon",), column=physical)
    manager.update_table_objects("sales.m", [operation])
    assert manager.get_table_objects("sales.m").objects[0].partition_values == ("mon",)
    assert table.snapshot().scan().to_arrow().to_pydict() == {"id": [1], "day": ["mon"]}


NESTED = pa.struct([("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.int32()))])
FITS: dict[str, tuple[Any, str | None]] = {
    "as the table": (pa.table({"id": [1], "what": ["x"], "more": pa.array([None], NESTED)}), None),
    "without a column": (pa.table({"id": [1]}), None),
    "in other letters": (pa.table({"ID": [1], "What": pa.array(["x"], pa.large_string())}), None),
    "with its partition column": (pa.table({"id": [1], "day": [7]}), None),
    "a column more": (pa.table({"id": [1], "other": [1]}), "column other"),
    "another type": (pa.table({"id": ["1"]}), "column id has type string, not long"),
    "a narrower type": (pa.table({"id": pa.array([1], pa.int32())}), "column id has type integer, not long"),
    "another type inside": (pa.table({"more": pa.array([{"a": ["x"], "b": []}])}), "column more"),
}


@pytest.mark.parametrize(("data", "message"), FITS.values(), ids=FITS)
def test_only_files_that_every_reader_can_read_are_added(
    data: pa.Table, message: str | None, tmp_path: Path, manager: TransactionManager
) -> None:
    schema = pa.schema([("id", pa.int64()), ("what", pa.string()), ("more", NESTED), ("day", pa.string())])
    table = manager.create_table("sales.n", str(tmp_path / "n"), schema, partition_by=["day"])
    path = tmp_path / "n/x.parquet"
    pq.write_table(data, path)
    etag = table.snapshot().reader.store.etag("x.parquet") or ""
    operation = AddObject(str(path), etag, path.stat().st_size, ("mon",))
    if message is None:
        manager.update_table_objects("sales.n", [operation])
        assert table.snapshot().scan().to_arrow()["day"].to_pylist() == ["mon"]
        return
    with pytest.raises(SchemaMismatchError, match=message):
        manager.update_table_objects("sales.n", [operation])


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (pa.table({"what": ["x"]}), ("mon",)),
        (pa.table({"id": pa.array([1, None], pa.int64())}), ("mon",)),
        (pa.table({"id": [1]}), (None,)),
    ],
    ids=["missing", "with a null", "the partition"],
)
def test_a_column_that_is_never_null_must_have_values(
    data: pa.Table, values: tuple[str | None], tmp_path: Path, manager: TransactionManager
) -> None:
    columns = [pa.field("id", pa.int64(), nullable=False), ("what", pa.string()), pa.field("day", pa.string(), False)]
    table = manager.create_table("sales.nn", str(tmp_path / "nn"), pa.schema(columns), partition_by=["day"])
    path, store = tmp_path / "nn/x.parquet", table.snapshot().reader.store
    pq.write_table(data, path)
    with pytest.raises(CallError, match="NOT NULL"):
        operation = AddObject(str(path), store.etag("x.parquet") or "", path.stat().st_size, values)
        manager.update_table_objects("sales.nn", [operation])
    pq.write_table(pa.table({"id": [1]}), path)
    operation = AddObject(str(path), store.etag("x.parquet") or "", path.stat().st_size, ("mon",))
    manager.update_table_objects("sales.nn", [operation])


def cancelled(manager: TransactionManager, name: str, path: Path) -> None:
    """A transaction that recorded a file for deletion and was then canceled."""
    started = manager.start_transaction()
    manager.delete_objects_on_cancel(started, name, [VirtualObject(str(path))])
    manager.cancel_transaction(started)


def test_no_file_that_a_version_needs_is_deleted_on_cancel(tmp_path: Path, manager: TransactionManager) -> None:
    rows, properties = pa.table({"id": range(30_000)}), {"delta.enableDeletionVectors": "true"}
    table = manager.create_table("sales.v", str(tmp_path / "v"), rows.schema, data=rows, properties=properties)
    table.delete(col("id").isin(range(0, 30_000, 3)))
    table.delete(col("id").isin(range(0, 30_000, 5)))  # the first deletion vector now belongs to a tombstone
    files = [path for path in (tmp_path / "v").rglob("*") if path.is_file() and "_delta_log" not in path.parts]
    assert sum(path.suffix == ".bin" for path in files) == 2
    for path in files:
        with pytest.raises(CallError, match="Parquet") if path.suffix == ".bin" else contextlib.nullcontext():
            cancelled(manager, "sales.v", path)
    assert all(path.exists() for path in files)
    assert [table.snapshot(version).scan().to_arrow().num_rows for version in (0, 1, 2)] == [30_000, 20_000, 16_000]


def test_bytes_that_a_table_of_blobs_holds_are_no_objects(tmp_path: Path, manager: TransactionManager) -> None:
    DeltaTable.create_for_blobs(str(tmp_path / "b"))
    with Dataset(manager.register_table("sales.b", str(tmp_path / "b"))).stream_write() as writer:
        writer.write(b"an invoice")
        writer.commit()
    with pytest.raises(CallError, match="not a data file"):
        cancelled(manager, "sales.b", tmp_path / "b" / writer.path)
    assert (tmp_path / "b" / writer.path).read_bytes() == b"an invoice"


@pytest.mark.parametrize("directory", ["_delta_log", "_change_data", "_blobs"])
def test_directories_of_the_table_itself_hold_no_objects(
    directory: str, manager: TransactionManager, root: Path
) -> None:
    (root / directory).mkdir(exist_ok=True)
    with pytest.raises(CallError, match="not a data file"):
        cancelled(manager, NAME, root / directory / "x.parquet")


def test_a_link_leads_nowhere(manager: TransactionManager, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    operation = add(outside, "x.parquet", 1)
    (root / "link").symlink_to(outside)
    with pytest.raises(CallError, match="link"):
        manager.update_table_objects(NAME, [replace(operation, uri=f"{root}/link/x.parquet")])
    cancelled(manager, NAME, root / "link/x.parquet")
    assert (outside / "x.parquet").exists()
