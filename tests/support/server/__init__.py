"""Helpers for the server tests: a server process, an HTTP client, and Parquet files by other writers."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.config import Config

if TYPE_CHECKING:
    from deltalog.server.serve import Server

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
AT_ONCE = Config(retries={"total_max_attempts": 1}, max_pool_connections=16)


@dataclass(frozen=True)
class Served:
    """A server process."""

    url: str
    process: subprocess.Popen[str]

    def client(self, token: str | None = None, config: Config | None = None, **more: Any) -> Any:
        return boto3.client(
            "lakeformation",
            endpoint_url=self.url,
            region_name="eu-central-1",
            aws_access_key_id="id",
            aws_secret_access_key="secret",
            aws_session_token=token,
            config=config,
            **more,
        )

    def connection(self) -> http.client.HTTPConnection:
        where = urllib.parse.urlsplit(self.url)
        assert where.hostname
        return http.client.HTTPConnection(where.hostname, where.port, timeout=60)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send a request and return the response's status and body. A ``body`` that is not bytes is sent as JSON."""
        connection = self.connection()
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@contextlib.contextmanager
def served(
    catalog: Path | str, *options: str, env: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator[Served]:
    """``deltalog serve`` in a separate process, ended by SIGTERM. ``log``: the file for its standard error."""
    command = [sys.executable, "-m", "deltalog.cli.main", "serve", str(catalog), "--port", "0", "--json", *options]
    variables = {**os.environ, **(env or {})}
    with contextlib.nullcontext() if log is None else log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the server ended with status {process.wait(30)}"
        yield Served(json.loads(line)["url"], process)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


@contextlib.contextmanager
def running(server: Server) -> Iterator[tuple[str, int]]:
    """Run a server in a thread of this process. Yields its address."""
    thread = threading.Thread(target=server.run)
    thread.start()
    where = urllib.parse.urlsplit(server.url)
    try:
        yield where.hostname or "", where.port or 0
    finally:
        server.stop()
        thread.join(60)
    assert not thread.is_alive()


def parquet(root: Path, name: str, *ids: int, column: str = "id") -> dict[str, Any]:
    """Write a Parquet file below the root of a table, without using deltalog, and return its AddObject."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({column: pa.array(ids, pa.int64())}), path)
    data = path.read_bytes()
    etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return {"Uri": str(path), "ETag": etag, "Size": len(data)}


def add(root: Path, name: str, *ids: int, day: str = "mon") -> dict[str, Any]:
    """A new Parquet file for a table of ``SCHEMA`` partitioned by day, as a write operation."""
    return {"AddObject": {**parquet(root, name, *ids), "PartitionValues": [day]}}


def delete(root: Path, name: str) -> dict[str, Any]:
    return {"DeleteObject": {"Uri": str(root / name)}}
