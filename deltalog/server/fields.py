"""Decodes the members of a request's JSON object with checked types and lengths. Pure.

A member of the request is decoded when it is used and only if its length is allowed; unused members are never decoded.
The decoded values are kept; the bytes of the request are not.
"""

from __future__ import annotations

import datetime
from typing import TypeVar

import msgspec

from deltalog.errors import CallError

T = TypeVar("T")

_LONGEST_NUMBER = 40
# The most commas in a request, and so about the most members and items that are decoded. A list has at most 100 items.
# Decoding holds the interpreter's lock: 1,000,000 items would stop the whole server for 100 ms.
_MOST_COMMAS = 20_000
# One byte of UTF-8 can take six characters in JSON.
_ESCAPED = 6


def byte_count(text: str) -> int:
    """The length of a string in bytes of UTF-8. The string may contain lone surrogates."""
    return len(text.encode("utf-8", "surrogatepass"))


class Fields:
    """Members by name. All methods raise CallError if a member is missing or has a wrong type or length, and
    msgspec.DecodeError for invalid JSON; null means missing. String lengths are in bytes of UTF-8, as in databases and
    stores. ``said``: all strings that were read from this object and from nested objects."""

    def __init__(
        self, body: bytes | bytearray | msgspec.Raw, what: str = "the request", said: list[str] | None = None
    ) -> None:
        if bytes(memoryview(body)).count(b",") > _MOST_COMMAS:
            raise CallError(f"{what[0].upper()}{what[1:]} has too many members and items.")
        try:
            self._members = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            msgspec.json.decode(body, type=msgspec.Raw)  # checks the syntax of all of it
            raise CallError(f"{what[0].upper()}{what[1:]} is not a JSON object.") from None
        self._what = what
        self.said: list[str] = [] if said is None else said

    def has(self, name: str) -> bool:
        return self._found(name) is not None

    def text(self, name: str, longest: int = 255, shortest: int = 1) -> str:
        found = self.optional_text(name, longest, shortest)
        if found is None:
            raise CallError(f"{name} is missing in {self._what}.")
        return found

    def optional_text(self, name: str, longest: int = 255, shortest: int = 1) -> str | None:
        if (member := self._found(name)) is None:
            return None
        found = _decoded(member, str, _ESCAPED * longest + 2)
        if found is None or not shortest <= byte_count(found) <= longest:
            raise CallError(f"{name} in {self._what} must be text of {shortest} to {longest} bytes.")
        self.said.append(found)
        return found

    def number(self, name: str) -> int:
        member = self._found(name)
        found = None if member is None else _decoded(member, int, _LONGEST_NUMBER)
        if found is None or not 0 <= found < 1 << 63:
            raise CallError(f"{name} in {self._what} must be a non-negative integer.")
        return found

    def optional_number(self, name: str, default: int) -> int:
        return self.number(name) if self.has(name) else default

    def optional_time_ms(self, name: str) -> int | str | None:
        """Convert a time in seconds since 1970-01-01 UTC to milliseconds; a time given as ISO text is returned
        unchanged."""
        member = self._found(name)
        if member is None:
            return None
        if _begins_with(member, b'"'):
            return self.text(name, shortest=0)
        found = _decoded(member, float, _LONGEST_NUMBER)
        if found is None:
            raise CallError(f"{name} in {self._what} must be a time: seconds since 1970-01-01 UTC, or ISO text.")
        try:
            datetime.datetime.fromtimestamp(found, datetime.timezone.utc)
        except (ValueError, OverflowError, OSError):
            raise CallError(f"{name} in {self._what} is out of range for a time.") from None
        return round(found * 1000)

    def objects(self, name: str) -> list[Fields]:
        """A list of 1 to 100 objects."""
        return [Fields(each, f"{name}[{number}]", self.said) for number, each in enumerate(self._items(name, 1))]

    def optional_object(self, name: str) -> Fields | None:
        member = self._found(name)
        return None if member is None else Fields(member, name, self.said)

    def texts(self, name: str, longest: int) -> list[str]:
        """A list of up to 100 strings; empty if the member is missing."""
        found = []
        for item in self._items(name, 0) if self.has(name) else ():
            text = _decoded(item, str, _ESCAPED * longest + 2)
            if text is None or byte_count(text) > longest:
                raise CallError(f"{name} must be a list of texts of at most {longest} bytes.")
            found.append(text)
        self.said += found
        return found

    def _items(self, name: str, shortest: int, longest: int = 100) -> list[msgspec.Raw]:
        member = self._found(name)
        found = None if member is None else _decoded(member, list[msgspec.Raw], len(memoryview(member)))
        if found is None or not shortest <= len(found) <= longest:
            raise CallError(f"{name} in {self._what} must be a list of {shortest} to {longest} items.")
        return found

    def _found(self, name: str) -> msgspec.Raw | None:
        member = self._members.get(name)
        return None if member is None or _begins_with(member, b"null") else member


def _begins_with(member: msgspec.Raw, start: bytes) -> bool:
    return bytes(memoryview(member)[: len(start)]) == start


def _decoded(member: msgspec.Raw, kind: type[T], most_bytes: int) -> T | None:
    """Decode a member as ``kind``; returns None if the member is too long or has another type."""
    if len(memoryview(member)) > most_bytes:
        return None
    try:
        return msgspec.json.decode(member, type=kind)
    except msgspec.ValidationError:
        return None
