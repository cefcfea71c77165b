"""Eight concurrent clients, each with its own connection."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from deltalog import TransactionManager
from tests.support.server import AT_ONCE, Served, add, delete, parquet, served

CLIENTS = 8
TABLES = [{"DatabaseName": "bank", "TableName": name} for name in "ab"]


def together(server: Served, work: Any, times: int = CLIENTS) -> list[Any]:
    """Run ``work(number, client)`` in threads, all at the same time."""
    clients = [server.client() for _ in range(times)]
    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(work, range(times), clients))


def files(client: Any, table: dict[str, str]) -> set[str]:
    objects = [each for part in client.get_table_objects(**table)["Objects"] for each in part["Objects"]]
    return {each["Uri"] for each in objects}


def test_transactions_of_eight_clients_over_two_tables_all_land(
    server: Served, client: Any, place: Path, manager: TransactionManager
) -> None:
    rounds = 3

    def work(number: int, own: Any) -> None:
        for turn in range(rounds):
            started = own.start_transaction()["TransactionId"]
            for table in TABLES:
                operation = add(place / table["TableName"], f"many/{number}-{turn}.parquet", number)
                own.update_table_objects(**table, TransactionId=started, WriteOperations=[operation])
            while True:
                try:
                    assert own.commit_transaction(TransactionId=started)["TransactionStatus"] == "COMMITTED"
                    break
                except own.exceptions.ConcurrentModificationException:
                    continue

    together(server, work)
    for table in TABLES:
        found = [uri for uri in files(client, table) if "/many/" in uri]
        assert len(found) == len(set(found)) == CLIENTS * rounds
        rows = manager.table(f"bank.{table['TableName']}").snapshot().scan().to_arrow()["id"].to_pylist()
        assert Counter(rows) == dict.fromkeys(range(CLIENTS), rounds)


def test_one_transaction_of_eight_clients_is_committed_once(server: Served, client: Any, place: Path) -> None:
    started = client.start_transaction()["TransactionId"]

    def stage(number: int, own: Any) -> None:
        operation = add(place / "a", f"one/{number}.parquet", number)
        own.update_table_objects(**TABLES[0], TransactionId=started, WriteOperations=[operation])

    together(server, stage)
    assert not any("/one/" in uri for uri in files(client, TABLES[0]))
    answers = together(server, lambda number, own: own.commit_transaction(TransactionId=started)["TransactionStatus"])
    assert set(answers) <= {"COMMITTED", "COMMIT_IN_PROGRESS"} and "COMMITTED" in answers
    assert sum("/one/" in uri for uri in files(client, TABLES[0])) == CLIENTS


def test_of_eight_clients_that_delete_a_file_one_succeeds(server: Served, client: Any, place: Path) -> None:
    operation = {"AddObject": {**parquet(place / "a", "only/one.parquet", 1), "PartitionValues": ["d"]}}
    client.update_table_objects(**TABLES[0], WriteOperations=[operation])

    def work(number: int, own: Any) -> str:
        started = own.start_transaction()["TransactionId"]
        own.get_table_objects(**TABLES[0], TransactionId=started)
        barrier.wait(60)
        try:
            operations = [delete(place / "a", "only/one.parquet")]
            own.update_table_objects(**TABLES[0], TransactionId=started, WriteOperations=operations)
            return str(own.commit_transaction(TransactionId=started)["TransactionStatus"])
        except own.exceptions.TransactionCanceledException:
            return "ABORTED"

    barrier = threading.Barrier(CLIENTS)
    assert sorted(together(server, work)) == ["ABORTED"] * (CLIENTS - 1) + ["COMMITTED"]
    assert not any("/only/" in uri for uri in files(client, TABLES[0]))


def test_a_transaction_may_go_on_at_another_server(server: Served, client: Any, place: Path) -> None:
    with served(place / "catalog.db") as other:
        clients = [client, other.client(config=AT_ONCE)]
        started = client.start_transaction()["TransactionId"]
        for number in range(6):
            operation = add(place / "a", f"both/{number}.parquet", number)
            clients[number % 2].update_table_objects(**TABLES[0], TransactionId=started, WriteOperations=[operation])
            for each in clients:
                objects = each.get_table_objects(**TABLES[0], TransactionId=started)["Objects"]
                assert str(objects).count("/both/") == number + 1
        clients[1].commit_transaction(TransactionId=started)
    assert sum("/both/" in uri for uri in files(client, TABLES[0])) == 6
