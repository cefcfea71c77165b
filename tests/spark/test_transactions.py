"""Spark reads and writes the tables of a catalog by their addresses, and can change several tables in one
transaction."""

from __future__ import annotations

import functools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from tests.spark import transfers
from tests.spark.settings import IS_CONNECT
from tests.spark.tables import data_files, rows
from tests.spark.transfers import SCHEMA, TABLES, TOTAL


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    return str(tmp_path / "catalog.db")


@pytest.fixture
def manager(catalog: str) -> deltalog.TransactionManager:
    return deltalog.TransactionManager(catalog)


@pytest.fixture
def bank(manager: deltalog.TransactionManager, tmp_path: Path) -> deltalog.TransactionManager:
    transfers.make_bank(manager, tmp_path)
    return manager


def test_tables_are_read_and_written_by_their_address(
    spark: Any, bank: deltalog.TransactionManager, catalog: str
) -> None:
    address = f"catalog:{catalog}#bank.a"
    result = spark_ext.write(spark.sql("select 9L as account, 7L as amount")).mode("append").save(address)
    assert (result.version, result.num_rows) == (1, 1)
    assert (9, 7) in rows(spark_ext.read(spark).load(address))
    assert spark_ext.read(spark).load(f"{address}@v0").count() == transfers.ACCOUNTS
    assert spark_ext.read(spark).option("versionAsOf", 0).load(address).count() == transfers.ACCOUNTS
    found = spark_ext.sql(spark, f"select sum(amount) as s from deltalog.`{address}` where account = 9")
    assert rows(found) == [(7,)]


def test_a_path_that_a_catalog_manages_is_refused(
    spark: Any, bank: deltalog.TransactionManager, tmp_path: Path
) -> None:
    path = str(tmp_path / "bank.a")
    before = data_files(path)
    with pytest.raises(deltalog.UnsupportedFeatureError, match="catalogManaged"):
        spark_ext.read(spark).load(path)
    with pytest.raises(deltalog.UnsupportedFeatureError, match="catalogManaged"):
        spark_ext.write(spark.sql("select 9L as account, 7L as amount")).mode("append").save(path)
    assert data_files(path) == before


def test_an_address_without_a_table_makes_none(spark: Any, manager: deltalog.TransactionManager, catalog: str) -> None:
    with pytest.raises(deltalog.TableNotFoundError, match=r"no table bank\.d"):
        spark_ext.write(spark.range(1)).save(f"catalog:{catalog}#bank.d")
    assert manager.list_tables() == []


def test_spark_sees_what_its_transaction_did_and_nobody_else_does(
    spark: Any, bank: deltalog.TransactionManager, tmp_path: Path
) -> None:
    files = {name: data_files(str(tmp_path / name)) for name in TABLES}
    with bank.transaction() as transaction:
        table = transaction.table("bank.a")
        spark_ext.write(spark.sql("select 9L as account, 7L as amount")).mode("append").save(table)
        bank.table("bank.a").append(pa.table({"account": [8], "amount": [1]}, schema=SCHEMA))
        inside = {account for account, _ in rows(spark_ext.read(spark).load(table))}
        assert 9 in inside and 8 not in inside
        transaction.table("bank.b").append(pa.table({"account": [9], "amount": [-7]}, schema=SCHEMA))
        outside = spark_ext.read(spark).load(bank.table("bank.a"))
        assert 9 not in {account for account, _ in rows(outside)}
        assert transaction.commit() is deltalog.catalog.TransactionStatus.COMMITTED
    accounts = {account for account, _ in rows(spark_ext.read(spark).load(bank.table("bank.a")))}
    assert {8, 9} <= accounts
    assert len(data_files(str(tmp_path / "bank.a"))) == len(files["bank.a"]) + 2


def test_files_of_spark_go_with_a_transaction_that_is_cancelled(
    spark: Any, bank: deltalog.TransactionManager, tmp_path: Path
) -> None:
    before = data_files(str(tmp_path / "bank.a"))
    transaction = bank.transaction()
    table = transaction.table("bank.a")
    spark_ext.write(spark.sql("select 9L as account, 7L as amount")).mode("append").save(table)
    assert len(data_files(str(tmp_path / "bank.a"))) > len(before)
    transaction.cancel()
    assert data_files(str(tmp_path / "bank.a")) == before
    with pytest.raises(deltalog.errors.TransactionCanceledError):
        spark_ext.write(spark.sql("select 9L as account, 7L as amount")).mode("append").save(table)
    assert data_files(str(tmp_path / "bank.a")) == before


def test_a_table_that_was_opened_takes_no_allowed_paths(spark: Any, bank: deltalog.TransactionManager) -> None:
    with pytest.raises(deltalog.CallError, match="opened with its own"):
        spark_ext.read(spark).option("allowedPaths", "/x").load(bank.table("bank.a"))


def test_transfers_by_two_spark_jobs_and_a_python_process_never_make_or_lose_money(
    spark: Any, bank: deltalog.TransactionManager, catalog: str, tmp_path: Path
) -> None:
    """Any two of the writers write to one common table. The first three transactions are all ready before the first of
    them commits, so only one can succeed."""
    pairs = {"one": ("bank.a", "bank.b"), "two": ("bank.b", "bank.c"), "python": ("bank.c", "bank.a")}

    def job(name: str, seed: int) -> transfers.Outcome:
        move = transfers.spark_move(spark if IS_CONNECT else spark.newSession())
        manager = deltalog.TransactionManager(catalog)
        meet = functools.partial(transfers.rendezvous, tmp_path, name, 3)
        return transfers.transfer(manager, pairs[name], 3, seed, move, meet)

    seen = set()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as processes, ThreadPoolExecutor(2) as threads:
        python = processes.submit(transfers.python_process, catalog, str(tmp_path), pairs["python"], 12, 3)
        jobs = [threads.submit(job, name, seed) for name, seed in (("one", 1), ("two", 2))]
        while not all(each.done() for each in (python, *jobs)):
            with bank.transaction(transaction_type="READ_ONLY") as transaction:
                tables = [transaction.table(name) for name in TABLES]
                assert transfers.total(tables) == TOTAL
                seen.add(tuple(table.version for table in tables))
                transaction.commit()
        outcomes = [python.result(), *(each.result() for each in jobs)]

    assert [outcome.moved for outcome in outcomes] == [12, 3, 3]
    assert sum(outcome.conflicts for outcome in outcomes) >= 2, outcomes
    assert sum(outcome.conflicts for outcome in outcomes[1:]) >= 1, outcomes
    assert len(seen) > 3, "the reader is to have seen several states"
    in_spark = [spark_ext.read(spark).load(f"catalog:{catalog}#{name}") for name in TABLES]
    assert sum(frame.groupBy().sum("amount").collect()[0][0] for frame in in_spark) == TOTAL
    history = transfers.totals_through_time(bank)
    assert len(history) >= 1 + sum(outcome.moved for outcome in outcomes)
    assert set(history) == {TOTAL}
    ended = bank.list_transactions("ABORTED").transactions
    assert len(ended) == sum(outcome.conflicts for outcome in outcomes)
