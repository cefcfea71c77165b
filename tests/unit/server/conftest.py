from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalog import TransactionManager
from tests.support.server import AT_ONCE, SCHEMA, Served, served


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def manager(place: Path) -> TransactionManager:
    """A manager for the server's catalog, as in another process; the catalog contains the tables bank.a and bank.b."""
    manager = TransactionManager(str(place / "catalog.db"))
    for name in ("a", "b"):
        manager.create_table(f"bank.{name}", str(place / name), SCHEMA, partition_by=["day"])
    return manager


@pytest.fixture(scope="module")
def server(place: Path, manager: TransactionManager) -> Iterator[Served]:
    with served(place / "catalog.db") as made:
        yield made


@pytest.fixture(scope="module")
def client(server: Served) -> Any:
    return server.client(config=AT_ONCE)
