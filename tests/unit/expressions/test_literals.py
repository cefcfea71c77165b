"""Lists of values as literals: lists that are used without conversion, lists that are converted, and lists that are
refused."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from deltalog import CallError
from deltalog.expressions.literals import coerced_values, plain_values
from deltalog.protocol.schema import PrimitiveType


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ([3, 1, 3], "long", (3, 1, 3)),
        ([3, 1.0, Decimal(2), None], "byte", (3, 1, 2, None)),
        (["b", "a"], "string", ("b", "a")),
        ([True, False], "boolean", (True, False)),
        ([1, 2], "double", (1.0, 2.0)),
        ([1, 2], "decimal(3,1)", (Decimal(1), Decimal(2))),
        ([], "integer", ()),
    ],
)
def test_values_become_those_of_the_column(values: list[Any], name: str, expected: tuple[Any, ...]) -> None:
    given = coerced_values(plain_values(values), PrimitiveType(name), "c")
    assert given == expected
    assert [type(value) for value in given] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("values", "name"),
    [([1, True], "long"), ([True, False], "integer"), ([1, 2**63], "long"), (["a", 1], "string"), ([1, 0], "boolean")],
)
def test_a_value_of_another_kind_is_refused(values: list[Any], name: str) -> None:
    with pytest.raises(CallError, match="cannot be compared with column c"):
        coerced_values(plain_values(values), PrimitiveType(name), "c")


def test_scalars_of_numpy_among_plain_values_become_plain() -> None:
    numpy = pytest.importorskip("numpy")
    values = plain_values(iter([1, numpy.int64(2), numpy.float64("nan"), "x"]))
    assert [type(value) for value in values] == [int, int, float, str]
    assert values[:2] == (1, 2) and math.isnan(values[2])
