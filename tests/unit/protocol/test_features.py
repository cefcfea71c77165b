from __future__ import annotations

from typing import Any

import pytest

from deltalog import UnsupportedFeatureError
from deltalog.engine import Metadata, Protocol
from deltalog.protocol import features, timestamps
from deltalog.schema import PrimitiveType, StructField, StructType
from tests.support.core import metadata_action

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
        features.check_writable(given, "/t")


def test_an_unknown_reader_feature_is_named() -> None:
    given = protocol(3, 7, ("deletionVectors", "fooBar"), ("deletionVectors", "fooBar"))
    with pytest.raises(UnsupportedFeatureError, match=r"/t needs reader features .* not support: fooBar\.") as caught:
        features.check_readable(given, "/t")
    assert caught.value.features == ("fooBar",)


def test_an_unknown_writer_feature_is_named_and_reading_goes_on() -> None:
    given = protocol(1, 7, None, ("appendOnly", "fooBar", "bazQux"))
    features.check_readable(given, "/t")
    with pytest.raises(UnsupportedFeatureError, match=r"does not support: fooBar, bazQux.*reading is not") as caught:
        features.check_writable(given, "/t")
    assert caught.value.features == ("fooBar", "bazQux")


@pytest.mark.parametrize("alias", timestamps.FEATURE_ALIASES)
def test_aliases_of_in_commit_timestamps_are_read_and_never_written(alias: str) -> None:
    given = protocol(1, 7, None, (alias,))
    features.check_readable(given, "/t")
    assert features.is_ict_active(given, metadata(delta__enableInCommitTimestamps="true"))
    with pytest.raises(UnsupportedFeatureError, match=alias):
        features.check_writable(given, "/t")


def with_metadata(values: dict[str, object]) -> StructType:
    return StructType((StructField("a", PrimitiveType("long"), True, values),))


HONOURED: dict[str, tuple[Metadata, StructType]] = {
    "invariants": (metadata(), with_metadata({"delta.invariants": "{}"})),
    "checkConstraints": (metadata(delta__constraints__c="a > 0"), SCHEMA),
    "generatedColumns": (metadata(), with_metadata({"delta.generationExpression": "1"})),
    "allowColumnDefaults": (metadata(), with_metadata({"CURRENT_DEFAULT": "1"})),
    "identityColumns": (metadata(), with_metadata({"delta.identity.start": 1})),
}


@pytest.mark.parametrize("name", HONOURED)
def test_what_is_kept_row_by_row_does_not_stand_in_the_way_and_is_listed_for_new_tables(name: str) -> None:
    properties, schema = HONOURED[name]
    features.check_writable(protocol(1, 7, None, (name,)), "/t")
    assert features.features_for(properties, schema) == [name]
    assert features.is_used(name, properties, schema) and not features.is_used(name, metadata(), SCHEMA)


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
    with pytest.raises(UnsupportedFeatureError, match="only version 3 can list them"):
        features.check_protocol(protocol(1, 7, ("deletionVectors",), ("deletionVectors",)))
    features.check_protocol(protocol(3, 7, (), ()))


@pytest.mark.parametrize(
    ("given", "name", "left"),
    [
        (protocol(1, 7, None, ("inCommitTimestamp", "appendOnly", "invariants")), "inCommitTimestamp", protocol(1, 2)),
        (protocol(3, 7, ("deletionVectors",), ("deletionVectors",)), "deletionVectors", protocol(1, 1)),
        (protocol(1, 3), "checkConstraints", protocol(1, 2)),
        (protocol(1, 2), "appendOnly", protocol(1, 7, None, ("invariants",))),
        (
            protocol(3, 7, ("columnMapping", "deletionVectors"), ("columnMapping", "deletionVectors")),
            "deletionVectors",
            protocol(3, 7, ("columnMapping",), ("columnMapping",)),
        ),
        (
            protocol(3, 7, ("v2Checkpoint",), ("v2Checkpoint", "rowTracking", "domainMetadata")),
            "v2Checkpoint",
            protocol(1, 7, None, ("rowTracking", "domainMetadata")),
        ),
    ],
)
def test_a_protocol_without_a_feature(given: Protocol, name: str, left: Protocol) -> None:
    assert features.without_feature(given, name) == left


def test_a_legacy_protocol_implies_just_what_was_left() -> None:
    listed = ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping")
    given = protocol(3, 7, ("columnMapping", "v2Checkpoint"), (*listed, "v2Checkpoint"))
    assert features.without_feature(given, "v2Checkpoint") == protocol(2, 5)


def test_required_features_come_along() -> None:
    assert set(features.with_features(protocol(1, 1), ["rowTracking"]).writer_features or ()) == {
        "rowTracking", "domainMetadata",
    }  # fmt: skip
    assert features.requiring(protocol(1, 7, None, ("rowTracking", "domainMetadata")), "domainMetadata") == [
        "rowTracking"
    ]


def test_a_preview_of_a_feature_is_enough() -> None:
    given = protocol(3, 7, ("typeWidening-preview",), ("typeWidening-preview",))
    assert features.with_features(given, ["typeWidening"]) is given
