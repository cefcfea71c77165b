"""Cases about writing: the contents of commits, the rules of the table, and writes that must be refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from deltalog.conformance.builder import TableBuilder
from deltalog.conformance.case import (
    REFERENCE,
    WRITING,
    Case,
    Create,
    LatestVersion,
    Log,
    MayRefuse,
    Refused,
    Rows,
    Step,
    Write,
)
from deltalog.conformance.cases.checkpoints import KEEP
from deltalog.conformance.cases.common import CDF, Build, Cases, Timeline, ids
from deltalog.conformance.cases.features import VECTORS

_case = Cases("write", WRITING, "add-file-and-remove-file")
THREE = Timeline(at=(0, 1, 2), properties=KEEP)
PARTS = pa.schema([("id", pa.int64()), ("p", pa.string())])


def cases() -> Iterator[Case]:
    yield from _creation()
    yield from _appends()
    yield from _deletes()
    yield from _overwrites()
    yield from _other_verbs()
    yield from _rules()


def append(*rows: dict[str, Any]) -> Write:
    return Write("append", rows=rows)


def _rows(*rows: Any) -> tuple[Step, Step]:
    """Steps that compare the rows that the engine reads with the rows that deltalog reads."""
    return Rows(list(rows)), Log("rows", value=list(rows))


def parts(table: TableBuilder) -> None:
    """Rows 0 and 1 in the partition a, row 2 in b."""
    metadata = table.metadata(PARTS, ["p"])
    one, two = table.add([{"id": 0}, {"id": 1}], {"p": "a"}), table.add([{"id": 2}], {"p": "b"})
    table.commit(table.protocol(), metadata, one, two)


def _creation() -> Iterator[Case]:
    create = Create({"id": "long"})
    section = "creation-of-new-log-entries"
    yield _case(
        "create",
        "A table is created by one commit, version 0",
        None,
        create,
        Log("latest-version", value=0),
        Rows([]),
        section=section,
    )
    yield _case(
        "create-actions",
        "Version 0 has one protocol and one metaData",
        None,
        create,
        Log("actions", 0, {"protocol": 1, "metaData": 1}),
        section="delta-log-entries-1",
    )
    yield _case(
        "create-append",
        "Create a table, then append",
        None,
        create,
        append({"id": 1}),
        append({"id": 2}),
        *_rows({"id": 1}, {"id": 2}),
    )
    types = {"id": "long", "s": "string", "d": "double", "b": "boolean"}
    row = {"id": 1, "s": "ü", "d": 0.5, "b": True}
    yield _case(
        "create-types",
        "A table of four types",
        None,
        Create(types),
        append(row),
        *_rows(row),
        section="schema-serialization-format",
    )
    steps = (
        Create({"id": "long", "p": "string"}, ("p",)),
        append({"id": 1, "p": "a"}),
        Log("partition-values", value=[{"p": "a"}]),
    )
    yield _case(
        "create-partitioned",
        "A partitioned table is created",
        None,
        *steps,
        *_rows({"id": 1, "p": "a"}),
        section="partition-value-serialization",
    )
    appends = Create({"id": "long"}, properties={"delta.appendOnly": "true"})
    yield _case(
        "create-property",
        "A table is created with a property",
        None,
        appends,
        Log("property", value={"delta.appendOnly": "true"}),
        section="table-properties",
    )
    yield _case(
        "create-exists",
        "Creating a table where one exists is refused",
        THREE,
        Refused(create),
        *_rows(*ids(2)),
        section=section,
        basis=REFERENCE,
    )


def _appends() -> Iterator[Case]:
    new = append({"id": 7})
    section = "creation-of-new-log-entries"
    yield _case("append", "An append keeps the existing rows", THREE, new, *_rows(*ids(2), {"id": 7}), LatestVersion(3))
    yield _case(
        "append-version",
        "An append is a single commit",
        THREE,
        new,
        Log("latest-version", value=3),
        Log("contiguous"),
        section=section,
    )
    yield _case(
        "append-actions",
        "An append adds files and changes neither protocol nor metaData",
        THREE,
        new,
        Log("actions", value={"remove": 0, "metaData": 0, "protocol": 0}),
    )
    yield _case(
        "append-files",
        "The files of an append are below the table and have the size in the log",
        THREE,
        new,
        Log("paths-are-relative-and-there"),
    )
    rows = [{"id": n} for n in range(50)]
    yield _case(
        "append-statistics",
        "The statistics of files count their rows",
        THREE,
        append(*rows),
        Log("statistics-count-rows", value=50),
        section="per-file-statistics",
    )
    yield _case(
        "append-null",
        "A null is appended",
        THREE,
        append({"id": 1}, {"id": None}),
        *_rows(*ids(2), {"id": 1}, {"id": None}),
    )
    wanted = [{"p": "c d"}, {"p": "ü/="}]
    partitioned = append({"id": 3, "p": "c d"}, {"id": 4, "p": "ü/="})
    known = [{"id": 0, "p": "a"}, {"id": 1, "p": "a"}, {"id": 2, "p": "b"}]
    yield _case(
        "append-partitions",
        "An append to new partitions whose names are percent-encoded in paths",
        parts,
        partitioned,
        Log("partition-values", value=wanted),
        *_rows(*known, {"id": 3, "p": "c d"}, {"id": 4, "p": "ü/="}),
        section="partition-value-serialization",
    )
    yield _case(
        "append-partition-null",
        "An append to the null partition",
        parts,
        append({"id": 3, "p": None}, {"id": 4, "p": "a"}),
        *_rows(*known, {"id": 3, "p": None}, {"id": 4, "p": "a"}),
        section="partition-value-serialization",
    )
    many = [append({"id": n}) for n in range(3, 9)]
    yield _case(
        "append-six",
        "Six appends are six versions",
        THREE,
        *many,
        Log("latest-version", value=8),
        Log("contiguous"),
        *_rows(*ids(8)),
        section=section,
    )
    yield _case(
        "append-twelve",
        "Twelve appends, more than the checkpoint interval",
        THREE,
        *(append({"id": n}) for n in range(3, 15)),
        Log("latest-version", value=14),
        *_rows(*ids(14)),
        section="checkpoints",
    )
    yield _case(
        "append-after-checkpoint",
        "An append to a log that begins with a checkpoint",
        THREE.but(checkpoints=(2,), dropped=(0, 1)),
        new,
        *_rows(*ids(2), {"id": 7}),
        section="checkpoints",
    )
    yield _case(
        "append-compacted",
        "An append after a log compaction file",
        _compacted,
        new,
        *_rows(*ids(2), {"id": 7}),
        section="log-compaction-files",
    )

    def identified(table: TableBuilder) -> None:
        table.commit(
            table.protocol(), table.metadata(), table.add([{"id": 0}]), {"txn": {"appId": "app", "version": 3}}
        )

    yield _case(
        "append-keeps-txn",
        "An append keeps transaction identifiers",
        identified,
        new,
        Write("checkpoint"),
        Log("checkpoint-has-txn", value=["app", 3]),
        section="transaction-identifiers",
    )
    yield _case(
        "append-cdf",
        "An append to a table with a change data feed",
        Timeline(at=(0, 1), properties=CDF),
        new,
        *_rows(*ids(1), {"id": 7}),
        section="add-cdc-file",
    )
    wrong = append({"id": "seven"})
    yield _case(
        "append-wrong-type",
        "A string that is not a number is refused in a numeric column",
        THREE,
        Refused(wrong),
        *_rows(*ids(2)),
        section="consistency-between-table-metadata-and-data-files",
    )
    yield _case(
        "append-new-column",
        "A column that the table lacks is not silently dropped",
        THREE,
        MayRefuse(append({"id": 7, "x": 1})),
        Log("no-column-lost", value="x"),
        section="consistency-between-table-metadata-and-data-files",
        basis=REFERENCE,
    )


def _compacted(table: TableBuilder) -> None:
    THREE(table)
    table.compact(0, 2)


def _deletes() -> Iterator[Case]:
    delete = Write("delete", where="id = 1")
    for name, about, properties, features in (
        ("", "", {}, None),
        ("-vectors", " of a table with deletion vectors", VECTORS, ["deletionVectors"]),
        ("-cdf", " of a table with a change data feed", CDF, None),
    ):

        def build(table: TableBuilder, properties: Any = properties, features: Any = features) -> None:
            versions = (1, 4) if features is None else None
            metadata = table.metadata(configuration=properties)
            table.commit(
                table.protocol(features, features, versions), metadata, table.add([{"id": n} for n in range(4)])
            )

        left = [{"id": 0}, {"id": 2}, {"id": 3}]
        yield _case(
            f"delete{name}",
            f"A delete of one row of a file{about}",
            build,
            delete,
            *_rows(*left),
            Log("latest-version", value=1),
        )
        gone = Write("delete", where="id >= 0")
        yield _case(f"delete-all{name}", f"A delete of all rows{about}", build, gone, *_rows())
        yield _case(
            f"delete-old-version{name}",
            f"A delete keeps earlier versions{about}",
            build,
            delete,
            Rows(ids(3), version=0),
        )
        nothing = Write("delete", where="id > 1000")
        yield _case(f"delete-none{name}", f"A delete that matches no row{about}", build, nothing, *_rows(*ids(3)))
    by_partition = Write("delete", where="p = 'a'")
    yield _case("delete-partition", "A delete of a partition", parts, by_partition, *_rows({"id": 2, "p": "b"}))
    yield _case(
        "delete-in-partition",
        "A delete of a row in a partition",
        parts,
        delete,
        *_rows({"id": 0, "p": "a"}, {"id": 2, "p": "b"}),
    )

    def nullable(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 1}, {"id": 2}, {"id": None}]))

    yield _case(
        "delete-null",
        "A row is not deleted if the condition is null",
        nullable,
        Write("delete", where="id > 1"),
        *_rows({"id": 1}, {"id": None}),
    )

    def appends_only(table: TableBuilder) -> None:
        table.commit(
            table.protocol(), table.metadata(configuration={"delta.appendOnly": "true"}), table.add([{"id": 1}])
        )

    yield _case(
        "delete-append-only",
        "A delete from an append-only table is refused",
        appends_only,
        Refused(delete),
        *_rows({"id": 1}),
        section="append-only-tables",
        rule="append-only-violated",
    )
    overwrite = Refused(Write("overwrite", rows=[{"id": 7}]))
    yield _case(
        "overwrite-append-only",
        "An overwrite of an append-only table is refused",
        appends_only,
        overwrite,
        *_rows({"id": 1}),
        section="append-only-tables",
        rule="append-only-violated",
    )
    yield _case(
        "append-append-only",
        "An append to an append-only table",
        appends_only,
        append({"id": 2}),
        *_rows({"id": 1}, {"id": 2}),
        section="append-only-tables",
    )


def _overwrites() -> Iterator[Case]:
    overwrite = Write("overwrite", rows=[{"id": 7}])
    yield _case(
        "overwrite",
        "An overwrite replaces all rows in one commit",
        THREE,
        overwrite,
        *_rows({"id": 7}),
        Log("latest-version", value=3),
    )
    yield _case(
        "overwrite-old-version", "An overwrite keeps earlier versions", THREE, overwrite, Rows(ids(2), version=2)
    )
    yield _case(
        "overwrite-actions",
        "An overwrite removes the earlier files",
        THREE,
        overwrite,
        Log("actions", value={"remove": 3}),
    )
    parted = Write("overwrite", rows=[{"id": 7, "p": "z"}])
    yield _case(
        "overwrite-partitioned",
        "An overwrite of a whole partitioned table",
        parts,
        parted,
        *_rows({"id": 7, "p": "z"}),
    )


def _other_verbs() -> Iterator[Case]:
    change = Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"})
    wanted = {"delta.logRetentionDuration": "interval 9 days", **KEEP}
    yield _case(
        "property",
        "Setting a property keeps the others",
        THREE,
        change,
        Log("property", value=wanted),
        Log("actions", value={"add": 0, "remove": 0, "metaData": 1}),
        *_rows(*ids(2)),
        section="table-properties",
    )
    remove = Write("set_properties", properties={"delta.enableExpiredLogCleanup": None})
    yield _case(
        "property-removed",
        "A property is removed",
        THREE,
        remove,
        Log("property", value={"delta.enableExpiredLogCleanup": None}),
        section="table-properties",
    )
    yield _case(
        "restore",
        "A restore is a new version with the rows of the old one",
        THREE,
        Write("restore", version=1),
        *_rows(*ids(1)),
        Log("latest-version", value=3),
        basis=REFERENCE,
    )
    steps = (Write("overwrite", rows=[{"id": 9}]), Write("restore", version=2))
    yield _case(
        "restore-overwritten",
        "A restore to a version from before an overwrite",
        THREE,
        *steps,
        *_rows(*ids(2)),
        basis=REFERENCE,
    )
    yield _case(
        "restore-unknown",
        "Restoring a version that does not exist is refused",
        THREE,
        Refused(Write("restore", version=99)),
        *_rows(*ids(2)),
        basis=REFERENCE,
    )


def _rules() -> Iterator[Case]:
    """Constraints on rows."""

    def schema(**metadata: Any) -> str:
        fields = [
            {"name": "id", "type": "long", "nullable": True, "metadata": metadata},
            {"name": "v", "type": "long", "nullable": True, "metadata": {}},
        ]
        return json.dumps({"type": "struct", "fields": fields})

    def table(text: str, versions: tuple[int, int], **properties: str) -> Build:
        def build(made: TableBuilder) -> None:
            rows = pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([2], pa.int64())})
            made.commit(made.protocol(versions=versions), made.metadata(text, configuration=properties), made.add(rows))

        return build

    first = {"id": 1, "v": 2}
    good, bad, null = {"id": 5, "v": 6}, {"id": -5, "v": 6}, {"id": None, "v": 6}
    checked = table(schema(), (1, 3), **{"delta.constraints.positive": "id > 0"})
    yield _case(
        "check",
        "Rows that satisfy a CHECK constraint are written, or the table is refused",
        checked,
        MayRefuse(append(good)),
        Log("rows-among", value=[first, good]),
        section="check-constraints",
    )
    yield _case(
        "check-broken",
        "A row that violates a CHECK constraint is refused",
        checked,
        Refused(append(good, bad)),
        *_rows(first),
        section="check-constraints",
        rule="constraint-violated",
    )
    yield _case(
        "check-null",
        "A row is refused if a CHECK constraint is null",
        checked,
        Refused(append(null)),
        *_rows(first),
        section="check-constraints",
        rule="constraint-violated",
    )
    invariant = table(schema(**{"delta.invariants": json.dumps({"expression": {"expression": "id > 0"}})}), (1, 2))
    yield _case(
        "invariant-broken",
        "A row that violates an invariant is refused",
        invariant,
        Refused(append(bad)),
        *_rows(first),
        section="column-invariants",
    )
    text = schema().replace('"nullable": true', '"nullable": false', 1)
    yield _case(
        "not-null",
        "A null in a non-nullable column is refused",
        table(text, (1, 2)),
        Refused(append(null)),
        *_rows(first),
        section="column-invariants",
        rule="data-null-in-required-column",
    )
    text = json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": "id", "type": "long", "nullable": True, "metadata": {}},
                {"name": "v", "type": "long", "nullable": True, "metadata": {"delta.generationExpression": "id + 1"}},
            ],
        }
    )
    generated = table(text, (1, 4))
    yield _case(
        "generated-wrong",
        "A row that contradicts a generated column is refused",
        generated,
        Refused(append({"id": 5, "v": 9})),
        *_rows(first),
        section="generated-columns",
        rule="generated-value-wrong",
    )
    yield _case(
        "generated-right",
        "A row that agrees with a generated column is written, or the table is refused",
        generated,
        MayRefuse(append(good)),
        Log("rows-among", value=[first, good]),
        section="generated-columns",
    )
