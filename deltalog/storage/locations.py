"""Selects the storage options for a location if they differ between locations (``by_location``). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalog.errors import CallError
from deltalog.protocol.paths import canonical_url

BY_LOCATION = "by_location"


def options_at(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for a location: the entry of ``by_location`` with the longest prefix that matches, or the options
    outside ``by_location`` if no prefix matches. Prefixes match whole path segments. An entry is never merged with the
    other options, so that an access key is never combined with another key's secret. Raises CallError, which shows no
    option."""
    others = {name: value for name, value in options.items() if name != BY_LOCATION}
    given = options.get(BY_LOCATION)
    if given is None:
        return others
    if not isinstance(given, Mapping) or not all(
        isinstance(start, str) and start and isinstance(each, Mapping) for start, each in given.items()
    ):
        raise CallError(
            f"{BY_LOCATION} is a mapping from the beginnings of locations, such as 's3://lake/sales', to the storage "
            "options of each, a mapping again."
        )
    location = canonical_url(url)
    fitting = [start for start in given if _begins(location, canonical_url(start))]
    return dict(given[max(fitting, key=len)]) if fitting else others


def _begins(location: str, start: str) -> bool:
    if not start.endswith("://"):
        start = start.rstrip("/")
    if not location.startswith(start):
        return False
    return start.endswith(("/", ":")) or location[len(start) : len(start) + 1] in ("", "/")
