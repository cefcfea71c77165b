"""Confirms the explanations of other engines' failures in the conformance matrix.

A confirmation writes a small table by hand, without the kit and its adapters, calls the engine, and returns its answer.
The answers are stored with the explanations in tests/interop/conformance/explanations.json;
test_interop_confirmations.py repeats the confirmations. conformance_reports.py makes programs of them, so that they use
nothing of this project.

    python -m tests.interop.confirmations deltalake      # or another engine: prints the current answers
    python -m tests.interop.confirmations polars --keep  # and stores them

An engine with an environment of its own, made by ``deltalog conformance install``, is called there: this file is run by
its path with the Python of that environment, which need not have more than pyarrow and the engine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

EXPLANATIONS = Path(__file__).with_name("conformance") / "explanations.json"
HOUR_MS = 3_600_000
T = 1_700_000_000_000  # 2023-11-14T22:13:20Z
ICT = "delta.enableInCommitTimestamps"
PAIR = ("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp")
Line = dict[str, Any]


# --------------------------------------------------------------------------------------------- tables by hand


def parquet(root: Path, name: str, rows: pa.Table) -> Line:
    """A data file and the add action for it."""
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    return {
        "add": {
            "path": name,
            "partitionValues": {},
            "size": file.stat().st_size,
            "modificationTime": T,
            "dataChange": True,
        }
    }


def schema_text(**types: str) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


def head(
    schema: str, configuration: Mapping[str, str] = {}, partitions: Sequence[str] = (), **protocol: Any
) -> list[Line]:
    """The protocol and the metaData of version 0."""
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, **protocol}},
        {
            "metaData": {
                "id": "11111111-2222-3333-4444-555555555555",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": list(partitions),
                "configuration": dict(configuration),
                "createdTime": T,
            }
        },
    ]


def commit(root: Path, version: int, lines: Sequence[Line], time_ms: int | None = None) -> Path:
    """Write a commit. ``time_ms``: the modification time of the commit file."""
    file = root / "_delta_log" / f"{version:020d}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if time_ms is not None:
        os.utime(file, (time_ms / 1000, time_ms / 1000))
    return file


def numbered(
    root: Path,
    times_ms: Sequence[int],
    icts: Sequence[Any] = (),
    configuration: Mapping[str, str] = {},
    info: Callable[[int], Line | None] = lambda version: {},
    **protocol: Any,
) -> Path:
    """Version n adds the row n. ``times_ms``: the modification times of the commit files; ``icts``: the in-commit
    timestamps."""
    for version, time_ms in enumerate(times_ms):
        body = info(version)
        lines: list[Line] = []
        if body is not None:
            own = {"inCommitTimestamp": icts[version]} if icts else {}
            lines.append({"commitInfo": {**own, "timestamp": time_ms, "operation": "WRITE", **body}})
        lines += head(schema_text(id="long"), configuration, **protocol) if version == 0 else []
        lines.append(parquet(root, f"{version}.parquet", pa.table({"id": pa.array([version], pa.int64())})))
        commit(root, version, lines, time_ms)
    return root


TIMED: dict[str, Any] = {"minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}


def three(root: Path) -> Path:
    return numbered(root, [T, T + HOUR_MS, T + 2 * HOUR_MS])


def contradicting(root: Path, **pair: str) -> Path:
    """A table whose in-commit timestamps are an hour apart, and whose files were copied a day later, one file per
    second."""
    day = T + 24 * HOUR_MS
    configuration = {ICT: "true", **pair}
    icts = [T, T + HOUR_MS, T + 2 * HOUR_MS]
    return numbered(root, [day, day + 1000, day + 2000], icts, configuration, **TIMED)


def checkpoint(root: Path, version: int) -> None:
    """Write a classic checkpoint of a version, of a table in which no file was removed."""
    texts = pa.map_(pa.string(), pa.string())
    add = {"path": pa.string(), "partitionValues": texts, "size": pa.int64(), "modificationTime": pa.int64(),
           "dataChange": pa.bool_()}  # fmt: skip
    form = pa.struct([("provider", pa.string()), ("options", texts)])
    metadata = {"id": pa.string(), "format": form, "schemaString": pa.string(), "createdTime": pa.int64(),
                "partitionColumns": pa.list_(pa.string()), "configuration": texts}  # fmt: skip
    protocol = {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}
    kinds = {"protocol": protocol, "metaData": metadata, "add": add}
    schema = pa.schema([(name, pa.struct([*kind.items()])) for name, kind in kinds.items()])
    names = [f"{each:020d}.json" for each in range(version + 1)]
    actions = [json.loads(line) for name in names for line in (root / "_delta_log" / name).read_text().splitlines()]
    rows = [line for line in actions if kinds.keys() & line.keys()]
    file = root / "_delta_log" / f"{version:020d}.checkpoint.parquet"
    pq.write_table(pa.Table.from_pylist(json.loads(json.dumps(rows), object_hook=_pairs), schema), file)
    (root / "_delta_log" / "_last_checkpoint").write_text(json.dumps({"version": version, "size": len(rows)}))


def _pairs(value: Line) -> Any:
    """Maps as pairs, as pyarrow takes them."""
    return {key: [*each.items()] if key in ("options", "configuration", "partitionValues") else each
            for key, each in value.items()}  # fmt: skip


def without_commits(root: Path) -> Path:
    """Create a table with a checkpoint of version 1, and delete the commits 0 and 1."""
    numbered(root, [T, T + HOUR_MS])
    checkpoint(root, 1)
    commit(root, 2, [{"commitInfo": {"timestamp": T + 2 * HOUR_MS, "operation": "WRITE"}},
                     parquet(root, "2.parquet", pa.table({"id": pa.array([2], pa.int64())}))])  # fmt: skip
    for version in (0, 1):
        (root / "_delta_log" / f"{version:020d}.json").unlink()
    return root


def hinted(root: Path) -> Path:
    """_last_checkpoint names a checkpoint of version 2 that does not exist; all commits are there."""
    three(root)
    (root / "_delta_log" / "_last_checkpoint").write_text('{"version":2,"size":5}')
    return root


def partitioned(root: Path, *files: tuple[str, str]) -> Path:
    """A table partitioned by the string column p, with one data file for each pair (path of the file, value of p)."""
    lines = [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}]
    lines += head(schema_text(id="long", p="string"), partitions=["p"])
    for number, (name, value) in enumerate(files):
        add = parquet(root, name, pa.table({"id": pa.array([number], pa.int64())}))
        add["add"]["partitionValues"] = {"p": value}
        lines.append(add)
    commit(root, 0, lines)
    return root


def broken(root: Path, shorter: int) -> Path:
    """The data file of version 0 is not a Parquet file, and is ``shorter`` bytes smaller than the log says."""
    numbered(root, [T])
    (root / "0.parquet").write_bytes(b"x" * ((root / "0.parquet").stat().st_size - shorter))
    return root


def said(call: Callable[..., Any], *arguments: Any) -> str:
    """The result of a call, or its error, as a string."""
    try:
        return str(call(*arguments))
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        message = str(getattr(error, "java_exception", error))
        text = re.sub(r"(?:file:)?/\S*/table\b/?", "TABLE/", message.strip().split("\n")[0])
        text = re.sub(r"\x1b\[\d+m|Id\(\d+\)(?:, )?", "", text)
        return f"{type(error).__name__}: {text[:140]}"


def iso(ms: int) -> str:
    at = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sorted_ids(rows: Any) -> list[Any]:
    return sorted(pa.table(rows).column("id").to_pylist(), key=str)


# ------------------------------------------------------------------------------------------------- deltalake


class Deltalake:
    """Gets deltalake's answers for the confirmations. Each explanation has a case pattern, and the first word of the
    pattern is the name of a method here."""

    def version_at(self, root: Path, ms: int) -> int:
        import deltalake

        table = deltalake.DeltaTable(str(root))
        table.load_as_version(iso(ms))
        return int(table.version())

    def rows(self, root: Path, version: int | None = None) -> pa.Table:
        import deltalake

        table = deltalake.DeltaTable(str(root), version=version)
        return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())

    def clamped(self, root: Path) -> str:
        three(root)
        before, after = (said(self.version_at, root, ms) for ms in (T - 1, T + 9 * HOUR_MS))
        return f"an hour apart: version {before} for 1 ms before the first, version {after} for hours after the last"

    def equal_times(self, root: Path) -> str:
        numbered(root / "a", [T, T, T])
        numbered(root / "b", [T + 2 * HOUR_MS, T + HOUR_MS, T])
        equal = said(lambda: self.version_at(root / "a", T))
        back = said(lambda: self.version_at(root / "b", T + 2 * HOUR_MS))
        return f"version {equal} at the time of three equal files, version {back} at the largest of three that run back"

    def history_of_writers(self, root: Path) -> str:
        import deltalake

        numbered(root, [T, T + HOUR_MS], info=lambda version: {"timestamp": 7 + version})
        times = {each["version"]: each.get("timestamp") for each in deltalake.DeltaTable(str(root)).history()}
        return f"commitInfo.timestamp 7 and 8, other file times: the history has {dict(sorted(times.items()))}"

    def history_without_info(self, root: Path) -> str:
        import deltalake

        icts = [T, T + HOUR_MS, T + 2 * HOUR_MS]
        numbered(root, icts, icts, {ICT: "true"}, lambda v: None if v == 1 else {"operation": f"V{v}"}, **TIMED)
        found = {each["version"]: each.get("operation") for each in deltalake.DeltaTable(str(root)).history()}
        return f"versions 0 to 2, the middle one without commitInfo: the history has {dict(sorted(found.items()))}"

    def checkpoint_only(self, root: Path) -> str:
        without_commits(root)
        by_number = said(lambda: sorted_ids(self.rows(root, 1)))
        by_time = said(lambda: self.version_at(root, T + 3 * HOUR_MS))
        return f"version 1 has {by_number}; at the time of version 2: {by_time}"

    def pair(self, root: Path) -> str:
        contradicting(root, **{PAIR[0]: "77", PAIR[1]: "5"})
        found = said(lambda: self.version_at(root, T + 24 * HOUR_MS + 500))
        return f"a pair that names version 77 after the latest, 2; file times alone say version 0: {found}"

    def file_times(self, root: Path) -> str:
        contradicting(root)
        found = said(lambda: self.version_at(root, T + 24 * HOUR_MS + 500))
        return f"in-commit timestamps say version 2, file times version 0: {found}"

    def empty_text(self, root: Path) -> str:
        partitioned(root, ("a.parquet", ""))
        return said(lambda: self.rows(root).to_pylist())

    def removed_with_vector(self, root: Path) -> str:
        import deltalake

        features = ["deletionVectors"]
        lines = head(
            schema_text(id="long"), {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
            minReaderVersion=3, minWriterVersion=7, readerFeatures=features,
            writerFeatures=[*features, "changeDataFeed"],
        )  # fmt: skip
        file = parquet(root, "0.parquet", pa.table({"id": pa.array([1, 2, 3], pa.int64())}))["add"]
        # The second of the three rows.
        vector = {"storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91",
                  "sizeInBytes": 34, "cardinality": 1}  # fmt: skip
        left = {**file, "deletionVector": vector, "stats": '{"numRecords":3}'}
        info = {"timestamp": T, "operation": "DELETE"}
        gone = {"path": file["path"], "deletionTimestamp": T, "dataChange": True}
        commit(root, 0, [{"commitInfo": info}, *lines, {"add": file}])
        commit(root, 1, [{"commitInfo": info}, {"remove": gone}, {"add": left}])
        # The file is removed with its deletion vector, and no change data file is written.
        commit(root, 2, [{"commitInfo": info}, {"remove": {**gone, "deletionVector": vector}}])
        feed = deltalake.DeltaTable(str(root)).load_cdf(starting_version=2)
        return "rows 1 and 3 were left: the feed of their removal has " + said(lambda: sorted_ids(feed.read_all()))

    def append_after_remove(self, root: Path) -> str:
        import deltalake

        three(root)
        opened = deltalake.DeltaTable(str(root))
        remove = {"path": "0.parquet", "deletionTimestamp": T, "dataChange": True}
        commit(root, 3, [{"commitInfo": {"timestamp": T, "operation": "DELETE"}}, {"remove": remove}])
        rows = pa.table({"id": pa.array([9], pa.int64())})
        return said(lambda: deltalake.write_deltalake(opened, rows, mode="append"))

    def hint(self, root: Path) -> str:
        return said(lambda: sorted_ids(self.rows(hinted(root))))

    def ids_only(self, root: Path) -> str:
        field = {"name": "id", "type": "long", "nullable": True,
                 "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}}  # fmt: skip
        schema = json.dumps({"type": "struct", "fields": [field]})
        configuration = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "1"}
        stored = pa.schema([pa.field("other", pa.int64(), metadata={"PARQUET:field_id": "1"})])
        add = parquet(root, "0.parquet", pa.table({"other": [7]}, stored))
        lines = head(schema, configuration, minReaderVersion=2, minWriterVersion=5)
        commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
        return "the file has 7 under another name and the right field id: " + said(lambda: self.rows(root).to_pylist())

    CASES: Mapping[str, str] = {
        "travel-time-before-first": "clamped",
        "travel-time-equal": "equal_times",
        "travel-time-history-back": "history_of_writers",
        "ict-damage-*-history": "history_without_info",
        "ict-cleaned-commit-of-checkpoint-gone": "checkpoint_only",
        "ict-pair-*": "pair",
        "ict-*": "file_times",
        "read-partition-empty-text": "empty_text",
        "feed-vector-removed": "removed_with_vector",
        "conflict-append-remove": "append_after_remove",
        "checkpoint-hint-missing": "hint",
        "feature-mapping-id-only": "ids_only",
    }


# ---------------------------------------------------------------------------------------------------- polars


class Polars(Deltalake):
    def rows(self, root: Path, version: Any = None) -> pa.Table:
        import polars

        return polars.read_delta(str(root), version=version).to_arrow()

    def version_at(self, root: Path, ms: int) -> int:
        """Version n has the rows 0 to n."""
        return self.rows(root, datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)).num_rows - 1

    def _listed(self, root: Path) -> list[Any]:
        return self.rows(root).to_pylist()

    def directories(self, root: Path) -> str:
        partitioned(root / "a", ("x.parquet", "x"))
        partitioned(root / "b", ("p=y/x.parquet", "x"))
        one, other = (said(self._listed, root / name) for name in "ab")
        return f"the value is x: {one} for a file outside of directories, {other} in p=y"

    def partly(self, root: Path) -> str:
        partitioned(root, ("p=x/x.parquet", "x"), ("y.parquet", "y"))
        return said(lambda: self.rows(root).to_pylist())

    def damaged(self, root: Path) -> str:
        whole, short = (said(self._listed, broken(root / str(shorter), shorter)) for shorter in (0, 100))
        return f"of the size in the log: {whole}; 100 bytes shorter: {short}"

    CASES: Mapping[str, str] = {
        "read-partition-*": "directories",
        "write-append-partition*": "partly",
        "read-damaged-file": "damaged",
        "checkpoint-hint-missing": "hint",
        "travel-time-before-first": "clamped",
        "travel-time-equal": "equal_times",
        "ict-cleaned-commit-of-checkpoint-gone": "checkpoint_only",
        "ict-pair-*": "pair",
        "ict-*": "file_times",
    }


# ----------------------------------------------------------------------------------------------- delta-spark


class DeltaSpark:
    """The confirmations for delta-spark, in a session with delta-spark's jars."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def rows(self, root: Path, **options: Any) -> list[Any]:
        return sorted(row["id"] for row in self.spark.read.format("delta").options(**options).load(str(root)).collect())

    def configuration(self, root: Path) -> dict[str, str]:
        files = sorted((root / "_delta_log").glob("*.json"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        found: dict[str, str] = [line["metaData"] for line in lines if "metaData" in line][-1]["configuration"]
        return {key: value for key, value in sorted(found.items()) if "nCommitTimestamp" in key}

    def checkpoint_only(self, root: Path) -> str:
        without_commits(root)
        return f"the latest version has {self.rows(root)}; version 1: {said(lambda: self.rows(root, versionAsOf=1))}"

    def half_pair(self, root: Path) -> str:
        sql = f"CREATE TABLE delta.`{root}` (id LONG) USING delta TBLPROPERTIES ('{ICT}' = 'true', '{PAIR[0]}' = '7')"
        return said(lambda: (self.spark.sql(sql), self.configuration(root))[1])

    def disabled(self, root: Path) -> str:
        three(root)
        for value in ("true", "false"):
            self.spark.sql(f"ALTER TABLE delta.`{root}` SET TBLPROPERTIES ('{ICT}' = '{value}')")
        return "the properties that are left: " + ", ".join(self.configuration(root))

    def short_name(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS])
        add = parquet(root, "2.parquet", pa.table({"id": pa.array([2], pa.int64())}))
        (root / "_delta_log" / "2.json").write_text(json.dumps(add) + "\n")
        return f"versions 0 and 1 have the rows 0 and 1: {said(lambda: self.rows(root))}"

    def empty_text(self, root: Path) -> str:
        partitioned(root, ("a.parquet", ""))
        frame = self.spark.read.format("delta").load(str(root))
        return said(lambda: [row.asDict() for row in frame.collect()])

    def no_feature(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS], [T, T + HOUR_MS], {ICT: "true"}, minWriterVersion=7, writerFeatures=[])
        return said(lambda: self.rows(root))

    def _property_only(self, root: Path) -> Path:
        day = T + 24 * HOUR_MS
        return numbered(root, [day, day + 1000], [T, T + HOUR_MS], {ICT: "true"})

    def property_reads(self, root: Path) -> str:
        self._property_only(root)
        frame = self.spark.sql(f"DESCRIBE HISTORY delta.`{root}`").selectExpr("version", "unix_millis(timestamp) AS ms")
        found = {row["version"]: row["ms"] - T for row in frame.collect()}
        return f"ms since the first in-commit timestamp, of files that are a day younger: {dict(sorted(found.items()))}"

    def property_writes(self, root: Path) -> str:
        configuration = {ICT: "true"}
        numbered(root, [T], configuration=configuration)
        return said(lambda: self.spark.sql(f"INSERT INTO delta.`{root}` VALUES (5L)").count())

    def text(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS], [T, str(T + HOUR_MS) + "x"], {ICT: "true"}, **TIMED)
        return said(lambda: self.rows(root))

    CASES: Mapping[str, str] = {
        "ict-cleaned-commit-of-checkpoint-gone": "checkpoint_only",
        "ict-create-half-pair": "half_pair",
        "ict-disable-no-pair": "disabled",
        "read-stray-short-name": "short_name",
        "read-partition-empty-text": "empty_text",
        "ict-active-no-feature": "no_feature",
        "ict-active-no-features": "property_reads",
        "ict-write-property-only": "property_writes",
        "ict-damage-text-*-rows": "text",
    }


# ------------------------------------------------------------------------------------- engines on the Rust kernel


class PolarsDeltalake(Polars):
    def rows(self, root: Path, version: Any = None) -> pa.Table:
        import polars_deltalake

        return polars_deltalake.read_delta(str(root), version=version).to_arrow()

    CASES: Mapping[str, str] = {}


class KernelRs(Deltalake):
    def rows(self, root: Path, version: int | None = None) -> pa.Table:
        import delta_kernel_rust_sharing_wrapper as kernel

        place = root.as_uri() + "/"
        interface = kernel.PythonInterface(place)
        return kernel.ScanBuilder(kernel.Table(place).snapshot(interface)).build().execute(interface).read_all()

    CASES: Mapping[str, str] = {}


class DuckDB(Deltalake):
    def rows(self, root: Path, version: int | None = None) -> pa.Table:
        import duckdb
        import duckdb_extension_delta

        (extension,) = Path(duckdb_extension_delta.__path__[0]).glob(f"extensions/v{duckdb.__version__}/*")
        duckdb.execute(f"LOAD '{extension}'")
        at = "" if version is None else f", version => {version}"
        return duckdb.execute(f"FROM delta_scan('{root}'{at})").to_arrow_table()

    CASES: Mapping[str, str] = {}


class Chdb(Deltalake):
    def rows(self, root: Path, version: int | None = None) -> pa.Table:
        import chdb

        at = "" if version is None else f" SETTINGS delta_lake_snapshot_version = {version}"
        found = chdb.query(f"FROM deltaLakeLocal('{root}') SELECT *{at}", "Parquet", options={"user_files_path": "/"})
        return pq.read_table(pa.BufferReader(found.bytes()))

    CASES: Mapping[str, str] = {}


class Daft(Polars):
    def rows(self, root: Path, version: Any = None) -> pa.Table:
        import daft

        return daft.read_deltalake(str(root), version=version).to_arrow()

    CASES: Mapping[str, str] = {}


# ------------------------------------------------------------------------------------------------------ Sail


class Sail(DeltaSpark):
    """Sail's server runs in this process; PySpark's client of Spark Connect calls it."""

    def rows(self, root: Path, **options: Any) -> list[Any]:
        return sorted(row["id"] for row in self.spark.read.format("delta").options(**options).load(str(root)).collect())

    CASES: Mapping[str, str] = {}


def sail_session() -> Any:
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    return SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()


def confirm(engine: Any, place: Path) -> dict[str, str]:
    """The engine's answers, one for each explanation, keyed by the first case pattern of the explanation."""
    return {
        pattern: getattr(engine, method)(_made(place / f"{number}-{method}" / "table"))
        for number, (pattern, method) in enumerate(engine.CASES.items())
    }


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


# By name of the engine.
CLASSES: Mapping[str, type[Any]] = {
    "deltalake": Deltalake,
    "polars": Polars,
    "delta-spark": DeltaSpark,
    "polars-deltalake": PolarsDeltalake,
    "kernel-rs": KernelRs,
    "duckdb": DuckDB,
    "chdb": Chdb,
    "daft": Daft,
    "sail": Sail,
}
# Those that are in the environment of the tests.
_HERE = ("deltalake", "polars", "delta-spark")


def engine_of(name: str) -> Any:
    """The engine with this name; for delta-spark, it uses the Spark session of the tests."""
    if name == "sail":
        return Sail(sail_session())
    if name != "delta-spark":
        return CLASSES[name]()
    from tests.support.spark import delta_session

    return DeltaSpark(delta_session())


def python_of(name: str) -> Path | None:
    """The Python of the engine's own environment; None if it has none, or is not installed."""
    from deltalog.conformance.environments import cache_directory, description_of, environment_of

    place = environment_of(name, cache_directory())
    return place / "bin" / "python" if description_of(place) is not None else None


def answers(name: str) -> dict[str, str]:
    """The current answers of an engine, from its own environment if it has one. Raises LookupError if it is not
    installed."""
    if name in _HERE:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            return confirm(engine_of(name), Path(place))
    python = python_of(name)
    if python is None:
        raise LookupError(f"{name} is not installed")
    return dict(json.loads(run_there(python, [str(Path(__file__)), name, "--there"]).splitlines()[-1]))


def run_there(python: Path, arguments: Sequence[str]) -> str:
    """Run a program with the Python of an engine's environment, and return what it prints."""
    command = [str(python), "-I", "-X", "utf8", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]}: {done.stderr[-2000:]}")
    return done.stdout


def main(name: str, keep: bool) -> None:
    found = answers(name)
    for pattern, answer in found.items():
        print(f"{pattern}: {answer}")
    if keep:
        kept = json.loads(EXPLANATIONS.read_text(encoding="utf-8"))
        for entry in kept[name]:
            entry["confirmed"] = found[entry["cases"].split()[0]]
        EXPLANATIONS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main_there(name: str) -> None:
    """Print the answers as JSON, on one line."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        print(json.dumps(confirm(engine_of(name), Path(place))))
    sys.stdout.flush()
    os._exit(0)  # threads of an engine need not end


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.interop.confirmations")
    parser.add_argument("engine", choices=[*CLASSES])
    parser.add_argument("--keep", action="store_true", help="keep the answers in explanations.json")
    parser.add_argument("--there", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.there:
        main_there(given.engine)
    else:
        main(given.engine, given.keep)
