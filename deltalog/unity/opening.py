"""Opens the logs of tables in a Unity Catalog by their addresses, ``uc://catalog.schema.table``, and those of new
tables at the locations that the server gives.

The server is given by options or by the environment:

    unity_catalog_url      UNITY_CATALOG_URL, or DATABRICKS_HOST
    unity_catalog_token    UNITY_CATALOG_TOKEN, unless UNITY_CATALOG_URL is another server; or DATABRICKS_TOKEN if the
                           server is DATABRICKS_HOST
    unity_catalog_ca_file  UNITY_CATALOG_CA_FILE

All other options are those of the store in which the table is. If they include credentials, the server is asked for
none.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#get-configuration, #load-a-table, #create-a-staging-table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from deltalog.catalog.store import ManagedStore
from deltalog.environment import Environment
from deltalog.errors import CallError, CatalogRequestError, DeltaLogError, UnsupportedFeatureError
from deltalog.log.authority import Authority
from deltalog.log.reader import LogReader
from deltalog.storage import option_names
from deltalog.storage.base import LogStore
from deltalog.storage.locations import options_at
from deltalog.storage.registry import open_store, spread
from deltalog.unity import creation_rules, messages, rules
from deltalog.unity.calls import DeltaCalls, StagedCalls, TableCalls
from deltalog.unity.client import UnityClient, is_older_server
from deltalog.unity.external import ExternalStore
from deltalog.unity.http import Server
from deltalog.unity.names import TableName, parse_address
from deltalog.unity.preview import PreviewCalls
from deltalog.unity.table import UnityTable

URL, TOKEN, CA_FILE, MAINTENANCE = (
    "unity_catalog_url",
    "unity_catalog_token",
    "unity_catalog_ca_file",
    "unity_catalog_permits_maintenance",
)
_OPTIONS = (URL, TOKEN, CA_FILE, MAINTENANCE)
_CREDENTIALS = ("key", "secret", "token", "anon", "profile", "filesystem", "driver", "credentials")
_S3 = ("s3://", "s3a://")
_ABSOLUTE = re.compile(r"/|file:/|[a-z][a-z0-9+.-]*://|[A-Za-z]:[\\/]")

# Which servers offer the UC Delta API for which of their catalogs, as far as this process has asked; and until when the
# older calls are used at once for a catalog that did not offer it, by the clock in ms. A proxy without its server also
# answers as such a catalog does, so only a table that the older calls have opened counts, and not for long.
_configs: dict[tuple[str, str], messages.Config] = {}
_older_until_ms: dict[tuple[str, str], int] = {}
_OLDER_MS = 10 * 60 * 1000

Credentials = tuple[messages.CredentialOperation, tuple[messages.StorageCredential, ...]]


def server_of(options: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> tuple[Server, dict[str, Any]]:
    """The server that options or the environment give, and the other options. Raises CallError."""
    given = spread(options)
    token, of_catalog = given.get(TOKEN), environ.get("UNITY_CATALOG_URL")
    of_databricks = given.get(URL) is None and not of_catalog
    url = given.get(URL) or of_catalog or environ.get("DATABRICKS_HOST")
    if not isinstance(url, str) or not url:
        raise CallError(
            f"The URL of the Unity Catalog is missing: give {URL}=, or set UNITY_CATALOG_URL (or DATABRICKS_HOST)."
        )
    if token is None and of_databricks:
        token = environ.get("DATABRICKS_TOKEN")
    elif token is None and (not of_catalog or Server.at(of_catalog).url == Server.at(url).url):
        token = environ.get("UNITY_CATALOG_TOKEN")
    if token is not None and not isinstance(token, str):
        raise CallError(f"{TOKEN} must be a string, not {type(token).__name__}.")
    ca_file = given.get(CA_FILE) or environ.get("UNITY_CATALOG_CA_FILE") or None
    others = {name: value for name, value in given.items() if name not in _OPTIONS}
    return Server.at(url, token or None, ca_file), others


def open_log(address: str, allowed_paths: Sequence[str], environment: Environment | None, **options: Any) -> LogReader:
    """A reader for the log of a table. Raises CallError, TableNotFoundError, CatalogRequestError, CoordinatorError.
    Cost: 1 round of 2 requests to the server, of 3 the first time."""
    name = parse_address(address)
    server, storage = server_of(options)
    environment = environment or Environment()
    client = UnityClient(server, environment)
    calls, loaded, issued = _loaded(client, name, environment, needs_credentials=not _has_credentials(storage))
    store = _store_at(loaded.metadata.location, name, calls, issued, storage, environment)
    if not rules.is_managed(loaded):
        if not isinstance(calls, DeltaCalls):  # the older calls cannot be told of metadata without a commit
            return LogReader(store, allowed_paths, environment.clock_ms)
        external = ExternalStore(store, calls, loaded.metadata.table_uuid)
        return LogReader(external, allowed_paths, environment.clock_ms, Authority(table_id=external.table_id))
    table = UnityTable(calls, loaded.metadata.table_uuid, loaded, environment.clock_ms)
    rules.head_of(loaded, table.url)
    permits = spread(options).get(MAINTENANCE, False) is True
    return _reader(store, table, allowed_paths, environment, permits)


def new_log(
    address: str, properties: Mapping[str, str], environment: Environment, **options: Any
) -> tuple[LogReader, dict[str, str]]:
    """A reader for the log of a new table, and the properties of its version 0. Raises TableExistsError,
    EntityNotFoundError, InvalidPropertyError, UnsupportedFeatureError, and as ``open_log``. Cost: 1 request to the
    server."""
    name = parse_address(address)
    server, storage = server_of(options)
    client = UnityClient(server, environment)
    try:
        staging = client.create_staging_table(name)
    except CatalogRequestError as error:
        if is_older_server(error):
            raise UnsupportedFeatureError(
                f"{server.url} does not offer the UC Delta API, by which deltalog creates tables: {error.message}",
                features=("catalogManaged",),
            ) from error
        raise
    complete = creation_rules.properties_for(staging, properties, name)
    calls = StagedCalls(client, name, staging)
    issued: Credentials | None = ("READ_WRITE", staging.storage_credentials)
    issued = None if _has_credentials(storage) else issued
    store = _store_at(staging.location, name, calls, issued, storage, environment)
    table = UnityTable(calls, staging.table_id, None, environment.clock_ms, staging=staging)
    permits = spread(options).get(MAINTENANCE, False) is True
    return _reader(store, table, (), environment, permits), complete


def _reader(
    store: LogStore, table: UnityTable, allowed_paths: Sequence[str], environment: Environment, permits: bool
) -> LogReader:
    managed = ManagedStore(store, table, table.table_id)
    authority = Authority(table.url, is_served=True, permits_maintenance=permits, table_id=table.table_id)
    return LogReader(managed, allowed_paths, environment.clock_ms, authority)


def _loaded(
    client: UnityClient, name: TableName, environment: Environment, *, needs_credentials: bool
) -> tuple[TableCalls, messages.LoadedTable, Credentials | DeltaLogError | None]:
    """A table as the server shows it, and the credentials for its files, by the newest calls that the server offers.
    The requests are sent side by side."""
    catalog, now_ms = (client.url, name.catalog), environment.clock_ms()
    if now_ms < _older_until_ms.get(catalog, now_ms):
        try:
            return _loaded_by(PreviewCalls(client, name), needs_credentials=needs_credentials)
        except DeltaLogError:
            _older_until_ms.pop(catalog, None)  # the server may be another one now
    calls: TableCalls = DeltaCalls(client, name)
    with ThreadPoolExecutor(2, thread_name_prefix="deltalog-unity") as pool:
        issued = pool.submit(_issued, calls) if needs_credentials else None
        asked = None if catalog in _configs else pool.submit(_config, client, name.catalog)
        try:
            loaded = calls.load()
        except CatalogRequestError as error:
            if not is_older_server(error):
                raise
            older = error
        else:
            return calls, loaded, None if issued is None else issued.result()
        config = _configs.get(catalog) if asked is None else asked.result()
    is_of_table = older.status == 400  # the table has another format; the catalog may offer the API
    if isinstance(config, messages.Config) and not is_of_table:
        raise older
    found = _loaded_by(PreviewCalls(client, name), needs_credentials=needs_credentials)
    if isinstance(config, CatalogRequestError) and is_older_server(config) and not is_of_table:
        _older_until_ms[catalog] = now_ms + _OLDER_MS
    return found


def _loaded_by(
    calls: TableCalls, *, needs_credentials: bool
) -> tuple[TableCalls, messages.LoadedTable, Credentials | DeltaLogError | None]:
    loaded = calls.load()
    return calls, loaded, _issued(calls) if needs_credentials else None


def _config(client: UnityClient, catalog: str) -> messages.Config | DeltaLogError:
    """What the server offers; the error if it does not say. Cost: 1 request."""
    try:
        found = client.config(catalog)
    except DeltaLogError as error:
        return error
    _configs[client.url, catalog] = found
    return found


def _issued(calls: TableCalls) -> Credentials | DeltaLogError:
    """The credentials to read, or the error of the request for them: it matters only if the table's location needs
    credentials. Those to write are asked for before the first write."""
    try:
        return "READ", calls.credentials("READ")
    except DeltaLogError as error:
        return error


def _store_at(
    location: str,
    name: TableName,
    calls: TableCalls,
    issued: Credentials | DeltaLogError | None,
    storage: Mapping[str, Any],
    environment: Environment,
) -> LogStore:
    """The store at the location that the server has given. On a local disk, the caller's options have no effect. Raises
    CatalogRequestError for a location that is not absolute."""
    if _ABSOLUTE.match(location) is None:
        raise CatalogRequestError(
            f"{calls.url} says that {name.address} is stored at {location!r}, which is not an absolute location.",
            path=calls.url,
        )
    if "://" not in location or location.startswith(("file:", "memory:")):
        return open_store(location)
    options = options_at(location, storage)
    if issued is None or _has_credentials(options):
        return open_store(location, **options)
    if isinstance(issued, DeltaLogError):
        raise issued
    operation, credentials = issued
    held = rules.credential_at(credentials, location)
    if held is None or not location.startswith(_S3):
        raise rules.no_credentials(location, name.address)
    from deltalog.unity.credentials import VendedCredentials

    source = VendedCredentials(calls, location, operation, held, environment.clock_ms)
    return open_store(location, **options, credentials=source)


def _has_credentials(storage: Mapping[str, Any]) -> bool:
    named = option_names.translated("s3://any", storage)
    return any(named.get(option) for option in _CREDENTIALS)
