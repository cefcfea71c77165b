"""DataFrames of a table version; their filters use the log to skip files.

Spark itself also applies these filters, and columns of a DataFrame can still be used in DataFrames that are derived
from it. There are two ways:

- For a small table, the DataFrame scans all files. Each filter is followed by a second filter, on the names of the
files, that is true for all rows that satisfy the first one: Spark applies the second filter to its list of files before
it plans the scan.
- For a large table, for which Spark would take longest to read that list, the DataFrame has no plan until it is used.
If a filter is applied before this first use, the scan contains only those files that can have matching rows.
"""

from __future__ import annotations

import base64
import functools
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading import column_text, file_entries, pruning
from spark_ext.reading.scan import FILE

_STATE = "_deltalog_loaded"
_CACHED = "_deltalog_cached"
# File names that are spelled the same way on disk and in Spark's URIs.
_PLAIN = "[A-Za-z0-9_.-]+"
_LAST = f"substring_index({FILE}, '/', -1)"
_MOST_NAMES = 50
# If a set contains more names than this, it is passed as a bitmap of the names' checksums. A collision of two checksums
# only means that a file is read although it could be skipped, which happens to at most one in 16 such files.
_BITS_PER_FILE = 16
_MOST_BITS = 1 << 23

Operation = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Deferred:
    """A DataFrame without a plan."""

    #: Returns the rows of the files that a predicate does not exclude.
    rows: Callable[[deltalog.Predicate | None], DataFrame]
    #: A DataFrame with the same columns and without rows.
    shape: DataFrame
    where: deltalog.Predicate | None = None
    #: Filters and projections, each with the shape (an empty DataFrame) that results from it.
    operations: tuple[tuple[Operation, DataFrame], ...] = ()

    @classmethod
    def of(
        cls, rows: Callable[[deltalog.Predicate | None], DataFrame], empty: DataFrame, names: Sequence[str]
    ) -> Deferred:
        """``rows``: a scan with the columns ``names`` and FILE; ``empty``: a DataFrame with its columns and without
        rows. The rows get the columns ``names`` of ``empty``."""
        shape = empty.select(*names)

        def like(where: deltalog.Predicate | None) -> DataFrame:
            found = rows(where)
            # On classic Spark a union has the columns of its first operand. Spark's optimizer drops the operand without
            # rows from the union.
            if "_jdf" in vars(found):
                return empty.union(found).select(*names)
            return _like(found.select(*names), shape)

        return cls(like, shape)

    def then(self, operation: Operation, where: deltalog.Predicate | None = None) -> Deferred:
        """Add an operation. ``where``: a predicate that is not false for any row that the operation keeps. Raises
        Spark's errors for the operation."""
        both = self.where if where is None else where if self.where is None else self.where & where
        shape = operation(self.shape)
        return replace(self, shape=shape, where=both, operations=(*self.operations, (operation, shape)))

    def built(self) -> DataFrame:
        """The DataFrame with a plan. Columns that were taken from the ``shape`` DataFrames can also be used with this
        DataFrame. Cost: a scan."""
        found = self.rows(self.where)
        return functools.reduce(lambda rows, each: _like(each[0](rows), each[1]), self.operations, found)


def _like(df: DataFrame, shape: DataFrame) -> DataFrame:
    """On Connect, give the plan of ``df`` the plan ids of ``shape``, so that columns of ``shape`` refer to ``df``."""
    if "_plan" in vars(df):
        given = vars(vars(shape)["_plan"])
        ids = ("_plan_id", "_root_plan_id", "_plan_id_with_rel")
        vars(vars(df)["_plan"]).update({name: given[name] for name in ids if name in given})
    return df


@dataclass(frozen=True)
class _State:
    snapshot: deltalog.Snapshot
    deferred: Deferred | None = None


def loaded(df: DataFrame, snapshot: deltalog.Snapshot) -> DataFrame:
    """The DataFrame of a snapshot's rows, made so that its filters skip files. Below its last projection, ``df`` must
    have the column FILE. Cost: none."""
    kind: Any = type(df)
    df.__class__ = _class_for(kind)
    vars(df)[_STATE] = _State(snapshot)
    return df


def deferred(of: Deferred, snapshot: deltalog.Snapshot) -> DataFrame:
    """A DataFrame of a snapshot's rows that gets its plan only when it is used for something other than filtering.
    Cost: none."""
    kind: Any = type(of.shape)
    made: DataFrame = object.__new__(_class_for(kind))
    vars(made)[_STATE] = _State(snapshot, of)
    return made


@functools.cache
def _class_for(kind: Any) -> Any:
    """The subclass of ``kind``, one of PySpark's DataFrame classes, for DataFrames whose filters skip files."""

    class LoadedFrame(kind):  # type: ignore[misc]
        """A DataFrame whose filters skip files. ``filter``, and ``select`` of columns by their names, also return such
        a DataFrame."""

        def __getattr__(self, name: str) -> Any:
            # Called for attributes that are not set: the attributes of a DataFrame that has no plan yet, and column
            # names.
            state = self.__dict__.get(_STATE)
            if state is None or state.deferred is None or _has_plan(self) or name.startswith("__"):
                return super().__getattr__(name)
            if name in ("_session", "sparkSession"):
                return state.deferred.shape.sparkSession
            if not name.startswith("_") and name != "is_cached" and not state.deferred.operations:
                return getattr(state.deferred.shape, name)
            _build(self)
            return getattr(self, name)

        def __getitem__(self, item: Any) -> Any:
            if isinstance(item, (str, int)) and not _has_plan(self):
                of = self.__dict__[_STATE].deferred
                if not of.operations:
                    return of.shape[item]
                _build(self)  # Spark tells the columns of two filtered frames apart only by their plans
            return super().__getitem__(item)

        @property
        def schema(self) -> Any:
            return self.__dict__[_STATE].deferred.shape.schema if not _has_plan(self) else kind.schema.__get__(self)

        @property
        def columns(self) -> Any:
            return self.__dict__[_STATE].deferred.shape.columns if not _has_plan(self) else kind.columns.__get__(self)

        def filter(self, condition: Any) -> Any:
            state = self.__dict__[_STATE]
            if self.__dict__.get(_CACHED):
                return super().filter(condition)
            text = _text(state.snapshot, condition)
            where = None if text is None else pruning.predicate(state.snapshot, [text])
            if state.deferred is not None:
                filtered = state.deferred.then(lambda rows: kind.filter(rows, condition), where)
                if _is_fixed(condition, text):
                    return deferred(filtered, state.snapshot)
                # Spark must analyse all other conditions now, because views, functions and random seeds may change
                # before the DataFrame is used. Later filters skip files as for a small table.
                return loaded(filtered.built(), state.snapshot)
            found, kept = super().filter(condition), _only_files(state.snapshot, where)
            return loaded(found if kept is None else kind.filter(found, kept), state.snapshot)

        def where(self, condition: Any) -> Any:
            return self.filter(condition)

        def select(self, *columns: Any) -> Any:
            state = self.__dict__[_STATE]
            if self.__dict__.get(_CACHED) or not _are_names(columns, state.snapshot):
                return super().select(*columns)
            if state.deferred is not None:
                return deferred(state.deferred.then(lambda rows: kind.select(rows, *columns)), state.snapshot)
            return loaded(super().select(*columns), state.snapshot)

        def persist(self, *level: Any, **options: Any) -> Any:
            self.__dict__[_CACHED] = True  # Spark finds cached rows by comparing plans for equality
            return super().persist(*level, **options)

        def cache(self) -> Any:
            self.__dict__[_CACHED] = True
            return super().cache()

        def unpersist(self, blocking: bool = False) -> Any:
            self.__dict__[_CACHED] = False
            return super().unpersist(blocking)

    LoadedFrame.__name__ = LoadedFrame.__qualname__ = kind.__name__
    LoadedFrame.__module__, LoadedFrame.__doc__ = kind.__module__, kind.__doc__
    return LoadedFrame


def _build(df: DataFrame) -> None:
    """Build the plan of a deferred DataFrame, which has none yet. Cost: a scan."""
    vars(df).update(vars(vars(df)[_STATE].deferred.built()))


def _is_fixed(condition: Any, text: str | None) -> bool:
    """Whether a condition means the same whenever Spark analyses it. ``text``: as ``_text`` returns it."""
    if text is None or column_text.UNKNOWN in text:
        return False
    return not isinstance(condition, str) or pruning.is_repeatable([condition])


def _has_plan(df: DataFrame) -> bool:
    """Whether the DataFrame has a plan: PySpark's own attributes are set only then."""
    return "_jdf" in vars(df) or "_plan" in vars(df)


def _are_names(columns: Sequence[Any], snapshot: deltalog.Snapshot) -> bool:
    listed = columns[0] if len(columns) == 1 and isinstance(columns[0], (list, tuple)) else columns
    return all(
        isinstance(name, str) and (name == "*" or ("." not in name and snapshot.schema.find(name) is not None))
        for name in listed
    )


def _text(snapshot: deltalog.Snapshot, condition: Any) -> str | None:
    """A condition as SQL text; None if deltalog cannot interpret it."""
    return condition if isinstance(condition, str) else column_text.sql_text(condition, snapshot.schema)


def _only_files(snapshot: deltalog.Snapshot, where: deltalog.Predicate | None) -> Any:
    """A condition on FILE that is true for the files which ``where`` does not exclude; None if it excludes none. Cost:
    as ``Scan.files``; on a local disk 1 lstat for each of these files."""
    if where is None:
        return None
    kept, count = snapshot.scan(where=where).files(), snapshot.num_files
    if kept.num_rows == count:
        return None
    names = [path.rpartition("/")[2] for path in file_entries.paths_of(snapshot, kept)]
    return F.expr(_is_one_of(names, count))


def _is_one_of(names: Sequence[str], count: int) -> str:
    """SQL on FILE: whether the last segment is one of ``names``, or contains characters that Spark may encode."""
    others = f"NOT {_LAST} RLIKE '^{_PLAIN}$'"
    if len(names) <= _MOST_NAMES:
        listed = "".join(f", '{name}'" for name in names if re.fullmatch(_PLAIN, name))
        return f"{_LAST} IN (''{listed}) OR {others}"
    num_bytes = min(max(count * _BITS_PER_FILE // 8, 64), _MOST_BITS // 8)
    bits = bytearray(num_bytes)
    for name in names:
        slot = zlib.crc32(name.encode()) % (num_bytes * 8)
        bits[slot // 8] |= 1 << slot % 8
    slot_of = f"crc32(encode({_LAST}, 'UTF-8')) % {num_bytes * 8}"
    bitmap = f"unbase64('{base64.b64encode(bits).decode()}')"
    byte = f"conv(hex(substring({bitmap}, cast({slot_of} div 8 as int) + 1, 1)), 16, 10)"
    return f"getbit(cast({byte} as int), cast({slot_of} % 8 as int)) = 1 OR {others}"
