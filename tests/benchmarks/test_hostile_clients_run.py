"""The quick run of the benchmark of hostile clients: the well-behaved client is answered, whatever the others do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import hostile_clients

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_a_quick_run_leaves_the_others_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert hostile_clients.main(["--quick", "--below", str(tmp_path), "--json", str(out)]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    assert [each["attack"] for each in found["rows"]] == list(hostile_clients.ATTACKS)
    assert all(each["attempts"] > 0 for each in found["rows"]) and found["wrong"] == []
    assert list(tmp_path.iterdir()) == [out]
