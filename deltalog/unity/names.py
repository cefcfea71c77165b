"""Names of tables in a Unity Catalog, and their addresses: ``uc://catalog.schema.table``. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeGuard

from deltalog.errors import CallError

SCHEME = "uc://"
_MOST_BYTES = 255
# The parts of a name are sent in paths. Unity Catalog allows no dots, slashes, blanks or control characters in them.
_PART = re.compile(r"[^\s./\x00-\x1f\x7f\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table in a catalog of a server."""

    catalog: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"

    @property
    def address(self) -> str:
        return f"{SCHEME}{self}"


def is_unity_address(url: object) -> TypeGuard[str]:
    """Whether ``url`` is the address of a table in a Unity Catalog."""
    return isinstance(url, str) and url.startswith(SCHEME)


def parse_address(address: str) -> TableName:
    """The name in an address. Raises CallError."""
    return parse_name(address.removeprefix(SCHEME), address)


def parse_name(name: str, given: str | None = None) -> TableName:
    """A name of three parts, which may be in backticks. ``given``: what the caller wrote, for the message. Raises
    CallError."""
    parts = [part[1:-1] if len(part) > 2 and part[0] == part[-1] == "`" else part for part in name.split(".")]
    if len(parts) != 3 or not all(_PART.fullmatch(part) and len(part.encode()) <= _MOST_BYTES for part in parts):
        raise CallError(
            f"{given or name} is not the name of a table in a Unity Catalog: write uc://catalog.schema.table. No part "
            "may be empty, have a dot, a slash or a blank, or be longer than 255 bytes."
        )
    return TableName(*parts)
