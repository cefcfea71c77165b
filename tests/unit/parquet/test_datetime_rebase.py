from __future__ import annotations

import datetime
import itertools

import pyarrow as pa
import pytest

from deltalog.parquet.datetime_rebase import Calendars, file_calendars

# A Julian calendar date, the days since 1970 that a Julian writer stores for it, and the days since 1970 for the same
# year, month and day in the Gregorian calendar. The values are taken from files that Spark 4.2 wrote with
# datetimeRebaseModeInWrite=LEGACY.
DAYS = [
    ("0001-01-01", -719164, -719162),
    ("1500-02-28", -171597, -171606),
    ("1582-10-04", -141428, -141438),
    ("1582-10-15", -141427, -141427),
    ("1899-12-31", -25568, -25568),
    ("9999-12-31", 2932896, 2932896),
]
JULIAN = Calendars(True, True)


@pytest.mark.parametrize(("name", "stored", "days"), DAYS)
def test_dates_keep_year_month_and_day(name: str, stored: int, days: int) -> None:
    found = JULIAN.dates(pa.array([stored, None], pa.int32()).cast(pa.date32()))
    assert found.to_pylist() == [datetime.date.fromisoformat(name), None]
    assert found.cast(pa.int32()).to_pylist() == [days, None]


@pytest.mark.parametrize(("name", "stored", "days"), DAYS)
@pytest.mark.parametrize("of_day", [0, 1, 86_399_999_999])
def test_timestamps_keep_the_time_of_day(name: str, stored: int, days: int, of_day: int) -> None:
    micros = pa.array([stored * 86_400_000_000 + of_day], pa.int64()).cast(pa.timestamp("us", "UTC"))
    for int96 in (True, False):
        found = JULIAN.timestamps(micros, int96)
        assert found.type == micros.type
        assert found.cast(pa.int64()).to_pylist() == [days * 86_400_000_000 + of_day]


def test_every_day_before_the_reform_has_its_own_name() -> None:
    stored = pa.array(range(-719164, -141400), pa.int32())
    days = JULIAN.dates(stored.cast(pa.date32())).cast(pa.int32()).to_pylist()
    # Leap days that exist only in the Julian calendar become the following 1 March.
    twice = [later for day, later in itertools.pairwise(days) if day == later]
    assert len(twice) == 12 and all(
        d.month == 3 and d.day == 1 for d in pa.array(twice, pa.int32()).cast(pa.date32()).to_pylist()
    )
    assert sorted(days) == days


VERSION = b"org.apache.spark.version"
DATES, INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, Calendars()),
        ({DATES: b"", INT96: b""}, Calendars()),
        ({VERSION: b"2.4.8"}, Calendars(True, True)),
        ({VERSION: b"3.0.3"}, Calendars(False, True)),
        ({VERSION: b"3.1.0"}, Calendars()),
        ({VERSION: b"4.2.0", DATES: b""}, Calendars(True, False)),
        ({VERSION: b"4.2.0", INT96: b""}, Calendars(False, True)),
    ],
)
def test_what_a_footer_says(metadata: dict[bytes, bytes], expected: Calendars) -> None:
    assert file_calendars(metadata) == expected
