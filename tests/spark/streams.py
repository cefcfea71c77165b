"""Test streams that read a directory of JSON files, one file per batch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Input:
    """A directory that a stream reads, and the checkpoint of the query."""

    def __init__(self, spark: Any, directory: Path) -> None:
        self._spark, self._files = spark, directory / "input"
        self.checkpoint = str(directory / "checkpoint")
        self._files.mkdir(parents=True)
        self._count = 0
        self._began_s = int(time.time()) - 1000

    def add(self, *ids: int) -> None:
        """Add an input file, which the stream reads as one batch."""
        text = "".join(json.dumps({"id": each, "name": f"row {each}"}) + "\n" for each in ids)
        hidden = self._files / f".{self._count:05d}"
        hidden.write_text(text)
        at_s = self._began_s + self._count  # the order of the batches
        os.utime(hidden, (at_s, at_s))
        hidden.rename(self._files / f"{self._count:05d}.json")  # so that Spark does not read an incomplete file
        self._count += 1

    @property
    def stream(self) -> Any:
        reader = self._spark.readStream.schema("id long, name string").option("maxFilesPerTrigger", 1)
        return reader.json(str(self._files))

    def run(self, write: Callable[[Any, int], Any], frame: Any = None, output_mode: str = "append") -> None:
        """Process all available input, batch by batch. Raises the error that ended the query."""
        writer = (self.stream if frame is None else frame).writeStream.foreachBatch(_without_result(write))
        writer = writer.outputMode(output_mode).option("checkpointLocation", self.checkpoint)
        finish(writer.trigger(availableNow=True).start())


def _without_result(write: Callable[[Any, int], Any]) -> Callable[[Any, int], None]:
    def each(df: Any, batch_id: int) -> None:
        write(df, batch_id)

    return each


def finish(query: Any) -> None:
    """Wait until a query ends by itself, without being stopped. Raises the error that ended it."""
    try:
        assert query.awaitTermination(120), "the stream did not end"
    finally:
        query.stop()
