from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog import CorruptTableError
from deltalog.engine import AddFile, Metadata, Protocol
from deltalog.errors import InvalidCommitError
from deltalog.protocol.actions import Action, CommitInfo, DeletionVector, DomainMetadata, RemoveFile, SetTransaction
from deltalog.schema import StructType

LONGS = st.integers(-(2**63), 2**63 - 1)
SIZES = st.integers(0, 2**63 - 1)
INTS = st.integers(0, 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
VECTOR = st.fixed_dictionaries(
    {
        "storageType": st.sampled_from("uip"),
        "pathOrInlineDv": TEXT,
        "sizeInBytes": INTS,
        "cardinality": SIZES,
    },
    optional={"offset": INTS, "maxRowIndex": LONGS},
)
STRINGS = st.dictionaries(TEXT, TEXT | st.none(), max_size=2)
FILE: dict[str, st.SearchStrategy[Any]] = {
    "tags": STRINGS,
    "deletionVector": VECTOR,
    "baseRowId": LONGS,
    "defaultRowCommitVersion": LONGS,
}
BODIES: dict[type[Action], st.SearchStrategy[dict[str, Any]]] = {
    AddFile: st.fixed_dictionaries(
        {
            "path": TEXT, "partitionValues": STRINGS, "size": SIZES, "modificationTime": LONGS,
            "dataChange": st.booleans(),
        },
        optional={**FILE, "stats": TEXT, "clusteringProvider": TEXT},
    ),
    RemoveFile: st.fixed_dictionaries(
        {"path": TEXT, "dataChange": st.booleans()},
        optional={
            **FILE, "deletionTimestamp": LONGS, "extendedFileMetadata": st.booleans(), "partitionValues": STRINGS,
            "size": LONGS, "stats": TEXT,
        },
    ),
    Metadata: st.fixed_dictionaries(
        {
            "id": TEXT,
            "format": st.just({"provider": "parquet", "options": {}}),
            "schemaString": TEXT.filter(bool),
            "partitionColumns": st.lists(TEXT, max_size=2),
            "configuration": st.dictionaries(TEXT, TEXT, max_size=2),
        },
        optional={"name": TEXT, "description": TEXT, "createdTime": LONGS},
    ),
    Protocol: st.fixed_dictionaries(
        {"minReaderVersion": st.integers(0, 9), "minWriterVersion": st.integers(0, 9)},
        optional={"readerFeatures": st.lists(TEXT, max_size=2), "writerFeatures": st.lists(TEXT, max_size=2)},
    ),
    SetTransaction: st.fixed_dictionaries({"appId": TEXT, "version": LONGS}, optional={"lastUpdated": LONGS}),
    DomainMetadata: st.fixed_dictionaries({"domain": TEXT, "configuration": TEXT, "removed": st.booleans()}),
}  # fmt: skip


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.KEY)
@given(data=st.data())
def test_bodies_survive_with_fields_of_the_future(kind: type[Action], data: st.DataObject) -> None:
    body = data.draw(BODIES[kind])
    future = data.draw(st.dictionaries(TEXT.map(lambda name: f"future{name}"), JSON, max_size=2))
    parsed = kind.from_json({**body, **future})
    assert json.loads(json.dumps(parsed.to_json())) == {**body, **future}
    assert parsed.extra == future
    assert kind.from_json(parsed.to_json()) == parsed


def test_a_field_named_like_an_internal_one_is_kept_apart() -> None:
    body = {"appId": "a", "version": 1, "extra": {"x": 1}}
    assert SetTransaction.from_json(body).to_json() == body


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        (AddFile, {}, "path"),
        (AddFile, {"path": 1}, "path"),
        (
            AddFile,
            {"path": "x", "partitionValues": {}, "size": -1, "modificationTime": 1, "dataChange": True},
            "size",
        ),
        (AddFile, [], "object"),
        (AddFile, None, "object"),
        (Protocol, {"minReaderVersion": "1", "minWriterVersion": 2}, "minReaderVersion"),
        (Protocol, {"minReaderVersion": 1}, "minWriterVersion"),
        (Metadata, {"format": {}}, "id"),
        (Metadata, {"id": "x", "configuration": []}, "configuration"),
        (SetTransaction, {"appId": "x", "version": 2**63}, "version"),
        (SetTransaction, {"appId": "x", "version": 1.5}, "version"),
        (DomainMetadata, {"domain": "x", "configuration": "y"}, "removed"),
        (RemoveFile, {"dataChange": True}, "path"),
    ],
)
def test_bodies_that_are_wrong_name_the_field(kind: type[Action], body: Any, field: str) -> None:
    with pytest.raises(InvalidCommitError, match=f"A {kind.KEY} action is not valid.*{field}"):
        kind.from_json(body)


def test_removed_and_data_change_are_always_written() -> None:
    assert DomainMetadata(domain="d", configuration="", removed=False).to_json()["removed"] is False
    assert RemoveFile(path="x").to_json() == {"path": "x", "dataChange": True}
    add = AddFile(path="x", partition_values={}, size=0, modification_time=0, data_change=False)
    assert add.to_json() == {
        "path": "x", "partitionValues": {}, "size": 0, "modificationTime": 0, "dataChange": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("offset", "unique"),
    [(None, "uab^-aqEH.-t@S}K{vb[*k^"), (0, "uab^-aqEH.-t@S}K{vb[*k^@0"), (4, "uab^-aqEH.-t@S}K{vb[*k^@4")],
)
def test_the_identity_of_deletion_vectors(offset: int | None, unique: str) -> None:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, offset)
    assert vector.unique_id == unique


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        (1_790_000_000_000, 1_790_000_000_000),
        (2**63 - 1, 2**63 - 1),
        (2**63, None),
        (-1, None),
        (1.0, None),
        ("1790000000000", None),
        (True, None),
        (None, None),
    ],
)
def test_in_commit_timestamps_are_whole_numbers(value: Any, milliseconds: int | None) -> None:
    assert CommitInfo({"inCommitTimestamp": value}).in_commit_timestamp_ms == milliseconds
    assert CommitInfo({}).in_commit_timestamp_ms is None


def test_commit_info_is_free_form() -> None:
    info = CommitInfo({"txnId": 7, "operation": ["x"]})
    assert info.txn_id is None and info.operation is None
    assert CommitInfo({"txnId": "t", "operation": "WRITE"}).txn_id == "t"


@pytest.mark.parametrize("key", ["format", "partitionColumns", "configuration"])
def test_metadata_that_leaves_out_what_is_empty_is_read_and_written_whole(key: str) -> None:
    empty = {"id": "x", "format": {}, "partitionColumns": [], "configuration": {}}
    whole = Metadata.from_json(empty).to_json()
    for body in ({**empty, key: None}, {k: v for k, v in empty.items() if k != key}):
        assert Metadata.from_json(body).to_json() == whole
    assert key in whole


def test_metadata_without_a_schema_has_no_columns() -> None:
    body = {"id": "x", "format": {}, "partitionColumns": [], "configuration": {}}
    assert Metadata.from_json(body).schema == StructType()
    with pytest.raises(CorruptTableError):
        _ = Metadata.from_json({**body, "schemaString": "?"}).schema
