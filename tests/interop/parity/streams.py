"""Streaming queries that read or write the table of a scenario. A run ends when all available data is processed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import spark_ext
from tests.interop.parity.tables import Table
from tests.spark.streams import finish


def read(table: Table, *, checkpoint: str = "checkpoint", schema: str | None = None, **options: Any) -> None:
    """Run a query that reads the table, and record the rows of each batch that is not empty. A second run with the same
    ``checkpoint`` continues the query."""
    table.do(functools.partial(_read, table, checkpoint, schema, options))


def _read(table: Table, checkpoint: str, schema: str | None, options: Mapping[str, Any]) -> None:
    spark_ext.register(table.spark)
    reader = table.spark.readStream.format(table.engine.format).options(**options)
    frame = (reader if schema is None else reader.schema(schema)).load(str(table.path))

    def keep(df: Any, batch: int) -> None:
        if not df.isEmpty():
            table.keep(df)

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(_beside(table, checkpoint)))
    finish(writer.trigger(availableNow=True).start())


def _beside(table: Table, name: str) -> Path:
    return table.path.parent / name


class Input:
    """The input of streaming queries that write the scenario's table: a table written by delta-spark, which is read one
    file per batch."""

    def __init__(self, table: Table, columns: str = "(id bigint, s string)") -> None:
        self._table = table
        self._name = f"delta.`{_beside(table, 'input')}`"
        table.spark.sql(f"create table {self._name} {columns} using delta")

    def add(self, values: str) -> None:
        """One file of rows."""
        self._table.spark.sql(f"insert into {self._name} select /*+ coalesce(1) */ * from values {values}")

    def write(
        self,
        mode: str = "append",
        of: Callable[[Any], Any] = lambda df: df,
        how: Callable[[Any], Any] = lambda writer: writer,
        checkpoint: str = "checkpoint",
        **options: Any,
    ) -> None:
        """Run a streaming query that writes the stream's rows, transformed by ``of``, to the table. ``how`` calls the
        other methods of the stream writer."""

        def run() -> None:
            spark_ext.register(self._table.spark)
            frame = of(self._stream())
            writer = frame.writeStream.format(self._table.engine.format).outputMode(mode).options(**options)
            writer = how(writer.option("checkpointLocation", str(_beside(self._table, checkpoint))))
            finish(writer.trigger(availableNow=True).start(str(self._table.path)))

        self._table.do(run)

    def each(self, batch: Callable[[Any, int], None]) -> None:
        """Run a streaming query that calls ``batch`` for each micro-batch."""
        writer = self._stream().writeStream.foreachBatch(batch)
        writer = writer.option("checkpointLocation", str(_beside(self._table, "checkpoint")))
        finish(writer.trigger(availableNow=True).start())

    def _stream(self) -> Any:
        reader = self._table.spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
        return reader.load(str(_beside(self._table, "input")))

    def forget_the_last_batch(self, checkpoint: str = "checkpoint") -> None:
        """Remove the last batch from the checkpoint, as if Spark had failed after its commit; Spark then repeats it."""
        notes = sorted((_beside(self._table, checkpoint) / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        notes[-1].unlink()
        notes[-1].with_name(f".{notes[-1].name}.crc").unlink(missing_ok=True)
