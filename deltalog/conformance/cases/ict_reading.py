"""Cases about reading in-commit timestamps: time travel, and the timestamps that engines show."""

from __future__ import annotations

from collections.abc import Iterator

from deltalog.conformance.builder import DAY, MINUTE, T0
from deltalog.conformance.case import (
    ICT,
    REFERENCE,
    Case,
    Changes,
    History,
    LatestVersion,
    Refused,
    Rows,
    Step,
    VersionAt,
)
from deltalog.conformance.cases.common import CDF, FUTURE, ICT_READERS, Timeline, case_rows, ids, minute

_DAYS = DAY // MINUTE
# Versions 0 to 4 have in-commit timestamps a minute apart. The commit files have the modification times that result
# from copying or restoring the table, or from a wrong clock.
FROM_START = Timeline(ict_from=0)
FILE_TIMES: dict[str, tuple[str, list[float] | None]] = {
    "kept": ("file times equal to the timestamps", None),
    "copied": ("the file times of a copy, all equal and later", [10 * _DAYS] * 5),
    "reversed": ("file times in reverse order", [4, 3, 2, 1, 0]),
    "in-2001": ("file times in the year 2001", [-24 * 365 * 60 + n for n in range(5)]),
    "one-late": ("one commit file that is days newer", [0, 1, 9 * _DAYS, 3, 4]),
}
# Versions 0 to 2 have no in-commit timestamps; version 3 enables them.
LATE = Timeline(at=(0, 1, 2, 10, 11, 12), ict_from=3)
# Never on.
OFF = Timeline(at=(0, 1, 2))
# A wrong clock set the last timestamp to the year 2100, so the clock of every writer is behind it.
AHEAD = FROM_START.but(at=(0, 1), damage={1: {"ict": FUTURE}})
ENABLED = minute(10)


def cases() -> Iterator[Case]:
    for name, (about, file) in FILE_TIMES.items():
        yield from _probes(f"ict-time-travel-{name}", about, FROM_START.but(file=file))
    yield from case_rows("ict-late", ICT, ICT_READERS, _late())
    yield from case_rows("ict-late", ICT, ICT_READERS, _late_moved())
    yield from case_rows("ict-history", ICT, ICT_READERS, _histories())
    yield from case_rows("ict-changes", ICT, ICT_READERS, _changes())
    yield from case_rows("ict-spacing", ICT, ICT_READERS, _spacings())


def _probes(prefix: str, about: str, build: Timeline) -> Iterator[Case]:
    """Time travel to all kinds of instants on one table."""

    def case(name: str, what: str, *steps: Step, **more: str) -> Case:
        return Case(f"{prefix}-{name}", ICT, f"{what}, with {about}", ICT_READERS, build, steps, **more)

    def at(ms: int, version: int) -> Step:
        return Rows(ids(version), at_ms=ms)

    yield case("exact", "The timestamp of a commit yields its version", at(minute(2), 2))
    yield case("exact-first", "The timestamp of version 0 yields version 0", at(minute(0), 0))
    yield case("exact-last", "The timestamp of the latest commit yields the latest version", at(minute(4), 4))
    yield case("ms-before", "A time one millisecond before a commit yields the previous version", at(minute(2) - 1, 1))
    yield case("ms-after", "A time one millisecond after a commit yields the commit's version", at(minute(2) + 1, 2))
    yield case("between", "A time between two commits yields the earlier one", at(minute(3.5), 3))
    yield case(
        "before-first", "A time before the first commit is refused", Refused(at(minute(0) - 1, 0)), basis=REFERENCE
    )
    yield case(
        "after-last", "A time after the latest commit is refused", Refused(at(minute(4) + 1, 4)), basis=REFERENCE
    )
    yield case("by-number", "A version number does not depend on timestamps", Rows(ids(1), version=1))


def _late() -> Iterator[tuple[object, ...]]:
    yield (
        "exact-enablement",
        "The enablement timestamp yields the enablement version",
        LATE,
        [Rows(ids(3), at_ms=ENABLED)],
    )
    yield (
        "ms-before-enablement",
        "A millisecond before the enablement yields the last version without a timestamp",
        LATE,
        [Rows(ids(2), at_ms=ENABLED - 1)],
    )
    yield (
        "after-enablement",
        "A time after the enablement is resolved by in-commit timestamps",
        LATE,
        [Rows(ids(4), at_ms=minute(11.5))],
    )
    yield "exact-later", "The timestamp of a commit after the enablement", LATE, [Rows(ids(4), at_ms=minute(11))]
    yield "exact-earlier", "The file time of a commit before the enablement", LATE, [Rows(ids(1), at_ms=minute(1))]
    yield "between-earlier", "Between two commits before the enablement", LATE, [Rows(ids(0), at_ms=minute(0.5))]
    yield "exact-first", "The file time of version 0", LATE, [Rows(ids(0), at_ms=minute(0))]
    yield "exact-last", "The timestamp of the latest commit", LATE, [Rows(ids(5), at_ms=minute(12))]
    outside = {"basis": REFERENCE}
    yield "before-first", "Before the first file time", LATE, [Refused(Rows(ids(0), at_ms=T0 - 1))], outside
    yield "after-last", "After the latest timestamp", LATE, [Refused(Rows(ids(5), at_ms=minute(12) + 1))], outside
    yield "latest", "The latest version is read without any timestamp", LATE, [LatestVersion(5), Rows(ids(5))]
    for version in range(6):
        at_ms = minute(LATE.at[version])
        yield (
            f"version-at-{version}",
            f"The time of version {version} yields version {version}",
            LATE,
            [VersionAt(at_ms, version)],
        )
    first = LATE.but(at=(0, 1, 2, 3), ict_from=1)
    yield "at-1", "Enabled by version 1", first, [Rows(ids(1), at_ms=minute(1)), Rows(ids(0), at_ms=minute(1) - 1)]
    last = LATE.but(at=(0, 1, 2, 3), ict_from=3)
    yield (
        "by-latest",
        "Enabled by the latest version",
        last,
        [Rows(ids(3), at_ms=minute(3)), Rows(ids(2), at_ms=minute(2.5))],
    )


def _late_moved() -> Iterator[tuple[object, ...]]:
    """Tables whose file times differ from the in-commit timestamps."""
    old = LATE.but(file=(0, 1, 2, -9000, -9000, -9000))
    yield (
        "file-times-after-are-old",
        "Commits since the enablement have old file times, which are ignored",
        old,
        [Rows(ids(4), at_ms=minute(11)), Rows(ids(2), at_ms=ENABLED - 1)],
    )
    new = LATE.but(file=(0, 1, 2, 9000, 9000, 9000))
    yield (
        "file-times-after-are-new",
        "Commits since the enablement have new file times, which are ignored",
        new,
        [Rows(ids(5), at_ms=minute(12)), Rows(ids(3), at_ms=minute(10.5))],
    )
    moved = LATE.but(file=(0, 9000, 9001, 10, 11, 12))
    yield (
        "earlier-moved-bounded",
        "Earlier commits have file times after the enablement: for a time before it, only file times are used",
        moved,
        [Rows(ids(0), at_ms=ENABLED - 1)],
    )
    yield (
        "earlier-moved-enablement",
        "Earlier commits have file times after the enablement, which is still found",
        moved,
        [Rows(ids(3), at_ms=ENABLED), Rows(ids(5), at_ms=minute(12))],
    )
    copied = LATE.but(file=(9000, 9001, 9002, 9003, 9004, 9005))
    yield (
        "copied-enablement",
        "In a copy, the enablement timestamp yields the enablement version",
        copied,
        [Rows(ids(3), at_ms=ENABLED)],
    )
    yield "copied-later", "In a copy, later versions keep their timestamps", copied, [Rows(ids(4), at_ms=minute(11.5))]
    yield (
        "copied-before",
        "In a copy, times before the enablement yield no version",
        copied,
        [Refused(Rows(ids(2), at_ms=ENABLED - 1))],
        {"basis": REFERENCE},
    )
    equal = LATE.but(file=(5, 5, 5, 10, 11, 12))
    yield (
        "equal-file-times",
        "Equal file times are adjusted in steps of a millisecond",
        equal,
        [Rows(ids(0), at_ms=minute(5)), Rows(ids(1), at_ms=minute(5) + 1), Rows(ids(2), at_ms=minute(5) + 2)],
        {"basis": REFERENCE},
    )
    back = LATE.but(file=(5, 4, 3, 10, 11, 12))
    yield (
        "file-times-back",
        "Decreasing file times are adjusted",
        back,
        [Rows(ids(1), at_ms=minute(5) + 1), Rows(ids(2), at_ms=minute(9))],
        {"basis": REFERENCE},
    )


def _histories() -> Iterator[tuple[object, ...]]:
    own = {version: minute(version) for version in range(5)}
    for name, (about, file) in FILE_TIMES.items():
        yield name, f"The history shows in-commit timestamps, with {about}", FROM_START.but(file=file), [History(own)]
    both = {version: minute(at) for version, at in enumerate(LATE.at)}
    yield "late", "The history shows file times before the enablement", LATE, [History(both)]
    moved = LATE.but(file=(0, 1, 2, 9000, 9001, 9002))
    yield (
        "late-moved",
        "The history shows in-commit timestamps since the enablement, regardless of file times",
        moved,
        [History(both)],
    )
    off = Timeline(at=(0, 1, 2), file=(0, 5, 6))
    yield (
        "off",
        "The history of a table without in-commit timestamps shows file times",
        off,
        [History({0: minute(0), 1: minute(5)})],
    )


def _changes() -> Iterator[tuple[object, ...]]:
    start, late = FROM_START.but(properties=CDF), LATE.but(properties=CDF)
    copied = start.but(file=[10 * _DAYS] * 5)

    def inserted(*versions: int, times: bool = False, of: Timeline = start) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = [{"id": v, "_change_type": "insert", "_commit_version": v} for v in versions]
        if times:
            rows = [{**row, "_commit_timestamp": minute(of.at[v])} for row, v in zip(rows, versions, strict=True)]
        return rows

    yield (
        "timestamps",
        "_commit_timestamp is the in-commit timestamp",
        copied,
        [Changes(inserted(0, 1, 2, 3, 4, times=True), from_version=0, timestamps=True)],
        {"section": "add-cdc-file"},
    )
    yield (
        "timestamps-late",
        "_commit_timestamp is the file time before the enablement",
        late,
        [Changes(inserted(0, 1, 2, 3, 4, 5, times=True, of=late), from_version=0, timestamps=True)],
        {"section": "add-cdc-file"},
    )
    yield (
        "from-exact",
        "A change feed that starts at the timestamp of a commit begins with that commit",
        copied,
        [Changes(inserted(2, 3, 4), from_ms=minute(2))],
    )
    yield (
        "from-ms-after",
        "A change feed whose start time is one millisecond after a commit begins with the next commit",
        copied,
        [Changes(inserted(3, 4), from_ms=minute(2) + 1)],
        {"basis": REFERENCE},
    )
    yield (
        "from-ms-before",
        "A change feed whose start time is one millisecond before a commit begins with that commit",
        copied,
        [Changes(inserted(2, 3, 4), from_ms=minute(2) - 1)],
        {"basis": REFERENCE},
    )
    yield (
        "to-exact",
        "A change feed that ends at the timestamp of a commit includes that commit",
        copied,
        [Changes(inserted(0, 1, 2), from_version=0, to_ms=minute(2))],
    )
    yield (
        "to-ms-before",
        "A change feed whose end time is one millisecond before a commit ends with the previous commit",
        copied,
        [Changes(inserted(0, 1), from_version=0, to_ms=minute(2) - 1)],
    )
    yield (
        "range",
        "A change feed between two timestamps",
        copied,
        [Changes(inserted(1, 2, 3), from_ms=minute(0.5), to_ms=minute(3.5))],
    )
    yield (
        "late-from-enablement",
        "A change feed that starts at the enablement timestamp",
        late,
        [Changes(inserted(3, 4, 5), from_ms=ENABLED)],
    )
    yield (
        "late-across",
        "A change feed from before the enablement to after it",
        late,
        [Changes(inserted(2, 3, 4), from_ms=minute(2), to_ms=minute(11))],
    )
    yield (
        "from-after-last",
        "A change feed that starts after the latest commit is refused",
        copied,
        [Refused(Changes([], from_ms=minute(4) + 1))],
        {"basis": REFERENCE},
    )


def _spacings() -> Iterator[tuple[object, ...]]:
    """A log with commits close together in time, one with commits far apart, and one with many commits."""
    tight = Timeline(at=[n / 60_000 for n in range(6)], ict_from=0, file=[9000] * 6)
    yield (
        "a-millisecond",
        "Commits a millisecond apart are distinct",
        tight,
        [Rows(ids(version), at_ms=T0 + version) for version in (0, 1, 3, 5)],
    )
    wide = Timeline(at=(0, 365 * _DAYS // 100, 365 * _DAYS // 2), ict_from=0, file=[9000] * 3)
    yield (
        "months",
        "Commits months apart",
        wide,
        [Rows(ids(1), at_ms=minute(365 * _DAYS // 2) - 1), Rows(ids(0), at_ms=minute(1))],
    )
    for number in (2, 3, 7, 16, 33):
        many = Timeline(at=range(number), ict_from=0, file=[9000] * number)
        yield (
            f"{number}-commits",
            f"Every version of {number} commits is found by its timestamp",
            many,
            [
                step
                for version in sorted({0, 1, number // 2, number - 2, number - 1})
                for step in (VersionAt(minute(version), version), Rows(ids(version), at_ms=minute(version)))
            ],
        )
    one = Timeline(at=(0,), ict_from=0, file=[9000])
    yield "1-commit", "The only commit is found by its timestamp", one, [Rows(ids(0), at_ms=minute(0))]
    uneven = Timeline(at=(0, 0.001, 0.002, 50, 50.001, 1000), ict_from=0, file=[9000] * 6)
    yield (
        "uneven",
        "Commits in bursts",
        uneven,
        [Rows(ids(2), at_ms=minute(49)), Rows(ids(3), at_ms=minute(50)), Rows(ids(4), at_ms=minute(999))],
    )
    at_zero = Timeline(at=(0, 1), ict_from=0, file=[9000] * 2, damage={0: {"ict": 0}, 1: {"ict": 1}})
    yield "1970", "Timestamps in the year 1970 are valid", at_zero, [Rows(ids(0), at_ms=0), Rows(ids(1), at_ms=1)]
    far = Timeline(at=(0, 1), ict_from=0, file=[0, 1], damage={1: {"ict": 4_102_444_800_000}})
    yield (
        "2100",
        "A commit with a future timestamp is not the version at the present time",
        far,
        [Rows(ids(0), at_ms=minute(60)), Rows(ids(1))],
    )
