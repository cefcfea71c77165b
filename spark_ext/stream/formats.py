"""The Python data source ``deltalog``, for streams and as a slow path for batches: ``spark_ext`` reads and writes
batches natively."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

import deltalog
from spark_ext.stream.batches import BatchReader, BatchWriter, FilteringReader
from spark_ext.stream.options import (
    BatchOptions,
    DefaultStorage,
    SourceOptions,
    batch_options,
    sink_options,
    source_options,
)
from spark_ext.stream.sink import sink
from spark_ext.stream.source import columns_of, source


class StreamFormat(DataSource):
    """The data source. ``register`` registers a subclass that contains the defaults of a session."""

    session_time_zone = "UTC"
    default_storage = DefaultStorage()
    pushes_filters = False

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "deltalog"

    def schema(self) -> StructType:
        """The columns of a source. Spark does not tell whether a stream or a batch is to be read, but only batch reads
        have the options ``versionAsOf`` and ``timestampAsOf``."""
        if any(name.lower() in ("versionasof", "timestampasof") for name in self.options):
            return columns_of(self._batch_options().snapshot())
        return columns_of(self._source_options().open())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The source of a query."""
        return source(self._source_options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The sink of a query."""
        return sink(sink_options(self.options, self.default_storage), schema, overwrite)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The rows of a batch."""
        kind = FilteringReader if self.pushes_filters else BatchReader
        return kind(self._batch_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of an append. Raises CallError for other modes."""
        if overwrite:
            raise deltalog.CallError(
                "format('deltalog') only appends. Overwrite with spark_ext.write(df).mode('overwrite').save(path), or "
                "call spark_ext.install()."
            )
        return BatchWriter(sink_options(self.options, self.default_storage), schema)

    def _batch_options(self) -> BatchOptions:
        return batch_options(self.options, self.default_storage, self.session_time_zone)

    def _source_options(self) -> SourceOptions:
        return source_options(self.options, self.default_storage, self.session_time_zone)
