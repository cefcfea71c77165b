"""The summary of a commit: which values it computes from the actions, and which statements of the commit it ignores
because they cannot be trusted."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog.errors import InvalidCommitError
from deltalog.log.commit_summary import ANNOTATIONS_KEY, CHECKSUM_TAG, AddedFileSummary, CommitSummary, summary_of
from deltalog.protocol.actions import AddFile, CommitInfo, DeletionVector
from deltalog.protocol.codec import CommitActions

_VECTOR = DeletionVector(storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", size_in_bytes=40, cardinality=3)


def _add(path: str = "a", stats: str | None = '{"numRecords":5}', **more: Any) -> AddFile:
    given = {"data_change": True, **more}
    return AddFile(path=path, partition_values={}, size=10, modification_time=0, stats=stats, **given)


def _summary(version: int = 4, info: dict[str, Any] | None = None, adds: tuple[AddFile, ...] = ()) -> CommitSummary:
    commit_info = None if info is None else CommitInfo(info)
    return summary_of(CommitActions(version, commit_info, True, None, None, list(adds), [], [], []))


def test_a_commit_of_another_writer_has_no_metadata_and_the_version_before_as_parent() -> None:
    info = {"timestamp": 17, "operation": "WRITE", "txnId": "t"}
    assert _summary(4, info) == CommitSummary(4, 3, 17, None, (), 0, operation="WRITE", txn_id="t")


def test_version_0_has_no_parent_and_a_commit_without_commit_info_no_time() -> None:
    assert _summary(0) == CommitSummary(0, None, None, None, (), 0)


def test_the_in_commit_timestamp_is_the_time_where_there_is_one() -> None:
    assert _summary(info={"inCommitTimestamp": 20, "timestamp": 17}).created_ms == 20


def test_annotations_become_metadata_times_and_blob() -> None:
    annotations = {
        "parent": 3,
        "metadata": {"run": 7},
        "timestampColumn": "at",
        "minTimestampMicros": -1,
        "maxTimestampMicros": 9,
        "blob": {"path": "_blobs/x", "size": 12, "sha256": "ff"},
    }
    summary = _summary(info={ANNOTATIONS_KEY: annotations})
    assert (summary.metadata, summary.timestamp_column) == ({"run": 7}, "at")
    assert (summary.min_timestamp_us, summary.max_timestamp_us) == (-1, 9)
    assert summary.blob == AddedFileSummary("_blobs/x", 12, "ff")


@pytest.mark.parametrize("parent", [2, 4, None, "3"])
def test_a_parent_that_is_not_the_version_before_is_refused(parent: object) -> None:
    with pytest.raises(InvalidCommitError, match="renamed or") as raised:
        _summary(4, {ANNOTATIONS_KEY: {"parent": parent}})
    assert raised.value.version == 4


@pytest.mark.parametrize("annotations", [None, "text", [1], {"metadata": [1], "minTimestampMicros": True, "blob": 1}])
def test_annotations_of_another_form_are_ignored(annotations: object) -> None:
    summary = _summary(info={ANNOTATIONS_KEY: annotations})
    assert (summary.metadata, summary.min_timestamp_us, summary.blob) == (None, None, None)


@pytest.mark.parametrize("blob", [{"path": "x"}, {"size": 1}, {"path": 1, "size": 1}, {"path": "x", "size": "1"}])
def test_a_blob_without_path_or_size_is_none(blob: object) -> None:
    assert _summary(info={ANNOTATIONS_KEY: {"blob": blob}}).blob is None


def test_files_have_their_checksum_statistics_and_rows_without_the_deleted_ones() -> None:
    hashed, masked = _add("a", tags={CHECKSUM_TAG: "ff"}), _add("b", deletion_vector=_VECTOR)
    summary = _summary(adds=(hashed, masked))
    assert summary.files == (
        AddedFileSummary("a", 10, "ff", 5, {"numRecords": 5}),
        AddedFileSummary("b", 10, None, 2, {"numRecords": 5}),
    )
    assert summary.row_count == 7


@pytest.mark.parametrize("stats", [None, "{", "[5]", '{"numRecords":"5"}', "{}", "[" * 100_000])
def test_rows_are_not_known_where_one_file_has_no_count(stats: str | None) -> None:
    summary = _summary(adds=(_add("a"), _add("b", stats)))
    assert (summary.files[1].row_count, summary.row_count) == (None, None)


def test_files_that_are_only_moved_are_not_added() -> None:
    assert _summary(adds=(_add("a"), _add("b", data_change=False))).row_count == 5
