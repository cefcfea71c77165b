"""Finds the data files of a directory without a log, and determines their columns from the paths and footers. Pure.

Names that begin with ``_`` or ``.`` are ignored, as in Spark. Links, mount points and other tables are refused, because
without their files the table would lack rows that other readers of the directory return.

Spec: PROTOCOL.md#data-files, #partition-value-serialization, #file-types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from deltalog.errors import CorruptTableError, InvalidDataFileError, SchemaMismatchError
from deltalog.protocol import partitions
from deltalog.protocol.paths import LOG_DIRECTORY, is_plain
from deltalog.protocol.schema import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    leaves,
    uses_type,
)
from deltalog.storage.base import Entry, EntryKind

_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True)
class DirectoryFile:
    """A file: its path below the directory, and its serialized partition values by column (None: null)."""

    path: str
    size_bytes: int | None
    partition_texts: Mapping[str, str | None]


def is_entered(directory: str) -> bool:
    """Whether a directory may contain data files. ``directory``: its path."""
    return not _is_ignored(directory.rpartition("/")[2])


def _is_ignored(directory_name: str) -> bool:
    """Whether Spark ignores a directory of this name. Spark does not ignore a partition directory such as ``_a=1``."""
    return directory_name.startswith(".") or (directory_name.startswith("_") and "=" not in directory_name)


def data_files(root: str, entries: Iterable[Entry]) -> list[DirectoryFile]:
    """The data files among the entries of ``LogStore.walk``, keyed by path. ``root``: the directory, used in messages.

    Raises InvalidDataFileError for a link, a mount point, a name that a log cannot represent, a nested table, and for
    files whose directories have different partition columns.
    """
    files = []
    for entry in sorted(entries, key=lambda each: each.path):
        *directories, name = entry.path.split("/")
        if LOG_DIRECTORY in (*directories, name):
            table = entry.path.partition(LOG_DIRECTORY)[0].rstrip("/")
            raise _refused(root, table, f"is a Delta table: it has a {LOG_DIRECTORY}. Convert a directory without one")
        if entry.kind is EntryKind.DIRECTORY or name.startswith(_HIDDEN) or any(map(_is_ignored, directories)):
            continue
        if entry.kind is not EntryKind.FILE:
            raise _refused(
                root, entry.path, f"is a {entry.kind.value}, which is not followed. Put the files themselves there"
            )
        if not is_plain(entry.path):
            raise _refused(root, entry.path, "has a name that the log cannot represent. Rename it")
        try:
            texts = partitions.values_in_directories(entry.path)
        except ValueError as error:
            raise _refused(root, entry.path, f"is not in a valid partition directory: {error}. Rename it") from None
        files.append(DirectoryFile(entry.path, entry.size_bytes, texts))
    for file in files:
        if [*file.partition_texts] != [*files[0].partition_texts]:
            raise _refused(
                root,
                file.path,
                f"has the partition columns {_listed(file.partition_texts)} by its directories, but {files[0].path} "
                f"has {_listed(files[0].partition_texts)}. Put all files into directories with the same columns",
            )
    return files


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _refused(root: str, path: str, why: str) -> InvalidDataFileError:
    return InvalidDataFileError(
        f"{root} cannot be converted: {path or 'it'} {why}, or prefix its name with '_' so that it is ignored. "
        "Nothing was committed.",
        path=path,
    )


# ------------------------------------------------------------------------------------------- partition columns


def partition_columns(files: Sequence[DirectoryFile], wanted: StructType | Sequence[str] | None) -> StructType:
    """The partition columns of files. Their types come from ``wanted`` if it lists types; otherwise the type of each
    column is inferred from all of its values. Raises SchemaMismatchError if ``wanted`` has other names."""
    names = [*files[0].partition_texts] if files else []
    if wanted is not None:
        given = wanted.names if isinstance(wanted, StructType) else [*wanted]
        if sorted(given) != sorted(names):
            raise SchemaMismatchError(
                f"The directories have the partition columns {_listed(names)}, but partition_by has {_listed(given)}. "
                "Pass the columns of the directories, or omit partition_by."
            )
        if isinstance(wanted, StructType):
            return StructType(tuple(replace(wanted.field(name), nullable=True) for name in names))
    return StructType(
        tuple(
            StructField(name, partitions.inferred_type(file.partition_texts[name] for file in files), True)
            for name in names
        )
    )


def partition_values(file: DirectoryFile, columns: StructType) -> dict[str, str | None]:
    """The partition values of a file in the log's serialization. Raises SchemaMismatchError for a value that does not
    fit its column's type."""
    values = {}
    for column in columns:
        text = file.partition_texts[column.name]
        try:
            values[column.name] = partitions.serialize(
                partitions.parse(text, column.data_type, column.name), column.data_type
            )
        except CorruptTableError as error:
            raise SchemaMismatchError(f"{file.path}: {error.message} Choose another type for {column.name}.") from None
    return values


# ------------------------------------------------------------------------------------------------ columns of files


def file_schema(footer: Any, path: str) -> StructType:
    """The columns of a Parquet file, all nullable, as its footer (pyarrow.parquet.FileMetaData) declares them.

    ``path``: the path of the file, for messages. Raises SchemaMismatchError for a type that Delta lacks, and for a
    column without a type.
    """
    physical = iter([footer.schema.column(number).physical_type for number in range(footer.num_columns)])
    arrow = pa.schema([_with_instants(field, physical) for field in footer.schema.to_arrow_schema()])
    try:
        schema: StructType = _nullable(StructType.from_arrow(arrow))
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{path} cannot be added to a table: {error.message}") from None
    for names, column in leaves(schema):
        if uses_type(column.data_type, VOID.name):
            raise SchemaMismatchError(
                f"Column {'.'.join(names)} of {path} has no type, as all its values are null. Rewrite the file "
                "without the column, or with a type. Nothing was committed."
            )
    return schema


def _with_instants(field: pa.Field, physical: Iterator[str]) -> pa.Field:
    """The field with UTC timestamps in place of INT96 timestamps, as Spark reads them. ``physical``: the physical types
    of the leaves, in order; the function consumes one item for each leaf of the field."""
    kind = field.type
    if pt.is_struct(kind):
        return field.with_type(pa.struct([_with_instants(kind.field(i), physical) for i in range(kind.num_fields)]))
    if pt.is_map(kind):
        return field.with_type(
            pa.map_(_with_instants(kind.key_field, physical), _with_instants(kind.item_field, physical))
        )
    if hasattr(kind, "value_field"):  # every kind of list
        return field.with_type(pa.list_(_with_instants(kind.value_field, physical)))
    return field.with_type(pa.timestamp("us", "UTC")) if next(physical, "") == "INT96" else field


def _nullable(data_type: Any) -> Any:
    if isinstance(data_type, StructType):
        return StructType(tuple(replace(f, data_type=_nullable(f.data_type), nullable=True) for f in data_type.fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(_nullable(data_type.element_type), True)
    if isinstance(data_type, MapType):
        return MapType(_nullable(data_type.key_type), _nullable(data_type.value_type), True)
    return data_type


def merged(known: StructType, found: StructType, file: str) -> StructType:
    """The columns of ``known``, followed by the columns that occur only in ``found`` (the columns of a file).

    Raises SchemaMismatchError for a column with a different type: not all Parquet readers can read a narrower type as a
    wider one.
    """
    return _merged_struct(known, found, "", file)


def _merged_struct(known: StructType, found: StructType, where: str, file: str) -> StructType:
    there = {column.name: column for column in found.fields}
    columns = []
    for column in known.fields:
        other = there.pop(column.name, None)
        if other is not None:
            column = replace(column, data_type=_merged(column.data_type, other.data_type, where + column.name, file))
        columns.append(column)
    return StructType((*columns, *there.values()))


def _merged(known: DataType, found: DataType, name: str, file: str) -> DataType:
    if isinstance(known, StructType) and isinstance(found, StructType):
        return _merged_struct(known, found, f"{name}.", file)
    if isinstance(known, ArrayType) and isinstance(found, ArrayType):
        return replace(known, element_type=_merged(known.element_type, found.element_type, f"{name}.element", file))
    if isinstance(known, MapType) and isinstance(found, MapType):
        key = _merged(known.key_type, found.key_type, f"{name}.key", file)
        return replace(
            known, key_type=key, value_type=_merged(known.value_type, found.value_type, f"{name}.value", file)
        )
    if known != found:
        raise SchemaMismatchError(
            f"Column {name} is {found} in {file}, but {known} in files before it. A column of a table has one type. "
            "Rewrite or exclude the files with another type. Nothing was committed."
        )
    return known
