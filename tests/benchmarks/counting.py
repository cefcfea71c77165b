"""A local store that counts what is asked of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from deltalog.storage.base import FileMeta
from deltalog.storage.fs import LocalStore


class CountingStore(LocalStore):
    """Counts by kind: commit reads (whole or head), other reads, checkpoint reads, HEADs, listings.

    ``full listings`` begin at the first name, ``listings`` at a later one.
    """

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._counts: Counter[str] = Counter()

    def taken(self) -> dict[str, int]:
        """What was counted since the last call."""
        counts, self._counts = dict(self._counts), Counter()
        return counts

    def get(self, path: str, length: int | None = None) -> bytes:
        self._read(path)
        return super().get(path, length)

    def get_many(self, paths: Sequence[str]) -> list[bytes]:
        for path in paths:
            self._read(path)
        # Not super(): whether it calls get, and counts again, is its own affair.
        return [LocalStore.get(self, path) for path in paths]

    def _read(self, path: str) -> None:
        name = path.rsplit("/", 1)[-1]
        self._counts["commit reads" if name.endswith(".json") and name[:20].isdecimal() else "other reads"] += 1

    def list_names(self, directory: str, start: str = "") -> list[str]:
        self._counts["listings" if start else "full listings"] += 1
        return super().list_names(directory, start)

    def list_from(self, directory: str, start: str = "", *, stat: bool = True) -> list[FileMeta]:
        self._counts["listings" if start else "full listings"] += 1
        return super().list_from(directory, start, stat=stat)

    def head(self, path: str) -> FileMeta | None:
        self._counts["heads"] += 1
        return super().head(path)

    def open_input(self, path: str) -> Any:
        self._counts["checkpoint reads"] += 1
        return super().open_input(path)
