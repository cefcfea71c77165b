"""Programs for delta-spark with row changes, time travel and streams, and their migration to spark_ext.

The programs follow the examples in delta-spark's documentation. ``answers`` contains the results that each program must
produce.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

#: The replacements listed in ``docs/spark.md``. Programs that only update, delete or merge rows need only the first
#: replacement.
IMPORT = ("from delta.tables import DeltaTable", "from spark_ext import DeltaTable")
_CALLS = (
    (r'\bspark\.readStream\.format\("delta"\)', 'spark.readStream.format("deltalog")'),
    (r'\.writeStream\.format\("delta"\)', '.writeStream.format("deltalog")'),
    (r'\bspark\.read\.format\("delta"\)', "spark_ext.read(spark)"),
    (r'\b(\w+)\.write\.format\("delta"\)', r"spark_ext.write(\1)"),
)
_PLACE = "/data"


def moved(program: str) -> str:
    """The program after migration from delta-spark to spark_ext."""
    text = program.replace(*IMPORT)
    for pattern, call in _CALLS:
        text = re.sub(pattern, call, text)
    if '"deltalog"' in text:
        text = "spark_ext.register(spark)\n" + text
    return "import spark_ext\n" + text if "spark_ext." in text else text


def run(program: str, spark: Any, directory: Path) -> list[Any]:
    """Run a program whose tables are in ``directory``, and return its results."""
    names: dict[str, Any] = {"spark": spark, "answers": []}
    exec(compile(program.replace(_PLACE, str(directory)), "program", "exec"), names)
    return list(names["answers"])


def _program(text: str) -> str:
    return textwrap.dedent(text).lstrip()


# Programs in which only the import changes, with the results that both engines must give.
ONE_IMPORT: dict[str, tuple[str, list[Any]]] = {
    "delete": (
        _program(
            """
            from delta.tables import DeltaTable
            from pyspark.sql.functions import col

            builder = DeltaTable.create(spark).location("/data/readings")
            table = builder.addColumn("day", "DATE").addColumn("value", "INT").execute()
            readings = spark.sql("SELECT date_add(DATE'2026-01-01', int(id)) AS day, int(id) AS value FROM range(10)")
            table.alias("t").merge(readings.alias("r"), "t.day = r.day").whenNotMatchedInsertAll().execute()

            table.delete("day < '2026-01-03'")
            table.delete(col("value") > 7)
            answers.append(sorted(row["value"] for row in table.toDF().collect()))
            answers.append(table.history(1).select("version", "operation").first().asDict())
            table.delete()
            answers.append(table.toDF().count())
            """
        ),
        [[2, 3, 4, 5, 6, 7], {"version": 3, "operation": "DELETE"}, 0],
    ),
    "update": (
        _program(
            """
            from delta.tables import DeltaTable
            from pyspark.sql import functions as F

            builder = DeltaTable.createIfNotExists(spark).location("/data/clicks")
            table = builder.addColumn("id", "BIGINT").addColumn("kind", "STRING").addColumn("n", "INT").execute()
            clicks = [(1, "clck", 1), (2, "view", 2), (3, "clck", 3)]
            rows = spark.createDataFrame(clicks, "id long, kind string, n int")
            table.merge(rows, F.lit(False)).whenNotMatchedInsertAll().execute()

            table.update("kind = 'clck'", {"kind": "'click'"})
            table.update(condition=F.col("kind") == "view", set={"n": F.col("n") * 10, "kind": F.lit("seen")})
            table.update(set={"n": "n + 1"})
            answers.append(sorted(map(tuple, table.toDF().select("id", "kind", "n").collect())))
            """
        ),
        [[(1, "click", 2), (2, "seen", 21), (3, "click", 4)]],
    ),
    "merge: update or insert": (
        _program(
            """
            from delta.tables import DeltaTable

            people = DeltaTable.create(spark).location("/data/people").addColumns(
                spark.createDataFrame([], "id long, name string, age int").schema
            ).execute()
            first = spark.createDataFrame([(1, "Ada", 36), (2, "Bob", 20)], "id long, name string, age int")
            people.merge(first, "false").whenNotMatchedInsertAll().execute()

            updates = spark.createDataFrame([(2, "Bob", 21), (3, "Cid", 50)], "id long, name string, age int")
            (
                people.alias("people")
                .merge(updates.alias("updates"), "people.id = updates.id")
                .whenMatchedUpdate(set={"name": "updates.name", "age": "updates.age"})
                .whenNotMatchedInsert(values={"id": "updates.id", "name": "updates.name", "age": "updates.age"})
                .execute()
            )
            answers.append(sorted(map(tuple, people.toDF().collect())))
            metrics = people.history(1).first()["operationMetrics"]
            answers.append([metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]])
            """
        ),
        [[(1, "Ada", 36), (2, "Bob", 21), (3, "Cid", 50)], ["1", "1"]],
    ),
    "merge: every clause": (
        _program(
            """
            from delta.tables import DeltaTable
            from pyspark.sql.functions import col, lit

            columns = "id long, state string, seen int"
            target = DeltaTable.createOrReplace(spark).location("/data/every").addColumns(
                spark.createDataFrame([], columns).schema
            ).execute()
            rows = [(1, "on", 1), (2, "on", 1), (3, "off", 1), (4, "on", 9), (5, "on", 1)]
            target.merge(spark.createDataFrame(rows, columns), "false").whenNotMatchedInsertAll().execute()

            rows = [(1, "off", 2), (2, "gone", 2), (3, "on", 0), (8, "on", 2), (9, "no", 2)]
            source = spark.createDataFrame(rows, columns)
            (
                target.alias("t")
                .merge(source.alias("s"), col("t.id") == col("s.id"))
                .whenMatchedDelete(condition="s.state = 'gone'")
                .whenMatchedUpdate(col("s.seen") > col("t.seen"), {"state": col("s.state"), "seen": "s.seen"})
                .whenMatchedUpdate(set={"seen": lit(-1)})
                .whenNotMatchedInsertAll(condition="s.state <> 'no'")
                .whenNotMatchedInsert(values={"id": "s.id", "state": lit("new")})
                .whenNotMatchedBySourceDelete(condition="t.seen > 5")
                .whenNotMatchedBySourceUpdate(set={"state": "'left'"})
                .execute()
            )
            answers.append(sorted(map(tuple, target.toDF().collect())))
            """
        ),
        [[(1, "off", 2), (3, "off", -1), (5, "left", 1), (8, "on", 2), (9, "new", None)]],
    ),
    "merge: only rows that are new": (
        _program(
            """
            from delta.tables import DeltaTable

            builder = DeltaTable.create(spark).location("/data/log")
            log = builder.addColumn("key", "STRING").addColumn("day", "DATE").execute()
            batch = spark.sql("SELECT 'a' AS key, DATE'2026-01-01' AS day UNION ALL SELECT 'b', DATE'2026-01-02'")
            more = spark.sql("SELECT 'b' AS key, DATE'2026-01-02' AS day UNION ALL SELECT 'c', DATE'2026-01-03'")
            for rows in (batch, more, more):
                (
                    log.alias("log")
                    .merge(rows.dropDuplicates(["key"]).alias("rows"), "log.key = rows.key AND log.day > '2025-12-31'")
                    .whenNotMatchedInsertAll("rows.day > '2025-12-31'")
                    .execute()
                )
            answers.append(sorted(row["key"] for row in log.toDF().collect()))
            """
        ),
        [["a", "b", "c"]],
    ),
    "merge: slowly changing dimension": (
        _program(
            """
            from delta.tables import DeltaTable

            columns = "customer long, address string, current boolean, since date, until date"
            customers = DeltaTable.create(spark).location("/data/customers").addColumns(
                spark.createDataFrame([], columns).schema
            ).execute()
            first = spark.sql(
                "SELECT 1L AS customer, 'old lane' AS address, true AS current, DATE'2025-01-01' AS since, "
                "CAST(NULL AS DATE) AS until UNION ALL SELECT 2, 'high street', true, DATE'2025-01-01', NULL"
            )
            customers.merge(first, "false").whenNotMatchedInsertAll().execute()

            updates = spark.sql(
                "SELECT 1L AS customer, 'new lane' AS address, DATE'2026-01-01' AS since UNION ALL "
                "SELECT 2, 'high street', DATE'2026-01-01' UNION ALL SELECT 3, 'far road', DATE'2026-01-01'"
            )
            moved = (
                updates.alias("u")
                .join(customers.toDF().alias("c"), "customer")
                .where("c.current AND u.address <> c.address")
                .selectExpr("CAST(NULL AS LONG) AS key", "customer", "u.address", "u.since")
            )
            staged = moved.unionByName(updates.selectExpr("customer AS key", "*"))
            (
                customers.alias("c")
                .merge(staged.alias("s"), "c.customer = s.key")
                .whenMatchedUpdate(
                    condition="c.current AND c.address <> s.address", set={"current": "false", "until": "s.since"}
                )
                .whenNotMatchedInsert(
                    values={"customer": "s.customer", "address": "s.address", "current": "true", "since": "s.since"}
                )
                .execute()
            )
            kept = customers.toDF().selectExpr("customer", "address", "current", "string(since)", "string(until)")
            answers.append(sorted(map(tuple, kept.collect()), key=str))
            """
        ),
        [
            [
                (1, "new lane", True, "2026-01-01", None),
                (1, "old lane", False, "2025-01-01", "2026-01-01"),
                (2, "high street", True, "2025-01-01", None),
                (3, "far road", True, "2026-01-01", None),
            ]
        ],
    ),
    "merge: the last of several changes": (
        _program(
            """
            from delta.tables import DeltaTable

            columns = "key string, value long"
            target = DeltaTable.create(spark).location("/data/changes").addColumns(
                spark.createDataFrame([], columns).schema
            ).execute()
            target.merge(
                spark.createDataFrame([("a", 0), ("b", 1), ("c", 2), ("d", 3)], columns), "false"
            ).whenNotMatchedInsertAll().execute()

            changes = spark.createDataFrame(
                [("a", 10, False, 0), ("a", None, True, 1), ("b", None, True, 2), ("c", None, True, 3),
                 ("c", 20, False, 4), ("d", None, True, 5), ("e", 40, False, 6)],
                "key string, value long, is_deleted boolean, at long",
            )
            last = changes.selectExpr("key", "struct(at, value, is_deleted) AS change")
            last = last.groupBy("key").agg({"change": "max"})
            last = last.selectExpr("key", "`max(change)`.*")
            (
                target.alias("t")
                .merge(last.alias("s"), "s.key = t.key")
                .whenMatchedDelete("s.is_deleted")
                .whenMatchedUpdate(set={"key": "s.key", "value": "s.value"})
                .whenNotMatchedInsert("NOT s.is_deleted", {"key": "s.key", "value": "s.value"})
                .execute()
            )
            answers.append(sorted(map(tuple, target.toDF().collect())))
            """
        ),
        [[("c", 20), ("e", 40)]],
    ),
    "merge: schema evolution": (
        _program(
            """
            from delta.tables import DeltaTable

            builder = DeltaTable.create(spark).location("/data/wide")
            table = builder.addColumn("id", "BIGINT").addColumn("a", "STRING").execute()
            table.merge(spark.sql("SELECT 1L AS id, 'x' AS a"), "false").whenNotMatchedInsertAll().execute()
            source = spark.sql("SELECT 1L AS id, 'y' AS a, 7 AS b UNION ALL SELECT 2L, 'z', 8")
            (
                table.alias("t")
                .merge(source.alias("s"), "t.id = s.id")
                .withSchemaEvolution()
                .whenMatchedUpdateAll()
                .whenNotMatchedInsertAll()
                .execute()
            )
            # delta-spark's object keeps the columns that the table had when it was made.
            table = DeltaTable.forPath(spark, "/data/wide")
            answers.append(table.toDF().columns)
            answers.append(sorted(map(tuple, table.toDF().collect())))
            """
        ),
        [["id", "a", "b"], [(1, "y", 7), (2, "z", 8)]],
    ),
    "merge in foreachBatch": (
        _program(
            """
            from delta.tables import DeltaTable

            builder = DeltaTable.create(spark).location("/data/latest")
            table = builder.addColumn("k", "INT").addColumn("n", "BIGINT").execute()
            spark.range(10).selectExpr("int(id % 3) AS k").write.parquet("/data/events")


            def upsert(batch, number):
                from delta.tables import DeltaTable

                (
                    DeltaTable.forPath(batch.sparkSession, "/data/latest")
                    .alias("t")
                    .merge(batch.alias("s"), "s.k = t.k")
                    .whenMatchedUpdateAll()
                    .whenNotMatchedInsertAll()
                    .execute()
                )


            def run():
                events = spark.readStream.schema("k int").parquet("/data/events")
                counts = events.groupBy("k").count().withColumnRenamed("count", "n")
                writer = counts.writeStream.foreachBatch(upsert).outputMode("update")
                query = writer.option("checkpointLocation", "/data/checkpoint").trigger(availableNow=True).start()
                query.awaitTermination()


            run()
            spark.range(3).selectExpr("int(id % 3) AS k").write.mode("append").parquet("/data/events")
            run()
            answers.append(sorted(map(tuple, table.toDF().collect())))
            """
        ),
        [[(0, 5), (1, 4), (2, 4)]],
    ),
    "builders, history and restore": (
        _program(
            """
            from delta.tables import DeltaTable
            from pyspark.sql.types import DateType

            assert not DeltaTable.isDeltaTable(spark, "/data/events")
            table = (
                DeltaTable.create(spark)
                .location("/data/events")
                .addColumn("id", "INT", nullable=False, comment="the key")
                .addColumn("at", "TIMESTAMP")
                .addColumn("day", DateType(), generatedAlwaysAs="CAST(at AS DATE)")
                .partitionedBy("day")
                .comment("what happened")
                .property("delta.enableChangeDataFeed", "true")
                .execute()
            )
            assert DeltaTable.isDeltaTable(spark, "/data/events")
            rows = spark.sql("SELECT 1 AS id, TIMESTAMP'2026-01-02 10:00:00' AS at")
            merge = table.alias("t").merge(rows.alias("s"), "false")
            merge.whenNotMatchedInsert(values={"id": "s.id", "at": "s.at"}).execute()
            answers.append([(row["id"], str(row["day"])) for row in table.toDF().collect()])
            table.delete("id = 1")
            answers.append(table.toDF().count())
            restored = table.restoreToVersion(1).first()
            answers.append([restored["num_restored_files"], table.toDF().count()])
            detail = table.detail().select("partitionColumns", "description", "format").first()
            answers.append([detail["partitionColumns"], detail["description"], detail["format"]])
            answers.append([row["operation"] for row in table.history().orderBy("version").collect()])
            """
        ),
        [
            [(1, "2026-01-02")],
            0,
            [1, 1],
            [["day"], "what happened", "delta"],
            ["CREATE TABLE", "MERGE", "DELETE", "RESTORE"],
        ],
    ),
}

# Programs that also read or write with format("delta"); these calls must be replaced as the documentation page
# describes.
CALLS: dict[str, tuple[str, list[Any]]] = {
    "time travel": (
        _program(
            """
            from delta.tables import DeltaTable

            place = "/data/users"
            start = spark.createDataFrame([(1, "ann"), (2, "ben")], "id long, name string")
            start.write.format("delta").save(place)
            table = DeltaTable.forPath(spark, place)
            table.update("id = 1", {"name": "'oops'"})
            later = spark.createDataFrame([(3, "cat")], "id long, name string")
            later.write.format("delta").mode("append").save(place)

            old = spark.read.format("delta").option("versionAsOf", 0).load(place)
            answers.append(sorted(map(tuple, old.collect())))
            moments = {row["version"]: row["timestamp"] for row in table.history().collect()}
            at = moments[1].strftime("%Y-%m-%d %H:%M:%S.%f")
            answers.append(spark.read.format("delta").option("timestampAsOf", at).load(place).count())
            answers.append(spark.read.format("delta").load(place + "@v1").count())

            # Bring back the values of one row, then count what is new since.
            (
                table.alias("t")
                .merge(old.alias("old"), "t.id = old.id AND t.id = 1")
                .whenMatchedUpdateAll()
                .execute()
            )
            now = spark.read.format("delta").load(place)
            answers.append(sorted(map(tuple, now.collect())))
            answers.append(now.select("id").exceptAll(old.select("id")).count())
            """
        ),
        [[(1, "ann"), (2, "ben")], 2, 2, [(1, "ann"), (2, "ben"), (3, "cat")], 1],
    ),
    "batches": (
        _program(
            """
            place = "/data/days"
            rows = spark.sql("SELECT id, if(id < 3, 'mon', 'tue') AS day FROM range(6)")
            rows.write.format("delta").partitionBy("day").save(place)
            monday = spark.sql("SELECT 100L AS id, 'mon' AS day")
            monday.write.format("delta").mode("overwrite").option("replaceWhere", "day = 'mon'").save(place)
            tuesday = spark.sql("SELECT 200L AS id, 'tue' AS day")
            tuesday.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(place)
            more = spark.sql("SELECT 300L AS id, 'wed' AS day, 1 AS extra")
            more.write.format("delta").mode("append").option("mergeSchema", "true").save(place)
            for _ in range(2):
                again = spark.sql("SELECT 400L AS id, 'thu' AS day, 2 AS extra")
                writer = again.write.format("delta").mode("append").option("txnAppId", "job").option("txnVersion", 1)
                writer.option("userMetadata", "nightly").save(place)
            answers.append(sorted(map(tuple, spark.read.format("delta").load(place).collect())))
            """
        ),
        [[(100, "mon", None), (200, "tue", None), (300, "wed", 1), (400, "thu", 2)]],
    ),
    "change data feed": (
        _program(
            """
            from delta.tables import DeltaTable

            place = "/data/fed"
            builder = DeltaTable.create(spark).location(place).property("delta.enableChangeDataFeed", "true")
            table = builder.addColumn("id", "BIGINT").addColumn("v", "STRING").execute()
            rows = spark.sql("SELECT 1L AS id, 'a' AS v UNION ALL SELECT 2L, 'b'")
            rows.write.format("delta").mode("append").save(place)
            table.update("id = 1", {"v": "'z'"})
            table.delete("id = 2")
            reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
            found = reader.load(place).select("_commit_version", "_change_type", "id", "v")
            answers.append(sorted(map(tuple, found.collect())))
            """
        ),
        [
            [
                (1, "insert", 1, "a"),
                (1, "insert", 2, "b"),
                (2, "update_postimage", 1, "z"),
                (2, "update_preimage", 1, "a"),
                (3, "delete", 2, "b"),
            ]
        ],
    ),
    "streams": (
        _program(
            """
            numbers = spark.range(10)
            numbers.write.format("delta").save("/data/numbers")


            def run(frame, target, mode):
                writer = frame.writeStream.format("delta").outputMode(mode)
                writer = writer.option("checkpointLocation", target + "-checkpoint").trigger(availableNow=True)
                writer.start(target).awaitTermination()


            def step():
                stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load("/data/numbers")
                run(stream.where("id % 2 = 0"), "/data/even", "append")
                run(stream.selectExpr("id % 3 AS k").groupBy("k").count(), "/data/counts", "complete")


            step()
            more = spark.range(10, 12)
            more.write.format("delta").mode("append").save("/data/numbers")
            step()
            answers.append(sorted(row["id"] for row in spark.read.format("delta").load("/data/even").collect()))
            answers.append(sorted(map(tuple, spark.read.format("delta").load("/data/counts").collect())))
            """
        ),
        [[0, 2, 4, 6, 8, 10], [(0, 4), (1, 4), (2, 4)]],
    ),
    "streams past changes": (
        _program(
            """
            from delta.tables import DeltaTable

            numbers = spark.range(10)
            numbers.write.format("delta").save("/data/source")
            DeltaTable.forPath(spark, "/data/source").delete("id < 5")
            more = spark.range(10, 12)
            more.write.format("delta").mode("append").save("/data/source")
            reader = spark.readStream.format("delta").option("startingVersion", 0).option("skipChangeCommits", "true")
            query = (
                reader.load("/data/source")
                .writeStream.format("delta")
                .option("checkpointLocation", "/data/target-checkpoint")
                .trigger(availableNow=True)
                .start("/data/target")
            )
            query.awaitTermination()
            answers.append(spark.read.format("delta").load("/data/target").count())
            """
        ),
        [12],
    ),
}
PROGRAMS = {**ONE_IMPORT, **CALLS}
