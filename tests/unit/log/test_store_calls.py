"""Executes the operations in the tables of docs/store-calls.md, and compares their store calls with the tables. Nothing
is timed."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from deltalog import Dataset, DeltaTable
from deltalog.storage import LogStore
from deltalog.storage.fs import LocalStore
from deltalog.testing.stores import CountingStore
from tests.benchmarks.actions import BEGIN_MS
from tests.benchmarks.livefiles import ADDS, IDS, PARTS, TAIL, FilesTable
from tests.benchmarks.requests import by_kind
from tests.support.core import ICT, SCHEMA, Clock, environment, memory, rows
from tests.support.rounds import RoundStore

PAGE = Path(__file__).resolve().parents[3] / "docs" / "store-calls.md"
FILES = 1_000
COMMITS = FILES // ADDS
VERSIONS = 12
ROUNDS = "rounds"
S = TypeVar("S", bound=LogStore)


@dataclass(frozen=True)
class Log:
    """A log whose calls are counted, and the numbers that the formulas on the page use."""

    store: LogStore
    names: dict[str, int]


@dataclass(frozen=True)
class Row:
    line: int
    call: str
    log: str
    counts: dict[str, str]
    rounds: str


def page_rows() -> Iterator[Row]:
    header: list[str] = []
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            header = []
        elif not header:
            header = cells
        elif line.startswith("|---"):
            continue
        elif ROUNDS in header:  # tests/unit/unity/test_unity_rounds.py checks the other table
            assert len(cells) == len(header), f"{PAGE.name}:{number} has {len(cells)} cells"
            counts = dict(zip(header[2:], cells[2:], strict=True))
            rounds = counts.pop(ROUNDS)
            yield Row(number, cells[0], cells[1], counts, rounds)


def in_use(store: S) -> tuple[S, DeltaTable]:
    """A store, and an open handle for the table in this store."""
    return store, DeltaTable.open(store, environment=environment(Clock(BEGIN_MS + 10**11)))


# Each operation: first prepared (not counted), then run (counted).
READY: dict[str, Callable[[LogStore, DeltaTable], Callable[[], Any]]] = {
    "`DeltaTable.open(url)`": lambda store, table: lambda: DeltaTable.open(store),
    "`table.snapshot()`": lambda store, table: table.snapshot,
    "`snapshot.protocol, snapshot.metadata`": lambda store, table: _ask(table, lambda s: (s.protocol, s.metadata)),
    "`snapshot.num_files, snapshot.size_bytes`": lambda store, table: _ask(
        table, lambda s: (s.num_files, s.size_bytes)
    ),
    "`snapshot.files()`": lambda store, table: _ask(table, lambda s: s.files()),
    "`snapshot.files()` a second time": lambda store, table: _ask(table, lambda s: s.files(), twice=True),
    "`snapshot.scan(where=…).files()`": lambda store, table: _ask(table, lambda s: s.scan(where=f"id < {IDS}").files()),
    "`snapshot.statistics()`": lambda store, table: _ask(table, lambda s: s.statistics()),
    "`table.snapshot(version)`": lambda store, table: lambda: table.snapshot(3),
    "`table.version_at(timestamp)`": lambda store, table: lambda: table.version_at(_instant(table)),
    "`table.explain_timestamp(timestamp)`": lambda store, table: lambda: table.explain_timestamp(_instant(table)),
    "`table.snapshot(timestamp=…)`": lambda store, table: lambda: table.snapshot(timestamp=_instant(table)),
    "`table.history()`": lambda store, table: table.history,
    "`table.history(limit=3)`": lambda store, table: lambda: table.history(limit=3),
    "`snapshot.scan().to_arrow()`": lambda store, table: _ask(table, lambda s: s.scan().to_arrow()),
    "`snapshot.scan(where=…).to_arrow()` of one file": lambda store, table: _ask(
        table, lambda s: s.scan(where="id = 5").to_arrow()
    ),
    "`table.changes(v, v + 2).to_arrow()`": lambda store, table: lambda: table.changes(4, 6).to_arrow(),
    "`table.append(data)` of one file": lambda store, table: lambda: table.append(rows(99)),
    "`Dataset(table).write(data)` of one file": lambda store, table: lambda: Dataset(table).write(rows(99)),
    "`Dataset(table).stream_write_records(records)` of one file": lambda store, table: (
        lambda: Dataset(table).stream_write_records([{"id": 99}, {"id": 100}])
    ),
    "`table.stage(data)` of one file": lambda store, table: lambda: table.stage(rows(99)),
    "`table.commit_staged(staged)`": lambda store, table: _staged(table),
    "`Dataset(table).stream_write()`, pieces and commit": lambda store, table: lambda: _streamed(table),
    "`Dataset(table).open_blob(path)`": lambda store, table: _reading(table),
    "`snapshot.commit_summary`": lambda store, table: _ask(table, lambda s: s.commit_summary),
    "`Dataset(table).snapshots()`": lambda store, table: Dataset(table).snapshots,
    "`table.delete(where)` of whole files": lambda store, table: lambda: table.delete("id >= 16"),
    "`table.update({…}, where)` of a row of one file": lambda store, table: (
        lambda: table.update({"name": "k"}, "id = 7")
    ),
    "`table.delete(where)` of a row of one file": lambda store, table: lambda: table.delete("id = 7"),
    "`table.overwrite(data, where=…)` of a row of one file": lambda store, table: (
        lambda: table.overwrite(pairs(3).slice(1), where="id = 7")
    ),
    '`table.overwrite(data, partitions="dynamic")` of one': lambda store, table: (
        lambda: table.overwrite(pairs(3), partitions="dynamic")
    ),
    "`table.set_properties({…})`": lambda store, table: lambda: table.set_properties({"delta.appendOnly": "true"}),
    "`table.add_columns(schema)`": lambda store, table: lambda: table.add_columns(pa.schema([("z", pa.int64())])),
    "`table.restore(version)`, files to come back": lambda store, table: _emptied(table, lambda: table.restore(4)),
    "`table.checkpoint()`": lambda store, table: table.checkpoint,
    "`table.checkpoint()` after one by the same handle": lambda store, table: _second_checkpoint(table),
    "`table.compact_log()`": lambda store, table: table.compact_log,
    "`table.cleanup_log(dry_run=True)`": lambda store, table: _cleaning(table, True),
    "`table.cleanup_log()`": lambda store, table: _cleaning(table, False),
}


def _emptied(table: DeltaTable, call: Callable[[], Any]) -> Callable[[], Any]:
    table.overwrite(pairs(0).slice(0, 0))
    return call


def _staged(table: DeltaTable) -> Callable[[], Any]:
    staged = [table.stage(rows(number)) for number in (98, 99)]
    return lambda: table.commit_staged(staged)


def _streamed(table: DeltaTable) -> None:
    with Dataset(table).stream_write() as writer:
        for _ in range(9):
            writer.write(b"piece")
        writer.commit()


def _reading(table: DeltaTable) -> Callable[[], Any]:
    path = table.snapshot().scan(["path"]).to_arrow()["path"][0].as_py()
    return lambda: Dataset(table).open_blob(path).read()


def _second_checkpoint(table: DeltaTable) -> Callable[[], Any]:
    table.checkpoint()
    table.append(rows(99))
    return table.checkpoint


def _cleaning(table: DeltaTable, dry_run: bool) -> Callable[[], Any]:
    table.checkpoint()
    return lambda: table.cleanup_log(dry_run=dry_run)


def _ask(table: DeltaTable, ask: Callable[[Any], Any], twice: bool = False) -> Callable[[], Any]:
    snapshot = table.snapshot()
    if twice:
        ask(snapshot)
    return lambda: ask(snapshot)


def _instant(table: DeltaTable) -> int:
    return BEGIN_MS + 90_000_000 + table.version // 3 * 1000


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Log]:
    """The logs that the page names, each generated once."""
    made: dict[str, Log] = {}

    def make(name: str) -> Log:
        if name == "rows":
            return written_rows()
        if name == "files":
            return written_files()
        if name == "blobs":
            return written_blobs()
        if name.startswith("pairs"):
            return written_pairs(PROPERTIES[name.removeprefix("pairs")])
        if name not in made:
            kind = name.removesuffix(" without .crc")
            layout = {"checkpoint": "classic"}.get(kind, kind)
            made[name] = generate(tmp_path_factory.mktemp("log"), FILES, layout, kind == name)
        return made[name]

    return make


def generate(root: Path, size: int, layout: str, checksums: bool) -> Log:
    table = FilesTable("counted", size, layout, checksums)
    (root / "_delta_log").mkdir()
    table.write(root)
    names = {"n": table.last_version + 1, "tail": TAIL, "parts": PARTS}
    return Log(LocalStore(root), names)


def written_rows() -> Log:
    """A table of VERSIONS commits with one row each, with in-commit timestamps and the change data feed enabled."""
    clock = Clock(BEGIN_MS)
    store = memory(clock)
    properties = {**ICT, "delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "1000"}
    table = DeltaTable.create(store, SCHEMA, properties=properties, environment=environment(clock), data=rows(0))
    for version in range(1, VERSIONS):
        clock.now_ms += 1000
        table.append(rows(version))
    return Log(store, {"n": VERSIONS, "files": VERSIONS})


def written_files() -> Log:
    """One commit of 70 files with one row each, each file in its own partition."""
    store = memory(Clock(BEGIN_MS))
    data = rows(*range(70)).append_column("k", pa.array(range(70)))
    DeltaTable.create(store, data.schema, partition_by=["k"], environment=environment(), data=data)
    return Log(store, {"n": 1, "files": 70})


def written_blobs() -> Log:
    """VERSIONS commits that add one blob each, after the commit that creates the table."""
    store = memory(Clock(BEGIN_MS))
    properties = {**ICT, "delta.checkpointInterval": "1000"}
    table = DeltaTable.create_for_blobs(store, properties=properties, environment=environment())
    for number in range(VERSIONS):
        Dataset(table).write(bytes(number))
    return Log(store, {"n": VERSIONS + 1})


PROPERTIES = {
    "": {},
    " with vectors": {"delta.enableDeletionVectors": "true"},
    " with changes": {"delta.enableChangeDataFeed": "true"},
}


def pairs(number: int) -> pa.Table:
    """Two rows in the partition with this number."""
    return rows(2 * number, 2 * number + 1).append_column("k", pa.array([number] * 2))


def written_pairs(properties: dict[str, str]) -> Log:
    """VERSIONS commits of one file with two rows each, each file in its own partition."""
    store = memory(Clock(BEGIN_MS))
    properties = {**properties, "delta.checkpointInterval": "1000"}
    table = DeltaTable.create(
        store, pairs(0).schema, partition_by=["k"], properties=properties, environment=environment(), data=pairs(0)
    )
    for number in range(1, VERSIONS):
        table.append(pairs(number))
    return Log(store, {"n": VERSIONS, "files": VERSIONS})


@pytest.mark.parametrize("row", list(page_rows()), ids=lambda row: f"line {row.line}: {row.call} {row.log}")
def test_a_row_of_the_page(row: Row, generated: Callable[[str], Log]) -> None:
    log = generated(row.log)
    store, table = in_use(CountingStore(log.store))
    call = READY[row.call](store, table)
    with store.counted() as calls:
        call()
    counted = by_kind(calls)
    assert not counted.keys() - row.counts.keys(), f"the page has no column for {counted}"
    for kind, cell in row.counts.items():
        check(kind, cell, counted.get(kind, 0), log)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are watched in /proc")
@pytest.mark.parametrize("row", list(page_rows()), ids=lambda row: f"line {row.line}: {row.call} {row.log}")
def test_the_rounds_of_a_row(row: Row, generated: Callable[[str], Log]) -> None:
    log = generated(row.log)
    store, table = in_use(RoundStore(log.store))
    call = READY[row.call](store, table)
    table.flush()
    with store.counted():
        call()
    check(ROUNDS, row.rounds, store.rounds, log)


def check(kind: str, cell: str, found: int, log: Log) -> None:
    bound = cell.startswith("≤")
    functions = {
        "log2": lambda n: math.ceil(math.log2(n)),
        "log5": lambda n: math.ceil(math.log(n, 5)),
        "ceil": math.ceil,
    }
    allowed = int(eval(cell.removeprefix("≤") or "0", functions, log.names))
    assert found <= allowed if bound else found == allowed, f"{kind}: {cell or 0}, counted {found}"


def test_every_call_is_on_the_page() -> None:
    assert {row.call for row in page_rows()} == set(READY)


def test_a_cold_open_lists_from_the_checkpoint_on(tmp_path: Path) -> None:
    log = generate(tmp_path, 10, "classic", checksums=True)
    for version in range(10):  # left by a clean-up
        log.store.put(f"_delta_log/{version:020d}.json", b"")
    listed: list[list[str]] = []

    class Watched(LocalStore):
        def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
            listed.append(super().list_names(directory, start, limit=limit))
            return listed[-1]

    DeltaTable.open(Watched(tmp_path))
    assert [min(names)[:20] for names in listed] == [f"{10:020d}"]


# ------------------------------------------------------------------------------------------------------ growth


def work(call: Callable[[], Any]) -> int:
    """The number of calls of Python and C functions, which measures the work for each file or commit independently of
    the machine's speed."""
    events = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal events
        events += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return events


GROWING = {
    "files in a checkpoint": ("classic", 2_000, "`snapshot.files()`"),
    "files in parts": ("parts", 2_000, "`snapshot.files()`"),
    "files in sidecars": ("sidecars", 2_000, "`snapshot.files()`"),
    "files, pruned": ("classic", 2_000, "`snapshot.scan(where=…).files()`"),
    "commits without a checkpoint": ("commits", 40 * ADDS, "`snapshot.files()`"),
    "commits, opened": ("commits", 40 * ADDS, "`DeltaTable.open(url)`"),
    "commits, time travel": ("commits", 40 * ADDS, "`table.version_at(timestamp)`"),
    "commits, history": ("commits", 40 * ADDS, "`table.history()`"),
}


@pytest.mark.parametrize("case", GROWING)
def test_twice_the_size_is_at_most_twice_the_work(case: str, tmp_path: Path) -> None:
    layout, size, name = GROWING[case]
    requests, done = [], []
    for factor in (1, 2, 4):
        root = tmp_path / str(factor)
        root.mkdir()
        log = generate(root, factor * size, layout, checksums=True)
        # Run the operation once beforehand, so that one-time imports and caches are not counted.
        READY[name](*in_use(CountingStore(log.store)))()
        store, table = in_use(CountingStore(log.store))
        call = READY[name](store, table)
        with store.counted() as calls:
            done.append(work(call))
        requests.append(calls.of())
    for counts in (requests, done):
        for less, more in itertools.pairwise(counts):
            assert more <= 2 * less, (case, requests, done)
