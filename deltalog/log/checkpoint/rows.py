"""Converts rows of a checkpoint's Parquet files to actions, and to tables with columns of FILES or TOMBSTONES. Pure.

Spec: PROTOCOL.md#checkpoint-schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa

from deltalog.arrow_arrays import FEW_ROWS, combined, empty, kept, nulls, rows_where
from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.log.checkpoint.footer import check_file_rows
from deltalog.log.file_tables import camel

if TYPE_CHECKING:
    from deltalog.log import file_statistics
else:
    lazy_modules(__name__, "deltalog.log.file_statistics")

_PARSED = "stats_parsed"


class Wanted(msgspec.Struct, frozen=True):
    """The columns to read from a checkpoint for its file actions.

    ``action``: the kind of action to read. ``schema``: a subset of the columns of FILES or TOMBSTONES. ``leaves``: the
    table columns whose statistics are read; None to read statistics only if ``schema`` has ``stats``.
    """

    action: Literal["add", "remove"]
    schema: pa.Schema
    leaves: Sequence[file_statistics.Leaf] | None = None

    @property
    def text_schema(self) -> pa.Schema:
        """The columns of the result if statistics are stored as JSON text."""
        if self.leaves is None or "stats" in self.schema.names:
            return self.schema
        return self.schema.append(pa.field("stats", pa.string()))

    def stored(self, paths: Collection[str]) -> list[str]:
        """The Parquet columns to read from a file whose leaves have the dotted ``paths``. If statistics exist both as
        text and as structs, only one form is read."""
        names = {camel(name) for name in self.schema.names}
        parsed = f"{self.action}.{_PARSED}"
        has_text, has_parsed = f"{self.action}.stats" in paths, f"{parsed}.numRecords" in paths
        columns = [f"{self.action}.{name}" for name in names]
        if "stats" in names and has_parsed and not has_text:
            columns.append(parsed)
        elif self.leaves is not None and has_parsed:
            columns += [f"{parsed}.numRecords", f"{parsed}.tightBounds"]
            columns += [".".join((parsed, group, *leaf.physical)) for leaf in self.leaves for group in leaf.groups]
        elif self.leaves is not None:
            columns.append(f"{self.action}.stats")
        return columns


def present(columns: Iterable[str], paths: Collection[str]) -> list[str]:
    """Those of the ``columns`` that exist, at least in part, in a file whose leaf columns have the dotted ``paths``."""
    above = {path[:end] for path in paths for end in _prefixes(path)}
    return [column for column in columns if column in above]


def _prefixes(path: str) -> Iterator[int]:
    end = path.find(".")
    while end >= 0:
        yield end
        end = path.find(".", end + 1)
    yield len(path)


def small_actions(table: pa.Table, keys: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The actions of the kinds ``keys``, as pairs of the kind and the JSON body, from which null fields are omitted."""
    for key in keys:
        if key not in table.schema.names:
            continue
        column = table.column(key)
        if column.null_count == len(column):
            continue
        for body in column.filter(pc.is_valid(column)).to_pylist():
            if not any(v is not None for v in body.values()):
                continue  # some writers store an absent action as a struct of nulls
            if key == "metaData":
                body = _metadata_body(body)
            yield key, {k: v for k, v in body.items() if v is not None}


def _metadata_body(body: dict[str, Any]) -> dict[str, Any]:
    stored = body.get("format") or {}
    body["format"] = {
        "provider": stored.get("provider") or "parquet",
        "options": dict(stored.get("options") or ()),
    }
    body["configuration"] = dict(body.get("configuration") or ())
    return body


def file_actions(table: pa.Table, wanted: Wanted) -> pa.Table:
    """The file actions among the rows of a checkpoint: the columns of ``wanted.schema`` and, with ``wanted.leaves``, a
    statistics column, ``stats_parsed`` or ``stats``. If the checkpoint stores statistics only as structs, the result
    lacks ``stats``, and ``file_statistics.with_text`` adds it. Raises ValueError as ``check_file_rows``."""
    columns = {f.name: f.type for f in wanted.schema}
    if wanted.action not in table.schema.names:
        return empty(wanted.text_schema)
    column = table.column(wanted.action)
    stored = {f.name: i for i, f in enumerate(column.type.fields)}
    if "path" not in stored:
        return empty(wanted.text_schema)
    children = column.flatten()
    rows = len(column)
    arrays = {}
    for name, kind in columns.items():
        index = stored.get(camel(name))
        arrays[name] = nulls(rows, kind) if index is None else _cast(children[index], kind)
    if _PARSED in stored and "stats" in columns and "stats" not in stored:
        if wanted.leaves is None:
            arrays["stats"] = file_statistics.as_json(children[stored[_PARSED]])
        else:
            del arrays["stats"]
    if wanted.leaves is not None:
        name = _PARSED if _PARSED in stored else "stats"
        found = children[stored[name]] if name in stored else nulls(rows, pa.string())
        arrays[name] = found if name == _PARSED else _cast(found, pa.string())
    found = pa.table(arrays)
    actions = _with_path(found, combined(found.column("path")))
    check_file_rows(actions)
    return actions


def _with_path(rows: pa.Table, paths: Any) -> pa.Table:
    """The rows that have a path. In most checkpoints, only a few rows lack a path."""
    if paths.null_count <= FEW_ROWS:
        return rows_where(paths.is_valid(), rows) if paths.null_count else rows
    is_action = paths.is_valid()
    return pa.table({name: kept(combined(rows[name]), is_action) for name in rows.schema.names})


def _cast(values: Any, wanted: pa.DataType) -> Any:
    if values.null_count == len(values):
        return nulls(len(values), wanted)
    if values.type == wanted:
        return values
    if pa.types.is_struct(wanted):
        values = combined(values)
        stored = {f.name: i for i, f in enumerate(values.type.fields)}
        children = []
        for child in wanted.fields:
            index = stored.get(camel(child.name))
            found = nulls(len(values), child.type) if index is None else values.field(index)
            children.append(_cast(found, child.type))
        mask = pc.invert(values.is_valid())
        return pa.StructArray.from_arrays(children, fields=list(wanted.fields), mask=mask)
    return values.cast(wanted)
