"""Random changes to a table with column mapping, whose results are compared with a model that keeps each version's rows
as Python values."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.protocol.column_mapping import MODE_KEY
from deltalog.protocol.column_metadata import ID_KEY, PHYSICAL_NAME_KEY
from deltalog.protocol.schema import all_columns
from tests.support.core import environment, memory

NAMES = [f"{letter}{mark}" for letter in "abcdef" for mark in ("", " x")]
Rows = list[dict[str, Any]]


@dataclass
class Model:
    """The rows of each version, the latest version last; each row has a value or None for every current column."""

    versions: list[tuple[list[str], Rows]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return self.versions[-1][0]

    @property
    def rows(self) -> Rows:
        return self.versions[-1][1]

    def commit(self, names: list[str], rows: Rows) -> None:
        self.versions.append((names, rows))


def step(table: DeltaTable, model: Model, chance: random.Random) -> None:
    names, rows = model.names, model.rows
    free = [name for name in NAMES if name not in names]
    choice = chance.choice(["add", "rename", "drop", "append", "append", "delete", "restore", "overwrite"])
    if choice == "add" and free:
        name = chance.choice(free)
        table.add_columns(pa.schema([(f"`{name}`", pa.int64())]))
        model.commit([*names, name], [{**row, name: None} for row in rows])
    elif choice == "rename" and free:
        old, new = chance.choice(names), chance.choice(free)
        table.rename_column([old], new)
        renamed = {name: new if name == old else name for name in names}
        model.commit(list(renamed.values()), [{renamed[key]: value for key, value in row.items()} for row in rows])
    elif choice == "drop" and len(names) > 1:
        gone = chance.choice(names)
        table.drop_columns([[gone]])
        left = [name for name in names if name != gone]
        model.commit(left, [{name: row[name] for name in left} for row in rows])
    elif choice in ("append", "overwrite"):
        fresh = [{name: chance.randrange(100) for name in names} for _ in range(2)]
        data = pa.Table.from_pylist(fresh, schema=pa.schema([(name, pa.int64()) for name in names]))
        (table.append if choice == "append" else table.overwrite)(data)
        model.commit(names, [*rows, *fresh] if choice == "append" else fresh)
    elif choice == "delete":
        name = chance.choice(names)
        if not table.delete(f"`{name}` < 30").skipped:
            model.commit(names, [row for row in rows if row[name] is None or row[name] >= 30])
    elif choice == "restore":
        version = chance.randrange(len(model.versions))
        commit = table.restore(version).commit
        if commit is not None and not commit.skipped:
            model.commit(*model.versions[version])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mode", ["name", "id"])
def test_rows_and_names_of_every_version(mode: str, seed: int) -> None:
    chance = random.Random(f"{mode} {seed}")
    properties = {MODE_KEY: mode, "delta.checkpointInterval": "7"}
    properties["delta.enableDeletionVectors"] = chance.choice(["true", "false"])
    properties["delta.enableRowTracking"] = chance.choice(["true", "false"])
    store = memory()
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    table = DeltaTable.create(store, schema, properties=properties, environment=environment())
    model = Model([(["a", "b"], [])])
    owners: dict[int, str] = {}
    for _ in range(25):
        step(table, model, chance)
        snapshot = table.snapshot()
        assert snapshot.version == len(model.versions) - 1
        for column in all_columns(snapshot.schema):
            # A column id has the same physical name in all versions.
            assert (
                owners.setdefault(column.metadata[ID_KEY], column.metadata[PHYSICAL_NAME_KEY])
                == (column.metadata[PHYSICAL_NAME_KEY])
            )
    reopened = DeltaTable.open(store)
    for version, (names, rows) in enumerate(model.versions):
        found = reopened.snapshot(version).scan().to_arrow()
        assert found.column_names == names
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, rows))
