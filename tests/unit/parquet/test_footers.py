"""Footers of other writers' Parquet files: which are read and which are refused; none crashes the process."""

from __future__ import annotations

import datetime
import decimal
import io
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from deltalog.errors import InvalidDataFileError
from deltalog.parquet import footer_rules
from deltalog.parquet.footers import open_parquet, parse_footer, read_footer
from deltalog.protocol import limits
from tests.fuzz.footers import BINARY, I32, I64, LIST, STRUCT, Struct, decoded, element, encoded

SCHEMA = pa.schema([("account", pa.int64()), ("amount", pa.int64())])
ROWS = pa.table({"account": [1, 2, 3], "amount": [5, None, 7]}, SCHEMA)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)
MANY = pa.table(
    {
        "text": ["a", None, "ü" * 50],
        "number": pa.array([1, 2, None], pa.int32()),
        "price": pa.array([decimal.Decimal("1.23"), None, decimal.Decimal("-7.00")], pa.decimal128(20, 2)),
        "at": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "UTC")),
        "day": pa.array([1, 2, None], pa.date32()),
        "ratio": [1.5, float("nan"), None],
        "yes": [True, False, None],
        "bytes": [b"\xff", b"", None],
        "fixed": pa.array([b"abcd", None, b"zzzz"], pa.binary(4)),
        "nest": [{"a": 1, "list": [1, 2]}, None, {"a": None, "list": None}],
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "nothing": pa.nulls(3, pa.int64()),
    }
)


def parquet(table: pa.Table = ROWS, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def footer_of(data: bytes) -> Struct:
    return decoded(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])


def with_footer(data: bytes, footer: Struct | bytes) -> bytes:
    made = footer if isinstance(footer, bytes) else encoded(footer)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:start] + made + struct.pack("<I", len(made)) + b"PAR1"


def field(tree: Struct, *path: int) -> list[Any]:
    """Look up a value in a Thrift struct by a path of field numbers; after a list field the next number is the index of
    an item."""
    value: Any = tree
    numbers = list(path)
    while True:
        number = numbers.pop(0)
        found: list[Any] = next(each for each in value if each[0] == number)
        if not numbers:
            return found
        value = found[2]
        if found[1] == LIST:
            value = value[1][numbers.pop(0)]


def set_chunk_type(tree: Struct) -> None:
    field(tree, 4, 0, 1, 1, 3, 1)[2] = 55


def killer() -> bytes:
    """A file whose footer crashes a process that asks pyarrow for the metadata of a column chunk."""
    tree = footer_of(parquet())
    set_chunk_type(tree)
    return with_footer(parquet(), tree)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 1},
        {"store_schema": False},
        {"write_statistics": False},
        {"use_dictionary": False, "data_page_version": "2.0"},
        {"use_deprecated_int96_timestamps": True},
        {"write_page_index": True, "write_page_checksum": True, "compression": "gzip"},
    ],
)
@pytest.mark.parametrize("table", [ROWS, MANY, MANY.slice(0, 0)], ids=["two columns", "many types", "no rows"])
def test_everything_that_is_used_is_as_pyarrow_has_it(table: pa.Table, options: dict[str, Any]) -> None:
    data = parquet(table, **options)
    ours, theirs = read_footer(pa.BufferReader(data)), pq.ParquetFile(pa.BufferReader(data)).metadata
    assert ours.num_rows == theirs.num_rows and ours.metadata == theirs.metadata
    assert ours.created_by == theirs.created_by
    assert ours.schema.to_arrow_schema().equals(theirs.schema.to_arrow_schema(), check_metadata=True)
    assert ours.num_row_groups == theirs.num_row_groups and ours.num_columns == theirs.num_columns
    for group in range(ours.num_row_groups):
        assert ours.row_group(group).num_rows == theirs.row_group(group).num_rows
        assert ours.row_group(group).total_byte_size == theirs.row_group(group).total_byte_size
        for column in range(ours.num_columns):
            mine, other = ours.row_group(group).column(column), theirs.row_group(group).column(column)
            assert (mine.num_values, mine.physical_type) == (other.num_values, other.physical_type)
            assert str(mine.statistics and mine.statistics.to_dict()) == str(
                other.statistics and other.statistics.to_dict()
            )


READ = """
import sys, pyarrow.parquet as pq
footer = pq.ParquetFile(sys.argv[1]).metadata
footer.row_group(0).column(1).statistics
"""
ADD = """
import shutil, sys, deltalog, pyarrow as pa
table = deltalog.DeltaTable.open(sys.argv[1])
with table.transaction() as transaction:
    try:
        transaction.add_parquet_files([("k.parquet", {})])
    except deltalog.errors.InvalidDataFileError as error:
        print(error)
"""


def test_a_wrong_chunk_ends_no_process_that_adds_the_file(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, SCHEMA)
    (tmp_path / "k.parquet").write_bytes(killer())
    command = [sys.executable, "-c", READ, str(tmp_path / "k.parquet")]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    done = subprocess.run([sys.executable, "-c", ADD, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "k.parquet cannot be added" in done.stdout
    assert "the type of column amount of row group 0 is unknown, but INT64 in the schema of the file" in done.stdout


# ------------------------------------------------------------------------------------------------- what is refused


def of_schema(*elements: Struct) -> Struct:
    schema: Any = [2, LIST, [STRUCT, list(elements)]]
    return [[1, I32, 2], schema, [3, I64, 0], [4, LIST, [STRUCT, []]]]


def _without(*path: int) -> Any:
    def change(tree: Struct) -> None:
        holder = tree if len(path) == 1 else field(tree, *path[:-1])[2]
        if len(path) > 2 and not isinstance(holder[0], list):
            holder = holder[1][path[-2]]
        holder[:] = [each for each in holder if each[0] != path[-1]]

    return change


def _set(value: Any, *path: int) -> Any:
    def change(tree: Struct) -> None:
        field(tree, *path)[2] = value

    return change


def _drop_chunk(tree: Struct) -> None:
    field(tree, 4, 0, 1)[2][1].pop()


def _twice(tree: Struct) -> None:
    tree.append(list(field(tree, 2)))


def _encrypted(tree: Struct) -> None:
    tree.append([8, STRUCT, []])


def _encrypted_chunk(tree: Struct) -> None:
    field(tree, 4)[2][1][0][0][2][1][1].append([9, BINARY, b"secret"])


def _histogram(tree: Struct) -> None:
    facts = field(tree, 4, 0, 1, 0, 3)[2]
    facts[:] = [each for each in facts if each[0] != 16]
    facts.append([16, STRUCT, [[3, LIST, [I64, [1, 2, 3]]]]])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (set_chunk_type, "column amount of row group 0 is unknown"),
        (_set(6, 4, 0, 1, 0, 3, 1), "column account of row group 0 is BYTE_ARRAY, but INT64 in the schema of the file"),
        (_drop_chunk, "row group 0 has 1 columns, but the file has 2"),
        (_without(3), "does not have the rows of the file"),
        (_set(-1, 3), "has -1 as the rows of the file"),
        (_set(4, 3), "it has 4 rows by its footer, but its row groups have 3"),
        (_without(4), "no row groups"),
        (_twice, "has the field 2 twice"),
        (_encrypted, "encrypted columns"),
        (_encrypted_chunk, "column amount of row group 0 is encrypted"),
        (_histogram, "has a histogram of 3 definition levels, but 2 levels"),
        (_set(b"\xb1ccount", 2, 1, 4), "the name of a column, b'\\xb1ccount', is not UTF-8"),
        (_set(3, 2, 0, 5), "tree of columns is cut off"),
        (_set(1, 2, 0, 5), "more elements than its groups have children"),
        (_set(9, 2, 1, 1), "has 9 as the type of column account"),
        (_set(3, 2, 1, 3), "has 3 as the repetition of column account"),
    ],
)
def test_what_contradicts_itself_is_refused(change: Any, says: str) -> None:
    tree = footer_of(parquet())
    change(tree)
    with pytest.raises(ValueError) as raised:
        read_footer(pa.BufferReader(with_footer(parquet(), tree)))
    assert says in str(raised.value)


def test_bounds_that_are_no_values_of_the_type_are_left_out() -> None:
    tree = footer_of(parquet())
    statistics = field(tree, 4, 0, 1, 0, 3, 12)[2]
    for each in statistics:
        if each[1] == BINARY:
            each[2] = each[2][:3]
        if each[0] == 3:
            each[2] = 99
    found = parse_footer(encoded(tree)).row_group(0).column(0).statistics
    assert found is None or not (found.has_min_max or found.has_null_count)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" * 3, b"x" * 100, b"PAR1" + b"\xff" * 4 + b"PAR1"])
def test_what_is_no_parquet_file(data: bytes) -> None:
    for read in (read_footer, open_parquet):
        with pytest.raises((OSError, ValueError)):
            read(pa.BufferReader(data))


@pytest.mark.parametrize(
    ("footer", "says"),
    [
        (encoded(of_schema(element(b"r", 1), *[element(b"a", 1)] * 5_000, element(b"x", None))), "levels"),
        (
            encoded(of_schema(element(b"r", 1), element(b"n" * 40_000, 9_000), *[element(b"x", None)] * 9_000)),
            "the paths of its columns are too long",
        ),
        (
            encoded(of_schema(element(b"r", 1), element(b"x", None)))[:-3] + b"\x19\xfc\x90\xbf\x05",
            "more than the bytes",
        ),
        (b"\x15\x04\x19\xfc\xff\xff\xff\x07", "MAX_FOOTER_ITEMS"),
        (b"\x15\x04" + b"\x1c" * 1_000, "too deeply"),
    ],
    ids=["deep", "long paths", "a list without items", "a long list", "structs"],
)
def test_what_would_take_time_and_memory_out_of_proportion(footer: bytes, says: str) -> None:
    with pytest.raises(ValueError) as raised:
        footer_rules.checked(footer)
    assert says in str(raised.value)
    with pytest.raises((OSError, ValueError)):
        open_parquet(pa.BufferReader(with_footer(parquet(), footer)))


def test_caps_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pa.BufferReader(parquet(pa.table({f"c{number}": [1] for number in range(20)})))
    for cap in ("MAX_FOOTER_BYTES", "MAX_FOOTER_ITEMS"):
        with monkeypatch.context() as lowered:
            lowered.setattr(limits, cap, 19)
            with pytest.raises(ValueError) as raised:
                read_footer(data)
        assert f"set deltalog.protocol.limits.{cap} higher" in str(raised.value)
    assert read_footer(data).num_columns == 20


# ------------------------------------------------------------------------------------------------------- open_parquet


def test_many_columns_and_many_row_groups_are_read() -> None:
    wide = pa.table({f"column-{number}": [number] for number in range(2_000)})
    long = pa.table({"id": range(1_500)})
    for table, options in ((wide, {}), (long, {"row_group_size": 1})):
        data = parquet(table, **options)
        with open_parquet(pa.BufferReader(data)) as file:
            assert file.read().equals(table)
        assert read_footer(pa.BufferReader(data)).num_rows == table.num_rows


@pytest.mark.parametrize(
    "table",
    [MANY, pa.table({f"{number:03}-{'n' * 60}": [1, 2, 3] for number in range(400)})],
    ids=["many types", "400 columns of long names"],
)
def test_a_usual_footer_is_not_decoded_here(table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footer_rules, "checked", None)
    with open_parquet(pa.BufferReader(parquet(table))) as file:
        assert file.read().num_rows == 3


def test_of_long_footers_with_many_columns_the_paths_are_checked() -> None:
    elements = element(b"r", 1), element(b"n" * 200_000, 900), *[element(b"x", None)] * 900
    with pytest.raises(ValueError, match="the paths of its columns are too long"):
        open_parquet(pa.BufferReader(with_footer(parquet(), encoded(of_schema(*elements)))))


# ------------------------------------------------------------------------------------- names that are not UTF-8


def broken_name() -> bytes:
    tree = footer_of(parquet(store_schema=False))
    field(tree, 2, 1, 4)[2] = b"\xb1ccount"
    return with_footer(parquet(store_schema=False), tree)


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "table", SCHEMA, data=ROWS)
    (tmp_path / "table" / "k.parquet").write_bytes(broken_name())
    with table.transaction() as transaction, pytest.raises(InvalidDataFileError, match="is not UTF-8"):
        transaction.add_parquet_files([("k.parquet", {})])
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "k.parquet").write_bytes(broken_name())
    with pytest.raises(InvalidDataFileError, match="is not UTF-8"):
        DeltaTable.convert(tmp_path / "files")


@pytest.mark.parametrize(("rows", "group"), [(-1, -1), (2**40, 2**40), (3, -5), (2, 3)])
def test_rows_that_cannot_be(rows: int, group: int, tmp_path: Path) -> None:
    """A missing column is read as one NULL per row declared in the footer, so the number of rows is limited."""
    table = DeltaTable.create(tmp_path, pa.schema([*SCHEMA, ("other", pa.int64())]), data=ROWS)
    [path] = tmp_path.glob("*.parquet")
    tree = footer_of(path.read_bytes())
    field(tree, 3)[2], field(tree, 4, 0, 3)[2] = rows, group
    path.write_bytes(with_footer(path.read_bytes(), tree))
    with pytest.raises(InvalidDataFileError):
        table.snapshot().scan(columns=["other"]).to_arrow()
