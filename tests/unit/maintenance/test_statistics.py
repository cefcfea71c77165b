"""Missing statistics are computed from footers and rows."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import CallError, CommitConflictError, DeltaTable
from deltalog.errors import InvalidDataFileError, RowCountError
from deltalog.log.file_tables import add_actions
from deltalog.maintenance import statistics
from deltalog.protocol.column_mapping import MODE_KEY
from deltalog.testing.stores import FaultyStore
from tests.support.core import environment, ids, info, memory, rows

UTC = datetime.timezone.utc
TIME = pa.timestamp("us", "UTC")
NESTED = pa.struct([("a", pa.string()), ("b", pa.bool_())])
KINDS = pa.table(
    {
        "i": pa.array([3, None, 1], pa.int32()),
        "d": pa.array([decimal.Decimal("1.20"), decimal.Decimal("-7.05"), None], pa.decimal128(20, 2)),
        "f": pa.array([0.5, -0.0, 2.25], pa.float64()),
        "t": pa.array([datetime.datetime(2024, 1, n, 1, 2, 3, 4567, UTC) for n in (1, 2, 3)], TIME),
        "day": pa.array([datetime.date(2024, 1, 1), None, datetime.date(1583, 1, 1)], pa.date32()),
        "s": pa.array([{"a": "x" * 40, "b": None}, None, {"a": "y", "b": True}], NESTED),
        "l": pa.array([[1], [], None], pa.list_(pa.int64())),
        "n": pa.nulls(3, pa.int64()),
    }
)  # fmt: skip


def strip(table: DeltaTable, change: Callable[[dict[str, Any]], Any] = lambda body: None) -> None:
    """Add all files again, with their statistics replaced by the result of ``change``."""
    with table.transaction() as transaction:
        files = add_actions(table.snapshot().files())
        texts = [change(json.loads(add.stats or "{}")) for add in files]
        transaction.add(
            *(
                msgspec.structs.replace(add, stats=None if text is None else json.dumps(text), data_change=False)
                for add, text in zip(files, texts, strict=True)
            ),
            known=True,
        )
        transaction.commit("WRITE")


def bodies(table: DeltaTable) -> list[dict[str, Any]]:
    """The statistics, ordered by path."""
    files = table.snapshot().files(["path", "stats"]).sort_by("path")
    return [json.loads(text) for text in files["stats"].to_pylist()]


def faults(table: DeltaTable) -> list[str]:
    """The findings of a check. Missing version checksums are left out, because a version that adds a live file again
    has no .crc."""
    return [finding.rule for finding in table.check(deep=True).findings if finding.rule != "crc-missing"]


def without_id(body: dict[str, Any]) -> dict[str, Any]:
    del body["minValues"]["id"], body["maxValues"]["id"], body["nullCount"]["id"]
    return body


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_statistics_are_those_of_a_write(mode: str) -> None:
    table = DeltaTable.create(memory(), KINDS.schema, properties={MODE_KEY: mode}, data=KINDS)
    table.append(KINDS.slice(0, 1))
    written = bodies(table)
    strip(table)
    result = table.compute_statistics()
    assert bodies(table) == written
    store = table._handle.reader.store
    assert info(store, result.version)["operation"] == "COMPUTE STATS"
    assert info(store, result.version)["operationParameters"] == {"predicate": "[]"}
    assert info(store, result.version)["isBlindAppend"] is False
    assert faults(table) == []
    assert table.compute_statistics().skipped and table.version == result.version


def test_only_what_is_missing_is_added() -> None:
    table = DeltaTable.create(memory(), rows().schema, data=rows(1, 5))
    strip(table, lambda body: {**without_id(body), "other": [1]})
    table.append(rows(7))
    version = table.compute_statistics().version
    added = [json.loads(line)["add"] for line in _lines(table, version) if b'"add"' in line]
    assert len(added) == 1 and added[0]["dataChange"] is False
    body = json.loads(added[0]["stats"])
    assert body["minValues"] == {"id": 1, "name": "n1"} and body["maxValues"] == {"id": 5, "name": "n5"}
    assert body["nullCount"] == {"id": 0, "name": 0} and body["numRecords"] == 2 and body["other"] == [1]


def _lines(table: DeltaTable, version: int) -> list[bytes]:
    return table._handle.reader.store.get(f"_delta_log/{version:020}.json").splitlines()


@pytest.mark.parametrize(
    ("properties", "columns"),
    [
        ({"delta.dataSkippingNumIndexedCols": "1"}, {"id"}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, set()),
        ({"delta.dataSkippingNumIndexedCols": "0", "delta.dataSkippingStatsColumns": "name"}, {"name"}),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, {"id", "name"}),
    ],
)
def test_properties_say_which_columns(properties: dict[str, str], columns: set[str]) -> None:
    table = DeltaTable.create(memory(), rows().schema, data=rows(1, 5))
    strip(table)
    table.set_properties(properties)
    table.compute_statistics()
    (body,) = bodies(table)
    assert body["numRecords"] == 2 and body.get("nullCount", {}).keys() == columns
    assert body.get("minValues", {}).keys() == columns


def test_a_clustered_table_can_get_other_columns() -> None:
    table = DeltaTable.create(
        memory(), rows().schema, properties={"delta.dataSkippingNumIndexedCols": "1"}, data=rows(1, 5)
    )
    with pytest.raises(CallError, match="lack statistics of name"):
        table.cluster_by(["name"])
    table.set_properties({"delta.dataSkippingNumIndexedCols": "2"})
    table.compute_statistics()
    table.cluster_by(["name"])
    table.set_properties({"delta.dataSkippingNumIndexedCols": "0"})
    strip(table)
    table.compute_statistics()
    assert bodies(table)[0]["minValues"] == {"name": "n1"}


def test_deletion_vectors_row_ids_and_tags_stay() -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    table = DeltaTable.create(memory(), rows().schema, properties=properties, data=rows(1, 2, 3))
    with table.transaction() as transaction:
        (add,) = add_actions(table.snapshot().files())
        transaction.add(msgspec.structs.replace(add, tags={"k": "v"}, data_change=False), known=True)
        transaction.commit("WRITE")
    table.delete("id = 1")
    strip(table, lambda body: {"numRecords": 3, "tightBounds": False})
    tracked = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    before, moved = table.snapshot().files(), table.snapshot().scan(tracked).to_arrow()
    table.compute_statistics()
    after = table.snapshot().files()
    assert before.drop_columns(["stats"]).equals(after.drop_columns(["stats"]))
    assert after["tags"].to_pylist() == [[("k", "v")]] and after["deletion_vector"].null_count == 0
    assert table.snapshot().scan(tracked).to_arrow().equals(moved)
    (body,) = bodies(table)
    assert body["tightBounds"] is False and body["minValues"]["id"] == 1 and body["numRecords"] == 3
    assert faults(table) == []


def test_nan_is_above_all_numbers_and_leaves_no_bounds() -> None:
    """Arrow's footers ignore NaN in their min and max."""
    store = memory()
    with store.open_output("nan.parquet") as file:
        pq.write_table(pa.table({"f": [1.0, math.nan], "g": [1.0, 2.0]}), file)
    table = DeltaTable.convert(store, environment=environment())
    strip(table)
    table.compute_statistics()
    (body,) = bodies(table)
    assert body["minValues"] == {"g": 1.0} and body["maxValues"] == {"g": 2.0} and body["nullCount"] == {"f": 0, "g": 0}
    assert table.snapshot().scan(where="f > 5").to_arrow().num_rows == 1
    assert table.compute_statistics().skipped


@pytest.mark.parametrize("options", [{"write_statistics": False}, {"use_deprecated_int96_timestamps": True}])
def test_rows_are_read_where_footers_say_nothing(options: dict[str, Any]) -> None:
    store = memory()
    with store.open_output("x.parquet") as file:
        pq.write_table(KINDS, file, row_group_size=2, **options)
    table = DeltaTable.convert(store, environment=environment())
    converted = bodies(table)[0]
    table.compute_statistics()
    written = DeltaTable.create(memory(), KINDS.schema, data=KINDS)
    assert bodies(table) == bodies(written) != [converted]


def test_other_numbers_of_rows_are_refused() -> None:
    table = DeltaTable.create(memory(), rows().schema, data=rows(1, 2, 3))
    strip(table, lambda body: {"numRecords": 2})
    with pytest.raises(RowCountError, match="has 2 rows by the log or its footer, but 3 were found"):
        table.compute_statistics()
    strip(table)
    (path,) = table.snapshot().files()["path"].to_pylist()
    table._handle.reader.store.delete(path)
    with pytest.raises(InvalidDataFileError, match=path):
        table.compute_statistics()
    assert table.version == 2


def test_partitions_are_chosen() -> None:
    table = DeltaTable.create(memory(), rows().schema, partition_by=["name"], data=rows(1, 2))
    strip(table)
    table.compute_statistics("name = 'n1'")
    assert [text is None for text in table.snapshot().files().sort_by("path")["stats"].to_pylist()] == [False, True]
    assert info(table._handle.reader.store, 2)["operationParameters"] == {"predicate": "[\"(name = 'n1')\"]"}
    with pytest.raises(CallError, match="id is not a partition column"):
        table.compute_statistics("id = 1")


def test_many_files_are_several_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaTable.create(memory(), rows().schema, data=rows(0))
    for number in range(1, 5):
        table.append(rows(number))
    strip(table)
    monkeypatch.setattr(statistics, "FILES_PER_COMMIT", 2)
    assert table.compute_statistics().version == 8 == table.version
    assert [body["minValues"]["id"] for body in bodies(table)] == sorted(range(5), key=_path_of(table))


def _path_of(table: DeltaTable) -> Callable[[int], str]:
    paths = {
        json.loads(text)["minValues"]["id"]: path
        for path, text in zip(*(table.snapshot().files()[name].to_pylist() for name in ("path", "stats")), strict=True)
    }
    return lambda number: paths[number]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.append(rows(9)),
        lambda t: t.delete("id = 1"),
        lambda t: t.delete(),
        lambda t: t.optimize.compact(),
    ],
    ids=["append", "delete of a row", "delete of all", "compaction"],
)
def test_other_writers(change: Callable[[DeltaTable], Any]) -> None:
    """Concurrent appends do not conflict. Files that other writers have changed in the meantime are left out, or used
    in their changed form."""
    inner = memory()
    table = DeltaTable.create(inner, rows().schema, properties={"delta.enableDeletionVectors": "true"}, data=rows(1, 2))
    table.append(rows(3))
    strip(table)
    changed: list[Any] = []

    def race(call: Any) -> None:
        if call.method == "put_if_absent" and not changed:
            changed.append(True)
            changed.append(change(DeltaTable.open(inner)))

    mine = DeltaTable.open(FaultyStore(inner, race), environment=environment())
    mine.compute_statistics()
    found = DeltaTable.open(inner)
    assert len(changed) == 2 and all(body["nullCount"]["id"] == 0 for body in bodies(found))
    assert ids(found) == ids(mine) and faults(found) == []


def test_ten_conflicts_are_an_error() -> None:
    inner = memory()
    table = DeltaTable.create(inner, rows().schema, data=rows(1, 2))
    strip(table)

    def race(call: Any) -> None:
        if call.method == "put_if_absent":
            strip(DeltaTable.open(inner))

    with pytest.raises(CommitConflictError):
        DeltaTable.open(FaultyStore(inner, race), environment=environment()).compute_statistics()
    assert bodies_are_absent(DeltaTable.open(inner))


def bodies_are_absent(table: DeltaTable) -> bool:
    return bool(table.snapshot().files()["stats"].null_count == table.snapshot().num_files)
