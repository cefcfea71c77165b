"""Predicates that are expensive to parse do not delay other calls."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deltalog import TransactionManager
from tests.support.server import SCHEMA, Served, served

HOSTILE = {
    "struct": "struct(" * 400 + "day" + ")" * 400 + " is not null",
    "array": "cast(day as " + "ARRAY<" * 400 + "int" + ">" * 400 + ") is null",
    "case": "case when " * 200 + "day = 'a'" + " then 1 end = 1" * 200,
    "not": "not " * 1500 + "day = 'a'",
    "minus": "- " * 2000 + "1 = 1",
    "parentheses": "(" * 3000 + "day = 'a'" + ")" * 3000,
    "and": " and ".join(["day = 'a'"] * 500),
    "like": "day like '" + "%a" * 2000 + "b'",
}
CALLS = 34
# Each call is refused, is answered with no objects, or is rejected because too many calls are in progress for the
# table; none times out.
EXPECTED = {(200, ""), (400, "InvalidInputException"), (503, "ServiceUnavailableException")}


def cpu_seconds(server: Served) -> float:
    user, system = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_hostile_predicates_hold_up_nobody_else(tmp_path: Path) -> None:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    for name in ("a", "b", "c", "good"):
        manager.create_table(f"bank.{name}", str(tmp_path / name), SCHEMA, partition_by=["day"])
    with served(tmp_path / "catalog.db", "--set=recovery.every_seconds=0") as server:

        def ask(number: int) -> tuple[int, str]:
            where = [*HOSTILE.values()][number % len(HOSTILE)]
            body = {"DatabaseName": "bank", "TableName": "abc"[number % 3], "PartitionPredicate": where}
            status, answer = server.ask("POST", "/GetTableObjects", body)
            return status, answer.get("__type", "")

        with ThreadPoolExecutor(CALLS) as threads:
            found = {*threads.map(ask, range(CALLS))}
        assert found <= EXPECTED and (400, "InvalidInputException") in found
        for _ in range(5):
            assert server.ask("POST", "/GetTableObjects", {"DatabaseName": "bank", "TableName": "good"})[0] == 200
        before = cpu_seconds(server)
        time.sleep(2)
        assert cpu_seconds(server) - before < 0.5, "an abandoned call still runs"
