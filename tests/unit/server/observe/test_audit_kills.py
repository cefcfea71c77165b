"""A server process that is killed or asked to end: the audit log has the lines of all acknowledged calls."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deltalog import TransactionManager
from tests.support.server import Served, served
from tests.support.server.unity import Table, Unity


def config(place: Path) -> list[str]:
    file = place / "server.toml"
    file.write_text(
        f'[audit]\nfile = "{place}/audit.log"\naccess_file = "{place}/access.log"\n'
        f'[unity]\nwarehouse = "{place}/warehouse"\n[recovery]\nevery_seconds = 0\n'
    )
    return ["--config", str(file)]


def lines(place: Path) -> list[dict[str, Any]]:
    """The lines of the audit log; the last one may be cut by a kill."""
    return [
        json.loads(line) for line in (place / "audit.log").read_text().splitlines(keepends=True) if line[-1] == "\n"
    ]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_kill_loses_no_line_of_an_acknowledged_commit(tmp_path: Path, seed: int) -> None:
    acknowledged: dict[str, int] = {}

    def work(table: Table) -> None:
        try:
            while True:
                table.commit()
                acknowledged[table.name] = table.version
        except (OSError, http.client.HTTPException, AssertionError):
            return

    with served(tmp_path / "catalog.db", *config(tmp_path)) as server:
        unity = Unity(server)
        unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        tables = [unity.new_table(f"t{number}") for number in range(3)]
        threads = [threading.Thread(target=work, args=(table,)) for table in tables]
        for thread in threads:
            thread.start()
        while sum(list(acknowledged.values())) < 10 + 7 * seed and any(thread.is_alive() for thread in threads):
            time.sleep(0.001)
        server.process.kill()
        for thread in threads:
            thread.join(60)
    found: dict[str, set[int]] = {}
    for line in lines(tmp_path):
        for each in line.get("versions", ()):
            found.setdefault(each["table"].removeprefix("s."), set()).add(each["version"])
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    assert sum(acknowledged.values()) >= 10
    for name, version in acknowledged.items():
        assert found[name] >= set(range(version + 1))
        # At most the commit whose response was not sent has no line.
        assert manager.table(f"s.{name}").snapshot().version <= max(found[name]) + 1


def test_the_lines_are_there_at_the_end(tmp_path: Path) -> None:
    with served(tmp_path / "catalog.db", *config(tmp_path)) as server:
        asked(server, 5)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
    found = lines(tmp_path)
    assert [line["event"] for line in found] == ["start", *["call"] * 5, "stop"]
    assert (tmp_path / "access.log").read_text().count("StartTransaction") == 5


def asked(server: Served, count: int) -> None:
    for _ in range(count):
        assert server.ask("POST", "/StartTransaction", {})[0] == 200
