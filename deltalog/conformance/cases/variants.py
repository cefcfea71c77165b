"""Cases about variant columns: every encoding, shredded files, and tables that the engine writes. Variants are bytes
written by hand."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.conformance import variant_bytes as raw
from deltalog.conformance.builder import Action, TableBuilder
from deltalog.conformance.case import REFERENCE, VARIANTS, Case, Log, MayRefuse, Row, Rows, Step, Write
from deltalog.conformance.cases.common import Build, Cases, column, columns, list_of, map_of, schema_text
from deltalog.protocol import deletion_vectors

_case = Cases("variant", VARIANTS, "variant-data-in-parquet")
_READERS = "reader-requirements-for-variant-data-type"
_SHREDDED = "shredded-variant-data-in-parquet"
_WRITERS = "writer-requirements-for-variant-data-type"
_STATISTICS = "statistics-for-variant-columns"
_KEEP = {"delta.enableExpiredLogCleanup": "false"}
_VARIANT = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
_DAYS = (datetime.date(2025, 2, 28) - datetime.date(1970, 1, 1)).days
_MICROS = 1_736_942_400_123_456


def cases() -> Iterator[Case]:
    yield from _encodings()
    yield from _places()
    yield from _shredded()
    yield from _statistics()
    yield from _written()


Variant = Mapping[str, bytes]


def of(value: bytes, *names: str, width: int = 1) -> Variant:
    """A variant with these field names in its dictionary."""
    return {"metadata": raw.dictionary(names, width) if names else raw.EMPTY, "value": value}


def _protocol(table: TableBuilder, *more: str, shredding: bool = False, preview: bool = False) -> Action:
    names = ["variantType-preview" if preview else "variantType", *(["variantShredding"] if shredding else [])]
    return table.protocol([*names, *more], [*names, *more])


def _text(kind: Any = "variant") -> str:
    return schema_text(column("id", "long"), column("v", kind))


def _table(values: Sequence[Any], kind: pa.DataType = _VARIANT) -> pa.Table:
    """A file with the column v."""
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, kind)})


def _plain(*values: Variant | None, preview: bool = False, properties: Mapping[str, str] | None = None) -> Build:
    def build(table: TableBuilder) -> None:
        metadata = table.metadata(_text(), configuration={**_KEEP, **(properties or {})})
        table.commit(_protocol(table, preview=preview), metadata, table.add(_table(values)))

    return build


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rows(*texts: str | None) -> Rows:
    """The rows of a table with these variants as JSON text."""
    return Rows([{"id": number, "v": text} for number, text in enumerate(texts)], variants=["v"])


# --------------------------------------------------------------------------------------------- encodings


def _encodings() -> Iterator[Case]:
    long_text = "ü" * 40
    many = {f"k{number:04d}": number for number in range(300)}
    unsorted = of(raw.fields([(1, raw.number(3, 1, 1)), (0, raw.number(3, 2, 1))]), "b", "a")
    inner = raw.fields([(1, raw.array([raw.number(3, 1, 1), raw.NULL]))])
    found: Sequence[tuple[str, str, Sequence[tuple[Variant, str]]]] = (
        ("null", "A null inside a variant", [(of(raw.NULL), "null")]),
        ("boolean", "Booleans", [(of(raw.TRUE), "true"), (of(raw.FALSE), "false")]),
        (
            "integers",
            "Integers of one, two, four and eight bytes",
            [
                (of(raw.number(3, -128, 1)), "-128"),
                (of(raw.number(4, 2**15 - 1, 2)), "32767"),
                (of(raw.number(5, -(2**31), 4)), "-2147483648"),
                (of(raw.number(6, 2**63 - 1, 8)), "9223372036854775807"),
            ],
        ),
        (
            "wide-integers",
            "Small integers with eight bytes",
            [(of(raw.number(6, 1, 8)), "1"), (of(raw.number(5, -1, 4)), "-1")],
        ),
        ("double", "Floating-point numbers", [(of(raw.double(0.1)), "0.1"), (of(raw.single(-1.5)), "-1.5")]),
        (
            "decimal",
            "Decimals of four, eight and sixteen bytes",
            [
                (of(raw.exact(8, 12345, 2, 4)), "123.45"),
                (of(raw.exact(9, -(10**17) - 1, 6, 8)), "-100000000000.000001"),
                (of(raw.exact(10, 10**37 + 1, 10, 16)), "1000000000000000000000000000.0000000001"),
            ],
        ),
        ("date", "A date", [(of(raw.number(11, _DAYS, 4)), '"2025-02-28"')]),
        ("timestamp", "A timestamp", [(of(raw.number(12, _MICROS, 8)), '"2025-01-15 12:00:00.123456+00:00"')]),
        (
            "timestamp-ntz",
            "A timestamp without a time zone",
            [(of(raw.number(13, _MICROS, 8)), '"2025-01-15 12:00:00.123456"')],
        ),
        ("binary", "Binary", [(of(raw.blob(b"\x00\xff")), _json(base64.b64encode(b"\x00\xff").decode()))]),
        (
            "string",
            "Short and long strings",
            [
                (of(raw.text("")), '""'),
                (of(raw.text('a"\\\n')), _json('a"\\\n')),
                (of(raw.text(long_text)), _json(long_text)),
                (of(raw.text("long form", long=True)), '"long form"'),
            ],
        ),
        (
            "object",
            "An object",
            [(of(raw.fields([(0, raw.number(3, 1, 1)), (1, raw.text("x"))]), "a", "b"), '{"a":1,"b":"x"}')],
        ),
        (
            "object-empty",
            "An object without fields, and an array without elements",
            [(of(raw.fields([])), "{}"), (of(raw.array([])), "[]")],
        ),
        (
            "array",
            "An array of values of several types",
            [(of(raw.array([raw.number(3, 1, 1), raw.NULL, raw.text("x"), raw.double(0.5)])), '[1,null,"x",0.5]')],
        ),
        ("nested", "An object in an object", [(of(raw.fields([(0, inner)]), "a", "b"), '{"a":{"b":[1,null]}}')]),
        ("dictionary-unsorted", "A dictionary whose names are not sorted", [(unsorted, '{"a":1,"b":2}')]),
        (
            "dictionary-unused",
            "A dictionary with names that the value does not use",
            [(of(raw.TRUE, "x", "y"), "true")],
        ),
        (
            "dictionary-wide",
            "A dictionary with offsets of four bytes",
            [(of(raw.fields([(0, raw.TRUE)]), "a", width=4), '{"a":true}')],
        ),
        (
            "object-large",
            "An object with 300 fields, and offsets of two bytes",
            [
                (
                    of(raw.fields([(n, raw.number(4, n, 2)) for n in range(300)], width=2, id_width=2), *many, width=2),
                    _json(many),
                )
            ],
        ),
        (
            "array-large",
            "An array with 300 elements, and offsets of three bytes",
            [(of(raw.array([raw.number(4, n, 2) for n in range(300)], width=3)), _json(list(range(300))))],
        ),
        (
            "names",
            "Field names with dots, umlauts and quotes",
            [(of(raw.fields([(0, raw.TRUE), (1, raw.FALSE)]), 'a."b', "ü"), _json({'a."b': True, "ü": False}))],
        ),
        ("deep", "Arrays in 50 arrays", [(of(_deep(50)), "[" * 50 + "1" + "]" * 50)]),
    )
    for name, about, pairs in found:
        build = _plain(*(variant for variant, _ in pairs))
        yield _case(name, about, build, _rows(*(text for _, text in pairs)))
    about = "A row without a variant differs from a variant that is null"
    yield _case("absent", about, _plain(None, of(raw.NULL), of(raw.number(3, 1, 1))), _rows(None, "null", "1"))
    more: Sequence[tuple[str, str, bytes, str]] = (
        ("uuid", "A UUID", bytes([20 << 2]) + uuid.UUID(int=7).bytes, _json(str(uuid.UUID(int=7)))),
        ("time", "A time of day", raw.number(17, 45_296_000_789, 8), '"12:34:56.000789"'),
        (
            "nanoseconds",
            "A timestamp without a time zone, in nanoseconds",
            raw.number(19, _MICROS * 1000, 8),
            '"2025-01-15 12:00:00.123456"',
        ),
    )
    for name, about, value, text in more:
        about = f"{about}, which the newest version of the encoding has: read, or refused"
        yield _case(name, about, _plain(of(value)), MayRefuse(_rows(text)))


def _deep(depth: int) -> bytes:
    value = raw.number(3, 1, 1)
    for _ in range(depth):
        value = raw.array([value], 2)
    return value


# --------------------------------------------------------------------------------------------- places


def _places() -> Iterator[Case]:
    one, two = of(raw.number(3, 1, 1)), of(raw.text("x"))

    def nested(kind: Any, arrow: pa.DataType, *values: Any) -> Build:
        def build(table: TableBuilder) -> None:
            table.commit(_protocol(table), table.metadata(_text(kind)), table.add(_table(values, arrow)))

        return build

    def rows(*found: Any) -> Rows:
        return Rows([{"id": number, "v": value} for number, value in enumerate(found)], variants=["v"])

    struct = nested(columns(column("a", "variant")), pa.struct([("a", _VARIANT)]), {"a": one}, None)
    yield _case("in-struct", "A variant in a struct", struct, rows({"a": "1"}, None), section=_READERS)
    array = nested(list_of("variant"), pa.list_(_VARIANT), [one, two], [])
    yield _case("in-array", "Variants in an array", array, rows(["1", '"x"'], []), section=_READERS)
    map_ = nested(map_of("string", "variant"), pa.map_(pa.string(), _VARIANT), [("k", one), ("l", two)])
    yield _case("in-map", "Variants in a map", map_, rows([("k", "1"), ("l", '"x"')]), section=_READERS)
    yield _case(
        "preview",
        "The feature under the name that it had during its preview",
        _plain(one, preview=True),
        _rows("1"),
        basis=REFERENCE,
    )

    def partitioned(table: TableBuilder) -> None:
        text = schema_text(column("id", "long"), column("p", "string"), column("v", "variant"))
        table.commit(_protocol(table), table.metadata(text, ["p"]), table.add(_table([one, two]), {"p": "a"}))

    expected: list[Row] = [{"id": 0, "p": "a", "v": "1"}, {"id": 1, "p": "a", "v": '"x"'}]
    about = "A variant in a partitioned table"
    yield _case(
        "partitioned",
        about,
        partitioned,
        Rows(expected, variants=["v"]),
        section="compatibility-with-other-delta-features",
    )

    def vector(table: TableBuilder) -> None:
        add = table.add(_table([one, two]))
        table.commit(_protocol(table, "deletionVectors"), table.metadata(_text()), table.with_deleted(add, [0]))

    about = "A variant in a file with a deletion vector"
    yield _case("vector", about, vector, Rows([{"id": 1, "v": '"x"'}], variants=["v"]), section=_READERS)

    def mapped(table: TableBuilder) -> None:
        fields = [
            column(name, kind, delta__columnMapping__id=number, delta__columnMapping__physicalName=f"col-{number}")
            for number, (name, kind) in enumerate((("id", "long"), ("v", "variant")), start=1)
        ]
        mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
        rows = _table([one]).rename_columns(["col-1", "col-2"])
        metadata = table.metadata(schema_text(*fields), configuration=mapping)
        table.commit(_protocol(table, "columnMapping"), metadata, table.add(rows))

    yield _case("mapped", "A variant in a table with column mapping", mapped, _rows("1"), section=_READERS)

    def added(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]))
        rows = pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([one], _VARIANT)})
        table.commit(_protocol(table), table.metadata(_text()), table.add(rows))

    yield _case("column-added", "A variant column that older files lack", added, _rows(None, "1"), section=_READERS)

    def contained(table: TableBuilder) -> None:
        _plain(one, two)(table)
        table.checkpoint()
        table.drop_commits(0)
        table.commit()

    yield _case(
        "checkpoint",
        "A variant column in a checkpoint without earlier commits",
        contained,
        _rows("1", '"x"'),
        section=_READERS,
    )

    def fed(table: TableBuilder) -> None:
        metadata = table.metadata(_text(), configuration={"delta.enableChangeDataFeed": "true"})
        protocol = table.protocol(["variantType", "changeDataFeed"], ["variantType"])
        table.commit(protocol, metadata, table.add(_table([one])))
        table.commit(table.add(pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([two], _VARIANT)})))

    yield _case(
        "feed-on",
        "A variant in a table with a change data feed",
        fed,
        _rows("1", '"x"'),
        section="compatibility-with-other-delta-features",
    )


# --------------------------------------------------------------------------------------------- shredded files


def _shredded() -> Iterator[Case]:
    def group(typed: pa.DataType) -> pa.DataType:
        """A variant that is stored in a column of this type where its values fit."""
        parts = [
            pa.field("metadata", pa.binary(), nullable=False),
            pa.field("value", pa.binary()),
            pa.field("typed_value", typed),
        ]
        return pa.struct(parts)

    def part(typed: pa.DataType) -> pa.DataType:
        """A field or an element of a shredded variant."""
        return pa.struct([pa.field("value", pa.binary()), pa.field("typed_value", typed)])

    def row(typed: Any = None, value: bytes | None = None, *names: str) -> dict[str, Any]:
        return {"metadata": raw.dictionary(names) if names else raw.EMPTY, "value": value, "typed_value": typed}

    def leaf(typed: Any = None, value: bytes | None = None) -> dict[str, Any]:
        return {"value": value, "typed_value": typed}

    def build(typed: pa.DataType, *values: Any, enabled: bool = True) -> Build:
        def made(table: TableBuilder) -> None:
            configuration = {"delta.enableVariantShredding": "true"} if enabled else {}
            metadata = table.metadata(_text(), configuration=configuration)
            table.commit(_protocol(table, shredding=True), metadata, table.add(_table(values, group(typed))))

        return made

    day = datetime.date(2025, 2, 28)
    noon = datetime.datetime(2025, 1, 15, 12, 0, 0, 123456)
    scalars: Sequence[tuple[str, pa.DataType, Any, str]] = (
        ("long", pa.int64(), 2**40, str(2**40)),
        ("integer", pa.int32(), -7, "-7"),
        ("byte", pa.int8(), 7, "7"),
        ("string", pa.string(), "ü", '"ü"'),
        ("boolean", pa.bool_(), True, "true"),
        ("double", pa.float64(), 0.1, "0.1"),
        ("date", pa.date32(), day, '"2025-02-28"'),
        ("timestamp-ntz", pa.timestamp("us"), noon, '"2025-01-15 12:00:00.123456"'),
        (
            "timestamp",
            pa.timestamp("us", "UTC"),
            noon.replace(tzinfo=datetime.timezone.utc),
            '"2025-01-15 12:00:00.123456+00:00"',
        ),
        ("decimal", pa.decimal128(9, 2), decimal.Decimal("123.45"), "123.45"),
        ("binary", pa.binary(), b"\x00\xff", '"AP8="'),
    )
    for name, kind, value, text in scalars:
        about = f"A file in which variants of the type {name} are shredded, next to other ones"
        made = build(kind, row(value), row(None, raw.text("other")), row(None, raw.NULL), None)
        yield _case(f"shredded-{name}", about, made, _rows(text, '"other"', "null", None), section=_SHREDDED)
    fields = pa.struct(
        [pa.field("a", part(pa.int64()), nullable=False), pa.field("b", part(pa.string()), nullable=False)]
    )
    rest = raw.fields([(2, raw.TRUE)])
    made = build(
        fields,
        row({"a": leaf(1), "b": leaf("x")}, None, "a", "b", "c"),
        row({"a": leaf(1), "b": leaf()}, None, "a", "b", "c"),
        row({"a": leaf(None, raw.text("no number")), "b": leaf("x")}, None, "a", "b", "c"),
        row({"a": leaf(2), "b": leaf()}, rest, "a", "b", "c"),
        row({"a": leaf(None, raw.NULL), "b": leaf()}, None, "a", "b", "c"),
        row(None, raw.number(3, 5, 1), "a", "b", "c"),
    )
    texts = ('{"a":1,"b":"x"}', '{"a":1}', '{"a":"no number","b":"x"}', '{"a":2,"c":true}', '{"a":null}', "5")
    about = "Objects with two shredded fields: absent, of another type, null, beside other fields"
    yield _case("shredded-object", about, made, _rows(*texts), section=_SHREDDED)
    made = build(
        pa.list_(pa.field("element", part(pa.int64()), nullable=False)),
        row([leaf(1), leaf(None, raw.text("x")), leaf(None, raw.NULL)]),
        row([]),
        row(None, raw.TRUE),
    )
    about = "Arrays whose elements are shredded"
    yield _case("shredded-array", about, made, _rows('[1,"x",null]', "[]", "true"), section=_SHREDDED)
    inner = pa.struct([pa.field("b", part(pa.int64()), nullable=False)])
    outer = pa.struct([pa.field("a", part(inner), nullable=False)])
    made = build(
        outer,
        row({"a": leaf({"b": leaf(1)})}, None, "a", "b"),
        row({"a": leaf(None, raw.text("x"))}, None, "a", "b"),
        row({"a": leaf({"b": leaf()})}, None, "a", "b"),
    )
    about = "Objects with a shredded field that is a shredded object"
    yield _case("shredded-nested", about, made, _rows('{"a":{"b":1}}', '{"a":"x"}', '{"a":{}}'), section=_SHREDDED)
    about = "A shredded file in a table that has the feature but not the property"
    made = build(pa.int64(), row(5), enabled=False)
    yield _case("shredded-property-off", about, made, _rows("5"), section="reader-requirements-for-variant-shredding")

    def mixed(table: TableBuilder) -> None:
        build(pa.int64(), row(5))(table)
        more = [pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([of(raw.text("x"))], _VARIANT)})]
        more.append(pa.table({"id": pa.array([2], pa.int64()), "v": pa.array([row("y")], group(pa.string()))}))
        table.commit(*map(table.add, more))

    about = "Files with different shreddings of one column, and one without"
    yield _case(
        "shredded-mixed", about, mixed, _rows("5", '"x"', '"y"'), section="reader-requirements-for-variant-shredding"
    )

    def without_value(table: TableBuilder) -> None:
        kind = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("typed_value", pa.int64())])
        rows = _table([{"metadata": raw.EMPTY, "typed_value": 5}], kind)
        table.commit(_protocol(table, shredding=True), table.metadata(_text()), table.add(rows))

    about = "A shredded file without the column value"
    yield _case("shredded-no-value", about, without_value, _rows("5"), section=_SHREDDED)

    def vector(table: TableBuilder) -> None:
        add = table.add(_table([row(1), row(2), row(3)], group(pa.int64())))
        table.commit(
            _protocol(table, "deletionVectors", shredding=True), table.metadata(_text()), table.with_deleted(add, [1])
        )

    expected: list[Row] = [{"id": 0, "v": "1"}, {"id": 2, "v": "3"}]
    about = "A shredded file with a deletion vector"
    yield _case("shredded-vector", about, vector, Rows(expected, variants=["v"]), section=_SHREDDED)


# --------------------------------------------------------------------------------------------- statistics


def _statistics() -> Iterator[Case]:
    def bound(value: str) -> str:
        path = raw.encode({"$['a']": value})
        return deletion_vectors.encode_z85(path["metadata"] + path["value"])

    low, high = bound("min-string"), bound("variant")

    def build(table: TableBuilder) -> None:
        variants = [of(raw.fields([(0, raw.text(each))]), "a") for each in ("min-string", "variant")]
        stats = {
            "numRecords": 2,
            "minValues": {"id": 0, "v": low},
            "maxValues": {"id": 1, "v": high},
            "nullCount": {"id": 0, "v": 0},
        }
        configuration = {**_KEEP, "delta.enableVariantShredding": "true"}
        protocol, metadata = _protocol(table, shredding=True), table.metadata(_text(), configuration=configuration)
        table.commit(protocol, metadata, table.add(_table(variants), stats=stats))

    rows = [{"id": 0, "v": '{"a":"min-string"}'}, {"id": 1, "v": '{"a":"variant"}'}]
    yield _case(
        "statistics", "A file with statistics of a variant", build, Rows(rows, variants=["v"]), section=_STATISTICS
    )
    steps: tuple[Step, ...] = (MayRefuse(Write("delete", where="id = 0")), Log("row-count-one-of", value=[1, 2]))
    about = "A delete from a file with statistics of a variant: refused, or one row is deleted"
    yield _case("statistics-delete", about, build, *steps, section=_STATISTICS)
    about = "A checkpoint keeps the rows of a file with statistics of a variant"
    steps = (Write("checkpoint"), Log("checkpoint", value=0), Rows(rows, variants=["v"]))
    yield _case("statistics-checkpoint", about, build, *steps, section=_STATISTICS)
    about = "A checkpoint with statistics as structs of a table with a variant"
    structs = _plain(of(raw.TRUE), properties={"delta.checkpoint.writeStatsAsStruct": "true"})
    steps = (Write("checkpoint"), Log("checkpoint", value=0), _rows("true"))
    yield _case("statistics-checkpoint-structs", about, structs, *steps, section=_STATISTICS)


# --------------------------------------------------------------------------------------------- written


def _written() -> Iterator[Case]:
    first = '{"a":[1,null,"x"],"b":{"c":0.5}}'
    texts = (first, "null", "[]", '"plain"', "1099511627776", "true", None)
    build = _plain(of(raw.number(3, 1, 1)))
    known: Row = {"id": 0, "v": "1"}
    rows: list[Row] = [{"id": number, "v": text} for number, text in enumerate(texts, start=1)]
    append = Write("append", rows=rows, variants=["v"])
    all_rows = Log("variant-rows-one-of", value=["v", [[known], [known, *rows]]])
    about = "Variants of every kind of JSON are appended, or the append is refused"
    yield _case("append", about, build, MayRefuse(append), all_rows, section=_WRITERS)
    about = "The file of an append has unshredded variants if shredding is not enabled"
    yield _case(
        "append-unshredded", about, build, MayRefuse(append), Log("variants-unshredded", value="v"), section=_WRITERS
    )
    about = "An append counts the nulls of a variant column and records no bounds of it without shredding"
    bare = {"minValues": {"v": [None]}, "maxValues": {"v": [None]}}
    steps: tuple[Step, ...] = (MayRefuse(append), Log("statistics-are", value=bare))
    yield _case("append-statistics", about, build, *steps, section="compatibility-with-other-delta-features")
    about = "The number of nulls of a variant column does not count variants that are null"
    steps = (append, Log("statistics-are", value={"nullCount": {"v": [1]}}), Log("statistics-count-rows", value=7))
    yield _case("append-null-count", about, build, *steps, section=_STATISTICS)
    about = "Variants of an append are read back by the engine"
    only = Write("append", rows=[{"id": 1, "v": first}], variants=["v"])
    yield _case("append-reads", about, build, only, _rows("1", first), section=_WRITERS)
    overwrite = Write("overwrite", rows=rows, variants=["v"])
    about = "An overwrite of a table with variants, or a refusal"
    one_of = Log("variant-rows-one-of", value=["v", [[known], rows]])
    yield _case("overwrite", about, build, MayRefuse(overwrite), one_of, section=_WRITERS)
    two = _plain(of(raw.number(3, 1, 1)), raw.encode({"a": {"b": [1, "x"]}}))
    left: list[Row] = [{"id": 1, "v": '{"a":{"b":[1,"x"]}}'}]
    delete = Write("delete", where="id = 0")
    about = "A delete that rewrites a file with variants, or a refusal"
    one_of = Log("variant-rows-one-of", value=["v", [[known, *left], left]])
    yield _case("delete", about, two, MayRefuse(delete), one_of, section=_WRITERS)

    def vectors(table: TableBuilder) -> None:
        values = [of(raw.number(3, 1, 1)), raw.encode({"a": {"b": [1, "x"]}})]
        metadata = table.metadata(_text(), configuration={"delta.enableDeletionVectors": "true"})
        table.commit(_protocol(table, "deletionVectors"), metadata, table.add(_table(values)))

    about = "A delete by a deletion vector from a file with variants"
    yield _case("delete-vector", about, vectors, delete, Rows(left, variants=["v"]), section=_WRITERS)
    change = Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"})
    about = "A property change of a table with variants"
    yield _case(
        "property", about, build, change, _rows("1"), Log("column-types", value={"v": "variant"}), section=_WRITERS
    )
    about = "A restore of a table with variants"
    yield _case(
        "restore",
        about,
        two,
        MayRefuse(delete),
        Write("restore", version=0),
        Log("variant-rows-one-of", value=["v", [[known, *left]]]),
        section=_WRITERS,
        basis=REFERENCE,
    )
    about = "An append without the variant column writes nulls"
    absent = Write("append", rows=[{"id": 1}])
    yield _case(
        "append-absent",
        about,
        build,
        MayRefuse(absent),
        Log("variant-rows-one-of", value=["v", [[known], [known, {"id": 1, "v": None}]]]),
        section=_WRITERS,
    )

    def shredding(table: TableBuilder) -> None:
        configuration = {**_KEEP, "delta.enableVariantShredding": "true"}
        metadata = table.metadata(_text(), configuration=configuration)
        table.commit(_protocol(table, shredding=True), metadata, table.add(_table([of(raw.number(3, 1, 1))])))

    about = "An append to a table with shredding enabled, or a refusal"
    yield _case(
        "append-shredding",
        about,
        shredding,
        MayRefuse(append),
        all_rows,
        section="writer-requirements-for-variant-shredding",
    )
    about = "A table gets the property of shredding: the protocol lists the feature"
    enable = Write("set_properties", properties={"delta.enableVariantShredding": "true"})
    listed = Log("shredding-supported")
    yield _case(
        "enable-shredding",
        about,
        build,
        MayRefuse(enable),
        listed,
        _rows("1"),
        section="writer-requirements-for-variant-shredding",
    )
