"""Redacts the credentials in storage options from messages and logs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from deltalog.errors import CallError

_SHORTEST_SECRET = 4
_PLAIN_OPTIONS = {"region_name", "profile", "signature_version", "addressing_style"}
# Of connection strings and signed URLs: AccountKey=…;, ?sig=…&
_SECRET_PART = re.compile(r"[^?&;=]*(?:key|sig|secret|token|pass|credential)[^?&;=]*=([^&;]+)", re.IGNORECASE)


class Secrets:
    """All text in the options except values known to be harmless; of a plain URL its user and password, of a signed URL
    and of a connection string also each part separately."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        found = {text for text in _secrets_in(options) if len(text) >= _SHORTEST_SECRET}
        self._texts = sorted(found, key=len, reverse=True)

    def without(self, text: str) -> str:
        """The text with stars instead of the secrets."""
        for secret in self._texts:
            text = text.replace(secret, "***")
        return text

    def reason(self, error: Exception) -> str:
        """The redacted message of an error."""
        return self.without(f"{type(error).__name__}: {error}")

    def cause(self, error: Exception) -> Exception | None:
        """The error as the cause of ours, unless it or one of its causes contains a secret."""
        cause: BaseException | None = error
        while cause is not None:
            if self.without(str(cause)) != str(cause):
                return None
            cause = cause.__cause__ or cause.__context__
        return error


class Reopen(functools.partial[Any]):
    """A call that opens something with options, pickled with them. Its text shows none of them."""

    def __repr__(self) -> str:
        return f"Reopen({getattr(self.func, '__name__', self.func)})"


def check_endpoint(url: str | None, option: str = "endpoint_url") -> None:
    """Raises CallError when there is a user or a password in an endpoint."""
    if _userinfo(url or ""):
        raise CallError(f"The {option} has a user or password in it. Give them as key= and secret=.")


def check_dictionaries(options: Mapping[str, Any]) -> None:
    """Raises CallError when an option of nested options is not a dictionary."""
    for name, value in options.items():
        if name.endswith("_kwargs") and not (value is None or isinstance(value, Mapping)):
            raise CallError(f"The storage option {name} must be a dictionary, not {type(value).__name__}.")


def _secrets_in(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _secrets_in(each, str(key))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _secrets_in(each, name)
    elif isinstance(value, bytes):
        yield from _secrets_in(value.decode(errors="replace"), name)
    elif isinstance(value, str) and name not in _PLAIN_OPTIONS:
        parts = _SECRET_PART.findall(value)
        yield from (*parts, *_userinfo(value).split(":"))
        if parts or "://" not in value:
            yield value


def _userinfo(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition("@")[0]
