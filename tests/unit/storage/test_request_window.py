"""The number of concurrent requests to a store adapts to the store's answers."""

from __future__ import annotations

import random

import pytest

from deltalog.storage.request_window import LEAST, RequestWindow


def test_a_refusal_halves_what_was_under_way() -> None:
    assert RequestWindow(64, 64).after_slow_down(0, 64).size == 32
    assert RequestWindow(64, 64).after_slow_down(0, 10).size == 5
    assert RequestWindow(64, 10).after_slow_down(0, 20).size == 5
    assert RequestWindow(64, 64).after_slow_down(0, 1).size == LEAST == RequestWindow(64, 5).after_slow_down(0, 5).size


def test_of_the_requests_that_are_refused_together_one_counts() -> None:
    window = RequestWindow(64, 64)
    for under_way in range(32, 0, -1):
        window = window.after_slow_down(0, under_way)
    assert (window.size, window.burst) == (16, 1)
    assert window.after_slow_down(1, 16).size == 8


@pytest.mark.parametrize("size", [1, 4, 20])
def test_a_window_of_answers_makes_it_at_most_one_larger(size: int) -> None:
    window = RequestWindow(64, size)
    for _ in range(size):
        window = window.after_answer(0)
    assert size + 0.7 <= window.size <= size + 1


def test_answers_to_requests_of_before_do_not_make_it_larger() -> None:
    window = RequestWindow(64, 64).after_slow_down(0, 64)
    assert window.after_answer(0) == window and window.after_answer(1).size > window.size


@pytest.mark.parametrize("seed", range(20))
def test_some_requests_are_always_admitted_and_never_more_than_the_most(seed: int) -> None:
    chance = random.Random(seed)
    window = RequestWindow(32, 32)
    for _ in range(2_000):
        burst = window.burst - chance.randrange(2)
        if chance.random() < 0.1:
            window = window.after_slow_down(burst, chance.randrange(1, 40))
        else:
            window = window.after_answer(burst)
        assert window.admits(LEAST - 1) and not window.admits(32) and LEAST <= window.size <= 32
    for _ in range(32 * 32):
        window = window.after_answer(window.burst)
    assert window.size == 32
