"""The number of removed rows that commits report: in operationMetrics, in results, in the history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from deltalog import CommitResult, DeltaTable, TransactionManager

VECTORS = {"delta.enableDeletionVectors": "true"}


def rows(part: int, *ids: int) -> pa.Table:
    return pa.table({"part": pa.array([part] * len(ids), pa.int64()), "id": pa.array(ids, pa.int64())})


@pytest.fixture(params=[{}, VECTORS], ids=["files", "vectors"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaTable:
    """A table at version 2: the partition ``part=1`` contains the ids 1 to 5 in two files, with id 2 deleted;
    ``part=2`` contains the id 6."""
    schema = rows(1).schema
    made = DeltaTable.create(tmp_path / "t", schema, partition_by=["part"], properties=request.param)
    made.append(pa.concat_tables([rows(1, 1, 2, 3), rows(2, 6)]))
    made.append(rows(1, 4, 5))
    made.delete("id = 2")
    return made


def metrics(table: DeltaTable) -> dict[str, str | None]:
    found = table.history(1)[0].operation_metrics
    return {name: found.get(name) for name in ("numOutputRows", "numDeletedRows", "numRemovedFiles")}


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (lambda t: t.overwrite(rows(1, 7, 8, 9)), ("3", "5", "3")),
        (lambda t: t.overwrite(rows(1)), ("0", "5", "3")),
        (lambda t: t.overwrite(rows(1, 7), partitions="dynamic"), ("1", "4", "2")),
        (lambda t: t.overwrite(rows(1, 7), where="part = 1"), ("1", "4", "2")),
        (lambda t: t.delete(), (None, "5", "3")),
        (lambda t: t.delete("part = 2"), (None, "1", "1")),
        (lambda t: t.restore(0), ("0", "5", "3")),
    ],
    ids=["overwrite", "with nothing", "partitions", "where", "delete", "partition", "restore"],
)
def test_rows_and_files(table: DeltaTable, verb: Callable[[DeltaTable], object], expected: tuple[str, ...]) -> None:
    before = {file["path"]: file["size"] for file in table.snapshot().files(["path", "size"]).to_pylist()}
    done = verb(table)
    assert tuple(metrics(table).values()) == expected
    told = table.history(1)[0].operation_metrics
    left = set(table.snapshot().files(["path"])["path"].to_pylist())
    removed = told.get("numRemovedBytes") or told.get("removedFilesSize")
    assert removed == str(sum(size for path, size in before.items() if path not in left))
    commit = done if isinstance(done, CommitResult) else done.commit  # type: ignore[attr-defined]
    assert commit.operation_metrics == told


def test_a_restore_counts_the_rows_that_a_vector_masked(table: DeltaTable) -> None:
    table.restore(2)
    assert (metrics(table)["numOutputRows"], metrics(table)["numDeletedRows"]) in {("1", "0"), ("3", "2")}
    live = table.snapshot().scan().to_arrow().num_rows
    assert live == 6


def test_rows_of_a_file_without_statistics_are_unknown(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "t", rows(1).schema, data=rows(1, 1, 2))
    bare = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    lines = [msgspec.json.decode(line) for line in bare.read_bytes().splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    bare.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    bare.with_suffix(".crc").unlink(missing_ok=True)
    table = DeltaTable.open(tmp_path / "t")
    done = table.overwrite(rows(1, 3))
    assert "numDeletedRows" not in done.operation_metrics and done.operation_metrics["numRemovedFiles"] == "1"
    table.restore(0)
    assert "numDeletedRows" not in table.history(1)[0].operation_metrics


def test_transactions_tell_it_too(tmp_path: Path) -> None:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    manager.create_table("a", str(tmp_path / "a"), rows(1).schema, data=rows(1, 1, 2))
    with manager.transaction() as transaction:
        done = transaction.table("a").overwrite(rows(1, 3))
        transaction.commit()
    assert done.operation_metrics["numDeletedRows"] == "2"
    assert metrics(manager.table("a")) == {"numOutputRows": "1", "numDeletedRows": "2", "numRemovedFiles": "1"}
