"""Which files an optimization combines: how bins depend on partitions, file sizes, file order and deleted rows."""

from __future__ import annotations

import random

import pytest

from deltalog.log.file_tables import files_table
from deltalog.maintenance.optimize.plan import (
    Bin,
    OptimizeReport,
    in_batches,
    metrics,
    small_or_sparse,
    whole_partitions,
    with_vectors,
)
from deltalog.protocol.actions import AddFile, DeletionVector


def file(size: int, p: str | None = "a", deleted: int = 0, rows: int | None = 100, time: int = 1) -> AddFile:
    vector = DeletionVector("i", "x", 1, deleted) if deleted else None
    stats = None if rows is None else f'{{"numRecords":{rows}}}'
    return AddFile(
        path=f"f{size}",
        partition_values={"p": p},
        size=size,
        modification_time=time,
        data_change=True,
        stats=stats,
        deletion_vector=vector,
    )


def numbers(bins: list[Bin]) -> list[tuple[int, ...]]:
    return [each.numbers for each in bins]


def test_small_files_of_one_partition_share_bins_up_to_the_target():
    files = files_table([file(40), file(50), file(60), file(10, "b"), file(10, "b"), file(10, None)])
    bins = small_or_sparse(files, 100)
    assert numbers(bins) == [(0, 1), (3, 4)]
    assert [each.size_bytes for each in bins] == [90, 20] and bins[1].partition == (("p", "b"),)


def test_large_files_stay():
    assert numbers(small_or_sparse(files_table([file(100), file(101), file(99), file(1)]), 100)) == [(2, 3)]


def test_a_small_file_alone_stays():
    assert small_or_sparse(files_table([file(1), file(1, "b")]), 100) == []


@pytest.mark.parametrize(("deleted", "rows", "chosen"), [(5, 100, []), (6, 100, [(0,)]), (6, None, []), (6, 0, [])])
def test_a_file_is_rewritten_alone_if_more_than_five_percent_are_deleted(deleted, rows, chosen):
    for size in (10, 1000):
        assert numbers(small_or_sparse(files_table([file(size, deleted=deleted, rows=rows)]), 100)) == chosen


def test_the_order_of_writing_is_kept():
    files = files_table([file(30, time=3), file(30, time=1), file(30, time=2), file(30, time=4)])
    assert numbers(small_or_sparse(files, 100)) == [(1, 2, 0)]


def test_a_file_that_fits_in_an_earlier_bin_goes_there():
    files = files_table([file(90, time=1), file(20, time=2), file(90, time=3), file(20, time=4)])
    assert numbers(small_or_sparse(files, 100)) == [(1, 3)]


def test_a_purge_takes_all_files_with_vectors_and_no_other():
    files = files_table([file(10, deleted=1), file(10), file(500, deleted=1), file(10, "b", deleted=1)])
    assert numbers(with_vectors(files, 100)) == [(0,), (2,), (3,)]
    assert numbers(with_vectors(files, 1000)) == [(0, 2), (3,)]


def test_a_sort_takes_whole_partitions():
    files = files_table([file(10), file(500), file(10, "b")])
    assert numbers(whole_partitions(files, 1000)) == [(0, 1), (2,)]


def test_no_file_is_lost_or_twice_and_no_bin_is_too_large():
    chance = random.Random(7)
    for _ in range(200):
        given = [
            file(chance.randrange(1, 150), chance.choice("ab"), chance.choice((0, 0, 20)), time=chance.randrange(5))
            for _ in range(chance.randrange(40))
        ]
        files = files_table(given)
        for bins in (small_or_sparse(files, 100), with_vectors(files, 100), whole_partitions(files, 100)):
            taken = [number for each in bins for number in each.numbers]
            assert len(taken) == len(set(taken))
            for each in bins:
                assert {given[n].partition_values["p"] for n in each.numbers} == {dict(each.partition)["p"]}
                assert each.size_bytes == sum(given[n].size for n in each.numbers)
                assert each.size_bytes <= 100 or len(each.numbers) == 1
        assert len([n for each in whole_partitions(files, 100) for n in each.numbers]) == len(given)


def test_no_files():
    assert small_or_sparse(files_table([]), 100) == with_vectors(files_table([]), 1) == []


def test_batches_have_at_most_so_many_bytes_or_one_bin():
    bins = [Bin((), (number,), size) for number, size in enumerate([40, 60, 1, 500, 1])]
    assert [numbers(batch) for batch in in_batches(bins, 100)] == [[(0,), (1,)], [(2,)], [(3,)], [(4,)]]
    assert list(in_batches([], 100)) == []


def test_metrics_are_those_of_delta_spark():
    found = metrics([10, 20], [4, 1, 3, 2], 1)
    assert found == {
        "numRemovedFiles": 2, "numRemovedBytes": 30, "numAddedFiles": 4, "numAddedBytes": 10,
        "numDeletionVectorsRemoved": 1,
        "minFileSize": 1, "p25FileSize": 2, "p50FileSize": 3, "p75FileSize": 4, "maxFileSize": 4,
    }  # fmt: skip
    assert metrics([10], [], 1)["maxFileSize"] == 0


def test_the_text_of_a_report():
    report = OptimizeReport("t", "OPTIMIZE", False, 3, 5, 1, 1, {"a": 2, "b": 3}, {"c": 4}, 1, 7, 2)
    assert str(report).splitlines() == [
        "Table     t",
        "Files     2 of 5 rewritten, 5 bytes",
        "Into      1 files, 4 bytes",
        "Vectors   1 deletion vectors",
        "Rows      7",
        "Left      2 groups of files that another writer changed meanwhile",
    ]
    assert report.to_json()["added_bytes"] == 4 and report.to_json()["commits"] == []
