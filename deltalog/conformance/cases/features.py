"""Cases about table features and protocol versions that engines must support or refuse."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from deltalog.conformance.builder import Action, TableBuilder
from deltalog.conformance.case import FEATURES, Case, LatestVersion, Log, Refused, Row, Rows, Write
from deltalog.conformance.cases.common import Build, Cases, ids

_case = Cases("feature", FEATURES, "table-features")
VECTORS = {"delta.enableDeletionVectors": "true"}
_APPEND = Write("append", rows=[{"id": 100}])


def cases() -> Iterator[Case]:
    yield from _vectors()
    yield from _mapping()
    yield from _versions()
    yield from _unknown()
    yield from _for_writers_only()
    yield from _types()


# --------------------------------------------------------------------------------------------- deletion vectors


def _vectors() -> Iterator[Case]:
    section = "deletion-vectors"

    def begun(table: TableBuilder, number: int = 10, **more: Any) -> Action:
        added = table.add([{"id": n} for n in range(number)], **more)
        metadata = table.metadata(configuration=VECTORS)
        table.commit(table.protocol(["deletionVectors"], ["deletionVectors"]), metadata, added)
        return added

    for storage, about in (("i", "inline"), ("u", "in a file with a relative path")):

        def build(table: TableBuilder, storage: str = storage) -> None:
            added = begun(table)
            table.commit(table.remove(added), table.with_deleted(added, [0, 3, 9], storage))

        rows = [{"id": n} for n in (1, 2, 4, 5, 6, 7, 8)]
        steps = (Rows(rows), Rows(ids(9), version=0))
        yield _case(f"vector-{storage}", f"A deletion vector {about}", build, *steps, section=section)

    def replaced(table: TableBuilder) -> None:
        added = begun(table)
        first = table.with_deleted(added, [1])
        table.commit(table.remove(added), first)
        table.commit(table.remove(first), table.with_deleted(added, [1, 2]))

    yield _case(
        "vector-replaced",
        "A deletion vector is replaced by one with more rows",
        replaced,
        Rows([{"id": n} for n in (0, *range(3, 10))]),
        Rows([{"id": n} for n in (0, *range(2, 10))], version=1),
        section=section,
    )

    def dropped(table: TableBuilder) -> None:
        added = begun(table)
        first = table.with_deleted(added, [1, 2])
        table.commit(table.remove(added), first)
        table.commit(table.remove(first), added)

    yield _case(
        "vector-dropped",
        "A restore brings a file back without its deletion vector",
        dropped,
        Rows(ids(9)),
        section=section,
    )

    def wrong_remove(table: TableBuilder) -> None:
        added = begun(table)
        table.commit(table.remove(added), table.with_deleted(added, [0]))
        table.commit(table.remove(added))

    about = "A tombstone without a deletion vector does not remove a file that has one"
    yield _case(
        "vector-other-key",
        about,
        wrong_remove,
        Rows([{"id": n} for n in range(1, 10)]),
        section="action-reconciliation",
        rule="remove-not-live",
    )

    def every(table: TableBuilder) -> None:
        added = begun(table, 3)
        table.commit(table.remove(added), table.with_deleted(added, [0, 1, 2]))

    yield _case("vector-all-rows", "A deletion vector of all rows of a file", every, Rows([]), section=section)

    def large(table: TableBuilder) -> None:
        added = begun(table, 70_000)
        table.commit(table.remove(added), table.with_deleted(added, range(10, 70_000)))

    yield _case(
        "vector-range", "A deletion vector of 69,990 rows", large, Rows(ids(9)), section="deletion-vector-format"
    )

    def sparse(table: TableBuilder) -> None:
        added = begun(table, 200)
        table.commit(table.remove(added), table.with_deleted(added, range(0, 200, 2), "u"))

    yield _case(
        "vector-sparse",
        "A deletion vector of every second row",
        sparse,
        Rows([{"id": n} for n in range(1, 200, 2)]),
        section="deletion-vector-format",
    )

    def partitioned(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        one = table.add([{"id": 0}, {"id": 1}], {"p": "a"}, file_schema=schema)
        two = table.add([{"id": 2}, {"id": 3}], {"p": "b"}, file_schema=schema)
        metadata = table.metadata(schema, ["p"], VECTORS)
        table.commit(
            table.protocol(["deletionVectors"], ["deletionVectors"]), metadata, one, table.with_deleted(two, [0])
        )

    three: list[Row] = [{"id": 0, "p": "a"}, {"id": 1, "p": "a"}, {"id": 3, "p": "b"}]
    yield _case(
        "vector-partitioned", "A deletion vector in one of two partitions", partitioned, Rows(three), section=section
    )

    def off(table: TableBuilder) -> None:
        added = begun(table)
        table.commit(table.remove(added), table.with_deleted(added, [0]))
        table.commit(table.metadata(configuration={}))

    about = "Deletion vectors apply even if the property is off"
    yield _case("vector-property-off", about, off, Rows([{"id": n} for n in range(1, 10)]), section=section)

    def gone(table: TableBuilder) -> None:
        added = begun(table)
        table.commit(table.remove(added), table.with_deleted(added, [0], "u"))
        next(table.root.glob("deletion_vector_*.bin")).unlink()

    about = "If the file of a deletion vector is missing, deleted rows do not reappear"
    yield _case("vector-missing", about, gone, Refused(Rows(ids(9))), section=section, rule="vector-file-missing")

    def damaged(table: TableBuilder) -> None:
        added = begun(table)
        table.commit(table.remove(added), table.with_deleted(added, [0], "u"))
        file = next(table.root.glob("deletion_vector_*.bin"))
        file.write_bytes(file.read_bytes()[:5] + b"\xff" * 12)

    about = "A damaged deletion vector file is refused"
    yield _case("vector-damaged", about, damaged, Refused(Rows(ids(9))), section=section, rule="vector-unreadable")
    about = "An append to a table with deletion vectors"

    def once(table: TableBuilder) -> None:
        added = begun(table, 3)
        table.commit(table.remove(added), table.with_deleted(added, [0]))

    rows = [{"id": n} for n in (1, 2, 100)]
    yield _case("vector-append", about, once, _APPEND, Rows(rows), Log("rows", value=rows), section=section)
    kept = [{"id": 2}]
    about = "A delete from a file that has a deletion vector"
    yield _case(
        "vector-delete",
        about,
        once,
        Write("delete", where="id = 1"),
        Rows(kept),
        Log("rows", value=kept),
        section=section,
    )


# --------------------------------------------------------------------------------------------- column mapping


def _mapping() -> Iterator[Case]:
    section = "column-mapping"

    def fields(*columns: tuple[str, str, int, Any]) -> str:
        return json.dumps(
            {
                "type": "struct",
                "fields": [
                    {
                        "name": name,
                        "type": kind,
                        "nullable": True,
                        "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical},
                    }
                    for name, physical, number, kind in columns
                ],
            }
        )

    def properties(mode: str, largest: int = 2) -> dict[str, str]:
        return {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": str(largest)}

    def file(*columns: tuple[str, int, list[Any]]) -> pa.Table:
        """The columns by physical name, with field ids."""
        schema = [
            pa.field(name, pa.array(values).type, metadata={"PARQUET:field_id": str(number)})
            for name, number, values in columns
        ]
        return pa.table([pa.array(values) for _, _, values in columns], schema=pa.schema(schema))

    two = (("id", "col-a", 1, "long"), ("v", "col-b", 2, "string"))
    for mode in ("name", "id"):

        def build(table: TableBuilder, mode: str = mode) -> None:
            data = file(("col-a", 1, [1]), ("col-b", 2, ["x"]))
            metadata = table.metadata(fields(*two), configuration=properties(mode))
            table.commit(table.protocol(versions=(2, 5)), metadata, table.add(data))

        rows = [{"id": 1, "v": "x"}]
        yield _case(f"mapping-{mode}", f"Column mapping by {mode}", build, Rows(rows), section=section)

        def renamed(table: TableBuilder, build: Build = build, mode: str = mode) -> None:
            build(table)
            other = (("key", "col-a", 1, "long"), ("v", "col-b", 2, "string"))
            table.commit(table.metadata(fields(*other), configuration=properties(mode)))

        steps = (Rows([{"key": 1, "v": "x"}]), Rows(rows, version=0))
        yield _case(f"mapping-{mode}-renamed", f"A renamed column, mapped by {mode}", renamed, *steps, section=section)

        def swapped(table: TableBuilder, mode: str = mode) -> None:
            columns = (("a", "col-b", 2, "long"), ("b", "col-a", 1, "long"))
            metadata = table.metadata(fields(*columns), configuration=properties(mode))
            data = file(("col-a", 1, [1]), ("col-b", 2, [2]))
            table.commit(table.protocol(versions=(2, 5)), metadata, table.add(data))

        yield _case(
            f"mapping-{mode}-swapped",
            f"Two columns of one type, mapped by {mode}",
            swapped,
            Rows([{"a": 2, "b": 1}]),
            section=section,
        )

        def dropped(table: TableBuilder, build: Build = build, mode: str = mode) -> None:
            build(table)
            columns = (("id", "col-a", 1, "long"), ("v", "col-c", 3, "string"))
            table.commit(table.metadata(fields(*columns), configuration=properties(mode, 3)))
            table.commit(table.add(file(("col-a", 1, [2]), ("col-c", 3, ["new"]))))

        about = f"A column dropped and re-added with the same name, mapped by {mode}"
        rows = [{"id": 1, "v": None}, {"id": 2, "v": "new"}]
        yield _case(f"mapping-{mode}-dropped", about, dropped, Rows(rows), section=section)

        def partitioned(table: TableBuilder, mode: str = mode) -> None:
            metadata = table.metadata(fields(*two), ["v"], properties(mode))
            add = table.add(file(("col-a", 1, [1])), {"col-b": "p"})
            table.commit(table.protocol(versions=(2, 5)), metadata, add)

        about = f"A partition column, with its physical name in the log, mapped by {mode}"
        yield _case(f"mapping-{mode}-partition", about, partitioned, Rows([{"id": 1, "v": "p"}]), section=section)

    def by_id(table: TableBuilder) -> None:
        data = file(("any", 1, [1]), ("other", 2, ["x"]))
        metadata = table.metadata(fields(*two), configuration=properties("id"))
        table.commit(table.protocol(versions=(2, 5)), metadata, table.add(data))

    about = "Mapped by id: the names in the file are ignored"
    yield _case("mapping-id-only", about, by_id, Rows([{"id": 1, "v": "x"}]), section=section)

    def listed(table: TableBuilder) -> None:
        data = file(("col-a", 1, [1]), ("col-b", 2, ["x"]))
        metadata = table.metadata(fields(*two), configuration=properties("name"))
        table.commit(table.protocol(["columnMapping"], ["columnMapping"]), metadata, table.add(data))

    yield _case(
        "mapping-as-feature", "Column mapping as a table feature", listed, Rows([{"id": 1, "v": "x"}]), section=section
    )

    def none(table: TableBuilder) -> None:
        data = pa.table({"id": pa.array([1], pa.int64()), "v": ["x"]})
        metadata = table.metadata(fields(*two), configuration={"delta.columnMapping.mode": "none"})
        table.commit(table.protocol(versions=(2, 5)), metadata, table.add(data))

    about = "Mode none: physical names in the schema are ignored"
    yield _case("mapping-none", about, none, Rows([{"id": 1, "v": "x"}]), section=section)


# --------------------------------------------------------------------------------------------- protocol versions


def _versions() -> Iterator[Case]:
    for reader, writer in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)):

        def build(table: TableBuilder, reader: int = reader, writer: int = writer) -> None:
            table.commit(table.protocol(versions=(reader, writer)), table.metadata(), table.add([{"id": 0}]))

        about = f"A table with reader version {reader} and writer version {writer}"
        yield _case(f"version-{reader}-{writer}", about, build, Rows(ids(0)), section="protocol-evolution")

    def new_reader(table: TableBuilder) -> None:
        table.commit(table.protocol(["x"], ["x"], versions=(4, 8)), table.metadata(), table.add([{"id": 0}]))

    about = "An unknown reader version is refused"
    yield _case(
        "version-new-reader",
        about,
        new_reader,
        Refused(Rows(ids(0))),
        section="reader-version-requirements",
        rule="protocol-version-unknown",
    )

    def empty(table: TableBuilder) -> None:
        table.commit(table.protocol([], []), table.metadata(), table.add([{"id": 0}]))

    yield _case("version-3-7-no-features", "A table with empty feature lists", empty, Rows(ids(0)))

    def upgraded(table: TableBuilder) -> None:
        table.commit(table.protocol(versions=(1, 1)), table.metadata(), table.add([{"id": 0}]))
        table.commit(table.protocol(["deletionVectors"], ["deletionVectors"]))
        table.commit(table.add([{"id": 1}]))

    about = "A table that was upgraded to table features"
    yield _case(
        "version-upgraded",
        about,
        upgraded,
        Rows(ids(1)),
        Rows(ids(0), version=0),
        LatestVersion(2),
        section="protocol-evolution",
    )


def _unknown() -> Iterator[Case]:
    def listing(writers: list[str], readers: list[str] | None) -> Build:
        return lambda table: (
            table.commit(table.protocol(writers, readers), table.metadata(), table.add([{"id": 0}])),
            None,
        )[1]

    both = listing(["neverHeardOf"], ["neverHeardOf"])
    about = "A table with an unknown reader feature is not read"
    yield _case("unknown-reader", about, both, Refused(Rows(ids(0))), rule="feature-unknown")
    about = "A table with an unknown reader feature is not written"
    yield _case(
        "unknown-reader-write", about, both, Refused(_APPEND), Log("latest-version", value=0), rule="feature-unknown"
    )
    among = listing(["deletionVectors", "neverHeardOf"], ["deletionVectors", "neverHeardOf"])
    about = "An unknown reader feature next to a known one"
    yield _case("unknown-reader-among", about, among, Refused(Rows(ids(0))), rule="feature-unknown")
    writer = listing(["neverHeardOf"], None)
    about = "A table with an unknown writer feature is read"
    yield _case("unknown-writer-read", about, writer, Rows(ids(0)), rule="feature-unknown")
    about = "A table with an unknown writer feature is not written"
    yield _case(
        "unknown-writer-write", about, writer, Refused(_APPEND), Log("latest-version", value=0), rule="feature-unknown"
    )
    about = "A table with an unknown writer feature: no row is deleted"
    deleted = Refused(Write("delete", where="id = 0"))
    yield _case("unknown-writer-delete", about, writer, deleted, Log("latest-version", value=0), rule="feature-unknown")
    about = "A table with an unknown writer feature: no property is set"
    refused = Refused(Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"}))
    yield _case(
        "unknown-writer-property", about, writer, refused, Log("latest-version", value=0), rule="feature-unknown"
    )

    def new_writer(table: TableBuilder) -> None:
        table.commit(table.protocol(versions=(1, 8)), table.metadata(), table.add([{"id": 0}]))

    about = "A table with an unknown writer version is not written"
    yield _case(
        "version-new-writer",
        about,
        new_writer,
        Refused(_APPEND),
        Log("latest-version", value=0),
        section="writer-version-requirements",
    )


# --------------------------------------------------------------------------------------------- features for writers


def _for_writers_only() -> Iterator[Case]:
    """Writer-only features, which readers may ignore."""
    features = {
        "appendOnly": {"delta.appendOnly": "true"},
        "invariants": {},
        "checkConstraints": {"delta.constraints.positive": "id >= 0"},
        "generatedColumns": {},
        "allowColumnDefaults": {},
        "changeDataFeed": {"delta.enableChangeDataFeed": "true"},
        "identityColumns": {},
        "rowTracking": {},
        "domainMetadata": {},
        "icebergCompatV1": {},
        "clustering": {},
        "inCommitTimestamp": {},
    }
    needed = {"rowTracking": ["domainMetadata"], "clustering": ["domainMetadata"], "icebergCompatV1": ["columnMapping"]}
    for name, properties in features.items():

        def build(table: TableBuilder, name: str = name, properties: dict[str, str] = properties) -> None:
            others = needed.get(name, [])
            readers = [other for other in others if other == "columnMapping"]
            protocol = table.protocol([name, *others], readers or None)
            table.commit(protocol, table.metadata(configuration=properties), table.add([{"id": 0}]))

        yield _case(f"reads-{name.lower()}", f"A table with {name} is read", build, Rows(ids(0)))

    def generated(table: TableBuilder) -> None:
        field = {"name": "g", "type": "long", "nullable": True, "metadata": {"delta.generationExpression": "id + 1"}}
        schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}, field]}
        rows = pa.table({"id": pa.array([1], pa.int64()), "g": pa.array([2], pa.int64())})
        table.commit(table.protocol(versions=(1, 4)), table.metadata(json.dumps(schema)), table.add(rows))

    about = "A generated column is read from the files"
    yield _case("reads-generated-values", about, generated, Rows([{"id": 1, "g": 2}]), section="generated-columns")

    def tracked(table: TableBuilder) -> None:
        configuration = {
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_row-id",
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit",
        }
        domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":0}', "removed": False}
        add = table.add([{"id": 0}], baseRowId=0, defaultRowCommitVersion=0)
        table.commit(
            table.protocol(["rowTracking", "domainMetadata"]),
            table.metadata(configuration=configuration),
            add,
            {"domainMetadata": domain},
        )

    about = "Row ids are not columns of the table"
    yield _case("reads-row-ids", about, tracked, Rows(ids(0)), section="row-tracking")


# --------------------------------------------------------------------------------------------- types with features


def _types() -> Iterator[Case]:
    instant = datetime.datetime(2025, 1, 15, 12, 0, 0, 123456)

    def zoneless(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us"))])
        rows = [{"id": 0, "t": instant}, {"id": 1, "t": None}]
        table.commit(table.protocol(["timestampNtz"], ["timestampNtz"]), table.metadata(schema), table.add(rows))

    rows: list[Row] = [{"id": 0, "t": instant}, {"id": 1, "t": None}]
    section = "timestamp-without-timezone-timestampntz"
    yield _case("timestamp-ntz", "Timestamps without a time zone", zoneless, Rows(rows), section=section)

    def partitioned(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us"))])
        add = table.add([{"id": 0}], {"t": "2025-01-15 12:00:00.123456"})
        table.commit(table.protocol(["timestampNtz"], ["timestampNtz"]), table.metadata(schema, ["t"]), add)

    about = "A partition by a timestamp without a time zone"
    yield _case("timestamp-ntz-partition", about, partitioned, Rows(rows[:1]), section=section)
    widenings: dict[str, tuple[str, str, pa.DataType, pa.DataType, Any, Any]] = {
        "byte-to-long": ("byte", "long", pa.int8(), pa.int64(), -5, 2**40),
        "short-to-integer": ("short", "integer", pa.int16(), pa.int32(), -5, 2**20),
        "integer-to-long": ("integer", "long", pa.int32(), pa.int64(), 7, 2**40),
        "float-to-double": ("float", "double", pa.float32(), pa.float64(), 1.5, 0.1),
        "integer-to-double": ("integer", "double", pa.int32(), pa.float64(), 3, 0.1),
    }
    for name, (old, new, old_kind, new_kind, first, second) in widenings.items():

        def build(
            table: TableBuilder,
            old: str = old,
            new: str = new,
            kinds: Any = (old_kind, new_kind),
            values: Any = (first, second),
        ) -> None:
            table.metadata(pa.schema([("v", kinds[0])]))
            before = {"name": "v", "type": old, "nullable": True, "metadata": {}}
            change = {"fromType": old, "toType": new, "tableVersion": 1}
            after = {"name": "v", "type": new, "nullable": True, "metadata": {"delta.typeChanges": [change]}}
            one, two = (table.add(pa.table({"v": pa.array([v], kind)})) for v, kind in zip(values, kinds, strict=True))
            on = {"delta.enableTypeWidening": "true"}
            schemas = [json.dumps({"type": "struct", "fields": [field]}) for field in (before, after)]
            table.commit(
                table.protocol(["typeWidening"], ["typeWidening"]), table.metadata(schemas[0], configuration=on), one
            )
            table.commit(table.metadata(schemas[1]), two)

        rows = [{"v": float(first) if new == "double" else first}, {"v": second}]
        yield _case(
            f"widened-{name}",
            f"A column widened from {old} to {new}",
            build,
            Rows(rows),
            section="type-widening",
        )
