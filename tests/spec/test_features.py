from __future__ import annotations

from typing import Any

import pytest

from deltalog import Metadata, PrimitiveType, Protocol, StructField, StructType, UnsupportedFeatureError
from deltalog.spec import features, timestamps
from tests.core_env import metadata_action

SCHEMA = StructType((StructField("a", PrimitiveType("long")),))


def metadata(**properties: str) -> Metadata:
    body = metadata_action({key.replace("__", "."): value for key, value in properties.items()})["metaData"]
    return Metadata.from_json(body)


def protocol(reader: int, writer: int, readers: Any = None, writers: Any = None) -> Protocol:
    return Protocol(
        min_reader_version=reader, min_writer_version=writer, reader_features=readers, writer_features=writers
    )


def test_every_feature_has_one_row() -> None:
    names = [feature.name for feature in features.FEATURES]
    assert len(set(names)) == len(names)
    assert {timestamps.FEATURE, *timestamps.FEATURE_ALIASES} <= set(names)


@pytest.mark.parametrize(
    ("reader", "writer", "readers", "writers"),
    [
        (1, 1, [], []),
        (1, 2, [], ["appendOnly", "invariants"]),
        (1, 3, [], ["appendOnly", "invariants", "checkConstraints"]),
        (1, 4, [], ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"]),
        (
            2, 5, ["columnMapping"],
            ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"],
        ),
        (
            2, 6, ["columnMapping"],
            [
                "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
                "identityColumns",
            ],
        ),
    ],
)  # fmt: skip
def test_legacy_versions_imply_features(reader: int, writer: int, readers: list[str], writers: list[str]) -> None:
    assert list(features.reader_features(protocol(reader, writer))) == readers
    assert list(features.writer_features(protocol(reader, writer))) == writers


def test_versions_3_and_7_imply_nothing() -> None:
    bare = protocol(3, 7)
    assert features.reader_features(bare) == () and features.writer_features(bare) == ()


@pytest.mark.parametrize("version", [0, 4, -1, 99])
def test_other_reader_versions_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedFeatureError, match=rf"/t needs reader version {version}; deltalog reads .*1 to 3"):
        features.check_readable(protocol(version, 7), "/t")


@pytest.mark.parametrize("version", [0, 8])
def test_other_writer_versions_are_refused_for_writes_only(version: int) -> None:
    given = protocol(1, version)
    features.check_readable(given, "/t")
    with pytest.raises(UnsupportedFeatureError, match=rf"/t needs writer version {version}; deltalog writes"):
        features.check_writable(given, metadata(), SCHEMA, "/t")


def test_an_unknown_reader_feature_is_named() -> None:
    given = protocol(3, 7, ("deletionVectors", "fooBar"), ("deletionVectors", "fooBar"))
    with pytest.raises(UnsupportedFeatureError, match=r"/t needs reader features .* not have: fooBar\.") as caught:
        features.check_readable(given, "/t")
    assert caught.value.features == ("fooBar",)


def test_an_unknown_writer_feature_is_named_and_reading_goes_on() -> None:
    given = protocol(1, 7, None, ("appendOnly", "fooBar", "bazQux"))
    features.check_readable(given, "/t")
    with pytest.raises(UnsupportedFeatureError, match=r"cannot honour: fooBar, bazQux.*reading is not") as caught:
        features.check_writable(given, metadata(), SCHEMA, "/t")
    assert caught.value.features == ("fooBar", "bazQux")


@pytest.mark.parametrize("alias", timestamps.FEATURE_ALIASES)
def test_aliases_of_in_commit_timestamps_are_read_and_never_written(alias: str) -> None:
    given = protocol(1, 7, None, (alias,))
    features.check_readable(given, "/t")
    assert features.is_ict_active(given, metadata(delta__enableInCommitTimestamps="true"))
    with pytest.raises(UnsupportedFeatureError, match=alias):
        features.check_writable(given, metadata(), SCHEMA, "/t")


USED: list[tuple[str, Metadata, StructType]] = [
    (
        "invariants",
        metadata(),
        StructType((StructField("a", PrimitiveType("long"), True, {"delta.invariants": "{}"}),)),
    ),
    ("checkConstraints", metadata(delta__constraints__c="a > 0"), SCHEMA),
    (
        "generatedColumns",
        metadata(),
        StructType((StructField("a", PrimitiveType("long"), True, {"delta.generationExpression": "1"}),)),
    ),
    (
        "identityColumns",
        metadata(),
        StructType((StructField("a", PrimitiveType("long"), True, {"delta.identity.start": 1}),)),
    ),
    (
        "allowColumnDefaults",
        metadata(),
        StructType((StructField("a", PrimitiveType("long"), True, {"CURRENT_DEFAULT": "1"}),)),
    ),
]


@pytest.mark.parametrize(
    ("name", "properties", "schema"), USED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_features_that_are_listed_but_not_used_do_not_stand_in_the_way(
    name: str, properties: Metadata, schema: StructType
) -> None:
    given = protocol(1, 7, None, (name,))
    features.check_writable(given, metadata(), SCHEMA, "/t")
    with pytest.raises(UnsupportedFeatureError, match=name):
        features.check_writable(given, properties, schema, "/t")
    nested = StructType((StructField("s", schema),))
    if schema is not SCHEMA:
        with pytest.raises(UnsupportedFeatureError, match=name):
            features.check_writable(given, metadata(), nested, "/t")


def test_adding_a_feature_makes_legacy_ones_explicit() -> None:
    upgraded = features.with_features(protocol(1, 2), ["inCommitTimestamp"])
    assert (upgraded.min_reader_version, upgraded.min_writer_version) == (1, 7)
    assert upgraded.reader_features is None
    assert sorted(upgraded.writer_features or ()) == ["appendOnly", "inCommitTimestamp", "invariants"]


def test_a_reader_feature_is_listed_on_both_sides() -> None:
    upgraded = features.with_features(protocol(1, 2), ["timestampNtz"])
    assert (upgraded.min_reader_version, upgraded.min_writer_version) == (3, 7)
    assert upgraded.reader_features == ("timestampNtz",)
    assert "timestampNtz" in (upgraded.writer_features or ())


def test_legacy_reader_features_come_along() -> None:
    upgraded = features.with_features(protocol(2, 5), ["deletionVectors"])
    assert set(upgraded.reader_features or ()) == {"deletionVectors", "columnMapping"}
    assert set(upgraded.reader_features or ()) <= set(upgraded.writer_features or ())


def test_nothing_is_changed_where_nothing_is_missing() -> None:
    given = protocol(1, 7, None, ("inCommitTimestamp",))
    assert features.with_features(given, ["inCommitTimestamp"]) is given
    assert features.with_features(protocol(1, 2), ["appendOnly"]) == protocol(1, 2)


DV = ["deletionVectors"]


def test_a_protocol_is_never_lowered_and_keeps_its_future_fields() -> None:
    given = Protocol.from_json(
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
            "new": 1,
        }
    )
    upgraded = features.with_features(given, ["inCommitTimestamp"])
    assert upgraded.reader_features == ("deletionVectors",)
    assert upgraded.to_json()["new"] == 1


def test_what_schema_and_properties_need() -> None:
    ntz = StructType((StructField("t", PrimitiveType("timestamp_ntz")),))
    assert "timestampNtz" in features.features_for(metadata(), ntz)
    assert features.features_for(metadata(delta__enableInCommitTimestamps="TRUE"), SCHEMA) == ["inCommitTimestamp"]
    assert features.features_for(metadata(delta__enableInCommitTimestamps="false"), SCHEMA) == []
    assert features.features_for(metadata(), SCHEMA) == []


def test_reader_features_at_another_version_are_a_contradiction() -> None:
    with pytest.raises(UnsupportedFeatureError, match="only version 3 may list them"):
        features.check_protocol(protocol(1, 7, ("deletionVectors",), ("deletionVectors",)))
    features.check_protocol(protocol(3, 7, (), ()))
