"""TableMerger: the clauses of a merge, one call for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from deltalog.arguments import checked
from deltalog.commit_result import CommitResult
from deltalog.expressions.tree import Predicate
from deltalog.rows.merge.clauses import Action, Clause, Group
from deltalog.rows.merge.merge import Merge, merge
from deltalog.write.commit_info import UserMetadata
from deltalog.write.table_handle import TableHandle


@checked
class TableMerger:
    """A merge that ``DeltaTable.merge`` begins: call the clauses, then ``execute``.

        result = (
            table.merge(rows, "target.id = source.id")
            .when_matched_update({"n": "source.n"}, predicate="source.n > target.n")
            .when_not_matched_insert_all()
            .execute()
        )

    Each clause returns the merger. The first clause of its kind whose ``predicate`` is true for a row decides; rows for
    which none is true stay as they are, or are not inserted. ``updates``: by column of the table, an SQL expression or
    one made with ``col``. Clauses for rows that match see both sides; ``when_not_matched_insert`` sees the source,
    ``when_not_matched_by_source_update`` and ``…_delete`` the table. With ``_all``, each column of the table gets that
    of the source with the same name, up to case; other columns of the source are ignored, and a column of the table
    that the source lacks must be in ``except_cols``, unless it is generated or has a default.
    ``with_schema_evolution`` changes both.
    """

    def __init__(
        self,
        handle: TableHandle,
        source: Any,
        predicate: Predicate | str,
        aliases: tuple[str, str],
        user_metadata: UserMetadata,
        txn: tuple[str, int] | None,
        expected_version: int | None,
    ) -> None:
        """``aliases``: of the source and of the target. Call ``DeltaTable.merge`` instead."""
        self._handle = handle
        self._merge = Merge(source, predicate, *aliases, ())
        self._user_metadata, self._txn, self._expected_version = user_metadata, txn, expected_version

    def when_matched_update(self, updates: Mapping[str, Any], predicate: Predicate | str | None = None) -> TableMerger:
        """Give columns new values in rows that match. Columns that are not named stay, and generated ones follow."""
        return self._with("matched", "update", predicate, updates)

    def when_matched_update_all(
        self, predicate: Predicate | str | None = None, except_cols: Sequence[str] | None = None
    ) -> TableMerger:
        """Give rows that match all columns of the source but ``except_cols``."""
        return self._with("matched", "update", predicate, None, except_cols)

    def when_matched_delete(self, predicate: Predicate | str | None = None) -> TableMerger:
        """Delete rows that match."""
        return self._with("matched", "delete", predicate)

    def when_not_matched_insert(
        self, updates: Mapping[str, Any], predicate: Predicate | str | None = None
    ) -> TableMerger:
        """Insert a row for each row of the source that matches none. Columns that are not named are generated, or get
        their default, or null."""
        return self._with("not matched", "insert", predicate, updates)

    def when_not_matched_insert_all(
        self, predicate: Predicate | str | None = None, except_cols: Sequence[str] | None = None
    ) -> TableMerger:
        """Insert each row of the source that matches none, without ``except_cols``."""
        return self._with("not matched", "insert", predicate, None, except_cols)

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, Any], predicate: Predicate | str | None = None
    ) -> TableMerger:
        """Give columns new values in rows of the table that no row of the source matches. Without a ``predicate`` in
        one of these clauses the whole table is read, and any row that another writer adds is a conflict."""
        return self._with("not matched by source", "update", predicate, updates)

    def when_not_matched_by_source_delete(self, predicate: Predicate | str | None = None) -> TableMerger:
        """Delete rows of the table that no row of the source matches. As ``when_not_matched_by_source_update``."""
        return self._with("not matched by source", "delete", predicate)

    def with_schema_evolution(self) -> TableMerger:
        """Add the columns that only the source has to the table, also fields of structs, nullable and at the end.

        ``when_matched_update_all`` and ``when_not_matched_insert_all`` add all of them but their ``except_cols``; other
        clauses for rows of the source those that they give a value, under the name that they have in the source.
        Columns and fields that the source lacks keep their values in rows that are updated, and are null or get their
        default in new ones. Types stay, and values are cast to them; with ``delta.enableTypeWidening`` a column that
        a clause sets becomes as wide as the source's. The columns are added also where no row changes. Conditions and
        values cannot use a column of the table that the merge adds.
        """
        self._merge = replace(self._merge, evolves=True)
        return self

    def execute(self) -> CommitResult:
        """Make the commit. Several rows of the source that match one row are a CallError, unless the only clause for
        rows that match is a delete without a predicate. In ``=`` nulls match nothing; NaN matches NaN.

        Files that the conditions on the table alone, or the values of the source's keys, exclude are neither read nor
        part of conflicts. Rows are changed and deleted as by ``update`` and ``delete``, and keep their ids; change
        files have every change. When nothing changes, no commit is made and ``skipped`` is true, unless ``txn`` is
        given. Memory: the source up to 128 MiB, and while it is read twice that; of the table 64 MiB at a time with
        its pairs of rows that have equal keys; 22 bytes for each row that changes. A larger source, and more than
        32 MiB of keys with the columns of the table that decide, go to temporary files (TMPDIR), and are joined by
        the hash of their keys. Without an equality between the sides all pairs are compared; of a source that does
        not fit in memory at most 262,144 rows may then match. Cost: the
        columns of the conditions of each file that may match, all columns of the rows that change, and 1 PUT for each
        new file; then the commit. Raises as ``update``, and StoreError where the temporary directory is full.
        """
        with self._handle.transaction_for(self._merge.source, self._expected_version) as transaction:
            return merge(transaction, self._merge, self._user_metadata, self._txn)

    def _with(
        self,
        group: Group,
        action: Action,
        predicate: Predicate | str | None,
        updates: Mapping[str, Any] | None = None,
        except_cols: Sequence[str] | None = None,
    ) -> TableMerger:
        clause = Clause(group, action, predicate, updates, tuple(except_cols or ()))
        self._merge = replace(self._merge, clauses=(*self._merge.clauses, clause))
        return self
