"""Conformance cases as data: a table, the required behaviour of an engine, and the outcome. Pure."""

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
COLUMN_RULES = "column-rules"
DOMAINS = "domains"
ROW_TRACKING = "row-tracking"
TYPE_WIDENING = "type-widening"
VARIANTS = "variants"
# Cases about tables of a Unity Catalog, which need a server of its API.
CATALOG_MANAGED = "catalog-managed"
AREAS = (
    READING,
    TIME_TRAVEL,
    CHANGE_FEEDS,
    WRITING,
    CONFLICTS,
    CHECKPOINTS,
    FEATURES,
    COLUMN_RULES,
    DOMAINS,
    ROW_TRACKING,
    TYPE_WIDENING,
    VARIANTS,
    ICT,
    CATALOG_MANAGED,
)

# What an expected outcome is based on.
PROTOCOL = "protocol"
REFERENCE = "reference"

PASSED = "passed"
FAILED = "failed"
SKIPPED = "skipped"
# How the reason begins if an engine refused a case by the name of a table feature that it lacks.
LACKS_FEATURE = "the engine lacks a table feature"


@dataclass(frozen=True)
class Step:
    """A call of the engine with its expected outcome, or a check of the resulting log."""

    @property
    def kind(self) -> str:
        name = type(self).__name__
        return "".join(f"-{each.lower()}" if each.isupper() else each for each in name).lstrip("-")

    def arguments(self) -> Iterator[tuple[str, Any]]:
        """The fields of the step whose values differ from their defaults."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value != {} and value is not False:
                yield each.name, value


@dataclass(frozen=True)
class Rows(Step):
    """Read the rows of the latest version, of the version with a given number, or of the version at a timestamp, in
    milliseconds or in microseconds. ``variants``: the columns that are variants or contain them; in ``expect``, a
    variant is JSON text."""

    expect: Sequence[Row]
    version: int | None = None
    at_ms: int | None = None
    at_us: int | None = None
    variants: Sequence[str] | None = None


@dataclass(frozen=True)
class TrackedRows(Step):
    """Read the rows with the columns ``_row_id`` and ``_row_commit_version``: the stable row id and the stable row
    commit version of each row."""

    expect: Sequence[Row]
    version: int | None = None


@dataclass(frozen=True)
class VersionAt(Step):
    """Find the version that was current at a timestamp."""

    at_ms: int
    expect: int


@dataclass(frozen=True)
class LatestVersion(Step):
    expect: int


@dataclass(frozen=True)
class History(Step):
    """Read the timestamps of commits, keyed by version. Versions not listed are not compared."""

    expect: Mapping[int, int | None]


@dataclass(frozen=True)
class Changes(Step):
    """Read the change data feed of an inclusive range; the rows include the column ``_commit_timestamp`` only if
    ``timestamps`` is true."""

    expect: Sequence[Row]
    from_version: int | None = None
    to_version: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    timestamps: bool = False


@dataclass(frozen=True)
class Write(Step):
    """Call a write method of the engine. ``begun``: call the method in the transaction of the last ``Begin`` step
    instead of in a new transaction.

    ``types``: the types of columns of ``rows``, as in the schema of a table, where the values do not imply them.
    ``variants``: the columns of ``rows`` that are variants, given as JSON text. ``application`` and
    ``application_version``: the transaction identifier of an append. ``column`` and ``type``: the path of the column
    whose type ``set_type`` changes, and its new type.
    """

    call: str
    rows: Sequence[Row] | None = None
    where: str | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)
    version: int | None = None
    begun: bool = False
    at_ms: int | None = None
    types: Mapping[str, Any] | None = None
    variants: Sequence[str] | None = None
    application: str | None = None
    application_version: int | None = None
    column: str | None = None
    type: str | None = None


@dataclass(frozen=True)
class Create(Step):
    """Create a table in the empty directory. ``columns``: the type of each column, as in the schema of a table: the
    name of a primitive type, or an object for a struct, an array or a map."""

    columns: Mapping[str, Any]
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Clone(Step):
    """Clone the table, or a version of it, next to the table. All later steps use the clone."""

    shallow: bool = False
    version: int | None = None


@dataclass(frozen=True)
class Begin(Step):
    """Begin a transaction on the latest version and keep it open."""


@dataclass(frozen=True)
class Put(Step):
    """Act as another writer that commits: copy into the log a commit that the builder has prepared."""

    name: str


@dataclass(frozen=True)
class Stage(Step):
    """Let another client stage a prepared commit of a catalog-managed table without proposing it to the catalog."""

    name: str


@dataclass(frozen=True)
class Ratify(Step):
    """Let another client commit to a catalog-managed table: stage a prepared commit, and propose it to the catalog,
    which must accept it. ``publish``: publish it too, and report that."""

    name: str
    publish: bool = False


@dataclass(frozen=True)
class Agree(Step):
    """Check that the doctor finds no error in the table and no difference between what the catalog shows and the log,
    and that the catalog's latest version is ``expect``, if that is given."""

    expect: int | None = None


@dataclass(frozen=True)
class Refused(Step):
    """The step must raise one of the exceptions with which the engine refuses an operation."""

    step: Step


@dataclass(frozen=True)
class MayRefuse(Step):
    """The step must have its expected outcome or be refused."""

    step: Step


@dataclass(frozen=True)
class Log(Step):
    """Check a property of the log; the property is given by its name in ``deltalog.conformance.checks``."""

    check: str
    version: int | None = None
    value: Any = None


@dataclass(frozen=True)
class Case:
    """A conformance case. ``section``: an anchor of PROTOCOL.md. ``rule``: the id of the rule with which ``doctor``
    checks the same requirement.

    ``basis``: "protocol" if PROTOCOL.md defines the outcome; "reference" if it does not, so that the outcome follows
    Delta's reference implementation. ``build`` writes the initial table with a TableBuilder; None if the steps create
    the table.
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
        """Whether the case changes the table; if so, every run needs its own copy of the table."""
        return any(isinstance(_inner(step), (Write, Create, Clone, Begin, Put, Stage, Ratify)) for step in self.steps)

    @property
    def calls(self) -> tuple[str, ...]:
        """The calls of an engine that the steps make, each once, in the order of their first use."""
        first = ("of_catalog",) if self.area == CATALOG_MANAGED else ()
        made = (_call(_inner(step)) for step in self.steps)
        return tuple(dict.fromkeys((*first, *(call for call in made if call is not None))))


def _inner(step: Step) -> Step:
    return _inner(step.step) if isinstance(step, (Refused, MayRefuse)) else step


def _call(step: Step) -> str | None:
    """The call that a step makes; None if it is no call of the engine."""
    if isinstance(step, Write):
        return step.call
    if isinstance(step, Rows) and step.at_us is not None:
        return "rows_at_us"
    kinds = (Rows, TrackedRows, VersionAt, LatestVersion, History, Changes, Create, Clone, Begin)
    return step.kind.replace("-", "_") if isinstance(step, kinds) else None


def step_to_json(step: Step) -> dict[str, Any]:
    """A step as JSON, except that its rows are left as they are; ``values.canonical_rows`` converts them."""
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
    """The outcome of a case: "passed", "failed" or "skipped", and the reason if it did not pass."""

    id: str
    area: str
    outcome: str
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "area": self.area, "outcome": self.outcome, "reason": self.reason}
