"""SQL text as tokens, and what tokens of literals mean. Pure.

Every text that becomes an expression passes here first. The work is proportional to its length, whatever it says, and
its length, its nesting and the number of its tokens are bounded before anything is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from deltalog.errors import CallError
from deltalog.protocol import limits

Kind = Literal["name", "quoted", "text", "number", "mark", "end"]


class Token(NamedTuple):
    """``text``: as it is written, except that a ``quoted`` name is without its backticks. ``start``, ``end``: where."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """A name without quotes in lower case, or a mark; empty for others."""
        return self.text.lower() if self.kind in ("name", "mark") else ""


# Each character can be matched in one way only: an open quote is found at once, and ends the search.
_TOKEN = re.compile(
    r"(?P<blank>\s+|--[^\n]*)"
    r"|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:[bB][dD]|[yYsSlLfFdD])?(?!\w))"
    r"|(?P<name>\w+)"
    r"|`(?P<quoted>[^`]*(?:``[^`]*)*)`"
    r"|(?P<text>'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|\"[^\"\\]*(?:(?:\\.|\"\")[^\"\\]*)*\")"
    r"|(?P<comment>/\*)"
    r"|(?P<mark><=>|<>|!=|>=|<=|==|=>|->|\|\||\|>|::|<<|>>|[^\s\w'\"`])",
    re.DOTALL,
)
_OPENING = {"(": ")", "[": "]", "{": "}"}
_BEFORE_OPERAND = frozenset({"not", "!", "-", "+", "~", "case", "interval"})


def tokens_of(text: str, most_chars: int | None = None) -> list[Token]:
    """The tokens, without comments and white space; the last one is of the kind ``end``. Raises CallError, also for a
    text that is too long, or nested too deeply. ``most_chars``: None for the cap on conditions of callers."""
    cap = limits.MAX_CONDITION_CHARS if most_chars is None else most_chars
    if len(text) > cap:
        name = "MAX_CONDITION_CHARS" if most_chars is None else "MAX_EXPRESSION_CHARS"
        raise CallError(f"its length {limits.over(name, len(text))}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CallError("it has a character that Unicode does not have") from None
    found = list(_tokens(text))
    _check_nesting(found)
    return found


def _tokens(text: str) -> Iterator[Token]:
    at, length = 0, len(text)
    while at < length:
        match = _TOKEN.match(text, at)
        if match is None:
            raise CallError(f"it cannot be parsed: a quote at character {at + 1} is not closed")
        kind, end = match.lastgroup, match.end()
        if kind == "comment":
            end = text.find("*/", at + 2) + 2
            if end < 2 or "/*" in text[at + 2 : end]:
                raise CallError(
                    f"it cannot be parsed: a comment at character {at + 1} is not closed, or has another in it"
                )
        elif kind == "quoted":
            yield Token("quoted", match["quoted"].replace("``", "`"), at, end)
        elif kind != "blank":
            yield Token(kind, match[0], at, end)  # type: ignore[arg-type]
        elif match[0].startswith("--") and match[0].endswith("\\"):
            raise CallError("it cannot be parsed: a comment ends with a backslash, after which Spark continues it")
        at = end
    yield Token("end", "", length, length)


def _check_nesting(tokens: list[Token]) -> None:
    """Raise CallError for brackets, CASE and signs within each other over the cap, and for brackets that do not fit."""
    open_: list[str] = []
    signs, deepest, before = 0, 0, ""
    for token in tokens:
        word = token.word
        if token.kind == "mark" and word in _OPENING:
            open_.append(_OPENING[word])
        elif word == "case" and before != ".":
            open_.append("end")
        elif token.kind == "mark" and word in (")", "]", "}"):
            while open_ and open_[-1] == "end":
                open_.pop()  # a column may be called case
            if not open_ or open_.pop() != word:
                raise CallError(f"it cannot be parsed: there is a {word} too many at character {token.start + 1}")
        elif word == "end" and open_ and open_[-1] == "end":
            open_.pop()
        signs = signs + 1 if word in _BEFORE_OPERAND else 0
        deepest = max(deepest, len(open_) + signs)
        before = word
    if deepest > limits.MAX_EXPRESSION_DEPTH:
        raise CallError(f"it is nested too deeply: its depth {limits.over('MAX_EXPRESSION_DEPTH', deepest)}")
    if any(each != "end" for each in open_):
        raise CallError(f"it cannot be parsed: a {next(each for each in open_ if each != 'end')} is missing at its end")


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def text_value(token: str) -> str:
    """What a quoted text means in Spark 4: two quotes are one, and a backslash escapes. Raises CallError."""
    quote = token[0]
    if "\\" not in token:
        return token[1:-1].replace(quote * 2, quote)
    # A quote after a backslash is no half of two.
    parts = re.findall(rf"\\.|{quote}{quote}|[^\\{quote}]+", token[1:-1], re.DOTALL)
    joined = "".join(quote if part == quote * 2 else part for part in parts)
    try:
        # A character may be written as its two halves in UTF-16.
        return _ESCAPE.sub(_unescaped, joined).encode("utf-16", "surrogatepass").decode("utf-16")
    except (ValueError, OverflowError):
        raise CallError(f"the text {token[:100]} has an escape that is no character") from None


def _unescaped(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if octal:
        return chr(int(octal, 8))
    if short or long:
        return chr(int(short or long, 16))
    return _ESCAPED.get(other, other)
