"""A pytest plugin for projects that test their own engine. Every case becomes a test.

    # conftest.py
    pytest_plugins = ["deltalog.conformance.pytest_plugin"]

    # test_conformance.py
    import pytest
    from my_project.adapter import MyEngine

    @pytest.fixture(scope="session")
    def conformance_engine():
        return MyEngine()

    def test_conformance(conformance_case, conformance_engine, check_conformance):
        check_conformance(conformance_engine, conformance_case)

``--conformance-area`` and ``--conformance-case`` select cases. A skipped case is reported as a skipped test. Cases
about catalog-managed tables run on ``--conformance-catalog``, or on deltalog's own server if the extra ``server`` is
installed.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalog.conformance.case import AREAS, CATALOG_MANAGED, FAILED, SKIPPED, Case
from deltalog.conformance.cases import all_cases
from deltalog.conformance.catalog_server import catalog_for, uses_catalogs
from deltalog.conformance.engine import Engine
from deltalog.conformance.managed import ManagedTables
from deltalog.conformance.runner import run_case


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("deltalog conformance")
    group.addoption("--conformance-area", choices=AREAS, help="run only the cases of one area")
    group.addoption("--conformance-case", metavar="ID", action="append", help="run only this case; * matches any text")
    group.addoption(
        "--conformance-catalog", metavar="URL", help="the Unity Catalog for cases on catalog-managed tables"
    )


def pytest_generate_tests(metafunc: Any) -> None:
    """Parametrize tests that have an argument ``conformance_case``."""
    if "conformance_case" in metafunc.fixturenames:
        area, ids = (metafunc.config.getoption(f"conformance_{name}") for name in ("area", "case"))
        chosen = [case for case in all_cases() if area in (None, case.area)]
        chosen = [case for case in chosen if not ids or any(fnmatch.fnmatchcase(case.id, each) for each in ids)]
        metafunc.parametrize("conformance_case", chosen, ids=[case.id for case in chosen])


@pytest.fixture(scope="session")
def conformance_catalog(pytestconfig: pytest.Config) -> Iterator[Callable[[Engine], ManagedTables | None]]:
    """The catalog for an engine's cases about catalog-managed tables, whose server starts at the first such case."""
    with contextlib.ExitStack() as servers:
        found: list[ManagedTables | None] = []

        def catalog_of(engine: Engine) -> ManagedTables | None:
            if uses_catalogs(engine) and not found:
                found.append(servers.enter_context(catalog_for(engine, pytestconfig.getoption("conformance_catalog"))))
            return found[0] if found else None

        yield catalog_of


@pytest.fixture
def check_conformance(
    tmp_path: Path, conformance_catalog: Callable[[Engine], ManagedTables | None]
) -> Callable[[Engine, Case], None]:
    """Run a case on an engine, in the temporary directory of the test."""

    def check(engine: Engine, case: Case) -> None:
        catalog = conformance_catalog(engine) if case.area == CATALOG_MANAGED else None
        outcome = run_case(engine, case, tmp_path, catalog)
        if outcome.outcome == SKIPPED:
            pytest.skip(outcome.reason or "")
        if outcome.outcome == FAILED:
            pytest.fail(f"{case.about} (PROTOCOL.md#{case.section}): {outcome.reason}", pytrace=False)

    return check
