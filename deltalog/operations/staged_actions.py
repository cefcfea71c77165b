"""What a transaction has staged: files to add and to remove, change files, progress of applications, and what of the
table this depends on. Values only: no request is made here.

Spec: PROTOCOL.md#add-file-and-remove-file, #add-cdc-file, #transaction-identifiers.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from deltalog.commit.prepared import Reads
from deltalog.commit.validate import adds_as_read_back, as_read_back
from deltalog.errors import CallError
from deltalog.expressions.bound import Bound
from deltalog.log.file_statistics import live_rows
from deltalog.log.replay import FILES, remove_actions
from deltalog.protocol.actions import AddCDCFile, AddFile, RemoveFile, SetTransaction

# From this number of adds on, encoding them twice takes noticeable time.
_MANY = 1000


class StagedActions:
    """The actions that a transaction commits besides those that change protocol and metadata, and what it has read.

    Actions are staged as readers of the log will have them; InvalidActionError for one that cannot be read back.
    """

    def __init__(self) -> None:
        self._adds: list[AddFile] = []
        self._encoded: tuple[Sequence[AddFile], bytes] | None = None  # many adds, and their lines
        self._unchecked: list[AddFile] = []
        self._callers_paths: dict[str, str] = {}
        self._files_of_caller: list[str] = []
        self._removes: list[RemoveFile] = []
        self._removed_files: list[pa.Table] = []
        self._cdc: list[AddCDCFile] = []
        self._transactions: list[SetTransaction] = []
        self._whole_table = False
        self._all_domains = False
        self._is_serializable = False
        self._predicates: list[Bound] = []
        self._read_files: set[str] = set()

    # ------------------------------------------------------------------------------------------- staging

    def add(self, files: Sequence[AddFile], *, is_checked: bool) -> list[AddFile]:
        """Stage add actions; they are returned as readers will have them. ``is_checked``: their rows keep to the rules
        of the table as it is, and are checked again only where these change."""
        lines, adds = adds_as_read_back(files)
        if len(adds) >= _MANY and lines is not None:
            self._encoded = adds, lines
        self._adds.extend(adds)
        if not is_checked:
            self._unchecked.extend(adds)
        return list(adds)

    def add_written(self, files: Iterable[AddFile]) -> None:
        """Stage files that the row writer has written."""
        self._adds.extend(files)

    def note_callers_paths(self, paths: Mapping[str, str]) -> None:
        """Note which staged files were the caller's before, as the log names them, and their paths in the store: no
        version may have them already."""
        self._callers_paths.update(paths)

    def keep_for_caller(self, paths: Iterable[str]) -> None:
        """Note files, named as in the log, that the caller wrote for this commit alone. When it fails they are still
        the caller's, for another attempt or to be deleted; a transaction over several tables that has taken the commit
        up deletes them when it is cancelled."""
        self._files_of_caller.extend(paths)

    def add_change_files(self, files: Iterable[AddCDCFile]) -> None:
        """Stage change data files."""
        self._cdc.extend(as_read_back(file, AddCDCFile) for file in files)

    def remove(self, files: pa.Table, clock_ms: int, data_change: bool = True) -> int:
        """Stage the removal of live files, given as rows of ``Snapshot.files``: their number. Counts as having read
        them. ``data_change=False``: their rows are in files that are staged too."""
        if not (isinstance(files, pa.Table) and files.schema.equals(FILES)):
            raise CallError("Files to be removed are rows of Snapshot.files(), with all of its columns.")
        removes = remove_actions(files, clock_ms, data_change)
        self._removes.extend(removes)
        self._removed_files.append(files.select(["stats", "deletion_vector"]))
        self._read_files.update(remove.path for remove in removes)
        return len(removes)

    def set_transaction(self, app_id: str, version: int, clock_ms: int) -> None:
        """Stage the progress of an application. Raises CallError."""
        if not (isinstance(app_id, str) and app_id and isinstance(version, int) and 0 <= version < 2**63):
            raise CallError(f"An application id is text, its version a number from 0 on; got {app_id!r}, {version!r}.")
        action = SetTransaction(app_id=app_id, version=version, last_updated=clock_ms)
        self._transactions.append(as_read_back(action, SetTransaction))

    # --------------------------------------------------------------------------------------------- reads

    def read_whole_table(self) -> None:
        """Any file that another writer adds or removes is a conflict."""
        self._whole_table = True

    def read_rows(self, where: Bound, paths: Iterable[str]) -> None:
        """Rows for which a bound predicate is true, and removals of the files that may hold such, are a conflict."""
        self._predicates.append(where)
        self._read_files.update(paths)

    def read_all_domains(self) -> None:
        """Any change of a metadata domain is a conflict."""
        self._all_domains = True

    def require_serializable(self) -> None:
        """Check conflicts at ``Serializable``, whatever the level of the table: no rows may be added concurrently."""
        self._is_serializable = True

    @property
    def is_serializable(self) -> bool:
        """Whether the level of isolation is that, whatever the level of the table."""
        return self._is_serializable

    def reads(self, depends_on_metadata: bool, depends_on_files: bool) -> Reads:
        """What the commit depends on, with what the changes of metadata depend on."""
        return Reads(
            self._whole_table or depends_on_files,
            tuple(self._predicates),
            frozenset(self._read_files),
            frozenset(each.app_id for each in self._transactions),
            depends_on_metadata,
            self._all_domains,
        )

    # ----------------------------------------------------------------------------------------- contents

    @property
    def adds(self) -> tuple[AddFile, ...]:
        """The files to be added."""
        return tuple(self._adds)

    @property
    def add_lines(self) -> bytes | None:
        """The lines of the adds in a commit, where these are just those that were encoded when they were staged."""
        if self._encoded is None or len(self._encoded[0]) != len(self._adds):
            return None
        return self._encoded[1] if all(map(operator.is_, self._encoded[0], self._adds)) else None

    @property
    def unchecked(self) -> tuple[AddFile, ...]:
        """The files to be added whose rows were not checked against the rules of the table."""
        return tuple(self._unchecked)

    @property
    def files_of_caller(self) -> tuple[str, ...]:
        """The paths that ``keep_for_caller`` was given."""
        return tuple(self._files_of_caller)

    @property
    def new_paths(self) -> list[str]:
        """The paths in the store of the caller's files that no version may have yet: those that do not take the place
        of themselves."""
        removed = {remove.path for remove in self._removes} if self._callers_paths else ()
        return [path for name, path in self._callers_paths.items() if name not in removed]

    @property
    def removes(self) -> tuple[RemoveFile, ...]:
        """The files to be removed."""
        return tuple(self._removes)

    @property
    def removed_rows(self) -> int | None:
        """How many rows the files have that are to be removed, by their statistics; None where one has none. Rows that
        added files hold again are counted too. Cost: none; the statistics are parsed."""
        counts = [live_rows(files) for files in self._removed_files]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def cdc(self) -> tuple[AddCDCFile, ...]:
        """The change data files."""
        return tuple(self._cdc)

    @property
    def transactions(self) -> tuple[SetTransaction, ...]:
        """The progress of applications."""
        return tuple(self._transactions)

    def metrics(self) -> dict[str, str]:
        """The operation metrics that follow: numbers and bytes of files."""
        metrics = {"numFiles": str(len(self._adds)), "numOutputBytes": str(sum(a.size for a in self._adds))}
        if self._removes:
            metrics["numRemovedFiles"] = str(len(self._removes))
            metrics["numRemovedBytes"] = str(sum(r.size or 0 for r in self._removes))
        return metrics
