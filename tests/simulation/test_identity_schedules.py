"""In seeded schedules with faults, writers of a table with an identity column never assign a value twice."""

from __future__ import annotations

import collections

import pyarrow as pa
import pytest

from deltalog import DeltaLogError, DeltaTable
from deltalog.protocol.identity_columns import identity_of
from deltalog.schema import PrimitiveType, StructField, StructType, identity_column
from deltalog.storage.memory import MemoryStore
from deltalog.testing.recording import quiet
from deltalog.testing.stores import POSSIBLE_FAULTS, Call, Fault
from deltalog.write.metadata_changes import MetadataChanges
from tests.support.simulation.scheduler import Client, Scheduler, store_for

SCHEMA = StructType((identity_column("id", start=100, step=-7), StructField("v", PrimitiveType("string"))))
VERBS = ("append", "append", "merge", "overwrite", "update", "delete", "compact", "restore")


def schedule(seed: int) -> tuple[list[int], DeltaTable, collections.Counter[str]]:
    """Run three writers that make five changes each. Returns all values that occur in any version, in the order of the
    commits that added the rows; the table; and the number of changes by outcome."""
    scheduler = Scheduler(seed)
    shared = MemoryStore(clock_ms=scheduler.time_ms)
    outcomes: collections.Counter[str] = collections.Counter()
    DeltaTable.create(shared, SCHEMA, environment=Client(scheduler, "first", lambda _: None).environment())

    def how(client: Client, call: Call) -> Fault | None:
        possible = POSSIBLE_FAULTS[call.method]
        return client.random.choice(possible) if possible and client.random.random() < 0.02 else None

    def change(client: Client, table: DeltaTable, verb: str, name: str) -> object:
        data = pa.table({"v": [f"{name}-{number}" for number in range(client.random.randrange(1, 4))]})
        if verb == "append":
            return table.append(data)
        if verb == "merge":
            return table.merge(data, "target.v = source.v").when_not_matched_insert_all().execute()
        if verb == "overwrite":
            return table.overwrite(data)
        if verb == "update":
            return table.update({"v": "concat(v, '+')"}, where="id % 2 = 0")
        if verb == "delete":
            return table.delete("id % 3 = 0")
        if verb == "compact":
            return table.optimize.compact()
        return table.restore(max(0, table.version - 1))

    def write(client: Client) -> None:
        store = store_for(client, shared, lambda call: how(client, call))
        for number in range(5):
            verb = client.random.choice(VERBS)
            try:
                table = DeltaTable.open(store, environment=client.environment())
                table.retrying(lambda t: change(client, t, verb, f"{client.name}{number}"), retry_count=3)  # noqa: B023
                outcomes["ok"] += 1
            except DeltaLogError as error:
                outcomes[type(error).__name__] += 1

    for name in "abc":
        scheduler.spawn(name, write)
    with quiet():
        scheduler.run()
    assert not [client.failure for client in scheduler.clients if client.failure is not None]
    table = DeltaTable.open(shared)
    given: list[int] = []
    for version in range(table.version + 1):
        before = set() if version == 0 else set(table.snapshot(version - 1).scan().to_arrow()["id"].to_pylist())
        now = table.snapshot(version).scan().to_arrow()["id"].to_pylist()
        assert len(now) == len(set(now)) and None not in now
        if table.history()[table.version - version].operation != "RESTORE":
            given += [value for value in now if value not in before]
    return given, table, outcomes


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 400), marks=pytest.mark.long)], ids=str)
def test_no_value_is_given_twice(seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes: collections.Counter[str] = collections.Counter()
    total = 0
    for seed in seeds:
        given, table, counted = schedule(seed)
        outcomes += counted
        total += len(given)
        identity = identity_of(table.snapshot().schema.field("id"))
        assert identity is not None
        assert len(given) == len(set(given)), f"seed {seed}: {given}"
        assert all(identity.has(value) and not identity.is_beyond(value) for value in given), f"seed {seed}"
        assert all(each.severity == "info" for each in table.check(deep=True).findings), f"seed {seed}"
    with capsys.disabled():
        print(f"\n[identity] schedules={len(seeds)} values={total} {dict(outcomes)}", end="")
    assert total > 3 * len(seeds) and outcomes["ok"] > 4 * len(seeds)


def test_writers_that_do_not_record_their_marks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataChanges, "raise_marks", lambda changes, marks: None)
    with pytest.raises(AssertionError):
        for seed in range(4):
            given, _, _ = schedule(seed)
            assert len(given) == len(set(given))
