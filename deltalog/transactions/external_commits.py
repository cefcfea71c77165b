"""The API for clients that write the Delta log themselves: reads the head of a table, ratifies a staged commit, and
records that commits were published.

Clients that write the log themselves are responsible for rows, conflicts and statistics. A proposed commit must be
readable, and the table must remain catalog-managed.

Spec: PROTOCOL.md#catalog-managed-tables, #writer-requirements-for-catalog-managed-tables.
"""

from __future__ import annotations

import re

from deltalog.catalog.committer import changes_metadata, check_next, publish, released
from deltalog.catalog.marks import added_paths, ratify_added
from deltalog.catalog.records import Head, Ratification, RatifiedCommit, TableRecord
from deltalog.errors import (
    CallError,
    CommitConflictError,
    CorruptTableError,
    InvalidActionError,
    MissingInCommitTimestampError,
    ObjectNotFoundError,
    ResourceNotReadyError,
    SchemaMismatchError,
)
from deltalog.log.reader import LogReader
from deltalog.protocol import features, timestamps
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.codec import CommitActions, decode_commit
from deltalog.protocol.features import CATALOG_MANAGED
from deltalog.protocol.partitions import check_partition_columns
from deltalog.protocol.paths import are_ordinary, base_name, locate, place_of, staged_commit_path
from deltalog.protocol.properties import CATALOG_ID_KEY, ENABLE_IN_COMMIT_TIMESTAMPS, UNITY_TABLE_ID_KEY
from deltalog.protocol.schema_enforcement import check_unique_names
from deltalog.protocol.timestamps import required_ict
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.release import is_released

# A proposed commit is read into memory; one with 100,000 files has about 25 MB.
MOST_PROPOSED_BYTES = 128 << 20
_FILE = re.compile(r"(?P<version>[0-9]{20})\.[0-9A-Za-z-]{1,64}\.json")


def head_of(tables: ManagedTables, record: TableRecord) -> Head:
    """Read the head of a table. Raises ResourceNotReadyError if the table was dropped meanwhile. Cost: 1 coordinator
    call."""
    head = tables.coordinator.head(record.table_id)
    if head is None:
        raise ResourceNotReadyError(f"{record.name} was dropped from the catalog {tables.coordinator.url}.")
    return head


def propose(tables: ManagedTables, record: TableRecord, version: int, file: str) -> Head:
    """See ``TransactionManager.propose_commit``."""
    check_file_name(version, file)
    head = head_of(tables, record)
    if not _is_next(record, head, version, file):
        return head
    commit, actions = _staged(tables, record, head, version, file)
    check_stays_managed(tables, record.table_id, file, actions)
    store = tables.plain_store(record.url)
    known = tables.marks(record.table_id)
    decision = ratify_added(
        known, tables.coordinator, record.table_id, commit, store, lambda: added_paths(TableFiles(store), actions.adds)
    )
    if decision is Ratification.RATIFIED:
        # Not read again, because nothing may fail after the ratification.
        return Head(version, (*head.unpublished, commit))
    # Another commit was ratified first, or the same proposal was made twice concurrently.
    _is_next(record, head_of(tables, record), version, file)
    return head_of(tables, record)


def confirm_published(tables: ManagedTables, record: TableRecord, version: int) -> Head:
    """See ``TransactionManager.confirm_published``."""
    head = head_of(tables, record)
    if not 0 <= version <= head.version:
        raise CallError(f"{record.name} has no version {version}: the latest ratified version is {head.version}.")
    published = Head(version, tuple(commit for commit in head.unpublished if commit.version <= version))
    publish(tables.plain_store(record.url), tables.coordinator, record.table_id, published)
    return head_of(tables, record)


def _is_next(record: TableRecord, head: Head, version: int, file: str) -> bool:
    """Whether to ratify a version as the table's next version; False if this file is already ratified as that version.
    Raises CommitConflictError, or CallError if there would be a gap."""
    if version > head.version + 1:
        raise CallError(f"{record.name} is at version {head.version}: the next version is {head.version + 1}.")
    if version == head.version + 1:
        return True
    ratified = head.commit(version)
    if ratified is not None and ratified.file == file:
        return False
    raise CommitConflictError(
        f"{record.name}: version {version} is another commit; the latest is {head.version}. Unless it has "
        "your txnId, rebase your changes on it, and propose that.",
        winning_version=version,
        winning_operation=None,
    )


def _staged(
    tables: ManagedTables, record: TableRecord, head: Head, version: int, file: str
) -> tuple[RatifiedCommit, CommitActions]:
    """Read and validate a staged commit. Returns the commit with its actions. Raises InvalidActionError, CallError,
    CatalogBehindLogError; ResourceNotReadyError if the table was released."""
    managed = tables.store(record)
    managed.record_head(head)
    before = LogReader(managed)
    if is_released(before, head.version):
        raise released(record.url, tables.coordinator.url)
    last = head.commit(head.version)
    last_ms = before.in_commit_timestamp_ms(head.version) if last is None else last.in_commit_timestamp_ms
    return staged_commit(tables, record, version, file, last_ms)


def check_file_name(version: int, file: str) -> None:
    """Raises CallError unless ``file`` is the name of a staged commit of the version."""
    named = _FILE.fullmatch(file)
    if named is None or int(named["version"]) != version:
        raise CallError(
            f"The staged commit of version {version} must be named {version:020d}.<uuid>.json, not {file!r}."
        )


def staged_commit(
    tables: ManagedTables, record: TableRecord, version: int, file: str, last_ms: int, size_bytes: int | None = None
) -> tuple[RatifiedCommit, CommitActions]:
    """Read and validate a staged commit for the version after the last one, whose in-commit timestamp is ``last_ms``.
    ``size_bytes``: the size that its writer has told; not more is read. Raises InvalidActionError, CallError,
    CatalogBehindLogError. Cost: 1 HEAD and 1 GET."""
    store = tables.plain_store(record.url)
    check_next(store, tables.coordinator, record.table_id, version)
    check_no_link(store, staged_commit_path(file))
    most = MOST_PROPOSED_BYTES if size_bytes is None else min(size_bytes, MOST_PROPOSED_BYTES)
    try:
        data = store.get(staged_commit_path(file), most + 1)
    except ObjectNotFoundError:
        raise CallError(f"{record.url} has no {staged_commit_path(file)}. Write it, then propose it.") from None
    if len(data) > most:
        told = "that is the limit" if size_bytes != most else "its writer has told another size"
        raise InvalidActionError(f"{file} cannot be ratified: it has more than {most} bytes: {told}.")
    try:
        actions = decode_commit(data, version)
        ict_ms = required_ict(actions.commit_info, version, record.url)
    except (CorruptTableError, MissingInCommitTimestampError) as error:
        raise InvalidActionError(f"{file} cannot be ratified: {error.message}") from None
    if ict_ms <= last_ms:
        raise InvalidActionError(
            f"{file} cannot be ratified: its in-commit timestamp {ict_ms} is not after that of version {version - 1}, "
            f"{last_ms}."
        )
    txn_id = actions.commit_info.txn_id if actions.commit_info and actions.commit_info_first else None
    if not txn_id:
        raise InvalidActionError(f"{file} cannot be ratified: it does not begin with a commitInfo that has a txnId.")
    _check_sound(record, file, actions)
    changed = changes_metadata(actions)
    return RatifiedCommit(version, file, ict_ms, len(data), txn_id, changes_metadata=changed), actions


def _check_sound(record: TableRecord, file: str, actions: CommitActions) -> None:
    """Check that the table can be read after a staged commit. Raises InvalidActionError."""
    try:
        if actions.metadata is not None:
            check_schema(actions.metadata)
        paths = [add.path for add in actions.adds]
        if len(set(paths)) < len(paths):
            raise InvalidActionError("It adds a file twice.")
        if actions.sidecars:
            raise InvalidActionError("It has sidecar actions, which only checkpoints have.")
        if not are_ordinary(paths):
            place = place_of(record.url)
            for path in paths:
                if base_name(path) is None:  # absolute paths can be those of another table, as in a clone
                    locate(path, [place])
    except (CorruptTableError, SchemaMismatchError, InvalidActionError) as error:
        raise InvalidActionError(f"{file} cannot be ratified: {error.message}") from None


def check_no_link(store: LogStore, path: str) -> None:
    """Check that a commit file is not reached through a symbolic link: who owns the target could change the commit
    later. Raises InvalidActionError. Cost: none."""
    if store.link_target(path) is not None:
        raise InvalidActionError(f"{path} is, or is reached through, a symbolic link. Write the file itself.")


def check_schema(metadata: Metadata) -> None:
    """Check that the columns of a table can be read. Raises CorruptTableError, SchemaMismatchError."""
    schema = metadata.schema
    check_unique_names(schema)
    check_partition_columns(schema, metadata.partition_columns)


def check_stays_managed(tables: ManagedTables, table_id: str, file: str, actions: CommitActions) -> None:
    """Raises InvalidActionError if the table would not be managed by the catalog after this commit."""
    protocol, metadata = actions.protocol, actions.metadata
    if protocol is not None and not _is_managed(protocol):
        raise InvalidActionError(
            f"{file} cannot be ratified: its protocol must list {CATALOG_MANAGED} for readers and for writers, and "
            f"{timestamps.FEATURE} for writers."
        )
    if metadata is not None and not _has_properties(tables, table_id, metadata):
        raise InvalidActionError(
            f"{file} cannot be ratified: its metadata must have {ENABLE_IN_COMMIT_TIMESTAMPS.key}=true and "
            f"{CATALOG_ID_KEY}={tables.coordinator.catalog_id}."
        )


def _is_managed(protocol: Protocol) -> bool:
    has_times = timestamps.is_listed(features.writer_features(protocol))
    return has_times and features.is_catalog_managed(protocol) and CATALOG_MANAGED in features.reader_features(protocol)


def _has_properties(tables: ManagedTables, table_id: str, metadata: Metadata) -> bool:
    properties = metadata.configuration
    is_ours = properties.get(CATALOG_ID_KEY) == tables.coordinator.catalog_id
    is_ours = is_ours or properties.get(UNITY_TABLE_ID_KEY) == table_id
    return is_ours and ENABLE_IN_COMMIT_TIMESTAMPS.read(properties)
