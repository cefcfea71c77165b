"""Requests occupy the server's memory only for a limited time, and never more memory than its limits allow."""

from __future__ import annotations

import gc
import socket
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from deltalog import TransactionManager
from deltalog.server.app import Limits
from deltalog.server.serve import Server, Settings
from deltalog.server.tables_in_use import TablesInUse
from deltalog.transactions.open_transactions import OpenTransactions
from tests.support.server import SCHEMA, Served, running, served

MIB = 1 << 20
LONG = "x" * 4_000_000
LARGE: dict[str, tuple[str, Any]] = {
    "names": ("/GetTableObjects", {"DatabaseName": LONG, "TableName": "t"}),
    "ids": ("/GetTableObjects", {"DatabaseName": "a", "TableName": "t", "TransactionId": LONG}),
    "ids of commits": ("/CommitTransaction", {"TransactionId": LONG}),
    "predicates": ("/GetTableObjects", {"DatabaseName": "a", "TableName": "t", "PartitionPredicate": LONG}),
    "unknown members": ("/StartTransactions", {"Other": LONG}),
    "objects": ("/DeleteObjectsOnCancel", {"Objects": [{"Uri": LONG}], "DatabaseName": "a", "TableName": "t"}),
    "many objects": ("/DeleteObjectsOnCancel", {"Objects": [{}] * 1_000_000, "DatabaseName": "a", "TableName": "t"}),
}


def resident_bytes(server: Served) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_refused_calls_leave_nothing_in_memory(tmp_path: Path) -> None:
    with served(tmp_path / "catalog.db") as server:
        ask(server, 3)
        before = resident_bytes(server)
        ask(server, 10)
        assert resident_bytes(server) - before < 40 * MIB  # 70 calls of 4 MB


def ask(server: Served, times: int) -> None:
    for _ in range(times):
        for path, body in LARGE.values():
            sent = {**body, "TransactionId": body.get("TransactionId", "") + str(uuid.uuid4())}
            status, _ = server.ask("POST", path, sent)
            assert status in (400, 404)


def test_a_call_is_read_before_it_has_a_place_in_any_table(tmp_path: Path) -> None:
    with served(tmp_path / "catalog.db") as server:
        wrong = {"TransactionId": "id", "DatabaseName": "x" * 256, "TableName": "t"}
        status, answer = server.ask("POST", "/GetTableObjects", wrong)
        assert (status, answer["__type"]) == (400, "InvalidInputException")
        assert "DatabaseName" in answer["Message"] and "255" in answer["Message"]
        assert server.ask("GET", f"/api/2.1/unity-catalog/tables/main.a.{'x' * 256}")[0] == 400


def test_tables_of_transactions_are_remembered_within_bytes() -> None:
    known = TablesInUse(most_bytes=3000)
    for number in range(1000):
        known.add(f"transaction {number}", "bank.a")
        assert known.size_bytes <= 3000
    assert known.of("transaction 999") == "bank.a" and known.of("transaction 0") is None
    for number in range(1000):
        known.add("one", f"bank.{number}")
        assert known.size_bytes <= 3000
    many = TablesInUse()
    for number in range(1000):
        many.add("one", f"bank.{number}")
    assert many.of("one") is None and many.size_bytes < 20_000  # too many to distinguish
    known.add("other", "b")
    known.add("other", "a")
    assert known.of("other") == "a, b"


def test_transactions_that_nobody_holds_are_kept_up_to_a_number() -> None:
    class Handle:
        pass

    known: OpenTransactions[Handle] = OpenTransactions(most=3)
    held = known.setdefault("held", Handle())
    for number in range(10):
        known.setdefault(f"other {number}", Handle())
    assert known.ids() == {"held", "other 7", "other 8", "other 9"}
    assert known.setdefault("held", Handle()) is held
    known.pop("held")
    assert "held" not in known.ids()


def test_a_server_keeps_no_handle_for_each_transaction(tmp_path: Path) -> None:
    """A client that starts many transactions and abandons them gets correct answers for all of them, although the
    server does not keep a handle for each of them."""
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    manager.create_table("bank.t", str(tmp_path / "t"), SCHEMA)
    started = [manager.start_transaction() for _ in range(300)]
    for each in started:
        manager.transaction(each).table("bank.t").append(SCHEMA.empty_table())
    gc.collect()
    assert len(manager._open.ids()) <= 256
    assert manager.transaction(started[0]).table("bank.t").version == 1


def test_bodies_on_their_way_are_limited_together(tmp_path: Path) -> None:
    """Connections that send most of a large body and then wait use up the server's limit for bodies: other large bodies
    are then refused, but small calls are not."""
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    server = Server(manager, Settings(limits=Limits(pending_bytes=4 * MIB)))
    waiting: list[socket.socket] = []
    with running(server) as address:
        try:
            answers = []
            for _ in range(6):
                connection = socket.create_connection(address, timeout=60)
                waiting.append(connection)
                connection.sendall(request(b"x" * (MIB - 1), MIB))
                connection.settimeout(1)
                try:
                    answers.append(connection.recv(12))
                except TimeoutError:
                    answers.append(b"")
            assert answers.count(b"HTTP/1.1 503") == 2 + answers[:4].count(b"HTTP/1.1 503") >= 2
            with socket.create_connection(address, timeout=60) as small:
                small.sendall(request(b"{}", 2))
                assert small.recv(12) == b"HTTP/1.1 200"
            for connection in waiting:
                connection.close()
            waiting.clear()
            with socket.create_connection(address, timeout=60) as late:
                late.sendall(request(b"{" + b" " * (MIB - 2) + b"}", MIB))
                assert late.recv(12) == b"HTTP/1.1 200"
        finally:
            for connection in waiting:
                connection.close()


def request(body: bytes, length: int) -> bytes:
    return b"POST /StartTransaction HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % length + body


def test_a_caller_that_takes_no_response_is_closed(tmp_path: Path) -> None:
    """If the connection stayed open, responses that do not fit into the socket buffers would remain in memory."""
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    for _ in range(300):
        manager.start_transaction()
    server = Server(manager, Settings(limits=Limits(response_seconds=0.2)))
    one = request(b"{}", 2).replace(b"/StartTransaction", b"/ListTransactions")
    with (
        running(server) as address,
        socket.create_connection(address, timeout=60) as connection,
        pytest.raises(ConnectionError),
    ):
        for _ in range(1_000_000):
            connection.sendall(one)
