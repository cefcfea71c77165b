"""The server process: handles signals, drains, and shuts down within time limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

import uvicorn

from deltalog.server.app import App

log = logging.getLogger(__name__)

EXIT_CUT_OFF = 1
# The time before the end in which the server answers the calls that it cuts off.
_ANSWER_SECONDS = 1.0
_ENDING = ("SIGTERM", "SIGINT", "SIGBREAK")


@dataclass(slots=True)
class Ending:
    """The times of a shutdown. ``drain_seconds``: the time from the first signal until new connections are refused.
    ``end_seconds``: the time from then until the end.
    """

    drain_seconds: float
    end_seconds: float


class Process(uvicorn.Server):
    """An HTTP server that drains before it shuts down. ``is_process``: whether the process consists of this server
    only, so that the server may end the process. ``on_hangup``: called on SIGHUP, on the event loop.
    """

    def __init__(self, config: uvicorn.Config, app: App, ending: Ending) -> None:
        super().__init__(config)
        self.ending = ending
        self.is_process = False
        self.on_hangup: Callable[[], None] = lambda: None
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._early: list[int] = []
        self._ends_s: float | None = None
        self._lock = threading.Lock()

    # ------------------------------------------------------------------------------------------ called from outside

    def stop(self) -> None:
        """Begin to shut down. Can be called from any thread, but not in a signal handler."""
        with self._lock:
            if self._loop is None:
                self._early.append(signal.SIGTERM)
                return
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._begin_end)

    @property
    def left_seconds(self) -> float:
        """The time in seconds until the process must have ended."""
        return self.ending.end_seconds if self._ends_s is None else max(0.0, self._ends_s - time.monotonic())

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop

    # ---------------------------------------------------------------------------------------------------- signals

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Handle signals in this block, if it runs in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def early(number: int, frame: FrameType | None) -> None:
            self._early.append(number)

        before = {number: signal.signal(number, early) for number in _numbers(*_ENDING, "SIGHUP")}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Overrides uvicorn's method, so that uvicorn does not replace the signal handlers; ``_on_loop`` sets them."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            self._on_loop(loop)
        with self._lock:
            self._loop = loop
        for number in self._early:
            loop.call_soon(self._signalled, number)

    def _on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in _numbers(*_ENDING, "SIGHUP"):
            try:
                loop.add_signal_handler(number, self._signalled, number)
            except NotImplementedError:  # Windows

                def handle(number: int, frame: FrameType | None) -> None:
                    loop.call_soon_threadsafe(self._signalled, number)

                signal.signal(number, handle)

    def _signalled(self, number: int) -> None:
        if number in _numbers("SIGHUP"):
            self.on_hangup()
        else:
            self._begin_end()

    # -------------------------------------------------------------------------------------------------- the end

    def _begin_end(self) -> None:
        if self._ends_s is not None:
            self._end_at_once()
            return
        ending = self.ending
        self._ends_s = time.monotonic() + ending.drain_seconds + ending.end_seconds
        if self.is_process:
            timer = threading.Timer(ending.drain_seconds + ending.end_seconds, self.exit_now)
            timer.daemon = True
            timer.start()
        self._app.drain()
        if ending.drain_seconds > 0:
            log.info(
                "the server shuts down: it is no longer ready, and refuses new connections in %g s",
                ending.drain_seconds,
            )
        assert self._loop is not None
        self._loop.call_later(ending.drain_seconds, self._refuse)

    def _refuse(self) -> None:
        assert self._loop is not None
        seconds = self.ending.end_seconds
        before = max(seconds - _ANSWER_SECONDS, seconds / 2)
        self.config.timeout_graceful_shutdown = (before + seconds) / 2  # type: ignore[assignment]
        self._loop.call_later(before, self._app.cut_off)
        self.should_exit = True

    def _end_at_once(self) -> None:
        if self.is_process:
            log.error("the server shuts down at once, because it received a second signal")
            self.exit_now()
        self._app.cut_off()
        self.should_exit = self.force_exit = True

    def exit_now(self) -> NoReturn:
        """End the process without waiting for its threads."""
        is_cut_off = self._app.log_unfinished() > 0
        if is_cut_off:
            log.error("the server exits while a call is still running: its changes may or may not take effect")
        else:
            log.warning("the server exits; recovery will finish the interrupted background work")
        self._app.end_observation()
        logging.shutdown()
        os._exit(EXIT_CUT_OFF if is_cut_off or self._app.has_cut_off else 0)


def _numbers(*names: str) -> list[int]:
    return [getattr(signal, name) for name in names if hasattr(signal, name)]
