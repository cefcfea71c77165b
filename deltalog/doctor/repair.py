"""Repairs defects by writing or deleting derived files and by new commits. Existing commits are never changed.

Damaged derived files are deleted, and a new checkpoint and the ``.crc`` of the latest version are written. Wrong
in-commit timestamps and enablement properties are corrected by two commits: the first turns in-commit timestamps off,
the second turns them on again. While the newest commits are lost, nothing is committed, because the commit would take
the version of a lost one, and no file of a lost version is deleted.
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
from deltalog.log.checkpoint.writer import write_checkpoint
from deltalog.log.checksum import encode_checksum
from deltalog.log.loader import load
from deltalog.log.reader import LogReader
from deltalog.maintenance.log_files import checkpoint
from deltalog.protocol import features
from deltalog.protocol.paths import checksum_path, log_path
from deltalog.protocol.properties import SIDECAR_ROWS
from deltalog.write.table_handle import TableHandle

Kind = Literal["delete", "checkpoint", "checksum", "renew timestamps", "remove pair"]

# The files of these findings are kept: they may be all that is left of lost commits.
_KEPT = ("crc-missing", "crc-without-commit", "checkpoint-after-latest", "compaction-after-latest")
_LOST = ("latest-commit-missing", "checkpoint-after-latest")
# If there is one of these findings, the commits alone may not determine the state, so checkpoints are kept.
_INCOMPLETE = (
    "version-gap-below-checkpoint", "log-start-missing", "log-begins-later", "log-missing",
    "cleanup-without-checkpoint", "protocol-missing", "metadata-missing", "log-unreadable",
)  # fmt: skip
_RENEW = frozenset(
    ["commit-info-missing", "commit-info-not-first", "ict-missing", "ict-invalid", "ict-not-increasing",
     "ict-in-future", "ict-at-largest", "ict-half-enablement-pair", "ict-enablement-invalid",
     "ict-enablement-after-latest", "ict-enablement-missing", "ict-enablement-version-wrong",
     "ict-enablement-timestamp-wrong", "ict-property-without-feature"]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair step. ``rules``: the rules whose findings this step repairs. ``path``: the file to delete, if any.
    ``version``: the version of which a checkpoint is written; None: the latest."""

    kind: Kind
    rules: tuple[str, ...]
    text: str
    path: str | None = None
    version: int | None = None

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
    is_lost = any(finding.rule in _LOST for finding in findings)
    broken = _first_broken(findings)
    steps = _deletions(findings, broken)
    hint = sorted({each.rule for each in findings if each.rule.startswith("last-checkpoint-")})
    replaced = sorted({rule for step in steps for rule in step.rules if rule.startswith(("checkpoint-", "sidecar-"))})
    parts = sorted({each.rule for each in findings if each.rule == "multi-part-checkpoint-incomplete"})
    if is_lost:
        hint = []  # the hint may name a checkpoint of a lost version
    if hint or replaced or parts:
        steps += _checkpoint(report, (*hint, *replaced, *parts), broken)
    latest = [step.rules for step in steps if step.path == checksum_path(report.version or 0)]
    if report.is_readable and latest:
        text = f"Write the .crc of version {report.version}, from which the next commits compute theirs."
        steps.append(Repair("checksum", latest[0], text))
    if not report.is_readable or is_lost:
        return steps  # a commit fails, or takes the version of a lost commit
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


def _checkpoint(report: CheckReport, rules: tuple[str, ...], broken: int | None) -> list[Repair]:
    """Write a checkpoint of the latest version, or if it cannot be read, of the last version before the first
    ``broken`` one; none if that is unknown."""
    if report.is_readable:
        return [Repair("checkpoint", rules, "Write a checkpoint of the latest version, and update _last_checkpoint.")]
    if not broken or any(each.rule in _INCOMPLETE for each in report.findings):
        return []
    text = f"Write a checkpoint of version {broken - 1}, the last before a damaged one, and update _last_checkpoint."
    return [Repair("checkpoint", rules, text, version=broken - 1)]


def _open(finding: Finding) -> bool:
    """Whether a finding still matters. A finding about a period that has ended has severity "warning" and no longer
    matters."""
    return finding.severity == "error" or finding.rule == "ict-in-future"


def _is_lost(finding: Finding) -> bool:
    """Whether a commit contains actions that could not be read."""
    is_of_commit = finding.rule.startswith(("commit-", "action-")) and not finding.rule.startswith("commit-info-")
    return is_of_commit and finding.severity == "error"


def _first_broken(findings: Sequence[Finding]) -> int | None:
    """The first version whose commit is missing or contains actions that could not be read."""
    versions = (each.version for each in findings if _is_lost(each) or each.rule == "version-gap")
    return min((version for version in versions if version is not None), default=None)


def _deletions(findings: Sequence[Finding], broken: int | None) -> list[Repair]:
    """Delete wrong derived files. A checkpoint is deleted only if all commits up to it exist and are whole. ``broken``:
    the first version whose commit is not."""
    incomplete = any(each.rule in _INCOMPLETE for each in findings)
    kept = {each.path for each in findings if each.rule in _KEPT}
    by_path: dict[str, set[str]] = {}
    for each in findings:
        if each.path is None or each.severity == "info" or each.path in kept:
            continue
        is_checkpoint = each.rule.startswith(
            ("checkpoint-", "uuid-checkpoint-", "multi-part-checkpoint-with", "sidecar-")
        )
        is_derived = each.rule.startswith(("crc-", "compaction-"))
        if is_checkpoint and (incomplete or not each.path.startswith(log_path("")) or not _precedes(each, broken)):
            continue
        if is_derived or is_checkpoint:
            by_path.setdefault(each.path, set()).add(each.rule)
    return [
        Repair("delete", tuple(sorted(rules)), f"Delete {path}, which is derived from the commits.", path)
        for path, rules in sorted(by_path.items())
    ]


def _precedes(finding: Finding, broken: int | None) -> bool:
    return broken is None or (finding.version is not None and finding.version < broken)


def carry_out(steps: Sequence[Repair], reader: LogReader, environment: Environment) -> list[Outcome]:
    """Carry out the steps in order. A failed step does not stop the others; its outcome contains the error.

    Cost: 1 DELETE per file, the cost of ``DeltaTable.checkpoint``, for a ``.crc`` the list of live files and 1 PUT, and
    2 commits.
    """
    outcomes = []
    for step in steps:
        try:
            if step.kind == "delete" and step.path is not None:
                reader.store.delete(step.path)
            elif step.kind == "checkpoint":
                _write_checkpoint(reader, environment, step.version)
            elif step.kind == "checksum":
                _write_checksum(handle_on_latest(reader, environment))
            else:
                _switch_twice(handle_on_latest(reader, environment), first=step.kind == "remove pair")
        except (DeltaLogError, OSError) as error:
            outcomes.append(Outcome(step, str(error)))
        else:
            outcomes.append(Outcome(step))
    return outcomes


def _write_checkpoint(reader: LogReader, environment: Environment, version: int | None) -> None:
    if version is None:
        checkpoint(handle_on_latest(reader, environment), "parquet", SIDECAR_ROWS)
        return
    snapshot = load(reader, reader.list_from(), version)
    features.check_writable(snapshot.protocol, reader.store.url)
    write_checkpoint(snapshot, environment.clock_ms(), new_uuid=environment.new_uuid)


def _write_checksum(handle: TableHandle) -> None:
    """Write the ``.crc`` of the latest version, with totals counted from the list of live files. Without one, commits
    have no totals from which they could compute theirs."""
    snapshot = handle.writable(for_change=False).log
    info = handle.reader.commit_info(snapshot.version)
    ict_ms = snapshot.in_commit_timestamp_ms
    if info is None or (info.txn_id is None and ict_ms is None):
        return  # readers cannot tell whether a .crc belongs to such a commit
    snapshot.cache.files()
    data = encode_checksum(snapshot.state, snapshot.cache.totals, info.txn_id, ict_ms)
    handle.reader.store.put(checksum_path(snapshot.version), data, durable=False)


def _switch_twice(handle: TableHandle, first: bool) -> None:
    """Enable (``first``) or disable in-commit timestamps in one commit, and do the opposite in the next commit."""
    for on in (first, not first):
        with handle.transaction(None, (), None) as transaction:
            switch_in_commit_timestamps(transaction, on)
    handle.flush()
