"""docs/server-metrics.md has all metrics, and names no others."""

from __future__ import annotations

import re

from tests.support.server.metrics_page import PAGE, table, with_table


def test_the_table_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text) == text, "run python -m tests.support.server.metrics_page"


def test_the_page_names_only_metrics_that_exist() -> None:
    known = set(re.findall(r"^\| `([a-z_]+)`", table(), re.M))
    named = set(re.findall(r"deltalog_[a-z_]+", PAGE.read_text(encoding="utf-8")))
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in named} <= known
