from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from deltalog.write.task_files import TaskFiles
from tests.support.remote import RemoteStore

_SCHEMA = pa.schema(
    [("id", pa.int64()), ("x", pa.float64()), ("p", pa.string()), ("s", pa.struct([("a", pa.int32())]))]
)
_ROWS = 1000


def _rows(nan_at: int = -1) -> list[pa.RecordBatch]:
    numbers = range(_ROWS)
    data = {
        "id": numbers,
        "x": [math.nan if n == nan_at else float(n) for n in numbers],
        "p": ["a" if n < _ROWS // 2 else "b/ %" for n in numbers],
        "s": [{"a": n} for n in numbers],
    }
    return list(pa.table(data, schema=_SCHEMA).to_batches(max_chunksize=64))


def _begun(path: Path, partition_by: list[str], mapping: str = "none") -> deltalog.Transaction:
    properties = {} if mapping == "none" else {"delta.columnMapping.mode": mapping}
    return deltalog.DeltaTable.create_transaction(
        str(path), _SCHEMA, partition_by=partition_by, properties={"delta.checkpointInterval": "10", **properties}
    )


def _committed(transaction: deltalog.Transaction, adds: list[Any], rows: list[int]) -> None:
    returned = [deltalog.engine.AddFile.from_json(json.loads(json.dumps(add.to_json()))) for add in adds]
    transaction.row_writer.take_over(returned, rows, _ROWS)
    transaction.add(*returned, known=True)
    transaction.commit("WRITE")


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
@pytest.mark.parametrize("partition_by", [[], ["p"]])
def test_the_files_of_one_attempt_of_each_task_are_the_table(
    tmp_path: Path, partition_by: list[str], mapping: str
) -> None:
    transaction = _begun(tmp_path, partition_by, mapping)
    files: TaskFiles = pickle.loads(pickle.dumps(transaction.row_writer.task_files("job-1", max_rows=150)))
    first, _ = files.write(iter(_rows()), 3, 17)
    adds, rows = files.write(iter(_rows()), 3, 18)
    assert not {add.path for add in first} & {add.path for add in adds}
    assert all(Path(add.path).name.startswith("part-job-1-00003-18-") for add in adds)
    assert rows == ([150, 150, 150, 50] * 2 if partition_by else [*[150] * 6, 100])
    _committed(transaction, adds, rows)
    scan = deltalog.DeltaTable.open(str(tmp_path)).snapshot().scan().to_arrow().sort_by("id")
    assert scan.to_pylist() == pa.Table.from_batches(_rows()).to_pylist()


def test_statistics_leave_no_row_out_after_a_nan(tmp_path: Path) -> None:
    """Parquet's min and max ignore NaN, so readers would skip the file or row group that contains it."""
    transaction = _begun(tmp_path, [])
    files = transaction.row_writer.task_files("job", max_rows=100)
    without_limit = TaskFiles(files.store, files.layout, "job")
    _committed(transaction, *without_limit.write(iter(_rows(nan_at=700)), 0, 0))
    table = deltalog.DeltaTable.open(str(tmp_path))
    assert table.snapshot().scan(where="x > 998").to_arrow()["id"].to_pylist() == [700, 999]


def test_a_file_ends_where_a_nan_would_be_outside_of_its_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltalog.write.task_files.GROUP_BYTES", 1)
    transaction = _begun(tmp_path, [])
    adds, rows = transaction.row_writer.task_files("job").write(iter(_rows(nan_at=700)), 0, 0)
    assert rows == [640, 360]
    assert json.loads(adds[0].stats or "")["maxValues"]["x"] == 639
    assert "x" not in json.loads(adds[1].stats or "")["maxValues"]
    _committed(transaction, adds, rows)
    found = deltalog.DeltaTable.open(str(tmp_path)).snapshot().scan(where="x > 998").to_arrow()
    assert found["id"].to_pylist() == [700, 999]


def test_an_attempt_that_fails_removes_its_files(tmp_path: Path) -> None:
    def failing() -> Any:
        yield from _rows()
        raise RuntimeError("the input ends")

    transaction = _begun(tmp_path, ["p"])
    files = transaction.row_writer.task_files("job", max_rows=100)
    with pytest.raises(RuntimeError, match="the input ends"):
        files.write(failing(), 0, 0)
    assert not list(tmp_path.rglob("*.parquet"))


def test_rows_that_are_missing_or_twice_are_refused(tmp_path: Path) -> None:
    transaction = _begun(tmp_path, [])
    adds, rows = transaction.row_writer.task_files("job", max_rows=600).write(iter(_rows()), 0, 0)
    for given in (rows[:1], rows * 2):
        with pytest.raises(deltalog.errors.RowCountError) as error:
            transaction.row_writer.take_over(adds, given, _ROWS)
        assert (error.value.written, error.value.found) == (_ROWS, sum(given))
    transaction.abort()
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd", "lz4_raw", "brotli"])
def test_codecs_by_their_names_in_spark(tmp_path: Path, codec: str) -> None:
    import pyarrow.parquet as pq

    transaction = _begun(tmp_path, [])
    adds, _ = transaction.row_writer.task_files("job", compression=codec).write(iter(_rows()), 0, 0)
    found = pq.read_metadata(tmp_path / adds[0].path).row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED", "lz4_raw": "LZ4"}.get(codec, codec.upper())


def test_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(deltalog.CallError, match="lzo"):
        _begun(tmp_path, []).row_writer.task_files("job", compression="lzo")


def test_requests(tmp_path: Path) -> None:
    transaction = _begun(tmp_path, [])
    files = transaction.row_writer.task_files("job", max_rows=500)
    store = RemoteStore(files.store)
    adds, _ = TaskFiles(store, files.layout, "job", max_rows=500).write(iter(_rows()), 0, 0)
    assert len(adds) == 2 and not store.requests  # no requests other than the uploads of the two files
