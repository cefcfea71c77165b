"""Points in time, in the forms in which programs written for deltalake pass them. Pure."""

from __future__ import annotations

import datetime

from deltalog.errors import CallError, InvalidTimestampError
from deltalog.protocol.timestamps import to_epoch_ms


def epoch_ms(given: str | datetime.datetime) -> int:
    """Milliseconds since 1970. A datetime without a time zone is interpreted as UTC; text must contain an offset.
    Raises CallError."""
    if isinstance(given, datetime.datetime):
        return to_epoch_ms(given if given.tzinfo is not None else given.replace(tzinfo=datetime.timezone.utc))
    try:
        return to_epoch_ms(given)
    except InvalidTimestampError as error:
        raise CallError(f"Failed to parse datetime string: {error.message}") from None


def text_of(given: datetime.datetime) -> str:
    """A datetime as text with a UTC offset; a datetime without a time zone is taken to be in UTC."""
    return (given if given.tzinfo is not None else given.replace(tzinfo=datetime.timezone.utc)).isoformat()
