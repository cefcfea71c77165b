"""Converting directories, cloning tables and writing manifests on S3."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable, TableExistsError
from deltalog.errors import InvalidDataFileError, UnsafePathError
from tests.support.s3 import Server

ROWS = pa.table({"id": [1, 2]})


def test_a_prefix_is_converted_and_cloned(ministack: Server) -> None:
    store = ministack.store("a table")
    for name in ("p=a b/x.parquet", "p=c%2Fd/y z.parquet", "_hidden/z.parquet"):
        with store.open_output(name) as file:
            pq.write_table(ROWS, file)
    table = DeltaTable.convert(store.url, **ministack.options())
    wanted = [(1, "a b"), (1, "c/d"), (2, "a b"), (2, "c/d")]

    def rows(of: DeltaTable) -> list[tuple[int, str]]:
        return sorted(tuple(row.values()) for row in of.to_pyarrow_table().to_pylist())

    assert rows(table) == wanted
    places = {shallow: store.url.replace("a table", f"clone {shallow}") for shallow in (True, False)}
    for shallow, place in places.items():
        clone = table.clone(place, shallow=shallow, **ministack.options())
        assert rows(clone) == wanted
        paths = clone.snapshot().files(["path"])["path"].to_pylist()
        assert all(path.startswith("s3a://" if shallow else "p=") for path in paths)
        with pytest.raises(TableExistsError):
            table.clone(place, shallow=shallow, **ministack.options())
    with pytest.raises(UnsafePathError):
        DeltaTable.open(places[True], **ministack.options()).to_pyarrow_table()
    again = DeltaTable.open(places[True], allowed_paths=[store.url], **ministack.options())
    again.delete("id = 1")
    again.restore(0)
    assert rows(again) == wanted
    manifests = table.generate()
    assert [store.get(path).decode() for path in manifests] == [
        f"{store.url}/p=a b/x.parquet\n", f"{store.url}/p=c%2Fd/y z.parquet\n",
    ]  # fmt: skip


def test_a_table_below_a_prefix_is_found(ministack: Server) -> None:
    store = ministack.store("outer")
    DeltaTable.create(f"{store.url}/inner", ROWS.schema, data=ROWS, **ministack.options())
    with pytest.raises(InvalidDataFileError, match="inner is a Delta table"):
        DeltaTable.convert(store.url, **ministack.options())
