"""A Spark driver in a separate process, which reads commands as lines of JSON and answers each with a line of JSON.

The driver's argument contains the settings of the Spark session as JSON. ``write`` makes one write attempt, ``loop``
makes attempts until the process is killed. Each attempt writes rows with ids of its own and records its number as
``txnVersion``, so that the log shows which attempts were committed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

ROWS_PER_ATTEMPT = 1_000_000  # the difference between the first id in one attempt and the first id in the next attempt
APPLICATION = "attempts"
OVERWRITES_EVERY = 5  # if the number of an attempt is a multiple of this, the attempt overwrites the table


def main() -> None:
    spark = _session(json.loads(sys.argv[1]))
    _say(ready=os.getpid(), jvm=spark.sparkContext._gateway.proc.pid)
    for line in sys.stdin:
        command = json.loads(line)
        attempts = range(1, 10_000) if command.pop("do") == "loop" else [command["attempt"]]
        for attempt in attempts:
            _say(start=attempt)
            _say(**_write(spark, **{**command, "attempt": attempt}))


def _session(settings: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("failures")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _say(**facts: Any) -> None:
    sys.stdout.write("@" + json.dumps(facts) + "\n")
    sys.stdout.flush()


def _write(
    spark: Any, table: str, options: Mapping[str, Any], attempt: int, rows: int, tasks: int, kind: str, seed: int,
    partitioned: bool,
) -> dict[str, Any]:  # fmt: skip
    import deltalog
    import spark_ext

    is_saving = False
    try:
        first = attempt * ROWS_PER_ATTEMPT
        frame = spark.range(first, first + rows, 1, tasks)
        if kind != "plain":
            frame = frame.mapInArrow(_task(kind, seed, tasks), "id long")
        writer = spark_ext.write(frame.selectExpr("id", "cast(id % 3 as int) as p"))
        writer = writer.mode("append" if attempt % OVERWRITES_EVERY else "overwrite")
        writer = writer.options(txnAppId=APPLICATION, txnVersion=attempt, maxRecordsPerFile=1 + rows // (tasks * 3))
        if options:
            writer = writer.storage_options(**options)
        if partitioned:
            writer = writer.partitionBy("p")
        is_saving = True
        result = writer.save(table)
    except Exception as error:
        return {
            "failed": attempt,
            "error": type(error).__name__,
            "is_of_save": is_saving,
            "is_of_deltalog": isinstance(error, deltalog.DeltaLogError),
            "outcome": str(getattr(error, "outcome", "")),
            "reason": getattr(error, "reason", ""),
            "message": str(error)[:600],
        }
    return {"done": attempt, "committed": result.committed, "version": result.version}


def _task(kind: str, seed: int, tasks: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that the tasks of an attempt apply to their rows. The seed selects the task that fails."""
    victim, moment, pause_s = (draw := random.Random(seed)).randrange(tasks), draw.randrange(3), draw.uniform(1, 4)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        is_victim = context is not None and context.partitionId() == victim
        is_first = context is not None and context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if is_victim and number == moment:
                if kind == "failing job" or (kind == "task retry" and is_first):
                    raise ValueError("this task fails")
                if kind == "executors lost" or (kind == "executor lost" and is_first):
                    _kill_executor()
                if kind == "speculation" and is_first:
                    time.sleep(pause_s)
            yield batch

    return run


def _kill_executor() -> None:
    """Kill the executor JVM that started this Python worker."""
    pid = os.getpid()
    while True:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            if "CoarseGrainedExecutorBackend" in file.read():
                break
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
        if pid <= 1:
            raise RuntimeError("there is no executor above this worker")
    os.kill(pid, signal.SIGKILL)
    time.sleep(60)


if __name__ == "__main__":
    main()
