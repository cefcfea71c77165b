"""``python -m tests.benchmarks.streaming SIZE_MIB``: streams one version of this size to a disk in bounded memory.

Prints JSON: the seconds, and the peak resident memory before and after. ``10240`` is the 10 GiB that the write contract
names; the tests use less. Each run is a separate process, because a process's peak memory never decreases.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from deltalog import Dataset, Snapshot

PIECE = bytes(range(256)) * 4096  # 1 MiB
_BATCH_ROWS = 65_536


def peak_mib() -> int:
    """The peak resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> (20 if sys.platform == "darwin" else 10)


def stream_bytes(url: str, size_mib: int) -> Snapshot:
    """One blob."""
    with Dataset(url).stream_write({"size_mib": size_mib}, checksum="sha256") as writer:
        for _ in range(size_mib):
            writer.write(PIECE)
        return writer.commit()


def stream_records(url: str, size_mib: int) -> Snapshot:
    """Rows that each take 16 bytes in Arrow, as record batches of 1 MiB."""
    schema = pa.schema([("id", pa.int64()), ("value", pa.float64())])

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(size_mib):
            first = number * _BATCH_ROWS
            numbers = pa.array(range(first, first + _BATCH_ROWS), pa.int64())
            yield pa.record_batch([numbers, numbers.cast(pa.float64())], schema=schema)

    return Dataset(url, schema=schema).stream_write_records(batches(), checksum="sha256")


VERBS = {"bytes": stream_bytes, "records": stream_records}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.streaming", description=__doc__)
    parser.add_argument("size_mib", type=int, help="the size to stream; 10240 is 10 GiB")
    parser.add_argument("--of", choices=sorted(VERBS), default="bytes", help="default: %(default)s")
    parser.add_argument("--below", type=Path, help="the directory to write in (default: the one for temporary files)")
    chosen = parser.parse_args(arguments)
    root = tempfile.mkdtemp(dir=chosen.below)
    try:
        VERBS[chosen.of](f"{root}/first", 1)  # one-time imports and setup
        before, begin = peak_mib(), time.perf_counter()
        snapshot = VERBS[chosen.of](f"{root}/table", chosen.size_mib)
        seconds = time.perf_counter() - begin
        summary = snapshot.commit_summary
        print(
            json.dumps(
                {
                    "of": chosen.of,
                    "size_mib": chosen.size_mib,
                    "rows": summary.row_count,
                    "files": len(summary.files),
                    "blob_bytes": None if summary.blob is None else summary.blob.size_bytes,
                    "seconds": round(seconds, 2),
                    "peak_mib_before": before,
                    "peak_mib": peak_mib(),
                }
            )
        )
    finally:
        shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
