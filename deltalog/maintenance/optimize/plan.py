"""Plans which files an optimization rewrites together, and defines the report of an optimization. Pure.

Spec: PROTOCOL.md leaves the choice of files to rewrite to the writers; #add-file-and-remove-file (dataChange),
#deletion-vectors,
#writer-requirements-for-clustered-table.
"""

from __future__ import annotations

import itertools
import json
import operator
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from deltalog.arguments import safe_repr
from deltalog.arrow_arrays import ZERO, combined, float64s, int64s, scalar
from deltalog.commit_result import CommitResult
from deltalog.lazy_arrow import pc
from deltalog.log import file_statistics
from deltalog.protocol.actions import AddFile

MIB = 1 << 20
#: The size of new files if neither the call nor the table (delta.targetFileSize) sets one.
TARGET_BYTES = 256 * MIB
#: The fraction of deleted rows above which a file is rewritten, even if the file is large or there is no other file to
#: combine it with. As in delta-spark.
MOST_DELETED = 0.05
#: A cube is a set of files whose rows were clustered together. The maximum size of a new cube, as a multiple of the
#: target file size; a cube of at least half this size is complete and is not rewritten.
CUBE_TARGETS = 64
#: The clusteringProvider and the tag names in the adds, as delta-spark writes them.
CLUSTERING_PROVIDER, CUBE_TAG, CUBE_COLUMNS_TAG = "liquid", "ZCUBE_ID", "ZCUBE_ZORDER_BY"
# The number of most recent bins that a file can still join if it fits, so that files that were written together stay
# together.
_OPEN_BINS = 8
_SLICE_ROWS = 10_000

#: Called with the number of files rewritten so far and the total.
OptimizeProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Bin:
    """The files of one partition that are rewritten together. ``numbers``: the row numbers of the bin's files in the
    table of files."""

    partition: tuple[tuple[str, str | None], ...]
    numbers: tuple[int, ...]
    size_bytes: int


def small_or_sparse(files: pa.Table, target_bytes: int) -> list[Bin]:
    """The bins (groups of files) of a compaction. A bin contains at most ``target_bytes`` unless it is a single larger
    file. The bins contain files that are smaller than the target size, and files whose fraction of deleted rows exceeds
    MOST_DELETED; a bin may consist of a single file of the latter kind. ``files``: schema FILES."""
    deleted = deleted_parts(files)
    is_sparse = pc.greater(deleted, scalar(MOST_DELETED, pa.float64()))
    chosen = pc.or_(pc.less(combined(files["size"]), scalar(target_bytes, pa.int64())), is_sparse)
    sparse = set(pc.indices_nonzero(is_sparse).to_pylist())
    bins = _packed(files, pc.indices_nonzero(chosen).to_pylist(), target_bytes)
    return [each for each in bins if len(each.numbers) > 1 or each.numbers[0] in sparse]


def with_vectors(files: pa.Table, target_bytes: int) -> list[Bin]:
    """The bins of a purge, which contain all files that have a deletion vector."""
    chosen = pc.indices_nonzero(pc.is_valid(combined(files["deletion_vector"]))).to_pylist()
    return _packed(files, chosen, target_bytes)


def whole_partitions(files: pa.Table, most_bytes: int) -> list[Bin]:
    """The bins of a sort: all files of a partition, split into parts of at most ``most_bytes``."""
    return _packed(files, range(files.num_rows), most_bytes)


def to_cluster(files: pa.Table, columns: str, target_bytes: int, full: bool) -> list[Bin]:
    """The bins for clustering, each of which becomes a cube. The bins contain files that are in no cube, and files of
    incomplete cubes. A bin that would contain exactly the files of one incomplete cube is left out. ``columns``: the
    clustering columns, as JSON. Files that other implementations clustered, or that are clustered by other columns, are
    rewritten only with ``full``."""
    cubes: dict[str, list[tuple[int, int, int]]] = {}
    others: list[tuple[int, int, int]] = []
    chosen = files.select(["size", "modification_time", "tags", "clustering_provider"]).to_pylist()
    for number, row in enumerate(chosen):
        tags = dict(row["tags"] or ())
        is_cube = CUBE_TAG in tags and CUBE_COLUMNS_TAG in tags
        is_ours = row["clustering_provider"] in (None, CLUSTERING_PROVIDER)
        member = (row["modification_time"] or 0, number, row["size"])
        if is_cube and is_ours and _same_columns(tags[CUBE_COLUMNS_TAG], columns):
            cubes.setdefault(tags[CUBE_TAG], []).append(member)
        elif full or (is_ours and not is_cube):
            others.append(member)
    grown = CUBE_TARGETS * target_bytes
    small = [sorted(each) for each in cubes.values() if 2 * sum(size for *_, size in each) < grown]
    whole = {frozenset(number for _, number, _ in each) for each in small}
    members = [*sorted(others), *(member for each in sorted(small) for member in each)]
    bins = [Bin((), tuple(each.numbers), each.size_bytes) for each in _bins(members, grown)]
    return [each for each in bins if frozenset(each.numbers) not in whole]


def _same_columns(text: str, columns: str) -> bool:
    try:
        return bool(json.loads(text) == json.loads(columns))
    except ValueError:
        return False


def in_cube(adds: Iterable[AddFile], cube: str, columns: str) -> list[AddFile]:
    """Return the add actions of a new cube's files with the tags of the cube. ``columns``: as for ``to_cluster``."""
    tags = {CUBE_TAG: cube, CUBE_COLUMNS_TAG: columns}
    return [msgspec.structs.replace(add, tags=tags, clustering_provider=CLUSTERING_PROVIDER) for add in adds]


def deleted_parts(files: pa.Table) -> Any:
    """The fraction of each file's rows that its deletion vector deletes; 0 if unknown."""
    parts = [0.0] * files.num_rows
    numbers = pc.indices_nonzero(pc.is_valid(combined(files["deletion_vector"])))
    marked = files.select(["deletion_vector", "stats"]).take(numbers)
    rows = file_statistics.statistics_of_files(marked, ())["numRecords"].to_pylist()
    deleted = pc.struct_field(combined(marked["deletion_vector"]), "cardinality").to_pylist()
    for number, count, cardinality in zip(numbers.to_pylist(), rows, deleted, strict=True):
        parts[number] = (cardinality or 0) / count if count else 0.0
    return float64s(parts)


class SizesByPath(Mapping[str, int]):
    """The sizes of files in bytes, keyed by the path in the log. The sizes are stored in Arrow columns; a dictionary is
    built only when a path is looked up for the first time."""

    def __init__(self, files: pa.Table) -> None:
        """``files``: the columns path and size; paths are unique."""
        self._files = files
        self._sizes: dict[str, int] | None = None

    def values(self) -> ValuesView[int]:
        """The sizes."""
        return _Sizes(self, self._files)

    def __getitem__(self, path: str) -> int:
        if self._sizes is None:
            self._sizes = {row["path"]: row["size"] for row in _in_slices(self._files)}
        return self._sizes[path]

    def __iter__(self) -> Iterator[str]:
        return (row["path"] for row in _in_slices(self._files.select(["path"])))

    def __len__(self) -> int:
        return int(self._files.num_rows)

    @safe_repr
    def __repr__(self) -> str:
        return repr(dict(self))


class _Sizes(ValuesView[int]):
    """A view of the sizes alone, for which the dictionary of paths and sizes need not be built."""

    def __init__(self, mapping: SizesByPath, files: pa.Table) -> None:
        super().__init__(mapping)
        self._files = files

    def __iter__(self) -> Iterator[int]:
        return (row["size"] for row in _in_slices(self._files.select(["size"])))


class _Growing:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.size_bytes = 0


def _packed(files: pa.Table, chosen: Sequence[int], most_bytes: int) -> list[Bin]:
    """Pack the chosen files of each partition into bins, in the order in which the files were written."""
    numbers = int64s(list(chosen))
    some = files.select(["partition_values", "size", "modification_time"]).take(numbers)
    partitions, codes = dict[tuple[tuple[str, str | None], ...], int](), array("q")
    for values in _in_slices(some.select(["partition_values"])):
        partition = tuple(sorted(dict(values["partition_values"] or ()).items()))
        codes.append(partitions.setdefault(partition, len(partitions)))
    times = pc.fill_null(combined(some["modification_time"]), ZERO)
    members = pa.table({"partition": int64s(codes), "time": times, "number": numbers, "size": combined(some["size"])})
    # Table.sort_by would load Acero, which takes 30 MiB.
    keys = [(name, "ascending") for name in ("partition", "time", "number")]
    ordered = members.take(pc.sort_indices(members, sort_keys=keys))
    of_partitions = itertools.groupby(_in_slices(ordered), operator.itemgetter("partition"))
    return [
        Bin(partition, tuple(each.numbers), each.size_bytes)
        for partition, (_, rows) in zip(partitions, of_partitions, strict=True)
        for each in _bins(((row["time"], row["number"], row["size"]) for row in rows), most_bytes)
    ]


def _in_slices(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows as Python objects, converted in slices because Python objects take many times the memory of Arrow
    rows."""
    return (row for batch in rows.to_batches(max_chunksize=_SLICE_ROWS) for row in batch.to_pylist())


def _bins(members: Iterable[tuple[int, int, int]], most_bytes: int) -> Iterator[_Growing]:
    bins: list[_Growing] = []
    for _, number, size in members:
        bin_ = next((each for each in bins[-_OPEN_BINS:] if each.size_bytes + size <= most_bytes), None)
        if bin_ is None:
            bin_ = _Growing()
            bins.append(bin_)
        bin_.numbers.append(number)
        bin_.size_bytes += size
    return iter(bins)


def in_batches(bins: Sequence[Bin], most_bytes: int) -> Iterator[list[Bin]]:
    """Group bins into commits of at most ``most_bytes``; a larger bin gets its own commit."""
    batch: list[Bin] = []
    size = 0
    for each in bins:
        if batch and size + each.size_bytes > most_bytes:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.size_bytes
    if batch:
        yield batch


# ------------------------------------------------------------------------------------------------- report


@dataclass(frozen=True, slots=True)
class OptimizeReport:
    """The result of an optimization, or with ``dry_run`` its plan.

    ``version``: the version on which the plan is based. ``considered``: the number of files in the selected partitions.
    ``bins`` and ``partitions``: the numbers of bins and partitions that were rewritten. ``removed`` and ``added``: the
    sizes of the removed and added files in bytes, keyed by the path in the log. ``deletion_vectors``: the number of
    deletion vectors that were removed. ``rows``: the number of rows copied. ``left``: the number of bins that were left
    out because another writer changed one of their files. ``commits``: the commits, oldest first.
    """

    table: str
    operation: str
    dry_run: bool
    version: int
    considered: int
    bins: int
    partitions: int
    removed: Mapping[str, int]
    added: Mapping[str, int]
    deletion_vectors: int = 0
    rows: int = 0
    left: int = 0
    commits: tuple[CommitResult, ...] = ()

    @property
    def removed_bytes(self) -> int:
        """The total size of the removed files."""
        return sum(self.removed.values())

    @property
    def added_bytes(self) -> int:
        """The total size of the added files."""
        return sum(self.added.values())

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON-compatible values; ``commits`` contains versions."""
        return {
            "table": self.table,
            "operation": self.operation,
            "dry_run": self.dry_run,
            "version": self.version,
            "considered": self.considered,
            "bins": self.bins,
            "partitions": self.partitions,
            "removed": dict(self.removed),
            "added": dict(self.added),
            "removed_bytes": self.removed_bytes,
            "added_bytes": self.added_bytes,
            "deletion_vectors": self.deletion_vectors,
            "rows": self.rows,
            "left": self.left,
            "commits": [commit.version for commit in self.commits],
        }

    @safe_repr
    def __repr__(self) -> str:
        """The fields of the report, with counts instead of lists of files and versions instead of commits."""
        return (
            f"OptimizeReport(table={self.table!r}, operation={self.operation!r}, dry_run={self.dry_run}, "
            f"version={self.version}, considered={self.considered}, bins={self.bins}, partitions={self.partitions}, "
            f"removed={len(self.removed)}, removed_bytes={self.removed_bytes}, added={len(self.added)}, "
            f"added_bytes={self.added_bytes}, deletion_vectors={self.deletion_vectors}, rows={self.rows}, "
            f"left={self.left}, commits={[commit.version for commit in self.commits]})"
        )

    def facts(self) -> list[tuple[str, str]]:
        """The report as (label, text) pairs."""
        verb = "would be rewritten" if self.dry_run else "rewritten"
        facts = [
            ("Table", self.table),
            ("Files", f"{len(self.removed):,} of {self.considered:,} {verb}, {self.removed_bytes:,} bytes"),
            ("Into", f"at least {self.bins:,} files" if self.dry_run else _files_text(self.added)),
        ]
        if self.deletion_vectors:
            facts.append(("Vectors", f"{self.deletion_vectors:,} deletion vectors"))
        if not self.dry_run:
            facts.append(("Rows", f"{self.rows:,}"))
        if self.left:
            facts.append(("Left", f"{self.left:,} groups of files that another writer changed meanwhile"))
        if self.commits:
            facts.append(("Versions", ", ".join(str(commit.version) for commit in self.commits)))
        return facts

    def __str__(self) -> str:
        return "\n".join(f"{name:<10}{value}" for name, value in self.facts())


def _files_text(files: Mapping[str, int]) -> str:
    return f"{len(files):,} files, {sum(files.values()):,} bytes"


def metrics(removed: Sequence[int], added: Sequence[int], deletion_vectors: int) -> dict[str, int]:
    """The operation metrics of a commit, with delta-spark's names, computed from the sizes of the files in the
    commit."""
    ordered = sorted(added) or [0]
    at = {"minFileSize": 0, "p25FileSize": 25, "p50FileSize": 50, "p75FileSize": 75}
    return {
        "numRemovedFiles": len(removed),
        "numRemovedBytes": sum(removed),
        "numAddedFiles": len(added),
        "numAddedBytes": sum(added),
        "numDeletionVectorsRemoved": deletion_vectors,
        **{name: ordered[len(ordered) * percent // 100] for name, percent in at.items()},
        "maxFileSize": ordered[-1],
    }
