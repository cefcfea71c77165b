"""Reads footers of data files in another process first, because damaged ones can crash the process that reads them.

Arrow's C++ code checks a column chunk only when it is read, and some of these checks abort the process instead of
raising an error. One guard process serves all checks of this process: it starts with the first footer, takes about
0.1 ms for each, and ends with this process. Footers are sent in batches, so that neither process waits for the other.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, Any

# A longer footer is not sent: reading it is left to this process, as the data file's reader does.
_MOST_BYTES = 256 << 20
_SECONDS = 120.0
_TAIL = 64 << 10
_END = 8  # of a Parquet file: the footer's length and the magic bytes

# It imports nothing but Arrow, so that it starts at once.
_CHILD = """
import struct, sys
import pyarrow as pa, pyarrow.parquet as pq

def touch(data):
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        footer = file.metadata
        file.schema_arrow, footer.schema.to_arrow_schema()
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                found = chunk.statistics
                for name in ("min", "max", "min_raw", "max_raw", "null_count", "logical_type"):
                    try:
                        str(getattr(found, name))
                    except Exception:
                        pass

source, answers = sys.stdin.buffer, sys.stdout.buffer
while len(head := source.read(4)) == 4:
    data = source.read(struct.unpack("<I", head)[0])
    try:
        touch(data)
    except Exception:
        pass
    answers.write(b"1")
    answers.flush()
"""


class FooterGuard:
    """The guard process. Calls from several threads are serialised."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._is_possible = bool(sys.executable)

    def fatal(self, footers: Sequence[bytes]) -> list[str | None]:
        """How the process that reads each footer (from ``footer_of``) ends; None if it does not, or if no guard
        process can be started. At most 1,000 footers, whose answers fit into the pipe between the processes."""
        found: list[str | None] = []
        with self._lock:
            while len(found) < len(footers):
                if self._process is None and not self._start():
                    return [*found, *[None] * (len(footers) - len(found))]
                good = self._good(footers[len(found) :])
                found += [None] * good
                if len(found) < len(footers):
                    found.append(self._end())
        return found

    def _good(self, footers: Sequence[bytes]) -> int:
        """How many footers the process reads before it crashes; all, if it does not."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        timer = threading.Timer(_SECONDS, process.kill)
        timer.daemon = True
        timer.start()
        try:
            with contextlib.suppress(OSError):
                for footer in footers:
                    sent = footer if len(footer) <= _MOST_BYTES else b""
                    process.stdin.write(struct.pack("<I", len(sent)) + sent)
                process.stdin.flush()
            return len(process.stdout.read(len(footers)))
        finally:
            timer.cancel()

    def _start(self) -> bool:
        if not self._is_possible:
            return False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the process)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except OSError:
            self._is_possible = False
            return False
        atexit.register(self.close)
        return True

    def _end(self) -> str:
        process, errors, self._process = self._process, self._errors, None
        assert process is not None and errors is not None
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        if process.stdout is not None:
            process.stdout.close()
        status = process.wait()
        errors.seek(0)
        lines = [line.strip() for line in errors.read(100_000).decode("utf-8", "replace").splitlines() if line.strip()]
        errors.close()
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"{how}: {lines[-1][:300]}" if lines else how

    def close(self) -> None:
        """End the other process; the next footer starts a new one."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                assert process.stdin is not None and process.stdout is not None and self._errors is not None
                with contextlib.suppress(OSError):
                    process.stdin.close()
                process.kill()
                process.wait()
                process.stdout.close()
                self._errors.close()


GUARD = FooterGuard()


def footer_of(source: Any) -> bytes:
    """The footer of a Parquet file as a file without rows; of another file its end. Cost: 1 GET, 2 for a footer of more
    than 64 KiB."""
    size = source.seek(0, 2)
    size = source.tell() if size is None else size
    tail = _read(source, max(0, size - _TAIL))
    if len(tail) < _END + 4:
        return tail
    length = int.from_bytes(tail[-_END:-4], "little") + _END
    if length > size - 4:
        return tail
    if length > len(tail):
        tail = _read(source, size - length)
    return b"PAR1" + tail[-length:]


def _read(source: Any, start: int) -> bytes:
    source.seek(start)
    return bytes(source.read())
