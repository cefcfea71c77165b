"""Cases about commits that turn in-commit timestamps on or off, restore or clone a table, or follow a commit with a
timestamp far ahead, and about such commits of two writers at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltalog.conformance.builder import ICT_FEATURE, ICT_PROPERTY, PAIR_TIMESTAMP, PAIR_VERSION, TableBuilder
from deltalog.conformance.case import (
    ICT,
    REFERENCE,
    Begin,
    Case,
    Clone,
    Create,
    History,
    Log,
    MayRefuse,
    Put,
    Refused,
    Rows,
    Step,
    VersionAt,
    Write,
)
from deltalog.conformance.cases.common import FUTURE, ICT_SECTION, Timeline, case_rows, ids, minute
from deltalog.conformance.cases.ict_instants import LARGEST_OF_DOUBLES
from deltalog.conformance.cases.ict_reading import AHEAD, ENABLED, FROM_START, LATE, OFF

ON = {ICT_PROPERTY: "true"}
_KEEP = {"delta.enableExpiredLogCleanup": "false"}
# On in versions 1 and 2, off from version 3.
_ENDED = Timeline(at=(0, 1, 2, 3, 4), file=(40, 41, 42, 43, 44), ict_from=1, ict_until=3, properties=_KEEP)
_OTHER = {"delta.logRetentionDuration": "interval 9 days"}
_ENABLE = Write("set_properties", properties=ON)
_DISABLE = Write("set_properties", properties={ICT_PROPERTY: "false"})
_SET_OTHER = Write("set_properties", properties=_OTHER)
_APPEND = Write("append", rows=[{"id": 100}])
_VALID = Log("ict-requirements")
_KEPT = Log("pair-is", value=["3", str(ENABLED)])
_REFERENCE = {"basis": REFERENCE}


def cases() -> Iterator[Case]:
    yield from case_rows("ict-turn-on", ICT, ICT_SECTION, _turned_on())
    yield from case_rows("ict-turn-off", ICT, ICT_SECTION, _turned_off())
    yield from case_rows("ict-restore", ICT, ICT_SECTION, _restored())
    yield from case_rows("ict-cloned", ICT, ICT_SECTION, _cloned())
    yield from case_rows("ict-clock", ICT, ICT_SECTION, _clocks())
    yield from case_rows("ict-race", ICT, ICT_SECTION, _races())


# ------------------------------------------------------------------------------------------ on and off


def _turned_on() -> Iterator[tuple[object, ...]]:
    yield (
        "with-other-property",
        "One commit enables in-commit timestamps and sets another property",
        OFF,
        [
            Write("set_properties", properties={**ON, **_OTHER}),
            Log("pair", value=3),
            Log("property", value=_OTHER),
            _VALID,
        ],
    )
    yield (
        "after-clean-up",
        "Enabling on a log that begins with a checkpoint writes the version of the commit",
        OFF.but(checkpoints=(1,), dropped=(0,)),
        [_ENABLE, Log("pair", value=3), _VALID],
        {"rule": "ict-enablement-version-wrong"},
    )
    pair = {PAIR_VERSION: "7", PAIR_TIMESTAMP: "5"}
    yield (
        "with-own-pair",
        "A caller who enables in-commit timestamps cannot choose the pair",
        OFF,
        [MayRefuse(Write("set_properties", properties={**ON, **pair})), _VALID],
        {"rule": "ict-enablement-version-wrong"},
    )
    yield (
        "create-with-own-pair",
        "A caller who creates a table cannot set a pair",
        None,
        [MayRefuse(Create({"id": "long"}, properties={**ON, **pair})), Log("no-pair")],
        {"rule": "ict-enablement-after-latest"},
    )
    yield (
        "unset-pair",
        "A caller cannot remove the pair while earlier commits have no timestamps",
        LATE,
        [MayRefuse(Write("set_properties", properties={PAIR_VERSION: None, PAIR_TIMESTAMP: None})), _VALID],
        {"rule": "ict-enablement-missing"},
    )
    yield (
        "again-from-start",
        "Enabling again on a table with in-commit timestamps since version 0 adds no pair",
        FROM_START,
        [MayRefuse(_ENABLE), Log("no-pair"), _VALID],
        _REFERENCE,
    )
    yield (
        "property-from-start",
        "A property change on a table with in-commit timestamps since version 0 adds no pair",
        FROM_START,
        [_SET_OTHER, Log("no-pair"), _VALID],
        _REFERENCE,
    )
    stale = OFF.but(properties={PAIR_VERSION: "1", PAIR_TIMESTAMP: str(minute(1))})
    yield (
        "over-stale-pair",
        "Enabling on a table with a pair left behind by an earlier enablement replaces that pair",
        stale,
        [_ENABLE, Log("pair", value=3), _VALID],
        {"rule": "ict-stale-enablement-pair"},
    )
    ahead = OFF.but(damage={2: {"file_ms": FUTURE}})
    yield (
        "then-travel",
        "Enabling after a file time of 2100: that time yields the commit before, and a millisecond later the enabling",
        ahead,
        [_ENABLE, VersionAt(FUTURE, 2), VersionAt(FUTURE + 1, 3), VersionAt(minute(1), 1)],
        _REFERENCE,
    )


def _turned_off() -> Iterator[tuple[object, ...]]:
    yield (
        "checksum",
        "The version checksum of the disabling commit, if there is one, has no timestamp",
        LATE,
        [_DISABLE, Log("checksum-has-ict"), _APPEND, Log("checksum-has-ict")],
        {"section": "version-checksum-file-schema"},
    )
    yield (
        "then-property",
        "A property change after in-commit timestamps were turned off brings back neither timestamps nor the pair",
        LATE,
        [_DISABLE, _SET_OTHER, Log("no-ict"), Log("ict-active", value=False), Log("no-pair")],
        {"basis": REFERENCE, "rule": "ict-stale-enablement-pair"},
    )
    yield (
        "when-off",
        "Disabling on a table without in-commit timestamps writes no timestamp",
        OFF,
        [MayRefuse(_DISABLE), Log("no-ict"), Log("no-pair"), Log("ict-active", value=False)],
    )
    yield (
        "restarts-the-clock",
        "Turned off and on again after a commit of the year 2100: timestamps start again at the present time",
        AHEAD,
        [_DISABLE, _ENABLE, Log("ict-is-the-clock"), Log("pair", value=3), _VALID],
    )
    moved = LATE.but(file=(0, 1, 2, 20, 21, 22))
    yield (
        "then-travel",
        "After in-commit timestamps are turned off, file times are used for all versions",
        moved,
        [_DISABLE, Rows(ids(3), at_ms=minute(20)), Rows(ids(2), at_ms=minute(12)), History({4: minute(21)})],
    )
    yield (
        "unset-then-on",
        "The property is removed and set again: the pair names the new enabling commit",
        LATE,
        [Write("set_properties", properties={ICT_PROPERTY: None}), _ENABLE, Log("pair", value=7), _VALID],
        {"rule": "ict-enablement-version-wrong"},
    )


# ------------------------------------------------------------------------------------------ restores


def _again(table: TableBuilder) -> None:
    """In-commit timestamps are on in versions 1 and 2, off in 3 and 4, and on again from version 5."""
    _ENDED(table)
    pair = {**_KEEP, **ON, PAIR_VERSION: "5", PAIR_TIMESTAMP: str(minute(50))}
    table.commit(table.metadata(configuration=pair), table.add([{"id": 5}]), at_ms=minute(50), ict=True)
    table.commit(table.add([{"id": 6}]), at_ms=minute(60), ict=True)


def _restored() -> Iterator[tuple[object, ...]]:
    """The properties of the restored version must not become those of the table as they are. All commits have expired:
    without the property, an engine may delete them after the restore."""
    late = LATE.but(properties=_KEEP)
    agree = Log("ict-agrees")

    def restored(version: int) -> list[Step]:
        return [Write("restore", version=version), Log("rows", value=ids(version)), agree, _VALID]

    yield (
        "before-enablement",
        "Restoring a version from before the enablement, and an append, leave a consistent log",
        late,
        [*restored(1), _APPEND, agree, _VALID],
    )
    yield (
        "enabling-version",
        "Restoring the enabling version keeps in-commit timestamps and the pair",
        late,
        [*restored(3), Log("ict-active", value=True), _KEPT],
    )
    yield (
        "on-when-off",
        "Restoring a version with in-commit timestamps after they were turned off: no commit lacks its timestamp",
        _ENDED,
        [*restored(2), _APPEND, agree, _VALID],
        {"rule": "ict-enablement-version-wrong"},
    )
    yield (
        "first-period",
        "Turned on again: restoring a version of the first period does not bring back its pair",
        _again,
        [*restored(2), _APPEND, agree, _VALID],
        {"rule": "ict-enablement-version-wrong"},
    )
    yield (
        "period-off",
        "Turned on again: restoring a version between the two periods leaves a consistent log",
        _again,
        [*restored(4), _APPEND, agree, _VALID],
    )
    copied = FROM_START.but(file=[9000] * 5, properties=_KEEP)
    yield (
        "to-time",
        "Restoring the version at a time between two commits, in a copy",
        copied,
        [Write("restore_to_time", at_ms=minute(3) - 1), Log("rows", value=ids(2)), Log("ict-increases")],
    )
    yield (
        "to-enablement-time",
        "Restoring the version at the enablement",
        late,
        [Write("restore_to_time", at_ms=ENABLED), Log("rows", value=ids(3)), _VALID],
    )
    yield (
        "to-ms-before-enablement",
        "Restoring the version one millisecond before the enablement",
        late,
        [Write("restore_to_time", at_ms=ENABLED - 1), Log("rows", value=ids(2)), agree, _VALID],
    )
    yield (
        "to-time-after-latest",
        "Restoring the version at a time after the latest commit is refused",
        copied,
        [Refused(Write("restore_to_time", at_ms=minute(4) + 1)), Log("latest-version", value=4)],
        _REFERENCE,
    )


# ------------------------------------------------------------------------------------------ clones


def _cloned() -> Iterator[tuple[object, ...]]:
    """A clone has its own history, in which in-commit timestamps begin with version 0 or later."""
    own = [Log("no-pair"), Log("has-ict", 0), Log("ict-is-the-clock", 0), _VALID]
    off = [Log("no-pair"), Log("no-ict"), Log("ict-active", value=False)]
    yield (
        "shallow",
        "A shallow clone of a table that enabled in-commit timestamps late has no pair",
        LATE,
        [Clone(shallow=True), *own],
        {"rule": "ict-enablement-after-latest"},
    )
    yield (
        "deep",
        "A deep clone of a table that enabled in-commit timestamps late has no pair",
        LATE,
        [Clone(), *own, Log("rows", value=ids(5))],
        {"rule": "ict-enablement-after-latest"},
    )
    yield (
        "then-append",
        "An append to a shallow clone has a later timestamp than the clone, and adds no pair",
        FROM_START,
        [Clone(shallow=True), _APPEND, *own, Log("ict-increases"), Log("latest-version", value=1)],
    )
    yield (
        "of-version-before-enablement",
        "A shallow clone of a version from before the enablement has no in-commit timestamps",
        LATE,
        [Clone(shallow=True, version=1), *off],
        _REFERENCE,
    )
    yield (
        "of-table-ahead",
        "A shallow clone of a table whose latest commit is of the year 2100 has the time of its own creation",
        AHEAD,
        [Clone(shallow=True), *own],
    )
    stale = _ENDED.but(properties={PAIR_VERSION: "1", PAIR_TIMESTAMP: str(minute(1))})
    yield (
        "of-stale-pair",
        "A shallow clone of a table with a pair that was left behind has no pair",
        stale,
        [Clone(shallow=True), *off],
        {"basis": REFERENCE, "rule": "ict-stale-enablement-pair"},
    )
    yield (
        "then-enable",
        "In-commit timestamps are enabled in a shallow clone of a table that had them once",
        _ENDED,
        [Clone(shallow=True), _ENABLE, Log("pair", value=1), _VALID],
    )


# ------------------------------------------------------------------------------------------ clocks


def _clocks() -> Iterator[tuple[object, ...]]:
    """Commits after one that is far ahead of the clock."""
    largest = AHEAD.but(damage={1: {"ict": 2**63 - 1}})
    yield (
        "largest",
        "After the largest timestamp, a commit is refused: no later timestamp exists",
        largest,
        [MayRefuse(_APPEND), Log("ict-increases"), Log("contiguous")],
        {"rule": "ict-at-largest"},
    )
    large = AHEAD.but(damage={1: {"ict": LARGEST_OF_DOUBLES}})
    yield (
        "integers",
        "An append after a timestamp beyond which doubles do not represent all integers",
        large,
        [_APPEND, Log("ict-is", 2, LARGEST_OF_DOUBLES + 1), _APPEND, Log("ict-is", 3, LARGEST_OF_DOUBLES + 2)],
    )
    enabling = LATE.but(at=(0, 1, 2, 10), damage={3: {"ict": FUTURE}}, pair=("3", str(FUTURE)))
    yield (
        "after-enablement",
        "An append after an enabling commit of the year 2100",
        enabling,
        [_APPEND, Log("ict-is", 4, FUTURE + 1), _VALID],
    )
    yield (
        "checkpoints",
        "Appends with a checkpoint at every second version, after a commit of the year 2100",
        AHEAD.but(properties={"delta.checkpointInterval": "2"}),
        [*[_APPEND] * 4, *(Log("ict-is", 2 + n, FUTURE + 1 + n) for n in range(4))],
    )

    def v2(table: TableBuilder) -> None:
        configuration = {**ON, "delta.checkpointPolicy": "v2", "delta.enableExpiredLogCleanup": "false"}
        protocol = table.protocol(["v2Checkpoint", ICT_FEATURE], ["v2Checkpoint"])
        table.commit(protocol, table.metadata(configuration=configuration), table.add([{"id": 0}]), ict=True)
        table.commit(table.add([{"id": 1}]), ict=FUTURE)
        table.checkpoint(top_level="json", sidecar_rows=1)
        table.drop_commits(0)

    yield (
        "v2-checkpoint",
        "An append to a log that begins with a V2 checkpoint of a commit of the year 2100",
        v2,
        [_APPEND, Log("ict-is", 2, FUTURE + 1), Log("rows", value=[*ids(1), {"id": 100}])],
    )
    yield (
        "then-travel",
        "A commit made after one of the year 2100 is found by its timestamp",
        AHEAD,
        [
            _APPEND,
            Rows([*ids(1), {"id": 100}], at_ms=FUTURE + 1),
            Rows(ids(1), at_ms=FUTURE),
            Rows(ids(0), at_ms=FUTURE - 1),
            Refused(Rows(ids(1), at_ms=FUTURE + 2)),
            History({0: minute(0), 1: FUTURE, 2: FUTURE + 1}),
        ],
        _REFERENCE,
    )


# ------------------------------------------------------------------------------------------ two writers


@dataclass(frozen=True)
class Raced:
    """A table, and one commit that the step ``Put`` makes. ``winner``: what that commit does: "append", "disable",
    "enable", "list" the feature, or "set" another property."""

    base: Timeline
    winner: str
    ict: int | None = None

    def __call__(self, table: TableBuilder) -> None:
        self.base(table)
        actions = [table.add([{"id": 50}])]
        if self.winner == "list":
            actions = [table.protocol(["appendOnly", "invariants", ICT_FEATURE])]
        elif self.winner == "disable":
            kept = {key: value for key, value in table.configuration.items() if "Enablement" not in key}
            actions = [table.metadata(configuration={**kept, ICT_PROPERTY: "false"})]
        elif self.winner == "set":
            actions = [table.metadata(configuration={**table.configuration, **_OTHER})]
        elif self.winner == "enable":
            pair = {PAIR_VERSION: str(table.next_version), PAIR_TIMESTAMP: str(self.ict)}
            listed = table.protocol(["appendOnly", "invariants", ICT_FEATURE])
            actions = [table.metadata(configuration={**table.configuration, **ON, **pair}), listed]
        ict = False if self.ict is None else self.ict
        table.commit(*actions, at_ms=minute(60), ict=ict, later="winner")


def _races() -> Iterator[tuple[object, ...]]:
    """Each transaction is committed with what the winner made of the table, or refused."""
    agree = Log("ict-agrees")

    def raced(call: str, **arguments: object) -> list[Step]:
        return [Begin(), Put("winner"), MayRefuse(Write(call, begun=True, **arguments))]  # type: ignore[arg-type]

    append = raced("append", rows=[{"id": 100}])
    yield (
        "append-loses-to-disabling",
        "An append that lost to the commit that turned in-commit timestamps off has no timestamp, or is refused",
        Raced(LATE, "disable"),
        [*append, agree, Log("no-pair"), Log("ict-active", value=False)],
    )
    yield (
        "append-loses-to-listing",
        "An append that lost to the listing of the feature, which enables nothing, has no timestamp, or is refused",
        Raced(OFF, "list"),
        [*append, Log("no-ict"), Log("ict-active", value=False)],
        _REFERENCE,
    )
    yield (
        "append-loses-to-property",
        "An append that lost to a property change of the year 2100 has a later timestamp, or is refused",
        Raced(FROM_START, "set", FUTURE),
        [*append, Log("ict-increases"), Log("property", value=_OTHER), _VALID],
        {"rule": "ict-not-increasing"},
    )
    yield (
        "property-loses-to-enabling",
        "A property change that lost to the enablement keeps it and its pair, or is refused",
        Raced(OFF, "enable", FUTURE),
        [*raced("set_properties", properties=_OTHER), Log("pair", value=3), Log("ict-increases", value=3)],
    )
    yield (
        "overwrite-loses-to-enabling",
        "An overwrite that lost to the enablement has a timestamp and keeps the pair, or is refused",
        Raced(OFF, "enable", FUTURE),
        [
            *raced("overwrite", rows=[{"id": 100}]),
            Log("pair", value=3),
            Log("ict-increases", value=3),
            Log("commit-info-first"),
        ],
    )
    yield (
        "delete-loses-to-disabling",
        "A delete that lost to the commit that turned in-commit timestamps off has no timestamp, or is refused",
        Raced(LATE, "disable"),
        [*raced("delete", where="id = 1"), agree, Log("no-pair")],
    )
    yield (
        "disabling-loses-to-append",
        "A commit that turns in-commit timestamps off and lost to an append leaves a consistent log, or is refused",
        Raced(LATE, "append", FUTURE),
        [*raced("set_properties", properties={ICT_PROPERTY: "false"}), agree, _VALID],
    )
    yield (
        "enabling-loses-to-listing",
        "An enablement that lost to the listing of the feature has its own version and timestamp, or is refused",
        Raced(OFF, "list"),
        [*raced("set_properties", properties=ON), Log("contiguous"), agree, Log("ict-requirements")],
    )
