"""Environments of engines: made whole or not at all, apart from every other environment, and found again."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltalog import CallError
from deltalog.conformance import AdapterError, installation, run, self_check, start_engine
from deltalog.conformance.cases import all_cases
from deltalog.conformance.environments import (
    CACHE_VARIABLE,
    DESCRIPTION,
    RECIPES,
    Recipe,
    cache_directory,
    environment_of,
    launch_of,
)
from tests.support.conformance.wheels import write_wheel

ROOT = Path(__file__).resolve().parents[3]
NAME = "tiny"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of wheels that is all that pip knows, by its own variables."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    write_wheel(tmp_path / "wheels", "1.0")
    write_wheel(tmp_path / "wheels", "2.0", works=False)
    return tmp_path / "wheels"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recipe]:
    """Sets the recipe of the engine ``tiny``."""

    def set_recipe(*requirements: str, **more: Any) -> Recipe:
        made = Recipe(adapter="tiny_engine:TinyEngine", requirements=requirements, **more)
        monkeypatch.setitem(RECIPES, NAME, made)
        return made

    return set_recipe


def in_cache(cache: Path) -> list[str]:
    return sorted(each.name for each in cache.iterdir() if each.name != f".{NAME}.lock")


def test_an_engine_runs_in_its_own_environment(
    wheels: Path, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe("tiny-engine==1.0")
    cache = tmp_path / "cache"
    with pytest.raises(CallError, match=r"tiny is not installed.*Run deltalog conformance install tiny"):
        start_engine(NAME, cache=cache)
    found = installation.install(NAME, cache)
    assert found["version"] == "1.0" and found["environment"]["tiny-engine"] == "1.0" and found["calls"] == ["rows"]
    assert found["requirements"] == ["tiny-engine==1.0"] and 0 < found["bytes"] < 50e6
    assert in_cache(cache) == [environment_of(NAME, cache).name]

    # What the kit's environment has is not found, nor what PYTHONPATH names.
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "outside.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    with start_engine(NAME, cache=cache) as engine:
        self_check(engine)
        [about] = engine.rows("about")
        assert {outcome.outcome for outcome in run(engine, all_cases()[:3])} <= {"passed", "failed", "skipped"}
    assert about["found"] == ["deltalog"] and about["prefix"] == str(environment_of(NAME, cache))
    assert Path(about["deltalog"]) == Path(installation.__file__).parents[1] / "__init__.py"
    assert engine.name == "tiny" and engine.environment["tiny-engine"] == "1.0"

    [known] = [each for each in installation.engines(cache) if each["name"] == NAME]
    assert known["installed"] and known["version"] == "1.0" and known["where"] == str(environment_of(NAME, cache))
    # Again: the same environment, and another one on request.
    before = (environment_of(NAME, cache) / DESCRIPTION).stat().st_ino
    assert installation.install(NAME, cache) == found
    assert (environment_of(NAME, cache) / DESCRIPTION).stat().st_ino == before
    installation.install(NAME, cache, again=True)
    assert (environment_of(NAME, cache) / DESCRIPTION).stat().st_ino != before
    assert in_cache(cache) == [environment_of(NAME, cache).name]


def test_a_package_that_does_not_exist_leaves_no_environment(
    wheels: Path, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe("tiny-engine==3.0")
    with pytest.raises(CallError, match=r"tiny cannot be installed: pip exited with status 1.*tiny-engine==3\.0"):
        installation.install(NAME, tmp_path / "cache")
    assert in_cache(tmp_path / "cache") == []


def test_an_engine_that_does_not_work_leaves_no_environment(
    wheels: Path, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe("tiny-engine==2.0")
    with pytest.raises(AdapterError, match=r"does not work here.*libtiny\.so is not there"):
        installation.install(NAME, tmp_path / "cache")
    assert in_cache(tmp_path / "cache") == []


def test_an_installation_that_is_interrupted_leaves_no_environment(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed one left is removed by the next."""
    recipe("tiny-engine==1.0")
    cache = tmp_path / "cache"
    left = cache / f".{environment_of(NAME, cache).name}.killed"
    left.mkdir(parents=True)
    (left / DESCRIPTION).write_text("{}")

    def interrupt(name: str, requirements: Any, place: Path) -> None:
        (place / "bin").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(installation, "_install_packages", interrupt)
    with pytest.raises(KeyboardInterrupt):
        installation.install(NAME, cache)
    assert in_cache(cache) == []


def test_an_environment_without_its_description_is_none(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe("tiny-engine==1.0")
    for text in (None, "{", "[]"):
        place = environment_of(NAME, tmp_path)
        place.mkdir(exist_ok=True)
        if text is not None:
            (place / DESCRIPTION).write_text(text)
        with pytest.raises(CallError, match="is not installed"):
            launch_of(NAME, tmp_path)


def test_two_installations_at_once_make_one_environment(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe("tiny-engine==1.0")
    made: list[str] = []

    def make(name: str, recipe: Recipe, environment: Path) -> dict[str, Any]:
        made.append(name)
        environment.mkdir()
        (environment / DESCRIPTION).write_text('{"engine": "tiny"}')
        return {"engine": "tiny"}

    monkeypatch.setattr(installation, "_made", make)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(installation.install(NAME, tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [NAME] and found == [{"engine": "tiny"}] * 4


def test_jars_that_cannot_be_copied(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Maven, with one that fails, and with one that copies nothing."""
    recipe(jars=("org.example:engine:1.0",))
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(CallError, match=r"Maven .mvn. is not on the PATH"):
        installation.install(NAME, tmp_path / "cache")
    maven = programs / "mvn"
    for text, message in [
        ("echo no route to https://user:secret@repository >&2; exit 1", "Maven exited with status 1.*//…@repository"),
        ("exit 0", r"Maven did not copy engine-1\.0\.jar"),
    ]:
        maven.write_text(f"#!/bin/sh\n{text}\n")
        maven.chmod(0o755)
        with pytest.raises(CallError, match=message) as caught:
            installation.install(NAME, tmp_path / "cache")
        assert "secret" not in caught.value.message
    assert in_cache(tmp_path / "cache") == []


def test_engines_that_cannot_be_installed(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="there is no engine 'nowhere'; use one of deltalog, "):
        installation.install("nowhere", tmp_path)
    with pytest.raises(CallError, match="deltalog has no environment of its own"):
        installation.install("deltalog", tmp_path)


def test_the_place_of_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    assert cache_directory() == tmp_path / ".cache/deltalog/conformance"
    monkeypatch.setenv(CACHE_VARIABLE, "~/engines")
    assert cache_directory() == tmp_path / "engines"
    assert cache_directory(tmp_path / "given") == tmp_path / "given"


def test_an_environment_is_of_the_versions_in_its_recipe() -> None:
    recipes = [
        Recipe(requirements=("a==1",)), Recipe(requirements=("a==2",)), Recipe(requirements=("a==1", "b==1")),
        Recipe(jars=("a:b:1",)), Recipe(jars=("a:b:2",)),
    ]  # fmt: skip
    assert len({recipe.digest for recipe in recipes}) == len(recipes)
    assert Recipe(requirements=("x[extra]==1", "y==2"), packages=("z", "y")).reported == ["x", "y", "z"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_complete(name: str) -> None:
    """Versions are pinned, and the adapter is there."""
    made = RECIPES[name]
    assert all(each.count("==") == 1 for each in made.requirements)
    assert all(each.count(":") == 2 for each in made.jars)
    assert made.here is not None or made.can_be_installed
    assert (made.adapter is None) == (made.command is not None)
    if made.adapter is not None:
        module, _, attribute = made.adapter.partition(":")
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        assert attribute in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def command(*arguments: str, status: int = 0, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "deltalog.cli.main", "conformance", *arguments],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_command_lists_engines(tmp_path: Path) -> None:
    found = json.loads(command("engines", "--json", "--cache", str(tmp_path)))["engines"]
    by_name = {each["name"]: each for each in found}
    assert [*by_name] == [*RECIPES]
    assert by_name["deltalog"]["installed"] and "history" in by_name["deltalog"]["calls"]
    assert by_name["polars-deltalake"] == {
        "name": "polars-deltalake", "installed": False, "version": None, "where": None, "calls": [],
        "why": "deltalog conformance install polars-deltalake",
    }  # fmt: skip


def test_the_command_that_cannot_install(tmp_path: Path) -> None:
    """It goes on with the next engine."""
    lines = command("install", "deltalog", "nowhere", "--json", "--cache", str(tmp_path), status=1).splitlines()
    assert [json.loads(line)["engine"] for line in lines] == ["deltalog", "nowhere"]
    assert "has no environment of its own" in json.loads(lines[0])["error"]


@pytest.mark.long
def test_a_small_engine_is_installed_and_run(tmp_path: Path) -> None:
    """As in docs/conformance.md, in a cache that is kept."""
    found = json.loads(command("install", "polars-deltalake", "--json"))
    assert found["version"] and found["environment"]["polars-deltalake"] == "1.3.2"
    run = json.loads(command("run", "--engine", "polars-deltalake", "--case", "read-type-*", "--json"))
    assert run["summary"]["failed"] == 0 and run["summary"]["passed"] > 0
    assert shutil.which("java") is None or run["environment"].keys() >= {"python", "polars-deltalake", "pyarrow"}
