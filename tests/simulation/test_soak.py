"""The soak command: its output line, its exit status after failures, and the replay of a failure."""

from __future__ import annotations

import json
from typing import Any

from tests.support.simulation import (
    commit_mutants,
    merge_mutants,
    optimize_mutants,
    row_mutants,
    soak,
    transaction_mutants,
    vacuum_mutants,
)
from tests.support.simulation.sweep_operations import OPERATIONS

EVERY_MUTANT = [
    *commit_mutants.MUTANTS,
    *row_mutants.MUTANTS,
    *merge_mutants.MUTANTS,
    *optimize_mutants.MUTANTS,
    *transaction_mutants.MUTANTS,
    *vacuum_mutants.MUTANTS,
]


def test_schedules_of_a_range_are_one_line(capsys, tmp_path):
    failures = tmp_path / "failures"
    assert soak.main(["--seeds", "5:25", "--processes", "1", "--json", "--failures", str(failures)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schedules"], told["seeds"], told["violations"], told["mutants"]) == (20, "5..24", 0, "0/0")
    assert told["faults"] > 20 and told["acked"] > 20
    assert not failures.exists()


def test_failures_are_kept_and_replayed(monkeypatch, capsys, tmp_path):
    """The soak runs in this process, since the defect is patched only into this process."""
    broken = next(each for each in commit_mutants.MUTANTS if each.name == "takes_unknown_for_failure")
    with broken.applied():
        part = soak.schedules(range(10))
        assert part.figures["violations"] == len(part.failures) > 0
        failures = tmp_path / "failures"
        failures.write_text("\n".join(part.failures))
        assert soak.main(["--replay", str(failures)]) == 1
        assert "VIOLATION I5" in capsys.readouterr().out
    assert soak.main(["--replay", str(failures)]) == 0


def test_failures_of_row_schedules_are_replayed_as_such(capsys, tmp_path):
    broken = next(each for each in row_mutants.MUTANTS if each.name == "gives_moved_rows_new_ids")
    failures = tmp_path / "failures"
    with broken.applied():
        part = soak.row_schedules(range(8, 12))
        assert part.figures["violations"] == len(part.failures) > 0
        failures.write_text("\n".join(part.failures))
        assert soak.main(["--replay", str(failures)]) == 1
        assert "VIOLATION R3" in capsys.readouterr().out
    assert soak.main(["--replay", str(failures)]) == 0


def test_failures_of_transactions_are_replayed_as_such(capsys, tmp_path):
    broken = next(each for each in transaction_mutants.MUTANTS if each.name == "stamps_each_table_by_itself")
    failures = tmp_path / "failures"
    with broken.applied():
        part = soak.transaction_schedules(range(1, 9))
        assert part.figures["violations"] == len(part.failures) > 0
        failures.write_text("\n".join(part.failures))
        assert soak.main(["--replay", str(failures)]) == 1
        assert "VIOLATION X5" in capsys.readouterr().out
    assert soak.main(["--replay", str(failures)]) == 0


def test_the_parts_cover_everything():
    planned: list[tuple[Any, tuple[Any, ...]]] = list(soak.bounded_parts(30, 0))
    assert {run.__name__ for run, _ in planned} == {
        "kills", "interleavings", "model", "failing_calls", "failing_pairs", "mutants", "row_schedules",
        "transaction_schedules", "vacuum_schedules",
    }  # fmt: skip
    seeds = [seed for run, (seeds, *_) in planned if run is soak.transaction_schedules for seed in seeds]
    assert len(seeds) == len(set(seeds)) >= 20_000
    assert [arguments[0] for run, arguments in planned if run is soak.failing_calls] == [*range(len(OPERATIONS))]
    assert sum(len(arguments[0]) for run, arguments in planned if run is soak.mutants) == len(EVERY_MUTANT)


def test_a_surviving_mutant_is_a_failure(monkeypatch):
    monkeypatch.setattr(soak, "find", lambda mutant: None)
    part = soak.mutants(range(2))
    assert part.figures == {"mutants": 2, "mutants_killed": 0}
    assert len(part.failures) == 2 and part.failures[0].startswith("mutant ")
