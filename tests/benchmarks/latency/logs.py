"""The objects of the measured tables, built in memory: logs in which each commit adds one small file.

Checkpoints are a fixed number of commits apart; the last checkpoint is ten commits before the end of the log. Each
version has a ``.crc`` as deltalog writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.actions import ROWS, SmallActions, text_uuid, to_json
from tests.benchmarks.tables import commit_times

TAIL = 10  # commits after the last checkpoint
ROWS_OF_FILE = 100
# The minimum time between the commits around a requested timestamp, because S3 stores file times in whole seconds.
SAFE_MS = 4_000
COLUMNS = (("id", "long"),)


@dataclass(frozen=True)
class Log:
    """Versions 0 to ``size`` - 1, with a checkpoint every ``interval`` versions; the bucket is named after the log."""

    name: str
    size: int
    interval: int
    ict: bool = True
    checksums: bool = True

    @property
    def checkpoint_versions(self) -> range:
        return range(self.interval, self.size, self.interval)

    def asked(self) -> tuple[int, int]:
        """The requested version and a timestamp at which it was the latest version. The version is near the middle of
        the log, and far in time from the versions before and after it."""
        times = commit_times(self.size)
        version = self.size // 2 // self.interval * self.interval + self.interval // 2
        while times[version] - times[version - 1] < SAFE_MS or times[version + 1] - times[version] < SAFE_MS:
            version += 1
        return version, (times[version] + times[version + 1]) // 2

    @property
    def tail_of_asked(self) -> int:
        """The number of commits between the requested version and the checkpoint before it."""
        return self.asked()[0] % self.interval

    @property
    def checkpoint_bytes_at_most(self) -> int:
        """An upper bound for the size of the checkpoint before the requested version."""
        return 1_000 * 20 + self.asked()[0] * 100


def logs(quick: bool) -> list[Log]:
    sizes = [("200", 200, 50)] if quick else [("5k", 5_000, 1_000), ("100k", 100_000, 1_000)]
    found = []
    for name, commits, interval in sizes:
        size = commits + TAIL + 1
        found += [Log(f"ict{name}", size, interval), Log(f"noict{name}", size, interval, ict=False)]
        if commits == sizes[0][1]:
            found.append(Log(f"nocrc{name}", size, interval, checksums=False))
    return found


def objects(log: Log) -> Iterator[tuple[str, bytes, int]]:
    """The key, content and modification time (milliseconds since 1970) of each object, in the order they were
    written."""
    from deltalog.log.checksum import encode_checksum
    from deltalog.log.replay import State
    from deltalog.log.table_totals import FileSizes, Totals
    from deltalog.protocol.actions import Metadata, Protocol

    small = SmallActions(log.name, COLUMNS, "", log.ict, checkpoint_interval=log.interval)
    state = State(Protocol.from_json(small.protocol()), Metadata.from_json(small.metadata()), {}, {})
    rows = _rows(log, small)
    sizes, total_bytes, last_ms = FileSizes(), 0, 0
    for version, at_ms in enumerate(commit_times(log.size)):
        name = f"_delta_log/{version:020d}"
        info = small.commit_info(version, at_ms)
        lines = [{"commitInfo": info}]
        if version == 0:
            lines += [{"protocol": small.protocol()}, {"metaData": small.metadata()}]
        add = _add(version, at_ms)
        lines.append({"add": add})
        yield f"{name}.json", "".join(to_json(line) + "\n" for line in lines).encode(), at_ms
        if log.checksums:
            sizes = sizes.changed([add["size"]], 1)
            total_bytes += add["size"]
            totals = Totals(version + 1, total_bytes, sizes, None)
            yield f"{name}.crc", encode_checksum(state, totals, info["txnId"], at_ms if log.ict else None), at_ms
        if version in log.checkpoint_versions:
            sink = pa.BufferOutputStream()
            pq.write_table(rows.slice(0, version + 3), sink, compression="snappy")
            data = sink.getvalue().to_pybytes()
            yield f"{name}.checkpoint.parquet", data, at_ms
            hint = {"version": version, "size": version + 3, "sizeInBytes": len(data), "numOfAddFiles": version + 1}
        last_ms = at_ms
    yield "_delta_log/_last_checkpoint", to_json(hint).encode(), last_ms


def _add(version: int, at_ms: int) -> dict[str, Any]:
    low = version * ROWS_OF_FILE
    stats = {
        "numRecords": ROWS_OF_FILE,
        "minValues": {"id": low},
        "maxValues": {"id": low + ROWS_OF_FILE - 1},
        "nullCount": {"id": 0},
    }
    return {
        "path": f"part-00000-{text_uuid(f'file {version}')}.c000.snappy.parquet",
        "partitionValues": {},
        "size": 1_500 + version % 100,
        "modificationTime": at_ms,
        "dataChange": True,
        "stats": to_json(stats),
    }


def _rows(log: Log, small: SmallActions) -> pa.Table:
    """The rows of a checkpoint of the last version: protocol, metadata, and the adds in commit order. The rows of each
    earlier checkpoint are a slice of these rows."""
    times = commit_times(log.size)[: log.checkpoint_versions[-1] + 1]
    adds = [_add(version, at_ms) for version, at_ms in enumerate(times)]
    kind = ROWS.field("add").type
    known = {
        "path": pa.array([add["path"] for add in adds]),
        "partitionValues": pa.MapArray.from_arrays([0] * (len(adds) + 1), pa.array([], "str"), pa.array([], "str")),
        "size": pa.array([add["size"] for add in adds]),
        "modificationTime": pa.array(times),
        "dataChange": pa.repeat(False, len(adds)),
        "stats": pa.array([add["stats"] for add in adds]),
    }
    columns = [known[each.name] if each.name in known else pa.nulls(len(adds), each.type) for each in kind]
    bodies = pa.StructArray.from_arrays([c.cast(f.type) for c, f in zip(columns, kind, strict=True)], fields=list(kind))
    arrays = []
    for field in ROWS:
        first = pa.array([body if name == field.name else None for name, body in small.rows()], field.type)
        rest = bodies if field.name == "add" else pa.nulls(len(adds), field.type)
        arrays.append(pa.chunked_array([first, rest]))
    return pa.Table.from_arrays(arrays, schema=ROWS)
