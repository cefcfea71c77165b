"""Transport: how requests for the objects of one bucket are sent, and what their errors mean.

There are two. ``direct_transport`` signs and sends the requests for single objects and listings itself;
``botocore_transport`` takes every request, every option and every kind of credentials. Methods have botocore's names,
arguments and results. An error response has its status and its code in ``response``, as botocore's errors have it.

Both pass tests/unit/storage/s3/test_transports.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltalog.storage.base import PutOutcome
from deltalog.storage.remote import outcome_of_status
from deltalog.storage.request_limit import SLOW_STATUSES

# Without it a server that takes a body, or sends an answer, byte by byte would block the caller without limit.
REQUEST_SECONDS = 60
_SLOWEST_BYTES_PER_SECOND = 1 << 20

AT_ONCE_BYTES = 16 << 20

# Called with the key of an object and the error of its read: raises, or accepts the error.
Failed = Callable[[str, Exception], None]


class LeftToBotocore(Exception):
    """The service requires something that only botocore implements. The request had no effect.

    ``is_passing``: this request only, and not those after it.
    """

    def __init__(self, message: str, *, is_passing: bool = False) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class Transport(ABC):
    """Requests for the objects of one bucket. Threads may share it.

    All methods raise LeftToBotocore where only the other transport can send the request.
    """

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """Where requests go. Cost: no request."""

    def takes(self, method: str, arguments: Mapping[str, Any]) -> bool:
        """Whether ``call`` knows a method with these arguments."""
        return True

    @abstractmethod
    def call(self, method: str, **arguments: Any) -> Any:
        """A request that may be repeated, and is after transient errors."""

    @abstractmethod
    def read(
        self, key: str, byte_range: str = "", etag: str = "", size_bytes: int = 0
    ) -> tuple[bytes, Mapping[str, Any]]:
        """An object or a range of it, and ``ContentRange`` and ``ETag`` of the response. A download that is cut off is
        repeated. It waits while the client has too many reads under way. ``size_bytes``: the length of the range."""

    @abstractmethod
    def read_many(self, keys: Sequence[str], byte_range: str, size_bytes: int, failed: Failed) -> list[bytes]:
        """Like ``read``, for several objects, 32 at a time. Where ``failed`` accepts an error, the object counts as
        empty. If the caller is interrupted, or ``failed`` raises, those under way end, and no other begins."""

    def put_once(
        self, key: str, data: bytes, conditions: Mapping[str, str], seconds: float
    ) -> tuple[PutOutcome, Exception | None]:
        """One PUT under conditions (``IfNoneMatch``, ``IfMatch``), sent once, with a time limit of ``seconds``. Returns
        how it ended, and the error that says so; raises the error where it had no effect."""
        try:
            self._send_once(key, data, conditions, seconds)
        except LeftToBotocore:
            raise
        except Exception as error:
            outcome = self._outcome_of(error)
            if outcome is None:
                raise
            return outcome, error
        return PutOutcome.COMMITTED, None

    @abstractmethod
    def _send_once(self, key: str, data: bytes, conditions: Mapping[str, str], seconds: float) -> None: ...

    @abstractmethod
    def _may_have_landed(self, error: Exception) -> bool:
        """Whether a PUT that failed without a response may have been carried out."""

    def _outcome_of(self, error: Exception) -> PutOutcome | None:
        status = status_of(error)
        if status is not None:
            return outcome_of_status(status)
        return PutOutcome.UNKNOWN if self._may_have_landed(error) else None


def limit_seconds(body: bytes = b"") -> float:
    """How long one attempt of a request with this body may take."""
    return REQUEST_SECONDS + len(body) / _SLOWEST_BYTES_PER_SECOND


def is_sent_at_once(size_bytes: int) -> bool:
    """Whether a body is sent without waiting for the server's consent (``100 Continue``), which is one more round trip.
    The refusal of a larger one would waste more than that."""
    return size_bytes <= AT_ONCE_BYTES


def status_of(error: BaseException) -> int | None:
    """The HTTP status of a response. s3fs turns it into various Python errors, and keeps it in their cause."""
    response = _response_of(error)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def code_of(error: BaseException) -> str:
    """The code of an error response; empty where there is none."""
    return str(_response_of(error).get("Error", {}).get("Code", ""))


def is_slow(error: Exception) -> bool:
    """Whether the service refused a request because there are too many."""
    return status_of(error) in SLOW_STATUSES


def _response_of(error: BaseException) -> Mapping[str, Any]:
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        if isinstance(response, Mapping):
            return response
    return {}
