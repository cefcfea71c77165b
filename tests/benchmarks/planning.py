"""Planning of scans over many files: ``python -m tests.benchmarks.planning [--files N ...] [--quick]``.

The tables have a V2 checkpoint whose sidecars contain about a million file actions each, unordered, as delta-spark
writes them, and one tombstone for every twenty live files. Three later commits change files that the conditions select:
they remove some of these files, add some of them back, and add deletion vectors to some. Only the logs exist, without
data files. Each scan is planned in a separate process; its wall time, CPU time, and the peak memory of the whole
process are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks import livefiles
from tests.benchmarks.actions import BEGIN_MS, ROWS, SIDECAR, SmallActions, text_uuid, to_json
from tests.benchmarks.livefiles import CHECKPOINT, COLUMNS, IDS, REGIONS

SYSTEMS = ("deltalog", "deltalake")
# Statistics as JSON text only, as both text and structs (like delta-spark's checkpoints), or as structs only.
FORMS = ("text", "both", "structs")
CONDITIONS = ("ten", "region and tenth of ids", "region")
SIDECAR_ROWS, GROUP_ROWS = 1_000_000, 200_000
_REGION = 7
_FIGURES = ("seconds", "cpu_seconds", "peak_mib")


@dataclass(frozen=True)
class PlanTable:
    """A table with ``size`` files in its checkpoint. ``form``: one of FORMS."""

    size: int
    form: str = "text"
    sidecar_rows: int = SIDECAR_ROWS

    @property
    def changed(self) -> int:
        """The number of files that each of the later commits changes."""
        return max(2, min(1000, self.size // 100))

    @property
    def middle(self) -> int:
        """The number of the first file that the later commits change."""
        return self.size // 2 - self.changed

    @property
    def small_actions(self) -> SmallActions:
        return _WithVectors(f"plan {self.size}", (*COLUMNS, ("region", "integer")), "region", v2_checkpoint=True)

    def live(self) -> Any:
        """The live files, as file numbers, and for each of them whether it has a deletion vector."""
        numbers = np.arange(self.size + self.changed)
        gone = range(self.middle + self.changed // 2, self.middle + self.changed)
        marked = range(self.middle + self.changed, self.middle + 2 * self.changed)
        kept = (numbers < gone.start) | (numbers >= gone.stop)
        return numbers[kept], ((numbers >= marked.start) & (numbers < marked.stop))[kept]

    def ids(self, condition: str) -> tuple[int, int]:
        """The range of ids that a condition selects: the first id, and the id after the last."""
        files = {
            "ten": (self.size // 2 - 5 * REGIONS, self.size // 2 + 5 * REGIONS),
            "region and tenth of ids": (self.size * 45 // 100, self.size * 55 // 100),
            "region": (0, 2 * self.size),
        }[condition]
        return max(files[0], 0) * IDS, files[1] * IDS

    def right(self, condition: str) -> dict[str, int]:
        """The expected result of a condition: the number of files, their bytes, and the number of deletion vectors."""
        low, high = (each // IDS for each in self.ids(condition))
        numbers, marked = self.live()
        chosen = (numbers >= low) & (numbers < high) & (numbers % REGIONS == _REGION)
        return {
            "files": int(chosen.sum()),
            "bytes": int(livefiles._sizes(numbers[chosen]).sum()),
            "vectors": int(marked[chosen].sum()),
        }


class _WithVectors(SmallActions):
    def protocol(self) -> dict[str, Any]:
        body = super().protocol()
        return {**body, **{key: [*body[key], "deletionVectors"] for key in ("readerFeatures", "writerFeatures")}}

    def metadata(self) -> dict[str, Any]:
        body = super().metadata()
        return {**body, "configuration": {**body["configuration"], "delta.enableDeletionVectors": "true"}}

    def commit_info(self, version: int, at_ms: int, files: int = 1) -> dict[str, Any]:
        return {**super().commit_info(version, at_ms, files), "isBlindAppend": False}


# -------------------------------------------------------------------------------------------------- tables


def build(root: Path, table: PlanTable) -> None:
    """Write the log of a table, with one row group in memory at a time."""
    log = root / "_delta_log"
    (log / "_sidecars").mkdir(parents=True)
    count = max(2, -(-table.size // table.sidecar_rows))
    sidecars: list[dict[str, Any]] = []
    for number in range(count):
        name = f"{text_uuid(f'{table.size} {number}')}.parquet"
        numbers = np.arange(table.size)
        spread = numbers[numbers // REGIONS % count == number]  # all regions and ids
        _write_sidecar(log / "_sidecars" / name, spread, table.form)
        size = (log / "_sidecars" / name).stat().st_size
        sidecars.append({"path": name, "sizeInBytes": size, "modificationTime": BEGIN_MS})
    manifest = pa.table({"sidecar": pa.array(sidecars, SIDECAR)})
    version = pa.table({"checkpointMetadata": pa.array([{"version": CHECKPOINT}])})
    small = {name: pa.array([body], ROWS.field(name).type) for name, body in table.small_actions.rows()}
    # delta-spark uses these empty columns of the main file to determine the columns of the sidecars.
    none = _rows(np.arange(0), table.form).slice(0, 0)
    rows = [version, *(pa.table({name: array}) for name, array in small.items()), manifest, none]
    name = f"{CHECKPOINT:020d}.checkpoint.{text_uuid(str(table.size))}.parquet"
    pq.write_table(pa.concat_tables(rows, promote_options="default"), log / name)
    hint = {
        "version": CHECKPOINT, "size": table.size + table.size // 20 + 3 + count,
        "sizeInBytes": sum(each["sizeInBytes"] for each in sidecars), "numOfAddFiles": table.size,
    }  # fmt: skip
    (log / "_last_checkpoint").write_text(to_json(hint))
    _write_commits(log, table)


def _write_sidecar(path: Path, numbers: Any, form: str) -> None:
    numbers = np.random.default_rng(len(numbers)).permutation(numbers)
    with pq.ParquetWriter(path, _rows(np.arange(0), form).schema, compression="snappy") as writer:
        for start in range(0, len(numbers), GROUP_ROWS):
            writer.write_table(_rows(numbers[start : start + GROUP_ROWS], form))


def _rows(live: Any, form: str) -> pa.Table:
    """Add actions, followed by one tombstone for every twenty adds."""
    added, kind = livefiles.adds(live), ROWS.field("add").type
    if form != "text":
        parsed = {"stats_parsed": _parsed(live), "partitionValues_parsed": _parsed_values(live)}
        fields = [field for field in kind if form == "both" or field.name != "stats"]
        kind = pa.struct([*fields, *(pa.field(name, array.type) for name, array in parsed.items())])
        for name, array in parsed.items():
            added = added.append_column(name, array)
    adds = pa.table({"add": livefiles._struct(added, kind)})
    dead = livefiles._removes(live[: len(live) // 20] + 100_000_000_000)
    removes = pa.table({"remove": livefiles._struct(dead, ROWS.field("remove").type)})
    return pa.concat_tables([adds, removes], promote_options="default")


def _parsed_values(live: Any) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(live % REGIONS, pa.int32())], ["region"])


def _parsed(live: Any) -> pa.StructArray:
    """The statistics of the table livefiles, as structs."""
    names = pc.utf8_slice_codeunits(livefiles._uuids(live), 0, 18)
    begins = BEGIN_MS + live % 200 * 86_400_000 + live % 60 * 1000
    days = pa.array(live % 200 + BEGIN_MS // 86_400_000, pa.int32()).cast(pa.date32())
    cents = live % 97 + 0.25
    zeros = np.zeros(len(live), np.int64)

    def bounds(ids: Any, times: Any, letter: str, prices: Any) -> pa.StructArray:
        moments = pa.array(times * 1000, pa.timestamp("us", "UTC"))
        columns = [pa.array(ids), moments, livefiles._texts(letter, names), pa.array(prices), days]
        return pa.StructArray.from_arrays(columns, [name for name, _ in COLUMNS])

    nulls = [pa.array(each) for each in (zeros, zeros, live % 7, live % 11, zeros)]
    return pa.StructArray.from_arrays(
        [
            pa.array(livefiles._records(live)),
            bounds(live * IDS, begins, "0", cents),
            bounds(live * IDS + IDS - 1, begins + 86_000_000, "f", cents + 1000.5),
            pa.StructArray.from_arrays(nulls, [name for name, _ in COLUMNS]),
        ],
        ["numRecords", "minValues", "maxValues", "nullCount"],
    )


def _write_commits(log: Path, table: PlanTable) -> None:
    """Write the commit of the checkpoint's version and three more commits. These replace files, change deletion
    vectors, and add removed files again."""
    changed = table.changed
    first = np.arange(table.middle, table.middle + changed)
    new = livefiles.add_lines(np.arange(table.size, table.size + changed))
    marked = [_marked(line, number) for number, line in enumerate(livefiles.add_lines(first + changed))]
    bodies: tuple[list[str], ...] = (
        [],
        [*livefiles._remove_lines(first), *new],
        [*livefiles._remove_lines(first + changed), *marked],
        livefiles.add_lines(first[: changed // 2]),
    )
    small = table.small_actions
    for number, lines in enumerate(bodies):
        version = CHECKPOINT + number
        info = {"commitInfo": small.commit_info(version, BEGIN_MS + 90_000_000 + number * 1000, len(lines))}
        (log / f"{version:020d}.json").write_text("\n".join([to_json(info), *lines, ""]))
    numbers, _ = table.live()
    size_bytes = int(livefiles._sizes(numbers).sum())
    checksum = small.checksum(version, BEGIN_MS + 90_000_000 + number * 1000, len(numbers), size_bytes)
    (log / f"{version:020d}.crc").write_bytes(checksum)


def _marked(line: str, number: int) -> str:
    """An add action with a deletion vector."""
    body = json.loads(line)
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 36, "cardinality": 2}
    body["add"]["deletionVector"] = {**vector, "offset": 1 + 40 * number}
    return to_json(body)


# --------------------------------------------------------------------------------------------- measurements


def plan(system: str, path: str, low: int, high: int) -> Callable[[], Any]:
    """A function that opens the table and lists the files of a region that may contain ids from ``low`` up to, but not
    including, ``high``."""
    if system == "deltalake":
        import deltalake

        def theirs() -> Any:
            """deltalake lists files by partition only; pyarrow filters by statistics."""
            actions = pa.table(deltalake.DeltaTable(path).get_add_actions(flatten=True))
            in_region = pc.field("partition.region") == _REGION
            return actions.filter(in_region & (pc.field("max.id") >= low) & (pc.field("min.id") < high))

        return theirs
    from deltalog import DeltaTable, col

    where = (col("region") == _REGION) & (col("id") >= low) & (col("id") < high)
    return lambda: DeltaTable.open(path).snapshot().scan(where=where).files()


def _child(system: str, path: str, low: str, high: str) -> None:
    run = plan(system, path, int(low), int(high))
    before_mib = _peak_mib()
    started, started_cpu = time.perf_counter(), time.process_time()
    found = run()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    peak_mib = _peak_mib()
    ours = system == "deltalog"
    answer = {"files": found.num_rows, "bytes": pc.sum(found["size" if ours else "size_bytes"]).as_py() or 0}
    if ours:
        vectors = found["deletion_vector"]
        answer["vectors"] = len(vectors) - vectors.null_count
    figures = {"seconds": seconds, "cpu_seconds": cpu_seconds, "before_mib": before_mib, "peak_mib": peak_mib}
    print(json.dumps({**figures, "answer": answer}))


def _peak_mib() -> float:
    """The peak memory of this process so far; nan if the system is not Linux."""
    status = Path(f"/proc/{os.getpid()}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), float("nan"))


def measure(system: str, path: Path, table: PlanTable, condition: str) -> dict[str, Any]:
    """Plan one scan in a separate process. Raises AssertionError if it does not find the right files."""
    bounds = map(str, table.ids(condition))
    command = [sys.executable, "-m", "tests.benchmarks.planning", "--child", system, str(path), *bounds]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    right = table.right(condition)
    expected = {name: right[name] for name in result["answer"]}
    assert result["answer"] == expected, (system, condition, result["answer"], expected)
    return result


def compare(
    place: Path, table: PlanTable, systems: Sequence[str], conditions: Sequence[str], repeats: int
) -> Iterator[dict[str, Any]]:
    """The medians of each system and condition."""
    path = place / f"{table.size}-{table.form}"
    if not path.exists():
        build(path, table)
    for condition in conditions:
        for system in systems:
            runs = [measure(system, path, table, condition) for _ in range(repeats)]
            figures = {name: statistics.median(run[name] for run in runs) for name in _FIGURES}
            yield {"system": system, "condition": condition, **runs[0]["answer"], **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[100_000, 1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["both"])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=["deltalog"])
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="3,000 files once, with all systems: a check, not figures")
    parser.add_argument("--directory", default=None, help="where tables are generated, and reused if they exist")
    parser.add_argument("--child", nargs=4)
    chosen = parser.parse_args()
    if chosen.child:
        _child(*chosen.child)
        return
    tables = [PlanTable(size, form) for size in chosen.files for form in chosen.forms]
    if chosen.quick:
        tables, chosen.systems, chosen.repeats = [PlanTable(3_000, form, 1_000) for form in FORMS], SYSTEMS, 1
    with tempfile.TemporaryDirectory() as place:
        for table in tables:
            directory = Path(chosen.directory or place)
            for each in compare(directory, table, chosen.systems, chosen.conditions, chosen.repeats):
                print(
                    f"{table.size:,} files, statistics as {table.form}, {each['condition']}, {each['system']}: "
                    f"{each['seconds']:.2f} s, {each['cpu_seconds']:.2f} s CPU, {each['peak_mib']:.0f} MiB, "
                    f"{each['files']:,} files left",
                    flush=True,
                )


if __name__ == "__main__":
    main()
