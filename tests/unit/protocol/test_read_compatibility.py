from __future__ import annotations

from typing import Any

import pytest

from deltalog.engine import Metadata
from deltalog.protocol.actions import Format
from deltalog.protocol.read_compatibility import incompatibility
from deltalog.schema import ArrayType, DecimalType, MapType, PrimitiveType, StructField, StructType

LONG, INT, TEXT, VOID = (PrimitiveType(name) for name in ("long", "integer", "string", "void"))


def struct(**columns: Any) -> StructType:
    """Columns by name: each a type, or a pair of type and nullability."""
    pairs = {n: c if isinstance(c, tuple) else (c, True) for n, c in columns.items()}
    return StructType(tuple(StructField(n, kind, nullable) for n, (kind, nullable) in pairs.items()))


def metadata(schema: StructType, mode: str = "none", partition_by: tuple[str, ...] = ()) -> Metadata:
    configuration = {} if mode == "none" else {"delta.columnMapping.mode": mode}
    return Metadata(
        id="t",
        format=Format(),
        schema_string=schema.to_json(),
        partition_columns=partition_by,
        configuration=configuration,
    )


DATE = PrimitiveType("date")
FIT = {
    "the same": (struct(a=LONG), struct(a=LONG)),
    "columns added": (struct(a=LONG), struct(b=TEXT, a=LONG)),
    "a field added in a struct": (struct(s=struct(a=LONG)), struct(s=struct(a=LONG, b=LONG))),
    "a field added in an array": (struct(s=ArrayType(struct(a=LONG))), struct(s=ArrayType(struct(a=LONG, b=LONG)))),
    "NOT NULL lifted": (struct(a=(LONG, False)), struct(a=LONG)),
    "nulls allowed in an array": (struct(a=ArrayType(LONG, False)), struct(a=ArrayType(LONG))),
    "a void column given a type": (struct(a=VOID), struct(a=DATE)),
}
DO_NOT_FIT = {
    "column b was dropped": (struct(a=LONG, b=LONG), struct(a=LONG)),
    "column a was renamed to A": (struct(a=LONG), struct(A=LONG)),
    "column s.b was dropped": (struct(s=struct(a=LONG, b=LONG)), struct(s=struct(a=LONG))),
    "column a became NOT NULL": (struct(a=LONG), struct(a=(LONG, False))),
    "the elements of a became NOT NULL": (struct(a=ArrayType(LONG)), struct(a=ArrayType(LONG, False))),
    "the values of m became NOT NULL": (struct(m=MapType(TEXT, LONG)), struct(m=MapType(TEXT, LONG, False))),
    "the type of a changed from integer to long": (struct(a=INT), struct(a=LONG)),
    "the type of m.key changed from integer to long": (struct(m=MapType(INT, LONG)), struct(m=MapType(LONG, LONG))),
    "the type of s.a.element changed from integer to long": (
        struct(s=struct(a=ArrayType(INT))),
        struct(s=struct(a=ArrayType(LONG))),
    ),
    r"the type of d changed from decimal\(5,2\) to decimal\(7,2\)": (
        struct(d=DecimalType(5, 2)),
        struct(d=DecimalType(7, 2)),
    ),
}


@pytest.mark.parametrize("name", FIT)
def test_rows_fit_when_columns_were_added(name: str) -> None:
    old, new = FIT[name]
    assert incompatibility(metadata(old), metadata(new)) is None


@pytest.mark.parametrize("why", DO_NOT_FIT)
def test_rows_do_not_fit_anything_else(why: str) -> None:
    old, new = DO_NOT_FIT[why]
    assert incompatibility(metadata(old), metadata(new)) == why.replace("\\", "")


def mapped(**columns: Any) -> StructType:
    """The columns, keyed by name, each with its physical name and type."""
    key = "delta.columnMapping.physicalName"
    return StructType(tuple(StructField(n, kind, True, {key: physical}) for n, (physical, kind) in columns.items()))


def test_under_column_mapping_a_name_given_anew_is_another_column() -> None:
    old, new = mapped(a=("x", LONG)), mapped(a=("y", LONG))
    assert incompatibility(metadata(old, "name"), metadata(new, "name")) == "column a was dropped"
    renamed = mapped(b=("x", LONG))
    assert incompatibility(metadata(old, "id"), metadata(renamed, "id")) == "column a was renamed to b"
    nested_old = mapped(s=("s", ArrayType(mapped(a=("x", LONG)))))
    nested_new = mapped(s=("s", ArrayType(mapped(b=("x", LONG)))))
    why = incompatibility(metadata(nested_old, "name"), metadata(nested_new, "name"))
    assert why == "column s.element.a was renamed to b"


def test_mapping_that_was_turned_on_kept_the_names() -> None:
    old = struct(a=LONG)
    assert incompatibility(metadata(old), metadata(mapped(a=("a", LONG)), "name")) is None
    assert incompatibility(metadata(old), metadata(mapped(b=("a", LONG)), "name")) == "column a was renamed to b"
    why = incompatibility(metadata(mapped(a=("a", LONG)), "name"), metadata(old))
    assert why == "column mapping changed from name to none"


def test_other_partition_columns_do_not_fit_under_column_mapping() -> None:
    assert incompatibility(metadata(struct(a=LONG)), metadata(struct(a=LONG), partition_by=("a",))) is None
    schema = mapped(a=("a", LONG))
    why = incompatibility(metadata(schema, "name"), metadata(schema, "name", ("a",)))
    assert why == "the partition columns changed from nothing to a"
