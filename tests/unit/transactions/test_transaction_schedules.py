"""Transactions over three tables, with faults: amounts are moved between tables, their sum stays constant, and no
transaction is committed partially.

A default run executes 150 schedules, a run with ``--long`` 400. DELTALOG_TRANSACTION_SCHEDULES=20000 runs more
schedules, as does ``python -m tests.support.simulation.transactions --runs 20000``; DELTALOG_FIRST_SEED=100000 runs
other ones. If a seed fails, the seed and its trace are printed.
"""

from __future__ import annotations

import functools
import os

import pytest

from deltalog.testing.stores import Fault
from tests.support.simulation.seeds import assert_seeds_decide, run_and_print
from tests.support.simulation.simulation import run_schedules
from tests.support.simulation.transaction_judge import ClientTransaction, Cut, Ratified, World, judge
from tests.support.simulation.transactions import JOBS, KINDS, main, run_transactions

USUAL, LONG = 150, 400


@pytest.mark.timeout(300 + int(os.environ.get("DELTALOG_TRANSACTION_SCHEDULES", LONG)))
def test_the_sum_of_all_tables_is_kept(capsys, is_long):
    schedules = int(os.environ.get("DELTALOG_TRANSACTION_SCHEDULES", LONG if is_long else USUAL))
    totals = run_and_print(capsys, "transactions", schedules, run_transactions)
    # Fails if the schedules did not exercise some behaviour, because then they have not tested it.
    assert schedules >= 100
    assert set(KINDS) == set(totals.kinds)
    assert totals.kinds["transfer"] >= schedules and totals.kinds["sum"] >= schedules / 4
    possible = set(Fault) - {Fault.FAIL_AFTER}
    assert all(totals.faults[fault] for fault in possible)
    assert totals.outcomes["killed"] >= schedules / 10 and not totals.outcomes["crashed"]


@pytest.mark.timeout(300)
def test_objects_of_jobs_are_kept_or_go():
    """Jobs that are canceled or expire, retries with the same names, cleanups, and other clients that recover."""
    jobs = functools.partial(run_transactions, policy="random", kinds=JOBS)
    totals, bad = run_schedules(range(60), processes=min(2, os.cpu_count() or 1), run=jobs)
    assert not totals.violations, f"seeds {[r.seed for r in bad]}, first:\n{bad[0].report()}"
    assert totals.kinds["job"] >= 50 and totals.faults[Fault.LATE]


def test_quiet_schedules_end_as_they_should():
    for seed in range(1_000_000, 1_000_020):
        result = run_transactions(seed, fault_rate=0.0)
        assert not result.violations and not result.faults, result.report()
        assert not [each for each in result.operations if each.outcome in ("killed", "crashed")], result.report()


def test_a_seed_is_a_schedule():
    assert_seeds_decide(run_transactions, [3, 8, 12], 7)


def test_the_command_runs_them_and_tells(capsys):
    assert main(["--runs", "5", "--first", "7", "--processes", "1"]) == 0
    assert "schedules=5 seeds=7..11" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ the transaction judge


def log(*commits):
    """A log of commits (token, in-commit timestamp, adds, removes), after the commit that creates the table."""
    first = (
        b'{"commitInfo":{"inCommitTimestamp":1}}\n'
        b'{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["inCommitTimestamp"]}}\n'
        b'{"metaData":{"id":"t","configuration":{"delta.enableInCommitTimestamps":"true"}}}\n'
        b'{"add":{"path":"amount-100-x"}}'
    )
    found = {0: first}
    for version, (token, ict_ms, adds, removes) in enumerate(commits, 1):
        told = f'"deltalog":{{"transaction":{{"id":"{token}"}}}}'
        lines = [f'{{"commitInfo":{{"inCommitTimestamp":{ict_ms},{told}}}}}']
        lines += [f'{{"add":{{"path":"{path}"}}}}' for path in adds]
        lines += [f'{{"remove":{{"path":"{path}"}}}}' for path in removes]
        found[version] = "\n".join(lines).encode()
    return found


LogCommit = tuple[str, int, list[str], list[str]]  # token, in-commit timestamp, adds, removes
GIVE: LogCommit = ("t", 5, ["amount-60-g"], ["amount-100-x"])
TAKE: LogCommit = ("t", 5, ["amount-40-t"], [])


def client_transaction(**changed):
    made = ClientTransaction("t", "c", complete=True, is_serializable=True, opened={"a": 0, "b": 0})
    made.change("a", ["amount-60-g"], ["amount-100-x"])
    made.change("b", ["amount-40-t"], [])
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def world(a=(GIVE,), b=(TAKE,), client_transactions=None, **told):
    logs = {"a": log(*a), "b": log(*b)}
    return World(
        logs,
        {"a": 1, "b": 1},
        200,
        client_transactions=[client_transaction()] if client_transactions is None else client_transactions,
        **told,
    )


def at_once(a, b, number=1):
    return Ratified(1, {"a": [(number, log(*a)[number])], "b": [(number, log(*b)[number])]})


def test_a_good_world_has_no_violation():
    assert judge(world(ratified=[at_once((GIVE,), (TAKE,))], cuts=[Cut(5, {"a": 1, "b": 1}, final=True)])) == []


OTHER: LogCommit = ("o", 4, ["amount-0-o"], [])
LATER_GIVE, LATER_TAKE = (("t", 6, *commit[2:]) for commit in (GIVE, TAKE))
BAD = {
    "half of it is there": ("X1", world(b=())),
    "with other changes": ("X1", world(b=(("t", 5, ["amount-41-t"], []),))),
    "twice": ("X1", world(b=(TAKE, ("t", 6, ["amount-0-z"], [])))),
    "nobody's": ("X1", world(client_transactions=[])),
    "told and not there": ("X2", world(a=(), b=(), client_transactions=[client_transaction(outcomes={"committed"})])),
    "told aborted and there": ("X2", world(client_transactions=[client_transaction(outcomes={"aborted"})])),
    "not finished and there": ("X2", world(client_transactions=[client_transaction(complete=False)])),
    "ratified though it was over": ("X2", world(wrong=["t was ABORTED"])),
    "the sum grew": (
        "X3",
        world(
            b=(TAKE, ("o", 6, ["amount-1-o"], [])),
            client_transactions=[client_transaction(), client_transaction(token="o")],
        ),
    ),
    "a reader saw half of it": ("X3", world(reads=[("r", {"a": frozenset({"amount-60-g"})})])),
    "published otherwise": ("X4", world(ratified=[at_once((GIVE,), (("t", 5, ["amount-4-t"], []),))])),
    "published and not ratified": ("X4", world(ratified=[Ratified(1, {"a": [(1, log(GIVE)[1])]})])),
    "ends at two times": ("X5", world(b=(("t", 6, ["amount-40-t"], []),))),
    "a stranger in between": ("X5", world(a=(GIVE, ("o", 6, ["amount-0-o"], []), ("t", 7, ["amount-0-g"], [])))),
    "what it read had changed": (
        "X6",
        world(
            a=(OTHER, LATER_GIVE),
            b=(LATER_TAKE,),
            client_transactions=[
                client_transaction(),
                ClientTransaction(
                    "o", "c", False, complete=True, changes={"a": [(frozenset({"amount-0-o"}), frozenset())]}
                ),
            ],
            ratified=[
                Ratified(1, {"a": [(1, log(OTHER)[1])]}),
                Ratified(2, {"a": [(2, log(OTHER, LATER_GIVE)[2])], "b": [(1, log(LATER_TAKE)[1])]}),
            ],
        ),
    ),
    "left behind": ("X7", world(left=["something"])),
    "a cut has half of it": ("X8", world(cuts=[Cut(5, {"a": 1, "b": 0})])),
    "a cut comes too late": ("X8", world(cuts=[Cut(4, {"a": 1, "b": 1})])),
    "a cut comes too early": ("X8", world(cuts=[Cut(9, {"a": 0, "b": 0}, final=True)])),
    "another error": ("X9", world(crashes=["KeyError"])),
    "times go back": ("I8", world(a=(OTHER, ("t", 3, ["amount-60-g"], ["amount-100-x"])))),
    "a file is removed twice": ("I10", world(a=(GIVE, ("o", 6, [], ["amount-100-x"])))),
}


@pytest.mark.parametrize("name", BAD)
def test_the_judge_finds(name):
    invariant, bad = BAD[name]
    assert invariant in {violation.invariant for violation in judge(bad)}
