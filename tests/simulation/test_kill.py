"""Real processes on a real disk, killed with SIGKILL: nothing is lost, doubled or torn.

Half of the kills come at a random moment, the others between two calls of the kernel. DELTALOG_KILLS=10000 makes
more of them.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from deltalog.testing.checker import History, Operation, Read, Sighting, check, parse_commit, replay

KILLS = int(os.environ.get("DELTALOG_KILLS", "200"))
SECONDS = max(60.0, KILLS * 0.3)
WORKER = Path(__file__).with_name("crash_worker.py")
ROWS = 3
LOG_FILE = re.compile(r"\d{20}\.(json|crc|checkpoint\.parquet)|_last_checkpoint")

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.timeout(SECONDS + 120),
]


class Watcher(threading.Thread):
    """Reads each commit file as soon as it appears, as a reader at the worst moment would."""

    def __init__(self, log: Path):
        super().__init__(daemon=True)
        self.log, self.sightings, self.stopped = log, [], threading.Event()

    def run(self):
        following = 0
        while not self.stopped.is_set():
            try:
                names = os.listdir(self.log)
            except FileNotFoundError:
                names = []
            newest = max((int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name)), default=-1)
            for version in range(following, newest + 1):
                try:
                    data = (self.log / f"{version:020d}.json").read_bytes()
                except FileNotFoundError:
                    continue  # the checker will ask why
                self.sightings.append(Sighting(time.monotonic_ns(), version, data))
            following = max(following, newest + 1)
            time.sleep(0.001)


def rows_of(token):
    client, number = re.findall(r"\d+", token)
    return [int(client) * 1_000_000 + int(number) * 10 + n for n in range(ROWS)]


def journals(records):
    """What the clients wrote down: operations (the last line of each counts), reads, errors of readers."""
    operations, reads, errors = {}, [], []
    for path in sorted(records.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if path.name.startswith("w"):
                operation = Operation.from_json(line)
                operations[operation.token] = operation
                continue
            seen = json.loads(line)
            if "error" in seen:
                errors.append(seen["error"])
            else:
                reads.append(Read(**{**seen, "files": frozenset(seen["files"])}))
    return list(operations.values()), reads, errors


def test_killed_writers_lose_double_and_tear_nothing(tmp_path, capsys):
    root, records, started = tmp_path / "table", tmp_path / "records", time.monotonic()
    records.mkdir()
    watcher = Watcher(root / "_delta_log")
    watcher.start()
    try:
        done = subprocess.run(
            [sys.executable, str(WORKER), str(root), str(records), str(KILLS), "1", str(SECONDS)],
            capture_output=True,
            text=True,
            timeout=SECONDS + 60,
        )
    finally:
        watcher.stopped.set()
        watcher.join()
    assert done.returncode == 0, done.stderr
    kills = json.loads(done.stdout)
    operations, reads, errors = journals(records)
    log_files = sorted(path.name for path in (root / "_delta_log").iterdir())
    commits = {int(n[:20]): root / "_delta_log" / n for n in log_files if re.fullmatch(r"\d{20}\.json", n)}
    data_files = {path.name for path in root.iterdir() if path.is_file()}
    history = History(
        {version: path.read_bytes() for version, path in commits.items()},
        operations,
        reads,
        watcher.sightings,
        modification_times_ms={v: path.stat().st_mtime_ns // 1_000_000 for v, path in commits.items()},
        initial=1,
        data_files=frozenset(data_files),
    )
    violations = check(history)
    outcomes = {o: sum(each.outcome == o for each in operations) for o in ("ok", "failed", "unknown", "killed")}
    landed = sum(each.outcome == "killed" and each.token in tokens(history) for each in operations)
    hidden = [name for name in log_files if name.startswith(".")]
    with capsys.disabled():
        print(
            f"\n[kills] kills={kills['timed'] + kills['at a point']} (timed {kills['timed']}, at a point "
            f"{kills['at a point']}) in_flight={outcomes['killed']} (landed {landed}) versions={len(commits)} "
            f"acked={outcomes['ok']} failed={outcomes['failed']} unknown={outcomes['unknown']} reads={len(reads)} "
            f"sightings={len(watcher.sightings)} hidden_leftovers={len(hidden)} violations={len(violations)} "
            f"seconds={time.monotonic() - started:.1f}"
        )
    assert not violations, "\n".join(map(str, violations[:20]))
    assert not errors, errors[:5]
    assert kills["failed"] == 0, done.stderr
    assert_nothing_was_left_to_trip_over(root, log_files, data_files, history)
    # What was not tried proves nothing.
    assert kills["timed"] + kills["at a point"] >= KILLS
    assert kills["timed"] >= KILLS / 5
    assert kills["at a point"] >= KILLS / 5
    assert outcomes["killed"] >= KILLS / 2
    assert 0 < landed < outcomes["killed"]
    assert outcomes["ok"] >= KILLS / 2
    assert len(watcher.sightings) == len(commits)
    assert len(reads) >= 20
    enabled = [state.version for state in replay(history.log).values() if state.ict_active]
    assert enabled and enabled[0] > 1, "in-commit timestamps were never turned on"
    assert any("checkpoint" in name for name in log_files)


def tokens(history):
    return {parse_commit(version, data).token for version, data in history.log.items()}


def assert_nothing_was_left_to_trip_over(root, log_files, data_files, history):
    """Only log files and hidden names; data whole; every version readable; the next commit possible."""
    assert [name for name in log_files if not LOG_FILE.fullmatch(name) and not name.startswith(".")] == []
    states = replay(history.log)
    rows = {}
    for version, data in history.log.items():
        commit = parse_commit(version, data)
        for path in commit.paths("add"):
            rows[path] = pq.ParquetFile(root / path).read()["x"].to_pylist()
            assert rows[path] == rows_of(commit.token), f"version {version} names a file with other rows"
    table = DeltaTable.open(root)
    rng = random.Random(0)
    some = {max(states), *rng.sample(sorted(states), min(20, len(states)))}
    for version in sorted(some):
        found = table.snapshot(version)
        assert frozenset(found.files()["path"].to_pylist()) == states[version].files
        expected = sorted(x for path in states[version].files for x in rows[path])
        assert sorted(found.scan().to_arrow()["x"].to_pylist()) == expected
    assert table.append(pa.table({"x": pa.array([-1], pa.int64())})).version == max(states) + 1
    table.checkpoint()
    assert -1 in DeltaTable.open(root).snapshot().scan().to_arrow()["x"].to_pylist()
