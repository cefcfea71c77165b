from __future__ import annotations

import base64
import copy
import json
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

from deltalog import (
    CallError,
    CommitStateUnknownError,
    DeltaLogError,
    DeltaTable,
    RetryPolicy,
    SchemaMismatchError,
    TableExistsError,
    Transaction,
    UnsupportedFeatureError,
)
from deltalog.engine import AddFile
from deltalog.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    InvalidActionError,
    InvalidDataFileError,
    InvalidPropertyError,
    Outcome,
    RowCountError,
    TransactionCommittedError,
)
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.paths import commit_path
from deltalog.schema import StructType
from deltalog.storage import LogStore
from deltalog.storage.fs import LocalStore
from deltalog.testing.stores import CountingStore, Fault, FaultyStore, nth
from tests.support.core import (
    SCHEMA,
    TIMESTAMP_KEY,
    VERSION_KEY,
    Clock,
    action,
    configuration,
    environment,
    ids,
    info,
    lines,
    memory,
    objects,
    overtaken,
    protocol_action,
    put_commit,
    rows,
    tree,
)


def put_parquet(store: LogStore, path: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.put(path, sink.getvalue().to_pybytes())


def add(path: str, **more: Any) -> AddFile:
    base: dict[str, Any] = {"partition_values": {}, "size": 1, "modification_time": 1, "data_change": True}
    return AddFile(path=path, **{**base, **more})


@pytest.fixture
def store() -> Any:
    return memory()


@pytest.fixture
def table(store: Any) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, environment=environment())


def test_what_is_staged_is_committed_together(store: Any, table: DeltaTable) -> None:
    put_parquet(store, "x.parquet", rows(1, 2))
    with table.transaction() as txn:
        assert txn.snapshot is not None and txn.snapshot.version == 0
        staged = txn.add_parquet_files([("x.parquet", {})])
        txn.set_transaction("app", 7)
        txn.set_properties({"owner": "me"})
        result = txn.commit("MY OP", {"a": [1], "b": "text"}, {"n": 2}, {"who": "me"})
    assert [type(each) for each in staged] == [AddFile]
    keys = [next(iter(line)) for line in lines(store, 1)]
    assert keys == ["commitInfo", "metaData", "txn", "add"]
    body = info(store, 1)
    assert (body["operation"], body["operationParameters"], body["operationMetrics"], body["userMetadata"]) == (
        "MY OP", {"a": "[1]", "b": "text"}, {"n": "2"}, '{"who": "me"}',
    )  # fmt: skip
    assert result.txn_id == txn.txn_id and result.version == table.version == 1
    assert ids(table) == [1, 2]


def test_leaving_without_commit_leaves_nothing(tmp_path: Any) -> None:
    table = DeltaTable.create(tmp_path / "t", SCHEMA, environment=environment())
    before = tree(tmp_path)
    with table.transaction() as txn:
        txn.write(rows(1).to_reader())
        txn.set_transaction("app", 1)
    assert tree(tmp_path) == before
    with pytest.raises(RuntimeError, match="mine"), table.transaction() as txn:
        txn.write(rows(1).to_reader())
        raise RuntimeError("mine")
    assert tree(tmp_path) == before


def test_files_that_others_wrote_are_never_removed(store: Any, table: DeltaTable) -> None:
    put_parquet(store, "x.parquet", rows(1))
    with table.transaction() as txn:
        txn.add_parquet_files([("x.parquet", {})])
    assert store.head("x.parquet") is not None


def test_files_without_the_rows_that_were_written_are_refused(store: Any, table: DeltaTable) -> None:
    put_parquet(store, "x.parquet", rows(1, 2))
    put_parquet(store, "y.parquet", rows(3))
    for names, written in ((["x.parquet"], 3), (["x.parquet", "y.parquet"], 2), ([], 1)):
        with table.transaction() as txn:
            with pytest.raises(RowCountError, match=f"{written} rows were written") as error:
                txn.add_parquet_files([(name, {}) for name in names], num_rows=written)
            assert (error.value.written, error.value.found) == (written, 2 * bool(names) + len(names[1:]))
            assert txn.commit().version == table.version  # the transaction did not stage these files
    with table.transaction() as txn:
        txn.add_parquet_files([("x.parquet", {}), ("y.parquet", {})], num_rows=3)
        txn.add_parquet_files([], num_rows=0)
        txn.commit()
    assert ids(table) == [1, 2, 3]


def test_a_caller_examines_footers(store: Any, table: DeltaTable) -> None:
    put_parquet(store, "x.parquet", rows(1, 2))
    seen = {}

    def examine(path: str, footer: pq.FileMetaData) -> None:
        seen[path] = footer.num_rows
        if len(seen) > 1:
            raise KeyError(path)

    with table.transaction() as txn:
        txn.add_parquet_files([("x.parquet", {})], examine=examine)
        put_parquet(store, "y.parquet", rows(3))
        with pytest.raises(KeyError):
            txn.add_parquet_files([("y.parquet", {})], examine=examine)
        txn.commit()
    assert seen == {"x.parquet": 2, "y.parquet": 1} and ids(table) == [1, 2]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_files_are_refused(store: Any, table: DeltaTable, plaintext_footer: bool) -> None:
    """Readers of the table would not have the decryption keys."""

    class Keys(encryption.KmsClient):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return base64.b64encode(key_bytes)

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return base64.b64decode(wrapped_key)

    factory = encryption.CryptoFactory(lambda configuration: Keys())
    how = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["id"]}, plaintext_footer=plaintext_footer
    )
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), how)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA, encryption_properties=properties) as writer:
        writer.write_table(rows(1, 2).cast(SCHEMA))
    store.put("x.parquet", sink.getvalue().to_pybytes())
    with table.transaction() as txn, pytest.raises(InvalidDataFileError, match="encrypted"):
        txn.add_parquet_files([("x.parquet", {})])


def test_a_transaction_ends_once(table: DeltaTable) -> None:
    txn = table.transaction()
    txn.set_transaction("app", 1)
    txn.commit()
    for end in (txn.commit, txn.abort):
        with pytest.raises(TransactionCommittedError, match="is committed, as version 1") as caught:
            end()
        assert (caught.value.outcome, caught.value.transaction_id) == (Outcome.COMMITTED, txn.txn_id)
    for call in (
        lambda: txn.add(add("x")),
        lambda: txn.set_properties({}),
        lambda: txn.unset_properties([]),
        lambda: txn.set_transaction("b", 1),
        lambda: txn.remove([]),
        txn.remove_all_files,
        lambda: txn.set_schema(StructType()),
        lambda: txn.write(rows(1).to_reader()),
        lambda: txn.add_parquet_files([]),
        txn.read_whole_table,
    ):
        with pytest.raises(CallError, match="has ended"):
            call()


@pytest.mark.parametrize("fault", [Fault.LOST_ACK, Fault.UNKNOWN_NOT_WRITTEN])
def test_a_commit_whose_outcome_is_unknown_stays_so(store: Any, table: DeltaTable, fault: Fault) -> None:
    faulty = FaultyStore(store, nth(1, fault, method="put_if_absent", path="*.json"))
    unsettled = environment(retry=RetryPolicy(settle_attempts=0))
    txn = DeltaTable.open(faulty, environment=unsettled).transaction()
    txn.write(rows(1).to_reader())
    with pytest.raises(CommitStateUnknownError) as first:
        txn.commit()
    for end in (txn.commit, txn.abort):
        with pytest.raises(CommitStateUnknownError) as again:
            end()
        assert again.value is first.value
    assert (first.value.resolve() is None) == (fault is Fault.UNKNOWN_NOT_WRITTEN)
    assert [path for path in objects(store) if path.endswith(".parquet")] != []


def test_a_commit_that_failed_has_ended_too(store: Any, table: DeltaTable) -> None:
    mine = overtaken(store, lambda: DeltaTable.open(store, environment=environment()).append(rows(1)))
    txn = DeltaTable.open(mine, environment=environment()).transaction()
    txn.read_whole_table()
    with pytest.raises(ConcurrentAppendError):
        txn.commit()
    with pytest.raises(CallError):
        txn.commit()


# ---------------------------------------------------------------------------- files of a transaction


def test_the_statistics_of_files_that_lie_there(tmp_path: Any) -> None:
    store = LocalStore(tmp_path)
    schema = pa.schema([("p", pa.string()), ("a", pa.int64())])
    table = DeltaTable.create(store, schema, partition_by=["p"], environment=environment())
    put_parquet(store, "p=a b/x%.parquet", pa.table({"a": [3, None, 1]}))
    with table.transaction() as txn:
        (staged,) = txn.add_parquet_files([("p=a b/x%.parquet", {"p": "a b"})])
        txn.commit()
    assert staged.path == "p=a%20b/x%25.parquet"
    assert staged.size == (tmp_path / "p=a b" / "x%.parquet").stat().st_size
    assert json.loads(staged.stats or "") == {
        "numRecords": 3, "minValues": {"a": 1}, "maxValues": {"a": 3}, "nullCount": {"a": 1},
    }  # fmt: skip
    assert table.snapshot().scan().to_arrow()["p"].to_pylist() == ["a b"] * 3


@pytest.mark.parametrize("data", [None, b"", b"no parquet"])
def test_files_that_are_not_there_or_no_parquet(data: bytes | None, store: Any, table: DeltaTable) -> None:
    if data is not None:
        store.put("x.parquet", data)
    before = objects(store)
    with pytest.raises(InvalidDataFileError, match=r"x\.parquet cannot be added"), table.transaction() as txn:
        txn.add_parquet_files([("x.parquet", {})])
    assert objects(store) == before


def test_names_of_files_that_lie_there_are_found_again(tmp_path: Any) -> None:
    store = LocalStore(tmp_path)
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    names = [
        "a b.parquet",
        "a%20b.parquet",
        "é.parquet",
        "a+b&c.parquet",
        "x#y?.parquet",
        "12:30.parquet",
        "p:1.parquet",
    ]
    for name in names:
        put_parquet(store, name, rows(1))
    with table.transaction() as txn:
        txn.add_parquet_files([(name, {}) for name in names])
        txn.commit()
    assert len(ids(table)) == len(names)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": -1},
        {"size": "7"},
        {"modification_time": None},
        {"modification_time": 2**63},
        {"data_change": 1},
        {"stats": 7},
        {"tags": {"a": 1}},
        {"deletion_vector": DeletionVector("x", "y", 1, 1)},  # type: ignore[arg-type]
        {"base_row_id": "1"},
        {"path": "\ud800"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_action_that_no_reader_could_read_is_not_written(
    wrong: dict[str, Any], store: Any, table: DeltaTable
) -> None:
    """Constructors do not check types, so the commit must check them; otherwise the table would become unreadable."""
    with pytest.raises(DeltaLogError), table.transaction() as txn:
        txn.add(add(**{"path": "x", **wrong}))
        txn.commit()
    assert store.head(commit_path(1)) is None
    assert DeltaTable.open(store).snapshot().num_files == 0


def test_the_durability_of_files_that_lie_there_is_seen_to() -> None:
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    put_parquet(store, "x.parquet", rows(1))
    put_parquet(store, "y.parquet", rows(1))
    with store.counted() as calls, table.transaction() as txn:
        txn.add_parquet_files([("x.parquet", {}), ("y.parquet", {})])
    assert calls.of("sync") == 1
    assert calls.of("head", "*.parquet") == calls.of("open_input") == 2


# --------------------------------------------------------------------------------------------- removes


def test_removing_by_path(store: Any, table: DeltaTable) -> None:
    for i in (1, 2, 3):
        table.append(rows(i))
    paths = {f["path"]: f for f in table.snapshot().files().to_pylist()}
    one = next(path for path in paths if json.loads(paths[path]["stats"])["minValues"]["id"] == 2)
    with table.transaction() as txn:
        assert txn.remove([one, one]) == 1
        txn.commit("DELETE")
    removed = action(store, 4, "remove")
    assert removed is not None
    assert (removed["path"], removed["size"], removed["dataChange"]) == (one, paths[one]["size"], True)
    assert removed["deletionTimestamp"] == environment().clock_ms() and removed["extendedFileMetadata"] is True
    assert ids(table) == [1, 3]
    assert info(store, 4)["isBlindAppend"] is False


def test_removing_what_is_not_live(table: DeltaTable) -> None:
    with table.transaction() as txn, pytest.raises(InvalidActionError, match="has no live file 'nope'"):
        txn.remove(["nope"])


def test_removing_everything(table: DeltaTable) -> None:
    table.append(rows(1))
    table.append(rows(2))
    with table.transaction() as txn:
        assert txn.remove_all_files() == 2
        txn.commit()
    assert ids(table) == [] and table.snapshot().num_files == 0


def rivals(store: Any, *acts: Any) -> DeltaTable:
    """Our handle on the table; right before our first commit another writer performs the first of ``acts``, before our
    second commit the second, and so on."""

    def turn(act: Any) -> Any:
        return lambda: act(DeltaTable.open(store, environment=environment()))

    return DeltaTable.open(overtaken(store, *map(turn, acts)), environment=environment())


def remove_one(table: DeltaTable, which: int) -> Any:
    with table.transaction() as txn:
        assert txn.snapshot is not None
        files = {json.loads(f["stats"])["minValues"]["id"]: f["path"] for f in txn.snapshot.files().to_pylist()}
        txn.remove([files[which]])
        return txn.commit("DELETE")


def test_two_that_remove_the_same_file(store: Any, table: DeltaTable) -> None:
    table.append(rows(1))
    table.append(rows(2))
    with pytest.raises(ConcurrentDeleteDeleteError):
        remove_one(rivals(store, lambda t: remove_one(t, 1)), 1)
    assert ids(DeltaTable.open(store)) == [2]


def test_two_that_remove_other_files(store: Any, table: DeltaTable) -> None:
    table.append(rows(1))
    table.append(rows(2))
    assert remove_one(rivals(store, lambda t: remove_one(t, 1)), 2).version == 4
    assert ids(DeltaTable.open(store)) == []


def test_removing_everything_conflicts_with_any_change_of_rows(store: Any, table: DeltaTable) -> None:
    table.append(rows(1))
    for act, error in (
        (lambda t: t.append(rows(2)), ConcurrentAppendError),
        (lambda t: remove_one(t, 1), ConcurrentDeleteDeleteError),
    ):
        with pytest.raises(error), rivals(store, act).transaction() as txn:
            txn.remove_all_files()
            txn.commit()
    with rivals(store, lambda t: t.append(rows(5))).transaction() as txn:
        txn.set_transaction("app", 1)
        txn.commit()


def test_a_declared_read_conflicts_with_removes(store: Any, table: DeltaTable) -> None:
    table.append(rows(1))
    with pytest.raises(ConcurrentDeleteReadError), rivals(store, lambda t: remove_one(t, 1)).transaction() as txn:
        txn.read_whole_table()
        txn.add(add("x"))
        txn.commit()


def test_our_own_files_are_taken_away_after_a_conflict(tmp_path: Any) -> None:
    store = LocalStore(tmp_path)
    DeltaTable.create(store, SCHEMA, environment=environment())
    mine = rivals(store, lambda t: t.append(rows(1)))
    with pytest.raises(ConcurrentAppendError):
        mine.overwrite(rows(2))
    live = {f["path"] for f in DeltaTable.open(store).snapshot().files().to_pylist()}
    assert {name for name in tree(tmp_path) if name.endswith(".parquet")} == live


# ------------------------------------------------------------------------------------- metadata and properties


def test_a_new_schema(store: Any, table: DeltaTable) -> None:
    wider = StructType.from_arrow(SCHEMA.append(pa.field("t", pa.timestamp("us"))))
    with table.transaction() as txn:
        txn.set_schema(wider)
        assert txn.schema == wider
        txn.commit("ALTER")
    assert table.snapshot().schema == wider
    protocol = action(store, 1, "protocol")
    assert protocol is not None and protocol["readerFeatures"] == ["timestampNtz"]


def test_schemas_that_are_refused_at_once(table: DeltaTable) -> None:
    with table.transaction() as txn:
        with pytest.raises(SchemaMismatchError):
            txn.set_schema(StructType.from_arrow(pa.schema([("a b", pa.int64())])))
        with pytest.raises(SchemaMismatchError):
            txn.set_schema(StructType.from_arrow(SCHEMA), ["nope"])


def test_properties_are_checked_at_once(table: DeltaTable) -> None:
    with table.transaction() as txn:
        for wrong in (
            {"delta.appendOnly": "yes"},
            {"delta.appendOnly": True},
            {VERSION_KEY: "3"},
            {TIMESTAMP_KEY: "3", VERSION_KEY: "3"},
            {"delta.enableInCommitTimestamp": "true"},  # a letter is missing
            {"delta.columnMapping.mode": "names"},
        ):
            with pytest.raises(InvalidPropertyError):
                txn.set_properties(wrong)  # type: ignore[arg-type]
        for key in (VERSION_KEY, TIMESTAMP_KEY):
            with pytest.raises(InvalidPropertyError):
                txn.unset_properties([key])


def test_a_feature_that_is_not_known_is_refused(store: Any, table: DeltaTable) -> None:
    with pytest.raises((UnsupportedFeatureError, InvalidPropertyError), match="fooBar"):
        table.set_properties({"delta.feature.fooBar": "supported"})
    with pytest.raises((UnsupportedFeatureError, InvalidPropertyError), match="fooBar"):
        DeltaTable.create(memory(), SCHEMA, properties={"delta.feature.fooBar": "supported"}, environment=environment())
    assert store.head(commit_path(1)) is None


def test_a_feature_by_its_name(store: Any, table: DeltaTable) -> None:
    table.set_properties({"delta.feature.deletionVectors": "supported"})
    protocol = action(store, 1, "protocol")
    assert protocol is not None and protocol["readerFeatures"] == ["deletionVectors"]
    assert "delta.feature.deletionVectors" not in (configuration(store, 1) or {})


def test_setting_what_is_set_writes_no_metadata(store: Any, table: DeltaTable) -> None:
    table.set_properties({"owner": "me"})
    table.set_properties({"owner": "me"})
    assert action(store, 2, "metaData") is None


def test_unsetting_what_is_not_set(store: Any, table: DeltaTable) -> None:
    table.unset_properties(["nope"])
    assert action(store, 1, "metaData") is None


# -------------------------------------------------------------------------------------- application transactions


@pytest.mark.parametrize(("app", "version"), [("", 1), ("a", -1), ("a", 2**63)])
def test_progress_that_is_none(app: str, version: int, table: DeltaTable) -> None:
    with table.transaction() as txn, pytest.raises(CallError, match="application id"):
        txn.set_transaction(app, version)


def test_two_that_record_the_same_application(store: Any, table: DeltaTable) -> None:
    mine = rivals(store, lambda t: t.append(rows(1), txn=("app", 1)))
    with pytest.raises(ConcurrentTransactionError, match="'app'"):
        mine.append(rows(1), txn=("app", 1))
    again = mine.append(rows(1), txn=("app", 1))
    assert again.skipped and again.version == 1
    assert ids(DeltaTable.open(store)) == [1]


# --------------------------------------------------------------------------------------------- new tables


def test_creating_with_files(store: Any) -> None:
    with DeltaTable.create_transaction(store, SCHEMA, partition_by=["name"], environment=environment()) as txn:
        assert txn.snapshot is None
        put_parquet(store, "x.parquet", pa.table({"id": [1]}))
        txn.add_parquet_files([("x.parquet", {"name": "n"})])
        for call in (lambda: txn.remove(["x"]), txn.remove_all_files, txn.read_whole_table):
            with pytest.raises(CallError, match="creates the table"):
                call()
        result = txn.commit("CREATE TABLE AS SELECT")
    assert result.version == 0 and "readVersion" not in info(store, 0)
    assert DeltaTable.open(store).snapshot().scan().to_arrow().to_pylist() == [{"id": 1, "name": "n"}]


def test_two_that_create(store: Any) -> None:
    txn = DeltaTable.create_transaction(store, SCHEMA, environment=environment())
    txn.write(rows(1).to_reader())
    DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(7))
    with pytest.raises(TableExistsError, match="Another writer created"):
        txn.commit()
    assert ids(DeltaTable.open(store)) == [7]
    assert len([p for p in objects(store) if p.endswith(".parquet")]) == 1
    with pytest.raises(TableExistsError, match=r"DeltaTable\.open"):
        DeltaTable.create_transaction(store, SCHEMA, environment=environment())


def test_a_lost_answer_while_creating() -> None:
    inner = memory()
    store = FaultyStore(inner, nth(1, Fault.LOST_ACK, method="put_if_absent"))
    table = DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))
    assert table.version == 0 and ids(DeltaTable.open(inner)) == [1]


def test_a_table_whose_features_we_lack_is_not_written() -> None:
    store = memory()
    DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))
    put_commit(store, 1, {"commitInfo": {}}, protocol_action("appendOnly", "fooBar"))
    table = DeltaTable.open(store, environment=environment())
    before = objects(store)
    for act in (
        lambda: table.append(rows(2)),
        lambda: table.overwrite(rows(2)),
        lambda: table.set_properties({"a": "b"}),
        table.enable_in_commit_timestamps,
        table.checkpoint,
    ):
        with pytest.raises(UnsupportedFeatureError, match="fooBar"):
            act()
        assert objects(store) == before
    assert ids(table) == [1]


def test_the_handle_follows_its_own_commits(table: DeltaTable) -> None:
    clock = Clock()
    assert table.version == 0
    with table.transaction() as txn:
        txn.set_transaction("app", 1)
        txn.commit()
    assert table.version == 1 and clock.readings == 0
    assert isinstance(txn, Transaction) and txn.committed is not None and txn.committed.version == 1


@pytest.mark.parametrize("opened", [False, True])
def test_what_a_snapshot_hands_out_cannot_change_the_table(opened: bool, store: Any, table: DeltaTable) -> None:
    table.set_properties({"owner": "me"})
    metadata = (DeltaTable.open(store) if opened else table).snapshot().metadata
    for change in (
        lambda found: found.__setitem__(VERSION_KEY, "1"),
        lambda found: found.__delitem__("owner"),
        lambda found: found.update({VERSION_KEY: "1"}),
        lambda found: found.__ior__({VERSION_KEY: "1"}),
        lambda found: found.pop("owner"),
        lambda found: found.setdefault(VERSION_KEY, "1"),
        lambda found: found.clear(),
        lambda found: found.popitem(),
    ):
        with pytest.raises(TypeError, match="cannot be changed in place"):
            change(metadata.configuration)
    assert metadata.configuration == {"owner": "me"}
    for copied in (copy.deepcopy(metadata), pickle.loads(pickle.dumps(metadata))):
        assert copied == metadata and json.dumps(copied.configuration) == '{"owner": "me"}'
