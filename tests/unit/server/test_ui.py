"""The pages for browsers: what they show and to whom, that nothing in a table becomes markup, and their limits."""

from __future__ import annotations

import base64
import contextlib
import html
import html.parser
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, TransactionManager, deadline
from deltalog.catalog.records import ACCESS, access_key
from deltalog.errors import StoreError
from deltalog.server.access.principals import Principal, Scope
from deltalog.server.settings import Settings
from deltalog.server.ui import calls
from deltalog.server.ui.layout import POLICY
from deltalog.server.ui.markup import address_of, tag
from deltalog.server.ui.settings import UiSettings
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import CATALOG_ACCESS_KEY, AccessDocument, schema_access_key
from tests.support.server.access import serving
from tests.support.server.in_process import ADMIN, InProcess

HOSTILE = "</td></style><script>alert(1)</script><img src=x onerror=alert(2)>&lt;\u202e\x1b'\""
ROWS = pa.table({"id": [1, 2, 3], "what": [HOSTILE, None, "c"]})
TABS = ("", "/rows", "/history", "/diff", "/check", "/timeline")
TOKEN = "t" * 32


class Elements(html.parser.HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


@pytest.fixture
def server(tmp_path: Path) -> Iterator[InProcess]:
    """A catalog with the table ``s.hostile``, of three versions, all of whose texts are hostile."""
    made = InProcess(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("what", pa.string()), (HOSTILE, pa.string())])
    rows = ROWS.append_column(HOSTILE, pa.array([HOSTILE] * 3)).cast(schema)
    table = made.manager.create_table(
        "s.hostile", str(tmp_path / "hostile"), schema, description=HOSTILE, data=rows,
        properties={"delta.columnMapping.mode": "name"},
    )  # fmt: skip
    table.append(rows, user_metadata=HOSTILE)
    table.delete("id = 2")
    yield made
    made.close()


def shown(
    server: InProcess, path: str, principal: Principal = ADMIN, headers: Mapping[str, str] | None = None
) -> tuple[int, str, Mapping[str, str]]:
    status, body, sent = server.send(principal, "GET", path, headers=headers)
    assert isinstance(body, str), body
    return status, body, sent


def text_of(server: InProcess, path: str) -> str:
    status, body, _ = shown(server, path)
    assert status == 200, Elements(body).text
    return " ".join(Elements(body).text.partition("read-only")[0].split())


@pytest.mark.parametrize("tab", TABS)
def test_nothing_in_a_table_becomes_markup(server: InProcess, tab: str) -> None:
    status, body, headers = shown(server, f"/ui/tables/s.hostile{tab}")
    seen = Elements(body)
    policy = headers["content-security-policy"]
    scripts = [attributes for name, attributes in seen.tags if name == "script"]
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert "<img" not in body and "<script>alert" not in body and "\u202e" not in body and "\x1b" not in body
    assert not [key for _, attributes in seen.tags for key in attributes if key.startswith("on")]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "connect-src" not in policy
    if tab == "/timeline":
        assert scripts == [{"type": "application/json", "id": "data"}, {}] and "script-src 'sha256-" in policy
    else:
        assert scripts == [] and policy.startswith(POLICY) and "script-src" not in policy
        assert HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")[:30] in seen.text or tab in (
            "/check",
            "/diff",
        )


def test_what_a_caller_sends_does_not_become_markup(server: InProcess) -> None:
    for path in (
        f"/ui/tables/{urllib.parse.quote('s.<script>x</script>')}",
        "/ui/tables/s.hostile/%3Cscript%3E",
        "/ui/?prefix=%22%3E%3Cscript%3E",
        "/ui/tables/s.hostile/rows?version=%3Cscript%3E",
        "/ui/tables/s.hostile/rows?at=%3Cscript%3E",
    ):
        status, body, _ = shown(server, path)
        assert "<script" not in body and (status == 200) == path.startswith("/ui/?"), path
    assert tag("a", "<b>", title="\"&'", href=address_of("tables", "a/b?c#", q="&")) == (
        '<a title="&quot;&amp;&#x27;" href="/ui/tables/a%2Fb%3Fc%23?q=%26">&lt;b&gt;</a>'
    )


def test_the_pages_of_a_table(server: InProcess) -> None:
    assert "s.hostile managed v2" in text_of(server, "/ui/")
    assert "There are no tables" in text_of(server, "/ui/?prefix=t")
    columns = text_of(server, "/ui/tables/s.hostile")
    assert "id long" in columns and "delta.enableInCommitTimestamps true" in columns and "since version 0" in columns
    assert "4 rows of version 2." in text_of(server, "/ui/tables/s.hostile/rows")
    assert "3 rows of version 0." in text_of(server, "/ui/tables/s.hostile/rows?version=0")
    history = text_of(server, "/ui/tables/s.hostile/history")
    assert "DELETE" in history and "+3 rows" in history and "v0" in history
    assert "v0" not in text_of(server, "/ui/tables/s.hostile/history?limit=2")
    assert "found nothing" in text_of(server, "/ui/tables/s.hostile/check")
    at = server.manager.table("s.hostile").history()[1].timestamp_ms
    assert at is not None
    before = shown(server, f"/ui/tables/s.hostile/rows?at={urllib.parse.quote(_iso(at))}")
    assert "6 rows of version 1." in Elements(before[1]).text


def _iso(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}Z"


def test_the_rows_that_differ(server: InProcess, tmp_path: Path) -> None:
    """A rewritten file is not a changed row."""
    table = server.manager.create_table("s.d", str(tmp_path / "d"), ROWS.schema, data=ROWS)
    table.update({"what": "'new'"}, "id = 3")
    found = text_of(server, "/ui/tables/s.d/diff").partition("Rows id what")[2].partition("Files")[0]
    assert found.split() == ["−", "3", "c", "+", "3", "new"]
    assert "The same rows." in text_of(server, "/ui/tables/s.d/diff?from=1&to=1")
    table.append(ROWS)
    table.optimize.compact()
    assert "The same rows." in text_of(server, "/ui/tables/s.d/diff")
    table.set_properties({"delta.appendOnly": "false"})
    assert "property delta.appendOnly false" in text_of(server, "/ui/tables/s.d/diff")
    assert shown(server, "/ui/tables/s.d/diff?from=0&to=99")[0] == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/tables/s.none", 404), ("/ui/tables/none.none/rows", 404), ("/ui/tables/hostile", 400), ("/ui/none", 404),
        ("/ui/tables/s.hostile/rows?version=9", 404), ("/ui/tables/s.hostile/rows?version=-1", 400),
        ("/ui/tables/s.hostile/rows?at=2000-01-01T00:00:00Z", 404), ("/ui/tables/s.hostile/rows?at=soon", 400),
        ("/ui/tables/s.hostile/rows?version=1&at=2000-01-01T00:00:00Z", 400), ("/ui/tables/s.hostile/none", 404),
        ("/ui/tables/s.hostile/history?limit=x", 400),
    ],
)  # fmt: skip
def test_what_cannot_be_shown(server: InProcess, path: str, status: int) -> None:
    assert shown(server, path)[0] == status


# --------------------------------------------------------------------------------------------------- limits


def test_rows_columns_and_text_are_limited(server: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = pa.table({f"c{n}": ["x" * 1000] * 150 for n in range(130)})
    server.manager.create_table("s.wide", str(tmp_path / "wide"), wide.schema, data=wide)
    _, body, _ = shown(server, "/ui/tables/s.wide/rows")
    seen = Elements(body)
    assert "The first 100 rows of version 0. The page shows 100 of 130 columns." in " ".join(seen.text.split())
    assert [name for name, _ in seen.tags].count("td") == 100 * 100
    assert len(body) < 100 * 100 * 260
    monkeypatch.setattr(calls, "_MOST_PAGE_CHARACTERS", 100_000)
    assert len(shown(server, "/ui/tables/s.wide/rows")[1]) < 120_000
    monkeypatch.setattr(calls, "_MOST_COMPARED", 100)
    server.manager.table("s.wide").delete()
    assert "more than 100 rows" in text_of(server, "/ui/tables/s.wide/diff")


def test_reading_ends_at_the_deadline() -> None:
    batches = iter(pa.table({"a": [1, 2]}).to_batches(max_chunksize=1) * 100)
    cells = calls._cells(batches, "memory://t")
    with deadline.until(time.monotonic() + 60):
        assert next(cells) == ["1"]
    with deadline.until(time.monotonic() - 1), pytest.raises(StoreError):
        next(cells)
        next(cells)


def test_a_check_ends_at_the_deadline(server: InProcess) -> None:
    table = server.manager.table("s.hostile")
    with deadline.until(time.monotonic() - 1), pytest.raises(StoreError):
        table.check(progress=lambda *_: deadline.check(table.url))


def test_values_that_python_cannot_represent_are_shown(server: InProcess, tmp_path: Path) -> None:
    late = pa.table(
        {"f": [float("nan"), None], "at": pa.array([2**62, None], pa.timestamp("us", "UTC")), "g": [None, 1.5]}
    )
    server.manager.create_table("s.late", str(tmp_path / "late"), late.schema, data=late)
    assert f"NaN {2**62} timestamp[us, tz=UTC] null null null 1.5" in text_of(server, "/ui/tables/s.late/rows")


# ------------------------------------------------------------------------------------------------ who may see what


def _grant(server: InProcess, key: str, *words: str, owner: str = "other") -> None:
    coordinator = server.manager.coordinator
    found = coordinator.document(ACCESS, key)
    document = AccessDocument(owner=owner, grants={"ann": words} if words else {})
    change = documents.change(ACCESS, key, 0 if found is None else found.revision, document)
    assert coordinator.change_documents([change])
    server.grants.forget()


def test_a_reader_sees_what_was_granted_and_nothing_else(server: InProcess, tmp_path: Path) -> None:
    other = server.manager.create_table("s.secret", str(tmp_path / "secret"), ROWS.schema, data=ROWS)
    reader = Principal("ann", scope=Scope.READ)
    assert shown(server, "/ui/", reader)[0] == 404
    _grant(server, CATALOG_ACCESS_KEY, "USE CATALOG")
    _grant(server, schema_access_key("s"), "USE SCHEMA")
    table_id = server.manager.coordinator.table("s.hostile")
    assert table_id is not None
    _grant(server, access_key(table_id.table_id), "SELECT")
    listing = shown(server, "/ui/", reader)[1]
    assert "s.hostile" in listing and "secret" not in listing
    for tab in TABS:
        assert shown(server, f"/ui/tables/s.hostile{tab}", reader)[0] == 200
        status, body, _ = shown(server, f"/ui/tables/s.secret{tab}", reader)
        missing = shown(server, f"/ui/tables/s.nothing{tab}", reader)
        assert (status, body.replace("secret", "nothing")) == missing[:2] and status == 404
    assert other.url not in listing


def test_no_table_shows_files_of_another(server: InProcess, tmp_path: Path) -> None:
    """Who may commit to one table cannot read another one through the server, which may read both."""
    secret = server.manager.create_table("s.secret", str(tmp_path / "secret"), ROWS.schema, data=ROWS)
    [path] = secret.snapshot().files()["path"].to_pylist()
    target = tmp_path / "secret" / path
    for name, way in (("absolute", f"file://{target}"), ("dots", f"../secret/{path}"), ("linked", "link.parquet")):
        root = tmp_path / name
        DeltaTable.create(root, ROWS.schema, data=ROWS)
        [own] = DeltaTable.open(root).snapshot().files()["path"].to_pylist()
        commit = root / "_delta_log" / f"{0:020d}.json"
        commit.write_text(commit.read_text().replace(own, way))
        (root / "link.parquet").symlink_to(target)
        server.manager.register_table(f"s.{name}", str(root))
        status, body, _ = shown(server, f"/ui/tables/s.{name}/rows")
        assert status == 400 and "c</td>" not in body, name
    assert shown(server, "/ui/tables/s.secret/rows")[0] == 200


def test_external_tables_are_read_only_where_the_server_may(tmp_path: Path) -> None:
    server = InProcess(tmp_path)
    server.unity().ok("POST", "/schemas", {"name": "x", "catalog_name": "main"})
    for place in ("warehouse/in", "out"):
        DeltaTable.create(tmp_path / place, ROWS.schema, data=ROWS)
        name = place.rpartition("/")[2]
        request = {
            "name": name, "catalog_name": "main", "schema_name": "x", "table_type": "EXTERNAL", "columns": [],
            "data_source_format": "DELTA", "storage_location": f"file://{tmp_path / place}",
        }  # fmt: skip
        server.unity().ok("POST", "/tables", request)
    assert "3 rows of version 0." in text_of(server, "/ui/tables/x.in/rows")
    status, body, _ = shown(server, "/ui/tables/x.out/rows")
    assert status == 400 and "may not read" in body
    # A directory that becomes a link to another table is not that table.
    server.manager.create_table("x.managed", str(tmp_path / "warehouse" / "managed"), ROWS.schema, data=ROWS)
    DeltaTable.create(tmp_path / "warehouse" / "other", ROWS.schema, data=ROWS)
    for target, why in (("managed", "contains one"), ("other", "symbolic link")):
        shutil.move(tmp_path / "warehouse/in", tmp_path / f"moved-{target}")
        (tmp_path / "warehouse/in").symlink_to(tmp_path / "warehouse" / target)
        status, body, _ = shown(server, "/ui/tables/x.in/rows")
        assert status == 400 and why in body
    server.close()


# ---------------------------------------------------------------------------------------------- over the network


def _basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"me:{password}".encode()).decode()}


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    TransactionManager(str(tmp_path / "c.db")).create_table("s.t", str(tmp_path / "t"), ROWS.schema, data=ROWS)
    return tmp_path / "c.db"


def test_the_password_is_the_token(catalog: Path) -> None:
    settings = Settings(token=TOKEN, ui=UiSettings(enabled=True))
    with serving(catalog, settings) as server:
        for headers in (_basic(TOKEN), {"Authorization": f"Bearer {TOKEN}"}):
            assert server.ask("/ui/", headers, method="GET", body=b"")[0] == 200
        for wrong in ({}, _basic("x" * 32), {"Authorization": "Basic \xff"}, {"Authorization": "Basic"}):
            status, sent, _ = server.ask("/ui/tables/s.t/rows", wrong, method="GET", body=b"")
            assert (status, sent["www-authenticate"]) == (401, 'Basic realm="deltalog", charset="UTF-8"'), wrong
        # Elsewhere a password is no proof: browsers would send it along with requests of other sites.
        assert server.ask("/StartTransaction", _basic(TOKEN))[0] == 403
        assert server.ask("/api/2.1/unity-catalog/catalogs", _basic(TOKEN), method="GET", body=b"")[0] == 401


def test_other_sites_cannot_use_the_pages(catalog: Path) -> None:
    with serving(catalog, Settings(token=TOKEN, ui=UiSettings(enabled=True))) as server:

        def asked(**more: str) -> int:
            headers = {**_basic(TOKEN), **{name.replace("_", "-"): value for name, value in more.items()}}
            return server.ask("/ui/tables/s.t/check", headers, method="GET", body=b"")[0]

        assert asked(sec_fetch_site="none") == asked(sec_fetch_site="same-origin") == 200
        link = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
        assert asked(sec_fetch_site="cross-site", **link) == 200
        assert asked(sec_fetch_site="cross-site", sec_fetch_mode="no-cors", sec_fetch_dest="image") == 403
        assert asked(sec_fetch_site="same-site", sec_fetch_mode="navigate", sec_fetch_dest="iframe") == 403
        assert asked(origin="https://evil.example") == 403


def test_pages_change_nothing_and_are_off_unless_enabled(catalog: Path) -> None:
    with serving(catalog, Settings(token=TOKEN, ui=UiSettings(enabled=True))) as server:
        for method in ("POST", "PUT", "DELETE", "PATCH", "HEAD"):
            assert server.ask("/ui/tables/s.t", _basic(TOKEN), method=method, body=b"")[0] == 404
    with serving(catalog, Settings(token=TOKEN)) as server:
        for path in ("/ui/", "/ui", "/ui/tables/s.t/rows"):
            assert server.ask(path, {"Authorization": f"Bearer {TOKEN}"}, method="GET", body=b"")[0] == 404
        assert server.ask("/ui/", _basic(TOKEN), method="GET", body=b"")[0] == 404


@contextlib.contextmanager
def _command(*arguments: Any) -> Iterator[Any]:
    command = [sys.executable, "-m", "deltalog", "ui", *map(str, arguments), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        process.stdout.close()  # type: ignore[union-attr]


def _fetched(url: str, password: str | None, method: str = "GET", body: bytes | None = None) -> tuple[int, str]:
    headers = {} if password is None else _basic(password)
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_command_shows_directories_and_catalogs(catalog: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for name in ("north/sales", "south/sales", "deep/er/one", ".hidden/no"):
        DeltaTable.create(lake / name, ROWS.schema, data=ROWS)
    (lake / "broken" / "_delta_log").mkdir(parents=True)
    before = own_catalogs()
    with _command(lake) as found:
        assert len(own_catalogs()) > len(before)
        status, listing = _fetched(found["url"], found["password"])
        assert status == 200 and "tables.sales" in listing and "tables.south__sales" in listing
        assert "tables.one" in listing and "hidden" not in listing and "tables.broken" in listing
        assert "3 rows of version 0" in _fetched(f"{found['url']}tables/tables.sales/rows", found["password"])[1]
        assert _fetched(f"{found['url']}tables/tables.broken/rows", found["password"])[0] == 404
        assert _fetched(found["url"], None)[0] == 401
    assert own_catalogs() == before
    state = catalog.read_bytes()
    with _command(catalog) as found:
        assert "3 rows of version 0" in _fetched(f"{found['url']}tables/s.t/rows", found["password"])[1]
        # The password opens the pages, and as a token nothing that changes anything.
        request = urllib.request.Request(
            found["url"].replace("/ui/", "/StartTransaction"),
            b'{"TransactionType": "READ_AND_WRITE"}',
            {"Authorization": f"Bearer {found['password']}"},
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=60)
    assert catalog.read_bytes() == state


def own_catalogs() -> list[str]:
    """The directories of catalogs that are made while directories are shown."""
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("deltalog-ui-")]
