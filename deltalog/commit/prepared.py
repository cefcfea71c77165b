"""A transaction that is ready to be committed, together with its reads and its isolation level. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from deltalog.errors import CallError
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.actions import (
    AddCDCFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)

if TYPE_CHECKING:
    from deltalog.expressions import bound
else:
    lazy_modules(__name__, "deltalog.expressions.bound")

IsolationLevel = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]


@dataclass(frozen=True, slots=True)
class Reads:
    """The parts of the base version that a transaction has read.

    ``predicates``: predicates bound to the table's schema; all rows that match at least one of them count as read.
    ``files``: the paths of the files that were read, in the log's form. ``app_ids``: application ids whose recorded
    versions were read. ``metadata``: whether the schema and properties were read. ``domains``: whether all metadata
    domains were read.
    """

    whole_table: bool = False
    predicates: tuple[bound.Bound, ...] = ()
    files: frozenset[str] = frozenset()
    app_ids: frozenset[str] = frozenset()
    metadata: bool = False
    domains: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction that is ready to be committed, independent of the version number under which it will be
    committed."""

    txn_id: str
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    user_metadata: str | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    adds: tuple[AddFile, ...] = ()
    add_lines: bytes | None = None  # ``adds`` as lines of a commit file, if they are already encoded
    removes: tuple[RemoveFile, ...] = ()
    transactions: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    cdc: tuple[AddCDCFile, ...] = ()
    written: tuple[str, ...] = ()  # paths of the files written for this transaction, which are deleted if it fails
    annotations: Mapping[str, Any] | None = None  # metadata from the author, for the key ``deltalog`` in commitInfo
    # Additional entries of commitInfo that the author of the commit passes.
    commit_info: Mapping[str, Any] = field(default_factory=dict)
    is_strict: bool = False  # after the last attempt, a version that another writer committed counts as a conflict
    reads: Reads = Reads()
    read_version: int | None = None  # the version on which the transaction was planned, for use in messages
    isolation_level: IsolationLevel = "Serializable"

    @property
    def is_blind_append(self) -> bool:
        """Whether the transaction only adds files and has read no rows."""
        has_read = self.reads.whole_table or self.reads.predicates or self.reads.files
        return not (has_read or self.removes or self.metadata or self.protocol)

    @property
    def may_move_rows(self) -> bool:
        """Whether the new files may contain rows copied from the removed files."""
        removed = {remove.path for remove in self.removes}
        return bool(removed) and any(add.path not in removed for add in self.adds)

    @property
    def reported_metrics(self) -> dict[str, str]:
        """The metrics as strings, for commitInfo and CommitResult."""
        return {key: str(value) for key, value in self.metrics.items()}

    @property
    def changes_data(self) -> bool:
        """Whether the transaction adds or removes rows (dataChange), or only moves rows between files."""
        return any(add.data_change for add in self.adds) or any(remove.data_change for remove in self.removes)


def check_isolation_level(wanted: object) -> None:
    """Raise CallError unless ``wanted`` is an isolation level, or None for the table's isolation level."""
    if wanted is not None and wanted not in get_args(IsolationLevel):
        raise CallError(f"An isolation level must be one of {', '.join(get_args(IsolationLevel))}; got {wanted!r}.")


def isolation_for(prepared: Prepared, wanted: IsolationLevel) -> IsolationLevel:
    """The isolation level of a transaction: SnapshotIsolation if the transaction only moves rows between files, else
    ``wanted``.

    Raises CallError if SnapshotIsolation is requested for a change of rows, whose conflicts it would not detect.
    """
    check_isolation_level(wanted)
    only_files = not (prepared.metadata or prepared.protocol or prepared.transactions or prepared.domains)
    rearranges = only_files and not prepared.changes_data
    if wanted == "SnapshotIsolation" and not rearranges:
        raise CallError(
            "SnapshotIsolation is for transactions that only rearrange rows (dataChange=false); this one changes the "
            "table. Use WriteSerializable or Serializable."
        )
    return "SnapshotIsolation" if rearranges and (prepared.adds or prepared.removes) else wanted
