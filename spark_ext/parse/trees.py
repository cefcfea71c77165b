"""Parses SQL text into sqlglot's trees, in time proportional to its length. Pure.

sqlglot backtracks on some constructs, which can take much longer than parsing the text once. This module counts
sqlglot's parser steps, and gives up after too many.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import deltalog

_MOST_TYPES = 200  # sqlglot needs a millisecond to parse a type
_MOST_CHARS = 1 << 20


class _TooManyTypes(Exception):
    pass


def trees_of(text: str) -> Sequence[Any]:
    """The syntax trees of the statements or conditions in a text, in Spark's dialect. Empty if sqlglot cannot parse the
    text or takes too long; Spark then decides what the text means. Cost: none."""
    import sqlglot

    if len(text) > _MOST_CHARS:
        return ()
    try:
        trees = sqlglot.parse(text, dialect=_dialect())
    except Exception:  # the parser raises many kinds of errors, including RecursionError
        return ()
    return [] if None in trees else trees


@functools.cache
def _dialect() -> Any:
    from sqlglot.dialects.spark import Spark

    base: Any = Spark

    class Parser(deltalog.engine.with_counted_steps(base.Parser)):  # type: ignore[misc]
        _types_left = _MOST_TYPES

        def _parse(self, *args: Any, **options: Any) -> Any:
            self._types_left = _MOST_TYPES
            return super()._parse(*args, **options)

        def _parse_types(self, *args: Any, **options: Any) -> Any:
            found = super()._parse_types(*args, **options)
            self._types_left -= found is not None
            if self._types_left < 0:
                raise _TooManyTypes
            return found

    return type("BoundedSpark", (base,), {"Parser": Parser})
