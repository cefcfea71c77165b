"""Keeps directories open, so that many files in a directory can be opened without resolving the directory's path each
time."""

from __future__ import annotations

import os
from collections.abc import Callable

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# The maximum number of directories below a root that are open at once.
_MOST_OPEN = 64


class OpenDirectories(dict[str, int]):
    """Directory descriptors, keyed by path and opened on first use."""

    def __init__(self, absolute: Callable[[str], str]) -> None:
        self._absolute = absolute

    def __missing__(self, directory: str) -> int:
        self[directory] = descriptor = os.open(self._absolute(directory), os.O_RDONLY | os.O_CLOEXEC)
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
