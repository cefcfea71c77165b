"""Reads log files from a store: listings, commits, the heads of commits, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltalog.errors import (
    CorruptTableError,
    InvalidCheckpointError,
    InvalidCommitError,
    MissingInCommitTimestampError,
    MissingVersionError,
    ObjectNotFoundError,
    StoreError,
)
from deltalog.log.checksum import VersionChecksum, decode_checksum
from deltalog.log.columns import empty
from deltalog.log.last_checkpoint import read_hint
from deltalog.log.replay import FILES, TOMBSTONES, PartialState, advance, files_table, tombstones_table
from deltalog.log.segment import Checkpoint, Listing, parse_listing, parse_names
from deltalog.spec.actions import CommitInfo, DomainMetadata, Metadata, Protocol, SetTransaction
from deltalog.spec.codec import CommitActions, decode_commit, first_commit_info
from deltalog.spec.paths import (
    LAST_CHECKPOINT,
    LOG_DIRECTORY,
    checksum_path,
    commit_name,
    commit_path,
    log_path,
    sidecar_path,
    version_prefix,
)
from deltalog.storage.base import LogStore

HEAD_BYTES = 4096
_PIECE_ROWS = 32_768
_FEW_ACTIONS = 16
_SINGLETONS = ("protocol", "metaData", "txn", "domainMetadata")


def camel(name: str) -> str:
    """The protocol's name of a snake-case column."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


class LogReader:
    """The files of one table's ``_delta_log``. Holds no state but the store."""

    def __init__(self, store: LogStore) -> None:
        self.store = store

    def list_from(self, version: int = 0, *, stat: bool = False) -> Listing:
        """The log from a version on. Cost: 1 LIST."""
        start = version_prefix(version) if version > 0 else ""
        if not stat:
            return parse_names(self.store.list_names(LOG_DIRECTORY, start))
        return parse_listing(self.store.list_from(LOG_DIRECTORY, start))

    def list_latest(self) -> Listing:
        """Enough of the log to build the latest version. Cost: 1 GET of the hint and 1 LIST (2 if it is wrong)."""
        try:
            hint = read_hint(self.store.get(log_path(LAST_CHECKPOINT)))
        except ObjectNotFoundError:
            hint = None
        if hint:
            listing = self.list_from(hint)
            if any(c.version >= hint for c in listing.checkpoints):
                return listing
        return self.list_from()

    def commit(self, version: int) -> CommitActions:
        """Raises InvalidCommitError, MissingVersionError. Cost: 1 GET."""
        return self.commits([version])[0]

    def commits(self, versions: Sequence[int]) -> list[CommitActions]:
        """The actions of several commits. Cost: 1 GET each, in parallel where the store does that."""
        try:
            data = self.store.get_many([commit_path(v) for v in versions])
        except ObjectNotFoundError as error:
            raise self._gone(error.path.rsplit("/", 1)[-1]) from error  # type: ignore[attr-defined]
        return [decode_commit(each, version) for version, each in zip(versions, data, strict=True)]

    def commit_info(self, version: int) -> CommitInfo | None:
        """The commitInfo of a commit, from its first bytes where it comes first, as it must with ICT.

        Cost: 1 GET of 4 KiB; 1 more of the whole file when commitInfo is longer or not first. Raises
        MissingVersionError.
        """
        path = commit_path(version)
        try:
            head = self.store.get(path, HEAD_BYTES)
            info = first_commit_info(head, whole=len(head) < HEAD_BYTES)
            if info is not None:
                return info
            data = head if len(head) < HEAD_BYTES else self.store.get(path)
        except ObjectNotFoundError as error:
            raise self._gone(commit_name(version)) from error
        return decode_commit(data, version).commit_info

    def in_commit_timestamp_ms(self, version: int) -> int:
        """Raises MissingInCommitTimestampError when the commit has none. Cost: as ``commit_info``."""
        try:
            info = self.commit_info(version)
        except InvalidCommitError as error:
            raise MissingInCommitTimestampError(
                f"{self.store.url}: the in-commit timestamp of version {version} cannot be read: {error}",
                version=version,
            ) from error
        return required_ict(info, version, self.store.url)

    def checksum(self, version: int) -> VersionChecksum | None:
        """The ``.crc`` of a version, or None when there is none that can be read. Cost: 1 GET."""
        try:
            return decode_checksum(self.store.get(checksum_path(version)))
        except ObjectNotFoundError:
            return None

    # -------------------------------------------------------------------------------------- checkpoints

    def checkpoint_state(self, checkpoint: Checkpoint) -> PartialState:
        """Protocol, metaData, txn and domainMetadata of a checkpoint. Cost: some ranged GETs for each part."""
        if checkpoint.is_json:
            return advance(PartialState(), [self._json_checkpoint(checkpoint)])
        protocol: Protocol | None = None
        metadata: Metadata | None = None
        transactions: dict[str, SetTransaction] = {}
        domains: dict[str, DomainMetadata] = {}
        for name in checkpoint.names:
            pieces = self._parquet(log_path(name), checkpoint, _SINGLETONS)
            for key, body in (row for piece in pieces for row in _rows(piece, _SINGLETONS)):
                if key == "protocol":
                    protocol = Protocol.from_json(body)
                elif key == "metaData":
                    metadata = Metadata.from_json(body)
                elif key == "txn":
                    transactions[body["appId"]] = SetTransaction.from_json(body)
                elif not body.get("removed"):
                    domains[body["domain"]] = DomainMetadata.from_json({"removed": False, **body})
        if protocol is None or metadata is None:
            missing = "protocol" if protocol is None else "metaData"
            # Not InvalidCheckpointError: this file is whole, so what it lacks was never in the table's state.
            raise CorruptTableError(
                f"{self.store.url}: checkpoint {checkpoint.names[0]} has no {missing} action. If the commits before "
                "it are all there, delete it and the state is rebuilt from them."
            )
        return PartialState(protocol, metadata, transactions, domains)

    def checkpoint_files(self, checkpoint: Checkpoint) -> pa.Table:
        """The add actions of a checkpoint, schema FILES. Statistics stay JSON text."""
        return self._file_actions(checkpoint, "add", FILES, lambda actions: files_table(actions.adds))

    def checkpoint_tombstones(self, checkpoint: Checkpoint) -> pa.Table:
        """The remove actions of a checkpoint, schema TOMBSTONES."""
        return self._file_actions(checkpoint, "remove", TOMBSTONES, lambda actions: tombstones_table(actions.removes))

    def _file_actions(
        self, checkpoint: Checkpoint, action: str, schema: pa.Schema, of_json: Callable[[CommitActions], pa.Table]
    ) -> pa.Table:
        columns = [f"{action}.{camel(name)}" for name in schema.names]
        parts = [empty(schema)]
        paths = [log_path(name) for name in checkpoint.names]
        if checkpoint.is_json:
            manifest = self._json_checkpoint(checkpoint)
            parts.append(of_json(manifest))
            paths = [sidecar_path(sidecar.path) for sidecar in manifest.sidecars]
        for path in paths:
            for piece in self._parquet(path, checkpoint, [*columns, "sidecar.path"]):
                parts.append(_struct_rows(piece, action, schema))
                paths.extend(sidecar_path(body["path"]) for _, body in _rows(piece, ["sidecar"]))
        return pa.concat_tables(parts)

    def _parquet(self, path: str, checkpoint: Checkpoint, columns: Iterable[str]) -> Iterator[pa.Table]:
        """The rows in pieces, so that what a piece drops makes room for the next one: less memory is touched."""
        try:
            with pq.ParquetFile(self.store.open_input(path)) as file:
                # The thread pool costs a small file more than it saves, ten times more on busy CPUs.
                threads = file.metadata.num_rows > _PIECE_ROWS
                stored = _stored(file.metadata, columns)
                for batch in file.iter_batches(_PIECE_ROWS, columns=stored, use_threads=threads):
                    yield pa.Table.from_batches([batch])
        except ObjectNotFoundError as error:
            if path in map(log_path, checkpoint.names):
                raise self._unreadable(checkpoint, path, error) from error
            raise CorruptTableError(
                f"{self.store.url}: checkpoint {checkpoint.version} is there, but its sidecar {path} is missing; "
                "something deletes files of the log. Restore it from a copy."
            ) from error
        except StoreError:
            raise  # the store failed, which says nothing about the checkpoint
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(checkpoint, path, error) from error

    def _json_checkpoint(self, checkpoint: Checkpoint) -> CommitActions:
        path = log_path(checkpoint.names[0])
        try:
            return decode_commit(self.store.get(path), checkpoint.version)
        except (InvalidCommitError, ObjectNotFoundError) as error:
            raise self._unreadable(checkpoint, path, error) from error

    def _unreadable(self, checkpoint: Checkpoint, path: str, error: Exception) -> InvalidCheckpointError:
        return InvalidCheckpointError(
            f"{self.store.url}: {path} of checkpoint {checkpoint.version} cannot be read: {error}",
            version=checkpoint.version,
        )

    def _gone(self, name: str) -> MissingVersionError:
        return MissingVersionError(
            f"{self.store.url}: commit {name} was listed and is gone. "
            "Log clean-up may be running: open the table again.",
            version=int(name[:20]),
        )


def required_ict(info: CommitInfo | None, version: int, table: str) -> int:
    """The in-commit timestamp of a commit that must carry one. Raises MissingInCommitTimestampError."""
    if info is not None and info.in_commit_timestamp_ms is not None:
        return info.in_commit_timestamp_ms
    what = "no commitInfo action" if info is None else "no valid inCommitTimestamp in its commitInfo"
    raise MissingInCommitTimestampError(
        f"{table}: version {version} has {what}, though in-commit timestamps are enabled for it. "
        "No time is made up for it. Restore the commit file, or disable in-commit timestamps and enable them again.",
        version=version,
    )


def _stored(footer: pq.FileMetaData, columns: Iterable[str]) -> list[str]:
    """Those of ``columns`` that are not null in every row, as far as the footer tells.

    A leaf below a map or list always counts: it is as null for an empty one as for an absent one.
    """
    repeated = [footer.schema.column(leaf).max_repetition_level > 0 for leaf in range(footer.num_columns)]
    leaves: set[str] = set()
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for index in range(footer.num_columns):
            leaf = group.column(index)
            statistics = leaf.statistics if leaf.is_stats_set else None
            known = None if repeated[index] or statistics is None or not statistics.has_null_count else statistics
            if known is None or known.null_count < leaf.num_values:
                leaves.add(leaf.path_in_schema)
    return [c for c in columns if any(leaf == c or leaf.startswith(f"{c}.") for leaf in leaves)]


def _rows(table: pa.Table, keys: Iterable[str]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The few rows of the small actions as JSON-like bodies without nulls."""
    for key in keys:
        if key not in table.schema.names:
            continue
        column = table.column(key)
        if column.null_count == len(column):
            continue
        for row in column.filter(pc.is_valid(column)).to_pylist():
            body = {k: dict(v) if k == "configuration" and key == "metaData" and v else v for k, v in row.items()}
            if not any(v is not None for v in body.values()):
                continue  # some writers store a struct of nulls for an absent action
            if key == "metaData":
                body = _metadata_body(body)
            yield key, {k: v for k, v in body.items() if v is not None}


def _metadata_body(body: dict[str, Any]) -> dict[str, Any]:
    stored = body.get("format") or {}
    body["format"] = {
        "provider": stored.get("provider") or "parquet",
        "options": dict(stored.get("options") or ()),
    }
    body["partitionColumns"] = body.get("partitionColumns") or []
    body["configuration"] = body.get("configuration") or {}
    return body


def _struct_rows(table: pa.Table, action: str, schema: pa.Schema) -> pa.Table:
    """The rows where the action's struct has a path, its children as columns of ``schema``."""
    if action not in table.schema.names:
        return empty(schema)
    column = table.column(action)
    present = {f.name: i for i, f in enumerate(column.type.fields)}
    if "path" not in present:
        return empty(schema)
    children = column.flatten()
    rows = len(column)
    arrays = []
    for wanted in schema:
        index = present.get(camel(wanted.name))
        arrays.append(pa.nulls(rows, wanted.type) if index is None else _cast(children[index], wanted.type))
    return _valid_rows(pa.Table.from_arrays(arrays, schema=schema))


def _valid_rows(rows: pa.Table) -> pa.Table:
    """The rows with a path. The other actions of a checkpoint mostly stand in a few rows of their own, so
    slices without copying do for all but a mixed one."""
    paths = rows.column("path")
    if paths.null_count == 0:
        return rows
    if paths.null_count > _FEW_ACTIONS:
        return rows.filter(pc.is_valid(paths))
    gaps = [*pc.indices_nonzero(pc.is_null(paths)).to_pylist(), rows.num_rows]
    starts = [0, *(gap + 1 for gap in gaps)]
    runs = [rows.slice(start, gap - start) for start, gap in zip(starts, gaps) if gap > start]  # noqa: B905
    return pa.concat_tables(runs) if runs else rows.slice(0, 0)


def _cast(values: Any, wanted: pa.DataType) -> Any:
    if values.type == wanted:
        return values
    if values.null_count == len(values):
        return pa.nulls(len(values), wanted)
    if pa.types.is_struct(wanted):
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        present = {f.name: i for i, f in enumerate(values.type.fields)}
        children = []
        for child in wanted.fields:
            index = present.get(camel(child.name))
            found = pa.nulls(len(values), child.type) if index is None else values.field(index)
            children.append(_cast(found, child.type))
        mask = pc.invert(values.is_valid())
        return pa.StructArray.from_arrays(children, fields=list(wanted.fields), mask=mask)
    return values.cast(wanted)
