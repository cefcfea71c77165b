"""DynamoDB tables on the local servers, accessed without deltalog, and clocks that tests set."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

import boto3

from deltalog.storage import create_commit_table
from deltalog.storage.dynamodb.client import Timing
from tests.support.s3 import Answer, Request, Server

_NUMBERS = itertools.count(1)
WALL = 4_000_000_000  # later than any real time, because the servers delete expired items according to their own clock


def new_table(server: Server, kind: str) -> str:
    """A new commit table with a unique name."""
    name = f"table-{os.getpid()}-{next(_NUMBERS)}"
    assert create_commit_table(name, kind, **server.options()).created
    return name


@functools.cache
def client(server: Server) -> Any:
    return boto3.client(
        "dynamodb",
        endpoint_url=f"http://127.0.0.1:{server.port}",
        region_name="us-east-1",
        aws_access_key_id="testing-key-id",
        aws_secret_access_key="testing-secret-key",
    )


def raw_items(server: Server, table: str) -> list[dict[str, Any]]:
    """The items of a table with their types, sorted by range key."""
    found = client(server).scan(TableName=table, ConsistentRead=True)["Items"]
    return sorted(found, key=lambda item: str(item.get("fileName", item.get("etag"))))


def items(server: Server, table: str) -> list[dict[str, Any]]:
    """The same without the types."""
    return [
        {name: int(value["N"]) if "N" in value else value["S"] for name, value in item.items()}
        for item in raw_items(server, table)
    ]


def put_item(server: Server, table: str, **attributes: str | int) -> None:
    """Put an item, as another writer would."""
    encoded = {
        name: {"N": str(value)} if isinstance(value, int) else {"S": value} for name, value in attributes.items()
    }
    client(server).put_item(TableName=table, Item=encoded)


def delete_items(server: Server, table: str, *keys: str) -> None:
    """Delete items, as DynamoDB's expiry (TTL) does. ``keys``: the names of the two key attributes."""
    for item in raw_items(server, table):
        client(server).delete_item(TableName=table, Key={key: item[key] for key in keys})


class FakeTime:
    """A monotonic clock that advances only in ``sleep``. ``on_sleep`` is called before each sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = float(WALL)
        self.on_sleep: Callable[[float], None] = lambda seconds: None

    @property
    def passed(self) -> float:
        return self.now - 1000.0

    def sleep(self, seconds: float) -> None:
        self.on_sleep(seconds)
        self.now += seconds

    def timing(self) -> Timing:
        return Timing(monotonic=lambda: self.now, wall=lambda: self.wall, sleep=self.sleep, random=lambda: 0.5)


def operation(request: Request) -> str:
    """The DynamoDB operation of a request; empty for requests to S3."""
    return request.headers.get("X-Amz-Target", "").rpartition(".")[2]


def dynamodb_error(status: int, code: str) -> Answer:
    body = f'{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"said {code}"}}'
    return status, [("Content-Type", "application/x-amz-json-1.0")], body.encode()
