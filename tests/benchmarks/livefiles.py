"""Tables with many live files, generated column by column, so that a million add actions take seconds, not minutes.

As in tables.py, only the logs of the tables exist, not their data files. The columns are an id, a timestamp, a string,
a price, a day and the partition column region. The statistics of all columns except region are JSON text of about 300
bytes. File ``n`` contains the ``IDS`` ids from ``n * IDS`` on, so a range of ids selects a range of files.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks.actions import BEGIN_MS, FILE_BYTES, ROWS, SIDECAR, SmallActions, text_uuid, to_json

IDS = 1_000  # ids in each file
REGIONS = 50
PARTS = 10
TAIL = 3
CHECKPOINT = 10  # the version of the checkpoint; the commits before it were cleaned up
ADDS = 50  # add actions in each commit, if there is no checkpoint
REPLACES = 3  # in a table with changes, every third commit removes the previous file and records an application version
ROW_GROUP = 200_000  # about the size of the files that Spark writes, 128 MiB
COLUMNS = (("id", "long"), ("ts", "timestamp"), ("name", "string"), ("price", "double"), ("day", "date"))
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class FilesTable:
    """``layout``: classic, parts or sidecars (checkpoints as delta-spark writes them, statistics as JSON), deltalog
    (the checkpoint that DeltaTable.checkpoint writes), commits (ADDS files each, no checkpoint) or changes (``size``
    commits that add a file each, some replacing another, no checkpoint)."""

    name: str
    size: int
    layout: str = "classic"
    checksums: bool = True

    @property
    def description(self) -> str:
        form = {
            "classic": "one classic checkpoint",
            "parts": f"a checkpoint of {PARTS} parts",
            "sidecars": f"a V2 checkpoint with {PARTS} sidecars",
            "deltalog": "the checkpoint that deltalog writes",
            "commits": f"{self.size // ADDS:,} commits of {ADDS} adds",
            "changes": f"{self.size:,} commits of an add, each {REPLACES}rd with a remove and a transaction",
        }[self.layout]
        tail = "no checkpoint" if self.layout in ("commits", "changes") else f"{TAIL} commits after it"
        return f"{len(self.live()):,} live files in {form}, {tail}, {'with' if self.checksums else 'no'} .crc"

    @property
    def fingerprint(self) -> str:
        """A key that changes when the table must be generated again; it includes a hash of the source code that writes
        the table, including deltalog's if deltalog writes it."""
        body: dict[str, Any] = asdict(self)
        if self.layout == "deltalog":
            sources = sorted((ROOT / "deltalog").glob("*/*.py"))
            body["writer"] = hashlib.md5(b"".join(p.read_bytes() for p in sources), usedforsecurity=False).hexdigest()
        return json.dumps(body)

    @property
    def small_actions(self) -> SmallActions:
        columns = (*COLUMNS, ("region", "integer"))
        return SmallActions(self.name, columns, "region", v2_checkpoint=self.layout == "sidecars")

    @property
    def last_version(self) -> int:
        if self.layout == "changes":
            return self.size - 1
        return self.size // ADDS - 1 if self.layout == "commits" else CHECKPOINT + TAIL

    def live(self) -> Sequence[int]:
        """The numbers that identify the live files. In the layouts that contain commits after a checkpoint, each of
        these commits adds one file and removes one file."""
        if self.layout == "changes":
            return [number for number in range(self.size) if (number + 1) % REPLACES or number + 1 == self.size]
        return range(self.size) if self.layout == "commits" else range(TAIL, self.size + TAIL)

    def totals(self, files: Sequence[int] | None = None) -> dict[str, int]:
        """The expected count, total size in bytes and number of records of ``files`` (default: the live files)."""
        numbers = np.array(self.live() if files is None else files, np.int64)
        return {
            "files": len(numbers),
            "bytes": int(_sizes(numbers).sum()),
            "records": int(_records(numbers).sum()),
        }

    def questions(self, call: str) -> list[dict[str, Any]]:
        """For each use of a call: its arguments, and the fields that the correct answer must contain."""
        if call == "protocol":
            small = self.small_actions
            right = {"writer": small.protocol()["minWriterVersion"], "id": small.metadata()["id"]}
            return [{"ask": [], "right": right}]
        if call == "prune":
            first = self.size // 2
            ten = range(first, first + 10)
            return [{"ask": [ten.start * IDS, ten.stop * IDS], "right": self.totals(ten)}]
        return [{"ask": [], "right": self.totals()}]

    def write(self, root: Path) -> None:
        log = root / "_delta_log"
        writers = {"commits": _write_commits, "changes": _write_changes, "deltalog": _write_deltalog}
        writer = writers.get(self.layout, _write_checkpointed)
        writer(self, log)


# ------------------------------------------------------------------------------------------------ actions


def _sizes(numbers: Any) -> Any:
    return FILE_BYTES + numbers % 4096


def _records(numbers: Any) -> Any:
    return IDS - numbers % 100


def _texts(*parts: Any) -> pa.Array:
    """Concatenate the parts, which are constants or arrays, row by row."""
    return pc.binary_join_element_wise(*(p if isinstance(p, str) else p.cast(pa.string()) for p in parts), "")


def _uuids(numbers: Any) -> pa.Array:
    """A UUID for each number, computed from the number by two multiplicative hashes, so that the same number always
    gets the same UUID."""
    wide = numbers.astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = np.stack([(wide + np.uint64(i)) * np.uint64(m) for i, m in enumerate(_MULTIPLIERS, 1)])
    mixed ^= mixed >> np.uint64(29)
    digits = np.frombuffer(np.ascontiguousarray(mixed.T).tobytes().hex().encode(), np.uint8).reshape(-1, 32)
    dash = np.full((len(digits), 1), ord("-"), np.uint8)
    cuts = [digits[:, a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
    columns = [part for cut in cuts for part in (cut, dash)][:-1]
    text = np.ascontiguousarray(np.concatenate(columns, axis=1))
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), len(text), [None, pa.py_buffer(text)])
    return fixed.cast(pa.binary()).cast(pa.string())


def _times(numbers: Any, plus_ms: int) -> pa.Array:
    at = pa.array(BEGIN_MS + numbers % 200 * 86_400_000 + numbers % 60 * 1000 + plus_ms).cast(pa.timestamp("ms"))
    return pc.strftime(at, "%Y-%m-%dT%H:%M:%SZ")


def _stats(numbers: Any, names: pa.Array) -> pa.Array:
    first = numbers * IDS
    begins, ends = _times(numbers, 0), _times(numbers, 86_000_000)
    days = pc.utf8_slice_codeunits(begins, 0, 10)
    cents = pa.array(numbers % 97 + 0.25)
    return _texts(
        '{"numRecords":', pa.array(_records(numbers)),
        ',"minValues":{"id":', pa.array(first), ',"ts":"', begins, '","name":"0', names,
        '","price":', cents, ',"day":"', days,
        '"},"maxValues":{"id":', pa.array(first + IDS - 1), ',"ts":"', ends, '","name":"f', names,
        '","price":', pc.add(cents, 1000.5), ',"day":"', days,
        '"},"nullCount":{"id":0,"ts":0,"name":', pa.array(numbers % 7), ',"price":', pa.array(numbers % 11),
        ',"day":0}}',
    )  # fmt: skip


def adds(numbers: Any) -> pa.Table:
    """The add actions of these files as a table whose columns have the protocol's field names."""
    uuids = _uuids(numbers)
    regions = pa.array(numbers % REGIONS).cast(pa.string())
    number = pc.utf8_lpad(pa.array(numbers % 200).cast(pa.string()), 5, "0")
    return pa.table(
        {
            "path": _texts("region=", regions, "/part-", number, "-", uuids, ".c000.snappy.parquet"),
            "partitionValues": _partition_values(regions),
            "size": pa.array(_sizes(numbers)),
            "modificationTime": pa.array(BEGIN_MS + numbers),
            "dataChange": pa.repeat(False, len(numbers)),
            "stats": _stats(numbers, pc.utf8_slice_codeunits(uuids, 0, 18)),
        }
    )


def _partition_values(regions: pa.Array) -> pa.Array:
    offsets = pa.array(np.arange(len(regions) + 1, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, pa.repeat("region", len(regions)), regions)


def _removes(numbers: Any) -> pa.Table:
    added = adds(numbers)
    deleted = pa.array(np.full(len(numbers), BEGIN_MS + 86_400_000))
    kept = added.select(["path", "dataChange", "partitionValues", "size"])
    return kept.append_column("deletionTimestamp", deleted).append_column(
        "extendedFileMetadata", pa.repeat(True, len(numbers))
    )


# -------------------------------------------------------------------------------------------- writing commits


def add_lines(numbers: Any) -> list[str]:
    """The add actions of new files, as the lines of a commit file."""
    table = adds(numbers)
    escaped = pc.replace_substring(table["stats"], '"', '\\"')
    regions = pa.array(numbers % REGIONS).cast(pa.string())
    lines = _texts(
        '{"add":{"path":"', table["path"].combine_chunks(), '","partitionValues":{"region":"', regions, '"},"size":',
        table["size"].combine_chunks(), ',"modificationTime":', table["modificationTime"].combine_chunks(),
        ',"dataChange":true,"stats":"', escaped.combine_chunks(), '"}}',
    )  # fmt: skip
    found: list[str] = lines.to_pylist()
    return found


def _write_commit(table: FilesTable, log: Path, version: int, lines: Sequence[str], live: range) -> None:
    """Write a commit and, if the table has checksums, the checksum file that lists the ``live`` files."""
    small, at_ms = table.small_actions, BEGIN_MS + 90_000_000 + version * 1000
    first = [{"commitInfo": small.commit_info(version, at_ms, len(lines))}]
    if version == 0:
        first += [{"protocol": small.protocol()}, {"metaData": small.metadata()}]
    text = "\n".join([*map(to_json, first), *lines])
    (log / f"{version:020d}.json").write_text(f"{text}\n")
    if table.checksums:
        totals = table.totals(live)
        checksum = small.checksum(version, at_ms, totals["files"], totals["bytes"])
        (log / f"{version:020d}.crc").write_bytes(checksum)


def _write_commits(table: FilesTable, log: Path) -> None:
    lines = add_lines(np.arange(table.size))
    for version in range(table.size // ADDS):
        end = (version + 1) * ADDS
        _write_commit(table, log, version, lines[end - ADDS : end], range(end))


def _write_changes(table: FilesTable, log: Path) -> None:
    lines, removes = add_lines(np.arange(table.size)), _remove_lines(np.arange(table.size))
    for version in range(table.size):
        actions = [lines[version]]
        if version and version % REPLACES == 0:
            transaction = {"txn": {"appId": "stream", "version": version, "lastUpdated": BEGIN_MS}}
            actions = [to_json(transaction), removes[version - 1], *actions]
        _write_commit(table, log, version, actions, range(0))


def _remove_lines(numbers: Any) -> list[str]:
    """The remove actions of files as lines of a commit."""
    bodies = _removes(numbers).to_pylist()
    return [
        to_json({"remove": {**body, "partitionValues": dict(body["partitionValues"]), "dataChange": True}})
        for body in bodies
    ]


def _write_tail(table: FilesTable, log: Path) -> None:
    new = add_lines(np.arange(table.size, table.size + TAIL))
    old = _remove_lines(np.arange(TAIL))
    for number in range(TAIL):
        live = range(number + 1, table.size + number + 1)
        _write_commit(table, log, CHECKPOINT + 1 + number, [old[number], new[number]], live)


# ------------------------------------------------------------------------------------------------ checkpoints


def _write_checkpointed(table: FilesTable, log: Path) -> None:
    _write_commit(table, log, CHECKPOINT, [], range(table.size))
    {"classic": _write_classic, "parts": _write_parts, "sidecars": _write_sidecars}[table.layout](table, log)
    _write_tail(table, log)


def _write_deltalog(table: FilesTable, log: Path) -> None:
    before = CHECKPOINT - 1
    _write_classic(table, log, before)
    _write_commit(table, log, CHECKPOINT, [], range(table.size))
    # deltalog writes the checkpoint in a separate process, so that neither this process nor a measured process has
    # loaded deltalog.
    subprocess.run([sys.executable, "-m", __name__, str(log.parent)], cwd=ROOT, check=True)
    (log / f"{before:020d}.checkpoint.parquet").unlink()
    _write_tail(table, log)


def _write_classic(table: FilesTable, log: Path, version: int = CHECKPOINT) -> None:
    name = f"{version:020d}.checkpoint.parquet"
    rows = _mixed([_small_rows(table), _file_actions(np.arange(table.size), _tombstones(table))])
    _write_parquet(rows, log / name)
    _write_hint(table, log, name)


def _write_parts(table: FilesTable, log: Path) -> None:
    names = [f"{CHECKPOINT:020d}.checkpoint.{n + 1:010d}.{PARTS:010d}.parquet" for n in range(PARTS)]
    for number, name in enumerate(names):
        files = _nth_part(table, number)
        _write_parquet(_mixed([files] if number else [_small_rows(table), files]), log / name)
    _write_hint(table, log, names[0], parts=PARTS)


def _write_sidecars(table: FilesTable, log: Path) -> None:
    (log / "_sidecars").mkdir()
    sidecars = []
    for number in range(PARTS):
        name = f"{text_uuid(f'{table.name} {number}')}.parquet"
        _write_parquet(_mixed([_nth_part(table, number)]), log / "_sidecars" / name)
        size = (log / "_sidecars" / name).stat().st_size
        sidecars.append({"path": name, "sizeInBytes": size, "modificationTime": BEGIN_MS})
    manifest = pa.table({"sidecar": pa.array(sidecars, SIDECAR)})
    version = pa.table({"checkpointMetadata": pa.array([{"version": CHECKPOINT}])})
    no_files = _nth_part(table, 0).slice(0, 0)  # delta-spark derives the columns of sidecars from these fields
    rows = pa.concat_tables([version, _small_rows(table), manifest, no_files], promote_options="default")
    name = f"{CHECKPOINT:020d}.checkpoint.{text_uuid(table.name)}.parquet"
    _write_parquet(rows, log / name)
    _write_hint(table, log, name)


def _nth_part(table: FilesTable, number: int) -> pa.Table:
    return _file_actions(np.arange(number, table.size, PARTS), _tombstones(table)[number::PARTS])


def _tombstones(table: FilesTable) -> Any:
    """Files removed before the checkpoint; one for every twenty live files."""
    return np.arange(10_000_000, 10_000_000 + table.size // 20)


def _small_rows(table: FilesTable) -> pa.Table:
    """Two rows: metaData and protocol."""
    rows = table.small_actions.rows()
    return pa.table(
        {name: pa.array([b if n == name else None for n, b in rows], ROWS.field(name).type) for name, _ in rows}
    )


def _file_actions(live: Any, dead: Any) -> pa.Table:
    """A row for each file, which contains either its add or its remove."""
    added = pa.table({"add": _struct(adds(live), ROWS.field("add").type)})
    removed = pa.table({"remove": _struct(_removes(dead), ROWS.field("remove").type)})
    return pa.concat_tables([added, removed], promote_options="default")


def _struct(table: pa.Table, kind: pa.StructType) -> pa.Array:
    rows = table.num_rows
    children = [
        table[field.name].combine_chunks() if field.name in table.schema.names else pa.nulls(rows, field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _mixed(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows in an order unrelated to that of the commits, as in Spark's checkpoints."""
    rows = pa.concat_tables(tables, promote_options="default")
    return rows.take(pa.array(np.random.default_rng(rows.num_rows).permutation(rows.num_rows)))


def _write_parquet(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, compression="snappy", row_group_size=ROW_GROUP)


def _write_hint(table: FilesTable, log: Path, name: str, **more: Any) -> None:
    body = {
        "version": int(name[:20]), "size": table.size + table.size // 20 + 2,
        "sizeInBytes": (log / name).stat().st_size, "numOfAddFiles": table.size, **more,
    }  # fmt: skip
    (log / "_last_checkpoint").write_text(to_json(body))


if __name__ == "__main__":
    from deltalog import DeltaTable

    DeltaTable.open(sys.argv[1]).checkpoint()
