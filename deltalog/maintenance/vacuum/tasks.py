"""Lists files, decides which ones to delete, and deletes these; all three steps run in other processes, such as the
tasks of a Spark job.

Each task lists a range of paths and decides on the files in this range by the rules of ``decisions``, as a local vacuum
does for all paths. A task may be attempted more than once, even concurrently: listing changes nothing, and a deletion
reports which files no longer exist, whichever attempt deleted them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from deltalog.errors import StoreError
from deltalog.maintenance.vacuum.decisions import (
    Decided,
    NamedFiles,
    Sifted,
    VacuumedFiles,
    VacuumRules,
    checked_path,
    decide,
    sift,
    table_roots,
)
from deltalog.maintenance.vacuum.path_hashes import HASH_PROBE, PathHashes
from deltalog.maintenance.vacuum.plan import together
from deltalog.maintenance.vacuum.ranges import PathSample, VacuumRange, ranges
from deltalog.maintenance.vacuum.removed_files import logs_above
from deltalog.protocol.paths import commit_path, is_within
from deltalog.storage.base import Entry, FileMeta, LogStore, WalkPart
from deltalog.write.table_handle import TableHandle
from deltalog.write.task_files import storage_of

_AT_ONCE = 1_000
# The number of files that one task deletes; deleting them on S3 takes ten requests. Progress is reported after each
# task.
_IN_A_TASK = 10_000


#: Runs functions in other processes, as described in ``DeltaTable.vacuum``.
RunTasks = Callable[[Callable[[bytes, str], bytes], Iterable[bytes], str], Iterator[bytes]]


@dataclass(frozen=True)
class VacuumRunner:
    """``run``: runs the tasks of a vacuum. ``ranges``: the maximum number of listing tasks."""

    run: RunTasks
    ranges: int


@dataclass(frozen=True)
class VacuumTasks:
    """The functions that the tasks of one vacuum run. The object can be pickled; the pickle contains the storage
    options, including any secrets.

    ``version`` and ``commit``: the latest version, and the size and time of its commit file; with these a task verifies
    that it accesses the same table. ``elsewhere``: as in NamedFiles. ``tables``: the roots of other tables that are
    known from the log.
    """

    store: LogStore
    rules: VacuumRules
    version: int
    commit: FileMeta
    elsewhere: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    probe: int = HASH_PROBE

    @classmethod
    def for_table(cls, handle: TableHandle, version: int, rules: VacuumRules) -> VacuumTasks | None:
        """The tasks for the table of a handle; None if the commit of ``version`` is not in the log. Cost: 1 HEAD."""
        store = storage_of(handle.reader.store)
        commit = store.head(commit_path(version))
        return None if commit is None else cls(store, rules, version, commit)

    def look(self, data: bytes, attempt: str) -> bytes:
        """List a range and decide on the files in it. ``data``: a VacuumRange. Returns a Decided. Raises StoreError if
        the task sees another table than the caller. Cost: as ``LogStore.walk_parts``, 2 requests for each directory
        above its ends, 1 HEAD for each checksum whose file is in another range."""
        self._check()
        here: VacuumRange = unpacked(data)
        store, needed = self.store, here.needed_files()
        named = NamedFiles(needed, frozenset(here.removed), self.elsewhere)
        sifted = sift(store.walk_parts(self.rules.enters, here.start, here.end), needed)
        ends = [each for each in (here.start, here.end) if each]
        # Only these directories can contain a table whose log and data files are in different ranges.
        tables = self.tables | table_roots(entry.path for entry in logs_above(store, ends))
        checked = (checked_path(path) for path in _paths(sifted))
        outside = sorted({path for path in checked if path is not None and not is_within(path, here.start, here.end)})
        if outside:
            others = sift([WalkPart("", [], store.entries(outside))], needed)
            sifted.present.update(decide(others, named, self.rules, store.entries, tables).present)
        decided = decide(sifted, named, self.rules, store.entries, tables)
        return packed(replace(decided, present=PathHashes()))

    def delete(self, data: bytes, attempt: str) -> bytes:
        """Delete files. ``data``: VacuumedFiles. Returns a byte for each file: 1 if it no longer exists. Raises
        StoreError. Cost: as ``LogStore.remove``, 1 HEAD for each 1,000 files, and 1 for each file that it did not
        remove."""
        files: VacuumedFiles = unpacked(data)

        def remove(entries: Sequence[Entry]) -> list[Entry]:
            self._check()
            return self.store.remove(entries)

        done = {files.paths[row] for _, gone in deleted_in_steps(remove, files) for row in gone}
        rest = [path for path in files.paths if path not in done]
        # HEAD follows links: a file that is reachable only through a new link counts as present.
        gone = done.union(path for path, meta in zip(rest, self.store.head_many(rest), strict=True) if meta is None)
        return bytes(path in gone for path in files.paths)

    def _check(self) -> None:
        if self.probe != HASH_PROBE:
            raise StoreError(
                f"{self.store.url}: the executors hash names differently from the driver. Use the same Python on both.",
                path=self.store.url,
            )
        if self.store.head(commit_path(self.version)) != self.commit:
            raise StoreError(
                f"{self.store.url}: an executor does not see the same version {self.version} of the table as the "
                "driver. Put the table where all executors can reach it, or vacuum it on the driver alone.",
                path=self.store.url,
            )


@dataclass(frozen=True)
class DistributedVacuum:
    """The tasks of one vacuum, and the runner that executes these tasks in other processes."""

    tasks: VacuumTasks
    runner: VacuumRunner

    @classmethod
    def for_table(
        cls, runner: VacuumRunner, handle: TableHandle, version: int, rules: VacuumRules
    ) -> DistributedVacuum | None:
        """Returns None if ``VacuumTasks.for_table`` returns None, and has the same cost."""
        tasks = VacuumTasks.for_table(handle, version, rules)
        return None if tasks is None else cls(tasks, runner)

    def decided(self, named: NamedFiles, sample: PathSample) -> Decided:
        """Decide in tasks about all files below the root; otherwise like ``decide``. Raises StoreError if tasks lose or
        repeat a file, and what the runner raises."""
        elsewhere, tables = frozenset(named.elsewhere), table_roots(named.needed.directories)
        tasks = replace(self.tasks, elsewhere=elsewhere, tables=tables)
        inputs = [packed(each) for each in ranges(named.needed, named.removed, sample, self.runner.ranges)]
        parts: list[Decided] = [unpacked(each) for each in self.runner.run(tasks.look, inputs, "list the files")]
        listed = sum(part.listed for part in parts)
        counted = sum(len(part.files) + part.kept.total() + part.gone for part in parts)
        decided = together(parts)
        decided.files = decided.files.in_order()
        paths = decided.files.paths
        if len(parts) != len(inputs) or counted != listed or any(map(str.__eq__, paths, paths[1:])):
            raise StoreError(
                f"{tasks.store.url}: {len(parts)} of {len(inputs)} tasks answered; they listed {listed} files and "
                f"decided on {counted}, possibly some of them twice. Nothing was deleted. Run the vacuum again, or on "
                "the driver alone.",
                path=tasks.store.url,
            )
        return decided

    def deleted(self, files: VacuumedFiles) -> Iterator[tuple[int, list[int]]]:
        """Delete files in steps. For each step, yields the number of files in the step, and the row numbers in
        ``files`` of those files that do not exist after the step.

        Raises StoreError, and what the runner raises.
        """
        rows, url = range(len(files)), self.tasks.store.url
        steps = [rows[start : start + _IN_A_TASK] for start in rows[::_IN_A_TASK]]
        answers = self.runner.run(self.tasks.delete, (packed(files.of(some)) for some in steps), "delete files")
        for some in steps:
            flags = next(answers, b"")
            if len(flags) != len(some):
                raise StoreError(
                    f"{url}: a task that had to delete {len(some)} files answered for {len(flags)}.", path=url
                )
            yield len(some), [row for row, is_gone in zip(some, flags, strict=True) if is_gone]


def deleted_in_steps(
    remove: Callable[[Sequence[Entry]], list[Entry]], files: VacuumedFiles
) -> Iterator[tuple[int, list[int]]]:
    """Delete files in steps. For each step, yields the number of files in the step, and the row numbers in ``files`` of
    those files that do not exist after the step. Raises and costs as ``remove``, with 1,000 files in each call."""
    rows = range(len(files))
    for start in rows[::_AT_ONCE]:
        some = rows[start : start + _AT_ONCE]
        gone = {entry.path for entry in remove(files.entries(some))}
        yield len(some), [row for row in some if files.paths[row] in gone]


def _paths(sifted: Sifted) -> Iterator[str]:
    yield from (entry.path for entry in sifted.others)
    yield from sifted.unread


def packed(value: Any) -> bytes:
    """Serialize and compress a value for another process of the same program; compression shrinks paths to a third."""
    data = pickle.dumps(value)
    body: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return len(data).to_bytes(8, "little") + body


def unpacked(data: bytes) -> Any:
    """Deserialize a value that ``packed`` serialized."""
    size = int.from_bytes(data[:8], "little")
    # The bytes come from tasks of the caller's own program.
    return pickle.loads(pa.decompress(data[8:], decompressed_size=size, codec="zstd", asbytes=True))  # nosec B301
