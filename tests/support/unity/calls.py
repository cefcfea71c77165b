"""The calls of a table, answered by the model in this process: no HTTP, so that schedules and rounds are under the
control of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from deltalog.errors import (
    CatalogRequestError,
    SchemaNotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from deltalog.unity import messages
from deltalog.unity.names import TableName, parse_address
from tests.support.unity.model import Model, Refused

T = TypeVar("T")


class ModelCalls:
    """See TableCalls. ``before``: called before each request; ``after``: after the model has handled it, before its
    answer arrives. Both may raise what a client would see."""

    url = "model"

    def __init__(
        self,
        model: Model,
        address: str,
        staging: messages.StagingTable | None = None,
        before: Callable[[str], None] = lambda call: None,
        after: Callable[[str], None] = lambda call: None,
    ) -> None:
        self.model = model
        self.name: TableName = parse_address(address)
        self.staging = staging
        self.before, self.after = before, after

    def load(self) -> messages.LoadedTable:
        return self._answered("load", lambda: self.model.load(*self._path))

    def update(self, update: messages.UpdateTable, *, is_idempotent: bool) -> messages.LoadedTable:
        sent = msgspec.json.decode(update.to_json(), type=messages.UpdateTable)
        return self._answered("update", lambda: self.model.update(*self._path, sent))

    def create(self, request: messages.CreateTable) -> messages.LoadedTable:
        sent = msgspec.json.decode(request.to_json(), type=messages.CreateTable)
        return self._answered("create", lambda: self.model.create_table(self.name.catalog, self.name.schema, sent))

    def credentials(self, operation: messages.CredentialOperation) -> tuple[messages.StorageCredential, ...]:
        found = self._answered("credentials", lambda: self.model.table_credentials(*self._path, operation))
        return found.storage_credentials

    @property
    def _path(self) -> tuple[str, str, str]:
        return self.name.catalog, self.name.schema, self.name.table

    def _answered(self, call: str, ask: Callable[[], T]) -> T:
        self.before(call)
        try:
            with self.model.lock:
                found = ask()
        except Refused as refused:
            self.after(call)
            raise _raised(refused, self.name) from None
        self.after(call)
        return found


def _raised(refused: Refused, name: TableName) -> Exception:
    if refused.error_type == "AlreadyExistsException":
        return TableExistsError(name.address)
    if refused.error_type == "NoSuchTableException":
        return TableNotFoundError(name.address)
    if refused.error_type == "NoSuchSchemaException":
        return SchemaNotFoundError(name.address)
    return CatalogRequestError(str(refused), path="model", error_type=refused.error_type, status=refused.status)
