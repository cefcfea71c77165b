"""The path, the query and the body of a request, checked. Pure."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from deltalog.catalog.records import table_name
from deltalog.errors import CallError
from deltalog.server.unity.errors import BadRequestError
from deltalog.unity.names import parse_name

T = TypeVar("T")

_MOST_PARAMETERS = 20
_MOST_BYTES = 4096


class UnityRequest:
    """A request. ``parts``: the variable segments of its path, by name."""

    def __init__(self, parts: Mapping[str, str], query: bytes, body: bytes | bytearray) -> None:
        self.parts = parts
        self._query = query
        self._body = body

    @property
    def catalog(self) -> str:
        return self.parts["catalog"]

    @property
    def schema(self) -> str:
        return self.parts["schema"]

    @property
    def table(self) -> str:
        """The full name of the table in the path, ``schema.table``. Raises BadRequestError."""
        return full_name(self.schema, self.parts["table"])

    def parameter(self, name: str) -> str | None:
        """A parameter of the query; None if it is missing or empty. Raises BadRequestError."""
        try:
            given = urllib.parse.parse_qs(
                self._query.decode("ascii"), strict_parsing=False, errors="strict", max_num_fields=_MOST_PARAMETERS
            )
        except ValueError:
            raise BadRequestError("The query of the URL cannot be read.") from None
        values = given.get(name, [])
        if len(values) > 1 or any(len(value) > _MOST_BYTES for value in values):
            raise BadRequestError(f"The parameter {name} must be given once, with at most {_MOST_BYTES} characters.")
        return values[0] if values else None

    def number(self, name: str, most: int) -> int:
        """A number in the query, at most ``most``; ``most`` if it is missing, 0 or larger. Raises BadRequestError."""
        text = self.parameter(name)
        if text is None:
            return most
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise BadRequestError(f"{name} must be a non-negative number.")
        return min(int(text), most) or most

    def body(self, kind: type[T]) -> T:
        """The body as a message. Raises BadRequestError."""
        return decoded(self._body, kind)

    def checked_body(self, kind: type[T]) -> T:
        """Like ``body``, but raises CallError for a missing member, for calls that report it as a wrong value."""
        try:
            return msgspec.json.decode(self._body, type=kind)
        except msgspec.ValidationError as error:
            if "missing required field" in str(error):
                raise CallError(f"The body is incomplete: {error}.") from None
            raise BadRequestError(f"The body does not have the required form: {error}.") from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise BadRequestError("The body is not JSON.") from None


def decoded(body: bytes | bytearray, kind: type[T]) -> T:
    """A body as a message. Raises BadRequestError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"The body does not have the required form: {error}.") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise BadRequestError("The body is not JSON.") from None


def full_name(schema: str, table: str) -> str:
    """``schema.table``. Raises BadRequestError."""
    try:
        parsed = parse_name(f"c.{schema}.{table}")
        name = table_name(schema, table)
    except CallError as error:
        raise BadRequestError(error.message) from None
    if (parsed.schema, parsed.table) != (schema, table):
        raise BadRequestError(f"{schema}.{table}: give names without backticks.")
    return name


def two_parts(name: str) -> tuple[str, str]:
    """The catalog, and the name of a schema in it. Raises BadRequestError."""
    catalog, _, schema = name.partition(".")
    full_name(schema, "t")
    return catalog, schema


def three_parts(name: str) -> tuple[str, str]:
    """The catalog, and the full name of a table in it. Raises BadRequestError."""
    parts = name.split(".")
    if len(parts) != 3:
        raise BadRequestError("The name of a table has three parts: catalog.schema.table.")
    return parts[0], full_name(parts[1], parts[2])
