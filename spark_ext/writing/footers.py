"""Checks that the footers of a job's files have the columns and types that the table needs.

Other threads can change settings of the session while a job runs, and some settings cannot be set for one write only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import deltalog
from spark_ext.writing.physical_columns import PARQUET_ID

_FIELD_ID = b"PARQUET:field_id"
# Spark sets this key in files whose dates and times (except INT96) are in the hybrid Julian calendar.
_OLD_CALENDAR = b"org.apache.spark.legacyDateTime"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What files must have. ``has_ids``: field ids. ``shreds``: whether their variants can be shredded."""

    has_ids: bool
    shreds: bool


def examiner(
    url: str, stored: deltalog.schema.StructType, has_ids: bool, shreds: bool = False
) -> Callable[[str, Any], None]:
    """A function that checks a file, given its path and footer: the file must have exactly the columns ``stored`` with
    their types and, with ``has_ids``, their field ids, but no INT96 columns and no Julian calendar; variants are
    shredded only with ``shreds``. The function raises InvalidDataFileError if a check fails."""
    wanted = _Wanted(has_ids, shreds)

    def examine(path: str, footer: Any) -> None:
        fault = next(_faults(footer, stored, wanted), None)
        if fault is not None:
            raise deltalog.errors.InvalidDataFileError(
                f"{url}: Spark wrote a file that does not fit the table, {path}: {fault}. Nothing was committed. The "
                "session's Parquet settings were changed during the write, or Hadoop's settings override them: check "
                "those that contain 'parquet', and write again.",
                path=path,
            )

    return examine


def _faults(footer: Any, stored: deltalog.schema.StructType, wanted: _Wanted) -> Iterator[str]:
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        if column.physical_type == "INT96":
            yield f"the timestamps of {column.path} are INT96, which have no statistics"
    if _OLD_CALENDAR in (footer.metadata or {}):
        yield "its dates or times are in an old calendar"
    yield from _struct_faults(stored, footer.schema.to_arrow_schema(), wanted, "")


def _struct_faults(
    want: deltalog.schema.StructType, have: Sequence[pa.Field] | pa.Schema, wanted: _Wanted, above: str
) -> Iterator[str]:
    names = [field.name for field in have]
    if names != list(want.names):
        place = f" in {above.rstrip('.')}" if above else ""
        yield f"it has the columns {', '.join(names)}{place}, and should have {', '.join(want.names)}"
        return
    for field, found in zip(want.fields, have, strict=True):
        path, number = f"{above}{field.name}", field.metadata.get(PARQUET_ID)
        if wanted.has_ids and number is not None and (found.metadata or {}).get(_FIELD_ID) != str(number).encode():
            yield f"column {path} has no field id {number}, by which readers identify it"
        yield from _type_faults(field.data_type, found.type, wanted, path)


def _type_faults(want: Any, have: pa.DataType, wanted: _Wanted, path: str) -> Iterator[str]:
    if str(want) == "variant":
        parts = {f.name: f.type for f in have.fields} if pa.types.is_struct(have) else {}
        if wanted.shreds:
            parts.pop("typed_value", None)
        if parts != {"metadata": pa.binary(), "value": pa.binary()}:
            kind = "a variant" if wanted.shreds else "an unshredded variant"
            yield f"column {path} is {have}, and should be {kind} of metadata and value"
    elif isinstance(want, deltalog.schema.StructType) and pa.types.is_struct(have):
        yield from _struct_faults(want, have.fields, wanted, f"{path}.")
    elif isinstance(want, deltalog.schema.ArrayType) and pa.types.is_list(have):
        yield from _type_faults(want.element_type, have.value_type, wanted, f"{path}.element")
    elif isinstance(want, deltalog.schema.MapType) and pa.types.is_map(have):
        yield from _type_faults(want.key_type, have.key_type, wanted, f"{path}.key")
        yield from _type_faults(want.value_type, have.item_type, wanted, f"{path}.value")
    else:
        plain = deltalog.schema.StructType((deltalog.schema.StructField("c", want, True),)).to_arrow().field(0).type
        if plain != have:
            yield f"column {path} is {have}, and should be {plain}"
