"""The audit log: which lines it has, when they are written, and what happens if the disk fails."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deltalog import CallError, TransactionManager
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import OperationTimeoutError
from deltalog.server.access import token_text
from deltalog.server.access.authentication import AuthenticationSettings
from deltalog.server.access.issued import issue, revoke
from deltalog.server.access.principals import Principal
from deltalog.server.access.token_lookup import TokenSettings
from deltalog.server.exchange import Exchange
from deltalog.server.limits import Limits
from deltalog.server.logs import PeriodicLimit
from deltalog.server.observe import records
from deltalog.server.observe.audit import AuditLog
from deltalog.server.observe.lines import LineFile, LineWriter
from deltalog.server.observe.observation import check_settings
from deltalog.server.observe.settings import AuditSettings, MetricsSettings
from tests.support.server import SCHEMA
from tests.support.server.in_process import InProcess
from tests.support.server.observed import Observed, observed
from tests.support.server.unity import ROOT
from tests.support.waiting import until

TOKEN = "sentinel-0123456789abcdef-token"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audited")


@pytest.fixture(scope="module")
def server(place: Path) -> Any:
    audit = AuditSettings(file=str(place / "audit.log"), access_file=str(place / "access.log"))
    with observed(place, token=TOKEN, audit=audit) as made:
        made.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        yield made


def bearer(**more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKEN}", **more}


def test_an_update_names_the_caller_the_table_and_the_version(server: Observed) -> None:
    table = server.unity.new_table("updated")
    table.commit()
    found = [line for line in server.lines() if line.get("table") == "s.updated"]
    created, updated = found[-2:]
    assert created["call"].endswith("/tables") and created["versions"] == [
        {"table": "s.updated", "table_id": table.id, "version": 0}
    ]
    assert updated["versions"] == [{"table": "s.updated", "table_id": table.id, "version": 1}]
    assert (updated["principal"], updated["credential"], updated["outcome"]) == ("admin", "shared token", "allowed")
    assert (updated["address"], updated["status"], updated["error"]) == ("127.0.0.1", 200, None)
    assert updated["table_id"] == table.id and updated["names"]["catalog"] == "main"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", updated["time"]) and updated["duration_ms"] > 0


def test_a_transaction_over_several_tables_names_all_versions(server: Observed, place: Path) -> None:
    from tests.support.server import add

    for name in ("a", "b"):
        server.manager.create_table(f"bank.{name}", str(place / name), SCHEMA, partition_by=["day"])
    client = server.served.client(TOKEN)
    transaction = client.start_transaction()["TransactionId"]
    for name in ("a", "b"):
        client.update_table_objects(
            DatabaseName="bank", TableName=name, TransactionId=transaction,
            WriteOperations=[add(place / name, f"{name}.parquet", 1)],
        )  # fmt: skip
    client.commit_transaction(TransactionId=transaction)
    line = [each for each in server.lines() if each.get("call") == "CommitTransaction"][-1]
    assert line["transaction"] == transaction and line["outcome"] == "allowed"
    assert sorted((each["table"], each["version"]) for each in line["versions"]) == [("bank.a", 1), ("bank.b", 1)]
    assert all(server.manager.table(each["table"]).snapshot().version == 1 for each in line["versions"])


REFUSED: dict[str, Any] = {
    "no token": ("GET", f"{ROOT}/catalogs", None, {}, 401, "denied"),
    "no token for Lake Formation": ("POST", "/StartTransaction", {}, {}, 403, "denied"),
    "a web page": ("GET", f"{ROOT}/catalogs", None, bearer(origin="https://evil.example"), 403, "denied"),
    "no such call": ("GET", f"{ROOT}/nothing", None, bearer(), 404, "failed"),
    "no such table": ("GET", f"{ROOT}/delta/v1/catalogs/main/schemas/s/tables/none", None, bearer(), 404, "failed"),
    "no JSON": ("POST", f"{ROOT}/schemas", b"{", bearer(), 400, "failed"),
}


@pytest.mark.parametrize(("method", "path", "body", "headers", "status", "outcome"), REFUSED.values(), ids=REFUSED)
def test_refused_calls(
    server: Observed, method: str, path: str, body: Any, headers: dict[str, str], status: int, outcome: str
) -> None:
    id_ = f"refused-{abs(hash((method, path, str(body), str(headers))))}"
    found, answered, _ = server.ask(method, path, body, **headers, x_request_id=id_)
    assert found == status and answered["x-request-id"] == id_
    line = server.of(id_)
    assert (line["status"], line["outcome"], line["method"], line["path"]) == (status, outcome, method, path)
    assert line["error"]


def test_bytes_that_are_no_request(server: Observed) -> None:
    import socket
    import urllib.parse

    where = urllib.parse.urlsplit(server.server.url)
    before = len(server.lines())
    with socket.create_connection((where.hostname, where.port or 0), timeout=30) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        connection.recv(100)
    until(lambda: len(server.lines()) > before)
    assert server.lines()[-1]["status"] == 400 and server.lines()[-1]["principal"] is None


@pytest.mark.parametrize("given", ["abc-1", "A" * 128, "7f3a:b/c+d=="])
def test_the_caller_chooses_the_id(server: Observed, given: str) -> None:
    _, headers, _ = server.ask("GET", "/health", x_request_id=given)
    assert headers["x-request-id"] == headers["x-amzn-requestid"] == given


@pytest.mark.parametrize(
    "given", ["", "-a", "A" * 129, "a b", 'a"b', "a\x1b[31m", "a\x7f", "a\xe9", "a;b", TOKEN, TOKEN[3:20]]
)
def test_ids_that_are_not_taken(server: Observed, given: str) -> None:
    _, headers, _ = server.ask("GET", f"{ROOT}/catalogs", **bearer(x_request_id=given))
    assert headers["x-request-id"] != given and re.fullmatch(r"[0-9a-f-]{36}", headers["x-request-id"])
    assert headers["x-request-id"] == headers["x-amzn-requestid"]


HOSTILE = ["%0a%7B%22event%22%3A%22call%22%7D", "%1b%5B31mred", "%00", "%c2%85next", "%e2%80%ae", "%7f", "a" * 9000]


@pytest.mark.parametrize("part", HOSTILE)
def test_a_hostile_path_stays_in_its_line(server: Observed, part: str) -> None:
    id_ = f"hostile-{abs(hash(part))}"
    status, _, _ = server.ask(
        "GET", f"{ROOT}/delta/v1/catalogs/main/schemas/s/tables/{part}", **bearer(x_request_id=id_)
    )
    assert status in (400, 404)
    line = server.of(id_)
    assert line["outcome"] == "failed" and len(json.dumps(line)) < 8192
    for name in ("audit.log", "access.log"):
        data = (server.place / name).read_bytes()
        assert not set(data) - set(range(0x20, 0x7F)) - {0x0A}, name


def test_the_access_log_has_a_line_for_each_request(server: Observed) -> None:
    server.ask("GET", "/health", x_request_id="in-the-access-log")
    access = server.place / "access.log"
    until(lambda: "in-the-access-log" in access.read_text())  # it is written after the response
    line = access.read_text().splitlines()[-1]
    pattern = (
        r'127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\] "GET /health HTTP/1\.1" 200 15 \d+\.\d{6} (.*)'
    )
    found = re.fullmatch(pattern, line)
    assert found and found[1] == "in-the-access-log"


def test_the_line_is_there_before_the_response(server: Observed) -> None:
    table = server.unity.new_table("before")
    for version in range(1, 20):
        table.commit()
        last = [line for line in server.lines() if line.get("table") == "s.before"][-1]
        assert last["versions"][0]["version"] == version


def test_what_a_caller_may_not_do_or_see_is_denied(tmp_path: Path) -> None:
    server, seen = InProcess(tmp_path), list[Exchange]()
    server.app._observers = (*server.app._observers, seen.append)
    server.unity().ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
    table = server.unity().new_table("t")
    reader = Principal("reader")
    for place, word in (("catalog/main", "USE CATALOG"), ("schema/main.s", "USE SCHEMA")):
        changes = [{"principal": "reader", "add": [word]}]
        server.unity().ok("PATCH", f"/permissions/{place}", {"changes": changes})
    server.unity().ok("POST", "/schemas", {"name": "hidden", "catalog_name": "main"})
    seen.clear()
    assert server.unity(Principal("eve")).ask("GET", table.path).status == 404
    assert server.unity(reader).ask("GET", table.path).status == 404
    assert server.unity(reader).ask("GET", f"{table.path}none").status == 404
    assert server.unity(reader).ask("DELETE", "/schemas/main.s").status == 403
    answers = [server.unity(reader).ask("GET", f"/schemas/main.{name}") for name in ("hidden", "absent")]
    assert [each.error for each in answers] == [(404, "NoSuchSchemaException")] * 2
    assert server.unity(reader).ask("GET", table.path.replace("/s/", "/hidden/")).status == 404
    assert [(each.principal and each.principal.name, records.outcome_of(each)) for each in seen] == [
        ("eve", "denied"), ("reader", "denied"), ("reader", "failed"), ("reader", "denied"),
        ("reader", "denied"), ("reader", "failed"), ("reader", "denied"),
    ]  # fmt: skip
    server.close()


def test_a_listing_names_its_schema(server: Observed) -> None:
    status, _, _ = server.ask(
        "GET", f"{ROOT}/tables?catalog_name=main&schema_name=s", **bearer(x_request_id="listing-of-s")
    )
    assert (status, server.of("listing-of-s")["table"]) == (200, "s")


def test_a_token_that_has_ended_says_whose_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with observed(
        tmp_path,
        audit=AuditSettings(file=str(tmp_path / "audit.log")),
        metrics=MetricsSettings(enabled=True, port=0),
        authentication=AuthenticationSettings(TokenSettings(cache_seconds=0)),
    ) as server:
        coordinator = server.manager.coordinator
        revoked = issue(coordinator, "leaver", is_admin=True)
        expired = issue(coordinator, "guest", is_admin=True, expires=datetime.timedelta(days=1), clock_ms=lambda: 0)
        unknown = token_text.new_token()

        def call(token: str, id_: str) -> tuple[int, bytes]:
            given = {"authorization": f"Bearer {token}", "x_request_id": id_}
            status, _, body = server.ask("GET", f"{ROOT}/catalogs", **given)
            return status, body.replace(id_.encode(), b"")

        assert call(str(revoked.secret), "before")[0] == 200
        revoke(coordinator, [revoked.id])
        answers = [call(str(each), id_) for each, id_ in (
            (revoked.secret, "of-revoked"), (expired.secret, "of-expired"), (unknown.text, "of-unknown"),
        )]  # fmt: skip
        assert answers[0] == answers[2]  # the caller is not told that the token was once valid
        assert {status for status, _ in answers} == {401}
        found = [server.of(id_) for id_ in ("of-revoked", "of-expired", "of-unknown")]
        assert [(each["principal"], each["credential"], each["reason"], each["outcome"]) for each in found] == [
            ("leaver", f"token {revoked.id}", "revoked", "denied"),
            ("guest", f"token {expired.id}", "expired", "denied"),
            (None, f"token {unknown.id}", "unknown", "denied"),
        ]
        # Somebody who knows the id, but not the token, does not appear as its principal.
        other = token_text.new_token()
        text = f"dlog_{revoked.id}_{other.text[18:-6]}"
        call(text + token_text._checksum(text), "of-other")
        assert (server.of("of-other")["principal"], server.of("of-other")["reason"]) == (None, "unknown")
        assert server.metrics()['deltalog_server_refusals_total{reason="unauthenticated"}'] == 4
    (logged,) = [each for each in caplog.messages if "of-revoked" in each]
    assert ": 401 NotAuthorizedException: " in logged
    assert logged.endswith(f"(token {revoked.id} of leaver is revoked)")
    said = (tmp_path / "audit.log").read_text() + caplog.text
    assert not any(str(secret)[18:] in said for secret in (revoked.secret, expired.secret, unknown.text))


def test_requests_of_the_same_id_at_once(server: Observed) -> None:
    def ask(_: int) -> int:
        return server.ask("POST", "/StartTransaction", {}, **bearer(x_request_id="the-same"))[0]

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(60))) == {200}
    assert sum(line.get("request_id") == "the-same" for line in server.lines()) == 60


# ------------------------------------------------------------------------------------------------ what may go wrong


class NotAnswering(SQLiteCoordinator):
    """Ratifies commits, but does not answer, while ``is_lost`` is set."""

    is_lost = False

    def ratify(self, proposal: Any) -> Any:
        found = super().ratify(proposal)
        if self.is_lost:
            raise OperationTimeoutError("no answer", path=self.url)
        return found


def test_an_unknown_outcome_names_what_may_be_committed(tmp_path: Path) -> None:
    coordinator = NotAnswering(str(tmp_path / "catalog.db"))
    audit = AuditSettings(file=str(tmp_path / "audit.log"))
    with observed(tmp_path, audit=audit, manager=TransactionManager(coordinator)) as server:
        server.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table = server.unity.new_table("doubt")
        coordinator.is_lost = True
        assert table.update(table.stage()).status == 500
        line = server.lines()[-1]
        assert (line["outcome"], line["error"]) == ("unknown", "CommitStateUnknownException")
        assert line["in_doubt"] == [{"table": "s.doubt", "table_id": table.id, "version": 1}]
        assert "versions" not in line


def test_a_commit_after_the_time_out_gets_a_line_of_its_own(tmp_path: Path) -> None:
    go, arrived = threading.Event(), threading.Event()

    class Slow(SQLiteCoordinator):
        def ratify(self, proposal: Any) -> Any:
            arrived.set()
            assert go.wait(60)
            return super().ratify(proposal)

    audit = AuditSettings(file=str(tmp_path / "audit.log"))
    coordinator = Slow(str(tmp_path / "catalog.db"))
    limits = Limits(request_seconds=0.3)
    with observed(tmp_path, audit=audit, manager=TransactionManager(coordinator), limits=limits) as server:
        server.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table = server.unity.new_table("late")
        assert table.update(table.stage()).status == 500
        first = server.lines()[-1]
        assert first["outcome"] == "unknown" and "versions" not in first and arrived.is_set()
        go.set()
        until(lambda: server.lines()[-1]["event"] == "late_commit")
        late = server.lines()[-1]
    assert late["request_id"] == first["request_id"] and late["versions"][0]["version"] == 1


def test_a_commit_after_the_end_gets_a_line_if_the_limits_changed_while_it_ran(tmp_path: Path) -> None:
    go = threading.Event()

    class Slow(SQLiteCoordinator):
        def ratify(self, proposal: Any) -> Any:
            assert go.wait(60)
            return super().ratify(proposal)

    audit = AuditSettings(file=str(tmp_path / "audit.log"))
    manager = TransactionManager(Slow(str(tmp_path / "catalog.db")))
    limits = Limits(request_seconds=0.3)
    with observed(tmp_path, audit=audit, manager=manager, limits=limits) as server:
        server.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table = server.unity.new_table("late")
        assert table.update(table.stage()).status == 500
        settings = server.server._settings
        server.server._apply(dataclasses.replace(settings, limits=dataclasses.replace(limits, threads=3)))
    go.set()
    until(lambda: server.lines()[-1]["event"] == "late_commit")
    server.server.observation.close()
    assert server.lines()[-2]["event"] == "late_commit" and server.lines()[-1]["event"] == "stop"


def test_a_commit_in_doubt_after_the_time_out_gets_a_line_of_its_own(tmp_path: Path) -> None:
    go = threading.Event()

    class Slow(SQLiteCoordinator):
        def ratify(self, proposal: Any) -> Any:
            assert go.wait(60)
            super().ratify(proposal)
            raise OperationTimeoutError("no answer", path=self.url)

    audit = AuditSettings(file=str(tmp_path / "audit.log"))
    coordinator = Slow(str(tmp_path / "catalog.db"))
    limits = Limits(request_seconds=0.3)
    with observed(tmp_path, audit=audit, manager=TransactionManager(coordinator), limits=limits) as server:
        server.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table = server.unity.new_table("late")
        assert table.update(table.stage()).status == 500
        first = server.lines()[-1]
        assert first["outcome"] == "unknown" and "in_doubt" not in first
        go.set()
        until(lambda: server.lines()[-1]["event"] == "late_commit")
        late = server.lines()[-1]
    assert (late["event"], late["outcome"], late["request_id"]) == ("late_commit", "unknown", first["request_id"])
    assert late["in_doubt"] == [{"table": "s.late", "table_id": table.id, "version": 1}] and "versions" not in late


def test_background_work_has_the_principal_server(tmp_path: Path) -> None:
    audit = AuditSettings(file=str(tmp_path / "audit.log"))
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    with observed(tmp_path, audit=audit, manager=manager, recover_seconds=0.2) as server:
        server.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table = server.unity.new_table("published")
        table.commit()
        server.unity.ok("DELETE", server.unity.new_table("dropped").path)
        wanted = {"publication", "deletion", "recovery"}
        until(lambda: wanted <= {line["event"] for line in server.lines()})
        lines = [line for line in server.lines() if line["event"] in wanted]
    assert all((line["principal"], line["outcome"]) == ("server", "allowed") for line in lines)
    publication = next(line for line in lines if line["event"] == "publication")
    assert publication["object"] == str(table.root) and publication["done"] == {"commits": 1}
    assert any("files_of_dropped_table" in line["done"] for line in lines)


def test_the_work_of_others_in_the_process_is_not_the_servers(tmp_path: Path) -> None:
    audit = AuditSettings(file=str(tmp_path / "audit.log"))
    other = TransactionManager(str(tmp_path / "other.db"))
    with observed(tmp_path, audit=audit) as server:
        other.create_table("d.t", str(tmp_path / "t"), SCHEMA)
        other.recover()
        assert [line["event"] for line in server.lines()] == ["start"]
    assert [line["event"] for line in server.lines()] == ["start", "stop"]


def test_rotation_by_create_and_by_copytruncate(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with observed(tmp_path, audit=AuditSettings(file=str(path))) as server:
        server.ask("POST", "/StartTransaction", {}, x_request_id="first")
        os.rename(path, tmp_path / "audit.log.1")
        server.ask("POST", "/StartTransaction", {}, x_request_id="second")
        assert b"first" in (tmp_path / "audit.log.1").read_bytes() and b"second" in path.read_bytes()
        (tmp_path / "audit.log.2").write_bytes(path.read_bytes())
        os.truncate(path, 0)
        server.ask("POST", "/StartTransaction", {}, x_request_id="third")
        assert [line["request_id"] for line in server.lines()] == ["third"]
        path.unlink()
        server.ask("POST", "/StartTransaction", {}, x_request_id="fourth")
        assert server.lines()[0]["request_id"] == "fourth"


def test_a_line_that_a_crash_cut_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"event":"call","pa')
    log = AuditLog(AuditSettings(file=str(path)))
    log.note("start")
    log.close()
    cut, *lines = path.read_bytes().splitlines()
    assert cut == b'{"event":"call","pa' and [json.loads(line)["event"] for line in lines] == ["start", "stop"]


class Full:
    """Replaces ``os.write``: simulates a disk with room for ``room`` bytes; None: without limit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int | None = 0) -> None:
        self.room: int | None = room
        real = os.write

        def write(fd: int, data: Any) -> int:
            if self.room is None or len(data) < 8:  # asyncio wakes its loop by a byte
                return real(fd, data)
            if self.room == 0:
                raise OSError(28, "No space left on device")
            count = real(fd, data[: self.room])
            self.room -= count
            return count

        monkeypatch.setattr("deltalog.server.observe.lines.os.write", write)


def test_a_full_disk_is_warned_of_and_nothing_is_lost_while_lines_can_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with observed(tmp_path, audit=AuditSettings(file=str(tmp_path / "audit.log"))) as server:
        server.ask("POST", "/StartTransaction", {}, x_request_id="before")
        disk = Full(monkeypatch, room=100)
        assert [server.ask("POST", "/StartTransaction", {}, x_request_id=f"full-{n}")[0] for n in range(5)] == [200] * 5
        assert any("cannot be written" in each.getMessage() for each in caplog.records)
        disk.room = None
        until(lambda: b"full-4" in (tmp_path / "audit.log").read_bytes())
    ids = []
    for line in (tmp_path / "audit.log").read_text().splitlines():
        try:
            ids.append(json.loads(line).get("request_id"))
        except ValueError:  # the line that was cut when the disk was full; it follows again as a whole
            ids.append("cut")
    assert ids == [None, "before", "cut", "full-0", "full-1", "full-2", "full-3", "full-4", None]
    assert any("can be written again" in each.getMessage() for each in caplog.records)


def test_a_full_disk_stops_calls_if_that_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = AuditSettings(file=str(tmp_path / "audit.log"), on_failure="refuse")
    with observed(tmp_path, audit=audit) as server:
        server.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table = server.unity.new_table("full")
        disk = Full(monkeypatch)
        add = table.stage()
        assert table.update(add).status == 200  # the full disk was not noticed yet
        again = table.stage(version=2)
        refused = table.update(again)
        assert refused.status in (429, 503) and "audit log" in refused.body["message"]
        assert server.manager.table("s.full").snapshot().version == 1
        assert server.ask("GET", "/health")[0] == server.ask("GET", "/health/live")[0] == 200
        status, _, body = server.ask("GET", "/health/ready")
        assert (status, json.loads(body)) == (503, {"status": "unaudited"})
        disk.room = None
        until(lambda: table.update(again).status == 200)
        assert server.ask("GET", "/health/ready")[0] == 200
        lines = [line for line in server.lines() if line.get("table") == "s.full" and line.get("versions")]
    assert [line["versions"][0]["version"] for line in lines] == [0, 1, 2]


def test_lines_that_are_lost_are_counted_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(AuditSettings(file=str(tmp_path / "audit.log"), queue_lines=3))
    disk = Full(monkeypatch)
    for _ in range(10):
        log.note("start")
    assert log.writer.lost == 7 and log.writer.waiting == 3
    disk.room = None
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert sum(line.get("lines", 0) for line in lines) >= 7
    assert sum(line["event"] == "start" for line in lines) == 3


def test_a_slow_disk_blocks_no_other_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, real = threading.Event(), LineFile.append
    slow = threading.Event()

    def append(self: LineFile, lines: Any) -> int:
        if slow.is_set():
            assert go.wait(60)
        return real(self, lines)

    monkeypatch.setattr(LineFile, "append", append)
    audit = AuditSettings(file=str(tmp_path / "audit.log"), write_seconds=60)
    with observed(tmp_path, audit=audit) as server, ThreadPoolExecutor(2) as pool:
        slow.set()
        waiting = pool.submit(server.ask, "POST", "/StartTransaction", {})
        # The event loop still answers, here a request that never ends its headers and so has no audit line.
        import socket
        import urllib.parse

        where = urllib.parse.urlsplit(server.server.url)
        with socket.create_connection((where.hostname, where.port or 0), timeout=30) as connection:
            connection.sendall(b"no HTTP at all\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400")
        assert not waiting.done()
        go.set()
        assert waiting.result(60)[0] == 200


def test_a_response_waits_only_so_long_for_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(LineFile, "append", lambda self, lines: go.wait(60) and len(lines))
    audit = AuditSettings(file=str(tmp_path / "audit.log"), write_seconds=0.05, on_failure="refuse")
    with observed(tmp_path, audit=audit) as server:
        assert server.ask("POST", "/StartTransaction", {})[0] == 200
        assert server.ask("POST", "/StartTransaction", {})[0] == 503
        go.set()


def test_two_servers_append_to_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "audit.log")
    writers = [LineWriter(LineFile(path), 100_000) for _ in range(4)]

    def write(number: int) -> None:
        for count in range(500):
            writers[number].put([records._encoded({"writer": number, "count": count, "text": "x" * (count % 700)})])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    for writer in writers:
        writer.close(60)
    found = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert len(found) == 2000
    for number in range(4):
        assert [line["count"] for line in found if line["writer"] == number] == list(range(500))


def test_many_versions_are_split_over_lines_and_none_is_lost() -> None:
    exchange = Exchange("id", "POST", "/CommitTransaction", "127.0.0.1", status=200, route="CommitTransaction")
    exchange.versions.update({f"{number:036}": number for number in range(3000)})
    exchange.tables.update({f"{number:036}": f"schema.{'t' * 300}{number}" for number in range(3000)})
    lines = records.lines(records.of_exchange(exchange, 0, "here:1"), 8192)
    assert all(len(line) <= 8192 for line in lines) and len(lines) > 100
    found = [json.loads(line) for line in lines]
    assert [each["version"] for line in found for each in line["versions"]] == list(range(3000))
    assert [line["part"] for line in found] == list(range(1, len(found) + 1))
    assert {line["request_id"] for line in found} == {"id"}


@pytest.mark.parametrize("most", [2048, 4096, 8192])
def test_no_line_is_longer_than_allowed(most: int) -> None:
    exchange = Exchange("i" * 128, "M" * 5000, "\u2028\x1b" * 9000, "a" * 500, status=404, route="r" * 900)
    exchange.names = {f"{'n' * 100}{number}": "\x00" * 5000 for number in range(50)}
    exchange.table, exchange.transaction_id, exchange.error = "\xff" * 9000, "x" * 9000, "e" * 9000
    exchange.versions.update({"\x01" * 200 + str(number): number for number in range(100)})
    lines = records.lines(records.of_exchange(exchange, 0, "here:1"), most)
    assert all(len(line) <= most and line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert sorted(each["version"] for line in lines for each in json.loads(line)["versions"]) == list(range(100))


def test_a_flood_of_strangers_is_counted(tmp_path: Path) -> None:
    now = [0.0]
    strangers = PeriodicLimit(3, 1, lambda: now[0])
    assert [strangers.next(401)[0] for _ in range(5)] == [True, True, True, False, False]
    now[0] = 1.5
    assert strangers.next(401) == (True, {"401": 2}) and strangers.rest() == {}
    audit = AuditSettings(file=str(tmp_path / "audit.log"), refused_per_second=2)
    with observed(tmp_path, token=TOKEN, audit=audit) as server:
        for _ in range(30):
            server.ask("GET", f"{ROOT}/catalogs")
    lines = server.lines()
    single = sum(line["event"] == "call" for line in lines)
    counted = sum(line["by_status"]["401"] for line in lines if line["event"] == "refused")
    assert single + counted == 30 and counted > 0


def test_calls_that_only_read_can_be_left_out(tmp_path: Path) -> None:
    audit = AuditSettings(file=str(tmp_path / "audit.log"), reads=False)
    with observed(tmp_path, audit=audit) as server:
        server.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table = server.unity.new_table("read")
        server.unity.ok("GET", table.path)
        server.unity.ask("GET", f"{table.path}none")
        server.unity.ask("GET", f"{table.path}/credentials?operation=READ")
        calls = [(line["method"], line["status"]) for line in server.lines() if line["event"] == "call"]
    assert calls[:3] == [("POST", 200)] * 3 and calls[3] == ("GET", 404) and calls[4][0] == "GET" and len(calls) == 5


def test_settings_that_cannot_work(tmp_path: Path) -> None:
    for settings in (
        AuditSettings(file=str(tmp_path / "a"), on_failure="ignore"),  # type: ignore[arg-type]
        AuditSettings(file=str(tmp_path / "a"), line_bytes=10),
        AuditSettings(file=str(tmp_path / "a"), queue_lines=0),
        AuditSettings(file=str(tmp_path / "none" / "a")),
        AuditSettings(file=str(tmp_path)),
    ):
        with pytest.raises(CallError):
            AuditLog(settings)
    for settings in (AuditSettings(access_file=str(tmp_path / "none" / "a")), AuditSettings(queue_lines=0)):
        with pytest.raises(CallError):
            check_settings(settings, MetricsSettings())
    check_settings(AuditSettings(file="-", access_file=str(tmp_path / "a")), MetricsSettings(enabled=True))
    with pytest.raises(CallError, match="token_file"):
        check_settings(AuditSettings(), MetricsSettings(enabled=True, host="0.0.0.0"))
    assert not any(tmp_path.iterdir())


def test_a_failing_observer_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from deltalog.server.app import App

    def broken(_: Exchange) -> None:
        raise ValueError("broken")

    seen: list[Exchange] = []
    app = App(TransactionManager(str(tmp_path / "catalog.db")), observers=[broken, seen.append])
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "raw_path": b"/StartTransaction",
        "headers": [],
        "query_string": b"",
    }
    asyncio.run(app(scope, receive, send))
    app.close()
    assert sent[0]["status"] == 200 and [each.status for each in seen] == [200]
    assert any("an observer failed" in each.getMessage() for each in caplog.records)
