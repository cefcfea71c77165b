"""char(n) columns: padded when they are read, and compared as in Spark, whichever engine wrote the files."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, ConstraintViolationError, CorruptTableError, DeltaTable, UnsupportedFeatureError, col
from deltalog.expressions.compile import compile_expression
from deltalog.schema import PrimitiveType, StructField, StructType
from tests.support.core.other_writers import declared_afterwards

KEY = "__CHAR_VARCHAR_TYPE_STRING"
TEXT = PrimitiveType("string")
SCHEMA = StructType(
    (
        StructField("id", PrimitiveType("long")),
        StructField("c", TEXT, True, {KEY: "char(5)"}),
        StructField("v", TEXT, True, {KEY: "varchar(9)"}),
    )
)
PLAIN = StructType(tuple(StructField(f.name, f.data_type) for f in SCHEMA))
WORDS = ["a", "a ", "a    ", "ab", "", "b", "  a", "a\t", "abcde", "aé", "a\x01", "Z", "éé", "a\x1f b", "😀", None]
LITERALS = ["a", "a      ", "", "ab", "abcdef", "a\t", "a\x01   ", "é", "a\x1f b", "😀"]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def column(values: list[str | None], ids: list[int] | None = None) -> pa.Table:
    ids = list(range(len(values))) if ids is None else ids
    return pa.table({"id": ids, "c": values, "v": values}, schema=PLAIN.to_arrow())


KINDS = ["ours", "others", "ours in partitions", "others in partitions"]


def written(path: Path, name: str) -> DeltaTable:
    """One file for each value and one with all values, so that each file is kept or skipped by its own min and max."""
    kind, _, partitioned = name.partition(" ")
    schema = SCHEMA if kind == "ours" else PLAIN
    table = DeltaTable.create(str(path), schema, partition_by=["c"] if partitioned else [])
    for number, word in enumerate(WORDS):
        table.append(column([word], [number]))
    table.append(column(WORDS, list(range(len(WORDS)))))
    return table if kind == "ours" else declared_afterwards(path, SCHEMA)


@pytest.fixture(scope="module", params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    return written(tmp_path_factory.mktemp("char") / "t", request.param)


def seen(word: str | None, table: DeltaTable) -> str | None:
    """The value that is read from the table for ``word``; other writers do not pad values, and they store an empty
    string in a partition column as null."""
    files = table.snapshot().files()["partition_values"].to_pylist()
    values = {value for row in files for _, value in row}
    return None if word is None or (word == "" and values and " " * 5 not in values) else word.ljust(5)


def ids_of(table: DeltaTable, where: Any) -> list[int]:
    return sorted(table.snapshot().scan(["id"], where=where).to_arrow()["id"].to_pylist())


def expected(table: DeltaTable, holds: Callable[[str], bool]) -> list[int]:
    words = [seen(word, table) for word in WORDS]
    return sorted([n for n, word in enumerate(words) if word is not None and holds(word)] * 2)


def test_rows_are_padded(table: DeltaTable) -> None:
    rows = table.snapshot().scan().to_arrow().sort_by("id")
    assert rows["c"].to_pylist()[::2] == [seen(word, table) for word in WORDS]
    assert rows["v"].to_pylist()[::2] == WORDS


@pytest.mark.parametrize("text", LITERALS)
def test_comparisons(table: DeltaTable, text: str) -> None:
    for symbol, compared in OPERATORS.items():
        predicate = getattr(col("c"), f"__{compared.__name__}__")(text)

        def holds(word: str, compared: Callable[[Any, Any], bool] = compared) -> bool:
            width = max(5, len(text))
            return compared(word.ljust(width).encode(), text.ljust(width).encode())

        assert ids_of(table, predicate) == expected(table, holds), symbol
    assert ids_of(table, ~predicate) == expected(table, lambda word: not holds(word)), symbol
    assert ids_of(table, col("v") == text) == sorted(n for n, word in enumerate(WORDS) if word == text for _ in "12")


@pytest.mark.parametrize("size", [1, 2, 5, len(LITERALS)])
def test_lists(table: DeltaTable, size: int) -> None:
    texts = random.Random(size).sample(LITERALS, size)
    width = max(5, *map(len, texts))
    wanted = {text.ljust(width) for text in texts}
    assert ids_of(table, col("c").isin(texts)) == expected(table, lambda word: word.ljust(width) in wanted)
    assert ids_of(table, ~col("c").isin(texts)) == expected(table, lambda word: word.ljust(width) not in wanted)


@pytest.mark.parametrize("prefix", ["", "a", "a    ", "a     ", "a\t ", " ", "Z   "])
def test_prefixes(table: DeltaTable, prefix: str) -> None:
    assert ids_of(table, col("c").startswith(prefix)) == expected(table, lambda word: word.startswith(prefix))
    assert ids_of(table, ~col("c").startswith(prefix)) == expected(table, lambda word: not word.startswith(prefix))


@pytest.mark.parametrize("kind", KINDS)
def test_deletes_and_replacements(tmp_path: Path, kind: str) -> None:
    table = written(tmp_path / "t", kind)
    gone = [n for n, word in enumerate(WORDS) if word is not None and word.rstrip(" ") == "a"]
    table.delete("c = 'a'")
    assert [n for n in ids_of(table, None) if n in gone] == []
    table.overwrite(column(["ab", "ab   "], [100, 101]), where="c IN ('ab')")
    assert ids_of(table, "c = 'ab'") == [100, 101]
    with pytest.raises(ConstraintViolationError, match="outside of the replaced rows"):
        table.overwrite(column(["a"], [1]), where="c = 'ab'")


@pytest.mark.parametrize("where", ["c IN ('a', NULL)", "c BETWEEN 'a' AND 'b'", "NOT c BETWEEN 'a' AND 'b'"])
def test_what_spark_compares_in_another_way_is_refused(tmp_path: Path, where: str) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(CallError, match=r"char\(5\), which Spark compares without padding"):
        table.snapshot().scan(where=where)
    assert ids_of(table, where.replace("c ", "v ")) == []


def test_char_inside_structs_is_refused(tmp_path: Path) -> None:
    inside = StructType((StructField("x", TEXT), StructField("n", PrimitiveType("long"))))
    schema = StructType((StructField("st", inside, True, {KEY: "struct<x:char(3),n:bigint>"}),))
    plain = StructType((StructField("st", inside),))
    rows = pa.Table.from_pylist([{"st": {"x": "a", "n": 1}}], schema=plain.to_arrow())
    DeltaTable.create(str(tmp_path / "t"), plain, data=rows)
    snapshot = declared_afterwards(tmp_path / "t", schema).snapshot()
    with pytest.raises(CallError, match=r"st\.x is part of struct<x:char\(3\)"):
        snapshot.scan(where="st.x = 'a'")
    for where in ("st.n = 1", "NOT st.x IS NULL"):
        assert snapshot.scan(where=where).to_arrow().num_rows == 1


def test_constraints_look_at_what_is_stored(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), SCHEMA, data=column(["a", "b    "]))
    table.add_constraint("known", "c IN ('a', 'b') AND c <> 'zz' AND length(c) = 5")
    table.append(column(["a", "b "]))
    for word in ("zz", "zz   ", "ab"):
        with pytest.raises(ConstraintViolationError):
            table.append(column([word]))


def test_generated_columns_look_at_what_is_stored(tmp_path: Path) -> None:
    def generated(name: str, kind: str, text: str, **metadata: str) -> StructField:
        return StructField(name, PrimitiveType(kind), True, {"delta.generationExpression": text, **metadata})

    schema = StructType(
        (
            *SCHEMA.fields,
            generated("is_a", "boolean", "c = 'a'"),
            generated("size", "integer", "length(c)"),
            generated("short", "string", "trim(c)", **{KEY: "char(7)"}),
        )
    )
    table = DeltaTable.create(str(tmp_path / "t"), schema)
    table.append(column(["a", "a    ", "b"]))
    rows = table.snapshot().scan().to_arrow()
    assert rows["is_a"].to_pylist() == [True, True, False]
    assert rows["size"].to_pylist() == [5, 5, 5]
    assert rows["short"].to_pylist() == ["a      ", "a      ", "b      "]
    table.append(rows)
    assert ids_of(table, "short = 'a'") == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("c = 'a'", [True, True, False, None]),
        ("'a      ' = c", [True, True, False, None]),
        ("c = e", [True, True, True, None]),
        ("c <=> e", [True, True, True, True]),
        ("c < e", [False, False, False, None]),
        ("c = v", [False, False, False, None]),
        ("c IN ('a', 'x')", [True, True, False, None]),
        ("c NOT IN ('a', 'x      ')", [False, False, True, None]),
        ("CASE c WHEN 'a' THEN true ELSE false END", [True, True, False, False]),
        ("c LIKE 'a'", [False, False, False, None]),
        ("c LIKE 'a%'", [True, True, True, None]),
        ("upper(c) = 'A'", [False, False, False, None]),
        ("coalesce(c, 'x') = 'a'", [False, False, False, False]),
        ("length(c) = 5", [True, True, True, None]),
    ],
)
def test_expressions(text: str, answers: list[bool | None]) -> None:
    schema = StructType((*SCHEMA.fields, StructField("e", TEXT, True, {KEY: "char(3)"})))
    words = ["a", "a  ", "ab", None]
    rows = pa.table({"c": words, "v": ["a", "a ", "ab", None], "e": ["a", "a", "ab ", None]})
    assert compile_expression(text, schema).evaluate(rows).to_pylist() == answers


@pytest.mark.parametrize(
    "text",
    [
        "c BETWEEN 'a' AND 'b'",
        "c IN ('a', NULL)",
        "c IN ('a', v)",
        "'a' IN (c)",
        "nullif(c, 'a')",
        "c = concat('a', '')",
    ],
)
def test_expressions_that_are_refused(text: str) -> None:
    with pytest.raises(CallError, match=r"char\((n|5)\)"):
        compile_expression(text, SCHEMA)


def test_long_columns_are_read_in_bounded_memory(tmp_path: Path) -> None:
    def declare(length: int) -> DeltaTable:
        fields = (PLAIN.fields[0], StructField("c", TEXT, True, {KEY: f"char({length})"}))
        return declared_afterwards(tmp_path / "t", StructType(fields))

    plain = StructType(PLAIN.fields[:2])
    rows = pa.table({"id": range(5000), "c": ["a"] * 5000})
    DeltaTable.create(str(tmp_path / "t"), plain, data=rows)
    scan = declare(1 << 16).snapshot().scan(where="c = 'a'")
    first = next(iter(scan.batches()))
    assert first.nbytes < 40 << 20 and first["c"][0].as_py() == "a".ljust(1 << 16)
    for where in (None, "c = 'a'"):
        with pytest.raises(CorruptTableError, match="MAX_CHAR_LENGTH"):
            declare(999_999_999).snapshot().scan(where=where).to_arrow()


def test_lists_of_char_cannot_be_written(tmp_path: Path) -> None:
    from deltalog.schema import ArrayType

    schema = StructType((StructField("l", ArrayType(TEXT), True, {KEY: "array<char(2)>"}),))
    table = DeltaTable.create(str(tmp_path / "t"), schema)
    with pytest.raises(UnsupportedFeatureError, match="Nested char and varchar"):
        table.append(pa.table({"l": [["a"]]}))
