"""The transaction calls of AWS Lake Formation. The names, members and exceptions are taken from AWS's service model.

Times are in seconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.catalog.records import table_name
from deltalog.errors import CallError, EntityNotFoundError
from deltalog.protocol.partitions import HIVE_NULL
from deltalog.server.access import rules
from deltalog.server.access.rules import Rule
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
from deltalog.server.calls import Call, Context, Needs
from deltalog.server.fields import Fields
from deltalog.transactions.ledger import TransactionDescription
from deltalog.transactions.manager import TransactionManager, VirtualObject
from deltalog.transactions.table_objects import AddObject, DeleteObject, ObjectPage, TableObject

_TOKEN = 4096
_URI = 1024
_PREDICATE = 4 * 2048  # the limit in AWS's model is 2,048 characters


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation. ``read``: creates the call from the request's members, and checks all lengths. ``errors``: the
    exceptions that AWS's service model lists for the operation. ``access``: what the call needs. ``needs``: what the
    call may have to wait for: the catalog, or also the stores of one or more tables."""

    read: Callable[[Fields], Call]
    errors: frozenset[str]
    needs: Needs
    access: Rule


def start_transaction(given: Fields) -> Call:
    kind = given.optional_text("TransactionType") or "READ_AND_WRITE"

    def run(context: Context) -> Mapping[str, Any]:
        context.guard.case("READ_ONLY" if kind == "READ_ONLY" else "READ_AND_WRITE")
        return {"TransactionId": context.manager.start_transaction(kind, starter=context.guard.owner)}

    return Call(run)


def commit_transaction(given: Fields) -> Call:
    def commit(context: Context, id_: str) -> Mapping[str, Any]:
        if not context.guard.is_admin:
            context.guard.check_tables(context.manager.changed_tables(id_))
        return {"TransactionStatus": context.manager.commit_transaction(id_).value}

    return _in_transaction(given, commit)


def cancel_transaction(given: Fields) -> Call:
    return _in_transaction(given, lambda context, id_: _nothing(context.manager.cancel_transaction, id_))


def extend_transaction(given: Fields) -> Call:
    return _in_transaction(given, lambda context, id_: _nothing(context.manager.extend_transaction, id_))


def describe_transaction(given: Fields) -> Call:
    def describe(context: Context, id_: str) -> Mapping[str, Any]:
        return {"TransactionDescription": _described(context.manager.describe_transaction(id_))}

    return _in_transaction(given, describe, is_changed=False)


def _nothing(change: Callable[[str], None], transaction_id: str) -> Mapping[str, Any]:
    change(transaction_id)
    return {}


def _in_transaction(
    given: Fields, run: Callable[[Context, str], Mapping[str, Any]], *, is_changed: bool = True
) -> Call:
    id_ = given.text("TransactionId")

    def checked(context: Context) -> Mapping[str, Any]:
        context.guard.check_transaction(context.manager.coordinator, id_, is_changed=is_changed)
        return run(context, id_)

    return Call(checked, transaction_id=id_)


def list_transactions(given: Fields) -> Call:
    catalog = given.optional_text("CatalogId")
    wanted = given.optional_text("StatusFilter") or "ALL"
    max_results, token = given.optional_number("MaxResults", 1000), given.optional_text("NextToken", _TOKEN)

    def run(context: Context) -> Mapping[str, Any]:
        manager, guard = context.manager, context.guard
        _check_catalog(manager, catalog)
        page = manager.list_transactions(wanted, max_results, token, starter=guard.own_transactions())
        return _with_token({"Transactions": [_described(each) for each in page.transactions]}, page.next_token)

    return Call(run)


def delete_objects_on_cancel(given: Fields) -> Call:
    name, catalog, id_ = _table(given), given.optional_text("CatalogId"), given.text("TransactionId")
    objects = [VirtualObject(each.text("Uri", _URI), each.optional_text("ETag")) for each in given.objects("Objects")]

    def run(context: Context) -> Mapping[str, Any]:
        manager, guard = context.manager, context.guard
        _check_catalog(manager, catalog)
        guard.check_transaction(manager.coordinator, id_)
        manager.delete_objects_on_cancel(id_, name, objects, caller=guard)
        return {}

    return Call(run, name, id_)


def update_table_objects(given: Fields) -> Call:
    name, catalog, id_ = _table(given), given.optional_text("CatalogId"), given.optional_text("TransactionId")
    operations = [_write(each) for each in given.objects("WriteOperations")]

    def run(context: Context) -> Mapping[str, Any]:
        manager, guard = context.manager, context.guard
        _check_catalog(manager, catalog)
        if id_ is not None:
            guard.check_transaction(manager.coordinator, id_)
        manager.update_table_objects(name, operations, id_, caller=guard)
        return {}

    return Call(run, name, id_)


def get_table_objects(given: Fields) -> Call:
    name, catalog, id_ = _table(given), given.optional_text("CatalogId"), given.optional_text("TransactionId")
    timestamp = given.optional_time_ms("QueryAsOfTime")
    where = given.optional_text("PartitionPredicate", _PREDICATE, 0) or None
    max_results, token = given.optional_number("MaxResults", 1000), given.optional_text("NextToken", _TOKEN)

    def run(context: Context) -> Mapping[str, Any]:
        manager, guard = context.manager, context.guard
        _check_catalog(manager, catalog)
        if id_ is not None:
            guard.check_transaction(manager.coordinator, id_)
        page = manager.get_table_objects(
            name, id_, timestamp=timestamp, where=where, max_results=max_results, next_token=token, caller=guard
        )
        return _with_token({"Objects": _by_partition(page)}, page.next_token)

    return Call(run, name, id_)


_ALL = {INTERNAL, TIMEOUT}
_KNOWN = {*_ALL, INVALID, NOT_FOUND}
_ENDS = {*_KNOWN, CONCURRENT}
_TABLE = {*_KNOWN, COMMITTED, CANCELED, NOT_READY}
OPERATIONS: Mapping[str, Operation] = {
    name: Operation(read, frozenset(errors), needs, access)
    for name, access, read, errors, needs in (
        ("StartTransaction", rules.START_TRANSACTION, start_transaction, _ALL, Needs.CATALOG),
        ("CommitTransaction", rules.COMMIT_TRANSACTION, commit_transaction, {*_ENDS, CANCELED}, Needs.TRANSACTION),
        (
            "CancelTransaction",
            rules.OWN_TRANSACTION,
            cancel_transaction,
            {*_ENDS, COMMITTED, IN_PROGRESS},
            Needs.TRANSACTION,
        ),
        (
            "ExtendTransaction",
            rules.OWN_TRANSACTION,
            extend_transaction,
            {*_KNOWN, COMMITTED, CANCELED, IN_PROGRESS},
            Needs.CATALOG,
        ),
        ("DescribeTransaction", rules.OWN_TRANSACTION, describe_transaction, _KNOWN, Needs.CATALOG),
        ("ListTransactions", rules.OWN_TRANSACTION, list_transactions, {*_ALL, INVALID}, Needs.CATALOG),
        ("DeleteObjectsOnCancel", rules.WRITE_TABLE, delete_objects_on_cancel, {*_TABLE, CONCURRENT}, Needs.CATALOG),
        (
            "UpdateTableObjects",
            rules.WRITE_TABLE,
            update_table_objects,
            {*_TABLE, IN_PROGRESS, CONCURRENT},
            Needs.TABLE,
        ),
        ("GetTableObjects", rules.READ_TABLE, get_table_objects, _TABLE, Needs.TABLE),
    )
}


# ------------------------------------------------------------------------------------------------- members


def _table(given: Fields) -> str:
    return table_name(given.text("DatabaseName"), given.text("TableName"))


def _check_catalog(manager: TransactionManager, catalog: str | None) -> None:
    if catalog not in (None, manager.coordinator.catalog_id):
        raise EntityNotFoundError(f"This server has the catalog {manager.coordinator.catalog_id}, not {catalog}.")


def _write(given: Fields) -> AddObject | DeleteObject:
    added, deleted = given.optional_object("AddObject"), given.optional_object("DeleteObject")
    if (added is None) == (deleted is None):
        raise CallError("Every item of WriteOperations must have either AddObject or DeleteObject.")
    if added is not None:
        values = added.texts("PartitionValues", _URI)
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
