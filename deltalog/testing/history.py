"""The records that clients, watchers and stores write during a run, which are the input of
``deltalog.testing.checker``.

This module shares no code with the library.
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
    """One operation, as its client observed it.

    ``token`` or ``txn_ids`` identify the operation's commit: the commit's userMetadata is ``token``, or its txnId is in
    ``txn_ids``. ``invoked`` and ``returned`` are times on a clock shared by all clients (steps, or nanoseconds);
    ``returned`` is None if the client died. ``outcome``: ok; failed (an error that means that nothing was committed);
    unknown; killed; crashed (any other exception). ``adds`` and ``removes``: the paths that the operation intended to
    add and remove; None if unknown. ``removes_all``: whether the operation reads the whole table and replaces it.
    ``properties``: the properties that the operation sets; None removes a property. ``may_change``: what else the
    operation may change: fields of metaData, or ``protocol``. ``repeated``: whether the operation was planned again
    after conflicts, with a new txnId each time. ``clock_ms``: all the times that the operation read from the clock.
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
        """The operation as a line of JSON, for clients that write their records to a file."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Operation:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Read:
    """A snapshot that a client has read. ``latest``: whether the client requested the latest version rather than a
    specific version. ``is_opened``: whether the client only opened a handle, so that only the version number is
    known."""

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
    """A commit file that a watcher saw for the first time or found changed."""

    at: float
    version: int
    data: bytes


@dataclass(frozen=True)
class Attempt:
    """A request to create a commit file, as a client sent it."""

    at: float
    client: str
    version: int
    data: bytes


@dataclass
class History:
    """All records of a run. Only ``log`` is required; the other parts enable further checks.

    ``log``: the commit files at the end of the run. ``initial``: the number of versions that existed before the
    operations; these versions need not belong to a recorded operation. ``modification_times_ms``: the modification
    times of the commit files. ``exact``: whether every commit after the first ``initial`` commits must belong to one of
    ``operations``. ``data_files``: all existing data files.
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
