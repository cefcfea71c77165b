"""Compares stats_parsed with stats in checkpoints.

Spec: PROTOCOL.md#checkpoint-schema (stats, stats_parsed), #per-file-statistics.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from deltalog.doctor.file_entries import Rules
from deltalog.doctor.findings import Finding, found
from deltalog.lazy_arrow import pc
from deltalog.log.checkpoint.reader import LEAN
from deltalog.log.file_statistics import Leaf, column_name, leaves_of, statistics_of_files
from deltalog.parquet.footers import open_parquet
from deltalog.storage.base import LogStore

_PATH, _TEXT, _PARSED = "add.path", "add.stats", "add.stats_parsed"
# stats contains times in milliseconds; stats_parsed may contain microseconds.
_CLOSE_MICROS = 1000


def examine_parsed(store: LogStore, path: str, rules: Rules, version: int, where: str) -> Iterator[Finding]:
    """Report statistics that differ between stats and stats_parsed in the checkpoint file at ``path``.

    ``where``: the path of the finding. Raises the errors of reading the file. Cost: reading these columns. Memory: one
    batch.
    """
    if rules.schema is None:
        return
    data_columns = [column for column in rules.schema.fields if column.name not in rules.partitions]
    leaves = leaves_of(type(rules.schema)(tuple(data_columns)), "none")
    with (
        contextlib.closing(store.open_input(path)) as source,
        # In nanoseconds, the default, INT96 would wrap around outside the years 1677 to 2262.
        open_parquet(source, coerce_int96_timestamp_unit="us") as file,
    ):
        stored = {file.schema.column(index).path for index in range(len(file.schema))}
        if _TEXT not in stored or f"{_PARSED}.numRecords" not in stored:
            return
        columns = [_PATH, _TEXT, _PARSED]
        for batch in file.iter_batches(LEAN.rows, columns=columns, use_threads=False):
            add = pa.Table.from_batches([batch]).column("add").combine_chunks()
            for name, differing in _differences(add.filter(add.is_valid()), leaves):
                text = f"{name} in stats_parsed differs from stats: {differing}."
                yield found("checkpoint-stats-differ", text, version, where)


def _differences(add: Any, leaves: Sequence[Leaf]) -> Iterator[tuple[str, str]]:
    """The name of each statistic that differs between the two forms, with both values in the first file in which they
    differ."""
    parts = dict(zip((field.name for field in add.type), add.flatten(), strict=True))
    paths, texts, structs = parts["path"], parts["stats"], parts["stats_parsed"]
    both = pc.and_(texts.is_valid(), structs.is_valid())
    paths, texts, structs = (each.filter(both) for each in (paths, texts, structs))
    if not len(paths):
        return
    by_text = statistics_of_files(pa.table({"stats": pa.chunked_array([texts])}), leaves)
    by_struct = statistics_of_files(pa.table({"stats_parsed": pa.chunked_array([structs])}), leaves)
    names = {"numRecords": "numRecords"}
    for leaf in leaves:
        names.update({column_name(group, leaf): f"{group}.{'.'.join(leaf.path)}" for group in leaf.groups})
    for column, name in names.items():
        one, other = by_text.column(column), by_struct.column(column)
        at = pc.index(pc.fill_null(_is_other(one, other), False), True).as_py()
        if at >= 0:
            yield name, f"{other[at].as_py()!r} and {one[at].as_py()!r} for {paths[at].as_py()}"


def _is_other(one: Any, other: Any) -> Any:
    if pa.types.is_timestamp(one.type):
        micros = [each.cast(pa.timestamp("us", one.type.tz)).cast(pa.int64()) for each in (one, other)]
        return pc.greater(pc.abs(pc.subtract(*micros)), _CLOSE_MICROS)
    differs = pc.not_equal(one, other)
    if pa.types.is_floating(one.type):
        return pc.and_(differs, pc.or_(pc.is_finite(one), pc.is_finite(other)))
    return differs
