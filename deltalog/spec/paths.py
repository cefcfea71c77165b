"""Every name below ``_delta_log``, and the one decoding of the paths that a log contains.

Spec: PROTOCOL.md#delta-table-specification (file types), #add-file-and-remove-file (path).
"""

from __future__ import annotations

import enum
import posixpath
import re
import urllib.parse
from dataclasses import dataclass

from deltalog.errors import UnsafePathError

LOG_DIRECTORY = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
MAX_VERSION = 2**63 - 1


class LogFileKind(enum.Enum):
    """What a file directly in ``_delta_log`` is."""

    COMMIT = "commit"
    CHECKSUM = "checksum"
    CLASSIC_CHECKPOINT = "classic checkpoint"
    MULTI_PART_CHECKPOINT = "multi-part checkpoint"
    UUID_CHECKPOINT = "UUID-named checkpoint"
    COMPACTION = "log compaction"


@dataclass(frozen=True, slots=True)
class LogFile:
    """A parsed name. ``end_version`` is that of a compaction, ``part`` and ``parts`` of a multi-part checkpoint."""

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
    """What the name of a file in ``_delta_log`` says, or None for a name the protocol does not give meaning."""
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
    """What the names of all files of a version and later ones sort at or after."""
    return f"{version:020d}."


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def commit_path(version: int) -> str:
    return log_path(commit_name(version))


def checksum_path(version: int) -> str:
    return log_path(f"{version:020d}.crc")


def checkpoint_path(version: int) -> str:
    return log_path(f"{version:020d}.checkpoint.parquet")


def sidecar_path(path: str) -> str:
    """Where a sidecar lies. The log (untrusted) may give a plain file name only. Raises UnsafePathError."""
    name = urllib.parse.unquote(path) if _decodable(path) else ""
    if not name or name in (".", "..") or any(c in "/\\:" or ord(c) < 32 for c in name):
        raise UnsafePathError(
            f"A checkpoint names the sidecar {path!r}; only plain names in _sidecars are read.", path=path
        )
    return log_path(f"_sidecars/{name}")


def encode_path(path: str) -> str:
    """A relative path as ``add.path`` holds it: percent-encoded, ``/`` and ``=`` kept readable.
    A colon is encoded: before it, readers see a scheme."""
    return urllib.parse.quote(path, safe="/=@!$&'()*+,;~")


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def resolve_path(path: str, table_url: str) -> str:
    """The decoded path below the table root that ``add.path`` (untrusted) names.

    Decodes once. An absolute path or ``file:`` URI is accepted when it lies below the table root. Raises
    UnsafePathError for everything that leaves the table or switches the scheme.
    """
    if not path:
        raise UnsafePathError("A file in the log has an empty path. The log is damaged.", path=path)
    scheme = _SCHEME.match(path)
    if scheme or path.startswith("/"):
        relative = _below_root(path, table_url)
    else:
        relative = urllib.parse.unquote(path, errors="strict") if _decodable(path) else ""
    segments = relative.split("/")
    unsafe = any(part in ("", ".", "..") for part in segments)
    if unsafe or "\\" in relative or any(ord(c) < 32 or ord(c) == 127 for c in relative):
        raise UnsafePathError(
            f"The log names the file {path!r}, which is not a plain path below the table root {table_url}. "
            "deltalog reads only files inside the table.",
            path=path,
        )
    return relative


def _decodable(path: str) -> bool:
    try:
        urllib.parse.unquote(path, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def _below_root(path: str, table_url: str) -> str:
    """The part of an absolute path or URI below the table root; empty when it lies elsewhere."""
    if not _decodable(path):
        return ""
    root = table_url.rstrip("/") + "/"
    if path.startswith("/"):
        absolute = urllib.parse.unquote(path)
    elif path.startswith("file:"):
        parts = urllib.parse.urlsplit(path)
        absolute = urllib.parse.unquote(parts.path) if parts.netloc in ("", "localhost") else ""
    else:
        absolute = urllib.parse.unquote(path)
    absolute = posixpath.normpath(absolute) if "/../" not in f"{absolute}/" and "://" not in absolute else absolute
    return absolute[len(root) :] if absolute.startswith(root) else ""
