"""Stores contain the bytes of a table, and create objects exclusively. ``LogStore`` defines the contract of all
stores."""

import typing

from deltalog.lazy_names import lazy_names

if typing.TYPE_CHECKING:
    from deltalog.storage.base import FileMeta, LogStore, PutOutcome
    from deltalog.storage.dynamodb.tables import CommitTable, create_commit_table, describe_commit_table

__all__ = [
    "CommitTable",
    "FileMeta",
    "LogStore",
    "PutOutcome",
    "create_commit_table",
    "describe_commit_table",
]

_MODULES = {
    "CommitTable": "deltalog.storage.dynamodb.tables",
    "FileMeta": "deltalog.storage.base",
    "LogStore": "deltalog.storage.base",
    "PutOutcome": "deltalog.storage.base",
    "create_commit_table": "deltalog.storage.dynamodb.tables",
    "describe_commit_table": "deltalog.storage.dynamodb.tables",
}

if not typing.TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
