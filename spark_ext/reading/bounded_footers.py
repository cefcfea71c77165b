"""The columns and the number of rows of Parquet files that any program may have written, in bounded memory."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pyarrow as pa

import deltalog

# For workers that have pyarrow only: a footer's lists, the longest of which are its columns and row groups. A short one
# that claims more takes a GiB.
MOST_ITEMS = 100_000


def schema_of(source: Any) -> tuple[pa.Schema, int]:
    """The columns of a Parquet file, and its number of rows. ``source``: a path on a local disk, or what pyarrow reads.

    Raises OSError and ValueError, also for a name that is not UTF-8. Cost: 1 small read.
    """
    if isinstance(source, str) and not os.path.isfile(source):
        raise FileNotFoundError(f"{source} is no file")  # opening a pipe would wait for its writer
    with contextlib.closing(pa.OSFile(source) if isinstance(source, str) else source) as opened:
        file = deltalog.engine.open_parquet(opened)
        for number in range(file.metadata.num_columns):
            file.schema.column(number).path  # noqa: B018  (raises for such a name, of a struct above too)
        return file.schema_arrow, file.metadata.num_rows
