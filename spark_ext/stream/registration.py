"""Registers ``format("deltalog")``, as a Python data source of Spark 4.0 or newer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import deltalog
from spark_ext.session import stores


def register(spark: SparkSession, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Register ``format("deltalog")`` in a session for ``spark.readStream`` and ``df.writeStream``. For batches it is a
    slow path that reads in one task and can only append; ``read`` and ``write`` are the native path.

    ``storage_options``: the options of the tables' stores, as for ``DeltaTable.open(url, **options)``. By default
    tables on S3 use the session's S3A settings (``fs.s3a.…``; per-bucket settings take precedence), like ``read`` and
    ``write``. These settings are captured now, and so is the session time zone, which applies to times without a zone
    in stream options: call this function again after changing them. This call also has two effects on the whole
    process: ``writeStream`` passes ``partitionBy`` and ``clusterBy`` to the sink, although Spark does not pass them to
    Python sinks; and ``readStream.table`` and ``toTable`` accept names in the session's catalog. Spark's driver and
    executors need deltalog, spark_ext, pyarrow and pandas. Raises UnsupportedFeatureError before Spark 4.0, CallError.
    Cost: 2 commands, and 1 query for every S3A setting that is set.
    """
    if find_spec("pyspark.sql.datasource") is None:
        raise deltalog.UnsupportedFeatureError(
            f"PySpark {pyspark.__version__} has no Python data sources, which format('deltalog') needs (Spark 4.0 or "
            "newer). Write streams with foreachBatch(spark_ext.stream_writer(…)), which works with every version.",
            features=("Python data source",),
        )
    from spark_ext.stream.calls import add_calls
    from spark_ext.stream.formats import StreamFormat
    from spark_ext.stream.options import DefaultStorage

    given = stores.checked(storage_options or {})
    default = DefaultStorage(given, {} if given else stores.session_settings(spark))

    pushes = str(spark.conf.get("spark.sql.python.filterPushdown.enabled", "false")).lower() == "true"

    class Registered(StreamFormat):
        session_time_zone = str(spark.conf.get("spark.sql.session.timeZone"))
        default_storage = default
        pushes_filters = pushes

    spark.dataSource.register(Registered)
    add_calls(spark)
