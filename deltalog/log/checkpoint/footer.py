"""Checks a checkpoint's Parquet file: the column types and the size before rows are read, and the ranges of the values
afterwards. Pure.

Spec: PROTOCOL.md#checkpoint-schema. Columns and fields that the protocol does not define are not checked. This module
never reads the metadata of a column chunk, because invalid metadata makes pyarrow crash the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from deltalog.lazy_arrow import pc
from deltalog.protocol import limits

Kind = Callable[[Any], bool]


def _is_text(kind: Any) -> bool:
    """Whether a type is text. Binary columns are accepted, because some writers omit the string annotation;
    ``check_file_rows`` checks that paths are UTF-8."""
    if pt.is_dictionary(kind):
        kind = kind.value_type
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind) or pt.is_large_binary(kind))


def _is_texts(kind: Any) -> bool:
    return bool((pt.is_list(kind) or pt.is_large_list(kind)) and _is_text(kind.value_type))


def _is_text_map(kind: Any) -> bool:
    return bool(pt.is_map(kind)) and _is_text(kind.key_type) and _is_text(kind.item_type)


_TEXT, _WHOLE, _TRUTH = (_is_text, "text"), (pt.is_integer, "an integer"), (pt.is_boolean, "a boolean")
_TEXTS, _MAP = (_is_texts, "a list of strings"), (_is_text_map, "a map from strings to strings")
_Shape = Mapping[str, "tuple[Kind, str] | _Shape"]

_VECTOR: _Shape = {
    "storageType": _TEXT, "pathOrInlineDv": _TEXT, "offset": _WHOLE, "sizeInBytes": _WHOLE, "cardinality": _WHOLE,
    "maxRowIndex": _WHOLE,
}  # fmt: skip
_FILE: _Shape = {
    "path": _TEXT, "partitionValues": _MAP, "size": _WHOLE, "dataChange": _TRUTH, "stats": _TEXT, "tags": _MAP,
    "deletionVector": _VECTOR, "baseRowId": _WHOLE, "defaultRowCommitVersion": _WHOLE,
}  # fmt: skip
_ACTIONS: _Shape = {
    "add": {**_FILE, "modificationTime": _WHOLE, "clusteringProvider": _TEXT},
    "remove": {**_FILE, "deletionTimestamp": _WHOLE, "extendedFileMetadata": _TRUTH},
    "metaData": {
        "id": _TEXT, "name": _TEXT, "description": _TEXT, "format": {"provider": _TEXT, "options": _MAP},
        "schemaString": _TEXT, "partitionColumns": _TEXTS, "configuration": _MAP, "createdTime": _WHOLE,
    },
    "protocol": {
        "minReaderVersion": _WHOLE, "minWriterVersion": _WHOLE, "readerFeatures": _TEXTS, "writerFeatures": _TEXTS
    },
    "txn": {"appId": _TEXT, "version": _WHOLE, "lastUpdated": _WHOLE},
    "domainMetadata": {"domain": _TEXT, "configuration": _TEXT, "removed": _TRUTH},
    "sidecar": {"path": _TEXT, "sizeInBytes": _WHOLE, "modificationTime": _WHOLE, "tags": _MAP},
    "checkpointMetadata": {"version": _WHOLE, "tags": _MAP},
}  # fmt: skip


def check_footer(schema: pa.Schema, rows: int, group_bytes: Iterable[int]) -> None:
    """Raise ValueError, naming the column, for a file that cannot be part of a checkpoint.

    ``rows``: the number of rows. ``group_bytes``: the decompressed size of each row group. Both are from the footer.
    """
    if not 0 <= rows <= limits.MAX_CHECKPOINT_ROWS:
        raise ValueError(f"its number of rows {limits.over('MAX_CHECKPOINT_ROWS', rows)}")
    sizes = list(group_bytes)
    if any(size < 0 for size in sizes):
        raise ValueError("its footer has a negative size")
    if sum(sizes) > limits.MAX_CHECKPOINT_BYTES:
        raise ValueError(f"its decompressed size in bytes {limits.over('MAX_CHECKPOINT_BYTES', sum(sizes))}")
    _check(list(schema), _ACTIONS, "")


def _check(fields: list[Any], shape: _Shape, where: str) -> None:
    times = Counter(field.name for field in fields)
    for field in fields:
        wanted = shape.get(field.name)
        if wanted is None or pt.is_null(field.type):
            continue
        name = f"{where}{field.name}"
        if times[field.name] > 1:
            raise ValueError(f"it has the column {name} {times[field.name]} times")
        if isinstance(wanted, tuple):
            fits, description = wanted
            if not fits(field.type):
                raise ValueError(f"its column {name} is {field.type}, not {description}")
        elif pt.is_struct(field.type):
            _check(list(field.type.fields), wanted, f"{name}.")
        else:
            raise ValueError(f"its column {name} is {field.type}, not a struct")


def check_file_rows(rows: pa.Table) -> None:
    """Raise ValueError for values that a valid commit cannot contain. ``rows``: columns of FILES or TOMBSTONES,
    including path.

    Checks that paths are UTF-8, because Arrow does not check text that it reads from a file.
    """
    rows.column("path").validate(full=True)
    names = rows.schema.names
    if "size" in names:
        _check_range(rows.column("size"), "size", 2**63 - 1)
        if "modification_time" in names and rows.column("size").null_count:
            raise ValueError("it adds a file without a size")
    vectors = rows.column("deletion_vector") if "deletion_vector" in names else pa.nulls(0)
    if vectors.null_count < len(vectors):
        _check_vectors(pa.table(vectors.drop_null().combine_chunks().flatten(), names=[f.name for f in vectors.type]))


def _check_vectors(vectors: pa.Table) -> None:
    for name in ("storage_type", "path_or_inline_dv", "size_in_bytes", "cardinality"):
        if vectors.column(name).null_count:
            raise ValueError(f"it has a deletion vector without {name}")
    vectors.column("path_or_inline_dv").validate(full=True)
    for name, largest in (("size_in_bytes", 2**31 - 1), ("offset", 2**31 - 1), ("cardinality", 2**63 - 1)):
        _check_range(vectors.column(name), f"deletionVector.{name}", largest)
    kinds = set(vectors.column("storage_type").cast(pa.binary()).unique().to_pylist())
    if not kinds <= {b"u", b"i", b"p"}:
        raise ValueError(f"it has deletion vectors with the storage types {sorted(kinds)}")


def _check_range(values: Any, name: str, largest: int) -> None:
    low, high = pc.min_max(values).as_py().values()
    if low is not None and not 0 <= low <= high <= largest:
        raise ValueError(f"its column {name} has values from {low} to {high}")
