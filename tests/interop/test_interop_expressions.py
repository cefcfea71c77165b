"""Expressions have the same meaning in deltalog and Spark: the type, the value for every row, and the errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError
from deltalog.expressions.compile import compile_expression
from deltalog.schema import StructType
from tests.support.expressions import FAILING, SUPPORTED, cases, edge_rows
from tests.support.spark import DeltaSpark

ROWS = edge_rows()
SCHEMA = StructType.from_arrow(ROWS.schema)


@pytest.fixture(scope="module")
def spark(delta: DeltaSpark, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("edges") / "rows.parquet"
    numbered = ROWS.append_column("row", pa.array(range(len(ROWS)), pa.int32()))
    pq.write_table(numbered, path)
    delta.spark.read.parquet(str(path)).createOrReplaceTempView("edges")
    assert delta.spark.conf.get("spark.sql.ansi.enabled") == "true"
    return delta.spark


def plain(values: list[Any]) -> list[Any]:
    """The values as strings that distinguish NaN, the sign of zero, and types."""
    return [repr(bytes(v)) if isinstance(v, bytearray) else repr(v) for v in values]


def compared(spark: Any, expressions: list[str]) -> list[str]:
    """Evaluate the expressions with deltalog and Spark; returns a description of each difference."""
    named = [f"{text} AS c{number}" for number, text in enumerate(expressions)]
    frame = spark.sql(f"SELECT row, {', '.join(named)} FROM edges")
    types = StructType.from_json(frame.schema.json())
    # If two columns share an expression, Spark would compute it for all rows, even if each column uses it only under a
    # condition.
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    try:
        theirs = frame.toArrow().sort_by("row")
    finally:
        spark.conf.unset("spark.sql.subexpressionElimination.enabled")
    wrong = []
    for number, text in enumerate(expressions):
        expression = compile_expression(text, SCHEMA)
        wanted = types.field(f"c{number}").data_type
        if str(expression.data_type) != str(wanted):  # without nullability
            wrong.append(f"{text}: {expression.data_type}, Spark has {wanted}")
            continue
        mine, others = expression.evaluate(ROWS).to_pylist(), theirs.column(f"c{number}").to_pylist()
        different = [(row, m, o) for row, (m, o) in enumerate(zip(plain(mine), plain(others), strict=True)) if m != o]
        if different:
            row, m, o = different[0]
            wrong.append(f"{text}: row {row} is {m}, Spark has {o} ({len(different)} rows)")
    return wrong


def test_supported_expressions_have_the_types_and_values_of_spark(spark: Any) -> None:
    wrong = compared(spark, cases(SUPPORTED))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", cases(FAILING))
def test_errors_of_a_row_are_errors_in_spark(spark: Any, text: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        spark.sql(f"SELECT {text} AS c FROM edges").collect()
    with pytest.raises((pa.ArrowInvalid, CallError)):
        compile_expression(text, SCHEMA).evaluate(ROWS)
