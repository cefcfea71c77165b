"""Tables on S3, used as Lake Formation clients use them: the client puts the objects with boto3 and then registers them
with the server."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import TransactionManager
from tests.support.s3 import Server
from tests.support.server import AT_ONCE, served

ROWS = pa.table({"id": [1, 2, 3]})
TABLE = {"DatabaseName": "lake", "TableName": "events"}


def test_objects_on_s3_in_transactions(moto: Server, tmp_path: Path) -> None:
    options, bucket = moto.options(), moto.bucket()
    manager = TransactionManager(str(tmp_path / "catalog.db"), **options)
    manager.create_table("lake.events", f"s3://{bucket}/events", ROWS.schema)
    s3 = boto3.client(
        "s3",
        endpoint_url=options["endpoint_url"],
        region_name="us-east-1",
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
    )

    def put(name: str) -> dict[str, Any]:
        body = io.BytesIO()
        pq.write_table(ROWS, body)
        data = body.getvalue()
        etag = s3.put_object(Bucket=bucket, Key=f"events/{name}", Body=data)["ETag"]
        return {"Uri": f"s3://{bucket}/events/{name}", "ETag": etag, "Size": len(data)}

    def keys() -> set[str]:
        listed = s3.list_objects_v2(Bucket=bucket, Prefix="events/")["Contents"]
        return {each["Key"] for each in listed if each["Key"].endswith(".parquet")}

    given = [f"--option={name}={options[name]}" for name in ("key", "secret", "endpoint_url")]
    with served(tmp_path / "catalog.db", *given, "--option=client_kwargs.region_name=us-east-1") as server:
        client = server.client(config=AT_ONCE)
        started = client.start_transaction()["TransactionId"]
        objects = [{"Uri": f"s3://{bucket}/events/a.parquet"}]
        client.delete_objects_on_cancel(**TABLE, TransactionId=started, Objects=objects)
        added = put("a.parquet")
        client.update_table_objects(**TABLE, TransactionId=started, WriteOperations=[{"AddObject": added}])
        with pytest.raises(client.exceptions.InvalidInputException, match="ETag"):
            wrong = {"AddObject": {**put("b.parquet"), "ETag": '"00"'}}
            client.update_table_objects(**TABLE, TransactionId=started, WriteOperations=[wrong])
        client.commit_transaction(TransactionId=started)
        (partition,) = client.get_table_objects(**TABLE)["Objects"]
        assert partition["Objects"] == [{**added, "ETag": added["ETag"].strip('"')}]
        assert manager.table("lake.events").snapshot().scan().to_arrow().equals(ROWS)

        # Objects named by a canceled transaction are deleted, unless they were replaced or are in the table.
        started = client.start_transaction()["TransactionId"]
        gone, changed = put("gone.parquet"), put("changed.parquet")
        objects = [
            {"Uri": gone["Uri"], "ETag": gone["ETag"]},
            {"Uri": changed["Uri"], "ETag": '"0123456789abcdef0123456789abcdef"'},
            {"Uri": added["Uri"]},
        ]
        client.delete_objects_on_cancel(**TABLE, TransactionId=started, Objects=objects)
        client.cancel_transaction(TransactionId=started)
        assert keys() == {"events/a.parquet", "events/b.parquet", "events/changed.parquet"}
