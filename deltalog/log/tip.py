"""Tip: which commit a version is. A number alone does not say: a table can be deleted and created again, or be replaced
by an older copy of itself, and other writers then commit the same versions.

Spec: PROTOCOL.md#delta-log-entries, #commit-provenance-information.
"""

from __future__ import annotations

from deltalog.arguments import half_made
from deltalog.errors import InvalidCommitError, MissingVersionError
from deltalog.log.reader import LogReader
from deltalog.storage.base import FileMeta, etag_of

# The ETag of larger commits is not computed: it takes longer than reading their beginning.
_LARGE_BYTES = 4 << 20


class Tip:
    """The commit of one version, as far as it is known. Threads may share it.

    ``txn_id``: of its commitInfo; None where that was not read, or has none. ``meta``: its file, as the store showed
    it; None until then.
    """

    def __init__(self, version: int, txn_id: str | None = None, meta: FileMeta | None = None) -> None:
        self.version = version
        self.txn_id = txn_id
        self.meta = meta
        self._written: FileMeta | None = None  # what an S3 that has created the file of this process says of it

    @half_made
    def __repr__(self) -> str:
        return f"Tip(version={self.version}, txn_id={self.txn_id!r}, meta={self.meta!r})"

    @property
    def is_identified(self) -> bool:
        """Whether anything is known of it but the version."""
        return not (self.txn_id is None and self.meta is None and self._written is None)

    def note_written(self, data: bytes, meta: FileMeta | None) -> None:
        """Note the bytes of the commit. ``meta``: its file, where the store has shown it since."""
        self.meta = meta
        if len(data) <= _LARGE_BYTES:
            self._written = FileMeta("", len(data), None, etag_of(data))

    def is_file(self, reader: LogReader, found: FileMeta) -> bool:
        """Whether ``found``, what a HEAD of the version returned, is this commit. Where sizes, times and ETags do not
        decide it, the txnId in the file does. Raises StoreError. Cost: none, as a rule; at most 1 GET of 4 KiB, once
        for each file that the store shows."""
        written = self._written
        known = self.meta is not None and self.meta.may_be(found)
        if not known and written is not None:
            known = found.etag == written.etag and found.size_bytes == written.size_bytes
        if known or self._is_managed(reader) or self._has_txn_id(reader):
            self.meta = found
            return True
        return False

    def _is_managed(self, reader: LogReader) -> bool:
        # A catalog decides which commits a table has, and shows a commit otherwise before it is published.
        return self.meta is None and (reader.store.catalog is not None or reader.store.branch is not None)

    def _has_txn_id(self, reader: LogReader) -> bool:
        if self.txn_id is None:
            return False
        try:
            info = reader.commit_info(self.version)
        except (InvalidCommitError, MissingVersionError):
            return False
        return info is not None and info.txn_id == self.txn_id
