"""The store of a table in a transaction, which contains the log up to the version that the transaction reads, then the
transaction's commits."""

from __future__ import annotations

from collections.abc import Sequence

from deltalog.commit.attempt import Attempt
from deltalog.errors import CallError
from deltalog.protocol.paths import LOG_DIRECTORY, commit_name, commit_version
from deltalog.storage.base import FileMeta, LogStore, PutOutcome
from deltalog.storage.wrapped import WrappedStore


class BranchStore(WrappedStore[LogStore]):
    """The store of a table within a transaction. The log is read-only: BranchCommitter adds the commits, and no log
    file is written before the transaction is committed."""

    def __init__(self, inner: LogStore) -> None:
        super().__init__(inner)
        self._commits: dict[str, bytes] = {}

    def extend(self, attempt: Attempt) -> None:
        self._commits[commit_name(attempt.actions.version)] = attempt.data

    def get(self, path: str, length: int | None = None) -> bytes:
        own = self._own(path)
        return self.inner.get(path, length) if own is None else own[:length]

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        if any(self._own(path) is not None for path in paths):
            return [self.get(path, length) for path in paths]
        return self.inner.get_many(paths, length)

    def head(self, path: str) -> FileMeta | None:
        own = self._own(path)
        return self.inner.head(path) if own is None else _meta(path.rpartition("/")[2], own)

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        listed = self.inner.list_from(directory, start, stat=stat, limit=limit)
        if directory != LOG_DIRECTORY:
            return listed
        own = [_meta(name, data) for name, data in self._commits.items() if name >= start]
        return sorted([*listed, *own], key=lambda meta: meta.name)[:limit]

    def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
        names = self.inner.list_names(directory, start, limit=limit)
        if directory != LOG_DIRECTORY:
            return names
        together = [*names, *(name for name in self._commits if name >= start)]
        return together if limit is None else sorted(together)[:limit]

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        _check_is_data(path)
        return self.inner.put_if_absent(path, data)

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        _check_is_data(path)
        self.inner.put(path, data, durable=durable)

    def delete(self, path: str) -> None:
        _check_is_data(path)
        self.inner.delete(path)

    def _own(self, path: str) -> bytes | None:
        return self._commits.get(path.rpartition("/")[2]) if commit_version(path) is not None else None


def _check_is_data(path: str) -> None:
    if path.startswith(f"{LOG_DIRECTORY}/"):
        raise CallError(f"{path}: a transaction over several tables does not write log files before it is committed.")


def _meta(name: str, data: bytes) -> FileMeta:
    return FileMeta(name, len(data), 0)
