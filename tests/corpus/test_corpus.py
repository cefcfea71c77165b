"""Tests deltalog against the conformance corpus, which has tables with and without in-commit timestamps.

The corpus and its checker are next to the checkout (``../shared``), or at the paths in DELTALOG_CORPUS and
DELTALOG_CORPUS_CHECK. Without the corpus and the checker these tests are skipped; with CI=true and the corpus next to
the checkout they must run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ROOT.parent / "shared"
CORPUS = Path(os.environ.get("DELTALOG_CORPUS", BESIDE / "corpus"))
CHECKER = Path(os.environ.get("DELTALOG_CORPUS_CHECK", BESIDE / "tools" / "corpus_check.py"))

# The reasons why checks are expected to fail, keyed by (table, group). Remove an entry as soon as its check passes.
NOT_YET: dict[tuple[str, str], str] = {}
GROUPS = {"log", "files", "rows", "time_travel"}


def found() -> bool:
    return (CORPUS / "index.json").is_file() and CHECKER.is_file()


def absent() -> str:
    return f"The corpus is missing (looked for {CORPUS} and {CHECKER}), so its tests did not run."


def test_in_ci_the_corpus_beside_the_checkout_is_used() -> None:
    if os.environ.get("CI", "").lower() == "true" and BESIDE.is_dir():
        assert found(), f"{BESIDE} is there, but not the corpus or its checker in it"
    elif not found():
        pytest.skip(absent())


@pytest.mark.parametrize("tables", ["ict_*", "nonict_*"])
def test_every_assertion_of_the_corpus(tables: str, tmp_path: Path) -> None:
    if not found():
        pytest.skip(absent())
    out = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, str(CHECKER), str(CORPUS), "--only", tables, "--json", str(out), "--timeout", "120"],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert out.exists(), done.stdout + done.stderr
    report = json.loads(out.read_text())
    checks = [(each["table"], *check) for each in report["tables"] for check in each["checks"]]
    assert {group for _, group, *_ in checks} >= GROUPS
    assert any(name.startswith("probe ") for _, _, name, *_ in checks)

    failed = {(table, group) for table, group, _, ok, _ in checks if not ok}
    unexpected = [
        f"{table} {group}: {name}: {message}"
        for table, group, name, ok, message in checks
        if not ok and (table, group) not in NOT_YET
    ]
    assert not unexpected, "\n".join([report["summary"], *unexpected])
    passing = {(table, group) for table, group, *_ in checks} & NOT_YET.keys() - failed
    assert not passing, f"these pass now; remove them from the list: {sorted(passing)}"
