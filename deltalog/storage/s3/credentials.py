"""Sources of credentials that change while a store is open.

``ResolvedCredentials`` gets them from botocore's resolver, for roles, containers, instances, web identities and
profiles. botocore decides on the source of the credentials, and when and how to refresh them. Other sources are passed
as the storage option ``credentials``. Each signature uses the current credentials. If a service reports that the
credentials are no longer valid, the source renews them.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from deltalog.storage.client_logs import keep_out_of_client_logs
from deltalog.storage.s3.signing import Credentials

# The pause between renewals. Without this pause, credentials that are valid but denied access would be resolved again
# at every request.
_BETWEEN_RENEWALS_SECONDS = 60.0
# The methods of requests that change nothing.
READING = frozenset({"GET", "HEAD"})


class CredentialsNotFoundError(Exception):
    """There are no credentials, or they could not be retrieved; in the latter case ``is_passing`` is true. The message
    contains no secrets."""

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class CredentialSource(ABC):
    """Credentials that change over time. Thread-safe. ``is_botocore``: whether botocore finds the credentials by itself
    if this source fails."""

    is_botocore = False

    @abstractmethod
    def current(self, *, writes: bool = False) -> Credentials:
        """The current credentials for a signature. ``writes``: whether the request changes something; a source may have
        other credentials for such requests. Raises CredentialsNotFoundError."""

    @abstractmethod
    def renew(self, used: Credentials, *, is_certain: bool) -> bool:
        """Get other credentials after a service rejected ``used``. Returns whether the credentials have changed.
        ``is_certain``: whether the service said that the credentials are invalid; otherwise it may have refused the
        request for another reason. Raises CredentialsNotFoundError."""


class ResolvedCredentials(CredentialSource):
    """The credentials that botocore's resolver finds for this process and its environment; they are resolved at the
    first request.

    All clients in a process share these credentials, so reopening a table needs no request for credentials. A
    forked process resolves its own credentials, because a lock may be held by a thread that exists only in its parent.
    """

    is_botocore = True

    def __init__(self, region: str, profile: str | None = None) -> None:
        self._region = region  # the region of STS, which issues credentials for roles
        self._profile = profile  # the profile in the options; it overrides the profile in the environment
        self._cached: tuple[int, _CachedCredentials] | None = None

    def current(self, *, writes: bool = False) -> Credentials:
        return self._here().current()

    def renew(self, used: Credentials, *, is_certain: bool) -> bool:
        """Resolve the credentials again; see CredentialSource."""
        return self._here().renew(used, is_certain)

    def _here(self) -> _CachedCredentials:
        found = self._cached
        if found is None or found[0] != os.getpid():
            names = [name for name in os.environ if name.startswith("AWS_") or name in ("BOTO_CONFIG", "HOME")]
            variables = frozenset((name, os.environ[name]) for name in names)
            found = self._cached = os.getpid(), _shared(os.getpid(), self._region, self._profile, variables)
        return found[1]


@functools.lru_cache(maxsize=16)
def _shared(
    process: int, region: str, profile: str | None, variables: frozenset[tuple[str, str]]
) -> _CachedCredentials:
    return _CachedCredentials(functools.partial(_resolve, region, profile))


def _session(profile: str | None) -> Any:
    from botocore.session import Session  # the import takes 0.1 s and is rarely needed

    keep_out_of_client_logs()
    return Session(profile=profile)


def _resolve(region: str, profile: str | None) -> Any:
    session = _session(profile)
    session.set_config_variable("region", region)
    return session.get_credentials()


def profile_settings(profile: str | None) -> Mapping[str, Any] | None:
    """The settings of a profile in the config files; if ``profile`` is None, the profile that the environment selects.
    Returns None if botocore cannot read the config files."""
    try:
        return dict(_session(profile).get_scoped_config())
    except Exception:  # requests then go through s3fs; s3fs raises the error
        return None


class _CachedCredentials:
    """Credentials that are resolved on first use and on renewal. ``resolve`` runs botocore's resolver from scratch and
    returns its credentials or None."""

    def __init__(self, resolve: Callable[[], Any]) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._source: Any = None
        # The time of the next renewal is kept separately for each value of ``is_certain``, so that HEADs that are
        # denied access do not delay the renewal of expired credentials.
        self._next_renewal_s = {True: 0.0, False: 0.0}

    def current(self) -> Credentials:
        source = self._source
        if source is None:
            with self._lock:
                source = self._source = self._source or self._resolve_source()
        return _frozen(source)

    def renew(self, used: Credentials, is_certain: bool) -> bool:
        with self._lock:
            if self._source is not None and _frozen(self._source) != used:
                return True  # another thread or botocore has already renewed the credentials
            if time.monotonic() < self._next_renewal_s[is_certain]:
                return False
            self._next_renewal_s[is_certain] = time.monotonic() + _BETWEEN_RENEWALS_SECONDS
            self._source = source = self._resolve_source()
            return _frozen(source) != used

    def _resolve_source(self) -> Any:
        try:
            source = self._resolve()
        except Exception as error:
            raise _not_retrieved(error) from None
        if source is None:
            raise CredentialsNotFoundError("botocore finds no credentials", is_passing=False)
        return source


def _frozen(source: Any) -> Credentials:
    try:
        found = source.get_frozen_credentials()
    except Exception as error:
        raise _not_retrieved(error) from None
    if not all(is_word(each) for each in (found.access_key, found.secret_key, found.token or "")):
        raise CredentialsNotFoundError(
            "botocore's credentials contain characters that a header cannot contain", is_passing=False
        )
    return Credentials(found.access_key, found.secret_key, found.token or None)


def _not_retrieved(error: Exception) -> CredentialsNotFoundError:
    # The error's own text may quote the response of a credential service.
    return CredentialsNotFoundError(f"botocore cannot retrieve credentials ({type(error).__name__})", is_passing=True)


def is_word(text: Any) -> bool:
    """Whether ``text`` is safe as a header value, that is, printable ASCII without surrounding white space."""
    return isinstance(text, str) and text.isascii() and text.strip() == text and (text.isprintable() or not text)


def hidden_by(credentials: Credentials | None) -> Mapping[str, str]:
    """The credentials as options for ``Secrets``, which redacts them."""
    if credentials is None:
        return {}
    return {"key": credentials.access_key, "secret": credentials.secret_key, "token": credentials.token or ""}
