"""RawDeltaTable: the operations on a table, at the version that the caller has loaded.

``DeltaTable._table`` is an object of this class, as in deltalake, because some libraries call its methods. It delegates
to deltalog's verbs, and returns the same types as in deltalake: metrics as JSON text, Arrow objects, paths.
"""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.addresses import open_handle
from deltalog.alter import alterations, constraints, row_id_backfill, table_features
from deltalog.deltalake import changes, creation, creation_rules, dataset, descriptions, metrics, rewrites
from deltalog.deltalake.arrow import given_reader, given_table, names_of, view_schema
from deltalog.deltalake.commit_properties import CommitProperties, PostCommitHookProperties
from deltalog.deltalake.exceptions import DeltaError, translated, translating
from deltalog.deltalake.filters import FilePruningPredicateType, coerced, condition
from deltalog.deltalake.instants import epoch_ms
from deltalog.deltalake.options import max_attempts, transaction_options
from deltalog.deltalake.schema import Field, Schema, of_delta
from deltalog.deltalake.sql import spark_sql
from deltalog.deltalake.writer_properties import WriterProperties, file_options
from deltalog.environment import Environment
from deltalog.errors import TableNotFoundError
from deltalog.maintenance import log_files
from deltalog.maintenance.manifests import write_manifests
from deltalog.maintenance.restore import restore
from deltalog.parquet.file_options import DEFAULT, FileOptions
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot
from deltalog.rows.delete import delete
from deltalog.rows.update import update
from deltalog.storage.fs import LocalStore
from deltalog.write.table_handle import TableHandle
from deltalog.write.task_files import storage_of

Commit = CommitProperties | None
Hook = PostCommitHookProperties | None


class RawDeltaTableMetaData:
    """The metadata of a version."""

    def __init__(self, snapshot: Snapshot) -> None:
        metadata = snapshot.metadata
        self.id = metadata.id
        self.name = metadata.name
        self.description = metadata.description
        self.partition_columns = list(metadata.partition_columns)
        self.created_time = metadata.created_time
        self.configuration = dict(metadata.configuration)


class RawDeltaTable:
    """A table at one version. Every method that changes the table begins on the latest version, and loads the version
    that it commits. Raises DeltaError."""

    def __init__(
        self,
        table_uri: str,
        version: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        without_files: bool = False,
        log_buffer_size: int | None = None,
        skip_stats: bool = False,
    ) -> None:
        with translated():
            self.handle = open_handle(table_uri, (), Environment(), storage_options=dict(storage_options or {}))
            self.snapshot = self.handle.latest if version is None else self.handle.at(version, None)

    # ------------------------------------------------------------------------------------------ description

    @staticmethod
    @translating
    def is_deltatable(table_uri: str, storage_options: Mapping[str, Any] | None = None) -> bool:
        """Whether there is a table at a location."""
        try:
            open_handle(table_uri, (), Environment(), storage_options=dict(storage_options or {}))
        except TableNotFoundError:
            return False
        return True

    def table_uri(self) -> str:
        """The URL of the table root, ending in a slash."""
        store = storage_of(self.handle.reader.store)
        root = f"file://{urllib.parse.quote(store.url)}" if isinstance(store, LocalStore) else store.url
        return root.rstrip("/") + "/"

    def version(self) -> int:
        """The loaded version."""
        return self.snapshot.version

    def get_latest_version(self) -> int:
        """The latest version of the table."""
        with translated():
            return self.handle.refresh().version

    def has_files(self) -> bool:
        """True: the files are read when they are needed."""
        return True

    def table_config(self) -> tuple[bool, int, bool]:
        """The options of the constructor, which have no effect."""
        return False, 1, False

    def metadata(self) -> RawDeltaTableMetaData:
        """The metadata of the loaded version."""
        return RawDeltaTableMetaData(self.snapshot)

    def protocol_versions(self) -> tuple[int, int, list[str] | None, list[str] | None]:
        """The protocol of the loaded version: reader and writer version, writer and reader features."""
        protocol = self.snapshot.protocol
        writer, reader = protocol.writer_features, protocol.reader_features
        return (
            protocol.min_reader_version,
            protocol.min_writer_version,
            None if writer is None else list(writer),
            None if reader is None else list(reader),
        )

    @property
    def schema(self) -> Schema:
        """The columns of the loaded version."""
        return of_delta(self.snapshot.schema)

    # ---------------------------------------------------------------------------------------------- versions

    @translating
    def load_version(self, version: int) -> None:
        """Load a version."""
        self.snapshot = self.handle.at(version, None)

    @translating
    def load_with_datetime(self, ds: str) -> None:
        """Load the version that was current at a point in time; for a time before the first commit the first version,
        and for a time after the latest commit the latest version."""
        found = self.handle.history().version_at(epoch_ms(ds), "earliest", "latest")
        self.snapshot = self.handle.at(found.version, None)

    @translating
    def update_incremental(self) -> None:
        """Load the latest version."""
        self.snapshot = self.handle.refresh()

    @translating
    def history(self, limit: int | None = None) -> tuple[int, list[str]]:
        """The latest version, and the commitInfo of the commits as JSON, newest first."""
        entries = self.handle.history_entries(limit)
        newest = entries[0].version if entries else self.snapshot.version
        return newest, [json.dumps(descriptions.commit_info(entry)) for entry in entries]

    @translating
    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application recorded."""
        return self.snapshot.transaction_version(app_id)

    # ------------------------------------------------------------------------------------------------- files

    def _files(self, where: FilePruningPredicateType | None) -> pa.Table:
        return self.snapshot.scan(where=condition(where, self.snapshot.schema)).files()

    @translating
    def files(self, file_pruning_predicate: FilePruningPredicateType | None = None) -> list[str]:
        """The paths, relative to the table, of the files that may contain rows for which a condition is true."""
        return [urllib.parse.unquote(path) for path in self._files(file_pruning_predicate)["path"].to_pylist()]

    @translating
    def file_uris(self, file_pruning_predicate: FilePruningPredicateType | None = None) -> list[str]:
        """Like ``files``, as locations."""
        return [self.snapshot.file_path(path) for path in self._files(file_pruning_predicate)["path"].to_pylist()]

    @translating
    def get_add_file_sizes(self) -> dict[str, int]:
        """The sizes of the files, in bytes, by path."""
        files = self.snapshot.files(["path", "size"])
        paths = map(urllib.parse.unquote, files["path"].to_pylist())
        return dict(zip(paths, files["size"].to_pylist(), strict=True))

    @translating
    def get_active_partitions(
        self, file_pruning_predicate: FilePruningPredicateType | None = None
    ) -> set[frozenset[tuple[str, str | None]]]:
        """The partitions of the files that may have rows for which a condition is true."""
        return descriptions.partitions(self._files(file_pruning_predicate), self.snapshot)

    @translating
    def get_add_actions(self, flatten: bool) -> Any:
        """A row for each file: path, size in bytes, modification time in ms, statistics, partition values."""
        return given_table(descriptions.add_actions(self.snapshot, flatten))

    @translating
    def deletion_vectors(self) -> Any:
        """A row for each file with a deletion vector: the location of the file, and for each row of the file whether
        that row is live."""
        return given_reader(descriptions.deletion_vectors(self.snapshot))

    # -------------------------------------------------------------------------------------------------- rows

    @translating
    def scan(self, columns: Sequence[str] | None = None, predicate: str | None = None) -> Any:
        """The rows for which a condition is true, as a stream."""
        found = self.snapshot.scan(names_of(columns), coerced(predicate, self.snapshot.schema))
        schema = view_schema(found.arrow_schema)
        batches = (batch.cast(schema) for batch in found.batches())
        return given_reader(pa.RecordBatchReader.from_batches(schema, batches))

    @translating
    def load_cdf(
        self,
        columns: list[str] | None = None,
        predicate: str | None = None,
        starting_version: int = 0,
        ending_version: int | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        allow_out_of_range: bool = False,
    ) -> Any:
        """The change data feed of a range of versions, as a stream."""
        since, until = (starting_version, starting_timestamp), (ending_version, ending_timestamp)
        rows = changes.feed(self.handle, columns, predicate, since, until, allow_out_of_range)
        return given_reader(rows)

    def dataset_partitions(
        self, schema: pa.Schema, file_pruning_predicate: FilePruningPredicateType | None = None
    ) -> list[tuple[str, Any]]:
        """The path of each file, and a pyarrow expression that is known to be true for all its rows."""
        with translated():
            return dataset.guarantees(self.snapshot, file_pruning_predicate, schema)

    # ----------------------------------------------------------------------------------------------- changes

    @contextlib.contextmanager
    def changing(self, commit: Commit, hook: Hook, files: FileOptions = DEFAULT) -> Iterator[TableHandle]:
        """A handle whose transactions use the commit properties that were passed. At the end of the block, loads the
        version that the block committed, if it committed one."""
        with translated():
            options = transaction_options(commit, hook, files)
            handle = self.handle.configured(options, max_attempts(commit), self.snapshot)
            yield handle
            if handle.base is None:  # the handle has left its base, so the block has committed
                self.handle.advance(handle.latest)
                self.snapshot = handle.latest

    def delete(
        self, predicate: str | None, writer_properties: WriterProperties | None, commit: Commit, hook: Hook
    ) -> str:
        """Delete the rows for which a condition is true; None: all. Returns the metrics."""
        timer = metrics.Timer()
        with self.changing(commit, hook, file_options(writer_properties)) as handle, handle.transaction() as changed:
            result = delete(changed, coerced(predicate, changed.schema), None, None)
        return json.dumps(metrics.of_delete(result, timer))

    def update(
        self,
        updates: Mapping[str, str],
        predicate: str | None,
        writer_properties: WriterProperties | None,
        safe_cast: bool,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
        new_values: Mapping[str, Any] | None = None,
    ) -> str:
        """Set columns to the values of SQL expressions, or to Python values, in the rows for which a condition is true.
        ``safe_cast``: a value that does not fit its column becomes null. Returns the metrics."""
        timer = metrics.Timer()
        files = file_options(writer_properties)
        hook = post_commithook_properties
        with self.changing(commit_properties, hook, files) as handle, handle.transaction() as changed:
            expressions = rewrites.assignments(updates, changed.schema, safe_cast, changed.schema)
            values = rewrites.python_values(new_values or {}, changed.schema)
            where = coerced(predicate, changed.schema)
            result = update(changed, expressions, values, where, None, None)
        return json.dumps(metrics.of_update(result, timer))

    def vacuum(
        self,
        dry_run: bool,
        retention_hours: float | None,
        enforce_retention_duration: bool,
        commit: Commit = None,
        hook: Hook = None,
        full: bool = False,
        keep_versions: list[int] | None = None,
    ) -> list[str]:
        """Delete files that no version needs, or with ``dry_run`` only list them. Returns their paths."""
        with self.changing(commit, hook) as handle:
            return rewrites.vacuum(handle, dry_run, retention_hours, enforce_retention_duration, full, keep_versions)

    def compact_optimize(
        self,
        where: FilePruningPredicateType | None,
        target_size: int | None,
        max_concurrent_tasks: int | None,
        max_spill_size: int | None,
        max_temp_directory_size: int | None,
        min_commit_interval: int | None,
        writer_properties: WriterProperties | None,
        commit: Commit,
        hook: Hook,
    ) -> str:
        """Combine small files. Returns the metrics."""
        with self.changing(commit, hook, file_options(writer_properties)) as handle:
            return rewrites.compact(handle, where, target_size, max_concurrent_tasks, min_commit_interval)

    def z_order_optimize(
        self,
        z_order_columns: Sequence[str],
        where: FilePruningPredicateType | None,
        target_size: int | None,
        max_concurrent_tasks: int | None,
        max_spill_size: int | None,
        max_temp_directory_size: int | None,
        min_commit_interval: int | None,
        writer_properties: WriterProperties | None,
        commit: Commit,
        hook: Hook,
    ) -> str:
        """Rewrite all files in the Z-order of columns. Returns the metrics."""
        with self.changing(commit, hook, file_options(writer_properties)) as handle:
            return rewrites.z_order(
                handle, z_order_columns, where, target_size, max_concurrent_tasks, min_commit_interval
            )

    def restore(
        self,
        target: int | str | None,
        ignore_missing_files: bool,
        protocol_downgrade_allowed: bool,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> str:
        """Restore the table to a version or to a point in time. Returns the metrics."""
        with self.changing(commit_properties, post_commithook_properties) as handle:
            timestamp_ms = epoch_ms(target) if isinstance(target, str) else None
            version = target if isinstance(target, int) else None
            if timestamp_ms is not None:
                version = handle.history().version_at(timestamp_ms, "earliest", "latest").version
            wanted = handle.at(version, None, for_change=True)
            if wanted.version >= self.snapshot.version:
                raise DeltaError(
                    f"Generic error: Version to restore {wanted.version} should be less then last available version "
                    f"{self.snapshot.version}. Load the latest version first, if another writer has committed since."
                )
            with handle.transaction() as changed:
                done = restore(changed, wanted, timestamp_ms, ignore_missing_files, False, None)
        return json.dumps({"numRemovedFile": done.removed_files, "numRestoredFile": done.added_files})

    def repair(self, dry_run: bool, commit: Commit = None, hook: Hook = None) -> str:
        """Remove from the table the files that no longer exist in the store. Returns the metrics."""
        with self.changing(commit, hook) as handle:
            removed = rewrites.repair(handle, dry_run)
        return json.dumps({"dry_run": dry_run, "files_removed": json.dumps(removed)})

    @translating
    def create_checkpoint(self) -> None:
        """Write a checkpoint of the loaded version."""
        log_files.checkpoint_of(self.handle, self.snapshot)

    @translating
    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Write a log compaction of a range of versions."""
        log_files.compact(self.handle, starting_version, ending_version)

    @translating
    def cleanup_metadata(self) -> None:
        """Delete expired log files."""
        log_files.delete_expired(self.handle, False, None)

    @translating
    def generate(self) -> None:
        """Write symlink manifests."""
        write_manifests(self.handle)

    # ----------------------------------------------------------------- changes to columns and properties

    def add_columns(self, fields: Sequence[Field], commit: Commit = None, hook: Hook = None) -> None:
        """Add columns, or fields of struct columns."""
        with self.changing(commit, hook) as handle, handle.transaction() as changed:
            added = StructType(tuple(field.to_delta() for field in fields))
            rewrites.check_addable(added)
            changed.merge_schema(added)
            logged = [json.loads(field.to_json()) for field in fields]
            changed.commit("ADD COLUMN", {"fields": json.dumps(logged, separators=(",", ":"))})

    def add_constraints(self, wanted: Mapping[str, str], commit: Commit = None, hook: Hook = None) -> None:
        """Add CHECK constraints."""
        with self.changing(commit, hook) as handle:
            for name, expression in wanted.items():
                with handle.transaction() as changed:
                    constraints.add_constraint(changed, name, spark_sql(expression))

    def drop_constraints(self, name: str, raise_if_not_exists: bool, commit: Commit = None, hook: Hook = None) -> None:
        """Drop a CHECK constraint."""
        with self.changing(commit, hook) as handle, handle.transaction() as changed:
            constraints.drop_constraint(changed, name, not raise_if_not_exists)

    def drop_column_not_null(self, column_name: str, commit: Commit = None, hook: Hook = None) -> None:
        """Allow nulls in a column."""
        with self.changing(commit, hook) as handle, handle.transaction() as changed:
            if changed.schema.field(column_name).nullable:
                raise DeltaError(f"Column {column_name} is nullable already.")
            alterations.set_column(changed, column_name, True, None, None, None, False, None)

    def set_table_properties(
        self, properties: Mapping[str, str], raise_if_not_exists: bool, commit: Commit = None, hook: Hook = None
    ) -> None:
        """Set table properties."""
        with self.changing(commit, hook) as handle:
            own = {key: value for key, value in properties.items() if key not in creation_rules.VERSION_KEYS}
            rewrites.check_properties(own, raise_if_not_exists)
            row_id_backfill.prepare(handle, own, None)
            with handle.transaction() as changed:
                creation.set_versions(changed, properties)
                changed.set_properties(own)
                changed.commit("SET TBLPROPERTIES", {"properties": canonical_json(dict(properties))})

    def set_table_name(self, name: str, commit: Commit = None, hook: Hook = None) -> None:
        """Set the name of the table."""
        if not 0 < len(name) <= 255:
            raise DeltaError(
                "Table metadata is invalid: name: Table name cannot be empty and cannot exceed 255 characters; got "
                f"{len(name)}."
            )
        self._set_description(name, None, commit, hook)

    def set_table_description(self, description: str, commit: Commit = None, hook: Hook = None) -> None:
        """Set the description of the table."""
        if len(description) > 4000:
            raise DeltaError(
                "Table metadata is invalid: description: Table description cannot exceed 4000 characters; got "
                f"{len(description)}."
            )
        self._set_description(None, description, commit, hook)

    def _set_description(self, name: str | None, description: str | None, commit: Commit, hook: Hook) -> None:
        with self.changing(commit, hook) as handle, handle.transaction() as changed:
            changed.set_metadata(name=name, description=description)
            given = {"name": name, "description": description}
            update = {key: value for key, value in given.items() if value is not None}
            changed.commit("UPDATE TABLE METADATA", {"metadata_update": json.dumps(update)})

    def set_column_metadata(
        self, column: str, metadata: Mapping[str, str], commit: Commit = None, hook: Hook = None
    ) -> None:
        """Set entries of a column's metadata."""
        with self.changing(commit, hook) as handle, handle.transaction() as changed:
            alterations.set_column_metadata(changed, column, metadata)

    def add_feature(
        self, features: Sequence[Any], allow_protocol_versions_increase: bool, commit: Commit = None, hook: Hook = None
    ) -> None:
        """Add table features."""
        with self.changing(commit, hook) as handle:
            names = [rewrites.feature_name(each) for each in features]
            if not allow_protocol_versions_increase:
                rewrites.check_lists_features(handle, names)
            with handle.transaction() as changed:
                changed.metadata_changes.set_protocol(table_features.with_features(changed.protocol, names))
                changed.commit("ADD FEATURE", {"name": json.dumps(names)})
