"""Requests to the server of a Unity Catalog.

A request that is safe to repeat is sent again, within bounds, if it got no answer, was throttled, or met a failure of
the server. Any other request is sent once: if its outcome is unknown, OperationTimeoutError is raised, and
the caller determines the outcome.

Spec: UC Delta API 1.0, "Error Response Body".
"""

from __future__ import annotations

import ipaddress
import math
import re
import urllib.parse
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from deltalog import deadline
from deltalog.environment import Environment
from deltalog.errors import CallError, CatalogRequestError, CoordinatorError, OperationTimeoutError
from deltalog.storage.secrets import Secrets
from deltalog.unity.messages import ROOT, ErrorResponse
from deltalog.version import VERSION

if TYPE_CHECKING:
    from deltalog.storage.s3.connections import Answer, Connections

_ATTEMPTS = 6
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.1, 3.0
_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 60.0
_THROTTLED = 429
# Statuses of failures that may pass: the request is sent again, if repeating it is safe.
_PASSING = frozenset({500, 502, 503, 504})
_NOT_IMPLEMENTED = 501
RESOURCE_EXHAUSTED = "ResourceExhaustedException"
_MOST_OF_MESSAGE = 500
_TYPE = re.compile(r"[A-Za-z0-9_.]{1,100}")
# The state of a table with very many columns and unpublished commits is smaller than this.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Server:
    """A server of a Unity Catalog. ``url``: the root of its API. ``token``: its bearer token, if it needs one.
    ``ca_file``: the file with the certificate authorities to trust; None for the usual ones."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    @classmethod
    def at(cls, url: str, token: str | None = None, ca_file: str | None = None) -> Server:
        """The server at a URL, which may lack the scheme and the path of the API. Warns of a token that is sent without
        encryption to another machine. Raises CallError."""
        text = url.strip()
        text = text if "://" in text else f"https://{text}"
        try:
            parts = urllib.parse.urlsplit(text)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            is_valid = False
        if is_valid and parts.username is not None:
            raise CallError("The URL of the Unity Catalog contains a user name. Give the token as unity_catalog_token.")
        if not is_valid or parts.query or parts.fragment:
            raise CallError(
                f"{url!r} is not the URL of a Unity Catalog: write https://<host>, or http://<host>:<port>, with or "
                f"without {ROOT}."
            )
        if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token and token):
            raise CallError(
                "The token of the Unity Catalog is empty, has spaces at its ends, or is not printable ASCII."
            )
        if token is not None and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            warnings.warn(
                f"The token of the Unity Catalog is sent to {parts.hostname} without encryption, because its URL "
                "begins with http://. Everybody on the way can read it: use https://.",
                UserWarning,
                stacklevel=2,
            )
        path = parts.path.rstrip("/")
        path = path if path.endswith(ROOT) else f"{path}{ROOT}"
        return cls(f"{parts.scheme}://{parts.netloc}{path}", token, ca_file)


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request that was not refused."""

    status: int
    body: bytes


class HttpClient:
    """Sends requests to one server. Thread-safe; can be pickled."""

    def __init__(self, server: Server, environment: Environment | None = None) -> None:
        self.server = server
        self._environment = environment or Environment()
        self._secrets = Secrets({"token": server.token or ""})
        parts = urllib.parse.urlsplit(server.url)
        self._root, self._netloc = parts.path, parts.netloc

    def __reduce__(self) -> tuple[Any, ...]:
        return HttpClient, (self.server,)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        is_repeatable: bool = True,
    ) -> Response:
        """Send a request and return its response. ``path``: below the root of the API, percent-encoded.

        Raises CatalogRequestError for a refusal; CoordinatorError if the server failed or could not be reached;
        OperationTimeoutError if a request that is not repeatable may have taken effect. Cost: 1 request, at most 6.
        """
        target = f"{self._root}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        for number in range(_ATTEMPTS):
            deadline.check(self.server.url)
            is_last = number + 1 == _ATTEMPTS
            wait_s = min(_FIRST_WAIT_SECONDS * 2**number, _LONGEST_WAIT_SECONDS) * (
                0.5 + self._environment.random() / 2
            )
            try:
                answer = self._exchange(method, target, body, is_repeatable)
            except _NotSent as error:
                if is_last:
                    raise CoordinatorError(f"{error} Nothing was changed.", path=self.server.url) from None
            except _NotAnswered as error:
                if not is_repeatable:
                    raise OperationTimeoutError(
                        f"{error} The request may have taken effect.", path=self.server.url
                    ) from None
                if is_last or error.is_final:
                    raise CoordinatorError(str(error), path=self.server.url) from None
            else:
                if answer.status < 300:
                    return Response(answer.status, answer.body)
                refusal = self._refusal(method, path, answer)
                if not self._is_passing(refusal, is_repeatable) or is_last:
                    raise self._raised(refusal, is_repeatable)
                wait_s = max(wait_s, _retry_after_s(answer.headers.get("retry-after", "")))
            self._environment.sleep(wait_s)
        raise AssertionError("unreachable")

    def _is_passing(self, refusal: CatalogRequestError, is_repeatable: bool) -> bool:
        """Whether to send the request again. A throttled request had no effect, so it may be sent again even if it is
        not safe to repeat."""
        if refusal.status == _THROTTLED:
            return refusal.error_type != RESOURCE_EXHAUSTED
        return is_repeatable and refusal.status in _PASSING

    def _raised(self, refusal: CatalogRequestError, is_repeatable: bool) -> CoordinatorError:
        if is_repeatable or refusal.status < 500 or refusal.status == _NOT_IMPLEMENTED:
            return refusal
        return OperationTimeoutError(f"{refusal.message} The request may have taken effect.", path=self.server.url)

    def _exchange(self, method: str, target: str, body: bytes, is_repeatable: bool) -> Answer:
        from deltalog.storage.s3.connections import (
            IDLE_SECONDS,
            JUST_USED_SECONDS,
            LargeAnswerError,
            Limits,
            NoAnswerError,
            NotConnectedError,
        )

        headers = {"host": self._netloc, "accept": "application/json", "user-agent": f"deltalog/{VERSION}"}
        if body:
            headers["content-type"] = "application/json"
        if self.server.token is not None:
            headers["authorization"] = f"Bearer {self.server.token}"
        limits = Limits(_CONNECT_SECONDS, _ANSWER_SECONDS, _ANSWER_SECONDS, _MOST_BYTES)
        connections = self._connections()

        def exchange(idle_s: float) -> Answer:
            return connections.exchange(method, target, headers, body, limits, most_idle_s=idle_s)

        try:
            try:
                return exchange(IDLE_SECONDS if is_repeatable else JUST_USED_SECONDS)
            except NoAnswerError as error:
                if not is_repeatable or not error.was_kept:
                    raise
                return exchange(-1)  # on a new connection, because the server had closed the idle one
        except NotConnectedError as error:
            raise _NotSent(self._secrets.without(str(error))) from None
        except NoAnswerError as error:
            is_final = isinstance(error, LargeAnswerError)
            raise _NotAnswered(self._secrets.without(str(error)), is_final=is_final) from None

    def _connections(self) -> Connections:
        try:
            from deltalog.storage.s3.connections import Origin, connections_to
        except ModuleNotFoundError as error:
            raise CallError(
                f"A Unity Catalog needs the extra 'unity' ({error}): pip install 'deltalog[unity]'."
            ) from error
        parts = urllib.parse.urlsplit(self.server.url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        ca_file = self.server.ca_file if parts.scheme == "https" else None
        return connections_to(Origin(parts.scheme, parts.hostname or "", port, ca_file))

    def _refusal(self, method: str, path: str, answer: Answer) -> CatalogRequestError:
        error_type, message = _error_of(answer.body)
        if error_type is not None and _TYPE.fullmatch(self._secrets.without(error_type)) is None:
            error_type = None
        shown = self._secrets.without("".join(each if each.isprintable() else " " for each in message))
        return CatalogRequestError(
            f"{self.server.url}: {method} {path} was answered by HTTP {answer.status}"
            f"{f' {error_type}' if error_type else ''}{f': {shown[:_MOST_OF_MESSAGE]}' if shown else '.'}",
            path=self.server.url,
            error_type=error_type,
            status=answer.status,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class _NotSent(Exception):
    """No connection could be established."""


class _NotAnswered(Exception):
    """The request was sent, at least in part, but no complete response arrived. ``is_final``: whether a repetition
    would get no other response."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


class _OlderError(msgspec.Struct, frozen=True):
    """An error response of a call that is not in the UC Delta API."""

    error_code: str
    message: str = ""


def _error_of(body: bytes) -> tuple[str | None, str]:
    """Type and message of an error response; no type if the body is of another kind."""
    try:
        error = msgspec.json.decode(body, type=ErrorResponse).error
        return error.type, error.message
    except msgspec.DecodeError:
        pass
    try:
        older = msgspec.json.decode(body, type=_OlderError)
        return older.error_code, older.message
    except msgspec.DecodeError:
        return None, ""


def _retry_after_s(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), 10 * _LONGEST_WAIT_SECONDS) if math.isfinite(seconds) else 0.0


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
msgspec.json.Decoder(_OlderError)
