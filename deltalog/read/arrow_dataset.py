"""A scan as a pyarrow Dataset, for everything that takes one: pyarrow, DuckDB, polars, dask, pandas.

If Arrow itself can read all the files, the dataset consists of their paths. What the log says of each file, its
partition values and bounds, becomes the guarantee of the file's fragment; Arrow uses these guarantees to skip
fragments. Otherwise it is a Dataset whose scanner reads the files with deltalog; the guarantees of the fragments
determine which files it reads.

Spec: PROTOCOL.md#per-file-statistics.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from deltalog.errors import CallError, InvalidDataFileError
from deltalog.parquet.file_reader import DataFile, partition_value
from deltalog.parquet.plain_files import PlainFile
from deltalog.protocol.schema import type_to_arrow
from deltalog.read.file_bounds import FileBounds
from deltalog.read.scan import Scan

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_INSTEAD = "deltalog reads the files of this table: use the dataset's scanner, to_table or to_batches"


def arrow_dataset(scan: Scan) -> ds.Dataset:
    """The rows of a scan as a Dataset. Raises as ``Scan.batches``. Cost: as ``Scan.files`` with all statistics, and on
    a local disk 1 GET of each file's footer."""
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    files = [*scan.files_with_bounds()]
    plain = None if scan.where is not None else _all_plain(scan, [file for file, _ in files])
    if plain is None:
        return _scanning()(scan, files)
    disk, layout = LocalFileSystem(), ds.ParquetFileFormat()
    guarantees = Guarantees(scan)
    fragments = [
        layout.make_fragment(one.path, disk, guarantees.of_file(file, bounds))
        for one, (file, bounds) in zip(plain, files, strict=True)
    ]
    return ds.FileSystemDataset(fragments, scan.arrow_schema, layout, disk)


def _all_plain(scan: Scan, files: Sequence[DataFile]) -> list[PlainFile] | None:
    """The files, if Arrow reads each of them as deltalog does; else None."""
    judge, partitioned = scan.plain_files(), {field.name for field in scan.partition_fields()}
    # Arrow receives a partition value as an expression that guarantees it, and no expression can express that a value
    # is NaN.
    if judge is None or any(str(field.data_type) in ("float", "double") for field in scan.partition_fields()):
        return None
    found = []
    for file in files:
        plain = None if file.deletion_vector is not None else judge.find(*scan.snapshot.reader.files.find(file.path))
        if plain is None or not partitioned.isdisjoint(plain.columns):
            return None
        found.append(plain)
    return found


class Guarantees:
    """What is true for all rows of a file, as an Arrow expression on the columns of ``schema``, the scan's by default.
    A column of ``schema`` may have another type than in the table."""

    def __init__(self, scan: Scan, schema: pa.Schema | None = None) -> None:
        import pyarrow.compute as pc

        self._field: Callable[[str], Any] = pc.field
        self._scalar: Callable[[Any], Any] = pc.scalar
        self._true = pc.scalar(True)
        self._schema = scan.arrow_schema if schema is None else schema
        self._partitioned = [(field, type_to_arrow(field.data_type)) for field in scan.partition_fields()]
        self._mapping = scan.mapping
        # For each column with bounds: the column, and the type to which its bounds are cast (None if they have it).
        # False: the bounds have another order than the values.
        self._ordered: dict[str, tuple[Any, Any] | Literal[False]] = {}

    def of_file(self, file: DataFile, bounds: Sequence[FileBounds], names: Iterable[str] | None = None) -> Any:
        """The guarantee of a file, that is, what is known about the values in it, for all columns or only for
        ``names``."""
        wanted = None if names is None else frozenset(names)
        parts = []
        for column, arrow in self._partitioned:
            if wanted is not None and column.name not in wanted:
                continue
            value, field = partition_value(file, column, self._mapping), self._field(column.name)
            known = pa.scalar(value, arrow)
            parts.append(field.is_null() if value is None else field == self._cast(known, column.name))
        for bound in bounds:
            if wanted is None or bound.name in wanted:
                parts += self._of_bounds(bound)
        return functools.reduce(lambda one, other: one & other, parts) if parts else self._true

    def _of_bounds(self, bound: FileBounds) -> list[Any]:
        if bound.null_count is not None and bound.null_count == bound.rows:
            return [self._field(bound.name).is_null()]
        low, high = bound.low, bound.high
        if low is None and high is None:
            return []
        ordered = self._ordered.get(bound.name)
        if ordered is None:
            ordered = self._ordered[bound.name] = self._order(bound.name, (high if low is None else low).type)
        if not ordered:
            return []
        field, cast_to = ordered
        parts = []
        for value, compare in ((low, operator.ge), (high, operator.le)):
            if value is not None:
                with contextlib.suppress(pa.ArrowInvalid):  # a value that the other type does not have
                    parts.append(compare(field, value if cast_to is None else value.cast(cast_to)))
        return parts if bound.null_count == 0 else [part | field.is_null() for part in parts]

    def _order(self, name: str, of_bounds: pa.DataType) -> tuple[Any, Any] | Literal[False]:
        wanted = self._schema.field(name).type
        if not _same_order(of_bounds, wanted):
            return False
        return self._field(name), None if of_bounds.equals(wanted) else wanted

    def _cast(self, value: Any, name: str) -> Any:
        wanted = self._schema.field(name).type
        return self._scalar(value if value.type.equals(wanted) else value.cast(wanted))


def _same_order(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values have the same order in both types; as numbers and as text, they have not."""
    kinds = (pa.types.is_integer, pa.types.is_timestamp, lambda kind: kind in (pa.string(), pa.large_string()))
    return one.equals(other) or any(kind(one) and kind(other) for kind in kinds)


@functools.cache
def _scanning() -> type[ds.Dataset]:
    """The class of the pyarrow datasets whose rows deltalog reads. Created on first use, because importing
    pyarrow.dataset takes time."""
    import pyarrow.dataset as ds
    from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem

    class TableDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
        """A pyarrow dataset of the rows of a table at one version. Methods of pyarrow's dataset that would read without
        calling ``scanner`` raise an error."""

        def __init__(self, scan: Scan, files: Sequence[tuple[DataFile, Sequence[FileBounds]]]) -> None:
            refusing = PyFileSystem(FSSpecHandler(_Refusing()))
            layout = ds.ParquetFileFormat()
            # Where pyarrow's C++ code does not call scanner, it reads this file and fails, so it never returns wrong
            # rows.
            only = [layout.make_fragment(_INSTEAD, refusing)]
            super().__init__(only, scan.arrow_schema, layout, refusing)
            self._scan = scan
            self._listed = files
            self._pruning: dict[frozenset[str], Any] = {}

        def __reduce__(self) -> tuple[Any, ...]:
            return arrow_dataset, (self._scan,)

        @property
        def files(self) -> list[str]:
            table_files = self._scan.snapshot.reader.files
            return [table_files.location(file.path) for file, _ in self._listed]

        def filter(self, expression: Any) -> Any:
            return _Filtered(self, expression)

        def get_fragments(self, filter: Any = None) -> Any:
            raise CallError(f"{_INSTEAD}; its files are not fragments that pyarrow can read.")

        def replace_schema(self, schema: Any) -> Any:
            raise CallError(f"{_INSTEAD}; its schema is that of the table's version.")

        def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
            schema = self._scan.arrow_schema
            expressions = [*columns.values()] if isinstance(columns, Mapping) else []
            needed = set(() if isinstance(columns, Mapping) else schema.names if columns is None else columns)
            of_filter = _named_in([] if filter is None else [filter], schema.names)
            needed |= of_filter | _named_in(expressions, schema.names)
            names = [name for name in schema.names if name in needed] or schema.names[:1]
            chosen = self._files(filter, of_filter)
            scan = self._scan.projected(names)
            reader = pa.RecordBatchReader.from_batches(scan.arrow_schema, scan.batches_of(chosen))
            for ignored in ("fragment_scan_options", "cache_metadata", "fragment_readahead"):
                options.pop(ignored, None)
            options = {name: value for name, value in options.items() if value is not None}
            return ds.Scanner.from_batches(reader, columns=columns, filter=filter, **options)

        def _files(self, filter: Any, names: set[str]) -> list[DataFile]:
            """The files that may have a row for which the filter is true."""
            if filter is None:
                return [file for file, _ in self._listed]
            key = frozenset(names)
            if key not in self._pruning:
                disk, layout, guarantees = LocalFileSystem(), ds.ParquetFileFormat(), Guarantees(self._scan)
                fragments = [
                    layout.make_fragment(str(number), disk, guarantees.of_file(file, bounds, names))
                    for number, (file, bounds) in enumerate(self._listed)
                ]
                self._pruning[key] = ds.FileSystemDataset(fragments, self._scan.arrow_schema, layout, disk)
            left = self._pruning[key].get_fragments(filter)
            return [self._listed[number][0] for number in sorted(int(fragment.path) for fragment in left)]

    class _Filtered(TableDataset):
        """A dataset to which a filter is applied."""

        def __init__(self, dataset: TableDataset, expression: Any) -> None:
            super().__init__(dataset._scan, dataset._listed)
            self._inner, self._expression = dataset, expression

        def __reduce__(self) -> tuple[Any, ...]:
            return _filtered, (self._inner, self._expression)

        def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
            both = self._expression if filter is None else self._expression & filter
            return self._inner.scanner(columns, both, **options)

    return TableDataset


def _filtered(dataset: ds.Dataset, expression: Any) -> ds.Dataset:
    return dataset.filter(expression)


class _Refusing:
    """A stand-in for an fsspec file system; each of its calls raises an error."""

    protocol = "deltalog"

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise InvalidDataFileError(f"{_INSTEAD}.", path=None)

        return refuse


def _named_in(expressions: Iterable[Any], names: Sequence[str]) -> set[str]:
    """The columns that may occur in these expressions. A pyarrow expression does not report its columns; its text
    contains the names, some of them escaped, or positions."""
    texts = [str(each) for each in expressions]
    if any("FieldPath(" in text for text in texts):
        return set(names)
    return {name for name in names if texts and (not name.isidentifier() or any(name in text for text in texts))}
