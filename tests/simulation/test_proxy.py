"""Twelve network and service faults, each applied to each of eight kinds of request, by a proxy in front of real S3
servers.

DELTALOG_PROXY_SERVERS=ministack,moto runs both servers instead of ministack only.
"""

from __future__ import annotations

import concurrent.futures
import os
import time
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.errors import CommitConflictError, CommitStateUnknownError, DeltaLogError
from deltalog.storage.s3.store import S3Store
from deltalog.testing.checker import check
from deltalog.testing.history import History, Operation
from deltalog.testing.recording import log_of
from tests.support.s3 import Server, pass_on, proxied
from tests.support.s3.faults import FAULTS, LATE_SECONDS, REQUESTS, TIME_LIMIT_SECONDS

SERVERS = os.environ.get("DELTALOG_PROXY_SERVERS", "ministack").split(",")
MINE = [7, 8]
# Faults in these requests must not make the append fail: deltalog finds out the outcome of the commit by itself, and
# the other files are not part of the commit.
ALWAYS_COMMITTED = {"PUT of the commit", "PUT of the checkpoint", "PUT of _last_checkpoint", "PUT of the .crc"}


def rows(*values):
    return pa.table({"x": pa.array(values, pa.int64())})


def new_table(store):
    """A table at version 2, whose next version is due for a checkpoint."""
    table = DeltaTable.create(store, rows(1).schema, properties={"delta.checkpointInterval": "3"}, data=rows(1))
    table.append(rows(2))
    table.append(rows(3))
    table.flush()


def run_cell(server: Server, url: str, fault: str, kind: str) -> str:
    """Read and append through a proxy that applies the fault to the first request of this kind. Returns the client's
    outcome."""
    direct = S3Store(url, **server.options())
    new_table(direct)
    record = Operation("mine", "client", "append", 0.0, removes=[])
    with proxied(server) as (proxy, seen):
        hits = list[Any]()

        def rule(request, forward):
            if hits or not REQUESTS[kind](request):
                return forward()
            hits.append(request)
            return FAULTS[fault](proxy, request, forward)

        proxy.rule = rule
        limits = {"read_timeout": TIME_LIMIT_SECONDS, "connect_timeout": 5}
        try:
            table = DeltaTable.open(url, **seen.options(config_kwargs=limits))
            table.snapshot()
            result = table.append(rows(*MINE), user_metadata=record.token)
            record.outcome, record.version, record.txn_id = "ok", result.version, result.txn_id
            table.flush()
        except CommitStateUnknownError as error:
            record.outcome, record.error = "unknown", str(error)
        except DeltaLogError as error:
            assert not isinstance(error, CommitConflictError), f"nobody else wrote: {error}"
            record.outcome, record.error = "failed", f"{type(error).__name__}: {error}"
        record.returned = 1.0
        proxy.rule = pass_on
        assert hits, f"there was no {kind}"
        if fault == "delivered late":
            time.sleep(LATE_SECONDS + 0.3)
    assert record.outcome == "ok" or kind not in ALWAYS_COMMITTED, record.error
    assert check(History(log_of(direct), [record], initial=3)) == []
    again, landed = DeltaTable.open(direct), record.outcome == "ok"
    assert sorted(again.snapshot().scan().to_arrow()["x"].to_pylist()) == [1, 2, 3, *(MINE if landed else [])]
    assert again.append(rows(9)).version == (4 if landed else 3)
    return record.outcome


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_exactly_once_or_an_honest_error(name, fault, request, capsys):
    server = request.getfixturevalue(name)
    bucket = server.bucket()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        cells = {
            kind: pool.submit(run_cell, server, f"s3://{bucket}/table {number}", fault, kind)
            for number, kind in enumerate(REQUESTS)
        }
    failures = [f"{kind}: {cell.exception()!r}" for kind, cell in cells.items() if cell.exception()]
    assert not failures, "\n".join(failures)
    with capsys.disabled():
        outcomes = ", ".join(f"{kind} {cell.result()}" for kind, cell in cells.items())
        print(f"\n[proxy] {name}, {fault}: {outcomes}", end="")


def test_there_are_96_cells():
    assert (len(FAULTS), len(REQUESTS)) == (12, 8)
