"""Runs the operations against a server behind the delaying proxy: each operation in a fresh process, alternating
between the systems."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.latency import worker
from tests.benchmarks.latency.logs import Log
from tests.benchmarks.latency.plan import CATALOG, MANAGED, SMALL_FILES, Operation
from tests.benchmarks.latency.proxy import DelayingProxy, Exchange, by_kind, chain, rounds
from tests.benchmarks.run import ROOT, TIMEOUT_S, say
from tests.support.s3 import Server, running

START_S = 300.0


@dataclass(frozen=True)
class Measured:
    """One phase in one process. ``requests``: the number of requests by kind that arrived before the phase returned;
    ``new``: how many of these requests were the first on their connection. ``rounds``: how many rounds of requests were
    answered before the phase returned. ``chain``: one chain of ``rounds`` consecutive requests; for each request, its
    kind, its key, and the milliseconds from the start of the phase to the request and to the answer."""

    key: str
    system: str
    delay_ms: int
    phase: str
    seconds: float
    rounds: int
    requests: dict[str, int]
    new: int
    got: Any
    failure: str | None
    chain: list[tuple[str, str, int, int]] = field(repr=False)


@dataclass
class Results:
    measured: list[Measured] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def run(
    plan: Sequence[Operation], peers: Sequence[str], delays_ms: Sequence[int], processes: int, quick: bool
) -> Results:
    """Run each operation in ``processes`` separate processes; a quick run uses one process for all operations of a
    system."""
    results = Results()
    groups = [plan] if quick else [[operation] for operation in plan]
    with served(quick) as (server, proxy):
        for number, group in enumerate(groups, 1):
            say(f"[{number}/{len(groups)}] {group[0].key}{' and more' if len(group) > 1 else ''}")
            for delay_ms in delays_ms:
                for _ in range(processes):
                    for system in dict.fromkeys(name for each in group for name in each.arguments if name in peers):
                        some = [each for each in group if system in each.arguments]
                        _measure(some, system, delay_ms, server, proxy, results)
    return results


@contextlib.contextmanager
def served(quick: bool) -> Iterator[tuple[Server, DelayingProxy]]:
    """The server with all tables, and the proxy in front of it."""
    with tempfile.TemporaryDirectory(prefix="deltalog-latency-") as scratch:
        say("starting an S3 server and filling its buckets")
        program = [sys.executable, "-m", "tests.benchmarks.latency.server", *(["--quick"] if quick else [])]
        with running("ministack", Path(scratch) / "log", program, cwd=ROOT, seconds=START_S) as server:
            _prepare(server)
            proxy = DelayingProxy(server.port)
            try:
                yield server, proxy
            finally:
                proxy.close()


def _prepare(server: Server) -> None:
    for bucket in ("small", "managed"):
        client(server).create_bucket(Bucket=bucket)
    arguments = {
        "catalog": CATALOG,
        "many": {"s3://small/ict": True, "s3://small/noict": False},
        "files": SMALL_FILES,
        "tables": list(MANAGED),
        "place": "s3://managed",
    }
    (answer,) = _process("deltalog", server.port, [("prepare", arguments)])
    if answer["prepare"]["failure"]:
        raise RuntimeError(answer["prepare"]["failure"])


def _measure(
    group: Sequence[Operation], system: str, delay_ms: int, server: Server, proxy: DelayingProxy, results: Results
) -> None:
    proxy.delay_s = delay_ms / 1000
    proxy.exchanges.clear()
    try:
        answers = _process(system, proxy.port, [(each.call, each.arguments[system]) for each in group])
    except RuntimeError as error:
        results.failures.append(f"{group[0].key}, {system}: {error}")
        say(f"  {system} FAILED: {error}")
        return
    finally:
        for log in {log for each in group for log in each.writes_to}:
            restore(server, log)
    for operation, phases in zip(group, answers, strict=True):
        for name, phase in phases.items():
            results.measured.append(_measured(operation, system, delay_ms, name, phase, proxy))
            if phase["failure"]:
                results.failures.append(f"{operation.key}, {system}, {name}: {phase['failure']}")


def _measured(
    operation: Operation, system: str, delay_ms: int, name: str, phase: Mapping[str, Any], proxy: DelayingProxy
) -> Measured:
    begun_s, ended_s = phase["begun_s"], phase["ended_s"]
    made = proxy.between(begun_s, ended_s)
    answered = [each for each in made if each.ended_s is not None and each.ended_s <= ended_s]
    return Measured(
        operation.key, system, delay_ms, name, ended_s - begun_s, rounds(answered), by_kind(made),
        sum(each.is_first for each in made), phase["got"], phase["failure"],
        [_chain_entry(each, begun_s) for each in chain(answered)],
    )  # fmt: skip


def _chain_entry(each: Exchange, begun_s: float) -> tuple[str, str, int, int]:
    assert each.ended_s is not None
    return each.kind, each.key, round((each.begun_s - begun_s) * 1000), round((each.ended_s - begun_s) * 1000)


def _process(system: str, port: int, calls: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="deltalog-latency-") as scratch:
        path = Path(scratch) / "spec.json"
        operations = [{"call": call, "arguments": arguments} for call, arguments in calls]
        endpoint = f"http://127.0.0.1:{port}"
        path.write_text(json.dumps({"system": system, "endpoint": endpoint, "operations": operations}))
        command = [sys.executable, "-m", "tests.benchmarks.latency.worker", str(path)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no answer within {TIMEOUT_S} s") from None
        answer = path.with_suffix(".out")
        if not answer.exists():
            raise RuntimeError(done.stdout[-1500:])
        return list(json.loads(answer.read_text()))


def restore(server: Server, log: Log) -> None:
    """Delete the files appended to a table."""
    calls = client(server)
    for prefix, start in (("_delta_log/", f"_delta_log/{log.size:020d}"), ("", "_delta_log0")):
        page = calls.list_objects_v2(Bucket=log.name, Prefix=prefix, StartAfter=start)
        for each in page.get("Contents", ()):
            if not each["Key"].endswith("_last_checkpoint"):
                calls.delete_object(Bucket=log.name, Key=each["Key"])


def client(server: Server) -> Any:
    import boto3  # imported only here, because the import takes half a second and most runs do not need this server
    from botocore.config import Config

    return boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{server.port}", region_name=worker.REGION,
        aws_access_key_id=worker.KEY, aws_secret_access_key=worker.SECRET,
        config=Config(s3={"addressing_style": "path"}),
    )  # fmt: skip
