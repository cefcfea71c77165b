"""Controls the size of a write's files: the rows per file, and the size of shuffled partitions.

Spark's Parquet writer can only limit the rows of a file, so sizes are approximate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

import deltalog
from spark_ext.session.defaults import bytes_of
from spark_ext.types import to_spark
from spark_ext.writing.write_options import WriteRequest

_PROPERTY = "delta.targetFileSize"
# The number of newest files from which the size of a row is estimated.
_SAMPLE = 1000
# With these settings, a rebalance yields partitions of a given size (of shuffled rows) instead of one partition per
# core.
_ADVISORY_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_PARALLELISM_FIRST = "spark.sql.adaptive.coalescePartitions.parallelismFirst"


def rows_per_file(request: WriteRequest, transaction: deltalog.Transaction) -> int | None:
    """The number of rows in a file of the target size, which the option ``targetFileSize`` or the table's property
    sets; None without a target.

    The size of a row is estimated from the table's newest files, or, for a new table, from the types of its columns.
    Raises CallError. Cost: with a target, two columns of ``Snapshot.files``.
    """
    target = request.options.get("targetFileSize")
    if target is None:
        text = transaction.metadata.configuration.get(_PROPERTY)
        target = None if text is None else bytes_of(_PROPERTY, text)
    if not target:
        return None
    return max(1, round(target / _row_bytes(transaction)))


def shuffle_settings(request: WriteRequest) -> Mapping[str, str]:
    """The session settings during a write with ``optimizeWrite``."""
    size = request.defaults.optimized_bytes
    return {_ADVISORY_SIZE: str(size), _PARALLELISM_FIRST: "false"}


def _row_bytes(transaction: deltalog.Transaction) -> float:
    snapshot = transaction.snapshot
    rows = size = 0
    if snapshot is not None:
        files = snapshot.files(["size", "stats"]).slice(max(0, snapshot.num_files - _SAMPLE))
        files = files.filter(pc.is_valid(files["stats"]))
        for stats, file_bytes in zip(files["stats"].to_pylist(), files["size"].to_pylist(), strict=True):
            counted = json.loads(stats).get("numRecords")
            if counted:
                rows, size = rows + counted, size + file_bytes
    return size / rows if rows else _type_bytes(to_spark(transaction.schema))


def _type_bytes(data_type: Any) -> int:
    """The size that Spark's optimizer assumes for a value of a type."""
    name = data_type.typeName()
    if name == "struct":
        return sum(_type_bytes(field.dataType) for field in data_type.fields) or 1
    if name == "array":
        return _type_bytes(data_type.elementType)
    if name == "map":
        return _type_bytes(data_type.keyType) + _type_bytes(data_type.valueType)
    return _BYTES.get(name, 8)


_BYTES = {
    "boolean": 1,
    "byte": 1,
    "short": 2,
    "integer": 4,
    "float": 4,
    "date": 4,
    "string": 20,
    "binary": 100,
    "variant": 100,
}
