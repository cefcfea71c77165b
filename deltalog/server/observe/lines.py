"""Appends lines to a file in a background thread and in batches. Copes with log rotation and a full disk.

Each batch is one ``write`` to a file that is open for appending, so that the lines of several processes do not mix.
Before each batch, the thread reopens the file if its path now leads to another file or none (``create`` of logrotate,
or a deleted file); a truncated file (``copytruncate``) need not be reopened. If a crash or a full disk left an
incomplete line, it is terminated before the next line is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from deltalog.errors import CallError
from deltalog.storage import durability

log = logging.getLogger(__name__)

STANDARD_OUTPUT = "-"
_MODE = 0o640
_BATCH_BYTES = 1 << 20
_RETRY_SECONDS = 1.0
_WARNING_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
# A line may look incomplete because another process is just writing it; so it is looked at again after these
# times.
_WAITS_S = (0.001, 0.005, 0.02)


class LineFile:
    """A file to which lines are appended. Not thread-safe. ``path``: ``-`` for standard output."""

    def __init__(self, path: str, *, sync: bool = False) -> None:
        """Raises CallError if the file cannot be opened for appending."""
        self.path = path
        self._sync = sync
        self._fd = -1
        try:
            self._open()
        except OSError as error:
            raise CallError(f"The log {path} cannot be opened for appending: {error.strerror or error}.") from None

    def append(self, lines: Sequence[bytes]) -> int:
        """Append lines; returns how many were written completely, which is fewer than all if the disk is full. Raises
        OSError if not even the first line was written.
        """
        self._follow()
        data = memoryview(self._repair() + b"".join(lines))
        extra = len(data) - sum(map(len, lines))
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
            if self._sync:
                durability.flush(self._fd)
        except OSError:
            whole, end = 0, extra
            for line in lines:
                end += len(line)
                if end > written:
                    break
                whole += 1
            if not whole or written == len(data):  # also if fsync failed
                raise
            return whole
        return len(lines)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        if self.path == STANDARD_OUTPUT:
            self._fd = os.dup(1)
            return
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(self.path).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
                raise OSError("it is not a file")
        self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, _MODE)

    def _follow(self) -> None:
        """Reopen the file if its path now leads to another file."""
        if self.path == STANDARD_OUTPUT:
            return
        try:
            named, opened = os.stat(self.path), os.fstat(self._fd)
            if (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino):
                return
        except OSError:
            pass
        before = self._fd
        self._open()
        with contextlib.suppress(OSError):
            os.close(before)

    def _repair(self) -> bytes:
        """The bytes that terminate an incomplete last line."""
        for wait_s in _WAITS_S:
            if self._is_complete():
                return b""
            time.sleep(wait_s)
        return b"" if self._is_complete() else b"\n"

    def _is_complete(self) -> bool:
        """Whether the last line ends with a line break; also if this is no file, such as a pipe."""
        with contextlib.suppress(OSError):
            size = os.fstat(self._fd).st_size
            return not size or os.pread(self._fd, 1, size - 1) in (b"\n", b"")
        return True


class LineWriter:
    """Appends lines in a background thread. Thread-safe. ``most_lines``: how many lines may wait; further lines are
    lost. ``on_lost``: called with the number of lost lines once lines can be written again; returns lines that report
    the loss.
    """

    def __init__(
        self,
        file: LineFile,
        most_lines: int,
        on_lost: Callable[[int], Sequence[bytes]] = lambda count: (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._most_lines = most_lines
        self._on_lost = on_lost
        self._clock = clock
        self._waiting: deque[tuple[bytes, float, Future[bool] | None]] = deque()
        self._lock = threading.Condition()
        self._is_over = False
        self._error: OSError | None = None
        self._warned_s = -_WARNING_SECONDS
        self._unreported = 0
        self.written = 0
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name="deltalog-lines", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many lines wait."""
        return len(self._waiting)

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to write failed."""
        return self._error is not None

    def waits_since(self) -> float | None:
        """The time in seconds for which the oldest line has been waiting; None if no line waits."""
        with self._lock:
            return self._clock() - self._waiting[0][1] if self._waiting else None

    def put(self, lines: Sequence[bytes], *, asked: bool = False) -> Future[bool] | None:
        """Queue lines to be written. With ``asked``, returns a future of whether they were written. It becomes False as
        soon as an attempt to write them has failed, although they are tried again. Raises nothing.
        """
        future: Future[bool] | None = Future() if asked else None
        with self._lock:
            if self._is_over or len(self._waiting) + len(lines) > self._most_lines:
                self.lost += len(lines)
                self._unreported += len(lines)
                if future is not None:
                    future.set_result(False)
                return future
            now_s = self._clock()
            for line in lines[:-1]:
                self._waiting.append((line, now_s, None))
            self._waiting.append((lines[-1], now_s, future))
            if future is not None and self._error is not None:
                _settle(future, False)
            self._lock.notify()
        return future

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Write the waiting lines, for at most ``seconds``."""
        with self._lock:
            self._is_over = True
            self._lock.notify()
        self._thread.join(seconds)
        left = len(self._waiting)
        if left:
            log.error("%s: %d lines were not written before the log was closed", self._file.path, left)

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and not self._is_over:
                    self._lock.wait()
                if not self._waiting:
                    break
                if self._error is not None:
                    self._lock.wait(_RETRY_SECONDS)
                batch, size = list[tuple[bytes, float, "Future[bool] | None"]](), 0
                for each in self._waiting:
                    if batch and size + len(each[0]) > _BATCH_BYTES:
                        break
                    batch.append(each)
                    size += len(each[0])
                is_last = self._is_over
            if not self._write(batch) and is_last:
                break
        self._file.close()

    def _write(self, batch: Sequence[tuple[bytes, float, Future[bool] | None]]) -> bool:
        extra = list(self._on_lost(self._unreported)) if self._unreported else []
        reported = self._unreported if extra else 0
        error: OSError | None = None
        try:
            count = self._file.append([*extra, *(line for line, _, _ in batch)])
        except OSError as raised:
            error, count = raised, 0
        except Exception as raised:  # the thread must not end
            log.exception("%s cannot be written", self._file.path)
            error, count = OSError(str(raised)), 0
        if count >= len(extra):
            self._unreported -= reported
        count = max(0, count - len(extra))
        if count < len(batch) and error is None:
            error = OSError("The disk is full.")
        with self._lock:
            for _ in range(count):
                self._waiting.popleft()
            self.written += count
            self._note(error)
        for number, (_, _, future) in enumerate(batch):
            if future is not None:
                _settle(future, number < count)
        return error is None

    def _note(self, error: OSError | None) -> None:
        """Log that lines cannot be written, at most once a minute, and later that they can be written again."""
        if error is None:
            if self._error is not None:
                log.warning("%s can be written again; %d lines were lost", self._file.path, self._unreported)
                self._warned_s = -_WARNING_SECONDS
        elif self._clock() - self._warned_s >= _WARNING_SECONDS:
            self._warned_s = self._clock()
            what = "%s cannot be written: %s; %d lines are waiting, %d were lost"
            log.error(what, self._file.path, error.strerror or error, len(self._waiting), self._unreported)
        self._error = error


def _settle(future: Future[bool], is_written: bool) -> None:
    with contextlib.suppress(Exception):  # it has been settled or cancelled already
        if not future.done():
            future.set_result(is_written)
