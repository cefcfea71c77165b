"""The section ``storage`` of the server's configuration: with which options and keys it opens which locations.

Keys are given by reference, so that neither the configuration nor a message has one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalog.errors import CallError
from deltalog.storage.fs import local_root
from deltalog.storage.locations import BY_LOCATION
from deltalog.storage.secrets import secret_names

_MOST_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class StorageRule:
    """Options for the locations below a prefix. ``prefix``: a path, or a URL such as ``s3://lake/sales``; it matches
    whole segments. ``options``: as for ``DeltaTable.open``, without keys, for example ``endpoint_url``. ``secrets``:
    options whose values are secret, each as ``env:NAME``, a variable of the server's environment, or ``file:PATH``, a
    file with one line."""

    prefix: str
    options: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """``rules``: of those whose prefix covers a location, the one with the longest prefix applies, and no other. A
    location without a rule is opened with the keys of the server's environment. Clients can register tables below
    these prefixes only, and below the warehouse; a local directory is permitted by a rule without options."""

    rules: tuple[StorageRule, ...] = ()


def options_of(settings: StorageSettings) -> dict[str, Any]:
    """The rules as storage options for ``TransactionManager``. Raises CallError, which shows no secret. Cost: reads the
    files of the secrets."""
    found: dict[str, Mapping[str, Any]] = {}
    for rule in settings.rules:
        prefix = _prefix(rule.prefix)
        if prefix in found:
            raise CallError(f"Two rules for storage have the prefix {prefix}. Give one.")
        found[prefix] = _options(rule, prefix)
    return {BY_LOCATION: found} if found else {}


def _prefix(given: str) -> str:
    if "://" not in given and not given.startswith(("/", "file:")):
        raise CallError(f"The prefix {given!r} of a rule for storage must be an absolute path or a URL.")
    root = local_root(given)
    if root is not None:
        return os.path.realpath(root)
    if given.startswith("file:") or not given.partition("://")[2].strip("/"):
        raise CallError(
            f"The prefix {given!r} of a rule for storage has neither a bucket nor a directory of this machine."
        )
    return given.rstrip("/")


def _options(rule: StorageRule, prefix: str) -> Mapping[str, Any]:
    if named := secret_names(rule.options):
        raise CallError(
            f"The rule for {prefix} has {', '.join(sorted(named))} among its options. Give them in secrets, as "
            "env:NAME or file:PATH."
        )
    if twice := sorted(rule.options.keys() & rule.secrets.keys()):
        raise CallError(f"The rule for {prefix} has {', '.join(twice)} both in options and in secrets. Give one.")
    return {**rule.options, **{name: _secret(each, name, prefix) for name, each in rule.secrets.items()}}


def _secret(reference: str, name: str, prefix: str) -> str:
    """The secret that a reference names."""
    kind, mark, place = reference.partition(":")
    what = f"The secret {name} of the rule for {prefix}"
    if not mark or kind not in ("env", "file") or not place:
        raise CallError(f"{what} must be given as env:NAME or file:PATH.")
    if kind == "env":
        value = os.environ.get(place)
        if not value:
            raise CallError(f"{what}: the environment has no variable {place}.")
        return value
    try:
        with Path(place).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8").strip()
    except OSError as error:
        raise CallError(f"{what}: {place} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CallError(f"{what}: {place} is not UTF-8 text.") from None
    if not text or "\n" in text or len(data) > _MOST_BYTES:
        raise CallError(f"{what}: {place} must have one line.")
    return text
