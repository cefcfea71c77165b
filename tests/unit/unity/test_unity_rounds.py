"""Rounds of requests, to the store and to the server of a Unity Catalog together. Opening a table takes one round more
than without a catalog: its state, its credentials and the server's configuration are asked for side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from deltalog import DeltaTable
from deltalog.storage.memory import MemoryStore
from deltalog.unity import opening
from deltalog.unity.calls import DeltaCalls
from deltalog.unity.client import UnityClient
from tests.support.core import SCHEMA, environment, rows
from tests.support.rounds import RoundStore
from tests.support.unity.calls import ModelCalls
from tests.support.unity.model import Model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are watched in /proc")

ADDRESS = "uc://main.s.events"


class Place:
    """A table on an object store, with or without a catalog; all requests are counted together."""

    def __init__(self, patch: pytest.MonkeyPatch, *, has_catalog: bool) -> None:
        self.store = RoundStore(MemoryStore(f"memory://unity-{id(self)}"))
        self._url: Any = self.store
        if has_catalog:
            self._url = ADDRESS
            model = Model("memory://model")
            calls = ModelCalls(model, ADDRESS, before=lambda call: self.store.request())

            def staging(client: UnityClient, name: object) -> object:
                self.store.request()
                return model.create_staging_table("main", "s", "events")

            def config(client: UnityClient, catalog: str) -> object:
                self.store.request()
                return model.config(catalog)

            patch.setattr(opening, "open_store", lambda url, **options: self.store)
            patch.setattr(UnityClient, "create_staging_table", staging)
            patch.setattr(UnityClient, "config", config)
            patch.setattr(DeltaCalls, "load", lambda _: calls.load())
            patch.setattr(DeltaCalls, "update", lambda _, *update, **how: calls.update(*update, **how))
            patch.setattr(DeltaCalls, "create", lambda _, request: calls.create(request))
            patch.setattr(DeltaCalls, "credentials", lambda _, operation: calls.credentials(operation))
            patch.setenv("UNITY_CATALOG_URL", "http://127.0.0.1:1")
        table = DeltaTable.create(self._url, SCHEMA, environment=environment(background=True))
        for number in range(12):
            table.append(rows(number))
        table.flush()

    def open(self) -> DeltaTable:
        return DeltaTable.open(self._url, environment=environment(background=True))

    def rounds(self, act: Callable[[], object]) -> int:
        with self.store.counted():
            act()
        return self.store.rounds


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> tuple[Place, Place]:
    return Place(monkeypatch, has_catalog=False), Place(monkeypatch, has_catalog=True)


def both(places: tuple[Place, Place], act: Callable[[DeltaTable], object]) -> tuple[int, int]:
    """The numbers of rounds that a call on an open table takes, without and with a catalog."""
    found = []
    for place in places:
        table = place.open()
        found.append(place.rounds(lambda table=table: act(table)))  # type: ignore[misc]
        table.flush()
    return found[0], found[1]


def test_open_takes_one_round_more(places: tuple[Place, Place]) -> None:
    plain, served = (place.rounds(place.open) for place in places)
    assert (plain, served) == (3, 4)


def test_rounds_of_calls_on_an_open_table(places: tuple[Place, Place]) -> None:
    found = {
        "snapshot": both(places, lambda table: table.snapshot()),
        "time travel by version": both(places, lambda table: table.snapshot(version=3)),
        "append": both(places, lambda table: table.append(rows(99))),
    }
    assert found == {"snapshot": (1, 1), "time travel by version": (3, 4), "append": (2, 3)}
