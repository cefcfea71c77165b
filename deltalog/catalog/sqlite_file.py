"""The SQLite file of a catalog: its schema, its connections, and the interpretation of SQLite's errors."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import urllib.parse
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from deltalog.catalog.group_commit import Change, Execute, GroupCommit
from deltalog.errors import (
    CallError,
    CoordinatorError,
    EntityNotFoundError,
    OperationTimeoutError,
    UnsafeStoreError,
)
from deltalog.storage.mounts import network_file_system

R = TypeVar("R")

SCHEMA_VERSION = 3
_APPLICATION_ID = 0x6443_4154  # in the header of the file: "dCAT"
_RETRY_SECONDS = 0.01
_CHECK_SECONDS = 1.0

# With SQLite before 3.37, which does not support STRICT, the tables are not STRICT. Column types are thus not enforced,
# but only deltalog writes to the tables.
_STRICT = "STRICT" if sqlite3.sqlite_version_info >= (3, 37) else ""
_SCHEMA = (
    f"CREATE TABLE catalog (catalog_id TEXT NOT NULL) {_STRICT}",
    f"""CREATE TABLE tables (
        table_id TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        url TEXT NOT NULL UNIQUE,
        created_ms INTEGER NOT NULL,
        version INTEGER NOT NULL
    ) {_STRICT}""",
    f"""CREATE TABLE commits (
        table_id TEXT NOT NULL REFERENCES tables,
        version INTEGER NOT NULL,
        file TEXT NOT NULL,
        in_commit_timestamp_ms INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        txn_id TEXT NOT NULL,
        PRIMARY KEY (table_id, version)
    ) WITHOUT ROWID{_STRICT and ", " + _STRICT}""",
    f"""CREATE TABLE transactions (
        id TEXT NOT NULL PRIMARY KEY,
        status TEXT NOT NULL,
        start_ms INTEGER NOT NULL,
        revision INTEGER NOT NULL,
        record BLOB NOT NULL
    ) {_STRICT}""",
    "CREATE INDEX transactions_by_status ON transactions (status, start_ms, id)",
    f"""CREATE TABLE parts (
        transaction_id TEXT NOT NULL,
        key TEXT NOT NULL,
        part BLOB NOT NULL,
        PRIMARY KEY (transaction_id, key)
    ) {_STRICT}""",
)
# Added in version 2 of the schema. ``last`` is the last number used, even if the marking with this number was deleted.
_MARKS = (
    f"CREATE TABLE marks (table_id TEXT NOT NULL PRIMARY KEY, last INTEGER NOT NULL) {_STRICT}",
    f"""CREATE TABLE markings (
        table_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        marking BLOB NOT NULL,
        PRIMARY KEY (table_id, number)
    ) {_STRICT}""",
)
# Added in version 3 of the schema. Whether earlier commits changed metadata is unknown; the version at the upgrade is
# the latest at which they can have changed it.
_DOCUMENTS = (
    f"""CREATE TABLE documents (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        revision INTEGER NOT NULL,
        content TEXT NOT NULL,
        PRIMARY KEY (kind, key)
    ) {_STRICT}""",
    "ALTER TABLE tables ADD COLUMN metadata_version INTEGER",
    "ALTER TABLE tables ADD COLUMN metadata_ms INTEGER",
    "ALTER TABLE commits ADD COLUMN modified_ms INTEGER",
    "ALTER TABLE commits ADD COLUMN changes_metadata INTEGER NOT NULL DEFAULT 0",
    "UPDATE tables SET metadata_version = version",
)

# The errors are recognized by SQLite's messages, because Python 3.10 does not expose error codes.
_ADVICE = {
    "locked": "Another process held its lock for too long. Try again, and check for hanging processes.",
    "is full": "Free space on its disk and try again.",
    "malformed": "It is damaged: restore a backup, or save its readable data with the command .recover of sqlite3.",
    "not a database": "Name another file, or one that does not exist yet.",
    "readonly": "Reading a catalog also writes locks: grant write permission on the file and its directory.",
    "unable to open": "Its directory must exist and be writable.",
    "too big": "A value of 1 GB or more cannot be stored.",
}
# If COMMIT fails with one of these errors, nothing was written; if it fails with any other error, the change may have
# been written.
_WITHOUT_EFFECT = ("locked", "is full")

_Identity = tuple[int, int]


class SQLiteFile:
    """Connections to a catalog that is stored in one file. A connection is used by one thread at a time and never by a
    forked child.

    ``create``: whether a missing file is created. Raises as SQLiteCoordinator.
    """

    def __init__(self, path: str, busy_seconds: float, create: bool) -> None:
        self.path = path
        self.catalog_id = ""
        self._busy_seconds = busy_seconds
        self._checked_s = time.monotonic()
        self._reset()
        _OPEN.add(self)
        kind = network_file_system(path)
        if kind is not None:
            raise UnsafeStoreError(
                f"{path} is on a network file system ({kind}), where SQLite's locks are not reliable and two "
                "processes could ratify the same version. Keep the catalog on a disk of this machine, or in DynamoDB."
            )
        if not (create or os.path.exists(path)):
            raise self._absent()
        with self.errors():
            self._make(create)

    def forget(self) -> None:
        """Discard the parent's connections after a fork. Closing a connection of the parent here would interfere with
        the parent's locks and files."""
        _INHERITED.append(self._all)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._group = GroupCommit(self._commit, self._busy_seconds)
        self._idle: list[tuple[_Identity, sqlite3.Connection]] = []
        self._all: set[sqlite3.Connection] = set()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            self._close(connection)

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for the block. A transaction that is still open at the end is rolled back."""
        with self.errors(), self._borrowed() as connection:
            yield connection

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        identity, connection = self._take()
        try:
            self._check_version_again(connection)
            yield connection
        finally:
            self._give_back(identity, connection)

    def write(self, make: Callable[[Execute], R], *, durable: bool = True) -> R:
        """Run ``make`` in a write transaction, and return its result after the COMMIT. If it raises, none of its
        changes is kept. Unless ``durable`` is set, the transaction does not wait for the disk; it becomes durable at
        the latest with the next durable transaction. ``make`` may run in another thread, and again if its transaction
        fails.

        Changes of several threads share a transaction. They do not wait for SQLite's lock on the file one by one:
        SQLite polls that lock with growing pauses, so that a writer could lose to others again and again."""
        change = Change(make, durable)
        with self.errors():
            if not self._group.run(change):
                raise sqlite3.OperationalError("database is locked")
        if change.error is not None:
            with self.errors(committing=change.may_have_effect):
                raise change.error
        result: R = change.result
        return result

    def _commit(self, changes: Iterable[Change], durable: bool) -> None:
        """Make changes in one transaction. If it fails, make each of them in its own transaction, so that one failing
        change does not affect the others.
        """
        made: list[Change] = []
        committing = False
        try:
            with self._borrowed() as connection:
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                connection.execute("BEGIN IMMEDIATE")
                self._check_version(_pragma(connection, "user_version"))
                for change in changes:
                    made.append(change)
                    change.result = change.make(connection.execute)
                committing = True
                connection.execute("COMMIT")
            for change in made:
                change.is_done = True
        except Exception as error:
            if committing and not _is_without_effect(error):
                for change in made:
                    change.fail(type(error)(*error.args), may_have_effect=True)
            elif len(made) == 1:
                made[0].fail(error)
            elif made:
                self._commit_each(made)
            else:
                raise
        except BaseException:  # such as KeyboardInterrupt
            for change in made if committing else ():
                change.fail(sqlite3.OperationalError("interrupted"), may_have_effect=True)
            raise

    def _commit_each(self, changes: Sequence[Change]) -> None:
        for number, change in enumerate(changes):
            try:
                self._commit([change], change.durable)
            except Exception as error:  # no transaction was begun, so the others would wait in vain
                for each in changes[number:]:
                    each.fail(type(error)(*error.args) if isinstance(error, sqlite3.Error) else error)
                return

    @contextlib.contextmanager
    def reading(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """A consistent view of the file, whatever is written concurrently."""
        with self.connection() as connection:
            connection.execute("BEGIN")
            yield connection.execute

    @contextlib.contextmanager
    def errors(self, *, committing: bool = False) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            reason = str(error)
            advice = next((advice for said, advice in _ADVICE.items() if said in reason), "Check its disk.")
            if committing and not _is_without_effect(error):
                raise OperationTimeoutError(
                    f"The catalog in {self.path} failed at the end of a change ({reason}), which may or may not have "
                    f"taken effect: read it back. {advice}",
                    path=self.path,
                ) from error
            raise CoordinatorError(
                f"The catalog in {self.path} failed: {reason}. Nothing was changed. {advice}", path=self.path
            ) from error

    # -------------------------------------------------------------------------------------------- connections

    def _take(self) -> tuple[_Identity, sqlite3.Connection]:
        now = self._identity()
        while True:
            with self._lock:
                if not self._idle:
                    break
                identity, connection = self._idle.pop()
            if identity == now:
                return identity, connection
            self._close(connection)  # the connection refers to a file that was moved or deleted
        connection = self._connect("rw")
        try:
            found = connection.execute("SELECT catalog_id FROM catalog").fetchone()
        except sqlite3.Error:
            self._close(connection)
            raise
        if found[0] != self.catalog_id:
            self._close(connection)
            raise self._refusal("is not the catalog that was opened: it was replaced. Open it again.")
        return self._identity(), connection

    def _give_back(self, identity: _Identity, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._close(connection)
            return
        with self._lock:
            if connection in self._all:  # not inherited from a parent process
                self._idle.append((identity, connection))

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{urllib.parse.quote(self.path)}?mode={mode}",
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        self._all.add(connection)
        # fullfsync matters only on macOS, where fsync leaves the bytes in the disk's cache.
        for pragma in ("synchronous = FULL", "fullfsync = ON", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def _close(self, connection: sqlite3.Connection) -> None:
        self._all.discard(connection)
        connection.close()

    def _identity(self) -> _Identity:
        try:
            found = os.stat(self.path)
        except OSError:
            return (0, 0)
        return found.st_dev, found.st_ino

    # -------------------------------------------------------------------------------------- the database file

    def _make(self, create: bool) -> None:
        """Open the file and initialize it if new. An existing file that is not a catalog is never overwritten."""
        connection = self._connect("rwc" if create else "rw")
        try:
            if self._is_new(connection):
                if not create:
                    raise self._absent()
                self._use_wal(connection)
                connection.execute("BEGIN IMMEDIATE")
                if self._is_new(connection):
                    self._fill(connection)
                connection.execute("COMMIT")
            self._upgrade(connection)
            self.catalog_id = connection.execute("SELECT catalog_id FROM catalog").fetchone()[0]
        finally:
            self._close(connection)

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        application, version = (_pragma(connection, name) for name in ("application_id", "user_version"))
        if application == _APPLICATION_ID:
            self._check_version(version)
            return False
        if application or version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise self._refusal("is a database of another application. It was not changed: choose another file.")
        return True

    def _check_version(self, version: int) -> None:
        """Refuse a catalog of a later version. Also called at each change, because another process may upgrade a
        catalog that this one has open.
        """
        if version > SCHEMA_VERSION:
            raise self._refusal(
                f"was created or upgraded by a newer deltalog (schema version {version}; this one supports "
                f"{SCHEMA_VERSION}): upgrade deltalog. It was not changed."
            )

    def _check_version_again(self, connection: sqlite3.Connection) -> None:
        """Check the version from time to time for readers too, so that a server whose catalog was upgraded reports that
        it is not ready.
        """
        now_s = time.monotonic()
        if now_s - self._checked_s > _CHECK_SECONDS:
            self._check_version(_pragma(connection, "user_version"))
            self._checked_s = now_s

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Turn on WAL mode. Waits for other processes that initialize the file, because SQLite's busy timeout does not
        apply."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
        if mode != "wal":
            raise UnsafeStoreError(
                f"SQLite cannot use a write-ahead log for {self.path} (it offers {mode!r}), which its file system "
                "must support. Keep the catalog on another local disk."
            )

    def _fill(self, connection: sqlite3.Connection) -> None:
        for statement in (
            *_SCHEMA,
            *_MARKS,
            *_DOCUMENTS,
            f"PRAGMA application_id = {_APPLICATION_ID}",
            f"PRAGMA user_version = {SCHEMA_VERSION}",
        ):
            connection.execute(statement)
        connection.execute("INSERT INTO catalog VALUES (?)", (str(uuid.uuid4()),))

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Upgrade a catalog that an older version of deltalog created to the current schema; older versions then refuse
        the catalog."""
        if _pragma(connection, "user_version") == SCHEMA_VERSION:
            return
        connection.execute("BEGIN IMMEDIATE")
        version = _pragma(connection, "user_version")
        self._check_version(version)
        if version < SCHEMA_VERSION:
            marks = _MARKS if version < 2 else ()
            for statement in (*marks, *_DOCUMENTS, f"PRAGMA user_version = {SCHEMA_VERSION}"):
                connection.execute(statement)
        connection.execute("COMMIT")

    def _absent(self) -> EntityNotFoundError:
        return EntityNotFoundError(
            f"There is no catalog at {self.path}. Check the path; TransactionManager(path) and deltalog tables "
            "register create a new one."
        )

    def _refusal(self, what: str) -> CoordinatorError:
        return CoordinatorError(f"{self.path} {what}", path=self.path)


def schema_version(path: str) -> int:
    """The version of the schema of a catalog. Changes nothing. Raises CoordinatorError, and EntityNotFoundError if
    there is no file.
    """
    if not os.path.exists(path):
        raise EntityNotFoundError(f"There is no catalog at {path}. Check the path.")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{urllib.parse.quote(path)}?mode=rw", uri=True)) as connection:
            if _pragma(connection, "application_id") == _APPLICATION_ID:
                return _pragma(connection, "user_version")
    except sqlite3.Error as error:
        raise CoordinatorError(f"The catalog in {path} failed: {error}. Nothing was changed.", path=path) from error
    raise CoordinatorError(f"{path} is not a catalog: it is empty, or a database of another application.", path=path)


def file_path(path: str | os.PathLike[str]) -> str:
    """The absolute path of a file. Raises CallError if it cannot be a file, such as a directory or ':memory:'."""
    text = os.fspath(path)
    if not text or text.startswith(":") or text.endswith(os.sep) or "\0" in text or os.path.isdir(text):
        raise CallError(f"{text!r} cannot be the file of a catalog: specify a path such as /data/catalog.db.")
    return os.path.abspath(text)


def _is_without_effect(error: Exception) -> bool:
    """Whether nothing was written although COMMIT failed with this error."""
    return any(said in str(error) for said in _WITHOUT_EFFECT)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


_OPEN: weakref.WeakSet[SQLiteFile] = weakref.WeakSet()
_INHERITED: list[set[sqlite3.Connection]] = []


def _after_fork() -> None:
    for each in list(_OPEN):
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
