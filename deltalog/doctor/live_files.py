"""Tracks the live files from commit to commit, and checks how commits change them. Pure.

Spec: PROTOCOL.md#action-reconciliation, #add-file-and-remove-file, #delta-log-entries-1. A live file takes about 350
bytes of memory.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from deltalog.doctor.commit_lines import Actions
from deltalog.doctor.file_entries import Rules, identity, num_records_of
from deltalog.doctor.findings import Finding, found
from deltalog.log.table_totals import DELETED_BINS, SIZE_BINS
from deltalog.protocol.actions import AddFile, DeletionVector, RemoveFile
from deltalog.protocol.paths import Place

_PACKED, _MARK = struct.Struct("<qqqqqqQI"), struct.Struct("<I")
_MARK_BYTES, _HASH_BITS = 4, 2**64 - 1
# Operations (None: unknown) that may add a file with an earlier default row commit version: a restored or cloned file
# keeps its own.
_KEEP_ROW_VERSIONS = (None, "RESTORE", "CLONE")


class Entry(NamedTuple):
    """The properties of a live file that are kept in memory; -1 for absent values. ``version``: the first version in
    which the file is live, according to the part of the log that still exists. ``digest``: ``digest_of`` its add
    action. ``round``: the last round of ``LiveFiles.mark`` in which the file was marked."""

    version: int
    size: int
    deleted: int
    records: int
    base_row_id: int
    row_version: int
    digest: int
    round: int


def digest_of(add: AddFile) -> int:
    """A hash of an add action that ignores statistics, tags and dataChange."""
    values, vector = add.partition_values, add.deletion_vector
    key = (
        add.size, add.modification_time, add.base_row_id, add.default_row_commit_version,
        tuple(sorted((name, value or None) for name, value in values.items())) if values else (),
        None if vector is None else (vector.unique_id, vector.cardinality, vector.size_in_bytes),
    )  # fmt: skip
    return hash(key) & _HASH_BITS


def vector_id(vector: DeletionVector | None) -> str | None:
    return None if vector is None else vector.unique_id


@dataclass(slots=True)
class LiveFiles:
    """The live files, keyed by path as spelled in the log."""

    place: Place
    packed: dict[str, bytes] = field(default_factory=dict)
    vectors: dict[str, str] = field(default_factory=dict)
    # For each normalized path, the spellings in the log that differ from it.
    odd: dict[str, set[str]] = field(default_factory=dict)
    size_bytes: int = 0
    deleted: int = 0
    size_counts: list[int] = field(default_factory=lambda: [0] * len(SIZE_BINS))
    size_sums: list[int] = field(default_factory=lambda: [0] * len(SIZE_BINS))
    deleted_counts: list[int] = field(default_factory=lambda: [0] * len(DELETED_BINS))
    round: int = 0
    marked: int = 0  # the number of files that were marked in this round

    def __len__(self) -> int:
        return len(self.packed)

    def get(self, path: str) -> Entry | None:
        """The entry of a live file."""
        data = self.packed.get(path)
        return None if data is None else Entry._make(_PACKED.unpack(data))

    def sizes(self, paths: Iterable[str]) -> dict[str, int]:
        """The sizes in bytes of live files."""
        return {path: _PACKED.unpack(self.packed[path])[1] for path in paths}

    def start_round(self) -> None:
        """Unmark all files. Marks take no memory, unlike a set of paths."""
        self.round, self.marked = self.round + 1, 0

    def mark(self, path: str) -> None:
        """Mark a live file that is not yet marked in this round."""
        self.packed[path] = self.packed[path][:-_MARK_BYTES] + _MARK.pack(self.round)
        self.marked += 1

    def is_marked(self, path: str) -> bool:
        entry = self.get(path)
        return entry is not None and entry.round == self.round

    def unmarked(self) -> Iterator[str]:
        """The live files that were not marked in this round."""
        mark = _MARK.pack(self.round)
        return (path for path, data in self.packed.items() if not data.endswith(mark))

    def put(self, add: AddFile, version: int) -> None:
        """Add a file that has been live since ``version``, replacing any entry with the same path."""
        if add.path in self.packed:
            self.drop(add.path)
        vector = add.deletion_vector
        deleted = -1 if vector is None else vector.cardinality
        records = num_records_of(add)
        entry = Entry(
            version, add.size, deleted, -1 if records is None or records >= 2**63 else records,
            -1 if add.base_row_id is None else add.base_row_id,
            -1 if add.default_row_commit_version is None else add.default_row_commit_version, digest_of(add), 0,
        )  # fmt: skip
        self.packed[add.path] = _PACKED.pack(*entry)
        if vector is not None:
            self.vectors[add.path] = vector.unique_id
        same = identity(add.path, self.place)
        if same != add.path:
            self.odd.setdefault(same, set()).add(add.path)
        self._count(entry, 1)

    def drop(self, path: str) -> None:
        """Remove a live file, if present."""
        entry = self.get(path)
        if entry is None:
            return
        del self.packed[path]
        self.vectors.pop(path, None)
        same = identity(path, self.place)
        if same != path and same in self.odd:
            self.odd[same].discard(path)
            if not self.odd[same]:
                del self.odd[same]
        self._count(entry, -1)

    def _count(self, entry: Entry, sign: int) -> None:
        self.size_bytes += sign * entry.size
        at = bisect.bisect_right(SIZE_BINS, entry.size) - 1
        self.size_counts[at] += sign
        self.size_sums[at] += sign * entry.size
        deleted = max(entry.deleted, 0)
        self.deleted += sign * deleted
        self.deleted_counts[bisect.bisect_right(DELETED_BINS, deleted) - 1] += sign

    def other_spellings(self, path: str) -> list[str]:
        """The live files whose paths are other spellings of this path."""
        if not self.odd:
            return []
        same = identity(path, self.place)
        others = set(self.odd.get(same, ()))
        if same in self.packed:
            others.add(same)
        return sorted(others - {path})


def apply(files: LiveFiles, actions: Actions, version: int, rules: Rules | None, is_exact: bool) -> Iterator[Finding]:
    """Apply a commit to ``files``. ``is_exact``: whether all live files before the commit are known."""
    yield from _examine_pairs(actions, version)
    before: dict[str, Entry] = {}
    for remove in actions.removes:
        live = files.get(remove.path)
        if live is not None and files.vectors.get(remove.path) == vector_id(remove.deletion_vector):
            before[remove.path] = live
            yield from _examine_removed_ids(remove, live, version, rules)
            files.drop(remove.path)
        elif is_exact:
            text = "The file is not live." if live is None else "The file is live with another deletion vector."
            yield found("remove-not-live", text, version, remove.path)
    new, tracks_rows = False, rules is not None and rules.tracks_rows
    operation = actions.info.operation if actions.info is not None else None
    for add in actions.adds:
        live = files.get(add.path)
        if live is not None and files.vectors.get(add.path) != vector_id(add.deletion_vector):
            text = f"The vector of the live file is {(files.vectors.get(add.path) or 'none')[:80]}."
            yield found("file-live-with-two-vectors", text, version, add.path)
        new = new or live is None
        if tracks_rows:
            yield from _examine_row_ids(add, live or before.get(add.path), version, operation)
        # If a file is re-added unchanged, it has been live since its earlier version.
        same = live is not None and files.vectors.get(add.path) == vector_id(add.deletion_vector)
        files.put(add, live.version if same and live is not None else version)
    for add in actions.adds if files.odd else ():
        for other in files.other_spellings(add.path):
            yield found("file-live-twice", f"The file is also live as {other!r}.", version, add.path)
    if is_exact and new and actions.adds and not actions.removes and all(not add.data_change for add in actions.adds):
        yield found("data-change-contradicts", f"The commit adds {len(actions.adds)} files.", version)


def _examine_pairs(actions: Actions, version: int) -> Iterator[Finding]:
    adds = {add.path: vector_id(add.deletion_vector) for add in actions.adds}
    removes = {remove.path: vector_id(remove.deletion_vector) for remove in actions.removes}
    for rule, kind, files, unique in (
        ("file-added-twice", "add", actions.adds, adds),
        ("file-removed-twice", "remove", actions.removes, removes),
    ):
        if len(unique) < len(files):
            for path in repeated(files):
                yield found(rule, f"The commit has several {kind} actions for the file.", version, path)
    for path in adds.keys() & removes.keys():
        if adds[path] == removes[path]:
            yield found("commit-add-and-remove", "The commit adds and removes the file.", version, path)


def repeated(files: Iterable[AddFile | RemoveFile]) -> list[str]:
    """The paths that occur more than once."""
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for file in files:
        if file.path in seen:
            twice[file.path] = None
        seen.add(file.path)
    return list(twice)


def _examine_removed_ids(remove: RemoveFile, live: Entry, version: int, rules: Rules | None) -> Iterator[Finding]:
    if rules is None or not rules.tracks_rows or live.base_row_id < 0:
        return
    if (remove.base_row_id, remove.default_row_commit_version) != (live.base_row_id, live.row_version):
        text = f"The file has row id {live.base_row_id} of version {live.row_version}, but its remove action has "
        text += f"{remove.base_row_id} of version {remove.default_row_commit_version}."
        yield found("remove-row-id-differs", text, version, remove.path)


def _examine_row_ids(add: AddFile, live: Entry | None, version: int, operation: str | None) -> Iterator[Finding]:
    if add.base_row_id is None or add.default_row_commit_version is None:
        missing = "baseRowId" if add.base_row_id is None else "defaultRowCommitVersion"
        yield found("row-id-missing", f"The add action has no {missing}.", version, add.path)
    elif live is not None and live.base_row_id >= 0:
        if (live.base_row_id, live.row_version) != (add.base_row_id, add.default_row_commit_version):
            text = f"It was {live.base_row_id} of version {live.row_version} and is now {add.base_row_id} of version "
            yield found("row-id-changed", f"{text}{add.default_row_commit_version}.", version, add.path)
    elif live is None and (
        add.default_row_commit_version > version
        or (add.default_row_commit_version < version and operation not in _KEEP_ROW_VERSIONS)
    ):
        yield found(
            "row-commit-version-wrong",
            f"defaultRowCommitVersion is {add.default_row_commit_version}.",
            version,
            add.path,
        )


def examine_row_ids(files: LiveFiles, mark: int | None, version: int, is_enabled: bool) -> Iterator[Finding]:
    """Check the row ids of the live files: none may be missing if row tracking is enabled, and they must neither
    overlap nor exceed ``mark``, the high-water mark (None if there is none)."""
    ranges = []
    for path in files.packed:
        entry = files.get(path)
        if is_enabled and entry is not None and (entry.base_row_id < 0 or entry.row_version < 0):
            missing = "baseRowId" if entry.base_row_id < 0 else "defaultRowCommitVersion"
            yield found("row-id-missing", f"The live file has no {missing}.", version, path)
        if entry is not None and entry.base_row_id >= 0:
            ranges.append((entry.base_row_id, max(entry.records, 1), path))
    ranges.sort()
    end, owner = -1, ""
    for first, number, path in ranges:
        if first < end:
            yield found(
                "row-id-overlap", f"The row ids start at {first}; those of {owner} end at {end - 1}.", version, path
            )
        if first + number > end:
            end, owner = first + number, path
    if ranges and (mark is None or mark < end - 1):
        text = f"The highest row id is {end - 1}; the high-water mark is {'missing' if mark is None else mark}."
        yield found("row-id-high-water-mark", text, version)
