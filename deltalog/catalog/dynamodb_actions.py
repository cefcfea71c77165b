"""Converts DynamoDB items to Python values, and builds conditional writes for requests. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalog.errors import CallError

Value = str | int | bytes | list[str]
Item = dict[str, Any]
"""Attributes by name: text (S), whole numbers (N), bytes (B), lists of text (L)."""
Key = tuple[str, str]
Action = dict[str, dict[str, Any]]

_MOST_KEY_BYTES = (2048, 1024)


def put(key: Key, item: Item, *, new: bool = False) -> Action:
    """Write an item. ``new``: put the item only if the key does not exist."""
    action: dict[str, Any] = {"Item": {**key_attributes(key), **encoded(item)}}
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
    """Set attributes, append to lists and add to numbers, if the item has the values ``where`` and the lists in
    ``room`` have fewer elements than specified."""
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
    action.setdefault("ExpressionAttributeValues", {}).update(encoded(values))
    return {"Update": {"Key": key_attributes(key), **action}}


def check(key: Key, where: Item) -> Action:
    return {"ConditionCheck": {"Key": key_attributes(key), **_condition(where)}}


def check_absent(key: Key) -> Action:
    return {"ConditionCheck": {"Key": key_attributes(key), **_condition({}, "attribute_not_exists(pk)")}}


def delete(key: Key, where: Item | None = None) -> Action:
    return {"Delete": {"Key": key_attributes(key), **(_condition(where) if where else {})}}


def delete_if_exists(key: Key, where: Item) -> Action:
    """Like ``delete``, but succeeds if the item does not exist."""
    expression = " AND ".join(f"#{name} = :old_{name}" for name in where)
    return {"Delete": {"Key": key_attributes(key), **_condition(where, f"attribute_not_exists(pk) OR ({expression})")}}


def key_attributes(key: Key) -> dict[str, dict[str, str]]:
    for value, most in zip(key, _MOST_KEY_BYTES, strict=True):
        if not value or len(value.encode()) > most:
            raise CallError(
                f"A catalog in DynamoDB cannot store {value[:80]!r}: names and ids must have 1 to about 1000 bytes."
            )
    return {"pk": {"S": key[0]}, "sk": {"S": key[1]}}


def _condition(where: Item, expression: str = "") -> dict[str, Any]:
    """Build a condition. ``where``: the values that an item must have, keyed by attribute; None means that the item
    must exist without this attribute."""
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
            condition["ExpressionAttributeValues"] = encoded(values)
    return condition


def encoded(item: Mapping[str, Value]) -> dict[str, Any]:
    return {name: _encoded_value(value) for name, value in item.items()}


def _encoded_value(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, int):
        return {"N": str(value)}
    return {"B": value} if isinstance(value, bytes) else {"L": [{"S": each} for each in value]}


def decoded(item: Mapping[str, Mapping[str, Any]]) -> Item:
    return {name: _decoded_value(value) for name, value in item.items()}


def _decoded_value(value: Mapping[str, Any]) -> Any:
    ((kind, given),) = value.items()
    if kind == "N":
        return int(given)
    return [_decoded_value(each) for each in given] if kind == "L" else given
