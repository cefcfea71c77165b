"""Tables with deleted, updated, merged or replaced rows, and with vacuumed or optimized files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deltalog import col
from tests.interop.feature_tables.feature import (
    CHANGES,
    DELETE,
    INSERT,
    TRACKED,
    UPDATE,
    VECTORS,
    as_partitioned,
    created,
    feature,
    logged,
    without,
)
from tests.support.spark.shapes import PLACES, SCHEMA, batch


@feature("Rows deleted: whole files, rewritten files", "`delete`")
def deleted(path: Path) -> pa.Table:
    table = created(path, partition_by=["place"])
    table.append(batch(0, 14))
    table.delete(col("place") == PLACES[3])
    table.delete("id IN (0, 2)")
    return as_partitioned(without(batch(0, 14), 3, 10, 0, 2))


@feature("Rows updated: rewritten files, deletion vectors", "`update`", changes_from=0, spark=(INSERT, UPDATE, DELETE))
def updated(path: Path) -> pa.Table:
    table = created(path, CHANGES, data=batch(0, 7))
    table.update({"amount": "id * 2E0", "name": "'new'"}, "id < 3")
    assert len(logged(path, "cdc")) == 1
    table.set_properties(VECTORS)
    table.update(new_values={"amount": None}, where="id = 5")
    assert "deletionVector" in logged(path, "add")[-2] or "deletionVector" in logged(path, "add")[-1]
    rows = batch(0, 7).to_pylist()
    for row in rows[:3]:
        row.update(amount=row["id"] * 2.0, name="new")
    rows[5]["amount"] = None
    return pa.Table.from_pylist(rows, SCHEMA)


@feature(
    "Rows merged: updated, deleted, inserted", "`merge`", changes_from=0, row_ids=True, spark=(INSERT, UPDATE, DELETE)
)
def merged(path: Path) -> pa.Table:
    table = created(path, CHANGES, VECTORS, TRACKED, data=batch(0, 7))
    source = batch(5, 4).set_column(2, "amount", pa.array([0.25] * 4))
    (
        table.merge(source, "target.id = source.id")
        .when_matched_delete("target.id = 5")
        .when_matched_update({"amount": "source.amount"})
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete("target.id = 0")
        .execute()
    )
    last = batch(6, 1).set_column(2, "amount", pa.array([0.25]))
    return pa.concat_tables([without(batch(0, 5), 0), last, source.slice(2)])


@feature("Files deleted that no version needs", "`vacuum`")
def vacuumed(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.overwrite(batch(1))
    deleted = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(deleted.paths) == 1 and [info["operation"] for info in logged(path, "commitInfo")[-2:]] == [
        "VACUUM START", "VACUUM END",
    ]  # fmt: skip
    return batch(1)


@feature("All rows replaced, and the columns with them", "`overwrite`, `overwrite(overwrite_schema=True)`")
def overwritten(path: Path) -> pa.Table:
    table = created(path, data=batch(0, 3))
    table.overwrite(batch(3))
    rows = pa.table({"id": [1, 2], "another": [["x"], None]})
    table.overwrite(rows, overwrite_schema=True)
    return rows


@feature("Rows replaced by condition", "`overwrite(where=…)`")
def replaced_where(path: Path) -> pa.Table:
    table = created(path, data=batch(0, 9))
    table.overwrite(batch(0, 2), where="id < 4 AND amount IS NOT NULL")
    return pa.concat_tables([batch(4, 5), batch(0, 2)])


@feature("Partitions replaced", '`overwrite(partitions="dynamic")`', spark=(INSERT, "DELETE FROM {t} WHERE id = 3"))
def replaced_partitions(path: Path) -> pa.Table:
    table = created(path, partition_by=["place"])
    table.append(batch(0, 7))
    table.append(batch(7, 7))
    table.overwrite(batch(71, 2), partitions="dynamic")
    return as_partitioned(pa.concat_tables([without(batch(0, 14), 1, 2, 8, 9), batch(71, 2)]))


@feature("Deletion vectors", "`delta.enableDeletionVectors`, `delete`")
def vectors_in_files(path: Path) -> pa.Table:
    table = created(path, VECTORS, partition_by=["place"])
    table.append(batch(0, 700))
    table.delete("amount > 20 AND name IS NOT NULL")
    assert {add["deletionVector"]["storageType"] for add in logged(path, "add")[7:]} == {"u"}
    rows = as_partitioned(batch(0, 700))
    gone = pc.and_(pc.greater(rows["amount"], 20), pc.is_valid(rows["name"]))
    return rows.filter(pc.invert(pc.fill_null(gone, False)))


# ------------------------------------------------------------------------------------ optimized tables


@feature("Small files combined, deletion vectors purged, rows in Z-order", "`optimize.compact`, `.purge`, `.z_order`")
def optimized(path: Path) -> pa.Table:
    table = created(path, VECTORS)
    for start in range(0, 40, 10):
        table.append(batch(start, 10))
    table.optimize.compact()
    table.delete("id IN (3, 5)")
    table.optimize.purge()
    table.append(batch(40, 10))
    table.optimize.z_order(["id", "amount"], target_size=table.snapshot().size_bytes // 2)
    assert [body["operation"] for body in logged(path, "commitInfo")].count("OPTIMIZE") == 2
    assert not any(add.get("deletionVector") for add in logged(path, "add")[-2:])
    return without(batch(0, 50), 3, 5)


@feature("Statistics computed later", "`compute_statistics`", checksum=False)
def statistics_computed(path: Path) -> pa.Table:
    table = created(path, {"delta.dataSkippingNumIndexedCols": "0"})
    table.append(batch(0, 6))
    table.append(batch(6, 6))
    table.set_properties({"delta.dataSkippingNumIndexedCols": "2"})
    table.compute_statistics()
    assert [set(json.loads(add["stats"]).get("minValues", ())) for add in logged(path, "add")] == [
        set(), set(), {"id", "name"}, {"id", "name"},
    ]  # fmt: skip
    return batch(0, 12)
