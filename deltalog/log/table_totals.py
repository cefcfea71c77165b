"""The totals of a version's live files (number, size in bytes, histograms), and the computation of these totals after a
commit. Pure.

Spec: PROTOCOL.md#version-checksum-file-schema (with the histograms below it), #file-size-histogram-schema,
#deleted-record-counts-histogram-schema.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.codec import CommitActions

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalog import arrow_arrays
else:
    lazy_modules(__name__, "deltalog.arrow_arrays", pa="pyarrow")

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


def _steps(first: int, last: int, step: int, unit: int) -> list[int]:
    return [size * unit for size in range(first, last + 1, step)]


# The lower bounds of the bins for file sizes, in bytes. These bounds are the same as in delta-spark and the Delta
# kernels, which compare histograms bin by bin.
SIZE_BINS: tuple[int, ...] = (
    0, *(8 * _KIB << n for n in range(10)),
    *_steps(8, 40, 4, _MIB), *_steps(48, 120, 8, _MIB), *_steps(124, 144, 4, _MIB), *_steps(160, 576, 16, _MIB),
    *_steps(640, 1408, 64, _MIB), *_steps(1536, 2048, 128, _MIB), *_steps(2304, 4096, 256, _MIB),
    *(8 * _GIB << n for n in range(6)),
)  # fmt: skip
# If there are at least this many files, Arrow counts them, one bin at a time.
_MANY = 1000
# Lower bounds of the bins for the number of deleted rows per file.
DELETED_BINS: tuple[int, ...] = (0, *(10**n for n in range(8)), 2**31 - 1)


class FileSizes(msgspec.Struct, frozen=True):
    """The number of files (``counts``) and their total size in bytes (``sizes``) for each bin of SIZE_BINS."""

    counts: tuple[int, ...] = (0,) * len(SIZE_BINS)
    sizes: tuple[int, ...] = (0,) * len(SIZE_BINS)

    def changed(self, sizes: Sequence[int], sign: int) -> FileSizes:
        """The histogram with files of these sizes added (``sign`` 1) or removed (-1)."""
        if not sizes:
            return self
        counts, totals = list(self.counts), list(self.sizes)
        if len(sizes) >= _MANY:
            changes = enumerate(zip(*_binned(arrow_arrays.int64s(sizes), SIZE_BINS), strict=True))
            for at, (count, size) in changes:
                counts[at] += sign * count
                totals[at] += sign * size
            return FileSizes(tuple(counts), tuple(totals))
        for size in sizes:
            at = bisect.bisect_right(SIZE_BINS, size) - 1
            counts[at] += sign
            totals[at] += sign * size
        return FileSizes(tuple(counts), tuple(totals))

    def __add__(self, other: FileSizes) -> FileSizes:
        return FileSizes(_sums(self.counts, other.counts), _sums(self.sizes, other.sizes))

    @property
    def is_sound(self) -> bool:
        """Whether no bin of the histogram is negative; removing a file that was not live can make a bin negative."""
        return min(*self.counts, *self.sizes) >= 0


class Deletions(msgspec.Struct, frozen=True):
    """The number of deleted rows, the number of deletion vectors, and the number of files in each bin of DELETED_BINS
    (``counts``)."""

    num_records: int = 0
    num_vectors: int = 0
    counts: tuple[int, ...] = (0,) * len(DELETED_BINS)

    def changed(self, cardinalities: Sequence[int | None], sign: int) -> Deletions:
        """The totals after files were added (``sign`` 1) or removed (-1). ``cardinalities``: the cardinalities of the
        files' deletion vectors, None for a file without a deletion vector."""
        records, vectors, counts = self.num_records, self.num_vectors, list(self.counts)
        known = [cardinality for cardinality in cardinalities if cardinality is not None]
        counts[0] += sign * (len(cardinalities) - len(known))
        for cardinality in known:
            records += sign * cardinality
            vectors += sign
            counts[bisect.bisect_right(DELETED_BINS, cardinality) - 1] += sign
        return Deletions(records, vectors, tuple(counts))

    def __add__(self, other: Deletions) -> Deletions:
        return Deletions(
            self.num_records + other.num_records,
            self.num_vectors + other.num_vectors,
            _sums(self.counts, other.counts),
        )


def _sums(some: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(some, others, strict=True))


@dataclass(frozen=True, slots=True)
class Totals:
    """The number of live files and their total size in bytes. ``sizes`` and ``deletions`` are None if unknown."""

    num_files: int
    size_bytes: int
    sizes: FileSizes | None = field(default=None, repr=False)
    deletions: Deletions | None = field(default=None, repr=False)

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.num_files + other.num_files,
            self.size_bytes + other.size_bytes,
            None if self.sizes is None or other.sizes is None else self.sizes + other.sizes,
            None if self.deletions is None or other.deletions is None else self.deletions + other.deletions,
        )


NO_FILES = Totals(0, 0, FileSizes(), Deletions())


def totals_of(files: pa.Table) -> Totals:
    """The totals of live files, which are given as a table with the columns ``size`` and ``deletion_vector`` of
    FILES."""
    sizes = pc.fill_null(arrow_arrays.combined(files["size"]), arrow_arrays.ZERO)
    vectors = arrow_arrays.combined(files["deletion_vector"])
    cardinalities = pc.fill_null(
        pc.if_else(vectors.is_valid(), vectors.field("cardinality"), arrow_arrays.ZERO), arrow_arrays.ZERO
    )
    counts, totals = _binned(sizes, SIZE_BINS)
    deletions = Deletions(
        pc.sum(cardinalities, min_count=0).as_py() or 0,
        len(vectors) - vectors.null_count,
        _binned(cardinalities, DELETED_BINS)[0],
    )
    return Totals(len(sizes), sum(totals), FileSizes(counts, totals), deletions)


def _binned(values: Any, begins: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each bin, the number of ``values`` in it and their sum. ``begins``: the lower bounds of the bins."""
    counts, sums, limits = [0] * len(begins), [0] * len(begins), arrow_arrays.int64s(begins)
    low, high = pc.min_max(values).as_py().values()
    if low is not None:  # only the bins between the extremes are counted
        for at in range(bisect.bisect_right(begins, low) - 1, bisect.bisect_right(begins, high)):
            inside = pc.greater_equal(values, limits[at])
            if at + 1 < len(begins):
                inside = pc.and_(inside, pc.less(values, limits[at + 1]))
            found = values.filter(inside)
            counts[at], sums[at] = len(found), pc.sum(found, min_count=0).as_py()
    return tuple(counts), tuple(sums)


def maybe_again(commit: CommitActions) -> list[str]:
    """The paths of the files that a commit adds with dataChange=false, except those that it also removes. A file that
    is added without new rows may already be live and be added again, for example with new statistics; the file must be
    counted only once."""
    moved = [add.path for add in commit.adds if not add.data_change]
    removed = {remove.path for remove in commit.removes} if moved else ()
    return [path for path in moved if path not in removed]


def totals_after(totals: Totals | None, commit: CommitActions, new: Collection[str] = ()) -> Totals | None:
    """The totals after a commit, without reading files; None if they cannot be derived from its actions. ``new``: paths
    of files that were certainly not live before."""
    if totals is None or any(remove.size is None for remove in commit.removes):
        return None
    if any(path not in new for path in maybe_again(commit)):
        return None
    if not commit.adds and not commit.removes:
        return totals
    removed = [remove.size or 0 for remove in commit.removes]
    added = [add.size for add in commit.adds]
    sizes, deletions = totals.sizes, totals.deletions
    if sizes is not None:
        sizes = sizes.changed(added, 1).changed(removed, -1)
    if deletions is not None:
        before, after = (
            [None if file.deletion_vector is None else file.deletion_vector.cardinality for file in files]
            for files in (commit.removes, commit.adds)
        )
        deletions = deletions.changed(after, 1).changed(before, -1)
    found = Totals(
        totals.num_files + len(added) - len(removed),
        totals.size_bytes + sum(added) - sum(removed),
        sizes if sizes is None or sizes.is_sound else None,
        deletions if deletions is None or min(deletions.counts) >= 0 else None,
    )
    return found if min(found.num_files, found.size_bytes) >= 0 else None
