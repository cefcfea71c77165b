"""The head of a request, checked before anything is done for it. Pure."""

from __future__ import annotations

import base64
import binascii
import urllib.parse
from collections.abc import Mapping, Sequence

from deltalog.server.answers import DENIED, Refused, refusal

_SINGLE = frozenset({"authorization", "host", "content-length"})


def headers_of(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers, by their names in lower case. Raises Refused if a header for routing or authentication occurs twice: a
    proxy and this server could use different ones of the two.
    """
    found: dict[str, str] = {}
    for name, value in raw:
        lower = name.decode("latin-1").lower()
        if lower in found and (lower in _SINGLE or lower.startswith("x-amz-")):
            raise Refused(refusal(400, "BadRequestException", f"{lower} occurs twice.", connection="close"))
        found[lower] = value.decode("latin-1")
    return found


def length_of(headers: Mapping[str, str]) -> int:
    """The declared length of the body."""
    return int(headers.get("content-length", "0"))


def check_framing(version: str | None, headers: Mapping[str, str]) -> None:
    """Refuse a request with ambiguous framing. A proxy and this server could disagree on where such a request ends,
    which enables request smuggling.

    Spec: RFC 9112, sections 6.1 and 6.3."""
    if "transfer-encoding" not in headers:
        return
    if "content-length" in headers:
        message = "A request must not have both Content-Length and Transfer-Encoding."
    elif version == "1.0":
        message = "An HTTP/1.0 request must not have Transfer-Encoding."
    else:
        return
    raise Refused(refusal(400, "BadRequestException", message, connection="close"))


def check_origin(headers: Mapping[str, str], hosts: frozenset[str] | None) -> None:
    """Refuse requests from web pages, because a server on loopback trusts all processes of the machine, including
    browsers."""
    if "origin" in headers:
        raise Refused(refusal(403, DENIED, "This server does not answer web pages."))
    if hosts is not None and _host_name(headers.get("host", "")) not in hosts:
        raise Refused(refusal(403, DENIED, f"Call this server as {' or '.join(sorted(hosts))}."))


def check_navigation(headers: Mapping[str, str]) -> None:
    """Refuse requests for a page that another site has in its own pages, as an image or a frame. Browsers send a
    password with these too. A link to a page is accepted.

    Spec: Fetch Metadata Request Headers."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return
    if headers.get("sec-fetch-mode") != "navigate" or headers.get("sec-fetch-dest") != "document":
        raise Refused(refusal(403, DENIED, "Only this server's own pages may use its pages."))


def with_password_as_token(headers: dict[str, str]) -> dict[str, str]:
    """For pages: the password that a browser sends is the caller's token. The user name means nothing.

    Spec: RFC 7617."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return headers
    try:
        pair = base64.b64decode(given.strip(), validate=True).decode("latin-1")
    except (ValueError, binascii.Error):
        return headers
    return {**headers, "authorization": f"Bearer {pair.partition(':')[2]}"}


def _host_name(host: str) -> str | None:
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname
    except ValueError:
        return None
