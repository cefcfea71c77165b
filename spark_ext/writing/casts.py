"""Casts values to the types of a table's columns, as SQL expressions. Struct fields are matched by name. Pure.

Casts are checked at every depth: a value that does not fit fails the job, even without ANSI mode, where Spark's own
casts return null or another value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from spark_ext.reading.table_columns import quoted
from spark_ext.writing.row_rules import refusal

# How to treat struct fields that a new value lacks: refuse the change, set them to null, or keep their old values
# (except in lists and maps, whose elements have no old value).
Missing = Literal["refused", "null", "kept"]
NESTED = (spark_types.StructType, spark_types.ArrayType, spark_types.MapType)


@dataclass(frozen=True)
class Value:
    """A value as SQL, and its type."""

    text: str
    data_type: Any

    def child(self, name: str) -> Value | None:
        """The struct field with this name, compared without regard to case; None if there is no such field or the value
        is not a struct."""
        if not isinstance(self.data_type, spark_types.StructType):
            return None
        found = _found(self.data_type, name)
        return None if found is None else Value(f"{self.text}.{quoted(found.name)}", found.dataType)


@dataclass
class Fitting:
    """Casts values, and collects in ``problems`` the reasons why a value cannot be cast."""

    missing: Missing = "refused"
    problems: list[str] = field(default_factory=list)
    _num_variables: int = 0

    def column(self, value: Value, want: Any, where: str, old: Value | None = None) -> Column:
        """``value`` cast to ``want``. ``where``: the column, for messages. ``old``: the value from which ``kept`` takes
        missing fields."""
        return typed(self.text(value, want, where, old), value, want)

    def text(self, value: Value, want: Any, where: str, old: Value | None = None) -> str:
        """Like ``column``, but returns SQL text, whose value has a type that Spark can cast to ``want`` by position."""
        have = value.data_type
        if isinstance(have, spark_types.NullType):
            return "null"
        if is_same(have, want):
            return value.text
        if isinstance(have, spark_types.StructType) and isinstance(want, spark_types.StructType):
            return self._struct(value, want, where, old)
        if isinstance(have, spark_types.ArrayType) and isinstance(want, spark_types.ArrayType):
            item = Value(self._variable(), have.elementType)
            return f"transform({value.text}, {item.text} -> {self.text(item, want.elementType, f'{where}.element')})"
        if isinstance(have, spark_types.MapType) and isinstance(want, spark_types.MapType):
            return self._map(value, want, where)
        if isinstance(have, NESTED) or isinstance(want, (*NESTED, spark_types.NullType)):
            self.problems.append(
                f"the new value of column {where} is {have.simpleString()}, and the column is {want.simpleString()}. "
                "Use a value of the column's type."
            )
            return "null"
        cast = f"try_cast({value.text} as {_type_name(want)})"
        wrong = _refusal(f"a new value of column {where} is not one of its type, {_table_type(want)}")
        return f"coalesce({cast}, if({value.text} is not null, cast({wrong} as {_type_name(want)}), null))"

    def _struct(self, value: Value, want: Any, where: str, old: Value | None) -> str:
        self._check_names(value.data_type, want, where)
        fields = list[tuple[str, str]]()
        for each in want.fields:
            own = value.child(each.name)
            kept = None if self.missing != "kept" or old is None else old.child(each.name)
            below = f"{where}.{each.name}"
            if own is not None:
                text = self.text(own, each.dataType, below, kept)
            elif kept is not None:
                text = Fitting("null").text(kept, each.dataType, below)
            else:
                text = "null"
            fields.append((each.name, text))
        is_null = f"{value.text} is null"
        if self.missing == "kept" and old is not None and _lacks(value.data_type, want):
            is_null += f" and {old.text} is null"
        return f"if({is_null}, null, {struct_text(fields)})"

    def _map(self, value: Value, want: Any, where: str) -> str:
        have, text = value.data_type, value.text
        if not is_same(have.keyType, want.keyType):
            key, item = Value(self._variable(), have.keyType), self._variable()
            text = f"transform_keys({text}, ({key.text}, {item}) -> {self.text(key, want.keyType, f'{where}.key')})"
        if not is_same(have.valueType, want.valueType):
            key_name, entry = self._variable(), Value(self._variable(), have.valueType)
            fitted = self.text(entry, want.valueType, f"{where}.value")
            text = f"transform_values({text}, ({key_name}, {entry.text}) -> {fitted})"
        return text

    def _check_names(self, have: Any, want: Any, where: str) -> None:
        names = [each.name.lower() for each in have.fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            self.problems.append(
                f"the new value of column {where} has the field {twice[0]!r} more than once (names differ in more than "
                "case in a table). Rename or drop one of them."
            )
        for each in have.fields:
            if _found(want, each.name) is None:
                self.problems.append(
                    f"the new value of column {where} has the field {each.name}, which the column does not have; it "
                    f"has {', '.join(want.names)}. Leave the field out, or add it to the table."
                )
        lacking = [each.name for each in want.fields if each.name.lower() not in names]
        if lacking and self.missing == "refused":
            self.problems.append(
                f"the new value of column {where} lacks the field {', '.join(lacking)}, and all fields of a struct "
                "must be there. Add them, or set single fields by their paths; a merge WITH SCHEMA EVOLUTION keeps "
                "the fields that its source lacks in UPDATE SET *."
            )

    def _variable(self) -> str:
        self._num_variables += 1
        return f"__deltalog_x{self._num_variables}"


def typed(text: str, value: Value | None, want: Any) -> Column:
    """The result of ``Fitting.text`` as a Column of the type ``want``, but with all fields, elements and values
    nullable: Spark does not cast to NOT NULL types, and the writer checks NOT NULL."""
    return F.expr(text) if value is not None and text == value.text else F.expr(text).cast(_nullable(want))


def _nullable(data_type: Any) -> Any:
    if isinstance(data_type, spark_types.StructType):
        return spark_types.StructType(
            [spark_types.StructField(each.name, _nullable(each.dataType)) for each in data_type.fields]
        )
    if isinstance(data_type, spark_types.ArrayType):
        return spark_types.ArrayType(_nullable(data_type.elementType))
    if isinstance(data_type, spark_types.MapType):
        return spark_types.MapType(_nullable(data_type.keyType), _nullable(data_type.valueType))
    return data_type


def struct_text(fields: Iterable[tuple[str, str]]) -> str:
    """The SQL text of a struct, built from the names and values of its fields."""
    return f"named_struct({', '.join(part for name, text in fields for part in (_literal(name), text))})"


def positioned(have: Any, want: Any, where: str, problems: list[str]) -> Any:
    """The type ``have`` with its struct fields renamed, by position, to the names in ``want``; a cast to this type
    renames the fields of a value. Fields that ``have`` contains in addition to those of ``want`` keep their names. A
    struct with fewer fields than ``want``, or with the same fields in another order (probably meant by name), is added
    to ``problems``."""
    if isinstance(have, spark_types.ArrayType) and isinstance(want, spark_types.ArrayType):
        element = positioned(have.elementType, want.elementType, f"{where}.element", problems)
        return spark_types.ArrayType(element, have.containsNull)
    if isinstance(have, spark_types.MapType) and isinstance(want, spark_types.MapType):
        key = positioned(have.keyType, want.keyType, f"{where}.key", problems)
        value = positioned(have.valueType, want.valueType, f"{where}.value", problems)
        return spark_types.MapType(key, value, have.valueContainsNull)
    if not (isinstance(have, spark_types.StructType) and isinstance(want, spark_types.StructType)):
        return have
    given, own = ([name.lower() for name in each.names] for each in (have, want))
    if len(given) < len(own):
        problems.append(
            f"column {where} has {len(own)} fields ({', '.join(want.names)}), and the value has {len(given)} "
            f"({', '.join(have.names)}). Add the missing ones."
        )
    elif given != own and sorted(given) == sorted(own):
        problems.append(
            f"INSERT matches struct fields by position, and the value of column {where} has the fields of the column "
            f"in another order: {', '.join(have.names)} instead of {', '.join(want.names)}. Use the order of the "
            "column, or write by name: INSERT INTO … BY NAME, saveAsTable."
        )
    fields = []
    for at, field_ in enumerate(have.fields):
        counterpart = want.fields[at] if at < len(want.fields) else field_
        inner = positioned(field_.dataType, counterpart.dataType, f"{where}.{counterpart.name}", problems)
        fields.append(spark_types.StructField(counterpart.name, inner, field_.nullable))
    return spark_types.StructType(fields)


def extended(have: Any, want: Any) -> Any:
    """The type ``want``, extended: at every depth, the fields that only ``have`` contains are appended to the structs
    of ``want``."""
    if isinstance(have, spark_types.ArrayType) and isinstance(want, spark_types.ArrayType):
        return spark_types.ArrayType(extended(have.elementType, want.elementType), want.containsNull)
    if isinstance(have, spark_types.MapType) and isinstance(want, spark_types.MapType):
        key, value = extended(have.keyType, want.keyType), extended(have.valueType, want.valueType)
        return spark_types.MapType(key, value, want.valueContainsNull)
    if not (isinstance(have, spark_types.StructType) and isinstance(want, spark_types.StructType)):
        return want
    fields = []
    for each in want.fields:
        given = _found(have, each.name)
        inner = each.dataType if given is None else extended(given.dataType, each.dataType)
        fields.append(spark_types.StructField(each.name, inner, each.nullable))
    return spark_types.StructType([*fields, *(each for each in have.fields if _found(want, each.name) is None)])


def is_same(have: Any, want: Any) -> bool:
    """Whether two types are equal, apart from nullability."""
    if isinstance(have, spark_types.StructType) and isinstance(want, spark_types.StructType):
        pairs = zip(have.fields, want.fields, strict=False)
        return have.names == want.names and all(is_same(one.dataType, other.dataType) for one, other in pairs)
    if isinstance(have, spark_types.ArrayType) and isinstance(want, spark_types.ArrayType):
        return is_same(have.elementType, want.elementType)
    if isinstance(have, spark_types.MapType) and isinstance(want, spark_types.MapType):
        return is_same(have.keyType, want.keyType) and is_same(have.valueType, want.valueType)
    return bool(have == want)


def _found(struct: Any, name: str) -> Any:
    """The field with exactly this name, otherwise the field whose name differs only in case."""
    exact = [each for each in struct.fields if each.name == name]
    alike = exact or [each for each in struct.fields if each.name.lower() == name.lower()]
    return alike[0] if alike else None


def _lacks(have: Any, want: Any) -> bool:
    """Whether the struct ``have`` lacks, at any depth, a field of the struct ``want``."""
    if not (isinstance(have, spark_types.StructType) and isinstance(want, spark_types.StructType)):
        return False
    found = [(_found(have, each.name), each) for each in want.fields]
    return any(one is None or _lacks(one.dataType, other.dataType) for one, other in found)


def _refusal(message: str) -> str:
    return f"raise_error({_literal(refusal(message))})"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _type_name(data_type: Any) -> str:
    """The SQL name of a type. "timestamp" alone would depend on the session (spark.sql.timestampType)."""
    name = str(data_type.simpleString())
    return "timestamp_ltz" if name == "timestamp" else name


def _table_type(data_type: Any) -> str:
    """The name of a type in a Delta schema."""
    return str(data_type.simpleString() if isinstance(data_type, spark_types.DecimalType) else data_type.typeName())
