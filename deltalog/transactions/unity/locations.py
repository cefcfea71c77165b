"""Converts the roots of tables from and to the form that clients use."""

from __future__ import annotations

import os
import re
import urllib.parse

from deltalog.errors import CallError
from deltalog.storage.fs import local_root

_MOST_LOCATION_BYTES = 4096
# Without empty segments, which storage services interpret in different ways.
_URL = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*:/(/[^/\s\x00-\x1f\x7f\ud800-\udfff]+)+")


def location_of(url: str) -> str:
    """The root of a table as a URL. Only characters that would change the meaning of the URL are encoded, because
    Hadoop does not decode others, such as spaces.
    """
    if not url.startswith("/"):
        return url
    return f"file://{url.replace('%', '%25').replace('?', '%3F').replace('#', '%23')}"


def canonical_location(location: str) -> str:
    """The root that a client names, in its canonical form; no store is opened. Raises CallError."""
    url = location.rstrip("/")
    is_local = location.startswith(("/", "file:/"))
    root = local_root(location) if is_local and "\0" not in location else None
    if is_local and root is not None:
        url = os.path.realpath(root)
    elif not _URL.fullmatch(url) or {".", ".."}.intersection(urllib.parse.unquote(url).split("/")):
        raise CallError("A location must be an absolute path or a URL such as s3://bucket/path.")
    if len(url.encode("utf-8", "surrogatepass")) > _MOST_LOCATION_BYTES:
        raise CallError(f"A location must have at most {_MOST_LOCATION_BYTES} bytes.")
    return f"s3://{url.removeprefix('s3a://')}" if url.startswith("s3a://") else url
