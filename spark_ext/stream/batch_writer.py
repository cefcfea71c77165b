"""Writes the micro-batches of ``foreachBatch`` exactly once. This writer works with every version of Spark and uses
Spark's Parquet writer.

The commit of a batch records the application id and the batch id in a txn action. If Spark repeats a batch after a
failure, the txn action shows that it is committed, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

import deltalog
from spark_ext.results import WriteResult
from spark_ext.session import paths
from spark_ext.session.paths import Location
from spark_ext.stream.options import recorded_batch
from spark_ext.writing.writer import Writer

_MODES = {"append": "append", "complete": "overwrite"}
_OWN_OPTIONS = ("txnappid", "txnversion", "path")


@dataclass(frozen=True)
class StreamWriter:
    """The object that ``stream_writer`` returns; its fields are the arguments of that function. Call the writer with a
    batch and the id of the batch."""

    location: Location
    app_id: str
    output_mode: str = "append"
    partition_by: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __call__(self, df: DataFrame, batch_id: int) -> WriteResult:
        """Write one batch as one commit, or write nothing if the table has already recorded the batch. Raises as
        ``Writer.save``, and CallError for a batch before the last recorded one. Cost: as ``Writer.save``."""
        writer = Writer(df).mode(_MODES[self.output_mode]).options(**self.options)
        writer.options(txnAppId=self.app_id, txnVersion=batch_id).storage_options(**self.storage_options)
        if self.partition_by:
            writer.partitionBy(*self.partition_by)
        result = writer.save(self.location)
        if not result.committed:
            table = paths.open_table(df.sparkSession, self.location, storage=self.storage_options)
            recorded_batch(table.snapshot(), self.app_id, batch_id, "application", "an app_id")
        return result


def stream_writer(
    location: Location,
    app_id: str,
    *,
    output_mode: str = "append",
    partition_by: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamWriter:
    """A function for ``DataStreamWriter.foreachBatch`` that writes every batch to the table at ``location`` exactly
    once, and creates the table if it does not exist.

    ``app_id``: a name for the query. It must stay the same after restarts, and must differ between queries with
    different checkpoints. ``output_mode``: the output mode of the query: ``append``, or ``complete`` if every batch
    replaces all rows of the table. ``partition_by``: the partition columns of a new table. ``options``: as for
    ``Writer``. ``storage_options``: the options of the table's store. Raises CallError. Cost: none.
    """
    if not isinstance(app_id, str) or not app_id:
        raise deltalog.CallError(f"app_id must be a non-empty string, not {app_id!r}.")
    if output_mode not in _MODES:
        raise deltalog.CallError(
            f"The output mode is {output_mode!r}. Known: append, complete. For update, merge the batch in a function "
            "of your own: DeltaTable.merge."
        )
    own = [name for name in options or () if name.lower() in _OWN_OPTIONS]
    if own:
        raise deltalog.CallError(f"stream_writer sets {own[0]} itself.")
    return StreamWriter(
        paths.url_of(location) if not isinstance(location, deltalog.DeltaTable) else location,
        app_id,
        output_mode,
        tuple(partition_by),
        dict(options or {}),
        dict(storage_options or {}),
    )
