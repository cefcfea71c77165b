"""Paths that a hostile log may contain, and recorders of the files that are opened on local disk."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CANARY = "secret.parquet"
# The encoded UUID in deletion vector descriptors of type ``u``.
VECTOR_ID = "vBn[lx{q8@P<9BNH/isA"
LINKS = ["link-file", "link-chain", "link-dir", "link-up", "link-root", "link-evil", "link-loop", "link-passwd"]

_DOTS = ["..", "%2e%2e", "%2E.", ".%2e", "%252e%252e", "%c0%ae%c0%ae", "%e0%80%ae.", "%u002e%u002e", "%uff0e."]
_DOTS += [
    "%00.%00.",
    ".%00.%00",
    "．．",
    "%ef%bc%8e%ef%bc%8e",
    "‥",
    " ..",
    ".. ",
    "..\u200b",
    "\u202e..",
    "..;",
    "..\0",
    "..\t",
]
_SEPARATORS = ["/", "%2f", "%252F", "\\", "%5c", "%c0%af", "／", "//"]

_FIXED = [
    *("", " ", ".", "..", "...", "/", "//", "\\", ":", "::", "%", "%%", "%2", "%zz", "%20", "?", "#", "*", "%00", "\0"),
    *("./x", "x/.", "x/..", "a/../b", "a//b", "a/", "x\0", "x\n", "x\r\nHost: elsewhere", "x%0d%0aHost:%20elsewhere"),
    *("a/../../secret.parquet", "a/b/%2e%2e/%2e%2e/%2e%2e/secret.parquet", "_delta_log/../../secret.parquet"),
    *(
        "..%2fsecret.parquet%00.parquet",
        "..%2fsecret.parquet?versionId=null",
        "x?versionId=null",
        "x#/../../secret.parquet",
    ),
    *(
        "\u202e../secret.parquet",
        "\u2066..\u2069/secret.parquet",
        "\ufeff../secret.parquet",
        "\x7f/x",
        "\x85/x",
        "\x1b[2J",
    ),
    *("%ed%a0%80/x", "%ff", "%fe%ff%00.%00.", "+/v8-ABC"),
    *("x" * 300, "x" * 5000, "é" * 1000, "../" * 1000 + "etc/passwd", "%2e%2e/" * 400 + "etc/passwd", "a/" * 2000),
    *(
        "/etc/passwd",
        "//etc/passwd",
        "///etc/passwd",
        "/etc//passwd",
        "/proc/self/environ",
        "/dev/zero",
        "/%65tc/passwd",
    ),
    *("file:/etc/passwd", "file:///etc/passwd", "file:////etc/passwd", "file:etc/passwd", "FILE:///etc/passwd"),
    *(
        "file:%2fetc%2fpasswd",
        "file://localhost/etc/passwd",
        "file://localhost@elsewhere/x",
        "file:///%2e%2e/etc/passwd",
    ),
    *("~/.ssh/id_rsa", "~root/x", "$HOME/x", "${HOME}/x", "%24%7BHOME%7D/x", "|cat /etc/passwd", "`id`", "$(id)"),
    *("C:\\secret.parquet", "C:/secret.parquet", "C:secret.parquet", "c%3a/secret.parquet", "\\\\host\\share\\x"),
    *("\\\\?\\C:\\x", "CON", "NUL", "aux.parquet", "x.parquet::$DATA", "x.parquet.", "[a-z]*", "{a,b}", "**/*"),
    *(
        "gs://bucket/x",
        "abfss://c@account.dfs.core.windows.net/x",
        "adl://x/y",
        "wasbs://c@a/x",
        "dbfs:/x",
        "oci://b@n/x",
    ),
    *("data:,x", "javascript:x", "jar:file:/x!/y", "view-source:x", "mailto:x", "urn:x", "unix:/run/x", "zip://x::y"),
    *("http://169.254.169.254/latest/meta-data/", "http://[::1]/x", "http:x", "http:///x", "://x", "1http://x/y"),
    *("_delta_log/00000000000000000000.json", "_delta_log", "deletion_vector_x.bin"),
]

# {root} and {parent}: the table's location and the parent of that location; {path}: the location's path without a
# scheme; {listener}: the host and port of a server that must never be contacted; {bucket}: the table's bucket, or its
# name.
_OF_A_TABLE = [
    *(
        "{parent}/secret.parquet",
        "{root}/../secret.parquet",
        "{root}/%2e%2e/secret.parquet",
        "{root}/..%2fsecret.parquet",
    ),
    *(
        "{root}-evil/secret.parquet",
        "{root}%2devil/secret.parquet",
        "{root}secret.parquet",
        "{root}",
        "{root}/",
        "{root}//",
    ),
    *(
        "{root}/./../secret.parquet",
        "{root}//../secret.parquet",
        "{root}/a/../../secret.parquet",
        "{root}\\..\\secret.parquet",
    ),
    *("{root}/%252e%252e/secret.parquet", "{root}/%00", "{root}%2f..%2fsecret.parquet", "{root}?/../secret.parquet"),
    *("file:{path}/../secret.parquet", "file:{path}-evil/secret.parquet", "file://{path}/%2e%2e/secret.parquet"),
    *(
        "file://{listener}{path}/x",
        "file://127.0.0.1{path}/x",
        "file:/{path}/x",
        "file:///{path}/x",
        "file:{path}#/../x",
    ),
    *(
        "http://{listener}/secret.parquet",
        "https://{listener}/secret.parquet",
        "ftp://{listener}/x",
        "hdfs://{listener}/x",
    ),
    *("//{listener}/secret.parquet", "http:\\\\{listener}\\x", "http://user:pass@{listener}/x", "\\\\{listener}\\x"),
    *("s3://{listener}/x", "s3://{bucket}@{listener}/x", "s3://{bucket}:80@{listener}/x", "s3://{bucket}.{listener}/x"),
    *(
        "s3://other/secret.parquet",
        "s3a://other/secret.parquet",
        "s3n://other/secret.parquet",
        "S3://{bucket}/secret.parquet",
    ),
    *(
        "s3://{bucket}/secret.parquet",
        "s3a://{bucket}/secret.parquet",
        "s3:/{bucket}/x",
        "s3:{bucket}/x",
        "s3:///{bucket}/x",
    ),
    *(
        "s3://{bucket}%2fx/y",
        "s3://{bucket}/%2e%2e/x",
        "s3://{bucket}?x=/secret.parquet",
        "s3://{bucket}#/secret.parquet",
    ),
    *(
        "memory://{bucket}/secret.parquet",
        "memory:secret.parquet",
        "memory://",
        "memory:///{bucket}",
        "simplecache::{root}/x",
    ),
]


def hostile_paths(root: str, parent: str, path: str, bucket: str, listener: str) -> list[str]:
    """All distinct hostile paths for a table at ``root``."""
    dotted = [f"{dots}{separator}{CANARY}" for dots in _DOTS for separator in _SEPARATORS]
    words = {"root": root, "parent": parent, "path": path, "bucket": bucket, "listener": listener}
    of_this = []
    for template in _OF_A_TABLE:
        for word, value in words.items():
            template = template.replace("{" + word + "}", value)
        of_this.append(template)
    links = [*LINKS, *(f"{link}/{CANARY}" for link in LINKS), f"link-up/t-evil/{CANARY}", "link%2Dfile"]
    return list(dict.fromkeys([*dotted, *_FIXED, *of_this, *links]))


def make_links(table: Path, outside: Path) -> None:
    """Create the symbolic links in LINKS; all except the loop point outside the table."""
    targets: dict[str, Any] = {
        "link-file": outside / CANARY,
        "link-chain": table / "link-file",
        "link-dir": outside,
        "link-up": "..",
        "link-root": "/",
        "link-evil": f"../{table.name}-evil",
        "link-loop": table / "link-loop",
        "link-passwd": "/etc/passwd",
    }
    for name in LINKS:
        (table / name).symlink_to(targets[name])


# ------------------------------------------------------------------------------------- recording what is opened

_opened: list[str] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
        _opened.append(os.fsdecode(arguments[0]))


_audited = False


@contextlib.contextmanager
def opened_by_python() -> Iterator[list[str]]:
    """The paths that Python opened or listed while the block ran. Files that Arrow opens are not recorded; see
    ``opened_in``."""
    global _audited, _opened
    if not _audited:
        sys.addaudithook(_audit)  # audit hooks cannot be removed
        _audited = True
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


_IN_OPEN, _IN_NONBLOCK = 0x20, os.O_NONBLOCK


@contextlib.contextmanager
def opened_in(*directories: Path) -> Iterator[list[str]]:
    """The files directly in these directories that any process opens inside the block, recorded with inotify."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(_IN_NONBLOCK)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify is not there")
    found: list[str] = []
    try:
        for directory in directories:
            if libc.inotify_add_watch(descriptor, os.fsencode(directory), _IN_OPEN) < 0:
                raise OSError(ctypes.get_errno(), f"cannot watch {directory}")
        yield found
        with contextlib.suppress(BlockingIOError):
            while data := os.read(descriptor, 1 << 20):
                start = 0
                while start < len(data):
                    _, _, _, length = struct.unpack_from("iIII", data, start)
                    found.append(data[start + 16 : start + 16 + length].rstrip(b"\0").decode(errors="replace"))
                    start += 16 + length
    finally:
        os.close(descriptor)
