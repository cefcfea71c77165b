"""The Delta kernel (Java) with its own Unity Catalog module: tables are created, written, published and read by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.protocol.schema import StructType
from tests.support.unity_clients.jvm import Jvm

_ENGINE_INFO = "kernel of the tests"
# For each type of the kernel: the class of its values, and the method of a row that returns one.
_TYPES = {
    "LongType": ("Long", "getLong"),
    "IntegerType": ("Integer", "getInt"),
    "StringType": ("String", "getString"),
    "DoubleType": ("Double", "getDouble"),
    "BooleanType": ("Boolean", "getBoolean"),
    "DateType": ("Integer", "getInt"),
    "TimestampType": ("Long", "getLong"),
}
Row = dict[str, Any]


@dataclass(frozen=True)
class KernelTable:
    """What the kernel has to be told about a table."""

    catalog: str
    schema: str
    name: str
    table_id: str
    location: str


class Kernel:
    """A kernel, with its own client of the server at ``url``. ``hadoop``: settings of its file systems. The storage
    properties of the table that was created or found last, with its credentials, are added to them."""

    def __init__(self, jvm: Jvm, url: str, token: str = "any", hadoop: Mapping[str, str] | None = None) -> None:
        self.jvm = jvm
        self._hadoop = dict(hadoop or {})
        classes = jvm.classes
        self.coordinator = classes.io.delta.storage.commit.uccommitcoordinator
        settings = {
            "uri": url,
            "auth.type": "static",
            "auth.token": token,
            "appVersions.Kernel": "4.4.0",
        }
        self.client = self.coordinator.UCDeltaTokenBasedRestClient(jvm.map(settings), None)
        self._kernel = classes.io.delta.kernel
        self._catalog = self._kernel.unitycatalog.UCCatalogManagedClient(self.client)
        self.use({})

    def close(self) -> None:
        self.client.close()

    def use(self, properties: Mapping[str, str]) -> None:
        """Use storage properties from now on."""
        conf = self.jvm.classes.org.apache.hadoop.conf.Configuration()
        for name, value in {**self._hadoop, **properties}.items():
            conf.set(name, value)
        self.engine = self._kernel.defaults.engine.DefaultEngine.create(conf)

    def metastore(self) -> str:
        with self.jvm.errors():
            return str(self.client.getMetastoreId())

    # ---------------------------------------------------------------------------------------------- creation

    def stage(self, catalog: str, schema: str, name: str) -> Any:
        """A new staging table, as the kernel's client shows it."""
        with self.jvm.errors():
            return self.client.createStagingTable(self._identifier(catalog, schema, name))

    def create(
        self,
        name: str,
        schema: StructType | pa.Schema,
        *,
        properties: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        cluster_by: Sequence[str] = (),
        follows: bool = True,
        max_retries: int = 0,
        staged: Any = None,
    ) -> KernelTable:
        """Create a table with the kernel in three steps: staging table, version 0, createTable. ``follows``: set the
        features and properties that the server requires, as connectors do; if False, the table has only what the kernel
        itself sets. ``staged``: a staging table of the same name that was made before."""
        catalog, namespace, table = name.split(".")
        made = staged if staged is not None else self.stage(catalog, namespace, table)
        found = KernelTable(catalog, namespace, table, made.getTableId().toString(), made.getLocation())
        self.use(dict(made.getStorageProperties()))
        kernel = self._kernel
        with self.jvm.errors():
            builder = self._catalog.buildCreateTableTransaction(
                found.table_id, found.location, self.schema(schema), _ENGINE_INFO, self._name(found)
            )
            wanted = {**(_required(made) if follows else {}), **(properties or {})}
            if wanted:
                builder = builder.withTableProperties(self.jvm.map(wanted))
            layout = kernel.transaction.DataLayoutSpec
            if partition_by:
                builder = builder.withDataLayoutSpec(layout.partitioned(self._columns(partition_by)))
            if cluster_by:
                builder = builder.withDataLayoutSpec(layout.clustered(self._columns(cluster_by)))
            transaction = builder.withMaxRetries(max_retries).build(self.engine)
            transaction.commit(self.engine, kernel.utils.CloseableIterable.emptyIterable())
        return found

    def schema(self, schema: StructType | pa.Schema) -> Any:
        if isinstance(schema, pa.Schema):
            schema = StructType.from_arrow(schema)
        return self._kernel.internal.types.DataTypeJsonSerDe.deserializeStructType(schema.to_json())

    def find(self, name: str) -> KernelTable:
        """A table by its name, as the kernel's client loads it."""
        catalog, namespace, table = name.split(".")
        with self.jvm.errors():
            info = self.client.loadTable(self._identifier(catalog, namespace, table))
            self.use(dict(info.getStorageProperties()))
        return KernelTable(catalog, namespace, table, info.getTableId().toString(), info.getLocation())

    # --------------------------------------------------------------------------------------------- snapshots

    def load(self, table: KernelTable, version: int | None = None, timestamp_ms: int | None = None) -> KernelSnapshot:
        optional = self.jvm.optional_long
        with self.jvm.errors():
            found = self._catalog.loadSnapshot(
                self.engine,
                table.table_id,
                table.location,
                self._name(table),
                optional(version),
                optional(timestamp_ms),
            )
        return KernelSnapshot(self, found)

    def append(self, table: KernelTable, rows: Sequence[Row], **options: Any) -> int:
        """Append rows to the newest version; returns the version of the commit."""
        return self.load(table).append(rows, **options)

    def _identifier(self, catalog: str, schema: str, name: str) -> Any:
        namespace = self.jvm.strings([catalog, schema])
        return self.jvm.classes.io.delta.storage.commit.TableIdentifier(namespace, name)

    def _name(self, table: KernelTable) -> Any:
        return self._kernel.unitycatalog.UCTableIdentifier(table.catalog, table.schema, table.name)

    def _columns(self, names: Sequence[str]) -> Any:
        made = self.jvm.classes.java.util.ArrayList()
        for name in names:
            made.add(self._kernel.expressions.Column(name))
        return made


def _required(staged: Any) -> dict[str, str]:
    """The properties by which a connector sets what the server requires."""
    wanted = {}
    protocol = staged.getRequiredProtocol()
    for features in (protocol.getReaderFeatures(), protocol.getWriterFeatures()):
        wanted.update({f"delta.feature.{feature}": "supported" for feature in features or ()})
    if "delta.feature.inCommitTimestamp" in wanted:
        wanted["delta.enableInCommitTimestamps"] = "true"
    return {**wanted, **dict(staged.getRequiredProperties() or {})}


class KernelSnapshot:
    """A snapshot of the kernel."""

    def __init__(self, kernel: Kernel, found: Any) -> None:
        self._by, self._found, self._jvm = kernel, found, kernel.jvm

    @property
    def version(self) -> int:
        return int(self._found.getVersion())

    @property
    def timestamp_ms(self) -> int:
        with self._jvm.errors():
            return int(self._found.getTimestamp(self._by.engine))

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._found.getTableProperties())

    @property
    def column_names(self) -> list[str]:
        return list(self._found.getSchema().fieldNames())

    @property
    def partition_columns(self) -> list[str]:
        return list(self._found.getPartitionColumnNames())

    @property
    def features(self) -> set[str]:
        protocol = self._found.getProtocol()
        return {*protocol.getReaderFeatures(), *protocol.getWriterFeatures()}

    def publish(self) -> KernelSnapshot:
        """Copy the unpublished commits of this snapshot into the log."""
        with self._jvm.errors():
            return KernelSnapshot(self._by, self._found.publish(self._by.engine))

    # -------------------------------------------------------------------------------------------------- rows

    def rows(self) -> list[Row]:
        """The rows, as the kernel's default engine reads them; deletion vectors are applied by the kernel."""
        kernel = self._jvm.classes.io.delta.kernel
        engine = self._by.engine
        found: list[Row] = []
        with self._jvm.errors():
            scan = self._found.getScanBuilder().build()
            state = scan.getScanState(engine)
            physical = kernel.internal.data.ScanStateRow.getPhysicalDataReadSchema(state)
            for batch in _each(scan.getScanFiles(engine)):
                for file in _each(batch.getRows()):
                    found.extend(self._rows_of(kernel, state, physical, file))
        return found

    def _rows_of(self, kernel: Any, state: Any, physical: Any, file: Any) -> list[Row]:
        engine = self._by.engine
        utils = kernel.internal.util.Utils
        status = kernel.internal.InternalScanFileUtils.getAddFileStatus(file)
        read = engine.getParquetHandler().readParquetFiles(
            utils.singletonCloseableIterator(status), physical, self._jvm.optional(None)
        )
        data = self._jvm.classes.java.util.ArrayList()
        for each in _each(read):
            data.add(each.getData())
        found = []
        logical = kernel.Scan.transformPhysicalData(engine, state, file, utils.toCloseableIterator(data.iterator()))
        for batch in _each(logical):
            columns = None
            for row in _each(batch.getRows()):
                if columns is None:
                    columns = _columns(row)
                found.append({name: _value(row, index, kind) for index, (name, kind) in enumerate(columns)})
        return found

    # ----------------------------------------------------------------------------------------------- commits

    def append(
        self,
        rows: Sequence[Row],
        *,
        partition: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        application: tuple[str, int] | None = None,
        max_retries: int | None = None,
    ) -> int:
        """Commit rows, which the kernel writes to a Parquet file, and properties on top of this snapshot; returns the
        version of the commit. ``partition``: the values of the partition columns, which must be strings.
        ``application``: the ``appId`` and the version of the commit's ``txn`` action."""
        kernel = self._jvm.classes.io.delta.kernel
        engine = self._by.engine
        with self._jvm.errors():
            operation = kernel.Operation.WRITE if rows else kernel.Operation.MANUAL_UPDATE
            builder = self._found.buildUpdateTableTransaction(_ENGINE_INFO, operation)
            if properties:
                builder = builder.withTablePropertiesAdded(self._jvm.map(properties))
            if application is not None:
                builder = builder.withTransactionId(*application)
            if max_retries is not None:
                builder = builder.withMaxRetries(max_retries)
            transaction = builder.build(engine)
            actions = self._written(kernel, transaction, rows, partition or {}) if rows else None
            iterable = kernel.utils.CloseableIterable
            if actions is None:
                done = transaction.commit(engine, iterable.emptyIterable())
            else:
                done = transaction.commit(engine, iterable.inMemoryIterable(actions))
            return int(done.getVersion())

    def set_properties(self, properties: Mapping[str, str], **options: Any) -> int:
        return self.append((), properties=properties, **options)

    def add_column(self, name: str, kind: str = "long") -> int:
        """Add a nullable column of a primitive type to a table with column mapping."""
        import json

        kernel = self._jvm.classes.io.delta.kernel
        serde = kernel.internal.types.DataTypeJsonSerDe
        with self._jvm.errors():
            schema = json.loads(serde.serializeStructType(self._found.getSchema()))
            schema["fields"].append({"name": name, "type": kind, "nullable": True, "metadata": {}})
            builder = self._found.buildUpdateTableTransaction(_ENGINE_INFO, kernel.Operation.MANUAL_UPDATE)
            builder = builder.withUpdatedSchema(serde.deserializeStructType(json.dumps(schema)))
            done = builder.build(self._by.engine).commit(
                self._by.engine, kernel.utils.CloseableIterable.emptyIterable()
            )
            return int(done.getVersion())

    def cluster_by(self, names: Sequence[str]) -> int:
        kernel = self._jvm.classes.io.delta.kernel
        with self._jvm.errors():
            builder = self._found.buildUpdateTableTransaction(_ENGINE_INFO, kernel.Operation.MANUAL_UPDATE)
            builder = builder.withClusteringColumns(self._by._columns(names))
            done = builder.build(self._by.engine).commit(
                self._by.engine, kernel.utils.CloseableIterable.emptyIterable()
            )
            return int(done.getVersion())

    def _written(self, kernel: Any, transaction: Any, rows: Sequence[Row], partition: Mapping[str, str]) -> Any:
        engine = self._by.engine
        utils, data = kernel.internal.util.Utils, kernel.defaults.internal.data
        state = transaction.getTransactionState(engine)
        schema = self._found.getSchema()
        vectors = self._jvm.array_of(kernel.data.ColumnVector, self._vectors(data, schema, rows, partition))
        batch = data.DefaultColumnarBatch(len(rows), schema, vectors)
        batches = self._jvm.classes.java.util.ArrayList()
        batches.add(kernel.data.FilteredColumnarBatch(batch, self._jvm.optional(None)))
        values = self._jvm.classes.java.util.HashMap()
        for name, value in partition.items():
            values.put(name, kernel.expressions.Literal.ofString(value))
        context = kernel.Transaction.getWriteContext(engine, state, values)
        logical = utils.toCloseableIterator(batches.iterator())
        physical = kernel.Transaction.transformLogicalData(engine, state, logical, values)
        files = engine.getParquetHandler().writeParquetFiles(
            context.getTargetDirectory(), physical, context.getStatisticsColumns()
        )
        return kernel.Transaction.generateAppendActions(engine, state, files, context)

    def _vectors(self, data: Any, schema: Any, rows: Sequence[Row], partition: Mapping[str, str]) -> list[Any]:
        made = []
        for field in schema.fields():
            kind, name = field.getDataType(), field.getName()
            values = [partition.get(name, row.get(name)) for row in rows]
            objects = self._jvm.objects(_TYPES[kind.getClass().getSimpleName()][0], values)
            made.append(data.vector.DefaultGenericVector.fromList(kind, objects))
        return made


def _each(iterator: Any) -> Any:
    """The elements of a CloseableIterator."""
    try:
        while iterator.hasNext():
            yield iterator.next()
    finally:
        iterator.close()


def _columns(row: Any) -> list[tuple[str, str]]:
    return [(field.getName(), field.getDataType().getClass().getSimpleName()) for field in row.getSchema().fields()]


def _value(row: Any, index: int, kind: str) -> Any:
    return None if row.isNullAt(index) else getattr(row, _TYPES[kind][1])(index)
