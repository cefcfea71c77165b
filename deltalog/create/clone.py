"""Clones a version of a table: a shallow clone references the source's files, a deep clone copies them.

A clone keeps columns with their ids and physical names, properties, table features, metadata domains, deletion vectors
and row ids. A clone has its own id and history. If the source has in-commit timestamps, the clone has them from version
0.
The enablement version and timestamp in the source's properties are not copied, because this version is meaningless in
the clone. Row commit versions are 0. App transactions (txn) and catalog properties are not copied.

Spec: PROTOCOL.md#add-file-and-remove-file (absolute paths), #deletion-vector-descriptor-schema, #in-commit-timestamps,
#row-tracking, #column-mapping.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

from deltalog.commit.committer import Committer
from deltalog.create.new_table import check_is_empty, first_transaction
from deltalog.environment import Environment
from deltalog.errors import CallError, InvalidDataFileError, ObjectNotFoundError, TableExistsError
from deltalog.log.file_tables import add_actions
from deltalog.log.reader import LogReader
from deltalog.protocol import deletion_vectors, features, metadata_update, row_tracking, timestamps
from deltalog.protocol.actions import AddFile, DeletionVector, Metadata, Protocol
from deltalog.protocol.paths import absolute_path, encode_path
from deltalog.protocol.properties import CATALOG_ID_KEY, CHECKPOINT_PROTECTION_BEFORE, check_assignment
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import EntryKind, LogStore
from deltalog.storage.remote import parallel_gets
from deltalog.storage.table_files import TableFiles
from deltalog.write.commit_info import UserMetadata
from deltalog.write.transaction import Transaction
from deltalog.write_contract.staging import BLOBS_PROPERTY

_PIECE_BYTES = 8 << 20
# Properties that belong to one table and its history, so a clone does not get them.
_NOT_CLONED = (CATALOG_ID_KEY, CHECKPOINT_PROTECTION_BEFORE.key, "io.unitycatalog.tableId", "ucTableId")


def cloned(
    source: Snapshot,
    reader: LogReader,
    committer: Committer,
    environment: Environment,
    shallow: bool,
    properties: Mapping[str, str],
    user_metadata: UserMetadata,
) -> Transaction:
    """Commit version 0 of the clone at the location of ``reader``, and return the transaction that made this commit.
    Like ``DeltaTable.clone``."""
    if source.reader.authority.branch is not None:
        raise CallError(
            f"{source.url}: a table opened in a transaction cannot be cloned. Commit the transaction, or open the "
            "table outside of it."
        )
    if BLOBS_PROPERTY in source.metadata.configuration:
        raise CallError(
            f"{source.url}: a table of blobs cannot be cloned: its rows reference objects in its own directory."
        )
    check_is_empty(reader)
    if not shallow:
        _check_no_files(reader.store)
    files = add_actions(source.files())
    with first_transaction(reader, committer, environment, _state(source, properties, environment)) as transaction:
        if shallow:
            adds = [_absolute(add, source.reader.files) for add in files]
        else:
            copies = _Copies(source.reader.files, reader.store, environment.new_uuid)
            adds = [copies.placed(add) for add in files]
            copies.make(transaction.row_writer.own)
        adds = _with_row_ids(transaction, source, adds)
        transaction.add(*adds, known=True)
        for domain in source.domain_metadata:
            if domain.domain != row_tracking.DOMAIN:
                transaction.metadata_changes.stage_domain(domain)
        _commit(transaction, source, adds, shallow, user_metadata)
    return transaction


def _commit(
    transaction: Transaction, source: Snapshot, adds: list[AddFile], shallow: bool, user_metadata: UserMetadata
) -> None:
    size = sum(add.size for add in adds)
    if (len(adds), size) != (source.num_files, source.size_bytes):
        raise InvalidDataFileError(
            f"{source.url}: by its totals, version {source.version} has {source.num_files} files of "
            f"{source.size_bytes} bytes, but {len(adds)} files of {size} bytes were found to clone. Nothing was "
            "committed. Run deltalog check."
        )
    copied = (0, 0) if shallow else (len(adds), size)
    metrics = {
        "sourceTableSize": size,
        "sourceNumOfFiles": len(adds),
        "numRemovedFiles": 0,
        "numCopiedFiles": copied[0],
        "removedFilesSize": 0,
        "copiedFilesSize": copied[1],
    }
    parameters = {"source": _named(source.url), "sourceVersion": source.version, "isShallow": shallow}
    transaction.commit("CLONE", parameters, metrics, user_metadata)


def _named(url: str) -> str:
    """A table's location in Spark's syntax: delta.`<path>`."""
    return f"delta.`{absolute_path(url, '')}`"


def _check_no_files(store: LogStore) -> None:
    """Raise TableExistsError if the target contains files, because copies could overwrite them. Cost: as
    ``LogStore.walk``, up to the first file."""
    with contextlib.suppress(ObjectNotFoundError):  # a local directory that does not exist yet
        for entry in store.walk(lambda directory: True):
            if entry.kind is not EntryKind.DIRECTORY:
                raise TableExistsError(
                    f"{store.url} is not empty: it contains {entry.path}. Choose another location for the clone, or "
                    "remove the files of an interrupted clone there."
                )


# ------------------------------------------------------------------------------- protocol and metadata of a clone


def _state(source: Snapshot, properties: Mapping[str, str], environment: Environment) -> tuple[Protocol, Metadata]:
    """Protocol and metadata of the clone. Raises InvalidPropertyError."""
    check_assignment(dict(properties))
    named, assigned = features.split_feature_properties(properties)
    protocol = source.protocol
    if features.is_catalog_managed(protocol):
        protocol = features.without_feature(protocol, features.CATALOG_MANAGED)
    kept = timestamps.without_pair(source.metadata.configuration)
    configuration = {key: value for key, value in kept.items() if key not in _NOT_CLONED}
    before = msgspec.structs.replace(
        source.metadata, id=environment.new_uuid(), created_time=environment.clock_ms(), configuration=configuration
    )
    after = before.with_configuration({**configuration, **assigned})
    return metadata_update.complete(before, after, features.with_features(protocol, named), environment.new_uuid)


def _with_row_ids(transaction: Transaction, source: Snapshot, adds: list[AddFile]) -> list[AddFile]:
    """The files with row ids (their own, or new ids above the source's high-water mark) and default row commit version
    0.
    If row tracking is off, both fields are removed."""
    if row_tracking.FEATURE not in features.writer_features(transaction.protocol):
        return [msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None) for add in adds]
    placed = [
        add if add.base_row_id is None else msgspec.structs.replace(add, default_row_commit_version=0) for add in adds
    ]
    assigned, mark = row_tracking.with_row_ids(placed, row_tracking.high_water_mark(source.domain_metadata), 0)
    if mark >= 0:
        transaction.metadata_changes.stage_domain(row_tracking.domain_metadata(mark))
    return assigned


# -------------------------------------------------------------------------------------------- shallow clones


def _absolute(add: AddFile, files: TableFiles) -> AddFile:
    """The add action with absolute paths for the file and its deletion vector. Raises UnsafePathError."""

    def named(path: str) -> str:
        store, inside = files.find(path)
        return absolute_path(store.url, inside)

    vector, vector_file = add.deletion_vector, deletion_vectors.file_of(add.deletion_vector)
    if vector is not None and vector_file is not None:
        vector = msgspec.structs.replace(vector, storage_type="p", path_or_inline_dv=named(vector_file))
    return msgspec.structs.replace(add, path=named(add.path), deletion_vector=vector, data_change=True)


# ------------------------------------------------------------------------------------------------------ deep


@dataclass(frozen=True, slots=True)
class _Copy:
    """A file to copy. ``size_bytes``: the exact size of a data file, or the minimum size of a deletion vector file."""

    store: LogStore
    path: str
    target: str
    size_bytes: int
    is_exact: bool


@dataclass
class _Copies:
    """Copies the files of a deep clone, each once, to the same path relative to the table root."""

    files: TableFiles
    target: LogStore
    new_uuid: Callable[[], str]
    _copies: dict[tuple[str, str], _Copy] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _vectors: dict[tuple[str, str], str] = field(default_factory=dict)  # the unique id in a copied vector file's name

    def placed(self, add: AddFile) -> AddFile:
        """Plan the copy of a file, and return the add action of the copy. Raises UnsafePathError."""
        path = self._target(add.path, lambda path: path, add.size, True)
        vector = add.deletion_vector
        if vector is not None and vector.storage_type != "i":
            vector = self._placed_vector(vector)
        return msgspec.structs.replace(add, path=encode_path(path), deletion_vector=vector, data_change=True)

    def _placed_vector(self, vector: DeletionVector) -> DeletionVector:
        """A deletion vector file that has a relative path keeps its name; one that has an absolute path gets a new
        name, which a relative descriptor can express."""
        needed = deletion_vectors.needed_bytes(vector)
        if vector.storage_type == "u":
            self._target(deletion_vectors.relative_path(vector), lambda path: path, needed, False)
            return vector
        store, path = self.files.find(vector.path_or_inline_dv)
        unique = self._vectors.setdefault((store.url, path), self.new_uuid())
        moved = deletion_vectors.in_file(unique, "", vector.offset or 0, vector.size_in_bytes, vector.cardinality)
        self._target(vector.path_or_inline_dv, lambda path: deletion_vectors.relative_path(moved), needed, False)
        return moved

    def _target(self, named: str, place: Callable[[str], str], size_bytes: int, is_exact: bool) -> str:
        store, path = self.files.find(named)
        known = self._copies.get((store.url, path))
        if known is not None:
            size_bytes, target = max(size_bytes, known.size_bytes), known.target
        else:
            target = place(path)
            while target in self._taken:  # files at two locations have the same name
                target = f"{self.new_uuid()}/{path}"
            self._taken.add(target)
        self._copies[store.url, path] = _Copy(store, path, target, size_bytes, is_exact)
        return target

    def make(self, own: Callable[[Iterable[str]], None]) -> None:
        """Copy the planned files, in parallel on remote stores. ``own`` is called with the path of each copy, in the
        form that the log uses. Raises InvalidDataFileError if a file's size differs from the log, StoreError."""

        def one(copy: _Copy) -> None:
            _copy(copy, self.target)
            own([encode_path(copy.target)])

        threads = max(parallel_gets(self.target), *(parallel_gets(store) for store in self._stores()), 1)
        with ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(one, copy) for copy in self._copies.values()]
            try:
                for each in running:
                    each.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _stores(self) -> list[LogStore]:
        return [copy.store for copy in self._copies.values()]


def _copy(copy: _Copy, target: LogStore) -> None:
    copied = 0
    source: Any = copy.store.open_input(copy.path)
    with source, target.open_output(copy.target) as out:
        while piece := source.read(_PIECE_BYTES):
            out.write(piece)
            copied += len(piece)
        if copied != copy.size_bytes if copy.is_exact else copied < copy.size_bytes:
            raise InvalidDataFileError(
                f"{copy.store.url}: {copy.path} has {copied} bytes, but {copy.size_bytes} according to the log. "
                "Nothing was committed. deltalog check --deep lists all damaged files.",
                path=copy.path,
            )
