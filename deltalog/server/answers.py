"""Converts the result or error of a call to an HTTP response. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalog.errors import (
    CallError,
    CommitAttemptsExhaustedError,
    CommitConflictError,
    CommitStateUnknownError,
    ConcurrentModificationError,
    CorruptTableError,
    DeltaLogError,
    EntityNotFoundError,
    InvalidDataFileError,
    NotFoundError,
    OperationTimeoutError,
    ResourceNotReadyError,
    TableNotFoundError,
    TimestampAheadError,
    TransactionCanceledError,
    TransactionCommitInProgressError,
    TransactionCommittedError,
    UnsupportedFeatureError,
)
from deltalog.server.access.denials import PermissionDeniedError

INTERNAL, TIMEOUT = "InternalServiceException", "OperationTimeoutException"
INVALID, NOT_FOUND, NOT_READY = "InvalidInputException", "EntityNotFoundException", "ResourceNotReadyException"
CANCELED, COMMITTED = "TransactionCanceledException", "TransactionCommittedException"
IN_PROGRESS, CONCURRENT = "TransactionCommitInProgressException", "ConcurrentModificationException"
DENIED = "AccessDeniedException"

# The first row of _NAMES that matches the error is used. The result is the first exception name in this row that the
# operation lists; if it lists none of them, the result is the first name in the row. Errors after which a call can be
# repeated become OperationTimeoutException if the operation lists no more specific exception.
_NAMES: tuple[tuple[tuple[type[DeltaLogError], ...], tuple[str, ...]], ...] = (
    ((PermissionDeniedError,), (DENIED,)),
    ((TransactionCanceledError,), (CANCELED,)),
    ((TransactionCommittedError,), (COMMITTED,)),
    ((TransactionCommitInProgressError,), (IN_PROGRESS, CONCURRENT, TIMEOUT)),
    ((ConcurrentModificationError, CommitConflictError, CommitAttemptsExhaustedError), (CONCURRENT, TIMEOUT)),
    ((OperationTimeoutError, CommitStateUnknownError), (TIMEOUT,)),
    ((EntityNotFoundError, TableNotFoundError), (NOT_FOUND, INVALID)),
    ((InvalidDataFileError, CallError, NotFoundError), (INVALID,)),
    (
        (ResourceNotReadyError, TimestampAheadError, UnsupportedFeatureError, CorruptTableError),
        (NOT_READY, NOT_FOUND, INTERNAL),
    ),
)
_STATUS = {INTERNAL: 500, DENIED: 403}


@dataclass(frozen=True, slots=True)
class Document:
    """A body that is HTML. ``headers``: the headers with which it is sent."""

    html: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. ``body``: a Document, or what is encoded as JSON. ``error``: the name of the exception, if any."""

    status: int
    body: Any
    error: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):
    """A request was refused before any operation ran. ``is_unauthorized``: because its token is missing or wrong."""

    def __init__(self, answer: Answer, *, is_unauthorized: bool = False) -> None:
        super().__init__(answer.error)
        self.answer = answer
        self.is_unauthorized = is_unauthorized


# Matches a file URL, a quoted path, or an unquoted path up to the next blank, but not a store URL such as
# s3://bucket/key.
_PLACE = re.compile(
    r"""(?:sqlite|file|catalog):/+[^\s'",;]*"""
    r"""|(?<=')/[^'\n]+(?=')|(?<=")/[^"\n]+(?=")"""
    r"""|(?<![\w.:/%@+…-])/[^\s/'",;:()]+(?:/[^\s/'",;:()]*)*"""
)


def without_places(text: str, request: str, places: Collection[str]) -> str:
    """Remove the names of this machine's directories from a message, keeping only file names. ``places``: known
    directories; their names may contain blanks. ``request``: text that the caller sent; directory names that occur in
    it are not removed from the message."""
    for place in sorted(places, key=len, reverse=True):
        if place and place not in request:
            text = text.replace(place, f"…/{_last_name(place)}")
    return _PLACE.sub(lambda found: found[0] if found[0] in request else f"…/{_last_name(found[0])}", text)


def _last_name(place: str) -> str:
    return place.rstrip("/.").rpartition("/")[2]


def refusal(status: int, error: str, message: str, **headers: str) -> Answer:
    """The response to a request for which the server has no operation."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"__type": error, "Message": message}, error, named)


def exception_of(error: DeltaLogError, listed: Collection[str]) -> Answer:
    """The response that reports an error: as one of the exceptions ``listed`` for an operation, if one of them fits."""
    name = next((_listed(names, listed) for kinds, names in _NAMES if isinstance(error, kinds)), INTERNAL)
    return refusal(_STATUS.get(name, 400), name, error.message)


def possible(listed: Collection[str]) -> frozenset[str]:
    """The names of all exceptions that ``exception_of`` can give for an operation."""
    return frozenset([INTERNAL, *(_listed(names, listed) for _, names in _NAMES)])


def _listed(names: Sequence[str], listed: Collection[str]) -> str:
    return next((name for name in names if name in listed), names[0])
