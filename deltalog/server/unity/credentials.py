"""Vends credentials for the locations of tables according to rules in a file: static keys, or keys of a role that are
limited to one location.

The file is JSON: a list of rules. Of the rules whose prefix covers a location, the one with the longest prefix applies.
A location without a rule has no credentials, and neither has one on a local disk.

    [{"kind": "static", "prefix": "s3://lake/", "config": {"s3.access-key-id": "…", "s3.secret-access-key": "…"}},
     {"kind": "assume-role", "prefix": "s3://vault/", "role-arn": "arn:aws:iam::123456789012:role/tables"}]

No message has a secret.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from deltalog.errors import CallError
from deltalog.protocol.paths import canonical_url
from deltalog.unity import messages

_STATIC_MS = 60 * 60 * 1000
_MOST_KEPT = 1000
_KEYS = frozenset(
    {"s3.access-key-id", "s3.secret-access-key", "s3.session-token", "azure.sas-token", "gcs.oauth-token"}
)


class _Rule(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", tag_field="kind", forbid_unknown_fields=True):
    """The base class of rules."""

    prefix: str


class Static(_Rule, frozen=True, kw_only=True, tag="static"):
    """The same keys for every location. ``config``: as in responses of the API; empty if clients use their own."""

    config: dict[str, str]

    def __repr__(self) -> str:
        return f"Static({self.prefix!r}, {sorted(self.config)})"


class AssumeRole(_Rule, frozen=True, kw_only=True, tag="assume-role"):
    """Keys of an AWS role, which a session policy limits to a location and an operation. ``access-key-id``,
    ``secret-access-key``: the server's own keys, with which it asks for the role; by default, those of its
    environment."""

    role_arn: str
    external_id: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    duration_seconds: int = 3600

    def __repr__(self) -> str:
        return f"AssumeRole({self.prefix!r}, {self.role_arn!r})"


Rule = Static | AssumeRole
Assume = Callable[[AssumeRole, str, messages.CredentialOperation], tuple[dict[str, str], int]]
"""Assumes a role for a location; returns the keys, and when they expire in ms since 1970."""


def read_rules(file: Path) -> list[Rule]:
    """The rules of a file. Raises CallError, which does not quote the file."""
    try:
        rules = msgspec.json.decode(file.read_bytes(), type=list[Rule])
    except OSError as error:
        raise CallError(f"{file} cannot be read: {error.strerror}.") from None
    except msgspec.ValidationError as error:
        raise CallError(f"{file} is not a list of rules for credentials: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise CallError(f"{file} is not JSON.") from None
    for rule in rules:
        if isinstance(rule, Static) and (unknown := rule.config.keys() - _KEYS):
            raise CallError(f"{file}: {rule.prefix} has the unknown keys {', '.join(sorted(unknown))}.")
        if isinstance(rule, AssumeRole) and not (
            rule.prefix.startswith(("s3://", "s3a://")) and 900 <= rule.duration_seconds <= 43_200
        ):
            raise CallError(f"{file}: {rule.prefix} must be on S3, and its keys must last 900 to 43,200 seconds.")
    return rules


class Vendor:
    """Vends credentials for locations. Thread-safe. Keys of roles are kept, and vended again, until half of their
    lifetime is over. ``assume``: assumes roles."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        assume: Assume | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._rules = sorted(rules, key=lambda rule: len(rule.prefix), reverse=True)
        self._assume = assume
        self._clock_ms = clock_ms
        self._kept: collections.OrderedDict[tuple[str, str], tuple[messages.StorageCredential, int]] = (
            collections.OrderedDict()
        )
        self._lock = threading.Lock()

    @property
    def rules(self) -> list[Rule]:
        """The rules, those with the longest prefixes first. They contain secrets."""
        return self._rules

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The locations of the rules."""
        return tuple(rule.prefix for rule in self._rules)

    def vend(self, location: str, operation: messages.CredentialOperation) -> list[messages.StorageCredential]:
        """The credentials for a location. Raises StoreError if a role cannot be assumed. Cost: 1 request to STS, unless
        the keys are still good."""
        rule = next((rule for rule in self._rules if _covers(rule.prefix, location)), None)
        if rule is None or (isinstance(rule, Static) and not rule.config):
            return []
        now_ms = self._clock_ms()
        if isinstance(rule, Static):
            return [_credential(location, operation, now_ms + _STATIC_MS, rule.config)]
        with self._lock:
            kept = self._kept.get((location, operation))
        if kept is not None and now_ms < kept[1]:
            return [kept[0]]
        if self._assume is None:
            return []
        config, expires_ms = self._assume(rule, location, operation)
        made = _credential(location, operation, expires_ms, config)
        with self._lock:
            self._kept[location, operation] = made, now_ms + (expires_ms - now_ms) // 2
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return [made]


def _credential(
    location: str, operation: messages.CredentialOperation, expires_ms: int, config: dict[str, str]
) -> messages.StorageCredential:
    return messages.StorageCredential(
        prefix=location, operation=operation, expiration_time_ms=expires_ms, config=dict(config)
    )


def _covers(prefix: str, location: str) -> bool:
    """Whether a location equals a prefix or lies below it."""
    base = canonical_url(prefix).rstrip("/")
    place = canonical_url(location)
    return place == base or place.startswith(f"{base}/")
