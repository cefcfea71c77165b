"""Setting and changing clustering columns, and ordering rows by these columns, cube by cube."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deltalog import CallError, DeltaTable, SchemaMismatchError
from deltalog.errors import ConcurrentAppendError, ConcurrentTransactionError, ProtocolChangedError
from deltalog.log.file_tables import files_table
from deltalog.maintenance.optimize.plan import CUBE_TARGETS, in_cube, to_cluster
from deltalog.protocol.actions import AddFile
from deltalog.protocol.paths import commit_path
from tests.support.core import environment, info, memory

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.struct([("y", pa.int32()), ("b", pa.bool_())])), ("v", pa.string())])
DOMAIN = "delta.clustering"


def rows(seed: int, count: int = 500) -> pa.Table:
    chance = random.Random(seed)
    return pa.table(
        {
            "x": [chance.randrange(10_000) for _ in range(count)],
            "s": [{"y": chance.randrange(100), "b": None} for _ in range(count)],
            "v": [f"{seed}-{number}" for number in range(count)],
        },
        SCHEMA,
    )


def created(store: Any = None, properties: dict[str, str] | None = None, **options: Any) -> DeltaTable:
    store = memory() if store is None else store
    return DeltaTable.create(store, SCHEMA, properties=properties, environment=environment(), **options)


def values(table: DeltaTable) -> list[str]:
    return sorted(table.to_pyarrow_table()["v"].to_pylist())


def cubes(table: DeltaTable) -> dict[str | None, int]:
    """The number of files in each cube, keyed by the cube's id; the key None stands for files in no cube."""
    found: dict[str | None, int] = {}
    for file in table.snapshot().files(["tags", "clustering_provider"]).to_pylist():
        cube = dict(file["tags"] or ()).get("ZCUBE_ID")
        assert (cube is None) == (file["clustering_provider"] is None)
        found[cube] = found.get(cube, 0) + 1
    return found


def domain(table: DeltaTable) -> Any:
    return next(json.loads(d.configuration) for d in table.snapshot().domain_metadata if d.domain == DOMAIN)


# ------------------------------------------------------------------------------------------- the columns


def test_a_table_is_created_clustered() -> None:
    store = memory()
    table = created(store, cluster_by=["x", "S.y"], data=rows(1))
    assert table.snapshot().clustering_columns == (("x",), ("s", "y"))
    assert domain(table) == {"clusteringColumns": [["x"], ["s", "y"]], "domainName": DOMAIN}
    assert {"clustering", "domainMetadata"} <= set(table.snapshot().protocol.writer_features or ())
    assert info(store, 0)["operationParameters"]["clusterBy"] == '["x","s.y"]'
    assert table.check(deep=True).findings == ()


def test_columns_are_set_changed_and_taken_away() -> None:
    store = memory()
    table = created(store, data=rows(1))
    assert table.cluster_by([]).skipped
    table.cluster_by(["x"])
    assert table.cluster_by(["X"]).skipped and table.version == 1
    table.cluster_by(["v", ["s", "y"]])
    found = info(store, 2)
    assert found["operation"] == "CLUSTER BY"
    assert found["operationParameters"] == {"oldClusteringColumns": "x", "newClusteringColumns": "v,s.y"}
    table.cluster_by([])
    assert table.snapshot().clustering_columns == () and domain(table)["clusteringColumns"] == []
    table.append(rows(2))
    assert table.optimize.compact().removed and cubes(table) == {None: 1}
    table.restore(2)
    assert table.snapshot().clustering_columns == (("v",), ("s", "y"))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_named_as_in_files(mode: str) -> None:
    table = created(properties={"delta.columnMapping.mode": mode}, cluster_by=["s.y"], data=rows(1))
    stored = domain(table)["clusteringColumns"]
    assert all(name.startswith("col-") for name in stored[0]) and len(stored[0]) == 2
    table.rename_column("s", "t")
    assert table.snapshot().clustering_columns == (("t", "y"),)
    table.optimize.compact()
    assert len(cubes(table)) == 1 and None not in cubes(table)
    with pytest.raises(SchemaMismatchError, match=r"t\.y is a clustering column"):
        table.drop_columns(["t"])


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        ("x", CallError, "columns must be"),
        (["z"], CallError, "no column"),
        (["x", "X"], CallError, "named twice"),
        (["s"], CallError, "of type struct"),
        (["s.b"], CallError, "of type boolean"),
        (["x", "v", "s.y", "s.b", "x"], CallError, "at most 4 columns"),
    ],
)
def test_columns_that_are_refused(columns: Any, error: type[Exception], said: str) -> None:
    table = created()
    with pytest.raises(error, match=said):
        table.cluster_by(columns)
    assert table.version == 0


def test_a_partitioned_table_is_not_clustered() -> None:
    with pytest.raises(SchemaMismatchError, match="partitioned by v"):
        created(partition_by=["v"], cluster_by=["x"])
    with pytest.raises(SchemaMismatchError, match="partitioned by v"):
        created(partition_by=["v"]).cluster_by(["x"])


def test_every_file_must_have_statistics_of_a_new_column() -> None:
    table = created(properties={"delta.dataSkippingNumIndexedCols": "1"}, data=rows(1))
    with pytest.raises(CallError, match="1 files lack statistics of v"):
        table.cluster_by(["v"])
    table.cluster_by(["x"])
    nulls = pa.table({"x": pa.nulls(3, pa.int64()), "v": ["a", "b", "c"]})
    other = created(data=nulls)
    other.cluster_by(["x"])
    assert other.optimize.compact().rows == 3


def test_files_that_are_added_meanwhile_conflict() -> None:
    table = created(data=rows(1))
    with table.transaction() as transaction:
        table.append(rows(2))
        transaction.metadata_changes.set_clustering(["x"])
        transaction.metadata_changes.depends_on_files = True
        with pytest.raises(ConcurrentAppendError):
            transaction.commit("CLUSTER BY")


@pytest.mark.parametrize("before", [[], ["x"]])
def test_rows_that_were_written_for_other_columns_conflict(before: list[str]) -> None:
    """Files written with the old clustering columns would have no statistics for the new column."""
    table = created(properties={"delta.dataSkippingNumIndexedCols": "1"}, cluster_by=before)
    other = DeltaTable.open(table._handle.reader.store, environment=environment())
    with other._handle._blind_append() as transaction:
        transaction.write(rows(1).to_reader())
        table.cluster_by(["v"])
        with pytest.raises((ProtocolChangedError, ConcurrentTransactionError)):
            transaction.commit()
    other.append(rows(2))
    assert table.snapshot().statistics(["v"])["min_values"].null_count == 0 and table.snapshot().num_files == 1


# ------------------------------------------------------------------------------------------- the rows


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"},
        {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
    ],
    ids=["plain", "ids and vectors", "mapped"],
)
def test_rows_are_ordered_and_kept(properties: dict[str, str]) -> None:
    store = memory()
    table = created(store, properties, cluster_by=["x", "s.y"])
    for seed in range(8):
        table.append(rows(seed))
    table.delete("x < 100")
    before = values(table)
    ids = ["v", "_metadata.row_id"] if "delta.enableRowTracking" in properties else ["v"]
    named = table.snapshot().scan(ids).to_arrow().sort_by("v")
    conditions = [f"x between {start} and {start + 300}" for start in (500, 4000, 9000)] + ["s.y = 3", "s.y = 70"]
    assert all(table.snapshot().scan(where=each).files().num_rows == table.snapshot().num_files for each in conditions)
    report = table.optimize.compact(target_size=table.snapshot().size_bytes // 8)
    assert values(table) == before and table.snapshot().scan(ids).to_arrow().sort_by("v") == named
    assert len(report.added) >= 7 and set(cubes(table).values()) == {len(report.added)}
    assert all(table.snapshot().scan(where=each).files().num_rows <= 5 for each in conditions)
    found = info(store, table.version)
    assert found["operationParameters"] == {
        "predicate": "[]", "zOrderBy": "[]", "clusterBy": '["x","s.y"]', "auto": "false", "isFull": "false",
    }  # fmt: skip
    assert found["isolationLevel"] == "SnapshotIsolation"
    assert table.check(deep=True).findings == ()
    assert table.optimize.compact(target_size=table.snapshot().size_bytes // 8).bins == 0
    with pytest.raises(CallError, match=r"compact\(\), which orders"):
        table.optimize.z_order(["x"])


def test_complete_cubes_stay_and_new_files_are_clustered() -> None:
    table = created(cluster_by=["x"])
    table.append(rows(1))
    table.optimize.compact(target_size=1)
    (first,) = cubes(table)
    table.append(rows(2))
    report = table.optimize.compact(target_size=1)
    assert len(report.removed) == 1 and set(cubes(table)) > {first}
    large = 1 << 20
    report = table.optimize.compact(target_size=large)
    assert len(report.removed) > 2 and set(cubes(table)).isdisjoint({first})
    assert len(cubes(table)) == 1 and values(table) == sorted([*rows(1)["v"].to_pylist(), *rows(2)["v"].to_pylist()])


def test_a_deletion_vector_leaves_a_file_in_its_cube() -> None:
    table = created(properties={"delta.enableDeletionVectors": "true"}, cluster_by=["x"], data=rows(1))
    table.optimize.compact()
    before = cubes(table)
    table.delete("x < 5000")
    assert table.snapshot().files()["deletion_vector"].null_count == 0 and cubes(table) == before
    table.optimize.purge()
    assert cubes(table) == {None: 1}
    table.optimize.compact()
    assert None not in cubes(table)


def test_files_of_other_columns_are_clustered_anew_with_full_only() -> None:
    table = created(cluster_by=["x"], data=rows(1))
    table.optimize.compact()
    table.cluster_by(["v"])
    assert table.optimize.compact().bins == 0
    report = table.optimize.compact(full=True)
    assert len(report.removed) == 1
    (tags,) = table.snapshot().files(["tags"])["tags"].to_pylist()
    assert dict(tags)["ZCUBE_ZORDER_BY"] == '["v"]'
    with pytest.raises(CallError, match="is not clustered"):
        created().optimize.compact(full=True)


# -------------------------------------------------------------------- the plan of a clustering change

TARGET = 100


def add(size: int, cube: str | None = None, columns: str = '["x"]', provider: str | None = None) -> AddFile:
    plain = AddFile(path=f"f{size}", partition_values={}, size=size, modification_time=1, data_change=True)
    if cube is not None:
        plain = in_cube([plain], cube, columns)[0]
    return plain if provider is None else msgspec.structs.replace(plain, clustering_provider=provider)


def planned(*adds: AddFile, full: bool = False) -> list[set[int]]:
    bins = to_cluster(files_table(adds), '["x"]', TARGET, full)
    assert all(each.size_bytes == sum(adds[number].size for number in each.numbers) for each in bins)
    return [set(each.numbers) for each in bins]


def test_which_files_are_clustered_together() -> None:
    half = CUBE_TARGETS // 2 * TARGET
    assert planned(add(5), add(6)) == [{0, 1}]
    assert planned(add(half, "a"), add(6)) == [{1}]
    assert planned(add(half - 1, "a"), add(6)) == [{0, 1}]
    assert planned(add(half - 1, "a")) == []
    assert planned(add(half // 2, "a"), add(half // 2, "a"), add(7, "b"), add(8, "b")) == []
    assert planned(add(9, "a"), add(7, "b"), add(8, "b")) == [{0, 1, 2}]
    assert planned(add(9, "a", '["y"]'), add(6)) == [{1}]
    assert planned(add(9, "a", '["y"]'), add(6), full=True) == [{0, 1}]
    assert planned(add(9, "a", "no json"), add(6)) == [{1}]
    assert planned(add(9, provider="other"), add(6)) == [{1}]
    assert planned(add(9, provider="other"), add(6), full=True) == [{0, 1}]
    assert planned(add(9, provider="liquid")) == [{0}]


def test_many_files_become_several_cubes() -> None:
    whole = CUBE_TARGETS * TARGET
    bins = planned(*(add(whole // 2) for _ in range(6)))
    assert len(bins) == 3 and set().union(*bins) == set(range(6))


def test_bounds_of_few_values_divide_the_order_too() -> None:
    table = created(cluster_by=["x", "s.y"])
    data = rows(3, 4000).set_column(0, "x", pa.array([n % 4 for n in range(4000)]))
    table.append(data.cast(SCHEMA))
    table.optimize.compact(target_size=table.snapshot().size_bytes // 8)
    bounds = table.snapshot().statistics(["x"])
    spans = [
        high["x"] - low["x"]
        for low, high in zip(bounds["min_values"].to_pylist(), bounds["max_values"].to_pylist(), strict=True)
    ]
    assert max(spans) <= 2 and pc.max(table.to_pyarrow_table()["x"]).as_py() == 3


def test_a_checkpoint_with_statistics_as_structs_only_keeps_those_of_clustering_columns() -> None:
    properties = {
        "delta.dataSkippingNumIndexedCols": "0",
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpoint.writeStatsAsStruct": "true",
    }
    store = memory()
    data = pa.table({"id": [1, 5]})
    table = DeltaTable.create(store, data.schema, properties=properties, cluster_by=["id"], data=data)
    table.append(pa.table({"id": [7, 9]}))
    table.checkpoint()
    for version in (0, 1):
        store.delete(commit_path(version))
    found = DeltaTable.open(store).snapshot()
    assert found.scan(where="id > 6").files().num_rows == 1 and found.num_files == 2
