"""What a Spark SQL statement says about tables by path: the references ``deltalog.`path``` and ``delta.`path```. Pure.

sqlglot splits the text into tokens, each with its position, so that a statement is changed only where a reference is.
The clause that a reference stands in decides whether it is a table. A statement need not be one that sqlglot's parser
knows: whether it is valid is for Spark to say.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import deltalog

_SOURCES = ("deltalog", "delta", "`deltalog`", "`delta`")
_CLAUSES = {
    "version": "version",
    "system_version": "version",
    "timestamp": "timestamp",
    "system_time": "timestamp",
}
QUERY_STARTS = frozenset(["select", "with", "from", "values", "table", "map", "reduce", "("])
_FROM_ENDS = frozenset(
    [
        *("where", "group", "having", "order", "sort", "cluster", "distribute", "limit", "offset", "window", "qualify"),
        *("select", "union", "except", "intersect", "minus", "insert", "set", "aggregate", "|"),
    ]
)
# Words between the one that a table follows and the table.
_BETWEEN = frozenset(["table", "into", "if", "not", "exists", "lateral", "query", "extended", "formatted"])
_EXPLAIN_MODES = ("extended", "codegen", "cost", "formatted")
_TABLE_VERBS = (["create"], ["create", "or", "replace"], ["create", "external"], ["replace"])
_TYPES = ("timestamp", "timestamp_ltz", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True)
class Token:
    """``text`` is ``query[start:end]``."""

    kind: Literal["word", "string", "quoted", "number", "other"]
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The text in lower case, for keywords and signs; empty for text in quotes."""
        return self.text.lower() if self.kind in ("word", "other") else ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A table in a statement. ``start`` and ``end``: its place in the text, with the time travel clause. ``clause``:
    version or timestamp; ``point``: the tokens of its value. ``is_target``: the statement writes it."""

    path: str
    start: int
    end: int
    clause: str | None
    point: tuple[Token, ...]
    is_target: bool


@dataclass(frozen=True, slots=True)
class View:
    """A temporary view that a statement creates. ``name``: as it is written. ``columns``: their names and comments,
    none where they are those of the query. ``query_start`` and ``query_end``: its place in the text."""

    name: str
    columns: tuple[tuple[str, str | None], ...]
    replaces: bool
    is_global: bool
    query_start: int
    query_end: int


class Statement:
    """The tokens of a statement and the references in it. Raises CallError for a reference that is not understood."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.is_explained = self.words(0, 1) == ["explain"]
        # The first token after EXPLAIN.
        self.start = (2 if self.words(1, 2)[0] in _EXPLAIN_MODES else 1) if self.is_explained else 0
        self.head = self.words(self.start, self.start + 1)[0]
        self.references = list(self._references())

    def words(self, start: int, end: int) -> list[str]:
        """The words of these tokens; an empty text for each that there is not, or that is in quotes."""
        return [self.tokens[at].word if at < len(self.tokens) else "" for at in range(start, end)]

    def names_table(self, at: int) -> bool:
        """Whether a name of the form of a table by path begins at a token."""
        if at + 2 >= len(self.tokens) or self.tokens[at + 2].kind != "quoted":
            return False
        is_named = self.tokens[at].text.lower() in _SOURCES and self.words(at + 1, at + 2) == ["."]
        return is_named and (at == 0 or self.tokens[at - 1].text != ".")

    @property
    def names_tables(self) -> bool:
        return any(self.names_table(at) for at in range(len(self.tokens)))

    def path(self, at: int) -> str:
        """The path of the table that is named at a token."""
        return unquoted(self.tokens[at + 2].text)

    def _references(self) -> Iterator[Reference]:
        places, at, others, found = _Places(self), 0, {}, set()
        while at < len(self.tokens):
            place = places.next
            places.take(at)
            if not self.names_table(at):
                at += 1
                continue
            path, shown = self.path(at), "".join(token.text for token in self.tokens[at : at + 3])
            if place is None:
                others[path] = shown  # of a column as a rule: that of an alias
                at += 3
                continue
            if self.words(at + 3, at + 4) == ["."]:
                raise deltalog.CallError(f"{shown} is followed by a dot, but a table by path has no parts.")
            clause, point, end = self._time_travel(at + 3)
            found.add(path)
            yield Reference(path, self.tokens[at].start, self.tokens[end - 1].end, clause, point, place == "target")
            at = end
        for path in found.intersection(others):
            raise deltalog.CallError(
                f"{others[path]} qualifies a column. Give the table an alias in FROM and use that."
            )

    @property
    def defines_table(self) -> bool:
        """Whether it is CREATE TABLE or REPLACE TABLE."""
        words = self.words(self.start, self.start + 5)
        return words[: words.index("table")] in _TABLE_VERBS if "table" in words else False

    def temporary_view(self) -> View | None:
        """The temporary view that it creates, if it does. Raises CallError for parts that cannot be carried over."""
        at = self.start + 1
        replaces = self.words(at, at + 2) == ["or", "replace"]
        at += 2 if replaces else 0
        is_global = self.words(at, at + 1) == ["global"]
        at += 1 if is_global else 0
        kind, view = self.words(at, at + 2)
        if self.head != "create" or kind not in ("temp", "temporary") or view != "view" or at + 3 >= len(self.tokens):
            return None
        name, at = self.tokens[at + 2], at + 3
        columns: tuple[tuple[str, str | None], ...] = ()
        if self.words(at, at + 1) == ["("]:
            end = self.closing(at)
            columns, at = self._columns(at + 1, end - 1), end
        if self.words(at, at + 1) != ["as"]:
            raise deltalog.CallError(
                f"CREATE TEMPORARY VIEW {name.text} over a table by its path: a list of columns and AS can follow the "
                "name, no other clause."
            )
        last = self.tokens[-1]
        end = last.start if last.text == ";" else len(self.text)
        return View(name.text, columns, replaces, is_global, self.tokens[at].end, end)

    def _columns(self, at: int, end: int) -> tuple[tuple[str, str | None], ...]:
        found = []
        while at < end:
            name, comment = unquoted(self.tokens[at].text), None
            at += 1
            if self.words(at, at + 1) == ["comment"] and at + 1 < end and self.tokens[at + 1].kind == "string":
                comment = self.tokens[at + 1].text[1:-1]
                at += 2
            if at < end and self.tokens[at].text != ",":
                raise deltalog.CallError(f"{self.tokens[at].text} cannot follow the column {name} of a view.")
            found.append((name, comment))
            at += 1
        return tuple(found)

    def _time_travel(self, at: int) -> tuple[str | None, tuple[Token, ...], int]:
        """The time travel clause that begins at a token, what follows AS OF, and where the clause ends."""
        start = at + 1 if self.words(at, at + 1) == ["for"] else at
        first, *then = self.words(start, start + 3)
        if first not in _CLAUSES or then != ["as", "of"]:
            return None, (), at
        clause, begin = _CLAUSES[first], start + 3
        end = self._value_end(begin)
        if end == begin:
            raise deltalog.CallError(f"{first.upper()} AS OF has no value after it.")
        if clause == "timestamp" and self.words(end, end + 1)[0] in ("+", "-", "*", "/", "||", ":", "."):
            raise deltalog.CallError("Put the expression after TIMESTAMP AS OF into parentheses.")
        return clause, tuple(self.tokens[begin:end]), end

    def _value_end(self, at: int) -> int:
        """Where a constant ends: a string, a number, ``:name``, ``date'…'``, ``f(…)`` or ``(…)``."""
        if at >= len(self.tokens):
            return at
        first, following = self.tokens[at], self.tokens[at + 1] if at + 1 < len(self.tokens) else None
        if first.text == "(":
            return self.closing(at)
        if following is not None:
            if first.text == ":" and following.kind == "word":
                return at + 2
            if first.text in ("-", "+") and following.kind == "number":
                return at + 2
            if first.kind == "word" and following.text == "(":
                return self.closing(at + 1)
            if first.word in _TYPES and following.kind == "string":
                return self._strings_end(at + 1)
        if first.kind == "string":
            return self._strings_end(at)
        return at + 1 if first.kind in ("number", "word") else at

    def _strings_end(self, at: int) -> int:
        while at < len(self.tokens) and self.tokens[at].kind == "string":
            at += 1
        return at

    def closing(self, at: int) -> int:
        """The token after the parenthesis that closes the one at a token."""
        depth = 0
        for index in range(at, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[index].text, 0)
            if depth == 0:
                return index + 1
        raise deltalog.CallError("A parenthesis is not closed.")


@dataclass
class _Level:
    """What is known of the text inside a pair of parentheses."""

    is_query: bool
    is_in_from: bool = False


class _Places:
    """Follows the clauses of a statement, token by token. ``next``: whether a table may follow, and whether the
    statement reads it or writes it."""

    def __init__(self, statement: Statement) -> None:
        self.next: Literal["source", "target"] | None = None
        self._statement = statement
        self._levels = [_Level(is_query=True)]
        self._defines = statement.head in ("create", "replace")  # until the AS before the query

    def take(self, at: int) -> None:
        """Take the next token."""
        word, after = self._statement.words(at, at + 2)
        before = self._statement.tokens[at - 1].word if at else ""
        level, previous, self.next = self._levels[-1], self.next, None
        is_outermost = len(self._levels) == 1
        if word == "(":
            is_source = previous == "source"
            self._levels.append(_Level(is_source or after in QUERY_STARTS, is_source))
            self.next = "source" if is_source else None
        elif word == ")":
            if not is_outermost:
                self._levels.pop()
        elif before == ".":
            return
        elif word in _BETWEEN and previous:
            self.next = previous
        elif word in _FROM_ENDS:
            level.is_in_from = False
            level.is_query = level.is_query or word == "select"
        elif (word == "from" and before == "delete") or word in ("into", "overwrite", "update"):
            self.next = "target"
        elif (word == "from" and level.is_query and before != "distinct") or word == "join":
            self.next, level.is_in_from = "source", True
        elif word == ",":
            self.next = "source" if level.is_in_from else None
        elif word == "table":
            self.next = "target" if self._defines and is_outermost else "source"
        elif word == "as" and is_outermost:
            self._defines = False
        elif is_outermost and self._precedes_source(word, at):
            self.next = "source"

    def _precedes_source(self, word: str, at: int) -> bool:
        """Words that a table follows in statements of one kind."""
        head = self._statement.head
        if head == "merge":
            return word == "using"
        if head == "show":
            return word == "in"
        if head in ("describe", "desc"):
            return at == self._statement.start
        return self._defines and word == "like"


def unquoted(text: str) -> str:
    """The name that an identifier means, in backticks or not."""
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


# --- tokens


def tokens_of(query: str) -> list[Token] | None:
    """The tokens, without comments and white space; None for text that has none, such as an open quote."""
    from sqlglot.errors import SqlglotError

    text = query
    while True:
        tokenizer, failed = _tokenizer()(dialect="spark"), False
        try:
            tokenizer.tokenize(text)
        except SqlglotError:
            failed = True
        continued = _continued_comment(text, tokenizer.tokens)
        if continued is None:
            return None if failed else [_token(query, each) for each in tokenizer.tokens]
        # In Spark a comment continues on the next line after a backslash.
        text = text[:continued] + "  " + text[continued + 2 :]


@functools.cache
def _tokenizer() -> Any:
    """Spark's, without keywords: these combine words, and swallow the rest of some statements."""
    from sqlglot.dialects.spark import Spark

    base: Any = Spark.Tokenizer
    rules = {
        "KEYWORDS": {},
        "COMMANDS": set(),
        "NUMERIC_LITERALS": {},
        "HEX_STRINGS": [],
        "HEREDOC_STRINGS": ["$"],
        "HEREDOC_TAG_IS_IDENTIFIER": True,
    }
    return type("Tokenizer", (base,), rules)


def _continued_comment(text: str, found: Sequence[Any]) -> int | None:
    """Where a backslash and a line break are between two tokens, and so in a comment."""
    position = 0
    for start, end in [*((each.start, each.end + 1) for each in found), (len(text), len(text))]:
        at = text.find("\\\n", position, start)
        if at >= 0:
            return at
        position = end
    return None


def _token(query: str, found: Any) -> Token:
    start, end, kind = found.start, found.end + 1, found.token_type.name
    text = query[start:end]
    if kind.endswith("STRING"):
        return Token("string", text, start, end)
    if kind == "IDENTIFIER":
        return Token("quoted", text, start, end)
    if kind == "NUMBER" and text.isdigit():
        return Token("number", text, start, end)
    return Token("word" if kind == "VAR" else "other", text, start, end)
