"""deltalake's Python API over deltalog: a program written for deltalake 1.6 runs with ``import deltalog.deltalake as
deltalake``.

``install()`` also puts these modules into ``sys.modules`` as ``deltalake``, for libraries that import it (polars,
dask-deltatable); ``uninstall()`` undoes that. deltalake itself need not be installed.

A table that is created here has no in-commit timestamps unless its configuration asks for them, so that deltalake can
write it; a table that has them gets them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from deltalog.deltalake.exceptions import DeltaError
from deltalog.deltalake.features import TableFeatures
from deltalog.deltalake.nanoseconds import _NANOSECOND_TIMESTAMPS, enable_nanosecond_timestamps
from deltalog.deltalake.query import QueryBuilder
from deltalog.deltalake.schema import DataType, Field, Schema, VariantType
from deltalog.deltalake.table import DeltaTable, Metadata
from deltalog.deltalake.transaction import CommitProperties, PostCommitHookProperties, Transaction
from deltalog.deltalake.writer import (
    BloomFilterProperties,
    ColumnProperties,
    WriterProperties,
    convert_to_deltalake,
    write_deltalake,
)

#: The version of deltalake whose API this package provides; libraries compare it with the version that they require.
__version__ = "1.6.6"

__all__ = [
    "BloomFilterProperties",
    "ColumnProperties",
    "CommitProperties",
    "DataType",
    "DeltaTable",
    "Field",
    "Metadata",
    "PostCommitHookProperties",
    "QueryBuilder",
    "Schema",
    "TableFeatures",
    "Transaction",
    "VariantType",
    "WriterProperties",
    "__version__",
    "convert_to_deltalake",
    "enable_nanosecond_timestamps",
    "init_tracing",
    "install",
    "rust_core_version",
    "uninstall",
    "write_deltalake",
]

_NAME = "deltalake"
_MODULES = (
    "_internal", "_util", "exceptions", "fs", "fs.fs_handler", "query", "schema", "table", "transaction", "warnings",
    "writer", "writer._conversion", "writer._utils", "writer.convert_to", "writer.properties", "writer.writer",
)  # fmt: skip
# The modules that sys.modules contained under these names before install(); None while nothing is installed.
_before: dict[str, ModuleType] | None = None


def install() -> None:
    """Make ``import deltalake`` import this package, in this process, until ``uninstall``. Call ``install`` before
    libraries import deltalake. A second call changes nothing."""
    global _before
    if _before is not None:
        return
    _before = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    for name in _before:
        del sys.modules[name]
    sys.modules[_NAME] = sys.modules[__name__]
    for name in _MODULES:
        sys.modules[f"{_NAME}.{name}"] = importlib.import_module(f"{__name__}.{name}")


def uninstall() -> None:
    """Undo ``install``: ``import deltalake`` imports the same package as before ``install``. Libraries keep the objects
    that they have already imported."""
    global _before
    if _before is None:
        return
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]
    sys.modules.update(_before)
    _before = None


def _is_ours(name: str) -> bool:
    return name == _NAME or name.startswith(f"{_NAME}.")


def rust_core_version() -> str:
    """The version of the API."""
    return __version__


def init_tracing(endpoint: str | None = None) -> None:
    """Raises DeltaError: this package has no traces of Rust. deltalog sends its log messages to Python's logging, to
    the logger ``deltalog``."""
    raise DeltaError("init_tracing exports traces of delta-rs. deltalog logs through Python's logging: 'deltalog'.")


def _disable_nanosecond_timestamps() -> None:
    """Has no effect: in deltalog, timestamps never have nanoseconds."""


def _nanosecond_timestamps_enabled() -> bool:
    return False


_ = _NANOSECOND_TIMESTAMPS
