"""Random damages to checkpoints, their sidecars, and the hint to the last checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.log.checkpoint.last_checkpoint import checksum
from tests.support.doctor.random_damages.kinds import kind
from tests.support.doctor.random_damages.log import Line, Log, cut


def _change(file: Path, column: str, change: Callable[[list[Any]], list[Any]]) -> None:
    """Replace the values of a column of a Parquet file."""
    table = pq.read_table(file)
    values = change(table.column(column).to_pylist())
    field = table.schema.field(column)
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, field, pa.array(values, field.type)), file)


def _files(log: Log) -> Path:
    """A Parquet file with at least one add action of a checkpoint."""
    return log.pick(
        file
        for file in (*log.classic(), *log.sidecars())
        if any(each and each["path"] for each in pq.read_table(file, columns=["add"])["add"].to_pylist())
    )


@kind("checkpointed", avoids=["v2"])
def a_checkpoint_cut(log: Log) -> tuple[str, ...]:
    cut(log.pick(log.classic()), log.chance.uniform(0, 0.95))
    return ("checkpoint-unreadable",)


@kind("checkpointed", avoids=["v2"])
def a_checkpoint_of_zeros(log: Log) -> tuple[str, ...]:
    file = log.pick(log.classic())
    file.write_bytes(bytes(file.stat().st_size))
    return ("checkpoint-unreadable",)


@kind("checkpointed", avoids=["v2"])
def a_checkpoint_with_flipped_bytes(log: Log) -> tuple[str, ...]:
    """The pages of checkpoints have checksums."""
    file = log.pick(log.classic())
    data = bytearray(file.read_bytes())
    length = int.from_bytes(data[-8:-4], "little")
    for at in range(4, len(data) - 8 - length, 3):
        data[at] ^= 0xFF
    file.write_bytes(data)
    return ("checkpoint-unreadable",)


def _without_one(values: list[Any]) -> list[Any]:
    there = [at for at, each in enumerate(values) if each and each["path"]]
    return [None if at == there[-1] else each for at, each in enumerate(values)]


@kind("checkpointed")
def a_checkpoint_without_a_file(log: Log) -> tuple[str, ...]:
    _change(_files(log), "add", _without_one)
    return ("checkpoint-file-missing",)


@kind("checkpointed")
def a_checkpoint_with_another_path(log: Log) -> tuple[str, ...]:
    def renamed(values: list[Any]) -> list[Any]:
        return [each and each["path"] and {**each, "path": f"x{each['path']}"} for each in values]

    _change(_files(log), "add", renamed)
    return "checkpoint-file-extra", "checkpoint-file-missing"


@kind("checkpointed")
def a_checkpoint_with_a_file_twice(log: Log) -> tuple[str, ...]:
    file = _files(log)
    table = pq.read_table(file)
    at = next(at for at, each in enumerate(table["add"].to_pylist()) if each and each["path"])
    pq.write_table(pa.concat_tables([table, table.slice(at, 1)]), file)
    return ("checkpoint-file-twice",)


@kind("checkpointed")
def a_checkpoint_with_other_facts_about_a_file(log: Log) -> tuple[str, ...]:
    name, more = log.chance.choice((("size", 1), ("modificationTime", 1), ("size", 10**9)))

    def changed(values: list[Any]) -> list[Any]:
        return [each and each["path"] and {**each, name: each[name] + more} for each in values]

    _change(_files(log), "add", changed)
    return ("checkpoint-file-differs",)


@kind("checkpointed")
def a_checkpoint_with_other_numbers_of_rows(log: Log) -> tuple[str, ...]:
    def changed(values: list[Any]) -> list[Any]:
        return [each and each["path"] and {**each, "stats": _more_rows(each["stats"])} for each in values]

    file = _files(log)
    adds = [each for each in pq.read_table(file, columns=["add"])["add"].to_pylist() if each]
    log.pick([None] * all(each.get("stats") for each in adds))
    _change(file, "add", changed)
    return ("checkpoint-stats-differ",)


def _more_rows(stats: str) -> str:
    body = json.loads(stats)
    return json.dumps({**body, "numRecords": body["numRecords"] + 5})


@kind("checkpointed", avoids=["v2"])
def a_checkpoint_of_another_protocol(log: Log) -> tuple[str, ...]:
    _change(
        log.pick(log.classic()),
        "protocol",
        lambda values: [each and each["minReaderVersion"] and {**each, "minWriterVersion": 6} for each in values],
    )
    return ("checkpoint-protocol-differs",)


@kind("checkpointed", avoids=["v2"])
def a_checkpoint_of_other_metadata(log: Log) -> tuple[str, ...]:
    name = log.chance.choice(("id", "schemaString", "name"))
    _change(
        log.pick(log.classic()),
        "metaData",
        lambda values: [each and each["id"] and {**each, name: '{"type":"struct","fields":[]}'} for each in values],
    )
    return ("checkpoint-metadata-differs",)


@kind("checkpointed", avoids=["v2"])
def a_checkpoint_without_protocol_or_metadata(log: Log) -> tuple[str, ...]:
    name, rule = log.chance.choice(
        (("protocol", "checkpoint-protocol-missing"), ("metaData", "checkpoint-metadata-missing"))
    )
    _change(log.pick(log.classic()), name, lambda values: [None] * len(values))
    return (rule,)


@kind("checkpointed", avoids=["v2"])
def a_checkpoint_of_an_earlier_version(log: Log) -> tuple[str, ...]:
    """A file was added after it, or removed."""
    file = log.pick(log.classic())
    version = int(file.name[:20])
    appended = [
        each.version
        for each in log.recent(plain=False)
        if each.version > version and each.version not in log.checkpoints()
    ]
    shutil.copy(file, log.folder / f"{log.pick(appended):020d}.checkpoint.parquet")
    return ("checkpoint-file-missing",)


@kind("checkpointed")
def a_checkpoint_after_the_latest_version(log: Log) -> tuple[str, ...]:
    newest = log.pick(log.checkpoints()[-1:])
    for version in log.versions:
        if version >= newest:
            log.commit(version).unlink()
    return ("checkpoint-after-latest",)


@kind("checkpointed")
def a_checkpoint_without_its_commit(log: Log) -> tuple[str, ...]:
    version = log.pick(each for each in log.checkpoints() if each)
    log.commit(version).unlink()
    return ("checkpoint-without-commit",)


@kind("checkpointed", avoids=["v2"])
def a_part_of_a_checkpoint(log: Log) -> tuple[str, ...]:
    parts = log.chance.randrange(2, 9)
    name = f"{log.pick(log.versions):020d}.checkpoint.{log.chance.randrange(1, parts):010d}.{parts:010d}.parquet"
    shutil.copy(log.pick(log.classic()), log.folder / name)
    return ("multi-part-checkpoint-incomplete",)


@kind("checkpointed", avoids=["v2"])
def a_checkpoint_by_uuid_without_its_feature(log: Log) -> tuple[str, ...]:
    file = log.pick(log.classic())
    file.rename(log.folder / f"{file.name[:20]}.checkpoint.12345678-1234-1234-1234-123456789abc.parquet")
    return ("uuid-checkpoint-without-feature",)


@kind("checkpointed", "v2")
def a_lost_sidecar(log: Log) -> tuple[str, ...]:
    log.pick(log.sidecars()).unlink()
    return ("sidecar-missing",)


@kind("checkpointed", "v2")
def a_sidecar_cut(log: Log) -> tuple[str, ...]:
    cut(log.pick(log.sidecars()), log.chance.uniform(0, 0.95))
    return "sidecar-size-differs", "sidecar-unreadable"


def _top_level(log: Log) -> Path:
    return log.pick(file for file in log.checkpoint_files() if file.suffix == ".json")


def _change_top_level(log: Log, change: Callable[[list[Line]], list[Line]]) -> None:
    file = _top_level(log)
    lines = change([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()])
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@kind("checkpointed", "v2")
def a_checkpoint_that_lacks_a_sidecar(log: Log) -> tuple[str, ...]:
    def without(lines: list[Line]) -> list[Line]:
        first = log.pick(line for line in lines if "sidecar" in line)
        return [line for line in lines if line is not first]

    _change_top_level(log, without)
    return ("checkpoint-counts-differ",)


@kind("checkpointed", "v2")
def a_checkpoint_with_another_version(log: Log) -> tuple[str, ...]:
    def changed(lines: list[Line]) -> list[Line]:
        for line in lines:
            if "checkpointMetadata" in line:
                line["checkpointMetadata"]["version"] += log.chance.choice((-1, 1, 100))
        return lines

    _change_top_level(log, changed)
    return ("checkpoint-metadata-version-differs",)


@kind("checkpointed", "v2")
def a_checkpoint_with_provenance(log: Log) -> tuple[str, ...]:
    _change_top_level(log, lambda lines: [*lines, {"commitInfo": {"operation": "WRITE"}}])
    return ("checkpoint-holds-provenance",)


@kind("checkpointed", "v2")
def a_checkpoint_with_two_protocols(log: Log) -> tuple[str, ...]:
    _change_top_level(log, lambda lines: [*lines, *(line for line in lines if "protocol" in line)])
    return ("checkpoint-single-action-twice",)


@kind("checkpointed", "v2")
def a_checkpoint_with_an_invalid_action(log: Log) -> tuple[str, ...]:
    _change_top_level(log, lambda lines: [*lines, {"txn": {"appId": 5}}])
    return ("checkpoint-unreadable",)


@kind("checkpointed", "v2")
def a_checkpoint_with_more_transactions(log: Log) -> tuple[str, ...]:
    _change_top_level(log, lambda lines: [*lines, {"txn": {"appId": "nobody", "version": 3}}])
    return ("checkpoint-transactions-differ",)


@kind("checkpointed", "v2")
def a_checkpoint_with_more_domains(log: Log) -> tuple[str, ...]:
    more = {"domainMetadata": {"domain": "of.nobody", "configuration": "", "removed": False}}
    _change_top_level(log, lambda lines: [*lines, more])
    return ("checkpoint-domains-differ",)


@kind("checkpointed", "v2")
def a_v2_checkpoint_without_its_feature(log: Log) -> tuple[str, ...]:
    def without(lines: list[Line]) -> list[Line]:
        for line in lines:
            for name in ("readerFeatures", "writerFeatures"):
                if "protocol" in line:
                    line["protocol"][name].remove("v2Checkpoint")
        return lines

    _change_top_level(log, without)
    return "checkpoint-v2-action-in-v1", "uuid-checkpoint-without-feature"


@kind("checkpointed", "v2")
def a_v2_checkpoint_in_parts(log: Log) -> tuple[str, ...]:
    file = log.pick(file for file in log.checkpoint_files() if file.suffix == ".parquet")
    file.rename(log.folder / f"{file.name[:20]}.checkpoint.{1:010d}.{1:010d}.parquet")
    return ("multi-part-checkpoint-with-v2",)


@kind("checkpointed", avoids=["v2"])
def a_checkpoint_with_half_a_transaction(log: Log) -> tuple[str, ...]:
    file = log.pick(log.classic())
    table = pq.read_table(file)
    log.pick([None] * ("txn" in table.schema.names))
    txn = {field.name: 3 if field.name == "version" else None for field in table.schema.field("txn").type}
    _change(file, "txn", lambda values: [txn, *values[1:]])
    return ("checkpoint-action-invalid",)


@kind("checkpointed", "v2")
def a_sidecar_of_no_checkpoint(log: Log) -> tuple[str, ...]:
    (log.folder / "_sidecars" / f"{log.chance.random()}.parquet").write_bytes(b"x")
    return ("sidecar-unreferenced",)


# ------------------------------------------------------------------------------------------------------ the hint


def _change_hint(log: Log, change: Callable[[Line], object], is_sealed: bool) -> None:
    file = log.folder / "_last_checkpoint"
    log.pick([None] * file.exists())
    body = json.loads(file.read_text())
    change(body)
    if is_sealed:
        body["checksum"] = checksum(body)
    file.write_text(json.dumps(body))


@kind("checkpointed")
def a_hint_of_other_bytes(log: Log) -> tuple[str, ...]:
    file = log.folder / "_last_checkpoint"
    log.pick([None] * file.exists())
    file.write_bytes(log.chance.choice((b"", b"{", b"[]", b"\xff", b'{"version":"1"}', b'{"version":1.5}')))
    return ("last-checkpoint-unreadable",)


@kind("checkpointed")
def a_hint_to_no_checkpoint(log: Log) -> tuple[str, ...]:
    version = log.pick(each for each in range(log.last + 9) if each not in log.checkpoints())
    _change_hint(log, lambda hint: hint.update(version=version), True)
    return ("last-checkpoint-to-missing",)


@kind("checkpointed")
def a_hint_with_a_wrong_checksum(log: Log) -> tuple[str, ...]:
    _change_hint(log, lambda hint: hint.update(checksum="0" * 32), False)
    return ("last-checkpoint-checksum-wrong",)


@kind("checkpointed", avoids=["v2"])
def a_hint_of_another_size(log: Log) -> tuple[str, ...]:
    name = log.chance.choice(("size", "numOfAddFiles"))
    _change_hint(log, lambda hint: hint.update({name: (hint.get(name) or 0) + 1}), True)
    return ("last-checkpoint-size-differs",)


@kind("checkpointed")
def a_lost_hint(log: Log) -> tuple[str, ...]:
    (log.folder / "_last_checkpoint").unlink()
    return ("last-checkpoint-missing",)


@kind("checkpointed", avoids=["v2"])
def a_hint_to_an_older_checkpoint(log: Log) -> tuple[str, ...]:
    older = log.pick(log.checkpoints()[:-1])

    def point_there(hint: Line) -> None:
        hint.clear()
        hint.update(version=older, size=1)

    _change_hint(log, point_there, True)
    return ("last-checkpoint-stale",)
