"""DeltaTable and its namespaces: deltalake's arguments, checked and passed on to ``RawDeltaTable``."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from deltalog.arguments import safe_repr
from deltalog.deltalake import creation, dataset
from deltalog.deltalake._util import (
    deprecate_positional_commit_args,
    encode_partition_value,
    take_positions,
    warn_of_positions,
)
from deltalog.deltalake.arrow import names_of, taken_stream
from deltalog.deltalake.exceptions import DeltaError, DeltaProtocolError, translated, translating
from deltalog.deltalake.features import TableFeatures
from deltalog.deltalake.filters import (
    FilePruningPredicateType,
    FilterConjunctionType,
    FilterDNFType,
    FilterLiteralType,
    FilterType,
    PartitionFilterType,
    condition,
)
from deltalog.deltalake.instants import text_of
from deltalog.deltalake.merging import MergeBuilder, TableMerger
from deltalog.deltalake.raw import RawDeltaTable
from deltalog.deltalake.schema import Field, Schema
from deltalog.deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction
from deltalog.deltalake.writer_properties import WriterProperties, file_options

if TYPE_CHECKING:
    import pyarrow as pa

    DeltaSchema = Schema
    DeltaField = Field
else:
    DeltaSchema, DeltaField = Schema, Field

_create_deltalake = creation.create

MAX_SUPPORTED_PYARROW_WRITER_VERSION = 7
NOT_SUPPORTED_PYARROW_WRITER_VERSIONS = [3, 4, 5, 6]
SUPPORTED_WRITER_FEATURES = {"appendOnly", "invariants", "timestampNtz", "variantType", "variantType-preview"}
MAX_SUPPORTED_READER_VERSION = 3
NOT_SUPPORTED_READER_VERSION = -1
SUPPORTED_READER_FEATURES = {"timestampNtz", "variantType", "variantType-preview"}
FSCK_METRICS_FILES_REMOVED_LABEL = "files_removed"

Commit = CommitProperties | None
Hook = PostCommitHookProperties | None
_HOOK_FIRST = ("post_commithook_properties", "commit_properties")


class _KeywordArgDefault:
    """A default value that shows that no argument was passed."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @safe_repr
    def __repr__(self) -> str:
        return repr(self.value)


_DEFAULT_TRUE = _KeywordArgDefault(True)
_DEFAULT_FALSE = _KeywordArgDefault(False)
_DEFAULT_NONE = _KeywordArgDefault(None)
_RAISE = cast(bool, _DEFAULT_TRUE)
_FULL, _KEEP = cast(bool, _DEFAULT_FALSE), cast("list[int] | None", _DEFAULT_NONE)


def _value(given: Any) -> Any:
    return given.value if isinstance(given, _KeywordArgDefault) else given


class Metadata:
    """The metadata of a version. ``created_time``: in ms since 1970."""

    def __init__(self, table: RawDeltaTable) -> None:
        self._metadata = table.metadata()

    @property
    def id(self) -> str:
        """The unique id of the table."""
        return self._metadata.id

    @property
    def name(self) -> str | None:
        """The name that a user gave the table."""
        return self._metadata.name

    @property
    def description(self) -> str | None:
        """The description of the table, as set by its user."""
        return self._metadata.description

    @property
    def partition_columns(self) -> list[str]:
        """The names of the partition columns."""
        return self._metadata.partition_columns

    @property
    def created_time(self) -> int | None:
        """When the table was created."""
        return self._metadata.created_time

    @property
    def configuration(self) -> dict[str, str]:
        """The table properties."""
        return self._metadata.configuration

    @safe_repr
    def __repr__(self) -> str:
        return (
            f"Metadata(id: {self.id}, name: {self.name}, description: {self.description}, partition_columns: "
            f"{self.partition_columns}, created_time: {self.created_time}, configuration: {self.configuration})"
        )


class _DeltaTableConfigBase(NamedTuple):
    without_files: bool
    log_buffer_size: int
    skip_stats: bool = False


class DeltaTableConfig(_DeltaTableConfigBase):
    """The options of the constructor, which have no effect. Deprecated."""

    def __new__(cls, without_files: bool, log_buffer_size: int, skip_stats: bool = False) -> DeltaTableConfig:
        """Warns that the class is deprecated."""
        warnings.warn("The DeltaTableConfig class is deprecated.", DeprecationWarning, stacklevel=2)
        return super().__new__(cls, without_files, log_buffer_size, skip_stats)


class ProtocolVersions(NamedTuple):
    """The protocol of a version. The lists of features are None if the protocol versions imply the features."""

    min_reader_version: int
    min_writer_version: int
    writer_features: list[str] | None
    reader_features: list[str] | None


def _merged_filters(name: str, deprecated: Any, predicate: Any) -> Any:
    if deprecated is None:
        return predicate
    if predicate is not None:
        raise ValueError(f"`{name}` is deprecated; pass only `file_pruning_predicate`")
    warnings.warn(f"`{name}` is deprecated; use `file_pruning_predicate`.", DeprecationWarning, stacklevel=3)
    return deprecated


class DeltaTable:
    """A Delta table at one version: the latest, or ``version``. ``load_as_version`` and ``update_incremental`` load
    another version; methods that change the table load the version that they commit. Raises DeltaError.

    ``storage_options``: options under object_store's names or under deltalog's names. The other arguments are
    deprecated and have no effect.
    """

    def __init__(
        self,
        table_uri: str | Path | os.PathLike[str],
        version: int | None = None,
        storage_options: dict[str, str] | None = None,
        without_files: bool = False,
        log_buffer_size: int | None = None,
        skip_stats: bool = False,
    ) -> None:
        for name, given in (
            ("without_files", without_files),
            ("log_buffer_size", log_buffer_size is not None),
            ("skip_stats", skip_stats),
        ):
            if given:
                warnings.warn(f"The '{name}' parameter is deprecated and ignored.", DeprecationWarning, stacklevel=2)
        self._storage_options = storage_options
        self._table = RawDeltaTable(os.fspath(table_uri), version=version, storage_options=storage_options)

    @safe_repr
    def __repr__(self) -> str:
        return f"DeltaTable(table_uri={self.table_uri!r}, version={self.version()})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeltaTable):
            return NotImplemented
        return (self.table_uri, self.version()) == (other.table_uri, other.version())

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle support: unpickling opens the table at the same version. The pickle contains the storage options."""
        return _opened_again, (self.table_uri, self.version(), self._storage_options)

    @property
    def table_config(self) -> DeltaTableConfig:
        """The options of the constructor, which have no effect. Deprecated."""
        return DeltaTableConfig(*self._table.table_config())

    @staticmethod
    def is_deltatable(table_uri: str | Path | os.PathLike[str], storage_options: dict[str, str] | None = None) -> bool:
        """Whether there is a table at a location."""
        return RawDeltaTable.is_deltatable(os.fspath(table_uri), storage_options)

    @classmethod
    def create(
        cls,
        table_uri: str | Path,
        schema: Any,
        mode: Literal["error", "append", "overwrite", "ignore"] = "error",
        partition_by: list[str] | str | None = None,
        name: str | None = None,
        description: str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        storage_options: dict[str, str] | None = None,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
        raise_if_key_not_exists: bool = _RAISE,
    ) -> DeltaTable:
        """Create a table without rows, or with ``mode="overwrite"`` replace one. ``schema``: a Schema, or any Arrow
        schema. In-commit timestamps are off unless the configuration turns them on."""
        given: dict[str, Any] = {
            "commit_properties": commit_properties,
            "post_commithook_properties": post_commithook_properties,
            "raise_if_key_not_exists": raise_if_key_not_exists,
        }
        if args:
            warn_of_positions("create")
            unset = {**dict.fromkeys(given), "raise_if_key_not_exists": _DEFAULT_TRUE}
            take_positions("create", args, tuple(given), given, unset)
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by or [])
        with translated():
            _create_deltalake(
                os.fspath(table_uri),
                schema if isinstance(schema, Schema) else Schema.from_arrow(schema),
                columns,
                mode,
                _value(given["raise_if_key_not_exists"]),
                name,
                description,
                configuration,
                storage_options,
                given["commit_properties"],
                given["post_commithook_properties"],
            )
        return cls(table_uri, storage_options=storage_options)

    # ------------------------------------------------------------------------------------------ description

    def version(self) -> int:
        """The loaded version."""
        return self._table.version()

    @property
    def table_uri(self) -> str:
        """The URL of the table root, ending in a slash."""
        return self._table.table_uri()

    def schema(self) -> Schema:
        """The columns of the loaded version."""
        return self._table.schema

    def metadata(self) -> Metadata:
        """The metadata of the loaded version."""
        return Metadata(self._table)

    def protocol(self) -> ProtocolVersions:
        """The protocol of the loaded version."""
        return ProtocolVersions(*self._table.protocol_versions())

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commitInfo of the commits with their ``version``, newest first."""
        latest, commits = self._table.history(limit)
        return [{**json.loads(text), "version": latest - index} for index, text in enumerate(commits)]

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application recorded; None if it recorded none."""
        return self._table.transaction_version(app_id)

    def load_as_version(self, version: int | str | datetime.datetime) -> None:
        """Load a version, or the version that was current at a point in time: a datetime (without a time zone it is
        UTC), or text with an offset."""
        if isinstance(version, int):
            self._table.load_version(version)
        elif isinstance(version, datetime.datetime):
            self._table.load_with_datetime(text_of(version))
        elif isinstance(version, str):
            self._table.load_with_datetime(version)
        else:
            raise TypeError("Invalid datatype provided for version, only int, str or datetime are accepted.")

    def update_incremental(self) -> None:
        """Load the latest version."""
        self._table.update_incremental()

    # ------------------------------------------------------------------------------------------------- files

    def partitions(
        self,
        partition_filters: FilterType | None = None,
        *,
        file_pruning_predicate: FilePruningPredicateType | None = None,
    ) -> list[dict[str, str | None]]:
        """The partitions, as mappings from column to text."""
        where = _merged_filters("partition_filters", partition_filters, file_pruning_predicate)
        found = self._table.get_active_partitions(self._checked_filters(where))
        return [dict(partition) for partition in found if partition]

    def file_uris(
        self,
        partition_filters: FilterType | None = None,
        *,
        file_pruning_predicate: FilePruningPredicateType | None = None,
    ) -> list[str]:
        """The locations of the files. ``file_pruning_predicate``: SQL, or tuples in disjunctive normal form. Partition
        values and statistics are used to leave out files that contain no matching row."""
        where = _merged_filters("partition_filters", partition_filters, file_pruning_predicate)
        return self._table.file_uris(self._checked_filters(where))

    def get_add_actions(self, flatten: bool = False) -> Any:
        """A table with a row for each file: path, size in bytes, modification time in ms, row count, null counts,
        bounds, partition values. ``flatten``: return these values as separate columns instead of structs."""
        return self._table.get_add_actions(flatten)

    def deletion_vectors(self) -> Any:
        """A row for each file with a deletion vector: ``filepath``, and ``selection_vector``, which is true for live
        rows."""
        return self._table.deletion_vectors()

    def count(self) -> int:
        """The number of rows according to the statistics: a file without statistics counts as empty, and rows that a
        deletion vector deletes are included."""
        numbers = self._table.get_add_actions(False)["num_records"].to_pylist()
        return sum(number for number in numbers if number is not None)

    def _checked_filters(self, filters: Any) -> Any:
        if filters is None or isinstance(filters, str):
            return filters
        self._stringify_partition_values(filters)
        return filters

    def _stringify_partition_values(self, partition_filters: FilterType | None) -> list[PartitionFilterType] | None:
        """Tuple filters, with their values converted to text. Raises ValueError for a mix of tuples and lists."""
        if not partition_filters:
            return None
        if all(isinstance(each, list) for each in partition_filters):
            groups = cast(FilterDNFType, partition_filters)
        elif all(isinstance(each, tuple) for each in partition_filters):
            groups = [cast(FilterConjunctionType, partition_filters)]
        else:
            raise ValueError("Filters are a list of tuples (column, op, value), or a list of such lists, not both.")
        if not all(groups):
            raise ValueError("A conjunction of filters is empty. Pass no filter to match all files.")
        return [[_encoded(each) for each in group] for group in groups]

    # -------------------------------------------------------------------------------------------------- rows

    def scan(self, columns: list[str] | None = None, predicate: str | None = None) -> Any:
        """The rows for which a condition is true, as a stream of batches."""
        return self._table.scan(columns=columns, predicate=predicate)

    def load_cdf(
        self,
        starting_version: int = 0,
        ending_version: int | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        columns: list[str] | None = None,
        predicate: str | None = None,
        allow_out_of_range: bool = False,
    ) -> Any:
        """The change data feed of a range of versions or times, as a stream of batches."""
        return self._table.load_cdf(
            columns, predicate, starting_version, ending_version, starting_timestamp, ending_timestamp,
            allow_out_of_range,
        )  # fmt: skip

    @translating
    def to_pyarrow_dataset(
        self,
        partitions: FilterType | None = None,
        filesystem: Any = None,
        parquet_read_options: Any = None,
        schema: pa.Schema | None = None,
        as_large_types: bool = False,
        file_pruning_predicate: FilePruningPredicateType | None = None,
    ) -> Any:
        """A pyarrow dataset of the files, with partition values and statistics as guarantees. A table with deletion
        vectors, column mapping or widened columns is read into memory, because reading its files alone would not return
        its rows."""
        where = self._checked_filters(_merged_filters("partitions", partitions, file_pruning_predicate))
        return dataset.of_table(self._table, where, filesystem, parquet_read_options, schema, as_large_types)

    @translating
    def to_pyarrow_table(
        self,
        partitions: FilterType | None = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: Any = None,
    ) -> pa.Table:
        """The rows in memory. ``filters``: tuples in disjunctive normal form, or an expression of pyarrow."""
        import pyarrow.parquet as pq

        if partitions is not None:
            warnings.warn("`partitions` is deprecated; use `filters` instead", DeprecationWarning, stacklevel=3)
        where = self._checked_filters(partitions)
        expression = None if filters is None else pq.filters_to_expression(filters)
        found = dataset.of_table(self._table, where, filesystem, None, None, False)
        return found.to_table(columns=names_of(columns), filter=expression)

    def to_pandas(
        self,
        partitions: FilterType | None = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: Any = None,
        types_mapper: Callable[[pa.DataType], Any] | None = None,
    ) -> Any:
        """The rows as a pandas DataFrame. Arguments: as for ``to_pyarrow_table``."""
        rows = self.to_pyarrow_table(partitions, columns, filesystem, filters)
        return rows.to_pandas(types_mapper=types_mapper)

    def delete(
        self,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> dict[str, Any]:
        """Delete the rows for which a condition is true; without a condition, delete all rows. Returns the metrics."""
        commit, hook = deprecate_positional_commit_args(
            "delete", args, commit_properties, post_commithook_properties, _HOOK_FIRST
        )
        return _object(self._table.delete(predicate, writer_properties, commit, hook))

    def update(
        self,
        updates: dict[str, str] | None = None,
        new_values: dict[str, Any] | None = None,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        error_on_type_mismatch: bool = True,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> dict[str, Any]:
        """Set columns in the rows for which a condition is true, to SQL expressions (``updates``) or Python values
        (``new_values``). Returns the metrics."""
        commit, hook = deprecate_positional_commit_args(
            "update", args, commit_properties, post_commithook_properties, _HOOK_FIRST
        )
        if updates is not None and new_values is not None:
            raise ValueError("Passing updates and new_values at same time is not allowed, pick one.")
        for value in (new_values or {}).values():
            _check_value(value)
        if updates is None and new_values is None:
            raise ValueError("Either updates or new_values need to be passed to update the table.")
        if not all(isinstance(each, str) for pair in (updates or {}).items() for each in pair):
            raise TypeError(
                f"The values of the updates parameter must all be SQL strings. Got {updates}. Did you mean to use the "
                "new_values parameter?"
            )
        return _object(
            self._table.update(
                updates or {},
                predicate,
                writer_properties,
                not error_on_type_mismatch,
                commit,
                hook,
                new_values=new_values,
            )
        )

    def merge(
        self,
        source: Any,
        predicate: str,
        source_alias: str | None = None,
        target_alias: str | None = None,
        merge_schema: bool = False,
        error_on_type_mismatch: bool = True,
        writer_properties: WriterProperties | None = None,
        streamed_exec: bool = True,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> TableMerger:
        """Merge rows into the table: add clauses to the result, then call its ``execute``. ``error_on_type_mismatch``:
        whether a value that does not fit its column is an error; else it becomes null. ``streamed_exec`` and the size
        arguments belong to DataFusion and have no effect: deltalog bounds the memory of a merge itself."""
        commit, hook = deprecate_positional_commit_args(
            "merge", args, commit_properties, post_commithook_properties, _HOOK_FIRST
        )
        with translated():
            builder = MergeBuilder(
                taken_stream(source), predicate, source_alias, target_alias, merge_schema, not error_on_type_mismatch,
                file_options(writer_properties), commit, hook,
            )  # fmt: skip
        return TableMerger(builder, self._table)

    @translating
    def create_write_transaction(
        self,
        actions: list[AddAction | RemoveAction],
        mode: str,
        schema: Any,
        partition_by: list[str] | str | None = None,
        partition_filters: FilterType | None = None,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> None:
        """Commit existing files to the table."""
        commit, hook = deprecate_positional_commit_args(
            "create_write_transaction", args, commit_properties, post_commithook_properties
        )
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by or [])
        wanted = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)
        with self._table.changing(commit, hook) as handle:
            where = condition(partition_filters, handle.latest.schema)
            creation.write_actions(handle, actions, mode, wanted, columns, where)

    # ------------------------------------------------------------------------------------------- maintenance

    @property
    def optimize(self) -> TableOptimizer:
        """An object whose methods rewrite files."""
        return TableOptimizer(self)

    @property
    def alter(self) -> TableAlterer:
        """An object whose methods change columns, properties and features."""
        return TableAlterer(self)

    def vacuum(
        self,
        retention_hours: int | None = None,
        dry_run: bool = True,
        enforce_retention_duration: bool = True,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
        full: bool = _FULL,
        keep_versions: list[int] | None = _KEEP,
    ) -> list[str]:
        """Delete the files that no version within the retention needs; with ``dry_run`` only list them. ``full``:
        whether to also delete files that no version refers to. ``keep_versions``: the versions whose files are kept.
        Returns the paths."""
        given: dict[str, Any] = {
            "post_commithook_properties": post_commithook_properties,
            "commit_properties": commit_properties,
            "full": full,
            "keep_versions": keep_versions,
        }
        if args:
            warn_of_positions("vacuum")
            unset = {**dict.fromkeys(given), "full": _DEFAULT_FALSE, "keep_versions": _DEFAULT_NONE}
            take_positions("vacuum", args, tuple(given), given, unset)
        if retention_hours is not None and retention_hours < 0:
            raise ValueError("The retention periods should be positive.")
        return self._table.vacuum(
            dry_run,
            retention_hours,
            enforce_retention_duration,
            given["commit_properties"],
            given["post_commithook_properties"],
            _value(given["full"]),
            _value(given["keep_versions"]),
        )

    def restore(
        self,
        target: int | datetime.datetime | str,
        *,
        ignore_missing_files: bool = False,
        protocol_downgrade_allowed: bool = False,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> dict[str, Any]:
        """Restore a version, given by its number or by a point in time, in a new commit. The protocol versions are
        never lowered. Returns the metrics."""
        wanted = text_of(target) if isinstance(target, datetime.datetime) else target
        return _object(
            self._table.restore(
                wanted, ignore_missing_files, protocol_downgrade_allowed, commit_properties, post_commithook_properties
            )
        )

    def repair(
        self,
        dry_run: bool = False,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> dict[str, Any]:
        """Remove from the table the files that no longer exist in the store; with ``dry_run`` only list them."""
        commit, hook = deprecate_positional_commit_args(
            "repair", args, commit_properties, post_commithook_properties, _HOOK_FIRST
        )
        found = _object(self._table.repair(dry_run, commit, hook))
        found[FSCK_METRICS_FILES_REMOVED_LABEL] = json.loads(found[FSCK_METRICS_FILES_REMOVED_LABEL])
        return found

    def create_checkpoint(self) -> None:
        """Write a checkpoint of the loaded version."""
        self._table.create_checkpoint()

    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Write a log compaction of a range of versions."""
        self._table.compact_logs(starting_version, ending_version)

    def cleanup_metadata(self) -> None:
        """Delete the log files that delta.logRetentionDuration no longer keeps."""
        self._table.cleanup_metadata()

    def generate(self) -> None:
        """Write symlink manifests of the latest version."""
        self._table.generate()

    def __datafusion_table_provider__(self, session: Any = None) -> Any:
        """always, because a table provider for DataFusion must be a Rust object."""
        raise DeltaError(
            "Only delta-rs can make a table provider for DataFusion. Register the rows instead: "
            "SessionContext.from_arrow(table.scan())."
        )


class TableAlterer:
    """The methods of ``DeltaTable.alter``."""

    def __init__(self, table: DeltaTable) -> None:
        self.table = table

    def add_feature(
        self,
        feature: TableFeatures | list[TableFeatures],
        allow_protocol_versions_increase: bool = False,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> None:
        """Add table features. ``allow_protocol_versions_increase``: whether the protocol's versions may be raised for
        these features."""
        commit, hook = deprecate_positional_commit_args(
            "add_feature", args, commit_properties, post_commithook_properties
        )
        features = list(feature) if isinstance(feature, (list, tuple)) else [feature]
        self.table._table.add_feature(features, allow_protocol_versions_increase, commit, hook)

    def add_columns(
        self,
        fields: Field | list[Field],
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> None:
        """Add columns, or fields of struct columns."""
        commit, hook = deprecate_positional_commit_args(
            "add_columns", args, commit_properties, post_commithook_properties
        )
        self.table._table.add_columns([fields] if isinstance(fields, Field) else fields, commit, hook)

    def add_constraint(
        self,
        constraints: dict[str, str],
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> None:
        """Add CHECK constraints, given as a mapping from names to SQL, after checking the existing rows; makes one
        commit per constraint."""
        commit, hook = deprecate_positional_commit_args(
            "add_constraint", args, commit_properties, post_commithook_properties, _HOOK_FIRST
        )
        self.table._table.add_constraints(constraints, commit, hook)

    def drop_constraint(
        self,
        name: str,
        raise_if_not_exists: bool = True,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> None:
        """Drop a CHECK constraint."""
        commit, hook = deprecate_positional_commit_args(
            "drop_constraint", args, commit_properties, post_commithook_properties, _HOOK_FIRST
        )
        self.table._table.drop_constraints(name, raise_if_not_exists, commit, hook)

    def drop_column_not_null(
        self, column_name: str, commit_properties: Commit = None, post_commithook_properties: Hook = None
    ) -> None:
        """Allow nulls in a column."""
        self.table._table.drop_column_not_null(column_name, commit_properties, post_commithook_properties)

    def set_table_properties(
        self,
        properties: dict[str, str],
        raise_if_not_exists: bool = True,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> None:
        """Set table properties. ``delta.enableInCommitTimestamps`` locks out writers that do not support in-commit
        timestamps, such as deltalake."""
        commit, hook = deprecate_positional_commit_args(
            "set_table_properties", args, commit_properties, post_commithook_properties
        )
        self.table._table.set_table_properties(properties, raise_if_not_exists, commit, hook)

    def set_table_name(
        self, name: str, *args: Any, commit_properties: Commit = None, post_commithook_properties: Hook = None
    ) -> None:
        """Set the name of the table, at most 255 characters."""
        commit, hook = deprecate_positional_commit_args(
            "set_table_name", args, commit_properties, post_commithook_properties
        )
        self.table._table.set_table_name(name, commit, hook)

    def set_table_description(
        self, description: str, *args: Any, commit_properties: Commit = None, post_commithook_properties: Hook = None
    ) -> None:
        """Set the description of the table, at most 4000 characters."""
        commit, hook = deprecate_positional_commit_args(
            "set_table_description", args, commit_properties, post_commithook_properties
        )
        self.table._table.set_table_description(description, commit, hook)

    def set_column_metadata(
        self,
        column: str,
        metadata: dict[str, str],
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> None:
        """Set entries of a column's metadata."""
        commit, hook = deprecate_positional_commit_args(
            "set_column_metadata", args, commit_properties, post_commithook_properties
        )
        self.table._table.set_column_metadata(column, metadata, commit, hook)


class TableOptimizer:
    """The methods of ``DeltaTable.optimize``. ``target_size``: the size of new files in bytes; default:
    delta.targetFileSize. ``max_spill_size`` and ``max_temp_directory_size`` are options of DataFusion, and have no
    effect. ``min_commit_interval``: with 0, each group of files is committed separately; with any other value, one
    commit rewrites up to 16 GiB of files."""

    def __init__(self, table: DeltaTable) -> None:
        self.table = table

    def compact(
        self,
        partition_filters: FilterConjunctionType | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        min_commit_interval: int | datetime.timedelta | None = None,
        writer_properties: WriterProperties | None = None,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> dict[str, Any]:
        """Combine small files. Returns the metrics."""
        commit, hook = deprecate_positional_commit_args(
            "compact", args, commit_properties, post_commithook_properties, _HOOK_FIRST
        )
        return _object(
            self.table._table.compact_optimize(
                self.table._checked_filters(partition_filters),
                target_size,
                max_concurrent_tasks,
                max_spill_size,
                max_temp_directory_size,
                _seconds(min_commit_interval),
                writer_properties,
                commit,
                hook,
            )
        )

    def z_order(
        self,
        columns: Iterable[str],
        partition_filters: FilterConjunctionType | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        min_commit_interval: int | datetime.timedelta | None = None,
        writer_properties: WriterProperties | None = None,
        *args: Any,
        commit_properties: Commit = None,
        post_commithook_properties: Hook = None,
    ) -> dict[str, Any]:
        """Rewrite all files in the Z-order of columns. Returns the metrics."""
        commit, hook = deprecate_positional_commit_args(
            "z_order", args, commit_properties, post_commithook_properties, _HOOK_FIRST
        )
        return _object(
            self.table._table.z_order_optimize(
                list(columns),
                self.table._checked_filters(partition_filters),
                target_size,
                max_concurrent_tasks,
                max_spill_size,
                max_temp_directory_size,
                _seconds(min_commit_interval),
                writer_properties,
                commit,
                hook,
            )
        )


def _opened_again(table_uri: str, version: int, storage_options: dict[str, str] | None) -> DeltaTable:
    return DeltaTable(table_uri, version, storage_options)


def _object(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def _seconds(interval: int | datetime.timedelta | None) -> int | None:
    return int(interval.total_seconds()) if isinstance(interval, datetime.timedelta) else interval


def _encoded(given: FilterLiteralType) -> tuple[str, str, str | list[str]]:
    column, operator, value = given
    if isinstance(value, (list, tuple, set, frozenset)):
        return column, operator, [encode_partition_value(each) for each in value]
    return column, operator, encode_partition_value(value)


def _check_value(value: Any) -> None:
    """Raise TypeError if a new value has a type that deltalake does not accept."""
    kinds = (bool, int, float, str, datetime.datetime, datetime.date, decimal.Decimal, bytes, list, dict, type(None))
    if not isinstance(value, kinds):
        raise TypeError(
            "Invalid datatype provided in new_values, only int, float, bool, list, str or datetime are accepted; got "
            f"{type(value).__name__}."
        )


__all__ = [
    "DeltaProtocolError",
    "DeltaTable",
    "DeltaTableConfig",
    "FilePruningPredicateType",
    "FilterConjunctionType",
    "FilterDNFType",
    "FilterLiteralType",
    "FilterType",
    "Metadata",
    "PartitionFilterType",
    "ProtocolVersions",
    "TableAlterer",
    "TableMerger",
    "TableOptimizer",
]
