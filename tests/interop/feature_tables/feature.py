"""A row of the feature matrix, and helpers for the builders of its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog import DeltaTable
from deltalog.schema import PrimitiveType, StructField, StructType
from tests.support.spark.log_files import actions, commits
from tests.support.spark.shapes import SCHEMA

ICT = {"delta.enableInCommitTimestamps": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
V2 = {"delta.checkpointPolicy": "v2"}
LONG, TEXT = PrimitiveType("long"), PrimitiveType("string")
INSERT = "INSERT INTO {t} SELECT * FROM {t} LIMIT 1"
DELETE = "DELETE FROM {t} WHERE id = 1"
UPDATE = "UPDATE {t} SET amount = 0.5 WHERE id = 2"
DAY_MS = 86_400_000

Builder = Callable[[Path], pa.Table]


@dataclass(frozen=True)
class Feature:
    """A row of the matrix.

    ``spark``: the statements that delta-spark then runs on the table; ``refused``: a statement that delta-spark must
    refuse, and the error that it must raise. ``changes_from``: the first version with a change data feed; ``row_ids``:
    whether row tracking is enabled; ``checksum``: whether there is a ``.crc`` (docs/log-files.md lists the cases
    without one).
    """

    name: str
    by: str
    build: Builder
    spark: tuple[str, ...]
    refused: tuple[str, str] | None
    changes_from: int | None
    row_ids: bool
    checksum: bool


REGISTERED: dict[str, Feature] = {}


def feature(
    name: str,
    by: str,
    *,
    spark: tuple[str, ...] = (INSERT, DELETE),
    refused: tuple[str, str] | None = None,
    changes_from: int | None = None,
    row_ids: bool = False,
    checksum: bool = True,
) -> Callable[[Builder], Builder]:
    """Add a row to the matrix: the name of the feature, and the calls that write it."""

    def register(build: Builder) -> Builder:
        assert name not in REGISTERED, name
        REGISTERED[name] = Feature(name, by, build, spark, refused, changes_from, row_ids, checksum)
        return build

    return register


def logged(path: Path, kind: str) -> list[dict[str, Any]]:
    """All actions of one kind in the existing commits."""
    return [line[kind] for commit in commits(path).values() for line in actions(commit) if kind in line]


def listed(table: DeltaTable) -> set[str]:
    """The table features that the table's protocol action lists."""
    protocol = table.snapshot().protocol
    return {*(protocol.writer_features or ()), *(protocol.reader_features or ())}


def without(rows: pa.Table, *ids: int) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["id"], pa.array(ids, pa.int64()))))


def as_partitioned(rows: pa.Table) -> pa.Table:
    """The rows as read from a table partitioned by place, where an empty string becomes null."""
    place = pc.if_else(pc.equal(rows["place"], ""), None, rows["place"])
    return rows.set_column(rows.schema.get_field_index("place"), "place", place)


def created(path: Path, *properties: dict[str, str], **more: Any) -> DeltaTable:
    merged = {key: value for each in properties for key, value in each.items()}
    return DeltaTable.create(str(path), SCHEMA, properties=merged, **more)


def columns(*fields: tuple[str, PrimitiveType, bool, dict[str, str]]) -> StructType:
    return StructType(tuple(StructField(*each) for each in fields))
