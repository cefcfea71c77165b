"""``_last_checkpoint``: a hint where to begin listing. It is never trusted for more. Pure.

Spec: PROTOCOL.md#last-checkpoint-file, #json-checksum.
"""

from __future__ import annotations

import hashlib
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any


def read_hint(data: bytes) -> int | None:
    """The version it names, or None when it is torn, garbage or fails its own checksum."""
    try:
        body = json.loads(data)
        version = body["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version < 2**63:
        return None
    expected = body.get("checksum")
    if expected is not None and expected != checksum(body):
        return None
    return version


def encode_hint(version: int, size: int, size_bytes: int, num_add_files: int) -> bytes:
    """The file for a checkpoint of ``size`` actions."""
    body: dict[str, Any] = {
        "version": version,
        "size": size,
        "sizeInBytes": size_bytes,
        "numOfAddFiles": num_add_files,
    }
    return json.dumps({**body, "checksum": checksum(body)}, separators=(",", ":")).encode()


def checksum(body: Mapping[str, Any]) -> str:
    """MD5 of the canonical form: every leaf as ``"path"=value``, sorted, without the checksum itself."""
    leaves = sorted(
        _leaf(path, value) for path, value in _leaves((), {k: v for k, v in body.items() if k != "checksum"})
    )
    return hashlib.md5(",".join(leaves).encode(), usedforsecurity=False).hexdigest()


def _leaves(path: tuple[str, ...], value: Any) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in _leaves((*path, _quoted(key)), item)]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in _leaves((*path, str(index)), item)]
    return [(path, value)]


def _leaf(path: tuple[str, ...], value: Any) -> str:
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = _quoted(value)
    else:
        text = str(value)
    return f"{'+'.join(path)}={text}"


def _quoted(text: str) -> str:
    return '"' + urllib.parse.quote(text, safe="-._~") + '"'
