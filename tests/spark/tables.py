"""What the Spark tests look at and make by hand: log files, data files, tables in odd layouts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

import deltalog

LITTER = (".crc", "_SUCCESS", "_temporary", "_metadata", "_common_metadata")


def actions(table: str, version: int) -> list[dict[str, Any]]:
    """The lines of a commit file."""
    text = (Path(table) / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def action(table: str, version: int, kind: str) -> list[dict[str, Any]]:
    return [each[kind] for each in actions(table, version) if kind in each]


def versions(table: str) -> list[int]:
    log = Path(table) / "_delta_log"
    return sorted(int(p.stem) for p in log.glob("*.json")) if log.is_dir() else []


def data_files(table: str) -> list[str]:
    """Every file below the table that is not in the log directory, as relative paths."""
    root = Path(table)
    found = [p.relative_to(root) for p in root.rglob("*") if p.is_file() and "_delta_log" not in p.parts]
    return sorted(str(p) for p in found)


def litter(table: str) -> list[str]:
    """By-products of Spark jobs outside of the log."""
    found = []
    for parent, directories, files in os.walk(table):
        if "_delta_log" in parent:
            continue
        found += [os.path.join(parent, n) for n in (*directories, *files) if n.endswith(LITTER)]
    return found


def rows(df: Any, *order: str) -> list[tuple[Any, ...]]:
    """The rows as tuples, sorted by the columns given, else by all."""
    return [tuple(row) for row in df.orderBy(*(order or df.columns)).collect()]


def make(
    table: str,
    schema: deltalog.StructType,
    files: Sequence[tuple[str, Mapping[str, str | None], pa.Table]],
    partition_by: Sequence[str] = (),
    named_in_log: Mapping[str, str] | None = None,
) -> None:
    """A table whose files have exactly these relative paths. ``named_in_log`` overrides add.path of some."""
    named = named_in_log or {}
    transaction = deltalog.DeltaTable.create_transaction(table, schema, partition_by=partition_by)
    for path, values, data in files:
        target = Path(table) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, target)
        add = deltalog.AddFile(
            path=named.get(path, quote(path, safe="/=")),
            partition_values=dict(values),
            size=target.stat().st_size,
            modification_time=1_700_000_000_000,
            data_change=True,
        )
        transaction.add(add)
    transaction.commit("WRITE")


def history(table: str, columns: pa.Schema, tables: Sequence[pa.Table | None], times_ms: Sequence[int]) -> None:
    """A table with in-commit timestamps: the first entry creates it, each later one is appended at its time."""

    def at(ms: int) -> deltalog.Environment:
        return deltalog.Environment(clock_ms=lambda: ms)

    properties = {"delta.enableInCommitTimestamps": "true"}
    created = deltalog.DeltaTable.create(
        table, columns, properties=properties, data=tables[0], environment=at(times_ms[0])
    )
    assert created.version == 0
    for data, ms in zip(tables[1:], times_ms[1:], strict=True):
        deltalog.DeltaTable.open(table, environment=at(ms)).append(data)


def schema(**columns: str) -> deltalog.StructType:
    """``schema(id="long", p="string")``."""
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return deltalog.StructType.from_json(json.dumps({"type": "struct", "fields": fields}))


def append_raw(table: str, version: int, *lines: Mapping[str, Any]) -> None:
    """Put a commit file of these actions, whatever they say."""
    path = Path(table) / "_delta_log" / f"{version:020d}.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
