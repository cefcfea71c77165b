"""Converts per-file statistics, which are JSON text in actions and JSON text or structs in checkpoints, to Arrow
columns. The module also converts partition values to typed columns. Pure.

Spec: PROTOCOL.md#per-file-statistics, #checkpoint-schema (stats_parsed). A statistic that cannot be read becomes null,
and data skipping ignores it.
"""

from __future__ import annotations

import datetime
import decimal
import json
import operator
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec
import pyarrow as pa

from deltalog.arrow_arrays import ZERO, array_of, combined, float64s, nulls, strings
from deltalog.errors import CallError, DeltaLogError
from deltalog.lazy_arrow import pc, pj
from deltalog.protocol import column_mapping, partitions
from deltalog.protocol.actions import Metadata
from deltalog.protocol.arrow_types import as_micros
from deltalog.protocol.column_mapping import Mode
from deltalog.protocol.column_metadata import is_text
from deltalog.protocol.column_paths import parse_paths
from deltalog.protocol.properties import DATA_SKIPPING_NUM_INDEXED_COLS, DATA_SKIPPING_STATS_COLUMNS_KEY
from deltalog.protocol.schema import DataType, DecimalType, StructField, StructType, has_bounds, type_to_arrow
from deltalog.protocol.timestamps import parse_iso

Group = Literal["minValues", "maxValues", "nullCount"]
GROUPS: tuple[Group, ...] = ("minValues", "maxValues", "nullCount")
BOUNDS: tuple[Group, ...] = ("minValues", "maxValues")
_WHOLE = frozenset({"byte", "short", "integer", "long"})
_EMPTY, _LINE_FEED = strings(["", "\n"])
_TEMPORAL = frozenset({"date", "timestamp", "timestamp_ntz"})


class Leaf(msgspec.Struct, frozen=True):
    """A leaf column for which files can have statistics. ``path``: the logical field names from the top level down to
    the column. ``physical``: the same path with physical names, which the statistics use."""

    path: tuple[str, ...]
    physical: tuple[str, ...]
    data_type: DataType

    @classmethod
    def from_fields(cls, fields: Sequence[StructField], mapping: Mode) -> Leaf:
        """The leaf for the last of ``fields``; the other ``fields`` are the structs that contain this leaf, outermost
        first."""
        physical = tuple(column_mapping.physical_name(f, mapping) for f in fields)
        return cls(tuple(f.name for f in fields), physical, fields[-1].data_type)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of statistics (such as minValues and nullCount) that can exist for the column. Lists, maps,
        booleans and binary columns have no bounds."""
        return GROUPS if has_bounds(self.data_type) else ("nullCount",)

    def kind(self, group: Group) -> pa.DataType:
        """The Arrow type of the column's statistics in a group."""
        return pa.int64() if group == "nullCount" else type_to_arrow(self.data_type)


def leaves_of(schema: StructType, mapping: Mode, above: tuple[StructField, ...] = ()) -> list[Leaf]:
    """The leaves of a schema, depth first.

    ``schema``: a schema without partition columns, which have no statistics. ``above``: the structs around ``schema``,
    outermost first.
    """
    leaves: list[Leaf] = []
    for column in schema.fields:
        fields = (*above, column)
        if isinstance(column.data_type, StructType):
            leaves.extend(leaves_of(column.data_type, mapping, fields))
        else:
            leaves.append(Leaf.from_fields(fields, mapping))
    return leaves


def indexed_leaves(metadata: Metadata, clustered_by: Collection[tuple[str, ...]]) -> list[Leaf]:
    """The leaves that have statistics: the leaves selected by the table properties (delta.dataSkippingStatsColumns,
    else delta.dataSkippingNumIndexedCols; all leaves if the list of names cannot be parsed), and the clustering columns
    ``clustered_by`` (paths). Raises InvalidPropertyError."""
    configuration = metadata.configuration
    data = StructType(tuple(field for field in metadata.schema if field.name not in metadata.partition_columns))
    leaves = leaves_of(data, column_mapping.mode_of(configuration))
    named = configuration.get(DATA_SKIPPING_STATS_COLUMNS_KEY)
    if named is not None:
        try:
            names = {_lower(path) for path in parse_paths(named)}
        except CallError:
            return leaves
        selected = [any(_lower(leaf.path[:end]) in names for end in range(1, len(leaf.path) + 1)) for leaf in leaves]
    else:
        first = DATA_SKIPPING_NUM_INDEXED_COLS.read(configuration)
        selected = [first < 0 or number < first for number in range(len(leaves))]
    return [leaf for leaf, yes in zip(leaves, selected, strict=True) if yes or leaf.path in clustered_by]


def _lower(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in path)


def column_name(group: Group, leaf: Leaf) -> str:
    """The name of the column that contains the statistics of a leaf in one group (such as minimum values), in the
    tables that ``statistics_of_files`` returns. The names are unique."""
    return "\0".join((group, *leaf.physical))


def statistics_of_files(files: pa.Table, leaves: Sequence[Leaf]) -> pa.Table:
    """The statistics, one row per file: ``numRecords``, ``tightBounds`` and a typed column for each leaf and group.

    ``files``: a table with the struct column ``stats_parsed`` or the JSON column ``stats``.
    """
    if "stats_parsed" in files.schema.names:
        return _from_structs(files.column("stats_parsed"), leaves)
    return _from_json(combined(files.column("stats")), leaves)


def bounds_of_files(files: pa.Table, leaves: Sequence[Leaf]) -> pa.Table | None:
    """Like ``statistics_of_files``, but several times faster and with bounds only: all other columns are null. None if
    the statistics are not JSON text or contain anything unexpected; in that case, use ``statistics_of_files``."""
    if "stats_parsed" in files.schema.names or any(
        isinstance(leaf.data_type, DecimalType) or not has_bounds(leaf.data_type) for leaf in leaves
    ):
        return None
    texts = combined(files.column("stats"))
    are_objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    if not pc.all(are_objects, skip_nulls=False, min_count=1).as_py():
        return None
    columns: dict[str, Any] = {}
    try:
        decoder, paths = _bounds_decoder(tuple(leaves))
        # No JSON object can span two strings, because inside an object, a closing brace and a line feed are never
        # followed by an opening brace.
        rows = decoder.decode_lines(memoryview(_as_lines(texts)))
        if len(rows) != len(texts):
            return None
        for leaf, path in zip(leaves, paths, strict=True):
            for group in BOUNDS:
                values = list(map(operator.attrgetter(f"{group}.{path}"), rows))
                kind = _stored_type(leaf.data_type)
                found = float64s(values) if pa.types.is_floating(kind) else array_of(values, kind)
                columns[column_name(group, leaf)] = _typed(found, leaf, group)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, pa.ArrowException):
        return None
    return _table(len(texts), columns, leaves)


@lru_cache(maxsize=64)
def _bounds_decoder(leaves: tuple[Leaf, ...]) -> tuple[msgspec.json.Decoder[Any], list[str]]:
    """Returns a decoder that reads only the bounds of ``leaves``, and for each leaf its attribute path within a group
    of the decoded statistics. Raises ValueError for names that need escapes."""
    tree: dict[str, Any] = {}
    for leaf in leaves:
        kind = _stored_type(leaf.data_type)
        number = int if pa.types.is_integer(kind) else float if pa.types.is_floating(kind) else str
        _put(tree, leaf.physical, number | None)
    group = _struct_class(tree)
    fields = [(name, group, msgspec.field(default_factory=group)) for name in BOUNDS]
    return msgspec.json.Decoder(msgspec.defstruct("Bounds", fields, gc=False)), [
        _attributes(tree, leaf.physical) for leaf in leaves
    ]


def _struct_class(tree: dict[str, Any]) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for number, (name, child) in enumerate(tree.items()):
        kind = _struct_class(child) if isinstance(child, dict) else child
        default = (
            msgspec.field(name=name, default_factory=kind)
            if isinstance(child, dict)
            else msgspec.field(name=name, default=None)
        )
        fields.append((f"c{number}", kind, default))
    return msgspec.defstruct("Values", fields, gc=False)


def _attributes(tree: dict[str, Any], path: tuple[str, ...]) -> str:
    """Converts a path of field names to the dotted path of the attributes (``c0``, ``c1``, …) that the decoded structs
    have for these fields."""
    names = []
    for name in path:
        names.append(f"c{list(tree).index(name)}")
        tree = tree[name]
    return ".".join(names)


def live_rows_of_each(files: pa.Table) -> pa.Array:
    """The number of live rows of each file: the rows in its statistics, minus the rows that its deletion vector
    deletes; null without statistics. ``files``: as for ``statistics_of_files``, but also with the column
    ``deletion_vector``."""
    cardinality = pc.struct_field(combined(files["deletion_vector"]), "cardinality")
    return pc.subtract(
        combined(statistics_of_files(files, ())["numRecords"]), pc.fill_null(cardinality.cast(pa.int64()), ZERO)
    )


def live_rows(files: pa.Table) -> int | None:
    """The sum of ``live_rows_of_each``; None if a file has no statistics."""
    rows = live_rows_of_each(files)
    return None if rows.null_count else int(pc.sum(rows).as_py() or 0)


def partition_values(files: pa.Table, column: StructField, mapping: Mode) -> Any:
    """The values of a partition column, one per file, with the column's type. Raises CorruptTableError."""
    key = strings([column_mapping.physical_name(column, mapping)])[0]
    texts = _looked_up(combined(files.column("partition_values")), key).dictionary_encode()
    parsed = [partitions.parse(text, column.data_type, column.name) for text in texts.dictionary.to_pylist()]
    return array_of(parsed, type_to_arrow(column.data_type)).take(texts.indices)


def _looked_up(maps: Any, key: pa.Scalar) -> Any:
    """The first value of a key in each map. Arrow's ``map_lookup`` processes one map at a time. If each map contains
    the key exactly once, as in a table whose partition columns never changed, finding the key in the concatenated keys
    gives the same values faster."""
    offsets = maps.offsets
    begin, end = offsets[0].as_py(), offsets[-1].as_py()
    places = pc.indices_nonzero(pc.equal(maps.keys.slice(begin, end - begin), key)).cast(pa.int64())
    if maps.null_count == 0 and len(places) == len(maps):
        places = pc.add(places, begin)
        is_own = pc.and_(pc.greater_equal(places, offsets[:-1]), pc.less(places, offsets[1:]))
        if pc.all(is_own, min_count=0).as_py():
            return maps.items.take(places)
    return pc.map_lookup(maps, key, "first")


def nested(flat: pa.Table, leaves: Sequence[Leaf], names: Callable[[Leaf], tuple[str, ...]]) -> dict[str, Any]:
    """The columns of ``statistics_of_files`` as one struct array per group. ``names``: a function that returns the path
    of a leaf within these structs."""
    groups: dict[str, Any] = {}
    for group in GROUPS:
        tree: dict[str, Any] = {}
        for leaf in leaves:
            if group in leaf.groups:
                _put(tree, names(leaf), combined(flat.column(column_name(group, leaf))))
        if tree:
            groups[group] = _struct_array(tree)
    return groups


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _struct_array(tree: dict[str, Any]) -> pa.StructArray:
    children = [_struct_array(child) if isinstance(child, dict) else child for child in tree.values()]
    return pa.StructArray.from_arrays(children, names=list(tree))


def _table(rows: int, columns: dict[str, Any], leaves: Sequence[Leaf]) -> pa.Table:
    """A statistics table of ``rows`` rows for ``leaves``; columns missing in ``columns`` are null."""
    wanted = [("numRecords", pa.int64()), ("tightBounds", pa.bool_())]
    for leaf in leaves:
        for group in leaf.groups:
            wanted.append((column_name(group, leaf), leaf.kind(group)))
    schema = pa.schema(dict(wanted))
    return pa.Table.from_arrays([columns.get(f.name, nulls(rows, f.type)) for f in schema], schema=schema)


# ------------------------------------------------------------------------------------------------ structs


def _from_structs(values: Any, leaves: Sequence[Leaf]) -> pa.Table:
    values = combined(values)
    tree, columns = _Tree(values), {}
    for name, kind in (("numRecords", pa.int64()), ("tightBounds", pa.bool_())):
        found = tree.at((name,))
        if found is not None:
            columns[name] = _fit(found, kind)
    for leaf in leaves:
        for group in leaf.groups:
            found = tree.at((group, *leaf.physical))
            if found is not None:
                columns[column_name(group, leaf)] = _fit(found, leaf.kind(group))
    return _table(len(values), columns, leaves)


def has_field(kind: pa.DataType, path: Sequence[str]) -> bool:
    """Whether a struct type has a field at this path of names."""
    for name in path:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return False
        kind = kind.field(index).type
    return True


class _Tree:
    """A struct array that is flattened only once, on the first access to one of its fields."""

    def __init__(self, values: Any) -> None:
        self._values = values
        self._fields: dict[str, _Tree] | None = None

    def at(self, path: tuple[str, ...]) -> Any:
        """The values of the field with this path of names; null where a struct on the path is null. Returns None if no
        field or more than one has this path."""
        tree = self
        for name in path:
            child = tree._children().get(name)
            if child is None:
                return None
            tree = child
        return tree._values

    def _children(self) -> dict[str, _Tree]:
        if self._fields is None:
            kind = self._values.type
            names = [field.name for field in kind.fields] if pa.types.is_struct(kind) else []
            children = self._values.flatten() if names else []
            unique = Counter(names)
            self._fields = {n: _Tree(c) for n, c in zip(names, children, strict=True) if unique[n] == 1}
        return self._fields


def _fit(values: Any, kind: pa.DataType) -> Any:
    """``values`` cast to ``kind``; all null if one of them cannot be cast."""
    if values.type == kind:
        return values
    try:
        if pa.types.is_timestamp(values.type) and pa.types.is_timestamp(kind):
            # In Delta, a timestamp stored without a time zone is in UTC. Fractions of a microsecond are truncated.
            return as_micros(values, exact=False).cast(kind)
        return values.cast(kind, safe=not pa.types.is_floating(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return nulls(len(values), kind)


def as_json(values: Any) -> pa.StringArray:
    """A checkpoint's struct statistics as JSON text, as in an action."""
    return strings([None if row is None else _encoder.encode(_encodable(row)).decode() for row in values.to_pylist()])


def with_text(files: pa.Table) -> pa.Table:
    """``files`` with the column ``stats``, converted from ``stats_parsed`` if the checkpoint has only structs."""
    if "stats" in files.schema.names:
        return files
    return files.append_column("stats", as_json(combined(files["stats_parsed"])))


_encoder = msgspec.json.Encoder(decimal_format="number")


def _encodable(value: Any) -> Any:
    """The value without nulls, binary values and NaN, which JSON statistics cannot express."""
    if not isinstance(value, dict):
        return value
    return {k: _encodable(v) for k, v in value.items() if not (v is None or isinstance(v, bytes) or v != v)}


# --------------------------------------------------------------------------------------------------- JSON


def _from_json(texts: Any, leaves: Sequence[Leaf]) -> pa.Table:
    if len(texts) == 0:
        return _table(0, {}, leaves)
    lines = _one_line_each(texts)
    try:
        parsed = _parse_lines(lines, _json_schema(leaves))
    except (pa.ArrowException, ValueError):
        return _from_each(lines.to_pylist(), leaves)
    columns = {name: combined(parsed.column(name)) for name in ("numRecords", "tightBounds")}
    for group in GROUPS:
        if group not in parsed.schema.names:
            continue
        tree = _Tree(combined(parsed.column(group)))
        for leaf in leaves:
            if group in leaf.groups:
                found = tree.at(leaf.physical)
                columns[column_name(group, leaf)] = found if group == "nullCount" else _typed(found, leaf, group)
    return _table(len(lines), columns, leaves)


def _one_line_each(texts: Any) -> Any:
    """The strings that contain a single JSON object on one line. All other strings are replaced by an empty JSON
    object, which contains no statistics.

    A null among the objects crashes Arrow's reader. If all strings begin with a brace, line feeds are not searched for:
    ``_parse_lines`` then detects them, because the number of parsed rows differs from the number of strings.
    """
    if pc.all(pc.starts_with(texts, "{"), skip_nulls=False, min_count=0).as_py():
        return texts
    trimmed = pc.fill_null(pc.utf8_trim_whitespace(texts), "")
    whole = pc.and_(pc.starts_with(trimmed, "{"), pc.invert(pc.match_substring(trimmed, "\n")))
    return pc.if_else(whole, trimmed, "{}")


def _json_schema(leaves: Sequence[Leaf]) -> pa.Schema:
    """The Arrow schema of JSON statistics with ``leaves``; the parser ignores all other fields."""
    trees: dict[Group, dict[str, Any]] = {group: {} for group in GROUPS}
    for leaf in leaves:
        for group in leaf.groups:
            _put(trees[group], leaf.physical, pa.int64() if group == "nullCount" else _stored_type(leaf.data_type))
    groups = [pa.field(group, _struct_type(tree)) for group, tree in trees.items() if tree]
    return pa.schema([pa.field("numRecords", pa.int64()), pa.field("tightBounds", pa.bool_()), *groups])


def _struct_type(tree: Any) -> pa.DataType:
    if not isinstance(tree, dict):
        return tree
    return pa.struct([pa.field(name, _struct_type(child)) for name, child in tree.items()])


def _stored_type(data_type: DataType) -> pa.DataType:
    """The Arrow type with which to parse a bound from JSON: numbers as numbers, dates and timestamps as strings."""
    name = str(data_type)
    if name in _WHOLE:
        return pa.int64()
    if isinstance(data_type, DecimalType):
        return type_to_arrow(data_type)
    return pa.float64() if name in ("float", "double") else pa.string()


def _parse_lines(texts: Any, schema: pa.Schema) -> pa.Table:
    lines = _as_lines(texts)
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    # Uses no threads, because pieces of a checkpoint are already parsed in parallel.
    read = pj.ReadOptions(block_size=max(len(lines), 1) + 1, use_threads=False)
    parsed = pj.read_json(pa.BufferReader(lines), read, options)
    if parsed.num_rows != len(texts):
        raise ValueError(f"{parsed.num_rows} rows from {len(texts)} texts")
    return parsed


def _as_lines(texts: Any) -> pa.Buffer:
    """The given strings, each followed by a line feed."""
    # The bytes of the joined strings are contiguous in memory.
    lines = pc.binary_join_element_wise(texts, _EMPTY, _LINE_FEED)
    return lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py() or 0)


def _typed(values: Any, leaf: Leaf, group: Group) -> Any:
    """Bounds as values of the column's type; null if they cannot be converted."""
    kind = type_to_arrow(leaf.data_type)
    if values.type == kind:
        return values
    try:
        return values.cast(kind, safe=not pa.types.is_floating(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        encoded = values.dictionary_encode()
        converted = [_value(text, leaf.data_type, group) for text in encoded.dictionary.to_pylist()]
        return pa.array(converted, kind).take(encoded.indices)


def _from_each(texts: Sequence[str], leaves: Sequence[Leaf]) -> pa.Table:
    """Like ``_from_json``, but decodes one string at a time, for strings that do not match the expected schema. A value
    whose type does not match the schema becomes null."""
    bodies = [decoded(text) for text in texts]
    rows = [_count(body.get("numRecords")) for body in bodies]
    tight = [body.get("tightBounds") if isinstance(body.get("tightBounds"), bool) else None for body in bodies]
    columns: dict[str, Any] = {"numRecords": pa.array(rows, pa.int64()), "tightBounds": pa.array(tight, pa.bool_())}
    for leaf in leaves:
        for group in leaf.groups:
            found = [_descend(body.get(group), leaf.physical) for body in bodies]
            if group == "nullCount":
                columns[column_name(group, leaf)] = pa.array([_count(each) for each in found], pa.int64())
            else:
                kind = type_to_arrow(leaf.data_type)
                columns[column_name(group, leaf)] = pa.array([_value(v, leaf.data_type, group) for v in found], kind)
    return _table(len(bodies), columns, leaves)


def decoded(text: str) -> dict[str, Any]:
    """The decoded JSON object of statistics, with fractions as decimals; empty if the text is not a JSON object."""
    try:
        body = json.loads(text, parse_float=decimal.Decimal, parse_constant=lambda _: None)
    except (ValueError, RecursionError, decimal.DecimalException):
        return {}
    return body if isinstance(body, dict) else {}


def _descend(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _value(value: Any, data_type: DataType, group: Group) -> Any:
    """A JSON value as a value of the column's type; None if it cannot be converted."""
    name = str(data_type)
    if isinstance(value, str):
        if name == "string":
            return value if is_text(value) else None
        return _temporal(value, name) if name in _TEMPORAL else None
    if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
        return None
    if name in _WHOLE:
        limit = 1 << (8 * {"byte": 1, "short": 2, "integer": 4, "long": 8}[name] - 1)
        return value if isinstance(value, int) and -limit <= value < limit else None
    if name in ("float", "double"):
        try:
            return float(value)
        except OverflowError:
            return None
    return _decimal(value, data_type, group) if isinstance(data_type, DecimalType) else None


def _decimal(value: Any, data_type: DecimalType, group: Group) -> decimal.Decimal | None:
    """A decimal with the column's scale; a lower bound with more digits is rounded down, an upper bound up."""
    rounding = decimal.ROUND_FLOOR if group == "minValues" else decimal.ROUND_CEILING
    context = decimal.Context(prec=data_type.precision, rounding=rounding)
    try:
        return decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-data_type.scale), context=context)
    except (decimal.DecimalException, ValueError, OverflowError):
        return None


def _temporal(text: str, name: str) -> Any:
    try:
        moment = parse_iso(text)
    except (DeltaLogError, OverflowError):
        return None
    if name == "date":
        return moment.date()
    if name == "timestamp":
        return moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)
    return moment.replace(tzinfo=None)
