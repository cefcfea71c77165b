"""Whose a request is: the ways in which callers can prove it, together."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltalog.server.access.certificates import CertificateSettings
from deltalog.server.access.oidc import OidcSettings
from deltalog.server.access.sigv4 import SigV4Settings
from deltalog.server.access.token_lookup import TokenSettings


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """How callers prove who they are. ``certificates``, ``oidc``, ``sigv4``: None if callers cannot prove it in this
    way."""

    tokens: TokenSettings = field(default_factory=TokenSettings)
    certificates: CertificateSettings | None = None
    oidc: OidcSettings | None = None
    sigv4: SigV4Settings | None = None
