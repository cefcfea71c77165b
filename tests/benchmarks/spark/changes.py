"""Merges, updates and deletes: both systems run the same statement, each time on a fresh copy of a table."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalog
import spark_ext
from tests.benchmarks.spark.tables import Shape

VECTORS = "delta.enableDeletionVectors"
# The SQL statements; each key is the second part of a measurement's key. ``{few}``: the number of source rows of a
# merge, 1 % of the table's rows.
_MERGE = (
    "merge into {{table}} as t using (select {source} as id from range({{few}})) as s on t.id = s.id "
    "when matched then update set value = -1 "
    "when not matched then insert (id, value, amount, text) values (s.id, -1, 0, 'new')"
)
STATEMENTS = {
    # Nine in ten source rows update a row, spread over all files; one in ten is inserted.
    "merge": ("merge of 1 %, spread", _MERGE.format(source="if(id % 10 = 0, {rows} + id, id * 100)")),
    "merge-near": ("merge of 1 %, in one file", _MERGE.format(source="if(id % 10 = 0, {rows} + id, id)")),
    "update": ("update of 0.1 %, spread", "update {table} set value = -1 where id % 1000 = 7"),
    "delete": ("delete of 0.1 %, spread", "delete from {table} where id % 1000 = 7"),
}


def statement_calls(
    spark: Any, what: str, table: Path, shape: Shape, by_vectors: bool
) -> tuple[str, int, dict[str, Callable[[], Any]]]:
    """The title of the benchmark, the number of rows that each call changes, and the calls for deltalog and for
    delta-spark."""
    title, text = STATEMENTS[what]
    few = shape.rows // 100
    numbers = itertools.count()

    def run(sql: Callable[[str], Any]) -> int:
        path = table.with_name(f".changed-{os.getpid()}-{next(numbers)}")
        _copy(table, path, by_vectors)
        query = text.format(table=f"delta.`{path}`", rows=shape.rows, few=few)
        count = int(sql(query).collect()[0][0])
        shutil.rmtree(path)
        return count

    calls = {
        "deltalog": lambda: run(lambda query: spark_ext.sql(spark, query)),
        "delta-spark": lambda: run(spark.sql),
    }
    way = "deletion vectors" if by_vectors else "files rewritten"
    return f"{title}: {way}", few if what.startswith("merge") else shape.rows // 1000, calls


def _copy(table: Path, to: Path, by_vectors: bool) -> None:
    """Copy a table: hard-link the data files, which are never modified, and copy the log; ``to`` must be on the same
    disk."""
    shutil.copytree(table, to, copy_function=os.link, ignore=shutil.ignore_patterns("_delta_log"))
    shutil.copytree(table / "_delta_log", to / "_delta_log")
    if not by_vectors:
        deltalog.DeltaTable.open(str(to)).set_properties({VECTORS: "false"})
