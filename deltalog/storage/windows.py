r"""The store for the local disk on Windows.

It keeps the guarantees of ``fs``: a file gets its name by ``CreateHardLink``, which fails if the name exists, after its
bytes were flushed. What differs:

- Files and directories are opened by their paths, because Windows opens no directory. A link that somebody creates
  between two calls can therefore be followed; on other systems it cannot.
- An open file cannot be removed or replaced. Such calls are repeated for two seconds; then the error says so.
- Names that Windows cannot hold are refused (``windows_paths``), and so are paths of a network: it is unknown whether
  the server of a share creates links exclusively.
- FAT has no links. The first write there is an error, as on every file system without links.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import TypeVar

from deltalog.errors import CallError, StoreError
from deltalog.protocol.paths import LOG_DIRECTORY
from deltalog.storage import durability, windows_paths
from deltalog.storage.base import Entry, EntryKind, FileMeta, LogStore
from deltalog.storage.fs import LocalStore, entry_of, is_junction, is_same, meta_of, store_errors

T = TypeVar("T")

# Access is denied (5) or another process has the file open (32).
_IN_USE = {5, 32}
_WAIT_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.005


class WindowsStore(LocalStore):
    """A table directory on a disk of a machine with Windows."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        given = os.fspath(root)
        # A letter may stand for a share.
        if any(map(windows_paths.is_on_network, (given, os.path.realpath(given)))):
            raise CallError(
                f"{given} is on a network share. On Windows, deltalog uses tables on disks of this machine, because it "
                "is unknown whether the share creates files exclusively. Use a local disk or an object store."
            )
        super().__init__(given)
        self.url = windows_paths.url_of(self.root)

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        return [self.get(path, length) for path in paths]

    def get_many_with_meta(self, paths: Sequence[str], length: int | None = None) -> list[tuple[bytes, FileMeta]]:
        return LogStore.get_many_with_meta(self, paths, length)

    def head_many(self, paths: Sequence[str]) -> list[FileMeta | None]:
        return [self.head(path) for path in paths]

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        names = sorted(self.list_names(directory, start, limit=limit))
        if not stat:
            return [FileMeta(name, None, None) for name in names]
        target = self._absolute(directory)
        with store_errors("list", target):
            found = []
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # removed between listing and stat
                    # Not the status of the listing, which lacks the file's number.
                    found.append(meta_of(name, os.stat(os.path.join(target, name))))
            return found

    def delete(self, path: str) -> None:
        target = self._absolute(path)
        with store_errors("delete", target):
            try:
                _repeated(os.unlink, target)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except PermissionError:
                if not os.path.isdir(target):
                    raise
        if path.startswith(f"{LOG_DIRECTORY}/"):
            return
        while path := path.rpartition("/")[0]:
            try:
                os.rmdir(self._absolute(path))
            except OSError:
                return

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        real, device, _ = self._mounts()
        found = []
        for path in paths:
            with store_errors("stat", self._absolute(path)), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if self._has_own_directory(real, path):
                    found.append(entry_of(path, os.lstat(self._below(real, path)), device, False))
        return found

    def remove(self, entries: Sequence[Entry]) -> list[Entry]:
        real, removed = os.path.realpath(self.root), []
        for entry in entries:
            target = self._below(real, entry.path)
            with store_errors("delete", target), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if self._has_own_directory(real, entry.path) and _is_removed(target, entry):
                    removed.append(entry)
        return removed

    def remove_all(self) -> int:
        real = os.path.realpath(self.root)
        if not os.path.isdir(self.root):
            return 0
        if os.path.normcase(real) != os.path.normcase(self.root):
            reason = "its path has a link, which is not followed"
            raise StoreError(f"Nothing is deleted at {self.root}: {reason}.", path=self.root)
        with store_errors("delete", self.root):
            count = _emptied(real, os.stat(real).st_dev, LOG_DIRECTORY)
            with contextlib.suppress(OSError):  # something was written meanwhile, or is kept
                os.rmdir(real)
        return count

    def local_path(self, path: str) -> str | None:
        return os.path.normpath(self._absolute(path))

    def link_target(self, path: str) -> str | None:
        if not path:
            return windows_paths.url_of(os.path.realpath(self.root))
        below = ""
        for segment in path.split("/"):
            below = f"{below}/{segment}" if below else segment
            target = self._absolute(below)
            if os.path.islink(target) or _is_junction(target):
                return windows_paths.url_of(os.path.realpath(self._absolute(path)))
        return None

    def _absolute(self, path: str) -> str:
        return self._below(self.root, path)

    def _below(self, root: str, path: str) -> str:
        if path and (reason := windows_paths.refusal(path)) is not None:
            raise StoreError(
                f"{root}: Windows cannot hold the file {path!r}: {reason}. Nothing was changed; write this table on "
                "another system or in an object store.",
                path=path,
            )
        return windows_paths.joined(root, path, os.sep)

    def _replace(self, source: str, target: str) -> None:
        _repeated(os.replace, source, target)

    def _flush_directory(self, directory: str) -> None:
        pass  # see durability

    def _flush_file(self, path: str) -> None:
        durability.flush_path(path, os.O_RDWR)  # Windows flushes only files that are open for writing

    def _status(self, found: os.DirEntry[str]) -> os.stat_result:
        return os.lstat(found.path)  # the status of a listing lacks the number of the disk

    def _has_own_directory(self, real: str, path: str) -> bool:
        """Whether no directory of a path is a link, a junction or a file."""
        parent, below = path.rpartition("/")[0], ""
        for segment in parent.split("/") if parent else ():
            below = f"{below}/{segment}" if below else segment
            status = os.lstat(self._below(real, below))
            if not S_ISDIR(status.st_mode) or is_junction(status):
                return False
        return True


def _is_removed(target: str, entry: Entry) -> bool:
    """Remove what a listing found, unless it has changed since."""
    status = os.lstat(target)
    if entry.kind is EntryKind.DIRECTORY:
        if not S_ISDIR(status.st_mode) or is_junction(status):
            return False
        try:
            os.rmdir(target)
        except OSError:  # it is not empty, or is the working directory of a process
            return False
        return True
    is_expected = S_ISLNK(status.st_mode) if entry.kind is EntryKind.LINK else S_ISREG(status.st_mode)
    if not is_expected or (entry.kind is not EntryKind.LINK and not is_same(entry, status)):
        return False
    _repeated(os.unlink, target)
    return True


def _emptied(directory: str, device: int, first: str) -> int:
    """Remove everything in a directory; returns the number of files and links removed. Junctions and other disks are
    kept. ``first``: the directory that is emptied before the others."""
    count, below = 0, []
    for name in sorted(os.listdir(directory), key=lambda name: (name == first, name), reverse=True):
        place = os.path.join(directory, name)
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(place)
            if is_junction(status) or status.st_dev != device:
                continue
            if not S_ISDIR(status.st_mode):
                _repeated(os.unlink, place)
                count += 1
            elif name == first:
                count += _emptied(place, device, "")
                _remove_empty(place)
            else:
                below.append(place)
    for place in below:
        with contextlib.suppress(FileNotFoundError):
            count += _emptied(place, device, "")
            _remove_empty(place)
    return count


def _remove_empty(directory: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def _is_junction(path: str) -> bool:
    try:
        return is_junction(os.lstat(path))
    except OSError:
        return False


def _repeated(call: Callable[..., T], *arguments: str) -> T:
    """Repeat a call while another process has the file open. Raises the last error, with the reason."""
    for pause in _pauses():
        try:
            return call(*arguments)
        except PermissionError as error:
            if getattr(error, "winerror", None) not in _IN_USE:
                raise
            last = error
        time.sleep(pause)
    raise PermissionError(
        last.errno, "another program has it open, and Windows neither removes nor replaces open files", last.filename
    ) from last


def _pauses() -> Iterator[float]:
    pause, left = _FIRST_PAUSE_SECONDS, _WAIT_SECONDS
    while left > 0:
        yield pause
        left -= pause
        pause = min(2 * pause, left) if left > 0 else 0
