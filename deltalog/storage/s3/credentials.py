"""Credentials that botocore's resolver finds: of roles, containers, instances, web identities and profiles.

Where they are found, when they are refreshed, and by which requests, is decided by botocore. Each signature takes the
current ones. They are looked for anew when a service says that they are no longer valid.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from deltalog.storage.s3.signing import Credentials
from deltalog.storage.secrets import keep_out_of_client_logs

# A service that refuses what valid credentials may not do would have them looked for at each request.
_BETWEEN_RENEWALS_SECONDS = 60.0


class CredentialsNotFoundError(Exception):
    """There are none, or they could not be retrieved (``is_passing``). The text shows nothing of them."""

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class ResolvedCredentials:
    """What botocore's resolver finds for this process and its environment, looked for at the first request.

    All clients of a process share them, so that a table that is opened again costs no request for credentials.
    A forked process looks for its own: a lock of its parent may be held by a thread that it does not have.
    """

    def __init__(self, region: str, profile: str | None = None) -> None:
        self._region = region  # of the service that gives credentials to a role
        self._profile = profile  # that of the options: none of the environment counts then
        self._found: tuple[int, _Found] | None = None

    def current(self) -> Credentials:
        """Those to sign a request with now. Raises CredentialsNotFoundError."""
        return self._here().current()

    def renew(self, used: Credentials, *, is_certain: bool) -> bool:
        """Whether there are others than those, which a service has refused; ``is_certain``: because they are no longer
        valid, and not perhaps for another reason. Raises CredentialsNotFoundError."""
        return self._here().renew(used, is_certain)

    def _here(self) -> _Found:
        found = self._found
        if found is None or found[0] != os.getpid():
            names = [name for name in os.environ if name.startswith("AWS_") or name in ("BOTO_CONFIG", "HOME")]
            variables = frozenset((name, os.environ[name]) for name in names)
            found = self._found = os.getpid(), _shared(os.getpid(), self._region, self._profile, variables)
        return found[1]


@functools.lru_cache(maxsize=16)
def _shared(process: int, region: str, profile: str | None, variables: frozenset[tuple[str, str]]) -> _Found:
    return _Found(functools.partial(_resolve, region, profile))


def _session(profile: str | None) -> Any:
    from botocore.session import Session  # a tenth of a second that other requests do without

    keep_out_of_client_logs()
    return Session(profile=profile)


def _resolve(region: str, profile: str | None) -> Any:
    session = _session(profile)
    session.set_config_variable("region", region)
    return session.get_credentials()


def profile_settings(profile: str | None) -> Mapping[str, Any] | None:
    """What the files of profiles say for one of them, or for the one that the environment chooses; None where botocore
    cannot read that."""
    try:
        return dict(_session(profile).get_scoped_config())
    except Exception:  # s3fs raises it
        return None


class _Found:
    """``resolve`` makes credentials of botocore, or None; each time from the beginning."""

    def __init__(self, resolve: Callable[[], Any]) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._source: Any = None
        # Apart: objects that a HEAD may not see must not delay the renewal of credentials that have expired.
        self._next_renewal_s = {True: 0.0, False: 0.0}

    def current(self) -> Credentials:
        source = self._source
        if source is None:
            with self._lock:
                source = self._source = self._source or self._looked_for()
        return _frozen(source)

    def renew(self, used: Credentials, is_certain: bool) -> bool:
        with self._lock:
            if self._source is not None and _frozen(self._source) != used:
                return True  # another thread, or botocore, has done it
            if time.monotonic() < self._next_renewal_s[is_certain]:
                return False
            self._next_renewal_s[is_certain] = time.monotonic() + _BETWEEN_RENEWALS_SECONDS
            self._source = source = self._looked_for()
            return _frozen(source) != used

    def _looked_for(self) -> Any:
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
        raise CredentialsNotFoundError("botocore's credentials are no plain words", is_passing=False)
    return Credentials(found.access_key, found.secret_key, found.token or None)


def _not_retrieved(error: Exception) -> CredentialsNotFoundError:
    # Its text can quote what a service of credentials answered.
    return CredentialsNotFoundError(f"botocore cannot retrieve credentials ({type(error).__name__})", is_passing=True)


def is_word(text: Any) -> bool:
    """Whether a text can stand in a header as it is."""
    return isinstance(text, str) and text.isascii() and text.strip() == text and (text.isprintable() or not text)


def hidden_by(credentials: Credentials | None) -> Mapping[str, str]:
    """Their texts, to keep out of messages."""
    if credentials is None:
        return {}
    return {"key": credentials.access_key, "secret": credentials.secret_key, "token": credentials.token or ""}
