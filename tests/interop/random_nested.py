"""delta-spark and spark_ext run the same random statements on identical tables with nested columns.

    python -m tests.interop.random_nested --seeds 0:100            # 5 statements each
    python -m tests.interop.random_nested --seeds 17 --statements 8

Sources have missing, additional, reordered fields, and names in another case; MERGE runs with and without schema
evolution. After each statement the refusal, the schema and the rows are compared. The schemas have no structs in lists
of lists or maps, which delta-spark cannot cast or whose fields it matches by position.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import spark_ext
from deltalog import DeltaLogError
from tests.support.nested import Source, fields_of, random_schema, random_source, random_table
from tests.support.spark import DeltaSpark, plain_rows

VIEW = "nested_source"
PROPERTIES: tuple[dict[str, str], ...] = (
    {}, {}, {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"},
    {"delta.columnMapping.mode": "name"}, {"delta.enableRowTracking": "true"},
)  # fmt: skip


class Difference(AssertionError):
    """The two engines disagree."""


def run_nested(delta: DeltaSpark, place: Path, seed: int, statements: int) -> collections.Counter[str]:
    """Run the statements on a new pair of identical tables. Returns how many statements ran and how many were refused.
    Raises Difference."""
    run = _Run(delta, place, seed)
    try:
        run.live(statements)
    except Exception as error:
        told = "\n".join(f"  {line}" for line in run.told)
        again = f"python -m tests.interop.random_nested --seeds {seed} --statements {statements}"
        kind = error if isinstance(error, Difference) else traceback.format_exc(limit=-6)
        raise Difference(f"{kind}\n{again}\n{told}") from error
    return run.tally


class _Run:
    def __init__(self, delta: DeltaSpark, place: Path, seed: int) -> None:
        self.delta, self.spark, self.chance = delta, delta.spark, random.Random(seed)
        self.ours, self.theirs = place / "ours", place / "theirs"
        self.told: list[str] = []
        self.tally: collections.Counter[str] = collections.Counter()
        self.next_id = 1

    def live(self, statements: int) -> None:
        schema = random_schema(self.chance)
        while any(_has_struct_in_lists(field.type) for field in fields_of(schema)):
            schema = random_schema(self.chance)
        properties = self.chance.choice(PROPERTIES)
        rows = self.spark.createDataFrame(random_table(self.chance, schema, range(1, 7)))
        self.told.append(f"{rows.schema.simpleString()} {properties}")
        writer = spark_ext.write(rows.coalesce(self.chance.randint(1, 2)))
        for key, value in properties.items():
            writer = writer.option(key, value)
        writer.save(str(self.ours))
        shutil.copytree(self.ours, self.theirs)
        self.next_id = 7
        for _ in range(statements):
            verb = self.chance.choices((self.merge, self.update, self.insert, self.delete), (8, 3, 2, 1))[0]
            self.compare(verb())
        self.compare_readers()

    @property
    def schema(self) -> pa.Schema:
        """The schema of delta-spark's table."""
        return self.delta.table(self.theirs).schema

    # ------------------------------------------------------------------------------------------- statements

    def source(self, *kinds: Any) -> Source:
        first = self.chance.randint(1, max(1, self.next_id - 1))
        ids = self.chance.sample(range(first, self.next_id + 3), min(4, self.next_id + 3 - first))
        self.next_id = max([self.next_id, *(each + 1 for each in ids)])
        source = random_source(self.chance, self.schema, ids, kinds, self.chance.choice((0.1, 0.3, 0.6)))
        self.spark.createDataFrame(source.table).createOrReplaceTempView(VIEW)
        self.told.append(f"source {self.spark.table(VIEW).schema.simpleString()}")
        return source

    def merge(self) -> str:
        own = self.schema
        kinds = ("missing", "extra", "reordered", "recased")
        source = self.source(*self.chance.sample(kinds, self.chance.randint(1, len(kinds))))
        evolution = self.chance.choice(("", "WITH SCHEMA EVOLUTION "))
        clauses = list[str]()
        if self.chance.random() < 0.2:
            clauses.append("WHEN MATCHED AND src.id % 3 = 0 THEN DELETE")
        if self.chance.random() < 0.8:
            by_name = ", ".join(self.assigned(own, source.table.schema))
            sets = "*" if self.chance.random() < 0.5 or not by_name else by_name
            condition = self.chance.choice(("", "AND t.id > 1 "))
            clauses.append(f"WHEN MATCHED {condition}THEN UPDATE SET {sets}")
        if self.chance.random() < 0.6:
            names = [field.name for field in fields_of(own)[1:] if self.chance.random() < 0.6]
            columns = ", ".join(["id", *map(_quoted, names)])
            values = ", ".join(["src.id", *(f"src.{_quoted(name)}" for name in names)])
            by_name = f"({columns}) VALUES ({values})"
            clauses.append(f"WHEN NOT MATCHED THEN INSERT {self.chance.choice(('*', '*', by_name))}")
        if self.chance.random() < 0.35 or not clauses:
            sets = ", ".join(self.set_from_target(own))
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND id > 2 THEN UPDATE SET {sets}")
        return f"MERGE {evolution}INTO {{t}} t USING {VIEW} src ON t.id = src.id {' '.join(clauses)}"

    def assigned(self, own: pa.Schema, source: pa.Schema) -> Iterator[str]:
        """Assignments from the source to columns and fields of the table. The source may lack the value; the table may
        lack the column or the field. Names of columns that the table does not have are not qualified, since delta-spark
        looks them up in the source."""
        candidates = [*_paths(own), *_paths(source)]
        known = {_low(path) for path in _paths(own)}
        for path in self.separate(candidates, 2):
            yield f"{'t.' if _low(path) in known else ''}{_dotted(path)} = src.{_dotted(path)}"

    def set_from_target(self, own: pa.Schema) -> Iterator[str]:
        paths = self.separate([*_paths(own)], 2)
        for path in paths:
            yield f"{_dotted(path)} = {self.value(own, path)}"

    def value(self, own: pa.Schema, path: Sequence[str]) -> str:
        """Null, the unchanged value, or, for a struct, a struct of some of its fields, perhaps with an additional
        field."""
        kind, chosen = _type(own, path), self.chance.random()
        if not pa.types.is_struct(kind) or chosen < 0.2:
            return "NULL" if chosen < 0.5 else f"t.{_dotted(path)}"
        names = [field.name for field in fields_of(kind)]
        if chosen < 0.5:
            names = self.chance.sample(names, self.chance.randint(1, len(names)))
        elif chosen < 0.8:
            self.chance.shuffle(names)
        parts = [f"'{name}', t.{_dotted([*path, name])}" for name in names]
        if chosen > 0.9:
            parts.append("'another', 1")
        return f"named_struct({', '.join(parts)})"

    def separate(self, candidates: Sequence[tuple[str, ...]], most: int) -> list[tuple[str, ...]]:
        """A random selection of these paths, such that no selected path contains another."""
        found: list[tuple[str, ...]] = []
        for path in self.chance.sample(candidates, len(candidates)):
            low, others = _low(path), [_low(other) for other in found]
            if len(found) < most and not any(
                low[: len(other)] == other or other[: len(low)] == low for other in others
            ):
                found.append(path)
        return found

    def update(self) -> str:
        sets = ", ".join(self.set_from_target(self.schema))
        return f"UPDATE {{t}} t SET {sets} WHERE id % 3 = {self.chance.randint(0, 2)}"

    def insert(self) -> str:
        # One kind of difference at a time, because with several kinds delta-spark matches fields by position.
        self.source(self.chance.choice(("missing", "extra")))
        evolution = self.chance.choice(("", "WITH SCHEMA EVOLUTION "))
        return f"INSERT {evolution}INTO {{t}} BY NAME SELECT * FROM {VIEW}"

    def delete(self) -> str:
        path = self.chance.choice([*_paths(self.schema)])
        return f"DELETE FROM {{t}} WHERE {_dotted(path)} IS {self.chance.choice(('', 'NOT '))}NULL AND id % 4 = 0"

    # -------------------------------------------------------------------------------------------- comparisons

    def compare(self, statement: str) -> None:
        self.told.append(statement)
        theirs = self.outcome(lambda: self.spark.sql(statement.format(t=f"delta.`{self.theirs}`")).collect())
        ours = self.outcome(lambda: spark_ext.sql(self.spark, statement.format(t=f"delta.`{self.ours}`")).collect())
        verb = " ".join(statement.split()[: 3 if "EVOLUTION" in statement else 1])
        self.tally[f"{verb}: {'done' if theirs is None else 'refused'}"] += 1
        if (theirs is None) != (ours is None):
            raise Difference(f"delta-spark: {theirs or 'done'}\nspark_ext: {ours or 'done'}")
        if theirs is not None:
            self.told.append(f"    refused: {theirs[:150]} / {str(ours)[:250]}")
            return
        one, other = (self.delta.table(path) for path in (self.theirs, self.ours))
        self.same("schema", str(other.schema), str(one.schema))
        self.same("rows", plain_rows(other), plain_rows(one))

    def outcome(self, call: Any) -> str | None:
        """The error with which the statement was refused, or None."""
        try:
            call()
        except DeltaLogError as error:
            return f"{type(error).__name__}: {error}"
        except (PySparkException, Py4JJavaError) as error:
            java = getattr(error, "java_exception", None)
            text = str(error) if java is None else str(java.toString())
            return f"{type(error).__name__}: {text[:400]}"
        return None

    def compare_readers(self) -> None:
        by_delta, frame = self.delta.table(self.ours), spark_ext.read(self.spark).load(str(self.ours))
        self.same("rows by spark_ext", plain_rows(frame.toArrow()), plain_rows(by_delta))

    def same(self, what: str, found: Any, expected: Any) -> None:
        self.tally["comparisons"] += 1
        if found != expected:
            if isinstance(found, list):
                one, other = ({json.dumps(row, default=str) for row in rows} for rows in (found, expected))
                found, expected = sorted(one - other), sorted(other - one)
            raise Difference(f"{what}\nspark_ext:   {found}\ndelta-spark: {expected}")


def _has_struct_in_lists(kind: pa.DataType, in_list: bool = False) -> bool:
    """Whether the type contains structs inside a list of lists or a list of maps."""
    if pa.types.is_struct(kind):
        return in_list or any(_has_struct_in_lists(field.type) for field in fields_of(kind))
    if pa.types.is_map(kind):
        return _has_struct_in_lists(kind.item_type, in_list)
    if pa.types.is_list(kind):
        below = kind.value_type
        return _has_struct_in_lists(below, not pa.types.is_struct(below))
    return False


def _paths(schema: pa.Schema | pa.DataType, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all columns except the key, and of the fields of structs."""
    for field in fields_of(schema)[0 if above else 1 :]:
        yield (*above, field.name)
        if pa.types.is_struct(field.type):
            yield from _paths(field.type, (*above, field.name))


def _low(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in path)


def _type(schema: pa.Schema, path: Sequence[str]) -> pa.DataType:
    kind: Any = schema
    for name in path:
        kind = kind.field(name).type
    return kind


def _quoted(name: str) -> str:
    return f"`{name}`"


def _dotted(path: Sequence[str]) -> str:
    return ".".join(map(_quoted, path))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.random_nested", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seeds", default="0:20", help="one, or FROM:TO")
    parser.add_argument("--statements", type=int, default=5)
    given = parser.parse_args()
    start, _, end = given.seeds.partition(":")
    from tests.interop.random_verbs import CONF
    from tests.support.spark import delta_session, stop_sessions

    tally: collections.Counter[str] = collections.Counter()
    failures, delta = 0, DeltaSpark(delta_session(**CONF))
    try:
        for seed in range(int(start), int(end or int(start) + 1)):
            with tempfile.TemporaryDirectory() as place:
                try:
                    tally += run_nested(delta, Path(place), seed, given.statements)
                    tally["tables"] += 1
                except Difference as error:
                    failures += 1
                    print(f"seed {seed}: {error}\n", flush=True)
    finally:
        stop_sessions()
    for what, number in tally.most_common():
        print(f"{number:6}  {what}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
