"""``python -m tests.benchmarks.server_load``: the load that a server can handle, by kind of catalog; see
docs/benchmarks.md.

For each kind of catalog (SQLite, PostgreSQL, and DynamoDB in an emulator) a server runs in a separate process. The
clients are threads of up to four other processes. Each client has one connection and one table, which it loads and
commits to. Every figure is the median of several runs. ``--fsync-ms`` makes each fsync of the server take longer.
``--memory`` instead measures the server's memory over the given number of calls. The exit code is 1 if a commit is
missing from its table afterwards; it never depends on times.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.unity_server import (
    Place,
    Report,
    Row,
    Sample,
    Server,
    Work,
    commits,
    finish,
    loads,
    markdown,
    mixed,
    run,
)  # fmt: skip
from tests.support import slow_fsync

KINDS = ("sqlite", "postgresql", "dynamodb")


@dataclass(frozen=True)
class Effort:
    """``commits``, ``loads``: the number of these that all clients together make in one run."""

    clients: tuple[int, ...] = (1, 8, 32, 128)
    commits: int = 1_280
    loads: int = 2_560
    runs: int = 3


QUICK = Effort(clients=(1, 4), commits=8, loads=8, runs=1)


@contextlib.contextmanager
def place_of(kind: str, root: Path) -> Iterator[Place]:
    """A new catalog of a kind."""
    if kind == "sqlite":
        yield Place(root)
    elif kind == "postgresql":
        from tests.support import postgresql

        with postgresql.running() as database:
            yield Place(root, database.url())
    else:
        from tests.benchmarks.transactions import emulated

        with emulated() as (url, options):
            yield Place(root, url, {"by_location": {url: options}})  # the tables are on the local disk


def measured(
    report: Report, place: Place, server: Server, title: str, work: Work, names: list[str], total: int, runs: int
) -> None:
    """The median of several runs with one client per table. Commits are counted for the check at the end."""
    rows = []
    for _ in range(runs):
        row, _ = run(report, server, title, work, [[name] for name in names], total)
        report.rows.pop()
        rows.append(row)
        if work is commits:
            place.committed.update(dict.fromkeys(names, max(1, total // len(names))))
    values = ((median(getattr(each, name) for each in rows)) for name in ("per_second", "p50_ms", "p99_ms", "cpu_ms"))
    report.rows.append(Row(title, len(names), *values))
    print(report.rows[-1], file=sys.stderr, flush=True)


def rates(kind: str, place: Place, effort: Effort, report: Report, fsync_ms: float) -> None:
    env = slow_fsync.environment(place.root, fsync_ms) if fsync_ms else None
    with place.served(env) as server:
        names = place.tables(max(effort.clients))
        for title, work, total in (("commit", commits, effort.commits), ("loadTable", loads, effort.loads)):
            for clients in effort.clients:
                measured(report, place, server, f"{kind}: {title}", work, names[:clients], total, effort.runs)
    place.check(report)


def memory(place: Place, calls: int, report: Report) -> None:
    """The memory of a server over many calls: loads, commits, refusals."""
    clients, tables = 8, 200
    names = place.tables(tables)
    marks = sorted({max(clients, int(calls * share)) for share in (0.01, 0.1, 0.2, 0.4, 0.6, 0.8, 1)})
    with place.served() as server:
        report.memory.append(Sample(0, server.rss_mib()))
        done = 0
        for mark in marks:
            # In several parts, so that the clients do not keep the times of all calls in memory.
            while done < mark:
                part = min(mark - done, 20_000)
                row, requests = run(report, server, "", mixed, [names[n::clients] for n in range(clients)], part)
                report.rows.pop()
                done += requests
            report.memory.append(Sample(done, server.rss_mib()))
            row.title = "calls of all kinds (1 of 10 a commit)"
            print(report.memory[-1], row, file=sys.stderr, flush=True)
        report.rows.append(row)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.server_load", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a few operations of each kind, for a check instead of measurements"
    )
    parser.add_argument(
        "--catalog", action="append", choices=KINDS, help="the kind of catalog; repeatable; default: all"
    )
    parser.add_argument("--clients", type=int, action="append", metavar="N", help="the number of clients; repeatable")
    parser.add_argument("--runs", type=int, metavar="N", help="the number of runs of which the median is taken")
    parser.add_argument(
        "--fsync-ms", type=float, default=0, metavar="MS", help="the additional time of each fsync of the server"
    )
    parser.add_argument("--memory", type=int, metavar="CALLS", help="measure the memory over this number of calls")
    parser.add_argument("--below", type=Path, help="the directory to work in (default: the one for temporary files)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to this file")
    chosen = parser.parse_args(arguments)
    effort = QUICK if chosen.quick else Effort()
    changed: dict[str, Any] = {"clients": chosen.clients and tuple(chosen.clients), "runs": chosen.runs}
    effort = replace(effort, **{name: value for name, value in changed.items() if value})
    report = Report()
    for kind in chosen.catalog or KINDS:
        root = Path(tempfile.mkdtemp(dir=chosen.below))
        try:
            with place_of(kind, root) as place:
                if chosen.memory:
                    memory(place, chosen.memory, report)
                else:
                    rates(kind, place, effort, report, chosen.fsync_ms)
        finally:
            shutil.rmtree(root)
    return finish(report, markdown(report), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
