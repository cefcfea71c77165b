"""The staged actions of a transaction: adds, removes, change data files and application versions (txn), and the reads
on which they depend. Makes no requests to the store.

Spec: PROTOCOL.md#add-file-and-remove-file, #add-cdc-file, #transaction-identifiers.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from deltalog.commit.prepared import Reads
from deltalog.commit.validate import adds_as_read_back, as_read_back
from deltalog.errors import CallError
from deltalog.lazy_names import lazy_modules
from deltalog.log.file_tables import FILES, remove_actions
from deltalog.protocol.actions import AddCDCFile, AddFile, RemoveFile, SetTransaction

if TYPE_CHECKING:
    from deltalog.expressions import bound
    from deltalog.log import file_statistics
else:
    lazy_modules(__name__, "deltalog.expressions.bound", "deltalog.log.file_statistics")

# If there are at least this many add actions, encoding them twice would take noticeable time.
_MANY = 1000


class StagedActions:
    """The reads and actions of a transaction, without its protocol and metadata changes. Actions are normalised to the
    form that readers of the log will decode; an action that readers could not decode raises InvalidActionError. Callers
    must not change the lists; only the methods of this class change them.

    ``unchecked``: the ``adds`` whose rows were not checked against the table's rules. ``files_of_caller``: the
    paths that were passed to ``keep_for_caller``. ``cdc``: change data files. ``transactions``: the txn actions, which
    record application versions. ``is_serializable``: whether ``require_serializable`` was called.
    """

    def __init__(self) -> None:
        self.adds: list[AddFile] = []
        self._encoded: tuple[Sequence[AddFile], bytes] | None = None  # of many adds, with the adds
        self.unchecked: list[AddFile] = []
        self._callers_paths: dict[str, str] = {}
        self.files_of_caller: list[str] = []
        self.removes: list[RemoveFile] = []
        self._removed_files: list[pa.Table] = []
        self.cdc: list[AddCDCFile] = []
        self.transactions: list[SetTransaction] = []
        self._whole_table = False
        self._all_domains = False
        self.is_serializable = False
        self._predicates: list[bound.Bound] = []
        self._read_files: set[str] = set()

    # ------------------------------------------------------------------------------------------- staging

    def add(self, files: Sequence[AddFile], *, is_checked: bool) -> list[AddFile]:
        """Stage add actions, and return them as readers will decode them. ``is_checked``: whether the rows satisfy the
        table's current rules; if so, they are checked again only if the rules change."""
        lines, adds = adds_as_read_back(files)
        if len(adds) >= _MANY and lines is not None:
            self._encoded = adds, lines
        self.adds.extend(adds)
        if not is_checked:
            self.unchecked.extend(adds)
        return list(adds)

    def add_written(self, files: Iterable[AddFile]) -> None:
        """Stage files that the row writer wrote."""
        self.adds.extend(files)

    def note_callers_paths(self, paths: Mapping[str, str]) -> None:
        """Record which staged files the caller supplied, as a mapping from their paths in the log to their paths in the
        store. None of the caller's files may already be live."""
        self._callers_paths.update(paths)

    def keep_for_caller(self, paths: Iterable[str]) -> None:
        """Record files that the caller wrote only for this commit. ``paths``: the paths of these files, as in the log.
        If the commit fails, the caller still owns the files and may commit or delete them. If the commit is part of a
        multi-table transaction that is cancelled, the files are deleted."""
        self.files_of_caller.extend(paths)

    def add_change_files(self, files: Iterable[AddCDCFile]) -> None:
        """Stage change data files."""
        self.cdc.extend(as_read_back(file, AddCDCFile) for file in files)

    def remove(self, files: pa.Table, clock_ms: int, data_change: bool = True) -> int:
        """Stage the removal of live files, which are passed as rows of ``Snapshot.files``. Returns their number.
        Declares them as read. ``data_change=False``: the rows of the removed files are also in the added files, so no
        data changes."""
        if not (isinstance(files, pa.Table) and files.schema.equals(FILES)):
            raise CallError("Files to remove must be rows of Snapshot.files(), with all of its columns.")
        removes = remove_actions(files, clock_ms, data_change)
        self.removes.extend(removes)
        self._removed_files.append(files.select(["stats", "deletion_vector"]))
        self._read_files.update(remove.path for remove in removes)
        return len(removes)

    def set_transaction(self, app_id: str, version: int, clock_ms: int) -> None:
        """Stage the version of an application (txn). Raises CallError."""
        if not (isinstance(app_id, str) and app_id and isinstance(version, int) and 0 <= version < 2**63):
            raise CallError(
                f"An application id must be a string and its version an integer >= 0; got {app_id!r}, {version!r}."
            )
        action = SetTransaction(app_id=app_id, version=version, last_updated=clock_ms)
        self.transactions.append(as_read_back(action, SetTransaction))

    # ------------------------------------------------------------------------------------ declared reads

    def read_whole_table(self) -> None:
        """Declare a read of the whole table: any file that another writer adds or removes is a conflict."""
        self._whole_table = True

    def read_rows(self, where: bound.Bound, paths: Iterable[str]) -> None:
        """Declare a read of rows. A commit of another writer conflicts with the read if it adds rows for which the
        predicate is true, or removes one of these files."""
        self._predicates.append(where)
        self._read_files.update(paths)

    def read_files(self, paths: Iterable[str]) -> None:
        """Declare a read of files, which conflicts with another writer's deletion of rows in these files."""
        self._read_files.update(paths)

    def read_all_domains(self) -> None:
        """Declare a read of the metadata domains: any change to a metadata domain is a conflict."""
        self._all_domains = True

    def require_serializable(self) -> None:
        """Check conflicts at the isolation level Serializable, regardless of the table's isolation level."""
        self.is_serializable = True

    def reads(self, depends_on_metadata: bool, depends_on_files: bool) -> Reads:
        """The reads on which the commit depends. Each argument has the name and the meaning of an attribute of
        MetadataChanges."""
        return Reads(
            self._whole_table or depends_on_files,
            tuple(self._predicates),
            frozenset(self._read_files),
            frozenset(each.app_id for each in self.transactions),
            depends_on_metadata,
            self._all_domains,
        )

    # ---------------------------------------------------------------------------------- staged contents

    @property
    def add_lines(self) -> bytes | None:
        """The encoded lines of the adds if all adds were encoded when they were staged; else None."""
        if self._encoded is None or len(self._encoded[0]) != len(self.adds):
            return None
        return self._encoded[1] if all(map(operator.is_, self._encoded[0], self.adds)) else None

    @property
    def new_paths(self) -> list[str]:
        """The store paths of those files of the caller that must not be live: all except the files that the same commit
        removes."""
        removed = {remove.path for remove in self.removes} if self._callers_paths else ()
        return [path for name, path in self._callers_paths.items() if name not in removed]

    @property
    def removed_rows(self) -> int | None:
        """The number of rows in the removed files, from their statistics; None if a file has no statistics. Rows that
        are copied into added files are included. Cost: no store calls; parses the statistics."""
        counts = [file_statistics.live_rows(files) for files in self._removed_files]
        return None if None in counts else sum(count for count in counts if count is not None)

    def metrics(self) -> dict[str, str]:
        """The operation metrics of the staged actions: the numbers and the sizes of files."""
        metrics = {"numFiles": str(len(self.adds)), "numOutputBytes": str(sum(a.size for a in self.adds))}
        if self.removes:
            metrics["numRemovedFiles"] = str(len(self.removes))
            metrics["numRemovedBytes"] = str(sum(r.size or 0 for r in self.removes))
        return metrics
