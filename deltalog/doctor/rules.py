"""The registry of rules, one for each requirement of PROTOCOL.md that a table can violate. Pure.

The rules are listed in ``log_rules`` and ``file_rules``, by section of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deltalog.doctor import file_rules, log_rules

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the protocol.

    ``id``: its stable name. ``section``: the anchor of a heading in PROTOCOL.md. ``severity``: ``error``: the protocol
    forbids the defect, or readers fail or disagree; ``warning``: the protocol advises against it, or it may cause harm
    later; ``info``: anything else worth knowing. ``title``: the defect. ``remedy``: what to do.
    """

    id: str
    section: str
    severity: Severity
    title: str
    remedy: str

    @property
    def reference(self) -> str:
        """A link to the section of the protocol."""
        return f"https://github.com/delta-io/delta/blob/master/PROTOCOL.md#{self.section}"


def _registry() -> Mapping[str, Rule]:
    found: dict[str, Rule] = {}
    for section, rows in (*log_rules.ROWS, *file_rules.ROWS):
        for name, severity, title, remedy in rows:
            if name in found or severity not in SEVERITIES:
                raise ValueError(f"The rule {name} is defined twice, or its severity {severity} is unknown.")
            found[name] = Rule(name, section, severity, title, remedy)
    return found


RULES: Mapping[str, Rule] = _registry()
