"""A table in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import pyarrow as pa

from deltalog import DeltaTable
from deltalog.protocol.schema import StructType
from deltalog.storage.memory import MemoryStore
from deltalog.table_html import table_html
from deltalog.testing import CountingStore
from tests.support.core import environment


class _Texts(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_columns_are_shown_escaped_and_nothing_is_read() -> None:
    inner = pa.struct([("<script>", pa.string())])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("<b>&", inner), ("p", pa.string())])
    store = CountingStore(MemoryStore())
    names = {"delta.columnMapping.mode": "name"}
    table = DeltaTable.create(store, schema, partition_by=["p"], properties=names, environment=environment())
    before = dict(store.calls)
    found = _Texts(table._repr_html_())
    assert dict(store.calls) == before
    assert set(found.tags) == {"div", "b", "table", "thead", "tbody", "tr", "th", "td"} and found.tags.count("b") == 1
    assert {"id", "long", "NOT NULL", "<b>&", "partition"} <= set(found.texts)
    assert any("<script>" in text for text in found.texts) and "version 0" in "".join(found.texts)


def test_long_texts_and_many_columns_are_cut() -> None:
    schema = StructType.from_arrow(pa.schema([("x" * 5000 + str(n), pa.int64()) for n in range(500)]))
    text = table_html("memory:" + "y" * 5000, 7, schema, ())
    assert len(text) < 30_000 and "and 450 more columns" in text
