"""deltalog as an engine under test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.alter.properties import set_properties, unset_properties
from deltalog.commit_result import CommitResult
from deltalog.conformance.engine import Engine, utc
from deltalog.errors import DeltaLogError
from deltalog.protocol.row_tracking import ROW_COMMIT_VERSION, ROW_ID
from deltalog.protocol.schema import DataType, StructType
from deltalog.rows.append import append
from deltalog.rows.delete import delete
from deltalog.rows.overwrite import Columns, replacing
from deltalog.table import DeltaTable
from deltalog.version import VERSION
from deltalog.write.transaction import Transaction


class DeltalogEngine(Engine):
    """deltalog. Every call opens the table anew, like a new process."""

    name = "deltalog"
    version = VERSION
    refusals = (DeltaLogError,)

    def _open(self, path: str) -> DeltaTable:
        return DeltaTable.open(path)

    def of_catalog(self, url: str, token: str | None) -> Engine:
        return _OfCatalog(url, token)

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return self._open(path).snapshot(version, timestamp_ms).scan().to_arrow()

    def rows_at_us(self, path: str, timestamp_us: int) -> Any:
        at = utc(us=timestamp_us)
        return self._open(path).snapshot(timestamp=at).scan().to_arrow()

    def tracked_rows(self, path: str, version: int | None = None) -> Any:
        snapshot = self._open(path).snapshot(version)
        names = snapshot.schema.names
        found = snapshot.scan([*names, ROW_ID, ROW_COMMIT_VERSION]).to_arrow()
        return found.rename_columns([*names, "_row_id", "_row_commit_version"])

    def version_at(self, path: str, timestamp_ms: int) -> int:
        return self._open(path).version_at(timestamp_ms).version

    def latest_version(self, path: str) -> int:
        return self._open(path).version

    def history(self, path: str) -> Mapping[int, int | None]:
        return {entry.version: entry.timestamp_ms for entry in self._open(path).history()}

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        table = self._open(path)
        return table.changes(
            from_version, to_version, from_timestamp=from_timestamp_ms, to_timestamp=to_timestamp_ms
        ).to_arrow()

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        DeltaTable.create(path, schema, partition_by=partition_by, properties=properties)

    def append(self, path: str, rows: pa.Table) -> None:
        self._open(path).append(rows)

    def append_once(self, path: str, rows: pa.Table, application: str, application_version: int) -> None:
        self._open(path).append(rows, txn=(application, application_version))

    def overwrite(self, path: str, rows: pa.Table) -> None:
        self._open(path).overwrite(rows)

    def delete(self, path: str, where: str) -> None:
        self._open(path).delete(where)

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        _set(self._open(path).transaction(), properties)

    def set_type(self, path: str, column: str, type: str) -> None:
        self._open(path).set_column(tuple(column.split(".")), data_type=_type(type))

    def restore(self, path: str, version: int) -> None:
        self._open(path).restore(version)

    def restore_to_time(self, path: str, timestamp_ms: int) -> None:
        self._open(path).restore(timestamp=timestamp_ms)

    def clone(self, path: str, target: str, shallow: bool, version: int | None = None) -> None:
        self._open(path).clone(target, shallow=shallow, version=version)

    def checkpoint(self, path: str) -> None:
        self._open(path).checkpoint()

    def begin(self, path: str) -> Engine:
        return _Begun(self._open(path).transaction())


class _OfCatalog(DeltalogEngine):
    """deltalog with the tables of one Unity Catalog."""

    def __init__(self, url: str, token: str | None) -> None:
        self._options: dict[str, Any] = {"unity_catalog_url": url, "unity_catalog_token": token}

    def _open(self, path: str) -> DeltaTable:
        return DeltaTable.open(f"uc://{path}", **self._options)

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        address = f"uc://{path}"
        DeltaTable.create(address, schema, partition_by=partition_by, properties=properties, **self._options)


class _Begun(Engine):
    """One open transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def _end(self, verb: Callable[[Transaction], CommitResult]) -> None:
        with self._transaction as transaction:
            verb(transaction)

    def append(self, path: str, rows: pa.Table) -> None:
        self._end(lambda transaction: append(transaction, rows, False, None, None))

    def append_once(self, path: str, rows: pa.Table, application: str, application_version: int) -> None:
        self._end(lambda transaction: append(transaction, rows, False, None, (application, application_version)))

    def overwrite(self, path: str, rows: pa.Table) -> None:
        self._end(replacing(rows, None, None, Columns(), None, None))

    def delete(self, path: str, where: str) -> None:
        self._end(lambda transaction: delete(transaction, where, None, None))

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        _set(self._transaction, properties)


def _type(name: str) -> DataType:
    fields = [{"name": "c", "type": name, "nullable": True, "metadata": {}}]
    return StructType.from_json(json.dumps({"type": "struct", "fields": fields})).field("c").data_type


def _set(transaction: Transaction, properties: Mapping[str, str | None]) -> None:
    values = {key: value for key, value in properties.items() if value is not None}
    with transaction:
        if values:
            set_properties(transaction, values, None)
        else:
            unset_properties(transaction, [*properties], None)
