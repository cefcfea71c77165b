"""Cases about row tracking: the row ids and row commit versions that readers return, and those that every verb assigns
or keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from deltalog.conformance.builder import Action, TableBuilder
from deltalog.conformance.case import (
    REFERENCE,
    ROW_TRACKING,
    Begin,
    Case,
    Create,
    LatestVersion,
    Log,
    MayRefuse,
    Put,
    Row,
    Rows,
    Step,
    TrackedRows,
    Write,
)
from deltalog.conformance.cases.common import Build, Cases, column, ids, schema_text

_case = Cases("rows", ROW_TRACKING, "writer-requirements-for-row-tracking")
_READERS = "reader-requirements-for-row-tracking"
_ID, _COMMIT = "_row-id-col-aa", "_row-commit-version-col-bb"
_NAMES = {
    "delta.rowTracking.materializedRowIdColumnName": _ID,
    "delta.rowTracking.materializedRowCommitVersionColumnName": _COMMIT,
}
_ON = {"delta.enableRowTracking": "true", **_NAMES, "delta.enableExpiredLogCleanup": "false"}
_FEATURES = ("rowTracking", "domainMetadata")
_APPEND = Write("append", rows=[{"id": 100}, {"id": 101}])


def mark(value: int) -> Action:
    """The domain metadata with the high-water mark."""
    configuration = f'{{"rowIdHighWaterMark":{value}}}'
    return {"domainMetadata": {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}}


def cases() -> Iterator[Case]:
    yield from _read()
    yield from _created()
    yield from _appended()
    yield from _deleted()
    yield from _restored()
    yield from _checkpointed()
    yield from _raced()
    yield from _enabled()


def _begun(
    table: TableBuilder,
    *files: Sequence[int],
    properties: Mapping[str, str] = _ON,
    features: Sequence[str] = _FEATURES,
    readers: Sequence[str] | None = None,
) -> list[Action]:
    """Commit version 0 with files of these ids, whose row ids begin with 0. Returns the add actions."""
    adds, base = [], 0
    for found in files:
        adds.append(table.add([{"id": n} for n in found], baseRowId=base, defaultRowCommitVersion=0))
        base += len(found)
    protocol = table.protocol([*features, *(readers or ())], readers)
    table.commit(protocol, table.metadata(configuration=properties), *adds, mark(base - 1))
    return adds


def two_files(table: TableBuilder) -> None:
    """The rows 0 to 2 in a file of version 0, and 3 and 4 in one of version 1."""
    _begun(table, (0, 1, 2))
    table.commit(table.add([{"id": 3}, {"id": 4}], baseRowId=3, defaultRowCommitVersion=1), mark(4))


def with_vectors(table: TableBuilder) -> None:
    """``two_files`` with deletion vectors enabled."""
    _begun(table, (0, 1, 2), properties={**_ON, "delta.enableDeletionVectors": "true"}, readers=["deletionVectors"])
    table.commit(table.add([{"id": 3}, {"id": 4}], baseRowId=3, defaultRowCommitVersion=1), mark(4))


def _tracked(*rows: tuple[int, int, int]) -> list[Row]:
    """Rows from their id, row id and row commit version."""
    return [{"id": id, "_row_id": row, "_row_commit_version": version} for id, row, version in rows]


_FIVE = _tracked((0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 3, 1), (4, 4, 1))


def _materialised(found: Sequence[tuple[int, int | None, int | None]]) -> pa.Table:
    """A file with both materialised columns."""
    columns = zip(*found, strict=True)
    return pa.table(
        {name: pa.array(list(values), pa.int64()) for name, values in zip(("id", _ID, _COMMIT), columns, strict=True)}
    )


def _read() -> Iterator[Case]:
    def case(name: str, about: str, build: Build, *steps: Step, section: str = _READERS) -> Case:
        return _case(f"reads-{name}", about, build, *steps, section=section)

    yield case("default", "Row ids follow from the base row id and the position", two_files, TrackedRows(_FIVE))
    about = "Row ids of an earlier version"
    yield case("version", about, two_files, TrackedRows(_FIVE[:3], version=0))

    def moved(table: TableBuilder) -> None:
        first = _begun(table, (0, 1, 2))[0]
        rest = table.add(_materialised([(2, 2, 0), (0, 0, 0)]), baseRowId=3, defaultRowCommitVersion=1)
        table.commit(table.remove(first), rest, mark(4))

    rows = _tracked((0, 0, 0), (2, 2, 0))
    about = "Materialised row ids and row commit versions precede the defaults"
    yield case("materialised", about, moved, TrackedRows(rows), section="row-ids")
    yield case("hidden", "Materialised columns are not columns of the table", moved, Rows([{"id": 0}, {"id": 2}]))

    def partly(table: TableBuilder) -> None:
        first = _begun(table, (0, 1, 2))[0]
        found = [(0, 0, 0), (7, None, None), (1, 1, None), (8, None, 0)]
        rest = table.add(_materialised(found), baseRowId=10, defaultRowCommitVersion=1)
        table.commit(table.remove(first), rest, mark(13))

    rows = _tracked((0, 0, 0), (7, 11, 1), (1, 1, 1), (8, 13, 0))
    yield case("materialised-nulls", "A null in a materialised column means the default", partly, TrackedRows(rows))

    def only_ids(table: TableBuilder) -> None:
        first = _begun(table, (0, 1, 2))[0]
        found = pa.table({"id": pa.array([1, 2], pa.int64()), _ID: pa.array([1, 2], pa.int64())})
        table.commit(table.remove(first), table.add(found, baseRowId=3, defaultRowCommitVersion=1), mark(4))

    rows = _tracked((1, 1, 1), (2, 2, 1))
    yield case("one-materialised", "A file with only one of the materialised columns", only_ids, TrackedRows(rows))

    def vectors(table: TableBuilder) -> None:
        with_vectors(table)
        add = table.add([{"id": n} for n in (5, 6, 7)], baseRowId=5, defaultRowCommitVersion=2)
        table.commit(add, mark(7))
        table.commit(table.remove(add, baseRowId=5, defaultRowCommitVersion=2), table.with_deleted(add, [0, 1]))

    rows = [*_FIVE, *_tracked((7, 7, 2))]
    yield case("vector", "Row ids count the rows that a deletion vector removes", vectors, TrackedRows(rows))

    def reserved(table: TableBuilder) -> None:
        _begun(table, (0,))
        table.commit(mark(999))
        table.commit(table.add([{"id": 1}], baseRowId=500, defaultRowCommitVersion=2))

    about = "Row ids that an earlier commit reserved"
    yield case("reserved", about, reserved, TrackedRows(_tracked((0, 0, 0), (1, 500, 2))), section="row-ids")

    def partitioned(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        adds = [
            table.add([{"id": n}], {"p": p}, file_schema=schema, baseRowId=n, defaultRowCommitVersion=0)
            for n, p in enumerate("ab")
        ]
        table.commit(table.protocol(_FEATURES), table.metadata(schema, ["p"], _ON), *adds, mark(1))

    parted = [{**row, "p": p} for row, p in zip(_tracked((0, 0, 0), (1, 1, 0)), "ab", strict=True)]
    yield case("partitioned", "Row ids in a partitioned table", partitioned, TrackedRows(parted))

    def mapped(table: TableBuilder) -> None:
        field = column("id", "long", delta__columnMapping__id=1, delta__columnMapping__physicalName="col-a")
        configuration = {**_ON, "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
        types = [("col-a", 1), (_ID, None), (_COMMIT, None)]
        schema = pa.schema(
            [pa.field(n, pa.int64(), metadata=None if i is None else {"PARQUET:field_id": str(i)}) for n, i in types]
        )
        rows = pa.table([pa.array([5, 6]), pa.array([1, None], pa.int64()), pa.array([0, None], pa.int64())], schema)
        add = table.add(rows, baseRowId=10, defaultRowCommitVersion=0)
        protocol = table.protocol([*_FEATURES, "columnMapping"], ["columnMapping"])
        table.commit(protocol, table.metadata(schema_text(field), configuration=configuration), add, mark(11))

    about = "Materialised columns in a table with column mapping"
    yield case("mapped", about, mapped, TrackedRows(_tracked((5, 1, 0), (6, 11, 0))))

    def contained(table: TableBuilder) -> None:
        moved(table)
        table.checkpoint()
        table.drop_commits(0, 1)
        table.commit(table.add([{"id": 9}], baseRowId=5, defaultRowCommitVersion=2), mark(5))

    rows = _tracked((0, 0, 0), (2, 2, 0), (9, 5, 2))
    yield case("checkpoint", "Row ids in a checkpoint without earlier commits", contained, TrackedRows(rows))

    def compacted(table: TableBuilder) -> None:
        two_files(table)
        table.commit(table.add([{"id": 5}], baseRowId=5, defaultRowCommitVersion=2), mark(5))
        table.compact(0, 2)

    rows = [*_FIVE, *_tracked((5, 5, 2))]
    yield case("compaction", "Row ids in a log compaction file", compacted, TrackedRows(rows))

    def back(table: TableBuilder) -> None:
        first = _begun(table, (0, 1, 2))[0]
        ids_of = {"baseRowId": 0, "defaultRowCommitVersion": 0}
        table.commit(table.remove(first, **ids_of))
        table.commit(first)

    rows = _tracked((0, 0, 0), (1, 1, 0), (2, 2, 0))
    yield case("back", "A file that was removed comes back with its row ids", back, TrackedRows(rows))


def _fresh(number: int | None = None, version: int | None = None) -> tuple[Step, ...]:
    """Checks of a commit that adds ``number`` new files."""
    return (
        Log("row-ids-fresh", version, number),
        Log("row-commit-versions", version),
        Log("row-id-mark", version),
    )


def _created() -> Iterator[Case]:
    create = Create({"id": "long"}, properties={"delta.enableRowTracking": "true"})
    about = "A table is created with row tracking: the protocol lists both features"
    listed = (
        Log("supports-writer-feature", value="rowTracking"),
        Log("supports-writer-feature", value="domainMetadata"),
    )
    yield _case("create", about, None, create, *listed, Log("lists-no-reader-feature", value="rowTracking"))
    about = "A table is created with row tracking: the materialised columns have names"
    yield _case("create-names", about, None, create, Log("row-columns-named"))
    about = "The first append to a table with row tracking"
    append = Write("append", rows=[{"id": 0}, {"id": 1}])
    yield _case("create-append", about, None, create, append, *_fresh(), Rows(ids(1)))
    about = "Row ids of two appends to a new table do not overlap"
    yield _case("create-append-twice", about, None, create, append, append, *_fresh(), Log("row-ids-complete"))
    parted = Create({"id": "long", "p": "string"}, ("p",), {"delta.enableRowTracking": "true"})
    rows = [{"id": n, "p": p} for n, p in enumerate("abcab")]
    about = "The files of one append to several partitions have separate row ids"
    yield _case("create-append-partitions", about, None, parted, Write("append", rows=rows), *_fresh(3), Rows(rows))


def _appended() -> Iterator[Case]:
    new: list[Row] = [{"id": 100}, {"id": 101}]
    five: list[Row] = ids(4)
    about = "An append assigns row ids above the high-water mark"
    yield _case("append", about, two_files, _APPEND, *_fresh(), Rows([*five, *new]))
    about = "An append changes no row id and row commit version of other rows"
    more = [*_FIVE, *_tracked((100, 5, 2), (101, 6, 2))]
    one = Write("append", rows=[{"id": 100}])
    yield _case(
        "append-others", about, two_files, one, Log("row-ids", value=[*_FIVE, *_tracked((100, 5, 2))]), basis=REFERENCE
    )
    about = "Three appends"
    yield _case(
        "append-three", about, two_files, _APPEND, _APPEND, _APPEND, *_fresh(version=2), *_fresh(version=3), *_fresh()
    )

    def reserved(table: TableBuilder) -> None:
        _begun(table, (0, 1))
        table.commit(mark(999))

    about = "An append after a commit that reserved row ids assigns none of them"
    yield _case("append-reserved", about, reserved, _APPEND, *_fresh())

    def emptied(table: TableBuilder) -> None:
        first = _begun(table, tuple(range(10)))[0]
        table.commit(table.remove(first, baseRowId=0, defaultRowCommitVersion=0))

    about = "An append to an emptied table does not assign the row ids of removed rows"
    yield _case("append-emptied", about, emptied, _APPEND, *_fresh(), Rows(new))

    def supported(table: TableBuilder) -> None:
        _begun(table, (0, 1), properties={})

    about = "An append assigns row ids if row tracking is supported but not enabled"
    yield _case("append-supported", about, supported, _APPEND, *_fresh(), Rows([*ids(1), *new]), section="row-tracking")

    def bare(table: TableBuilder) -> None:
        table.commit(table.protocol(_FEATURES), table.metadata(configuration={}), table.add([{"id": 0}]))

    about = "The first row ids of a table whose older files have none"
    yield _case("append-first", about, bare, _APPEND, *_fresh(), Rows([{"id": 0}, *new]), section="row-tracking")

    def suspended(table: TableBuilder) -> None:
        _begun(table, (0, 1), properties={"delta.rowTrackingSuspended": "true"})

    about = "An append assigns no row ids while row tracking is suspended"
    yield _case(
        "append-suspended", about, suspended, _APPEND, Log("no-row-ids"), Rows([*ids(1), *new]), section="row-tracking"
    )

    def contained(table: TableBuilder) -> None:
        two_files(table)
        table.checkpoint()
        table.drop_commits(0, 1)

    about = "An append takes the high-water mark from a checkpoint"
    yield _case(
        "append-after-checkpoint",
        about,
        contained,
        one,
        Log("row-ids", value=more[:-1]),
        Rows([*five, {"id": 100}]),
        basis=REFERENCE,
    )

    def compacted(table: TableBuilder) -> None:
        two_files(table)
        table.compact(0, 1)

    about = "An append takes the high-water mark from a log compaction file"
    yield _case("append-compacted", about, compacted, _APPEND, *_fresh(), Rows([*five, *new]))
    overwrite = Write("overwrite", rows=[{"id": 100}, {"id": 101}])
    about = "An overwrite assigns new row ids"
    yield _case("overwrite", about, two_files, overwrite, *_fresh(), Rows(new))
    about = "The removes of an overwrite have the row ids of their files"
    yield _case("overwrite-removes", about, two_files, overwrite, Log("row-ids-kept", value=2))
    about = "An append after an overwrite"
    yield _case("overwrite-append", about, two_files, overwrite, _APPEND, *_fresh())
    change = Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"})
    about = "A change of properties keeps the names of the materialised columns"
    yield _case(
        "property",
        about,
        two_files,
        change,
        Log("property", value=_NAMES),
        Log("row-ids", value=_FIVE),
        Log("domain", value={"delta.rowTracking": {"rowIdHighWaterMark": 4}}),
    )


def _deleted() -> Iterator[Case]:
    delete = Write("delete", where="id = 1")
    left = [_FIVE[0], *_FIVE[2:]]
    about = "A delete that rewrites a file keeps the row ids of the other rows"
    yield _case(
        "delete-keeps", about, two_files, delete, Log("row-ids", value=left), section="row-ids", basis=REFERENCE
    )
    about = "A delete that rewrites a file assigns it new default row ids"
    yield _case("delete-rewritten", about, two_files, delete, *_fresh(), Log("row-ids-kept"))
    about = "An append after a delete that rewrote a file"
    yield _case("delete-append", about, two_files, delete, _APPEND, *_fresh(), Log("row-ids-complete"))
    about = "Two deletes from one file keep the row ids of the rows that were rewritten twice"
    again = Write("delete", where="id = 0")
    yield _case(
        "delete-twice",
        about,
        two_files,
        delete,
        again,
        Log("row-ids", value=left[1:]),
        section="row-ids",
        basis=REFERENCE,
    )
    about = "A delete by a deletion vector keeps the base row id of the file"
    yield _case("delete-vector", about, with_vectors, delete, Log("row-ids-kept", value=2), Log("row-id-mark"))
    about = "A delete by a deletion vector keeps the row ids of the other rows"
    yield _case("delete-vector-keeps", about, with_vectors, delete, Log("row-ids", value=left))
    about = "A delete of a whole file: its remove has the row ids of the file"
    whole = Write("delete", where="id < 3")
    yield _case(
        "delete-file", about, two_files, whole, Log("row-ids-kept"), Log("row-id-mark"), Log("row-ids", value=_FIVE[3:])
    )
    about = "A delete of all rows keeps the high-water mark"
    all_rows = Write("delete", where="id >= 0")
    yield _case("delete-all-append", about, two_files, all_rows, _APPEND, *_fresh(), Rows([{"id": 100}, {"id": 101}]))

    def moved(table: TableBuilder) -> None:
        first = _begun(table, (0, 1, 2))[0]
        rest = table.add(_materialised([(2, 2, 0), (0, 0, 0), (9, None, None)]), baseRowId=3, defaultRowCommitVersion=1)
        table.commit(table.remove(first, baseRowId=0, defaultRowCommitVersion=0), rest, mark(5))

    about = "A delete from a file with materialised columns keeps them"
    rows = _tracked((0, 0, 0), (9, 5, 1))
    yield _case(
        "delete-materialised",
        about,
        moved,
        Write("delete", where="id = 2"),
        Log("row-ids", value=rows),
        section="row-ids",
        basis=REFERENCE,
    )
    yield _case(
        "delete-reads",
        "The engine reads the row ids that its delete kept",
        two_files,
        delete,
        TrackedRows(left),
        section=_READERS,
        basis=REFERENCE,
    )


def _restored() -> Iterator[Case]:
    restore = Write("restore", version=0)
    overwrite = Write("overwrite", rows=[{"id": 100}])
    about = "A restore brings the row ids back"
    yield _case(
        "restore",
        about,
        two_files,
        overwrite,
        restore,
        Log("row-ids", value=_FIVE[:3]),
        section="row-ids",
        basis=REFERENCE,
    )
    about = "The files that a restore brings back have their base row id and default row commit version"
    yield _case("restore-kept", about, two_files, overwrite, restore, Log("row-ids-kept"))
    about = "A restore does not lower the high-water mark"
    yield _case("restore-mark", about, two_files, restore, Log("row-id-mark"), Rows(ids(2)))
    about = "An append after a restore does not assign the row ids of the rows that are gone"
    yield _case("restore-append", about, two_files, restore, _APPEND, *_fresh(), Log("row-ids-complete"))
    about = "A restore to before a delete by a deletion vector"
    delete = Write("delete", where="id = 1")
    steps = (delete, Write("restore", version=1), Log("row-ids-kept"), Log("row-ids", value=_FIVE))
    yield _case("restore-vector", about, with_vectors, *steps, section="row-ids", basis=REFERENCE)


def _checkpointed() -> Iterator[Case]:
    write = Write("checkpoint")
    about = "A checkpoint keeps base row ids and default row commit versions"
    yield _case(
        "checkpoint", about, two_files, write, Log("checkpoint", value=1), Log("row-ids-by-checkpoint", value=_FIVE)
    )
    about = "A checkpoint keeps the high-water mark"
    yield _case("checkpoint-mark", about, two_files, write, Log("checkpoint-has-domain", value="delta.rowTracking"))
    about = "A checkpoint after a delete by a deletion vector"
    left = [_FIVE[0], *_FIVE[2:]]
    delete = Write("delete", where="id = 1")
    steps = (delete, write, Log("row-ids-by-checkpoint", value=left), TrackedRows(left))
    yield _case("checkpoint-vector", about, with_vectors, *steps)
    about = "An append after the engine's checkpoint"
    yield _case(
        "checkpoint-append", about, two_files, write, _APPEND, *_fresh(), Rows([*ids(4), {"id": 100}, {"id": 101}])
    )


def _raced() -> Iterator[Case]:
    def won(*actions: Action, size: int = 3, removes: bool = False) -> Build:
        def build(table: TableBuilder) -> None:
            first = _begun(table, (0, 1, 2))[0]
            if removes:
                table.commit(table.remove(first, baseRowId=0, defaultRowCommitVersion=0), later="winner")
                return
            add = table.add([{"id": 50 + n} for n in range(size)], baseRowId=3, defaultRowCommitVersion=1)
            table.commit(add, mark(2 + size), *actions, later="winner")

        return build

    append = Write("append", rows=[{"id": 100}, {"id": 101}], begun=True)
    three, new = ids(2), [{"id": 100}, {"id": 101}]
    fifty: list[Row] = [{"id": 50}, {"id": 51}, {"id": 52}]
    about = "An append that lost against another one assigns row ids above those of the winner"
    steps = (Begin(), Put("winner"), append, *_fresh(), Rows([*three, *fifty, *new]))
    yield _case("race-append", about, won(), *steps)
    about = "The row commit version of an append that lost is the version of its own commit"
    steps = (Begin(), Put("winner"), append, LatestVersion(2), Log("row-commit-versions"))
    yield _case("race-append-version", about, won(), *steps, section="row-commit-versions")

    def reserving(table: TableBuilder) -> None:
        _begun(table, (0, 1, 2))
        table.commit(mark(999), later="winner")

    about = "An append and a commit that reserves row ids"
    steps = (Begin(), Put("winner"), MayRefuse(append), *_fresh())
    yield _case("race-reserved", about, reserving, *steps)
    about = "A delete and an append: refused, or with separate row ids"
    delete = Write("delete", where="id = 1", begun=True)
    steps = (Begin(), Put("winner"), MayRefuse(delete), *_fresh(), Log("row-ids-complete"))
    yield _case("race-delete", about, won(), *steps)
    about = "An append and a removal: the row ids of the removed rows are not assigned again"
    steps = (Begin(), Put("winner"), append, *_fresh(), Rows(new))
    yield _case("race-removed", about, won(removes=True), *steps)


def _enabled() -> Iterator[Case]:
    enable = Write("set_properties", properties={"delta.enableRowTracking": "true"})

    def untracked(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]), table.add([{"id": 1}]))

    about = "Row tracking is enabled for a table with files: all of them get row ids, or the call is refused"
    checks = (Log("row-ids-complete"), Log("row-columns-named"), Log("row-id-mark"), Rows(ids(1)))
    yield _case("enable", about, untracked, MayRefuse(enable), *checks, section="row-ids")
    about = "An append after row tracking was enabled"
    steps: tuple[Step, ...] = (MayRefuse(enable), _APPEND, Log("row-ids-complete"), Log("row-id-mark"))
    yield _case("enable-append", about, untracked, *steps, Rows([*ids(1), {"id": 100}, {"id": 101}]))

    def supported(table: TableBuilder) -> None:
        _begun(table, (0, 1), properties={})
        table.commit(table.add([{"id": 2}], baseRowId=2, defaultRowCommitVersion=1), mark(2))

    about = "Row tracking is enabled for a table whose files have row ids: they keep them"
    rows = _tracked((0, 0, 0), (1, 1, 0), (2, 2, 1))
    steps = (enable, Log("row-columns-named"), Log("row-ids", value=rows), Rows(ids(2)))
    yield _case("enable-supported", about, supported, *steps)
    disable = Write("set_properties", properties={"delta.enableRowTracking": "false"})
    about = "An append after row tracking was disabled still assigns row ids"
    yield _case("disable-append", about, two_files, disable, _APPEND, *_fresh(), section="row-tracking")
    about = "Row tracking is enabled again with the same names of the materialised columns"
    steps = (disable, enable, Log("property", value=_NAMES), Log("row-ids-complete"))
    yield _case("enable-again", about, two_files, MayRefuse(disable), MayRefuse(enable), *steps[2:], section="row-ids")
