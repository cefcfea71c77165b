"""What clients, watchers and stores recorded of a run, for ``deltalog.testing.checker`` to judge.

It shares no code with the library.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["ok", "failed", "unknown", "killed", "crashed"]


@dataclass
class Operation:
    """What one client did, as the client saw it.

    ``token`` identifies the operation: it is the commit's userMetadata, or the commit has one of ``txn_ids``.
    ``invoked`` and ``returned`` are points on one clock that all clients share (steps, or nanoseconds); ``returned``
    is None when the client died. ``outcome``: ok; failed (an error that says nothing was committed); unknown; killed;
    crashed (any other exception). ``adds`` and ``removes`` are the paths it meant to change, None when that is not
    known; ``removes_all`` says that it read the whole table and replaces all of it. ``properties`` maps what it sets
    (None: unsets). ``may_change`` names what else of the table it may change: fields of metaData, or ``protocol``.
    ``repeated``: it was planned again after conflicts, each time with another txnId. ``clock_ms`` is every reading it
    took of its clock.
    """

    token: str
    client: str
    kind: str
    invoked: float
    returned: float | None = None
    outcome: Outcome = "killed"
    version: int | None = None
    read_version: int | None = None
    txn_id: str | None = None
    ict_ms: int | None = None
    adds: list[str] | None = None
    removes: list[str] | None = None
    removes_all: bool = False
    properties: dict[str, str | None] = field(default_factory=dict)
    may_change: list[str] = field(default_factory=list)
    txn_ids: list[str] = field(default_factory=list)
    repeated: bool = False
    clock_ms: list[int] | None = None
    error: str = ""

    def to_json(self) -> str:
        """One line of JSON, for clients that write their records to a file."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Operation:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Read:
    """A snapshot that a reader read. ``latest``: it requested the latest version, not a given one. ``is_opened``: a
    handle was opened, and only the number of its version is known."""

    client: str
    invoked: float
    returned: float
    version: int
    files: frozenset[str] | None = None
    ict_ms: int | None = None
    configuration: Mapping[str, str] | None = None
    latest: bool = True
    is_opened: bool = False


@dataclass(frozen=True)
class Sighting:
    """A commit file as a watcher saw it: at that point in time, for the first time or changed."""

    at: float
    version: int
    data: bytes


@dataclass(frozen=True)
class Attempt:
    """A request to create a commit file, as it was sent."""

    at: float
    client: str
    version: int
    data: bytes


@dataclass
class History:
    """Everything that is known of a run. Only ``log`` is needed; each other part adds checks.

    ``log``: the commit files at the end. ``initial``: how many versions were there before the operations (they
    need no operation). ``modification_times_ms``: of the commit files. ``exact``: every commit after the
    initial ones must be of one of ``operations``. ``data_files``: all data files that exist.
    """

    log: Mapping[int, bytes]
    operations: Sequence[Operation] = ()
    reads: Sequence[Read] = ()
    sightings: Sequence[Sighting] = ()
    attempts: Sequence[Attempt] = ()
    modification_times_ms: Mapping[int, int] | None = None
    initial: int = 0
    exact: bool = True
    data_files: frozenset[str] | None = None
