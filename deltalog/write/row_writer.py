"""Writes rows into data files, applying the table's rules, and returns add actions.

Spec: PROTOCOL.md#data-files, #add-cdc-file, #deletion-vectors, #row-tracking, #identity-columns,
#writer-requirements-for-addcdcfile.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from deltalog.environment import Environment
from deltalog.errors import RowCountError
from deltalog.lazy_names import lazy_modules
from deltalog.log.file_tables import files_table
from deltalog.log.reader import LogReader
from deltalog.parquet.file_options import DEFAULT, FileOptions
from deltalog.parquet.file_writer import Checksum
from deltalog.protocol import row_tracking
from deltalog.protocol.actions import AddCDCFile, AddFile, DeletionVector, Metadata, Protocol
from deltalog.protocol.schema import PrimitiveType, StructField, StructType, uses_type
from deltalog.write.data_files import (
    WriteLayout,
    change_file,
    discard,
    with_change_type,
    write_rows,
)
from deltalog.write.identity_values import IdentityValues
from deltalog.write.input_streams import as_batches
from deltalog.write.metadata_changes import MetadataChanges
from deltalog.write.table_rules import TableRules, rules_of

if TYPE_CHECKING:
    import pyroaring

    from deltalog.log import file_statistics
    from deltalog.read import changes as change_feed
    from deltalog.write import added_files, partition_files, variant_columns
    from deltalog.write import deletion_vector_writer as vector_writer
    from deltalog.write import task_files as distributed_files
else:
    lazy_modules(
        __name__,
        "pyroaring",
        "deltalog.log.file_statistics",
        "deltalog.write.added_files",
        "deltalog.write.partition_files",
        "deltalog.write.variant_columns",
        change_feed="deltalog.read.changes",
        vector_writer="deltalog.write.deletion_vector_writer",
        distributed_files="deltalog.write.task_files",
    )


class RowWriter:
    """Writes the rows of one transaction, and owns the written files until they are committed or released. The columns,
    the layout and the rules are those that the table has after the transaction. Every method that writes raises
    SchemaMismatchError for rows that do not fit the table's columns; if it fails, it deletes the files that it wrote,
    best effort.
    """

    def __init__(
        self,
        reader: LogReader,
        environment: Environment,
        changes: MetadataChanges,
        on_rows_end: Callable[[], object] = lambda: None,
        options: FileOptions = DEFAULT,
    ) -> None:
        """``on_rows_end``: called at the end of a stream of rows, before the last file is closed. ``options``: how the
        files are encoded."""
        self._options = options
        self._on_rows_end = on_rows_end
        self._reader = reader
        self._now: datetime.datetime | None = None
        self._environment = environment
        self._changes = changes
        self._written_paths: list[str] = []
        self._applied_rules: TableRules | None = None  # the rules against which written rows were checked
        self._rules_source: tuple[Metadata, Protocol] | None = None  # source of the applied rules
        self._identities = IdentityValues(reader.store.url)

    @property
    def written_paths(self) -> tuple[str, ...]:
        """The paths of the files that the transaction owns, in the form used in the log."""
        return tuple(self._written_paths)

    def new_uuid(self) -> str:
        """A new id for a file name."""
        return self._environment.new_uuid()

    def own(self, paths: Iterable[str]) -> None:
        """Take ownership of files that were written only for this transaction. ``paths``: the paths of the files, as in
        the log."""
        self._written_paths.extend(paths)

    def release(self) -> None:
        """Give up ownership of the files that the transaction has written. The caller must commit these files in
        another transaction or delete them."""
        self._written_paths.clear()

    def discard(self) -> list[Exception]:
        """Delete the files that the transaction owns, best effort. Returns the failures."""
        return discard(self._reader.store, self._written_paths)

    # ------------------------------------------------------------------------------------------ table rules

    def rules(self) -> TableRules:
        """The rules for new rows, as they are in the table after the transaction. Raises UnsupportedFeatureError, which
        names the rule, if one is not supported."""
        changes = self._changes
        rules = rules_of(changes.metadata, changes.protocol, self._reader.store.url, self._environment.clock_ms)
        self._identities.resume(changes.identities)
        return replace(rules, table=self._reader.store.url, identities=self._identities) if self._identities else rules

    def now(self) -> datetime.datetime:
        """The transaction's current time, in UTC and from the environment's clock. All calls in a transaction return
        the time of the first call."""
        if self._now is None:
            clock_ms = self._environment.clock_ms()
            self._now = datetime.datetime.fromtimestamp(clock_ms / 1000, datetime.timezone.utc)
        return self._now

    def check(self, unchecked: Sequence[AddFile], adds: Iterable[AddFile]) -> None:
        """Check the rows of the files ``unchecked`` against the table's rules. If the table's rules have changed since
        the last write, also check the files in ``adds`` that this transaction wrote. Raises ConstraintViolationError,
        InvalidDataFileError, and SchemaMismatchError for foreign files with a GENERATED ALWAYS identity column. Cost:
        none without rules, else the GETs of the columns that they use."""
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
        added_files.check_files(self._reader.files, files, layout)
        changes.raise_marks(self._identities.marks)

    # ------------------------------------------------------------------------------------------------ rows

    def write(self, rows: Any, checksum: Checksum | None = None, filled: bool = False) -> tuple[list[AddFile], int]:
        """Write new rows, a stream of Arrow batches. Returns the add actions and the number of rows. An absent column
        is generated, or gets its default value if the table defines one; otherwise it is null. ``filled``: whether the
        rows already contain identity values, from ``rules()``, and their variants are encoded.

        Raises ConstraintViolationError, UnsupportedFeatureError as ``rules``. Cost: 1 PUT for each file.
        """
        layout = replace(self._layout_of_new_rows(filled), checksum=checksum)
        if not filled and uses_type(layout.schema, "variant"):
            rows = variant_columns.encoded_batches(as_batches(rows), layout.schema)
        return self._write(rows, layout)

    def write_inserts(self, rows: Any) -> tuple[list[AddFile], int]:
        """Like ``write(rows, filled=True)``, for a commit with change data files. Every row is written with the change
        type ``insert``; the caller must stage each file also as a change data file (``change_file``)."""
        layout = replace(self._layout_of_new_rows(filled=True), extra_columns=(change_feed.CHANGE_TYPE_FIELD,))
        return self._write(with_change_type("insert", rows), layout)

    def write_updates(
        self, streams: Sequence[Iterable[pa.RecordBatch]], num_rows: int | None, rules: TableRules
    ) -> list[AddFile]:
        """Like ``write_copies``, but some rows have new values, which must satisfy ``rules`` (from ``rules()``).
        ``num_rows``: None if unknown."""
        self._record_applied(rules)
        return self.write_copies(streams, num_rows)

    def write_copies(self, streams: Sequence[Iterable[pa.RecordBatch]], num_rows: int | None) -> list[AddFile]:
        """Copy existing rows into new files, with several parallel streams. After the table's columns, batches contain
        the columns of ``row_tracking.kept_columns``, so that rows keep their row ids. Raises RowCountError unless there
        are ``num_rows`` rows."""
        watched = [self._watched(stream) for stream in streams]
        adds, written = self._written(partition_files.write_streams, watched, self.layout_of_copies())
        if num_rows is not None and written != num_rows:
            raise RowCountError(
                f"{self._reader.store.url}: {num_rows} rows of rewritten files must be kept, but {written} were read "
                "and copied. Nothing was committed. Check that no other program changes data files.",
                written=num_rows,
                found=written,
            )
        return adds

    def layout_of_copies(self) -> WriteLayout:
        """The layout for copied rows, with the row tracking columns. Raises CorruptTableError, InvalidPropertyError.
        Cost: none."""
        kept = row_tracking.kept_columns(self._changes.metadata.configuration, self._reader.store.url)
        extra = tuple(StructField(column.name, PrimitiveType("long")) for column in kept)
        return replace(self._layout(), extra_columns=extra)

    def write_changes(self, changes: Iterable[tuple[str, Any]]) -> list[AddCDCFile]:
        """Write change data files. ``changes``: pairs of a change type (insert, delete, update_preimage,
        update_postimage) and a batch with the table's columns.

        If a commit has change data files, readers of the change data feed read no other files; therefore change data
        files must contain every change. Cost: 1 PUT for each file.
        """
        batches = (batch for kind, each in changes for batch in with_change_type(kind, (each,)))
        adds, _ = self._write(
            batches, replace(self._layout(), extra_columns=(change_feed.CHANGE_TYPE_FIELD,), as_changes=True)
        )
        return [change_file(add) for add in adds]

    def write_deletion_vectors(self, vectors: Sequence[pyroaring.BitMap64]) -> list[DeletionVector]:
        """Store sets of row positions (from 0, in a Parquet file) as deletion vectors. Cost: at most 1 PUT for each 2
        MiB."""
        length = self._layout().prefix_length
        return vector_writer.write_deletion_vectors(
            self._reader.store, vectors, self.new_uuid, length, self._written_paths.append
        )

    def task_files(
        self,
        job: str,
        *,
        compression: str = "snappy",
        max_rows: int = 0,
        target_bytes: int = 1 << 30,
        extra_columns: Sequence[StructField] = (),
        as_changes: bool = False,
    ) -> distributed_files.TaskFiles:
        """The file writer for the tasks of a distributed job. The rows must satisfy the table's rules. Pass the results
        of the tasks to ``take_over``. ``extra_columns``: columns that come after the table's columns, such as
        ``_change_type``. ``as_changes``: whether the files are change data files. Cost: none; starts the commit's
        checks, as ``LogStore.prepare_commit``."""
        base = self._changes.base
        self._reader.store.prepare_commit(0 if base is None else base.version + 1)
        layout = replace(self._layout(), extra_columns=tuple(extra_columns), as_changes=as_changes)
        return distributed_files.TaskFiles(
            distributed_files.storage_of(self._reader.store), layout, job, compression, max_rows, target_bytes
        )

    def take_over(self, files: Sequence[AddFile], num_rows: Iterable[int], written: int | None) -> None:
        """Take ownership of the files that a job's tasks wrote, for ``Transaction.add(known=True)``. ``num_rows``: the
        row count of each file. ``written``: an independent count of the job's rows; RowCountError is raised if the
        counts differ. Cost: none."""
        self.own(add.path for add in files)
        added_files.check_rows(self._reader.store.url, written, list(num_rows))

    def note_values(self, files: Sequence[AddFile]) -> None:
        """Advance the high-water marks of identity columns past the values in the files of a distributed job. Call
        ``rules`` first. Cost: none; without statistics the GETs of these columns."""
        if not self._identities:
            return
        layout = self._layout()
        schema = StructType(tuple(layout.schema.field(name) for name in sorted(self._identities.names)))
        leaves = file_statistics.leaves_of(schema, layout.mapping)
        bounds = file_statistics.statistics_of_files(files_table(files), leaves)
        unknown = set[str]()
        for leaf, column in zip(leaves, schema.fields, strict=True):
            low, high = (bounds.column(file_statistics.column_name(group, leaf)) for group in file_statistics.BOUNDS)
            self._identities.note(column.name, low)
            self._identities.note(column.name, high)
            known = low.is_valid().to_pylist()
            unknown |= {add.path for add, is_known in zip(files, known, strict=True) if not is_known}
        rules = TableRules(layout.rules.table, identities=self._identities)
        added_files.check_files(
            self._reader.files, [add for add in files if add.path in unknown], replace(layout, rules=rules)
        )
        self._changes.raise_marks(self._identities.marks)

    def describe(
        self,
        files: Sequence[tuple[str, Mapping[str, str | None]]],
        tags: Mapping[str, Mapping[str, str]] | None,
        num_rows: int | None,
        examine: added_files.Examine | None,
    ) -> list[AddFile]:
        """Create add actions for Parquet files that other programs wrote. Like ``Transaction.add_parquet_files``."""
        adds = added_files.describe_files(self._reader.store, files, self._layout(), num_rows, examine)
        if not tags:
            return adds
        of_files = [dict(tags[path]) if path in tags else None for path, _ in files]
        return [msgspec.structs.replace(add, tags=each) for add, each in zip(adds, of_files, strict=True)]

    # ---------------------------------------------------------------------------------------------- helpers

    def _layout(self) -> WriteLayout:
        changes = self._changes
        layout = WriteLayout.for_table(changes.metadata, changes.protocol, changes.clustering_columns)
        return layout if self._options is DEFAULT else replace(layout, options=self._options)

    def _layout_of_new_rows(self, filled: bool = False) -> WriteLayout:
        rules = self.rules()
        self._record_applied(rules)
        if filled:
            rules = replace(rules, identities=None)
        return replace(self._layout(), rules=rules, is_new=True)

    def _record_applied(self, rules: TableRules) -> None:
        self._applied_rules, self._rules_source = rules, (self._changes.metadata, self._changes.protocol)

    def _write(self, rows: Iterable[Any], layout: WriteLayout) -> tuple[list[AddFile], int]:
        if layout.options.target_bytes is not None:
            return self._written(partition_files.write_streams, [self._watched(rows)], layout)
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
