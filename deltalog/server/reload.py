"""Reloads the configuration of a running server: on request, and when a watched file changes."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from deltalog.errors import DeltaLogError

log = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


FileStates = Mapping[str, tuple[int, ...]]


def states_of(files: Iterable[str]) -> FileStates:
    """The states of files. A state changes if the file is written or replaced, or if a link on its path is replaced."""
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        try:
            of = os.stat(file)
        except OSError:
            found[file] = ()
        else:
            found[file] = (of.st_mtime_ns, of.st_ino, of.st_dev, of.st_size)
    return found


class Source(Protocol[T_co]):
    """The source of settings. ``seen``: the states of the files before they were first read. ``settings``: returns the
    settings of the configuration in effect, with the current content of the files that it names. ``reread``: reads the
    configuration file again and returns its settings. ``accept``: is called when the settings that were returned last
    are in effect. ``files``: the files to watch. All but ``accept`` raise DeltaLogError.
    """

    @property
    def seen(self) -> FileStates: ...

    def settings(self) -> T_co: ...

    def reread(self) -> T_co: ...

    def accept(self) -> None: ...

    def files(self) -> Iterable[str]: ...


class Reloader:
    """Applies new settings in a thread of its own. Several requests that arrive while settings are being applied count
    as one. ``apply``: applies settings, or raises DeltaLogError and has no effect.
    """

    def __init__(self, source: Source[T], apply: Callable[[T], None], watch_seconds: float) -> None:
        self._source = source
        self._apply = apply
        self.watch_seconds = watch_seconds
        self._asked = threading.Event()
        self._ended = False
        self._seen = source.seen
        self._thread = threading.Thread(target=self._run, name="deltalog-reload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._asked.set()

    def ask(self) -> None:
        """Request a reload. Must not be called in a signal handler, because it is not reentrant."""
        self._asked.set()

    def _run(self) -> None:
        while True:
            is_asked = self._asked.wait(self.watch_seconds or None)
            if self._ended:
                return
            self._asked.clear()
            state = states_of(self._source.files())
            if is_asked or state != self._seen:
                # The next comparison detects files that change from here on.
                self._seen = state
                self._reload(is_asked)

    def _reload(self, is_asked: bool) -> None:
        why = "on request" if is_asked else "because a file changed"
        try:
            self._apply(self._source.reread() if is_asked else self._source.settings())
        except DeltaLogError as error:
            log.error(
                "the configuration was read again %s and refused; the previous one stays in effect: %s", why, error
            )
        except Exception:
            log.exception("the configuration was read again %s and refused; the previous one stays in effect", why)
        else:
            self._source.accept()
            self._seen = self._seen if self._seen.keys() == {*self._source.files()} else states_of(self._source.files())
            log.info("the configuration was read again %s and is in effect", why)
