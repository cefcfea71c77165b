"""Transactions on several tables of a catalog: the types of the arguments and results of ``TransactionManager``."""

import typing

from deltalog.lazy_names import lazy_names

if typing.TYPE_CHECKING:
    from deltalog.transactions.ledger import TransactionDescription, TransactionPage
    from deltalog.transactions.manager import VirtualObject
    from deltalog.transactions.resync import Resync
    from deltalog.transactions.resync_plan import TableResync
    from deltalog.transactions.table_objects import AddObject, DeleteObject, ObjectPage, TableObject
    from deltalog.transactions.transaction import ManagedTransaction

__all__ = [
    "AddObject",
    "DeleteObject",
    "ManagedTransaction",
    "ObjectPage",
    "Resync",
    "TableObject",
    "TableResync",
    "TransactionDescription",
    "TransactionPage",
    "VirtualObject",
]

_MODULES = {
    "AddObject": "deltalog.transactions.table_objects",
    "DeleteObject": "deltalog.transactions.table_objects",
    "ManagedTransaction": "deltalog.transactions.transaction",
    "ObjectPage": "deltalog.transactions.table_objects",
    "Resync": "deltalog.transactions.resync",
    "TableObject": "deltalog.transactions.table_objects",
    "TableResync": "deltalog.transactions.resync_plan",
    "TransactionDescription": "deltalog.transactions.ledger",
    "TransactionPage": "deltalog.transactions.ledger",
    "VirtualObject": "deltalog.transactions.manager",
}

if not typing.TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
