from __future__ import annotations

from dataclasses import replace

import pytest

from deltalog import CallError, SchemaMismatchError
from deltalog.protocol import column_paths
from deltalog.protocol.column_paths import parse_path, parse_paths, path_text
from deltalog.schema import ArrayType, MapType, PrimitiveType, StructField, StructType


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b c.d", ("a", "b c", "d")),
        ("`a.b`.c", ("a.b", "c")),
        ("a.`b``c`", ("a", "b`c")),
        ("ä.`.`", ("ä", ".")),
    ],
)
def test_paths_and_their_text(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path
    assert parse_path(path_text(path)) == path
    assert parse_path(list(path)) == path


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "a`b", "`a`b", "``", "a.``"])
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(CallError, match="not the path"):
        parse_path(text)


LONG = PrimitiveType("long")
TABLE = StructType(
    (
        StructField("a", LONG),
        StructField("S", StructType((StructField("x", LONG), StructField("y", LONG)))),
        StructField("m", MapType(LONG, ArrayType(StructType((StructField("z", LONG),))))),
    )
)
DEEP = ("m", "value", "element", "z")


def test_lists_of_paths() -> None:
    assert parse_paths("id, a.b, `a,b`.c") == [("id",), ("a", "b"), ("a,b", "c")]


@pytest.mark.parametrize("path", [("a",), ("s", "X"), DEEP])
def test_a_column_is_looked_up_changed_and_dropped_by_its_path(path: column_paths.Path) -> None:
    found = column_paths.find(TABLE, path)
    assert found.name.lower() == path[-1].lower()
    renamed = column_paths.change(TABLE, path, lambda column: replace(column, name="new"))
    assert column_paths.find(renamed, (*path[:-1], "new")).data_type == found.data_type
    assert column_paths.change(renamed, (*path[:-1], "new"), lambda column: found) == TABLE
    wider = column_paths.add(TABLE, path[:-1], StructField("added", LONG))
    assert column_paths.drop(wider, (*path[:-1], "added")) == TABLE


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (("b",), r"no column b: 'b' is not one of a, S, m"),
        (("s", "q"), r"no column s\.q"),
        (("a", "x"), r"does not lead to a field of a struct: it reaches long"),
        (("m", "z"), r"it reaches map"),
        (("m", "key", "z"), r"it reaches long"),
    ],
)
def test_a_path_that_leads_nowhere(path: column_paths.Path, says: str) -> None:
    for edit in (column_paths.find, column_paths.drop):
        with pytest.raises(SchemaMismatchError, match=says):
            edit(TABLE, path)


def test_a_name_that_is_taken_and_the_last_field_of_a_struct() -> None:
    with pytest.raises(SchemaMismatchError, match=r"Column s\.X already"):
        column_paths.add(TABLE, ("s",), StructField("X", LONG))
    with pytest.raises(SchemaMismatchError, match=r"Column S\.y already"):
        column_paths.change(TABLE, ("S", "x"), lambda column: replace(column, name="y"))
    with pytest.raises(SchemaMismatchError, match="the only column; it cannot be dropped"):
        column_paths.drop(TABLE, DEEP)
