"""The metrics agree with counts that are made in another way, have few labels, and are served to scrapers only."""

from __future__ import annotations

import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deltalog import CallError, TransactionManager
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.metrics import CatalogCall, Counters, listening
from deltalog.server.access.grants import GrantChange, Grants
from deltalog.server.access.issued import issue
from deltalog.server.access.principals import Scope
from deltalog.server.access.privileges import Kind, Privilege
from deltalog.server.observe.metrics import OTHER, Bounded, ServerMetrics, Unpublished
from deltalog.server.observe.observation import Observation
from deltalog.server.observe.scraping import Scraping, token_of
from deltalog.server.observe.settings import AuditSettings, MetricsSettings
from deltalog.transactions.unity.documents import CATALOG_ACCESS_KEY
from tests.support.server.observed import Observed, observed
from tests.support.server.unity import ROOT

TOKEN = "sentinel-0123456789abcdef-token"
ON = MetricsSettings(enabled=True, port=0)


def total(found: dict[str, float], name: str, **labels: str) -> float:
    """The sum of the series of a metric that have these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        value
        for series, value in found.items()
        if re.split(r"[{ ]", series)[0] == name and all(each in series for each in wanted)
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("measured")
    audit = AuditSettings(file=str(place / "audit.log"))
    metrics = MetricsSettings(enabled=True, port=0, tables=2)
    with observed(place, token=TOKEN, metrics=metrics, audit=audit) as made:
        made.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        yield made


def test_calls_and_commits_of_many_threads_are_counted_exactly(server: Observed) -> None:
    tables = [server.unity.new_table(f"counted{number}") for number in range(4)]
    before, independent, statuses = server.metrics(), Counters(), Counter[int]()

    def work(table: Any) -> list[int]:
        found = []
        for _ in range(10):
            found.append(table.update(table.stage(version=table.version + 1)).status)
            table.version += 1
            found.append(server.unity.ask("GET", table.path).status)
            found.append(server.unity.ask("GET", f"{table.path}none").status)
        return found

    with listening(independent), ThreadPoolExecutor(4) as pool:
        for some in pool.map(work, tables):
            statuses.update(some)
    after = server.metrics()

    def grown(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    assert statuses == {200: 80, 404: 40}
    for status, count in statuses.items():
        assert grown("deltalog_server_requests_total", status=str(status)) == count
    update = "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
    assert grown("deltalog_server_requests_total", route=update) == 40
    assert grown("deltalog_server_request_duration_seconds_count") == 120
    assert grown("deltalog_server_commits_total") == 40
    assert grown("deltalog_catalog_ratifications_total", result="ratified") == 40
    for kind in ("catalog", "store"):
        for method, count in independent.calls(kind).items():
            assert grown(f"deltalog_{kind}_calls_total", method=method) == count, method
            assert grown(f"deltalog_{kind}_call_duration_seconds_count", method=method) == count, method
    assert after["deltalog_server_requests_in_progress"] == 0
    assert total(after, "deltalog_audit_lines_written_total") == len(server.lines())


def test_hundreds_of_hostile_requests_make_no_series_of_their_own(server: Observed) -> None:
    server.ask("GET", f"{ROOT}/x", x_request_id="h")
    before = len(server.metrics())
    headers = {"authorization": f"Bearer {TOKEN}"}
    connection = server.served.connection()
    for number in range(300):
        path = (f"{ROOT}/delta/v1/catalogs/main/schemas/s/tables/t{number}", f"{ROOT}/{number}", f"/{number}")[
            number % 3
        ]
        connection.request(("GET", "POST", f"X{number}")[number % 2 + (number % 7 == 0)], path, b"{", headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (400, 404), (path, answer.status)
    connection.close()
    found = server.metrics()
    assert len(found) - before < 150
    assert not [series for series in found if "t29" in series or "X7" in series or "/29" in series]


def test_refusals_have_reasons(server: Observed) -> None:
    before = server.metrics()
    headers = {"authorization": f"Bearer {TOKEN}"}
    server.ask("GET", f"{ROOT}/catalogs")
    server.ask("GET", f"{ROOT}/catalogs", origin="https://evil.example", **headers)
    server.ask("GET", f"{ROOT}/none", **headers)
    server.ask("POST", f"{ROOT}/schemas", b"x" * (5 << 20), **headers)
    server.ask("GET", f"{ROOT}/catalogs", x="y" * 30_000, z="y" * 4000, **headers)
    where = urllib.parse.urlsplit(server.server.url)
    with socket.create_connection((where.hostname, where.port or 0), timeout=30) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        connection.recv(100)
    after = server.metrics()
    name = "deltalog_server_refusals_total"
    grown = {
        reason: total(after, name, reason=reason) - total(before, name, reason=reason)
        for reason in ("unauthenticated", "denied", "not_found", "too_large", "not_http")
    }
    assert grown == {"unauthenticated": 1, "denied": 1, "not_found": 1, "too_large": 2, "not_http": 1}


def test_what_a_caller_may_not_do_is_counted(server: Observed) -> None:
    coordinator = server.manager.coordinator
    write = issue(coordinator, "eve", scope=Scope.WRITE)
    read = issue(coordinator, "eve", scope=Scope.READ)
    Grants(coordinator).grant(
        Kind.CATALOG, CATALOG_ACCESS_KEY, [GrantChange("eve", frozenset({Privilege.USE_CATALOG}))]
    )
    before = server.metrics()
    statuses = [
        server.ask(method, f"{ROOT}{path}", body, authorization=f"Bearer {token.secret}")[0]
        for token, method, path, body in (
            (read, "POST", "/schemas", {"name": "n", "catalog_name": "main"}),  # the scope
            (write, "POST", "/schemas", {"name": "n", "catalog_name": "main"}),  # a privilege
            (write, "GET", "/schemas/main.s", None),  # a schema that the caller may not see
            (write, "GET", "/schemas/main.absent", None),
        )
    ]
    assert statuses == [403, 403, 404, 404]
    name = "deltalog_server_refusals_total"
    assert total(server.metrics(), name) - total(before, name) == 3
    assert total(server.metrics(), name, reason="denied") - total(before, name, reason="denied") == 3


def test_unpublished_commits_and_the_tables_that_have_the_most(server: Observed) -> None:
    server.manager.recover()
    tables = {name: server.unity.new_table(name) for name in ("few", "more", "most")}
    for count, table in enumerate(tables.values(), 1):
        for _ in range(count):
            table.commit()
    found = server.metrics()
    assert found['deltalog_table_unpublished_commits{table="s.most"}'] == 3
    assert sum(series.startswith("deltalog_table_unpublished_commits{") for series in found) == 2
    before = found["deltalog_unpublished_commits"]
    server.manager.recover()
    after = server.metrics()
    assert before >= 6 and after["deltalog_unpublished_commits"] == 0 == after["deltalog_unpublished_commits_max"]
    assert not [series for series in after if series.startswith("deltalog_table_unpublished_commits{")]
    assert after["deltalog_published_commits_total"] >= 6


def test_conflicts_are_counted(server: Observed) -> None:
    table = server.unity.new_table("contended")
    first, second = table.stage(version=1), table.stage(version=1)
    assert table.update(first).status == 200
    before = server.metrics()
    assert table.update(second).status == 409
    name = "deltalog_server_conflicts_total"
    found = total(server.metrics(), name, error="CommitVersionConflictException")
    assert found - total(before, name, error="CommitVersionConflictException") == 1


def test_recovery_runs_and_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    with observed(tmp_path, metrics=ON, manager=manager) as server:
        assert server.metrics()["deltalog_recovery_last_success_timestamp_seconds"] == 0
        begun_s = time.time()
        manager.recover()
        found = server.metrics()
        assert found['deltalog_recovery_runs_total{result="ok"}'] == 1
        assert begun_s <= found["deltalog_recovery_last_success_timestamp_seconds"] <= time.time()

        def failing(*_: Any) -> Any:
            raise CallError("broken")

        monkeypatch.setattr(SQLiteCoordinator, "tables", failing)
        with pytest.raises(CallError):
            manager.recover()
        found = server.metrics()
        assert found['deltalog_recovery_runs_total{result="failed"}'] == 1
        assert begun_s <= found["deltalog_recovery_last_success_timestamp_seconds"] <= time.time()


def test_the_exposition_is_prometheus_and_its_names_are_as_they_should_be(server: Observed) -> None:
    with urllib.request.urlopen(server.server.metrics_url or "", timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=")
        text = answer.read().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(families) > 40
    for name, family in families.items():
        assert family.documentation.endswith(".") or not name.startswith("deltalog_"), name
        if name.startswith("deltalog_"):
            assert re.fullmatch(r"deltalog_[a-z_]+", name) and "_created" not in text
            assert not name.endswith(("_ms", "_millis", "_kb")), name
    assert {"process_resident_memory_bytes", "process_open_fds", "deltalog_server_connections"} <= set(families)
    assert "deltalog_build_info{" in text
    assert 'deltalog_server_calls_waiting{lanes="stores"} 0.0' in text
    assert TOKEN not in text


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 404), ("POST", "/metrics", {}, 405), ("GET", "/metrics", {"Origin": "http://127.0.0.1"}, 403),
        ("HEAD", "/metrics", {}, 200), ("GET", "/metrics/../metrics", {}, 404), ("GET", "/metrics?x=y", {}, 200),
    ],
)  # fmt: skip
def test_the_listener_has_only_the_metrics(
    server: Observed, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    import http.client

    where = urllib.parse.urlsplit(server.server.metrics_url or "")
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == status and (b"deltalog_server" in body) == (status == 200 and method == "GET")
    assert server.ask("GET", "/metrics")[0] == 404  # not on the address of the server's calls


def test_a_scraper_needs_the_token_if_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with observed(tmp_path, metrics=MetricsSettings(enabled=True, port=0, token_file=str(file))) as server:
        for wrong in (None, "", "x" * 30, TOKEN[:-1]):
            with pytest.raises(urllib.error.HTTPError) as caught:
                server.metrics(wrong)
            assert caught.value.code == 401
        assert server.metrics(TOKEN)["deltalog_server_requests_in_progress"] == 0


def test_the_token_of_the_scraper_is_replaced_without_a_restart(tmp_path: Path) -> None:
    file, new = tmp_path / "token", "another-token-0123456789"
    file.write_text(TOKEN)
    metrics = MetricsSettings(enabled=True, port=0, token_file=str(file))
    with observed(tmp_path, metrics=metrics) as server:
        file.write_text(new)
        server.server._apply(server.server._settings)
        assert server.metrics(new)["deltalog_server_requests_in_progress"] == 0
        with pytest.raises(urllib.error.HTTPError):
            server.metrics(TOKEN)
        file.write_text("short")
        with pytest.raises(CallError):
            server.server._apply(server.server._settings)
        assert server.metrics(new)["deltalog_server_requests_in_progress"] == 0


def test_addresses_and_tokens_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("short")
    for settings in (
        MetricsSettings(enabled=True, host="0.0.0.0"),
        MetricsSettings(enabled=True, token_file=str(tmp_path / "none")),
        MetricsSettings(enabled=True, token_file=str(tmp_path / "short")),
    ):
        with pytest.raises(CallError):
            token_of(settings)
    assert token_of(MetricsSettings(enabled=True, host="0.0.0.0", any_address=True)) is None
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port}"):
            Observation(metrics=MetricsSettings(enabled=True, port=port))


@pytest.mark.long
def test_without_settings_nothing_is_loaded_or_listened_to(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from deltalog import TransactionManager, metrics;"
        "from deltalog.server.serve import Server;from deltalog.server.settings import Settings;"
        f"Server(TransactionManager({str(tmp_path / 'catalog.db')!r}), Settings());"
        "found = [each for each in ('prometheus_client', 'opentelemetry') if each in sys.modules];"
        "print(metrics.has_listeners(), found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[0] == "False []"


def test_values_of_labels_are_bounded() -> None:
    bounded = Bounded(3)
    assert [bounded(f"v{number}") for number in range(5)] == ["v0", "v1", "v2", OTHER, OTHER]
    assert bounded("v1") == "v1"


def test_unpublished_commits_follow_what_the_catalog_shows() -> None:
    found = Unpublished()
    assert found.counts() == {}
    for number in range(20_000):
        found._set(str(number), (1, 2))
    assert len(found.counts()) == 10_000
    found.note(CatalogCall("c", "published", 0.0, None, ("19999", 1), None))
    assert found.counts()["19999"] == 1
    found.note(CatalogCall("c", "published", 0.0, None, ("19999", 2), None))
    assert "19999" not in found.counts()
    found.note(CatalogCall("c", "head", 0.0, "CoordinatorError", ("19998",), None))


def test_two_servers_in_a_process_have_their_own_registries() -> None:
    first, second = ServerMetrics(), ServerMetrics()
    first.commits.inc()
    values = [
        sample.value for each in (first, second) for family in each.collect() for sample in family.samples
        if sample.name == "deltalog_server_commits_total"
    ]  # fmt: skip
    assert values == [1.0, 0.0]
    Scraping(first, ON).close()
