"""Checks single add actions: path, partition values, statistics, deletion vector. Pure.

Spec: PROTOCOL.md#add-file-and-remove-file, #partition-value-serialization, #per-file-statistics,
#deletion-vector-descriptor-schema.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from deltalog.doctor import iceberg
from deltalog.doctor.features import has
from deltalog.doctor.findings import Finding, found
from deltalog.doctor.table_metadata import mapping_of, physical_names, schema_of
from deltalog.errors import CorruptTableError, DeltaLogError, InvalidDataFileError, UnsafePathError
from deltalog.protocol import deletion_vectors
from deltalog.protocol.actions import AddFile, DeletionVector, Metadata, Protocol
from deltalog.protocol.column_mapping import physical_schema
from deltalog.protocol.json_values import mapping_or_empty
from deltalog.protocol.partitions import HIVE_NULL, parse
from deltalog.protocol.paths import Place, locate, place_of
from deltalog.protocol.properties import ENABLE_DELETION_VECTORS
from deltalog.protocol.schema import DataType, DecimalType, StructField, StructType
from deltalog.protocol.timestamps import parse_iso

_ORDINARY = re.compile(r"[\w=,-][\w.=,-]*(?:/[\w=,-][\w.=,-]*)*", re.ASCII)
_UNENCODED = re.compile(r"[\x00-\x20\"<>\\^`{|}\x7f]|%(?![0-9A-Fa-f]{2})")
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
# Dates and times whose year is outside 1 to 9999.
_BEYOND = re.compile(r"[+-]?\d{5,}-|-\d{1,4}-|0000-")
_TIMES = frozenset(["date", "timestamp", "timestamp_ntz"])
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "+Infinity": math.inf, "INF": math.inf}
# Defects of a single add action. Such a defect affects readers of the latest version only while the file is live.
ENTRY_RULES = frozenset(
    ["path-invalid", "partition-values-missing", "partition-value-invalid", "partition-value-null", "stats-invalid",
     "stats-value-invalid", "stats-min-above-max", "stats-count-invalid", "stats-null-in-required-column",
     "vector-without-feature", "vector-without-num-records", "vector-outside-file", "vector-descriptor-invalid",
     "vector-unreadable", "vector-cardinality-differs"]
)  # fmt: skip
_GROUPS = ("minValues", "maxValues", "nullCount")


@dataclass(frozen=True)
class Rules:
    """The rules that add actions are checked against: the protocol and metadata of their version, and the location of
    the table."""

    protocol: Protocol
    metadata: Metadata
    place: Place

    @cached_property
    def schema(self) -> StructType | None:
        """The columns, keyed by the names used in statistics; None if the schema is invalid."""
        schema = schema_of(self.metadata)
        try:
            return None if schema is None else physical_schema(schema, mapping_of(self.metadata))
        except CorruptTableError:
            return None

    @cached_property
    def partitions(self) -> dict[str, StructField | None]:
        """The partition columns by physical name."""
        schema = schema_of(self.metadata) or StructType()
        names = physical_names(self.metadata, schema)
        return dict(zip(names, (schema.find(name) for name in self.metadata.partition_columns), strict=True))

    @cached_property
    def fields(self) -> Mapping[str, StructField]:
        """The columns, keyed by physical name in lower case."""
        return {column.name.lower(): column for column in (self.schema.fields if self.schema else ())}

    @cached_property
    def allows_vectors(self) -> bool:
        return has(self.protocol, "deletionVectors")

    @cached_property
    def writes_vectors(self) -> bool:
        try:
            return ENABLE_DELETION_VECTORS.read(self.metadata.configuration)
        except DeltaLogError:
            return True

    @cached_property
    def tracks_rows(self) -> bool:
        suspended = self.metadata.configuration.get("delta.rowTrackingSuspended", "").lower() == "true"
        return has(self.protocol, "rowTracking") and not suspended

    @cached_property
    def needs_records(self) -> str | None:
        """The id of the rule that requires numRecords for new files; None if no rule does."""
        return next((iceberg.rule(number) for number in iceberg.active(self.protocol, self.metadata)), None)


def rules_of(protocol: Protocol, metadata: Metadata, url: str) -> Rules:
    """Build the rules for the files of a table at ``url``."""
    return Rules(protocol, metadata, place_of(url))


def identity(path: str, place: Place) -> str:
    """Normalize a path, so that all spellings of it become equal."""
    if _ORDINARY.fullmatch(path):
        return path
    try:
        return locate(path, [place])[1]
    except UnsafePathError:
        text = urllib.parse.unquote(path)
        return re.sub(r"^file:/+", "/", text)


def is_ordinary(path: str) -> bool:
    """Whether a path breaks no rule, as nearly all paths; ``_path`` checks the others."""
    return _ORDINARY.fullmatch(path) is not None and not path.startswith("_")


@dataclass(slots=True)
class Statistics:
    """The statistics of a file, as far as they can be read. ``num_records`` is None if it is missing or invalid."""

    num_records: int | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


def examine_add(add: AddFile, rules: Rules, version: int) -> Iterator[Finding]:
    """Check a single add action, without regard to other actions."""
    for rule, text in (
        *_path(add.path, rules),
        *examine_partition_values(add, rules),
        *_statistics(add, rules),
        *(_vector(add, add.deletion_vector, rules) if add.deletion_vector is not None else ()),
    ):
        yield found(rule, text, version, add.path)


def _path(path: str, rules: Rules) -> Iterator[tuple[str, str]]:
    if _ORDINARY.fullmatch(path):
        if path.startswith("_") and "/" in path and "=" not in path.partition("/")[0]:
            yield "data-file-hidden", f"The file lies in {path.partition('/')[0]}."
        return
    if _UNENCODED.search(path):
        yield "path-not-encoded", f"The path is {path[:200]!r}."
    try:
        number, relative = locate(path, [rules.place])
    except UnsafePathError:
        text = urllib.parse.unquote(path)
        bad = "\0" in text or "/../" in f"/{text}/" or not text.strip("/")
        if _ABSOLUTE.match(path) and not bad:
            yield "path-outside-table", f"The path is {path[:200]!r}."
        else:
            yield "path-invalid", f"The path is {path[:200]!r}."
        return
    if number == 0 and relative.startswith("_") and "/" in relative and "=" not in relative.partition("/")[0]:
        yield "data-file-hidden", f"The file lies in {relative.partition('/')[0]}."


def examine_partition_values(add: AddFile, rules: Rules) -> Iterator[tuple[str, str]]:
    """Check the partition values of an add action. Yields rules and messages."""
    values = add.partition_values
    for name, column in rules.partitions.items():
        if name not in values:
            yield "partition-values-missing", f"There is no value for {name}."
        elif column is not None:
            try:
                value = parse(values[name], column.data_type, name)
            except CorruptTableError as error:
                if not is_time_out_of_range(values[name], column.data_type):
                    yield "partition-value-invalid", str(error)
                continue
            if value is None and not column.nullable:
                yield "partition-value-null", f"The value of {name} is NULL."
    if len(values) > len(rules.partitions):
        extra = [name for name in values if name not in rules.partitions]
        yield "partition-values-extra", f"There are values for {', '.join(extra)}."
    if values and "=" in add.path:
        yield from _directories(add, rules)


def is_time_out_of_range(text: str | None, kind: DataType) -> bool:
    """Whether a partition value is a date or a time whose year, in UTC, is outside 1 to 9999, the years that Python
    supports. Spark's years 1 and 9999 can be such years in UTC."""
    if text is None or str(kind) not in _TIMES:
        return False
    try:
        value = as_value(text, kind)
        return value is None or (str(kind) == "timestamp" and value.astimezone(datetime.timezone.utc) is None)
    except OverflowError:
        return True
    except (ValueError, TypeError, DeltaLogError):
        return False


def _directories(add: AddFile, rules: Rules) -> Iterator[tuple[str, str]]:
    for segment in identity(add.path, rules.place).split("/")[:-1]:
        name, mark, text = segment.partition("=")
        name, text = urllib.parse.unquote(name), urllib.parse.unquote(text)
        if not mark or name not in add.partition_values:
            continue
        value = add.partition_values[name]
        column = rules.partitions.get(name)
        in_directory = None if text in (HIVE_NULL, "") else text
        if column is None or (value or None) == in_directory:
            continue
        try:
            same = parse(value, column.data_type, name) == parse(in_directory, column.data_type, name)
        except CorruptTableError:
            same = True
        if not same and str(column.data_type) not in ("timestamp", "timestamp_ntz"):
            yield "partition-directory-differs", f"{name} is {value!r}; the directory is {segment}."


# ------------------------------------------------------------------------------------------- statistics


class _NumRecords(msgspec.Struct):
    numRecords: Any = None


_num_records = msgspec.json.Decoder(_NumRecords)


def num_records_of(add: AddFile) -> int | None:
    """Read only ``numRecords`` from the statistics of an add action; None if missing or invalid."""
    if not add.stats:
        return None
    try:
        number = _num_records.decode(add.stats).numRecords
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return number if isinstance(number, int) and not isinstance(number, bool) and number >= 0 else None


def statistics(add: AddFile) -> Statistics:
    """The statistics of an add action; empty if they cannot be read."""
    if not add.stats:
        return Statistics()
    try:
        body = msgspec.json.decode(add.stats)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Statistics()
    if not isinstance(body, dict):
        return Statistics()
    number = body.get("numRecords")
    whole = isinstance(number, int) and not isinstance(number, bool) and number >= 0
    return Statistics(number if whole else None, body)


def _statistics(add: AddFile, rules: Rules) -> Iterator[tuple[str, str]]:
    if not add.stats:
        if rules.needs_records is not None:
            yield rules.needs_records, "A file has no numRecords."
        return
    try:
        body = msgspec.json.decode(add.stats)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield "stats-invalid", f"The statistics are not JSON: {error}."
        return
    if not isinstance(body, dict):
        yield "stats-invalid", "The statistics are not a JSON object."
        return
    number = body.get("numRecords")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        yield "stats-invalid", f"numRecords is {number!r}."
        number = None
    elif number is not None and number < 0:
        yield "stats-count-invalid", f"numRecords is {number}."
        number = None
    if number is None and rules.needs_records is not None:
        yield rules.needs_records, "A file has no numRecords."
    for name in _GROUPS:
        if body.get(name) is not None and not isinstance(body[name], dict):
            yield "stats-invalid", f"{name} is not an object."
    if not isinstance(body.get("tightBounds", True), bool) and body.get("tightBounds") is not None:
        yield "stats-invalid", f"tightBounds is {body['tightBounds']!r}."
    if rules.schema is not None:
        low, high, nulls = (mapping_or_empty(body.get(name)) for name in _GROUPS)
        yield from _columns(low, high, nulls, rules.fields, number, "", add.deletion_vector is None)


def _columns(
    low: Mapping[str, Any], high: Mapping[str, Any], nulls: Mapping[str, Any], fields: Mapping[str, StructField],
    records: int | None, where: str, is_exact: bool,
) -> Iterator[tuple[str, str]]:  # fmt: skip
    for name in dict.fromkeys((*low, *high, *nulls)):
        column, full = fields.get(name.lower()), f"{where}{name}"
        if column is None:
            yield "stats-column-unknown", f"The schema has no column {full}."
            continue
        kind = column.data_type
        values = low.get(name), high.get(name), nulls.get(name)
        if isinstance(kind, StructType):
            if any(value is not None and not isinstance(value, dict) for value in values):
                yield "stats-value-invalid", f"{full} is a struct, but its statistics are not objects."
                continue
            inner = {each.name.lower(): each for each in kind.fields}
            low_in, high_in, nulls_in = (value or {} for value in values)
            yield from _columns(low_in, high_in, nulls_in, inner, records, f"{full}.", is_exact)
            continue
        yield from _counts(values[2], records, column, full, not where and is_exact)
        yield from _bounds(values[0], values[1], kind, full)


def _counts(count: Any, records: int | None, column: StructField, full: str, is_top: bool) -> Iterator[tuple[str, str]]:
    if count is None or isinstance(count, dict):  # some writers count NULLs inside arrays and maps
        return
    if not isinstance(count, int) or isinstance(count, bool):
        yield "stats-value-invalid", f"nullCount of {full} is {count!r}."
    elif count < 0 or (records is not None and count > records):
        yield "stats-count-invalid", f"nullCount of {full} is {count}; numRecords is {records}."
    elif count and is_top and not column.nullable:
        yield "stats-null-in-required-column", f"nullCount of {full} is {count}."


def _bounds(low: Any, high: Any, kind: DataType, full: str) -> Iterator[tuple[str, str]]:
    comparable: list[Any] = []
    for name, value in (("minValues", low), ("maxValues", high)):
        if value is None:
            continue
        try:
            comparable.append(as_value(value, kind))
        except (ValueError, TypeError, ArithmeticError, DeltaLogError):
            yield "stats-value-invalid", f"{name} of {full} is {value!r}; the column type is {kind}."
            return
    if len(comparable) == 2 and None not in comparable:
        first, last = comparable
        if not (isinstance(first, float) and (math.isnan(first) or math.isnan(last))) and first > last:
            yield "stats-min-above-max", f"The minimum of {full} is {low!r}; the maximum is {high!r}."


def as_value(value: Any, kind: DataType) -> Any:
    """Convert a bound in statistics to a value that sorts like the column; None if the bound cannot be used.

    Raises ValueError, TypeError, ArithmeticError or DeltaLogError if the value does not have the column's type.
    """
    name = str(kind)
    convert = _CONVERT.get(name)
    if convert is not None:
        return convert(value)
    if name in _BITS:
        return _whole(value, _BITS[name])
    if isinstance(kind, DecimalType):
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError(value)
        return decimal.Decimal(str(value))
    return None  # variants, and types that deltalog does not know


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise ValueError(value)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(value)
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, str):
        return _SPECIAL[value] if value in _SPECIAL else float(value)
    if isinstance(value, bool):
        raise ValueError(value)
    return float(value)


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(value)
    return value.encode("utf-8", "surrogatepass")


def _date(value: Any) -> datetime.date:
    if _BEYOND.match(value):
        raise _Beyond
    return datetime.date.fromisoformat(value[:10])


class _Beyond(Exception):
    """A date outside Python's range."""


def _moment(value: Any) -> datetime.datetime:
    if _BEYOND.match(value):
        raise _Beyond
    moment = parse_iso(value)
    return moment.replace(tzinfo=datetime.timezone.utc) if moment.tzinfo is None else moment


def _or_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(value)
        try:
            return convert(value)
        except _Beyond:
            return None

    return run


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


_CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "float": _float, "double": _float, "string": _text, "date": _or_none(_date), "timestamp": _or_none(_moment),
    "timestamp_ntz": _or_none(_moment), "boolean": _boolean, "binary": lambda value: None, "void": lambda value: None,
}  # fmt: skip


# --------------------------------------------------------------------------------------- deletion vectors


def _vector(add: AddFile, vector: DeletionVector, rules: Rules) -> Iterator[tuple[str, str]]:
    records = statistics(add).num_records
    if not rules.allows_vectors:
        yield "vector-without-feature", "The protocol of the table does not list the feature deletionVectors."
    if records is None:
        yield "vector-without-num-records", "The statistics have no numRecords."
    elif vector.cardinality > records:
        yield "vector-outside-file", f"The vector deletes {vector.cardinality} rows; the file has {records}."
    if vector.cardinality == 0:
        yield "vector-empty", "The cardinality is 0."
    if vector.storage_type == "i":
        if vector.offset is not None:
            yield "vector-descriptor-invalid", f"The inline vector has an offset, {vector.offset}."
        yield from examine_inline(vector, records)
    elif vector.storage_type == "u":
        try:
            deletion_vectors.relative_path(vector)
        except InvalidDataFileError as error:
            yield "vector-descriptor-invalid", str(error)
    else:
        for rule, text in _path(vector.path_or_inline_dv, rules):
            if rule == "path-invalid":
                yield "vector-descriptor-invalid", text
    if vector.size_in_bytes <= 0:
        yield "vector-descriptor-invalid", f"sizeInBytes is {vector.size_in_bytes}."


def examine_inline(vector: DeletionVector, records: int | None) -> Iterator[tuple[str, str]]:
    """Check the bitmap of an inline vector. ``records``: the number of rows in the data file of the vector, None if
    unknown."""
    try:
        positions = deletion_vectors.from_inline(vector)
    except InvalidDataFileError as error:
        yield vector_rule(error), str(error)
        return
    if records is not None and len(positions) and positions.max() >= records:
        yield "vector-outside-file", f"The vector deletes row {positions.max()}; the file has {records} rows."


def vector_rule(error: InvalidDataFileError) -> str:
    """The rule broken by an unreadable deletion vector."""
    return "vector-cardinality-differs" if "positions, but" in str(error) else "vector-unreadable"
