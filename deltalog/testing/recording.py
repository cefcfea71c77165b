"""Records clients' operations and requests to the store, for the checker."""

from __future__ import annotations

import contextlib
import logging
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from deltalog.commit_result import CommitResult
from deltalog.environment import Environment, RetryPolicy
from deltalog.errors import (
    CommitAttemptsExhaustedError,
    CommitConflictError,
    CommitStateUnknownError,
    DeltaLogError,
    Outcome,
    StoreError,
    TableExistsError,
)
from deltalog.protocol.actions import AddFile
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore, PutOutcome
from deltalog.storage.memory import MemoryStore
from deltalog.testing.history import Attempt, History, Operation, Read, Sighting
from deltalog.testing.stores import FaultyStore

#: Errors that mean that nothing was committed. All other errors are bugs.
DEFINITE = (CommitConflictError, CommitAttemptsExhaustedError, StoreError, TableExistsError)


class WatchedStore(MemoryStore):
    """A MemoryStore that records every commit file at its creation. Initially the store contains the objects of
    ``before``."""

    def __init__(
        self, clock_ms: Callable[[], int], now: Callable[[], float] = lambda: 0, before: WatchedStore | None = None
    ) -> None:
        super().__init__("memory://simulation", clock_ms)
        self.sightings: list[Sighting] = []
        self._now = now
        if before is not None:
            self._objects.update(before._objects)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = super().put_if_absent(path, data)
        if outcome is PutOutcome.COMMITTED:
            self._record_sighting(path, data)
        return outcome

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        super().put(path, data, durable=durable)
        self._record_sighting(path, data)

    def paths(self) -> frozenset[str]:
        """The paths of all objects."""
        return frozenset(self._objects)

    def _record_sighting(self, path: str, data: bytes) -> None:
        version = version_of(path)
        if version is not None:
            self.sightings.append(Sighting(self._now(), version, bytes(data)))


def carry_out(
    record: Operation,
    run: Callable[[Operation], CommitResult | None],
    resolve: Callable[[CommitStateUnknownError], CommitResult | None] = lambda error: None,
    refusals: tuple[type[Exception], ...] = (),
) -> None:
    """Run an operation and record its outcome; SimulatedKill is not caught. ``resolve`` is called if the outcome is
    unknown. ``refusals``: errors that this operation may raise without effect, in addition to those that any commit may
    raise. An operation without a commit is recorded as failed, so the log must not contain any of its actions."""
    result: CommitResult | None = None
    definite: tuple[type[Exception], ...] = DEFINITE + refusals
    try:
        result = run(record)
        record.outcome = "ok"
    except CommitStateUnknownError as error:
        record.outcome, record.error, record.txn_id = "unknown", "CommitStateUnknownError", error.txn_id
        result = resolve(error)
        if result is not None:
            record.outcome = "ok"
    except definite as error:
        record.outcome, record.error = "failed", type(error).__name__
        if isinstance(error, DeltaLogError) and error.outcome is Outcome.UNKNOWN:
            record.outcome = "crashed"
    except Exception as error:
        record.outcome, record.error = "crashed", f"{type(error).__name__}: {error}"
    if result is not None and not result.skipped:
        record.version, record.txn_id, record.ict_ms = result.version, result.txn_id, result.in_commit_timestamp_ms
    elif record.outcome == "ok":
        record.outcome = "failed"


def read_of(client: str, invoked: float, snapshot: Snapshot, latest: bool) -> Read:
    """A record of the fact that a client read this snapshot."""
    listed = snapshot.files(["path", "deletion_vector"])
    files = frozenset(map(_logical_file, listed["path"].to_pylist(), listed["deletion_vector"].to_pylist()))
    configuration = dict(snapshot.metadata.configuration)
    returned = invoked  # the checker ignores this time
    return Read(
        client, invoked, returned, snapshot.version, files, snapshot.in_commit_timestamp_ms, configuration, latest
    )


def _logical_file(path: str, vector: Mapping[str, Any] | None) -> str:
    """Returns the same string as ``checker.file_key``."""
    if vector is None:
        return path
    return f"{path}#{vector['storage_type']}{vector['path_or_inline_dv']}@{vector['offset']}"


def log_of(store: LogStore) -> dict[int, bytes]:
    """The commit files by version."""
    found = {version_of(f"_delta_log/{name}"): name for name in store.list_names("_delta_log")}
    return {v: store.get(f"_delta_log/{name}") for v, name in sorted(found.items(), key=str) if v is not None}


def history_of(
    shared: WatchedStore,
    stores: Sequence[FaultyStore],
    operations: Sequence[Operation],
    reads: Sequence[Read] = (),
    *,
    initial: int = 0,
    data_files: Iterable[str] = (),
) -> History:
    """The history of a run, read from the store ``shared``. ``data_files``: data files to add to the history; they need
    not exist in the store."""
    metas = {version_of(f"_delta_log/{m.name}"): m for m in shared.list_from("_delta_log")}
    attempts = [
        Attempt(put.at, put.call.path, version, put.data)
        for store in stores
        for put in store.puts
        if (version := version_of(put.call.path)) is not None
    ]
    return History(
        log_of(shared),
        operations,
        reads,
        shared.sightings,
        attempts,
        {v: meta.modification_time_ms or 0 for v, meta in metas.items() if v is not None},
        initial,
        data_files=shared.paths() | frozenset(data_files),
    )


def file_action(path: str, now_ms: int) -> AddFile:
    """An add action for a file that is never read."""
    return AddFile(path=path, partition_values={}, size=1, modification_time=now_ms, data_change=True)


def version_of(path: str) -> int | None:
    """The version of a commit file, from its path."""
    directory, _, name = path.rpartition("/")
    if directory != "_delta_log" or len(name) != 25 or not name.endswith(".json") or not name[:20].isdigit():
        return None
    return int(name[:20])


def seeded_environment(seed: str, clock_ms: Callable[[], int], retry: RetryPolicy | None = None) -> Environment:
    """An environment that does not sleep and whose UUIDs depend only on the seed."""
    rng = random.Random(seed)

    def new_uuid() -> str:
        return f"{rng.getrandbits(128):032x}"

    return Environment(
        clock_ms=clock_ms,
        new_uuid=new_uuid,
        sleep=lambda seconds: None,
        random=rng.random,
        retry=retry or RetryPolicy(),
        background=False,
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings about clock drift and failed hooks, which are intended in tests."""
    logger = logging.getLogger("deltalog")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
