"""The transaction calls of AWS Lake Formation: names, members, and the exceptions that each operation lists, are those
of its service model.

Times are in seconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.catalog.records import table_name
from deltalog.errors import CallError, EntityNotFoundError
from deltalog.protocol.partitions import HIVE_NULL
from deltalog.server.answers import (
    CANCELED,
    COMMITTED,
    CONCURRENT,
    IN_PROGRESS,
    INTERNAL,
    INVALID,
    NOT_FOUND,
    NOT_READY,
    TIMEOUT,
)
from deltalog.server.fields import Fields, byte_count
from deltalog.transactions.ledger import TransactionDescription
from deltalog.transactions.manager import TransactionManager, VirtualObject
from deltalog.transactions.table_objects import AddObject, DeleteObject, ObjectPage, TableObject

_TOKEN = 4096
_URI = 1024
_PREDICATE = 4 * 2048  # AWS's model has 2,048 characters


class Needs(enum.Enum):
    """What a call may have to wait for: the catalog only; one table's store too; those of all tables of a
    transaction."""

    CATALOG = "catalog"
    TABLE = "table"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class Operation:
    """A call, the exceptions that it lists, and what it may have to wait for."""

    run: Callable[[TransactionManager, Fields], Mapping[str, Any]]
    errors: frozenset[str]
    needs: Needs


def start_transaction(manager: TransactionManager, given: Fields) -> Mapping[str, Any]:
    kind = given.optional_text("TransactionType") or "READ_AND_WRITE"
    return {"TransactionId": manager.start_transaction(kind)}


def commit_transaction(manager: TransactionManager, given: Fields) -> Mapping[str, Any]:
    return {"TransactionStatus": manager.commit_transaction(given.text("TransactionId")).value}


def cancel_transaction(manager: TransactionManager, given: Fields) -> Mapping[str, Any]:
    manager.cancel_transaction(given.text("TransactionId"))
    return {}


def extend_transaction(manager: TransactionManager, given: Fields) -> Mapping[str, Any]:
    manager.extend_transaction(given.text("TransactionId"))
    return {}


def describe_transaction(manager: TransactionManager, given: Fields) -> Mapping[str, Any]:
    return {"TransactionDescription": _described(manager.describe_transaction(given.text("TransactionId")))}


def list_transactions(manager: TransactionManager, given: Fields) -> Mapping[str, Any]:
    _check_catalog(manager, given)
    page = manager.list_transactions(
        given.optional_text("StatusFilter") or "ALL",
        given.optional_number("MaxResults", 1000),
        given.optional_text("NextToken", _TOKEN),
    )
    return _with_token({"Transactions": [_described(each) for each in page.transactions]}, page.next_token)


def delete_objects_on_cancel(manager: TransactionManager, given: Fields) -> Mapping[str, Any]:
    objects = [VirtualObject(each.text("Uri", _URI), each.optional_text("ETag")) for each in given.objects("Objects")]
    manager.delete_objects_on_cancel(given.text("TransactionId"), _table(manager, given), objects)
    return {}


def update_table_objects(manager: TransactionManager, given: Fields) -> Mapping[str, Any]:
    operations = [_write(each) for each in given.objects("WriteOperations")]
    manager.update_table_objects(_table(manager, given), operations, given.optional_text("TransactionId"))
    return {}


def get_table_objects(manager: TransactionManager, given: Fields) -> Mapping[str, Any]:
    page = manager.get_table_objects(
        _table(manager, given),
        given.optional_text("TransactionId"),
        timestamp=given.optional_time_ms("QueryAsOfTime"),
        where=given.optional_text("PartitionPredicate", _PREDICATE, 0) or None,
        max_results=given.optional_number("MaxResults", 1000),
        next_token=given.optional_text("NextToken", _TOKEN),
    )
    return _with_token({"Objects": _by_partition(page)}, page.next_token)


_ALL = {INTERNAL, TIMEOUT}
_KNOWN = {*_ALL, INVALID, NOT_FOUND}
_ENDS = {*_KNOWN, CONCURRENT}
_TABLE = {*_KNOWN, COMMITTED, CANCELED, NOT_READY}
OPERATIONS: Mapping[str, Operation] = {
    name: Operation(run, frozenset(errors), needs)
    for name, run, errors, needs in (
        ("StartTransaction", start_transaction, _ALL, Needs.CATALOG),
        ("CommitTransaction", commit_transaction, {*_ENDS, CANCELED}, Needs.TRANSACTION),
        (
            "CancelTransaction",
            cancel_transaction,
            {*_ENDS, COMMITTED, IN_PROGRESS},
            Needs.TRANSACTION,
        ),
        (
            "ExtendTransaction",
            extend_transaction,
            {*_KNOWN, COMMITTED, CANCELED, IN_PROGRESS},
            Needs.CATALOG,
        ),
        ("DescribeTransaction", describe_transaction, _KNOWN, Needs.CATALOG),
        ("ListTransactions", list_transactions, {*_ALL, INVALID}, Needs.CATALOG),
        ("DeleteObjectsOnCancel", delete_objects_on_cancel, {*_TABLE, CONCURRENT}, Needs.CATALOG),
        ("UpdateTableObjects", update_table_objects, {*_TABLE, IN_PROGRESS, CONCURRENT}, Needs.TABLE),
        ("GetTableObjects", get_table_objects, _TABLE, Needs.TABLE),
    )
}


# ------------------------------------------------------------------------------------------------- members


def _table(manager: TransactionManager, given: Fields) -> str:
    _check_catalog(manager, given)
    return table_name(given.text("DatabaseName"), given.text("TableName"))


def _check_catalog(manager: TransactionManager, given: Fields) -> None:
    catalog = given.optional_text("CatalogId")
    if catalog not in (None, manager.coordinator.catalog_id):
        raise EntityNotFoundError(f"This server has the catalog {manager.coordinator.catalog_id}, not {catalog}.")


def _write(given: Fields) -> AddObject | DeleteObject:
    added, deleted = given.optional_object("AddObject"), given.optional_object("DeleteObject")
    if (added is None) == (deleted is None):
        raise CallError("Each of WriteOperations has either AddObject or DeleteObject.")
    if added is not None:
        values = added.items("PartitionValues", shortest=0) if added.has("PartitionValues") else []
        if not all(isinstance(value, str) and byte_count(value) <= _URI for value in values):
            raise CallError(f"PartitionValues must be a list of texts of at most {_URI} bytes.")
        return AddObject(added.text("Uri", _URI), added.text("ETag"), added.number("Size"), values)
    assert deleted is not None
    return DeleteObject(deleted.text("Uri", _URI), deleted.optional_text("ETag"))


def _described(found: TransactionDescription) -> Mapping[str, Any]:
    body: dict[str, Any] = {
        "TransactionId": found.transaction_id,
        "TransactionStatus": found.status.value,
        "TransactionStartTime": found.start_ms / 1000,
    }
    if found.end_ms is not None:
        body["TransactionEndTime"] = found.end_ms / 1000
    return body


def _by_partition(page: ObjectPage) -> list[Mapping[str, Any]]:
    """The objects of a page, grouped by partition."""
    ordered = sorted(page.objects, key=lambda each: [value or "" for value in each.partition_values])
    return [
        {"PartitionValues": [value or HIVE_NULL for value in values], "Objects": [_object(each) for each in objects]}
        for values, objects in itertools.groupby(ordered, lambda each: each.partition_values)
    ]


def _object(found: TableObject) -> Mapping[str, Any]:
    known = {} if found.etag is None else {"ETag": found.etag}
    return {"Uri": found.uri, "Size": found.size_bytes, **known}


def _with_token(body: dict[str, Any], token: str | None) -> Mapping[str, Any]:
    return body if token is None else {**body, "NextToken": token}
