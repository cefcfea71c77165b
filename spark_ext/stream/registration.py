"""Registers ``format("deltalog")`` for streams: Spark's Python data source, of Spark 4.0 and newer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import deltalog
from spark_ext.session import stores


def register(spark: SparkSession, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Make ``spark.readStream.format("deltalog")`` and ``df.writeStream.format("deltalog")`` known to a session.

    ``storage_options``: of the stores of the tables, as for ``DeltaTable.open(url, **options)``; without them tables on
    S3 are accessed with the S3A settings that the session has now (``fs.s3a.…``, those of the table's bucket first), as
    by ``read`` and ``write``. Times without a zone in options of streams are in the time zone that the session has now.
    Call it again after a change of these settings. ``partitionBy`` and ``clusterBy`` of ``writeStream``, which Spark
    does not pass on to Python sinks, and ``readStream.table`` and ``toTable`` with names of the session's catalog, work
    in this process from then on. Spark's driver and executors need deltalog, spark_ext, pyarrow and pandas. Raises
    UnsupportedFeatureError before Spark 4.0, CallError. Cost: 2 commands, and 1 query for each setting of S3A.
    """
    if find_spec("pyspark.sql.datasource") is None:
        raise deltalog.UnsupportedFeatureError(
            f"PySpark {pyspark.__version__} has no Python data sources, which format('deltalog') needs: Spark 4.0 and "
            "newer. Write streams with foreachBatch(spark_ext.stream_writer(…)), which works with every version.",
            features=("Python data source",),
        )
    from spark_ext.stream.calls import add_calls
    from spark_ext.stream.formats import StreamFormat
    from spark_ext.stream.options import DefaultStorage

    given = stores.checked(storage_options or {})
    default = DefaultStorage(given, {} if given else stores.session_settings(spark))

    class Registered(StreamFormat):
        session_time_zone = str(spark.conf.get("spark.sql.session.timeZone"))
        default_storage = default

    spark.dataSource.register(Registered)
    add_calls(spark)
