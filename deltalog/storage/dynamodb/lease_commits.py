"""S3 with a lease in DynamoDB for each conditional PUT, which is the commit protocol of object_store's DynamoCommit.

There is one record for each pair of ``path`` and ``etag`` (``*`` to create an object). The writer that wrote the lease
record holds the lease:

1. HEAD the object. If the object does not have the expected ETag, the attempt ends.
2. Put the record if it does not exist. If the record was created, send the PUT before this writer's lease ends. If
another writer holds the lease, repeat the HEAD until the timeout in the record, multiplied by the clock skew rate, has
passed. Then replace the record, with the next generation, provided that the record still has the generation that was
read.

Writers never remove a record; DynamoDB deletes it once its ``ttl`` has passed.

Leases are measured conservatively on the monotonic clock: our own lease is counted from before the request, and another
writer's lease from after the response. This way of measuring is safe only if every PUT arrives before other writers
stop waiting for the end of the lease. Therefore the PUT also has a condition that S3 checks, so that a late PUT does no
harm. Without this condition (``native_condition=False``), a late PUT replaces the other writer's commit.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import uuid
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from deltalog.errors import CallError, CommitTableError, ObjectNotFoundError, StoreError
from deltalog.protocol.paths import commit_version
from deltalog.storage.base import PutOutcome
from deltalog.storage.dynamodb.client import ConditionFailed, DynamoTable, Item, Timing, check_table_name
from deltalog.storage.dynamodb.tables import FirstUse
from deltalog.storage.wrapped import WrappedStore

if TYPE_CHECKING:
    from deltalog.storage.s3.store import S3Store

ABSENT = "*"
_TTL_IN_LEASES = 10
_CONFLICTS_WITHOUT_RECORD = 10
_PREFIX = "dynamo:"


@dataclass(frozen=True)
class DynamoCommit:
    """Options for commits that take leases in the DynamoDB table ``table_name``. All writers of a table must use the
    same values of these options.

    ``timeout_ms``: how long a lease lasts; ``max_clock_skew_rate``: the largest ratio between the speeds of the fastest
    and the slowest clock; ``ttl_s``: how long a record is kept; ``test_interval_ms``: how often a waiting writer checks
    the object; ``native_condition``: whether the PUT also has the header If-None-Match or If-Match.

    Raises CallError for unsafe values: a record must be kept for more than ten times the longest wait for a lease.
    If lease records were deleted earlier, a delayed writer that waits for a lease to end could mistake another writer's
    new lease for that lease.
    """

    table_name: str
    _: KW_ONLY
    timeout_ms: int = 20_000
    max_clock_skew_rate: int = 3
    ttl_s: int = 3600
    test_interval_ms: int = 100
    native_condition: bool = True
    timing: Timing = field(default_factory=Timing, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_table_name(self.table_name)
        for name in ("timeout_ms", "max_clock_skew_rate", "ttl_s", "test_interval_ms"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise CallError(f"{name} of DynamoCommit must be an integer greater than 0; got {value!r}.")
        if self.ttl_s * 1000 <= _TTL_IN_LEASES * self.timeout_ms * self.max_clock_skew_rate:
            raise CallError(
                f"DynamoCommit would let records expire (ttl_s={self.ttl_s}) while writers still wait for them: "
                f"ttl_s must be more than {_TTL_IN_LEASES} x timeout_ms ({self.timeout_ms}) x max_clock_skew_rate "
                f"({self.max_clock_skew_rate})."
            )

    def __str__(self) -> str:
        """The option string, which contains only the table and the timeout, as in object_store."""
        return f"{_PREFIX}{self.table_name}:{self.timeout_ms}"

    @classmethod
    def parse(cls, text: str) -> DynamoCommit:
        """Parse an option string, ``dynamo:<table>`` or ``dynamo:<table>:<timeout in ms>``. Raises CallError."""
        match = re.fullmatch(rf"{_PREFIX}([^:]+)(?::([0-9]+))?", text)
        if match is None:
            raise CallError(f"{text!r} is not dynamo:<table> or dynamo:<table>:<timeout in ms>.")
        return cls(match[1]) if match[2] is None else cls(match[1], timeout_ms=int(match[2]))

    def with_timeout(self, millis: int) -> DynamoCommit:
        """A copy whose leases last ``millis`` milliseconds. With longer leases, fewer commits fail because of an
        expired lease, but other writers wait longer when a writer dies."""
        return dataclasses.replace(self, timeout_ms=millis)

    def with_max_clock_skew_rate(self, rate: int) -> DynamoCommit:
        """A copy of this object for writers whose fastest clock runs at most ``rate`` times as fast as the slowest."""
        return dataclasses.replace(self, max_clock_skew_rate=rate)

    def with_ttl(self, seconds: int) -> DynamoCommit:
        """A copy of the store that keeps each lease record for ``seconds``."""
        return dataclasses.replace(self, ttl_s=seconds)

    def guard(self, store: S3Store, table: DynamoTable) -> DynamoStore:
        """``store`` with this protocol for its conditional writes."""
        return DynamoStore(store, self, table)


@dataclass(frozen=True, slots=True)
class _Lease:
    """The lease of a record. ``until``: the time at which the lease ends, on the monotonic clock."""

    generation: int
    until: float
    is_mine: bool


class DynamoStore(WrappedStore["S3Store"]):
    """An S3 store whose ``put_if_absent`` and ``put_if_match`` acquire a lease first. Other calls are delegated.

    Only writers that use this protocol exclude each other; ``put`` and ``delete`` take no lease. See DynamoCommit.
    """

    def __init__(self, inner: S3Store, commit: DynamoCommit, table: DynamoTable) -> None:
        super().__init__(inner)
        self._commit = commit
        self._table = table
        self._timing = commit.timing
        self._first_use = FirstUse(table, "dynamo")

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Cost: 1 HEAD, 1 request to DynamoDB, 1 PUT; 1 HEAD only if the object exists. If the lease holder died, the
        cost increases by 1 HEAD for each ``test_interval_ms`` of the wait, and by 2 more requests. Raises
        CommitTableError, StoreError."""
        version = commit_version(path)
        if version:
            self.inner.check_nothing_staged(version)
        return self._write(path, data, ABSENT)

    def prepare_commit(self, version: int) -> None:
        """Does nothing, because the checks that S3Store makes in this method do not apply to this commit protocol."""

    def put_if_match(self, path: str, data: bytes, etag: str) -> PutOutcome:
        """Replace the object if its ETag is ``etag``, as the method ``etag`` returns it. Returns EXISTS if the object
        has another ETag or was deleted. Cost and errors: as ``put_if_absent``."""
        return self._write(path, data, etag)

    def etag(self, path: str) -> str | None:
        """The object's ETag, or None if it is absent. Cost: 1 HEAD."""
        return self.inner.etag(path)

    def sibling(self, url: str) -> DynamoStore:
        return DynamoStore(self.inner.sibling(url), self._commit, self._table)

    # ----------------------------------------------------------------------------------------------- leases

    def _write(self, path: str, data: bytes, etag: str) -> PutOutcome:
        self._first_use()
        clock = self._timing.monotonic
        owner = str(uuid.uuid4())
        lease: _Lease | None = None
        without_record = 0
        while self._has_expected_etag(path, etag):
            if lease is not None and (left := lease.until - clock()) > 0:
                self._timing.sleep(min(self._commit.test_interval_ms / 1000, left))
                continue
            lease = self._take(path, etag, owner, lease)
            if lease is None:
                without_record += 1
                if without_record == _CONFLICTS_WITHOUT_RECORD:
                    raise StoreError(
                        f"{self.url}: the DynamoDB table {self._table.name!r} refuses {path} because of a record that "
                        "it does not return. Nothing was committed; use a service that returns the item of a failed "
                        "condition.",
                        path=path,
                    )
            elif lease.is_mine:
                outcome = self._put(path, data, etag, lease)
                if outcome is not None:
                    return outcome
        return PutOutcome.EXISTS

    def _has_expected_etag(self, path: str, etag: str) -> bool:
        if etag == ABSENT:
            return self.inner.head(path) is None
        return self.inner.etag(path) == etag

    def _take(self, path: str, etag: str, owner: str, held: _Lease | None) -> _Lease | None:
        """Put the record, or replace the record of an expired lease.

        Returns the current lease; None if the record was deleted concurrently.
        """
        generation = 0 if held is None else held.generation + 1
        record: Item = {
            "path": self.inner.key(path),
            "etag": etag,
            "generation": generation,
            "timeout": self._commit.timeout_ms,
            "ttl": int(self._timing.wall()) + self._commit.ttl_s,
            # deltalog adds an owner to the record, to recognise its own record after a lost response; object_store
            # ignores the owner.
            "owner": owner,
        }
        timeout = self._commit.timeout_ms / 1000
        begun = self._timing.monotonic()
        try:
            if held is None:
                self._table.put(record, "attribute_not_exists(#pk)", names={"#pk": "path"}, seconds=timeout)
            else:
                self._table.put(
                    record,
                    "attribute_exists(#pk) AND generation = :g",
                    names={"#pk": "path"},
                    values={":g": held.generation},
                    seconds=timeout,
                )
        except ConditionFailed as conflict:
            if conflict.item is None:
                return None
            if (conflict.item.get("owner"), conflict.item.get("generation")) != (owner, generation):
                return self._foreign_lease(conflict.item)
        except CommitTableError:
            raise
        except StoreError as error:
            raise StoreError(
                f"{self.url}: no lease for {path}, so nothing was written. {error.message}", path=path
            ) from error.__cause__
        return _Lease(generation, begun + timeout, True)

    def _foreign_lease(self, record: Item) -> _Lease:
        generation, timeout_ms = record.get("generation"), record.get("timeout")
        if not isinstance(generation, int) or not isinstance(timeout_ms, int):
            raise CommitTableError(
                f"{self.url}: the record of {record.get('path')} in the DynamoDB table {self._table.name!r} has no "
                "generation or no timeout, so it is not of this protocol. Nothing was written; use another table.",
                table=self._table.name,
            )
        wait = timeout_ms / 1000 * self._commit.max_clock_skew_rate
        return _Lease(generation, self._timing.monotonic() + wait, False)

    # ---------------------------------------------------------------------------------------- under a lease

    def _put(self, path: str, data: bytes, etag: str, lease: _Lease) -> PutOutcome | None:
        """Send the PUT, with retries while its outcome is unknown and the lease has not ended. None: the lease ended
        before the first PUT."""
        unsettled = False
        for number in itertools.count(1):
            try:
                # If the object now exists, it may be our own; the caller reads it back.
                if unsettled and not self._has_expected_etag(path, etag):
                    return PutOutcome.EXISTS
                left = lease.until - self._timing.monotonic()
                if left <= 0:
                    break
                outcome = self._put_once(path, data, etag, left)
                if outcome is not PutOutcome.UNKNOWN:
                    return outcome
                unsettled = True
            except StoreError:
                if not unsettled:
                    raise
            left = lease.until - self._timing.monotonic()
            if left <= 0:
                break
            self._timing.back_off(number, left)
        return PutOutcome.UNKNOWN if unsettled else None

    def _put_once(self, path: str, data: bytes, etag: str, seconds: float) -> PutOutcome:
        try:
            return self.inner.put_once(path, data, etag if self._commit.native_condition else None, seconds)
        except ObjectNotFoundError:
            return PutOutcome.EXISTS  # S3's response to If-Match if the object is absent
