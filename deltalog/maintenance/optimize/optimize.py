"""Rewrites files without changing rows: compaction, purge of deletion vectors, clustering and Z-order.

Each batch of files is committed separately, and its commit remains in the log if a later batch fails. The commit of a
batch conflicts only with commits that remove one of the files that it rewrites. After such a conflict, bins with files
that another writer has changed are left out, and the other bins are committed.

Spec: PROTOCOL.md#add-file-and-remove-file (dataChange), #deletion-vectors, #row-tracking,
#writer-requirements-for-clustered-table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from deltalog.arrow_arrays import int64s
from deltalog.commit_result import CommitResult
from deltalog.errors import (
    CallError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    DeltaLogError,
    Outcome,
)
from deltalog.expressions.bound import columns_of
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Predicate
from deltalog.lazy_arrow import pc
from deltalog.log.file_statistics import indexed_leaves
from deltalog.maintenance.optimize.plan import (
    TARGET_BYTES,
    Bin,
    OptimizeProgress,
    OptimizeReport,
    SizesByPath,
    in_batches,
    metrics,
    small_or_sparse,
    to_cluster,
    whole_partitions,
    with_vectors,
)
from deltalog.maintenance.optimize.rewritten_bins import BinWriter, Rewrite, Rewritten
from deltalog.maintenance.optimize.sorted_bins import ZOrder
from deltalog.maintenance.optimize.tasks import BinTasks, RewriteBins, packed, unpacked
from deltalog.maintenance.optimize.z_order import column_paths
from deltalog.parallel import mapped
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.column_paths import path_text
from deltalog.protocol.properties import (
    DATA_SKIPPING_NUM_INDEXED_COLS,
    DATA_SKIPPING_STATS_COLUMNS_KEY,
    TARGET_FILE_SIZE,
)
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import keep_cleanup_errors
from deltalog.write.commit_info import UserMetadata
from deltalog.write.data_files import discard
from deltalog.write.table_handle import TableHandle

#: The maximum total size of the files that one commit rewrites; a larger bin gets its own commit.
COMMIT_BYTES = 16 << 30
#: The maximum total size of the files of a partition that are sorted together.
SORTED_BYTES = 16 << 30
_ATTEMPTS = 10
_SIZES = ["path", "size"]


def silent(done: int, of: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of all optimizations. Sizes are in bytes."""

    where: Predicate | str | None = None
    target_size: int | None = None
    max_concurrent_tasks: int | None = None
    max_commit_size: int | None = None
    dry_run: bool = False
    user_metadata: UserMetadata = None
    progress: OptimizeProgress = silent
    rewrite_bins: RewriteBins | None = None
    full: bool = False

    def check(self) -> None:
        """Raises CallError."""
        for name in ("target_size", "max_concurrent_tasks", "max_commit_size"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise CallError(f"{name} must be a number > 0 or None; got {value!r}.")

    @property
    def threads(self) -> int:
        """The number of threads that rewrite bins; 0: the calling thread rewrites them."""
        tasks = self.max_concurrent_tasks or os.cpu_count() or 1
        return tasks if tasks > 1 else 0

    def target_bytes(self, snapshot: Snapshot) -> int:
        """The size of new files. Raises InvalidPropertyError."""
        return self.target_size or TARGET_FILE_SIZE.read(snapshot.metadata.configuration) or TARGET_BYTES

    @property
    def predicate_text(self) -> str:
        """The predicate in the form that commitInfo records."""
        return canonical_json([] if self.where is None else [shown(self.where)])


@dataclass(frozen=True, slots=True)
class Job:
    """The commitInfo of an optimization, and the function that rewrites one bin of files."""

    operation: str
    parameters: Mapping[str, object]
    rewrite: Rewrite


def compact(handle: TableHandle, options: Options) -> OptimizeReport:
    """See ``TableOptimizer.compact``."""
    snapshot, files = _selected(handle, options)
    if snapshot.clustering_columns:
        return _cluster(handle, options, snapshot, files)
    if options.full:
        raise CallError(f"{snapshot.url} is not clustered, so full=True does not apply. Omit it.")
    parameters = {"predicate": options.predicate_text, "zOrderBy": "[]", "clusterBy": "[]", "auto": False}
    bins = small_or_sparse(files, options.target_bytes(snapshot))
    return run(handle, options, Job("OPTIMIZE", parameters, rewritten), snapshot, files, bins)


def _cluster(handle: TableHandle, options: Options, snapshot: Snapshot, files: pa.Table) -> OptimizeReport:
    columns = canonical_json([path_text(path) for path in snapshot.clustering_columns])
    target = options.target_bytes(snapshot)
    parameters = {
        "predicate": options.predicate_text, "zOrderBy": "[]", "clusterBy": columns, "auto": False,
        "isFull": options.full,
    }  # fmt: skip
    rewrite = ZOrder(snapshot.clustering_columns, target, options.threads, columns)
    bins = to_cluster(files, columns, target, options.full)
    return run(handle, _one_by_one(options), Job("OPTIMIZE", parameters, rewrite), snapshot, files, bins)


def _one_by_one(options: Options) -> Options:
    """To bound memory use, process one bin at a time, with all threads."""
    return replace(options, max_concurrent_tasks=1)


def purge(handle: TableHandle, options: Options) -> OptimizeReport:
    """See ``TableOptimizer.purge``."""
    snapshot, files = _selected(handle, options)
    parameters = {"predicate": options.predicate_text, "applyPurge": True}
    bins = with_vectors(files, options.target_bytes(snapshot))
    return run(handle, options, Job("REORG", parameters, rewritten), snapshot, files, bins)


def z_order(handle: TableHandle, columns: Sequence[str | Sequence[str]], options: Options) -> OptimizeReport:
    """See ``TableOptimizer.z_order``."""
    snapshot, files = _selected(handle, options)
    if snapshot.clustering_columns:
        raise CallError(
            f"{snapshot.url} is clustered by {', '.join('.'.join(path) for path in snapshot.clustering_columns)} "
            "(CLUSTER BY), so it cannot have another order. Use compact(), which orders the rows by these columns."
        )
    paths = column_paths(columns, snapshot.schema, snapshot.partition_columns)
    _check_statistics(snapshot, paths)
    names = canonical_json([path_text(path) for path in paths])
    parameters = {"predicate": options.predicate_text, "zOrderBy": names, "clusterBy": "[]", "auto": False}
    rewrite = ZOrder(paths, options.target_bytes(snapshot), options.threads)
    bins = whole_partitions(files, SORTED_BYTES)
    return run(handle, _one_by_one(options), Job("OPTIMIZE", parameters, rewrite), snapshot, files, bins)


def _check_statistics(snapshot: Snapshot, paths: Sequence[tuple[str, ...]]) -> None:
    indexed = {leaf.path for leaf in indexed_leaves(snapshot.metadata, snapshot.clustering_columns)}
    for path in paths:
        if path not in indexed:
            key = DATA_SKIPPING_STATS_COLUMNS_KEY
            key = key if key in snapshot.metadata.configuration else DATA_SKIPPING_NUM_INDEXED_COLS.key
            raise CallError(
                f"{snapshot.url}: {'.'.join(path)} has no statistics, so ordering by it would skip no files: {key} is "
                f"{snapshot.metadata.configuration.get(key, DATA_SKIPPING_NUM_INDEXED_COLS.default)}. Change the "
                "property, or omit the column."
            )


def rewritten(writer: BinWriter, files: pa.Table) -> Rewritten:
    """Rewrite files and keep the order of the rows."""
    return writer.rewrite(files)


def _selected(handle: TableHandle, options: Options) -> tuple[Snapshot, pa.Table]:
    """The latest snapshot, and its files in the partitions that match ``where``."""
    options.check()
    handle.reader.authority.check_maintenance("OPTIMIZE", handle.url)
    snapshot = handle.writable()
    return snapshot, files_in_partitions(snapshot, options.where)


def files_in_partitions(snapshot: Snapshot, where: Predicate | str | None) -> pa.Table:
    """The files in the partitions that match ``where``. Raises CallError for a condition on other columns."""
    scan = snapshot.scan(where=where)
    if scan.where is not None:
        partitioned = set(snapshot.partition_columns)
        others = [each.path[0] for each in columns_of(scan.where) if each.path[0] not in partitioned]
        if others:
            raise CallError(
                f"{snapshot.url}: files are selected by partition, but {others[0]} is not a partition column "
                f"({', '.join(snapshot.partition_columns) or 'there are none'}). Remove it from where. In the words "
                f"of delta-spark: Predicate references non-partition column {others[0]!r}. Only the partition columns "
                f"may be referenced: [{', '.join(snapshot.partition_columns)}]."
            )
    return scan.files()


# ------------------------------------------------------------------------------------------------ batches


@dataclass
class _Totals:
    """The totals of the committed batches."""

    removed: list[pa.Table] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    partitions: set[object] = field(default_factory=set)
    bins: int = 0
    vectors: int = 0
    rows: int = 0
    left: int = 0
    commits: list[CommitResult] = field(default_factory=list)


def run(
    handle: TableHandle, options: Options, job: Job, snapshot: Snapshot, files: pa.Table, bins: Sequence[Bin]
) -> OptimizeReport:
    """Rewrite bins batch by batch, and commit each batch. ``files``: the files of ``snapshot`` to which the bins
    refer."""
    planned = [number for each in bins for number in each.numbers]
    report = OptimizeReport(
        snapshot.url,
        job.operation,
        options.dry_run,
        snapshot.version,
        files.num_rows,
        len(bins),
        len({each.partition for each in bins}),
        SizesByPath(files.select(_SIZES).take(int64s(planned))),
        {},
    )
    if options.dry_run or not bins:
        return report
    totals = _Totals()
    done = 0
    for batch in in_batches(bins, options.max_commit_size or COMMIT_BYTES):
        _Batch(handle, options, job, [(each, files.take(int64s(each.numbers))) for each in batch], totals).run(
            lambda rewritten, before=done: options.progress(before + rewritten, len(planned))  # type: ignore[misc]
        )
        done += sum(len(each.numbers) for each in batch)
        options.progress(done, len(planned))
    return replace(
        report,
        bins=totals.bins,
        partitions=len(totals.partitions),
        removed=SizesByPath(pa.concat_tables([files.select(_SIZES).slice(0, 0), *totals.removed])),
        added=totals.added,
        deletion_vectors=totals.vectors,
        rows=totals.rows,
        left=totals.left,
        commits=tuple(totals.commits),
    )


@dataclass
class _Batch:
    """The bins, with their files, that are rewritten and committed together."""

    handle: TableHandle
    options: Options
    job: Job
    bins: list[tuple[Bin, pa.Table]]
    totals: _Totals

    def run(self, progress: Callable[[int], None]) -> None:
        """Raises as ``Transaction.commit``; then nothing of this batch is committed, and its new files are removed
        unless the outcome is unknown."""
        base = self.handle.writable()
        self._leave_out_changed(base)
        if not self.bins:
            return
        with self.handle.continuing(base) as transaction:
            writer = BinWriter.for_transaction(transaction, base, self.handle.environment.clock_ms)
        store = self.handle.reader.store
        try:
            made, done = list[Rewritten](), 0
            for (_, files), each in zip(self.bins, self._rewritten(writer), strict=True):
                made.append(each)
                done += files.num_rows
                progress(done)
            committed = self._commit(base, dict(zip((each for each, _ in self.bins), made, strict=True)))
        except BaseException as error:
            if not isinstance(error, DeltaLogError) or error.outcome is not Outcome.UNKNOWN:
                keep_cleanup_errors(error, discard(store, writer.paths))
            raise
        discard(store, [path for path in writer.paths if path not in committed])

    def _rewritten(self, writer: BinWriter) -> Iterator[Rewritten]:
        """The new files of each bin."""
        rewrite_bins = self.options.rewrite_bins
        pa.default_memory_pool().release_unused()  # give the memory that was used for planning back to the system
        if rewrite_bins is None:
            rewrite = partial(self.job.rewrite, writer)
            yield from mapped((files for _, files in self.bins), rewrite, self.options.threads, 0)
            return
        tasks = BinTasks.for_writer(writer, self.job.rewrite)
        try:
            texts = rewrite_bins(tasks, [packed(files) for _, files in self.bins])
            for (_, files), text in zip(self.bins, texts, strict=True):
                done = unpacked(text)
                writer.paths.extend(add.path for add in done.adds)
                writer.check_rows(files, [done.rows], done.rows)
                yield done
        except BaseException:
            tasks.remove_all()
            raise

    def _leave_out_changed(self, latest: Snapshot) -> None:
        """Leave out bins that contain a file that is no longer live or whose deletion vector has changed."""
        live = latest.files(["path", "deletion_vector"])
        ours = pa.chunked_array([path for _, files in self.bins for path in files["path"].chunks], pa.string())
        live = live.filter(pc.is_in(live["path"], value_set=ours.combine_chunks()))
        vectors = dict(zip(live["path"].to_pylist(), live["deletion_vector"].to_pylist(), strict=True))

        def is_live(files: pa.Table) -> bool:
            held = zip(files["path"].to_pylist(), files["deletion_vector"].to_pylist(), strict=True)
            return all(path in vectors and vectors[path] == vector for path, vector in held)

        kept = [(each, files) for each, files in self.bins if is_live(files)]
        self.totals.left += len(self.bins) - len(kept)
        self.bins = kept

    def _commit(self, base: Snapshot, rewritten: Mapping[Bin, Rewritten]) -> set[str]:
        """Commit the rewritten bins, and return the paths of the new files. If another writer has removed files of some
        bins, commit only the other bins."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._attempt(base, rewritten)
            except (ConcurrentDeleteDeleteError, ConcurrentDeleteReadError):
                self._leave_out_changed(self.handle.refresh())
                if not self.bins:
                    return set()
        return self._attempt(base, rewritten)

    def _attempt(self, base: Snapshot, rewritten: Mapping[Bin, Rewritten]) -> set[str]:
        files = pa.concat_tables([files for _, files in self.bins])
        adds = [add for each, _ in self.bins for add in rewritten[each].adds]
        vectors = files.num_rows - files["deletion_vector"].null_count
        with self.handle.continuing(base) as transaction:
            transaction.remove_files(files, data_change=False)
            transaction.staged.add_written(adds)
            transaction.staged.keep_for_caller([add.path for add in adds])
            numbers = metrics(files["size"].to_pylist(), [add.size for add in adds], vectors)
            result = transaction.commit(self.job.operation, self.job.parameters, numbers, self.options.user_metadata)
        self._count(files, rewritten, result, vectors)
        return {add.path for add in adds}

    def _count(self, files: pa.Table, rewritten: Mapping[Bin, Rewritten], result: CommitResult, vectors: int) -> None:
        totals = self.totals
        totals.removed.append(files.select(_SIZES))
        totals.partitions.update(each.partition for each, _ in self.bins)
        totals.bins += len(self.bins)
        totals.vectors += vectors
        totals.commits.append(result)
        for each, _ in self.bins:
            totals.rows += rewritten[each].rows
            totals.added.update({add.path: add.size for add in rewritten[each].adds})
