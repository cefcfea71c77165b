"""dev.py: each suite is in one run, the tests named for a usual run exist, the lowest versions are the ones in
pyproject.toml."""

from __future__ import annotations

import ast
import itertools
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.scripts import script
from tests.support.usual_run import ENTRIES, SUITES, USUAL_RUN

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    return script("dev.py")


def test_suites_of_runs_exist_and_none_is_part_of_another(dev: ModuleType) -> None:
    for runs in (dev.QUICK, dev.SUITES):
        suites = sorted(suite for run in runs for suite in run)
        assert [suite for suite in suites if not (ROOT / suite).exists()] == [] and len(set(suites)) == len(suites)
    quick = sorted(suite for run in dev.QUICK for suite in run)
    assert [pair for pair in itertools.combinations(quick, 2) if f"{pair[1]}/".startswith(f"{pair[0]}/")] == []
    assert dev.inside(["tests/unit"]) == ["tests/unit/storage", "tests/unit/server", "tests/unit/transactions"]
    assert {(suite,) for suite in SUITES} <= {tuple(run) for run in dev.SUITES}, (
        "a process can have only one kind of session"
    )


# The features whose Spark tests must be part of a usual run.
FEATURES = {
    "append", "overwrite", "replaceWhere", "delete", "update", "merge", "SQL: rows", "SQL: tables", "SQL: queries",
    "stream source", "stream sink", "optimize", "vacuum", "restore", "clone", "convert", "create", "replace",
    "time travel by version", "time travel by timestamp", "change feed", "schema evolution", "constraints", "generated",
    "default", "identity", "column mapping", "deletion vectors", "row tracking", "in-commit timestamps", "S3",
    "Spark Connect",
}  # fmt: skip


def test_a_usual_run_has_each_verb_and_feature_with_spark() -> None:
    assert {feature for feature in FEATURES if not any(feature in named for named in USUAL_RUN)} == set()
    assert {suite for suite in SUITES if any(entry.startswith(f"{suite}/") for entry in ENTRIES)} == set(SUITES)
    assert len(ENTRIES) == sum(map(len, USUAL_RUN.values())), "an entry is listed twice"


@pytest.mark.parametrize("module", sorted({entry.partition("::")[0] for entry in ENTRIES}))
def test_tests_of_a_usual_run_exist(module: str) -> None:
    """Checks test functions only: parametrized cases and inherited tests exist only after collection, when pytest
    refuses unknown tests."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    entries = (entry.split("::")[1:] for entry in ENTRIES if entry.startswith(f"{module}::"))
    named = {entry[0].partition("[")[0] for entry in entries if len(entry) == 1}
    assert named - there == set(), "tests/support/usual_run.py"


def test_the_lowest_versions_are_those_of_the_dependencies_and_of_the_command_line(dev: ModuleType) -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = {pin.partition("==")[0] for pin in dev.lowest_versions(pyproject)}
    assert names == {"msgspec", "pyarrow", "pyroaring", "sqlglot", "rich", "typer"}
    assert dev.lowest_versions('dependencies = [\n    "x-y>=1.2,<3",\n]\ncli = ["z>=4"]\n') == ["x-y==1.2", "z==4"]


def test_the_workflow_runs_every_suite_whole_and_every_version_of_spark(dev: ModuleType) -> None:
    text = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    whole = [place for line in re.findall(r"^ +- (tests/.*)$", text, re.M) for place in line.split()]
    found = {file for place in whole for path in ROOT.glob(place) for file in (path, *path.rglob("test_*.py"))}
    everything = {*(ROOT / "tests").rglob("test_*.py")} - {*(ROOT / "tests/extras").iterdir()}
    assert {str(path.relative_to(ROOT)) for path in everything - found} == set()
    assert f"spark: {json.dumps([*dev.SPARK])}" in text and "dev.py test --extras" in text
