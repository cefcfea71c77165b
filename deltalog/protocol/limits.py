"""Upper limits for sizes that are read from a table. Tables are untrusted: a small file can declare excessive sizes.
Pure.

The caps are far above the sizes of real tables. If a valid table exceeds a cap, raise the cap before opening the
table::

    from deltalog.protocol import limits
    limits.MAX_COMMIT_BYTES = 4 << 30

Sizes are in bytes. If a cap is exceeded, an error that names the cap is raised. ``_last_checkpoint`` and ``.crc`` files
that exceed their size limits are ignored, because no read depends on them. Outside the schema, the nesting of JSON is
limited by Python's recursion limit.
"""

from __future__ import annotations

MAX_COMMIT_BYTES = 1 << 30  # a commit, a log compaction, or a checkpoint in JSON
MAX_LINE_BYTES = 64 << 20  # one action
MAX_HINT_BYTES = 16 << 20  # _last_checkpoint
MAX_CHECKSUM_BYTES = 256 << 20  # a .crc file, which may list all files of the table
MAX_SCHEMA_BYTES = 32 << 20  # schemaString, as text
MAX_SCHEMA_DEPTH = 128  # types within types
MAX_CHAR_LENGTH = 1 << 16  # the length n of char(n); reads pad every value to n characters
MAX_EXPRESSION_CHARS = 10_000  # a constraint or a generation expression
MAX_CONDITION_CHARS = 16 << 20  # a caller's condition or new value, including all values in lists
MAX_EXPRESSION_TOKENS = 20_000  # tokens of an expression, excluding literals in lists
MAX_EXPRESSION_DEPTH = 100  # nesting of brackets, CASE and unary operators
MAX_PARSER_STEPS = 40  # maximum number of steps of the expression parser per token
MAX_EXPRESSION_STEPS = 10_000  # functions evaluated for one expression; a subexpression that occurs twice counts twice
MAX_TEXT_BYTES = 64 << 20  # strings that an expression creates per batch of rows, beyond 16 times the input size
MAX_VARIANT_TEXT_CHARS = 1 << 30  # JSON text of the variants of one column in a batch of rows
MAX_CHECKPOINT_ROWS = 1 << 28  # in one Parquet file of a checkpoint
MAX_CHECKPOINT_BYTES = 64 << 30  # decompressed size of a file's columns, according to the file's footer
MAX_FOOTER_BYTES = 64 << 20  # footer of a Parquet file, unless only its rows are read
MAX_FOOTER_ITEMS = 100_000  # columns or row groups in a Parquet file
MAX_FILE_ROWS = 1 << 36  # in one Parquet file; a column that the file lacks is filled with this many NULLs
MAX_VECTOR_BYTES = 1 << 30  # one deletion vector in a file
MAX_INLINE_VECTOR_BYTES = 1 << 20  # one inline deletion vector


def over(cap: str, size: int) -> str:
    """The part of an error message that states a size, the limit that it exceeds, and how to raise the limit."""
    limit: int = globals()[cap]
    return f"{size} is over the cap of {limit}; if it is correct, set deltalog.protocol.limits.{cap} higher"
