"""docs/server-api.md names every call of deltalog's own API, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from deltalog.server.unity import administration
from deltalog.server.unity.service import Endpoint

PLACE = Path(__file__).parent
PAGE = (PLACE.parents[2] / "docs" / "server-api.md").read_text()
TESTS = {name for file in PLACE.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.M)}


def test_every_row_names_tests_that_exist() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("| |", "| ---"))]
    assert len(rows) > 25
    for row in rows:
        named = set(re.findall(r"`(test_\w+)`", row))
        assert named, f"a row without a test: {row}"
        assert named <= TESTS, f"tests that do not exist: {named - TESTS}"


@pytest.mark.parametrize("endpoint", administration.ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_every_call_has_a_section(endpoint: Endpoint) -> None:
    assert f"\n### {endpoint.name}\n" in PAGE


@pytest.mark.parametrize("kind", [administration.RegisterTable, administration.CatalogTable, administration.Resync])
def test_every_member_is_named(kind: type[msgspec.Struct]) -> None:
    assert [name for name in kind.__struct_encode_fields__ if f'"{name}"' not in PAGE and f"`{name}`" not in PAGE] == []
