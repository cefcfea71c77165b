"""Writes the table of rules in docs/doctor.md from the registry: ``python -m tests.support.doctor.page``."""

from __future__ import annotations

from pathlib import Path

from deltalog.doctor.rules import RULES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "doctor.md"
BEGIN, END = "<!-- rules: generated -->", "<!-- end of rules -->"


def table() -> str:
    """The rules as Markdown tables, by section."""
    head = "| Rule | Severity | What was found | What to do |\n| --- | --- | --- | --- |\n"
    parts = []
    for section in dict.fromkeys(rule.section for rule in RULES.values()):
        rules = [rule for rule in RULES.values() if rule.section == section]
        rows = "".join(f"| `{rule.id}` | {rule.severity} | {rule.title} | {rule.remedy} |\n" for rule in rules)
        parts.append(f"### [{section}]({rules[0].reference})\n\n{head}{rows}")
    return "\n".join(parts)


def rendered(text: str) -> str:
    """The text of the page, with the table of the registry's rules put into it."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
