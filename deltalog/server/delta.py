"""The API for clients that read and write the Delta log themselves.

    GET  /delta/v1/tables/<database>.<table>            its location, latest version, ratified commits
    POST /delta/v1/tables/<database>.<table>/commits    {"version", "fileName"}: ratify a staged commit
    POST /delta/v1/tables/<database>.<table>/published  {"version"}: commits up to this one are in _delta_log

Every call returns the current state of the table. Times are in milliseconds since 1970, and sizes are in bytes.

Spec: PROTOCOL.md#catalog-managed-tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalog.catalog.records import Head, TableRecord, check_table_name
from deltalog.errors import (
    CallError,
    CommitConflictError,
    CommitStateUnknownError,
    ConcurrentModificationError,
    DeltaLogError,
    NotFoundError,
    OperationTimeoutError,
    ResourceNotReadyError,
    TimestampAheadError,
)
from deltalog.server.answers import Answer
from deltalog.server.calls import Call
from deltalog.server.fields import Fields

PREFIX = ("delta", "v1", "tables")
_LONGEST_FILE = 255
# Of the rows of this table, the first whose class matches the error is used.
_STATUS: tuple[tuple[type[DeltaLogError], int], ...] = (
    (NotFoundError, 404),
    (CommitConflictError, 409),
    (ConcurrentModificationError, 409),
    (ResourceNotReadyError, 409),
    (TimestampAheadError, 400),
    (CallError, 400),
    (OperationTimeoutError, 504),
    (CommitStateUnknownError, 504),
)


def table(name: str, given: Fields) -> Call:
    full = check_table_name(name)
    return Call(lambda manager: _shown(*manager.ratified(full)), full)


def commit(name: str, given: Fields) -> Call:
    full = check_table_name(name)
    version, file = given.number("version"), given.text("fileName", _LONGEST_FILE)
    return Call(lambda manager: _shown(*manager.propose_commit(full, version, file)), full)


def published(name: str, given: Fields) -> Call:
    full, version = check_table_name(name), given.number("version")
    return Call(lambda manager: _shown(*manager.confirm_published(full, version)), full)


CALLS = {("GET", ""): table, ("POST", "commits"): commit, ("POST", "published"): published}


def answer_of(error: DeltaLogError) -> Answer:
    """The response for an error, with a stable code and a message."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return Answer(status, {"code": error.code, "message": error.message}, error.code)


def _shown(record: TableRecord, head: Head) -> Mapping[str, Any]:
    commits = [
        {
            "version": each.version,
            "fileName": each.file,
            "inCommitTimestamp": each.in_commit_timestamp_ms,
            "fileSize": each.size_bytes,
        }
        for each in head.unpublished
    ]
    return {
        "name": record.name,
        "tableId": record.table_id,
        "location": record.url,
        "latestVersion": head.version,
        "commits": commits,
    }
