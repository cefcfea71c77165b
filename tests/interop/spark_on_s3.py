"""One session with delta-spark and with Hadoop's S3A, in which delta-spark and spark_ext read each other's tables on
S3.

``python -m tests.interop.spark_on_s3 URL`` reads the storage options as JSON from standard input and writes the results
as JSON to standard output. This program runs in a separate process, because the session of the other tests has no S3A.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F

import spark_ext
from spark_ext.session.stores import bucket_of, s3a_settings
from tests.support.spark.jars import s3a_jars
from tests.support.spark.session import delta_session, stop_sessions

_ICT = "delta.enableInCommitTimestamps"


def _rows(df: Any) -> list[list[Any]]:
    return sorted([*map(str, row)] for row in df.collect())


def exchange(spark: Any, url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The rows that each engine reads from the other's tables."""
    ours, theirs = f"{url}/of spark_ext", f"{url}/of delta-spark"
    for name, value in s3a_settings(options, [bucket_of(url) or ""]).items():
        spark.conf.set(name, value)  # delta-spark has no other options; spark_ext also uses the session's settings
    by_delta = lambda path: spark.read.format("delta").load(path.replace("s3:", "s3a:"))  # noqa: E731
    df = spark.range(20).selectExpr("id", "id % 3 as p", "cast(id as string) as name").repartition(2)
    created = spark_ext.write(df).partitionBy("p").option(_ICT, "true").save(ours)
    df.where("id < 5").write.format("delta").mode("append").save(ours.replace("s3:", "s3a:"))
    appended = spark_ext.write(df.where("id > 17")).mode("append").save(ours)
    df.write.format("delta").partitionBy("p").option(_ICT, "true").save(theirs.replace("s3:", "s3a:"))
    replaced = spark_ext.write(df.where("p = 1")).mode("overwrite").option("replaceWhere", "p = 1").save(theirs)
    history = spark.sql(f"describe history delta.`{ours.replace('s3:', 's3a:')}`")
    return {
        "versions": [created.version, appended.version, replaced.version],
        "rows": [[_rows(by_delta(path)), _rows(spark_ext.read(spark).load(path))] for path in (ours, theirs)],
        "old": [
            spark.read.format("delta").option("versionAsOf", 0).load(ours.replace("s3:", "s3a:")).count(),
            spark_ext.read(spark).option("versionAsOf", 1).load(ours).count(),
        ],
        "instants": history.sort("version").select(F.unix_millis("timestamp")).toPandas().iloc[:, 0].tolist(),
        "in_commit_timestamps": [created.in_commit_timestamp_ms, appended.in_commit_timestamp_ms],
    }


def main(url: str) -> int:
    spark = delta_session(**{"spark.jars": ",".join(map(str, s3a_jars()))})
    try:
        print(json.dumps(exchange(spark, url, json.load(sys.stdin))))
    finally:
        stop_sessions()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
