"""The table of a scenario, which one of the two engines writes and reads; every result is recorded.

Both engines are called in the same way: ``writer(df).mode(…).partitionBy(…).options(…).save(path)`` and
``reader().options(…).load(path)``. delta-spark runs the set-up statements (`start`, `sql`) for both engines.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import spark_ext
from tests.interop.parity.errors import meaning
from tests.spark.settings import session_of
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.log_files import commits

OK = "ok"


@dataclass(frozen=True)
class Engine:
    """An engine: its name, the format name for its streams, and its writer, its reader and its SQL call."""

    name: str
    format: str
    writer: Callable[[Any], Any]
    reader: Callable[[Any], Any]
    sql: Callable[[Any, str], Any]


DELTA_SPARK = Engine(
    "delta-spark",
    "delta",
    lambda df: df.write.format("delta"),
    lambda spark: spark.read.format("delta"),
    lambda spark, statement: spark.sql(statement),
)
SPARK_EXT = Engine("spark_ext", "deltalog", spark_ext.write, spark_ext.read, spark_ext.sql)


@dataclass
class Place:
    """The directory in which the tables of a run are created. Tables with the same set-up are created once and then
    copied."""

    delta: DeltaSpark
    directory: Path
    made: dict[tuple[str, ...], Path] = field(default_factory=dict)
    count: int = 0

    def new(self) -> Path:
        self.count += 1
        path = self.directory / str(self.count)
        path.mkdir()
        return path / "t"

    def copy_of(self, statements: tuple[str, ...], target: Path) -> None:
        if statements not in self.made:
            path = self.new()
            for statement in statements:
                self.delta.sql(statement.replace("{t}", f"delta.`{path}`"))
            self.made[statements] = path
        shutil.copytree(self.made[statements], target)


class Table:
    """One table of one engine. For each write and read, docs/spark-parity.md records `ok` or the meaning of the error,
    and the rows read.

    A step that fails does not end the scenario.
    """

    def __init__(self, engine: Engine, place: Place, path: Path | None = None) -> None:
        self.engine, self.place, self.spark = engine, place, place.delta.spark
        self.path = path or place.new()
        self.errors: list[str] = []
        self.rows: list[Any] = []
        self.schemas: list[Any] = []

    # ------------------------------------------------------------------------------- set-up, by delta-spark

    def start(self, *statements: str, times: Sequence[str] = ()) -> None:
        """Create the table by running SQL statements with delta-spark; ``{t}`` is the placeholder for the table.
        ``times``: the times of the table's versions, in UTC."""
        self.place.copy_of(statements, self.path)
        for commit, text in zip(commits(self.path).values(), times, strict=False):
            moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.timezone.utc).timestamp()
            os.utime(commit, (moment, moment))

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement.replace("{t}", f"delta.`{self.path}`"))

    def session(self, **settings: str) -> contextlib.AbstractContextManager[None]:
        """Apply settings to the session during a block; ``__`` in a name stands for a dot."""
        return session_of(self.spark, {name.replace("__", "."): value for name, value in settings.items()})

    # ------------------------------------------------------------------------------- the engine

    def write(
        self,
        rows: Any,
        mode: str | None = None,
        by: Sequence[str] | None = None,
        *,
        to: str | None = None,
        how: Callable[[Any], Any] = lambda writer: writer,
        meanwhile: Callable[[str], object] | None = None,
        **options: Any,
    ) -> None:
        """Save ``rows`` (a query or a DataFrame), partitioned by the columns ``by``. ``how``: a function that calls
        further methods of the DataFrame writer. ``meanwhile``: a function that a task of the job calls, and that acts
        as another writer. ``__`` in option names stands for a dot."""

        def save() -> None:
            df = self.spark.sql(rows) if isinstance(rows, str) else rows
            if meanwhile is not None:
                df = _with(df, meanwhile, str(self.path))
            writer = how(self.engine.writer(df))
            writer = writer if mode is None else writer.mode(mode)
            writer = writer if by is None else writer.partitionBy(*by)
            writer.options(**_dotted(options)).save(to or str(self.path))

        self.do(save)

    def append(self, rows: Any, **more: Any) -> None:
        self.write(rows, "append", **more)

    def overwrite(self, rows: Any, **more: Any) -> None:
        self.write(rows, "overwrite", **more)

    def run(self, *statements: str, keeps: bool = True) -> None:
        """Run statements with the engine's own SQL, and record their results; ``{t}`` is the placeholder for the
        table."""
        for statement in statements:
            text = statement.replace("{t}", f"delta.`{self.path}`").replace("{path}", str(self.path))
            self.do(functools.partial(self._run, text, keeps))

    def _run(self, text: str, keeps: bool) -> None:
        df = self.engine.sql(self.spark, text)
        if keeps:
            self.keep(df)

    def load(self, at: str | None = None, **options: Any) -> Any:
        return self.engine.reader(self.spark).options(**_dotted(options)).load(at or str(self.path))

    def read(self, suffix: str = "", *, of: Callable[[Any], Any] = lambda df: df, **options: Any) -> None:
        """Load ``path + suffix`` with the given options, and record the rows and schema of ``of(df)``."""
        self.do(lambda: self.keep(of(self.load(str(self.path) + suffix, **options))))

    def changes(self, **options: Any) -> None:
        """The change data feed."""
        self.read(readChangeFeed="true", **options)

    def last_time(self, format: str = "%Y-%m-%d %H:%M:%S.%f") -> str:
        """The file modification time of the last commit, in UTC."""
        last = list(commits(self.path).values())[-1]
        return dt.datetime.fromtimestamp(last.stat().st_mtime, dt.timezone.utc).strftime(format)

    def read_by(self, engine: Engine) -> Any:
        """The rows of the last version as an engine reads them, or, if reading fails, the meaning of the engine's
        error."""
        try:
            return _rows(engine.reader(self.spark).load(str(self.path)))
        except Exception as error:
            return meaning(error)

    def keep(self, df: Any) -> None:
        """Read a DataFrame's rows and schema, and record them."""
        self.rows.append(_rows(df))
        self.schemas.append(_plain_schema(df.schema))

    def do(self, step: Callable[[], object]) -> None:
        """Run a step and record its error, if any."""
        try:
            step()
        except Exception as error:
            self.errors.append(meaning(error))
        else:
            self.errors.append(OK)


def _rows(df: Any) -> list[Any]:
    """The rows, with variants converted to JSON."""
    variants = [field.name for field in df.schema if field.dataType.typeName() == "variant"]
    return plain_rows(df.withColumns({name: F.to_json(name) for name in variants}).toArrow())


def _plain_schema(schema: Any) -> list[str]:
    """One line per column: name, type, nullability, metadata."""
    plain = schema.jsonValue()["fields"]
    return [f"{f['name']}: {f['type']} {'null' if f['nullable'] else 'not null'} {f['metadata']}" for f in plain]


def _dotted(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in options.items()}


def _with(df: Any, act: Callable[[str], object], path: str) -> Any:
    """A DataFrame with the rows of ``df``; the task that computes these rows first calls ``act(path)``. The nested
    function is pickled by value."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        act(path)
        yield from batches

    return df.coalesce(1).mapInArrow(rows, df.schema)
