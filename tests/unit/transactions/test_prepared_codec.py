from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from deltalog import Predicate, col
from deltalog.commit.prepared import Prepared, Reads
from deltalog.expressions.bind import bind
from deltalog.expressions.sql import parse
from deltalog.schema import StructType
from deltalog.transactions.prepared_codec import decode_prepared, encode_prepared

SCHEMA = StructType.from_arrow(
    pa.schema(
        [
            ("i", pa.int64()),
            ("a.b", pa.string()),
            ("m", pa.decimal128(9, 2)),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("f", pa.float64()),
            ("r", pa.binary()),
        ]
    )
)
SAID = [
    parse("i = 1 AND `a.b` LIKE 'x%' OR NOT (f > 1.5) OR i IS NULL"),
    col("i").isin([3, None, 2]),
    (col("m") <= Decimal("1.50")) & (col("d") != dt.date(2024, 1, 1)),
    col("t") < dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc),
    col("`a.b`") == "it's \\ a\nline",
    parse("upper(`a.b`) = 'X' AND i % 2 = 0 OR year(d) > 2024 AND NOT coalesce(f, 0.5D) > i * 2 AND m + 1 < 2"),
    col("i") < col("f"),
    col("r") == b"\x00",
    col("f") == float("inf"),
]
UNSAID = [col("r").isin([b"\x00"]), col("f").isin([float("nan")])]


@pytest.mark.parametrize("predicates", [SAID, [*SAID, UNSAID[0]], [UNSAID[1]]], ids=len)
def test_what_was_read_is_the_same_in_another_process(predicates: list[Predicate]) -> None:
    """A read whose condition cannot be written as text is treated as a read of the whole table; other reads keep their
    conditions."""
    bound = tuple(bind(predicate, SCHEMA) for predicate in predicates)
    prepared = Prepared("txn", "DELETE", reads=Reads(predicates=bound))
    reads = decode_prepared(encode_prepared(prepared, SCHEMA), SCHEMA).reads
    said = tuple(each for each, given in zip(bound, predicates, strict=True) if given not in UNSAID)
    assert reads == Reads(predicates=said, whole_table=len(said) < len(bound))
    assert prepared == Prepared("txn", "DELETE", reads=Reads(predicates=bound)) != Prepared("txn", "DELETE")
