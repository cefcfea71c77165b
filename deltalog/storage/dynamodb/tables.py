"""The DynamoDB tables of the commit protocols: defines their keys, and creates them.

A commit never creates a missing table, because a new table in the wrong region would not exclude other writers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.arguments import checked
from deltalog.errors import CallError, CommitTableError, StoreError
from deltalog.storage import option_names
from deltalog.storage.dynamodb.client import OPTIONS, DynamoTable

_CREATION_SECONDS = 300

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of commit table: the string attributes that are its key, and the number attribute with the Unix time in
    seconds after which DynamoDB may delete an item (None: items never expire)."""

    name: str
    hash_key: str
    range_key: str
    ttl_attribute: str | None


KINDS = {
    kind.name: kind
    for kind in (
        Kind("dynamo", "path", "etag", "ttl"),
        Kind("s3-dynamodb", "tablePath", "fileName", "expireTime"),
        Kind("catalog", "pk", "sk", None),
    )
}


@dataclass(frozen=True, slots=True)
class CommitTable:
    """The state of a DynamoDB table. ``expires``: whether DynamoDB deletes expired items; None if the service does not
    report it. ``created``: whether this call created the DynamoDB table."""

    name: str
    kind: str
    status: str
    expires: bool | None
    created: bool


@checked
def create_commit_table(
    name: str,
    kind: str = "dynamo",
    /,
    *,
    dynamodb_endpoint_url: str | None = None,
    **storage_options: Any,
) -> CommitTable:
    """Create the DynamoDB table of a commit protocol, with billing per request and expiry enabled, and wait until it is
    active.

    ``kind``: ``dynamo`` or ``s3-dynamodb`` (commit protocols), or ``catalog`` for the DynamoDB table of a catalog,
    whose items do not expire. ``storage_options``: key, secret, token, endpoint_url and so on, as for a Delta table on
    S3 that commits through this DynamoDB table. An existing table is kept, and expiry is enabled for it.

    Raises CommitTableError if an existing table has other keys, StoreError, CallError. Cost: 4 requests,
    and 1 for each second of waiting.
    """
    table, wanted = _table(name, kind, dynamodb_endpoint_url, storage_options)
    created = _create(table, wanted)
    _await_active(table)
    check_table(table, wanted)
    expires = _expires(table, wanted)
    if expires is False and wanted.ttl_attribute is not None:
        expires = _make_expire(table, wanted)
    return CommitTable(name, kind, "ACTIVE", expires, created)


@checked
def describe_commit_table(
    name: str,
    kind: str = "dynamo",
    /,
    *,
    dynamodb_endpoint_url: str | None = None,
    **storage_options: Any,
) -> CommitTable:
    """The state of the DynamoDB table of a commit protocol. Changes nothing. Arguments and errors as for
    ``create_commit_table``. Cost: 2 requests."""
    table, wanted = _table(name, kind, dynamodb_endpoint_url, storage_options)
    status = check_table(table, wanted)
    return CommitTable(name, kind, status, _expires(table, wanted), False)


def check_table(table: DynamoTable, kind: Kind) -> str:
    """The table's status. Raises CommitTableError if it does not exist or has other keys. Cost: 1 request."""
    description = table.ask("describe_table")["Table"]
    types = {each["AttributeName"]: each["AttributeType"] for each in description["AttributeDefinitions"]}
    keys = [(each["KeyType"], each["AttributeName"]) for each in description["KeySchema"]]
    found = sorted((role, name, types.get(name)) for role, name in keys)
    wanted = [("HASH", kind.hash_key, "S"), ("RANGE", kind.range_key, "S")]
    if found != wanted:
        shown = ", ".join(f"{role} {name} ({type_})" for role, name, type_ in found)
        raise CommitTableError(
            f"The DynamoDB table {table.name!r} has the key {shown}; commits of the kind {kind.name!r} need HASH "
            f"{kind.hash_key} (S), RANGE {kind.range_key} (S). Nothing was committed. Name another table, or create "
            f"one: deltalog commit-table create NAME --kind {kind.name}.",
            table=table.name,
        )
    return str(description["TableStatus"])


class FirstUse:
    """Checks the keys of a commit table once, before the first commit through it."""

    def __init__(self, table: DynamoTable, kind: str) -> None:
        self._table = table
        self._kind = KINDS[kind]
        self._done = False

    def __call__(self) -> None:
        if self._done:
            return
        try:
            check_table(self._table, self._kind)
        except CommitTableError:
            raise
        except StoreError as error:
            if not _service_code(error).startswith("AccessDenied"):
                raise
            # A commit needs only permission for PutItem and GetItem; both requests fail if the DynamoDB table has other
            # key columns.
            log.info("the keys of the DynamoDB table %s cannot be checked: %s", self._table.name, error)
        self._done = True


def _table(name: str, kind: str, endpoint_url: str | None, options: Mapping[str, Any]) -> tuple[DynamoTable, Kind]:
    if kind not in KINDS:
        raise CallError(f"{kind!r} is not a kind of commit table. Kinds: {', '.join(KINDS)}.")
    options = option_names.of_dynamodb(options)
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise CallError(f"Storage options {unknown} do not apply to DynamoDB. It takes {sorted(OPTIONS)}.")
    return DynamoTable(name, options, endpoint_url=endpoint_url), KINDS[kind]


def _create(table: DynamoTable, kind: Kind) -> bool:
    keys = [(kind.hash_key, "HASH"), (kind.range_key, "RANGE")]
    try:
        table.ask(
            "create_table",
            KeySchema=[{"AttributeName": name, "KeyType": role} for name, role in keys],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )
    except StoreError as error:
        if _service_code(error) != "ResourceInUseException":
            raise
        return False
    return True


def _await_active(table: DynamoTable) -> None:
    timing = table.timing
    deadline = timing.monotonic() + _CREATION_SECONDS
    while (status := str(table.ask("describe_table")["Table"]["TableStatus"])) not in ("ACTIVE", "UPDATING"):
        if timing.monotonic() > deadline:
            raise StoreError(
                f"The DynamoDB table {table.name!r} is still {status} after {_CREATION_SECONDS} s. Check again later.",
                path=table.name,
            )
        timing.sleep(1)


def _expires(table: DynamoTable, kind: Kind) -> bool | None:
    try:
        found = table.ask("describe_time_to_live").get("TimeToLiveDescription", {})
    except StoreError as error:
        log.info("whether items expire cannot be determined: %s", error)
        return None
    return found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") and found.get("AttributeName") == kind.ttl_attribute


def _make_expire(table: DynamoTable, kind: Kind) -> bool:
    try:
        table.ask(
            "update_time_to_live",
            TimeToLiveSpecification={"Enabled": True, "AttributeName": kind.ttl_attribute},
        )
    except StoreError as error:
        log.warning("items of the DynamoDB table %s will not expire: %s", table.name, error)
        return False
    return True


def _service_code(error: StoreError) -> str:
    return error.service_code or ""
