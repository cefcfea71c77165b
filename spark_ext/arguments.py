"""The types of arguments, checked at the call. Pure."""

from __future__ import annotations

from typing import Any, NoReturn

import deltalog
from spark_ext.errors import ArgumentTypeError


def text(what: str, value: Any) -> str:
    """A text. ``what``: its role, for the message. Raises ArgumentTypeError."""
    return value if isinstance(value, str) else _refuse(what, "a string", value)


def flag(what: str, value: Any) -> bool:
    """True or false. Raises as ``text``."""
    return value if isinstance(value, bool) else _refuse(what, "a boolean", value)


def whole(what: str, value: Any, kind: str = "an int") -> int:
    """A whole number. Raises as ``text``."""
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(what, kind, value)
    return value


def expression(what: str, value: Any) -> Any:
    """SQL text, or a column of Spark. Raises as ``text``."""
    if isinstance(value, str) or is_column(value):
        return value
    raise ArgumentTypeError(f"{what} must be a Spark SQL Column or a string, not {_named(value)}.")


def is_column(value: Any) -> bool:
    """Whether a value is a column of Spark, of a classic session or of one over Connect."""
    return type(value).__name__ == "Column"


def values(what: str, given: Any) -> dict[str, Any]:
    """A dict from names of columns to expressions. Raises CallError where it is None or empty, and as ``text``."""
    if given is None:
        raise deltalog.CallError(f"{what} cannot be None: give a dict from names of columns to their new values.")
    if not isinstance(given, dict):
        raise ArgumentTypeError(
            f"{what} must be a dict from names of columns to their new values, not {_named(given)}."
        )
    if not given:
        raise deltalog.CallError(f"{what} is an empty dict. Give at least one column its new value.")
    for name, value in given.items():
        if not isinstance(name, str):
            raise ArgumentTypeError(f"Keys of dict in {what} must contain only names of columns, not {_named(name)}.")
        if not (isinstance(value, str) or is_column(value)):
            raise ArgumentTypeError(
                f"Values of dict in {what} must contain only SQL text and Columns of Spark, not {_named(value)} (that "
                f"of {name})."
            )
    return given


def _refuse(what: str, kind: str, value: Any) -> NoReturn:
    raise ArgumentTypeError(f"{what} needs to be {kind} but got '{type(value)}'.")


def _named(value: Any) -> str:
    return f"{value!r} of type {type(value).__name__}"
