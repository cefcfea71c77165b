"""Converting file actions to rows of Arrow tables, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog.engine import AddFile
from deltalog.log.file_tables import FILES, TOMBSTONES, add_actions, files_table, remove_actions, tombstones_table
from deltalog.protocol.actions import DeletionVector, RemoveFile

_texts = st.text(max_size=5)
_optional_numbers = st.none() | st.integers(0, 2**63 - 1)
_vectors = st.builds(
    DeletionVector,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=_texts,
    offset=_optional_numbers,
    size_in_bytes=st.integers(0, 99),
    cardinality=st.integers(0, 99),
)
_adds = st.builds(
    AddFile,
    path=_texts,
    partition_values=st.dictionaries(_texts, st.none() | _texts, max_size=2),
    size=st.integers(0, 2**63 - 1),
    modification_time=st.integers(0, 2**63 - 1),
    data_change=st.just(False),
    stats=st.none() | _texts,
    tags=st.none() | st.dictionaries(_texts, st.none() | _texts, max_size=2),
    deletion_vector=st.none() | _vectors,
    base_row_id=_optional_numbers,
    default_row_commit_version=_optional_numbers,
    clustering_provider=st.none() | _texts,
)


@given(st.lists(_adds, max_size=5))
def test_adds_survive_the_table(adds: list[AddFile]) -> None:
    table = files_table(adds)
    assert table.schema == FILES and add_actions(table) == adds


@pytest.mark.parametrize("data_change", [True, False])
@given(adds=st.lists(_adds, max_size=5))
def test_a_remove_has_what_the_add_of_its_file_says(adds: list[AddFile], data_change: bool) -> None:
    removes = remove_actions(files_table(adds), 555, data_change)
    same = (
        "path", "partition_values", "size", "tags", "deletion_vector", "base_row_id", "default_row_commit_version",
    )  # fmt: skip
    assert [[getattr(each, name) for name in same] for each in removes] == [
        [getattr(each, name) for name in same] for each in adds
    ]
    assert all((each.deletion_timestamp, each.data_change) == (555, data_change) for each in removes)


def test_tombstones_hold_what_checkpoints_hold() -> None:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)
    removes = [
        RemoveFile(path="a", deletion_timestamp=1, partition_values={"p": None}, size=2, deletion_vector=vector),
        RemoveFile(path="b", deletion_timestamp=None),
    ]
    table = tombstones_table(removes)
    assert table.schema == TOMBSTONES
    assert table.select(["path", "deletion_timestamp", "size"]).to_pylist() == [
        {"path": "a", "deletion_timestamp": 1, "size": 2},
        {"path": "b", "deletion_timestamp": None, "size": None},
    ]
    assert [None if v is None else v["cardinality"] for v in table["deletion_vector"].to_pylist()] == [6, None]
