"""The metrics in results have the same names for all methods, and agree with the commit's metrics."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deltalog import CommitResult, DeltaTable
from tests.support.core import environment, info, memory

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
NAMES = ("deleted_rows", "updated_rows", "inserted_rows", "copied_rows", "source_rows", "added_files", "removed_files",
         "deletion_vectors_added")  # fmt: skip


def numbers(result: CommitResult) -> dict[str, int]:
    found = {name: getattr(result, f"num_{name}") for name in NAMES}
    return {name: value for name, value in found.items() if value}


@pytest.mark.parametrize("vectors", [False, True])
def test_every_verb(vectors: bool) -> None:
    properties = {"delta.enableDeletionVectors": "true"} if vectors else {}
    table = DeltaTable.create(memory(), SCHEMA, properties=properties, environment=environment())
    appended = table.append(pa.table({"id": range(10), "n": range(10)}))
    assert (appended.num_added_files, appended.num_output_rows, appended.num_deleted_rows) == (1, 10, None)
    copied, marked = ({}, {"deletion_vectors_added": 1}) if vectors else ({"removed_files": 1}, {})
    deleted = table.delete("id < 2")
    moved = {} if vectors else {"copied_rows": 8, "added_files": 1}
    assert numbers(deleted) == {"deleted_rows": 2, **copied, **marked, **moved}
    updated = table.update({"n": "0"}, "id < 5")
    moved = {} if vectors else {"copied_rows": 5}
    assert numbers(updated) == {"updated_rows": 3, "added_files": 1, **copied, **marked, **moved}
    source = pa.table({"id": [9, 20, 21], "n": [90, 200, 210]})
    merge = table.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all()
    merged = merge.when_not_matched_by_source_delete("target.id = 8").execute()
    assert merged.num_deleted_rows == merged.num_updated_rows == 1
    assert (merged.num_inserted_rows, merged.num_source_rows) == (2, 3)
    logged = info(table.snapshot().reader.store, merged.version)["operationMetrics"]
    assert int(logged["numTargetFilesAdded"]) == merged.num_added_files
    assert int(logged["numOutputRows"]) == merged.num_output_rows
    skipped = table.delete("id = 1000")
    assert skipped.skipped and skipped.num_deleted_rows == 0 and numbers(skipped) == {}
    replaced = table.overwrite(pa.table({"id": [1], "n": [1]}))
    assert replaced.num_deleted_rows == 9 and replaced.num_removed_files
