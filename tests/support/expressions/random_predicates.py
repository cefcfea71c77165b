"""Random tables and predicates, generated from a seed. Tests compare three results: a scan with data skipping, an
evaluation of the predicate on all rows, and Spark's."""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog import DeltaTable, Predicate, col
from deltalog.schema import PrimitiveType, StructField, StructType
from tests.support.core.other_writers import declared_afterwards

UTC = dt.timezone.utc
KEY = "__CHAR_VARCHAR_TYPE_STRING"
_WORDS = ["", " ", "a", "a ", "ab", "a\t", "a\x01", "b", "Z", "é", "😀", "x" * 40, "x" * 31 + "y", "it's", "\\", "%_"]
_SHORT = ["", "a", "a ", "ab", "a\t", "a\x01", "b", "Z", "é", "  a"]
_MOMENTS = [
    dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 999),
    dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2038, 1, 19, 3, 14, 8),
]  # fmt: skip
_REALS = [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 0.1, 1e300, 5e-324]
# For each kind of column: its Arrow type, its declared metadata, its values, and additional literals for comparisons.
_KINDS: dict[str, tuple[pa.DataType, str, list[Any], list[Any]]] = {
    "byte": (pa.int8(), "", [0, 1, -1, 127, -128], [300, -1000]),
    "integer": (pa.int32(), "", [0, 1, -1, 2**31 - 1, -(2**31)], [2**40]),
    "long": (pa.int64(), "", [0, 1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1], []),
    "float": (pa.float32(), "", [*(v for v in _REALS if v not in (1e300, 5e-324)), 0.5], [0.1, 16777217.0]),
    "double": (pa.float64(), "", _REALS, [9007199254740993.0]),
    "money": (pa.decimal128(10, 2), "", [Decimal(t) for t in ("0.00", "1.50", "-99999999.99")], [Decimal("1.505")]),
    "vast": (pa.decimal128(38, 10), "", [Decimal("1E-10"), Decimal("-12345678901234567.5"), Decimal("7E27")], []),
    "text": (pa.string(), "", _WORDS, ["aa", "x" * 32]),
    "char": (pa.string(), "char(4)", _SHORT, ["a     ", "abcdef", "zz"]),
    "varchar": (pa.string(), "varchar(6)", _SHORT, ["a     "]),
    "flag": (pa.bool_(), "", [True, False], []),
    "day": (pa.date32(), "", [m.date() for m in _MOMENTS], [dt.date(2024, 1, 2)]),
    "moment": (pa.timestamp("us", "UTC"), "", [m.replace(tzinfo=UTC) for m in _MOMENTS], []),
    "wall": (pa.timestamp("us"), "", _MOMENTS, []),
}
_NAMES = ["a", "b", "a.b", ".x", "A_b", "order", "a.b.c", "Ünï", "x`y", "1st"]


@dataclass(frozen=True)
class Leaf:
    """A column in predicates: its SQL, its kind, and whether it is nested in a struct."""

    text: str
    kind: str


@dataclass(frozen=True)
class RandomTable:
    table: DeltaTable
    leaves: list[Leaf]


def _quoted(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def _cell(chance: random.Random, kind: str, nulls: float) -> Any:
    return None if chance.random() < nulls else chance.choice(_KINDS[kind][2])


def random_table(path: Path, seed: int) -> RandomTable:
    """About ten small files with columns of all kinds and unusual names, some columns nested in structs. Tables chosen
    at random also have partitions, deletion vectors, a checkpoint with only stats_parsed, or unpadded char(n)
    values."""
    chance = random.Random(seed)
    kinds = list(_KINDS)
    chance.shuffle(kinds)
    names = chance.sample(_NAMES, 6)
    fields, leaves = [StructField("id", PrimitiveType("long"))], list[Leaf]()
    makers: dict[str, str | dict[str, str]] = {}
    for name in names:
        if len(kinds) > 2 and chance.random() < 0.4:
            plain_kinds = [kind for kind in kinds if kind != "char"]
            inside = dict(zip(chance.sample(["b", "b.c", "c", "Z"], 2), plain_kinds[:2], strict=True))
            kinds = [kind for kind in kinds if kind not in inside.values()]
            data = pa.struct([(n, _KINDS[k][0]) for n, k in inside.items()])
            fields.append(StructType.from_arrow(pa.schema([(name, data)])).fields[0])
            leaves += [Leaf(_quoted(name, n), k) for n, k in inside.items()]
            makers[name] = inside
        else:
            kind = kinds.pop()
            arrow, declared, _, _ = _KINDS[kind]
            plain = StructType.from_arrow(pa.schema([(name, arrow)])).fields[0]
            fields.append(StructField(name, plain.data_type, True, {KEY: declared} if declared else {}))
            leaves.append(Leaf(_quoted(name), kind))
            makers[name] = kind
    schema = StructType(tuple(fields))
    bare = StructType(tuple(StructField(f.name, f.data_type) for f in fields))
    flat = [name for name, kind in makers.items() if isinstance(kind, str)]
    partition_by = chance.sample(flat, 1) if flat and chance.random() < 0.4 else []
    others = chance.random() < 0.5
    properties = {"delta.enableDeletionVectors": "true"} if chance.random() < 0.3 else {}
    if chance.random() < 0.3:
        properties |= {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "true"}
    table = DeltaTable.create(str(path), bare if others else schema, partition_by=partition_by, properties=properties)
    number = 0
    for _ in range(8):
        nulls, rows = chance.choice([0.0, 0.2, 0.2, 1.0]), list[dict[str, Any]]()
        for _ in range(chance.choice([1, 2, 3, 6])):
            row: dict[str, Any] = {"id": number}
            for name, made in makers.items():
                if isinstance(made, str):
                    row[name] = _cell(chance, made, nulls)
                else:
                    cells = {n: _cell(chance, k, nulls) for n, k in made.items()}
                    row[name] = None if chance.random() < nulls / 2 else cells
            rows.append(row)
            number += 1
        table.append(pa.Table.from_pylist(rows, schema=bare.to_arrow()))
    table = declared_afterwards(path, schema) if others else table
    if chance.random() < 0.5:
        table.delete(col("id").isin(chance.sample(range(number), 3)))
    if chance.random() < 0.5:
        table.checkpoint()
    return RandomTable(DeltaTable.open(str(path)), leaves)


def random_predicate(chance: random.Random, leaves: list[Leaf], depth: int = 3) -> tuple[Predicate, str]:
    """A predicate in deltalog's syntax, and the same predicate in Spark's syntax."""
    if depth and chance.random() < 0.5:
        kind = chance.choice(["and", "or", "not"])
        one, one_text = random_predicate(chance, leaves, depth - 1)
        if kind == "not":
            return ~one, f"(NOT {one_text})"
        other, other_text = random_predicate(chance, leaves, depth - 1)
        return (one & other if kind == "and" else one | other), f"({one_text} {kind} {other_text})"
    return _random_leaf(chance, chance.choice(leaves))


def _random_leaf(chance: random.Random, leaf: Leaf) -> tuple[Predicate, str]:
    column, is_text = col(leaf.text), leaf.kind in ("text", "char", "varchar")
    _, _, cells, more = _KINDS[leaf.kind]
    values = [*cells, *cells, *more]
    shape = chance.choice(["compare", "compare", "compare", "in", "in", "null", "safe", "prefix" if is_text else "in"])
    if shape == "null":
        return column.is_null(), f"({leaf.text} IS NULL)"
    if shape == "prefix":
        prefix = chance.choice(["", "a", "a ", "ab", "é", "x" * 31, "x" * 33])
        return column.startswith(prefix), f"startswith({leaf.text}, {literal(prefix)})"
    if shape == "in":
        chosen = chance.choices(values, k=chance.choice([1, 2, 3, 8]))
        if leaf.kind != "char" and chance.random() < 0.2:
            chosen.append(None)
        return column.isin(chosen), f"({leaf.text} IN ({', '.join(map(literal, chosen))}))"
    value = chance.choice(values)
    if shape == "safe":
        safe = ~column.is_null() & (column == value)
        return safe, f"({leaf.text} <=> {literal(value)})"
    symbol, name = chance.choice([("=", "eq"), ("<>", "ne"), ("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge")])
    return getattr(column, f"__{name}__")(value), f"({leaf.text} {symbol} {literal(value)})"


def literal(value: Any) -> str:
    """A value as a Spark literal, for a predicate."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return "(-9223372036854775807L - 1L)" if value == -(2**63) else f"{value}L"
    if isinstance(value, float):
        return f"double('{value!r}')"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, str):
        units = value.encode("utf-16-be").hex()
        return "'" + "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)) + "'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP{'_NTZ' if value.tzinfo is None else ''} '{value.isoformat(sep=' ')}'"
    return f"DATE '{value.isoformat()}'"


def number_of_files_skipped(table: DeltaTable, predicate: Predicate) -> int:
    snapshot = table.snapshot()
    return int(snapshot.files(["path"]).num_rows - snapshot.scan(where=predicate).files().num_rows)
