"""Arrow's lookup and Arrow's join find the same rows with equal keys."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from typing import Any

import pyarrow as pa
import pytest

from deltalog.rows.merge.keys import SourceKeys

KINDS: dict[str, tuple[Any, Any]] = {
    "long": (pa.int64(), lambda n: n),
    "string": (pa.string(), lambda n: "x" * (n % 3) + str(n)),
    "binary": (pa.binary(), lambda n: bytes([n])),
    "decimal": (pa.decimal128(12, 2), lambda n: decimal.Decimal(n) / 4),
    "date": (pa.date32(), lambda n: dt.date(2020, 1, 1) + dt.timedelta(n)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda n: dt.datetime(2020, 1, 1, n % 24, tzinfo=dt.timezone.utc)),
}


def keys(kind: Any, numbers: list[int | None], others: list[float | None], are_null: bool) -> dict[str, Any]:
    """Two keys, the second of which may be compared with ``<=>``."""
    first = pa.array([None if n is None else KINDS[kind][1](n) for n in numbers], KINDS[kind][0])
    second = pa.array(others, pa.float64())
    if are_null:
        return {"k0": first, "n1": second.is_null(), "k1": second.fill_null(0.0)}
    return {"k0": first, "k1": second}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("are_null", [False, True], ids=["equal", "equal or null"])
def test_rows_that_are_looked_up_are_those_of_a_join(kind: str, are_null: bool) -> None:
    chance = random.Random(kind)
    floats = [None, 0.0, 1.0, float("nan")]
    for size in (0, 1, 5, 12):
        numbers: list[int | None] = [*chance.sample(range(20), size), *[None] * (size % 3)]
        source = keys(kind, numbers, chance.choices(floats, k=len(numbers)), are_null)
        rows = pa.table({**source, "s": pa.array(range(100, 100 + len(numbers)), pa.int64())})
        target = keys(kind, chance.choices([*range(20), None], k=200), chance.choices(floats, k=200), are_null)
        found = SourceKeys.from_table(rows)
        assert found.unique == "k0" and found.num_rows == len(numbers)
        pairs = [each.to_pylist() for each in found.pairs(target)]
        assert pairs == [each.to_pylist() for each in SourceKeys(rows, None).pairs(target)]
        assert pairs[0] or size < 5


def test_keys_of_which_several_rows_have_the_same_are_joined() -> None:
    twice = {"k0": pa.array([1, 1, None]), "k1": pa.array([1.0, 2.0, 3.0]), "s": pa.array([0, 1, 2])}
    assert SourceKeys.from_table(pa.table(twice)).unique is None
    target = {"k0": pa.array([2, 1]), "k1": pa.array([1.0, 2.0])}
    assert [each.to_pylist() for each in SourceKeys.from_table(pa.table(twice)).pairs(target)] == [[1], [1]]
    assert SourceKeys.from_table(pa.table({**twice, "k2": pa.array(["a", "b", "c"])})).unique == "k2"
    flags = {"n0": pa.array([True, False]), "k0": pa.array([True, False]), "s": pa.array([0, 1])}
    assert SourceKeys.from_table(pa.table(flags)).unique is None
