"""``_last_checkpoint``: a hint from which version to list the log. deltalog uses it for nothing else. Pure.

Spec: PROTOCOL.md#last-checkpoint-file, #json-checksum, #last-checkpoint-file-schema,
#how-to-url-encode-keys-and-string-values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deltalog.lazy_names import lazy_modules
from deltalog.protocol import limits

if TYPE_CHECKING:
    import hashlib
    import urllib.parse as urls
else:
    lazy_modules(__name__, "hashlib", urls="urllib.parse")


def read_hint(data: bytes) -> int | None:
    """The version in the hint; None if the hint is truncated, invalid, larger than ``limits.MAX_HINT_BYTES``, or does
    not match its checksum."""
    if len(data) > limits.MAX_HINT_BYTES:
        return None
    try:
        body = json.loads(data)
        version = body["version"]
        expected = body.get("checksum")
        sound = expected is None or expected == checksum(body)
    # JSON can contain lone surrogates, which cannot be encoded as UTF-8, and values that are nested too deeply to
    # traverse.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    whole = isinstance(version, int) and not isinstance(version, bool)
    return version if sound and whole and 0 <= version < 2**63 else None


def encode_hint(
    version: int, size: int, size_bytes: int, num_add_files: int | None, v2: Mapping[str, Any] | None = None
) -> bytes:
    """The hint for a checkpoint of ``size`` actions. ``v2``: path, size and modification time of the file of a
    UUID-named checkpoint, so that delta-spark finds the file without a LIST."""
    body: dict[str, Any] = {
        "version": version,
        "size": size,
        "sizeInBytes": size_bytes,
    }
    body |= {"numOfAddFiles": num_add_files} if num_add_files is not None else {}
    body |= {"v2Checkpoint": dict(v2)} if v2 is not None else {}
    return json.dumps({**body, "checksum": checksum(body)}, separators=(",", ":")).encode()


def checksum(body: Mapping[str, Any]) -> str:
    """The MD5 checksum, in hexadecimal, of the canonical form of the JSON object: every leaf except ``checksum`` as
    ``"path"=value``, sorted.

    Spec: PROTOCOL.md#json-checksum.
    """
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
    return '"' + urls.quote(text, safe="-._~") + '"'
