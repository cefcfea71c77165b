"""Finds the endpoint of a request to Unity Catalog's APIs or to deltalog's own API.

The segments of a path are decoded one by one, so that an encoded slash does not split a name.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable

from deltalog.server.unity import administration, delta, general, permissions
from deltalog.server.unity.errors import NotServedError, ResourceNotFoundError
from deltalog.server.unity.service import Endpoint
from deltalog.unity.messages import ROOT

_MOST_SHOWN = 200
# Resources of Unity Catalog that this server does not have.
_NOT_SERVED = frozenset(
    {
        "functions", "volumes", "models", "external-locations", "credentials", "storage-credentials",
        "temporary-volume-credentials", "temporary-model-version-credentials",
    }
)  # fmt: skip


class Router:
    """The endpoints of an API by method and path."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints = tuple(endpoints)
        self._by_length: dict[int, list[tuple[tuple[str, ...], Endpoint]]] = {}
        for each in self.endpoints:
            pattern = tuple(each.path.split("/")[1:])
            self._by_length.setdefault(len(pattern), []).append((pattern, each))

    def find(self, method: str, raw_path: str) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint for a path below the root, and the variable segments. Raises NotServedError,
        ResourceNotFoundError."""
        segments = [urllib.parse.unquote(part) for part in raw_path.split("/")[1:]]
        is_path = False
        for pattern, endpoint in self._by_length.get(len(segments), ()):
            parts = _matched(pattern, segments)
            if parts is not None:
                if endpoint.method == method:
                    return endpoint, parts
                is_path = True
        shown = f"{method} {raw_path[:_MOST_SHOWN]}"
        if segments[:1] and segments[0] in _NOT_SERVED:
            raise NotServedError(f"{shown}: this server has no {segments[0]}.")
        if is_path:
            raise NotServedError(f"{shown}: this server does not offer this method.")
        raise ResourceNotFoundError(f"{shown} does not exist on this server.")


def _matched(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    parts = {}
    for expected, given in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            if not given:
                return None
            parts[expected[1:-1]] = given
        elif expected != given:
            return None
    return parts


ROUTER = Router((*delta.ENDPOINTS, *general.ENDPOINTS, *permissions.ENDPOINTS))
ROUTERS = {ROOT: ROUTER, administration.ROOT: Router(administration.ENDPOINTS)}


def router_of(raw_path: str) -> tuple[Router, str] | None:
    """The router for a path, and the part of the path below the root of its API; None for a path of another API."""
    for root, router in ROUTERS.items():
        if raw_path.startswith(f"{root}/"):
            return router, raw_path.removeprefix(root)
    return None
