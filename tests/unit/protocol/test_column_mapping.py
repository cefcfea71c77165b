"""Names and ids of columns in files, and the rule for maxColumnId."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from deltalog import CorruptTableError
from deltalog.errors import InvalidPropertyError
from deltalog.protocol import column_mapping
from deltalog.protocol.actions import Format, Metadata
from deltalog.protocol.column_mapping import MAX_ID_KEY, MODE_KEY, Mode
from deltalog.protocol.column_metadata import ID_KEY, PHYSICAL_NAME_KEY
from deltalog.protocol.schema import all_columns
from deltalog.schema import ArrayType, MapType, PrimitiveType, StructField, StructType
from tests.support.core import strategies

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
NESTED = StructType(
    (
        StructField("a", LONG),
        StructField("s", StructType((StructField("x", STRING), StructField("y", ArrayType(LONG))))),
        StructField("m", MapType(STRING, StructType((StructField("v", LONG),)))),
    )
)


def metadata(schema: StructType, mode: str = "name", **more: str) -> Metadata:
    configuration = {MODE_KEY: mode, **({MAX_ID_KEY: more["max_id"]} if "max_id" in more else {})}
    return Metadata(
        id="t", format=Format(), schema_string=schema.to_json(), partition_columns=(), configuration=configuration
    )


def uuids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"u{next(numbers)}"


def created(schema: StructType, mode: str = "name") -> Metadata:
    return column_mapping.with_mapping(None, metadata(schema, mode), uuids())


def identities(given: Metadata) -> dict[str, tuple[Any, Any]]:
    return {f.name: (f.metadata.get(ID_KEY), f.metadata.get(PHYSICAL_NAME_KEY)) for f in all_columns(given.schema)}


def test_a_new_table_numbers_every_column_at_every_depth() -> None:
    made = created(NESTED)
    assert identities(made) == {
        "a": (1, "col-u1"), "s": (2, "col-u2"), "x": (3, "col-u3"), "y": (4, "col-u4"),
        "m": (5, "col-u5"), "v": (6, "col-u6"),
    }  # fmt: skip
    assert made.configuration[MAX_ID_KEY] == "6"


@given(strategies.schemas())
def test_ids_are_unique_and_the_highest_is_the_property(schema: StructType) -> None:
    made = created(schema, "id")
    ids = [column.metadata[ID_KEY] for column in all_columns(made.schema)]
    assert len(set(ids)) == len(ids) and max(ids, default=0) == column_mapping.max_column_id(made.configuration)
    assert column_mapping.unmapped(made.schema) == column_mapping.unmapped(schema)


def test_a_column_that_is_added_later_gets_an_id_above_all_that_were_assigned() -> None:
    before = created(NESTED)
    dropped = StructType(before.schema.fields[:2])
    after = column_mapping.with_mapping(before, metadata(dropped, max_id="6"), uuids())
    assert after.configuration[MAX_ID_KEY] == "6"  # never decreases, although the columns with ids 5 and 6 are dropped
    wider = StructType((*after.schema.fields, StructField("new", LONG)))
    last = column_mapping.with_mapping(after, metadata(wider, max_id="6"), uuids())
    assert identities(last)["new"][0] == 7 and last.configuration[MAX_ID_KEY] == "7"
    assert identities(last)["a"] == identities(before)["a"]


def test_ids_in_the_schema_count_where_the_property_is_behind() -> None:
    column = StructField("a", LONG, metadata={ID_KEY: 9, PHYSICAL_NAME_KEY: "p"})
    made = column_mapping.with_column_ids(metadata(StructType((column, StructField("b", LONG)))), 3, lambda f: f.name)
    assert identities(made) == {"a": (9, "p"), "b": (10, "b")} and made.configuration[MAX_ID_KEY] == "10"


@pytest.mark.parametrize(
    ("then", "now", "kept"), [("3", "8", "8"), ("8", "3", "8"), (None, "2", "2"), ("2", None, "2")]
)
def test_an_earlier_version_keeps_the_highest_id_of_now(then: str | None, now: str | None, kept: str) -> None:
    earlier, current = (metadata(NESTED, **({} if each is None else {"max_id": each})) for each in (then, now))
    assert column_mapping.with_kept_max_column_id(earlier, current).configuration[MAX_ID_KEY] == kept


def test_without_ids_then_and_now_nothing_is_added() -> None:
    earlier = metadata(NESTED, "none")
    assert column_mapping.with_kept_max_column_id(earlier, earlier) is earlier


@pytest.mark.parametrize("text", ["", "x", "-1", "1.0"])
def test_a_highest_id_that_is_no_number(text: str) -> None:
    with pytest.raises(CorruptTableError, match="maxColumnId"):
        column_mapping.max_column_id({MAX_ID_KEY: text})


def test_turning_it_on_takes_the_names_that_files_have() -> None:
    after = column_mapping.with_mapping(metadata(NESTED, "none"), metadata(NESTED), uuids())
    assert identities(after) == {name: (n, name) for n, name in enumerate(["a", "s", "x", "y", "m", "v"], start=1)}


@pytest.mark.parametrize(("before", "after"), [("name", "none"), ("id", "none"), ("none", "id"), ("name", "id")])
def test_modes_that_cannot_be_changed_to(before: Mode, after: Mode) -> None:
    with pytest.raises(InvalidPropertyError, match=f"from {before} to {after}"):
        column_mapping.check_mode_change(before, after, is_new=False)
    column_mapping.check_mode_change(before, after, is_new=True)


def test_a_mapped_column_without_its_name_is_not_given_another() -> None:
    bare = metadata(NESTED, max_id="6")
    with pytest.raises(CorruptTableError, match="physicalName"):
        column_mapping.with_mapping(bare, metadata(NESTED, max_id="6"), uuids())


def test_a_renamed_column_is_the_same_and_one_of_another_type_is_not() -> None:
    before = created(NESTED).schema
    a, s, _ = before.fields
    changed = StructType((StructField("b", a.data_type, metadata=a.metadata), StructField("s", LONG)))
    kept = column_mapping.inherited(changed, before)
    assert kept.field("b").metadata[ID_KEY] == 1 and ID_KEY not in kept.field("s").metadata
    again = column_mapping.inherited(StructType((StructField("S", s.data_type),)), before).field("S")
    assert again.metadata[PHYSICAL_NAME_KEY] == s.metadata[PHYSICAL_NAME_KEY]


def test_the_schema_of_files() -> None:
    made = created(NESTED)
    assert column_mapping.physical_schema(made.schema, "name").names == ["col-u1", "col-u2", "col-u5"]
    assert column_mapping.physical_schema(made.schema, "none") is made.schema
    assert column_mapping.mode_of({MODE_KEY: "ID"}) == "id" and column_mapping.mode_of({}) == "none"
    with pytest.raises(CorruptTableError, match="none, name or id"):
        column_mapping.mode_of({MODE_KEY: "both"})


@pytest.mark.parametrize(("mode", "place"), [("none", 0), ("name", 1), ("id", 2)])
def test_a_column_is_found_by_its_name_its_physical_name_or_its_id(mode: Mode, place: int) -> None:
    column = StructField("a", LONG, metadata={ID_KEY: 4, PHYSICAL_NAME_KEY: "p"})
    with_id = column_mapping.parquet_id(column, "id")
    stored = [pa.field("A", pa.int64()), pa.field("p", pa.int64()), pa.field("q", pa.int64(), metadata=with_id)]
    assert column_mapping.lookup(mode)(stored)(column) == place
    assert column_mapping.lookup(mode)(stored[place + 1 :])(column) is None


def test_clustering_columns_are_stored_by_their_physical_names() -> None:
    schema = created(NESTED).schema
    text = '{"clusteringColumns":[["col-u1"],["col-u2","col-u3"]]}'
    assert column_mapping.clustering_columns(text, schema, "name") == (("a",), ("s", "x"))
    for wrong in ("{", "{}", '{"clusteringColumns":[["gone"]]}'):
        with pytest.raises(CorruptTableError, match="clustering"):
            column_mapping.clustering_columns(wrong, schema, "name")
