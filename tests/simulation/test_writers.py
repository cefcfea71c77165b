"""Concurrent real processes: 8 that commit 50 times each, and 32 that race to create one key, with every kind of mutual
exclusion. DELTALOG_KEY_ROUNDS=500 runs as many races on S3 as on a local disk; DELTALOG_WRITER_COMMITS=50 makes as many
commits on S3 and through DynamoDB, where each commit takes a lease.
"""

from __future__ import annotations

import os

import pytest

from tests.support.s3 import dynamodb
from tests.support.simulation.writers import race_for_keys, run_writers

PROCESSES, CLIENTS = 8, 32
PLACES = {"local disk": 30, "S3": 10, "dynamo": 5, "s3-dynamodb": 5}
COMMITS = {place: int(os.environ.get("DELTALOG_WRITER_COMMITS", usual)) for place, usual in PLACES.items()}
S3_ROUNDS = int(os.environ.get("DELTALOG_KEY_ROUNDS", "20"))

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.timeout(1200),
]


@pytest.fixture
def place(request, tmp_path):
    """A location and its storage options."""
    if request.param == "local disk":
        return str(tmp_path / "table"), {}
    server = request.getfixturevalue("ministack")
    options = server.options()
    if request.param != "S3":
        options["commit"] = f"{request.param}:{dynamodb.new_table(server, request.param)}"
    return f"s3://{server.bucket()}/a table", options


@pytest.fixture
def records(tmp_path):
    directory = tmp_path / "records"
    directory.mkdir()
    return directory


@pytest.mark.sampled(2)
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_no_commit_of_eight_processes_is_lost(place, records, request, capsys):
    url, options = place
    commits = COMMITS[request.node.callspec.params["place"]]
    report = run_writers(url, records, processes=PROCESSES, commits=commits, **options)
    with capsys.disabled():
        print(f"\n[writers] {request.node.callspec.id}: {report.line()}", end="")
    assert not report.problems, "\n".join(report.problems[:20])
    assert (report.commits, report.versions) == (PROCESSES * commits, 1 + PROCESSES * commits)


@pytest.mark.parametrize(("place", "rounds"), [("local disk", 200), ("S3", S3_ROUNDS)], indirect=["place"])
def test_of_32_clients_one_creates_the_key(place, rounds, records):
    url, options = place
    problems = race_for_keys(url, records, clients=CLIENTS, rounds=rounds, **options)
    assert not problems, "\n".join(problems[:20])
    assert len(list(records.iterdir())) == CLIENTS
