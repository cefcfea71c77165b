"""Finds the deltalog tables in a Spark SQL statement: ``deltalog.`path```, ``delta.`path```, and names of tables in the
session's catalog. Pure.

sqlglot's tokenizer yields tokens with positions, so that only the references in the text are replaced. The clause in
which a name occurs decides whether the name is a table. Spark decides whether a statement is valid.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

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
# Words that can appear between a keyword such as FROM or INTO and the name of the table.
_BETWEEN = frozenset(["table", "into", "if", "not", "exists", "lateral", "query", "extended", "formatted"])
# Keywords that can appear in place of a table name.
_NOT_NAMES = frozenset(
    [
        *(
            "select",
            "with",
            "from",
            "values",
            "table",
            "map",
            "reduce",
            "lateral",
            "set",
            "into",
            "if",
            "not",
            "exists",
        ),
        *("query", "extended", "formatted", "directory", "local", "stream"),
    ]
)
# Between DESCRIBE and a name, these words mean that the name is not a table.
_NOT_TABLES = frozenset(["function", "database", "schema", "namespace", "catalog", "procedure"])
# Keywords that can follow a table in FROM. Any other word is an alias.
_AFTER_TABLE = frozenset(
    [
        *("where", "group", "having", "order", "sort", "cluster", "distribute", "limit", "offset", "window", "qualify"),
        *("select", "union", "except", "intersect", "minus", "setminus", "insert", "set", "aggregate", "map", "reduce"),
        *("on", "using", "join", "inner", "cross", "left", "right", "full", "semi", "anti", "natural", "lateral"),
        *("pivot", "unpivot", "tablesample", "when", "with", "watermark", "for"),
    ]
)
_EXPLAIN_MODES = ("extended", "codegen", "cost", "formatted")
_TABLE_VERBS = (["create"], ["create", "or", "replace"], ["create", "external"], ["replace"])
# The words that precede the table name in statements that concern a single table.
_BEFORE_SUBJECT = (
    *(("show", "tblproperties"), ("show", "create", "table"), ("show", "partitions")),
    *(("drop", "table", "if", "exists"), ("drop", "table"), ("truncate", "table"), ("reorg", "table"), ("reorg",)),
    *(("describe", "table"), ("describe",), ("desc", "table"), ("desc",), ("vacuum", "table"), ("vacuum",)),
)
_Place: TypeAlias = Literal["source", "target"] | None
_TYPES = ("timestamp", "timestamp_ltz", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a statement; ``text`` is ``query[start:end]``."""

    kind: Literal["word", "string", "quoted", "number", "other"]
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The token's text in lower case if the token is a word or a symbol; otherwise an empty string."""
        return self.text.lower() if self.kind in ("word", "other") else ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A table in a statement."""

    #: The path, or with ``is_name`` the name as ``schema.table``.
    path: str
    #: The position of the reference in the text, including its time travel clause.
    start: int
    end: int
    #: The time travel clause, ``version`` or ``timestamp``, and the tokens of its value.
    clause: str | None
    point: tuple[Token, ...]
    #: Whether the statement writes to this table.
    is_target: bool
    is_name: bool = False
    #: The alias, in backticks, to insert into the statement at ``alias_at``; with it, columns can be qualified with the
    #: table's name. Empty if the statement already has an alias.
    alias: str = ""
    alias_at: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """A temporary view that a statement creates."""

    #: As written.
    name: str
    #: The names and comments of the columns; empty if the statement lists no columns.
    columns: tuple[tuple[str, str | None], ...]
    replaces: bool
    is_global: bool
    #: The position of the query in the text.
    query_start: int
    query_end: int


class Statement:
    """The tokens of a statement and its references to deltalog tables.

    ``names``: the tables of the catalog, as ``schema.table``. ``other_names``: all other names, except those of CTEs,
    at positions where SQL allows a table name, both as ``schema.table`` and as written. Raises CallError for a
    reference that cannot be parsed.
    """

    def __init__(self, text: str, tokens: Sequence[Token], names: Collection[str] = ()) -> None:
        self.text = text
        self.tokens = tokens
        self.is_explained = self.words(0, 1) == ["explain"]
        # The first token of the statement itself, after EXPLAIN and its mode.
        self.start = (2 if self.words(1, 2)[0] in _EXPLAIN_MODES else 1) if self.is_explained else 0
        self.head = self.words(self.start, self.start + 1)[0]
        self.other_names: list[tuple[str, str]] = []
        self._names = names
        self.references = list(self._references())
        self._note_subject()

    def words(self, start: int, end: int) -> list[str]:
        """The ``word`` of these tokens; empty strings beyond the end."""
        return [self.tokens[at].word if at < len(self.tokens) else "" for at in range(start, end)]

    def names_table(self, at: int) -> bool:
        """Whether ``delta.`path``` begins at a token."""
        if at + 2 >= len(self.tokens) or self.tokens[at + 2].kind != "quoted":
            return False
        is_named = self.tokens[at].text.lower() in _SOURCES and self.words(at + 1, at + 2) == ["."]
        return is_named and (at == 0 or self.tokens[at - 1].text != ".")

    @property
    def has_paths(self) -> bool:
        return any(self.names_table(at) for at in range(len(self.tokens)))

    @property
    def subject_at(self) -> int | None:
        """The token at which the table name begins in a statement about one table (DESCRIBE, SHOW, DROP …); None for
        other statements."""
        before = next((each for each in _BEFORE_SUBJECT if self.words(0, len(each)) == [*each]), None)
        if before is None or self.is_explained:
            return None
        is_marked = before[0] in ("describe", "desc") and self.words(len(before), len(before) + 1)[0] in (
            "extended",
            "formatted",
        )
        return len(before) + is_marked

    @property
    def has_known_subject(self) -> bool:
        """Whether ``subject_at`` names a table by path or a table in the catalog."""
        at = self.subject_at
        if at is None or at >= len(self.tokens):
            return False
        if self.head == "vacuum" and self.tokens[at].kind == "string":
            return True
        found = self.name(at)
        return self.names_table(at) or (
            found is not None and found[0] in self._names and not self._is_of_another_kind(at)
        )

    def other_target(self) -> str | None:
        """The target of DELETE, UPDATE, MERGE or INSERT, as written; None if the target is a deltalog table."""
        if any(reference.is_target for reference in self.references):
            return None
        for at in range(len(self.tokens)):
            before = self.words(at - 1, at)[0] if at else ""
            is_before = before in ("into", "overwrite") or (before == "from" and self.head == "delete")
            if is_before or (before == "update" and self.head == "update"):
                at += self.words(at, at + 1) == ["table"]
                found = self.name(at)
                return None if found is None else self._written(at, found[1])
        return None

    def _note_subject(self) -> None:
        at = self.subject_at
        found = None if at is None or self.names_table(at) else self.name(at)
        if at is None or found is None or found[0] in self._names or self._is_of_another_kind(at):
            return
        if all(name != found[0] for name, _ in self.other_names):
            self.other_names.append((found[0], self._written(at, found[1])))

    def path(self, at: int) -> str:
        """The path in ``delta.`path``` at a token."""
        return unquoted(self.tokens[at + 2].text)

    def _references(self) -> Iterator[Reference]:
        places, at, others, found = _Places(self), 0, {}, set()
        while at < len(self.tokens):
            place = places.next
            places.take(at)
            if not self.names_table(at):
                named = None if place is None else self._named(at, places, place)
                if named is not None:
                    yield named[0]
                at = at + 1 if named is None else named[1]
                continue
            path, shown = self.path(at), "".join(token.text for token in self.tokens[at : at + 3])
            if place is None:
                others[path] = shown  # it usually qualifies a column
                at += 3
                continue
            if self.words(at + 3, at + 4) == ["."]:
                raise deltalog.CallError(f"{shown} is followed by a dot, but nothing can follow a table by path.")
            clause, point, end = self._time_travel(at + 3)
            found.add(path)
            yield Reference(path, self.tokens[at].start, self.tokens[end - 1].end, clause, point, place == "target")
            at = end
        for path in found.intersection(others):
            raise deltalog.CallError(
                f"{others[path]} qualifies a column. Give the table an alias in FROM, and qualify the column with it."
            )

    def name(self, at: int) -> tuple[str, int] | None:
        """The name ``table`` or ``schema.table`` that begins at a token, in the form ``schema.table`` (the default
        schema is ``default``), and the token after the name; None if no name begins there."""
        parts, end = [], at
        while end < len(self.tokens) and self.tokens[end].kind in ("word", "quoted"):
            parts.append(unquoted(self.tokens[end].text))
            end += 1
            if self.words(end, end + 1) != ["."]:
                is_word = len(parts) == 1 and self.tokens[at].word in _NOT_NAMES
                return (".".join(["default", *parts][-2:]), end) if len(parts) < 3 and not is_word else None
            end += 1
        return None

    def _named(self, at: int, places: _Places, place: str) -> tuple[Reference, int] | None:
        """The reference to a catalog table that begins at the given token, and the token after the reference."""
        found = self.name(at)
        if found is None:
            return None
        name, end = found
        alias, (after,) = unquoted(self.tokens[end - 1].text), self.words(end, end + 1)
        if self.head in ("describe", "desc") and self.tokens[at].word in ("history", "detail"):
            told = None if self.names_table(at + 1) else self.name(at + 1)
            if told is not None:
                self.other_names.append((told[0], self._written(at + 1, told[1])))
                return None
        if end == at + 1 and (places.is_cte(alias) or self._is_of_another_kind(at)):
            return None
        if place == "source" and (after == "(" or (self.head == "show" and not self._shows_columns_of(at, end))):
            return None
        if name not in self._names:
            self.other_names.append((name, self._written(at, end)))
            return None
        clause, point, end = self._time_travel(end)
        start, last = self.tokens[at].start, self.tokens[end - 1].end
        reference = Reference(name, start, last, clause, point, place == "target", is_name=True)
        if places.was_in_from:
            behind = self._sample_end(end)
            if not self._is_alias(behind):
                quoted = "`" + alias.replace("`", "``") + "`"
                reference = replace(reference, alias=quoted, alias_at=self.tokens[behind - 1].end)
        return reference, end

    def _written(self, at: int, end: int) -> str:
        return "".join(token.text for token in self.tokens[at:end])

    def _is_of_another_kind(self, at: int) -> bool:
        """Whether a word after DESCRIBE means that the name after it is not a table name, as in DESCRIBE FUNCTION f."""
        is_followed = at + 1 < len(self.tokens) and self.tokens[at + 1].kind in ("word", "quoted")
        return self.head in ("describe", "desc") and self.tokens[at].word in _NOT_TABLES and is_followed

    def _shows_columns_of(self, at: int, end: int) -> bool:
        """Whether a name is the table of SHOW COLUMNS, with no database (FROM or IN) after it."""
        begin = self.words(self.start + 1, self.start + 2) == ["columns"] and at == self.start + 3
        return begin and self.words(end, end + 1)[0] not in ("from", "in")

    def _sample_end(self, at: int) -> int:
        """The token after a TABLESAMPLE clause that begins at ``at``; ``at`` itself if no such clause begins there."""
        if self.words(at, at + 2) != ["tablesample", "("]:
            return at
        at = self.closing(at + 1)
        return self.closing(at + 1) if self.words(at, at + 2) == ["repeatable", "("] else at

    def _is_alias(self, at: int) -> bool:
        """Whether the token at ``at``, which follows a table in FROM, begins an alias."""
        if at >= len(self.tokens):
            return False
        token = self.tokens[at]
        return token.kind == "quoted" or (token.kind == "word" and token.word not in _AFTER_TABLE)

    @property
    def defines_table(self) -> bool:
        """Whether the statement is CREATE TABLE or REPLACE TABLE."""
        words = self.words(self.start, self.start + 5)
        return words[: words.index("table")] in _TABLE_VERBS if "table" in words else False

    def temporary_view(self) -> View | None:
        """The name of the temporary view that the statement creates; None if it creates none. Raises CallError for
        unsupported clauses."""
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
                f"CREATE TEMPORARY VIEW {name.text} over a deltalog table can only have a list of columns and AS after "
                "the name."
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
        """The time travel clause that begins at a token: its kind and value, and the token that follows it."""
        start = at + 1 if self.words(at, at + 1) == ["for"] else at
        first, *then = self.words(start, start + 3)
        if first not in _CLAUSES or then != ["as", "of"]:
            return None, (), at
        clause, begin = _CLAUSES[first], start + 3
        end = self._value_end(begin)
        if end == begin:
            raise deltalog.CallError(f"{first.upper()} AS OF has no value after it.")
        if clause == "timestamp" and self.words(end, end + 1)[0] in ("+", "-", "*", "/", "||", ":", "."):
            raise deltalog.CallError("Put the expression after TIMESTAMP AS OF in parentheses.")
        return clause, tuple(self.tokens[begin:end]), end

    def _value_end(self, at: int) -> int:
        """The token after a constant: a string, a number, ``:name``, ``date'…'``, ``f(…)`` or ``(…)``."""
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
        """The token after the parenthesis that closes the one at ``at``. Raises CallError if none does."""
        end = self.closing_or_end(at)
        if end > len(self.tokens):
            raise deltalog.CallError("A parenthesis is not closed.")
        return end

    def closing_or_end(self, at: int) -> int:
        """Like ``closing``, but returns a position beyond the last token if the closing parenthesis is missing."""
        depth = 0
        for index in range(at, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[index].text, 0)
            if depth == 0:
                return index + 1
        return len(self.tokens) + 1


@dataclass
class _Level:
    """The parser's state inside one pair of parentheses."""

    is_query: bool
    is_in_from: bool = False
    ctes: set[str] = field(default_factory=set)  # in lower case


class _Places:
    """Tracks the clauses of a statement, token by token.

    ``next``: whether the next token can be a table, and whether the statement reads or writes that table.
    ``was_in_from``: whether the last token could be the end of a table reference, so that an alias may follow.
    """

    def __init__(self, statement: Statement) -> None:
        self.next: _Place = None
        self.was_in_from = False
        self._takes_alias = False
        self._defined: dict[int, str] = {}  # CTE names, by the position of the parenthesis after which they are visible
        self._statement = statement
        self._levels = [_Level(is_query=True)]
        self._defines = statement.head in ("create", "replace")  # until the AS before the query

    def take(self, at: int) -> None:
        """Move past the token at ``at``."""
        previous, was, head = self.next, self._takes_alias, self._statement.head
        self.was_in_from = was and previous == "source"
        self._take(at, previous)
        word = self._statement.words(at, at + 1)[0]
        follows = (word in ("from", "join", ",") and head != "show") or (word == "using" and head == "merge")
        self._takes_alias = self.next == "source" and (follows or (was and word == "("))

    def is_cte(self, name: str) -> bool:
        """Whether a name at the current position refers to a CTE."""
        return any(name.lower() in level.ctes for level in self._levels)

    def _take(self, at: int, previous: _Place) -> None:
        word, after = self._statement.words(at, at + 2)
        before = self._statement.tokens[at - 1].word if at else ""
        level, self.next = self._levels[-1], None
        is_outermost = len(self._levels) == 1
        if word == "(":
            is_source = previous == "source"
            self._levels.append(_Level(is_source or after in QUERY_STARTS, is_source))
            self._define(at)
            self.next = "source" if is_source else None
        elif word == ")":
            if not is_outermost:
                self._levels.pop()
            self._define(at)
        elif before == ".":
            return
        elif word in _BETWEEN and previous:
            self.next = previous
        elif (word == "with" and self._take_definitions(at + 1)) or (word == "view" and before == "lateral"):
            level.is_in_from = False
        elif word in _FROM_ENDS:
            level.is_in_from = False
            level.is_query = level.is_query or word == "select"
        elif self._precedes_target(word, before, is_outermost):
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

    def _define(self, at: int) -> None:
        name = self._defined.pop(at, None)
        if name is not None:
            self._levels[-1].ctes.add(name)

    def _take_definitions(self, at: int) -> bool:
        """Record the CTEs (names in a WITH clause) whose definitions begin at the given token. A CTE is visible after
        its definition and, with RECURSIVE, also inside its definition."""
        statement, is_first = self._statement, True
        is_recursive = statement.words(at, at + 1) == ["recursive"] and statement.words(at + 1, at + 2) != ["as"]
        at += 1 if is_recursive else 0
        while at < len(statement.tokens) and statement.tokens[at].kind in ("word", "quoted"):
            name = unquoted(statement.tokens[at].text).lower()
            at += 1
            begin, after = statement.words(at, at + 2)
            if begin == "(" and after not in QUERY_STARTS:
                at = statement.closing_or_end(at)
            if statement.words(at, at + 3) == ["max", "recursion", "level"]:
                at += 4
            at += 1 if statement.words(at, at + 1) == ["as"] else 0
            if statement.words(at, at + 1) != ["("]:
                break
            end = statement.closing_or_end(at)
            self._defined[at if is_recursive else end - 1] = name
            if is_recursive:
                self._defined[end - 1] = name
            is_first, at = False, end
            if statement.words(at, at + 1) != [","]:
                break
            at += 1
        return not is_first

    def _precedes_target(self, word: str, before: str, is_outermost: bool) -> bool:
        if word == "update":
            return is_outermost and before in ("", "explain", *_EXPLAIN_MODES, ")")
        return (word, before) in (
            *(("from", "delete"), ("into", "insert"), ("into", "merge"), ("into", "evolution")),
            *(("overwrite", "insert"), ("overwrite", "evolution")),
        )

    def _precedes_source(self, word: str, at: int) -> bool:
        """Whether the word ``word`` is followed by a table name in statements of this kind (but not in others)."""
        head = self._statement.head
        if head == "merge":
            return word == "using"
        if head == "show":
            return word == "in"
        if head in ("describe", "desc", "vacuum", "restore", "optimize"):
            return at == self._statement.start
        if head == "generate":
            return word == "for"
        return self._defines and word in ("like", "clone")


def unquoted(text: str) -> str:
    """The identifier without backticks."""
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


# --- tokens

_MOST_CONTINUED_COMMENTS = 100  # a limit, because the text is tokenized again for each continued comment


def tokens_of(query: str) -> list[Token] | None:
    """The tokens without comments and white space; None for text that cannot be tokenized, as with an unclosed
    quote."""
    from sqlglot.errors import SqlglotError

    text = query
    for _ in range(_MOST_CONTINUED_COMMENTS):
        tokenizer, failed = _tokenizer()(dialect="spark"), False
        try:
            tokenizer.tokenize(text)
        except SqlglotError:
            failed = True
        continued = _continued_comment(text, tokenizer.tokens)
        if continued is None:
            return None if failed else [_token(query, each) for each in tokenizer.tokens]
        # In Spark a backslash at the end of the line continues a comment.
        text = text[:continued] + "  " + text[continued + 2 :]
    return None


@functools.cache
def _tokenizer() -> Any:
    """sqlglot's tokenizer for Spark without its keywords, which merge words and swallow the rest of some statements."""
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
    """The position of a backslash and a line break that lie between two tokens, so that they belong to a comment; None
    if no comment is continued."""
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
