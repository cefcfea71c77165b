"""Verifies AWS signatures of requests (Signature Version 4, in the Authorization header).

A signature covers the method, the path, the query, the body, and the signed headers, which must include ``host`` and
the time. As with AWS, a signed request can be replayed until its time is too old: a client's two equal requests within
one second have the same signature, so that a replay cannot be told from a second request.

Spec: AWS General Reference, "Create a signed AWS API request".
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
import urllib.parse
from dataclasses import dataclass, field

from deltalog.server.access import token_text
from deltalog.server.access.principals import Head, NotAuthenticatedError

ALGORITHM = "AWS4-HMAC-SHA256"
_AUTHORIZATION = re.compile(
    ALGORITHM + r" +Credential=([A-Z0-9]{20})/([0-9]{8})/([a-z0-9-]{1,64})/([a-z0-9-]{1,64})/aws4_request,"
    r" *SignedHeaders=([a-z0-9!#$%&'*+.^_`|~;-]{1,4096}), *Signature=([0-9a-f]{64})",
    re.ASCII,
)
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MUST_BE_SIGNED = frozenset({"host", "x-amz-date"})


@dataclass(frozen=True, slots=True)
class SigV4Settings:
    """How AWS signatures are verified. ``key_file``: the file with the server's key, at least 32 characters, from which
    the secrets of access keys are derived. ``regions``: the regions for which signatures are accepted; empty: all.
    ``services``: the services for which signatures are accepted. ``window_seconds``: how much the time of a signature
    may differ from the server's clock."""

    key_file: str
    regions: tuple[str, ...] = ()
    services: tuple[str, ...] = ("lakeformation",)
    window_seconds: float = 900


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature in a request. ``scope``: date, region and service. ``request``: the canonical request up to the
    hash of the body. ``body_hash``: the x-amz-content-sha256 of the request; None if it has none.
    """

    access_key_id: str
    scope: tuple[str, str, str]
    time: str
    request: bytes = field(repr=False)
    body_hash: str | None
    value: str = field(repr=False)

    def is_by(self, secret: str, body_hash: str) -> bool:
        """Whether the signature was made with ``secret`` for a body with this hash."""
        canonical = hashlib.sha256(self.request + body_hash.encode()).hexdigest()
        text = "\n".join((ALGORITHM, self.time, "/".join((*self.scope, "aws4_request")), canonical))
        key = f"AWS4{secret}".encode()
        for each in (*self.scope, "aws4_request"):
            key = hmac.new(key, each.encode(), hashlib.sha256).digest()
        made = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        return hmac.compare_digest(made, self.value)


def is_signed(head: Head) -> bool:
    return head.headers.get("authorization", "").startswith(ALGORITHM)


def signature_of(head: Head, settings: SigV4Settings, now_s: float) -> Signature:
    """The signature of a request, after every check that needs neither the secret nor the body. Raises
    NotAuthenticatedError."""
    found = _AUTHORIZATION.fullmatch(head.headers.get("authorization", ""))
    if found is None or not token_text.is_access_key_id(found[1]):
        raise NotAuthenticatedError(
            "The Authorization header is not an AWS signature with an access key of this server."
        )
    id_, date, region, service, signed, value = found.groups()
    time = head.headers.get("x-amz-date", "")
    _check_time(time, date, settings.window_seconds, now_s)
    if service not in settings.services or (settings.regions and region not in settings.regions):
        raise NotAuthenticatedError("The signature is for another service or region.")
    names = signed.split(";")
    if names != sorted(set(names)):
        raise NotAuthenticatedError("The SignedHeaders of the signature are not sorted, or name a header twice.")
    missing = [name for name in (*sorted(_MUST_BE_SIGNED), *names) if name not in head.headers]
    unsigned = [
        name
        for name in sorted(head.headers)
        if (name in _MUST_BE_SIGNED or name.startswith("x-amz-")) and name not in names
    ]
    if missing or unsigned:
        raise NotAuthenticatedError(
            "The signature must cover host and all x-amz-* headers, and only headers that the request has."
        )
    body_hash = head.headers.get("x-amz-content-sha256")
    if body_hash is not None and _HASH.fullmatch(body_hash) is None:
        raise NotAuthenticatedError(
            "The signature must cover the SHA-256 of the whole body: x-amz-content-sha256 is not a SHA-256 in "
            "hexadecimal."
        )
    headers = "".join(f"{name}:{' '.join(head.headers[name].split())}\n" for name in names)
    lines = (
        head.method,
        urllib.parse.quote(head.raw_path, safe="/~"),
        _canonical_query(head.query),
        headers,
        signed,
        "",
    )
    return Signature(id_, (date, region, service), time, "\n".join(lines).encode("latin-1"), body_hash, value)


def _check_time(time: str, date: str, window_seconds: float, now_s: float) -> None:
    if _TIME.fullmatch(time) is None or not time.startswith(date):
        raise NotAuthenticatedError("The time of the signature, in x-amz-date, is missing or malformed.")
    try:
        signed_at = datetime.datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        raise NotAuthenticatedError("The time of the signature, in x-amz-date, is malformed.") from None
    if abs(now_s - signed_at.timestamp()) > window_seconds:
        raise NotAuthenticatedError(
            f"The time of the signature differs from the server's clock by more than {window_seconds:g} s."
        )


def _canonical_query(query: bytes) -> str:
    """The query's parameters, sorted. They stay encoded as the client sent and signed them."""
    pairs = [each.partition("=")[::2] for each in query.decode("latin-1").split("&") if each]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
