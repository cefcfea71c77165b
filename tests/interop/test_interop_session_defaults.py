"""In sessions with unusual settings, the same write by spark_ext and delta-spark has the same effect on identical
tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import rows

DELTA = "spark.databricks.delta."
SETTINGS = {
    "spark.sql.sources.partitionOverwriteMode": ("static", "dynamic", "dynamic", "DYNAMIC"),
    DELTA + "schema.autoMerge.enabled": ("true", "false"),
    DELTA + "commitInfo.userMetadata": ("of the session",),
    DELTA + "dynamicPartitionOverwrite.enabled": ("true", "false"),
    DELTA + "write.txnAppId": ("job",),
    DELTA + "write.txnVersion": ("1", "2"),
    DELTA + "write.txnVersion.autoReset.enabled": ("true", "false"),
    DELTA + "optimizeWrite.enabled": ("true", "false"),
    DELTA + "replaceWhere.constraintCheck.enabled": ("true", "false"),
    DELTA + "replaceWhere.dataColumns.enabled": ("true", "true", "false"),
    DELTA + "properties.defaults.appendOnly": ("true",),
    DELTA + "properties.defaults.enableChangeDataFeed": ("true",),
    DELTA + "properties.defaults.checkpointInterval": ("7",),
    DELTA + "properties.defaults.feature.inCommitTimestamp": ("supported",),
    DELTA + "properties.defaults.ignoreProtocolDefaults": ("true",),
    "spark.sql.files.maxRecordsPerFile": ("1", "0"),
    "spark.sql.parquet.compression.codec": ("zstd", "gzip"),
}
OPTIONS: dict[str, tuple[Any, ...]] = {
    "mergeSchema": ("true", "false"),
    "userMetadata": ("of the option",),
    "optimizeWrite": ("true", "false"),
    "maxRecordsPerFile": (2,),
    "delta.checkpointInterval": ("9",),
}
OF_OVERWRITES: dict[str, tuple[Any, ...]] = {
    "partitionOverwriteMode": ("static", "dynamic"),
    "replaceWhere": ("p = 'a'", "p in ('a', 'c')", "id >= 2", "id <> 2", "p = 'a' or id > 2", "id = 9 and p is null"),
    "overwriteSchema": ("true",),
}
# Options that spark_ext refuses in combination; in delta-spark, one of them takes precedence.
ALONE = ("partitionOverwriteMode", "replaceWhere", "overwriteSchema")


def drawn(rng: random.Random, choices: dict[str, tuple[Any, ...]], likely: float) -> dict[str, Any]:
    return {name: rng.choice(values) for name, values in choices.items() if rng.random() < likely}


def case(seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    settings = drawn(rng, SETTINGS, 0.3)
    mode = rng.choice(("overwrite", "overwrite", "overwrite", "append", "ignore", "error"))
    options = drawn(rng, OPTIONS, 0.2)
    is_there = rng.random() < 0.75
    if is_there:
        options.pop("delta.checkpointInterval", None)
    if mode == "overwrite" and rng.random() < 0.4:
        name = rng.choice(ALONE if is_there else ("partitionOverwriteMode", "replaceWhere"))
        options[name] = rng.choice(OF_OVERWRITES[name])
        if name == "overwriteSchema":
            options.pop("mergeSchema", None)
    # Delta-spark checks this setting in all modes, although it has an effect only in the mode overwrite.
    if mode != "overwrite":
        settings.pop(DELTA + "dynamicPartitionOverwrite.enabled", None)
    columns = rng.choice(("9L id, 'a' p", "9L id, 'a' p, 'new' extra", "9L id, cast(null as string) p"))
    partitioned = rng.random() < 0.75
    return {
        "settings": settings, "mode": mode, "options": options, "is_there": is_there, "columns": columns,
        "partitioned": partitioned,
    }  # fmt: skip


def outcome(spark: Any, table: str, writer: Any, given: dict[str, Any], save: str) -> Any:
    """The result of a write: rows, schema, properties and commit metadata, or the error."""
    if given["partitioned"]:
        writer = writer.partitionBy("p")
    before = deltalog.DeltaTable.open(table).version if given["is_there"] else -1
    with session_of(spark, given["settings"]):
        try:
            getattr(writer.mode(given["mode"]).options(**given["options"]), save)(table)
            failed = False
        except Exception as error:
            if not isinstance(error, deltalog.DeltaLogError) and "spark_ext" in type(writer).__module__:
                raise
            failed = True
        left = spark.conf.get(DELTA + "write.txnVersion", None)
    if not deltalog.DeltaTable.exists(table):
        return failed, None
    snapshot = deltalog.DeltaTable.open(table).snapshot()
    info = deltalog.DeltaTable.open(table).history(1)[0]
    found = rows(spark.read.format("delta").load(table))
    properties = {k: v for k, v in snapshot.metadata.configuration.items() if not k.startswith("delta.inCommit")}
    # A failed write with delta-spark uses up the session's txnVersion; a failed write with spark_ext can be repeated
    # with the same txnVersion.
    unset = None if failed else left
    return failed, sorted(map(str, found)), snapshot.schema.names, snapshot.partition_columns, properties, (
        snapshot.version - before, info.user_metadata, snapshot.transaction_version("job"), unset,
        "inCommitTimestamp" in (snapshot.protocol.writer_features or ()),
    )  # fmt: skip


@pytest.mark.sampled(30)
@pytest.mark.parametrize("seed", range(60))
def test_the_same_write_under_the_same_settings(delta: Any, tmp_path: Path, seed: int) -> None:
    spark, given, found = delta.spark, case(seed), []
    for kind in ("delta-spark", "spark_ext"):
        table = str(tmp_path / kind)
        if given["is_there"]:
            start = spark.sql("select 1L id, 'a' p union all select 2L, 'b' union all select 3L, null").write
            start = start.partitionBy("p") if given["partitioned"] else start
            start.format("delta").save(table)
        df = spark.sql(f"select {given['columns']}")
        writer = df.write.format("delta") if kind == "delta-spark" else spark_ext.write(df)
        found.append(outcome(spark, table, writer, given, "save"))
    assert found[1] == found[0], given
