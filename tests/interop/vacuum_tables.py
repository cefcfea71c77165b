"""Tables with various histories, on which dry runs of vacuum by both engines are compared.

Each builder function creates a table with either engine and returns nothing. After a builder has run, all data files
are made two days old, so that a vacuum with a retention of 0 hours may delete them; files whose path begins with
``young`` stay new.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from deltalog import Dataset, DeltaTable, Environment
from tests.interop.feature_tables.feature import CHANGES, DAY_MS, ICT, MAPPED, TRACKED, V2, VECTORS
from tests.support.spark import DeltaSpark
from tests.support.spark.shapes import DDL, PLACES, SCHEMA, batch

#: The reasons why deltalog's vacuum and delta-spark's differ; docs/maintenance.md contains the same sentences.
YOUNG = "deltalog keeps a file younger than a day that no version names, whatever the retention"
LINK = "deltalog follows no symbolic link; delta-spark deletes the files in a linked directory"
TABLE = "deltalog keeps a directory with a `_delta_log` of its own"
NAME = "deltalog keeps files with names that a log cannot contain"
CASE = "deltalog keeps a name that differs from a needed one by case only"
TEMPORARY = "deltalog deletes its own temporary files, which delta-spark ignores as hidden"
CHECKSUM = "deltalog lists Hadoop's checksums of deleted files, which delta-spark deletes without listing them"
REASONS = (YOUNG, LINK, TABLE, NAME, CASE, TEMPORARY, CHECKSUM)

REMOVED_CHECKSUMS = "*.crc"  # Hadoop's checksums of files that delta-spark wrote and a commit removed

Builder = Callable[[DeltaSpark, Path], None]
NO_DIFFERENCES: Mapping[str, str] = {}


@dataclass(frozen=True)
class Case:
    """A table. ``hours``: the retention. ``ours`` and ``theirs``: path patterns, each with the reason, of the files
    that only deltalog or only delta-spark would delete; ``lite_…``: the same for VACUUM LITE."""

    build: Builder
    hours: int = 0
    ours: Mapping[str, str] = field(default_factory=dict)
    theirs: Mapping[str, str] = field(default_factory=dict)
    lite_theirs: Mapping[str, str] = field(default_factory=dict)

    @property
    def lite_ours(self) -> Mapping[str, str]:
        """The part of ``ours`` that also applies to VACUUM LITE: only the Hadoop checksum files of removed files."""
        return {pattern: why for pattern, why in self.ours.items() if pattern == REMOVED_CHECKSUMS}


CASES: dict[str, Case] = {}


def case(
    hours: int = 0,
    ours: Mapping[str, str] = NO_DIFFERENCES,
    theirs: Mapping[str, str] = NO_DIFFERENCES,
    lite_theirs: Mapping[str, str] = NO_DIFFERENCES,
) -> Callable[[Builder], Builder]:
    """Add a table."""

    def register(build: Builder) -> Builder:
        CASES[build.__name__] = Case(build, hours, ours, theirs, lite_theirs)
        return build

    return register


def make(name: str, delta: DeltaSpark, path: Path) -> None:
    """Build a table, and set the modification times of its data files to two days ago, except links and files whose
    paths contain "young"."""
    CASES[name].build(delta, path)
    old = time.time() - 2 * DAY_MS / 1000
    for file in path.rglob("*"):
        relative = file.relative_to(path).as_posix()
        if not (relative.startswith("_delta_log") or "young" in relative or file.is_symlink()):
            os.utime(file, (old, old))


def created(path: Path, *properties: dict[str, str], by: tuple[str, ...] = ()) -> DeltaTable:
    """A table of three appends."""
    merged = {key: value for each in properties for key, value in each.items()}
    table = DeltaTable.create(str(path), SCHEMA, properties=merged, partition_by=by)
    for start in (0, 14, 28):
        table.append(batch(start, 14))
    return table


def spark_table(delta: DeltaSpark, path: Path, properties: str = "", by: str = "") -> str:
    """The same table, created by delta-spark. Returns its name in SQL."""
    name = f"delta.`{path}`"
    options = f" PARTITIONED BY ({by})" if by else ""
    options += f" TBLPROPERTIES ({properties})" if properties else ""
    delta.sql(f"CREATE TABLE {name} ({DDL}) USING delta{options}")
    for start in (0, 14, 28):
        rows = delta.spark.createDataFrame(batch(start, 14).to_pylist(), DDL)
        rows.coalesce(1).write.format("delta").mode("append").save(str(path))
    return name


def stray(path: Path, *names: str) -> None:
    """Write files that no version refers to."""
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"stray")


def part(number: int = 1) -> str:
    """A data file name like those that writers choose."""
    return f"part-{number:05d}-{uuid.UUID(int=number)}-c000.snappy.parquet"


# ----------------------------------------------------------------------------- tables written by deltalog


@case()
def appended(delta: DeltaSpark, path: Path) -> None:
    created(path)


@case()
def overwritten(delta: DeltaSpark, path: Path) -> None:
    created(path).overwrite(batch(5))


@case()
def overwritten_in_part(delta: DeltaSpark, path: Path) -> None:
    created(path, by=("place",)).overwrite(batch(1, 1), where="place = 'plain'")


@case()
def deleted_by_rewriting(delta: DeltaSpark, path: Path) -> None:
    created(path).delete("id IN (3, 20)")


@case()
def deleted_by_vectors(delta: DeltaSpark, path: Path) -> None:
    table = created(path, VECTORS)
    for number in (3, 4, 20):
        table.delete(f"id = {number}")


@case()
def vectors_purged(delta: DeltaSpark, path: Path) -> None:
    table = created(path, VECTORS)
    table.delete("id = 3")
    table.optimize.purge()


@case()
def compacted_and_ordered(delta: DeltaSpark, path: Path) -> None:
    table = created(path, TRACKED)
    table.optimize.compact()
    table.append(batch(60))
    table.optimize.z_order(["id", "amount"])


@case()
def changes_recorded(delta: DeltaSpark, path: Path) -> None:
    table = created(path, CHANGES, VECTORS)
    table.update({"amount": "0.0"}, "id < 5")
    table.delete("id = 20")


@case()
def changes_and_partitions(delta: DeltaSpark, path: Path) -> None:
    table = created(path, CHANGES, by=("place",))
    table.update({"amount": "1.0"}, "id < 9")


@case()
def partitions_of_odd_characters(delta: DeltaSpark, path: Path) -> None:
    created(path, by=("place",)).overwrite(batch(0, len(PLACES)))


@case()
def partitions_of_hidden_names(delta: DeltaSpark, path: Path) -> None:
    table = DeltaTable.create(
        str(path), pa.schema([("id", pa.int64()), ("_p", pa.string())]), partition_by=["_p"],
        data=pa.table({"id": [1, 2], "_p": ["a", "b"]}),
    )  # fmt: skip
    table.delete("id = 1")


@case()
def columns_mapped(delta: DeltaSpark, path: Path) -> None:
    table = created(path, MAPPED, VECTORS, by=("place",))
    table.rename_column("amount", "price")
    table.delete("id < 9")
    table.drop_columns(["price"])
    table.overwrite(batch(0).drop_columns(["amount"]))


@case()
def checkpointed(delta: DeltaSpark, path: Path) -> None:
    table = created(path)
    table.overwrite(batch(3))
    table.checkpoint()
    table.overwrite(batch(6))


@case()
def checkpointed_v2(delta: DeltaSpark, path: Path) -> None:
    table = created(path, V2, VECTORS)
    table.delete("id = 1")
    table.checkpoint()
    table.delete("id = 2")


@case()
def in_commit_timestamps(delta: DeltaSpark, path: Path) -> None:
    created(path, ICT).overwrite(batch(2))


@case()
def restored(delta: DeltaSpark, path: Path) -> None:
    table = created(path)
    table.overwrite(batch(3))
    table.restore(2)


@case()
def blobs(delta: DeltaSpark, path: Path) -> None:
    dataset = Dataset(path)
    for data in (b"first", b"second"):
        dataset.write(data)


@case()
def vacuumed_before(delta: DeltaSpark, path: Path) -> None:
    table = created(path)
    table.overwrite(batch(3))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.overwrite(batch(4))


@case(hours=168)
def nothing_is_old_enough(delta: DeltaSpark, path: Path) -> None:
    created(path).overwrite(batch(3))


@case(hours=24)
def removed_before_and_within_the_retention(delta: DeltaSpark, path: Path) -> None:
    """One writer's clock is two days behind. All files are older than the retention."""
    day = {"delta.deletedFileRetentionDuration": "interval 24 hours"}
    past = Environment(clock_ms=lambda: time.time_ns() // 1_000_000 - 2 * DAY_MS)
    table = DeltaTable.create(str(path), SCHEMA, properties=day, data=batch(0), environment=past)
    table.overwrite(batch(3))
    for commit in (path / "_delta_log").glob("*.json"):
        os.utime(commit, (time.time() - 2 * DAY_MS / 1000,) * 2)
    DeltaTable.open(str(path)).overwrite(batch(6))


# --------------------------------------------------------------------------------- files that no log names


@case()
def stray_files(delta: DeltaSpark, path: Path) -> None:
    created(path)
    stray(path, part(), "place=x/" + part(2), "notes.txt", "deletion_vector_" + str(uuid.UUID(int=7)) + ".bin")


@case(theirs={"young*": YOUNG})
def stray_files_that_are_young(delta: DeltaSpark, path: Path) -> None:
    created(path)
    stray(path, "young-" + part(), "old-" + part(2))


@case(ours={".*.tmp": TEMPORARY, "place=x/.*.tmp": TEMPORARY})
def temporary_files(delta: DeltaSpark, path: Path) -> None:
    created(path)
    stray(path, f".{uuid.UUID(int=1)}.tmp", f"place=x/.{uuid.UUID(int=2)}.tmp", ".somebody-elses.tmp")


@case()
def hidden_files_and_directories(delta: DeltaSpark, path: Path) -> None:
    created(path)
    stray(
        path, "_blobs/" + str(uuid.UUID(int=3)), ".hidden/" + part(), "_metadata", "_delta_index/" + part(2), "x/_y/z"
    )


@case()
def failed_jobs(delta: DeltaSpark, path: Path) -> None:
    created(path)
    job = f"_delta_index-deltalog-job-{uuid.UUID(int=4)}"
    stray(path, f"{job}/{part()}", f"_temporary/0/_temporary/attempt_1/{part(2)}", f"_change_data/cdc-{part(3)}")


@case(ours={".*.crc": CHECKSUM})
def checksums_of_hadoop(delta: DeltaSpark, path: Path) -> None:
    created(path)
    stray(path, part(), f".{part()}.crc", f".{part(2)}.crc")


@case(theirs={"linked/*": LINK})
def a_link_to_a_directory(delta: DeltaSpark, path: Path) -> None:
    created(path)
    outside = path.with_name(f"{path.name}-outside")
    stray(outside, part())
    os.utime(outside / part(), (time.time() - 2 * DAY_MS / 1000,) * 2)
    (path / "linked").symlink_to(outside)


@case(theirs={"inner/*": TABLE})
def a_table_in_a_table(delta: DeltaSpark, path: Path) -> None:
    created(path)
    created(path / "inner")


@case(theirs={"*\\*": NAME})
def names_that_no_log_can_have(delta: DeltaSpark, path: Path) -> None:
    created(path)
    stray(path, "back\\slash.parquet", "a b%20c.parquet", "ä€😀.parquet")


@case(theirs={"PART-*": CASE})
def names_that_differ_by_case(delta: DeltaSpark, path: Path) -> None:
    table = created(path)
    stray(path, table.snapshot().files()["path"][0].as_py().upper())


@case()
def empty_directories(delta: DeltaSpark, path: Path) -> None:
    created(path)
    (path / "place=gone" / "below").mkdir(parents=True)


# --------------------------------------------------------------------------------- tables of delta-spark


@case(ours={REMOVED_CHECKSUMS: CHECKSUM})
def spark_overwritten(delta: DeltaSpark, path: Path) -> None:
    name = spark_table(delta, path, by="place")
    delta.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE id < 9")


@case(ours={REMOVED_CHECKSUMS: CHECKSUM})
def spark_deleted_by_vectors(delta: DeltaSpark, path: Path) -> None:
    name = spark_table(delta, path, "'delta.enableDeletionVectors' = 'true'")
    for number in (3, 4, 20):
        delta.sql(f"DELETE FROM {name} WHERE id = {number}")


@case(ours={REMOVED_CHECKSUMS: CHECKSUM})
def spark_changes_recorded(delta: DeltaSpark, path: Path) -> None:
    name = spark_table(delta, path, "'delta.enableChangeDataFeed' = 'true'")
    delta.sql(f"UPDATE {name} SET amount = 0 WHERE id < 5")
    delta.sql(f"DELETE FROM {name} WHERE id = 20")


@case(ours={REMOVED_CHECKSUMS: CHECKSUM})
def spark_merged(delta: DeltaSpark, path: Path) -> None:
    name = spark_table(delta, path)
    delta.sql(
        f"MERGE INTO {name} t USING (SELECT * FROM {name} WHERE id < 4) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = 'x'"
    )


@case(ours={REMOVED_CHECKSUMS: CHECKSUM})
def spark_optimized(delta: DeltaSpark, path: Path) -> None:
    name = spark_table(delta, path, "'delta.enableDeletionVectors' = 'true'")
    delta.sql(f"DELETE FROM {name} WHERE id = 3")
    delta.sql(f"OPTIMIZE {name} ZORDER BY (id)")


@case(ours={REMOVED_CHECKSUMS: CHECKSUM})
def spark_restored(delta: DeltaSpark, path: Path) -> None:
    name = spark_table(delta, path)
    delta.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE id < 9")
    delta.sql(f"RESTORE {name} TO VERSION AS OF 2")


@case(ours={REMOVED_CHECKSUMS: CHECKSUM})
def spark_checkpointed(delta: DeltaSpark, path: Path) -> None:
    name = spark_table(delta, path, "'delta.checkpointPolicy' = 'v2'")
    delta.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE id < 9")
    delta.checkpoint(path)
    delta.sql(f"DELETE FROM {name} WHERE id = 1")


@case(ours={REMOVED_CHECKSUMS: CHECKSUM})
def spark_columns_mapped(delta: DeltaSpark, path: Path) -> None:
    name = spark_table(delta, path, "'delta.columnMapping.mode' = 'name'", by="place")
    delta.sql(f"ALTER TABLE {name} RENAME COLUMN amount TO price")
    delta.sql(f"DELETE FROM {name} WHERE id < 9")


@case(ours={REMOVED_CHECKSUMS: CHECKSUM})
def both_engines(delta: DeltaSpark, path: Path) -> None:
    table = created(path, VECTORS, CHANGES)
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    table.delete("id = 4")
    delta.sql(f"UPDATE delta.`{path}` SET amount = 1 WHERE id = 5")
    table.optimize.compact()
