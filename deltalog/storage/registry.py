"""From a URL to a store."""

from __future__ import annotations

import os
import threading
from typing import Any

from deltalog.errors import CallError
from deltalog.storage.base import LogStore
from deltalog.storage.fs import LocalStore, local_root
from deltalog.storage.memory import MemoryStore

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


def open_store(url: str | os.PathLike[str] | LogStore, **options: Any) -> LogStore:
    """The store of a table root: a local path, ``file:``, or ``memory://name``. A LogStore is passed through.

    ``memory://`` names live as long as the process. Raises CallError for a scheme or an option that is not
    known. Cost: no store call.
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
        with _memory_lock:
            return _memory_stores.setdefault(text.rstrip("/"), MemoryStore(text))
    root = local_root(text)
    if root is None:
        scheme = text.split(":", 1)[0]
        raise CallError(
            f"No store for scheme {scheme!r}. This version reads and writes local paths, file: and memory://."
        )
    _refuse(options, "a local path")
    return LocalStore(root)


def _refuse(options: dict[str, Any], kind: str) -> None:
    if options:
        raise CallError(f"Storage options {sorted(options)} do not apply to {kind}. Remove them.")
