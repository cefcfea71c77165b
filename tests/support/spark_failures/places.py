"""The locations of the runs' tables, and how to read them without Spark."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import boto3
import deltalake

import deltalog
from tests.support.s3 import Answer, Request, Server, proxied, running
from tests.support.s3.faults import FAULTS


class Place(Protocol):
    """A location for tables. The paths of files are relative to the table's root."""

    name: str

    def table(self, number: int) -> str:
        """The location of a new table."""

    def options(self) -> Mapping[str, Any]:
        """The storage options for a driver."""

    def files(self, table: str) -> list[str]: ...

    def read(self, table: str, path: str) -> bytes: ...

    def open(self, table: str, path: str) -> BinaryIO: ...

    def remove(self, table: str, paths: Iterable[str]) -> None: ...

    def ids_by_deltalog(self, table: str) -> list[int]: ...

    def ids_by_deltalake(self, table: str) -> list[int]: ...


class LocalDisk:
    """Tables below a directory."""

    name = "local disk"

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def table(self, number: int) -> str:
        return str(self._root / f"run {number}")

    def options(self) -> Mapping[str, Any]:
        return {}

    def files(self, table: str) -> list[str]:
        return [
            os.path.relpath(os.path.join(parent, name), table) for parent, _, names in os.walk(table) for name in names
        ]

    def read(self, table: str, path: str) -> bytes:
        return Path(table, path).read_bytes()

    def open(self, table: str, path: str) -> BinaryIO:
        return Path(table, path).open("rb")

    def remove(self, table: str, paths: Iterable[str]) -> None:
        for path in paths:
            Path(table, path).unlink()

    def ids_by_deltalog(self, table: str) -> list[int]:
        return sorted(deltalog.DeltaTable.open(table).snapshot().scan(["id"]).to_arrow()["id"].to_pylist())

    def ids_by_deltalake(self, table: str) -> list[int]:
        return sorted(deltalake.DeltaTable(table).to_pyarrow_table(columns=["id"])["id"].to_pylist())


class S3:
    """Tables in a bucket. The drivers access the bucket through a proxy that drops some of the requests for the log."""

    name = "S3"

    def __init__(self, server: Server, through: Server) -> None:
        self._options, self._of_drivers = server.options(), through.options()
        self._bucket = server.bucket()
        self._client = boto3.client(
            "s3",
            endpoint_url=self._options["endpoint_url"],
            aws_access_key_id=self._options["key"],
            aws_secret_access_key=self._options["secret"],
            region_name="us-east-1",
        )

    def table(self, number: int) -> str:
        return f"s3://{self._bucket}/run {number}"

    def options(self) -> Mapping[str, Any]:
        return self._of_drivers

    def files(self, table: str) -> list[str]:
        root = self._key(table, "")
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=root)
        return [each["Key"].removeprefix(root) for page in pages for each in page.get("Contents", ())]

    def read(self, table: str, path: str) -> bytes:
        found: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(table, path))["Body"].read()
        return found

    def open(self, table: str, path: str) -> BinaryIO:
        return io.BytesIO(self.read(table, path))

    def remove(self, table: str, paths: Iterable[str]) -> None:
        for path in paths:
            self._client.delete_object(Bucket=self._bucket, Key=self._key(table, path))

    def ids_by_deltalog(self, table: str) -> list[int]:
        opened = deltalog.DeltaTable.open(table, **self._options)
        return sorted(opened.snapshot().scan(["id"]).to_arrow()["id"].to_pylist())

    def ids_by_deltalake(self, table: str) -> list[int]:
        options = {
            "endpoint_url": self._options["endpoint_url"],
            "aws_access_key_id": self._options["key"],
            "aws_secret_access_key": self._options["secret"],
            "region": "us-east-1",
            "allow_http": "true",
        }
        opened = deltalake.DeltaTable(table, storage_options=options)
        return sorted(opened.to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def _key(self, table: str, path: str) -> str:
        return f"{table.removeprefix(f's3://{self._bucket}/')}/{path}"


# Faults of a request that deltalog handles by retrying.
_LOST = [FAULTS[name] for name in ("dropped before", "dropped after it took effect", "503", "reset in the answer")]


@contextmanager
def on_s3(log: Path, seed: int) -> Iterator[S3]:
    """A location on a separate server, which is stopped at the end of the block. One in 20 requests for files of a log,
    chosen by the seed, gets one of the faults in ``_LOST``."""
    with running("ministack", log) as server, proxied(server) as (proxy, through):
        draw = random.Random(seed)

        def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
            if "/_delta_log/" in request.key and draw.random() < 0.05:
                return draw.choice(_LOST)(proxy, request, forward)
            return forward()

        proxy.rule = rule
        yield S3(server, through)
