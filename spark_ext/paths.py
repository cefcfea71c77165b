"""File names as Spark, Hive and this machine spell them."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Union

import deltalog

# A path, the address of a table in a catalog, or an open table: one of a ManagedTransaction includes its changes.
Location = Union[str, "os.PathLike[str]", deltalog.DeltaTable]

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_GLOB = re.compile(r"([\\\[\]{}*?])")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
# Characters other than those that java.net.URI does not encode in a path.
_URI_SPECIAL = re.compile(r"[^a-zA-Z0-9_\-!.~'()*:@&=+$,;/]")


def check_format(source: str) -> None:
    """Raises CallError for any format but Delta's."""
    if not isinstance(source, str) or source.lower() not in ("delta", "deltalog"):
        raise deltalog.CallError(
            f"The format is {source!r}, but spark_ext reads and writes only Delta tables: use 'delta'."
        )


def not_here(name: str, elsewhere: Mapping[str, str], kind: str) -> Callable[..., NoReturn]:
    """A stand-in for a method of Spark's own reader or writer, which raises CallError when it is called. Raises
    AttributeError for other names."""
    if name not in elsewhere:
        raise AttributeError(f"spark_ext.{kind} has no attribute {name!r}")

    def refuse(*_: object, **__: object) -> NoReturn:
        raise deltalog.CallError(f"{name} is not available in spark_ext: {elsewhere[name]}.")

    return refuse


def is_address(url: str) -> bool:
    """Whether it names a table of a catalog, ``catalog:<catalog>#<name>``, rather than a directory."""
    return url.startswith("catalog:")


def url_of(location: Location) -> str:
    """The path or the address of a location; the root of an open table."""
    return location.url if isinstance(location, deltalog.DeltaTable) else os.fspath(location)


def open_table(location: Location, allowed_paths: Sequence[str] = ()) -> deltalog.DeltaTable:
    """The table at a location; a DeltaTable is returned as it is. Raises TableNotFoundError, and CallError as
    ``local_directory``."""
    if isinstance(location, deltalog.DeltaTable):
        if allowed_paths:
            raise deltalog.CallError(
                "allowedPaths can only be given with a path; a DeltaTable was opened with its own allowed_paths."
            )
        table = location
    else:
        url = url_of(location)
        if not is_address(url):
            local_directory(url)
        table = deltalog.DeltaTable.open(url, allowed_paths=allowed_paths)
    local_directory(table.url)
    return table


def local_directory(path: str) -> str:
    """The absolute directory of a table's root. Raises CallError for a store that is not a disk here."""
    url = os.fspath(path)
    if url.startswith("memory://"):
        raise deltalog.CallError(f"{url} is in this Python process, and Spark cannot access it. Give a path.")
    root = deltalog.open_store(url).url
    if not os.path.isabs(root):
        raise deltalog.CallError(f"{url} is not on a disk of this machine; spark_ext reads and writes only these.")
    return root


def uri(local_path: str) -> str:
    """An absolute path for Spark: with its scheme, so that ``fs.defaultFS`` does not apply."""
    return "file:" + local_path


def literal(path: str) -> str:
    """A path for ``spark.read``, which expands glob characters unless they are escaped.

    Spark's own switch against that, the option ``__globPaths__``, is ignored by Connect, and elsewhere returns the
    rows of n files n times where a path has such a character.
    """
    return _GLOB.sub(r"\\\1", path)


def file_keys(local_path: str) -> tuple[str, str]:
    """The two spellings that ``_metadata.file_path`` can have for a file."""
    encoded = _URI_SPECIAL.sub(_uri_char, local_path)
    return "file:" + encoded, "file://" + encoded


def _uri_char(match: re.Match[str]) -> str:
    char = match[0]
    plain = ord(char) >= 0x80 and unicodedata.category(char) not in ("Zs", "Zl", "Zp", "Cc")
    return char if plain else "".join(f"%{byte:02X}" for byte in char.encode())


def hive_unescape(text: str) -> str:
    """The value behind a Hive directory name; Hive escapes single ASCII characters only."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def hidden_from_spark(name: str) -> bool:
    """Whether Spark's listing silently skips a file of this name, or cannot open it at all.

    Spark skips names that begin with ``_`` or ``.`` (``_metadata`` is listed, but not scanned); on a local disk a colon
    makes an invalid checksum name.
    """
    if name.startswith("_") and "=" not in name:
        return True
    return name.startswith(".") or name.endswith("._COPYING_") or ":" in name
