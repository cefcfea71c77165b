"""Which rows of which files are read: for a version, or for the changes of a range of versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

import deltalog

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"


@dataclass(frozen=True, slots=True)
class Change:
    """The change that the rows of a file represent. ``kind`` is None if the file has it in a column."""

    kind: str | None
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One reading of one file: the rows at ``kept``, else those not at ``dropped``, else all.

    ``path``: absolute and decoded. ``values``: the partition values as the log has them, "" being null already.
    """

    path: str
    values: Mapping[str, str | None]
    dropped: BitMap64 | None = None
    kept: BitMap64 | None = None
    change: Change | None = None


def of_snapshot(snapshot: deltalog.Snapshot) -> list[Entry]:
    """The live files in the order of their paths, each once.

    Raises CorruptTableError, UnsafePathError, InvalidDataFileError. Cost: as ``Snapshot.files``, and 1 GET for each
    deletion vector that is in a file.
    """
    table = snapshot.files().select(["path", "partition_values", "deletion_vector"])
    scan = snapshot.scan()
    seen: dict[str, tuple[Mapping[str, str | None], deltalog.DeletionVector | None]] = {}
    columns = (table[name].to_pylist() for name in ("path", "partition_values", "deletion_vector"))
    for named, pairs, vector in zip(*columns, strict=True):
        state = (_values(pairs), None if vector is None else deltalog.DeletionVector(**vector))
        path = snapshot.file_path(named)
        # Two spellings of one path: Spark would return its rows twice.
        if seen.setdefault(path, state) != state:
            raise deltalog.CorruptTableError(
                f"Version {snapshot.version} lists the file {path} twice, with different partition values or "
                "deletion vectors."
            )
    found = []
    for path, (values, vector) in sorted(seen.items(), key=lambda item: item[0]):
        found.append(Entry(path, values, None if vector is None else scan.deleted_positions(vector)))
    return found


def of_changes(changes: deltalog.Changes) -> list[Entry]:
    """The files of the changes, in the order of ``Changes.files``. Cost: as that, and the deletion vectors."""
    return [entry for at, planned in changes.files() for entry in _changed(changes.snapshot, at, planned)]


def _changed(snapshot: deltalog.Snapshot, at: deltalog.CommitAt, planned: deltalog.ChangeFile) -> Iterator[Entry]:
    path, values = snapshot.file_path(planned.file.path), _values(planned.file.partition_values)
    scan = snapshot.scan()

    def positions(vector: deltalog.DeletionVector | None) -> BitMap64 | None:
        return None if vector is None else scan.deleted_positions(vector)

    if planned.kind != "difference":
        vector = planned.before if planned.kind == "delete" else planned.after
        change = Change(planned.kind, at.version, at.timestamp_ms)
        yield Entry(path, values, dropped=positions(vector), change=change)
        return
    before, after = positions(planned.before), positions(planned.after)
    deleted = after if before is None or after is None else after - before
    restored = before if before is None or after is None else before - after
    for kind, kept in (("delete", deleted), ("insert", restored)):
        if kept:
            yield Entry(path, values, kept=kept, change=Change(kind, at.version, at.timestamp_ms))


def _values(pairs: Any) -> dict[str, str | None]:
    items = pairs.items() if isinstance(pairs, Mapping) else pairs or ()
    return {name: text or None for name, text in items}
