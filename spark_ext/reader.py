"""Reading: the version is resolved here, the Parquet files are scanned by Spark natively."""

from __future__ import annotations

import datetime
import operator
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

import deltalog
from spark_ext import paths
from spark_ext.types import to_spark

_KEY, _FOUND = "__deltalog_file", "__deltalog_found"
# Above this number of directory trees one scan with a join is cheaper to plan than a union of scans.
_MAX_TREES = 8
_AT_VERSION = re.compile(r"(.+)@[vV](\d+)", re.DOTALL)
_AT_TIMESTAMP = re.compile(r"(.+)@(\d{17})", re.DOTALL)
_TIME_ONLY = re.compile(r"[Tt]?\d{1,2}:.*", re.DOTALL)
_SPECIAL = frozenset(["now", "today", "tomorrow", "yesterday", "epoch", "current_timestamp", "current_date"])
# What Spark's session settings must not change in a table whose log says exactly what is in it.
_SCAN_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
# How Spark must be able to read a value in a directory name for it to be the value in the log.
_HIVE_VALUES = {
    "string": re.compile(r".+", re.DOTALL),
    "byte": re.compile(r"-?\d{1,3}"),
    "short": re.compile(r"-?\d{1,5}"),
    "integer": re.compile(r"-?\d{1,10}"),
    "long": re.compile(r"-?\d{1,19}"),
    "boolean": re.compile(r"true|false"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
}


def read(spark: SparkSession) -> Reader:
    """A reader for tables; the counterpart of ``spark.read``."""
    return Reader(spark)


class Reader:
    """Options and ``load``. Options: ``versionAsOf`` (a number) or ``timestampAsOf`` (text, or an aware
    datetime); names are taken in any case, and an unknown one is an error."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._options: dict[str, Any] = {}

    def option(self, key: str, value: Any) -> Reader:
        """Set one option. Raises CallError for a name that is not known."""
        name = {"versionasof": "versionAsOf", "timestampasof": "timestampAsOf"}.get(key.lower())
        if name is None:
            raise deltalog.CallError(f"Unknown read option {key!r}. Known: timestampAsOf, versionAsOf.")
        if value is None:
            raise deltalog.CallError(
                f"The option {name} is None. Give a value, or leave it out for the latest version."
            )
        self._options[name] = value
        return self

    def options(self, **options: Any) -> Reader:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def load(self, path: str | os.PathLike[str]) -> DataFrame:
        """The table, or the version that the options or the path name (``path@v12``,
        ``path@yyyyMMddHHmmssSSS`` in the session time zone).

        The DataFrame is fixed to that version. Its columns, their order, types and nullability are the table's.
        Cost: the log is read once, and each data file is looked up by Spark once.
        """
        return frame(self._spark, self.snapshot(path))

    def snapshot(self, path: str | os.PathLike[str]) -> deltalog.Snapshot:
        """What ``load`` reads, as a deltalog Snapshot: version, timestamp, schema, files."""
        return resolve(self._spark, path, **{_PARAMETERS[k]: v for k, v in self._options.items()})


_PARAMETERS = {"versionAsOf": "version", "timestampAsOf": "timestamp"}


def resolve(
    spark: SparkSession,
    path: str | os.PathLike[str],
    version: Any = None,
    timestamp: Any = None,
    at_ms: int | None = None,
) -> deltalog.Snapshot:
    """The Snapshot of a path that may end in ``@v…`` or ``@…``, at a version, at what ``timestampAsOf`` may be,
    or at milliseconds since the epoch."""
    url = os.fspath(path)
    given = sum(each is not None for each in (version, timestamp, at_ms))
    if given > 1:
        raise deltalog.CallError("versionAsOf and timestampAsOf are both given. Give one of them.")
    suffix = None if _is_there(url) else _AT_VERSION.fullmatch(url) or _AT_TIMESTAMP.fullmatch(url)
    if suffix is not None:
        if given:
            raise deltalog.CallError(f"{url} names a version by its suffix, and so does the call. Give one of them.")
        url = suffix[1]
        if suffix.re is _AT_VERSION:
            version = suffix[2]
        else:
            timestamp = "{}{}{}{}-{}{}-{}{} {}{}:{}{}:{}{}.{}{}{}".format(*suffix[2])
    paths.local_directory(url)
    if timestamp is not None:
        at_ms = timestamp_ms(spark, timestamp)
    at_version = None if version is None else _version(version)
    table = deltalog.DeltaTable.open(url)
    if at_version is not None:
        return table.snapshot(version=at_version)
    return table.snapshot() if at_ms is None else table.snapshot(timestamp=at_ms)


def _is_there(url: str) -> bool:
    return "@" not in url or os.path.isdir(paths.local_directory(url))


def _version(value: Any) -> int:
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return operator.index(value)
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value):
        return int(value)
    raise deltalog.CallError(f"versionAsOf is {value!r}, but must be a version number such as 12.")


def timestamp_ms(spark: SparkSession, value: Any) -> int:
    """Milliseconds since the epoch of what ``timestampAsOf`` may be: an aware datetime, or text that Spark casts
    in the session time zone, cut down to the millisecond. Raises InvalidTimestampError. Cost: a Spark query for
    text."""
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise deltalog.InvalidTimestampError(
                f"{value!r} has no time zone. Make it aware, for example value.replace(tzinfo=timezone.utc), "
                "or give text, which is read in the session time zone."
            )
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        return (value - epoch) // datetime.timedelta(milliseconds=1)
    if not isinstance(value, str):
        raise deltalog.InvalidTimestampError(
            f"timestampAsOf is {value!r}. Give text such as '2026-01-31 10:00:00' or an aware datetime; "
            "for epoch milliseconds, DeltaTable.version_at(ms).version gives the versionAsOf."
        )
    text = value.strip()
    if text.lower() in _SPECIAL or text.lower().rstrip("()") in _SPECIAL:
        raise deltalog.InvalidTimestampError(
            f"timestampAsOf {value!r} means another moment at every call. For the latest version leave the "
            "option out; else give a date and a time such as '2026-01-31 10:00:00'."
        )
    if _TIME_ONLY.fullmatch(text):
        raise deltalog.InvalidTimestampError(
            f"timestampAsOf {value!r} has no date; Spark would take today's. Write the date in front of it."
        )
    if re.fullmatch(r"[+-]?\d+", text) and len(text) != 4:
        raise deltalog.InvalidTimestampError(
            f"timestampAsOf {value!r} looks like an epoch number, which Spark does not read as a timestamp. Give "
            "text such as '2026-01-31 10:00:00', or look the version up: DeltaTable.version_at(ms).version."
        )
    query = "select unix_micros(try_cast(:moment as timestamp)) as micros"
    micros = spark.sql(query, args={"moment": text}).collect()[0]["micros"]
    if micros is None:
        raise deltalog.InvalidTimestampError(
            f"timestampAsOf {value!r} is not a timestamp. Give text such as '2026-01-31', '2026-01-31 10:00:00.123' "
            "(session time zone) or '2026-01-31T10:00:00.123Z'."
        )
    return int(micros) // 1000


@dataclass(frozen=True, slots=True)
class _File:
    path: str  # absolute, decoded
    values: Mapping[str, str | None]  # "" is null already


def frame(spark: SparkSession, snapshot: deltalog.Snapshot) -> DataFrame:
    """A DataFrame over the files of a snapshot, with exactly its schema."""
    _refuse_unsupported(snapshot)
    schema = to_spark(snapshot.schema)
    files = _live_files(snapshot)
    if not files:
        return spark.createDataFrame([], schema)
    columns = list(snapshot.partition_columns)
    hidden = [f for f in files if paths.hidden_from_spark(os.path.basename(f.path))]
    trees = None if hidden or not columns else _hive_trees(snapshot, files)
    if trees is not None:
        found = _hive_scan(spark, schema, columns, trees)
    else:
        found = _listed_scan(spark, snapshot, schema, columns, files, hidden)
    return found.select(*[_exact(_column(f.name), f) for f in schema.fields])


def _refuse_unsupported(snapshot: deltalog.Snapshot) -> None:
    mode = snapshot.metadata.configuration.get("delta.columnMapping.mode", "none")
    if mode.lower() != "none":
        raise deltalog.UnsupportedFeatureError(
            f"The table uses column mapping (mode {mode}), which spark_ext cannot read yet.",
            features=("columnMapping",),
        )


def _live_files(snapshot: deltalog.Snapshot) -> list[_File]:
    """The files in the order of their paths, each once."""
    table = snapshot.files()
    if "deletion_vector" in table.column_names:
        vectors = table.column("deletion_vector")
        if vectors.null_count < len(vectors):
            raise deltalog.UnsupportedFeatureError(
                "The table has deletion vectors, which spark_ext cannot read yet.",
                features=("deletionVectors",),
            )
    found: dict[str, _File] = {}
    names, values = table.column("path").to_pylist(), table.column("partition_values").to_pylist()
    for name, pairs in zip(names, values, strict=True):
        path = snapshot.file_path(name)
        file = _File(path, {k: v or None for k, v in pairs or ()})
        # Two spellings of one path: Spark would return its rows twice.
        if found.setdefault(path, file).values != file.values:
            raise deltalog.CorruptTableError(
                f"Version {snapshot.version} lists the file {path} twice, with different partition values."
            )
    return [found[path] for path in sorted(found)]


# --- scans


def _scan(
    spark: SparkSession, schema: spark_types.StructType, options: Mapping[str, str], files: Sequence[_File]
) -> Any:
    reader = spark.read.schema(schema).options(**{**_SCAN_OPTIONS, **options})
    return reader.parquet(*[paths.literal(paths.uri(file.path)) for file in files])


def _listed_scan(
    spark: SparkSession,
    snapshot: deltalog.Snapshot,
    schema: spark_types.StructType,
    columns: Sequence[str],
    files: Sequence[_File],
    hidden: Sequence[_File],
) -> DataFrame:
    """Files in any layout: partition values are joined by the file's full path."""
    physical = spark_types.StructType([f for f in schema.fields if f.name not in columns])
    names = [f.name for f in physical.fields]
    skipped = {file.path for file in hidden}
    visible = [file for file in files if file.path not in skipped]
    parts = []
    if visible:
        scan = _scan(spark, physical, {}, visible)
        # A column called _metadata hides Spark's own one.
        shadowed = any(name.lower() == "_metadata" for name in names)
        key = F.input_file_name() if shadowed else F.col("_metadata.file_path")
        selected = [_column(name) for name in names]
        parts.append(scan.select(*selected, key.alias(_KEY)) if columns else scan)
    if hidden:
        parts.append(_arrow_scan(spark, snapshot, physical, bool(columns), hidden))
    found = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    if not columns:
        return found
    found = found.join(F.broadcast(_values(spark, schema, columns, files)), _KEY, "left")
    missing = F.raise_error(F.concat(F.lit("DELTALOG: no partition values for file "), F.col(_KEY)))
    typed = [
        F.when(F.col(_FOUND).isNull(), missing).otherwise(F.col(_value_name(i))).alias(name, metadata=f.metadata)
        for i, name in enumerate(columns)
        for f in schema.fields
        if f.name == name
    ]
    return found.select(*[_column(name) for name in names], *typed)


def _values(
    spark: SparkSession, schema: spark_types.StructType, columns: Sequence[str], files: Sequence[_File]
) -> DataFrame:
    """File key -> typed partition values, small enough to be broadcast."""
    rows: list[tuple[str | None, ...]] = []
    for file in files:
        values = tuple(file.values.get(name) for name in columns)
        rows.extend((key, *values) for key in paths.file_keys(file.path))
    fields = [_KEY, *(f"{_value_name(i)}_text" for i in range(len(columns)))]
    text = spark.createDataFrame(
        rows, spark_types.StructType([spark_types.StructField(n, spark_types.StringType()) for n in fields])
    )
    typed = [F.col(_KEY), F.lit(True).alias(_FOUND)]
    for i, name in enumerate(columns):
        raw = F.col(f"{_value_name(i)}_text")
        value = F.expr(f"try_cast({_value_name(i)}_text as {schema[name].dataType.simpleString()})")
        wrong = F.raise_error(
            F.concat(
                F.lit(f"DELTALOG: partition column {name} has the value "),
                raw,
                F.lit(", which is not of its type"),
            )
        )
        typed.append(F.coalesce(value, F.when(raw.isNotNull(), wrong)).alias(_value_name(i)))
    return text.select(*typed)


def _value_name(index: int) -> str:
    return f"__deltalog_value_{index}"


def _arrow_scan(
    spark: SparkSession,
    snapshot: deltalog.Snapshot,
    schema: spark_types.StructType,
    with_key: bool,
    files: Sequence[_File],
) -> DataFrame:
    """Files whose names Spark would skip, read by Arrow in Spark's Python workers."""
    wanted = pa.schema([snapshot.schema.to_arrow().field(f.name) for f in schema.fields])
    if with_key:
        schema = spark_types.StructType([*schema.fields, spark_types.StructField(_KEY, spark_types.StringType())])
    rows = [(file.path, paths.file_keys(file.path)[0]) for file in files]
    listed = spark.createDataFrame(rows, f"path string, {_KEY} string").repartition(min(len(rows), 64))

    def batches(inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Runs in a worker, which may have pyarrow only: nothing from outside but `wanted` and `with_key`.
        import pyarrow
        import pyarrow.parquet

        for each in inputs:
            for path, key in zip(each.column(0).to_pylist(), each.column(1).to_pylist(), strict=True):
                for batch in pyarrow.parquet.ParquetFile(path).iter_batches(65536):
                    have = {
                        name.lower(): column for name, column in zip(batch.schema.names, batch.columns, strict=True)
                    }
                    arrays = [
                        have[f.name.lower()].cast(f.type)
                        if f.name.lower() in have
                        else pyarrow.nulls(len(batch), f.type)
                        for f in wanted
                    ]
                    names = [f.name for f in wanted]
                    if with_key:
                        arrays.append(pyarrow.array([key] * len(batch), pyarrow.string()))
                        names.append("__deltalog_file")
                    yield pyarrow.RecordBatch.from_arrays(arrays, names)

    try:
        return listed.mapInArrow(batches, schema)
    except ImportError as error:
        raise deltalog.UnsupportedFeatureError(
            f"Spark skips files with names like {os.path.basename(files[0].path)!r}; to read them otherwise it "
            f"needs pandas and pyarrow: pip install 'deltalog[spark]' pandas. ({error})",
            features=("hidden data files",),
        ) from error


# --- Hive layout


_Tree = tuple[str, tuple[str, ...]]  # the directory above, and directory keys that are no columns


def _hive_trees(snapshot: deltalog.Snapshot, files: Sequence[_File]) -> dict[_Tree, list[_File]] | None:
    """The files by directory tree, when Spark's own partition discovery gives the values of the log.

    None when a path disagrees with the log, has another layout, or holds a type that Spark reads otherwise
    (timestamps: by the session time zone; floats).
    """
    columns = list(snapshot.partition_columns)
    patterns = []
    for name in columns:
        data_type = snapshot.schema.field(name).data_type
        if isinstance(data_type, deltalog.DecimalType):
            # Spark takes the digits and drops the point: only a value written with the full scale is itself.
            whole, scale = max(data_type.precision - data_type.scale, 1), data_type.scale
            patterns.append(re.compile(rf"-?\d{{1,{whole}}}" + (rf"\.\d{{{scale}}}" if scale else "")))
        elif str(data_type) in _HIVE_VALUES:
            patterns.append(_HIVE_VALUES[str(data_type)])
        else:
            return None
    taken = {f.name.lower() for f in snapshot.schema.fields}
    trees: dict[_Tree, list[_File]] = {}
    for file in files:
        parents = os.path.dirname(file.path).split("/")
        own = parents[len(parents) - len(columns) :]
        if len(own) != len(columns) or not all(
            _says(segment, name, file.values.get(name), pattern)
            for segment, name, pattern in zip(own, columns, patterns, strict=True)
        ):
            return None
        above = parents[: len(parents) - len(columns)]
        keys: list[str] = []
        while above and re.fullmatch(r"[^=]+=.+", above[-1]):
            keys.insert(0, above.pop().split("=", 1)[0])
        folded = [key.lower() for key in keys]
        if not above or len(set(folded)) != len(folded) or taken & set(folded):
            return None
        trees.setdefault(("/".join(above) or "/", tuple(keys)), []).append(file)
        if len(trees) > _MAX_TREES:
            return None
    return trees


def _says(segment: str, name: str, value: str | None, pattern: re.Pattern[str]) -> bool:
    key, separator, text = segment.partition("=")
    if not separator or key != name:
        return False
    if text == paths.HIVE_NULL:
        return value is None
    return value is not None and paths.hive_unescape(text) == value and pattern.fullmatch(value) is not None


def _hive_scan(
    spark: SparkSession,
    schema: spark_types.StructType,
    columns: Sequence[str],
    trees: Mapping[_Tree, Sequence[_File]],
) -> DataFrame:
    """One scan for each tree; Spark prunes partitions in them. Keys that are no columns are read as text."""
    found: DataFrame | None = None
    for (base, keys), files in sorted(trees.items()):
        extra = [spark_types.StructField(key, spark_types.StringType()) for key in keys]
        scan = _scan(
            spark,
            spark_types.StructType([*schema.fields, *extra]),
            {"basePath": paths.uri(base)},
            files,
        ).select(*[_column(f.name) for f in schema.fields])
        found = scan if found is None else found.unionByName(scan)
    assert found is not None
    return found


# --- the exact schema


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _exact(column: Column, field: spark_types.StructField) -> Column:
    """The column with the field's nullability, which Spark's file sources drop, and its metadata."""
    value = _nested(column, field.dataType)
    if not field.nullable:
        value = _not_null(value, field.dataType, field.name)
    return value.alias(field.name, metadata=field.metadata)


def _nested(column: Column, data_type: spark_types.DataType) -> Column:
    """The value with NOT NULL restored inside of it; untouched, so that Spark can prune, where there is none."""
    if not _has_not_null(data_type):
        return column
    if isinstance(data_type, spark_types.StructType):
        fields = [_exact(column.getField(f.name), f) for f in data_type.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(data_type, spark_types.ArrayType):
        element, contains_null = data_type.elementType, data_type.containsNull

        def each(item: Column) -> Column:
            value = _nested(item, element)
            return value if contains_null else _not_null(value, element, "element")

        return F.transform(column, each)
    assert isinstance(data_type, spark_types.MapType)
    key_type, value_type, value_null = data_type.keyType, data_type.valueType, data_type.valueContainsNull
    if _has_not_null(key_type):
        column = F.transform_keys(column, lambda key, _: _nested(key, key_type))

    def every(_: Column, item: Column) -> Column:
        value = _nested(item, value_type)
        return value if value_null else _not_null(value, value_type, "value")

    return F.transform_values(column, every)


def _has_not_null(data_type: spark_types.DataType) -> bool:
    if isinstance(data_type, spark_types.StructType):
        return any(not f.nullable or _has_not_null(f.dataType) for f in data_type.fields)
    if isinstance(data_type, spark_types.ArrayType):
        return not data_type.containsNull or _has_not_null(data_type.elementType)
    if isinstance(data_type, spark_types.MapType):
        inner = _has_not_null(data_type.keyType) or _has_not_null(data_type.valueType)
        return inner or not data_type.valueContainsNull
    return False


def _not_null(column: Column, data_type: spark_types.DataType, name: str) -> Column:
    # The last branch is never reached; a value that cannot be null makes the column NOT NULL for Spark.
    found_null = F.raise_error(F.lit(f"DELTALOG: column {name} is NOT NULL, but a data file has a NULL in it"))
    return F.coalesce(column, found_null, _some_value(data_type))


def _some_value(data_type: spark_types.DataType) -> Column:
    if isinstance(data_type, spark_types.StructType):
        return F.struct(*[_some_value(f.dataType).alias(f.name) for f in data_type.fields])
    if isinstance(data_type, spark_types.DecimalType):
        return F.expr("0." + "0" * data_type.scale + "BD" if data_type.scale else "0BD")
    name = data_type.typeName()
    return F.expr(_SOME_VALUES.get(name) or f"cast(0 as {data_type.simpleString()})")


_SOME_VALUES = {
    "array": "array()",
    "binary": "X''",
    "boolean": "false",
    "date": "date'1970-01-01'",
    "map": "map()",
    "string": "''",
    "timestamp": "timestamp'1970-01-01 00:00:00'",
    "timestamp_ntz": "timestamp_ntz'1970-01-01 00:00:00'",
}
