"""The measured operations, their tables, and the maximum number of consecutive round trips of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.latency.logs import TAIL, Log, logs
from tests.benchmarks.plan import OURS

PEER = "deltalake"
SMALL_FILES = 34
HISTORY = 20
PARALLEL = 32  # concurrent requests
AT_ONCE_BYTES = 64 << 20  # bytes of a checkpoint that are requested in the same round
CATALOG = "dynamodb:latency-catalog"
MANAGED = ("b.one", "b.two", "b.three")


@dataclass(frozen=True)
class Phase:
    """A part of an operation. ``most_rounds``, ``most_requests``: deltalog's goals (None: no goal). ``with_open``:
    whether the phase is also compared together with opening the table; ``faster``: the goal is to be at least 3 times
    as fast as the peer."""

    name: str
    title: str
    most_rounds: int | None = None
    most_requests: int | None = None
    with_open: bool = False
    faster: bool = True
    is_shown: bool = True


@dataclass(frozen=True)
class Operation:
    """``arguments``: of the worker's method, for each system that takes part; ``right``: the expected result of each
    compared phase."""

    key: str
    length: str  # the number of commits, formatted
    call: str
    arguments: Mapping[str, Mapping[str, Any]]
    phases: tuple[Phase, ...]
    right: Mapping[str, Any] = field(default_factory=dict)
    writes_to: tuple[Log, ...] = ()


def operations(quick: bool) -> list[Operation]:
    by_name = {log.name: log for log in logs(quick)}
    found = []
    for suffix in dict.fromkeys(name.removeprefix("noict").removeprefix("ict") for name in by_name if "ict" in name):
        found += _of_log(by_name[f"ict{suffix}"], by_name[f"noict{suffix}"])
    found += [_open_alone(log) for log in by_name.values() if not log.checksums]
    found.append(_scan())
    found += [_transaction(count) for count in (1, len(MANAGED))]
    return found


def _of_log(ours: Log, theirs: Log) -> list[Operation]:
    version, at_ms = ours.asked()
    length, commits = ours.name.removeprefix("ict"), f"{ours.size // 100 * 100:,} commits"
    latest = ours.size - 1

    def both(**more: Any) -> dict[str, dict[str, Any]]:
        return {OURS: {"url": f"s3://{ours.name}", **more}, PEER: {"url": f"s3://{theirs.name}", **more}}

    tail = math.ceil(ours.tail_of_asked / PARALLEL)
    checkpoint = math.ceil(ours.checkpoint_bytes_at_most / AT_ONCE_BYTES)
    opening = Phase("open", "first open of a process", 3, faster=False)
    # This measurement is the same as in the first operation, so the table does not repeat it.
    first = Phase("open", "open", faster=False, is_shown=False)
    return [
        Operation(
            f"latency:open:{length}", commits, "open", both(), (opening, Phase("again", "open, S3 client loaded", 3)),
            {"open": latest, "again": latest},
        ),
        Operation(
            f"latency:resolve:{length}", commits, "resolve", both(at_ms=at_ms),
            (first, Phase("call", "version_at", 6, 40, with_open=True),
             Phase("again", "version_at once more", 6, 40, faster=False)),
            {"call": version, "again": version},
        ),
        Operation(
            f"latency:load:{length}", commits, "load", both(at_ms=at_ms),
            (first, Phase("call", "snapshot(timestamp).files()", 6 + 5 + tail + checkpoint, with_open=True)),
            {"call": version + 1},
        ),
        Operation(
            f"latency:history:{length}", commits, "history", both(limit=HISTORY),
            (first, Phase("call", f"history({HISTORY})", 3, with_open=True)),
            {"call": list(range(latest, latest - HISTORY, -1))},
        ),
        Operation(
            f"latency:append:{length}", commits, "append", both(),
            (first, Phase("call", "first append", 5), Phase("again", "second append", 2),
             Phase("third", "third append", 2)),
            {"call": latest + 1, "again": latest + 2, "third": latest + 3},
            writes_to=(ours, theirs),
        ),
    ]  # fmt: skip


def _open_alone(log: Log) -> Operation:
    phases = (Phase("open", f"open without .crc, {TAIL} commits behind", 4, faster=False),)
    arguments = {OURS: {"url": f"s3://{log.name}"}}
    commits = f"{log.size // 100 * 100:,} commits"
    return Operation(f"latency:open:{log.name}", commits, "open", arguments, phases, {"open": log.size - 1})


def _scan() -> Operation:
    first = Phase("open", "open", faster=False, is_shown=False)
    most = 1 + math.ceil(SMALL_FILES / PARALLEL)
    return Operation(
        f"latency:scan:{SMALL_FILES}", "", "scan", {OURS: {"url": "s3://small/ict"}, PEER: {"url": "s3://small/noict"}},
        (first, Phase("call", f"scan of {SMALL_FILES} small files", most)),
        {"call": SMALL_FILES},
    )  # fmt: skip


def _transaction(count: int) -> Operation:
    tables = "1 table" if count == 1 else f"{count} tables"
    phases = (
        Phase("open", f"open {tables} of a catalog", faster=False),
        Phase("change", f"begin a transaction, append to {tables}", faster=False),
        Phase("commit", f"commit it, {tables}", faster=False),
        Phase("change again", f"begin another one, append to {tables}", faster=False),
        Phase("commit again", f"commit that, {tables}", faster=False),
    )
    arguments = {OURS: {"catalog": CATALOG, "names": list(MANAGED[:count])}}
    return Operation(
        f"latency:transaction:{count}", "", "transaction", arguments, phases, {"commit": count, "commit again": count}
    )
