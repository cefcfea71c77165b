"""Other engines read and write tables with every feature that deltalog writes, as docs/feature-matrix.md shows."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltalog import DeltaTable, Transaction
from deltalog.protocol.features import FEATURES as TABLE_FEATURES
from deltalog.protocol.features import Writes, writer_features
from tests.interop.feature_tables import FEATURES
from tests.interop.matrix import PAGE, WRITE, Row, committed_rows, examine, render
from tests.support.spark import DeltaSpark

WRITES_PAGE = os.environ.get(WRITE) == "1"
# Methods that only read the table, or that other public methods call.
_NO_ROW = {
    "open", "exists", "create_transaction", "version_at", "explain_timestamp", "history", "changes", "retrying",
    "snapshot", "latest", "snapshots", "open_blob",
    "advance", "check", "flush", "stream", "to_pyarrow_table", "to_pandas", "to_pyarrow_dataset", "scan_polars",
    "to_duckdb", "with_options",
}  # fmt: skip
# test_interop_contract.py tests the write contract. test_interop_catalog_managed.py tests how other engines handle a
# catalog-managed table.
_ELSEWHERE = {"write", "stream_write", "stream_write_records", "stage", "commit_staged", "discard_staged"}
_ELSEWHERE |= {"convert", "clone", "generate"}  # test_interop_copies.py
# tests/unit/write/test_transaction_options.py tests it, because its commit has remove actions only.
_ELSEWHERE |= {"remove_missing_files"}
_REFUSED_BY_PEERS = {"catalogManaged"}
_found: dict[str, Row] = {}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_is_read_back_and_carried_on(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    row = examine(FEATURES[name], tmp_path / "table", delta)
    _found[name] = row
    if not WRITES_PAGE:
        assert row.to_markdown() == committed_rows().get(name), "python -m tests.interop.matrix writes the page"


def test_the_page_has_these_rows_and_no_others() -> None:
    """The test of each row compares that row with the page; this test compares the rest of the page."""
    if WRITES_PAGE:
        assert set(_found) == set(FEATURES), "the page is written when every row was found"
        PAGE.write_text(render(_found), encoding="utf-8")
    rows = {name: _Line(line) for name, line in committed_rows().items()}
    assert PAGE.read_text(encoding="utf-8") == render(rows)  # type: ignore[arg-type]


class _Line(str):
    def to_markdown(self) -> str:
        return str(self)


def verbs_of_a_table() -> set[str]:
    """The public methods of DeltaTable, including inherited ones."""
    members = {name for kind in DeltaTable.__mro__[:-1] for name, value in vars(kind).items() if callable(value)}
    return {name for name in members if not name.startswith("_")}


def test_everything_that_can_be_written_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Building the tables calls every public method that writes, and every table feature that deltalog writes is in the
    protocol of some version of one of them."""
    called: set[str] = set()
    verbs = verbs_of_a_table()
    for name in verbs:
        monkeypatch.setattr(DeltaTable, name, _recorded(called, name, getattr(DeltaTable, name)))
    listed: set[str] = set()
    commit = Transaction.commit

    def watched(self: Transaction, *args: Any, **more: Any) -> Any:
        listed.update(writer_features(self.protocol))
        return commit(self, *args, **more)

    monkeypatch.setattr(Transaction, "commit", watched)
    for number, feature in enumerate(FEATURES.values()):
        feature.build(tmp_path / str(number))
    assert verbs - _NO_ROW - _ELSEWHERE <= called
    written = {f.name for f in TABLE_FEATURES if f.writes is Writes.YES and not f.name.endswith("-preview")}
    assert written - _REFUSED_BY_PEERS <= listed


def _recorded(called: set[str], name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(verb)
    def call(*args: Any, **more: Any) -> Any:
        called.add(name)
        return verb(*args, **more)

    return call
