"""Views of the tables of a Unity Catalog, each as of one instant."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from deltalog.catalog.records import Head, TableRecord
from deltalog.transactions.unity.documents import ExternalTable, TableDocument
from deltalog.transactions.unity.states import StateAt
from deltalog.unity.table_state import TableState


@dataclass(frozen=True, slots=True)
class ManagedView:
    """A managed table as of one instant. ``metadata_ms``: the in-commit timestamp of the last commit that changed
    metadata.
    """

    record: TableRecord
    head: Head
    at: StateAt
    document: TableDocument
    metadata_version: int
    metadata_ms: int

    @property
    def etag(self) -> str:
        return etag_of(self.at.state, self.document)

    @property
    def updated_ms(self) -> int:
        return max(self.at.ict_ms, self.document.updated_ms)

    @property
    def comment(self) -> str | None:
        return self.at.state.metadata.description if self.document.comment is None else self.document.comment


@dataclass(frozen=True, slots=True)
class ExternalView:
    """An external table."""

    table: ExternalTable

    @property
    def etag(self) -> str:
        shown = msgspec.structs.replace(self.table, updated_ms=0, last_commit_version=None, last_commit_ms=None)
        return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:32]


View = ManagedView | ExternalView


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged table."""

    table_id: str
    url: str


def etag_of(state: TableState, document: TableDocument) -> str:
    return state.etag(document.comment, sorted(document.properties.items()))
