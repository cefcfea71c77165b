"""Healthy tables written by deltalog, and functions that each damage one part of them."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from deltalog import DeltaTable
from deltalog.log.checkpoint.last_checkpoint import checksum
from deltalog.protocol import deletion_vectors

Line = dict[str, Any]
ICT = {"delta.enableInCommitTimestamps": "true"}
LARGEST = 2**63 - 1


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{each}" for each in ids], "day": ["a" for _ in ids]})


SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.string())])


# ------------------------------------------------------------------------------------------ healthy tables


def plain(path: Path, **properties: str) -> DeltaTable:
    """Four commits; each of the last three appends one file."""
    table = DeltaTable.create(path, SCHEMA, data=rows(1, 2, 3), properties=properties)
    for first in (10, 20, 30):
        table.append(rows(first, first + 1))
    return table


def timed(path: Path) -> DeltaTable:
    """In-commit timestamps have been enabled since version 0; version 4 deletes a file."""
    table = plain(path, **ICT)
    table.delete("id >= 30")
    return table


def timed_late(path: Path) -> DeltaTable:
    """In-commit timestamps have been enabled since version 4."""
    table = plain(path)
    table.enable_in_commit_timestamps()
    table.append(rows(40))
    table.append(rows(50))
    return table


def timed_off(path: Path) -> DeltaTable:
    """In-commit timestamps were enabled from version 4 to version 6."""
    table = timed_late(path)
    table.disable_in_commit_timestamps()
    table.append(rows(60))
    return table


def partitioned(path: Path) -> DeltaTable:
    table = DeltaTable.create(path, SCHEMA, data=rows(1, 2), partition_by=["day"])
    table.append(rows(3))
    return table


def partitioned_by_number(path: Path) -> DeltaTable:
    table = DeltaTable.create(path, SCHEMA, data=rows(1, 2), partition_by=["id"])
    return table


def mapped(path: Path) -> DeltaTable:
    return plain(path, **{"delta.columnMapping.mode": "name"})


def with_vectors(path: Path) -> DeltaTable:
    """Version 4 deletes one row with a deletion vector."""
    table = plain(path, **{"delta.enableDeletionVectors": "true"})
    table.delete("id = 2")
    return table


def with_vector_file(path: Path) -> DeltaTable:
    """Version 1 deletes rows, with the deletion vector in a separate file."""
    table = DeltaTable.create(
        path, SCHEMA, data=rows(*range(100_000)), properties={"delta.enableDeletionVectors": "true"}
    )
    table.delete("id % 3 = 0 OR id % 7 = 0")
    return table


def tracked(path: Path) -> DeltaTable:
    return plain(path, **{"delta.enableRowTracking": "true"})


def constrained(path: Path) -> DeltaTable:
    table = plain(path)
    table.add_constraint("positive", "id > 0")
    return table


def checkpointed(path: Path) -> DeltaTable:
    """A classic checkpoint at version 3, followed by two commits."""
    table = plain(path, **ICT)
    table.delete("id = 1")
    table.checkpoint()
    table.append(rows(40))
    table.append(rows(50))
    return table


def checkpointed_v2(path: Path, top_level: Any = "json") -> DeltaTable:
    """A V2 checkpoint with sidecars, followed by a commit."""
    table = plain(path, **{"delta.checkpointPolicy": "v2"})
    table.checkpoint(top_level=top_level, sidecar_rows=2)
    table.append(rows(40))
    return table


def compacted(path: Path) -> DeltaTable:
    """Versions 1 to 5 in a log compaction file."""
    table = plain(path)
    table.delete("id = 10")
    table.append(rows(50))
    table.compact_log(1, 5)
    return table


# ------------------------------------------------------------------------------------------------ edits


def log(path: Path, name: str = "") -> Path:
    return path / "_delta_log" / name if name else path / "_delta_log"


def commit(path: Path, version: int) -> Path:
    return log(path, f"{version:020d}.json")


def read(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def write(file: Path, lines: list[Line]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def edit(version: int, change: Callable[[list[Line]], list[Line] | None]) -> Callable[[Path], None]:
    """Returns a damage function that changes the lines of a commit in place, or replaces them with the result of
    ``change``."""

    def damage(path: Path) -> None:
        file = commit(path, version)
        lines = read(file)
        changed = change(lines)
        write(file, lines if changed is None else changed)

    return damage


def edit_action(version: int, kind: str, change: Callable[[Line], object]) -> Callable[[Path], None]:
    """Damage a table by changing the first action of a kind in place."""
    return edit(version, lambda lines: (change(next(line[kind] for line in lines if kind in line)), None)[1])


def edit_stats(version: int, change: Callable[[Line], object]) -> Callable[[Path], None]:
    def changed(add: Line) -> None:
        stats = json.loads(add["stats"])
        change(stats)
        add["stats"] = json.dumps(stats)

    return edit_action(version, "add", changed)


def edit_schema(version: int, change: Callable[[Line], object]) -> Callable[[Path], None]:
    def changed(metadata: Line) -> None:
        schema = json.loads(metadata["schemaString"])
        change(schema)
        metadata["schemaString"] = json.dumps(schema)

    return edit_action(version, "metaData", changed)


def configure(version: int, **properties: str | None) -> Callable[[Path], None]:
    """Damage: change properties of the metaData in a commit. The value None removes a property; underscores in names
    stand for dots."""

    def change(metadata: Line) -> None:
        for name, value in properties.items():
            key = name.replace("_", ".")
            metadata["configuration"].pop(key, None)
            if value is not None:
                metadata["configuration"][key] = value

    return edit_action(version, "metaData", change)


def edit_crc(version: int, change: Callable[[Line], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        file = log(path, f"{version:020d}.crc")
        body = json.loads(file.read_text())
        change(body)
        file.write_text(json.dumps(body))

    return damage


def edit_hint(change: Callable[[Line], object], seal: bool = True) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        file = log(path, "_last_checkpoint")
        body = json.loads(file.read_text())
        change(body)
        if seal:
            body["checksum"] = checksum(body)
        file.write_text(json.dumps(body))

    return damage


def append_commit(*lines: Line) -> Callable[[Path], None]:
    """Damage a table: append a commit with these lines."""

    def damage(path: Path) -> None:
        version = max(int(file.stem) for file in log(path).glob("*.json") if file.stem.isdigit()) + 1
        write(commit(path, version), list(lines))

    return damage


def overwrite(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda path: (log(path, name).write_bytes(data), None)[1]


def delete(*patterns: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        for pattern in patterns:
            found = sorted(path.glob(pattern))
            assert found, pattern
            for file in found:
                file.unlink()

    return damage


def truncate(pattern: str, keep: float = 0.6) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        file = sorted(path.glob(pattern))[0]
        data = file.read_bytes()
        file.write_bytes(data[: int(len(data) * keep)])

    return damage


def both(*damages: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        for each in damages:
            each(path)

    return damage


def edit_checkpoint(
    column: str, change: Callable[[list[Any]], list[Any]], pattern: str = "*.checkpoint.parquet"
) -> Callable[[Path], None]:
    """Damage: replace the values of a column of a checkpoint."""

    def damage(path: Path) -> None:
        file = next(log(path).glob(pattern))
        table = pq.read_table(file)
        values = change(table.column(column).to_pylist())
        index = table.schema.get_field_index(column)
        padded = table.take([0] * len(values)) if len(values) > table.num_rows else table
        array = pa.array(values, table.schema.field(column).type)
        if padded is not table:
            table = pa.concat_tables([table, table.slice(0, len(values) - table.num_rows)])
            for name in table.schema.names:
                if name != column:
                    at = table.schema.get_field_index(name)
                    kept = [*table.column(name).to_pylist()[: len(values) - 1], None]
                    table = table.set_column(
                        at, table.schema.field(name), pa.array(kept, table.schema.field(name).type)
                    )
        pq.write_table(table.set_column(index, table.schema.field(column), array), file)

    return damage


def data_file(path: Path) -> Path:
    return sorted(path.glob("**/*.parquet"), key=lambda file: ("_delta_log" in str(file), str(file)))[0]


def removed_files(path: Path, version: int) -> list[Path]:
    """The local paths of the data files that a commit removes."""
    lines = map(json.loads, commit(path, version).read_text().splitlines())
    return [path / line["remove"]["path"] for line in lines if "remove" in line]


def rewrite_rows(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    """Damage: replace a data file, with the new size in its add action."""

    def damage(path: Path) -> None:
        for file in commit(path, 0).parent.glob("*.json"):
            if not file.stem.isdigit():
                continue
            lines = read(file)
            for line in lines:
                if "add" in line:
                    data = path / line["add"]["path"]
                    pq.write_table(change(pq.read_table(data)), data)
                    line["add"]["size"] = data.stat().st_size
            write(file, lines)
        for crc in log(path).glob("*.crc"):
            crc.unlink()

    return damage


def again(line: Line, **fields: Any) -> Line:
    """The same add action with some fields changed."""
    return {"add": {**line["add"], **fields}}


def add_line(path: str, **fields: Any) -> Line:
    body = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": {**body, **fields}}


def first_add(path: Path, version: int = 1) -> Line:
    return next(line for line in read(commit(path, version)) if "add" in line)


def set_ict(version: int, value: Any) -> Callable[[Path], None]:
    return edit_action(version, "commitInfo", lambda info: info.update(inCommitTimestamp=value))


def ict_of(path: Path, version: int) -> int:
    return int(read(commit(path, version))[0]["commitInfo"]["inCommitTimestamp"])


def copied_earlier(version: int) -> Callable[[Path], None]:
    """Damage: give a commit the in-commit timestamp of the commit two versions earlier."""
    return lambda path: set_ict(version, ict_of(path, version - 2))(path)


def spelled_otherwise(path: Path) -> None:
    """A file with a space in its name, live under two spellings of its path."""
    line = first_add(path)
    old = path / line["add"]["path"]
    shutil.copy(old, path / "a b.parquet")
    one, two = (again(line, path=name) for name in ("a%20b.parquet", "%61%20b.parquet"))
    append_commit({"commitInfo": {"operation": "WRITE"}}, one)(path)
    append_commit({"commitInfo": {"operation": "WRITE"}}, two)(path)


def with_second_vector(path: Path) -> None:
    line = next(line for line in read(commit(path, 4)) if "add" in line)
    vector = {**line["add"]["deletionVector"], "pathOrInlineDv": line["add"]["deletionVector"]["pathOrInlineDv"][::-1]}
    append_commit({"commitInfo": {"operation": "DELETE"}}, again(line, deletionVector=vector))(path)


def poisoned(path: Path) -> None:
    year_2100 = int(datetime.datetime(2100, 1, 1, tzinfo=datetime.timezone.utc).timestamp() * 1000)
    set_ict(4, year_2100)(path)


def clone_pair(path: Path) -> None:
    configure(0, delta_inCommitTimestampEnablementVersion="17", delta_inCommitTimestampEnablementTimestamp="5")(path)


def vector_field(**fields: Any) -> Callable[[Path], None]:
    return edit_action(4, "add", lambda add: add["deletionVector"].update(fields))


def inline_vector(**fields: Any) -> Callable[[Path], None]:
    """An inline deletion vector of one row, as other writers may write it, with the given fields changed."""
    data = deletion_vectors.encode(BitMap64([1]))
    inline = {"storageType": "i", "pathOrInlineDv": deletion_vectors.encode_z85(data), "sizeInBytes": len(data)}
    return edit_action(4, "add", lambda add: add.update(deletionVector={**inline, "cardinality": 1, **fields}))


def compaction_edit(change: Callable[[list[Line]], list[Line]]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        file = next(log(path).glob("*.compacted.json"))
        write(file, change(read(file)))

    return damage


def rename(old: str, new: str) -> Callable[[Path], None]:
    return lambda path: (next(log(path).glob(old)).rename(log(path, new)), None)[1]


def copy(old: str, new: str) -> Callable[[Path], None]:
    return lambda path: (shutil.copy(next(log(path).glob(old)), log(path, new)), None)[1]


def edit_top(change: Callable[[list[Line]], list[Line]]) -> Callable[[Path], None]:
    """Damage a table: change the lines of a V2 checkpoint in JSON."""

    def damage(path: Path) -> None:
        file = next(log(path).glob("*.checkpoint.*.json"))
        write(file, change(read(file)))

    return damage


def without(kind: str) -> Callable[[list[Line]], list[Line]]:
    return lambda lines: [line for line in lines if kind not in line]


@dataclass(frozen=True)
class Damage:
    """A damaged table. ``rules``: the rules whose violation the check must report. ``deep``: whether the check reports
    these rules only with deep=True."""

    name: str
    build: Callable[[Path], DeltaTable]
    damage: Callable[[Path], None]
    rules: tuple[str, ...]
    deep: bool = False


def case(
    name: str, build: Callable[[Path], DeltaTable], damage: Callable[[Path], None], *rules: str, deep: bool = False
) -> Damage:
    return Damage(name, build, damage, rules, deep)
