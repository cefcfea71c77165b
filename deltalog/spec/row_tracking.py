"""Row tracking as readers see it: ids and commit versions of rows, as columns of a scan. Pure.

Spec: PROTOCOL.md#row-tracking, #reader-requirements-for-row-tracking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltalog.errors import CallError
from deltalog.spec.properties import ENABLE_ROW_TRACKING

ROW_ID, ROW_COMMIT_VERSION = "_metadata.row_id", "_metadata.row_commit_version"
_MATERIALIZED = {
    ROW_ID: "delta.rowTracking.materializedRowIdColumnName",
    ROW_COMMIT_VERSION: "delta.rowTracking.materializedRowCommitVersionColumnName",
}


@dataclass(frozen=True, slots=True)
class RowTrackingColumn:
    """``stored_as`` is the column of data files that keeps values of rows that were moved.

    Where it has none, the file's base counts: with the row's position added when the column is ``counted``.
    """

    name: str
    stored_as: str | None
    counted: bool


def column(name: str, configuration: Mapping[str, str], table: str) -> RowTrackingColumn | None:
    """The column of row tracking that a scan asks for by this name, or None when it is no such name.

    Raises CallError when row tracking is not enabled: only then is it known for all rows.
    """
    if name not in _MATERIALIZED:
        return None
    if not ENABLE_ROW_TRACKING.read(configuration):
        raise CallError(f"{table}: {name} needs row tracking, which is off ({ENABLE_ROW_TRACKING.key}).")
    return RowTrackingColumn(name, configuration.get(_MATERIALIZED[name]), name == ROW_ID)
