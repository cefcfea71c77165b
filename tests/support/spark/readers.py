"""Other readers, which differ in where they get partition values and file lists from: polars, DuckDB, pandas.

DuckDB's Delta extension is not used, because DuckDB would download it on first use. Instead, DuckDB reads the data that
deltalake or deltalog passes to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import deltalake
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
from deltalake.exceptions import DeltaError, DeltaProtocolError

from deltalog import DeltaTable
from tests.support.spark.rows import plain_rows


def _polars(path: str) -> pa.Table:
    return pl.scan_delta(path).collect().to_arrow()


def _polars_of_deltalog(path: str) -> pa.Table:
    return pl.DataFrame(DeltaTable.open(path).snapshot().scan()).to_arrow()


def _duckdb_of_deltalake(path: str) -> pa.Table:
    return duckdb.from_arrow(deltalake.DeltaTable(path).to_pyarrow_dataset()).to_arrow_table()


def _duckdb_of_deltalog(path: str) -> pa.Table:
    return duckdb.from_arrow(DeltaTable.open(path).snapshot().scan()).to_arrow_table()


def _pandas_of_deltalake(path: str) -> pa.Table:
    frame = deltalake.DeltaTable(path).to_pyarrow_table().to_pandas(types_mapper=pd.ArrowDtype)
    return pa.Table.from_pandas(frame)


def _pandas_of_deltalog(path: str) -> pa.Table:
    rows = DeltaTable.open(path).snapshot().scan().to_arrow()
    return pa.Table.from_pandas(rows.to_pandas(types_mapper=pd.ArrowDtype))


READERS: Mapping[str, Callable[[str], pa.Table]] = {
    "polars": _polars,
    "polars, from deltalog": _polars_of_deltalog,
    "duckdb, from deltalake": _duckdb_of_deltalake,
    "duckdb, from deltalog": _duckdb_of_deltalog,
    "pandas, from deltalake": _pandas_of_deltalake,
    "pandas, from deltalog": _pandas_of_deltalog,
}
# For each reader, the table features that its error names when it refuses to read.
_DATASET = {"columnMapping", "deletionVectors", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
_REFUSED = {
    "polars": {"columnMapping", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"},
    "duckdb, from deltalake": _DATASET,
    "pandas, from deltalake": _DATASET,
}
_NAMED = re.compile(r"(?:reader features \[|reader features: \{)([^\]}]*)[\]}]")
# deltalake cannot parse a decimal in the text form that it writes.
_BAD_DECIMAL = re.compile(r"'-\d+\.-\d+' is not a valid decimal128 number")


def answer(reader: str, path: str) -> str:
    """``ok`` if the reader returns the same rows as deltalog; ``refused`` if it names features that it does not
    support; otherwise the known difference between the rows. Raises AssertionError for anything else."""
    table = DeltaTable.open(path)
    ours = table.snapshot().scan().to_arrow()
    known = _known_difference(reader, table)
    try:
        theirs = READERS[reader](path).select(ours.column_names)
    except (DeltaProtocolError, pl.exceptions.PolarsError, DeltaError, pa.ArrowInvalid) as error:
        return _refusal(reader, error)
    if plain_rows(theirs) == plain_rows(ours):
        assert known is None, f"{reader} can do it now: {known}"
        return "ok"
    assert known is not None, f"{reader} reads {path} otherwise than deltalog"
    return known


def _refusal(reader: str, error: Exception) -> str:
    if isinstance(error, pa.ArrowInvalid) and _BAD_DECIMAL.search(str(error)):
        assert "deltalake" in reader
        return "refused: a negative decimal as a partition value"
    named = _NAMED.search(str(error))
    features = set(re.findall(r"\w+", named[1])) if named else set()
    assert features and features <= _REFUSED.get(reader, set()), f"{reader} fails: {error}"
    return "refused: " + ", ".join(sorted(features))


def _known_difference(reader: str, table: DeltaTable) -> str | None:
    """polars takes partition values from Hive directories, whatever the log says, and looks up deletion vectors by
    paths that it has not decoded."""
    if reader != "polars":
        return None
    names = table.snapshot().partition_columns
    files = table.snapshot().files().select(["path", "partition_values", "deletion_vector"]).to_pylist()
    for file in files:
        values = dict(file["partition_values"])
        in_hive = all(f"{name}=" in file["path"] for name in names)
        if not in_hive and any(values.get(name) for name in names):
            return "differs: partition values of files outside of Hive directories are null"
        if file["deletion_vector"] is not None and "%" in file["path"]:
            return "differs: rows are not deleted in files with encoded paths"
    return None
