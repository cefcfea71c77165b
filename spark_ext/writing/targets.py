"""The table of a write: by path or by name in the session's catalog, existing or to be created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import SparkSession

import deltalog
from spark_ext.session import names, paths, spark_names
from spark_ext.session.paths import Location
from spark_ext.types import to_spark


class NameNotRegisteredError(deltalog.DeltaLogError):
    """The table was created with its rows at ``url``, but its ``name`` could not be registered in the catalog. Do not
    repeat the write, because that would write the rows twice; call ``TransactionManager.register_table(name, url)``.
    The ``__cause__`` is the error of the registration."""

    code = "NAME_NOT_REGISTERED"
    outcome = deltalog.errors.Outcome.PARTLY_COMMITTED
    name: str
    url: str


@dataclass(frozen=True)
class NewTable:
    """The definition of a new table."""

    schema: deltalog.schema.StructType
    partition_by: Sequence[str]
    cluster_by: Sequence[str]
    properties: Mapping[str, str]

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``create_transaction``, except the schema."""
        return {"partition_by": self.partition_by, "cluster_by": self.cluster_by, "properties": self.properties}


class Target(Protocol):
    """A table that exists or can be created. ``storage``: the caller's options for the table's store."""

    @property
    def url(self) -> str:
        """Where the table is created."""

    def existing(self, spark: SparkSession, storage: Mapping[str, Any]) -> deltalog.DeltaTable | None:
        """The table; None if it does not exist yet."""

    def create(self, spark: SparkSession, storage: Mapping[str, Any], new: NewTable) -> deltalog.Transaction:
        """Begin a transaction that creates the table."""

    def created(self, spark: SparkSession, storage: Mapping[str, Any]) -> None:
        """Called after the transaction that creates the table has committed."""


class PathTarget:
    """A table given by path, by its address in a Unity Catalog, an existing table given by its address in another
    catalog, or an open table."""

    def __init__(self, location: Location) -> None:
        self._location = location

    @property
    def url(self) -> str:
        """The path or the address."""
        return paths.url_of(self._location)

    def existing(self, spark: SparkSession, storage: Mapping[str, Any]) -> deltalog.DeltaTable | None:
        """The table; None if no table exists at the path, or in the Unity Catalog. Raises TableNotFoundError for an
        address in another catalog."""
        try:
            return paths.open_table(spark, self._location, storage=storage)
        except deltalog.TableNotFoundError:
            if paths.is_address(self.url) and not paths.is_unity_address(self.url):
                raise
            return None

    def create(self, spark: SparkSession, storage: Mapping[str, Any], new: NewTable) -> deltalog.Transaction:
        """A transaction that creates the table at the path, or where the Unity Catalog puts it."""
        options = paths.storage_of(spark, self.url, storage)
        return deltalog.DeltaTable.create_transaction(self.url, new.schema, **new.options, **options)

    def created(self, spark: SparkSession, storage: Mapping[str, Any]) -> None:
        """Do nothing."""


class NamedTarget:
    """A table given by its name in a catalog. If the write creates the table, the table is created at ``url`` and
    managed by the catalog."""

    def __init__(self, catalog: str, name: str, url: str) -> None:
        self._catalog, self._name, self._url = catalog, name, url

    @property
    def url(self) -> str:
        """Where the table is created."""
        return self._url

    def existing(self, spark: SparkSession, storage: Mapping[str, Any]) -> deltalog.DeltaTable | None:
        """The table; None if the name is not in the catalog."""
        try:
            return paths.open_table(spark, f"catalog:{self._catalog}#{self._name}", storage=storage)
        except deltalog.TableNotFoundError:
            return None

    def create(self, spark: SparkSession, storage: Mapping[str, Any], new: NewTable) -> deltalog.Transaction:
        """A transaction that creates the table at ``url``, managed by the catalog."""
        manager = deltalog.TransactionManager(self._catalog, **paths.storage_of(spark, self.url, storage))
        return manager.create_transaction(self._name, self.url, new.schema, **new.options)

    def created(self, spark: SparkSession, storage: Mapping[str, Any]) -> None:
        """Register the table in the catalog. Raises NameNotRegisteredError, also if another process has taken the name
        in the meantime."""
        manager = deltalog.TransactionManager(self._catalog, **paths.storage_of(spark, self.url, storage))
        try:
            manager.register_table(self._name, self.url)
        except deltalog.DeltaLogError as error:
            message = (
                f"The table at {self.url} was created with its rows, but its name {self._name} could not be registered "
                f"in the catalog {self._catalog}: {error.message} Do not write the rows again; call "
                f"deltalog.TransactionManager({self._catalog!r}).register_table({self._name!r}, {self.url!r}), with "
                "another name if this one is taken."
            )
            raise NameNotRegisteredError(message, name=self._name, url=self.url) from error


class SparkTarget:
    """A table given by its name in Spark's own catalog. The name is registered before the table is created, since Spark
    chooses the location; a name that was left without a table is reused."""

    def __init__(self, spark: SparkSession, name: str, location: str | None) -> None:
        self._spark, self._name, self._location = spark, name, location

    @property
    def url(self) -> str:
        """Where the table is created."""
        found = spark_names.location_of(self._spark, self._name, past_views=True)
        return found or self._location or names.location_of(self._spark, self._name)

    def existing(self, spark: SparkSession, storage: Mapping[str, Any]) -> deltalog.DeltaTable | None:
        """The table; None if Spark's catalog has no table with this name, or if the table is not created yet."""
        location = spark_names.location_of(spark, self._name, past_views=True)
        if location is None:
            return None
        try:
            return paths.open_table(spark, location, storage=storage)
        except deltalog.TableNotFoundError:
            return None

    def create(self, spark: SparkSession, storage: Mapping[str, Any], new: NewTable) -> deltalog.Transaction:
        """A transaction that creates the table. Raises Spark's errors for a name that it refuses."""
        found = spark_names.location_of(spark, self._name)
        if found is None:
            spark_names.add(spark, self._name, self._location, to_spark(new.schema))
        location = self.url
        try:
            options = paths.storage_of(spark, location, storage)
            return deltalog.DeltaTable.create_transaction(location, new.schema, **new.options, **options)
        except deltalog.DeltaLogError:
            if found is None:
                spark_names.drop(spark, self._name)
            raise

    def created(self, spark: SparkSession, storage: Mapping[str, Any]) -> None:
        """Do nothing."""


def named(spark: SparkSession, name: str, location: str | None) -> Target:
    """The table ``name`` in the session's catalog. ``location``: where the table is created. Raises CallError."""
    catalog = names.catalog_of(spark)
    if catalog == names.SPARK:
        return SparkTarget(spark, name, location)
    if names.is_unity(catalog):
        if location is not None:
            raise deltalog.CallError(
                f"{name}: the catalog {catalog} chooses the locations of its tables. Leave the location out."
            )
        return PathTarget(names.prefix_of(catalog) + names.full_name(name))
    return NamedTarget(catalog, names.full_name(name), location or names.location_of(spark, name))
