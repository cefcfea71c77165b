"""The files that a forge reads: workflows, forms of issues, labels, the citation and the development container."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.scripts import script

ROOT = Path(__file__).resolve().parents[2]
FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
    "vendor.github-issue-forms": [FORGE / "ISSUE_TEMPLATE" / "bug.yml", FORGE / "ISSUE_TEMPLATE" / "feature.yml"],
    "vendor.github-issue-config": [FORGE / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.dependabot": [FORGE / "dependabot.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def check(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_have_the_form_that_the_forge_reads(schema: str) -> None:
    done = check(schema, *SCHEMAS[schema])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_form_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yml"
    file.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on:", "run-on:", 1))
    done = check("vendor.github-workflows", file)
    assert done.returncode == 1 and "run-on" in done.stdout


def test_yamllint_finds_nothing() -> None:
    files = [*sorted(FORGE.rglob("*.yml")), ROOT / "CITATION.cff"]
    command = [sys.executable, "-m", "yamllint", "--strict", "-c", str(FORGE / ".yamllint.yaml"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_actionlint_finds_nothing() -> None:
    """CI installs actionlint and runs it in the job lint-and-types."""
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("actionlint is not installed")
    done = subprocess.run([actionlint, *map(str, WORKFLOWS)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def commands(workflow: Path) -> list[str]:
    """What the steps of a workflow run."""
    document = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    return [
        line for job in document["jobs"].values() for step in job["steps"] for line in step.get("run", "").splitlines()
    ]


def test_workflows_run_what_is_there() -> None:
    tasks = set(re.findall(r'"(\w+)": \w+', (ROOT / "dev.py").read_text(encoding="utf-8").partition("tasks = {")[2]))
    steps = {"tree", "build", "audit", "sbom", "changes"}
    seen = set[str]()
    for line in (line for workflow in WORKFLOWS for line in commands(workflow)):
        words = line.split()
        if "dev.py" in words:
            task, *rest = words[words.index("dev.py") + 1 :]
            assert task in tasks, line
            assert task != "release" or {*rest} <= steps, line
            seen.add(task)
        for module in re.findall(r"python -m (tests\.[\w.]+)", line):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists(), line
        for file in re.findall(r"\b(?:scripts|tests)/[\w/]+\.py", line):
            assert (ROOT / file).exists(), line
    assert seen == {"test", "release"}


def test_quick_tests_run_on_each_system_and_python() -> None:
    text = (FORGE / "workflows" / "tests.yml").read_text(encoding="utf-8")
    matrix = yaml.safe_load(text)["jobs"]["quick"]["strategy"]["matrix"]
    assert {system.partition("-")[0] for system in matrix["system"]} == {"ubuntu", "macos", "windows"}
    assert matrix["python"] == [*script("scripts/installs.py").PYTHONS]


def test_only_the_job_that_publishes_may_sign_in_at_the_index() -> None:
    may = {
        (workflow.name, name)
        for workflow in WORKFLOWS
        for name, job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].items()
        if "id-token" in job.get("permissions", {})
    }
    assert {each for each in may if each[0] == "release.yml"} == {("release.yml", "publish")}
    assert all("permissions" in yaml.safe_load(workflow.read_text(encoding="utf-8")) for workflow in WORKFLOWS)


def test_first_issues_have_labels_and_name_places_that_exist() -> None:
    text = (FORGE / "first-issues.md").read_text(encoding="utf-8")
    known = {label["name"] for label in yaml.safe_load((FORGE / "labels.yml").read_text(encoding="utf-8"))}
    for section in text.split("\n## ")[1:]:
        [labels] = re.findall(r"\*Labels: (.*?)\.\*", section)
        assert "good first issue" in labels and {*labels.split(", ")} <= known
        places = re.findall(r"`((?:deltalog|tests|scripts|docs)/[\w/]+(?:\.\w+)?)`", section)
        assert places and [place for place in places if not (ROOT / place).exists()] == [], section


def test_forms_have_labels_that_exist() -> None:
    known = {label["name"] for label in yaml.safe_load((FORGE / "labels.yml").read_text(encoding="utf-8"))}
    for form in SCHEMAS["vendor.github-issue-forms"]:
        assert {*yaml.safe_load(form.read_text(encoding="utf-8"))["labels"]} <= known


def test_the_development_container() -> None:
    document = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    words = document["postCreateCommand"].split()
    assert (ROOT / words[1]).exists() and (ROOT / words[-1]).exists()
