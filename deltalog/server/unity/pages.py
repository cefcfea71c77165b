"""Page tokens: the listing, and the key after which it continues. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from deltalog.server.unity.errors import BadRequestError
from deltalog.server.unity.requests import UnityRequest

T = TypeVar("T")

MOST_RESULTS = 50


def page(
    request: UnityRequest, listing: str, find: Callable[[str, int], Sequence[T]], key: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """The items of the requested page, and the token of the next page. ``find``: returns at most so many items whose
    keys follow a key. Raises BadRequestError for a wrong token or number."""
    token, limit = request.parameter("page_token"), request.number("max_results", MOST_RESULTS)
    found = find("" if token is None else _after(listing, token), limit + 1)
    if len(found) <= limit:
        return found, None
    return found[:limit], _token(listing, key(found[limit - 1]))


def _token(listing: str, after: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((listing, after))).decode().rstrip("=")


def _after(listing: str, token: str) -> str:
    try:
        data = base64.urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        given, after = msgspec.json.decode(data, type=tuple[str, str])
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadRequestError("page_token is not one of this server.") from None
    if given != listing:
        raise BadRequestError("page_token belongs to another listing.")
    return after
