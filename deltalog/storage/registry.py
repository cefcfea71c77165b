"""Opens the store of a URL or path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from deltalog.arguments import checked
from deltalog.errors import CallError
from deltalog.lazy_names import lazy_modules
from deltalog.storage import option_names
from deltalog.storage.argument_hints import hint_for
from deltalog.storage.base import LogStore
from deltalog.storage.fs import LocalStore, local_root
from deltalog.storage.locations import BY_LOCATION, options_at
from deltalog.storage.memory import named_store
from deltalog.storage.remote import EXTRAS
from deltalog.storage.secrets import Reopen, Secrets, check_location

if TYPE_CHECKING:
    import importlib.util as import_tools

    import obstore.store

    from deltalog.storage.dynamodb.lease_commits import DynamoCommit
    from deltalog.storage.dynamodb.spark_log_store import S3DynamoDBCommit
else:
    lazy_modules(__name__, import_tools="importlib.util")

# Annotated with a string, because obstore need not be installed.
Location: TypeAlias = "str | os.PathLike[str] | LogStore | obstore.store.ObjectStore"

CATALOG_SCHEME = "catalog:"
UNITY_SCHEME = "uc://"
_S3_SCHEMES = ("s3://", "s3a://")


@checked
def open_store(url: Location, **options: Any) -> LogStore:
    """The store for a table root, which is a local path, ``file:``, ``memory://name``, ``s3://bucket/prefix`` or
    ``s3a://``, or has any scheme for which fsspec has a file system (``gs://``, ``az://``, ``abfss://``, ``sftp://``,
    ...).

    For S3, ``options`` are as for s3fs.S3FileSystem (key, secret, token, endpoint_url, anon, client_kwargs,
    config_kwargs, ...); for other schemes, as for the fsspec file system. Local paths and ``memory://`` accept no
    options. ``filesystem=``: an open fsspec file system, in which ``url`` is a path. ``driver="obstore"`` uses obstore.
    ``unsafe_single_writer=True`` asserts that there is a single writer, for file systems in which fsspec cannot create
    files exclusively (docs/stores.md). ``exclusive_create=True`` asserts that the service creates exclusively and skips
    the test. On S3, ``commit=`` selects commits through DynamoDB. Pass a DynamoCommit or S3DynamoDBCommit, or for short
    ``"dynamo:<table>"`` or ``"s3-dynamodb:<table>"``. DynamoDB is accessed with the options of S3;
    ``dynamodb_endpoint_url`` overrides the endpoint.

    Options can also have the names of object_store (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, AWS_REGION, …, in upper or
    lower case); at a local path these have no effect. Options can also be passed together, as ``storage_options={…}``,
    or by location: ``by_location={"s3://lake/sales": {…}}`` replaces the other options for all locations with that
    prefix. A LogStore is returned unchanged, and an obstore store is wrapped. ``memory://`` stores exist until the
    process ends. Raises CallError for an unknown scheme or option, and if a package is not installed. Cost: no store
    call.
    """
    options = spread(options)
    if BY_LOCATION in options:
        options = options_at(os.fspath(url) if isinstance(url, (str, os.PathLike)) else "", options)
    if isinstance(url, (str, os.PathLike)):
        options = option_names.translated(os.fspath(url), options)
    if isinstance(url, LogStore):
        _refuse(options, "an open store")
        return url
    store = _opened(url, **options)
    if store.reopen is None:
        store.reopen = Reopen(open_store, url, **options)
    return store


def spread(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, merged with those in ``storage_options``. Raises CallError for an option given both ways."""
    together = options.get("storage_options") or {}
    if not isinstance(together, Mapping):
        raise CallError(f"storage_options is a mapping from names to values; got {type(together).__name__}.")
    single = {name: value for name, value in options.items() if name != "storage_options"}
    twice = sorted(single.keys() & together.keys())
    if twice:
        raise CallError(f"{', '.join(twice)}: given both by itself and in storage_options. Leave one out.")
    return {**together, **single}


def _opened(url: Location, **options: Any) -> LogStore:
    if not isinstance(url, (str, os.PathLike)):
        if type(url).__module__.partition(".")[0] != "obstore":
            raise CallError(f"{type(url).__name__} is not a table location. Give a path, a URL or an open store.")
        _refuse(options, "a store of obstore")
        return _open_obstore(url, {})
    text = os.fspath(url)
    if not text:
        raise CallError("The table location is empty. Give a path such as '/data/events' or 'memory://events'.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise CallError(f"The table location {text!a} cannot be encoded as a path.") from None
    check_location(text)
    if "\0" in text:
        raise CallError(f"The table location {text!r} has a NUL character in it, which no store accepts.")
    if text.startswith(CATALOG_SCHEME):
        raise CallError(
            f"{text} is the address of a table in a catalog, not a storage location. Open it with DeltaTable.open; "
            "create a table with TransactionManager.create_table, at a path or a URL."
        )
    if text.startswith(UNITY_SCHEME):
        raise CallError(
            f"{text} is the address of a table in a Unity Catalog, not a storage location. Open it with "
            "DeltaTable.open, and create a table with DeltaTable.create."
        )
    if "filesystem" in options:
        return _open_filesystem(text, **options)
    if "driver" in options:
        return _open_with_driver(text, **options)
    if text.startswith("memory://"):
        _refuse(options, "memory://")
        return named_store(text)
    if text.startswith(_S3_SCHEMES):
        return _open_s3(text, **options)
    root = local_root(text)
    if root is None:
        return _open_fsspec(text, **options)
    _refuse(options, "a local path")
    return local_store(root)


def _open_s3(
    url: str,
    *,
    commit: str | DynamoCommit | S3DynamoDBCommit | None = None,
    dynamodb_endpoint_url: str | None = None,
    exclusive_create: bool = False,
    **options: Any,
) -> LogStore:
    # Importing s3fs takes half a second, and many programs do not need s3fs.
    if import_tools.find_spec("s3fs") is None:
        raise CallError(f"{url} needs the extra 's3' (No module named 's3fs'): pip install 'deltalog[s3]'.")
    from deltalog.storage.s3.store import S3Store

    _refuse({name: ... for name in options if hint_for(name) is not None}, "S3")
    store = S3Store(url, exclusive_create=exclusive_create, **options)
    if commit is None:
        _refuse({"dynamodb_endpoint_url": ...} if dynamodb_endpoint_url else {}, "S3 without commit=")
        return store
    from deltalog.storage.dynamodb.client import DynamoTable

    _refuse({"exclusive_create": ...} if exclusive_create else {}, "S3 with commit=")
    protocol = _commit_protocol(commit)
    table = DynamoTable(protocol.table_name, options, endpoint_url=dynamodb_endpoint_url, timing=protocol.timing)
    return protocol.guard(store, table)


def _commit_protocol(commit: str | DynamoCommit | S3DynamoDBCommit) -> DynamoCommit | S3DynamoDBCommit:
    from deltalog.storage.dynamodb.lease_commits import DynamoCommit
    from deltalog.storage.dynamodb.spark_log_store import S3DynamoDBCommit

    if isinstance(commit, (DynamoCommit, S3DynamoDBCommit)):
        return commit
    kind = str(commit).partition(":")[0]
    if kind == "dynamo":
        return DynamoCommit.parse(commit)
    if kind == "s3-dynamodb":
        return S3DynamoDBCommit.parse(commit)
    raise CallError(f"There is no commit protocol {commit!r}. Give 'dynamo:<table>' or 's3-dynamodb:<table>'.")


def _open_fsspec(
    url: str, *, unsafe_single_writer: bool = False, exclusive_create: bool = False, **options: Any
) -> LogStore:
    if url.startswith("file:"):
        raise CallError(f"{url} names another host. Give a path, or a URL such as file:///data/events.")
    _check_word(unsafe_single_writer)
    # Refuse them here, because many fsspec file systems ignore unknown options.
    _refuse({name: ... for name in options if name in ("commit", "dynamodb_endpoint_url")}, "anything but S3")
    _need_fsspec(url)
    from deltalog.storage import fsspec_store

    filesystem, path = fsspec_store.open_url(url, options)
    if (local := fsspec_store.local_path(filesystem, path)) is not None:
        return local_store(local)
    return fsspec_store.FsspecStore(
        filesystem,
        path,
        url=url,
        unsafe_single_writer=unsafe_single_writer,
        exclusive_create=exclusive_create,
        secrets=Secrets(options),
    )


def _open_filesystem(
    path: str, *, filesystem: Any, unsafe_single_writer: bool = False, exclusive_create: bool = False, **options: Any
) -> LogStore:
    """The store for a path in the caller's fsspec file system. If that file system is the local disk or S3, deltalog's
    own store for it is returned."""
    _check_word(unsafe_single_writer)
    _need_fsspec(path)
    from deltalog.storage import fsspec_store

    filesystem, path = fsspec_store.unwrapped(filesystem, path)
    if (s3 := fsspec_store.s3_location(filesystem, path)) is not None:
        return open_store(s3[0], **s3[1], exclusive_create=exclusive_create, **options)
    _refuse(options, "an open file system")
    if (local := fsspec_store.local_path(filesystem, path)) is not None:
        return local_store(local)
    return fsspec_store.FsspecStore(
        filesystem, path, unsafe_single_writer=unsafe_single_writer, exclusive_create=exclusive_create
    )


def _check_word(unsafe_single_writer: object) -> None:
    if not isinstance(unsafe_single_writer, bool):
        raise CallError("unsafe_single_writer must be True or False: the safety of commits depends on it.")


def _need_fsspec(url: str) -> None:
    try:
        import fsspec  # noqa: F401
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(url.partition(":")[0], "fsspec")
        raise CallError(f"{url} needs the extra {extra!r} ({error}): pip install 'deltalog[{extra}]'.") from error


def _open_with_driver(url: str, *, driver: str, **options: Any) -> LogStore:
    if driver != "obstore":
        raise CallError(f"There is no driver {driver!r}. Leave it out, or give 'obstore'.")
    return _open_obstore(url, options)


def _open_obstore(location: Any, options: dict[str, Any]) -> LogStore:
    try:
        import obstore  # noqa: F401
    except ModuleNotFoundError as error:
        raise CallError(f"{location} needs the extra 'obstore' ({error}): pip install 'deltalog[obstore]'.") from error
    from deltalog.storage import obstore_store

    if isinstance(location, str):
        return obstore_store.open_url(location, options)
    local = obstore_store.local_path(location)
    return obstore_store.ObstoreStore(location) if local is None else local_store(local)


def local_store(root: str, system: str = os.name) -> LocalStore:
    """The store for a directory of this machine. ``system``: the value of ``os.name``."""
    if system != "nt":
        return LocalStore(root)
    from deltalog.storage.windows import WindowsStore

    return WindowsStore(root)


def _refuse(options: dict[str, Any], kind: str) -> None:
    if options:
        hints = [hint for name in sorted(options) if (hint := hint_for(name)) is not None]
        if hints:
            raise CallError(" ".join(hints))
        raise CallError(
            f"Storage options {sorted(options)} do not apply to {kind}. Remove them, or give them as by_location."
        )
