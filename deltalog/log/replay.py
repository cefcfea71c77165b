"""Action reconciliation: computes the state of a version from the actions of a checkpoint and the commits after it.
Pure.

Spec: PROTOCOL.md#action-reconciliation, #note-for-non-change-data-readers, #derived-fields,
#reader-requirements-for-domain-metadata. File actions are rows of Arrow tables; all other actions, of which there are
few, are objects.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from deltalog.errors import CorruptTableError
from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.protocol import column_mapping
from deltalog.protocol.actions import (
    AddFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.retention import unexpired_tombstones

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalog import arrow_arrays
    from deltalog.log import file_tables
else:
    lazy_modules(__name__, "deltalog.arrow_arrays", "deltalog.log.file_tables", pa="pyarrow")

# For each batch of files, pyarrow hashes all keys of a tail again. If the batch has fewer rows per key than this,
# looking up its rows one by one in a Python set takes less time and much less memory.
_MORE_KEYS = 4


class State(msgspec.Struct, frozen=True):
    """The state of a version, without its files. ``transactions`` are keyed by application id, ``domains`` by name."""

    protocol: Protocol
    metadata: Metadata
    transactions: Mapping[str, SetTransaction] = msgspec.field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = msgspec.field(default_factory=dict)

    @property
    def clustering_columns(self) -> tuple[tuple[str, ...], ...]:
        """Like ``Snapshot.clustering_columns``. Raises CorruptTableError."""
        return column_mapping.clustered_by(self.domains.get(column_mapping.CLUSTERING_DOMAIN), self.metadata)


class PartialState(msgspec.Struct, frozen=True):
    """A State that may lack protocol or metadata, because it was computed from part of a log."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, SetTransaction] = msgspec.field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = msgspec.field(default_factory=dict)

    def complete(self, table: str, version: int) -> State:
        """This state as a State. Raises CorruptTableError if protocol or metaData is missing."""
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metaData"
            raise CorruptTableError(
                f"{table}: there is no {missing} action in or before version {version}. The log is damaged; "
                "restore _delta_log from a copy."
            )
        return State(self.protocol, self.metadata, self.transactions, self.domains)


class StateActions(typing.Protocol):
    """The actions of a commit, or of another file of the log, that change the state of a version apart from its list of
    files."""

    @property
    def protocol(self) -> Protocol | None: ...
    @property
    def metadata(self) -> Metadata | None: ...
    @property
    def transactions(self) -> Sequence[SetTransaction]: ...
    @property
    def domains(self) -> Sequence[DomainMetadata]: ...


def advance(state: PartialState | State, commits: Iterable[StateActions]) -> PartialState:
    """The state after ``commits`` (ascending)."""
    protocol, metadata = state.protocol, state.metadata
    transactions, domains = dict(state.transactions), dict(state.domains)
    for commit in commits:
        protocol = commit.protocol or protocol
        metadata = commit.metadata or metadata
        transactions.update((t.app_id, t) for t in commit.transactions)
        for domain in commit.domains:
            if domain.removed:
                domains.pop(domain.domain, None)
            else:
                domains[domain.domain] = domain
    return PartialState(protocol, metadata, transactions, domains)


# -------------------------------------------------------------------------------------------------- files


def file_key(path: str, deletion_vector: DeletionVector | None) -> str:
    """The key of a logical file: its path, and the unique id of its deletion vector if there is one."""
    return path if deletion_vector is None else f"{path}\0{deletion_vector.unique_id}"


class FileActions(msgspec.Struct, frozen=True):
    """The adds and removes of the consecutive commits ``first`` to ``last``, as columns.

    ``files``: the adds (schema FILES). ``tombstones``: the removes (schema TOMBSTONES). Both in log order. ``is_add``:
    for each action in log order, True if it is the next row of ``files``, False if it is the next row of
    ``tombstones``. Within a commit, removes come first.
    """

    first: int
    last: int
    files: pa.Table
    tombstones: pa.Table
    is_add: Sequence[bool]


class Commits(msgspec.Struct, frozen=True):
    """Commits, ascending. ``runs``: the adds and removes that were decoded as columns; they are not repeated in
    ``actions``."""

    actions: Sequence[CommitActions] = ()
    runs: Sequence[FileActions] = ()

    @property
    def num_files_added(self) -> int:
        """The number of adds minus the number of removes."""
        counted = sum(len(each.adds) - len(each.removes) for each in self.actions)
        in_runs: int = sum(run.files.num_rows - run.tombstones.num_rows for run in self.runs)
        return counted + in_runs

    def __add__(self, later: Commits) -> Commits:
        return Commits([*self.actions, *later.actions], [*self.runs, *later.runs])


class Tail(msgspec.Struct, frozen=True, dict=True):
    """The effect of commits on the files of the version before them.

    ``files``: the files that the commits add and that are still live afterwards (schema FILES). ``keys``: the
    ``file_key`` of every file that the commits add or remove. ``removed``: for each file that the commits remove and do
    not add again, its last remove action (schema TOMBSTONES).
    """

    files: pa.Table
    keys: Collection[str]
    removed: pa.Table

    @cached_property
    def _keys(self) -> pa.StringArray:
        return arrow_arrays.strings(list(self.keys))

    def on(self, files: pa.Table) -> pa.Table:
        """Those rows of ``files`` (columns of FILES or TOMBSTONES, including path and deletion_vector) that describe a
        file which no commit of this tail adds or removes."""
        if not self.keys or files.num_rows == 0:
            return files
        if len(self.keys) * _MORE_KEYS > files.num_rows:
            is_live = [key not in self.keys for key in _keys(files).to_pylist()]
            return files if all(is_live) else files.filter(arrow_arrays.booleans(is_live))
        is_replaced = pc.is_in(_keys(files), value_set=self._keys)
        return arrow_arrays.rows_where(pc.invert(is_replaced), files)

    def tombstones(self, cutoff_ms: int) -> pa.Table:
        """The remove actions that have not expired at a cut-off time (schema TOMBSTONES)."""
        return unexpired_tombstones(self.removed, cutoff_ms)


def tail(commits: Commits) -> Tail:
    """The effect of commits on files; the last action on each file applies."""
    keys: set[str] = set()
    removes: list[RemoveFile] = []
    adds: list[AddFile] = []
    newest_first: list[tuple[pa.Table, pa.Table]] = []
    runs = {run.last: run for run in commits.runs}
    for commit in reversed(commits.actions):
        for add in reversed(commit.adds):
            key = file_key(add.path, add.deletion_vector)
            if key not in keys:
                keys.add(key)
                adds.append(add)
        for remove in reversed(commit.removes):
            key = file_key(remove.path, remove.deletion_vector)
            if key not in keys:
                keys.add(key)
                removes.append(remove)
        if commit.version in runs:
            newest_first += [_tables(adds, removes), _without_keys(runs[commit.version], keys)]
            adds, removes = [], []
    files, removed = zip(*reversed([*newest_first, _tables(adds, removes)]), strict=True)
    return Tail(pa.concat_tables(files), keys, pa.concat_tables(removed))


def _tables(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> tuple[pa.Table, pa.Table]:
    """``adds`` and ``removes``, which the caller passes newest first, as rows of FILES and TOMBSTONES, oldest first."""
    return (
        file_tables.files_table(adds[::-1]) if adds else arrow_arrays.empty(file_tables.FILES),
        file_tables.tombstones_table(removes[::-1]) if removes else arrow_arrays.empty(file_tables.TOMBSTONES),
    )


def _without_keys(run: FileActions, keys: set[str]) -> tuple[pa.Table, pa.Table]:
    """The last action on each file whose key is not in ``keys``. Adds the keys of these files to ``keys``."""
    tables = run.files, run.tombstones
    texts = [_keys(table).to_pylist() for table in tables]
    is_kept = [[False] * len(each) for each in texts]
    next_row = [len(each) for each in texts]
    for is_add in reversed(run.is_add):
        which = 0 if is_add else 1
        next_row[which] = row = next_row[which] - 1
        key = texts[which][row]
        if key not in keys:
            keys.add(key)
            is_kept[which][row] = True
    files, tombstones = (
        table if all(kept) else table.filter(arrow_arrays.booleans(kept))
        for table, kept in zip(tables, is_kept, strict=True)
    )
    return files, tombstones


def live_files(base: pa.Table | None, commits: Sequence[CommitActions]) -> pa.Table:
    """The live files (schema FILES) after ``commits`` (ascending). ``base``: the live files before these commits; None
    if there were none."""
    after = tail(Commits(commits))
    if base is None:
        return after.files
    live = after.on(base)
    return pa.concat_tables([live, after.files]) if after.files.num_rows else live


def files_without(files: pa.Table, *others: pa.Table) -> pa.Table:
    """The rows of ``files`` (columns of FILES, including path and deletion_vector) that are not in any of
    ``others``."""
    for other in others:
        if files.num_rows and other.num_rows:
            files = files.filter(pc.invert(pc.is_in(_keys(files), value_set=pc.unique(_keys(other)))))
    return files


@lru_cache(maxsize=1)
def _separators() -> Any:
    return arrow_arrays.strings(["@", "", "\0"])


def _keys(files: pa.Table) -> Any:
    """``file_key`` of every row."""
    vectors = files["deletion_vector"].combine_chunks()
    if vectors.null_count == len(vectors):
        return files["path"]
    at, nothing, nul = _separators()
    storage, inline, offset = (vectors.field(i) for i in range(3))
    suffix = pc.binary_join_element_wise(at, pc.cast(offset, pa.string()), nothing)
    unique = pc.binary_join_element_wise(storage, inline, pc.fill_null(suffix, nothing), nothing)
    keyed = pc.binary_join_element_wise(files["path"].combine_chunks(), unique, nul)
    return pc.if_else(vectors.is_valid(), keyed, files["path"].combine_chunks())
