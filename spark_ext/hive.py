"""Decides where Spark's partition discovery, which can prune, yields the partition values of the log. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from pyspark.sql import types as spark_types

from spark_ext import paths
from spark_ext.entries import Entry
from spark_ext.stored import Layout

# Above this number of directory trees one scan with a join is cheaper to plan than a union of scans.
_MAX_TREES = 8
# Spellings of a value in a directory name that Spark parses to the value in the log.
_VALUES = {
    "string": re.compile(r".+", re.DOTALL),
    "byte": re.compile(r"-?\d{1,3}"),
    "short": re.compile(r"-?\d{1,5}"),
    "integer": re.compile(r"-?\d{1,10}"),
    "long": re.compile(r"-?\d{1,19}"),
    "boolean": re.compile(r"true|false"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
}

Tree = tuple[str, tuple[str, ...]]  # the parent directory, and directory keys that are not columns


def trees(layout: Layout, entries: Sequence[Entry]) -> dict[Tree, list[Entry]] | None:
    """The entries by directory tree.

    None when a path disagrees with the log, has another layout, or has values of a type that Spark parses differently
    (timestamps: by the session time zone; floats).
    """
    columns = layout.partition_fields
    patterns = [_pattern(field.dataType) for field in columns]
    if not columns or None in patterns:
        return None
    taken = {layout.physical_name(field).lower() for field in layout.schema.fields}
    found: dict[Tree, list[Entry]] = {}
    for entry in entries:
        parents = os.path.dirname(entry.path).split("/")
        own = parents[len(parents) - len(columns) :]
        if len(own) != len(columns) or not all(
            pattern is not None and _matches(segment, field.name, entry.values.get(field.name), pattern)
            for segment, field, pattern in zip(own, columns, patterns, strict=True)
        ):
            return None
        above = parents[: len(parents) - len(columns)]
        keys: list[str] = []
        while above and re.fullmatch(r"[^=]+=.+", above[-1]):
            keys.insert(0, above.pop().split("=", 1)[0])
        folded = [key.lower() for key in keys]
        if not above or len(set(folded)) != len(folded) or taken & set(folded):
            return None
        found.setdefault(("/".join(above) or "/", tuple(keys)), []).append(entry)
        if len(found) > _MAX_TREES:
            return None
    return found


def _pattern(data_type: spark_types.DataType) -> re.Pattern[str] | None:
    if isinstance(data_type, spark_types.DecimalType):
        # Spark drops the decimal point: only a value written with the full scale is parsed correctly.
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
