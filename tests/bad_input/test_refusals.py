"""Bad input is refused with a specific error, and leaves nothing half-written or extra behind.

Each error is a DeltaLogError, names the table, version or file, and explains what to do.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import (
    CommitConflictError,
    DeltaLogError,
    DeltaTable,
    InvalidTimestampError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    TimestampOutOfRangeError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from deltalog.errors import InvalidCommitError, InvalidEnablementError, InvalidPropertyError, MissingVersionError
from deltalog.storage.fs import LocalStore
from deltalog.testing.stores import Fault, FaultyStore, nth
from tests.support.core import (
    ICT,
    NOW,
    SCHEMA,
    TIMESTAMP_KEY,
    VERSION_KEY,
    Clock,
    environment,
    ids,
    info_action,
    lines,
    metadata_action,
    overtaken,
    protocol_action,
    put_commit,
    rows,
    tree,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table with in-commit timestamps: versions v from 0 to 3, each with the timestamp NOW + 1000 v."""
    clock = Clock()
    table = DeltaTable.create(tmp_path / "t", SCHEMA, properties=ICT, environment=environment(clock))
    for i in range(1, 4):
        clock.now_ms += 1000
        table.append(rows(i))
    return tmp_path / "t"


@contextlib.contextmanager
def unchanged(*roots: Path) -> Iterator[None]:
    """Check that no file below these directories is added, removed or changed."""

    def look() -> list[tuple[list[str], dict[str, bytes]]]:
        return [
            (tree(each), {name: (each / name).read_bytes() for name in tree(each) if not name.endswith("/")})
            for each in roots
        ]

    before = look()
    yield
    after = look()
    for (names, contents), (names_after, contents_after) in zip(before, after, strict=True):
        assert names_after == names
        assert contents_after == contents


@contextlib.contextmanager
def refused(kind: type[DeltaLogError], *parts: str) -> Iterator[None]:
    """Check that the block raises an error of exactly this class, with each of these strings in its message."""
    with pytest.raises(DeltaLogError) as caught:
        yield
    assert type(caught.value) is kind, repr(caught.value)
    for part in parts:
        assert part in str(caught.value)


def commit_file(root: Path, version: int) -> Path:
    return root / "_delta_log" / f"{version:020d}.json"


def forget_checksums(root: Path) -> None:
    for path in (root / "_delta_log").glob("*.crc"):
        path.unlink()


# ---------------------------------------------------------------------------------------------- commit files


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda data: data[: len(data) - 7], "is torn: its last line ends early"),
    "truncated in the first line": (lambda data: data[:20], "is torn"),
    "empty": (lambda data: b"", "is empty"),
    "blank": (lambda data: b"\n\n", "is empty"),
    "not JSON": (lambda data: b"hello\n" + data, "cannot be read: line 1"),
    "not JSON inside": (lambda data: data + b"<xml/>\n", "cannot be read: line 3"),
    "zeros": (lambda data: b"\0" * len(data), "cannot be read: line 1"),
    "two metaData": (lambda data: data + (json.dumps(metadata_action()) + "\n").encode() * 2, "2 metaData actions"),
    "two protocol": (lambda data: data + (json.dumps(protocol_action()) + "\n").encode() * 2, "2 protocol actions"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("version", [1, 3])
def test_a_damaged_commit_file(damage: str, version: int, root: Path) -> None:
    change, says = DAMAGES[damage]
    forget_checksums(root)
    file = commit_file(root, version)
    file.write_bytes(change(file.read_bytes()))
    with unchanged(root), refused(InvalidCommitError, file.name, says, "estore"):
        DeltaTable.open(root)
    assert DeltaTable.exists(root.parent / "other") is False


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_commit_file_that_is_damaged_under_an_open_table(damage: str, root: Path) -> None:
    """The checksum file of the version still provides protocol and metadata, but reading or writing rows is refused."""
    change, says = DAMAGES[damage]
    file = commit_file(root, 2)
    file.write_bytes(change(file.read_bytes()))
    table = DeltaTable.open(root, environment=environment())
    with unchanged(root), refused(InvalidCommitError, file.name, says):
        table.snapshot().files()
    with unchanged(root), refused(InvalidCommitError, file.name, says):
        table.overwrite(rows(9))


def test_a_commit_file_that_is_missing(root: Path) -> None:
    forget_checksums(root)
    commit_file(root, 2).unlink()
    with unchanged(root), refused(MissingVersionError, str(root), commit_file(root, 2).name, "Restore"):
        DeltaTable.open(root)


# ------------------------------------------------------------------------------------------------ timestamps


def test_a_naive_datetime(root: Path) -> None:
    table = DeltaTable.open(root)
    naive = datetime.datetime(2026, 11, 20, 10)
    for call in (table.version_at, table.explain_timestamp, lambda t: table.snapshot(timestamp=t)):
        with refused(InvalidTimestampError, "2026-11-20 10:00:00", "time zone", "timezone.utc", "astimezone"):
            call(naive)


@pytest.mark.parametrize("text", ["2026-11-20T10:00:00", "yesterday", "", "1790000000000"])
def test_text_that_names_no_instant(text: str, root: Path) -> None:
    with refused(InvalidTimestampError, "+0" if text.startswith("2026") else "2026-11-20T10:00:00.000Z"):
        DeltaTable.open(root).version_at(text)


@pytest.mark.parametrize(("timestamp", "side"), [(NOW - 1, "before"), (NOW + 3001, "after")])
def test_a_time_outside_the_history(timestamp: int, side: str, root: Path) -> None:
    table = DeltaTable.open(root)
    with refused(
        TimestampOutOfRangeError,
        str(root),
        side,
        f"{timestamp} ms (2026-09-21T14:13:",
        f"from {NOW} ms (2026-09-21T14:13:20.000Z), version 0",
        f"to {NOW + 3000} ms (2026-09-21T14:13:23.000Z), version 3",
        'before="earliest"' if side == "before" else 'after="latest"',
    ):
        table.version_at(timestamp)
    with pytest.raises(TimestampOutOfRangeError) as caught:
        table.snapshot(timestamp=timestamp)
    error = caught.value
    assert (error.requested_ms, error.earliest_ms, error.latest_ms) == (timestamp, NOW, NOW + 3000)
    assert table.version_at(error.earliest_ms).version == 0 and table.version_at(error.latest_ms).version == 3


def test_a_version_outside_the_history(root: Path) -> None:
    with refused(VersionNotFoundError, str(root), "no version 4", "Versions 0 to 3"):
        DeltaTable.open(root).snapshot(4)


# ------------------------------------------------------------------------------------- the enablement pair


@pytest.mark.parametrize(("present", "absent"), [(VERSION_KEY, TIMESTAMP_KEY), (TIMESTAMP_KEY, VERSION_KEY)])
def test_half_an_enablement_pair_in_the_log(present: str, absent: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    put_commit(store, 0, info_action(NOW), protocol_action("inCommitTimestamp"), metadata_action({**ICT, present: "0"}))
    table = DeltaTable.open(tmp_path)
    for call in (table.version_at, table.explain_timestamp, lambda t: table.history()):
        with unchanged(tmp_path), refused(InvalidEnablementError, present, absent, "Repair", "disable_in_commit_"):
            call(NOW)


@pytest.mark.parametrize(
    "properties",
    [
        {VERSION_KEY: "1"},
        {TIMESTAMP_KEY: "1"},
        {VERSION_KEY: "1", TIMESTAMP_KEY: "1"},
        {"delta.enableInCommitTimestamps": "true", VERSION_KEY: "1"},
    ],
)
def test_any_of_the_pair_by_hand(properties: dict[str, str], root: Path, tmp_path: Path) -> None:
    table = DeltaTable.open(root)
    with unchanged(root), refused(InvalidPropertyError, "enablement".title(), "enable_in_commit_timestamps()"):
        table.set_properties(properties)
    with unchanged(root), refused(InvalidPropertyError, "enable_in_commit_timestamps()"):
        table.unset_properties(list(properties))
    with unchanged(tmp_path), refused(InvalidPropertyError, "enable_in_commit_timestamps()"):
        DeltaTable.create(tmp_path / "new", SCHEMA, properties=properties)


# --------------------------------------------------------------------------------------------------- features


def test_an_unknown_writer_feature(root: Path) -> None:
    put_commit(
        LocalStore(root), 4, info_action(NOW + 4000), protocol_action("appendOnly", "inCommitTimestamp", "fooBar")
    )
    table = DeltaTable.open(root, environment=environment())
    assert ids(table) == [1, 2, 3]
    writes: list[Callable[[], object]] = [
        lambda: table.append(rows(4)),
        lambda: table.overwrite(rows(4)),
        lambda: table.set_properties({"a": "b"}),
        lambda: table.unset_properties(["a"]),
        lambda: table.disable_in_commit_timestamps(),
    ]
    for write in writes:
        with unchanged(root), refused(UnsupportedFeatureError, str(root), "writer features", "fooBar", "client"):
            write()


def test_an_unknown_reader_feature(root: Path) -> None:
    changed = protocol_action("inCommitTimestamp", "fooBar", reader=3, reader_features=["fooBar"])
    put_commit(LocalStore(root), 4, info_action(NOW + 4000), changed)
    with unchanged(root), refused(UnsupportedFeatureError, str(root), "reader features", "fooBar", "client"):
        DeltaTable.open(root)


@pytest.mark.parametrize(("reader", "writer", "says"), [(4, 7, "reader version 4"), (1, 8, "writer version 8")])
def test_an_unknown_protocol_version(reader: int, writer: int, says: str, root: Path) -> None:
    body = {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}}
    put_commit(LocalStore(root), 4, info_action(NOW + 4000), body)
    with unchanged(root), refused(UnsupportedFeatureError, str(root), says, "newer client"):
        DeltaTable.open(root).append(rows(4))


def test_a_feature_that_comes_while_we_write(root: Path) -> None:
    store = LocalStore(root)
    changed = protocol_action("appendOnly", "inCommitTimestamp", "fooBar")
    mine = overtaken(store, lambda: put_commit(store, 4, info_action(NOW + 4000), changed))
    before = set(tree(root))
    with pytest.raises((UnsupportedFeatureError, CommitConflictError), match="fooBar"):
        DeltaTable.open(mine, environment=environment()).append(rows(4))
    assert set(tree(root)) - before == {f"_delta_log/{4:020d}.json"}


# --------------------------------------------------------------------------------------------- invalid schemas


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (pa.table({"id": ["x"], "name": ["y"]}), ("id", "long", "string", "Cast")),
        (pa.table({"id": [1], "other": [1]}), ("other", "id, name", "merge_schema=True")),
        (pa.table({"id": pa.array([1], pa.uint64())}), ("id", "uint64", "Cast")),
        (pa.table({"id": [1], "name": [[1]]}), ("name", "string", "array<long>")),
    ],
    ids=["type", "column", "unsigned", "nested"],
)
def test_data_of_another_schema(data: pa.Table, parts: tuple[str, ...], root: Path) -> None:
    table = DeltaTable.open(root, environment=environment())
    for write in (table.append, table.overwrite):
        with unchanged(root), refused(SchemaMismatchError, *parts):
            write(data)


def test_a_table_that_is_there_and_one_that_is_not(root: Path, tmp_path: Path) -> None:
    with unchanged(tmp_path), refused(TableExistsError, str(root), "DeltaTable.open"):
        DeltaTable.create(root, SCHEMA)
    with unchanged(tmp_path), refused(TableNotFoundError, str(tmp_path / "nope"), "DeltaTable.create"):
        DeltaTable.open(tmp_path / "nope")


# ---------------------------------------------------------------------------------- refused commits leave no files


def test_a_refused_overwrite_of_partitions_leaves_no_directory(tmp_path: Path) -> None:
    table = DeltaTable.create(
        tmp_path / "t",
        SCHEMA,
        partition_by=["name"],
        properties={"delta.appendOnly": "true"},
        environment=environment(),
    )
    table.append(rows(1, 2))
    with unchanged(tmp_path), pytest.raises(DeltaLogError, match="append-only"):
        table.overwrite(rows(3, 4))


@pytest.mark.parametrize("target", ["*.json", "*.parquet"])
def test_a_store_that_fails_for_certain(target: str, root: Path) -> None:
    method = "put_if_absent" if target == "*.json" else "open_output"
    store = FaultyStore(LocalStore(root), nth(1, Fault.FAIL_BEFORE, method=method, path=target))
    table = DeltaTable.open(store, environment=environment())
    with unchanged(root), refused(StoreError, "Injected"):
        table.append(rows(4))
    assert sum(store.injected.values()) == 1
    assert table.append(rows(4)).version == 4


def test_creating_where_the_store_fails(tmp_path: Path) -> None:
    store = FaultyStore(LocalStore(tmp_path / "t"), nth(1, Fault.FAIL_BEFORE, method="put_if_absent"))
    with refused(StoreError):
        DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))
    assert [name for name in tree(tmp_path) if not name.endswith("/")] == []
    assert DeltaTable.create(tmp_path / "t", SCHEMA, data=rows(2)).version == 0


FULL = """
    import resource, signal, sys
    import pyarrow as pa
    from deltalog import DeltaTable, StoreError

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    table = DeltaTable.open(sys.argv[1])
    table.snapshot().files()
    rows = pa.table({"id": list(range(50_000)), "name": [f"n{i}" for i in range(50_000)]})
    verb = sys.argv[2]
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
    try:
        if verb == "append":
            table.append(rows)
        elif verb == "properties":
            table.set_properties({"note": "x" * 10_000})
        else:
            table.append(rows.slice(0, 1), user_metadata="x" * 100_000)
    except StoreError as error:
        print(type(error).__name__, error)
        sys.exit(7)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="RLIMIT_FSIZE is POSIX")
@pytest.mark.parametrize(("verb", "limit"), [("append", 20_000), ("properties", 5_000), ("metadata", 50_000)])
def test_a_full_disk(verb: str, limit: int, root: Path) -> None:
    """The data file or the commit file would exceed the limit on file sizes."""
    with unchanged(root):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(FULL), str(root), verb, str(limit)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 7, done.stdout + done.stderr
    assert "StoreError Cannot write" in done.stdout and str(root) in done.stdout and "free space" in done.stdout
    assert ids(DeltaTable.open(root)) == [1, 2, 3]


@contextlib.contextmanager
def not_root() -> Iterator[None]:
    """Run the block as the user nobody, because file permissions do not restrict root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="POSIX permissions")
@pytest.mark.parametrize("locked", ["_delta_log", "."])
def test_permission_denied(locked: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        table = DeltaTable.create(place / "t", SCHEMA, environment=environment(), data=rows(1))
        mode = 0o555
        for path in [place / "t", *(place / "t").rglob("*")]:
            path.chmod(mode if path.is_dir() else 0o444)
        if locked == "_delta_log":
            (place / "t").chmod(0o777)
        try:
            with (
                unchanged(place),
                not_root(),
                refused(StoreError, "Permission denied", str(place / "t"), "permissions"),
            ):
                table.append(rows(2))
            with not_root():
                assert ids(DeltaTable.open(place / "t")) == [1]
            with unchanged(place), not_root(), refused(StoreError, "Permission denied"):
                DeltaTable.create(place / "t" / "_delta_log" / "new", SCHEMA)
        finally:
            for path in [place / "t", place / "t" / "_delta_log"]:
                path.chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="POSIX permissions")
def test_a_log_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        DeltaTable.create(place / "t", SCHEMA, environment=environment(), data=rows(1))
        commit_file(place / "t", 0).chmod(0)
        forget_checksums(place / "t")
        (place / "t").chmod(0o755)
        (place / "t" / "_delta_log").chmod(0o755)
        with not_root(), refused(StoreError, "Permission denied", commit_file(place / "t", 0).name):
            DeltaTable.open(place / "t")


def test_a_conflict_leaves_only_the_winner(root: Path) -> None:
    store = LocalStore(root)
    mine = overtaken(store, lambda: DeltaTable.open(store, environment=environment()).append(rows(7)))
    before = set(tree(root))
    with pytest.raises(CommitConflictError, match=str(root)):
        DeltaTable.open(mine, environment=environment()).overwrite(rows(8))
    new = sorted(set(tree(root)) - before)
    assert len([name for name in new if name.endswith(".parquet")]) == 1
    assert ids(DeltaTable.open(root)) == [1, 2, 3, 7]
    assert [line["add"]["path"] for line in lines(store, 4) if "add" in line] == [n for n in new if "parquet" in n]


def test_no_temporary_file_is_left_by_anything(root: Path) -> None:
    table = DeltaTable.open(root, environment=environment())
    table.checkpoint()
    table.overwrite(rows(9))
    names = tree(root)
    assert not [name for name in names if name.endswith(".tmp") or "/." in name or name.startswith(".")]


def test_every_error_is_one_of_ours(root: Path, tmp_path: Path) -> None:
    """Calls with wrong arguments of every kind."""
    table = DeltaTable.open(root, environment=environment())
    calls: dict[str, Callable[[], Any]] = {
        "limit": lambda: table.history(0),
        "columns": lambda: table.snapshot().scan(["nope"]),
        "scheme": lambda: DeltaTable.open("gopher://x/y"),
        "empty": lambda: DeltaTable.open(""),
        "timestamp": lambda: table.version_at(None),  # type: ignore[arg-type]
        "clamp": lambda: table.version_at(NOW, before="x"),
        "data": lambda: table.append([1]),
        "property": lambda: table.set_properties({"delta.appendOnly": True}),  # type: ignore[dict-item]
        "user metadata": lambda: table.append(rows(1), user_metadata={"a": object()}),
        "version text": lambda: table.snapshot("3"),  # type: ignore[arg-type]
        "version fraction": lambda: table.snapshot(1.5),  # type: ignore[arg-type]
        "txn": lambda: table.append(rows(1), txn=("app", "5")),  # type: ignore[arg-type]
        "surrogate": lambda: table.append(rows(1), user_metadata="\ud800"),
    }
    wrong: dict[str, str] = {}
    for name, call in calls.items():
        before = tree(root)
        try:
            call()
            wrong[name] = "not refused"
        except DeltaLogError:
            pass
        except Exception as error:
            wrong[name] = repr(error)
        if tree(root) != before:
            wrong[name] = f"{wrong.get(name, '')} left {set(tree(root)) - set(before)}"
    assert wrong == {}
