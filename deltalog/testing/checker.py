"""Checks that the raw bytes of a log are consistent with what the clients reported.

The checker shares no code with the library: it has its own implementation of the few format rules that it needs, which
uses only ``json`` and ``urllib.parse``. Every check takes linear time, because the versions of a Delta log determine
the order of operations.

    violations = check(History(log={0: b"...", 1: b"..."}, operations=[...], reads=[...]))
    assert not violations, "\\n".join(map(str, violations))

The invariants:

====  ============================================================================================================
I1    Stable: a commit that was read never changes or disappears.
I2    No gaps: a version appears only after the previous version.
I3    Whole: each line of a commit is valid JSON with one action, and a writer sent exactly the commit's bytes.
I4 Acknowledged: a version that ``commit`` returned is in the log, with the operation's txnId and all its actions.
I5    Honest failure: an operation that definitely failed is not in the log.
I6    Exactly once: each operation, and each txnId, is in at most one version; a transaction uses only one txnId.
I7    Settle before moving: no writer attempts a version while an earlier version is free or is the writer's own commit.
I8    In-commit timestamps: in the first action, strictly increasing, from the writer's clock or 1 ms after the
      last; the enablement properties name the enabling commit, whose timestamp is after all earlier file times.
I9    The versions recorded for an application id increase.
I10   No file is added while it is live, except to change its metadata (dataChange=false), and no file is removed
      while it is not live.
I11 If a commit read the whole table, no other commit between the version that it read and its own version changes rows.
      A blind append only adds files.
I12   The protocol and the properties change only as the operation declared.
I14   A read returns the state of one version, which is not older than any version acknowledged before it began.
I16   Only declared errors of the library reach the caller.
====  ============================================================================================================
"""

from __future__ import annotations

import itertools
import json
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.testing.history import History, Operation

_ICT_PROPERTY = "delta.enableInCommitTimestamps"
_PAIR_VERSION = "delta.inCommitTimestampEnablementVersion"
_PAIR_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
_ACTIONS = {"add", "remove", "metaData", "protocol", "txn", "commitInfo", "cdc", "domainMetadata"}


@dataclass(frozen=True)
class Violation:
    """A violation of an invariant, with a message and the version."""

    invariant: str
    message: str
    version: int | None = None

    def __str__(self) -> str:
        where = "" if self.version is None else f" at version {self.version}"
        return f"{self.invariant}{where}: {self.message}"


@dataclass
class Commit:
    """A parsed commit file."""

    version: int
    actions: list[tuple[str, dict[str, Any]]]

    def bodies(self, key: str) -> list[dict[str, Any]]:
        return [body for name, body in self.actions if name == key]

    def body(self, key: str) -> dict[str, Any] | None:
        found = self.bodies(key)
        return found[0] if found else None

    @property
    def token(self) -> str | None:
        return (self.body("commitInfo") or {}).get("userMetadata")

    @property
    def txn_id(self) -> str | None:
        return (self.body("commitInfo") or {}).get("txnId")

    @property
    def ict_ms(self) -> Any:
        return (self.body("commitInfo") or {}).get("inCommitTimestamp")

    def paths(self, key: str) -> list[str]:
        return [file_key(body) for body in self.bodies(key)]


@dataclass
class State:
    """The state of a table after a version, which the checker computes by its own replay of the log."""

    version: int
    files: frozenset[str]
    configuration: Mapping[str, str]
    ict_active: bool
    ict_ms: int | None
    protocol: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None
    apps: Mapping[str, int]


def check(history: History) -> list[Violation]:
    """The invariants that a history violates, ordered by version where possible; empty if the history violates none."""
    judge = _Judge(history)
    judge.check_bytes()
    judge.parse()
    judge.check_sightings()
    judge.replay()
    judge.check_operations()
    judge.check_attempts()
    judge.check_reads()
    return judge.violations


def replay(log: Mapping[int, bytes]) -> dict[int, State]:
    """The table states after each version of a log, for a log without violations."""
    judge = _Judge(History(log))
    judge.parse()
    judge.replay()
    return judge.states


def parse_commit(version: int, data: bytes) -> Commit:
    """Parse a commit file. Raises ValueError if the bytes are not a valid commit."""
    text = data.decode("utf-8", errors="strict")
    if not text:
        raise ValueError("the file is empty")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    actions: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        try:
            action = _DECODER.decode(line)
        except ValueError as error:
            raise ValueError(f"line {number} is not JSON: {error}") from None
        if not isinstance(action, dict) or len(action) != 1:
            raise ValueError(f"line {number} is not a single action")
        ((key, body),) = action.items()
        if key not in _ACTIONS or not isinstance(body, dict):
            raise ValueError(f"line {number} is not a known action: {key!r}")
        actions.append((key, body))
    for single in ("commitInfo", "protocol", "metaData"):
        if sum(key == single for key, _ in actions) > 1:
            raise ValueError(f"more than one {single}")
    return Commit(version, actions)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys)


def file_key(body: Mapping[str, Any]) -> str:
    """A string that identifies a logical file: its path and deletion vector."""
    vector = body.get("deletionVector")
    if not vector:
        return str(body["path"])
    return f"{body['path']}#{vector.get('storageType')}{vector.get('pathOrInlineDv')}@{vector.get('offset')}"


class _Judge:
    def __init__(self, history: History) -> None:
        self.history = history
        self.violations: list[Violation] = []
        self.commits: dict[int, Commit] = {}
        self.states: dict[int, State] = {}
        self.operations = {operation.token: operation for operation in history.operations}
        self._by_txn_id = {txn_id: o for o in history.operations for txn_id in o.txn_ids}
        self._parsed: dict[tuple[int, bytes], Commit] = {}

    def _parse(self, version: int, data: bytes) -> Commit:
        """parse_commit with a cache, because the log, the sightings and the attempts mostly contain the same bytes."""
        key = (version, data)
        if key not in self._parsed:
            self._parsed[key] = parse_commit(version, data)
        return self._parsed[key]

    def _operation(self, commit: Commit) -> Operation | None:
        """The operation that wrote this commit, if known."""
        return self.operations.get(commit.token or "") or self._by_txn_id.get(commit.txn_id or "")

    def _name(self, commit: Commit) -> str | None:
        operation = self._operation(commit)
        return commit.token if operation is None else operation.token

    def blame(self, invariant: str, message: str, version: int | None = None) -> None:
        self.violations.append(Violation(invariant, message, version))

    # ------------------------------------------------------------------------------- invariants I1, I2, I3

    def check_bytes(self) -> None:
        versions = sorted(self.history.log)
        for before, after in itertools.pairwise(versions):
            if after != before + 1:
                self.blame("I2", f"versions {before + 1} to {after - 1} are missing", after)
        if versions and versions[0] != 0:
            self.blame("I2", "the log does not begin at version 0", versions[0])
        if self.history.attempts:
            meant: dict[int, set[bytes]] = {}
            for attempt in self.history.attempts:
                meant.setdefault(attempt.version, set()).add(attempt.data)
            for version in versions[self.history.initial :]:
                if self.history.log[version] not in meant.get(version, ()):
                    self.blame("I3", "no writer sent these bytes: the commit is truncated or changed", version)

    def parse(self) -> None:
        for version in sorted(self.history.log):
            try:
                self.commits[version] = self._parse(version, self.history.log[version])
            except (ValueError, KeyError) as error:
                self.blame("I3", f"the commit is invalid: {error}", version)

    def check_sightings(self) -> None:
        seen: dict[int, bytes] = {}
        for sighting in sorted(self.history.sightings, key=lambda s: s.at):
            version = sighting.version
            if version in seen and seen[version] != sighting.data:
                self.blame("I1", "the commit changed after it was visible", version)
            elif version not in seen and version > 0 and version - 1 not in seen and version > self.history.initial:
                self.blame("I2", "it was visible before the previous version", version)
            if version not in seen:
                try:
                    self._parse(version, sighting.data)
                except ValueError as error:
                    self.blame("I3", f"a reader saw an invalid commit: {error}", version)
            seen.setdefault(version, sighting.data)
        for version, data in seen.items():
            if version not in self.history.log:
                self.blame("I1", "the commit was visible and has disappeared", version)
            elif self.history.log[version] != data:
                self.blame("I1", "the commit differs from its first reading", version)

    # --------------------------------------------------------------------------------- I8, I9, I10, I11, I12

    def replay(self) -> None:
        state = State(-1, frozenset(), {}, False, None, None, None, {})
        floor_ms: int | None = None  # the adjusted file time of the previous commit
        for version in sorted(self.commits):
            commit = self.commits[version]
            before = state
            state = self._apply(before, commit)
            self._check_timestamps(before, state, commit, floor_ms)
            self._check_changes(before, state, commit)
            self.states[version] = state
            time_ms = (self.history.modification_times_ms or {}).get(version)
            if time_ms is not None:
                floor_ms = time_ms if floor_ms is None else max(time_ms, floor_ms + 1)

    def _apply(self, before: State, commit: Commit) -> State:
        version = commit.version
        removes, adds = commit.paths("remove"), commit.paths("add")
        for name, paths in (("remove", removes), ("add", adds)):
            if len(set(paths)) != len(paths):
                self.blame("I10", f"the same file in two {name} actions", version)
        info = commit.body("commitInfo") or {}
        if info.get("isBlindAppend") is True and (removes or commit.body("metaData") or commit.body("protocol")):
            self.blame("I11", "declares itself a blind append but is not one", version)
        for path in sorted(set(removes) - before.files):
            self.blame("I10", f"removes {path}, which is not live", version)
        new = {file_key(body) for body in commit.bodies("add") if body.get("dataChange") is not False}
        for path in sorted(new & before.files - set(removes)):
            self.blame("I10", f"adds {path}, which is already live", version)
        if self.history.data_files is not None:
            named = {urllib.parse.unquote(body["path"]) for body in commit.bodies("add")}
            for path in sorted(named - self.history.data_files):
                self.blame("I4", f"adds {path}, which does not exist", version)
        apps = dict(before.apps)
        for body in commit.bodies("txn"):
            app, number = body["appId"], body["version"]
            if number <= apps.get(app, -1):
                self.blame("I9", f"the version of application {app!r} goes from {apps[app]} to {number}", version)
            apps[app] = number
        protocol = commit.body("protocol") or before.protocol
        metadata = commit.body("metaData") or before.metadata
        if protocol is None or metadata is None:
            self.blame("I12", "no protocol or no metaData action so far", version)
        configuration = (metadata or {}).get("configuration") or {}
        active = (
            (protocol or {}).get("minWriterVersion", 0) >= 7
            and "inCommitTimestamp" in ((protocol or {}).get("writerFeatures") or ())
            and str(configuration.get(_ICT_PROPERTY, "")).lower() == "true"
        )
        files = (before.files - frozenset(removes)) | frozenset(adds)
        ict_ms = commit.ict_ms if active and isinstance(commit.ict_ms, int) else None
        return State(version, files, configuration, active, ict_ms, protocol, metadata, apps)

    def _check_timestamps(self, before: State, after: State, commit: Commit, floor_ms: int | None) -> None:
        version, ict_ms = commit.version, commit.ict_ms
        pair = (after.configuration.get(_PAIR_VERSION), after.configuration.get(_PAIR_TIMESTAMP))
        if not after.ict_active:
            if ict_ms is not None:
                self.blame("I8", "has an in-commit timestamp although they are off", version)
            if pair != (None, None):
                self.blame("I8", f"has the enablement pair {pair}, although in-commit timestamps are off", version)
            return
        if commit.actions[0][0] != "commitInfo":
            self.blame("I8", "commitInfo is not the first action", version)
        if not isinstance(ict_ms, int) or isinstance(ict_ms, bool):
            self.blame("I8", f"has no in-commit timestamp ({ict_ms!r})", version)
            return
        if before.ict_active and before.ict_ms is not None and ict_ms <= before.ict_ms:
            self.blame("I8", f"in-commit timestamp {ict_ms} is not after {before.ict_ms}", version)
        if before.ict_active:
            old = (before.configuration.get(_PAIR_VERSION), before.configuration.get(_PAIR_TIMESTAMP))
            if pair != old:
                self.blame("I8", f"changes the enablement pair from {old} to {pair}", version)
        elif version == 0:
            if pair != (None, None):
                self.blame("I8", "version 0 has an enablement pair", version)
        else:
            if pair != (str(version), str(ict_ms)):
                self.blame("I8", f"enables at ({version}, {ict_ms}) with the pair {pair}", version)
            if floor_ms is not None and ict_ms <= floor_ms:
                self.blame(
                    "I8", f"the enablement timestamp {ict_ms} is not after the earlier file times ({floor_ms})", version
                )
        operation = self._operation(commit)
        if operation is not None and operation.clock_ms is not None:
            possible = set(operation.clock_ms)
            base_ms = before.ict_ms if before.ict_active else floor_ms
            if base_ms is not None:
                possible = {max(reading, base_ms + 1) for reading in possible}
            if ict_ms not in possible:
                self.blame("I8", f"in-commit timestamp {ict_ms} matches no reading of the clock", version)

    def _check_changes(self, before: State, after: State, commit: Commit) -> None:
        """Check I12 against the changes that the operation declared."""
        operation = self._operation(commit)
        if operation is None or before.metadata is None or after.metadata is None:
            return
        version = commit.version
        expected = {k: v for k, v in before.configuration.items() if k not in operation.properties}
        expected.update({k: v for k, v in operation.properties.items() if v is not None})
        pair = (_PAIR_VERSION, _PAIR_TIMESTAMP)  # checked by I8
        wanted = {k: v for k, v in expected.items() if k not in pair}
        found = {k: v for k, v in after.configuration.items() if k not in pair}
        if wanted != found and "configuration" not in operation.may_change:
            changed = sorted(k for k in {*wanted, *found} if wanted.get(k) != found.get(k))
            self.blame("I12", f"changes the properties {changed}, which the operation did not request", version)
        for key in before.metadata:
            if key != "configuration" and before.metadata[key] != after.metadata.get(key):
                if key in operation.may_change:
                    continue
                self.blame("I12", f"changes metaData.{key}", version)
        old, new = before.protocol or {}, after.protocol or {}
        if "protocol" in operation.may_change:
            return
        if new != old and not operation.properties:
            self.blame("I12", "changes the protocol", version)
        for key in ("readerFeatures", "writerFeatures"):
            dropped = set(old.get(key) or ()) - set(new.get(key) or ())
            if dropped:
                self.blame("I12", f"drops the features {sorted(dropped)}", version)

    # ------------------------------------------------------------------------------------------ I4, I5, I6

    def check_operations(self) -> None:
        found: dict[str, list[int]] = {}
        txn_ids: dict[str, list[int]] = {}
        for version, commit in self.commits.items():
            if version < self.history.initial:
                continue
            if commit.txn_id is not None:
                txn_ids.setdefault(commit.txn_id, []).append(version)
            operation = self._operation(commit)
            if operation is None:
                if self.history.exact:
                    self.blame("I5", "the commit belongs to no known operation", version)
                continue
            found.setdefault(operation.token, []).append(version)
            if commit.txn_id is None:
                self.blame("I6", "the commit has no txnId", version)
        for txn_id, versions in txn_ids.items():
            if len(versions) > 1:
                self.blame("I6", f"txnId {txn_id} is in versions {versions}", versions[1])
        for operation in self.operations.values():
            self._check_operation(operation, found.get(operation.token, []))
        self._check_real_time(found)

    def _check_operation(self, operation: Operation, versions: list[int]) -> None:
        name = f"{operation.kind} {operation.token}"
        if operation.outcome == "crashed":
            self.blame("I16", f"{name} raised {operation.error}")
        if len(versions) > 1:
            self.blame("I6", f"{name} is in versions {versions}", versions[1])
        if operation.outcome == "ok" and operation.version not in versions:
            where = f"it is in {versions}" if versions else "it is not in the log"
            self.blame("I4", f"{name} was acknowledged as version {operation.version}, but {where}", operation.version)
        if operation.outcome == "failed" and versions:
            self.blame("I5", f"{name} was reported as failed ({operation.error}), but is in the log", versions[0])
        for version in versions:
            self._check_content(operation, self.commits[version], name)

    def _check_content(self, operation: Operation, commit: Commit, name: str) -> None:
        version = commit.version
        if operation.outcome == "ok" and version == operation.version:
            if operation.txn_id is not None and commit.txn_id != operation.txn_id:
                self.blame("I4", f"{name} got txnId {operation.txn_id}; the log has {commit.txn_id}", version)
            if self.states[version].ict_ms != operation.ict_ms:
                self.blame(
                    "I4", f"{name} got in-commit timestamp {operation.ict_ms}; the log has a different one", version
                )
        adds, removes = commit.paths("add"), commit.paths("remove")
        if operation.adds is not None and sorted(adds) != sorted(operation.adds):
            self.blame("I4", f"{name} adds {sorted(adds)} instead of {sorted(operation.adds)}", version)
        if operation.removes is not None and sorted(removes) != sorted(operation.removes):
            self.blame("I4", f"{name} removes {sorted(removes)} instead of {sorted(operation.removes)}", version)
        if operation.removes_all and version - 1 in self.states:
            remaining = self.states[version - 1].files - set(removes)
            if remaining:
                self.blame("I11", f"{name} replaces the table but leaves {sorted(remaining)}", version)

    def _check_real_time(self, found: Mapping[str, list[int]]) -> None:
        """If an operation returned before another operation began, its version must be lower."""
        done = sorted(
            (o for o in self.operations.values() if o.outcome == "ok" and o.version is not None),
            key=lambda o: o.returned or 0,
        )
        later = sorted((o for o in self.operations.values() if found.get(o.token)), key=lambda o: o.invoked)
        index, newest = 0, -1
        for operation in later:
            while index < len(done) and (done[index].returned or 0) < operation.invoked:
                newest = max(newest, done[index].version or 0)
                index += 1
            first = found[operation.token][0]
            if first <= newest:
                self.blame("I4", f"{operation.token} began after version {newest} was acknowledged", first)

    # ----------------------------------------------------------------------------------------------- I6, I7

    def check_attempts(self) -> None:
        occupied: dict[int, tuple[float, str | None]] = {
            v: (-1.0, self._name(c)) for v, c in self.commits.items() if v < self.history.initial
        }
        for sighting in self.history.sightings:
            if sighting.version not in occupied:
                try:
                    token = self._name(self._parse(sighting.version, sighting.data))
                except ValueError:
                    token = None
                occupied[sighting.version] = (sighting.at, token)
        tried: dict[str, set[int]] = {}
        ids: dict[str, set[str | None]] = {}
        for attempt in sorted(self.history.attempts, key=lambda a: a.at):
            try:
                commit = self._parse(attempt.version, attempt.data)
            except ValueError as error:
                self.blame("I3", f"{attempt.client} sent an invalid commit: {error}", attempt.version)
                continue
            token = self._name(commit) or f"client {attempt.client}"
            ids.setdefault(token, set()).add(commit.txn_id)
            earlier = tried.setdefault(token, set())
            below = occupied.get(attempt.version - 1)
            if attempt.version > 0 and (below is None or below[0] > attempt.at):
                self.blame("I7", f"{token} was sent while version {attempt.version - 1} was free", attempt.version)
            for version in sorted(v for v in earlier if v < attempt.version):
                at, owner = occupied.get(version, (float("inf"), None))
                if at > attempt.at or owner == token:
                    self.blame(
                        "I7", f"{token} moved past version {version} before it was known to be taken", attempt.version
                    )
            earlier.add(attempt.version)
        repeated = {operation.token for operation in self.history.operations if operation.repeated}
        for token, used in ids.items():
            if len(used) > 1 and token not in repeated:
                self.blame("I6", f"{token} was sent with {len(used)} different txnIds")

    # ------------------------------------------------------------------------------------------------- I14

    def check_reads(self) -> None:
        acknowledged = sorted(
            (o.returned or 0, o.version)
            for o in self.operations.values()
            if o.outcome == "ok" and o.version is not None
        )
        newest_of: dict[str, int] = {}
        index, newest = 0, self.history.initial - 1
        for read in sorted(self.history.reads, key=lambda r: r.invoked):
            state = self.states.get(read.version)
            if state is None:
                self.blame("I14", f"{read.client} read a version that is not in the log", read.version)
                continue
            if read.files is not None and read.files != state.files:
                wrong = sorted(read.files ^ state.files)
                self.blame("I14", f"{read.client} read files that differ from the log: {wrong[:5]}", read.version)
            if read.ict_ms != state.ict_ms and not read.is_opened:
                self.blame(
                    "I14", f"{read.client} read in-commit timestamp {read.ict_ms}, not {state.ict_ms}", read.version
                )
            if read.configuration is not None and dict(read.configuration) != dict(state.configuration):
                self.blame("I14", f"{read.client} read properties that differ from the log", read.version)
            while index < len(acknowledged) and acknowledged[index][0] < read.invoked:
                newest = max(newest, acknowledged[index][1] or 0)
                index += 1
            if not read.latest:
                continue
            if read.version < newest:
                self.blame("I14", f"{read.client} read it after version {newest} was acknowledged", read.version)
            if read.version < newest_of.get(read.client, -1):
                self.blame("I14", f"{read.client} had read version {newest_of[read.client]} before", read.version)
            newest_of[read.client] = max(read.version, newest_of.get(read.client, -1))


def fold(violations: Iterable[Violation]) -> dict[str, int]:
    """The number of violations of each invariant."""
    counts: dict[str, int] = {}
    for violation in violations:
        counts[violation.invariant] = counts.get(violation.invariant, 0) + 1
    return counts
