"""A conformance case as data: a table, what an engine is required to do with it, and the outcome. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

Row = Mapping[str, Any]

READING = "reading"
TIME_TRAVEL = "time-travel"
CHANGE_FEEDS = "change-feeds"
WRITING = "writing"
CONFLICTS = "conflicts"
CHECKPOINTS = "checkpoints"
FEATURES = "features"
ICT = "in-commit-timestamps"
AREAS = (READING, TIME_TRAVEL, CHANGE_FEEDS, WRITING, CONFLICTS, CHECKPOINTS, FEATURES, ICT)

# What the expected outcome of a case rests on.
PROTOCOL = "protocol"
REFERENCE = "reference"

PASSED = "passed"
FAILED = "failed"
SKIPPED = "skipped"


@dataclass(frozen=True)
class Step:
    """One call of the engine and its outcome, or one check of the log that it left."""

    @property
    def kind(self) -> str:
        name = type(self).__name__
        return "".join(f"-{each.lower()}" if each.isupper() else each for each in name).lstrip("-")

    def arguments(self) -> Iterator[tuple[str, Any]]:
        """The fields that say something."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value != {} and value is not False:
                yield each.name, value


@dataclass(frozen=True)
class Rows(Step):
    """The rows of a version: the latest, a version by number, or by a point in time."""

    expect: Sequence[Row]
    version: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True)
class VersionAt(Step):
    """The version that was current at a point in time."""

    at_ms: int
    expect: int


@dataclass(frozen=True)
class LatestVersion(Step):
    expect: int


@dataclass(frozen=True)
class History(Step):
    """The timestamps of commits, by version; versions that are not named are not compared."""

    expect: Mapping[int, int | None]


@dataclass(frozen=True)
class Changes(Step):
    """The change data feed of a range, both ends included, without ``_commit_timestamp`` unless ``timestamps``."""

    expect: Sequence[Row]
    from_version: int | None = None
    to_version: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    timestamps: bool = False


@dataclass(frozen=True)
class Write(Step):
    """A call that writes. ``begun``: in the transaction of the last ``Begin``, else in one on the latest version."""

    call: str
    rows: Sequence[Row] | None = None
    where: str | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)
    version: int | None = None
    begun: bool = False


@dataclass(frozen=True)
class Create(Step):
    """A table is created in the empty directory. ``columns``: Arrow types by name, as text."""

    columns: Mapping[str, str]
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Begin(Step):
    """A transaction is begun on the latest version, and kept open."""


@dataclass(frozen=True)
class Put(Step):
    """Another writer commits: a file that was made with the table is put into its log."""

    name: str


@dataclass(frozen=True)
class Refused(Step):
    """The step raises an error by which the engine refuses."""

    step: Step


@dataclass(frozen=True)
class MayRefuse(Step):
    """The step has its outcome, or is refused; a wrong outcome fails."""

    step: Step


@dataclass(frozen=True)
class Log(Step):
    """A property of the log, as ``deltalog.conformance.log_checks`` has it by name."""

    check: str
    version: int | None = None
    value: Any = None


@dataclass(frozen=True)
class Case:
    """``section``: an anchor of PROTOCOL.md. ``rule``: the id of the doctor's rule for the same requirement.

    ``basis``: "protocol" where PROTOCOL.md says so, "reference" where it is silent and the outcome is that of Delta's
    reference implementation. ``build`` makes the table with a TableBuilder; None: the case creates it.
    """

    id: str
    area: str
    about: str
    section: str
    build: Callable[[Any], None] | None
    steps: tuple[Step, ...]
    rule: str | None = None
    basis: str = PROTOCOL

    @property
    def writes(self) -> bool:
        """Whether the engine changes the table, so that a copy of it is needed for each run."""
        return any(isinstance(_inner(step), (Write, Create, Begin, Put)) for step in self.steps)


def _inner(step: Step) -> Step:
    return _inner(step.step) if isinstance(step, (Refused, MayRefuse)) else step


def step_to_json(step: Step) -> dict[str, Any]:
    """A step as JSON; rows as they are, for ``values.canonical_rows`` to bring into their form."""
    found: dict[str, Any] = {"step": step.kind}
    for name, value in step.arguments():
        if isinstance(value, Step):
            found["of"] = step_to_json(value)
        elif name == "expect" and isinstance(value, Mapping):
            found[name] = {str(key): each for key, each in value.items()}
        else:
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


@dataclass(frozen=True)
class Outcome:
    """What became of a case: "passed", "failed" or "skipped", and why it did not pass."""

    id: str
    area: str
    outcome: str
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "area": self.area, "outcome": self.outcome, "reason": self.reason}
