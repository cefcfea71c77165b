"""The addresses of the server's listeners."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

S = TypeVar("S", bound=socket.socket)

# The settings of uvicorn for all listeners: HTTP only, nothing about the server in responses, no trust in the headers
# of proxies, and no log of its own.
HTTP_ONLY: Mapping[str, Any] = {
    "ws": "none",
    "loop": "asyncio",
    "lifespan": "off",
    "interface": "asgi3",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
}
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bound(host: str, port: int, backlog: int, make: Callable[[int, int, int], S], failure: str) -> S:
    """A socket that listens. ``make``: makes it from a family, a kind and a protocol. ``failure``: how the message
    begins if the address is not available, such as ``The server cannot listen on``. Raises OSError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = make(family, kind, protocol)
    except OSError as error:
        raise OSError(error.errno, f"{failure} {host}: {error.strerror}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(backlog)
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"{failure} {host} port {port}: {error.strerror}") from None
    return made


def origin_of(scheme: str, listening: socket.socket) -> str:
    """The URL of a listener, without a path."""
    host, port = listening.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
