"""Literals in SQL text: numbers, strings, times and intervals, as Spark reads them. Pure."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Mapping, Sequence

from deltalog.errors import CallError, InvalidTimestampError
from deltalog.expressions.functions.types import (
    BINARY,
    BYTE,
    DATE,
    DAY_TIME,
    DAYS,
    DOUBLE,
    FLOAT,
    INTEGRAL,
    LONG,
    SHORT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    YEAR_MONTH,
    refuse,
)
from deltalog.expressions.tokens import text_value
from deltalog.expressions.tree import Cast, Expression, Literal
from deltalog.protocol.schema import DataType, DecimalType
from deltalog.protocol.timestamps import parse_iso

_NUMBER = re.compile(r"([0-9.]+)(e[+-]?[0-9]+)?(bd|[yslfd])?", re.IGNORECASE)
_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]*)?")
_MOST_DIGITS = 400  # the largest double has 309
_SUFFIXES: Mapping[str, DataType] = {"y": BYTE, "s": SHORT, "l": LONG, "f": FLOAT, "d": DOUBLE}


def number(text: str, sign: str = "") -> Literal:
    """Parse a number: an integer, a decimal if it has a point, a double if it has an exponent, or the type that its
    suffix specifies. Raises CallError."""
    match = _NUMBER.fullmatch(text)
    if match is None or not text.isascii():
        raise refuse(f"The number {text[:50]}")
    digits, exponent, suffix = sign + match[1], match[2] or "", (match[3] or "").lower()
    if len(digits) > _MOST_DIGITS or len(exponent) > _MOST_DIGITS:  # Python refuses to parse very long integers
        raise refuse(f"A number of {max(len(digits), len(exponent))} digits")
    is_whole = "." not in digits and not exponent
    kind = _SUFFIXES.get(suffix)
    if kind in INTEGRAL:
        if not is_whole:
            raise refuse(f"The number {text[:50]}")
        return Literal(int(digits), kind)
    if kind is not None:
        return Literal(_finite(digits + exponent), kind)
    if suffix == "bd":
        if len(exponent) > 3:
            raise refuse(f"The number {text[:50]}")
        return Literal(decimal.Decimal(digits + exponent))
    if exponent:
        return Literal(_finite(digits + exponent), DOUBLE)
    return Literal(int(digits) if is_whole else decimal.Decimal(digits))


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise CallError(f"{text} is out of the range of a double")
    return value


def text(token: str) -> Literal:
    """Parse a quoted string. Raises CallError."""
    return Literal(text_value(token), None, token.startswith('"'))


def typed(name: str, value: Literal) -> Literal:
    """Parse a string that follows a type name, as in DATE '…', TIMESTAMP '…' and X'…'. Raises CallError."""
    folded, words = name.lower(), str(value.value)
    if folded == "x":
        if not re.fullmatch(r"[0-9a-fA-F]*", words):
            raise CallError(f"X'{words[:50]}' is not binary: it contains characters other than 0 to 9 and A to F")
        return Literal(bytes.fromhex("0" * (len(words) % 2) + words), BINARY)
    kinds = {"date": DATE, "timestamp": TIMESTAMP, "timestamp_ltz": TIMESTAMP, "timestamp_ntz": TIMESTAMP_NTZ}
    if folded not in kinds:
        raise refuse(f"The literal {name.upper()}'…'")
    return _moment(words, kinds[folded])


def read_as(literal: Literal, wanted: DataType) -> Expression | None:
    """The literal that results from CAST of a string literal; None if the cast must be evaluated. Raises CallError."""
    if not isinstance(literal.value, str):
        return None
    if wanted in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return _moment(literal.value, wanted)
    if isinstance(wanted, DecimalType) and _DECIMAL.fullmatch(literal.value):
        sign = "-" if literal.value.startswith("-") else ""
        return Cast(number(literal.value.removeprefix("-"), sign), wanted)
    return None


def _moment(text: str, data_type: DataType) -> Literal:
    try:
        moment = parse_iso(text)
    except InvalidTimestampError:
        form = "yyyy-MM-dd" if data_type == DATE else "yyyy-MM-dd HH:mm:ss[.ffffff][Z]"
        raise CallError(f"{text[:100]!r} is not a literal of the form {form}") from None
    if data_type == DATE:
        return Literal(moment.date())
    if data_type == TIMESTAMP_NTZ:
        if moment.tzinfo is not None:
            raise refuse(f"a zone in the timestamp_ntz {text[:100]!r}")
        return Literal(moment)
    return Literal(moment, TIMESTAMP if moment.tzinfo is None else None)


# ----------------------------------------------------------------------------------------------- intervals

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_MONTHS = {"month": 1, "year": 12}
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_FRACTION = re.compile(r"([+-]?)([0-9]{0,12})(?:\.([0-9]{0,6}))?")
_MOST_MICROS, _MOST_MONTHS = 2**63 - 1, 2**31 - 1


def is_unit(word: str) -> bool:
    """Whether a word is a unit for intervals, such as DAY or DAYS."""
    return _unit(word) in _MICROS or _unit(word) in _MONTHS


def _unit(word: str) -> str:
    return word.lower().removesuffix("s")


def interval(parts: Sequence[tuple[str, str]]) -> Literal:
    """The interval that results from adding numbers with units. Raises CallError for an unknown unit, and for months
    combined with days."""
    micros, months, units = 0, 0, {_unit(unit) for _, unit in parts}
    if not all(map(is_unit, units)):
        raise refuse(f"INTERVAL with {', '.join(sorted(each for each in units if not is_unit(each)))[:100]}")
    for value, unit in parts:
        value = re.sub(r"^--", "", value.strip())
        if _unit(unit) in _MONTHS:
            months += _whole(value) * _MONTHS[_unit(unit)]
        elif _unit(unit) == "second":
            micros += _seconds(value)
        else:
            micros += _whole(value) * _MICROS[_unit(unit)]
    if units & set(_MONTHS):
        if units - set(_MONTHS):
            raise CallError("an INTERVAL combines months or years with days or times, whose lengths vary")
        return _checked(months, _MOST_MONTHS, Literal(months, YEAR_MONTH))
    return _day_time(micros, DAYS if units <= {"day", "week"} else DAY_TIME)


def _day_time(micros: int, kind: DataType) -> Literal:
    _checked(micros, _MOST_MICROS)
    return Literal(datetime.timedelta(microseconds=micros), kind)


def _checked(value: int, most: int, literal: Literal | None = None) -> Literal:
    if abs(value) > most:
        raise CallError("an INTERVAL is out of the range of intervals")
    return literal or Literal(value)


def _whole(value: str) -> int:
    if not _WHOLE.fullmatch(value):
        raise refuse(f"INTERVAL with the number {value[:50]}")
    return int(value)


def _seconds(value: str) -> int:
    match = _FRACTION.fullmatch(value)
    if match is None or not (match[2] or match[3]):
        raise refuse(f"INTERVAL with the number {value[:50]}")
    micros = int(match[2] or 0) * 1_000_000 + int((match[3] or "").ljust(6, "0"))
    return -micros if match[1] == "-" else micros


def interval_of_text(text: str) -> Literal:
    """Parse the string of an interval literal, such as the string in INTERVAL '90 days'. Raises CallError."""
    words = text.split()
    words = words[1:] if words[:1] == ["interval"] else words
    if not words or len(words) % 2:
        raise refuse(f"INTERVAL {text[:50]!r}")
    return interval(list(zip(words[::2], words[1::2], strict=True)))


_FIELDS = ("day", "hour", "minute", "second")


def interval_between(text: str, first: str, last: str) -> Literal:
    """Parse INTERVAL '1 2:03:04.5' DAY TO SECOND, and YEAR TO MONTH. Raises CallError."""
    first, last, bare = _unit(first), _unit(last), text.strip()
    sign = -1 if bare.startswith("-") else 1
    numbers = re.split(r"[ :]", bare.lstrip("+-"))
    if (first, last) == ("year", "month") and re.fullmatch(r"[0-9]{1,9}-[0-9]{1,2}", bare.lstrip("+-")):
        years, months = map(int, bare.lstrip("+-").split("-"))
        if months < 12:
            found = sign * (12 * years + months)
            return _checked(found, _MOST_MONTHS, Literal(found, YEAR_MONTH))
    if first in _FIELDS and last in _FIELDS and _FIELDS.index(first) < _FIELDS.index(last):
        units = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
        form = r"[0-9]{1,9}" + "".join(rf"{' ' if each == 'hour' else ':'}[0-9]{{1,2}}" for each in units[1:])
        form += r"(?:\.[0-9]{1,6})?" if last == "second" else ""
        if re.fullmatch(form, bare.lstrip("+-")):
            later = dict(zip(units[1:], numbers[1:], strict=True))
            if int(later.get("hour", 0)) < 24 and all(float(later.get(each, 0)) < 60 for each in ("minute", "second")):
                parts = [(number, unit) for number, unit in zip(numbers, units, strict=True)]
                micros = sum((_seconds(n) if u == "second" else int(n) * _MICROS[u]) for n, u in parts)
                return _day_time(sign * micros, DAY_TIME)
    raise refuse(f"INTERVAL {text[:50]!r} {first.upper()} TO {last.upper()}")
