"""Random tables for ``random_verbs``: columns, values, conditions, and a model of the rows that does not depend on
Delta."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN = float("nan")
STRUCT = pa.struct([("a", pa.int32()), ("b.c", pa.string())])


@dataclass(frozen=True)
class Kind:
    """A type: its names in SQL and in Arrow, its sample values, and the SQL literal of a value."""

    sql: str
    arrow: pa.DataType
    values: tuple[Any, ...]
    literal: Callable[[Any], str]
    width: int | None = None  # the n of char(n); readers pad values to n characters

    def stored(self, value: Any) -> Any:
        """The value as readers return it."""
        return value.ljust(self.width) if self.width and value is not None else value


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _struct(value: Mapping[str, Any]) -> str:
    a, bc = value["a"], value["b.c"]
    return f"named_struct('a', CAST({'NULL' if a is None else a} AS INT), 'b.c', {'NULL' if bc is None else _text(bc)})"


KINDS: Mapping[str, Kind] = {
    "long": Kind("BIGINT", pa.int64(), (0, 1, -1, 2**63 - 1, -(2**63)), lambda v: f"CAST('{v}' AS BIGINT)"),
    "int": Kind("INT", pa.int32(), (0, 7, -7, 2**31 - 1), lambda v: f"CAST({v} AS INT)"),
    "double": Kind("DOUBLE", pa.float64(), (0.0, 1.5, NAN, -2.5, 1e300), lambda v: f"CAST('{v}' AS DOUBLE)"),
    "decimal": Kind(
        "DECIMAL(10,2)", pa.decimal128(10, 2), (Decimal("0.00"), Decimal("-1.25"), Decimal("99999999.99")),
        lambda v: f"CAST('{v}' AS DECIMAL(10,2))",
    ),
    "string": Kind("STRING", pa.string(), ("a", "it's", "x" * 40, "x" * 32 + "😀", "a/b=c d", "é%_"), _text),
    "char": Kind("CHAR(5)", pa.string(), ("", "ab", "abcde", "é"), _text, width=5),
    "boolean": Kind("BOOLEAN", pa.bool_(), (True, False), str),
    "date": Kind(
        "DATE", pa.date32(), (dt.date(2020, 2, 29), dt.date(1582, 10, 15), dt.date(9999, 12, 31)),
        lambda v: f"DATE '{v.isoformat()}'",
    ),
    "ntz": Kind(
        "TIMESTAMP_NTZ",
        pa.timestamp("us"),
        (dt.datetime(2020, 1, 1, 1, 2, 3, 456789), dt.datetime(1969, 12, 31, 23, 59)),
        lambda v: f"TIMESTAMP_NTZ '{v.isoformat(sep=' ')}'",
    ),
    "struct": Kind(
        "STRUCT<a: INT, `b.c`: STRING>",
        STRUCT,
        ({"a": 1, "b.c": "x"}, {"a": None, "b.c": None}, {"a": -5, "b.c": "it's"}),
        _struct,
    ),
}  # fmt: skip
#: For each type, the wider type to which a column can be changed.
WIDER: Mapping[str, str] = {"int": "long"}
PARTITIONING = ("int", "string", "date", "char", "boolean")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Column:
    """A column. ``key`` identifies the column in rows and does not change when the column is renamed."""

    key: int
    name: str
    kind: str

    @property
    def of(self) -> Kind:
        return KINDS[self.kind]

    def literal(self, value: Any) -> str:
        return f"CAST(NULL AS {self.of.sql})" if value is None else self.of.literal(value)


Row = dict[int, Any]


@dataclass(frozen=True)
class State:
    """A version of the table: its columns (the first is ``id``), and its rows by id. Never changed in place."""

    columns: tuple[Column, ...]
    rows: Mapping[int, Row] = field(default_factory=dict)

    def table(self) -> pa.Table:
        """The rows that readers should return."""
        schema = pa.schema([(column.name, column.of.arrow) for column in self.columns])
        values = [
            {column.name: column.of.stored(row.get(column.key)) for column in self.columns}
            for row in self.rows.values()
        ]
        return pa.Table.from_pylist(values, schema=schema)

    def with_rows(self, more: Mapping[int, Row]) -> State:
        return replace(self, rows={**self.rows, **more})

    def without(self, ids: set[int]) -> State:
        return replace(self, rows={each: row for each, row in self.rows.items() if each not in ids})

    def with_columns(self, columns: Sequence[Column]) -> State:
        return replace(self, columns=tuple(columns))


@dataclass(frozen=True)
class Condition:
    """A condition in SQL and in Python. A row for which the condition is null does not match."""

    sql: str
    test: Callable[[Row], bool]

    def ids(self, state: State) -> set[int]:
        return {each for each, row in state.rows.items() if self.test(row)}


def random_condition(chance: random.Random, state: State, columns: Sequence[Column] | None = None) -> Condition:
    found = _leaf(chance, chance.choice(columns or state.columns), state)
    if chance.random() < 0.3:
        left, right = found, _leaf(chance, chance.choice(columns or state.columns), state)
        if chance.random() < 0.5:
            return Condition(f"({left.sql}) AND ({right.sql})", lambda row: left.test(row) and right.test(row))
        return Condition(f"({left.sql}) OR ({right.sql})", lambda row: left.test(row) or right.test(row))
    return found


def _leaf(chance: random.Random, column: Column, state: State) -> Condition:
    key, name = column.key, quoted(column.name)
    if key == 0:
        bound = chance.randint(1, max([1, *state.rows]))
        return chance.choice([
            Condition(f"{name} = {bound}", lambda row: row[key] == bound),
            Condition(f"{name} < {bound}", lambda row: row[key] < bound),
            Condition(f"{name} >= {bound}", lambda row: row[key] >= bound),
            Condition(f"{name} IN ({bound}, {bound + 1})", lambda row: row[key] in (bound, bound + 1)),
        ])  # fmt: skip
    null = Condition(f"{name} IS NULL", lambda row: row.get(key) is None)
    there = Condition(f"{name} IS NOT NULL", lambda row: row.get(key) is not None)
    if column.kind == "struct":
        a = f"{name}.a"
        return chance.choice([
            null, there,
            Condition(f"{a} IS NULL", lambda row: (row.get(key) or {}).get("a") is None),
            Condition(f"{a} >= 1", lambda row: ((row.get(key) or {}).get("a") or 0) >= 1),
            Condition(f"{name}.`b.c` = 'x'", lambda row: (row.get(key) or {}).get("b.c") == "x"),
        ])  # fmt: skip
    value = chance.choice([each for each in column.of.values if each == each])
    text = (
        column.of.literal(value) if isinstance(value, (str, dt.date)) else str(value)
    )  # a literal that both engines accept without a cast
    # Spark: NaN equals itself and is greater than all other numbers.
    return chance.choice([
        null, there,
        Condition(f"{name} = {text}", lambda row: row.get(key) is not None and _order(row[key]) == _order(value)),
        Condition(f"{name} > {text}", lambda row: row.get(key) is not None and _order(row[key]) > _order(value)),
        Condition(f"{name} <= {text}", lambda row: row.get(key) is not None and _order(row[key]) <= _order(value)),
    ])  # fmt: skip


def _order(value: Any) -> Any:
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return value.encode() if isinstance(value, str) else value


# ----------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Plan:
    """A table to create: its columns, partition columns, properties, and the engine that creates it."""

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    creator: str

    @property
    def mapping(self) -> str | None:
        return self.properties.get("delta.columnMapping.mode")


NAMES = ("plain", "Ünï", "p.q", "select", "f-g", "x1")
ODD_NAMES = ("sp ace", "com,ma", "a.b.c", "br{}", "eq=", "q'uote", "bt`tick")


def random_plan(chance: random.Random) -> Plan:
    mapping = chance.choice([None, None, "name", "id"])
    kinds = chance.sample([*KINDS], chance.randint(3, 6))
    names = chance.sample([*NAMES, *(ODD_NAMES if mapping else ())], len(kinds))
    columns = [
        Column(0, "id", "long"),
        *(Column(n + 1, name, kind) for n, (name, kind) in enumerate(zip(names, kinds, strict=True))),
    ]
    candidates = [column.name for column in columns[1:] if column.kind in PARTITIONING]
    partition_by = tuple(chance.sample(candidates, min(len(candidates), chance.choice([0, 0, 1, 2]))))
    properties = {"delta.checkpointInterval": str(chance.choice([2, 3, 10]))}
    if mapping:
        properties["delta.columnMapping.mode"] = mapping
    for key, share in (
        ("delta.enableDeletionVectors", 0.5), ("delta.enableChangeDataFeed", 0.6), ("delta.enableRowTracking", 0.4),
        ("delta.enableInCommitTimestamps", 0.5), ("delta.enableTypeWidening", 0.5),
        ("delta.checkpoint.writeStatsAsStruct", 0.3),
    ):  # fmt: skip
        if chance.random() < share:
            properties[key] = "true"
    if chance.random() < 0.3:
        properties["delta.checkpointPolicy"] = "v2"
    if chance.random() < 0.2:
        properties["delta.dataSkippingNumIndexedCols"] = chance.choice(["0", "2", "-1"])
    # Only Spark's DDL can create char columns.
    creator = "delta-spark" if "char" in kinds or chance.random() < 0.4 else "deltalog"
    return Plan(tuple(columns), partition_by, properties, creator)
