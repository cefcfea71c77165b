"""As test_backup, with a catalog in PostgreSQL: pg_dump while processes commit, pg_restore into an empty database."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltalog import TransactionManager
from tests.support.postgresql import Postgres
from tests.support.waiting import until
from tests.unit.server.operations.test_backup import SCHEMA, A, B, check_nothing_is_lost, writing


@pytest.mark.long
def test_postgresql_is_backed_up_while_commits_run(postgresql: Postgres, tmp_path: Path) -> None:
    backup = postgresql.directory / "catalog.dump"
    server = ("--host", str(postgresql.directory), "--port", str(postgresql.port), "--username", postgresql.admin)
    url = postgresql.url("backed_up")
    manager = TransactionManager(url)
    for name in (A, B):
        manager.create_table(name, str(tmp_path / name), SCHEMA)
    with writing(url, tmp_path) as acknowledged:
        until(lambda: len(acknowledged()) >= 5, 120)
        dump = ("--format=custom", "--schema=backed_up", "--file", str(backup))
        postgresql.run("pg_dump", *server, *dump, "catalogs")
        more = len(acknowledged()) + 5
        until(lambda: len(acknowledged()) >= more, 120)
    manager.coordinator.close()
    postgresql.execute("DROP SCHEMA backed_up CASCADE")  # the database is lost
    postgresql.run("createdb", *server, "--owner", postgresql.user, "restored")
    postgresql.run("pg_restore", *server, "--dbname=restored", "--exit-on-error", str(backup))
    check_nothing_is_lost(postgresql.url("backed_up", database="restored"), acknowledged())
