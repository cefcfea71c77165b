"""A checkpoint's Parquet file is validated before it is used: its columns, size, values and pages."""

from __future__ import annotations

import io
import random
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from deltalog.errors import InvalidCheckpointError
from deltalog.log.checkpoint.footer import check_footer
from deltalog.protocol import limits
from deltalog.storage.memory import MemoryStore
from tests.support.core import (
    Clock,
    add_action,
    environment,
    info_action,
    memory,
    metadata_action,
    protocol_action,
    put_commit,
)

NAME = "_delta_log/00000000000000000000.checkpoint.parquet"
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}


def table_with_checkpoint(change: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> MemoryStore:
    """A table with a checkpoint and no commits; the checkpoint contains two files, one with a deletion vector."""
    store = memory()
    protocol = protocol_action("deletionVectors", reader=3, reader_features=["deletionVectors"])
    put_commit(
        store, 0, info_action(), protocol, metadata_action(), add_action("a"), add_action("b", deletionVector=VECTOR)
    )
    DeltaTable.open(store, environment=environment(Clock())).checkpoint()
    rows = change(pq.read_table(io.BytesIO(store.get(NAME))))
    buffer = io.BytesIO()
    pq.write_table(rows, buffer)
    store.put(NAME, buffer.getvalue())
    store.delete("_delta_log/00000000000000000000.json")
    return store


def with_child(rows: pa.Table, path: str, values: Any) -> pa.Table:
    """The rows with one (possibly nested) array replaced."""
    column, *fields = path.split(".")

    def replace(array: pa.StructArray, names: list[str]) -> pa.StructArray:
        at = array.type.get_field_index(names[0])
        children = [array.field(i) for i in range(array.type.num_fields)]
        children[at] = values(children[at]) if len(names) == 1 else replace(children[at], names[1:])
        kinds = [pa.field(f.name, child.type) for f, child in zip(array.type, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=kinds, mask=array.is_null())

    at = rows.schema.get_field_index(column)
    return rows.set_column(at, column, replace(rows.column(at).combine_chunks(), fields))


def filled(value: Any, kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda old: pa.array([value if old[i].is_valid else None for i in range(len(old))], kind)


WRONG = {
    "a number for a path": ("add.path", filled(1, pa.int64()), "add.path is int64, not text"),
    "a text for a size": ("add.size", filled("1", pa.string()), "add.size is string, not an integer"),
    "a text for a map": ("add.partitionValues", filled("{}", pa.string()), "add.partitionValues is string"),
    "numbers in a map": (
        "metaData.configuration", filled([("a", 1)], pa.map_(pa.string(), pa.int64())), "metaData.configuration is map"
    ),
    "a text for a struct": ("metaData.format", filled("parquet", pa.string()), "metaData.format is string"),
    "a fraction for a version": ("protocol.minReaderVersion", filled(3.0, pa.float64()), "not an integer"),
    "a negative size": ("add.size", filled(-5, pa.int64()), "size has values from -5"),
    "no size": ("add.size", filled(None, pa.int64()), "without a size"),
    "a path that is not UTF-8": (
        "add.path", lambda old: pa.array([b"\xff"] * len(old), pa.binary()).view(pa.string()), "UTF8"
    ),
    "a vector of another kind": ("add.deletionVector.storageType", filled("x", pa.string()), "storage types"),
    "a vector without a path": ("add.deletionVector.pathOrInlineDv", filled(None, pa.string()), "without path_or"),
    "a vector too large": ("add.deletionVector.sizeInBytes", filled(2**31, pa.int64()), "deletionVector.size_in_bytes"),
    "a negative offset": ("add.deletionVector.offset", filled(-1, pa.int32()), "deletionVector.offset"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_checkpoint_with_something_else_in_a_column_is_refused(case: str) -> None:
    path, values, says = WRONG[case]
    store = table_with_checkpoint(lambda rows: with_child(rows, path, values))
    with pytest.raises(InvalidCheckpointError) as caught:
        DeltaTable.open(store).snapshot().files()
    assert says in str(caught.value) and NAME in str(caught.value)


def test_a_checkpoint_with_a_column_twice_is_refused() -> None:
    store = table_with_checkpoint(lambda rows: rows.append_column("protocol", rows.column("protocol")))
    with pytest.raises(InvalidCheckpointError, match="has the column protocol 2 times"):
        DeltaTable.open(store)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary()])
def test_text_in_other_clothes_is_read(kind: pa.DataType) -> None:
    store = table_with_checkpoint(lambda rows: with_child(rows, "add.path", lambda old: old.cast(kind)))
    assert DeltaTable.open(store).snapshot().files()["path"].to_pylist() == ["a", "b"]


def test_columns_that_the_protocol_does_not_name_may_be_anything() -> None:
    def change(rows: pa.Table) -> pa.Table:
        rows = rows.append_column("future", pa.array([[1]] * rows.num_rows))
        return with_child(rows, "txn.lastUpdated", lambda old: old)

    assert DeltaTable.open(table_with_checkpoint(change)).snapshot().num_files == 2


def test_the_caps_are_held_against_the_footer(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([])
    check_footer(schema, limits.MAX_CHECKPOINT_ROWS, [limits.MAX_CHECKPOINT_BYTES])
    for rows, sizes, cap in (
        (limits.MAX_CHECKPOINT_ROWS + 1, [0], "MAX_CHECKPOINT_ROWS"),
        (1, [limits.MAX_CHECKPOINT_BYTES, 1], "MAX_CHECKPOINT_BYTES"),
        (1, [-1], "negative"),
        (-1, [], "MAX_CHECKPOINT_ROWS"),
    ):
        with pytest.raises(ValueError, match=cap):
            check_footer(schema, rows, sizes)
    monkeypatch.setattr(limits, "MAX_CHECKPOINT_ROWS", 3)
    with pytest.raises(InvalidCheckpointError, match=r"deltalog\.protocol\.limits\.MAX_CHECKPOINT_ROWS higher"):
        DeltaTable.open(table_with_checkpoint())


def test_a_flipped_bit_in_a_page_of_our_checkpoint_is_noticed() -> None:
    """The checksum of each page detects flipped bits, which decompression does not always detect."""
    store = memory()
    name = "".join(random.Random(1).choices(string.ascii_letters, k=64))
    put_commit(store, 0, info_action(), protocol_action(), metadata_action(), add_action(name))
    DeltaTable.open(store, environment=environment(Clock())).checkpoint()
    store.delete("_delta_log/00000000000000000000.json")
    data = store.get(NAME)
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "add.path")
    end = chunk.data_page_offset + chunk.total_compressed_size
    for at in range(end - 32, end):
        store.put(NAME, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(InvalidCheckpointError, match="cannot be read"):
            DeltaTable.open(store).snapshot().files()


def test_a_footer_that_lies_about_a_column_chunk_does_not_end_the_process(tmp_path: Path) -> None:
    """A column is declared non-null, but its chunks have a null count above 0; pyarrow would crash a process that reads
    the column."""
    store = table_with_checkpoint()
    data = store.get(NAME)
    optional, required = b"\x25\x02\x18\x04path", b"\x25\x00\x18\x04path"  # repetition_type, followed by the name
    assert optional in data
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / NAME).write_bytes(data.replace(optional, required))
    code = (
        "import sys, deltalog\n"
        "try: deltalog.DeltaTable.open(sys.argv[1]).snapshot().files()\n"
        "except deltalog.errors.InvalidCheckpointError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "cannot be read" in done.stdout
