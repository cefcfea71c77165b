"""The data files that a write adds to a table: their columns, and the transaction that commits them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import deltalog
from spark_ext.writing import physical_columns


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The data files that one job adds to a transaction."""

    transaction: deltalog.Transaction
    #: The columns of the table after the transaction.
    schema: deltalog.schema.StructType
    partition_columns: list[str]
    #: Additional columns after the table's columns in the files, such as ``_change_type``.
    extra_columns: tuple[deltalog.schema.StructField, ...] = ()
    #: Whether the files are change data files.
    as_changes: bool = False

    @classmethod
    def in_transaction(
        cls, transaction: deltalog.Transaction, extra_columns: tuple[deltalog.schema.StructField, ...] = ()
    ) -> NewFiles:
        """The new files of a transaction; the transaction's schema must already be final."""
        partition_columns = list(transaction.metadata.partition_columns)
        return cls(transaction, transaction.schema, partition_columns, extra_columns)

    @property
    def is_mapped(self) -> bool:
        """Whether the table has column mapping, so that its data files contain physical column names and field ids."""
        return physical_columns.is_mapped(self.transaction)

    @property
    def has_variants(self) -> bool:
        """Whether the table has variants, at any depth."""
        return _has_variant(self.schema)

    @property
    def shreds_variants(self) -> bool:
        """Whether the table allows shredded variants: its protocol lists the feature, and its property enables it."""
        features = self.transaction.protocol.reader_features or ()
        enabled = self.transaction.metadata.configuration.get("delta.enableVariantShredding", "")
        return enabled.lower() == "true" and not {"variantShredding", "variantShredding-preview"}.isdisjoint(features)

    @property
    def held_schema(self) -> deltalog.schema.StructType:
        """The columns of the table without those of the type void, which files do not hold, at every depth. Raises
        SchemaMismatchError if files cannot hold the rest."""
        held = _without_void(self.schema)
        if not set(held.names) - set(self.partition_columns):
            raise deltalog.SchemaMismatchError(
                "All columns of the table, except partition columns, have the type void, so that files cannot hold its "
                "rows. Add a column of another type, or give the values types."
            )
        return held

    @property
    def stored_columns(self) -> deltalog.schema.StructType:
        """The columns of the files, under their physical names."""
        fields = [field for field in self.held_schema.fields if field.name not in self.partition_columns]
        held = deltalog.schema.StructType(tuple(fields))
        stored = physical_columns.stored_schema(held) if self.is_mapped else held
        return deltalog.schema.StructType((*stored.fields, *self.extra_columns))

    @property
    def stored_partition_columns(self) -> list[str]:
        """The partition columns under the names that paths and the log use."""
        if self.is_mapped:
            return physical_columns.stored_names(self.schema, self.partition_columns)
        return self.partition_columns


def _without_void(schema: deltalog.schema.StructType) -> deltalog.schema.StructType:
    fields = (f for f in schema.fields if str(f.data_type) != "void")
    return deltalog.schema.StructType(tuple(replace(f, data_type=_held(f.data_type, f.name)) for f in fields))


def _held(data_type: Any, column: str) -> Any:
    if isinstance(data_type, deltalog.schema.StructType):
        held = _without_void(data_type)
        if held.fields or not data_type.fields:
            return held
        data_type = "void"
    if isinstance(data_type, deltalog.schema.ArrayType):
        return replace(data_type, element_type=_held(data_type.element_type, column))
    if isinstance(data_type, deltalog.schema.MapType):
        key, value = _held(data_type.key_type, column), _held(data_type.value_type, column)
        return replace(data_type, key_type=key, value_type=value)
    if str(data_type) == "void":
        raise deltalog.SchemaMismatchError(
            f"Column {column} has an array or a map of void, or a struct whose fields all have the type void, so that "
            "files cannot hold it. Give the values types."
        )
    return data_type


def _has_variant(data_type: Any) -> bool:
    if isinstance(data_type, deltalog.schema.StructType):
        return any(_has_variant(field.data_type) for field in data_type.fields)
    if isinstance(data_type, deltalog.schema.ArrayType):
        return _has_variant(data_type.element_type)
    if isinstance(data_type, deltalog.schema.MapType):
        return _has_variant(data_type.key_type) or _has_variant(data_type.value_type)
    return str(data_type) == "variant"
