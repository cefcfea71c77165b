"""Restricts the module ``os`` of this process to what Windows can do with files.

Directories cannot be opened, paths are never relative to a directory's descriptor, there are no unnamed files, an open
file is neither removed nor replaced, and a listing does not say on which disk an entry is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from deltalog.storage import fs


def restrict(patch: pytest.MonkeyPatch, *, denied: list[str] | None = None) -> None:
    """``denied``: receives the path of each removal and replacement that was denied because the file was open."""
    real_open = os.open

    def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        assert dir_fd is None, f"{path} is opened relative to a directory"
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, flags, mode)

    patch.setattr(os, "open", open_file)
    for name in ("stat", "unlink", "rmdir", "link"):
        patch.setattr(os, name, _without_descriptors(name, getattr(os, name)))
    for name in ("unlink", "replace", "rename"):
        patch.setattr(os, name, _not_if_open(getattr(os, name), denied))
    patch.setattr(fs, "_O_TMPFILE", 0)


def _without_descriptors(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any, **named: Any) -> Any:
        assert {"dir_fd", "src_dir_fd", "dst_dir_fd"}.isdisjoint(named), f"os.{name} relative to a directory"
        return call(*arguments, **named)

    return called


def _not_if_open(call: Callable[..., Any], denied: list[str] | None) -> Callable[..., Any]:
    def called(*paths: Any) -> Any:
        if open_here := {os.path.abspath(path) for path in paths} & _open_files():
            if denied is not None:
                denied.extend(open_here)
            error = PermissionError(13, "The process cannot access the file", *paths[:1])
            error.winerror = 32  # type: ignore[attr-defined]
            raise error
        return call(*paths)

    return called


def _open_files() -> set[str]:
    found = set[str]()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the descriptor of the listing
            continue
    return found
