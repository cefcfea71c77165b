"""The tables of the interoperability tests: for each table, one list of steps that either engine runs, and a model of
the expected result.

The model is plain Python, independent of both engines: it computes which rows each version must have.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

import deltalog
from tests.support.spark.oracle import DeltaSpark
from tests.support.spark.rows import plain_rows

ICT = "delta.enableInCommitTimestamps"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("place", pa.string()),
    ]
)
DDL = "id BIGINT, name STRING, amount DOUBLE, at TIMESTAMP, place STRING"
PLACES = (None, "plain", "a b", "x=1/2%3", "ä€😀", "", "q\"u'o:t#e?+&")
_START = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.timezone.utc)


def batch(start: int, count: int = 3) -> pa.Table:
    """Rows with ids from `start` on, with some null values; the same ids give the same rows."""
    ids = range(start, start + count)
    columns: dict[str, list[Any]] = {
        "id": list(ids),
        "name": [None if i % 5 == 4 else f"name {i}" for i in ids],
        "amount": [None if i % 7 == 6 else i * 1.25 - 2 for i in ids],
        "at": [None if i % 4 == 3 else _START + dt.timedelta(days=i, microseconds=i) for i in ids],
        "place": [PLACES[i % len(PLACES)] for i in ids],
    }
    return pa.table(columns, schema=SCHEMA)


@dataclass(frozen=True)
class Shape:
    """A table: its properties and partition columns at version 0, and one step for each later version.

    Steps: ("append", start), ("overwrite", start), ("enable",), ("disable",).
    """

    steps: Sequence[tuple[Any, ...]]
    ict: bool = False
    interval: int | None = None
    partition_by: tuple[str, ...] = ()

    @property
    def properties(self) -> dict[str, str]:
        found = {ICT: "true"} if self.ict else {}
        if self.interval is not None:
            found["delta.checkpointInterval"] = str(self.interval)
        return found

    def model(self) -> list[list[list[Any]]]:
        """The rows of each version, starting with version 0."""
        versions: list[pa.Table] = [SCHEMA.empty_table()]
        for step in self.steps:
            versions.append(_apply(versions[-1], step))
        return [self.as_read(rows) for rows in versions]

    def as_read(self, rows: pa.Table) -> list[list[Any]]:
        """The rows as every reader must return them: an empty string in a partition column becomes null."""
        plain = rows.to_pylist()
        for row in plain:
            for name in self.partition_by:
                row[name] = None if row[name] == "" else row[name]
        return plain_rows(pa.Table.from_pylist(plain, schema=SCHEMA))


def _apply(rows: pa.Table, step: tuple[Any, ...]) -> pa.Table:
    if step[0] == "append":
        return pa.concat_tables([rows, batch(step[1])])
    if step[0] == "overwrite":
        return batch(step[1])
    return rows


def appends(*starts: int) -> list[tuple[Any, ...]]:
    return [("append", start) for start in starts]


SHAPES: Mapping[str, Shape] = {
    "no_ict": Shape([*appends(0, 3), ("overwrite", 20), *appends(30)]),
    "ict_from_start": Shape([*appends(0, 3), ("overwrite", 20), *appends(30)], ict=True),
    "ict_enabled_late": Shape([*appends(0, 3), ("enable",), *appends(6, 9)]),
    "ict_disabled_enabled_again": Shape(
        [*appends(0), ("disable",), *appends(3), ("enable",), *appends(6, 9)], ict=True
    ),
    "ict_partitioned": Shape([*appends(0, 3, 6), ("overwrite", 20)], ict=True, partition_by=("place",)),
    "ict_checkpointed": Shape(appends(0, 3, 6, 9, 12, 15, 18), ict=True, interval=3),
    "ict_late_checkpointed": Shape([*appends(0, 3), ("enable",), *appends(6, 9, 12)], interval=2),
}


class Writer(Protocol):
    """An engine that writes tables by running the steps of a shape."""

    def create(self, path: Path, shape: Shape) -> None: ...
    def step(self, path: Path, step: tuple[Any, ...]) -> None: ...


class SparkWriter:
    def __init__(self, delta: DeltaSpark) -> None:
        self._delta = delta

    def create(self, path: Path, shape: Shape) -> None:
        by = f"PARTITIONED BY ({', '.join(shape.partition_by)})" if shape.partition_by else ""
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in shape.properties.items())
        properties = f"TBLPROPERTIES ({pairs})" if pairs else ""
        self._delta.sql(f"CREATE TABLE delta.`{path}` ({DDL}) USING delta {by} {properties}")

    def step(self, path: Path, step: tuple[Any, ...]) -> None:
        if step[0] in ("append", "overwrite"):
            frame = self._delta.spark.createDataFrame(batch(step[1])).coalesce(1)
            frame.write.format("delta").mode(step[0]).save(str(path))
            return
        value = "true" if step[0] == "enable" else "false"
        self._delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{ICT}' = '{value}')")


class DeltalogWriter:
    """Keeps one handle for each table, so that a step after another engine's step starts from a stale handle."""

    def __init__(self) -> None:
        self._tables: dict[Path, deltalog.DeltaTable] = {}

    def create(self, path: Path, shape: Shape) -> None:
        self._tables[path] = deltalog.DeltaTable.create(
            str(path), SCHEMA, partition_by=shape.partition_by, properties=shape.properties
        )

    def step(self, path: Path, step: tuple[Any, ...]) -> None:
        table = self._tables.get(path) or self._tables.setdefault(path, deltalog.DeltaTable.open(str(path)))
        actions: Mapping[str, Callable[[], Any]] = {
            "append": lambda: table.append(batch(step[1])),
            "overwrite": lambda: table.overwrite(batch(step[1])),
            "enable": table.enable_in_commit_timestamps,
            "disable": table.disable_in_commit_timestamps,
        }
        actions[step[0]]()


@dataclass(frozen=True)
class Written:
    """A finished table: its path, its writer, and the expected rows of each version."""

    path: Path
    writer: str
    shape: Shape
    rows: list[list[list[Any]]] = field(repr=False)

    @property
    def latest(self) -> int:
        return len(self.rows) - 1


def write(path: Path, name: str, writer: str, shape: Shape, engine: Writer) -> Written:
    engine.create(path, shape)
    for step in shape.steps:
        engine.step(path, step)
    return Written(path, writer, shape, shape.model())
