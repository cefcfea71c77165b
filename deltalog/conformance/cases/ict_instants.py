"""Cases about instants around the enablement and between commits: milliseconds, microseconds, file times, and logs in
which commits are unevenly spaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltalog.conformance.builder import (
    ICT_FEATURE,
    ICT_PROPERTY,
    MINUTE,
    SECOND,
    T0,
    TableBuilder,
)
from deltalog.conformance.case import ICT, REFERENCE, Case, History, Refused, Rows, Step, VersionAt
from deltalog.conformance.cases.common import FUTURE, ICT_READERS, Timeline, case_rows, ids, minute
from deltalog.conformance.cases.ict_reading import ENABLED, FROM_START, LATE

_COPIED = FROM_START.but(file=[9000] * 5)
# The smallest integer that a double cannot represent is 2^53 + 1.
LARGEST_OF_DOUBLES = 2**53
_OUTSIDE = {"basis": REFERENCE}
_MS = 1 / MINUTE


def cases() -> Iterator[Case]:
    yield from case_rows("ict-at", ICT, ICT_READERS, _boundaries())
    yield from case_rows("ict-us", ICT, ICT_READERS, _microseconds())
    yield from case_rows("ict-search", ICT, ICT_READERS, _searches())
    yield from case_rows("ict-shown", ICT, ICT_READERS, _shown())


def _boundaries() -> Iterator[tuple[object, ...]]:
    """The milliseconds before, at and after each boundary of a table that enabled in-commit timestamps late."""
    yield (
        "ms-after-enablement",
        "A millisecond after the enablement still yields the enablement version",
        LATE,
        [Rows(ids(3), at_ms=ENABLED + 1)],
    )
    yield (
        "second-after-enablement",
        "The first commit after the enabling one, and a millisecond before it",
        LATE,
        [Rows(ids(4), at_ms=minute(11)), Rows(ids(3), at_ms=minute(11) - 1)],
    )
    yield (
        "last-file-time",
        "The last file time before the enablement, and a millisecond before and after it",
        LATE,
        [Rows(ids(2), at_ms=minute(2)), Rows(ids(1), at_ms=minute(2) - 1), Rows(ids(2), at_ms=minute(2) + 1)],
    )
    yield (
        "ms-before-latest",
        "A millisecond before the latest commit yields the version before it, in a copy",
        _COPIED,
        [Rows(ids(3), at_ms=minute(4) - 1), VersionAt(minute(4) - 1, 3)],
    )
    tight = LATE.but(at=(0, 1, 2, 2 + _MS, 11, 12))
    yield (
        "enablement-after-a-ms",
        "The enablement is one millisecond after the last file time",
        tight,
        [Rows(ids(2), at_ms=minute(2)), Rows(ids(3), at_ms=minute(2) + 1), Rows(ids(1), at_ms=minute(2) - 1)],
    )
    crowded = LATE.but(file=(10 - _MS, 10 - _MS, 10 - _MS, 9000, 9001, 9002))
    yield (
        "adjusted-past-enablement",
        "Equal file times that are adjusted past the enablement: no time yields the later ones",
        crowded,
        [Rows(ids(0), at_ms=ENABLED - 1), Rows(ids(3), at_ms=ENABLED), Rows(ids(3), at_ms=ENABLED + 1)],
        _OUTSIDE,
    )
    last = LATE.but(at=(0, 1, 2, 10))
    yield (
        "after-enablement-by-latest",
        "A millisecond after the enablement by the latest commit is refused",
        last,
        [Rows(ids(3), at_ms=ENABLED), Refused(Rows(ids(3), at_ms=ENABLED + 1))],
        _OUTSIDE,
    )
    second = SECOND / MINUTE
    close = LATE.but(at=(0.13 * second, 0.56 * second, 0.9 * second, 10, 11, 12))
    yield (
        "file-times-within-a-second",
        "File times within one second are told apart",
        close,
        [Rows(ids(v), at_ms=T0 + ms) for v, ms in ((0, 130), (0, 559), (1, 560), (1, 899), (2, 900))],
    )


def _microseconds() -> Iterator[tuple[object, ...]]:
    """Times between two whole milliseconds."""

    def at(ms: int, more: int, version: int) -> Step:
        return Rows(ids(version), at_us=ms * 1000 + more)

    yield (
        "after-a-commit",
        "Up to 999 microseconds after a commit, its version is current",
        _COPIED,
        [at(minute(2), 1, 2), at(minute(2), 999, 2)],
    )
    yield (
        "before-a-commit",
        "One microsecond before a commit, the previous version is current",
        _COPIED,
        [at(minute(2), -1, 1)],
    )
    yield (
        "before-enablement",
        "One microsecond before the enablement, file times are used",
        LATE,
        [at(ENABLED, -1, 2), at(ENABLED, 1, 3)],
    )
    yield (
        "file-times",
        "One microsecond before and after a file time",
        LATE,
        [at(minute(1), -1, 0), at(minute(1), 1, 1)],
    )
    yield (
        "after-latest",
        "A time less than a millisecond after the latest commit is that commit's time",
        _COPIED,
        [at(minute(4), 999, 4), Refused(at(minute(4), 1000, 4))],
        _OUTSIDE,
    )
    epoch = Timeline(at=(0, 1), file=[9000] * 2, ict_from=0, damage={0: {"ict": 0}, 1: {"ict": 1}})
    yield (
        "before-1970",
        "One microsecond before 1970 is before a commit at the beginning of 1970",
        epoch,
        [at(0, 1, 0), Refused(at(0, -1, 0))],
        _OUTSIDE,
    )


@dataclass(frozen=True)
class Spaced:
    """A table whose version n has the in-commit timestamp T0 + ``after_ms[n]``, and file times that are all equal.
    ``created_ms``: the time of creation in the metadata."""

    after_ms: tuple[int, ...]
    created_ms: int = T0

    def __call__(self, table: TableBuilder) -> None:
        for version, after_ms in enumerate(self.after_ms):
            actions = [table.add([{"id": version}])]
            if version == 0:
                actions.insert(0, table.protocol([ICT_FEATURE]))
                configuration = {ICT_PROPERTY: "true"}
                actions.insert(1, table.metadata(configuration=configuration, createdTime=self.created_ms))
            table.commit(*actions, at_ms=T0 + after_ms, ict=True, file_ms=minute(9000))

    def steps(self, *versions: int) -> list[Step]:
        """For each version, a step at its time, and one a millisecond before the next version."""
        found: list[Step] = []
        for version in versions:
            found.append(VersionAt(T0 + self.after_ms[version], version))
            if version + 1 < len(self.after_ms):
                found.append(VersionAt(T0 + self.after_ms[version + 1] - 1, version))
        return found


def _searches() -> Iterator[tuple[object, ...]]:
    """Logs in which a search that assumes evenly spaced commits looks in the wrong places."""
    doubling = Spaced(tuple(2**n for n in range(1, 31)))
    yield (
        "doubling",
        "The time between commits doubles from commit to commit",
        doubling,
        doubling.steps(0, 7, 15, 22, 28),
    )
    halving = Spaced(tuple(2**30 - 2**n for n in range(29, 0, -1)))
    yield (
        "halving",
        "The time between commits halves from commit to commit",
        halving,
        halving.steps(0, 6, 14, 21, 28),
    )
    one_early = Spaced((-T0, *range(20)))
    yield (
        "first-in-1970",
        "Version 0 is of 1970, and all other commits are a millisecond apart",
        one_early,
        one_early.steps(0, 1, 10, 20),
    )
    one_late = Spaced((*range(20), FUTURE - T0))
    yield (
        "latest-in-2100",
        "The latest commit is of 2100, and all other commits are a millisecond apart",
        one_late,
        one_late.steps(0, 10, 19, 20),
    )
    for name, created_ms in (("after-all", FUTURE), ("in-1970", 0)):
        created = Spaced(tuple(n * MINUTE for n in range(20)), created_ms)
        yield (
            f"created-{name}",
            f"The time of creation in the metadata is {'after all commits' if created_ms else 'in 1970'}",
            created,
            created.steps(0, 10, 19),
        )
    many = Timeline(at=[*range(17), *range(100, 116)], file=[*range(16, -1, -1), *range(9000, 9016)], ict_from=17)
    yield (
        "late-many",
        "Seventeen decreasing file times before the enablement, and sixteen commits after it",
        many,
        [
            *(VersionAt(minute(16) + version, version) for version in (0, 8, 16)),
            *(VersionAt(minute(100 + n), 17 + n) for n in (0, 7, 15)),
            VersionAt(minute(100) - 1, 16),
        ],
        _OUTSIDE,
    )


def _shown() -> Iterator[tuple[object, ...]]:
    """Timestamps that the history shows as they are."""
    crowded = LATE.but(file=(10 - _MS, 10 - _MS, 10 - _MS, 9000, 9001, 9002))
    yield (
        "not-adjusted-after-file-times",
        "The history adjusts file times, but not the in-commit timestamp after them",
        crowded,
        [History({0: ENABLED - 1, 1: ENABLED, 2: ENABLED + 1, 3: ENABLED, 4: minute(11)})],
        _OUTSIDE,
    )
    back = LATE.but(file=(5, 4, 3, 10, 11, 12))
    yield (
        "adjusted-before-enablement",
        "The history adjusts decreasing file times before the enablement",
        back,
        [History({0: minute(5), 1: minute(5) + 1, 2: minute(5) + 2, 3: ENABLED})],
        _OUTSIDE,
    )
    large = FROM_START.but(at=(0, 1), file=(9000, 9001), damage={n: {"ict": LARGEST_OF_DOUBLES + n} for n in range(2)})
    yield (
        "integers",
        "Timestamps beyond the integers that doubles represent are exact",
        large,
        [History({n: LARGEST_OF_DOUBLES + n for n in range(2)})],
    )
    equal = _COPIED.but(damage={3: {"ict": minute(2)}})
    yield (
        "equal",
        "The history shows equal timestamps as they are",
        equal,
        [History({2: minute(2), 3: minute(2), 4: minute(4)})],
        {"basis": REFERENCE, "rule": "ict-not-increasing"},
    )
    decreasing = _COPIED.but(damage={2: {"ict": minute(0) + 1}})
    yield (
        "decreasing",
        "The history shows decreasing timestamps as they are",
        decreasing,
        [History({1: minute(1), 2: minute(0) + 1, 3: minute(3)})],
        {"basis": REFERENCE, "rule": "ict-not-increasing"},
    )
    yield (
        "pair-not-shown",
        "The history shows the timestamp of the enabling commit, not that in its properties",
        LATE.but(pair=("3", str(ENABLED + MINUTE // 2))),
        [History({2: minute(2), 3: ENABLED, 4: minute(11)})],
        {"rule": "ict-enablement-timestamp-wrong"},
    )
