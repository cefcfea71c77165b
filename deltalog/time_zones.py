"""Time zones that callers name."""

from __future__ import annotations

import datetime
from typing import TypeAlias

from deltalog.errors import CallError

TimeZone: TypeAlias = str | datetime.tzinfo


def zone_of(time_zone: TimeZone | None) -> datetime.tzinfo | None:
    """The time zone of a name such as ``Europe/Berlin`` or ``UTC``. Raises CallError for an unknown name."""
    if time_zone is None or isinstance(time_zone, datetime.tzinfo):
        return time_zone
    if time_zone == "UTC":
        return datetime.timezone.utc
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(time_zone)
    except (OSError, ValueError, LookupError):
        raise CallError(
            f"There is no time zone {time_zone!r}. Give the name of one, such as 'Europe/Berlin' or 'UTC', or a "
            "tzinfo. On a machine without time zones: pip install tzdata."
        ) from None
