"""Row ids are assigned and preserved."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.interop.feature_tables.feature import DELETE, INSERT, TRACKED, UPDATE, VECTORS, created, feature, without
from tests.support.spark.shapes import batch


@feature("Row tracking: appends", "`delta.enableRowTracking`, `append`", row_ids=True, spark=(INSERT, UPDATE, DELETE))
def tracked_appends(path: Path) -> pa.Table:
    table = created(path, TRACKED, data=batch(0))
    table.append(batch(3))
    return batch(0, 6)


@feature("Row tracking: deletion vectors", "`delete`", row_ids=True, spark=(INSERT, UPDATE, DELETE))
def tracked_vectors(path: Path) -> pa.Table:
    table = created(path, TRACKED, VECTORS, data=batch(0, 9))
    table.delete("id IN (3, 4)")
    table.append(batch(9))
    return without(batch(0, 12), 3, 4)


@feature("Row tracking: moved rows keep their ids", "`delete`", row_ids=True, spark=(INSERT, UPDATE, DELETE))
def tracked_rewrites(path: Path) -> pa.Table:
    table = created(path, TRACKED, data=batch(0, 9))
    table.append(batch(9))
    table.delete("id IN (3, 4)")
    table.delete("id = 6")
    ids = table.snapshot().scan(["id", "_metadata.row_id"]).to_arrow()
    assert ids["id"] == ids["_metadata.row_id"] and ids.num_rows == 9, "ids were given out in the order of the rows"
    return without(batch(0, 12), 3, 4, 6)


@feature("Row tracking: turned on later", "`set_properties`", row_ids=True, spark=(INSERT, UPDATE, DELETE))
def tracked_later(path: Path) -> pa.Table:
    table = created(path, VECTORS, data=batch(0, 9))
    table.append(batch(9))
    table.delete("id IN (3, 4)")
    table.set_properties(TRACKED)
    table.append(batch(12))
    return without(batch(0, 15), 3, 4)
