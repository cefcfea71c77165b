"""Translates the SQL of deltalake's programs from DataFusion's dialect into Spark's, which deltalog uses. Pure.

DataFusion and Spark quote differently: in DataFusion, double quotes enclose a name, and a backslash in text is an
ordinary character; in Spark, double quotes enclose text, and a backslash escapes the next character.
"""

from __future__ import annotations

import re

_TYPED = re.compile(
    r"\b(tinyint|smallint|int|integer|bigint|long|short|byte|float|double|boolean|string)\s*('(?:[^']|'')*')", re.I
)
# The names of DataFusion, in lower case and without blanks, each with Spark's name of the same function or type.
_NAMES = {
    "starts_with": "startswith",
    "ends_with": "endswith",
    "strpos": "instr",
    "btrim": "trim",
    "extract(secondfrom": "second(",
    "date_part('second',": "second(",
}
_TEXT_TYPE = r"(?:\bAS\s+|::\s*)(?:varchar|text|char|character)\b(?:\s*\(\s*\d+\s*\))?(?!\s*\()"
_OTHERS = (
    r"\b(?:starts_with|ends_with|strpos|btrim)(?=\s*\()|\bextract\s*\(\s*second\s+from\b|"
    r"\bdate_part\s*\(\s*'second'\s*,"
)
_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|" + f"{_TEXT_TYPE}|{_OTHERS}",
    re.DOTALL | re.IGNORECASE,
)


def spark_sql(text: str) -> str:
    """A condition or value in DataFusion's spelling, translated to Spark's SQL dialect."""
    typed = _TYPED.sub(lambda found: f"CAST({found[2]} AS {found[1]})", text)
    return _TOKEN.sub(lambda found: _respelled(found[0]), typed)


def _respelled(token: str) -> str:
    if token[0] == "'":
        return text_literal(token[1:-1].replace("''", "'"))
    if token[0] == '"':
        return name(token[1:-1].replace('""', '"'))
    if token[0] in "-/":
        return " "
    if token[0] in "aA:":
        return "::STRING" if token[0] == ":" else "AS STRING"
    return _NAMES.get(re.sub(r"\s", "", token).lower(), token)


def text_literal(value: str) -> str:
    """Text as an SQL literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def name(text: str) -> str:
    """A name in backticks."""
    return f"`{text.replace('`', '``')}`"
