"""SQL text as tokens, and what quoted texts mean. Pure.

Every text that becomes an expression passes here first: sqlglot splits it, in time proportional to its length, and
its length and nesting are bounded before it is parsed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from deltalog.errors import CallError
from deltalog.protocol import limits

Kind = Literal["name", "quoted", "text", "number", "mark", "end"]


class Token(NamedTuple):
    """``text``: as it is written, except that a ``quoted`` name is without its backticks. ``start``, ``end``: where.
    ``word``: a name without quotes in lower case, or a mark; empty for others."""

    kind: Kind
    text: str
    start: int
    end: int
    word: str = ""


_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[bB][dD]|[yYsSlLfFdD])?")
_WORD = re.compile(r"\w+")
_TEXT = re.compile(
    r"'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|\"[^\"\\]*(?:(?:\\.|\"\")[^\"\\]*)*\"|`[^`]*(?:``[^`]*)*`", re.DOTALL
)
_MARKS = ("<=>", "<>", "!=", ">=", "<=", "==", "=>", "->", "||", "|>", "::", "<<", ">>")
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


@functools.cache
def _dialect() -> Any:
    """Spark's dialect with the marks of expressions alone: its words are for ``syntax`` to tell from names."""
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark

    base: Any = Spark
    words = {
        "KEYWORDS": dict.fromkeys(_MARKS, TokenType.OPERATOR),
        "NUMERIC_LITERALS": {},
        "HEX_STRINGS": [],
        "RAW_STRINGS": [],
        "COMMANDS": set(),
    }
    return type("DeltalogTokens", (base,), {"Tokenizer": type("Tokenizer", (base.Tokenizer,), words)})()


def _tokens(text: str) -> Iterator[Token]:
    from sqlglot.errors import TokenError

    try:
        raw = _dialect().tokenize(text)
    except TokenError:
        raise CallError("it cannot be parsed: a quote in it is not closed") from None
    at, has_comments = 0, "--" in text or "/*" in text
    position, number = 0, len(raw)
    while position < number:
        start, end = raw[position].start, raw[position].end + 1
        quote = text[start]
        position += 1
        if quote in "'\"`":
            # Two quotes in a text are one; to the parser they are the end of a text and the start of another.
            while position < number and raw[position].start == end and text[end] == quote:
                end = raw[position].end + 1
                position += 1
        elif quote == "." and position < number and raw[position].start == end:
            stop = raw[position].end + 1
            if _NUMBER.fullmatch(text, start, stop):
                end = stop
                position += 1
        if has_comments:
            _check_comments(text, at, start)
        yield _token(text, start, end)
        at = end
    if has_comments:
        _check_comments(text, at, len(text))
    yield Token("end", "", len(text), len(text))


def _token(text: str, start: int, end: int) -> Token:
    written = text[start:end]
    if written[0] in "'\"`":
        if not _TEXT.fullmatch(written):
            raise CallError(f"it cannot be parsed: a quote at character {start + 1} is not closed")
        if written[0] == "`":
            return Token("quoted", written[1:-1].replace("``", "`"), start, end)
        return Token("text", written, start, end)
    if _NUMBER.fullmatch(written):
        return Token("number", written, start, end)
    return Token("name" if _WORD.fullmatch(written) else "mark", written, start, end, written.lower())


def _check_comments(text: str, start: int, end: int) -> None:
    """Raise CallError for comments between two tokens that Spark ends somewhere else."""
    at = start
    while at < end:
        if text.startswith("--", at):
            stop = text.find("\n", at, end)
            stop = end if stop < 0 else stop
            if text[stop - 1] == "\\":
                raise CallError("it cannot be parsed: a comment ends with a backslash, after which Spark continues it")
            at = stop
        elif text.startswith("/*", at):
            stop = text.find("*/", at + 2, end)
            if stop < 0 or text.find("/*", at + 2, stop) >= 0 or text[at + 2] == "+":
                what = "is not closed, has another in it, or is a hint"
                raise CallError(f"it cannot be parsed: a comment at character {at + 1} {what}")
            at = stop + 2
        else:
            at += 1


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
