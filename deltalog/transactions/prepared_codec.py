"""Serializes a prepared commit to one table, so that another process can continue the transaction. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Any

from deltalog.commit.prepared import Prepared, Reads
from deltalog.expressions.bind import bind
from deltalog.expressions.bound import Bound
from deltalog.expressions.sql import parse
from deltalog.protocol.actions import (
    AddCDCFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltalog.protocol.codec import AnyAction, decode_actions, encode_action
from deltalog.protocol.schema import StructType
from deltalog.read.origin import text_of

# The attributes of Prepared that hold actions, by kind of action.
_MANY = {
    "adds": AddFile, "removes": RemoveFile, "transactions": SetTransaction, "domains": DomainMetadata,
    "cdc": AddCDCFile,
}  # fmt: skip
_ONE = {"protocol": Protocol, "metadata": Metadata}


def encode_prepared(prepared: Prepared, schema: StructType) -> bytes:
    """``schema``: the schema of the table, to which the predicates in ``reads`` are bound."""
    actions: list[AnyAction] = [action for name in _ONE if (action := getattr(prepared, name)) is not None]
    for name in _MANY:
        actions.extend(getattr(prepared, name))
    plain = {
        each.name: getattr(prepared, each.name)
        for each in dataclasses.fields(Prepared)
        if each.name not in (*_ONE, *_MANY, "reads", "add_lines")
    }
    head = {**plain, "reads": _reads_as_json(prepared.reads, schema)}
    return b"\n".join([json.dumps(head, ensure_ascii=False).encode(), *map(encode_action, actions)])


def decode_prepared(data: bytes, schema: StructType) -> Prepared:
    """The inverse of ``encode_prepared``, for the same schema."""
    first, _, rest = data.partition(b"\n")
    head: dict[str, Any] = json.loads(first)
    actions = decode_actions(rest)
    fields: dict[str, Any] = {
        name: tuple(action for action in actions if isinstance(action, kind)) for name, kind in _MANY.items()
    }
    for name, kind in _ONE.items():
        fields[name] = next((action for action in actions if isinstance(action, kind)), None)
    head["written"] = tuple(head["written"])
    head["reads"] = _reads_from_json(head["reads"], schema)
    return Prepared(**head, **fields)


def written_files(data: bytes) -> list[str]:
    """The paths of the files that were written for a change, in the form used in its add actions."""
    written: list[str] = json.loads(data.partition(b"\n")[0])["written"]
    return written


def added_files(data: bytes) -> list[AddFile]:
    """The add actions of a change."""
    return [action for action in decode_actions(data.partition(b"\n")[2]) if isinstance(action, AddFile)]


def _reads_as_json(reads: Reads, schema: StructType) -> dict[str, Any]:
    texts = [text_of(predicate, schema) for predicate in reads.predicates]
    return {
        # A predicate that cannot be written as SQL text is replaced with a read of the whole table.
        "whole_table": reads.whole_table or None in texts,
        "predicates": [text for text in texts if text is not None],
        "files": sorted(reads.files),
        "app_ids": sorted(reads.app_ids),
        "metadata": reads.metadata,
        "domains": reads.domains,
    }


def _reads_from_json(body: dict[str, Any], schema: StructType) -> Reads:
    return Reads(
        whole_table=body["whole_table"],
        predicates=tuple(_bound(body["predicates"], schema)),
        files=frozenset(body["files"]),
        app_ids=frozenset(body["app_ids"]),
        metadata=body["metadata"],
        domains=body["domains"],
    )


def _bound(texts: Iterable[str], schema: StructType) -> Iterator[Bound]:
    return (bind(parse(text), schema) for text in texts)
