"""The records of a run by clients, watchers and stores: the input of ``deltalog.testing.checker``.

Shares no code with the library.
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
    """One operation, as its client saw it.

    ``token`` identifies the operation: it is the userMetadata of the commit, or the txnId of the commit is one of
    ``txn_ids``. ``invoked`` and ``returned`` are times on a clock shared by all clients (steps, or nanoseconds);
    ``returned`` is None if the client died. ``outcome``: ok; failed (an error that means that nothing was committed);
    unknown; killed; crashed (any other exception). ``adds`` and ``removes``: the paths that the operation meant to
    change, None if unknown; ``removes_all``: the operation read the whole table and replaces all of it. ``properties``:
    the properties that it sets, with None for removal. ``may_change``: what else it may change, fields of metaData or
    ``protocol``. ``repeated``: the operation was planned again after conflicts, with a new txnId each time.
    ``clock_ms``: all its readings of the clock.
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
        """The operation as one line of JSON, for clients that write their records to a file."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Operation:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Read:
    """A snapshot read by a client. ``latest``: the client requested the latest version rather than a specific one.
    ``is_opened``: a handle was opened, and only its version number is known."""

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
    """A commit file as a watcher first saw it, or saw it changed."""

    at: float
    version: int
    data: bytes


@dataclass(frozen=True)
class Attempt:
    """A request to create a commit file, as sent."""

    at: float
    client: str
    version: int
    data: bytes


@dataclass
class History:
    """All records of a run. Only ``log`` is required; the other parts enable further checks.

    ``log``: the commit files at the end. ``initial``: the number of versions before the operations; these need no
    operation. ``modification_times_ms``: of the commit files. ``exact``: every later commit must belong to one of
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
