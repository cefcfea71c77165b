"""The input data of callers as Arrow streams. A stream that was already read is refused: its rows would be missing.

Arrow cannot distinguish an exhausted stream from an empty one, so streams that were read are remembered.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from deltalog.arguments import shown
from deltalog.errors import CallError

T = TypeVar("T")

# Iterators without weak references, such as map and zip, are kept alive to be recognised: this number of the latest.
_MAX_STRONG = 8
_lock = threading.Lock()
_read: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_read_strong: deque[Any] = deque(maxlen=_MAX_STRONG)


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Data with the Arrow C stream interface, or a record batch, as a reader. Raises CallError, also for a stream that
    was read before."""
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
                "before, create a new one for each call."
            ) from error
    raise CallError(
        f"Data of type {type(data).__name__} has no __arrow_c_stream__. Pass a pyarrow Table or RecordBatchReader, "
        "a polars or pandas (2.2+) DataFrame, or a duckdb relation; for rows, pyarrow.Table.from_pylist(rows)."
    )


def as_batches(data: Any) -> Iterator[pa.RecordBatch]:
    """Data with the Arrow C stream interface, or an iterable of record batches, as batches. Raises CallError, also for
    a stream that was read before."""
    if hasattr(data, "__arrow_c_stream__"):
        return read_once(as_reader(data))
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise CallError(f"Rows are an iterable of Arrow record batches; got {shown(data)}.")
    return map(_batch, read_once(data))


def _batch(batch: Any) -> pa.RecordBatch:
    if not isinstance(batch, pa.RecordBatch):
        raise CallError(f"Rows are an iterable of Arrow record batches; one item is {shown(batch)}.")
    return batch


def check_unread(data: object) -> None:
    """Raise CallError for an Arrow stream, or an iterator, that was read here before."""
    with _lock:
        if _was_read(data):
            raise _read_before(data)


def read_once(data: Iterable[T], *, is_callers: bool = False) -> Iterator[T]:
    """An iterator over ``data`` from its beginning. ``is_callers``: a caller made it, so iterators without weak
    references are remembered too. Raises CallError as ``check_unread``."""
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
        "was committed. Pass a table, a data frame or a list; or create a new one for each call (in retrying(): inside "
        "the function that is repeated)."
    )
