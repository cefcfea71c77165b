"""The actions of generated tables, as delta-spark writes them: as JSON, and as rows of a checkpoint."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

BEGIN_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z
FILE_BYTES = 12_345_678


@dataclass(frozen=True)
class SmallActions:
    """The protocol and metadata of a table. ``columns``: names and types."""

    name: str
    columns: tuple[tuple[str, str], ...]
    partitioned_by: str  # empty: not partitioned
    ict: bool = True
    v2_checkpoint: bool = False
    # Large enough that the checkpoint after every tenth commit is not written.
    checkpoint_interval: int = 1_000_000

    def protocol(self) -> dict[str, Any]:
        if not self.ict:
            return {"minReaderVersion": 1, "minWriterVersion": 2}
        features = ["inCommitTimestamp", "appendOnly", "invariants"]
        if not self.v2_checkpoint:
            return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
        named = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": [*features, "v2Checkpoint"]}
        return {"minReaderVersion": 3, "minWriterVersion": 7, **named}

    def metadata(self) -> dict[str, Any]:
        configuration = {
            # Other engines refuse time travel beyond the retention, and would clean up logs this old.
            "delta.deletedFileRetentionDuration": "interval 10000 days",
            "delta.logRetentionDuration": "interval 10000 days",
            "delta.checkpointInterval": str(self.checkpoint_interval),
        }
        if self.ict:
            configuration["delta.enableInCommitTimestamps"] = "true"
        if self.v2_checkpoint:
            configuration["delta.checkpointPolicy"] = "v2"
        fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in self.columns]
        return {
            "id": text_uuid(self.name),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": to_json({"type": "struct", "fields": fields}),
            "partitionColumns": self._partition_columns(),
            "configuration": configuration,
            "createdTime": BEGIN_MS,
        }

    def commit_info(self, version: int, at_ms: int, files: int = 1) -> dict[str, Any]:
        return {
            **({"inCommitTimestamp": at_ms} if self.ict else {}),
            "timestamp": at_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": to_json(self._partition_columns())},
            **({"readVersion": version - 1} if version else {}),
            "isolationLevel": "Serializable",
            "isBlindAppend": True,
            "operationMetrics": {
                "numFiles": str(files), "numOutputRows": str(files * 100_000), "numOutputBytes": str(files * FILE_BYTES)
            },
            "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
            "txnId": self._txn_id(version),
        }  # fmt: skip

    def checksum(self, version: int, at_ms: int, files: int, size_bytes: int) -> bytes:
        body: dict[str, Any] = {
            "txnId": self._txn_id(version),
            "tableSizeBytes": size_bytes,
            "numFiles": files,
            "numMetadata": 1,
            "numProtocol": 1,
            "setTransactions": [],
            "domainMetadata": [],
            "metadata": self.metadata(),
            "protocol": self.protocol(),
        }
        if self.ict:
            body["inCommitTimestampOpt"] = at_ms
        return to_json(body).encode()

    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        """metaData and protocol as bodies of checkpoint rows."""
        metadata = self.metadata()
        metadata["configuration"] = list(metadata["configuration"].items())
        metadata["format"] = {"provider": "parquet", "options": []}
        return [("metaData", metadata), ("protocol", self.protocol())]

    def _partition_columns(self) -> list[str]:
        return [self.partitioned_by] if self.partitioned_by else []

    def _txn_id(self, version: int) -> str:
        return text_uuid(f"{self.name} {version}")


def text_uuid(name: str) -> str:
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


def to_json(value: Any) -> str:
    """Compact JSON, as in a log."""
    return json.dumps(value, separators=(",", ":"))


# ------------------------------------------------------------------------------------- rows of a checkpoint

STRINGS = pa.map_(pa.string(), pa.string())


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


VECTOR = pa.struct(
    [
        ("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()), ("cardinality", pa.int64()), ("maxRowIndex", pa.int64()),
    ]
)  # fmt: skip
SIDECAR = pa.struct(
    [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64()), ("tags", STRINGS)]
)
ROWS = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()), ("partitionValues", STRINGS), ("size", pa.int64()),
                    ("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("tags", STRINGS),
                    ("deletionVector", VECTOR), ("baseRowId", pa.int64()), ("defaultRowCommitVersion", pa.int64()),
                    ("clusteringProvider", pa.string()), ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()), ("partitionValues", STRINGS), ("size", pa.int64()),
                    ("deletionVector", VECTOR), ("baseRowId", pa.int64()), ("defaultRowCommitVersion", pa.int64()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", STRINGS)])),
                    ("schemaString", pa.string()), ("partitionColumns", _list(pa.string())),
                    ("configuration", STRINGS), ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _list(pa.string())), ("writerFeatures", _list(pa.string())),
                ]
            ),
        ),
        (
            "domainMetadata",
            pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
        ),
    ]
)  # fmt: skip
