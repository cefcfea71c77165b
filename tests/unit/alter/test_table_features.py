"""Adding and dropping table features."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from deltalog import CallError, DeltaLogError, DeltaTable, UnsupportedFeatureError
from deltalog.alter.table_features import _REMOVALS, drop_feature
from deltalog.errors import FeatureDropIncompleteError, InvalidPropertyError, Outcome, ProtocolChangedError
from deltalog.log.file_tables import add_actions
from deltalog.protocol import deletion_vectors, features
from deltalog.protocol.column_mapping import MODE_KEY
from deltalog.protocol.paths import commit_path
from deltalog.schema import StructType
from deltalog.testing.stores import Call, Decider, Fault, FaultyStore
from tests.support.core import ICT, SCHEMA, action, configuration, environment, ids, info, memory, rows


@pytest.fixture
def store() -> Any:
    return memory()


def create(store: Any, properties: dict[str, str] | None = None, data: pa.Table | None = None) -> DeltaTable:
    data = rows(1) if data is None else data
    return DeltaTable.create(store, data.schema, properties=properties, data=data, environment=environment())


def listed(table: DeltaTable) -> set[str]:
    return set(features.writer_features(DeltaTable.open(table._handle.reader.store).snapshot().protocol))


# --------------------------------------------------------------------------------------------------- add


def test_adding_a_feature(store: Any) -> None:
    table = create(store)
    table.add_feature("deletionVectors")
    assert info(store, 1)["operation"] == "UPGRADE PROTOCOL" and action(store, 1, "metaData") is None
    assert listed(table) == {"deletionVectors", "appendOnly", "invariants"}
    assert table.add_feature("deletionVectors").skipped


@pytest.mark.parametrize(
    ("properties", "needed"),
    [
        ({"delta.enableRowTracking": "true"}, {"rowTracking", "domainMetadata"}),
        ({"delta.feature.rowTracking": "supported"}, {"rowTracking", "domainMetadata"}),
        ({"delta.checkpointPolicy": "v2"}, {"v2Checkpoint"}),
        ({MODE_KEY: "id"}, {"columnMapping"}),
        ({"delta.enableTypeWidening": "true"}, {"typeWidening"}),
        ({"delta.checkpointPolicy": "classic", MODE_KEY: "none"}, set()),
    ],
)
def test_what_properties_need_is_listed(store: Any, properties: dict[str, str], needed: set[str]) -> None:
    assert listed(create(store, properties)) == needed | {"appendOnly", "invariants"}


def test_features_that_cannot_be_added(store: Any) -> None:
    table = create(store)
    with pytest.raises(InvalidPropertyError, match="Did you mean deletionVectors"):
        table.add_feature("deletionVector")
    with pytest.raises(UnsupportedFeatureError, match="icebergCompatV2"):
        table.add_feature("icebergCompatV2")
    assert table.version == 0


def test_row_tracking_from_the_start(store: Any) -> None:
    table = create(store, {"delta.enableRowTracking": "true"})
    names = [
        (configuration(store, 0) or {})[f"delta.rowTracking.materialized{n}ColumnName"]
        for n in ("RowId", "RowCommitVersion")
    ]
    assert names[0].startswith("_row-id-col-") and names[1].startswith("_row-commit-version-col-")
    assert table.snapshot().scan(["_metadata.row_id"]).to_arrow().to_pylist() == [{"_metadata.row_id": 0}]
    with pytest.raises(InvalidPropertyError, match="maintained by the writer"):
        table.set_properties({"delta.rowTracking.materializedRowIdColumnName": "x"})


def test_a_transaction_turns_row_tracking_on_only_where_no_file_lacks_ids(store: Any) -> None:
    with create(store).transaction() as transaction, pytest.raises(InvalidPropertyError, match="1 files have no row"):
        transaction.set_properties({"delta.enableRowTracking": "true"})
    empty = DeltaTable.create(memory(), SCHEMA, environment=environment())
    empty.set_properties({"delta.enableRowTracking": "true"})
    empty.append(rows(1, 2))
    assert empty.snapshot().files()["base_row_id"].to_pylist() == [0]
    empty.set_properties({"delta.enableRowTracking": "false"})
    empty.append(rows(3))
    # Row ids have been assigned since the feature was added, even while the property was off.
    empty.set_properties({"delta.enableRowTracking": "true"})
    assert sorted(empty.snapshot().scan(["_metadata.row_id"]).to_arrow()["_metadata.row_id"].to_pylist()) == [0, 1, 2]


# -------------------------------------------------------------------------------------------------- drop


def test_every_feature_that_is_written_can_be_dropped_or_says_why() -> None:
    written = {f.name for f in features.FEATURES if f.writes is not features.Writes.NO}
    assert set(_REMOVALS) <= written
    assert written - set(_REMOVALS) == {"variantShredding", "variantShredding-preview", "catalogManaged"}


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("appendOnly", {"delta.appendOnly": "true"}),
        ("changeDataFeed", {"delta.enableChangeDataFeed": "true"}),
        ("inCommitTimestamp", ICT),
        ("rowTracking", {"delta.enableRowTracking": "true"}),
    ],
)
def test_a_property_goes_first_and_then_the_feature(store: Any, name: str, properties: dict[str, str]) -> None:
    table = create(store, properties)
    result = table.drop_feature(name)
    assert result.version == 2 and name not in listed(table)
    assert [info(store, v)["operation"] for v in (1, 2)] == ["UNSET TBLPROPERTIES", "DROP FEATURE"]
    assert info(store, 2)["operationParameters"]["featureName"] == name
    assert not properties.keys() & table.snapshot().metadata.configuration.keys()
    assert not any("Enablement" in key for key in table.snapshot().metadata.configuration)
    table.append(rows(2))
    assert ids(DeltaTable.open(store)) == [1, 2] and ids(table, version=0) == [1]
    assert table.drop_feature(name).skipped


@pytest.mark.parametrize(
    ("properties", "drop", "left"),
    [
        (ICT, "inCommitTimestamp", {"minReaderVersion": 1, "minWriterVersion": 2}),
        (
            {"delta.feature.vacuumProtocolCheck": "supported"}, "vacuumProtocolCheck",
            {"minReaderVersion": 1, "minWriterVersion": 2},
        ),
        (
            {"delta.feature.checkConstraints": "supported", "delta.feature.domainMetadata": "supported"},
            "domainMetadata", {"minReaderVersion": 1, "minWriterVersion": 3},
        ),
        ({}, "appendOnly", {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["invariants"]}),
    ],
)  # fmt: skip
def test_the_protocol_is_as_low_as_it_can_be(
    store: Any, properties: dict[str, str], drop: str, left: dict[str, Any]
) -> None:
    table = create(store, properties)
    version = table.drop_feature(drop).version
    assert action(store, version, "protocol") == left


def test_a_feature_that_another_one_requires_stays(store: Any) -> None:
    table = create(store, {"delta.enableRowTracking": "true"})
    with pytest.raises(CallError, match="required by rowTracking"):
        table.drop_feature("domainMetadata")
    table.drop_feature("rowTracking")
    table.drop_feature("domainMetadata")
    assert listed(table) == {"appendOnly", "invariants"}


def test_row_ids_are_forgotten_so_that_they_are_not_given_out_twice(store: Any) -> None:
    table = create(store, {"delta.enableRowTracking": "true"})
    table.append(rows(2, 3))
    table.drop_feature("rowTracking")
    snapshot = DeltaTable.open(store).snapshot()
    assert snapshot.files()["base_row_id"].null_count == 2 and snapshot.domain_metadata == []
    assert ids(table) == [1, 2, 3]
    table.restore(1)  # restoring the rows also restores their row ids
    found = table.snapshot().scan(["id", "_metadata.row_id"]).to_arrow().to_pylist()
    assert {row["id"]: row["_metadata.row_id"] for row in found} == {1: 0, 2: 1, 3: 2}


def test_what_the_table_holds_keeps_a_feature(store: Any) -> None:
    table = create(store)
    table.set_domain_metadata("mine", "{}")
    with pytest.raises(CallError, match="metadata domains mine"):
        table.drop_feature("domainMetadata")
    mapped = create(memory(), {MODE_KEY: "name"})
    with pytest.raises(CallError, match="maps its columns"):
        mapped.drop_feature("columnMapping")
    wide = create(memory(), {"delta.enableTypeWidening": "true"}, pa.table({"v": pa.array([1], pa.int32())}))
    wide.set_column("v", data_type=pa.int64())
    with pytest.raises(FeatureDropIncompleteError, match="columns were widened"):
        wide.drop_feature("typeWidening")
    moment = create(memory(), None, pa.table({"t": pa.array([1], pa.timestamp("us"))}))
    with pytest.raises(CallError, match="columns of type timestamp_ntz"):
        moment.drop_feature("timestampNtz")
    with pytest.raises(UnsupportedFeatureError, match="cannot be dropped"):
        table.drop_feature("variantShredding")
    assert table.drop_feature("clustering").skipped


def test_the_clustering_columns_go_with_their_feature(store: Any) -> None:
    table = DeltaTable.create(store, SCHEMA, cluster_by=["id"], environment=environment())
    table.append(rows(1, 2))
    table.append(rows(3))
    table.optimize.compact()
    with pytest.raises(CallError, match="required by clustering"):
        table.drop_feature("domainMetadata")
    result = table.drop_feature("clustering")
    assert info(store, result.version)["operation"] == "DROP FEATURE"
    assert (action(store, result.version, "domainMetadata") or {})["removed"] is True
    snapshot = DeltaTable.open(store).snapshot()
    assert snapshot.clustering_columns == () and snapshot.domain_metadata == [] and "clustering" not in listed(table)
    table.append(rows(4))
    assert len(table.optimize.compact().removed) == 2 and ids(table) == [1, 2, 3, 4]
    assert table.check(deep=True).findings == ()
    table.drop_feature("domainMetadata")
    assert listed(table) == {"appendOnly", "invariants"}
    table.restore(1)  # restoring the columns also restores the table feature that they need
    assert table.snapshot().clustering_columns == (("id",),) and "clustering" in listed(table)


def test_a_change_of_the_clustering_columns_in_between_is_a_conflict(store: Any) -> None:
    table = DeltaTable.create(store, SCHEMA, cluster_by=["id"], environment=environment())
    calls = []

    def begin() -> Any:
        transaction = table.transaction()
        calls.append(transaction)
        if len(calls) == 2:
            DeltaTable.open(store).cluster_by([])
        return transaction

    with pytest.raises(ProtocolChangedError, match="clustering"):
        drop_feature(begin, "clustering", None)
    assert "clustering" in listed(table)


def with_vector(table: DeltaTable) -> None:
    files = table.snapshot().files()
    vector = deletion_vectors.inline(deletion_vectors.encode(BitMap64([0])), 1)
    with table.transaction() as transaction:
        transaction.remove_files(files)
        transaction.add(
            *(msgspec.structs.replace(a, deletion_vector=vector, data_change=True) for a in add_actions(files))
        )
        transaction.commit("DELETE")


def forget(store: Any, table: DeltaTable) -> None:
    """Clean up the log: keep a checkpoint, and no commit before it."""
    table.checkpoint()
    for version in range(table.version):
        store.delete(commit_path(version))


def test_readers_must_not_come_upon_a_feature_in_the_log(store: Any) -> None:
    table = create(store, {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "1000"}, rows(1, 2))
    with_vector(table)
    with pytest.raises(FeatureDropIncompleteError, match=r"^Version 3 has rewritten .* version 3, which") as raised:
        table.drop_feature("deletionVectors")
    assert raised.value.version == 3
    assert [info(store, v)["operation"] for v in (2, 3)] == ["UNSET TBLPROPERTIES", "REORG"]
    assert ids(table) == [2] and table.snapshot().files()["deletion_vector"].null_count == 1
    with pytest.raises(CallError, match="version 3, which is still in the log, uses it"):
        table.drop_feature("deletionVectors")
    assert "delta.enableDeletionVectors" not in table.snapshot().metadata.configuration
    forget(store, table)
    with pytest.raises(CallError, match="version 3"):  # the checkpoint has the file's tombstone
        table.drop_feature("deletionVectors")
    table.append(rows(6))
    with table.transaction() as transaction:
        transaction.remove_all_files()
        transaction.commit("DELETE")
    assert "deletionVectors" in listed(table)


def test_files_with_new_deletion_vectors_keep_the_feature(store: Any) -> None:
    table = create(store, {"delta.enableDeletionVectors": "true"}, rows(1, 2))

    def purge() -> Any:
        done = table.optimize.purge().commits
        with_vector(table)  # commits as another writer
        return done

    with pytest.raises(FeatureDropIncompleteError, match=r"1 files have deletion vectors; .*optimize\.purge"):
        drop_feature(table.transaction, "deletionVectors", None, purge)


def test_a_feature_of_readers_goes_when_the_log_has_forgotten_it(store: Any) -> None:
    table = create(store, {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "1000"})
    with pytest.raises(FeatureDropIncompleteError, match="version 0, which is still in the log"):
        table.drop_feature("deletionVectors")
    table.append(rows(2))
    forget(store, table)
    table.drop_feature("deletionVectors")
    assert action(store, 3, "protocol") == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert ids(DeltaTable.open(store)) == [1, 2]


def test_v2_checkpoints_must_be_gone(store: Any) -> None:
    table = create(store, {"delta.checkpointPolicy": "v2"})
    table.checkpoint()
    with pytest.raises(FeatureDropIncompleteError, match="V2 checkpoint of version 0"):
        table.drop_feature("v2Checkpoint")
    for name in list(store._objects):
        if ".checkpoint." in name:
            store.delete(name)
    table.drop_feature("v2Checkpoint")
    assert listed(table) == {"appendOnly", "invariants"}


def test_protected_checkpoints_stay_protected_while_the_log_has_them(store: Any) -> None:
    key = "delta.requireCheckpointProtectionBeforeVersion"
    table = create(store, {"delta.feature.checkpointProtection": "supported", key: "2"})
    for number in (2, 3):
        table.append(rows(number))
    with pytest.raises(CallError, match="versions before 2"):
        table.drop_feature("checkpointProtection")
    forget(store, table)
    table.drop_feature("checkpointProtection")
    assert listed(table) == {"appendOnly", "invariants"} and key not in table.snapshot().metadata.configuration


def test_whoever_comes_in_between_is_a_conflict(store: Any) -> None:
    table = create(store, {"delta.feature.domainMetadata": "supported"})
    other = DeltaTable.open(store)

    def begin() -> Any:
        transaction = table.transaction()
        if table.version == 0 and other.version == 0 and begin.calls:  # type: ignore[attr-defined]
            other.set_domain_metadata("mine", "{}")
        begin.calls += 1  # type: ignore[attr-defined]
        return transaction

    begin.calls = 0  # type: ignore[attr-defined]
    with pytest.raises(ProtocolChangedError, match="domainMetadata"):
        drop_feature(begin, "domainMetadata", None)
    assert "domainMetadata" in listed(table)


def test_an_error_after_the_first_commit_says_that_it_was_made(store: Any) -> None:
    table = create(store, {"delta.enableDeletionVectors": "true"})
    with pytest.raises(FeatureDropIncompleteError) as raised:
        table.drop_feature("deletionVectors")
    error = raised.value
    assert (error.outcome, error.feature, error.version) == (Outcome.PARTLY_COMMITTED, "deletionVectors", 1)
    assert str(error).startswith("Version 1 has unset delta.enableDeletionVectors, but the commit that drops the ")
    assert str(error).endswith(str(error.__cause__)) and isinstance(error.__cause__, CallError)
    assert table.version == 1 and info(store, 1)["operation"] == "UNSET TBLPROPERTIES"
    with pytest.raises(CallError, match="version 0, which is still in the log") as again:  # nothing is left to unset
        table.drop_feature("deletionVectors")
    assert again.value.outcome is Outcome.NOTHING_COMMITTED and table.version == 1


def failing_from(first: int) -> Decider:
    return lambda call: Fault.FAIL_BEFORE if call.number >= first else None


def test_the_outcome_is_what_is_in_the_log_wherever_the_store_fails() -> None:
    def prepared() -> Any:
        store = memory()
        create(store, {"delta.appendOnly": "true"})
        return store

    def drop(store: FaultyStore) -> None:
        DeltaTable.open(store, environment=environment()).drop_feature("appendOnly")

    calls: list[Call] = []
    drop(FaultyStore(prepared(), calls.append))
    versions: dict[Outcome, set[int]] = {}
    for first in (call.number for call in calls):  # this call fails, as do all later calls
        inner = prepared()
        try:
            drop(FaultyStore(inner, failing_from(first)))
        except DeltaLogError as error:
            versions.setdefault(error.outcome, set()).add(DeltaTable.open(inner).version)
    assert versions == {Outcome.NOTHING_COMMITTED: {0}, Outcome.PARTLY_COMMITTED: {1}}


def test_a_conflict_of_the_second_commit_is_retried(store: Any) -> None:
    table = create(store, {"delta.appendOnly": "true"})
    other = DeltaTable.open(store)
    calls = []

    def begin() -> Any:
        transaction = table.transaction()
        calls.append(transaction)
        if len(calls) == 2:
            other.append(rows(2))
        return transaction

    causes = []

    def drop(table: DeltaTable) -> None:
        try:
            drop_feature(begin, "appendOnly", None)
        except FeatureDropIncompleteError as error:
            causes.append(error.__cause__)
            raise

    table.retrying(drop)
    assert [type(each) for each in causes] == [ProtocolChangedError]
    assert (table.version, ids(table)) == (3, [1, 2]) and "appendOnly" not in listed(table)


def test_a_schema_that_uses_a_feature_lists_it(store: Any) -> None:
    table = create(store)
    schema = StructType.from_json(
        table.snapshot().schema.to_json().replace('"name":"id","type":"long","nullable":true,"metadata":{}',
        '"name":"id","type":"long","nullable":true,"metadata":{"CURRENT_DEFAULT":"1"}')
    )  # fmt: skip
    other = DeltaTable.create(memory(), schema, environment=environment())
    assert "allowColumnDefaults" in listed(other)


# --------------------------------------------------------------------------------------------------- upgrade


@pytest.mark.parametrize(
    ("versions", "features_then", "protocol"),
    [
        ((1, 3), {"appendOnly", "invariants", "checkConstraints"}, (1, 3)),
        ((1, 1), {"appendOnly", "invariants"}, (1, 2)),
        ((2, 5), {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
                  "columnMapping"}, (2, 5)),
        ((1, 7), {"appendOnly", "invariants"}, (1, 7)),
        ((3, 7), {"appendOnly", "invariants"}, (3, 7)),
    ],
)  # fmt: skip
def test_versions_are_raised(
    store: Any, versions: tuple[int, int], features_then: set[str], protocol: tuple[int, int]
) -> None:
    table = create(store)
    done = table.upgrade_protocol(*versions)
    found = DeltaTable.open(store).snapshot().protocol
    assert (found.min_reader_version, found.min_writer_version) == protocol and listed(table) == features_then
    assert done.skipped == (protocol == (1, 2)) and table.upgrade_protocol(1, 2).skipped
    table.append(rows(2))
    assert ids(table) == [1, 2]


def test_versions_add_to_the_features_that_are_listed(store: Any) -> None:
    table = create(store)
    table.add_feature("deletionVectors")
    table.upgrade_protocol(1, 4)
    found = DeltaTable.open(store).snapshot().protocol
    assert (found.min_reader_version, found.min_writer_version) == (3, 7) and found.reader_features == (
        "deletionVectors",
    )
    assert listed(table) == {
        *("deletionVectors", "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns")
    }
    assert table.upgrade_protocol(3, 7).skipped and table.upgrade_protocol(1, 3).skipped


@pytest.mark.parametrize("versions", [(0, 2), (1, 8), (4, 7), (2, 4), (3, 6)])
def test_versions_that_delta_does_not_have(store: Any, versions: tuple[int, int]) -> None:
    with pytest.raises(CallError, match="version"):
        create(store).upgrade_protocol(*versions)
