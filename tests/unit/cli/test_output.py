"""Escaping, numbers, and the display of operation metrics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog.cli.output import to_json
from deltalog.presentation.activity import activity, activity_text
from deltalog.presentation.text import bytes_text, drift_text, plural, span_text, visible


@given(st.text(st.characters()))
def test_visible_is_printable(text: str) -> None:
    shown = visible(text)
    assert all(char.isprintable() or char.isspace() for char in shown)
    assert not set(shown) & set("\n\r\t\x0b\x0c\x1b\x85\u2028\u2029")
    assert shown.encode("utf-8", errors="strict") is not None
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 😀 [bold]", "plain é 漢 😀 [bold]"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb", "a\\nb"),
        ("\x9b", "\\x9b"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("no\u00a0break", "no\u00a0break"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_json_line() -> None:
    assert to_json({"a": "é\x9b", "b": [1, None]}) == '{"a": "\\u00e9\\u009b", "b": [1, null]}'


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123456, "123 kB"), (999_999, "1.0 MB"), (5 * 10**15, "5000 TB")],
)
def test_bytes(size: int, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (-3, "−3 ms"),
        (1500, "+1.5 s"),
        (600_000, "+10.0 min"),
        (-10_800_000, "−3.0 h"),
        (41 * 86_400_000, "+41.0 d"),
    ],
)
def test_drift(ms: int, text: str) -> None:
    assert drift_text(ms) == text
    assert span_text(ms) == text.lstrip("+−")


def test_plural() -> None:
    assert [plural(n, "file") for n in (0, 1, 2, 1234)] == ["0 files", "1 file", "2 files", "1,234 files"]


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ({"numFiles": "2", "numOutputRows": "10", "numOutputBytes": "1500"}, "+10 rows, +2 files, 1.5 kB"),
        ({"numRemovedFiles": "3", "numDeletedRows": "7", "numAddedFiles": "1"}, "−7 rows, +1 file, −3 files"),
        (
            {
                "numTargetRowsInserted": "1",
                "numTargetRowsDeleted": "2",
                "numOutputRows": "99",
                "numTargetFilesAdded": "1",
            },
            "+1 row, −2 rows, +1 file",
        ),
        ({"numOutputRows": "909", "numCopiedRows": "859", "numDeletedRows": "50"}, "+50 rows, −50 rows"),
        ({"numUpdatedRows": "3", "numCopiedRows": "7"}, "+3 rows"),
        ({"num_added_rows": 5, "num_added_files": 1}, "+5 rows, +1 file"),
        ({}, ""),
        ({"numFiles": "many", "numOutputRows": None, "numOutputBytes": ["1"], "numRemovedFiles": True}, ""),
        ({"numFiles": "²", "numOutputRows": "9" * 5000}, ""),
    ],
)
def test_activity(metrics: dict[str, object], text: str) -> None:
    assert activity_text(metrics) == text
    assert set(activity(metrics)) == {
        f"{kind}_{way}" for kind in ("rows", "files", "bytes") for way in ("added", "removed")
    }


@pytest.mark.parametrize(
    ("operation", "metrics", "text"),
    [
        ("WRITE", {"numRemovedFiles": "2"}, "−? rows, −2 files"),
        ("RESTORE", {"numRemovedFiles": "2", "numDeletedRows": "0"}, "−2 files"),
        (
            "CREATE OR REPLACE TABLE AS SELECT",
            {"numRemovedFiles": "1", "numOutputRows": "3"},
            "+3 rows, −? rows, −1 file",
        ),
        ("WRITE", {"numFiles": "1", "numOutputRows": "3"}, "+3 rows, +1 file"),
        ("OPTIMIZE", {"numRemovedFiles": "2"}, "−2 files"),
        (None, {"numRemovedFiles": "2"}, "−2 files"),
    ],
)
def test_rows_that_are_removed_and_not_counted_are_unknown(
    operation: str | None, metrics: dict[str, object], text: str
) -> None:
    assert activity_text(metrics, operation) == text
