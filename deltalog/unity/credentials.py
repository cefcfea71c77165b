"""Credentials that a server issues for the files of one table, renewed before they expire.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#get-table-credentials.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from deltalog.arguments import safe_repr
from deltalog.environment import Environment
from deltalog.errors import DeltaLogError
from deltalog.storage.s3.credentials import CredentialsNotFoundError, CredentialSource, is_word
from deltalog.storage.s3.signing import Credentials
from deltalog.unity.calls import TableCalls
from deltalog.unity.messages import CredentialOperation, StorageCredential
from deltalog.unity.rules import S3_KEY, credential_at

log = logging.getLogger(__name__)

# Credentials are renewed this long before they expire or, if their lifetime is short, after three quarters of it.
_EARLY_MS = 5 * 60 * 1000
_PART_OF_LIFE = 0.75
# The pause between renewals, so that a server that issues expired credentials, or the same ones again, is not asked
# before each request to the store.
_PAUSE_MS = 1_000
# Credentials that do not expire are asked for again only if the store refuses them.
_NEVER_MS = 1 << 63
_SECRET, _TOKEN = "s3.secret-access-key", "s3.session-token"


class VendedCredentials(CredentialSource):
    """The credentials for the files of a table: those to read, and from the first write on those to read and write.
    Thread-safe; a pickle has the current credentials, and the token of the server for their renewal.

    ``calls``: the calls of the server for the table. ``operation``: what ``held`` is for. ``held``: the credential that
    was just issued; None if it is asked for at the first use.
    """

    def __init__(
        self,
        calls: TableCalls,
        location: str,
        operation: CredentialOperation,
        held: StorageCredential | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self._calls = calls
        self._location = location
        self._operation = operation
        self._clock_ms = Environment().clock_ms if clock_ms is None else clock_ms
        self._lock = threading.Lock()
        self._held: StorageCredential | None = None
        self._renew_at_ms = self._asked_ms = 0
        if held is not None:
            self._hold(held)

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:  # tasks then get those to write, if they are being asked for
            return VendedCredentials, (self._calls, self._location, self._operation, self._held)

    @safe_repr
    def __repr__(self) -> str:
        # Stores compare their options by this text, so those of two tables of one catalog count as equal.
        return f"VendedCredentials({self._calls.url!r})"

    def current(self, *, writes: bool = False) -> Credentials:
        """The current credentials. Renews them if they expire soon; if the renewal fails, credentials that have not
        expired are used. Cost: none, or 1 request to the server; for the first write 1 more."""
        if writes and self._operation == "READ":
            self._widen()
        held = self._held
        if held is None or self._clock_ms() >= self._renew_at_ms:
            held = self._renewed(held)
        return _signing(held)

    def renew(self, used: Credentials, *, is_certain: bool) -> bool:
        """See CredentialSource. Cost: 1 request to the server, at most one per second."""
        with self._lock:
            if self._held is not None and _signing(self._held) != used:
                return True
            if not is_certain or self._clock_ms() - self._asked_ms < _PAUSE_MS:
                return False
            self._ask(self._operation)
        return self._held is not None and _signing(self._held) != used

    def _widen(self) -> None:
        """Get the credentials to read and write."""
        with self._lock:
            if self._operation == "READ":
                self._ask("READ_WRITE")

    def _renewed(self, before: StorageCredential | None) -> StorageCredential:
        with self._lock:
            if self._held is not None and self._held is not before:
                return self._held
            now_ms = self._clock_ms()
            if self._held is not None and 0 <= now_ms - self._asked_ms < _PAUSE_MS:
                return self._held
            try:
                return self._ask(self._operation)
            except CredentialsNotFoundError:
                if before is None or (before.expiration_time_ms and now_ms >= before.expiration_time_ms > 0):
                    raise
                log.warning("%s: the credentials of %s could not be renewed yet", self._calls.url, self._location)
                self._asked_ms = now_ms
                return before

    def _ask(self, operation: CredentialOperation) -> StorageCredential:
        self._asked_ms = self._clock_ms()
        try:
            found = credential_at(self._calls.credentials(operation), self._location)
        except DeltaLogError as error:
            aim = "write to" if operation == "READ_WRITE" else "read"
            raise CredentialsNotFoundError(
                f"the catalog issues no credentials to {aim} {self._location}: {error.message}", is_passing=True
            ) from None
        if found is None:
            raise CredentialsNotFoundError(f"the catalog has no S3 credentials for {self._location}", is_passing=False)
        self._operation = operation
        return self._hold(found)

    def _hold(self, credential: StorageCredential) -> StorageCredential:
        now_ms, expires_ms = self._clock_ms(), credential.expiration_time_ms
        life_ms = 0 if expires_ms is None else expires_ms - now_ms
        if expires_ms is None:
            self._renew_at_ms = _NEVER_MS
        elif life_ms <= 0:  # the clocks differ, or the server does not say when they expire
            self._renew_at_ms = now_ms + _EARLY_MS
        else:
            self._renew_at_ms = now_ms + int(max(life_ms - _EARLY_MS, life_ms * _PART_OF_LIFE))
        self._held = credential
        return credential


def _signing(credential: StorageCredential) -> Credentials:
    key, secret, token = (credential.config.get(name) or "" for name in (S3_KEY, _SECRET, _TOKEN))
    if not key or not secret or not all(is_word(each) for each in (key, secret, token)):
        raise CredentialsNotFoundError("the catalog's credentials are not those of S3", is_passing=False)
    return Credentials(key, secret, token or None)
