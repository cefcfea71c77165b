"""dev.py: the lanes hold each suite once, and the lowest versions are those of pyproject.toml."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_suites_of_lanes_exist_and_none_is_part_of_another(dev: ModuleType) -> None:
    for runs in (dev.QUICK, [run for lane in dev.LANES for run in lane]):
        suites = sorted(suite for run in runs for suite in run)
        assert [suite for suite in suites if not (ROOT / suite).exists()] == []
        assert [pair for pair in itertools.combinations(suites, 2) if f"{pair[1]}/".startswith(f"{pair[0]}/")] == []


def test_modules_of_a_usual_run_exist(dev: ModuleType) -> None:
    assert {suite for lane in dev.LANES for run in lane for suite in run} >= set(dev.CENTRAL)
    modules = [path for suite in dev.CENTRAL for path in dev.central([suite])]
    assert [path for path in modules if not (ROOT / path).exists()] == []
    assert dev.central(["tests/unit/log"]) == ["tests/unit/log"]


def test_the_lowest_versions_are_those_of_the_dependencies_and_of_the_command_line(dev: ModuleType) -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = {pin.partition("==")[0] for pin in dev.lowest_versions(pyproject)}
    assert names == {"msgspec", "pyarrow", "pyroaring", "sqlglot", "rich", "typer"}
    assert dev.lowest_versions('dependencies = [\n    "x-y>=1.2,<3",\n]\ncli = ["z>=4"]\n') == ["x-y==1.2", "z==4"]
