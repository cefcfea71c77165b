"""Cases about the change data feed: the changes of all kinds of commits, and ranges of versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.conformance.builder import Action, TableBuilder
from deltalog.conformance.case import CHANGE_FEEDS, REFERENCE, Case, Changes, Refused, Rows
from deltalog.conformance.cases.common import CDF, Cases, Timeline, minute

_case = Cases("feed", CHANGE_FEEDS, "reader-requirements-for-addcdcfile")
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
PAIRS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def change(version: int, kind: str, **row: Any) -> dict[str, Any]:
    return {**row, "_change_type": kind, "_commit_version": version}


def cdc(
    table: TableBuilder, *rows: tuple[str, dict[str, Any]], partition: dict[str, str | None] | None = None
) -> Action:
    """Write a change data file below ``_change_data`` and return its cdc action."""
    values = partition or {}
    columns = [f for f in table.schema if f.name not in values]
    found = pa.Table.from_pylist(
        [{**row, "_change_type": kind} for kind, row in rows], pa.schema([*columns, ("_change_type", pa.string())])
    )
    name = f"_change_data/cdc-{table.next_version:05d}.parquet"
    (table.root / name).parent.mkdir(exist_ok=True)
    pq.write_table(found, table.root / name)
    size = (table.root / name).stat().st_size
    return {"cdc": {"path": name, "partitionValues": values, "size": size, "dataChange": False}}


def cases() -> Iterator[Case]:
    yield from _kinds()
    yield from _ranges()
    yield from _vectors()


def _begin(table: TableBuilder, *rows: dict[str, Any], schema: pa.Schema = PAIRS) -> Action:
    """Write version 0 with one data file."""
    metadata = table.metadata(schema, configuration=CDF)
    added = table.add(list(rows))
    table.commit(table.protocol(versions=(1, 4)), metadata, added)
    return added


def _kinds() -> Iterator[Case]:
    one, two = {"id": 1, "v": "a"}, {"id": 2, "v": "b"}

    def appended(table: TableBuilder) -> None:
        _begin(table, one)
        table.commit(table.add([two]))

    whole = [change(0, INSERT, **one), change(1, INSERT, **two)]
    yield _case("insert", "Appended rows are inserts", appended, Changes(whole, from_version=0))

    def removed(table: TableBuilder) -> None:
        added = _begin(table, one, two)
        table.commit(table.remove(added))

    gone = [change(1, DELETE, **one), change(1, DELETE, **two)]
    yield _case("delete-file", "The rows of a removed file are deletes", removed, Changes(gone, from_version=1))

    def overwritten(table: TableBuilder) -> None:
        added = _begin(table, one)
        table.commit(table.remove(added), table.add([two]))

    both = [change(1, DELETE, **one), change(1, INSERT, **two)]
    yield _case("overwrite", "An overwrite consists of deletes and inserts", overwritten, Changes(both, from_version=1))

    def moved(table: TableBuilder) -> None:
        added = _begin(table, one)
        add = table.add([one])
        table.commit(table.remove(added, dataChange=False), {"add": {**add["add"], "dataChange": False}})

    about = "A commit that only rewrites files has no changes"
    yield _case("optimize", about, moved, Changes([], from_version=1), Rows([one]))

    def updated(table: TableBuilder) -> None:
        added = _begin(table, one, two)
        new = {"id": 1, "v": "z"}
        table.commit(table.remove(added), table.add([new, two]), cdc(table, (BEFORE, one), (AFTER, new)))

    pair = [change(1, BEFORE, **one), change(1, AFTER, id=1, v="z")]
    about = "If a commit has change data files, its add and remove actions are ignored"
    yield _case("update", about, updated, Changes(pair, from_version=1), Rows([{"id": 1, "v": "z"}, two]))

    def deleted(table: TableBuilder) -> None:
        added = _begin(table, one, two)
        table.commit(table.remove(added), table.add([two]), cdc(table, (DELETE, one)))

    yield _case(
        "delete-rows",
        "Deleted rows in a change data file",
        deleted,
        Changes([change(1, DELETE, **one)], from_version=1),
    )

    def merged(table: TableBuilder) -> None:
        added = _begin(table, one, two)
        new, more = {"id": 1, "v": "z"}, {"id": 3, "v": "c"}
        files = cdc(table, (BEFORE, one), (AFTER, new), (DELETE, two), (INSERT, more))
        table.commit(table.remove(added), table.add([new, more]), files)

    four = [*pair, change(1, DELETE, **two), change(1, INSERT, id=3, v="c")]
    yield _case("merge", "A change data file with all four change types", merged, Changes(four, from_version=1))

    def partitioned(table: TableBuilder) -> None:
        metadata = table.metadata(PAIRS, ["v"], CDF)
        first = table.add([{"id": 1}], {"v": "a"})
        table.commit(table.protocol(versions=(1, 4)), metadata, first, table.add([{"id": 2}], {"v": None}))
        table.commit(table.remove(first), cdc(table, (DELETE, {"id": 1}), partition={"v": "a"}))

    rows = [change(0, INSERT, id=1, v="a"), change(0, INSERT, id=2, v=None), change(1, DELETE, id=1, v="a")]
    yield _case(
        "partitions",
        "Partition values in the feed, including those of change data files",
        partitioned,
        Changes(rows, from_version=0),
    )

    def widened(table: TableBuilder) -> None:
        _begin(table, {"id": 1}, schema=pa.schema([("id", pa.int64())]))
        table.commit(table.metadata(PAIRS), table.add([two]))

    rows = [change(0, INSERT, id=1, v=None), change(1, INSERT, **two)]
    yield _case(
        "column-added",
        "An added column is null in earlier changes",
        widened,
        Changes(rows, from_version=0),
        basis=REFERENCE,
    )

    def hidden(table: TableBuilder) -> None:
        added = _begin(table, one, two)
        table.commit(table.remove(added), table.add([two]), cdc(table, (DELETE, one)))

    about = "Change data files are not part of the table's rows"
    yield _case("not-data", about, hidden, Rows([two]), section="note-for-non-change-data-readers")

    def nothing(table: TableBuilder) -> None:
        _begin(table, one)
        table.commit(info="first")
        table.commit(table.add([two]))

    rows = [change(0, INSERT, **one), change(2, INSERT, **two)]
    yield _case("empty-commit", "A commit without files has no changes", nothing, Changes(rows, from_version=0))

    def feature(table: TableBuilder) -> None:
        metadata = table.metadata(PAIRS, configuration=CDF)
        table.commit(table.protocol(["changeDataFeed", "appendOnly"]), metadata, table.add([one]))

    yield _case(
        "feature",
        "The change data feed as a table feature",
        feature,
        Changes([change(0, INSERT, **one)], from_version=0),
    )


def _ranges() -> Iterator[Case]:
    feed = Timeline(at=(0, 1, 2, 3, 4), properties=CDF)

    def rows_of(*versions: int, **times: Any) -> list[dict[str, Any]]:
        return [{**change(version, INSERT, id=version), **times} for version in versions]

    yield _case(
        "range", "Both ends of a range are inclusive", feed, Changes(rows_of(1, 2, 3), from_version=1, to_version=3)
    )
    yield _case("range-of-one", "A range of one version", feed, Changes(rows_of(2), from_version=2, to_version=2))
    yield _case(
        "range-whole", "A range that starts at the first version", feed, Changes(rows_of(0, 1, 2, 3, 4), from_version=0)
    )
    yield _case("range-latest", "A range that starts at the latest version", feed, Changes(rows_of(4), from_version=4))
    about = "A range that starts after the latest version is refused"
    yield _case("range-after", about, feed, Refused(Changes([], from_version=6)), basis=REFERENCE)
    about = "A range that ends before it begins is refused"
    yield _case("range-backwards", about, feed, Refused(Changes([], from_version=3, to_version=1)), basis=REFERENCE)
    timed = [{**row, "_commit_timestamp": minute(row["_commit_version"])} for row in rows_of(0, 1, 2, 3, 4)]
    about = "_commit_timestamp is the file time without in-commit timestamps"
    yield _case("timestamps", about, feed, Changes(timed, from_version=0, timestamps=True), section="add-cdc-file")
    yield _case(
        "from-time",
        "A range that begins at the file time of a commit",
        feed,
        Changes(rows_of(3, 4), from_ms=minute(3)),
        basis=REFERENCE,
    )
    about = "A range that ends between two file times"
    yield _case("to-time", about, feed, Changes(rows_of(0, 1), from_version=0, to_ms=minute(1.5)), basis=REFERENCE)
    off = Timeline(at=(0, 1, 2))
    about = "The feed of a table that never enabled it is refused"
    yield _case("off", about, off, Refused(Changes([], from_version=0)), basis=REFERENCE)

    def late(table: TableBuilder) -> None:
        Timeline(at=(0, 1))(table)
        table.commit(table.metadata(configuration=CDF), table.protocol(versions=(1, 4)))
        table.commit(table.add([{"id": 3}]))

    about = "A feed that starts at the version that enabled it"
    yield _case("late", about, late, Changes([change(3, INSERT, id=3)], from_version=2))
    about = "A feed that starts before the version that enabled it is refused"
    yield _case("late-before", about, late, Refused(Changes([], from_version=0)), basis=REFERENCE)
    cleaned = feed.but(checkpoints=(2,), dropped=(0, 1))
    yield _case("cleaned", "The feed after log clean-up", cleaned, Changes(rows_of(2, 3, 4), from_version=2))
    about = "The feed of commits deleted by log clean-up is refused"
    yield _case("cleaned-before", about, cleaned, Refused(Changes([], from_version=0)))


def _vectors() -> Iterator[Case]:
    """Rows deleted and restored by deletion vectors."""
    features = (["deletionVectors", "changeDataFeed"], ["deletionVectors"])
    rows = [{"id": n} for n in range(4)]

    def begun(table: TableBuilder) -> Action:
        metadata = table.metadata(configuration={**CDF, "delta.enableDeletionVectors": "true"})
        added = table.add(rows)
        table.commit(table.protocol(*features), metadata, added)
        return added

    def once(table: TableBuilder) -> None:
        added = begun(table)
        table.commit(table.remove(added), table.with_deleted(added, [1, 3]))

    gone = [change(1, DELETE, id=1), change(1, DELETE, id=3)]
    about = "A deletion vector yields deletes, and no inserts for the remaining rows"
    yield _case("vector", about, once, Changes(gone, from_version=1), section="deletion-vectors")

    def twice(table: TableBuilder) -> None:
        added = begun(table)
        first = table.with_deleted(added, [1])
        table.commit(table.remove(added), first)
        table.commit(table.remove(first), table.with_deleted(added, [1, 2]))

    more = [change(1, DELETE, id=1), change(2, DELETE, id=2)]
    about = "A second deletion vector yields only the newly deleted rows"
    yield _case("vector-twice", about, twice, Changes(more, from_version=1), section="deletion-vectors")

    def back(table: TableBuilder) -> None:
        added = begun(table)
        first = table.with_deleted(added, [1, 2])
        table.commit(table.remove(added), first)
        table.commit(table.remove(first), added)

    restored = [change(2, INSERT, id=1), change(2, INSERT, id=2)]
    about = "Restoring a file without its deletion vector yields inserts"
    yield _case("vector-restored", about, back, Changes(restored, from_version=2), section="deletion-vectors")

    def whole(table: TableBuilder) -> None:
        added = begun(table)
        first = table.with_deleted(added, [0])
        table.commit(table.remove(added), first)
        table.commit(table.remove(first))

    rest = [change(2, DELETE, id=n) for n in (1, 2, 3)]
    about = "Removing a file with a deletion vector yields deletes of the remaining rows"
    yield _case("vector-removed", about, whole, Changes(rest, from_version=2), section="deletion-vectors")
