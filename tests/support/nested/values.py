"""Random values of nested types as Arrow arrays, and rows as Python values that can be compared."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.nested.schemas import fields_of

# : Rows by id: structs as dicts, lists as lists, maps as lists of pairs sorted by key.
Rows = dict[int, dict[str, Any]]

_UTC = dt.timezone.utc
_VALUES: tuple[tuple[pa.DataType, tuple[Any, ...]], ...] = (
    (pa.int32(), (0, 1, -7, 2**31 - 1)),
    (pa.int64(), (0, 5, -5, 2**53 + 1)),
    (pa.float64(), (0.0, 1.5, -2.25, 1e300)),
    (pa.string(), ("", "a", "it's", "é😀", "x" * 40)),
    (pa.bool_(), (True, False)),
    (pa.binary(), (b"", b"\x00\xff", b"abc")),
    (pa.date32(), (dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1999, 12, 31))),
    (pa.decimal128(10, 2), (Decimal("0.00"), Decimal("-1.25"), Decimal("99999999.99"))),
    (
        pa.timestamp("us", "UTC"),
        (dt.datetime(1970, 1, 1, tzinfo=_UTC), dt.datetime(2024, 2, 29, 12, 30, 15, 120, tzinfo=_UTC)),
    ),
)
_NULLS, _MOST_ITEMS = 0.2, 3


def random_table(chance: random.Random, schema: pa.Schema, ids: Iterable[int]) -> pa.Table:
    """A random table with one row per id, and with nulls at all levels. The values of each field are independent of all
    others, even those of fields with the same name."""
    keys = [*ids]
    columns = [random_array(chance, field.type, len(keys)) for field in fields_of(schema)[1:]]
    return pa.Table.from_arrays([pa.array(keys, schema.field(0).type), *columns], schema=schema)


def random_array(chance: random.Random, kind: pa.DataType, length: int, nulls: float = _NULLS) -> pa.Array:
    """``nulls``: the frequency of nulls at all levels."""
    absent = pa.array([chance.random() < nulls for _ in range(length)], pa.bool_())
    if pa.types.is_struct(kind):
        children = [random_array(chance, field.type, length) for field in fields_of(kind)]
        return pa.StructArray.from_arrays(children, fields=list(fields_of(kind)), mask=absent)
    if pa.types.is_nested(kind):
        offsets = [0]
        for is_absent in absent.to_pylist():
            offsets.append(offsets[-1] + (0 if is_absent else chance.randint(0, _MOST_ITEMS)))
        ends = pa.array(offsets, pa.int32())
        if pa.types.is_map(kind):
            counts = [end - start for start, end in itertools.pairwise(offsets)]
            keys = [key for count in counts for key in chance.sample(_values_of(kind.key_type), count)]
            items = random_array(chance, kind.item_type, offsets[-1])
            return pa.MapArray.from_arrays(ends, pa.array(keys, kind.key_type), items, kind, mask=absent)
        return pa.ListArray.from_arrays(ends, random_array(chance, kind.value_type, offsets[-1]), kind, mask=absent)
    values = _values_of(kind)
    return pa.array([None if each.as_py() else chance.choice(values) for each in absent], kind)


def _values_of(kind: pa.DataType) -> tuple[Any, ...]:
    return next(values for each, values in _VALUES if each == kind)


def rows_by_id(table: pa.Table) -> Rows:
    """The rows of a table, keyed by ``id``, with unchanged column names. Raises AssertionError if an id occurs
    twice."""
    columns = {field.name: [plain(each) for each in table.column(i)] for i, field in enumerate(table.schema)}
    ids = columns["id"]
    assert len(set(ids)) == len(ids), f"ids that occur twice in {sorted(ids, key=str)}"
    return {key: {name: values[row] for name, values in columns.items()} for row, key in enumerate(ids)}


def plain(value: pa.Scalar) -> Any:
    """Convert an Arrow scalar to Python values that compare equal if and only if the scalars do."""
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_struct(kind):
        return {field.name: plain(value[index]) for index, field in enumerate(fields_of(kind))}
    if pa.types.is_map(kind):
        entries = [(plain(entry[0]), plain(entry[1])) for entry in value.values]
        return sorted(entries, key=lambda entry: str(entry[0]))
    if pa.types.is_nested(kind):
        return [plain(each) for each in value.values]
    return value.as_py()
