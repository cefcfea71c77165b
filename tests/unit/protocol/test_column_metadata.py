"""The column metadata that every reader can parse."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog import SchemaMismatchError
from deltalog.protocol.column_metadata import DEFAULT_KEY, GENERATION_KEY, IDENTITY_KEY, check_metadata, is_text
from deltalog.schema import PrimitiveType, StructField, StructType


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"comment": "c", DEFAULT_KEY: "1", GENERATION_KEY: "a + 1", IDENTITY_KEY: -5},
        {"any": None, "flag": True, "n": 2**63 - 1, "f": 1.5, "l": [1, 2], "m": {"deep": [{"x": 1}, {"y": "z"}]}},
        {"empty": [], "t": ("a", "b")},
        {"delta.identity.allowExplicitInsert": False, "delta.columnMapping.id": 7},
    ],
)
def test_what_readers_can_read(metadata: dict[str, Any]) -> None:
    check_metadata(metadata, "a.b")
    column = StructField("c", PrimitiveType("long"), metadata=metadata)
    assert StructType.from_json(StructType((column,)).to_json()).names == ["c"]


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ([], "must be a mapping"),
        ({"k": 2**63}, "more than 64 bits"),
        ({"k": float("nan")}, "holds nan"),
        ({"k": "\ud800"}, "not Unicode"),
        ({1: "k"}, "the key 1"),
        ({"k": {"\ud800": 1}}, "the key"),
        ({"k": [1, "a"]}, "a list of several kinds"),
        ({"k": [1, True]}, "a list of several kinds"),
        ({"k": [float("inf")]}, "holds inf"),
        ({"k": object()}, "holds <object"),
        ({"comment": 1}, "comment of column a.b must be text; got 1"),
        ({"delta.columnMapping.id": True}, "must be an integer; got True"),
        ({"delta.columnMapping.physicalName": 3}, "must be text"),
        ({"delta.identity.allowExplicitInsert": 1}, "must be True or False"),
    ],
)
def test_what_they_cannot_names_the_column(metadata: Any, says: str) -> None:
    with pytest.raises(SchemaMismatchError, match=r"of column a\.b") as caught:
        check_metadata(metadata, "a.b")
    assert says in str(caught.value)
    column = StructField("c", PrimitiveType("long"), metadata=metadata)
    with pytest.raises(SchemaMismatchError, match="of column c"):
        StructType((column,)).to_json()


def test_text_is_what_utf_8_holds() -> None:
    assert is_text("") and is_text("ä\0\U0010ffff") and not is_text("a\udfff")
