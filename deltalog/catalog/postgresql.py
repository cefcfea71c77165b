"""PostgresCoordinator: a catalog in a PostgreSQL database, for any number of machines.

Every change is one READ COMMITTED transaction that first locks the rows that it depends on, and then reads them again;
only the rows of the Delta tables that the change concerns are locked, so that conflicts over one Delta table do not
delay changes of others. SERIALIZABLE with retries would be as safe, but a change could then fail because of changes to
other Delta tables whose rows share a page or an index with its own.

Locks are taken in this order, which prevents deadlocks: the row of the catalog (changes of the set of tables and
required names), the record of the transaction, the rows of tables by id, documents by kind and key. A commit locks the
rows of tables with FOR NO KEY UPDATE. A change that only requires that a marking is still the last one uses FOR KEY
SHARE, which conflicts with new markings (FOR UPDATE) but not with commits. If a deadlock occurs nevertheless, the
change is repeated.

As in a SQLite catalog, records of publications and of deleted parts do not wait for the disk. All other changes do,
even those that SQLite need not sync: a crash of the database server would undo them, while the process that made them
would still run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from deltalog.arguments import safe_repr
from deltalog.catalog import postgresql_schema as layout
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.postgresql_server import Change, PostgresServer, PostgresSettings, Rows, Statement
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
    metadata_mark,
)
from deltalog.errors import CallError
from deltalog.storage.secrets import Reopen

_KEEPS_STAGED = ("catalog", "keeps staged commits")
# The maximum size of the data of parts in one row, and in one statement.
_PIECE_BYTES, _STATEMENT_BYTES, _STATEMENT_ROWS = 8 << 20, 16 << 20, 10_000

_TABLE = "SELECT table_id, name, url, created_ms FROM {schema}.tables"
_NAMES = "SELECT name FROM {schema}.tables WHERE name = ANY(%s::text[])"
_HEAD = """
SELECT t.version, metadata_version, metadata_ms,
    c.version, file, in_commit_timestamp_ms, size_bytes, txn_id, modified_ms, changes_metadata
FROM {schema}.tables t LEFT JOIN {schema}.commits c USING (table_id) WHERE table_id = %s ORDER BY c.version
"""
_LOCK_CATALOG = "SELECT catalog_id FROM {schema}.catalog FOR UPDATE"
_LOCK_TABLES = """
SELECT table_id, version, marks FROM {schema}.tables WHERE table_id = ANY(%s::text[]) ORDER BY table_id
"""
_LOCK_RECORD = "SELECT revision FROM {schema}.transactions WHERE id = %s FOR UPDATE"
_LOCK_DOCUMENTS = """
SELECT kind, key, revision FROM {schema}.documents
WHERE (kind, key) IN (SELECT * FROM unnest(%s::text[], %s::text[])) ORDER BY kind, key FOR UPDATE
"""
# A root is below another root if it begins with that root; "0" is the character after "/".
_CLASHES = """
SELECT 1 FROM {schema}.tables WHERE table_id = %s OR name = %s OR root = ANY(%s::text[])
    OR (root >= %s AND root < %s) LIMIT 1
"""
_REGISTER = """
INSERT INTO {schema}.tables (table_id, name, url, root, created_ms, version, metadata_version)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_MOVE = """
UPDATE {schema}.tables SET version = %s,
    metadata_version = coalesce(%s::bigint, metadata_version), metadata_ms = coalesce(%s::bigint, metadata_ms)
WHERE table_id = %s
"""
_COLUMNS = "version, file, in_commit_timestamp_ms, size_bytes, txn_id, modified_ms, changes_metadata"
_COMMITS = """unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::boolean[])"""
_INSERT_COMMITS = f"INSERT INTO {{schema}}.commits (table_id, {_COLUMNS}) SELECT %s, * FROM {_COMMITS}"
# One statement for the commits of one table: after waiting for the row, PostgreSQL checks its condition again.
_MOVE_AND_INSERT = f"""
WITH moved AS ({_MOVE} AND version = %s AND marks = coalesce(%s::bigint, marks) RETURNING table_id)
INSERT INTO {{schema}}.commits (table_id, {_COLUMNS}) SELECT moved.table_id, each.* FROM moved, {_COMMITS} AS each
"""
_DOCUMENT = "SELECT kind, key, content, revision FROM {schema}.documents"
_INSERT_DOCUMENTS = """
INSERT INTO {schema}.documents (kind, key, revision, content)
SELECT kind, key, 1, content FROM unnest(%s::text[], %s::text[], %s::text[]) AS each (kind, key, content)
ORDER BY kind, key ON CONFLICT DO NOTHING
"""
_UPDATE_DOCUMENTS = """
UPDATE {schema}.documents d SET revision = d.revision + 1, content = each.content
FROM unnest(%s::text[], %s::text[], %s::text[]) AS each (kind, key, content)
WHERE d.kind = each.kind AND d.key = each.key
"""
_DELETE_DOCUMENTS = """
DELETE FROM {schema}.documents WHERE (kind, key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""
_MARKINGS = """
SELECT marks, number, marking FROM {schema}.tables LEFT JOIN {schema}.markings USING (table_id) WHERE table_id = %s
"""
_INSERT_RECORD = """
INSERT INTO {schema}.transactions (id, status, start_ms, revision, record) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING
"""
_REPLACE = """
UPDATE {schema}.transactions SET status = %s, start_ms = %s, revision = %s, record = %s WHERE id = %s AND revision = %s
"""
_PAGE = """
(SELECT start_ms, id, record FROM {schema}.transactions WHERE status = %s AND (start_ms, id) > (%s, %s)
ORDER BY start_ms, id LIMIT %s)
"""
# The query starts from the parts, because many transactions are decided but few of them have parts.
_UNCLEANED = """
WITH owners AS MATERIALIZED (SELECT DISTINCT transaction_id FROM {schema}.parts)
SELECT record FROM owners JOIN {schema}.transactions ON id = transaction_id
WHERE status IN ('COMMITTED', 'ABORTED') AND (start_ms, id) > (%s, %s) ORDER BY start_ms, id LIMIT %s
"""
_DELETE_PARTS = "DELETE FROM {schema}.parts WHERE transaction_id = %s AND digest = ANY(%b::bytea[])"
_PUT_PIECES = """
INSERT INTO {schema}.parts (transaction_id, digest, piece, key, data)
SELECT %s, * FROM unnest(%b::bytea[], %b::integer[], %b::bytea[], %b::bytea[])
"""
_PARTS = """
SELECT key, data FROM {schema}.parts WHERE transaction_id = %s AND substring(key FROM 1 FOR %s) = %b
ORDER BY key, piece
"""
_FIRST = (-(2**63), "")


class PostgresCoordinator(Coordinator):
    """A catalog in the PostgreSQL database at ``url``, ``postgresql://user@host:5432/database``, in the schema that
    ``schema`` in the query of the URL names (``deltalog`` by default); libpq interprets the other parameters. The
    database and its user must exist; a missing schema is created unless ``create`` is false.

    Any number of threads, processes, forks and machines may use the coordinator. Passwords come from PGPASSWORD or a
    password file. PgBouncer works in session mode only: the coordinator sets parameters of its sessions. It prepares no
    statements.

    Raises CallError for an invalid URL, or one with a password; CoordinatorError if the database cannot be reached, is
    a standby or not encoded in UTF-8, or if the schema is not a catalog or was created by a newer deltalog, and then it
    is not changed; EntityNotFoundError if there is no catalog and ``create`` is false. Cost: 1 connection and 1 round
    trip, or 4 round trips to create a catalog.
    """

    if_log_is_ahead = (
        "If the catalog was restored from a backup, or its server failed over to a standby that lacked its last "
        "changes, commits are missing here: deltalog tables resync --dry-run shows which. If the table was being "
        "released, run deltalog tables release again, and open it by its path."
    )

    def __init__(self, url: str, *, settings: PostgresSettings | None = None, create: bool = True) -> None:
        self.url = url
        self._server = PostgresServer(url, settings or PostgresSettings(), create)
        self.keeps_staged_commits = self._server.keeps_staged_commits
        self.reopen = Reopen(PostgresCoordinator, url, settings=settings, create=False)

    @safe_repr
    def __repr__(self) -> str:
        return f"PostgresCoordinator({self.url!r})"

    @property
    def catalog_id(self) -> str:
        return self._server.catalog_id

    def close(self) -> None:
        self._server.close()

    def _sql(self, statement: str) -> str:
        return self._server.sql(statement)

    def _read(self, statement: str, *values: Any) -> Rows:
        """The rows of a query; none if an argument is a text that PostgreSQL cannot store, because then no row can
        match.
        """
        if not all(_is_storable(value) for value in values):
            return []
        return self._server.read(self._sql(statement), values)

    # ----------------------------------------------------------------------------------------------- tables

    def register(self, table: TableRecord, version: int, documents: Sequence[DocumentChange] = ()) -> bool:
        root = layout.root_of(table.url)
        clash = (table.table_id, table.name, layout.roots_around(root), root, f"{root[:-1]}0")
        row = (table.table_id, table.name, table.url, root, table.created_ms, version, version)

        def work(change: Change) -> bool:
            catalog, clashes, *found = change.ask(
                (self._sql(_LOCK_CATALOG), ()), (self._sql(_CLASHES), clash), *self._lock_documents(documents)
            )
            self._check_catalog(catalog)
            if clashes or not _are_current(found, documents) or not self._add_documents(change, documents):
                return False
            change.finish((self._sql(_REGISTER), row), *self._change_documents(documents))
            return True

        return self._server.change(work)

    def drop(
        self, table_id: str, version: int, marks: int | None = None, documents: Sequence[DocumentChange] = ()
    ) -> bool:
        unpublished = "SELECT 1 FROM {schema}.commits WHERE table_id = %s LIMIT 1"
        deletions = [f"DELETE FROM {{schema}}.{name} WHERE table_id = %s" for name in ("markings", "tables")]

        def work(change: Change) -> bool:
            catalog, tables, commits, *found = change.ask(
                (self._sql(_LOCK_CATALOG), ()),
                self._lock_tables([table_id], "FOR UPDATE"),
                (self._sql(unpublished), (table_id,)),
                *self._lock_documents(documents),
            )
            self._check_catalog(catalog)
            wanted = [(table_id, version, tables[0][2] if tables and marks is None else marks)]
            if tables != wanted or commits or not _are_current(found, documents):
                return False
            if not self._add_documents(change, documents):
                return False
            change.finish(*((self._sql(each), (table_id,)) for each in deletions), *self._change_documents(documents))
            return True

        return self._server.change(work)

    def rename(self, table_id: str, name: str, documents: Sequence[DocumentChange] = ()) -> bool:
        rename = "UPDATE {schema}.tables SET name = %s WHERE table_id = %s"

        def work(change: Change) -> bool:
            catalog, tables, names, *found = change.ask(
                (self._sql(_LOCK_CATALOG), ()),
                self._lock_tables([table_id], "FOR UPDATE"),
                (self._sql(_NAMES), ([name],)),
                *self._lock_documents(documents),
            )
            self._check_catalog(catalog)
            if not tables or names or not _are_current(found, documents):
                return False
            if not self._add_documents(change, documents):
                return False
            change.finish((self._sql(rename), (name, table_id)), *self._change_documents(documents))
            return True

        return self._server.change(work)

    def _check_catalog(self, rows: Rows) -> None:
        if rows != [(self.catalog_id,)]:
            raise self._server.replaced()

    def table(self, name: str) -> TableRecord | None:
        rows = self._read(f"{_TABLE} WHERE name = %s", name)
        return TableRecord(*rows[0]) if rows else None

    def table_with_id(self, table_id: str) -> TableRecord | None:
        rows = self._read(f"{_TABLE} WHERE table_id = %s", table_id)
        return TableRecord(*rows[0]) if rows else None

    def tables(self, after: str = "", limit: int = 1000) -> list[TableRecord]:
        rows = self._read(f"{_TABLE} WHERE name > %s ORDER BY name LIMIT %s", after, limit)
        return [TableRecord(*row) for row in rows]

    # ------------------------------------------------------------------------------------------------ heads

    def head(self, table_id: str) -> Head | None:
        rows = self._read(_HEAD, table_id)
        if not rows:
            return None
        commits = tuple(RatifiedCommit(*row[3:]) for row in rows if row[3] is not None)
        return Head(rows[0][0], commits, *rows[0][1:3])

    def cut(self) -> dict[str, int]:
        return dict(self._read("SELECT table_id, version FROM {schema}.tables ORDER BY table_id"))

    def ratify(self, proposal: Proposal) -> Ratification:
        """Cost: 1 round trip for the commits of one table; 2 for those of several tables or with a transaction's
        record, and if the proposal is not ratified; 1 more if a document is new."""
        self.check_times(proposal)
        expected, before, after = proposal.expected, proposal.before, proposal.after
        is_plain = before is None and not proposal.documents and len(proposal.commits) == len(expected) == 1
        if is_plain and proposal.marks.keys() <= expected.keys():
            return self._ratify_one(proposal)
        statements: list[Statement] = [] if before is None else [(self._sql(_LOCK_RECORD), (before.id,))]
        statements.append(self._lock_tables([*expected, *proposal.marks], "FOR NO KEY UPDATE"))
        statements += self._lock_documents(proposal.documents)

        def work(change: Change) -> Ratification:
            found = iter(change.ask(*statements))
            if before is not None and next(found) != [(before.revision,)]:
                return Ratification.DECIDED
            tables = {table_id: (version, last) for table_id, version, last in next(found)}
            if any(tables.get(table_id, (None,))[0] != version for table_id, version in expected.items()):
                return Ratification.MOVED
            if not _are_last(tables, proposal.marks):
                return Ratification.MARKED
            if not _are_current(found, proposal.documents) or not self._add_documents(change, proposal.documents):
                return Ratification.CHANGED
            writes: list[Statement] = [
                statement
                for table_id, commits in proposal.commits.items()
                for statement in (
                    (self._sql(_MOVE), _moved(table_id, commits)),
                    (self._sql(_INSERT_COMMITS), (table_id, *_columns(commits))),
                )
            ]
            if before is not None and after is not None:
                writes.append(self._replacement(after, before.revision))
            change.finish(*writes, *self._change_documents(proposal.documents))
            return Ratification.RATIFIED

        return self._server.change(work)

    def _ratify_one(self, proposal: Proposal) -> Ratification:
        ((table_id, commits),) = proposal.commits.items()
        (version,) = proposal.expected.values()
        last = proposal.marks.get(table_id)
        values = (*_moved(table_id, commits), version, last, *_columns(commits))
        if self._server.change(lambda change: change.at_once(self._sql(_MOVE_AND_INSERT), values)):
            return Ratification.RATIFIED
        found = self._read("SELECT version, marks FROM {schema}.tables WHERE table_id = %s", table_id)
        is_marked = bool(found) and found[0][0] == version and found[0][1] != last
        return Ratification.MARKED if is_marked else Ratification.MOVED

    def published(self, table_id: str, version: int) -> None:
        delete = "DELETE FROM {schema}.commits WHERE table_id = %s AND version <= %s"
        keeps = f"{_DOCUMENT} WHERE kind = %s AND key = %s"

        def work(change: Change) -> bool:
            done = change.finish((self._sql(delete), (table_id, version)), (self._sql(keeps), _KEEPS_STAGED))
            return done[1].fetchone() is not None

        if self._server.change(work, durable=False):  # another process may have started a server on the catalog
            self.keeps_staged_commits = True

    def keep_staged_commits(self) -> None:
        if not self.keeps_staged_commits:
            self.change_documents([DocumentChange(*_KEEPS_STAGED, 0, "")])  # False if another process has done it
            self.keeps_staged_commits = True

    # -------------------------------------------------------------------------------------------- documents

    def document(self, kind: str, key: str) -> Document | None:
        rows = self._read(f"{_DOCUMENT} WHERE kind = %s AND key = %s", kind, key)
        return Document(*rows[0]) if rows else None

    def documents(self, kind: str, after: str = "", limit: int = 1000) -> list[Document]:
        rows = self._read(f"{_DOCUMENT} WHERE kind = %s AND key > %s ORDER BY key LIMIT %s", kind, after, limit)
        return [Document(*row) for row in rows]

    def change_documents(self, changes: Sequence[DocumentChange], free_names: Sequence[str] = ()) -> bool:
        """Cost: 1 round trip for one change; 2 for several or with ``free_names``, 1 more if a document is new."""
        if len(changes) == 1 and not free_names and changes[0] != DocumentChange(*_key(changes[0]), 0, None):
            return self._change_document(changes[0])
        names = [(self._sql(_LOCK_CATALOG), ()), (self._sql(_NAMES), (list(free_names),))] if free_names else []

        def work(change: Change) -> bool:
            found = iter(change.ask(*names, *self._lock_documents(changes)))
            if free_names:
                self._check_catalog(next(found))
                if next(found):
                    return False
            if not _are_current(found, changes) or not self._add_documents(change, changes):
                return False
            change.finish(*self._change_documents(changes))
            return True

        return self._server.change(work)

    def _change_document(self, new: DocumentChange) -> bool:
        key, where = _key(new), "WHERE kind = %s AND key = %s AND revision = %s"
        values: tuple[Any, ...]
        if new.revision == 0:
            statement, values = _INSERT_DOCUMENTS, ([new.kind], [new.key], [new.content])
        elif new.content is None:
            statement, values = f"DELETE FROM {{schema}}.documents {where}", (*key, new.revision)
        else:
            statement = f"UPDATE {{schema}}.documents SET revision = revision + 1, content = %s {where}"
            values = (new.content, *key, new.revision)
        return self._server.change(lambda change: change.at_once(self._sql(statement), values)) == 1

    def _lock_documents(self, changes: Sequence[DocumentChange]) -> list[Statement]:
        """The statement that locks the documents that must exist. The others are locked when they are inserted."""
        present = [each for each in changes if each.revision != 0]
        return [(self._sql(_LOCK_DOCUMENTS), _keys(present))] if present else []

    def _add_documents(self, change: Change, changes: Sequence[DocumentChange]) -> bool:
        """Insert the documents that must not exist, including those whose absence is only a condition, so that a
        concurrent insertion waits for this change. Returns False if one of them exists. Cost: 1 round trip if there are
        any.
        """
        absent = [each for each in changes if each.revision == 0]
        if not absent:
            return True
        statement = (self._sql(_INSERT_DOCUMENTS), (*_keys(absent), [each.content or "" for each in absent]))
        return change.write(statement) == [len(absent)]

    def _change_documents(self, changes: Sequence[DocumentChange]) -> list[Statement]:
        """The statements that replace and delete documents, after ``_add_documents``."""
        replaced = [each for each in changes if each.revision != 0 and each.content is not None]
        deleted = [each for each in changes if each.content is None]
        update = (self._sql(_UPDATE_DOCUMENTS), (*_keys(replaced), [each.content for each in replaced]))
        delete = (self._sql(_DELETE_DOCUMENTS), _keys(deleted))
        return [*([update] if replaced else ()), *([delete] if deleted else ())]

    # ------------------------------------------------------------------------------------------------ marks

    def marks(self, table_id: str) -> Marks:
        rows = self._read(_MARKINGS, table_id)
        markings = {number: msgspec.json.decode(text, type=Marking) for _, number, text in rows if text is not None}
        return Marks(rows[0][0], markings) if rows else Marks()

    def mark(self, table_id: str, number: int, marking: Marking) -> bool:
        update = "UPDATE {schema}.tables SET marks = %s WHERE table_id = %s"
        insert = "INSERT INTO {schema}.markings (table_id, number, marking) VALUES (%s, %s, %s)"

        def work(change: Change) -> bool:
            (tables,) = change.ask(self._lock_tables([table_id], "FOR UPDATE"))
            if not tables or tables[0][2] != number - 1:
                return False
            row = (table_id, number, _encoded(marking))
            change.finish((self._sql(update), (number, table_id)), (self._sql(insert), row))
            return True

        return self._server.change(work)

    def remark(self, table_id: str, number: int, marking: Marking | None) -> None:
        where = "WHERE table_id = %s AND number = %s"
        if marking is None:
            statement, values = f"DELETE FROM {{schema}}.markings {where}", [table_id, number]
        else:
            statement = f"UPDATE {{schema}}.markings SET marking = %s {where}"
            values = [_encoded(marking), table_id, number]
        self._server.change(lambda change: change.at_once(self._sql(statement), values))

    def _lock_tables(self, table_ids: Iterable[str], lock: str) -> Statement:
        return self._sql(f"{_LOCK_TABLES}{lock}"), (sorted(set(table_ids)),)

    # ----------------------------------------------------------------------------------------- transactions

    def insert(self, record: TransactionRecord) -> bool:
        row = (record.id, record.status.value, record.start_ms, record.revision, _encoded(record))
        return self._server.change(lambda change: change.at_once(self._sql(_INSERT_RECORD), row)) == 1

    def transaction(self, transaction_id: str) -> TransactionRecord | None:
        rows = self._read("SELECT record FROM {schema}.transactions WHERE id = %s", transaction_id)
        return _record(rows[0][0]) if rows else None

    def replace(self, record: TransactionRecord) -> bool:
        statement = self._replacement(record, record.revision - 1)
        return self._server.change(lambda change: change.at_once(*statement)) == 1

    def _replacement(self, record: TransactionRecord, revision: int) -> Statement:
        """Replaces the record if its revision is ``revision``."""
        row = (record.status.value, record.start_ms, record.revision, _encoded(record))
        return self._sql(_REPLACE), (*row, record.id, revision)

    def transactions(
        self, statuses: frozenset[TransactionStatus], after: tuple[int, str] | None = None, limit: int = 1000
    ) -> list[TransactionRecord]:
        if not statuses:
            return []
        pages = " UNION ALL ".join([_PAGE] * len(statuses))
        values = [value for status in sorted(statuses) for value in (status.value, *(after or _FIRST), limit)]
        # The pages are read in the order of an index. They are read by a single statement, so that they are of one
        # state.
        listing = f"SELECT record FROM ({pages}) AS page ORDER BY start_ms, id LIMIT %s"
        return [_record(record) for (record,) in self._read(listing, *values, limit)]

    def uncleaned(self, after: tuple[int, str] | None = None, limit: int = 1000) -> list[TransactionRecord]:
        return [_record(record) for (record,) in self._read(_UNCLEANED, *(after or _FIRST), limit)]

    def delete(self, transaction_id: str) -> None:
        record = "DELETE FROM {schema}.transactions WHERE id = %s"  # this lock must be taken before those of the parts
        parts = "DELETE FROM {schema}.parts WHERE transaction_id = %s"
        each = [(self._sql(statement), (transaction_id,)) for statement in (record, parts)]
        self._server.change(lambda change: change.finish(*each))

    # ------------------------------------------------------------------------------------------------ parts

    def put_parts(
        self, record: TransactionRecord, parts: Mapping[str, bytes], marks: Mapping[str, int] | None = None
    ) -> bool:
        """Cost: 2 round trips, and 1 more for each 16 MiB or 10,000 parts."""
        tables = [self._lock_tables(marks, "FOR KEY SHARE")] if marks else []

        def work(change: Change) -> bool:
            revision, *found = change.ask((self._sql(_LOCK_RECORD), (record.id,)), *tables)
            if revision != [(record.revision - 1,)]:
                return False
            if marks and not _are_last({row[0]: row[1:] for row in found[0]}, marks):
                return False
            writes = [self._replacement(record, record.revision - 1)]
            if parts:
                writes.append((self._sql(_DELETE_PARTS), (record.id, [_digest(key) for key in parts])))
            for pieces in _batches(parts):
                if len(writes) > 2:
                    change.write(*writes)
                    writes = []
                columns = [list(column) for column in zip(*pieces, strict=True)]
                writes.append((self._sql(_PUT_PIECES), (record.id, *columns)))
            change.finish(*writes)
            return True

        return self._server.change(work)

    def parts(self, transaction_id: str, prefix: str = "") -> dict[str, bytes]:
        if not _is_storable(transaction_id):
            return {}
        start = _bytes(prefix)
        rows = self._server.read(self._sql(_PARTS), (transaction_id, len(start), start), binary=True)
        pieces: dict[bytes, list[bytes]] = {}
        for key, data in rows:
            pieces.setdefault(key, []).append(data)
        return {key.decode("utf-8", "surrogatepass"): b"".join(data) for key, data in pieces.items()}

    def delete_parts(self, transaction_id: str, keys: Sequence[str] | None = None) -> None:
        if keys is not None and not keys:
            return
        values: list[Any] = [transaction_id]
        statement = "DELETE FROM {schema}.parts WHERE transaction_id = %s"
        if keys is not None:
            statement = _DELETE_PARTS
            values.append([_digest(key) for key in keys])
        self._server.change(lambda change: change.finish((self._sql(statement), values)), durable=False)


def _moved(table_id: str, commits: Sequence[RatifiedCommit]) -> tuple[Any, ...]:
    """The values for the placeholders of _MOVE."""
    return commits[-1].version, *metadata_mark(Head(0), commits), table_id


def _columns(commits: Iterable[RatifiedCommit]) -> Iterator[list[Any]]:
    """The values for the placeholders of _COMMITS."""
    rows = [
        (
            each.version,
            each.file,
            each.in_commit_timestamp_ms,
            each.size_bytes,
            each.txn_id,
            each.modified_ms,
            each.changes_metadata,
        )
        for each in commits
    ]
    return (list(column) for column in zip(*rows, strict=True))


def _key(change: DocumentChange) -> tuple[str, str]:
    return change.kind, change.key


def _keys(changes: Sequence[DocumentChange]) -> tuple[list[str], list[str]]:
    return [each.kind for each in changes], [each.key for each in changes]


def _are_current(found: Iterable[Rows], changes: Sequence[DocumentChange]) -> bool:
    """Whether the documents that must exist have the required revisions. ``found``: the rows of ``_lock_documents``."""
    there = {(kind, key): revision for rows in found for kind, key, revision in rows}
    return all(there.get(_key(each)) == each.revision for each in changes if each.revision != 0)


def _are_last(tables: Mapping[str, tuple[int, int]], marks: Mapping[str, int]) -> bool:
    """Whether these are the last markings of the tables. ``tables``: their versions and last markings."""
    return all(table_id in tables and tables[table_id][1] == number for table_id, number in marks.items())


def _batches(parts: Mapping[str, bytes]) -> Iterator[list[tuple[bytes, int, bytes, bytes]]]:
    """The rows of parts, in batches for one statement each."""
    rows: list[tuple[bytes, int, bytes, bytes]] = []
    size = 0
    for key, part in parts.items():
        digest, name, data = _digest(key), _bytes(key), memoryview(part)
        for number, start in enumerate(range(0, max(1, len(data)), _PIECE_BYTES)):
            piece = bytes(data[start : start + _PIECE_BYTES])
            if rows and (size + len(piece) > _STATEMENT_BYTES or len(rows) >= _STATEMENT_ROWS):
                yield rows
                rows, size = [], 0
            rows.append((digest, number, name, piece))
            size += len(piece) + len(name)
    if rows:
        yield rows


def _bytes(key: str) -> bytes:
    """The key of a part as bytes, because PostgreSQL cannot store every key as text."""
    return key.encode("utf-8", "surrogatepass")


def _digest(key: str) -> bytes:
    """A hash that identifies a part in the index, because the entries of an index must be short."""
    return hashlib.sha256(_bytes(key)).digest()


def _is_storable(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _encoded(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError as error:
        raise CallError(
            "A catalog in PostgreSQL cannot store text with a lone surrogate. Nothing was changed."
        ) from error


def _record(text: str) -> TransactionRecord:
    return msgspec.json.decode(text, type=TransactionRecord)


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in (Marking, TransactionRecord):
    msgspec.json.Decoder(_cls)
