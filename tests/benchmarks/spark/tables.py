"""Real tables for the reading benchmarks: every file in the log exists with its rows, so answers can be checked.

deltalog generates a table once, and later runs reuse it. delta-spark reads the same table, and plain Spark reads the
directory of its files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import deltalog

GENERATOR = 1  # a part of the directory's name; increase this number when the generated tables change
SCHEMA = deltalog.schema.StructType.from_arrow(
    pa.schema([("id", pa.int64()), ("value", pa.int64()), ("amount", pa.float64()), ("text", pa.string())])
)
_THREADS = 4


@dataclass(frozen=True)
class Shape:
    """The shape of a table: the number of data files, the number of rows in each file, and the number of commits that
    add the files."""

    files: int
    rows_per_file: int
    commits: int = 1
    deletes_every: int = 0  # deletion vectors delete every n-th id

    @property
    def rows(self) -> int:
        return self.files * self.rows_per_file

    @property
    def name(self) -> str:
        return f"{self.files}x{self.rows_per_file}-{self.commits}-{self.deletes_every}-g{GENERATOR}"


def shapes(quick: bool) -> Mapping[str, Shape]:
    if quick:
        return {
            "files2k": Shape(40, 50),
            "files100k": Shape(80, 5),
            "commits2k": Shape(30, 5, commits=30),
            "commits10k": Shape(60, 5, commits=60),
            "vectors": Shape(2, 1000, deletes_every=25),
            "changes": Shape(4, 5000),
        }
    return {
        "files2k": Shape(2_000, 5_000),
        "files100k": Shape(100_000, 100),
        "commits2k": Shape(2_000, 10, commits=2_000),
        "commits10k": Shape(10_000, 10, commits=10_000),
        "vectors": Shape(2, 1_250_000, deletes_every=25),
        "changes": Shape(40, 250_000),
    }


def obtain(root: Path, shape: Shape) -> Path:
    """The table's directory; generates the table if it does not exist."""
    path = root / shape.name
    if not path.is_dir():
        scratch = path.with_name(f".{path.name}")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        _make(str(scratch), shape)
        os.rename(scratch, path)
    return path


def files_of_version(table: Path, version: int) -> Path:
    """A directory that contains only links to the data files of one version."""
    path = table.with_name(f"{table.name}-files-of-{version}")
    if not path.is_dir():
        scratch = path.with_name(f".{path.name}")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        for name in deltalog.DeltaTable.open(str(table)).snapshot(version=version).files()["path"].to_pylist():
            os.link(table / name, scratch / name)
        os.rename(scratch, path)
    return path


def _make(path: str, shape: Shape) -> None:
    properties = {"delta.enableInCommitTimestamps": "true", "delta.enableDeletionVectors": "true"}
    table = deltalog.DeltaTable.create(path, SCHEMA, properties=properties)
    if shape.commits > 1:
        for number in range(shape.files):
            table.append(_rows(number, shape.rows_per_file))
        return

    def write(number: int) -> tuple[str, dict[str, str | None]]:
        name = f"part-{number:06d}.snappy.parquet"
        pq.write_table(_rows(number, shape.rows_per_file), f"{path}/{name}")
        return name, {}

    with ThreadPoolExecutor(_THREADS) as pool:
        written = list(pool.map(write, range(shape.files)))
    transaction = table.transaction()
    transaction.add_parquet_files(written)
    transaction.commit("WRITE")
    if shape.deletes_every:
        table.delete(f"value = 0 and id % {shape.deletes_every} = 0")
    table.checkpoint()


def _rows(number: int, count: int) -> pa.Table:
    """The rows of one file, whose ids follow the ids of the previous file."""
    ids = np.arange(number * count, (number + 1) * count, dtype=np.int64)
    texts = pa.array([f"a text that is different in each row: {each:012d}" for each in ids])
    return pa.table({"id": ids, "value": ids % 5, "amount": ids / 7, "text": texts})
