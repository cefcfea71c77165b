"""Storage options with object_store's names, for tables on S3: ``deltalog.deltalake``, deltalog and deltalake accept
the same options."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deltalog import DeltaTable as OwnTable
from deltalog import open_store
from deltalog.deltalake import DeltaTable, write_deltalake
from deltalog.deltalake.exceptions import TableNotFoundError
from deltalog.errors import DeltaLogError
from tests.support.s3 import Server

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", "b"]})


@pytest.fixture
def options(ministack: Server) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "testing-key-id",
        "AWS_SECRET_ACCESS_KEY": "testing-secret-key",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ministack.port}",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def test_a_table_on_s3(ministack: Server, options) -> None:
    url = f"s3://{ministack.bucket()}/table"
    assert not DeltaTable.is_deltatable(url, storage_options=options)
    write_deltalake(url, ROWS, partition_by=["day"], storage_options=options)
    lower = {name.lower(): value for name, value in options.items()}
    table = DeltaTable(url, storage_options=lower)
    write_deltalake(table, ROWS, mode="append")
    table.delete("id = 1")
    assert table.table_uri == f"{url}/"
    assert all(uri.startswith(f"{url}/day=") for uri in table.file_uris())
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [2, 2, 3, 3]
    assert table.to_pyarrow_dataset().count_rows() == 4
    assert OwnTable.open(url, **lower).snapshot().scan().to_arrow().num_rows == 4
    assert open_store(url, storage_options=options).head("_delta_log/00000000000000000000.json") is not None
    with pytest.raises(TableNotFoundError):
        DeltaTable(f"{url}-not", storage_options=options)


def test_deltalake_takes_turns_on_s3(ministack: Server, options) -> None:
    real = pytest.importorskip("deltalake", minversion="1.6")
    url = f"s3://{ministack.bucket()}/table"
    write_deltalake(url, ROWS, storage_options=options)
    real.write_deltalake(url, ROWS, mode="append", storage_options=options)
    write_deltalake(url, ROWS, mode="append", storage_options=options)
    theirs = real.DeltaTable(url, storage_options=options)
    assert theirs.version() == DeltaTable(url, storage_options=options).version() == 2
    assert theirs.to_pyarrow_table().num_rows == 9


def test_no_message_has_the_secret(options) -> None:
    wrong = {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_SECRET_ACCESS_KEY": "a-secret-word"}
    with pytest.raises(DeltaLogError) as found:
        DeltaTable("s3://bucket/table", storage_options=wrong)
    assert "a-secret-word" not in f"{found.value!r}{found.value}{found.value.__cause__}"
