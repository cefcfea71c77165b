from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import CorruptTableError
from deltalog.arrow_arrays import strings_map
from deltalog.engine import AddFile, Metadata, Protocol
from deltalog.log import replay
from deltalog.log.file_tables import FILES, TOMBSTONES, files_table, remove_actions
from deltalog.log.replay import Commits, PartialState, advance, file_key, live_files, tail
from deltalog.protocol.actions import DeletionVector, DomainMetadata, RemoveFile, SetTransaction
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.retention import unexpired_tombstones
from tests.support.core import metadata_action, protocol_action
from tests.support.core.strategies import examples

VECTORS = [
    None,
    DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4),
    DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 5),
    DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6),
    DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 44, 6),
    DeletionVector("p", "file:/t/x.bin", 44, 6, 0),
]
PATHS = ["a", "b", "c%20d", "é", "a\0b"]


def add(path: str, vector: DeletionVector | None = None, **more: Any) -> AddFile:
    base: dict[str, Any] = {"partition_values": {}, "size": 1, "modification_time": 1, "data_change": True}
    return AddFile(path=path, deletion_vector=vector, **{**base, **more})


def remove(path: str, vector: DeletionVector | None = None, time: int | None = 100, **more: Any) -> RemoveFile:
    return RemoveFile(path=path, deletion_vector=vector, deletion_timestamp=time, **more)


def commit(
    version: int, adds: Sequence[AddFile] = (), removes: Sequence[RemoveFile] = (), **more: Any
) -> CommitActions:
    base: dict[str, Any] = {
        "commit_info": None, "commit_info_first": False, "protocol": None, "metadata": None,
        "adds": list(adds), "removes": list(removes), "transactions": [], "domains": [],
    }  # fmt: skip
    return CommitActions(version, **{**base, **more})


def _key(file: tuple[str, DeletionVector | None]) -> str:
    return file_key(*file)


_files = st.tuples(st.sampled_from(PATHS), st.sampled_from(VECTORS))


@st.composite
def _history(draw: st.DrawFn) -> list[CommitActions]:
    commits = []
    for version in range(draw(st.integers(0, 6))):
        # A commit has at most one action for each logical file.
        chosen = draw(st.lists(_files, max_size=5, unique_by=_key))
        kinds = draw(st.lists(st.booleans(), min_size=len(chosen), max_size=len(chosen)))
        adds = [add(*file, size=draw(st.integers(0, 99))) for file, kind in zip(chosen, kinds, strict=True) if kind]
        removes = [
            remove(*file, time=draw(st.none() | st.integers(0, 200)))
            for file, kind in zip(chosen, kinds, strict=True)
            if not kind
        ]
        commits.append(commit(version, adds, removes))
    return commits


def _brute_force(commits: Sequence[CommitActions]) -> tuple[dict[str, AddFile], dict[str, RemoveFile]]:
    """Replays the log action by action, as PROTOCOL.md describes."""
    live: dict[str, AddFile] = {}
    dead: dict[str, RemoveFile] = {}
    for each in commits:
        for removed in each.removes:
            key = file_key(removed.path, removed.deletion_vector)
            live.pop(key, None)
            dead[key] = removed
        for added in each.adds:
            key = file_key(added.path, added.deletion_vector)
            live[key] = added
            dead.pop(key, None)
    return live, dead


def _keyed(table: pa.Table) -> dict[str, dict[str, Any]]:
    found = {}
    for row in table.to_pylist():
        vector = row["deletion_vector"]
        key = file_key(row["path"], None if vector is None else DeletionVector(**vector))
        assert key not in found, "a logical file is listed twice"
        found[key] = row
    return found


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(_history(), st.integers(0, 6), st.integers(-1, 200))
def test_replay_agrees_with_one_action_after_the_other(
    commits: list[CommitActions], cut: int, keep_after_ms: int
) -> None:
    live, dead = _brute_force(commits)
    head, rest = commits[:cut], commits[cut:]
    # The base consists of the files that a checkpoint after the first ``cut`` commits would contain.
    base = live_files(None, head)
    found = live_files(base, rest)
    assert found.schema == FILES
    rows = _keyed(found)
    assert {key: row["size"] for key, row in rows.items()} == {key: each.size for key, each in live.items()}

    base_dead = tail(Commits(head)).tombstones(-(2**62))
    after = tail(Commits(rest))
    kept = pa.concat_tables([after.on(unexpired_tombstones(base_dead, keep_after_ms)), after.tombstones(keep_after_ms)])
    assert kept.schema == TOMBSTONES
    expected = {key: each for key, each in dead.items() if (each.deletion_timestamp or 0) > keep_after_ms}
    assert _keyed(kept).keys() == expected.keys()
    assert {k: r["deletion_timestamp"] or 0 for k, r in _keyed(kept).items()} == {
        k: each.deletion_timestamp or 0 for k, each in expected.items()
    }


def test_what_removes_a_file_names_the_same_logical_file() -> None:
    adds = [add("a", vector, partition_values={"p": "1"}, tags={"t": "x"}, size=7) for vector in VECTORS]
    removes = remove_actions(files_table(adds), 555)
    assert [file_key(r.path, r.deletion_vector) for r in removes] == [file_key(a.path, a.deletion_vector) for a in adds]
    assert all(
        (r.size, r.partition_values, r.deletion_timestamp, r.data_change) == (7, {"p": "1"}, 555, True) for r in removes
    )
    assert live_files(files_table(adds), [commit(1, removes=removes)]).num_rows == 0


@pytest.mark.parametrize("vectors", [(None,), VECTORS])
def test_files_that_commits_replace_are_found_in_either_way(vectors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both code paths, one file at a time and with Arrow, find the replaced files."""
    files = files_table([add(f"{number}.parquet", vectors[number % len(vectors)]) for number in range(40)])
    names = [f"{number}.parquet" for number in range(0, 60, 3)]
    after = tail(Commits([commit(1, [add(names[0])], [remove(name, vectors[-1]) for name in names[1:]])]))
    expected = {key: row for key, row in _keyed(files).items() if key not in after.keys}
    assert 20 < len(expected) < 40
    for more in (0, 4):
        monkeypatch.setattr(replay, "_MORE_KEYS", more)
        assert _keyed(after.on(files)) == expected
        assert after.on(files.slice(1, 1)).equals(files.slice(1, 1)) and after.on(files.slice(0, 1)).num_rows == 0


def test_a_new_vector_takes_the_place_of_the_old_one() -> None:
    first = commit(0, [add("a")])
    second = commit(1, [add("a", VECTORS[1])], [remove("a")])
    third = commit(2, [add("a", VECTORS[2])], [remove("a", VECTORS[1])])
    assert [r["deletion_vector"] for r in live_files(None, [first]).to_pylist()] == [None]
    for commits in ([first, second, third], [third]):
        base = None if len(commits) == 3 else live_files(None, [first, second])
        (row,) = live_files(base, commits).to_pylist()
        assert row["deletion_vector"]["offset"] == 5


def test_adding_again_replaces() -> None:
    commits = [commit(0, [add("a", size=1)]), commit(1, [add("a", size=2)])]
    assert live_files(None, commits)["size"].to_pylist() == [2]
    assert live_files(live_files(None, commits[:1]), commits[1:])["size"].to_pylist() == [2]


def test_nothing_at_all() -> None:
    assert live_files(None, []).num_rows == 0
    assert tail(Commits()).tombstones(0).num_rows == 0


# ------------------------------------------------------------------------------------------ replayed state

PROTOCOL = Protocol.from_json(protocol_action()["protocol"])
METADATA = Metadata.from_json(metadata_action()["metaData"])


def test_the_newest_protocol_and_metadata_win() -> None:
    newer = Metadata.from_json(metadata_action({"x": "y"})["metaData"])
    upgraded = Protocol.from_json(protocol_action("appendOnly")["protocol"])
    state = advance(
        PartialState(),
        [
            commit(0, protocol=PROTOCOL, metadata=METADATA),
            commit(1, metadata=newer),
            commit(2),
            commit(3, protocol=upgraded),
        ],
    )
    assert (state.protocol, state.metadata) == (upgraded, newer)


def test_transactions_and_domains() -> None:
    def domain(name: str, text: str, removed: bool = False) -> DomainMetadata:
        return DomainMetadata(domain=name, configuration=text, removed=removed)

    state = advance(
        PartialState(),
        [
            commit(
                0,
                transactions=[SetTransaction(app_id="a", version=5), SetTransaction(app_id="b", version=1)],
                domains=[domain("x", "1"), domain("y", "1")],
            ),
            commit(1, transactions=[SetTransaction(app_id="a", version=2)], domains=[domain("x", "", True)]),
            commit(2, domains=[domain("y", "2"), domain("z", "", True)]),
        ],
    )
    assert {k: t.version for k, t in state.transactions.items()} == {"a": 2, "b": 1}  # the newest, not the largest
    assert {k: d.configuration for k, d in state.domains.items()} == {"y": "2"}


def test_advancing_leaves_the_old_state_alone() -> None:
    before = advance(PartialState(), [commit(0, transactions=[SetTransaction(app_id="a", version=1)])])
    advance(before, [commit(1, transactions=[SetTransaction(app_id="a", version=2)])])
    assert before.transactions["a"].version == 1


@pytest.mark.parametrize(
    ("given", "missing"), [({"metadata": METADATA}, "protocol"), ({"protocol": PROTOCOL}, "metaData"), ({}, "protocol")]
)
def test_a_log_without_protocol_or_metadata(given: dict[str, Any], missing: str) -> None:
    with pytest.raises(CorruptTableError, match=f"/t: there is no {missing} action in or before version 4"):
        PartialState(**given).complete("/t", 4)


def test_maps_with_nothing_in_them() -> None:
    array = strings_map([{}, None, {"a": None, "b": ""}, {"c": "d"}])
    assert array.to_pylist() == [[], None, [("a", None), ("b", "")], [("c", "d")]]
    assert strings_map([]).to_pylist() == []
    assert strings_map([None]).to_pylist() == [None]
