"""Decides for which files Spark's partition discovery finds the same partition values as the log and can therefore be
used for pruning. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set

from pyspark.sql import types as spark_types

from spark_ext.reading.file_entries import Entry
from spark_ext.reading.file_schema import Layout
from spark_ext.session import paths

# For more directory trees than this, planning one scan with a join is cheaper than planning a union of scans.
_MAX_TREES = 8
# For each type, a regular expression for those partition values in directory names that have the same meaning for Spark
# and in the log.
_VALUES = {
    "string": re.compile(r".+", re.DOTALL),
    "byte": re.compile(r"-?\d{1,3}"),
    "short": re.compile(r"-?\d{1,5}"),
    "integer": re.compile(r"-?\d{1,10}"),
    "long": re.compile(r"-?\d{1,19}"),
    "boolean": re.compile(r"true|false"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
}
# Types whose values in directory names Spark parses in the session time zone, or cannot parse. They are read as text.
_AS_TEXT = frozenset(["timestamp", "timestamp_ntz", "float", "double"])

Tree = tuple[str, tuple[str, ...]]  # the parent directory, and the directory keys that are not columns of the table


def discovered(layout: Layout) -> list[spark_types.StructField]:
    """The fields of ``partition_fields`` with the types in which they are read from directory names; some are read as
    strings."""
    fields = layout.partition_fields
    text = spark_types.StringType()
    return [spark_types.StructField(f.name, text) if f.dataType.typeName() in _AS_TEXT else f for f in fields]


def trees(layout: Layout, entries: Sequence[Entry]) -> tuple[dict[Tree, list[Entry]], list[Entry]]:
    """Returns the entries grouped by directory tree, for at most _MAX_TREES trees, and the other entries. Apart from
    entries of further trees, the other entries are those whose path has another layout, contradicts the log, or
    contains a value that Spark parses differently.
    """
    columns = discovered(layout)
    patterns = [_pattern(field.dataType) for field in columns]
    if not columns or None in patterns:
        return {}, list(entries)
    taken = {layout.physical_name(field).lower() for field in layout.schema.fields}
    found: dict[Tree | None, list[Entry]] = {None: []}
    known: dict[tuple[str, int], list[Entry]] = {}  # keyed by the directory and the ``id()`` of the partition values
    for entry in entries:
        key = (entry.path.rpartition("/")[0], id(entry.values))
        its = known.get(key)
        if its is None:
            tree = _tree(key[0], [(c.name, entry.values.get(c.name)) for c in columns], patterns, taken)
            its = known[key] = found.setdefault(tree, [])
        its.append(entry)
    others = found.pop(None)
    by_size = sorted(found.items(), key=lambda item: (-len(item[1]), item[0] or ()))
    for _, each in by_size[_MAX_TREES:]:
        others += each
    return {tree: each for tree, each in by_size[:_MAX_TREES] if tree is not None}, others


def _tree(
    directory: str,
    values: Sequence[tuple[str, str | None]],
    patterns: Sequence[re.Pattern[str] | None],
    taken: Set[str],
) -> Tree | None:
    """The directory tree that contains a directory, if the last segments of the directory's path spell these partition
    values; None otherwise."""
    parents = directory.split("/")
    own, above = parents[len(parents) - len(values) :], parents[: len(parents) - len(values)]
    if len(own) != len(values) or not all(
        pattern is not None and _matches(segment, *value, pattern)
        for segment, value, pattern in zip(own, values, patterns, strict=True)
    ):
        return None
    keys: list[str] = []
    while above and re.fullmatch(r"[^=]+=.+", above[-1]):
        keys.insert(0, above.pop().split("=", 1)[0])
    folded = [key.lower() for key in keys]
    if not above or len(set(folded)) != len(folded) or taken & set(folded):
        return None
    return "/".join(above) or "/", tuple(keys)


def _pattern(data_type: spark_types.DataType) -> re.Pattern[str] | None:
    if isinstance(data_type, spark_types.DecimalType):
        # Spark drops the decimal point, so it parses a value correctly only if the value is written with the full
        # scale.
        whole, scale = max(data_type.precision - data_type.scale, 1), data_type.scale
        return re.compile(rf"-?\d{{1,{whole}}}" + (rf"\.\d{{{scale}}}" if scale else ""))
    return _VALUES.get(data_type.typeName())


def _matches(segment: str, name: str, value: str | None, pattern: re.Pattern[str]) -> bool:
    key, separator, text = segment.partition("=")
    if not separator or key != name:
        return False
    if text == paths.HIVE_NULL:
        return value is None
    return value is not None and paths.hive_unescape(text) == value and pattern.fullmatch(value) is not None


def read_options(tree: Tree) -> Mapping[str, str]:
    return {"basePath": paths.uri(tree[0])}
