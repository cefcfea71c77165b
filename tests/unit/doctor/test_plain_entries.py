"""An add action is recognized as plain only if it breaks no rule; nearly all add actions of healthy tables are
plain."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltalog.doctor.file_entries import Rules, examine_add, rules_of
from deltalog.doctor.plain_entries import PlainEntries
from deltalog.protocol.actions import AddFile, Metadata, Protocol
from tests.support.doctor.random_damages.log import Log
from tests.support.doctor.random_tables import random_table

_STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.0, 1.5, 2**31, 2**63, -(2**70), 1e400, "", "x", "NaN", "Infinity", "1", "2026-01-01",
    "2026-02-30", "2026-01-01T00:00:00.000Z", "1850-06-01T10:11:12.123-07:52:58", "+12345-01-01", "-0001-01-01",
    "0000-12-31", [], [1], {}, {"a": 1}, {"b": "x"}, {"a": None, "c": 1},
)  # fmt: skip
_PATHS = ("x.parquet", "day=a/x.parquet", "day=b%20c/x.parquet", "a b.parquet", "../x", "_x/y", "s3://b/x", "%ff", "")


def rules_at(log: Log) -> Rules:
    protocol, metadata = Protocol.from_json(log.protocol().body), Metadata.from_json(log.metadata().body)
    return rules_of(protocol, metadata, str(log.path))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_plain_has_no_finding(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    random_table(tmp_path, seed, 3, ["wide"] + ["partitioned"] * (seed % 2), ["mapped"])
    log = Log(tmp_path, chance)
    rules = rules_at(log)
    entries = PlainEntries(rules)
    adds = [each.body for each in log.recent()]
    number = plain = 0
    for _ in range(2_000):
        body = json.loads(json.dumps(chance.choice(adds)))
        for _ in range(chance.randrange(3)):
            chance.choice(_CHANGES)(body, chance, [field.name for field in rules.metadata.schema.fields])
        try:
            add = AddFile.from_json(body)
        except Exception:
            continue
        number += 1
        if entries.is_plain(add):
            plain += 1
            assert list(examine_add(add, rules, 1)) == [], add
    assert number > 1_000 and plain > 100


def _path(body: Any, chance: random.Random, names: list[str]) -> None:
    body["path"] = chance.choice(_PATHS)


def _values(body: Any, chance: random.Random, names: list[str]) -> None:
    body["partitionValues"] = chance.choice(({}, {"day": "a"}, {"day": None}, {"day": "a", "x": "1"}, {"DAY": "a"}))


def _stats(body: Any, chance: random.Random, names: list[str]) -> None:
    stats = body.get("stats") or ""
    body["stats"] = chance.choice((None, "", "{}", "[]", "null", stats[:-1], stats + " "))


def _group(body: Any, chance: random.Random, names: list[str]) -> None:
    _change(body, lambda stats: stats.update({chance.choice(_KEYS): chance.choice(_STRANGE)}))


def _value(body: Any, chance: random.Random, names: list[str]) -> None:
    def change(stats: Any) -> None:
        group = stats.setdefault(chance.choice(_KEYS[2:]), {})
        if isinstance(group, dict):
            name = chance.choice(names)
            group[chance.choice((name, name, name, name.upper(), "nowhere"))] = chance.choice(_STRANGE)

    _change(body, change)


def _swapped(body: Any, chance: random.Random, names: list[str]) -> None:
    def change(stats: Any) -> None:
        stats["minValues"], stats["maxValues"] = stats.get("maxValues"), stats.get("minValues")

    _change(body, change)


def _change(body: Any, change: Callable[[Any], object]) -> None:
    try:
        stats = json.loads(body.get("stats") or "{}")
    except ValueError:
        return
    if isinstance(stats, dict):
        change(stats)
        body["stats"] = msgspec.json.encode(stats, order=None).decode() if "1e400" not in repr(stats) else "{}"


_KEYS = ("numRecords", "tightBounds", "minValues", "maxValues", "nullCount")
_CHANGES = (_path, _values, _stats, _group, _value, _value, _value, _swapped)


@pytest.mark.parametrize("seed", range(4))
def test_the_files_of_a_healthy_table_are_plain(tmp_path: Path, seed: int) -> None:
    random_table(tmp_path, seed, 3, ["wide", "partitioned"], ["vectors"])
    log = Log(tmp_path, random.Random(seed))
    entries = PlainEntries(rules_at(log))
    adds = [AddFile.from_json(each.body) for each in log.of_kind("add") if each.version > log.metadata().version]
    assert adds and all(entries.is_plain(add) for add in adds if "%" not in add.path)
