"""Authenticates callers by client certificates.

The TLS library has already verified the certificate's chain up to the configured authority, and its validity period at
the start of the connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.errors import CallError
from deltalog.server.access.principals import (
    NotAuthenticatedError,
    Principal,
    Scope,
    is_name,
    is_principal_name,
    scope_of,
)

_NAMES = {"CN": "commonName", "OU": "organizationalUnitName", "O": "organizationName"}
_ALTERNATIVES = ("DNS", "URI", "email")


@dataclass(frozen=True, slots=True)
class Membership:
    """``group``: the name of a group. ``members``: the names of the principals in this group."""

    group: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """Which principal a verified client certificate is of. ``principal``: the part of the certificate that names the
    principal: ``CN`` of the subject, or ``DNS``, ``URI`` or ``email`` of the subject's alternative names. A certificate
    that has none of these, or several, is refused. ``group``: the part of the subject that names groups of the
    principal, ``OU`` or ``O``; empty: none. ``memberships``: further groups. ``admins``: names of principals who are
    administrators. ``scope``: the most that a certificate permits: READ, WRITE or ADMIN. ``required``: whether callers
    must have a certificate in order to connect, even if they have another proof."""

    principal: str = "CN"
    group: str = ""
    memberships: tuple[Membership, ...] = ()
    admins: tuple[str, ...] = ()
    scope: str = "ADMIN"
    required: bool = True


class CertificateRule:
    """Raises CallError for invalid settings."""

    def __init__(self, settings: CertificateSettings) -> None:
        if settings.principal not in ("CN", *_ALTERNATIVES):
            raise CallError(
                f"The part of a certificate that names the principal must be one of CN, {', '.join(_ALTERNATIVES)}."
            )
        if settings.group not in ("", "OU", "O"):
            raise CallError("The part of a certificate that names groups must be OU, O or empty.")
        self._settings = settings
        self._scope: Scope = scope_of(settings.scope)

    def principal_of(self, certificate: Mapping[str, Any], now_s: float) -> Principal:
        """``certificate``: as ``ssl.SSLSocket.getpeercert`` returns it. Raises NotAuthenticatedError, for example if
        the certificate has expired since its connection was opened.
        """
        settings = self._settings
        if now_s >= ssl.cert_time_to_seconds(certificate["notAfter"]):
            raise NotAuthenticatedError("The client certificate has expired.")
        if settings.principal == "CN":
            names = _of_subject(certificate, "CN")
        else:
            names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == settings.principal]
        if len(names) != 1 or not is_principal_name(names[0]):
            raise NotAuthenticatedError(
                f"The client certificate must have exactly one {settings.principal} that can be the name of a "
                "principal."
            )
        name = names[0]
        groups = set(_of_subject(certificate, settings.group) if settings.group else ())
        if not all(map(is_name, groups)):
            raise NotAuthenticatedError("The client certificate has a group with an invalid name.")
        groups.update(each.group for each in settings.memberships if name in each.members)
        return Principal(name, frozenset(groups), self._scope, name in settings.admins, credential="certificate")


def _of_subject(certificate: Mapping[str, Any], part: str) -> list[str]:
    named = [pair for relative in certificate.get("subject", ()) for pair in relative]
    return [value for kind, value in named if kind == _NAMES[part]]
