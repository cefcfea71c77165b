"""How a change of schema or properties affects the protocol and the rest of the metadata."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from deltalog import SchemaMismatchError
from deltalog.engine import Metadata, Protocol
from deltalog.errors import InvalidPropertyError
from deltalog.protocol import metadata_update, row_tracking
from deltalog.protocol.actions import Format
from deltalog.protocol.column_mapping import MAX_ID_KEY, MODE_KEY
from deltalog.protocol.column_metadata import ID_KEY
from deltalog.schema import PrimitiveType, StructField, StructType

PLAIN = Protocol(min_reader_version=1, min_writer_version=2)


def metadata(properties: dict[str, str], *types: str) -> Metadata:
    schema = StructType(tuple(StructField(f"c{n}", PrimitiveType(each)) for n, each in enumerate(types)))
    return Metadata(
        id="t", format=Format(), schema_string=schema.to_json(), partition_columns=(), configuration=properties
    )


def complete(before: Metadata | None, after: Metadata, protocol: Protocol = PLAIN) -> tuple[Protocol, Metadata]:
    numbers = itertools.count(1)
    return metadata_update.complete(before, after, protocol, lambda: f"u{next(numbers)}")


def test_what_needs_nothing_stays_as_it_is() -> None:
    asked = metadata({"mine": "1"}, "long", "string")
    assert complete(None, asked) == (PLAIN, asked)
    assert complete(asked, metadata({}, "long")) == (PLAIN, metadata({}, "long"))


def test_column_mapping_brings_ids_names_and_its_feature() -> None:
    protocol, made = complete(None, metadata({MODE_KEY: "name"}, "long", "string"))
    assert [column.metadata[ID_KEY] for column in made.schema] == [1, 2] and made.configuration[MAX_ID_KEY] == "2"
    assert "columnMapping" in (protocol.reader_features or ()) and "columnMapping" in (protocol.writer_features or ())


def test_row_tracking_brings_names_of_its_columns_and_features() -> None:
    protocol, made = complete(None, metadata({"delta.enableRowTracking": "true"}, "long"))
    assert set(row_tracking.MATERIALIZED_KEYS) <= set(made.configuration)
    assert {"rowTracking", "domainMetadata"} <= set(protocol.writer_features or ())


def test_a_type_of_a_new_column_brings_its_feature() -> None:
    before = metadata({}, "long")
    protocol, made = complete(before, metadata({}, "long", "timestamp_ntz"))
    assert "timestampNtz" in (protocol.reader_features or ()) and made.schema.names == ["c0", "c1"]


def test_a_change_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(InvalidPropertyError, match="from name to none"):
        complete(metadata({MODE_KEY: "name"}, "long"), metadata({}, "long"))


def test_the_columns_of_the_change_data_feed_cannot_be_the_tables() -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    with_column = StructType((StructField("_Change_Type", PrimitiveType("string")),)).to_json()
    plain, taken = metadata(feed, "long"), msgspec.structs.replace(metadata(feed), schema_string=with_column)
    unwatched = msgspec.structs.replace(taken, configuration={})
    for before in (None, plain, unwatched):
        with pytest.raises(SchemaMismatchError, match="_change_type"):
            complete(before, taken)
    assert complete(plain, unwatched)[1] == unwatched
    assert complete(taken, taken)[1] == taken, "a table that has it already keeps it"
