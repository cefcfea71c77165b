"""Checks the in-commit timestamps of a log, from the first commit to the last. Pure.

Spec: PROTOCOL.md#in-commit-timestamps, #writer-requirements-for-in-commit-timestamps. Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from deltalog.doctor.commit_lines import Actions
from deltalog.doctor.findings import MOST_OF_A_RULE, Finding, found
from deltalog.errors import InvalidEnablementError
from deltalog.protocol.json_values import whole_or_none
from deltalog.protocol.paths import commit_path
from deltalog.protocol.properties import ENABLEMENT_TIMESTAMP_KEY, ENABLEMENT_VERSION_KEY
from deltalog.protocol.timestamps import LARGEST_MS, Enablement, describe, read_enablement

_PAIR = (ENABLEMENT_VERSION_KEY, ENABLEMENT_TIMESTAMP_KEY)
# Smaller clock skew is normal.
FUTURE_MS, DRIFT_MS = 300_000, 3_600_000
# Prefixes of operations that are not expected to turn in-commit timestamps off.
_NOT_OF_PROPERTIES = (
    "RESTORE", "CREATE", "REPLACE", "CLONE", "WRITE", "MERGE", "DELETE", "UPDATE", "STREAMING", "OPTIMIZE", "CONVERT",
)  # fmt: skip


@dataclass(slots=True)
class CommitTimes:
    """Checks in-commit timestamps; commits are passed to ``take`` in ascending order.

    ``now_ms``: the current time. ``kept``: findings about single commits; they are held back because their severity is
    known only after the last commit was read.
    """

    now_ms: int
    # The version that enabled in-commit timestamps; None if they are off, or if the log no longer contains that
    # version.
    era_start: int | None = None
    era_ms: int | None = None  # its in-commit timestamp
    era_floor_ms: int | None = None  # the file modification time of the commit before that version
    first_active: int | None = None  # the first version in the log at which in-commit timestamps are on
    kept: list[Finding] = field(default_factory=list)
    _is_active: bool | None = None
    _previous_ms: int | None = None
    _previous_version: int | None = None
    _file_ms: int | None = None
    _ahead: bool = False
    _drifts: bool = False
    _unneeded: bool = False
    _unordered: bool = False

    def take(self, version: int, actions: Actions, is_active: bool | None, file_ms: int | None, is_read: bool) -> None:
        """Check one commit. ``is_active``: whether in-commit timestamps are on after the commit, or None if unknown.
        ``file_ms``: the modification time of the commit file. ``is_read``: whether the lines of the commit could be
        read."""
        if is_active:
            self._take_active(version, actions, file_ms, is_read)
        else:
            self._take_inactive(version, actions, is_active, file_ms)
        self._is_active = is_active
        self._file_ms = file_ms
        self._previous_version = version

    def skip(self) -> None:
        """Record that commits are missing directly before the next commit that ``take`` checks."""
        self._file_ms = None

    def _take_active(self, version: int, actions: Actions, file_ms: int | None, is_read: bool) -> None:
        ict_ms = self._examine_info(version, actions) if is_read else None
        if not self._is_active:
            is_start = self._is_active is False or version == 0
            self.era_start, self.era_ms = (version, ict_ms) if is_start else (None, None)
            self.era_floor_ms = self._file_ms if is_start else None
            self.first_active, self._previous_ms = version, None
            self._ahead = self._drifts = False
        if ict_ms is None:
            return
        path = commit_path(version)
        if self._previous_ms is not None and ict_ms <= self._previous_ms:
            text = f"It is {describe(ict_ms)}; version {self._previous_version} has {describe(self._previous_ms)}."
            self._keep("ict-not-increasing", text, version, path)
        if ict_ms >= LARGEST_MS:
            self._keep("ict-at-largest", f"inCommitTimestamp is {ict_ms}.", version, path)
        ahead = ict_ms > self.now_ms + FUTURE_MS
        if ahead and not self._ahead:
            self._keep(
                "ict-in-future",
                f"It is {describe(ict_ms)}; the current time is {describe(self.now_ms)}.",
                version,
                path,
            )
        clock_ms = whole_or_none(actions.info.body.get("timestamp")) if actions.info is not None else None
        drifts = clock_ms is not None and ict_ms - clock_ms > DRIFT_MS
        if drifts and not self._drifts:
            less_ms = ict_ms - (clock_ms or 0)
            text = f"It is {describe(ict_ms)}; the writer's clock was {less_ms} ms behind, at {clock_ms} ms."
            self._keep("ict-drift", text, version, path)
        self._ahead, self._drifts, self._previous_ms = ahead, drifts, ict_ms

    def _examine_info(self, version: int, actions: Actions) -> int | None:
        path = commit_path(version)
        if not actions.infos:
            self._keep("commit-info-missing", "The commit has no commitInfo action.", version, path)
            return None
        position, info = actions.infos[0]
        if position > 0:
            self._keep("commit-info-not-first", f"commitInfo is action number {position + 1}.", version, path)
        if info.in_commit_timestamp_ms is None:
            value = info.body.get("inCommitTimestamp")
            rule, text = ("ict-invalid", f"inCommitTimestamp is {value!r}.") if value is not None else (
                "ict-missing", "commitInfo has no inCommitTimestamp."
            )  # fmt: skip
            self._keep(rule, text, version, path)
        return info.in_commit_timestamp_ms

    def _take_inactive(self, version: int, actions: Actions, is_active: bool | None, file_ms: int | None) -> None:
        path, info = commit_path(version), actions.info
        if self._is_active and is_active is False:
            operation = (info.operation if info is not None else None) or "an unnamed operation"
            if operation.upper().startswith(_NOT_OF_PROPERTIES):
                self._keep("ict-disabled-by-operation", f"The operation is {operation}.", version, path)
        if is_active is False:
            before_ms = self._file_ms
            if file_ms is not None and before_ms is not None and file_ms < before_ms and not self._unordered:
                self._unordered = True
                text = f"The file time is {describe(file_ms)}; that of the previous version is {describe(before_ms)}."
                self._keep("file-time-not-increasing", text, version, path)
            has_one = info is not None and info.in_commit_timestamp_ms is not None
            if has_one and not self._unneeded and not self._is_active:
                self._keep("ict-not-enabled", "commitInfo has an inCommitTimestamp.", version, path)
            self._unneeded = has_one
        self.era_start = self.era_ms = self.first_active = self._previous_ms = None

    def _keep(self, rule: str, message: str, version: int, path: str) -> None:
        if sum(finding.rule == rule for finding in self.kept[-2 * MOST_OF_A_RULE :]) < MOST_OF_A_RULE:
            self.kept.append(found(rule, message, version, path))

    # ---------------------------------------------------------------------------------------- final checks

    def finish(self, configuration: Mapping[str, str], latest: int) -> Iterator[Finding]:
        """Yield the findings about commits and about the enablement properties of the latest version.

        After in-commit timestamps are turned off, earlier defects no longer affect readers and are at most warnings.
        """
        for finding in self.kept:
            ended = not self._is_active or (
                self.first_active is not None and (finding.version or 0) < self.first_active
            )
            yield replace(finding, severity="warning") if ended and finding.severity == "error" else finding
        pair = [key for key in _PAIR if key in configuration]
        if self._is_active:
            yield from self._examine_pair(configuration, latest)
        elif pair and self._is_active is False:
            text = f"{' and '.join(f'{key}={configuration[key]}' for key in pair)}."
            yield found("ict-stale-enablement-pair", text, latest, commit_path(latest))

    def _examine_pair(self, configuration: Mapping[str, str], latest: int) -> Iterator[Finding]:
        path = commit_path(latest if self.era_start is None else self.era_start)
        pair = [key for key in _PAIR if key in configuration]
        if len(pair) == 1:
            text = f"{pair[0]} is {configuration[pair[0]]}; the other property is not set."
            yield found("ict-half-enablement-pair", text, latest, path)
            return
        try:
            enablement = read_enablement(configuration, LARGEST_MS)
        except InvalidEnablementError as error:
            yield found("ict-enablement-invalid", str(error), latest, path)
            return
        if enablement is None:
            if self.era_start:
                text = f"In-commit timestamps are on since version {self.first_active}, but the properties are not set."
                yield found("ict-enablement-missing", text, latest, path)
        elif enablement.version > latest:
            text = f"The enablement version is {enablement.version}; the latest version is {latest}."
            yield found("ict-enablement-after-latest", text, latest, path)
        else:
            yield from self._examine_start(enablement, path)

    def _examine_start(self, enablement: Enablement, path: str) -> Iterator[Finding]:
        start, first = self.era_start, self.first_active
        if start is not None and enablement.version != start:
            text = f"The enablement version is {enablement.version}, but version {start} enabled them."
            yield found("ict-enablement-version-wrong", text, start, path)
        elif start is None and first is not None and enablement.version > first:
            text = f"The enablement version is {enablement.version}, but they were already on in version {first}."
            yield found("ict-enablement-version-wrong", text, first, path)
        elif start is not None and self.era_ms is not None and enablement.timestamp_ms != self.era_ms:
            text = f"The enablement timestamp is {enablement.timestamp_ms}; version {start} has {self.era_ms}."
            yield found("ict-enablement-timestamp-wrong", text, start, path)
        floor_ms = self.era_floor_ms
        if start and self.era_ms is not None and floor_ms is not None and self.era_ms <= floor_ms:
            text = f"It has {describe(self.era_ms)}; the file of version {start - 1} has {describe(floor_ms)}."
            yield found("ict-enablement-not-after-file-time", text, start, path)
