"""The calls of a server that concern one table."""

from __future__ import annotations

from typing import Protocol

from deltalog.errors import CatalogRequestError
from deltalog.unity import messages
from deltalog.unity.client import UnityClient
from deltalog.unity.names import TableName


class TableCalls(Protocol):
    """What the client of a table needs from a server. Can be pickled. Raises as UnityClient."""

    name: TableName

    @property
    def url(self) -> str:
        """The root of the server's API."""

    def load(self) -> messages.LoadedTable:
        """The metadata of the table and its unpublished commits. Raises TableNotFoundError."""

    def update(self, update: messages.UpdateTable, *, is_idempotent: bool) -> messages.LoadedTable | None:
        """Change the table. Returns its new state, if the server sends it."""

    def create(self, request: messages.CreateTable) -> messages.LoadedTable:
        """Register the table. Raises TableExistsError."""

    def credentials(self, operation: messages.CredentialOperation) -> tuple[messages.StorageCredential, ...]:
        """The credentials for the files of the table."""


class DeltaCalls:
    """The calls of the UC Delta API."""

    def __init__(self, client: UnityClient, name: TableName) -> None:
        self.client = client
        self.name = name

    @property
    def url(self) -> str:
        """The root of the server's API."""
        return self.client.url

    def load(self) -> messages.LoadedTable:
        """See TableCalls."""
        return self.client.load_table(self.name)

    def update(self, update: messages.UpdateTable, *, is_idempotent: bool) -> messages.LoadedTable | None:
        """See TableCalls."""
        return self.client.update_table(self.name, update, is_idempotent=is_idempotent)

    def create(self, request: messages.CreateTable) -> messages.LoadedTable:
        """See TableCalls."""
        return self.client.create_table(self.name, request)

    def credentials(self, operation: messages.CredentialOperation) -> tuple[messages.StorageCredential, ...]:
        """See TableCalls."""
        return self.client.table_credentials(self.name, operation)


class StagedCalls(DeltaCalls):
    """The calls of the UC Delta API for a table that is being created: until it is, its credentials are asked for by
    the id of the staging table."""

    def __init__(self, client: UnityClient, name: TableName, staging: messages.StagingTable) -> None:
        super().__init__(client, name)
        self.staging = staging
        self._is_created = False

    def create(self, request: messages.CreateTable) -> messages.LoadedTable:
        """See TableCalls."""
        loaded = super().create(request)
        self._is_created = True
        return loaded

    def credentials(self, operation: messages.CredentialOperation) -> tuple[messages.StorageCredential, ...]:
        """See TableCalls. Until the table is created, these are the credentials of its staging table."""
        if not self._is_created:
            try:
                return self.client.staging_credentials(self.staging.table_id)
            except CatalogRequestError as error:
                if error.status not in (403, 404):
                    raise
        found = self.client.table_credentials(self.name, operation)
        self._is_created = True
        return found
