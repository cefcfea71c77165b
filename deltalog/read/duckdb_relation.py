"""A scan as a DuckDB relation, into which DuckDB pushes columns and filters.

Plain files on a local disk are read by DuckDB itself; a bit for each row of a file says whether it is deleted.
Otherwise DuckDB reads the pyarrow dataset of the scan, whose filters use the log to skip files.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyroaring import BitMap64

from deltalog.arguments import shown
from deltalog.arrow_arrays import uint64s
from deltalog.errors import CallError
from deltalog.lazy_arrow import pc
from deltalog.parquet.file_reader import DataFile, partition_value, read_vector
from deltalog.parquet.plain_files import PlainFile
from deltalog.protocol.schema import uses_type
from deltalog.read.arrow_dataset import arrow_dataset
from deltalog.read.scan import Scan

if TYPE_CHECKING:
    import duckdb

# The maximum number of parts of a query, one for each combination of partition values and file columns.
_MOST_PARTS = 256
_GLOB = frozenset("*?[]{}")
_VIRTUAL = frozenset({"file_index", "file_row_number", "filename", "deleted_rows"})
# DuckDB numbers the bits of a value by 32-bit integers. The bits of a file may take this much memory, or as much as the
# file has bytes: a footer can claim any number of rows.
_MOST_ROWS = 2**31 - 8
_MOST_BITS_BYTES = 1 << 20
# Arrow begins a byte with its lowest bit, DuckDB with its highest.
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_Group = list[tuple[DataFile, PlainFile]]


def relation(scan: Scan, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
    """The rows of a scan as a relation of ``connection`` (None: DuckDB's default connection). Raises CallError if
    duckdb is missing, and as ``Scan.files``."""
    try:
        import duckdb
    except ImportError:
        raise CallError("to_duckdb() needs duckdb, which is not installed: pip install duckdb.") from None
    connection = duckdb.default_connection() if connection is None else connection
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        raise CallError(f"to_duckdb: connection must be a connection of duckdb or None; got {shown(connection)}.")
    of_types = connection.from_arrow(scan.arrow_schema.empty_table())
    types = {name: str(kind) for name, kind in zip(of_types.columns, of_types.types, strict=True)}
    groups = _groups(scan)
    if groups is not None:
        try:
            found = _by_duckdb(scan, connection, groups, types)
        except duckdb.Error:  # a version of DuckDB that reads some of these columns in another way
            found = None
        if found is not None and [str(kind) for kind in found.types] == list(types.values()):
            return found
    return connection.from_arrow(arrow_dataset(scan))


def _groups(scan: Scan) -> list[_Group] | None:
    """The files that DuckDB reads in the same way as deltalog, grouped by the part of the query that reads them; None
    if DuckDB would read some file differently."""
    judge = scan.plain_files() if scan.where is None else None
    floats = ("float", "double")
    nested = [field for field in scan.schema.fields if str(field.data_type) not in floats]
    if judge is None or any(uses_type(field.data_type, name) for field in nested for name in floats):
        return None
    partitioned, table_files = scan.partition_fields(), scan.snapshot.reader.files
    groups: dict[Any, _Group] = {}
    for file in scan.data_files():
        plain = judge.find(*table_files.find(file.path))
        if plain is None or not _GLOB.isdisjoint(plain.path):
            return None
        has_vector = file.deletion_vector is not None
        if has_vector and not _VIRTUAL.isdisjoint(name.lower() for name in (*plain.columns, *scan.schema.names)):
            return None
        if has_vector and plain.rows > min(_MOST_ROWS, 8 * max(_MOST_BITS_BYTES, file.size or 0)):
            return None
        values = repr([partition_value(file, field, "none") for field in partitioned])
        groups.setdefault((has_vector, plain.columns, values), []).append((file, plain))
        if len(groups) > _MOST_PARTS:
            return None
    return [*groups.values()] or None


def _by_duckdb(
    scan: Scan, connection: duckdb.DuckDBPyConnection, groups: Sequence[_Group], types: Mapping[str, str]
) -> duckdb.DuckDBPyRelation:
    whole = [group for group in groups if group[0][0].deletion_vector is None]
    parts = [connection.sql(" UNION ALL ".join(_query(scan, group, types) for group in whole))] if whole else []
    for group in groups:
        if group[0][0].deletion_vector is not None:
            rows = connection.sql(_query(scan, group, types, ", file_index, file_row_number")).set_alias("r")
            bits = connection.from_arrow(_deleted(scan, group))
            deleted = bits.project("file_index, CAST(deleted_rows AS BIT) AS deleted_rows").set_alias("d")
            live = rows.join(deleted, "r.file_index = d.file_index", how="inner").filter(
                "get_bit(deleted_rows, CAST(file_row_number AS INTEGER)) = 0"
            )
            parts.append(live.project(", ".join(map(_quoted, scan.arrow_schema.names))))
    found = parts[0]
    for part in parts[1:]:
        found = found.union(part)
    return found


def _query(scan: Scan, group: _Group, types: Mapping[str, str], others: str = "") -> str:
    file, plain = group[0]
    partitioned = {field.name: field for field in scan.partition_fields()}
    columns = []
    for name, kind in types.items():
        if name in partitioned:
            value = _constant(partition_value(file, partitioned[name], "none"), kind)
        elif name not in plain.columns:
            value = f"CAST(NULL AS {kind})"
        elif kind in ("FLOAT", "DOUBLE"):
            # The bounds in a footer may ignore NaN values. DuckDB would therefore drop rows with NaN that the filter
            # keeps, or keep such rows that the filter drops.
            value = f"CASE WHEN isnan({_quoted(name)}) THEN CAST('nan' AS {kind}) ELSE {_quoted(name)} END"
        else:
            value = _quoted(name)
        columns.append(f"{value} AS {_quoted(name)}")
    paths = ", ".join(_text(plain.path) for _, plain in group)
    source = f"read_parquet([{paths}], hive_partitioning = false, union_by_name = false)"
    return f"SELECT {', '.join(columns)}{others} FROM {source}"


def _deleted(scan: Scan, group: _Group) -> pa.Table:
    """For each file, by number, a bit for each row, which is 1 if the row is deleted; the first row has the highest
    bit of the first byte."""
    masks = []
    for file, plain in group:
        assert file.deletion_vector is not None
        deleted = read_vector(scan.snapshot.reader.files, file.deletion_vector)
        masks.append(deleted_bits(deleted, plain.rows))
    numbers = pa.array(range(len(masks)), pa.uint64())  # DuckDB's type: a cast would slow down the join
    return pa.table({"file_index": numbers, "deleted_rows": pa.array(masks, pa.binary())})


def deleted_bits(deleted: BitMap64, rows: int) -> bytes:
    """``rows`` bits, padded to whole bytes with zeros: 1 at each position in ``deleted``."""
    held_bits = (rows + 7) // 8 * 8
    positions = uint64s(deleted.to_array())
    positions = positions.filter(pc.less(positions, pa.scalar(rows, pa.uint64()))).cast(pa.int64())
    if not len(positions):
        return bytes(held_bits // 8)
    one, false = pa.scalar(1, pa.int64()), pa.array([False], pa.bool_())
    follows = pc.equal(pc.subtract(positions.slice(1), positions.slice(0, len(positions) - 1)), one)
    starts = positions.filter(pc.invert(pa.concat_arrays([false, follows])))
    stops = pc.add(positions.filter(pc.invert(pa.concat_arrays([follows, false]))), one)
    # Runs of live and of deleted rows take turns; each of these integers is a start and, in its upper half, a stop.
    both = pc.bit_wise_or(starts, pc.shift_left(stops, pa.scalar(32, pa.int64())))
    ends = pa.Array.from_buffers(pa.int32(), 2 * len(both), [None, both.buffers()[1]])
    is_deleted = pa.Array.from_buffers(pa.bool_(), len(ends), [None, pa.py_buffer(b"\xaa" * (len(ends) // 8 + 1))])
    if ends[0].as_py() == 0:
        ends, is_deleted = ends.slice(1), is_deleted.slice(1)
    if ends[-1].as_py() < held_bits:
        ends = pa.concat_arrays([ends, pa.array([held_bits], pa.int32())])
        is_deleted = pa.concat_arrays([is_deleted, false])
    flags = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, is_deleted))
    return bytes(flags.buffers()[1])[: held_bits // 8].translate(_REVERSED)


def _constant(value: Any, kind: str) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, datetime.datetime):
        is_naive = value.tzinfo is None
        since = (value.replace(tzinfo=datetime.timezone.utc) if is_naive else value) - _EPOCH
        micros = since // datetime.timedelta(microseconds=1)
        return f"make_timestamp({micros})" if is_naive else f"make_timestamptz({micros})"
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, float):
        text = "nan" if math.isnan(value) else repr(value)
        return f"CAST('{text}' AS {kind})"
    return f"CAST({_text(str(value))} AS {kind})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
