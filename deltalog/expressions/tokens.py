"""Splits SQL text into tokens, and decodes quoted strings. Pure.

All SQL text is tokenized by this module before it is parsed. Tokenizing takes time proportional to the length of the
text; text that is too long or too deeply nested is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from deltalog.errors import CallError
from deltalog.protocol import limits

Kind = Literal["name", "quoted", "text", "number", "mark", "end"]


class Token(NamedTuple):
    """``text``: as written, but without backticks for a ``quoted`` name. ``start``, ``end``: the position of the token.
    ``word``: an unquoted name in lower case, or the text of an operator or punctuation mark; empty for other kinds."""

    kind: Kind
    text: str
    start: int
    end: int
    word: str = ""


_TOKEN = re.compile(
    r"""
    (?P<blank>\s+ | --[^\n]* | /\*.*?\*/)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[bB][dD]|[yYsSlLfFdD])?(?!\w))
    | (?P<name>\w+)
    | (?P<text>'[^'\\]*(?:(?:\\.|'')[^'\\]*)*' | "[^"\\]*(?:(?:\\.|"")[^"\\]*)*")
    | (?P<quoted>`[^`]*(?:``[^`]*)*`)
    | (?P<unclosed>['"`] | /\*)
    | (?P<mark><=> | <> | != | >= | <= | == | => | -> | \|\| | \|> | :: | << | >> | .)
    """,
    re.DOTALL | re.VERBOSE,
)
_OPENING = {"(": ")", "[": "]", "{": "}"}
_BEFORE_OPERAND = frozenset({"not", "!", "-", "+", "~", "case", "interval"})


def tokens_of(text: str, most_chars: int | None = None) -> list[Token]:
    """Split text into tokens, without comments and white space; the last token has the kind ``end``. Raises CallError,
    also for a text that is too long or nested too deeply. ``most_chars``: None: the maximum length is
    MAX_CONDITION_CHARS, as for conditions that callers pass."""
    cap = limits.MAX_CONDITION_CHARS if most_chars is None else most_chars
    if len(text) > cap:
        name = "MAX_CONDITION_CHARS" if most_chars is None else "MAX_EXPRESSION_CHARS"
        raise CallError(f"its length {limits.over(name, len(text))}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CallError("it contains a lone surrogate, which is not a Unicode character") from None
    found = list(_tokens(text))
    _check_nesting(found)
    return found


def _tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        kind, written, (start, end) = match.lastgroup, match[0], match.span()
        if kind == "blank":
            if written.startswith(("--", "/*")):
                _check_comment(written, start)
        elif kind == "unclosed":
            what = "comment" if written == "/*" else "quote"
            raise CallError(f"it cannot be parsed: a {what} at character {start + 1} is not closed")
        elif kind == "quoted":
            yield Token("quoted", written[1:-1].replace("``", "`"), start, end)
        elif kind == "text":
            yield Token("text", written, start, end)
        elif kind == "number":
            yield Token("number", written, start, end)
        else:
            yield Token("name" if kind == "name" else "mark", written, start, end, written.lower())
    yield Token("end", "", len(text), len(text))


def _check_comment(comment: str, start: int) -> None:
    """Raise CallError for a comment that Spark would end at a different position."""
    if comment.startswith("--"):
        if comment.endswith("\\"):
            raise CallError("it cannot be parsed: a comment ends with a backslash, after which Spark continues it")
    elif "/*" in comment[2:-2] or comment[2] == "+":
        raise CallError(f"it cannot be parsed: the comment at character {start + 1} contains another one or is a hint")


def _check_nesting(tokens: list[Token]) -> None:
    """Raise CallError if brackets, CASE and unary operators are nested more deeply than the limit allows, or if
    brackets do not match."""
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
                open_.pop()  # a column named case
            if not open_ or open_.pop() != word:
                raise CallError(f"it cannot be parsed: there is an unmatched {word} at character {token.start + 1}")
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
    """The value of a quoted string in Spark 4: a doubled quote is one quote, and a backslash is an escape character.
    Raises CallError."""
    quote = token[0]
    if "\\" not in token:
        return token[1:-1].replace(quote * 2, quote)
    # A quote that follows a backslash is not part of a doubled quote.
    parts = re.findall(rf"\\.|{quote}{quote}|[^\\{quote}]+", token[1:-1], re.DOTALL)
    joined = "".join(quote if part == quote * 2 else part for part in parts)
    try:
        # A character may be written as two UTF-16 surrogates.
        return _ESCAPE.sub(_unescaped, joined).encode("utf-16", "surrogatepass").decode("utf-16")
    except (ValueError, OverflowError):
        raise CallError(f"the string {token[:100]} contains an escape that is not a character") from None


def _unescaped(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if octal:
        return chr(int(octal, 8))
    if short or long:
        return chr(int(short or long, 16))
    return _ESCAPED.get(other, other)
