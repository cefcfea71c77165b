"""Principals by client certificates. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Membership:
    """A group and the names of its members."""

    group: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """Which principal a verified client certificate is of. ``principal``: the part of the certificate that names the
    principal: ``CN`` of the subject, or ``DNS``, ``URI`` or ``email`` of the subject's alternative names. A certificate
    with none or several of them is refused. ``group``: the part of the subject that names groups of the principal, such
    as ``OU``; empty: none. ``memberships``: further groups. ``admins``: names of principals who are administrators.
    ``scope``: the most that a certificate permits, READ, WRITE or ADMIN."""

    principal: str = "CN"
    group: str = ""
    memberships: tuple[Membership, ...] = ()
    admins: tuple[str, ...] = ()
    scope: str = "ADMIN"
