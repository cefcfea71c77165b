"""Constraints, generated, identity and default columns, char and varchar."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa

from deltalog import DeltaTable
from deltalog.schema import PrimitiveType, StructField, StructType, identity_column
from tests.interop.feature_tables.feature import DELETE, INSERT, LONG, TEXT, columns, created, feature
from tests.support.spark.shapes import batch


@feature("Append-only", "`delta.appendOnly`", spark=(INSERT,), refused=(DELETE, "DELTA_CANNOT_MODIFY_APPEND_ONLY"))
def append_only(path: Path) -> pa.Table:
    table = created(path, {"delta.appendOnly": "true"})
    table.append(batch(0))
    return batch(0)


@feature(
    "`NOT NULL`",
    "`create`, `set_column(nullable=True)`",
    refused=("INSERT INTO {t} VALUES (NULL, 1)", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
)
def not_null(path: Path) -> pa.Table:
    table = DeltaTable.create(str(path), columns(("id", LONG, False, {}), ("b", LONG, False, {})))
    table.append(pa.table({"id": [1], "b": [2]}))
    table.set_column("b", nullable=True)
    table.append(pa.table({"id": [2], "b": pa.array([None], pa.int64())}))
    return pa.table({"id": [1, 2], "b": pa.array([2, None], pa.int64())})


@feature(
    "CHECK constraints",
    "`add_constraint`, `drop_constraint`",
    refused=("INSERT INTO {t} (id) VALUES (-1)", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
)
def check_constraint(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.add_constraint("positive", "id >= 0 AND (amount < 100 OR amount IS NULL)")
    table.add_constraint("gone", "id < 5")
    table.drop_constraint("gone")
    table.append(batch(3))
    return batch(0, 6)


@feature(
    "Column invariants",
    "`create`",
    refused=("INSERT INTO {t} VALUES (-1, 'x')", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
)
def invariants(path: Path) -> pa.Table:
    rule = {"delta.invariants": json.dumps({"expression": {"expression": "id > 0"}})}
    rows = pa.table({"id": [1, 2], "b": ["x", None]})
    DeltaTable.create(str(path), columns(("id", LONG, True, rule), ("b", TEXT, True, {}))).append(rows)
    return rows


@feature(
    "Generated columns",
    "`create`",
    spark=("INSERT INTO {t} (id, at) VALUES (5, TIMESTAMP'2026-03-04 05:06:07Z')", DELETE),
    refused=(
        "INSERT INTO {t} (id, at, day, twice) VALUES (6, NULL, NULL, 13)", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
    ),
)  # fmt: skip
def generated_columns(path: Path) -> pa.Table:
    day = {"delta.generationExpression": "CAST(at AS DATE)"}
    twice = {"delta.generationExpression": "id * 2"}
    schema = columns(
        ("id", LONG, True, {}),
        ("at", PrimitiveType("timestamp"), True, {}),
        ("day", PrimitiveType("date"), True, day),
        ("twice", LONG, True, twice),
    )
    table = DeltaTable.create(str(path), schema, partition_by=["day"])
    at = pa.array([dt.datetime(2026, 1, 2, 23, 59, 59, tzinfo=dt.timezone.utc), None], pa.timestamp("us", "UTC"))
    table.append(pa.table({"id": [1, 2], "at": at}))
    return pa.table({"id": [1, 2], "at": at, "day": [dt.date(2026, 1, 2), None], "twice": [2, 4]})


@feature(
    "Identity columns",
    "`create`, `append`, `merge`",
    spark=("INSERT INTO {t} (word) VALUES ('d')", DELETE),
    refused=("INSERT INTO {t} (id, word) VALUES (9, 'x')", "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"),
)
def identity_columns(path: Path) -> pa.Table:
    schema = StructType(
        (identity_column("id"), identity_column("down", step=-2, by_default=True), StructField("word", TEXT))
    )
    table = DeltaTable.create(str(path), schema)
    table.append(pa.table({"word": ["a", "b"]}))
    merger = table.merge(pa.table({"word": ["b", "c"], "down": [0, -9]}), "target.word = source.word")
    merger.when_not_matched_insert_all().execute()
    assert table.schema.field("down").metadata["delta.identity.highWaterMark"] == -9
    return pa.table({"id": [1, 2, 3], "down": [1, -1, -9], "word": ["a", "b", "c"]})


@feature("Default values", "`create`", spark=("INSERT INTO {t} (id) VALUES (4)", DELETE))
def defaults(path: Path) -> pa.Table:
    default = {"CURRENT_DEFAULT": "'none'"}
    table = DeltaTable.create(str(path), columns(("id", LONG, True, {}), ("word", TEXT, True, default)))
    table.append(pa.table({"id": [1, 2]}))
    table.append(pa.table({"id": [3], "word": pa.array([None], pa.string())}))
    return pa.table({"id": [1, 2, 3], "word": ["none", "none", None]})


@feature(
    "`char` and `varchar`",
    "`create`",
    refused=("INSERT INTO {t} VALUES (9, 'abcd', 'x')", "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"),
)
def char_and_varchar(path: Path) -> pa.Table:
    key = "__CHAR_VARCHAR_TYPE_STRING"
    schema = columns(
        ("id", LONG, True, {}), ("c", TEXT, True, {key: "char(3)"}), ("v", TEXT, True, {key: "varchar(3)"})
    )
    table = DeltaTable.create(str(path), schema)
    table.append(pa.table({"id": [1, 2], "c": ["a", None], "v": ["€😀x", "ab   "]}))
    return pa.table({"id": [1, 2], "c": ["a  ", None], "v": ["€😀x", "ab "]})
