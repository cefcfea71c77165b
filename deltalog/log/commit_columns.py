"""Decodes the adds and removes of many commits as Arrow columns, and their other actions in one call.

Columnar decoding is used only if its result is certain to be the same: every add and remove action is on a line of its
own, has only known fields and all required fields, and repeats no field.

Spec: PROTOCOL.md#add-file-and-remove-file.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from deltalog.arrow_arrays import STRINGS_MAP, combined, empty, int64s, nulls, strings, strings_map
from deltalog.lazy_arrow import pc, pj
from deltalog.log.file_tables import DELETION_VECTOR, FILES, TOMBSTONES, camel
from deltalog.log.replay import Commits, FileActions
from deltalog.protocol.codec import decode_small_actions, partition_names

_ADD, _REMOVE = b'{"add":{"path":"', b'{"remove":{"path":"'
_FILES, _NEXT_ADD = (_ADD, _REMOVE), b"\n" + _ADD
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int64(),
        "sizeInBytes": pa.int64(),
        "cardinality": pa.int64(),
        "maxRowIndex": pa.int64(),
    }
)
_STORAGE_TYPES = strings(["u", "i", "p"])
_LARGEST_INT = int64s([2**31 - 1])[0]
# The columns that Arrow parses in addition to partition values, and the required fields of each action.
_ADDS = {
    "path": pa.string(),
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "deletionVector": _VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
    "clusteringProvider": pa.string(),
}
_REMOVES = {
    "path": pa.string(),
    "deletionTimestamp": pa.int64(),
    "dataChange": pa.bool_(),
    "extendedFileMetadata": pa.bool_(),
    "size": pa.int64(),
    "stats": pa.string(),
    "deletionVector": _VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}
_CAMEL = {name: camel(name) for name in (*FILES.names, *TOMBSTONES.names)}
_REQUIRED_OF_ADDS = ("path", "partitionValues", "size", "modificationTime", "dataChange")
_REQUIRED_OF_REMOVES = ("path", "dataChange")


def as_columns(block: Sequence[tuple[int, bytes]]) -> Commits:
    """Raises pyarrow.ArrowException, ValueError or InvalidCommitError if a commit must be decoded as actions."""
    heads: list[tuple[int, list[bytes]]] = []
    texts: list[bytes] = []
    has_removes = False
    file_first: list[int] = []
    for at, (version, data) in enumerate(block):
        head, removes, adds = _split(data)
        for line in head:
            if line[:1] != b"{" or line[-1:] != b"}":
                raise ValueError("an action that may be on several lines")
        heads.append((version, head))
        # Process removes first, so that if a commit both removes and adds a file, the add is kept.
        texts += removes
        texts += adds
        has_removes |= bool(removes)
        if data.lstrip(b"\n").startswith(_FILES):
            file_first.append(at)
    commits = decode_small_actions(heads)
    for at in file_first:
        commits[at] = msgspec.structs.replace(commits[at], commit_info_first=False)
    if not texts:
        return Commits(commits)
    sample = next((text for text in texts if text.startswith(_ADD)), texts[0])
    names = partition_names(sample.partition(b"\n")[0])
    run = _file_actions(b"\n".join((*texts, b"")), names, has_removes)
    return Commits(commits, [FileActions(block[0][0], block[-1][0], *run)])


def _split(data: bytes) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The lines of a commit in three lists: other actions, remove actions and add actions. A single element of these
    lists can contain several consecutive lines."""
    first, rest = data.find(b"\n"), data[:0]
    if data.startswith(_ADD, first + 1) and not data.startswith(_FILES):
        rest = data[first + 1 : -1] if data.endswith(b"\n") else data[first + 1 :]
        if rest.count(_NEXT_ADD) == rest.count(b"\n"):
            return [data[:first]], [], [rest]
    head, removes, adds = [], [], []
    for line in data.split(b"\n"):
        if line.startswith(_ADD):
            adds.append(line)
        elif line.startswith(_REMOVE):
            removes.append(line)
        elif line:
            head.append(line)
    return head, removes, adds


def _file_actions(
    lines: bytes, partition_columns: Sequence[str], has_removes: bool
) -> tuple[pa.Table, pa.Table, list[bool]]:
    """Decode lines of adds and removes as rows of FILES and of TOMBSTONES; the third result says of each line whether
    it is an add.

    Raises pyarrow.ArrowException or ValueError for lines that must be decoded as actions.
    """
    values = pa.struct([pa.field(name, pa.string()) for name in partition_columns])
    # Parsing each additional column costs time on every line.
    kinds = (("add", _ADDS), ("remove", _REMOVES))[: 2 if has_removes else 1]
    schema = pa.schema({key: pa.struct({**fields, "partitionValues": values}) for key, fields in kinds})
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    read = pj.ReadOptions(block_size=len(lines) + 1, use_threads=False)
    parsed = pj.read_json(pa.BufferReader(lines), read, options)
    found = [combined(parsed.column(key)) for key, _ in kinds]
    adds, count = found[0], lines.count(b"\n")
    if not len(adds) == count == sum(len(each) - each.null_count for each in found):
        raise ValueError("a line with two actions")
    files = _table(adds, FILES, _REQUIRED_OF_ADDS, partition_columns)
    if not has_removes:
        return files, empty(TOMBSTONES), [True] * count
    tombstones = _table(found[1], TOMBSTONES, _REQUIRED_OF_REMOVES, partition_columns)
    return files, tombstones, adds.is_valid().to_pylist()


def _table(actions: pa.StructArray, schema: pa.Schema, required: Sequence[str], names: Sequence[str]) -> pa.Table:
    """The non-null actions as a table with the ``schema``. Raises ValueError, pyarrow.ArrowInvalid."""
    if actions.null_count:
        actions = actions.drop_null()
    column = {field.name: actions.field(index) for index, field in enumerate(actions.type.fields)}
    if any(column[name].null_count for name in required):
        raise ValueError("a required field is missing")
    if "modificationTime" in required and not _is_within(column["size"], None):
        raise ValueError("a negative size")
    actions.validate(full=True)  # checks that text is UTF-8
    column["partitionValues"] = _map(column["partitionValues"], names)
    column["deletionVector"] = _vectors(column["deletionVector"])
    columns = [
        column[name] if (name := _CAMEL[field.name]) in column else nulls(len(actions), field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _is_within(values: Any, largest: pa.Scalar | None) -> bool:
    """Whether all non-null values are between 0 and ``largest``."""
    extremes = pc.min_max(values)
    if not extremes["min"].is_valid:
        return True
    return bool(extremes["min"].as_py() >= 0 and (largest is None or extremes["max"].as_py() <= largest.as_py()))


def _vectors(vectors: pa.StructArray) -> Any:
    """Deletion vector descriptors. Raises ValueError for a descriptor that is not valid in an action."""
    if vectors.null_count == len(vectors):
        return nulls(len(vectors), DELETION_VECTOR)
    present = vectors.drop_null()
    column = {field.name: present.field(index) for index, field in enumerate(_VECTOR.fields)}
    required = ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")
    if (
        any(column[name].null_count for name in required)
        or not pc.all(pc.is_in(column["storageType"], value_set=_STORAGE_TYPES)).as_py()
        or not (_is_within(column["offset"], _LARGEST_INT) and _is_within(column["sizeInBytes"], _LARGEST_INT))
        or not _is_within(column["cardinality"], None)
    ):
        raise ValueError("a deletion vector that is not valid")
    children = [vectors.field(index) for index in range(len(DELETION_VECTOR))]
    return pa.StructArray.from_arrays(children, fields=list(DELETION_VECTOR.fields), mask=pc.invert(vectors.is_valid()))


def _map(values: pa.StructArray, names: Sequence[str]) -> Any:
    """A struct of strings, converted to a map from field name to string."""
    rows, width = len(values), len(names)
    if values.null_count == rows:
        return nulls(rows, STRINGS_MAP)
    if width == 0:
        return strings_map([{} if valid else None for valid in values.is_valid().to_pylist()])
    if width == 1:
        keys, items = pa.repeat(strings(names)[0], rows), values.field(0)
    else:
        by_row = int64s([name * rows + row for row in range(rows) for name in range(width)])
        items = pa.concat_arrays([values.field(index) for index in range(width)]).take(by_row)
        keys = strings(names).take(int64s(list(range(width)) * rows))
    entries = pa.StructArray.from_arrays([keys, items], fields=[STRINGS_MAP.key_field, STRINGS_MAP.item_field])
    ends = array("i", range(0, rows * width + 1, width))
    validity = values.is_valid().buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(STRINGS_MAP, rows, [validity, pa.py_buffer(ends)], children=[entries])
