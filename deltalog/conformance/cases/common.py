"""Tables and steps shared by cases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltalog.conformance.builder import (
    ICT_FEATURE,
    ICT_PROPERTY,
    MINUTE,
    PAIR_TIMESTAMP,
    PAIR_VERSION,
    T0,
    Action,
    TableBuilder,
)
from deltalog.conformance.case import PROTOCOL, Case, Row, Step

Build = Callable[[TableBuilder], None]

# 2100-01-01T00:00:00Z, later than the clock of any machine that runs a case.
FUTURE = 4_102_444_800_000
CDF = {"delta.enableChangeDataFeed": "true"}
ICT_SECTION = "writer-requirements-for-in-commit-timestamps"
ICT_READERS = "recommendations-for-readers-of-tables-with-in-commit-timestamps"


def ids(latest: int, first: int = 0) -> list[Row]:
    """The rows of versions ``first`` to ``latest`` of a timeline, where every commit adds the row with its version as
    id."""
    return [{"id": number} for number in range(first, latest + 1)]


def minute(number: float) -> int:
    """The timestamp ``number`` minutes after T0, in ms."""
    return T0 + round(number * MINUTE)


@dataclass(frozen=True)
class Timeline:
    """A table ``id: long`` whose version n adds the row n, for cases about timestamps.

    ``at``: the commit time of each version, in minutes. ``file``: the file time of each commit, in minutes; by default
    as ``at``. ``ict_from``: the first version with in-commit timestamps; ``ict_until``: the first one without them
    again; None: never. ``pair``: the two enablement properties in the metaData; by default, they are correct.
    ``damage``: for some versions, the arguments with which ``TableBuilder.commit`` is called instead; ``ict`` may be
    any value.
    """

    at: Sequence[float] = (0, 1, 2, 3, 4)
    file: Sequence[float] | None = None
    ict_from: int | None = None
    ict_until: int | None = None
    pair: tuple[str | None, str | None] | None = None
    properties: Mapping[str, str] | None = None
    features: Sequence[str] = (ICT_FEATURE,)
    damage: Mapping[int, Mapping[str, Any]] | None = None
    checkpoints: Sequence[int] = ()
    dropped: Sequence[int] = ()

    def but(self, **changes: Any) -> Timeline:
        return replace(self, **changes)

    def __call__(self, table: TableBuilder) -> None:
        for version in range(len(self.at)):
            at_ms = minute(self.at[version])
            file_ms = at_ms if self.file is None else minute(self.file[version])
            has_ict = self.ict_from is not None and version >= self.ict_from
            has_ict = has_ict and (self.ict_until is None or version < self.ict_until)
            actions = [*self._metadata(table, version), table.add([{"id": version}])]
            options = {"at_ms": at_ms, "file_ms": file_ms, "ict": has_ict, **(self.damage or {}).get(version, {})}
            table.commit(*actions, **options)
            if version in self.checkpoints:
                table.checkpoint()
        table.drop_commits(*self.dropped)

    def _metadata(self, table: TableBuilder, version: int) -> Iterator[Action]:
        properties = dict(self.properties or {})
        feed = CDF.items() <= properties.items()
        if version == 0 and self.ict_from != 0:
            yield table.protocol(versions=(1, 4) if feed else (1, 2))
            yield table.metadata(configuration=properties)
        if version == self.ict_from:
            more = ["changeDataFeed"] if feed else []
            yield table.protocol(["appendOnly", "invariants", *more, *self.features])
            yield table.metadata(configuration={**properties, **self._pair(version), ICT_PROPERTY: "true"})
        if version == self.ict_until:
            yield table.metadata(configuration={**properties, ICT_PROPERTY: "false"})

    def _pair(self, version: int) -> dict[str, str]:
        right = (str(version), str(minute(self.at[version]))) if version else (None, None)
        names = zip((PAIR_VERSION, PAIR_TIMESTAMP), self.pair or right, strict=True)
        return {name: value for name, value in names if value is not None}


def column(name: str, kind: Any, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    """A column as in a schema string. ``metadata``: with two underscores instead of a dot in the keys."""
    found = {key.replace("__", "."): value for key, value in metadata.items()}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": found}


def columns(*found: Mapping[str, Any]) -> dict[str, Any]:
    """A struct type with these columns."""
    return {"type": "struct", "fields": [dict(each) for each in found]}


def schema_text(*found: Mapping[str, Any]) -> str:
    """A schema string with these columns."""
    return json.dumps(columns(*found))


def list_of(kind: Any, contains_null: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": contains_null}


def map_of(key: Any, value: Any, contains_null: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": contains_null}


def plain(table: TableBuilder) -> None:
    """A table with a single commit that adds no rows, with the oldest protocol."""
    table.commit(table.protocol(), table.metadata())


def case_rows(prefix: str, area: str, section: str, rows: Iterable[tuple[Any, ...]], **more: Any) -> Iterator[Case]:
    """Create cases from rows of (id, about, build, steps, optional other fields)."""
    for name, about, build, steps, *rest in rows:
        fields = {**more, **(rest[0] if rest else {})}
        section_of = fields.pop("section", section)
        yield Case(f"{prefix}-{name}", area, about, section_of, build, tuple(steps), **fields)


@dataclass(frozen=True)
class Cases:
    """Creates the cases of an area. ``prefix``: the start of the cases' ids; ``section``: the default section."""

    prefix: str
    area: str
    section: str

    def __call__(
        self,
        name: str,
        about: str,
        build: Build | None,
        *steps: Step,
        section: str | None = None,
        rule: str | None = None,
        basis: str = PROTOCOL,
    ) -> Case:
        return Case(f"{self.prefix}-{name}", self.area, about, section or self.section, build, steps, rule, basis)
