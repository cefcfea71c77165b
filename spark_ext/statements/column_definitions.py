"""Parses the column definitions and properties of CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as spark_types

import deltalog
from spark_ext.parse.cursor import Cursor
from spark_ext.parse.table_references import unquoted
from spark_ext.writing.table_builder import type_of

_AFTER_TYPE = ("not", "comment", "default", "generated", "first", "after", ",", ")")
_PLACED = "only ALTER TABLE can choose the position of a column: write the columns in their order"


def columns(cursor: Cursor, places: dict[str, str | None] | None = None) -> list[spark_types.StructField]:
    """``(name type [NOT NULL] [DEFAULT value] [GENERATED ALWAYS AS (value)] [COMMENT text], …)``. Raises CallError,
    UnsupportedFeatureError for identity columns. ``places``: receives the positions that FIRST and AFTER ask for, in
    the form of the argument ``after`` of ``DeltaTable.add_columns``; if it is None, FIRST and AFTER are errors."""
    cursor.expect("(")
    found = [column(cursor, places)]
    while cursor.accept(","):
        found.append(column(cursor, places))
    cursor.expect(")")
    return found


def column(cursor: Cursor, places: dict[str, str | None] | None = None) -> spark_types.StructField:
    """One column definition. A dotted name is returned as written. Raises as ``columns``."""
    start = cursor.at
    written = cursor.path()
    is_path = cursor.at > start + 1
    name = written if is_path else unquoted(written)
    data_type, nullable, metadata = type_of(cursor.spark, type_text(cursor)), True, dict[str, str]()
    while not cursor.is_at_end:
        if cursor.accept("not", "null"):
            nullable = False
        elif cursor.accept("comment"):
            metadata["comment"] = cursor.string()
        elif cursor.accept("default"):
            metadata["CURRENT_DEFAULT"] = cursor.expression(f"the default of {name}", *_AFTER_TYPE)
        elif cursor.accept("generated"):
            metadata["delta.generationExpression"] = _generated(cursor, name)
        elif cursor.word() in ("first", "after"):
            if places is None:
                raise cursor.error(_PLACED)
            places[name] = (place(cursor) or {}).get("after")
        else:
            break
    return spark_types.StructField(name, data_type, nullable, metadata)


def place(cursor: Cursor) -> dict[str, Any] | None:
    """``FIRST`` or ``AFTER column`` as arguments of ``DeltaTable.set_column``; None if neither is next."""
    if cursor.accept("first"):
        return {"first": True}
    return {"after": cursor.identifier()} if cursor.accept("after") else None


def type_text(cursor: Cursor) -> str:
    """The text of a data type. Raises CallError."""
    start, depth = cursor.at, 0
    while not cursor.is_at_end:
        word = cursor.word()
        if depth == 0 and word in _AFTER_TYPE:
            break
        depth += (word in ("<", "(")) - (word in (">", ")"))
        cursor.at += 1
    if cursor.at == start:
        raise cursor.error("the type of a column is missing")
    return cursor.text(start, cursor.at)


def _generated(cursor: Cursor, name: str) -> str:
    if cursor.accept("by", "default") or cursor.word(2) == "identity":
        raise deltalog.UnsupportedFeatureError(
            f"Column {name} is an identity column, whose values spark_ext does not generate. Create the table with "
            "deltalog.DeltaTable.create and deltalog.schema.identity_column, use GENERATED ALWAYS AS (…), or write the "
            "values yourself.",
            features=("identityColumns",),
        )
    cursor.expect("always", "as")
    (text,) = cursor.inside()
    return text


def properties(cursor: Cursor) -> dict[str, str]:
    """``('key' = 'value', …)``. Raises CallError."""
    found: dict[str, str] = {}
    cursor.expect("(")
    while True:
        key = property_key(cursor)
        cursor.accept("=")
        if cursor.token.kind == "string":
            found[key] = cursor.string()
        else:
            found[key] = cursor.expression(f"the value of {key}", ",")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return found


def property_key(cursor: Cursor) -> str:
    """A property key, written as a string or as a dotted name."""
    return cursor.string() if cursor.token.kind == "string" else cursor.path()
