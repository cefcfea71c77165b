"""Plans and stages the deletion of rows in existing files: removes whole files, and deletes single rows with deletion
vectors or by rewriting files.

Spec: PROTOCOL.md#deletion-vectors, #add-cdc-file, #row-tracking, #writer-requirements-for-addcdcfile,
#writer-requirement-for-deletion-vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from deltalog.arrow_arrays import FALSE, booleans
from deltalog.errors import CallError, ConstraintViolationError, InvalidActionError
from deltalog.expressions.bind import bind
from deltalog.expressions.bound import columns_of
from deltalog.expressions.evaluate import matches
from deltalog.expressions.sql import as_predicate
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Predicate
from deltalog.lazy_arrow import pc
from deltalog.log.file_statistics import live_rows
from deltalog.parquet.file_reader import DataFile, read_file
from deltalog.protocol import column_mapping, features
from deltalog.protocol.actions import AddFile
from deltalog.protocol.properties import APPEND_ONLY, ENABLE_CHANGE_DATA_FEED, ENABLE_DELETION_VECTORS, Property
from deltalog.protocol.schema import StructType
from deltalog.read.data_skipping import split
from deltalog.read.snapshot import Snapshot
from deltalog.rows import matched_rows
from deltalog.rows.matched_rows import FileChange, FileMatch, layout_of, search_files
from deltalog.write.data_files import conformed
from deltalog.write.deletion_vector_writer import masked_statistics
from deltalog.write.input_streams import read_once
from deltalog.write.transaction import Transaction
from deltalog.write.variant_columns import encoded_batches

METRICS = (
    "numRemovedFiles",
    "numRemovedBytes",
    "numAddedFiles",
    "numAddedBytes",
    "numCopiedRows",
    "numDeletionVectorsAdded",
    "numDeletionVectorsUpdated",
    "numDeletionVectorsRemoved",
    "numAddedChangeFiles",
)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The files and rows of a version that are deleted because they match a condition.

    ``whole``: the files (schema FILES) in which all rows match; ``partly``: the files in which only some rows match.
    ``matches``: the matching rows of each file in ``partly``. ``rows``: the number of matching rows; None if a file has
    no statistics. ``by_vectors``: whether rows are deleted with deletion vectors instead of by rewriting files.
    ``as_changes``: whether the commit must have change files, because change feed readers would otherwise report copied
    rows as deleted and inserted.
    """

    whole: pa.Table
    partly: pa.Table
    matches: Sequence[FileMatch]
    rows: int | None
    by_vectors: bool
    as_changes: bool

    @property
    def is_empty(self) -> bool:
        """Whether no row matches."""
        return not self.matches and self.whole.num_rows == 0

    @property
    def num_moved_rows(self) -> int:
        """The number of rows that remain live and must be copied into new files."""
        return 0 if self.by_vectors else sum(len(each.kept) for each in self.matches)


def plan(transaction: Transaction, where: Predicate | str | None) -> Deletion:
    """Find the rows for which ``where`` is true (None: all rows), and record for conflict detection what was read.

    Partition values and statistics are evaluated first. If partition values and statistics are not sufficient to decide
    on a file, threads read those of its columns that ``where`` uses. Memory: compressed bitmaps of the positions of
    matching rows. Raises CallError, InvalidActionError for an append-only table, UnsupportedFeatureError,
    InvalidDataFileError. Cost: as ``Snapshot.files``, and the GETs of these columns.
    """
    snapshot = _existing(transaction)
    predicate = as_predicate(where)
    files = transaction.find_files(predicate)
    by_vectors = has_vectors(transaction)
    if predicate is None:
        return Deletion(files, files.slice(0, 0), (), live_rows(files), by_vectors, False)
    bound = bind(predicate, snapshot.schema)
    mapping = column_mapping.mode_of(snapshot.metadata.configuration)
    proven, open_files = split(files, bound, snapshot.schema, snapshot.partition_columns, mapping)
    found = list(search_files(snapshot, open_files, bound))
    whole = pa.concat_tables([proven, open_files.filter(_mask(bool(f.matched) and not f.kept for f in found))])
    partly = open_files.filter(_mask(bool(f.matched) and bool(f.kept) for f in found))
    partial_matches = tuple(each for each in found if each.matched and each.kept)
    known = live_rows(proven)
    rows = None if known is None else known + sum(len(each.matched) for each in found)
    as_changes = bool(partial_matches) and not by_vectors and has_change_data_feed(transaction)
    return Deletion(whole, partly, partial_matches, rows, by_vectors, as_changes)


def stage(transaction: Transaction, deletion: Deletion) -> dict[str, int]:
    """Stage a deletion: remove whole files; delete rows of other files by deletion vectors, or by copying the remaining
    rows into new files. Returns the operation metrics, with delta-spark's names.

    Copied rows keep their values, and their row ids if the table tracks them. Memory: as Transaction.write. Cost: the
    GETs of the copied rows and 1 PUT for each new file; with deletion vectors at most 1 PUT for each 2 MiB of them.
    If change files are written, the cost also includes the GETs of the deleted rows and 1 PUT for each change file.
    """
    snapshot = _existing(transaction)
    metrics = stage_removal(transaction, deletion)
    if deletion.num_moved_rows:
        moved = [FileChange(each.file, each.kept, BitMap64(), each.rows) for each in deletion.matches]
        streams = matched_rows.moved_rows(snapshot, moved)
        adds = transaction.row_writer.write_copies(streams, deletion.num_moved_rows)
        stage_new_files(transaction, adds, metrics)
        metrics["numCopiedRows"] = deletion.num_moved_rows
    if deletion.as_changes:
        deleted = matched_rows.matching_rows(snapshot, deletion.whole, deletion.matches)
        changes = (("delete", batch) for batch in deleted)
        stage_changes(transaction, changes, metrics)
    return metrics


def stage_removal(transaction: Transaction, deletion: Deletion) -> dict[str, int]:
    """Stage the removal of files; with deletion vectors, files in which only some rows match get a new vector instead.
    The caller writes the rows that must be copied. Returns the operation metrics. Cost: with deletion vectors at most 1
    PUT for each 2 MiB of them."""
    removed = deletion.whole if deletion.by_vectors else pa.concat_tables([deletion.whole, deletion.partly])
    metrics = dict.fromkeys(METRICS, 0)
    metrics["numRemovedFiles"], metrics["numRemovedBytes"] = removed.num_rows, pc.sum(removed["size"]).as_py() or 0
    metrics["numDeletionVectorsRemoved"] = removed.num_rows - removed["deletion_vector"].null_count
    if deletion.rows is not None:
        metrics["numDeletedRows"] = deletion.rows
    transaction.remove_files(removed)
    if deletion.matches and deletion.by_vectors:
        _stage_vectors(transaction, deletion, metrics)
    return metrics


def stage_new_files(transaction: Transaction, adds: Sequence[AddFile], metrics: dict[str, int]) -> None:
    """Stage files that the transaction wrote, and add their number to the metrics."""
    transaction.staged.add_written(adds)
    metrics["numAddedFiles"], metrics["numAddedBytes"] = len(adds), sum(add.size for add in adds)


def stage_changes(
    transaction: Transaction, changes: Iterable[tuple[str, pa.RecordBatch]], metrics: dict[str, int]
) -> None:
    """Write and stage change files, and add their number to the metrics. ``changes``: as for
    ``RowWriter.write_changes``."""
    files = transaction.row_writer.write_changes(changes)
    transaction.staged.add_change_files(files)
    metrics["numAddedChangeFiles"] = len(files)


def _stage_vectors(transaction: Transaction, deletion: Deletion, metrics: dict[str, int]) -> None:
    vectors = transaction.row_writer.write_deletion_vectors([each.deleted | each.matched for each in deletion.matches])
    transaction.remove_files(deletion.partly)
    for each, vector in zip(deletion.matches, vectors, strict=True):
        stats = masked_statistics(each.file.stats, each.rows)
        masked = msgspec.structs.replace(each.file, deletion_vector=vector, stats=stats, data_change=True)
        transaction.add(masked, known=True)
    updated = sum(each.file.deletion_vector is not None for each in deletion.matches)
    metrics["numDeletionVectorsAdded"] = len(deletion.matches)
    metrics["numDeletionVectorsUpdated"] = updated
    metrics["numDeletionVectorsRemoved"] += updated


def check_replaces_partitions(transaction: Transaction) -> None:
    """Raise CallError for a table without partitions, and InvalidActionError for an append-only table."""
    snapshot = _existing(transaction)
    if not transaction.metadata.partition_columns:
        raise CallError(f"{snapshot.url} has no partitions to replace. Omit partitions= to replace all rows.")


def matching(
    transaction: Transaction, reader: Iterable[pa.RecordBatch], where: Predicate | str
) -> Iterator[pa.RecordBatch]:
    """The rows of a stream, cast to the types of the table and checked: ``where`` must be true for every row.

    After the first row that does not satisfy ``where``, no more rows are returned. The rest of the stream is read to
    count the rows that do not satisfy ``where``; then ConstraintViolationError is raised.
    """
    schema = transaction.schema
    predicate = as_predicate(where)
    assert predicate is not None
    bound = bind(predicate, schema)
    rules = transaction.row_writer.rules()
    wrong, example = 0, None
    for batch in encoded_batches(read_once(reader), schema):
        table = conformed(pa.Table.from_batches([batch]), schema, rules, is_new=True)
        outside = pc.invert(pc.fill_null(matches(bound, table), FALSE))
        count = pc.sum(outside).as_py() or 0
        if count and example is None:
            names = list(dict.fromkeys(column.path[0] for column in columns_of(bound)))
            example = table.filter(outside).select(names).slice(0, 1).to_pylist()[0]
        wrong += count
        if not wrong:
            yield from table.to_batches()
    if wrong:
        raise _outside(transaction, where, wrong, example)


def check_new_files(transaction: Transaction, condition: Predicate, where: str) -> None:
    """Raise ConstraintViolationError unless ``condition`` is true for each row of the staged adds.

    ``where``: the condition as SQL, for error messages. Cost: the GETs of the columns that it uses.
    """
    snapshot = _existing(transaction)
    bound = bind(condition, snapshot.schema)
    names = list(dict.fromkeys(column.path[0] for column in columns_of(bound)))
    layout = layout_of(snapshot, StructType(tuple(snapshot.schema.field(name) for name in names)))
    wrong, example = 0, None
    for add in transaction.staged.adds:
        for batch in read_file(snapshot.reader.files, DataFile.from_add(add), layout):
            table = pa.Table.from_batches([batch])
            outside = pc.invert(pc.fill_null(matches(bound, table), FALSE))
            count = pc.sum(outside).as_py() or 0
            if count and example is None:
                example = table.filter(outside).slice(0, 1).to_pylist()[0]
            wrong += count
    if wrong:
        raise _outside(transaction, where, wrong, example)


def _outside(transaction: Transaction, where: Predicate | str, count: int, example: Any) -> ConstraintViolationError:
    return ConstraintViolationError(
        f"{transaction.reader.store.url}: {count} of the new rows {'lies' if count == 1 else 'lie'} outside of "
        f"the replaced rows, {shown(where)}, for example {example}. Nothing was committed. Filter the new rows, or "
        "widen the condition.",
        constraint="the condition of the replaced rows",
        expression=shown(where),
        violations=count,
    )


# ------------------------------------------------------------------------------------------------- helpers


def check_removable(transaction: Transaction) -> None:
    """Raise CallError, InvalidActionError or UnsupportedFeatureError if rows cannot be changed or removed."""
    _existing(transaction)


def _existing(transaction: Transaction) -> Snapshot:
    """The base snapshot of a transaction that removes rows; raises the errors of ``check_removable``."""
    snapshot = transaction.snapshot
    if snapshot is None:
        raise CallError("There are no rows to change: this transaction creates the table.")
    metadata = transaction.metadata
    features.check_writable(transaction.protocol, snapshot.url)
    if APPEND_ONLY.read(metadata.configuration):
        raise InvalidActionError(
            f"{snapshot.url} is append-only ({APPEND_ONLY.key}=true): rows cannot be deleted, updated or replaced. "
            "Unset the property to allow it."
        )
    return snapshot


def has_vectors(transaction: Transaction) -> bool:
    """Whether the table's rows are deleted by deletion vectors: the feature is listed and the property is true."""
    return _is_on(transaction, "deletionVectors", ENABLE_DELETION_VECTORS)


def has_change_data_feed(transaction: Transaction) -> bool:
    """Whether the table's change data feed is enabled."""
    return _is_on(transaction, "changeDataFeed", ENABLE_CHANGE_DATA_FEED)


def _is_on(transaction: Transaction, feature: str, enabling: Property[bool]) -> bool:
    listed = feature in features.writer_features(transaction.protocol)
    return listed and enabling.read(transaction.metadata.configuration)


def _mask(values: Iterable[bool]) -> pa.BooleanArray:
    return booleans(list(values))
