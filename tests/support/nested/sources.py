"""Sources for writes to a table. Compared with the table's fields, those of a source are missing, extra, reordered, in
a different case, or duplicated."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from tests.support.nested.schemas import NAMES, fields_of, random_type
from tests.support.nested.values import random_table

ChangeKind = Literal["missing", "extra", "reordered", "recased", "duplicated"]
ALL_KINDS: frozenset[ChangeKind] = frozenset({"missing", "extra", "reordered", "recased", "duplicated"})
_OFTEN = 0.35


@dataclass(frozen=True)
class Change:
    """One difference. ``path``: the names of the table's column and of the nested fields, outermost first, with
    ``element``, ``key`` and ``value`` for lists and maps; the path of an extra field includes the field's name, and the
    path of a ``reordered`` change is that of the struct. ``is_exact``: whether a duplicate has exactly the same name,
    rather than a name that differs only in case."""

    kind: ChangeKind
    path: tuple[str, ...]
    in_collection: bool = False
    is_exact: bool = False

    @property
    def is_nested(self) -> bool:
        """Whether the field in which the source differs is nested inside a column."""
        return len(self.path) > (0 if self.kind == "reordered" else 1)


@dataclass(frozen=True)
class Source:
    """Rows whose columns differ from a table's by ``changes``, which may be empty."""

    table: pa.Table
    changes: tuple[Change, ...]

    def having(self, *kinds: ChangeKind) -> list[Change]:
        """The changes whose kind is one of ``kinds``."""
        return [change for change in self.changes if change.kind in kinds]


def random_source(
    chance: random.Random,
    schema: pa.Schema,
    ids: Iterable[int],
    kinds: Collection[ChangeKind] = ALL_KINDS,
    often: float = _OFTEN,
) -> Source:
    """Rows for a table with ``schema``. The key is unchanged. ``kinds``: the kinds of change that may be made.
    ``often``: the probability of a change for each struct and for the top level."""
    changes: list[Change] = []
    columns = _varied(chance, fields_of(schema), (), False, kinds, often, changes)
    return Source(random_table(chance, pa.schema(columns), ids), tuple(changes))


def _varied(
    chance: random.Random,
    fields: Sequence[pa.Field],
    path: tuple[str, ...],
    in_collection: bool,
    kinds: Collection[ChangeKind],
    often: float,
    changes: list[Change],
) -> list[pa.Field]:
    """The fields of a struct, or the columns of a table, with random changes, which are added to ``changes``. The first
    column is the key."""

    def occurs(kind: ChangeKind) -> bool:
        return kind in kinds and chance.random() < often

    def note(kind: ChangeKind, *names: str, is_exact: bool = False) -> None:
        changes.append(Change(kind, (*path, *names), in_collection, is_exact))

    key, own = (fields[:1], fields[1:]) if not path else ([], fields)
    left_out = chance.randrange(len(own)) if len(own) > 1 and occurs("missing") else None
    found: list[pa.Field] = []
    for index, field in enumerate(own):
        below = (*path, field.name)
        if index == left_out:
            note("missing", field.name)
            continue
        kind = _type(chance, field.type, below, in_collection, kinds, often, changes)
        name = field.name
        if name.swapcase() != name and occurs("recased"):
            note("recased", field.name)
            name = name.swapcase()
        found.append(pa.field(name, kind))
    if occurs("duplicated"):
        twice = chance.choice(found)
        is_exact = chance.random() < 0.3
        note("duplicated", twice.name, is_exact=is_exact)
        found.append(twice if is_exact else twice.with_name(twice.name.swapcase()))
    if occurs("extra"):
        taken = {field.name.lower() for field in (*fields, *found)}
        name = chance.choice([f"new{name}" for name in NAMES if f"new{name}".lower() not in taken])
        note("extra", name)
        found.append(pa.field(name, random_type(chance, 1)))
    if len(found) > 1 and occurs("reordered"):
        before = [field.name for field in found]
        chance.shuffle(found)
        if before != [field.name for field in found]:
            note("reordered")
    return [*key, *found]


def _type(
    chance: random.Random,
    kind: pa.DataType,
    path: tuple[str, ...],
    in_collection: bool,
    kinds: Collection[ChangeKind],
    often: float,
    changes: list[Change],
) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(_varied(chance, fields_of(kind), path, in_collection, kinds, often, changes))
    if pa.types.is_map(kind):
        item = _type(chance, kind.item_type, (*path, "value"), True, kinds, often, changes)
        return pa.map_(kind.key_type, item)
    if pa.types.is_nested(kind):
        return pa.list_(_type(chance, kind.value_type, (*path, "element"), True, kinds, often, changes))
    return kind
