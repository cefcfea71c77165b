"""docs/unity-api.md names every call, member and error, and a test for each that exists."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from deltalog.server.unity import errors
from deltalog.server.unity.router import ROUTER
from deltalog.unity import messages

PLACE = Path(__file__).parent
PAGE = (PLACE.parents[3] / "docs" / "unity-api.md").read_text()
TESTS = {name for file in PLACE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.M)}
ENDPOINTS = [endpoint for found in ROUTER._by_length.values() for _, endpoint in found]
_OF_ANSWERS = {"stack", "storage-credentials"}


def test_every_row_names_tests_that_exist() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("| |", "| ---"))]
    assert len(rows) > 60
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, f"a row without a test: {row}"
        assert set(named) <= TESTS, f"tests that do not exist: {set(named) - TESTS}"


@pytest.mark.parametrize("name", [endpoint.name for endpoint in ENDPOINTS])
def test_every_call_is_named(name: str) -> None:
    method, _, path = name.partition(" ")
    is_lifecycle = method in ("HEAD", "DELETE") and path.endswith("/tables/{table}")
    assert (f"{method} and " in PAGE or f"{method} of a table" in PAGE) if is_lifecycle else name in PAGE


def _kinds() -> list[type[msgspec.Struct]]:
    found = (each for each in vars(messages).values() if isinstance(each, type) and issubclass(each, msgspec.Struct))
    return [each for each in found if each.__module__ == messages.__name__ and each.__struct_fields__]


@pytest.mark.parametrize("kind", _kinds(), ids=lambda kind: kind.__name__)
def test_every_member_is_named(kind: type[msgspec.Struct]) -> None:
    tag = kind.__struct_config__.tag
    names = [*kind.__struct_encode_fields__, *([tag] if isinstance(tag, str) else [])]
    missing = [name for name in names if not re.search(rf"[`\"]{re.escape(name)}[`\"]", PAGE)]
    assert missing == []


@pytest.mark.parametrize("kind", errors.TYPES)
def test_every_type_of_error_is_named(kind: str) -> None:
    assert f"`{kind}`" in PAGE
