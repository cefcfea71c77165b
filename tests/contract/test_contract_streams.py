"""StreamWrite of the write contract: writes bytes once, to their final path, invisible before the commit."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from deltalog import CallError, CommitStateUnknownError, Dataset, DeltaTable, StoreError
from deltalog.errors import (
    BlobTableRequiredError,
    MetadataChangedError,
    PathExistsError,
    UnsafePathError,
    VersionConflictError,
)
from deltalog.protocol.paths import commit_path
from deltalog.results import StreamWriter
from deltalog.storage import LogStore
from deltalog.storage.fs import LocalStore
from deltalog.storage.remote import spooled
from deltalog.testing.stores import Call, CountingStore, Fault, FaultyStore, SimulatedKill, nth
from tests.support.core import SCHEMA, environment, info, memory, objects, overtaken, rows, tree

PIECES = [b"one", b"", b"two" * 1000, b"\x00\xff"]
WHOLE = b"".join(PIECES)
SHA256 = hashlib.sha256(WHOLE).hexdigest()


def streamed(table: DeltaTable | Dataset, **options: Any) -> StreamWriter:
    """A StreamWriter to which all PIECES have been written."""
    writer = Dataset(table).stream_write({"kind": "test"}, **options)
    for piece in PIECES:
        writer.write(piece)
    return writer


def left(store: LogStore) -> list[str]:
    """The blobs and data files to which no version refers."""
    version = DeltaTable.open(store).version
    named = {file.path for each in Dataset(DeltaTable.open(store)).snapshots() for file in each.files}
    assert store.head(commit_path(version + 1)) is None
    found = [f"_blobs/{meta.name}" for meta in store.list_from("_blobs")]
    found += [meta.name for meta in store.list_from("") if meta.name.startswith("part-")]
    return sorted(set(found) - named)


def test_commit_makes_one_version_of_one_row(any_store: LogStore) -> None:
    blobs = DeltaTable.create_for_blobs(any_store)
    with streamed(blobs) as writer:
        snapshot = writer.commit()
    summary = snapshot.commit_summary
    assert (snapshot.version, summary.parent, summary.row_count) == (1, 0, 1)
    assert summary.metadata == {"kind": "test"} and summary.blob is not None
    assert (summary.blob.path, summary.blob.size_bytes, summary.blob.sha256) == (writer.path, len(WHOLE), None)
    assert snapshot.scan().to_arrow().to_pylist() == [{"path": writer.path, "size": len(WHOLE), "sha256": None}]
    assert any_store.get(writer.path) == WHOLE == Dataset(blobs).open_blob().read()


def test_no_metadata_is_empty_metadata(blobs: DeltaTable, store: LogStore) -> None:
    with Dataset(blobs).stream_write() as writer:
        writer.commit()
    assert info(store, 1)["deltalog"]["metadata"] == {}


def test_nothing_is_visible_before_commit(any_store: LogStore) -> None:
    blobs = DeltaTable.create_for_blobs(any_store)
    with streamed(blobs) as writer:
        others = DeltaTable.open(any_store)
        assert others.version == 0 and others.snapshot().num_files == 0 and len(Dataset(others).snapshots()) == 1
        writer.commit()
        assert others.snapshot().version == 1


def test_the_checksum_is_taken_while_the_bytes_pass(any_store: LogStore) -> None:
    blobs = DeltaTable.create_for_blobs(any_store)
    with streamed(blobs, checksum="sha256") as writer:
        snapshot = writer.commit()
    summary = snapshot.commit_summary
    assert summary.blob is not None and summary.blob.sha256 == SHA256
    assert snapshot.scan().to_arrow()["sha256"].to_pylist() == [SHA256]
    (row_file,) = summary.files
    assert row_file.sha256 == hashlib.sha256(any_store.get(row_file.path)).hexdigest()


class Gone(Exception):
    pass


def leave_by_abort(writer: StreamWriter) -> None:
    writer.abort()


def leave_by_close(writer: StreamWriter) -> None:
    writer.close()
    writer.close()


def leave_the_block(writer: StreamWriter) -> None:
    with writer:
        pass


def leave_by_an_error(writer: StreamWriter) -> None:
    with pytest.raises(Gone), writer:
        raise Gone


@pytest.mark.parametrize("leave", [leave_by_abort, leave_by_close, leave_the_block, leave_by_an_error])
def test_a_stream_that_is_not_committed_leaves_nothing(
    any_store: LogStore, leave: Callable[[StreamWriter], None]
) -> None:
    DeltaTable.create_for_blobs(any_store)
    writer = streamed(DeltaTable.open(any_store))
    leave(writer)
    assert left(any_store) == [] and DeltaTable.open(any_store).version == 0
    assert writer.cleanup_errors == ()
    writer.abort()  # a repeated call is no error
    for call in (writer.commit, lambda: writer.write(b"more")):
        with pytest.raises(CallError, match="aborted"):
            call()


def test_a_stream_that_is_forgotten_leaves_nothing(store: LogStore) -> None:
    DeltaTable.create_for_blobs(store)
    writer = streamed(DeltaTable.open(store))
    del writer
    gc.collect()
    assert left(store) == []


def test_a_long_stream_that_is_given_up_leaves_no_part(ministack: Any) -> None:
    store = ministack.store()
    writer = Dataset(DeltaTable.create_for_blobs(store)).stream_write()
    for _ in range(40):
        writer.write(b"x" * (1 << 20))  # more than one part, so a multipart upload is under way
    writer.abort()
    assert left(store) == []
    assert not store._call("list", "", "list_multipart_uploads", with_key=False).get("Uploads")


def test_after_commit_close_does_nothing_and_abort_is_refused(blobs: DeltaTable, store: LogStore) -> None:
    writer = streamed(blobs)
    writer.commit()
    writer.close()
    for call in (writer.commit, writer.abort, lambda: writer.write(b"more")):
        with pytest.raises(CallError, match="committed"):
            call()
    assert Dataset(blobs).open_blob().read() == WHOLE


def test_a_table_of_rows_takes_no_bytes(table: DeltaTable, store: LogStore) -> None:
    for call in (Dataset(table).stream_write, lambda: Dataset(table).write(b"bytes")):
        with pytest.raises(BlobTableRequiredError, match="create_for_blobs"):
            call()
    assert left(store) == [] and table.snapshot().version == 0


def test_bytes_go_once_to_a_new_path_and_nothing_is_replaced(tmp_path: Path) -> None:
    blobs = DeltaTable.create_for_blobs(LocalStore(tmp_path))
    store = CountingStore(LocalStore(tmp_path))
    blobs = DeltaTable.open(store)
    with store.counted() as calls:
        first = streamed(blobs)
        assert (tmp_path / first.path).exists()  # the file already has its final path before the commit
        first.commit()
    outputs = [path for method, path in calls if method == "open_output"]
    assert len(outputs) == 2 and outputs.count(first.path) == 1
    assert {path.rsplit(".", 1)[-1] for method, path in calls if method == "put"} == {"crc"}
    second = streamed(blobs)
    second.commit()
    assert first.path != second.path and (tmp_path / first.path).read_bytes() == WHOLE


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_path_that_exists_is_an_error_and_what_is_there_stays(kind: str, tmp_path: Path) -> None:
    store: LogStore = LocalStore(tmp_path) if kind == "local" else memory()
    DeltaTable.create_for_blobs(store)
    blobs = DeltaTable.open(store, environment=environment(new_uuid=lambda: "same"))
    store.put("_blobs/same", b"before")
    with pytest.raises(PathExistsError) as caught, streamed(blobs) as writer:
        writer.commit()
    assert isinstance(caught.value, FileExistsError)
    assert store.get("_blobs/same") == b"before" and DeltaTable.open(store).version == 0


@pytest.mark.parametrize("piece", ["text", None, 3, [1]])
def test_a_piece_that_is_no_bytes_is_refused_and_the_stream_goes_on(blobs: DeltaTable, piece: Any) -> None:
    with Dataset(blobs).stream_write() as writer:
        with pytest.raises(CallError, match="bytes"):
            writer.write(piece)
        writer.write(b"bytes")
        writer.commit()
    assert Dataset(blobs).open_blob().read() == b"bytes"


def test_whoever_writes_to_files_can_write_to_it(blobs: DeltaTable) -> None:
    with Dataset(blobs).stream_write() as writer:
        shutil.copyfileobj(io.BytesIO(WHOLE), writer)
        writer.commit()
    assert Dataset(blobs).open_blob().read() == WHOLE


# ------------------------------------------------------------------------------------------------------- failures


class FullFile(io.RawIOBase):
    """Accepts three bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        if self._file.tell() + len(data) > 3:
            raise StoreError("no space left", path="")
        return self._file.write(data)


class FullDisk(LocalStore):
    """A store that fails after three bytes of each blob; with ``keeps`` it also cannot delete the incomplete blob."""

    keeps = False

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        with super().open_output(path) as file:
            yield FullFile(file) if path.startswith("_blobs/") else file

    def delete(self, path: str) -> None:
        if self.keeps:
            raise StoreError(f"cannot delete {path}", path=path)
        super().delete(path)


def test_a_store_that_fails_in_the_middle_ends_the_stream(tmp_path: Path) -> None:
    store = FullDisk(tmp_path)
    DeltaTable.create_for_blobs(store)
    blobs = DeltaTable.open(store)
    with pytest.raises(StoreError, match="no space left"), Dataset(blobs).stream_write() as writer:
        writer.write(b"one")
        writer.write(b"two")
    with pytest.raises(CallError, match="aborted"):
        writer.commit()
    assert left(store) == []


def test_what_goes_wrong_in_cleaning_up_is_kept_and_hides_nothing(tmp_path: Path) -> None:
    store = FullDisk(tmp_path)
    DeltaTable.create_for_blobs(store)
    store.keeps = True
    with (
        pytest.raises(StoreError, match="no space left") as caught,
        Dataset(DeltaTable.open(store)).stream_write() as writer,
    ):
        writer.write(b"three")
    (failure,) = caught.value.cleanup_errors  # type: ignore[attr-defined]
    assert "cannot delete" in str(failure) and writer.cleanup_errors == (failure,)
    if hasattr(caught.value, "__notes__"):
        assert "cannot delete" in caught.value.__notes__[0]


def test_a_commit_that_fails_for_sure_leaves_nothing(store: LogStore) -> None:
    DeltaTable.create_for_blobs(store)
    faulty = FaultyStore(store, nth(1, Fault.FAIL_BEFORE, method="put_if_absent"))
    with pytest.raises(StoreError), streamed(DeltaTable.open(faulty)) as writer:
        writer.commit()
    assert left(store) == []


def test_a_lost_race_leaves_nothing(store: LogStore) -> None:
    DeltaTable.create_for_blobs(store)
    mine = overtaken(store, lambda: Dataset(DeltaTable.open(store)).write(b"first"))
    with pytest.raises(VersionConflictError), streamed(DeltaTable.open(mine)) as writer:
        writer.commit()
    assert Dataset(DeltaTable.open(store)).open_blob().read() == b"first"
    assert len(left(store)) == 1  # the winner's blob


def test_an_open_outcome_deletes_nothing(store: LogStore) -> None:
    DeltaTable.create_for_blobs(store)
    faulty = FaultyStore(store, lambda call: Fault.UNKNOWN_NOT_WRITTEN if call.method == "put_if_absent" else None)
    table = DeltaTable.open(faulty, environment=environment())
    with pytest.raises(CommitStateUnknownError), streamed(table) as writer:
        writer.commit()
    assert store.get(writer.path) == WHOLE
    with pytest.raises(CommitStateUnknownError):
        writer.abort()
    assert store.get(writer.path) == WHOLE


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER])
def test_the_commit_file_is_the_commit_whenever_the_process_dies(fault: Fault) -> None:
    store = memory()
    DeltaTable.create_for_blobs(store)
    faulty = FaultyStore(store, nth(1, fault, method="put_if_absent"))
    with pytest.raises(SimulatedKill), streamed(DeltaTable.open(faulty)) as writer:
        writer.commit()
    landed = fault is Fault.KILL_AFTER
    reader = DeltaTable.open(store)
    assert reader.version == int(landed)
    assert objects(store)[writer.path] == WHOLE  # no file that a version may name is ever deleted
    if landed:
        assert Dataset(reader).open_blob().read() == WHOLE


def test_an_acknowledgement_that_is_lost_is_one_version(store: LogStore) -> None:
    DeltaTable.create_for_blobs(store)
    faulty = FaultyStore(store, nth(1, Fault.LOST_ACK, method="put_if_absent"))
    with streamed(DeltaTable.open(faulty, environment=environment())) as writer:
        assert writer.commit().version == 1
    assert [summary.row_count for summary in Dataset(DeltaTable.open(store)).snapshots()] == [0, 1]


# -------------------------------------------------------------------------------------------------- reading blobs


def test_a_blob_is_read_by_version_or_by_the_path_in_its_row(blobs: DeltaTable) -> None:
    for data in (b"first", b"second"):
        Dataset(blobs).write(data)
    assert [Dataset(blobs).open_blob(version=version).read() for version in (1, 2)] == [b"first", b"second"]
    paths = blobs.snapshot().scan(where="size = 6").to_arrow()["path"].to_pylist()
    with Dataset(blobs).open_blob(paths[0]) as file:
        file.seek(3)
        assert file.read(2) == b"on"


def test_a_path_out_of_the_table_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    blobs = DeltaTable.create_for_blobs(tmp_path / "table")
    for path in ("../secret", str(tmp_path / "secret"), "_blobs/../../secret"):
        with pytest.raises(UnsafePathError):
            Dataset(blobs).open_blob(path)


def test_a_version_without_a_blob_says_so(blobs: DeltaTable) -> None:
    with pytest.raises(CallError, match="version 0 added no blob"):
        Dataset(blobs).open_blob(version=0)


def test_a_table_that_holds_no_blobs_any_more_takes_none(store: LogStore) -> None:
    blobs = DeltaTable.create_for_blobs(store)
    writer = streamed(blobs)
    DeltaTable.open(store).unset_properties(["deltalog.blobs"])
    with pytest.raises(BlobTableRequiredError):
        writer.commit()
    assert left(store) == []


def test_other_readers_see_the_rows_and_their_vacuum_leaves_the_bytes(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    blobs = DeltaTable.create_for_blobs(tmp_path)
    with streamed(blobs, checksum="sha256") as writer:
        writer.commit()
    other = deltalake.DeltaTable(str(tmp_path))
    (row,) = other.to_pyarrow_table().to_pylist()
    assert (tmp_path / row["path"]).read_bytes() == WHOLE and row["sha256"] == SHA256
    (tmp_path / "stray.parquet").write_bytes(b"stray")
    vacuumed = other.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert "stray.parquet" in vacuumed and "_blobs" not in " ".join(vacuumed)
    assert Dataset(blobs).open_blob(version=1).read() == WHOLE


def test_a_stream_whose_table_changed_meanwhile_still_fits_or_says_why(table: DeltaTable, store: LogStore) -> None:
    staged = table.stage(rows(1))
    DeltaTable.open(store, environment=environment()).add_constraint("positive", "id > 5")
    with pytest.raises(MetadataChangedError, match="Stage the rows again"):
        table.commit_staged([staged])
    assert table.discard_staged([staged]) == [] and left(store) == []


@contextlib.contextmanager
def full_disk(limit_bytes: int) -> Iterator[None]:
    """During the block, let no file grow beyond ``limit_bytes``."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.skipif(sys.platform == "win32", reason="RLIMIT_FSIZE is POSIX")
@pytest.mark.parametrize("checksum", [None, "sha256"])
# Data of the first size stays in the buffer, so the error occurs at close; data of the second size does not fit in it.
@pytest.mark.parametrize("size", [700_000, 3_000_000])
def test_a_full_disk_is_a_store_error_and_leaves_nothing(
    size: int, checksum: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = DeltaTable.create_for_blobs(tmp_path / "t", environment=environment())
    before = tree(tmp_path / "t")

    def pieces() -> None:
        with Dataset(table).stream_write(checksum=checksum) as writer:
            for _ in range(0, size, 1000):
                writer.write(b"x" * 1000)
            writer.commit()

    for write in (pieces, lambda: Dataset(table).write(b"x" * size, checksum=checksum)):
        with full_disk(500_000), pytest.raises(StoreError, match=r"Cannot write .*_blobs/.*File too large") as raised:
            write()
        assert isinstance(raised.value.__cause__, OSError)
        assert not getattr(raised.value, "cleanup_errors", ())
        assert [path for path in tree(tmp_path / "t") if path not in before] in ([], ["_blobs/"])
    assert "may still exist" not in caplog.text
    assert Dataset(table).write(b"x").version == 1


@pytest.mark.skipif(sys.platform == "win32", reason="RLIMIT_FSIZE is POSIX")
def test_a_blob_given_up_on_a_full_disk_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = DeltaTable.create_for_blobs(tmp_path / "t", environment=environment())
    with full_disk(1000):
        writer = Dataset(table).stream_write()
        writer.write(b"x" * 3000)  # buffered
        writer.abort()
    assert writer.cleanup_errors == () and "may still exist" not in caplog.text
    assert not any(path.startswith("_blobs/") and path != "_blobs/" for path in tree(tmp_path / "t"))


def test_an_error_of_the_callers_own_source_is_his_and_no_failed_clean_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = DeltaTable.create_for_blobs(tmp_path / "t", environment=environment())
    with pytest.raises(ConnectionResetError, match="the source") as raised, Dataset(table).stream_write() as writer:
        writer.write(b"x")
        raise ConnectionResetError("the source is gone")
    assert not getattr(raised.value, "cleanup_errors", ()) and "may still exist" not in caplog.text
    assert not any(path.startswith("_blobs/") and path != "_blobs/" for path in tree(tmp_path / "t"))


@pytest.mark.skipif(sys.platform == "win32", reason="RLIMIT_FSIZE is POSIX")
def test_a_full_disk_where_bytes_wait_for_their_upload_is_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sent: list[str] = []
    with full_disk(1000), pytest.raises(StoreError, match="File too large"), \
            spooled(sent.append, lambda: None) as file:  # fmt: skip
        file.write(b"x" * 30_000)
        file.flush()
    assert sent == [] and list(tmp_path.iterdir()) == []


def test_resolving_tells_the_attempts() -> None:
    inner = memory()
    table = DeltaTable.create(inner, SCHEMA, environment=environment())
    rivals = [lambda: table.append(rows(1)), lambda: table.append(rows(2))]
    silent = True

    def decide(call: Call) -> Fault | None:
        if not (silent and call.path == commit_path(3)):
            return None
        return {"put_if_absent": Fault.LOST_ACK, "get": Fault.FAIL_BEFORE}.get(call.method)

    mine = DeltaTable.open(FaultyStore(overtaken(inner, *rivals), decide), environment=environment())
    with pytest.raises(CommitStateUnknownError) as raised:
        mine.append(rows(3))
    silent = False
    found = raised.value.resolve()
    assert found is not None and (found.version, found.attempts) == (3, 3)
