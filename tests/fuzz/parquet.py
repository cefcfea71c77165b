"""Damages the structure of Parquet files: columns, types, nulls, rows, footers, and encodings."""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.mutations import damage_bytes, mutate_tree
from tests.fuzz.tables import parquet


def damage_parquet(data: bytes, random: Random) -> bytes:
    """A Parquet file whose bytes, footer, columns or rows are changed."""
    draw = random.random()
    if draw < 0.30:
        return damage_bytes(data, random)
    if draw < 0.55:
        return _damage_footer(data, random)
    table = _read(data)
    for _ in range(random.choice((1, 1, 2))):
        table = random.choice(_TABLE_MUTATIONS)(table, random)
    return _written(table, random) or damage_bytes(data, random)


@functools.lru_cache(maxsize=64)
def _read(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


def _damage_footer(data: bytes, random: Random) -> bytes:
    """Write wrong lengths, types, counts, codecs and offsets into the footer, which is a Thrift struct before the last
    8 bytes."""
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    draw = random.random()
    if draw < 0.8:
        return damage_bytes(data, random, len(data) - 8 - length, len(data) - 8)
    if draw < 0.9:
        lie = random.choice((0, 1, 7, 2**31 - 1, 2**32 - 1, len(data), length + 1, length - 1, length // 2))
        return data[:-8] + struct.pack("<I", lie) + data[-4:]
    return damage_bytes(data, random, len(data) - 8)


def _written(table: pa.Table, random: Random) -> bytes | None:
    """The table in one of several encodings; None if Arrow cannot write it."""
    options: dict[str, Any] = random.choice(
        (
            {},
            {},
            {"row_group_size": 1},
            {"data_page_version": "2.0"},
            {"use_dictionary": False},
            {"write_statistics": False},
            {"store_schema": False},
            {"compression": "none"},
            {"compression": "gzip"},
            {"data_page_size": 1},
        )
    )
    try:
        return parquet(table, **options)
    except (pa.ArrowException, TypeError):
        return None


# -------------------------------------------------------------------------------------------- tables of rows


def _drop_column(table: pa.Table, random: Random) -> pa.Table:
    return table.drop_columns([random.choice(table.column_names)]) if table.num_columns > 1 else table


def _rename_column(table: pa.Table, random: Random) -> pa.Table:
    names = list(table.column_names)
    at = random.randrange(len(names))
    names[at] = random.choice((names[at].upper(), names[at] + "x", "", random.choice(names)))
    return table.rename_columns(names)


def _retype_column(table: pa.Table, random: Random) -> pa.Table:
    at = random.randrange(table.num_columns)
    return table.set_column(at, table.column_names[at], _other_array(table.num_rows, random))


def _null_column(table: pa.Table, random: Random) -> pa.Table:
    at = random.randrange(table.num_columns)
    field = table.schema.field(at)
    return table.set_column(at, field, pa.nulls(table.num_rows, field.type))


def _shuffle_rows(table: pa.Table, random: Random) -> pa.Table:
    order = list(range(table.num_rows))
    random.shuffle(order)
    return table.take(pa.array(order, pa.int64()))


def _choose_rows(table: pa.Table, random: Random) -> pa.Table:
    chosen = [random.randrange(table.num_rows) for _ in range(random.randrange(2 * table.num_rows + 1))]
    return table.take(pa.array(chosen if table.num_rows else [], pa.int64()))


def _change_child(table: pa.Table, random: Random) -> pa.Table:
    """Drop or rename a child of a struct column, set it to null, or change its type."""
    structs = [i for i, field in enumerate(table.schema) if pa.types.is_struct(field.type)]
    if not structs:
        return _retype_column(table, random)
    at = random.choice(structs)
    column = table.column(at).combine_chunks()
    fields, children = list(column.type.fields), [column.field(i) for i in range(column.type.num_fields)]
    child = random.randrange(len(fields))
    draw = random.random()
    if draw < 0.25 and len(fields) > 1:
        del fields[child], children[child]
    elif draw < 0.45:
        fields[child] = fields[child].with_name(random.choice((fields[child].name.upper(), "", fields[0].name)))
    elif draw < 0.65:
        children[child] = pa.nulls(len(column), fields[child].type)
    elif draw < 0.75:
        children[child] = _wider(children[child])
        fields[child] = pa.field(fields[child].name, children[child].type)
    else:
        children[child] = _other_array(len(column), random)
        fields[child] = pa.field(fields[child].name, children[child].type)
    changed = pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())
    return table.set_column(at, table.column_names[at], changed)


def _wider(values: pa.Array) -> pa.Array:
    """The same values, with strings and integers cast to a wider type."""
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values


def _change_rows(table: pa.Table, random: Random) -> pa.Table:
    """Replace a value of a row; each column keeps its type if its values still fit, and gets an inferred type
    otherwise."""
    if table.num_rows == 0 or len(set(table.column_names)) < table.num_columns:
        return table
    try:
        rows = mutate_tree(table.to_pylist(), random)
    except ValueError:  # duplicate field names or invalid strings from an earlier change
        return table
    for schema in (table.schema, None):
        try:
            return pa.Table.from_pylist(rows, schema=schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, RecursionError):
            continue
    return table


def _other_array(rows: int, random: Random) -> pa.Array:
    pattern, kind = random.choice(_OTHER_TYPES)
    return pa.array([pattern] * rows, kind)


_OTHER_TYPES: tuple[tuple[Any, pa.DataType], ...] = (
    ("x", pa.string()),
    (b"\xff\xfe", pa.binary()),
    (b"\xff", pa.binary()),
    (-1, pa.int64()),
    (1, pa.int8()),
    (2**63 - 1, pa.int64()),
    (1.5, pa.float64()),
    (float("nan"), pa.float64()),
    (True, pa.bool_()),
    (["x", None], pa.list_(pa.string())),
    ({"a": 1}, pa.struct([("a", pa.int32())])),
    ({"path": "x"}, pa.struct([("path", pa.string())])),
    ({"path": 5}, pa.struct([("path", pa.int64())])),
    ({"path": b"\xff"}, pa.struct([("path", pa.binary())])),
    ([("k", "v"), ("k", None)], pa.map_(pa.string(), pa.string())),
    ([("k", 1)], pa.map_(pa.string(), pa.int64())),
    ([(b"\xff", b"\xfe")], pa.map_(pa.binary(), pa.binary())),
    (None, pa.string()),
    (1, pa.timestamp("us")),
    ([{"k": "v"}], pa.list_(pa.struct([("k", pa.string())]))),
    (1, pa.decimal128(38, 0)),
)

_TABLE_MUTATIONS: tuple[Callable[[pa.Table, Random], pa.Table], ...] = (
    _drop_column, _rename_column, _retype_column, _null_column, _shuffle_rows, _choose_rows, _change_child,
    _change_child, _change_child, _change_rows, _change_rows, _change_rows,
)  # fmt: skip
