from __future__ import annotations

import gc
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from deltalog.parallel import both, in_order, mapped, read_ahead


class Sources:
    """Iterators of numbers. The object records how many numbers were taken from each iterator, and how many iterators
    were open at once."""

    def __init__(self, sizes: list[int], fail: tuple[int, int] | None = None) -> None:
        self.sizes, self.fail = sizes, fail
        self.taken = [0] * len(sizes)
        self.opened = self.most_open = self.closed = 0
        self.lock = threading.Lock()

    def __iter__(self) -> Iterator[Callable[[], Iterator[tuple[int, int]]]]:
        return (lambda number=number: self._read(number) for number in range(len(self.sizes)))  # type: ignore[misc]

    def _read(self, number: int) -> Iterator[tuple[int, int]]:
        with self.lock:
            self.opened += 1
            self.most_open = max(self.most_open, self.opened - self.closed)
        try:
            for i in range(self.sizes[number]):
                if self.fail == (number, i):
                    raise KeyError("broken")
                time.sleep(random.Random(number * 100 + i).random() / 2000)
                self.taken[number] = i + 1
                yield number, i
        finally:
            with self.lock:
                self.closed += 1

    def expected(self) -> list[tuple[int, int]]:
        return [(n, i) for n, size in enumerate(self.sizes) for i in range(size)]


def no_thread_is_left() -> bool:
    return not any(t.name.startswith("deltalog-read") for t in threading.enumerate())


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
@pytest.mark.parametrize("sizes", [[], [0], [3], [2, 0, 5, 1, 0, 0, 7, 3, 3, 1]])
def test_items_come_in_order(sizes: list[int], threads: int) -> None:
    sources = Sources(sizes)
    assert list(in_order(sources, threads, 2)) == sources.expected()
    assert sources.most_open <= max(threads, 1)
    assert no_thread_is_left()


def test_without_threads_the_caller_reads_what_it_asks_for() -> None:
    sources = Sources([2, 2])
    items = in_order(sources, 0, 2)
    assert [next(items), next(items)] == [(0, 0), (0, 1)] and sources.taken == [2, 0] and sources.opened == 1
    assert next(items) == (1, 0) and sources.taken == [2, 1] and no_thread_is_left()


def test_nothing_is_read_before_the_first_item_is_asked_for() -> None:
    sources = Sources([1, 1])
    in_order(sources, 2, 1)
    assert sources.opened == 0


def test_no_source_runs_further_ahead_than_allowed() -> None:
    sources = Sources([100] * 5)
    items = in_order(sources, 3, 2)
    for count, (number, i) in enumerate(items, 1):
        ahead = [taken - (i + 1 if n == number else 0) for n, taken in enumerate(sources.taken) if n >= number]
        # Besides the items that it may be ahead, each source may have one item in progress.
        assert max(ahead) <= 3 and sum(a > 0 for a in ahead[3:]) == 0
        if count == 150:
            break
    items.close()  # type: ignore[attr-defined]
    assert no_thread_is_left()


def test_an_error_comes_in_its_place_and_ends_everything() -> None:
    sources = Sources([3, 4, 1000, 1000], fail=(1, 2))
    items = in_order(sources, 2, 2)
    with pytest.raises(KeyError, match="broken"):
        for _ in itertools.count():
            last = next(items)
    assert last == (1, 1)
    assert sum(sources.taken[2:]) < 20
    assert sources.opened == sources.closed
    assert no_thread_is_left()


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_an_iterator_that_is_left_early_leaves_nothing_behind(how: str) -> None:
    sources = Sources([1000] * 20)
    items = in_order(sources, 4, 2)
    next(items)
    if how == "closed":
        items.close()  # type: ignore[attr-defined]
    del items
    gc.collect()
    assert no_thread_is_left()
    assert sources.opened == sources.closed
    assert sum(sources.taken) < 40


def test_one_iterator_is_read_ahead_of_the_caller() -> None:
    sources = Sources([100])
    items = read_ahead(next(iter(sources))(), 3)
    assert next(items) == (0, 0)
    while sources.taken[0] < 4:  # while the caller does something else, the thread reads ahead
        time.sleep(0.001)
    time.sleep(0.01)
    assert sources.taken == [4] and [*items] == sources.expected()[1:] and no_thread_is_left()


def test_an_iterator_that_is_read_ahead_ends_where_it_fails_or_is_left() -> None:
    sources = Sources([100], fail=(0, 5))
    taken = list[tuple[int, int]]()
    with pytest.raises(KeyError, match="broken"):
        taken.extend(read_ahead(next(iter(sources))(), 3))
    assert taken == sources.expected()[:5] and sources.closed == 1 and no_thread_is_left()
    sources = Sources([1000])
    items = read_ahead(next(iter(sources))(), 3)
    next(items)
    del items
    gc.collect()
    assert sources.closed == 1 and sources.taken[0] < 10 and no_thread_is_left()


def test_an_iterator_that_the_collector_ends_in_one_of_its_own_threads() -> None:
    go = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        go.wait(60)
        gc.collect()
        yield 2

    gc.disable()
    try:
        items = in_order([source, source], 2, 2)
        next(items)
        cycle: list[object] = [items]
        cycle.append(cycle)
        del items, cycle
        go.set()
        for thread in threading.enumerate():
            if thread.name.startswith("deltalog-read"):
                thread.join(60)
        assert no_thread_is_left()
    finally:
        gc.enable()


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_what_is_mapped_comes_in_order_whichever_thread_is_done_first(threads: int, count: int) -> None:
    def slower_first(number: int) -> int:
        time.sleep(0.002 if number % 3 == 0 else 0)
        return number * number

    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(count):
            taken.append(number)
            yield number

    found = []
    for square in mapped(items(), slower_first, threads, 1):
        found.append(square)
        assert len(taken) <= len(found) + max(threads + 1, 2)
    assert found == [number * number for number in range(count)]


@pytest.mark.parametrize("threads", [0, 2])
def test_an_error_while_mapping_comes_in_its_place(threads: int) -> None:
    found = []
    with pytest.raises(ZeroDivisionError):
        for value in mapped([4, 2, 0, 1], lambda number: 8 // number, threads, 1):
            found.append(value)
    assert found == [2, 4]


# -------------------------------------------------------------------------------------------------- two calls


def test_two_calls_side_by_side_wait_for_each_other_only_at_the_end() -> None:
    meet = threading.Barrier(2, timeout=30)
    assert both(lambda: (meet.wait(), "first")[1], lambda: (meet.wait(), "second")[1], True) == ("first", "second")


@pytest.mark.parametrize("side_by_side", [True, False])
def test_of_two_errors_the_first_call_s_is_raised_and_no_thread_is_left(side_by_side: bool) -> None:
    before = threading.active_count()

    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(KeyError):
        both(lambda: fail(KeyError("first")), lambda: fail(OSError("second")), side_by_side)
    with pytest.raises(OSError, match="second"):
        both(lambda: None, lambda: fail(OSError("second")), side_by_side)
    assert threading.active_count() == before
