"""Calls that raise the errors of docs/errors.md. Each runs in an empty directory."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import socket
import threading
import uuid
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from deltalog import (
    Dataset,
    DeltaTable,
    Environment,
    RetryPolicy,
    Transaction,
    TransactionManager,
    UnityCatalog,
    errors,
    open_store,
)
from deltalog.catalog import records
from deltalog.catalog.records import Marking
from deltalog.engine import RowRemoval
from deltalog.errors import DeltaLogError
from deltalog.storage import describe_commit_table
from deltalog.storage.dynamodb.client import DynamoTable
from deltalog.testing.stores import Call, Fault, FaultyStore
from deltalog.transactions.unity.settings import UnitySettings
from deltalog.unity import messages
from tests.support.core import overtaken
from tests.support.s3 import running
from tests.support.server.in_process import InProcess
from tests.support.transactions import Clock, Meddling, bank, manager_of
from tests.support.transactions import rows as pairs
from tests.support.unity.http import Fault as Lost
from tests.support.unity.http import UnityServer
from tests.support.unity.model import Model

_START_MS = 1_795_168_800_000  # 2026-11-20T10:00:00Z


@dataclass(frozen=True)
class Example:
    """``when``: the call, in the words of the page. ``call``: makes it in a directory, and raises ``kind``."""

    kind: type[DeltaLogError]
    when: str
    call: Callable[[Path], object]


EXAMPLES: dict[str, Example] = {}
_PORT = re.compile(r"127\.0\.0\.1:[0-9]+")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def _example(kind: type[DeltaLogError], when: str) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    def known(call: Callable[[Path], object]) -> Callable[[Path], object]:
        assert kind.__name__ not in EXAMPLES
        EXAMPLES[kind.__name__] = Example(kind, when, call)
        return call

    return known


def raised_by(example: Example, place: Path) -> str:
    """The message of the error that the call raises in a new directory, with names that are the same in every run."""
    place.mkdir()
    try:
        example.call(place)
    except DeltaLogError as error:
        assert type(error) is example.kind, f"{example.kind.__name__}: {error!r}"
        message = _UUID.sub("6f1c2a4e-58d3-4b0e-9c7a-1d2e3f405162", error.message.replace(str(place), "/data"))
        return _PORT.sub("127.0.0.1:8750", message)
    raise AssertionError(f"{example.kind.__name__}: the call raised nothing")


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _environment(**changes: Any) -> Environment:
    """A clock that goes on by a minute at each reading, and no waiting."""
    minutes = itertools.count(1)
    settings: dict[str, Any] = {
        "clock_ms": lambda: _START_MS + 60_000 * next(minutes), "sleep": lambda seconds: None, "background": False,
    }  # fmt: skip
    return Environment(**{**settings, **changes})


def _events(place: Path, *, data: pa.Table | None = None, properties: Mapping[str, str] | None = None) -> DeltaTable:
    """A table of one column ``id`` with in-commit timestamps."""
    return DeltaTable.create(
        str(place / "events"), _rows().schema, data=data, environment=_environment(),
        properties={"delta.enableInCommitTimestamps": "true", **(properties or {})},
    )  # fmt: skip


def _again(table: DeltaTable) -> DeltaTable:
    """The same table, as another process opens it."""
    return DeltaTable.open(table.url, environment=_environment())


def _commit_file(place: Path, version: int) -> Path:
    return place / "events" / "_delta_log" / f"{version:020d}.json"


def _data_file(place: Path) -> Path:
    return next((place / "events").glob("*.parquet"))


def _bank(place: Path) -> Any:
    return bank(str(place / "catalog.db"), Clock(), place)


@_example(errors.CallError, "`table.snapshot(version=0, timestamp=0)`")
def _call(place: Path) -> None:
    _events(place).snapshot(version=0, timestamp=0)


@_example(errors.InvalidTimestampError, '`table.version_at("2026-11-20 10:00")`, which has no zone')
def _naive(place: Path) -> None:
    _events(place).version_at("2026-11-20 10:00")


@_example(errors.InvalidPropertyError, '`table.set_properties({"delta.apendOnly": "true"})`')
def _property(place: Path) -> None:
    _events(place).set_properties({"delta.apendOnly": "true"})


@_example(errors.SchemaMismatchError, '`table.append(pa.table({"id": ["one"]}))`, to a column of whole numbers')
def _schema(place: Path) -> None:
    _events(place).append(pa.table({"id": ["one"]}))


@_example(errors.ConstraintViolationError, "`table.append(…)` of the row -1, to a table with the constraint `id > 0`")
def _constraint(place: Path) -> None:
    table = _events(place)
    table.add_constraint("positive", "id > 0")
    table.append(_rows(-1))


@_example(errors.InvalidActionError, '`transaction.remove(["none.parquet"])` of a file that the table does not have')
def _action(place: Path) -> None:
    with _events(place).transaction() as transaction:
        transaction.remove(["none.parquet"])
        transaction.commit("DELETE")


@_example(errors.FilesCommittedError, "`table.commit_staged([staged])`, for the second time")
def _committed(place: Path) -> None:
    table = _events(place)
    staged = table.stage(_rows(1))
    table.commit_staged([staged])
    table.commit_staged([staged])


@_example(errors.BlobTableRequiredError, "`Dataset(table).stream_write()`, on a table of rows")
def _rows_not_blobs(place: Path) -> None:
    Dataset(_events(place)).stream_write()


@_example(errors.RowTableRequiredError, '`Dataset(table).stream_write_records([{"id": 1}])`, on a table of blobs')
def _blobs_not_rows(place: Path) -> None:
    table = DeltaTable.create_for_blobs(str(place / "files"), environment=_environment())
    Dataset(table).stream_write_records([{"id": 1}])


@_example(errors.MissingRecordsError, "`Dataset(table).stream_write_records(None)`")
def _no_records(place: Path) -> None:
    Dataset(_events(place)).stream_write_records(None)


@_example(errors.UnpartitionedTableRequiredError, "`Dataset(table).stream_write_records(…)`, on a partitioned table")
def _partitioned(place: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    table = DeltaTable.create(str(place / "events"), schema, partition_by=["day"], environment=_environment())
    Dataset(table).stream_write_records([{"id": 1, "day": "monday"}])


@_example(errors.EntityNotFoundError, '`manager.table("bank.c")`, which is not in the catalog')
def _entity(place: Path) -> None:
    _bank(place).table("bank.c")


@_example(errors.CatalogNotFoundError, "A call about the catalog `other`, to a server of the catalog `main`")
def _catalog(place: Path) -> None:
    _bank(place).unity_tables(UnitySettings("main", str(place / "warehouse"))).check_catalog("other")


@_example(errors.SchemaNotFoundError, "A call about the schema `sales`, which nobody created")
def _no_schema(place: Path) -> None:
    _bank(place).unity_tables(UnitySettings("main", str(place / "warehouse"))).check_schema("sales")


@_example(errors.TableNotFoundError, '`DeltaTable.open("/data/events")`, a directory without a log')
def _no_table(place: Path) -> None:
    DeltaTable.open(str(place / "events"))


@_example(errors.EmptyDatasetError, '`Dataset("/data/events").table()`, before the first write')
def _empty(place: Path) -> None:
    Dataset(str(place / "events"), schema=_rows().schema).table()


@_example(errors.VersionNotFoundError, "`table.snapshot(version=9)`, of a table whose latest version is 1")
def _version(place: Path) -> None:
    table = _events(place)
    table.append(_rows(1))
    table.snapshot(version=9)


@_example(errors.TimestampOutOfRangeError, '`table.snapshot(timestamp="2026-11-27T00:00:00Z")`, after the last commit')
def _range(place: Path) -> None:
    _events(place).snapshot(timestamp="2026-11-27T00:00:00Z")


@_example(errors.TableExistsError, "`DeltaTable.create(…)`, where a table is")
def _exists(place: Path) -> None:
    _events(place)
    _events(place)


@_example(
    errors.TableReplacedError, "`table.append(…)`, after the directory was deleted and another table created in it"
)
def _replaced(place: Path) -> None:
    table = _events(place, data=_rows(1))
    shutil.rmtree(place / "events")
    _events(place)
    table.append(_rows(2))


@_example(errors.UnsupportedFeatureError, "`DeltaTable.open(…)` of a table that needs an unknown feature")
def _feature(place: Path) -> None:
    _events(place)
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["future"],
        "writerFeatures": ["future"],
    }
    info = {"inCommitTimestamp": _START_MS + 3_600_000, "timestamp": 1, "operation": "UPGRADE", "txnId": "t"}
    text = "".join(json.dumps(line) + "\n" for line in ({"commitInfo": info}, {"protocol": protocol}))
    _commit_file(place, 1).write_text(text)
    DeltaTable.open(str(place / "events")).snapshot().scan().to_arrow()


@_example(errors.FeatureDropIncompleteError, '`table.drop_feature("typeWidening")`, while earlier versions need it')
def _drop(place: Path) -> None:
    small = pa.table({"id": pa.array([1], pa.int32())})
    table = DeltaTable.create(
        str(place / "events"), small.schema, data=small, environment=_environment(),
        properties={"delta.enableTypeWidening": "true"},
    )  # fmt: skip
    table.set_column("id", data_type=pa.int64())
    table.drop_feature("typeWidening")


@_example(errors.InvalidCommitError, "`DeltaTable.open(…)` of a table whose commit file is half written")
def _torn(place: Path) -> None:
    _events(place).append(_rows(1))
    whole = _commit_file(place, 1).read_text()
    _commit_file(place, 1).write_text(whole[: len(whole) // 2])
    for checksum in (place / "events" / "_delta_log").glob("*.crc"):
        checksum.unlink()
    DeltaTable.open(str(place / "events")).snapshot().files()


@_example(errors.MissingVersionError, "`table.snapshot(version=1)`, after its commit file was deleted")
def _missing(place: Path) -> None:
    table = _events(place)
    for each in (1, 2):
        table.append(_rows(each))
    _commit_file(place, 1).unlink()
    for checksum in (place / "events" / "_delta_log").glob("*.crc"):
        checksum.unlink()
    DeltaTable.open(table.url).snapshot().files()


@_example(errors.InvalidCheckpointError, "`DeltaTable.open(…)` of a table whose only checkpoint is empty")
def _checkpoint(place: Path) -> None:
    table = _events(place)
    table.append(_rows(1))
    table.checkpoint()
    log = place / "events" / "_delta_log"
    for each in [*log.glob("*.crc"), _commit_file(place, 0)]:
        each.unlink()
    next(log.glob("*.checkpoint.parquet")).write_bytes(b"")
    DeltaTable.open(table.url).snapshot().files()


@_example(errors.InvalidEnablementError, "`table.version_at(…)`, of a table with one of the two properties")
def _enablement(place: Path) -> None:
    table = _events(place)
    table.append(_rows(1))
    _edit(
        place,
        0,
        lambda line: line.get("metaData", {"configuration": {}})["configuration"].update(
            {"delta.inCommitTimestampEnablementVersion": "1"}
        ),
    )
    DeltaTable.open(table.url).version_at(_START_MS + 70_000)


@_example(errors.MissingInCommitTimestampError, "`table.version_at(…)`, of a table with a commit without its time")
def _no_time(place: Path) -> None:
    table = _events(place)
    times = [table.append(_rows(each)).timestamp_ms for each in range(1, 5)]
    _edit(place, 2, lambda line: line.get("commitInfo", {}).pop("inCommitTimestamp", None))
    DeltaTable.open(table.url).version_at(times[1])


@_example(errors.InvalidDataFileError, "`table.snapshot().scan().to_arrow()`, after a data file was deleted")
def _no_file(place: Path) -> None:
    table = _events(place, data=_rows(1))
    _data_file(place).unlink()
    _again(table).snapshot().scan().to_arrow()


@_example(errors.UnsafePathError, "`table.snapshot().scan().to_arrow()`, of a table whose log names `../other.parquet`")
def _outside(place: Path) -> None:
    table = _events(place, data=_rows(1))
    _edit(place, 0, lambda line: line.get("add", {}).update(path="../other.parquet") if "add" in line else None)
    DeltaTable.open(table.url).snapshot().scan().to_arrow()


def _edit(place: Path, version: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a commit file by hand, as a faulty writer would have written it."""
    file = _commit_file(place, version)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        change(line)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for checksum in file.parent.glob("*.crc"):
        checksum.unlink()


def _overtaken(place: Path, by: Callable[[DeltaTable], object]) -> Transaction:
    """A table with two files, and a transaction on it that read the table before another writer committed."""
    table = _events(place, data=_rows(1))
    table.append(_rows(2))
    transaction = table.transaction()
    transaction.read_whole_table()
    by(_again(table))
    return transaction


def _paths(transaction: Transaction) -> list[str]:
    """The files of the version that a transaction has read."""
    assert transaction.snapshot is not None
    paths: list[str] = transaction.snapshot.files()["path"].to_pylist()
    return paths


@_example(errors.MetadataChangedError, "`transaction.commit()`, after another writer added a column")
def _metadata(place: Path) -> None:
    transaction = _overtaken(place, lambda other: other.add_columns(pa.schema([("name", pa.string())])))
    with transaction:
        transaction.remove(_paths(transaction)[:1])
        transaction.commit("DELETE")


@_example(errors.ProtocolChangedError, "`table.add_feature(…)`, after another writer added a feature")
def _protocol(place: Path) -> None:
    table = _events(place)
    store = overtaken(open_store(table.url), lambda: _again(table).add_feature("v2Checkpoint"))
    DeltaTable.open(store, environment=_environment()).add_feature("deletionVectors")


@_example(
    errors.ConcurrentAppendError, "`transaction.commit()`, after another writer added rows that it would have read"
)
def _append(place: Path) -> None:
    transaction = _overtaken(place, lambda other: other.append(_rows(3)))
    with transaction:
        transaction.remove(_paths(transaction)[:1])
        transaction.commit("DELETE")


@_example(
    errors.ConcurrentDeleteReadError, "`transaction.commit()`, after another writer deleted rows that it had read"
)
def _delete_read(place: Path) -> None:
    transaction = _overtaken(place, lambda other: other.delete("id = 1"))
    with transaction:
        transaction.write(_rows(7).to_reader())
        transaction.commit("WRITE")


@_example(errors.ConcurrentDeleteDeleteError, "`transaction.commit()`, after another writer deleted the same rows")
def _delete_delete(place: Path) -> None:
    table = _events(place, data=_rows(1))
    with table.transaction() as transaction:
        transaction.remove(_paths(transaction))
        _again(table).delete("id = 1")
        transaction.commit("DELETE")


@_example(errors.ConcurrentTransactionError, "`transaction.commit()`, after another run of the job `nightly` committed")
def _same_job(place: Path) -> None:
    table = _events(place)
    with table.transaction() as transaction:
        transaction.set_transaction("nightly", 7)
        transaction.write(_rows(1).to_reader())
        _again(table).append(_rows(1), txn=("nightly", 7))
        transaction.commit("WRITE")


@_example(errors.VersionConflictError, "`table.append(…, expected_version=0)`, although version 1 exists")
def _expected(place: Path) -> None:
    table = _events(place)
    table.append(_rows(1))
    table.append(_rows(2), expected_version=0)


@_example(errors.TransactionCanceledError, "`transaction.commit()`, after another transaction changed the same rows")
def _canceled(place: Path) -> None:
    manager = _bank(place)
    with manager.transaction() as transaction:
        transaction.table("bank.a").delete("id = 1")
        manager.table("bank.a").delete("id = 1")
        transaction.commit()


@_example(errors.TransactionAbortedError, "`table.append(…)`, in a transaction that was canceled")
def _aborted(place: Path) -> None:
    transaction = _bank(place).transaction()
    table = transaction.table("bank.a")
    transaction.cancel()
    table.append(pairs((3, 7)))


@_example(errors.TransactionCommittedError, "`transaction.cancel()`, after its commit")
def _over(place: Path) -> None:
    manager = _bank(place)
    transaction = manager.transaction()
    transaction.table("bank.a").append(pairs((3, 7)))
    transaction.commit()
    manager.cancel_transaction(transaction.id)


@_example(errors.ChangeAfterCommitError, "`table.append(…)`, in a transaction that is committed")
def _late(place: Path) -> None:
    transaction = _bank(place).transaction()
    table = transaction.table("bank.a")
    table.append(pairs((3, 7)))
    transaction.commit()
    table.append(pairs((4, 9)))


@_example(errors.TransactionCommitInProgressError, "`manager.cancel_transaction(…)`, while another process commits it")
def _in_progress(place: Path) -> None:
    manager = _bank(place)
    transaction = manager.transaction()
    transaction.table("bank.a").append(pairs((3, 7)))
    meddling = Meddling(manager.coordinator, "ratify", lambda: manager.cancel_transaction(transaction.id))
    manager_of(meddling).commit_transaction(transaction.id)


@_example(errors.TransactionContentionError, "`transaction.commit()`, which others overtake in every attempt")
def _contention(place: Path) -> None:
    manager = _bank(place)
    coordinator = manager.coordinator

    def take_over() -> None:
        found = coordinator.transaction(transaction.id)
        assert coordinator.replace(records.active_again(found, found.last_activity_ms))
        other = manager_of(coordinator)
        other.transaction(transaction.id).table("bank.a").append(pairs((4, 9)))
        other.commit_transaction(transaction.id)

    transaction = manager.transaction()
    transaction.table("bank.a").append(pairs((3, 7)))
    manager_of(Meddling(coordinator, "ratify", take_over)).commit_transaction(transaction.id)


@_example(errors.ObjectBeingDeletedError, "`manager.release_table(…)`, while a clean-up may be deleting a file of it")
def _being_deleted(place: Path) -> None:
    manager = _bank(place)
    table = next(each for each in manager.list_tables() if each.name == "bank.a")
    manager.coordinator.mark(table.table_id, 1, Marking(str(uuid.uuid4()), Clock().now_ms, ("x.parquet",)))
    manager.release_table("bank.a")


@_example(errors.TimestampAheadError, "A commit of another client whose time is in the year 2100")
def _ahead(place: Path) -> None:
    manager = _bank(place)
    manager.coordinator.clock_ms = Clock()
    version, file = 1, f"{1:020d}.{uuid.uuid4()}.json"
    info = {"inCommitTimestamp": 4_102_444_800_000, "timestamp": 1, "operation": "WRITE", "txnId": "t"}
    staged = place / "a" / "_delta_log" / "_staged_commits"
    staged.mkdir(exist_ok=True)
    (staged / file).write_text(json.dumps({"commitInfo": {**info, "operationParameters": {}}}) + "\n")
    manager.propose_commit("bank.a", version, file)


@_example(errors.ResourceNotReadyError, "`manager.register_table(…)` of a table that another catalog manages")
def _not_ready(place: Path) -> None:
    _bank(place)
    manager_of(str(place / "other.db")).register_table("bank.a", str(place / "a"))


@_example(errors.CatalogBehindLogError, "`table.append(…)`, after the catalog was restored from an older backup")
def _behind(place: Path) -> None:
    manager = _bank(place)
    manager.coordinator.close()
    shutil.copy(place / "catalog.db", place / "backup.db")
    _append_one(manager_of(str(place / "catalog.db")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.CatalogBehindLogWarning)
        _append_one(manager_of(str(place / "backup.db")))


def _append_one(manager: Any) -> None:
    manager.table("bank.a").append(pairs((3, 7)))


@_example(
    errors.CommitAttemptsExhaustedError, "`table.append(…)` with `RetryPolicy(max_attempts=3)`, overtaken three times"
)
def _exhausted(place: Path) -> None:
    table = _events(place)
    store = overtaken(open_store(table.url), *[lambda: _again(table).append(_rows(1))] * 4)
    mine = DeltaTable.open(store, environment=_environment(retry=RetryPolicy(max_attempts=3)))
    mine.append(_rows(2))


@_example(errors.CommitStateUnknownError, "`table.append(…)`, to a store that does not answer any more")
def _unknown(place: Path) -> None:
    table = _events(place)
    commits = list[Call]()

    def silent(call: Call) -> Fault | None:
        if call.method == "put_if_absent" and call.path.endswith("01.json"):
            commits.append(call)
            return Fault.LOST_ACK
        return Fault.FAIL_BEFORE if commits else None

    store = FaultyStore(open_store(table.url), silent)
    DeltaTable.open(store, environment=_environment()).append(_rows(1))


@_example(errors.StoreError, "`DeltaTable.create(…)` below a file")
def _store(place: Path) -> None:
    (place / "file").write_text("")
    DeltaTable.create(str(place / "file" / "events"), _rows().schema)


@_example(errors.CoordinatorError, '`TransactionManager("/data/notes.txt")`, which is not a database')
def _coordinator(place: Path) -> None:
    (place / "notes.txt").write_text("notes" * 1000)
    TransactionManager(str(place / "notes.txt"))


@_example(errors.CatalogRequestError, '`DeltaTable.open("uc://main.sales.orders", …)` with a wrong token')
def _request(place: Path) -> None:
    with UnityServer(Model(f"file://{place}/lake", lambda location, version: True), token="right").running() as server:
        DeltaTable.open("uc://main.sales.orders", unity_catalog_url=server.url, unity_catalog_token="wrong")


@_example(errors.ObjectNotFoundError, '`open_store("/data").get("events.json")`, which does not exist')
def _no_object(place: Path) -> None:
    open_store(str(place)).get("events.json")


@_example(errors.PathExistsError, '`open_store("/data").open_output("events.json")`, which exists')
def _path_exists(place: Path) -> None:
    (place / "events.json").write_text("{}")
    with open_store(str(place)).open_output("events.json") as output:
        output.write(b"{}")


@_example(errors.RowCountError, "`RowRemoval(transaction, files, {0: …})` of the position 5, in a file of 3 rows")
def _count(place: Path) -> None:
    table = _events(place, data=_rows(1, 2, 3), properties={"delta.enableDeletionVectors": "true"})
    with table.transaction() as transaction:
        RowRemoval(transaction, transaction.find_files("id < 10"), {0: BitMap64([5])})


@_example(errors.UnsafeStoreError, "`table.append(…)`, on a file system of fsspec that overwrites what exists")
def _unsafe(place: Path) -> None:
    from tests.support.fsspec import LyingFileSystem

    DeltaTable.create("lake/events", _rows().schema, filesystem=LyingFileSystem())


@_example(errors.UnansweredRequestError, "A request to DynamoDB whose connection breaks")
def _unanswered(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_hang_up, args=(server,), daemon=True).start()
        options = {"key": "id", "secret": "secret", "client_kwargs": {"region_name": "us-east-1"}}
        table = DynamoTable("locks", options, endpoint_url=f"http://127.0.0.1:{server.getsockname()[1]}")
        table.put({"tablePath": "events"}, "attribute_not_exists(tablePath)", seconds=0)


def _hang_up(server: socket.socket) -> None:
    """Close each connection once its request has arrived."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(65536)


@_example(errors.CommitTableError, '`describe_commit_table("locks")`, before the table was created')
def _no_commit_table(place: Path) -> None:
    with running("moto_server", place / "log") as server:
        describe_commit_table("locks", **server.options())


@_example(errors.OperationTimeoutError, '`UnityCatalog("main").drop_table("s.orders")`, whose requests are lost')
def _timeout(place: Path) -> None:
    with UnityServer(Model(f"file://{place}/lake", lambda location, version: True), token="right").running() as server:
        options: dict[str, Any] = {"unity_catalog_url": server.url, "unity_catalog_token": "right"}
        quick = _environment(retry=RetryPolicy(settle_attempts=2))
        DeltaTable.create("uc://main.s.orders", _rows(1), environment=quick, **options)
        server.faults = lambda method, path: Lost.DROPPED if method == "DELETE" else None
        UnityCatalog("main", environment=quick, **options).drop_table("s.orders")


@_example(errors.UnpublishedCommitsError, "A commit to a server that cannot publish the two commits before it")
def _unpublished(place: Path) -> None:
    server = InProcess(place)
    try:
        server.tables._updates._most_unpublished = 2
        server.unity().ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table = server.unity().new_table("orders")
        table.commit()
        (table.log / f"{1:020d}.json").mkdir()  # keeps the server from publishing
        table.commit()
        change = {"requirements": [{"type": "assert-table-uuid", "uuid": table.id}], "updates": [table.stage()]}
        server.tables.update("s.orders", msgspec.convert(change, messages.UpdateTable))
    finally:
        server.close()
