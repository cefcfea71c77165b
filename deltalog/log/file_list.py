"""The live files of a version that has few, as the ``allFiles`` of its ``.crc``. Pure.

A commit derives the list from that of the version before, as it does with the totals. deltalog writes these lists and
reads no table by them: no writer compares them with the checkpoint and the commits.

Spec: PROTOCOL.md#version-checksum-file-schema, #action-reconciliation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import pyarrow as pa

from deltalog.errors import InvalidCommitError
from deltalog.log.replay import file_key
from deltalog.log.table_totals import Totals
from deltalog.protocol.actions import AddFile
from deltalog.protocol.codec import CommitActions, decode_adds, encode_listed
from deltalog.protocol.paths import are_ordinary, base_name, is_plain

# As in delta-spark: of more files there is no list, neither before nor after a commit.
MAX_FILES = 50
# Longer lists are neither written nor continued: each commit writes its list, and each opening reads the latest.
MAX_BYTES = 64 << 10


class ListedFile(NamedTuple):
    """``body``: its add action as JSON, None where that cannot be listed."""

    path: str
    size_bytes: int
    body: bytes | None


@dataclass(frozen=True, slots=True)
class FileList:
    """The live files of a version, by ``file_key``."""

    files: Mapping[str, ListedFile]

    @classmethod
    def of(cls, adds: Sequence[AddFile]) -> FileList | None:
        """Of all live files; None above MAX_FILES."""
        return cls({}).with_adds(adds)

    @classmethod
    def decoded(cls, data: bytes) -> FileList | None:
        """By the ``allFiles`` of a ``.crc`` (untrusted); None where they cannot be read, and above the bounds."""
        try:
            adds = decode_adds(data) if len(data) <= MAX_BYTES else None
        except InvalidCommitError:
            return None
        # delta-spark takes the tags that a list does not mention for empty ones, and writes them so with its next list.
        return None if adds is None else cls.of([msgspec.structs.replace(add, tags=add.tags or None) for add in adds])

    def after(self, commit: CommitActions) -> FileList | None:
        """The live files after a commit; None above MAX_FILES."""
        left = dict(self.files)
        for remove in commit.removes:
            left.pop(file_key(remove.path, remove.deletion_vector), None)
        return FileList(left).with_adds(commit.adds)

    def with_adds(self, adds: Sequence[AddFile]) -> FileList | None:
        """Of these files too, which take the place of those with their keys; None above MAX_FILES."""
        if len(adds) > MAX_FILES:
            return None
        files = {**self.files, **{file_key(add.path, add.deletion_vector): _listed(add) for add in adds}}
        return FileList(files) if len(files) <= MAX_FILES else None

    def names_paths_of(self, files: pa.Table) -> bool:
        """Whether the rows of ``files``, schema FILES, have the same paths."""
        if len(self.files) != files.num_rows:
            return False
        return {file.path for file in self.files.values()} == set(files["path"].to_pylist())

    def encoded(self, totals: Totals) -> bytes | None:
        """The list as JSON; None where number or bytes are not those of ``totals``, where a file cannot be listed, and
        above MAX_BYTES."""
        files = self.files.values()
        bodies = [file.body for file in files if file.body is not None]
        found = len(bodies), sum(file.size_bytes for file in files)
        if len(bodies) < len(files) or found != (totals.num_files, totals.size_bytes):
            return None
        size = sum(map(len, bodies)) + len(bodies) + 1
        return b"[" + b",".join(bodies) + b"]" if size <= MAX_BYTES else None


def _listed(add: AddFile) -> ListedFile:
    """As a replay gives it. None for a body that alone is over the bound, and where the path is absolute or not plain:
    delta-spark compares these in another form than the log's."""
    is_short = len(add.stats or "") <= MAX_BYTES
    is_simple = are_ordinary([add.path]) or (is_plain(add.path) and base_name(add.path) is None)
    return ListedFile(add.path, add.size, encode_listed(add) if is_short and is_simple else None)
