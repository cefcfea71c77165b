"""Tables that only some engines write: deletion vectors, column mapping, wider types, variants, void columns."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import deltalog
import spark_ext
from spark_ext.reading.scan import chunks
from tests.spark.settings import IS_CONNECT, session_of, since
from tests.spark.tables import action, append_raw, field, history, make, make_raw, rows, schema, struct_of, vector

BY_NAME, BY_ID = ({"delta.columnMapping.mode": mode} for mode in ("name", "id"))


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def with_ids(fields: list[tuple[int | None, str, Any]]) -> list[pa.Field]:
    """Arrow fields with Parquet field ids: (id, name, type)."""
    return [
        pa.field(name, kind, metadata=None if number is None else {"PARQUET:field_id": str(number)})
        for number, name, kind in fields
    ]


def plan(df: Any, capsys: Any) -> str:
    capsys.readouterr()
    df.explain("formatted")
    return str(capsys.readouterr().out)


# --- deletion vectors


@pytest.mark.parametrize("seed", range(3))
def test_bitmaps_hold_exactly_the_positions(seed: int) -> None:
    dice = random.Random(seed)
    wanted = {0, 63, 64, 4095, 4096, 2**31, 2**43 - 1} | {dice.randrange(50_000) for _ in range(20_000)}
    found = {
        chunk * 4096 + word * 64 + bit
        for chunk, words in chunks(BitMap64(wanted | {2**43, 2**63}))
        for word, value in enumerate(words)
        for bit in range(64)
        if value >> bit & 1
    }
    assert found == wanted  # no file has a row number above 2**43
    assert all(-(2**63) <= value < 2**63 for _, words in chunks(BitMap64(wanted)) for value in words)


@pytest.mark.parametrize("layout", ["p={0}/f{1}.parquet", "any [{0}]/f{1}.parquet", "p={0}/_f{1}.parquet"])
def test_deletion_vectors_of_every_kind_in_every_layout(spark: Any, table: str, layout: str) -> None:
    Path(table).mkdir()
    deleted = [vector(table, [0, 2]), vector(table, [1], "u"), vector(table, [2, 9], "p"), None]
    files = [
        (layout.format(i % 2, i), {"p": str(i % 2)}, ids(i * 10, i * 10 + 1, i * 10 + 2), each)
        for i, each in enumerate(deleted)
    ]
    make_raw(table, [field("id", "long"), field("p", "integer")], files, ["p"])
    df = spark_ext.read(spark).load(table)
    assert rows(df) == [(1, 0), (10, 1), (12, 1), (20, 0), (21, 0), (30, 1), (31, 1), (32, 1)]
    assert rows(df.where("p = 0 and id > 1").select("id")) == [(20,), (21,)]
    assert df.count() == 8 and df.where("p = 1").count() == 5


def test_filters_and_columns_reach_the_scan_also_under_a_deletion_vector(spark: Any, table: str, capsys: Any) -> None:
    count, dice = 20_000, random.Random(7)
    deleted = set(dice.sample(range(count), 7_000)) | {0, count - 1}
    Path(table).mkdir()
    data = pa.table({"id": pa.array(range(count), pa.int64()), "unread": ["x"] * count})
    files = [
        ("deleted.parquet", {}, data, vector(table, deleted, "u")),
        ("whole.parquet", {}, pa.table({"id": pa.array([-1], pa.int64()), "unread": ["y"]})),
    ]
    make_raw(table, [field("id", "long"), field("unread", "string")], files)
    df = spark_ext.read(spark).load(table)
    left = {-1} | set(range(count)) - deleted
    assert {r[0] for r in df.select("id").collect()} == left
    few = df.where("id between 9990 and 10020").select("id")
    text = plan(few, capsys)
    pushed = "PushedFilters: [IsNotNull(id), GreaterThanOrEqual(id,9990), LessThanOrEqual(id,10020)]"
    assert text.count(pushed) == text.count("\nBatched: true") == 2
    assert "unread" not in text and "SortMergeJoin" not in text
    assert {r[0] for r in few.collect()} == {i for i in left if 9990 <= i <= 10020}


def test_a_plain_table_is_a_plain_scan(spark: Any, table: str, capsys: Any) -> None:
    make(table, schema(id="long", s="string"), [("a.parquet", {}, ids(1, 2))])
    text = plan(spark_ext.read(spark).load(table).where("id > 1").select("id"), capsys)
    assert "Join" not in text and "PushedFilters: [IsNotNull(id), GreaterThan(id,1)]" in text
    assert "ReadSchema: struct<id:bigint>" in text


def test_a_column_that_hides_the_row_numbers(spark: Any, table: str) -> None:
    data = pa.table({"_metadata": pa.array(range(1200), pa.int64())})
    make_raw(table, [field("_metadata", "long")], [("a.parquet", {}, data, vector("", range(1, 1199)))])
    assert rows(spark_ext.read(spark).load(table)) == [(0,), (1199,)]


def test_a_deletion_vector_that_is_gone_or_damaged_is_an_error(spark: Any, table: str) -> None:
    Path(table).mkdir()
    descriptor = vector(table, [0], "u")
    make_raw(table, [field("id", "long")], [("a.parquet", {}, ids(1, 2), descriptor)])
    (found,) = Path(table).glob("*.bin")
    found.write_bytes(found.read_bytes()[:-1] + b"\0")
    with pytest.raises(deltalog.errors.InvalidDataFileError, match="checksum does not match"):
        spark_ext.read(spark).load(table)
    found.unlink()
    with pytest.raises(deltalog.errors.InvalidDataFileError, match="missing"):
        spark_ext.read(spark).load(table)


def test_one_file_with_two_deletion_vectors_is_refused(spark: Any, table: str) -> None:
    make_raw(table, [field("id", "long")], [("a b.parquet", {}, ids(1, 2), vector("", [0]))])
    add = action(table, 0, "add")[0]
    again = {**add, "path": f"{table}/a%20b.parquet", "deletionVector": vector("", [1])}
    append_raw(table, 1, {"add": again})
    with pytest.raises(deltalog.CorruptTableError, match="twice, with different partition values or deletion vectors"):
        spark_ext.read(spark).load(table)


def test_a_missing_data_file_is_named(spark: Any, table: str) -> None:
    make(table, schema(id="long"), [("a b.parquet", {}, ids(1))])
    (Path(table) / "a b.parquet").unlink()
    if IS_CONNECT:  # the server notices the missing file only when an action runs
        df = spark_ext.read(spark).load(table)
        with pytest.raises(Exception, match=r"a b\.parquet|a%20b\.parquet"):
            df.collect()
        return
    with pytest.raises(deltalog.errors.InvalidDataFileError, match=r"a b\.parquet is missing") as error:
        spark_ext.read(spark).load(table)
    assert error.value.path is not None and error.value.path.endswith("a b.parquet")


def test_files_of_another_place_are_read_when_it_is_allowed(spark: Any, table: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(ids(5, 6), other / "x y.parquet")
    make_raw(table, [field("id", "long")], [("a.parquet", {}, ids(1))])
    add = {**action(table, 0, "add")[0], "path": f"{other}/x%20y.parquet"}
    append_raw(table, 1, {"add": {**add, "deletionVector": vector(table, [0], "p", str(other))}})
    with pytest.raises(deltalog.errors.UnsafePathError):
        spark_ext.read(spark).load(table)
    for allowed in (str(other), [str(other)]):
        assert rows(spark_ext.read(spark).option("allowedPaths", allowed).load(table)) == [(1,), (6,)]


# --- column mapping

PERSON = struct_of(field("name", "string", id=11, physical="c11"), field("age", "integer", id=12, physical="c12"))
MAPPED = [
    field("id", "long", id=1, physical="c1"),
    field("who", PERSON, id=2, physical="c2"),
    field("all", {"type": "array", "elementType": PERSON, "containsNull": True}, id=3, physical="c3"),
    field(
        "by key",
        {"type": "map", "keyType": "string", "valueType": PERSON, "valueContainsNull": True},
        id=4,
        physical="c4",
    ),
    field("later", "string", id=5, physical="c5"),
    field("p", "string", id=6, physical="c6"),
]


def person(stored: list[tuple[int | None, str, Any]]) -> pa.StructType:
    return pa.struct(with_ids(stored))


@pytest.mark.parametrize("name", ["a b.parquet", "c6=x/f.parquet", "c6=x/_hidden.parquet"])
def test_columns_are_read_under_their_physical_names(spark: Any, table: str, name: str, capsys: Any) -> None:
    kind = person([(None, "c12", pa.int32()), (None, "c11", pa.string())])
    ann = {"c12": 7, "c11": "Ann"}
    data = pa.table(
        {
            # The data of a dropped column. Because of column mapping, this data is not read as the column named id.
            "id": pa.array([9, 9, 9], pa.int64()),
            "c1": pa.array([1, 2, 3], pa.int64()),
            "c2": pa.array([ann, None, ann], kind),
        }
    )
    if "_" not in name:
        data = data.append_column("c3", pa.array([[ann, None], [], None], pa.list_(kind)))
        data = data.append_column("c4", pa.array([[("k", ann)], [], None], pa.map_(pa.string(), kind)))
    make_raw(table, MAPPED, [(name, {"c6": "x"}, data, vector("", [2]))], ["p"], BY_NAME)
    df = spark_ext.read(spark).load(table)
    assert df.columns == ["id", "who", "all", "by key", "later", "p"]
    assert "columnMapping" not in df.schema.json()
    one, two = df.orderBy("id").collect()
    assert one.asDict(recursive=True) == {
        "id": 1,
        "who": {"name": "Ann", "age": 7},
        "all": None if "_" in name else [{"name": "Ann", "age": 7}, None],
        "by key": None if "_" in name else {"k": {"name": "Ann", "age": 7}},
        "later": None,
        "p": "x",
    }
    assert (two["id"], two["who"], two["p"]) == (2, None, "x")
    assert df.where("who.age = 7 and id < 3").select("id").collect() == [(1,)]
    if "_" not in name:
        text = plan(df.where("id = 1").select("id"), capsys)
        assert "EqualTo(c1,1)" in text and "c2" not in text


def test_columns_are_found_by_id_whatever_their_names(spark: Any, table: str) -> None:
    fields = [
        field("a", "long", id=1, physical="a"),
        field("b", "long", id=2, physical="b"),
        field("who", PERSON, id=3, physical="who"),
        field("c", "long", id=4, physical="c"),
    ]
    swapped_person = person([(12, "c11", pa.int32()), (11, "c12", pa.string())])
    swapped = pa.table(
        [pa.array([2]), pa.array([1]), pa.array([{"c11": 7, "c12": "Ann"}], swapped_person), pa.array([0])],
        schema=pa.schema(
            with_ids([(2, "a", pa.int64()), (1, "b", pa.int64()), (3, "x", swapped_person), (99, "c", pa.int64())])
        ),
    )
    plain_person = person([(11, "c11", pa.string())])
    plain = pa.table(
        [pa.array([10]), pa.array([{"c11": "Bo"}], plain_person)],
        schema=pa.schema(with_ids([(1, "a", pa.int64()), (3, "who", plain_person)])),
    )
    without = pa.table({"a": [5], "b": [6]})
    files: list[tuple[Any, ...]] = [("s.parquet", {}, swapped), ("p.parquet", {}, plain), ("n.parquet", {}, without)]
    make_raw(table, fields, files, (), BY_ID)
    df = spark_ext.read(spark).load(table)
    expected = [(None, None, None, None), (1, 2, ("Ann", 7), None), (10, None, ("Bo", None), None)]
    assert [tuple(r) for r in df.orderBy("a").collect()] == expected
    assert [r["b"] for r in df.where("a = 1").collect()] == [2] and df.where("c = 0").count() == 0
    python = deltalog.DeltaTable.open(table).snapshot().scan().to_arrow().sort_by("a").to_pylist()
    assert [row["a"] for row in python] == [1, 10, None]


WRITTEN = "`the id` BIGINT, p STRING, s STRUCT<x: INT, `y z`: ARRAY<STRUCT<q: STRING>>>, m MAP<STRING, STRUCT<x: INT>>"
MAPPED_ROWS: list[tuple[Any, ...]] = [
    (1, "u/v", (1, [("k",), None]), {"a": (1,), "b": None}),
    (2, None, None, None),
    (3, "w", (None, []), {}),
]


@pytest.mark.parametrize("properties", [BY_NAME, BY_ID], ids=["name", "id"])
def test_mapped_tables_are_written_under_physical_names_with_ids(
    spark: Any, table: str, properties: dict[str, str]
) -> None:
    df = spark.createDataFrame(MAPPED_ROWS, WRITTEN)
    spark_ext.write(df).options(**properties).partitionBy("p").save(table)
    later = df.selectExpr("`the id` + 10 AS `the id`", "p", "s", "m", "'x' AS `new one`")
    spark_ext.write(later).mode("append").option("mergeSchema", True).save(table)
    opened = deltalog.DeltaTable.open(table)
    opened.rename_column("s.x", "renamed")
    snapshot = opened.snapshot()
    expected = sorted([(*row, None) for row in MAPPED_ROWS] + [(row[0] + 10, *row[1:], "x") for row in MAPPED_ROWS])
    read_back = sorted(tuple(row) for row in spark_ext.read(spark).load(table).collect())
    assert [_plain(row) for row in read_back] == [_plain(row) for row in expected]
    python = sorted(
        map(tuple, (row.values() for row in snapshot.scan().to_arrow().to_pylist())), key=lambda row: row[0]
    )
    assert [(row[0], row[1], row[4]) for row in python] == [(row[0], row[1], row[4]) for row in expected]
    assert python[0][2] == {"renamed": 1, "y z": [{"q": "k"}, None]}
    top = {column.metadata["delta.columnMapping.physicalName"]: column for column in snapshot.schema}
    for path in snapshot.files()["path"].to_pylist():
        stored = pq.ParquetFile(snapshot.file_path(path)).schema_arrow
        assert set(stored.names) <= set(top) and len(stored.names) in (3, 4)
        for each in stored:
            number = str(top[each.name].metadata["delta.columnMapping.id"]).encode()
            assert each.metadata[b"PARQUET:field_id"] == number
        (struct,) = (each for each in stored if top[each.name].name == "s")
        inner = {f.name: f.metadata[b"PARQUET:field_id"] for f in struct.type.fields}
        table_type: Any = top[struct.name].data_type
        assert inner == {
            f.metadata["delta.columnMapping.physicalName"]: str(f.metadata["delta.columnMapping.id"]).encode()
            for f in table_type.fields
        }
    assert snapshot.scan(where="`the id` = 12").to_arrow().num_rows == 1


def _plain(value: Any) -> Any:
    """Rows of Spark as tuples."""
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def test_mapped_tables_are_overwritten(spark: Any, table: str) -> None:
    df = spark.createDataFrame([(1, "a")], "`the id` BIGINT, p STRING")
    spark_ext.write(df).options(**BY_NAME).save(table)
    spark_ext.write(df.selectExpr("`the id`", "5 AS p")).mode("overwrite").option("overwriteSchema", True).save(table)
    assert [tuple(row) for row in spark_ext.read(spark).load(table).collect()] == [(1, 5)]
    assert [tuple(row) for row in spark_ext.read(spark).option("versionAsOf", 0).load(table).collect()] == [(1, "a")]


def test_footers_that_cannot_be_read_are_named(spark: Any, table: str) -> None:
    make_raw(table, [field("a", "long", id=1, physical="a")], [("a.parquet", {}, ids(1))], (), BY_ID)
    (Path(table) / "a.parquet").write_bytes(b"PAR1 not parquet")
    with pytest.raises(deltalog.errors.InvalidDataFileError, match=r"a\.parquet is missing or cannot be read"):
        spark_ext.read(spark).load(table)


# --- types


def test_files_from_before_a_type_was_widened(spark: Any, table: str) -> None:
    changed: dict[str, Any] = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
    fields = [
        field("a", "long", **changed),
        field("b", "decimal(12,4)", **changed),
        field("c", "double", **changed),
        field("d", "timestamp_ntz", **changed),
        field("e", {"type": "array", "elementType": "long", "containsNull": True}),
        field("f", "short"),
    ]
    old = pa.table(
        {
            "a": pa.array([1, 2], pa.int32()),
            "b": pa.array([1, 2], pa.int8()),
            "c": pa.array([1.5, 2.5], pa.float32()),
            "d": pa.array([dt.date(1500, 2, 28), None]),
            "e": pa.array([[1, None], None], pa.list_(pa.int16())),
            "f": pa.array([1, 2], pa.int32()),
        }
    )
    new = pa.table({"a": pa.array([5_000_000_000], pa.int64()), "c": pa.array([1e300])})
    make_raw(table, fields, [("old.parquet", {}, old, vector("", [1])), ("_new.parquet", {}, new)])
    df = spark_ext.read(spark).load(table)
    first, second = df.orderBy("a").collect()
    assert tuple(first)[2:] == (1.5, dt.datetime(1500, 2, 28), [1, None], 1) and str(first["b"]) == "1.0000"
    assert tuple(second) == (5_000_000_000, None, 1e300, None, None, None)
    assert df.where("a = 5000000000").count() == 1 and df.where("a = 1 and c = 1.5").count() == 1


def test_keys_of_maps_from_before_their_type_was_widened(spark: Any, table: str) -> None:
    """Spark does not cast a map if the cast could make a key null, for example a cast of date keys to timestamp_ntz."""
    kind = {"type": "map", "keyType": "timestamp_ntz", "valueType": "long", "valueContainsNull": True}
    changed: dict[str, Any] = {
        "delta.typeChanges": [{"fromType": "date", "toType": "timestamp_ntz", "fieldPath": "key"}]
    }
    inner = struct_of(field("m", kind, **changed))
    data = pa.table(
        {
            "m": pa.array([[(dt.date(1500, 2, 28), 1)], None], pa.map_(pa.date32(), pa.int32())),
            "st": pa.array([{"m": [(dt.date(2020, 2, 29), None)]}, None], pa.struct({"m": pa.map_("date32", "int32")})),
        }
    )
    make_raw(table, [field("m", kind, **changed), field("st", inner)], [("a.parquet", {}, data)])
    found = [tuple(row) for row in spark_ext.read(spark).load(table).collect()]
    assert found == [({dt.datetime(1500, 2, 28): 1}, ({dt.datetime(2020, 2, 29): None},)), (None, None)]


def test_void_columns_are_null_at_every_depth(spark: Any, table: str) -> None:
    inner = struct_of(field("x", "integer", False), field("nothing", "void"))
    fields = [
        field("nothing", "void"),
        field("id", "long"),
        field("st", inner),
        field("ar", {"type": "array", "elementType": inner, "containsNull": True}),
    ]
    kind = pa.struct([pa.field("x", pa.int32())])
    data = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "st": pa.array([{"x": 1}, None], kind),
            "ar": pa.array([[{"x": 1}, None], None], pa.list_(kind)),
        }
    )
    make_raw(table, fields, [("a.parquet", {}, data)])
    df = spark_ext.read(spark).load(table)
    assert df.schema == spark_ext.to_spark(deltalog.DeltaTable.open(table).snapshot().schema)
    assert rows(df.select("id", "st", "ar"), "id") == [(1, (1, None), [(1, None), None]), (2, None, None)]
    assert df.where("nothing is null").count() == 2


def test_void_columns_are_in_no_file_that_is_written(spark: Any, table: str) -> None:
    inner = struct_of(field("x", "integer"), field("nothing", "void"))
    array = {"type": "array", "elementType": inner, "containsNull": True}
    stored = pa.struct([pa.field("x", pa.int32())])
    first = pa.table({"id": pa.array([1], pa.int64()), "st": pa.array([{"x": 1}], stored),
                      "ar": pa.array([[{"x": 1}]], pa.list_(stored))})  # fmt: skip
    fields = [field("nothing", "void"), field("id", "long"), field("st", inner), field("ar", array)]
    make_raw(table, fields, [("a.parquet", {}, first)])
    spark_ext.write(spark.sql("select 2L id, named_struct('x', 5) st")).mode("append").save(table)
    files = deltalog.DeltaTable.open(table).snapshot().files()
    for path in files["path"].to_pylist():
        written = pq.read_schema(Path(table, path))
        structs = written.field("st").type, written.field("ar").type.value_type
        assert written.names == ["id", "st", "ar"], written
        assert [[each.name for each in kind.fields] for kind in structs] == [["x"], ["x"]], written
    found = rows(spark_ext.read(spark).load(table).select("id", "st.x", "st.nothing", "nothing"), "id")
    assert found == [(1, 1, None, None), (2, 5, None, None)]


def test_a_table_whose_columns_are_all_void_holds_no_rows(spark: Any, table: str) -> None:
    make_raw(table, [field("p", "string"), field("v", "void")], [], ["p"])
    with pytest.raises(deltalog.SchemaMismatchError, match="All columns of the table"):
        spark_ext.write(spark.sql("select 'x' p")).mode("append").save(table)
    make_raw(table + "2", [field("id", "long"), field("v", struct_of(field("x", "void")))], [])
    with pytest.raises(deltalog.SchemaMismatchError, match="fields all have the type void"):
        spark_ext.write(spark.sql("select 1L id")).mode("append").save(table + "2")


@since("4.0", "collations")
def test_text_with_a_collation_that_spark_does_not_know_is_compared_by_its_bytes(spark: Any, table: str) -> None:
    known: dict[str, Any] = {"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}
    unknown: dict[str, Any] = {"__COLLATIONS": {"t": "ICU.de_DE"}}
    foreign: dict[str, Any] = {"__COLLATIONS": {"u.element": "other.x"}}
    texts = {"type": "array", "elementType": "string", "containsNull": True}
    fields = [field("s", "string", **known), field("t", "string", **unknown), field("u", texts, **foreign)]
    data = pa.table({"s": ["a"], "t": ["a"], "u": pa.array([["a"]], pa.list_(pa.string()))})
    make_raw(table, fields, [("a.parquet", {}, data)])
    df = spark_ext.read(spark).load(table)
    (found,) = df.selectExpr("s = 'A'", "t = 'A'", "u[0] = 'A'", "t = 'a'").collect()
    assert tuple(found) == (True, False, False, True)
    kept = [each.metadata for each in deltalog.DeltaTable.open(table).snapshot().schema.fields]
    assert kept == [known, unknown, foreign]


@since("4.0", "variants")
def test_variants_are_variants(spark: Any, table: str) -> None:
    query = """select id, parse_json(s) v, named_struct('v', parse_json(s)) st, array(parse_json(s), null) ar
        from values (1, '{"a":[1,"x"]}'), (2, '7'), (3, null) t(id, s)"""
    for shredding in ("false", "true"):
        there = Path(table + shredding)
        writer = spark.sql(query).coalesce(1).write
        writer.option("spark.sql.variant.writeShredding.enabled", shredding).parquet(str(there))
        (file,) = there.glob("*.parquet")
        nested = {"type": "array", "elementType": "variant", "containsNull": True}
        fields = [
            field("id", "integer"),
            field("v", "variant"),
            field("st", struct_of(field("v", "variant"))),
            field("ar", nested),
        ]
        make_raw(str(there), fields, [(file.name, {}, None, vector("", [1]))])
        df = spark_ext.read(spark).load(str(there))
        assert df.schema.simpleString() == "struct<id:int,v:variant,st:struct<v:variant>,ar:array<variant>>"
        told = df.selectExpr("id", "to_json(v)", "variant_get(st.v, '$.a[0]', 'int')", "to_json(ar)")
        assert rows(told, "id") == [(1, '{"a":[1,"x"]}', 1, '[{"a":[1,"x"]},null]'), (3, None, None, "[null,null]")]


# --- changes


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with a change data feed and versions 0 (no row) to 3, committed from 2026-01-01 on, a second apart."""
    path = str(tmp_path_factory.mktemp("changed") / "table")
    properties = {"delta.enableChangeDataFeed": "true"}
    times = [1_767_225_600_000 + 1000 * i for i in range(4)]
    history(path, ids().schema, [None, ids(1), ids(2), ids(3)], times, properties)
    return path


def told(df: Any) -> list[tuple[Any, ...]]:
    """Changes as (id, kind, version, ms since 2026-01-01)."""
    columns = ["id", "_change_type", "_commit_version", "unix_millis(_commit_timestamp) - 1767225600000 as ms"]
    return rows(df.selectExpr(*columns), "_commit_version", "id")


def test_changes_by_version_and_by_time(spark: Any, changed: str, zone: Any) -> None:
    every = [(i, "insert", i, i * 1000) for i in (1, 2, 3)]
    assert told(spark_ext.read_changes(spark, changed, 0)) == every
    assert told(spark_ext.read_changes(spark, changed, "2", 2)) == every[1:2]
    zone("Asia/Tokyo")

    def between(first: Any, last: Any = None) -> list[tuple[Any, ...]]:
        return told(spark_ext.read_changes(spark, changed, starting_timestamp=first, ending_timestamp=last))

    assert between("2026-01-01 09:00:01") == every
    assert between("2026-01-01 09:00:01.0001") == every[1:]
    assert between("2026-01-01T00:00:01Z", "2026-01-01T00:00:02.9999Z") == every[:2]
    assert between(dt.datetime(2026, 1, 1, 0, 0, 3, tzinfo=dt.timezone.utc)) == every[2:]
    assert between("2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z") == every
    allowing = spark_ext.read(spark).options(readChangeFeed=True, startingVersion=2, allowOutOfRange=True)
    for name, end in (("endingTimestamp", "2026-01-01T00:00:03.001Z"), ("endingVersion", 4)):
        strict = spark_ext.read(spark).options(readChangeFeed=True, startingVersion=2).option(name, end)
        with pytest.raises((deltalog.TimestampOutOfRangeError, deltalog.VersionNotFoundError)):
            strict.load(changed)
    assert told(allowing.option("endingVersion", 4).load(changed)) == every[1:]
    allowing = spark_ext.read(spark).options(readChangeFeed=True, startingVersion=2, allowOutOfRange=True)
    assert told(allowing.option("endingTimestamp", "2026-01-01T00:00:03.001Z").load(changed)) == every[1:]


def test_changes_by_reader_options(spark: Any, changed: str) -> None:
    feed = spark_ext.read(spark).option("readChangeFeed", "true")
    assert [r[0] for r in told(feed.options(startingVersion="1", endingVersion=2).load(changed))] == [1, 2]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"readChangeFeed": True}, "Pass from_version or from_timestamp"),
        ({"readChangeFeed": True, "startingVersion": 0, "versionAsOf": 1}, "versionAsOf cannot be combined"),
        ({"startingVersion": 0}, r"startingVersion needs option\('readChangeFeed', True\)"),
        ({"readChangeFeed": "yes", "startingVersion": 0}, "it can be true or false"),
        ({"readChangeFeed": True, "startingVersion": "x"}, "startingVersion is 'x', but must be a version number"),
    ]
    for options, message in wrong:
        with pytest.raises(deltalog.CallError, match=message):
            spark_ext.read(spark).options(**options).load(changed)
    with pytest.raises(deltalog.InvalidTimestampError, match="startingTimestamp 'x' is not a timestamp"):
        spark_ext.read_changes(spark, changed, starting_timestamp="x")


def test_changes_after_the_latest_version(spark: Any, changed: str) -> None:
    """If timestamps out of range are allowed, by an option or by delta-spark's session setting, the result is the same
    as in delta-spark with that setting. An option takes precedence over the setting."""
    latest = deltalog.DeltaTable.open(changed).version
    out_of_range: dict[str, Any] = {"allow_out_of_range": True}
    nothing = spark_ext.read_changes(spark, changed, latest + 1, **out_of_range)
    assert nothing.collect() == [] and nothing.schema == spark_ext.read_changes(spark, changed, 0).schema
    assert told(spark_ext.read_changes(spark, changed, starting_timestamp="2030-01-01", **out_of_range)) == []
    last = told(spark_ext.read_changes(spark, changed, latest))
    assert told(spark_ext.read_changes(spark, changed, latest, latest + 3, **out_of_range)) == last
    with pytest.raises(deltalog.CallError, match="is empty"):
        spark_ext.read_changes(spark, changed, 1, 0, **out_of_range)
    feed = spark_ext.read(spark).options(readChangeFeed=True, startingVersion=latest + 1)
    with pytest.raises(deltalog.DeltaLogError):
        feed.load(changed)
    with session_of(spark, {"spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "true"}):
        assert told(feed.load(changed)) == []
        with pytest.raises(deltalog.DeltaLogError):
            feed.option("allowOutOfRange", False).load(changed)
    assert told(feed.option("allowOutOfRange", "TRUE").load(changed)) == []


def test_changes_by_deletion_vectors(spark: Any, table: str) -> None:
    """A deletion vector grows, then shrinks (by a restore), and then the file is removed: every change of a row is
    returned once."""
    feed = {"delta.enableChangeDataFeed": "true"}
    files = [("f 1.parquet", {"p": "1"}, ids(0, 1, 2, 3))]
    make_raw(table, [field("id", "long"), field("p", "integer")], files, ["p"], feed)
    add = action(table, 0, "add")[0]
    states: list[list[int] | None] = [[], [1], [1, 2], [2], None]
    for version in range(1, len(states)):
        before, after = states[version - 1] or [], states[version]
        removed = {"path": add["path"], "dataChange": True, "partitionValues": {"p": "1"}}
        removed |= {"deletionVector": vector("", before)} if before else {}
        lines: list[dict[str, Any]] = [{"commitInfo": {"operation": "TEST"}}, {"remove": removed}]
        if after is not None:
            lines.append({"add": {**add, "deletionVector": vector("", after)}})
        append_raw(table, version, *lines)
    changes = spark_ext.read_changes(spark, table, 0)
    found = rows(changes.select("_commit_version", "_change_type", "id", "p"))
    inserted = [(0, "insert", i, 1) for i in range(4)]
    later = [(1, "delete", 1, 1), (2, "delete", 2, 1), (3, "insert", 1, 1)]
    assert found == [*inserted, *later, *[(4, "delete", i, 1) for i in (0, 1, 3)]]


def test_no_change_in_the_range(spark: Any, changed: str) -> None:
    none = spark_ext.read_changes(spark, changed, 0, 0)
    assert none.collect() == []
    assert none.columns == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
    assert none.schema == spark_ext.read_changes(spark, changed, 0, 1).schema
