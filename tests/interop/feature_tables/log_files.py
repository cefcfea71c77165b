"""Checkpoints of every kind, log compaction, and log clean-up."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog import Environment
from tests.interop.feature_tables.feature import (
    DAY_MS,
    ICT,
    INSERT,
    V2,
    VECTORS,
    as_partitioned,
    created,
    feature,
    without,
)
from tests.support.spark.log_files import commits, drop_below
from tests.support.spark.shapes import batch


def checkpointed(path: Path, properties: dict[str, str], form: dict[str, Any], cut: bool = True) -> pa.Table:
    """A checkpoint with every kind of action, and one commit after it; the commits before it are deleted."""
    table = created(path, properties, VECTORS, partition_by=["place"])
    for start in (0, 14, 28):
        table.append(batch(start, 14), txn=("job", start))
    table.set_domain_metadata("com.example", "kept")
    table.delete("id IN (7, 8) OR id = 40")
    table.checkpoint(**form)
    if cut:
        drop_below(path, table.version)
    table.append(batch(42))
    return as_partitioned(without(batch(0, 45), 7, 8, 40))


def checkpoint_files(path: Path) -> list[Path]:
    return [file for file in (path / "_delta_log").iterdir() if ".checkpoint." in file.name]


def statistics_in(path: Path) -> set[str]:
    (file,) = checkpoint_files(path)
    rows = pq.read_table(file)["add"].combine_chunks().drop_null()
    return {name for name in ("stats", "stats_parsed") if _has(rows, name)}


def _has(rows: pa.StructArray, name: str) -> bool:
    return rows.type.get_field_index(name) >= 0 and rows.field(name).null_count < len(rows)


@feature("Classic checkpoint, statistics as text", "`checkpoint`, `delta.checkpoint.writeStatsAsStruct` = false")
def checkpoint_json(path: Path) -> pa.Table:
    rows = checkpointed(path, {"delta.checkpoint.writeStatsAsStruct": "false"}, {})
    assert statistics_in(path) == {"stats"}
    return rows


@feature("Classic checkpoint, statistics as structs", "`checkpoint`, `delta.checkpoint.writeStatsAsJson` = false")
def checkpoint_struct(path: Path) -> pa.Table:
    rows = checkpointed(path, {"delta.checkpoint.writeStatsAsJson": "false"}, {})
    assert statistics_in(path) == {"stats_parsed"}
    return rows


@feature("Classic checkpoint, statistics as both", "`checkpoint`")
def checkpoint_both(path: Path) -> pa.Table:
    rows = checkpointed(path, {}, {})
    assert statistics_in(path) == {"stats", "stats_parsed"}
    return rows


@feature("Checkpoints made by commits", "`delta.checkpointInterval`")
def checkpoint_by_commit(path: Path) -> pa.Table:
    table = created(path, {"delta.checkpointInterval": "2"})
    for start in (0, 3, 6):
        table.append(batch(start))
    assert [file.name[:20] for file in checkpoint_files(path)] == [f"{2:020d}"]
    drop_below(path, 2)
    return batch(0, 9)


def checkpoint_v2(path: Path, form: str, sidecars: bool) -> pa.Table:
    rows = checkpointed(path, {**V2, **ICT}, {"top_level": form, **({"sidecar_rows": 5} if sidecars else {})})
    (file,) = checkpoint_files(path)
    assert file.name.endswith(f".{form}") and (path / "_delta_log" / "_sidecars").exists() == sidecars
    return rows


@feature("V2 checkpoint, Parquet", "`delta.checkpointPolicy` = v2, `checkpoint`")
def checkpoint_v2_parquet(path: Path) -> pa.Table:
    return checkpoint_v2(path, "parquet", False)


@feature("V2 checkpoint, Parquet with sidecars", "`checkpoint(sidecar_rows=…)`")
def checkpoint_v2_parquet_sidecars(path: Path) -> pa.Table:
    return checkpoint_v2(path, "parquet", True)


@feature("V2 checkpoint, JSON", '`checkpoint(top_level="json")`')
def checkpoint_v2_json(path: Path) -> pa.Table:
    return checkpoint_v2(path, "json", False)


@feature("V2 checkpoint, JSON with sidecars", '`checkpoint(top_level="json", sidecar_rows=…)`')
def checkpoint_v2_json_sidecars(path: Path) -> pa.Table:
    return checkpoint_v2(path, "json", True)


@feature("Log compaction", "`compact_log`", spark=(INSERT, "DELETE FROM {t} WHERE id = 20"))
def compacted_log(path: Path) -> pa.Table:
    table = created(path, ICT)
    table.append(batch(0, 6), txn=("job", 1))
    table.overwrite(batch(10, 6))
    table.delete("id = 12")
    assert table.compact_log() == (0, 3)
    table.append(batch(20))
    return pa.concat_tables([without(batch(10, 6), 12), batch(20)])


def cleaned(path: Path, *properties: dict[str, str]) -> pa.Table:
    """Commits and checkpoints from two months; a clean-up keeps only those of the last thirty days."""
    now_ms = time.time_ns() // 1_000_000
    clock_ms = now_ms - 60 * DAY_MS
    keep = {"delta.deletedFileRetentionDuration": "interval 10000 days"}
    table = created(path, keep, *properties, environment=Environment(clock_ms=lambda: clock_ms))
    for start in range(0, 18, 3):
        clock_ms += 9 * DAY_MS
        table.append(batch(start))
        if start in (3, 9):
            table.checkpoint(sidecar_rows=1)
    for version, file in commits(path).items():
        at_s = (now_ms - 60 * DAY_MS + version * 9 * DAY_MS) / 1000
        os.utime(file, (at_s, at_s))
    clock_ms = now_ms
    assert table.cleanup_log().unreachable == (0, 1) and min(commits(path)) == 2
    return batch(0, 18)


@feature("Log cleaned up, by in-commit time", "`cleanup_log`")
def cleaned_by_ict(path: Path) -> pa.Table:
    return cleaned(path, ICT, V2)


@feature("Log cleaned up, by file time", "`cleanup_log`")
def cleaned_by_file_time(path: Path) -> pa.Table:
    return cleaned(path)
