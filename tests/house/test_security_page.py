"""Each threat in SECURITY.md's model of the server names a defence and a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_threat_has_a_defence_and_a_test() -> None:
    table = PAGE[PAGE.index("| threat | defence | test |") :].split("\n\n")[0].splitlines()[2:]
    assert len(table) >= 20
    for row in table:
        threat, defence, tests = (cell.strip() for cell in row.strip().strip("|").split(" | "))
        assert threat and defence, row
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", tests)
        assert named, row
        for file, name in named:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert f"def {name or 'test_'}" in text, f"{file} has no {name}"


def test_all_six_kinds_of_threats_are_there() -> None:
    kinds = ("Spoofing", "Tampering", "Repudiation", "Information disclosure", "Denial of service", "Elevation")
    assert [kind for kind in kinds if f"**{kind}" not in PAGE] == []
