"""Random nested schemas with values, and sources whose fields differ from a table's. Requires neither Delta nor Spark.

::

    chance = random.Random(seed)
    schema = random_schema(chance)                        # pyarrow: id (long), then nested columns
    table = random_table(chance, schema, range(1, 9))     # pyarrow.Table, one row for each id
    source = random_source(chance, schema, range(5, 13), kinds={"missing", "reordered"})
    source.table, source.changes                          # pyarrow.Table; what differs from the schema, and where
    rows_by_id(table)                                     # plain rows that can be compared with ==
    evolved(schema, source.table.schema)                  # and fitted, updated: what verbs should make of both

The same seed gives the same values. The Arrow tables can be passed to deltalog, and to Spark through
``createDataFrame``; ``rows_by_id`` also takes the result of ``DataFrame.toArrow()``.
"""

from __future__ import annotations

from tests.support.nested.model import evolved, find, fitted, fitted_row, fitted_rows, lacks, updated
from tests.support.nested.schemas import ID, fields_of, random_schema, random_type
from tests.support.nested.sources import ALL_KINDS, Change, ChangeKind, Source, random_source
from tests.support.nested.values import Rows, plain, random_array, random_table, rows_by_id

__all__ = [
    "ALL_KINDS",
    "ID",
    "Change",
    "ChangeKind",
    "Rows",
    "Source",
    "evolved",
    "fields_of",
    "find",
    "fitted",
    "fitted_row",
    "fitted_rows",
    "lacks",
    "plain",
    "random_array",
    "random_schema",
    "random_source",
    "random_table",
    "random_type",
    "rows_by_id",
    "updated",
]
