from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog import TableNotFoundError, VersionNotFoundError
from deltalog.errors import MissingVersionError
from deltalog.log.segment import Listing, choose_segment, first_readable, parse_listing, versions_by_time
from deltalog.protocol.paths import LogFileKind
from deltalog.storage.base import FileMeta

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def name(version: int, suffix: str = "json") -> str:
    return f"{version:020d}.{suffix}"


def listing(*names: str) -> Listing:
    return parse_listing(FileMeta(each, 1, 1) for each in sorted(names))


def commits(*versions: int) -> list[str]:
    return [name(v) for v in versions]


def test_a_listing_is_sorted_by_what_names_say() -> None:
    found = listing(
        *commits(0, 1, 2, 10),
        name(1, "crc"),
        name(2, "checkpoint.parquet"),
        name(2, "00000000000000000003.compacted.json"),
        "_last_checkpoint",
        "_staged_commits",
        ".00000000000000000004.json.crc",
        name(5, "json.tmp"),
    )
    assert found.commits == (0, 1, 2, 10)
    assert found.checksums == frozenset({1})
    assert [(c.version, c.kind) for c in found.checkpoints] == [(2, LogFileKind.CLASSIC_CHECKPOINT)]
    assert not found.is_empty and set(found.metas) == {0, 1, 2, 10}


@pytest.mark.parametrize("stranger", ["99999999999999999999.json", "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٧.json", name(7, "JSON")])
def test_strangers_are_no_commits(stranger: str) -> None:
    assert listing(name(0), stranger).commits == (0,)


def test_a_checkpoint_in_parts_counts_when_all_are_there() -> None:
    parts = [name(4, f"checkpoint.{part:010d}.0000000003.parquet") for part in (1, 2, 3)]
    assert not listing(*parts[:2]).checkpoints
    assert not listing(parts[0], parts[0], parts[2]).checkpoints
    whole = listing(*reversed(parts)).checkpoints
    assert [c.names for c in whole] == [tuple(parts)]


def test_parts_of_two_writers_do_not_mix() -> None:
    mixed = [name(4, "checkpoint.0000000001.0000000002.parquet"), name(4, "checkpoint.0000000002.0000000003.parquet")]
    assert not listing(*mixed).checkpoints


def test_the_newest_checkpoint_is_taken_and_commits_after_it() -> None:
    found = choose_segment(
        listing(*commits(*range(8)), name(2, "checkpoint.parquet"), name(5, "checkpoint.parquet"), name(7, "crc")), "/t"
    )
    assert (found.version, found.checkpoint_version, found.commits, found.has_checksum) == (7, 5, (6, 7), True)


def test_a_checkpoint_of_the_very_version_needs_no_commit() -> None:
    found = choose_segment(listing(*commits(0, 1, 2), name(2, "checkpoint.parquet")), "/t")
    assert (found.version, found.checkpoint_version, found.commits) == (2, 2, ())


def test_an_older_version_takes_no_later_checkpoint() -> None:
    log = listing(*commits(*range(8)), name(2, "checkpoint.parquet"), name(5, "checkpoint.parquet"))
    found = choose_segment(log, "/t", 4)
    assert (found.version, found.checkpoint_version, found.commits, found.has_checksum) == (4, 2, (3, 4), False)
    unusable = choose_segment(log, "/t", 6, [log.checkpoints[1]])
    assert (unusable.checkpoint_version, unusable.commits) == (2, (3, 4, 5, 6))
    assert choose_segment(log, "/t", 6, log.checkpoints).commits == tuple(range(7))


def test_of_one_version_the_newer_kind_comes_first() -> None:
    log = listing(
        *commits(0, 1),
        name(1, "checkpoint.parquet"),
        name(1, f"checkpoint.{UUID}.parquet"),
        name(1, "checkpoint.0000000001.0000000001.parquet"),
    )
    assert [c.kind for c in log.checkpoints][-1] is LogFileKind.UUID_CHECKPOINT
    found = choose_segment(log, "/t")
    assert found.checkpoint is not None and found.checkpoint.kind is LogFileKind.UUID_CHECKPOINT


@pytest.mark.parametrize("names", [[], ["_last_checkpoint"], [name(0, "crc")], ["part-1.parquet"]])
def test_no_commit_is_no_table(names: list[str]) -> None:
    with pytest.raises(TableNotFoundError, match=r"no Delta table at /t.*DeltaTable\.create"):
        choose_segment(listing(*names), "/t")


@pytest.mark.parametrize("version", [-1, 3, 2**62])
def test_versions_that_do_not_exist_give_the_bounds(version: int) -> None:
    with pytest.raises(
        VersionNotFoundError, match=f"/t has no version {version}. Versions 0 to 2 can be read"
    ) as caught:
        choose_segment(listing(*commits(0, 1, 2)), "/t", version)
    assert (caught.value.version, caught.value.earliest, caught.value.latest) == (version, 0, 2)


def test_versions_that_were_cleaned_up_give_the_bounds() -> None:
    log = listing(*commits(3, 4, 5, 6), name(4, "checkpoint.parquet"))
    for version in (0, 3):
        with pytest.raises(VersionNotFoundError) as caught:
            choose_segment(log, "/t", version)
        assert (caught.value.earliest, caught.value.latest) == (4, 6)
    assert choose_segment(log, "/t", 4).checkpoint_version == 4


def test_a_gap_is_named() -> None:
    with pytest.raises(MissingVersionError, match=r"00000000000000000002\.json is missing.*later versions") as caught:
        choose_segment(listing(*commits(0, 1, 3, 4)), "/t")
    assert caught.value.version == 2
    before_the_gap = choose_segment(listing(*commits(0, 1, 3, 4)), "/t", 1)
    assert before_the_gap.commits == (0, 1)


def test_a_gap_before_a_checkpoint_does_not_matter() -> None:
    log = listing(*commits(0, 1, 3, 4, 5), name(4, "checkpoint.parquet"))
    assert choose_segment(log, "/t").commits == (5,)


def test_a_log_without_its_beginning() -> None:
    with pytest.raises(MissingVersionError, match="the log begins at version 3 and no readable checkpoint"):
        choose_segment(listing(*commits(3, 4)), "/t")


def test_commits_that_are_gone_though_a_checkpoint_is_older() -> None:
    with pytest.raises(MissingVersionError, match="missing"):
        choose_segment(listing(*commits(0, 1, 2, 6, 7), name(2, "checkpoint.parquet")), "/t")


@pytest.mark.parametrize(
    ("names", "versions"),
    [
        (commits(0, 1, 2), [0, 1, 2]),
        ([*commits(3, 4, 5), name(4, "checkpoint.parquet")], [4, 5]),
        ([*commits(4, 5), name(4, "checkpoint.parquet")], [4, 5]),
        (commits(3, 4), []),
        ([], []),
        ([name(4, "checkpoint.parquet")], []),
        ([*commits(0, 1, 2), name(2, "checkpoint.parquet")], [0, 1, 2]),
        ([*commits(7, 8), name(6, "checkpoint.parquet")], [7, 8]),
        ([*commits(8, 9), name(6, "checkpoint.parquet")], [8, 9]),
        ([*commits(1, 2)], []),
        ([*commits(1, 2), name(0, "checkpoint.parquet")], [1, 2]),
        ([*commits(0, 1, 3, 4, 5), name(4, "checkpoint.parquet")], [0, 1, 3, 4, 5]),
        ([*commits(3, 4, 7, 8), name(6, "checkpoint.parquet")], [7, 8]),
    ],
)
def test_versions_that_a_timestamp_can_name(names: list[str], versions: list[int]) -> None:
    assert list(versions_by_time(listing(*names))) == versions


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_versions_that_a_timestamp_can_name_are_commits_from_the_first_readable_version_on(
    present: set[int], checkpoints: set[int]
) -> None:
    log = listing(*commits(*present), *(name(v, "checkpoint.parquet") for v in checkpoints))
    first = first_readable(log)
    assert list(versions_by_time(log)) == [v for v in sorted(present) if first is not None and v >= first]


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)), st.integers(-1, 9))
def test_a_listing_through_a_version_is_that_of_its_files(present: set[int], checkpoints: set[int], last: int) -> None:
    def names(most: int) -> list[str]:
        versions = [version for version in sorted(present) if version <= most]
        files = [*commits(*versions), *(name(v, "crc") for v in versions)]
        return [*files, *(name(v, "checkpoint.parquet") for v in checkpoints if v <= most)]

    assert listing(*names(9)).through(last) == listing(*names(last))


def test_a_version_before_the_checkpoint_that_a_log_begins_with_is_said_to_be_gone() -> None:
    log = listing(*commits(7, 8), name(6, "checkpoint.parquet"))
    assert choose_segment(log, "/t", 6).commits == ()
    with pytest.raises(VersionNotFoundError, match="Versions 6 to 8 can be read"):
        choose_segment(log, "/t", 5)


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_the_first_version_that_can_be_read_is_the_first_with_a_segment(
    present: set[int], checkpoints: set[int]
) -> None:
    log = listing(*commits(*present), *(name(v, "checkpoint.parquet") for v in checkpoints))
    readable = []
    for version in range(10):
        with contextlib.suppress(TableNotFoundError, MissingVersionError, VersionNotFoundError):
            readable.append(choose_segment(log, "/t", version).version)
    assert first_readable(log) == min(readable, default=None)


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)), st.none() | st.integers(0, 9))
def test_a_segment_rebuilds_its_version_or_is_refused(
    present: set[int], checkpoints: set[int], version: int | None
) -> None:
    log = listing(*commits(*present), *(name(v, "checkpoint.parquet") for v in checkpoints))
    try:
        found = choose_segment(log, "/t", version)
    except (TableNotFoundError, MissingVersionError, VersionNotFoundError):
        wanted = max(present | checkpoints, default=None) if version is None else version
        starts = {v + 1 for v in checkpoints if wanted is not None and v <= wanted} | {0}
        rebuildable = [s for s in starts if wanted is not None and set(range(s, wanted + 1)) <= present]
        exists = wanted is not None and wanted <= max(present | checkpoints, default=-1)
        # Only the newest checkpoint is tried, although an older one might suffice in a log with a gap.
        newest = max((v for v in checkpoints if wanted is not None and v <= wanted), default=-1)
        assert not exists or newest + 1 not in rebuildable
        return
    assert found.version in present or found.version == found.checkpoint_version
    assert set(found.commits) <= present
    assert found.commits == tuple(range(found.checkpoint_version + 1, found.version + 1))
    assert found.checkpoint_version == -1 or found.checkpoint_version in checkpoints
