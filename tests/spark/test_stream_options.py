"""The options of streams, which are strings: how values are parsed, and which values are refused."""

from __future__ import annotations

from typing import Any

import pytest

import deltalog
from spark_ext.stream.options import DefaultStorage, sink_options, source_options, timestamp_ms


@pytest.mark.parametrize(
    ("text", "zone", "found"),
    [
        ("1970-01-01", "UTC", 0),
        ("1970-01-01 00:00:00.0001", "UTC", 1),
        ("1970-01-01T00:00:01.5Z", "Asia/Tokyo", 1500),
        ("1970-01-01 00:00:00+01:00", "UTC", -3_600_000),
        ("1970-01-01 00:00:00", "Asia/Tokyo", -9 * 3_600_000),
        ("1970-01-01 00:00:00", "+02:30", -9_000_000),
        ("1970-01-01 00:00:00", "GMT-1", 3_600_000),
        (
            "2026-03-29 02:30:00",
            "Europe/Vienna",
            1_774_747_800_000,
        ),  # a time that is skipped when daylight saving time begins is read as 03:30, as in Spark
        (
            "2026-10-25 02:30:00",
            "Europe/Vienna",
            1_792_888_200_000,
        ),  # a time that occurs twice is read as the earlier one, as in Spark
    ],
)
def test_times(text: str, zone: str, found: int) -> None:
    assert timestamp_ms(text, zone) == found


@pytest.mark.parametrize(("text", "zone"), [("today", "UTC"), ("10:00", "UTC"), ("1970-01-01", "Nowhere/At all")])
def test_times_that_are_refused(text: str, zone: str) -> None:
    with pytest.raises(deltalog.InvalidTimestampError):
        timestamp_ms(text, zone)


def test_options_of_a_source() -> None:
    given = {"path": "t", "startingversion": "Latest", "MAXBYTESPERTRIGGER": "2m", "allowedPaths": '["/a", "/b"]'}
    found = source_options({**given, "storageOptions": '{"key": "k"}'}, DefaultStorage({"other": 1}), "UTC")
    assert found.stream == {"starting_version": "latest"}
    assert (found.max_files, found.max_bytes) == (None, 2 << 20)
    assert (found.table.allowed_paths, found.table.storage) == (("/a", "/b"), {"key": "k"})
    assert "k" not in repr(found)
    assert source_options({"path": "t"}, DefaultStorage({"other": 1}), "UTC").table.storage == {"other": 1}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "no path"),
        ({"path": "t", "maxFilesPerTrigger": "0"}, "at least 1"),
        ({"path": "t", "maxBytesPerTrigger": "1 parsec"}, "number of bytes"),
        ({"path": "t", "schemaTrackingLocation": "x"}, "restart the stream"),
        ({"path": "t", "storageOptions": "[1]"}, "JSON object"),
        ({"path": "t", "mergeSchema": "true"}, "Unknown option"),
    ],
)
def test_options_that_are_refused(given: dict[str, str], match: str) -> None:
    with pytest.raises(deltalog.CallError, match=match):
        source_options(given, DefaultStorage(), "UTC")


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("partitionBy", "one", ("one",)),
        ("partitionBy", '["one", "two"]', ("one", "two")),
    ],
)
def test_options_of_a_sink(option: str, value: str, found: Any) -> None:
    assert sink_options({"path": "t", option: value}, DefaultStorage()).partition_by == found
    with pytest.raises(deltalog.CallError, match="must not be empty"):
        sink_options({"path": "t", "txnAppId": ""}, DefaultStorage())


def test_streams_without_options_take_those_of_the_session() -> None:
    session = {
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
        "spark.hadoop.fs.s3a.endpoint": "store:9000",
        "fs.s3a.bucket.other.access.key": "of-other",
        "fs.s3a.bucket.other.secret.key": "of-other",
    }
    default = DefaultStorage(session=session)
    for path, key in (("s3://lake/t", "k"), ("s3a://other/t", "of-other"), ("catalog:c.db#t", "k")):
        table = source_options({"path": path}, default, "UTC").table
        assert table.storage == {"key": key, "secret": key.replace("k", "s"), "endpoint_url": "https://store:9000"}
        assert sink_options({"path": path}, default).table == table and not table.is_given
    assert source_options({"path": "/data/t"}, default, "UTC").table.storage == {}
    given = source_options({"path": "s3://lake/t", "storageOptions": '{"anon": true}'}, default, "UTC").table
    assert given.storage == {"anon": True} and given.is_given
    assert "'k'" not in repr(default) and "store:9000" not in repr(default)
