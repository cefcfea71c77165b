"""Authenticates callers by the tokens of an OpenID Connect issuer (JSON Web Tokens).

A token is accepted only if it is signed with a key of the issuer, and its ``iss``, ``aud``, ``exp`` and ``nbf`` are
valid. Keys and URLs of keys in the token (``jwk``, ``jku``, ``x5c``, ``x5u``) are ignored.

Spec: RFC 7519, RFC 8725.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.errors import CallError
from deltalog.server.access import jwks
from deltalog.server.access.principals import NotAuthenticatedError, Principal, is_name, is_principal_name, scope_of

_MOST_CHARS = 16 << 10
_MOST_KID = 256
_MOST_GROUPS = 1000


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """An OpenID Connect issuer, and how its tokens are mapped to principals.

    ``issuer``: the URL of the issuer, which must be the ``iss`` of a token. ``audience``: the name that must be in the
    ``aud`` of a token. ``jwks_url``: the URL of the issuer's public keys; empty: it is taken from the issuer's
    discovery document. ``principal_claim``: the claim with the name of the principal. ``groups_claim``: the claim with
    the names of the principal's groups. A dotted name, such as ``realm_access.roles``, is a claim within a claim, here
    and in ``principal_claim``. ``prefix``: a text that is put before the names of principals and groups, so that the
    issuer can name none but its own. ``admins``: the principals who are administrators, named with the prefix.
    ``admin_groups``: the groups whose members are administrators, named with the prefix. ``scope``: the most that a
    token permits: READ, WRITE or ADMIN. ``algorithms``: the accepted signature algorithms; only those with public keys
    are possible. ``leeway_seconds``: how much the clocks of issuer and server may differ. ``refresh_seconds``: how old
    the keys may become before they are fetched again. ``max_age_seconds``: how old the keys may become while they
    cannot be fetched again. ``retry_seconds``: the minimum time between two fetches, even if a token names an unknown
    key. ``fetch_seconds``: the maximum time of a fetch. ``fetch_bytes``: the maximum size of a fetched document."""

    issuer: str
    audience: str
    jwks_url: str = ""
    principal_claim: str = "sub"
    groups_claim: str = "groups"
    prefix: str = ""
    admins: tuple[str, ...] = ()
    admin_groups: tuple[str, ...] = ()
    scope: str = "ADMIN"
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_seconds: float = 30
    refresh_seconds: float = 600
    max_age_seconds: float = 86400
    retry_seconds: float = 10
    fetch_seconds: float = 5
    fetch_bytes: int = 1 << 20


class OidcIssuer:
    """Raises CallError for invalid settings, and if PyJWT is not installed."""

    def __init__(self, settings: OidcSettings, *, fetch: Callable[[str, float, int], Any] = jwks.fetch_json) -> None:
        self._jwt = _pyjwt()
        self._settings = settings
        self._scope = scope_of(settings.scope)
        jwks.check_url(settings.issuer)
        if settings.jwks_url:
            jwks.check_url(settings.jwks_url)
        if not settings.audience:
            raise CallError(
                "OpenID Connect needs the audience: set it to the value that tokens for this server have in aud."
            )
        if not settings.algorithms or not set(settings.algorithms) <= set(jwks.ALGORITHMS):
            raise CallError(f"The algorithms of OpenID Connect must be among {', '.join(jwks.ALGORITHMS)}.")
        limits = jwks.KeyLimits(
            settings.refresh_seconds, settings.max_age_seconds, settings.retry_seconds, settings.fetch_seconds,
            settings.fetch_bytes,
        )  # fmt: skip
        self._keys = jwks.KeySet(settings.issuer, settings.jwks_url, limits, fetch=fetch)

    def close(self) -> None:
        self._keys.close()

    async def principal_of(self, token: str) -> Principal:
        """Raises NotAuthenticatedError, and NotIdentifiedYetError if the issuer's keys cannot be fetched."""
        if len(token) > _MOST_CHARS or not token.isascii():
            raise _refused("it is not a JSON Web Token")
        try:
            header = self._jwt.get_unverified_header(token)
        except (self._jwt.PyJWTError, ValueError, RecursionError, TypeError):
            raise _refused("it is not a JSON Web Token") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise _refused("its algorithm is not accepted")
        if "crit" in header or "b64" in header:
            raise _refused("its header has critical extensions (crit), which are not supported")
        if kid is not None and (not isinstance(kid, str) or len(kid) > _MOST_KID):
            raise _refused("its kid is malformed")
        return self._principal(self._claims(token, algorithm, await self._keys.find(kid, algorithm)))

    def _claims(self, token: str, algorithm: str, key: Any) -> Mapping[str, Any]:
        jwt, settings = self._jwt, self._settings
        try:
            found: Mapping[str, Any] = jwt.decode(
                token, key, algorithms=[algorithm], audience=settings.audience, issuer=settings.issuer,
                leeway=settings.leeway_seconds, options={"require": ["exp", "iss", "aud"]},
            )  # fmt: skip
            return found
        except jwt.ExpiredSignatureError:
            reason = "it has expired"
        except jwt.ImmatureSignatureError:
            reason = "it is not valid yet"
        except jwt.InvalidAudienceError:
            reason = "it is for another audience"
        except jwt.InvalidIssuerError:
            reason = "it is from another issuer"
        except jwt.MissingRequiredClaimError:
            reason = "it lacks exp, iss or aud"
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError):
            reason = "its signature or one of its claims is invalid"
        raise _refused(reason)

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        settings = self._settings
        name = _claim(claims, settings.principal_claim)
        given = _claim(claims, settings.groups_claim) if settings.groups_claim else None
        groups = [] if given is None else [given] if isinstance(given, str) else given
        if not is_name(name) or not is_principal_name(settings.prefix + str(name)):
            raise _refused(f"its claim {settings.principal_claim} is not the name of a principal")
        if settings.principal_claim == "email" and claims.get("email_verified", True) is not True:
            raise _refused("its email address was not verified by the issuer")
        if not isinstance(groups, list) or len(groups) > _MOST_GROUPS:
            raise _refused(f"its claim {settings.groups_claim} is not a list of at most {_MOST_GROUPS} groups")
        # Groups whose names are invalid in grants are left out: nothing can be granted to them.
        named = frozenset(settings.prefix + each for each in groups if is_name(each))
        full = settings.prefix + str(name)
        is_admin = full in settings.admins or not named.isdisjoint(settings.admin_groups)
        return Principal(full, named, self._scope, is_admin, credential="OpenID Connect")


def looks_like_jwt(text: str) -> bool:
    return text.count(".") == 2


def _refused(reason: str) -> NotAuthenticatedError:
    return NotAuthenticatedError(f"The token is not accepted: {reason}.")


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by the dotted names of the claims that it is in."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _pyjwt() -> Any:
    try:
        import jwt
        import jwt.algorithms
    except ImportError as error:
        raise CallError(f"OpenID Connect needs pip install 'deltalog[oidc]' ({error}).") from None
    if not jwt.algorithms.has_crypto:
        raise CallError("OpenID Connect needs pip install 'deltalog[oidc]': cryptography is missing.")
    return jwt
