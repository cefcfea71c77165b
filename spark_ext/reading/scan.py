"""Scans of a table's files by Spark's own reader, joined with data from the log.

A broadcast join on the full path adds the log's data about a file to the file's rows. Another broadcast join, on file
and row number, drops deleted rows, or selects the rows that an operation changes. Filters and column pruning are pushed
down through both joins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

import deltalog
from spark_ext.reading import file_lists, partition_discovery
from spark_ext.reading.bounded_footers import MOST_ITEMS
from spark_ext.reading.file_entries import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, Entry, value
from spark_ext.reading.file_schema import Layout, read_schema, read_schemas
from spark_ext.reading.table_columns import exact, is_exact, named, quoted, typed
from spark_ext.session import paths
from spark_ext.session.stores import Storage

# Columns of a scan with positions: the file of each row, as one of ``paths.file_keys``, and the row's number in that
# file.
FILE, ROW = "__deltalog_file", "__deltalog_row"
# The outcome of a change for a row: the number of the clause that applies to the row, or STAYS.
OUTCOME, STAYS = "__deltalog_outcome", -1
_FILE, _ROW, _ENTRY, _FOUND = FILE, ROW, "__deltalog_entry", "__deltalog_found"
_FIRST_ID, _ROW_VERSION = "__deltalog_first_id", "__deltalog_row_version"
_KIND, _VERSION, _TIME = "__deltalog_kind", "__deltalog_version", "__deltalog_time"
_CHUNK, _BITS = "__deltalog_chunk", "__deltalog_bits"
_BITS_OF = "__deltalog_bits_of"
# Row positions are broadcast as bitmaps, one for each block of this many rows; the bitmaps take little more than one
# bit per row.
_CHUNK_ROWS = 4096
_MAX_CHUNK = 2**31
# Reader options that fix the settings by which a session could change the rows read from a table.
_SCAN_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
# The class name of Spark's Parquet source. If the format is named by its short name, a session's settings can select
# the V2 source (spark.sql.sources.useV1SourceList), which does not return file names.
_FORMAT = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
# If Spark receives more paths than this number, it looks up the paths in a job with one task per path.
_MAX_LISTED = 32
# Up to this number of combinations of partition values, a separate scan for each combination is cheaper to plan than a
# join.
_MAX_VALUES = 8
_MISSING = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.*?)\.(?: SQLSTATE|$)", re.DOTALL)
_CHANGE_FIELDS = (
    spark_types.StructField(CHANGE_TYPE, spark_types.StringType()),
    spark_types.StructField(COMMIT_VERSION, spark_types.LongType()),
    spark_types.StructField(COMMIT_TIMESTAMP, spark_types.TimestampType()),
)


def shown_schema(layout: Layout, changes: bool) -> spark_types.StructType:
    """The columns of ``scan``."""
    return spark_types.StructType([*layout.shown.fields, *(_CHANGE_FIELDS if changes else ())])


@dataclass(frozen=True)
class ExtraColumns:
    """Columns that a scan returns after the table's columns."""

    #: FILE and ROW.
    positions: bool = False
    #: Whether the scan returns the column FILE, where Spark provides it at no cost.
    files: bool = False
    #: If not empty, the scan also returns the column OUTCOME. The value is one of these numbers, taken from the entry
    #: of the row's file, or STAYS.
    outcomes: Sequence[int] = ()
    #: The names, in the data files, of the columns with the row ids and row commit versions; None if the scan does not
    #: return these.
    row_tracking: tuple[str, str] | None = None

    @property
    def fields(self) -> list[spark_types.StructField]:
        """The columns, in their order."""
        longs = [spark_types.StructField(name, spark_types.LongType()) for name in self.row_tracking or ()]
        outcome = [spark_types.StructField(OUTCOME, spark_types.IntegerType())] if self.outcomes else []
        at = [spark_types.StructField(FILE, spark_types.StringType())] if self.files or self.positions else []
        row = [spark_types.StructField(ROW, spark_types.LongType())] if self.positions else []
        return [*at, *row, *outcome, *longs]


_NOTHING = ExtraColumns()


def scan(
    spark: SparkSession,
    layout: Layout,
    entries: Sequence[Entry],
    storage: Storage,
    changes: bool = False,
    extra: ExtraColumns = _NOTHING,
) -> DataFrame:
    """The rows of the entries, with exactly the table's columns, followed by the columns of the change data feed (if
    ``changes``) and by ``extra``."""
    if not entries:
        shown = shown_schema(layout, changes)
        return spark.createDataFrame([], spark_types.StructType([*shown.fields, *extra.fields]))
    groups = _alike(layout, entries, storage)
    return _union([_Part(spark, layout, schema, group, storage, extra).rows() for schema, group in groups])


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.union(other), parts)


def _alike(
    layout: Layout, entries: Sequence[Entry], storage: Storage
) -> list[tuple[spark_types.StructType, list[Entry]]]:
    """Groups of entries that one scan can read, because they have the same stored schema and the same kind of row
    selection."""
    schemas = read_schemas(layout, {entry.path for entry in entries}, storage.source) if layout.needs_footers else {}
    one_for_all = read_schema(layout)
    found: dict[tuple[int, bool, bool, bool], tuple[spark_types.StructType, list[Entry]]] = {}
    for entry in entries:
        schema = schemas.get(entry.path, one_for_all)  # equal schemas are one object
        has_kind_column = entry.change is not None and entry.change.kind is None
        key = (id(schema), has_kind_column, entry.dropped is not None, entry.kept is not None)
        found.setdefault(key, (schema, []))[1].append(entry)
    return list(found.values())


class _Part:
    """A scan by Spark, joined with data from the log."""

    def __init__(
        self,
        spark: SparkSession,
        layout: Layout,
        schema: spark_types.StructType,
        entries: Sequence[Entry],
        storage: Storage,
        extra: ExtraColumns,
    ) -> None:
        self._spark = spark
        self._extra = extra
        self._layout = layout
        self._stored = schema  # ``layout.data_fields`` in the form in which the files store them
        self._entries = entries
        self._storage = storage
        first = entries[0]
        self._by_row = first.dropped is not None or first.kept is not None
        self._with_entries = self._by_row or bool(extra.outcomes)
        self._with_rows = self._with_entries or extra.positions or extra.row_tracking is not None
        self._has_changes = first.change is not None
        has_kind_column = first.change is not None and first.change.kind is None
        tracked = [spark_types.StructField(name, spark_types.LongType()) for name in extra.row_tracking or ()]
        kind = _CHANGE_FIELDS[:1] if has_kind_column else ()
        self._read = spark_types.StructType([*schema.fields, *kind, *tracked])
        self._kind = named(CHANGE_TYPE if has_kind_column else _KIND)

    def rows(self) -> DataFrame:
        # A column called _metadata hides Spark's hidden column, which contains the row numbers.
        has_no_rows = self._with_rows and _shadows_metadata(self._read)
        hidden = [e for e in self._entries if has_no_rows or paths.hidden_from_spark(e.path.rpartition("/")[2])]
        skipped = {entry.path for entry in hidden}
        visible = [entry for entry in self._entries if entry.path not in skipped] if hidden else self._entries
        fields = self._layout.partition_fields
        if self._has_changes or not fields:
            return self._of_listed(visible, hidden)
        trees, others = partition_discovery.trees(self._layout, visible)
        found = [self._of_tree(*each) for each in sorted(trees.items(), key=lambda item: item[0])]
        by_values: dict[tuple[str | None, ...], list[Entry]] = {}
        for entry in [*others, *hidden]:
            by_values.setdefault(tuple(value(entry.values, field.name) for field in fields), []).append(entry)
        if len(by_values) > _MAX_VALUES:
            return _union([*found, self._of_listed(others, hidden)])
        for texts, entries in by_values.items():
            seen, unseen = [e for e in entries if e.path not in skipped], [e for e in entries if e.path in skipped]
            found.append(self._of_listed(seen, unseen, texts))
        return _union(found)

    def _of_tree(self, tree: partition_discovery.Tree, entries: Sequence[Entry]) -> DataFrame:
        """Rows of files below one Hive-style directory; Spark discovers the partition values from the paths."""
        found = self._tree(tree, entries, with_keys=self._with_rows or self._extra.files)
        if self._with_entries or self._extra.row_tracking:
            found = self._with_log_data(found, entries, ())
        found = self._by_positions(found, entries)
        pairs = zip(self._layout.partition_fields, partition_discovery.discovered(self._layout), strict=True)
        values = {f.name: named(f.name) if f == as_read else typed(f.name, f) for f, as_read in pairs}
        return found.select(*self._shown(values))

    def _of_listed(
        self, visible: Sequence[Entry], hidden: Sequence[Entry], texts: Sequence[str | None] | None = None
    ) -> DataFrame:
        """Rows of files in any layout. ``texts``: the partition values as strings, if they are the same for all files;
        None: each file's values are added by a join."""
        fields, entries = self._layout.partition_fields, [*visible, *hidden]
        tracked = self._extra.row_tracking is not None
        with_log_data = self._with_entries or self._has_changes or tracked or (bool(fields) and texts is None)
        found = self._listed(visible, hidden, with_log_data or self._with_rows or self._extra.files)
        if with_log_data:
            found = self._with_log_data(found, entries, fields if texts is None else ())
        found = self._by_positions(found, entries)
        values = {field.name: named(_value_name(i)) for i, field in enumerate(fields)}
        if texts is not None:
            # The partition values are constants, so Spark drops the whole scan if a condition excludes them. The
            # columns are nullable, like all columns of a join; the table's nullability is applied later.
            literals = (F.nullif(F.lit(text).cast("string"), F.lit(None).cast("string")) for text in texts)
            constants = [literal.alias(_value_name(i)) for i, literal in enumerate(literals)]
            found = found.select("*", *constants)
            values = {field.name: typed(_value_name(i), field) for i, field in enumerate(fields)}
        return found.select(*self._shown(values))

    def _shown(self, partitions: Mapping[str, Column]) -> Iterator[Column | str]:
        """The columns of the DataFrame. They are names where possible, since PySpark makes a dozen JVM calls for a
        Column object, but only one for a name."""
        layout = self._layout
        stored = {f.name: s for f, s in zip(layout.data_fields, self._stored.fields, strict=True)}
        for field, shown in zip(layout.schema.fields, layout.shown.fields, strict=True):
            if field.name in stored and is_exact(stored[field.name], shown):
                yield quoted(field.name)
                continue
            if field.name in stored:
                column, have = named(stored[field.name].name), stored[field.name].dataType
            else:
                column, have = partitions[layout.physical_name(field)], field.dataType
            yield exact(column, have, shown)
        if self._has_changes:
            for column, field in zip((self._kind, named(_VERSION), named(_TIME)), _CHANGE_FIELDS, strict=True):
                yield column.alias(field.name)
        if self._extra.files or self._extra.positions:
            yield FILE
        if self._extra.positions:
            yield ROW
        if self._extra.outcomes:
            yield OUTCOME
        if self._extra.row_tracking is not None:
            row_id, version = self._extra.row_tracking
            yield F.coalesce(named(row_id), named(_FIRST_ID) + named(_ROW)).alias(row_id)
            yield F.coalesce(named(version), named(_ROW_VERSION)).alias(version)

    # --- scans

    def _tree(self, tree: partition_discovery.Tree, entries: Sequence[Entry], with_keys: bool) -> DataFrame:
        """A scan of files under one Hive directory. Keys in directory names that are not columns of the table are read
        as strings and then dropped."""
        shown = [*self._read.fields, *partition_discovery.discovered(self._layout)]
        extra = [spark_types.StructField(key, spark_types.StringType()) for key in tree[1]]
        columns = [*[quoted(field.name) for field in shown], *(self._keys() if with_keys else ())]
        return self._scan(spark_types.StructType([*shown, *extra]), tree, entries, columns)

    def _listed(self, visible: Sequence[Entry], hidden: Sequence[Entry], with_keys: bool) -> DataFrame:
        """A scan of files in any layout."""
        parts = []
        if visible:
            columns = [*[quoted(field.name) for field in self._read.fields], *(self._keys() if with_keys else ())]
            parts.append(self._scan(self._read, None, visible, columns))
        if hidden:
            names = sorted({entry.path for entry in hidden})
            parts.append(_arrow_scan(self._spark, self._read, names, self._storage, with_keys, self._with_rows))
        return _union(parts)

    def _scan(
        self,
        schema: spark_types.StructType,
        tree: partition_discovery.Tree | None,
        entries: Sequence[Entry],
        columns: Sequence[Column | str],
    ) -> DataFrame:
        """A DataFrame of ``columns``, read from the files of the entries. If there is a directory tree, Spark discovers
        the partition values."""
        files = _once(entries)

        def reader(options: Mapping[str, str]) -> DataFrameReader:
            return (
                self._spark.read.schema(schema)
                .options(**{**_SCAN_OPTIONS, **self._storage.settings, **options})
                .format(_FORMAT)
            )

        if len(files) > _MAX_LISTED or self._storage.is_remote:
            found = file_lists.scan(self._spark, reader, files, columns, discovers=tree is not None)
            if found is not None:
                return found
        file_lists.check_not_empty(files)
        options = {} if tree is None else partition_discovery.read_options(tree)
        try:
            found = reader(options).load([paths.literal(paths.uri(entry.path)) for entry in files])
        except AnalysisException as error:
            missing = _MISSING.search(str(error))
            if missing is None:
                raise
            raise file_lists.missing_file(missing[1]) from error
        return found.select(*columns)

    def _keys(self) -> list[Column]:
        key = F.input_file_name() if _shadows_metadata(self._read) else F.col("_metadata.file_path")
        row = [F.col("_metadata.row_index").alias(_ROW)] if self._with_rows else []
        return [key.alias(_FILE), *row]

    # --- the log's data on the files

    def _with_log_data(
        self, found: DataFrame, entries: Sequence[Entry], fields: Sequence[spark_types.StructField]
    ) -> DataFrame:
        """Join the rows with the log's data about their files, including the partition values of ``fields``. If a file
        has several entries, its rows are returned once per entry."""
        rows: list[tuple[object, ...]] = []
        for number, entry in enumerate(entries):
            change = (entry.change.kind, entry.change.version, entry.change.timestamp_ms) if entry.change else ()
            values = [value(entry.values, field.name) for field in fields]
            ids = (entry.first_row_id, entry.row_version) if self._extra.row_tracking else ()
            rows.extend((key, number, *change, *values, *ids) for key in paths.file_keys(entry.path))
        types = [f"{_FILE} string", f"{_ENTRY} int"]
        if self._has_changes:
            types += [f"{_KIND} string", f"{_VERSION} long", f"{_TIME} long"]
        types += [f"{_value_name(i)} string" for i in range(len(fields))]
        types += [f"{_FIRST_ID} long", f"{_ROW_VERSION} long"] if self._extra.row_tracking else []
        log_data = self._spark.createDataFrame(rows, ", ".join(types)).select(
            _FILE, F.lit(True).alias(_FOUND), _ENTRY, *self._change_columns(),
            *[typed(_value_name(i), field).alias(_value_name(i)) for i, field in enumerate(fields)],
            *([_FIRST_ID, _ROW_VERSION] if self._extra.row_tracking else []),
        )  # fmt: skip
        joined = found.join(F.broadcast(log_data), _FILE, "left")
        unknown = F.raise_error(F.concat(F.lit("DELTALOG: the log has no file "), named(_FILE)))
        names = [name for name in log_data.columns if name not in (_FILE, _FOUND)]
        checked = [F.when(named(_FOUND).isNull(), unknown).otherwise(named(name)).alias(name) for name in names]
        return joined.select(*[named(name) for name in found.columns], *checked)

    def _change_columns(self) -> list[Column]:
        if not self._has_changes:
            return []
        return [named(_KIND), named(_VERSION), F.timestamp_millis(named(_TIME)).alias(_TIME)]

    def _by_positions(self, found: DataFrame, entries: Sequence[Entry]) -> DataFrame:
        """The rows that the entries select by position, with the column OUTCOME if ``ExtraColumns`` asks for it."""
        if self._by_row:
            found = self._chosen(found, entries)
        return self._with_outcomes(found, entries) if self._extra.outcomes else found

    def _chosen(self, found: DataFrame, entries: Sequence[Entry]) -> DataFrame:
        """The rows at the positions ``kept``, or all except the rows at ``dropped``."""
        rows = [
            (number, chunk, words)
            for number, entry in enumerate(entries)
            for chunk, words in chunks(entry.dropped if entry.dropped is not None else entry.kept or BitMap64())
        ]
        bits = self._spark.createDataFrame(rows, f"{_BITS_OF} int, {_CHUNK} int, {_BITS} array<long>")
        dropped = self._entries[0].dropped is not None
        return found.join(F.broadcast(bits), _in_chunk() & _is_set(_BITS), "left_anti" if dropped else "left_semi")

    def _with_outcomes(self, found: DataFrame, entries: Sequence[Entry]) -> DataFrame:
        """The rows with OUTCOME. All bitmaps of a chunk, one for each outcome, are in one row, so that the join does
        not multiply rows."""
        outcomes = self._extra.outcomes
        words: dict[tuple[int, int], list[list[int] | None]] = {}
        for number, entry in enumerate(entries):
            for place, outcome in enumerate(outcomes):
                for chunk, of_chunk in chunks((entry.outcomes or {}).get(outcome, BitMap64())):
                    words.setdefault((number, chunk), [None] * len(outcomes))[place] = of_chunk
        names = [f"{_BITS}_{place}" for place in range(len(outcomes))]
        types = ", ".join([f"{_BITS_OF} int", f"{_CHUNK} int", *(f"{name} array<long>" for name in names)])
        bits = self._spark.createDataFrame([(*key, *each) for key, each in words.items()], types)
        joined = found.join(F.broadcast(bits), _in_chunk(), "left")
        outcome = F.lit(STAYS)
        for number, name in zip(outcomes, names, strict=True):
            outcome = F.when(_is_set(name), F.lit(number)).otherwise(outcome)
        return joined.select(*map(quoted, found.columns), outcome.alias(OUTCOME))


def _in_chunk() -> Column:
    return F.expr(f"{_ENTRY} = {_BITS_OF} AND cast({_ROW} div {_CHUNK_ROWS} as int) = {_CHUNK}")


def _is_set(bits: str) -> Column:
    """Whether the row's bit is set in a bitmap column that ``chunks`` encoded."""
    word, bit = f"cast({_ROW} div 64 % {_CHUNK_ROWS // 64} as int)", f"cast({_ROW} % 64 as int)"
    return F.expr(f"getbit({bits}[{word}], {bit}) = 1")


def chunks(positions: BitMap64) -> Iterator[tuple[int, list[int]]]:
    """Row positions as bitmaps, one for each chunk of 4096 rows: the number of the chunk, and 64 signed 64-bit words,
    lowest bit first."""
    at = pa.array(positions.to_array(), pa.uint64())
    # Unsigned scalars: with Python numbers the results would be signed.
    one, six, low = (pa.scalar(number, pa.uint64()) for number in (1, 6, 63))
    word, bit = pc.shift_right(at, six), pc.shift_left(one, pc.bit_wise_and(at, low))
    # Each bit occurs at most once in a word; therefore the sum of the bits equals their bitwise OR.
    sums = pa.table({"word": word, "bit": bit}).group_by("word").aggregate([("bit", "sum")]).sort_by("word")
    pairs = zip(sums["word"].to_pylist(), sums["bit_sum"].cast(pa.int64(), safe=False).to_pylist(), strict=True)
    for chunk, group in groupby(pairs, lambda pair: pair[0] // (_CHUNK_ROWS // 64)):
        if chunk >= _MAX_CHUNK:
            return  # no file has that many rows
        words = [0] * (_CHUNK_ROWS // 64)
        for number, bits in group:
            words[number % (_CHUNK_ROWS // 64)] = bits
        yield chunk, words


def _once(entries: Sequence[Entry]) -> list[Entry]:
    """One entry per file, sorted by path; if a path occurred twice, Spark would return its rows twice."""
    return sorted({entry.path: entry for entry in entries}.values(), key=lambda entry: entry.path)


def _shadows_metadata(schema: spark_types.StructType) -> bool:
    return any(field.name.lower() == "_metadata" for field in schema.fields)


def _value_name(index: int) -> str:
    return f"__deltalog_value_{index}"


def _arrow_scan(
    spark: SparkSession,
    schema: spark_types.StructType,
    names: Sequence[str],
    storage: Storage,
    with_keys: bool,
    with_rows: bool,
) -> DataFrame:
    """A scan in Python workers, with Arrow, of files that Spark cannot scan. The result contains the columns, the file
    key (``with_keys``) and the row number (``with_rows``)."""
    wanted = list(deltalog.schema.StructType.from_json(schema.json()).to_arrow())
    keys = [spark_types.StructField(_FILE, spark_types.StringType())] if with_keys else []
    keys += [spark_types.StructField(_ROW, spark_types.LongType())] if with_rows else []
    rows = [(path, paths.file_keys(path)[0]) for path in names]
    listed = spark.createDataFrame(rows, f"path string, {_FILE} string").repartition(min(len(rows), 64))
    columns = [*(field.name for field in schema.fields), *(field.name for field in keys)]
    source, most_items = storage.source, MOST_ITEMS

    def batches(inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Runs in a Python worker. If the table is on a disk, the worker may lack spark_ext and deltalog, so the
        # function must not refer to any package except pyarrow.
        import pyarrow
        import pyarrow.parquet

        def fitted(
            stored: Sequence[str], arrays: Sequence[pa.Array], fields: Sequence[pa.Field], rows: int
        ) -> list[pa.Array]:
            have = {name.lower(): array for name, array in zip(stored, arrays, strict=True)}
            have.update(zip(stored, arrays, strict=True))
            found = ((have.get(f.name, have.get(f.name.lower())), f.type) for f in fields)
            return [pyarrow.nulls(rows, kind) if array is None else converted(array, kind) for array, kind in found]

        def converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
            if not (pyarrow.types.is_struct(kind) and pyarrow.types.is_struct(array.type)):
                return array.cast(kind)
            names = [field.name for field in array.type.fields]
            children = fitted(names, array.flatten(), kind.fields, len(array))
            return pyarrow.StructArray.from_arrays(children, fields=kind.fields, mask=array.is_null())

        for each in inputs:
            for path, key in zip(each.column(0).to_pylist(), each.column(1).to_pylist(), strict=True):
                start = 0
                file = pyarrow.parquet.ParquetFile(
                    source(path), coerce_int96_timestamp_unit="us", thrift_container_size_limit=most_items
                )
                for batch in file.iter_batches(65536):
                    arrays = fitted(batch.schema.names, batch.columns, wanted, len(batch))
                    if with_keys:
                        arrays.append(pyarrow.repeat(key, len(batch)))
                    if with_rows:
                        arrays.append(pyarrow.array(range(start, start + len(batch)), pyarrow.int64()))
                    start += len(batch)
                    yield pyarrow.RecordBatch.from_arrays(arrays, columns)

    try:
        return listed.mapInArrow(batches, spark_types.StructType([*schema.fields, *keys]))
    except ImportError as error:
        raise deltalog.UnsupportedFeatureError(
            f"Spark skips files with names like {os.path.basename(names[0])!r}; reading them in Python workers "
            f"needs pandas and pyarrow: pip install 'deltalog[spark]'. ({error})",
            features=("hidden data files",),
        ) from error
