"""delta-spark and deltalog append to one table at the same time, as real processes on a local disk.

delta-spark's log store for local disks checks that a commit does not exist and then renames its own file to that name,
which replaces a commit that another process made in between. With a log store that links (LinkLogStore.java), nothing
is replaced. With the original one, every lost commit was replaced by delta-spark; deltalog replaces none.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from tests.interop.concurrent_appender import ROWS, SPARK_COMMITS
from tests.support.spark.jars import delta_jars, uses_ivy

pytestmark = pytest.mark.timeout(240)

HERE = Path(__file__).parent
SPARK, OURS = 0, (1, 2)
_TAG = re.compile(r"writer-(\d+)-commit-(\d+)")


@dataclass
class Outcome:
    """The commits that were acknowledged to writers, and the commits in the log: for each version, its commitInfo and
    the ids of the rows that it added."""

    table: Path
    acknowledged: list[str]
    log: dict[int, dict[str, Any]]

    @property
    def tags(self) -> list[str]:
        return [info["userMetadata"] for info in self.log.values() if "userMetadata" in info]

    @property
    def lost(self) -> list[str]:
        return sorted(set(self.acknowledged) - set(self.tags))


@pytest.fixture(scope="module")
def link_log_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A jar with LinkLogStore."""
    home = os.environ.get("JAVA_HOME")
    javac, jar = (shutil.which(tool, path=f"{home}/bin" if home else None) for tool in ("javac", "jar"))
    if uses_ivy() or javac is None or jar is None:
        pytest.skip("compiling the log store needs a JDK (javac, jar) and the jars that Maven has fetched")
    import pyspark

    out = tmp_path_factory.mktemp("log-store")
    libraries = [*map(str, delta_jars()), f"{Path(pyspark.__file__).parent}/jars/*"]
    subprocess.run([javac, "-d", out, "-cp", ":".join(libraries), HERE / "LinkLogStore.java"], check=True)
    subprocess.run([jar, "--create", "--file", out / "store.jar", "-C", out, "deltalog"], check=True)
    return out / "store.jar"


def race(directory: Path, spark_conf: dict[str, str]) -> Outcome:
    """Two deltalog processes and one delta-spark process append concurrently until delta-spark has made all its
    commits."""
    table = directory / "table"
    properties = {"delta.enableInCommitTimestamps": "true"}
    DeltaTable.create(table, pa.schema([("id", pa.int64())]), properties=properties)
    environment = {**os.environ, "APPENDER_SPARK_CONF": json.dumps(spark_conf)}
    engines = {SPARK: "delta-spark", **dict.fromkeys(OURS, "deltalog")}
    processes = {
        number: subprocess.Popen(
            [sys.executable, HERE / "concurrent_appender.py", engine, table, str(number), directory], env=environment
        )
        for number, engine in engines.items()
    }
    try:
        _wait_for(processes, *(directory / f"ready-{number}" for number in engines))
        (directory / "go").touch()
        assert processes[SPARK].wait(150) == 0
        (directory / "stop").touch()
        assert [processes[number].wait(60) for number in OURS] == [0, 0]
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    acknowledged = [tag for n in engines for tag in (directory / f"acknowledged-{n}").read_text().split()]
    return Outcome(table, acknowledged, _log(table))


def _wait_for(processes: dict[int, subprocess.Popen[bytes]], *files: Path) -> None:
    deadline = time.monotonic() + 120
    while not all(file.exists() for file in files):
        assert all(process.poll() is None for process in processes.values()), "a writer ended before it began"
        assert time.monotonic() < deadline, "the writers did not start"
        time.sleep(0.05)


def _log(table: Path) -> dict[int, dict[str, Any]]:
    """The log, parsed with the json module only; fails if a commit is incomplete."""
    found = {}
    for path in (table / "_delta_log").glob("*.json"):
        first = json.loads(path.read_text().splitlines()[0])
        assert all(json.loads(line) for line in path.read_text().splitlines())
        found[int(path.stem)] = first["commitInfo"]
    return dict(sorted(found.items()))


def rows_of(tags: list[str]) -> list[int]:
    ids: list[int] = []
    for tag in tags:
        number, count = map(int, _TAG.fullmatch(tag).groups())  # type: ignore[union-attr]
        first = number * 1_000_000 + count * ROWS
        ids.extend(range(first, first + ROWS))
    return sorted(ids)


def ids_in(table: Path) -> list[int]:
    return sorted(DeltaTable.open(table).snapshot().scan().to_arrow()["id"].to_pylist())


def told(what: str, outcome: Outcome) -> str:
    by = {name: sum(tag.startswith(prefix) for tag in outcome.acknowledged) for name, prefix in
          (("delta-spark", "writer-0-"), ("deltalog", "writer-"))}  # fmt: skip
    deltalog = by["deltalog"] - by["delta-spark"]
    return (
        f"{what}: versions={len(outcome.log)} acknowledged: deltalog={deltalog} delta-spark={by['delta-spark']} "
        f"lost={len(outcome.lost)}"
    )


def test_every_acknowledged_commit_is_in_the_log(tmp_path: Path, link_log_store: Path) -> None:
    conf = {"spark.jars": str(link_log_store), "spark.delta.logStore.file.impl": "deltalog.LinkLogStore"}
    outcome = race(tmp_path, conf)
    print(told("linking log store", outcome))
    assert outcome.lost == [] and sorted(outcome.tags) == sorted(outcome.acknowledged)
    assert list(outcome.log) == list(range(len(outcome.log)))
    times = [info["inCommitTimestamp"] for info in outcome.log.values()]
    assert all(later > earlier for earlier, later in itertools.pairwise(times))
    assert ids_in(outcome.table) == rows_of(outcome.acknowledged)
    engines = [info["engineInfo"].split("/")[0] for info in outcome.log.values()]
    changes = sum(a != b for a, b in itertools.pairwise(engines))
    assert changes >= SPARK_COMMITS // 2, "the writers took no turns, so nothing was shown"


@pytest.mark.long
def test_what_is_lost_with_delta_sparks_own_log_store_was_replaced_by_delta_spark(tmp_path: Path) -> None:
    """A limitation of delta-spark on local disks, see docs/stores.md. How many commits are lost depends on the
    timing."""
    outcome = race(tmp_path, {})
    print(told("delta-spark's own log store", outcome))
    assert all(tag.startswith(tuple(f"writer-{n}-" for n in OURS)) for tag in outcome.lost), "deltalog replaced one"
    assert len(outcome.log) + len(outcome.lost) == len(outcome.acknowledged) + 1
    assert list(outcome.log) == list(range(len(outcome.log)))
    # Rows are not compared: checkpoints and handles may contain rows of a commit that delta-spark has since replaced.
    assert len(set(outcome.tags)) == len(outcome.tags)
