"""Symlink manifests for engines that do not read the log, such as Presto, Trino, Athena and Hive
(SymlinkTextInputFormat): below ``_symlink_format_manifest``, a text file for each partition lists the locations of the
partition's live files.

Each manifest is replaced atomically, but the set of manifests is not: a reader may see manifests of two versions.

Spec: PROTOCOL.md leaves manifests to writers; #add-file-and-remove-file defines the files of a version.
"""

from __future__ import annotations

from collections import defaultdict

from deltalog.errors import CallError, UnsafePathError
from deltalog.protocol import column_mapping, partitions
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import EntryKind, LogStore
from deltalog.write.table_handle import TableHandle

DIRECTORY = "_symlink_format_manifest"
_NAME = "manifest"


def write_manifests(handle: TableHandle) -> tuple[str, ...]:
    """See ``DeltaTable.generate``."""
    store = handle.reader.store
    if handle.reader.authority.branch is not None:
        raise CallError(f"{store.url}: manifests cannot be written in a transaction. Write them after the commit.")
    snapshot = handle.refresh()
    _check_readable_without_log(snapshot)
    manifests = _manifests(snapshot)
    target = store.link_target(DIRECTORY)
    if target is not None:
        raise UnsafePathError(
            f"{store.url}: {DIRECTORY} is a symbolic link to {target}. Nothing was written. Remove the link.",
            path=DIRECTORY,
        )
    before = _existing(store)
    for path, locations in manifests.items():
        store.put(path, "".join(f"{location}\n" for location in locations).encode())
    for path in sorted(before - manifests.keys()):
        store.delete(path)
    return tuple(manifests)


def _check_readable_without_log(snapshot: Snapshot) -> None:
    """Raise CallError if engines that read only the files would return deleted rows or physical column names."""
    if column_mapping.mode_of(snapshot.metadata.configuration) != "none":
        raise CallError(
            f"{snapshot.url} has column mapping: readers of manifests would return the physical column names of its "
            "files. No manifest was written."
        )
    vectors = snapshot.files(["deletion_vector"])["deletion_vector"]
    number = len(vectors) - vectors.null_count
    if number:
        raise CallError(
            f"{snapshot.url} has {number} files with deletion vectors: readers of manifests would return the deleted "
            "rows. Purge them first (table.optimize.purge()), and turn delta.enableDeletionVectors off. No manifest "
            "was written."
        )


def _manifests(snapshot: Snapshot) -> dict[str, list[str]]:
    """The locations of the live files, keyed by the path of their manifest. An unpartitioned table without files has an
    empty manifest. Raises UnsafePathError."""
    columns = snapshot.partition_columns
    found: dict[str, list[str]] = defaultdict(list)
    if not columns:
        found[f"{DIRECTORY}/{_NAME}"] = []
    files = snapshot.files(["path", "partition_values"])
    for path, pairs in zip(files["path"].to_pylist(), files["partition_values"].to_pylist(), strict=True):
        values = dict(pairs or ())
        directory = partitions.directory({name: values[name] for name in columns})
        manifest = f"{DIRECTORY}/{directory}/{_NAME}" if directory else f"{DIRECTORY}/{_NAME}"
        found[manifest].append(_location(snapshot, path))
    return {path: sorted(locations) for path, locations in sorted(found.items())}


def _location(snapshot: Snapshot, named: str) -> str:
    """A file's location as a Hadoop path, with a scheme and without percent-encoding."""
    location = snapshot.reader.files.location(named)
    return f"file:{location}" if location.startswith("/") else location


def _existing(store: LogStore) -> set[str]:
    """The paths of existing manifests. Raises CallError if the store cannot list recursively."""
    below = f"{DIRECTORY}/"
    entries = store.walk(lambda directory: f"{directory}/".startswith(below))
    return {
        entry.path
        for entry in entries
        if entry.kind is EntryKind.FILE and entry.path.startswith(below) and entry.path.endswith(f"/{_NAME}")
    }
