"""A client of Unity Catalog's API for tests, and the files that another Delta writer would write."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.server import Served, parquet

ROOT = "/api/2.1/unity-catalog"
READER = ["catalogManaged", "vacuumProtocolCheck"]
WRITER = ["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"]
PROTOCOL = {"min-reader-version": 3, "min-writer-version": 7, "reader-features": READER, "writer-features": WRITER}
COLUMNS = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {"comment": "the day"}},
    ],
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Response:
    """A response of the server. ``body``: None if it has none."""

    status: int
    body: Any

    @property
    def kind(self) -> str | None:
        """The type of the error, after a check that the body has the form of errors."""
        if self.status < 400:
            return None
        error = self.body["error"]
        assert error["code"] == self.status
        assert error["message"]
        return str(error["type"])

    @property
    def error(self) -> tuple[int, str | None]:
        return self.status, self.kind


class Unity:
    """A client of a server."""

    def __init__(self, server: Served, headers: Mapping[str, str] | None = None) -> None:
        self.server = server
        self._headers = dict(headers or {})

    def ask(self, method: str, path: str, body: Any = None) -> Response:
        connection = self.server.connection()
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, f"{ROOT}{path}", data, self._headers)
            answer = connection.getresponse()
            received = answer.read()
            return Response(answer.status, json.loads(received) if received else None)
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The body of a successful response."""
        found = self.ask(method, path, body)
        assert found.status in (200, 204), found
        return found.body

    def new_table(self, name: str | None = None, schema: str = "s", **changes: Any) -> Table:
        """A new managed table with version 0. ``changes``: as for ``Table.first``."""
        name = name or f"t{uuid.uuid4().hex[:12]}"
        staged = self.ok("POST", f"/delta/v1/catalogs/main/schemas/{schema}/staging-tables", {"name": name})
        table = Table(self, schema, name, staged)
        request = table.first(**changes)
        self.ok("POST", f"/delta/v1/catalogs/main/schemas/{schema}/tables", request)
        return table


class Table:
    """A staged or managed table, and what a writer of its log knows."""

    def __init__(self, unity: Unity, schema: str, name: str, staged: Mapping[str, Any]) -> None:
        self.unity = unity
        self.schema = schema
        self.name = name
        self.id = staged["table-id"]
        self.location = staged["location"]
        self.root = Path(self.location.removeprefix("file://"))
        self.path = f"/delta/v1/catalogs/main/schemas/{schema}/tables/{name}"
        self.version = 0
        self.last_ms = 0

    @property
    def log(self) -> Path:
        return self.root / "_delta_log"

    def metadata(self, **changes: Any) -> dict[str, Any]:
        """A metaData action."""
        schema = json.dumps(changes.pop("schema", COLUMNS))
        configuration = {"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": self.id}
        return {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": ["day"],
            "configuration": {**configuration, **changes.pop("configuration", {})},
            "createdTime": now_ms(),
            **changes,
        }

    def first(self, protocol: Any = None, domains: Any = (), write: bool = True, **changes: Any) -> dict[str, Any]:
        """Write version 0, and return the request that creates the table. ``changes``: members of the metaData action
        to replace."""
        self.last_ms = now_ms()
        protocol = protocol or PROTOCOL
        metadata = self.metadata(**changes)
        actions = [
            {"commitInfo": self._info(self.last_ms, "CREATE TABLE")},
            {
                "protocol": {
                    "minReaderVersion": protocol["min-reader-version"],
                    "minWriterVersion": protocol["min-writer-version"],
                    "readerFeatures": protocol["reader-features"],
                    "writerFeatures": protocol["writer-features"],
                }
            },
            {"metaData": metadata},
            *({"domainMetadata": each} for each in domains),
        ]
        if write:
            self.log.mkdir(parents=True)
            (self.log / f"{0:020d}.json").write_text(_lines(actions))
        return {
            "name": self.name,
            "location": self.location,
            "table-type": "MANAGED",
            "columns": json.loads(metadata["schemaString"]),
            "partition-columns": metadata["partitionColumns"],
            "protocol": protocol,
            "properties": metadata["configuration"],
            "domain-metadata": {each["domain"]: json.loads(each["configuration"]) for each in domains},
            "last-commit-timestamp-ms": self.last_ms,
        }

    def _info(self, ict_ms: int, operation: str) -> dict[str, Any]:
        return {
            "inCommitTimestamp": ict_ms, "timestamp": ict_ms, "operation": operation, "operationParameters": {},
            "txnId": str(uuid.uuid4()),
        }  # fmt: skip

    def stage(self, *more: Any, version: int | None = None, ict_ms: int | None = None, rows: bool = True) -> Any:
        """Write a staged commit with one new file, and return its add-commit. ``more``: further actions."""
        version = self.version + 1 if version is None else version
        ict_ms = max(now_ms(), self.last_ms + 1) if ict_ms is None else ict_ms
        actions: list[Any] = [{"commitInfo": self._info(ict_ms, "WRITE")}, *more]
        if rows:
            made = parquet(self.root, f"{uuid.uuid4()}.parquet", version)
            add = {
                "path": Path(made["Uri"]).name, "partitionValues": {"day": "mon"}, "size": made["Size"],
                "modificationTime": 1, "dataChange": True,
            }  # fmt: skip
            actions.append({"add": add})
        file = self.log / "_staged_commits" / f"{version:020d}.{uuid.uuid4()}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(_lines(actions))
        status = file.stat()
        return {
            "action": "add-commit",
            "commit": {
                "version": version, "timestamp": ict_ms, "file-name": file.name, "file-size": status.st_size,
                "file-modification-timestamp": status.st_mtime_ns // 1_000_000,
            },
        }  # fmt: skip

    def update(self, *updates: Any, etag: str | None = None, uuid: str | None = None) -> Response:
        requirements = [{"type": "assert-table-uuid", "uuid": uuid or self.id}]
        if etag is not None:
            requirements.append({"type": "assert-etag", "etag": etag})
        return self.unity.ask("POST", self.path, {"requirements": requirements, "updates": list(updates)})

    def commit(self, *more: Any, updates: Any = (), **options: Any) -> Any:
        """Stage and commit; returns the loaded table."""
        add = self.stage(*more, **options)
        found = self.update(add, *updates)
        assert found.status == 200, found
        self.version, self.last_ms = add["commit"]["version"], add["commit"]["timestamp"]
        return found.body

    def publish(self, version: int, file_name: str) -> None:
        """Copy a staged commit, as a client that publishes would."""
        data = (self.log / "_staged_commits" / file_name).read_bytes()
        (self.log / f"{version:020d}.json").write_bytes(data)

    def load(self) -> Any:
        return self.unity.ok("GET", self.path)


def _lines(actions: Any) -> str:
    return "".join(json.dumps(each) + "\n" for each in actions)
