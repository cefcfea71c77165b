"""Change data feeds for every way of changing rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.interop.feature_tables.feature import (
    CHANGES,
    DELETE,
    INSERT,
    UPDATE,
    VECTORS,
    as_partitioned,
    created,
    feature,
    logged,
    without,
)
from tests.support.spark.shapes import batch


@feature("Change data feed: appends", "`append`", changes_from=1, spark=(INSERT, UPDATE, DELETE))
def changes_of_appends(path: Path) -> pa.Table:
    table = created(path)
    table.set_properties(CHANGES)
    table.append(batch(0))
    table.append(batch(3))
    return batch(0, 6)


@feature("Change data feed: rows moved to new files", "`delete`", changes_from=0, spark=(INSERT, UPDATE, DELETE))
def changes_of_rewrites(path: Path) -> pa.Table:
    table = created(path, CHANGES, partition_by=["place"])
    table.append(batch(0, 14))
    table.delete("id IN (4, 5)")
    table.delete("id >= 10")
    assert logged(path, "cdc")
    return as_partitioned(without(batch(0, 10), 4, 5))


@feature("Change data feed: deletion vectors", "`delete`", changes_from=0, spark=(INSERT, UPDATE, DELETE))
def changes_of_vectors(path: Path) -> pa.Table:
    table = created(path, CHANGES, VECTORS)
    table.append(batch(0, 14))
    table.delete("id IN (4, 5)")
    table.delete("id >= 10")
    assert not logged(path, "cdc") and all("deletionVector" in add for add in logged(path, "add")[1:])
    return without(batch(0, 10), 4, 5)


@feature("Change data feed: rows replaced by condition", "`overwrite(where=…)`", changes_from=0)
def changes_of_replace_where(path: Path) -> pa.Table:
    table = created(path, CHANGES, data=batch(0, 9))
    table.overwrite(batch(0, 2), where="id < 4")
    assert logged(path, "cdc")
    return pa.concat_tables([batch(4, 5), batch(0, 2)])


@feature("Change data feed: partitions replaced", '`overwrite(partitions="dynamic")`, `overwrite`', changes_from=0)
def changes_of_partitions(path: Path) -> pa.Table:
    table = created(path, CHANGES, partition_by=["place"], data=batch(0, 7))
    table.overwrite(batch(70, 1), partitions="dynamic")
    table.overwrite(batch(0, 5))
    return as_partitioned(batch(0, 5))
