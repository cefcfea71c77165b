"""S3 with the commit protocol of Delta's S3DynamoDBLogStore, so that deltalog and Spark can write to the same table.

The commit of version N is an item ``E(N)`` in DynamoDB. The conditional put that creates the item commits the version.
The item names an immutable file ``T(N)`` below ``_delta_log/.tmp`` with the commit's bytes. Therefore any process that
reads an item that is not ``complete`` can finish the commit: it copies T(N) to N.json and then marks the item as
complete. A commit is finished

- by the writer of the item, right after creating it; - by any reader that lists the log or reads an N.json that does
not exist; - by the writer of N + 1, before anything else.

If N.json already exists, S3DynamoDBLogStore assumes that it wrote N.json itself; deltalog compares the bytes. If the
bytes differ, another writer commits to this table without DynamoDB, and an error is raised, so that no commit is lost.
"""

from __future__ import annotations

import contextlib
import logging
import re
import uuid
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from deltalog.errors import (
    CallError,
    CommitTableError,
    ObjectNotFoundError,
    StoreError,
    UnansweredRequestError,
    UnsafePathError,
)
from deltalog.protocol.paths import LOG_DIRECTORY, commit_name, commit_path, commit_version, log_path
from deltalog.storage.base import FileMeta, PutOutcome, get_or_none
from deltalog.storage.dynamodb.client import ConditionFailed, DynamoTable, Item, Timing, check_table_name
from deltalog.storage.dynamodb.tables import FirstUse
from deltalog.storage.wrapped import WrappedStore

if TYPE_CHECKING:
    from deltalog.storage.s3.store import S3Store

_PREFIX = "s3-dynamodb:"
_COPY_ATTEMPTS = 4
_DAY_SECONDS = 86_400
# The names of staged commits: those of Spark, and those of deltalake, which once supported this protocol.
_STAGED_NAME = r"\.tmp/%s\.[0-9A-Za-z-]+|_commit_[0-9A-Za-z-]+\.json\.tmp"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class S3DynamoDBCommit:
    """Options for commits through items in the DynamoDB table ``table_name``, compatible with Spark's
    S3DynamoDBLogStore.

    ``table_path_scheme``: the URL scheme with which the other writers open the table; ``s3a://lake/events`` and
    ``s3://lake/events`` have different items in DynamoDB. ``ttl_s``: how long the item of a finished commit is kept.
    Raises CallError.
    """

    table_name: str
    _: KW_ONLY
    table_path_scheme: str = "s3a"
    ttl_s: int = _DAY_SECONDS
    timing: Timing = field(default_factory=Timing, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_table_name(self.table_name)
        if self.table_path_scheme not in ("s3", "s3a", "s3n"):
            raise CallError(f"table_path_scheme must be s3a, s3 or s3n; got {self.table_path_scheme!r}.")
        if self.ttl_s < 1:
            raise CallError(f"ttl_s of S3DynamoDBCommit must be a number of seconds above 0; got {self.ttl_s!r}.")

    def __str__(self) -> str:
        return f"{_PREFIX}{self.table_name}"

    @classmethod
    def parse(cls, text: str) -> S3DynamoDBCommit:
        """Parse an option string, ``s3-dynamodb:<table>`` or ``s3-dynamodb:<table>:<scheme>``. Raises CallError."""
        match = re.fullmatch(rf"{_PREFIX}([^:]+)(?::([^:]+))?", text)
        if match is None:
            raise CallError(f"{text!r} is not s3-dynamodb:<table> or s3-dynamodb:<table>:<s3a, s3 or s3n>.")
        return cls(match[1]) if match[2] is None else cls(match[1], table_path_scheme=match[2])

    def guard(self, store: S3Store, table: DynamoTable) -> S3DynamoDBStore:
        """``store`` with this protocol for its commits."""
        return S3DynamoDBStore(store, self, table)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An item. ``staged`` is a path relative to ``_delta_log``; ``expires_s`` is set once the item is complete."""

    version: int
    staged: str
    is_complete: bool
    expires_s: int | None = None


class S3DynamoDBStore(WrappedStore["S3Store"]):
    """An S3 store that commits through items in DynamoDB. Other calls are delegated.

    If the commit does not exist, ``get`` and ``head`` also query DynamoDB for an unfinished commit; so does every
    listing of the log. These calls finish such a commit, which needs write permissions. Cost: 1 request to DynamoDB
    more for each call; to finish a commit 2 GETs, 1 PUT and 1 request.
    """

    def __init__(self, inner: S3Store, commit: S3DynamoDBCommit, table: DynamoTable) -> None:
        super().__init__(inner)
        self._commit = commit
        self._table = table
        self._timing = commit.timing
        self._first_use = FirstUse(table, "s3-dynamodb")
        # The path as Hadoop's Path formats it; the root of a bucket keeps its slash.
        bucket, _, prefix = inner.url.partition("://")[2].partition("/")
        self._table_path = f"{commit.table_path_scheme}://{bucket}/{prefix}"

    def sibling(self, url: str) -> S3DynamoDBStore:
        return S3DynamoDBStore(self.inner.sibling(url), self._commit, self._table)

    # --------------------------------------------------------------------------------------------- writing

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Cost of a commit: 2 HEADs, 2 PUTs, 3 requests to DynamoDB; of any other object: as the wrapped store.

        Raises CommitTableError if the items contradict the log, StoreError.
        """
        version = commit_version(path)
        if version is None:
            return self.inner.put_if_absent(path, data)
        try:
            self._first_use()
            if self.inner.head(path) is not None:
                return PutOutcome.EXISTS
            if version:
                self._check_previous(version - 1)
        except UnansweredRequestError as error:  # raised by a read in this method, or by finishing the previous commit
            raise StoreError(
                f"{error.message} Nothing was committed.", path=path, service_code=error.service_code
            ) from error
        entry = _Entry(version, f".tmp/{commit_name(version)}.{uuid.uuid4()}", False)
        self.inner.put(log_path(entry.staged), data)
        outcome = self._claim(entry, path)
        if outcome is not PutOutcome.COMMITTED:
            return outcome
        return self._publish_own(entry, path, data)

    def prepare_commit(self, version: int) -> None:
        """Does nothing, because the checks of S3Store do not apply to this protocol."""

    def _check_previous(self, version: int) -> None:
        entry = self._entry(version)
        if entry is not None and not entry.is_complete:
            self._finish(entry, writing=True)
            return
        if self.inner.head(commit_path(version)) is None:
            raise CommitTableError(
                f"{self.url}: version {version}, the previous one, is not in the log"
                f"{'' if entry is None else f', but is complete in the DynamoDB table {self._table.name!r}'}. "
                "Nothing was committed. Was the table deleted or restored? Then delete its items "
                f"(tablePath {self._table_path}) too.",
                table=self._table.name,
            )
        if entry is None:
            self._check_no_other_writer(version)

    def _check_no_other_writer(self, version: int) -> None:
        """Raise CommitTableError if ``version`` was committed without an item in the commit table.

        Items expire a day after the commit, roughly in the order of their versions. If an item has not expired, the
        items of all later commits through this protocol must therefore exist."""
        latest = self._latest()
        if latest is None or latest.version >= version:
            return
        if latest.expires_s is None or latest.expires_s > self._timing.wall():
            raise self._mixed(version, f"it has no item, though the older version {latest.version} has one")

    def _mixed(self, version: int, evidence: str) -> CommitTableError:
        return CommitTableError(
            f"{self.url}: version {version} was committed by a writer that does not use the DynamoDB table "
            f"{self._table.name!r} ({evidence}). Nothing was committed. Let all writers commit through the same table, "
            "or none; then delete the remaining items of this table "
            f"(tablePath {self._table_path}).",
            table=self._table.name,
        )

    def _claim(self, entry: _Entry, path: str) -> PutOutcome:
        """Create the item. Once the item exists, the version is committed, even if this process dies."""
        try:
            self._table.put(self._item(entry), "attribute_not_exists(fileName)")
        except ConditionFailed as conflict:
            if conflict.item is not None and conflict.item.get("tempPath") == entry.staged:
                return PutOutcome.COMMITTED  # the response to an earlier attempt was lost
            self._discard(entry)
            found = None if conflict.item is None else self._parsed(conflict.item)
            if found is not None and found.is_complete and self.inner.head(path) is None:
                raise CommitTableError(
                    f"{self.url}: version {entry.version} is complete in the DynamoDB table {self._table.name!r}, but "
                    f"not in the log. Nothing was committed. Was the table deleted or restored? Then delete its "
                    f"items (tablePath {self._table_path}) too.",
                    table=self._table.name,
                ) from None
        except UnansweredRequestError as error:
            log.warning("%s: it is unknown whether version %d has its item: %s", self.url, entry.version, error)
            return PutOutcome.UNKNOWN
        except StoreError:
            self._discard(entry)
            raise
        else:
            return PutOutcome.COMMITTED
        return PutOutcome.EXISTS

    def _publish_own(self, entry: _Entry, path: str, data: bytes) -> PutOutcome:
        try:
            outcome = self.inner.put_once(path, data, "*")
            # Another process may have read this writer's item, and copied its commit file into the log before this
            # writer did.
            is_foreign = outcome is PutOutcome.EXISTS and self.inner.get(path) != data
        except StoreError as error:
            # The version is committed. The next process that reads the log finishes the commit.
            log.warning("%s: version %d has its item and is not yet in the log: %s", self.url, entry.version, error)
            return PutOutcome.UNKNOWN
        if outcome is PutOutcome.UNKNOWN:
            return outcome
        if is_foreign:
            self._withdraw(entry)
            raise self._mixed(entry.version, "the log has other bytes than the item's file")
        self._complete(entry)
        return PutOutcome.COMMITTED

    # --------------------------------------------------------------------------------------------- reading

    def get(self, path: str, length: int | None = None) -> bytes:
        try:
            return self.inner.get(path, length)
        except ObjectNotFoundError:
            if not self._finish_commit_of(path):
                raise
        return self.inner.get(path, length)

    def head(self, path: str) -> FileMeta | None:
        found = self.inner.head(path)
        return self.inner.head(path) if found is None and self._finish_commit_of(path) else found

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        self._finish_latest(directory)
        return self.inner.list_from(directory, start, stat=stat, limit=limit)

    def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
        self._finish_latest(directory)
        return self.inner.list_names(directory, start, limit=limit)

    def _finish_commit_of(self, path: str) -> bool:
        """Finish the commit ``path``. Returns False if ``path`` is not an unfinished commit."""
        version = commit_version(path)
        entry = None if version is None else self._entry(version)
        if entry is None or entry.is_complete:
            return False
        self._finish(entry, writing=False)
        return True

    def _finish_latest(self, directory: str) -> None:
        """Finish the latest commit. No other commit can be unfinished, because each writer finishes the previous commit
        before its own."""
        latest = self._latest() if directory == LOG_DIRECTORY else None
        if latest is not None and not latest.is_complete:
            self._finish(latest, writing=False)

    # ------------------------------------------------------------------------------------------- finishing

    def _finish(self, entry: _Entry, *, writing: bool) -> None:
        """Copy the staged file of another writer and mark its item as complete."""
        path = commit_path(entry.version)
        staged = get_or_none(self.inner, self._staged_path(entry))
        there = get_or_none(self.inner, path)
        if there is None:
            if staged is None:
                raise CommitTableError(
                    f"{self.url}: the DynamoDB table {self._table.name!r} has version {entry.version}, and neither "
                    f"the log nor {self._staged_path(entry)} has its content. Restore that file, or abandon the commit "
                    f"by deleting the item (tablePath {self._table_path}, fileName {commit_name(entry.version)}).",
                    table=self._table.name,
                )
            there = self._copy(entry, path, staged)
        if staged is not None and staged != there:
            mixed = self._mixed(entry.version, "the log has other bytes than the item's file")
            if writing:
                raise mixed
            log.warning("%s", mixed)
            return
        self._complete(entry)

    def _copy(self, entry: _Entry, path: str, staged: bytes) -> bytes:
        """Copy the staged bytes to ``path``, and return the content of ``path``."""
        for number in range(1, _COPY_ATTEMPTS + 1):
            try:
                if self.inner.put_once(path, staged, "*") is PutOutcome.COMMITTED:
                    return staged
            except StoreError as error:
                raise StoreError(
                    f"{self.url}: version {entry.version} is committed in the DynamoDB table {self._table.name!r}, and "
                    f"copying it into the log failed. {error.message} Open the table with write permissions, or "
                    "without commit= to read only the earlier versions.",
                    path=path,
                ) from error.__cause__
            there = get_or_none(self.inner, path)
            if there is not None:
                return there
            self._timing.back_off(number, 1.0)
        raise StoreError(
            f"{self.url}: version {entry.version} is committed in the DynamoDB table {self._table.name!r} and could "
            "not be copied into the log: the store does not answer. Try again.",
            path=path,
        )

    def _staged_path(self, entry: _Entry) -> str:
        """The path of the item's staged file. DynamoDB items are as untrusted as the log, so unexpected file names are
        refused."""
        allowed = re.compile(_STAGED_NAME % re.escape(commit_name(entry.version)))
        if not allowed.fullmatch(entry.staged):
            raise UnsafePathError(
                f"{self.url}: the item of version {entry.version} in the DynamoDB table {self._table.name!r} names "
                f"{entry.staged[:200]!r}; only .tmp/{commit_name(entry.version)}.<uuid> is read. Nothing was copied.",
                path=entry.staged,
            )
        return log_path(entry.staged)

    def _complete(self, entry: _Entry) -> None:
        """Mark the item as complete. If this request fails, the next process that reads the item marks it as
        complete."""
        expires_s = int(self._timing.wall()) + self._commit.ttl_s
        marked = _Entry(entry.version, entry.staged, True, expires_s)
        with self._tolerated(entry, "marked as complete"):
            self._table.put(self._item(marked), "tempPath = :staged", values={":staged": entry.staged})

    def _withdraw(self, entry: _Entry) -> None:
        with self._tolerated(entry, "withdrawn"):
            self._table.delete(
                self._key(entry.version),
                "tempPath = :staged AND #complete = :no",
                names={"#complete": "complete"},
                values={":staged": entry.staged, ":no": "false"},
            )
            self._discard(entry)

    def _discard(self, entry: _Entry) -> None:
        """Delete a staged file that no item references."""
        with self._tolerated(entry, "discarded"):
            self.inner.delete(log_path(entry.staged))

    @contextlib.contextmanager
    def _tolerated(self, entry: _Entry, what: str) -> Iterator[None]:
        try:
            yield
        except (ConditionFailed, StoreError) as error:
            log.info("%s: the item or the file of version %d was not %s: %s", self.url, entry.version, what, error)

    # ----------------------------------------------------------------------------------------------- items

    def _key(self, version: int) -> Item:
        return {"tablePath": self._table_path, "fileName": commit_name(version)}

    def _item(self, entry: _Entry) -> Item:
        item: Item = {
            **self._key(entry.version),
            "tempPath": entry.staged,
            "complete": "true" if entry.is_complete else "false",
        }
        if entry.expires_s is not None:
            item["expireTime"] = entry.expires_s
        return item

    def _entry(self, version: int) -> _Entry | None:
        item = self._table.get(self._key(version))
        return None if item is None else self._parsed(item)

    def _latest(self) -> _Entry | None:
        for item in self._table.descending("tablePath", self._table_path):
            if commit_version(log_path(str(item["fileName"]))) is not None:
                return self._parsed(item)
        return None

    def _parsed(self, item: Item) -> _Entry:
        version, staged = commit_version(log_path(str(item["fileName"]))), item.get("tempPath")
        complete, expires_s = item.get("complete"), item.get("expireTime")
        if version is None or not isinstance(staged, str) or complete not in ("true", "false"):
            raise CommitTableError(
                f"{self.url}: the item {item['fileName']} in the DynamoDB table {self._table.name!r} is not one of "
                "S3DynamoDBLogStore: tempPath or complete is missing or of another type. Use another table.",
                table=self._table.name,
            )
        return _Entry(version, staged, complete == "true", expires_s if isinstance(expires_s, int) else None)
