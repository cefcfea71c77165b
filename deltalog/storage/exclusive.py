"""Verifies that a store lets only one writer create an object (exclusive creation), by testing it with scratch objects
below ``_delta_log``.

Creating an object twice shows that the second attempt is refused and has no effect, but a store that first checks and
then writes passes that test too. For a store about which nothing else is known, several threads therefore race to
create the same object, in several rounds. Two winners prove that the store is unsafe. A single winner is evidence that
the store is safe, but not proof.

A passed test is remembered until the process ends; a failed test is repeated.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from deltalog.errors import CallError, StoreError, UnsafeStoreError
from deltalog.protocol.paths import log_path
from deltalog.storage.base import PutOutcome

RACERS = 8
ROUNDS = 8

Create = Callable[[str, bytes], PutOutcome]
Read = Callable[[str], bytes]
Delete = Callable[[str], None]

_guard = threading.Lock()
_passed: set[str] = set()
_locks: dict[str, threading.Lock] = {}


def place_of(*names: str, options: Mapping[str, Any]) -> str:
    """The key under which a passed test is remembered: a hash of ``names``, such as endpoint and bucket, and of all
    options, so that stores with other credentials are tested separately."""
    text = repr([names, sorted(options.items(), key=lambda item: item[0])])
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


def check_answer(exclusive_create: object) -> bool:
    """The value of the storage option ``exclusive_create``. Raises CallError if it is not a bool."""
    if not isinstance(exclusive_create, bool):
        raise CallError("exclusive_create must be True or False: the safety of commits depends on it.")
    return exclusive_create


def verify_once(place: str, test: Callable[[], Callable[[], None]]) -> None:
    """Run ``test`` unless it has passed in this process. If another thread is running the test, wait for that thread.
    Raises what ``test`` raises. The clean-up that ``test`` returns runs after waiting threads have been released."""
    if place in _passed:
        return
    with _guard:
        lock = _locks.setdefault(place, threading.Lock())
    with lock:
        if place in _passed:
            return
        clean_up = test()
        _passed.add(place)
    clean_up()


def is_verified(place: str) -> bool:
    """Whether the test of exclusive creation has passed in this process. Cost: none."""
    return place in _passed


def check_exclusive(url: str, create: Create, read: Read, delete: Delete, *, race: bool) -> Callable[[], None]:
    """Raises UnsafeStoreError if two creations of one object both succeed or the refused one replaces its bytes, and
    StoreError if the outcome is unknown. Returns a function that deletes the scratch objects; if this call raises an
    error, the objects have already been deleted.

    Cost: 2 PUTs, 1 GET and 1 DELETE; with ``race`` 64 PUTs, 8 GETs and 8 DELETEs more.
    """
    stem = log_path(f".probe-{uuid.uuid4()}")
    with scratch(delete) as paths:
        paths.append(stem)
        first = create(stem, b"first")
        _judge(url, stem, [first, create(stem, b"second")], [b"first"], read)
        for number in range(ROUNDS if race else 0):
            path = f"{stem}-{number}"
            paths.append(path)
            bodies = [b"racer %d" % who for who in range(RACERS)]
            outcomes = _create_concurrently(create, path, bodies)
            winners = [body for body, outcome in zip(bodies, outcomes, strict=True) if outcome is PutOutcome.COMMITTED]
            _judge(url, path, outcomes, winners, read)
    return partial(remove, paths, delete)


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


def _create_concurrently(create: Create, path: str, bodies: list[bytes]) -> list[PutOutcome]:
    start = threading.Barrier(len(bodies))

    def run(body: bytes) -> PutOutcome:
        start.wait()
        return create(path, body)

    with ThreadPoolExecutor(len(bodies), thread_name_prefix="deltalog-probe") as pool:
        return list(pool.map(run, bodies))


@contextlib.contextmanager
def scratch(delete: Delete) -> Iterator[list[str]]:
    """Yields a list to which the ``with`` block adds the paths of the scratch objects that it creates. These objects
    are deleted if the block raises."""
    paths: list[str] = []
    try:
        yield paths
    except BaseException:
        remove(paths, delete)
        raise


def remove(paths: Iterable[str], delete: Delete) -> None:
    """Delete scratch objects; errors are ignored."""
    for path in paths:
        with contextlib.suppress(StoreError):
            delete(path)


if hasattr(os, "register_at_fork"):
    # The threads that hold these locks do not exist in the child process.
    os.register_at_fork(after_in_child=_locks.clear)
