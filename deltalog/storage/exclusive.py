"""Verifies that a store creates objects exclusively, by tests on scratch objects below ``_delta_log``.

Two creations in turn show that the second is refused and has no effect. They cannot show a race: a store that checks
first and then writes refuses the second one too. So if nothing else is known about a store, several threads create one
object concurrently, in several rounds. Two winners prove it unsafe; no second winner is evidence, but no proof.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from deltalog.errors import StoreError, UnsafeStoreError
from deltalog.protocol.paths import log_path
from deltalog.storage.base import PutOutcome

RACERS = 8
ROUNDS = 8

Create = Callable[[str, bytes], PutOutcome]
Read = Callable[[str], bytes]
Delete = Callable[[str], None]


def check_exclusive(url: str, create: Create, read: Read, delete: Delete, *, race: bool) -> None:
    """Raises UnsafeStoreError when two creations of one object can both succeed or the second one's bytes stay, and
    StoreError when that could not be determined. The scratch objects are deleted.

    Cost: 2 PUTs, 1 GET and 1 DELETE; with ``race`` 64 PUTs, 8 GETs and 8 DELETEs more.
    """
    stem = log_path(f".probe-{uuid.uuid4()}")
    with _scratch(stem, delete):
        first = create(stem, b"first")
        _judge(url, stem, [first, create(stem, b"second")], [b"first"], read)
    for number in range(ROUNDS if race else 0):
        path = f"{stem}-{number}"
        with _scratch(path, delete):
            bodies = [b"racer %d" % who for who in range(RACERS)]
            outcomes = _together(create, path, bodies)
            winners = [body for body, outcome in zip(bodies, outcomes, strict=True) if outcome is PutOutcome.COMMITTED]
            _judge(url, path, outcomes, winners, read)


def _judge(url: str, path: str, outcomes: list[PutOutcome], winners: list[bytes], read: Read) -> None:
    if outcomes.count(PutOutcome.COMMITTED) > 1:
        raise UnsafeStoreError(
            f"{url}: for {outcomes.count(PutOutcome.COMMITTED)} of {len(outcomes)} writers that created the same "
            "object the store reported success, so two writers could both commit one version. Nothing was committed. "
            "Write through a store that creates exclusively, or give unsafe_single_writer=True if there is, at any "
            "time, one writer only."
        )
    if PutOutcome.UNKNOWN in outcomes or PutOutcome.COMMITTED not in outcomes:
        said = ", ".join(sorted({outcome.value for outcome in outcomes}))
        raise StoreError(
            f"{url}: whether this store creates objects exclusively could not be determined (it returned: {said}). "
            "Nothing was committed; try again.",
            path=path,
        )
    if read(path) not in winners:
        raise UnsafeStoreError(
            f"{url}: the store replaced an object although it reported that it exists already, so commits could be "
            "lost. Nothing was committed. Write through a store that creates exclusively."
        )


def _together(create: Create, path: str, bodies: list[bytes]) -> list[PutOutcome]:
    start = threading.Barrier(len(bodies))

    def run(body: bytes) -> PutOutcome:
        start.wait()
        return create(path, body)

    with ThreadPoolExecutor(len(bodies), thread_name_prefix="deltalog-probe") as pool:
        return list(pool.map(run, bodies))


@contextlib.contextmanager
def _scratch(path: str, delete: Delete) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(StoreError):
            delete(path)
