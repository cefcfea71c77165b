"""The exception classes of ``deltalake.exceptions``, and the conversion of deltalog's errors to them.

Every error is a DeltaError and therefore a DeltaLogError. Its ``__cause__`` is deltalog's own error, with all
attributes.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from deltalog import errors

__all__ = [
    "CommitFailedError",
    "DeltaError",
    "DeltaProtocolError",
    "SchemaMismatchError",
    "TableNotFoundError",
]

F = TypeVar("F", bound=Callable[..., Any])


class DeltaError(errors.DeltaLogError):
    """The base class of the errors of this package."""

    code = "DELTALAKE_ERROR"


class TableNotFoundError(DeltaError):
    """There is no table at the location."""

    code = "DELTALAKE_TABLE_NOT_FOUND"


class DeltaProtocolError(DeltaError):
    """The table needs a feature that is not supported here, or its log is invalid."""

    code = "DELTALAKE_PROTOCOL_ERROR"


class CommitFailedError(DeltaError):
    """The commit was refused, lost the race against another writer, or has an unknown outcome (``outcome``)."""

    code = "DELTALAKE_COMMIT_FAILED"


class SchemaMismatchError(DeltaError):
    """The data does not fit the table."""

    code = "DELTALAKE_SCHEMA_MISMATCH"


class CallFailedError(DeltaError, ValueError):
    """The call is invalid, for example because of its arguments or the state of the table."""

    code = "DELTALAKE_INVALID_CALL"


class StoreFailedError(DeltaError, OSError):
    """The store failed."""

    code = "DELTALAKE_STORE_FAILED"


class FileMissingError(StoreFailedError, FileNotFoundError):
    """A file does not exist."""

    code = "DELTALAKE_FILE_MISSING"


# An error is converted to the class next to the first of these classes of which it is an instance.
_CLASSES: tuple[tuple[type[errors.DeltaLogError], type[DeltaError]], ...] = (
    (DeltaError, DeltaError),
    (errors.TableNotFoundError, TableNotFoundError),
    (errors.EntityNotFoundError, TableNotFoundError),
    (errors.SchemaMismatchError, SchemaMismatchError),
    (errors.UnsupportedFeatureError, DeltaProtocolError),
    (errors.CorruptTableError, DeltaProtocolError),
    (errors.CommitConflictError, CommitFailedError),
    (errors.InvalidActionError, CommitFailedError),
    (errors.CommitAttemptsExhaustedError, CommitFailedError),
    (errors.CommitStateUnknownError, CommitFailedError),
    (errors.ObjectNotFoundError, FileMissingError),
    (errors.StoreError, StoreFailedError),
    (errors.CallError, CallFailedError),
    (errors.DeltaLogError, DeltaError),
)


# Parts of deltalog's messages, each with the words by which programs recognise deltalake's error for the same problem.
_PHRASES = (
    (r"rows of the source match one row of the table", "duplicate relevant WHEN MATCHED rows:"),
    (r"is NOT NULL, but", "Invalid data found:"),
    (r"There is no column '([^']*)'", r"No field named \1."),
)


def as_deltalake(error: errors.DeltaLogError) -> DeltaError:
    """A deltalog error, converted to one of the exceptions of this module. Its ``outcome`` is kept."""
    if isinstance(error, DeltaError):
        return error
    kind = next(kind for known, kind in _CLASSES if isinstance(error, known))
    found = kind(_in_words_of_deltalake(error))
    found.outcome = error.outcome  # type: ignore[misc]
    return found


def _in_words_of_deltalake(error: errors.DeltaLogError) -> str:
    """The error message, preceded by the words by which programs recognise deltalake's errors."""
    if isinstance(error, errors.TableExistsError):
        return f"Generic error: A table already exists at: {error.message}"
    if isinstance(error, errors.ConstraintViolationError):
        rows = "" if error.violations is None else f"{error.violations} rows failed validation check. "
        return f"Invalid data found: {rows}{error.message}"
    if isinstance(error, (errors.ConcurrentDeleteReadError, errors.ConcurrentDeleteDeleteError)):
        return f"Commit failed: a concurrent transaction deleted data this operation read. {error.message}"
    if isinstance(error, errors.ConcurrentAppendError):
        return f"Commit failed: a concurrent transactions added new data. {error.message}"
    for ours, theirs in _PHRASES:
        found = re.search(ours, error.message)
        if found is not None:
            return f"{found.expand(theirs)} {error.message}"
    if isinstance(error, errors.VersionNotFoundError):
        return f"Invalid table version: {error.message}"
    return error.message


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise deltalog's errors in the block as DeltaErrors."""
    try:
        yield
    except DeltaError:
        raise
    except errors.DeltaLogError as error:
        raise as_deltalake(error) from error


def translating(function: F) -> F:
    """A wrapper of a function; it raises deltalog's errors as DeltaErrors."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        with translated():
            return function(*args, **named)

    return call  # type: ignore[return-value]
