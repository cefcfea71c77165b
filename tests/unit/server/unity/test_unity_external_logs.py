"""Which logs of external tables the server reads, and how often."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, TransactionManager
from deltalog.environment import Environment
from deltalog.storage.fs import LocalStore
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.unity.settings import UnitySettings
from deltalog.transactions.unity.tables import UnityTables
from tests.support.server import served
from tests.support.server.unity import Unity

INFOS = [{"name": "x", "type_text": "bigint", "type_name": "LONG", "type_json": '"long"', "position": 0}]


def _delta_table(place: Path) -> Path:
    DeltaTable.create(str(place), pa.schema([("id", pa.int64())]), data=pa.table({"id": [1]}))
    return place


def test_logs_of_external_tables_are_read_where_the_operator_says(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(f'[{{"kind": "static", "prefix": "file://{tmp_path}/named/", "config": {{}}}}]')
    options = (
        "--warehouse",
        str(tmp_path / "w"),
        f"--set=credentials.rules_file={rules}",
        "--set=recovery.every_seconds=0",
    )
    with served(tmp_path / "catalog.db", *options) as server:
        unity = Unity(server)
        unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        found = {}
        for name in ("w", "named", "other", "named2"):
            body = {
                "name": name, "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL", "columns": INFOS,
                "storage_location": f"file://{_delta_table(tmp_path / name / 't')}",
            }  # fmt: skip
            unity.ok("POST", "/tables", body)
            shown = unity.ok("GET", f"/tables/main.s.{name}")["columns"]
            path = f"/delta/v1/catalogs/main/schemas/s/tables/{name}"
            found[name] = [each["name"] for each in shown], unity.ask("GET", path).error
            assert unity.ok("GET", f"{path}/credentials?operation=READ") == {"storage-credentials": []}
        read, not_read = (["id"], (200, None)), (["x"], (400, "UnsupportedTableFormatException"))
        assert found == {"w": read, "named": read, "other": not_read, "named2": not_read}
        listed = unity.ok("GET", "/tables?catalog_name=main&schema_name=s")["tables"]
        assert [[info["name"] for info in each["columns"]] for each in listed] == [["x"]] * 4


@pytest.fixture
def world(tmp_path: Path) -> tuple[UnityTables, list[int]]:
    now = [time.time_ns() // 1_000_000]
    manager = TransactionManager(MemoryCoordinator(), environment=Environment(clock_ms=lambda: now[0]))
    tables = manager.unity_tables(UnitySettings(warehouse=str(tmp_path / "w"), readable=(str(tmp_path / "named"),)))
    tables.create_schema("s", None, {})
    return tables, now


def test_a_log_is_not_read_for_every_call(
    world: tuple[UnityTables, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, now = world
    reads = list[str]()
    listed = LocalStore.list_names

    def counted(store: LocalStore, directory: str, *arguments: Any, **options: Any) -> Any:
        reads.append(store.url)
        return listed(store, directory, *arguments, **options)

    for name in ("there", "absent"):
        place = tmp_path / "named" / name
        if name == "there":
            _delta_table(place)
        tables.register_external(f"s.{name}", str(place), "DELTA", None, {}, [], None, ())
    monkeypatch.setattr(LocalStore, "list_names", counted)
    for name, wait_ms in (("there", 2_000), ("absent", 60_000)):
        reads.clear()
        first = tables.load(f"s.{name}")
        assert first == tables.load(f"s.{name}") == tables.load(f"s.{name}")
        once = len(reads)
        assert once > 0
        tables.listed(f"s.{name}")
        assert len(reads) == once
        now[0] += wait_ms
        tables.load(f"s.{name}")
        assert len(reads) == 2 * once
