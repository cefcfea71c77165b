"""char(n) and varchar(n): Delta stores them as strings with the declared type in the column metadata. Pure.

Spark pads char(n) with blanks to n characters when it reads any writer's files, and compares the padded values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from deltalog.errors import CorruptTableError
from deltalog.lazy_arrow import pc
from deltalog.protocol import limits
from deltalog.protocol.schema import StructField

SIZED_KEY = "__CHAR_VARCHAR_TYPE_STRING"
_SIZED = re.compile(r"(char|varchar)\((\d{1,9})\)")
_CHAR_INSIDE = re.compile(r"\bchar\(")


class Length(msgspec.Struct, frozen=True):
    """The declared length of a char(n), whose values are padded with blanks to n characters, or of a varchar(n), whose
    values have at most n characters. Trailing blanks beyond n are cut off."""

    padded: bool
    limit: int

    @property
    def text(self) -> str:
        """The type as SQL."""
        return f"{'char' if self.padded else 'varchar'}({self.limit})"


def declared(column: StructField) -> str | None:
    """The declared char or varchar type of a column, in lower case without blanks; None if none is declared."""
    text = column.metadata.get(SIZED_KEY)
    return None if text is None else str(text).replace(" ", "").lower()


def length_of(column: StructField) -> Length | None:
    """The declared length of a string column; None if the column declares no length, or if the type is nested in
    another type."""
    text = declared(column)
    match = None if text is None else _SIZED.fullmatch(text)
    if match is None or str(column.data_type) != "string":
        return None
    return Length(match[1] == "char", int(match[2]))


def char_length(fields: Sequence[StructField]) -> int | None:
    """n if the last column of a path of fields is char(n), else None. Raises CorruptTableError if n is over the
    cap."""
    length = length_of(fields[-1]) if SIZED_KEY in fields[-1].metadata else None
    if length is None or not length.padded:
        return None
    if length.limit > limits.MAX_CHAR_LENGTH:
        raise CorruptTableError(
            f"Column {fields[-1].name} is declared {declared(fields[-1])}: its length "
            f"{limits.over('MAX_CHAR_LENGTH', length.limit)}."
        )
    return length.limit


def has_char_inside(column: StructField) -> bool:
    """Whether the type is a struct, array or map that contains a char(n)."""
    text = declared(column)
    return text is not None and length_of(column) is None and _CHAR_INSIDE.search(text) is not None


def has_char(column: StructField) -> bool:
    """Whether the column's strings, including strings nested in its values, are padded when they are read."""
    return char_length([column]) is not None or has_char_inside(column)


def padded(values: Any, width: int) -> Any:
    """Pad strings with blanks to ``width`` characters; longer strings are unchanged."""
    return pc.utf8_rpad(values, width=width, padding=" ")


def upper_bound(high: Any, width: int) -> Any:
    """The upper bound of padded strings, given the upper bound of the unpadded strings.

    A padded string can sort after a longer string that has, in place of the padding, a character that sorts before the
    blank.
    """
    cut = padded(pc.replace_substring_regex(high, r"(?s)[\x00-\x1f].*", ""), width)
    return pc.if_else(pc.less(high, cut), cut, high)
