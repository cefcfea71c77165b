"""Delta tables in PySpark through deltalog, without a jar: classic sessions (Spark 3.5 to 4.3) and Spark Connect.

Spark reads and writes the Parquet files natively. deltalog resolves versions and commits in the calling Python process,
which must therefore access the table's storage under the same path as Spark.
"""

from __future__ import annotations

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("spark_ext needs PySpark 3.5 or newer: pip install 'deltalog[spark]'") from error

from spark_ext.delta_table import DeltaTable
from spark_ext.errors import (
    ArgumentTypeError,
    ColumnKindError,
    ExistsError,
    ExpressionError,
    MissingTableError,
    SqlSyntaxError,
)
from spark_ext.install.installing import install, uninstall
from spark_ext.maintenance.optimize import DeltaOptimizeBuilder
from spark_ext.reading.log_frames import detail, history
from spark_ext.reading.reader import Reader, read, read_changes
from spark_ext.results import WriteResult
from spark_ext.rows.merge_builder import DeltaMergeBuilder
from spark_ext.session.jobs import JobFailedError
from spark_ext.session.names import use_catalog
from spark_ext.statements.session_sql import sql
from spark_ext.stream.batch_writer import StreamWriter, stream_writer
from spark_ext.stream.registration import register
from spark_ext.types import from_spark, to_spark
from spark_ext.writing.table_builder import DeltaTableBuilder, IdentityGenerator
from spark_ext.writing.table_writer import TableWriter, write_to
from spark_ext.writing.targets import NameNotRegisteredError
from spark_ext.writing.writer import Writer, write

__all__ = [
    "ArgumentTypeError",
    "ColumnKindError",
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "ExistsError",
    "ExpressionError",
    "IdentityGenerator",
    "JobFailedError",
    "MissingTableError",
    "NameNotRegisteredError",
    "Reader",
    "SqlSyntaxError",
    "StreamWriter",
    "TableWriter",
    "WriteResult",
    "Writer",
    "detail",
    "from_spark",
    "history",
    "install",
    "read",
    "read_changes",
    "register",
    "sql",
    "stream_writer",
    "to_spark",
    "uninstall",
    "use_catalog",
    "write",
    "write_to",
]
