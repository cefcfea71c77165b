"""The doctor finds random damages of every kind in random tables, and no error in healthy random tables.

A usual run plants a sample; ``--long`` plants all of the 300 damages and checks more healthy tables.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deltalog import check
from deltalog.doctor.rules import RULES
from tests.support.doctor.damages import DAMAGES
from tests.support.doctor.random_damages import KINDS, plant
from tests.support.doctor.random_damages.catalogs import CATALOG_DAMAGES, managed_table
from tests.support.doctor.random_tables import random_table

NUMBER, USUAL = 300, 24
HEALTHY, USUAL_HEALTHY = 150, 8
# The damages by number: the kinds take turns, so that each occurs several times on different tables.
_NAMES = sorted([*KINDS, *CATALOG_DAMAGES])
PLANTED = [(number, _NAMES[number % len(_NAMES)]) for number in range(NUMBER)]
_ORDER = random.Random(37).sample(PLANTED, len(PLANTED))
# Rules about a server of a catalog; the tests that cover each of them.
_ELSEWHERE = {"catalog-metadata-differs": "unit/unity/test_unity_doctor.py"}


def assert_found(tmp_path: Path, number: int, name: str) -> None:
    if name in CATALOG_DAMAGES:
        chance = random.Random(number)
        damage, is_noted = CATALOG_DAMAGES[name]
        table = managed_table(chance, is_noted)
        assert table.check().ok
        rule = damage(table, chance)
        report = table.check()
        assert rule in report.rules, str(report)
        return
    planted = plant(tmp_path, KINDS[name], number)
    report = planted.check()
    missed = set(planted.rules) - set(report.rules)
    assert planted.rules and not missed, f"{missed}\n{planted.path}\n{', '.join(planted.told)}\n{report}"


@pytest.mark.parametrize(("number", "name"), _ORDER[:USUAL], ids=lambda each: str(each).replace(" ", "-"))
def test_a_planted_damage_is_found(tmp_path: Path, number: int, name: str) -> None:
    assert_found(tmp_path, number, name)


@pytest.mark.long
@pytest.mark.parametrize(("number", "name"), _ORDER[USUAL:], ids=lambda each: str(each).replace(" ", "-"))
def test_every_planted_damage_is_found(tmp_path: Path, number: int, name: str) -> None:
    assert_found(tmp_path, number, name)


def _assert_healthy(tmp_path: Path, seed: int) -> None:
    made = random_table(tmp_path / "table", seed, random.Random(seed).randrange(4, 14))
    report = check(tmp_path / "table", deep=True)
    assert report.ok and report.counts["warning"] == 0, f"{', '.join(made.told)}\n{report}"


@pytest.mark.parametrize("seed", range(USUAL_HEALTHY))
def test_a_healthy_random_table_has_no_finding(tmp_path: Path, seed: int) -> None:
    _assert_healthy(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(USUAL_HEALTHY, HEALTHY))
def test_healthy_random_tables_have_no_finding(tmp_path: Path, seed: int) -> None:
    _assert_healthy(tmp_path, seed)


def test_every_rule_has_a_damage() -> None:
    """Rules that no random damage breaks are broken by the damages of known tables in ``test_check``."""
    tests = Path(__file__).resolve().parents[2]
    for rule, test in _ELSEWHERE.items():
        assert rule in (tests / test).read_text(encoding="utf-8"), rule
    support = tests / "support" / "doctor" / "random_damages"
    random_ones = "".join(file.read_text(encoding="utf-8") for file in support.glob("*.py"))
    covered = {rule for each in DAMAGES for rule in each.rules} | {rule for rule in RULES if f'"{rule}"' in random_ones}
    assert set(RULES) - covered - _ELSEWHERE.keys() == set()
    assert len(KINDS) + len(CATALOG_DAMAGES) >= 150
