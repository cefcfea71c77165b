"""More cases about table features: deletion vectors of every storage type, column mapping at every depth, Iceberg
compatibility, collations, geometry, protected checkpoints, and sidecars."""

from __future__ import annotations

import json
import struct
import urllib.parse
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.conformance.builder import MINUTE, Action, TableBuilder
from deltalog.conformance.case import (
    CHECKPOINTS,
    FEATURES,
    REFERENCE,
    Case,
    LatestVersion,
    Log,
    MayRefuse,
    Refused,
    Row,
    Rows,
    Step,
    Write,
)
from deltalog.conformance.cases.common import (
    FUTURE,
    Build,
    Cases,
    column,
    columns,
    ids,
    list_of,
    map_of,
    schema_text,
)
from deltalog.parquet.footers import open_parquet
from deltalog.protocol import deletion_vectors

_case = Cases("feature", FEATURES, "table-features")
_checkpoint = Cases("checkpoint", CHECKPOINTS, "v2-spec")
_KEEP = {"delta.enableExpiredLogCleanup": "false"}
_VECTORS = {"delta.enableDeletionVectors": "true"}
_APPEND = Write("append", rows=[{"id": 100}])


def cases() -> Iterator[Case]:
    yield from _vectors()
    yield from _written_vectors()
    yield from _nested_mapping()
    yield from _written_mapping()
    yield from _iceberg()
    yield from _collations()
    yield from _geometry()
    yield from _acknowledged()
    yield from _protected()
    yield from _sidecars()


# --------------------------------------------------------------------------------------------- deletion vectors


def _ten(table: TableBuilder, number: int = 10, **properties: str) -> Action:
    added = table.add([{"id": n} for n in range(number)])
    metadata = table.metadata(configuration={**_VECTORS, **_KEEP, **properties})
    table.commit(table.protocol(["deletionVectors"], ["deletionVectors"]), metadata, added)
    return added


def _bitmap(*buckets: bytes) -> bytes:
    """A deletion vector with one 32-bit bitmap for each bucket."""
    parts = [struct.pack("<i", number) + bucket for number, bucket in enumerate(buckets)]
    return struct.pack("<iq", 1681511377, len(buckets)) + b"".join(parts)


def _arrays(*containers: tuple[int, Sequence[int]]) -> bytes:
    """A 32-bit bitmap without runs: for each key, the low 16 bits of the values, in an array of at most 4,096 of them
    or else in a bitmap."""
    head = struct.pack("<ii", 12346, len(containers))
    head += b"".join(struct.pack("<HH", key, len(values) - 1) for key, values in containers)
    bodies = [_container(values) for _, values in containers]
    start, offsets = len(head) + 4 * len(containers), []
    for body in bodies:
        offsets.append(start)
        start += len(body)
    return head + struct.pack(f"<{len(offsets)}i", *offsets) + b"".join(bodies)


def _container(values: Sequence[int]) -> bytes:
    if len(values) <= 4096:
        return struct.pack(f"<{len(values)}H", *values)
    return sum(1 << value for value in values).to_bytes(8192, "little")


def _runs(key: int, *runs: tuple[int, int]) -> bytes:
    """A 32-bit bitmap with one container of runs: the first value of each and the number of further ones."""
    count = sum(length + 1 for _, length in runs)
    head = struct.pack("<HHB", 12347, 0, 1) + struct.pack("<HH", key, count - 1)
    return head + struct.pack("<H", len(runs)) + b"".join(struct.pack("<HH", *run) for run in runs)


def _inline(data: bytes, cardinality: int) -> Action:
    text = deletion_vectors.encode_z85(data)
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": cardinality}


def _deleting(added: Action, descriptor: Action) -> Action:
    return {"add": {**added["add"], "deletionVector": descriptor}}


def _vectors() -> Iterator[Case]:
    section = "deletion-vectors"

    def case(name: str, about: str, build: Build, *steps: Step, **more: Any) -> Case:
        return _case(f"vector-{name}", about, build, *steps, **{"section": section, **more})

    def absolute(table: TableBuilder) -> None:
        added = _ten(table)
        table.commit(table.remove(added), table.with_deleted(added, [0, 9], "p"))

    rows = Rows([{"id": n} for n in range(1, 9)])
    yield case("p", "A deletion vector in a file with an absolute path", absolute, rows)

    def files(count: int, prefix: str = "", gap: bytes = b"") -> Build:
        """Files with two rows each, and one file with their deletion vectors, which remove the first row of the first
        file, the second row of the second file, and so on. ``gap``: bytes before each deletion vector."""

        def build(table: TableBuilder) -> None:
            unique = uuid.UUID(int=(7 << 100) + 99)
            content, first = bytearray(b"\x01"), []
            parts = [table.add([{"id": 10 * n}, {"id": 10 * n + 1}]) for n in range(count)]
            for number in range(count):
                data = _bitmap(_arrays((0, [number % 2])))
                content += gap
                first.append((len(content), len(data)))
                content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
            folder = table.root / prefix if prefix else table.root
            folder.mkdir(exist_ok=True)
            (folder / f"deletion_vector_{unique}.bin").write_bytes(bytes(content))
            text = prefix + deletion_vectors.encode_z85(unique.bytes)
            adds = [
                _deleting(
                    part,
                    {"storageType": "u", "pathOrInlineDv": text, "offset": at, "sizeInBytes": size, "cardinality": 1},
                )
                for part, (at, size) in zip(parts, first, strict=True)
            ]
            metadata = table.metadata(configuration=_VECTORS)
            table.commit(table.protocol(["deletionVectors"], ["deletionVectors"]), metadata, *adds)

        return build

    about = "A deletion vector in a file below a directory with a random name"
    yield case("u-prefix", about, files(1, prefix="ab"), Rows([{"id": 1}]), section="derived-fields")
    about = "Three deletion vectors in one file"
    three = [{"id": 1}, {"id": 10}, {"id": 21}]
    yield case("u-three", about, files(3), Rows(three), section="deletion-vector-file-storage-format")
    about = "Deletion vectors in one file with bytes between them that belong to none"
    yield case(
        "u-gaps",
        about,
        files(2, gap=b"\xff" * 7),
        Rows(three[:2]),
        section="deletion-vector-file-storage-format",
    )

    def with_bytes(number: int, data: bytes, cardinality: int) -> Build:
        def build(table: TableBuilder) -> None:
            added = _ten(table, number)
            table.commit(table.remove(added), _deleting(added, _inline(data, cardinality)))

        return build

    def without(number: int, positions: Sequence[int]) -> Rows:
        gone = set(positions)
        return Rows([{"id": n} for n in range(number) if n not in gone])

    section = "deletion-vector-format"
    about = "A deletion vector as an array of positions"
    yield case("array", about, with_bytes(10, _bitmap(_arrays((0, [2, 5]))), 2), without(10, [2, 5]), section=section)
    about = "A deletion vector as a run of positions"
    yield case(
        "runs", about, with_bytes(10, _bitmap(_runs(0, (1, 2), (7, 0))), 4), without(10, [1, 2, 3, 7]), section=section
    )
    many = list(range(0, 10_000, 2))
    about = "A deletion vector as a bitmap of 5,000 positions"
    yield case(
        "bitmap", about, with_bytes(10_000, _bitmap(_arrays((0, many))), 5000), without(10_000, many), section=section
    )
    about = "A deletion vector with positions on both sides of 65,536"
    far = [65_535, 65_536, 65_537]
    two = _bitmap(_arrays((0, [65_535]), (1, [0, 1])))
    yield case("beyond-65536", about, with_bytes(65_540, two, 3), without(65_540, far), section=section)

    def wrong(change: Mapping[str, Any], cut: int = 0) -> Build:
        def build(table: TableBuilder) -> None:
            added = _ten(table)
            data = _bitmap(_arrays((0, [2, 5])))
            descriptor = _inline(data[: len(data) - cut], 2)
            table.commit(table.remove(added), _deleting(added, {**descriptor, **change}))

        return build

    good = [{"id": n} for n in range(10) if n not in (2, 5)]
    about = "A deletion vector whose storage type does not exist is refused"
    yield case(
        "unknown-storage",
        about,
        wrong({"storageType": "x"}),
        Refused(Rows(good)),
        section="deletion-vector-descriptor-schema",
    )
    about = "An inline deletion vector that is not base85 is refused"
    yield case(
        "not-base85",
        about,
        wrong({"pathOrInlineDv": '"' * 40}),
        Refused(Rows(good)),
        section="deletion-vector-descriptor-schema",
    )
    about = "A deletion vector that ends early is refused"
    yield case("ends-early", about, wrong({}, cut=4), Refused(Rows(good)), section=section)
    about = "A deletion vector with another number of positions than the log says: refused, or its positions count"
    yield case(
        "cardinality",
        about,
        wrong({"cardinality": 7}),
        MayRefuse(Rows(good)),
        basis=REFERENCE,
        section="deletion-vector-descriptor-schema",
    )


def _written_vectors() -> Iterator[Case]:
    section = "writer-requirement-for-deletion-vectors"
    delete = Write("delete", where="id = 1")

    def two_files(table: TableBuilder) -> None:
        _ten(table)
        table.commit(table.add([{"id": n} for n in range(10, 20)]))

    def off(table: TableBuilder) -> None:
        added = table.add([{"id": n} for n in range(4)])
        table.commit(table.protocol(["deletionVectors"], ["deletionVectors"]), table.metadata(), added)

    left = [{"id": n} for n in range(20) if n != 1]
    about = "A delete writes no deletion vector if the property is off"
    yield _case(
        "vector-write-off",
        about,
        off,
        delete,
        Log("vectors", value=0),
        Rows([{"id": n} for n in (0, 2, 3)]),
        section="deletion-vectors",
    )
    about = "The file of a deletion vector that a delete writes has its number of rows in the log"
    yield _case(
        "vector-write-counts",
        about,
        two_files,
        delete,
        Log("vectors-are-counted", value=1),
        Rows(left),
        section=section,
    )
    about = "A second delete replaces the deletion vector of the file"
    again = Write("delete", where="id = 2")
    steps: tuple[Step, ...] = (delete, again, Log("removes-are-live"), Rows([row for row in left if row["id"] != 2]))
    yield _case("vector-write-again", about, two_files, *steps, section="action-reconciliation", rule="remove-not-live")
    about = "An overwrite removes files with the deletion vectors that they have"
    overwrite = Write("overwrite", rows=[{"id": 100}])
    steps = (delete, overwrite, Log("removes-are-live", value=2), Rows([{"id": 100}]))
    yield _case(
        "vector-write-overwrite", about, two_files, *steps, section="action-reconciliation", rule="remove-not-live"
    )
    about = "A restore brings back the rows that a deletion vector removed"
    steps = (delete, Write("restore", version=1), Log("removes-are-live"), Rows(ids(19)))
    yield _case("vector-write-restore", about, two_files, *steps, section="action-reconciliation", basis=REFERENCE)
    about = "A restore to a version with a deletion vector"
    steps = (delete, overwrite, Write("restore", version=2), Rows(left), Log("rows", value=left))
    yield _case("vector-write-restore-to", about, two_files, *steps, section="action-reconciliation", basis=REFERENCE)
    about = "Deletes of all rows of a file one after the other"
    one = tuple(Write("delete", where=f"id = {n}") for n in range(3))

    def three(table: TableBuilder) -> None:
        _ten(table, 3)

    yield _case("vector-write-all", about, three, *one, Rows([]), Log("rows", value=[]), section=section)
    for storage in ("u", "p", "i"):

        def build(table: TableBuilder, storage: str = storage) -> None:
            added = _ten(table)
            table.commit(table.remove(added), table.with_deleted(added, [0, 9], storage))

        rest = [{"id": n} for n in range(2, 9)]
        names = {"u": "in a file with a relative path", "p": "in a file with an absolute path", "i": "inline"}
        about = f"A delete from a file whose deletion vector is {names[storage]}"
        steps = (delete, Rows(rest), Log("rows", value=rest), Log("removes-are-live"))
        yield _case(f"vector-write-on-{storage}", about, build, *steps, section=section)
        about = f"A checkpoint with a deletion vector {names[storage]}"
        kept = [{"id": n} for n in range(1, 9)]
        steps = (Write("checkpoint"), Log("checkpoint", value=1), Rows(kept))
        if storage != "p":
            steps = (*steps, Log("rows-by-checkpoint", value=kept))
        yield _case(f"vector-checkpoint-{storage}", about, build, *steps, section="checkpoints-1")


# --------------------------------------------------------------------------------------------- column mapping


def _mapped(name: str, kind: Any, number: int, physical: str) -> dict[str, Any]:
    return column(name, kind, delta__columnMapping__id=number, delta__columnMapping__physicalName=physical)


def _mode(mode: str, largest: int) -> dict[str, str]:
    return {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": str(largest), **_KEEP}


def _field(name: str, number: int, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def _nested_mapping() -> Iterator[Case]:
    section = "reader-requirements-for-column-mapping"
    inner = pa.struct([_field("col-b", 2, pa.int64()), _field("col-c", 3, pa.string())])
    value = {"col-b": 1, "col-c": "x"}
    shapes: Sequence[tuple[str, str, pa.DataType, Any, Any]] = (
        ("struct", "a struct", inner, value, lambda found: found),
        ("array", "an array", pa.list_(inner), [value, None], lambda found: [found, None]),
        ("map", "a map", pa.map_(pa.string(), inner), [("k", value)], lambda found: [("k", found)]),
    )
    for mode in ("name", "id"):
        for shape, about, arrow, stored, wrap in shapes:

            def kind(fields: Sequence[Mapping[str, Any]], shape: str = shape) -> Any:
                found = columns(*fields)
                return {"struct": found, "array": list_of(found), "map": map_of("string", found)}[shape]

            def build(
                table: TableBuilder,
                mode: str = mode,
                arrow: pa.DataType = arrow,
                stored: Any = stored,
                kind: Any = kind,
            ) -> None:
                fields = (_mapped("b", "long", 2, "col-b"), _mapped("c", "string", 3, "col-c"))
                metadata = table.metadata(
                    schema_text(_mapped("s", kind(fields), 1, "col-a")), configuration=_mode(mode, 3)
                )
                rows = pa.table([pa.array([stored], arrow)], pa.schema([_field("col-a", 1, arrow)]))
                table.commit(table.protocol(versions=(2, 5)), metadata, table.add(rows))

            def renamed(table: TableBuilder, mode: str = mode, build: Build = build, kind: Any = kind) -> None:
                build(table)
                fields = (_mapped("key", "long", 2, "col-b"), _mapped("c", "string", 3, "col-c"))
                table.commit(
                    table.metadata(schema_text(_mapped("s", kind(fields), 1, "col-a")), configuration=_mode(mode, 3))
                )

            def again(table: TableBuilder, mode: str = mode, build: Build = build, kind: Any = kind) -> None:
                build(table)
                fields = (_mapped("b", "long", 2, "col-b"), _mapped("c", "string", 4, "col-d"))
                table.commit(
                    table.metadata(schema_text(_mapped("s", kind(fields), 1, "col-a")), configuration=_mode(mode, 4))
                )

            where = f"Fields of structs in {about}" if shape != "struct" else "Fields of a struct"
            one = Rows([{"s": wrap({"b": 1, "c": "x"})}])
            yield _case(f"mapping-{mode}-{shape}", f"{where}, mapped by {mode}", build, one, section=section)
            steps = (Rows([{"s": wrap({"key": 1, "c": "x"})}]), Rows([{"s": wrap({"b": 1, "c": "x"})}], version=0))
            yield _case(
                f"mapping-{mode}-{shape}-renamed",
                f"{where}, one of which was renamed, mapped by {mode}",
                renamed,
                *steps,
                section=section,
            )
            gone = Rows([{"s": wrap({"b": 1, "c": None})}])
            about_again = f"{where}, one of which was dropped and added with the same name, mapped by {mode}"
            yield _case(f"mapping-{mode}-{shape}-dropped", about_again, again, gone, section=section)

    def by_id(table: TableBuilder) -> None:
        kind = pa.struct([_field("other", 2, pa.int64())])
        rows = pa.table([pa.array([{"other": 1}], kind)], pa.schema([_field("any", 1, kind)]))
        text = schema_text(_mapped("s", columns(_mapped("b", "long", 2, "col-b")), 1, "col-a"))
        table.commit(
            table.protocol(versions=(2, 5)), table.metadata(text, configuration=_mode("id", 2)), table.add(rows)
        )

    about = "Mapped by id: the names of fields of a struct in the file are ignored"
    yield _case("mapping-id-struct-only", about, by_id, Rows([{"s": {"b": 1}}]), section=section)

    def without_ids(table: TableBuilder) -> None:
        text = schema_text(_mapped("id", "long", 1, "col-a"))
        rows = pa.table({"col-a": pa.array([1], pa.int64())})
        table.commit(
            table.protocol(versions=(2, 5)), table.metadata(text, configuration=_mode("id", 1)), table.add(rows)
        )

    about = "Mapped by id: a file without ids is refused, or its columns are null"
    yield _case("mapping-id-no-ids", about, without_ids, MayRefuse(Rows([{"id": None}])), section=section)


def _written_mapping() -> Iterator[Case]:
    section = "writer-requirements-for-column-mapping"
    for mode in ("name", "id"):

        def build(table: TableBuilder, mode: str = mode) -> None:
            kind = pa.struct([_field("col-b", 3, pa.int64())])
            text = schema_text(
                _mapped("id", "long", 1, "col-a"),
                _mapped("p", "string", 4, "col-p"),
                _mapped("s", columns(_mapped("b", "long", 3, "col-b")), 2, "col-s"),
            )
            arrow = pa.schema([_field("col-a", 1, pa.int64()), _field("col-s", 2, kind)])
            rows = pa.table([pa.array([1]), pa.array([{"col-b": 1}], kind)], arrow)
            metadata = table.metadata(text, ["p"], _mode(mode, 4))
            table.commit(table.protocol(versions=(2, 5)), metadata, table.add(rows, {"col-p": "x"}))

        known: list[Row] = [{"id": 1, "p": "x", "s": {"b": 1}}]
        new: Row = {"id": 5, "p": "y", "s": {"b": 6}}
        append = Write("append", rows=[new])
        about = f"An append writes physical names and ids into its files, mapped by {mode}"
        yield _case(
            f"mapping-{mode}-append-files",
            about,
            build,
            append,
            Log("physical-columns"),
            Rows([*known, new]),
            section=section,
        )
        about = f"An append writes partition values under physical names, mapped by {mode}"
        yield _case(
            f"mapping-{mode}-append-partition",
            about,
            build,
            append,
            Log("partition-values", value=[{"col-p": "y"}]),
            section=section,
        )
        about = f"An append writes statistics under physical names, mapped by {mode}"
        found = Log("statistics-of", value=["col-a", "col-s.col-b"])
        yield _case(f"mapping-{mode}-append-statistics", about, build, append, found, section=section)
        about = f"A delete of a partition, mapped by {mode}"
        steps: tuple[Step, ...] = (append, Write("delete", where="p = 'x'"), Rows([new]), Log("rows", value=[new]))
        yield _case(f"mapping-{mode}-delete-partition", about, build, *steps, section=section)
        about = f"A checkpoint of a table mapped by {mode}"
        steps = (Write("checkpoint"), Log("rows-by-checkpoint", value=known), Rows(known))
        yield _case(f"mapping-{mode}-checkpoint", about, build, *steps, section=section)
        about = f"A property change keeps the mapping by {mode}"
        change = Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"})
        wanted = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4"}
        names = {"id": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-a"}}
        steps = (change, Log("property", value=wanted), Log("column-metadata", value=names), Rows(known))
        yield _case(f"mapping-{mode}-property", about, build, *steps, section=section)

    def plain(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 1}]))

    enable = Write("set_properties", properties={"delta.columnMapping.mode": "name"})
    about = "Column mapping is turned on for a table with files: their rows stay, or the call is refused"
    steps = (MayRefuse(enable), Rows([{"id": 1}]), Write("append", rows=[{"id": 2}]), Rows([{"id": 1}, {"id": 2}]))
    yield _case("mapping-enable", about, plain, *steps, section=section)
    about = "Column mapping by id is not turned on for a table whose files have no ids"
    enable = Write("set_properties", properties={"delta.columnMapping.mode": "id"})
    yield _case(
        "mapping-enable-id", about, plain, MayRefuse(enable), Rows([{"id": 1}]), section=section, basis=REFERENCE
    )


# --------------------------------------------------------------------------------------------- Iceberg


def _iceberg() -> Iterator[Case]:
    """A writer keeps the rules of these features, or refuses them."""
    sections = {
        "V1": "writer-requirements-for-icebergcompatv1",
        "V2": "writer-requirements-for-icebergcompatv2",
        "V3": "table-features",
    }
    for version, section in sections.items():
        feature = f"icebergCompat{version}"
        on = {f"delta.enableIcebergCompat{version}": "true"}
        basis = {"basis": REFERENCE} if version == "V3" else {}
        more = ["rowTracking", "domainMetadata"] if version == "V3" else []

        def build(
            table: TableBuilder, feature: str = feature, on: Mapping[str, str] = on, more: Sequence[str] = more
        ) -> None:
            text = schema_text(_mapped("id", "long", 1, "col-a"), _mapped("p", "string", 2, "col-p"))
            rows = pa.table(
                [pa.array([1]), pa.array(["x"])],
                pa.schema([_field("col-a", 1, pa.int64()), _field("col-p", 2, pa.string())]),
            )
            protocol = table.protocol([feature, "columnMapping", *more], ["columnMapping"])
            tracking: dict[str, str] = {}
            ids_of: dict[str, Any] = {}
            domains: list[Action] = []
            if more:
                names = ("RowId", "RowCommitVersion")
                tracking = {f"delta.rowTracking.materialized{name}ColumnName": f"_{name}" for name in names}
                tracking["delta.enableRowTracking"] = "true"
                ids_of = {"baseRowId": 0, "defaultRowCommitVersion": 0}
                mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":0}', "removed": False}
                domains = [{"domainMetadata": mark}]
            metadata = table.metadata(text, ["p"], {**_mode("name", 2), **on, **tracking})
            table.commit(protocol, metadata, table.add(rows, {"col-p": "x"}, **ids_of), *domains)

        known: Row = {"id": 1, "p": "x"}
        new: Row = {"id": 5, "p": "y"}
        name = feature.lower()
        about = f"A table with {feature} active, whose files contain the partition column, is read"
        yield _case(f"{name}-reads", about, build, Rows([known]), section=section, **basis)
        about = f"An append to a table with {feature} writes the partition column into its files, or is refused"
        steps: tuple[Step, ...] = (
            MayRefuse(Write("append", rows=[new])),
            Log("columns-in-files", value=["col-p"]),
            Log("rows-among", value=[known, new]),
        )
        yield _case(f"{name}-append", about, build, *steps, section=section, **basis)
        if version != "V3":
            about = f"A delete from a table with {feature} writes no deletion vector, or is refused"
            steps = (
                MayRefuse(Write("delete", where="id = 1")),
                Log("vectors", value=0),
                Log("rows-one-of", value=[[known], []]),
            )
            yield _case(f"{name}-delete", about, build, *steps, section=section)
            about = f"Deletion vectors are not enabled in a table with {feature}"
            enable = Refused(Write("set_properties", properties=_VECTORS))
            yield _case(
                f"{name}-vectors",
                about,
                build,
                enable,
                Log("property", value={"delta.enableDeletionVectors": None}),
                Rows([known]),
                section=section,
            )
        about = f"Column mapping is not turned off in a table with {feature}"
        disable = Refused(Write("set_properties", properties={"delta.columnMapping.mode": "none"}))
        yield _case(
            f"{name}-mapping",
            about,
            build,
            disable,
            Log("property", value={"delta.columnMapping.mode": "name"}),
            Rows([known]),
            section=section,
            **basis,
        )
        other = {"V1": "V2", "V2": "V1", "V3": "V2"}[version]
        about = f"icebergCompat{other} is not enabled beside {feature}"
        both = MayRefuse(Write("set_properties", properties={f"delta.enableIcebergCompat{other}": "true"}))
        yield _case(
            f"{name}-other", about, build, both, Log("one-iceberg-compat"), Rows([known]), section=section, **basis
        )

    def materialised(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        rows = pa.table({"id": pa.array([1], pa.int64()), "p": pa.array(["x"])})
        protocol = table.protocol(["materializePartitionColumns"])
        table.commit(protocol, table.metadata(schema, ["p"]), table.add(rows, {"p": "x"}))

    one, two = {"id": 1, "p": "x"}, {"id": 5, "p": "y"}
    steps = (
        Rows([one]),
        MayRefuse(Write("append", rows=[two])),
        Log("columns-in-files", value=["p"]),
        Log("rows-among", value=[one, two]),
    )
    about = (
        "A table with materializePartitionColumns: an append writes the partition column into its files, or is refused"
    )
    yield _case("materialized-partitions", about, materialised, *steps, basis=REFERENCE)


# --------------------------------------------------------------------------------------------- collations


def _collations() -> Iterator[Case]:
    """The feature is that of a proposal; it concerns writers only."""
    for name in ("collations", "collations-preview"):
        rules = {"s": {"__COLLATIONS": {"s": "ICU.de_DE"}}}

        def build(table: TableBuilder, name: str = name) -> None:
            text = schema_text(
                column("id", "long"), {**column("s", "string"), "metadata": {"__COLLATIONS": {"s": "ICU.de_DE"}}}
            )
            rows = pa.table({"id": pa.array([0, 1], pa.int64()), "s": pa.array(["a", "A"])})
            stats = {
                "numRecords": 2,
                "minValues": {"id": 0, "s": "A"},
                "maxValues": {"id": 1, "s": "a"},
                "nullCount": {"id": 0, "s": 0},
            }
            protocol = table.protocol([name, "domainMetadata"])
            table.commit(protocol, table.metadata(text), table.add(rows, stats=stats))

        both: list[Row] = [{"id": 0, "s": "a"}, {"id": 1, "s": "A"}]
        about = f"A table with a column that has a collation is read, with the feature {name}"
        yield _case(f"{name}-reads", about, build, Rows(both))
        about = f"An append to a table with the feature {name} keeps the collation, or is refused"
        steps: tuple[Step, ...] = (
            MayRefuse(Write("append", rows=[{"id": 2, "s": "b"}])),
            Log("column-metadata", value=rules),
            Log("rows-among", value=[*both, {"id": 2, "s": "b"}]),
        )
        yield _case(f"{name}-append", about, build, *steps, basis=REFERENCE)
        about = f"A property change of a table with the feature {name} keeps the collation, or is refused"
        change = MayRefuse(Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"}))
        yield _case(
            f"{name}-property", about, build, change, Log("column-metadata", value=rules), Rows(both), basis=REFERENCE
        )


# --------------------------------------------------------------------------------------------- geometry


def _geometry() -> Iterator[Case]:
    """Types that PROTOCOL.md does not have: an engine reads their well-known binary form, or refuses the table."""
    point = struct.pack("<BIdd", 1, 1, 10.0, 50.0)
    for kind in ("geometry(OGC:CRS84)", "geography(OGC:CRS84, spherical)"):
        name = kind.partition("(")[0]

        def build(table: TableBuilder, kind: str = kind) -> None:
            rows = pa.table({"id": pa.array([0, 1], pa.int64()), "g": pa.array([point, None], pa.binary())})
            protocol = table.protocol(["geospatial"], ["geospatial"])
            table.commit(
                protocol, table.metadata(schema_text(column("id", "long"), column("g", kind))), table.add(rows)
            )

        known: list[Row] = [{"id": 0, "g": point}, {"id": 1, "g": None}]
        about = f"A column of the type {name}: read as binary, or refused"
        yield _case(f"{name}-reads", about, build, MayRefuse(Rows(known)), basis=REFERENCE)
        about = f"An append to a table with a column of the type {name}: kept, or refused"
        more = MayRefuse(Write("append", rows=[{"id": 2}]))
        yield _case(f"{name}-append", about, build, more, Log("column-types", value={"g": kind}), basis=REFERENCE)

        def unlisted(table: TableBuilder, kind: str = kind) -> None:
            rows = pa.table({"id": pa.array([0], pa.int64()), "g": pa.array([point], pa.binary())})
            table.commit(
                table.protocol(), table.metadata(schema_text(column("id", "long"), column("g", kind))), table.add(rows)
            )

        about = f"A column of the type {name} in a table without a feature for it: read as binary, or refused"
        yield _case(
            f"{name}-without-feature",
            about,
            unlisted,
            MayRefuse(Rows(known[:1])),
            section="primitive-types",
            basis=REFERENCE,
        )


# --------------------------------------------------------------------------------------------- acknowledged features


def _acknowledged() -> Iterator[Case]:
    def checked(table: TableBuilder) -> None:
        protocol = table.protocol(["vacuumProtocolCheck"], ["vacuumProtocolCheck"])
        table.commit(protocol, table.metadata(configuration=_KEEP), table.add([{"id": 0}]))

    section = "reader-requirements-for-vacuum-protocol-check"
    yield _case(
        "reads-vacuumprotocolcheck", "A table with vacuumProtocolCheck is read", checked, Rows(ids(0)), section=section
    )
    about = "An append to a table with vacuumProtocolCheck"
    steps = (_APPEND, Rows([*ids(0), {"id": 100}]))
    yield _case(
        "vacuumprotocolcheck-append", about, checked, *steps, section="writer-requirements-for-vacuum-protocol-check"
    )

    def by_path(table: TableBuilder) -> None:
        names = ["catalogManaged", "vacuumProtocolCheck"]
        metadata = table.metadata(configuration={"delta.enableInCommitTimestamps": "true"})
        table.commit(table.protocol([*names, "inCommitTimestamp"], names), metadata, table.add([{"id": 0}]), ict=True)
        table.commit(table.add([{"id": 1}]), ict=True)

    section = "reader-requirements-for-catalog-managed-tables"
    about = "A catalog-managed table is not read by its path, because the catalog may have more commits"
    yield _case("catalogmanaged-by-path", about, by_path, Refused(Rows(ids(1))), section=section)
    about = "A catalog-managed table is not written by its path"
    section = "writer-requirements-for-catalog-managed-tables"
    stays = Log("latest-version", value=1)
    yield _case("catalogmanaged-by-path-append", about, by_path, Refused(_APPEND), stays, section=section)
    about = "The properties of a catalog-managed table are not changed by its path"
    change = Refused(Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"}))
    yield _case("catalogmanaged-by-path-property", about, by_path, change, stays, section=section)

    def both_lists(writers: Sequence[str], readers: Sequence[str]) -> Build:
        def build(table: TableBuilder) -> None:
            protocol = table.protocol(list(writers), list(readers))
            table.commit(protocol, table.metadata(), table.add([{"id": 0}]))

        return build

    about = "A set of features that are all known, in another order"
    names = ["v2Checkpoint", "timestampNtz", "deletionVectors", "columnMapping", "typeWidening", "variantType"]
    known = both_lists([*names, "inCommitTimestamp", "appendOnly"], list(reversed(names)))
    yield _case("many", about, known, MayRefuse(Rows(ids(0))))
    about = "A protocol with an unknown feature that a later protocol no longer has"

    def dropped(table: TableBuilder) -> None:
        table.commit(table.protocol(["neverHeardOf"], ["neverHeardOf"]), table.metadata(), table.add([{"id": 0}]))
        table.commit(table.protocol())
        table.commit(table.add([{"id": 1}]))

    yield _case(
        "unknown-dropped",
        about,
        dropped,
        Rows(ids(1)),
        Refused(Rows(ids(0), version=0)),
        section="protocol-evolution",
        rule="feature-unknown",
    )


# --------------------------------------------------------------------------------------------- protected checkpoints


def _protected() -> Iterator[Case]:
    def history(before: int, unknown: bool = False) -> Build:
        """Versions 0 to 5; checkpoints of 2 and 4. The retention of the versions 0 to 2 is over, and that of the others
        is not. ``before``: the version before which checkpoints are protected. ``unknown``: versions 0 and 1 have an
        unknown feature."""

        def build(table: TableBuilder) -> None:
            properties = {
                "delta.requireCheckpointProtectionBeforeVersion": str(before),
                "delta.logRetentionDuration": "interval 1 days",
                "delta.enableExpiredLogCleanup": "true",
            }
            plain = table.protocol(["checkpointProtection"])
            first = table.protocol(["checkpointProtection", "neverHeardOf"]) if unknown else plain
            table.commit(first, table.metadata(configuration=properties), table.add([{"id": 0}]))
            table.commit(table.add([{"id": 1}]))
            for version in range(2, 6):
                file_ms = FUTURE + version * MINUTE if version > 2 else None
                upgrade = [plain] if version == 2 and unknown else []
                table.commit(*upgrade, table.add([{"id": version}]), file_ms=file_ms)
                if version in (2, 4):
                    table.checkpoint()

        return build

    def case(name: str, about: str, build: Build, *steps: Step) -> Case:
        return _checkpoint(f"protected-{name}", about, build, *steps, section="metadata-cleanup", basis=REFERENCE)

    yield case("reads", "A table with protected checkpoints is read", history(3), Rows(ids(5)), LatestVersion(5))
    about = "An append to a table with protected checkpoints keeps the property"
    kept = Log("property", value={"delta.requireCheckpointProtectionBeforeVersion": "3"})
    yield case("append", about, history(3), _APPEND, Rows([*ids(5), {"id": 100}]), kept)
    about = "Log clean-up after a checkpoint keeps protected versions with features that the engine does not know"
    write = Write("checkpoint")
    steps: tuple[Step, ...] = (
        *(write, Log("cleaned-together", value=4), Rows(ids(5)), Log("rows-by-checkpoint", value=ids(5))),
    )
    yield case("unknown", about, history(4, unknown=True), *steps)
    about = "Log clean-up after a checkpoint removes the protected versions together, or none of them"
    steps = (write, Log("cleaned-together", value=2), Rows(ids(5)))
    yield case("together", about, history(2, unknown=True), *steps)
    about = "Log clean-up after twelve appends and a checkpoint keeps protected commits of unknown features"
    many = tuple(Write("append", rows=[{"id": number}]) for number in range(6, 18))
    steps = (*many, write, Log("cleaned-together", value=4), Rows(ids(17)))
    yield case("many", about, history(4, unknown=True), *steps)


# --------------------------------------------------------------------------------------------- sidecars


def _sidecars() -> Iterator[Case]:
    v2 = {"delta.checkpointPolicy": "v2", **_KEEP}

    def begun(table: TableBuilder, number: int = 4, *more: Action, features: Sequence[str] = ()) -> None:
        names = ["v2Checkpoint", *features]
        table.commit(table.protocol(names, ["v2Checkpoint"]), table.metadata(configuration=v2), table.add([{"id": 0}]))
        for each in range(1, number):
            table.commit(table.add([{"id": each}]))
        if more:
            table.commit(*more)

    def edited(change: Any, form: str = "json", **options: Any) -> Build:
        """A V2 checkpoint of version 3 whose lines were changed, without the commits before it."""

        def build(table: TableBuilder) -> None:
            begun(table)
            table.checkpoint(top_level=form, **options)
            (file,) = table.log.glob(f"{3:020d}.checkpoint.*.json")
            lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            found = change(table, lines)
            file.write_text("".join(json.dumps(line) + "\n" for line in found), encoding="utf-8")
            (table.log / "_last_checkpoint").unlink()
            table.drop_commits(0, 1, 2)
            table.commit(table.add([{"id": 4}]))

        return build

    def sidecars(change: Any) -> Any:
        return lambda table, lines: [
            {"sidecar": change(table, line["sidecar"])} if "sidecar" in line else line for line in lines
        ]

    def moved(table: TableBuilder, found: Action) -> Action:
        name = f"a sidecar % ü {found['path']}"
        (table.log / "_sidecars" / found["path"]).rename(table.log / "_sidecars" / name)
        return {**found, "path": urllib.parse.quote(name)}

    def case(name: str, about: str, build: Build, *steps: Step, **more: Any) -> Case:
        return _checkpoint(f"v2-{name}", about, build, *steps, **more)

    rows = Rows(ids(4))
    about = "The path of a sidecar is percent-encoded"
    yield case(
        "sidecar-encoded", about, edited(sidecars(moved), sidecar_rows=2), rows, section="sidecar-file-information"
    )
    about = "Sidecars with tags and unknown fields"
    tagged = edited(sidecars(lambda table, found: {**found, "tags": {"a": "b"}, "x": [1]}), sidecar_rows=2)
    yield case("sidecar-tags", about, tagged, rows, section="sidecar-file-information")
    about = "The checkpointMetadata has the optional tags"
    tags = {"sidecarNumActions": "4", "sidecarSizeInBytes": "1", "numOfAddFiles": "4", "other": "x"}

    def with_tags(table: TableBuilder, lines: list[Action]) -> list[Action]:
        return [
            {"checkpointMetadata": {"version": 3, "tags": tags}} if "checkpointMetadata" in line else line
            for line in lines
        ]

    yield case("metadata-tags", about, edited(with_tags, sidecar_rows=2), rows, section="checkpoint-metadata-tags")
    about = "The actions of a V2 checkpoint may have any order"
    yield case("any-order", about, edited(lambda table, lines: list(reversed(lines)), sidecar_rows=2), rows)
    about = "A V2 checkpoint with unknown actions"
    yield case(
        "unknown-actions",
        about,
        edited(lambda table, lines: [*lines, {"newAction": {"a": 1}}], sidecar_rows=2),
        rows,
        section="protocol-evolution",
    )
    about = "A damaged sidecar is refused"

    def damaged(table: TableBuilder, found: Action) -> Action:
        (table.log / "_sidecars" / found["path"]).write_bytes(b"PAR1 no sidecar PAR1")
        return found

    yield case(
        "sidecar-damaged", about, edited(sidecars(damaged), sidecar_rows=2), Refused(rows), rule="sidecar-unreadable"
    )

    def two(table: TableBuilder) -> None:
        begun(table)
        table.checkpoint(top_level="json", sidecar_rows=2)
        table.checkpoint(top_level="parquet", sidecar_rows=1)
        table.drop_commits(0, 1, 2)
        table.commit(table.add([{"id": 4}]))

    yield case("two", "Two V2 checkpoints of one version", two, rows, section="uuid-named-checkpoint")

    def hintless(table: TableBuilder) -> None:
        two(table)
        (table.log / "_last_checkpoint").unlink()

    yield case("no-hint", "V2 checkpoints without _last_checkpoint", hintless, rows, section="last-checkpoint-file")

    def classic(table: TableBuilder) -> None:
        begun(table)
        table.checkpoint(top_level="parquet", sidecar_rows=2)
        (file,) = table.log.glob(f"{3:020d}.checkpoint.*.parquet")
        file.rename(table.log / f"{3:020d}.checkpoint.parquet")
        (table.log / "_last_checkpoint").unlink()
        table.drop_commits(0, 1, 2)
        table.commit(table.add([{"id": 4}]))

    about = "A checkpoint that follows the V2 spec and has a classic name"
    yield case(
        "classic-name",
        about,
        classic,
        rows,
        section="allowed-combinations-for-checkpoint-spec---checkpoint-file-naming",
    )

    def actions(table: TableBuilder) -> None:
        txn = {"txn": {"appId": "app", "version": 7}}
        domain = {"domainMetadata": {"domain": "x", "configuration": "{}", "removed": False}}
        begun(table, 3, txn, domain, features=["domainMetadata"])
        table.checkpoint(top_level="json", sidecar_rows=1)
        table.drop_commits(0, 1, 2, 3)
        table.commit(table.add([{"id": 3}]))

    held = (Log("checkpoint-has-txn", value=["app", 7]), Log("checkpoint-has-domain", value="x"))
    about = "A checkpoint after a V2 checkpoint keeps identifiers and domains that only the latter has"
    yield case("keeps", about, actions, Write("checkpoint"), *held, Log("rows-by-checkpoint", value=ids(3)))

    def removed(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        names = ["v2Checkpoint"]
        table.commit(table.protocol(names, names), table.metadata(configuration=v2), first, table.add([{"id": 1}]))
        table.commit(table.remove(first, at_ms=4_000_000_000_000))
        table.checkpoint(top_level="json", sidecar_rows=1)
        table.drop_commits(0, 1)
        table.commit()

    about = "A removed file in a sidecar is not live"
    yield case("sidecar-removed", about, removed, Rows(ids(1, 1)))

    def written(table: TableBuilder) -> None:
        begun(table)

    about = "A checkpoint of a table whose policy is v2 follows the V2 spec"
    steps: tuple[Step, ...] = (
        Write("checkpoint"),
        Log("v2-checkpoint", value=3),
        Log("rows-by-checkpoint", value=ids(3)),
        Rows(ids(3)),
    )
    yield case("write", about, written, *steps, basis=REFERENCE)
    about = "An append after a V2 checkpoint of the engine"
    steps = (
        Write("checkpoint"),
        _APPEND,
        Write("checkpoint"),
        Log("v2-checkpoint", value=4),
        Rows([*ids(3), {"id": 100}]),
    )
    yield case("write-again", about, written, *steps, basis=REFERENCE)

    def add_only(table: TableBuilder, found: Action) -> Action:
        file = table.log / "_sidecars" / found["path"]
        with pa.OSFile(str(file)) as source, open_parquet(source) as opened:
            rows = opened.read()
        pq.write_table(rows.select(["add"]), file)
        return {**found, "sizeInBytes": file.stat().st_size}

    about = "A sidecar that has only the column add"
    yield case("sidecar-add-only", about, edited(sidecars(add_only), sidecar_rows=2), rows, section="sidecar-files")
