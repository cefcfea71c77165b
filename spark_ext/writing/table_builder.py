"""``DeltaTableBuilder``: creates or replaces a table, with the names and signatures of delta-spark's class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

import deltalog
from spark_ext import arguments
from spark_ext.errors import ArgumentTypeError, ColumnKindError, ExistsError, MissingTableError, explained
from spark_ext.session import paths, stores
from spark_ext.session.defaults import SessionDefaults
from spark_ext.types import SIZED, from_spark
from spark_ext.writing.targets import NewTable, PathTarget, Target, named
from spark_ext.writing.write_options import column_names, parameter_text
from spark_ext.writing.write_plan import replace_properties, set_layout

T = TypeVar("T")
Kind = Literal["CREATE TABLE", "CREATE TABLE IF NOT EXISTS", "REPLACE TABLE", "CREATE OR REPLACE TABLE"]


@dataclass
class IdentityGenerator:
    """The definition of an identity column, with the interface of delta-spark's class of the same name."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder(Generic[T]):
    """Collects the columns and properties of a table; ``execute`` creates or replaces it. Methods return the
    builder."""

    def __init__(self, spark: SparkSession, kind: Kind, opened: Callable[[deltalog.DeltaTable], T]) -> None:
        """Called by ``DeltaTable.create`` and similar methods, not by users."""
        self._spark, self._kind, self._opened = spark, kind, opened
        self._name: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._fields: list[deltalog.schema.StructField] = []
        self._partition_columns: tuple[str, ...] = ()
        self._clustering_columns: tuple[str, ...] = ()
        self._properties: dict[str, str] = {}
        self._storage: Mapping[str, Any] = {}

    @property
    def _jbuilder(self) -> DeltaTableBuilder[T]:
        """The builder itself. In delta-spark, this is the builder of the JVM. Some programs call the methods of
        ``_jbuilder`` and assign their results to it."""
        return self

    @_jbuilder.setter
    def _jbuilder(self, builder: DeltaTableBuilder[T]) -> None:
        if builder is not self:
            raise deltalog.CallError("_jbuilder can only be set to the builder itself.")

    def tableName(self, identifier: str) -> DeltaTableBuilder[T]:
        """The name of the table in the session's catalog (``spark_ext.use_catalog``)."""
        self._name = arguments.text("The identifier of tableName", identifier)
        return self

    def location(self, location: str) -> DeltaTableBuilder[T]:
        """The location of the table."""
        self._location = arguments.text("The location of a table", location)
        return self

    def storage_options(self, **options: Any) -> DeltaTableBuilder[T]:
        """Set the options of the store, as for ``Reader.storage_options``. Raises CallError."""
        self._storage = {**self._storage, **stores.checked(options)}
        return self

    def comment(self, comment: str) -> DeltaTableBuilder[T]:
        """The description of the table."""
        self._comment = arguments.text("The comment of a table", comment)
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | spark_types.DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder[T]:
        """Add a column. ``dataType``: a Spark type, or its SQL. ``generatedAlwaysAs``: a SQL expression that uses other
        columns. Raises UnsupportedFeatureError for identity columns, CallError."""
        name = arguments.text("The name of a column", colName)
        data_type = type_of(self._spark, dataType)
        arguments.flag(f"nullable of column {name}", nullable)
        metadata = {} if comment is None else {"comment": arguments.text(f"The comment of column {name}", comment)}
        self._check_generated(name, data_type, generatedAlwaysAs, generatedByDefaultAs)
        if generatedAlwaysAs is not None:
            metadata["delta.generationExpression"] = str(generatedAlwaysAs)
        return self.addColumns([spark_types.StructField(name, data_type, nullable, metadata)])

    def _check_generated(self, name: str, data_type: spark_types.DataType, always: Any, by_default: Any) -> None:
        if always is not None and by_default is not None:
            raise deltalog.CallError(
                f"Column {name} has generatedAlwaysAs and generatedByDefaultAs, which exclude each other. Set one."
            )
        if by_default is not None and not isinstance(by_default, IdentityGenerator):
            raise ArgumentTypeError(
                f"generatedByDefaultAs of column {name} must be an IdentityGenerator, not {by_default!r}."
            )
        identity = always if by_default is None else by_default
        if identity is None or isinstance(identity, str):
            return
        if not isinstance(identity, IdentityGenerator):
            raise ArgumentTypeError(
                f"generatedAlwaysAs of column {name} must be SQL text or an IdentityGenerator, not {identity!r}."
            )
        if identity.step == 0:
            raise deltalog.CallError(f"The step of identity column {name} is 0, so all values would be the same.")
        wrong = "" if isinstance(data_type, spark_types.LongType) else f" (and of type {data_type.simpleString()})"
        raise ColumnKindError(
            f"Column {name} is an identity column{wrong}, whose values spark_ext does not generate. Create the table "
            "with deltalog.DeltaTable.create and deltalog.schema.identity_column, use generatedAlwaysAs with SQL, or "
            "write the values yourself.",
            features=("identityColumns",),
        )

    def addColumns(self, cols: spark_types.StructType | Sequence[spark_types.StructField]) -> DeltaTableBuilder[T]:
        """Add all columns of a Spark schema. Raises CallError, SchemaMismatchError."""
        fields: list[Any] = [cols]
        if isinstance(cols, (list, tuple, spark_types.StructType)):
            fields = list(cols.fields if isinstance(cols, spark_types.StructType) else cols)
        if not all(isinstance(field, spark_types.StructField) for field in fields):
            raise ArgumentTypeError("addColumns takes a Spark StructType, or a list of StructFields.")
        self._fields += from_spark(spark_types.StructType(fields)).fields
        return self

    def partitionedBy(self, *cols: Any) -> DeltaTableBuilder[T]:
        """The names of the partition columns."""
        self._partition_columns = column_names("partitionedBy", cols)
        return self

    def clusterBy(self, *cols: Any) -> DeltaTableBuilder[T]:
        """The names of the clustering columns, which determine how ``OPTIMIZE`` orders rows. Raises CallError."""
        self._clustering_columns = column_names("clusterBy", cols)
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder[T]:
        """Set a table property."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentTypeError(f"Keys and values of properties must be strings, not {key!r} and {value!r}.")
        self._properties[key] = value
        return self

    def execute(self) -> T:
        """Create or replace the table in one commit, and return the table.

        Raises CallError, TableExistsError, TableNotFoundError, SchemaMismatchError, InvalidPropertyError. Cost: as
        ``DeltaTable.create``; to replace a table, as ``Transaction.remove_all_files``.
        """
        target = self._target()
        table = target.existing(self._spark, self._storage)
        properties = {**SessionDefaults.of(self._spark).properties, **self._properties}
        if table is None:
            if self._kind == "REPLACE TABLE":
                raise MissingTableError(
                    f"The table{self._called()} cannot be found at {target.url}, so it cannot be replaced. Create it "
                    "first."
                )
            self._create(target, properties)
            table = target.existing(self._spark, self._storage)
            assert table is not None
        elif self._kind == "CREATE TABLE":
            raise ExistsError(
                f"A table{self._called()} already exists at {table.url}. Use createIfNotExists or replace."
            )
        elif self._kind != "CREATE TABLE IF NOT EXISTS":
            self._replace(table, properties)
        return self._opened(table)

    def _called(self) -> str:
        """The table's name, for messages."""
        return "" if self._name is None else f" {self._name}"

    def _target(self) -> Target:
        if self._name is None:
            if self._location is None:
                raise deltalog.CallError("The table needs a name or a location: call tableName(…) or location(…).")
            return PathTarget(self._location)
        return named(self._spark, self._name, self._location)

    def _schema(self) -> deltalog.schema.StructType:
        if not self._fields:
            raise deltalog.CallError("The table has no columns. Add them with addColumn(…) or addColumns(…).")
        return deltalog.schema.StructType(tuple(self._fields))

    def _create(self, target: Target, properties: Mapping[str, str]) -> None:
        if not paths.is_unity_address(target.url):
            paths.checked_root(target.url, self._storage)
        new = NewTable(self._schema(), self._partition_columns, self._clustering_columns, properties)
        with target.create(self._spark, self._storage, new) as transaction:
            if self._comment is not None:
                transaction.set_metadata(description=self._comment)
            transaction.commit("CREATE TABLE", self._parameters(properties))
        target.created(self._spark, self._storage)

    def _replace(self, table: deltalog.DeltaTable, properties: Mapping[str, str]) -> None:
        schema = self._schema()
        with table.transaction() as transaction:
            set_layout(transaction, schema, self._partition_columns, self._clustering_columns)
            replace_properties(transaction, properties)
            if self._comment is not None:
                transaction.set_metadata(description=self._comment)
            transaction.remove_all_files()
            transaction.commit(self._kind, self._parameters(properties))

    def _parameters(self, properties: Mapping[str, str]) -> dict[str, Any]:
        clustered = {"clusterBy": parameter_text(self._clustering_columns)} if self._clustering_columns else {}
        return {
            "partitionBy": parameter_text(self._partition_columns),
            **clustered,
            "properties": parameter_text(dict(properties)),
            "isManaged": "false",
            "description": self._comment,
        }


def type_of(spark: SparkSession, data_type: str | spark_types.DataType) -> spark_types.DataType:
    """A Spark type from its SQL. Raises CallError for text that is not a type."""
    if isinstance(data_type, spark_types.DataType):
        return data_type
    if not isinstance(data_type, str):
        raise ArgumentTypeError(
            f"The type of a column must be a Spark DataType or SQL text such as 'int', not {data_type!r}."
        )
    sized = SIZED.fullmatch(data_type.replace(" ", "").lower())
    if sized is not None:
        return {"char": spark_types.CharType, "varchar": spark_types.VarcharType}[sized[1]](int(sized[2]))
    with explained(f"{data_type!r} is not a column type"):
        return spark.sql(f"SELECT CAST(NULL AS {data_type}) AS c").schema[0].dataType
