"""Connections to a catalog in PostgreSQL: runs changes as database transactions, and interprets errors.

A change takes two round trips at most: ``Change.ask`` takes locks and reads, and ``Change.finish`` writes and commits.
The outcome of a change is unknown only if its COMMIT was sent, and the server neither confirmed it nor refused it with
an error of the severity ERROR. All other failures have no effect, because the server rolls back a transaction whose
COMMIT it has not received.

The pool of connections is not that of psycopg_pool, whose threads do not survive a fork, and whose errors say only that
no connection was available in time, not, for example, that the password is wrong.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import selectors
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import psycopg
import psycopg.conninfo
from psycopg.pq import TransactionStatus

from deltalog.catalog import postgresql_schema as layout
from deltalog.catalog.postgresql_schema import PostgresSettings as PostgresSettings
from deltalog.errors import CallError, CoordinatorError, EntityNotFoundError, OperationTimeoutError
from deltalog.storage.secrets import Secrets, check_location

if TYPE_CHECKING:
    from psycopg.abc import PQGen

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Statement = tuple[str, Sequence[Any]]

log = logging.getLogger(__name__)

_SCHEMES = ("postgresql://", "postgres://")
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
_ATTEMPTS = 6
_BASE_SECONDS = 0.02
_IDLE_SECONDS = 300.0
_LOCK_CLASS = 0x6443_4154  # "dCAT", the application id that SQLite catalogs have in their header
_TRANSIENT = frozenset({"40001", "40P01"})  # serialization_failure, deadlock_detected
_IDLE_IN_TRANSACTION = "25P03"
_ENDED = frozenset({"57P01", "57P02", "57P03", "57P05", _IDLE_IN_TRANSACTION})
_ABSENT = frozenset({"42P01", "3F000"})  # undefined_table, invalid_schema_name
_ADVICE = {
    "25006": "It accepts no changes: it is a standby, or default_transaction_read_only is set. Connect to the primary.",
    "42501": "Grant the user of the catalog the rights on its schema that docs/transactions.md names.",
    "53100": "Free space on its disk and try again.",
    "53200": "Try again when the server has more memory.",
    "53300": "Raise its max_connections, or lower the number of connections of each process.",
    "54000": "A name or location is too long for an index of PostgreSQL.",
    "55P03": "Another process held its lock for too long. Try again, and check for hanging processes.",
    "57014": "It exceeded the server's time limit for a statement. Try again.",
    "57P03": "Try again when it has started.",
    "28000": "Check the user, and the server's pg_hba.conf.",
    "28P01": "Check PGPASSWORD, or the password file that PGPASSFILE or passfile names.",
    "3D000": "Create the database, or correct its name in the URL.",
}


class _NoAnswer(psycopg.OperationalError):
    """The server sent nothing for too long."""


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that fails if the server makes no progress for ``answer_seconds``."""

    answer_seconds = 0.0
    since = 0.0
    has_warned = False

    def wait(self, gen: PQGen[T], interval: float = 0.1, *arguments: Any, **named: Any) -> T:
        try:
            return super().wait(_limited(gen, self.answer_seconds), interval, *arguments, **named)
        except _NoAnswer:
            self.pgconn.finish()  # psycopg would replace the error with one about the state of its pipeline
            raise

    def is_alive(self) -> bool:
        """Whether an idle connection is still open, as far as this process can tell without a request: the only thing
        that the server sends on an idle connection is that it closes it.
        """
        if self.closed or time.monotonic() - self.since > _IDLE_SECONDS:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno(), selectors.EVENT_READ)
            return not selector.select(0)


def _limited(generator: PQGen[T], seconds: float) -> PQGen[T]:
    """The same generator, which raises _NoAnswer if nothing was ready for ``seconds``."""
    deadline = time.monotonic() + seconds
    try:
        wanted = next(generator)
        while True:
            ready = yield wanted
            now = time.monotonic()
            if ready:
                deadline = now + seconds
            elif now > deadline:
                generator.close()
                raise _NoAnswer(f"no answer within {seconds:g} s")
            wanted = generator.send(ready)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class Change:
    """A change on one connection: any number of calls of ``ask``, then at most one call of ``finish``. A change that is
    not finished has no effect.
    """

    def __init__(self, connection: _Connection, durable: bool) -> None:
        self._connection = connection
        self._durable = durable
        self.has_begun = False
        self.is_committing = False

    def ask(self, *statements: Statement) -> list[Rows]:
        """Run statements that lock and read. Cost: 1 round trip.

        They are sent as one text of the simple query protocol, with quoted values. After a pipeline of psycopg, which
        ends with a Flush message, the server would not count the time for which the transaction is idle
        (idle_seconds)."""
        begin = () if self.has_begun else ((text, ()) for text in self._begin())
        texts = [*begin, *statements]
        with psycopg.ClientCursor(self._connection) as cursor:
            self.has_begun = True
            cursor.execute(";".join(text for text, _ in texts), [value for _, values in texts for value in values])
            found: list[Rows] = []
            while True:
                found.append(cursor.fetchall() if cursor.description else [])
                if not cursor.nextset():
                    return found[len(found) - len(statements) :]

    def write(self, *statements: Statement) -> list[int]:
        """Run statements that write, after ``ask``. Returns the number of changed rows of each. Cost: 1 round trip for
        each statement.
        """
        return [self._connection.execute(*statement).rowcount for statement in statements]

    def finish(self, *statements: Statement) -> list[psycopg.Cursor[Any]]:
        """Run statements and commit. Cost: 1 round trip."""
        self._connection.has_warned = False
        begin = [] if self.has_begun else [self._begin()]
        with self._connection.pipeline():
            for text in itertools.chain(*begin):
                self.has_begun = True
                self._connection.execute(text)
            cursors = [self._connection.execute(*statement) for statement in statements]
            self.is_committing = True
            commit = self._connection.execute("COMMIT")
        self._check_commit(commit.statusmessage == "COMMIT")
        return cursors

    def _begin(self) -> list[str]:
        setting = [] if self._durable else ["SET LOCAL synchronous_commit TO off"]
        return ["BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", *setting]

    def at_once(self, statement: str, values: Sequence[Any]) -> int:
        """Run one statement as the whole change. Returns the number of changed rows. Cost: 1 round trip."""
        self._connection.has_warned = False
        self.is_committing = True
        count = self._connection.execute(statement, values).rowcount
        self._check_commit(True)
        return count

    def roll_back(self) -> None:
        if self.has_begun:
            with contextlib.suppress(psycopg.Error):  # the connection is not used again after that
                self._connection.execute("ROLLBACK")

    def _check_commit(self, is_committed: bool) -> None:
        """Raise an error if the server stopped waiting for its synchronous standby, of which it only warns. The change
        is then on the primary alone, and a failover may lose it.
        """
        if not is_committed or self._connection.has_warned:
            raise psycopg.OperationalError("the server confirmed the change only with a warning")


class PostgresServer:
    """Connections to the catalog at ``url``. A connection is used by one thread at a time and never by a forked child.

    ``create``: whether a missing catalog is created. Raises as PostgresCoordinator.
    """

    def __init__(self, url: str, settings: PostgresSettings, create: bool) -> None:
        self._parameters, self.schema = _parsed(url, settings)
        self.url = url
        self.catalog_id = ""
        self.keeps_staged_commits = False
        self._settings = settings
        self._secrets = Secrets({})
        self._reset()
        _OPEN.add(self)
        self._open(create)

    def sql(self, statement: str) -> str:
        """A statement with the name of the schema for ``{schema}``."""
        return statement.replace("{schema}", f'"{self.schema}"')

    def read(self, statement: str, values: Sequence[Any] = (), *, binary: bool = False) -> Rows:
        """The rows of a query, which sees all changes that are committed when it begins. Cost: 1 round trip."""

        def ask(connection: _Connection) -> Rows:
            return connection.execute(statement, values, binary=binary).fetchall()

        return self._repeated(ask, _never, is_read=True)

    def change(self, work: Callable[[Change], T], *, durable: bool = True) -> T:
        """Make a change. ``work`` is called again if the change failed without effect for a passing reason, such as a
        lost connection or a deadlock. ``durable``: whether to wait for the disk.
        """
        current: list[Change] = []

        def run(connection: _Connection) -> T:
            current[:] = [Change(connection, durable)]
            done = work(current[0])
            if not current[0].is_committing:
                current[0].roll_back()
            return done

        return self._repeated(run, lambda: bool(current) and current[0].is_committing)

    def _repeated(
        self, run: Callable[[_Connection], T], is_committing: Callable[[], bool], *, is_read: bool = False
    ) -> T:
        for number in range(1, _ATTEMPTS + 1):
            try:
                with self._borrowed() as connection:
                    return run(connection)
            except UnicodeEncodeError as error:
                raise self._unstorable() from error
            except psycopg.Error as error:
                has_no_effect = is_read or not is_committing() or _is_refusal(error)
                can_repeat = error.sqlstate in _TRANSIENT or (_is_lost(error) and not isinstance(error, _NoAnswer))
                if not (has_no_effect and can_repeat) or number == _ATTEMPTS:
                    self._fail(error, has_no_effect, is_read)
            time.sleep(random.random() * _BASE_SECONDS * 2**number)
        raise AssertionError("unreachable")

    def _fail(self, error: psycopg.Error, has_no_effect: bool, is_read: bool = False) -> NoReturn:
        if error.sqlstate is None and isinstance(error, psycopg.DataError):
            raise self._unstorable() from None
        reason, advice = self._reason(error), _ADVICE.get(error.sqlstate or "", "Check the server.")
        if not has_no_effect:
            raise OperationTimeoutError(
                f"The catalog {self.url} failed at the end of a change ({reason}). The change may or may "
                f"not have taken effect, and may still do so: read it back. {advice}",
                path=self.url,
                service_code=error.sqlstate,
            ) from None
        kind = OperationTimeoutError if is_read and isinstance(error, _NoAnswer) else CoordinatorError
        raise kind(
            f"The catalog {self.url} failed: {reason}. Nothing was changed. {advice}",
            path=self.url,
            service_code=error.sqlstate,
        ) from None

    def _reason(self, error: psycopg.Error) -> str:
        """The error message of the server or libpq, without the server's details, which contain values of rows."""
        text = error.diag.message_primary or str(error)
        return self._secrets.without("; ".join(line.strip() for line in text.splitlines() if line.strip()))[:500]

    def _unstorable(self) -> CallError:
        return CallError(
            f"The catalog {self.url} cannot store text with the character U+0000 or a lone surrogate: PostgreSQL has "
            "no such text. Nothing was changed."
        )

    # -------------------------------------------------------------------------------------------- connections

    def forget(self) -> None:
        """Discard the parent's connections in a forked child, without sending anything to the server."""
        _INHERITED.append(self._all)
        self._at_end.detach()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(self._settings.connections)
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._at_end = weakref.finalize(self, _close_each, self._all)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._close(connection)

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[_Connection]:
        """A connection for the block. It is closed if the block raises an exception."""
        free = self._free  # ``forget`` replaces it after a fork
        if not free.acquire(timeout=self._settings.lock_seconds):
            raise CoordinatorError(
                f"All {self._settings.connections} connections of this process to the catalog {self.url} are in use. "
                "Nothing was changed. Try again, or allow more connections.",
                path=self.url,
            )
        try:
            connection = self._take()
            try:
                yield connection
            except BaseException:
                self._close(connection)
                raise
            self._give_back(connection)
        finally:
            free.release()

    def _take(self) -> _Connection:
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if connection.is_alive():
                return connection
            self._close(connection)
        connection = self._connect()
        try:
            found = self._state(connection)
            if found is None or found[0] != self.catalog_id:
                raise self.replaced()
            self._check_version(found[1])
        except BaseException:
            self._close(connection)
            raise
        return connection

    def _give_back(self, connection: _Connection) -> None:
        if connection.info.transaction_status is not TransactionStatus.IDLE:
            self._close(connection)
            return
        connection.since = time.monotonic()
        with self._lock:
            if connection in self._all:  # not inherited from a parent process
                self._idle.append(connection)

    def _connect(self) -> _Connection:
        try:
            connection = _Connection.connect(**self._parameters, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise CoordinatorError(
                f"The catalog {self.url} cannot be reached: {self._reason(error)}. Nothing was changed. "
                f"{_ADVICE.get(_sqlstate(error), 'Check that the server runs, and the URL.')}",
                path=self.url,
                service_code=error.sqlstate,
            ) from None
        connection.answer_seconds = self._settings.answer_seconds
        connection.add_notice_handler(lambda notice: _note(connection, notice))
        self._all.add(connection)
        encoding = connection.info.parameter_status("server_encoding")
        if connection.info.parameter_status("in_hot_standby") == "on":  # since PostgreSQL 14
            self._close(connection)
            raise self._on_standby()
        if encoding != "UTF8":
            self._close(connection)
            raise self._refusal(
                f"is in a database with the encoding {encoding}, which cannot store every name. Create a database with "
                "ENCODING 'UTF8' and name it in the URL."
            )
        return connection

    def _close(self, connection: _Connection) -> None:
        self._all.discard(connection)
        with contextlib.suppress(psycopg.Error):
            connection.close()

    # -------------------------------------------------------------------------------------------- the catalog

    def _open(self, create: bool) -> None:
        connection = self._connect()
        try:
            found = self._state(connection)
            if found is None and not create:
                raise EntityNotFoundError(
                    f"There is no catalog at {self.url}: the database has no schema {self.schema!r} of deltalog. Check "
                    "the URL; TransactionManager(url) and deltalog tables register create a new one."
                )
            if found is None or found[1] < layout.SCHEMA_VERSION:
                self._make(connection)
                found = self._state(connection)
            if found is None:
                raise self._refusal("was removed while it was being opened. Open it again.")
            self._check_version(found[1])
            self.catalog_id, _, self.keeps_staged_commits = found
        except psycopg.Error as error:
            # Whether or not this process has created the catalog, opening it again gives the same result.
            self._fail(error, has_no_effect=True)
        finally:
            self._close(connection)

    def _state(self, connection: _Connection) -> tuple[str, int, bool] | None:
        """The id and version of the catalog, and whether it keeps staged commits; None if there is no catalog. Also
        makes the commits of the session wait for the disk. Raises CoordinatorError for a standby.
        """
        try:
            row = connection.execute(self.sql(_STATE)).fetchone()
        except psycopg.Error as error:
            if error.sqlstate in _ABSENT:
                return None
            self._fail(error, has_no_effect=True)
        if row is None:
            raise self._refusal("is damaged: its table 'catalog' is empty. Restore a backup.")
        catalog_id, version, keeps, is_standby, is_synced, _ = row
        if is_standby:
            raise self._on_standby()
        if not is_synced:
            log.warning("%s: the server runs with fsync = off, so a crash of its machine can lose commits.", self.url)
        return catalog_id, version, keeps

    def _check_version(self, version: int) -> None:
        if version > layout.SCHEMA_VERSION:
            raise self._refusal(
                f"was created or upgraded by a newer deltalog (schema version {version}; this one supports "
                f"{layout.SCHEMA_VERSION}): upgrade deltalog. It was not changed."
            )

    def _make(self, connection: _Connection) -> None:
        """Create the catalog, or upgrade it to the current version of the schema, after which older versions of
        deltalog refuse it. One process at a time does so."""
        change = Change(connection, durable=True)
        _, schemas, tables = change.ask(
            ("SELECT pg_advisory_xact_lock(hashtextextended(%s::text, %s))::text", (self.schema, _LOCK_CLASS)),
            ("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self.schema,)),
            (
                "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE nspname = %s AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f')",
                (self.schema,),
            ),
        )
        names = {name for (name,) in tables}
        version = 0
        if "catalog" in names and "documents" in names:
            version = change.ask((self.sql("SELECT schema_version FROM {schema}.catalog"), ()))[0][0][0]
        elif names:
            raise self._refusal(
                f"cannot be created: the schema {self.schema!r} contains tables of another application. Nothing was "
                "changed: name another schema, with ?schema=NAME in the URL."
            )
        if version >= layout.SCHEMA_VERSION:
            change.roll_back()
            return
        made: list[str] = [] if schemas else [f'CREATE SCHEMA "{self.schema}"']
        made += layout.statements(self.schema, version)
        if version == 0:
            insert = "INSERT INTO {schema}.catalog (catalog_id, schema_version) VALUES (%s, %s)"
            last: Statement = (self.sql(insert), (str(uuid.uuid4()), layout.SCHEMA_VERSION))
        else:
            last = (self.sql("UPDATE {schema}.catalog SET schema_version = %s"), (layout.SCHEMA_VERSION,))
        change.finish(*((statement, ()) for statement in made), last)

    def _on_standby(self) -> CoordinatorError:
        return self._refusal(
            "is on a standby, which may lack the last changes. Connect to the primary: with several hosts in the URL, "
            "add target_session_attrs=read-write."
        )

    def replaced(self) -> CoordinatorError:
        return self._refusal("is not the catalog that was opened: it was replaced. Open it again.")

    def _refusal(self, what: str) -> CoordinatorError:
        return CoordinatorError(f"The catalog {self.url} {what}", path=self.url)


_STATE = """
SELECT catalog_id, schema_version,
    EXISTS (SELECT FROM {schema}.documents WHERE kind = 'catalog' AND key = 'keeps staged commits'),
    pg_is_in_recovery(), current_setting('fsync') = 'on',
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false)
FROM {schema}.catalog
"""


def _parsed(url: str, settings: PostgresSettings) -> tuple[dict[str, Any], str]:
    """The parameters of a connection, and the name of the schema."""
    check_location(url)
    if not url.startswith(_SCHEMES):
        raise CallError(f"{url} is not the URL of a database: write postgresql://user@host:5432/database.")
    base, _, query = url.partition("?")
    pairs = [pair for pair in query.split("&") if pair]
    schemas = [pair.partition("=")[2] for pair in pairs if pair.partition("=")[0] == "schema"]
    if len(schemas) > 1:
        raise CallError(f"{url} names several schemas. Leave all but one out.")
    others = [pair for pair in pairs if pair.partition("=")[0] != "schema"]
    try:
        found = psycopg.conninfo.conninfo_to_dict("?".join([base, "&".join(others)]) if others else base)
    except psycopg.Error as error:
        raise CallError(f"{url} is not the URL of a PostgreSQL database: {str(error).strip()}") from None
    if named := [name for name in _SECRETS if found.get(name)]:
        raise CallError(
            f"The URL of the PostgreSQL catalog contains a {named[0]}, which messages with the URL would "
            "show. Remove it from the URL, and set PGPASSWORD, or name a password file with passfile=PATH "
            "or PGPASSFILE."
        )
    milliseconds = {
        "statement_timeout": settings.statement_seconds,
        "lock_timeout": settings.lock_seconds,
        "idle_in_transaction_session_timeout": settings.idle_seconds,
    }
    ours = [f"-c {name}={max(1, round(seconds * 1000))}" for name, seconds in milliseconds.items()]
    # If a client's machine fails while it sends a change, the server keeps the client's locks until this time has
    # passed.
    ours += [f"-c tcp_keepalives_{name}={value}" for name, value in (("idle", 10), ("interval", 5), ("count", 3))]
    ours += ["-c search_path=pg_catalog", "-c default_transaction_isolation=read\\ committed"]
    defaults = {
        "connect_timeout": settings.connect_seconds,
        "application_name": "deltalog",
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": round(settings.answer_seconds * 1000),
    }
    if "," in str(found.get("host", "")):
        defaults["target_session_attrs"] = "read-write"
    parameters = {**defaults, **found, "client_encoding": "utf8"}
    # The server uses the last value of a parameter, so the URL's options have priority.
    parameters["options"] = " ".join([*ours, str(found.get("options", ""))]).strip()
    return parameters, layout.check_schema_name(schemas[0] if schemas else layout.DEFAULT_SCHEMA)


def _note(connection: _Connection, notice: psycopg.errors.Diagnostic) -> None:
    """Record the warning that the server stopped waiting for its standby. The server sends other warnings too, for
    example before transaction ids wrap around, and may translate all of them.
    """
    if notice.severity_nonlocalized == "WARNING" and notice.source_function == "SyncRepWaitForLSN":
        connection.has_warned = True


def _close_each(connections: set[_Connection]) -> None:
    while connections:
        with contextlib.suppress(psycopg.Error):
            connections.pop().close()


def _never() -> bool:
    return False


def _is_refusal(error: psycopg.Error) -> bool:
    """Whether the server refused a change whose COMMIT was sent. The server may end a session with FATAL or PANIC even
    after it has committed the change; only if it does so because the transaction was idle for too long, it has not.
    """
    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)  # raised by psycopg, before it sent anything
    return error.diag.severity_nonlocalized == "ERROR" or error.sqlstate == _IDLE_IN_TRANSACTION


def _is_lost(error: psycopg.Error) -> bool:
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith("08") or error.sqlstate in _ENDED


def _sqlstate(error: psycopg.Error) -> str:
    """The SQLSTATE of a failed connection. psycopg has only the text of the server's message."""
    text = str(error)
    for state, said in (
        ("53300", "too many clients"),
        ("53300", "connection slots are reserved"),
        ("28P01", "password authentication failed"),
        ("28P01", "no password supplied"),
        ("28000", "no pg_hba.conf entry"),
        ("57P03", "the database system is"),
        ("3D000", '" does not exist'),
    ):
        if said in text:
            return state
    return error.sqlstate or ""


_OPEN: weakref.WeakSet[PostgresServer] = weakref.WeakSet()
_INHERITED: list[set[_Connection]] = []


def _after_fork() -> None:
    for each in list(_OPEN):
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
