package deltalog.conformance.kernel;

import io.delta.kernel.DataWriteContext;
import io.delta.kernel.Transaction;
import io.delta.kernel.data.ArrayValue;
import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.MapValue;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.internal.data.DefaultColumnarBatch;
import io.delta.kernel.defaults.internal.data.vector.DefaultConstantVector;
import io.delta.kernel.defaults.internal.data.vector.DefaultGenericVector;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.expressions.Literal;
import io.delta.kernel.types.ArrayType;
import io.delta.kernel.types.BinaryType;
import io.delta.kernel.types.BooleanType;
import io.delta.kernel.types.ByteType;
import io.delta.kernel.types.DataType;
import io.delta.kernel.types.DateType;
import io.delta.kernel.types.DecimalType;
import io.delta.kernel.types.DoubleType;
import io.delta.kernel.types.FloatType;
import io.delta.kernel.types.IntegerType;
import io.delta.kernel.types.LongType;
import io.delta.kernel.types.MapType;
import io.delta.kernel.types.ShortType;
import io.delta.kernel.types.StringType;
import io.delta.kernel.types.StructField;
import io.delta.kernel.types.StructType;
import io.delta.kernel.types.TimestampNTZType;
import io.delta.kernel.types.TimestampType;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.DataFileStatus;
import io.delta.kernel.utils.FileStatus;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.IntLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.TimestampLogicalTypeAnnotation;
import org.apache.parquet.schema.Type;

/**
 * Writes the rows of a Parquet file for a transaction. The kernel wants whole rows of the table's schema, one
 * partition at a time, and leaves NOT NULL to the connector: this class adds the columns that the rows lack as null,
 * makes numbers narrower where a column is, and refuses null where the schema does.
 */
final class Appending {
    private final Engine engine;
    private final Row state;
    private final StructType schema;
    private final List<String> partitionColumns;

    Appending(Engine engine, Transaction transaction) {
        this.engine = engine;
        this.state = transaction.getTransactionState(engine);
        this.schema = transaction.getSchema(engine);
        this.partitionColumns = transaction.getPartitionColumns(engine);
    }

    /** The actions that add the rows. */
    List<Row> actions(String file) throws IOException {
        List<Row> actions = new ArrayList<>();
        for (Map.Entry<Map<String, Literal>, List<FilteredColumnarBatch>> each :
                byPartition(read(file)).entrySet()) {
            write(each.getKey(), each.getValue(), actions);
        }
        return actions;
    }

    private void write(Map<String, Literal> partition, List<FilteredColumnarBatch> batches, List<Row> actions)
            throws IOException {
        DataWriteContext context = Transaction.getWriteContext(engine, state, partition);
        CloseableIterator<FilteredColumnarBatch> physical =
                Transaction.transformLogicalData(engine, state, Reading.iterator(batches), partition);
        CloseableIterator<DataFileStatus> files = engine.getParquetHandler()
                .writeParquetFiles(context.getTargetDirectory(), physical, context.getStatisticsColumns());
        try (CloseableIterator<Row> made = Transaction.generateAppendActions(engine, state, files, context)) {
            while (made.hasNext()) {
                actions.add(made.next());
            }
        }
    }

    // -------------------- partitions

    private Map<Map<String, Literal>, List<FilteredColumnarBatch>> byPartition(List<ColumnarBatch> batches) {
        Map<Map<String, Literal>, List<FilteredColumnarBatch>> groups = new LinkedHashMap<>();
        Map<List<Object>, Map<String, Literal>> known = new HashMap<>();
        for (ColumnarBatch batch : batches) {
            List<Map<String, Literal>> ofRows = new ArrayList<>();
            for (int row = 0; row < batch.getSize(); row++) {
                List<Object> key = new ArrayList<>();
                Map<String, Literal> values = new LinkedHashMap<>();
                for (String name : partitionColumns) {
                    int index = batch.getSchema().indexOf(name);
                    Object value = value(batch.getColumnVector(index), row);
                    key.add(value instanceof byte[] ? Arrays.toString((byte[]) value) : value);
                    values.put(name, literal(value, batch.getSchema().at(index).getDataType()));
                }
                ofRows.add(known.computeIfAbsent(key, ignored -> values));
            }
            for (Map<String, Literal> group : new LinkedHashSet<>(ofRows)) {
                Selection selection = new Selection(batch.getSize(), row -> ofRows.get(row) == group);
                groups.computeIfAbsent(group, ignored -> new ArrayList<>())
                        .add(new FilteredColumnarBatch(batch, Optional.of(selection)));
            }
        }
        return groups;
    }

    private static Literal literal(Object value, DataType type) {
        if (value == null) {
            return Literal.ofNull(type);
        } else if (type instanceof StringType) {
            return Literal.ofString((String) value);
        } else if (type instanceof LongType) {
            return Literal.ofLong((Long) value);
        } else if (type instanceof IntegerType) {
            return Literal.ofInt((Integer) value);
        } else if (type instanceof ShortType) {
            return Literal.ofShort((Short) value);
        } else if (type instanceof ByteType) {
            return Literal.ofByte((Byte) value);
        } else if (type instanceof BooleanType) {
            return Literal.ofBoolean((Boolean) value);
        } else if (type instanceof DoubleType) {
            return Literal.ofDouble((Double) value);
        } else if (type instanceof FloatType) {
            return Literal.ofFloat((Float) value);
        } else if (type instanceof DateType) {
            return Literal.ofDate((Integer) value);
        } else if (type instanceof TimestampType) {
            return Literal.ofTimestamp((Long) value);
        } else if (type instanceof TimestampNTZType) {
            return Literal.ofTimestampNtz((Long) value);
        } else if (type instanceof BinaryType) {
            return Literal.ofBinary((byte[]) value);
        } else if (type instanceof DecimalType) {
            DecimalType decimal = (DecimalType) type;
            return Literal.ofDecimal((BigDecimal) value, decimal.getPrecision(), decimal.getScale());
        }
        throw new Server.NotSupported("a partition column of type " + type);
    }

    // -------------------- rows

    private List<ColumnarBatch> read(String file) throws IOException {
        Map<String, DataType> there = typesOf(file);
        // Columns that the table does not have go to the kernel too, which refuses them.
        List<StructField> wanted = new ArrayList<>(schema.fields());
        there.forEach((name, type) -> {
            if (schema.indexOf(name) < 0) {
                wanted.add(new StructField(name, type == null ? StringType.STRING : type, true));
            }
        });
        List<StructField> read = new ArrayList<>();
        for (StructField field : wanted) {
            DataType type = there.get(field.getName());
            if (type != null) {
                read.add(new StructField(field.getName(), converts(type, field) ? type : field.getDataType(), true));
            }
        }
        FileStatus status = engine.getFileSystemClient().getFileStatus(file);
        List<ColumnarBatch> batches = new ArrayList<>();
        for (ColumnarBatch data : Reading.data(engine, status, new StructType(read))) {
            ColumnVector[] vectors = new ColumnVector[wanted.size()];
            for (int i = 0; i < vectors.length; i++) {
                StructField field = wanted.get(i);
                int index = data.getSchema().indexOf(field.getName());
                vectors[i] = index < 0
                        ? new DefaultConstantVector(field.getDataType(), data.getSize(), null)
                        : converted(data.getColumnVector(index), field);
                refuseNull(vectors[i], field);
            }
            batches.add(new DefaultColumnarBatch(data.getSize(), new StructType(wanted), vectors));
        }
        return batches;
    }

    /** Refuse a null in the rows of a vector where the schema allows none, also in nested fields. */
    private static void refuseNull(ColumnVector vector, StructField field) {
        refuseNull(vector, field.getDataType(), field.isNullable(), field.getName(), all(vector.getSize()));
    }

    private static void refuseNull(
            ColumnVector vector, DataType type, boolean nullable, String name, Selection there) {
        for (int row = 0; row < vector.getSize(); row++) {
            if (!there.getBoolean(row)) {
                continue;
            }
            if (vector.isNullAt(row)) {
                if (!nullable) {
                    throw new IllegalArgumentException("the column " + name + " must not be null");
                }
            } else if (type instanceof ArrayType) {
                ArrayType array = (ArrayType) type;
                ArrayValue value = vector.getArray(row);
                refuseNull(
                        value.getElements(), array.getElementType(), array.containsNull(), name, all(value.getSize()));
            } else if (type instanceof MapType) {
                MapType map = (MapType) type;
                MapValue value = vector.getMap(row);
                refuseNull(
                        value.getValues(), map.getValueType(), map.isValueContainsNull(), name, all(value.getSize()));
            }
        }
        if (type instanceof StructType) {
            List<StructField> fields = ((StructType) type).fields();
            Selection inside = new Selection(vector.getSize(), row -> there.getBoolean(row) && !vector.isNullAt(row));
            for (int i = 0; i < fields.size(); i++) {
                StructField field = fields.get(i);
                String inner = name + "." + field.getName();
                refuseNull(vector.getChild(i), field.getDataType(), field.isNullable(), inner, inside);
            }
        }
    }

    private static Selection all(int size) {
        return new Selection(size, row -> true);
    }

    private static boolean converts(DataType from, StructField field) {
        DataType to = field.getDataType();
        boolean narrower = from instanceof LongType
                && (to instanceof IntegerType || to instanceof ShortType || to instanceof ByteType);
        boolean floats = from instanceof DoubleType && to instanceof FloatType;
        boolean decimals = from instanceof DecimalType && to instanceof DecimalType && !from.equals(to);
        return narrower || floats || decimals;
    }

    /** The vector with values of the field's type. A value that does not fit is refused. */
    private static ColumnVector converted(ColumnVector vector, StructField field) {
        if (!converts(vector.getDataType(), field)) {
            return vector;
        }
        List<Object> values = new ArrayList<>();
        for (int row = 0; row < vector.getSize(); row++) {
            Object value = value(vector, row);
            values.add(value == null ? null : converted(value, field));
        }
        return DefaultGenericVector.fromList(field.getDataType(), values);
    }

    private static Object converted(Object value, StructField field) {
        DataType type = field.getDataType();
        if (type instanceof FloatType) {
            return ((Double) value).floatValue();
        }
        if (type instanceof DecimalType) {
            DecimalType decimal = (DecimalType) type;
            BigDecimal scaled = rescaled((BigDecimal) value, decimal, field);
            return scaled;
        }
        long number = (Long) value;
        long least = type instanceof IntegerType
                ? Integer.MIN_VALUE
                : type instanceof ShortType ? Short.MIN_VALUE : Byte.MIN_VALUE;
        if (number < least || number > -(least + 1)) {
            throw new IllegalArgumentException(number + " does not fit into the column " + field.getName());
        }
        if (type instanceof IntegerType) {
            return (int) number;
        }
        return type instanceof ShortType ? (Object) (short) number : (Object) (byte) number;
    }

    private static BigDecimal rescaled(BigDecimal value, DecimalType type, StructField field) {
        BigDecimal least = value.stripTrailingZeros();
        BigDecimal scaled =
                least.scale() <= type.getScale() ? least.setScale(type.getScale(), RoundingMode.UNNECESSARY) : null;
        if (scaled == null || scaled.precision() > type.getPrecision()) {
            throw new IllegalArgumentException(value + " does not fit into the column " + field.getName());
        }
        return scaled;
    }

    /** A value of a primitive type. */
    private static Object value(ColumnVector vector, int row) {
        DataType type = vector.getDataType();
        if (vector.isNullAt(row)) {
            return null;
        } else if (type instanceof StringType) {
            return vector.getString(row);
        } else if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType) {
            return vector.getLong(row);
        } else if (type instanceof IntegerType || type instanceof DateType) {
            return vector.getInt(row);
        } else if (type instanceof ShortType) {
            return vector.getShort(row);
        } else if (type instanceof ByteType) {
            return vector.getByte(row);
        } else if (type instanceof BooleanType) {
            return vector.getBoolean(row);
        } else if (type instanceof DoubleType) {
            return vector.getDouble(row);
        } else if (type instanceof FloatType) {
            return vector.getFloat(row);
        } else if (type instanceof DecimalType) {
            return vector.getDecimal(row);
        } else if (type instanceof BinaryType) {
            return vector.getBinary(row);
        }
        throw new Server.NotSupported("a value of type " + type);
    }

    // -------------------- types of Parquet files

    /** The types of the columns of a Parquet file; null for a column that has no values. */
    private static Map<String, DataType> typesOf(String file) throws IOException {
        try (ParquetFileReader reader =
                ParquetFileReader.open(HadoopInputFile.fromPath(new Path(file), new Configuration()))) {
            Map<String, DataType> types = new LinkedHashMap<>();
            for (Type each : reader.getFooter().getFileMetaData().getSchema().getFields()) {
                types.put(each.getName(), typeOf(each));
            }
            return types;
        }
    }

    private static DataType typeOf(Type type) {
        LogicalTypeAnnotation kind = type.getLogicalTypeAnnotation();
        if (!type.isPrimitive()) {
            GroupType group = type.asGroupType();
            if (kind instanceof LogicalTypeAnnotation.ListLogicalTypeAnnotation) {
                return new ArrayType(typeOf(group.getType(0).asGroupType().getType(0)), true);
            }
            if (kind instanceof LogicalTypeAnnotation.MapLogicalTypeAnnotation) {
                GroupType pair = group.getType(0).asGroupType();
                return new MapType(typeOf(pair.getType(0)), typeOf(pair.getType(1)), true);
            }
            StructType struct = new StructType();
            for (Type each : group.getFields()) {
                struct = struct.add(each.getName(), typeOf(each));
            }
            return struct;
        }
        if (kind instanceof LogicalTypeAnnotation.UnknownLogicalTypeAnnotation) {
            return null;
        }
        if (kind instanceof DecimalLogicalTypeAnnotation) {
            DecimalLogicalTypeAnnotation decimal = (DecimalLogicalTypeAnnotation) kind;
            return new DecimalType(decimal.getPrecision(), decimal.getScale());
        }
        if (kind instanceof TimestampLogicalTypeAnnotation) {
            return ((TimestampLogicalTypeAnnotation) kind).isAdjustedToUTC()
                    ? TimestampType.TIMESTAMP
                    : TimestampNTZType.TIMESTAMP_NTZ;
        }
        if (kind instanceof LogicalTypeAnnotation.DateLogicalTypeAnnotation) {
            return DateType.DATE;
        }
        if (kind instanceof LogicalTypeAnnotation.StringLogicalTypeAnnotation) {
            return StringType.STRING;
        }
        if (kind instanceof IntLogicalTypeAnnotation && ((IntLogicalTypeAnnotation) kind).getBitWidth() < 32) {
            return ((IntLogicalTypeAnnotation) kind).getBitWidth() == 8 ? ByteType.BYTE : ShortType.SHORT;
        }
        switch (type.asPrimitiveType().getPrimitiveTypeName()) {
            case BOOLEAN:
                return BooleanType.BOOLEAN;
            case INT32:
                return IntegerType.INTEGER;
            case INT64:
                return LongType.LONG;
            case FLOAT:
                return FloatType.FLOAT;
            case DOUBLE:
                return DoubleType.DOUBLE;
            case INT96:
                return TimestampType.TIMESTAMP;
            default:
                return BinaryType.BINARY;
        }
    }
}
