"""Row tracking: provides row ids and row commit versions as columns of a scan, and assigns row ids in a commit. Pure.

Spec: PROTOCOL.md#row-tracking, #reader-requirements-for-row-tracking, #writer-requirements-for-row-tracking, #row-ids,
#row-commit-versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from deltalog.errors import CallError, CorruptTableError, InvalidActionError
from deltalog.protocol import features
from deltalog.protocol.actions import AddFile, DomainMetadata, Protocol
from deltalog.protocol.properties import ENABLE_ROW_TRACKING, ROW_TRACKING_SUSPENDED

FEATURE, DOMAIN = "rowTracking", "delta.rowTracking"
ROW_ID, ROW_COMMIT_VERSION = "_metadata.row_id", "_metadata.row_commit_version"
_MATERIALIZED = {
    ROW_ID: "delta.rowTracking.materializedRowIdColumnName",
    ROW_COMMIT_VERSION: "delta.rowTracking.materializedRowCommitVersionColumnName",
}

_FRESH_NAME = {ROW_ID: "_row-id-col-", ROW_COMMIT_VERSION: "_row-commit-version-col-"}
# Only the writer sets these properties: the column names that they contain must never be used for any other column of
# the table.
MATERIALIZED_KEYS = tuple(_MATERIALIZED.values())


def assigns_ids(protocol: Protocol, configuration: Mapping[str, str]) -> bool:
    """Whether commits assign row ids to added files: the protocol lists the feature rowTracking, and row tracking is
    not suspended. All rows are guaranteed to have row ids only if row tracking is not just supported but also
    enabled."""
    return FEATURE in features.writer_features(protocol) and not ROW_TRACKING_SUSPENDED.read(configuration)


def with_materialized_names(configuration: Mapping[str, str], new_uuid: Callable[[], str]) -> dict[str, str]:
    """The table properties; if row tracking is enabled and they lack the names of the materialised columns, these names
    are added.

    Spec: PROTOCOL.md#writer-requirements-for-row-tracking.
    """
    named = dict(configuration)
    if ENABLE_ROW_TRACKING.read(configuration):
        for column_name, key in _MATERIALIZED.items():
            if key not in named:
                named[key] = f"{_FRESH_NAME[column_name]}{new_uuid()}"
    return named


class RowTrackingColumn(msgspec.Struct, frozen=True):
    """A row id or row commit version column in the result of a scan. ``stored_as``: the column in data files that
    stores the values of moved rows.

    Rows without a stored value use the file's base value, plus the row's position if the column is ``counted``.
    """

    name: str
    stored_as: str | None
    counted: bool


def column(name: str, configuration: Mapping[str, str], table: str) -> RowTrackingColumn | None:
    """The row tracking column with this name in a scan; None for any other name.

    Raises CallError if row tracking is not enabled: only then do all rows have a value.
    """
    if name not in _MATERIALIZED:
        return None
    if not ENABLE_ROW_TRACKING.read(configuration):
        raise CallError(f"{table}: {name} needs row tracking, which is off ({ENABLE_ROW_TRACKING.key}).")
    return RowTrackingColumn(name, configuration.get(_MATERIALIZED[name]), name == ROW_ID)


class _HighWaterMark(msgspec.Struct):
    row_id_high_water_mark: int = msgspec.field(name="rowIdHighWaterMark")


class _NumRecords(msgspec.Struct):
    num_records: int = msgspec.field(name="numRecords")


_marks = msgspec.json.Decoder(_HighWaterMark)
_counts = msgspec.json.Decoder(_NumRecords)


def high_water_mark(domains: Iterable[DomainMetadata], before: int = -1) -> int:
    """The row id high-water mark after ``domains``; ``before`` if no action in ``domains`` records one. Raises
    CorruptTableError."""
    for domain in domains:
        if domain.domain == DOMAIN and not domain.removed:
            try:
                return _marks.decode(domain.configuration).row_id_high_water_mark
            except msgspec.DecodeError as error:
                raise CorruptTableError(
                    f"The domain metadata {DOMAIN} has no row id high-water mark: {error}."
                ) from None
    return before


def with_row_ids(adds: Sequence[AddFile], mark: int, version: int) -> tuple[list[AddFile], int]:
    """The add actions of a commit with base row ids and default row commit versions, and the new high-water mark.

    Files that have a base row id keep it. Raises InvalidActionError for a file whose number of rows is unknown.
    """
    assigned = []
    for add in adds:
        if add.base_row_id is None:
            first, mark = mark + 1, mark + _countable(add)
            add = msgspec.structs.replace(add, base_row_id=first, default_row_commit_version=version)
        assigned.append(add)
    return assigned, mark


def domain_metadata(mark: int) -> DomainMetadata:
    """The domain metadata action that records a high-water mark."""
    return DomainMetadata(domain=DOMAIN, configuration=f'{{"rowIdHighWaterMark":{mark}}}', removed=False)


def check_countable(adds: Iterable[AddFile]) -> None:
    """Raise InvalidActionError for a file that has no base row id and whose number of rows is unknown."""
    for add in adds:
        if add.base_row_id is None:
            _countable(add)


def _countable(add: AddFile) -> int:
    count = num_records(add)
    if count is None:
        raise InvalidActionError(
            f"add {add.path}: the table tracks rows, so the statistics of each file must have numRecords.",
            path=add.path,
        )
    return count


def num_records(add: AddFile) -> int | None:
    """The number of rows of a file according to its statistics, including deleted rows; None if unknown."""
    try:
        return _counts.decode(add.stats or "").num_records
    except msgspec.DecodeError:
        return None


def kept_columns(configuration: Mapping[str, str], table: str) -> tuple[RowTrackingColumn, ...]:
    """The materialised columns in which moved rows keep their ids and commit versions, with the names of these columns
    in files. Empty if row tracking is disabled.

    Spec: PROTOCOL.md#writer-requirements-for-row-tracking. Raises CorruptTableError if the table does not name them.
    """
    if not ENABLE_ROW_TRACKING.read(configuration):
        return ()
    missing = [key for key in _MATERIALIZED.values() if key not in configuration]
    if missing:
        raise CorruptTableError(f"{table} has row tracking but not the property {missing[0]}: rows cannot be moved.")
    return tuple(
        RowTrackingColumn(configuration[key], configuration[key], name == ROW_ID) for name, key in _MATERIALIZED.items()
    )
