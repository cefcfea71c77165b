"""SQLiteCoordinator: a catalog in one SQLite file, for all processes of one machine.

Every change is made in a ``BEGIN IMMEDIATE`` transaction in WAL mode with ``synchronous=FULL``: it is on disk when the
call returns, and a killed process leaves no part of it. Changes that threads of a process make at the same time share
transactions (group commit), and with them the waits for the disk. Changes that a coordinator is allowed to lose are not
synced to disk: a crash of the machine can undo them, but a crash of the process cannot. Readers never wait for writers.

The file must be on a local disk. Network file systems are refused, because neither locks nor the shared memory of
SQLite's WAL work on them. Network file systems are detected only on Linux; on other systems, the caller must avoid
them.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from deltalog.arguments import safe_repr
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.group_commit import Execute
from deltalog.catalog.records import (
    Document,
    DocumentChange,
    Head,
    Marking,
    Marks,
    Proposal,
    Ratification,
    RatifiedCommit,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
    are_nested,
)
from deltalog.catalog.sqlite_file import SQLiteFile, file_path

BUSY_SECONDS = 10.0
_KEEPS_STAGED = ("catalog", "keeps staged commits")

_TABLE = "SELECT table_id, name, url, created_ms FROM tables"
_REGISTER = (
    "INSERT INTO tables (table_id, name, url, created_ms, version, metadata_version) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING"
)
_URLS = "SELECT url FROM tables"
# A single statement reads a consistent state of the file.
_HEAD = """
SELECT tables.version, metadata_version, metadata_ms,
    commits.version, file, in_commit_timestamp_ms, size_bytes, txn_id, modified_ms, changes_metadata
FROM tables LEFT JOIN commits USING (table_id) WHERE table_id = ? ORDER BY commits.version
"""
_DROP = """
DELETE FROM tables WHERE table_id = ? AND version = ? AND table_id NOT IN (SELECT table_id FROM commits)
"""
_VERSION = "SELECT version FROM tables WHERE table_id = ?"
_MOVE = "UPDATE tables SET version = ? WHERE table_id = ?"
_MOVE_METADATA = "UPDATE tables SET metadata_version = ?, metadata_ms = ? WHERE table_id = ?"
_RENAME = "UPDATE tables SET name = ? WHERE table_id = ?"
_COMMIT = "INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_REVISION = "SELECT revision FROM transactions WHERE id = ?"
_INSERT = """
INSERT INTO transactions (id, status, start_ms, revision, record) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_REPLACE = "UPDATE transactions SET status = ?, start_ms = ?, revision = ?, record = ? WHERE id = ? AND revision = ?"
_PAGE = """
SELECT start_ms, id, record FROM transactions WHERE status = ? AND (start_ms, id) > (?, ?) ORDER BY start_ms, id LIMIT ?
"""
# The query starts from the parts, because many transactions are decided but few of them have parts.
_UNCLEANED = """
SELECT record FROM (SELECT DISTINCT transaction_id FROM parts) CROSS JOIN transactions ON id = transaction_id
WHERE status IN ('COMMITTED', 'ABORTED') AND (start_ms, id) > (?, ?) ORDER BY start_ms, id LIMIT ?
"""
_PUT_PART = """
INSERT INTO parts VALUES (?, ?, ?) ON CONFLICT (transaction_id, key) DO UPDATE SET part = excluded.part
"""
_PARTS = "SELECT key, part FROM parts WHERE transaction_id = ? AND key >= ? ORDER BY key"

_DOCUMENT = "SELECT kind, key, content, revision FROM documents"
_DOCUMENT_REVISION = "SELECT revision FROM documents WHERE kind = ? AND key = ?"
_PUT_DOCUMENT = """
INSERT INTO documents (kind, key, revision, content) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, key) DO UPDATE SET revision = excluded.revision, content = excluded.content
"""
_LAST_MARK = "SELECT coalesce(last, 0) FROM tables LEFT JOIN marks USING (table_id) WHERE table_id = ?"
# A single statement reads a consistent state of the file.
_MARKINGS = "SELECT last, number, marking FROM marks LEFT JOIN markings USING (table_id) WHERE table_id = ?"
_SET_LAST = "INSERT INTO marks VALUES (?, ?) ON CONFLICT (table_id) DO UPDATE SET last = excluded.last"


class SQLiteCoordinator(Coordinator):
    """A catalog in the SQLite file at ``path``. A missing file is created unless ``create`` is false; its directory
    must exist.

    Any number of threads, processes and forks may use the coordinator. The coordinator keeps as many connections open
    as the largest number of threads that have used it at the same time. ``busy_seconds``: how long a call waits for
    other writers.

    Raises UnsafeStoreError on a network file system; CallError if ``path`` cannot be a file; CoordinatorError if the
    file is not a catalog or was created by a newer deltalog, and then it is not changed; EntityNotFoundError if there
    is no catalog and ``create`` is false.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, busy_seconds: float = BUSY_SECONDS, create: bool = True
    ) -> None:
        self.path = file_path(path)
        self.url = f"sqlite:///{self.path}"
        self._file = SQLiteFile(self.path, busy_seconds, create)
        self.keeps_staged_commits = self.document(*_KEEPS_STAGED) is not None
        self.reopen = partial(SQLiteCoordinator, self.path, busy_seconds=busy_seconds, create=False)

    @safe_repr
    def __repr__(self) -> str:
        return f"SQLiteCoordinator({self.path!r})"

    @property
    def catalog_id(self) -> str:
        return self._file.catalog_id

    def close(self) -> None:
        self._file.close()

    def _read(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        with self._file.connection() as connection:
            return connection.execute(statement, values).fetchall()

    # ----------------------------------------------------------------------------------------------- tables

    def register(self, table: TableRecord, version: int, documents: Sequence[DocumentChange] = ()) -> bool:
        def make(execute: Execute) -> bool:
            if not _are_current(execute, documents) or any(are_nested(table.url, url) for (url,) in execute(_URLS)):
                return False
            row = (table.table_id, table.name, table.url, table.created_ms, version, version)
            if execute(_REGISTER, row).rowcount != 1:
                return False
            _change_documents(execute, documents)
            return True

        return self._file.write(make)

    def drop(
        self, table_id: str, version: int, marks: int | None = None, documents: Sequence[DocumentChange] = ()
    ) -> bool:
        def make(execute: Execute) -> bool:
            if marks is not None and not _are_last(execute, {table_id: marks}):
                return False
            if not _are_current(execute, documents) or execute(_DROP, (table_id, version)).rowcount != 1:
                return False
            for name in ("marks", "markings"):
                execute(f"DELETE FROM {name} WHERE table_id = ?", (table_id,))
            _change_documents(execute, documents)
            return True

        return self._file.write(make)

    def rename(self, table_id: str, name: str, documents: Sequence[DocumentChange] = ()) -> bool:
        def make(execute: Execute) -> bool:
            if execute("SELECT 1 FROM tables WHERE name = ?", (name,)).fetchone() is not None:
                return False
            if not _are_current(execute, documents) or execute(_RENAME, (name, table_id)).rowcount != 1:
                return False
            _change_documents(execute, documents)
            return True

        return self._file.write(make)

    def table(self, name: str) -> TableRecord | None:
        rows = self._read(f"{_TABLE} WHERE name = ?", (name,))
        return TableRecord(*rows[0]) if rows else None

    def table_with_id(self, table_id: str) -> TableRecord | None:
        rows = self._read(f"{_TABLE} WHERE table_id = ?", (table_id,))
        return TableRecord(*rows[0]) if rows else None

    def tables(self, after: str = "", limit: int = 1000) -> list[TableRecord]:
        return [
            TableRecord(*row) for row in self._read(f"{_TABLE} WHERE name > ? ORDER BY name LIMIT ?", (after, limit))
        ]

    # ------------------------------------------------------------------------------------------------ heads

    def head(self, table_id: str) -> Head | None:
        rows = self._read(_HEAD, (table_id,))
        if not rows:
            return None
        version, metadata_version, metadata_ms = rows[0][:3]
        commits = tuple(
            RatifiedCommit(number, file, ict_ms, size_bytes, txn_id, modified_ms, bool(changes_metadata))
            for _, _, _, number, file, ict_ms, size_bytes, txn_id, modified_ms, changes_metadata in rows
            if number is not None
        )
        return Head(version, commits, metadata_version, metadata_ms)

    def cut(self) -> dict[str, int]:
        return dict(self._read("SELECT table_id, version FROM tables ORDER BY table_id"))

    def ratify(self, proposal: Proposal) -> Ratification:
        self.check_times(proposal)

        def make(execute: Execute) -> Ratification:
            before, after = proposal.before, proposal.after
            if before is not None and execute(_REVISION, (before.id,)).fetchone() != (before.revision,):
                return Ratification.DECIDED
            for table_id, version in proposal.expected.items():
                if execute(_VERSION, (table_id,)).fetchone() != (version,):
                    return Ratification.MOVED
            if not _are_last(execute, proposal.marks):
                return Ratification.MARKED
            if not _are_current(execute, proposal.documents):
                return Ratification.CHANGED
            for table_id, commits in proposal.commits.items():
                execute(_MOVE, (commits[-1].version, table_id))
                for each in commits:
                    row = (each.version, each.file, each.in_commit_timestamp_ms, each.size_bytes, each.txn_id)
                    execute(_COMMIT, (table_id, *row, each.modified_ms, int(each.changes_metadata)))
                    if each.changes_metadata:
                        execute(_MOVE_METADATA, (each.version, each.in_commit_timestamp_ms, table_id))
            _change_documents(execute, proposal.documents)
            if before is not None and after is not None:
                _replace(execute, after, before.revision)
            return Ratification.RATIFIED

        return self._file.write(make)

    def published(self, table_id: str, version: int) -> None:
        def make(execute: Execute) -> None:
            execute("DELETE FROM commits WHERE table_id = ? AND version <= ?", (table_id, version))
            if not self.keeps_staged_commits:  # another process may have begun to serve the catalog
                self.keeps_staged_commits = execute(_DOCUMENT_REVISION, _KEEPS_STAGED).fetchone() is not None

        self._file.write(make, durable=False)

    def keep_staged_commits(self) -> None:
        if not self.keeps_staged_commits:
            self.change_documents([DocumentChange(*_KEEPS_STAGED, 0, "")])  # False if another process has done it
            self.keeps_staged_commits = True

    # -------------------------------------------------------------------------------------------- documents

    def document(self, kind: str, key: str) -> Document | None:
        rows = self._read(f"{_DOCUMENT} WHERE kind = ? AND key = ?", (kind, key))
        return Document(*rows[0]) if rows else None

    def documents(self, kind: str, after: str = "", limit: int = 1000) -> list[Document]:
        where = "WHERE kind = ? AND key > ? ORDER BY key LIMIT ?"
        return [Document(*row) for row in self._read(f"{_DOCUMENT} {where}", (kind, after, limit))]

    def change_documents(self, changes: Sequence[DocumentChange], free_names: Sequence[str] = ()) -> bool:
        def make(execute: Execute) -> bool:
            for name in free_names:
                if execute("SELECT 1 FROM tables WHERE name = ?", (name,)).fetchone() is not None:
                    return False
            if not _are_current(execute, changes):
                return False
            _change_documents(execute, changes)
            return True

        return self._file.write(make)

    # ------------------------------------------------------------------------------------------------ marks

    def marks(self, table_id: str) -> Marks:
        rows = self._read(_MARKINGS, (table_id,))
        markings = {number: msgspec.json.decode(encoded, type=Marking) for _, number, encoded in rows if encoded}
        return Marks(rows[0][0], markings) if rows else Marks()

    def mark(self, table_id: str, number: int, marking: Marking) -> bool:
        def make(execute: Execute) -> bool:
            if not _are_last(execute, {table_id: number - 1}):
                return False
            execute(_SET_LAST, (table_id, number))
            execute("INSERT INTO markings VALUES (?, ?, ?)", (table_id, number, msgspec.json.encode(marking)))
            return True

        return self._file.write(make)

    def remark(self, table_id: str, number: int, marking: Marking | None) -> None:
        def make(execute: Execute) -> None:
            if marking is None:
                execute("DELETE FROM markings WHERE table_id = ? AND number = ?", (table_id, number))
                return
            changed = (msgspec.json.encode(marking), table_id, number)
            execute("UPDATE markings SET marking = ? WHERE table_id = ? AND number = ?", changed)

        self._file.write(make)

    # ----------------------------------------------------------------------------------------- transactions

    def insert(self, record: TransactionRecord) -> bool:
        def make(execute: Execute) -> bool:
            row = (record.id, record.status.value, record.start_ms, record.revision, msgspec.json.encode(record))
            return bool(execute(_INSERT, row).rowcount == 1)

        return self._file.write(make)

    def transaction(self, transaction_id: str) -> TransactionRecord | None:
        rows = self._read("SELECT record FROM transactions WHERE id = ?", (transaction_id,))
        return _record(rows[0][0]) if rows else None

    def replace(self, record: TransactionRecord) -> bool:
        def make(execute: Execute) -> bool:
            return _replace(execute, record, record.revision - 1)

        return self._file.write(make, durable=record.status.is_final)

    def transactions(
        self, statuses: frozenset[TransactionStatus], after: tuple[int, str] | None = None, limit: int = 1000
    ) -> list[TransactionRecord]:
        start = after or (-(2**63), "")
        with self._file.reading() as execute:
            pages = [execute(_PAGE, (status.value, *start, limit)) for status in sorted(statuses)]
            rows = list(itertools.islice(heapq.merge(*pages), limit))
        return [_record(record) for _, _, record in rows]

    def uncleaned(self, after: tuple[int, str] | None = None, limit: int = 1000) -> list[TransactionRecord]:
        return [_record(record) for (record,) in self._read(_UNCLEANED, (*(after or (-(2**63), "")), limit))]

    def delete(self, transaction_id: str) -> None:
        def make(execute: Execute) -> None:
            execute("DELETE FROM parts WHERE transaction_id = ?", (transaction_id,))
            execute("DELETE FROM transactions WHERE id = ?", (transaction_id,))

        self._file.write(make)

    # ------------------------------------------------------------------------------------------------ parts

    def put_parts(
        self, record: TransactionRecord, parts: Mapping[str, bytes], marks: Mapping[str, int] | None = None
    ) -> bool:
        def make(execute: Execute) -> bool:
            if not _are_last(execute, marks or {}):
                return False
            if not _replace(execute, record, record.revision - 1):
                return False
            for key, part in parts.items():
                execute(_PUT_PART, (record.id, key, part))
            return True

        return self._file.write(make)

    def parts(self, transaction_id: str, prefix: str = "") -> dict[str, bytes]:
        with self._file.reading() as execute:
            rows = execute(_PARTS, (transaction_id, prefix))
            return dict(itertools.takewhile(lambda row: row[0].startswith(prefix), rows))

    def delete_parts(self, transaction_id: str, keys: Sequence[str] | None = None) -> None:
        def make(execute: Execute) -> None:
            if keys is None:
                execute("DELETE FROM parts WHERE transaction_id = ?", (transaction_id,))
            for key in keys or ():
                execute("DELETE FROM parts WHERE transaction_id = ? AND key = ?", (transaction_id, key))

        self._file.write(make, durable=False)


def _are_current(execute: Execute, changes: Sequence[DocumentChange]) -> bool:
    """Whether the documents have the revisions that the changes expect."""
    for each in changes:
        found = execute(_DOCUMENT_REVISION, (each.kind, each.key)).fetchone()
        if (0 if found is None else found[0]) != each.revision:
            return False
    return True


def _change_documents(execute: Execute, changes: Sequence[DocumentChange]) -> None:
    for each in changes:
        if each.content is None:
            execute("DELETE FROM documents WHERE kind = ? AND key = ?", (each.kind, each.key))
        else:
            execute(_PUT_DOCUMENT, (each.kind, each.key, each.revision + 1, each.content))


def _are_last(execute: Execute, marks: Mapping[str, int]) -> bool:
    return all(execute(_LAST_MARK, (table_id,)).fetchone() == (number,) for table_id, number in marks.items())


def _replace(execute: Execute, record: TransactionRecord, revision: int) -> bool:
    """Replace the record if its revision is ``revision``; returns whether it was replaced."""
    row = (record.status.value, record.start_ms, record.revision, msgspec.json.encode(record))
    return bool(execute(_REPLACE, (*row, record.id, revision)).rowcount == 1)


def _record(encoded: bytes) -> TransactionRecord:
    return msgspec.json.decode(encoded, type=TransactionRecord)


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in (Marking, TransactionRecord):
    msgspec.json.Decoder(_cls)
