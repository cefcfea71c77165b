package deltalog.conformance.kernel;

import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.defaults.internal.data.DefaultColumnarBatch;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.types.ArrayType;
import io.delta.kernel.types.DataType;
import io.delta.kernel.types.MapType;
import io.delta.kernel.types.StructField;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.DataFileStatus;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** Hands rows over to the kit as one Parquet file, which the kernel writes. */
final class RowFile {
    /** Whether there is a file with rows. */
    enum Written {
        ROWS,
        NONE
    }

    private RowFile() {}

    static Written write(Engine engine, List<FilteredColumnarBatch> batches, Path into) throws IOException {
        List<FilteredColumnarBatch> plain = new ArrayList<>();
        for (FilteredColumnarBatch batch : batches) {
            if (batch.getData().getSize() > 0) {
                plain.add(new FilteredColumnarBatch(plain(batch.getData()), batch.getSelectionVector()));
            }
        }
        if (plain.isEmpty()) {
            return Written.NONE;
        }
        Path scratch = Files.createTempDirectory(into.getParent(), "rows-");
        try (CloseableIterator<DataFileStatus> files = engine.getParquetHandler()
                .writeParquetFiles(scratch.toString(), Reading.iterator(plain), List.of())) {
            Path file = Path.of(new org.apache.hadoop.fs.Path(files.next().getPath()).toUri().getPath());
            if (files.hasNext()) {
                throw new IllegalStateException("the rows do not fit into one file");
            }
            Files.move(file, into, StandardCopyOption.REPLACE_EXISTING);
        } finally {
            remove(scratch);
        }
        return Written.ROWS;
    }

    private static void remove(Path directory) throws IOException {
        try (Stream<Path> files = Files.list(directory)) {
            for (Path file : (Iterable<Path>) files::iterator) {
                Files.delete(file);
            }
        }
        Files.delete(directory);
    }

    // Field ids would let the kernel write one schema for all, and its writer trusts that a column is not null.
    private static ColumnarBatch plain(ColumnarBatch batch) {
        ColumnVector[] vectors = new ColumnVector[batch.getSchema().length()];
        for (int i = 0; i < vectors.length; i++) {
            vectors[i] = batch.getColumnVector(i);
        }
        return new DefaultColumnarBatch(batch.getSize(), (StructType) plain(batch.getSchema()), vectors);
    }

    /** The type with names and types only: every field may be null, and has no metadata. */
    private static DataType plain(DataType type) {
        if (type instanceof StructType) {
            List<StructField> fields = new ArrayList<>();
            for (StructField field : ((StructType) type).fields()) {
                fields.add(new StructField(field.getName(), plain(field.getDataType()), true));
            }
            return new StructType(fields);
        }
        if (type instanceof ArrayType) {
            return new ArrayType(plain(((ArrayType) type).getElementType()), true);
        }
        if (type instanceof MapType) {
            MapType map = (MapType) type;
            return new MapType(plain(map.getKeyType()), plain(map.getValueType()), true);
        }
        return type;
    }
}
