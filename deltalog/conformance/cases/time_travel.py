"""Cases about time travel by version, and by file times in tables without in-commit timestamps."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from deltalog.conformance.builder import TableBuilder
from deltalog.conformance.case import REFERENCE, TIME_TRAVEL, Case, History, LatestVersion, Refused, Rows, VersionAt
from deltalog.conformance.cases.common import Cases, Timeline, ids, minute

_case = Cases("travel", TIME_TRAVEL, "delta-log-entries")
FIVE = Timeline(at=(0, 1, 2, 3, 4))
_TIMES = "recommendations-for-readers-of-tables-with-in-commit-timestamps"


def cases() -> Iterator[Case]:
    yield from _by_version()
    yield from _by_file_time()


def _by_version() -> Iterator[Case]:
    for version in range(5):
        yield _case(
            f"version-{version}",
            f"Version {version} of a table with 5 versions",
            FIVE,
            Rows(ids(version), version=version),
        )
    for name, version in (("next", 5), ("far", 10**6)):
        about = f"Version {version} of a table with latest version 4 is refused"
        yield _case(f"version-{name}", about, FIVE, Refused(Rows(ids(4), version=version)))
    yield _case("latest", "Without a version, the latest is read", FIVE, Rows(ids(4)), LatestVersion(4))
    after = FIVE.but(checkpoints=(2,))
    yield _case(
        "around-checkpoint",
        "Versions before, at and after a checkpoint",
        after,
        *(Rows(ids(version), version=version) for version in range(5)),
        section="checkpoints",
    )
    cleaned = FIVE.but(checkpoints=(2,), dropped=(0, 1))
    yield _case("cleaned", "A version deleted by log clean-up is refused", cleaned, Refused(Rows(ids(1), version=1)))
    yield _case("first-left", "The version of the first remaining checkpoint", cleaned, Rows(ids(2), version=2))
    orphan = FIVE.but(checkpoints=(3,), dropped=(0, 1))
    about = "A version is refused if its commit exists, but earlier commits are deleted and no checkpoint covers them"
    yield _case("orphan-commit", about, orphan, Refused(Rows(ids(2), version=2)), Rows(ids(3), version=3))

    def changed(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]))
        schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
        table.commit(table.metadata(schema), table.add([{"id": 1, "v": "x"}]))

    yield _case(
        "old-schema",
        "An old version has its own columns",
        changed,
        Rows(ids(0), version=0),
        Rows([{"id": 0, "v": None}, {"id": 1, "v": "x"}], version=1),
        section="change-metadata",
    )

    def overwritten(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(), first)
        table.commit(table.remove(first), table.add([{"id": 1}]))

    about = "The rows of a version before an overwrite"
    yield _case("before-overwrite", about, overwritten, Rows(ids(0), version=0), Rows([{"id": 1}], version=1))

    def vacuumed(table: TableBuilder) -> None:
        overwritten(table)
        (table.root / "part-00000.parquet").unlink()

    about = "A vacuumed old version is refused, and the latest is read"
    yield _case("vacuumed", about, vacuumed, Rows([{"id": 1}]), Refused(Rows(ids(0), version=0)), rule="version-lost")

    def repartitioned(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        first = table.add([{"id": 0, "p": "a"}], file_schema=schema)
        table.commit(table.protocol(), table.metadata(schema, []), first)
        second = table.add([{"id": 0}], {"p": "a"})
        table.commit(table.metadata(partition_by=["p"]), table.remove(first), second)

    rows = [{"id": 0, "p": "a"}]
    about = "The partition columns were changed by an overwrite"
    yield _case("repartitioned", about, repartitioned, Rows(rows, version=0), Rows(rows), section="change-metadata")

    def upgraded(table: TableBuilder) -> None:
        table.commit(table.protocol(versions=(1, 1)), table.metadata(), table.add([{"id": 0}]))
        table.commit(table.protocol(["neverHeardOf"], ["neverHeardOf"]), table.add([{"id": 1}]))

    about = "A version before an upgrade to a protocol that the engine cannot read"
    yield _case(
        "before-unknown-feature",
        about,
        upgraded,
        Refused(Rows(ids(1))),
        section="protocol-evolution",
        rule="feature-unknown",
    )


def _by_file_time() -> Iterator[Case]:
    """Time travel by adjusted modification times of commit files."""

    def case(
        name: str, about: str, build: Timeline, *steps: Rows | Refused | History | VersionAt, basis: str = "protocol"
    ) -> Case:
        return _case(f"time-{name}", about, build, *steps, section=_TIMES, basis=basis)

    yield case("exact", "The file time of a commit yields its version", FIVE, Rows(ids(2), at_ms=minute(2)))
    yield case("exact-first", "The file time of version 0", FIVE, Rows(ids(0), at_ms=minute(0)))
    yield case("exact-last", "The file time of the latest commit", FIVE, Rows(ids(4), at_ms=minute(4)))
    yield case(
        "ms-before",
        "A time one millisecond before a file time yields the previous version",
        FIVE,
        Rows(ids(1), at_ms=minute(2) - 1),
    )
    yield case(
        "ms-after",
        "A time one millisecond after a file time yields the version of that file",
        FIVE,
        Rows(ids(2), at_ms=minute(2) + 1),
    )
    yield case(
        "between", "A time between two file times yields the earlier version", FIVE, Rows(ids(3), at_ms=minute(3.5))
    )
    before, after = Refused(Rows(ids(0), at_ms=minute(0) - 1)), Refused(Rows(ids(4), at_ms=minute(4) + 1))
    yield case("before-first", "A time before the first file time is refused", FIVE, before, basis=REFERENCE)
    yield case("after-last", "A time after the latest file time is refused", FIVE, after, basis=REFERENCE)
    for version in range(5):
        about = f"The file time of version {version} of 5 yields that version"
        yield case(f"version-at-{version}", about, FIVE, VersionAt(minute(version), version))
    equal = FIVE.but(file=(0, 2, 2, 2, 9))
    steps = (Rows(ids(1), at_ms=minute(2)), Rows(ids(2), at_ms=minute(2) + 1), Rows(ids(3), at_ms=minute(2) + 2))
    yield case("equal", "Equal file times are adjusted in steps of a millisecond", equal, *steps, basis=REFERENCE)
    back = FIVE.but(file=(5, 3, 4, 6, 7))
    steps = (Rows(ids(0), at_ms=minute(5)), Rows(ids(1), at_ms=minute(5) + 1), Rows(ids(2), at_ms=minute(5.5)))
    yield case("back", "Decreasing file times are adjusted", back, *steps, basis=REFERENCE)
    about = "If file times decrease, a time before that of version 0 is refused"
    yield case("back-before", about, back, Refused(Rows(ids(1), at_ms=minute(3))), basis=REFERENCE)
    yield case("history", "The history shows the file times", FIVE, History({n: minute(n) for n in range(5)}))
    shown = History({0: minute(5), 1: minute(5) + 1, 2: minute(5) + 2, 3: minute(6)})
    yield case("history-back", "The history shows adjusted file times", back, shown, basis=REFERENCE)
    info = FIVE.but(damage={n: {"info": {"timestamp": minute(50 + n)}} for n in range(5)})
    yield case("commit-info", "commitInfo.timestamp is ignored", info, Rows(ids(2), at_ms=minute(2)))
    cleaned = FIVE.but(checkpoints=(2,), dropped=(0, 1))
    yield case(
        "cleaned",
        "After log clean-up, times begin with the first remaining version",
        cleaned,
        Rows(ids(2), at_ms=minute(2)),
        Rows(ids(3), at_ms=minute(3.5)),
    )
    yield case(
        "cleaned-before",
        "A time before the first remaining version is refused",
        cleaned,
        Refused(Rows(ids(1), at_ms=minute(1))),
        basis=REFERENCE,
    )
