"""Builds and parses the names of all files below ``_delta_log``, and encodes and decodes paths in the log. Pure.

Spec: PROTOCOL.md#delta-table-specification (file types), #add-file-and-remove-file (path), #file-types, #sidecar-files,
#checkpoint-naming-scheme, #uuid-named-checkpoint, #classic-checkpoint, #multi-part-checkpoint.
"""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from deltalog.errors import UnsafePathError
from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import urllib.parse as urls

    from deltalog import arrow_arrays
else:
    lazy_modules(__name__, "deltalog.arrow_arrays", urls="urllib.parse")

LOG_DIRECTORY = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
STAGED_COMMITS_DIRECTORY = f"{LOG_DIRECTORY}/_staged_commits"
SIDECARS_DIRECTORY = f"{LOG_DIRECTORY}/_sidecars"
MAX_VERSION = 2**63 - 1


class LogFileKind(enum.Enum):
    """The kinds of files directly in ``_delta_log``."""

    COMMIT = "commit"
    CHECKSUM = "checksum"
    CLASSIC_CHECKPOINT = "classic checkpoint"
    MULTI_PART_CHECKPOINT = "multi-part checkpoint"
    UUID_CHECKPOINT = "UUID-named checkpoint"
    COMPACTION = "log compaction"


class LogFile(msgspec.Struct, frozen=True):
    """A parsed file name. Only a compaction has ``end_version``; only a multi-part checkpoint has ``part`` and
    ``parts``."""

    name: str
    kind: LogFileKind
    version: int
    end_version: int | None = None
    part: int | None = None
    parts: int | None = None


_NAME = re.compile(
    r"(?P<version>[0-9]{20})\."
    r"(?:(?P<commit>json)"
    r"|(?P<checksum>crc)"
    r"|(?P<classic>checkpoint\.parquet)"
    r"|checkpoint\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})\.parquet"
    r"|checkpoint\.(?P<uuid>[0-9A-Fa-f-]{36})\.(?:json|parquet)"
    r"|(?P<end>[0-9]{20})\.compacted\.json)"
)


def parse_log_file(name: str) -> LogFile | None:
    """Parse the name of a file in ``_delta_log``; None for a name that the protocol does not define."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    version = int(match["version"])
    if version > MAX_VERSION:
        return None
    if match["commit"]:
        return LogFile(name, LogFileKind.COMMIT, version)
    if match["checksum"]:
        return LogFile(name, LogFileKind.CHECKSUM, version)
    if match["classic"]:
        return LogFile(name, LogFileKind.CLASSIC_CHECKPOINT, version)
    if match["parts"]:
        part, parts = int(match["part"]), int(match["parts"])
        if not 1 <= part <= parts:
            return None
        return LogFile(name, LogFileKind.MULTI_PART_CHECKPOINT, version, part=part, parts=parts)
    if match["uuid"]:
        return LogFile(name, LogFileKind.UUID_CHECKPOINT, version)
    return LogFile(name, LogFileKind.COMPACTION, version, end_version=int(match["end"]))


def log_path(name: str) -> str:
    """The path of a log file below the table root."""
    return f"{LOG_DIRECTORY}/{name}"


def version_prefix(version: int) -> str:
    """The prefix that sorts before the names of all files of this version and later versions."""
    return f"{version:020d}."


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def commit_path(version: int) -> str:
    return log_path(commit_name(version))


def commit_version(path: str) -> int | None:
    """The version of the commit file at ``path`` (below the table root); None for any other file."""
    directory, _, name = path.rpartition("/")
    file = parse_log_file(name) if directory == LOG_DIRECTORY else None
    return file.version if file is not None and file.kind is LogFileKind.COMMIT else None


def staged_commit_name(version: int, unique: str) -> str:
    return f"{version:020d}.{unique}.json"


def staged_commit_path(name: str) -> str:
    return f"{STAGED_COMMITS_DIRECTORY}/{name}"


def compaction_name(start: int, end: int) -> str:
    return f"{start:020d}.{end:020d}.compacted.json"


def checksum_path(version: int) -> str:
    return log_path(f"{version:020d}.crc")


def checkpoint_name(version: int) -> str:
    """The file name of a single-file classic checkpoint."""
    return f"{version:020d}.checkpoint.parquet"


def checkpoint_path(version: int) -> str:
    return log_path(checkpoint_name(version))


def new_sidecar_path(unique: str) -> str:
    """The path of a new sidecar."""
    return f"{SIDECARS_DIRECTORY}/{unique}.parquet"


def sidecar_path(path: str, table_url: str) -> str:
    """The path of a sidecar below the table root. In the checkpoint (untrusted), a sidecar is named either by its file
    name or by an absolute path into the table's own ``_sidecars``. Raises UnsafePathError."""
    absolute = path.startswith("/") or _SCHEME.match(path)
    relative = locate(path, [place_of(table_url)])[1] if absolute else f"{SIDECARS_DIRECTORY}/{_decoded(path) or ''}"
    directory, _, name = relative.rpartition("/")
    if directory != SIDECARS_DIRECTORY or _NOT_PLAIN.search(name):
        raise UnsafePathError(
            f"A checkpoint of {table_url} names the sidecar {_shown(path)}; only plain names in _sidecars are read.",
            path=path,
        )
    return relative


def encode_path(path: str) -> str:
    """A relative path in the form used in ``add.path``: percent-encoded, except ``/`` and ``=``. Colons are encoded,
    because readers would treat the text before a colon as a scheme. Non-ASCII letters are not encoded, as in Java's
    URI: VACUUM in delta-spark compares paths as strings and would delete a live file if non-ASCII letters were encoded
    in the file's path."""
    if path.isascii():
        return urls.quote(path, safe=_SAFE)
    return "".join(char if _is_other(char) else urls.quote(char, safe=_SAFE) for char in path)


_SAFE = "/=@!$&'()*+,;~"


def _is_other(char: str) -> bool:
    """Whether a character is in the category "other" of java.net.URI: non-ASCII, and neither a control character nor a
    space."""
    return char > "\x9f" and not unicodedata.category(char).startswith("Z") and not "\ud800" <= char <= "\udfff"


def absolute_path(store_url: str, path: str) -> str:
    """The absolute path, in the form used in ``add.path``, of a file below the root of a store; an empty path means the
    root.

    The path is spelled as Hadoop spells it, such as ``file:/data/a%20b`` or ``s3a://bucket/ä``, because delta-spark
    compares absolute paths as strings. A store's ``url`` is not percent-encoded.
    """
    scheme, authority, root = _split(store_url)
    name = _URI_SPECIAL.sub(_uri_char, root.rstrip("/") + (f"/{path}" if path else ""))
    if scheme == "file":
        return f"file:{name}"
    return f"{_OF_HADOOP.get(scheme, store_url.partition(':')[0])}://{authority}{name}"


def _uri_char(match: re.Match[str]) -> str:
    char = match[0]
    return char if _is_other(char) else "".join(f"%{byte:02X}" for byte in char.encode())


_OF_HADOOP = {"s3": "s3a"}
# Matches all characters except those that java.net.URI leaves unencoded in a path.
_URI_SPECIAL = re.compile(r"[^a-zA-Z0-9_\-!.~'()*:@&=+$,;/]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Schemes that Hadoop and fsspec use for the same store.
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs"}
# Matches an empty, "." or ".." segment, a backslash, a control character, or one half of a surrogate pair.
_NOT_PLAIN = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|[\\\x00-\x1f\x7f\ud800-\udfff]")
_AFTER_SLASH = chr(ord("/") + 1)
# Nearly all paths in a log match this pattern: they are relative, contain no encoded characters, and no segment begins
# with a dot.
_ORDINARY = re.compile(r"[\w=,-][\w.=,-]*(?:/[\w=,-][\w.=,-]*)*", re.ASCII)
# Finds a part of a path that is not ordinary, even when many paths are joined with slashes. RE2 syntax.
_NOT_ORDINARY = r"(?:\A|/)(?:[./]|\z)|[^\w=,./-]"
_FEW_PATHS = 64
_SHOWN_LENGTH = 200


class Place(msgspec.Struct, frozen=True):
    """A directory of a store in which a path in the log may refer to a file."""

    url: str
    scheme: str
    authority: str
    segments: tuple[str, ...]


def place_of(store_url: str) -> Place:
    """The Place for a store's root, from the store's ``url``, which is not percent-encoded."""
    scheme, authority, path = _split(store_url)
    path = path.strip("/")
    return Place(store_url, scheme, authority, tuple(path.split("/")) if path else ())


def canonical_url(url: str) -> str:
    """Replace the scheme of a URL with its canonical scheme; the rest is unchanged."""
    scheme, mark, rest = url.partition("://")
    return f"{_SAME_SCHEME.get(scheme, scheme)}{mark}{rest}"


def is_plain(path: str) -> bool:
    """Whether a relative, decoded path refers to exactly one file below a root, in every store."""
    return not _NOT_PLAIN.search(path)


def is_within(path: str, start: str, end: str | None) -> bool:
    """Whether a path is in a range of ``LogStore.walk_parts``."""
    return start <= path and (end is None or path < end)


def has_some(directory: str, start: str, end: str | None) -> bool:
    """Whether a range can contain paths below a directory."""
    return not directory or (start < f"{directory}{_AFTER_SLASH}" and (end is None or f"{directory}/" < end))


def has_all(directory: str, start: str, end: str | None) -> bool:
    """Whether the range of paths from ``start`` to ``end`` contains all paths below a directory."""
    if not directory:
        return not start and end is None
    return start <= f"{directory}/" and (end is None or f"{directory}{_AFTER_SLASH}" <= end)


def locate(path: str, places: Sequence[Place]) -> tuple[int, str]:
    """Find the location that contains an untrusted path from a log. Returns the index of the location that contains the
    path, and the decoded path below that location.

    A relative path belongs to the first location in the list, which is the table's own location. An absolute path
    belongs to the first location that has the same scheme and authority and whose segments are a prefix of the path's
    segments. The path is percent-decoded once; ``?`` and ``#`` have no special meaning. Raises UnsafePathError for
    everything else.
    """
    if _ORDINARY.fullmatch(path):
        return 0, path
    scheme, authority, named = _split(path)
    decoded = _decoded(named.removeprefix("/") if scheme else named)
    absolute = bool(scheme) and named.startswith("/")
    if decoded is not None and absolute == bool(scheme) and not _NOT_PLAIN.search(decoded):
        if not absolute:
            return 0, decoded
        segments = tuple(decoded.split("/"))
        for number, place in enumerate(places):
            depth = len(place.segments)
            inside = depth < len(segments) and segments[:depth] == place.segments
            if inside and (scheme, authority) == (place.scheme, place.authority):
                return number, "/".join(segments[depth:])
    raise UnsafePathError(
        f"The log names the file {_shown(path)}, which is not a plain path below the table root {places[0].url} or "
        "below a location in allowed_paths. The file was not read.",
        path=path,
    )


def base_name(path: str) -> str | None:
    """The decoded file name of an absolute path from a log, regardless of its location; None for a relative path and
    for a path that cannot be decoded."""
    if not (path.startswith("/") or _SCHEME.match(path)):
        return None
    decoded = _decoded(path)
    return None if decoded is None else decoded.rpartition("/")[2]


def are_ordinary(paths: Sequence[str]) -> bool:
    """Whether all paths are simple relative paths, as is usual; ``locate`` then need not check each of them. A long
    list is checked by one scan of the joined paths."""
    if len(paths) < _FEW_PATHS:
        return all(map(_ORDINARY.fullmatch, paths))
    try:
        text = arrow_arrays.strings(["/".join(paths)])
    except UnicodeEncodeError:
        return False
    return not pc.match_substring_regex(text, _NOT_ORDINARY)[0].as_py()


def resolve_path(path: str, table_url: str) -> str:
    """The decoded path below the table root for an ``add.path`` (untrusted); see ``locate``.

    Raises UnsafePathError when the path is not in the table.
    """
    return locate(path, [place_of(table_url)])[1]


def _split(path: str) -> tuple[str, str, str]:
    """Split a URL or path into the scheme, the authority and the rest, without decoding. A local absolute path has the
    scheme ``file``; a relative path has no scheme."""
    match = _SCHEME.match(path)
    if match is None:
        return ("file" if path.startswith("/") else ""), "", path
    scheme, rest, authority = match[1], path[match.end() :], ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if scheme == "file" and authority == "localhost":
        authority = ""
    return _SAME_SCHEME.get(scheme, scheme), authority, rest


def _decoded(path: str) -> str | None:
    """Percent-decode a path once; None if the result is not UTF-8."""
    if "%" not in path:
        return path
    try:
        return urls.unquote(path, errors="strict")
    except UnicodeDecodeError:
        return None


def _shown(path: str) -> str:
    """A path for use in a message: control characters are escaped, and a long path is truncated."""
    return repr(path if len(path) <= _SHOWN_LENGTH else path[:_SHOWN_LENGTH] + "…")
