"""Rewrites the SQL spellings that have words in place of commas, and other names of types, to plain calls and Spark's
names. Pure.

    position('b' IN s)               position('b', s)
    substring(s FROM 2 FOR 1)        substring(s, 2, 1)
    extract(YEAR FROM t)             year(t)
    date_part('year', t)             year(t)
    CAST(i AS VARCHAR)               CAST(i AS STRING)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltalog.expressions.functions.types import refuse
from deltalog.expressions.tokens import Token, text_value

_COMMAS: Mapping[str, frozenset[str]] = {
    "position": frozenset({"in"}),
    "substring": frozenset({"from", "for"}),
    "substr": frozenset({"from", "for"}),
}
# The parts of times that are the same in Spark and in the SQL of others, each with its function.
_PARTS: Mapping[str, str] = {
    **{part: part for part in ("year", "quarter", "month", "day", "hour", "minute")},
    "week": "weekofyear",
    "doy": "dayofyear",
}
_INSTEAD: Mapping[str, str] = {
    "second": "second(…) for whole seconds",
    "dow": "dayofweek(…), where Sunday is 1",
    "dayofweek": "dayofweek(…), where Sunday is 1",
    "isodow": "weekday(…) + 1",
    "epoch": "unix_seconds(…)",
}
_TEXT_TYPES = frozenset({"varchar", "text"})


def standard(tokens: Sequence[Token], has_other_types: bool = True) -> list[Token]:
    """The tokens in the standard spelling. ``has_other_types``: whether to rewrite names of types that Spark lacks.
    Raises CallError for a part of times that has several meanings. Cost: time proportional to the number of tokens."""
    found: list[Token] = []
    calls: list[str] = []  # for each open bracket, the function that it calls
    at = 0
    while at < len(tokens):
        token, before = tokens[at], tokens[at - 1] if at else tokens[-1]
        skipped = 0
        if token.word == "(" and token.kind == "mark":
            calls.append(before.word if before.kind == "name" else "")
            skipped = _part_at(tokens, at) if calls[-1] in ("extract", "date_part") else 0
        elif token.word == ")" and token.kind == "mark" and calls:
            calls.pop()
        elif calls and token.word in _COMMAS.get(calls[-1], ()) and before.word not in ("(", ","):
            token = Token("mark", ",", token.start, token.end, ",")
        elif token.word in _TEXT_TYPES and before.word in ("as", "::") and tokens[at + 1].word != "(":
            token = token._replace(text="STRING", word="string") if has_other_types else token
        if skipped:
            name = _function_of(tokens[at + 1])
            found[-1] = found[-1]._replace(text=name, word=name)
        found.append(token)
        at += 1 + skipped
    return found


def _part_at(tokens: Sequence[Token], opening: int) -> int:
    """The number of tokens after the bracket that name the part of a time; 0 if they name none."""
    call, part, then = tokens[opening - 1].word, tokens[opening + 1], tokens[min(opening + 2, len(tokens) - 1)]
    if call == "extract":
        return 2 if part.kind in ("name", "text") and then.word == "from" else 0
    return 2 if part.kind == "text" and then.word == "," else 0


def _function_of(part: Token) -> str:
    name = (text_value(part.text) if part.kind == "text" else part.text).lower()
    if name not in _PARTS:
        instead = f". Write {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise refuse(f"The part {name.upper()[:50]} of a time", instead)
    return _PARTS[name]
