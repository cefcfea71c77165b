"""Cases about writing in-commit timestamps: on creation, on enablement, and afterwards."""

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
from deltalog.conformance.cases.common import CDF, FUTURE, ICT_SECTION, Timeline, case_rows, ids, minute
from deltalog.conformance.cases.ict_reading import AHEAD, FROM_START, LATE, OFF

ON = {ICT_PROPERTY: "true"}
_GOOD = (Log("commit-info-first"), Log("one-commit-info"), Log("has-ict"), Log("checksum-has-ict"))
_VERBS: dict[str, tuple[Step, str]] = {
    "append": (Write("append", rows=[{"id": 100}]), "An append"),
    "overwrite": (Write("overwrite", rows=[{"id": 100}]), "An overwrite"),
    "delete": (Write("delete", where="id = 1"), "A delete"),
    "set-properties": (
        Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"}),
        "A property change",
    ),
    "restore": (Write("restore", version=0), "A restore"),
}


def cases() -> Iterator[Case]:
    yield from case_rows("ict-create", ICT, ICT_SECTION, _creation())
    yield from case_rows("ict-write", ICT, ICT_SECTION, _verbs())
    yield from case_rows("ict-enable", ICT, ICT_SECTION, _enablement())
    yield from case_rows("ict-disable", ICT, ICT_SECTION, _disabling())
    yield from case_rows("ict-conflict", ICT, ICT_SECTION, _conflicts())


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
    yield (
        "timestamp",
        "Version 0 has the time of its creation as its timestamp",
        None,
        [create, Log("ict-is-the-clock", 0)],
    )
    yield (
        "feature",
        "The feature is listed as a writer feature and enabled",
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
        "A table with in-commit timestamps since version 0 has no enablement pair",
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
    yield (
        "then-read",
        "A table with in-commit timestamps is read back",
        None,
        [create, first, Rows(ids(0)), Log("rows", value=ids(0))],
    )
    yield (
        "without",
        "A table without the property has no timestamps in its commits",
        None,
        [Create({"id": "long"}), first, Log("no-ict", 0), Log("no-ict"), Log("ict-active", value=False)],
    )
    yield (
        "partitioned",
        "A partitioned table with in-commit timestamps",
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
        "Creating a table with half of an enablement pair is refused",
        None,
        [MayRefuse(Create({"id": "long"}, properties={**ON, PAIR_VERSION: "7"})), Log("no-pair")],
        {"basis": REFERENCE, "rule": "ict-half-enablement-pair"},
    )


def _verbs() -> Iterator[tuple[object, ...]]:
    """All calls that commit, on tables whose in-commit timestamps begin at version 0, begin later, or are ahead of the
    clock."""
    for name, (verb, about) in _VERBS.items():
        start = FROM_START.but(at=(0, 1), checkpoints=())
        yield (
            f"{name}-info",
            f"{about} begins with commitInfo and has one timestamp",
            start,
            [verb, *_GOOD],
            {"rule": "commit-info-not-first"},
        )
        yield (
            f"{name}-clock",
            f"{about} has the time of its commit as its timestamp",
            start,
            [verb, Log("ict-is-the-clock")],
        )
        yield (
            f"{name}-increases",
            f"{about} has a later timestamp than the previous commit",
            start,
            [verb, Log("ict-increases")],
            {"rule": "ict-not-increasing"},
        )
        yield (
            f"{name}-clock-back",
            f"{about} after a commit of the year 2100 has that commit's timestamp plus a millisecond",
            AHEAD,
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
        "Five appends after a commit of the year 2100 have increasing timestamps",
        AHEAD,
        [*several, Log("ict-increases"), *(Log("ict-is", 2 + n, FUTURE + 1 + n) for n in range(5))],
    )
    yield "five", "Five appends in a row have increasing timestamps", FROM_START, [*several, Log("ict-increases")]
    copied = FROM_START.but(file=[9000] * 5)
    yield (
        "copied",
        "An append to a copy, whose file times are later than its in-commit timestamps",
        copied,
        [several[0], *_GOOD, Log("ict-increases"), Log("ict-is-the-clock")],
    )
    stray = FROM_START.but(damage={4: {"file_ms": FUTURE}})
    yield (
        "file-time-ahead",
        "A file time in the year 2100 does not affect the next timestamp",
        stray,
        [several[0], Log("ict-is-the-clock")],
    )
    yield (
        "after-checkpoint",
        "An append after a checkpoint, where only the commit has the timestamp",
        FROM_START.but(at=(0, 1, 2), checkpoints=(2,), dropped=(0, 1), damage={2: {"ict": FUTURE}}),
        [several[0], Log("ict-is", 3, FUTURE + 1), Log("commit-info-first")],
    )
    yield (
        "checkpoint-then-append",
        "An append after a checkpoint written by the engine",
        AHEAD,
        [Write("checkpoint"), several[0], Log("checkpoint-without-commit-info", value=1), Log("ict-is", 2, FUTURE + 1)],
    )
    yield (
        "changes",
        "A change data feed shows the written in-commit timestamps",
        FROM_START.but(properties=CDF),
        [several[0], Log("ict-increases"), Rows([*ids(4), {"id": 0}])],
    )
    yield (
        "feature-only",
        "The feature is listed but disabled: a commit needs no timestamp",
        _listed_only,
        [several[0], Log("ict-active", value=False), Log("rows", value=[{"id": 0}, {"id": 0}])],
    )
    property_only = Timeline(at=(0, 1), properties=ON)
    yield (
        "property-only",
        "The property is true but the feature is not listed: an append changes neither",
        property_only,
        [several[0], Log("ict-active", value=False), Log("no-pair")],
    )
    for damage, about in (({"info": "absent"}, "commitInfo"), ({"ict": False}, "timestamp")):
        broken = FROM_START.but(damage={4: damage})
        name = "missing-commit-info" if "info" in damage else "missing-ict"
        yield (
            name,
            f"After a commit without a {about}, a writer refuses, or its timestamp is after the earlier ones",
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
        "Enabling in-commit timestamps lists the feature",
        OFF,
        [enable, Log("supports-writer-feature", value=ICT_FEATURE), Log("lists-no-reader-feature", value=ICT_FEATURE)],
    )
    yield "commit-info-first", "The enabling commit begins with commitInfo and has a timestamp", OFF, [enable, *_GOOD]
    yield (
        "pair",
        "The enabling commit sets the enablement properties to its own version and timestamp",
        OFF,
        [enable, Log("pair", value=version)],
        {"rule": "ict-enablement-timestamp-wrong"},
    )
    yield (
        "clock",
        "The in-commit timestamp of the enabling commit is the time of that commit",
        OFF,
        [enable, Log("ict-is-the-clock")],
    )
    ahead = OFF.but(damage={2: {"file_ms": FUTURE}})
    yield (
        "file-time-ahead",
        "The timestamp of the enabling commit is after the previous file time, which is in the year 2100",
        ahead,
        [enable, Log("ict-after-file-time-before"), Log("pair", value=version)],
    )
    yield (
        "then-append",
        "The commits after the enabling one have increasing timestamps and keep the enablement pair",
        OFF,
        [enable, Write("append", rows=[{"id": 9}]), Log("ict-increases", value=3), Log("pair", value=version)],
    )
    yield (
        "earlier-unchanged",
        "The enabling commit adds no timestamps to earlier commits",
        OFF,
        [enable, *(Log("no-ict", each_version) for each_version in range(3))],
    )
    yield (
        "then-travel",
        "Versions before the enablement are found by their file times",
        OFF,
        [enable, Rows(ids(1), at_ms=minute(1)), Rows(ids(0), at_ms=minute(0.5))],
    )
    yield (
        "twice",
        "Enabling in-commit timestamps twice does not change the enablement pair",
        LATE,
        [MayRefuse(enable), Log("pair-is", value=["3", str(minute(10))])],
    )
    yield (
        "at-version-1",
        "Version 1 enables in-commit timestamps",
        Timeline(at=(0,)),
        [enable, Log("pair", value=1), *_GOOD],
    )
    yield (
        "listed-before",
        "Enabled on a table that already lists the feature",
        _listed_only,
        [enable, Log("pair", value=1), Log("ict-active", value=True)],
    )
    yield (
        "rows-stay",
        "Enabling in-commit timestamps changes no row",
        OFF,
        [enable, Rows(ids(2)), Log("rows", value=ids(2))],
    )
    yield (
        "property-before",
        "Enabling on a table that has the property but not the feature succeeds, or is refused",
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
        "Commits after the one that disables in-commit timestamps need no in-commit timestamp",
        LATE,
        [disable, append, Log("ict-active", value=False), Rows([*ids(5), {"id": 9}])],
    )
    yield (
        "no-pair",
        "The disabling commit removes the pair, so that it cannot be mistaken for the pair of a later enablement",
        LATE,
        [disable, Log("no-pair")],
        {"basis": REFERENCE, "rule": "ict-stale-enablement-pair"},
    )
    yield (
        "again-pair",
        "Turned on again: the pair describes the new enablement",
        LATE,
        [disable, again, Log("pair", value=7)],
        {"rule": "ict-enablement-timestamp-wrong"},
    )
    yield (
        "again-info",
        "Turned on again: the timestamp of the commit is after the previous file time",
        LATE,
        [disable, again, *_GOOD, Log("ict-after-file-time-before")],
    )
    yield (
        "again-from-start",
        "Turned off and on again on a table with in-commit timestamps since version 0",
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
        "Removing the property disables in-commit timestamps",
        LATE,
        [Write("set_properties", properties={ICT_PROPERTY: None}), Log("no-ict"), Log("ict-active", value=False)],
    )
    yield (
        "overwrite-keeps",
        "Overwriting all rows keeps in-commit timestamps enabled",
        LATE,
        [Write("overwrite", rows=[{"id": 9}]), Log("ict-active", value=True), Log("ict-increases", value=3)],
    )
    yield (
        "restore-keeps",
        "Restoring a version from before the enablement leaves a consistent log",
        LATE,
        [Write("restore", version=1), Rows(ids(1)), Log("ict-agrees")],
    )


def _conflicts() -> Iterator[tuple[object, ...]]:
    """Another writer commits while a transaction is open."""
    append = Write("append", rows=[{"id": 100}], begun=True)

    def raced(build: Timeline, *winners: tuple[dict[str, object], str | None]) -> object:
        """A builder that creates the table, and then the commits of other writers."""

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
        "An append that lost to a commit of the year 2100 has that commit's timestamp plus a millisecond",
        one,
        [Begin(), won, append, Log("ict-is", 6, FUTURE + 1), Log("commit-info-first"), Log("contiguous")],
        {"rule": "ict-not-increasing"},
    )
    yield (
        "rows-of-both",
        "An append that lost a race keeps the winner's rows",
        raced(FROM_START, ({"ict": True}, None)),
        [Begin(), won, append, Rows([*ids(4), {"id": 51}, {"id": 100}]), Log("ict-increases")],
    )
    three = raced(FROM_START, ({"ict": True}, None), ({"ict": FUTURE}, None), ({"ict": FUTURE + 5}, None))
    yield (
        "above-three",
        "An append that lost to three commits has a later timestamp than all of them",
        three,
        [Begin(), won, Put("winner-2"), Put("winner-3"), append, Log("ict-is", 8, FUTURE + 6), Log("ict-increases")],
    )
    enabled = raced(OFF, ({"ict": True}, "enable"))
    yield (
        "winner-enables",
        "An append begun before the enablement has a timestamp, or is refused",
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
    ahead = raced(OFF, ({"ict": FUTURE}, "enable"))
    yield (
        "winner-enables-ahead",
        "An append that lost to an enablement of the year 2100 has a later timestamp than that commit, or is refused",
        ahead,
        [Begin(), won, MayRefuse(append), Log("ict-increases", value=3)],
        {"basis": REFERENCE},
    )
    plain = raced(OFF, ({}, None))
    yield (
        "enabling-loses",
        "An enablement that lost a race writes the version of its own commit, or is refused",
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
    twice = raced(OFF, ({}, None), ({}, None))
    yield (
        "enabling-loses-twice",
        "An enablement that lost to two commits writes the version of its own commit, or is refused",
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
        "Two writers enable in-commit timestamps: the second is refused",
        enabled,
        [Begin(), won, Refused(Write("set_properties", properties=ON, begun=True)), Log("pair", value=3)],
        {"basis": REFERENCE},
    )
    other = raced(LATE, ({"ict": True}, None))
    yield (
        "property-keeps-pair",
        "A property change that lost a race keeps the enablement pair",
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
        "An append that lost to a commit of the year 2100 keeps the enablement pair that names version 3",
        late,
        [Begin(), won, append, Log("ict-is", 7, FUTURE + 1), Log("pair-is", value=["3", str(minute(10))])],
    )
    delete = Write("delete", where="id = 1", begun=True)
    yield (
        "delete-above-winner",
        "A delete that lost to an append has a later timestamp, or is refused",
        one,
        [Begin(), won, MayRefuse(delete), Log("ict-increases"), Log("commit-info-first")],
    )
    nothing = raced(FROM_START, ({"info": "absent"}, None))
    yield (
        "winner-without-info",
        "The winner has no commitInfo: refused, or committed with a timestamp after the earlier ones",
        nothing,
        [Begin(), won, MayRefuse(append), Log("ict-increases-where-present"), Log("contiguous")],
        {"basis": REFERENCE, "rule": "commit-info-missing"},
    )
