"""Table locations, and the spellings of file paths in Spark, Hive and the local file system."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Union

from pyspark.sql import SparkSession

import deltalog
from spark_ext.session import stores

# A path, the address of a table in a catalog, or an open table. The open table of a ManagedTransaction includes
# uncommitted changes.
Location = Union[str, "os.PathLike[str]", deltalog.DeltaTable]

UNITY = "uc://"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_GLOB = re.compile(r"([\\\[\]{}*?])")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
# The characters that java.net.URI encodes in a path.
_URI_SPECIAL = re.compile(r"[^a-zA-Z0-9_\-!.~'()*:@&=+$,;/]")


def check_format(source: str) -> None:
    """Raise CallError for any format other than Delta."""
    if not isinstance(source, str) or source.lower() not in ("delta", "deltalog"):
        raise deltalog.CallError(
            f"The format is {source!r}, but spark_ext reads and writes only Delta tables: use 'delta'."
        )


def not_here(name: str, elsewhere: Mapping[str, str], kind: str) -> Callable[..., NoReturn]:
    """A stand-in for a method of Spark's reader or writer that this class does not support; it raises CallError when
    called. Raises AttributeError for other names."""
    if name not in elsewhere:
        raise AttributeError(f"spark_ext.{kind} has no attribute {name!r}")

    def refuse(*_: object, **__: object) -> NoReturn:
        raise deltalog.CallError(f"{name} is not available in spark_ext: {elsewhere[name]}.")

    return refuse


def is_address(url: str) -> bool:
    """Whether a location is an address in a catalog, ``catalog:<catalog>#<name>`` or ``uc://catalog.schema.table``."""
    return url.startswith(("catalog:", UNITY))


def is_unity_address(url: str) -> bool:
    """Whether a location is an address in a Unity Catalog, in which a table can be created."""
    return url.startswith(UNITY)


def url_of(location: Location) -> str:
    """The location as text: a path, a URL or an address in a catalog; for an open table, the URL of the table's
    root."""
    return location.url if isinstance(location, deltalog.DeltaTable) else os.fspath(location)


def open_table(
    spark: SparkSession, location: Location, allowed_paths: Sequence[str] = (), storage: Mapping[str, Any] | None = None
) -> deltalog.DeltaTable:
    """The table at a location; a DeltaTable is returned unchanged. ``storage``: the options of the table's store; by
    default the session's S3A settings. Raises TableNotFoundError, and CallError as ``checked_root``."""
    if isinstance(location, deltalog.DeltaTable):
        given = "allowedPaths" if allowed_paths else "storage_options" if storage else None
        if given:
            raise deltalog.CallError(
                f"{given} can only be used with a path; a DeltaTable was opened with its own options."
            )
        table = location
    else:
        url = url_of(location)
        if not is_address(url):
            checked_root(url, storage)
        table = _opened(spark, url, allowed_paths, storage)
    checked_root(table.url, None)
    return table


def _opened(
    spark: SparkSession, url: str, allowed_paths: Sequence[str], storage: Mapping[str, Any] | None
) -> deltalog.DeltaTable:
    options = storage_of(spark, url, storage)
    try:
        return deltalog.DeltaTable.open(url, allowed_paths=allowed_paths, **options)
    except deltalog.CallError:
        if storage or not options or not is_address(url):
            raise
        # The session has S3A settings, but the table of the catalog is not on S3.
        return deltalog.DeltaTable.open(url, allowed_paths=allowed_paths)


def storage_of(spark: SparkSession, url: str, storage: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The options for the store at a location: ``storage`` if it is not empty, otherwise the session's S3A settings. In
    a Unity Catalog, also its server, if the session has settings for this catalog."""
    given = storage or (stores.of_session(spark, url) if is_address(url) or stores.bucket_of(url) else {})
    return {**_server_of(spark, url), **given} if is_unity_address(url) else given


def _server_of(spark: SparkSession, url: str) -> dict[str, str]:
    """The server of a catalog, in the settings that its connector for Spark has. Cost: 2 Spark commands."""
    catalog = url.removeprefix(UNITY).partition(".")[0]
    names = {"uri": "unity_catalog_url", "token": "unity_catalog_token"}
    found = {option: spark.conf.get(f"spark.sql.catalog.{catalog}.{name}", None) for name, option in names.items()}
    return {option: value for option, value in found.items() if value}


def checked_root(path: str, storage: Mapping[str, Any] | None) -> str:
    """A table's root: an absolute directory, or a URL on S3. Raises CallError for other stores."""
    url = os.fspath(path)
    if stores.bucket_of(url):
        return url
    if url.startswith("memory://"):
        raise deltalog.CallError(f"{url} is in this Python process, and Spark cannot access it. Use a path.")
    root = deltalog.open_store(url, **(storage or {})).url
    if not os.path.isabs(root):
        raise deltalog.CallError(
            f"{url} is neither on a disk of this machine nor on S3 (s3:// or s3a://); spark_ext reads and writes only "
            "these."
        )
    return root


def uri(path: str) -> str:
    """An absolute path or S3 URL as a URI for Spark, with a scheme so that ``fs.defaultFS`` does not apply."""
    return "s3a://" + path.partition("://")[2] if stores.bucket_of(path) else "file:" + path


def literal(path: str) -> str:
    """A path for ``spark.read`` with glob characters escaped.

    Spark's option that turns globbing off, ``__globPaths__``, does not help: Spark Connect ignores this option. If a
    path contains a glob character, classic Spark reads each of n files n times.
    """
    return _GLOB.sub(r"\\\1", path)


def file_keys(path: str) -> tuple[str, ...]:
    """The spellings that ``_metadata.file_path`` can have for a file: two on a disk, one on S3."""
    if stores.bucket_of(path):
        return ("s3a://" + _URI_SPECIAL.sub(_uri_char, path.partition("://")[2]),)
    encoded = _URI_SPECIAL.sub(_uri_char, path)
    return "file:" + encoded, "file://" + encoded


def _uri_char(match: re.Match[str]) -> str:
    char = match[0]
    plain = ord(char) >= 0x80 and unicodedata.category(char) not in ("Zs", "Zl", "Zp", "Cc")
    return char if plain else "".join(f"%{byte:02X}" for byte in char.encode())


def hive_unescape(text: str) -> str:
    """The unescaped value of a Hive directory name. Hive escapes only ASCII characters."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def hidden_from_spark(name: str) -> bool:
    """Whether Spark would silently skip, or fail to open, a file with this name.

    Spark skips names that begin with ``_`` or ``.`` (it lists ``_metadata`` but does not scan it). On a local disk, a
    colon makes the name of Hadoop's checksum file invalid.
    """
    if name.startswith("_") and "=" not in name:
        return True
    return name.startswith(".") or name.endswith("._COPYING_") or ":" in name
