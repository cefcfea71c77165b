"""Caps on the sizes that a table may claim. A table is untrusted, and a small file can claim excessive sizes. Pure.

They are far above the sizes of real tables. If a valid table exceeds one, raise the attribute before opening it::

    from deltalog.protocol import limits
    limits.MAX_COMMIT_BYTES = 4 << 30

Sizes are in bytes. Exceeding a cap is an error that names the cap; ``_last_checkpoint`` and ``.crc`` files over
theirs are ignored, since nothing depends on them. Nesting of JSON outside the schema is limited by Python's
recursion limit.
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
MAX_CONDITION_CHARS = 16 << 20  # a condition or new value that the caller writes, with all values of its lists
MAX_EXPRESSION_TOKENS = 20_000  # words and signs of either, without the literals in lists
MAX_EXPRESSION_DEPTH = 100  # brackets, CASE and signs within each other
MAX_PARSER_STEPS = 40  # of the parser of expressions, for each token
MAX_EXPRESSION_STEPS = 10_000  # functions that run for it; a value that is used twice is computed twice
MAX_TEXT_BYTES = 64 << 20  # texts that it makes of one batch of rows, besides 16 times the size of what it reads
MAX_CHECKPOINT_ROWS = 1 << 28  # in one Parquet file of a checkpoint
MAX_CHECKPOINT_BYTES = 64 << 30  # of the columns of one such file, decompressed, as its footer says
MAX_FOOTER_BYTES = 64 << 20  # of a Parquet file, where more than rows is read from it
MAX_FOOTER_ITEMS = 100_000  # columns of a Parquet file, or row groups
MAX_FILE_ROWS = 1 << 36  # of a Parquet file: a column that it lacks has as many NULLs
MAX_VECTOR_BYTES = 1 << 30  # one deletion vector in a file
MAX_INLINE_VECTOR_BYTES = 1 << 20  # one deletion vector in the log itself


def over(cap: str, size: int) -> str:
    """For messages: a size, the cap that it exceeds, and how to raise it."""
    limit: int = globals()[cap]
    return f"{size} is over the cap of {limit}; if it is correct, set deltalog.protocol.limits.{cap} higher"
