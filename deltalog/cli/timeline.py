"""Writes the timeline page to a file."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

from deltalog.errors import CallError
from deltalog.presentation.timeline import MARK


def write_page(path: Path, text: str, overwrite: bool) -> int:
    """Write a page atomically and return its size in bytes. If ``path`` is a device or a pipe, the page is written into
    that device or pipe and does not replace it.

    Raises CallError if the file exists and is not a timeline page, and OSError that names ``path`` rather than a
    temporary file.
    """
    data = text.encode()
    try:
        if path.is_dir():
            raise CallError(f"{path} is a directory. Specify a file: --output {path / 'timeline.html'}")
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return len(data)
        if path.exists() and not overwrite and MARK.encode() not in _head(path):
            raise CallError(
                f"{path} already exists and is not a timeline page. Choose another file, or pass --overwrite."
            )
        _replace(path.resolve(), data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return len(data)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1000)
