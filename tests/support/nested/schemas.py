"""Random Arrow schemas with nested structs, lists and maps."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

# : The key: the first column of every schema, non-null and unique within a table.
ID = pa.field("id", pa.int64(), nullable=False)

LEAVES: tuple[pa.DataType, ...] = (
    pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.binary(), pa.date32(), pa.decimal128(10, 2),
    pa.timestamp("us", "UTC"),
)  # fmt: skip
KEYS: tuple[pa.DataType, ...] = (pa.string(), pa.int64(), pa.date32())
# : Some names contain capital letters, so that changing a name to lower case changes its spelling.
NAMES = ("a", "B", "Name", "itemId", "PRICE", "note", "Tags", "z9")


def random_schema(chance: random.Random, columns: int = 3, depth: int = 3) -> pa.Schema:
    """``id`` and 1 to ``columns`` more columns, the first of which is a struct. ``depth``: the maximum nesting
    depth."""
    names = chance.sample(NAMES, chance.randint(1, columns))
    first = pa.field(names[0], _struct(chance, depth))
    return pa.schema([ID, first, *(pa.field(name, random_type(chance, depth)) for name in names[1:])])


def random_type(chance: random.Random, depth: int) -> pa.DataType:
    """A leaf, or a struct, list or map with at most ``depth - 1`` nested levels."""
    kind = chance.choice(("leaf", "struct", "struct", "list", "map")) if depth else "leaf"
    if kind == "struct":
        return _struct(chance, depth)
    if kind == "list":
        return pa.list_(random_type(chance, depth - 1))
    if kind == "map":
        return pa.map_(chance.choice(KEYS), random_type(chance, depth - 1))
    return chance.choice(LEAVES)


def _struct(chance: random.Random, depth: int) -> pa.StructType:
    names = chance.sample(NAMES, chance.randint(1, 3))
    return pa.struct([pa.field(name, random_type(chance, depth - 1)) for name in names])


def fields_of(kind: pa.DataType | pa.Schema) -> Sequence[pa.Field]:
    """The fields of a struct or schema, by position because names may be duplicated."""
    return [kind.field(index) for index in range(len(kind) if isinstance(kind, pa.Schema) else kind.num_fields)]
