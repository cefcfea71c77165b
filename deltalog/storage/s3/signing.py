"""Signatures of requests to S3, AWS's version 4, by botocore's signer.

Its parts that load slowly, a session and a client, are not needed for it.
"""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth
from botocore.awsrequest import AWSRequest

UNSIGNED_BODY = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True)
class Credentials:
    """What requests are signed with, under botocore's names. The text of it shows nothing."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class _Auth(S3SigV4Auth):  # type: ignore[misc]  # botocore has no types
    def payload(self, request: Any) -> str:
        return str(request.context["body_hash"])

    def add_auth(self, request: Any) -> None:
        """As botocore's, without the log records at DEBUG, which have the session token in them."""
        now = datetime.datetime.now(datetime.timezone.utc)
        request.context["timestamp"] = now.strftime(SIGV4_TIMESTAMP)
        self._modify_request_before_signing(request)
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))


def encoded_path(path: str) -> str:
    """A path as it stands in a request: all but the unreserved characters and slashes are escaped, once."""
    return urllib.parse.quote(path, safe="/-_.~")


def encoded_query(arguments: Mapping[str, str]) -> str:
    """The arguments of a request as they stand in it, those without a value too."""
    return urllib.parse.urlencode(arguments, quote_via=urllib.parse.quote, safe="-_.~")


def signed(
    method: str, url: str, headers: Mapping[str, str], body_hash: str, credentials: Credentials, region: str
) -> dict[str, str]:
    """The headers of a request that is sent now, with its signature and the headers that belong to it.

    The path and the query of ``url`` are encoded; ``host`` is among the headers. All of them are signed,
    so that nothing on the way can take a condition out.
    """
    request = AWSRequest(method, url, dict(headers))
    request.context["body_hash"] = body_hash
    _Auth(credentials, "s3", region).add_auth(request)
    return dict(request.headers.items())
