"""Addresses of tables in catalogs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import CallError, Dataset, DeltaTable, TableNotFoundError, TransactionManager, open_store

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """The file of a catalog that contains the table bank.a."""
    made = tmp_path / "catalog.db"
    TransactionManager(str(made)).create_table("bank.a", str(tmp_path / "a"), ROWS.schema, data=ROWS)
    return made


@pytest.mark.parametrize("scheme", ["", "sqlite:///"])
def test_a_table_is_opened_by_its_address(catalog: Path, scheme: str) -> None:
    address = f"catalog:{scheme}{catalog}#bank.a"
    assert DeltaTable.exists(address)
    assert DeltaTable.open(address).snapshot().scan().to_arrow() == ROWS


def test_looking_for_a_table_makes_no_catalog(tmp_path: Path) -> None:
    address = f"catalog:{tmp_path}/typo.db#bank.a"
    assert not DeltaTable.exists(address)
    with pytest.raises(
        TableNotFoundError, match=r"catalog:.*typo\.db#bank\.a is not a table: .*no catalog at .*typo\.db"
    ):
        DeltaTable.open(address)
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_the_catalog_has_not(catalog: Path) -> None:
    assert not DeltaTable.exists(f"catalog:{catalog}#bank.b")


@pytest.mark.parametrize("bad", ["", "#", "#bank.a", "catalog.db", "catalog.db#"])
def test_what_is_no_address(bad: str) -> None:
    with pytest.raises(CallError):
        DeltaTable.open(f"catalog:{bad}")


def test_a_dataset_is_written_by_its_address(catalog: Path) -> None:
    dataset = Dataset(f"catalog:{catalog}#bank.a")
    dataset.write(ROWS)
    assert TransactionManager(str(catalog)).table("bank.a").snapshot().scan().to_arrow().num_rows == 4


def test_the_url_that_a_catalog_gives_leads_back_to_it(catalog: Path) -> None:
    url = TransactionManager(str(catalog)).coordinator.url
    assert url == f"sqlite:///{catalog}" and url.startswith("sqlite:////")
    assert [table.name for table in TransactionManager(url).list_tables()] == ["bank.a"]


@pytest.mark.parametrize("slashes", ["", "/", "//", "///", "/////"])
def test_a_sqlite_url_that_does_not_say_where_the_file_is(
    slashes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CallError, match=r"Write bank\.db for the former, sqlite:////bank\.db for the latter"):
        TransactionManager(f"sqlite:{slashes}bank.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong", ["sqlite:///", "sqlite:", "mysql://host/bank", "file:///data/bank.db", "catalog:bank.db#bank.a"]
)
def test_a_url_of_another_kind_makes_no_catalog(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CallError, match=r"sqlite:////|Use the part between"):
        TransactionManager(wrong)
    assert list(tmp_path.iterdir()) == []


def test_no_table_is_made_at_an_address(catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    address = f"catalog:{catalog.name}#bank.new"
    with pytest.raises(CallError, match="address of a table in a catalog"):
        DeltaTable.create(address, ROWS.schema)
    with pytest.raises(CallError, match="address of a table in a catalog"):
        open_store(address)
    with pytest.raises(CallError, match="address of a table in a catalog"):
        TransactionManager(catalog.name).register_table("bank.new", address)
    with pytest.raises(TableNotFoundError, match=r"has no table bank\.new"):
        Dataset(address)
    assert sorted(tmp_path.rglob("*")) == before
