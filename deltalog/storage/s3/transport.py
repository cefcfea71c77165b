"""Transport: the interface that sends requests for the objects of one bucket and interprets their errors.

There are two. ``direct_transport`` signs and sends requests for single objects and listings itself;
``botocore_transport`` supports every request, option and kind of credentials. Methods have the same names, arguments
and results as in botocore. Errors returned by the service have the attribute ``response`` with status and code, as in
botocore.

tests/unit/storage/s3/test_transports.py checks both transports against this contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltalog.storage.base import PutOutcome
from deltalog.storage.remote import outcome_of_status
from deltalog.storage.request_limit import SLOW_STATUSES

# The limit of one attempt. Without this limit, a server that receives or sends one byte at a time could block the
# caller almost forever.
REQUEST_SECONDS = 60
_SLOWEST_BYTES_PER_SECOND = 1 << 20

AT_ONCE_BYTES = 16 << 20

# A function that is called with the key of an object and the error that reading the object raised. Raises, or returns
# to count the object as empty.
Failed = Callable[[str, Exception], None]


class LeftToBotocore(Exception):
    """The request needs a feature that only botocore implements. The request had no effect.

    ``is_passing``: whether the exception applies only to this request, not to later requests.
    """

    def __init__(self, message: str, *, is_passing: bool = False) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class Transport(ABC):
    """Sends requests for the objects of one bucket. Thread-safe.

    All methods raise LeftToBotocore if only the botocore transport can send the request.
    """

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """The URL of the server. Cost: no request."""

    def takes(self, method: str, arguments: Mapping[str, Any]) -> bool:
        """Whether ``call`` supports the method with these arguments."""
        return True

    @abstractmethod
    def call(self, method: str, **arguments: Any) -> Any:
        """Send a request that is safe to repeat, with retries after transient errors."""

    @abstractmethod
    def read(
        self, key: str, byte_range: str = "", etag: str = "", size_bytes: int = 0
    ) -> tuple[bytes, Mapping[str, Any]]:
        """The bytes of an object or of a range of it, and the ``ContentRange`` and ``ETag`` of the response. Truncated
        downloads are retried. Waits while too many reads of the client are in progress. ``size_bytes``: the length of
        the range."""

    @abstractmethod
    def read_many(self, keys: Sequence[str], byte_range: str, size_bytes: int, failed: Failed) -> list[bytes]:
        """``read`` of several objects, 32 at a time. If ``failed`` returns, the object counts as empty. If the caller
        is interrupted, or ``failed`` raises, running reads are cancelled and no other is started."""

    def put_once(
        self, key: str, data: bytes, conditions: Mapping[str, str], seconds: float
    ) -> tuple[PutOutcome, Exception | None]:
        """Send a PUT with conditions (``IfNoneMatch``, ``IfMatch``) once, with a time limit of ``seconds``. Returns the
        outcome and the error that caused it, if any. Raises the error if the PUT had no effect."""
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
        """Whether a PUT that failed without a response may have taken effect."""

    def _outcome_of(self, error: Exception) -> PutOutcome | None:
        status = status_of(error)
        if status is not None:
            return outcome_of_status(status)
        return PutOutcome.UNKNOWN if self._may_have_landed(error) else None


def limit_seconds(body: bytes = b"") -> float:
    """The time limit for one attempt to send a request with this body."""
    return REQUEST_SECONDS + len(body) / _SLOWEST_BYTES_PER_SECOND


def is_sent_at_once(size_bytes: int) -> bool:
    """Whether a body is sent without waiting for ``100 Continue``, which would cost a round trip. A larger body does
    wait, because uploading a body that is then refused would cost more than the round trip."""
    return size_bytes <= AT_ONCE_BYTES


def status_of(error: BaseException) -> int | None:
    """The HTTP status of an error response. s3fs translates such errors to various Python errors, whose cause is the
    original error."""
    response = _response_of(error)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def code_of(error: BaseException) -> str:
    """The code of an error response, empty if there is none."""
    return str(_response_of(error).get("Error", {}).get("Code", ""))


def is_slow(error: Exception) -> bool:
    """Whether the service throttled the request."""
    return status_of(error) in SLOW_STATUSES


def _response_of(error: BaseException) -> Mapping[str, Any]:
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        if isinstance(response, Mapping):
            return response
    return {}
