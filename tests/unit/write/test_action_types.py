"""Values of a wrong type never reach the log. The call is refused, and the table remains unchanged and readable."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from deltalog import CallError, DeltaLogError, DeltaTable, SchemaMismatchError
from deltalog.engine import AddFile, Protocol
from deltalog.errors import InvalidActionError
from deltalog.protocol.actions import AddCDCFile, DomainMetadata
from deltalog.schema import ArrayType, PrimitiveType, StructField, StructType
from tests.support.core import environment, tree

LONG = PrimitiveType("long")
SURROGATE = "a\ud800b"
NAN = math.nan


class Text(str):
    """A library's subclass of str."""


class Choice(str, enum.Enum):
    ONE = "one"


class Whole(int):
    """A library's subclass of int."""


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable.create(
        tmp_path / "t", pa.schema([("i", pa.int64())]), data=pa.table({"i": [1]}), environment=environment()
    )


def _add(**changed: Any) -> AddFile:
    fields = {"path": "a.parquet", "partition_values": {}, "size": 1, "modification_time": 1, "data_change": True}
    return AddFile(**{**fields, **changed})


def _staged(table: DeltaTable, stage: Callable[[Any], object], **signed: Any) -> None:
    with table.transaction() as transaction:
        stage(transaction)
        transaction.commit(**signed)


def _metadata(table: DeltaTable, **changed: Any) -> Any:
    return msgspec.structs.replace(table.snapshot().metadata, **changed)


POISON: dict[str, Callable[[DeltaTable], object]] = {
    "name": lambda t: t.set_table(name=5),  # type: ignore[arg-type]
    "name that is a list": lambda t: t.set_table(name=["x"]),  # type: ignore[arg-type]
    "name with half a character": lambda t: t.set_table(name=SURROGATE),
    "description": lambda t: t.set_table(description={"a": 1}),  # type: ignore[arg-type]
    "application version": lambda t: t.append(pa.table({"i": [2]}), txn=("job", True)),
    "application version of a deletion": lambda t: t.delete("i = 1", txn=("job", False)),
    "application": lambda t: t.append(pa.table({"i": [2]}), txn=(SURROGATE, 1)),
    "comment": lambda t: t.set_column("i", comment=5),  # type: ignore[arg-type]
    "comment that is no number": lambda t: t.set_column("i", comment=NAN),  # type: ignore[arg-type]
    "user metadata": lambda t: t.append(pa.table({"i": [2]}), user_metadata=SURROGATE),
    "user metadata with no number": lambda t: t.append(pa.table({"i": [2]}), user_metadata={"a": NAN}),
    "user metadata with a date": lambda t: t.append(
        pa.table({"i": [2]}), user_metadata={"a": datetime.date(2026, 1, 1)}
    ),
    "user metadata that is a list": lambda t: t.append(pa.table({"i": [2]}), user_metadata=[1]),  # type: ignore[arg-type]
    "domain": lambda t: t.set_domain_metadata("d", {"a": object()}),
    "domain with no number": lambda t: t.set_domain_metadata("d", {"a": NAN}),
    "domain with half a character": lambda t: t.set_domain_metadata("d", SURROGATE),
    "property": lambda t: t.set_properties({"a": SURROGATE}),
    "operation": lambda t: _staged(t, lambda x: None, operation=5),
    "parameters": lambda t: _staged(t, lambda x: None, operation="X", parameters={5: 1}),
    "parameter": lambda t: _staged(t, lambda x: None, operation="X", parameters={"a": NAN}),
    "parameter that is no JSON": lambda t: _staged(t, lambda x: None, operation="X", parameters={"a": object()}),
    "metrics": lambda t: _staged(t, lambda x: None, operation="X", metrics={5: 1}),
    "metrics that are none": lambda t: _staged(t, lambda x: None, operation="X", metrics=[1]),
    "annotation no number": lambda t: _staged(t, lambda x: x.set_commit_annotations({"a": NAN})),
    "protocol": lambda t: _staged(
        t, lambda x: x.metadata_changes.set_protocol(Protocol(min_reader_version=True, min_writer_version="2"))  # type: ignore[arg-type]
    ),
    "protocol that is none": lambda t: _staged(t, lambda x: x.metadata_changes.set_protocol({"minReaderVersion": 1})),
    "metadata": lambda t: _staged(
        t, lambda x: x.metadata_changes.set_state(x.protocol, _metadata(t, created_time=2**63))
    ),
    "metadata's columns": lambda t: _staged(
        t, lambda x: x.metadata_changes.set_state(x.protocol, _metadata(t, partition_columns="i"))
    ),
    "metadata's schema": lambda t: _staged(
        t, lambda x: x.metadata_changes.set_state(x.protocol, _metadata(t, schema_string='{"type":"struct"}'))
    ),
    "metadata's id": lambda t: _staged(t, lambda x: x.metadata_changes.set_state(x.protocol, _metadata(t, id=b"x"))),
    "a domain's action": lambda t: _staged(
        t, lambda x: x.metadata_changes.stage_domain(DomainMetadata(domain="d", configuration=5, removed=False))  # type: ignore[arg-type]
    ),
    "a change file": lambda t: _staged(
        t, lambda x: x.add_cdc(AddCDCFile(path=5, partition_values={}, size=1, data_change=False))  # type: ignore[arg-type]
    ),
    "an add action's size": lambda t: _staged(t, lambda x: x.add(_add(size=1.5))),
    "an add action's path": lambda t: _staged(t, lambda x: x.add(_add(path=b"a.parquet"))),
    "an add action's tags": lambda t: _staged(t, lambda x: x.add(_add(tags={"a": SURROGATE}))),
    "no add action": lambda t: _staged(t, lambda x: x.add("a.parquet")),
    "removed files": lambda t: _staged(t, lambda x: x.remove_files(pa.table({"path": ["a"]}))),
    "removed files of other types": lambda t: _staged(
        t,
        lambda x: x.remove_files(
            t.snapshot().files().set_column(2, "size", pa.array([1.5])),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", POISON)
def test_a_wrong_type_is_refused_and_the_table_opens(case: str, table: DeltaTable, tmp_path: Path) -> None:
    before = tree(tmp_path)
    with pytest.raises(CallError):
        POISON[case](table)
    assert tree(tmp_path) == before
    again = DeltaTable.open(table.url)
    assert again.version == 0 and again.snapshot().scan().to_arrow()["i"].to_pylist() == [1]
    assert table.append(pa.table({"i": [3]})).version == 1


SCHEMAS: dict[str, Any] = {
    "comment": StructField("i", LONG, True, {"comment": 5}),
    "no number": StructField("i", LONG, True, {"x": NAN}),
    "infinity, deep": StructField("i", LONG, True, {"x": [{"y": math.inf}]}),
    "date": StructField("i", LONG, True, {"x": datetime.date(2020, 1, 1)}),
    "decimal": StructField("i", LONG, True, {"x": decimal.Decimal(1)}),
    "half a character": StructField("i", LONG, True, {"x": SURROGATE}),
    "half a character in a key": StructField("i", LONG, True, {SURROGATE: 1}),
    "number for a key": StructField("i", LONG, True, {5: "x"}),  # type: ignore[dict-item]
    "too large": StructField("i", LONG, True, {"x": 2**63}),
    "a list of two types": StructField("i", LONG, True, {"x": [1, "a"]}),
    "no metadata": StructField("i", LONG, True, None),  # type: ignore[arg-type]
    "pairs": StructField("i", LONG, True, [("x", 1)]),  # type: ignore[arg-type]
    "default": StructField("i", LONG, True, {"CURRENT_DEFAULT": 5}),
    "generated": StructField("i", LONG, True, {"delta.generationExpression": 5}),
    "char": StructField("i", PrimitiveType("string"), True, {"__CHAR_VARCHAR_TYPE_STRING": 5}),
    "name": StructField(5, LONG),  # type: ignore[arg-type]
    "name that is none": StructField(None, LONG),  # type: ignore[arg-type]
    "name with half a character": StructField(SURROGATE, LONG),
    "nullable": StructField("i", LONG, "x"),  # type: ignore[arg-type]
    "nullable as a number": StructField("i", LONG, 1),  # type: ignore[arg-type]
    "type's name": StructField("i", "long"),  # type: ignore[arg-type]
    "type": StructField("i", PrimitiveType("foo")),
    "Arrow's type": StructField("i", pa.int64()),
    "array": StructField("i", ArrayType(LONG, "x")),  # type: ignore[arg-type]
    "text in a struct": StructField("i", StructType((StructField("x", LONG, True, {"comment": [1]}),))),
    "a struct's list": StructField("i", StructType([StructField("x", LONG, True, {"comment": 5})])),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", SCHEMAS)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_schema_that_readers_cannot_read_is_refused(case: str, mapped: bool, tmp_path: Path) -> None:
    properties = {"delta.columnMapping.mode": "name"} if mapped else {}
    with pytest.raises(SchemaMismatchError):
        DeltaTable.create(tmp_path / "t", StructType((SCHEMAS[case],)), properties=properties)
    assert not (tmp_path / "t").exists()


def test_metadata_of_columns_that_delta_allows_is_kept(tmp_path: Path) -> None:
    metadata = {"a": 5, "b": True, "c": 1.5, "d": {"e": "x", "f": None}, "g": [1, 2], "h": [], "j": -(2**63)}
    table = DeltaTable.create(tmp_path / "t", StructType((StructField("i", LONG, True, metadata),)))
    assert DeltaTable.open(table.url).snapshot().schema.field("i").metadata == metadata


def test_subclasses_of_text_and_numbers_are_written_as_what_they_are(table: DeltaTable) -> None:
    table.set_table(name=Text("n"), description=Choice.ONE)
    table.append(pa.table({"i": [2]}), txn=(Choice.ONE, Whole(7)), user_metadata=Text("m"))
    table.set_properties({Text("k"): Choice.ONE})
    table.set_column("i", comment=Text("c"))
    for snapshot in (table.snapshot(), DeltaTable.open(table.url).snapshot()):
        metadata = snapshot.metadata
        assert (metadata.name, metadata.description, metadata.configuration["k"]) == ("n", "one", "one")
        assert snapshot.transaction_version("one") == 7
        assert snapshot.schema.field("i").metadata == {"comment": "c"}


def test_creating_with_a_wrong_name_leaves_nothing(tmp_path: Path) -> None:
    for wrong in ({"name": 5}, {"description": NAN}, {"name": SURROGATE}, {"properties": {"a": 5}}):
        with pytest.raises(DeltaLogError):
            DeltaTable.create(tmp_path / "t", pa.schema([("i", pa.int64())]), data=pa.table({"i": [1]}), **wrong)
        assert not [name for name in tree(tmp_path) if not name.endswith("/")]


def test_many_adds_are_looked_at_too(table: DeltaTable) -> None:
    files = [_add(path=f"{number}.parquet") for number in range(2_000)]
    for bad in (_add(path="x.parquet", size=True), _add(path="x.parquet", extra={"a": object()})):
        with pytest.raises(InvalidActionError, match=r"x\.parquet"), table.transaction() as transaction:
            transaction.add(*files, bad)
    assert DeltaTable.open(table.url).version == 0


def test_a_commit_is_read_back_before_it_is_sent(table: DeltaTable) -> None:
    """Parse every line with a strict JSON reader."""

    def refuse(text: str) -> Any:
        raise AssertionError(text)

    table.append(pa.table({"i": [2]}), user_metadata={"a": [1.5, None]})
    log = Path(table.url.removeprefix("file://")) / "_delta_log" / f"{1:020d}.json"
    for line in log.read_text("utf-8").splitlines():
        json.loads(line, parse_constant=refuse)
