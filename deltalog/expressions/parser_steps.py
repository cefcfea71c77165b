"""Derives sqlglot parser classes that raise an error after a bounded number of steps. Pure.

sqlglot tries several ways to parse some constructs, one after the other, so that each level of nested struct(…) doubles
the time.
"""

from __future__ import annotations

from typing import Any

from deltalog.errors import CallError
from deltalog.protocol import limits

_AT_LEAST = 50  # tokens


def with_counted_steps(parser: Any) -> Any:
    """A subclass of the sqlglot parser class ``parser`` that raises CallError after MAX_PARSER_STEPS steps per token,
    so that parsing time is proportional to the length of the text."""

    class Counted(parser):  # type: ignore[misc]
        _steps_left = 0

        def _parse(self, parse_method: Any, raw_tokens: Any, sql: Any = None) -> Any:
            self._steps_left = limits.MAX_PARSER_STEPS * (_AT_LEAST + len(raw_tokens))
            return super()._parse(parse_method, raw_tokens, sql)

        def _advance(self, times: int = 1) -> None:
            self._steps_left -= 1
            if self._steps_left < 0:
                steps = limits.MAX_PARSER_STEPS + 1
                raise CallError(f"the number of steps per token {limits.over('MAX_PARSER_STEPS', steps)}")
            super()._advance(times)

    return Counted
