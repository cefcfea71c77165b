"""Checks data files and deletion vector files against the log: existence, size, footer and, with ``deep``, rows.

Spec: PROTOCOL.md#consistency-between-table-metadata-and-data-files, #per-file-statistics,
#deletion-vector-file-storage-format. Defects become findings, never exceptions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from deltalog.doctor.features import has
from deltalog.doctor.file_entries import Rules, is_time_out_of_range, statistics, vector_rule
from deltalog.doctor.file_values import (
    below,
    contradictions,
    fits,
    is_count,
    is_same_kind,
    is_shredded,
    of_column,
    stored_type,
    variants_in,
)
from deltalog.doctor.findings import Finding, found
from deltalog.doctor.iceberg import active, examine_file
from deltalog.doctor.identity import bounds_of, examine_values
from deltalog.doctor.presence import FilePresence
from deltalog.doctor.table_metadata import mapping_of, schema_of
from deltalog.errors import DeltaLogError, InvalidDataFileError, ObjectNotFoundError, StoreError, UnsafePathError
from deltalog.expressions.compile import CompiledExpression, compile_expression
from deltalog.expressions.evaluate import values_of
from deltalog.lazy_arrow import pc
from deltalog.parquet.file_reader import DataFile, FileLayout, read_file, read_vector
from deltalog.parquet.footers import open_parquet, read_footer
from deltalog.parquet.stats import chunks_by_path, null_count_of, value_bounds
from deltalog.protocol import variant
from deltalog.protocol.actions import AddFile
from deltalog.protocol.column_mapping import lookup, physical_name
from deltalog.protocol.column_metadata import GENERATION_KEY, ID_KEY
from deltalog.protocol.identity_columns import Identity, identity_of
from deltalog.protocol.properties import CONSTRAINT_PREFIX
from deltalog.protocol.schema import (
    VARIANT,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    leaves,
    uses_type,
)
from deltalog.storage.table_files import TableFiles

_UNREADABLE_TIME = ("data-file-not-checked", "A partition value is a time outside the years 1 to 9999.")
_ZONED = "value-depends-on-time-zone"
# The keys of a footer with which Spark says that dates and times are those of the Julian calendar before 1582, as in
# older programs. The statistics are not.
_JULIAN = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_READ_ERRORS = (
    pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError, DeltaLogError
)  # fmt: skip


@dataclass(slots=True)
class Counts:
    """The numbers of footers and rows that were read."""

    footers: int = 0
    rows: int = 0


@dataclass(frozen=True)
class DataExamination:
    """Checks the live files of a version under ``rules``, the rules of that version."""

    files: TableFiles
    rules: Rules
    version: int
    counts: Counts = field(default_factory=Counts)
    absent: set[str] = field(default_factory=set)

    def examine_presence(self, sizes: Mapping[str, int]) -> Iterator[Finding]:
        """Check that live files exist and have the right size. ``sizes``: the size in bytes of each file by its path.
        Adds the files that cannot be read to ``absent``."""
        there = self._presence.regular_sizes(list(sizes))
        for name, size in sizes.items():
            if there.get(name) != size:
                yield from self._examine_one(name, size)

    def _examine_one(self, name: str, size: int) -> Iterator[Finding]:
        try:
            store, path = self.files.find(name)
            meta = store.head(path)
        except UnsafePathError:
            finding = found("data-file-not-checked", "The file lies outside the table.", self.version, name)
        except StoreError as error:
            finding = found("data-file-unreadable", str(error), self.version, name)
        else:
            if meta is not None:
                if meta.size_bytes not in (None, size):
                    text = f"The file has {meta.size_bytes} bytes; its add action says {size}."
                    yield found("data-file-size-differs", text, self.version, name)
                return
            finding = found("data-file-missing", "The file does not exist.", self.version, name)
        self.absent.add(name)
        yield finding

    def examine(self, add: AddFile, footer: bool, rows: bool) -> Iterator[Finding]:
        """Check one live file that exists. ``footer``, ``rows``: whether to read the file's footer, and whether to read
        its rows."""
        broken = False
        for rule, message in self._vector(add):
            broken = True
            yield found(rule, message, self.version, add.path)
        for identity, column in self.identities:
            bounds = bounds_of(statistics(add).body, column)
            for rule, message in examine_values(identity, *bounds, "its statistics"):
                yield found(rule, message, self.version, add.path)
        if footer:
            for rule, message in self._footer(add):
                broken = broken or rule == "data-file-unreadable"
                yield found(rule, message, self.version, add.path)
        if rows and not broken:
            for rule, message in self._rows(add) if self._has_readable_values(add) else (_UNREADABLE_TIME,):
                yield found(rule, message, self.version, add.path)

    # -------------------------------------------------------------------------------- deletion vectors

    def _vector(self, add: AddFile) -> Iterator[tuple[str, str]]:
        vector = add.deletion_vector
        if vector is None or vector.storage_type == "i":  # inline vectors are checked with their add action
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
            yield "vector-outside-file", f"The vector deletes row {positions.max()}; the file has {records} rows."

    # ------------------------------------------------------------------------------- checks of footers

    @cached_property
    def _presence(self) -> FilePresence:
        return FilePresence(self.files, self.rules.place)

    @cached_property
    def _schema(self) -> StructType | None:
        return schema_of(self.rules.metadata)

    @cached_property
    def _leaves(self) -> list[tuple[tuple[str, ...], StructField]]:
        """The leaf columns with the physical names under which files and statistics store them."""
        return [] if self.rules.schema is None else list(leaves(self.rules.schema))

    @cached_property
    def _columns(self) -> list[StructField]:
        """The columns stored in data files: all but the partition columns."""
        partitioned = {name.lower() for name in self.rules.metadata.partition_columns}
        return [each for each in (self._schema or StructType()).fields if each.name.lower() not in partitioned]

    def _has_readable_values(self, add: AddFile) -> bool:
        """Whether the partition values are values that Arrow's readers support."""
        return not any(
            is_time_out_of_range(add.partition_values.get(name), column.data_type)
            for name, column in self.rules.partitions.items()
            if column is not None and _is_time(column)
        )

    def _footer(self, add: AddFile) -> Iterator[tuple[str, str]]:
        try:
            store, path = self.files.find(add.path)
            with contextlib.closing(store.open_input(path)) as source:
                footer = read_footer(source)
            stored = list(footer.schema.to_arrow_schema())
            self.counts.footers += 1
            yield from self._types(stored)
            yield from self._iceberg(stored, footer)
            yield from self._statistics(add, footer, stored)
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
                yield (
                    "data-column-type-differs",
                    f"{column.name} is {kind} in the file and {column.data_type} in the schema.",
                )
            elif uses_type(column.data_type, "variant"):
                yield from self._variants(column, kind)

    def _variants(self, column: StructField, kind: pa.DataType) -> Iterator[tuple[str, str]]:
        for name, stored in variants_in(kind, column.data_type, column.name):
            if not fits(stored, VARIANT):
                yield "data-column-type-differs", f"{name} is {stored} in the file and variant in the schema."
            elif is_shredded(stored) and not has(self.rules.protocol, "variantShredding"):
                text = f"{name} is {stored} in the file; only tables with variantShredding have shredded variants."
                yield "variant-shredded-without-feature", text

    def _statistics(self, add: AddFile, footer: Any, fields: Sequence[pa.Field]) -> Iterator[tuple[str, str]]:
        known = statistics(add)
        vector = add.deletion_vector
        if known.num_records is not None and known.num_records != footer.num_rows:
            text = f"numRecords is {known.num_records}; the file has {footer.num_rows} rows."
            yield "stats-contradict-footer", text
        elif vector is not None and vector.cardinality > footer.num_rows:
            yield (
                "vector-outside-file",
                f"The vector deletes {vector.cardinality} rows; the file has {footer.num_rows}.",
            )
        if vector is not None or not known.body:
            return  # after deletions, the bounds may describe only the remaining rows
        chunks, is_julian = chunks_by_path(footer, fields), _is_julian(footer)
        stored = {each.name.lower(): each.type for each in fields}
        is_tight = known.body.get("tightBounds") is not False
        if chunks is None:
            return
        for path, column in self._leaves:
            found_chunks = chunks.get(tuple(name.lower() for name in path))
            if not found_chunks:
                continue
            nulls, name = null_count_of(found_chunks), ".".join(path)
            body = below(known.body, path[:-1])
            own = of_column(body, "nullCount", path[-1])
            if nulls is not None and is_count(own) and own != nulls and is_tight:
                yield "stats-contradict-footer", f"nullCount of {name} is {own}; the file has {nulls} NULLs."
            bounds = None if is_julian and _is_time(column) else value_bounds(found_chunks, column.data_type)
            if bounds is not None and is_same_kind(stored_type(stored, path), column.data_type):
                for slight, text in contradictions(body, path[-1], column.data_type, bounds, is_tight):
                    yield "stats-rounded" if slight else "stats-contradict-footer", text

    @cached_property
    def _iceberg_versions(self) -> Sequence[int]:
        return list(active(self.rules.protocol, self.rules.metadata))

    def _iceberg(self, stored: list[pa.Field], footer: Any) -> Iterator[tuple[str, str]]:
        numbers = self._iceberg_versions
        if not numbers:
            return
        ids = [int((each.metadata or {}).get(b"PARQUET:field_id", -1)) for each in stored]
        columns = [footer.schema.column(index) for index in range(len(footer.schema.names))]
        int96 = sorted({each.path for each in columns if each.physical_type == "INT96"})
        partitions = {
            name: None if column is None else column.metadata.get(ID_KEY)
            for name, column in self.rules.partitions.items()
        }
        for number in numbers:
            for text in examine_file(number, partitions, [each.name for each in stored], ids, int96):
                yield "iceberg-file-violated", text

    @cached_property
    def identities(self) -> list[tuple[Identity, str]]:
        """The identity columns, each with its name in statistics."""
        found = [(identity_of(column), name) for column, name in self._named()]
        return [(identity, name) for identity, name in found if identity is not None]

    def _named(self) -> list[tuple[StructField, str]]:
        """The columns, each with the physical name, under which its statistics are stored."""
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
            malformed: set[str] = set()
            for batch in read_file(self.files, DataFile.from_add(add), layout):
                rows = pa.Table.from_batches([batch])
                tally.take(rows)
                malformed.update(_malformed_variants(rows, schema))
        except _READ_ERRORS as error:
            yield "data-file-unreadable", str(error)
            return
        self.counts.rows += tally.rows
        held, is_julian = self._held(add)
        yield from tally.findings()
        yield from (("variant-value-malformed", text) for text in sorted(malformed))
        known = statistics(add)
        is_tight = known.body.get("tightBounds") is not False
        for column, name in self._named():
            if held is not None and name.lower() not in held:
                continue  # Writers differ in the statistics they write for columns that the file lacks.
            low, high, nulls = tally.of(column.name)
            own = of_column(known.body, "nullCount", name)
            identity = identity_of(column)
            if identity is not None:
                yield from examine_values(identity, low, high, "the rows")
            if is_count(own) and add.deletion_vector is None and is_tight and own != nulls:
                yield "stats-contradict-data", f"nullCount of {column.name} is {own}; {nulls} values are NULL."
            elif is_count(own) and own == 0 and nulls:
                yield "stats-contradict-data", f"nullCount of {column.name} is 0; {nulls} values are NULL."
            if low is not None and high is not None and not (is_julian and _is_time(column)):
                exact = is_tight and add.deletion_vector is None
                for slight, text in contradictions(known.body, name, column.data_type, (low, high), exact):
                    yield "stats-rounded" if slight else "stats-contradict-data", text

    def _held(self, add: AddFile) -> tuple[set[str] | None, bool]:
        """The names of the columns in a file, in lower case (None with column mapping by id), and whether its dates and
        times are Julian before 1582."""
        store, path = self.files.find(add.path)
        with contextlib.closing(store.open_input(path)) as source, open_parquet(source) as file:
            names = {name.lower() for name in file.schema_arrow.names}
            return None if mapping_of(self.rules.metadata) == "id" else names, _is_julian(file.metadata)

    @cached_property
    def _checks(self) -> list[tuple[str, str, CompiledExpression, str | None]]:
        """Constraints and generated columns, as (rule, name, expression, generated column or None)."""
        schema = self._schema or StructType()
        checks: list[tuple[str, str, CompiledExpression, str | None]] = []
        for key, text in self.rules.metadata.configuration.items():
            if key.startswith(CONSTRAINT_PREFIX):
                with contextlib.suppress(DeltaLogError):
                    expression = compile_expression(text, schema, PrimitiveType("boolean"))
                    rule = _ZONED if _reads_timestamp(expression, schema) else "constraint-violated"
                    checks.append((rule, key.removeprefix(CONSTRAINT_PREFIX), expression, None))
        for column in schema.fields:
            generation = column.metadata.get(GENERATION_KEY)
            if isinstance(generation, str):
                with contextlib.suppress(DeltaLogError):
                    expression = compile_expression(generation, schema, column.data_type)
                    rule = _ZONED if _reads_timestamp(expression, schema) else "generated-value-wrong"
                    checks.append((rule, column.name, expression, column.name))
        return checks


def _is_julian(footer: Any) -> bool:
    return any(key in (footer.metadata or {}) for key in _JULIAN)


def _is_time(column: StructField) -> bool:
    return str(column.data_type) in ("date", "timestamp", "timestamp_ntz")


def _malformed_variants(rows: pa.Table, schema: StructType) -> Iterator[str]:
    """What is wrong with a variant, for each column of variants that is not in an array or map."""
    for path, column in leaves(schema):
        if column.data_type != VARIANT:
            continue
        values = values_of(path, rows)
        parts = (values.field(name).to_pylist() for name in ("metadata", "value"))
        for there, metadata, value in zip(values.is_valid().to_pylist(), *parts, strict=True):
            try:
                if there:
                    variant.check(metadata or b"", value or b"", is_strict=False)
            except ValueError as error:
                yield f"{'.'.join(path)} has a variant that is malformed: {error}."
                break


class _Tally:
    """Minimum, maximum and NULL count of each column of a file, and the number of rows that break a rule."""

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
            yield rule, f"{name}: {rows} of {self.rows} rows."


def _reads_timestamp(expression: CompiledExpression, schema: StructType) -> bool:
    """Whether the result can depend on the time zone of a writer's session."""
    columns = dict(leaves(schema))
    return any(str(columns[path].data_type) == "timestamp" for path in expression.columns if path in columns)


_ORDERED = frozenset(
    ["string", "long", "integer", "short", "byte", "float", "double", "date", "timestamp", "timestamp_ntz"]
)
