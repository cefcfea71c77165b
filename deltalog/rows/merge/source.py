"""The source of a merge. It is read once, into memory or into temporary files with its keys in hash partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import FALSE, combined, row_numbers
from deltalog.expressions.bound import Bound
from deltalog.expressions.evaluate import matches
from deltalog.expressions.relations import Relation
from deltalog.lazy_arrow import pc
from deltalog.protocol.schema import StructField, StructType
from deltalog.protocol.schema_enforcement import check_unique_names
from deltalog.rows.merge.chunked_rows import ChunkedRows, partition_numbers
from deltalog.rows.merge.keys import Key, KeyValues, SourceKeys, key_columns
from deltalog.rows.merge.spilled_rows import HashPartitions, SpilledRows
from deltalog.write.data_files import conformed
from deltalog.write.input_streams import as_reader, read_once
from deltalog.write.variant_columns import encoded_batches, interpreted

#: The size, in bytes, from which the rows of a source are written to a temporary file.
SPILL_BYTES = 128 << 20
#: The size, in bytes, from which keys are written to temporary files by hash partition and joined one partition at a
#: time.
KEY_BYTES = 32 << 20
_CHUNK_BYTES = 8 << 20  # the number of bytes written to the temporary file at a time
_CHUNK_ROWS = 1 << 18
_MOST_PARTITIONS = 256


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of a source, and their columns. ``is_spilled``: whether the rows are in a temporary file."""

    rows: pa.Table
    schema: StructType
    is_spilled: bool

    @classmethod
    def read(cls, data: Any, table: StructType) -> SourceRows:
        """Read an Arrow stream, with its columns converted to types that tables have. ``table``: the columns of the
        target; where it has a variant, the source's JSON text and encoded variants are variants. Memory: SPILL_BYTES
        twice. Raises CallError, SchemaMismatchError, StoreError if the temporary directory is full."""
        reader = as_reader(data)
        given = interpreted(reader.schema, table)
        check_unique_names(given)
        schema = StructType(tuple(StructField(each.name, each.data_type) for each in given.fields))
        spilled: SpilledRows | None = None
        held, held_bytes = [schema.to_arrow().empty_table()], 0
        for batch in encoded_batches(read_once(reader), table):
            rows = conformed(pa.Table.from_batches([batch]), schema)
            held.append(rows)
            held_bytes += rows.nbytes
            if held_bytes > (SPILL_BYTES if spilled is None else _CHUNK_BYTES):
                spilled = spilled or SpilledRows(schema.to_arrow())
                _write(held, spilled)
                held, held_bytes = [], 0
        if spilled is None:
            return cls(pa.concat_tables(held).combine_chunks(), schema, False)
        _write(held, spilled)
        return cls(spilled.table(), schema, True)


def _write(held: Sequence[pa.Table], spilled: SpilledRows) -> None:
    if held:
        for batch in pa.concat_tables(held).combine_chunks().to_batches(_CHUNK_ROWS):
            spilled.add(batch)


@dataclass(frozen=True, slots=True)
class PreparedSource:
    """The rows of the source, in a table without nested column names. ``keys``: the keys of rows that may match; if the
    keys are large, they are divided into hash partitions. ``values``: for each key, its distinct values or their range
    (see ``KeyValues``)."""

    rows: ChunkedRows
    keys: SourceKeys | HashPartitions
    values: Sequence[KeyValues]

    @classmethod
    def prepare(
        cls, source: SourceRows, relation: Relation, keys: Sequence[Key], condition: Bound | None
    ) -> PreparedSource:
        """``condition``: a condition that is true for the rows that may match. Memory: KEY_BYTES plus some batches.
        Raises CallError if a key cannot be evaluated for a row, StoreError if the temporary directory is full."""
        rows = ChunkedRows.from_table(relation.flat_table(source.rows))
        values = [KeyValues(pa.array([], key.kind)) for key in keys]
        held: list[pa.Table] = []
        partitions: HashPartitions | None = None
        for at, found in enumerate(_keys(rows, keys, condition), 1):
            for number in range(len(keys)):
                values[number] = values[number].with_more(combined(found.column(f"k{number}")))
            held.append(found)
            held_bytes = sum(each.nbytes for each in held)
            if keys and partitions is None and held_bytes > KEY_BYTES:
                read = min(1.0, at * _CHUNK_ROWS / rows.rows.num_rows)
                partitions = HashPartitions(found.schema, _count(held_bytes / read))
            if partitions is not None:
                for each in held:
                    partitions.add(each, partition_numbers(_without_numbers(each), partitions.count))
                held = []
        prepared = SourceKeys.from_table(pa.concat_tables(held)) if partitions is None else partitions
        # Returns the memory of the hash tables to the system; these tables are several times the size of the keys.
        pa.default_memory_pool().release_unused()
        return cls(rows, prepared, values)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.rows.rows.num_rows)

    def keys_of(self, partition: int) -> SourceKeys:
        """The keys of a partition."""
        assert isinstance(self.keys, HashPartitions)
        return SourceKeys.from_table(pa.Table.from_batches(self.keys.read(partition), schema=self.keys.schema))


def _keys(rows: ChunkedRows, keys: Sequence[Key], condition: Bound | None) -> Iterator[pa.Table]:
    """The keys of rows that may match, in chunks; at least one chunk."""
    sides = [key.source for key in keys]
    for start in range(0, max(1, rows.rows.num_rows), _CHUNK_ROWS):
        some = rows.rows.slice(start, _CHUNK_ROWS)
        numbers = pc.add(row_numbers(some.num_rows), start)
        if condition is not None:
            true = pc.fill_null(matches(condition, some), FALSE)
            numbers, some = numbers.filter(true), some.filter(true)
        yield pa.table({**key_columns(keys, sides, some), "s": numbers})


def _without_numbers(keys: pa.Table) -> dict[str, Any]:
    return {name: keys.column(name) for name in keys.schema.names if name != "s"}


def _count(num_bytes: float) -> int:
    """The number of partitions (a power of two) for keys of this total size."""
    count = 2
    while count * KEY_BYTES < num_bytes and count < _MOST_PARTITIONS:
        count *= 2
    return count
