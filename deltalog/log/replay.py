"""Action reconciliation: from the actions of a checkpoint and of the commits after it to a state. Pure.

Spec: PROTOCOL.md#action-reconciliation. File actions are rows of Arrow tables; the few other actions are objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.arrow_arrays import STRINGS_MAP, booleans, int64s, strings, strings_map
from deltalog.errors import CorruptTableError
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

DELETION_VECTOR = pa.struct(
    [
        pa.field("storage_type", pa.string()),
        pa.field("path_or_inline_dv", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("size_in_bytes", pa.int64()),
        pa.field("cardinality", pa.int64()),
        pa.field("max_row_index", pa.int64()),
    ]
)
# The schema of live files, one per row: the fields of the add action in snake case. Sizes are in bytes, times in
# milliseconds since 1970.
FILES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("partition_values", STRINGS_MAP),
        pa.field("size", pa.int64()),
        pa.field("modification_time", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("tags", STRINGS_MAP),
        pa.field("deletion_vector", DELETION_VECTOR),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("clustering_provider", pa.string()),
    ]
)
# The schema of tombstones, one per row: the fields of the remove action that checkpoints hold.
TOMBSTONES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("deletion_timestamp", pa.int64()),
        pa.field("extended_file_metadata", pa.bool_()),
        pa.field("partition_values", STRINGS_MAP),
        pa.field("size", pa.int64()),
        pa.field("deletion_vector", DELETION_VECTOR),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class State:
    """The state of a version without its files. ``transactions``: by application id; ``domains``: by name."""

    protocol: Protocol
    metadata: Metadata
    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartialState:
    """A State that may lack protocol or metadata, as that of a part of a log does."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)

    def complete(self, table: str, version: int) -> State:
        """The same as a State. Raises CorruptTableError when protocol or metaData is missing."""
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metaData"
            raise CorruptTableError(
                f"{table}: no {missing} action in version {version} or before it. The log is damaged; "
                "restore _delta_log from a copy."
            )
        return State(self.protocol, self.metadata, self.transactions, self.domains)


def advance(state: PartialState | State, commits: Iterable[CommitActions]) -> PartialState:
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
    """The key of a logical file: its path, and the unique id of its deletion vector if it has one."""
    return path if deletion_vector is None else f"{path}\0{deletion_vector.unique_id}"


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """The adds of consecutive commits, as rows of FILES in the order of the log. ``version``: the first commit."""

    version: int
    files: pa.Table


@dataclass(frozen=True, slots=True)
class Commits:
    """Commits, ascending. ``added``: the adds of commits that only add files and were decoded as columns; their
    elements of ``actions`` then have neither adds nor removes."""

    actions: Sequence[CommitActions] = ()
    added: Sequence[AddedFiles] = ()

    def __add__(self, later: Commits) -> Commits:
        return Commits([*self.actions, *later.actions], [*self.added, *later.added])


@dataclass(frozen=True)
class Tail:
    """The effect of commits on the files of the version before them.

    ``files``: the live files that they add, schema FILES. ``keys``: of all files that they add or remove, see
    ``file_key``. ``removes``: the last remove of each file that they remove and do not add again.
    """

    files: pa.Table
    keys: Collection[str]
    removes: Sequence[RemoveFile] = ()

    @cached_property
    def _keys(self) -> pa.StringArray:
        return strings(list(self.keys))

    def on(self, files: pa.Table) -> pa.Table:
        """Those of ``files`` (columns of FILES or TOMBSTONES, path and deletion_vector among them) that the commits
        neither add nor remove."""
        if not self.keys or files.num_rows == 0:
            return files
        is_replaced = pc.is_in(_keys(files), value_set=self._keys)
        return files.filter(pc.invert(is_replaced)) if pc.any(is_replaced).as_py() else files

    def tombstones(self, cutoff_ms: int) -> pa.Table:
        """The removes that had not expired at a cut-off (schema TOMBSTONES)."""
        return unexpired_tombstones(tombstones_table(self.removes), cutoff_ms)


def tail(commits: Commits) -> Tail:
    """The effect of commits: the last action on each file wins."""
    keys: set[str] = set()
    removes: list[RemoveFile] = []
    newest_first: list[pa.Table] = []
    adds: list[AddFile] = []
    added = {each.version: each.files for each in commits.added}
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
        if commit.version in added:
            newest_first += [files_table(adds[::-1]), _without_keys(added[commit.version], keys)]
            adds = []
    return Tail(pa.concat_tables([files_table(adds[::-1]), *reversed(newest_first)]), keys, removes)


def _without_keys(files: pa.Table, keys: set[str]) -> pa.Table:
    """The last row of each file whose key is not in ``keys``; adds their keys to it. ``files``: no deletion vectors."""
    paths = files["path"].to_pylist()
    is_kept = [False] * len(paths)
    for row in range(len(paths) - 1, -1, -1):
        if paths[row] not in keys:
            keys.add(paths[row])
            is_kept[row] = True
    return files if all(is_kept) else files.filter(booleans(is_kept))


def live_files(base: pa.Table | None, commits: Sequence[CommitActions]) -> pa.Table:
    """The live files (schema FILES) after ``commits`` (ascending). ``base``: those before them, None for none."""
    after = tail(Commits(commits))
    if base is None:
        return after.files
    live = after.on(base)
    return pa.concat_tables([live, after.files]) if after.files.num_rows else live


def files_without(files: pa.Table, *others: pa.Table) -> pa.Table:
    """The rows of ``files`` (columns of FILES, path and deletion_vector among them) that are in none of ``others``."""
    for other in others:
        if files.num_rows and other.num_rows:
            files = files.filter(pc.invert(pc.is_in(_keys(files), value_set=pc.unique(_keys(other)))))
    return files


_AT, _NOTHING, _NUL = strings(["@", "", "\0"])


def _keys(files: pa.Table) -> Any:
    """``file_key`` of every row."""
    vectors = files["deletion_vector"].combine_chunks()
    if vectors.null_count == len(vectors):
        return files["path"]
    storage, inline, offset = (vectors.field(i) for i in range(3))
    suffix = pc.binary_join_element_wise(_AT, pc.cast(offset, pa.string()), _NOTHING)
    unique = pc.binary_join_element_wise(storage, inline, pc.fill_null(suffix, _NOTHING), _NOTHING)
    keyed = pc.binary_join_element_wise(files["path"].combine_chunks(), unique, _NUL)
    return pc.if_else(vectors.is_valid(), keyed, files["path"].combine_chunks())


def files_table(adds: Sequence[AddFile]) -> pa.Table:
    """Add actions as rows of schema FILES."""
    columns = [
        strings([a.path for a in adds]),
        strings_map([a.partition_values for a in adds]),
        int64s([a.size for a in adds]),
        int64s([a.modification_time for a in adds]),
        strings([a.stats for a in adds]),
        strings_map([a.tags for a in adds]),
        _vectors([a.deletion_vector for a in adds]),
        int64s([a.base_row_id for a in adds]),
        int64s([a.default_row_commit_version for a in adds]),
        strings([a.clustering_provider for a in adds]),
    ]
    return pa.Table.from_arrays(columns, schema=FILES)


def tombstones_table(removes: Sequence[RemoveFile]) -> pa.Table:
    """Remove actions as rows of schema TOMBSTONES."""
    columns = [
        strings([r.path for r in removes]),
        int64s([r.deletion_timestamp for r in removes]),
        booleans([r.extended_file_metadata for r in removes]),
        strings_map([r.partition_values for r in removes]),
        int64s([r.size for r in removes]),
        _vectors([r.deletion_vector for r in removes]),
        int64s([r.base_row_id for r in removes]),
        int64s([r.default_row_commit_version for r in removes]),
    ]
    return pa.Table.from_arrays(columns, schema=TOMBSTONES)


def _vectors(vectors: Sequence[DeletionVector | None]) -> pa.Array:
    if not any(vectors):
        return pa.nulls(len(vectors), DELETION_VECTOR)
    present = [v or _NO_VECTOR for v in vectors]
    columns = [
        strings([v.storage_type for v in present]),
        strings([v.path_or_inline_dv for v in present]),
        int64s([v.offset for v in present]),
        int64s([v.size_in_bytes for v in present]),
        int64s([v.cardinality for v in present]),
        int64s([v.max_row_index for v in present]),
    ]
    absent = booleans([v is None for v in vectors])
    return pa.StructArray.from_arrays(columns, fields=list(DELETION_VECTOR.fields), mask=absent)


_NO_VECTOR = DeletionVector("i", "", 0, 0)


def add_actions(files: pa.Table) -> list[AddFile]:
    """Rows of schema FILES as add actions."""
    return [
        AddFile(
            path=row["path"],
            partition_values=dict(row["partition_values"] or ()),
            size=row["size"],
            modification_time=row["modification_time"],
            data_change=False,
            stats=row["stats"],
            tags=None if row["tags"] is None else dict(row["tags"]),
            deletion_vector=_vector(row["deletion_vector"]),
            base_row_id=row["base_row_id"],
            default_row_commit_version=row["default_row_commit_version"],
            clustering_provider=row["clustering_provider"],
        )
        for row in files.to_pylist()
    ]


def _vector(row: Mapping[str, Any] | None) -> DeletionVector | None:
    return None if row is None else DeletionVector(**row)


def remove_actions(files: pa.Table, deletion_timestamp_ms: int, data_change: bool = True) -> list[RemoveFile]:
    """Remove actions for live files (schema FILES). ``data_change``: False where the rows stay in the table."""
    return [
        RemoveFile(
            path=a.path,
            deletion_timestamp=deletion_timestamp_ms,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=a.partition_values,
            size=a.size,
            tags=a.tags,
            deletion_vector=a.deletion_vector,
            base_row_id=a.base_row_id,
            default_row_commit_version=a.default_row_commit_version,
        )
        for a in add_actions(files)
    ]
