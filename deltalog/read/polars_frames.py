"""A scan as a polars LazyFrame: polars passes columns, a filter and a row limit to the scan, and receives DataFrames.

polars itself reads plain files on a local disk. It reads their deleted rows too, and these are then dropped by their
positions. All other files are read by deltalog.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyroaring import BitMap64

from deltalog.arrow_arrays import uint64s
from deltalog.errors import CallError, DeltaLogError, InvalidDataFileError
from deltalog.lazy_arrow import pc
from deltalog.parquet.file_reader import DataFile, partition_value, read_vector
from deltalog.parquet.plain_files import PlainFile, PlainFiles
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.char_varchar import has_char
from deltalog.protocol.schema import StructField, type_to_arrow
from deltalog.read.polars_conditions import condition
from deltalog.read.scan import Scan

if TYPE_CHECKING:
    import polars as pl

# Files are read together up to this total size, so that memory use is bounded; a file that is larger is read in
# batches.
_GROUP_BYTES = 256 << 20
_GROUP_FILES = 4096
# With a row limit, read this many files first, since they may already contain enough rows.
_FIRST_FILES = 1
_POSITION = "\0position"


@dataclass(frozen=True, slots=True)
class _Found:
    file: DataFile
    plain: PlainFile | None  # None: for deltalog to read


def lazy_frame(scan: Scan) -> pl.LazyFrame:
    """The rows of a scan. Nothing is read before the frame is collected. Raises CallError if polars is missing or
    older than 1.30."""
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError:
        raise CallError("scan_polars() needs polars 1.30 or newer: pip install 'polars>=1.30'.") from None
    schema = pl.DataFrame(scan.arrow_schema.empty_table()).schema

    def frames(
        columns: list[str] | None, predicate: pl.Expr | None, row_limit: int | None, _batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        names = scan.arrow_schema.names if columns is None else columns
        return _Reading(scan, names, predicate, row_limit).frames()

    return register_io_source(frames, schema=schema, is_pure=True)


class _Reading:
    """One collection of the frame. The limit on the number of rows is applied before the filter, as in polars."""

    def __init__(self, scan: Scan, names: Sequence[str], predicate: pl.Expr | None, row_limit: int | None) -> None:
        import polars as pl

        self._pl: Any = pl
        self._predicate = predicate
        self._row_limit = row_limit
        self._all = scan
        self._scan = scan.projected(names)
        self._names = list(names)
        partitioned = self._scan.partition_fields()
        self._partitioned = [(field, type_to_arrow(field.data_type)) for field in partitioned]
        by_log = {field.name for field in partitioned}
        stored = pa.schema([field for field in self._scan.arrow_schema if field.name not in by_log])
        self._schema: Any = pl.DataFrame(stored.empty_table()).schema
        usable = scan.where is None and len(stored) and "extra_columns" in inspect.signature(pl.scan_parquet).parameters
        usable = usable and not any(map(_is_pattern, self._names))
        self._plain: PlainFiles | None = self._scan.plain_files() if usable else None

    def frames(self) -> Iterator[pl.DataFrame]:
        left = self._row_limit
        for frame in self._unlimited():
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            # The filter is applied after the limit; without a limit, the filter was applied while reading.
            yield frame if left is None or self._predicate is None else frame.filter(self._predicate)
            if left == 0:
                return

    def _unlimited(self) -> Iterator[pl.DataFrame]:
        for group in self._groups():
            for is_plain, neighbours in itertools.groupby(group, lambda each: each.plain is not None):
                found = [*neighbours]
                yield from self._read_by_polars(found) if is_plain else self._read_by_us(found)

    def _files(self) -> Iterator[DataFile]:
        """The files to read; files in which the filter cannot be true are left out, unless a row limit is applied
        before the filter."""
        if self._predicate is not None and self._row_limit is None:
            with contextlib.suppress(DeltaLogError):
                # deltalog pads char(n) values, but polars compares them without padding.
                schema = self._all.snapshot.schema
                named = [field.name for field in schema.fields if not has_char(field)]
                implied = condition(self._predicate.meta.serialize(format="json"), named)
                if implied is not None:
                    return self._all.narrowed(implied).data_files()
        return self._all.data_files()

    def _groups(self) -> Iterator[list[_Found]]:
        """The files, in order, in groups that are read together."""
        most = _GROUP_FILES if self._row_limit is None else _FIRST_FILES
        group: list[_Found] = []
        size_bytes = 0
        for file in self._files():
            if group and (size_bytes + (file.size or 0) > _GROUP_BYTES or len(group) == most):
                yield group
                group, size_bytes, most = [], 0, min(most * 4, _GROUP_FILES)
            size_bytes += file.size or 0
            group.append(_Found(file, self._judged(file)))
        if group:
            yield group

    def _judged(self, file: DataFile) -> PlainFile | None:
        if self._plain is None:
            return None
        return self._plain.find(*self._scan.snapshot.reader.files.find(file.path))

    def _read_by_us(self, found: Sequence[_Found]) -> Iterator[pl.DataFrame]:
        for batch in self._scan.batches_of(each.file for each in found):
            frame = self._pl.from_arrow(batch.replace_schema_metadata(None))
            yield frame if self._predicate is None or self._row_limit is not None else frame.filter(self._predicate)

    def _read_by_polars(self, found: Sequence[_Found]) -> Iterator[pl.DataFrame]:
        frame = self._live(found)
        if self._row_limit is not None:
            frame = frame.head(self._row_limit)
        elif self._predicate is not None:
            frame = frame.filter(self._predicate)
        of_rows = self._partitions_of_rows(found)
        frame = frame.select(name for name in self._names if name not in of_rows)
        is_large = sum(each.file.size or 0 for each in found) > _GROUP_BYTES
        in_batches = is_large and hasattr(frame, "collect_batches")
        start = 0
        try:
            for part in frame.collect_batches(maintain_order=True) if in_batches else [frame.collect()]:
                if of_rows:
                    columns = [values.slice(start, part.height).alias(name) for name, values in of_rows.items()]
                    part = part.with_columns(columns).select(self._names)
                start += part.height
                yield part
        except (self._pl.exceptions.PolarsError, OSError) as error:
            if start:
                raise InvalidDataFileError(
                    f"{self._scan.snapshot.url}: polars cannot read {found[0].file.path}, or one of the data files "
                    f"that it reads together with it: {error} Restore it, or read a version without it.",
                    path=found[0].file.path,
                ) from error
            # deltalog can read files that polars cannot read. deltalog's error also names the missing or damaged file
            # more reliably.
            yield from self._read_by_us(found)

    def _live(self, found: Sequence[_Found]) -> Any:
        """The live rows of plain files, with their partition columns."""
        pl = self._pl
        plain = [each.plain for each in found if each.plain is not None]
        vectors = [each.file.deletion_vector for each in found if each.file.deletion_vector is not None]
        values = [] if self._is_unfiltered else self._partition_series(found)
        by_position = bool(vectors) or any(len(series) > 1 for series in values)
        # Even if all deleted rows come first, this many rows include enough live ones.
        most = None if self._row_limit is None else self._row_limit + sum(each.cardinality for each in vectors)
        frame = pl.scan_parquet(
            [file.path for file in plain],
            schema=self._schema,
            n_rows=most,
            row_index_name=_POSITION if by_position else None,
            hive_partitioning=False,
            glob=False,
            missing_columns="insert",
            extra_columns="ignore",
        )
        if vectors:
            mask = pl.concat([self._mask(each) for each in found])
            frame = frame.filter(_looked_up(pl, mask, None))
        if any(len(series) > 1 for series in values):
            counts = itertools.accumulate(file.rows for file in plain)
            starts = pl.Series([0, *counts][:-1], dtype=pl.UInt32)
            frame = frame.with_columns(_looked_up(pl, series, starts).alias(series.name) for series in values)
        else:
            frame = frame.with_columns(
                pl.lit(series.item(), dtype=series.dtype).alias(series.name) for series in values
            )
        return frame.drop(_POSITION) if by_position else frame

    @property
    def _is_unfiltered(self) -> bool:
        """Whether the files are read without applying the filter, so that all their rows are returned, in order."""
        return self._predicate is None or self._row_limit is not None

    def _partitions_of_rows(self, found: Sequence[_Found]) -> dict[str, Any]:
        """The partition columns of all live rows of some files, row by row; empty if a filter is applied while the
        files are read."""
        if not self._is_unfiltered or not self._partitioned:
            return {}
        ends = pa.array(itertools.accumulate(map(self._live_rows, found)), pa.int64())
        return {
            field.name: self._pl.from_arrow(pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, values)))
            for field, values in self._partition_values(found)
        }

    def _live_rows(self, found: _Found) -> int:
        assert found.plain is not None
        vector = found.file.deletion_vector
        if vector is None:
            return found.plain.rows
        return found.plain.rows - self._deleted(vector).range_cardinality(0, found.plain.rows)

    def _deleted(self, vector: DeletionVector) -> BitMap64:
        return read_vector(self._scan.snapshot.reader.files, vector)

    def _mask(self, found: _Found) -> Any:
        """Whether each row of a file is live."""
        assert found.plain is not None
        mask = self._pl.Series([True]).new_from_index(0, found.plain.rows)
        vector = found.file.deletion_vector
        if vector is None:
            return mask
        positions = self._pl.from_arrow(uint64s(self._deleted(vector).to_array()))
        return mask.scatter(positions.filter(positions < found.plain.rows), False)

    def _partition_series(self, found: Sequence[_Found]) -> list[Any]:
        """For each partition column, its values: one for each file, or only one if all files belong to the same
        partition."""
        columns = []
        for field, values in self._partition_values(found):
            columns.append(self._pl.from_arrow(values).alias(field.name))
        is_one = all(len(set(map(repr, series.to_list()))) == 1 for series in columns)
        return [series.head(1) for series in columns] if is_one else columns

    def _partition_values(self, found: Sequence[_Found]) -> Iterator[tuple[StructField, pa.Array]]:
        """For each partition column, its value in each file."""
        for field, arrow in self._partitioned:
            yield field, pa.array([partition_value(each.file, field, "none") for each in found], arrow)


def _is_pattern(name: str) -> bool:
    """Whether polars interprets a name as a pattern that can match several names."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def _looked_up(pl: Any, values: Any, starts: Any) -> Any:
    """The value for each row of a scan, looked up by the row's position or, with ``starts``, by the file that contains
    the row."""

    def at(positions: Any) -> Any:
        count = len(positions)
        if starts is None:
            if count and positions[-1] - positions[0] + 1 == count and positions.is_sorted():
                return values.slice(positions[0], count)
            return values.gather(positions)
        if not count:
            return values.clear()
        if positions.is_sorted():
            first, last = (starts.search_sorted(positions[end], side="right") - 1 for end in (0, -1))
            if first == last:
                return values.new_from_index(first, count)
        return values.gather(starts.search_sorted(positions, side="right") - 1)

    return pl.col(_POSITION).map_batches(at, return_dtype=values.dtype, is_elementwise=True)
