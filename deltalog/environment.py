"""What a commit needs besides the store: a clock, ids, a sleep function, randomness, and a retry policy."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import random
else:
    lazy_modules(__name__, "random")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How many times a commit is tried, and how long the writer waits between tries (exponential back-off, in ms).

    ``max_attempts``: how many consecutive versions other writers may win before the commit fails. ``settle_attempts``:
    how many times to query the store about a request that it did not answer. ``retry_jitter``: the random share of a
    wait, from 0 to 1 (full jitter). ``immediate``: the number of tries without a wait. ``race_max_delay_ms``: the
    longest wait after a lost race. Losing a race is normal, because another writer made progress. Growing waits would
    starve a writer that has lost several races.
    """

    max_attempts: int = 1000
    settle_attempts: int = 10
    retry_base_delay_ms: float = 10.0
    retry_max_delay_ms: float = 2000.0
    retry_jitter: float = 1.0
    immediate: int = 2
    race_max_delay_ms: float = 5.0

    def delay_ms(self, number: int, random: float, max_delay_ms: float = math.inf) -> float:
        """The time to wait before attempt ``number``; 0 if ``number`` is 0 or negative. ``random``: from 0 to 1."""
        if number <= 0:
            return 0.0
        growing_ms: float = self.retry_base_delay_ms * 2 ** min(number, 30)
        limit_ms = min(self.retry_max_delay_ms, growing_ms, max_delay_ms)
        return limit_ms * (1 - self.retry_jitter * (1 - random))


# Named functions, so that an environment can be pickled, and its pickle does not contain the state of a random number
# generator.
def _share_of_chance() -> float:
    return random.random()


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _random_uuid() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Environment:
    """What a commit needs besides the store, such as the clock. Tests pass their own.

    ``background``: whether a commit on a remote store returns without waiting for the background thread that writes its
    ``.crc`` and checkpoint.
    """

    clock_ms: Callable[[], int] = _wall_clock_ms
    new_uuid: Callable[[], str] = _random_uuid
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = _share_of_chance
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    drift_warning_ms: int = 3_600_000
    background: bool = True

    def back_off(self, number: int, max_delay_ms: float = math.inf) -> None:
        """Wait before the try with this ``number`` (counted from 0); there is no wait before the first tries."""
        delay_ms = self.retry.delay_ms(number, self.random(), max_delay_ms) if number > 0 else 0.0
        if delay_ms:
            self.sleep(delay_ms / 1000)
