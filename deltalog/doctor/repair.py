"""Repairs what derived files and new commits can repair. A commit that is in the log is never changed.

A damaged file that is derived is deleted, and a new checkpoint written; the enablement pair and damaged in-commit
timestamps are renewed by commits that turn them off and on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deltalog.alter.properties import switch_in_commit_timestamps
from deltalog.catalog.locate import handle_on_latest
from deltalog.doctor.findings import CheckReport, Finding
from deltalog.environment import Environment
from deltalog.errors import DeltaLogError
from deltalog.log.checkpoint.writer import SIDECAR_ROWS
from deltalog.log.reader import LogReader
from deltalog.maintenance.log_files import checkpoint
from deltalog.protocol.paths import log_path
from deltalog.write.table_handle import TableHandle

Kind = Literal["delete", "checkpoint", "renew timestamps", "remove pair"]

_KEPT_CRC = ("crc-missing", "crc-without-commit")
# With these the log may not be rebuilt without its checkpoints.
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
    """One step. ``path``: the file that is deleted. ``rules``: what it repairs."""

    kind: Kind
    rules: tuple[str, ...]
    text: str
    path: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.path, "rules": list(self.rules), "text": self.text}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a step. ``error``: why it failed, None where it was carried out."""

    repair: Repair
    error: str | None = None


def plan(report: CheckReport) -> list[Repair]:
    """The steps that repair what a report found, in their order; empty where nothing can be repaired."""
    findings = report.findings
    if any(finding.rule == "catalog-not-consulted" for finding in findings):
        return []  # only its catalog may change the table
    steps = _deletions(findings)
    hint = sorted({each.rule for each in findings if each.rule.startswith("last-checkpoint-")})
    replaced = sorted({rule for step in steps for rule in step.rules if rule.startswith(("checkpoint-", "sidecar-"))})
    parts = sorted({each.rule for each in findings if each.rule == "multi-part-checkpoint-incomplete"})
    if hint or replaced or parts:
        rules = (*hint, *replaced, *parts)
        steps.append(Repair("checkpoint", rules, "Write a checkpoint of the latest version, and the hint to it."))
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
    """Whether a finding is not one of a period that has ended, which is a warning then."""
    return finding.severity == "error" or finding.rule == "ict-in-future"


def _is_lost(finding: Finding) -> bool:
    """Whether actions of a commit could not be read."""
    is_of_commit = finding.rule.startswith(("commit-", "action-")) and not finding.rule.startswith("commit-info-")
    return is_of_commit and finding.severity == "error"


def _deletions(findings: Sequence[Finding]) -> list[Repair]:
    """Derived files that are wrong. A checkpoint is deleted only where all commits before it are there."""
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
    """Carry the steps out, in order; one that fails does not stop the others. Raises nothing of the store's.

    Cost: 1 DELETE for each file, as ``DeltaTable.checkpoint``, 2 commits.
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
    """Commit that in-commit timestamps are ``first``, then the opposite."""
    for on in (first, not first):
        with handle.transaction(None, (), None) as transaction:
            switch_in_commit_timestamps(transaction, on)
    handle.flush()
