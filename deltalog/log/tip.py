"""Tip: identifies the commit of a version. The version number alone does not identify the commit, because a table can
be deleted and created again, or replaced by an older copy of itself, after which other writers commit the same version
numbers again.
Spec: PROTOCOL.md#delta-log-entries, #commit-provenance-information.
"""

from __future__ import annotations

from collections.abc import Iterable

from deltalog.arguments import safe_repr
from deltalog.errors import InvalidCommitError, MissingVersionError, TableReplacedError
from deltalog.log.reader import LogReader
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import commit_path
from deltalog.storage.base import FileMeta, etag_of, get_or_none

# The ETag of larger commits is not computed, because that takes longer than reading their beginning.
_LARGE_BYTES = 4 << 20


class Tip:
    """The facts that identify the commit of one version, as far as they have been read or written. Threads may share
    it.

    ``txn_id``: the txnId in the commit's commitInfo; None if the commitInfo was not read or contains no txnId.
    ``meta``: the metadata that the store returned for the commit file; None if the store has not returned it yet.
    ``is_misplaced``: whether the commit was written to the log of another table, which had replaced the expected table.
    In that case, snapshots that were built from this commit are wrong, and the tip matches no commit file in the log.
    """

    def __init__(self, version: int, txn_id: str | None = None, meta: FileMeta | None = None) -> None:
        self.version = version
        self.txn_id = txn_id
        self.meta = meta
        self.is_misplaced = False
        self._written: FileMeta | None = None  # size and ETag of the commit that this process wrote

    @classmethod
    def from_commit(cls, commit: CommitActions) -> Tip:
        """The tip of a commit that was read or written; the commit's txnId identifies it."""
        return cls(commit.version, None if commit.commit_info is None else commit.commit_info.txn_id)

    @safe_repr
    def __repr__(self) -> str:
        return f"Tip(version={self.version}, txn_id={self.txn_id!r}, meta={self.meta!r})"

    @property
    def is_identified(self) -> bool:
        """Whether anything besides the version is known that identifies the commit."""
        return not (self.txn_id is None and self.meta is None and self._written is None)

    def note_written(self, data: bytes, meta: FileMeta | None) -> None:
        """Record the size and ETag of the commit, given its bytes. ``meta``: the metadata of the commit's file, if the
        store has returned it since the commit."""
        self.meta = meta
        if len(data) <= _LARGE_BYTES:
            self._written = FileMeta("", len(data), None, etag_of(data))

    def check_after_read(self, reader: LogReader, commits: Iterable[CommitActions] = ()) -> None:
        """Raise TableReplacedError if the log files just read may belong to another table that replaced this one. This
        assumes that a deleted table is never restored in place. So if this commit still exists, everything that was
        read before belongs to the same table. ``commits``: the commits that were read. Cost: 1 HEAD; none on a remote
        store, where only the txnId of this commit is compared, if it was read."""
        infos = (each.commit_info for each in commits if each.version == self.version)
        read = next((info.txn_id for info in infos if info is not None), None)
        is_same = None in (read, self.txn_id) or read == self.txn_id
        if is_same and self.is_identified and not reader.store.is_remote:
            found = reader.store.head(commit_path(self.version))
            is_same = found is None or self.is_file(reader, found)  # None if log clean-up has deleted the commit file
        if not is_same:
            raise TableReplacedError(
                f"{reader.store.url}: the table was replaced while version {self.version} was read: the log now has "
                "another commit of that version. Read the table again.",
                version=self.version,
            )

    def is_file(self, reader: LogReader, found: FileMeta) -> bool:
        """Whether the commit file in the log is the file of this commit; ``found`` is its metadata, from a HEAD. If
        sizes, times and ETags do not decide whether it is, the txnId in the file is compared, or if it has none, the
        whole file. Raises StoreError. Cost: usually none; at most 1 GET (of 4 KiB if there is a txnId) for each new
        file."""
        if self.is_misplaced:
            return False
        written = self._written
        known = self.meta is not None and self.meta.may_be(found)
        if not known and written is not None:
            known = found.etag == written.etag and found.size_bytes == written.size_bytes
        if known or self._is_managed(reader) or self._has_txn_id(reader) or self._has_bytes(reader, found):
            self.meta = found
            return True
        return False

    def check_is_there(self, reader: LogReader, work: str) -> None:
        """Check that the log still contains this commit. Called before an operation, named by ``work``, deletes files
        that it selected in this version. Raises TableReplacedError if the log has another commit of this version,
        MissingVersionError if it has none. Cost: 1 HEAD, and as ``is_file``."""
        url = reader.store.url
        found = reader.store.head(commit_path(self.version))
        if found is None:
            raise MissingVersionError(
                f"{url}: version {self.version} was deleted during {work}, which deletes no more files. Try again.",
                version=self.version,
            )
        if self.is_identified and not self.is_file(reader, found):
            raise other_table(url, self.version, work)

    def _is_managed(self, reader: LogReader) -> bool:
        # A catalog decides which commits a table has, and the file metadata of a commit changes when the commit is
        # published.
        return self.meta is None and not reader.authority.is_log

    def _has_txn_id(self, reader: LogReader) -> bool:
        if self.txn_id is None:
            return False
        try:
            info = reader.commit_info(self.version)
        except (InvalidCommitError, MissingVersionError):
            return False
        return info is not None and info.txn_id == self.txn_id

    def _has_bytes(self, reader: LogReader, found: FileMeta) -> bool:
        written = self._written
        if self.txn_id is not None or written is None or written.size_bytes != found.size_bytes:
            return False
        data = get_or_none(reader.store, commit_path(self.version))
        return data is not None and etag_of(data) == written.etag


def other_table(url: str, version: int, work: str) -> TableReplacedError:
    """The error for a table that was replaced while an operation, named by ``work``, was deleting files of the
    table."""
    return TableReplacedError(
        f"{url}: the table was replaced after version {version} was read, during {work}, which deletes no more files. "
        "Call it again if it is meant for the new table.",
        version=version,
    )
