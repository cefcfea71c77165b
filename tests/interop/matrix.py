"""Writes the page docs/feature-matrix.md, which shows how delta-spark and deltalake handle the tables of
`feature_tables`.

    python -m tests.interop.matrix        # runs the tests and writes the page

A cell of the page is either `ok`, or `refused` with the expected error. Any other difference, such as different rows,
fails the run and is never written to the page. test_interop_matrix.py compares the page with the results of its own
run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from deltalog import DeltaTable
from deltalog.protocol.features import FEATURES as TABLE_FEATURES
from deltalog.protocol.features import Writes
from tests.interop.feature_tables import FEATURES, Feature
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.jars import DELTA_VERSION

PAGE = Path(__file__).resolve().parents[2] / "docs" / "feature-matrix.md"
WRITE = "DELTALOG_WRITE_FEATURE_MATRIX"
NONE = "–"
# Table features that deltalake refuses to read, and those that it refuses to write, under deltalake's names.
UNREAD = {"TypeWidening", "VacuumProtocolCheck", "VariantShredding"}
UNWRITTEN = UNREAD | {"AllowColumnDefaults", "ClusteredTable", "DomainMetadata", "IdentityColumns"}
UNWRITTEN |= {"InCommitTimestamp", "RowTracking"}
_NAMED = re.compile(r"Unsupported table features required: \[(\w+(?:, \w+)*)\]")
# Tables to which deltalake cannot append for a reason other than an unsupported feature, each with the error and the
# text for the page.
UNAPPENDED = {
    "Partitions of every type, dates and timestamps among them": (
        "Failed to parse value '-12345678.-90' as 'decimal(10,2)'",
        "fails: a negative decimal becomes `-12345678.-90`",
    ),
    "Variants": ("Unsupported CAST from Struct", "fails: it does not cast a nullable `value` to a required one"),
}


@dataclass(frozen=True)
class Row:
    """A row of the page's table, with its cells as strings."""

    feature: str
    written_by: str
    rows: str
    history: str
    changes: str
    row_ids: str
    carried_on: str
    deltalake: str
    deltalake_appends: str

    def to_markdown(self) -> str:
        return "| " + " | ".join(vars(self).values()) + " |"


HEADER = Row(
    "Written", "by", "rows, types", "history, `.crc`", "changes", "row ids", "then writes itself",
    "deltalake: rows", "deltalake: then appends",
)  # fmt: skip


def examine(feature: Feature, path: Path, delta: DeltaSpark) -> Row:
    """Create the table, read it with both engines, write to it with delta-spark, and read the result. Raises
    AssertionError if any two engines disagree."""
    expected = feature.build(path)
    table = DeltaTable.open(str(path))
    ours = table.snapshot().scan().to_arrow()
    assert ours.column_names == expected.column_names
    assert plain_rows(ours) == plain_rows(expected), "deltalog reads what was written"
    delta.forget()
    rows = _rows(table, path, delta)
    by_deltalake = _read_by_deltalake(table, path)
    appended = _appended_by_deltalake(feature, Path(shutil.copytree(path, path.with_name("copy"))))
    row_ids = _row_ids(feature, table, path, delta)
    log = _log(feature, table, path, delta)
    carried_on = _carried_on(feature, table, path, delta)
    # The log now contains commits by deltalog, by delta-spark, and again by deltalog.
    assert _rows(table, path, delta) == rows and _row_ids(feature, table, path, delta) == row_ids
    assert _history(table, path, delta)
    changes = _changes(feature, table, path, delta)
    return Row(feature.name, feature.by, rows, log, changes, row_ids, carried_on, by_deltalake, appended)


# ------------------------------------------------------------------------------------------------- delta-spark


def _rows(table: DeltaTable, path: Path, delta: DeltaSpark) -> str:
    snapshot = table.snapshot()
    frame = delta.spark.read.format("delta").load(str(path))
    assert [(f.name, _simple(f.dataType.json())) for f in frame.schema] == [
        (f["name"], _simple(f["type"])) for f in _fields(snapshot.schema.to_json())
    ]
    assert plain_rows(frame.toArrow()) == plain_rows(snapshot.scan().to_arrow())
    return "ok"


def _log(feature: Feature, table: DeltaTable, path: Path, delta: DeltaSpark) -> str:
    """Compares the latest version with its `.crc`. Times and operations are compared later, after delta-spark has
    committed."""
    assert delta.latest(path) == table.snapshot().version
    defect = delta.checksum_defect(path)
    assert defect == (None if feature.checksum else "there is no readable .crc")
    return "ok" if feature.checksum else "ok, no `.crc`"


def _history(table: DeltaTable, path: Path, delta: DeltaSpark) -> bool:
    return [(e.version, e.timestamp_ms, e.operation) for e in table.history()] == delta.history(path)


def _fields(schema: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema)["fields"]
    return fields


def _simple(data_type: Any) -> Any:
    """A type without the metadata and nullability of its fields, since Spark reports every column of a file source as
    nullable."""
    if isinstance(data_type, str):
        data_type = json.loads(data_type) if data_type[:1] in '{"' else data_type
    if isinstance(data_type, dict):
        return {k: _simple(v) for k, v in data_type.items() if k not in ("metadata", "nullable")}
    return [_simple(each) for each in data_type] if isinstance(data_type, list) else data_type


def _changes(feature: Feature, table: DeltaTable, path: Path, delta: DeltaSpark) -> str:
    if feature.changes_from is None:
        return NONE
    ours, theirs = table.changes(feature.changes_from).to_arrow(), delta.changes(path, feature.changes_from)
    assert ours.column_names == theirs.column_names and ours.num_rows
    assert plain_rows(ours) == plain_rows(theirs)
    return "ok"


def _row_ids(feature: Feature, table: DeltaTable, path: Path, delta: DeltaSpark) -> str:
    if not feature.row_ids:
        return NONE
    names = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    chosen = ", ".join(f"{name} AS c{number}" for number, name in enumerate(names))
    theirs = delta.sql(f"SELECT {chosen} FROM delta.`{path}`").toArrow()
    ours = table.snapshot().scan(names).to_arrow()
    assert plain_rows(ours) == plain_rows(theirs)
    assert len(set(ours["_metadata.row_id"].to_pylist())) == ours.num_rows, "row ids are unique"
    return "ok"


def _carried_on(feature: Feature, table: DeltaTable, path: Path, delta: DeltaSpark) -> str:
    """delta-spark writes, and refuses what the constraints forbid; then deltalog appends once more."""
    target = f"delta.`{path}`"
    version = table.version
    for statement in feature.spark:
        delta.sql(statement.format(t=target))
    assert table.snapshot().version == version + len(feature.spark), "each statement is a commit"
    done = ", ".join(f"`{statement.split()[0]}`" for statement in feature.spark) + " ok"
    if feature.refused:
        statement, error = feature.refused
        with pytest.raises((PySparkException, Py4JJavaError), match=error):
            delta.sql(statement.format(t=target))
        done += f"; forbidden `{statement.split()[0]}` refused: {error}"
    generated = [c.name for c in table.schema.fields if c.metadata.get("delta.identity.allowExplicitInsert") is False]
    table.append(table.snapshot().scan().to_arrow().slice(0, 1).drop_columns(generated))
    return done


# --------------------------------------------------------------------------------------------------- deltalake


def _read_by_deltalake(table: DeltaTable, path: Path) -> str:
    """The rows read by deltalake's query engine, which supports more features than its reader for pyarrow."""
    ours = table.snapshot().scan().to_arrow()
    columns = ", ".join(f'"{name}"' for name in ours.column_names)
    try:
        theirs = deltalake.DeltaTable(str(path))
        found = deltalake.QueryBuilder().register("t", theirs).execute(f"SELECT {columns} FROM t").read_all()
    except DeltaError as error:
        return _refusal(error, UNREAD)
    assert theirs.version() == table.version
    assert plain_rows(pa.table(found)) == plain_rows(ours)
    return "ok"


def _appended_by_deltalake(feature: Feature, copy: Path) -> str:
    """deltalake appends a row to a copy of the table, and deltalog reads the copy."""
    table = DeltaTable.open(str(copy))
    ours = table.snapshot().scan().to_arrow()
    reason, text = UNAPPENDED.get(feature.name, (None, ""))
    try:
        deltalake.write_deltalake(str(copy), ours.slice(0, 1), mode="append")
    except DeltaError as error:
        return text if reason and reason in str(error) else _refusal(error, UNWRITTEN)
    assert reason is None, "deltalake can do it now"
    after = table.snapshot()
    assert plain_rows(after.scan().to_arrow()) == plain_rows(pa.concat_tables([ours, ours.slice(0, 1)]))
    return "ok"


def _refusal(error: DeltaError, known: Collection[str]) -> str:
    """The features that deltalake's error names. Fails unless all these features are in ``known``, the features that
    deltalake lacks."""
    named = _NAMED.search(str(error))
    features = sorted(named[1].split(", ")) if named else []
    assert features and set(features) <= set(known), f"deltalake fails: {error}"
    return f"refused: {', '.join(features)}"


# --------------------------------------------------------------------------------------------------- the page


def render(rows: Mapping[str, Row]) -> str:
    """The page, with the rows in the order of FEATURES."""
    columns = len(vars(HEADER))
    lines = [HEADER.to_markdown(), "|" + "---|" * columns, *(rows[name].to_markdown() for name in FEATURES)]
    return _INTRODUCTION + "\n".join(lines) + "\n" + _not_written()


_INTRODUCTION = f"""\
# What deltalog writes, and who reads it

Each row is a table that a test creates with deltalog's public API, and that delta-spark {DELTA_VERSION} and
deltalake {deltalake.__version__} then read and write. The test fails if its results differ from this page;
`python -m tests.interop.matrix` writes the page. A difference between engines fails the test too, and is never a cell.

- *rows, types*: delta-spark reads the same columns, types and rows as deltalog, and these are what was written.
- *history, `.crc`*: the same versions, times and operations; the version checksum, if
  [there is one](log-files.md#version-checksums), agrees with delta-spark's own replay.
- *changes*: the same change data feed, from its first version on. *row ids*: the same row ids and row commit versions.
- *then writes itself*: delta-spark runs these statements and deltalog appends again; then rows, history, changes and
  row ids are compared. If the table forbids a statement, delta-spark refuses it with the error shown.
- *deltalake: rows*: deltalake's query engine returns the same version and rows, or refuses and names these features.
  *then appends*: deltalake appends a row to a copy of the table, and deltalog reads the result.

For tables that are read through a checkpoint, the commits before it were deleted.

"""


def _not_written() -> str:
    refused = [f.name for f in TABLE_FEATURES if f.writes is Writes.NO]
    return f"""
deltalog does not write tables with the features {", ".join(f"`{name}`" for name in refused)}. The error names them.
"""


def committed_rows() -> dict[str, str]:
    """The rows of the page in the repository, keyed by feature."""
    if not PAGE.exists():
        return {}
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines[1:]}


def main() -> int:
    os.environ[WRITE] = "1"
    return int(pytest.main(["-q", "--long", str(Path(__file__).with_name("test_interop_matrix.py"))]))


if __name__ == "__main__":
    sys.exit(main())
