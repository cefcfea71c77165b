"""Runs every method that takes rows or values on random nested schemas, with sources whose fields are missing, extra,
reordered, duplicated or in a different case: the result equals that of a model in plain Python, or the call is refused
and changes nothing."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from deltalog import Dataset, DeltaLogError, DeltaTable
from tests.support.core import memory
from tests.support.nested import (
    ChangeKind,
    Rows,
    Source,
    evolved,
    fields_of,
    find,
    fitted,
    fitted_row,
    fitted_rows,
    random_schema,
    random_source,
    random_table,
    rows_by_id,
    updated,
)

PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"delta.enableDeletionVectors": "true"},
    {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
)
_STEPS = 6


@dataclasses.dataclass(frozen=True)
class State:
    """The model's state of a table."""

    schema: pa.Schema
    rows: Rows

    def with_rows(self, source: Source, schema: pa.Schema, replaced: Callable[[int], bool] = lambda _: False) -> State:
        kept = {key: row for key, row in self.rows.items() if not replaced(key)}
        return State(
            schema,
            {
                **fitted_rows(kept, self.schema, schema),
                **fitted_rows(rows_by_id(source.table), source.table.schema, schema),
            },
        )


#: The rows that an operation should leave; None if the operation must be refused.
Wanted = State | None
Step = tuple[str, Wanted, Callable[[DeltaTable], Any]]


def _kinds(chance: random.Random) -> frozenset[ChangeKind]:
    """Each example combines only a few kinds of changes; otherwise nearly every source would be refused for the same
    reason."""
    kinds: tuple[ChangeKind, ...] = ("missing", "extra", "reordered", "recased")
    if chance.random() < 0.1:
        return frozenset({"duplicated", chance.choice(kinds)})
    return frozenset(chance.sample(kinds, chance.randint(0, 3)))


def _rows_step(chance: random.Random, state: State) -> Step:
    """An operation that adds or replaces rows."""
    first = max([0, *state.rows]) + 1
    verb = chance.choice(("append", "merge_schema", "overwrite", "where", "stage", "write", "transaction", "schema"))
    ids = range(first, first + 4)
    if verb == "where":
        ids = range(max(0, first - 3), first + 2)
    source = random_source(chance, state.schema, ids, _kinds(chance))
    data, bound = source.table, ids[0]
    takes_new = verb in ("merge_schema", "schema")
    is_refused = bool(source.having("duplicated") or (source.having("extra") and not takes_new))
    schema = data.schema if verb == "schema" else evolved(state.schema, data.schema) if takes_new else state.schema
    wanted = None
    if not is_refused:
        replaced: dict[str, Callable[[int], bool]] = {
            "overwrite": lambda _: True, "schema": lambda _: True, "where": lambda key: key >= bound,
        }  # fmt: skip
        wanted = state.with_rows(source, schema, replaced.get(verb, lambda _: False))

    def run(table: DeltaTable) -> Any:
        if verb in ("append", "merge_schema"):
            return table.append(data, merge_schema=takes_new)
        if verb in ("overwrite", "schema"):
            return table.overwrite(data, overwrite_schema=takes_new)
        if verb == "where":
            return table.overwrite(data, where=f"id >= {bound}")
        if verb == "stage":
            return table.commit_staged([table.stage(data)])
        if verb == "write":
            return Dataset(table).write(data)
        with table.transaction() as transaction:
            transaction.write(data.to_reader(2))
            return transaction.commit()

    return f"{verb} {source.changes}", wanted, run


def _records_step(chance: random.Random, state: State) -> Step:
    """Fields of records are matched by their exact names."""
    first = max([0, *state.rows]) + 1
    source = random_source(chance, state.schema, range(first, first + 3), _kinds(chance) - {"duplicated"})
    records = source.table.to_pylist()
    known = all(_fits(record, pa.struct(list(state.schema)), is_whole=False) for record in records)
    wanted = state.with_rows(source, state.schema) if known else None
    return f"records {source.changes}", wanted, lambda table: Dataset(table).stream_write_records(records)


def _merge_step(chance: random.Random, state: State) -> Step:
    last = max([0, *state.rows])
    source = random_source(chance, state.schema, range(max(1, last - 3), last + 3), _kinds(chance))
    data, evolves = source.table, chance.random() < 0.6
    updates = chance.choice(("all", "given", "none", "delete"))
    inserts = chance.choice(("all", "none"))
    by_source = chance.choice(("delete", "update", "none"))
    if updates == inserts == "none":
        inserts = "all"
    columns = [field.name for field in fields_of(state.schema)[1:]]
    given = [name for name in chance.sample(columns, chance.randint(1, len(columns))) if find(data.schema, name)]
    if updates == "given" and not given:
        updates = "all"
    cleared = chance.choice(columns)
    wanted = _merged(state, source, evolves, (updates, inserts, by_source), given, cleared)

    def run(table: DeltaTable) -> Any:
        merge = table.merge(data, "target.id = source.id")
        if evolves:
            merge = merge.with_schema_evolution()
        if updates == "all":
            merge = merge.when_matched_update_all()
        elif updates == "given":
            merge = merge.when_matched_update({name: f"source.{name}" for name in given})
        elif updates == "delete":
            merge = merge.when_matched_delete()
        if inserts == "all":
            merge = merge.when_not_matched_insert_all()
        if by_source == "delete":
            merge = merge.when_not_matched_by_source_delete("target.id % 2 = 0")
        elif by_source == "update":
            merge = merge.when_not_matched_by_source_update({cleared: "NULL"}, "target.id % 2 = 1")
        return merge.execute()

    how = f"merge evolves={evolves} {updates} {given} {inserts} {by_source} {cleared} {source.changes}"
    return how, wanted, run


def _merged(
    state: State, source: Source, evolves: bool, clauses: tuple[str, str, str], given: list[str], cleared: str
) -> Wanted:
    updates, inserts, by_source = clauses
    data = source.table.schema
    takes_all = "all" in (updates, inserts)
    used = None if takes_all else [name for name in given if updates == "given"]
    if source.having("duplicated"):
        return None
    if not evolves:
        changes = [
            change
            for change in source.having("missing", "extra")
            if used is None or change.path[0].lower() in [name.lower() for name in used]
        ]
        if any(change.is_nested or change.kind == "missing" for change in changes):
            return None
    schema = evolved(state.schema, data, used) if evolves else state.schema
    new = rows_by_id(source.table)
    rows: Rows = {}
    for key, before in state.rows.items():
        old = fitted_row(before, state.schema, schema)
        if key in new:
            if updates == "delete":
                continue
            if updates == "all":
                for field in schema:
                    own = find(data, field.name)
                    if own is not None:
                        old[field.name] = updated(new[key][own.name], own.type, old[field.name], field.type)
            if updates == "given":
                for name in given:
                    own, wanted = find(data, name), find(schema, name)
                    assert own is not None and wanted is not None
                    old[name] = fitted(new[key][own.name], own.type, wanted.type)
        elif by_source == "delete" and key % 2 == 0:
            continue
        elif by_source == "update" and key % 2 == 1:
            old[cleared] = None
        rows[key] = old
    if inserts == "all":
        rows.update({key: fitted_row(row, data, schema) for key, row in new.items() if key not in state.rows})
    return State(schema, rows)


def _update_step(chance: random.Random, state: State) -> Step:
    """An update that sets a struct field to null, or a column to a random Python value."""
    column = chance.choice(fields_of(state.schema)[1:])
    if pa.types.is_struct(column.type) and chance.random() < 0.4:
        name = chance.choice(fields_of(column.type)).name
        rows = {
            key: {**row, column.name: {**(row[column.name] or dict.fromkeys(column.type.names)), name: None}}
            if key % 2
            else row
            for key, row in state.rows.items()
        }
        path = f"{column.name}.{name}"
        return f"set {path}", State(state.schema, rows), lambda table: table.update({path: "NULL"}, "id % 2 = 1")
    source = random_source(chance, pa.schema([state.schema.field(0), column]), [1], _kinds(chance) - {"duplicated"})
    own = find(source.table.schema, column.name)
    assert own is not None
    value = source.table.column(own.name)[0].as_py() if chance.random() < 0.9 else None
    text = f"new value of {column.name} {source.changes}: {value}"
    wanted: Wanted = None
    if _fits(value, column.type):
        stored = rows_by_id(pa.table({"id": [1], "v": pa.array([value], column.type)}))[1]["v"]
        wanted = State(
            state.schema,
            {key: {**row, column.name: stored} if key % 2 else row for key, row in state.rows.items()},
        )
    return text, wanted, lambda table: table.update(new_values={column.name: value}, where="id % 2 = 1")


def _fits(value: Any, kind: pa.DataType, is_whole: bool = True) -> bool:
    """Whether every struct in a value contains only fields of its type and, with ``is_whole``, contains all of these
    fields."""
    if value is None:
        return True
    if pa.types.is_struct(kind):
        fields = fields_of(kind)
        names = {field.name for field in fields}
        if not value.keys() <= names or (is_whole and value.keys() != names):
            return False
        return all(_fits(value.get(field.name), field.type, is_whole) for field in fields)
    if pa.types.is_map(kind):
        return all(_fits(item, kind.item_type, is_whole) for _, item in value)
    if pa.types.is_nested(kind):
        return all(_fits(each, kind.value_type, is_whole) for each in value)
    return True


STEPS = (_rows_step, _rows_step, _records_step, _merge_step, _merge_step, _merge_step, _update_step)


def check(seed: int) -> None:
    """Random steps on one table."""
    chance = random.Random(seed)
    schema = random_schema(chance, depth=chance.randint(1, 3))
    first = random_table(chance, schema, range(1, 7))
    table = DeltaTable.create(memory(), schema, data=first, properties=chance.choice(PROPERTIES))
    state = State(schema, rows_by_id(first))
    told = [f"seed {seed}: {schema}"]
    for _ in range(_STEPS):
        text, wanted, run = chance.choice(STEPS)(chance, state)
        told.append(text)
        version = table.snapshot().version
        if wanted is None:
            with pytest.raises(DeltaLogError):
                run(table)
                pytest.fail("\n".join(["not refused:", *told]))
            assert table.snapshot().version == version, told
        else:
            try:
                run(table)
            except DeltaLogError as error:
                raise AssertionError("\n".join(["refused:", *told])) from error
            state = wanted
        found = table.snapshot().scan().to_arrow()
        assert found.schema.names == state.schema.names, "\n".join(told)
        assert rows_by_id(found) == state.rows, "\n".join(told)


@pytest.mark.parametrize("seed", range(60))
def test_nested_values_are_those_of_the_model(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_many_nested_values_are_those_of_the_model(part: int) -> None:
    for seed in range(1000 + part * 50, 1050 + part * 50):
        check(seed)
