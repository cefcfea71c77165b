"""Removes rows that the caller's engine has found: deltalog either writes deletion vectors, or removes the files, and
the caller copies their other rows into new files.

Spec: PROTOCOL.md#deletion-vectors, #add-cdc-file, #row-tracking.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from deltalog.arguments import checked
from deltalog.arrow_arrays import booleans
from deltalog.errors import CallError, InvalidDataFileError, ObjectNotFoundError, RowCountError
from deltalog.log.file_statistics import live_rows
from deltalog.log.file_tables import add_actions
from deltalog.parquet.file_reader import read_vector
from deltalog.parquet.footers import READ_ERRORS, open_parquet
from deltalog.protocol import row_tracking
from deltalog.protocol.actions import AddFile
from deltalog.rows import rewrite
from deltalog.rows.matched_rows import FileMatch
from deltalog.storage.table_files import TableFiles
from deltalog.write.transaction import Transaction


@checked
class RowRemoval:
    """The removal of rows that the caller has already found.

    For callers that read and write data files with their own engine, for example with Spark. ``DeltaTable.delete``
    finds the rows itself.

    ``by_vectors``: whether the table marks deleted rows in deletion vectors; if not, the caller writes the other rows
    of ``partly`` into new files. ``whole`` and ``partly``: the indices in ``files`` of the files from which all live
    rows, or only some, are removed. ``num_rows``: the number of removed rows; None if a file has no statistics.
    ``num_moved_rows``: the number of rows that the caller must copy. ``has_change_feed``: whether the change data feed
    is enabled. ``needs_change_files``: whether the removal must be recorded in change files; without these, readers of
    the change feed would report a copied row as a deletion and an insertion. ``kept_columns``: the data file
    columns that store the row ids and row commit versions of copied rows; None if row tracking is off.
    """

    def __init__(
        self,
        transaction: Transaction,
        files: pa.Table,
        positions: Mapping[int, BitMap64] | None = None,
        *,
        adds_only: bool = False,
    ) -> None:
        """``files``: rows of the table that ``Transaction.find_files`` returns. ``positions``: maps indices in
        ``files`` to the positions (from 0, in the Parquet file) of the rows to remove; no rows are removed from files
        without an entry. None: all rows of all files. ``adds_only``: whether the transaction only adds rows, such as a
        merge with only inserts, which append-only tables allow.

        Raises CallError, InvalidActionError for an append-only table, RowCountError for a position beyond the end of
        the file or of a deleted row, InvalidDataFileError. Memory: the positions. Cost: 1 GET for each deletion vector
        in a file, and the footers of files without statistics.
        """
        if not isinstance(transaction, Transaction):
            raise CallError(f"transaction is what DeltaTable.transaction returns; got {type(transaction).__name__}.")
        if adds_only and (positions is None or any(positions.values())):
            raise CallError("adds_only is for a transaction that removes no rows, but positions is not empty.")
        if not adds_only:
            rewrite.check_removable(transaction)
        self._transaction = transaction
        self.by_vectors = rewrite.has_vectors(transaction)
        self.has_change_feed = rewrite.has_change_data_feed(transaction)
        snapshot = transaction.snapshot
        assert snapshot is not None
        kept = row_tracking.kept_columns(transaction.metadata.configuration, snapshot.url)
        self.kept_columns = (kept[0].name, kept[1].name) if kept else None
        if positions is None:
            self.whole: Sequence[int] = range(files.num_rows)
            self.partly: Sequence[int] = ()
            self._deletion = rewrite.Deletion(files, files.slice(0, 0), (), live_rows(files), self.by_vectors, False)
        else:
            numbers = sorted(number for number, rows in positions.items() if rows)
            adds = add_actions(files.take(pa.array(numbers, pa.int64())))
            matches = {
                number: _match(snapshot.reader.files, add, positions[number], snapshot.url)
                for number, add in zip(numbers, adds, strict=True)
            }
            self.whole = [number for number, match in matches.items() if not match.kept]
            self.partly = [number for number, match in matches.items() if match.kept]
            self._deletion = rewrite.Deletion(
                _chosen(files, self.whole),
                _chosen(files, self.partly),
                [matches[number] for number in self.partly],
                sum(len(match.matched) for match in matches.values()),
                self.by_vectors,
                bool(self.partly) and not self.by_vectors and self.has_change_feed,
            )
        self.num_rows = self._deletion.rows
        self.num_moved_rows = self._deletion.num_moved_rows
        self.needs_change_files = self._deletion.as_changes

    @property
    def is_empty(self) -> bool:
        """Whether no row is removed."""
        return self._deletion.is_empty

    def stage(self) -> dict[str, int]:
        """Stage the removal of whole files, and the deletion vectors of other files. Returns the operation metrics with
        delta-spark's names, excluding files that the caller writes. Cost: at most 1 PUT for each 2 MiB of deletion
        vectors."""
        return rewrite.stage_removal(self._transaction, self._deletion)


def _chosen(files: pa.Table, numbers: Sequence[int]) -> pa.Table:
    chosen = set(numbers)
    return files.filter(booleans([number in chosen for number in range(files.num_rows)]))


def _match(files: TableFiles, add: AddFile, matched: BitMap64, url: str) -> FileMatch:
    deleted = BitMap64() if add.deletion_vector is None else read_vector(files, add.deletion_vector)
    rows = _num_rows(files, add)
    if matched.max() >= rows or matched.intersection_cardinality(deleted):
        raise RowCountError(
            f"{url}: {len(matched)} rows of {add.path} were to be removed, but some of the positions are deleted or "
            f"beyond the end of the file, which has {rows} rows, {len(deleted)} of them deleted. Nothing was "
            "committed. Check that no other program changes data files.",
            written=len(matched),
            found=rows - len(deleted),
        )
    return FileMatch(add, rows, deleted, matched)


def _num_rows(files: TableFiles, add: AddFile) -> int:
    """The number of rows in the Parquet file, including rows that a deletion vector deletes."""
    counted: Any = None
    with contextlib.suppress(ValueError, AttributeError):
        counted = json.loads(add.stats or "{}").get("numRecords")
    if isinstance(counted, int):
        return counted
    store, path = files.find(add.path)
    try:
        with contextlib.closing(store.open_input(path)) as source, open_parquet(source) as file:
            return int(file.metadata.num_rows)
    except (*READ_ERRORS, ObjectNotFoundError) as error:
        raise InvalidDataFileError(
            f"{store.url}: the data file {path} is missing or cannot be read: {error}. Restore it.", path=path
        ) from error
