"""Principals by tokens of an OpenID Connect issuer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """An OpenID Connect issuer, and which principal a token of it is of.

    ``issuer``: its URL, which tokens have as ``iss``. ``audience``: what tokens must have in ``aud``. ``jwks_url``: the
    URL of its keys; empty: the issuer's discovery document says it. ``principal_claim``, ``groups_claim``: the claims
    that name the principal and its groups; a dotted name, such as ``realm_access.roles``, is a claim in a claim.
    ``prefix``: is put before the names of principals and groups, so that the issuer cannot name other principals.
    ``admins``, ``admin_groups``: names of administrators and of their groups, with the prefix. ``scope``: the most that
    a token permits, READ, WRITE or ADMIN. ``algorithms``: the accepted signature algorithms, of public keys only.
    ``leeway_seconds``: how much the clocks of issuer and server may differ. ``refresh_seconds``: how old the keys may
    become before they are fetched again. ``max_age_seconds``: how old they may become if the issuer is down.
    ``retry_seconds``: the least time between two fetches, also for unknown keys. ``fetch_seconds``, ``fetch_bytes``:
    the limits of a fetch."""

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
