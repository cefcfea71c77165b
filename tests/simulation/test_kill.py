"""Real processes on a real store, killed with SIGKILL and stopped with SIGSTOP: no commit is lost, duplicated or
partially written.

On a local disk, half of the kills happen at a random time, and the other half between two system calls. A default run
makes 60 kills; DELTALOG_KILLS=10000 makes more.
"""

from __future__ import annotations

import os

import pytest

from tests.support.simulation.crash import run_kills

KILLS = int(os.environ.get("DELTALOG_KILLS", "60"))
S3_KILLS = max(12, KILLS // 10)

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.timeout(240 + KILLS),
]


def shown(report, capsys, where):
    with capsys.disabled():
        print(f"\n[kills] {where}: {report.line()}", end="")
    assert not report.problems, "\n".join(report.problems[:20])
    return report


def test_killed_and_stopped_writers_on_local_disk(tmp_path, capsys):
    records = tmp_path / "records"
    records.mkdir()
    report = run_kills(str(tmp_path / "table"), records, kills=KILLS, seed=1, stop_seconds=0.5)
    shown(report, capsys, "local disk")
    # The assertions below fail if the kills missed something that this test is meant to cover.
    assert report.killed >= KILLS
    assert min(report.kills["timed"], report.kills["at a point"]) >= KILLS / 5
    assert report.kills["stopped"] >= KILLS / 50
    assert report.outcomes["killed"] >= KILLS / 2
    assert 0 < report.landed < report.outcomes["killed"]
    assert report.outcomes["ok"] >= KILLS / 2
    assert report.sightings == report.versions
    assert report.reads >= 20
    assert report.enabled_at is not None and report.enabled_at > 1, "in-commit timestamps were never enabled"
    assert any("checkpoint" in name for name in report.log_files)


def test_killed_and_stopped_writers_on_s3(tmp_path, ministack, capsys):
    url = f"s3://{ministack.bucket()}/a table"
    times = {"pause_seconds": 0.4, "stop_seconds": 1.0, "seconds": 120}
    report = run_kills(url, tmp_path, kills=S3_KILLS, seed=2, points=False, **times, **ministack.options())
    shown(report, capsys, "S3")
    assert report.killed >= S3_KILLS
    assert report.kills["stopped"] >= 1
    assert report.outcomes["ok"] >= S3_KILLS / 2
    assert report.sightings == report.versions
