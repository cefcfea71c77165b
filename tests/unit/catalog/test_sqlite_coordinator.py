"""SQLiteCoordinator keeps the guarantees of a Coordinator when processes and disks fail."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalog.catalog import sqlite_file
from deltalog.catalog.group_commit import Execute
from deltalog.catalog.records import (
    Head,
    Marking,
    Proposal,
    Ratification,
    RatifiedCommit,
    TransactionStatus,
    committed,
    touched,
)
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import (
    CallError,
    CoordinatorError,
    EntityNotFoundError,
    OperationTimeoutError,
    UnsafeStoreError,
)
from deltalog.storage import mounts
from deltalog.testing.coordinator_cases import commit, proposal, table, transaction
from deltalog.testing.coordinator_tests import CoordinatorTests

RATIFIED = Ratification.RATIFIED


class TestSQLiteCoordinator(CoordinatorTests):
    @pytest.fixture
    def coordinator(self, tmp_path: Path) -> SQLiteCoordinator:
        return SQLiteCoordinator(tmp_path / "catalog.db")

    @pytest.fixture
    def another(self, coordinator: SQLiteCoordinator) -> SQLiteCoordinator:
        return SQLiteCoordinator(coordinator.path)


@pytest.fixture
def catalog(tmp_path: Path) -> SQLiteCoordinator:
    return SQLiteCoordinator(tmp_path / "catalog.db")


@pytest.mark.parametrize("place", ["typo.db", "typo/catalog.db", "empty.db"])
def test_without_create_a_catalog_that_is_not_there_stays_away(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty.db").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(EntityNotFoundError, match=f"no catalog at .*{place}"):
        SQLiteCoordinator(tmp_path / place, create=False)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "empty.db").stat().st_size == 0


def test_without_create_a_catalog_that_is_there_is_opened(catalog: SQLiteCoordinator) -> None:
    again = SQLiteCoordinator(catalog.path, create=False)
    assert again.register(table(1), 0)
    assert (again.catalog_id, catalog.tables()) == (catalog.catalog_id, [table(1)])


def test_a_record_of_an_older_deltalog_lacks_only_what_is_new(catalog: SQLiteCoordinator) -> None:
    catalog.insert(transaction("t"))
    with sqlite3.connect(catalog.path) as connection:
        record = json.loads(connection.execute("SELECT record FROM transactions").fetchone()[0])
        del record["idle_timeout_ms"]
        connection.execute("UPDATE transactions SET record = ?", (json.dumps(record).encode(),))
    assert catalog.transaction("t") == transaction("t")


# -------------------------------------------------------------------------------------------------- processes

PREAMBLE = """
import json, os, signal, sys
from deltalog.catalog.records import *
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.testing.coordinator_cases import commit, proposal, table, transaction

path, who = sys.argv[1], sys.argv[2]
"""
RACER = """
sys.stdin.readline()
catalog, won = SQLiteCoordinator(path), []
while len(won) < 20:
    versions = catalog.cut()
    made = proposal({table_id: version + 1 for table_id, version in versions.items()}, who)
    if catalog.ratify(made) is Ratification.RATIFIED:
        won.append(made.commits["id-1"][0].version)
print(json.dumps([catalog.catalog_id, won]))
"""
KILLED = """
catalog = SQLiteCoordinator(path)
version = catalog.cut()["id-1"]
while True:
    version += 1
    before = transaction(f"{who}-{version}")
    catalog.insert(before)
    commits = {table_id: (commit(version, who),) for table_id in ("id-1", "id-2")}
    made = Proposal(commits, {}, before, committed(before, {"id-1": version, "id-2": version}, 2000))
    assert catalog.ratify(made) is Ratification.RATIFIED
    os.write(1, f"{version}\\n".encode())
"""


def run(program: str, path: str, who: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PREAMBLE + program, path, who]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_that_race_leave_no_gap_and_no_version_twice(catalog: SQLiteCoordinator) -> None:
    for number in (1, 2):
        catalog.register(table(number), 0)
    racers = [run(RACER, catalog.path, f"{who}") for who in range(4)]
    outcomes = [json.loads(racer.communicate("go\n", timeout=120)[0]) for racer in racers]
    assert {catalog_id for catalog_id, _ in outcomes} == {catalog.catalog_id}
    assert sorted(version for _, won in outcomes for version in won) == list(range(1, 81))
    assert catalog.cut() == {"id-1": 80, "id-2": 80}
    for table_id in ("id-1", "id-2"):
        head = catalog.head(table_id)
        assert head is not None
        by_version = {each.version: each.txn_id for each in head.unpublished}
        assert by_version == {version: f"txn-{who}" for who, (_, won) in enumerate(outcomes) for version in won}


def test_a_catalog_that_many_processes_make_is_one(tmp_path: Path) -> None:
    path = str(tmp_path / "catalog.db")
    makers = [run("sys.stdin.readline(); print(SQLiteCoordinator(path).catalog_id)", path, "") for _ in range(6)]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("go\n")
        maker.stdin.flush()
    ids = {maker.communicate(timeout=60)[0] for maker in makers}
    assert ids == {f"{SQLiteCoordinator(path).catalog_id}\n"}


def test_what_was_ratified_outlives_a_kill_and_nothing_is_half_there(catalog: SQLiteCoordinator) -> None:
    for number in (1, 2):
        catalog.register(table(number), 0)
    chance, seen = random.Random(3), 0
    for who in range(5):
        process = run(KILLED, catalog.path, f"{who}")
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(chance.randint(1, 12))]
        time.sleep(chance.random() * 0.01)
        os.kill(process.pid, signal.SIGKILL)
        seen = max(told + [int(line) for line in process.stdout.read().splitlines()])
        process.communicate()
        versions = catalog.cut()
        assert versions["id-1"] == versions["id-2"] in (seen, seen + 1)
        seen = versions["id-1"]
        decided = catalog.transactions(frozenset({TransactionStatus.COMMITTED}))
        assert {record.versions["id-1"] for record in decided} == set(range(1, seen + 1))
        for table_id in ("id-1", "id-2"):
            head = catalog.head(table_id)
            assert head is not None and [each.version for each in head.unpublished] == list(range(1, seen + 1))
    assert seen >= 5


def test_a_fork_leaves_the_connections_of_its_parent_alone(catalog: SQLiteCoordinator) -> None:
    catalog.register(table(1), 0)
    for version in range(1, 40, 2):
        child = os.fork()
        if child == 0:
            try:
                made = catalog.ratify(proposal({"id-1": version}, "child"))
                catalog.close()
                os._exit(0 if made is RATIFIED else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert catalog.ratify(proposal({"id-1": version + 1}, "parent")) is RATIFIED
    assert catalog.cut() == {"id-1": 40}
    assert SQLiteCoordinator(catalog.path).cut() == {"id-1": 40}


def test_connections_are_as_many_as_threads_at_once(catalog: SQLiteCoordinator) -> None:
    catalog.register(table(1), 0)
    for _ in range(20):
        thread = threading.Thread(target=catalog.cut)
        thread.start()
        thread.join()
    assert len(catalog._file._idle) == 1
    catalog.close()
    assert len(catalog._file._all) == 0


# ------------------------------------------------------------------------------------------------ other files


@pytest.mark.parametrize("path", ["", ":memory:", "there/", "a\0b"])
def test_what_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(CallError, match="cannot be the file of a catalog"):
        SQLiteCoordinator(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="cannot be the file of a catalog"):
        SQLiteCoordinator(tmp_path)


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(CoordinatorError, match="directory must exist"):
        SQLiteCoordinator(tmp_path / "no" / "catalog.db")
    assert list(tmp_path.iterdir()) == []


def test_an_odd_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "100% of a?b#c=d&mode=memory.db"
    SQLiteCoordinator(path).register(table(1), 0)
    assert path.exists()
    assert SQLiteCoordinator(path).cut() == {"id-1": 0}


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_database_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    change(path, "CREATE TABLE tables (x)", "INSERT INTO tables VALUES (1)")
    before = path.read_bytes()
    with pytest.raises(CoordinatorError, match="database of another application"):
        SQLiteCoordinator(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["other.db"]


@pytest.mark.parametrize("pragma", ["application_id = 77", "user_version = 4"])
def test_an_empty_database_with_marks_of_its_own_is_something_else(tmp_path: Path, pragma: str) -> None:
    path = tmp_path / "other.db"
    change(path, f"PRAGMA {pragma}")
    with pytest.raises(CoordinatorError, match="database of another application"):
        SQLiteCoordinator(path)


def test_a_newer_schema_is_left_as_it_is(catalog: SQLiteCoordinator) -> None:
    catalog.register(table(1), 0)
    catalog.close()
    path = Path(catalog.path)
    change(path, f"PRAGMA user_version = {sqlite_file.SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(CoordinatorError, match="upgrade deltalog"):
        SQLiteCoordinator(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"hello", b"x" * 20_000])
def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(CoordinatorError, match="Name another file"):
        SQLiteCoordinator(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("made", ["an empty file", "an empty database", "killed while it was made"])
def test_an_empty_file_becomes_a_catalog(tmp_path: Path, made: str) -> None:
    path = tmp_path / "catalog.db"
    path.touch()
    if made == "an empty database":
        change(path, "CREATE TABLE x (y)", "DROP TABLE x")
    elif made == "killed while it was made":
        change(path, "PRAGMA journal_mode = WAL")
    assert SQLiteCoordinator(path).catalog_id == SQLiteCoordinator(path).catalog_id != ""


def test_a_file_that_was_deleted_under_us_is_not_written_to(catalog: SQLiteCoordinator) -> None:
    catalog.register(table(1), 0)
    for suffix in ("", "-wal", "-shm"):
        Path(catalog.path + suffix).unlink(missing_ok=True)
    with pytest.raises(CoordinatorError, match="unable to open"):
        catalog.ratify(proposal({"id-1": 1}))
    assert not Path(catalog.path).exists()


def test_another_catalog_in_its_place_is_not_taken_for_it(catalog: SQLiteCoordinator) -> None:
    catalog.register(table(1), 0)
    for suffix in ("", "-wal", "-shm"):
        Path(catalog.path + suffix).unlink(missing_ok=True)
    SQLiteCoordinator(catalog.path).register(table(1), 0)
    with pytest.raises(CoordinatorError, match="it was replaced"):
        catalog.ratify(proposal({"id-1": 1}))
    assert SQLiteCoordinator(catalog.path).cut() == {"id-1": 0}


# ------------------------------------------------------------------------------------------------ failed calls


def test_a_lock_that_is_not_let_go_is_an_error_and_nothing_changes(tmp_path: Path) -> None:
    catalog = SQLiteCoordinator(tmp_path / "catalog.db", busy_seconds=0.05)
    catalog.register(table(1), 0)
    holder = sqlite3.connect(catalog.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(CoordinatorError, match="Try again") as error:
        catalog.ratify(proposal({"id-1": 1}))
    assert not isinstance(error.value, OperationTimeoutError)
    assert catalog.cut() == {"id-1": 0}  # reads do not wait for the lock
    holder.execute("ROLLBACK")
    assert catalog.ratify(proposal({"id-1": 1})) is RATIFIED
    holder.close()


@contextlib.contextmanager
def a_change_in_progress(catalog: SQLiteCoordinator) -> Iterator[None]:
    """Another thread makes a change that finishes when the block ends."""
    begun, over = threading.Event(), threading.Event()

    def make(execute: Execute) -> None:
        begun.set()
        over.wait(60)

    thread = threading.Thread(target=catalog._file.write, args=(make,))
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_writers_of_a_process_wait_without_connections(tmp_path: Path) -> None:
    catalog = SQLiteCoordinator(tmp_path / "catalog.db")
    catalog.register(table(1), 0)
    results: list[Ratification] = []
    writers = [threading.Thread(target=lambda: results.append(catalog.ratify(proposal({"id-1": 1})))) for _ in range(8)]
    with a_change_in_progress(catalog):
        for each in writers:
            each.start()
        time.sleep(0.2)
        assert len(catalog._file._all) == 1 and results == []
    for each in writers:
        each.join()
    assert sorted(results, key=lambda each: each is not RATIFIED) == [RATIFIED] + [Ratification.MOVED] * 7


def test_a_writer_of_the_same_process_that_does_not_end_is_an_error(tmp_path: Path) -> None:
    catalog = SQLiteCoordinator(tmp_path / "catalog.db", busy_seconds=0.05)
    catalog.register(table(1), 0)
    with a_change_in_progress(catalog), pytest.raises(CoordinatorError, match=r"locked.*Try again"):
        catalog.ratify(proposal({"id-1": 1}))
    assert catalog.ratify(proposal({"id-1": 1})) is RATIFIED


def test_a_full_disk_changes_nothing(catalog: SQLiteCoordinator) -> None:
    before = transaction("t")
    catalog.register(table(1), 0)
    catalog.insert(before)
    with catalog._file.connection() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(CoordinatorError, match="Free space") as error:
        catalog.put_parts(touched(before, 2000), {"a": b"x" * 1_000_000})
    assert not isinstance(error.value, OperationTimeoutError)
    assert catalog.transaction("t") == before
    assert catalog.parts("t") == {}
    assert catalog.ratify(proposal({"id-1": 1})) is RATIFIED


def test_a_write_that_fails_at_the_end_of_a_change_is_not_called_done_nor_undone(catalog: SQLiteCoordinator) -> None:
    """The kernel refuses to extend SQLite's write-ahead log, as a broken disk would."""
    catalog.register(table(1), 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(f"{catalog.path}-wal"), limits[1]))
        with pytest.raises(OperationTimeoutError, match="may or may not have taken effect"):
            catalog.ratify(Proposal({"id-1": tuple(commit(version) for version in range(1, 30))}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert catalog.cut() in ({"id-1": 0}, {"id-1": 29})
    version = catalog.cut()["id-1"] + 1
    assert catalog.ratify(proposal({"id-1": version})) is RATIFIED


def test_a_damaged_file_is_an_error_that_says_what_to_do(catalog: SQLiteCoordinator) -> None:
    for number in range(200):
        catalog.register(table(number), 0)
    catalog.close()
    path = Path(catalog.path)
    content = bytearray(path.read_bytes())
    content[4096 * 2 :] = b"\xff" * (len(content) - 4096 * 2)
    path.write_bytes(content)
    with pytest.raises(CoordinatorError, match="restore a backup"):
        SQLiteCoordinator(path).cut()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_an_error(catalog: SQLiteCoordinator) -> None:
    catalog.close()
    os.chmod(catalog.path, 0o444)
    with pytest.raises(CoordinatorError, match="write permission"):
        SQLiteCoordinator(catalog.path).register(table(1), 0)


def test_an_error_of_the_caller_in_a_change_undoes_it(catalog: SQLiteCoordinator) -> None:
    before = transaction("t")
    catalog.insert(before)

    def wrong(execute: Execute) -> float:
        execute("DELETE FROM transactions")
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        catalog._file.write(wrong)
    assert catalog.transaction("t") == before
    assert catalog.replace(touched(before, 2000))


# --------------------------------------------------------------------------------------------- how it is kept


def test_every_connection_waits_for_the_disk(catalog: SQLiteCoordinator) -> None:
    with catalog._file.connection() as first, catalog._file.connection() as second:
        for connection in (first, second):
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_what_is_asked_often_goes_by_an_index(catalog: SQLiteCoordinator) -> None:
    """With 100,000 transactions and 10,000 unpublished commits, no frequent query scans a whole table or sorts."""
    from deltalog.catalog import sqlite

    with catalog._file.connection() as connection:
        for statement, count in [
            (sqlite._HEAD, 1),
            (sqlite._VERSION, 1),
            (sqlite._REVISION, 1),
            (sqlite._PAGE, 4),
            (sqlite._PARTS, 2),
            (f"{sqlite._TABLE} WHERE name > ? ORDER BY name LIMIT ?", 2),
        ]:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", (1,) * count)]
            assert all(step.startswith("SEARCH") for step in plan), (statement, plan)


def test_one_commit_more_among_thousands_writes_little(catalog: SQLiteCoordinator) -> None:
    catalog.register(table(1), 0)
    assert catalog.ratify(Proposal({"id-1": tuple(commit(version) for version in range(1, 10_001))})) is RATIFIED
    catalog.close()  # SQLite's write-ahead log is checkpointed into the database file
    assert catalog.ratify(proposal({"id-1": 10_001})) is RATIFIED
    assert os.path.getsize(f"{catalog.path}-wal") < 64 << 10
    head = catalog.head("id-1")
    assert head is not None and (head.version, len(head.unpublished)) == (10_001, 10_001)
    catalog.published("id-1", 10_000)
    assert catalog.head("id-1") == Head(10_001, head.unpublished[-1:])


# --------------------------------------------------------------------------------------------- network disks

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:20 / /proc rw - proc proc rw
41 22 0:40 / /mnt/share rw shared:2 - {type} server:/export rw
42 41 0:41 / /mnt/share/local\\040disk rw - xfs /dev/vdb rw
43 22 0:42 / /stacked rw - {type} server:/export rw
44 22 0:43 / /stacked rw - ext4 /dev/vdc rw
"""
NETWORK = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "virtiofs",
    "lustre",
    "ceph",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse",
    "fuse.new",
]
LOCAL = ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuseblk", "fuse.fuse-overlayfs"]


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS.format(type=request.param))
    monkeypatch.setattr(mounts, "_MOUNTS", str(file))


@pytest.mark.parametrize("mounted", NETWORK, indirect=True)
def test_a_disk_of_the_network_is_refused(mounted: None) -> None:
    for path in ("/mnt/share/catalog.db", "/mnt/share/a/b/catalog.db", "/mnt/share/local disks/catalog.db"):
        with pytest.raises(UnsafeStoreError, match="Keep the catalog on a disk of this machine, or in DynamoDB"):
            SQLiteCoordinator(path)
    for path in ("/mnt/share/local disk/catalog.db", "/stacked/c.db", "/mnt/sharec.db", "/c.db"):
        assert mounts.network_file_system(path) is None


@pytest.mark.parametrize("mounted", LOCAL, indirect=True)
def test_a_local_disk_is_taken(mounted: None) -> None:
    assert mounts.network_file_system("/mnt/share/catalog.db") is None


@pytest.mark.parametrize("mounted", ["nfs4"], indirect=True)
def test_a_link_to_a_disk_of_the_network_is_refused(mounted: None, tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to("/mnt/share")
    with pytest.raises(UnsafeStoreError, match="nfs4"):
        SQLiteCoordinator(tmp_path / "here" / "catalog.db")


def test_where_the_system_does_not_tell_the_disk_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_MOUNTS", str(tmp_path / "absent"))
    assert SQLiteCoordinator(tmp_path / "catalog.db").catalog_id


def test_transactions_committed_by_one_are_seen_by_the_other_at_once(catalog: SQLiteCoordinator) -> None:
    other = SQLiteCoordinator(catalog.path)
    catalog.register(table(1), 0)
    for version in range(1, 30):
        before = transaction(f"t{version}")
        assert other.insert(before)
        after = committed(before, {"id-1": version}, 2000)
        assert catalog.ratify(Proposal({"id-1": (commit(version),)}, {}, before, after)) is RATIFIED
        assert other.transaction(before.id) == after


@pytest.mark.parametrize("version", [1, 2])
def test_a_catalog_of_an_earlier_schema_is_upgraded(tmp_path: Path, version: int) -> None:
    path = tmp_path / "catalog.db"
    marks = sqlite_file._MARKS if version == 2 else ()
    change(
        path, "PRAGMA journal_mode = WAL", *sqlite_file._SCHEMA, *marks,
        "INSERT INTO catalog VALUES ('the id')",
        "INSERT INTO tables VALUES ('id-1', 'sales.t0001', 'file:///data/t1', 5, 7)",
        f"INSERT INTO commits VALUES ('id-1', 7, '{7:020d}.x.json', 70, 700, 'txn')",
        f"PRAGMA application_id = {sqlite_file._APPLICATION_ID}", f"PRAGMA user_version = {version}",
    )  # fmt: skip
    for _ in range(2):
        catalog = SQLiteCoordinator(path)
        assert catalog.catalog_id == "the id"
        head = catalog.head("id-1")
        assert head == Head(7, (RatifiedCommit(7, f"{7:020d}.x.json", 70, 700, "txn"),))
        assert (head.metadata_version, head.metadata_ms) == (7, None)
        assert catalog.documents("schema") == []
        assert catalog.keeps_staged_commits is False
        assert catalog.mark("id-1", 1, Marking("t", 1, ("a",)))
        assert catalog.drop("id-1", 7) is False
        catalog.remark("id-1", 1, None)
        change(path, "DELETE FROM marks")
        catalog.close()


def test_a_process_learns_that_staged_commits_are_kept(catalog: SQLiteCoordinator) -> None:
    earlier = SQLiteCoordinator(catalog.path)
    catalog.register(table(1), 0)
    earlier.published("id-1", 0)
    assert earlier.keeps_staged_commits is False
    catalog.keep_staged_commits()
    earlier.published("id-1", 0)
    assert earlier.keeps_staged_commits is True
