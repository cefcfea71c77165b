"""Seeded random requests with almost valid members: each response reports the error as the client's."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from deltalog import TransactionManager
from deltalog.errors import CallError
from deltalog.server.fields import Fields
from deltalog.server.lakeformation import OPERATIONS
from tests.support.server import Served, add

VALUES: list[Any] = [
    None, True, 0, -1, 1, 7, 10**30, 1.5, 1e308, "", " ", "x", "x" * 300, "x" * 5000, "\x00", "\ud800", "é\u202e",
    "a.b", [], [[]], {}, {"a": 1}, "READ_ONLY", "ACTIVE", "bank", "a", "2026-11-20T10:00:00Z", "day = 'mon'", "day = ", "s3://b/k",
    "00000000000000000001.x.json", "../../etc/passwd", "AAAA",
]  # fmt: skip
NAMES = ["TransactionId", "TransactionType", "StatusFilter", "MaxResults", "NextToken", "DatabaseName", "TableName"]
NAMES += ["Objects", "WriteOperations", "QueryAsOfTime", "PartitionPredicate", "CatalogId"]


def value(chosen: random.Random, known: list[Any], depth: int = 0) -> Any:
    kind = chosen.random()
    if kind < 0.15 and depth < 3:
        inside = ("Uri", "ETag", "Size", "PartitionValues", "AddObject", "DeleteObject")
        made: dict[str, Any] = {name: value(chosen, known, depth + 1) for name in inside if chosen.random() < 0.6}
        return made if chosen.random() < 0.3 else [made]
    return chosen.choice(known if kind < 0.4 else VALUES)


@pytest.mark.parametrize(
    "members", ['"Objects": [' + "{}," * 30_000 + "{}]", ",".join(f'"m{number}": 1' for number in range(30_000))]
)
def test_a_request_of_very_many_members_is_refused_before_they_are_decoded(members: str) -> None:
    with pytest.raises(CallError, match="too many members"):
        Fields(f"{{{members}}}".encode())


@pytest.mark.parametrize("seed", range(8))
def test_no_request_makes_the_server_fail(seed: int, server: Served, place: Path, manager: TransactionManager) -> None:
    chosen = random.Random(seed)
    operation = add(place / "a", f"fuzz-{seed}.parquet", 1)
    manager.transaction()
    for _ in range(60):
        known = [
            manager.start_transaction(),
            operation,
            [operation],
            operation["AddObject"],
            *operation["AddObject"].values(),
        ]
        body = {name: value(chosen, known) for name in NAMES if chosen.random() < 0.6}
        if chosen.random() < 0.8:
            body.update({"DatabaseName": "bank", "TableName": "a"})
        path = chosen.choice([f"/{name}" for name in OPERATIONS])
        status, answer = server.ask("POST", path, json.dumps(body).encode())
        assert status in (200, 400, 404, 409), (path, body, answer)
        assert "Traceback" not in str(answer)
