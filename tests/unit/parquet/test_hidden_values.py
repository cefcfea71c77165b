"""Null lists and maps with a nonzero length; they result from masks over structs and from casts of fixed-size lists,
and other programs write them. The Parquet writer of the oldest supported Arrow refuses such values."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from deltalog.parquet.hidden_values import without_hidden
from tests.support.core import memory

TYPES: dict[str, Any] = {
    "list": pa.list_(pa.int64()),
    "large list": pa.large_list(pa.string()),
    "map": pa.map_(pa.string(), pa.int64()),
    "list of lists": pa.list_(pa.list_(pa.string())),
    "struct of lists": pa.struct([("a", pa.list_(pa.int64())), ("b", pa.string())]),
    "list of structs of maps": pa.list_(pa.struct([("a", pa.map_(pa.int64(), pa.string()))])),
    "map of lists": pa.map_(pa.int64(), pa.large_list(pa.struct([("a", pa.list_(pa.int64()))]))),
    "map of maps": pa.map_(pa.string(), pa.map_(pa.string(), pa.string())),
}
INTEGERS = pa.list_(pa.int64())


def random_values(chance: random.Random, kind: Any, count: int) -> Any:
    """Random values in which any null list or map may have a nonzero length. The array may be a slice, or have offsets
    that do not start at
    0."""
    before, after, nulls = chance.choice((0, 0, 1, 9)), chance.choice((0, 2)), chance.choice((0, 0.3, 0.3, 1))
    total = before + count + after
    is_null = pa.array([chance.random() < nulls for _ in range(total)], pa.bool_())
    if pa.types.is_struct(kind):
        children = [random_values(chance, field.type, total) for field in kind.fields]
        made = pa.StructArray.from_arrays(children, fields=list(kind.fields), mask=is_null)
    elif not pa.types.is_nested(kind):
        numbers = pa.array([None if null else chance.randrange(99) for null in is_null.to_pylist()], pa.int64())
        made = numbers.cast(kind)
    else:
        ends = [chance.choice((0, 3))]
        for _ in range(total):
            ends.append(ends[-1] + chance.randrange(4))
        offsets = pa.array(ends, pa.int64() if pa.types.is_large_list(kind) else pa.int32())
        inner = kind.field(0).type
        if pa.types.is_map(kind):
            keys = pa.array(range(ends[-1]), pa.int64()).cast(kind.key_type)
            items = random_values(chance, kind.item_type, ends[-1])
            child = pa.StructArray.from_arrays([keys, items], fields=list(inner.fields))
        else:
            child = random_values(chance, inner, ends[-1])
        validity = pc.invert(is_null).buffers()[1]
        made = pa.Array.from_buffers(kind, total, [validity, offsets.buffers()[1]], children=[child])
    return made.slice(before, count)


def hides_values(values: Any) -> bool:
    """Whether some list or map that is null, or that is nested in a null value, has a nonzero length."""
    kind = values.type
    if pa.types.is_struct(kind):
        return any(hides_values(child) for child in values.flatten())
    if not pa.types.is_nested(kind) or not len(values):
        return False
    offsets = values.offsets.to_pylist()
    present = values.is_valid().to_pylist()
    if any(not there and offsets[row] < offsets[row + 1] for row, there in enumerate(present)):
        return True
    inner = values.items if pa.types.is_map(kind) else values.values
    return hides_values(inner.slice(offsets[0], offsets[-1] - offsets[0]))


@pytest.mark.parametrize("kind", TYPES)
def test_nulls_have_no_length_and_the_values_are_the_same(kind: str) -> None:
    chance = random.Random(kind)
    seen = set[bool]()
    for _ in range(30):
        chunks = [random_values(chance, TYPES[kind], chance.choice((0, 1, 5, 20))) for _ in range(2)]
        values = pa.chunked_array(chunks, TYPES[kind])
        hidden = any(map(hides_values, values.chunks))
        found = without_hidden(values)
        found.validate(full=True)
        assert found.type.equals(values.type, check_metadata=True)
        assert found.to_pylist() == values.to_pylist()
        assert not any(map(hides_values, found.chunks))
        assert hidden or found is values
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": found}), sink)
        assert pq.read_table(pa.BufferReader(sink.getvalue()))["x"].to_pylist() == values.to_pylist()
        seen.add(hidden)
    assert seen == {True, False}


def test_values_that_hide_nothing_stay_in_their_memory() -> None:
    values = pa.chunked_array([[[1, 2], None, []], [], [[None], [3]]], INTEGERS)
    assert without_hidden(values) is values
    assert without_hidden(values.slice(1, 3)).to_pylist() == [None, [], [None]]
    plain = pa.chunked_array([["a", None]])
    assert without_hidden(plain) is plain
    empty = pa.chunked_array([], INTEGERS)
    assert without_hidden(empty) is empty


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_rows_of_callers_that_hide_values_are_written(mapping: str) -> None:
    pairs = pa.array([[0, 0], [1, 2], None, [3, 4], None], pa.list_(pa.int64(), 2))
    ends, is_null = pa.array([0, 2, 4, 6], pa.int32()), pa.array([False, True, False])
    lists = pa.ListArray.from_arrays(ends, pa.array(range(6)), mask=is_null)
    structs = pa.StructArray.from_arrays([pa.ListArray.from_arrays(ends, pa.array(range(6)))], ["a"], mask=is_null)
    data = pa.table({"id": [1, 2, 3], "pairs": pairs.slice(1, 3), "lists": lists, "structs": structs})
    assert hides_values(lists) and hides_values(structs)
    table = DeltaTable.create(memory(), data.schema, properties={"delta.columnMapping.mode": mapping})
    for names in (["id", "pairs"], ["id", "lists"], ["id", "structs"]):
        table.overwrite(data.select(names))
        assert table.snapshot().scan().to_arrow().select(names).to_pylist() == data.select(names).to_pylist()
