"""Computes missing file statistics from footers, and from rows if a footer is not sufficient. The files are added again
with the new statistics; nothing else in their add actions changes.

Spec: PROTOCOL.md#per-file-statistics, #add-file-and-remove-file (dataChange), #clustered-table.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from deltalog.arrow_arrays import FALSE, combined
from deltalog.commit_result import CommitResult
from deltalog.errors import RowCountError
from deltalog.expressions.sql import as_predicate
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Predicate
from deltalog.lazy_arrow import pc
from deltalog.log.file_statistics import Leaf, column_name, decoded, indexed_leaves, statistics_of_files
from deltalog.log.file_tables import add_actions
from deltalog.maintenance.optimize.optimize import files_in_partitions
from deltalog.parquet import stats
from deltalog.parquet.file_reader import DataFile, FileLayout, read_file
from deltalog.protocol import column_mapping
from deltalog.protocol.actions import AddFile
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.column_mapping import Mode
from deltalog.protocol.schema import VARIANT, ArrayType, MapType, StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.remote import parallel_gets
from deltalog.storage.table_files import TableFiles
from deltalog.write.added_files import FOOTER_THREADS, read_footer
from deltalog.write.commit_info import UserMetadata
from deltalog.write.table_handle import TableHandle
from deltalog.write.transaction import skipped

#: The number of files that one commit adds again.
FILES_PER_COMMIT = 100_000
_RETRIES = 10
# For dates before this one, the footers of writers that used the Julian calendar differ from the values that readers
# return.
_GREGORIAN = datetime.date(1900, 1, 1)
_EPOCH = datetime.date(1970, 1, 1)
_DAY_US = 86_400_000_000

# The null count, and the minimum and maximum in the form in which the log stores them. None: unknown.
Found = tuple[int | None, tuple[Any, Any] | None]
# A cache, keyed by path, of the number of rows and the column statistics of each file; entries stay valid, because
# files never change.
Known = dict[str, tuple[int, dict[Leaf, Found]]]


def compute_statistics(handle: TableHandle, where: Predicate | str | None, user_metadata: UserMetadata) -> CommitResult:
    """See ``DeltaTable.compute_statistics``."""
    now = datetime.datetime.fromtimestamp(handle.environment.clock_ms() / 1000, datetime.timezone.utc)
    predicate = as_predicate(where, now)
    parameters = {"predicate": canonical_json([] if predicate is None else [shown(predicate)])}
    known: Known = {}

    def attempt() -> tuple[CommitResult, bool]:
        """Make one commit. Returns the result of the commit, and whether files may remain for another commit."""
        with handle.transaction() as transaction:
            snapshot = transaction.snapshot
            assert snapshot is not None
            adds, is_all = _completed(snapshot, files_in_partitions(snapshot, predicate), known)
            if not adds:
                return skipped(transaction), False
            transaction.staged.add(adds, is_checked=True)
            transaction.staged.read_files(add.path for add in adds)
            metrics = {"numFiles": len(adds)}
            return transaction.commit("COMPUTE STATS", parameters, metrics, user_metadata), not is_all

    result, has_more = handle.retrying(attempt, _RETRIES)
    while has_more:
        latest, has_more = handle.retrying(attempt, _RETRIES)
        result = result if latest.skipped else latest
    return result


def _completed(snapshot: Snapshot, files: pa.Table, known: Known) -> tuple[list[AddFile], bool]:
    """At most FILES_PER_COMMIT add actions, completed with missing statistics; empty if no missing statistics can be
    computed. The second item of the result is whether no further file lacks statistics after these."""
    computing = _Computing.for_snapshot(snapshot, known)
    lacks = _lacks(files, computing.leaves)
    any_lacks = lacks.column(0)
    for column in lacks.columns[1:]:
        any_lacks = pc.or_(any_lacks, column)
    files, lacks = files.filter(any_lacks), lacks.filter(any_lacks)
    for start in range(0, files.num_rows, FILES_PER_COMMIT):
        adds = add_actions(files.slice(start, FILES_PER_COMMIT))
        columns = [column.slice(start, FILES_PER_COMMIT).to_pylist() for column in lacks.columns[1:]]
        wanted = [
            [leaf for leaf, column in zip(computing.leaves, columns, strict=True) if column[number]]
            for number in range(len(adds))
        ]
        completed = computing.completed(adds, wanted)
        if completed:
            return completed, start + FILES_PER_COMMIT >= files.num_rows
    return [], True


def _lacks(files: pa.Table, leaves: Sequence[Leaf]) -> pa.Table:
    """A table with a row for each file: the first column states whether the file lacks numRecords, and one column per
    leaf states whether the file lacks the leaf's statistics."""
    flat = statistics_of_files(files, leaves)
    rows = combined(flat["numRecords"])
    columns = [pc.is_null(rows)]
    for leaf in leaves:
        nulls = combined(flat[column_name("nullCount", leaf)])
        lacks = pc.is_null(nulls)
        if "minValues" in leaf.groups:
            bounds = [pc.is_null(combined(flat[column_name(group, leaf)])) for group in ("minValues", "maxValues")]
            has_values = pc.invert(pc.fill_null(pc.equal(nulls, rows), FALSE))
            lacks = pc.or_(lacks, pc.and_(has_values, pc.or_(*bounds)))
        columns.append(lacks)
    return pa.Table.from_arrays(columns, names=[str(number) for number in range(len(columns))])


@dataclass(frozen=True)
class _Computing:
    """Computes statistics of files. ``leaves``: the columns that should have statistics. ``known``: cached results."""

    url: str
    files: TableFiles
    schema: StructType
    partition_columns: tuple[str, ...]
    mapping: Mode
    leaves: list[Leaf]
    known: Known

    @classmethod
    def for_snapshot(cls, snapshot: Snapshot, known: Known) -> _Computing:
        mapping = column_mapping.mode_of(snapshot.metadata.configuration)
        indexed = indexed_leaves(snapshot.metadata, snapshot.clustering_columns)
        leaves = [leaf for leaf in indexed if not isinstance(leaf.data_type, (ArrayType, MapType))]
        partitioned = tuple(snapshot.partition_columns)
        return cls(snapshot.url, snapshot.reader.files, snapshot.schema, partitioned, mapping, leaves, known)

    def completed(self, adds: Sequence[AddFile], wanted: Sequence[Sequence[Leaf]]) -> list[AddFile]:
        """The add actions with those of the ``wanted`` statistics that can be computed; add actions that gain no
        statistics are left out. In threads."""
        with ThreadPoolExecutor(parallel_gets(self.files.store) or FOOTER_THREADS) as threads:
            found = list(threads.map(self._with_statistics, adds, wanted))
        return [add for add in found if add is not None]

    def _with_statistics(self, add: AddFile, wanted: Sequence[Leaf]) -> AddFile | None:
        rows, found = self._found(add, wanted)
        before, body = decoded(add.stats or "{}"), decoded(add.stats or "{}")
        counted = body.get("numRecords")
        if type(counted) is int and counted != rows:
            raise self._other_count(add.path, counted, rows)
        body["numRecords"] = rows
        for leaf in wanted:
            nulls, bounds = found[leaf]
            if nulls is not None:
                stats.put(body, ("nullCount", *leaf.physical), nulls)
            if bounds is not None:
                for group, value in zip(("minValues", "maxValues"), bounds, strict=True):
                    stats.put(body, (group, *leaf.physical), value)
        if body == before:
            return None
        if add.deletion_vector is not None:
            body["tightBounds"] = False  # these are the bounds of all rows, not only of the live rows
        return msgspec.structs.replace(add, stats=stats.as_text(body), data_change=False)

    def _found(self, add: AddFile, wanted: Sequence[Leaf]) -> tuple[int, dict[Leaf, Found]]:
        """The number of rows of a file, and its column statistics. Raises InvalidDataFileError, RowCountError."""
        before = self.known.get(add.path)
        if before is not None and all(leaf in before[1] for leaf in wanted):
            return before
        footer = read_footer(*self.files.find(add.path))
        found = from_footer(footer, wanted, self.mapping)
        unknown = [leaf for leaf in wanted if leaf not in found]
        if unknown:
            found.update(self._of_rows(add, unknown, footer.num_rows))
        self.known[add.path] = footer.num_rows, found
        return footer.num_rows, found

    def _of_rows(self, add: AddFile, leaves: Sequence[Leaf], rows: int) -> dict[Leaf, Found]:
        """The statistics of all rows of a file, including deleted rows."""
        names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
        layout = FileLayout(
            StructType(tuple(self.schema.field(name) for name in names)), self.partition_columns, self.mapping
        )
        tallies = {leaf: _Tally(leaf) for leaf in leaves}
        read = 0
        for batch in read_file(self.files, DataFile(add.path, add.partition_values, size=add.size), layout):
            read += batch.num_rows
            for leaf, tally in tallies.items():
                tally.take(_values(batch, leaf.path))
        if read != rows:
            raise self._other_count(add.path, rows, read)
        return {leaf: tally.found() for leaf, tally in tallies.items()}

    def _other_count(self, path: str, counted: int, found: int) -> RowCountError:
        return RowCountError(
            f"{self.url}: {path} has {counted} rows by the log or its footer, but {found} were found. Nothing was "
            "committed. deltalog check --deep lists all damaged files.",
            written=counted,
            found=found,
        )


def from_footer(footer: Any, leaves: Iterable[Leaf], mapping: Mode) -> dict[Leaf, Found]:
    """The statistics of those leaf columns whose statistics can be taken from a footer alone
    (pyarrow.parquet.FileMetaData).

    A footer is not sufficient if columns are mapped by id, because then columns cannot be found by name; if the bounds
    in the footer may ignore NaN; or if values are converted when they are read.
    """
    found: dict[Leaf, Found] = {}
    chunks = None if mapping == "id" else stats.chunks_by_path(footer)
    if chunks is None:
        return found
    for leaf in leaves:
        stored = (*leaf.physical, "metadata") if leaf.data_type == VARIANT else leaf.physical
        of_leaf = chunks.get(tuple(name.lower() for name in stored))
        if of_leaf is None:
            found[leaf] = footer.num_rows, None
            continue
        nulls = stats.null_count_of(of_leaf) if of_leaf else None
        if nulls is None and footer.num_rows:
            continue
        if "minValues" not in leaf.groups or nulls in (None, footer.num_rows):
            found[leaf] = nulls or 0, None
        elif str(leaf.data_type) not in ("float", "double") and not _is_converted(of_leaf, str(leaf.data_type)):
            bounds = stats.value_bounds(of_leaf, leaf.data_type)
            if bounds is not None and not _is_old(bounds[0]):
                found[leaf] = nulls, stats.rendered(*bounds, leaf.data_type)
    return found


def _is_converted(chunks: Sequence[Any], name: str) -> bool:
    wanted = {"timestamp": "INT64", "timestamp_ntz": "INT64", "date": "INT32"}.get(name)
    return wanted is not None and any(chunk.physical_type != wanted for chunk in chunks)


def _is_old(low: Any) -> bool:
    """Whether a minimum is a date before _GREGORIAN, or an integer that is before _GREGORIAN if it is read as a
    timestamp in microseconds."""
    if isinstance(low, datetime.date):
        return low < _GREGORIAN
    return isinstance(low, int) and low < (_GREGORIAN - _EPOCH).days * _DAY_US


def _values(batch: pa.RecordBatch, path: tuple[str, ...]) -> Any:
    """The values of a nested column; null where an enclosing struct is null."""
    values = batch.column(batch.schema.get_field_index(path[0]))
    for name in path[1:]:
        values = pc.struct_field(values, [values.type.get_field_index(name)])
    return values


@dataclass
class _Tally:
    """Accumulates the null count and bounds of a column. Dates are counted in days since 1970, timestamps in
    microseconds."""

    leaf: Leaf
    nulls: int = 0
    bounds: tuple[Any, Any] | None = None
    has_nan: bool = False

    def take(self, values: Any) -> None:
        self.nulls += values.null_count
        if "minValues" not in self.leaf.groups or values.null_count == len(values):
            return
        if pa.types.is_floating(values.type):
            self.has_nan = self.has_nan or bool(pc.any(pc.is_nan(values)).as_py())
        elif pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        elif pa.types.is_date32(values.type):
            values = values.cast(pa.int32())
        both = pc.min_max(values).as_py()
        low, high = both["min"], both["max"]
        if self.bounds is not None:
            low, high = min(low, self.bounds[0]), max(high, self.bounds[1])
        self.bounds = low, high

    def found(self) -> Found:
        if self.bounds is None or self.has_nan:
            return self.nulls, None
        low, high = self.bounds
        if str(self.leaf.data_type) == "date":
            try:
                low, high = (_EPOCH + datetime.timedelta(days=days) for days in (low, high))
            except OverflowError:
                return self.nulls, None
        return self.nulls, stats.rendered(low, high, self.leaf.data_type)
