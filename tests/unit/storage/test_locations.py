"""Storage options that differ by location."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, TransactionManager, open_store
from deltalog.storage.locations import options_at
from tests.support.cli import run
from tests.support.s3 import Server
from tests.support.server import AT_ONCE, served

LAKE, SALES = {"key": "of the lake"}, {"key": "of sales", "secret": "s"}
OPTIONS = {"anon": True, "by_location": {"s3://lake": LAKE, "s3a://lake/sales/": SALES, "dynamodb:": {"key": "d"}}}
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://lake", LAKE),
        ("s3a://lake/events", LAKE),
        ("s3://lake/sales/2026", SALES),
        ("s3://lake/sales", SALES),
        ("s3://lake/salesmen", LAKE),
        ("s3://lakeside/t", {"anon": True}),
        ("s3://other/t", {"anon": True}),
        ("dynamodb:catalog", {"key": "d"}),
        ("/data/t", {"anon": True}),
    ],
)
def test_the_longest_beginning_decides(url: str, found: dict[str, Any]) -> None:
    assert options_at(url, OPTIONS) == found


@pytest.mark.parametrize("given", [7, "s3://lake", {"s3://lake": "secret"}, {"": {}}, {7: {}}, [{"key": "secret"}]])
def test_wrong_options_are_refused_and_not_shown(given: Any) -> None:
    with pytest.raises(CallError) as error:
        open_store("s3://lake/t", by_location=given)
    assert "by_location" in str(error.value) and "secret" not in str(error.value)


def test_a_catalog_has_tables_of_two_services_and_of_a_disk(moto: Server, ministack: Server, tmp_path: Path) -> None:
    """The options work in Python, in addresses, on the command line and in a server; the catalog does not store secrets
    from them."""
    places = {
        "local.t": str(tmp_path / "t"),
        "one.t": f"s3://{moto.bucket()}/lake/t",
        "two.t": f"s3://{ministack.bucket()}/lake/t",
    }
    options: dict[str, Any] = {
        "by_location": {
            places["one.t"].removesuffix("/t"): {**moto.options(), "secret": "secret-of-one"},
            places["two.t"].removesuffix("/t"): {**ministack.options(), "secret": "secret-of-two"},
        }
    }
    catalog = tmp_path / "catalog.db"
    manager = TransactionManager(str(catalog), **options)
    for name, url in places.items():
        manager.create_table(name, url, ROWS.schema)
    with manager.transaction() as transaction:
        for name in places:
            transaction.table(name).append(ROWS)
        transaction.commit()
    for name in places:
        table = DeltaTable.open(f"catalog:{catalog}#{name}", **options)
        assert table.snapshot().scan().to_arrow().equals(ROWS)
        assert "secret-of" not in repr(table) + repr(manager)
    file = tmp_path / "options.json"
    file.write_text(json.dumps(options))
    for name in places:
        done = run("files", f"catalog:{catalog}#{name}", "--json", "--storage-options-file", file)
        assert done.status == 0 and len(done.out.splitlines()) == 1
    log = tmp_path / "log"
    with served(catalog, "--storage-options-file", str(file), log=log) as server:
        client = server.client(config=AT_ONCE)
        for name in places:
            database, _, table_name = name.partition(".")
            (partition,) = client.get_table_objects(DatabaseName=database, TableName=table_name)["Objects"]
            assert partition["Objects"][0]["Uri"].startswith(places[name])
    manager.coordinator.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("catalog.db*"))
    assert b"secret-of" not in stored and "secret-of" not in log.read_text()


@pytest.mark.parametrize("text", ["{", "[]", '{"url": "secret"}', None])
def test_a_file_of_options_that_is_wrong_is_refused_and_not_shown(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "options.json"
    if text is not None:
        file.write_text(text)
    done = run("tables", "list", tmp_path / "catalog.db", "--storage-options-file", file)
    assert done.status != 0 and "secret" not in done.out + done.err
