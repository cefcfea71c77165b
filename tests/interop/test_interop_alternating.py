"""delta-spark and deltalog write to one table in turn, and conflict with each other.

The writers deliberately do not run concurrently: on a local disk delta-spark commits by a check and a rename, so
processes that really race may overwrite each other's commits, whatever deltalog does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import deltalog
from deltalog import DeltaTable
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.agreement import assert_same_rows, assert_same_time_travel
from tests.support.spark.log_files import actions, commits, in_commit_timestamps
from tests.support.spark.shapes import ICT, SCHEMA, Shape, Writer, appends, batch

BOTH = ("delta-spark", "deltalog")
ON = {ICT: "true"}


@dataclass(frozen=True)
class Turns:
    """Eight appends, alternating between the engines. `enable_at`: the number of the append before which in-commit
    timestamps are enabled; `by`: the engine that enables them."""

    first: str
    shape: Shape
    enable_at: int | None = None
    by: str = ""


CASES = {
    "ict-created-by-delta-spark": Turns("delta-spark", Shape(appends(*range(0, 24, 3)), ict=True)),
    "ict-created-by-deltalog": Turns("deltalog", Shape(appends(*range(0, 24, 3)), ict=True)),
    "enabled-half-way-by-delta-spark": Turns("deltalog", Shape(appends(*range(0, 24, 3))), 4, "delta-spark"),
    "enabled-half-way-by-deltalog": Turns("delta-spark", Shape(appends(*range(0, 24, 3))), 4, "deltalog"),
    "partitioned-checkpoints-every-second": Turns(
        "deltalog", Shape(appends(*range(0, 24, 3)), ict=True, interval=2, partition_by=("place",))
    ),
    "checkpoints-every-third-enabled-late": Turns(
        "delta-spark", Shape(appends(*range(0, 24, 3)), interval=3), 4, "deltalog"
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_appends_in_turn(delta: DeltaSpark, writers: dict[str, Writer], case: Turns, tmp_path: Path) -> None:
    path = tmp_path / "table"
    order = BOTH if case.first == BOTH[0] else BOTH[::-1]
    writers[case.first].create(path, case.shape)
    engines = ["created by " + case.first]
    for turn, step in enumerate(case.shape.steps):
        if turn == case.enable_at:
            writers[case.by].step(path, ("enable",))
            engines.append(case.by)
        engines.append(order[turn % 2])
        writers[engines[-1]].step(path, step)

    stamps = in_commit_timestamps(path)
    assert list(stamps) == list(range(len(engines)))
    written_by = [actions(file)[0]["commitInfo"]["engineInfo"] for file in commits(path).values()]
    assert ["Delta-Lake" in info for info in written_by] == ["delta-spark" in name for name in engines]
    enabled = 0 if case.enable_at is None else case.enable_at + 1
    assert [ms is not None for ms in stamps.values()] == [v >= enabled for v in stamps]
    present = [ms for ms in stamps.values() if ms is not None]
    assert present == sorted(set(present)), "in-commit timestamps must be strictly increasing"

    expected = case.shape.as_read(pa.concat_tables([batch(step[1]) for step in case.shape.steps]))
    assert plain_rows(DeltaTable.open(str(path)).snapshot().scan().to_arrow()) == expected
    assert plain_rows(delta.table(path)) == expected
    assert plain_rows(deltalake.DeltaTable(str(path)).to_pyarrow_table().select(SCHEMA.names)) == expected
    assert_same_rows(delta, path, version=len(engines) // 2)
    assert_same_time_travel(delta, path)
    assert delta.checksum_defect(path) is None
    if case.shape.interval is not None:
        last = (len(engines) - 1) // case.shape.interval * case.shape.interval
        hint = delta.last_checkpoint(path)
        assert hint is not None and hint[0] == last and hint[1] > 0, hint
        for engine in BOTH:  # both engines continue to commit after the checkpoint
            writers[engine].step(path, ("append", 100))
        assert_same_rows(delta, path)


def test_delta_spark_changes_rows_that_deltalog_wrote(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(str(path), SCHEMA, properties=ON, data=batch(0, 10))
    table.append(batch(10, 10))
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id IN (2, 3, 15)")
    delta.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT 5L AS id UNION SELECT 99L) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = 'changed' WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'new')"
    )
    table.append(batch(30))
    rows = {row["id"]: row["name"] for row in table.snapshot().scan().to_arrow().to_pylist()}
    assert set(rows) == ({*range(20), 99, 30, 31, 32} - {2, 3, 15})
    assert (rows[5], rows[99]) == ("changed", "new")
    for version in range(table.version + 1):
        assert_same_rows(delta, path, version)
    assert_same_time_travel(delta, path)
    assert delta.checksum_defect(path) is None


def test_deltalog_overwrites_what_delta_spark_wrote(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    writers["delta-spark"].create(path, Shape((), ict=True, partition_by=("place",)))
    writers["delta-spark"].step(path, ("append", 0))
    table = DeltaTable.open(str(path))
    table.overwrite(batch(50))
    narrow = pa.table({"key": ["a", "b"], "place": ["x y", None]})
    with pytest.raises(deltalog.SchemaMismatchError):
        table.overwrite(narrow)
    table.overwrite(narrow, overwrite_schema=True)
    for version in range(table.version + 1):
        assert_same_rows(delta, path, version)
    delta.sql(f"INSERT INTO delta.`{path}` VALUES ('c', 'z')")
    assert_same_rows(delta, path)
    assert_same_time_travel(delta, path)


def test_new_columns_from_either_side(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(str(path), pa.schema([("id", pa.int64())]), properties=ON)
    table.append(pa.table({"id": [1]}))
    table.append(pa.table({"id": [2], "extra": [pa.scalar("x").as_py()]}), merge_schema=True)
    delta.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (more STRUCT<a: INT, b: ARRAY<STRING>>)")
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (3, 'y', named_struct('a', 1, 'b', array('q', NULL)))")
    more = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    table.append(pa.table({"id": pa.array([4]), "more": pa.array([{"a": 2, "b": ["r"]}], more)}))
    for version in range(table.version + 1):
        assert_same_rows(delta, path, version)
    assert sorted(table.snapshot().scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]


# -------------------------------------------------------------------------------------- concurrent writes


def test_delta_spark_appends_while_a_deltalog_append_is_open(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    writers["deltalog"].create(path, Shape((), ict=True))
    table = DeltaTable.open(str(path))
    with table.transaction() as ours:
        ours.write(pa.RecordBatchReader.from_batches(SCHEMA, batch(100).to_batches()))
        writers["delta-spark"].step(path, ("append", 0))
        writers["delta-spark"].step(path, ("append", 3))
        result = ours.commit(operation="WRITE", parameters={"mode": "Append"})
    stamps = in_commit_timestamps(path)
    assert result.version == 3 and result.attempts == 3
    assert result.in_commit_timestamp_ms == stamps[3]
    assert (stamps[3] or 0) > (stamps[2] or 0) > (stamps[1] or 0)
    assert_same_rows(delta, path)
    assert_same_time_travel(delta, path)


def test_the_enablement_pair_follows_a_rebased_enabling_commit(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    writers["delta-spark"].create(path, Shape(()))
    table = DeltaTable.open(str(path))
    with table.transaction() as ours:
        ours.set_properties(ON)
        writers["delta-spark"].step(path, ("append", 0))
        writers["delta-spark"].step(path, ("append", 3))
        result = ours.commit(operation="SET TBLPROPERTIES")
    writers["delta-spark"].step(path, ("append", 6))
    assert result.version == 3
    configuration = delta.metadata(path)["configuration"]
    assert configuration == {
        ICT: "true",
        "delta.inCommitTimestampEnablementVersion": "3",
        "delta.inCommitTimestampEnablementTimestamp": str(in_commit_timestamps(path)[3]),
    }
    assert_same_rows(delta, path)
    assert_same_time_travel(delta, path)


def test_delta_spark_enables_while_a_deltalog_append_is_open(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    writers["delta-spark"].create(path, Shape(()))
    table = DeltaTable.open(str(path))
    with table.transaction() as ours:
        ours.write(pa.RecordBatchReader.from_batches(SCHEMA, batch(100).to_batches()))
        writers["delta-spark"].step(path, ("enable",))
        result = ours.commit(operation="WRITE")
    stamps = in_commit_timestamps(path)
    assert result.version == 2
    assert stamps[0] is None and (stamps[2] or 0) > (stamps[1] or 0) > 0
    writers["delta-spark"].step(path, ("append", 0))
    assert_same_rows(delta, path)
    assert_same_time_travel(delta, path)


@pytest.mark.parametrize("change", ["append", "schema", "enable"])
def test_what_cannot_be_rebased_is_refused_and_leaves_no_trace(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path, change: str
) -> None:
    path = tmp_path / "table"
    writers["delta-spark"].create(path, Shape(()))
    writers["delta-spark"].step(path, ("append", 0))
    table = DeltaTable.open(str(path))
    ours = table.transaction()
    expected: type[deltalog.CommitConflictError]
    if change == "append":
        ours.remove_all_files()
        expected = deltalog.errors.ConcurrentAppendError
        writers["delta-spark"].step(path, ("append", 3))
    elif change == "schema":
        ours.set_properties({"made.by": "deltalog"})
        expected = deltalog.errors.MetadataChangedError
        delta.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (late STRING)")
    else:
        ours.set_properties(ON)
        expected = deltalog.errors.ProtocolChangedError
        writers["delta-spark"].step(path, ("enable",))
    before = sorted(file.name for file in (path / "_delta_log").iterdir())
    with pytest.raises(expected) as caught:
        ours.commit(operation="WRITE")
    assert sorted(file.name for file in (path / "_delta_log").iterdir()) == before
    assert "2" in str(caught.value), "the message names the version that won"
    assert_same_rows(delta, path)


@pytest.mark.parametrize("step", ["append", "enable"])
def test_delta_spark_rebases_on_deltalog_commits(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path, step: str
) -> None:
    """delta-spark loses the race and reads deltalog's commit as the winning one."""
    path = tmp_path / "table"
    writers["delta-spark"].create(path, Shape((), ict=step == "append"))
    writers["delta-spark"].step(path, ("append", 0))
    theirs = delta.begin(path)
    table = DeltaTable.open(str(path))
    if step == "append":
        table.append(batch(3))
        table.append(batch(6))
    else:
        table.enable_in_commit_timestamps()
    assert delta.commit_nothing(theirs) == table.version + 1
    present = [ms for ms in in_commit_timestamps(path).values() if ms is not None]
    assert len(present) >= 2 and present == sorted(set(present))
    assert_same_rows(delta, path)
    assert_same_time_travel(delta, path)


# ------------------------------------------------------------------------------- other contents of commits


def test_application_transactions_are_seen_by_the_other_side(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    writers["delta-spark"].create(path, Shape((), ict=True))
    table = DeltaTable.open(str(path))
    assert table.append(batch(0), txn=("job", 7)).version == 1

    def spark_append(start: int, version: int) -> None:
        frame = delta.spark.createDataFrame(batch(start)).write.format("delta").mode("append")
        frame.option("txnAppId", "job").option("txnVersion", str(version)).save(str(path))

    spark_append(3, 7)
    assert delta.latest(path) == 1, "delta-spark must skip what deltalog has recorded"
    spark_append(3, 8)
    assert table.snapshot().transaction_version("job") == 8
    skipped = table.append(batch(6), txn=("job", 8))
    assert skipped.skipped and delta.latest(path) == 2
    assert table.append(batch(6), txn=("job", 9)).version == 3
    assert_same_rows(delta, path)


def test_user_metadata_and_commit_facts_reach_the_other_side(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    writers["deltalog"].create(path, Shape((), ict=True))
    table = DeltaTable.open(str(path))
    table.append(batch(0), user_metadata='from deltalog "ä€"')
    frame = delta.spark.createDataFrame(batch(3)).write.format("delta").mode("append")
    frame.option("userMetadata", 'from spark "ä€"').save(str(path))
    columns = ("version", "userMetadata", "isBlindAppend", "readVersion", "operation", "engineInfo")
    theirs = delta.sql(f"DESCRIBE HISTORY delta.`{path}`").select(*columns).collect()
    ours = table.history()
    assert [tuple(row) for row in theirs] == [
        (e.version, e.user_metadata, e.is_blind_append, e.read_version, e.operation, e.engine_info) for e in ours
    ]
    assert [e.user_metadata for e in ours] == ['from spark "ä€"', 'from deltalog "ä€"', None]
    detail = delta.sql(f"DESCRIBE DETAIL delta.`{path}`").select("numFiles", "sizeInBytes", "name").first()
    snapshot = table.snapshot()
    assert tuple(detail) == (snapshot.num_files, snapshot.size_bytes, snapshot.metadata.name)
