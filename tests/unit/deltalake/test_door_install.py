"""``install`` puts the modules of ``deltalog.deltalake`` into sys.modules under deltalake's names, and ``uninstall``
removes them again."""

from __future__ import annotations

import importlib
import sys

import pytest

import deltalog.deltalake as door


@pytest.fixture
def installed():
    door.install()
    yield
    door.uninstall()


def test_imports_of_deltalake_find_the_door(installed) -> None:
    assert importlib.import_module("deltalake") is door
    assert importlib.import_module("deltalake.exceptions").DeltaError is door.exceptions.DeltaError
    assert importlib.import_module("deltalake.table").DeltaTable is door.DeltaTable
    assert importlib.import_module("deltalake.writer").write_deltalake is door.write_deltalake
    assert importlib.import_module("deltalake.writer.properties").WriterProperties is door.WriterProperties
    assert importlib.import_module("deltalake.transaction").AddAction.__name__ == "AddAction"
    assert importlib.import_module("deltalake._internal").RawDeltaTable.__name__ == "RawDeltaTable"


def test_a_second_install_changes_nothing(installed) -> None:
    door.install()
    door.uninstall()
    assert sys.modules.get("deltalake") is not door
    door.install()  # for the fixture


def test_uninstall_brings_back_what_was_there() -> None:
    real = pytest.importorskip("deltalake")
    exceptions = importlib.import_module("deltalake.exceptions")
    door.install()
    assert sys.modules["deltalake"] is door
    door.uninstall()
    assert sys.modules["deltalake"] is real
    assert sys.modules["deltalake.exceptions"] is exceptions
    assert "deltalake._util" not in sys.modules or sys.modules["deltalake._util"].__name__ == "deltalake._util"


def test_uninstall_without_install_changes_nothing() -> None:
    before = {name: module for name, module in sys.modules.items() if name.startswith("deltalake")}
    door.uninstall()
    assert {name: module for name, module in sys.modules.items() if name.startswith("deltalake")} == before
