"""Two writers append concurrently: every interleaving with few switches between them, and every single fault with even
fewer switches.

In a usual run, a schedule has up to three switches between writers, or one switch and one fault; with ``--long``, up to
four switches, or two switches and one fault.
"""

from __future__ import annotations

import functools

import pytest

from tests.support.simulation.exhaustive import TABLES, Choices, explore


@pytest.mark.parametrize("table", TABLES)
def test_every_interleaving_without_faults_with_few_switches(table, capsys, is_long):
    """Exploring an unlimited number of switches between clients would take too long: each commit makes five calls that
    check the previous version."""
    totals, bad = explore(table, faults=0, max_switches=4 if is_long else 3)
    with capsys.disabled():
        print(f"\n[exhaustive] {table}, no faults: {totals.line()}", end="")
    assert not bad, bad[0]
    assert totals.schedules >= 300
    assert totals.outcomes == {"ok": 3 * totals.schedules}


@pytest.fixture(scope="module")
def one_fault_and_switch():
    """A function that takes a table and returns the results of all schedules with exactly one fault and at most one
    switch between clients."""
    return functools.cache(lambda table: explore(table, faults=1, max_switches=1))


@pytest.mark.parametrize("table", TABLES)
def test_every_fault_at_every_call_with_few_switches(table, capsys, is_long, one_fault_and_switch):
    """The soak command runs this test with any number of switches between clients: about 32,000 schedules per table."""
    totals, bad = explore(table, faults=1, max_switches=2) if is_long else one_fault_and_switch(table)
    with capsys.disabled():
        print(f"\n[exhaustive] {table}, one fault: {totals.line()}", end="")
    assert not bad, bad[0]
    assert totals.schedules >= (1500 if is_long else 500)
    assert len(totals.faults) == 8, "a kind of fault was never tried"
    assert {"ok", "failed", "killed"} <= set(totals.outcomes)


def test_all_lists_of_choices_are_tried_once():
    """Choose twice among three options; if the first choice was 1, choose a third time, among two options."""
    seen = list[tuple[int, int, int | None]]()
    given: list[int] | None = []
    while given is not None:
        choices = Choices(given)
        first, second = choices.take(3), choices.take(3)
        seen.append((first, second, choices.take(2) if first == 1 else None))
        given = choices.following()
    assert len(seen) == len(set(seen)) == 3 + 3 * 2 + 3
    assert seen == sorted(seen, key=lambda each: [x or 0 for x in each])


def test_a_broken_writer_is_found(monkeypatch):
    from deltalog.commit.loop import CommitLoop

    monkeypatch.setattr(CommitLoop, "_is_ours", lambda self, occupant: False)
    _, bad = explore("plain", faults=1, max_switches=1)
    # The writer takes its own commit, whose response was lost, for a commit of another writer.
    assert bad and "I5" in bad[0]


def test_parts_for_several_processes_are_all_of_it(one_fault_and_switch):
    alone, _ = one_fault_and_switch("plain")
    shared, _ = explore("plain", faults=1, max_switches=1, processes=2)
    assert shared == alone
