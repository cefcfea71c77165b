"""The types of ``deltalake.schema``: the classes with which deltalake returns and accepts a table's columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from deltalog.arguments import safe_repr
from deltalog.deltalake.arrow import given_field, given_schema, given_type, taken_field, taken_schema, with_large_types
from deltalog.deltalake.exceptions import translating
from deltalog.errors import CorruptTableError
from deltalog.protocol import schema as delta
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.column_metadata import INVARIANT_KEY

__all__ = [
    "ArrayType",
    "DataType",
    "Field",
    "MapType",
    "PrimitiveType",
    "Schema",
    "StructType",
    "VariantType",
]

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_PRIMITIVES = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
        "timestamp_ntz",
    }
)  # fmt: skip


class _Type:
    """What all types share: JSON, Arrow, equality."""

    type: str

    def _delta(self) -> delta.DataType:
        raise NotImplementedError

    def to_json(self) -> str:
        """The type, as it is written in the JSON of a schema."""
        return canonical_json(json.loads(_json_of(self._delta())))

    @translating
    def to_arrow(self) -> Any:
        """The Arrow type."""
        return given_type(self._arrow())

    def _arrow(self) -> pa.DataType:
        return delta.type_to_arrow(self._delta())

    def __arrow_c_schema__(self) -> object:
        """The Arrow C schema interface."""
        return self._arrow().__arrow_c_schema__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Type) and self._delta() == other._delta()

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return repr(self)

    @classmethod
    def _made(cls, found: _Type) -> Any:
        if not isinstance(found, cls):
            raise TypeError(f"{cls.__name__} expected, but the type is {found!r}.")
        return found


class PrimitiveType(_Type):
    """A type without fields, by its name in the protocol, such as ``long`` or ``decimal(10,2)``."""

    def __init__(self, data_type: str) -> None:
        decimal = _DECIMAL.fullmatch(data_type) if isinstance(data_type, str) else None
        if decimal is not None:
            precision, scale = int(decimal[1]), int(decimal[2])
            if not 1 <= precision <= 38 or scale > precision:
                raise ValueError(f"invalid type string: {data_type}: the precision of a decimal is at most 38.")
            data_type = f"decimal({precision},{scale})"
        elif data_type not in _PRIMITIVES:
            raise ValueError(f"invalid type string: {data_type}. Types are {', '.join(sorted(_PRIMITIVES))}.")
        self._name = data_type

    @property
    def type(self) -> str:  # type: ignore[override]
        """The name of the type."""
        return self._name

    def _delta(self) -> delta.DataType:
        decimal = _DECIMAL.fullmatch(self._name)
        if decimal is not None:
            return delta.DecimalType(int(decimal[1]), int(decimal[2]))
        return delta.PrimitiveType(self._name)

    @classmethod
    def from_json(cls, type_json: str) -> PrimitiveType:
        """The type from JSON."""
        found: PrimitiveType = cls._made(_type_of_json(type_json))
        return found

    @classmethod
    def from_arrow(cls, data_type: Any) -> PrimitiveType:
        """The type for an Arrow type."""
        found: PrimitiveType = cls._made(_type_of_arrow(data_type))
        return found

    @safe_repr
    def __repr__(self) -> str:
        return f'PrimitiveType("{self._name}")'


class VariantType(_Type):
    """The type ``variant``."""

    type: ClassVar[str] = "variant"  # type: ignore[misc]

    def _delta(self) -> delta.DataType:
        return delta.VARIANT

    @classmethod
    def from_json(cls, type_json: str) -> VariantType:
        """The type from JSON."""
        found: VariantType = cls._made(_type_of_json(type_json))
        return found

    @classmethod
    def from_arrow(cls, data_type: Any) -> VariantType:
        """The type for an Arrow type."""
        found: VariantType = cls._made(_type_of_arrow(data_type))
        return found

    @safe_repr
    def __repr__(self) -> str:
        return "VariantType()"


class ArrayType(_Type):
    """A list type."""

    type: ClassVar[str] = "array"  # type: ignore[misc]

    def __init__(self, element_type: DataType | str, contains_null: bool = True) -> None:
        self._element_type = _taken(element_type)
        self._contains_null = contains_null

    @property
    def element_type(self) -> DataType:
        """The type of the elements."""
        found: DataType = self._element_type
        return found

    @property
    def contains_null(self) -> bool:
        """Whether there may be nulls among the elements."""
        return self._contains_null

    def _delta(self) -> delta.DataType:
        return delta.ArrayType(self.element_type._delta(), self.contains_null)

    @classmethod
    def from_json(cls, type_json: str) -> ArrayType:
        """The type from JSON."""
        found: ArrayType = cls._made(_type_of_json(type_json))
        return found

    @classmethod
    def from_arrow(cls, data_type: Any) -> ArrayType:
        """The type for an Arrow type."""
        found: ArrayType = cls._made(_type_of_arrow(data_type))
        return found

    @safe_repr
    def __repr__(self) -> str:
        return f"ArrayType({self.element_type!r}, contains_null={self.contains_null})"


class MapType(_Type):
    """A map type."""

    type: ClassVar[str] = "map"  # type: ignore[misc]

    def __init__(self, key_type: DataType | str, value_type: DataType | str, value_contains_null: bool = True) -> None:
        self._key_type = _taken(key_type)
        self._value_type = _taken(value_type)
        self._value_contains_null = value_contains_null

    @property
    def key_type(self) -> DataType:
        """The type of the keys."""
        found: DataType = self._key_type
        return found

    @property
    def value_type(self) -> DataType:
        """The type of the values."""
        found: DataType = self._value_type
        return found

    @property
    def value_contains_null(self) -> bool:
        """Whether there may be nulls among the values."""
        return self._value_contains_null

    def _delta(self) -> delta.DataType:
        return delta.MapType(self.key_type._delta(), self.value_type._delta(), self.value_contains_null)

    @classmethod
    def from_json(cls, type_json: str) -> MapType:
        """The type from JSON."""
        found: MapType = cls._made(_type_of_json(type_json))
        return found

    @classmethod
    def from_arrow(cls, data_type: Any) -> MapType:
        """The type for an Arrow type."""
        found: MapType = cls._made(_type_of_arrow(data_type))
        return found

    @safe_repr
    def __repr__(self) -> str:
        return f"MapType({self.key_type!r}, {self.value_type!r}, value_contains_null={self.value_contains_null})"


class Field:
    """A column, or a field of a struct. ``metadata``: JSON values keyed by name; after reading, a value that is an
    object is JSON text."""

    def __init__(
        self, name: str, type: DataType | str, nullable: bool = True, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self._name = name
        self._type = _taken(type)
        self._nullable = nullable
        self._metadata = dict(metadata or {})

    @property
    def name(self) -> str:
        """The name of the field."""
        return self._name

    @property
    def type(self) -> DataType:
        """The type of the field."""
        found: DataType = self._type
        return found

    @property
    def nullable(self) -> bool:
        """Whether there may be nulls."""
        return self._nullable

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the field."""
        return {
            name: canonical_json(value) if isinstance(value, (dict, list)) else value
            for name, value in self._metadata.items()
        }

    def to_delta(self) -> delta.StructField:
        """The field as deltalog has it."""
        return delta.StructField(self._name, self._type._delta(), self._nullable, dict(self._metadata))

    def to_json(self) -> str:
        """The field as JSON, in the form that it has in the JSON of a schema."""
        fields = json.loads(delta.StructType((self.to_delta(),)).to_json())["fields"]
        return canonical_json(fields[0])

    @staticmethod
    @translating
    def from_json(field_json: str) -> Field:
        """The field from JSON."""
        return Schema.from_json(f'{{"type":"struct","fields":[{field_json}]}}').fields[0]

    @translating
    def to_arrow(self) -> Any:
        """The Arrow field, without the metadata."""
        return given_field(self._arrow())

    def _arrow(self) -> pa.Field:
        return pa.field(self._name, self._type._arrow(), self._nullable, _arrow_metadata(self._metadata))

    @staticmethod
    @translating
    def from_arrow(field: Any) -> Field:
        """The field for an Arrow field."""
        return _fields_of_arrow(pa.schema([taken_field(field)]))[0]

    def __arrow_c_schema__(self) -> object:
        """The Arrow C schema interface."""
        return self._arrow().__arrow_c_schema__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Field) and self.to_delta() == other.to_delta()

    def __hash__(self) -> int:
        return hash(self._name)

    @safe_repr
    def __repr__(self) -> str:
        metadata = f", metadata={self.metadata!r}" if self._metadata else ""
        return f"Field({self._name}, {self._type!r}, nullable={self._nullable}{metadata})"


class StructType(_Type):
    """A struct type: a list of fields."""

    type: ClassVar[str] = "struct"  # type: ignore[misc]

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = list(fields)

    @property
    def fields(self) -> list[Field]:
        """The fields."""
        return list(self._fields)

    def _delta(self) -> delta.StructType:
        return delta.StructType(tuple(field.to_delta() for field in self._fields))

    def _arrow(self) -> pa.DataType:
        return pa.struct([field._arrow() for field in self._fields])

    def to_json(self) -> str:
        """The type, as it is written in the JSON of a schema."""
        return self._delta().to_json()

    @classmethod
    def from_json(cls, type_json: str) -> StructType:
        """The type from JSON."""
        found: StructType = cls._made(_type_of_json(type_json))
        return found

    @classmethod
    def from_arrow(cls, data_type: Any) -> StructType:
        """The type for an Arrow type."""
        found: StructType = cls._made(_type_of_arrow(data_type))
        return found

    @safe_repr
    def __repr__(self) -> str:
        return f"StructType([{', '.join(map(repr, self._fields))}])"


class Schema(StructType):
    """The columns of a table."""

    @property
    def invariants(self) -> list[tuple[str, str]]:
        """The column invariants: pairs of a column and its SQL."""
        found = []
        for path, column in delta.columns_by_path(self._delta()):
            text = column.metadata.get(INVARIANT_KEY)
            if text is not None:
                found.append((".".join(path), str(json.loads(text)["expression"]["expression"])))
        return found

    def json(self) -> dict[str, Any]:
        """The schema as a JSON object."""
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    @classmethod
    def from_json(cls, schema_json: str) -> Schema:
        """The schema from JSON."""
        struct = _type_of_json(schema_json)
        if not isinstance(struct, StructType):
            raise TypeError(f"A schema is a struct, not {struct!r}.")
        return cls(struct.fields)

    @translating
    def to_arrow(self, as_large_types: bool = False) -> Any:
        """The Arrow schema. ``as_large_types``: whether text, bytes and lists have 64-bit offsets."""
        return given_schema(with_large_types(self._arrow_schema()) if as_large_types else self._arrow_schema())

    def _arrow_schema(self) -> pa.Schema:
        return pa.schema([field._arrow() for field in self._fields])

    @classmethod
    @translating
    def from_arrow(cls, data_type: Any) -> Schema:
        """The deltalake schema that corresponds to an Arrow schema."""
        return cls(_fields_of_arrow(taken_schema(data_type)))

    def __arrow_c_schema__(self) -> object:
        """The Arrow C schema interface."""
        return self._arrow_schema().__arrow_c_schema__()

    @safe_repr
    def __repr__(self) -> str:
        return f"Schema([{', '.join(map(repr, self._fields))}])"


DataType: TypeAlias = PrimitiveType | MapType | StructType | ArrayType | VariantType


def of_delta(schema: delta.StructType) -> Schema:
    """A table's columns as a Schema."""
    return Schema([_field(column) for column in schema])


def _field(column: delta.StructField) -> Field:
    return Field(column.name, _of_delta(column.data_type), column.nullable, column.metadata)


def _of_delta(data_type: delta.DataType) -> Any:
    if isinstance(data_type, delta.StructType):
        return StructType([_field(column) for column in data_type])
    if isinstance(data_type, delta.ArrayType):
        return ArrayType(_of_delta(data_type.element_type), data_type.contains_null)
    if isinstance(data_type, delta.MapType):
        key, value = _of_delta(data_type.key_type), _of_delta(data_type.value_type)
        return MapType(key, value, data_type.value_contains_null)
    if data_type == delta.VARIANT:
        return VariantType()
    return PrimitiveType(str(data_type))


def _taken(given: Any) -> Any:
    if isinstance(given, str):
        return VariantType() if given == "variant" else PrimitiveType(given)
    if not isinstance(given, _Type):
        raise ValueError(f"{given!r} is not a type. Types are PrimitiveType, ArrayType, MapType, StructType.")
    return given


def _json_of(data_type: delta.DataType) -> str:
    column = delta.StructType((delta.StructField("c", data_type),))
    return json.dumps(json.loads(column.to_json())["fields"][0]["type"])


@translating
def _type_of_json(text: str) -> Any:
    wrapped = f'{{"type":"struct","fields":[{{"name":"c","type":{text},"nullable":true,"metadata":{{}}}}]}}'
    try:
        return _of_delta(delta.StructType.from_json(wrapped).fields[0].data_type)
    except CorruptTableError as error:
        raise ValueError(error.message) from None


@translating
def _type_of_arrow(given: Any) -> Any:
    return _fields_of_arrow(pa.schema([taken_field(given).with_name("c")]))[0].type


def _fields_of_arrow(schema: pa.Schema) -> list[Field]:
    columns = delta.StructType.from_arrow(schema)
    return [
        Field(column.name, _of_delta(column.data_type), column.nullable, _delta_metadata(field.metadata))
        for column, field in zip(columns, schema, strict=True)
    ]


def _arrow_metadata(metadata: Mapping[str, Any]) -> dict[str, str] | None:
    if not metadata:
        return None
    return {name: value if isinstance(value, str) else canonical_json(value) for name, value in metadata.items()}


def _delta_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    found = {name.decode(): value.decode() for name, value in (metadata or {}).items()}
    return {name: value for name, value in found.items() if not name.startswith(("PARQUET:", "ARROW:"))}
