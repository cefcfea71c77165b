"""In-commit timestamps: the commits that an engine writes, at creation, at an enablement, and after them."""

from __future__ import annotations

from collections.abc import Iterator

from deltalog.conformance.builder import ICT_FEATURE, ICT_PROPERTY, PAIR_TIMESTAMP, PAIR_VERSION, TableBuilder
from deltalog.conformance.case import (
    ICT,
    REFERENCE,
    Begin,
    Case,
    Create,
    Log,
    MayRefuse,
    Put,
    Refused,
    Rows,
    Step,
    Write,
)
from deltalog.conformance.cases.common import CDF, FUTURE, ICT_SECTION, Timeline, each, ids, minute
from deltalog.conformance.cases.ict_reading import FROM_START, LATE

ON = {ICT_PROPERTY: "true"}
_OFF = Timeline(at=(0, 1, 2))
_GOOD = (Log("commit-info-first"), Log("one-commit-info"), Log("has-ict"), Log("checksum-has-ict"))
# The last timestamp is of the year 2100, as a clock that was wrong left it: to every writer its own clock goes back.
_AHEAD = FROM_START.but(at=(0, 1), damage={1: {"ict": FUTURE}})
_VERBS: dict[str, tuple[Step, str]] = {
    "append": (Write("append", rows=[{"id": 100}]), "An append"),
    "overwrite": (Write("overwrite", rows=[{"id": 100}]), "An overwrite"),
    "delete": (Write("delete", where="id = 1"), "A delete"),
    "set-properties": (
        Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"}),
        "A property",
    ),
    "restore": (Write("restore", version=0), "A restore"),
}


def cases() -> Iterator[Case]:
    yield from each("ict-create", ICT, ICT_SECTION, _creation())
    yield from each("ict-write", ICT, ICT_SECTION, _verbs())
    yield from each("ict-enable", ICT, ICT_SECTION, _enablement())
    yield from each("ict-disable", ICT, ICT_SECTION, _disabling())
    yield from each("ict-conflict", ICT, ICT_SECTION, _conflicts())


def _creation() -> Iterator[tuple[object, ...]]:
    create = Create({"id": "long"}, properties=ON)
    first = Write("append", rows=[{"id": 0}])
    yield (
        "commit-info-first",
        "Version 0 begins with commitInfo",
        None,
        [create, Log("commit-info-first", 0)],
        {"rule": "commit-info-not-first"},
    )
    yield "timestamp", "Version 0 has the time at which it was made", None, [create, Log("ict-is-the-clock", 0)]
    yield (
        "feature",
        "The feature is listed as a writer feature, and is in effect",
        None,
        [
            create,
            Log("supports-writer-feature", value=ICT_FEATURE),
            Log("lists-no-reader-feature", value=ICT_FEATURE),
            Log("ict-active", value=True),
        ],
    )
    yield (
        "no-pair",
        "A table that has them from version 0 has no enablement pair",
        None,
        [create, Log("no-pair")],
        {"basis": REFERENCE},
    )
    yield (
        "then-append",
        "The commits after creation have increasing timestamps",
        None,
        [
            create,
            first,
            Write("append", rows=[{"id": 1}]),
            *_GOOD,
            Log("ict-increases"),
            Log("latest-version", value=2),
        ],
    )
    yield "then-read", "A table with them is read back", None, [create, first, Rows(ids(0)), Log("rows", value=ids(0))]
    yield (
        "without",
        "A table without the property has no timestamps in its commits",
        None,
        [Create({"id": "long"}), first, Log("no-ict", 0), Log("no-ict"), Log("ict-active", value=False)],
    )
    yield (
        "partitioned",
        "A partitioned table with them",
        None,
        [
            Create({"id": "long", "day": "string"}, partition_by=("day",), properties=ON),
            Write("append", rows=[{"id": 0, "day": "a"}]),
            *_GOOD,
            Log("ict-increases"),
        ],
    )
    yield (
        "half-pair",
        "A table is not created with half of an enablement pair",
        None,
        [MayRefuse(Create({"id": "long"}, properties={**ON, PAIR_VERSION: "7"})), Log("no-pair")],
        {"basis": REFERENCE, "rule": "ict-half-enablement-pair"},
    )


def _verbs() -> Iterator[tuple[object, ...]]:
    """Every call that commits, on tables that have them from the start, late, and ahead of the clock."""
    for name, (verb, about) in _VERBS.items():
        start = FROM_START.but(at=(0, 1), checkpoints=())
        yield (
            f"{name}-info",
            f"{about} begins with commitInfo and has one timestamp",
            start,
            [verb, *_GOOD],
            {"rule": "commit-info-not-first"},
        )
        yield f"{name}-clock", f"{about} has the time at which it was made", start, [verb, Log("ict-is-the-clock")]
        yield (
            f"{name}-increases",
            f"{about} has a timestamp after the one before",
            start,
            [verb, Log("ict-increases")],
            {"rule": "ict-not-increasing"},
        )
        yield (
            f"{name}-clock-back",
            f"{about} after a commit of the year 2100 has its timestamp and a millisecond",
            _AHEAD,
            [verb, Log("ict-is", 2, FUTURE + 1)],
            {"rule": "ict-not-increasing"},
        )
        kept = [Log("pair-is", value=["3", str(minute(10))]), Log("ict-increases", value=3)]
        if name == "restore":
            continue
        yield (
            f"{name}-keeps-pair",
            f"{about} keeps the enablement pair",
            LATE,
            [verb, *kept],
            {"rule": "ict-enablement-timestamp-wrong"},
        )
    several = [Write("append", rows=[{"id": number}]) for number in range(5)]
    yield (
        "five-clock-back",
        "Five appends after a commit of the year 2100 have five timestamps",
        _AHEAD,
        [*several, Log("ict-increases"), *(Log("ict-is", 2 + n, FUTURE + 1 + n) for n in range(5))],
    )
    yield "five", "Five appends in a row have increasing timestamps", FROM_START, [*several, Log("ict-increases")]
    copied = FROM_START.but(file=[9000] * 5)
    yield (
        "copied",
        "An append to a copy, whose file times are newer than its commits",
        copied,
        [several[0], *_GOOD, Log("ict-increases"), Log("ict-is-the-clock")],
    )
    stray = FROM_START.but(damage={4: {"file_ms": FUTURE}})
    yield (
        "file-time-ahead",
        "A file time of the year 2100 does not reach the next timestamp",
        stray,
        [several[0], Log("ict-is-the-clock")],
    )
    yield (
        "after-checkpoint",
        "An append after a checkpoint, whose commit alone has the timestamp",
        FROM_START.but(at=(0, 1, 2), checkpoints=(2,), dropped=(0, 1), damage={2: {"ict": FUTURE}}),
        [several[0], Log("ict-is", 3, FUTURE + 1), Log("commit-info-first")],
    )
    yield (
        "checkpoint-then-append",
        "A checkpoint of the engine, then an append",
        _AHEAD,
        [Write("checkpoint"), several[0], Log("checkpoint-without-commit-info", value=1), Log("ict-is", 2, FUTURE + 1)],
    )
    yield (
        "changes",
        "A change data feed shows the timestamps that were written",
        FROM_START.but(properties=CDF),
        [several[0], Log("ict-increases"), Rows([*ids(4), {"id": 0}])],
    )
    yield (
        "feature-only",
        "The feature is listed and off: a commit needs no timestamp",
        _listed_only,
        [several[0], Log("ict-active", value=False), Log("rows", value=[{"id": 0}, {"id": 0}])],
    )
    property_only = Timeline(at=(0, 1), properties=ON)
    yield (
        "property-only",
        "The property is true and the feature is not listed: an append changes neither",
        property_only,
        [several[0], Log("ict-active", value=False), Log("no-pair")],
    )
    for damage, about in (({"info": "absent"}, "commitInfo"), ({"ict": False}, "timestamp")):
        broken = FROM_START.but(damage={4: damage})
        name = "missing-commit-info" if "info" in damage else "missing-ict"
        yield (
            name,
            f"After a commit without a {about}, a writer refuses, or continues above the ones before",
            broken,
            [MayRefuse(several[0]), Log("contiguous"), Log("ict-increases-where-present")],
            {"basis": REFERENCE, "rule": "ict-missing"},
        )


def _listed_only(table: TableBuilder) -> None:
    table.commit(table.protocol([ICT_FEATURE]), table.metadata(), table.add([{"id": 0}]))


def _enablement() -> Iterator[tuple[object, ...]]:
    enable = Write("set_properties", properties=ON)
    version = 3
    yield (
        "protocol",
        "Turning them on lists the feature",
        _OFF,
        [enable, Log("supports-writer-feature", value=ICT_FEATURE), Log("lists-no-reader-feature", value=ICT_FEATURE)],
    )
    yield "commit-info-first", "The enabling commit begins with commitInfo and has a timestamp", _OFF, [enable, *_GOOD]
    yield (
        "pair",
        "The enabling commit writes the pair: its version, and its own timestamp",
        _OFF,
        [enable, Log("pair", value=version)],
        {"rule": "ict-enablement-timestamp-wrong"},
    )
    yield "clock", "The enabling commit has the time at which it was made", _OFF, [enable, Log("ict-is-the-clock")]
    ahead = _OFF.but(damage={2: {"file_ms": FUTURE}})
    yield (
        "file-time-ahead",
        "The enabling commit is after the file time of the commit before, of the year 2100",
        ahead,
        [enable, Log("ict-after-file-time-before"), Log("pair", value=version)],
    )
    yield (
        "then-append",
        "The commits after the enabling one have increasing timestamps, and keep the pair",
        _OFF,
        [enable, Write("append", rows=[{"id": 9}]), Log("ict-increases", value=3), Log("pair", value=version)],
    )
    yield (
        "earlier-unchanged",
        "Earlier commits have no timestamp afterwards",
        _OFF,
        [enable, *(Log("no-ict", each_version) for each_version in range(3))],
    )
    yield (
        "then-travel",
        "Earlier versions are found by their file times afterwards",
        _OFF,
        [enable, Rows(ids(1), at_ms=minute(1)), Rows(ids(0), at_ms=minute(0.5))],
    )
    yield (
        "twice",
        "Turning them on again changes nothing about the pair",
        LATE,
        [MayRefuse(enable), Log("pair-is", value=["3", str(minute(10))])],
    )
    yield "at-version-1", "Turned on by version 1", Timeline(at=(0,)), [enable, Log("pair", value=1), *_GOOD]
    yield (
        "listed-before",
        "Turned on where the feature was listed before",
        _listed_only,
        [enable, Log("pair", value=1), Log("ict-active", value=True)],
    )
    yield "rows-stay", "Turning them on changes no row", _OFF, [enable, Rows(ids(2)), Log("rows", value=ids(2))]
    yield (
        "property-before",
        "Turned on where the property was true without the feature, or refused",
        Timeline(at=(0, 1), properties=ON),
        [MayRefuse(enable), Log("contiguous")],
        {"basis": REFERENCE},
    )
    for half, value in ((PAIR_VERSION, "1"), (PAIR_TIMESTAMP, str(minute(1)))):
        name = "version" if half == PAIR_VERSION else "timestamp"
        yield (
            f"half-pair-{name}",
            f"A caller cannot set the {name} of the pair alone",
            LATE,
            [
                MayRefuse(Write("set_properties", properties={half: value})),
                Log("pair-is", value=["3", str(minute(10))]),
            ],
            {"basis": REFERENCE, "rule": "ict-half-enablement-pair"},
        )


def _disabling() -> Iterator[tuple[object, ...]]:
    disable = Write("set_properties", properties={ICT_PROPERTY: "false"})
    again = Write("set_properties", properties=ON)
    append = Write("append", rows=[{"id": 9}])
    yield (
        "no-timestamp",
        "The disabling commit has no timestamp",
        LATE,
        [disable, Log("no-ict"), Log("ict-active", value=False)],
        {"basis": REFERENCE},
    )
    yield (
        "then-append",
        "Commits after it need none",
        LATE,
        [disable, append, Log("ict-active", value=False), Rows([*ids(5), {"id": 9}])],
    )
    yield (
        "no-pair",
        "The disabling commit removes the pair, so that no reader takes it for a new one",
        LATE,
        [disable, Log("no-pair")],
        {"basis": REFERENCE, "rule": "ict-stale-enablement-pair"},
    )
    yield (
        "again-pair",
        "Turned on again: the pair is that of the new enablement",
        LATE,
        [disable, again, Log("pair", value=7)],
        {"rule": "ict-enablement-timestamp-wrong"},
    )
    yield (
        "again-info",
        "Turned on again: the commit has a timestamp after the file time before",
        LATE,
        [disable, again, *_GOOD, Log("ict-after-file-time-before")],
    )
    yield (
        "again-from-start",
        "Turned off and on again on a table that had them from version 0",
        FROM_START,
        [
            disable,
            again,
            Log("pair", value=6),
            Log("ict-after-file-time-before"),
            append,
            Log("ict-increases", value=6),
        ],
    )
    yield (
        "unset",
        "Removing the property turns them off",
        LATE,
        [Write("set_properties", properties={ICT_PROPERTY: None}), Log("no-ict"), Log("ict-active", value=False)],
    )
    yield (
        "overwrite-keeps",
        "Overwriting all rows leaves them on",
        LATE,
        [Write("overwrite", rows=[{"id": 9}]), Log("ict-active", value=True), Log("ict-increases", value=3)],
    )
    yield (
        "restore-keeps",
        "Restoring a version from before the enablement leaves a log that agrees with itself",
        LATE,
        [Write("restore", version=1), Rows(ids(1)), Log("ict-agrees")],
    )


def _conflicts() -> Iterator[tuple[object, ...]]:
    """Another writer takes the version of a transaction that is open."""
    append = Write("append", rows=[{"id": 100}], begun=True)

    def raced(build: Timeline, *winners: tuple[dict[str, object], str | None]) -> object:
        """The table, and the commits of other writers that follow it."""

        def made(table: TableBuilder) -> None:
            build(table)
            for number, (options, change) in enumerate(winners, start=1):
                actions = [table.add([{"id": 50 + number}])]
                at_ms = minute(60 + number)
                if change == "enable":
                    pair = {
                        PAIR_VERSION: str(table.next_version),
                        PAIR_TIMESTAMP: str(at_ms if options["ict"] is True else options["ict"]),
                    }
                    actions = [table.metadata(configuration={**ON, **pair}), table.protocol([ICT_FEATURE])]
                elif change == "property":
                    actions = [
                        table.metadata(
                            configuration={**table.configuration, "delta.logRetentionDuration": "interval 9 days"}
                        )
                    ]
                table.commit(*actions, **{"at_ms": at_ms, **options, "later": f"winner-{number}"})  # type: ignore[arg-type]

        return made

    won = Put("winner-1")
    one = raced(FROM_START, ({"ict": FUTURE}, None))
    yield (
        "above-winner",
        "An append that lost to a commit of the year 2100 has that timestamp and a millisecond",
        one,
        [Begin(), won, append, Log("ict-is", 6, FUTURE + 1), Log("commit-info-first"), Log("contiguous")],
        {"rule": "ict-not-increasing"},
    )
    yield (
        "rows-of-both",
        "An append that lost a race is added to the winner's rows",
        raced(FROM_START, ({"ict": True}, None)),
        [Begin(), won, append, Rows([*ids(4), {"id": 51}, {"id": 100}]), Log("ict-increases")],
    )
    three = raced(FROM_START, ({"ict": True}, None), ({"ict": FUTURE}, None), ({"ict": FUTURE + 5}, None))
    yield (
        "above-three",
        "An append that lost to three commits is above the last of them",
        three,
        [Begin(), won, Put("winner-2"), Put("winner-3"), append, Log("ict-is", 8, FUTURE + 6), Log("ict-increases")],
    )
    enabled = raced(_OFF, ({"ict": True}, "enable"))
    yield (
        "winner-enables",
        "An append that was begun before they were turned on has one, or is refused",
        enabled,
        [
            Begin(),
            won,
            MayRefuse(append),
            Log("ict-increases", value=3),
            Log("commit-info-first"),
            Log("pair", value=3),
        ],
        {"basis": REFERENCE},
    )
    ahead = raced(_OFF, ({"ict": FUTURE}, "enable"))
    yield (
        "winner-enables-ahead",
        "The same, above an enablement of the year 2100",
        ahead,
        [Begin(), won, MayRefuse(append), Log("ict-increases", value=3)],
        {"basis": REFERENCE},
    )
    plain = raced(_OFF, ({}, None))
    yield (
        "enabling-loses",
        "An enablement that lost a race writes the pair of the version that it became, or is refused",
        plain,
        [
            Begin(),
            won,
            MayRefuse(Write("set_properties", properties=ON, begun=True)),
            Log("pair-agrees"),
            Log("contiguous"),
        ],
        {"rule": "ict-enablement-timestamp-wrong"},
    )
    twice = raced(_OFF, ({}, None), ({}, None))
    yield (
        "enabling-loses-twice",
        "The same, after two commits",
        twice,
        [
            Begin(),
            won,
            Put("winner-2"),
            MayRefuse(Write("set_properties", properties=ON, begun=True)),
            Log("pair-agrees"),
        ],
    )
    yield (
        "both-enable",
        "Two writers turn them on: the second is refused",
        enabled,
        [Begin(), won, Refused(Write("set_properties", properties=ON, begun=True)), Log("pair", value=3)],
        {"basis": REFERENCE},
    )
    other = raced(LATE, ({"ict": True}, None))
    yield (
        "property-keeps-pair",
        "A property that lost a race keeps the pair as it was",
        other,
        [
            Begin(),
            won,
            MayRefuse(
                Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"}, begun=True)
            ),
            Log("pair-is", value=["3", str(minute(10))]),
            Log("ict-increases", value=3),
        ],
    )
    late = raced(LATE, ({"ict": FUTURE}, None))
    yield (
        "late-above-winner",
        "The same on a table that was enabled late",
        late,
        [Begin(), won, append, Log("ict-is", 7, FUTURE + 1), Log("pair-is", value=["3", str(minute(10))])],
    )
    delete = Write("delete", where="id = 1", begun=True)
    yield (
        "delete-above-winner",
        "A delete that lost to an append is above it, or is refused",
        one,
        [Begin(), won, MayRefuse(delete), Log("ict-increases"), Log("commit-info-first")],
    )
    nothing = raced(FROM_START, ({"info": "absent"}, None))
    yield (
        "winner-without-info",
        "A winner without commitInfo: refused, or committed above what came before",
        nothing,
        [Begin(), won, MayRefuse(append), Log("ict-increases-where-present"), Log("contiguous")],
        {"basis": REFERENCE, "rule": "commit-info-missing"},
    )
