"""Identity columns: delta-spark continues the values that deltalog wrote, and vice versa."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.errors import MetadataChangedError
from deltalog.protocol.identity_columns import identity_of
from deltalog.schema import PrimitiveType, StructField, StructType, identity_column
from tests.support.spark import DeltaSpark, plain_rows


def words(*values: str) -> pa.Table:
    return pa.table({"v": pa.array(values, pa.string())})


def created(delta: DeltaSpark, path: Path, by: str, start: int, step: int, always: bool) -> None:
    """Create a table with the identity column ``id``, either by deltalog or by delta-spark."""
    if by == "deltalog":
        column = identity_column("id", start=start, step=step, by_default=not always)
        DeltaTable.create(str(path), StructType((column, StructField("v", PrimitiveType("string")))))
        return
    kind = "ALWAYS" if always else "BY DEFAULT"
    delta.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT GENERATED {kind} AS IDENTITY "
        f"(START WITH {start} INCREMENT BY {step}), v STRING) USING delta"
    )


def checked(delta: DeltaSpark, path: Path, start: int, step: int, count: int) -> None:
    """Both engines read the same rows; the values are unique, belong to the sequence, and do not exceed the high-water
    mark."""
    table = DeltaTable.open(str(path))
    found = table.to_pyarrow_table()
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids)) == count and None not in ids
    assert all((value - start) % step == 0 and (value - start) // step >= 0 for value in ids)
    identity = identity_of(table.schema.field("id"))
    assert identity is not None and not any(identity.is_beyond(value) for value in ids)
    assert plain_rows(delta.spark.read.format("delta").load(str(path)).toArrow()) == plain_rows(found)
    assert table.check(deep=True).findings == ()


@pytest.mark.parametrize("by", ["deltalog", "delta-spark"])
def test_values_go_on_from_engine_to_engine(delta: DeltaSpark, tmp_path: Path, by: str) -> None:
    path = tmp_path / "t"
    created(delta, path, by, 5, 3, True)
    DeltaTable.open(str(path)).append(words("a", "b"))
    delta.sql(f"INSERT INTO delta.`{path}` (v) SELECT 's' FROM range(0, 6, 1, 2)")
    DeltaTable.open(str(path)).append(words("c"))
    delta.sql(f"INSERT INTO delta.`{path}` (v) VALUES ('t')")
    checked(delta, path, 5, 3, 10)
    fields = [
        {key: value for key, value in field.metadata.items() if key != "delta.identity.highWaterMark"}
        for field in DeltaTable.open(str(path)).schema.fields
    ]
    other = tmp_path / "other"
    created(delta, other, "delta-spark" if by == "deltalog" else "deltalog", 5, 3, True)
    assert [dict(field.metadata) for field in DeltaTable.open(str(other)).schema.fields] == fields


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_turns_of_random_writes(delta: DeltaSpark, tmp_path: Path, seed: int) -> None:
    chosen, path = random.Random(seed), tmp_path / "t"
    start, step = chosen.randrange(-50, 50), chosen.choice([-7, -1, 1, 2, 10])
    created(delta, path, chosen.choice(["deltalog", "delta-spark"]), start, step, True)
    table, count = DeltaTable.open(str(path)), 0
    for turn in range(14):
        rows = chosen.randrange(1, 6)
        ours = words(*(f"{turn}-{n}" for n in range(rows)))
        spark_rows = f"SELECT concat('{turn}-', id) AS v FROM range(0, {rows}, 1, {chosen.randrange(1, 4)})"
        verb = chosen.choice(["append", "insert", "merge", "merge by delta-spark", "behind"])
        if verb == "append":
            table.append(ours)
        elif verb == "insert":
            delta.sql(f"INSERT INTO delta.`{path}` (v) {spark_rows}")
        elif verb == "merge":
            table.merge(ours, "target.v = source.v").when_not_matched_insert_all().execute()
        elif verb == "merge by delta-spark":
            delta.sql(
                f"MERGE INTO delta.`{path}` t USING ({spark_rows}) s ON t.v = s.v "
                "WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)"
            )
        else:
            with table.transaction() as transaction:
                transaction.write(ours.to_reader())
                delta.sql(f"INSERT INTO delta.`{path}` (v) {spark_rows}")
                with pytest.raises(MetadataChangedError):
                    transaction.commit()
        count += rows
    checked(delta, path, start, step, count)


def test_marks_that_explicit_values_of_delta_spark_leave_behind(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "t"
    created(delta, path, "deltalog", 1, 1, False)
    delta.sql(f"INSERT INTO delta.`{path}` (id, v) VALUES (3, 'given')")
    table = DeltaTable.open(str(path))
    table.set_column("id", sync_identity=True)
    table.append(words("a"))
    delta.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN id SYNC IDENTITY")
    table.append(pa.table({"id": [9], "v": ["b"]}))
    delta.sql(f"INSERT INTO delta.`{path}` (v) VALUES ('c')")
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [3, 4, 9, 10]
    checked(delta, path, 1, 1, 4)
