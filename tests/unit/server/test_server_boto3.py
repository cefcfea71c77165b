"""The server answers calls of boto3's unmodified Lake Formation client."""

from __future__ import annotations

import datetime
import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

from deltalog import TransactionManager
from deltalog.catalog import records
from deltalog.server.lakeformation import OPERATIONS
from tests.support.server import AT_ONCE, SCHEMA, Served, add, delete, served

TABLE = {"DatabaseName": "bank", "TableName": "a"}
NUMBERS = itertools.count()


def new_name() -> str:
    return f"of-others/{next(NUMBERS)}.parquet"


def fails(client: Any, name: str, call: Callable[..., Any], **members: Any) -> str:
    """Assert that the call raises this typed exception; returns its message."""
    with pytest.raises(getattr(client.exceptions, name)) as caught:
        call(**members)
    error = caught.value.response["Error"]
    assert error["Code"] == name and error["Message"] == caught.value.response["Message"]
    assert len(caught.value.response["ResponseMetadata"]["RequestId"]) == 36
    return str(error["Message"])


def test_operations_and_their_exceptions_are_those_of_the_service_model() -> None:
    client = boto3.client("lakeformation", region_name="eu-central-1", aws_access_key_id="i", aws_secret_access_key="s")
    model = client.meta.service_model
    for name, operation in OPERATIONS.items():
        assert model.operation_model(name).http["requestUri"] == f"/{name}"
        assert model.operation_model(name).http["method"] == "POST"
        assert {shape.name for shape in model.operation_model(name).error_shapes} == operation.errors, name
    # The server implements all operations on transactions.
    ours = {name for name in model.operation_names if "Transaction" in name or "TableObjects" in name}
    assert ours | {"DeleteObjectsOnCancel"} == set(OPERATIONS)


# ------------------------------------------------------------------------------------------ a whole session


def test_a_session_that_uses_every_operation(client: Any, place: Path, manager: TransactionManager) -> None:
    before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=5)
    started = client.start_transaction(TransactionType="READ_AND_WRITE")["TransactionId"]
    found = client.describe_transaction(TransactionId=started)["TransactionDescription"]
    assert found["TransactionStatus"] == "ACTIVE" and found["TransactionStartTime"] > before
    assert "TransactionEndTime" not in found

    name = new_name()
    client.delete_objects_on_cancel(
        **TABLE, TransactionId=started, Objects=[{"Uri": str(place / "a" / name), "ETag": "e"}]
    )
    operation = add(place / "a", name, 1, 2, day="tue")
    uri = operation["AddObject"]["Uri"]
    client.update_table_objects(**TABLE, TransactionId=started, WriteOperations=[operation])
    client.extend_transaction(TransactionId=started)

    # Only the transaction itself can read its uncommitted writes.
    inside = client.get_table_objects(**TABLE, TransactionId=started)["Objects"]
    added = {key: operation["AddObject"][key] for key in ("Uri", "ETag", "Size")}
    assert {"PartitionValues": ["tue"], "Objects": [added]} in inside
    assert uri not in str(client.get_table_objects(**TABLE)["Objects"])

    assert client.commit_transaction(TransactionId=started)["TransactionStatus"] == "COMMITTED"
    assert client.commit_transaction(TransactionId=started)["TransactionStatus"] == "COMMITTED"
    found = client.describe_transaction(TransactionId=started)["TransactionDescription"]
    assert found["TransactionStatus"] == "COMMITTED"
    assert found["TransactionEndTime"] >= found["TransactionStartTime"]
    assert found in client.list_transactions(StatusFilter="COMMITTED")["Transactions"]
    assert uri in str(client.get_table_objects(**TABLE)["Objects"])
    rows = manager.table("bank.a").snapshot().scan(where="day = 'tue'").to_arrow()
    assert rows.to_pydict() == {"id": [1, 2], "day": ["tue"] * 2}

    # Canceling a transaction deletes an object whose name the transaction recorded before the object was written.
    cancelled = client.start_transaction()["TransactionId"]
    name = new_name()
    operation = add(place / "a", name, 3)
    object_ = {key: operation["AddObject"][key] for key in ("Uri", "ETag")}
    client.delete_objects_on_cancel(**TABLE, TransactionId=cancelled, Objects=[object_])
    client.update_table_objects(**TABLE, TransactionId=cancelled, WriteOperations=[operation])
    client.cancel_transaction(TransactionId=cancelled)
    client.cancel_transaction(TransactionId=cancelled)
    assert not (place / "a" / name).exists()
    assert cancelled in [
        each["TransactionId"] for each in client.list_transactions(StatusFilter="ABORTED")["Transactions"]
    ]


def test_tables_change_together_or_not_at_all(client: Any, place: Path) -> None:
    tables = [{"DatabaseName": "bank", "TableName": name} for name in "ab"]
    started, name = client.start_transaction()["TransactionId"], new_name()
    for table in tables:
        root = place / table["TableName"]
        client.update_table_objects(**table, TransactionId=started, WriteOperations=[add(root, name, 1)])
    assert not any(name in str(client.get_table_objects(**table)) for table in tables)
    client.commit_transaction(TransactionId=started)
    assert all(name in str(client.get_table_objects(**table)) for table in tables)


def test_what_a_transaction_reads_does_not_change(client: Any, place: Path) -> None:
    reader = client.start_transaction(TransactionType="READ_ONLY")["TransactionId"]
    first, name = client.get_table_objects(**TABLE, TransactionId=reader)["Objects"], new_name()
    client.update_table_objects(**TABLE, WriteOperations=[add(place / "a", name, 1)])
    assert name in str(client.get_table_objects(**TABLE))
    assert client.get_table_objects(**TABLE, TransactionId=reader)["Objects"] == first


def test_a_past_point_in_time_is_read(client: Any, place: Path, manager: TransactionManager) -> None:
    name = new_name()
    client.update_table_objects(**TABLE, WriteOperations=[add(place / "a", name, 1)])
    at = manager.table("bank.a").history(1)[0].timestamp_ms
    assert at is not None
    # boto3 sends whole seconds, so the test uses the next whole second after the commit, and the last whole second
    # before the table was created.
    after = datetime.datetime.fromtimestamp(at // 1000 + 1, datetime.timezone.utc)
    assert name in str(client.get_table_objects(**TABLE, QueryAsOfTime=after)["Objects"])
    long_ago = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
    assert "earl" in fails(client, "InvalidInputException", client.get_table_objects, **TABLE, QueryAsOfTime=long_ago)


def test_partitions_are_chosen_by_a_predicate(client: Any, place: Path) -> None:
    names = {day: new_name() for day in ("x1", "x2", "x3")}
    operations = [add(place / "a", name, 1, day=day) for day, name in names.items()]
    client.update_table_objects(**TABLE, WriteOperations=operations)
    found = client.get_table_objects(**TABLE, PartitionPredicate="day >= 'x2' and day < 'x9'")["Objects"]
    assert [each["PartitionValues"] for each in found] == [["x2"], ["x3"]]
    assert "id" in fails(
        client, "InvalidInputException", client.get_table_objects, **TABLE, PartitionPredicate="id = 1"
    )
    fails(client, "InvalidInputException", client.get_table_objects, **TABLE, PartitionPredicate="day = = 1")


# ------------------------------------------------------------------------------------- the state x call table

OK = None
CANCELED, COMMITTED = "TransactionCanceledException", "TransactionCommittedException"
IN_PROGRESS, CONCURRENT = "TransactionCommitInProgressException", "ConcurrentModificationException"
INVALID, UNKNOWN = "InvalidInputException", "EntityNotFoundException"
STATES = ("ACTIVE", "READ_ONLY", "COMMIT_IN_PROGRESS", "COMMITTED", "ABORTED", "unknown", "malformed")
EXPECTED: dict[str, tuple[str | None, ...]] = {
    #            ACTIVE  READ_ONLY  IN_PROGRESS   COMMITTED  ABORTED  unknown  malformed
    "commit":   (OK,     OK,        OK,           OK,        CANCELED, UNKNOWN, INVALID),
    "cancel":   (OK,     OK,        IN_PROGRESS,  COMMITTED, OK,       UNKNOWN, INVALID),
    "extend":   (OK,     OK,        IN_PROGRESS,  COMMITTED, CANCELED, UNKNOWN, INVALID),
    "describe": (OK,     OK,        OK,           OK,        OK,       UNKNOWN, INVALID),
    "delete":   (OK,     INVALID,   CONCURRENT,   COMMITTED, CANCELED, UNKNOWN, INVALID),
    "update":   (OK,     INVALID,   IN_PROGRESS,  COMMITTED, CANCELED, UNKNOWN, INVALID),
    "get":      (OK,     OK,        OK,           COMMITTED, CANCELED, UNKNOWN, INVALID),
}  # fmt: skip
THEN = {  # the transaction's status after the call, if the call changes it
    ("commit", "ACTIVE"): "COMMITTED",
    ("commit", "READ_ONLY"): "COMMITTED",
    ("cancel", "ACTIVE"): "ABORTED",
    ("cancel", "READ_ONLY"): "ABORTED",
}


def transaction_in(state: str, client: Any, place: Path, manager: TransactionManager) -> str:
    if state == "unknown":
        return "00000000-0000-0000-0000-000000000000"
    if state == "malformed":
        return "no id"
    kind = "READ_ONLY" if state == "READ_ONLY" else "READ_AND_WRITE"
    made = str(client.start_transaction(TransactionType=kind)["TransactionId"])
    if state in ("COMMITTED", "COMMIT_IN_PROGRESS"):
        operations = [add(place / "a", new_name(), 1)]
        client.update_table_objects(**TABLE, TransactionId=made, WriteOperations=operations)
    if state == "COMMITTED":
        client.commit_transaction(TransactionId=made)
    elif state == "ABORTED":
        client.cancel_transaction(TransactionId=made)
    elif state == "COMMIT_IN_PROGRESS":  # the transaction is being committed by a slow process that is still running
        record = manager.coordinator.transaction(made)
        assert record is not None
        assert manager.coordinator.replace(records.committing(record, record.last_activity_ms + 3_600_000))
    return made


@pytest.mark.parametrize("call", EXPECTED)
@pytest.mark.parametrize("state", STATES)
def test_each_call_in_each_state(call: str, state: str, client: Any, place: Path, manager: TransactionManager) -> None:
    transaction = transaction_in(state, client, place, manager)
    name = new_name()
    calls: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "commit": (client.commit_transaction, {}),
        "cancel": (client.cancel_transaction, {}),
        "extend": (client.extend_transaction, {}),
        "describe": (client.describe_transaction, {}),
        "delete": (client.delete_objects_on_cancel, {**TABLE, "Objects": [{"Uri": str(place / "a" / name)}]}),
        "update": (client.update_table_objects, {**TABLE, "WriteOperations": [add(place / "a", name, 1)]}),
        "get": (client.get_table_objects, TABLE),
    }
    function, members = calls[call]
    expected = EXPECTED[call][STATES.index(state)]
    if expected is not None:
        fails(client, expected, function, **members, TransactionId=transaction)
    else:
        answer = function(**members, TransactionId=transaction)
        status = THEN.get((call, state), "ACTIVE" if state == "READ_ONLY" else state)
        if call == "commit":
            assert answer["TransactionStatus"] == status
        described = client.describe_transaction(TransactionId=transaction)["TransactionDescription"]
        assert described["TransactionStatus"] == status
        assert ("TransactionEndTime" in described) == (status in ("COMMITTED", "ABORTED"))


# ---------------------------------------------------------------------------- every exception of the service


def test_a_conflict_cancels_the_transaction_that_comes_second(client: Any, place: Path) -> None:
    name = new_name()
    client.update_table_objects(**TABLE, WriteOperations=[add(place / "a", name, 1)])
    one, two = (client.start_transaction()["TransactionId"] for _ in range(2))
    for each in (one, two):
        operations = [delete(place / "a", name)]
        client.update_table_objects(**TABLE, TransactionId=each, WriteOperations=operations)
    client.commit_transaction(TransactionId=one)
    assert name.rpartition("/")[2] in fails(client, CANCELED, client.commit_transaction, TransactionId=two)
    fails(client, CANCELED, client.commit_transaction, TransactionId=two)
    described = client.describe_transaction(TransactionId=two)["TransactionDescription"]
    assert described["TransactionStatus"] == "ABORTED"


WRONG_CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("start_transaction", INVALID, {"TransactionType": "WRITE_ONLY"}),
    ("extend_transaction", INVALID, {}),
    ("list_transactions", INVALID, {"StatusFilter": "OPEN"}),
    ("list_transactions", INVALID, {"NextToken": "bm90IG91cnM="}),
    ("list_transactions", INVALID, {"CatalogId": "123456789012"}),
    ("get_table_objects", UNKNOWN, {**TABLE, "TableName": "c"}),
    ("get_table_objects", UNKNOWN, {**TABLE, "CatalogId": "123456789012"}),
    ("get_table_objects", INVALID, {**TABLE, "DatabaseName": "bank.x"}),
    ("get_table_objects", INVALID, {**TABLE, "NextToken": "bm90IG91cnM="}),
    (
        "update_table_objects",
        UNKNOWN,
        {**TABLE, "TableName": "c", "WriteOperations": [{"DeleteObject": {"Uri": "/x"}}]},
    ),
    ("update_table_objects", INVALID, {**TABLE, "WriteOperations": [{}]}),
    ("update_table_objects", INVALID, {**TABLE, "WriteOperations": [{"DeleteObject": {"Uri": "/etc/passwd"}}]}),
    ("update_table_objects", INVALID, {**TABLE, "WriteOperations": [{"DeleteObject": {"Uri": "s3://b/k"}}]}),
]


@pytest.mark.parametrize(("call", "exception", "members"), WRONG_CALLS, ids=lambda each: str(each)[:60])
def test_wrong_calls_are_told_so(client: Any, call: str, exception: str, members: dict[str, Any]) -> None:
    fails(client, exception, getattr(client, call), **members)


def test_a_table_that_only_delta_clients_can_read_is_not_ready(
    client: Any, place: Path, manager: TransactionManager
) -> None:
    schema = pa.schema([("id", pa.int64())])
    rows = pa.table({"id": [1, 2, 3]})
    properties = {"delta.enableDeletionVectors": "true"}
    table = manager.create_table("bank.dv", str(place / "dv"), schema, properties=properties, data=rows)
    assert len(client.get_table_objects(DatabaseName="bank", TableName="dv")["Objects"][0]["Objects"]) == 1
    table.delete("id = 2")
    members = {"DatabaseName": "bank", "TableName": "dv"}
    message = fails(client, "ResourceNotReadyException", client.get_table_objects, **members)
    assert "deletion vector" in message


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Served]:
    """A server with another catalog, whose transactions expire soon."""
    with served(
        tmp_path / "other.db", "--set=catalog.idle_timeout_seconds=0.05", "--set=recovery.every_seconds=0"
    ) as made:
        yield made


def test_a_silent_transaction_is_aborted(silent: Served) -> None:
    client = silent.client(config=AT_ONCE)
    started = client.start_transaction()["TransactionId"]
    time.sleep(0.2)
    described = client.describe_transaction(TransactionId=started)["TransactionDescription"]
    assert described["TransactionStatus"] == "ABORTED"
    assert "idle" in fails(client, CANCELED, client.commit_transaction, TransactionId=started)


def test_the_server_cleans_up_after_silent_transactions(tmp_path: Path) -> None:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    manager.create_table("bank.a", str(tmp_path / "a"), SCHEMA, partition_by=["day"])
    with served(
        tmp_path / "catalog.db", "--set=catalog.idle_timeout_seconds=2", "--set=recovery.every_seconds=0.1"
    ) as server:
        client = server.client(config=AT_ONCE)
        started = client.start_transaction()["TransactionId"]
        file = tmp_path / "a/x.parquet"
        client.delete_objects_on_cancel(**TABLE, TransactionId=started, Objects=[{"Uri": str(file)}])
        add(tmp_path / "a", file.name, 1)
        deadline = time.monotonic() + 60
        while file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not file.exists()
        status = manager.coordinator.transaction(started)
        assert status is not None and status.status is records.TransactionStatus.ABORTED


def test_a_catalog_that_is_damaged_is_an_internal_error(silent: Served, tmp_path: Path) -> None:
    client = silent.client(config=AT_ONCE)
    client.start_transaction()
    for file in tmp_path.glob("other.db*"):
        file.write_bytes(b"x" * 8192)
    message = fails(client, "InternalServiceException", client.list_transactions)
    assert "Traceback" not in message and ".py" not in message


def test_a_call_that_takes_too_long_is_a_time_out(place: Path, manager: TransactionManager) -> None:
    with served(place / "catalog.db", "--set=limits.request_seconds=0.3") as server:
        client = server.client(config=AT_ONCE)
        started = client.start_transaction()["TransactionId"]
        with sqlite3.connect(place / "catalog.db", isolation_level=None) as database:
            database.execute("BEGIN IMMEDIATE")
            message = fails(client, "OperationTimeoutException", client.extend_transaction, TransactionId=started)
            database.execute("ROLLBACK")
        database.close()
        assert "may still take effect" in message
        client.commit_transaction(TransactionId=started)


# --------------------------------------------------------------------------------------- paginated results


def test_pages_of_transactions_have_each_once_while_others_start(client: Any) -> None:
    made = [client.start_transaction()["TransactionId"] for _ in range(7)]
    seen: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = client.list_transactions(StatusFilter="ACTIVE", MaxResults=2, **token)
        seen += [each["TransactionId"] for each in page["Transactions"]]
        assert len(page["Transactions"]) <= 2
        if len(seen) < 20:
            client.start_transaction()
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert len(set(seen)) == len(seen) and set(made) <= set(seen)


def test_a_token_belongs_to_its_listing(client: Any) -> None:
    for _ in range(3):
        client.start_transaction()
    token = client.list_transactions(StatusFilter="ACTIVE", MaxResults=1)["NextToken"]
    fails(client, INVALID, client.list_transactions, StatusFilter="ALL", NextToken=token)
    fails(client, INVALID, client.list_transactions, StatusFilter="ACTIVE", NextToken=token[:-4] + "AAAA")
    fails(client, INVALID, client.get_table_objects, **TABLE, NextToken=token)


def test_pages_of_objects_are_of_one_version(client: Any, place: Path) -> None:
    table = {"DatabaseName": "bank", "TableName": "b"}
    names = [new_name() for _ in range(5)]
    client.update_table_objects(**table, WriteOperations=[add(place / "b", name, 1) for name in names])
    whole = client.get_table_objects(**table)["Objects"]
    uris = {each["Uri"] for part in whole for each in part["Objects"]}
    seen: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = client.get_table_objects(**table, MaxResults=2, **token)
        seen += [each["Uri"] for part in page["Objects"] for each in part["Objects"]]
        operations = [add(place / "b", f"zz/{len(seen)}-{next(NUMBERS)}.parquet", 1)]
        client.update_table_objects(**table, WriteOperations=operations)
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert sorted(seen) == sorted(uris)
