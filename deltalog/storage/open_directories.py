"""Keeps directories open, so that many files in a directory can be opened without resolving the directory's path each
time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from stat import S_ISDIR

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# The maximum number of directories below a root that are open at once.
_MOST_OPEN = 64
_MOST_LEVELS = 100
# Errors that are raised for an entry that was removed or replaced since the listing, or is a mount point.
_CHANGED_ERRNOS = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY}


class OpenDirectories(dict[str, int]):
    """Directory descriptors, keyed by path and opened on first use."""

    def __init__(self, absolute: Callable[[str], str]) -> None:
        self._absolute = absolute

    def __missing__(self, directory: str) -> int:
        self[directory] = descriptor = os.open(self._absolute(directory), _DIRECTORY)
        return descriptor

    def close(self) -> None:
        for descriptor in self.values():
            os.close(descriptor)


class OwnDirectories(dict[str, int]):
    """Descriptors of directories below a root, opened without following symbolic links."""

    def __init__(self, root: str) -> None:
        self[""] = os.open(root, _DIRECTORY)

    def __missing__(self, directory: str) -> int:
        if len(self) > _MOST_OPEN:
            for path in [path for path in self if path]:
                self.forget(path)
        descriptor = self[""]
        above = descriptor
        for name in directory.split("/"):
            try:
                below = os.open(name, _DIRECTORY | _NO_LINK, dir_fd=above)
            finally:
                if above != descriptor:
                    os.close(above)
            above = below
        self[directory] = above
        return above

    def forget(self, directory: str) -> None:
        if directory in self:
            os.close(self.pop(directory))

    def close(self) -> None:
        for descriptor in self.values():
            os.close(descriptor)


def open_without_links(path: str) -> int:
    """A descriptor of a directory whose absolute path has no symbolic links. Raises OSError."""
    directories = OwnDirectories("/")
    try:
        return os.dup(directories[path.strip("/")])
    finally:
        directories.close()


def emptied(root: int, kept: Collection[str], first: str) -> int:
    """Remove everything in the directory with the descriptor ``root``; returns the number of files and links removed.
    Every directory is opened relative to its parent, so that no symbolic link is followed, not even one that is created
    meanwhile. ``kept``: paths that are not entered. ``first``: the directory that is emptied before the others. Raises
    OSError."""
    device = os.fstat(root).st_dev

    def empty(directory: int, path: str, levels: int) -> int:
        count = 0
        # A directory is emptied after the files beside it; of these, the last by name is removed first.
        below: list[str] = []
        for name in sorted(os.listdir(directory), key=lambda name: (levels == 0 and name == first, name), reverse=True):
            try:
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if path + name in kept or status.st_dev != device:
                    continue
                if not S_ISDIR(status.st_mode):
                    os.unlink(name, dir_fd=directory)
                    count += 1
                elif levels == 0 and name == first:
                    count += empty_below(directory, path, name, levels)
                else:
                    below.append(name)
            except OSError as error:
                if error.errno not in _CHANGED_ERRNOS:
                    raise
        return count + sum(empty_below(directory, path, name, levels) for name in below)

    def empty_below(directory: int, path: str, name: str, levels: int) -> int:
        if levels == _MOST_LEVELS:
            raise OSError(errno.ENAMETOOLONG, "Its directories are nested too deeply", path + name)
        count = 0
        try:
            opened = os.open(name, _DIRECTORY | _NO_LINK, dir_fd=directory)
            try:
                # A directory may have been replaced by a mount point since it was listed.
                if os.fstat(opened).st_dev == device:
                    count = empty(opened, f"{path}{name}/", levels + 1)
            finally:
                os.close(opened)
            os.rmdir(name, dir_fd=directory)
        except OSError as error:
            if error.errno not in _CHANGED_ERRNOS:
                raise
        return count

    return empty(root, "", 0)
