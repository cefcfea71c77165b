from __future__ import annotations

from typing import Any

import pytest

from deltalog.errors import InvalidPropertyError
from deltalog.protocol import properties
from tests.support.core import TIMESTAMP_KEY, VERSION_KEY


@pytest.mark.parametrize("text", ["true", "TRUE", "True"])
def test_booleans(text: str) -> None:
    assert properties.APPEND_ONLY.read({"delta.appendOnly": text}) is True


def test_defaults() -> None:
    assert properties.APPEND_ONLY.read({}) is False
    assert properties.CHECKPOINT_INTERVAL.read({}) == 10
    assert properties.DELETED_FILE_RETENTION_MS.read({}) == 7 * 86_400_000
    assert properties.DATA_SKIPPING_NUM_INDEXED_COLS.read({}) == 32


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 1 week", 7 * 86_400_000),
        ("interval 2 days 3 hours", 2 * 86_400_000 + 3 * 3_600_000),
        ("INTERVAL 10 Seconds", 10_000),
        ("5 milliseconds", 5),
        (" interval 0 days ", 0),
        ("interval 1 day 1 minute", 86_460_000),
    ],
)
def test_intervals(text: str, milliseconds: int) -> None:
    assert properties.DELETED_FILE_RETENTION_MS.read({"delta.deletedFileRetentionDuration": text}) == milliseconds


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("delta.appendOnly", "yes"),
        ("delta.appendOnly", ""),
        ("delta.enableInCommitTimestamps", "1"),
        ("delta.enableInCommitTimestamps", " true"),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "-3"),
        ("delta.checkpointInterval", "ten"),
        ("delta.deletedFileRetentionDuration", "interval"),
        ("delta.deletedFileRetentionDuration", "interval 1 month"),
        ("delta.deletedFileRetentionDuration", "1"),
        ("delta.deletedFileRetentionDuration", "interval 1 day and more"),
        ("delta.dataSkippingNumIndexedCols", "all"),
    ],
)
def test_values_that_cannot_be_read_name_the_key_and_the_value(key: str, text: str) -> None:
    with pytest.raises(InvalidPropertyError) as caught:
        properties.KNOWN[key].read({key: text})
    assert key in str(caught.value) and repr(text) in str(caught.value)
    assert caught.value.key == key
    with pytest.raises(InvalidPropertyError):
        properties.check_assignment({key: text})


@pytest.mark.parametrize("key", [VERSION_KEY, TIMESTAMP_KEY])
@pytest.mark.parametrize("value", ["3", "", None])
def test_the_enablement_pair_belongs_to_the_writer(key: str, value: str | None) -> None:
    with pytest.raises(InvalidPropertyError, match="enable_in_commit_timestamps") as caught:
        properties.check_assignment({"x": "y", key: value})
    assert key in str(caught.value)


@pytest.mark.parametrize(("value", "hint"), [(True, "'true'"), (10, "'10'"), (1.5, "'1.5'")])
def test_values_are_text(value: Any, hint: str) -> None:
    with pytest.raises(InvalidPropertyError, match=hint):
        properties.check_assignment({"delta.appendOnly": value})


def test_other_keys_are_the_users() -> None:
    properties.check_assignment({"owner": "me", "delta.appendOnly": None, "delta.checkpointInterval": "5"})


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("128mb", 128 << 20), ("1 GB", 1 << 30), ("2k", 2048), ("7b", 7)])
def test_sizes(text: str, size: int) -> None:
    assert properties.TARGET_FILE_SIZE.read({properties.TARGET_FILE_SIZE.key: text}) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5mb", "mb", "10 x"])
def test_impossible_sizes(text: str) -> None:
    with pytest.raises(InvalidPropertyError, match="a size in bytes"):
        properties.TARGET_FILE_SIZE.read({properties.TARGET_FILE_SIZE.key: text})
