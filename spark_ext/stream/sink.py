"""The sink of ``writeStream.format("deltalog")``: tasks stage files with deltalog, and the driver commits each batch
once.

The commit of a batch records the query's id and the batch's id in a txn action. If Spark repeats a committed batch, the
sink recognises the batch by its txn action and removes the new files. Staged files are removed only if no commit can
refer to them: after a repeated batch, after a commit that certainly failed, and after a failed task, since Spark never
commits a batch with a failed task.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import deltalog
from spark_ext.session.stores import bucket_of
from spark_ext.stream.options import SinkOptions, TableOptions, recorded_batch
from spark_ext.types import from_spark

_METADATA = "metadata"  # the file in a stream's checkpoint that contains the id of the query


class Staged(WriterCommitMessage):
    """The files that a task has staged, as the JSON of ``deltalog.StagedFiles``."""

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def files(self) -> deltalog.StagedFiles:
        """The staged files."""
        return deltalog.StagedFiles.from_json(self.text)


class _Sink(DataSourceStreamWriter):
    """Spark creates an instance of this class in every task, and for every commit in a separate process of the
    driver."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._schema = schema
        self._overwrite = overwrite
        if options.app_id is None and options.checkpoint is None:
            raise deltalog.CallError(
                "The stream has neither the option checkpointLocation nor txnAppId, so its batches could not be "
                "distinguished from those of other queries. Set option('checkpointLocation', …)."
            )
        prepare(options, schema, for_stream=True)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Commit what the tasks have staged, or nothing if the table has recorded this batch. Raises as
        ``Transaction.commit``, and CallError for a batch before the last recorded one."""
        staged = [message.files for message in messages if message is not None]
        table = self._options.table.open()
        app_id = self._options.app_id or query_id(self._options)
        try:
            # The id of the last recorded batch is read from the version on which the commit is based; therefore a
            # concurrent commit of the same batch by another driver is a conflict.
            with table.transaction() as transaction:
                if not self._is_recorded(transaction, app_id, batchId) and (
                    self._overwrite or any(each.files for each in staged)
                ):
                    self._commit(transaction, staged, app_id, batchId)
                    return
        except deltalog.DeltaLogError as error:
            if error.outcome is not deltalog.errors.Outcome.UNKNOWN:  # otherwise the commit may refer to the files
                discard(table, staged)
            raise
        discard(table, staged)

    def _is_recorded(self, transaction: deltalog.Transaction, app_id: str, batch: int) -> bool:
        """Whether the table has recorded this batch. Raises CallError as ``recorded_batch``."""
        assert transaction.snapshot is not None
        return recorded_batch(transaction.snapshot, app_id, batch, "query", "a txnAppId") == batch

    def _commit(
        self, transaction: deltalog.Transaction, staged: Sequence[deltalog.StagedFiles], app: str, batch: int
    ) -> None:
        check_metadata(
            transaction,
            staged,
            f"batch {batch} was written. Nothing was committed; restart the stream, which repeats the batch",
        )
        if self._overwrite:
            transaction.remove_all_files()
        for each in staged:
            transaction.add(*each.files, known=True)
        transaction.set_transaction(app, batch)
        mode = "Complete" if self._overwrite else "Append"
        parameters = {"outputMode": mode, "queryId": app, "epochId": str(batch)}
        effect = transaction.staged.metrics()
        metrics = {
            "numAddedFiles": effect["numFiles"],
            "numRemovedFiles": effect.get("numRemovedFiles", 0),
            "numOutputRows": sum(each.row_count for each in staged),
            "numOutputBytes": effect["numOutputBytes"],
        }
        transaction.commit("STREAMING UPDATE", parameters, metrics, self._options.user_metadata)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Remove, best effort, the files of a batch in which a task failed. If all tasks have succeeded, a commit may
        have been attempted, and nothing is removed."""
        if any(message is None for message in messages):
            staged = [message.files for message in messages if message is not None]
            if staged:
                discard(self._options.table.open(), staged)


def check_metadata(transaction: deltalog.Transaction, staged: Sequence[deltalog.StagedFiles], what: str) -> None:
    """Raise MetadataChangedError if the table's metadata has changed since the tasks staged their files. ``what``: the
    end of the error message, which says what happened meanwhile and what to do."""
    assert transaction.snapshot is not None
    if any(each.table != transaction.metadata for each in staged):
        raise deltalog.errors.MetadataChangedError(
            f"{transaction.snapshot.url}: columns or properties of the table have changed while {what}.",
            winning_version=transaction.snapshot.version,
            winning_operation=None,
            retryable=False,
        )


def stage(
    table: TableOptions,
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    new_columns: deltalog.schema.StructType | None = None,
) -> Staged:
    """Write the rows of a task as files that no version names yet. ``new_columns``: as for ``DeltaTable.stage``."""
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return Staged(table.open().stage(reader, new_columns=new_columns).to_json())


class RowSink(_Sink):
    """The sink for Spark 4.0, whose tasks receive rows."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        schema = _arrow_schema(self._schema)
        return stage(self._options.table, _batches(iterator, schema), schema)


if hasattr(datasource, "DataSourceStreamArrowWriter"):

    class ArrowSink(_Sink, datasource.DataSourceStreamArrowWriter):
        """The sink for Spark 4.1 and newer, whose tasks receive Arrow batches."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """Stage the rows of a task."""
            first = next(iterator, None)
            if first is None:
                return stage(self._options.table, iter(()), _arrow_schema(self._schema))
            return stage(self._options.table, chained(first, iterator), first.schema)


def sink(options: SinkOptions, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """The sink class for the running version of Spark. ``overwrite``: whether the output mode is complete."""
    has_arrow = hasattr(datasource, "DataSourceStreamArrowWriter")
    kind = ArrowSink if has_arrow else RowSink
    return kind(options, schema, overwrite)


def prepare(options: SinkOptions, schema: StructType, *, for_stream: bool) -> deltalog.schema.StructType | None:
    """Create the table if it does not exist. Returns the columns that the commit of the rows must add
    (``mergeSchema``), or None; for a stream, and with column mapping, they are added now. Raises SchemaMismatchError if
    the layout or the columns do not fit the table. Cost: as ``DeltaTable.open``, and 1 commit for a change."""
    columns = from_spark(schema)
    table = _opened(options)
    if table is None:
        try:
            deltalog.DeltaTable.create(
                options.table.url,
                deltalog.schema.StructType(tuple(_nullable(field) for field in columns.fields)),
                partition_by=options.partition_by,
                cluster_by=options.cluster_by,
                properties=options.properties,
                **options.table.storage,
            )
            return None
        except deltalog.TableExistsError:  # another writer was first
            table = options.table.open()
    snapshot = table.snapshot()
    clustering = tuple(".".join(column) for column in snapshot.clustering_columns)
    _check_layout(table, "partitioned", "partitionBy", options.partition_by, snapshot.partition_columns)
    _check_layout(table, "clustered", "clusterBy", options.cluster_by, clustering)
    if not options.merge_schema or all(snapshot.schema.find(field.name) is not None for field in columns.fields):
        return None
    if not for_stream and snapshot.metadata.configuration.get("delta.columnMapping.mode", "none").lower() == "none":
        return columns
    with table.transaction() as transaction:
        transaction.merge_schema(columns)
        transaction.commit("ADD COLUMNS")
    return None


def _check_layout(table: deltalog.DeltaTable, how: str, call: str, given: Sequence[str], have: Sequence[str]) -> None:
    """Raise SchemaMismatchError if the call names columns that differ from the table's, ignoring case."""
    if given and [name.lower() for name in given] != [name.lower() for name in have]:
        raise deltalog.SchemaMismatchError(
            f"{table.url} is {how} by {', '.join(have) or 'nothing'}, but {call} of the stream has {', '.join(given)}. "
            f"Leave {call} out."
        )


def _opened(options: SinkOptions) -> deltalog.DeltaTable | None:
    try:
        return options.table.open()
    except deltalog.TableNotFoundError:
        return None


def _nullable(field: deltalog.schema.StructField) -> deltalog.schema.StructField:
    return deltalog.schema.StructField(field.name, field.data_type, True, field.metadata)


def query_id(options: SinkOptions) -> str:
    """The id of the query, read from the query's checkpoint, so that it stays the same across restarts. Raises
    CallError. Cost: 1 GET."""
    root = str(options.checkpoint)
    try:
        store = deltalog.open_store(root.removeprefix("file:"), **_of_store(root, options.table))
        found = json.loads(store.get(_METADATA))["id"]
    except (deltalog.DeltaLogError, ValueError, KeyError, TypeError, OSError) as error:
        where = posixpath.join(root, _METADATA)
        raise deltalog.CallError(
            f"The id of the query cannot be read from {where}: {error}. Set option('txnAppId', …) of the stream, to a "
            "name that is the same after every restart but differs between checkpoints. Nothing was written."
        ) from error
    return str(found)


def _of_store(root: str, table: TableOptions) -> Mapping[str, Any]:
    """The storage options for the checkpoint: those of the table, if table and checkpoint are both on S3."""
    if bucket_of(root) is None or bucket_of(table.url) is None:
        return {}
    return {name: value for name, value in table.storage.items() if name != "commit"}


def discard(table: deltalog.DeltaTable, staged: Sequence[deltalog.StagedFiles]) -> None:
    """Remove staged files on a best-effort basis; if a version of the table contains one of them, remove none."""
    with contextlib.suppress(Exception):
        table.discard_staged(staged)


def chained(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All batches, including the first, which has already been taken from the iterator."""
    yield first
    yield from others


def _arrow_schema(schema: StructType) -> pa.Schema:
    return from_spark(schema).to_arrow()


def _batches(rows: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    held: list[dict[str, Any]] = []
    for row in rows:
        held.append(row.asDict(recursive=True))
        if len(held) == 10_000:
            yield pa.RecordBatch.from_pylist(held, schema)
            held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, schema)
