"""The library and a 60-line model take the same steps; every version must be the same in both.

A normal run executes 30 examples; DELTALOG_MODEL_EXAMPLES sets a higher number, such as 20000.
"""

from __future__ import annotations

import os

import pytest

from tests.support.simulation.model import STEPS, state_machine

EXAMPLES = int(os.environ.get("DELTALOG_MODEL_EXAMPLES", "30"))
LENGTH = 50


@pytest.mark.timeout(600 + EXAMPLES * 2)
def test_the_library_is_as_the_model(capsys):
    STEPS.clear()
    state_machine(EXAMPLES, LENGTH)("runTest").runTest()
    with capsys.disabled():
        print(f"\n[model] examples={STEPS['examples']} steps={STEPS['steps']}", end="")
    assert STEPS["examples"] >= EXAMPLES
    assert STEPS["steps"] >= EXAMPLES * LENGTH * 0.7  # Hypothesis ends some examples early


DEFECTS = {
    "the commit keeps the clock's time": ("deltalog.protocol.timestamps.next_timestamp", lambda clock, previous: clock),
    "an application's run is never known": ("deltalog.write.write_steps.is_recorded", lambda transaction, txn: False),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect, monkeypatch):
    monkeypatch.setattr(*DEFECTS[defect])
    with pytest.raises(AssertionError):
        state_machine(100, LENGTH, shrink=False)("runTest").runTest()
