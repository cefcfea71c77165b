"""From a URL to a store."""

from __future__ import annotations

import os
from typing import Any

from deltalog.errors import CallError
from deltalog.storage.base import LogStore
from deltalog.storage.fs import LocalStore, local_root
from deltalog.storage.memory import named_store

_S3_SCHEMES = ("s3://", "s3a://")


def open_store(url: str | os.PathLike[str] | LogStore, **options: Any) -> LogStore:
    """The store of a table root: a local path, ``file:``, ``memory://name``, ``s3://bucket/prefix`` or ``s3a://``.

    ``options`` are those of s3fs.S3FileSystem (key, secret, token, endpoint_url, anon, client_kwargs,
    config_kwargs, ...); the others take none. A LogStore is passed through. ``memory://`` names live as long as
    the process. Raises CallError for a scheme or an option that is not known, and when s3fs is not installed.
    Cost: no store call.
    """
    if isinstance(url, LogStore):
        _refuse(options, "an open store")
        return url
    text = os.fspath(url)
    if not text:
        raise CallError("The table location is empty. Give a path such as '/data/events' or 'memory://events'.")
    if "\0" in text:
        raise CallError(f"The table location {text!r} has a NUL character in it, which no store takes.")
    if text.startswith("memory://"):
        _refuse(options, "memory://")
        return named_store(text)
    if text.startswith(_S3_SCHEMES):
        return _open_s3(text, options)
    root = local_root(text)
    if root is None:
        scheme = text.split(":", 1)[0]
        raise CallError(
            f"No store for scheme {scheme!r}. This version reads and writes local paths, file:, memory:// and s3://."
        )
    _refuse(options, "a local path")
    return LocalStore(root)


def _open_s3(url: str, options: dict[str, Any]) -> LogStore:
    try:
        import s3fs  # noqa: F401
    except ModuleNotFoundError as error:
        raise CallError(f"{url} needs the extra 's3' ({error}): pip install 'deltalog[s3]'.") from error
    from deltalog.storage.s3 import S3Store

    return S3Store(url, **options)


def _refuse(options: dict[str, Any], kind: str) -> None:
    if options:
        raise CallError(f"Storage options {sorted(options)} do not apply to {kind}. Remove them.")
