"""Cancels Spark jobs when their caller is interrupted, and explains why a job failed."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import deltalog
from spark_ext.session.settings import is_connect

T = TypeVar("T")

# How long to wait until the tasks of a cancelled job have ended.
_END_S = 20.0

# Java exceptions in Spark's messages that report a failing file system on an executor.
_OF_THE_STORE = re.compile(
    r"\bjava\.[\w.]+: [^\n]*(No space left on device|Disk quota exceeded|File too large|Read-only file system"
    r"|Input/output error|Permission denied|Mkdirs failed to create)"
)
# The PySpark errors that Spark Connect raises for failures without a class of their own. All other PySpark errors are
# caused by the query itself. Classic Spark raises Py4J gateway errors for failures that have no error class of their
# own.
_OF_NO_CLASS = ("SparkConnectGrpcException", "SparkException", "UnknownException")
# An error of a Python worker that contains this text was raised by a Python function of the query. Spark 3.5 has no
# error class for exceptions of Python functions in a write.
_OF_PYTHON = "org.apache.spark.api.python.PythonException: Traceback "
_MAX_CHARS = 300

MEMORY = "out of memory"
EXECUTORS = "executors were lost"
WORKERS = "a Python worker died"
CANCELLED = "it was cancelled"
GONE = "the session ended"
# Patterns of cluster failures in Spark's messages, and the advice for each. The first match applies: running out of
# memory also causes the loss of executors.
_REASONS: Mapping[str, tuple[re.Pattern[str], str]] = {
    MEMORY: (
        re.compile(
            r"java\.lang\.OutOfMemoryError|\bJava heap space\b"
            r"|UNABLE_TO_ACQUIRE_MEMORY|Container killed by YARN for exceeding|OOMKilled"
        ),
        "Increase the memory of executors and driver, or write fewer rows per task (repartition), then write again.",
    ),
    EXECUTORS: (
        re.compile(r"\bExecutorLostFailure \(|\bFetchFailed\(|\.\w*FetchFailedException\b|\.ExecutorDeadException\b"),
        "Check the logs of the executors, then write again.",
    ),
    WORKERS: (
        re.compile(r"Python worker exited unexpectedly|Python worker failed to connect"),
        "A function of the query ended its process, or the system killed it for lack of memory: check the logs of the "
        "executors.",
    ),
    CANCELLED: (
        re.compile(r"\[SPARK_JOB_CANCELLED\]|\[OPERATION_CANCELED\]|SparkException: Job \d+ cancelled\b"),
        "If that was not intended, write again.",
    ),
    GONE: (
        re.compile(r"SparkContext (?:was|has been) shut ?down|stopped SparkContext|StatusCode\.UNAVAILABLE"),
        "The process of Spark's driver was stopped or killed: check its log, then write again in a new session.",
    ),
}


class JobFailedError(deltalog.DeltaLogError):
    """The cluster failed to run the Spark job of a write. Nothing was committed, and the write can be repeated. The
    ``__cause__`` is Spark's error.

    ``reason``: "out of memory", "executors were lost", "a Python worker died", "it was cancelled", "the session ended".
    """

    code = "SPARK_JOB_FAILED"
    reason: str


def cancelled_with_its_caller(spark: SparkSession, run: Callable[[], T]) -> T:
    """Call ``run``; if it is interrupted, cancel the jobs that it started. Otherwise a KeyboardInterrupt would end
    the call that waits for a job, and the job would continue to write."""
    if not is_connect(spark):
        return _in_thread(run)
    tag = f"deltalog-{uuid.uuid4()}"
    spark.addTag(tag)
    try:
        return run()
    except Exception:
        raise  # Spark itself has already ended the job
    except BaseException:
        with contextlib.suppress(Exception):
            spark.interruptTag(tag)
        raise
    finally:
        with contextlib.suppress(Exception):
            spark.removeTag(tag)


def _in_thread(run: Callable[[], T]) -> T:
    """Call ``run`` in a thread. On Ctrl-C PySpark calls the JVM from the main thread to cancel all jobs of a classic
    session; if that thread were already waiting for a response from the JVM, it could mix up the two responses."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def answer() -> None:
        try:
            answers.append(run())
        except BaseException as error:
            errors.append(error)

    thread = InheritableThread(target=answer)
    thread.start()
    try:
        thread.join()
    except BaseException:
        thread.join(_END_S)
        raise
    if errors:
        raise errors[0]
    return answers[0]


def failure_of_job(error: Exception, directory: str) -> deltalog.DeltaLogError | None:
    """The deltalog error for a job that the cluster failed to run, or that could not write to ``directory``; None for
    errors of the query itself, such as errors that a Python function raises."""
    if isinstance(error, PySparkException) and type(error).__name__ not in _OF_NO_CLASS:
        return None
    text = str(error)
    if _OF_PYTHON in text:
        return None
    found = _OF_THE_STORE.search(text)
    if found is not None:
        return deltalog.StoreError(
            f"{directory}: Spark cannot write the files: {found[1]}. Nothing was committed and the files are removed. "
            "Check the disks of the table and of Spark's temporary files (space, quota, rights, read-only), then write "
            "again.",
            path=directory,
        )
    reason = GONE if _is_of_connection(error) else _reason(text)
    return None if reason is None else _failed(directory, reason, text)


@contextlib.contextmanager
def lost_session_explained(location: str) -> Iterator[None]:
    """For calls before the commit: convert the errors of a session whose process no longer responds into
    JobFailedError. ``location``: the location of the table."""
    try:
        yield
    except Exception as error:
        if not _is_of_connection(error):
            raise
        raise _failed(location, GONE, str(error)) from error


def _failed(place: str, reason: str, text: str) -> JobFailedError:
    return JobFailedError(
        f"{place}: the Spark job failed: {reason} ({_first_line(text)}). Nothing was committed and the files are "
        f"removed. {_REASONS[reason][1]}",
        reason=reason,
    )


def _reason(text: str) -> str | None:
    return next((reason for reason, (pattern, _) in _REASONS.items() if pattern.search(text)), None)


def _is_of_connection(error: Exception) -> bool:
    """Whether the error means that the session's process did not respond."""
    return isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"


def _first_line(text: str) -> str:
    """The first line of Spark's message, without the line about the gateway's call."""
    lines = [line.strip(" :") for line in text.splitlines() if not line.startswith("An error occurred while calling")]
    return lines[0][:_MAX_CHARS] if lines else "no message"
