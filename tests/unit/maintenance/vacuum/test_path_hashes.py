"""Sets of paths, of which only hashes are kept in memory."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog.maintenance.vacuum import path_hashes
from deltalog.maintenance.vacuum.path_hashes import NeededPaths, PathHashes, folded

# The paths are relative to a root, so none begins with a slash.
PATHS = st.lists(st.text("aAéÉ\u0301ß/=", max_size=5).map(lambda path: path.lstrip("/")), max_size=12)


@given(PATHS, PATHS)
def test_a_set_has_what_was_added(added: list[str], asked: list[str]) -> None:
    found = PathHashes(added[:5])
    assert [path in found for path in asked] == [path in added[:5] for path in asked]
    found.add(added[5:])
    assert [path in found for path in (*asked, *added)] == [path in added for path in (*asked, *added)]


@given(PATHS, PATHS, PATHS)
def test_what_others_lack(first: list[str], second: list[str], third: list[str]) -> None:
    expected: dict[str, set[int]] = {}
    for path in {*first} - {*second} - {*third}:
        directory, _, name = path.rpartition("/")
        expected.setdefault(directory, set()).add(hash(name))
    assert dict(PathHashes(first).lacking(PathHashes(second), PathHashes(third))) == expected


def test_names_are_added_by_their_hashes() -> None:
    found = PathHashes(["a/x"])
    assert "a/y" not in found
    found.add_hashes("a", array("q", [hash("y")]))
    found.add_hashes("b", array("q", [hash("x")]))
    assert "a/x" in found and "a/y" in found and "b/x" in found and "b/y" not in found and "x" not in found


@given(PATHS, PATHS)
def test_other_spellings_of_needed_paths(added: list[str], asked: list[str]) -> None:
    needed = NeededPaths(added)
    spelled = {*map(folded, added)}
    for path in (*added, *asked):
        directory, _, name = folded(path).rpartition("/")
        assert any(hash(name) in names for names in needed.spellings(directory)) >= (folded(path) in spelled)
        assert (path in needed) == (path in added)


@pytest.mark.parametrize(
    ("named", "listed"),
    [("p=A/x.parquet", "P=a/X.parquet"), ("e\u0301", "é"), ("straße", "STRASSE"), ("x", "X"), ("X", "x")],
)
def test_spellings_by_case_and_normalisation(named: str, listed: str) -> None:
    directory, _, name = folded(listed).rpartition("/")
    assert any(hash(name) in names for names in NeededPaths([named]).spellings(directory))
    assert not any(hash(name) in names for names in NeededPaths([f"{named}2"]).spellings(directory))


def test_few_directories_are_in_memory_as_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_hashes, "_MOST_NAMES", 30)
    paths = [f"{number % 20}/{number}" for number in range(200)]
    found = PathHashes(paths)
    asked = [*paths, *[f"{number}/x" for number in range(20)]]
    random.Random(1).shuffle(asked)
    assert [path for path in asked if path in found] == [path for path in asked if not path.endswith("x")]
    assert sum(map(len, found._sets.values())) <= 30 and found._held <= 40


def test_a_listing_may_go_back_and_forth_between_a_directory_and_those_below_it() -> None:
    paths = [f"a/{number}" for number in range(path_hashes._MOST_NAMES + 1)]
    found = PathHashes([*paths, *[f"a/{number}/x" for number in range(50)]])
    whole = found.of("a")
    for number in range(50):
        assert found.of(f"a/{number}") == {hash("x")} and found.of("a") is whole
