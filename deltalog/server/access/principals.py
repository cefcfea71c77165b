"""Principals, and the interface of authenticators."""

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
    """The most that a credential permits, whatever its principal may do."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. ``name``: unique; grants name it. ``groups``: grants to them hold for the principal too. ``is_admin``:
    may make every call on every object. ``credential``: how the caller proved who it is, such as ``token 7f3a`` or
    ``certificate``; it is not secret."""

    name: str
    groups: frozenset[str] = frozenset()
    scope: Scope = Scope.ADMIN
    is_admin: bool = False
    credential: str = "none"


@dataclass(frozen=True, slots=True)
class Head:
    """A request before its body. ``headers``: names in lower case; those that prove whose the request is occur once.
    ``certificate``: the verified certificate of the client, as ``ssl.SSLSocket.getpeercert`` returns it. ``caller``:
    the address of the client."""

    method: str
    raw_path: str
    query: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    certificate: Mapping[str, Any] | None = field(default=None, repr=False)
    caller: str | None = None


@dataclass(frozen=True, slots=True)
class Identified:
    """``check_body``: whether the body is the one that the caller signed; None if the caller signed none. Unless it
    returns True, nothing proves that the request is of ``principal``."""

    principal: Principal
    check_body: Callable[[bytes | bytearray], bool] | None = None


class NotAuthenticatedError(Exception):
    """A request does not prove whose it is. The message is shown to the caller, and has no secret. ``brought``: whether
    the request has something that should prove it."""

    def __init__(self, message: str, *, brought: bool = True) -> None:
        super().__init__(message)
        self.brought = brought


class NotIdentifiedYetError(Exception):
    """Whose a request is cannot be found out now; the caller may repeat it later. The message is shown to the
    caller."""


class Authenticator(Protocol):
    async def identify(self, head: Head) -> Identified:
        """Whose request it is. Raises NotAuthenticatedError; NotIdentifiedYetError, or a DeltaLogError that is not
        shown to the caller, if this cannot be found out now."""
        ...


@dataclass(frozen=True, slots=True)
class Everyone:
    """Every caller is an administrator."""

    principal: Principal = field(default_factory=lambda: Principal("anonymous", is_admin=True))

    async def identify(self, head: Head) -> Identified:
        return Identified(self.principal)


class SharedToken:
    """Whoever has the one token is an administrator."""

    def __init__(self, token: str) -> None:
        self._digest = _digest(token)
        self.principal = Principal("admin", is_admin=True, credential="shared token")

    def is_token(self, text: str) -> bool:
        """Compares in a time that depends neither on how many characters agree nor on the token's length."""
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
        raise CallError(f"A scope is one of {', '.join(Scope.__members__)}, not {name!r}.")
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
