"""What the server's recovery does with the files of dropped tables, with unpublished commits and with staged files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import TransactionManager
from deltalog.environment import Environment
from deltalog.errors import EntityNotFoundError, ResourceNotReadyError
from deltalog.storage.fs import LocalStore
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator
from deltalog.testing.stores import Fault, nth
from deltalog.transactions.unity.settings import UnitySettings
from tests.support.server import served
from tests.support.server.unity import Table, Unity
from tests.support.waiting import until


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Unity, Path]]:
    """A server that runs recovery ten times a second, and its directory."""
    place = tmp_path_factory.mktemp("swept")
    with served(place / "catalog.db", "--warehouse", str(place / "w"), "--set=recovery.every_seconds=0.1") as server:
        unity = Unity(server)
        unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        yield unity, place


def files(root: Path) -> list[Path]:
    return [each for each in root.rglob("*") if each.is_file()]


def test_the_files_of_a_dropped_table_are_deleted(swept: tuple[Unity, Path]) -> None:
    unity, _ = swept
    table, other = unity.new_table(), unity.new_table()
    for each in (table, other):
        each.commit()
    (table.root / "day=mon").mkdir()
    (table.root / "day=mon" / "x.parquet").write_bytes(b"x")
    assert unity.ask("DELETE", table.path).status == 204
    until(lambda: not table.root.exists())
    table.root.mkdir()
    (table.root / "late.parquet").write_bytes(b"x")  # by a client whose credentials are still good
    until(lambda: not files(table.root))
    assert other.commit()["latest-table-version"] == 2
    assert len(files(other.root)) > 4


def test_the_files_of_other_tables_stay(swept: tuple[Unity, Path]) -> None:
    unity, place = swept
    manager = TransactionManager(str(place / "catalog.db"))
    manager.create_table("s.mine", str(place / "mine"), pa.schema([("id", pa.int64())]))
    unity.ok("DELETE", "/tables/main.s.mine")
    table = unity.new_table()
    unity.ok("DELETE", table.path)
    until(lambda: not files(table.root))
    assert files(place / "mine")
    manager.register_table("s.mine", str(place / "mine"))
    found = unity.ok("GET", "/delta/v1/catalogs/main/schemas/s/tables/mine")["metadata"]
    assert found["properties"]["io.unitycatalog.tableId"] == found["table-uuid"]


def test_recovery_publishes_what_clients_do_not(swept: tuple[Unity, Path]) -> None:
    unity, _ = swept
    table = unity.new_table()
    found = table.commit()
    until(lambda: table.load()["commits"] == [])
    name = found["commits"][0]["file-name"] if found["commits"] else None
    staged = list((table.log / "_staged_commits").iterdir())
    assert len(staged) == 1  # clients that loaded the table before may still read it
    assert name in (None, staged[0].name)
    assert (table.log / f"{1:020d}.json").read_bytes() == staged[0].read_bytes()
    lost = table.log / "_staged_commits" / table.stage(version=1)["commit"]["file-name"]
    table.commit()
    until(lambda: table.load()["commits"] == [])
    old = time.time() - 7200
    for each in (table.log / "_staged_commits").iterdir():
        if each != lost:
            os.utime(each, (old, old))
    until(lambda: len(list((table.log / "_staged_commits").iterdir())) == 2)
    assert lost.exists()  # beside the one that won
    os.utime(lost, (old, old))
    until(lambda: not list((table.log / "_staged_commits").iterdir()))
    table.commit()


def test_an_earlier_process_keeps_staged_files(tmp_path: Path) -> None:
    """Another process opened the catalog before it was served for the first time."""
    catalog, warehouse = tmp_path / "catalog.db", tmp_path / "w"
    earlier = TransactionManager(str(catalog))
    with served(catalog, "--warehouse", str(warehouse), "--set=recovery.every_seconds=0") as server:
        unity = Unity(server)
        unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table = unity.new_table()
        staged = table.commit()["commits"][0]["file-name"]
        added = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
        assert table.update(added).status == 200
        earlier.recover()  # it has nothing to publish
        assert (table.log / "_staged_commits" / staged).exists()


# ------------------------------------------------------------------------------------------------- in one process


@pytest.fixture
def world(tmp_path: Path) -> tuple[TransactionManager, Any, list[int]]:
    """A manager, its tables, and a list with the clock's time in ms, which a test can change."""
    now = [time.time_ns() // 1_000_000]
    manager = TransactionManager(MemoryCoordinator(), environment=Environment(clock_ms=lambda: now[0]))
    return manager, manager.unity_tables(UnitySettings(warehouse=str(tmp_path / "w"))), now


def _staged_table(tables: Any, name: str) -> Path:
    staged = tables.stage(name)
    table = Table(None, "s", name, {"table-id": staged.table_id, "location": f"file://{staged.url}"})  # type: ignore[arg-type]
    table.first()
    tables.create_staged(name, table.location, None)
    return table.root


def test_a_dropped_table_is_swept_for_a_day(world: Any) -> None:
    manager, tables, now = world
    tables.create_schema("s", None, {})
    root = _staged_table(tables, "s.t")
    tables.drop("s.t")
    manager.recover()
    assert not files(root)
    late = root / "late.parquet"
    root.mkdir()
    late.write_bytes(b"x")
    now[0] += 24 * 60 * 60 * 1000
    manager.recover()
    assert not late.exists()
    now[0] += 1
    root.mkdir()
    late.write_bytes(b"x")
    manager.recover()
    assert not late.exists()
    root.mkdir()
    late.write_bytes(b"x")
    manager.recover()  # it is forgotten
    assert late.exists()
    assert manager.coordinator.documents("dropped") == []


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("by_client", [True, False])
def test_staged_files_are_kept_from_their_publication_on(
    world: Any, monkeypatch: pytest.MonkeyPatch, has_links: bool, by_client: bool
) -> None:
    """The server was down between the commit and its publication."""
    manager, tables, now = world
    if not has_links:
        monkeypatch.setattr(LocalStore, "link_if_absent", lambda store, names: 0)
    manager.coordinator.keep_staged_commits()
    tables.create_schema("s", None, {})
    staged = tables.stage("s.t")
    table = Table(None, "s", "t", {"table-id": staged.table_id, "location": f"file://{staged.url}"})  # type: ignore[arg-type]
    table.first()
    tables.create_staged("s.t", table.location, None)
    ict_ms, now[0] = now[0] + 60_000, now[0] + 60_001
    name = table.stage(version=1, ict_ms=ict_ms)["commit"]["file-name"]
    manager.propose_commit("s.t", 1, name)
    file = table.log / "_staged_commits" / name
    hours = 60 * 60
    os.utime(file, (now[0] // 1000 - 2 * hours,) * 2)
    now[0] += 1000 * 2 * hours
    if by_client:
        record = manager.coordinator.table("s.t")
        tables._updates.confirm(record, manager.coordinator.head(record.table_id), 1)
    manager.recover()
    published = table.log / f"{1:020d}.json"
    if not has_links:  # then another process sees the time of the publication, too
        os.utime(published, (now[0] // 1000,) * 2)
        manager = TransactionManager(manager.coordinator, environment=Environment(clock_ms=lambda: now[0]))
    manager.recover()
    assert file.exists()
    assert manager.coordinator.head(staged.table_id).unpublished == ()
    now[0] += 1000 * hours - 1000
    manager.recover()
    assert file.exists()
    now[0] += 2001
    manager.recover()
    assert not file.exists()
    assert published.exists()


def test_no_file_of_another_table_is_deleted(world: Any) -> None:
    manager, tables, _ = world
    tables.create_schema("s", None, {})
    root = _staged_table(tables, "s.t")
    tables.drop("s.t")
    other = root / "inner"
    manager.create_table("s.inner", str(other), pa.schema([("id", pa.int64())]))
    manager.recover()
    assert files(other)
    assert files(root / "_delta_log")
    manager.drop_table("s.inner")
    earlier = manager.unity_tables(UnitySettings())  # with another warehouse
    earlier.register_external("s.e", f"file://{root}", "PARQUET", None, {}, [], None, ())
    manager.recover()
    assert files(root / "_delta_log")
    tables.drop("s.e")
    manager.recover()
    assert not files(root / "_delta_log")


@pytest.mark.parametrize("place", ["_delta_log/_sidecars", "_delta_log/_staged_commits", "_delta_log", "data", ""])
def test_no_link_is_followed(world: Any, place: str, tmp_path: Path) -> None:
    """Who may write to one table cannot have the server delete files elsewhere."""
    manager, tables, _ = world
    tables.create_schema("s", None, {})
    root = _staged_table(tables, "s.t")
    outside = tmp_path / "outside"
    (outside / "below").mkdir(parents=True)
    for name in ("precious.txt", "below/precious.json", f"{9:020d}.json"):
        (outside / name).write_text("x")
    (root / "x.parquet").symlink_to(outside / "precious.txt")
    tables.drop("s.t")
    if (root / place).exists():
        (root / place).rename(tmp_path / "away")
    (root / place).symlink_to(outside)
    for _ in range(2):
        manager.recover()
    assert len(files(outside)) == 3
    if place:
        assert not root.exists()


# ------------------------------------------------------------------------------------------- tables that come back


def _shown(tables: Any, manager: TransactionManager, name: str) -> None:
    """Check that the id of the registration is that of the log."""
    view, properties = tables.load(name), manager.table(name).snapshot().metadata.configuration
    assert properties["io.unitycatalog.tableId"] == view.record.table_id
    manager.table(name).append(pa.table({"id": [1], "day": ["mon"]}))


def test_a_table_of_the_api_comes_back_after_the_manager_dropped_it(world: Any) -> None:
    manager, tables, _ = world
    tables.create_schema("s", None, {})
    root = _staged_table(tables, "s.t")
    for _ in range(2):
        manager.drop_table("s.t")
        manager.register_table("s.t", str(root))
        _shown(tables, manager, "s.t")


def test_a_table_of_the_api_is_registered_in_a_catalog_that_lost_it(world: Any, tmp_path: Path) -> None:
    """The catalog was restored from a backup in which the table is missing."""
    _, tables, _ = world
    tables.create_schema("s", None, {})
    root = _staged_table(tables, "s.t")
    restored = TransactionManager(MemoryCoordinator())
    with pytest.raises(ResourceNotReadyError, match="take_over=True"):
        restored.register_table("s.t", str(root))
    restored.register_table("s.t", str(root), take_over=True)
    _shown(restored.unity_tables(UnitySettings(warehouse=str(tmp_path / "w"))), restored, "s.t")


def test_a_table_whose_files_are_being_deleted_comes_back_only_when_that_is_said(world: Any) -> None:
    manager, tables, _ = world
    tables.create_schema("s", None, {})
    root = _staged_table(tables, "s.t")
    tables.drop("s.t")
    with pytest.raises(ResourceNotReadyError, match="is deleting its files"):
        manager.register_table("s.t", str(root))
    manager.register_table("s.t", str(root), take_over=True)
    manager.recover()
    _shown(tables, manager, "s.t")
    manager.drop_table("s.t")  # which keeps the files
    manager.recover()
    assert files(root)


def test_a_table_of_the_api_keeps_the_history_of_its_log(world: Any) -> None:
    """Two histories of it diverge, and the catalog is set back to the log."""
    manager, tables, _ = world
    tables.create_schema("s", None, {})
    root = _staged_table(tables, "s.t")
    other = _staged_table(tables, "s.other")
    before = tables.load("s.t").record.table_id
    unnoted = TransactionManager(FaultyCoordinator(manager.coordinator, nth(1, Fault.FAIL_BEFORE, method="published")))
    unnoted.table("s.t").append(pa.table({"id": [1], "day": ["mon"]}))
    first = root / "_delta_log" / f"{1:020d}.json"
    table = Table(None, "s", "s.t", {"table-id": before, "location": f"file://{root}"})  # type: ignore[arg-type]
    info = json.loads(first.read_text().splitlines()[0])
    info["commitInfo"]["txnId"] = "another"
    metadata = {"metaData": table.metadata(configuration={"k": "log"})}
    first.unlink()
    first.write_text(json.dumps(info) + "\n" + json.dumps(metadata) + "\n")
    assert "Two histories" in manager.resync().tables[-1].problem
    assert [each.problem for each in manager.resync(keep_log=["s.t"]).tables] == [None, None]
    assert manager.resync().is_in_step
    view = tables.load("s.t")
    assert view.record.table_id != before  # so that no handle goes on from the other history
    assert view.at.state.metadata.configuration["k"] == "log"
    _shown(tables, manager, "s.t")
    assert files(other)


def test_what_was_staged_and_never_created_goes_after_a_week(world: Any) -> None:
    manager, tables, now = world
    tables.create_schema("s", None, {})
    table_id, url = (staged := tables.stage("s.never")).table_id, staged.url
    table = Table(None, "s", "never", {"table-id": table_id, "location": f"file://{url}"})  # type: ignore[arg-type]
    table.first()
    created = _staged_table(tables, "s.t")
    now[0] += 7 * 24 * 60 * 60 * 1000 - 1
    manager.recover()
    assert files(table.root)
    assert tables.staged(table_id).url == url
    now[0] += 2
    manager.recover()
    assert not table.root.exists()
    assert manager.coordinator.document("staging", table_id) is None
    with pytest.raises(EntityNotFoundError):
        tables.create_staged("s.never", f"file://{url}", None)
    now[0] += 24 * 60 * 60 * 1000 + 1
    manager.recover()
    assert manager.coordinator.documents("dropped") == []
    assert files(created)
