"""Cases about conflicts: another writer commits while a transaction is open. Either both changes take effect, or the
transaction's commit is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from deltalog.conformance.builder import Action, TableBuilder
from deltalog.conformance.case import CONFLICTS, REFERENCE, Begin, Case, Log, MayRefuse, Put, Refused, Rows, Step, Write
from deltalog.conformance.cases.common import Cases, ids
from deltalog.conformance.cases.features import VECTORS
from deltalog.conformance.cases.writing import PARTS

_case = Cases("conflict", CONFLICTS, "creation-of-new-log-entries")
_WON = (Begin(), Put("winner"))
_APPEND = Write("append", rows=[{"id": 100}], begun=True)
_NINE = {"delta.logRetentionDuration": "interval 9 days"}

Winner = Callable[[TableBuilder, Action, Action], list[Action]]


def raced(winner: Winner, *more: Winner, properties: dict[str, str] | None = None) -> Callable[[TableBuilder], None]:
    """A table of two files (the first with rows 0 and 1, the second with rows 2 and 3), plus the commits of other
    writers."""

    def build(table: TableBuilder) -> None:
        one, two = table.add([{"id": 0}, {"id": 1}]), table.add([{"id": 2}, {"id": 3}])
        features = ["deletionVectors"] if properties == VECTORS else None
        protocol = table.protocol(features, features)
        table.commit(protocol, table.metadata(configuration=properties or {}), one, two)
        for number, each in enumerate((winner, *more), start=1):
            table.commit(*each(table, one, two), later="winner" if number == 1 else f"winner-{number}")

    return build


def _added(table: TableBuilder, one: Action, two: Action) -> list[Action]:
    return [table.add([{"id": 50}])]


def _removed(table: TableBuilder, one: Action, two: Action) -> list[Action]:
    return [table.remove(one)]


def _property(table: TableBuilder, one: Action, two: Action) -> list[Action]:
    return [table.metadata(configuration=_NINE)]


def _overwritten(table: TableBuilder, one: Action, two: Action) -> list[Action]:
    return [table.remove(one), table.remove(two), table.add([{"id": 60}])]


def cases() -> Iterator[Case]:
    yield from _appends()
    yield from _deletes()
    yield from _metadata()
    yield from _partitions()


def _appends() -> Iterator[Case]:
    four = ids(3)
    rows = [*four, {"id": 50}, {"id": 100}]
    about = "Two appends: both take effect"
    yield _case(
        "append-append",
        about,
        raced(_added),
        *_WON,
        _APPEND,
        Rows(rows),
        Log("contiguous"),
        Log("latest-version", value=2),
    )
    several = raced(_added, lambda t, a, b: [t.add([{"id": 51}])], lambda t, a, b: [t.add([{"id": 52}])])
    about = "An append after three concurrent appends"
    steps: tuple[Step, ...] = (Begin(), Put("winner"), Put("winner-2"), Put("winner-3"), _APPEND)
    rows = [*four, *({"id": n} for n in (50, 51, 52, 100))]
    yield _case("append-three", about, several, *steps, Rows(rows), Log("latest-version", value=4), basis=REFERENCE)
    about = "An append and a removal: the removed rows stay removed"
    rows = [{"id": 2}, {"id": 3}, {"id": 100}]
    yield _case("append-remove", about, raced(_removed), *_WON, _APPEND, Rows(rows), basis=REFERENCE)
    about = "An append and an overwrite: both take effect"
    yield _case(
        "append-overwrite", about, raced(_overwritten), *_WON, _APPEND, Rows([{"id": 60}, {"id": 100}]), basis=REFERENCE
    )
    about = "An append and a property change: both take effect"
    steps = (*_WON, MayRefuse(_APPEND), Log("property", value=_NINE), Log("rows-among", value=[*four, {"id": 100}]))
    yield _case("append-property", about, raced(_property), *steps)

    def column(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [table.metadata(pa.schema([("id", pa.int64()), ("v", pa.string())]))]

    about = "An append and a new column: refused, or null in the new rows"
    wide = [{**row, "v": None} for row in [*four, {"id": 100}]]
    yield _case("append-column", about, raced(column), *_WON, MayRefuse(_APPEND), Log("rows-among", value=wide))

    def feature(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [table.protocol(["neverHeardOf"])]

    about = "An append and an unknown writer feature: refused"
    steps = (*_WON, Refused(_APPEND), Log("latest-version", value=1))
    yield _case("append-unknown-feature", about, raced(feature), *steps, section="protocol-evolution")

    def new_version(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [table.protocol(versions=(1, 8))]

    about = "An append and an unknown writer version: refused"
    yield _case("append-new-version", about, raced(new_version), *steps, section="protocol-evolution")

    def replaced_schema(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        schema = pa.schema([("other", pa.string())])
        return [table.metadata(schema), table.remove(one), table.remove(two)]

    about = "An append and a replaced schema: refused, so that no file has columns that the table lacks"
    yield _case(
        "append-schema",
        about,
        raced(replaced_schema),
        *_WON,
        Refused(_APPEND),
        Log("latest-version", value=1),
        section="change-metadata",
    )

    def again(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [{"txn": {"appId": "other", "version": 1}}, table.add([{"id": 50}])]

    about = "An append and one with a transaction identifier"
    rows = [*four, {"id": 50}, {"id": 100}]
    yield _case("append-txn", about, raced(again), *_WON, _APPEND, Rows(rows), section="transaction-identifiers")

    def nothing(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return []

    yield _case(
        "append-nothing",
        "An append and a commit without files",
        raced(nothing),
        *_WON,
        _APPEND,
        Rows([*four, {"id": 100}]),
    )
    about = "The winner's commit is never overwritten"
    yield _case(
        "winner-stays",
        about,
        raced(_added),
        *_WON,
        MayRefuse(_APPEND),
        Log("actions", 1, {"add": 1}),
        Log("contiguous"),
    )


def _deletes() -> Iterator[Case]:
    delete = Write("delete", where="id = 1", begun=True)
    about = "A delete from a file that another writer removed: refused, or has no effect"
    steps: tuple[Step, ...] = (*_WON, MayRefuse(delete), Rows([{"id": 2}, {"id": 3}]))
    yield _case("delete-removed", about, raced(_removed), *steps)

    def rewritten(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [table.remove(one), table.add([{"id": 0}])]

    about = "Two deletes of the same row: refused, or the row is deleted once"
    steps = (*_WON, MayRefuse(delete), Rows([{"id": 0}, {"id": 2}, {"id": 3}]))
    yield _case("delete-delete", about, raced(rewritten), *steps)

    def other(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [table.remove(one), table.add([{"id": 1}])]

    about = "Two deletes of different rows in one file: refused, or both take effect"
    yield _case(
        "delete-same-file",
        about,
        raced(other),
        *_WON,
        MayRefuse(delete),
        Log("rows-one-of", value=[[{"id": 1}, {"id": 2}, {"id": 3}], [{"id": 2}, {"id": 3}]]),
    )

    def second(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [table.remove(two), table.add([{"id": 2}])]

    about = "Two deletes from different files: refused, or both take effect"
    yield _case(
        "delete-other-file",
        about,
        raced(second),
        *_WON,
        MayRefuse(delete),
        Log("rows-one-of", value=[[{"id": 0}, {"id": 1}, {"id": 2}], [{"id": 0}, {"id": 2}]]),
    )
    about = "A delete and an append: refused, or both take effect"
    yield _case(
        "delete-append",
        about,
        raced(_added),
        *_WON,
        MayRefuse(delete),
        Log("rows-one-of", value=[[*ids(3), {"id": 50}], [{"id": 0}, {"id": 2}, {"id": 3}, {"id": 50}]]),
    )
    about = "A delete and an overwrite: the new rows are kept"
    yield _case("delete-overwrite", about, raced(_overwritten), *_WON, MayRefuse(delete), Rows([{"id": 60}]))

    def vector(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [table.remove(one), table.with_deleted(one, [0])]

    with_vectors = raced(vector, properties=VECTORS)
    about = "Two deletes in one file by deletion vectors: neither restores the row that the other deleted"
    yield _case(
        "delete-vectors",
        about,
        with_vectors,
        *_WON,
        MayRefuse(delete),
        Log("rows-one-of", value=[[{"id": 1}, {"id": 2}, {"id": 3}], [{"id": 2}, {"id": 3}]]),
        section="deletion-vectors",
    )

    def append_only(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [table.metadata(configuration={"delta.appendOnly": "true"})]

    about = "A delete while the table becomes append-only: refused"
    steps = (*_WON, Refused(delete), Rows(ids(3)))
    yield _case("delete-append-only", about, raced(append_only), *steps, section="append-only-tables")
    overwrite = Write("overwrite", rows=[{"id": 100}], begun=True)
    about = "An overwrite and an append: refused, or only the rows of the overwrite remain"
    yield _case(
        "overwrite-append",
        about,
        raced(_added),
        *_WON,
        MayRefuse(overwrite),
        Log("rows-one-of", value=[[*ids(3), {"id": 50}], [{"id": 50}, {"id": 100}], [{"id": 100}]]),
    )
    about = "Two overwrites: refused, or the rows of one of them remain"
    yield _case(
        "overwrite-overwrite",
        about,
        raced(_overwritten),
        *_WON,
        MayRefuse(overwrite),
        Log("rows-one-of", value=[[{"id": 60}], [{"id": 100}]]),
    )


def _metadata() -> Iterator[Case]:
    change = Write("set_properties", properties={"delta.deletedFileRetentionDuration": "interval 3 days"}, begun=True)
    about = "Two property changes: the second is refused, or both take effect"
    yield _case(
        "property-property",
        about,
        raced(_property),
        *_WON,
        MayRefuse(change),
        Log("property", value=_NINE),
        section="change-metadata",
    )
    about = "A property change and an append: refused, or both take effect"
    yield _case(
        "property-append",
        about,
        raced(_added),
        *_WON,
        MayRefuse(change),
        Rows([*ids(3), {"id": 50}]),
        section="change-metadata",
    )

    def column(table: TableBuilder, one: Action, two: Action) -> list[Action]:
        return [table.metadata(pa.schema([("id", pa.int64()), ("v", pa.string())]))]

    about = "A property change and a new column: the column is kept"
    rows = [{**row, "v": None} for row in ids(3)]
    yield _case(
        "property-column", about, raced(column), *_WON, MayRefuse(change), Rows(rows), section="change-metadata"
    )


def _partitions() -> Iterator[Case]:
    """The table has a row in each of the partitions a, b and c."""

    def build(winner: str) -> Callable[[TableBuilder], None]:
        def made(table: TableBuilder) -> None:
            metadata = table.metadata(PARTS, ["p"])
            files = {p: table.add([{"id": n}], {"p": p}) for n, p in enumerate("abc")}
            table.commit(table.protocol(), metadata, *files.values())
            action = table.remove(files["b"]) if winner == "removed" else table.add([{"id": 50}], {"p": winner})
            table.commit(action, later="winner")

        return made

    delete = Write("delete", where="p = 'a'", begun=True)
    a, b, c = ({"id": n, "p": p} for n, p in enumerate("abc"))
    new = {"id": 50, "p": "b"}
    about = "A delete of one partition and an append to another: refused, or both take effect"
    yield _case(
        "partition-append",
        about,
        build("b"),
        *_WON,
        MayRefuse(delete),
        Log("rows-one-of", value=[[a, b, c, new], [b, c, new]]),
        basis=REFERENCE,
    )
    about = "A delete of one partition and the removal of another: refused, or both take effect"
    yield _case(
        "partition-remove", about, build("removed"), *_WON, MayRefuse(delete), Log("rows-one-of", value=[[a, c], [c]])
    )
    new = {"id": 50, "p": "a"}
    about = "A delete of a partition and an append to it: refused, or serialized in either order"
    yield _case(
        "partition-same",
        about,
        build("a"),
        *_WON,
        MayRefuse(delete),
        Log("rows-one-of", value=[[a, b, c, new], [b, c, new], [b, c]]),
    )
