"""TRY_CAST as an expression: null for values that do not fit, and the same as CAST for all others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deltalog import DeltaTable, col
from deltalog.errors import CallError
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Cast, Name
from deltalog.protocol.schema import DecimalType, PrimitiveType


def tried(tmp_path, values, kind):
    rows = pa.table({"v": values, "out": pa.nulls(len(values), pa.string())})
    table = DeltaTable.create(str(tmp_path), rows.schema, data=rows)
    text = Cast(Cast(Name(("v",)), kind, is_try=True), PrimitiveType("string"))
    table.update({"out": text})
    return table.to_pyarrow_table()["out"].to_pylist()


def test_values_that_do_not_fit_are_null(tmp_path) -> None:
    values = ["1", "x", None, "300", "-7", "x", ""]
    assert tried(tmp_path, values, PrimitiveType("byte")) == ["1", None, None, None, "-7", None, None]


def test_many_values(tmp_path) -> None:
    values = [str(number) if number % 3 else f"no {number}" for number in range(3000)]
    found = tried(tmp_path, values, PrimitiveType("long"))
    assert found == [str(number) if number % 3 else None for number in range(3000)]


def test_numbers(tmp_path) -> None:
    assert tried(tmp_path, [1, 2**40], PrimitiveType("integer")) == ["1", None]
    assert tried(tmp_path / "d", ["1.25", "9999", "a"], DecimalType(4, 1)) == ["1.3", None, None]


def test_casts_that_no_engine_has_are_refused(tmp_path) -> None:
    table = DeltaTable.create(str(tmp_path), pa.schema([("b", pa.bool_()), ("d", pa.date32())]))
    with pytest.raises(CallError):
        table.update({"d": Cast(Name(("b",)), PrimitiveType("date"), is_try=True)})


def test_it_is_shown() -> None:
    assert shown(Cast(Name(("v",)), PrimitiveType("long"), is_try=True)).startswith("TRY_CAST(v AS ")
    assert repr(col("v") == 1)
