"""Creates temporary directories for this process, and removes the directories that killed processes left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import threading
import time

try:
    import fcntl
except ImportError:  # Windows has no fcntl, so abandoned directories are not removed there
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"
# A directory is locked immediately after it is created. An unlocked directory older than this is considered abandoned.
_MIN_AGE_S = 600.0
_MAX_REMOVED = 64
_searched: set[str] = set()
_searching = threading.Lock()


class ScratchDirectory:
    """An empty temporary directory, locked until ``remove`` or the end of this process.

    The first scratch directory that a process creates also triggers the removal of up to 64 directories that killed
    processes of this user left behind. Raises OSError. Cost: once per process, a listing of the directory for temporary
    files.
    """

    def __init__(self, prefix: str) -> None:
        with _searching:
            place = tempfile.gettempdir()
            if place not in _searched:
                _searched.add(place)
                _remove_abandoned(place, prefix)
        self.path = tempfile.mkdtemp(prefix=prefix)
        self._lock: int | None = None
        try:
            if fcntl is not None:
                self._lock = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the directory and its files, best effort."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _remove_abandoned(place: str, prefix: str) -> None:
    if fcntl is None:
        return
    removed = 0
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if removed < _MAX_REMOVED and entry.name.startswith(prefix) and _is_abandoned(entry):
                shutil.rmtree(entry.path, ignore_errors=True)
                removed += 1


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Whether a directory belongs to this user and is not locked, although its process has had enough time to lock
    it."""
    try:
        seen = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or time.time() - seen.st_mtime < _MIN_AGE_S:
            return False
        lock = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True  # the process that made the directory ended before it created the lock file
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
