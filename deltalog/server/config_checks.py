"""``deltalog serve --check-config``: checks of a configuration that need no running server."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalog.catalog.coordinator import Coordinator
from deltalog.errors import CallError, DeltaLogError
from deltalog.server import serve, tls
from deltalog.server.access import issued
from deltalog.server.access.authentication import check_authentication
from deltalog.server.config import (
    CatalogSettings,
    Config,
    Configuration,
    Given,
    exposed,
    files_of,
    outputs_of,
    settings_of,
    shown,
    storage_options_of,
)
from deltalog.server.observe.observation import check_settings

_UPGRADED = (
    "[catalog] url: the catalog is of an earlier version of deltalog. The start of the server upgrades it; from then "
    "on, programs of the earlier version can change nothing in it. Back it up before."
)

OpenCatalog = Callable[[CatalogSettings, dict[str, Any]], "Coordinator | None"]
"""The catalog of some settings, with storage options; None if opening it would upgrade it. Raises DeltaLogError unless
it answers."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. The result of a check. ``configuration``: the effective configuration without secrets;
    empty if it cannot be read.
    """

    ok: bool
    problems: list[str]
    warnings: list[str]
    configuration: dict[str, Any]


def check(
    file: Path | None,
    above: Given,
    read_options: Callable[[Path], dict[str, Any]],
    open_catalog: OpenCatalog | None = None,
) -> Checked:
    """Check a configuration. ``read_options``: reads a file of storage options. ``open_catalog``: None: the catalog is
    not asked."""
    try:
        config = Configuration(file, above).config
    except CallError as error:
        return Checked(False, str(error).splitlines(), [], {})
    problems, warnings = _problems_of(config, read_options, open_catalog)
    return Checked(not problems, problems, warnings, shown(config))


def _problems_of(
    config: Config,
    read_options: Callable[[Path], dict[str, Any]],
    open_catalog: OpenCatalog | None,
) -> tuple[list[str], list[str]]:
    problems, warnings = [], []
    files = files_of(config)
    for place, file in files.items():
        try:
            with open(file, "rb") as opened:
                opened.read(1)
        except OSError as error:
            problems.append(f"{place}: {file} cannot be read: {error.strerror}.")
    for place, file in outputs_of(config).items():
        there = file if os.path.exists(file) else os.path.dirname(file) or "."
        if not os.access(there, os.W_OK):
            problems.append(f"{place}: {file} cannot be written: {there} does not exist or is not writable.")
    warnings += exposed(files)
    if problems:
        return problems, warnings
    if not config.catalog.url:
        problems.append("[catalog] url: no catalog is given, neither in the configuration nor on the command line.")
    has_tokens = None
    try:
        options = storage_options_of(config.storage, read_options)
        if open_catalog is not None and config.catalog.url:
            catalog = open_catalog(config.catalog, options)
            if catalog is None:
                warnings.append(_UPGRADED)
            else:
                has_tokens = issued.are_required(catalog)
    except DeltaLogError as error:
        problems.append(str(error))
    try:
        settings = settings_of(config)
        check_authentication(settings.authentication)
        check_settings(settings.audit, settings.metrics)
        serve.check(settings, has_tokens=has_tokens is not False)
        warnings += serve.warnings_of(settings, has_tokens=has_tokens is not False)
        if settings.tls is not None:
            wrong, soon = tls.problems_of(settings.tls)
            problems += wrong
            warnings += soon
    except DeltaLogError as error:
        problems.append(str(error))
    else:
        if has_tokens is None:
            warnings += _without_tokens(settings)
    wrong_address, taken = _address(config.listen.host, config.listen.port)
    return problems + wrong_address, warnings + taken


def _without_tokens(settings: serve.Settings) -> list[str]:
    """What is wrong with the settings if the catalog has no tokens. The catalog was not asked whether it has any."""
    try:
        serve.check(settings, has_tokens=False)
    except DeltaLogError as error:
        return [f"Unless the catalog has tokens (check this with --check-catalog), the server does not start: {error}"]
    return []


def _address(host: str, port: int) -> tuple[list[str], list[str]]:
    """What is wrong with the address, and a warning if it is in use, perhaps by the server that is to be replaced."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return [], [f"[listen] port: {host} port {port} is in use."]
        return [f"[listen]: the server cannot listen on {host} port {port}: {error.strerror}."], []
    return [], []
