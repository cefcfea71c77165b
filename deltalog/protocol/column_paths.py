"""Column paths: parses paths, and finds, adds, changes and drops columns by path. Pure.

A path is the list of names from the top level down to a column; ``element``, ``key`` and ``value`` stand for the
contents of arrays and maps.

Spec: PROTOCOL.md#field-path, #schema-serialization-format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from deltalog.errors import CallError, SchemaMismatchError
from deltalog.protocol.schema import ArrayType, DataType, MapType, StructField, StructType

Path = tuple[str, ...]


class Place(msgspec.Struct, frozen=True):
    """The position of a column in its struct: directly after the column ``after``, or first if ``after`` is None."""

    after: str | None

    def __str__(self) -> str:
        """The position in the form that commitInfo records."""
        return "FIRST" if self.after is None else f"AFTER {path_text([self.after])}"


_ELEMENT = r"(?:`[^`]*`|[^,`])+"  # one path in a list
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def parse_path(path: str | Sequence[str]) -> Path:
    """Parse a path from text such as ``a.b``, with backticks around names that contain dots, or from a list of names.

    Raises CallError.
    """
    if not isinstance(path, str):
        if not path:
            raise CallError("The path of a column is an empty list; it needs at least one name.")
        return tuple(path)
    names: list[str] = []
    at = -1  # the index of the dot before the next name; -1 before the first name
    while at < len(path) and (at < 0 or path[at] == ".") and (match := _PART.match(path, at + 1)):
        names.append(match[1].replace("``", "`") if match[1] else match[2])
        at = match.end()
    if at != len(path):
        raise CallError(f"{path!r} is not the path of a column. Write a.b, with backticks around `a name.with dots`.")
    return tuple(names)


def parse_paths(text: str) -> list[Path]:
    """Parse a comma-separated list of paths such as ``id, a.b, `a,b```. Raises CallError."""
    if not re.fullmatch(f"(?:{_ELEMENT}(?:,{_ELEMENT})*)?", text):
        raise CallError(f"{text!r} is not a list of columns such as id, a.b, with backticks around `a name.with dots`.")
    return [parse_path(part.strip()) for part in re.findall(_ELEMENT, text)]


def path_text(path: Sequence[str]) -> str:
    """A path as text, in the form that ``parse_path`` parses."""
    return ".".join(name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`" for name in path)


def find(schema: StructType, path: Path) -> StructField:
    """The column at a path. Raises SchemaMismatchError."""
    found: list[StructField] = []

    def record(column: StructField) -> StructField:
        found.append(column)
        return column

    change(schema, path, record)
    return found[0]


def add(schema: StructType, parent: Path, column: StructField, place: Place | None = None) -> StructType:
    """The schema with a column added to the struct at ``parent`` (empty: the top level), at the end or at ``place``.

    Raises SchemaMismatchError if the struct does not exist or already has a column with this name, and as ``move``.
    """

    def edit(struct: StructType) -> StructType:
        if struct.find(column.name) is not None:
            raise SchemaMismatchError(f"Column {path_text((*parent, column.name))} already exists.")
        return StructType(_placed(struct.fields, column, place, parent))

    return _top(_at(schema, parent, parent, edit))


def move(schema: StructType, path: Path, place: Place) -> StructType:
    """The schema with a column moved to another position in its struct. Raises SchemaMismatchError if the column, or
    the column that it should follow, does not exist."""

    def edit(struct: StructType) -> StructType:
        column = _field(struct, path[-1], path)
        others = tuple(each for each in struct.fields if each is not column)
        return StructType(_placed(others, column, place, path[:-1]))

    return _top(_at(schema, path[:-1], path, edit))


def _placed(
    fields: tuple[StructField, ...], column: StructField, place: Place | None, parent: Path
) -> tuple[StructField, ...]:
    if place is None:
        return (*fields, column)
    if place.after is None:
        return (column, *fields)
    before = StructType(fields).find(place.after)
    if before is None:
        raise SchemaMismatchError(
            f"{path_text((*parent, column.name))} cannot follow {place.after}: there is no other column with this name "
            f"beside it. There are {', '.join(field.name for field in fields)}."
        )
    at = fields.index(before) + 1
    return (*fields[:at], column, *fields[at:])


def change(schema: StructType, path: Path, edit: Callable[[StructField], StructField]) -> StructType:
    """The schema with one column replaced. Raises SchemaMismatchError if the column does not exist, or if another
    column already has the new name."""

    def edit_struct(struct: StructType) -> StructType:
        column = _field(struct, path[-1], path)
        changed = edit(column)
        others = StructType(tuple(each for each in struct.fields if each is not column))
        if others.find(changed.name) is not None:
            raise SchemaMismatchError(f"Column {path_text((*path[:-1], changed.name))} already exists.")
        return StructType(tuple(changed if each is column else each for each in struct.fields))

    return _top(_at(schema, path[:-1], path, edit_struct))


def drop(schema: StructType, path: Path) -> StructType:
    """The schema without a column. Raises SchemaMismatchError if it does not exist or is the only one of its struct."""

    def edit(struct: StructType) -> StructType:
        column = _field(struct, path[-1], path)
        if len(struct.fields) == 1:
            raise SchemaMismatchError(f"{path_text(path)} is the only column; it cannot be dropped.")
        return StructType(tuple(each for each in struct.fields if each is not column))

    return _top(_at(schema, path[:-1], path, edit))


def _at(data_type: DataType, rest: Path, whole: Path, edit: Callable[[StructType], StructType]) -> DataType:
    """A copy of the type in which ``edit`` has been applied to the struct at the path ``rest``."""
    if not rest and isinstance(data_type, StructType):
        return edit(data_type)
    if rest and isinstance(data_type, StructType):
        column = _field(data_type, rest[0], whole)
        inside = replace(column, data_type=_at(column.data_type, rest[1:], whole, edit))
        return StructType(tuple(inside if each is column else each for each in data_type.fields))
    if rest[:1] == ("element",) and isinstance(data_type, ArrayType):
        return replace(data_type, element_type=_at(data_type.element_type, rest[1:], whole, edit))
    if rest[:1] == ("key",) and isinstance(data_type, MapType):
        return replace(data_type, key_type=_at(data_type.key_type, rest[1:], whole, edit))
    if rest[:1] == ("value",) and isinstance(data_type, MapType):
        return replace(data_type, value_type=_at(data_type.value_type, rest[1:], whole, edit))
    raise SchemaMismatchError(
        f"The path {path_text(whole)} does not lead to a field of a struct: it reaches {data_type}. "
        "Array elements are at .element, map keys and values at .key and .value."
    )


def _field(struct: StructType, name: str, path: Path) -> StructField:
    found = struct.find(name)
    if found is None:
        names = ", ".join(struct.names)
        raise SchemaMismatchError(f"There is no column {path_text(path)}: {name!r} is not one of {names}.")
    return found


def _top(data_type: DataType) -> StructType:
    assert isinstance(data_type, StructType)
    return data_type
