"""Opens the table at a location or at an address in a catalog.

For a location, a store is opened, and the log in this store determines the commits. An address,
``catalog:<catalog>#<name>`` or ``uc://catalog.schema.table``, is looked up in the catalog first; the catalog's code is
imported only then.

Spec: PROTOCOL.md#table-discovery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from deltalog.commit.committer import Committer, FileSystemCommitter
from deltalog.environment import Environment
from deltalog.errors import CallError, EntityNotFoundError, TableNotFoundError
from deltalog.log.authority import Authority
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.read.snapshot import Snapshot
from deltalog.storage.registry import CATALOG_SCHEME, Location, open_store, spread
from deltalog.storage.secrets import check_location
from deltalog.unity.names import is_unity_address
from deltalog.write.table_handle import TableHandle

if TYPE_CHECKING:
    from deltalog.catalog.coordinator import Coordinator
    from deltalog.catalog.store import ManagedStore


def open_handle(url: Location, allowed_paths: Sequence[str], environment: Environment, **options: Any) -> TableHandle:
    """A handle on the table at a location or an address, at its latest version. Like ``DeltaTable.open``."""
    return handle_on_latest(open_log(url, allowed_paths, environment, **options), environment)


def open_log(
    url: Location, allowed_paths: Sequence[str] = (), environment: Environment | None = None, **options: Any
) -> LogReader:
    """A reader for the log at a location or an address, even if no table exists there yet. ``options``: as for
    ``open_store``. Raises as ``open_store``, for an address as ``open_managed``. Cost: none; for an address 1 call of
    the coordinator, or 1 round of requests to the server of a Unity Catalog."""
    if is_unity_address(url):
        from deltalog.unity import opening

        return opening.open_log(url, allowed_paths, environment, **options)
    clock_ms = None if environment is None else environment.clock_ms
    if not is_address(url):
        return LogReader(open_store(url, **options), allowed_paths, clock_ms)
    store = open_managed(url, **spread(options))
    return LogReader(store, allowed_paths, clock_ms, Authority(store.catalog))


def new_log(
    url: Location, properties: Mapping[str, str], environment: Environment, **options: Any
) -> tuple[LogReader, Mapping[str, str]]:
    """A reader for the log of a new table at a location or at the address of a Unity Catalog, and the properties that
    its version 0 must have, ``properties`` included. Raises as ``open_store``; for an address as
    ``deltalog.unity.opening.new_log``. Cost: none; for an address 1 request."""
    if is_unity_address(url):
        from deltalog.unity import opening

        return opening.new_log(url, properties, environment, **options)
    return LogReader(open_store(url, **options), (), environment.clock_ms), properties


def handle_on_latest(reader: LogReader, environment: Environment) -> TableHandle:
    """A handle for the table that a LogReader reads, at the table's latest version. Raises and costs as
    ``load_latest``."""
    return handle_on(reader, environment, Snapshot(load_latest(reader)))


def handle_on(reader: LogReader, environment: Environment, latest: Snapshot) -> TableHandle:
    """The state of a handle on a reader's table, outside multi-table transactions. Cost: none."""
    return TableHandle(reader, committer_of(reader, environment), environment, latest)


def committer_of(reader: LogReader, environment: Environment) -> Committer:
    """The committer of the table that ``reader`` reads. Cost: none."""
    if reader.authority.catalog is not None:
        from deltalog.catalog.coordinator import Coordinator
        from deltalog.catalog.store import ManagedStore

        if isinstance(reader.store, ManagedStore):  # without a ManagedStore, the table is still being registered
            if isinstance(reader.store.coordinator, Coordinator):
                from deltalog.catalog.committer import CatalogCommitter

                return CatalogCommitter(reader.store, environment.new_uuid)
            from deltalog.unity.committer import UnityCommitter

            return UnityCommitter(reader.store, environment, permits_cleanup=reader.authority.permits_maintenance)
    if reader.authority.table_id is not None:
        from deltalog.unity.external import ExternalCommitter, ExternalStore

        if isinstance(reader.store, ExternalStore):
            return ExternalCommitter(reader.store, environment)
    return FileSystemCommitter(reader.store)


def is_address(url: object) -> TypeGuard[str]:
    """Whether ``url`` is the address of a table in a catalog of deltalog: ``catalog:<url of the catalog>#<name of the
    table>``."""
    return isinstance(url, str) and url.startswith(CATALOG_SCHEME)


def split_address(address: str) -> tuple[str, str]:
    """The two components of an address: the URL of the catalog and the name of the table. Raises CallError. Cost:
    none."""
    check_location(address)
    url, mark, name = address.removeprefix(CATALOG_SCHEME).rpartition("#")
    if not (url and mark):
        raise CallError(f"{address} is not the address of a table: write catalog:<catalog>#<name>.")
    return url, name


def open_managed(address: str, **options: Any) -> ManagedStore[Coordinator]:
    """The store of the table at an address. Raises CallError; TableNotFoundError, whose cause is an EntityNotFoundError
    if there is no such catalog or it has no table with this name. Cost: 1 call of the coordinator."""
    from deltalog.catalog.locate import open_coordinator
    from deltalog.catalog.records import check_table_name
    from deltalog.catalog.store import ManagedStore

    url, name = split_address(address)
    full = check_table_name(name)
    try:
        coordinator = open_coordinator(url, create=False, **options)
    except EntityNotFoundError as error:
        raise TableNotFoundError(f"{address} is not a table: {error.message}") from error
    record = coordinator.table(full)
    if record is None:
        message = f"The catalog {coordinator.url} has no table {full}."
        raise TableNotFoundError(message) from EntityNotFoundError(message)
    return ManagedStore(open_store(record.url, **options), coordinator, record.table_id)
