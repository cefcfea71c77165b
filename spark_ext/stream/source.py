"""The source of ``readStream.format("deltalog")``: deltalog plans batches on the driver, and tasks read their files
with deltalog into Arrow.

Offsets, files and errors come from ``deltalog.TableStream``. Limits on batches need Spark 4.2, the first version that
passes the start offset of a batch to a Python source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import deltalog
from spark_ext.stream.options import DEFAULT_MAX_FILES, SourceOptions
from spark_ext.types import to_spark

try:
    from pyspark.sql.streaming import datasource as limits
except ImportError:  # Spark 4.0 and 4.1
    limits = None

# The size of the data that one task reads, as in Spark's own scans.
_TASK_BYTES = 128 << 20
# The cost of opening a file, in bytes, as spark.sql.files.openCostInBytes.
_OPEN_BYTES = 4 << 20
# The minimum size of a task. Each task costs a round trip to a Python worker, so small batches are split into fewer
# than _TASKS tasks.
_LEAST_BYTES = 8 * _OPEN_BYTES
_TASKS = 8


class FilesOfTask(InputPartition):
    """The files that one task reads, and their reader."""

    def __init__(self, reader: deltalog.engine.StreamReader, files: Sequence[deltalog.engine.StreamFile]) -> None:
        self.reader = reader
        self.files = files


class _Reader(DataSourceStreamReader):
    """Plans batches in a single driver process for as long as the query runs; ``read`` runs in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get all other data from the input partition that they are given.
        return {"_options": None, "_schema": self._schema}

    @cached_property
    def _stream(self) -> deltalog.TableStream:
        stream = self._options.open()
        found, given = columns_of(stream).simpleString(), self._schema.simpleString()
        if found != given:
            raise deltalog.SchemaMismatchError(
                f"{stream.snapshot.url} has the columns {found} at version {stream.snapshot.version}, but the stream "
                f"was started with {given}. Restart the stream, without a schema of its own."
            )
        return stream

    @cached_property
    def _first(self) -> deltalog.engine.StreamOffset:
        return self._stream.first_offset()

    def initialOffset(self) -> dict[str, Any]:
        """The offset at which a query without a checkpoint begins."""
        return self._first.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The files of a batch, distributed to tasks."""
        first, last = (deltalog.engine.StreamOffset.from_json(each) for each in (start, end))
        files = self._stream.files(first, last)
        return [FilesOfTask(self._stream.reader, each) for each in grouped_into_tasks(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's files."""
        assert isinstance(partition, FilesOfTask)
        wanted = arrow_schema(self._schema)
        for batch in partition.reader.batches(partition.files):
            yield batch if batch.schema.equals(wanted) else fitted(batch, wanted)


class StreamSource(_Reader):
    """The source for Spark 4.0 and 4.1: a batch contains all available rows."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.max_files is not None or options.max_bytes is not None:
            raise deltalog.UnsupportedFeatureError(
                f"maxFilesPerTrigger and maxBytesPerTrigger need Spark 4.2; this is {pyspark.__version__}, which does "
                "not tell a Python source where a batch begins. Without them, a batch has all available rows.",
                features=("limits of a Python data source",),
            )
        super().__init__(options, schema)

    def latestOffset(self) -> dict[str, Any]:
        """The end of the next batch. Spark calls this method before it passes the checkpoint's offset, so the batch may
        begin at a later offset than this method assumes."""
        return self._stream.latest_offset(self._first).to_json()


if limits is not None:

    class LimitedStreamSource(_Reader, limits.SupportsTriggerAvailableNow):
        """The source for Spark 4.2 and newer."""

        _until: deltalog.engine.StreamOffset | None = None

        def getDefaultReadLimit(self) -> Any:
            """Returns the limit that Spark passes to ``latestOffset`` if the trigger limits batches."""
            options = self._options
            if options.max_files is None and options.max_bytes is not None:
                return limits.ReadMaxBytes(options.max_bytes)
            return limits.ReadMaxFiles(options.max_files or DEFAULT_MAX_FILES)

        def prepareForTriggerAvailableNow(self) -> None:
            """Make the query end at the offset that is the latest at the time of this call."""
            self._until = self._stream.latest_offset()

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            """The end of the batch that begins at ``start``."""
            first = deltalog.engine.StreamOffset.from_json(start)
            files = size = None
            if not isinstance(limit, limits.ReadAllAvailable):
                files = getattr(limit, "max_files", self._options.max_files)
                size = getattr(limit, "max_bytes", self._options.max_bytes)
            found = self._stream.latest_offset(first, max_files=files, max_bytes=size, until=self._until)
            return found.to_json()

        def reportLatestOffset(self) -> dict[str, Any]:
            """The newest offset, for the status of the query."""
            return self._stream.latest_offset().to_json()


def source(options: SourceOptions, schema: StructType) -> DataSourceStreamReader:
    """A stream source, of the class that this version of Spark supports."""
    return StreamSource(options, schema) if limits is None else LimitedStreamSource(options, schema)


def columns_of(stream: deltalog.TableStream | deltalog.Snapshot) -> StructType:
    """The Spark schema of a stream or a snapshot. Raises UnsupportedFeatureError for variants."""
    schema = to_spark(stream.schema)
    variants = [field.name for field in schema.fields if "variant" in field.dataType.simpleString()]
    if variants:
        url = stream.url if isinstance(stream, deltalog.Snapshot) else stream.snapshot.url
        raise deltalog.UnsupportedFeatureError(
            f"{url}: format('deltalog') does not read variants ({', '.join(variants)}). Use spark_ext.read.",
            features=("variantType",),
        )
    return StructType([type(field)(field.name, field.dataType, field.nullable) for field in schema.fields])


def grouped_into_tasks(files: Sequence[deltalog.engine.StreamFile]) -> list[list[deltalog.engine.StreamFile]]:
    """The files, in order, divided among tasks: at most about _TASK_BYTES per task; a small batch is divided among up
    to _TASKS tasks."""
    weight = sum(file.size_bytes + _OPEN_BYTES for file in files)
    most = max(_LEAST_BYTES, min(_TASK_BYTES, weight // _TASKS))
    tasks: list[list[deltalog.engine.StreamFile]] = []
    held = most
    for file in files:
        if held + file.size_bytes // 2 >= most:
            tasks.append([])
            held = 0
        tasks[-1].append(file)
        held += file.size_bytes + _OPEN_BYTES
    return tasks


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of batches."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.0
        return to_arrow_schema(schema)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch cast to the types that Spark expects."""
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
