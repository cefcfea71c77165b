"""TableMerger: builds a merge clause by clause."""

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
    """The builder that ``DeltaTable.merge`` returns. To merge, add clauses and then call ``execute``.

        result = (
            table.merge(rows, "target.id = source.id")
            .when_matched_update({"n": "source.n"}, predicate="source.n > target.n")
            .when_not_matched_insert_all()
            .execute()
        )

    Each clause method returns the builder itself. Of the clauses of one kind, the first clause whose ``predicate`` is
    true for a row applies. A row of the table to which no clause applies is unchanged; a row of the source to which
    none applies is not inserted. ``updates`` maps columns of the table to SQL expressions or expressions built with
    ``col``. ``when_matched_*`` clauses can use columns of source and table, ``when_not_matched_insert`` only those of
    the source, and ``when_not_matched_by_source_*`` only those of the table. The ``_all`` variants assign each column
    of the table from the source column of the same name, ignoring case. Source columns without a table column of the
    same name are ignored. A table column that the source lacks must be in ``except_cols``, unless it is generated or
    has a default. With ``with_schema_evolution``, other source columns are added to the table, and the table columns
    that the source lacks need not be excluded.
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
        """``aliases``: source alias and target alias. Call ``DeltaTable.merge`` instead."""
        self._handle = handle
        self._merge = Merge(source, predicate, *aliases, ())
        self._user_metadata, self._txn, self._expected_version = user_metadata, txn, expected_version

    def when_matched_update(self, updates: Mapping[str, Any], predicate: Predicate | str | None = None) -> TableMerger:
        """Update columns in matched rows. Other columns keep their values; generated columns are recomputed."""
        return self._with("matched", "update", predicate, updates)

    def when_matched_update_all(
        self, predicate: Predicate | str | None = None, except_cols: Sequence[str] | None = None
    ) -> TableMerger:
        """Update matched rows with all columns of the source except ``except_cols``."""
        return self._with("matched", "update", predicate, None, except_cols)

    def when_matched_delete(self, predicate: Predicate | str | None = None) -> TableMerger:
        """Delete matched rows."""
        return self._with("matched", "delete", predicate)

    def when_not_matched_insert(
        self, updates: Mapping[str, Any], predicate: Predicate | str | None = None
    ) -> TableMerger:
        """Insert a row for each row of the source that matches no row of the table. Columns that are not in ``updates``
        are generated, or get their default value or null."""
        return self._with("not matched", "insert", predicate, updates)

    def when_not_matched_insert_all(
        self, predicate: Predicate | str | None = None, except_cols: Sequence[str] | None = None
    ) -> TableMerger:
        """Insert each source row that matches no table row, with all columns except ``except_cols``."""
        return self._with("not matched", "insert", predicate, None, except_cols)

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, Any], predicate: Predicate | str | None = None
    ) -> TableMerger:
        """Update columns in rows of the table that match no row of the source. If a clause for rows not matched by the
        source has no ``predicate``, the whole table is read, and any row that another writer adds is a conflict."""
        return self._with("not matched by source", "update", predicate, updates)

    def when_not_matched_by_source_delete(self, predicate: Predicate | str | None = None) -> TableMerger:
        """Delete rows of the table that match no row of the source. As with ``when_not_matched_by_source_update``, the
        merge reads the whole table if a clause of this kind has no ``predicate``."""
        return self._with("not matched by source", "delete", predicate)

    def with_schema_evolution(self) -> TableMerger:
        """Add to the table the columns and struct fields that only the source has, as nullable columns at the end.

        ``when_matched_update_all`` and ``when_not_matched_insert_all`` add all columns and fields that only the source
        has, except ``except_cols``. Other matched and not-matched clauses add the columns that they assign, with their
        names in the source. Columns and fields that the source lacks keep their values in updated rows, and get their
        default or null in new rows. Column types do not change, and values are cast to them. With
        ``delta.enableTypeWidening`` a column that a clause assigns is widened to the source's type. Columns are added
        even if no row changes. Conditions and values cannot use a table column that the merge adds.
        """
        self._merge = replace(self._merge, evolves=True)
        return self

    def execute(self) -> CommitResult:
        """Run the merge and commit it. If several rows of the source match one row of the table, CallError is raised,
        unless the only matched clause is a delete without a predicate. With ``=``, null matches nothing, and NaN
        matches NaN.

        Files that cannot contain a match, according to conditions on the table alone or to the source's key values, are
        not read and cause no conflicts. Rows are updated and deleted in the same way as by ``update`` and ``delete``.
        They keep their row ids, and change data files record every change. If nothing changes and no ``txn`` is passed,
        nothing is committed, and the result's ``skipped`` is true. Memory: up to 128 MiB for the source, and twice that
        while it is read; 64 MiB for the rows of the table that are processed at a time, plus their pairs of equal keys;
        22 bytes for each changed row. A source of more than 128 MiB is written to temporary files (in the directory
        TMPDIR). If the source keys exceed 32 MiB, they are also written there, with the table columns that the merge
        conditions use; keys and columns are then joined one hash partition at a time. If the condition contains no
        equality between source and target, each source row is compared with each target row. If such a source does not
        fit in memory, at most 262,144 of its rows may match. Cost: the columns of the conditions in each file that may
        match, all columns of the rows that change, and 1 PUT for each new file; then the commit. Raises as ``update``,
        and StoreError if the temporary directory is full.
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
