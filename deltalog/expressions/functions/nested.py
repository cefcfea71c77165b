"""Arrays, maps and structs: read, search, build and cast them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import combined, packed_lists, row_numbers, scalar
from deltalog.expressions.comparison import COMPARISONS, FLOAT_COMPARISONS
from deltalog.expressions.functions.coercion import as_type, common, widened
from deltalog.expressions.functions.nodes import Node, Rows, any_true, constant, fits, literal, steps_of
from deltalog.expressions.functions.types import BOOLEAN, INTEGER, INTEGRAL, LONG, STRING, VOID, refuse
from deltalog.lazy_arrow import pc
from deltalog.protocol.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_to_arrow,
)


def nested(data_type: DataType, kernel: Callable[..., Any], *nodes: Node, can_fail: bool = False) -> Node:
    """A node that applies a kernel to arrays of equal lengths; a scalar is repeated to this length."""

    def run(rows: Rows) -> Any:
        values = [node.run(rows) for node in nodes]
        if all(isinstance(each, pa.Scalar) for each in values):
            return kernel(*(pa.repeat(each, 1) for each in values))[0]
        return kernel(*(combined(rows.array(each)) for each in values))

    fails, constant = any(node.can_fail for node in nodes), all(node.is_constant for node in nodes)
    return Node(data_type, run, can_fail or fails, steps=steps_of(*nodes), is_constant=constant)


# --------------------------------------------------------------------------------------------- read


def element(node: Node, key: Node) -> Node:
    """``a[key]``: an array element by position from 0, a map value by key, or a struct field by name. A position
    outside the array is an error; a key that the map lacks gives null."""
    kind = node.data_type
    if isinstance(kind, ArrayType):
        return _array_element(node, kind, key, "[]", _positions_from_0)
    if isinstance(kind, MapType):
        return _map_value(node, kind, key)
    if isinstance(kind, StructType):
        return field(node, constant("[]", key, STRING))
    raise refuse(f"[] of {kind}")


def element_at(name: str, node: Node, key: Node) -> Node:
    """Like ``element``, with positions that count from 1 or, if negative, from the end."""
    if isinstance(node.data_type, ArrayType):
        return _array_element(node, node.data_type, key, name, _positions_from_1)
    if isinstance(node.data_type, MapType):
        return _map_value(node, node.data_type, key)
    raise refuse(f"The function {name} of {node.data_type}")


def _array_element(
    node: Node, kind: ArrayType, key: Node, what: str, positions: Callable[[Any, Any], Any], *, fails: bool = True
) -> Node:
    key = literal(None, LONG) if fits(key, VOID) else key
    if not fits(key, *INTEGRAL):
        raise refuse(f"{what} of an array with {key.data_type}")

    def run(lists: Any, index: Any) -> Any:
        places = positions(_lengths(lists).cast(pa.int64()), index)
        starts = lists.offsets.slice(0, len(lists)).cast(pa.int64())
        return lists.values.take(pc.add(starts, places))

    return nested(kind.element_type, run, node, widened(key, LONG), can_fail=fails)


def _positions_from_0(lengths: Any, index: Any) -> Any:
    is_outside = pc.or_kleene(pc.less(index, 0), pc.greater_equal(index, lengths))
    _check_positions(pc.and_kleene(is_outside, pc.is_valid(lengths)))
    return pc.if_else(pc.is_valid(lengths), index, scalar(None, pa.int64()))


def _positions_from_1(lengths: Any, index: Any) -> Any:
    places = pc.if_else(pc.less(index, 0), pc.add(lengths, index), pc.subtract(index, 1))
    places = pc.if_else(pc.is_valid(lengths), places, scalar(None, pa.int64()))
    _check_positions(pc.or_kleene(pc.less(places, 0), pc.greater_equal(places, lengths)))
    return places


def _check_positions(is_outside: Any) -> None:
    if any_true(is_outside):
        raise pa.ArrowInvalid("an array has no element at that position")


def get(name: str, node: Node, key: Node) -> Node:
    """GET: null for a position outside the array."""
    if not isinstance(node.data_type, ArrayType):
        raise refuse(f"The function {name} of {node.data_type}")

    def positions(lengths: Any, index: Any) -> Any:
        is_inside = pc.and_kleene(pc.greater_equal(index, 0), pc.less(index, lengths))
        return pc.if_else(pc.fill_null(is_inside, False), index, scalar(None, pa.int64()))

    return _array_element(node, node.data_type, key, name, positions, fails=False)


def _map_value(node: Node, kind: MapType, key: Node) -> Node:
    key, equal = _comparison("[] of a map", kind.key_type, key)

    def run(maps: Any, keys: Any) -> Any:
        rows, places = _entries(maps, equal, keys)
        first = pc.index_in(row_numbers(len(maps)), value_set=rows)
        return _flat(maps, maps.items).take(places.take(first))

    return nested(kind.value_type, run, node, key)


def _entries(maps: Any, equal: Callable[[Any, Any], Any], keys: Any) -> tuple[Any, Any]:
    """The map entries with a given key: the row number of each entry, and its index among all entries."""
    found, rows = _flat(maps, maps.keys), _rows_of(maps)
    places = pc.indices_nonzero(pc.fill_null(equal(found, keys.take(rows)), False))
    return rows.take(places), places


def _lengths(lists: Any) -> Any:
    """The lengths of lists or maps; null for a list or map that is null."""
    starts, ends = lists.offsets.slice(0, len(lists)), lists.offsets.slice(1)
    return pc.if_else(pc.is_valid(lists), pc.subtract(ends, starts), scalar(None, pa.int32()))


def _flat(lists: Any, values: Any) -> Any:
    """The values of all rows, concatenated, without values under null lists."""
    return pa.ListArray.from_arrays(_plain_offsets(lists), values).flatten()


def _plain_offsets(lists: Any) -> Any:
    if len(lists) and lists.null_count:
        # Values under a null list belong to no row; a null offset skips them.
        starts, last = lists.offsets.slice(0, len(lists)), lists.offsets.slice(len(lists))
        return pa.concat_arrays([pc.if_else(pc.is_valid(lists), starts, scalar(None, pa.int32())), last])
    return lists.offsets


def _rows_of(lists: Any) -> Any:
    plain = pa.ListArray.from_arrays(_plain_offsets(lists), lists.keys if pa.types.is_map(lists.type) else lists.values)
    return pc.list_parent_indices(plain).cast(pa.int64())


def _comparison(what: str, inner: DataType, value: Node) -> tuple[Node, Callable[[Any, Any], Any]]:
    """The ``value`` to search for among values of the type ``inner``, and a function that tests two values for
    equality. Raises CallError."""
    for kind in (inner, value.data_type):
        if not isinstance(kind, (PrimitiveType, DecimalType)) or str(kind) == "variant":
            raise refuse(f"{what} with {kind}")
    if fits(value, VOID) or (value.data_type == STRING) != (inner == STRING):
        raise refuse(f"{what} of {inner} with {value.data_type}")
    _, value, wide = common(what, Node(inner, lambda rows: None), value)
    arrow = type_to_arrow(wide)
    kernel = (FLOAT_COMPARISONS if pa.types.is_floating(arrow) else COMPARISONS)["="]
    return value, lambda one, other: kernel(as_type(one, arrow), as_type(other, arrow))


def field(node: Node, name: str) -> Node:
    """A field of a struct; null where the struct is null."""
    found = node.data_type.find(name) if isinstance(node.data_type, StructType) else None
    if found is None:
        raise refuse(f"The field {name} of {node.data_type}")
    index = [each.name for each in node.data_type.fields].index(found.name)  # type: ignore[union-attr]
    return nested(found.data_type, lambda values: values.flatten()[index], node)


def size(name: str, node: Node) -> Node:
    """SIZE: the number of elements or entries; null for a null array or map."""
    if not isinstance(node.data_type, (ArrayType, MapType)):
        raise refuse(f"The function {name} of {node.data_type}")
    return nested(INTEGER, _lengths, node)


def array_contains(name: str, node: Node, value: Node) -> Node:
    """ARRAY_CONTAINS: whether an array contains a value; null instead of false if the array contains a null."""
    if not isinstance(node.data_type, ArrayType):
        raise refuse(f"The function {name} of {node.data_type}")
    value, equal = _comparison(f"The function {name}", node.data_type.element_type, value)

    def run(lists: Any, values: Any) -> Any:
        rows, flat = _rows_of(lists), _flat(lists, lists.values)
        has = rows.filter(pc.fill_null(equal(flat, values.take(rows)), False))
        return _membership(lists, values, has, rows.filter(pc.is_null(flat)))

    return nested(BOOLEAN, run, node, value)


def map_contains_key(name: str, node: Node, key: Node) -> Node:
    """MAP_CONTAINS_KEY: whether a map contains a key."""
    if not isinstance(node.data_type, MapType):
        raise refuse(f"The function {name} of {node.data_type}")
    key, equal = _comparison(f"The function {name}", node.data_type.key_type, key)

    def run(maps: Any, keys: Any) -> Any:
        rows, _ = _entries(maps, equal, keys)
        return _membership(maps, keys, rows, rows.slice(0, 0))

    return nested(BOOLEAN, run, node, key)


def _membership(lists: Any, values: Any, has: Any, unsure: Any) -> Any:
    numbers = row_numbers(len(lists))
    found = pc.is_in(numbers, value_set=has)
    is_known = pc.or_(found, pc.invert(pc.is_in(numbers, value_set=unsure)))
    is_known = pc.and_(is_known, pc.and_(pc.is_valid(lists), pc.is_valid(values)))
    return pc.if_else(is_known, found, scalar(None, pa.bool_()))


def map_part(of_keys: bool) -> Callable[..., Node]:
    """MAP_KEYS and MAP_VALUES: the keys and the values of a map, as an array."""

    def make(name: str, node: Node) -> Node:
        kind = node.data_type
        if not isinstance(kind, MapType):
            raise refuse(f"The function {name} of {kind}")
        result = ArrayType(kind.key_type, False) if of_keys else ArrayType(kind.value_type, kind.value_contains_null)
        arrow = type_to_arrow(result)

        def run(maps: Any) -> Any:
            flat = _flat(maps, maps.keys if of_keys else maps.items)
            return _lists(flat, maps, arrow)

        return nested(result, run, node)

    return make


def _lists(flat: Any, like: Any, arrow: pa.DataType) -> Any:
    """A list array of the concatenated values ``flat``, with the lengths and nulls of the list array ``like``."""
    is_valid = like.is_valid() if like.null_count else None
    return packed_lists(arrow, pc.fill_null(_lengths(like), 0), flat, is_valid)


# --------------------------------------------------------------------------------------------- built


def named_struct(name: str, *arguments: Node) -> Node:
    """NAMED_STRUCT: builds a struct from pairs of a name, which must be a literal, and a value."""
    if len(arguments) % 2:
        raise refuse(f"The function {name} with {len(arguments)} arguments")
    return _struct(name, [constant(name, each, STRING) for each in arguments[::2]], arguments[1::2])


def _struct(name: str, names: list[str], values: tuple[Node, ...]) -> Node:
    if len({each.lower() for each in names}) < len(names):
        raise refuse(f"The function {name} with two fields of the same name")
    result = StructType(tuple(StructField(n, v.data_type) for n, v in zip(names, values, strict=True)))
    fields = list(type_to_arrow(result).fields)

    def run(*arrays: Any) -> Any:
        typed = [each.cast(part.type) for each, part in zip(arrays, fields, strict=True)]
        return pa.StructArray.from_arrays(typed, fields=fields)

    return nested(result, run, *values)


# ------------------------------------------------------------------------------------------- casts


def cast_inside(node: Node, wanted: DataType, caster: Callable[[DataType, DataType], Callable[[Any], Any]]) -> Node:
    """Cast a struct, array or map to another one; struct fields are matched by name. ``caster`` returns the function
    that casts values between two types. Raises CallError."""
    have = node.data_type
    if isinstance(have, StructType) and isinstance(wanted, StructType):
        return _cast_struct(node, have, wanted, caster)
    arrow = type_to_arrow(wanted)
    if isinstance(have, ArrayType) and isinstance(wanted, ArrayType):
        elements = caster(have.element_type, wanted.element_type)
        return nested(wanted, lambda lists: _lists(elements(lists.flatten()), lists, arrow), node, can_fail=True)
    if isinstance(have, MapType) and isinstance(wanted, MapType):
        keys, items = caster(have.key_type, wanted.key_type), caster(have.value_type, wanted.value_type)

        def run(maps: Any) -> Any:
            found = keys(_flat(maps, maps.keys)), items(_flat(maps, maps.items))
            entries = pa.StructArray.from_arrays(list(found), fields=[arrow.key_field, arrow.item_field])
            return _lists(entries, maps, arrow)

        return nested(wanted, run, node, can_fail=True)
    raise refuse(f"CAST from {have} to {wanted}")


def _cast_struct(
    node: Node, have: StructType, wanted: StructType, caster: Callable[[DataType, DataType], Callable[[Any], Any]]
) -> Node:
    names = [each.name.lower() for each in have.fields]
    if sorted(names) != sorted(each.name.lower() for each in wanted.fields):
        raise refuse(f"CAST from {have} to {wanted}, whose fields have other names,")
    order = [names.index(each.name.lower()) for each in wanted.fields]
    casters = [caster(have.fields[n].data_type, f.data_type) for n, f in zip(order, wanted.fields, strict=True)]
    fields = [pa.field(each.name, type_to_arrow(each.data_type)) for each in wanted.fields]

    def run(values: Any) -> Any:
        children = values.flatten()
        mask = pc.is_null(values) if values.null_count else None
        arrays = [each(children[n]) for each, n in zip(casters, order, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask).cast(type_to_arrow(wanted))

    return nested(wanted, run, node, can_fail=True)
