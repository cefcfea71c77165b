"""In-commit timestamps: which version was current at a point in time, and the timestamps that engines show."""

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
from deltalog.conformance.cases.common import CDF, ICT_READERS, Timeline, each, ids, minute

_DAYS = DAY // MINUTE
# Versions 0 to 4 have in-commit timestamps a minute apart; the file times are what a copy, a restore, or a wrong clock
# makes of them.
FROM_START = Timeline(ict_from=0)
FILE_TIMES: dict[str, tuple[str, list[float] | None]] = {
    "kept": ("file times that are those of the commits", None),
    "copied": ("file times of a copy, all later and equal", [10 * _DAYS] * 5),
    "reversed": ("file times in the opposite order", [4, 3, 2, 1, 0]),
    "in-2001": ("file times of the year 2001", [-24 * 365 * 60 + n for n in range(5)]),
    "one-late": ("one commit whose file is days newer", [0, 1, 9 * _DAYS, 3, 4]),
}
# Versions 0 to 2 have none; version 3 turns them on.
LATE = Timeline(at=(0, 1, 2, 10, 11, 12), ict_from=3)
ENABLED = minute(10)


def cases() -> Iterator[Case]:
    for name, (about, file) in FILE_TIMES.items():
        yield from _probes(f"ict-time-travel-{name}", about, FROM_START.but(file=file))
    yield from each("ict-late", ICT, ICT_READERS, _late())
    yield from each("ict-late", ICT, ICT_READERS, _late_moved())
    yield from each("ict-history", ICT, ICT_READERS, _histories())
    yield from each("ict-changes", ICT, ICT_READERS, _changes())
    yield from each("ict-spacing", ICT, ICT_READERS, _spacings())


def _probes(prefix: str, about: str, build: Timeline) -> Iterator[Case]:
    """Every kind of point in time, on one table."""

    def case(name: str, what: str, *steps: Step, **more: str) -> Case:
        return Case(f"{prefix}-{name}", ICT, f"{what}, with {about}", ICT_READERS, build, steps, **more)

    def at(ms: int, version: int) -> Step:
        return Rows(ids(version), at_ms=ms)

    yield case("exact", "The timestamp of a commit is its version", at(minute(2), 2))
    yield case("exact-first", "The timestamp of version 0 is version 0", at(minute(0), 0))
    yield case("exact-last", "The timestamp of the latest commit is the latest version", at(minute(4), 4))
    yield case("ms-before", "A millisecond before a commit is the version before", at(minute(2) - 1, 1))
    yield case("ms-after", "A millisecond after a commit is that version", at(minute(2) + 1, 2))
    yield case("between", "A time between two commits is the earlier one", at(minute(3.5), 3))
    yield case(
        "before-first", "A time before the first commit is refused", Refused(at(minute(0) - 1, 0)), basis=REFERENCE
    )
    yield case(
        "after-last", "A time after the latest commit is refused", Refused(at(minute(4) + 1, 4)), basis=REFERENCE
    )
    yield case("by-number", "A version by its number does not depend on times", Rows(ids(1), version=1))


def _late() -> Iterator[tuple[object, ...]]:
    yield "exact-enablement", "The enablement timestamp is the enablement version", LATE, [Rows(ids(3), at_ms=ENABLED)]
    yield (
        "ms-before-enablement",
        "A millisecond before the enablement is the last version without a timestamp",
        LATE,
        [Rows(ids(2), at_ms=ENABLED - 1)],
    )
    yield (
        "after-enablement",
        "A time after the enablement is found by timestamps",
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
            f"The time of version {version} is version {version}",
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
    """The file times are not those of the commits."""
    old = LATE.but(file=(0, 1, 2, -9000, -9000, -9000))
    yield (
        "file-times-after-are-old",
        "File times from the enablement on are old and do not matter",
        old,
        [Rows(ids(4), at_ms=minute(11)), Rows(ids(2), at_ms=ENABLED - 1)],
    )
    new = LATE.but(file=(0, 1, 2, 9000, 9000, 9000))
    yield (
        "file-times-after-are-new",
        "File times from the enablement on are new and do not matter",
        new,
        [Rows(ids(5), at_ms=minute(12)), Rows(ids(3), at_ms=minute(10.5))],
    )
    moved = LATE.but(file=(0, 9000, 9001, 10, 11, 12))
    yield (
        "earlier-moved-bounded",
        "Files of earlier commits are newer than the enablement: before it, only they count",
        moved,
        [Rows(ids(0), at_ms=ENABLED - 1)],
    )
    yield (
        "earlier-moved-enablement",
        "Files of earlier commits are newer than the enablement, which is found",
        moved,
        [Rows(ids(3), at_ms=ENABLED), Rows(ids(5), at_ms=minute(12))],
    )
    copied = LATE.but(file=(9000, 9001, 9002, 9003, 9004, 9005))
    yield (
        "copied-enablement",
        "In a copy the enablement timestamp is the enablement version",
        copied,
        [Rows(ids(3), at_ms=ENABLED)],
    )
    yield "copied-later", "In a copy later versions keep their timestamps", copied, [Rows(ids(4), at_ms=minute(11.5))]
    yield (
        "copied-before",
        "In a copy no earlier version is before the enablement",
        copied,
        [Refused(Rows(ids(2), at_ms=ENABLED - 1))],
        {"basis": REFERENCE},
    )
    equal = LATE.but(file=(5, 5, 5, 10, 11, 12))
    yield (
        "equal-file-times",
        "Equal file times become increasing by a millisecond each",
        equal,
        [Rows(ids(0), at_ms=minute(5)), Rows(ids(1), at_ms=minute(5) + 1), Rows(ids(2), at_ms=minute(5) + 2)],
        {"basis": REFERENCE},
    )
    back = LATE.but(file=(5, 4, 3, 10, 11, 12))
    yield (
        "file-times-back",
        "File times that run backwards become increasing",
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
        "The history shows timestamps after the enablement, whatever the file times",
        moved,
        [History(both)],
    )
    off = Timeline(at=(0, 1, 2), file=(0, 5, 6))
    yield "off", "The history of a table without them shows file times", off, [History({0: minute(0), 1: minute(5)})]


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
        "A feed from a commit's timestamp begins with it",
        copied,
        [Changes(inserted(2, 3, 4), from_ms=minute(2))],
    )
    yield (
        "from-ms-after",
        "A feed from a millisecond later begins with the next commit",
        copied,
        [Changes(inserted(3, 4), from_ms=minute(2) + 1)],
        {"basis": REFERENCE},
    )
    yield (
        "from-ms-before",
        "A feed from a millisecond earlier begins with the commit",
        copied,
        [Changes(inserted(2, 3, 4), from_ms=minute(2) - 1)],
        {"basis": REFERENCE},
    )
    yield (
        "to-exact",
        "A feed until a commit's timestamp ends with it",
        copied,
        [Changes(inserted(0, 1, 2), from_version=0, to_ms=minute(2))],
    )
    yield (
        "to-ms-before",
        "A feed until a millisecond earlier ends with the commit before",
        copied,
        [Changes(inserted(0, 1), from_version=0, to_ms=minute(2) - 1)],
    )
    yield (
        "range",
        "A feed between two timestamps",
        copied,
        [Changes(inserted(1, 2, 3), from_ms=minute(0.5), to_ms=minute(3.5))],
    )
    yield (
        "late-from-enablement",
        "A feed from the enablement timestamp",
        late,
        [Changes(inserted(3, 4, 5), from_ms=ENABLED)],
    )
    yield (
        "late-across",
        "A feed from before the enablement to after it",
        late,
        [Changes(inserted(2, 3, 4), from_ms=minute(2), to_ms=minute(11))],
    )
    yield (
        "from-after-last",
        "A feed from after the latest commit is refused",
        copied,
        [Refused(Changes([], from_ms=minute(4) + 1))],
        {"basis": REFERENCE},
    )


def _spacings() -> Iterator[tuple[object, ...]]:
    """Commits close together, far apart, and many of them."""
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
            f"Each version of {number} commits is found by its timestamp",
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
    yield "1970", "Timestamps of 1970 are timestamps", at_zero, [Rows(ids(0), at_ms=0), Rows(ids(1), at_ms=1)]
    far = Timeline(at=(0, 1), ict_from=0, file=[0, 1], damage={1: {"ict": 4_102_444_800_000}})
    yield "2100", "A commit of the future is not current today", far, [Rows(ids(0), at_ms=minute(60)), Rows(ids(1))]
