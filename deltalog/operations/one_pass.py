"""Data that can be read only once: passing it a second time is an error, not a write without its rows.

Arrow cannot distinguish a stream that is at its end from one without rows, so streams that were read are remembered.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from deltalog.errors import CallError

T = TypeVar("T")

# Iterators that cannot be referred to weakly, as of map or zip: the last few are kept.
_FEW = 8
_lock = threading.Lock()
_begun: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_kept: deque[Any] = deque(maxlen=_FEW)


def check_unread(data: object) -> None:
    """Raises CallError for a stream of Arrow, or an iterator, that was read here before."""
    with _lock:
        if _was_read(data):
            raise _read_before(data)


def read_once(data: Iterable[T], *, is_callers: bool = False) -> Iterator[T]:
    """What is in ``data``, from its beginning. ``is_callers``: it comes from outside, so iterators that cannot be
    referred to weakly are remembered too. Raises CallError as ``check_unread``."""
    iterator = iter(data)
    if iterator is data or isinstance(data, pa.RecordBatchReader):
        with _lock:
            if _was_read(data):
                raise _read_before(data)
            try:
                _begun[id(data)] = data
            except TypeError:
                if is_callers:
                    _kept.append(data)
    return iterator


def _was_read(data: object) -> bool:
    if inspect.isgenerator(data) and inspect.getgeneratorstate(data) == inspect.GEN_CLOSED:
        return True  # by whomever
    return _begun.get(id(data)) is data or any(each is data for each in _kept)


def _read_before(data: object) -> CallError:
    return CallError(
        f"This {type(data).__name__} was read before and can be read only once, so its rows would be missing. Nothing "
        "was committed. Pass a table, a data frame or a list; or make a new one for each call (in retrying(): inside "
        "of the function that is repeated)."
    )
