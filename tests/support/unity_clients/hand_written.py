"""Commits of catalog-managed tables, written as JSON by hand and not by an engine: what a client of the API has to put
into storage before its calls."""

from __future__ import annotations

import json
import time
import urllib.parse
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "day", "type": "string", "nullable": True, "metadata": {"comment": "a weekday"}},
]
READER = ["catalogManaged", "vacuumProtocolCheck"]
WRITER = [*READER, "inCommitTimestamp"]
Action = dict[str, Any]


def local(location: str) -> Path:
    """The directory of a ``file:`` location."""
    return Path(urllib.parse.urlsplit(location).path)


@dataclass
class HandWritten:
    """A table at a staged location. Its members say what version 0 contains."""

    table_id: str
    location: str
    fields: Sequence[Mapping[str, Any]] = field(default_factory=lambda: FIELDS)
    reader: Sequence[str] = field(default_factory=lambda: READER)
    writer: Sequence[str] = field(default_factory=lambda: WRITER)
    partition_columns: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    comment: str | None = None
    time_ms: int = field(default_factory=lambda: int(time.time() * 1000) - 60_000)

    @classmethod
    def of(cls, staged: Mapping[str, Any], **more: Any) -> HandWritten:
        """A table at the location of a response of createStagingTable, with the features and properties that it
        requires."""
        protocol = staged["required-protocol"]
        required = {key: value for key, value in staged["required-properties"].items() if value is not None}
        properties = {**required, **more.pop("properties", {})}
        features: dict[str, Any] = {
            "reader": [*protocol.get("reader-features", ()), *more.pop("reader", ())],
            "writer": [*protocol.get("writer-features", ()), *more.pop("writer", ())],
        }
        return cls(staged["table-id"], staged["location"], properties=properties, **features, **more)

    @property
    def log(self) -> Path:
        return local(self.location) / "_delta_log"

    @property
    def protocol(self) -> Action:
        return {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": list(self.reader),
            "writerFeatures": list(self.writer),
        }

    @property
    def metadata(self) -> Action:
        said: Action = {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, self.location)),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(self.fields)}),
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.properties),
            "createdTime": self.time_ms,
        }
        return said if self.comment is None else {**said, "description": self.comment}

    def info(self, time_ms: int) -> Action:
        return {
            "commitInfo": {
                "inCommitTimestamp": time_ms,
                "timestamp": time_ms,
                "operation": "WRITE",
                "operationParameters": {},
                "txnId": str(uuid.uuid4()),
            }
        }

    def write_version_0(self, *actions: Action) -> None:
        domains = [
            {"domainMetadata": {"domain": name, "configuration": json.dumps(value), "removed": False}}
            for name, value in self.domains.items()
        ]
        self._write(
            self.log / f"{0:020}.json",
            [self.info(self.time_ms), {"protocol": self.protocol}, {"metaData": self.metadata}, *domains, *actions],
        )

    def request(self, name: str, **changed: Any) -> dict[str, Any]:
        """The body of the createTable request that registers version 0. ``changed``: members to replace, or to leave
        out if None."""
        made = {
            "name": name,
            "location": self.location,
            "table-type": "MANAGED",
            "columns": {"type": "struct", "fields": list(self.fields)},
            "properties": dict(self.properties),
            "protocol": {
                "min-reader-version": 3,
                "min-writer-version": 7,
                "reader-features": list(self.reader),
                "writer-features": list(self.writer),
            },
            "last-commit-timestamp-ms": self.time_ms,
            **({"comment": self.comment} if self.comment is not None else {}),
            **({"partition-columns": list(self.partition_columns)} if self.partition_columns else {}),
            **({"domain-metadata": dict(self.domains)} if self.domains else {}),
        }
        made.update({key.replace("_", "-"): value for key, value in changed.items()})
        return {key: value for key, value in made.items() if value is not None}

    def stage(self, version: int, *actions: Action, time_ms: int | None = None) -> dict[str, Any]:
        """Write a staged commit; returns its description for ``add-commit``."""
        stamp = self.time_ms + version if time_ms is None else time_ms
        name = f"{version:020}.{uuid.uuid4()}.json"
        path = self.log / "_staged_commits" / name
        self._write(path, [self.info(stamp), *actions])
        stat = path.stat()
        return {
            "version": version,
            "timestamp": stamp,
            "file-name": name,
            "file-size": stat.st_size,
            "file-modification-timestamp": stat.st_mtime_ns // 1_000_000,
        }

    def publish(self, commit: Mapping[str, Any]) -> None:
        staged = self.log / "_staged_commits" / commit["file-name"]
        target = self.log / f"{commit['version']:020}.json"
        if not target.exists():
            target.write_bytes(staged.read_bytes())

    def _write(self, path: Path, actions: Sequence[Action]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def update(table_id: str, *updates: Mapping[str, Any], etag: str | None = None) -> dict[str, Any]:
    """A request of updateTable."""
    requirements: list[dict[str, Any]] = [{"type": "assert-table-uuid", "uuid": table_id}]
    if etag is not None:
        requirements.append({"type": "assert-etag", "etag": etag})
    return {"requirements": requirements, "updates": list(updates)}


def add_commit(commit: Mapping[str, Any]) -> dict[str, Any]:
    return {"action": "add-commit", "commit": dict(commit)}
