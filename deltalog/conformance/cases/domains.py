"""Cases about metadata domains, the clustering columns that one of them contains, and transaction identifiers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.conformance.builder import Action, TableBuilder
from deltalog.conformance.case import (
    DOMAINS,
    REFERENCE,
    Begin,
    Case,
    LatestVersion,
    Log,
    MayRefuse,
    Put,
    Row,
    Rows,
    Step,
    Write,
)
from deltalog.conformance.cases.common import Build, Cases, column, columns, ids, schema_text

_case = Cases("domain", DOMAINS, "writer-requirements-for-domain-metadata")
_cluster = Cases("clustering", DOMAINS, "writer-requirements-for-clustered-table")
_txn = Cases("txn", DOMAINS, "transaction-identifiers")
_KEEP = {"delta.enableExpiredLogCleanup": "false"}
_USER = "org.example.owner"
_SYSTEM = "delta.neverHeardOf"
_APPEND = Write("append", rows=[{"id": 100}])
_VERBS: Mapping[str, tuple[str, tuple[Step, ...]]] = {
    "append": ("An append", (_APPEND,)),
    "overwrite": ("An overwrite", (Write("overwrite", rows=[{"id": 100}]),)),
    "delete": ("A delete", (Write("delete", where="id = 1"),)),
    "property": ("A property change", (Write("set_properties", properties={"delta.appendOnly": "false"}),)),
}


def cases() -> Iterator[Case]:
    yield from _kept()
    yield from _checkpointed()
    yield from _raced()
    yield from _clustered()
    yield from _transactions()


def domain(name: str, configuration: Any, removed: bool = False) -> Action:
    text = json.dumps(configuration, separators=(",", ":"))
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}


def _with(*actions: Action, features: Sequence[str] = ("domainMetadata",), **properties: str) -> Build:
    """Version 0 with the rows 0 and 1, and version 1 with the actions and the row 2."""

    def build(table: TableBuilder) -> None:
        metadata = table.metadata(configuration={**_KEEP, **properties})
        table.commit(table.protocol(features), metadata, table.add([{"id": 0}, {"id": 1}]))
        table.commit(*actions, table.add([{"id": 2}]))

    return build


def _kept() -> Iterator[Case]:
    both = _with(domain(_USER, {"team": "a"}), domain(_SYSTEM, {"x": [1, None]}))
    state = {_USER: {"team": "a"}, _SYSTEM: {"x": [1, None]}}
    for name, (about, steps) in _VERBS.items():
        checks = (Log("domain", value=state), Write("checkpoint"))
        held = (Log("checkpoint-has-domain", value=_USER), Log("checkpoint-has-domain", value=_SYSTEM))
        about = f"{about} and a checkpoint keep domains, also one that the engine does not know"
        yield _case(f"{name}-keeps", about, both, *steps, *checks, *held)
    about = "A restore keeps a domain that the engine does not know"
    steps = (Write("restore", version=1), Log("domain", value=state))
    yield _case("restore-keeps", about, both, _APPEND, *steps, basis=REFERENCE)
    yield _case(
        "reads", "A table with domains is read", both, Rows(ids(2)), section="reader-requirements-for-domain-metadata"
    )
    about = "A domain without a configuration that is JSON is no obstacle to an append"
    text = {"domainMetadata": {"domain": _USER, "configuration": "not json {", "removed": False}}
    rows = [*ids(2), {"id": 100}]
    yield _case("text", about, _with(text), _APPEND, Rows(rows), LatestVersion(2))
    about = "A tombstone of a domain that never was is no obstacle to reading and appending"
    gone = _with(domain(_USER, {}, removed=True))
    yield _case("removed-unknown", about, gone, Rows(ids(2)), _APPEND, Rows(rows), section="action-reconciliation")


def _checkpointed() -> Iterator[Case]:
    write = Write("checkpoint")

    def history(*found: Action | None, checkpoint_at: int | None = None) -> Build:
        """A commit for each action; None is a commit without one."""

        def build(table: TableBuilder) -> None:
            metadata = table.metadata(configuration=_KEEP)
            table.commit(table.protocol(["domainMetadata"]), metadata, table.add([{"id": 0}]))
            for number, each in enumerate(found, start=1):
                table.commit(*([] if each is None else [each]))
                if number == checkpoint_at:
                    table.checkpoint()
                    table.drop_commits(*range(number + 1))

        return build

    def case(name: str, about: str, build: Build, *checks: Step, section: str = "checkpoints-1") -> Case:
        return _case(f"checkpoint-{name}", about, build, *checks, section=section)

    one, two = domain(_USER, {"n": 1}), domain(_USER, {"n": 2})
    gone = domain(_USER, {"n": 2}, removed=True)
    has, has_not = Log("checkpoint-has-domain", value=_USER), Log("checkpoint-has-no-domain", value=_USER)
    about = "A removed domain is not in a checkpoint"
    yield case("removed", about, history(one, gone), write, has_not, Log("rows-by-checkpoint", value=ids(0)))
    about = "A domain that was removed and set again is in a checkpoint"
    yield case("set-again", about, history(one, gone, two), write, has, section="action-reconciliation")
    about = "A domain that is only in a checkpoint is in the next one"
    old = history(one, None, checkpoint_at=2)
    yield case("again", about, old, _APPEND, write, has, Log("rows-by-checkpoint", value=[{"id": 0}, {"id": 100}]))
    about = "A domain of a checkpoint that was removed later is not in the next one"
    yield case("removed-later", about, history(one, None, gone, checkpoint_at=2), write, has_not)
    about = "Of two configurations of a domain, the later one is in a checkpoint"
    state = Log("domain-by-checkpoint", value={_USER: {"n": 2}})
    yield case("latest", about, history(one, two), write, state, section="action-reconciliation")
    about = "A domain of a log compaction file is in a checkpoint"

    def compacted(table: TableBuilder) -> None:
        history(one, None)(table)
        table.compact(0, 2)

    yield case("compaction", about, compacted, write, has, section="log-compaction-files")
    about = "A domain with a long configuration is in a checkpoint unchanged"
    long = {"text": "ü" * 5000, "quote": '"\\\n'}
    state = Log("domain-by-checkpoint", value={_USER: long})
    yield case("long", about, history(domain(_USER, long)), write, state)


def _raced() -> Iterator[Case]:
    def won(action: Action, *features: str) -> Build:
        def build(table: TableBuilder) -> None:
            metadata = table.metadata(configuration=_KEEP)
            table.commit(table.protocol(["domainMetadata", *features]), metadata, table.add([{"id": 0}, {"id": 1}]))
            table.commit(action, later="winner")

        return build

    append = Write("append", rows=[{"id": 100}], begun=True)
    set_property = Write("set_properties", properties={"delta.appendOnly": "false"}, begun=True)
    rows = [*ids(1), {"id": 100}]
    start = (Begin(), Put("winner"))
    user = won(domain(_USER, {"n": 1}))
    about = "An append and a domain that another writer sets: refused, or both take effect"
    kept = Log("domain", value={_USER: {"n": 1}})
    yield _case("race-append", about, user, *start, MayRefuse(append), kept, Log("rows-among", value=rows))
    about = "A property change and a domain that another writer sets: refused, or both take effect"
    yield _case("race-property", about, user, *start, MayRefuse(set_property), kept, Rows(ids(1)))
    clustered = won(domain("delta.clustering", {"clusteringColumns": [["id"]]}), "clustering")
    about = "An append and a change of the clustering columns: refused, or the new file has their statistics"
    kept = Log("domain", value={"delta.clustering": {"clusteringColumns": [["id"]]}})
    steps = (*start, MayRefuse(append), kept, Log("rows-among", value=rows))
    yield _case("race-clustering", about, clustered, *steps, section="writer-requirements-for-clustered-table")


# --------------------------------------------------------------------------------------------- clustering


def _clustered() -> Iterator[Case]:
    schema = schema_text(column("id", "long"), column("a", "long"), column("s", columns(column("b", "string"))))
    features = ("clustering", "domainMetadata")
    struct = pa.struct([("b", pa.string())])

    def rows(*numbers: int) -> list[Row]:
        return [{"id": n, "a": n, "s": {"b": str(n)}} for n in numbers]

    def stats(*numbers: int) -> dict[str, Any]:
        low, high = min(numbers), max(numbers)
        return {
            "numRecords": len(numbers),
            "minValues": {"id": low, "a": low, "s": {"b": str(low)}},
            "maxValues": {"id": high, "a": high, "s": {"b": str(high)}},
            "nullCount": {"id": 0, "a": 0, "s": {"b": 0}},
        }

    def clustered(found: Any, readers: Sequence[str] | None = None, **properties: str) -> Build:
        def build(table: TableBuilder) -> None:
            protocol = table.protocol([*features, *(readers or ())], readers)
            metadata = table.metadata(schema, configuration={**_KEEP, **properties})
            data = pa.table(
                [pa.array([0, 1]), pa.array([0, 1]), pa.array([{"b": "0"}, {"b": "1"}], struct)], ["id", "a", "s"]
            )
            add = table.add(data, stats=stats(0, 1), clusteringProvider="liquid")
            table.commit(protocol, metadata, add, domain("delta.clustering", {"clusteringColumns": found}))

        return build

    by_a = clustered([["a"]])
    state = {"delta.clustering": {"clusteringColumns": [["a"]]}}
    append = Write("append", rows=rows(5, 6))
    yield _cluster("reads", "A clustered table is read", by_a, Rows(rows(0, 1)), section="clustered-table")
    about = "An append records statistics of the clustering column"
    yield _cluster("append", about, by_a, append, Log("statistics-of", value=["a"]), Rows(rows(0, 1, 5, 6)))
    about = "An append records statistics of two clustering columns, one of them a field of a struct"
    two = clustered([["a"], ["s", "b"]])
    yield _cluster("append-nested", about, two, append, Log("statistics-of", value=["a", "s.b"]))
    about = "An append records statistics of the clustering column of a table that has statistics of no other column"
    few = clustered([["a"]], **{"delta.dataSkippingNumIndexedCols": "0"})
    yield _cluster("append-no-statistics", about, few, MayRefuse(append), Log("statistics-of", value=["a"]))
    about = "An append records statistics of the clustering column beyond those in delta.dataSkippingStatsColumns"
    few = clustered([["a"]], **{"delta.dataSkippingStatsColumns": "id"})
    yield _cluster("append-other-statistics", about, few, MayRefuse(append), Log("statistics-of", value=["a"]))
    verbs: Sequence[tuple[str, str, Write]] = (
        ("append", "An append", append),
        ("overwrite", "An overwrite", Write("overwrite", rows=rows(9))),
        ("delete", "A delete", Write("delete", where="id = 1")),
        ("property", "A property change", Write("set_properties", properties={"delta.appendOnly": "false"})),
    )
    for name, about, verb in verbs:
        checks = (Log("domain", value=state), Write("checkpoint"), Log("domain-by-checkpoint", value=state))
        about = f"{about} and a checkpoint keep the clustering columns"
        # PROTOCOL.md does not say what becomes of them when all rows are replaced.
        basis = {"basis": REFERENCE} if name == "overwrite" else {}
        yield _cluster(f"{name}-keeps", about, by_a, verb, *checks, **basis)
    about = "An overwrite records statistics of the clustering column"
    yield _cluster("overwrite", about, by_a, verbs[1][2], Log("statistics-of", value=["a"]), Rows(rows(9)))
    about = "A delete that rewrites a file records statistics of the clustering column"
    yield _cluster("delete", about, by_a, verbs[2][2], Log("statistics-of", value=["a"]), Rows(rows(0)))
    about = "A restore keeps the clustering columns"
    restore = Write("restore", version=0)
    yield _cluster(
        "restore", about, by_a, append, restore, Log("domain", value=state), Rows(rows(0, 1)), basis=REFERENCE
    )
    vectors = clustered([["a"]], ["deletionVectors"], **{"delta.enableDeletionVectors": "true"})
    about = "A delete by a deletion vector keeps the statistics of the clustering column and the clusteringProvider"
    yield _cluster(
        "delete-vector",
        about,
        vectors,
        verbs[2][2],
        Log("statistics-of", value=["a"]),
        Log("clustering-providers", value=["liquid"]),
        Rows(rows(0)),
        basis=REFERENCE,
    )
    about = "A file of an append has no clusteringProvider"
    yield _cluster("append-provider", about, by_a, append, Log("clustering-providers", value=[None]), basis=REFERENCE)
    about = "A table that has the feature but no clustering columns"
    yield _cluster("no-columns", about, clustered([]), append, Rows(rows(0, 1, 5, 6)), LatestVersion(1))

    def mapped(table: TableBuilder) -> None:
        fields = [
            column(name, "long", delta__columnMapping__id=number, delta__columnMapping__physicalName=f"col-{name}")
            for number, name in enumerate(("id", "a"), start=1)
        ]
        arrow = [
            pa.field(f"col-{n}", pa.int64(), metadata={"PARQUET:field_id": str(i)})
            for i, n in enumerate(("id", "a"), 1)
        ]
        bounds = {"col-id": 0, "col-a": 0}
        found = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": bounds}
        add = table.add(pa.table([pa.array([0]), pa.array([0])], pa.schema(arrow)), stats=found)
        mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
        protocol = table.protocol([*features, "columnMapping"], ["columnMapping"])
        metadata = table.metadata(schema_text(*fields), configuration={**_KEEP, **mapping})
        table.commit(protocol, metadata, add, domain("delta.clustering", {"clusteringColumns": [["col-a"]]}))

    about = "In a table with column mapping, clustering columns have their physical names"
    steps = (Write("append", rows=[{"id": 1, "a": 5}]), Log("statistics-of", value=["col-a"]))
    kept = Log("domain", value={"delta.clustering": {"clusteringColumns": [["col-a"]]}})
    yield _cluster("mapped", about, mapped, *steps, kept, Rows([{"id": 0, "a": 0}, {"id": 1, "a": 5}]))


# --------------------------------------------------------------------------------------------- transaction identifiers


def _transactions() -> Iterator[Case]:
    def txn(application: str, version: int) -> Action:
        return {"txn": {"appId": application, "version": version, "lastUpdated": 4_000_000_000_000}}

    def recorded(*found: Action, checkpoint: bool = False, compact: bool = False) -> Build:
        """A commit for each transaction identifier."""

        def build(table: TableBuilder) -> None:
            table.commit(table.protocol(), table.metadata(configuration=_KEEP), table.add([{"id": 0}]))
            for each in found:
                table.commit(each)
            if checkpoint:
                table.checkpoint()
                table.drop_commits(*range(len(found) + 1))
                table.commit()
            if compact:
                table.compact(0, len(found))

        return build

    def once(application: str, version: int, *numbers: int) -> Write:
        rows = [{"id": number} for number in numbers]
        return Write("append_once", rows=rows, application=application, application_version=version)

    five = recorded(txn("app", 5))
    new = Rows([{"id": 0}, {"id": 100}])
    old = Rows(ids(0))
    about = "The first append of an application records its identifier"
    yield _txn("first", about, recorded(), once("app", 1, 100), new, Log("transactions", value={"app": 1}))
    about = "An append with a later version of the application is made"
    yield _txn("later", about, five, once("app", 6, 100), new, Log("transactions", value={"app": 6}))
    about = "An append with a recorded version of the application writes no rows"
    yield _txn("same", about, five, once("app", 5, 100), old, Log("transactions", value={"app": 5}), basis=REFERENCE)
    about = "An append with a version before the recorded one writes no rows"
    yield _txn("earlier", about, five, once("app", 4, 100), old, Log("transactions", value={"app": 5}), basis=REFERENCE)
    about = "The identifiers of two applications are separate"
    yield _txn("other", about, five, once("other", 1, 100), new, Log("transactions", value={"app": 5, "other": 1}))
    about = "The engine repeats its own append: its rows are there once"
    yield _txn("repeated", about, recorded(), once("app", 1, 100), once("app", 1, 100), new, basis=REFERENCE)
    about = "An identifier that is only in a checkpoint prevents a repeated append"
    in_checkpoint = recorded(txn("app", 5), checkpoint=True)
    yield _txn("checkpoint", about, in_checkpoint, once("app", 5, 100), old, basis=REFERENCE)
    about = "An identifier in a log compaction file prevents a repeated append"
    yield _txn("compaction", about, recorded(txn("app", 5), compact=True), once("app", 5, 100), old, basis=REFERENCE)
    about = "The latest version of an application counts, even if it is lower than an earlier one"
    decreased = recorded(txn("app", 5), txn("app", 2))
    yield _txn("decreased", about, decreased, once("app", 3, 100), new, section="action-reconciliation")
    about = "A checkpoint has the latest version of an application, even if it is lower than an earlier one"
    in_next = Log("checkpoint-has-txn", value=["app", 2])
    yield _txn("decreased-checkpoint", about, decreased, Write("checkpoint"), in_next, section="action-reconciliation")
    for name, (about, steps) in _VERBS.items():
        about = f"{about} and a checkpoint keep the identifiers of applications"
        checks = (Write("checkpoint"), Log("checkpoint-has-txn", value=["app", 5]))
        yield _txn(f"{name}-keeps", about, five, *steps, *checks)
    about = "A repeated append is recognised after an overwrite"
    steps = (Write("overwrite", rows=[{"id": 7}]), once("app", 5, 100), Rows([{"id": 7}]))
    yield _txn("overwritten", about, five, *steps, basis=REFERENCE)
    about = "A restore does not bring back the identifiers of the version"
    steps = (once("app", 6, 100), Write("restore", version=1), once("app", 6, 100), old)
    yield _txn("restored", about, five, *steps, basis=REFERENCE)

    def raced(table: TableBuilder) -> None:
        recorded(txn("app", 5))(table)
        table.commit(txn("app", 6), table.add([{"id": 100}]), later="winner")

    append = Write("append_once", rows=[{"id": 100}], application="app", application_version=6, begun=True)
    about = "Two writers append the same version of an application: refused, or the rows are there once"
    steps = (Begin(), Put("winner"), MayRefuse(append), new)
    yield _txn("race", about, raced, *steps)
    about = "Two writers append for different applications: refused, or both take effect"

    def other(table: TableBuilder) -> None:
        recorded(txn("app", 5))(table)
        table.commit(txn("other", 1), table.add([{"id": 50}]), later="winner")

    rows = [{"id": 0}, {"id": 50}, {"id": 100}]
    steps = (Begin(), Put("winner"), MayRefuse(append), Log("rows-among", value=rows))
    yield _txn("race-other", about, other, *steps)
