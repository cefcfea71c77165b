"""The months that were written, and the answers that the three tables give to queries as of times in these months."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Month:
    """The commit of a month. ``rows``: the number of flights up to and including this month. ``timestamp_ms``: the time
    that the table's history shows for this commit."""

    name: str
    version: int
    timestamp_ms: int
    clock: str
    rows: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A table's answer for the time of a month's commit: a version and the number of rows read, or the reason why the
    query was refused."""

    version: int | None
    rows: int | None
    refusal: str | None = None

    def agrees(self, month: Month) -> bool:
        return self.version == month.version and self.rows == month.rows


@dataclass(frozen=True, slots=True)
class Comparison:
    """A month, and the answers of the three tables for the time of its commit."""

    month: Month
    original: Answer
    copied: Answer
    unpacked: Answer


def as_expected(compared: Sequence[Comparison], enabled_at: int) -> bool:
    """Whether the original table gives the right answer for every month, and both copies for every month since the
    enablement."""
    return all(
        each.original.agrees(each.month)
        and (each.month.version < enabled_at or (each.copied.agrees(each.month) and each.unpacked.agrees(each.month)))
        for each in compared
    )
