"""Cases about change data feeds by time: ranges at every boundary of in-commit timestamps, and the timestamps of
changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltalog.conformance.builder import ICT_PROPERTY, MINUTE, PAIR_TIMESTAMP, PAIR_VERSION, TableBuilder
from deltalog.conformance.case import ICT, REFERENCE, Case, Changes, MayRefuse, Refused, Write
from deltalog.conformance.cases.common import CDF, FUTURE, ICT_READERS, Timeline, case_rows, minute
from deltalog.conformance.cases.ict_reading import ENABLED, FROM_START, LATE

_START = FROM_START.but(file=[9000] * 5, properties=CDF)
_LATE = LATE.but(properties=CDF)
_REFERENCE = {"basis": REFERENCE}
_COLUMNS = {"section": "reader-requirements-for-addcdcfile"}


def cases() -> Iterator[Case]:
    yield from case_rows("ict-feed", ICT, ICT_READERS, _from_start())
    yield from case_rows("ict-feed-late", ICT, ICT_READERS, _late())
    yield from case_rows("ict-feed-timestamps", ICT, ICT_READERS, _timestamps())


def _inserts(*versions: int) -> list[dict[str, Any]]:
    return [{"id": version, "_change_type": "insert", "_commit_version": version} for version in versions]


def _timed(times_ms: dict[int, int]) -> list[dict[str, Any]]:
    """The insert of each version, with its timestamp."""
    return [{**_inserts(version)[0], "_commit_timestamp": ms} for version, ms in times_ms.items()]


def _from_start() -> Iterator[tuple[object, ...]]:
    yield (
        "to-ms-after",
        "A feed that ends one millisecond after a commit ends with that commit",
        _START,
        [Changes(_inserts(0, 1, 2), from_version=0, to_ms=minute(2) + 1)],
    )
    yield (
        "from-before-first",
        "A feed that starts before the first commit begins with the first commit",
        _START,
        [Changes(_inserts(0, 1, 2, 3, 4), from_ms=minute(0) - 1)],
        _REFERENCE,
    )
    yield (
        "to-after-last",
        "A feed that ends after the latest commit is refused",
        _START,
        [Refused(Changes([], from_version=0, to_ms=minute(4) + 1))],
        _REFERENCE,
    )
    yield (
        "to-before-first",
        "A feed that ends before the first commit is refused",
        _START,
        [Refused(Changes([], from_version=0, to_ms=minute(0) - 1))],
        _REFERENCE,
    )
    yield (
        "between-commits",
        "A feed between two commits has no changes, or is refused",
        _START,
        [MayRefuse(Changes([], from_ms=minute(1) + 1, to_ms=minute(2) - 1))],
        _REFERENCE,
    )
    yield (
        "from-latest",
        "A feed that starts at the latest commit has only that commit",
        _START,
        [Changes(_inserts(4), from_ms=minute(4))],
    )
    yield (
        "from-time-to-version",
        "A feed from a time to a version",
        _START,
        [Changes(_inserts(2, 3), from_ms=minute(1) + 1, to_version=3)],
        _REFERENCE,
    )
    cleaned = _START.but(checkpoints=(2,), dropped=(0, 1))
    yield (
        "from-before-clean-up",
        "A feed that starts before the first remaining commit begins with that commit",
        cleaned,
        [Changes(_inserts(2, 3, 4), from_ms=minute(0))],
        _REFERENCE,
    )
    ahead = _START.but(damage={4: {"ict": FUTURE}})
    yield (
        "latest-in-2100",
        "A feed to the present ends before a commit of the year 2100",
        ahead,
        [Changes(_inserts(0, 1, 2, 3), from_version=0, to_ms=minute(60)), Changes(_inserts(4), from_ms=minute(60))],
        _REFERENCE,
    )


def _late() -> Iterator[tuple[object, ...]]:
    """Ranges that begin or end at the enablement, and ranges over file times."""
    yield (
        "from-ms-before-enablement",
        "A feed that starts one millisecond before the enablement begins with the enabling commit",
        _LATE,
        [Changes(_inserts(3, 4, 5), from_ms=ENABLED - 1)],
        _REFERENCE,
    )
    yield (
        "from-ms-after-enablement",
        "A feed that starts one millisecond after the enablement begins with the next commit",
        _LATE,
        [Changes(_inserts(4, 5), from_ms=ENABLED + 1)],
        _REFERENCE,
    )
    yield (
        "to-ms-before-enablement",
        "A feed that ends one millisecond before the enablement ends with the commit before it",
        _LATE,
        [Changes(_inserts(0, 1, 2), from_version=0, to_ms=ENABLED - 1)],
    )
    yield (
        "to-enablement",
        "A feed that ends at the enablement includes the enabling commit",
        _LATE,
        [Changes(_inserts(0, 1, 2, 3), from_version=0, to_ms=ENABLED)],
    )
    yield (
        "before-enablement",
        "A feed that lies before the enablement, from the file time of a commit to that of another",
        _LATE,
        [Changes(_inserts(1, 2), from_ms=minute(1), to_ms=minute(2))],
    )
    moved = _LATE.but(file=(0, 9000, 9001, -9000, -9000, -9000))
    yield (
        "moved-to-before-enablement",
        "File times after the enablement: a feed that ends before the enablement",
        moved,
        [Changes(_inserts(0), from_version=0, to_ms=ENABLED - 1)],
    )
    yield (
        "moved-from-before-enablement",
        "File times after the enablement: a feed that starts before the enablement",
        moved,
        [Changes(_inserts(1, 2, 3, 4, 5), from_ms=minute(5))],
        _REFERENCE,
    )
    yield (
        "moved-from-enablement",
        "File times after the enablement: a feed from the enablement to a later time",
        moved,
        [Changes(_inserts(3, 4), from_ms=ENABLED, to_ms=minute(11))],
    )


def _timestamps() -> Iterator[tuple[object, ...]]:
    """The column ``_commit_timestamp``."""
    copied = _LATE.but(file=(9000, 9001, 9002, 9003, 9004, 9005))
    times = {0: minute(9000), 1: minute(9001), 2: minute(9002), 3: ENABLED, 4: minute(11), 5: minute(12)}
    yield (
        "copied",
        "_commit_timestamp is the file time before the enablement even if it is later than in-commit timestamps",
        copied,
        [Changes(_timed(times), from_version=0, timestamps=True)],
        _COLUMNS,
    )
    equal = _LATE.but(file=(5, 5, 5, 10, 11, 12))
    adjusted = {0: minute(5), 1: minute(5) + 1, 2: minute(5) + 2, 3: ENABLED}
    yield (
        "equal",
        "_commit_timestamp is adjusted where file times are equal",
        equal,
        [Changes(_timed(adjusted), from_version=0, to_version=3, timestamps=True)],
        {**_REFERENCE, **_COLUMNS},
    )
    yield (
        "equal-in-a-range",
        "_commit_timestamp is adjusted to the commits before the range",
        equal,
        [Changes(_timed({2: minute(5) + 2, 3: ENABLED}), from_version=2, to_version=3, timestamps=True)],
        {**_REFERENCE, **_COLUMNS},
    )
    off = Timeline(at=(0, 1, 2, 3, 4), file=(1440, 1441, 1442, 1443, 1444), ict_from=1, ict_until=3, properties=CDF)
    yield (
        "off",
        "_commit_timestamp is the file time of all commits after in-commit timestamps were turned off",
        off,
        [Changes(_timed({v: minute(1440 + v) for v in range(5)}), from_version=0, timestamps=True)],
        _COLUMNS,
    )
    yield (
        "again",
        "Turned on again: _commit_timestamp is the file time of commits before the new enablement",
        _again,
        [
            Changes(
                _timed({**{v: minute(40 + v) for v in range(5)}, 5: minute(50), 6: minute(60)}),
                from_version=0,
                timestamps=True,
            )
        ],
        _COLUMNS,
    )
    missing = _START.but(damage={2: {"ict": False}})
    yield (
        "missing",
        "No timestamp is invented for the changes of a commit that lacks its own",
        missing,
        [
            MayRefuse(
                Changes(
                    [{**row, "_commit_timestamp": None} for row in _inserts(2)],
                    from_version=2,
                    to_version=2,
                    timestamps=True,
                )
            )
        ],
        {"rule": "ict-missing", **_COLUMNS},
    )
    ahead = FROM_START.but(at=(0, 1), properties=CDF, damage={1: {"ict": FUTURE}})
    written = [{"id": 9, "_change_type": "insert", "_commit_version": 2, "_commit_timestamp": FUTURE + 1}]
    yield (
        "written",
        "An appended row has the in-commit timestamp of its commit, and a feed that starts then begins with it",
        ahead,
        [Write("append", rows=[{"id": 9}]), Changes(written, from_ms=FUTURE + 1, timestamps=True)],
        _COLUMNS,
    )
    pair = _LATE.but(pair=("3", str(ENABLED - MINUTE)))
    yield (
        "pair",
        "_commit_timestamp is that of the enabling commit, not that in the properties",
        pair,
        [MayRefuse(Changes(_timed({2: minute(2), 3: ENABLED}), from_version=2, to_version=3, timestamps=True))],
        {"rule": "ict-enablement-timestamp-wrong", **_COLUMNS},
    )


def _again(table: TableBuilder) -> None:
    """In-commit timestamps are on in versions 1 and 2, off in 3 and 4, and on again from version 5."""
    first = Timeline(at=(0, 1, 2, 3, 4), file=(40, 41, 42, 43, 44), ict_from=1, ict_until=3, properties=CDF)
    first(table)
    pair = {**CDF, ICT_PROPERTY: "true", PAIR_VERSION: "5", PAIR_TIMESTAMP: str(minute(50))}
    table.commit(table.metadata(configuration=pair), table.add([{"id": 5}]), at_ms=minute(50), ict=True)
    table.commit(table.add([{"id": 6}]), at_ms=minute(60), ict=True)
