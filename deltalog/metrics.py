"""Reports what deltalog does: commits, calls to stores and catalogs, and upkeep.

``listen`` adds a listener, which is called with an event after each commit, call or run of upkeep, in the thread that
did the work. While there is no listener, an event costs one comparison. ``Counters`` is a listener that counts::

    counters = Counters()
    with listening(counters):
        table.append(rows)
    counters.totals()  # {"commits": 1, "attempts": 1, "store_calls": 9, …}

A listener must not block. If it raises, the error is logged once, and the work continues.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import logging
else:
    lazy_modules(__name__, "logging")

__all__ = [
    "CatalogCall",
    "Commit",
    "Counters",
    "Event",
    "Listener",
    "StoreCall",
    "TransactionCommit",
    "Upkeep",
    "listen",
    "listening",
]


@dataclass(frozen=True, slots=True)
class StoreCall:
    """A call of a store: an object store or a disk. ``store``: the URL of the table. ``method``: the method of
    ``LogStore``. ``objects``: the number of objects that the call names; one call may send several requests. ``error``:
    the name of the error's class; None if the call succeeded. All reads of a data file are reported as one call of
    ``open_input``. ``seconds`` excludes the time that the caller spends between the items of a listing, or on writing
    the content of a file.
    """

    store: str
    method: str
    objects: int
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CatalogCall:
    """A call of a coordinator. ``method``: the method of ``Coordinator``. ``arguments``: its positional arguments.
    ``result``: what it returned. Listeners must not change these."""

    catalog: str
    method: str
    seconds: float
    error: str | None = None
    arguments: tuple[Any, ...] = ()
    result: Any = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a commit to one table. ``outcome``: ``committed``, ``conflict`` (with a commit of another writer),
    ``unknown`` (the store did not answer) or ``failed``. ``version``: the committed version, or the last one that was
    attempted. ``attempts``: the number of versions that were attempted. ``rebased``: the number of other writers'
    commits on which the transaction was rebased. ``resent``: the number of requests that were repeated because their
    outcome was unknown. ``seconds``: the time from the first attempt to the end, including the waits between attempts.
    """

    table: str
    outcome: str
    version: int | None
    attempts: int
    rebased: int
    resent: int
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionCommit:
    """The end of the commit of a transaction over several tables. ``versions``: the last committed version of each
    table, by the id of the table. The other fields are as in ``Commit``.
    """

    transaction_id: str
    outcome: str
    versions: Mapping[str, int]
    attempts: int
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Background work, which no caller requested. ``kind``: ``recovery`` (one run of ``TransactionManager.recover``),
    ``publication`` (of ratified commits), ``deletion`` (of the files of dropped tables or aborted transactions, and of
    staged commits that lost). ``subject``: the table or catalog. ``done``: the number of objects by what was done with
    them.
    """

    kind: str
    subject: str
    done: Mapping[str, int]
    seconds: float
    error: str | None = None


Event: TypeAlias = "StoreCall | CatalogCall | Commit | TransactionCommit | Upkeep"
Listener: TypeAlias = Callable[["Event"], object]
F = TypeVar("F", bound=Callable[..., Any])

_listeners: tuple[Listener, ...] = ()
_failed: set[int] = set()
_lock = threading.Lock()
_here = threading.local()


def listen(listener: Listener) -> Callable[[], None]:
    """Call ``listener`` with every event of this process from now on. Returns a function that removes the listener;
    calling it again has no effect.
    """
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)

    def end() -> None:
        global _listeners
        with _lock:
            _listeners = tuple(each for each in _listeners if each is not listener)
            _failed.discard(id(listener))

    return end


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with every event of this process during the ``with`` block."""
    end = listen(listener)
    try:
        yield
    finally:
        end()


def has_listeners() -> bool:
    """Whether there are listeners. Callers check this before they build an event."""
    return bool(_listeners)


def report(event: Event) -> None:
    """Call all listeners. Raises nothing."""
    for listener in _listeners:
        try:
            listener(event)
        except Exception:
            if id(listener) not in _failed:
                _failed.add(id(listener))
                logging.getLogger(__name__).exception("a listener failed; its further errors are not logged")


@contextlib.contextmanager
def upkeep(kind: str, subject: str) -> Iterator[dict[str, int]]:
    """Report an ``Upkeep`` at the end of the ``with`` block. The block gets a dictionary, to which it adds what it did.
    A block that succeeded and did nothing is not reported, unless its kind is ``recovery``.
    """
    done: dict[str, int] = {}
    if not _listeners:
        yield done
        return
    error, begun_s = None, time.perf_counter()
    try:
        yield done
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        if error is not None or kind == "recovery" or any(done.values()):
            seconds = time.perf_counter() - begun_s
            found = {name: number for name, number in done.items() if number}
            report(Upkeep(kind, subject, found, seconds, error))


class Counters:
    """Counts events. Thread-safe. Call it, or pass it to ``listen``."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._by_method: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, StoreCall):
                self._call("store", event.method, event.seconds, event.error)
            elif isinstance(event, CatalogCall):
                self._call("catalog", event.method, event.seconds, event.error)
            elif isinstance(event, Upkeep):
                self._add(f"{event.kind}_runs", 1)
                self._add(f"{event.kind}_errors", event.error is not None)
            else:
                self._end(event)

    def totals(self) -> dict[str, float]:
        """The counts, by name: ``commits``, ``conflicts``, ``unknown_outcomes`` and ``failed_commits`` (each
        transaction is counted in one of these), ``attempts``, ``retries`` (attempts after the first), ``rebases``,
        ``resent_requests``, ``commit_seconds``; ``store_calls``, ``store_errors``, ``store_seconds``, and the same for
        ``catalog``; ``recovery_runs``, ``recovery_errors``, and the same for ``publication`` and ``deletion``. Counts
        of zero are absent.
        """
        with self._lock:
            return dict(self._totals)

    def calls(self, kind: str) -> dict[str, int]:
        """The number of calls by method. ``kind``: ``store`` or ``catalog``."""
        with self._lock:
            return {method: count for (of, method), count in self._by_method.items() if of == kind}

    def _call(self, kind: str, method: str, seconds: float, error: str | None) -> None:
        self._add(f"{kind}_calls", 1)
        self._add(f"{kind}_seconds", seconds)
        self._add(f"{kind}_errors", error is not None)
        self._by_method[kind, method] = self._by_method.get((kind, method), 0) + 1

    def _end(self, event: Commit | TransactionCommit) -> None:
        names = {"committed": "commits", "conflict": "conflicts", "unknown": "unknown_outcomes"}
        self._add(names.get(event.outcome, "failed_commits"), 1)
        self._add("attempts", event.attempts)
        self._add("retries", max(0, event.attempts - 1))
        self._add("commit_seconds", event.seconds)
        if isinstance(event, Commit):
            self._add("rebases", event.rebased)
            self._add("resent_requests", event.resent)

    def _add(self, name: str, number: float) -> None:
        if number:
            self._totals[name] = self._totals.get(name, 0) + number


# ---------------------------------------------------------------------------------------- measuring methods

# The measured methods by name, each with whether its first argument is a sequence of objects.
_STORE_METHODS: Mapping[str, bool] = {
    **dict.fromkeys(
        (
            *("put_if_absent", "put_stream_if_absent", "put", "get", "list_from", "list_names", "head", "etag"),
            *("delete", "remove_orphans", "find_names", "walk", "walk_parts", "remove_all"),
            *("open_input", "open_output"),
        ),
        False,
    ),
    **dict.fromkeys(("link_if_absent", "get_many", "get_many_with_meta", "head_many", "remove", "sync"), True),
}
_WITHOUT_CALL = frozenset({"close", "clock_ms", "check_time", "check_times", "catalog_id"})


def composed(method: F) -> F:
    """Decorates a method of a store that only calls other methods of the same store in threads, so that these calls are
    not counted twice."""
    method._is_composed = True  # type: ignore[attr-defined]
    return method


def measure_store(cls: type) -> None:
    """Make a class of stores report the calls of its methods. If a method calls other methods of the same store, only
    the outer call is reported.
    """
    for name, takes_many in _STORE_METHODS.items():
        method = vars(cls).get(name)
        if not inspect.isfunction(method) or getattr(method, "_is_composed", False):
            continue
        made = functools.partial(_store_call, name, takes_many)
        if name in ("walk", "walk_parts"):
            setattr(cls, name, _measured_iteration(method, made))
        elif name == "open_output":
            setattr(cls, name, _measured_block(method, made))
        else:
            setattr(cls, name, _measured(method, made, "store"))


def measure_coordinator(cls: type, interface: type) -> None:
    """Make a class of coordinators report the calls of its methods. ``interface``: the class whose public methods are
    reported.
    """
    for name in vars(interface):
        method = vars(cls).get(name)
        if name.startswith("_") or name in _WITHOUT_CALL or not inspect.isfunction(method):
            continue
        setattr(cls, name, _measured(method, functools.partial(_catalog_call, name), "catalog"))


_Made: TypeAlias = Callable[[tuple[Any, ...], Any, float, "str | None"], "Event"]


def _store_call(
    name: str, takes_many: bool, given: tuple[Any, ...], result: Any, seconds: float, error: str | None
) -> Event:
    objects = len(given[1]) if takes_many and len(given) > 1 and hasattr(given[1], "__len__") else 1
    return StoreCall(_url(given), name, objects, seconds, error)


def _catalog_call(name: str, given: tuple[Any, ...], result: Any, seconds: float, error: str | None) -> Event:
    return CatalogCall(_url(given), name, seconds, error, given[1:], result)


def _url(given: tuple[Any, ...]) -> str:
    return str(getattr(given[0], "url", ""))


def _measured(method: Callable[..., Any], made: _Made, kind: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        if not _listeners or getattr(_here, kind, False):
            return method(*given, **named)
        result, error = None, None
        setattr(_here, kind, True)
        begun_s = time.perf_counter()
        try:
            result = method(*given, **named)
            return result
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            seconds = time.perf_counter() - begun_s
            setattr(_here, kind, False)
            report(made(given, result, seconds, error))

    return call


def _measured_iteration(method: Callable[..., Iterator[Any]], made: _Made) -> Callable[..., Iterator[Any]]:
    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> Iterator[Any]:
        items = method(*given, **named)
        return iterate(items, given) if _listeners and not getattr(_here, "store", False) else items

    def iterate(items: Iterator[Any], given: tuple[Any, ...]) -> Iterator[Any]:
        seconds, error, end = 0.0, None, object()
        try:
            while True:
                was_inside = getattr(_here, "store", False)
                _here.store = True
                begun_s = time.perf_counter()
                try:
                    item = next(items, end)
                finally:
                    seconds += time.perf_counter() - begun_s
                    _here.store = was_inside
                if item is end:
                    return
                yield item
        except GeneratorExit:
            raise
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            report(made(given, None, seconds, error))

    return call


def _measured_block(
    method: Callable[..., AbstractContextManager[Any]], made: _Made
) -> Callable[..., AbstractContextManager[Any]]:
    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> AbstractContextManager[Any]:
        block = method(*given, **named)
        return _Block(block, given, made) if _listeners and not getattr(_here, "store", False) else block

    return call


class _Block(AbstractContextManager[Any]):
    """A ``with`` block whose beginning and end are measured."""

    def __init__(self, block: AbstractContextManager[Any], given: tuple[Any, ...], made: _Made) -> None:
        self._block = block
        self._given = given
        self._made = made
        self._seconds = 0.0

    def __enter__(self) -> Any:
        return self._timed(self._block.__enter__, is_end=False)

    def __exit__(self, *raised: Any) -> bool | None:
        error = None if raised[0] is None else raised[0].__name__
        ended: bool | None = self._timed(lambda: self._block.__exit__(*raised), is_end=True, error=error)
        return ended

    def _timed(self, step: Callable[[], Any], *, is_end: bool, error: str | None = None) -> Any:
        is_over, was_inside = is_end, getattr(_here, "store", False)
        begun_s = time.perf_counter()
        _here.store = True
        try:
            return step()
        except BaseException as failed:
            is_over, error = True, type(failed).__name__
            raise
        finally:
            self._seconds += time.perf_counter() - begun_s
            _here.store = was_inside
            if is_over:
                report(self._made(self._given, None, self._seconds, error))
