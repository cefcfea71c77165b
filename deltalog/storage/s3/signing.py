"""Signs requests to S3 (AWS Signature Version 4) with botocore's signer, but without botocore's slow session and
client."""

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
    """Credentials for signing, with botocore's attribute names. The repr shows no values."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class _Auth(S3SigV4Auth):  # type: ignore[misc]  # botocore has no types
    def payload(self, request: Any) -> str:
        return str(request.context["body_hash"])

    def add_auth(self, request: Any) -> None:
        """Like botocore's signer, but without DEBUG log records, which would contain the session token."""
        now = datetime.datetime.now(datetime.timezone.utc)
        request.context["timestamp"] = now.strftime(SIGV4_TIMESTAMP)
        self._modify_request_before_signing(request)
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))


def encoded_path(path: str) -> str:
    """Percent-encode a path once; unreserved characters and slashes are kept."""
    return urllib.parse.quote(path, safe="/-_.~")


def encoded_query(arguments: Mapping[str, str]) -> str:
    """Percent-encode query arguments, including arguments with empty values."""
    return urllib.parse.urlencode(arguments, quote_via=urllib.parse.quote, safe="-_.~")


def signed(
    method: str, url: str, headers: Mapping[str, str], body_hash: str, credentials: Credentials, region: str
) -> dict[str, str]:
    """``headers`` with the signature for a request that is sent now.

    The path and query of ``url`` are percent-encoded, and ``headers`` include ``host``. All headers are signed, so that
    no proxy can remove a condition.
    """
    request = AWSRequest(method, url, dict(headers))
    request.context["body_hash"] = body_hash
    _Auth(credentials, "s3", region).add_auth(request)
    return dict(request.headers.items())
