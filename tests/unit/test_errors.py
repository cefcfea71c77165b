"""The outcome that an error reports agrees with the log, whichever store call fails and in whatever way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deltalog import Dataset, DeltaLogError, DeltaTable, RetryPolicy
from deltalog.errors import CommitStateUnknownError, FilesCommittedError, Outcome
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import POSSIBLE_FAULTS, Call, Decider, Fault, FaultyStore
from tests.support.core import ICT, SCHEMA, environment, ids, memory, rows

_KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER)


def _open(store: FaultyStore) -> DeltaTable:
    return DeltaTable.open(store, environment=environment(retry=RetryPolicy(settle_attempts=2)))


def _dataset(store: FaultyStore) -> Dataset:
    return Dataset(store, environment=environment(retry=RetryPolicy(settle_attempts=2)))


def _stage_and_commit(store: FaultyStore) -> None:
    table = _open(store)
    table.commit_staged([table.stage(rows(3))])


VERBS: dict[str, Callable[[FaultyStore], object]] = {
    "append": lambda store: _open(store).append(rows(3)),
    "overwrite": lambda store: _open(store).overwrite(rows(3)),
    "delete": lambda store: _open(store).delete("id = 1"),
    "set_properties": lambda store: _open(store).set_properties({"delta.appendOnly": "true"}),
    "write": lambda store: _dataset(store).write(rows(3)),
    "stream_write_records": lambda store: _dataset(store).stream_write_records([{"id": 3}]),
    "commit_staged": _stage_and_commit,
}


def _one(number: int, fault: Fault) -> Decider:
    return lambda call: fault if call.number == number else None


def _and_then_nothing(number: int, fault: Fault) -> Decider:
    """The store remains down after the fault, so nothing can be read back."""

    def decide(call: Call) -> Fault | None:
        if call.number == number:
            return fault
        return Fault.FAIL_BEFORE if call.number > number and Fault.FAIL_BEFORE in POSSIBLE_FAULTS[call.method] else None

    return decide


def _prepared() -> MemoryStore:
    inner = memory()
    DeltaTable.create(inner, SCHEMA, properties=ICT, data=rows(1, 2), environment=environment())
    return inner


def _calls(verb: Callable[[FaultyStore], object]) -> list[Call]:
    made: list[Call] = []
    store = FaultyStore(_prepared(), lambda call: made.append(call))
    verb(store)
    return made


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("failing", [_one, _and_then_nothing])
def test_the_outcome_is_what_is_in_the_log(
    verb: Callable[[FaultyStore], object], failing: Callable[[int, Fault], Decider]
) -> None:
    outcomes = set()
    for call in _calls(verb):
        for fault in set(POSSIBLE_FAULTS[call.method]).difference(_KILLS):
            inner = _prepared()
            store = FaultyStore(inner, failing(call.number, fault))
            try:
                verb(store)
            except DeltaLogError as error:
                outcomes.add(error.outcome)
                store.decide = lambda call: None
                store.land()
                table = DeltaTable.open(inner)
                if error.outcome is Outcome.NOTHING_COMMITTED:
                    assert (table.version, ids(table)) == (0, [1, 2]), (call, fault)
                else:
                    assert isinstance(error, CommitStateUnknownError)
                    result = error.resolve()
                    assert (0 if result is None else result.version) == table.version
                    ids(table)  # reading raises an error if a file named in the commit was deleted
            else:
                store.land()
                assert DeltaTable.open(inner).version == 1, (call, fault)
    assert outcomes == {Outcome.NOTHING_COMMITTED} | ({Outcome.UNKNOWN} if failing is _and_then_nothing else set())


def test_files_that_a_version_has_are_committed() -> None:
    table = DeltaTable.create(memory(), SCHEMA)
    staged = table.stage(rows(1))
    table.commit_staged([staged])
    for again in (table.commit_staged, table.discard_staged):
        with pytest.raises(FilesCommittedError) as raised:
            again([staged])
        assert (raised.value.outcome, raised.value.version) == (Outcome.COMMITTED, 1)
    assert ids(table) == [1]
