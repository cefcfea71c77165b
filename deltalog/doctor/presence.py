"""Looks up many files of a table at once.

Spec: PROTOCOL.md#add-file-and-remove-file (path).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from deltalog.errors import CallError, DeltaLogError, StoreError, UnsafePathError
from deltalog.parallel import mapped
from deltalog.protocol.paths import Place, locate
from deltalog.storage.base import EntryKind
from deltalog.storage.remote import PARALLEL_GETS
from deltalog.storage.table_files import TableFiles

# The number of files that are looked up in one call.
AT_ONCE = 4_096
T = TypeVar("T")


def parts(items: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    """The items in lists of at most ``size``."""
    rest = iter(items)
    while some := [*islice(rest, size)]:
        yield some


class FilePresence:
    """Looks up the files of the table at ``place``, by their paths as spelled in the log."""

    def __init__(self, files: TableFiles, place: Place) -> None:
        self._files = files
        self._place = place

    def regular_sizes(self, names: Sequence[str]) -> dict[str, int | None]:
        """The sizes in bytes of those files that are regular files in the table, and to whose paths no symbolic link
        leads. Other files may exist too. Cost: 1 HEAD each; on a remote store several at a time. Raises nothing."""
        located: dict[str, str] = {}
        for name in names:
            with contextlib.suppress(UnsafePathError):
                located[locate(name, [self._place])[1]] = name
        try:
            entries = self._files.store.entries(list(located))
        except (StoreError, CallError, OSError):
            return {}
        return {located[each.path]: each.size_bytes for each in entries if each.kind is EntryKind.FILE}

    def missing(self, names: Sequence[str], progress: Callable[[int], object]) -> set[str]:
        """Those of the files that certainly do not exist. ``progress``: called with the number of files looked up.
        Cost: 1 HEAD each; on a remote store several at a time. Raises nothing."""
        gone: set[str] = set()
        threads = PARALLEL_GETS if self._files.store.is_remote else 0
        for number, some in enumerate(parts(names)):
            progress(number * AT_ONCE)
            there = self.regular_sizes(some)
            others = [name for name in some if name not in there]
            answers = mapped(others, self._is_missing, threads, PARALLEL_GETS)
            gone.update(name for name, is_missing in zip(others, answers, strict=True) if is_missing)
        return gone

    def _is_missing(self, name: str) -> bool:
        try:
            store, path = self._files.find(name)
            return store.head(path) is None
        except (DeltaLogError, OSError):
            # The file is outside the table, or the store is unreachable: whether the file exists is unknown.
            return False
