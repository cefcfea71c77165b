from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from deltalog import CallError, CommitConflictError, DeltaLogError, TableExistsError, UnsupportedFeatureError
from deltalog.commit.attempt import build_attempt
from deltalog.commit.base import Base
from deltalog.commit.conflicts import rebase
from deltalog.commit.prepared import Prepared, Reads, isolation_for
from deltalog.engine import AddFile, Metadata, Protocol
from deltalog.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
    MissingInCommitTimestampError,
    ProtocolChangedError,
)
from deltalog.expressions.bind import bind
from deltalog.expressions.sql import parse
from deltalog.log.replay import file_key
from deltalog.protocol import row_tracking
from deltalog.protocol.actions import CommitInfo, DeletionVector, DomainMetadata, RemoveFile, SetTransaction
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.schema import StructType
from tests.support.core import ICT, TIMESTAMP_KEY, VERSION_KEY, metadata_action, protocol_action

PLAIN = Protocol.from_json(protocol_action()["protocol"])
WITH_ICT = Protocol.from_json(protocol_action("appendOnly", "invariants", "inCommitTimestamp")["protocol"])
V1 = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 1)
V2 = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 2)


def metadata(**properties: str) -> Metadata:
    return Metadata.from_json(metadata_action({k.replace("__", "."): v for k, v in properties.items()})["metaData"])


def base(protocol: Protocol = PLAIN, meta: Metadata | None = None, previous_ms: int | None = None) -> Base:
    return Base(4, protocol, meta or metadata(), previous_ms)


def add(path: str, vector: DeletionVector | None = None) -> AddFile:
    return AddFile(
        path=path, partition_values={}, size=1, modification_time=1, data_change=True, deletion_vector=vector
    )


def remove(path: str, vector: DeletionVector | None = None) -> RemoveFile:
    return RemoveFile(path=path, deletion_vector=vector)


def winner(**actions: Any) -> CommitActions:
    empty: dict[str, Any] = {
        "commit_info": CommitInfo({"operation": "MERGE", "txnId": "w"}), "commit_info_first": True, "protocol": None,
        "metadata": None, "adds": [], "removes": [], "transactions": [], "domains": [],
    }  # fmt: skip
    return CommitActions(5, **{**empty, **actions})


def ours(**staged: Any) -> Prepared:
    return Prepared("ours", "WRITE", **staged)


def settle(prepared: Prepared, won: CommitActions, on: Base | None = None, file_time_ms: int | None = None) -> Base:
    return rebase(prepared, on or base(), won, file_time_ms, "/t")


APPEND = ours(adds=(add("new"),))
DELETE = ours(removes=(remove("a"),), reads=Reads(files=frozenset({file_key("a", None)})))
OVERWRITE = ours(
    removes=(remove("a"),), adds=(add("new"),), reads=Reads(whole_table=True, files=frozenset({file_key("a", None)}))
)
ALTER = ours(metadata=metadata(x="y"))
UPGRADE = ours(metadata=metadata(**{k.replace(".", "__"): v for k, v in ICT.items()}), protocol=WITH_ICT)
STREAM = ours(
    adds=(add("new"),), transactions=(SetTransaction(app_id="app", version=1),), reads=Reads(app_ids=frozenset({"app"}))
)


@pytest.mark.parametrize("prepared", [APPEND, DELETE, OVERWRITE, ALTER, UPGRADE, STREAM])
def test_a_winner_that_did_nothing_to_rows_is_passed(prepared: Prepared) -> None:
    after = settle(prepared, winner())
    assert (after.version, after.protocol, after.metadata) == (5, PLAIN, metadata())


@pytest.mark.parametrize(
    ("prepared", "won", "error"),
    [
        # rows
        (APPEND, winner(adds=[add("b")]), None),
        (APPEND, winner(removes=[remove("a")]), None),
        (STREAM, winner(adds=[add("b")]), None),
        (ALTER, winner(adds=[add("b")], removes=[remove("a")]), None),
        (DELETE, winner(adds=[add("b")]), None),
        (DELETE, winner(removes=[remove("b")]), None),
        (DELETE, winner(removes=[remove("a")]), ConcurrentDeleteDeleteError),
        (DELETE, winner(removes=[remove("a", V1)]), ConcurrentDeleteDeleteError),  # whatever its deletion vector
        (OVERWRITE, winner(adds=[add("b")]), ConcurrentAppendError),
        (OVERWRITE, winner(removes=[remove("b")]), ConcurrentDeleteReadError),
        (OVERWRITE, winner(removes=[remove("a")]), ConcurrentDeleteDeleteError),
        (ours(reads=Reads(files=frozenset({"a"}))), winner(removes=[remove("a")]), ConcurrentDeleteReadError),
        (ours(reads=Reads(files=frozenset({"a"}))), winner(removes=[remove("b")]), None),
        (ours(reads=Reads(True)), winner(adds=[add("b")]), ConcurrentAppendError),
        (ours(reads=Reads(True)), winner(removes=[remove("b")]), ConcurrentDeleteReadError),
        # metadata
        (APPEND, winner(metadata=metadata()), None),  # a property set to the value it already has
        (APPEND, winner(metadata=metadata(delta__appendOnly="true")), MetadataChangedError),
        (APPEND, winner(metadata=metadata(x="y")), MetadataChangedError),
        (APPEND, winner(metadata=metadata(delta__enableDeletionVectors="true")), None),
        (ALTER, winner(metadata=metadata(x="y")), MetadataChangedError),
        (ALTER, winner(metadata=metadata(delta__enableDeletionVectors="true")), MetadataChangedError),
        # protocol
        (APPEND, winner(protocol=PLAIN), None),
        (APPEND, winner(protocol=WITH_ICT), None),
        (UPGRADE, winner(protocol=WITH_ICT), ProtocolChangedError),
        (ALTER, winner(protocol=WITH_ICT), None),
        # transactions and domains
        (STREAM, winner(transactions=[SetTransaction(app_id="app", version=9)]), ConcurrentTransactionError),
        (STREAM, winner(transactions=[SetTransaction(app_id="other", version=9)]), None),
        (ours(reads=Reads(app_ids=frozenset({"app"}))), winner(transactions=[SetTransaction(app_id="app", version=0)]),
         ConcurrentTransactionError),
        (ours(domains=(DomainMetadata(domain="d", configuration="", removed=False),)),
         winner(domains=[DomainMetadata(domain="d", configuration="x", removed=True)]), ConcurrentTransactionError),
        (ours(domains=(DomainMetadata(domain="d", configuration="", removed=False),)),
         winner(domains=[DomainMetadata(domain="e", configuration="x", removed=True)]), None),
    ],
)  # fmt: skip
def test_who_stands_in_whose_way(prepared: Prepared, won: CommitActions, error: type[DeltaLogError] | None) -> None:
    if error is None:
        after = settle(prepared, won)
        assert after.version == 5
        assert after.protocol == (won.protocol or PLAIN) and after.metadata == (won.metadata or metadata())
        return
    with pytest.raises(CommitConflictError) as caught:
        settle(prepared, won)
    assert type(caught.value) is error
    assert (caught.value.winning_version, caught.value.winning_operation, caught.value.retryable) == (5, "MERGE", True)
    text = str(caught.value)
    assert text.startswith("/t: version 5 (MERGE)") and "Nothing was committed" in text and "repeat" in text


@pytest.mark.parametrize("change", ["schema_string", "partition_columns", "name", "description", "id"])
def test_a_winner_that_changed_more_than_properties(change: str) -> None:
    import msgspec

    value: Any = ("id",) if change == "partition_columns" else metadata().schema_string.replace('"id"', '"key"')
    changed = msgspec.structs.replace(metadata(), **{change: value})
    with pytest.raises(MetadataChangedError):
        settle(APPEND, winner(metadata=changed))


def test_a_removed_property_is_a_conflict() -> None:
    with pytest.raises(MetadataChangedError, match="the property x from y to None"):
        settle(APPEND, winner(metadata=metadata()), base(meta=metadata(x="y")))


def test_a_winner_that_removes_a_feature() -> None:
    with pytest.raises(ProtocolChangedError, match="inCommitTimestamp"):
        settle(APPEND, winner(protocol=PLAIN), base(WITH_ICT))


@pytest.mark.parametrize("feature", ["checkConstraints", "generatedColumns", "clustering", "fooBar"])
def test_a_winner_that_adds_a_feature_which_changes_what_a_commit_must_hold(feature: str) -> None:
    changed = Protocol.from_json(protocol_action("appendOnly", "invariants", feature)["protocol"])
    with pytest.raises((ProtocolChangedError, UnsupportedFeatureError), match=feature):
        settle(APPEND, winner(protocol=changed))


def test_a_winner_that_makes_the_table_unwritable_for_us() -> None:
    changed = Protocol(min_reader_version=1, min_writer_version=9)
    with pytest.raises((ProtocolChangedError, UnsupportedFeatureError)):
        settle(APPEND, winner(protocol=changed))


def test_a_table_that_was_created_meanwhile() -> None:
    with pytest.raises(TableExistsError, match="Another writer created /t first"):
        rebase(ours(), Base(-1, None, None, None), winner(), None, "/t")


# ------------------------------------------------------------------------------------------- timestamps


ENABLED = metadata(**{k.replace(".", "__"): v for k, v in {**ICT, VERSION_KEY: "5", TIMESTAMP_KEY: "900"}.items()})
ACTIVE = metadata(**{k.replace(".", "__"): v for k, v in ICT.items()})


def stamped(ict: Any) -> CommitInfo:
    return CommitInfo({"inCommitTimestamp": ict, "operation": "MERGE"})


def test_the_winners_timestamp_is_the_next_to_exceed() -> None:
    on = base(WITH_ICT, ACTIVE, 500)
    assert settle(APPEND, winner(commit_info=stamped(700)), on).previous_ms == 700
    assert settle(ALTER, winner(commit_info=stamped(700)), on).previous_ms == 700


def test_timestamps_that_the_winner_enabled_are_adopted() -> None:
    after = settle(APPEND, winner(commit_info=stamped(900), protocol=WITH_ICT, metadata=ENABLED))
    assert (after.previous_ms, after.metadata, after.is_ict_active) == (900, ENABLED, True)


@pytest.mark.parametrize("info", [None, stamped(None), stamped("900"), stamped(-1)])
def test_a_winner_that_lacks_its_timestamp(info: CommitInfo | None) -> None:
    with pytest.raises(MissingInCommitTimestampError, match="/t: version 5"):
        settle(APPEND, winner(commit_info=info), base(WITH_ICT, ACTIVE, 500))


@pytest.mark.parametrize(
    ("before", "file_time", "after"), [(500, 700, 700), (500, 500, 501), (500, 3, 501), (None, 3, 3)]
)
def test_while_enabling_the_file_times_of_winners_count_as_readers_see_them(
    before: int | None, file_time: int, after: int
) -> None:
    assert settle(UPGRADE, winner(), base(previous_ms=before), file_time).previous_ms == after


def test_without_timestamps_there_is_nothing_to_exceed() -> None:
    assert settle(APPEND, winner()).previous_ms is None


def test_what_is_a_blind_append() -> None:
    assert APPEND.is_blind_append and STREAM.is_blind_append
    assert not any(p.is_blind_append for p in (DELETE, OVERWRITE, ALTER, UPGRADE, ours(reads=Reads(True))))
    assert not ours(adds=(add("x", V2),), reads=Reads(files=frozenset({"a"}))).is_blind_append


# ------------------------------------------------------------------------------- predicates and isolation levels


PARTITIONED = Metadata.from_json(
    {
        **metadata_action({})["metaData"],
        "partitionColumns": ["day"],
        "schemaString": StructType.from_arrow(pa.schema([("day", pa.string()), ("x", pa.int64())])).to_json(),
    }
)


def rows_of(day: str, low: int | None = None, high: int | None = None, data_change: bool = True) -> AddFile:
    stats = None if low is None else f'{{"numRecords":2,"minValues":{{"x":{low}}},"maxValues":{{"x":{high}}},'
    return AddFile(
        path=f"day={day}/f", partition_values={"day": day}, size=1, modification_time=1, data_change=data_change,
        stats=None if stats is None else stats + '"nullCount":{"x":0}}',
    )  # fmt: skip


def reading(where: str, level: str = "Serializable", **staged: Any) -> Prepared:
    predicate = bind(parse(where), PARTITIONED.schema)
    return ours(reads=Reads(predicates=(predicate,)), isolation_level=level, **staged)


def blind(*adds: AddFile, is_blind: bool = True) -> CommitActions:
    info = CommitInfo({"operation": "WRITE", "txnId": "w", "isBlindAppend": is_blind})
    return winner(commit_info=info, adds=list(adds))


@pytest.mark.parametrize(
    ("prepared", "won", "conflicts"),
    [
        (reading("day = 'a'"), blind(rows_of("b")), False),
        (reading("day = 'a'"), blind(rows_of("a")), True),
        # A file without statistics may contain any value of x.
        (reading("day = 'a' OR x > 5"), blind(rows_of("b")), True),
        (reading("x > 5"), blind(rows_of("b", 1, 5)), False),
        (reading("x > 5"), blind(rows_of("b", 1, 6)), True),
        (reading("day = 'a' AND x > 5"), blind(rows_of("a", 1, 5), rows_of("b", 6, 9)), False),
        (reading("x > 5"), blind(rows_of("b", 1, 6, data_change=False)), False),  # rows that were only moved
        (reading("x > 5", "WriteSerializable"), blind(rows_of("b", 1, 6)), False),
        (reading("x > 5", "WriteSerializable"), blind(rows_of("b", 1, 6), is_blind=False), True),
        (reading("x > 5", "WriteSerializable", metadata=PARTITIONED), blind(rows_of("b", 1, 6)), True),
        (reading("x > 5", "SnapshotIsolation"), blind(rows_of("b", 1, 6), is_blind=False), False),
        (ours(reads=Reads(True), isolation_level="SnapshotIsolation"), blind(rows_of("b"), is_blind=False), False),
        (ours(reads=Reads(True), isolation_level="WriteSerializable"), blind(rows_of("b")), False),
    ],
)
def test_a_read_is_as_wide_as_its_predicates(prepared: Prepared, won: CommitActions, conflicts: bool) -> None:
    if not conflicts:
        assert settle(prepared, won, base(meta=PARTITIONED)).version == 5
        return
    with pytest.raises(ConcurrentAppendError) as caught:
        settle(prepared, won, base(meta=PARTITIONED))
    conflict = caught.value
    assert (conflict.path, conflict.partition_values) == (won.adds[0].path, won.adds[0].partition_values)
    assert conflict.retryable and conflict.winning_version == 5


def test_rows_that_were_only_moved_are_still_as_they_were_read() -> None:
    moved = winner(removes=[RemoveFile(path="a", data_change=False)], adds=[add("c")])
    moved.adds[0] = msgspec.structs.replace(moved.adds[0], data_change=False)
    assert settle(ours(reads=Reads(True)), moved).version == 5
    with pytest.raises(ConcurrentDeleteDeleteError) as caught:
        settle(DELETE, moved)
    assert caught.value.path == "a"


def test_one_file_is_not_added_twice() -> None:
    with pytest.raises(ConcurrentAppendError, match="added new, as this one does"):
        settle(APPEND, winner(adds=[add("new")]))


REARRANGED = ours(
    adds=(msgspec.structs.replace(add("c"), data_change=False),), removes=(RemoveFile(path="a", data_change=False),)
)


def test_a_transaction_that_moves_rows_needs_snapshot_isolation_only() -> None:
    assert isolation_for(REARRANGED, "Serializable") == "SnapshotIsolation"
    assert isolation_for(DELETE, "WriteSerializable") == "WriteSerializable"
    assert isolation_for(ALTER, "Serializable") == "Serializable"
    with pytest.raises(CallError, match="only rearrange rows"):
        isolation_for(DELETE, "SnapshotIsolation")
    with pytest.raises(CallError, match="one of Serializable, WriteSerializable"):
        isolation_for(DELETE, "serializable")  # type: ignore[arg-type]


# ------------------------------------------------------------- column mapping, features, row ids assigned meanwhile


def test_names_given_to_columns_meanwhile_do_not_matter() -> None:
    before = metadata()
    named = [replace(c, metadata={"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": c.name})
             for c in before.schema]  # fmt: skip
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    after = msgspec.structs.replace(before, schema_string=StructType(tuple(named)).to_json(), configuration=properties)
    mapped = Protocol.from_json(protocol_action("columnMapping", "appendOnly", "invariants")["protocol"])
    mapped = msgspec.structs.replace(mapped, min_reader_version=3, reader_features=("columnMapping",))
    rebased = settle(APPEND, winner(protocol=mapped, metadata=after), base(meta=before))
    assert rebased.metadata == after and rebased.protocol == mapped


def test_dropping_a_feature_conflicts_with_every_winner() -> None:
    dropping = ours(protocol=PLAIN)
    with pytest.raises(ProtocolChangedError, match="may use inCommitTimestamp, which this transaction drops"):
        settle(dropping, winner(adds=[add("b")]), base(WITH_ICT))


def test_row_ids_are_given_out_anew_after_each_winner() -> None:
    tracking = Protocol.from_json(protocol_action("appendOnly", "rowTracking", "domainMetadata")["protocol"])
    counted = [replace_stats(add(name), rows) for name, rows in (("p", 3), ("q", 2))]
    known = msgspec.structs.replace(add("r"), base_row_id=1, default_row_commit_version=2)
    prepared = ours(adds=(*counted, known))
    start = replace(base(tracking), row_id_high_water_mark=9)
    rebased = settle(prepared, winner(domains=[row_tracking.domain_metadata(99)]), start)
    for on, first, version in ((start, 10, 5), (rebased, 100, 6)):
        made = build_attempt(prepared, on, 1).actions
        assert [a.base_row_id for a in made.adds] == [first, first + 3, 1]
        assert [a.default_row_commit_version for a in made.adds] == [version, version, 2]
        assert made.domains == [row_tracking.domain_metadata(first + 4)]
    assert settle(prepared, winner(adds=[add("b")]), start).row_id_high_water_mark == 9


def replace_stats(file: AddFile, rows: int) -> AddFile:
    return msgspec.structs.replace(file, stats=f'{{"numRecords":{rows}}}')
