"""One process that appends to a table concurrently with others: ``python concurrent_appender.py ENGINE TABLE NUMBER
DIRECTORY``.

The process writes ``ready-NUMBER`` into DIRECTORY, and starts to append when ``go`` exists. Each commit adds ROWS
unique rows, and its metadata identifies its writer; acknowledged commits are written to ``acknowledged-NUMBER``, one
per line. delta-spark makes SPARK_COMMITS commits, deltalog continues until ``stop`` exists.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROWS = 5
SPARK_COMMITS = 12
Append = Callable[[list[int], str], None]


def deltalog_append(table: str) -> Append:
    import pyarrow as pa

    import deltalog

    handle = deltalog.DeltaTable.open(table)

    def append(ids: list[int], tag: str) -> None:
        handle.append(pa.table({"id": pa.array(ids, pa.int64())}), user_metadata=tag)

    return append


def spark_append(table: str) -> Append:
    from tests.support.spark import delta_session

    given = json.loads(os.environ.get("APPENDER_SPARK_CONF", "{}"))
    session = delta_session(**given)

    def append(ids: list[int], tag: str) -> None:
        rows = session.range(ids[0], ids[-1] + 1, 1, 1)
        rows.write.format("delta").mode("append").option("userMetadata", tag).save(table)

    return append


def main(engine: str, table: str, number: int, directory: Path) -> None:
    append = {"deltalog": deltalog_append, "delta-spark": spark_append}[engine](table)
    pause = random.Random(number)
    stop, count = directory / "stop", 0
    append(_ids(number, 0), _tag(number, 0))  # classes loaded, code compiled
    with (directory / f"acknowledged-{number}").open("w") as acknowledged:
        acknowledged.write(f"{_tag(number, 0)}\n")
        (directory / f"ready-{number}").touch()
        while not (directory / "go").exists():
            time.sleep(0.01)
        parent = os.getppid()
        while os.getppid() == parent and not stop.exists() and not (engine == "delta-spark" and count == SPARK_COMMITS):
            count += 1
            append(_ids(number, count), _tag(number, count))
            acknowledged.write(f"{_tag(number, count)}\n")
            acknowledged.flush()
            if engine == "deltalog":
                time.sleep(pause.uniform(0.3, 1.0))  # so that the slower delta-spark also wins versions


def _ids(number: int, count: int) -> list[int]:
    first = number * 1_000_000 + count * ROWS
    return list(range(first, first + ROWS))


def _tag(number: int, count: int) -> str:
    return f"writer-{number}-commit-{count}"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
