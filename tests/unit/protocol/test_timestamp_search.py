"""The search among in-commit timestamps gives the same answer as reading every commit."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog.protocol.timestamp_search import PROBES, TimestampSearch

DAY_MS = 86_400_000
BEGIN_MS = 1_700_000_000_000


def searched(
    times: Mapping[int, int], timestamp_ms: int, first_ms: int | None = None, first: int = 0
) -> tuple[int | None, int, int]:
    """The answer, the number of rounds, and the commits read. ``times``: the commit times by version, for the commits
    that exist."""
    last = max(times)
    search = TimestampSearch(timestamp_ms, first, last, times[last], first_ms)
    rounds = read = 0
    while versions := search.probes():
        assert len(versions) <= PROBES and versions == sorted(set(versions))
        rounds, read = rounds + 1, read + len(versions)
        search.learn({version: times.get(version) for version in versions})
    return search.found, rounds, read


@given(
    st.lists(st.integers(1, 50), min_size=2, max_size=300),
    st.sets(st.integers(0, 299), max_size=5),
    st.integers(0, 290),
    st.integers(0, 16_000),
    st.none() | st.integers(-100, 16_000),
)
def test_the_answer_is_that_of_every_commit_or_none(
    steps: list[int], gaps: set[int], begin: int, timestamp_ms: int, first_ms: int | None
) -> None:
    all_times = [sum(steps[: version + 1]) for version in range(len(steps))]
    last = len(steps) - 1
    times = {v: ms for v, ms in enumerate(all_times) if (v >= begin and v not in gaps) or v == last}
    if timestamp_ms >= times[last]:
        return
    passed = [version for version, ms in times.items() if ms <= timestamp_ms]
    found, _, _ = searched(times, timestamp_ms, first_ms)
    if found is not None:
        assert found == passed[-1]
    # It is correct that the search finds no version only if the log has a gap, or if no commit precedes the timestamp.
    if passed and not gaps:
        assert found == passed[-1]


def steady(random: random.Random) -> int:
    return 60_000


def at_random(random: random.Random) -> int:
    return 1 + int(random.expovariate(1 / 60_000))


PACES: dict[str, Callable[[random.Random], int]] = {"steady": steady, "random": at_random}


def at_work(count: int, chance: random.Random) -> list[int]:
    """Commits at random times between midnight and 18:00 on working days."""
    times, now_ms = [], BEGIN_MS
    for _ in range(count):
        now_ms += at_random(chance)
        if (now_ms // DAY_MS) % 7 >= 5:
            now_ms += (7 - (now_ms // DAY_MS) % 7) * DAY_MS
        elif now_ms % DAY_MS >= 18 * 3_600_000:
            now_ms += 14 * 3_600_000
        times.append(now_ms)
    return times


def paced(count: int, pace: str, chance: random.Random) -> Sequence[int]:
    if pace == "at work":
        return at_work(count, chance)
    times, now_ms = [], BEGIN_MS
    for _ in range(count):
        now_ms += PACES[pace](chance)
        times.append(now_ms)
    return times


@pytest.mark.parametrize(("count", "rounds"), [(5_000, 5), (100_000, 5)])
@pytest.mark.parametrize("pace", [*PACES, "at work"])
def test_few_rounds_find_a_version(count: int, rounds: int, pace: str) -> None:
    chance = random.Random(count)
    times = paced(count, pace, chance)
    by_version = dict(enumerate(times))
    counted = []
    for _ in range(100):
        timestamp_ms = chance.randrange(times[0], times[-1])
        found, took, read = searched(by_version, timestamp_ms, times[0] - 5_000)
        assert found == bisect.bisect_right(times, timestamp_ms) - 1
        counted.append((took, read))
    assert sorted(counted)[len(counted) * 9 // 10][0] <= rounds
    assert max(counted)[0] <= rounds + 2
    assert sum(read for _, read in counted) / len(counted) <= 32


@pytest.mark.parametrize("pace", ["all at once", "slower and slower", "faster and faster"])
def test_whatever_the_pace_each_round_leaves_a_fourth_at_most(pace: str) -> None:
    count = 100_000
    of: dict[str, Callable[[int], int]] = {
        "all at once": lambda v: BEGIN_MS + v + (v >= count // 3) * 10**12,
        "slower and slower": lambda v: BEGIN_MS + v * v,
        "faster and faster": lambda v: BEGIN_MS + int(10**9 * math.log1p(v)) + v,
    }
    times = [of[pace](version) for version in range(count)]
    chance = random.Random(1)
    for version in [0, 1, count // 3 - 1, count // 3, *(chance.randrange(count - 1) for _ in range(50))]:
        found, took, _ = searched(dict(enumerate(times)), times[version])
        assert found == version
        assert took <= math.ceil(math.log(count, 4)) + 1


def test_times_that_are_known_are_not_read() -> None:
    search = TimestampSearch(55, 0, 10, 100, known={4: 40, 5: 50, 6: 60, 7: 70})
    assert search.found == 5 and search.probes() == []
