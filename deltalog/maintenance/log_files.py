"""Log maintenance on request: writes a checkpoint or a log compaction file, or cleans up the log.

Spec: PROTOCOL.md#checkpoints-1, #log-compaction-files, #metadata-cleanup.
"""

from __future__ import annotations

import datetime

from deltalog.errors import CallError
from deltalog.log.checkpoint.writer import TopLevel, write_checkpoint
from deltalog.log.cleanup import CleanupReport, clean_up
from deltalog.log.compaction import write_compaction
from deltalog.protocol import features
from deltalog.protocol.properties import SIDECAR_ROWS
from deltalog.read.snapshot import Snapshot
from deltalog.write.table_handle import TableHandle

_NO_TIME = datetime.timedelta(0)


def checkpoint(handle: TableHandle, top_level: TopLevel, sidecar_rows: int) -> None:
    """Write a checkpoint of the latest version. Waits for checkpoints that this process's commits are still writing,
    because the checkpoint written last sets the hint."""
    handle.flush()
    checkpoint_of(handle, handle.writable(for_change=False), top_level, sidecar_rows)


def checkpoint_of(
    handle: TableHandle, snapshot: Snapshot, top_level: TopLevel = "parquet", sidecar_rows: int = SIDECAR_ROWS
) -> None:
    """Write a checkpoint of a version. Raises UnsupportedFeatureError if the table is not writable."""
    environment = handle.environment
    features.check_writable(snapshot.protocol, handle.url)
    written = write_checkpoint(
        snapshot.log,
        environment.clock_ms(),
        new_uuid=environment.new_uuid,
        top_level=top_level,
        sidecar_rows=sidecar_rows,
    )
    if handle.latest.version == snapshot.version:
        handle.advance(Snapshot(snapshot.log.on_checkpoint(written)))


def compact(handle: TableHandle, from_version: int | None, to_version: int | None) -> tuple[int, int] | None:
    """Write a log compaction file. Returns the first and last version that the file covers; None if there are fewer
    than two commits."""
    snapshot = handle.writable(for_change=False)
    start = snapshot.log.segment.checkpoint_version + 1 if from_version is None else from_version
    end = snapshot.version if to_version is None else to_version
    if from_version is None and to_version is None and end <= start:
        return None
    if end > snapshot.version:
        raise CallError(f"{handle.url} has no version {end} yet; the latest version is {snapshot.version}.")
    compaction = write_compaction(snapshot.log, start, end)
    return compaction.start, compaction.end


def delete_expired(handle: TableHandle, dry_run: bool, retention: datetime.timedelta | None) -> CleanupReport:
    """Delete log files that no version within the retention needs."""
    if retention is not None and not (isinstance(retention, datetime.timedelta) and retention >= _NO_TIME):
        raise CallError(f"retention must be a datetime.timedelta >= 0, such as timedelta(days=7); got {retention!r}.")
    handle.reader.authority.check_maintenance("the clean-up of its log", handle.url)
    handle.flush()  # waits for log files that are still being written, so that the clean-up considers them too
    retention_ms = None if retention is None else retention // datetime.timedelta(milliseconds=1)
    return clean_up(handle.reader, handle.environment.clock_ms(), retention_ms=retention_ms, dry_run=dry_run)
