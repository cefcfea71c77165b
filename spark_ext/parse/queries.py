"""The conditions that the queries of a statement place on each deltalog table, derived from sqlglot's tree. Pure.

The conditions are used to skip files and to answer queries from the log. sqlglot is not Spark's parser: a construct
that either it or this module may misread yields no condition, so that no file is skipped.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_ext.parse.table_references import Statement, Token
from spark_ext.parse.trees import trees_of

_TABLE = "__deltalog_table_{}"
_UNKNOWN = "__deltalog_unknown"  # replaces an unknown value
_KNOWN_PARTS = frozenset(
    [
        *("expressions", "from", "from_", "where", "joins", "group", "having", "order", "limit", "offset", "distinct"),
        *("hint", "with", "with_", "windows", "qualify", "sort", "cluster", "distribute"),
    ]
)
# Kinds of sqlglot nodes whose value depends only on the values of columns.
_DETERMINISTIC = frozenset(
    [
        *("Select", "From", "Table", "TableAlias", "Where", "Group", "Having", "Order", "Ordered", "Limit", "Offset"),
        *("Distinct", "Alias", "Column", "Identifier", "Min", "Max", "And", "Or", "Not", "Paren", "EQ", "NEQ", "GT"),
        *("GTE", "LT", "LTE", "NullSafeEQ", "In", "Between", "Like", "Is", "Null", "Literal", "Boolean", "Neg"),
        *("Cast", "DataType", "Tuple"),
    ]
)
_PIPE = ("|", ">")
# Functions that accept the keyword FROM between their arguments.
_WITH_FROM = ("extract", "trim", "substring", "substr", "overlay")


@dataclass(frozen=True, slots=True)
class Query:
    """The conditions on the tables in a statement, and the syntax tree of the statement if it is a simple query."""

    #: For each reference, the conjuncts of WHERE that use only its columns, as sqlglot trees with unqualified names.
    conditions: Sequence[Sequence[Any]]
    #: The tree of the statement, if it is a single query of one table and ``conditions`` contains the whole WHERE
    #: clause.
    select: Any | None = None
    #: The alias of that table.
    alias: str = ""

    @property
    def count_name(self) -> str | None:
        """The name of the result column if the query only counts rows; otherwise None."""
        from sqlglot import exp

        if self.select is None or set(_given(self.select)) - {"expressions", "from", "from_", "where"}:
            return None
        found = self.select.expressions[0]
        counted, name = (found.this, found.alias) if isinstance(found, exp.Alias) else (found, "count(1)")
        is_alone = len(self.select.expressions) == 1 and isinstance(counted, exp.Count)
        if not (is_alone and isinstance(counted.this, exp.Star) and not counted.expressions):
            return None
        return name if name == "count(1)" or re.fullmatch(r"\w+", name) else None

    def is_on_values_of(self, columns: Sequence[str]) -> bool:
        """Whether the answer to the query depends only on the distinct combinations of values in these columns."""
        from sqlglot import exp

        if self.select is None or set(_given(self.select)) & {"windows", "qualify", "hint"}:
            return False
        known = {name.lower() for name in columns}
        for node in self.select.find_all(exp.Column):
            parts = _own(node, self.alias, True)
            if parts is None or len(parts) != 1 or parts[0].name.lower() not in known:
                return False
        shown, is_distinct = self.select.expressions, self.select.args.get("distinct") is not None
        kinds = [type(each.this if isinstance(each, exp.Alias) else each).__name__ for each in shown]
        if not (set(kinds) <= {"Column", "Min", "Max"} and (is_distinct or {"Min", "Max"} & set(kinds))):
            return False
        return all(type(node).__name__ in _DETERMINISTIC for node in self.select.walk())


def query_of(statement: Statement, args: Any) -> Query:
    """The conditions on the tables in a statement, and the syntax tree of the statement if it is a simple query.
    ``args``: its named arguments. Cost: none."""
    conditions: list[list[Any]] = [[] for _ in statement.references]
    tree = _tree(statement, args if isinstance(args, Mapping) else {})
    if tree is None:
        return Query(conditions)
    from sqlglot import exp

    for select in tree.find_all(exp.Select):
        for index, condition in _conditions(select):
            conditions[index].append(condition)
    is_whole = statement.head == "select" and len(statement.references) == 1 and isinstance(tree, exp.Select)
    if not is_whole or len(list(tree.find_all(exp.Query))) > 1:
        return Query(conditions)
    relations, where = _relations(tree), tree.args.get("where")
    if relations is None or [each.index for each in relations[0]] != [0]:
        return Query(conditions)
    parts = () if where is None else conjuncts(where.this)
    if len(parts) != len(conditions[0]):
        return Query(conditions)
    return Query(conditions, tree, relations[0][0].alias)


def _tree(statement: Statement, args: Mapping[str, Any]) -> Any | None:
    start = _query_start(statement)
    if start is None or not _has_known_form(statement, start):
        return None
    trees = trees_of(_text(statement, start, args))
    return trees[0] if len(trees) == 1 else None


def _query_start(statement: Statement) -> int | None:
    """The token at which the query of a statement begins."""
    if statement.head not in ("select", "with", "(", "insert", "create"):
        return None
    depth = 0
    for at in range(statement.start, len(statement.tokens)):
        word = statement.words(at, at + 1)[0]
        if depth == 0 and (word in ("select", "with") or (word == "(" and at == statement.start)):
            return at
        depth += {"(": 1, ")": -1}.get(word, 0)
    return None


def _has_known_form(statement: Statement, start: int) -> bool:
    """Whether a query contains no leading FROM, no pipe and no INSERT; sqlglot parses queries with one of these into
    trees of another form."""
    # For each open parenthesis: whether SELECT was seen, and whether FROM needs a SELECT before it.
    levels, before = [[False, True]], ""
    for at in range(start, len(statement.tokens)):
        word, after = statement.words(at, at + 2)
        if before == ".":
            word = ""
        if word == "(":
            levels.append([False, before not in _WITH_FROM])
        elif word == ")":
            levels = levels[:-1] or [[False, True]]
        elif word == "select":
            levels[-1][0] = True
        elif word in ("union", "except", "intersect", "minus"):
            levels[-1][0] = False
        elif (word == "from" and levels[-1] == [False, True]) or word in ("insert", "values") or (word, after) == _PIPE:
            return False
        before = statement.words(at, at + 1)[0]
    return True


def _text(statement: Statement, start: int, args: Mapping[str, Any]) -> str:
    """The query without comments, with placeholder names instead of its references to tables."""
    pieces, end = [], None
    references = {reference.start: (index, reference) for index, reference in enumerate(statement.references)}
    at, tokens = start, statement.tokens
    while at < len(tokens):
        token = tokens[at]
        pieces.append("" if end == token.start else " ")
        end = token.end
        if token.start in references:
            index, reference = references[token.start]
            has_alias = reference.alias and reference.alias_at == reference.end
            pieces.append(_TABLE.format(index) + (f" as {reference.alias}" if has_alias else ""))
            while at < len(tokens) and tokens[at].start < reference.end:
                at += 1
            end = reference.end
            continue
        used = 1
        if token.text == "{" and [each.text for each in tokens[at + 2 : at + 3]] == ["}"]:
            piece, used = _UNKNOWN, 3
        elif token.text == ":" and at + 1 < len(tokens) and tokens[at - 1].text != ":":
            literal = _literal(args.get(tokens[at + 1].text))
            piece, used = (f" {literal} ", 2) if literal is not None else (token.text, 1)
        elif token.kind == "string" and not _is_plain(tokens, at):
            piece = _UNKNOWN
        elif token.text == ";" and at == len(tokens) - 1:
            piece = ""
        else:
            piece = token.text
        pieces.append(piece)
        at += used
        end = tokens[at - 1].end
    return "".join(pieces)


def _is_plain(tokens: Sequence[Token], at: int) -> bool:
    """Whether a string literal has the same value whatever the session's settings."""
    text = tokens[at].text
    alone = all(not 0 <= beside < len(tokens) or tokens[beside].kind != "string" for beside in (at - 1, at + 1))
    return alone and text.startswith("'") and "\\" not in text


def _literal(value: Any) -> str | None:
    """An argument as a SQL literal; None if the literal could mean something else in another session."""
    if type(value) is int:
        return str(value)
    if type(value) is datetime.date:
        return f"date'{value.isoformat()}'"
    if type(value) is str and "'" not in value and "\\" not in value:
        return f"'{value}'"
    return None


# --- conditions


@dataclass(frozen=True, slots=True)
class _Relation:
    """A table in FROM or JOIN."""

    #: The index of the reference if this table is the table of the statement; None for other tables.
    index: int | None
    #: In lower case.
    alias: str


def _conditions(select: Any) -> Iterator[tuple[int, Any]]:
    """The conjuncts of WHERE that refer to only one table reference, each with the index of that table reference."""
    from sqlglot import exp

    where, relations = select.args.get("where"), _relations(select)
    if where is None or relations is None:
        return
    sources, kept = relations
    for part in conjuncts(where.this):
        if part.find(exp.Query) is not None:
            continue
        for relation in kept:
            if relation.index is not None:
                own = _on_one_table(part, relation.alias, len(sources) == 1)
                if own is not None:
                    yield relation.index, own


def _relations(select: Any) -> tuple[list[_Relation], list[_Relation]] | None:
    """All tables of a query, and those tables whose rows can be skipped if WHERE rejects them: all except the tables
    that an outer join fills with nulls. None if the query has clauses that this module does not support."""
    base = _from(select)
    if base is None or set(_given(select)) - _KNOWN_PARTS:
        return None
    sources = [_relation(base.this)]
    kept = list(sources)
    for join in select.args.get("joins") or []:
        found = _relation(join.this)
        sources.append(found)
        method, side, kind = (str(join.args.get(part) or "").upper() for part in ("method", "side", "kind"))
        if method not in ("", "NATURAL"):
            kept = []
        elif (side, kind) in (("", ""), ("", "INNER"), ("", "CROSS")):
            kept.append(found)
        elif (side, kind) in (("RIGHT", ""), ("RIGHT", "OUTER")):
            kept = [found]
        elif side not in ("LEFT", "") or kind not in ("", "OUTER", "SEMI", "ANTI"):
            kept = []
    aliases = [relation.alias for relation in sources if relation.alias]
    if len(set(aliases)) < len(aliases):
        return None
    return sources, kept


def _relation(tree: Any) -> _Relation:
    from sqlglot import exp

    alias = str(tree.alias_or_name).lower()
    if isinstance(tree, exp.Table) and not set(_given(tree)) - {"this", "alias"}:
        prefix = _TABLE.format("")
        named = tree.args.get("alias")
        if tree.name.startswith(prefix) and not (named is not None and named.args.get("columns")):
            return _Relation(int(tree.name.removeprefix(prefix)), alias)
    return _Relation(None, alias)


def conjuncts(tree: Any) -> Sequence[Any]:
    """The operands of ``a AND b``, in order. Cost: none."""
    found, todo = [], [tree]
    while todo:
        tree = todo.pop()
        kind = type(tree).__name__
        if kind == "And":
            todo += [tree.expression, tree.this]
        elif kind == "Paren":
            todo.append(tree.this)
        else:
            found.append(tree)
    return found


def _own(column: Any, alias: str, is_alone: bool) -> Sequence[Any] | None:
    """The parts of a column's name without the table's alias; None if the name may refer to a column of another
    table."""
    parts = list(column.parts)
    if len(parts) > 1 and parts[0].name.lower() == alias:
        return parts[1:]
    return parts if is_alone else None


def _on_one_table(tree: Any, alias: str, is_alone: bool) -> Any | None:
    """The condition with unqualified column names; None if it contains no columns, or contains columns of other
    tables."""
    from sqlglot import exp

    holder = exp.Paren(this=tree.copy())
    columns = list(holder.find_all(exp.Column))
    for column in columns:
        parts = _own(column, alias, is_alone)
        if parts is None:
            return None
        column.replace(exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(parts), strict=False))))
    return holder.this if columns else None


def _given(tree: Any) -> list[str]:
    return [key for key, value in tree.args.items() if value]


def _from(select: Any) -> Any | None:
    return select.args.get("from") or select.args.get("from_")
