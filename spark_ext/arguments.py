"""Checks the types of arguments. Pure."""

from __future__ import annotations

from typing import Any, NoReturn

import deltalog
from spark_ext.errors import ArgumentTypeError


def text(what: str, value: Any) -> str:
    """The value if it is a string. ``what``: the argument's name in the message. Raises ArgumentTypeError."""
    return value if isinstance(value, str) else _refuse(what, "a string", value)


def flag(what: str, value: Any) -> bool:
    """The value if it is a bool. Raises as ``text``."""
    return value if isinstance(value, bool) else _refuse(what, "a boolean", value)


def whole(what: str, value: Any, kind: str = "an int") -> int:
    """The value if it is an int. Raises as ``text``."""
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(what, kind, value)
    return value


def expression(what: str, value: Any) -> Any:
    """The value, if it is SQL text or a Spark Column. Raises as ``text``."""
    if isinstance(value, str) or is_column(value):
        return value
    raise ArgumentTypeError(f"{what} must be a Spark SQL Column or a string, not {_named(value)}.")


def is_column(value: Any) -> bool:
    """Whether a value is a Spark Column, classic or Connect."""
    return type(value).__name__ == "Column"


def values(what: str, given: Any) -> dict[str, Any]:
    """The value if it is a dict from column names to expressions. Raises CallError if it is None or empty, otherwise as
    ``text``."""
    if given is None:
        raise deltalog.CallError(f"{what} cannot be None: pass a dict from column names to new values.")
    if not isinstance(given, dict):
        raise ArgumentTypeError(f"{what} must be a dict from column names to new values, not {_named(given)}.")
    if not given:
        raise deltalog.CallError(f"{what} is an empty dict. Set at least one column.")
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
