"""Keeps credentials out of messages and logs: those in storage options, in the environment, and in locations."""

from __future__ import annotations

import functools
import logging
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deltalog.errors import CallError

_SHORTEST_SECRET = 4
_PLAIN_OPTIONS = {"region_name", "profile", "signature_version", "addressing_style"}
# Of connection strings and signed URLs: AccountKey=…;, ?sig=…&
_SECRET_PART = re.compile(r"[^?&;=]*(?:key|sig|secret|token|pass|credential)[^?&;=]*=([^&;]+)", re.IGNORECASE)


# Of the options: what goes into a header or a signature.
_CREDENTIALS = frozenset(
    {"key", "secret", "token", "username", "password"}
    | {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}
)
# Of the environment: what clients of AWS, Azure and Google take from it.
_OF_ENVIRONMENT = re.compile(r"(?:AWS|AZURE|GOOGLE)_\w*(?:SECRET|TOKEN|PASSWORD|_KEY|CONNECTION_STRING)\w*")
_NO_SECRETS = re.compile(r"\w*(?:_FILE|_URI|_URL|_PATH)$")


class Secrets:
    """All text in the options except values known to be harmless; of a plain URL its user and password, of a signed URL
    and of a connection string also each part separately; and the credentials in the environment. Each is recognised as
    it is, in Python's spelling of it, and percent-encoded."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._texts = _spellings(_secrets_in(options))

    def without(self, text: str) -> str:
        """The text with stars instead of the secrets."""
        names = (name for name in os.environ if _OF_ENVIRONMENT.fullmatch(name) and not _NO_SECRETS.fullmatch(name))
        for secret in (*self._texts, *_spellings(os.environ[name] for name in names)):
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


def check_credentials(options: Mapping[str, Any]) -> None:
    """Raises CallError for a credential of AWS with a control character, or white space at its ends, such as the line
    break of the file that it was read from: no service takes it, and errors of clients would show it. Those of the
    environment count where the options have none."""
    nested = options.get("client_kwargs")
    given = {**(nested if isinstance(nested, Mapping) else {}), **options}
    found = {f"The storage option {name}": given[name] for name in sorted(_CREDENTIALS & given.keys())}
    if not any(given.get(name) for name in (*_CREDENTIALS, "anon", "profile")):
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        found = {f"The environment variable {name}": os.environ.get(name) for name in names}
    for name, value in found.items():
        if isinstance(value, str) and (value != value.strip() or not value.isprintable()):
            raise CallError(
                f"{name} has a control character, or white space at its beginning or end, perhaps the line break of "
                "the file that it was read from. Give it without. No request was sent."
            )


def check_location(url: str) -> None:
    """Raises CallError when a URL has a password, or a signature or a key as a part of its query: locations are in
    messages. Cost: none."""
    scheme, mark, rest = url.partition("://")
    user, _, password = rest.partition("/")[0].rpartition("@")[0].partition(":")
    if mark and (password or _SECRET_PART.search(rest.partition("?")[2])):
        place = (f"{user}:***@" + rest.rpartition("@")[2] if password else rest).partition("?")[0]
        raise CallError(
            f"The location {scheme}://{place} was given with credentials in its URL, which would be in every message. "
            "Give it without, and the credentials as options of the storage. A URL that is signed for one object is no "
            "table."
        )


class _HeaderFilter(logging.Filter):
    """Takes session tokens, and the credentials in responses, out of the log records of clients."""

    _SECRETS = (
        re.compile(r"""(x-amz-security-token['"]?\s*[:=,]\s*(?:b?['"])?)[^'"\s,)}]+""", re.IGNORECASE),
        re.compile(r"((?:SecretAccessKey|SessionToken|Token|secretAccessKey|sessionToken)>)[^<]+"),
        re.compile(
            r"""((?:SecretAccessKey|SessionToken|Token|secretAccessKey|sessionToken)\\?['"]\s*:\s*\\?b?['"])[^'"\\]+"""
        ),
    )

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = made = record.getMessage()
        except Exception:
            return True  # a handler reports it
        for secret in self._SECRETS:
            made = secret.sub(r"\1***", made)
        if made != text:
            record.msg, record.args = made, ()
        return True


_FILTER = _HeaderFilter()
# They log requests and responses with their headers at DEBUG.
_LOGGERS = ("botocore.auth", "botocore.endpoint", "botocore.parsers", "botocore.httpsession", "botocore.hooks")
_LOGGERS_OF_ASYNC = tuple(name.replace("botocore", "aiobotocore") for name in _LOGGERS)


def keep_out_of_client_logs() -> None:
    """Have the clients of AWS log no session token, at any level. Called before one is used."""
    for name in (*_LOGGERS, *_LOGGERS_OF_ASYNC):
        logging.getLogger(name).addFilter(_FILTER)  # once, however often this is called


def check_dictionaries(options: Mapping[str, Any]) -> None:
    """Raises CallError when an option of nested options is not a dictionary."""
    for name, value in options.items():
        if name.endswith("_kwargs") and not (value is None or isinstance(value, Mapping)):
            raise CallError(f"The storage option {name} must be a dictionary, not {type(value).__name__}.")


def _spellings(secrets: Iterable[str]) -> list[str]:
    """The ways in which texts stand in messages, the longest first."""
    found: set[str] = set()
    for text in secrets:
        for each in (text, text.strip()):
            if len(each) >= _SHORTEST_SECRET:
                found |= {each, repr(each)[1:-1], urllib.parse.quote(each, safe=""), urllib.parse.quote_plus(each)}
    return sorted(found, key=len, reverse=True)


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
