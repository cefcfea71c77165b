"""The entries of a table's history, and the explanation of how a timestamp is resolved. Pure.

Spec: PROTOCOL.md#in-commit-timestamps.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any

import msgspec

from deltalog.arguments import safe_repr
from deltalog.protocol.actions import CommitInfo
from deltalog.protocol.json_values import mapping_or_empty, text_or_none, whole_or_none
from deltalog.protocol.timestamps import Clock, CommitAt, Enablement, describe, to_iso


class CommitEntry(msgspec.Struct, frozen=True, gc=False):
    """A row of the history. Times are in milliseconds since 1970. ``timestamp_ms``: None if the commit lacks a required
    in-commit timestamp, because no other time may be used instead.

    An entry can also be used as a mapping, with the names and values that ``to_json`` returns. So
    ``entry["operation"]`` and ``dict(entry)`` work, and ``pandas.DataFrame(table.history())`` and
    ``pyarrow.Table.from_pylist`` create one column per name.
    """

    version: int
    timestamp_ms: int | None
    clock: Clock
    file_modification_time_ms: int
    size_bytes: int
    commit_info: dict[str, Any]

    @safe_repr
    def __repr__(self) -> str:
        """The entry's fields. Of commitInfo, which is long, only the operation, the metrics and the user metadata are
        included."""
        names = ("version", "timestamp_ms", "clock", "operation", "operation_metrics", "user_metadata")
        shown = (f"{name}={getattr(self, name)!r}" for name in (*names, *self.__struct_fields__[3:-1]))
        return f"CommitEntry({', '.join(shown)})"

    def keys(self) -> KeysView[str]:
        """The names of ``to_json``."""
        return self.to_json().keys()

    def values(self) -> ValuesView[Any]:
        """The values of ``to_json``."""
        return self.to_json().values()

    def items(self) -> ItemsView[str, Any]:
        """The names and values that ``to_json`` writes."""
        return self.to_json().items()

    def get(self, name: str, default: Any = None) -> Any:
        """The value with this name, or ``default`` if there is none."""
        return self.to_json().get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.to_json()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_json())

    def __len__(self) -> int:
        return len(self.to_json())

    def __contains__(self, name: object) -> bool:
        return name in self.to_json()

    @property
    def in_commit_timestamp_ms(self) -> int | None:
        """The in-commit timestamp in the commit, whether or not in-commit timestamps are enabled."""
        return CommitInfo(self.commit_info).in_commit_timestamp_ms

    @property
    def commit_info_timestamp_ms(self) -> int | None:
        """The time from the writer's clock; for information only."""
        return whole_or_none(self.commit_info.get("timestamp"))

    @property
    def operation(self) -> str | None:
        return CommitInfo(self.commit_info).operation

    @property
    def operation_parameters(self) -> dict[str, Any]:
        return mapping_or_empty(self.commit_info.get("operationParameters"))

    @property
    def operation_metrics(self) -> dict[str, Any]:
        return mapping_or_empty(self.commit_info.get("operationMetrics"))

    @property
    def user_metadata(self) -> str | None:
        return text_or_none(self.commit_info.get("userMetadata"))

    @property
    def engine_info(self) -> str | None:
        return text_or_none(self.commit_info.get("engineInfo"))

    @property
    def txn_id(self) -> str | None:
        return CommitInfo(self.commit_info).txn_id

    @property
    def read_version(self) -> int | None:
        return whole_or_none(self.commit_info.get("readVersion"))

    @property
    def isolation_level(self) -> str | None:
        return text_or_none(self.commit_info.get("isolationLevel"))

    @property
    def is_blind_append(self) -> bool | None:
        value = self.commit_info.get("isBlindAppend")
        return value if isinstance(value, bool) else None

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON-compatible values."""
        return {
            "version": self.version,
            "timestamp_ms": self.timestamp_ms,
            "timestamp": None if self.timestamp_ms is None else to_iso(self.timestamp_ms),
            "clock": self.clock,
            "operation": self.operation,
            "operation_parameters": self.operation_parameters,
            "operation_metrics": self.operation_metrics,
            "user_metadata": self.user_metadata,
            "engine_info": self.engine_info,
            "txn_id": self.txn_id,
            "read_version": self.read_version,
            "isolation_level": self.isolation_level,
            "is_blind_append": self.is_blind_append,
            "in_commit_timestamp_ms": self.in_commit_timestamp_ms,
            "commit_info_timestamp_ms": self.commit_info_timestamp_ms,
            "file_modification_time_ms": self.file_modification_time_ms,
            "size_bytes": self.size_bytes,
        }


# Registered rather than inherited, because the metaclasses conflict. Makes pandas treat each entry as a row.
Mapping.register(CommitEntry)


@dataclass(frozen=True, slots=True)
class TimestampExplanation:
    """How an instant is resolved to a version: ``str()`` returns a report, and ``to_json()`` returns all fields.

    Times are in milliseconds since 1970. ``clock``: the kind of commit time with which the instant is compared.
    ``candidates``: the first and the last version whose commit time is of that kind. ``answer``: the version that was
    current at the requested time; None if ``refusal``, the error message, is set. ``next_commit``: the commit that
    follows the commit in ``answer``. ``earliest``, ``latest``: the first and the last commit to which a timestamp can
    be resolved.
    """

    table: str
    requested_ms: int
    enabled: bool
    enablement: Enablement | None
    clock: Clock
    candidates: tuple[int, int] | None
    answer: CommitAt | None
    next_commit: CommitAt | None
    earliest: CommitAt
    latest: CommitAt
    refusal: str | None

    def facts(self) -> list[tuple[str, str]]:
        """The report as pairs of a label and a text."""
        facts = [
            ("Table", self.table),
            ("Requested", describe(self.requested_ms)),
            ("ICT", self._enablement_text()),
        ]
        if self.candidates:
            first, last = self.candidates
            facts.append(("Clock", f"{self._clock_text()}; candidates: versions {first} to {last}"))
        if self.answer is not None:
            committed = describe(self.answer.timestamp_ms)
            facts.append(("Answer", f"version {self.answer.version}, committed at {committed}"))
        if self.next_commit is not None:
            at = f"{describe(self.next_commit.timestamp_ms)} ({self.next_commit.clock} time)"
            facts.append(("Until", f"version {self.next_commit.version} at {at}"))
        if self.refusal is not None:
            facts.append(("Refused", self.refusal))
        valid = [f"{describe(at.timestamp_ms)}, version {at.version}" for at in (self.earliest, self.latest)]
        facts.append(("Valid", ", to ".join(valid)))
        if self.clock == "file-modification":
            note = "file modification times change when the table is copied or restored"
            note += (
                ", so this answer can differ in a copy; commits since the enablement keep their times."
                if self.enabled
                else "; enable in-commit timestamps to get answers that last."
            )
            facts.append(("Note", note))
        return facts

    def __str__(self) -> str:
        return "\n".join(f"{label:<10}{text}" for label, text in self.facts())

    def _enablement_text(self) -> str:
        if not self.enabled:
            return "off: the time of every commit is its file modification time"
        if self.enablement is None:
            return "on since version 0"
        return f"on since version {self.enablement.version}, {describe(self.enablement.timestamp_ms)}"

    def _clock_text(self) -> str:
        if self.clock == "in-commit":
            return "in-commit timestamps"
        if self.enablement is None:
            return "file modification times, made increasing"
        return "file modification times, made increasing (the requested time is before the enablement)"

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON-compatible values."""

        def commit(at: CommitAt | None) -> dict[str, Any] | None:
            if at is None:
                return None
            iso = to_iso(at.timestamp_ms)
            return {
                "version": at.version,
                "timestamp_ms": at.timestamp_ms,
                "timestamp": iso,
                "clock": at.clock,
            }

        enablement = self.enablement
        return {
            "table": self.table,
            "requested_ms": self.requested_ms,
            "requested": to_iso(self.requested_ms),
            "in_commit_timestamps_enabled": self.enabled,
            "enablement": None
            if enablement is None
            else {"version": enablement.version, "timestamp_ms": enablement.timestamp_ms},
            "clock": self.clock,
            "candidates": None if self.candidates is None else list(self.candidates),
            "answer": commit(self.answer),
            "next_commit": commit(self.next_commit),
            "earliest": commit(self.earliest),
            "latest": commit(self.latest),
            "refusal": self.refusal,
        }
