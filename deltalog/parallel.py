"""Iterators that threads advance and that still yield the items in order, and lazy values that threads may compute
concurrently."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import concurrent.futures as futures
else:
    lazy_modules(__name__, futures="concurrent.futures")

T = TypeVar("T")
R = TypeVar("R")
B = TypeVar("B")

# Defaults for reading files: the number of files read concurrently, and of batches buffered per file.
THREADS, AHEAD = 4, 2


class Lazy(Generic[T]):
    """A property whose value is computed on first use and then cached. Threads that access the property at the same
    time may each compute the value.

    Before Python 3.12, functools.cached_property holds a lock shared by all objects of a class while it computes, so a
    table whose store hangs would block all other tables.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Lazy[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Lazy[T] | T:
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value


class _Source(Generic[T]):
    """An iterator, and the items read from it in advance. ``busy``: whether a thread is advancing the iterator.
    ``left``: whether the consumer has stopped reading."""

    def __init__(self, iterator: Iterator[T]) -> None:
        self.iterator = iterator
        self.ready: deque[T] = deque()
        self.busy = False
        self.left = False
        self.done = False
        self.error: BaseException | None = None


def in_order(sources: Iterable[Callable[[], Iterator[T]]], threads: int = THREADS, ahead: int = AHEAD) -> Iterator[T]:
    """The items of the first source, then the items of the second, and so on.

    Up to ``threads`` sources are open at once, and each is read at most ``ahead`` items ahead of the caller, so at most
    ``threads * ahead`` items are buffered. An error is raised after the items that precede it, and nothing after it is
    read. Threads never wait for the caller, and no thread runs after the iterator ends, fails or is
    dropped. A single source needs no thread; with 0 threads, the caller reads everything without reading ahead.
    At the end, ``sources`` is closed if it has a method ``close``.
    """
    waiting = iter(sources)
    try:
        first = list(itertools.islice(waiting, 2 if threads else 0))
        if len(first) > 1:
            yield from _Prefetcher[T](ahead).read(first, waiting, threads)
        else:
            for source in itertools.chain(first, waiting):
                yield from source()
    finally:
        _close(waiting)


def read_ahead(items: Iterator[T], ahead: int) -> Iterator[T]:
    """The items of an iterator, read by a thread up to ``ahead`` items ahead of the caller. Otherwise as
    ``in_order``."""
    return _Prefetcher[T](ahead).read([lambda: items], iter(()), threads=1)


def opened_ahead(
    items: Iterable[T],
    begin: Callable[[T], B],
    read: Callable[[T, B], Iterator[R]],
    openers: int,
    threads: int = THREADS,
    ahead: int = AHEAD,
) -> Iterator[R]:
    """Like ``in_order``, with ``read(item, begin(item))`` as the source for each item, where ``begin`` mostly waits for
    a store and ``read`` is CPU-bound.

    Up to ``openers`` separate threads call ``begin`` for the next items; if ``openers`` is 0, ``begin`` is called for
    an item when reading that item begins. At any time, ``begin`` has been called for at most ``openers`` items that are
    not being read yet.
    """
    if openers:
        return in_order(_Begun(items, begin, read, openers), threads, ahead)
    return in_order((partial(_begin_and_read, item, begin, read) for item in items), threads, ahead)


def _begin_and_read(item: T, begin: Callable[[T], B], read: Callable[[T, B], Iterator[R]]) -> Iterator[R]:
    yield from read(item, begin(item))


def mapped(items: Iterable[T], function: Callable[[T], R], threads: int, ahead: int) -> Iterator[R]:
    """The results of ``function`` for each item, in order. Other threads call ``function``; the caller's thread
    advances the iterator of the items.

    At most ``threads + ahead`` results are being computed or are buffered for the caller. An error is raised after the
    results that precede it. No thread is started for a single item, or if ``threads`` is 0.
    """
    waiting = iter(items)
    first = list(itertools.islice(waiting, 2 if threads else 0))
    if len(first) < 2:
        yield from map(function, itertools.chain(first, waiting))
        return
    pool = _Pool(threads, "deltalog-map")
    results: deque[futures.Future[R]] = deque()
    try:
        for item in itertools.chain(first, waiting):
            results.append(pool.submit(function, item))
            if len(results) >= threads + ahead:
                yield results.popleft().result()
        while results:
            yield results.popleft().result()
    finally:
        pool.close()


def both(first: Callable[[], T], second: Callable[[], R], side_by_side: bool) -> tuple[T, R]:
    """The results of two calls. With ``side_by_side``, a thread makes the second call concurrently; this call has ended
    when ``both`` returns. If both calls fail, the error of the first is raised."""
    if not side_by_side:
        return first(), second()
    with futures.ThreadPoolExecutor(1, thread_name_prefix="deltalog-both") as pool:
        later = pool.submit(second)
        return first(), later.result()


@contextlib.contextmanager
def meanwhile(function: Callable[[], T], side_by_side: bool) -> Iterator[Callable[[], T]]:
    """The result of a call. With ``side_by_side``, a thread makes the call while the ``with`` block runs; the block
    waits only when it asks for the result. The ``with`` block does not end before the thread has ended."""
    if not side_by_side:
        result = function()
        yield lambda: result
        return
    pool = _Pool(1, "deltalog-meanwhile")
    try:
        yield pool.submit(lambda _: function(), None).result
    finally:
        pool.close()


class _Pool:
    """A thread pool whose threads have all ended when ``close`` returns; submitted work that has not begun by then is
    dropped."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = futures.ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._workers: set[int] = set()

    def submit(self, function: Callable[[T], R], argument: T) -> futures.Future[R]:
        return self._pool.submit(self._run, function, argument)

    def _run(self, function: Callable[[T], R], argument: T) -> R:
        self._workers.add(threading.get_ident())
        return function(argument)

    def close(self) -> bool:
        """Close the pool. Returns whether all threads have ended. Threads may still be running if the garbage collector
        closes a dropped iterator in one of the pool's own threads, because a thread cannot wait for itself."""
        within = threading.get_ident() in self._workers
        self._pool.shutdown(wait=not within, cancel_futures=True)
        return not within


class _Begun(Generic[T, B, R]):
    """The sources of ``opened_ahead``. An error that ``begin`` raises for an item is raised when the results of this
    item are read, and no further call is begun."""

    def __init__(
        self, items: Iterable[T], begin: Callable[[T], B], read: Callable[[T, B], Iterator[R]], openers: int
    ) -> None:
        self._items = iter(items)
        self._begin = begin
        self._read = read
        self._openers = openers
        self._pool = _Pool(openers, "deltalog-open")
        self._waiting: deque[Callable[[], Iterator[R]]] = deque()
        self._is_stopped = False

    def __iter__(self) -> Iterator[Callable[[], Iterator[R]]]:
        return self

    def __next__(self) -> Callable[[], Iterator[R]]:
        while len(self._waiting) < self._openers and not self._is_stopped:
            try:
                item = next(self._items)
            except StopIteration:
                break
            except Exception as error:  # the error is raised after the items that precede it
                self._items = iter(())
                self._waiting.append(partial(_raise, error))
            else:
                self._waiting.append(partial(self._source, item, self._pool.submit(self._call, item)))
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()

    def _call(self, item: T) -> B:
        if self._is_stopped:
            raise futures.CancelledError
        try:
            return self._begin(item)
        except BaseException:
            self._is_stopped = True
            raise

    def _source(self, item: T, begun: futures.Future[B]) -> Iterator[R]:
        yield from self._read(item, begun.result())

    def close(self) -> None:
        self._is_stopped = True
        self._pool.close()


class _Prefetcher(Generic[T]):
    """Reads from sources before the caller needs the items; see ``in_order``."""

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead
        self._changed = threading.Condition()
        self._closed = False

    def read(
        self, first: list[Callable[[], Iterator[T]]], others: Iterator[Callable[[], Iterator[T]]], threads: int
    ) -> Iterator[T]:
        opened: deque[_Source[T]] = deque()
        waiting = itertools.chain(first, others)
        pool = _Pool(threads, "deltalog-read")
        try:
            while True:
                while len(opened) < threads and (make := next(waiting, None)) is not None:
                    opened.append(_Source(make()))
                    self._advance(opened[-1], pool)
                if not opened:
                    return
                yield from self._items(opened[0], pool)
                opened.popleft()
        finally:
            self._closed = True
            _close(others)  # ``others`` first, because threads of ``pool`` may wait for items of ``others``
            if pool.close():
                for source in opened:
                    source.left = True
                    self._end(source)

    def _items(self, source: _Source[T], pool: _Pool) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: source.ready or source.done)
                item = source.ready.popleft() if source.ready else None
                if item is None and source.error is None:
                    return
            if item is None:
                assert source.error is not None
                raise source.error
            self._advance(source, pool)
            yield item

    def _advance(self, source: _Source[T], pool: _Pool) -> None:
        with self._changed:
            if source.busy or source.done or len(source.ready) >= self._ahead:
                return
            source.busy = True
        pool.submit(self._fill, source)

    def _fill(self, source: _Source[T]) -> None:
        """Read items until enough items are buffered for the caller. Runs in a worker thread."""
        item, error = None, None
        while True:
            try:
                item = None if self._closed else next(source.iterator, None)
            except BaseException as raised:  # the error is re-raised in the caller's thread
                error = raised
            with self._changed:
                if item is None or error is not None:
                    source.done, source.error = True, error
                else:
                    source.ready.append(item)
                self._changed.notify_all()
                if source.done or self._closed or len(source.ready) >= self._ahead:
                    source.busy = False
                    break
        if source.left:
            self._end(source)

    def _end(self, source: _Source[T]) -> None:
        """Close a source, because the caller no longer reads it. If an interrupt occurs while a thread is being
        started, the pool has no record of that thread. If the thread is still reading the source, the thread closes the
        source itself."""
        with contextlib.suppress(ValueError):
            _close(source.iterator)


def _raise(error: Exception) -> Iterator[Any]:
    raise error
    yield


def _close(iterator: Iterator[T]) -> None:
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
