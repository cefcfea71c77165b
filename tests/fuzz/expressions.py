"""Hostile expressions, passed to every call that accepts expressions as text from callers, from foreign logs or from
remote clients. Each call must return a result or raise a DeltaLogError, in bounded time and memory. tests/interop
compares the meaning of expressions with Spark.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pyarrow as pa

from deltalog import DeltaLogError, DeltaTable
from deltalog.doctor.check import check
from deltalog.schema import StructType
from deltalog.storage.memory import MemoryStore
from deltalog.transactions import table_objects
from tests.fuzz.tables import NOW, Files
from tests.fuzz.usage import environment, store_of
from tests.support.core import metadata_action, objects, protocol_action, put_commit
from tests.support.expressions import FAILING, REFUSED, SUPPORTED, cases

SCHEMA = pa.schema(
    [
        *(("p", pa.string()), ("i", pa.int32()), ("j", pa.int32()), ("s", pa.string()), ("d", pa.float64())),
        *(("ts", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("items", pa.list_(pa.int32())), ("q", pa.bool_())),
        *(("tags", pa.map_(pa.string(), pa.int32())), ("point", pa.struct([("x", pa.int32())]))),
        ("money", pa.decimal128(10, 2)),
    ]
)


def rows() -> pa.Table:
    """A few rows, with nulls."""
    one = {
        "p": "a",
        "i": 1,
        "j": 0,
        "s": "ab",
        "d": 1.5,
        "items": [1, 2],
        "q": True,
        "tags": [("a", 1)],
        "point": {"x": 3},
    }
    other = {
        "p": "b",
        "i": -7,
        "j": 3,
        "s": "x" * 50,
        "d": float("nan"),
        "items": [],
        "q": False,
        "tags": [],
        "point": None,
    }
    return pa.Table.from_pylist([one, other, {"p": "a"}], SCHEMA)


# ------------------------------------------------------------------------------------------- expressions

# Opening and closing strings to nest many times around an expression.
_AROUND = [
    ("struct(", ")"), ("array(", ")"), ("map(1, ", ")"), ("(", ")"), ("cast(s as array<", ">)"),
    ("case when q then ", " end"), ("not ", ""), ("- ", ""), ("upper(", ")"), ("i in (", ")"), ("coalesce(i, ", ")"),
    ("items[", "]"), ("(q = ", ")"), ("(true = ", ")"), ("(1 in (1, ", "))"), ("concat(s, ", ")"),
    ("repeat(", ", 100)"), ("replace(", ", 'a', 'aaaaaaaaaaaaaaaaaaaa')"), ("(i between i and ", ")"),
    ("named_struct('a', ", ")"), ("cast(", " as string)"), ("element_at(", ", 1)"), ("(select ", ")"),
    ("exists(", ")"), ("lpad(", ", 1000000000)"), ("nullif(", ", true)"), ("if(q, 1, ", ")"), ("date_add(day, ", ")"),
    ("filter(items, x -> ", ")"), ("(s || ", ")"), ("concat_ws(", ", s, s, s)"), ("((((", "))))"),
    ("case i when 1 then 2 else ", " end"), ("/*", "*/"),
]  # fmt: skip
# Strings that are each repeated many times in sequence.
_CHAINS = [
    " or q", " and not q", " + 1", " || s", ".x", "[0]", "::string", ", 1", " = 1", " in (1)", " is null", "'a'",
    " - interval 1 day", "/**/", "--\n", "\\", "'", '"', "`", " 1 day", " like '%'", " when q then 1", ";", "\u00e4",
    "\U0001f600", "\0", "(", ")", "''",
]  # fmt: skip
_PIECES = [
    "i", "j", "s", "d", "ts", "day", "items", "tags", "point", "money", "q", "p", "point.x", "items[0]", "tags['a']",
    "null", "true", "1", "-1", "0", "2147483647", "9223372036854775808", "1e308", "1e999", "1.5", "1L",
    "99999999999999999999999999999999999999.9", "'a'", '"i"', "''", "X'00'", "date'9999-12-31'",
    "timestamp'0001-01-01 00:00:00Z'", "interval 999999999 days", "current_date()", "now()",
    "interval '1-1' year to month", "'a\\\\", "=", "<", "<=>", "+", "-", "*", "/", "%", "div", "||", "and", "or",
    "not", "in", "between", "like", "ilike", "rlike", "is", "case", "when", "then", "else", "end", "(", ")", "[", "]",
    ",", ".", "::", "->", "as", "cast(", "size(", "repeat(s,", "rpad(s,", "element_at(", "array_contains(items,",
    "'(a+)+$'", "'(((a{99}){99}){99})'", "round(d,", "date_trunc('year',", "add_months(day,", "substring(s,",
    "interval", "select", "from", "@", "?", "$", "#", "{", "}", "~", "&", "^",
]  # fmt: skip
_BOMBS = [
    "repeat(s, 2147483647) = s", "length(repeat(repeat(repeat(s, 9999), 9999), 9999)) > 0",
    "lpad(s, 2147483647, 'x') > 'a'", "concat(repeat('x', 99999999), repeat('y', 99999999)) = s",
    "repeat('x', 2000000000) = s", "s = repeat('ab', 1000000000)",
    "length(replace(repeat(s, 1000), 'x', repeat('y', 100))) > 0", "s rlike '((a{500}){500}){500}'",
    "s rlike '(a|aa)+$'", "round(i, -2147483648) = 0", "substring(s, -2147483648, 2147483647) = 'a'",
    "interval 106751991167 days > ts - ts", "day + 2147483647 > day", "add_months(day, 2147483647) > day",
    "ts + interval 2147483647 months > ts", "d = '1e99999999999'", "money = '" + "9" * 5000 + "'", "i = " + "9" * 9000,
    "cast('" + "9" * 5000 + "' as decimal(38, 0)) = 1", "X'" + "00" * 4000 + "' = s",
    "cast(rpad('', 9999999, '9') as double) > 1", "items[2147483648L] = 1",
    "element_at(items, -9223372036854775808) = 1", "date_format(ts, '" + "yyyy" * 1000 + "') = s",
    "concat_ws(s" + ", s" * 4000 + ") = s", "i in (" + "i," * 4000 + "i)", "greatest(i" + ", i" * 99 + ") = 1",
    "s like '" + "%" * 9000 + "'", "s like '" + "_%" * 4000 + "x'", "initcap(repeat(s, 99999999)) = s",
]  # fmt: skip


def hostile_text(random: Random) -> str:
    """An expression that an attacker might write to crash, hang or exhaust a process."""
    draw = random.random()
    if draw < 0.15:
        return random.choice(_BOMBS)
    if draw < 0.45:
        depth = random.choice([3, 14, 30, 60, 99, 101, 500, 3000])
        opening, closing = random.choice(_AROUND)
        other = random.choice(_AROUND) if random.random() < 0.3 else (opening, closing)
        inner = random.choice(["i", "s", "q", "1", "true", "'a'", ""])
        if random.random() < 0.1:
            return (opening + other[0]) * depth + inner  # never closed
        return (opening + other[0]) * (depth // 2) + inner + (other[1] + closing) * (depth // 2)
    if draw < 0.6:
        return random.choice(["i", "s", "q", "1", "interval"]) + random.choice(_CHAINS) * random.choice(
            [10, 300, 3000, 30_000]
        )
    if draw < 0.8:
        return " ".join(random.choice(_PIECES) for _ in range(random.choice([3, 6, 12, 40, 400])))
    text = random.choice(_KNOWN)
    for _ in range(random.choice([0, 1, 1, 2, 5])):
        at = random.randrange(len(text) + 1)
        cut = text[at + random.choice([0, 1, 3]) :]
        text = text[:at] + random.choice([*_PIECES, *_CHAINS, "\ud800", chr(random.randrange(0x300))]) + cut
    return text


_KNOWN = [*cases(SUPPORTED), *cases(FAILING), *REFUSED]


# ------------------------------------------------------------------------------------------ entry points


@functools.cache
def _plain() -> Files:
    """A table with one file in each of two partitions."""
    store = MemoryStore("memory://fuzz", clock_ms=lambda: NOW)
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"], environment=environment())
    table.append(rows())
    return objects(store)


def _table() -> DeltaTable:
    return DeltaTable.open(store_of(_plain()), environment=environment())


def _foreign(metadata: dict[str, Any], *features: str) -> DeltaTable:
    """A table whose log was written by another client."""
    store = MemoryStore("memory://fuzz", clock_ms=lambda: NOW)
    put_commit(store, 0, protocol_action(*features, reader=1), metadata)
    return DeltaTable.open(store, environment=environment())


def _constrained(text: str) -> DeltaTable:
    return _foreign(metadata_action({"delta.constraints.c": text}, SCHEMA), "checkConstraints")


def _with_column(key: str, value: str, feature: str) -> DeltaTable:
    metadata = metadata_action({}, SCHEMA)
    schema = json.loads(metadata["metaData"]["schemaString"])
    schema["fields"][3]["metadata"] = {key: value}
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    return _foreign(metadata, feature)


def _with_type(text: str) -> DeltaTable:
    metadata = metadata_action({}, SCHEMA)
    schema = json.loads(metadata["metaData"]["schemaString"])
    schema["fields"][3]["type"] = text
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    return _foreign(metadata, "appendOnly")


def _merge(predicate: str, clause: str | None, value: str | None) -> Any:
    merge = _table().merge(rows().slice(0, 1), predicate)
    merge = merge.when_matched_delete(clause) if value is None else merge.when_matched_update({"i": value}, clause)
    return merge.execute()


def _append_filled(table: DeltaTable) -> Any:
    return table.append(rows().drop_columns(["s"]))


def _by_spark_ext(text: str) -> Any:
    """spark_ext's own parsing of conditions and statements, before it passes them to Spark."""
    if importlib.util.find_spec("pyspark") is None:
        return None
    from spark_ext.parse import queries, table_references
    from spark_ext.reading import pruning

    # The text is bounded in length, because it is tokenized seven times.
    snapshot, text = _table().snapshot(), text[:50_000]
    pruning.predicate(snapshot, [text])
    with contextlib.suppress(pruning.ConditionError):
        pruning.exact_predicate(snapshot, [text])
    pruning.is_repeatable([text])
    list(pruning.equalities(text, "target"))
    for query in (f"SELECT * FROM deltalog.`/t` WHERE {text}", f"DELETE FROM deltalog.`/t` WHERE {text}", text):
        tokens = table_references.tokens_of(query)
        if tokens is not None:
            with contextlib.suppress(DeltaLogError, ValueError):
                queries.query_of(table_references.Statement(query, tokens), {})
    return None


@functools.cache
def _on_disk() -> str:
    path = tempfile.mkdtemp()
    DeltaTable.create(path, SCHEMA, partition_by=["p"]).append(rows())
    return path


def _by_command_line(text: str) -> Any:
    if importlib.util.find_spec("typer") is None or "\0" in text:
        return None
    from typer.testing import CliRunner

    from deltalog.cli.commands import app

    for command in (["rows", _on_disk(), f"--where={text}"], ["optimize", _on_disk(), f"--where={text}"]):
        done = CliRunner().invoke(app, command)
        if done.exception is not None and not isinstance(done.exception, (SystemExit, DeltaLogError)):
            raise done.exception
    return None


ENTRANCES: Mapping[str, Callable[[str], Any]] = {
    "scan": lambda text: _table().snapshot().scan(where=text).to_arrow(),
    "delete": lambda text: _table().delete(text),
    "update where": lambda text: _table().update({"i": "i + 1"}, where=text),
    "update value": lambda text: _table().update({"i": text}),
    "update struct": lambda text: _table().update({"point": text}),
    "overwrite": lambda text: _table().overwrite(rows(), where=text),
    "optimize": lambda text: _table().optimize.compact(where=text),
    "statistics": lambda text: _table().compute_statistics(where=text),
    "merge": lambda text: _merge(text, None, None),
    "merge clause": lambda text: _merge("target.i = source.i", text, None),
    "merge value": lambda text: _merge("target.i = source.i", None, text),
    "add constraint": lambda text: _table().add_constraint("c", text),
    "constraint": lambda text: _constrained(text).append(rows()),
    "constraint in doctor": lambda text: check(_constrained(text).snapshot().reader.store).findings,
    "constraint of a column": lambda text: _constrained(text).set_column("i", comment="c"),
    "dropped column": lambda text: _constrained(text).drop_columns(["i"]),
    "generated": lambda text: _append_filled(_with_column("delta.generationExpression", text, "generatedColumns")),
    "default": lambda text: _append_filled(_with_column("CURRENT_DEFAULT", text, "allowColumnDefaults")),
    "invariant": lambda text: _with_column(
        "delta.invariants", json.dumps({"expression": {"expression": text}}), "invariants"
    ).append(rows()),
    "char": lambda text: _with_column("__CHAR_VARCHAR_TYPE_STRING", text, "appendOnly").append(rows()),
    "type": lambda text: _with_type(text).snapshot().schema,
    "type of a new column": lambda text: StructType.from_json(
        json.dumps({"type": "struct", "fields": [{"name": "a", "type": text, "nullable": True, "metadata": {}}]})
    ),
    "partition predicate": lambda text: table_objects.page(_table().snapshot(), text, 10, 0),
    "spark_ext": _by_spark_ext,
    "command line": _by_command_line,
}


def enter(entrance: str, data: bytes) -> dict[str, str]:
    """Pass an expression to a call, and return the outcome by the name of the call: "=" if the call accepts the
    expression, or the code of the DeltaLogError that it raises. Other errors are passed on."""
    text = data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            ENTRANCES[entrance](text)
    except DeltaLogError as error:
        str(error)
        return {entrance: error.code}
    return {entrance: "="}


def as_file(text: str) -> bytes:
    """The expression as bytes, which are the input of a case."""
    return text.encode("utf-8", "surrogatepass")
