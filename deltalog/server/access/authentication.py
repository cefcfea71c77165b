"""Authenticates requests by any of the configured methods.

Only one credential of a request is checked: its token; without a token, its AWS signature; without both, its client
certificate. If that credential is wrong, the request is refused, even if another of its credentials would be accepted.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deltalog.catalog.coordinator import Coordinator
from deltalog.server.access import issued, sigv4, token_text
from deltalog.server.access.certificates import CertificateRule, CertificateSettings
from deltalog.server.access.oidc import OidcIssuer, OidcSettings, looks_like_jwt
from deltalog.server.access.principals import (
    Authenticator,
    Everyone,
    Head,
    Identified,
    NotAuthenticatedError,
    Principal,
    Rejected,
    Scope,
    SharedToken,
    bearer_tokens,
)
from deltalog.server.access.sigv4 import SigV4Settings
from deltalog.server.access.token_lookup import TokenLookup, TokenSettings
from deltalog.server.secret_files import secret_in

_WRONG = "The token is missing or wrong. Send it as 'Authorization: Bearer <token>' or as the AWS session token."
_EXPIRED = "The token has expired."


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """How callers authenticate. ``certificates``, ``oidc``, ``sigv4``: the settings of these methods; None: the method
    is not accepted.
    """

    tokens: TokenSettings = field(default_factory=TokenSettings)
    certificates: CertificateSettings | None = None
    oidc: OidcSettings | None = None
    sigv4: SigV4Settings | None = None

    @property
    def is_required(self) -> bool:
        """Whether callers must authenticate even if the catalog has no tokens."""
        return not (self.certificates is None and self.oidc is None and self.sigv4 is None)


class TokensOfCatalog:
    """Authenticates callers by the tokens in the catalog."""

    def __init__(self, lookup: TokenLookup, clock_s: Callable[[], float]) -> None:
        self._lookup = lookup
        self._clock_s = clock_s

    async def principal_of(self, token: str, caller: str | None) -> Principal:
        """Raises NotAuthenticatedError, NotIdentifiedYetError and the errors of coordinators."""
        id_ = token_text.id_of(token)
        if id_ is None:
            raise NotAuthenticatedError(_WRONG)
        found = await self._lookup.find(id_, caller)
        ended = None if found is not None else self._lookup.ended(id_)
        known, digest = found or ended, token_text.digest_of(token)
        if known is None or known.digest is None or not hmac.compare_digest(known.digest, digest):
            raise NotAuthenticatedError(_WRONG, rejected=Rejected(f"token {id_}", "unknown"))
        if found is None:
            raise NotAuthenticatedError(_WRONG, rejected=Rejected(f"token {id_}", "revoked", known.principal))
        if found.is_expired(int(self._clock_s() * 1000)):
            raise NotAuthenticatedError(_EXPIRED, rejected=Rejected(f"token {id_}", "expired", found.principal))
        return found.identity(id_)


class AccessKeysOfCatalog:
    """Authenticates requests by AWS signatures that were made with access keys in the catalog. Raises CallError if the
    server's key cannot be read.
    """

    def __init__(self, lookup: TokenLookup, settings: SigV4Settings, clock_s: Callable[[], float]) -> None:
        self._lookup = lookup
        self._settings = settings
        self._key = server_key(Path(settings.key_file))
        self._clock_s = clock_s

    async def identify(self, head: Head) -> Identified:
        """Raises as ``TokensOfCatalog.principal_of``."""
        signature = sigv4.signature_of(head, self._settings, self._clock_s())
        id_ = signature.access_key_id
        found = await self._lookup.find(id_, head.caller)
        if found is None or found.salt is None:
            rejected = Rejected(f"access key {id_}", "unknown")
            raise NotAuthenticatedError("The access key is unknown.", rejected=rejected)
        if found.is_expired(int(self._clock_s() * 1000)):
            raise NotAuthenticatedError(_EXPIRED, rejected=Rejected(f"access key {id_}", "expired"))
        secret = token_text.secret_access_key(self._key, id_, found.salt)
        stated = signature.body_hash
        if stated is not None and not signature.is_by(secret, stated):
            raise NotAuthenticatedError("The signature of the request is wrong.")

        def check_body(body: bytes | bytearray) -> bool:
            made = hashlib.sha256(body).hexdigest()
            return hmac.compare_digest(made, stated) if stated is not None else signature.is_by(secret, made)

        return Identified(found.identity(id_), check_body)


class Authentication:
    """All methods of authentication together. ``shared``: the token that makes its bearer an administrator.
    ``shared_scope``: the scope of this token. ``is_open``: whether callers need not authenticate until the first token
    is made in the catalog.

    Raises CallError for invalid settings."""

    def __init__(
        self,
        coordinator: Coordinator,
        settings: AuthenticationSettings | None = None,
        *,
        shared: str | None = None,
        is_open: bool = False,
        shared_scope: Scope = Scope.ADMIN,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        settings = settings or AuthenticationSettings()
        self._settings = settings
        self._clock_s = clock_s
        self._lookup = TokenLookup(coordinator, settings.tokens)
        self._everyone: Authenticator | None = Everyone() if is_open else None
        self._shared_scope = shared_scope
        self._shared = None if shared is None else SharedToken(shared, shared_scope)
        self._tokens = TokensOfCatalog(self._lookup, clock_s)
        self._certificates = None if settings.certificates is None else CertificateRule(settings.certificates)
        self._oidc = None if settings.oidc is None else OidcIssuer(settings.oidc)
        self._keys = None if settings.sigv4 is None else AccessKeysOfCatalog(self._lookup, settings.sigv4, clock_s)

    def prepared(self, settings: AuthenticationSettings, shared: str | None) -> Callable[[], None]:
        """Check other settings, with the files that they name, and return what puts them into effect.
        Raises CallError."""
        token = None if shared is None else SharedToken(shared, self._shared_scope)
        certificates = None if settings.certificates is None else CertificateRule(settings.certificates)
        keys = None if settings.sigv4 is None else AccessKeysOfCatalog(self._lookup, settings.sigv4, self._clock_s)
        is_same = settings.oidc == self._settings.oidc
        oidc = self._oidc if is_same else None if settings.oidc is None else OidcIssuer(settings.oidc)

        def use() -> None:
            before = self._oidc
            self._shared, self._certificates, self._keys, self._oidc = token, certificates, keys, oidc
            self._settings = settings
            self._lookup.reload(settings.tokens)
            if before is not None and before is not oidc:
                before.close()

        return use

    def close(self) -> None:
        self._lookup.close()
        if self._oidc is not None:
            self._oidc.close()

    async def identify(self, head: Head) -> Identified:
        if self._everyone is not None:
            if not await self._lookup.are_required():
                return await self._everyone.identify(head)
            self._everyone = None
        brought = set(bearer_tokens(head.headers))
        if len(brought) > 1:
            raise NotAuthenticatedError("The request brings two different tokens.")
        if brought:
            return await self._by_token(brought.pop(), head)
        if self._keys is not None and sigv4.is_signed(head):
            return await self._keys.identify(head)
        if self._certificates is not None and head.certificate is not None:
            return Identified(self._certificates.principal_of(head.certificate, self._clock_s()))
        raise NotAuthenticatedError(_WRONG, brought=False)

    async def _by_token(self, token: str, head: Head) -> Identified:
        if self._shared is not None and self._shared.is_token(token):
            return Identified(self._shared.principal)
        if token_text.looks_like_token(token):
            return Identified(await self._tokens.principal_of(token, head.caller))
        if self._oidc is not None and looks_like_jwt(token):
            return Identified(await self._oidc.principal_of(token))
        raise NotAuthenticatedError(_WRONG)


def check_authentication(settings: AuthenticationSettings) -> None:
    """Raises CallError for invalid settings, and if a file that they name cannot be read."""
    if settings.certificates is not None:
        CertificateRule(settings.certificates)
    if settings.sigv4 is not None:
        server_key(Path(settings.sigv4.key_file))
    if settings.oidc is not None:
        OidcIssuer(settings.oidc).close()


def server_key(file: Path) -> bytes:
    """The server's key, from which the secrets of access keys are derived. Raises CallError."""
    return issued.check_server_key(secret_in(file))
