"""Principals, and the interface that all methods of authentication implement."""

from __future__ import annotations

import enum
import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from deltalog.errors import CallError

NAME_LENGTH = 255
# The part of an IPv6 address that belongs to one network, whose owner has as many addresses as it likes.
_NETWORK_BITS = 64


class Scope(enum.IntEnum):
    """The most that a credential permits, even if its principal has more rights."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. ``name``: unique; grants name it. ``groups``: grants to them apply to the principal too. ``is_admin``:
    whether it may make every call on every object. ``credential``: how the caller proved who it is, such as ``token
    7f3a`` or ``certificate``; it is not secret.
    """

    name: str
    groups: frozenset[str] = frozenset()
    scope: Scope = Scope.ADMIN
    is_admin: bool = False
    credential: str = "none"


@dataclass(frozen=True, slots=True)
class Head:
    """A request before its body. ``headers``: by their names in lower case; headers with credentials occur once.
    ``certificate``: the verified certificate of the client, as ``ssl.SSLSocket.getpeercert`` returns it. ``caller``:
    the address of the client.
    """

    method: str
    raw_path: str
    query: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    certificate: Mapping[str, Any] | None = field(default=None, repr=False)
    caller: str | None = None


@dataclass(frozen=True, slots=True)
class Identified:
    """The principal of a request. ``check_body``: returns whether the body is the one that was signed; None if the
    request is not signed. A signed request is authenticated only once this has returned True.
    """

    principal: Principal
    check_body: Callable[[bytes | bytearray], bool] | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A credential that was rejected. ``credential``: as for ``Principal``. ``reason``: ``revoked``, ``expired`` or
    ``unknown``. ``principal``: whose it was; None if the request does not prove that.
    """

    credential: str
    reason: str
    principal: str | None = None

    def __str__(self) -> str:
        owner = "" if self.principal is None else f" of {self.principal}"
        return f"{self.credential}{owner} is {self.reason}"


class NotAuthenticatedError(Exception):
    """A request has no valid credential. The message is shown to the caller, and contains no secret. ``brought``:
    whether the request has a credential at all. ``rejected``: what the server's logs say about the credential.
    """

    def __init__(self, message: str, *, brought: bool = True, rejected: Rejected | None = None) -> None:
        super().__init__(message)
        self.brought = brought
        self.rejected = rejected


class NotIdentifiedYetError(Exception):
    """A request cannot be authenticated now, for example because the catalog does not answer; the caller may repeat it
    later. The message is shown to the caller.
    """


class Authenticator(Protocol):
    async def identify(self, head: Head) -> Identified:
        """Authenticate a request. Raises NotAuthenticatedError; NotIdentifiedYetError, or a DeltaLogError that is not
        shown to the caller, if the request cannot be authenticated now.
        """
        ...


@dataclass(frozen=True, slots=True)
class Everyone:
    """Accepts every request as one of an administrator."""

    principal: Principal = field(default_factory=lambda: Principal("anonymous", is_admin=True))

    async def identify(self, head: Head) -> Identified:
        return Identified(self.principal)


class SharedToken:
    """Accepts one token, whose bearer is an administrator."""

    def __init__(self, token: str, scope: Scope = Scope.ADMIN) -> None:
        self._digest = _digest(token)
        self.principal = Principal("admin", scope=scope, is_admin=True, credential="shared token")

    def is_token(self, text: str) -> bool:
        """Whether ``token`` is the shared token. The time of the comparison depends neither on how many characters
        agree nor on the token's length.
        """
        return hmac.compare_digest(_digest(text), self._digest)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def is_principal_name(name: object) -> bool:
    """Whether something can be the name of a principal. Grants name groups as ``group:<name>``."""
    return is_name(name) and not str(name).startswith("group:")


def is_name(name: object) -> bool:
    """Whether something can be the name of a group."""
    return isinstance(name, str) and 0 < len(name) <= NAME_LENGTH and name.isprintable() and name == name.strip()


def scope_of(name: str) -> Scope:
    """Raises CallError."""
    if name.upper() not in Scope.__members__:
        raise CallError(f"A scope must be one of {', '.join(Scope.__members__)}, not {name!r}.")
    return Scope[name.upper()]


def bearer_tokens(headers: Mapping[str, str]) -> list[str]:
    """The tokens of a request. ``headers``: names in lower case."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    given = [credentials.strip()] if scheme.lower() == "bearer" else []
    return [each for each in (*given, headers.get("x-amz-security-token", "")) if each]


def network_of(address: str | None) -> str:
    """The addresses that are counted as one client: an IPv4 address, or a network of IPv6."""
    if address is None or ":" not in address:
        return address or ""
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> _NETWORK_BITS << _NETWORK_BITS, _NETWORK_BITS)))
