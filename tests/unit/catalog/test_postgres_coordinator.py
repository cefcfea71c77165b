"""PostgresCoordinator keeps the guarantees of a Coordinator on a real server."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import random
import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import DeltaTable, TransactionManager
from deltalog.catalog import postgresql as module
from deltalog.catalog import postgresql_schema
from deltalog.catalog.postgresql import PostgresCoordinator
from deltalog.catalog.postgresql_server import PostgresSettings
from deltalog.catalog.records import DocumentChange, Head, Proposal, Ratification, committed, touched
from deltalog.errors import CallError, CoordinatorError, EntityNotFoundError, OperationTimeoutError
from deltalog.testing.coordinator_cases import commit, marking, proposal, table, transaction
from deltalog.testing.coordinator_tests import CoordinatorTests
from deltalog.testing.store_contract import together
from tests.support.cli import run
from tests.support.postgresql import PASSWORD, Postgres

RATIFIED = Ratification.RATIFIED


def schema_of(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


class TestPostgresCoordinator(CoordinatorTests):
    threads = 8
    rounds = 8

    @pytest.fixture
    def coordinator(self, postgresql: Postgres) -> Iterator[PostgresCoordinator]:
        found = PostgresCoordinator(postgresql.empty_url())
        yield found
        found.close()

    @pytest.fixture
    def another(self, coordinator: PostgresCoordinator) -> Iterator[PostgresCoordinator]:
        found = PostgresCoordinator(coordinator.url)
        yield found
        found.close()


@pytest.mark.long
class TestPostgresCoordinatorForLong(TestPostgresCoordinator):
    threads = 32
    rounds = 60


@pytest.fixture
def catalog(postgresql: Postgres) -> Iterator[PostgresCoordinator]:
    found = PostgresCoordinator(postgresql.empty_url())
    yield found
    found.close()


# ------------------------------------------------------------------------------------------------- opening


def test_without_create_a_catalog_that_is_not_there_stays_away(postgresql: Postgres) -> None:
    url = postgresql.url("absent")
    with pytest.raises(EntityNotFoundError, match="no catalog at postgresql://"):
        PostgresCoordinator(url, create=False)
    assert postgresql.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'absent'") == []


def test_a_catalog_opens_wherever_one_can_stand(postgresql: Postgres, tmp_path: Path) -> None:
    url = postgresql.url()
    manager = TransactionManager(url)
    made = manager.create_table("bank.t", str(tmp_path / "t"), pa.schema([("id", pa.int64())]))
    made.append(pa.table({"id": [1]}))
    assert "pass" not in json.dumps(made.snapshot().metadata.configuration)
    address = f"catalog:{url}#bank.t"
    assert DeltaTable.open(address).to_pyarrow_table().num_rows == 1
    with manager.transaction() as txn:
        txn.table("bank.t").append(pa.table({"id": [2]}))
        txn.commit()
    assert DeltaTable.open(address).version == 2
    assert json.loads(run("tables", "list", url, "--json").out)["name"] == "bank.t"
    log_text = "".join(file.read_text() for file in (tmp_path / "t" / "_delta_log").glob("*.json"))
    assert "postgresql" not in log_text  # a log names its catalog by an id
    manager.coordinator.close()


def test_processes_that_create_a_catalog_at_once_create_one(postgresql: Postgres) -> None:
    url = postgresql.url()
    ids = together(lambda who: PostgresCoordinator(url).catalog_id, 8)
    assert len(set(ids)) == 1
    assert postgresql.execute(f"SELECT count(*) FROM {schema_of(url)}.catalog") == [(1,)]


def test_a_schema_of_something_else_is_left_as_it_is(postgresql: Postgres) -> None:
    postgresql.execute(f"CREATE SCHEMA foreign_one AUTHORIZATION {postgresql.user}")
    postgresql.execute("CREATE TABLE foreign_one.tables (x int)")
    with pytest.raises(CoordinatorError, match="contains tables of another application"):
        PostgresCoordinator(postgresql.url("foreign_one"))
    assert postgresql.execute("SELECT relname FROM pg_class WHERE relnamespace = 'foreign_one'::regnamespace") == [
        ("tables",)
    ]


def test_a_schema_that_an_administrator_made_is_used(postgresql: Postgres) -> None:
    postgresql.execute("CREATE ROLE guest LOGIN; CREATE SCHEMA given AUTHORIZATION guest")
    place = f"postgresql://guest@/catalogs?host={postgresql.directory}&port={postgresql.port}&schema="
    with pytest.raises(CoordinatorError, match="Grant the user"):
        PostgresCoordinator(f"{place}not_given")
    assert PostgresCoordinator(f"{place}given").register(table(1), 0)


def test_a_user_without_rights_is_told_what_is_missing(postgresql: Postgres) -> None:
    url = postgresql.url()
    PostgresCoordinator(url).register(table(1), 0)
    postgresql.execute("CREATE ROLE reader LOGIN")
    postgresql.execute(f"GRANT USAGE ON SCHEMA {schema_of(url)} TO reader")
    postgresql.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema_of(url)} TO reader")
    reader = PostgresCoordinator(
        f"postgresql://reader@/catalogs?host={postgresql.directory}&port={postgresql.port}&schema={schema_of(url)}"
    )
    assert reader.cut() == {"id-1": 0}
    with pytest.raises(CoordinatorError, match="Grant the user") as failed:
        reader.ratify(proposal({"id-1": 1}))
    assert not isinstance(failed.value, OperationTimeoutError)
    assert reader.cut() == {"id-1": 0}


def test_a_newer_schema_is_left_as_it_is(postgresql: Postgres) -> None:
    url = postgresql.url()
    first = PostgresCoordinator(url)
    postgresql.execute(f"UPDATE {schema_of(url)}.catalog SET schema_version = schema_version + 1")
    with pytest.raises(CoordinatorError, match="upgrade deltalog"):
        PostgresCoordinator(url)
    first.close()
    with pytest.raises(CoordinatorError, match="upgrade deltalog"):
        first.register(table(1), 0)  # over a new connection


def test_an_earlier_schema_is_upgraded_once(postgresql: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgresql.url()
    before = PostgresCoordinator(url)
    before.register(table(1), 5)
    step = "ALTER TABLE {schema}.tables ADD COLUMN later integer NOT NULL DEFAULT 7"
    monkeypatch.setattr(postgresql_schema, "STEPS", {**postgresql_schema.STEPS, 2: (step,)})
    monkeypatch.setattr(postgresql_schema, "SCHEMA_VERSION", 2)
    opened = together(lambda who: PostgresCoordinator(url), 4)
    assert {each.catalog_id for each in opened} == {before.catalog_id}
    assert opened[0].head("id-1") == Head(5)
    assert postgresql.execute(f"SELECT later FROM {schema_of(url)}.tables") == [(7,)]
    new = PostgresCoordinator(postgresql.url())
    assert postgresql.execute(f"SELECT schema_version FROM {new._server.schema}.catalog") == [(2,)]


def test_another_catalog_in_its_place_is_not_taken_for_it(postgresql: Postgres) -> None:
    url = postgresql.url()
    catalog = PostgresCoordinator(url)
    catalog.register(table(1), 0)
    postgresql.execute(f"DROP SCHEMA {schema_of(url)} CASCADE")
    with pytest.raises(CoordinatorError):
        catalog.register(table(2), 0)
    other = PostgresCoordinator(url)
    with pytest.raises(CoordinatorError, match="it was replaced"):
        catalog.register(table(2), 0)
    assert other.tables() == []


def test_an_encoding_that_lacks_characters_is_refused_by_name(postgresql: Postgres) -> None:
    for encoding in ("LATIN1", "SQL_ASCII"):
        name = f"in_{encoding.lower()}"
        postgresql.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 OWNER {postgresql.user}")
        with pytest.raises(CoordinatorError, match=f"encoding {encoding}"):
            PostgresCoordinator(postgresql.url(database=name))


@pytest.mark.parametrize(
    "schema",
    ['x";DROP SCHEMA public;--', "a b", "", "pg_mine", "PG_mine", "information_schema", "x" * 64, "1a", "ü", "a%25s"],
)
def test_a_name_that_no_schema_can_have_is_refused(postgresql: Postgres, schema: str) -> None:
    with pytest.raises(CallError, match="cannot be the PostgreSQL schema"):
        PostgresCoordinator(f"{postgresql.url('X').replace('schema=X', f'schema={schema}')}")


def test_the_case_of_a_schema_counts(postgresql: Postgres) -> None:
    upper, lower = (PostgresCoordinator(postgresql.url(name)) for name in ("Case-$1", "case-$1"))
    assert upper.catalog_id != lower.catalog_id


# ------------------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:sentinel-pw@127.0.0.1/db",
        "postgresql://user@127.0.0.1/db?password=sentinel-pw",
        "postgresql://user@127.0.0.1/db?schema=a&sslpassword=sentinel-pw",
        "catalog:postgresql://user:sentinel-pw@127.0.0.1/db#a.b",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(CallError, match=r"credentials|password") as failed:
        DeltaTable.open(url) if url.startswith("catalog:") else TransactionManager(url)
    assert "sentinel" not in str(failed.value) + repr(failed.value) + "".join(traceback.format_exception(failed.value))


def test_a_password_is_in_no_message_repr_or_pickle(postgresql: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgresql.url()
    url = url.partition("&passfile=")[0]
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    catalog = PostgresCoordinator(url)
    catalog.register(table(1), 0)
    packed = pickle.dumps(catalog)
    shown = [repr(catalog), str(packed), repr(catalog.reopen), catalog.url, repr(catalog._server.__dict__["_settings"])]
    assert pickle.loads(packed).cut() == {"id-1": 0}
    monkeypatch.setenv("PGPASSWORD", f"{PASSWORD}-wrong")
    with pytest.raises(CoordinatorError, match="Check PGPASSWORD") as failed:
        PostgresCoordinator(url)
    shown += [str(failed.value), "".join(traceback.format_exception(failed.value))]
    assert all("sentinel" not in each for each in shown)


def test_the_values_of_rows_are_in_no_message(catalog: PostgresCoordinator) -> None:
    long = "sentinel" + "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))
    with pytest.raises(CoordinatorError, match="too long for an index") as failed:
        catalog.register(dataclasses.replace(table(1), url=f"file:///{long}"), 0)
    assert "sentinel" not in "".join(traceback.format_exception(failed.value))
    assert catalog.tables() == []


# ---------------------------------------------------------------------------------------------- what is stored


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\udfff\0"])
def test_text_that_postgresql_cannot_store_is_refused_and_found_nowhere(
    catalog: PostgresCoordinator, text: str
) -> None:
    catalog.register(table(1), 0)
    before = touched(transaction("t"), 2000)
    catalog.insert(transaction("t"))
    commits = (dataclasses.replace(commit(1), txn_id=text),)
    for call in (
        lambda: catalog.register(dataclasses.replace(table(2), name=text), 0),
        lambda: catalog.rename("id-1", text),
        lambda: catalog.insert(transaction(text)),
        lambda: catalog.change_documents([DocumentChange("k", text, 0, "c")]),
        lambda: catalog.change_documents([DocumentChange("k", "a", 0, text), DocumentChange("k", "b", 0, "")]),
        lambda: catalog.ratify(Proposal({"id-1": commits})),
        lambda: catalog.ratify(Proposal({"id-1": commits}, {}, transaction("t"), before)),
    ):
        with pytest.raises(CallError, match="cannot store text"):
            call()
    assert catalog.table(text) is None and catalog.table_with_id(text) is None
    assert catalog.head(text) is None and catalog.transaction(text) is None
    assert catalog.document("k", text) is None and catalog.documents(text) == [] and catalog.parts(text) == {}
    assert (catalog.cut(), catalog.documents("k"), catalog.transaction("t")) == ({"id-1": 0}, [], transaction("t"))
    assert catalog.put_parts(before, {text: b"kept", "b": b""})  # the keys of parts are bytes
    assert list(catalog.parts("t")) == sorted([text, "b"], key=lambda key: key.encode("utf-8", "surrogatepass"))
    assert catalog.parts("t", text) == {text: b"kept"}


@pytest.mark.parametrize("smaller_by", [16, pytest.param(1, marks=pytest.mark.long)])
def test_many_parts_and_large_ones_are_kept(
    catalog: PostgresCoordinator, smaller_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More and larger ones than a row or a statement has."""
    for name in ("_PIECE_BYTES", "_STATEMENT_BYTES", "_STATEMENT_ROWS"):
        monkeypatch.setattr(module, name, getattr(module, name) // smaller_by)
    chance = random.Random(3)
    parts = {f"object/{number:05d}": b"%d" % number for number in range(module._STATEMENT_ROWS + 1)}
    large = module._STATEMENT_BYTES + module._PIECE_BYTES // 2 + 7
    parts |= {"large": chance.randbytes(large), "l" * 3000: b"a long key"}
    catalog.insert(transaction("t"))
    assert catalog.put_parts(touched(transaction("t"), 2000), parts)
    assert catalog.parts("t") == parts
    smaller = touched(touched(transaction("t"), 2000), 3000)
    assert catalog.put_parts(smaller, {"large": b"small"})  # no piece of the earlier one is left
    assert catalog.parts("t", "large") == {"large": b"small"}


def test_every_session_waits_for_the_disk(postgresql: Postgres) -> None:
    url = postgresql.url()
    postgresql.execute(f"ALTER ROLE {postgresql.user} SET synchronous_commit = off")
    try:
        catalog = PostgresCoordinator(url)
        catalog.register(table(1), 0)
        settings = catalog._server.read("SELECT current_setting('synchronous_commit'), current_setting('fsync')")
        assert settings == [("on", "on")]
        postgresql.execute(f"ALTER ROLE {postgresql.user} SET synchronous_commit = remote_apply")
        catalog.close()
        assert catalog._server.read("SHOW synchronous_commit") == [("remote_apply",)]
        catalog.published("id-1", 0)  # does not wait for the disk, and keeps the session's setting
        assert catalog._server.read("SHOW synchronous_commit") == [("remote_apply",)]
    finally:
        postgresql.execute(f"ALTER ROLE {postgresql.user} RESET synchronous_commit")


def test_what_is_asked_often_goes_by_an_index(catalog: PostgresCoordinator) -> None:
    """No frequent query reads a whole table or sorts, once tables have many rows."""
    with catalog._server._borrowed() as connection:
        connection.execute("SET enable_seqscan = off")
        for statement, values in (
            (module._HEAD, ("a",)),
            (module._PAGE, ("ACTIVE", 1, "a", 5)),
            (f"{module._TABLE} WHERE name > %s ORDER BY name LIMIT %s", ("a", 5)),
            (f"{module._DOCUMENT} WHERE kind = %s AND key > %s ORDER BY key LIMIT %s", ("a", "b", 5)),
            (module._CLASHES, ("a", "b", ["c/"], "d/", "d0")),
            (module._REPLACE, ("ACTIVE", 1, 2, "{}", "a", 1)),
        ):
            rows = connection.execute(f"EXPLAIN {catalog._sql(statement)}", values).fetchall()
            plan = "\n".join(line for (line,) in rows)
            assert "Seq Scan" not in plan, (statement, plan)
            assert "Sort" not in plan or statement is module._HEAD, (statement, plan)


def test_a_fork_uses_connections_of_its_own(catalog: PostgresCoordinator) -> None:
    catalog.register(table(1), 0)
    inherited = {id(each) for each in catalog._server._all}
    assert inherited
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert not catalog._server._all
            assert catalog.ratify(proposal({"id-1": 1})) is RATIFIED
            assert not inherited & {id(each) for each in catalog._server._all}
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {id(each) for each in catalog._server._all} == inherited
    assert catalog.cut() == {"id-1": 1}  # over a connection that the child has not closed
    assert {id(each) for each in catalog._server._all} == inherited


# ------------------------------------------------------------------------------------------------- deadlocks


@pytest.mark.parametrize("size", [(12, 8), pytest.param((100, 60), marks=pytest.mark.long)])
def test_changes_of_overlapping_tables_and_documents_end(postgresql: Postgres, size: tuple[int, int]) -> None:
    """Threads change, create and delete random tables and documents in any order; all of them finish."""
    threads, rounds = size
    catalog = postgresql.coordinator(settings=PostgresSettings(connections=40, lock_seconds=60))
    for number in range(6):
        catalog.register(table(number), 0)
    deadlocks = postgresql.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'catalogs'")

    def work(who: int) -> int:
        chance, done = random.Random(who), 0
        for step in range(rounds):
            keys = chance.sample("abcdefgh", chance.randint(1, 4))
            found = {each.key: each.revision for each in catalog.documents("k")}
            changes = [DocumentChange("k", key, found.get(key, 0), chance.choice(["x", "y", None])) for key in keys]
            heads = catalog.cut()
            some = [f"id-{number}" for number in chance.sample(range(6), chance.randint(1, 4))]
            versions = {each: heads[each] + 1 for each in some if each in heads}
            before = transaction(f"{who}-{step}")
            kind = chance.randint(0, 5)
            if kind == 0:
                done += catalog.change_documents(changes, ["sales.free"])
            elif kind == 1:
                done += catalog.register(table(100 + who), 0, changes)
            elif kind == 2:
                done += catalog.drop(f"id-{100 + who}", 0, None, changes)
            elif kind == 3:
                catalog.insert(before)
                marks = {each: catalog.marks(each).last for each in versions}
                done += catalog.put_parts(touched(before, 2000), {"a": b"1"}, marks)
                for each in versions:
                    done += catalog.mark(each, marks[each] + 1, marking("x"))
            else:
                catalog.insert(before)
                made = proposal(versions, unmoved={each: heads[each] for each in heads if chance.random() < 0.3})
                made = dataclasses.replace(
                    made, before=before, after=committed(before, versions, 2000), documents=tuple(changes)
                )
                done += catalog.ratify(made) is RATIFIED
        return done

    assert sum(together(work, threads)) > 0
    for number in range(6):
        head = catalog.head(f"id-{number}")
        assert head is not None
        assert [each.version for each in head.unpublished] == list(range(1, head.version + 1))
    now = postgresql.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'catalogs'")
    assert now == deadlocks
    catalog.close()
