"""Deleting rows from existing files: with deletion vectors, or by rewriting the other rows, with and without change
data files."""

from __future__ import annotations

import collections
import datetime
import decimal
import itertools
import json
import math
import operator as op
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import (
    CallError,
    CommitConflictError,
    ConstraintViolationError,
    CorruptTableError,
    DeltaTable,
    StoreError,
    col,
)
from deltalog.errors import ConcurrentAppendError, InvalidActionError, MetadataChangedError
from deltalog.expressions.tree import (
    And,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    Name,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from deltalog.protocol import row_tracking
from deltalog.rows.replacement import Replacement
from deltalog.testing import CountingStore, Fault, FaultyStore, nth
from tests.support.core import action, environment, info, lines, memory, objects, overtaken
from tests.support.core.strategies import examples

VECTORS = {"delta.enableDeletionVectors": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
MODES: dict[str, dict[str, str]] = {
    "moved": {},
    "moved, with changes": CHANGES,
    "vectors": VECTORS,
    "vectors, with changes": {**VECTORS, **CHANGES},
    "moved, by name": {**CHANGES, "delta.columnMapping.mode": "name"},
}
every_mode = pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("i", pa.int32()), ("f", pa.float64()), ("s", pa.string())])
# The second file contains neither nulls nor NaN; the third contains only nulls, except in the id column.
FILES: list[list[tuple[Any, ...]]] = [
    [(1, "a", 1, 1.5, "x"), (2, "a", None, math.nan, None), (3, "b", 3, -0.0, "xy"), (4, None, 4, None, "z")],
    [(5, "a", 5, 5.0, "xa"), (6, "a", 6, 6.0, "xb")],
    [(7, "b", None, None, None), (8, "b", None, None, None)],
]


def arrow(rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def table_of(
    store: Any, files: Iterable[Iterable[tuple[Any, ...]]], properties: Mapping[str, str], **more: Any
) -> DeltaTable:
    table = DeltaTable.create(store, SCHEMA, properties=properties, environment=environment(), **more)
    for rows in files:
        table.append(arrow(rows))
    return table


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.snapshot().scan(["id"]).to_arrow()["id"].to_pylist())


def changes(table: DeltaTable, version: int) -> list[tuple[str, int]]:
    rows = table.changes(version, version).to_arrow().select(["_change_type", "id"]).to_pylist()
    return sorted((row["_change_type"], row["id"]) for row in rows)


# ------------------------------------------------------------------------------------------------- deletes


@every_mode
@pytest.mark.parametrize("partition_by", [[], ["p"], ["p", "i"]], ids=["", "p", "p and i"])
@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ("id = 3", [3]),
        ("i > 3", [4, 5, 6]),
        ("i IS NULL", [2, 7, 8]),
        ("i IS NOT NULL", [1, 3, 4, 5, 6]),
        ("NOT (i = 1)", [3, 4, 5, 6]),
        ("i <=> NULL", [2, 7, 8]),
        ("i = NULL", []),
        ("f > 5", [2, 6]),
        ("f >= 0", [1, 2, 3, 5, 6]),
        ("NOT (f >= 0)", []),
        ("s LIKE 'x%'", [1, 3, 5, 6]),
        ("s IN ('x', NULL)", [1]),
        ("s NOT IN ('x', NULL)", []),
        ("p = 'a'", [1, 2, 5, 6]),
        ("p IS NULL", [4]),
        ("p = 'b' OR i > 3", [3, 4, 5, 6, 7, 8]),
        ("p = 'b' AND i IS NOT NULL", [3]),
        ("true", [1, 2, 3, 4, 5, 6, 7, 8]),
        (None, [1, 2, 3, 4, 5, 6, 7, 8]),
        (col("f") == math.nan, [2]),
        ("id >= 1", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("id > 100", []),
    ],
)
def test_deleting(where: Any, gone: list[int], partition_by: list[str], properties: dict[str, str]) -> None:
    store = memory()
    table = table_of(store, FILES, properties, partition_by=partition_by)
    result = table.delete(where)
    assert ids(table) == [i for i in range(1, 9) if i not in gone]
    assert result.skipped is (not gone) and table.version == (4 if gone else 3)
    if gone:
        assert info(store, 4)["operation"] == "DELETE"
        assert info(store, 4)["operationMetrics"]["numDeletedRows"] == str(len(gone))
        if CHANGES.items() <= properties.items():
            assert changes(table, 4) == [("delete", i) for i in gone]


def test_a_delete_signs_as_spark_does() -> None:
    store = memory()
    table = table_of(store, FILES, {})
    table.delete(col("id") == 3, user_metadata="why", txn=("app", 1))
    body = info(store, 4)
    assert json.loads(body["operationParameters"]["predicate"]) == ["(id = 3)"]
    assert (body["isBlindAppend"], body["userMetadata"]) == (False, "why")
    metrics = body["operationMetrics"]
    sizes = {k: metrics.pop(k) for k in ("numRemovedBytes", "numAddedBytes")}
    assert all(int(size) > 0 for size in sizes.values())
    assert metrics == {
        "numRemovedFiles": "1", "numAddedFiles": "1", "numCopiedRows": "3", "numDeletedRows": "1",
        "numAddedChangeFiles": "0", "numDeletionVectorsAdded": "0", "numDeletionVectorsRemoved": "0",
        "numDeletionVectorsUpdated": "0",
    }  # fmt: skip
    assert table.delete("id = 1", txn=("app", 1)).skipped and 1 in ids(table)
    table.delete()
    assert json.loads(info(store, 5)["operationParameters"]["predicate"]) == ["true"]


@pytest.mark.parametrize(
    ("where", "opened"),
    [
        ("p = 'a'", 0),
        ("p = 'zzz'", 0),
        ("i >= 5", 0),  # only the second file has min/max statistics
        ("id > 4 AND p <=> 'a'", 0),
        ("id < 100", 0),
        ("f IS NULL AND id >= 7", 0),  # all null
        ("i IS NULL AND p = 'a'", 1),
        ("f >= 5", 2),  # NaN may exceed an upper bound
        ("s LIKE 'xa%'", 1),
    ],
)
def test_files_are_read_only_where_partitions_and_statistics_leave_them_open(where: str, opened: int) -> None:
    store = CountingStore(memory())
    by_partition = [[row for row in rows if row[1] == p] for rows in FILES for p in ("a", "b", None)]
    table = table_of(store, [rows for rows in by_partition if rows], VECTORS, partition_by=["p"])
    expected = set(ids(table)) - set(table.snapshot().scan(["id"], where).to_arrow()["id"].to_pylist())
    with store.counted() as calls:
        table.delete(where)
    assert calls.of("open_input", "*") == opened
    assert set(ids(table)) == expected


def test_statistics_without_null_counts_prove_nothing() -> None:
    store = memory()
    table = table_of(store, [], {})
    with table.transaction() as transaction:
        transaction.write(arrow([(1, "a", 5, None, None), (2, "a", None, None, None)]).to_reader())
        (add,) = transaction.staged.adds
        transaction.abort()
    sink = pa.BufferOutputStream()
    pq.write_table(arrow([(1, "a", 5, None, None), (2, "a", None, None, None)]), sink)
    store.put("x", sink.getvalue().to_pybytes())
    stats = json.dumps({"numRecords": 2, "minValues": {"i": 5}, "maxValues": {"i": 5}})
    with table.transaction() as transaction:
        transaction.add(msgspec.structs.replace(add, path="x", stats=stats))
        transaction.commit()
    table.delete("i = 5")
    assert ids(table) == [2]


# ----------------------------------------------------------------------------------------- deletion vectors


def test_vectors_add_up_until_the_file_goes() -> None:
    store = memory()
    table = table_of(store, [[(n, "a", n, 1.0, "s") for n in range(1000)]], VECTORS)
    first = action(store, 1, "add")
    assert first is not None
    told = []
    for version, where in enumerate(("i < 10", "i < 20", "i >= 990", "i >= 20"), 2):
        table.delete(where)
        metrics = info(store, version)["operationMetrics"]
        told.append(tuple(int(metrics[f"numDeletionVectors{what}"]) for what in ("Added", "Updated", "Removed")))
        (remove,) = [line["remove"] for line in lines(store, version) if "remove" in line]
        adds = [line["add"] for line in lines(store, version) if "add" in line]
        assert remove["path"] == first["path"]
        if adds:
            assert adds[0]["deletionVector"]["cardinality"] == {2: 10, 3: 20, 4: 30}[version]
            assert {**adds[0], "deletionVector": 0, "stats": 0} == {**first, "deletionVector": 0, "stats": 0}
            before = json.loads(first["stats"])
            assert json.loads(adds[0]["stats"]) == {**before, "numRecords": 1000, "tightBounds": False}
    assert told == [(1, 0, 0), (1, 1, 1), (1, 1, 1), (0, 0, 1)]
    assert ids(table) == [] and table.snapshot().num_files == 0
    vectors = [path for path in objects(store) if path.endswith(".bin")]
    # All three deletion vectors consist of run containers.
    assert len(vectors) == 3 and max(len(store.get(path)) for path in vectors) < 100


def test_large_vectors_share_a_file() -> None:
    store = memory()
    files = [[(n, "a", n % 7, 1.0, "s") for n in range(start, start + 1000)] for start in (0, 1000, 2000)]
    table = table_of(store, files, VECTORS)
    table.delete("i = 3")
    vectors = [line["add"]["deletionVector"] for line in lines(store, 4) if "add" in line]
    assert [v["storageType"] for v in vectors] == ["u"] * 3 and len({v["pathOrInlineDv"] for v in vectors}) == 1
    (path,) = [path for path in objects(store) if path.endswith(".bin")]
    assert path.startswith("deletion_vector_") and len(objects(store)[path]) == 1 + sum(
        v["sizeInBytes"] + 8 for v in vectors
    )
    assert ids(table) == [n for n in range(3000) if n % 7 != 3]
    table.delete("i = 4")
    assert ids(table) == [n for n in range(3000) if n % 7 not in (3, 4)]


def test_files_of_vectors_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalog.write.deletion_vector_writer.FILE_BYTES", 400)
    store = memory()
    table = table_of(store, [[(n, "a", n % 7, 1.0, "s") for n in range(300)]] * 5, VECTORS)
    table.delete("i = 3")
    sizes = [len(data) for path, data in objects(store).items() if path.endswith(".bin")]
    assert len(sizes) > 1 and sum(sizes) > max(sizes) and max(sizes) <= 400 + 1 + 8 * 5
    assert len(ids(table)) == 5 * sum(n % 7 != 3 for n in range(300))


def test_vectors_lie_below_random_prefixes_where_files_do() -> None:
    store = memory()
    table = table_of(
        store, [[(n, "a", n % 7, 1.0, "s") for n in range(300)]], {**VECTORS, "delta.randomizeFilePrefixes": "true"}
    )
    table.delete("i = 3")
    (path,) = [path for path in objects(store) if path.endswith(".bin")]
    assert len(path.split("/")[0]) == 2 and path.split("/")[1].startswith("deletion_vector_")
    assert len(ids(table)) == sum(n % 7 != 3 for n in range(300))


def test_the_property_alone_makes_no_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Support for the deletion vector feature does not make deletes write deletion vectors while
    ``delta.enableDeletionVectors`` is not set."""
    store = memory()
    table = table_of(store, FILES, {"delta.feature.deletionVectors": "supported"})
    table.delete("id = 3")
    assert all("deletionVector" not in line.get("add", {}) for line in lines(store, 4))
    assert ids(table) == [1, 2, 4, 5, 6, 7, 8]


def test_rows_that_vectors_deleted_are_not_moved() -> None:
    """Existing deletion vectors are still applied after the table's property has been set to false."""
    store = memory()
    table = table_of(store, FILES, {**VECTORS, **CHANGES})
    table.delete("id IN (1, 5)")
    table.set_properties({"delta.enableDeletionVectors": "false"})
    table.delete("id IN (2, 6)")
    assert ids(table) == [3, 4, 7, 8] and changes(table, 6) == [("delete", 2), ("delete", 6)]
    metrics = info(store, 6)["operationMetrics"]
    assert (metrics["numDeletionVectorsRemoved"], metrics["numDeletionVectorsAdded"]) == ("2", "0")
    assert (metrics["numRemovedFiles"], metrics["numCopiedRows"]) == ("2", "2")


def test_bounds_stay_as_they_are_written() -> None:
    """Statistics are copied as text, because a parser would round decimals to double precision."""
    store = memory()
    schema = pa.schema([("id", pa.int64()), ("d", pa.decimal128(38, 10))])
    wide = decimal.Decimal("1234567890123456789012345678.0123456789")
    table = DeltaTable.create(store, schema, properties=VECTORS, environment=environment())
    table.append(pa.table({"id": [1, 2], "d": [wide, -wide]}, schema=schema))
    table.delete("id = 1")
    (add,) = [line["add"] for line in lines(store, 2) if "add" in line]
    assert f'"maxValues":{{"id":2,"d":{wide}}}' in add["stats"]


# ------------------------------------------------------------------------------------------------ moved rows


def test_moved_rows_are_exactly_as_they_were() -> None:
    store = memory()
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "f": pa.array([math.nan, -0.0, 1e-310], pa.float64()),
            "d": pa.array([decimal.Decimal("0.10"), None, decimal.Decimal("-9.99")], pa.decimal128(3, 2)),
            "t": pa.array([datetime.datetime(1, 1, 1), None, datetime.datetime(2026, 1, 1, 0, 0, 0, 1)],
                          pa.timestamp("us", "UTC")),
            "n": pa.array([datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), None, None], pa.timestamp("us")),
            "b": pa.array([b"\0\xff", b"", None], pa.binary()),
            "st": pa.array([{"x": None, "y": [1, None]}, None, {"x": "", "y": []}],
                           pa.struct([("x", pa.string()), ("y", pa.list_(pa.int16()))])),
            "m": pa.array([[("k", None)], [], None], pa.map_(pa.string(), pa.float32())),
        }
    )  # fmt: skip
    table = DeltaTable.create(store, rows.schema, data=rows, environment=environment())
    before = table.snapshot().scan(where="id != 2").to_arrow().sort_by("id")
    table.delete("id = 2")
    after = table.snapshot().scan().to_arrow().sort_by("id")
    assert repr(after.to_pylist()) == repr(before.to_pylist()) and after.schema == before.schema


@every_mode
@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["", "p"])
def test_rows_that_stay_keep_their_ids(partition_by: list[str], properties: dict[str, str]) -> None:
    tracked = {**properties, "delta.enableRowTracking": "true"}
    table = table_of(memory(), FILES, tracked, partition_by=partition_by)

    def tracking() -> dict[int, tuple[int, int]]:
        rows = table.snapshot().scan(["id", "_metadata.row_id", "_metadata.row_commit_version"]).to_arrow()
        return {row.pop("id"): tuple(row.values()) for row in rows.to_pylist()}

    before = tracking()
    table.delete("id IN (1, 6)")
    table.overwrite(arrow([(10, "a", 1, None, None), (11, "a", None, None, None)]), where="id IN (2, 10, 11)")
    table.delete("id IN (3, 7)")
    after = tracking()
    assert {i: after[i] for i in (4, 5, 8)} == {i: before[i] for i in (4, 5, 8)} and set(after) == {4, 5, 8, 10, 11}
    assert {after[10][0], after[11][0]}.isdisjoint(row_id for row_id, _ in before.values())
    assert len({row_id for row_id, _ in after.values()}) == 5 and after[10][1] == after[11][1] == 5


def test_rows_are_not_moved_past_the_commit_that_gives_them_ids_for_good() -> None:
    store = memory()
    table = table_of(store, [], {"delta.feature.rowTracking": "supported"})
    table.append(arrow([(1, "a", 1, None, None), (2, "a", 2, None, None)]))

    def enable() -> None:
        DeltaTable.open(store).set_properties({"delta.enableRowTracking": "true"})

    def row_ids() -> dict[int, int]:
        rows = DeltaTable.open(store).snapshot().scan(["id", "_metadata.row_id"]).to_arrow().to_pylist()
        return {row["id"]: row["_metadata.row_id"] for row in rows}

    with pytest.raises(MetadataChangedError, match="enableRowTracking"):
        DeltaTable.open(overtaken(store, enable)).delete("id = 1")
    before = row_ids()
    table.delete("id = 1")
    assert row_ids() == {2: before[2]}


NOTHING_TO_DO = {
    "delete": lambda table, txn: table.delete("id = 9", txn=txn),
    "where": lambda table, txn: table.overwrite(arrow([]), where="id = 9", txn=txn),
    "partitions": lambda table, txn: table.overwrite(arrow([]), partitions="dynamic", txn=txn),
}


@pytest.mark.parametrize("verb", NOTHING_TO_DO)
def test_a_run_that_found_nothing_to_do_is_not_repeated_either(verb: str) -> None:
    table = table_of(memory(), FILES, {}, partition_by=["p"])
    call = NOTHING_TO_DO[verb]
    assert not call(table, ("nightly", 1)).skipped
    table.append(arrow([(9, "a", 1, None, None)]))
    assert call(table, ("nightly", 1)).skipped and 9 in ids(table)


def test_ids_are_not_lost_for_want_of_a_column_to_keep_them() -> None:
    with pytest.raises(CorruptTableError, match="materializedRowIdColumnName"):
        row_tracking.kept_columns({"delta.enableRowTracking": "true"}, "memory://t")
    assert row_tracking.kept_columns({}, "memory://t") == ()


def test_rows_of_one_partition_are_gathered() -> None:
    store = memory()
    files = [[(n, p, n, 1.0, "s") for n in range(k, k + 3)] for k, p in ((0, "a"), (10, "b"), (20, "a"), (30, "b"))]
    table = table_of(store, files, {}, partition_by=["p"])
    table.delete("i IN (1, 11, 21, 31)")
    adds = [line["add"] for line in lines(store, 5) if "add" in line]
    assert sorted(add["partitionValues"]["p"] for add in adds) == ["a", "b"]
    assert info(store, 5)["operationMetrics"]["numCopiedRows"] == "8"


def test_a_commit_with_change_files_tells_of_whole_files_too() -> None:
    store = memory()
    table = table_of(store, [[(1, "a", 1, None, None), (2, "a", 2, None, None)], [(3, "b", 3, None, None)]], CHANGES)
    # From the second file, all rows are removed, because the file's statistics prove that all of them match; from the
    # first file, one row is removed.
    table.delete("i >= 2")
    assert changes(table, 3) == [("delete", 2), ("delete", 3)]
    cdc = [line["cdc"] for line in lines(store, 3) if "cdc" in line]
    assert cdc and all(c["path"].startswith("_change_data/") and c["dataChange"] is False for c in cdc)
    assert info(store, 3)["operationMetrics"]["numAddedChangeFiles"] == str(len(cdc))


@pytest.mark.parametrize("properties", [CHANGES, {**VECTORS, **CHANGES}], ids=["moved", "vectors"])
def test_whole_files_and_vectors_need_no_change_files(properties: dict[str, str]) -> None:
    store = memory()
    table = table_of(store, FILES, properties)
    table.delete("id >= 5" if properties == CHANGES else "id = 1")
    assert not any("cdc" in line for line in lines(store, 4))
    assert changes(table, 4) == [("delete", i) for i in ([5, 6, 7, 8] if properties == CHANGES else [1])]


# ---------------------------------------------------------------------------------------------- refusals, faults


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.delete("id = 1"),
        lambda t: t.delete(),
        lambda t: t.overwrite(arrow([(1, "a", 1, None, None)]), where="id = 1"),
        lambda t: t.overwrite(arrow([(1, "a", 1, None, None)]), partitions="dynamic"),
    ],
)
def test_append_only_tables_keep_their_rows(call: Callable[[DeltaTable], object]) -> None:
    store = memory()
    table = table_of(store, FILES, {"delta.appendOnly": "true"}, partition_by=["p"])
    before = set(objects(store))
    with pytest.raises(InvalidActionError, match="append-only"):
        call(table)
    assert set(objects(store)) == before


@pytest.mark.parametrize("where", ["nope = 1", "id = 'x'", "id +", 7])
def test_conditions_that_mean_nothing(where: Any) -> None:
    table = table_of(memory(), FILES, {})
    with pytest.raises(CallError):
        table.delete(where)


@every_mode
def test_a_delete_that_fails_leaves_no_file(properties: dict[str, str]) -> None:
    inner = memory()
    table_of(inner, [[(n, "a", n % 7, 1.0, "s") for n in range(1000)]], properties)
    before = set(objects(inner))
    store = FaultyStore(inner, nth(1, Fault.FAIL_BEFORE, method="put_if_absent"))
    with pytest.raises(StoreError):
        DeltaTable.open(store, environment=environment()).delete("i = 3")
    assert store.injected[Fault.FAIL_BEFORE] == 1 and set(objects(inner)) == before


# ------------------------------------------------------------------------------------------------ conflicts


@every_mode
@pytest.mark.parametrize(
    ("rival", "error"),
    [
        (lambda t: t.append(arrow([(9, "a", 3, 1.0, None)])), ConcurrentAppendError),
        # According to its statistics, the new file contains no matching row.
        (lambda t: t.append(arrow([(9, "a", 1000, 1.0, None)])), None),
        (lambda t: t.append(arrow([(9, "zzz", 3, 1.0, None)])), None),  # excluded by its partition
        (lambda t: t.delete("id = 1"), CommitConflictError),
        (lambda t: t.delete("id = 8"), None),
    ],
    ids=["matching append", "other append", "other partition", "same file", "other file"],
)
def test_deleting_while_others_write(
    rival: Callable[[DeltaTable], object], error: type[Exception] | None, properties: dict[str, str]
) -> None:
    inner = memory()
    table_of(inner, FILES, properties, partition_by=["p"])
    store = overtaken(inner, lambda: rival(DeltaTable.open(inner, environment=environment())))
    table = DeltaTable.open(store, environment=environment())
    if error is not None:
        with pytest.raises(error):
            table.delete("p = 'a' AND i <= 3")
        assert ids(table) == ids(DeltaTable.open(inner)) and 2 in ids(table)
        return
    assert table.delete("p = 'a' AND i <= 3").attempts == 2
    expected = DeltaTable.open(inner).snapshot(4).scan(["id", "p", "i"]).to_arrow().to_pylist()
    assert ids(table) == sorted(r["id"] for r in expected if not (r["p"] == "a" and r["i"] is not None and r["i"] <= 3))


# ------------------------------------------------------------------------------------------------ replaceWhere


@every_mode
@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["", "p"])
@pytest.mark.parametrize(
    ("where", "new", "gone"),
    [
        ("p = 'a'", [(10, "a", 1, None, None)], [1, 2, 5, 6]),
        ("i < 4", [(10, "b", 0, None, None), (11, None, 3, 2.0, "s")], [1, 3]),
        ("i < 4", [], [1, 3]),
        ("id > 100", [(101, "a", None, None, None)], []),
        ("true", [(10, "a", 1, None, None)], [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_replacing_rows(
    where: str, new: list[Any], gone: list[int], partition_by: list[str], properties: dict[str, str]
) -> None:
    store = memory()
    table = table_of(store, FILES, properties, partition_by=partition_by)
    table.overwrite(arrow(new), where=where)
    assert ids(table) == sorted([i for i in range(1, 9) if i not in gone] + [row[0] for row in new])
    body = info(store, 4)
    assert body["operation"] == "WRITE" and body["operationParameters"]["predicate"] == where
    metrics = {name: int(value) for name, value in body["operationMetrics"].items()}
    assert metrics["numDeletedRows"] == len(gone)
    assert metrics["numOutputRows"] == len(new) + metrics["numCopiedRows"]
    if CHANGES.items() <= properties.items():
        assert changes(table, 4) == sorted([("delete", i) for i in gone] + [("insert", row[0]) for row in new])


def test_replacing_nothing_by_nothing_is_no_commit() -> None:
    table = table_of(memory(), FILES, {})
    assert table.overwrite(arrow([]), where="id > 100").skipped and table.version == 3


@every_mode
@pytest.mark.parametrize("where", ["i < 4", "p = 'a'"])
def test_new_rows_outside_of_what_is_replaced(where: str, properties: dict[str, str]) -> None:
    store = memory()
    table = table_of(store, FILES, properties, partition_by=["p"])
    before = set(objects(store))
    batches = [arrow([(10, "a", 1, None, None)]), arrow([(11, "b", None, None, None), (12, "c", 9, None, None)])]
    with pytest.raises(ConstraintViolationError, match=rf"2 of the new rows .*{where}.*(i.: None|p.: 'b')"):
        table.overwrite(pa.concat_tables(batches), where=where)
    assert set(objects(store)) == before


@pytest.mark.parametrize(
    "where", [Comparison("<", Name(("i",)), Literal(4)), "i < 4 AND current_date() > DATE'2020-01-01'"]
)
def test_conditions_in_either_form_are_replaced(where: Any) -> None:
    table = table_of(memory(), FILES, {})
    table.overwrite(arrow([(10, "b", 0, None, None)]), where=where)
    assert ids(table) == [2, 4, 5, 6, 7, 8, 10]


@pytest.mark.parametrize(
    "ways",
    [
        {"where": "id = 1", "partitions": "dynamic"},
        {"partitions": "dynamic", "overwrite_schema": True},
        {"merge_schema": True, "overwrite_schema": True},
    ],
)
def test_ways_to_overwrite_exclude_each_other(ways: dict[str, Any]) -> None:
    table = table_of(memory(), FILES, {})
    with pytest.raises(CallError, match="mutually exclusive"):
        table.overwrite(arrow([]), **ways)


# ------------------------------------------------------------------------------------- dynamic partition overwrite


def test_only_partitions_of_the_new_rows_are_replaced() -> None:
    store = memory()
    table = table_of(store, FILES, CHANGES, partition_by=["p"])
    table.overwrite(
        arrow([(10, "a", 1, None, None), (11, "c", 1, None, None), (12, None, 1, None, None)]), partitions="dynamic"
    )
    assert ids(table) == [3, 7, 8, 10, 11, 12]
    assert info(store, 4)["operationParameters"]["isDynamicPartitionOverwrite"] in (True, "true")
    assert changes(table, 4) == [("delete", i) for i in (1, 2, 4, 5, 6)] + [("insert", i) for i in (10, 11, 12)]


def test_partitions_of_several_columns_are_replaced_together() -> None:
    table = table_of(memory(), FILES, {}, partition_by=["p", "i"])
    table.overwrite(arrow([(10, "a", None, 1.0, None), (11, "b", 3, 1.0, None)]), partitions="dynamic")
    assert ids(table) == [1, 4, 5, 6, 7, 8, 10, 11]


@pytest.mark.slow
def test_thousands_of_partitions_are_replaced() -> None:
    schema = pa.schema([("id", pa.int64()), ("k", pa.int32())])
    table = DeltaTable.create(memory(), schema, partition_by=["k"], environment=environment())
    table.append(pa.table({"id": range(3000), "k": range(3000)}, schema=schema))
    table.overwrite(pa.table({"id": range(5000, 7500), "k": range(2500)}, schema=schema), partitions="dynamic")
    assert ids(table) == [*range(2500, 3000), *range(5000, 7500)]


@pytest.mark.parametrize(("partition", "error"), [("a", ConcurrentAppendError), ("b", None), (None, None)])
def test_writers_of_other_partitions_do_not_conflict(partition: str | None, error: type[Exception] | None) -> None:
    inner = memory()
    table_of(inner, FILES, {}, partition_by=["p"])
    rival = [(9, partition, 1, None, None)]
    store = overtaken(inner, lambda: DeltaTable.open(inner, environment=environment()).append(arrow(rival)))
    table = DeltaTable.open(store, environment=environment())
    if error is not None:
        with pytest.raises(error):
            table.overwrite(arrow([(10, "a", 1, None, None)]), partitions="dynamic")
        return
    table.overwrite(arrow([(10, "a", 1, None, None)]), partitions="dynamic")
    assert ids(table) == [3, 4, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("where", "properties", "left", "copied", "change_column"),
    [
        ("p = 'a'", {}, [3, 4, 7, 8, 10], 0, None),
        ("p IS NULL", {}, [1, 2, 3, 5, 6, 7, 8, 10], 0, None),
        ("id IN (1, 5)", {}, [2, 3, 4, 6, 7, 8, 10], 2, None),
        ("id IN (1, 5)", {"delta.enableChangeDataFeed": "true"}, [2, 3, 4, 6, 7, 8, 10], 2, "_change_type"),
        ("id IN (1, 5)", {"delta.enableDeletionVectors": "true"}, [2, 3, 4, 6, 7, 8, 10], 0, None),
        ("id > 99", {}, [1, 2, 3, 4, 5, 6, 7, 8, 10], 0, None),
    ],
)
def test_staged_files_replace_rows(
    where: str, properties: dict[str, str], left: list[int], copied: int, change_column: str | None
) -> None:
    table = table_of(memory(), FILES, properties, partition_by=["p"])
    with table.transaction() as transaction:
        replacement = Replacement(transaction, where)
        new = arrow([(10, "a", 1, None, None)])
        if replacement.change_column:
            adds, rows = transaction.row_writer.write_inserts(new.to_reader())
            transaction.staged.add_written(adds)
        else:
            rows = transaction.write(new.to_reader())
        metrics = replacement.stage(rows)
        transaction.commit()
    assert ids(table) == left and replacement.change_column == change_column
    deleted = 9 - len(left)
    assert replacement.num_deleted_rows == metrics["numDeletedRows"] == deleted
    assert replacement.is_empty == (deleted == 0) and set(replacement.columns) <= {"p", "id"}
    assert replacement.num_copied_rows == metrics["numCopiedRows"] == copied
    assert metrics["numOutputRows"] == 1 + copied
    if properties.get("delta.enableChangeDataFeed"):
        changes = table.changes(table.version).to_arrow()
        assert sorted(zip(changes["_change_type"].to_pylist(), changes["id"].to_pylist(), strict=True)) == [
            ("delete", 1), ("delete", 5), ("insert", 10)
        ]  # fmt: skip


def test_no_new_rows_replace_no_partition() -> None:
    table = table_of(memory(), FILES, {}, partition_by=["p"])
    assert table.overwrite(arrow([]), partitions="dynamic").skipped and table.version == 3


def test_a_table_without_partitions_has_none_to_replace() -> None:
    store = memory()
    table = table_of(store, FILES, {})
    before = set(objects(store))
    with pytest.raises(CallError, match="no partitions"):
        table.overwrite(arrow([(1, "a", 1, None, None)]), partitions="dynamic")
    with pytest.raises(CallError, match="dynamic"):
        table.overwrite(arrow([]), partitions="static")  # type: ignore[arg-type]
    assert set(objects(store)) == before


# ----------------------------------------------------------------------------- comparison with SQL semantics

NUMBERS = st.none() | st.integers(-2, 3)
FLOATS = st.none() | st.sampled_from([math.nan, -math.inf, -1.0, -0.0, 0.0, 2.5, math.inf])
TEXTS = st.none() | st.sampled_from(["x", "xy", "y", "é", "x" * 40])
ROWS = st.lists(st.tuples(st.none() | st.sampled_from(["a", "b"]), NUMBERS, FLOATS, TEXTS), min_size=1, max_size=8)


def _leaves() -> st.SearchStrategy[Predicate]:
    values: dict[str, st.SearchStrategy[Any]] = {
        "p": st.sampled_from(["a", "b", "c"]),
        "i": NUMBERS,
        "f": FLOATS,
        "s": TEXTS,
    }

    def leaf(name: str) -> st.SearchStrategy[Predicate]:
        operator = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"])
        lists = st.lists(values[name], min_size=1, max_size=3).map(tuple)
        column = st.just(Name((name,)))
        found: st.SearchStrategy[Any] = st.builds(Comparison, operator, column, values[name].map(Literal))
        found = found | st.builds(In, column, lists) | st.builds(IsNull, column)
        return found | st.builds(StartsWith, column, st.sampled_from(["x", "xy"])) if name == "s" else found

    return st.sampled_from(list(values)).flatmap(leaf)


PREDICATES = st.recursive(
    _leaves(), lambda p: st.builds(And, p, p) | st.builds(Or, p, p) | st.builds(Not, p), max_leaves=4
)


def truth(predicate: Expression, row: Mapping[str, Any]) -> bool | None:
    """The SQL truth value of a predicate for a row, computed without Arrow: True, False, or None for "unknown"."""
    if isinstance(predicate, Not):
        inner = truth(predicate.operand, row)
        return None if inner is None else not inner
    if isinstance(predicate, (And, Or)):
        both = (truth(predicate.left, row), truth(predicate.right, row))
        decisive = isinstance(predicate, Or)
        return decisive if decisive in both else None if None in both else not decisive
    assert isinstance(predicate, (Comparison, In, IsNull, StartsWith))
    column = predicate.left if isinstance(predicate, Comparison) else predicate.operand
    assert isinstance(column, Name)
    value = row[column.path[0]]
    if isinstance(predicate, IsNull):
        return value is None
    if isinstance(predicate, Comparison):
        assert isinstance(predicate.right, Literal)
        return compared(predicate.operator, value, predicate.right.value)
    if value is None:
        return None
    if isinstance(predicate, StartsWith):
        return value.startswith(predicate.prefix)
    each = [compared("=", value, other) for other in predicate.values]
    return True if True in each else None if None in each else False


OPERATORS = {"=": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}


def compared(operator: str, left: Any, right: Any) -> bool | None:
    if operator == "<=>":
        return left is right if None in (left, right) else compared("=", left, right)
    if left is None or right is None:
        return None
    one, other = rank(left), rank(right)
    return bool(OPERATORS[operator](one, other))


def rank(value: Any) -> Any:
    """NaN equals itself and is greater than infinity."""
    return ((1, 0.0) if math.isnan(value) else (0, value)) if isinstance(value, float) else value


numbers = itertools.count()


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(
    st.lists(ROWS, min_size=1, max_size=3), st.lists(PREDICATES, min_size=1, max_size=2),
    st.sampled_from(list(MODES)), st.sampled_from([[], ["p"], ["i"], ["p", "f"]]),
)  # fmt: skip
def test_exactly_the_rows_for_which_the_condition_is_not_true_are_left(
    files: list[Any], predicates: list[Predicate], mode: str, partition_by: list[str]
) -> None:
    numbered = [[(next(numbers), *row) for row in rows] for rows in files]
    table = table_of(memory(), numbered, {**MODES[mode], **CHANGES}, partition_by=partition_by)
    left = {row[0]: dict(zip(SCHEMA.names, row, strict=True)) for rows in numbered for row in rows}
    for predicate in predicates:
        gone = {i for i, row in left.items() if truth(predicate, row) is True}
        result = table.delete(predicate)
        assert result.skipped == (not gone)
        left = {i: row for i, row in left.items() if i not in gone}
        found = table.snapshot().scan().to_arrow().to_pylist()
        assert collections.Counter(map(repr, found)) == collections.Counter(map(repr, left.values()))
        if gone:
            assert changes(table, table.version) == [("delete", i) for i in sorted(gone)]
