"""Converts callers' input data to Arrow streams. A stream that has already been read is refused, because its rows would
be missing.

Arrow cannot distinguish an exhausted stream from an empty stream, so deltalog remembers which streams were read.
"""

from __future__ import annotations

import inspect
import json
import re
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from deltalog.arguments import shown
from deltalog.arrow_arrays import row_numbers
from deltalog.errors import CallError
from deltalog.lazy_arrow import pc

T = TypeVar("T")

# Iterators that do not support weak references, such as map and zip, can be recognised only while they are kept alive.
# Therefore references to the last few iterators of this kind are kept.
_MAX_STRONG = 8
_UNNAMED = re.compile(r"__index_level_[0-9]+__")  # the name of pandas' column for an unnamed index
_lock = threading.Lock()
_read: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_read_strong: deque[Any] = deque(maxlen=_MAX_STRONG)


def as_reader(data: Any) -> pa.RecordBatchReader:
    """A reader for a record batch or for data with the Arrow C stream interface, without the column of an unnamed
    pandas index. Raises CallError, also for a stream that was read before."""
    reader = _reader(data)
    return _with_pandas_columns(reader, type(data).__module__.partition(".")[0] == "pandas")


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        check_unread(data)
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return pa.RecordBatchReader.from_stream(data)
        except (pa.ArrowException, OSError, RuntimeError, TypeError, ValueError) as error:
            raise CallError(
                f"Data of type {type(data).__name__} cannot be read as an Arrow stream: {error}. If it was read "
                "before, create a new object for each call."
            ) from error
    raise CallError(
        f"Data of type {type(data).__name__} has no __arrow_c_stream__. Pass a pyarrow Table or RecordBatchReader, "
        "a polars or pandas (2.2+) DataFrame, or a duckdb relation; for rows, pyarrow.Table.from_pylist(rows)."
    )


def _with_pandas_columns(reader: pa.RecordBatchReader, is_frame: bool) -> pa.RecordBatchReader:
    """The stream without the column of an unnamed pandas index. ``is_frame``: whether the data is a data frame; a named
    index then becomes a column, even if pandas stores the index only as a range."""
    schema = reader.schema
    indexes = _indexes_of_pandas(schema)
    unnamed = {each for each in indexes if isinstance(each, str) and _UNNAMED.fullmatch(each)}
    ranges = [each for each in indexes if is_frame and isinstance(each, dict) and each.get("name") is not None]
    if not unnamed and not ranges:
        return reader
    kept = [index for index, field in enumerate(schema) if field.name not in unnamed]
    fields = [schema.field(index) for index in kept] + [pa.field(str(each["name"]), pa.int64()) for each in ranges]
    wanted = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        at = 0
        for batch in read_once(reader):
            rows = row_numbers(batch.num_rows)
            numbers = [pc.add(pc.multiply(pc.add(rows, at), int(each["step"])), int(each["start"])) for each in ranges]
            at += batch.num_rows
            yield pa.RecordBatch.from_arrays([*(batch.column(index) for index in kept), *numbers], schema=wanted)

    return pa.RecordBatchReader.from_batches(wanted, batches())


def _indexes_of_pandas(schema: pa.Schema) -> list[Any]:
    """The pandas index that the metadata of a schema describes: the names of the index columns, and range indexes,
    which are not stored as columns."""
    try:
        found = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, ValueError, TypeError):
        return []
    return found if isinstance(found, list) else []


def as_batches(data: Any) -> Iterator[pa.RecordBatch]:
    """The batches of ``data``, which has the Arrow C stream interface or is an iterable of record batches. Raises
    CallError, also for a stream that was read before."""
    if hasattr(data, "__arrow_c_stream__"):
        return read_once(as_reader(data))
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise CallError(f"Rows must be an iterable of Arrow record batches, not {shown(data)}.")
    return map(_batch, read_once(data))


def _batch(batch: Any) -> pa.RecordBatch:
    if not isinstance(batch, pa.RecordBatch):
        raise CallError(f"Rows must be an iterable of Arrow record batches, but one item is {shown(batch)}.")
    return batch


def is_in_memory(data: Any) -> bool:
    """Whether the data can be read without running the caller's code: true for tables and lists, false for streams and
    generators."""
    package = type(data).__module__.partition(".")[0]
    return isinstance(data, (pa.Table, pa.RecordBatch, list, tuple, bytes)) or package in ("pandas", "polars")


def check_unread(data: object) -> None:
    """Raise CallError for an Arrow stream or an iterator that was read before."""
    with _lock:
        if _was_read(data):
            raise _read_before(data)


def read_once(data: Iterable[T], *, is_callers: bool = False) -> Iterator[T]:
    """An iterator over ``data`` from its beginning. ``is_callers``: whether the data comes from a caller; if so,
    iterators that do not support weak references are remembered too. Raises CallError as ``check_unread``."""
    iterator = iter(data)
    if iterator is data or isinstance(data, pa.RecordBatchReader):
        with _lock:
            if _was_read(data):
                raise _read_before(data)
            try:
                _read[id(data)] = data
            except TypeError:
                if is_callers:
                    _read_strong.append(data)
    return iterator


def _was_read(data: object) -> bool:
    if inspect.isgenerator(data) and inspect.getgeneratorstate(data) == inspect.GEN_CLOSED:
        return True
    return _read.get(id(data)) is data or any(each is data for each in _read_strong)


def _read_before(data: object) -> CallError:
    return CallError(
        f"This {type(data).__name__} was read before and can be read only once, so its rows would be missing. Nothing "
        "was committed. Pass a table, a data frame or a list, or create a new stream for each call (with retrying(), "
        "inside the repeated function)."
    )
