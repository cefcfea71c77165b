"""Judges transactions over several tables from the raw bytes of the logs and the results of clients.

The path of each file contains its amount (``amount-40-…``). Every client transaction moves amounts between tables and
keeps their sum. Like ``deltalog.testing.checker``, the judge parses logs itself and shares no code with the library.

====  =======================================================================================================
X1    Atomic: a transaction is committed to all of its tables, once, with exactly its changes, or to none of them.
X2    Results: transactions reported as committed are in the logs; those aborted or never finished are not.
X3    Sum: the sum of all amounts is unchanged at the end and in every read as of one instant.
X4    Ratified: versions are ratified without a gap, and each published file contains the bytes that were ratified.
Ordered: a transaction's last commits to its tables share one in-commit timestamp; its versions are consecutive.
X6    Serializable: no table that a transaction opened changed between its opening and the transaction's ratification.
X7    Recovered: at the end nothing is unpublished or undecided, and another recovery changes nothing.
X8    Cut: a consistent cut at any time contains each transaction completely or not at all.
X9    Errors: only declared errors of the library reach the caller, and a transaction reads its own changes.
X10   Objects: each object that a version added exists, and as part of X7 no other (``tests.support.simulation.jobs``).
====  =======================================================================================================

I1, I2, I3, I8 and I10 are the checker's invariants, applied to each table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deltalog.testing.checker import Commit, State, Violation, check, parse_commit, replay
from deltalog.testing.history import History, Sighting

#: The checker's invariants that hold for a table even if not all operations on the table are recorded.
_OF_ONE_TABLE = {"I1", "I2", "I3", "I8", "I10"}

Change = tuple[frozenset[str], frozenset[str]]  # the paths of added files and the paths of removed files


@dataclass
class ClientTransaction:
    """The calls of one client in one transaction, or in one commit to a single table.

    ``token``: the id of the transaction, or the userMetadata of the commit. ``changes``: the changes to each table, in
    order. ``opened``: the version of each table that the transaction read. ``complete``: whether all changes of the
    transaction were made, so that the transaction could be committed. ``in_doubt``: it is unknown whether the
    transaction contains the last change. ``outcomes``: the outcomes of the transaction (committed, aborted) that were
    reported to any client.
    """

    token: str
    client: str
    is_transaction: bool = True
    is_serializable: bool = False
    changes: dict[str, list[Change]] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    complete: bool = False
    in_doubt: bool = False
    outcomes: set[str] = field(default_factory=set)

    @property
    def is_due(self) -> bool:
        """Whether the logs must contain the transaction's commits once it is committed: it has changes, and none of
        them is in doubt."""
        return bool(self.changes) and not self.in_doubt

    def change(self, table: str, adds: Sequence[str], removes: Sequence[str]) -> None:
        self.changes.setdefault(table, []).append((frozenset(adds), frozenset(removes)))


@dataclass(frozen=True)
class Ratified:
    """Commits that were ratified together: for each table, the ratified versions with their staged bytes."""

    at: float
    commits: Mapping[str, Sequence[tuple[int, bytes]]]


@dataclass(frozen=True)
class Cut:
    """The versions that were returned for a point in time; ``final``: whether nothing was committed after the read."""

    at_ms: int
    versions: Mapping[str, int]
    final: bool = False


@dataclass
class World:
    """The data that the judge checks at the end of a run.

    ``initial``: the number of versions of each table before the clients' transactions. ``reads``: each consistent read
    of several tables, as the reader and the versions that it read. ``left``: what recovery failed to clean up.
    ``wrong``: transactions that were ratified after they were decided or before they began to commit.
    """

    logs: Mapping[str, Mapping[int, bytes]]
    initial: Mapping[str, int]
    total: int
    client_transactions: Sequence[ClientTransaction] = ()
    ratified: Sequence[Ratified] = ()
    sightings: Mapping[str, Sequence[Sighting]] = field(default_factory=dict)
    reads: Sequence[tuple[str, Mapping[str, frozenset[str]]]] = ()
    cuts: Sequence[Cut] = ()
    wrong: Sequence[str] = ()
    left: Sequence[str] = ()
    crashes: Sequence[str] = ()


@dataclass(frozen=True)
class _Part:
    version: int
    change: Change
    ict_ms: int


def total_amount(paths: frozenset[str]) -> int:
    """The sum of the amounts encoded in the paths; paths without an amount are ignored."""
    return sum(int(path.split("-")[1]) for path in paths if path.startswith("amount-"))


def judge(world: World) -> list[Violation]:
    """All violations; empty if there are none."""
    judge = _Judge(world)
    judge.check_tables()
    if not judge.violations:  # if the log is broken, other results may be undefined
        judge.check_client_transactions()
        judge.check_sum()
        judge.check_ratified()
        judge.check_serializable()
        judge.check_cuts()
    judge.blame_all("X2", world.wrong)
    judge.blame_all("X7", world.left)
    judge.blame_all("X9", world.crashes)
    return judge.violations


class _Judge:
    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: list[Violation] = []
        self.commits: dict[str, dict[int, Commit]] = {}
        self.states: dict[str, dict[int, State]] = {}
        self.found: dict[str, dict[str, list[_Part]]] = {}  # by token and table

    def blame(self, invariant: str, message: str, version: int | None = None) -> None:
        self.violations.append(Violation(invariant, message, version))

    def blame_all(self, invariant: str, messages: Sequence[str]) -> None:
        for message in messages:
            self.blame(invariant, message)

    def check_tables(self) -> None:
        for name, log in self.world.logs.items():
            history = History(log, sightings=self.world.sightings.get(name, ()), initial=self.world.initial[name])
            for each in check(history):
                if each.invariant in _OF_ONE_TABLE:
                    self.blame(each.invariant, f"{name}: {each.message}", each.version)
            if self.violations:
                return
            self.commits[name] = {version: parse_commit(version, data) for version, data in log.items()}
            self.states[name] = replay(log)
            for version, commit in sorted(self.commits[name].items()):
                if version >= self.world.initial[name]:
                    part = _Part(version, _change(commit), commit.ict_ms)
                    self.found.setdefault(str(_token(commit)), {}).setdefault(name, []).append(part)

    # ---------------------------------------------------------------------------------------------- X1, X2, X5

    def check_client_transactions(self) -> None:
        tokens = {each.token for each in self.world.client_transactions}
        for token in self.found.keys() - tokens:
            self.blame("X1", f"no client committed {token}, which is in {sorted(self.found[token])}")
        for client_transaction in self.world.client_transactions:
            parts = self.found.get(client_transaction.token)
            if parts is None:
                if "committed" in client_transaction.outcomes and client_transaction.is_due:
                    self.blame("X2", f"{client_transaction.token} was reported as committed, but no log has it")
                continue
            if "aborted" in client_transaction.outcomes:
                self.blame("X2", f"{client_transaction.token} was reported as aborted, but is in {sorted(parts)}")
            if not client_transaction.complete:
                self.blame("X2", f"{client_transaction.token} was never finished, but is in {sorted(parts)}")
                continue
            landed = {name: [part.change for part in some] for name, some in parts.items()}
            if landed != client_transaction.changes:
                self.blame("X1", f"{client_transaction.token} changed {landed} instead of {client_transaction.changes}")
            if client_transaction.is_transaction:
                self._check_order(client_transaction.token, parts)

    def _check_order(self, token: str, parts: Mapping[str, Sequence[_Part]]) -> None:
        for name, some in parts.items():
            versions = [part.version for part in some]
            if versions != list(range(versions[0], versions[0] + len(versions))):
                self.blame("X5", f"{token} is in the versions {versions} of {name}")
        if len({some[-1].ict_ms for some in parts.values()}) > 1:
            self.blame("X5", f"{token} ends at {[some[-1].ict_ms for some in parts.values()]}")

    # --------------------------------------------------------------------------------------- checks X3 and X4

    def check_sum(self) -> None:
        last = {name: states[max(states)].files for name, states in self.states.items()}
        for who, seen in [("the end", last), *self.world.reads]:
            amount = sum(map(total_amount, seen.values()))
            if amount != self.world.total:
                self.blame("X3", f"{who}: {amount} instead of {self.world.total} in {sorted(seen)}")

    def check_ratified(self) -> None:
        next_version = dict(self.world.initial)
        for each in self.world.ratified:
            for name, commits in each.commits.items():
                for version, data in commits:
                    if version != next_version[name]:
                        self.blame("X4", f"{name}: {version} was ratified after {next_version[name] - 1}", version)
                    next_version[name] = version + 1
                    if self.world.logs[name].get(version) != data:
                        self.blame("X4", f"{name}: the published file differs from the ratified one", version)
        if self.world.ratified:
            for name, log in self.world.logs.items():
                if max(log) + 1 != next_version[name]:
                    self.blame("X4", f"{name}: {max(log)} is published, {next_version[name] - 1} ratified", max(log))

    # ----------------------------------------------------------------------------------- the checks X6 and X8

    def check_serializable(self) -> None:
        serializable = {each.token: each for each in self.world.client_transactions if each.is_serializable}
        heads = {name: number - 1 for name, number in self.world.initial.items()}
        for each in self.world.ratified if not self.violations else ():
            tokens = {str(_token(parse_commit(v, data))) for some in each.commits.values() for v, data in some}
            for token in tokens & serializable.keys():
                for name, version in serializable[token].opened.items():
                    if heads[name] > version:
                        self.blame("X6", f"{token} had read {name} at {version}, but {heads[name]} preceded it")
            for name, commits in each.commits.items():
                heads[name] = commits[-1][0]

    def check_cuts(self) -> None:
        for cut in self.world.cuts:
            what = f"the cut {dict(cut.versions)} at {cut.at_ms}"
            for token, parts in self.found.items():
                inside = {part.version <= cut.versions[name] for name, some in parts.items() for part in some}
                if len(inside) > 1:
                    self.blame("X8", f"{what} has a part of {token}")
            for name, version in cut.versions.items():
                ict_ms, later_ms = (self._ict_ms(name, each) for each in (version, version + 1))
                if ict_ms is not None and ict_ms > cut.at_ms:
                    self.blame("X8", f"{what} has a later version of {name}")
                is_there = later_ms is not None and later_ms <= cut.at_ms
                if cut.final and is_there and not self._is_split(name, version + 1, cut.at_ms):
                    self.blame("X8", f"{what} lacks version {version + 1} of {name}")

    def _ict_ms(self, name: str, version: int) -> int | None:
        state = self.states[name].get(version)
        return None if state is None else state.ict_ms

    def _is_split(self, name: str, version: int, at_ms: int) -> bool:
        """Whether a version belongs to a transaction that was incomplete at a point in time."""
        token = str(_token(self.commits[name][version])) if version >= self.world.initial[name] else ""
        return any(part.ict_ms > at_ms for part in self.found.get(token, {}).get(name, ()))


def _change(commit: Commit) -> Change:
    return frozenset(commit.paths("add")), frozenset(commit.paths("remove"))


def _token(commit: Commit) -> str | None:
    """The token that identifies a commit: the id of its transaction, or else its userMetadata."""
    told = ((commit.body("commitInfo") or {}).get("deltalog") or {}).get("transaction") or {}
    return told.get("id") or commit.token
