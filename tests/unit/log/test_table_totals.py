"""The totals in the `.crc`, updated commit by commit, equal the totals computed from the files."""

from __future__ import annotations

import json

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import DeltaTable
from deltalog.log.checksum import decode_checksum, encode_checksum
from deltalog.log.file_tables import files_table
from deltalog.log.table_totals import (
    DELETED_BINS,
    NO_FILES,
    SIZE_BINS,
    Deletions,
    FileSizes,
    Totals,
    totals_after,
    totals_of,
)
from deltalog.protocol.actions import AddFile, DeletionVector, RemoveFile
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import checksum_path
from tests.support.core import ICT, SCHEMA, environment, memory, rows
from tests.support.core.strategies import examples

_edges = [edge + by for edge in (*SIZE_BINS, *DELETED_BINS) for by in (-1, 0, 1) if edge + by >= 0]
_sizes = st.sampled_from(_edges) | st.integers(0, 2**40)
_vectors = st.none() | st.builds(
    DeletionVector,
    storage_type=st.just("u"),
    path_or_inline_dv=st.just("ab^-aqEH.-t@S}K{vb[*k^"),
    size_in_bytes=st.just(1),
    cardinality=_sizes,
)


def _add(number: int, size: int, vector: DeletionVector | None) -> AddFile:
    return AddFile(
        path=f"f{number}", partition_values={}, size=size, modification_time=0, data_change=True, deletion_vector=vector
    )


def _remove(add: AddFile) -> RemoveFile:
    return RemoveFile(path=add.path, size=add.size, deletion_vector=add.deletion_vector)


def _commit(version: int, adds: list[AddFile], removes: list[RemoveFile]) -> CommitActions:
    return CommitActions(version, None, False, None, None, adds, removes, [], [])


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(st.data())
def test_from_commit_to_commit_as_by_counting(data: st.DataObject) -> None:
    live: list[AddFile] = []
    totals: Totals | None = NO_FILES
    for version in range(data.draw(st.integers(0, 5))):
        gone = data.draw(st.lists(st.sampled_from(live), unique_by=lambda add: add.path)) if live else []
        new = [
            _add(version * 10 + n, data.draw(_sizes), data.draw(_vectors)) for n in range(data.draw(st.integers(0, 4)))
        ]
        live = [add for add in live if add not in gone] + new
        totals = totals_after(totals, _commit(version, new, [_remove(add) for add in gone]))
        counted = totals_of(files_table(live))
        assert totals == counted
        assert counted.size_bytes == sum(add.size for add in live) and counted.num_files == len(live)
        assert counted.deletions is not None and counted.deletions.num_vectors == sum(
            add.deletion_vector is not None for add in live
        )


@pytest.mark.parametrize(
    ("size", "begins"),
    [(0, 0), (8191, 0), (8192, 8192), (4 << 20, 4 << 20), ((8 << 20) - 1, 4 << 20), (1 << 50, 256 << 30)],
)
def test_the_bin_of_a_size(size: int, begins: int) -> None:
    sizes = totals_of(files_table([_add(0, size, None)])).sizes
    assert sizes is not None and sizes.counts[SIZE_BINS.index(begins)] == 1 and sizes == FileSizes().changed([size], 1)


def test_the_bins_are_those_of_the_protocol_and_its_engines() -> None:
    assert len(SIZE_BINS) == 95 and list(SIZE_BINS) == sorted(set(SIZE_BINS))
    assert DELETED_BINS == (0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 2_147_483_647)


def test_parts_add_up_to_the_whole() -> None:
    adds = [_add(n, 5000 * n, None if n % 2 else DeletionVector("u", "x", 1, n * 7)) for n in range(40)]
    table = files_table(adds)
    assert totals_of(table.slice(0, 13)) + totals_of(table.slice(13)) == totals_of(table)
    assert totals_of(pa.concat_tables([table.slice(0, 13), table.slice(13)])) == totals_of(table)
    assert (Totals(1, 2) + totals_of(table)).sizes is None


@pytest.mark.parametrize(
    "commit",
    [
        _commit(1, [], [RemoveFile(path="a")]),
        _commit(1, [AddFile(path="a", partition_values={}, size=1, modification_time=0, data_change=False)], []),
        _commit(1, [], [RemoveFile(path="a", size=10**6)]),
    ],
    ids=["a remove without a size", "a file that may have been live", "more than there was"],
)
def test_what_a_commit_does_not_tell_is_not_made_up(commit: CommitActions) -> None:
    assert totals_after(totals_of(files_table([_add(0, 10, None)])), commit) is None


def test_files_that_were_never_live_count_also_without_new_rows() -> None:
    totals = totals_of(files_table([_add(0, 10, None), _add(1, 20, None)]))
    moved = msgspec.structs.replace(_add(2, 30, None), data_change=False)
    commit = _commit(1, [moved], [_remove(_add(0, 10, None))])
    assert totals_after(totals, commit) is None
    assert totals_after(totals, commit, {"f2"}) == totals_of(files_table([_add(1, 20, None), _add(2, 30, None)]))
    again = msgspec.structs.replace(_add(0, 10, DeletionVector("u", "x", 1, 3)), data_change=False)
    assert totals_after(totals, _commit(1, [again], [_remove(_add(0, 10, None))])) == totals_of(
        files_table([again, _add(1, 20, None)])
    )


@pytest.mark.parametrize("vectors", [True, False])
def test_a_checksum_gives_back_what_was_put_into_it(vectors: bool) -> None:
    store = memory()
    properties = {**ICT, "delta.enableDeletionVectors": "true"} if vectors else ICT
    table = DeltaTable.create(store, SCHEMA, properties=properties, environment=environment(), data=rows(1, 2))
    table.append(rows(3))
    state = table.snapshot().log.state
    totals = totals_of(files_table([_add(n, 5000 * n, DeletionVector("u", "x", 1, n)) for n in range(9)]))
    found = decode_checksum(encode_checksum(state, totals, "txn", 7))
    assert found is not None and found.totals.sizes == totals.sizes
    assert found.totals.deletions == (totals.deletions if vectors else None)
    body = json.loads(store.get(checksum_path(table.version)))
    assert ("deletedRecordCountsHistogramOpt" in body) is vectors
    assert sum(body["fileSizeHistogram"]["fileCounts"]) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"fileCounts": [1]},
        {"fileCounts": "x"},
        {"totalBytes": [0] * 94},
        {"sortedBinBoundaries": [0, 1]},
        {"fileCounts": [-1, 10] + [0] * 93},
    ],
)
def test_a_histogram_that_cannot_be_true_is_not_carried_on(change: dict[str, object]) -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    totals = totals_of(files_table([_add(n, 5000 * n, None) for n in range(9)]))
    body = json.loads(encode_checksum(table.snapshot().log.state, totals, "txn", None))
    body["fileSizeHistogram"].update(change)
    found = decode_checksum(json.dumps(body).encode())
    assert found is not None and found.totals == Totals(totals.num_files, totals.size_bytes)


def test_deletions_that_cannot_be_true_are_not_carried_on() -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    table = DeltaTable.create(memory(), SCHEMA, properties=properties, environment=environment())
    body = json.loads(encode_checksum(table.snapshot().log.state, NO_FILES, "txn", None))
    assert body["numDeletionVectorsOpt"] == 0
    for change in (
        {"numDeletedRecordsOpt": -1},
        {"deletedRecordCountsHistogramOpt": {"deletedRecordCounts": [1] * 10}},
    ):
        found = decode_checksum(json.dumps({**body, **change}).encode())
        assert found is not None and found.totals.deletions is None
    found = decode_checksum(json.dumps(body).encode())
    assert found is not None and found.totals.deletions == Deletions()


def test_transactions_with_a_retention_are_no_part_of_a_checksum() -> None:
    store = memory()
    table = DeltaTable.create(
        store, SCHEMA, properties={"delta.setTransactionRetentionDuration": "interval 1 day"}, environment=environment()
    )
    table.append(rows(1), txn=("job", 1))
    assert "setTransactions" not in json.loads(store.get(checksum_path(1)))
    assert DeltaTable.open(store).snapshot().transaction_version("job") == 1
