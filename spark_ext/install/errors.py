"""Errors that belong both to deltalog's error classes and to the classes that programs for delta-spark catch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from pyspark.errors import AnalysisException, PySparkException

import deltalog
from spark_ext.install import delta_exceptions as theirs

# For each of deltalog's errors, the class of delta-spark's error; the first entry that matches is used.
_CLASSES: tuple[tuple[type[deltalog.DeltaLogError], type[PySparkException]], ...] = (
    (deltalog.errors.ConcurrentAppendError, theirs.ConcurrentAppendException),
    (deltalog.errors.ConcurrentDeleteReadError, theirs.ConcurrentDeleteReadException),
    (deltalog.errors.ConcurrentDeleteDeleteError, theirs.ConcurrentDeleteDeleteException),
    (deltalog.errors.ConcurrentTransactionError, theirs.ConcurrentTransactionException),
    (deltalog.errors.MetadataChangedError, theirs.MetadataChangedException),
    (deltalog.errors.ProtocolChangedError, theirs.ProtocolChangedException),
    (deltalog.CommitConflictError, theirs.ConcurrentWriteException),
    (deltalog.errors.NotFoundError, AnalysisException),
    (deltalog.TableExistsError, AnalysisException),
    (deltalog.SchemaMismatchError, AnalysisException),
    (deltalog.UnsupportedFeatureError, AnalysisException),
    (deltalog.CallError, AnalysisException),
)
_ADVICE = {
    deltalog.TableNotFoundError: (
        "{} (DELTA_MISSING_DELTA_TABLE: it is not a Delta table. PATH_NOT_FOUND: Path does not exist, or has no log.)"
    )
}


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise deltalog's errors as errors that are also PySpark's or delta-spark's errors, with the same attributes."""
    try:
        yield
    except PySparkException:
        raise
    except deltalog.DeltaLogError as error:
        kind = next((of_spark for ours, of_spark in _CLASSES if isinstance(error, ours)), None)
        if kind is None:
            raise
        raise _both(error, kind) from error


def _both(error: deltalog.DeltaLogError, kind: type[PySparkException]) -> Exception:
    ours: Any = type(error)
    of_spark: Any = kind
    made: Any = _class_of(ours, of_spark)
    found = made.__new__(made)
    text = error.message
    for each, advice in _ADVICE.items():
        if isinstance(error, each):
            text = advice.format(text)
    Exception.__init__(found, text)
    PySparkException.__init__(found, message=text)
    vars(found).update({**vars(error), "message": text})
    return found  # type: ignore[no-any-return]


@functools.cache
def _class_of(ours: Any, theirs: Any) -> Any:
    name = theirs.__name__
    more = {"__str__": lambda self: self.message, "__module__": theirs.__module__, "__doc__": ours.__doc__}
    return type(name, (ours, theirs), more)
