"""Decides which columns of a data file are dictionary-encoded. Pure.

Dictionary encoding makes a column with few distinct values smaller. With dictionary encoding, a column with mostly
distinct values becomes larger and takes several times as long to write, because all values are hashed and a dictionary
can grow to 131,072 eight-byte numbers before the writer falls back to plain encoding.

Spec: PROTOCOL.md leaves the encodings of data files to writers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from deltalog.lazy_arrow import pc

# With fewer rows than this, the cost of a dictionary is negligible.
_FEW_ROWS = 4096
_SAMPLE_ROWS = 1 << 13
_MOST_DIFFERENT = 0.95


def dictionary_columns(rows: pa.Table) -> list[str] | bool:
    """The Parquet paths of the columns to dictionary-encode; True: all columns. ``rows``: the first rows of the
    file."""
    if rows.num_rows < _FEW_ROWS:
        return True
    sample = rows.slice(0, _SAMPLE_ROWS)
    return [name for field, values in zip(rows.schema, sample.columns, strict=True) for name in _chosen(field, values)]


def leaf_paths(schema: pa.Schema) -> list[str]:
    """The dotted Parquet paths of all leaf columns."""
    return [".".join(path) for field in schema for path in _leaves((field.name,), field.type)]


def _chosen(field: pa.Field, values: Any) -> Iterator[str]:
    kind = field.type
    if pt.is_struct(kind):
        flat = values.flatten() if isinstance(values, pa.Array) else values.combine_chunks().flatten()
        for child, part in zip(kind.fields, flat, strict=True):
            yield from (f"{field.name}.{name}" for name in _chosen(child, part))
    elif pt.is_nested(kind):
        yield from (".".join(path) for path in _leaves((field.name,), kind))
    else:
        present = len(values) - values.null_count
        if pc.count_distinct(values).as_py() <= present * _MOST_DIFFERENT:
            yield field.name


def _leaves(path: tuple[str, ...], kind: pa.DataType) -> Iterator[tuple[str, ...]]:
    """The paths of the Parquet columns below a list or a map, as Arrow writes them."""
    if pt.is_map(kind):
        yield from _leaves((*path, "key_value", kind.key_field.name), kind.key_type)
        yield from _leaves((*path, "key_value", kind.item_field.name), kind.item_type)
    elif pt.is_list(kind):
        yield from _leaves((*path, "list", "element"), kind.value_type)
    elif pt.is_struct(kind):
        for child in kind.fields:
            yield from _leaves((*path, child.name), child.type)
    else:
        yield path
