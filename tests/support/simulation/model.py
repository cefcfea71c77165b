"""Compares the library with a small model of a table, driven by Hypothesis: both must agree after any sequence of
steps.

    TestTable = state_machine(examples=300, steps=50)

``Model`` describes a table in plain Python: rows, columns, properties, application versions, and a time for each
version. ``Model`` shares no code with the library. ``TableMachine`` applies each step to the model and to a real table,
and compares the results. Between steps the clock advances by up to a day, handles are reopened, and hints, checkpoints
and checksums are damaged or deleted; none of this may change a result. Needs hypothesis.
"""

from __future__ import annotations

import collections
import copy
import io
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deltalog.errors import InvalidCheckpointError
from deltalog.table import DeltaTable
from deltalog.testing.checker import check
from deltalog.testing.history import History
from deltalog.testing.recording import WatchedStore, log_of, quiet, seeded_environment
from tests.support.simulation.scheduler import START_MS

DAY_MS = 86_400_000
ENABLE = "delta.enableInCommitTimestamps"
KEYS = ("custom.a", "custom.b")
APPS = ("app0", "app1")
#: The number of times each step was taken, for reports.
STEPS: collections.Counter[str] = collections.Counter()

Row = dict[str, Any]


@dataclass
class Version:
    """A table at one version: rows keyed by ``x``, which is unique among all rows ever written."""

    rows: dict[int, Row]
    columns: list[str]
    properties: dict[str, str]
    apps: dict[str, int]
    timed: bool  # whether in-commit timestamps are enabled
    timed_since: int  # the version that enabled in-commit timestamps, if they are enabled
    ict_ms: int | None
    file_ms: int


@dataclass
class Model:
    """The history of a table."""

    versions: list[Version] = field(default_factory=list)

    @property
    def latest(self) -> Version:
        return self.versions[-1]

    def commit(self, clock_ms: int, timed: bool | None = None, **changes: Any) -> Version:
        """Append a version: a copy of the latest one with ``changes``."""
        last, number = self.latest, len(self.versions)
        new = copy.copy(last)
        for name, value in changes.items():
            setattr(new, name, value)
        new.timed = last.timed if timed is None else timed
        new.timed_since = last.timed_since if last.timed else number
        new.file_ms, new.ict_ms = clock_ms, None
        if new.timed:
            before = last.ict_ms if last.timed else self._file_times()[-1]
            assert before is not None
            new.ict_ms = max(clock_ms, before + 1)
        self.versions.append(new)
        return new

    def times(self) -> list[int]:
        """The effective time of each version, strictly increasing: the in-commit timestamps once they are enabled, and
        before that the file times, each adjusted to be at least 1 ms after the previous one."""
        if not self.latest.timed:
            return self._file_times()
        since = self.latest.timed_since
        stamps = [version.ict_ms for version in self.versions[since:]]
        return self._file_times()[:since] + [stamp for stamp in stamps if stamp is not None]

    def at(self, timestamp_ms: int) -> int | None:
        """The version that was the latest at this time; None before the first version."""
        found = [number for number, time in enumerate(self.times()) if time <= timestamp_ms]
        return found[-1] if found else None

    def _file_times(self) -> list[int]:
        times: list[int] = []
        for version in self.versions:
            times.append(version.file_ms if not times else max(version.file_ms, times[-1] + 1))
        return times


class TableMachine(RuleBasedStateMachine):
    """Each rule is a step. A new operation of the library needs a rule here that describes its effect on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.clock_ms = START_MS
        self.model = Model()
        self.next_x = 0
        self.damaged: dict[int, str] = {}  # checkpoints by version
        self.store = WatchedStore(lambda: self.clock_ms)
        self.environment = seeded_environment("model", lambda: self.clock_ms)

    @initialize(timed=st.booleans(), interval=st.sampled_from([2, 5, 10]), vectors=st.booleans())
    def create(self, timed: bool, interval: int, vectors: bool) -> None:
        properties = {"delta.checkpointInterval": str(interval)}
        if timed:
            properties[ENABLE] = "true"
        if vectors:
            properties["delta.enableDeletionVectors"] = "true"
        schema = pa.schema([("x", pa.int64())])
        with quiet():
            self.table = DeltaTable.create(self.store, schema, properties=properties, environment=self.environment)
        ict_ms = self.clock_ms if timed else None
        self.model.versions.append(Version({}, ["x"], {}, {}, timed, 0, ict_ms, self.clock_ms))

    # --------------------------------------------------------------------------------------------- writing

    def new_rows(self, number: int, columns: list[str]) -> tuple[pa.Table, dict[int, Row]]:
        rows = {}
        for _ in range(number):
            self.next_x += 1
            rows[self.next_x] = {name: self.next_x if name == "x" else f"{name}{self.next_x}" for name in columns}
        types = {name: pa.int64() if name == "x" else pa.string() for name in columns}
        return pa.Table.from_pylist(list(rows.values()), pa.schema(types)), rows

    def do(self, run: Any, **changes: Any) -> Any:
        """Run a step that must commit ``changes``."""
        with quiet():
            result = run()
        expected = self.model.commit(self.clock_ms, **changes)
        assert not result.skipped
        assert (result.version, result.in_commit_timestamp_ms) == (len(self.model.versions) - 1, expected.ict_ms)
        return result

    def nothing(self, run: Any) -> None:
        """Run a step that must not commit anything."""
        with quiet():
            assert run().skipped

    @rule(number=st.integers(1, 3))
    def append(self, number: int) -> None:
        data, rows = self.new_rows(number, self.model.latest.columns)
        self.do(lambda: self.table.append(data), rows={**self.model.latest.rows, **rows})

    @rule(app=st.sampled_from(APPS), version=st.integers(0, 4))
    def append_once(self, app: str, version: int) -> None:
        data, rows = self.new_rows(1, self.model.latest.columns)
        latest = self.model.latest
        if latest.apps.get(app, -1) >= version:
            return self.nothing(lambda: self.table.append(data, txn=(app, version)))
        changes = {"rows": {**latest.rows, **rows}, "apps": {**latest.apps, app: version}}
        self.do(lambda: self.table.append(data, txn=(app, version)), **changes)

    @precondition(lambda self: len(self.model.latest.columns) < 4)
    @rule()
    def append_with_a_new_column(self) -> None:
        columns = [*self.model.latest.columns, f"c{len(self.model.latest.columns)}"]
        data, rows = self.new_rows(1, columns)
        merged = {**self.model.latest.rows, **rows}
        self.do(lambda: self.table.append(data, merge_schema=True), rows=merged, columns=columns)

    @rule(number=st.integers(0, 2))
    def overwrite(self, number: int) -> None:
        data, rows = self.new_rows(number, self.model.latest.columns)
        self.do(lambda: self.table.overwrite(data), rows=rows)

    @rule(choice=st.integers(0, 100))
    def remove_a_file(self, choice: int) -> None:
        live = sorted(self.table.snapshot().files()["path"].to_pylist())
        if not live:
            return
        path = live[choice % len(live)]
        gone = set(pq.ParquetFile(io.BytesIO(self.store.get(path))).read()["x"].to_pylist())

        def run() -> Any:
            with self.table.transaction() as transaction:
                transaction.remove([path])
                return transaction.commit("DELETE")

        self.do(run, rows={x: row for x, row in self.model.latest.rows.items() if x not in gone})

    @rule(modulus=st.integers(2, 4))
    def delete(self, modulus: int) -> None:
        limit = max(self.model.latest.rows, default=0) // modulus
        left = {x: row for x, row in self.model.latest.rows.items() if x > limit}
        if left == self.model.latest.rows:
            return self.nothing(lambda: self.table.delete(f"x <= {limit}"))
        self.do(lambda: self.table.delete(f"x <= {limit}"), rows=left)

    @rule(choice=st.integers(0, 100))
    def replace_where(self, choice: int) -> None:
        wanted = sorted(self.model.latest.rows)
        if not wanted:
            return
        x = wanted[choice % len(wanted)]
        # The condition of the overwrite must also be true for the new row, so it includes the number of the new row.
        data, rows = self.new_rows(1, self.model.latest.columns)
        left = {key: row for key, row in self.model.latest.rows.items() if key != x}
        where = f"x = {x} or x = {next(iter(rows))}"
        self.do(lambda: self.table.overwrite(data, where=where), rows={**left, **rows})

    @rule(choice=st.integers(0, 100))
    def restore(self, choice: int) -> None:
        version = choice % len(self.model.versions)
        old = self.model.versions[version]
        names = ("rows", "columns", "properties")
        with quiet():
            result = self.table.restore(version)
        if result.commit is None or result.commit.skipped:
            assert all(getattr(old, name) == getattr(self.model.latest, name) for name in names)
            return
        self.model.commit(self.clock_ms, **{name: getattr(old, name) for name in names})
        assert result.commit.version == len(self.model.versions) - 1

    @rule(key=st.sampled_from(KEYS), value=st.sampled_from(["1", "2"]))
    def set_property(self, key: str, value: str) -> None:
        properties = {**self.model.latest.properties, key: value}
        self.do(lambda: self.table.set_properties({key: value}), properties=properties)

    @rule(key=st.sampled_from(KEYS))
    def unset_property(self, key: str) -> None:
        properties = {k: v for k, v in self.model.latest.properties.items() if k != key}
        self.do(lambda: self.table.unset_properties([key]), properties=properties)

    @rule(on=st.booleans())
    def switch_in_commit_timestamps(self, on: bool) -> None:
        table = self.table
        run = table.enable_in_commit_timestamps if on else table.disable_in_commit_timestamps
        if self.model.latest.timed == on:
            return self.nothing(run)
        self.do(run, timed=on)

    @rule()
    def checkpoint(self) -> None:
        try:
            self.table.checkpoint()
        except InvalidCheckpointError:
            # This error is allowed only if a checkpoint is damaged; after the repair that the error message names,
            # writing a checkpoint must succeed.
            self.store.delete(self.damaged.pop(len(self.model.versions) - 1))
            self.table.checkpoint()

    # --------------------------------------------------------------------------------------------- the world

    @rule(ms=st.sampled_from([1, 50, 10_000, DAY_MS, -1, -50, -10_000, -DAY_MS]))
    def clock_jumps(self, ms: int) -> None:
        self.clock_ms += ms

    @rule()
    def restart(self) -> None:
        self.table = DeltaTable.open(self.store, environment=self.environment)

    @rule(damage=st.sampled_from(["delete", "cut", "garbage"]), what=st.sampled_from(["hint", "checkpoint", "crc"]))
    def damage(self, damage: str, what: str) -> None:
        """Damage the newest of the files that serve only to speed up reading; a new process then reads the table."""
        ending = {"hint": "_last_checkpoint", "checkpoint": ".checkpoint.parquet", "crc": ".crc"}[what]
        paths = sorted(path for path in self.store.paths() if path.endswith(ending))
        if not paths:
            return
        data = self.store.get(paths[-1])
        if damage == "delete":
            self.store.delete(paths[-1])
        else:
            self.store.put(paths[-1], data[: len(data) // 2] if damage == "cut" else b"\x00garbage" * 9)
            if what == "checkpoint":
                self.damaged[int(paths[-1].rsplit("/", 1)[-1][:20])] = paths[-1]
        self.restart()
        self.read_latest()

    # --------------------------------------------------------------------------------------------- reading

    @rule()
    def read_latest(self) -> None:
        self.compare(len(self.model.versions) - 1, self.table)

    @rule(choice=st.integers(0, 1000))
    def travel_to_a_version(self, choice: int) -> None:
        self.compare(choice % len(self.model.versions), self.table)

    @rule(choice=st.integers(0, 1000), ms=st.sampled_from([-1, 0, 0, 1, 5_000]))
    def travel_to_a_time(self, choice: int, ms: int) -> None:
        times = self.model.times()
        wanted = times[choice % len(times)] + ms
        expected = self.model.at(wanted)
        with quiet():
            found = self.table.version_at(wanted, before="earliest", after="latest")
        assert found.version == (expected or 0), (wanted, times)
        assert found.timestamp_ms == times[found.version]
        if expected is not None and wanted <= times[-1]:
            assert self.table.snapshot(timestamp=wanted).version == expected

    def compare(self, version: int, table: DeltaTable) -> None:
        """Compare the library's and the model's view of a version."""
        expected = self.model.versions[version]
        with quiet():
            snapshot = table.snapshot(version)
            rows = snapshot.scan().to_arrow().to_pylist()
        wanted = [{name: expected.rows[x].get(name) for name in expected.columns} for x in sorted(expected.rows)]
        assert sorted(rows, key=lambda row: row["x"]) == wanted
        assert snapshot.schema.names == expected.columns
        assert snapshot.in_commit_timestamp_ms == expected.ict_ms
        assert snapshot.in_commit_timestamps_enabled == expected.timed
        configuration = snapshot.metadata.configuration
        assert {k: v for k, v in configuration.items() if k in KEYS} == expected.properties
        assert {app: snapshot.transaction_version(app) for app in APPS} == {a: expected.apps.get(a) for a in APPS}

    @invariant()
    def versions_agree(self) -> None:
        STEPS["steps"] += 1
        if self.model.versions:
            assert self.table.version == len(self.model.versions) - 1

    def teardown(self) -> None:
        """A new process reads the same rows as the model in the first, the middle and the latest version, and the
        checker finds no violation in the log."""
        if not self.model.versions:
            return
        STEPS["examples"] += 1
        table = DeltaTable.open(self.store, environment=self.environment)
        assert table.version == len(self.model.versions) - 1
        for version in {0, table.version // 2, table.version}:
            self.compare(version, table)
        metas = {int(m.name[:20]): m for m in self.store.list_from("_delta_log") if m.name.endswith(".json")}
        times = {version: meta.modification_time_ms or 0 for version, meta in metas.items() if version >= 0}
        violations = check(History(log_of(self.store), modification_times_ms=times, exact=False))
        assert not violations, "\n".join(map(str, violations))


def state_machine(examples: int, steps: int, *, derandomize: bool = True, shrink: bool = True) -> Any:
    """TableMachine as a unittest.TestCase. ``derandomize``: whether every run generates the same examples. ``shrink``:
    look for a shorter example of a failure, which may take minutes."""
    case = TableMachine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=derandomize,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    return case
