"""UnityCatalog with a server whose answers get lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, Environment, RetryPolicy, TableNotFoundError, UnityCatalog
from deltalog.errors import OperationTimeoutError
from deltalog.unity import http
from tests.support.unity.http import Fault, UnityServer

ADDRESS = "uc://main.s.events"
KEY = ("main", "s", "events")
QUICK = Environment(sleep=lambda seconds: None, retry=RetryPolicy(settle_attempts=4))
ROWS = pa.table({"id": [1]})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_ANSWER_SECONDS", 0.5)


@pytest.fixture
def catalog(server: UnityServer, options: dict[str, Any]) -> UnityCatalog:
    DeltaTable.create(ADDRESS, ROWS, environment=QUICK, **options)
    return UnityCatalog("main", environment=QUICK, **options)


def deletes(fault: Fault | None, then: Callable[[], object] = lambda: None) -> Callable[[str, str], Fault | None]:
    """A fault at the first DELETE. ``then``: what happens before the next request that follows it."""
    seen = list[str]()

    def faults(method: str, path: str) -> Fault | None:
        if len(seen) == 1:
            seen.append(method)
            then()
        if method != "DELETE" or seen:
            return None
        seen.append(method)
        return fault

    return faults


@pytest.mark.parametrize("fault", Fault)
def test_a_table_is_dropped_although_the_answer_is_lost(
    server: UnityServer, catalog: UnityCatalog, fault: Fault
) -> None:
    server.faults = deletes(fault)
    catalog.drop_table("s.events")
    assert KEY not in server.model.tables


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNAVAILABLE_AFTER, Fault.FAILED_AFTER])
def test_a_table_that_another_client_creates_meanwhile_is_not_dropped(
    server: UnityServer, catalog: UnityCatalog, options: dict[str, Any], fault: Fault
) -> None:
    server.faults = deletes(fault, lambda: DeltaTable.create(ADDRESS, ROWS, environment=QUICK, **options))
    catalog.drop_table("s.events")
    assert server.of("DELETE") == 1
    assert DeltaTable.open(ADDRESS, **options).to_pyarrow_table().num_rows == 1


def test_a_drop_that_never_gets_an_answer_is_unknown(server: UnityServer, catalog: UnityCatalog) -> None:
    server.faults = lambda method, path: Fault.DROPPED if method == "DELETE" else None
    with pytest.raises(OperationTimeoutError, match="may still take effect"):
        catalog.drop_table("s.events")
    assert server.of("DELETE") == 4


def test_a_table_that_is_not_there_cannot_be_dropped(server: UnityServer, catalog: UnityCatalog) -> None:
    with pytest.raises(TableNotFoundError):
        catalog.drop_table("s.other")
    assert server.of("DELETE") == 0
