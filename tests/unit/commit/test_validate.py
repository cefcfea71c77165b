from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltalog import CorruptTableError, SchemaMismatchError, UnsupportedFeatureError
from deltalog.commit.prepared import Prepared
from deltalog.commit.validate import check_prepared
from deltalog.engine import AddFile, Metadata, Protocol
from deltalog.errors import InvalidActionError
from deltalog.protocol.actions import DeletionVector, RemoveFile, SetTransaction
from tests.support.core import metadata_action, protocol_action

SCHEMA = pa.schema([("p", pa.int64()), ("v", pa.string())])
PLAIN = Protocol.from_json(protocol_action()["protocol"])
V1 = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 1)


def metadata(properties: dict[str, str] | None = None, *partition_by: str) -> Metadata:
    return Metadata.from_json(metadata_action(properties, SCHEMA, partition_by)["metaData"])


def add(path: str = "x", values: dict[str, str | None] | None = None, **more: Any) -> AddFile:
    base: dict[str, Any] = {"size": 1, "modification_time": 1, "data_change": True}
    return AddFile(path=path, partition_values=values or {}, **{**base, **more})


def check(meta: Metadata | None = None, protocol: Protocol = PLAIN, **staged: Any) -> None:
    check_prepared(Prepared("t", "WRITE", **staged), protocol, meta or metadata(), "/t")


def test_what_is_fine() -> None:
    check()
    check(adds=(add("a"), add("b")))
    check(metadata({}, "p"), adds=(add("p=1/a", {"p": "1"}), add("b", {"p": None}), add("c", {"p": ""})))
    check(adds=(add("a", deletion_vector=V1),), removes=(RemoveFile(path="a"),))
    check(transactions=(SetTransaction(app_id="a", version=1), SetTransaction(app_id="b", version=1)))


@pytest.mark.parametrize("path", ["", "../x", "/etc/passwd", "a/../../b", "s3://b/x", "..%2fx", "a//b"])
def test_files_outside_the_table(path: str) -> None:
    with pytest.raises(InvalidActionError, match="add") as caught:
        check(adds=(add(path),))
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("columns", "values"), [((), {"p": "1"}), (("p",), {}), (("p",), {"p": "1", "v": "x"}), (("p",), {"P": "1"})]
)
def test_partition_values_of_other_columns(columns: tuple[str, ...], values: dict[str, str | None]) -> None:
    with pytest.raises(InvalidActionError, match=r"add x: partition values for .*partitioned by"):
        check(metadata({}, *columns), adds=(add("x", values),))


def test_a_partition_value_of_another_type() -> None:
    with pytest.raises((InvalidActionError, CorruptTableError), match="'one' of column p is not a long"):
        check(metadata({}, "p"), adds=(add("x", {"p": "one"}),))


@pytest.mark.parametrize(
    "staged",
    [
        {"adds": (add("x"), add("x"))},
        {"removes": (RemoveFile(path="x"), RemoveFile(path="x"))},
        {"adds": (add("x"),), "removes": (RemoveFile(path="x"),)},
        {"adds": (add("x", deletion_vector=V1),), "removes": (RemoveFile(path="x", deletion_vector=V1),)},
    ],
)
def test_one_logical_file_staged_twice(staged: dict[str, Any]) -> None:
    with pytest.raises(InvalidActionError, match="/t: x is staged twice"):
        check(**staged)


def test_an_application_with_two_versions() -> None:
    twice = (SetTransaction(app_id="a", version=1), SetTransaction(app_id="a", version=2))
    with pytest.raises(InvalidActionError, match="two versions for an application id"):
        check(transactions=twice)


def test_an_append_only_table() -> None:
    only = metadata({"delta.appendOnly": "true"})
    check(only, adds=(add(),))
    check(only, removes=(RemoveFile(path="x", data_change=False),))
    with pytest.raises(InvalidActionError, match=r"/t is append-only .*x cannot be removed"):
        check(only, removes=(RemoveFile(path="x"),))


def test_a_table_that_cannot_be_written() -> None:
    foreign = Protocol.from_json(protocol_action("fooBar")["protocol"])
    with pytest.raises(UnsupportedFeatureError, match=r"/t needs writer features.*fooBar"):
        check(protocol=foreign)


def test_new_metadata_is_checked() -> None:
    twins = Metadata.from_json(
        metadata_action({}, pa.schema([("a", pa.int64()), ("A", pa.int64()), ("b", pa.int64())]))["metaData"]
    )
    with pytest.raises(SchemaMismatchError, match="up to case"):
        check(twins, metadata=twins)
    check(twins)  # existing tables that have such columns remain writable
