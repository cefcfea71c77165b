"""Cross-writing: what a pair of engines must keep, and faulty writers that are detected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog.conformance import AdapterError, Engine, NotSupported
from deltalog.conformance.engines.deltalog import DeltalogEngine
from deltalog.conformance.pair_model import (
    VARIANTS,
    Act,
    Model,
    PairResult,
    acts,
    cell,
    commit_times,
    document,
    judges,
    merged,
    table,
)
from deltalog.conformance.pairs import run_pair, run_pairs
from tests.support.conformance.pair_mutants import PAIR_MUTANTS

ROOT = Path(__file__).resolve().parents[3]
BY_NAME = {variant.name: variant for variant in VARIANTS}


class Other(DeltalogEngine):
    name = "other"


class Judge(DeltalogEngine):
    name = "judge"


def run(first: Engine, second: Engine, variant: str = "plain", judge: Engine | None = None) -> PairResult:
    return run_pair(first, second, [judge or Judge()], BY_NAME[variant])


@pytest.mark.parametrize(
    "variant",
    [pytest.param(name, marks=() if name == "everything" else pytest.mark.long) for name in BY_NAME],
)
def test_two_engines_without_a_defect_pass(variant: str) -> None:
    found = run(DeltalogEngine(), Other(), variant)
    assert (found.outcome, found.reason, found.refused, found.judge) == ("passed", None, [], "judge")
    assert found.commits == {"deltalog": 8, "other": 9 + bool(BY_NAME[variant].late)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mutant", PAIR_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_faulty_writer_is_caught(mutant: type[Engine]) -> None:
    variant, word, first = PAIR_MUTANTS[mutant]
    found = run(mutant(), Other(), variant) if first else run(Other(), mutant(), variant)
    assert found.outcome == "failed" and word in (found.reason or ""), found


class NoDeletes(DeltalogEngine):
    name = "no-deletes"

    def delete(self, path: str, where: str) -> None:
        raise NotSupported("deleting by condition")


def test_what_an_engine_cannot_do_is_listed_and_the_rest_is_done() -> None:
    found = run(NoDeletes(), Other())
    assert found.outcome == "passed" and set(found.refused) == {"no-deletes delete: deleting by condition"}
    assert found.commits == {"no-deletes": 6, "other": 9}


class Lacking(DeltalogEngine):
    """Refuses every write of a table with in-commit timestamps."""

    name = "lacking"
    message = "the writer feature inCommitTimestamp is unknown"

    def append(self, path: str, rows: pa.Table) -> None:
        raise RuntimeError(self.message)

    overwrite = append

    def _refuse(self, *arguments: Any) -> None:
        raise RuntimeError(self.message)

    create = delete = set_properties = checkpoint = _refuse  # type: ignore[assignment]
    refusals: tuple[type[BaseException], ...] = (RuntimeError,)  # type: ignore[assignment]


def test_a_feature_that_one_lacks_is_refused_by_name() -> None:
    found = run(Lacking(), Other(), "in-commit-timestamps")
    assert found.outcome == "refused" and "inCommitTimestamp is unknown" in (found.reason or "")
    assert found.commits == {"lacking": 0, "other": 8}
    # The other engine created the table.
    assert found.refused[0].startswith("lacking create: ")


def test_a_refusal_of_an_ordinary_table_is_a_failure() -> None:
    found = run(Other(), Lacking())
    assert found.outcome == "failed" and "lacking append: RuntimeError" in (found.reason or "")


def test_an_error_that_is_no_refusal_is_a_failure() -> None:
    engine = Lacking()
    engine.refusals = (ValueError,)
    assert run(Other(), engine, "in-commit-timestamps").outcome == "failed"


def test_a_table_that_nobody_can_create_is_refused() -> None:
    found = run(Lacking(), NoTables(), "in-commit-timestamps")
    assert found.outcome == "refused" and found.commits == {"lacking": 0, "no-tables": 0}


class NoTables(Other):
    name = "no-tables"

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        raise NotSupported("creating a table with properties")


class Blind(Judge):
    """A judge that does not see the last row."""

    name = "blind"

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        found = super().rows(path, version, timestamp_ms)
        return found.slice(0, max(found.num_rows - 1, 0))


class Unable(Engine):
    name = "unable"


def test_the_judge_is_believed_and_one_that_cannot_read_is_passed_over() -> None:
    assert "blind reads the latest version" in (run(DeltalogEngine(), Other(), judge=Blind()).reason or "")
    found = run_pair(DeltalogEngine(), Other(), [Unable(), Judge()], BY_NAME["plain"])
    assert (found.outcome, found.judge) == ("passed", "judge")


class BlindOther(Blind):
    name = "blind-other"


class WrongInThePast(Judge):
    name = "wrong-in-the-past"

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return super().rows(path, None if version is None else max(version - 1, 0), timestamp_ms)


class Late(Judge):
    """Goes by other times, which it says, or which its rows show."""

    name = "late"

    def version_at(self, path: str, timestamp_ms: int) -> int:
        return max(super().version_at(path, timestamp_ms) - 1, 0)


def test_who_reads_what_at_the_end() -> None:
    short = BY_NAME["plain"]
    assert "at the end, blind-other reads the latest version" in (
        run_pair(BlindOther(), Other(), [], short).reason or ""
    )
    found = run_pair(DeltalogEngine(), Other(), [WrongInThePast()], short)
    assert "at the end, wrong-in-the-past reads version 1: " in (found.reason or "")
    found = run_pair(DeltalogEngine(), Other(), [Late()], short)
    assert "at the end, late finds version 0 at the time" in (found.reason or "")


def test_the_steps_of_a_variant() -> None:
    for variant in VARIANTS:
        found = acts(variant)
        assert found[0].call == "create" and {act.by for act in found} == {0, 1}
        calls = {(act.by, act.call) for act in found if act.call != "create"}
        assert len(calls) == 2 * len({call for _, call in calls})


def test_the_model() -> None:
    model = Model()
    model.take(Act(0, "create", properties={"a": "1"}), 1)
    model.take(Act(0, "append", ({"id": 1}, {"id": 2})), 1)
    model.take(Act(1, "delete", removed=(1,)), 1)
    model.take(Act(1, "set_properties", properties={"delta.enableInCommitTimestamps": "true"}), 2)
    assert [len(rows) for rows in model.rows] == [0, 2, 1, 1, 1]
    assert model.ict_from == model.latest == 4 and set(model.properties) == {"a", "delta.enableInCommitTimestamps"}
    assert model.wrong_number_of_commits(Act(0, "append"), 2) and not model.wrong_number_of_commits(Act(0, "append"), 1)
    assert model.wrong_number_of_commits(Act(0, "checkpoint"), 1)
    assert model.wrong_number_of_commits(Act(0, "delete", removed=(9,)), 0) is None
    assert model.wrong_number_of_commits(Act(0, "delete", removed=(2,)), 0)


def test_the_times_of_commits() -> None:
    assert commit_times([5, 5, 3, 9], [None] * 4, None) == [5, 6, 7, 9]
    assert commit_times([5, 5, 3, 9], [None, None, 8, 20], 2) == [5, 6, 8, 20]


def test_judges_are_neither_of_the_pair() -> None:
    names = ["deltalog", "spark_ext", "kernel-java", "deltalake", "sail", "duckdb", "mine"]
    assert judges("deltalog", "deltalake", names) == ["kernel-java", "duckdb", "spark_ext", "sail", "mine"]
    assert judges("kernel-java", "deltalake", names)[0] == "duckdb"
    assert judges("deltalog", "spark_ext", ["deltalog", "spark_ext"]) == []


class Starting:
    """Engines of which some do not start."""

    def __init__(self, broken: Sequence[str]) -> None:
        self.broken = broken

    def __call__(self, name: str) -> Engine:
        if name in self.broken:
            raise AdapterError("it does not start")
        engine = DeltalogEngine()
        engine.name = name
        return engine


def test_a_judge_that_does_not_start_is_passed_over_and_one_of_the_pair_ends_the_run() -> None:
    available = ["deltalake", "kernel-java"]
    [(pair, found)] = run_pairs(Starting(["kernel-java"]), [("a", "b")], available, [BY_NAME["plain"]])
    assert pair == ("a", "b") and (found.outcome, found.judge) == ("passed", "deltalake")
    with pytest.raises(AdapterError):
        list(run_pairs(Starting(["b"]), [("a", "b")], available, [BY_NAME["plain"]]))


def test_documents_are_merged_and_shown() -> None:
    passed, failed = PairResult("plain", "passed"), PairResult("partitioned", "failed", "why")
    before = document("1.1", {"a": "1", "b": "1"}, {("a", "b"): [passed, failed]})
    assert before["pairs"][0]["results"][1]["reason"] == "why"
    results = {("a", "b"): [PairResult("partitioned", "refused")], ("c", "a"): [passed]}
    again = document("1.1", {"a": "1", "c": "2"}, results)
    both = merged(before, again)
    assert [(pair["first"], pair["second"]) for pair in both["pairs"]] == [("a", "b"), ("c", "a")]
    assert [each["outcome"] for each in both["pairs"][0]["results"]] == ["passed", "refused"]
    assert table(both) == [
        ["created by", "and a", "and b", "and c"],
        ["a", "–", "1 of 1 (1 refused)", "–"],
        ["b", "–", "–", "–"],
        ["c", "1 of 1", "–", "–"],
    ]
    assert cell([]) == "–" and cell([{"outcome": "refused"}]) == "1 refused"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deltalog", "conformance", "pairs", *arguments],
        capture_output=True, text=True, cwd=ROOT, timeout=600, check=False, env={**os.environ, "COLUMNS": "300"},
    )  # fmt: skip


def test_the_command_names_the_variants_and_wants_two_engines() -> None:
    assert "in-commit-timestamps-late" in command("deltalog", "deltalake", "--variant", "other").stderr
    assert "A pair needs two engines" in command("deltalog").stderr


@pytest.mark.long
def test_the_command_runs_pairs_in_processes() -> None:
    mutant = "tests.support.conformance.pair_mutants:CommitsTwice"
    only = ("--variant", "plain", "--judge", "deltalake")
    done = command("deltalog", mutant, *only, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["variants"] == [*BY_NAME]
    assert {(pair["first"], pair["second"]): pair["results"][0]["outcome"] for pair in found["pairs"]} == {
        ("deltalog", mutant): "failed",
        (mutant, "deltalog"): "failed",
    }
    shown = command("deltalog", mutant, *only).stdout
    # The reasons are wrapped to the width of the terminal.
    assert "2 commits were made" in " ".join(shown.split()) and "| deltalog | – | 0 of 1 |" in shown.splitlines()
