"""Writes the new data files and change data files of a DELETE, UPDATE or MERGE, by Spark jobs in one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading.table_columns import quoted
from spark_ext.types import from_spark, spark_type
from spark_ext.writing import file_rows, file_sizes
from spark_ext.writing.assignments import explained_casts
from spark_ext.writing.casts import Fitting, Value
from spark_ext.writing.data_schema import problems, stored_schema
from spark_ext.writing.file_job import Job, explained, job_of
from spark_ext.writing.job_files import rows_of
from spark_ext.writing.new_files import NewFiles
from spark_ext.writing.row_count import Count, RowCount
from spark_ext.writing.write_options import WriteRequest

# The column of change data files that contains the kind of change.
CHANGE_TYPE = "_change_type"


class ChangedFiles:
    """Writes the files of one transaction. Every call of ``write`` is a Spark job."""

    def __init__(self, transaction: deltalog.Transaction, request: WriteRequest, url: str) -> None:
        self._transaction = transaction
        self.url = url
        self.rules = transaction.row_writer.rules()
        self._files = NewFiles.in_transaction(transaction)
        rows = file_sizes.rows_per_file(request, transaction)
        self._options = {} if rows is None else {"maxRecordsPerFile": rows}
        self._jobs: list[Job] = []
        self._is_native = job_of(url).is_native
        snapshot = transaction.snapshot
        assert snapshot is not None
        self._changed_schema = snapshot.schema if snapshot.schema != self.schema else None
        self.num_files = self.num_bytes = 0

    @property
    def schema(self) -> deltalog.schema.StructType:
        """The columns of the table after the transaction."""
        return self._files.schema

    @property
    def changes_columns(self) -> bool:
        """Whether the transaction changes the table's columns."""
        return self._changed_schema is not None

    @contextlib.contextmanager
    def removed_on_errors(self) -> Iterator[None]:
        """Remove the written files if the block fails, unless a commit may already refer to these files."""
        try:
            yield
        except BaseException as error:
            if getattr(error, "outcome", None) is not deltalog.errors.Outcome.UNKNOWN:
                with contextlib.suppress(deltalog.DeltaLogError):  # the transaction may have ended already
                    self._transaction.abort()
                for job in self._jobs:
                    job.remove(stragglers=True)
            raise

    def new_rows(self, rows: DataFrame, carried: Sequence[str], is_inserted: bool) -> DataFrame:
        """Rows with new values, in the table's types, as files store them: missing values are filled in, and the
        table's constraints are checked. ``carried``: further columns of ``rows``, which are kept unchanged.
        ``is_inserted``: whether the rows are inserted rather than updated. Raises SchemaMismatchError."""
        with explained_casts(self.url):
            data = stored_schema(from_spark(rows.drop(*carried).schema))
        found = list(problems(self.schema, data, False, ""))
        if found:
            raise deltalog.SchemaMismatchError(
                f"The new values do not fit the table at {self.url}:\n" + "\n".join(f"- {each}" for each in found)
            )
        return file_rows.new_rows(
            rows, data, self._files, self.rules, self._is_native, carried=carried, is_inserted=is_inserted
        )

    def old_rows(self, rows: DataFrame, carried: Sequence[str]) -> DataFrame:
        """Existing rows of the table, in the form in which data files store them; the rows are not checked."""
        frame = rows if self._changed_schema is None else self._fitted(rows, self._changed_schema, carried)
        return file_rows.old_rows(frame, self._files, self._is_native, carried)

    def _fitted(self, rows: DataFrame, have: deltalog.schema.StructType, carried: Sequence[str]) -> DataFrame:
        """Rows of the table, cast to the types that its columns have after the transaction."""
        columns = []
        for column in self.schema.fields:
            given, want = have.find(column.name), spark_type(column.data_type)
            if given is None:
                value = F.lit(None).cast(want)
            else:
                value = Fitting("null").column(
                    Value(quoted(column.name), spark_type(given.data_type)), want, column.name
                )
            columns.append(value.alias(column.name))
        return rows.select(*columns, *map(quoted, carried))

    def write(
        self,
        rows: DataFrame,
        num_rows: int | None,
        extra: Sequence[str] = (),
        as_changes: bool = False,
        count: Count | None = None,
    ) -> list[deltalog.engine.AddFile]:
        """Write rows from ``new_rows`` or ``old_rows``, and stage their files.

        ``num_rows``: the expected number of rows; None if not known. ``extra``: the names of additional columns, which
        follow the table's columns. If CHANGE_TYPE is among these columns, the job writes change data files; without
        ``as_changes``, these files are also data files. ``count``: as for ``Job.write``. Raises RowCountError if the
        number of rows differs, by the job's count or by the files; the errors of the table's rules; JobFailedError,
        StoreError, and Spark's own errors. Cost: the job.
        """
        job = job_of(self.url)
        self._jobs.append(job)
        columns = tuple(
            deltalog.schema.StructField(
                name, deltalog.schema.PrimitiveType("string" if name == CHANGE_TYPE else "long")
            )
            for name in extra
        )
        files = replace(self._files, extra_columns=columns, as_changes=as_changes)
        with explained(self.rules, None, job):
            adds = job.write(rows, files, self._options, count)
        self.check_count(num_rows, sum(rows_of(add) for add in adds))
        if as_changes:
            return adds
        self._transaction.row_writer.note_values(adds)
        if CHANGE_TYPE in extra:
            self._transaction.add_cdc(*adds)
        self.num_files += len(adds)
        self.num_bytes += sum(add.size for add in adds)
        return adds

    def check_count(self, found: int | None, written: int | None) -> None:
        """Raise RowCountError if the number of rows found and the number written differ. None: unknown."""
        if found is None or written is None or found == written:
            return
        raise deltalog.errors.RowCountError(
            f"{self.url}: {found} rows were found for new files, and {written} were written. Nothing was committed; "
            "check that no other program changes data files, and that the query returns the same rows when repeated.",
            written=written,
            found=found,
        )

    def check_found(self, found: tuple[int, int], count: RowCount) -> None:
        """Raise RowCountError if the rows selected again while writing are not the rows found before. ``found``: the
        number and the digest of the rows that the first query found."""
        written = count.marked()
        self.check_count(found[0], written[0])
        if written != found:
            raise deltalog.errors.RowCountError(
                f"{self.url}: new files have {written[0]} changed rows, as many as were found, but not the same ones. "
                "Nothing was committed; check that the query returns the same rows when repeated.",
                written=written[0],
                found=found[0],
            )
