from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import InvalidTimestampError, TimestampOutOfRangeError
from deltalog.errors import InvalidEnablementError, MissingInCommitTimestampError
from deltalog.protocol import timestamps
from deltalog.protocol.actions import CommitInfo
from deltalog.protocol.timestamps import CommitAt, Enablement, Timeline
from tests.support.core import ICT, TIMESTAMP_KEY, VERSION_KEY
from tests.support.core.strategies import examples

UTC = datetime.timezone.utc

# ------------------------------------------------------------------------------------------------ writing


@pytest.mark.parametrize(
    ("writer", "features", "properties", "active"),
    [
        (7, ["inCommitTimestamp"], ICT, True),
        (7, ["appendOnly", "inCommitTimestamp"], {"delta.enableInCommitTimestamps": "TRUE"}, True),
        (7, ["inCommitTimestamp"], {}, False),
        (7, ["inCommitTimestamp"], {"delta.enableInCommitTimestamps": "false"}, False),
        (7, [], ICT, False),
        (2, ["inCommitTimestamp"], ICT, False),
        (6, [], ICT, False),
        (7, ["incommittimestamp"], ICT, False),
        *((7, [alias], ICT, True) for alias in timestamps.FEATURE_ALIASES),
    ],
)
def test_active_needs_version_7_the_feature_and_the_property(
    writer: int, features: list[str], properties: dict[str, str], active: bool
) -> None:
    assert timestamps.is_active(writer, features, properties) is active


def test_the_feature_is_written_in_the_singular() -> None:
    assert timestamps.FEATURE == "inCommitTimestamp"
    assert timestamps.FEATURE not in timestamps.FEATURE_ALIASES
    assert set(timestamps.FEATURE_ALIASES) == {
        "inCommitTimestamps",
        "inCommitTimestamp-preview",
        "inCommitTimestamps-preview",
    }


@pytest.mark.parametrize(
    ("ict", "file_time", "before", "previous"),
    [
        (700, None, None, 700),
        (700, 900, 800, 700),  # the commit has an in-commit timestamp, so its file time does not matter
        (None, 900, None, 900),
        (None, 900, 800, 900),
        (None, 700, 800, 801),  # adjusted to be strictly increasing, as readers adjust them
        (None, 0, None, 1),
        (None, None, 800, None),  # the next commit writes no in-commit timestamp
    ],
)
def test_what_the_next_timestamp_must_exceed(
    ict: int | None, file_time: int | None, before: int | None, previous: int | None
) -> None:
    assert timestamps.previous_timestamp(ict, file_time, before) == previous


def test_a_commit_that_must_carry_an_in_commit_timestamp() -> None:
    assert timestamps.required_ict(CommitInfo({"inCommitTimestamp": 5}), 3, "t") == 5
    for info, what in ((None, "no commitInfo"), (CommitInfo({"timestamp": 5}), "no valid inCommitTimestamp")):
        with pytest.raises(MissingInCommitTimestampError, match=what) as raised:
            timestamps.required_ict(info, 3, "t")
        assert raised.value.version == 3


@pytest.mark.parametrize(
    ("clock", "previous", "following"),
    [(100, None, 100), (100, 50, 100), (100, 99, 100), (100, 100, 101), (100, 5000, 5001), (-5, None, -5)],
)
def test_the_next_timestamp_is_the_clock_or_one_more_than_the_last(
    clock: int, previous: int | None, following: int
) -> None:
    assert timestamps.next_timestamp(clock, previous) == following


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=50))
def test_timestamps_increase_under_any_clock(clock: list[int]) -> None:
    last: int | None = None
    for now in clock:
        following = timestamps.next_timestamp(now, last)
        assert following >= now and (last is None or following > last)
        last = following


def test_enabling_stamps_the_pair_as_text_but_not_at_version_0() -> None:
    stale = {"x": "y", VERSION_KEY: "1", TIMESTAMP_KEY: "2"}
    assert timestamps.enabling_configuration(stale, 3, 77) == {"x": "y", VERSION_KEY: "3", TIMESTAMP_KEY: "77"}
    assert timestamps.enabling_configuration(stale, 0, 77) == {"x": "y"}


def test_without_pair_takes_halves_too() -> None:
    assert timestamps.without_pair({"x": "y", TIMESTAMP_KEY: "2"}) == {"x": "y"}
    assert timestamps.without_pair({"x": "y", VERSION_KEY: "2"}) == {"x": "y"}


# ------------------------------------------------------------------------------------------------ reading


def test_a_whole_pair_and_none() -> None:
    assert timestamps.read_enablement({VERSION_KEY: "3", TIMESTAMP_KEY: "9"}, 3) == Enablement(3, 9)
    assert timestamps.read_enablement({VERSION_KEY: "3", TIMESTAMP_KEY: str(2**63 - 1)}, 3) == Enablement(3, 2**63 - 1)
    assert timestamps.read_enablement({}, 3) is None


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({VERSION_KEY: "3"}, f"{VERSION_KEY} but not {TIMESTAMP_KEY}"),
        ({TIMESTAMP_KEY: "3"}, f"{TIMESTAMP_KEY} but not {VERSION_KEY}"),
        ({VERSION_KEY: "4", TIMESTAMP_KEY: "9"}, "is 4, but the latest version is 3"),
        *(
            ({VERSION_KEY: bad, TIMESTAMP_KEY: "9"}, "are not a version and a time in ms")
            for bad in ("", " 3", "+3", "-1", "3.0", "1_0", "0x1", "three", "٣", "9" * 40)
        ),
        *(
            ({VERSION_KEY: "3", TIMESTAMP_KEY: bad}, "are not a version and a time in ms")
            for bad in ("1e3", str(2**63), "9" * 19)
        ),
    ],
)
def test_a_broken_pair_is_refused_with_its_repair(properties: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidEnablementError, match=r"disable_in_commit_timestamps\(\)") as caught:
        timestamps.read_enablement(properties, 3)
    assert says in str(caught.value)


@given(st.lists(st.integers(-(2**40), 2**40), max_size=40))
def test_monotonised_times_are_the_smallest_increasing_ones_not_below(times: list[int]) -> None:
    adjusted = timestamps.monotonised(times)
    assert all(b > a for a, b in itertools.pairwise(adjusted))
    for index, (raw, value) in enumerate(zip(times, adjusted, strict=True)):
        assert value == raw or value == adjusted[index - 1] + 1 > raw


def _reference(
    timestamp: int,
    versions: Sequence[int],
    active: bool,
    pair: Enablement | None,
    icts: dict[int, int],
    file_times: dict[int, int],
) -> CommitAt:
    """The rule of PROTOCOL.md and delta-spark, implemented by reading every commit."""
    first_ict = None if not active else versions[0] if pair is None else pair.version
    by_ict = [v for v in versions if first_ict is not None and v >= first_ict]
    by_file = [v for v in versions if v not in by_ict]
    if by_ict and (pair is None or timestamp >= pair.timestamp_ms or not by_file):
        passed = [v for v in by_ict if icts[v] <= timestamp]
        found = passed[-1] if passed else by_ict[0]
        return CommitAt(found, icts[found], "in-commit")
    adjusted: dict[int, int] = {}
    for index, version in enumerate(by_file):
        adjusted[version] = file_times[version]
        if index:
            adjusted[version] = max(adjusted[version], adjusted[by_file[index - 1]] + 1)
    passed = [v for v in by_file if adjusted[v] <= timestamp]
    found = passed[-1] if passed else by_file[0]
    return CommitAt(found, adjusted[found], "file-modification")


@st.composite
def _logs(draw: st.DrawFn) -> tuple[list[int], bool, Enablement | None, dict[int, int], dict[int, int]]:
    first = draw(st.sampled_from([0, 0, 3, 10]))
    count = draw(st.integers(1, 70))
    versions = list(range(first, first + count))
    steps = draw(st.lists(st.integers(1, 9), min_size=first + count, max_size=first + count))
    icts = {v: 1000 + sum(steps[: v + 1]) for v in range(first + count)}
    file_times = {v: draw(st.integers(900, 1700)) for v in versions}
    active = draw(st.booleans())
    # The enabling commit may be in the log, or may precede the log's first commit.
    enabling = draw(st.one_of(st.none(), st.integers(0, versions[-1]))) if active else None
    pair = None if enabling is None else Enablement(enabling, icts[enabling])
    return versions, active, pair, icts, file_times


@settings(max_examples=examples(300))
@given(_logs(), st.data())
def test_resolving_agrees_with_looking_at_every_commit(
    log: tuple[list[int], bool, Enablement | None, dict[int, int], dict[int, int]], data: st.DataObject
) -> None:
    versions, active, pair, icts, file_times = log
    near = st.sampled_from(sorted({*icts.values(), *file_times.values()}))
    timestamp = data.draw(st.one_of(st.integers(800, 1800), near, near.map(lambda t: t + 1), near.map(lambda t: t - 1)))
    reads: list[int] = []
    asked: list[Sequence[int]] = []

    def ict_of(version: int) -> int:
        assert version in versions
        reads.append(version)
        return icts[version]

    def file_times_of(of: Sequence[int]) -> list[int]:
        asked.append(of)
        return [file_times[v] for v in of]

    line = timestamps.timeline(versions, active, pair)
    found = timestamps.resolve(timestamp, line, ict_of, file_times_of)
    assert found == _reference(timestamp, versions, active, pair, icts, file_times)
    assert len(reads) <= math.ceil(math.log2(len(versions))) + 2
    assert len(set(reads)) == len(reads)
    assert all(v >= (pair.version if pair else 0) for v in reads)
    assert len(asked) <= 1
    assert all(pair is None or v < pair.version for of in asked for v in of)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 1000, 1024, 1025, 100_000])
def test_the_number_of_reads_is_bounded_for_every_answer(count: int) -> None:
    line = timestamps.timeline(range(count), True, None)
    worst = 0
    for timestamp in {0, 1, 2, count // 3, count // 2, count - 2, count - 1, count, count + 1}:
        reads: list[int] = []

        def ict_of(version: int, reads: list[int] = reads) -> int:
            reads.append(version)
            return version + 1

        found = timestamps.resolve(timestamp, line, ict_of, lambda versions: [])
        assert found.version == min(max(timestamp - 1, 0), count - 1)
        worst = max(worst, len(reads))
    assert worst <= math.ceil(math.log2(count)) + 2


def test_a_timeline_without_in_commit_timestamps() -> None:
    line = timestamps.timeline([0, 1], False, None)
    assert line == Timeline([0, 1], None, None)
    assert (list(line.file_versions), list(line.ict_versions), line.in_ict_era(2**60)) == ([0, 1], [], False)


def test_a_timeline_since_version_0() -> None:
    line = timestamps.timeline([0, 1], True, None)
    assert (list(line.file_versions), list(line.ict_versions), line.in_ict_era(-1)) == ([], [0, 1], True)


def test_a_timeline_of_two_eras() -> None:
    line = timestamps.timeline([0, 1, 2, 3], True, Enablement(2, 50))
    assert (list(line.file_versions), list(line.ict_versions)) == ([0, 1], [2, 3])
    assert (line.in_ict_era(49), line.in_ict_era(50)) == (False, True)


def _check(timestamp: int, found: CommitAt, before: str = "error", after: str = "error") -> None:
    bounds = CommitAt(2, 1_790_000_000_000, "in-commit"), CommitAt(5, 1_790_000_000_999, "in-commit")
    timestamps.check_range(timestamp, found, 5, lambda: bounds, before, after, "/data/t")


def test_a_time_before_the_first_commit_gives_the_exact_bounds() -> None:
    with pytest.raises(TimestampOutOfRangeError) as caught:
        _check(1_789_999_999_999, CommitAt(2, 1_790_000_000_000, "in-commit"))
    error = caught.value
    assert (error.requested_ms, error.earliest_ms, error.latest_ms) == (
        1_789_999_999_999,
        1_790_000_000_000,
        1_790_000_000_999,
    )
    text = str(error)
    assert text.startswith("/data/t: the timestamp 1789999999999 ms (2026-09-21T14:13:19.999Z) is before the first")
    assert "from 1790000000000 ms (2026-09-21T14:13:20.000Z), version 2, to 1790000000999 ms" in text
    assert "(2026-09-21T14:13:20.999Z), version 5, both included" in text
    assert 'before="earliest"' in text


def test_a_time_after_the_last_commit_gives_the_exact_bounds() -> None:
    with pytest.raises(TimestampOutOfRangeError, match=r'is after the last commit.*after="latest"'):
        _check(1_790_000_001_000, CommitAt(5, 1_790_000_000_999, "in-commit"))


def test_both_bounds_are_included_and_clamping_is_by_side() -> None:
    first, last = CommitAt(2, 1_790_000_000_000, "in-commit"), CommitAt(5, 1_790_000_000_999, "in-commit")
    _check(1_790_000_000_000, first)
    _check(1_790_000_000_999, last)
    _check(0, first, before="earliest")
    _check(2**50, last, after="latest")
    with pytest.raises(TimestampOutOfRangeError):
        _check(0, first, after="latest")
    with pytest.raises(TimestampOutOfRangeError):
        _check(2**50, last, before="earliest")


# ------------------------------------------------------------------------------------------- points in time


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        (-1, -1),
        (1_790_000_000_123, 1_790_000_000_123),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1970-01-01T01:00+0100", 0),
        ("1969-12-31T23:59:59.9999Z", -1),  # rounded down, not towards zero
        ("1970-01-01Z", 0),
        ("1970-01-01 00:00:00,5 -00:00", 500),
        ("1970-01-01T00:00:00.123456789z", 123),
        ("0001-01-01T00:00:00Z", -62135596800000),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
        (datetime.datetime(1970, 1, 1, 0, 0, 0, 999, tzinfo=UTC), 0),
        (datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (datetime.datetime(1970, 1, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2))), 0),
        (datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=14))), -62135647200000),
    ],
)
def test_points_in_time(value: datetime.datetime | int | str, milliseconds: int) -> None:
    assert timestamps.to_epoch_ms(value) == milliseconds


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2026, 11, 20, 10),
        "2026-11-20T10:00:00",
        "2026-11-20",
        datetime.date(2026, 11, 20),
        "",
        "now",
        "20261120T100000Z",
        "1795224850802",
        "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-11-20T24:00:00Z",
        "2026-11-20T10:00:60Z",
        "2026-11-20T10:00:00+25:00",
        "2026-11-20T10:00:00.Z",
        "2026-11-20T10:00:00Z\nx",
        None,
        True,
        1.5,
        b"1970-01-01T00:00:00Z",
    ],
)
def test_what_does_not_name_one_instant_is_refused(value: object) -> None:
    with pytest.raises(InvalidTimestampError) as caught:
        timestamps.to_epoch_ms(value)  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_TIMESTAMP"


def test_a_naive_datetime_is_told_how_to_become_aware() -> None:
    with pytest.raises(InvalidTimestampError, match=r"2026-11-20 10:00:00 has no time zone.*tzinfo=timezone\.utc"):
        timestamps.to_epoch_ms(datetime.datetime(2026, 11, 20, 10))


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_iso_text_of_a_datetime_names_the_same_instant(moment: datetime.datetime) -> None:
    offset = moment.utcoffset()
    assert offset is not None
    if offset % datetime.timedelta(minutes=1):
        return  # the UTC offsets of historical local mean times include seconds, which ISO 8601 does not allow
    assert timestamps.to_epoch_ms(moment.isoformat()) == timestamps.to_epoch_ms(moment)


@given(st.integers(-62135596800000, 253402300799999))
def test_milliseconds_survive_the_text(milliseconds: int) -> None:
    assert timestamps.to_epoch_ms(timestamps.to_iso(milliseconds)) == milliseconds


def test_times_beyond_the_calendar_stay_readable() -> None:
    assert timestamps.to_iso(2**63 - 1) == "9223372036854775807 ms"
    assert timestamps.describe(-(2**63)).startswith("-9223372036854775808 ms")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1850-06-01T10:11:12.123-07:52:58", -(7 * 3600 + 52 * 60 + 58)),
        ("1850-06-01 10:11:12.123 +055328", 5 * 3600 + 53 * 60 + 28),
        ("1930-01-01T00:00:00-00:44:30", -(44 * 60 + 30)),
        ("0001-01-01T00:00:00+05:30", 5 * 3600 + 30 * 60),
        ("9999-12-31T23:59:59.999-0800", -8 * 3600),
    ],
)
def test_offsets_may_have_seconds(text: str, seconds: int) -> None:
    """In statistics, Spark writes offsets with seconds for local mean times."""
    assert timestamps.parse_iso(text).utcoffset() == datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["2026-01-01T00:00+01:00:0", "2026-01-01T00:00+01:00:00:00", "2026-01-01T00:00+25:00"])
def test_other_offsets_are_refused(text: str) -> None:
    with pytest.raises(InvalidTimestampError):
        timestamps.parse_iso(text)
