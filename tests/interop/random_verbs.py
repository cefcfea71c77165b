"""deltalog and delta-spark run random operations on one table in turn, compared with a model after each operation.

    python -m tests.interop.random_verbs --seeds 0:200              # 12 verbs each
    python -m tests.interop.random_verbs --seeds 17 --verbs 30      # repeat one, with more verbs

Compared at every version: the rows of both readers and of the model; the history (version, time, operation); the rows
of a filter with the data skipping of both engines, which would show wrong statistics; row ids, which stay with their
rows; and the numbers of added and removed rows in the commit's metrics. Finally, some versions are compared again, and
the change data feed is compared.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from deltalog import DeltaLogError, DeltaTable, Environment
from deltalog.presentation.activity import activity
from tests.interop.random_tables import (
    KINDS,
    WIDER,
    Column,
    Condition,
    Row,
    State,
    quoted,
    random_condition,
    random_plan,
)
from tests.support.spark import DeltaSpark, plain_rows

DAY_MS = 86_400_000


class Difference(AssertionError):
    """deltalog, delta-spark and the model disagree."""


def run_verbs(delta: DeltaSpark, path: Path, seed: int, verbs: int) -> collections.Counter[str]:
    """Run the verbs on a new table. Returns the number of refusals by each engine, and the number of comparisons.
    Raises Difference."""
    run = _Run(delta, path, seed)
    try:
        run.live(verbs)
    except Exception as error:
        told = "\n".join(f"  {line}" for line in run.told)
        again = f"python -m tests.interop.random_verbs --seeds {seed} --verbs {verbs}"
        kind = error if isinstance(error, Difference) else traceback.format_exc(limit=-6)
        raise Difference(f"{kind}\n{again}\n{run.plan}\n{told}") from error
    return run.tally


class _Run:
    def __init__(self, delta: DeltaSpark, path: Path, seed: int) -> None:
        self.delta, self.path, self.chance = delta, path, random.Random(seed)
        self.plan = random_plan(self.chance)
        self.told: list[str] = []
        self.tally: collections.Counter[str] = collections.Counter()
        self.state = State(self.plan.columns)
        self.states: dict[int, State] = {}
        self.partitions = {column.key for column in self.plan.columns if column.name in self.plan.partition_by}
        self.next_id, self.next_key = 1, len(self.plan.columns)
        self.row_ids: dict[int, int] = {}
        self.t = f"delta.`{path}`"

    # -------------------------------------------------------------------------------------------------- the run

    def live(self, verbs: int) -> None:
        self.create()
        self.judge()
        ours: list[tuple[int, Callable[[], object]]] = [
            (4, self.append), (3, self.delete), (2, self.overwrite_where), (1, self.overwrite_partitions),
            (1, self.overwrite), (2, self.restore), (1, self.add_column), (2, self.rename), (1, self.drop),
            (1, self.widen), (1, self.set_property),
            (1, self.enable_times), (1, self.checkpoint), (1, self.compact), (1, self.clean_up),
        ]  # fmt: skip
        theirs: list[tuple[int, Callable[[], object]]] = [
            (3, self.insert), (2, self.delete_by_spark), (2, self.update), (2, self.merge), (2, self.optimize),
            (1, self.restore_by_spark), (1, self.add_column_by_spark), (1, self.set_property_by_spark),
            (1, self.rename_by_spark),
        ]  # fmt: skip
        self.append()
        self.judge()
        for number in range(verbs):
            turn = ours if number % 2 else theirs
            self.chance.choices([verb for _, verb in turn], [weight for weight, _ in turn])[0]()
            self.judge()
        self.look_back()

    @property
    def table(self) -> DeltaTable:
        return DeltaTable.open(str(self.path))

    def by_deltalog(self, what: str, call: Callable[[DeltaTable], object], after: State) -> None:
        self.told.append(f"deltalog: {what}")
        try:
            call(self.table)
        except DeltaLogError as error:
            self.refused("deltalog", what, error)
        else:
            self.state = after
            self.tally["verbs of deltalog"] += 1

    def by_spark(self, statement: str, after: State) -> None:
        self.told.append(f"delta-spark: {statement.replace(str(self.path), 'T')}")
        try:
            self.delta.sql(statement).collect()
        except (PySparkException, Py4JJavaError) as error:
            self.refused("delta-spark", statement.split(" delta.")[0], error)
        else:
            self.state = after
            self.tally["verbs of delta-spark"] += 1

    def refused(self, by: str, what: str, error: Exception) -> None:
        java = getattr(error, "java_exception", None)
        reason = (str(error) if java is None else str(java.toString())).splitlines()[0]
        self.told.append(f"    refused: {reason[:300]}")
        self.tally[f"refused by {by}: {what.split(' ')[0]}: {reason[:120]}"] += 1

    # ----------------------------------------------------------------------------------------- random operations

    def create(self) -> None:
        plan = self.plan
        if plan.creator == "deltalog":
            schema = self.state.table().schema
            DeltaTable.create(str(self.path), schema, partition_by=plan.partition_by, properties=dict(plan.properties))
            return
        columns = ", ".join(f"{quoted(column.name)} {column.of.sql}" for column in plan.columns)
        by = f"PARTITIONED BY ({', '.join(map(quoted, plan.partition_by))})" if plan.partition_by else ""
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in plan.properties.items())
        self.delta.sql(f"CREATE TABLE {self.t} ({columns}) USING delta {by} TBLPROPERTIES ({properties})")

    def new_rows(self, most: int) -> dict[int, Row]:
        rows: dict[int, Row] = {}
        for _ in range(self.chance.randint(1, most)):
            row: Row = {0: self.next_id}
            for column in self.state.columns[1:]:
                row[column.key] = self.chance.choice([*column.of.values, None])
            rows[self.next_id] = self.stored(row)
            self.next_id += 1
        return rows

    def stored(self, row: Row) -> Row:
        return {column.key: column.of.stored(row.get(column.key)) for column in self.state.columns}

    def given(self, rows: dict[int, Row]) -> pa.Table:
        return dataclasses.replace(self.state, rows=rows).table()

    def append(self) -> None:
        rows = self.new_rows(8)
        self.by_deltalog(f"append {[*rows]}", lambda t: t.append(self.given(rows)), self.state.with_rows(rows))

    def delete(self) -> None:
        where = self.condition()
        self.by_deltalog(
            f"delete {where.sql}", lambda t: t.delete(where.sql), self.state.without(where.ids(self.state))
        )

    def overwrite(self) -> None:
        rows = self.new_rows(5)
        after = dataclasses.replace(self.state, rows=rows)
        self.by_deltalog(f"overwrite {[*rows]}", lambda t: t.overwrite(self.given(rows)), after)

    def overwrite_where(self) -> None:
        where = self.condition()
        rows = {each: row for each, row in self.new_rows(6).items() if where.test(row)}
        after = self.state.without(where.ids(self.state)).with_rows(rows)
        what = f"overwrite where {where.sql} with {[*rows]}"
        self.by_deltalog(what, lambda t: t.overwrite(self.given(rows), where=where.sql), after)

    def overwrite_partitions(self) -> None:
        if not self.partitions:
            return self.append()
        rows = self.new_rows(3)
        gone = {self.partition(row) for row in rows.values()}
        after = self.state.without({each for each, row in self.state.rows.items() if self.partition(row) in gone})
        what = f"overwrite partitions {[*rows]}"
        self.by_deltalog(what, lambda t: t.overwrite(self.given(rows), partitions="dynamic"), after.with_rows(rows))
        return None

    def partition(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(key) for key in sorted(self.partitions))

    def restore(self) -> None:
        version = self.chance.choice([*self.states])
        self.by_deltalog(f"restore {version}", lambda t: t.restore(version), self.states[version])

    def add_column(self) -> None:
        column = self.new_column([kind for kind in KINDS if kind != "char"])
        new = pa.schema([(quoted(column.name), column.of.arrow)])
        after = self.state.with_columns([*self.state.columns, column])
        self.by_deltalog(f"add column {column.name} {column.kind}", lambda t: t.add_columns(new), after)

    def new_column(self, kinds: Sequence[str]) -> Column:
        self.next_key += 1
        return Column(self.next_key, f"new{self.next_key}", self.chance.choice(kinds))

    def renamed(self) -> tuple[str, str, State]:
        column = self.chance.choice(self.state.columns[1:])
        new = f"{self.chance.choice(['ren ', 'r;', 'r.', 'R'])}{self.next_key}"
        self.next_key += 1
        columns = [dataclasses.replace(c, name=new) if c == column else c for c in self.state.columns]
        return column.name, new, self.state.with_columns(columns)

    def rename(self) -> None:
        if self.plan.mapping and len(self.state.columns) > 1:
            old, new, after = self.renamed()
            self.by_deltalog(f"rename {old} {new}", lambda t: t.rename_column(quoted(old), new), after)

    def drop(self) -> None:
        candidates = [column for column in self.state.columns[1:] if column.key not in self.partitions]
        if self.plan.mapping and len(candidates) > 1:
            column = self.chance.choice(candidates)
            after = self.state.with_columns([each for each in self.state.columns if each != column])
            self.by_deltalog(f"drop {column.name}", lambda t: t.drop_columns([quoted(column.name)]), after)

    def widen(self) -> None:
        candidates = [column for column in self.state.columns if column.kind in WIDER]
        if candidates and "delta.enableTypeWidening" in self.plan.properties:
            column = self.chance.choice(candidates)
            wider = dataclasses.replace(column, kind=WIDER[column.kind])
            after = self.state.with_columns([wider if each == column else each for each in self.state.columns])
            call = lambda t: t.set_column(quoted(column.name), data_type=wider.of.arrow)  # noqa: E731
            self.by_deltalog(f"widen {column.name}", call, after)

    def set_property(self) -> None:
        value = str(self.chance.randint(2, 20))
        if self.chance.random() < 0.5:
            properties = {"delta.checkpointInterval": value, "note": value}
            self.by_deltalog("set properties", lambda t: t.set_properties(properties), self.state)
        else:
            self.by_deltalog("unset a property", lambda t: t.unset_properties(["delta.checkpointInterval"]), self.state)

    def enable_times(self) -> None:
        self.by_deltalog("enable in-commit timestamps", lambda t: t.enable_in_commit_timestamps(), self.state)

    def checkpoint(self) -> None:
        self.by_deltalog("checkpoint", lambda t: t.checkpoint(), self.state)

    def compact(self) -> None:
        self.by_deltalog("compact the log", lambda t: t.compact_log(), self.state)

    def clean_up(self) -> None:
        """Clean up as if three days had passed, and remove everything that is no longer needed."""
        later = Environment(clock_ms=lambda: time.time_ns() // 1_000_000 + 3 * DAY_MS)

        def call(_: DeltaTable) -> None:
            DeltaTable.open(str(self.path), environment=later).cleanup_log(retention=timedelta(days=1))

        self.by_deltalog("clean up", call, self.state)
        self.delta.forget()
        first = self.table.history()[-1].version
        for version in [each for each in self.states if each < first]:
            if not self.is_readable(version):
                del self.states[version]

    def is_readable(self, version: int) -> bool:
        try:
            self.table.snapshot(version)
        except DeltaLogError:
            return False
        return True

    # ------------------------------------------------------------------------------------------- by delta-spark

    def insert(self) -> None:
        rows = self.new_rows(4)
        columns = self.state.columns
        names = ", ".join(quoted(column.name) for column in columns)
        values = ", ".join(f"({', '.join(c.literal(row.get(c.key)) for c in columns)})" for row in rows.values())
        self.by_spark(f"INSERT INTO {self.t} ({names}) VALUES {values}", self.state.with_rows(rows))

    def delete_by_spark(self) -> None:
        where = self.condition()
        self.by_spark(f"DELETE FROM {self.t} WHERE {where.sql}", self.state.without(where.ids(self.state)))

    def update(self) -> None:
        if len(self.state.columns) < 2:
            return
        where, column = self.condition(), self.chance.choice(self.state.columns[1:])
        value = self.chance.choice([*column.of.values, None])
        changed = {
            each: {**self.state.rows[each], column.key: column.of.stored(value)} for each in where.ids(self.state)
        }
        statement = f"UPDATE {self.t} SET {quoted(column.name)} = {column.literal(value)} WHERE {where.sql}"
        self.by_spark(statement, self.state.with_rows(changed))

    def merge(self) -> None:
        if not self.state.rows:
            return
        gone = self.chance.choice([*self.state.rows])
        new, self.next_id = self.next_id, self.next_id + 1
        after = self.state.without({gone}).with_rows({new: {0: new}})
        self.by_spark(
            f"MERGE INTO {self.t} t USING (SELECT {gone}L AS k UNION ALL SELECT {new}L) u ON t.id = u.k "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (u.k)",
            after,
        )

    def optimize(self) -> None:
        statement = self.chance.choice([f"OPTIMIZE {self.t}", f"REORG TABLE {self.t} APPLY (PURGE)"])
        self.by_spark(statement, self.state)

    def restore_by_spark(self) -> None:
        version = self.chance.choice([*self.states])
        self.by_spark(f"RESTORE TABLE {self.t} TO VERSION AS OF {version}", self.states[version])

    def add_column_by_spark(self) -> None:
        column = self.new_column([*KINDS])
        after = self.state.with_columns([*self.state.columns, column])
        self.by_spark(f"ALTER TABLE {self.t} ADD COLUMNS ({quoted(column.name)} {column.of.sql})", after)

    def rename_by_spark(self) -> None:
        if self.plan.mapping and len(self.state.columns) > 1:
            old, new, after = self.renamed()
            self.by_spark(f"ALTER TABLE {self.t} RENAME COLUMN {quoted(old)} TO {quoted(new)}", after)

    def set_property_by_spark(self) -> None:
        value = self.chance.randint(2, 20)
        self.by_spark(f"ALTER TABLE {self.t} SET TBLPROPERTIES ('delta.checkpointInterval' = '{value}')", self.state)

    def condition(self) -> Condition:
        return random_condition(self.chance, self.state)

    # -------------------------------------------------------------------------------- comparison with the model

    def judge(self) -> None:
        table, before = self.table, self.states.get(max(self.states, default=0))
        is_new = table.version not in self.states
        self.states[table.version] = self.state
        self.same_rows(None, self.state)
        history = [(e.version, e.timestamp_ms, e.operation) for e in table.history()]
        self.same("history", history, self.delta.history(self.path))
        if not is_new:
            return
        where = self.condition()
        expected = sorted(where.ids(self.state))
        ours = sorted(table.snapshot().scan(["id"], where=where.sql).to_arrow()["id"].to_pylist())
        self.same(f"rows that deltalog finds by {where.sql}", ours, expected)
        frame = self.delta.sql(f"SELECT id FROM {self.t} WHERE {where.sql}")
        self.same(f"rows that delta-spark finds by {where.sql}", sorted(row.id for row in frame.collect()), expected)
        self.judge_metrics(before)
        if "delta.enableRowTracking" in self.plan.properties:
            self.judge_row_ids()

    def judge_metrics(self, before: State | None) -> None:
        """The numbers of added and removed rows in the commit's metrics must match the change in the row count. This is
        checked only for commits by deltalog, whose metrics are exact."""
        entry = self.table.history(1)[0]
        if before is None or not (entry.engine_info or "").startswith("deltalog"):
            return
        done = activity(entry.operation_metrics)
        if entry.operation in ("WRITE", "DELETE", "RESTORE") and not (
            done["files_removed"] and done["rows_removed"] is None
        ):
            net = (done["rows_added"] or 0) - (done["rows_removed"] or 0)
            self.same(f"metrics {entry.operation_metrics}", net, len(self.state.rows) - len(before.rows))

    def judge_row_ids(self) -> None:
        found = self.delta.sql(f"SELECT id, _metadata.row_id AS r FROM {self.t}").collect()
        ids = {row.id: row.r for row in found}
        known = {each: self.row_ids[each] for each in ids if each in self.row_ids}
        self.same("row ids", {each: ids[each] for each in known}, known)
        self.same("number of row ids", len(set(ids.values())), len(ids))
        self.row_ids |= ids

    def look_back(self) -> None:
        for version in self.chance.sample([*self.states], min(4, len(self.states))):
            self.same_rows(version, self.states[version])
        if self.plan.properties.get("delta.enableChangeDataFeed") == "true":
            self.judge_changes()

    def same_rows(self, version: int | None, state: State) -> None:
        expected = state.table()
        ours = self.table.snapshot(version).scan().to_arrow()
        theirs = self.delta.table(self.path, version)
        for name, found in (("deltalog", ours), ("delta-spark", theirs)):
            self.same(f"columns of {version} by {name}", found.column_names, expected.column_names)
            self.same(f"rows of {version} by {name}", plain_rows(found), plain_rows(expected))

    def judge_changes(self) -> None:
        first = self.chance.choice([each for each in self.states if each >= self.table.history()[-1].version])
        try:
            ours = self.table.changes(first).to_arrow()
        except DeltaLogError as error:
            return self.refused("deltalog", "changes", error)
        try:
            theirs = self.delta.changes(self.path, first)
        except (PySparkException, Py4JJavaError) as error:
            return self.refused("delta-spark", "changes", error)
        names = [name for name in theirs.column_names if name != "_commit_timestamp"]
        self.same("changes", plain_rows(ours.select(names)), plain_rows(theirs.select(names)))
        return None

    def same(self, what: str, found: Any, expected: Any) -> None:
        self.tally["comparisons"] += 1
        if found != expected:
            if isinstance(found, list) and isinstance(expected, list):
                texts = [
                    collections.Counter(json.dumps(each, default=str) for each in side) for side in (found, expected)
                ]
                found, expected = [*(texts[0] - texts[1])][:5], [*(texts[1] - texts[0])][:5]
            raise Difference(f"{what}: only found {found}; only expected {expected}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.random_verbs", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seeds", default="0:20", help="one, or FROM:TO")
    parser.add_argument("--verbs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no other table after that")
    given = parser.parse_args()
    start, _, end = given.seeds.partition(":")
    from tests.support.spark import delta_session, stop_sessions

    tally: collections.Counter[str] = collections.Counter()
    failures, until = 0, time.monotonic() + given.seconds
    delta = DeltaSpark(delta_session(**CONF))
    try:
        for seed in range(int(start), int(end or int(start) + 1)):
            if time.monotonic() > until:
                break
            with tempfile.TemporaryDirectory() as place:
                try:
                    tally += run_verbs(delta, Path(place) / "table", seed, given.verbs)
                    tally["tables"] += 1
                except Difference as error:
                    failures += 1
                    print(f"seed {seed}: {error}\n", flush=True)
    finally:
        stop_sessions()
    for what, number in tally.most_common():
        print(f"{number:6}  {what}")
    sys.exit(1 if failures else 0)


#: Settings for small tables and many queries that run once.
CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.session.timeZone": "UTC",
}

if __name__ == "__main__":
    main()
