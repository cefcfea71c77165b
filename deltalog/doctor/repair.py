"""Repairs defects by writing or deleting derived files and by new commits. Existing commits are never changed.

Damaged derived files are deleted, and a new checkpoint is written. Wrong in-commit timestamps and enablement properties
are corrected by two commits: the first turns in-commit timestamps off, the second turns them on again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deltalog.addresses import handle_on_latest
from deltalog.alter.properties import switch_in_commit_timestamps
from deltalog.doctor.findings import CheckReport, Finding
from deltalog.environment import Environment
from deltalog.errors import DeltaLogError
from deltalog.log.reader import LogReader
from deltalog.maintenance.log_files import checkpoint
from deltalog.protocol.paths import log_path
from deltalog.protocol.properties import SIDECAR_ROWS
from deltalog.write.table_handle import TableHandle

Kind = Literal["delete", "checkpoint", "renew timestamps", "remove pair"]

_KEPT_CRC = ("crc-missing", "crc-without-commit")
# If there is one of these findings, the commits alone may not determine the state, so checkpoints are kept.
_INCOMPLETE = (
    "version-gap", "version-gap-below-checkpoint", "log-start-missing", "log-begins-later", "log-missing",
    "cleanup-without-checkpoint", "checkpoint-after-latest", "protocol-missing", "metadata-missing", "log-unreadable",
)  # fmt: skip
_RENEW = frozenset(
    ["commit-info-missing", "commit-info-not-first", "ict-missing", "ict-invalid", "ict-not-increasing",
     "ict-in-future", "ict-at-largest", "ict-half-enablement-pair", "ict-enablement-invalid",
     "ict-enablement-after-latest", "ict-enablement-missing", "ict-enablement-version-wrong",
     "ict-enablement-timestamp-wrong", "ict-property-without-feature"]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair step. ``rules``: the rules whose findings this step repairs. ``path``: the file to delete, if any."""

    kind: Kind
    rules: tuple[str, ...]
    text: str
    path: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.path, "rules": list(self.rules), "text": self.text}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step. ``error``: the reason why the step failed; None on success."""

    repair: Repair
    error: str | None = None


def plan(report: CheckReport) -> list[Repair]:
    """The steps that repair the findings of a report, in order; empty if nothing can be repaired."""
    findings = report.findings
    if any(finding.rule == "catalog-not-consulted" for finding in findings):
        return []  # only commits through the catalog may change the table
    steps = _deletions(findings)
    hint = sorted({each.rule for each in findings if each.rule.startswith("last-checkpoint-")})
    replaced = sorted({rule for step in steps for rule in step.rules if rule.startswith(("checkpoint-", "sidecar-"))})
    parts = sorted({each.rule for each in findings if each.rule == "multi-part-checkpoint-incomplete"})
    if hint or replaced or parts:
        rules = (*hint, *replaced, *parts)
        steps.append(
            Repair("checkpoint", rules, "Write a checkpoint of the latest version, and update _last_checkpoint.")
        )
    renewed = sorted(
        {each.rule for each in findings if each.rule in _RENEW and each.severity != "info" and _open(each)}
    )
    if renewed:
        text = "Turn in-commit timestamps off and on again, in two commits, which writes a correct enablement pair."
        steps.append(Repair("renew timestamps", tuple(renewed), text))
    elif any(each.rule == "ict-stale-enablement-pair" for each in findings):
        text = "Remove the enablement pair: turn in-commit timestamps on and off again, in two commits."
        steps.append(Repair("remove pair", ("ict-stale-enablement-pair",), text))
    return steps


def _open(finding: Finding) -> bool:
    """Whether a finding still matters. A finding about a period that has ended has severity "warning" and no longer
    matters."""
    return finding.severity == "error" or finding.rule == "ict-in-future"


def _is_lost(finding: Finding) -> bool:
    """Whether a commit contains actions that could not be read."""
    is_of_commit = finding.rule.startswith(("commit-", "action-")) and not finding.rule.startswith("commit-info-")
    return is_of_commit and finding.severity == "error"


def _deletions(findings: Sequence[Finding]) -> list[Repair]:
    """Delete wrong derived files. Checkpoints are deleted only if all commits before them exist."""
    incomplete = any(each.rule in _INCOMPLETE or _is_lost(each) for each in findings)
    by_path: dict[str, set[str]] = {}
    for each in findings:
        if each.path is None or each.severity == "info":
            continue
        is_checkpoint = each.rule.startswith(
            ("checkpoint-", "uuid-checkpoint-", "multi-part-checkpoint-with", "sidecar-")
        )
        is_derived = each.rule.startswith(("crc-", "compaction-")) and each.rule not in _KEPT_CRC
        if is_derived or (is_checkpoint and not incomplete and each.path.startswith(log_path(""))):
            by_path.setdefault(each.path, set()).add(each.rule)
    return [
        Repair("delete", tuple(sorted(rules)), f"Delete {path}, which is derived from the commits.", path)
        for path, rules in sorted(by_path.items())
    ]


def carry_out(steps: Sequence[Repair], reader: LogReader, environment: Environment) -> list[Outcome]:
    """Carry out the steps in order. A failed step does not stop the others; its outcome contains the error.

    Cost: 1 DELETE per file, the cost of ``DeltaTable.checkpoint``, and 2 commits.
    """
    outcomes = []
    for step in steps:
        try:
            if step.kind == "delete" and step.path is not None:
                reader.store.delete(step.path)
            elif step.kind == "checkpoint":
                checkpoint(handle_on_latest(reader, environment), "parquet", SIDECAR_ROWS)
            else:
                _switch_twice(handle_on_latest(reader, environment), first=step.kind == "remove pair")
        except (DeltaLogError, OSError) as error:
            outcomes.append(Outcome(step, str(error)))
        else:
            outcomes.append(Outcome(step))
    return outcomes


def _switch_twice(handle: TableHandle, first: bool) -> None:
    """Enable (``first``) or disable in-commit timestamps in one commit, and do the opposite in the next commit."""
    for on in (first, not first):
        with handle.transaction(None, (), None) as transaction:
            switch_in_commit_timestamps(transaction, on)
    handle.flush()
