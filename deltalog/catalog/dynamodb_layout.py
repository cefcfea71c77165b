"""The layout of a catalog in DynamoDB: keys of items, and records as attributes. Pure.

The items, by partition and sort key:

    catalog                  catalog         its id, its format, how often tables were registered, dropped or renamed,
                                             and whether staged commits are kept
    heads                    <table id>      the table's record, its version, the last one published, the last marking,
                                             and the last commit that changed metadata
    names                    <full name>     the table's record
    urls                     <hash>          the table's id
    commits <table id>       <version>       a commit that is ratified and not yet published
    marks <table id>         <number>        a marking of objects that a clean-up deletes
    document <kind>          <key>           a document
    transaction <id>         record          its record, and the batches of its parts
    transaction <id>         part …          a piece of a part
    open, done               <start> <id>    the order of transactions in listings: of undecided ones, of decided ones
    left                     <start> <id>    decided transactions that may still have parts
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from deltalog.catalog.dynamodb_actions import Action, Item, Key, check_absent, delete, put, update
from deltalog.catalog.records import (
    Document,
    DocumentChange,
    Marking,
    RatifiedCommit,
    TableRecord,
    TransactionRecord,
)

CATALOG: Key = ("catalog", "catalog")
UNCLEANED = "left"
SHOWN_OF_KEY = 200
# The maximum size of the pieces into which a part is split; a DynamoDB item has at most 400 KB.
_PIECE_BYTES = 256 << 10


def as_json(record: TableRecord | RatifiedCommit | TransactionRecord | Marking) -> str:
    return msgspec.json.encode(record).decode()


def record_of(item: Item) -> TransactionRecord:
    return msgspec.json.decode(item["record"], type=TransactionRecord)


def batches_of(item: Item | None) -> dict[str, int]:
    """The batches of a transaction's parts, numbered in the order of insertion."""
    return {batch: number for number, batch in enumerate(item["batches"] if item else [])}


def commit_of(item: Item) -> RatifiedCommit:
    return msgspec.json.decode(item["commit"], type=RatifiedCommit)


def head_key(table_id: str) -> Key:
    return "heads", table_id


def url_key(url: str) -> Key:
    return "urls", hashlib.sha256(url.encode()).hexdigest()


def marking_of(item: Item) -> Marking:
    return msgspec.json.decode(item["marking"], type=Marking)


def marks_partition(table_id: str) -> str:
    return f"marks {table_id}"


def mark_key(table_id: str, number: int) -> Key:
    return marks_partition(table_id), f"{number:020d}"


def last_mark(marks: Mapping[str, int], table_id: str) -> Item:
    """The condition that the number of the last marking in a table's head item is the expected one. Before the first
    marking, the attribute is absent."""
    return {"marks": marks[table_id] or None} if table_id in marks else {}


def metadata_attribute(mark: tuple[int | None, int | None]) -> Item:
    """The attribute of a head that contains the last commit which changed metadata; none if the mark is unknown."""
    version, ms = mark
    return {} if version is None else {"metadata": f"{version}" if ms is None else f"{version} {ms}"}


def metadata_mark_of(head: Item) -> tuple[int | None, int | None]:
    """The version of the last commit that changed metadata, and its in-commit timestamp."""
    version, _, ms = head.get("metadata", "").partition(" ")
    return int(version) if version else None, int(ms) if ms else None


def document_key(kind: str, key: str) -> Key:
    return f"document {kind}", key


def document_of(kind: str, item: Item) -> Document:
    return Document(kind, item["sk"], item["content"], item["revision"])


def document_changes(changes: Sequence[DocumentChange], token: str) -> list[Action]:
    """The writes of changes of documents."""
    actions = []
    for each in changes:
        key = document_key(each.kind, each.key)
        item = {"content": each.content or "", "revision": each.revision + 1, "token": token}
        if each.content is None:
            actions.append(delete(key, {"revision": each.revision}) if each.revision else check_absent(key))
        elif each.revision == 0:
            actions.append(put(key, item, new=True))
        else:
            actions.append(update(key, item, {"revision": each.revision}))
    return actions


def commit_key(table_id: str, version: int) -> Key:
    return f"commits {table_id}", f"{version:020d}"


def record_key(transaction_id: str) -> Key:
    return f"transaction {transaction_id}", "record"


def sort_order(start_ms: int, transaction_id: str) -> str:
    """The sort key under which a transaction is listed: transactions are ordered by start."""
    return f"{start_ms:016d} {transaction_id}"


def part_prefix(key: str) -> str:
    """The prefix of the sort keys of the items that store one part. The key of a part may be longer than a sort key, so
    it is truncated and its hash is appended."""
    return f"part {key[:SHOWN_OF_KEY]} {hashlib.sha256(key.encode()).hexdigest()} "


def listing(record: TransactionRecord) -> Action:
    """The action that writes the item by which a transaction is listed as open or as decided."""
    return put(
        ("done" if record.status.is_final else "open", sort_order(*record.key)), {"decided": record.status.value}
    )


def replacement(
    record: TransactionRecord, revision: int, token: str, append: Item | None = None, room: Item | None = None
) -> list[Action]:
    """The writes that replace the record of a transaction at ``revision``. ``append``, ``room``: as for ``update``."""
    item = {"record": as_json(record), "revision": record.revision, "token": token}
    actions = [update(record_key(record.id), item, {"revision": revision}, append=append, room=room)]
    if record.status.is_final:
        actions += [
            delete(("open", sort_order(*record.key))),
            listing(record),
            put((UNCLEANED, sort_order(*record.key)), {}),
        ]
    return actions


def pieces_of(transaction_id: str, batch: str, key: str, part: bytes) -> list[Item]:
    """Split the bytes of a transaction's part into DynamoDB items of at most 256 KiB."""
    pieces = [part[start : start + _PIECE_BYTES] for start in range(0, len(part) or 1, _PIECE_BYTES)]
    common = {"pk": record_key(transaction_id)[0], "batch": batch, "key": key, "count": len(pieces)}
    return [
        {**common, "sk": f"{part_prefix(key)}{batch} {number:08d}", "number": number, "data": piece}
        for number, piece in enumerate(pieces)
    ]


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in (Marking, RatifiedCommit, TableRecord, TransactionRecord):
    msgspec.json.Decoder(_cls)
