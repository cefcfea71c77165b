"""The members of a request's JSON object, each of the type that the call needs. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from deltalog.errors import CallError


def byte_count(text: str) -> int:
    """The length of a text in UTF-8; JSON can contain a lone surrogate."""
    return len(text.encode("utf-8", "surrogatepass"))


class Fields:
    """Members by name. All methods raise CallError for one that is missing, or of another type or length; null means
    missing. Lengths of text are in bytes of UTF-8, as in databases and stores."""

    def __init__(self, body: object, what: str = "the request") -> None:
        if not isinstance(body, Mapping):
            raise CallError(f"{what[0].upper()}{what[1:]} is not a JSON object.")
        self._body = body
        self._what = what

    def has(self, name: str) -> bool:
        return self._body.get(name) is not None

    def shown(self, name: str) -> str:
        """The text of a member, "" if it is not text: used before the call is validated."""
        found = self._body.get(name)
        return found if isinstance(found, str) else ""

    def text(self, name: str, longest: int = 255, shortest: int = 1) -> str:
        found = self.optional_text(name, longest, shortest)
        if found is None:
            raise CallError(f"{name} is missing in {self._what}.")
        return found

    def optional_text(self, name: str, longest: int = 255, shortest: int = 1) -> str | None:
        found = self._body.get(name)
        if found is None:
            return None
        if not isinstance(found, str) or not shortest <= byte_count(found) <= longest:
            raise CallError(f"{name} in {self._what} must be text of {shortest} to {longest} bytes.")
        return found

    def number(self, name: str) -> int:
        found = self._body.get(name)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 63:
            raise CallError(f"{name} in {self._what} must be an integer of at least 0.")
        return found

    def optional_number(self, name: str, default: int) -> int:
        return default if self._body.get(name) is None else self.number(name)

    def optional_time_ms(self, name: str) -> int | str | None:
        """Seconds since 1970-01-01 UTC, as milliseconds; or ISO text, unchanged."""
        found = self._body.get(name)
        if found is None or isinstance(found, str):
            return found
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise CallError(f"{name} in {self._what} must be a time: seconds since 1970-01-01 UTC, or ISO text.")
        try:
            datetime.datetime.fromtimestamp(found, datetime.timezone.utc)
        except (ValueError, OverflowError, OSError):
            raise CallError(f"{name} in {self._what} is a time out of range.") from None
        return round(found * 1000)

    def items(self, name: str, longest: int = 100, shortest: int = 1) -> list[Any]:
        found = self._body.get(name)
        if not isinstance(found, list) or not shortest <= len(found) <= longest:
            raise CallError(f"{name} in {self._what} must be a list of {shortest} to {longest} items.")
        return found

    def objects(self, name: str) -> list[Fields]:
        """A list of 1 to 100 objects."""
        return [Fields(each, f"{name}[{number}]") for number, each in enumerate(self.items(name))]

    def optional_object(self, name: str) -> Fields | None:
        found = self._body.get(name)
        return None if found is None else Fields(found, name)
