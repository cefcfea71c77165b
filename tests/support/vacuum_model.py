"""For checking vacuums: the files that each version of a table needs, computed only from the JSON of the table's log.
The module shares no code with vacuum, except the function that names deletion vector files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.deletion_vectors import relative_path


class VacuumModel:
    """By version: ``live``: the files that contain the rows of the version; ``changes``: the files of its change data
    feed; ``removed``: the files that it removed; ``times``: its commit time. By path: ``tombstones``: for each removed
    file, the time of its latest removal. Deletion vector files are included."""

    def __init__(self, log: Mapping[int, bytes]) -> None:
        self.live: dict[int, set[str]] = {}
        self.times: dict[int, int] = {}
        self.tombstones: dict[str, int] = {}
        self.changes: dict[int, set[str]] = {}
        self.removed: dict[int, set[str]] = {}
        files: dict[str, set[str]] = {}
        for version, data in sorted(log.items()):
            self.changes[version], self.removed[version] = set(), set()
            for line in data.splitlines():
                ((kind, body),) = json.loads(line).items()
                if kind == "commitInfo":
                    self.times[version] = body.get("inCommitTimestamp", body["timestamp"])
                elif kind == "remove":
                    for path in files.pop(body["path"], set()) | set(names(body)):
                        self.tombstones[path] = max(self.tombstones.get(path, 0), body["deletionTimestamp"])
                        self.removed[version].add(path)
                elif kind == "cdc":
                    self.changes[version].add(body["path"])
            for line in data.splitlines():
                ((kind, body),) = json.loads(line).items()
                if kind == "add":
                    files[body["path"]] = set(names(body))
            self.live[version] = set().union(*files.values())

    def since(self, version: int) -> set[str]:
        """The files that the given version or any later version needs."""
        later = [each for each in self.live if each >= version]
        return set().union(*(self.live[v] for v in later), *(self.changes[v] for v in later if v > version))

    def needed(self, cutoff_ms: int) -> set[str]:
        """The files that a vacuum with this cut-off time must keep."""
        unexpired = {path for path, time_ms in self.tombstones.items() if time_ms > cutoff_ms}
        return unexpired | self.since(self.current(cutoff_ms))

    def current(self, cutoff_ms: int) -> int:
        """The version that was the latest at a time; version 0 if the time is before all commits."""
        return max((v for v in self.live if self.times[v] <= cutoff_ms), default=0)

    def removed_before(self, cutoff_ms: int) -> set[str]:
        """The files that commits up to a cut-off time removed, and the change data files that these commits wrote."""
        before = [v for v in self.live if v <= self.current(cutoff_ms) and self.times[v] <= cutoff_ms]
        return {path for v in before for path in self.removed[v] | self.changes[v]}


def names(body: dict[str, Any]) -> Iterator[str]:
    """The files named in an add or remove action."""
    yield body["path"]
    vector = body.get("deletionVector")
    if vector is not None and vector["storageType"] == "u":
        yield relative_path(DeletionVector("u", vector["pathOrInlineDv"], 0, 0))
