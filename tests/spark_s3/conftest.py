"""Spark with Hadoop's S3A file system, and tables in buckets of a local S3 server.

Sessions are classic. With DELTALOG_TEST_SPARK=connect, the sessions use Spark Connect, and the tests marked `classic`
are skipped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# The tests import their support code as `tests.…`, whatever directory pytest is started in.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.spark.settings import IS_CONNECT, session_of, skipped_over_connect
from tests.support.s3 import Proxy, Server, proxied


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipped_over_connect(items)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from tests.support.spark.session import s3a_connect_session, s3a_session, stop_sessions

    # A task may be retried once.
    yield s3a_connect_session() if IS_CONNECT else s3a_session(**{"spark.master": "local[2,2]"})
    stop_sessions()


@dataclass(frozen=True)
class Place:
    """A URL at which a test can create a table, in a separate bucket. ``proxy`` records the requests of Spark and of
    deltalog."""

    url: str
    options: dict[str, Any]
    proxy: Proxy


@pytest.fixture
def place(ministack: Server) -> Iterator[Place]:
    bucket = ministack.bucket()
    with proxied(ministack) as (proxy, through):
        yield Place(f"s3://{bucket}/some tables/t=1", through.options(), proxy)


@contextmanager
def session_reaches(spark: Any, place: Place) -> Iterator[None]:
    """For the duration of the block, set the session's settings so that the session can access the bucket."""
    bucket, port = place.url.split("/")[2], place.options["endpoint_url"].rpartition(":")[2]
    settings = {
        "access.key": place.options["key"],
        "secret.key": place.options["secret"],
        "endpoint": f"127.0.0.1:{port}",
        "endpoint.region": "us-east-1",
        "connection.ssl.enabled": "false",
        "path.style.access": "true",
    }
    with session_of(spark, {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in settings.items()}):
        yield


def data_objects(place: Place) -> list[str]:
    """The names of all objects of a table outside its log."""
    import boto3

    _, _, bucket, prefix = place.url.split("/", 3)
    client = boto3.client(
        "s3",
        endpoint_url=place.options["endpoint_url"],
        aws_access_key_id=place.options["key"],
        aws_secret_access_key=place.options["secret"],
        region_name="us-east-1",
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/")
    keys = [each["Key"].removeprefix(prefix + "/") for page in pages for each in page.get("Contents", ())]
    return [key for key in keys if not key.startswith("_delta_log/")]
