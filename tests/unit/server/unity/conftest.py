from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalog import TransactionManager
from tests.support.server import Served, served
from tests.support.server.unity import Unity


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unity")


@pytest.fixture(scope="session")
def server(place: Path) -> Iterator[Served]:
    """A server whose schema ``s`` exists."""
    with served(
        place / "catalog.db", "--warehouse", str(place / "warehouse"), "--set=recovery.every_seconds=0"
    ) as made:
        assert Unity(made).ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})["full_name"] == "main.s"
        yield made


@pytest.fixture(scope="session")
def unity(server: Served) -> Unity:
    return Unity(server)


@pytest.fixture(scope="session")
def manager(server: Served, place: Path) -> TransactionManager:
    """A manager for the server's catalog, as in another process."""
    return TransactionManager(str(place / "catalog.db"))
