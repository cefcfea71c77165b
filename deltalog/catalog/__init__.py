"""Catalogs: databases that decide which commits of a table take effect. ``Coordinator`` defines the guarantees that
every catalog must keep."""

import typing

from deltalog.lazy_names import lazy_names

if typing.TYPE_CHECKING:
    from deltalog.catalog.coordinator import Coordinator
    from deltalog.catalog.records import Isolation, StatusFilter, TableRecord, TransactionStatus, TransactionType

__all__ = [
    "Coordinator",
    "Isolation",
    "StatusFilter",
    "TableRecord",
    "TransactionStatus",
    "TransactionType",
]

_MODULES = {
    "Coordinator": "deltalog.catalog.coordinator",
    "Isolation": "deltalog.catalog.records",
    "StatusFilter": "deltalog.catalog.records",
    "TableRecord": "deltalog.catalog.records",
    "TransactionStatus": "deltalog.catalog.records",
    "TransactionType": "deltalog.catalog.records",
}

if not typing.TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
