"""Decodes commits. Runs of commits that only add files are decoded as Arrow columns, which takes a fraction of the
time of decoding action by action.

Columns are used only where they must give the same result as actions: every line after ``commitInfo`` is an add, with
known fields only, none of them repeated, no required one missing. All other commits are decoded as actions, which
refuses invalid ones.

Spec: PROTOCOL.md#add-file-and-remove-file.
"""

from __future__ import annotations

import contextlib
import gc
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from deltalog.arrow_arrays import STRINGS_MAP, combined, int64s, strings, strings_map
from deltalog.log.file_tables import DELETION_VECTOR, FILES
from deltalog.log.replay import AddedFiles, Commits
from deltalog.parallel import in_order
from deltalog.protocol.codec import decode_commit

# Shorter runs gain nothing; blocks bound the memory of longer ones.
_MIN_BYTES, _BLOCK_BYTES = 1 << 20, 8 << 20
_FIRST, _ADD = b'{"commitInfo":', b'\n{"add":{"path":"'
_REQUIRED = {"path": pa.string(), "size": pa.int64(), "modificationTime": pa.int64(), "dataChange": pa.bool_()}
_OPTIONAL = {
    "stats": pa.string(),
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
    "clusteringProvider": pa.string(),
}


@contextlib.contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Disables the garbage collector while very many objects without cycles are created: traversing them takes longer
    than creating them. Threads may nest it; a collector that the caller disabled stays disabled."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def decode_commits(versions: Sequence[int], data: Sequence[bytes]) -> Commits:
    """The commits ``versions`` (ascending) from the bytes of their files. Raises InvalidCommitError."""
    commits = Commits()
    for plain, run in groupby(zip(versions, data, strict=True), key=lambda each: _is_plain(each[1])):
        files = list(run)
        if plain and sum(len(each) for _, each in files) >= _MIN_BYTES:
            for block in in_order(partial(_decode_block, block) for block in _blocks(files)):
                commits += block
        else:
            with garbage_collection_paused():
                commits += Commits([decode_commit(each, version) for version, each in files])
    return commits


def _is_plain(data: bytes) -> bool:
    """Whether a commit consists of a commitInfo and then adds only, one per line."""
    first = data.find(b"\n")
    if first < 0 or len(data) > _BLOCK_BYTES or not data.startswith(_FIRST):
        return False
    lines = data.count(b"\n", first) - data.endswith(b"\n")
    return lines > 0 and data.count(_ADD, first) == lines


def _blocks(files: Sequence[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    block: list[tuple[int, bytes]] = []
    size = 0
    for version, data in files:
        if block and size + len(data) > _BLOCK_BYTES:
            yield block
            block, size = [], 0
        block.append((version, data))
        size += len(data)
    yield block


def _decode_block(block: Sequence[tuple[int, bytes]]) -> Iterator[Commits]:
    heads, lines = [], []
    for version, data in block:
        first = data.find(b"\n") + 1
        heads.append(decode_commit(data[:first], version))
        lines.append(data[first:] if data.endswith(b"\n") else data[first:] + b"\n")
    try:
        files = _files(b"".join(lines), sample=_partition_names(block[0]))
    except (pa.ArrowException, ValueError):
        yield Commits([decode_commit(data, version) for version, data in block])
    else:
        yield Commits(heads, [AddedFiles(block[0][0], files)])


def _partition_names(commit: tuple[int, bytes]) -> list[str]:
    version, data = commit
    first = data.find(b"\n") + 1
    end = data.find(b"\n", first)
    return list(decode_commit(data[first : end if end > 0 else None], version).adds[0].partition_values)


def _files(lines: bytes, sample: Sequence[str]) -> pa.Table:
    """Lines of adds as rows of FILES. ``sample``: the partition columns of the first add.

    Raises pyarrow.ArrowInvalid or ValueError for lines that must be decoded as actions.
    """
    values = pa.struct([pa.field(name, pa.string()) for name in sample])
    add = pa.struct({**_REQUIRED, "partitionValues": values, **_OPTIONAL})
    options = pj.ParseOptions(explicit_schema=pa.schema({"add": add}), unexpected_field_behavior="error")
    read = pj.ReadOptions(block_size=len(lines) + 1, use_threads=False)
    parsed = pj.read_json(pa.BufferReader(lines), read, options)
    adds = combined(parsed.column("add"))
    if len(adds) != lines.count(b"\n"):
        raise ValueError("a line with two actions")
    column = {field.name: adds.field(index) for index, field in enumerate(add.fields)}
    if adds.null_count or any(column[name].null_count for name in (*_REQUIRED, "partitionValues")):
        raise ValueError("a required field is missing")
    if pc.min(column["size"]).as_py() < 0:
        raise ValueError("a negative size")
    adds.validate(full=True)  # that text is UTF-8
    rows = len(adds)
    columns = [
        column["path"],
        _map(column["partitionValues"], sample),
        column["size"],
        column["modificationTime"],
        column["stats"],
        pa.nulls(rows, STRINGS_MAP),
        pa.nulls(rows, DELETION_VECTOR),
        column["baseRowId"],
        column["defaultRowCommitVersion"],
        column["clusteringProvider"],
    ]
    return pa.Table.from_arrays(columns, schema=FILES)


def _map(values: pa.StructArray, names: Sequence[str]) -> pa.MapArray:
    """A struct of texts as a map from its field names."""
    rows, width = len(values), len(names)
    if width == 0:
        return strings_map([{}] * rows)
    if width == 1:
        return _entries(pa.repeat(strings(names)[0], rows), values.field(0), width)
    by_row = int64s([name * rows + row for row in range(rows) for name in range(width)])
    items = pa.concat_arrays([values.field(index) for index in range(width)]).take(by_row)
    keys = strings(names).take(int64s(list(range(width)) * rows))
    return _entries(keys, items, width)


def _entries(keys: Any, items: Any, width: int) -> pa.MapArray:
    """A map of ``width`` entries in every row."""
    rows = len(keys) // width
    entries = pa.StructArray.from_arrays([keys, items], fields=[STRINGS_MAP.key_field, STRINGS_MAP.item_field])
    ends = array("i", range(0, rows * width + 1, width))
    return pa.Array.from_buffers(STRINGS_MAP, rows, [None, pa.py_buffer(ends)], children=[entries])
