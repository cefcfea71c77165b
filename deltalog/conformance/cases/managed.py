"""Cases about tables of a Unity Catalog: which commits a table has, and what writers tell the catalog.

The table of each case has the versions 0 to 2, all published; version n adds the row n. Later versions are prepared as
commits of another client.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from deltalog.conformance.builder import ICT_FEATURE, ICT_PROPERTY, TableBuilder
from deltalog.conformance.case import (
    CATALOG_MANAGED,
    PROTOCOL,
    REFERENCE,
    Agree,
    Begin,
    Case,
    Changes,
    History,
    LatestVersion,
    MayRefuse,
    Put,
    Ratify,
    Refused,
    Rows,
    Stage,
    Step,
    VersionAt,
    Write,
)
from deltalog.conformance.cases.common import CDF, Build, ids, minute

_FEATURES = ("catalogManaged", "vacuumProtocolCheck")
_READING, _PUBLISHING = "reading-catalog-managed-tables", "publishing-commits"
_WRITING = "writer-requirements-for-catalog-managed-tables"
TABLE_ID = "io.unitycatalog.tableId"
_LAST = 2


def build(table: TableBuilder, properties: Mapping[str, str] | None = None, feature: str | None = None) -> None:
    """Prepares the commits ``three``, ``four`` and ``five``, and ``other``, which is version 3 too."""
    more = [] if feature is None else [feature]
    protocol = table.protocol([*_FEATURES, ICT_FEATURE, *more], _FEATURES)
    metadata = table.metadata(configuration={**table.configuration, ICT_PROPERTY: "true", **(properties or {})})
    for version in range(_LAST + 1):
        first = (protocol, metadata) if version == 0 else ()
        table.commit(*first, table.add([{"id": version}]), ict=True)
    for number, name in ((3, "three"), (4, "four"), (5, "five")):
        table.commit(table.add([{"id": number}]), ict=True, later=name)
    table.next_version = 3
    table.commit(
        table.add([{"id": 30}]), ict=True, later="other", info={"txnId": "5e0f3c1a-0000-4000-8000-0000000000aa"}
    )


def _rows(*more: int, last: int = _LAST) -> list[dict[str, int]]:
    return [*ids(last), *({"id": each} for each in more)]  # type: ignore[list-item]


def _append(*numbers: int, begun: bool = False) -> Write:
    return Write("append", rows=[{"id": number} for number in numbers], begun=begun)


def cases() -> Iterator[Case]:
    def case(name: str, about: str, section: str, *steps: Step, build: Build = build, basis: str = PROTOCOL) -> Case:
        return Case(f"managed-{name}", CATALOG_MANAGED, about, section, build, steps, basis=basis)

    yield case("published", "A table without unpublished commits is read", _READING, Rows(_rows()), Agree(2))
    yield case(
        "ratified",
        "Ratified commits that are not published are read",
        _READING,
        *(Ratify("three"), Ratify("four"), LatestVersion(4), Rows(_rows(3, 4)), Agree(4)),
    )
    yield case(
        "ratified-earlier",
        "Versions before, at and after the last published one are read by their numbers",
        _READING,
        *(Ratify("three"), Ratify("four")),
        *(Rows(ids(number), version=number) for number in range(1, 5)),
    )
    yield case(
        "ratified-by-time",
        "The in-commit timestamp of an unpublished commit yields its version",
        _READING,
        *(Ratify("three"), Ratify("four")),
        *(VersionAt(minute(3), 3), VersionAt(minute(4) - 1, 3), VersionAt(minute(1), 1), Rows(ids(3), at_ms=minute(3))),
    )
    yield case(
        "ratified-and-published",
        "A commit is read once while it is both staged and published",
        _PUBLISHING,
        *(Ratify("three", publish=True), Ratify("four"), LatestVersion(4), Rows(_rows(3, 4)), Agree(4)),
    )
    yield case(
        "staged-only",
        "A staged commit that the catalog has not ratified is not read",
        _READING,
        *(Stage("three"), LatestVersion(2), Rows(_rows())),
        Refused(Rows(ids(3), version=3)),
    )
    yield case(
        "one-of-two-staged",
        "Of two staged commits of a version, the ratified one is read",
        _READING,
        *(Stage("three"), Ratify("other"), LatestVersion(3), Rows(_rows(30))),
    )
    yield case(
        "written-by-path",
        "A commit in the log that the catalog has not ratified is not read",
        _READING,
        *(Put("three"), LatestVersion(2), Rows(_rows())),
    )
    yield case(
        "append",
        "An append is a commit of the catalog",
        _WRITING,
        *(_append(7), LatestVersion(3), Rows(_rows(7)), Agree(3)),
    )
    yield case(
        "append-to-unpublished",
        "An append follows ratified commits that are not published",
        _WRITING,
        *(Ratify("three"), Ratify("four"), _append(7), LatestVersion(5), Rows(_rows(3, 4, 7)), Agree(5)),
    )
    yield case(
        "append-beside-staged",
        "An append takes the version of a staged commit that is not ratified",
        _WRITING,
        *(Stage("three"), _append(7), LatestVersion(3), Rows(_rows(7)), Agree(3)),
    )
    yield case(
        "append-in-turns",
        "Two clients commit in turn",
        _WRITING,
        *(Ratify("three"), _append(7), _append(8), LatestVersion(5), Rows(_rows(3, 7, 8)), Agree(5)),
    )
    yield case(
        "append-begun-before",
        "An append that was begun before another client's commit follows it, or is refused",
        _WRITING,
        *(Begin(), Ratify("three"), MayRefuse(_append(7, begun=True)), Rows(ids(3), version=3), Agree()),
    )
    yield case(
        "properties",
        "A change of properties reaches the catalog with its commit",
        _WRITING,
        Write("set_properties", properties={"custom.owner": "a team", "delta.appendOnly": "true"}),
        *(LatestVersion(3), Rows(_rows()), Agree(3)),
    )
    yield case(
        "delete",
        "A delete is a commit of the catalog",
        _WRITING,
        *(Ratify("three"), Write("delete", where="id = 1"), LatestVersion(4)),
        *(Rows([{"id": 0}, {"id": 2}, {"id": 3}]), Agree(4)),
    )
    yield case(
        "checkpoint",
        "A checkpoint does not contain more than published commits",
        _WRITING,
        *(Ratify("three", publish=True), Write("checkpoint"), Ratify("four"), Rows(_rows(3, 4)), Agree(4)),
    )

    yield case(
        "staged-then-ratified",
        "A staged commit is read as soon as the catalog has ratified it",
        _READING,
        *(Stage("three"), Rows(_rows()), Ratify("three"), LatestVersion(3), Rows(_rows(3)), Agree(3)),
    )
    yield case(
        "history",
        "The history has ratified commits that are not published, with their in-commit timestamps",
        _READING,
        *(Ratify("three"), Ratify("four"), History({number: minute(number) for number in range(5)})),
    )
    yield case(
        "beyond-ratified",
        "A version after the latest ratified commit is refused, although it is staged",
        _READING,
        *(Ratify("three"), Stage("four"), LatestVersion(3), Refused(Rows(_rows(3, 4), version=4))),
    )
    yield case(
        "time-of-staged",
        "The in-commit timestamp of a staged commit that is not ratified is after the latest commit",
        _READING,
        *(Stage("three"), Refused(VersionAt(minute(3), 3))),
        basis=REFERENCE,
    )

    def fed(table: TableBuilder) -> None:
        build(table, CDF, "changeDataFeed")

    changes = [{"id": number, "_change_type": "insert", "_commit_version": number} for number in (2, 3, 4)]
    yield case(
        "changes",
        "The change data feed has ratified commits that are not published",
        _READING,
        *(Ratify("three"), Ratify("four"), Changes(changes, from_version=2)),
        build=fed,
    )
    yield case(
        "overwrite",
        "An overwrite is a commit of the catalog",
        _WRITING,
        *(Ratify("three"), Write("overwrite", rows=[{"id": 7}]), LatestVersion(4), Rows([{"id": 7}]), Agree(4)),
    )
    yield case(
        "restore",
        "A restore is a commit of the catalog",
        _WRITING,
        *(Ratify("three"), Write("restore", version=1), LatestVersion(4), Rows(ids(1)), Agree(4)),
    )
    yield case(
        "delete-begun-before",
        "A delete that was begun before another client's commit follows it, or is refused",
        _WRITING,
        *(Begin(), Ratify("three"), MayRefuse(Write("delete", where="id = 1", begun=True)), Rows(ids(3), version=3)),
        Agree(),
    )
    yield case(
        "append-published",
        "An append follows commits that another client has published",
        _PUBLISHING,
        *(Ratify("three", publish=True), Ratify("four", publish=True), _append(7)),
        *(LatestVersion(5), Rows(_rows(3, 4, 7)), Agree(5)),
    )
    yield case(
        "append-after-checkpoint",
        "An append and another client's commit follow the engine's checkpoint",
        _WRITING,
        *(Write("checkpoint"), Ratify("three"), _append(7), LatestVersion(4), Rows(_rows(3, 7)), Agree(4)),
    )
    yield case(
        "property-removed",
        "The removal of a property reaches the catalog with its commit",
        _WRITING,
        Write("set_properties", properties={"custom.owner": "a team"}),
        Write("set_properties", properties={"custom.owner": None}),
        *(LatestVersion(4), Rows(_rows()), Agree(4)),
    )
    yield case(
        "timestamps-stay",
        "In-commit timestamps are not turned off",
        _WRITING,
        Refused(Write("set_properties", properties={ICT_PROPERTY: "false"})),
        *(LatestVersion(2), Rows(_rows()), Agree(2)),
    )
    yield case(
        "append-only",
        "A delete is refused if another client's table allows only appends",
        _WRITING,
        *(Refused(Write("delete", where="id = 1")), _append(7), LatestVersion(3), Rows(_rows(7)), Agree(3)),
        build=lambda table: build(table, {"delta.appendOnly": "true"}, "appendOnly"),
    )


@functools.cache
def managed_cases() -> tuple[Case, ...]:
    """The cases about tables of a Unity Catalog, which ``run_managed`` runs against a server."""
    return tuple(cases())
