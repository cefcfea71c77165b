"""load_cdf: the change data feed in deltalake's shape."""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from deltalog.deltalake.arrow import view_schema
from deltalog.deltalake.filters import coerced
from deltalog.deltalake.instants import epoch_ms
from deltalog.errors import CallError
from deltalog.expressions.bind import bind
from deltalog.expressions.evaluate import matches
from deltalog.expressions.sql import at_one_instant
from deltalog.expressions.tree import Predicate
from deltalog.log.history import LogHistory
from deltalog.protocol.schema import StructType
from deltalog.read.changes import COMMIT_TIMESTAMP, COMMIT_VERSION, Changes, changes_between
from deltalog.write.table_handle import TableHandle


def feed(
    handle: TableHandle,
    columns: Sequence[str] | None,
    predicate: str | None,
    since: tuple[int | None, str | None],
    until: tuple[int | None, str | None],
    allow_out_of_range: bool,
) -> pa.RecordBatchReader:
    """The changes of a range. ``since``, ``until``: each is a version and a time; if the time is set, it takes
    precedence over the version. The partition columns come after the other table columns, as in deltalake; the columns
    of the feed come last. Raises CallError, SchemaMismatchError, TimestampOutOfRangeError. Cost before the first batch:
    1 GET for each commit of the range."""
    from_ms = None if since[1] is None else epoch_ms(since[1])
    to_ms = None if until[1] is None else epoch_ms(until[1])
    history = handle.history()
    version = since[0] if from_ms is None else None
    if not allow_out_of_range:
        _check_start(history, version, from_ms)
    # As in deltalake, a range may end after the latest version: it then ends there.
    found = changes_between(history, version, until[0] if to_ms is None else None, from_ms, to_ms, True)
    # Errors in the stream would reach the caller as texts of Arrow's C interface, without their class.
    deque(found.files(), maxlen=0)
    now = datetime.datetime.fromtimestamp(handle.environment.clock_ms() / 1000, datetime.timezone.utc)
    return _selected(found, columns, predicate, now)


def _check_start(history: LogHistory, version: int | None, from_ms: int | None) -> None:
    latest = history.latest.version
    if version is not None and version > latest:
        raise CallError(f"Invalid table version: {version}. The latest version is {latest}.")
    last_ms = history.commit_at(latest).timestamp_ms
    if from_ms is not None and from_ms > last_ms:
        raise CallError(f"Provided timestamp {from_ms} ms is greater than latest commit timestamp, {last_ms} ms.")


def _field(field: pa.Field) -> pa.Field:
    """A column of the feed in the type in which deltalake returns it."""
    if field.name == COMMIT_VERSION:
        return field.with_type(pa.uint64())
    if field.name == COMMIT_TIMESTAMP:
        return field.with_type(pa.timestamp("ms"))
    return view_schema(pa.schema([field])).field(0)


def _selected(
    changes: Changes, columns: Sequence[str] | None, predicate: str | None, now: datetime.datetime
) -> pa.RecordBatchReader:
    schema = changes.arrow_schema
    partitioned = changes.snapshot.partition_columns
    feed_columns = schema.names[-3:]
    names = list(columns) if columns is not None else [
        *(name for name in schema.names[:-3] if name not in partitioned), *partitioned, *feed_columns
    ]  # fmt: skip
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise CallError(f"The change data feed has no column {unknown[0]!r}. Columns: {', '.join(schema.names)}.")
    where = None
    if predicate is not None:
        columns_of_feed = StructType.from_arrow(schema)
        condition = at_one_instant(coerced(predicate, columns_of_feed), now)
        assert isinstance(condition, Predicate)
        where = bind(condition, columns_of_feed)
    wanted = pa.schema([_field(schema.field(name)) for name in names])

    def batches() -> Iterator[Any]:
        for batch in changes.batches():
            table = pa.Table.from_batches([batch])
            if where is not None:
                table = table.filter(matches(where, table))
            yield from table.select(names).cast(wanted).to_batches()

    return pa.RecordBatchReader.from_batches(wanted, batches())
