"""A Spark driver in a separate process, which reads descriptions of streams as lines of JSON and answers each with a
line of JSON.

A stream copies one table to another, one file per batch. The driver fails once, at the step named in its command: the
first process to reach the step removes the marker file and fails.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

import spark_ext
from spark_ext.stream.formats import StreamFormat
from spark_ext.stream.sink import ArrowSink
from spark_ext.stream.source import LimitedStreamSource


class Fault:
    """Causes one failure at a step: raises an error, or kills the driver's JVM with kill -9."""

    def __init__(self, step: str, marker: str, jvm: int, is_kill: bool) -> None:
        self._step, self._marker, self._jvm, self._is_kill = step, marker, jvm, is_kill

    def at(self, step: str) -> None:
        if step != self._step:
            return
        try:
            os.unlink(self._marker)
        except FileNotFoundError:
            return
        if self._is_kill:
            os.kill(self._jvm, signal.SIGKILL)
            signal.pause()
        raise RuntimeError(f"injected: {step}")


class FailingSource(LimitedStreamSource):
    fault: Fault

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "fault": self.fault}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        self.fault.at("offset")
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        self.fault.at("plan")
        return super().partitions(start, end)

    def read(self, partition: Any) -> Iterator[Any]:
        self.fault.at("read")
        yield from super().read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self.fault.at("acknowledged")


class FailingSink(ArrowSink):
    fault: Fault

    def write(self, iterator: Iterator[Any]) -> Any:
        self.fault.at("before staging")
        staged = super().write(iterator)
        self.fault.at("after staging")
        return staged

    def commit(self, messages: Any, batchId: int) -> None:
        self.fault.at("before commit")
        super().commit(messages, batchId)
        self.fault.at("after commit")


STEPS = (
    *("offset", "plan", "read", "acknowledged"),
    *("before staging", "after staging", "before commit", "after commit"),
)  # fmt: skip


def failing(fault: Fault) -> type[StreamFormat]:
    class Failing(StreamFormat):
        def streamReader(self, schema: StructType) -> Any:
            reader = FailingSource(self._source_options(), schema)
            reader.fault = fault
            return reader

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
            from spark_ext.stream.options import DefaultStorage, sink_options

            writer = FailingSink(sink_options(self.options, DefaultStorage()), schema, overwrite)
            writer.fault = fault
            return writer

    return Failing


def main() -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("stream failures")
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    jvm = spark.sparkContext._gateway.proc.pid
    say(ready=os.getpid(), jvm=jvm)
    for line in sys.stdin:
        try:
            run(spark, jvm, **json.loads(line))
        except Exception as error:
            say(error=str(error)[:3000])
        else:
            say(error=None)


def run(spark: Any, jvm: int, source: str, target: str, checkpoint: str, step: str, marker: str, is_kill: bool) -> None:
    if step:
        Path(marker).touch()
        spark.dataSource.register(failing(Fault(step, marker, jvm, is_kill)))
    else:
        spark_ext.register(spark)
    frame = spark.readStream.format("deltalog").option("maxFilesPerTrigger", 1).load(source)
    writer = frame.writeStream.format("deltalog").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start(target)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def say(**facts: Any) -> None:
    sys.stdout.write("@" + json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
