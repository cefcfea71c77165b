"""polars, DuckDB and pandas read the tables that deltalog writes, except for known unsupported features."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.feature_tables import FEATURES
from tests.support.spark.readers import READERS, answer

_OUTSIDE = "differs: partition values of files outside of Hive directories are null"
_NOT_DELETED = "differs: rows are not deleted in files with encoded paths"
# Tables that polars misreads; docs/reading.md describes both kinds of error.
_BY_POLARS = {
    "Files below random prefixes": _OUTSIDE,
    "Rows in files of others": _OUTSIDE,
    "Deletion vectors": _NOT_DELETED,
}


@pytest.mark.parametrize("name", FEATURES)
def test_a_table_of_deltalog_is_read_by_others(tmp_path: Path, name: str) -> None:
    FEATURES[name].build(tmp_path / "table")
    found = {reader: answer(reader, str(tmp_path / "table")) for reader in READERS}
    differences = {reader: text for reader, text in found.items() if text.startswith("differs")}
    assert differences == ({"polars": _BY_POLARS[name]} if name in _BY_POLARS else {})
    assert all(found[reader] == "ok" for reader in READERS if reader.endswith("from deltalog"))
