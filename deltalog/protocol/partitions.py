"""Converts partition values between Python values, strings in ``partitionValues``, and directory names. Pure.

Spec: PROTOCOL.md#partition-value-serialization, #compatibility-with-other-delta-features. The empty string and an
absent value both mean null.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deltalog.errors import CorruptTableError, SchemaMismatchError
from deltalog.protocol.char_varchar import char_length
from deltalog.protocol.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType
from deltalog.protocol.timestamps import parse_iso

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_UTC = datetime.timezone.utc
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
# Python's parsers accept text that writers never produce, such as underscores, non-ASCII digits and week dates.
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ].*)?")
# Characters that Hive escapes in directory names, in addition to control characters.
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{}[]^ <>|")


def serialize(value: Any, data_type: DataType) -> str | None:
    """The string in ``partitionValues`` for a Python value of a partition column.

    Raises SchemaMismatchError for binary values that are not UTF-8. Cost: none.
    """
    if value is None or value in ("", b""):
        return None
    name = str(data_type)
    if name == "boolean":
        return "true" if value else "false"
    if name == "binary":
        return _utf8(value)
    if name in ("float", "double") and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if name == "timestamp":
        return str(value.astimezone(_UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")).rjust(27, "0")
    if name == "timestamp_ntz":
        text = value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
        return f"{text}.{value.microsecond:06d}" if value.microsecond else text
    if name == "date":
        return str(value.isoformat())
    if isinstance(data_type, DecimalType):
        return format(value, "f")
    return str(value)


def parse(text: str | None, data_type: DataType, column: str) -> Any:
    """The Python value for a string in ``partitionValues``. Raises CorruptTableError if the text is not of the column's
    type."""
    if text is None or text == "":
        return None
    name = str(data_type)
    try:
        if name == "string":
            return text
        if name in _BITS:
            return _whole(text, _BITS[name])
        if name in ("float", "double"):
            return float(_like(_NUMBER, text) if not _NOT_FINITE.fullmatch(text.strip()) else text)
        if name == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if name == "date":
            return datetime.date.fromisoformat(_like(_DATE, text)[:10])
        if name == "timestamp":
            moment = parse_iso(text)
            return moment.replace(tzinfo=_UTC) if moment.tzinfo is None else moment.astimezone(_UTC)
        if name == "timestamp_ntz":
            return parse_iso(text).replace(tzinfo=None)
        if name == "binary":
            return text.encode("utf-8")  # as delta-spark and the Delta kernels do; the protocol does not specify it
        if isinstance(data_type, DecimalType):
            exponent = decimal.Decimal(1).scaleb(-data_type.scale)
            context = decimal.Context(prec=data_type.precision)
            return decimal.Decimal(_like(_NUMBER, text)).quantize(exponent, context=context)
    except (ValueError, KeyError, ArithmeticError) as error:
        raise CorruptTableError(
            f"The partition value {text!r} of column {column} is not a {data_type}: {error}."
        ) from None
    raise CorruptTableError(f"Column {column} of type {data_type} cannot be a partition column.")


def _utf8(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise SchemaMismatchError(
            f"The partition value {value!r} is not UTF-8, but readers of Delta tables decode binary partition values "
            "as UTF-8 text. Partition by a string, for example the value in hex."
        ) from None


def _like(pattern: re.Pattern[str], text: str) -> str:
    """The string without surrounding spaces. Raises ValueError if it does not match."""
    text = text.strip(" ")
    if not pattern.fullmatch(text):
        raise ValueError("it has another format")
    return text


def _whole(text: str, bits: int) -> int:
    value = int(_like(_WHOLE, text))
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"it does not fit into {bits} bits")
    return value


def null_if_empty(schema: StructType, partition_columns: Iterable[str]) -> frozenset[str]:
    """The partition columns in which empty strings or empty binary values become null, because the log cannot represent
    them. Excludes char(n) columns, whose values are padded and so never empty."""
    columns = [column for name in partition_columns if (column := schema.find(name)) is not None]
    return frozenset(
        column.name
        for column in columns
        if str(column.data_type) in ("string", "binary") and char_length([column]) is None
    )


def check_partition_columns(schema: StructType, partition_by: Sequence[str]) -> tuple[str, ...]:
    """The partition columns with their names as in the schema. Raises SchemaMismatchError."""
    found = []
    for name in partition_by:
        column = schema.find(name)
        if column is None:
            raise SchemaMismatchError(
                f"Partition column {name!r} is not among the columns, which are {', '.join(schema.names)}. Add it, or "
                "choose other partition columns."
            )
        nested = isinstance(column.data_type, (StructType, ArrayType, MapType))
        if nested or str(column.data_type) in ("variant", "void"):
            raise SchemaMismatchError(f"Column {name} of type {column.data_type} cannot partition a table.")
        found.append(column.name)
    if len(set(found)) != len(found):
        raise SchemaMismatchError(f"partition_by names a column twice: {', '.join(partition_by)}.")
    if found and len(found) == len(schema.fields):
        raise SchemaMismatchError("Every column is a partition column; at least one must remain for the data.")
    return tuple(found)


def directory(values: Mapping[str, str | None]) -> str:
    """The Hive-style directory for partition values, such as ``a=1/b=x``; empty if there are no partition values. The
    directories are only a convention: readers take the values from the log, never from a path."""
    return "/".join(f"{_escape(name)}={HIVE_NULL if v is None else _escape(v)}" for name, v in values.items())


def _escape(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if ord(c) < 32 or c in _ESCAPED else c for c in text)


def values_in_directories(path: str) -> dict[str, str | None]:
    """The partition values in the Hive directories ``a=1/b=x`` of a file's path, as a map from column names to strings,
    in order. Empty values and Hive's name for null become null. Returns an empty dict if no directory name has this
    form.

    Used only for directories without a log. Raises ValueError if only some directories have this form, if a name is
    empty or occurs twice, and if percent-encoded text is not UTF-8.
    """
    segments = path.split("/")[:-1]
    if not any("=" in segment for segment in segments):
        return {}
    values: dict[str, str | None] = {}
    for segment in segments:
        name, equals, text = segment.partition("=")
        name, value = _unescape(name), _unescape(text)
        if not equals:
            raise ValueError(f"its directory {segment!r} does not have the form name=value, as the others do")
        if not name or name in values:
            raise ValueError(f"its directories give {name!r} " + ("twice" if name else "as the name of a column"))
        values[name] = None if value in ("", HIVE_NULL) else value
    return values


def inferred_type(values: Iterable[str | None]) -> PrimitiveType:
    """Infer the type of a partition column from all its values: integer, long or date if every non-null string can be
    parsed as that type, else string."""
    found = {kind for text in values if (kind := _kind_of(text)) is not None}
    if found == {"integer", "long"}:
        return PrimitiveType("long")
    return PrimitiveType(found.pop() if len(found) == 1 else "string")


def _kind_of(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        if _WHOLE.fullmatch(text):
            return "integer" if -(1 << 31) <= int(text) < 1 << 31 else "long" if abs(int(text)) < 1 << 63 else "string"
        if _ISO_DATE.fullmatch(text):
            datetime.date.fromisoformat(text)
            return "date"
    except ValueError:
        pass
    return "string"


def _unescape(text: str) -> str:
    return urllib.parse.unquote(text, errors="strict")
