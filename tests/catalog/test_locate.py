"""Addresses of tables in catalogs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, TableNotFoundError, TransactionManager

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """The catalog's file; with the table bank.a."""
    made = tmp_path / "catalog.db"
    TransactionManager(str(made)).create_table("bank.a", str(tmp_path / "a"), ROWS.schema, data=ROWS)
    return made


@pytest.mark.parametrize("scheme", ["", "sqlite://"])
def test_a_table_is_opened_by_its_address(catalog: Path, scheme: str) -> None:
    address = f"catalog:{scheme}{catalog}#bank.a"
    assert DeltaTable.exists(address)
    assert DeltaTable.open(address).snapshot().scan().to_arrow() == ROWS


def test_looking_for_a_table_makes_no_catalog(tmp_path: Path) -> None:
    address = f"catalog:{tmp_path}/typo.db#bank.a"
    assert not DeltaTable.exists(address)
    with pytest.raises(TableNotFoundError, match=r"catalog:.*typo\.db#bank\.a is no table: .*no catalog at .*typo\.db"):
        DeltaTable.open(address)
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_the_catalog_has_not(catalog: Path) -> None:
    assert not DeltaTable.exists(f"catalog:{catalog}#bank.b")


@pytest.mark.parametrize("bad", ["", "#", "#bank.a", "catalog.db", "catalog.db#"])
def test_what_is_no_address(bad: str) -> None:
    with pytest.raises(CallError):
        DeltaTable.open(f"catalog:{bad}")
