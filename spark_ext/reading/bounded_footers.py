"""Reads the schema and the row count of untrusted Parquet files in bounded memory."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pyarrow as pa

import deltalog

# The maximum length of a list in a footer (columns, row groups). It is defined here for workers on which only pyarrow
# is installed. A small footer that declares a longer list makes pyarrow allocate a GiB.
MOST_ITEMS = 100_000


def schema_of(source: Any) -> tuple[pa.Schema, int]:
    """The schema and the number of rows of a Parquet file. ``source``: a local path, or a file object for pyarrow.

    Raises OSError and ValueError, also for a column name that is not UTF-8. Cost: 1 small read.
    """
    if isinstance(source, str) and not os.path.isfile(source):
        raise FileNotFoundError(f"{source} is not a file")  # opening a pipe would block
    with contextlib.closing(pa.OSFile(source) if isinstance(source, str) else source) as opened:
        file = deltalog.engine.open_parquet(opened)
        for number in range(file.metadata.num_columns):
            file.schema.column(number).path  # noqa: B018 (raises an error if a column name, even a nested one, is not UTF-8)
        return file.schema_arrow, file.metadata.num_rows
