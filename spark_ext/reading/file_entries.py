"""Describes which files and rows to scan, for a version or for the changes in a range of versions."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow.compute as pc
from pyroaring import BitMap64

import deltalog

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
# Paths in a log that need no resolving: relative paths without escapes, "." and "..".
_PLAIN = re.compile(r"[\w=,-][\w.=,-]*(?:/[\w=,-][\w.=,-]*)*", re.ASCII)
COLUMNS = ("path", "partition_values", "size", "modification_time", "deletion_vector")
_FIRST_ROW_ID, _ROW_VERSION = "base_row_id", "default_row_commit_version"
_THREADS = 16


@dataclass(frozen=True, slots=True)
class Change:
    """The change that the rows of a file represent. ``kind``: None if a column of the file contains the kind of each
    row's change."""

    kind: str | None
    version: int
    timestamp_ms: int


def value(values: Mapping[str, str], name: str) -> str | None:
    """The partition value of a column. Writers may have spelled the column name in another case."""
    if name in values:
        return values[name]
    return next((text for key, text in values.items() if key.lower() == name.lower()), None)


def has_double_names(snapshot: deltalog.Snapshot, names: Sequence[str]) -> bool:
    """Whether two different paths in the log refer to the same file. Cost: as ``Snapshot.file_path`` for each path that
    is absolute or has escapes."""
    root = snapshot.file_path("x")[:-1]
    located = {root + name if _PLAIN.fullmatch(name) else snapshot.file_path(name) for name in names}
    return len(located) < len(names)


class Entry(NamedTuple):
    """Rows of one file to scan: only the rows at the positions ``kept``, all except the rows at ``dropped``, or all."""

    #: Absolute and decoded.
    path: str
    #: The partition values in the log, without nulls; an empty string is a null.
    values: Mapping[str, str]
    dropped: BitMap64 | None = None
    kept: BitMap64 | None = None
    change: Change | None = None
    #: The file's actual size on a local disk, otherwise its size in the log; None if the file is missing or not a
    #: regular file.
    size_bytes: int | None = None
    modified_ms: int = 0
    #: Row tracking: the file's base row id and default row commit version, for rows that do not store their own values.
    first_row_id: int | None = None
    row_version: int | None = None
    #: The positions of rows, keyed by outcome, for scans that return OUTCOME.
    outcomes: Mapping[int, BitMap64] | None = None


def of_snapshot(snapshot: deltalog.Snapshot, where: deltalog.Predicate | None = None) -> list[Entry]:
    """The live files, sorted by path, without repetition; with ``where`` only the files that data skipping keeps.

    Raises CorruptTableError, UnsafePathError, InvalidDataFileError. Cost: as ``Snapshot.files``, or ``Scan.files`` with
    ``where``; on a local disk 1 lstat for each file and each directory; 1 GET for each deletion vector that is stored
    in a file, 16 at a time.
    """
    scan = snapshot.scan(where=where)
    table = snapshot.files(COLUMNS) if where is None else scan.files().select(COLUMNS)
    entries = of_files(snapshot, table)
    entries.sort(key=lambda entry: entry.path)
    return entries


def of_files(snapshot: deltalog.Snapshot, table: Any, each_once: bool = True) -> list[Entry]:
    """Live files from rows of ``Snapshot.files``, in order. A file that the log lists twice, with two spellings of its
    path, is returned once; without ``each_once``, such a file raises CorruptTableError. Raises and costs as
    ``of_snapshot``."""
    names, sizes, times = (table[name].to_pylist() for name in ("path", "size", "modification_time"))
    values = values_of(table["partition_values"].combine_chunks())
    located = _located(snapshot, names, sizes, times)
    entries = [Entry(at[0], its, None, None, None, at[1], at[2]) for at, its in zip(located, values, strict=True)]
    if _FIRST_ROW_ID in table.column_names:
        tracked = zip(table[_FIRST_ROW_ID].to_pylist(), table[_ROW_VERSION].to_pylist(), strict=True)
        entries = [
            entry._replace(first_row_id=first, row_version=version)
            for entry, (first, version) in zip(entries, tracked, strict=True)
        ]
    vectors = _vectors(table["deletion_vector"].combine_chunks())
    if len({entry.path for entry in entries}) < len(entries):
        if not each_once:
            raise deltalog.CorruptTableError(
                f"Version {snapshot.version} of {snapshot.url} lists a file twice, under two spellings of its path, so "
                "its rows cannot be changed. Rewrite the table with DeltaTable.overwrite."
            )
        entries, vectors = _once(snapshot, entries, vectors)
    if vectors:
        with ThreadPoolExecutor(min(_THREADS, len(vectors))) as pool:
            decoded = pool.map(snapshot.scan().deleted_positions, vectors.values())
            for number, positions in zip(vectors, decoded, strict=True):
                entries[number] = entries[number]._replace(dropped=positions)
    return entries


def paths_of(snapshot: deltalog.Snapshot, table: Any) -> list[str]:
    """The absolute paths of files, as in the entries of ``of_files``. ``table``: rows of ``Snapshot.files``. Raises
    UnsafePathError. Cost: on a local disk 1 lstat for each file."""
    names, sizes, times = (table[name].to_pylist() for name in ("path", "size", "modification_time"))
    return [path for path, _, _ in _located(snapshot, names, sizes, times)]


_Located = tuple[str, "int | None", int]  # an absolute path, the size in bytes, the time of modification in ms


def _located(
    snapshot: deltalog.Snapshot, names: Sequence[str], sizes: Sequence[int | None], times: Sequence[int]
) -> Iterator[_Located]:
    """The locations, sizes and times of the files in the log. ``Snapshot.file_path`` resolves paths and checks links.
    In a directory that ``Snapshot.file_path`` has resolved, only the last segment of a plain path can still be a
    link."""
    below: dict[str, str] = {}
    for name, size, time in zip(names, sizes, times, strict=True):
        parent, _, last = name.rpartition("/")
        prefix, is_plain = below.get(parent), _PLAIN.fullmatch(name)
        if prefix is None or not is_plain:
            path = snapshot.file_path(name)
            if is_plain and path.endswith("/" + last):
                below[parent] = path[: -len(last)]
            is_checked = True
        else:
            path, is_checked = prefix + last, False
        if not path.startswith("/"):
            yield path, size, time
            continue
        try:
            seen = os.lstat(path)
            if stat.S_ISLNK(seen.st_mode):
                path = path if is_checked else snapshot.file_path(name)
                seen = os.stat(path)
        except OSError:
            yield path, None, time
            continue
        is_file = stat.S_ISREG(seen.st_mode)
        yield path, seen.st_size if is_file else None, seen.st_mtime_ns // 1_000_000


def values_of(column: Any) -> Iterator[Mapping[str, str]]:
    """The partition values of each file. Files with equal partition values share one mapping object."""
    keys = pc.unique(column.keys).to_pylist()
    # If a key occurs several times, its last value applies, as in JSON.
    texts = [pc.map_lookup(column, key, "last").to_pylist() for key in keys]
    known: dict[tuple[str | None, ...], Mapping[str, str]] = {}
    for row in zip(*texts, strict=True) if keys else [()] * len(column):
        values = known.get(row)
        if values is None:
            values = known[row] = {key: text for key, text in zip(keys, row, strict=True) if text}
        yield values


def _vectors(column: Any) -> dict[int, deltalog.engine.DeletionVector]:
    """The non-null deletion vectors in the column, keyed by row number."""
    numbers = pc.indices_nonzero(column.is_valid())
    vectors = column.take(numbers).to_pylist()
    return {at: deltalog.engine.DeletionVector(**each) for at, each in zip(numbers.to_pylist(), vectors, strict=True)}


def _once(
    snapshot: deltalog.Snapshot, entries: Sequence[Entry], vectors: Mapping[int, deltalog.engine.DeletionVector]
) -> tuple[list[Entry], dict[int, deltalog.engine.DeletionVector]]:
    """The entries without repeated files: Spark would return the rows of a repeated file twice."""
    found: dict[str, tuple[Entry, deltalog.engine.DeletionVector | None]] = {}
    for number, entry in enumerate(entries):
        state = (entry, vectors.get(number))
        first = found.setdefault(entry.path, state)
        if (first[0].values, first[1]) != (entry.values, state[1]):
            raise deltalog.CorruptTableError(
                f"Version {snapshot.version} lists the file {entry.path} twice, with different partition values or "
                "deletion vectors."
            )
    chosen = list(found.values())
    return [entry for entry, _ in chosen], {at: each for at, (_, each) in enumerate(chosen) if each is not None}


def of_changes(changes: deltalog.Changes) -> list[Entry]:
    """The files that contain the changes, in the order of ``Changes.files``. Cost: as ``Changes.files``, and a read of
    the deletion vectors."""
    return [entry for at, planned in changes.files() for entry in _changed(changes.snapshot, at, planned)]


def _changed(
    snapshot: deltalog.Snapshot, at: deltalog.CommitAt, planned: deltalog.results.ChangeFile
) -> Iterator[Entry]:
    file = planned.file
    values = {name: text for name, text in (file.partition_values or {}).items() if text}
    ((path, size, time),) = _located(snapshot, [file.path], [file.size], [0])
    scan = snapshot.scan()

    def positions(vector: deltalog.engine.DeletionVector | None) -> BitMap64 | None:
        return None if vector is None else scan.deleted_positions(vector)

    if planned.kind != "difference":
        vector = planned.before if planned.kind == "delete" else planned.after
        change = Change(planned.kind, at.version, at.timestamp_ms)
        yield Entry(path, values, positions(vector), None, change, size, time)
        return
    before, after = positions(planned.before), positions(planned.after)
    deleted = after if before is None or after is None else after - before
    restored = before if before is None or after is None else before - after
    for kind, kept in (("delete", deleted), ("insert", restored)):
        if kept:
            yield Entry(path, values, None, kept, Change(kind, at.version, at.timestamp_ms), size, time)
