"""Data files and files of deletion vectors, compared with what the log says of them: whether they exist, their sizes,
footers, and with ``deep`` their rows.

Spec: PROTOCOL.md#consistency-between-table-metadata-and-data-files, #per-file-statistics,
#deletion-vector-file-storage-format. A defect is a finding, never an error.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltalog.doctor.file_entries import Rules, as_value, statistics, vector_rule
from deltalog.doctor.findings import Finding, found
from deltalog.doctor.table_metadata import mapping_of, schema_of
from deltalog.errors import DeltaLogError, InvalidDataFileError, ObjectNotFoundError, StoreError, UnsafePathError
from deltalog.expressions.compile import CompiledExpression, compile_expression
from deltalog.parquet.file_reader import DataFile, FileLayout, read_file, read_vector
from deltalog.parquet.stats import chunks_by_path, null_count_of, value_bounds
from deltalog.protocol.actions import AddFile
from deltalog.protocol.column_mapping import lookup, physical_name
from deltalog.protocol.column_metadata import GENERATION_KEY
from deltalog.protocol.properties import CONSTRAINT_PREFIX
from deltalog.protocol.schema import (
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from deltalog.protocol.widening import is_widening
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles

_READ_ERRORS = (
    pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError, DeltaLogError
)  # fmt: skip
_EXACT = frozenset(["byte", "short", "integer", "long", "date"])
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_SECOND = 1_000_000  # in microseconds
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(slots=True)
class Counts:
    """How much was read."""

    footers: int = 0
    rows: int = 0


@dataclass(frozen=True)
class DataExamination:
    """Examines the live files of a version. ``rules``: of that version. ``version``: its number."""

    files: TableFiles
    rules: Rules
    version: int
    counts: Counts = field(default_factory=Counts)

    def examine(self, add: AddFile, footer: bool, rows: bool) -> Iterator[Finding]:
        """One live file. ``footer``: read it; ``rows``: read them, too."""
        try:
            store, path = self.files.find(add.path)
        except UnsafePathError:
            yield found("data-file-not-checked", "It lies outside of the table.", self.version, add.path)
            return
        try:
            meta = store.head(path)
        except StoreError as error:
            yield found("data-file-unreadable", str(error), self.version, add.path)
            return
        if meta is None:
            yield found("data-file-missing", "The file does not exist.", self.version, add.path)
            return
        is_whole = meta.size_bytes in (None, add.size)
        if not is_whole:
            text = f"It has {meta.size_bytes} bytes, and its add action says {add.size}."
            yield found("data-file-size-differs", text, self.version, add.path)
        broken = False
        for rule, message in self._vector(add):
            broken = True
            yield found(rule, message, self.version, add.path)
        if footer:
            for rule, message in self._footer(add, store, path):
                broken = broken or rule == "data-file-unreadable"
                yield found(rule, message, self.version, add.path)
        if rows and not broken:
            for rule, message in self._rows(add):
                yield found(rule, message, self.version, add.path)

    # -------------------------------------------------------------------------------- deletion vectors

    def _vector(self, add: AddFile) -> Iterator[tuple[str, str]]:
        vector = add.deletion_vector
        if vector is None or vector.storage_type == "i":  # an inline one was examined with its action
            return
        try:
            positions = read_vector(self.files, vector)
        except InvalidDataFileError as error:
            missing = isinstance(error.__cause__, ObjectNotFoundError)
            yield "vector-file-missing" if missing else vector_rule(error), str(error)
            return
        except (DeltaLogError, OSError) as error:
            yield "vector-unreadable", str(error)
            return
        records = statistics(add).num_records
        if records is not None and len(positions) and positions.max() >= records:
            yield "vector-outside-file", f"It deletes row {positions.max()} of {records}."

    # ----------------------------------------------------------------------------------------- footers

    @cached_property
    def _schema(self) -> StructType | None:
        return schema_of(self.rules.metadata)

    @cached_property
    def _columns(self) -> list[StructField]:
        """The columns that files hold."""
        partitioned = {name.lower() for name in self.rules.metadata.partition_columns}
        return [each for each in (self._schema or StructType()).fields if each.name.lower() not in partitioned]

    def _footer(self, add: AddFile, store: LogStore, path: str) -> Iterator[tuple[str, str]]:
        try:
            with contextlib.closing(store.open_input(path)) as source, pq.ParquetFile(source) as file:
                footer, stored = file.metadata, list(file.schema_arrow)
                self.counts.footers += 1
                yield from self._types(stored)
                yield from self._statistics(add, footer, {each.name.lower(): each.type for each in stored})
        except _READ_ERRORS as error:
            yield "data-file-unreadable", str(error)

    def _types(self, stored: list[pa.Field]) -> Iterator[tuple[str, str]]:
        mode = mapping_of(self.rules.metadata)
        find = lookup(mode)(stored)
        for column in self._columns:
            try:
                index = find(column)
            except DeltaLogError:
                continue
            if index is None:
                continue
            kind = stored[index].type
            if not fits(kind, column.data_type):
                yield "data-column-type-differs", f"{column.name} is {kind}, and in the schema {column.data_type}."

    def _statistics(self, add: AddFile, footer: Any, stored: Mapping[str, pa.DataType]) -> Iterator[tuple[str, str]]:
        known = statistics(add)
        vector = add.deletion_vector
        if known.num_records is not None and known.num_records != footer.num_rows:
            text = f"numRecords is {known.num_records}, and the file has {footer.num_rows} rows."
            yield "stats-contradict-footer", text
        elif vector is not None and vector.cardinality > footer.num_rows:
            yield "vector-outside-file", f"It deletes {vector.cardinality} rows of {footer.num_rows}."
        if vector is not None or not known.body:
            return  # bounds may be those of the rows that remain
        chunks = chunks_by_path(footer)
        is_tight = known.body.get("tightBounds") is not False
        for column, name in self._named():
            found_chunks = None if chunks is None else chunks.get((name.lower(),))
            if not found_chunks:
                continue
            nulls = null_count_of(found_chunks)
            own = _of(known.body, "nullCount", name)
            if nulls is not None and _is_count(own) and own != nulls and is_tight:
                yield "stats-contradict-footer", f"nullCount of {column.name} is {own}, and the file has {nulls} NULLs."
            bounds = value_bounds(found_chunks, column.data_type)
            if bounds is not None and _same_kind(stored.get(name.lower()), column.data_type):
                for slight, text in contradictions(known.body, name, column.data_type, bounds, is_tight):
                    yield "stats-rounded" if slight else "stats-contradict-footer", text

    def _named(self) -> list[tuple[StructField, str]]:
        """The columns and the names by which statistics have them."""
        mode, named = mapping_of(self.rules.metadata), []
        for column in self._columns:
            with contextlib.suppress(DeltaLogError):
                named.append((column, physical_name(column, mode)))
        return named

    # -------------------------------------------------------------------------------------------- rows

    def _rows(self, add: AddFile) -> Iterator[tuple[str, str]]:
        schema = self._schema
        if schema is None:
            return
        metadata = self.rules.metadata
        layout = FileLayout(schema, metadata.partition_columns, mapping_of(metadata))
        tally = _Tally(schema, self._checks)
        try:
            for batch in read_file(self.files, DataFile.of(add), layout):
                tally.take(pa.Table.from_batches([batch]))
        except _READ_ERRORS as error:
            yield "data-file-unreadable", str(error)
            return
        self.counts.rows += tally.rows
        held = self._held(add)
        yield from tally.findings()
        known = statistics(add)
        is_tight = known.body.get("tightBounds") is not False
        for column, name in self._named():
            if held is not None and name.lower() not in held:
                continue  # writers differ in the statistics of columns that a file lacks
            low, high, nulls = tally.of(column.name)
            own = _of(known.body, "nullCount", name)
            if _is_count(own) and add.deletion_vector is None and is_tight and own != nulls:
                yield "stats-contradict-data", f"nullCount of {column.name} is {own}, and {nulls} values are NULL."
            elif _is_count(own) and own == 0 and nulls:
                yield "stats-contradict-data", f"nullCount of {column.name} is 0, and {nulls} values are NULL."
            if low is not None and high is not None:
                exact = is_tight and add.deletion_vector is None
                for slight, text in contradictions(known.body, name, column.data_type, (low, high), exact):
                    yield "stats-rounded" if slight else "stats-contradict-data", text

    def _held(self, add: AddFile) -> set[str] | None:
        """The names of the columns that a file holds; None with column mapping by id."""
        if mapping_of(self.rules.metadata) == "id":
            return None
        store, path = self.files.find(add.path)
        with contextlib.closing(store.open_input(path)) as source, pq.ParquetFile(source) as file:
            return {name.lower() for name in file.schema_arrow.names}

    @cached_property
    def _checks(self) -> list[tuple[str, str, CompiledExpression, str | None]]:
        """Constraints and generated columns: the rule, a name, the expression, the generated column."""
        schema = self._schema or StructType()
        checks: list[tuple[str, str, CompiledExpression, str | None]] = []
        for key, text in self.rules.metadata.configuration.items():
            if key.startswith(CONSTRAINT_PREFIX):
                with contextlib.suppress(DeltaLogError):
                    expression = compile_expression(text, schema, PrimitiveType("boolean"))
                    checks.append(("constraint-violated", key.removeprefix(CONSTRAINT_PREFIX), expression, None))
        for column in schema.fields:
            generation = column.metadata.get(GENERATION_KEY)
            if isinstance(generation, str):
                with contextlib.suppress(DeltaLogError):
                    expression = compile_expression(generation, schema, column.data_type)
                    checks.append(("generated-value-wrong", column.name, expression, column.name))
        return checks


class _Tally:
    """What the rows of a file have: smallest and largest values, NULLs, and rows that break a rule."""

    def __init__(self, schema: StructType, checks: list[tuple[str, str, CompiledExpression, str | None]]) -> None:
        self.rows = 0
        self._schema = schema
        self._checks = checks
        self._nulls = dict.fromkeys(schema.names, 0)
        self._bounds: dict[str, tuple[Any, Any]] = {}
        self._broken: dict[tuple[str, str], int] = {}

    def take(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        for column in self._schema.fields:
            values = table.column(column.name)
            self._nulls[column.name] += values.null_count
            if str(column.data_type) in _ORDERED or isinstance(column.data_type, DecimalType):
                self._widen(column, values)
        for rule, name, expression, generated in self._checks:
            result = expression.evaluate(table)
            if generated is None:
                wrong = len(result) - (pc.sum(pc.fill_null(result, False)).as_py() or 0)
            else:
                own = table.column(generated).combine_chunks()
                result = result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result
                same = pc.fill_null(pc.equal(own, result), False)
                both = pc.and_(pc.is_null(own), pc.is_null(result))
                wrong = len(own) - (pc.sum(pc.or_(same, both)).as_py() or 0)
            if wrong:
                self._broken[rule, name] = self._broken.get((rule, name), 0) + wrong

    def _widen(self, column: StructField, values: Any) -> None:
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(pc.fill_null(values, 0.0))))
        low, high = pc.min_max(values).as_py().values()
        if low is None:
            return
        before = self._bounds.get(column.name, (low, high))
        self._bounds[column.name] = (min(low, before[0]), max(high, before[1]))

    def of(self, name: str) -> tuple[Any, Any, int]:
        low, high = self._bounds.get(name, (None, None))
        return low, high, self._nulls[name]

    def findings(self) -> Iterator[tuple[str, str]]:
        for column in self._schema.fields:
            if not column.nullable and self._nulls[column.name]:
                text = f"{column.name} is NULL in {self._nulls[column.name]} rows."
                yield "data-null-in-required-column", text
        for (rule, name), rows in self._broken.items():
            yield rule, f"{name}: {rows} rows of {self.rows}."


_ORDERED = frozenset(
    ["string", "long", "integer", "short", "byte", "float", "double", "date", "timestamp", "timestamp_ntz"]
)


def _of(body: Mapping[str, Any], group: str, name: str) -> Any:
    values = body.get(group)
    if not isinstance(values, dict):
        return None
    if name in values:
        return values[name]
    return next((value for key, value in values.items() if key.lower() == name.lower()), None)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def contradictions(
    body: Mapping[str, Any], name: str, kind: DataType, actual: tuple[Any, Any], is_tight: bool
) -> Iterator[tuple[bool, str]]:
    """How bounds in statistics contradict the smallest and largest value that a file has, and whether they do so by
    less than a second, as some writers round. ``is_tight``: whether they must be exactly these, as far as the type
    allows."""
    own_low, own_high = _of(body, "minValues", name), _of(body, "maxValues", name)
    try:
        low = None if own_low is None else _plain(as_value(own_low, kind), kind)
        high = None if own_high is None else _plain(as_value(own_high, kind), kind)
        first, last = (_plain(value, kind) for value in actual)
    except (ValueError, TypeError, ArithmeticError, AttributeError, DeltaLogError):
        return
    if any(isinstance(value, float) and math.isnan(value) for value in (low, high, first, last)):
        return
    # Timestamps are cut to milliseconds, and text to a prefix.
    slack = 1000 if str(kind) in ("timestamp", "timestamp_ntz") else 0
    exact = is_tight and (str(kind) in _EXACT or isinstance(kind, DecimalType))
    if isinstance(kind, DecimalType) or str(kind) in ("float", "double"):
        # Statistics have decimals as JSON numbers, which writers and readers round; widened columns hold floats.
        low, first = _rounded(low, first, kind)
        high, last = _rounded(high, last, kind)
    try:
        if low is not None and first is not None and (low > first or (exact and low != first)):
            slight = bool(slack) and low - first < _SECOND
            yield slight, f"The minimum of {name} is {own_low!r}, and the file has {actual[0]!r}."
        if high is None or last is None:
            return
        below = high + slack <= last if slack else high < last
        if isinstance(high, bytes) and isinstance(last, bytes) and last.startswith(high):
            below = False
        if below or (exact and high != last):
            slight = bool(slack) and last - high < _SECOND
            yield slight, f"The maximum of {name} is {own_high!r}, and the file has {actual[1]!r}."
    except TypeError:
        return


def _same_kind(stored: pa.DataType | None, wanted: DataType) -> bool:
    """Whether the values in a footer compare with those of a column, whose type was not widened to another kind."""
    if stored is None:
        return False
    if str(wanted) in ("timestamp", "timestamp_ntz"):
        return bool(pa.types.is_timestamp(stored))
    return isinstance(wanted, DecimalType) == bool(pa.types.is_decimal(stored))


def _rounded(own: Any, actual: Any, kind: DataType) -> tuple[Any, Any]:
    """Both values; the same one twice where they differ by rounding only."""
    if own is None or actual is None:
        return own, actual
    largest = 1e-15 if isinstance(kind, DecimalType) else 1.2e-7
    return (actual, actual) if math.isclose(own, actual, rel_tol=largest) else (own, actual)


def _plain(value: Any, kind: DataType) -> Any:
    """A value of statistics or of a file as one that compares with the other."""
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MICROSECOND if value.tzinfo is not None else value
    if str(kind) == "string":
        return value.encode() if isinstance(value, str) else value
    if str(kind) == "float" and isinstance(value, (int, float)):
        return pa.scalar(value, pa.float32()).as_py()
    return value


def fits(stored: pa.DataType, wanted: DataType) -> bool:
    """Whether a column of a file can hold the values of a column of the table, widened if need be."""
    while isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if pa.types.is_dictionary(stored):
        stored = stored.value_type
    if isinstance(wanted, StructType) or str(wanted) == "variant":
        return bool(pa.types.is_struct(stored))
    if isinstance(wanted, MapType):
        return bool(pa.types.is_map(stored)) or (pa.types.is_list(stored) and pa.types.is_struct(stored.value_type))
    if isinstance(wanted, ArrayType):
        return bool(pa.types.is_list(stored) or pa.types.is_large_list(stored)) and fits(
            stored.value_type, wanted.element_type
        )
    if pa.types.is_nested(stored):
        return False
    if wanted == VOID or pa.types.is_null(stored):
        return True
    texts = {"string", "binary"}
    try:
        own = StructType.from_arrow(pa.schema([("a", stored)])).fields[0].data_type
    except DeltaLogError:
        return False
    names = {str(own), str(wanted)}
    if own == wanted or names <= texts or names <= {"timestamp", "timestamp_ntz"} or is_widening(own, wanted):
        return True
    if isinstance(own, DecimalType) and isinstance(wanted, DecimalType):
        return own.scale == wanted.scale and own.precision <= wanted.precision
    # Files of other writers hold byte and short as 32-bit integers.
    return str(own) == "integer" and str(wanted) in ("byte", "short")
