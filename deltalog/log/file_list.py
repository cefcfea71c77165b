"""The list of a small table's live files, written as ``allFiles`` in its ``.crc``. Pure.

Like the totals, the list is derived from that of the previous version at each commit. deltalog writes these lists but
never uses them to read a table, because no writer verifies the lists against the checkpoint and the commits.

Spec: PROTOCOL.md#version-checksum-file-schema, #action-reconciliation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from deltalog.errors import InvalidCommitError
from deltalog.log.replay import file_key
from deltalog.log.table_totals import Totals
from deltalog.protocol.actions import AddFile
from deltalog.protocol.codec import CommitActions, decode_adds, encode_listed
from deltalog.protocol.paths import are_ordinary, base_name, is_plain

if TYPE_CHECKING:
    import pyarrow as pa

# As in delta-spark, a version with more live files than this has no list.
MAX_FILES = 50
# Longer lists are neither written nor kept up to date, because every commit would write such a list, and every open
# would read it.
MAX_BYTES = 64 << 10


class ListedFile(NamedTuple):
    """A file in the list. ``body``: the file's add action as JSON; None if the action cannot be included in a
    ``.crc``."""

    path: str
    size_bytes: int
    body: bytes | None


class FileList(msgspec.Struct, frozen=True):
    """The live files of a version, keyed by ``file_key``."""

    files: Mapping[str, ListedFile]

    @classmethod
    def from_adds(cls, adds: Sequence[AddFile]) -> FileList | None:
        """The file list for ``adds``, which must contain all live files; None if there are more than MAX_FILES."""
        return cls({}).with_adds(adds)

    @classmethod
    def decoded(cls, data: bytes) -> FileList | None:
        """The file list in the field ``allFiles`` of a ``.crc``, which is untrusted; None if the list cannot be decoded
        or is too long."""
        try:
            adds = decode_adds(data) if len(data) <= MAX_BYTES else None
        except InvalidCommitError:
            return None
        # delta-spark reads missing tags in a list as empty tags, and writes empty tags to the next list.
        return (
            None
            if adds is None
            else cls.from_adds([msgspec.structs.replace(add, tags=add.tags or None) for add in adds])
        )

    def after(self, commit: CommitActions) -> FileList | None:
        """The list after a commit; None if it exceeds MAX_FILES."""
        left = dict(self.files)
        for remove in commit.removes:
            left.pop(file_key(remove.path, remove.deletion_vector), None)
        return FileList(left).with_adds(commit.adds)

    def with_adds(self, adds: Sequence[AddFile]) -> FileList | None:
        """The list with these files added, replacing files with the same key; None if there are more than MAX_FILES."""
        if len(adds) > MAX_FILES:
            return None
        files = {**self.files, **{file_key(add.path, add.deletion_vector): _listed(add) for add in adds}}
        return FileList(files) if len(files) <= MAX_FILES else None

    def names_paths_of(self, files: pa.Table) -> bool:
        """Whether the rows of ``files`` (schema FILES) and this list contain the same paths."""
        if len(self.files) != files.num_rows:
            return False
        return {file.path for file in self.files.values()} == set(files["path"].to_pylist())

    def has(self, totals: Totals) -> bool:
        """Whether the list has as many files and bytes as ``totals``."""
        return (len(self.files), sum(file.size_bytes for file in self.files.values())) == (
            totals.num_files,
            totals.size_bytes,
        )

    def encoded(self, totals: Totals) -> bytes | None:
        """The list as JSON; None if its number of files or bytes differs from ``totals``, if a file cannot be listed,
        or if the list is larger than MAX_BYTES."""
        files = self.files.values()
        bodies = [file.body for file in files if file.body is not None]
        if len(bodies) < len(files) or not self.has(totals):
            return None
        size = sum(map(len, bodies)) + len(bodies) + 1
        return b"[" + b",".join(bodies) + b"]" if size <= MAX_BYTES else None


def _listed(add: AddFile) -> ListedFile:
    """The list entry for an add action; it equals the entry that a replay of the log would give. The body of the entry
    is None if the statistics alone exceed MAX_BYTES, or if the path is absolute or not plain; delta-spark normalises
    such paths before it compares them."""
    is_short = len(add.stats or "") <= MAX_BYTES
    is_simple = are_ordinary([add.path]) or (is_plain(add.path) and base_name(add.path) is None)
    return ListedFile(add.path, add.size, encode_listed(add) if is_short and is_simple else None)
