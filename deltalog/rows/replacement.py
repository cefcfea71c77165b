"""Replaces the rows that match a condition with the new files of a transaction.

Spec: PROTOCOL.md#add-cdc-file.
"""

from __future__ import annotations

from deltalog.arguments import checked
from deltalog.errors import CallError
from deltalog.expressions.bind import bind
from deltalog.expressions.bound import Bound, BoundValue, columns_of, leaves_of
from deltalog.expressions.sql import as_predicate, at_one_instant
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Call, Cast, Comparison, Name, Predicate, walked
from deltalog.protocol.schema import PrimitiveType
from deltalog.read.changes import CHANGE_TYPE_FIELD
from deltalog.rows import rewrite
from deltalog.write.data_files import change_file
from deltalog.write.transaction import Transaction

_METRICS = ("numRemovedFiles", "numRemovedBytes", "numCopiedRows", "numDeletedRows")
_TIMESTAMP = PrimitiveType("timestamp")
_TO_TIMESTAMP = ("timestamp", "date_trunc")


@checked
class Replacement:
    """The rows of a table that match a condition and are to be replaced.

    For callers that write the new files themselves: create this object before writing the files, and call ``stage``
    after staging them. The rows that replace the old rows must satisfy the condition, which ``check_new_rows``
    verifies. ``DeltaTable.overwrite`` takes rows instead of files.

    ``where``: the condition as SQL. ``columns``: the top-level columns that the condition uses. ``is_empty``: whether
    no row matches. ``is_computed``: whether the condition contains computed values, such as function calls, in addition
    to columns and literals. ``counts_in_utc``: whether the condition may have another result in a session time zone
    other than UTC. ``change_column``: an extra column that must contain ``insert`` in every row of the new files,
    because these files also serve as change data files; None if they do not. ``num_deleted_rows``: None if a file has
    no statistics. ``num_copied_rows``: the number of rows copied into new files because other rows of their files are
    deleted.
    """

    def __init__(self, transaction: Transaction, where: Predicate | str) -> None:
        """Find the rows, and record what was read for conflict detection. Memory: for files in which only some rows
        match, the compressed positions of these rows.

        Raises CallError, InvalidActionError for an append-only table, UnsupportedFeatureError, InvalidDataFileError.
        Cost: as ``Snapshot.files``, and the GETs of the condition's columns in files that may match in part.
        """
        if not isinstance(transaction, Transaction):
            raise CallError(f"transaction is what DeltaTable.transaction returns; got {type(transaction).__name__}.")
        fixed = at_one_instant(where, transaction.row_writer.now())
        where = where if fixed is None else fixed  # a condition cannot be used as a bool
        predicate = as_predicate(where)
        self._transaction = transaction
        self._deletion = rewrite.plan(transaction, predicate)
        self.where = shown(where)
        assert predicate is not None and transaction.snapshot is not None
        self.condition = predicate
        bound = bind(predicate, transaction.snapshot.schema)
        self.columns = tuple(dict.fromkeys(column.path[0] for column in columns_of(bound)))
        self.is_computed = any(isinstance(leaf, BoundValue) for leaf in leaves_of(bound))
        self.counts_in_utc = any(_counts_in_utc(leaf) for leaf in leaves_of(bound))
        self.is_empty = self._deletion.is_empty
        self.change_column = CHANGE_TYPE_FIELD.name if self._deletion.as_changes else None
        self.num_deleted_rows = self._deletion.rows
        self.num_copied_rows = self._deletion.num_moved_rows

    def check_new_rows(self) -> None:
        """Raise ConstraintViolationError unless the condition is true for each row of the staged new files; CallError
        if it cannot be evaluated. Call this method if your engine may evaluate the condition differently. Cost: the
        GETs of its columns in these files."""
        rewrite.check_new_files(self._transaction, self.condition, self.where)

    def stage(self, num_rows: int) -> dict[str, int]:
        """Stage the deletion. If the commit needs change files, also stage the new files as change files. Returns the
        metrics of the whole commit, with delta-spark's names. ``num_rows``: the number of new rows, which the caller
        has already written.

        Raises RowCountError if the number of copied rows is not as planned. Cost: as ``DeltaTable.delete``.
        """
        staged = self._transaction.staged
        inserted = [change_file(add) for add in staged.adds] if self.change_column else []
        staged.add_change_files(inserted)
        new_files, new_bytes = len(staged.adds), sum(add.size for add in staged.adds)
        effect = rewrite.stage(self._transaction, self._deletion)
        return {
            "numFiles": new_files + effect["numAddedFiles"],
            "numOutputBytes": new_bytes + effect["numAddedBytes"],
            "numOutputRows": num_rows + effect["numCopiedRows"],
            "numAddedChangeFiles": effect["numAddedChangeFiles"] + len(inserted),
            **{name: effect[name] for name in _METRICS if name in effect},
        }


def _counts_in_utc(leaf: Bound) -> bool:
    if not isinstance(leaf, BoundValue):
        return False  # any other leaf compares a column with literals, and times in literals are fixed instants
    tree, types = leaf.tree, {column.data_type for column in leaf.columns}
    if (
        isinstance(tree, Comparison)
        and isinstance(tree.left, Name)
        and isinstance(tree.right, Name)
        and len(types) == 1
    ):
        return False  # the condition compares two columns of the same type
    return _TIMESTAMP in types or any(
        (isinstance(each, Cast) and each.data_type == _TIMESTAMP)
        or (isinstance(each, Call) and each.name.lower() in _TO_TIMESTAMP)
        for each in walked(tree)
    )
