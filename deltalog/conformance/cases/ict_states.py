"""Cases about what turns in-commit timestamps on, about enablement pairs that contradict the log, and about the forms
of commitInfo."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.conformance.builder import (
    ICT_FEATURE,
    ICT_PROPERTY,
    PAIR_TIMESTAMP,
    PAIR_VERSION,
    Action,
    TableBuilder,
)
from deltalog.conformance.case import ICT, REFERENCE, Case, History, MayRefuse, Refused, Rows
from deltalog.conformance.cases.common import ICT_READERS, ICT_SECTION, Build, case_rows, ids, minute
from deltalog.conformance.cases.ict_reading import ENABLED, FROM_START, LATE

_COPIED = FROM_START.but(file=[9000] * 5)
_REFERENCE = {"basis": REFERENCE}


def cases() -> Iterator[Case]:
    yield from case_rows("ict-state", ICT, "in-commit-timestamps", _states())
    yield from case_rows("ict-stated-pair", ICT, ICT_READERS, _pairs())
    yield from case_rows("ict-info", ICT, "commit-provenance-information", _infos())
    yield from case_rows("ict-broken", ICT, ICT_SECTION, _broken())


# ------------------------------------------------------------------------------------------ on or off


@dataclass(frozen=True)
class Stated:
    """A table whose commits have in-commit timestamps at minutes 0 to 4 and file times at minutes 100 to 104.
    ``actions``: for some versions, the protocol and the configuration that the commit sets. ``ict``: the versions with
    a timestamp."""

    actions: Mapping[int, tuple[Action | None, Mapping[str, str] | None]]
    ict: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __call__(self, table: TableBuilder) -> None:
        for version in range(5):
            protocol, configuration = self.actions.get(version, (None, None))
            actions = [] if protocol is None else [{"protocol": protocol}]
            if configuration is not None:
                actions.append(table.metadata(configuration=configuration))
            actions.append(table.add([{"id": version}]))
            file_ms = minute(100 + version)
            table.commit(*actions, at_ms=minute(version), ict=version in self.ict, file_ms=file_ms)


_PLAIN: Action = {"minReaderVersion": 1, "minWriterVersion": 2}
_LISTED: Action = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [ICT_FEATURE]}
_ON = {ICT_PROPERTY: "true"}


def _states() -> Iterator[tuple[object, ...]]:
    by_commit = [Rows(ids(1), at_ms=minute(1)), Rows(ids(2), at_ms=minute(3) - 1)]
    by_file = [Rows(ids(1), at_ms=minute(101)), Rows(ids(0), at_ms=minute(101) - 1)]
    yield (
        "property-in-capitals",
        "The property is TRUE: in-commit timestamps are used",
        Stated({0: (_LISTED, {ICT_PROPERTY: "TRUE"})}),
        by_commit,
        _REFERENCE,
    )
    yield (
        "key-in-capitals",
        "A property whose key has other capitals is another property: file times are used",
        Stated({0: (_LISTED, {ICT_PROPERTY.upper(): "true"})}),
        by_file,
        _REFERENCE,
    )
    both: Action = {**_LISTED, "minReaderVersion": 3, "readerFeatures": []}
    yield (
        "reader-version-3",
        "The protocol has reader version 3, without reader features",
        Stated({0: (both, _ON)}),
        by_commit,
    )
    pair = {**_ON, PAIR_VERSION: "3", PAIR_TIMESTAMP: str(minute(103) + 7)}

    def enabled(more: tuple[int, ...], empty: tuple[int, ...] = ()) -> Build:
        """The feature is listed by version 1 and enabled by version 3; ``more``: earlier versions with a timestamp."""

        def build(table: TableBuilder) -> None:
            for version in range(5):
                actions: list[Action] = []
                if version < 2:
                    actions.append({"protocol": _LISTED if version else _PLAIN})
                if version in (0, 3):
                    actions.append(table.metadata(configuration=pair if version else {}))
                if version not in empty:
                    actions.append(table.add([{"id": version}]))
                ict = {3: minute(103) + 7, 4: minute(110)}.get(version, minute(version) if version in more else False)
                table.commit(*actions, at_ms=minute(100 + version), ict=ict)

        return build

    yield (
        "listed-before",
        "The feature is listed by version 1 and enabled by version 3, which the pair names",
        enabled(()),
        [
            Rows(ids(1), at_ms=minute(101)),
            Rows(ids(2), at_ms=minute(103) + 6),
            Rows(ids(3), at_ms=minute(103) + 7),
            Rows(ids(4), at_ms=minute(110)),
        ],
    )
    yield (
        "timestamps-before",
        "Commits between the listing of the feature and the enablement have timestamps, which are ignored",
        enabled((1, 2)),
        [
            Rows(ids(1), at_ms=minute(101)),
            Rows(ids(2), at_ms=minute(102)),
            Refused(Rows(ids(1), at_ms=minute(1))),
            History({1: minute(101), 2: minute(102), 3: minute(103) + 7}),
        ],
        {"basis": REFERENCE, "rule": "ict-not-enabled"},
    )
    yield (
        "enabled-alone",
        "The enabling commit changes no rows",
        enabled((), empty=(1, 3)),
        [Rows([{"id": 0}, {"id": 2}], at_ms=minute(103) + 7), Rows([{"id": 0}, {"id": 2}, {"id": 4}])],
    )
    yield (
        "feature-dropped",
        "The property was removed, and then the feature: file times are used",
        Stated({0: (_LISTED, _ON), 3: (None, {}), 4: (_PLAIN, None)}, ict=(0, 1, 2)),
        [*by_file, Rows(ids(4), at_ms=minute(104))],
    )


# ------------------------------------------------------------------------------------------ pairs


def _pairs() -> Iterator[tuple[object, ...]]:
    """Pairs of numbers that contradict the commits. The times in the properties divide the commits."""
    rule = "ict-enablement-timestamp-wrong"
    later = LATE.but(pair=("3", str(minute(10.5))))
    yield (
        "later-timestamp",
        "The enablement timestamp is later than the enabling commit: before it, file times are used",
        later,
        [Rows(ids(2), at_ms=minute(10.2)), Rows(ids(4), at_ms=minute(11)), Rows(ids(5))],
        {"rule": rule},
    )
    earlier = LATE.but(pair=("3", str(minute(9))))
    yield (
        "earlier-timestamp",
        "The enablement timestamp is earlier than the enabling commit: no version is between them",
        earlier,
        [
            Refused(Rows(ids(2), at_ms=minute(9.5))),
            Rows(ids(2), at_ms=minute(9) - 1),
            MayRefuse(Rows(ids(3), at_ms=ENABLED)),
            Rows(ids(4), at_ms=minute(11)),
        ],
        {"basis": REFERENCE, "rule": rule},
    )
    early = LATE.but(pair=("2", str(ENABLED)))
    yield (
        "earlier-version",
        "The enablement version is before the enabling commit: before the timestamp, only earlier versions count",
        early,
        [
            Rows(ids(1), at_ms=minute(2)),
            MayRefuse(Rows(ids(3), at_ms=ENABLED)),
            MayRefuse(Rows(ids(4), at_ms=minute(11))),
            Rows(ids(5)),
        ],
        {"rule": "ict-enablement-version-wrong"},
    )

    def renewed(table: TableBuilder) -> None:
        """A later commit names itself as the enabling one."""
        LATE.but(at=(0, 1, 2, 10, 11), file=(0, 1, 2, 20, 21))(table)
        pair = {ICT_PROPERTY: "true", PAIR_VERSION: "5", PAIR_TIMESTAMP: str(minute(30))}
        table.commit(table.metadata(configuration=pair), table.add([{"id": 5}]), at_ms=minute(30), ict=True)

    yield (
        "renewed",
        "A later commit has replaced the pair by its own version and timestamp: that pair counts",
        renewed,
        [
            Rows(ids(2), at_ms=minute(11)),
            Rows(ids(4), at_ms=minute(21)),
            Rows(ids(5), at_ms=minute(30)),
            History({3: minute(20), 4: minute(21), 5: minute(30)}),
        ],
        {"rule": "ict-enablement-version-wrong"},
    )
    zero = _COPIED.but(pair=("0", str(minute(0))))
    yield (
        "version-0",
        "A pair that names version 0: in-commit timestamps are used for all versions",
        zero,
        [Rows(ids(0), at_ms=minute(0)), Rows(ids(1), at_ms=minute(2) - 1), Rows(ids(4), at_ms=minute(4))],
    )
    lost = LATE.but(pair=(None, None))
    yield (
        "lost",
        "The pair was lost: no time is invented for the commits without a timestamp",
        lost,
        [
            Rows(ids(5)),
            Rows(ids(1), version=1),
            MayRefuse(Rows(ids(4), at_ms=minute(11))),
            MayRefuse(History({1: None, 4: minute(11)})),
        ],
        {"basis": REFERENCE, "rule": "ict-enablement-missing"},
    )
    long = LATE.but(pair=("3", str(2**63)))
    yield (
        "beyond-long",
        "The enablement timestamp is larger than a long: rows are read, and times are refused",
        long,
        [Rows(ids(5)), Rows(ids(2), version=2), Refused(Rows(ids(4), at_ms=minute(11)))],
        {"basis": REFERENCE, "rule": "ict-enablement-invalid"},
    )
    grown = FROM_START.but(
        at=(500, 501, 502, 503),
        file=(9000, 9001, 9002, 9003),
        properties={PAIR_VERSION: "2", PAIR_TIMESTAMP: str(minute(5))},
    )
    yield (
        "grown-clone",
        "A clone with the pair of its source, with more commits since: the first versions have no time",
        grown,
        [
            Rows(ids(3), at_ms=minute(503)),
            Refused(Rows(ids(0), at_ms=minute(500))),
            MayRefuse(Rows(ids(2), at_ms=minute(502))),
            Rows(ids(1), version=1),
        ],
        {"basis": REFERENCE, "rule": rule},
    )


# ------------------------------------------------------------------------------------------ forms of commitInfo


@dataclass(frozen=True)
class Formed:
    """A table with in-commit timestamps and the file times of a copy. ``form``: a JSON text that begins a commit, in
    which the in-commit timestamp is {ict}; it replaces the commitInfo of version 2."""

    form: str

    def __call__(self, table: TableBuilder) -> None:
        _COPIED.but(at=(0, 1), file=(9000, 9000))(table)
        for version in (2, 3):
            added = table.add([{"id": version}])
            at_ms = minute(version)
            text = None
            if version == 2:
                text = f"{self.form.replace('{ict}', str(at_ms))}\n{json.dumps(added)}\n"
            table.commit(added, at_ms=at_ms, ict=True, file_ms=minute(9000), text=text)


def _infos() -> Iterator[tuple[object, ...]]:
    by_commit = [
        Rows(ids(1), at_ms=minute(2) - 1),
        Rows(ids(2), at_ms=minute(2)),
        Rows(ids(2), at_ms=minute(3) - 1),
        History({1: minute(1), 2: minute(2), 3: minute(3)}),
    ]

    def info(before: str = "", after: str = "") -> str:
        return '{"commitInfo":{' + before + '"inCommitTimestamp":{ict}' + after + "}}"

    parameters = json.dumps({"predicate": "x" * 200_000})
    forms = {
        "long": ("is 200 KB long, and the timestamp is at its end", info(f'"operationParameters":{parameters},')),
        "decoys": (
            "has fields in its parameters that are named like its own",
            info(
                '"operationParameters":{"inCommitTimestamp":"1","commitInfo":{"inCommitTimestamp":2}},"timestamp":3,',
                ',"userMetadata":"\\"inCommitTimestamp\\":4"',
            ),
        ),
        "escaped": ("has the name of the timestamp with an escape", info().replace("inC", "\\u0069nC")),
        "spaced": (
            "has spaces between its tokens",
            '  { "commitInfo" : { "operation" : "WRITE" ,\t"inCommitTimestamp" :  {ict} } }  ',
        ),
    }
    for name, (about, form) in forms.items():
        yield name, f"commitInfo {about}", Formed(form), by_commit
    twice = info() + '\n{"commitInfo":{"inCommitTimestamp":1,"operation":"OTHER"}}'
    yield (
        "twice",
        "A commit has two commitInfo actions: the timestamp of the first counts, or times are refused",
        Formed(twice),
        [
            Rows(ids(3)),
            MayRefuse(Rows(ids(1), at_ms=minute(2) - 1)),
            MayRefuse(Rows(ids(2), at_ms=minute(2))),
            MayRefuse(History({2: minute(2)})),
        ],
        {"section": ICT_SECTION, "rule": "commit-info-twice"},
    )


# ------------------------------------------------------------------------------------------ damaged timestamps


def _broken() -> Iterator[tuple[object, ...]]:
    """Timestamps that are no whole number of milliseconds, or are missing in a commit that matters more than others."""
    kinds: dict[str, tuple[str, Any]] = {
        "fraction": ("has a fraction", minute(2) + 0.5),
        "digits": ("is a text of digits", str(minute(2))),
        "too-large": ("is larger than a long", 2**64 + minute(2)),
        "negative": ("is negative", -5),
    }
    for name, (about, ict) in kinds.items():
        damaged = _COPIED.but(damage={2: {"ict": ict}})
        yield (
            name,
            f"A timestamp {about}: rows are read, and other times are right or refused",
            damaged,
            [
                Rows(ids(4)),
                Rows(ids(2), version=2),
                MayRefuse(Rows(ids(1), at_ms=minute(1))),
                MayRefuse(Rows(ids(3), at_ms=minute(3))),
                MayRefuse(Rows(ids(4), at_ms=minute(4))),
            ],
            {"rule": "ict-invalid"},
        )
    first = _COPIED.but(damage={0: {"ict": False}})
    yield (
        "first",
        "Version 0 has no timestamp: other times are right or refused, and none is invented",
        first,
        [
            Rows(ids(4)),
            MayRefuse(Rows(ids(1), at_ms=minute(1))),
            MayRefuse(Rows(ids(4), at_ms=minute(4))),
            MayRefuse(History({0: None, 1: minute(1)})),
        ],
        {"rule": "ict-missing"},
    )
    enabling = LATE.but(file=(0, 1, 2, 9000, 9001, 9002), damage={3: {"ict": False}})
    yield (
        "enabling",
        "The enabling commit has no timestamp: file times are used before the one in the properties",
        enabling,
        [
            Rows(ids(2), at_ms=ENABLED - 1),
            Rows(ids(5), at_ms=minute(12)),
            MayRefuse(Rows(ids(4), at_ms=minute(11))),
            MayRefuse(Rows(ids(3), at_ms=ENABLED)),
            MayRefuse(History({2: minute(2), 3: None})),
        ],
        {"rule": "ict-missing"},
    )
    equal = _COPIED.but(damage={3: {"ict": minute(2)}})
    yield (
        "equal",
        "Two commits have the same timestamp: it yields the later one, or is refused",
        equal,
        [MayRefuse(Rows(ids(3), at_ms=minute(2))), Rows(ids(1), at_ms=minute(2) - 1), Rows(ids(4), at_ms=minute(4))],
        {"basis": REFERENCE, "rule": "ict-not-increasing"},
    )
    latest = _COPIED.but(damage={4: {"ict": minute(2)}})
    yield (
        "latest-is-not-last",
        "The timestamp of the latest commit is not after the previous ones: it yields the latest, or is refused",
        latest,
        [MayRefuse(Rows(ids(4), at_ms=minute(2))), Rows(ids(1), at_ms=minute(1)), Rows(ids(4))],
        {"basis": REFERENCE, "rule": "ict-not-increasing"},
    )
