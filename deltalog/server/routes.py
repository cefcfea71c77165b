"""From the method and the path of a request to its call."""

from __future__ import annotations

import functools
import logging
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from deltalog.errors import DeltaLogError
from deltalog.server.access import rules
from deltalog.server.access.rules import Rule
from deltalog.server.answers import Answer, Refused, exception_of, refusal
from deltalog.server.calls import Call, Needs, Request
from deltalog.server.exchange import Exchange
from deltalog.server.lakeformation import OPERATIONS
from deltalog.server.openapi import document as openapi
from deltalog.server.ui import calls as pages
from deltalog.server.unity import errors as unity_errors
from deltalog.server.unity import router as api_router
from deltalog.server.unity.requests import UnityRequest
from deltalog.server.unity.router import Router
from deltalog.server.unity.service import Endpoint, Service

log = logging.getLogger(__name__)

SHOWN_PATH = 200


@dataclass(frozen=True, slots=True)
class Route:
    """A route. ``access``: what its calls need. ``read``: creates the call from the request. ``explain``: the response
    for an error. ``defer``: the response for a call that had no effect because the server had no time for it; None: as
    for a time-out."""

    name: str
    access: Rule
    read: Callable[[Request], Call]
    explain: Callable[[DeltaLogError], Answer]
    needs: Needs = Needs.TABLE
    defer: Callable[[str], Answer] | None = None


def route_of(method: str, raw_path: str) -> Route | None:
    """The route that handles a request; None for the health check. Raises Refused."""
    parts = [urllib.parse.unquote(part) for part in raw_path.split("/")[1:]]
    if parts in (["health"], ["health", "live"], ["health", "ready"]) and method == "GET":
        return None
    if parts == ["openapi.json"] and method == "GET":
        return _DESCRIPTION
    operation = OPERATIONS.get(parts[0]) if len(parts) == 1 and method == "POST" else None
    if operation is not None:
        explain = functools.partial(exception_of, listed=operation.errors)
        read = operation.read
        return Route(parts[0], operation.access, lambda request: read(request.fields), explain, operation.needs)
    shown = raw_path[:SHOWN_PATH]
    raise Refused(refusal(404, "UnknownOperationException", f"{method} {shown} does not exist on this server."))


def is_page(raw_path: str) -> bool:
    """Whether a path is one of the pages for browsers."""
    return raw_path == pages.ROOT or raw_path.startswith(f"{pages.ROOT}/")


def router_of(raw_path: str, has_pages: bool) -> tuple[Router, str] | None:
    """As the function of this name of the APIs, also for the pages for browsers. ``has_pages``: whether the server has
    them."""
    if has_pages and is_page(raw_path):
        return pages.ROUTER, f"{pages.ROOT}/" if raw_path == pages.ROOT else raw_path
    return api_router.router_of(raw_path)


def unity_route(unity: Service | None, exchange: Exchange, router: Router, path: str) -> Route:
    """The route of a call of Unity Catalog's API, of deltalog's own, or of a page. Raises Refused."""
    if unity is None:
        raise Refused(refusal(404, "UnknownOperationException", "This server does not serve Unity Catalog's API."))
    try:
        endpoint, parts = router.find(exchange.method, path)
    except DeltaLogError as error:
        raise Refused(unity_errors.answer_of(error)) from None
    exchange.names = parts
    answer = unity_errors.answer_to_commit if endpoint.commits else unity_errors.answer_of
    explain = pages.explain if router is pages.ROUTER else functools.partial(answer, missing=endpoint.missing)
    call, defer = functools.partial(_unity_call, unity, endpoint, parts), unity_errors.deferred
    return Route(endpoint.name, endpoint.access, call, explain, endpoint.needs, defer)


def _unity_call(unity: Service, endpoint: Endpoint, parts: Mapping[str, str], request: Request) -> Call:
    """The call of a request of Unity Catalog's API."""
    work = endpoint.read(UnityRequest(parts, request.query, request.body))
    request.body = b""
    return Call(lambda context: work.run(unity.called_by(context.guard, context.manager)), work.table or "")


def explained(route: Route, error: DeltaLogError, request_id: str) -> Answer:
    """Log an error, and return the response that reports it."""
    answer = route.explain(error)
    level = logging.ERROR if answer.status >= 500 else logging.INFO
    log.log(level, "request %s: %s: %s: %s", request_id, route.name, type(error).__name__, error)
    return answer


def _description(request: Request) -> Call:
    return Call(lambda context: msgspec.Raw(openapi.encoded()))


_DESCRIPTION = Route(
    f"GET {openapi.PATH}", rules.ANYONE, _description, functools.partial(exception_of, listed=()), Needs.CATALOG
)
