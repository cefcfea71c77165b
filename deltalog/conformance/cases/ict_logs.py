"""Cases about in-commit timestamps in logs after clean-up, disabling, re-enabling, cloning, or damage."""

from __future__ import annotations

from collections.abc import Iterator

from deltalog.conformance.builder import ICT_PROPERTY, PAIR_TIMESTAMP, PAIR_VERSION, TableBuilder
from deltalog.conformance.case import (
    ICT,
    REFERENCE,
    Case,
    Changes,
    History,
    LatestVersion,
    MayRefuse,
    Refused,
    Rows,
    VersionAt,
)
from deltalog.conformance.cases.common import CDF, ICT_READERS, ICT_SECTION, Timeline, case_rows, ids, minute
from deltalog.conformance.cases.ict_reading import ENABLED, FROM_START, LATE

_COPIED = FROM_START.but(file=[9000] * 5)


def cases() -> Iterator[Case]:
    yield from case_rows("ict-active", ICT, "in-commit-timestamps", _active())
    yield from case_rows("ict-off", ICT, ICT_READERS, _disabled())
    yield from case_rows("ict-pair", ICT, ICT_READERS, _pairs())
    yield from case_rows("ict-cleaned", ICT, ICT_READERS, _cleaned())
    yield from case_rows("ict-damage", ICT, ICT_SECTION, _damaged())


def _active() -> Iterator[tuple[object, ...]]:
    """The three conditions under which in-commit timestamps are used. If any of the conditions for in-commit timestamps
    is not met, timestamps in commits are ignored."""
    by_file = [Rows(ids(1), at_ms=minute(101)), Rows(ids(0), at_ms=minute(100.5))]
    file = [100 + n for n in range(5)]

    def without(name: str, about: str, change: dict[str, object]) -> tuple[object, ...]:
        """A table whose commits have timestamps at minutes 0 to 4 and file times at minutes 100 to 104."""

        def build(table: TableBuilder) -> None:
            features = change.get("features", ["inCommitTimestamp"])
            versions = change.get("versions", (1, 7))
            table.commit(
                table.protocol(features, versions=versions),  # type: ignore[arg-type]
                table.metadata(configuration=change.get("properties", {ICT_PROPERTY: "true"})),  # type: ignore[arg-type]
                table.add([{"id": 0}]),
                at_ms=minute(0),
                ict=True,
                file_ms=minute(file[0]),
            )
            for version in range(1, 5):
                table.commit(
                    table.add([{"id": version}]), at_ms=minute(version), ict=True, file_ms=minute(file[version])
                )

        return name, f"{about}: file times are used", build, by_file

    yield without("no-property", "The feature is listed but the property is absent", {"properties": {}})
    yield without(
        "property-false", "The feature is listed but the property is false", {"properties": {ICT_PROPERTY: "false"}}
    )
    yield without("no-feature", "The property is true but the feature is not listed", {"features": ["appendOnly"]})
    yield without(
        "no-features", "The property is true but the writer version is 2", {"features": None, "versions": (1, 2)}
    )
    listed = Timeline(ict_from=0, file=[9000] * 5, features=("inCommitTimestamp", "domainMetadata"))
    yield "among-others", "The feature is listed among others", listed, [Rows(ids(2), at_ms=minute(2))]
    yield (
        "readers-need-nothing",
        "The latest version of a table with the feature is read",
        _COPIED,
        [LatestVersion(4), Rows(ids(4))],
    )


def _disabled() -> Iterator[tuple[object, ...]]:
    """In-commit timestamps are enabled in version 1 and disabled in version 3; the file times are a day later."""
    off = Timeline(at=(0, 1, 2, 3, 4), file=(1440, 1441, 1442, 1443, 1444), ict_from=1, ict_until=3)
    reference = {"basis": REFERENCE}
    yield (
        "by-file-times",
        "After in-commit timestamps were turned off, file times are used for all versions",
        off,
        [Rows(ids(2), at_ms=minute(1442)), Rows(ids(1), at_ms=minute(1441.5)), Rows(ids(4), at_ms=minute(1444))],
    )
    yield (
        "own-timestamp-before",
        "After in-commit timestamps were turned off, an earlier in-commit timestamp is before all file times",
        off,
        [Refused(Rows(ids(2), at_ms=minute(2)))],
        reference,
    )
    yield (
        "history",
        "The history shows file times after in-commit timestamps were turned off",
        off,
        [History({version: minute(1440 + version) for version in (0, 3, 4)})],
    )
    yield (
        "before-was-on",
        "A version from the time when in-commit timestamps were on is read by its number",
        off,
        [Rows(ids(2), version=2)],
    )
    stale = Timeline(
        at=(0, 1, 2, 3, 4),
        file=(1440, 1441, 1442, 1443, 1444),
        ict_from=1,
        ict_until=3,
        properties={PAIR_VERSION: "1", PAIR_TIMESTAMP: str(minute(1))},
    )
    yield (
        "stale-pair",
        "Enablement properties left behind when in-commit timestamps were turned off are ignored",
        stale,
        [Rows(ids(2), at_ms=minute(1442)), Rows(ids(0), at_ms=minute(1440))],
    )
    again = _again
    yield (
        "again-new-era",
        "Turned on again: in-commit timestamps are used from the new enablement on",
        again,
        [Rows(ids(5), at_ms=minute(50)), Rows(ids(6), at_ms=minute(60)), Rows(ids(5), at_ms=minute(60) - 1)],
    )
    yield (
        "again-between",
        "Turned on again: file times are used before the new enablement",
        again,
        [Rows(ids(4), at_ms=minute(50) - 1), Rows(ids(3), at_ms=minute(43.5))],
    )
    yield (
        "again-old-era",
        "Turned on again: versions of the first period are found by file times",
        again,
        [Rows(ids(1), at_ms=minute(41)), Rows(ids(2), at_ms=minute(42.5))],
    )
    yield (
        "again-before",
        "Turned on again: timestamps of the first period are before all file times",
        again,
        [Refused(Rows(ids(1), at_ms=minute(1)))],
        reference,
    )
    yield (
        "again-history",
        "Turned on again: the history shows file times before the new enablement",
        again,
        [History({0: minute(40), 4: minute(44), 5: minute(50), 6: minute(60)})],
    )


def _again(table: TableBuilder) -> None:
    """In-commit timestamps are on in versions 1 and 2, off in 3 and 4, and on again from version 5."""
    Timeline(at=(0, 1, 2, 3, 4), file=(40, 41, 42, 43, 44), ict_from=1, ict_until=3)(table)
    pair = {ICT_PROPERTY: "true", PAIR_VERSION: "5", PAIR_TIMESTAMP: str(minute(50))}
    table.commit(table.metadata(configuration=pair), table.add([{"id": 5}]), at_ms=minute(50), ict=True)
    table.commit(table.add([{"id": 6}]), at_ms=minute(60), ict=True)


def _pairs() -> Iterator[tuple[object, ...]]:
    """Enablement properties that are invalid or contradict the log. Invalid enablement properties do not affect reading
    rows."""
    stamp = str(ENABLED)
    wrong: list[tuple[str, str, tuple[str | None, str | None], str]] = [
        ("no-timestamp", "has a version but no timestamp", ("3", None), "ict-half-enablement-pair"),
        ("no-version", "has a timestamp but no version", (None, stamp), "ict-half-enablement-pair"),
        ("not-a-version", "has a version that is not a number", ("three", stamp), "ict-enablement-invalid"),
        ("not-a-timestamp", "has a timestamp that is not a number", ("3", "yesterday"), "ict-enablement-invalid"),
        (
            "after-latest",
            "has a version after the latest, as in some clones",
            ("9", stamp),
            "ict-enablement-after-latest",
        ),
    ]
    for name, about, pair, rule in wrong:
        damaged = LATE.but(pair=pair)
        yield (
            f"{name}-rows",
            f"An enablement pair that {about}: rows are read",
            damaged,
            [Rows(ids(5)), Rows(ids(2), version=2)],
            {"rule": rule},
        )
        refused = [Refused(Rows(ids(4), at_ms=minute(11)))]
        if name != "after-latest":  # the reference implementation also resolves times before the enablement timestamp
            refused.append(Refused(Rows(ids(1), at_ms=minute(1))))
        yield (
            f"{name}-time",
            f"An enablement pair that {about}: time travel by timestamp is refused",
            damaged,
            refused,
            {"basis": REFERENCE, "rule": rule},
        )
    clone = FROM_START.but(at=(0, 1), file=(9000, 9001), damage={0: {"ict": minute(500)}, 1: {"ict": minute(501)}})

    def cloned(table: TableBuilder) -> None:
        pair = {PAIR_VERSION: "2", PAIR_TIMESTAMP: str(minute(5))}
        clone.but(properties=pair)(table)

    yield (
        "clone",
        "A clone with the enablement pair of its source: rows are read, timestamps are refused",
        cloned,
        [Rows(ids(1)), Refused(Rows(ids(0), at_ms=minute(500)))],
        {"basis": REFERENCE, "rule": "ict-enablement-after-latest"},
    )
    kept = LATE.but(at=(0, 1, 2, 10, 11, 12), damage={4: {"info": {"operation": "SET TBLPROPERTIES"}}})

    def carried(table: TableBuilder) -> None:
        kept(table)
        table.commit(
            table.metadata(configuration={**table.configuration, "delta.appendOnly": "true"}),
            table.add([{"id": 6}]),
            at_ms=minute(13),
            ict=True,
        )

    yield (
        "carried-on",
        "A later metaData action keeps the enablement pair",
        carried,
        [Rows(ids(3), at_ms=ENABLED), Rows(ids(2), at_ms=ENABLED - 1), Rows(ids(6), at_ms=minute(13))],
    )
    yield (
        "before-the-log",
        "The enablement version was deleted by log clean-up: in-commit timestamps are used for the remaining versions",
        LATE.but(checkpoints=(4,), dropped=(0, 1, 2, 3)),
        [Rows(ids(4), at_ms=minute(11)), Rows(ids(5), at_ms=minute(12))],
    )


def _cleaned() -> Iterator[tuple[object, ...]]:
    """Logs whose first commits were deleted after a checkpoint."""
    short = _COPIED.but(checkpoints=(2,), dropped=(0, 1))
    reference = {"basis": REFERENCE}
    yield "exact-checkpoint", "The timestamp of the commit at the checkpoint", short, [Rows(ids(2), at_ms=minute(2))]
    yield (
        "after-checkpoint",
        "A time after the checkpoint",
        short,
        [Rows(ids(3), at_ms=minute(3.5)), Rows(ids(4), at_ms=minute(4))],
    )
    yield (
        "before-checkpoint",
        "A time before the first remaining commit is refused",
        short,
        [Refused(Rows(ids(1), at_ms=minute(1.5)))],
        reference,
    )
    yield (
        "ms-before",
        "A millisecond before the first remaining commit is refused",
        short,
        [Refused(Rows(ids(1), at_ms=minute(2) - 1))],
        reference,
    )
    yield (
        "history",
        "The history of the remaining commits",
        short,
        [History({2: minute(2), 3: minute(3), 4: minute(4)})],
    )
    yield (
        "gone-by-number",
        "A version number deleted by log clean-up is refused",
        short,
        [Refused(Rows(ids(1), version=1))],
        {"rule": "version-unreachable"},
    )
    late = LATE.but(checkpoints=(3,), dropped=(0, 1, 2))
    yield (
        "late-first-is-enablement",
        "The remaining log begins with the enabling commit",
        late,
        [Rows(ids(3), at_ms=ENABLED), Rows(ids(4), at_ms=minute(11))],
    )
    yield (
        "late-before",
        "No commit before the enablement remains",
        late,
        [Refused(Rows(ids(2), at_ms=ENABLED - 1))],
        reference,
    )
    gone = LATE.but(checkpoints=(4,), dropped=(0, 1, 2, 3))
    yield (
        "late-enablement-gone",
        "The enabling commit is deleted",
        gone,
        [Rows(ids(4), at_ms=minute(11)), Rows(ids(5), at_ms=minute(12)), Refused(Rows(ids(3), at_ms=ENABLED))],
        reference,
    )
    some = LATE.but(checkpoints=(1,), dropped=(0,))
    yield (
        "late-some-left",
        "Some commits before the enablement remain",
        some,
        [Rows(ids(1), at_ms=minute(1)), Rows(ids(2), at_ms=ENABLED - 1), Rows(ids(3), at_ms=ENABLED)],
    )
    early = _COPIED.but(checkpoints=(1,), dropped=(0,), properties=CDF)
    yield (
        "changes",
        "A change data feed begins with the first remaining commit",
        early,
        [
            Changes(
                [{"id": v, "_change_type": "insert", "_commit_version": v} for v in (2, 3)],
                from_ms=minute(2),
                to_ms=minute(3),
            )
        ],
    )
    own = _COPIED.but(checkpoints=(2,), dropped=(0, 1, 2))
    yield (
        "commit-of-checkpoint-gone",
        "The commit at the checkpoint is deleted, so the time of that version is unknown",
        own,
        [Rows(ids(2), version=2), Rows(ids(3), at_ms=minute(3)), Refused(Rows(ids(2), at_ms=minute(2)))],
        {"basis": REFERENCE, "section": "metadata-cleanup"},
    )
    two = _COPIED.but(checkpoints=(1, 3), dropped=(0,))
    yield (
        "two-checkpoints",
        "Times between two checkpoints",
        two,
        [Rows(ids(1), at_ms=minute(1)), Rows(ids(2), at_ms=minute(2.5)), Rows(ids(3), at_ms=minute(3))],
    )
    yield (
        "checkpoint-kept-commits",
        "A checkpoint does not affect times",
        _COPIED.but(checkpoints=(3,)),
        [Rows(ids(version), at_ms=minute(version)) for version in range(5)],
    )


def _damaged() -> Iterator[tuple[object, ...]]:
    """Commits that violate writer requirements. Rows do not depend on commitInfo; a missing timestamp is not
    invented."""
    kinds: list[tuple[str, str, dict[str, object], str]] = [
        ("no-commit-info", "has no commitInfo", {"info": "absent"}, "commit-info-missing"),
        ("no-ict", "has no inCommitTimestamp", {"ict": False}, "ict-missing"),
        ("text", "has a string as timestamp", {"ict": "2025-01-15T12:02:00Z"}, "ict-invalid"),
        ("null", "has null as timestamp", {"ict": None}, "ict-missing"),
    ]
    for name, about, options, rule in kinds:
        for where, version in (("middle", 2), ("latest", 4)):
            damaged = _COPIED.but(damage={version: options})
            yield (
                f"{name}-{where}-rows",
                f"The {where} commit {about}: rows are read",
                damaged,
                [Rows(ids(4)), Rows(ids(version), version=version)],
                {"rule": rule},
            )
            yield (
                f"{name}-{where}-time",
                f"The {where} commit {about}: other timestamps are right or refused",
                damaged,
                [MayRefuse(Rows(ids(1), at_ms=minute(1))), MayRefuse(Rows(ids(3), at_ms=minute(3)))],
                {"rule": rule},
            )
            yield (
                f"{name}-{where}-history",
                f"The {where} commit {about}: no timestamp is invented for it",
                damaged,
                [MayRefuse(History({version: None, 1: minute(1)}))],
                {"rule": rule, "basis": REFERENCE},
            )
    last = _COPIED.but(damage={2: {"info": "last"}})
    yield (
        "commit-info-last",
        "commitInfo is the last action of a commit: rows are read, timestamps are right or refused",
        last,
        [Rows(ids(4)), MayRefuse(Rows(ids(2), at_ms=minute(2))), MayRefuse(Rows(ids(2), at_ms=minute(2.5)))],
        {"rule": "commit-info-not-first"},
    )
    every = _COPIED.but(damage={version: {"info": "last"} for version in range(5)})
    yield (
        "commit-info-always-last",
        "commitInfo is the last action of every commit",
        every,
        [Rows(ids(4)), MayRefuse(VersionAt(minute(3), 3))],
        {"rule": "commit-info-not-first"},
    )
    equal = _COPIED.but(damage={3: {"ict": minute(2)}})
    yield (
        "equal",
        "Two commits have the same timestamp: rows are read by version",
        equal,
        [Rows(ids(4)), Rows(ids(2), version=2), Rows(ids(3), version=3)],
        {"rule": "ict-not-increasing"},
    )
    back = _COPIED.but(damage={2: {"ict": minute(-5)}})
    yield (
        "back",
        "A timestamp is earlier than the previous one: rows are read by version",
        back,
        [Rows(ids(4)), Rows(ids(2), version=2), Rows(ids(4), at_ms=minute(4))],
        {"rule": "ict-not-increasing"},
    )
    info = _COPIED.but(damage={version: {"info": {"timestamp": minute(999)}} for version in range(5)})
    yield (
        "other-timestamp",
        "commitInfo.timestamp is a different time and is ignored",
        info,
        [Rows(ids(1), at_ms=minute(1)), Rows(ids(3), at_ms=minute(3.5))],
        {"section": "commit-provenance-information"},
    )
    unknown = _COPIED.but(damage={version: {"info": {"x": {"y": [1]}, "engineInfo": None}} for version in range(5)})
    yield (
        "unknown-fields",
        "commitInfo has unknown fields",
        unknown,
        [Rows(ids(1), at_ms=minute(1))],
        {"section": "commit-provenance-information"},
    )
