"""The rules of PROTOCOL.md that a log can break: one row each. Pure.

The rows are in ``log_rules`` and ``file_rules``, by the sections of the protocol; this module makes the registry of
them.
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

    ``id``: its name, which does not change. ``section``: the heading of PROTOCOL.md, as GitHub's anchor. ``severity``:
    ``error`` for what the protocol forbids or what makes readers fail or disagree, ``warning`` for what it advises
    against or what harms later, ``info`` for what is worth knowing. ``title``: what was found. ``remedy``: what to do.
    """

    id: str
    section: str
    severity: Severity
    title: str
    remedy: str

    @property
    def reference(self) -> str:
        """The section as a link into the protocol."""
        return f"https://github.com/delta-io/delta/blob/master/PROTOCOL.md#{self.section}"


def _registry() -> Mapping[str, Rule]:
    found: dict[str, Rule] = {}
    for section, rows in (*log_rules.ROWS, *file_rules.ROWS):
        for name, severity, title, remedy in rows:
            if name in found or severity not in SEVERITIES:
                raise ValueError(f"The rule {name} is there twice, or its severity is {severity}.")
            found[name] = Rule(name, section, severity, title, remedy)
    return found


RULES: Mapping[str, Rule] = _registry()
