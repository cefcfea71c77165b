"""The exception classes of ``delta.exceptions``, for programs that catch them."""

from __future__ import annotations

from pyspark.errors import PySparkException


class DeltaConcurrentModificationException(PySparkException):
    """The base class of the errors that report a conflict of a commit with another commit."""


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """Another writer's commit conflicts with this one."""


class MetadataChangedException(DeltaConcurrentModificationException):
    """Another writer changed the schema or the properties of the table."""


class ProtocolChangedException(DeltaConcurrentModificationException):
    """Another writer changed the protocol of the table."""


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Another writer added rows that this transaction would have read."""


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """Another writer deleted rows that this writer has read."""


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """Another writer deleted files that this transaction also deletes."""


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """Another writer recorded the same transaction of the application."""
