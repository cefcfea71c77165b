"""``python -m tests.support.lost_ack``: compares how deltalog and deltalake handle commits whose response is lost.

A proxy runs in front of a real S3 server. The PUT of the commit takes effect; then the connection breaks, the response
is 500 or 503, or the response arrives after the client's time limit. (409 is the opposite: refused without effect, to
be retried.) There is no other writer, so the number of new commits in the log is the number of times the operation was
applied.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.s3 import Answer, Closed, Proxy, Request, Reset, Server, proxied, running
from tests.support.s3.faults import answered

LIMIT_SECONDS = 2
ENGINES = ("deltalog", "deltalake")


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


# ------------------------------------------------------------------------------------------------------- the faults

Forward = Callable[[], Answer]


def close(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    forward()
    raise Closed


def reset(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    forward()
    raise Reset


def then(status: int, code: str) -> Callable[[Proxy, Request, Forward], Answer]:
    def fault(proxy: Proxy, request: Request, forward: Forward) -> Answer:
        forward()
        return answered(status, code)(proxy, request, forward)

    return fault


def hang(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    answer = forward()
    time.sleep(LIMIT_SECONDS + 1)
    return answer


FAULTS = {
    "closed": close,
    "reset": reset,
    "500": then(500, "InternalError"),
    "503": then(503, "SlowDown"),
    "hangs": hang,
    "409, not written": answered(409, "ConditionalRequestConflict"),
}

# --------------------------------------------------------------------------------------------------- the operations

OPERATIONS = ("append", "append, CDF on", "append, app txn", "overwrite", "delete", "create")


class Deltalog:
    """The operations with deltalog."""

    def __init__(self, url: str, server: Server) -> None:
        self.url = url
        self.options = server.options(config_kwargs={"read_timeout": LIMIT_SECONDS, "connect_timeout": 5})

    def prepare(self, operation: str) -> None:
        from deltalog import DeltaTable

        properties = {"delta.enableChangeDataFeed": "true"} if "CDF" in operation else {}
        if operation != "create":
            DeltaTable.create(self.url, rows(1).schema, data=rows(1, 2, 3), properties=properties, **self.options)

    def run(self, operation: str) -> None:
        from deltalog import DeltaTable

        if operation == "create":
            DeltaTable.create(self.url, rows(1).schema, data=rows(100), **self.options)
            return
        table = DeltaTable.open(self.url, **self.options)
        if operation == "overwrite":
            table.overwrite(rows(100))
        elif operation == "delete":
            table.delete("x = 2")
        else:
            table.append(rows(100), txn=("app", 1) if "txn" in operation else None)

    @staticmethod
    def kind(error: Exception) -> str:
        from deltalog.errors import CommitConflictError, CommitStateUnknownError, TableExistsError

        if isinstance(error, CommitStateUnknownError):
            return "unknown"
        return "conflict" if isinstance(error, (CommitConflictError, TableExistsError)) else "failed"


class Deltalake:
    """The operations, performed with deltalake (delta-rs)."""

    def __init__(self, url: str, server: Server) -> None:
        options = server.options()
        self.url = url
        self.options = {
            "AWS_ACCESS_KEY_ID": options["key"],
            "AWS_SECRET_ACCESS_KEY": options["secret"],
            "AWS_ENDPOINT_URL": options["endpoint_url"],
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "conditional_put": "etag",
            "timeout": f"{LIMIT_SECONDS}s",
        }

    def prepare(self, operation: str) -> None:
        from deltalake import write_deltalake

        configuration = {"delta.enableChangeDataFeed": "true"} if "CDF" in operation else None
        if operation != "create":
            write_deltalake(self.url, rows(1, 2, 3), configuration=configuration, storage_options=self.options)

    def run(self, operation: str) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        if operation == "delete":
            DeltaTable(self.url, storage_options=self.options).delete("x = 2")
            return
        mode: Any = {"create": "error", "overwrite": "overwrite"}.get(operation, "append")
        txn = CommitProperties(app_transactions=[Transaction("app", 1)]) if "txn" in operation else None
        write_deltalake(self.url, rows(100), mode=mode, storage_options=self.options, commit_properties=txn)

    @staticmethod
    def kind(error: Exception) -> str:
        from deltalake.exceptions import CommitFailedError

        return "conflict" if isinstance(error, CommitFailedError) else "failed"


# --------------------------------------------------------------------------------------------------------- the cells


@dataclass(frozen=True)
class Cell:
    """The outcome of one operation under one fault. ``commits``: the number of new commits in the log. ``verdict``: see
    ``judged``."""

    engine: str
    operation: str
    fault: str
    saw: str
    commits: int
    verdict: str


def judged(kind: str, commits: int) -> str:
    """``double``: the operation was applied more than once. ``false conflict``: the engine reported another writer
    although there was none. ``guess``: the engine reported failure although the operation took effect, or success
    although it did not."""
    if commits > 1:
        return "double"
    if kind == "conflict":
        return "false conflict"
    if kind == "unknown":
        return "honest: unknown"
    if (kind == "success") != (commits == 1):
        return "guess"
    return "exactly once" if commits else "honest failure"


def run_cell(server: Server, engine: str, operation: str, fault: str) -> Cell:
    url = f"s3://{server.bucket()}/table"
    makers: dict[str, type[Deltalog] | type[Deltalake]] = {"deltalog": Deltalog, "deltalake": Deltalake}
    maker = makers[engine]
    maker(url, server).prepare(operation)
    before = commits_of(server, url)
    name = f"/_delta_log/{before:020d}.json"
    hits: list[Request] = []
    with proxied(server) as (proxy, seen):

        def rule(request: Request, forward: Forward) -> Answer:
            if hits or request.method != "PUT" or not request.key.endswith(name):
                return forward()
            hits.append(request)
            return FAULTS[fault](proxy, request, forward)

        proxy.rule = rule
        kind, saw = "success", "success"
        client = maker(url, seen)
        try:
            client.run(operation)
        except Exception as error:
            kind = client.kind(error)
            saw = f"{type(error).__name__}: {' '.join(str(error).split())[:60]}"
    if not hits:
        raise AssertionError(f"{engine} sent no PUT for {name}")
    commits = commits_of(server, url) - before
    return Cell(engine, operation, fault, saw, commits, judged(kind, commits))


def commits_of(server: Server, url: str) -> int:
    from deltalog.storage.s3.store import S3Store
    from deltalog.testing.recording import version_of

    names = S3Store(url, **server.options()).list_names("_delta_log")
    return sum(version_of(f"_delta_log/{name}") is not None for name in names)


def table_of(
    server: Server, engines: tuple[str, ...] = ENGINES, say: Callable[[str], Any] = lambda line: None
) -> list[Cell]:
    """Run all operations under all faults; returns one cell of the table for each run."""
    cells = []
    for engine in engines:
        for operation in OPERATIONS:
            for fault in FAULTS:
                cell = run_cell(server, engine, operation, fault)
                cells.append(cell)
                say(f"{engine:10} {operation:16} {fault:17} +{cell.commits} {cell.verdict:16} {cell.saw}")
    return cells


def totals(cells: list[Cell], engine: str) -> dict[str, int]:
    """The number of wrong outcomes of an engine, by kind."""
    mine = [cell for cell in cells if cell.engine == engine]
    wrong = {v: sum(c.verdict == v for c in mine) for v in ("double", "false conflict", "guess")}
    return {"cells": len(mine), **wrong}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.lost_ack", description=__doc__)
    parser.add_argument("--server", choices=["moto", "ministack"], default="moto", help="default: %(default)s")
    parser.add_argument("--engines", default=",".join(ENGINES), help="comma-separated (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the cells as JSON lines instead of a table")
    chosen = parser.parse_args(arguments)
    engines = tuple(chosen.engines.split(","))
    program = {"moto": "moto_server", "ministack": "ministack"}[chosen.server]
    logging.getLogger("deltalog").setLevel(logging.ERROR)  # deltalake logs a warning for every lost response
    with tempfile.TemporaryDirectory() as directory, running(program, Path(directory) / "log") as server:
        cells = table_of(server, engines, (lambda line: None) if chosen.json else print)
    for cell in cells if chosen.json else ():
        print(json.dumps(asdict(cell)))
    for engine in engines:
        print(engine, " ".join(f"{name.replace(' ', '_')}={count}" for name, count in totals(cells, engine).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
