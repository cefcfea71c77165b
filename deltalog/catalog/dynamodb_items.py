"""Items of a catalog's DynamoDB table: keys, values, the actions of a transaction, and requests for them.

Every write goes through TransactWriteItems with a token of its own, which DynamoDB keeps for ten minutes: a request
that is sent again does not count twice. The token is also written into the item, so that a call whose answer got lost
can see in the table whether it took effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalog.errors import CallError, CommitTableError, CoordinatorError, OperationTimeoutError, StoreError
from deltalog.storage.dynamodb_client import ConditionsFailed, DynamoTable

Value = str | int | bytes | list[str]
Item = dict[str, Any]
"""Attributes by name: text (S), whole numbers (N), bytes (B), lists of text (L)."""
Key = tuple[str, str]
Action = dict[str, dict[str, Any]]

MOST_ACTIONS = 100  # of one transaction
_MOST_KEY_BYTES = (2048, 1024)
# Of one request: DynamoDB takes 25 items, and 16 MB; the latter would be too much for the time limit of a request.
_MOST_WRITES, _MOST_READS = 16, 100
_RETRIES = 12


@dataclass(frozen=True, slots=True)
class Refusal:
    """A transaction whose conditions did not hold. ``found``: what was there, by the number of the action, None when
    nothing was. ``unsettled``: it was sent before without an answer."""

    found: Mapping[int, Item | None]
    unsettled: bool

    def is_of(self, token: str) -> bool:
        """Whether what stands in the way was written by the same transaction."""
        return any(item is not None and item.get("token") == token for item in self.found.values())


def put(key: Key, item: Item, *, new: bool = False) -> Action:
    """``new``: only where nothing has this key."""
    action: dict[str, Any] = {"Item": {**_key(key), **_encoded(item)}}
    return {"Put": {**action, **(_condition({}, "attribute_not_exists(pk)") if new else {})}}


def update(
    key: Key,
    item: Item,
    where: Item,
    *,
    append: Item | None = None,
    add: Item | None = None,
    room: Item | None = None,
) -> Action:
    """Change some attributes, lengthen lists, raise numbers, of an item that has the values of ``where`` and, in each
    list of ``room``, fewer elements than that."""
    sets = [f"#{name} = :new_{name}" for name in item]
    sets += [f"#{name} = list_append(#{name}, :new_{name})" for name in append or {}]
    adds = [f"#{name} :new_{name}" for name in add or {}]
    changes = {**item, **(append or {}), **(add or {})}
    action = _condition(where)
    action["ConditionExpression"] += "".join(f" AND size(#{name}) < :room_{name}" for name in room or {})
    action["UpdateExpression"] = f"SET {', '.join(sets)}" + (f" ADD {', '.join(adds)}" if adds else "")
    action["ExpressionAttributeNames"].update({f"#{name}": name for name in (*changes, *(room or {}))})
    values = {f":new_{name}": value for name, value in changes.items()}
    values.update({f":room_{name}": most for name, most in (room or {}).items()})
    action.setdefault("ExpressionAttributeValues", {}).update(_encoded(values))
    return {"Update": {"Key": _key(key), **action}}


def check(key: Key, where: Item) -> Action:
    return {"ConditionCheck": {"Key": _key(key), **_condition(where)}}


def delete(key: Key, where: Item | None = None) -> Action:
    return {"Delete": {"Key": _key(key), **(_condition(where) if where else {})}}


def delete_if_there(key: Key, where: Item) -> Action:
    """Its absence is no refusal."""
    expression = " AND ".join(f"#{name} = :old_{name}" for name in where)
    return {"Delete": {"Key": _key(key), **_condition(where, f"attribute_not_exists(pk) OR ({expression})")}}


class ItemTable:
    """Requests for the items of a table. Raises CoordinatorError, and OperationTimeoutError where an answer is
    missing. All reads are consistent."""

    def __init__(self, table: DynamoTable, url: str) -> None:
        self.table = table
        self._url = url

    def transact(self, actions: Sequence[Action], token: str) -> Refusal | None:
        """All actions or none; None when they are done. Cost: 1 request, more while the service refuses for now."""
        named = [{kind: {**each, "TableName": self.table.name}} for action in actions for kind, each in action.items()]
        try:
            with self.errors():
                self.table.ask("transact_write_items", TransactItems=named, ClientRequestToken=token)
        except ConditionsFailed as failed:
            return Refusal({n: _decoded(item) or None for n, item in failed.found.items()}, failed.unsettled)
        return None

    def get(self, key: Key) -> Item | None:
        with self.errors():
            item = self.table.ask("get_item", Key=_key(key), ConsistentRead=True).get("Item")
        return _decoded(item) if item else None

    def get_at_once(self, keys: Sequence[Key]) -> list[Item | None]:
        """At most 100 items as they are at one instant: none is in the middle of a transaction. Cost: 1 request."""
        gets = [{"Get": {"TableName": self.table.name, "Key": _key(key)}} for key in keys]
        with self.errors():
            responses = self.table.ask("transact_get_items", TransactItems=gets)["Responses"]
        return [_decoded(each["Item"]) if each.get("Item") else None for each in responses]

    def get_many(self, keys: Sequence[Key]) -> Iterator[Item]:
        """Those of the items that are there, in the order of the keys. Cost: 1 request for each 100."""
        for start in range(0, len(keys), _MOST_READS):
            wanted = keys[start : start + _MOST_READS]
            found = {(item["pk"], item["sk"]): item for item in self._get_batch(wanted)}
            yield from (found[key] for key in wanted if key in found)

    def query(
        self, pk: str, condition: str = "", values: Item | None = None, *, filters: str = "", limit: int | None = None
    ) -> Iterator[Item]:
        """The items of a partition in order. ``condition``: on ``sk``. Cost: 1 request for each MB, or ``limit``."""
        expression = f"pk = :pk AND {condition}" if condition else "pk = :pk"
        more: dict[str, Any] = {"FilterExpression": filters} if filters else {}
        if limit is not None:
            more["Limit"] = limit
        while True:
            with self.errors():
                page = self.table.ask(
                    "query",
                    KeyConditionExpression=expression,
                    ExpressionAttributeValues=_encoded({":pk": pk, **(values or {})}),
                    ConsistentRead=True,
                    **more,
                )
            yield from map(_decoded, page["Items"])
            if not page.get("LastEvaluatedKey"):
                return
            more["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def is_empty(self) -> bool:
        with self.errors():
            return not self.table.ask("scan", Limit=1, ConsistentRead=True)["Items"]

    def put_each(self, items: Iterable[Item]) -> None:
        """Put items that have their keys, not all at once. Cost: 1 request for each 16."""
        self._write_each([{"PutRequest": {"Item": _encoded(item)}} for item in items])

    def delete_each(self, keys: Iterable[Key]) -> None:
        """Remove items, not all at once. Cost: 1 request for each 16."""
        self._write_each([{"DeleteRequest": {"Key": _key(key)}} for key in keys])

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except CoordinatorError:
            raise
        except StoreError as error:
            facts = {"path": self.table.name, "answer": error.facts.get("answer", "")}
            if error.facts.get("unsettled"):
                raise OperationTimeoutError(
                    f"The catalog {self._url} did not answer in time: a change may be there, or come later. Ask for it "
                    f"before it is made again. {error.message}",
                    **facts,
                ) from error.__cause__
            hint = " (--kind catalog)" if isinstance(error, CommitTableError) else ""
            raise CoordinatorError(
                f"The catalog {self._url} failed. {error.message}{hint}", **facts
            ) from error.__cause__

    # ----------------------------------------------------------------------------------------------- in parts

    def _get_batch(self, keys: Sequence[Key]) -> Iterator[Item]:
        wanted: Sequence[Any] = [_key(key) for key in keys]
        for number in range(1, _RETRIES):
            with self.errors():
                request = {self.table.name: {"Keys": wanted, "ConsistentRead": True}}
                answer = self.table.ask("batch_get_item", RequestItems=request)
            yield from map(_decoded, answer["Responses"].get(self.table.name, []))
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
                raise OperationTimeoutError(f"{error.message} Some of it was done.", **error.facts) from error

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
            f"The catalog {self._url} did only a part of a request, again and again. Check the capacity of the "
            f"DynamoDB table {self.table.name!r}.",
            path=self.table.name,
        )


def _key(key: Key) -> dict[str, dict[str, str]]:
    for value, most in zip(key, _MOST_KEY_BYTES, strict=True):
        if not value or len(value.encode()) > most:
            raise CallError(
                f"A catalog in DynamoDB cannot keep {value[:80]!r}: names and ids have 1 to some 1000 bytes there."
            )
    return {"pk": {"S": key[0]}, "sk": {"S": key[1]}}


def _condition(where: Item, expression: str = "") -> dict[str, Any]:
    """``where``: values that an item must have; of None, that it is there without the attribute."""
    equal = " AND ".join(
        f"attribute_exists(pk) AND attribute_not_exists(#{name})" if value is None else f"#{name} = :old_{name}"
        for name, value in where.items()
    )
    condition: dict[str, Any] = {
        "ConditionExpression": expression or equal,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if where:
        condition["ExpressionAttributeNames"] = {f"#{name}": name for name in where}
        values = {f":old_{name}": value for name, value in where.items() if value is not None}
        if values:
            condition["ExpressionAttributeValues"] = _encoded(values)
    return condition


def _encoded(item: Mapping[str, Value]) -> dict[str, Any]:
    return {name: _encoded_value(value) for name, value in item.items()}


def _encoded_value(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, int):
        return {"N": str(value)}
    return {"B": value} if isinstance(value, bytes) else {"L": [{"S": each} for each in value]}


def _decoded(item: Mapping[str, Mapping[str, Any]]) -> Item:
    return {name: _decoded_value(value) for name, value in item.items()}


def _decoded_value(value: Mapping[str, Any]) -> Any:
    ((kind, given),) = value.items()
    if kind == "N":
        return int(given)
    return [_decoded_value(each) for each in given] if kind == "L" else given
