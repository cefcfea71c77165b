"""FileOptions: which files they produce, and which values they refuse."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from deltalog.engine import ColumnOptions, FileOptions
from deltalog.errors import CallError
from deltalog.parquet.file_options import CODECS

ROWS = pa.table({"id": list(range(1000)), "text": [f"t{number % 7}" for number in range(1000)]})


def written(table: DeltaTable) -> pq.FileMetaData:
    path = table.snapshot().files()["path"][-1].as_py()
    return pq.read_metadata(f"{table.url}/{path}")


@pytest.fixture
def table(tmp_path):
    return DeltaTable.create(str(tmp_path), ROWS.schema)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(table, codec) -> None:
    table.with_options(files=FileOptions(codec)).append(ROWS)
    found = written(table).row_group(0).column(0).compression
    assert found.lower() == {"none": "uncompressed"}.get(codec, codec)
    assert f".{codec}." in table.snapshot().files()["path"][0].as_py()
    assert table.to_pyarrow_table() == ROWS


def test_groups_and_pages(table) -> None:
    options = FileOptions(row_group_rows=300, data_page_bytes=512, dictionary_page_bytes=64, write_batch_rows=10)
    table.with_options(files=options).append(ROWS)
    assert [written(table).row_group(number).num_rows for number in range(4)] == [300, 300, 300, 100]
    assert table.to_pyarrow_table() == ROWS


def test_columns(table) -> None:
    options = FileOptions(
        columns={
            "id": ColumnOptions(encoding="DELTA_BINARY_PACKED", statistics=False),
            "text": ColumnOptions(dictionary=False),
        }
    )
    table.with_options(files=options).append(ROWS)
    ids, texts = (written(table).row_group(0).column(number) for number in range(2))
    assert "DELTA_BINARY_PACKED" in ids.encodings and ids.statistics is None
    assert "RLE_DICTIONARY" not in texts.encodings and texts.statistics is not None
    bounds = table.snapshot().statistics()
    assert bounds["num_records"].to_pylist() == [1000]
    assert bounds["min_values"].to_pylist() == [{"id": None, "text": "t0"}]


def test_columns_have_their_logical_names(tmp_path) -> None:
    table = DeltaTable.create(str(tmp_path), ROWS.schema, properties={"delta.columnMapping.mode": "name"})
    options = FileOptions(columns={"id": ColumnOptions(encoding="DELTA_BINARY_PACKED")})
    table.with_options(files=options).append(ROWS)
    assert "DELTA_BINARY_PACKED" in written(table).row_group(0).column(0).encodings


def test_a_target_size_holds_in_partitions_and_copies(tmp_path) -> None:
    table = DeltaTable.create(str(tmp_path), ROWS.schema, partition_by=["text"])
    many = pa.concat_tables([ROWS] * 100)
    table.with_options(files=FileOptions(target_bytes=20_000)).append(many)
    files = table.snapshot().files()
    assert files.num_rows > 14
    assert sum(table.snapshot().statistics()["num_records"].to_pylist()) == 100_000
    table.with_options(files=FileOptions("gzip")).delete("id < 10")
    assert table.to_pyarrow_table().num_rows == 99_000
    assert any(".gzip." in path for path in table.snapshot().files()["path"].to_pylist())


@pytest.mark.parametrize(
    "wrong",
    [
        {"compression": "lzo"}, {"compression": "zstd", "compression_level": 99}, {"compression_level": 3},
        {"compression": "snappy", "compression_level": 1}, {"target_bytes": 0}, {"row_group_rows": True},
        {"other_columns": ColumnOptions(encoding="BIT_PACKED")},
        {"columns": {"a": ColumnOptions(encoding="PLAIN", dictionary=True)}},
    ],
    ids=str,
)  # fmt: skip
def test_what_no_file_can_have_is_refused(wrong) -> None:
    with pytest.raises(CallError):
        FileOptions(**wrong)


def test_the_default_is_as_before(table) -> None:
    table.append(ROWS)
    assert written(table).row_group(0).column(0).compression == "SNAPPY"
