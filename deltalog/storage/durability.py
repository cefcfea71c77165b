"""Waits until the bytes of files and the names in directories are on the disk, as each operating system does it.

- Linux: ``fsync`` of the file, and of its directory.
- macOS: ``fsync`` leaves the bytes in the cache of the disk, from which a power failure loses them; ``F_FULLFSYNC``
  empties this cache. File systems that do not support ``F_FULLFSYNC`` are fsynced.
- Windows: a directory cannot be opened, and there is no fsync of one. The names in a directory are in the journal of
  NTFS, which is on the disk at the latest when a file of this volume that was changed later is flushed.
"""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Callable
from typing import Any

# The errors of F_FULLFSYNC on file systems that do not support it.
_UNSUPPORTED = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS}
#: Flags to open any file: O_NONBLOCK, because opening a pipe must not wait for a writer; O_BINARY, because Windows
#: otherwise changes the ends of lines.
FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def flusher(fcntl: Any) -> Callable[[int], None]:
    """The function that flushes the file of a descriptor. ``fcntl``: the module, or None on systems without it."""
    command = getattr(fcntl, "F_FULLFSYNC", None)

    def flush_by_fsync(descriptor: int) -> None:
        os.fsync(descriptor)

    def flush_the_disk_too(descriptor: int) -> None:
        try:
            fcntl.fcntl(descriptor, command)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            os.fsync(descriptor)

    return flush_by_fsync if command is None else flush_the_disk_too


def _fcntl() -> Any:
    try:
        return importlib.import_module("fcntl")
    except ImportError:  # Windows
        return None


#: Flush the file of a descriptor to the disk. Raises OSError.
flush = flusher(_fcntl())


def flush_path(path: str, access: int = os.O_RDONLY) -> None:
    """Flush a file that another program wrote, or the names in a directory. ``access``: a flag of ``os.open``. Raises
    OSError."""
    descriptor = os.open(path or ".", access | FLAGS)
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)
