"""Clustering, domain metadata, transactions, table features, and restored versions."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from tests.interop.feature_tables.feature import (
    DELETE,
    ICT,
    INSERT,
    MAPPED,
    TRACKED,
    VECTORS,
    as_partitioned,
    created,
    feature,
    listed,
    logged,
    without,
)
from tests.support.spark.log_files import drop_below
from tests.support.spark.shapes import batch


@feature("Clustered table", "`create(cluster_by=…)`, `append`, `delete`")
def clustered(path: Path) -> pa.Table:
    table = created(path, {"delta.dataSkippingNumIndexedCols": "0"}, cluster_by=["place"])
    table.append(batch(0, 12))
    table.delete("id IN (3, 4)")
    assert all("place" in json.loads(add["stats"])["minValues"] for add in logged(path, "add"))
    return without(batch(0, 12), 3, 4)


@feature("Rows clustered", "`cluster_by`, `optimize.compact`", spark=(INSERT, DELETE, "OPTIMIZE {t}"))
def rows_clustered(path: Path) -> pa.Table:
    table = created(path)
    table.append(batch(0, 6))
    table.cluster_by(["place", "id"])
    table.append(batch(6, 6))
    table.optimize.compact()
    assert logged(path, "add")[-1]["clusteringProvider"] == "liquid"
    return batch(0, 12)


@feature("Metadata domains", "`set_domain_metadata`, `remove_domain_metadata`")
def domains(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.set_domain_metadata("com.example.kept", {"cursor": 17})
    table.set_domain_metadata("com.example.gone", "text")
    table.remove_domain_metadata("com.example.gone")
    table.checkpoint()
    drop_below(path, table.version)
    assert [d.domain for d in table.snapshot().domain_metadata] == ["com.example.kept"]
    return batch(0)


@feature("Application transactions", "`append(txn=…)`")
def transactions(path: Path) -> pa.Table:
    table = created(path)
    table.append(batch(0), txn=("job", 1))
    table.append(batch(3), txn=("job", 2))
    assert table.append(batch(3), txn=("job", 2)).skipped
    assert [txn["version"] for txn in logged(path, "txn")] == [1, 2]
    return batch(0, 6)


@feature("User metadata", "`append(user_metadata=…)`")
def user_metadata(path: Path) -> pa.Table:
    table = created(path)
    table.append(batch(0), user_metadata="plain text, 'quoted'")
    table.append(batch(3), user_metadata={"run": 7})
    assert [info.get("userMetadata") for info in logged(path, "commitInfo")][1:] == [
        "plain text, 'quoted'", '{"run": 7}',
    ]  # fmt: skip
    return batch(0, 6)


@feature("Features added", "`add_feature`, `delta.feature.…`")
def features_added(path: Path) -> pa.Table:
    table = created(path, {"delta.feature.checkpointProtection": "supported"}, data=batch(0))
    for name in ("vacuumProtocolCheck", "deletionVectors", "columnMapping", "allowColumnDefaults"):
        table.add_feature(name)
    table.set_properties({"delta.feature.v2Checkpoint": "supported"})
    table.append(batch(3))
    assert {"checkpointProtection", "vacuumProtocolCheck", "v2Checkpoint"} <= listed(table)
    return batch(0, 6)


@feature("Protocol versions raised", "`upgrade_protocol`")
def versions_raised(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.upgrade_protocol(2, 5)
    table.append(batch(3))
    protocol = table.snapshot().protocol
    assert (protocol.min_reader_version, protocol.min_writer_version) == (2, 5) and not protocol.writer_features
    return batch(0, 6)


@feature("Features dropped", "`drop_feature`", checksum=False)
def features_dropped(path: Path) -> pa.Table:
    table = created(path, ICT, TRACKED, {"delta.feature.vacuumProtocolCheck": "supported"}, data=batch(0))
    for name in ("inCommitTimestamp", "rowTracking", "domainMetadata", "vacuumProtocolCheck"):
        table.drop_feature(name)
    table.append(batch(3))
    assert table.snapshot().protocol.min_writer_version == 2 and not listed(table)
    return batch(0, 6)


@feature("Restored to a version", "`restore(version)`", row_ids=True)
def restored(path: Path) -> pa.Table:
    table = created(path, VECTORS, TRACKED, MAPPED, partition_by=["place"])
    table.append(batch(0, 14))
    table.delete("id IN (3, 4)")
    table.delete("id > 8")
    table.rename_column("name", "other")
    table.append(batch(20).rename_columns(["id", "other", "amount", "at", "place"]))
    table.restore(2)
    return as_partitioned(without(batch(0, 14), 3, 4))


@feature("Restored to a time before in-commit timestamps", "`restore(timestamp=…)`")
def restored_to_a_time(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.enable_in_commit_timestamps()
    table.append(batch(3))
    first = table.history()[-1].timestamp_ms
    assert first is not None
    table.restore(timestamp=first)
    assert table.snapshot().in_commit_timestamps_enabled
    return batch(0)
