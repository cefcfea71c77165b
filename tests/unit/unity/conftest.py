"""A Unity Catalog in memory, over HTTP, whose tables are on this disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalog.protocol.paths import commit_name
from deltalog.unity import opening
from tests.support.unity.http import UnityServer
from tests.support.unity.model import Model


@pytest.fixture(autouse=True)
def no_server_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UNITY_CATALOG_URL", "UNITY_CATALOG_TOKEN", "DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(opening, "_configs", {})
    monkeypatch.setattr(opening, "_older_until_ms", {})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[UnityServer]:
    def is_published(location: str, version: int) -> bool:
        return (Path(location.removeprefix("file://")) / "_delta_log" / commit_name(version)).exists()

    with UnityServer(Model(f"file://{tmp_path}/lake", is_published), token="dapi-secret").running() as running:
        yield running


@pytest.fixture
def options(server: UnityServer) -> dict[str, Any]:
    return {"unity_catalog_url": server.url, "unity_catalog_token": "dapi-secret"}
