"""For engines that read and write data files themselves, such as spark_ext: actions, transactions and rules as data."""

from deltalog.commit.prepared import IsolationLevel
from deltalog.expressions.parser_steps import with_counted_steps
from deltalog.parquet.file_options import ColumnOptions, FileOptions
from deltalog.parquet.footers import open_parquet
from deltalog.protocol.actions import AddFile, DeletionVector, Metadata, Protocol
from deltalog.protocol.leftovers import LeftoverKind, job_directory_name, leftover_kind
from deltalog.read.stream_offsets import StreamOffset
from deltalog.read.table_stream import StreamFile, StreamReader
from deltalog.rows.replacement import Replacement
from deltalog.rows.row_removal import RowRemoval
from deltalog.write.table_rules import TableRules

__all__ = [
    "AddFile",
    "ColumnOptions",
    "DeletionVector",
    "FileOptions",
    "IsolationLevel",
    "LeftoverKind",
    "Metadata",
    "Protocol",
    "Replacement",
    "RowRemoval",
    "StreamFile",
    "StreamOffset",
    "StreamReader",
    "TableRules",
    "job_directory_name",
    "leftover_kind",
    "open_parquet",
    "with_counted_steps",
]
