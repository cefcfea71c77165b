"""Sends requests for the items of a catalog's DynamoDB table and interprets the responses.

Every write uses TransactWriteItems with its own token, which DynamoDB keeps for ten minutes, so that a resent request
takes effect only once. The token is also written into the item, so that a call whose response was lost can read from
the table whether it took effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalog.catalog.dynamodb_actions import Action, Item, Key, decoded, encoded, key_attributes
from deltalog.errors import (
    CommitTableError,
    CoordinatorError,
    OperationTimeoutError,
    StoreError,
    UnansweredRequestError,
)
from deltalog.storage.dynamodb.client import ConditionsFailed, DynamoTable
from deltalog.storage.progress import Pages

MOST_ACTIONS = 100  # of one transaction
# Items per request. DynamoDB allows 25 writes with a total of 16 MB, but a request of that size would exceed its time
# limit.
_MOST_WRITES, _MOST_READS = 16, 100
_RETRIES = 12


@dataclass(frozen=True, slots=True)
class Refusal:
    """The response to a TransactWriteItems request whose conditions failed. ``found``: the existing items by action
    number, None if missing. ``unsettled``: whether an earlier request got no response, so that its outcome is
    unknown."""

    found: Mapping[int, Item | None]
    unsettled: bool

    def is_of(self, token: str) -> bool:
        """Whether the conditions failed because an earlier attempt of the request with this ``token`` took effect."""
        return any(item is not None and item.get("token") == token for item in self.found.values())


class ItemTable:
    """DynamoDB requests for the items of a table. Methods raise CoordinatorError, or OperationTimeoutError if there is
    no response. All reads are consistent."""

    def __init__(self, table: DynamoTable, url: str) -> None:
        self.table = table
        self._url = url

    def transact(self, actions: Sequence[Action], token: str) -> Refusal | None:
        """Execute all actions or none. Returns None if the actions were executed. Cost: 1 request, more while the
        service throttles."""
        named = [{kind: {**each, "TableName": self.table.name}} for action in actions for kind, each in action.items()]
        try:
            with self.errors():
                self.table.ask("transact_write_items", TransactItems=named, ClientRequestToken=token)
        except ConditionsFailed as failed:
            return Refusal({n: decoded(item) or None for n, item in failed.found.items()}, failed.unsettled)
        return None

    def get(self, key: Key) -> Item | None:
        with self.errors():
            item = self.table.ask("get_item", Key=key_attributes(key), ConsistentRead=True).get("Item")
        return decoded(item) if item else None

    def get_at_once(self, keys: Sequence[Key]) -> list[Item | None]:
        """Read at most 100 items as of one instant, outside the transactions of the catalog. Cost: 1 request."""
        gets = [{"Get": {"TableName": self.table.name, "Key": key_attributes(key)}} for key in keys]
        with self.errors():
            responses = self.table.ask("transact_get_items", TransactItems=gets)["Responses"]
        return [decoded(each["Item"]) if each.get("Item") else None for each in responses]

    def get_many(self, keys: Sequence[Key]) -> Iterator[Item]:
        """The items that exist, in the order of the keys. Cost: 1 request per 100."""
        for start in range(0, len(keys), _MOST_READS):
            wanted = keys[start : start + _MOST_READS]
            found = {(item["pk"], item["sk"]): item for item in self._get_batch(wanted)}
            yield from (found[key] for key in wanted if key in found)

    def query(
        self, pk: str, condition: str = "", values: Item | None = None, *, filters: str = "", limit: int | None = None
    ) -> Iterator[Item]:
        """The items of a DynamoDB partition, in the order of their sort keys. ``condition``: on ``sk``. Cost: 1 request
        per MB or ``limit``."""
        expression = f"pk = :pk AND {condition}" if condition else "pk = :pk"
        more: dict[str, Any] = {"FilterExpression": filters} if filters else {}
        if limit is not None:
            more["Limit"] = limit
        pages = Pages(f"the DynamoDB table {self.table.name!r}")
        while True:
            with self.errors():
                page = self.table.ask(
                    "query",
                    KeyConditionExpression=expression,
                    ExpressionAttributeValues=encoded({":pk": pk, **(values or {})}),
                    ConsistentRead=True,
                    **more,
                )
            yield from map(decoded, page["Items"])
            if not page.get("LastEvaluatedKey"):
                return
            with self.errors():
                more["ExclusiveStartKey"] = self.table.following(pages, page)

    def is_empty(self) -> bool:
        with self.errors():
            return not self.table.ask("scan", Limit=1, ConsistentRead=True)["Items"]

    def put_each(self, items: Iterable[Item]) -> None:
        """Put items; each item contains its key. The puts are not atomic. Cost: 1 request per 16."""
        self._write_each([{"PutRequest": {"Item": encoded(item)}} for item in items])

    def delete_each(self, keys: Iterable[Key]) -> None:
        """Delete items; not atomic. Cost: 1 request per 16."""
        self._write_each([{"DeleteRequest": {"Key": key_attributes(key)}} for key in keys])

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except CoordinatorError:
            raise
        except UnansweredRequestError as error:
            raise OperationTimeoutError(
                f"The catalog {self._url} did not respond in time: the change may have taken effect, or may yet do so. "
                f"Read it back before repeating it. {error.message}",
                path=self.table.name,
                service_code=error.service_code,
            ) from error.__cause__
        except StoreError as error:
            hint = " (--kind catalog)" if isinstance(error, CommitTableError) else ""
            raise CoordinatorError(
                f"The catalog {self._url} failed. {error.message}{hint}",
                path=self.table.name,
                service_code=error.service_code,
            ) from error.__cause__

    # ------------------------------------------------------------------------------------ requests in batches

    def _get_batch(self, keys: Sequence[Key]) -> Iterator[Item]:
        wanted: Sequence[Any] = [key_attributes(key) for key in keys]
        for number in range(1, _RETRIES):
            with self.errors():
                request = {self.table.name: {"Keys": wanted, "ConsistentRead": True}}
                answer = self.table.ask("batch_get_item", RequestItems=request)
            yield from map(decoded, answer["Responses"].get(self.table.name, []))
            wanted = answer.get("UnprocessedKeys", {}).get(self.table.name, {}).get("Keys", [])
            if not wanted:
                return
            self.table.timing.back_off(number, 1.0)
        raise self._throttled(CoordinatorError)

    def _write_each(self, requests: Sequence[Any]) -> None:
        for start in range(0, len(requests), _MOST_WRITES):
            try:
                self._write_batch(requests[start : start + _MOST_WRITES])
            except CoordinatorError as error:
                if start == 0:
                    raise
                raise OperationTimeoutError(
                    f"{error.message} Some items were changed.", path=error.path, service_code=error.service_code
                ) from error

    def _write_batch(self, requests: Sequence[Any]) -> None:
        for number in range(1, _RETRIES):
            with self.errors():
                answer = self.table.ask("batch_write_item", RequestItems={self.table.name: requests})
            requests = answer.get("UnprocessedItems", {}).get(self.table.name, [])
            if not requests:
                return
            self.table.timing.back_off(number, 1.0)
        raise self._throttled(OperationTimeoutError)

    def _throttled(self, kind: type[CoordinatorError]) -> CoordinatorError:
        return kind(
            f"The catalog {self._url} repeatedly completed only a part of a request. Check the capacity of the "
            f"DynamoDB table {self.table.name!r}.",
            path=self.table.name,
        )
