"""A log of any length that needs no memory for its contents: commits and checksums are generated when they are read."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable
from typing import Any

from deltalog import DeltaTable
from deltalog.errors import ObjectNotFoundError
from deltalog.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIRECTORY,
    LogFileKind,
    checkpoint_name,
    checksum_path,
    commit_name,
    commit_path,
    log_path,
    parse_log_file,
    version_prefix,
)
from deltalog.storage.base import FileMeta
from deltalog.storage.memory import MemoryStore
from tests.support.core import ICT, SCHEMA, Clock, environment, memory, rows


class GeneratedLog(MemoryStore):
    """Versions 0 to ``last`` with in-commit timestamps and ``.crc`` files, and a checkpoint every ``interval`` versions
    that is listed but cannot be read.

    ``time_of``: the in-commit timestamp of a version, in milliseconds since 1970.
    """

    def __init__(self, last: int, interval: int, time_of: Callable[[int], int]) -> None:
        super().__init__("memory://generated")
        self.last, self.interval, self.time_of = last, interval, time_of
        first = memory(Clock(time_of(0)))
        properties = {**ICT, "delta.checkpointInterval": str(interval)}
        clock = environment(Clock(time_of(0)))
        DeltaTable.create(first, SCHEMA, properties=properties, environment=clock, data=rows(0))
        self._first = [json.loads(line) for line in first.get(commit_path(0)).splitlines()]
        self._checksum = json.loads(first.get(checksum_path(0)))
        self.put(log_path(LAST_CHECKPOINT), b'{"version":%d,"size":2}' % (last // interval * interval))

    def get(self, path: str, length: int | None = None) -> bytes:
        file = parse_log_file(path.rpartition("/")[2])
        if file is None:
            return super().get(path, length)
        if file.version > self.last:
            raise ObjectNotFoundError(f"{self.url} has no object {path}.", path=path)
        if file.kind is LogFileKind.COMMIT:
            return self._commit(file.version)[:length]
        if file.kind is LogFileKind.CHECKSUM:
            return json.dumps({**self._checksum, **self._own(file.version)}).encode()[:length]
        raise AssertionError(f"{path} is not read")

    def _own(self, version: int) -> dict[str, Any]:
        return {"txnId": f"txn-{version}", "inCommitTimestampOpt": self.time_of(version)}

    def _commit(self, version: int) -> bytes:
        info = {**self._first[0]["commitInfo"], "txnId": f"txn-{version}", "inCommitTimestamp": self.time_of(version)}
        actions = [{"commitInfo": info}, *(self._first[1:] if version == 0 else self._first[-1:])]
        return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()

    def head(self, path: str) -> FileMeta | None:
        file = parse_log_file(path.rpartition("/")[2])
        if file is None or file.kind is not LogFileKind.COMMIT:
            return super().head(path)
        if file.version > self.last:
            return None
        return FileMeta(file.name, len(self._commit(file.version)), self.time_of(file.version))

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        assert (directory == LOG_DIRECTORY and limit is not None) or start >= version_prefix(self.last - self.interval)
        count = (limit or 3 * self.interval) + 3
        first = int(start[:20])
        names = [name for version in range(first, min(self.last + 1, first + count)) for name in self._names(version)]
        names.append("_last_checkpoint")
        return [FileMeta(name, 1, self.time_of(0)) for name in names[bisect.bisect_left(names, start) :]][:limit]

    def _names(self, version: int) -> list[str]:
        names = [f"{version:020d}.crc", commit_name(version)]
        return sorted([*names, checkpoint_name(version)]) if version and version % self.interval == 0 else names
