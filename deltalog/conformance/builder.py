"""TableBuilder writes tables action by action, with the times, names and damage that a case needs.

Tables consist of plain JSON and Parquet with fixed names and times, so they are the same in every run and independent
of the engine under test. deltalog itself writes only the checkpoints and log compaction files of a table, with a fixed
clock.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import urllib.parse
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from deltalog.environment import Environment
from deltalog.errors import DeltaLogError
from deltalog.protocol import deletion_vectors
from deltalog.protocol.schema import StructType
from deltalog.table import DeltaTable

Action = dict[str, Any]

# 2025-01-15T12:00:00Z
T0 = 1_736_942_400_000
SECOND = 1000
MINUTE = 60 * SECOND
DAY = 86_400_000

ICT_PROPERTY = "delta.enableInCommitTimestamps"
PAIR_VERSION = "delta.inCommitTimestampEnablementVersion"
PAIR_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
ICT_FEATURE = "inCommitTimestamp"
IDS = pa.schema([("id", pa.int64())])


class TableBuilder:
    """A table below ``root``. Commits are written in order from version 0; ``at_ms`` of a commit is its file time and,
    with ``ict=True``, its in-commit timestamp.

    A commit with ``later="name"`` is kept outside the table until the step ``Put`` copies it into the log.
    """

    def __init__(self, root: Path, waiting: Path | None = None) -> None:
        """``waiting``: where commits are kept until ``Put``, by default next to ``root``."""
        self.root = root
        self.log = root / "_delta_log"
        self.log.mkdir(parents=True)
        self.next_version = 0
        self.schema = IDS
        self.partition_by: tuple[str, ...] = ()
        self.configuration: dict[str, str] = {}
        self.file_times_ms: dict[str, int] = {}
        self._numbers = itertools.count()
        self._uuids = itertools.count(1)
        self._schema_string: str | None = None
        self.waiting = root.with_name("later") if waiting is None else waiting

    @property
    def latest_schema(self) -> pa.Schema:
        """The columns of the last metaData action; those of the rows if its schema string is not valid."""
        if self._schema_string is not None:
            with contextlib.suppress(DeltaLogError):
                return StructType.from_json(self._schema_string).to_arrow()
        return self.schema

    # ---------------------------------------------------------------------------- methods that add actions

    def protocol(
        self,
        writer_features: Sequence[str] | None = None,
        reader_features: Sequence[str] | None = None,
        versions: tuple[int, int] | None = None,
    ) -> Action:
        """A protocol action. ``versions``: by default the lowest that the features require."""
        if versions is None:
            versions = (3 if reader_features is not None else 1, 7 if writer_features is not None else 2)
        found: Action = {"minReaderVersion": versions[0], "minWriterVersion": versions[1]}
        if reader_features is not None:
            found["readerFeatures"] = list(reader_features)
        if writer_features is not None:
            found["writerFeatures"] = list(writer_features)
        return {"protocol": found}

    def metadata(
        self,
        schema: pa.Schema | str | None = None,
        partition_by: Sequence[str] | None = None,
        configuration: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Action:
        """A metaData action. The arguments also apply to all later metaData actions of the table. ``schema`` may be a
        schema string."""
        if isinstance(schema, str):
            self._schema_string = schema
        elif schema is not None:
            self.schema, self._schema_string = schema, None
        if partition_by is not None:
            self.partition_by = tuple(partition_by)
        if configuration is not None:
            self.configuration = dict(configuration)
        return {
            "metaData": {
                "id": "5f6d1c6e-9a0d-4a9e-8a53-3d0b8f1c2a77",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": self._schema_string or StructType.from_arrow(self.schema).to_json(),
                "partitionColumns": list(self.partition_by),
                "configuration": dict(self.configuration),
                "createdTime": T0,
                **more,
            }
        }

    def add(
        self,
        rows: Sequence[Mapping[str, Any]] | pa.Table,
        partition: Mapping[str, str | None] | None = None,
        *,
        path: str | None = None,
        stats: bool | Mapping[str, Any] = True,
        file_schema: pa.Schema | None = None,
        **more: Any,
    ) -> Action:
        """Write a data file and return its add action. ``path``: the file name, by default ``part-00000.parquet`` and
        so on. ``partition``: the partition values in the log; these columns are omitted from the file."""
        partition = dict(partition or {})
        if isinstance(rows, pa.Table):
            table = rows
        else:
            columns = [f for f in file_schema or self.schema if f.name not in partition]
            table = pa.Table.from_pylist([dict(row) for row in rows], pa.schema(columns))
        name = path or f"part-{next(self._numbers):05d}.parquet"
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file)
        found: Action = {
            "path": urllib.parse.quote(name, safe="/=-_.~"),
            "partitionValues": dict(partition),
            "size": file.stat().st_size,
            "modificationTime": T0,
            "dataChange": True,
        }
        if stats is True:
            found["stats"] = json.dumps({"numRecords": table.num_rows})
        elif stats is not False:
            found["stats"] = json.dumps(stats)
        return {"add": {**found, **more}}

    def remove(self, added: Action, at_ms: int = T0, **more: Any) -> Action:
        """The remove action for an added file."""
        add = added["add"]
        found: Action = {
            "path": add["path"],
            "deletionTimestamp": at_ms,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": add["partitionValues"],
            "size": add["size"],
        }
        if "deletionVector" in add:
            found["deletionVector"] = add["deletionVector"]
        return {"remove": {**found, **more}}

    def with_deleted(self, added: Action, positions: Sequence[int], storage: str = "i") -> Action:
        """The add action of the same file with a deletion vector: inline (``i``), or in a file with a relative (``u``)
        or absolute path (``p``)."""
        data = deletion_vectors.encode(BitMap64(sorted(positions)))
        if storage == "i":
            vector = deletion_vectors.inline(data, len(positions))
            descriptor: Action = {
                "storageType": "i",
                "pathOrInlineDv": vector.path_or_inline_dv,
                "sizeInBytes": vector.size_in_bytes,
                "cardinality": len(positions),
            }
        else:
            unique = uuid.UUID(int=next(self._numbers) + (7 << 100))
            content, (offset,) = deletion_vectors.encode_file([data])
            (self.root / f"deletion_vector_{unique}.bin").write_bytes(content)
            place = deletion_vectors.encode_z85(unique.bytes)
            if storage == "p":
                place = (self.root / f"deletion_vector_{unique}.bin").resolve().as_uri()
            descriptor = {
                "storageType": storage,
                "pathOrInlineDv": place,
                "offset": offset,
                "sizeInBytes": len(data),
                "cardinality": len(positions),
            }
        return {"add": {**added["add"], "deletionVector": descriptor}}

    # --------------------------------------------------------------------------------------------- commits

    def commit(
        self,
        *actions: Action,
        at_ms: int | None = None,
        ict: bool | Any = False,
        file_ms: int | None = None,
        info: str | Mapping[str, Any] = "first",
        text: str | None = None,
        later: str | None = None,
    ) -> int:
        """Write the next version. ``ict``: the in-commit timestamp: True means ``at_ms``, False means none, and any
        other value is used as given. ``file_ms``: the file time, by default ``at_ms``. ``info``: the position of
        commitInfo ("first", "last" or "absent"), or additional fields. ``text``: the text of the whole commit, given
        instead of actions."""
        version = self.next_version
        at_ms = T0 + version * MINUTE if at_ms is None else at_ms
        fields: Action = {"timestamp": at_ms, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
        if ict is not False:
            fields = {"inCommitTimestamp": at_ms if ict is True else ict, **fields}
        fields["txnId"] = str(uuid.UUID(int=version + (1 << 100)))
        if isinstance(info, Mapping):
            fields.update(info)
        lines = list(actions)
        if info != "absent":
            lines.insert(len(lines) if info == "last" else 0, {"commitInfo": fields})
        content = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines) if text is None else text
        name = f"{version:020d}.json"
        if later is None:
            self.write_log_file(name, content, at_ms if file_ms is None else file_ms)
        else:
            (self.waiting / later).mkdir(parents=True, exist_ok=True)
            (self.waiting / later / name).write_text(content, encoding="utf-8")
        self.next_version += 1
        return version

    def write_log_file(self, name: str, content: str, file_ms: int = T0) -> None:
        """Write a file into the log or a directory of it, with the given modification time."""
        file = self.log / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
        self.file_times_ms[name] = file_ms
        os.utime(file, ns=(file_ms * 1_000_000, file_ms * 1_000_000))

    def checksum(self, ict: int | None = None) -> None:
        """Write the version checksum of the latest version. ``ict``: its in-commit timestamp; None: without one."""
        files: dict[str, int] = {}
        latest: Action = {}
        for version in range(self.next_version):
            for line in (self.log / f"{version:020d}.json").read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                latest.update(action)
                if "add" in action:
                    files[action["add"]["path"]] = action["add"]["size"]
                if "remove" in action:
                    files.pop(action["remove"]["path"], None)
        found: Action = {
            "tableSizeBytes": sum(files.values()),
            "numFiles": len(files),
            "numMetadata": 1,
            "numProtocol": 1,
            "setTransactions": [],
            "domainMetadata": [],
            "metadata": latest["metaData"],
            "protocol": latest["protocol"],
        }
        if ict is not None:
            found["inCommitTimestampOpt"] = ict
        self.write_log_file(f"{self.next_version - 1:020d}.crc", json.dumps(found))

    def set_file_ms(self, version: int, file_ms: int) -> None:
        """Change the file time of a commit, as copying or restoring a table does."""
        name = f"{version:020d}.json"
        self.file_times_ms[name] = file_ms
        os.utime(self.log / name, ns=(file_ms * 1_000_000, file_ms * 1_000_000))

    def drop_commits(self, *versions: int) -> None:
        """Delete commits, as log clean-up or a fault would."""
        for version in versions:
            (self.log / f"{version:020d}.json").unlink()
            self.file_times_ms.pop(f"{version:020d}.json")

    def opened(self) -> DeltaTable:
        """Open the table with deltalog, with a clock that is fixed at a time after the last commit."""
        environment = Environment(
            clock_ms=lambda: T0 + self.next_version * MINUTE,
            new_uuid=lambda: str(uuid.UUID(int=next(self._uuids) + (self.next_version << 64) + (3 << 100))),
        )
        return DeltaTable.open(str(self.root), environment=environment)

    def checkpoint(self, **options: Any) -> None:
        """Write a checkpoint of the latest version."""
        self.opened().checkpoint(**options)

    def split_checkpoint(self, version: int, parts: int, without: Collection[int] = ()) -> None:
        """Replace a classic checkpoint with a multi-part checkpoint that lacks the parts ``without``, and delete
        _last_checkpoint."""
        whole = self.log / f"{version:020d}.checkpoint.parquet"
        rows = pq.read_table(whole)
        size = -(-rows.num_rows // parts)
        for number in range(1, parts + 1):
            if number not in without:
                name = f"{version:020d}.checkpoint.{number:010d}.{parts:010d}.parquet"
                pq.write_table(rows.slice((number - 1) * size, size), self.log / name)
        whole.unlink()
        (self.log / "_last_checkpoint").unlink()

    def compact(self, start: int, end: int) -> None:
        """Write a log compaction file for a range of commits."""
        self.opened().compact_log(start, end)
