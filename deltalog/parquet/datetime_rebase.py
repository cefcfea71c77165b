"""Rebases dates and timestamps written by old writers from the Julian to the Gregorian calendar. Pure.

Spark before version 3, and later versions if so configured, use the Julian calendar for days before 15 October 1582,
and record this in the footer. Delta uses the proleptic Gregorian calendar. Rebasing keeps the year, month and day of a
date. For a timestamp it also keeps the time of day in UTC, because nearly all writers that record a time zone record
UTC.

Spec: PROTOCOL.md#primitive-types (dates and timestamps) does not mention the calendar.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from deltalog.lazy_arrow import pc

_VERSION = b"org.apache.spark.version"
_LEGACY_DATE_TIME = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"
_MICROS_PER_DAY = 86_400_000_000
_EPOCH_ORDINAL = 719_163
_GREGORIAN_FROM = datetime.date(1582, 10, 15).toordinal() - _EPOCH_ORDINAL


def _steps() -> list[int]:
    """The stored day numbers at which the difference between the calendars changes by a day: 1 March of years that are
    leap years only in the Julian calendar."""
    centuries = [year for year in range(100, 1582, 100) if year % 400]
    marches = (datetime.date(year, 3, 1).toordinal() - _EPOCH_ORDINAL for year in centuries)
    return [march - 1 + number for number, march in enumerate(marches)]


_STEPS = _steps()


class Calendars(msgspec.Struct, frozen=True):
    """Whether a file's dates and timestamps (``julian``) and its INT96 timestamps (``julian_int96``) use the Julian
    calendar."""

    julian: bool = False
    julian_int96: bool = False

    def dates(self, days: Any) -> Any:
        """``date32`` values in the Gregorian calendar."""
        if not self.julian or not _any_before(days.cast(pa.int32()), _GREGORIAN_FROM):
            return days
        return pc.add(days.cast(pa.int32()), _shift(days.cast(pa.int32()))).cast(pa.date32())

    def timestamps(self, micros: Any, int96: bool) -> Any:
        """``timestamp[us]`` values in the Gregorian calendar."""
        julian = self.julian_int96 if int96 else self.julian
        numbers = micros.cast(pa.int64())
        if not julian or not _any_before(numbers, _GREGORIAN_FROM * _MICROS_PER_DAY):
            return micros
        # Integer division truncates; after adding an offset that makes all values positive, it rounds down.
        days = pc.subtract(pc.divide(pc.add(numbers, 1_000_000 * _MICROS_PER_DAY), _MICROS_PER_DAY), 1_000_000)
        return pc.add(numbers, pc.multiply(_shift(days).cast(pa.int64()), _MICROS_PER_DAY)).cast(micros.type)


GREGORIAN = Calendars()


def file_calendars(metadata: Mapping[bytes, bytes]) -> Calendars:
    """The calendars used in a file, according to the key-value metadata of its Parquet footer."""
    version = metadata.get(_VERSION)
    if version is None:
        return GREGORIAN
    return Calendars(
        version < b"3.0.0" or _LEGACY_DATE_TIME in metadata, version < b"3.1.0" or _LEGACY_INT96 in metadata
    )


def _any_before(numbers: Any, limit: int) -> bool:
    least = pc.min(numbers).as_py()
    return least is not None and least < limit


def _shift(days: Any) -> Any:
    """The number of days to add to a stored day of the Julian calendar, so that it denotes the same year, month and day
    in the Gregorian calendar."""
    shift: Any = pa.scalar(2, pa.int32())
    for step in _STEPS:
        shift = pc.subtract(shift, pc.greater_equal(days, step).cast(pa.int32()))
    return pc.if_else(pc.less(days, _GREGORIAN_FROM), shift, pa.scalar(0, pa.int32()))
