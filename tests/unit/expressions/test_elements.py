"""Elements of arrays, maps and structs in constraints, conditions and assignments; and functions that lengthen
strings."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import CallError, ConstraintViolationError, DeltaTable
from deltalog.expressions.compile import compile_expression
from deltalog.protocol import limits
from deltalog.protocol.schema import StructType

POINT = pa.struct([("x", pa.int32()), ("y", pa.int64())])
SCHEMA = pa.schema(
    [
        *(("id", pa.int32()), ("tags", pa.list_(pa.string())), ("sizes", pa.map_(pa.string(), pa.int32()))),
        *(("at", POINT), ("path", pa.list_(POINT)), ("name", pa.string())),
    ]
)


def rows(*tags: list[str] | None) -> pa.Table:
    made = [
        {"id": n, "tags": each, "sizes": [("a", n)], "at": {"x": n, "y": n}, "path": [{"x": n, "y": 1}], "name": "it's"}
        for n, each in enumerate(tags)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    made = DeltaTable.create(str(tmp_path / "t"), SCHEMA)
    made.append(rows(["red", "blue"], ["red"], None))
    return made


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("tags[0] = 'red'", [0, 1]),
        ("size(tags) > 1", [0]),
        ("array_contains(tags, 'blue')", [0]),
        ("sizes['a'] = 1", [1]),
        ("path[0].x > 1", [2]),
        ("element_at(path, -1).y = 1", [0, 1, 2]),
        ("name = 'it''s'", [0, 1, 2]),
        ("name RLIKE '^it.s$'", [0, 1, 2]),
        ("tags IS NULL", [2]),
    ],
)
def test_conditions_on_elements(table: DeltaTable, where: str, ids: list[int]) -> None:
    assert sorted(table.snapshot().scan(["id"], where=where).to_arrow()["id"].to_pylist()) == ids
    table.delete(f"NOT ({where}) OR ({where}) IS NULL" if "IS NULL" not in where else f"NOT ({where})")
    assert sorted(table.snapshot().scan(["id"]).to_arrow()["id"].to_pylist()) == ids


def test_constraints_on_elements(table: DeltaTable) -> None:
    table.add_constraint("few", "tags IS NULL OR size(tags) <= 2")
    table.add_constraint("known", "tags IS NULL OR tags[0] IN ('red', 'green')")
    table.append(rows(["green"]))
    for wrong in (["red", "red", "red"], ["yellow"]):
        with pytest.raises(ConstraintViolationError):
            table.append(rows(wrong))
    with pytest.raises((CallError, ConstraintViolationError)):
        table.append(rows([]))  # there is no element 0; Spark also raises an error


def test_new_values_of_structs_are_found_by_the_names_of_their_fields(table: DeltaTable) -> None:
    table.update({"at": "named_struct('y', id + 1L, 'X', 7Y)", "name": "'it''s ' || at.x"}, where="id = 1")
    found = table.snapshot().scan(["at", "name"], where="id = 1").to_arrow().to_pylist()
    assert found == [{"at": {"x": 7, "y": 2}, "name": "it's 1"}]
    with pytest.raises(CallError, match="fields have other names"):
        table.update({"at": "named_struct('x', 1)"})
    with pytest.raises(CallError, match="fields have other names"):
        table.update({"at": "named_struct('x', 1, 'y', 2, 'z', 3)"})


def test_a_position_outside_of_an_array_is_an_error_of_the_row(table: DeltaTable) -> None:
    with pytest.raises(CallError, match="no element at that position"):
        table.snapshot().scan(where="tags[1] = 'blue'").to_arrow()
    assert table.snapshot().scan(where="size(tags) > 1 AND tags[1] = 'blue'").to_arrow().num_rows == 1
    assert table.snapshot().scan(where="get(tags, 1) = 'blue'").to_arrow().num_rows == 1


@pytest.mark.parametrize(
    "text",
    [
        "repeat(name, 2147483647)",
        "repeat('x', 2147483647)",
        "length(repeat(repeat(repeat(name, 9999), 9999), 9999))",
        "lpad(name, 2147483647, 'x')",
        "replace(replace(repeat(name, 9999), 't', repeat('t', 9999)), 't', 'tt')",
        "concat(repeat('a', 50000000), repeat('b', 50000000))",
        "concat_ws(repeat('a', 40000000), name, name, name)",
        "CASE WHEN id > 0 THEN repeat('x', 60000000) ELSE name END",
        "if(id > 0, concat(repeat('x', 30000000), name), name)",
    ],
)
def test_texts_that_grow_beyond_the_cap_are_an_error(text: str) -> None:
    table = rows(["a"], ["b"], ["c"])
    with pytest.raises((pa.ArrowInvalid, CallError)) as refused:
        compile_expression(text, StructType.from_arrow(SCHEMA)).evaluate(table)
    assert "MAX_TEXT_BYTES" in str(refused.value) or "literal" in str(refused.value) or "capacity" in str(refused.value)
    assert limits.MAX_TEXT_BYTES <= 64 << 20


def test_texts_may_grow_with_the_rows() -> None:
    table = pa.table({"name": ["x" * 100_000] * 200})
    expression = compile_expression("concat(name, name, name, name, '!')", StructType.from_arrow(table.schema))
    assert len(expression.evaluate(table)[0].as_py()) == 400_001
