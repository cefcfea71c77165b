"""Writes rows into data files below the table, under the rules of the table, and describes them as add actions.

Spec: PROTOCOL.md#data-files, #add-cdc-file, #deletion-vectors, #row-tracking, #identity-columns,
#writer-requirements-for-addcdcfile.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from deltalog.environment import Environment
from deltalog.errors import RowCountError
from deltalog.log.file_statistics import BOUNDS, column_name, leaves_of, statistics_of_files
from deltalog.log.file_tables import files_table
from deltalog.log.reader import LogReader
from deltalog.parquet.file_writer import Checksum
from deltalog.protocol import row_tracking
from deltalog.protocol.actions import AddCDCFile, AddFile, DeletionVector, Metadata, Protocol
from deltalog.protocol.schema import PrimitiveType, StructField, StructType
from deltalog.read.changes import CHANGE_TYPE_FIELD
from deltalog.write.added_files import Examine, check_files, check_rows, describe_files
from deltalog.write.data_files import (
    WriteLayout,
    change_file,
    discard,
    with_change_type,
    write_rows,
)
from deltalog.write.deletion_vector_writer import write_deletion_vectors
from deltalog.write.identity_values import IdentityValues
from deltalog.write.input_streams import as_batches
from deltalog.write.metadata_changes import MetadataChanges
from deltalog.write.partition_files import write_streams
from deltalog.write.table_rules import TableRules, rules_of
from deltalog.write.task_files import TaskFiles, storage_of


class RowWriter:
    """Writes the rows of one transaction, and owns the files that it wrote until they are committed or released.

    Columns, layout and rules are those of the table after the transaction. Every method that writes raises
    SchemaMismatchError for rows that do not fit, and removes the files that it wrote when it fails, best effort.
    """

    def __init__(
        self,
        reader: LogReader,
        environment: Environment,
        changes: MetadataChanges,
        on_rows_end: Callable[[], object] = lambda: None,
    ) -> None:
        """``on_rows_end``: called when a stream of rows has ended, before the last file is closed."""
        self._on_rows_end = on_rows_end
        self._reader = reader
        self._now: datetime.datetime | None = None
        self._environment = environment
        self._changes = changes
        self._written_paths: list[str] = []
        self._applied_rules: TableRules | None = None  # those that written rows were checked by
        self._rules_source: tuple[Metadata, Protocol] | None = None  # of the applied rules
        self._identities = IdentityValues(reader.store.url)

    @property
    def written_paths(self) -> tuple[str, ...]:
        """The files that the transaction owns, as the log names them."""
        return tuple(self._written_paths)

    def new_uuid(self) -> str:
        """A fresh id for the name of a file."""
        return self._environment.new_uuid()

    def own(self, paths: Iterable[str]) -> None:
        """Take ownership of files, named as in the log, that were written for this transaction only."""
        self._written_paths.extend(paths)

    def release(self) -> None:
        """Leave the files that were written to the caller, who commits them in another transaction or deletes them."""
        self._written_paths.clear()

    def discard(self) -> list[Exception]:
        """Delete the files that the transaction owns, best effort; what could not be deleted, and why, is returned."""
        return discard(self._reader.store, self._written_paths)

    # ------------------------------------------------------------------------------------------------ rules

    def rules(self) -> TableRules:
        """The rules for new rows of the table after the transaction. Raises UnsupportedFeatureError, which names the
        rule, where one is not supported."""
        changes = self._changes
        rules = rules_of(changes.metadata, changes.protocol, self._reader.store.url, self._environment.clock_ms)
        self._identities.take_up(changes.identities)
        return replace(rules, table=self._reader.store.url, identities=self._identities) if self._identities else rules

    def now(self) -> datetime.datetime:
        """The time by the clock of the environment, in UTC, when it was first needed: one for a transaction."""
        if self._now is None:
            clock_ms = self._environment.clock_ms()
            self._now = datetime.datetime.fromtimestamp(clock_ms / 1000, datetime.timezone.utc)
        return self._now

    def check(self, unchecked: Sequence[AddFile], adds: Iterable[AddFile]) -> None:
        """Check the rows of ``unchecked`` files by the rules, and if the rules have changed since the last write, those
        of the files among ``adds`` that were written here. Raises ConstraintViolationError, InvalidDataFileError, and
        SchemaMismatchError for files of others where an identity column takes no values. Cost: none without rules, else
        the GETs of the columns that they use."""
        changes = self._changes
        if not unchecked and self._rules_source in (None, (changes.metadata, changes.protocol)):
            return
        layout = replace(self._layout(), rules=self.rules())
        if not layout.rules:
            return
        files = [add for add in unchecked if add.data_change]
        if files:
            self._identities.check_given(self._identities.names)
        if self._applied_rules is not None and self._applied_rules.demands != layout.rules.demands:
            own = set(self._written_paths)
            files.extend(add for add in adds if add.path in own)
        check_files(self._reader.files, files, layout)
        changes.raise_marks(self._identities.marks)

    # ------------------------------------------------------------------------------------------------ rows

    def write(self, rows: Any, checksum: Checksum | None = None, filled: bool = False) -> tuple[list[AddFile], int]:
        """Write new rows, a stream of Arrow batches. Returns the add actions and the number of rows. Absent columns are
        generated or get their default where the table defines one, else they are null. ``filled``: ``rules()`` have
        given the rows the values of their identity columns.

        Raises ConstraintViolationError, UnsupportedFeatureError as ``rules``. Cost: 1 PUT for each file.
        """
        return self._write(rows, replace(self._layout_of_new_rows(filled), checksum=checksum))

    def write_inserts(self, rows: Any) -> tuple[list[AddFile], int]:
        """As ``write`` of rows that are ``filled``, for a commit that has change files: each file has the change type
        insert in each row, and must be staged as a change file too (``change_file``)."""
        layout = replace(self._layout_of_new_rows(filled=True), extra_columns=(CHANGE_TYPE_FIELD,))
        return self._write(with_change_type("insert", rows), layout)

    def write_updates(
        self, streams: Sequence[Iterable[pa.RecordBatch]], num_rows: int | None, rules: TableRules
    ) -> list[AddFile]:
        """As ``write_copies``, of rows of which some have new values, which fulfil ``rules``, those of ``rules()``.
        ``num_rows``: None where it is not known."""
        self._record_applied(rules)
        return self.write_copies(streams, num_rows)

    def write_copies(self, streams: Sequence[Iterable[pa.RecordBatch]], num_rows: int | None) -> list[AddFile]:
        """Write existing rows that are moved: batches with the columns of ``row_tracking.kept_columns`` after those of
        the table, so that rows keep their ids; by threads if there are several streams. Raises RowCountError if these
        are not ``num_rows`` rows."""
        watched = [self._watched(stream) for stream in streams]
        adds, written = self._written(write_streams, watched, self.layout_of_copies())
        if num_rows is not None and written != num_rows:
            raise RowCountError(
                f"{self._reader.store.url}: {num_rows} rows of files that are rewritten must be kept, and {written} "
                "were read and written again. Nothing was committed; check that no other program changes data files.",
                written=num_rows,
                found=written,
            )
        return adds

    def layout_of_copies(self) -> WriteLayout:
        """How existing rows that are moved are written: with the columns that keep their ids. Raises CorruptTableError,
        InvalidPropertyError. Cost: none."""
        kept = row_tracking.kept_columns(self._changes.metadata.configuration, self._reader.store.url)
        extra = tuple(StructField(column.name, PrimitiveType("long")) for column in kept)
        return replace(self._layout(), extra_columns=extra)

    def write_changes(self, changes: Iterable[tuple[str, Any]]) -> list[AddCDCFile]:
        """Write change files: pairs of a change type (insert, delete, update_preimage, update_postimage) and a batch
        with the table's columns.

        Change readers read only the change files of a commit that has any, so these must have every change. Cost: 1
        PUT for each file.
        """
        batches = (batch for kind, each in changes for batch in with_change_type(kind, (each,)))
        adds, _ = self._write(batches, replace(self._layout(), extra_columns=(CHANGE_TYPE_FIELD,), as_changes=True))
        return [change_file(add) for add in adds]

    def write_deletion_vectors(self, vectors: Sequence[BitMap64]) -> list[DeletionVector]:
        """Store sets of row positions (from 0, in a Parquet file) as deletion vectors. Cost: at most 1 PUT for each
        2 MiB of them; small ones go into the log itself."""
        length = self._layout().prefix_length
        return write_deletion_vectors(self._reader.store, vectors, self.new_uuid, length, self._written_paths.append)

    def task_files(
        self,
        job: str,
        *,
        compression: str = "snappy",
        max_rows: int = 0,
        target_bytes: int = 1 << 30,
        extra_columns: Sequence[StructField] = (),
        as_changes: bool = False,
    ) -> TaskFiles:
        """How the tasks of a distributed job write rows that fulfil the rules of the table; ``take_over`` what they
        return. ``extra_columns``: of the rows and the files after those of the table, such as ``_change_type``.
        ``as_changes``: the files are change data files. Cost: none; it begins the checks of the commit, as
        ``LogStore.prepare_commit``."""
        base = self._changes.base
        self._reader.store.prepare_commit(0 if base is None else base.version + 1)
        layout = replace(self._layout(), extra_columns=tuple(extra_columns), as_changes=as_changes)
        return TaskFiles(storage_of(self._reader.store), layout, job, compression, max_rows, target_bytes)

    def take_over(self, files: Sequence[AddFile], num_rows: Iterable[int], written: int | None) -> None:
        """Own the files that the tasks of a job have written, for ``Transaction.add(known=True)``. ``num_rows``: of
        each file. ``written``: the number of rows of the job, counted in another way; RowCountError where the files
        hold another number. Cost: none."""
        self.own(add.path for add in files)
        check_rows(self._reader.store.url, written, list(num_rows))

    def note_values(self, files: Sequence[AddFile]) -> None:
        """Move the high-water marks of identity columns past the values in files of a distributed job, after ``rules``.
        Cost: none; without statistics the GETs of these columns."""
        if not self._identities:
            return
        layout = self._layout()
        schema = StructType(tuple(layout.schema.field(name) for name in sorted(self._identities.names)))
        leaves = leaves_of(schema, layout.mapping)
        bounds = statistics_of_files(files_table(files), leaves)
        unknown = set[str]()
        for leaf, column in zip(leaves, schema.fields, strict=True):
            low, high = (bounds.column(column_name(group, leaf)) for group in BOUNDS)
            self._identities.note(column.name, low)
            self._identities.note(column.name, high)
            known = low.is_valid().to_pylist()
            unknown |= {add.path for add, is_known in zip(files, known, strict=True) if not is_known}
        rules = TableRules(layout.rules.table, identities=self._identities)
        check_files(self._reader.files, [add for add in files if add.path in unknown], replace(layout, rules=rules))
        self._changes.raise_marks(self._identities.marks)

    def describe(
        self,
        files: Sequence[tuple[str, Mapping[str, str | None]]],
        tags: Mapping[str, Mapping[str, str]] | None,
        num_rows: int | None,
        examine: Examine | None,
    ) -> list[AddFile]:
        """Add actions for Parquet files that other programs wrote. As ``Transaction.add_parquet_files``."""
        adds = describe_files(self._reader.store, files, self._layout(), num_rows, examine)
        if not tags:
            return adds
        of_files = [dict(tags[path]) if path in tags else None for path, _ in files]
        return [msgspec.structs.replace(add, tags=each) for add, each in zip(adds, of_files, strict=True)]

    # ---------------------------------------------------------------------------------------------- helpers

    def _layout(self) -> WriteLayout:
        return WriteLayout.of(self._changes.metadata, self._changes.clustering_columns)

    def _layout_of_new_rows(self, filled: bool = False) -> WriteLayout:
        rules = self.rules()
        self._record_applied(rules)
        if filled:
            rules = replace(rules, identities=None)
        return replace(self._layout(), rules=rules, is_new=True)

    def _record_applied(self, rules: TableRules) -> None:
        self._applied_rules, self._rules_source = rules, (self._changes.metadata, self._changes.protocol)

    def _write(self, rows: Iterable[Any], layout: WriteLayout) -> tuple[list[AddFile], int]:
        return self._written(write_rows, self._watched(rows), layout)

    def _watched(self, rows: Any) -> Iterator[pa.RecordBatch]:
        yield from as_batches(rows)
        self._on_rows_end()

    def _written(self, write: Any, rows: Any, layout: WriteLayout) -> tuple[list[AddFile], int]:
        environment, base = self._environment, self._changes.base
        self._reader.store.prepare_commit(0 if base is None else base.version + 1)
        adds, count = write(self._reader.store, rows, layout, environment.new_uuid, environment.clock_ms())
        self._written_paths.extend(add.path for add in adds)
        self._changes.raise_marks(self._identities.marks)
        return adds, count
