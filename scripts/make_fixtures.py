"""Generate the small tables in fixtures/tables with delta-spark, and record delta-spark's answers about them.

    python scripts/make_fixtures.py [NAME ...] [--out DIRECTORY]

Needs Java 17+, pyspark, delta-spark and its jars (see tests/support/spark/jars.py). A table becomes a directory with
`table/` (the Delta table), `expected.json` (delta-spark's answers) and `mtimes.json` (the modification times of the log
files in ms, which git does not preserve). UUIDs and times differ between runs; the tests compare only with answers of
the same run. fixtures/README.md describes the tables.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.spark import DeltaSpark, delta_session, plain_rows, probe_times, stop_sessions  # noqa: E402
from tests.support.spark.log_files import commits, get_mtimes, set_mtimes  # noqa: E402

ICT = "delta.enableInCommitTimestamps"
DAY = 86_400_000
Maker = Callable[[DeltaSpark, Path], None]
MAKERS: dict[str, Maker] = {}


def fixture(make: Maker) -> Maker:
    MAKERS[make.__name__] = make
    return make


def create(delta: DeltaSpark, path: Path, columns: str, partition: str = "", **properties: str) -> None:
    pairs = ", ".join(f"'{key.replace('__', '.')}' = '{value}'" for key, value in properties.items())
    by = f" PARTITIONED BY ({partition})" if partition else ""
    properties_sql = f" TBLPROPERTIES ({pairs})" if pairs else ""
    delta.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta{by}{properties_sql}")


def insert(delta: DeltaSpark, path: Path, values: str) -> None:
    delta.sql(f"INSERT INTO delta.`{path}` {values}")


def add(delta: DeltaSpark, path: Path, start: int, count: int = 3) -> None:
    """Append one file with `count` rows (id, name), with ids from `start`."""
    rows = delta.sql(f"SELECT id, concat('n', id) AS name FROM range({start}, {start + count}, 1, 1)")
    rows.write.format("delta").mode("append").save(str(path))


def switch_ict(delta: DeltaSpark, path: Path, on: bool) -> None:
    delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{ICT}' = '{str(on).lower()}')")


def commit_mtimes(table: Path) -> dict[int, int]:
    return {version: file.stat().st_mtime_ns // 1_000_000 for version, file in commits(table).items()}


def set_commit_mtimes(table: Path, times: Mapping[int, int]) -> None:
    files = commits(table)
    set_mtimes(table, {files[version].name: ms for version, ms in times.items()})


ON = {"delta__enableInCommitTimestamps": "true"}
TWO = "id BIGINT, name STRING"


@fixture
def ict_from_start(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, TWO, **ON)
    add(delta, path, 0)
    add(delta, path, 3)
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false', 'made.by' = 'tests')")
    delta.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (note STRING)")
    insert(delta, path, "VALUES (10, 'n10', 'late column')")
    delta.sql(f"INSERT OVERWRITE delta.`{path}` VALUES (20, 'n20', NULL)")


@fixture
def ict_enabled_late(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, TWO)
    add(delta, path, 0)
    add(delta, path, 3)
    switch_ict(delta, path, True)
    add(delta, path, 6)
    add(delta, path, 9)


@fixture
def ict_enabled_late_copied(delta: DeltaSpark, path: Path) -> None:
    """A copied table: all log files are newer than all in-commit timestamps, in arbitrary order."""
    ict_enabled_late(delta, path)
    newest = max(commit_mtimes(path).values())
    offsets = {0: 5_000, 1: 2_000, 2: 2_000, 3: 4_000, 4: 1_000, 5: 3_000}
    set_commit_mtimes(path, {version: newest + 3_600_000 + ms for version, ms in offsets.items()})


@fixture
def ict_enabled_late_old_times(delta: DeltaSpark, path: Path) -> None:
    """The commits before the enablement are far apart and unordered, but all older than the enablement."""
    ict_enabled_late(delta, path)
    times = commit_mtimes(path)
    set_commit_mtimes(path, {0: times[0] - 90_000, 1: times[0] - 30_000, 2: times[0] - 60_000})


@fixture
def ict_disabled(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, TWO, **ON)
    add(delta, path, 0)
    switch_ict(delta, path, False)
    add(delta, path, 3)


@fixture
def ict_disabled_and_enabled_again(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, TWO, **ON)
    add(delta, path, 0)
    switch_ict(delta, path, False)
    add(delta, path, 3)
    switch_ict(delta, path, True)
    add(delta, path, 6)
    add(delta, path, 9)


@fixture
def ict_partitioned(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, "id BIGINT, place STRING, day DATE", "place, day", **ON)
    insert(delta, path, "VALUES (1, 'plain', DATE'2026-01-02'), (2, NULL, DATE'2026-01-02'), (3, '', NULL)")
    insert(delta, path, "VALUES (4, 'a b', DATE'1969-12-31'), (5, 'x=1/2%3', DATE'2026-01-02'), (6, 'ä€😀', NULL)")
    insert(delta, path, """VALUES (7, 'q"uo\\'te', DATE'2026-01-02'), (8, 'a:b#c?d+e', DATE'0001-01-01')""")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE place = 'plain'")


@fixture
def ict_checkpointed(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, TWO, delta__checkpointInterval="3", **ON)
    for start in range(0, 24, 3):
        add(delta, path, start)
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 4")


def clean_up(delta: DeltaSpark, path: Path, below: int) -> None:
    """Run delta-spark's log clean-up while the versions below `below` appear to be 90 days old."""
    real = {name: ms for name, ms in get_mtimes(path).items() if name[:20].isdigit() and int(name[:20]) < below}
    set_mtimes(path, {name: ms - 90 * DAY for name, ms in real.items()})
    delta.forget()
    add(delta, path, 900)
    delta.checkpoint(path)
    delta.forget()
    left = get_mtimes(path)
    if not real.keys() - left.keys():
        raise SystemExit(f"{path}: delta-spark's log cleanup removed nothing")
    set_mtimes(path, {name: ms for name, ms in real.items() if name in left})


@fixture
def ict_truncated(delta: DeltaSpark, path: Path) -> None:
    """Enabled at version 2; delta-spark's log clean-up deleted the commits before the checkpoint at version 4."""
    create(delta, path, TWO)
    add(delta, path, 0)
    switch_ict(delta, path, True)
    add(delta, path, 3)
    add(delta, path, 6)
    delta.checkpoint(path)
    add(delta, path, 9)
    clean_up(delta, path, below=5)
    add(delta, path, 12)


@fixture
def ict_truncated_inside_old_era(delta: DeltaSpark, path: Path) -> None:
    """Enabled at version 5; log clean-up deleted the commits before the checkpoint at version 2, so file times still
    apply to versions 2 to 4."""
    create(delta, path, TWO)
    add(delta, path, 0)
    add(delta, path, 3)
    delta.checkpoint(path)
    add(delta, path, 6)
    add(delta, path, 9)
    switch_ict(delta, path, True)
    add(delta, path, 12)
    clean_up(delta, path, below=3)


@fixture
def no_ict(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, TWO)
    add(delta, path, 0)
    add(delta, path, 3)
    delta.sql(f"UPDATE delta.`{path}` SET name = 'changed' WHERE id = 2")
    add(delta, path, 6)


@fixture
def no_ict_unordered_times(delta: DeltaSpark, path: Path) -> None:
    """File times that decrease, repeat and jump; delta-spark moves them to at least 1 ms after their predecessors."""
    create(delta, path, TWO)
    for start in range(0, 15, 3):
        add(delta, path, start)
    first = commit_mtimes(path)[0]
    offsets = {0: 0, 1: -5_000, 2: -5_000, 3: 10_000, 4: 9_999, 5: 20_000}
    set_commit_mtimes(path, {version: first - 60_000 + ms for version, ms in offsets.items()})


@fixture
def no_ict_truncated(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, TWO)
    add(delta, path, 0)
    add(delta, path, 3)
    delta.checkpoint(path)
    add(delta, path, 6)
    add(delta, path, 9)
    clean_up(delta, path, below=3)


TYPES = """
  flag BOOLEAN, tiny TINYINT, small SMALLINT, whole INT, big BIGINT, real FLOAT, exact DOUBLE,
  money DECIMAL(10,2), wide DECIMAL(38,18), words STRING, raw BINARY, day DATE, moment TIMESTAMP,
  person STRUCT<name: STRING, address: STRUCT<street: STRING, no: INT>>, numbers ARRAY<INT>,
  pairs MAP<STRING, BIGINT>, people ARRAY<STRUCT<name: STRING, born: DATE>>, deep MAP<STRING, ARRAY<DOUBLE>>
"""


@fixture
def ict_all_types(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, TYPES, **ON)
    insert(
        delta,
        path,
        """SELECT true, 127Y, 32767S, 2147483647, 9223372036854775807, float('1.5'), 2.5D,
        12345678.90BD, CAST('12345678901234567890.123456789012345678' AS DECIMAL(38,18)), 'words ä€😀', X'00FF10',
        DATE'2026-11-20', TIMESTAMP'2026-11-20 10:11:12.123456Z', named_struct('name', 'Ann', 'address',
        named_struct('street', 'High St', 'no', 7)), array(1, NULL, 3), map('a', 1L, 'b', NULL),
        array(named_struct('name', 'Bo', 'born', DATE'1970-01-01'), NULL), map('x', array(1.0D, NULL))""",
    )
    insert(
        delta,
        path,
        """SELECT false, -128Y, -32768S, -2147483648, -9223372036854775808, float('-Infinity'), double('NaN'),
        -0.01BD, CAST(0 AS DECIMAL(38,18)), '', X'', DATE'0001-01-01', TIMESTAMP'1900-01-01 00:00:00Z',
        named_struct('name', NULL, 'address', NULL), array(), map(), array(), map('y', NULL)""",
    )
    nulls = ", ".join(["NULL"] * 18)
    insert(delta, path, f"SELECT {nulls}")


@fixture
def ict_timestamp_without_zone(delta: DeltaSpark, path: Path) -> None:
    create(delta, path, "id BIGINT, wall TIMESTAMP_NTZ", **ON)
    insert(delta, path, "VALUES (1, TIMESTAMP_NTZ'2026-11-20 10:11:12.123456'), (2, NULL)")


@fixture
def ict_partitioned_by_every_type(delta: DeltaSpark, path: Path) -> None:
    columns = (
        "id BIGINT, flag BOOLEAN, tiny TINYINT, whole INT, big BIGINT, real FLOAT, exact DOUBLE, "
        "money DECIMAL(10,2), day DATE, moment TIMESTAMP"
    )
    create(delta, path, columns, "flag, tiny, whole, big, real, exact, money, day, moment", **ON)
    insert(
        delta,
        path,
        """VALUES
        (1, true, 1Y, -5, 9223372036854775807, float('1.5'), 1e300D, 12.30BD, DATE'2026-11-20',
         TIMESTAMP'2026-11-20 10:11:12.123456Z'),
        (2, false, -1Y, 0, 0L, float('0.1'), 2.5D, 0.00BD, DATE'1969-12-31', TIMESTAMP'2026-11-20 00:00:00Z'),
        (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)""",
    )


@fixture
def deletion_vectors(delta: DeltaSpark, path: Path) -> None:
    """Deletion vectors that replace others, some of them in a checkpoint; an update; files without remaining rows."""
    create(delta, path, "id BIGINT, name STRING, place STRING", "place", delta__enableDeletionVectors="true", **ON)
    for start in (0, 30):
        place = "IF(id % 3 = 0, NULL, concat('p ', id % 3)) AS place"
        rows = delta.sql(f"SELECT id, concat('n', id) AS name, {place} FROM range({start}, {start + 30}, 1, 1)")
        rows.write.format("delta").mode("append").save(str(path))
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id IN (1, 7, 33)")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id % 5 = 0")
    delta.checkpoint(path)
    delta.sql(f"UPDATE delta.`{path}` SET name = 'changed' WHERE id = 32")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE place = 'p 1' AND id < 30")


def mapped(delta: DeltaSpark, path: Path, mode: str) -> None:
    """Columns renamed, dropped and added at every depth, including the partition column; a deletion vector."""
    create(
        delta,
        path,
        """id BIGINT, person STRUCT<name: STRING, address: STRUCT<street: STRING, no: INT>>,
        people ARRAY<STRUCT<name: STRING, born: DATE>>, pairs MAP<STRING, STRUCT<x: INT, y: INT>>,
        `odd name,;{}()` STRING, gone STRING, place STRING""",
        "place",
        delta__columnMapping__mode=mode,
        delta__enableDeletionVectors="true",
        **ON,
    )
    first = """named_struct('name', 'Ann', 'address', named_struct('street', 'High St', 'no', 7)),
        array(named_struct('name', 'Bo', 'born', DATE'1970-01-01'), NULL),
        map('k', named_struct('x', 1, 'y', 2), 'n', NULL), 'odd', 'gone'"""
    insert(delta, path, f"SELECT id, {first}, 'a b=%' FROM range(0, 5, 1, 1)")
    insert(delta, path, "VALUES (10, NULL, array(), map(), NULL, NULL, NULL)")
    for change in (
        "RENAME COLUMN place TO spot",
        "RENAME COLUMN person.address.no TO number",
        "RENAME COLUMN people.element.name TO called",
        "RENAME COLUMN pairs.value.y TO why",
        "DROP COLUMN gone",
        "ADD COLUMNS (gone INT, person.nick STRING, pairs.value.z DOUBLE)",
    ):
        delta.sql(f"ALTER TABLE delta.`{path}` {change}")
    second = """named_struct('name', 'Cy', 'address', named_struct('street', NULL, 'number', 8), 'nick', 'c'),
        array(named_struct('called', 'Di', 'born', NULL)), map('k', named_struct('x', 3, 'why', 4, 'z', 5.5D)),
        'o', 9"""
    columns = "id, person, people, pairs, `odd name,;{}()`, gone, spot"
    insert(delta, path, f"({columns}) SELECT id, {second}, 'a b=%' FROM range(20, 23, 1, 1)")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id IN (1, 21)")


@fixture
def mapped_by_name(delta: DeltaSpark, path: Path) -> None:
    mapped(delta, path, "name")


@fixture
def mapped_by_id(delta: DeltaSpark, path: Path) -> None:
    mapped(delta, path, "id")


@fixture
def widened_types(delta: DeltaSpark, path: Path) -> None:
    """All type widenings, top-level and nested and of a partition column, with rows from before and after."""
    columns = """a TINYINT, b SMALLINT, c INT, d INT, e INT, f FLOAT, g DECIMAL(5,2), h DATE, i ARRAY<SMALLINT>,
        j STRUCT<x: TINYINT, y: STRING>, k MAP<TINYINT, FLOAT>, p SMALLINT"""
    properties = {"delta__enableTypeWidening": "true", "delta__feature__timestampNtz": "supported"}
    create(delta, path, columns, "p", **properties, **ON)
    insert(
        delta,
        path,
        """SELECT 1Y, 300S, 70000, 70001, 70002, float('1.5'), 123.45BD, DATE'1500-02-28', array(1S, NULL),
        named_struct('x', 5Y, 'y', 'old'), map(7Y, float('0.25')), 11S""",
    )
    changes = (
        ("a", "SMALLINT"), ("b", "BIGINT"), ("c", "BIGINT"), ("d", "DOUBLE"), ("e", "DECIMAL(14,4)"), ("f", "DOUBLE"),
        ("g", "DECIMAL(9,4)"), ("h", "TIMESTAMP_NTZ"), ("i.element", "INT"), ("j.x", "BIGINT"), ("k.key", "INT"),
        ("k.value", "DOUBLE"), ("p", "BIGINT"),
    )  # fmt: skip
    for column, wider in changes:
        delta.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN {column} TYPE {wider}")
    insert(
        delta,
        path,
        """SELECT 300S, 5000000000L, 5000000000L, 1e300D, 1234567890.1234BD, 1e300D, 12345.6789BD,
        TIMESTAMP_NTZ'2026-11-20 10:11:12.123456', array(70000), named_struct('x', 5000000000L, 'y', 'new'),
        map(70000, 1e300D), 5000000000L""",
    )


@fixture
def change_feed(delta: DeltaSpark, path: Path) -> None:
    """All kinds of changes: change data files, deletion vectors, whole files, a column added later, an overwrite."""
    properties = {"delta__enableChangeDataFeed": "true", "delta__enableDeletionVectors": "true"}
    create(delta, path, "id BIGINT, name STRING, place STRING", "place", **properties, **ON)
    for start in (0, 10):
        rows = delta.sql(
            f"SELECT id, concat('n', id) AS name, concat('p', id % 2) AS place FROM range({start}, {start + 10}, 1, 1)"
        )
        rows.write.format("delta").mode("append").save(str(path))
    delta.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (note STRING)")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id IN (1, 2)")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id IN (3, 12)")
    delta.sql(f"UPDATE delta.`{path}` SET name = 'changed' WHERE id BETWEEN 4 AND 6")
    delta.sql(
        f"""MERGE INTO delta.`{path}` t USING (SELECT * FROM VALUES (5L, 'm5'), (99L, 'm99') AS s(id, name)) s
        ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name, note = 'merged'
        WHEN NOT MATCHED THEN INSERT (id, name, place, note) VALUES (s.id, s.name, NULL, 'new')"""
    )
    delta.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 4")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE place = 'p1'")
    delta.sql(f"INSERT OVERWRITE delta.`{path}` (id, name, place) VALUES (100, 'last', 'p0')")


def expected(delta: DeltaSpark, path: Path) -> dict[str, Any]:
    """delta-spark's answers about the finished table."""
    delta.forget()
    history = delta.history(path)
    latest = delta.latest(path)
    versions: dict[str, Any] = {}
    for version in range(latest + 1):
        try:
            rows = delta.table(path, version)
        except Exception as error:
            condition = getattr(error, "getCondition", lambda: None)()
            if condition is None:
                raise
            versions[str(version)] = {"error": condition}
            continue
        plain = plain_rows(rows)
        versions[str(version)] = {"num_rows": len(plain), "columns": rows.column_names, "rows": plain}
    times = probe_times([ms for _, ms, _ in history])
    probes = []
    for ms, answer in delta.versions_at(path, times).items():
        read = delta.table_at(path, ms)
        same = read == answer if isinstance(read, str) else plain_rows(read) == versions[str(answer)]["rows"]
        if not same:
            raise SystemExit(f"{path.name}: spark.read and the history manager differ at {ms}: {answer} {read}")
        probes.append({"timestamp_ms": ms, **({"error": answer} if isinstance(answer, str) else {"version": answer})})
    metadata = delta.metadata(path)
    feed = metadata["configuration"].get("delta.enableChangeDataFeed") == "true"
    return {
        **({"changes": _changes(delta, path)} if feed else {}),
        "latest_version": latest,
        "versions": versions,
        "history": [{"version": v, "timestamp_ms": ms, "operation": op} for v, ms, op in history],
        "probes": probes,
        "protocol": delta.protocol(path),
        "configuration": metadata["configuration"],
        "partition_columns": metadata["partitionColumns"],
        "schema": json.loads(metadata["schemaString"]),
        "active_files": delta.files(path),
    }


def _changes(delta: DeltaSpark, path: Path) -> dict[str, Any]:
    changes = delta.changes(path)
    return {"columns": changes.column_names, "rows": plain_rows(changes)}


def write_json(path: Path, value: Any) -> None:
    """Write JSON with one line per row, probe and file, so that runs can be diffed."""
    path.write_text(_json(value, 0) + "\n", encoding="utf-8")


def _json(value: Any, depth: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or depth > 3 or len(flat) + 2 * depth <= 100:
        return flat
    pad = "\n" + "  " * (depth + 1)
    if isinstance(value, dict):
        inner = [f"{json.dumps(key, ensure_ascii=False)}: {_json(item, depth + 1)}" for key, item in value.items()]
        return "{" + pad + ("," + pad).join(inner) + pad[:-2] + "}"
    return "[" + pad + ("," + pad).join(_json(item, depth + 1) for item in value) + pad[:-2] + "]"


def strip_side_files(table: Path) -> None:
    """Delete Hadoop's checksum files (`.name.crc`) and empty directories."""
    for side in table.rglob(".*.crc"):
        side.unlink()
    for directory in sorted((p for p in table.rglob("*") if p.is_dir()), reverse=True):
        if not any(directory.iterdir()):
            directory.rmdir()


def make(delta: DeltaSpark, name: str, out: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="deltalog-fixture-") as scratch:
        home = Path(scratch) / name
        table = home / "table"
        MAKERS[name](delta, table)
        strip_side_files(table)
        write_json(home / "expected.json", expected(delta, table))
        strip_side_files(table)
        write_json(home / "mtimes.json", get_mtimes(table))
        target = out / name
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(home, target)
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="the tables to generate (default: all)")
    parser.add_argument("--out", type=Path, default=ROOT / "fixtures" / "tables")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(MAKERS))
    if unknown:
        parser.error(f"no such table: {', '.join(unknown)}; there are {', '.join(MAKERS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    conf = {"spark.sql.shuffle.partitions": "1", "spark.databricks.delta.optimizeWrite.enabled": "false"}
    delta = DeltaSpark(delta_session(**conf))
    total = 0
    for name in options.names or MAKERS:
        started = time.monotonic()
        size = make(delta, name, options.out)
        total += size
        print(f"{name:32} {size / 1000:8.1f} kB  {time.monotonic() - started:6.1f} s", flush=True)
    print(f"{'total':32} {total / 1000:8.1f} kB in {options.out}")
    stop_sessions()


if __name__ == "__main__":
    main()
