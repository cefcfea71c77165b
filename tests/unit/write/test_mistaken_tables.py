"""Files of another table that look like those of the table in an open handle; derived files that are written, read or
deleted while another table replaces this table.

``test_lost_tables.py`` tests the public methods, and faults during a commit.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from deltalog import CorruptTableError, DeltaTable, Environment, SchemaMismatchError, TableNotFoundError
from deltalog.errors import MissingVersionError, TableReplacedError
from deltalog.maintenance.vacuum import tasks
from deltalog.protocol.paths import commit_path
from deltalog.storage import LogStore
from deltalog.storage.base import Entry
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.storage.wrapped import WrappedStore
from deltalog.transactions.manager import TransactionManager
from deltalog.write.table_handle import TableHandle
from tests.support.core import SCHEMA, ids, rows
from tests.support.places import OTHER, Place, place_of
from tests.support.s3 import Server

# ------------------------------------------------------------------------ another file that looks like the known file


def _in_seconds(root: Path) -> None:
    """Truncate file times to seconds, as ``tar`` and container images do, so that they are equal."""
    for directory, _, names in os.walk(root):
        for name in names:
            os.utime(Path(directory, name), (1_700_000_000, 1_700_000_000))


def test_an_inode_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    """A file system may reuse the inode of a deleted file. The commit file of the other table usually has the same size
    and, if a tool sets file times, also the same time."""
    root = tmp_path / "t"
    DeltaTable.create(root, SCHEMA).append(rows(1))
    shutil.copytree(root, tmp_path / "other")
    DeltaTable.open(tmp_path / "other").append(rows(200))
    DeltaTable.open(root).append(rows(100))
    _in_seconds(root)
    table = DeltaTable.open(root)
    assert ids(table) == [1, 100]
    mine, other = (each / commit_path(2) for each in (root, tmp_path / "other"))
    assert mine.stat().st_size == other.stat().st_size
    # Overwrite the same inode with the other file, because the file system decides whether a new file reuses an inode.
    mine.write_bytes(other.read_bytes())
    shutil.copytree(tmp_path / "other", root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*2.json"))
    _in_seconds(root)
    assert ids(table) == [1, 200]
    table.overwrite(rows(3))
    assert ids(DeltaTable.open(root)) == [3]


class Ahead(WrappedStore[LogStore]):
    """Before a commit, other writers that set no txnId, such as delta-rs, win the race for the version ``races``
    times."""

    races = 0

    def put_if_absent(self, path: str, data: bytes) -> Any:
        while self.races and path.endswith(".json"):
            self.races -= 1
            anothers = data.replace(b'"txnId":"', b'"other":"').replace(b'"path":"', b'"path":"other-%d-' % self.races)
            if self.inner.put_if_absent(path, anothers) is not None and self.races % 2:
                break
        return self.inner.put_if_absent(path, data)


@pytest.mark.parametrize("races", [1, 2, 6])
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_commit_without_a_txn_id_is_known_by_its_bytes(tmp_path: Path, store: str, races: int) -> None:
    table = DeltaTable.create(MemoryStore() if store == "memory" else LocalStore(tmp_path / "t"), SCHEMA)
    ahead = Ahead(table._handle.reader.store)
    ahead.races = races
    writer = DeltaTable.open(ahead)
    assert writer.append(rows(1)).version == DeltaTable.open(ahead.inner).version > 1
    assert writer.snapshot().num_files == writer.version


# ------------------------------------------------------------------------ after a commit to the log of another table

#: An event during the test.
Event = Callable[[], Any]


class Once(WrappedStore[LogStore]):
    """Runs an event once, right before a call of a method with a path that contains a given string."""

    def __init__(self, inner: LogStore, method: str, part: str, event: Event, skips: int = 0) -> None:
        super().__init__(inner)
        self._method, self._part, self._event = method, part, event
        self.skips = skips

    def _look(self, method: str, path: str) -> None:
        if method == self._method and self._part in path:
            self.skips -= 1
            if self.skips == -1:
                self._event()

    def put_if_absent(self, path: str, data: bytes) -> Any:
        self._look("put", path)
        return self.inner.put_if_absent(path, data)

    def get(self, path: str, length: int | None = None) -> bytes:
        self._look("get", path)
        return self.inner.get(path, length)

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        return [self.get(path, length) for path in paths]

    def list_from(self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None) -> Any:
        self._look("list", directory)
        return self.inner.list_from(directory, start, stat=stat, limit=limit)

    def delete(self, path: str) -> None:
        self._look("delete", path)
        self.inner.delete(path)

    def remove(self, entries: Sequence[Entry]) -> list[Entry]:
        for entry in entries:
            self._look("remove", entry.path)
        return self.inner.remove(entries)


@pytest.fixture(params=["disk", "memory", "far", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "s3":
        from deltalog.storage.s3.store import S3Store  # the environment of the quick tests has no botocore

        server: Server = request.getfixturevalue("ministack")
        store = server.store()
        return Place(store, lambda: S3Store(store.url, **server.options()))
    return place_of(request.param, tmp_path)


@pytest.mark.parametrize("background", [True, False])
def test_a_busy_writer_notices_that_a_commit_of_its_own_is_in_another_log(background: bool) -> None:
    """On a remote store, the table may be replaced between the check and the commit. Every later check finds the
    handle's own commit, which is in the new log."""
    place = place_of("far", Path())
    place.create(SCHEMA, 2)

    def replace() -> None:
        place.drop()
        place.create(OTHER, 2)

    environment = Environment(background=background)
    table = DeltaTable.open(Once(place.reach(), "put", commit_path(3), replace), environment=environment)
    assert table.append(rows(100)).version == 3  # the replacement cannot be detected yet
    table.flush()
    assert table.snapshot().schema.names == ["other"]
    with pytest.raises(SchemaMismatchError):
        table.append(rows(101))
    assert place.commits() == ["00", "01", "02", "03"]


def test_a_call_right_after_such_a_commit_is_refused() -> None:
    place = place_of("far", Path())
    place.create(SCHEMA, 2)

    def replace() -> None:
        place.drop()
        place.create(SCHEMA, 2)

    table = DeltaTable.open(Once(place.reach(), "put", commit_path(3), replace))
    table.append(rows(100))
    table.flush()
    with pytest.raises(TableReplacedError, match="at the moment of a commit, which is version 3 of what is there"):
        table.append(rows(101))
    assert table.append(rows(102)).version == 4
    assert [name for name in place.names() if name.endswith("3.crc")] == []


def test_nothing_is_derived_from_a_commit_in_another_log() -> None:
    """If a .crc or a checkpoint were written for this table, readers of the other table would get this table's columns
    and files."""
    place = place_of("far", Path())
    place.create(SCHEMA, 1)
    DeltaTable.open(place.reach()).set_properties({"delta.checkpointInterval": "3"})

    def replace() -> None:
        place.drop()
        place.create(OTHER, 2)

    table = DeltaTable.open(Once(place.reach(), "put", commit_path(3), replace))
    table.append(rows(100))
    table.flush()
    assert not any("checkpoint" in name or name.endswith("3.crc") for name in place.names())
    assert DeltaTable.open(place.reach()).snapshot().schema.names == ["other"]


# ------------------------------------------------------------------------------------------- list first, then delete


def _later(days: int) -> Environment:
    return Environment(clock_ms=lambda: int((time.time() + days * 86_400) * 1000))


def _with_versions(place: Place, latest: int) -> DeltaTable:
    table = place.create(SCHEMA)
    # On S3, commits within the same second have the same file time.
    table.set_properties({"delta.enableInCommitTimestamps": "true"})
    for number in range(latest - 1):
        table.append(rows(number))
    table.flush()
    return table


@pytest.mark.sampled(3)
@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("skips", [0, 20])
def test_log_clean_up_deletes_nothing_of_a_table_that_took_the_place(
    place: Place, skips: int, is_dropped: bool
) -> None:
    """The new table's commits and checkpoints have the same names as the old table's."""
    _with_versions(place, 30).checkpoint()
    left: list[str] = []

    def replace() -> None:
        place.drop()
        if not is_dropped:
            place.create(OTHER, 35)
        left.extend(place.names())

    table = DeltaTable.open(Once(place.reach(), "delete", ".json", replace, skips), environment=_later(40))
    with pytest.raises(TableNotFoundError if is_dropped else TableReplacedError):
        table.cleanup_log()
    # On a remote store, deletion requests that were already sent may still remove files of the other table.
    lost = set(left) - set(place.names())
    assert len(lost) <= (16 if place.store.is_remote else 1)


def test_log_clean_up_by_two_ends(place: Place) -> None:
    _with_versions(place, 13).checkpoint()
    other = DeltaTable.open(place.reach(), environment=_later(40))

    def clean_up() -> None:
        DeltaTable.open(place.reach()).append(rows(99))
        other.checkpoint()
        other.cleanup_log(retention=timedelta(0))

    store = Once(place.reach(), "delete", ".json", clean_up)
    DeltaTable.open(store, environment=_later(40)).cleanup_log()
    assert DeltaTable.open(place.reach()).snapshot().num_files == 13


@pytest.mark.parametrize("kind", ["memory", "far"])
def test_a_vacuum_deletes_no_files_of_an_older_copy(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy needs files that the latest version no longer needs. On a local disk the files of an older copy are kept
    because their file times differ."""
    monkeypatch.setattr(tasks, "_AT_ONCE", 2)
    place = place_of(kind, Path())
    place.create(SCHEMA, 10)
    copy = place.copy()
    DeltaTable.open(place.reach()).overwrite(rows(50))
    store = Once(place.reach(), "remove", ".parquet", lambda: place.restore(copy), skips=1)
    table = DeltaTable.open(store, environment=_later(3))
    with pytest.raises((TableReplacedError, MissingVersionError), match="during a vacuum"):
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    # The requests in flight.
    assert len(set(copy) - set(place.names())) <= 2


# ------------------------------------------------------------------------- a table replaced while a version is loaded


def _without_checksums(place: Place) -> None:
    for name in place.names():
        if name.endswith(".crc"):
            place.reach().delete(name)


class NoEtags(WrappedStore[LogStore]):
    """A remote store whose ETags do not depend on the bytes, as with some kinds of encryption."""

    def head(self, path: str) -> Any:
        found = self.inner.head(path)
        return found and structs.replace(found, etag=None)

    def list_from(self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None) -> Any:
        found = self.inner.list_from(directory, start, stat=stat, limit=limit)
        return [structs.replace(each, etag=None) for each in found]


@pytest.mark.parametrize("has_etags", [True, False])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_commits_of_two_tables_are_no_version(place: Place, checkpoint: bool, has_etags: bool) -> None:
    """Commits are read by name, so two commits of different tables may look like one log. For tables without a
    ``.crc``, an earlier version of deltalog combined the columns of one table with the files of another."""
    old = place.create(SCHEMA, 5)
    if checkpoint:
        old.checkpoint()
        old.append(rows(6))
        old.append(rows(7))
        old.flush()
    _without_checksums(place)

    def replace() -> None:
        place.drop()
        place.create(OTHER, 8)
        _without_checksums(place)

    inner = place.reach() if has_etags else NoEtags(place.reach())
    table = DeltaTable.open(Once(inner, "get", ".json", replace, skips=1))
    assert (table.version, table.snapshot().schema.names) == (8, ["other"])
    assert table.snapshot().scan().to_arrow().num_rows == 8


@pytest.mark.parametrize("has_etags", [True, False])
@pytest.mark.parametrize("moment", ["list", "get"])
def test_commits_of_another_table_do_not_follow_the_known_version(moment: str, has_etags: bool) -> None:
    place = place_of("far", Path())
    place.create(SCHEMA, 2)

    def replace() -> None:
        place.drop()
        place.create(OTHER, 4)

    inner = place.reach() if has_etags else NoEtags(place.reach())
    part = "_delta_log" if moment == "list" else "4.json"
    store = Once(inner, moment, part, replace, skips=10**9)
    table = DeltaTable.open(store)
    for number in range(2):
        DeltaTable.open(place.reach()).append(rows(number))
    store.skips = 0
    assert table.snapshot().schema.names == ["other"]
    assert table.snapshot().scan().to_arrow().num_rows == 4


# ------------------------------------------------------------------------------------------------ tables in a catalog


def test_an_older_copy_below_a_catalog_is_not_read_as_the_latest_version(tmp_path: Path) -> None:
    """The catalog contains a later version, which was published."""
    root = tmp_path / "t"
    table = TransactionManager(str(tmp_path / "catalog.db")).create_table("db.t", str(root), SCHEMA)
    table.append(rows(0))
    shutil.copytree(root, tmp_path / "copy")
    table.append(rows(1))
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "copy", root)
    again = TransactionManager(str(tmp_path / "catalog.db"))
    with pytest.raises(CorruptTableError, match=r"has published version 2, but the log has no 0*2\.json"):
        again.table("db.t").snapshot()


# --------------------------------------------------------------------------------------- two threads with one handle


def test_what_another_thread_has_checked_is_no_check_of_an_older_version(monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of("far", Path())
    table = place.create(SCHEMA, 2)
    handle = table._handle

    def meanwhile(self: TableHandle, latest: Any, reads: Any) -> list[Any]:
        if latest.schema.names == ["id", "name"]:
            place.drop()
            place.create(OTHER, 2)
            assert handle.refresh().schema.names == ["other"]  # in another thread
        return []

    monkeypatch.setattr(TableHandle, "_own_origins", meanwhile)
    with pytest.raises(TableReplacedError):
        table.set_properties({"custom.a": "1"})
    assert place.commits() == ["00", "01", "02"]
