"""The registry of rules: ids, sections, descriptions."""

from __future__ import annotations

import re
from pathlib import Path

from deltalog.doctor import rules
from deltalog.doctor.rules import RULES, SEVERITIES
from tests.support.protocol_sections import ANCHORS


def test_rules_have_ids_sections_and_texts() -> None:
    assert len(RULES) >= 150
    for name, rule in RULES.items():
        assert rule.id == name and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), name
        assert rule.section in ANCHORS and rule.reference.endswith(rule.section), (name, rule.section)
        assert rule.severity in SEVERITIES
        assert not rule.title.endswith(".") and rule.remedy.endswith("."), name
    assert len({rule.title for rule in RULES.values()}) == len(RULES)


def test_each_rule_is_used_by_an_examiner() -> None:
    folder = Path(rules.__file__).parent
    source = "".join(p.read_text(encoding="utf-8") for p in folder.glob("*.py") if not p.stem.endswith("_rules"))
    assert [name for name in RULES if f'"{name}"' not in source] == []
