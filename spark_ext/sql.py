"""SQL over tables by path, with time travel, for Spark without an extension.

References ``deltalog.`path``` with or without ``VERSION AS OF`` and ``TIMESTAMP AS OF`` are replaced by
``{tN}`` arguments of ``spark.sql``. The text is split into tokens first, so strings and comments stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext.reader import frame, resolve, timestamp_ms

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--(?:\\\n|[^\r\n])*)
  | (?P<bracketed>/\*)
  | (?P<dollar>\$[A-Za-z_]*\$)
  | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<string>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>\d+(?![\w.]))
  | (?P<word>\w+)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUERY_STARTS = frozenset(["select", "with", "from", "values", "table", "explain", "("])
_CLAUSES = {
    "version": "version",
    "system_version": "version",
    "timestamp": "timestamp",
    "system_time": "timestamp",
}
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind in ("word", "other") else ""


@dataclass(frozen=True, slots=True)
class _Reference:
    """``start`` and ``end``: what is replaced. ``clause``: version or timestamp; ``point``: its tokens."""

    path: str
    start: int
    end: int
    clause: str | None
    point: tuple[_Token, ...]


def sql(spark: SparkSession, query: str, args: Mapping[str, Any] | None = None, **frames: DataFrame) -> DataFrame:
    """Run a query in which ``deltalog.`path``` names a table, also with ``VERSION AS OF 3``,
    ``TIMESTAMP AS OF '2026-01-31 10:00:00'``, ``FOR SYSTEM_TIME AS OF``, or ``path@v3`` inside the backticks.

    ``args`` fill ``:name`` markers, also in the clauses; ``frames`` fill ``{name}`` as in ``spark.sql``. The
    moment may be a string, ``:name``, ``timestamp'…'``, ``date'…'``, a function call, or any constant expression
    in parentheses. Text in the session time zone, as for ``timestampAsOf``. Each reference is resolved when this
    is called. Only queries: a statement that writes is refused. Raises CallError, and the errors of a load.
    """
    tokens = list(_tokens(query))
    code = [t for t in tokens if t.kind not in ("space", "comment")]
    references = list(_references(code))
    if not references:
        return spark.sql(query, args, **frames)
    if code[0].word not in _QUERY_STARTS:
        raise deltalog.CallError(
            f"{code[0].text.upper()} statements cannot use deltalog.`path`; only queries can. "
            "Write with spark_ext.write(df)."
        )
    loaded: dict[tuple[str, str | None, Any], str] = {}
    arguments: dict[str, DataFrame] = dict(frames)
    pieces, position = [], 0
    for reference in references:
        point = _point(spark, reference, args)
        key = (reference.path, reference.clause, point)
        if key not in loaded:
            name = _free_name(arguments)
            version = point if reference.clause == "version" else None
            at_ms = point if reference.clause == "timestamp" else None
            arguments[name] = frame(spark, resolve(spark, reference.path, version, at_ms=at_ms))
            loaded[key] = name
        pieces.append(_literal(query[position : reference.start], bool(frames)))
        pieces.append("{" + loaded[key] + "}")
        position = reference.end
    pieces.append(_literal(query[position:], bool(frames)))
    return spark.sql("".join(pieces), args, **arguments)


def _literal(text: str, has_fields: bool) -> str:
    """Text between references; its braces are the caller's own fields only when the caller gave frames."""
    return text if has_fields else text.replace("{", "{{").replace("}", "}}")


def _free_name(taken: Mapping[str, Any]) -> str:
    index = 0
    while f"t{index}" in taken:
        index += 1
    return f"t{index}"


# --- tokens


def _tokens(query: str) -> Iterator[_Token]:
    position = 0
    while position < len(query):
        match = _TOKEN.match(query, position)
        assert match is not None and match.lastgroup is not None
        kind, end = match.lastgroup, match.end()
        if kind == "bracketed":
            kind, end = "comment", _comment_end(query, position)
        elif kind == "dollar":
            closing = query.find(match[0], end)
            kind, end = ("string", closing + len(match[0])) if closing >= 0 else ("other", end)
        yield _Token(kind, query[position:end], position, end)
        position = end


def _comment_end(query: str, start: int) -> int:
    """The end of a bracketed comment; comments nest, except hints."""
    depth, position = 0, start
    for match in re.compile(r"/\*|\*/").finditer(query, start):
        depth += 1 if match[0] == "/*" else -1
        position = match.end()
        if depth == 0:
            return position
    return len(query)


def _references(code: Sequence[_Token]) -> Iterator[_Reference]:
    index = 0
    while index < len(code):
        if not _is_reference(code, index):
            index += 1
            continue
        _check_place(code, index)
        path = code[index + 2]
        end = index + 3
        clause, point, end = _clause(code, end)
        yield _Reference(path.text[1:-1].replace("``", "`"), code[index].start, code[end - 1].end, clause, point)
        index = end


def _is_reference(code: Sequence[_Token], index: int) -> bool:
    if index + 2 >= len(code) or code[index + 1].text != "." or code[index + 2].kind != "quoted":
        return False
    name = code[index].text.lower()
    return name in ("deltalog", "`deltalog`") and (index == 0 or code[index - 1].text != ".")


def _check_place(code: Sequence[_Token], index: int) -> None:
    text = "".join(token.text for token in code[index : index + 3])
    if index + 3 < len(code) and code[index + 3].text == ".":
        raise deltalog.CallError(f"{text} qualifies a column. Give the table an alias in FROM and use that.")
    if index and code[index - 1].word in ("into", "overwrite", "update", "using"):
        before = index >= 2 and code[index - 1].word == "using" and "merge" in {t.word for t in code}
        if code[index - 1].word != "using" or before:
            raise deltalog.CallError(f"{text} can only be read here. Write with spark_ext.write(df).")


def _clause(code: Sequence[_Token], at: int) -> tuple[str | None, tuple[_Token, ...], int]:
    """The time travel clause that begins at a token, what follows AS OF, and where the clause ends."""
    words = [token.word for token in code[at : at + 4]]
    start = at + 1 if words[:1] == ["for"] else at
    words = words[start - at :]
    if len(words) < 3 or words[0] not in _CLAUSES or words[1:3] != ["as", "of"]:
        return None, (), at
    clause, begin = _CLAUSES[words[0]], start + 3
    end = _expression_end(code, begin)
    if end == begin:
        raise deltalog.CallError(f"{words[0].upper()} AS OF has no value after it.")
    if end < len(code) and code[end].text in ("+", "-", "*", "/", "||", "::", ".") and clause == "timestamp":
        raise deltalog.CallError("Put the expression after TIMESTAMP AS OF into parentheses.")
    return clause, tuple(code[begin:end]), end


def _expression_end(code: Sequence[_Token], at: int) -> int:
    if at >= len(code):
        return at
    first = code[at]
    following = code[at + 1] if at + 1 < len(code) else None
    if first.text == "(":
        return _closing(code, at)
    if first.text == ":" and following is not None and following.kind == "word":
        return at + 2
    if first.text in ("-", "+") and following is not None and following.kind == "number":
        return at + 2
    if first.kind == "word" and following is not None:
        if following.text == "(":
            return _closing(code, at + 1)
        if following.kind in ("string", "raw") and first.word in ("timestamp", "timestamp_ltz", "date"):
            return at + 2
    if first.kind in ("string", "raw", "number", "word"):
        return at + 1
    return at


def _closing(code: Sequence[_Token], at: int) -> int:
    depth = 0
    for index in range(at, len(code)):
        depth += {"(": 1, ")": -1}.get(code[index].text, 0)
        if depth == 0:
            return index + 1
    raise deltalog.CallError("A parenthesis after AS OF is not closed.")


# --- values


def _point(spark: SparkSession, reference: _Reference, args: Mapping[str, Any] | None) -> Any:
    """The version, or the moment in ms, that a reference names."""
    tokens = reference.point
    if reference.clause is None:
        return None
    value: Any = None
    if tokens[0].text == ":":
        name = tokens[1].text
        if not isinstance(args, Mapping) or name not in args:
            raise deltalog.CallError(f"The marker :{name} after AS OF is not in args.")
        value = args[name]
    elif len(tokens) == 1 and tokens[0].kind in ("string", "raw"):
        value = _string(tokens[0].text)
    elif reference.clause == "version":
        value = "".join(token.text for token in tokens)
    if reference.clause == "version":
        return value
    if value is not None:
        return timestamp_ms(spark, value)
    text = " ".join(token.text for token in tokens)
    if tokens[-1].kind == "number":
        raise deltalog.InvalidTimestampError(
            f"TIMESTAMP AS OF {text} is a number. Give text such as '2026-01-31 10:00:00', or say what the number is: "
            f"timestamp_millis({text}) or timestamp_seconds({text})."
        )
    query = f"select unix_micros(cast(({text}) as timestamp_ltz)) as micros"
    micros = spark.sql(query).collect()[0]["micros"]
    if micros is None:
        raise deltalog.InvalidTimestampError(f"TIMESTAMP AS OF {text} is NULL. Give a timestamp.")
    return int(micros) // 1000


def _string(text: str) -> str:
    """The value of a string literal."""
    if text[0] in "rR":
        return text[2:-1]
    if text[0] == "$":
        return text[text.index("$", 1) + 1 : text.rindex("$", 0, -1)]
    quote, body = text[0], text[1:-1]

    def unescaped(match: re.Match[str]) -> str:
        return quote if match[0] == quote * 2 else _ESCAPES.get(match[1], match[1])

    return re.sub(rf"\\(.)|{quote}{quote}", unescaped, body, flags=re.DOTALL)
