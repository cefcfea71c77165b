"""Tests which names are recognised as leftover temporary files, and that writers use such names."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import deltalog
from deltalog.engine import LeftoverKind
from deltalog.protocol.leftovers import job_directory_name, leftover_kind

ID = "0b7d1c9e-8d4a-4f0e-9f55-0123456789ab"
JOB = job_directory_name(ID)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{JOB}/_temporary/0/_temporary/attempt_2026_0001_m_000000_0/p=1/part-00000-x.parquet", LeftoverKind.JOB_FILE),
        (f"{JOB}/p=1/part-00000-{ID}.c000.snappy.parquet", LeftoverKind.JOB_FILE),
        (f"part-00000-{ID}-c000.snappy.parquet", LeftoverKind.DATA_FILE),
        (f"p=1/_q=a b/part-00003-tid-1-{ID}-9-1.c001.zstd.parquet", LeftoverKind.DATA_FILE),
        (f"p=1/.part-00003-{ID}.c000.snappy.parquet.crc", LeftoverKind.DATA_FILE),
        (f"ab/part-{ID}.snappy.parquet", LeftoverKind.DATA_FILE),
        (f"_change_data/cdc-{ID}.snappy.parquet", LeftoverKind.CHANGE_FILE),
        (f"_change_data/p=1/cdc-00000-{ID}.c000.snappy.parquet", LeftoverKind.CHANGE_FILE),
        (f"deletion_vector_{ID}.bin", LeftoverKind.DELETION_VECTOR),
        (f"a8/deletion_vector_{ID}.bin", LeftoverKind.DELETION_VECTOR),
        (f"_blobs/{ID}", LeftoverKind.BLOB),
        (f"p=1/.{ID}.tmp", LeftoverKind.TEMPORARY_FILE),
        (f"_delta_log/.{ID}.tmp", LeftoverKind.TEMPORARY_FILE),
    ],
)
def test_names_that_writers_give(path: str, kind: LeftoverKind) -> None:
    assert leftover_kind(path) is kind


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "part-mine.parquet",
        "report.parquet",
        f"{ID}.parquet",
        f"{ID}/report.parquet",
        f"_delta_log/part-{ID}.parquet",
        "_delta_log/00000000000000000000.json",
        f".hidden/part-{ID}.parquet",
        f"_spark_metadata/part-{ID}.parquet",
        JOB,
        f"_delta_index/{ID}",
        f"p=1/{JOB}/x.parquet",
        f"_delta_index-deltalog-job-{ID}0/x.parquet",
    ],
)
def test_names_of_other_files(path: str) -> None:
    assert leftover_kind(path) is None


def test_files_that_deltalog_writes_have_such_names(tmp_path: Path) -> None:
    data = pa.table({"id": range(9_000), "p": ["a b", None, "é"] * 3_000})
    options = {"delta.enableChangeDataFeed": "true"}
    deltalog.DeltaTable.create(str(tmp_path / "t"), data.schema, partition_by=["p"], properties=options, data=data)
    deltalog.DeltaTable.open(str(tmp_path / "t")).delete("id % 2 = 1")
    options = {"delta.enableDeletionVectors": "true"}
    deltalog.DeltaTable.create(str(tmp_path / "v"), data.schema, properties=options, data=data)
    deltalog.DeltaTable.open(str(tmp_path / "v")).delete("id % 7 = 1")
    deltalog.DeltaTable.create_for_blobs(str(tmp_path / "b"))
    deltalog.Dataset(str(tmp_path / "b")).write(b"x")
    found = {
        leftover_kind(path.relative_to(tmp_path / root).as_posix())
        for root in ("t", "v", "b")
        for path in (tmp_path / root).rglob("*")
        if path.is_file() and "_delta_log" not in path.parts
    }
    assert found == {*LeftoverKind} - {LeftoverKind.JOB_FILE, LeftoverKind.TEMPORARY_FILE}
    assert leftover_kind(f"{job_directory_name(str(uuid.uuid4()))}/_SUCCESS") is LeftoverKind.JOB_FILE
