"""A short HTML representation of a table, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Collection

from deltalog.protocol.schema import StructField, StructType

_MOST_COLUMNS = 50
_MOST_CHARACTERS = 200


def table_html(url: str, version: int, schema: StructType, partition_columns: Collection[str]) -> str:
    """The location, version and columns of a table as HTML; strings are escaped and truncated."""
    rows = [_row(column, column.name in partition_columns) for column in schema.fields[:_MOST_COLUMNS]]
    more = len(schema.fields) - len(rows)
    if more:
        rows.append(f'<tr><td colspan="3">and {more} more columns</td></tr>')
    return (
        f"<div><b>DeltaTable</b> {_text(url)}, version {version}"
        f"<table><thead><tr><th>column</th><th>type</th><th></th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(column: StructField, is_partition: bool) -> str:
    notes = [] if column.nullable else ["NOT NULL"]
    notes += ["partition"] if is_partition else []
    return f"<tr><td>{_text(column.name)}</td><td>{_text(str(column.data_type))}</td><td>{', '.join(notes)}</td></tr>"


def _text(value: str) -> str:
    return html.escape(value if len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}…")
