"""ClickHouse as an engine under test, in the process of chdb."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import chdb
import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.conformance.engine import Engine, NotSupported

_WRITES = "allow_delta_lake_writes = 1, allow_delta_lake_create_table = 1"
# As bytes, because ClickHouse has one type, String, for strings and binary values.
_OUTPUT = "output_format_arrow_string_as_string = 0, enable_nullable_tuple_type = 1"


class ChdbEngine(Engine):
    """ClickHouse through ``deltaLakeLocal``: versions and changes by number, appends, and creation of tables."""

    name = "chdb"
    version = f"{chdb.__version__} (ClickHouse {chdb.engine_version})"
    refusals = (RuntimeError,)
    lacks = r"NOT_IMPLEMENTED|UnsupportedError|Unsupported Delta table type|Start and end version schemas are different"

    def __init__(self) -> None:
        os.chdir("/")  # ClickHouse opens only files below the working directory
        self._connection: Any = None

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            raise NotSupported("reading the version at a timestamp")
        return self._read(path, {} if version is None else {"delta_lake_snapshot_version": version})

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        if from_timestamp_ms is not None or to_timestamp_ms is not None:
            raise NotSupported("reading the change data feed by timestamp")
        settings = {"delta_lake_snapshot_start_version": from_version or 0}
        if to_version is not None:
            settings["delta_lake_snapshot_end_version"] = to_version
        return self._read(path, settings)

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        if partition_by:
            raise NotSupported("creating a partitioned table")
        if properties:
            raise NotSupported("creating a table with properties")
        columns = ", ".join(f"{_name(field.name)} Nullable({_type(field.type)})" for field in schema)
        name = _name(f"t{uuid.uuid4().hex}")
        self._query(f"CREATE TABLE {name} ({columns}) ENGINE = DeltaLakeLocal({_text(path)}, Parquet)")
        self._query(f"DROP TABLE {name}")  # the files stay

    def append(self, path: str, rows: pa.Table) -> None:
        names = ", ".join(map(_name, rows.column_names))
        with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
            pq.write_table(rows, file.name)
            source = f"file({_text(file.name)}, Parquet)"
            self._query(f"INSERT INTO FUNCTION deltaLakeLocal({_text(path)}) ({names}) SELECT {names} FROM {source}")

    def _read(self, path: str, settings: Mapping[str, int]) -> Any:
        """The rows of a table, or its changes. The columns that the table declares as binary are left as bytes."""
        at = "".join(f", {name} = {value}" for name, value in settings.items())
        text = f"SELECT * FROM deltaLakeLocal({_text(path)}) SETTINGS {_OUTPUT}{at}"
        with pa.ipc.open_stream(self._query(text, "ArrowStream").bytes()) as reader:
            table = reader.read_all()
        binary = set(_binary_columns(path))
        fields = [field if field.name in binary else field.with_type(_decoded(field.type)) for field in table.schema]
        return table.cast(pa.schema(fields))

    def _query(self, text: str, output: str = "Null") -> Any:
        """Raises RuntimeError; SystemError if it is an internal error, which is no refusal."""
        if self._connection is None:
            self._connection = chdb.connect(":memory:")
            self._connection.query(f"SET {_WRITES}")
        try:
            return self._connection.query(text, output)
        except RuntimeError as error:
            # The query after one that failed while it was reading gives no rows on the same connection.
            self._connection.close()
            self._connection = None
            if "LOGICAL_ERROR" in str(error):
                raise SystemError(str(error)) from error
            raise


def _binary_columns(path: str) -> Iterator[str]:
    """The names of the columns of the type binary in any version's schema."""
    for file in Path(path, "_delta_log").glob("*.json"):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"binary' in line and '"metaData"' in line:
                fields = json.loads(json.loads(line)["metaData"]["schemaString"])["fields"]
                yield from (field["name"] for field in fields if field["type"] == "binary")


def _decoded(kind: pa.DataType) -> pa.DataType:
    """The type with strings instead of binary values, at any depth."""
    if pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_decoded(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_decoded(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_decoded(kind.key_type), kind.item_field.with_type(_decoded(kind.item_type)))
    return kind


def _type(kind: pa.DataType) -> str:
    known = {pa.int64(): "Int64", pa.string(): "String", pa.float64(): "Float64", pa.bool_(): "Bool"}
    known[pa.date32()] = "Date32"
    if kind not in known:
        raise NotSupported(f"creating a column of the type {kind}")
    return known[kind]


def _name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
