"""The page of several tables, and how a timeline page is written to a file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from deltalog.addresses import is_address, split_address
from deltalog.cli.options import manager_of, open_table
from deltalog.cli.output import Output
from deltalog.errors import CallError
from deltalog.log.history import LogHistory
from deltalog.presentation import tables_page
from deltalog.presentation.tables_page import TableOnPage
from deltalog.presentation.timeline import MARK, Page
from deltalog.storage.registry import CATALOG_SCHEME


def of_several(addresses: Sequence[str]) -> Callable[[Output, int | None, bool], Page] | None:
    """Returns a function that renders the page of several tables; None if ``addresses`` has only one table. The
    function's arguments: the output of the command, the number of commits of each table, whether to check them."""
    if len(addresses) == 1 and not _is_catalog(addresses[0]):
        return None
    return functools.partial(_page, addresses)


def _is_catalog(address: str) -> bool:
    return is_address(address) and "#" not in address


def _page(addresses: Sequence[str], out: Output, limit: int | None, examine: bool) -> Page:
    with out.working("Opening the tables"):
        found = list(_tables(addresses))
    if not found:
        raise CallError(f"{', '.join(addresses)} has no tables.")
    if examine:
        with out.progress("Reading the logs", "Checked") as progress:
            found = [dataclasses.replace(each, report=each.table.check(progress=progress)) for each in found]
    with out.working("Reading the commits"):
        return tables_page.page(_title(addresses), found, limit)


def _title(addresses: Sequence[str]) -> str:
    catalogs = {each.removeprefix(CATALOG_SCHEME).rpartition("#")[0] or each for each in addresses if is_address(each)}
    if len(catalogs) == 1 and all(map(is_address, addresses)):
        return catalogs.pop().removeprefix(CATALOG_SCHEME).rstrip("/").rpartition("/")[2]
    return f"{len(addresses)} tables"


def _tables(addresses: Sequence[str]) -> Iterator[TableOnPage]:
    """The tables at the addresses, in order, each once. All tables of a catalog are read as of one instant."""
    names: dict[str, list[str] | None] = {}
    for each in addresses:
        if _is_catalog(each):
            names[each.removeprefix(CATALOG_SCHEME)] = None
        elif is_address(each):
            url, name = split_address(each)
            chosen = names.setdefault(url, [])
            if chosen is not None and name not in chosen:
                chosen.append(name)
    for url, chosen in names.items():
        yield from tables_page.tables_of(manager_of(url), chosen)
    for each in dict.fromkeys(each for each in addresses if not is_address(each)):
        table = open_table(each)
        yield TableOnPage(each, table, LogHistory(table.snapshot().reader))


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
