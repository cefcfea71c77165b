"""Keeps credentials from storage options, environment variables and locations out of messages and logs."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deltalog.errors import CallError
from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import urllib.parse as urls
else:
    lazy_modules(__name__, urls="urllib.parse")

_SHORTEST_SECRET = 4
_PLAIN_OPTIONS = {"region_name", "profile", "signature_version", "addressing_style"}
# Patterns for the secret parts of connection strings and signed URLs: AccountKey=…;, ?sig=…&
_SECRET_PART = re.compile(r"[^?&;=]*(?:key|sig|secret|token|pass|credential)[^?&;=]*=([^&;]+)", re.IGNORECASE)
# Parameters in the URL of a PostgreSQL database that name files.
_FILES_OF_POSTGRESQL = re.compile(r"(?:^|&)(?:passfile|sslkey)=[^&]*")


# Options whose values are sent in a header or used in a signature.
_CREDENTIALS = frozenset(
    {"key", "secret", "token", "username", "password"}
    | {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}
)
# Environment variables that contain secrets for the clients of AWS, Azure and Google.
_SECRET_VARIABLES = re.compile(
    r"(?:AWS|AZURE|GOOGLE)_\w*(?:SECRET|TOKEN|PASSWORD|_KEY|CONNECTION_STRING)\w*|PGPASSWORD"
)
_LOCATION_VARIABLES = re.compile(r"\w*(?:_FILE|_URI|_URL|_PATH)$")


class Secrets:
    """The secrets in ``options`` and in the environment, for redaction.

    Every string in the options is treated as a secret, except values known to be harmless. In a plain URL, only the
    user and the password are secret; a signed URL or a connection string is secret as a whole, and so is each secret
    part of it. A secret is recognised in three forms: verbatim, as Python's ``repr`` formats it, and
    percent-encoded."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._texts = _spellings(_secrets_in(options))

    def without(self, text: str) -> str:
        """The text with each secret replaced by ``***``."""
        candidates = (name for name in os.environ if _SECRET_VARIABLES.fullmatch(name))
        names = (name for name in candidates if not _LOCATION_VARIABLES.fullmatch(name))
        for secret in (*self._texts, *_spellings(os.environ[name] for name in names)):
            text = text.replace(secret, "***")
        return text

    def reason(self, error: Exception) -> str:
        """The redacted message of an error."""
        return self.without(f"{type(error).__name__}: {error}")

    def cause(self, error: Exception) -> Exception | None:
        """The error itself, for use as a ``__cause__``; None if its text or that of one of its causes contains a
        secret."""
        cause: BaseException | None = error
        while cause is not None:
            if self.without(str(cause)) != str(cause):
                return None
            cause = cause.__cause__ or cause.__context__
        return error


class Reopen(functools.partial[Any]):
    """A picklable callable that opens a store with the given options. The repr of the call does not show the
    options."""

    def __repr__(self) -> str:
        return f"Reopen({getattr(self.func, '__name__', self.func)})"


def check_endpoint(url: str | None, option: str = "endpoint_url") -> None:
    """Raises CallError if an endpoint URL contains a user or password."""
    if _userinfo(url or ""):
        raise CallError(f"The {option} has a user or password in it. Give them as key= and secret=.")


def check_credentials(options: Mapping[str, Any]) -> None:
    """Raises CallError for an AWS credential with a control character, or with white space at its ends, such as the
    line break of the file that it was read from. No service accepts a credential with such characters, and error
    messages of client libraries would contain the credential. The environment is checked if the options contain no
    credentials."""
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
    """Raises CallError if a URL contains a password, or a signature or key in its query, because locations appear in
    messages. Cost: none."""
    scheme, mark, rest = url.partition("://")
    user, _, password = rest.partition("/")[0].rpartition("@")[0].partition(":")
    query = rest.partition("?")[2]
    if scheme.endswith(("postgresql", "postgres")):
        query = _FILES_OF_POSTGRESQL.sub("", query)
    if mark and (password or _SECRET_PART.search(query)):
        place = (f"{user}:***@" + rest.rpartition("@")[2] if password else rest).partition("?")[0]
        raise CallError(
            f"The location {scheme}://{place} was given with credentials in its URL, which would be in every message. "
            "Give it without, and the credentials as options of the storage. A URL that is signed for one object is no "
            "table."
        )


def check_dictionaries(options: Mapping[str, Any]) -> None:
    """Raises CallError if an option named ``*_kwargs`` is not a dictionary."""
    for name, value in options.items():
        if name.endswith("_kwargs") and not (value is None or isinstance(value, Mapping)):
            raise CallError(f"The storage option {name} must be a dictionary, not {type(value).__name__}.")


def _spellings(secrets: Iterable[str]) -> list[str]:
    """The forms in which secrets can occur in messages (verbatim, ``repr``, percent-encoded), longest first."""
    spellings: set[str] = set()
    for text in secrets:
        for each in (text, text.strip()):
            if len(each) >= _SHORTEST_SECRET:
                spellings |= {each, repr(each)[1:-1], urls.quote(each, safe=""), urls.quote_plus(each)}
    return sorted(spellings, key=len, reverse=True)


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
