"""The Python data source ``deltalog``, for streams only: ``spark_ext`` reads and writes batches natively."""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

import deltalog
from spark_ext.stream.options import DefaultStorage, SourceOptions, sink_options, source_options
from spark_ext.stream.sink import sink
from spark_ext.stream.source import columns_of, source


class StreamFormat(DataSource):
    """The data source. ``register`` registers a subclass with the defaults of a session."""

    session_time_zone = "UTC"
    default_storage = DefaultStorage()

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "deltalog"

    def schema(self) -> StructType:
        """The columns of a source."""
        return columns_of(self._source_options().open())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The source of a query."""
        return source(self._source_options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The sink of a query."""
        return sink(sink_options(self.options, self.default_storage), schema, overwrite)

    def reader(self, schema: StructType) -> NoReturn:
        """Raise CallError: batch reads are not supported."""
        raise deltalog.CallError(
            "format('deltalog') is for streams. Read a batch with spark_ext.read(spark).load(path)."
        )

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Raise CallError: batch writes are not supported."""
        raise deltalog.CallError(
            "format('deltalog') is for streams. Write a batch with spark_ext.write(df).save(path)."
        )

    def _source_options(self) -> SourceOptions:
        return source_options(self.options, self.default_storage, self.session_time_zone)
