"""Streams that write to a table: append and complete mode, restarts, columns, and the table's rules."""

from typing import Any

from pyspark.sql import functions as F

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.streams import Input
from tests.interop.parity.tables import Table

COLUMNS = "(id bigint, s string)"
PLAIN = (f"create table {{t}} {COLUMNS} using delta", "insert into {t} values (0, 'z')")


def _into(name: str, *start: str, differs: str | None = None, of: Any = lambda df: df, **more: Any) -> None:
    """A scenario that streams two batches, and a third batch after a restart."""

    @scenario(name, differs)
    def _(t: Table) -> None:
        if start:
            t.start(*start)
        rows = Input(t)
        rows.add("(1, 'a'), (2, 'b')")
        rows.add("(3, 'c')")
        rows.write(of=of, **more)
        rows.add("(4, 'd')")
        rows.write(of=of, **more)


def _counted(df: Any) -> Any:
    return df.groupBy((F.col("id") % 2).alias("odd")).agg(F.count("*").alias("n"))


FIRST = "spark_ext creates the table in a separate version, before the first batch."
_into("sink: append creates a table", differs=FIRST)
_into("sink: complete creates a table", differs=FIRST, of=_counted, mode="complete")
_into("sink: update", of=_counted, mode="update")
_into(
    "sink: partitionBy",
    differs=FIRST,
    how=lambda writer: writer.partitionBy("s"),
)


@scenario("sink: a batch that is repeated")
def _(t: Table) -> None:
    t.start(*PLAIN)
    rows = Input(t)
    rows.add("(1, 'a')")
    rows.add("(2, 'b')")
    rows.write()
    rows.forget_the_last_batch()
    rows.write()
    rows.add("(3, 'c')")
    rows.write()
