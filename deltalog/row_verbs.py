"""The verbs that change the rows of a table: a part of DeltaTable, in a module of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from deltalog.arguments import checked
from deltalog.commit.prepared import IsolationLevel
from deltalog.commit_result import CommitResult
from deltalog.expressions.tree import Predicate
from deltalog.read.origin import Read
from deltalog.rows.append import append
from deltalog.rows.delete import delete
from deltalog.rows.merge.builder import TableMerger
from deltalog.rows.overwrite import Columns, replacing
from deltalog.rows.update import update
from deltalog.write.commit_info import UserMetadata
from deltalog.write.table_handle import TableHandle
from deltalog.write.transaction import Transaction


@checked
class RowVerbs:
    """What ``DeltaTable`` inherits: each verb is a transaction, and its rules are in ``operations``."""

    _handle: TableHandle

    def transaction(
        self,
        *,
        isolation_level: IsolationLevel | None = None,
        reads: Iterable[Read] = (),
        expected_version: int | None = None,
    ) -> Transaction:
        """A transaction on the latest version, or on the earlier version that its rows were read from.

        ``reads``: the ``Scan.origin`` of the rows that the changes are computed from, or pairs of it and a condition
        that covers the rows used; origins in other tables are ignored. The transaction begins on the earliest of these
        versions and counts the rows as read, so commits since then are checked for conflicts like concurrent ones.
        ``expected_version``: the version that must still be the latest at the commit; ``reads`` are then ignored.
        Raises CommitConflictError, or VersionConflictError for ``expected_version``; both have both versions. Cost: as
        ``snapshot``, and 1 GET for each version in between.

        ``isolation_level``: with ``Serializable`` every row that another writer adds concurrently counts as read; with
        ``WriteSerializable`` all but those of blind appends, which can be ordered after this commit;
        ``SnapshotIsolation`` is for transactions that only move rows to other files, and is always used for these.
        None: the table property delta.isolationLevel, default Serializable.
        """
        return self._handle.transaction(isolation_level, reads, expected_version).for_caller()

    def append(
        self,
        data: Any,
        *,
        merge_schema: bool = False,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Add rows: anything with ``__arrow_c_stream__`` (pyarrow, polars, pandas, duckdb). A RecordBatchReader is
        read once: passing it again, to any verb, is a CallError.

        Columns match by name; absent nullable ones are null; new ones need ``merge_schema=True``. ``txn``: an
        application id and a version; when the table has recorded that version or a later one, nothing is written and
        ``skipped`` is true. If a scan of this table read the rows, later commits are checked for conflicts;
        ``expected_version``: as for ``overwrite``. Raises SchemaMismatchError and as Transaction.commit.
        """
        may_be_blind = not merge_schema and txn is None
        with self._handle.transaction_for(data, expected_version, may_be_blind) as transaction:
            return append(transaction, data, merge_schema, user_metadata, txn)

    def overwrite(
        self,
        data: Any,
        *,
        where: Predicate | str | None = None,
        partitions: Literal["dynamic"] | None = None,
        overwrite_schema: bool = False,
        merge_schema: bool = False,
        partition_by: Sequence[str] | None = None,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Replace rows in one commit: all of them, or those that one of these selects.

        ``where``: SQL text or a predicate made with ``col``; the rows for which it is true are replaced (Spark's
        replaceWhere), and it must be true for the new rows, else ConstraintViolationError. Other rows in the files are
        kept, as with ``delete``. ``partitions="dynamic"``: all rows of the partitions that occur in ``data``, and no
        others. ``overwrite_schema=True``: all rows, and the columns; with ``partition_by`` the partition columns too.
        With ``where`` the data must have all columns of the rows that stay. ``merge_schema=True``: new columns are
        added.

        Properties, and so in-commit timestamps, are kept. With ``where`` or ``partitions``, no commit is made when
        there are neither new rows nor rows to replace (``skipped``), unless ``txn`` is given. Conflicts with concurrent
        changes of the rows that are replaced. If ``data`` is a Scan of this table, or the Arrow data that one returned,
        commits since the version that it read are checked too, unless the caller named that version. Data without that
        schema metadata (pandas, polars and duckdb drop it) needs ``expected_version``: any other commit since is a
        VersionConflictError. Cost: 1 PUT for each new file and the commit; ``where`` as ``delete``.
        """
        columns = Columns(merge_schema, overwrite_schema, partition_by)
        verb = replacing(data, where, partitions, columns, user_metadata, txn)
        with self._handle.transaction_for(data, expected_version) as transaction:
            return verb(transaction)

    def delete(
        self,
        where: Predicate | str | None = None,
        *,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Delete the rows for which ``where`` is true (SQL text or a predicate made with ``col``; None: all rows).

        Rows are deleted by deletion vectors where the table has them (delta.enableDeletionVectors), else the other rows
        of their files are moved to new ones; files whose rows all match are removed. Change files are written where the
        change data feed needs them. When no row matches, no commit is made and the result's ``skipped`` is true, unless
        ``txn`` is given. Conflicts with concurrent changes of files that may hold matching rows. ``expected_version``:
        the version that must be the latest, else VersionConflictError. Raises CallError, InvalidActionError for an
        append-only table, and as Transaction.commit. Cost: the columns of ``where`` of each file that statistics leave
        open, all columns of the files to be rewritten, 1 PUT for each new file or vector file; then the commit.
        """
        with self._handle.transaction(expected_version=expected_version) as transaction:
            return delete(transaction, where, user_metadata, txn)

    def update(
        self,
        updates: Mapping[str, Any] | None = None,
        where: Predicate | str | None = None,
        *,
        new_values: Mapping[str, Any] | None = None,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Give columns new values in the rows for which ``where`` is true (None: in all rows).

        ``updates``: by column, an SQL expression of the old row, or one made with ``col``; ``a.b`` is a field of a
        struct. ``new_values``: by column, a value in Python. Values are cast as in Spark's ANSI mode. Generated columns
        that are not named are computed again; rows keep their row ids. Files, ``skipped`` and conflicts are as for
        ``delete``. Raises as ``delete``, ConstraintViolationError, SchemaMismatchError, and CallError for a row that an
        expression cannot be computed for. Cost: as ``delete``, all columns of the rows, 1 PUT for each new file.
        """
        with self._handle.transaction(expected_version=expected_version) as transaction:
            return update(transaction, updates or {}, new_values or {}, where, user_metadata, txn)

    def merge(
        self,
        source: Any,
        predicate: Predicate | str,
        source_alias: str | None = None,
        target_alias: str | None = None,
        *,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> TableMerger:
        """Merge rows into the table: changes of rows that match, and inserts of rows that do not, in one commit.

        The result takes the clauses; its ``execute`` makes the commit. ``source``: as for ``append``. ``predicate``:
        when a row of the source matches one of the table, SQL text or made with ``col``. Columns are
        ``source.x`` and ``target.x``, or under the aliases given; a name that only one side has needs neither. The
        other arguments: as for ``update``. Cost: none before ``execute``.
        """
        names = (source_alias or "source", target_alias or "target")
        return TableMerger(self._handle, source, predicate, names, user_metadata, txn, expected_version)
