"""The public names of deltalake's module ``deltalake.writer.properties``."""

from deltalog.deltalake.writer_properties import (
    BloomFilterProperties,
    ColumnProperties,
    Compression,
    Encoding,
    WriterProperties,
)

__all__ = ["BloomFilterProperties", "ColumnProperties", "Compression", "Encoding", "WriterProperties"]
