"""The settings of a server, and whether they admit whom they should.

Without a token or TLS, the server starts only on loopback, where traffic stays on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from deltalog.errors import CallError
from deltalog.server.access.authentication import AuthenticationSettings
from deltalog.server.addresses import is_loopback
from deltalog.server.connections import shortage
from deltalog.server.limits import Limits
from deltalog.server.observe.settings import AuditSettings, MetricsSettings, TraceSettings
from deltalog.server.secret_files import MIN_TOKEN_LENGTH, check_secret
from deltalog.server.tls import Tls
from deltalog.server.ui.settings import UiSettings
from deltalog.server.unity import sts
from deltalog.server.unity.credentials import Vendor, read_rules
from deltalog.transactions.unity.settings import UnitySettings

_DRAIN_SECONDS = 5.0


@dataclass(slots=True)
class Ending:
    """The times of a shutdown. ``drain_seconds``: the time from the first signal until new connections are refused.
    ``end_seconds``: the time from then until the end.
    """

    drain_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings. ``port`` 0 selects a free port. ``recover_seconds``: the interval between calls of ``recover``; 0
    disables these calls. ``unity``: how Unity Catalog's API is served. ``vendor``: vends credentials to its clients.
    ``drain_seconds``: the time for which the server still serves calls after SIGTERM; None: 5, or 0 on loopback.
    ``end_seconds``: the time that running calls then get to finish. ``watch_seconds``: the interval at which files with
    secrets are checked for changes; 0: they are not. ``log_level``: the lowest level of the events that are logged;
    None leaves logging as it is. ``authentication``: how callers authenticate, besides by ``token``. ``audit``,
    ``metrics``, ``traces``: the settings of these. ``ui``: the settings of the pages for browsers.
    ``is_read_only``: the bearer of ``token`` may change nothing, and the server itself changes nothing in the catalog.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    limits: Limits = field(default_factory=Limits)
    recover_seconds: float = 60
    unity: UnitySettings = field(default_factory=UnitySettings)
    vendor: Vendor = field(default_factory=Vendor)
    drain_seconds: float | None = None
    end_seconds: float = 20
    watch_seconds: float = 10
    log_level: str | None = None
    authentication: AuthenticationSettings = field(default_factory=AuthenticationSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)
    ui: UiSettings = field(default_factory=UiSettings)
    is_read_only: bool = False

    @property
    def is_open(self) -> bool:
        """Whether callers need not authenticate, unless the catalog has tokens."""
        return self.token is None and not self.authentication.is_required

    @property
    def needs_certificate(self) -> bool:
        """Whether clients without a certificate are refused, if certificates are verified."""
        rule = self.authentication.certificates
        return rule is None or rule.required

    @property
    def ending(self) -> Ending:
        default = 0.0 if is_loopback(self.host) else _DRAIN_SECONDS
        return Ending(default if self.drain_seconds is None else self.drain_seconds, self.end_seconds)


def vendor_of(file: Path | None) -> Vendor:
    """The vendor of credentials that a file describes. Raises CallError."""
    return Vendor() if file is None else Vendor(read_rules(file), sts.assume)


def check(settings: Settings, *, has_tokens: bool = False) -> None:
    """Raises CallError for settings that would admit untrusted clients or no clients. ``has_tokens``: whether the
    catalog has, or once had, tokens.
    """
    if settings.token is not None:
        check_secret(settings.token, MIN_TOKEN_LENGTH, "The token")
    if settings.authentication.certificates is not None and (settings.tls is None or settings.tls.client_ca is None):
        raise CallError(
            "Authentication by client certificates needs TLS with the certificate authority of the clients "
            "(--tls-client-ca)."
        )
    if not is_loopback(settings.host) and settings.is_open and not has_tokens and settings.tls is None:
        raise CallError(
            f"{settings.host} is reachable from other machines, and every client of the server may change tables. "
            "Make tokens (deltalog tokens create), or give it one token (--token-file, or DELTALOG_SERVER_TOKEN in the "
            "environment) or TLS (--tls-cert and --tls-key), or serve on 127.0.0.1."
        )


def warnings_of(settings: Settings, *, has_tokens: bool = False) -> list[str]:
    """Warnings about settings that are allowed but unsafe on some networks, or have no full effect on this machine.
    ``has_tokens``: as for ``check``."""
    found = shortage(settings.limits.connections)
    if is_loopback(settings.host):
        return found
    if settings.tls is None:
        found.append("Without TLS the token and all requests can be intercepted.")
    elif settings.is_open and not has_tokens and settings.tls.client_ca is None:
        found.append("With neither a token nor --tls-client-ca every client that reaches the server may change tables.")
    return found
