"""Finds tokens and access keys in the catalog, with a cache.

Everything runs on the event loop, except the calls of the coordinator.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from deltalog.catalog.coordinator import Coordinator
from deltalog.errors import DeltaLogError
from deltalog.server.access import issued
from deltalog.server.access.issued import Credential
from deltalog.server.access.principals import NotIdentifiedYetError, network_of

_THREADS = 2
_MOST_WAITING = 64
_MOST_ADDRESSES = 4096


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """How the server finds tokens in its catalog. ``cache_seconds``: how long a token is cached; a revocation takes
    effect within this time. ``cached``: how many tokens are cached. ``guesses``: how many unknown tokens an address
    (IPv6: one /64 network) may send in ``guess_seconds``; further ones are refused without asking the catalog.
    ``lookup_seconds``: how long a call waits while its token is looked up in the catalog."""

    cache_seconds: float = 5
    cached: int = 10_000
    guesses: int = 100
    guess_seconds: float = 60
    lookup_seconds: float = 5


K = TypeVar("K")
V = TypeVar("V")


class _Recent(OrderedDict[K, V], Generic[K, V]):
    """The most recently used items."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def put(self, key: K, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        while len(self) > self.most:
            self.popitem(last=False)


class TokenLookup:
    """Finds tokens and access keys by their ids.

    A token that is not in the cache costs one call of the coordinator, however many requests wait for it. At most two
    of these calls run at a time and 64 wait. Their number is also limited per address, as described in
    ``TokenSettings``, so that callers who guess tokens do not load the catalog. Known tokens are not subject to the
    limit per address."""

    def __init__(
        self,
        coordinator: Coordinator,
        settings: TokenSettings | None = None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator = coordinator
        self._settings = settings or TokenSettings()
        self._clock_s = clock_s
        self._known: _Recent[str, tuple[float, Credential]] = _Recent(self._settings.cached)
        self._ended: _Recent[str, Credential] = _Recent(self._settings.cached)
        self._unknown: _Recent[str, float] = _Recent(self._settings.cached)
        self._guesses: _Recent[str, tuple[float, float]] = _Recent(_MOST_ADDRESSES)
        self._running: dict[str, asyncio.Future[Credential | None]] = {}
        self._required: tuple[float, bool] | None = None
        self._asking: tuple[float, asyncio.Future[bool]] | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="deltalog-tokens")

    def reload(self, settings: TokenSettings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        self._known.most = self._ended.most = self._unknown.most = settings.cached

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def find(self, id_: str, caller: str | None) -> Credential | None:
        """The token or access key with this id, as it was in the catalog less than ``cache_seconds`` ago; it may be
        expired. ``caller``: the address from which the request came. Raises NotIdentifiedYetError and the errors of
        coordinators.
        """
        now_s = self._clock_s()
        known, unknown_s = self._known.get(id_), self._unknown.get(id_)
        if known is not None and now_s - known[0] < self._settings.cache_seconds:
            self._known.move_to_end(id_)
            return known[1]
        if unknown_s is not None and now_s - unknown_s < self._settings.cache_seconds:
            return None
        running = self._running.get(id_)
        if running is not None or known is not None:
            return await self._answer(running or self._start(id_, now_s))
        network = network_of(caller)
        self._take_guess(network, now_s)
        is_guess = False
        try:
            found = await self._answer(self._start(id_, now_s))
            is_guess = found is None
        finally:
            if not is_guess:
                self._guesses.put(network, (self._left(network, now_s) + 1, now_s))
        return found

    def ended(self, id_: str) -> Credential | None:
        """The token or access key with this id that ``find`` once found and that has been revoked since. None if it was
        never found, or too long ago."""
        return self._ended.get(id_)

    async def are_required(self) -> bool:
        """Whether the catalog has, or once had, tokens. False while the catalog does not answer: a server that was
        started without authentication then goes on without it, and no call can change anything.
        """
        now_s = self._clock_s()
        if self._required is not None and (
            self._required[1] or now_s - self._required[0] < self._settings.cache_seconds
        ):
            return self._required[1]
        if self._asking is None:
            loop = asyncio.get_running_loop()
            self._asking = now_s, loop.run_in_executor(self._threads, issued.are_required, self._coordinator)
            self._asking[1].add_done_callback(lambda done: self._asked(done, now_s))
        began_s, asking = self._asking
        if now_s - began_s > self._settings.lookup_seconds:
            return False
        try:
            return await self._answer(asking)
        except (DeltaLogError, NotIdentifiedYetError):
            return False

    def _asked(self, done: asyncio.Future[bool], now_s: float) -> None:
        self._asking = None
        if not done.cancelled():
            self._required = now_s, done.exception() is None and done.result()

    def _start(self, id_: str, now_s: float) -> asyncio.Future[Credential | None]:
        if len(self._running) >= _MOST_WAITING:
            raise NotIdentifiedYetError("The server is looking up too many tokens. Try again later.")
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, issued.find, self._coordinator, id_)
        self._running[id_] = running
        running.add_done_callback(lambda done: self._found(id_, done, now_s))
        return running

    def _found(self, id_: str, done: asyncio.Future[Credential | None], now_s: float) -> None:
        """Cache the result of a lookup that began at ``now_s``; it may lack changes made after that."""
        self._running.pop(id_, None)
        if done.cancelled() or done.exception() is not None:
            return
        found = done.result()
        if found is None:
            before = self._known.pop(id_, None)
            if before is not None:
                self._ended.put(id_, before[1])
            self._unknown.put(id_, now_s)
        else:
            self._unknown.pop(id_, None)
            self._known.put(id_, (now_s, found))

    async def _answer(self, running: asyncio.Future[V]) -> V:
        try:
            return await asyncio.wait_for(asyncio.shield(running), self._settings.lookup_seconds)
        except asyncio.TimeoutError:
            raise NotIdentifiedYetError("The catalog does not answer. Try again later.") from None

    # ------------------------------------------------------------------------------------------------ guesses

    def _left(self, network: str, now_s: float) -> float:
        """How many more unknown tokens a network may send now."""
        most = float(self._settings.guesses)
        left, since_s = self._guesses.get(network, (most, now_s))
        return min(most, left + (now_s - since_s) * most / self._settings.guess_seconds)

    def _take_guess(self, network: str, now_s: float) -> None:
        left = self._left(network, now_s)
        if left < 1:
            raise NotIdentifiedYetError("Too many unknown tokens came from this address. Try again later.")
        self._guesses.put(network, (left - 1, now_s))
