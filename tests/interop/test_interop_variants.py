"""Variants of deltalog and of delta-spark: the same bytes, the same text, tables that both change in turn."""

from __future__ import annotations

import datetime
import decimal
import json
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from deltalog.expressions.compile import compile_expression
from deltalog.protocol.schema import VARIANT
from deltalog.protocol.variant import check, to_json
from deltalog.protocol.variant_encoding import encoded_json
from deltalog.schema import (
    PrimitiveType,
    StructField,
    StructType,
    variant_from_json,
    variant_from_python,
    variant_to_python,
)
from tests.support.spark import DeltaSpark
from tests.support.spark.log_files import actions, commits

SCHEMA = StructType((StructField("id", PrimitiveType("long")), StructField("v", VARIANT)))
SHREDDED = {"delta.enableVariantShredding": "true"}
STATISTICS = "spark.databricks.delta.stats.limitPerVariant"


@contextmanager
def settings(delta: DeltaSpark, values: dict[str, str]) -> Iterator[None]:
    for key, value in values.items():
        delta.spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            delta.spark.conf.unset(key)


# ------------------------------------------------------------------------------------------------ encoding


def random_json(chance: random.Random, depth: int = 0) -> str:
    kind = chance.randrange(9 if depth < 4 else 7)
    if kind == 0:
        return chance.choice(["null", "true", "false"])
    if kind == 1:
        return str(chance.choice([0, 1, -1]) or chance.randrange(-(2 ** chance.randrange(1, 140)), 2**70))
    if kind == 2:
        digits = "".join(chance.choice("0123456789") for _ in range(chance.randrange(1, 45)))
        return f"{chance.choice(['', '-'])}{chance.randrange(10 ** chance.randrange(1, 20))}.{digits}"
    if kind == 3:
        exponent = f"{chance.choice('eE')}{chance.choice(['', '+', '-'])}{chance.randrange(330)}"
        return f"{chance.randrange(100)}{chance.choice(['', '.5', '.25'])}{exponent}"
    if kind in (4, 5, 6):
        return random_text(chance)
    count = chance.choice([0, 1, 2, 3, 5, chance.randrange(300) if depth < 2 else 4])
    if kind == 7:
        return "[" + chance.choice([",", " , "]).join(random_json(chance, depth + 1) for _ in range(count)) + "]"
    names = {
        random_text(chance) if chance.random() < 0.3 else f'"{chance.choice("abcdefgh")}{n}"' for n in range(count)
    }
    fields = {json.loads(name): name for name in names}
    return "{" + ",".join(f"{name}: {random_json(chance, depth + 1)}" for name in fields.values()) + "}"


def random_text(chance: random.Random) -> str:
    letters = 'ab "\\/\b\f\n\r\t\x00\x0b\x1f\x7fé€\ud7ff\U0001f600'
    text = "".join(chance.choice(letters) for _ in range(chance.choice([0, 1, 3, 63, 64, 300])))
    return json.dumps(text, ensure_ascii=chance.random() < 0.5)


def of_spark(delta: DeltaSpark, texts: list[str]) -> list[tuple[bytes, bytes, str] | None]:
    """The metadata, the value and the JSON text of Spark's variants of JSON texts; None: Spark refuses the text."""
    rows = delta.spark.createDataFrame(list(enumerate(texts)), "n INT, s STRING")
    found = rows.selectExpr("n", "try_parse_json(s) AS v", "to_json(try_parse_json(s)) AS t").orderBy("n").collect()
    return [None if row.v is None else (bytes(row.v.metadata), bytes(row.v.value), row.t) for row in found]


def compared(delta: DeltaSpark, seed: int, count: int) -> None:
    chance = random.Random(seed)
    texts = [random_json(chance) for _ in range(count)]
    for text, theirs in zip(texts, of_spark(delta, texts), strict=True):
        assert theirs is not None, text
        metadata, value = encoded_json(text)
        assert (metadata, value) == theirs[:2], text
        check(metadata, value)
        ours = to_json(metadata, value)
        # Java 17 and older do not always write the shortest digits of a double.
        assert ours == theirs[2] or json.loads(ours) == json.loads(theirs[2]), (text, ours, theirs[2])


def test_json_has_the_bytes_and_the_text_of_spark(delta: DeltaSpark) -> None:
    compared(delta, 1, 400)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_more_json_has_the_bytes_and_the_text_of_spark(delta: DeltaSpark, seed: int) -> None:
    compared(delta, seed, 3000)


NO_JSON = [
    "",
    " ",
    "{",
    "[1,]",
    "{'a': 1}",
    "{a: 1}",
    "NaN",
    "Infinity",
    "01",
    "1.",
    ".5",
    "+1",
    "'x'",
    '"\t"',
    '"\\x"',
    "nul",
    '{"a": 1, "a": 2}',
    '{"a"}',
    "[" * 1500,
    "\x00",
]


def test_text_that_spark_refuses_is_refused(delta: DeltaSpark) -> None:
    for text, theirs in zip(NO_JSON, of_spark(delta, NO_JSON), strict=True):
        assert theirs is None, text
        with pytest.raises(ValueError, match=r"."):
            encoded_json(text)


VALUES: list[Any] = [
    None,
    True,
    7,
    -(2**63),
    10**30,
    1.5,
    0.1,
    1e300,
    decimal.Decimal("1.50"),
    decimal.Decimal("9" * 38),
    "é" * 40,
    "",
    b"\x00\xff",
    datetime.date(1, 1, 1),
    datetime.date(9999, 12, 31),
    datetime.datetime(1960, 1, 2, 3, 4, 5, 678_901),
    datetime.datetime(2020, 1, 1, 0, 0, 0, 500_000, datetime.timezone.utc),
    uuid.UUID(int=7),
    [],
    {},
    [1, [None, {"a": []}]],
    {"b": {"c": [1.25, "x"]}, "a": None},
    {f"f{number}": number for number in range(300)},
]


@pytest.mark.parametrize("properties", [{}, SHREDDED], ids=["plain", "shredded"])
def test_values_of_every_type(delta: DeltaSpark, tmp_path: Path, properties: dict[str, str]) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(path, SCHEMA, properties=properties)
    for number, value in enumerate(VALUES):  # in files of their own, each shredded in its own way
        table.append(pa.Table.from_pylist([{"id": number, "v": variant_from_python(value)}]))
    table.append(
        pa.Table.from_pylist([{"id": 100 + n, "v": variant_from_python(value)} for n, value in enumerate(VALUES)])
    )
    theirs = delta.sql(f"SELECT id, to_json(v) AS t FROM delta.`{path}`").toArrow().to_pylist()
    ours = table.snapshot().scan(variants="json").to_arrow().to_pylist()
    assert {row["id"]: row["t"] for row in theirs} == {row["id"]: row["v"] for row in ours}
    assert len(theirs) == 2 * len(VALUES)
    binary = {row["id"]: variant_to_python(row["v"]) for row in table.snapshot().scan().to_arrow().to_pylist()}
    assert [binary[number] for number in range(len(VALUES))] == VALUES


# -------------------------------------------------------------------------------------------------- tables


def adds(path: Path) -> list[dict[str, Any]]:
    """The add actions of all versions."""
    lines = [line for commit in commits(path).values() for line in actions(commit)]
    return [line["add"] for line in lines if "add" in line]


KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors and change feed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
    "shredded": SHREDDED,
    "shredded, mapped by id, row tracking": {
        **SHREDDED,
        "delta.columnMapping.mode": "id",
        "delta.enableRowTracking": "true",
    },
    "preview": {
        "delta.feature.variantType-preview": "supported",
        "delta.feature.variantShredding-preview": "supported",
    },
}
USUAL = "shredded, mapped by id, row tracking"


def same_rows(delta: DeltaSpark, path: Path) -> dict[int, str | None]:
    theirs = delta.sql(f"SELECT id, to_json(v) AS v FROM delta.`{path}`").toArrow().to_pylist()
    ours = DeltaTable.open(path).snapshot().scan(["id", "v"], variants="json").to_arrow().to_pylist()
    found = {row["id"]: row["v"] for row in ours}
    assert {row["id"]: row["v"] for row in theirs} == found and len(theirs) == len(ours) == len(found)
    return found


@pytest.mark.parametrize("writer", ["deltalog", "delta-spark"])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == USUAL else pytest.mark.long) for kind in KINDS]
)
def test_both_engines_change_a_table_in_turn(delta: DeltaSpark, tmp_path: Path, kind: str, writer: str) -> None:
    path, t = tmp_path / "table", f"delta.`{tmp_path / 'table'}`"
    if writer == "deltalog":
        DeltaTable.create(path, SCHEMA, properties=KINDS[kind])
    else:
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in KINDS[kind].items())
        delta.sql(
            f"CREATE TABLE {t} (id BIGINT, v VARIANT) USING delta"
            + (f" TBLPROPERTIES ({properties})" if properties else "")
        )
    table = DeltaTable.open(path)
    table.append(
        pa.table({"id": range(6), "v": [json.dumps({"a": n, "b": "x" * n, "c": [n, None]}) for n in range(5)] + [None]})
    )
    delta.sql(
        f"INSERT INTO {t} SELECT id + 10, parse_json('{{\"a\": ' || id || ', \"d\": 1.5}}') FROM range(0, 6, 1, 1)"
    )
    assert len(same_rows(delta, path)) == 12
    delta.sql(f"UPDATE {t} SET v = parse_json('\"spark\"') WHERE id = 1")
    table.update(new_values={"v": ["deltalog", 1]}, where="id = 11")
    delta.sql(f"DELETE FROM {t} WHERE variant_get(v, '$.a', 'int') = 2")
    table.delete("id IN (3, 13)")
    source = pa.table({"id": [0, 20], "v": ['{"merged": true}', "20"]})
    table.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
    delta.sql(
        f"MERGE INTO {t} t USING (SELECT 10L AS id, parse_json('[]') AS v UNION ALL SELECT 21L, NULL) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    found = same_rows(delta, path)
    assert (
        found[1] == '"spark"' and found[11] == '["deltalog",1]' and found[0] == '{"merged":true}' and found[10] == "[]"
    )
    assert set(found) == {0, 1, 4, 5, 10, 11, 14, 15, 20, 21} and found[21] is None
    table.optimize.compact()
    assert same_rows(delta, path) == found
    delta.sql(f"OPTIMIZE {t}")
    table.checkpoint()
    delta.forget()
    assert same_rows(delta, path) == found
    if kind == "vectors and change feed":
        reader = delta.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        theirs = (
            reader.load(str(path)).selectExpr("_change_type AS kind", "id", "to_json(v) AS v").toArrow().to_pylist()
        )
        names = ["_change_type", "id", "v"]
        ours = [
            {"kind": row["_change_type"], "id": row["id"], "v": None if row["v"] is None else to_json(**row["v"])}
            for row in table.changes(from_version=0).to_arrow().select(names).to_pylist()
        ]
        assert sorted(theirs, key=str) == sorted(ours, key=str)
    listed = set(DeltaTable.open(path).snapshot().protocol.reader_features or ())
    assert ("variantType" in listed) == (kind != "preview")


def without_empty(body: dict[str, Any]) -> dict[str, Any]:
    """Statistics without the empty objects that delta-spark writes for structs in which only variants could have
    bounds."""
    kept = {key: without_empty(value) if isinstance(value, dict) else value for key, value in body.items()}
    return {key: value for key, value in kept.items() if value != {}}


@pytest.mark.parametrize("properties", [{}, SHREDDED], ids=["plain", "shredded"])
def test_statistics_are_those_of_delta_spark(delta: DeltaSpark, tmp_path: Path, properties: dict[str, str]) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    schema = StructType((*SCHEMA.fields, StructField("s", StructType((StructField("v", VARIANT),)))))
    one = variant_from_json('{"a": 1}')
    rows = [
        {"id": 1, "v": one, "s": {"v": None}},
        {"id": 2, "v": None, "s": None},
        {"id": 3, "v": one, "s": {"v": one}},
    ]
    DeltaTable.create(ours, schema, properties=properties, data=pa.Table.from_pylist(rows))
    DeltaTable.create(theirs, schema, properties=properties)
    delta.sql(
        f"""INSERT INTO delta.`{theirs}` SELECT id, IF(id = 2, NULL, v),
        IF(id = 2, NULL, named_struct('v', IF(id = 1, NULL, v)))
        FROM (SELECT id, parse_json('{{"a": 1}}') AS v FROM range(1, 4, 1, 1))"""
    )
    found = [[without_empty(json.loads(each["stats"])) for each in adds(path)] for path in (ours, theirs)]
    assert found[0] == found[1] != []
    stored = [[pq.read_schema(path / add["path"]) for add in adds(path)] for path in (ours, theirs)]
    assert [["typed_value" in str(each) for each in some] for some in stored] == [[bool(properties)]] * 2


def test_bounds_that_delta_spark_records_for_variants_are_kept(delta: DeltaSpark, tmp_path: Path) -> None:
    path, t = tmp_path / "table", f"delta.`{tmp_path / 'table'}`"
    DeltaTable.create(path, SCHEMA, properties={**SHREDDED, "delta.enableDeletionVectors": "true"})
    with settings(delta, {STATISTICS: "10", "spark.databricks.delta.variantShredding.parseFooterForStats": "true"}):
        delta.sql(f"INSERT INTO {t} SELECT id, parse_json('{{\"a\": ' || id || '}}') FROM range(0, 10, 1, 1)")
        add = adds(path)[-1]
        bounds = json.loads(add["stats"])["minValues"]["v"]
        assert isinstance(bounds, str)
        table = DeltaTable.open(path)
        table.delete("id = 3")
        masked = adds(path)[-1]
        assert json.loads(masked["stats"])["minValues"]["v"] == bounds
        table.checkpoint()
        delta.forget()
        for where, count in (
            ("variant_get(v, '$.a', 'int') = 5", 1),
            ("variant_get(v, '$.a', 'int') = 3", 0),
            ("v IS NULL", 0),
        ):
            assert delta.sql(f"SELECT id FROM {t} WHERE {where}").count() == count
    assert len(same_rows(delta, path)) == 9


def test_delta_spark_skips_files_by_null_counts_without_losing_rows(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(path, SCHEMA)
    for values in (["1", None], [None, None], ["null", "2"]):
        table.append(pa.table({"id": [1, 2], "v": pa.array(values, pa.string())}))
    for where, count in (("v IS NULL", 3), ("v IS NOT NULL", 3), ("is_variant_null(v)", 1)):
        assert delta.sql(f"SELECT id FROM delta.`{path}` WHERE {where}").count() == count
        assert table.snapshot().scan(where=where).to_arrow().num_rows == count


EXPRESSIONS = [
    "parse_json(t)",
    "try_parse_json(t)",
    "to_json(v)",
    "to_json(parse_json(t))",
    "is_variant_null(v)",
    "v IS NULL",
    "is_variant_null(parse_json('null'))",
    "coalesce(to_json(v), 'none')",
    "try_parse_json('{') IS NULL",
    "length(to_json(try_parse_json(t)))",
    "parse_json(NULL) IS NULL",
]


def test_functions_have_the_results_of_spark(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    schema = StructType((*SCHEMA.fields, StructField("t", PrimitiveType("string"))))
    texts = ['{"a": [1.50, "x"]}', "null", None, "2", "[]"]
    rows = pa.table({"id": range(5), "v": texts, "t": texts})
    table = DeltaTable.create(path, schema, data=rows)
    held = table.snapshot().scan().to_arrow()
    for text in EXPRESSIONS:
        kind = delta.sql(f"SELECT {text} AS x FROM delta.`{path}`").schema["x"].dataType.typeName()
        shown = f"to_json({text})" if kind == "variant" else text
        theirs = [row.x for row in delta.sql(f"SELECT {shown} AS x FROM delta.`{path}` ORDER BY id").collect()]
        expression = compile_expression(text, schema)
        assert str(expression.data_type) == {"integer": "integer"}.get(kind, kind), text
        found = compile_expression(shown, schema).evaluate(held)
        assert found.to_pylist() == theirs, text


GOT = [
    '{"a": 5}',
    '{"a": "5"}',
    '{"a": 5.50}',
    '{"a": 5e0}',
    '{"a": true}',
    '{"a": "2020-01-02"}',
    '{"a": null}',
    '{"b": 1}',
    "[5]",
    '{"a": [1, {"b c": "x"}]}',
    '{"a": {"b": 2}}',
    "7",
    '"text"',
    '{"a": 300}',
    '{"a": 123456789012}',
    '{"a": "x"}',
    '{"a": 0.1}',
    "null",
]
PATHS = ["$", "$.a", "$[0]", '$["a"]', '$.a[1]["b c"]', "$.a.b"]
TYPES = ["string", "int", "bigint", "tinyint", "double", "boolean", "date", "decimal(5,2)", "binary", "timestamp_ntz"]


def test_values_inside_are_those_of_spark(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(path, SCHEMA, data=pa.table({"id": range(len(GOT)), "v": GOT}))
    rows = table.snapshot().scan().to_arrow().sort_by("id")
    texts = [f"try_variant_get(v, '{place}', '{kind}')" for place in PATHS for kind in TYPES]
    columns = [f"{text} AS c{number}" for number, text in enumerate(texts)]
    theirs = delta.sql(f"SELECT {', '.join(columns)} FROM delta.`{path}` ORDER BY id").toArrow()
    refused = 0
    for number, text in enumerate(texts):
        expression = compile_expression(text, SCHEMA)
        for row, expected in enumerate(theirs.column(f"c{number}").to_pylist()):
            try:
                (found,) = expression.evaluate(rows.slice(row, 1)).to_pylist()
            except pa.ArrowInvalid as error:
                assert "not supported" in str(error)
                refused += 1
                continue
            assert repr(found) == repr(expected), (text, GOT[row])
    assert refused < len(texts) * len(GOT) / 10
    with pytest.raises(pa.ArrowInvalid, match="cannot be cast to int"):
        compile_expression("variant_get(v, '$', 'int')", SCHEMA).evaluate(rows)


REFUSED = {
    "a partition column": "CREATE TABLE {t} (id BIGINT, v VARIANT) USING delta PARTITIONED BY (v)",
    "a clustering column": "CREATE TABLE {t} (id BIGINT, v VARIANT) USING delta CLUSTER BY (v)",
    "equality": "SELECT * FROM {table} WHERE v = v",
    "a key of a merge": "MERGE INTO {table} t USING {table} s ON t.v = s.v WHEN MATCHED THEN DELETE",
    "Z-order": "OPTIMIZE {table} ZORDER BY (v)",
}


@pytest.mark.long
@pytest.mark.parametrize("what", REFUSED)
def test_what_deltalog_refuses_is_refused_by_delta_spark(delta: DeltaSpark, tmp_path: Path, what: str) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    table = DeltaTable.create(tmp_path / "table", SCHEMA, data=pa.table({"id": [1], "v": ["1"]}))
    names = {"t": f"delta.`{tmp_path / 'new'}`", "table": f"delta.`{tmp_path / 'table'}`"}
    with pytest.raises((PySparkException, Py4JJavaError)):
        delta.sql(REFUSED[what].format(**names)).collect()
    assert table.snapshot().version == 0
