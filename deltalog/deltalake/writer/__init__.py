"""The public names of deltalake's module ``deltalake.writer``."""

from deltalog.deltalake.writer.convert_to import convert_to_deltalake
from deltalog.deltalake.writer.properties import BloomFilterProperties, ColumnProperties, WriterProperties
from deltalog.deltalake.writer.writer import write_deltalake

__all__ = [
    "BloomFilterProperties",
    "ColumnProperties",
    "WriterProperties",
    "convert_to_deltalake",
    "write_deltalake",
]
