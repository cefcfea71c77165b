"""Columns of the type void are in no file, and tables whose rows files cannot hold are not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable, SchemaMismatchError

ID = {"name": "id", "type": "long", "nullable": True, "metadata": {}}


def made(
    root: Path, *columns: tuple[str, Any], first: tuple[Any, ...] = (ID,), partition_by: tuple[str, ...] = ()
) -> DeltaTable:
    """A table with the column id and others; deltalog itself creates none with void inside arrays."""
    fields = [*first, *({"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns)]
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "6f1d", "format": {"provider": "parquet", "options": {}}, "partitionColumns": list(partition_by),
                "schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": {},
            }
        },
    ]  # fmt: skip
    (root / "_delta_log").mkdir(parents=True)
    (root / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return DeltaTable.open(str(root))


def struct(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields],
    }


def stored(root: Path) -> pa.Schema:
    (file,) = root.rglob("*.parquet")
    return pq.read_schema(file)


def test_a_column_and_a_field_are_left_out(tmp_path: Path) -> None:
    table = made(
        tmp_path,
        ("v", "void"),
        ("s", struct(("v", "void"), ("a", "long"), ("t", struct(("v", "void"), ("b", "long"))))),
    )
    rows = [
        {"id": 1, "v": None, "s": {"v": None, "a": 5, "t": {"v": None, "b": 6}}},
        {"id": 2, "v": None, "s": None},
    ]
    table.append(pa.Table.from_pylist(rows))
    kind = stored(tmp_path)
    assert kind.names == ["id", "s"]
    assert [field.name for field in kind.field("s").type] == ["a", "t"]
    assert [field.name for field in kind.field("s").type.field("t").type] == ["b"]
    table = DeltaTable.open(str(tmp_path))
    assert table.to_pyarrow_table().sort_by("id").to_pylist() == rows
    assert table.delete("id = 2").version == 2
    assert DeltaTable.open(str(tmp_path)).to_pyarrow_table().to_pylist() == rows[:1]


def test_rows_without_the_column_fit(tmp_path: Path) -> None:
    made(tmp_path, ("v", "void"), ("p", "string"), partition_by=("p",)).append(pa.table({"id": [1], "p": ["x"]}))
    assert stored(tmp_path).names == ["id"]
    assert DeltaTable.open(str(tmp_path)).to_pyarrow_table().to_pylist() == [{"id": 1, "v": None, "p": "x"}]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"type": "array", "elementType": "void", "containsNull": True}, "void in arrays and maps"),
        (
            {"type": "map", "keyType": "string", "valueType": "void", "valueContainsNull": True},
            "void in arrays and maps",
        ),
        (struct(("a", struct(("v", "void")))), "fields all have the type void"),
        (
            {"type": "array", "elementType": struct(("v", "void")), "containsNull": True},
            "fields all have the type void",
        ),
    ],
)
def test_shapes_that_files_cannot_hold_are_refused(kind: Any, message: str, tmp_path: Path) -> None:
    table = made(tmp_path, ("c", kind))
    with pytest.raises(SchemaMismatchError, match=message):
        table.append(pa.table({"id": [1]}))
    assert DeltaTable.open(str(tmp_path)).version == 0 and not list(tmp_path.rglob("*.parquet"))


def test_a_table_of_void_columns_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path, ("v", "void"), first=())
    with pytest.raises(SchemaMismatchError, match="All columns of the table have the type void"):
        table.append(pa.table({"v": pa.nulls(1)}))
