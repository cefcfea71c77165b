"""Arrays that are built with shared buffers equal the same arrays without shared buffers."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog.arrow_arrays import STRINGS_MAP, booleans, for_ipc, if_else, kept, nulls, packed_lists, rows_where, scalar
from deltalog.log.file_tables import DELETION_VECTOR

TEXTS = st.one_of(st.none(), st.text(max_size=3))
MAPS = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=2), TEXTS), max_size=2))
VALUES: dict[pa.DataType, Any] = {
    pa.string(): TEXTS,
    pa.int64(): st.one_of(st.none(), st.integers(0, 9)),
    STRINGS_MAP: MAPS,
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@pytest.mark.parametrize("left_out", ["null", "anything"])
@settings(deadline=None)
@given(data=st.data())
def test_kept_is_a_filter(kind: pa.DataType, left_out: str, data: st.DataObject) -> None:
    """The arrays may be slices, and the values that are filtered out may be null or anything else."""
    rows = data.draw(st.lists(st.tuples(st.booleans(), VALUES[kind]), max_size=12))
    values = pa.array([None if left_out == "null" and not keep else value for keep, value in rows], kind)
    mask = booleans([keep for keep, _ in rows])
    start = data.draw(st.integers(0, len(rows)))
    values, mask = values.slice(start), mask.slice(start)
    found = kept(values, mask)
    found.validate(full=True)
    assert found.type == kind
    assert found.equals(values.filter(mask))
    assert found.null_count == values.filter(mask).null_count


def test_texts_are_kept_in_place() -> None:
    values = pa.array(["a", None, "bc", None, "d"])
    found = kept(values, values.is_valid())
    assert found.to_pylist() == ["a", "bc", "d"]
    assert found.buffers()[2].address == values.buffers()[2].address
    values = pa.array([[("k", "v")], None, [("l", None)]], STRINGS_MAP)
    found = kept(values, values.is_valid())
    assert found.to_pylist() == [[("k", "v")], [("l", None)]]
    assert found.items.buffers()[2].address == values.items.buffers()[2].address


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), STRINGS_MAP, DELETION_VECTOR], ids=str)
@pytest.mark.parametrize("rows", [0, 1, 32_768, 32_769])
def test_nulls(kind: pa.DataType, rows: int) -> None:
    found = nulls(rows, kind)
    found.validate(full=True)
    assert found.equals(pa.nulls(rows, kind))


def test_the_nulls_of_many_pieces_take_the_memory_of_one() -> None:
    nulls(1, DELETION_VECTOR)
    before = pa.total_allocated_bytes()
    pieces = [nulls(30_000, DELETION_VECTOR) for _ in range(100)]
    assert pa.total_allocated_bytes() == before
    assert sum(map(len, pieces)) == 3_000_000


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        *((value, pa.int64()) for value in (0, -1, 2**63 - 1, -(2**63), None)),
        *((value, pa.int8()) for value in (-128, 127, None)),
        *((value, pa.string()) for value in ("", "ü", None)),
        *((value, pa.bool_()) for value in (True, False, None)),
        *((datetime.date(*day), pa.date32()) for day in [(1, 1, 1), (1969, 12, 31), (1970, 1, 1), (9999, 12, 31)]),
        (None, pa.date32()),
        (1.5, pa.float64()),
        (decimal.Decimal("1.20"), pa.decimal128(5, 2)),
        (datetime.datetime(2026, 1, 1, 12), pa.timestamp("us")),
        (None, pa.struct([("a", pa.int64())])),
    ],
)
def test_a_scalar_is_arrows(value: object, kind: pa.DataType) -> None:
    assert scalar(value, kind).equals(pa.scalar(value, kind)) and scalar(value, kind).type == kind


@pytest.mark.parametrize(("value", "kind"), [(128, pa.int8()), ("1", pa.int64()), (2**63, pa.int64())])
def test_a_value_of_another_type_is_no_scalar(value: object, kind: pa.DataType) -> None:
    with pytest.raises((pa.ArrowInvalid, OverflowError, pa.ArrowTypeError)):
        scalar(value, kind)


@pytest.mark.parametrize("null_first", [True, False])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int64(), pa.list_(pa.string())], ids=str)
@pytest.mark.parametrize("given", ["slice", "chunks", "offsets"])
def test_a_null_beside_a_slice_leaves_its_values_alone(given: str, kind: pa.DataType, null_first: bool) -> None:
    """The offsets of a slice do not start at 0; those of arrays from other programs may also start elsewhere."""
    texts = ["ab", "é", "", None, "ghi", "j", "€"]
    made: Any = {
        pa.string(): lambda: pa.array(texts),
        pa.binary(): lambda: pa.array(texts).cast(pa.binary()),
        pa.int64(): lambda: pa.array([None if each is None else len(each) for each in texts], pa.int64()),
    }.get(kind, lambda: pa.array([None if each is None else [each] for each in texts], kind))()
    values: Any = made.slice(2)
    if given == "chunks":
        values = pa.chunked_array([made.slice(2, 2), made.slice(4)])
    elif given == "offsets":
        values = pa.concat_arrays([made.slice(2)])
    is_null = [True, False, True, False, True]
    expected = [None if null else value for null, value in zip(is_null, values.to_pylist(), strict=True)]
    null, condition = scalar(None, kind), pa.array(is_null)
    if null_first:
        found = if_else(condition, null, values)
    else:
        found = if_else(pa.array([not each for each in is_null]), values, null)
    found.validate(full=True)
    assert found.type == kind and found.to_pylist() == expected
    assert if_else(True, null, null).as_py() is None


@pytest.mark.parametrize("is_valid", [None, [True, False, True]])
def test_packed_lists_are_lists_and_maps(is_valid: list[bool] | None) -> None:
    lengths, present = pa.array([9, 2, 0, 1]).slice(1), None
    rows: list[Any] = [[("a", 1), ("b", None)], [], [("c", 3)]]
    if is_valid is not None:  # a null row has no values
        lengths, present = pa.array([9, 2, 0, 1]).slice(1), pa.array([False, *is_valid]).slice(1)
        rows[1] = None
    kind = pa.map_(pa.string(), pa.int64())
    entries = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array([1, None, 3])], fields=[kind.key_field, kind.item_field]
    )
    found = packed_lists(kind, lengths, entries, present)
    found.validate(full=True)
    assert found.to_pylist() == rows
    for kind in (pa.list_(pa.int64()), pa.large_list(pa.int64())):
        found = packed_lists(kind, lengths, pa.array([1, None, 3]), present)
        found.validate(full=True)
        assert found.type == kind
        assert found.to_pylist() == [None if row is None else [value for _, value in row] for row in rows]
    with pytest.raises(pa.ArrowInvalid):
        packed_lists(pa.list_(pa.int64()), pa.array([2**31]), pa.array([1]))


@pytest.mark.parametrize("left_out", [[], [0], [7], [39], [38, 39], [*range(16)], [*range(17)], [*range(40)]])
def test_rows_are_left_out_of_tables_of_any_chunks(left_out: list[int]) -> None:
    rows = pa.concat_tables([pa.table({"n": list(range(start, start + 20))}) for start in (0, 20)])
    is_kept = pa.chunked_array([[n not in left_out for n in range(10)], [n not in left_out for n in range(10, 40)]])
    found = rows_where(is_kept, rows)
    assert found.schema == rows.schema
    assert found["n"].to_pylist() == [n for n in range(40) if n not in left_out]


def test_few_rows_are_left_out_without_a_copy() -> None:
    rows = pa.table({"n": list(range(100))})
    found = rows_where(pa.array([n != 50 for n in range(100)]), rows)
    address = rows["n"].chunk(0).buffers()[1].address
    assert [chunk.buffers()[1].address for chunk in found["n"].chunks] == [address, address]


def test_rows_with_any_first_offset_go_through_ipc() -> None:
    offsets = pa.array([3, 5, 5, 8], pa.int32()).buffers()[1]
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"0123456789")])
    numbers = pa.array(range(10), pa.int64())
    lists = pa.Array.from_buffers(pa.list_(pa.int64()), 3, [None, offsets], children=[numbers])
    letters, fields = pa.array(list("abcdefghij")), [STRINGS_MAP.key_field, STRINGS_MAP.item_field]
    entries = pa.StructArray.from_arrays([letters, letters], fields=fields)
    maps = pa.Array.from_buffers(STRINGS_MAP, 3, [None, offsets], children=[entries])
    structs = pa.StructArray.from_arrays([texts, lists], names=["t", "l"])
    batch = pa.RecordBatch.from_arrays([texts, lists, maps, structs], names=list("tlms"))
    for rows in (batch, batch.slice(1), batch.slice(0, 2), batch.slice(3)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_batch(for_ipc(rows))
        found = pa.ipc.open_file(sink.getvalue()).read_all()
        found.validate(full=True)
        assert found.to_pylist() == rows.to_pylist()
