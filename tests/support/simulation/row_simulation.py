"""Seeded schedules of operations on rows, with faults, judged by the rows of every version.

    result = run_row_schedule(seed=7)
    assert not result.violations, result.report()

A variant of ``simulation``: several clients delete, update, merge, replace, restore and rewrite rows, alter the table
and clean up its log, on a small partitioned table with real rows. The seed chooses the table features. The module
``rows`` and the checker judge the result.
"""

from __future__ import annotations

import contextlib
import datetime
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from deltalog.commit_result import CommitResult
from deltalog.errors import CallError, MissingVersionError, NotFoundError, SchemaMismatchError, StoreError
from deltalog.log.file_tables import add_actions
from deltalog.parquet.file_reader import read_vector
from deltalog.rows import matched_rows
from deltalog.storage.base import LogStore
from deltalog.table import DeltaTable
from deltalog.testing.checker import Violation
from deltalog.testing.history import History, Operation
from deltalog.testing.recording import log_of, quiet, seeded_environment
from tests.support.simulation.merges import draw_merge
from tests.support.simulation.rows import (
    EXTRA_FACTOR,
    Plan,
    Row,
    Rows,
    Where,
    as_row,
    both,
    check_changes,
    compared,
    either,
    is_null,
    judge_rows,
)
from tests.support.simulation.scheduler import Client
from tests.support.simulation.simulation import ScheduleResult, Simulation

SCHEMA = pa.schema([("x", pa.int64()), ("p", pa.string()), ("v", pa.float64()), ("e", pa.int64())])
PARTITIONS = ("a", "b", None)
VALUES, RARE_VALUES = (0.0, 1.0, 2.0, 3.0, None), (4.0, float("nan"))
#: Constraints, by name, that any client may add. Rows that violate the first constraint are rare, so that the
#: constraint can be added to most tables.
CONSTRAINTS: Mapping[str, Where] = {
    "small": either(compared("v", "<=", 3), is_null("v")),
    "other": either(compared("v", "<>", 2), is_null("v")),
}
#: The operations of clients, with their weights.
ROW_KINDS: Mapping[str, int] = {
    "append": 16,
    "delete": 16,
    "update": 14,
    "merge": 16,
    "replace where": 14,
    "replace partitions": 12,
    "overwrite": 3,
    "restore": 8,
    "move": 5,
    "optimize": 12,
    "add constraint": 8,
    "drop constraint": 6,
    "alter": 5,
    "domain": 2,
    "property": 3,
    "checkpoint": 2,
    "compact log": 2,
    "clean up log": 2,
}
#: The properties of new tables, by feature; each feature is on in half of the schedules.
FEATURES: Mapping[str, Mapping[str, str]] = {
    "vectors": {"delta.enableDeletionVectors": "true"},
    "changes": {"delta.enableChangeDataFeed": "true"},
    "row ids": {"delta.enableRowTracking": "true"},
    "row ids later": {"delta.feature.rowTracking": "supported"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "write serializable": {"delta.isolationLevel": "WriteSerializable"},
}
_TABLES = ("on", "late", "off")
DAY_MS = 86_400_000
# Errors that the table may raise: rows that break a constraint, dropped columns, versions whose log was cleaned up.
_REFUSALS = (CallError, NotFoundError, MissingVersionError)


class RowSimulation(Simulation):
    """One schedule. ``features`` (some of FEATURES) replaces choices that the seed would otherwise make; all other
    options are those of Simulation."""

    def __init__(
        self,
        seed: int,
        *,
        writers: int = 2,
        operations: int = 4,
        fault_rate: float = 0.04,
        table: str | None = None,
        policy: str | None = None,
        kinds: Mapping[str, int] | None = None,
        features: Sequence[str] | None = None,
        checkpoints: float = 0.1,
        wrap: Callable[[LogStore], LogStore] = lambda store: store,
    ) -> None:
        choice = random.Random(f"{seed}/rows")
        chosen = [name for name in FEATURES if choice.random() < 0.5]
        self.features = chosen if features is None else list(features)
        self.plans: dict[str, Plan] = {}
        self._remote = choice.random() < 0.5
        self._bounds = choice.random() < 0.7
        self._before: dict[int, bytes] = {}
        super().__init__(
            seed,
            writers=writers + (choice.random() < 0.3),
            operations=operations,
            fault_rate=choice.choice((0.0, fault_rate, fault_rate)),
            table=table or choice.choice(_TABLES),
            policy=policy,
            kinds=kinds or ROW_KINDS,
            checkpoints=checkpoints,
            wrap=wrap,
        )
        self._refusals = _REFUSALS

    # ---------------------------------------------------------------------------------- preparing the table

    def _prepare(self) -> int:
        scheduler = self.scheduler
        environment = seeded_environment(f"{self.seed}/prepare", scheduler.time_ms)
        rng = random.Random(f"{self.seed}/rows/prepare")
        scheduler._now_ms -= 5 * DAY_MS
        with quiet():
            table = DeltaTable.create(
                self.shared, SCHEMA, properties=self._properties(), partition_by=["p"], environment=environment
            )
            self._fill(table, rng)
        self.shared.sightings.clear()
        self.shared.is_remote = self._remote
        self._before = log_of(self.shared)
        return len(self._before)

    def _fill(self, table: DeltaTable, rng: random.Random) -> None:
        """Write some versions with rows; the first three are days old and have a checkpoint, so that log clean-up can
        delete these versions."""
        for number in range(4):
            if number == 2:
                table.checkpoint()
                self.scheduler._now_ms += 5 * DAY_MS
            table.append(drawn(rng, 100 * (number + 1), 4, 0.04))

    def _properties(self) -> dict[str, str]:
        properties = super()._properties()
        for name in self.features:
            properties.update(FEATURES[name])
        if not self._bounds:
            properties["delta.dataSkippingNumIndexedCols"] = "0"
        return properties

    # ------------------------------------------------------------------------------ the clients' operations

    def _change_files(self, client: Client, table: DeltaTable, kind: str) -> None:
        number = len(self.records)
        turn = Turn(client.random, 1000 * (number + 1), self.features)
        operation = (_append_last if client.name == "last" else _OPERATIONS[kind])(turn, table)
        plan = turn.plan
        if plan is not None:
            self.plans[f"op{number}"] = plan
        again = kind not in _BESIDE and client.random.random() < 0.3

        def attempt(record: Operation) -> CommitResult | None:
            def once(table: DeltaTable) -> CommitResult | None:
                return operation(table, record.token)

            # After a conflict, OPTIMIZE is repeated without the files that other writers have changed.
            record.repeated = again or kind == "optimize"
            result = table.retrying(once, retry_count=2) if again else once(table)
            if result is not None and result.skipped:
                record.read_version = result.version
            return result

        self._record(client, kind, attempt, may_change=list(_ANY if kind in _ALTERING else ()))

    def _crash(self, client: Client, error: str, kind: str = "read") -> None:
        # Not a crash: log clean-up deleted the log files of the version while they were being read.
        of_lost = ("VersionNotFoundError", "TimestampOutOfRangeError", "MissingVersionError")
        if kind != "read" or not error.startswith(of_lost):
            super()._crash(client, error, kind)

    # ---------------------------------------------------------------------------------------- judging a run

    def _history(self) -> History:
        history = super()._history()
        # Versions whose commits were deleted by log clean-up are judged too, so the judged log begins at the first
        # version.
        history.log = {**self._before, **{s.version: s.data for s in self.shared.sightings}, **history.log}
        return history

    def _judge(self) -> list[Violation]:
        violations = super()._judge()
        try:
            return violations + self._judge_rows()
        except Exception:
            if violations:
                return violations  # if the log is broken, its rows may be undefined
            raise

    def _content(self, path: str) -> bytes:
        """The bytes of a file, which may belong to any version."""
        return self.shared.get(path)

    def _first_readable(self) -> int:
        return min(log_of(self.shared))

    def _judge_rows(self) -> list[Violation]:
        level = "WriteSerializable" if "write serializable" in self.features else "Serializable"
        log = self._history().log
        found, seen = judge_rows(self._initial, log, self._content, self.plans, self.records, CONSTRAINTS, level)
        with quiet():
            environment = seeded_environment(f"{self.seed}/judge", self.scheduler.time_ms)
            table = DeltaTable.open(self.shared, environment=environment)
            first = self._first_readable()
            for version in {table.version, self.random.randrange(first, table.version + 1)}:
                with contextlib.suppress(NotFoundError):  # the version cannot be read without a checkpoint
                    rows = sorted(map(str, _read(table, version)))
                    if rows != sorted(map(str, seen[version].rows)):
                        found.append(Violation("R5", f"a scan gives {rows}", version))
            if "changes" in self.features and first == 0:
                with contextlib.suppress(SchemaMismatchError):  # a RESTORE has removed the column
                    found += [Violation("R4", wrong) for wrong in check_changes(seen, 0, _changes(table))]
        return found


class Turn:
    """The source of random values for one operation, and the operation's plan. ``plan`` is None if the operation's
    effect on rows is not judged."""

    def __init__(self, rng: random.Random, first: int, features: Sequence[str]) -> None:
        self.random = rng
        self.first = first
        self.features = features
        self.plan: Plan | None = Plan("keep")

    def rows(self, number: int = 3) -> Rows:
        return _draw(self.random, self.first, self.random.randrange(1, number + 1), 0.15)

    def where(self) -> Where:
        """A condition on partitions, on values, or on both."""
        rng = self.random
        by_partition = rng.choice((compared("p", "=", "a"), compared("p", "<>", "a"), is_null("p")))
        value = rng.randrange(5)
        by_value = rng.choice(
            (compared("v", "=", value), compared("v", "<=", value), compared("v", ">", value), is_null("v"))
        )
        return rng.choice(
            (by_partition, by_value, by_value, both(by_partition, by_value), either(by_partition, by_value))
        )

    def txn(self) -> tuple[str, int] | None:
        if self.random.random() < 0.8:
            return None
        return f"app{self.random.randrange(2)}", self.random.randrange(4)


Operate = Callable[[DeltaTable, str], CommitResult | None]


def _append(turn: Turn, table: DeltaTable) -> Operate:
    rows, txn = turn.rows(), turn.txn()
    turn.plan = Plan("append", rows, txn=txn)
    data = _as_table(rows) if turn.random.random() < 0.5 else _as_table(rows).drop(["e"])
    return lambda table, token: table.append(data, user_metadata=token, txn=txn)


def _append_last(turn: Turn, table: DeltaTable) -> Operate:
    """Append a row that satisfies all constraints."""
    rows = frozenset([Row(turn.first, "a", 0.0)])
    turn.plan = Plan("append", rows)
    return lambda table, token: table.append(_as_table(rows).drop(["e"]), user_metadata=token)


def _delete(turn: Turn, table: DeltaTable) -> Operate:
    where = None if turn.random.random() < 0.05 else turn.where()
    txn = turn.txn()
    turn.plan = Plan("delete", where=where, txn=txn)
    sql = None if where is None else where.sql
    return lambda table, token: table.delete(sql, user_metadata=token, txn=txn)


#: The updates: for each, the arguments of ``update``, and a function that computes its effect on a row.
UPDATES: Sequence[tuple[Mapping[str, Any], Callable[[Row], Row]]] = (
    ({"updates": {"v": "v + 1"}}, lambda row: row._replace(v=row.v + 1 if isinstance(row.v, float) else row.v)),
    ({"updates": {"V": "CASE WHEN v > 1 THEN 0 ELSE 3 END"}}, lambda row: row._replace(v=_swapped(row.v))),
    ({"updates": {"p": "'b'"}, "new_values": {"v": 2}}, lambda row: row._replace(p="b", v=2.0)),
    ({"new_values": {"p": None}}, lambda row: row._replace(p=None)),
    ({"updates": {"v": "x", "x": "x + 0"}}, lambda row: row._replace(v=float(row.x))),
)


def _swapped(value: float | str | None) -> float:
    return 0.0 if value == "nan" or (isinstance(value, float) and value > 1) else 3.0


def _update(turn: Turn, table: DeltaTable) -> Operate:
    where = None if turn.random.random() < 0.05 else turn.where()
    txn, (arguments, change) = turn.txn(), turn.random.choice(UPDATES)
    turn.plan = Plan("update", where=where, txn=txn, change=change)
    sql = None if where is None else where.sql
    return lambda table, token: table.update(where=sql, user_metadata=token, txn=txn, **arguments)


def _merge(turn: Turn, table: DeltaTable) -> Operate:
    drawn, txn = draw_merge(turn.random, turn.first, turn.rows(6)), turn.txn()
    turn.plan = Plan("merge", txn=txn, merge=drawn.merged)
    return lambda table, token: drawn.run(table, token, txn)


def _replace_where(turn: Turn, table: DeltaTable) -> Operate:
    where, txn, rows = turn.where(), turn.txn(), turn.rows(6)
    if turn.random.random() < 0.9:
        rows = where.matching(rows)
    turn.plan = Plan("replace where", rows, where, txn=txn)
    return lambda table, token: table.overwrite(_as_table(rows), where=where.sql, user_metadata=token, txn=txn)


def _replace_partitions(turn: Turn, table: DeltaTable) -> Operate:
    txn, rows = turn.txn(), turn.rows(2)
    turn.plan = Plan("replace partitions", rows, txn=txn)
    return lambda table, token: table.overwrite(_as_table(rows), partitions="dynamic", user_metadata=token, txn=txn)


def _overwrite(turn: Turn, table: DeltaTable) -> Operate:
    txn, rows = turn.txn(), turn.rows()
    turn.plan = Plan("overwrite", rows, txn=txn)
    return lambda table, token: table.overwrite(_as_table(rows), user_metadata=token, txn=txn)


def _restore(turn: Turn, table: DeltaTable) -> Operate:
    version = turn.random.randrange(max(0, table.version - 6), table.version + 1)
    turn.plan = Plan("restore", version=version)
    return lambda table, token: table.restore(version, user_metadata=token).commit


def _move(turn: Turn, table: DeltaTable) -> Operate:
    """Rewrite the rows of some files into one file, as OPTIMIZE does."""
    where = turn.where().sql

    def move(table: DeltaTable, token: str) -> CommitResult | None:
        with table.transaction() as transaction:
            snapshot = transaction.snapshot
            assert snapshot is not None
            files = transaction.find_files(where)
            changes = []
            for add in add_actions(files):
                vector = add.deletion_vector
                deleted = BitMap64() if vector is None else read_vector(snapshot.reader.files, vector)
                rows = msgspec.json.decode(add.stats or "")["numRecords"]
                changes.append(matched_rows.FileChange(add, matched_rows.in_range(0, rows) - deleted, BitMap64(), rows))
            if not changes:
                return None
            transaction.remove_files(files, data_change=False)
            kept = sum(len(each.kept) for each in changes)
            moved = transaction.row_writer.write_copies(matched_rows.moved_rows(snapshot, changes), kept)
            transaction.staged.add_written(msgspec.structs.replace(add, data_change=False) for add in moved)
            return transaction.commit("OPTIMIZE", user_metadata=token)

    return move


def _optimize(turn: Turn, table: DeltaTable) -> Operate:
    """Compact small files or purge deletion vectors in some partitions; files that others have changed in the meantime
    are left out."""
    where = turn.random.choice((None, None, "p = 'a'", "p <> 'a' OR p IS NULL"))
    size = turn.random.choice((None, None, 2000))

    def optimize(table: DeltaTable, token: str) -> CommitResult | None:
        kind = turn.random.choice(("compact", "compact", "compact", "purge", "purge", "sort"))
        if kind == "sort" and table.snapshot().metadata.configuration.get("delta.dataSkippingNumIndexedCols") != "0":
            report = table.optimize.z_order(["v", "x"], where, size, 1, user_metadata=token)
        else:
            verb = table.optimize.purge if kind == "purge" else table.optimize.compact
            report = verb(where, size, 1, user_metadata=token)
        return report.commits[0] if report.commits else None

    return optimize


def _add_constraint(turn: Turn, table: DeltaTable) -> Operate:
    name, where = turn.random.choice(list(CONSTRAINTS.items()))
    return lambda table, token: table.add_constraint(name, where.sql, user_metadata=token)


def _drop_constraint(turn: Turn, table: DeltaTable) -> Operate:
    def drop(table: DeltaTable, token: str) -> CommitResult | None:
        """Drop the first of these columns that exists."""
        dropped = (table.drop_constraint(name, if_exists=True, user_metadata=token) for name in CONSTRAINTS)
        return next((result for result in dropped if not result.skipped), None)

    return drop


def _alter(turn: Turn, table: DeltaTable) -> Operate:
    rng = turn.random
    name = f"new{rng.randrange(3)}"
    choices: list[Operate] = [
        lambda table, token: table.add_columns(pa.schema([(name, pa.int64())]), user_metadata=token),
        lambda table, token: table.set_properties({"delta.enableDeletionVectors": "true"}, user_metadata=token),
        lambda table, token: table.set_properties({"delta.enableDeletionVectors": "false"}, user_metadata=token),
        lambda table, token: table.add_feature("v2Checkpoint", user_metadata=token),
        lambda table, token: table.set_properties({"delta.columnMapping.mode": "name"}, user_metadata=token),
    ]
    if "row ids later" in turn.features:
        row_ids = {"delta.enableRowTracking": "true"}
        choices += [lambda table, token: table.set_properties(row_ids, user_metadata=token)] * 3
    # Reading the change data feed of a range requires the same schema in all versions of the range.
    if "mapped" in turn.features and "changes" not in turn.features:
        choices += [
            lambda table, token: table.rename_column("e", "e2", user_metadata=token),
            lambda table, token: table.rename_column("e2", "e", user_metadata=token),
            lambda table, token: table.drop_columns(["e"], user_metadata=token),
        ]
    return rng.choice(choices)


def _domain(turn: Turn, table: DeltaTable) -> Operate:
    return lambda table, token: table.set_domain_metadata("mine", token, user_metadata=token)


def _compact_log(turn: Turn, table: DeltaTable) -> Operate:
    turn.plan = None
    return lambda table, token: _tolerate_failure(table.compact_log)


def _clean_up_log(turn: Turn, table: DeltaTable) -> Operate:
    turn.plan = None
    return lambda table, token: _tolerate_failure(lambda: table.cleanup_log(retention=datetime.timedelta(days=1)))


def _tolerate_failure(tidy: Callable[[], object]) -> None:
    """Runs an operation that does not commit: it may fail, but must not do any damage."""
    try:
        tidy()
    except StoreError:
        return


_OPERATIONS: Mapping[str, Callable[[Turn, DeltaTable], Operate]] = {
    "append": _append,
    "delete": _delete,
    "update": _update,
    "merge": _merge,
    "replace where": _replace_where,
    "replace partitions": _replace_partitions,
    "overwrite": _overwrite,
    "restore": _restore,
    "move": _move,
    "optimize": _optimize,
    "add constraint": _add_constraint,
    "drop constraint": _drop_constraint,
    "alter": _alter,
    "domain": _domain,
    "compact log": _compact_log,
    "clean up log": _clean_up_log,
}
_BESIDE = ("compact log", "clean up log")
_ALTERING = ("add constraint", "drop constraint", "alter", "domain", "restore")
_ANY = ("schemaString", "configuration", "name", "description", "protocol")


def _draw(rng: random.Random, first: int, number: int, rare: float) -> Rows:
    values = (rng.choice(RARE_VALUES if rng.random() < rare else VALUES) for _ in range(number))
    return frozenset(as_row(first + n, rng.choice(PARTITIONS), value) for n, value in enumerate(values))


def drawn(rng: random.Random, first: int, number: int, rare: float) -> pa.Table:
    """Random rows, numbered from ``first``; ``rare``: the probability of a rare value."""
    return _as_table(_draw(rng, first, number, rare))


def _as_table(rows: Rows) -> pa.Table:
    ordered = sorted(rows, key=lambda row: row.x)
    values = [float(row.v) if row.v is not None else None for row in ordered]
    columns = {"x": [r.x for r in ordered], "p": [r.p for r in ordered], "v": values}
    return pa.table({**columns, "e": [EXTRA_FACTOR * row.x for row in ordered]}, SCHEMA)


def _rows_of(table: pa.Table) -> Iterator[Row]:
    return (as_row(row["x"], row["p"], row["v"]) for row in table.select(["x", "p", "v"]).to_pylist())


def _read(table: DeltaTable, version: int) -> list[Row]:
    return list(_rows_of(table.snapshot(version).scan(["x", "p", "v"]).to_arrow()))


def _changes(table: DeltaTable) -> dict[int, list[tuple[str, Row]]]:
    found: dict[int, list[tuple[str, Row]]] = {}
    for row in table.changes(0).to_arrow().to_pylist():
        change = (row["_change_type"], as_row(row["x"], row["p"], row["v"]))
        found.setdefault(row["_commit_version"], []).append(change)
    return found


def run_row_schedule(seed: int, **options: Any) -> ScheduleResult:
    """Run one schedule and judge its result; the options are those of RowSimulation."""
    return RowSimulation(seed, **options).run()
