"""The part of DeltaTable with the verbs that convert a directory to a table, clone a table and write manifests."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import pyarrow as pa

from deltalog.addresses import committer_of, handle_on, handle_on_latest
from deltalog.arguments import checked
from deltalog.environment import Environment
from deltalog.errors import TableExistsError
from deltalog.log.reader import LogReader
from deltalog.operations.clone import cloned
from deltalog.operations.commit_info import UserMetadata
from deltalog.operations.convert import converted
from deltalog.operations.manifests import write_manifests
from deltalog.operations.table_handle import TableHandle
from deltalog.protocol.schema import StructType
from deltalog.protocol.timestamps import to_epoch_ms
from deltalog.storage.registry import Location, open_store

Table = TypeVar("Table", bound="CopyVerbs")


@checked
class CopyVerbs:
    """What ``DeltaTable`` inherits: each verb is a transaction, and its rules are in ``operations``."""

    _handle: TableHandle

    def __init__(self, table: TableHandle) -> None:
        self._handle = table

    @classmethod
    def convert(
        cls: type[Table],
        url: Location,
        *,
        partition_by: StructType | pa.Schema | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        mode: Literal["error", "ignore"] = "error",
        user_metadata: UserMetadata = None,
        environment: Environment | None = None,
        **storage_options: Any,
    ) -> Table:
        """Turn a directory of Parquet files into a table in place: one commit that adds all of them, with statistics
        from their footers. No file is moved, rewritten or deleted.

        Columns: the union of those of all files; a column of different types is refused. Directories
        ``day=2026-11-20`` give partition columns, last in the table: integer, long or date if all values of a column
        are, else string. ``partition_by`` gives them other types (timestamps without an offset are in UTC), or only
        names the expected ones. Files and directories whose names begin with ``_`` or ``.`` are ignored. Links, mount
        points and files that are not Parquet are refused, so that the table has every row that a reader of the
        directory returns. ``properties``: of the new table. ``mode="ignore"``: open the table if there is one already.

        No process may write to the directory meanwhile: it is listed twice, and a difference is refused. Raises
        TableExistsError, CallError where there are no files, InvalidDataFileError, SchemaMismatchError, RowCountError,
        InvalidPropertyError, StoreError; nothing is committed then. Cost: 1 LIST of the log, as ``LogStore.walk``
        twice, for each file 1 HEAD and 2 to 4 ranged GETs in threads, 1 commit.
        """
        environment = environment or Environment()
        reader = LogReader(open_store(url, **storage_options), (), environment.clock_ms)
        try:
            transaction = converted(
                reader, committer_of(reader, environment), environment,
                partition_by, properties or {}, name, description, user_metadata,
            )  # fmt: skip
        except TableExistsError:
            if mode == "error":
                raise
            return cls(handle_on_latest(reader, environment))
        assert transaction.committed is not None
        return cls(handle_on(reader, environment, transaction.committed))

    def clone(
        self: Table,
        target: Location,
        *,
        shallow: bool = False,
        version: int | None = None,
        timestamp: datetime.datetime | int | str | None = None,
        properties: Mapping[str, str] | None = None,
        user_metadata: UserMetadata = None,
        **storage_options: Any,
    ) -> Table:
        """Clone the latest version, a given one, or the one that was current at a point in time: one commit to a new
        table at ``target``, which then has a history of its own.

        By default the clone is deep: the files are copied. A ``shallow`` clone names the files of its source by
        absolute paths, on the same kind of store. It needs them as long as one of its versions names them, and a vacuum
        of the source does not know of it. To open it again, name their place:
        ``DeltaTable.open(target, allowed_paths=[source])``.

        Columns, properties (changed by ``properties``), table features, metadata domains, deletion vectors and row ids
        are kept; the id, the history and the app transactions (txn) are not. In-commit timestamps, where the source has
        them, begin with version 0 of the clone. ``storage_options``: of the target. Returns the clone.

        Raises TableExistsError, also where the target of a deep clone is not empty; CallError for another kind of
        store, a blob table, a transaction; InvalidPropertyError, UnsupportedFeatureError, VersionNotFoundError,
        TimestampOutOfRangeError, InvalidDataFileError for a file of another size than its log says, StoreError. Nothing
        is committed then, and copies are deleted. Cost: as ``snapshot`` and ``Snapshot.files``, 1 LIST, 1 commit; for
        copies the target's ``LogStore.walk`` to its first file, and 1 GET or more and 1 PUT for each file.
        """
        source = self._handle.at(version, None if timestamp is None else to_epoch_ms(timestamp))
        files, environment = source.reader.files, self._handle.environment
        places = (files.store.url, *files.allowed_paths) if shallow else ()
        reader = LogReader(open_store(target, **storage_options), places)
        transaction = cloned(
            source,
            reader,
            committer_of(reader, environment),
            environment,
            shallow,
            properties or {},
            user_metadata,
        )
        assert transaction.committed is not None
        return type(self)(handle_on(reader, environment, transaction.committed))

    def generate(self, mode: Literal["symlink_format_manifest"] = "symlink_format_manifest") -> tuple[str, ...]:
        """Write symlink manifests of the latest version, for engines that do not read the log: a text file for each
        partition, with the locations of its files, below ``_symlink_format_manifest``. Manifests of partitions without
        files are deleted. Returns the paths of the manifests.

        Later commits of deltalog do not update them. Raises CallError for a table with deletion
        vectors or column mapping, which such engines would read wrongly, UnsafePathError, StoreError. Cost: as
        ``Snapshot.files``, as ``LogStore.walk``, 1 PUT for each manifest, 1 DELETE for each that is gone.
        """
        return write_manifests(self._handle)
