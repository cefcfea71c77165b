"""deltalog's own calls, which list, register, remove, release and publish the tables of a catalog over HTTP."""

from __future__ import annotations

import json
import os
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, TransactionManager
from deltalog.server.serve import Settings
from deltalog.transactions.unity.settings import UnitySettings
from tests.support.server import SCHEMA, Served
from tests.support.server.access import serving
from tests.support.server.unity import Response, Unity

ROWS = pa.table({"id": [1, 2], "day": ["mon", "tue"]})
TABLES = "/api/deltalog/v1/tables"


class Own:
    """A client of deltalog's own calls."""

    def __init__(self, server: Served, lake: Path) -> None:
        self.server = server
        self.lake = lake

    def ask(self, method: str, path: str, body: Any = None) -> Response:
        return Response(*self.server.ask(method, f"/api/deltalog/v1{path}", body))

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        found = self.ask(method, path, body)
        assert found.status == 200, found
        return found.body

    def register(self, name: str, location: str | Path, **more: Any) -> Response:
        return self.ask("POST", "/tables", {"name": name, "location": str(location), **more})

    def new(self, name: str) -> Path:
        """A new table that is used by its path, below the prefix where callers may register tables."""
        root = self.lake / name
        DeltaTable.create(str(root), ROWS)
        return root

    def listed(self, query: str = "") -> list[str]:
        """The names of the tables on all pages."""
        found, token = [], ""
        while token is not None:
            page = self.ok("GET", f"/tables?{query}{token and f'&page_token={token}'}")
            found += [each["name"] for each in page["tables"]]
            token = page["next_page_token"]
        return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    place = tmp_path_factory.mktemp("own")
    lake = place / "lake"
    lake.mkdir()
    (lake / "data").mkdir()
    manager = TransactionManager(str(lake / "data" / "catalog.db"), by_location={str(lake): {}})
    unity = UnitySettings(warehouse=str(place / "warehouse"))
    with serving(manager, Settings(recover_seconds=0, unity=unity)) as made:
        server = Served(made.url, None)  # type: ignore[arg-type]
        Unity(server).ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        yield Own(server, lake)


@pytest.fixture
def manager(own: Own) -> TransactionManager:
    return TransactionManager(str(own.lake / "data" / "catalog.db"))


def test_a_table_is_registered_used_and_released(own: Own) -> None:
    root = own.new("first")
    made = own.ok("POST", "/tables", {"name": "s.first", "location": str(root)})
    assert made == own.ok("GET", "/tables/s.first")
    assert {**made, "table_id": "", "created_ms": 0} == {
        "name": "s.first", "table_id": "", "table_type": "MANAGED", "location": f"file://{root}", "created_ms": 0,
        "version": 1, "unpublished": 0,
    }  # fmt: skip
    loaded = Unity(own.server).ok("GET", "/delta/v1/catalogs/main/schemas/s/tables/first")
    assert loaded["metadata"]["table-uuid"] == made["table_id"]
    assert own.ok("POST", "/tables/s.first/publish") == {"table": made, "published": 0}
    released = own.ok("POST", "/tables/s.first/release")
    assert released == {"name": "s.first", "location": f"file://{root}"}
    table = DeltaTable.open(str(root))
    table.append(ROWS)
    assert table.version == 3
    assert own.ask("GET", "/tables/s.first").error == (404, "NoSuchTableException")


def test_a_dropped_table_is_registered_again(own: Own) -> None:
    root = own.new("again")
    own.ok("POST", "/tables", {"name": "s.again", "location": root.as_uri()})
    assert own.ok("DELETE", "/tables/s.again") == {"name": "s.again", "location": f"file://{root}"}
    assert own.ask("DELETE", "/tables/s.again").error == (404, "NoSuchTableException")
    assert own.register("s.once_more", root).status == 200
    own.ok("DELETE", "/tables/s.once_more")


def test_a_table_of_another_catalog_is_taken_over(own: Own, tmp_path: Path) -> None:
    root = own.lake / "taken"
    TransactionManager(str(tmp_path / "other.db")).create_table("x.t", str(root), SCHEMA)
    refused = own.register("s.taken", root)
    assert refused.error == (400, "InvalidParameterValueException")
    assert "managed by another catalog" in refused.body["message"]
    assert own.register("s.taken", root, take_over=True).status == 200
    own.ok("DELETE", "/tables/s.taken")


def test_commits_are_published(own: Own) -> None:
    table = Unity(own.server).new_table("late")
    table.commit()
    assert own.ok("GET", "/tables/s.late")["unpublished"] == 1
    done = own.ok("POST", "/tables/s.late/publish")
    assert (done["published"], done["table"]["unpublished"], done["table"]["version"]) == (1, 0, 1)
    assert (table.log / f"{1:020d}.json").exists()


def test_tables_are_listed_by_pages(own: Own, manager: TransactionManager, tmp_path: Path) -> None:
    for number in range(5):
        manager.create_table(f"pages.t{number}", str(tmp_path / f"t{number}"), SCHEMA)
    manager.create_table("pages_too.t", str(tmp_path / "too"), SCHEMA)
    Unity(own.server).ok(
        "POST", "/tables",
        {"name": "t1x", "catalog_name": "main", "schema_name": "pages", "table_type": "EXTERNAL",
         "data_source_format": "CSV", "columns": [], "storage_location": "s3://b/x"},
    )  # fmt: skip
    expected = ["pages.t0", "pages.t1", "pages.t1x", "pages.t2", "pages.t3", "pages.t4"]
    for size in (1, 2, 50):
        assert own.listed(f"schema=pages&max_results={size}") == expected
        assert own.listed(f"prefix=pages.&max_results={size}") == expected
        assert own.listed(f"prefix=pages&max_results={size}") == [*expected, "pages_too.t"]
        assert own.listed(f"schema=pages&prefix=t1&max_results={size}") == ["pages.t1", "pages.t1x"]
        assert set(own.listed(f"max_results={size}")) >= {*expected, "pages_too.t"}
    assert own.listed("prefix=none") == []
    external = own.ok("GET", "/tables/pages.t1x")
    assert (external["table_type"], external["location"]) == ("EXTERNAL", "s3://b/x")
    assert "version" not in external
    assert own.ask("GET", "/tables?schema=none").error == (404, "NoSuchSchemaException")
    assert own.ask("GET", "/tables?max_results=x").error == (400, "BadRequestException")
    token = own.ok("GET", "/tables?schema=pages&max_results=1")["next_page_token"]
    assert own.ask("GET", f"/tables?schema=s&page_token={token}").error == (400, "BadRequestException")


def test_tables_are_dropped_between_pages(own: Own, manager: TransactionManager, tmp_path: Path) -> None:
    for number in range(6):
        manager.create_table(f"gone.t{number}", str(tmp_path / f"t{number}"), SCHEMA)
    first = own.ok("GET", "/tables?schema=gone&max_results=2")
    for number in (1, 2, 3):
        manager.drop_table(f"gone.t{number}")
    found, token = [each["name"] for each in first["tables"]], first["next_page_token"]
    while token is not None:
        page = own.ok("GET", f"/tables?schema=gone&max_results=2&page_token={token}")
        found, token = found + [each["name"] for each in page["tables"]], page["next_page_token"]
    assert found == ["gone.t0", "gone.t1", "gone.t4", "gone.t5"]


def test_no_other_location_is_opened(own: Own, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    DeltaTable.create(str(outside), ROWS)
    link = own.lake / "link"
    link.symlink_to(outside)
    nested = own.lake / "linked_directory"
    nested.symlink_to(tmp_path)
    inside = own.new("inside")
    (own.lake / "to_inside").symlink_to(inside)
    behind = own.lake / "behind"
    behind.mkdir()
    (behind / "_delta_log").symlink_to(outside / "_delta_log")
    before = sorted(os.listdir(outside / "_delta_log"))
    for location in (
        outside, outside.as_uri(), "/etc", "file:///etc", "/", link, link.as_uri(), nested / "outside",
        own.lake, f"{own.lake}/", f"{own.lake}x", f"{own.lake}/../outside", f"{own.lake}/x/../inside",
        f"file://{own.lake}/%2e%2e/outside", f"{own.lake}/./inside", own.lake / "to_inside", behind, "s3://bucket/t",
        "http://169.254.169.254/latest", "file://other.host/etc", "memory://x", "sqlite:////etc", "relative/t", "",
        f"{own.lake}/a\0b", own.lake / "data", own.lake.parent / "warehouse" / "__unitystorage" / "tables" / "x",
        own.lake.parent / "warehouse" / "__unitystorage", "catalog:x#t", "uc://main.s.t", "a" * 5000,
    ):  # fmt: skip
        refused = own.register("s.attack", location)
        assert refused.error == (400, "InvalidParameterValueException"), (location, refused)
    assert own.register("s.attack", own.lake / "nothing").error == (404, "NoSuchTableException")
    assert sorted(os.listdir(outside / "_delta_log")) == before
    assert own.ask("GET", "/tables/s.attack").status == 404
    assert own.register("s.attack", inside).status == 200  # the table itself can be registered
    own.ok("DELETE", "/tables/s.attack")


def test_a_hostile_log_is_refused(own: Own, tmp_path: Path) -> None:
    def log(name: str, *lines: Any) -> Path:
        made = own.lake / name / "_delta_log"
        made.mkdir(parents=True)
        text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
        (made / f"{0:020d}.json").write_text(text)
        return made.parent

    metadata = {
        "id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": [], "configuration": {}, "createdTime": 1,
    }  # fmt: skip
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    unknown = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}
    logs: list[list[Any]] = [
        ["{"], ["\0" * 100], ["[" * 100_000], [{"protocol": protocol}], [{"metaData": metadata}],
        [{"protocol": unknown}, {"metaData": metadata}], [{"protocol": {"minReaderVersion": 99}}],
        [{"protocol": protocol}, {"metaData": {**metadata, "schemaString": "[" * 100_000}}],
        [{"protocol": protocol}, {"metaData": {**metadata, "schemaString": '{"type":"struct"}'}}],
        [{"protocol": protocol}, {"metaData": {**metadata, "partitionColumns": ["none"]}}],
    ]  # fmt: skip
    for number, lines in enumerate(logs):
        root = log(f"hostile{number}", *lines)
        refused = own.register("s.hostile", root)
        assert refused.status == 400, (number, refused)
        assert os.listdir(root / "_delta_log") == [f"{0:020d}.json"]
    # Files outside of the table are not files of the table.
    add = {"path": "file:///etc/passwd", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    root = log("outside", {"protocol": protocol}, {"metaData": metadata}, {"add": add})
    assert own.register("s.outside", root).status == 200
    status, listed = own.server.ask("POST", "/GetTableObjects", {"DatabaseName": "s", "TableName": "outside"})
    assert "Objects" not in listed or listed["Objects"] == [], (status, listed)
    own.ok("DELETE", "/tables/s.outside")


def test_a_location_is_registered_once_of_many_times(own: Own) -> None:
    root = own.new("contended")
    answers: list[Response] = []
    threads = [
        threading.Thread(target=lambda name=name: answers.append(own.register(name, root)))
        for name in (f"s.contended{number}" for number in range(8))
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert sorted(each.status for each in answers)[:1] == [200]
    assert [each.status for each in answers].count(200) == 1
    assert {each.status for each in answers} <= {200, 400, 409}, answers
    (name,) = own.listed("prefix=s.contended")
    own.ok("DELETE", f"/tables/{name}")


def test_tables_do_not_lie_in_one_another(own: Own) -> None:
    root = own.new("outer")
    own.ok("POST", "/tables", {"name": "s.outer", "location": str(root)})
    inner = root / "day=mon"
    DeltaTable.create(str(inner), ROWS)
    assert own.register("s.inner", inner).error == (409, "AlreadyExistsException")
    assert own.register("s.twice", root).error == (409, "AlreadyExistsException")
    assert own.register("s.outer", own.new("another")).error == (409, "AlreadyExistsException")
    shown = own.new("shown")
    Unity(own.server).ok(
        "POST", "/tables",
        {"name": "shown", "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL",
         "data_source_format": "DELTA", "columns": [], "storage_location": str(shown)},
    )  # fmt: skip
    assert "external table s.shown" in own.register("s.shown2", shown).body["message"]
    assert own.register("s.shown2", shown / "x").status == 400
    own.ok("DELETE", "/tables/s.outer")


def test_requests_have_a_form(own: Own) -> None:
    root = own.new("form")
    wrong: tuple[Any, ...] = ({"name": "s.t"}, {"location": str(root)}, {"name": 1, "location": "x"}, [], b"{",
                 {"name": "s.t", "location": str(root), "takeover": True})  # fmt: skip
    for body in wrong:
        assert own.ask("POST", "/tables", body).error == (400, "BadRequestException")
    for name in ("t", "", ".t", "s.", "`s`.t", "s\n.t"):
        assert own.register(name, root).error == (400, "BadRequestException")
        if name:
            assert own.ask("GET", f"/tables/{urllib.parse.quote(name)}").error == (400, "BadRequestException")
    assert own.register("none.t", root).error == (404, "NoSuchSchemaException")
    assert own.ask("PUT", "/tables/s.t").error == (404, "NotFoundException")
    assert own.ask("GET", "/nothing").error == (404, "NotFoundException")


def test_external_tables_are_not_released(own: Own) -> None:
    Unity(own.server).ok(
        "POST", "/tables",
        {"name": "ext", "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL",
         "data_source_format": "DELTA", "columns": [], "storage_location": "s3://b/ext"},
    )  # fmt: skip
    for method, path in (
        ("POST", "/tables/s.ext/release"),
        ("POST", "/tables/s.ext/publish"),
        ("DELETE", "/tables/s.ext"),
    ):
        assert own.ask(method, path).error == (404, "NoSuchTableException")
    assert own.ok("GET", "/tables/s.ext")["table_type"] == "EXTERNAL"


def test_a_table_is_released_while_others_commit(own: Own, manager: TransactionManager) -> None:
    root = own.new("busy")
    own.ok("POST", "/tables", {"name": "s.busy", "location": str(root)})
    committed, over = [0], threading.Event()

    def write() -> None:
        table = manager.table("s.busy")
        while not over.is_set():
            try:
                table.append(ROWS)
            except Exception:
                return
            committed[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while committed[0] < 3:
            assert writer.is_alive()
        assert own.ok("POST", "/tables/s.busy/release")["name"] == "s.busy"
    finally:
        over.set()
        writer.join(60)
    table = DeltaTable.open(str(root))
    assert table.to_pyarrow_table().num_rows == 2 * (1 + committed[0])
    assert table.version == committed[0] + 2  # the registration and the release


def test_a_resync_over_http_changes_nothing(own: Own) -> None:
    plan = own.ok("POST", "/resync", {"dry_run": True})
    assert plan["in_step"] is True
    assert {each["problem"] for each in plan["tables"]} <= {None}
    assert own.ask("POST", "/resync", {"dry_run": False}).error == (404, "NotFoundException")
    assert own.ask("POST", "/resync", {}).error == (400, "BadRequestException")


def test_without_a_configuration_nothing_is_registered(server: Served, place: Path, tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "t"), ROWS)
    own = Own(server, tmp_path)
    assert own.register("s.t", tmp_path / "t").error == (400, "InvalidParameterValueException")
    inside = place / "warehouse" / "mine"
    DeltaTable.create(str(inside), ROWS)
    assert own.register("s.mine", inside).status == 200
    own.ok("DELETE", "/tables/s.mine")
