"""A process that commits to S3 writes all derived files before it exits, although its commits did not wait for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from deltalog.addresses import handle_on_latest
from deltalog.log.reader import LogReader
from deltalog.storage.s3.store import S3Store
from tests.support.core import environment
from tests.support.s3 import Server

PROGRAM = """
import json, os, sys
import pyarrow as pa
from deltalog import DeltaTable

url, kind, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
schema = pa.schema([("id", pa.int64())])
table = DeltaTable.create(url, schema, properties={"delta.checkpointInterval": "4"}, **options)
for number in range(4):
    table.append(pa.table({"id": [number]}))
if kind == "fork":
    child = os.fork()
    if child == 0:
        table.append(pa.table({"id": [5]}))
        table.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
elif kind == "raise":
    raise SystemExit(7)
"""


@pytest.mark.parametrize("kind", ["return", "raise", "fork"])
def test_a_process_that_ends_at_once_has_written_them_all(ministack: Server, kind: str) -> None:
    if kind == "fork" and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    store = ministack.store()
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM]
    arguments = [store.url, kind, json.dumps(ministack.options())]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == (7 if kind == "raise" else 0), done.stderr
    assert kind == "fork" or not done.stderr, done.stderr  # s3fs warns about its connections in forked child processes
    last = 5 if kind == "fork" else 4
    names = {meta.name for meta in S3Store(store.url, **ministack.options()).list_from("_delta_log")}
    assert {f"{version:020d}.{end}" for version in range(last + 1) for end in ("json", "crc")} <= names
    assert {f"{4:020d}.checkpoint.parquet", "_last_checkpoint"} <= names
    opened = handle_on_latest(LogReader(store), environment()).latest
    assert (opened.version, opened.log.segment.checkpoint_version, opened.num_files) == (last, 4, last)
