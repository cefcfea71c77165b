"""Caps on what a table may ask of its reader. A table is untrusted, and a small file can claim a great deal. Pure.

No sound table comes near them. Where one does, set the attribute higher before opening it::

    from deltalog.protocol import limits
    limits.MAX_COMMIT_BYTES = 4 << 30

Sizes are in bytes. What is over a cap is refused with an error that names the cap; hints (``_last_checkpoint``,
``.crc``) over theirs are passed over, since nothing depends on them. Nesting of JSON outside the schema ends where
Python's recursion limit does.
"""

from __future__ import annotations

MAX_COMMIT_BYTES = 1 << 30  # a commit, a compacted file, or a checkpoint in JSON
MAX_LINE_BYTES = 64 << 20  # one action
MAX_HINT_BYTES = 16 << 20  # _last_checkpoint
MAX_CHECKSUM_BYTES = 256 << 20  # a .crc, which may list all files
MAX_SCHEMA_BYTES = 32 << 20  # schemaString, as text
MAX_SCHEMA_DEPTH = 128  # types within types
MAX_CHAR_LENGTH = 1 << 16  # n of char(n), to which every value is padded when it is read
MAX_EXPRESSION_CHARS = 10_000  # a constraint, or what generates a column
MAX_EXPRESSION_STEPS = 10_000  # kernels that run for it; of a value that is used twice they run twice
MAX_CHECKPOINT_ROWS = 1 << 28  # in one Parquet file of a checkpoint
MAX_CHECKPOINT_BYTES = 64 << 30  # of the columns of one such file, decompressed, as its footer says
MAX_VECTOR_BYTES = 1 << 30  # one deletion vector in a file
MAX_INLINE_VECTOR_BYTES = 1 << 20  # one deletion vector in the log itself


def over(cap: str, size: int) -> str:
    """For messages: by how much a cap is passed, and how to raise it."""
    limit: int = globals()[cap]
    return f"{size} is over the cap of {limit}; if it is sound, set deltalog.protocol.limits.{cap} higher"
