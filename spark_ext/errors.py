"""Errors that are subclasses of both deltalog's and PySpark's errors, so that programs can catch either.

The PySpark class of each error is the class that delta-spark raises for the same call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException, UnsupportedOperationException

import deltalog


class ArgumentTypeError(deltalog.CallError, TypeError):
    """An argument has the wrong type."""

    code = "INVALID_ARGUMENT_TYPE"


class _AlsoOfSpark(deltalog.DeltaLogError):
    """An error of deltalog that is also an error of PySpark. Both base classes are initialised, because PySpark's
    errors store a message of their own."""

    def __post_init__(self) -> None:
        Exception.__init__(self, self.message)
        PySparkException.__init__(self, message=self.message)

    def __str__(self) -> str:
        return self.message


class ExpressionError(_AlsoOfSpark, deltalog.CallError, AnalysisException):
    """Spark cannot resolve an expression or a statement: a column does not exist, or types do not match. The
    ``__cause__`` is Spark's error."""

    code = "INVALID_EXPRESSION"


class SqlSyntaxError(_AlsoOfSpark, deltalog.CallError, ParseException):
    """Text is not a valid expression, type or statement of Spark SQL. The ``__cause__`` is Spark's error."""

    code = "INVALID_SYNTAX"


class ExistsError(_AlsoOfSpark, deltalog.TableExistsError, AnalysisException):
    """A table already exists at the location of the new table."""


class MissingTableError(_AlsoOfSpark, deltalog.TableNotFoundError, AnalysisException):
    """There is no table to replace."""


class ColumnKindError(_AlsoOfSpark, deltalog.UnsupportedFeatureError, UnsupportedOperationException):
    """A kind of column that spark_ext cannot create."""


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Convert Spark's errors about the SQL text or the columns of a call to errors of this module. ``what``: the call
    and its table, for the message."""
    try:
        yield
    except deltalog.DeltaLogError:
        raise
    except ParseException as error:
        raise SqlSyntaxError(f"{what}: Spark cannot parse it: {_text(error)}") from error
    except AnalysisException as error:
        raise ExpressionError(f"{what}: {_text(error)}") from error
    except PySparkException as error:
        if _is_about_the_call(error):
            raise ExpressionError(f"{what}: {_text(error)}") from error
        raise


def _is_about_the_call(error: PySparkException) -> bool:
    """Whether PySpark refused the arguments before it started a job. PySpark raises errors about arguments as its key,
    type, value and attribute errors."""
    return isinstance(error, (KeyError, TypeError, ValueError, AttributeError))


def _text(error: Any) -> str:
    return str(error).partition(";\n")[0].strip().rstrip(".") + "."
