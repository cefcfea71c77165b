"""deltalake (delta-rs) as an engine under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import deltalake
import pyarrow as pa

from deltalog.conformance.engine import Engine, NotSupported, utc


class DeltalakeEngine(Engine):
    """deltalake through its public API. It resolves timestamps by file times, which the cases show."""

    name = "deltalake"
    version = deltalake.__version__
    lacks = (
        r"Unsupported table features required|Error parsing property 'delta\.|Feature '\w+' is not supported|"
        r"This feature is not implemented"
    )

    def _at(self, path: str, timestamp_ms: int) -> deltalake.DeltaTable:
        table = deltalake.DeltaTable(path)
        table.load_as_version(_iso(timestamp_ms))
        return table

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            return _rows(self._at(path, timestamp_ms))
        return _rows(deltalake.DeltaTable(path, version=version))

    def rows_at_us(self, path: str, timestamp_us: int) -> Any:
        table = deltalake.DeltaTable(path)
        table.load_as_version(utc(us=timestamp_us))
        return _rows(table)

    def version_at(self, path: str, timestamp_ms: int) -> int:
        return int(self._at(path, timestamp_ms).version())

    def latest_version(self, path: str) -> int:
        return int(deltalake.DeltaTable(path).version())

    def history(self, path: str) -> Mapping[int, int | None]:
        return {entry["version"]: entry.get("timestamp") for entry in deltalake.DeltaTable(path).history()}

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        times = {}
        if from_timestamp_ms is not None:
            times["starting_timestamp"] = _iso(from_timestamp_ms)
        if to_timestamp_ms is not None:
            times["ending_timestamp"] = _iso(to_timestamp_ms)
        start = 0 if from_version is None and from_timestamp_ms is None else from_version
        feed = deltalake.DeltaTable(path).load_cdf(starting_version=start, ending_version=to_version, **times)
        return pa.table(feed.read_all())

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        deltalake.DeltaTable.create(path, schema, partition_by=list(partition_by), configuration=dict(properties))

    def append(self, path: str, rows: pa.Table) -> None:
        deltalake.write_deltalake(path, rows, mode="append")

    def overwrite(self, path: str, rows: pa.Table) -> None:
        deltalake.write_deltalake(path, rows, mode="overwrite")

    def delete(self, path: str, where: str) -> None:
        deltalake.DeltaTable(path).delete(where)

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        _set(deltalake.DeltaTable(path), properties)

    def restore(self, path: str, version: int) -> None:
        deltalake.DeltaTable(path).restore(version)

    def restore_to_time(self, path: str, timestamp_ms: int) -> None:
        deltalake.DeltaTable(path).restore(_iso(timestamp_ms))

    def checkpoint(self, path: str) -> None:
        deltalake.DeltaTable(path).create_checkpoint()

    def begin(self, path: str) -> Engine:
        return _Begun(deltalake.DeltaTable(path))


class _Begun(Engine):
    """An open transaction: a loaded table, whose commits are based on the loaded version."""

    def __init__(self, table: deltalake.DeltaTable) -> None:
        self._table = table

    def append(self, path: str, rows: pa.Table) -> None:
        deltalake.write_deltalake(self._table, rows, mode="append")

    def overwrite(self, path: str, rows: pa.Table) -> None:
        deltalake.write_deltalake(self._table, rows, mode="overwrite")

    def delete(self, path: str, where: str) -> None:
        self._table.delete(where)

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        _set(self._table, properties)


def _rows(table: deltalake.DeltaTable) -> Any:
    return deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()


def _set(table: deltalake.DeltaTable, properties: Mapping[str, str | None]) -> None:
    if None in properties.values():
        raise NotSupported("deltalake cannot remove table properties")
    table.alter.set_table_properties({key: str(value) for key, value in properties.items()})


def _iso(timestamp_ms: int) -> str:
    return utc(ms=timestamp_ms).isoformat(timespec="milliseconds")
