"""The latency benchmark counts rounds correctly, and its quick run gets correct answers from both systems."""

from __future__ import annotations

import http.client
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.latency.logs import logs, objects
from tests.benchmarks.latency.plan import operations
from tests.benchmarks.latency.proxy import DelayingProxy, Exchange, by_kind, chain, rounds
from tests.support.s3 import Server

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("spans", "count"),
    [
        ([], 0),
        ([(0, 25)], 1),
        ([(0, 25), (1, 26), (2, 27)], 1),  # concurrent
        ([(0, 25), (25, 50), (50, 75)], 3),  # one after the other
        (
            [(0, 25), (0, 60), (26, 51), (61, 86)],
            3,
        ),  # a long request concurrent with a chain of two, then one more request
        ([(0, 25), (26, None)], 1),  # requests that were not answered before the operation ended
    ],
)
def test_rounds_are_requests_that_follow_one_another(spans: list[Any], count: int) -> None:
    exchanges = [Exchange("GET", str(number), *span) for number, span in enumerate(spans)]
    random.Random(1).shuffle(exchanges)
    assert rounds(exchanges) == len(list(chain(exchanges))) == count


def test_the_proxy_delays_and_counts_each_request(ministack: Server) -> None:
    bucket = ministack.bucket()
    proxy = DelayingProxy(ministack.port)
    proxy.delay_s = 0.2
    try:

        def ask(calls: list[tuple[str, str, bytes | None]]) -> list[tuple[int, bytes]]:
            connection, answers = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60), []
            for method, target, body in calls:
                connection.request(method, target, body)
                response = connection.getresponse()
                answers.append((response.status, response.read()))
            connection.close()
            return answers

        key = f"/{bucket}/a%20name"
        answers = ask([("PUT", key, b"some bytes"), ("GET", key, None), ("HEAD", key, None)])
        assert answers == [(200, b""), (200, b"some bytes"), (200, b"")]
        assert rounds(proxy.exchanges) == 3 and [each.is_first for each in proxy.exchanges] == [True, False, False]
        assert [each.key for each in proxy.exchanges] == [f"/{bucket}/a name"] * 3
        assert all((each.ended_s or 0) - each.begun_s >= proxy.delay_s for each in proxy.exchanges)
        proxy.exchanges.clear()

        def one(_: int) -> Any:
            together.wait()
            return ask([("GET", key, None)])

        together = threading.Barrier(8)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(one, range(8))) == [[(200, b"some bytes")]] * 8
        assert len(proxy.exchanges) == 8 and rounds(proxy.exchanges) == 1
        proxy.exchanges.clear()
        page, deleted, gone = ask([("GET", f"/{bucket}?list-type=2", None), ("DELETE", key, None), ("GET", key, None)])
        assert b"<Key>a name</Key>" in page[1] and (deleted[0], gone[0]) == (204, 404)
        assert by_kind(proxy.exchanges) == {"DELETE": 1, "GET": 1, "LIST": 1}
    finally:
        proxy.close()


def test_an_indexed_listing_is_that_of_the_server() -> None:
    from ministack.services import s3

    from tests.benchmarks.latency import server

    chance = random.Random(3)
    names = [f"{chance.choice(['a', 'a/b', 'a/c', 'b', 'log'])}/{chance.randrange(200):03}" for _ in range(300)]
    contents = dict.fromkeys(names)
    indexed, original = server.indexed_listing(server.Index()), s3._collect_list_entries
    for _ in range(400):
        prefix, delimiter = chance.choice(["", "a/", "a/b/", "lo", "nothing"]), chance.choice(["", "/"])
        after = chance.choice(["", "a/1", "a/b/050", "b", *names])
        asked = contents, prefix, delimiter, chance.choice([1, 3, 50, 1000]), after
        assert indexed(*asked) == original(*asked), asked[1:]


def test_the_logs_are_what_they_are_said_to_be(tmp_path: Path) -> None:
    from deltalog import DeltaTable

    for log in logs(quick=True):
        root = tmp_path / log.name
        (root / "_delta_log").mkdir(parents=True)
        for key, data, _ in objects(log):
            (root / key).write_bytes(data)
        table = DeltaTable.open(root)
        snapshot = table.snapshot()
        assert (snapshot.version, snapshot.num_files, snapshot.files().num_rows) == (log.size - 1, log.size, log.size)
        assert table.snapshot(0).num_files == 1
        if log.ict:
            version, at_ms = log.asked()
            assert table.version_at(at_ms).version == version


def test_a_quick_run_has_right_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.benchmarks.__main__ import main

    chosen = ["--quick", "--peers", "deltalog,deltalake", "--delays", "10", "--tables", str(tmp_path / "tables")]
    out, table = tmp_path / "out.json", tmp_path / "out.md"
    only = "latency:open,latency:resolve,latency:history,latency:append,latency:transaction:1"
    assert main([*chosen, "--only", only, "--json", str(out), "--markdown", str(table)]) == 0
    found = json.loads(out.read_text())["latency"]
    assert found["failures"] == []
    facts = [goal for goal in found["reach"] if not goal["timed"]]
    assert len(facts) > 10 and all(goal["met"] for goal in facts), facts
    assert {goal["met"] for goal in found["reach"] if goal["timed"]} == {None}
    chosen_keys = [each for each in operations(quick=True) if any(text in each.key for text in only.split(","))]
    wanted = {
        (each.key, phase.name, system) for each in chosen_keys for phase in each.phases for system in each.arguments
    }
    assert {(line["key"], line["phase"], line["system"]) for line in found["lines"]} == wanted
    for line in found["lines"]:
        assert 0 < line["rounds"] <= sum(line["requests"].values()) and line["rounds"] == len(line["chain"]), line
    printed = capsys.readouterr().out
    assert "open, S3 client loaded, 200 commits" in printed and "| version_at, 200 commits |" in table.read_text()
