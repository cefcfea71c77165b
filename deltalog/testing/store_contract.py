"""Tests for the guarantees of a LogStore. Needs pytest.

Subclass ``LogStoreTests`` in a test module and provide a store; pytest collects the tests:

    class TestMyStore(LogStoreTests):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

``store`` must return an empty store. If another process could open the same objects, also override ``another`` to
return a second handle for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog.errors import CallError, DeltaLogError, ObjectNotFoundError, StoreError
from deltalog.storage.base import Entry, EntryKind, FileMeta, LogStore, PutOutcome, WalkPart

LOG = "_delta_log"
FIRST = "_delta_log/00000000000000000000.json"


class LogStoreTests:
    """Tests for the guarantees that deltalog.storage.base documents. The module docstring shows the usage.

    The class has one test for each guarantee.
    """

    #: The numbers of threads and rounds in tests of races.
    threads = 16
    rounds = 30

    @pytest.fixture
    def store(self) -> LogStore:
        raise NotImplementedError("override the fixture 'store'")

    @pytest.fixture
    def another(self, store: LogStore) -> LogStore:
        """A second handle on the same objects, opened as another process would open it."""
        return store

    # ------------------------------------------------------------------------------------ exclusive creation

    def test_creates_an_object(self, store: LogStore, another: LogStore) -> None:
        assert store.put_if_absent(FIRST, b"one") is PutOutcome.COMMITTED
        assert store.get(FIRST) == another.get(FIRST) == b"one"

    def test_does_not_replace(self, store: LogStore, another: LogStore) -> None:
        store.put_if_absent(FIRST, b"one")
        assert store.put_if_absent(FIRST, b"two") is PutOutcome.EXISTS
        assert another.put_if_absent(FIRST, b"one") is PutOutcome.EXISTS
        assert store.get(FIRST) == b"one"

    def test_sees_what_put_created(self, store: LogStore) -> None:
        store.put("a", b"put")
        assert store.put_if_absent("a", b"other") is PutOutcome.EXISTS
        assert store.get("a") == b"put"

    def test_creates_again_after_delete(self, store: LogStore) -> None:
        store.put_if_absent("a", b"1")
        store.delete("a")
        assert store.put_if_absent("a", b"2") is PutOutcome.COMMITTED
        assert store.get("a") == b"2"

    def test_creates_from_a_stream_all_or_nothing(self, store: LogStore, another: LogStore) -> None:
        seen: list[object] = []

        def write(file: BinaryIO) -> None:
            file.write(b"o")
            file.flush()
            seen.append(another.head("a"))
            file.write(b"ne")

        def fail(file: BinaryIO) -> None:
            write(file)
            raise ValueError("failed")

        with pytest.raises(ValueError, match="failed"):
            store.put_stream_if_absent("a", fail)
        assert another.head("a") is None
        assert store.put_stream_if_absent("a", write) is PutOutcome.COMMITTED
        assert store.put_stream_if_absent("a", lambda file: file.write(b"two")) is PutOutcome.EXISTS
        assert seen == [None, None] and another.get("a") == b"one"

    def test_one_of_many_wins(self, store: LogStore, another: LogStore) -> None:
        for number in range(self.rounds):
            path = f"{LOG}/{number:020d}.json"

            def create(who: int, path: str = path) -> PutOutcome:
                return (store, another)[who % 2].put_if_absent(path, b"%d" % who * 100)

            outcomes = together(create, self.threads)
            winners = [who for who, outcome in enumerate(outcomes) if outcome is PutOutcome.COMMITTED]
            assert len(winners) == 1, outcomes
            assert outcomes.count(PutOutcome.EXISTS) == self.threads - 1, outcomes
            assert store.get(path) == b"%d" % winners[0] * 100

    # ------------------------------------------------------------------------------------------ all or nothing

    @pytest.mark.parametrize("size", [0, 1, 4095, 65536, 5_000_001])
    def test_keeps_every_byte(self, store: LogStore, size: int) -> None:
        data = bytes(range(256)) * (size // 256) + b"\x00\n\r" * 200
        data = data[:size]
        store.put_if_absent("a", data)
        store.put("b", data)
        with store.open_output("c") as file:
            file.write(data)
        assert store.get("a") == store.get("b") == store.get("c") == data

    def test_a_reader_never_sees_a_part(self, store: LogStore, another: LogStore) -> None:
        size, done = 300_000, threading.Event()
        versions = [bytes([65 + n]) * size for n in range(8)]
        store.put("hint", versions[0])
        parts: list[str] = []

        def read() -> None:
            while not done.is_set():
                for path in ["hint", *(f"{LOG}/{n}.json" for n in range(8))]:
                    try:
                        data = another.get(path)
                    except ObjectNotFoundError:
                        continue
                    if len(data) != size or len(set(data)) != 1:
                        parts.append(f"{path}: {len(data)} bytes")

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number, data in enumerate(versions):
                store.put_if_absent(f"{LOG}/{number}.json", data)
                store.put("hint", data)
        finally:
            done.set()
            reader.join()
        assert not parts

    def test_gives_second_names_in_order_or_none(self, store: LogStore, another: LogStore) -> None:
        """Hard links are created in order, up to the first name that already exists; a store without hard links creates
        none. No link replaces an object."""
        for name in ("one", "two", "three"):
            store.put_if_absent(f"s/{name}", name.encode())
        store.put_if_absent("t/two", b"taken")
        assert store.link_if_absent([("s/three", "t/three", 4), ("s/one", "t/one", 3)]) == 0  # another size
        done = store.link_if_absent([("s/one", "t/one", 3), ("s/two", "t/two", 3), ("s/three", "t/three", 5)])
        assert done in (0, 1)
        assert another.get("t/two") == b"taken" and another.head("t/three") is None
        assert another.head("t/one") is None if done == 0 else another.get("t/one") == b"one"
        assert store.link_if_absent([("s/none", "t/none", 0)]) == 0 and store.head("t/none") is None
        store.delete("s/one")
        assert done == 0 or store.get("t/one") == b"one"

    def test_replaces(self, store: LogStore) -> None:
        store.put("a", b"a long first value")
        store.put("a", b"short", durable=False)
        assert store.get("a") == b"short"
        store.put("a", b"the last", durable=True)
        assert store.get("a") == b"the last"

    # ----------------------------------------------------------------------------------------------- reading

    def test_get_of_nothing(self, store: LogStore) -> None:
        with pytest.raises(ObjectNotFoundError) as error:
            store.get(FIRST)
        assert isinstance(error.value, (StoreError, FileNotFoundError, DeltaLogError))
        assert error.value.path.endswith(FIRST)

    @pytest.mark.parametrize("length", [0, 1, 4, 10, 1000])
    def test_get_of_the_first_bytes(self, store: LogStore, length: int) -> None:
        store.put("a", b"0123456789")
        assert store.get("a", length) == b"0123456789"[:length]

    def test_get_many(self, store: LogStore) -> None:
        paths = [f"{LOG}/{n}" for n in range(40)]
        for path in paths:
            store.put(path, path.encode())
        wanted = paths[::-1]
        assert store.get_many(wanted) == [path.encode() for path in wanted]
        assert store.get_many(wanted, 4) == [path.encode()[:4] for path in wanted]
        store.put("empty", b"")
        assert store.get_many(["empty", wanted[0]], 4) == [b"", wanted[0].encode()[:4]]
        assert store.get_many([]) == []
        with pytest.raises(ObjectNotFoundError):
            store.get_many([*paths, f"{LOG}/absent"])

    def test_get_many_with_meta(self, store: LogStore) -> None:
        paths = [f"{LOG}/{n}" for n in range(40)]
        for path in paths:
            store.put(path, path.encode())
        for wanted, length in ((paths[::-1], None), (paths, 4), (paths[:1], 4), ([], None)):
            expected = [(store.get(path, length), store.head(path)) for path in wanted]
            assert store.get_many_with_meta(wanted, length) == expected
        with pytest.raises(ObjectNotFoundError):
            store.get_many_with_meta([*paths, f"{LOG}/absent"])

    def test_head_many(self, store: LogStore) -> None:
        paths = [f"{LOG}/{n}" for n in range(40)]
        for path in paths:
            store.put(path, path.encode())
        wanted = [*paths[::-1], f"{LOG}/absent", "absent/1"]
        assert store.head_many(wanted) == [store.head(path) for path in wanted]
        assert store.head_many(wanted)[-2:] == [None, None]
        assert store.head_many([]) == []

    def test_head(self, store: LogStore) -> None:
        assert store.head(FIRST) is None
        before = time.time() * 1000
        store.put_if_absent(FIRST, b"12345")
        meta = store.head(FIRST)
        assert meta is not None
        assert (meta.name, meta.size_bytes) == ("00000000000000000000.json", 5)
        assert isinstance(meta.modification_time_ms, int)
        assert before - 10_000 <= meta.modification_time_ms <= time.time() * 1000 + 10_000

    def test_a_directory_is_no_object(self, store: LogStore) -> None:
        store.put(f"{LOG}/sub/a", b"")
        assert [meta.name for meta in store.list_from(LOG)] == []
        with pytest.raises(StoreError):
            store.get(f"{LOG}/sub")

    # ----------------------------------------------------------------------------------------------- listing

    def test_list_of_nothing(self, store: LogStore) -> None:
        assert store.list_from(LOG) == []
        assert store.list_from(LOG, "0", stat=False) == []
        assert store.list_from("") == []

    @pytest.mark.parametrize("stat", [True, False])
    def test_list(self, store: LogStore, stat: bool) -> None:
        names = ["a", "B", "_x", "00000000000000000010.json", "00000000000000000009.json", "é", "\uff5e", "\U0001f600"]
        for size, name in enumerate(names):
            store.put(f"{LOG}/{name}", b"x" * size)
        store.put(f"{LOG}/sub/inner", b"")
        store.put(f"{LOG}2", b"")
        store.put("other/a", b"")
        listed = store.list_from(LOG, stat=stat)
        assert [meta.name for meta in listed] == sorted(names)
        if stat:
            assert {meta.name: meta.size_bytes for meta in listed} == {name: i for i, name in enumerate(names)}
            assert listed == [store.head(f"{LOG}/{name}") for name in sorted(names)]

    @pytest.mark.parametrize("stat", [True, False])
    def test_list_begins_at_start(self, store: LogStore, stat: bool) -> None:
        for number in range(12):
            store.put(f"{LOG}/{number:020d}.json", b"")
        listed = store.list_from(LOG, f"{9:020d}.json", stat=stat)
        assert [int(meta.name[:20]) for meta in listed] == [9, 10, 11]
        assert [int(meta.name[:20]) for meta in store.list_from(LOG, f"{9:020d}.k", stat=stat)] == [10, 11]
        assert store.list_from(LOG, "z", stat=stat) == []

    @pytest.mark.parametrize("stat", [True, False])
    def test_list_ends_at_limit(self, store: LogStore, stat: bool) -> None:
        names = [f"{number:020d}.json" for number in range(12)]
        for name in [*reversed(names), "_x"]:
            store.put(f"{LOG}/{name}", b"")
        store.put(f"{LOG}/{4:020d}/inner", b"")
        assert [meta.name for meta in store.list_from(LOG, names[3], stat=stat, limit=4)] == names[3:7]
        assert [meta.name for meta in store.list_from(LOG, names[9], stat=stat, limit=4)] == [*names[9:], "_x"]
        assert [meta.name for meta in store.list_from(LOG, stat=stat, limit=2)] == names[:2]
        assert list(store.list_names(LOG, names[3], limit=4)) == names[3:7]

    def test_lists_the_root(self, store: LogStore) -> None:
        store.put("part-1.parquet", b"1")
        store.put(FIRST, b"2")
        assert [meta.name for meta in store.list_from("")] == ["part-1.parquet"]

    def test_is_fresh(self, store: LogStore, another: LogStore) -> None:
        for number in range(self.rounds):
            name = f"{number:020d}.json"
            assert another.head(f"{LOG}/{name}") is None
            store.put_if_absent(f"{LOG}/{name}", b"x")
            assert another.get(f"{LOG}/{name}") == b"x"
            assert another.list_from(LOG)[-1].name == another.list_from(LOG, name, stat=False)[0].name == name
        store.delete(f"{LOG}/{name}")
        assert another.head(f"{LOG}/{name}") is None
        assert len(another.list_from(LOG)) == self.rounds - 1

    # --------------------------------------------------------------------------------------- names and delete

    @pytest.mark.parametrize("name", ["with space", "100%", "%41", "a=b", "c#d?e", "ünï", "x" * 200, ".hidden", "a\\b"])
    def test_takes_any_name(self, store: LogStore, name: str) -> None:
        path = f"day={name}/{name}"
        assert store.put_if_absent(path, b"1") is PutOutcome.COMMITTED
        store.put(path, b"2")
        assert store.get(path) == b"2"
        assert [meta.name for meta in store.list_from(f"day={name}")] == [name]
        store.delete(path)
        assert store.head(path) is None

    def test_delete(self, store: LogStore) -> None:
        store.put("a/b", b"")
        store.delete("a/b")
        store.delete("a/b")
        store.delete("never/was")
        with pytest.raises(ObjectNotFoundError):
            store.get("a/b")

    def test_walks_all_depths_except_the_log(self, store: LogStore) -> None:
        paths = ["a", "b/c=1 %41/d", "b/.hidden/e", "_delta_logs/f", f"b/{LOG}s", "é"]
        for size, path in enumerate(paths):
            store.put(path, b"x" * size)
        for path in (FIRST, f"{LOG}/_sidecars/a"):
            store.put(path, b"")
        files = self._walked(store)
        assert {path: entry.size_bytes for path, entry in files.items()} == {path: n for n, path in enumerate(paths)}
        for path, entry in files.items():
            assert entry == Entry(path, EntryKind.FILE, *_size_and_time(store.head(path)))

    def test_the_parts_of_a_walk_have_what_it_has(self, store: LogStore) -> None:
        for size, path in enumerate(("a", "b/c=1 %41/d", "b/c=1 %41/e", "é")):
            store.put(path, b"x" * size)
        files = self._walked(store)
        parts = [*store.walk_parts(lambda directory: True)]
        read = {entry.path: entry for part in parts for entry in part.entries if entry.kind is EntryKind.FILE}
        unread = [path for part in parts for path in part.paths()]
        assert sorted([*read, *unread]) == sorted(files) and read.items() <= files.items()

    def test_a_walk_in_ranges_has_each_path_once(self, store: LogStore) -> None:
        paths = ["a", "b", "b-", "b/c=1 %41/d", "b/c=1 %41/e", "b/c=2/.d.crc", "b0", "c/d/e/f", "c/d/g", "é"]
        for path in (*paths[:1], *paths[2:], FIRST):  # on a local disk, no path can lie below a file
            store.put(path, b"x")
        whole = sorted(self._walked(store))
        for bounds in ([], ["b/"], ["_delta_log/x", "a"], ["b/c=1 %41/", "c/d/e/"], [*paths[1:]]):
            found = [
                [*(entry.path for entry in part.entries if entry.kind is EntryKind.FILE), *part.paths()]
                for start, end in zip(["", *bounds], [*bounds, None], strict=True)
                for part in store.walk_parts(lambda directory: True, start, end)
            ]
            assert sorted(path for part in found for path in part) == whole
        assert [*store.walk_parts(lambda directory: True, "x", "y")] in ([], [WalkPart("", [], [])])

    def test_entries_are_those_of_the_walk(self, store: LogStore) -> None:
        for size, path in enumerate(("a", "b/c=1 %41/d", "é")):
            store.put(path, b"x" * size)
        files = self._walked(store)
        wanted = ["é", "absent", "b/c=1 %41/d", "a/below/a/file", "b/absent", "a"]
        assert store.entries(wanted) == [files["é"], files["b/c=1 %41/d"], files["a"]] and store.entries([]) == []

    def test_removes_many(self, store: LogStore, another: LogStore) -> None:
        paths = [f"b/{n}=%41 é/x" for n in range(30)]
        for path in (*paths, FIRST):
            store.put(path, b"1")
        files = self._walked(store)
        some = [files[path] for path in paths[10:]]
        assert store.remove(some) == some and self._walked(another).keys() == {*paths[:10]}
        assert store.remove([]) == [] and store.get(FIRST) == b"1"
        store.remove(some)  # missing paths are ignored
        store.remove([*files.values()])
        assert self._walked(store) == {}

    def test_removes_all(self, store: LogStore, another: LogStore) -> None:
        logs = [
            FIRST,
            "_delta_log/_staged_commits/a.json",
            "_delta_log/_sidecars/b.parquet",
            "_delta_log/_last_checkpoint",
        ]
        for path in (*logs, "b/c=1 %41/d", "é"):
            store.put(path, b"1")
        self._walked(store)
        assert another.remove_all() == 6
        assert [path for path in logs if store.head(path) is not None] == []
        assert store.put_if_absent("new", b"2") is PutOutcome.COMMITTED
        assert self._walked(store).keys() == {"new"}

    def _walked(self, store: LogStore) -> dict[str, Entry]:
        try:
            entries = list(store.walk(lambda directory: True))
        except CallError:
            pytest.skip("this store cannot list files at all depths")
        return {entry.path: entry for entry in entries if entry.kind is EntryKind.FILE}

    def test_location_ends_with_the_path(self, store: LogStore) -> None:
        assert store.location("day=1/part.parquet").endswith("/day=1/part.parquet")
        assert store.location("a").startswith(store.url)

    # --------------------------------------------------------------------------------------------- data files

    def test_writes_a_file_as_a_stream(self, store: LogStore, another: LogStore) -> None:
        table = pa.table({"x": list(range(1000))})
        with store.open_output("day=1/part-1.parquet") as file:
            pq.write_table(table, file)
        store.sync(["day=1/part-1.parquet"])
        assert pq.read_table(another.open_input("day=1/part-1.parquet"), partitioning=None).equals(table)
        with pq.ParquetFile(store.open_input("day=1/part-1.parquet")) as parquet:
            assert parquet.metadata.num_rows == 1000

    def test_a_stream_that_fails_leaves_nothing(self, store: LogStore) -> None:
        with pytest.raises(ZeroDivisionError), store.open_output("day=1/part-1.parquet") as file:
            file.write(b"half")
            _ = 1 / 0
        assert store.head("day=1/part-1.parquet") is None
        assert [meta.name for meta in store.list_from("day=1")] == []

    def test_open_input_of_nothing(self, store: LogStore) -> None:
        with pytest.raises(ObjectNotFoundError):
            store.open_input("absent.parquet")

    def test_leaves_nothing_else_behind(self, store: LogStore) -> None:
        store.put_if_absent(FIRST, b"1")
        store.put_if_absent(FIRST, b"2")
        store.put(f"{LOG}/_last_checkpoint", b"{}")
        store.put(f"{LOG}/_last_checkpoint", b"{}", durable=False)
        names: Callable[[list[FileMeta]], list[str]] = lambda metas: [meta.name for meta in metas]  # noqa: E731
        assert names(store.list_from(LOG)) == ["00000000000000000000.json", "_last_checkpoint"]
        assert names(store.list_from("")) == []


def _size_and_time(meta: FileMeta | None) -> tuple[int | None, int | None]:
    assert meta is not None
    return meta.size_bytes, meta.modification_time_ms


def together(work: Callable[[int], Any], count: int) -> list[Any]:
    """Run ``work(0)`` to ``work(count - 1)`` simultaneously in threads."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
